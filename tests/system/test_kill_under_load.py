"""Nothing that was accepted is lost when the primary is killed while clients send and receive."""

from __future__ import annotations

import pytest

from tests.system.clients import browse, wait_browse
from tests.system.failover_clients import FailoverReceiver, FailoverSender, first_gap

pytestmark = pytest.mark.system


def test_kill_under_load_loses_nothing(a_cluster):
    """SIGKILL of the primary: every accepted message is on the new one, in order."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with FailoverSender(cluster.addresses, "q", rate=20) as sender:
        sender.wait_accepted(200)
        cluster.kill(0, promote=1)
        sender.wait_accepted(200)
    assert sender.losses
    bodies = browse(cluster[1], "q")
    assert sender.missing(bodies) == []
    assert first_gap(map(int, bodies)) == 0
    wait_browse(cluster[2], "q", bodies)


def test_kill_under_load_with_a_receiver_loses_nothing(a_cluster):
    """Every accepted message reaches a receiver or is still there."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with FailoverReceiver(cluster.addresses, "q") as receiver:
        with FailoverSender(cluster.addresses, "q", rate=20) as sender:
            for victim, heir in ((0, 1), (1, 2)):
                sender.wait_accepted(150)
                cluster.bounce(victim, promote=heir)
                cluster.wait_settled(heir)
            sender.wait_accepted(150)
        receiver.wait_received(lambda received: not sender.missing(received))
    assert first_gap(receiver.numbers()) == 0
