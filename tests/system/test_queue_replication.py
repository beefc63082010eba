"""Replicas of single queues, without a cluster: the original's test_standalone_queue_replica and
test_standalone_queue_replica_failover, and what that one could not promise.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.client.errors import ClientError
from qpidha.model.errors import RefusedRequest
from tests.system.clients import browse, connect, receive, send, wait_browse
from tests.system.cluster import Broker, wait_for
from tests.system.failover_clients import FailoverSender

ALONE: dict[str, Any] = {"ha_cluster": "no", "ha_brokers_url": None, "ha_queue_replication": "yes"}


def row(broker: Broker, queue: str = "q") -> dict[str, Any]:
    """Return what a broker says of one of its replicas; empty if it has none of this name."""
    rows = [row for row in broker.call("list_replicas") if row["queue"] == queue]
    return dict(rows[0]) if rows else {}


def wait_row(broker: Broker, queue: str = "q", **expected: object) -> dict[str, Any]:
    """Wait until a replica is as expected."""
    return wait_for(
        lambda: row(broker, queue),
        lambda found: all(found.get(name) == value for name, value in expected.items()),
        what=f"replica {queue}",
    )


def wait_same(broker: Broker, queue: str, expected: list[object]) -> None:
    """Wait until a replica has exactly these bodies, in this order, and says that it follows."""
    wait_browse(broker, queue, expected)
    wait_row(broker, queue, state="following", behind=0)


def pair(a_cluster: Any, **options: object) -> tuple[Broker, Broker]:
    """Return two brokers alone with a queue on both, of which the second is to have the replica."""
    source, replica = (a_cluster(1, promote=False, **ALONE, **options)[0] for _ in range(2))
    for broker in (source, replica):
        declare(broker, "q")
    return source, replica


def declare(broker: Broker, *queues: str, **arguments: object) -> None:
    for queue in queues:
        broker.call("declare_queue", name=queue, durable=True, arguments=arguments)


def test_standalone_queue_replica(a_cluster):
    """The original: three messages are there, the replica begins, three more come, one is consumed;
    a second queue is made and begun by one command of a tool.
    """
    source, replica = pair(a_cluster)
    declare(source, "q2")
    declare(replica, "q2")
    send(source, "q", ["0", "1", "2"])
    replica.call("replicate", broker=source.address, queue="q")
    wait_same(replica, "q", ["0", "1", "2"])
    send(source, "q", ["3", "4", "5"])
    wait_same(replica, "q", ["0", "1", "2", "3", "4", "5"])
    assert receive(source, "q", 1) == ["0"]
    wait_same(replica, "q", ["1", "2", "3", "4", "5"])
    send(source, "q2", ["x"])
    replica.call("replicate", broker=source.address, queue="q2")
    wait_same(replica, "q2", ["x"])
    streams = source.call("status")["replica_streams"]
    assert sorted(stream["queue"] for stream in streams) == ["q", "q2"]


def test_standalone_queue_replica_failover(a_cluster):
    """The original: the source is a cluster of two, whose URL names both, and the replica a broker
    alone. It goes on over failovers, without a loss and without a duplicate.
    """
    source = a_cluster(2)
    replica = a_cluster(1, promote=False, **ALONE)[0]
    source[0].declare_queue("q")
    declare(replica, "q")
    replica.call("replicate", broker=source.url, queue="q")
    wait_same(replica, "q", [])
    send(source[0], "q", ["a"])
    wait_same(replica, "q", ["a"])
    source[0].kill()
    source[1].promote()
    source[0].restart()
    source.wait_settled(1)
    wait_same(replica, "q", ["a"])
    send(source[1], "q", ["b"])
    wait_same(replica, "q", ["a", "b"])
    source[1].kill()
    source[0].promote()
    source[1].restart()
    source.wait_settled(0)
    assert receive(source[0], "q", 1) == ["a"]
    wait_same(replica, "q", ["b"])


def test_the_source_is_lost_and_everything_replicated_is_there(a_cluster):
    """The source is killed under load, and the replica becomes a queue of its own: everything that
    was accepted and replicated is on it, in order, and the rest is what the lag said.
    """
    source, replica = pair(a_cluster)
    replica.call("replicate", broker=source.address, queue="q")
    with FailoverSender([source.address], "q", prefix="s", rate=300, durable=True) as sender:
        sender.wait_accepted(500)
        wait_for(lambda: row(replica)["messages"], lambda count: count > 300)
        source.kill()
        was = wait_row(replica, state="connecting")
        assert was["whole"] and was["late_ns"] > 0 and was["error"]
        there = browse(replica, "q")
        with pytest.raises(RefusedRequest, match="no messages"), connect(replica) as client:
            raise_refusal(client, "q")
        stopped = replica.call("stop_replica", queue="q")
        assert stopped["messages"] == len(there)
        lacking = sender.missing(there)
    # Sent in their order, and replicated in it: what lacks is the end alone.
    assert len(there) > 300 and there == [f"s{number}" for number in range(1, len(there) + 1)]
    assert lacking == [body for body in sender.bodies() if int(body[1:]) > len(there)]
    send(replica, "q", ["more"], durable=True)
    assert receive(replica, "q", len(there) + 1) == [*there, "more"]
    replica.kill()
    replica.restart()
    assert browse(replica, "q") == []


def raise_refusal(client: Any, address: str) -> None:
    try:
        client.sender(address).send("x")
    except ClientError as error:
        raise RefusedRequest(str(error)) from error
