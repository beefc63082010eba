"""Nodes that are made by pattern, over a failover."""

from __future__ import annotations

import pytest

from tests.system.clients import connect
from tests.system.cluster import wait_for

pytestmark = pytest.mark.system


def names(broker):
    return {row["name"] for row in broker.call("list_queues")}


def test_a_queue_that_was_made_is_replicated_and_ends_on_the_next_primary(a_cluster):
    """What is on it keeps it, then it ends, there and on the backup that came back."""
    cluster = a_cluster(2, ha_replicate="all", queue_patterns="^orders", topic_patterns="^news")
    with connect(cluster[0]) as client:
        client.sender("orders.new").send("kept")
        client.receiver("news.all")
    wait_for(lambda: names(cluster[1]), {"orders.new"}.__eq__, what="the queues of the backup")
    cluster.bounce(0, promote=1)
    wait_for(cluster[0].status, lambda seen: seen.get("state") == "ready", what="the backup")
    with connect(cluster[1]) as client:
        received = client.receiver("orders.new").receive()
        assert received.body == "kept"
        received.accept()
    for broker in cluster:
        wait_for(lambda broker=broker: names(broker), set().__eq__, what="the queues that are left")
        exchanges = {row["name"] for row in broker.call("list_exchanges")}
        assert not {name for name in exchanges if name.startswith("news")}
