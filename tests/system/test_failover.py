"""Clients and backups over a change of primary: the original's ReplicationTests that fail over.

What one log makes different is said in each test.
"""

from __future__ import annotations

import pytest

from qpidha.client.blocking import Client
from qpidha.client.errors import ConnectError, LinkError, TimedOut
from tests.system.clients import (
    PATIENCE,
    browse,
    connect,
    receive,
    send,
    send_unroutable,
    wait_browse,
)
from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender, first_gap

pytestmark = pytest.mark.system


def test_failover_python(a_cluster):
    """A client is refused by a backup, a tool is not, and a client with all addresses is served
    before and after a failover. A refused client loses its TCP connection, as in the original.
    """
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with pytest.raises(ConnectError, match="was refused"):
        connect(cluster[1])
    connect(cluster[1], admin=True).close()

    with Client([cluster[1].address, cluster[0].address], timeout=PATIENCE) as client:
        sender = client.sender("q")
        sender.send("foo")
        cluster.kill(0, promote=1)
        sender.send("bar")
        assert client.connects == 2
    assert browse(cluster[1], "q") == ["foo", "bar"]


def test_heartbeat_python(a_cluster):
    """A client with a heartbeat gets an error from a stopped broker: in use, on connecting and on
    connecting again.
    """
    (broker,) = a_cluster(1)
    broker.declare_queue("q")
    receiver = connect(broker, heartbeat=1).receiver("q")
    sender = connect(broker, heartbeat=1).sender("q")
    broker.stop()
    try:
        with pytest.raises(ConnectError):
            receiver.receive()
        with pytest.raises(ConnectError):
            sender.send("x")
        with pytest.raises((ConnectError, TimedOut)):
            connect(broker, heartbeat=1, timeout=2)
    finally:
        broker.cont()


def test_failover_cpp(a_cluster):
    """A numbered sender and receiver with all addresses go on after a failover, without a gap."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with (
        FailoverSender(cluster.addresses, "q") as sender,
        FailoverReceiver(cluster.addresses, "q") as receiver,
    ):
        receiver.wait_received(lambda received: len(received) > 10)
        cluster.kill(0, promote=1)
        last = max(receiver.numbers())
        wait_for(
            lambda: max(receiver.numbers()),
            lambda seen: seen > last + 10,
            what="the highest number received",
        )
    assert first_gap(receiver.numbers()) == 0
    assert sender.refused == []


def test_backup_failover(a_cluster):
    """A backup follows the new primary and keeps what it had."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a"])
    for backup in cluster[1:]:
        wait_browse(backup, "q", ["a"])
    cluster.kill(0, promote=1)
    send(cluster[1], "q", ["b"])
    wait_browse(cluster[2], "q", ["a", "b"])
    assert receive(cluster[1], "q", 1) == ["a"]
    wait_browse(cluster[2], "q", ["b"])


def test_empty_backup_failover(a_cluster):
    """A cluster without a single queue fails over too."""
    cluster = a_cluster(3)
    cluster.kill(0, promote=1)
    cluster.wait_settled(1)


def test_delete_missing_response(a_cluster):
    """A broker that joins a primary loses objects that the primary does not have, and same-named
    ones are the primary's.

    A backup of the original could be given objects of its own by a tool; here only a primary has
    its own. So #1 was primary by itself, hung, and finds that #0 was promoted meanwhile, with a
    higher epoch: it steps down and rejoins.
    """
    cluster = a_cluster(2, started=1)
    cluster.kill(0)  # #0 has promised epoch 1, so that its next one is higher than #1's.
    cluster[1].start()
    cluster[1].wait_up()
    cluster.promote(1)
    cluster[1].wait_state("active")
    for queue, exchange in (("q1", "e1"), ("q2", "e2")):
        cluster[1].declare_queue(queue)
        cluster[1].declare_exchange(exchange)
        cluster[1].bind(exchange, queue, "old")
        send(cluster[1], queue, ["old"])

    cluster[1].stop()
    try:
        cluster[0].restart()
        cluster.promote(0)
        cluster[0].wait_state("active")
        cluster[0].declare_queue("q1")
        cluster[0].declare_exchange("e1")
        send(cluster[0], "q1", ["new"])
    finally:
        cluster[1].cont()
    cluster.wait_settled(0)
    wait_browse(cluster[1], "q1", ["new"])
    assert cluster[1].queue_names() == ["q1"]
    assert [name for name in cluster[1].exchange_names() if name.startswith("e")] == ["e1"]
    assert cluster[1].bindings() == []


def test_delete_qpid_4285(a_cluster):
    """A queue that came by replication can be deleted on the new primary, and nothing of it is
    left.
    """
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    wait_for(cluster[1].queue_names, lambda names: "q" in names, what="queues of the backup")
    cluster.kill(0, promote=1)
    cluster[1].delete_queue("q")
    with pytest.raises(LinkError) as missing:
        browse(cluster[1], "q")
    assert missing.value.condition == "amqp:not-found"
    assert "q" not in cluster[1].queue_names()


def test_missed_recreate(a_cluster):
    """A backup that missed that a queue and an exchange were deleted and made again has none of
    their former contents.

    The original did this on #1 before promoting it; only a primary can, so #2 is away while #1,
    promoted, does it.
    """
    cluster = a_cluster(3, ha_backup_timeout="0.5")
    cluster[0].declare_queue("qq")
    cluster[0].declare_exchange("ex")
    cluster[0].bind("ex", "qq", "k")
    send(cluster[0], "ex/k", ["old"])
    for backup in cluster[1:]:
        wait_browse(backup, "qq", ["old"])
    cluster[2].stop()
    cluster.kill(0)
    try:
        cluster.promote(1)
        cluster[1].delete_queue("qq")
        cluster[1].delete_exchange("ex")
        cluster[1].declare_queue("qq")
        cluster[1].declare_exchange("ex")
        send(cluster[1], "qq", ["new"])
    finally:
        cluster[2].cont()
    cluster.wait_settled(1)
    wait_browse(cluster[2], "qq", ["new"])
    assert cluster[2].bindings() == []
    cluster.kill(1, promote=2)
    send_unroutable(cluster[2], "ex/k")
    assert browse(cluster[2], "qq") == ["new"]


def test_resource_limit_bug(a_cluster):
    """Deleting and making a replicated queue again on a new primary meets no limit."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a"])
    cluster.kill(0, promote=1)
    cluster[1].delete_queue("q")
    cluster[1].declare_queue("q")
    send(cluster[1], "q", ["b"])
    wait_browse(cluster[2], "q", ["b"])
