"""Messages that are delivered later, over a change of primary."""

from __future__ import annotations

import time

import pytest

from qpidha.client.blocking import Client
from qpidha.client.message import Message
from qpidha.model.features import QUEUE_KINDS
from tests.system.clients import PATIENCE
from tests.system.cluster import wait_for

pytestmark = pytest.mark.system

DELAY, KILL_AFTER, COUNT = 5.0, 2.0, 100


def test_row_118_a_failover_delivers_none_early_and_all_in_the_end(a_cluster):
    """The primary is killed 2 s after messages were sent that are due after 5 s. One clock serves
    both brokers and the clients here; those of machines are played in the broker's own tests.
    """
    cluster = a_cluster(2)
    wait_for(
        lambda: cluster[0].status()["features"]["enabled"],
        lambda enabled: QUEUE_KINDS in enabled,
        what="enabled features",
    )
    cluster[0].declare_queue("q")
    with Client(cluster.addresses, timeout=PATIENCE) as client:
        sender = client.sender("q")
        sent = {}
        for number in range(COUNT):
            sent[number] = time.monotonic()
            sender.send(
                Message(number, message_annotations={"x-opt-delivery-delay": int(DELAY * 1000)})
            )
        time.sleep(max(0.0, sent[0] + KILL_AFTER - time.monotonic()))
        cluster.kill(0, promote=1)
        receiver = client.receiver("q")
        came = {}
        while len(came) < COUNT:
            message = receiver.receive()
            came[message.body] = time.monotonic()
            message.accept()
    assert min(came[number] - sent[number] for number in sent) >= DELAY
