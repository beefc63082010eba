"""Dead letters on real brokers: each is on its queue or among the dead letters, whatever dies in
between.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from qpidha.client.links import Delivery
from tests.system.clients import browse, connect, wait_browse
from tests.system.cluster import Broker, wait_for
from tests.system.failover_clients import FailoverReceiver

pytestmark = pytest.mark.system

COUNT = 1000


def depth(broker: Broker, queue: str) -> int:
    """How many messages a queue has."""
    (row,) = (each for each in broker.call("list_queues") if each["name"] == queue)
    return int(row["messages"])


class Rejecter(FailoverReceiver):
    """Rejects everything on a queue."""

    @staticmethod
    def judge(message: Delivery) -> None:
        message.reject()


def test_row_98_of_a_thousand_rejected_messages_none_is_lost_or_doubled_by_kills(a_cluster):
    cluster = a_cluster(3)
    primary = cluster[0]
    primary.wait_enabled()
    primary.declare_queue("dead")
    primary.call("declare_queue", name="q", arguments={"x-dead-letter-exchange": "/queues/dead"})
    with connect(primary) as client:
        sender = client.sender("q", window=COUNT)
        for number in range(COUNT):
            sender.send_nowait(str(number))
        sender.flush()
    with Rejecter(cluster.addresses, "q") as rejecter:
        for victim, heir, rejected in ((0, 1, COUNT // 5), (1, 2, COUNT // 2)):
            rejecter.wait_received(lambda received, enough=rejected: len(received) >= enough)
            cluster.bounce(victim, promote=heir)
            cluster.wait_settled(heir)
        wait_browse(cluster[2], "q", [])
    bodies = browse(cluster[2], "dead")
    assert sorted(bodies, key=int) == [str(number) for number in range(COUNT)]
    assert rejecter.losses
    for broker in cluster[:2]:
        wait_browse(broker, "dead", bodies)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cluster[2].call, "requeue_messages", name="dead")
        wait_for(lambda: depth(cluster[2], "q"), what="the first that are sent back")
        cluster.bounce(2, promote=0)
        asked.exception()  # It is answered, or the broker is gone.
    cluster.wait_settled(0)
    left = browse(cluster[0], "dead")
    returned = cluster[0].call("requeue_messages", name="dead")
    assert (returned["messages"], returned["left"]) == (len(left), 0)
    assert sorted(browse(cluster[0], "q"), key=int) == [str(number) for number in range(COUNT)]


def test_rabbitmq_row_3_none_is_lost_or_doubled_where_the_target_is_full_half_of_the_time(
    a_cluster,
):
    cluster = a_cluster(3)
    cluster[0].wait_enabled()
    cluster[0].declare_queue("kept")
    cluster[0].declare_queue("dead", max_count=100)
    target = {"x-dead-letter-exchange": "/queues/dead"}
    cluster[0].call("declare_queue", name="q", arguments=target)
    bodies = [str(number) for number in range(COUNT)]
    with connect(cluster[0]) as client:
        sender = client.sender("q", window=COUNT)
        for body in bodies:
            sender.send_nowait(body)
        sender.flush()

    def pending(broker: Broker) -> int:
        (row,) = broker.call("list_queues", name="q")
        assert not row["dlx_pending"] or row["dlx_pending_why"]
        return int(row["dlx_pending"])

    def make_room(broker: Broker) -> int:
        return int(
            broker.call("move_messages", name="dead", target="kept", count=COUNT)["messages"]
        )

    with Rejecter(cluster.addresses, "q"):
        for victim, heir in ((0, 1), (1, 2)):
            wait_for(lambda broker=cluster[victim]: pending(broker), what="what has no place")
            assert make_room(cluster[victim]) == 100
            wait_for(lambda broker=cluster[victim]: pending(broker), what="what has no place")
            cluster.bounce(victim, promote=heir)
            cluster.wait_settled(heir)
        wait_for(
            lambda: (make_room(cluster[2]), depth(cluster[2], "q"), depth(cluster[2], "dead"))[1:],
            (0, 0).__eq__,
            what="what is left on both queues",
        )
    kept = browse(cluster[2], "kept")
    assert sorted(kept, key=int) == bodies
    for broker in cluster[:2]:
        wait_browse(broker, "kept", kept)
