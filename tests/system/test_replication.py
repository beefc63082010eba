"""What is on the primary is on its backups: the original's ReplicationTests that are about
contents.

What one log makes different: a backup is read-only for everybody, tools included, because only the
primary appends. Where the original wrote to a backup as admin to see that an exchange there routes,
these tests read the backup's bindings, see the write refused, and later promote the backup and
publish on it.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from qpidha.client.errors import LinkError, NotAccepted
from qpidha.client.message import Message
from qpidha.model.errors import RefusedRequest
from tests.patience import STATE
from tests.system.clients import (
    CREATE,
    browse,
    connect,
    contents,
    receive,
    send,
    send_unroutable,
    wait_browse,
)
from tests.system.cluster import Broker, wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender

pytestmark = pytest.mark.system


def set_up(primary: Broker, n: str) -> None:
    """Make one round of objects and messages; the marker queue comes last."""
    for queue, level, bodies in (
        ("q1", "all", ["a", "b", "1"]),
        ("q2", "configuration", ["2"]),
        ("q3", "none", ["3"]),
        ("q4", "all", ["6"]),
    ):
        primary.declare_queue(n + queue, level)
        send(primary, n + queue, bodies)
    assert receive(primary, n + "q1", 1) == ["a"]
    for exchange, level, queue, body in (
        ("e1", "all", "q1", "4"),
        ("e2", "configuration", "q2", "5"),
        ("e4", "all", "q4", "7"),
    ):
        primary.declare_exchange(n + exchange, "fanout", level)
        primary.bind(n + exchange, n + queue)
        send(primary, n + exchange, [body])
    primary.unbind(n + "e4", n + "q4")
    send_unroutable(primary, n + "e4")
    primary.declare_queue(n + "dq", "all")
    primary.declare_exchange(n + "de", "fanout", "all")
    primary.bind(n + "de", n + "dq")
    primary.delete_exchange(n + "de")
    primary.delete_queue(n + "dq")
    primary.declare_queue(n + "x", "configuration")


def verify(primary: Broker, backup: Broker, n: str) -> None:
    """Compare a backup with what `set_up` made."""
    wait_for(backup.queue_names, lambda names: n + "x" in names, what=f"queues of {backup.name}")
    wait_browse(backup, n + "q1", ["b", "1", "4"])
    assert receive(primary, n + "q1", 1) == ["b"]
    wait_browse(backup, n + "q1", ["1", "4"])
    assert browse(backup, n + "q2", admin=True) == []
    wait_browse(backup, n + "q4", ["6", "7"])
    with pytest.raises(LinkError) as missing:
        browse(backup, n + "q3", admin=True)
    assert missing.value.condition == "amqp:not-found"
    assert [binding for binding in backup.bindings() if binding[0].startswith(n)] == [
        (n + "e1", n + "q1", ""),
        (n + "e2", n + "q2", ""),
    ]
    assert n + "e4" in backup.exchange_names()
    assert n + "dq" not in backup.queue_names()
    assert n + "de" not in backup.exchange_names()


def test_replication(a_cluster):
    """Levels, bindings, deletion and order, for a backup that was away and for one that was there.

    The original published on the backup; here that is refused, and routing is checked after
    promoting it.
    """
    primary, backup = cluster = a_cluster(2)
    backup.kill()
    set_up(primary, "1")
    backup.restart()
    verify(primary, backup, "1")
    set_up(primary, "2")
    verify(primary, backup, "2")
    with pytest.raises(LinkError) as refused:
        send(backup, "1e1", ["y"], admin=True)
    assert refused.value.condition == "amqp:not-allowed"
    with pytest.raises(LinkError) as refused:
        receive(backup, "1q1", 1, admin=True)
    assert refused.value.condition == "amqp:not-allowed"

    primary.declare_queue("foo")
    expected = [str(i) for i in range(10)]
    send(primary, "foo", expected)
    wait_browse(backup, "foo", expected)
    while expected:
        assert receive(primary, "foo", 1) == [expected.pop(0)]
        wait_browse(backup, "foo", expected)
    assert browse(primary, "foo") == []

    cluster.kill(0, promote=1)
    for n in ("1", "2"):
        for exchange in ("e1", "e2"):
            send(backup, n + exchange, ["y"])
        send_unroutable(backup, n + "e4")
        assert browse(backup, n + "q1") == ["1", "4", "y"]
        assert browse(backup, n + "q2") == ["y"]
        assert browse(backup, n + "q4") == ["6", "7"]


def test_sync(a_cluster):
    """Backups that join one after the other get everything, in order."""
    cluster = a_cluster(3, started=1)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", range(10))
    cluster[1].restart()
    send(cluster[0], "q", range(10, 20))
    wait_browse(cluster[1], "q", range(20))
    cluster[2].restart()
    send(cluster[0], "q", range(20, 30))
    wait_browse(cluster[1], "q", range(30))
    wait_browse(cluster[2], "q", range(30))
    cluster.wait_settled(0)


def test_send_receive(a_cluster):
    """1000 sent and 990 received by clients at the same time leave 991 to 1000 on every backup."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with FailoverSender(cluster.addresses[:1], "q", count=1000, rate=50, window=200) as sender:
        taken = receive(cluster[0], "q", 990)
        wait_for(lambda: sender.done, what="whether everything was accepted")
    assert taken == [str(i) for i in range(1, 991)]
    assert sender.losses == []
    for backup in cluster[1:]:
        wait_browse(backup, "q", [str(i) for i in range(991, 1001)])


def test_qpid_config_replication(a_cluster):
    """A queue made with the command-line tool replicates.

    The original used `qpid-config add queue`; here it is `qpid-ha queue add`.
    """
    primary, backup = a_cluster(2, ha_replicate="none")
    command = [
        sys.executable,
        "-m",
        "qpidha.cli.main",
        "queue",
        "add",
        "q",
        "--replicate",
        "all",
        "-b",
        primary.address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STATE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    send(primary, "q", ["foo"])
    wait_browse(backup, "q", ["foo"])


def test_ring(a_cluster):
    """A ring queue of 5 keeps the newest 5 on the backup too."""
    primary, backup = a_cluster(2)
    primary.declare_queue("q", policy_type="ring", max_count=5)
    send(primary, "q", range(10))
    assert browse(primary, "q") == [5, 6, 7, 8, 9]
    wait_browse(backup, "q", [5, 6, 7, 8, 9])


def test_reject(a_cluster):
    """A full queue refuses what is over its limit; the backup holds the accepted messages and
    lives.
    """
    primary, backup = a_cluster(2)
    primary.declare_queue("q", policy_type="reject", max_count=5, flow_stop_count=0)
    refused = 0
    with connect(primary) as client:
        sender = client.sender("q")
        for i in range(10):
            try:
                sender.send(Message(i))
            except NotAccepted:
                refused += 1
    assert refused == 5
    wait_browse(backup, "q", [0, 1, 2, 3, 4])
    backup.wait_state("ready")


def send_ranked(primary: Broker, queue: str, priorities: list[int]) -> None:
    """Send messages whose bodies are their priorities."""
    with connect(primary) as client:
        sender = client.sender(queue)
        for number in priorities:
            sender.send_nowait(Message(number, priority=number))
        sender.flush()


def in_shares(priorities: list[int], shares: dict[int, int]) -> list[int]:
    """The reference's order of 8 levels with shares: up to so many of each in turn, 0 for all."""
    left = sorted(priorities, key=lambda number: -min(max(number - 1, 0), 7))
    found: list[int] = []
    while left:
        postponed: list[int] = []
        count, last = 0, -1
        for number in left:
            level = min(max(number - 1, 0), 7)
            count = count + 1 if level == last else 1
            last = level
            share = shares.get(level, 0)
            (postponed if share and count > share else found).append(number)
        left = postponed
    return found


def test_qpid_12_15_16_17_orders_on_a_backup_that_takes_over(a_cluster):
    """test_lvq, test_priority, test_priority_fairshare and test_priority_ring, on one cluster."""
    cluster = a_cluster(2)
    primary, backup = cluster
    mixed = [8, 9, 5, 1, 2, 2, 3, 4, 9, 7, 8, 9, 9, 2]
    many = [4, 5, 3, 7, 8, 8, 2, 8, 2, 8, 8, 16, 6, 6, 6, 6, 6, 6, 8, 3]
    many += [5, 8, 3, 5, 5, 3, 3, 8, 8, 3, 7, 3, 7, 7, 7, 8, 8, 8, 2, 3]
    shares = {7: 0, 6: 4, 5: 3, 4: 2, 3: 2, 2: 2, 1: 2}
    primary.declare_queue("strict", priorities=10)
    primary.declare_queue(
        "fair",
        priorities=8,
        fairshare=5,
        **{f"fairshare-{level}": share for level, share in shares.items()},
    )
    primary.declare_queue("ring", priorities=10, policy_type="ring", max_count=5)
    primary.declare_queue("last", last_value_queue_key="lvq-key")
    send_ranked(primary, "strict", mixed)
    send_ranked(primary, "fair", many)
    send_ranked(primary, "ring", mixed)
    values: dict[str, str] = {}
    with connect(primary) as client:
        sender = client.sender("last")
        for value in ("a-1", "b-1", "a-2", "a-3", "c-1", "c-2", "b-2", "c-3", "d-1"):
            values.pop(value[0], None)
            values[value[0]] = value
            sender.send(Message(value, application_properties={"lvq-key": value[0]}))
            wait_browse(backup, "last", list(values.values()))
    # Browsers, those of a backup too, see the highest priority first.
    wait_browse(backup, "strict", sorted(mixed, reverse=True))
    assert browse(primary, "ring") == sorted(mixed, reverse=True)[:5]
    wait_browse(backup, "ring", sorted(mixed, reverse=True)[:5])
    cluster.kill(0, promote=1)
    assert receive(backup, "strict", len(mixed)) == sorted(mixed, reverse=True)
    assert receive(backup, "fair", len(many)) == in_shares(many, shares)
    assert receive(backup, "ring", 5) == sorted(mixed, reverse=True)[:5]
    assert receive(backup, "last", 4) == ["a-3", "b-2", "c-3", "d-1"]


def test_backup_acquired(a_cluster):
    """Messages that a consumer has, but did not accept, are on every backup, also on one that was
    away.
    """
    cluster = a_cluster(3)
    primary = cluster[0]
    everything = list(range(10))
    held = dict.fromkeys(("fifo", "priority", "fairshare"), everything)
    held |= {"ring": everything[5:], "last": everything[-1:]}
    primary.declare_queue("fifo")
    primary.declare_queue("ring", policy_type="ring", max_count=5)
    primary.declare_queue("priority", priorities=10)
    primary.declare_queue("fairshare", priorities=10, fairshare=5)
    primary.declare_queue("last", last_value_queue_key="no-such")
    cluster[2].kill()
    client = connect(primary)
    for queue, expected in held.items():
        send(primary, queue, everything)
        # A window of one would be given again for the message that is taken here.
        receiver = client.receiver(queue, credit=0)
        receiver.add_credit(1)
        assert receiver.receive().body == expected[0]
        assert browse(primary, queue) == expected[1:]
    cluster[2].restart()
    cluster.wait_settled(0)
    for backup in cluster[1:]:
        for queue, expected in held.items():
            wait_browse(backup, queue, expected)
    client.close()


@pytest.mark.parametrize("level", [None, "none"], ids=["unset", "none"])
def test_replicate_default(a_cluster, level):
    """Without ha-replicate nothing replicates that does not ask for it."""
    primary, backup = a_cluster(2, ha_replicate=level)
    primary.declare_queue("q")
    primary.declare_queue("marker", "all")
    send(primary, "q", ["a"])
    send(primary, "marker", ["b"])
    wait_browse(backup, "marker", ["b"])
    with pytest.raises(LinkError) as missing:
        browse(backup, "q", admin=True)
    assert missing.value.condition == "amqp:not-found"


def test_replicate_binding(a_cluster):
    """A binding that says qpid.replicate=none stays on its broker."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    cluster[0].declare_exchange("ex", "fanout")
    cluster[0].bind("ex", "q", replicate="none")
    send(cluster[0], "ex", ["a"])
    assert browse(cluster[0], "q") == ["a"]
    wait_browse(cluster[1], "q", ["a"])
    assert cluster[1].bindings() == []
    cluster.kill(0, promote=1)
    assert receive(cluster[1], "q", 1) == ["a"]
    send_unroutable(cluster[1], "ex")
    assert browse(cluster[1], "q") == []


def test_invalid_replication(a_cluster):
    """A level that does not exist fails the declaration, on the admin socket and on attach."""
    (broker,) = a_cluster(1)
    with pytest.raises(RefusedRequest) as refused:
        broker.declare_queue("q", "XXinvalidXX")
    assert refused.value.condition == "amqp:invalid-field"
    with connect(broker) as client, pytest.raises(LinkError) as detached:
        client.sender("q", capabilities=CREATE, node_properties={"qpid.replicate": "XXinvalidXX"})
    assert detached.value.condition == "amqp:invalid-field"
    assert "q" not in broker.queue_names()


def test_exclusive_queue(a_cluster):
    """An exclusive queue refuses a second connection and replicates like any other.

    The original also tried exclusive subscriptions, which AMQP 1.0 has no word for.
    """
    primary, backup = a_cluster(2)
    first, second = connect(primary), connect(primary)
    first.receiver("q", credit=0, capabilities=CREATE, node_properties={"exclusive": True})
    with pytest.raises(LinkError) as locked:
        second.receiver("q")
    assert locked.value.condition in ("amqp:resource-locked", "amqp:precondition-failed")
    first.sender("q").send("foo")
    wait_browse(backup, "q", ["foo"])
    assert contents(first.receiver("q", browse=True)) == ["foo"]
    first.close()
    second.close()


def test_broker_info(a_cluster):
    """Every broker knows the system ids of all, also of one that joins later."""
    cluster = a_cluster(4, started=3)

    def members(broker: Broker) -> set[str]:
        return {member["system_id"] for member in broker.status()["members"] if member["system_id"]}

    for brokers in (cluster[:3], cluster[:4]):
        if len(brokers) == 4:
            cluster[3].restart()
            cluster.wait_settled(0)
        expected = {broker.system_id for broker in brokers}
        assert len(expected) == len(brokers)
        for broker in brokers:
            assert (broker.data_dir / "systemId").read_text().strip() == broker.system_id
            wait_for(
                lambda broker=broker: members(broker),
                expected.__eq__,
                what=f"members known to {broker.name}",
            )


def test_a_browser_on_a_backup_takes_nothing(a_cluster):
    """A tool that browses a backup leaves it as it was."""
    primary, backup = a_cluster(2)
    primary.declare_queue("q")
    send(primary, "q", ["a", "b"])
    wait_browse(backup, "q", ["a", "b"])
    with connect(backup, admin=True) as client:
        message = client.receiver("q", credit=2, browse=True).receive()
        assert message.body == "a"
        message.accept()
    assert browse(backup, "q", admin=True) == ["a", "b"]
    assert browse(primary, "q") == ["a", "b"]


def test_a_receiver_gets_what_a_sender_sends_through_the_primary(a_cluster):
    """Sender and receiver that run together lose and repeat nothing while nothing fails."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with (
        FailoverReceiver(cluster.addresses, "q") as receiver,
        FailoverSender(cluster.addresses, "q", count=300, rate=20) as sender,
    ):
        receiver.wait_received(lambda received: len(received) >= 300)
        wait_for(lambda: sender.done, what="whether everything was accepted")
    assert receiver.numbers() == list(range(1, 301))
    wait_browse(cluster[1], "q", [])
