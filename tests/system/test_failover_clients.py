"""The clients of these tests themselves: a message that one of them takes off a queue is noted, or
tests would find losses that there are not.
"""

from __future__ import annotations

import pytest

from tests.system.clients import browse
from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender

pytestmark = pytest.mark.system


def test_a_receiver_that_ends_under_load_has_noted_all_that_it_accepted(a_cluster):
    (broker,) = a_cluster(1)
    broker.declare_queue("q")
    received: list[str] = []
    with FailoverSender([broker.address], "q", rate=100, window=500) as sender:
        for _ in range(20):
            with FailoverReceiver([broker.address], "q") as receiver:
                receiver.wait_received(lambda received: len(received) > 100)
            received += receiver.received
        sender.wait_accepted(100)
    # What the last one had and did not accept comes back when the broker hears that it is gone.
    wait_for(
        lambda: sender.missing([*received, *browse(broker, "q")]),
        lambda missing: missing == [],
        what="what nobody has",
    )
