"""Replicas of single queues, without a cluster: the original's test_standalone_queue_replica and
test_standalone_queue_replica_failover, and what that one could not promise.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from qpidha.client.errors import ClientError
from qpidha.client.message import Message
from qpidha.model.errors import RefusedRequest
from tests.patience import STATE
from tests.system.clients import browse, connect, receive, send, wait_browse
from tests.system.cluster import Broker, wait_for
from tests.system.credentials import Authority, users_file
from tests.system.failover_clients import FailoverReceiver, FailoverSender

pytestmark = pytest.mark.system
ALONE: dict[str, Any] = {"ha_cluster": "no", "ha_brokers_url": None, "ha_queue_replication": "yes"}


def row(broker: Broker, queue: str = "q") -> dict[str, Any]:
    """Return what a broker says of one of its replicas; empty if it has none of this name."""
    rows = [row for row in broker.call("list_replicas") if row["queue"] == queue]
    return dict(rows[0]) if rows else {}


def run(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of the commands."""
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=STATE, check=False)


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


def test_qpid_config_starts_a_replica(a_cluster):
    """The original's second queue: one command declares it and begins."""
    source, replica = pair(a_cluster)
    declare(source, "q2")
    send(source, "q2", ["x"])
    asked = ["add", "queue", "q2", "--durable", "--start-replica", source.address, "--ha-admin"]
    said = run("qpidha.tools.qpid_config", "-b", replica.address, *asked)
    assert said.returncode == 0, said.stdout + said.stderr
    wait_same(replica, "q2", ["x"])


def test_qpid_ha_takes_queue_and_broker_in_either_order(a_cluster):
    """Qpid's help has one order, and its tool the other."""
    source, replica = pair(a_cluster)
    declare(source, "q2")
    declare(replica, "q2", source.address, "amq")
    send(source, "q", ["a"])

    def qpid_ha(*words: str) -> subprocess.CompletedProcess[str]:
        return run("qpidha.cli.main", *words, "-b", replica.address)

    said = qpid_ha("replicate", "q", source.address)
    assert said.returncode == 2 and "not clear" in said.stderr
    replica.delete_queue(source.address)
    said = qpid_ha("replicate", "q", source.address)
    assert said.returncode == 0 and "queue q is a replica" in said.stderr
    assert qpid_ha("replicate", source.address, "q2").returncode == 0
    wait_same(replica, "q", ["a"])
    wait_same(replica, "q2", [])
    said = qpid_ha("replicate", "nowhere", source.address)
    assert said.returncode == 1 and "no queue nowhere" in said.stderr
    listed = json.loads(qpid_ha("replica", "list", "-o", "json").stdout)["replicas"]
    assert [(row["queue"], row["state"]) for row in listed] == [
        ("q", "following"),
        ("q2", "following"),
    ]
    table = qpid_ha("replica", "list").stdout.splitlines()
    assert table[0].split()[:5] == ["QUEUE", "SOURCE", "STATE", "MESSAGES", "BEHIND"]
    said = qpid_ha("replica", "stop", "q")
    assert said.returncode == 0 and "queue q is a queue of its own, with 1 messages" in said.stderr
    said = qpid_ha("replica", "stop", "q")
    assert said.returncode == 1 and "no replica" in said.stderr
    assert json.loads(qpid_ha("replica", "stop", "q2", "-o", "json").stdout)["whole"] is True
    assert row(replica) == row(replica, "q2") == {}


def test_a_replica_goes_on_after_restarts_of_both(a_cluster):
    """Both are killed, one after the other, and the replica goes on by what differs."""
    source, replica = pair(a_cluster)
    replica.call("replicate", broker=source.address, queue="q")
    send(source, "q", [str(number) for number in range(200)], durable=True)
    wait_same(replica, "q", [str(number) for number in range(200)])
    replica.kill()
    assert receive(source, "q", 50) == [str(number) for number in range(50)]
    send(source, "q", ["late"], durable=True)
    replica.restart()
    wait_same(replica, "q", [*(str(number) for number in range(50, 200)), "late"])
    source.kill()
    wait_row(replica, state="connecting")
    source.restart()
    wait_row(replica, state="following")
    assert receive(source, "q", 150) == [str(number) for number in range(50, 200)]
    wait_same(replica, "q", ["late"])


def test_a_replica_on_a_cluster_goes_on_with_the_next_primary(a_cluster):
    """Of the original it has to be begun again by a script."""
    source = a_cluster(1, promote=False, **ALONE)[0]
    cluster = a_cluster(2)
    declare(source, "q")
    cluster[0].declare_queue("q")
    cluster[0].call("declare_queue", name="n", durable=True, arguments={"qpid.replicate": "none"})
    with pytest.raises(RefusedRequest, match="with the level none"):
        cluster[0].call("replicate", broker=source.address, queue="n")
    cluster[0].call("replicate", broker=source.address, queue="q")
    send(source, "q", ["a", "b"])
    wait_same(cluster[0], "q", ["a", "b"])
    wait_browse(cluster[1], "q", ["a", "b"])
    cluster[0].kill()
    cluster[1].promote()
    cluster[1].wait_state("active")
    send(source, "q", ["c"])
    assert receive(source, "q", 1) == ["a"]
    wait_same(cluster[1], "q", ["b", "c"])
    cluster[1].call("stop_replica", queue="q")
    cluster[0].restart()
    cluster.wait_settled(1)
    send(cluster[1], "q", ["d"])
    wait_browse(cluster[0], "q", ["b", "c", "d"])
    assert receive(cluster[1], "q", 3) == ["b", "c", "d"]


def test_brokers_in_memory_replicate_and_a_source_that_was_started_anew_blocks(a_cluster):
    """A source without a disk loses its queue with the process. The queue that is declared again is
    another one: the replica keeps what it has until it is told to begin anew.
    """
    source, replica = (a_cluster(1, promote=False, **ALONE, data_dir=None)[0] for _ in range(2))
    for broker in (source, replica):
        broker.call("declare_queue", name="q")
    send(source, "q", ["a", "b"])
    replica.call("replicate", broker=source.address, queue="q")
    wait_same(replica, "q", ["a", "b"])
    source.kill()
    source.restart()
    found = wait_row(replica, state="connecting", error="there is no queue q")
    assert found["messages"] == 2
    source.call("declare_queue", name="q")
    send(source, "q", ["new"])
    found = wait_row(replica, state="blocked")
    assert "declared again" in found["error"] and browse(replica, "q") == ["a", "b"]
    assert "QHA2303" in replica.log.read_text()
    replica.call("replicate", broker=source.address, queue="q", replace=True)
    wait_same(replica, "q", ["new"])


def test_what_cannot_be_a_replica_says_so(a_cluster):
    """Wrong names, a queue that is in use or not empty, a broker that does not offer it."""
    source, replica = pair(a_cluster)
    off = a_cluster(1, promote=False, ha_cluster="no", ha_brokers_url=None)[0]
    declare(off, "q")

    def refused(asker: Broker, method: str = "replicate", **asked: object) -> str:
        with pytest.raises(RefusedRequest) as error:
            asker.call(method, **asked)
        return f"{error.value.text} {error.value.reason} {error.value.hint}"

    assert "ha-queue-replication" in refused(off, broker=source.address, queue="q")
    assert "no queue nowhere" in refused(replica, broker=source.address, queue="nowhere")
    assert "names no broker" in refused(replica, broker="a b c", queue="q")
    assert "ha-username" in refused(replica, broker="amqp:me/secret@h:1", queue="q")
    assert "is no replica" in refused(replica, "stop_replica", queue="q")
    send(replica, "q", ["mine"])
    assert "1 messages" in refused(replica, broker=source.address, queue="q")
    with connect(replica) as client:
        client.receiver("q", credit=0)
        assert "in use" in refused(replica, broker=source.address, queue="q", replace=True)
    replica.call("replicate", broker=off.address, queue="q", replace=True)
    wait_row(replica, state="connecting")
    wait_for(lambda: row(replica)["error"], lambda error: "replicas of its queues" in error)
    assert browse(replica, "q") == ["mine"], "given up before the source has answered"
    # The address is all that changes.
    replica.call("replicate", broker=source.address, queue="q")
    wait_same(replica, "q", [])
    for method, asked in (
        ("purge_queue", {"name": "q"}),
        ("move_messages", {"name": "q", "target": "q2"}),
        ("requeue_messages", {"name": "q"}),
    ):
        declare(replica, "q2")
        assert "replica stop q" in refused(replica, method, **asked)
    with pytest.raises(ClientError, match="can only be browsed"), connect(replica) as client:
        list(client.receiver("q", credit=1).until_empty())
    # What is a replica is no source.
    third = a_cluster(1, promote=False, **ALONE)[0]
    declare(third, "q")
    third.call("replicate", broker=replica.address, queue="q")
    wait_for(lambda: row(third)["error"], lambda error: "replica itself" in error)
    replica.delete_queue("q")
    assert row(replica) == {}
    declare(replica, "q")
    send(replica, "q", ["mine"])
    wait_same(third, "q", ["mine"])


def test_a_deleted_source_leaves_the_replica_as_it_is(a_cluster):
    source, replica = pair(a_cluster)
    send(source, "q", ["a"])
    replica.call("replicate", broker=source.address, queue="q")
    wait_same(replica, "q", ["a"])
    source.delete_queue("q")
    found = wait_row(replica, state="connecting", messages=1)
    assert "q is not here" in found["error"] or "no queue q" in found["error"]
    assert browse(replica, "q") == ["a"]


def test_a_slow_replica_holds_up_nobody(a_cluster):
    """The replica's process hangs: senders and consumers of the source do not notice, and it has
    everything soon after it goes on.
    """
    source, replica = pair(a_cluster)
    replica.call("replicate", broker=source.address, queue="q")
    wait_same(replica, "q", [])
    replica.stop()
    bodies = [f"{number} " + "x" * 1000 for number in range(5000)]
    send(source, "q", bodies)
    assert receive(source, "q", 1000) == bodies[:1000]
    streams = source.call("status")["replica_streams"]
    assert not streams or streams[0]["unconfirmed"] <= 2000
    replica.cont()
    wait_same(replica, "q", bodies[1000:])


def test_kinds_of_queues_keep_their_order(a_cluster):
    """Priorities, last values, rings, groups, and what is not due yet."""
    source, replica = pair(a_cluster)
    kinds: dict[str, dict[str, object]] = {
        "priority": {"qpid.priorities": 10},
        "lvq": {"qpid.last_value_queue_key": "key"},
        "ring": {"qpid.policy_type": "ring", "qpid.max_count": 3},
        "groups": {"qpid.group_header_key": "group"},
        "delays": {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 600_000},
    }
    for name, arguments in kinds.items():
        declare(source, name, **arguments)
        declare(replica, name, **arguments)
        replica.call("replicate", broker=source.address, queue=name)
        wait_same(replica, name, [])
    with connect(source) as client:
        sender = client.sender("priority")
        for number, priority in enumerate((1, 9, 5, 9)):
            sender.send(Message(f"{priority}.{number}", priority=priority))
        sender = client.sender("lvq")
        for number, key in enumerate("abcab"):
            sender.send(Message(f"{key}{number}", application_properties={"key": key}))
        sender = client.sender("ring")
        for number in range(6):
            sender.send(Message(str(number)))
        sender = client.sender("groups")
        for number in range(4):
            properties = {"group": str(number % 2)}
            sender.send(Message(str(number), application_properties=properties))
        sender = client.sender("delays")
        sender.send(Message("later", message_annotations={"x-opt-delivery-delay": 600_000}))
        sender.send(Message("now", ttl=600, message_annotations={"x-opt-mark": "m"}))
    expected = {
        "priority": ["9.1", "9.3", "5.2", "1.0"],
        "lvq": ["c2", "a3", "b4"],
        "ring": ["3", "4", "5"],
        "groups": ["0", "1", "2", "3"],
        "delays": ["now"],
    }
    for name, bodies in expected.items():
        assert browse(source, name) == bodies
        wait_same(replica, name, bodies)
    assert replica.call("list_queues", name="delays")[0]["delayed"] == 1
    with connect(replica) as client:
        found = list(client.receiver("delays", credit=10, browse=True).until_empty())
    assert found[0].message_annotations == {"x-opt-mark": "m"}
    source.kill()
    for name, bodies in expected.items():
        replica.call("stop_replica", queue=name)
        assert receive(replica, name, len(bodies)) == bodies


def test_who_may_have_a_replica(a_cluster, tmp_path):
    """The user of the brokers may; another one may not, unless the access control list says so."""
    names = {name: f"{name}-secret" for name in ("ha", "guest", "eve")}
    users = users_file(tmp_path / "users", names)
    login = {
        "users_file": users,
        "auth": "yes",
        "ha_mechanism": "PLAIN",
        "sasl_mechanisms": "PLAIN",
        "sasl_plain_without_tls": "yes",
    }
    rules = tmp_path / "rules"
    rules.write_text("acl deny eve@QPID all all\nacl allow all all\n")
    own = {"ha_username": "ha", "ha_password": "ha-secret"}
    source = a_cluster(1, promote=False, **ALONE, **login, **own)[0]

    def with_user(name: str, password: str) -> Broker:
        broker: Broker = a_cluster(
            1, promote=False, **ALONE, **login, ha_username=name, ha_password=password
        )[0]
        declare(broker, "q")
        broker.call("replicate", broker=source.address, queue="q")
        return broker

    declare(source, "q")
    good, wrong, guest = (
        with_user("ha", "ha-secret"),
        with_user("ha", "wrong"),
        with_user("guest", "guest-secret"),
    )
    wait_row(good, state="following")
    wait_for(lambda: row(wrong)["error"], lambda error: "the broker refused user 'ha'" in error)
    wait_for(lambda: row(guest)["error"], lambda error: "may not have replicas" in error)
    source.options["acl_file"] = rules
    source.kill()
    source.restart()
    wait_row(guest, state="following")
    eve = with_user("eve", "eve-secret")
    wait_for(lambda: row(eve)["error"], lambda error: "eve" in error)


def test_a_huge_queue_comes_over_while_others_go_on(a_cluster):
    """300,000 messages, most of them paged out at the source: it serves others meanwhile, and the
    replica has all of them in order.
    """
    count = 300_000
    source, replica = pair(a_cluster, queue_memory=4 << 20, default_queue_limit=0)
    with connect(source) as client:
        sender = client.sender("q")
        for number in range(count):
            sender.send_nowait(f"{number}")
        sender.flush()
    replica.call("replicate", broker=source.address, queue="q")
    meanwhile = 0
    declare(source, "other")
    with connect(source) as client:
        sender = client.sender("other")
        while row(replica).get("state") != "following":
            sender.send("x")
            meanwhile += 1
    assert row(replica)["messages"] == count
    assert meanwhile > 10
    source.kill()
    replica.call("stop_replica", queue="q")
    with connect(replica) as client:
        receiver = client.receiver("q", credit=1000)
        for number in range(2000):
            message = receiver.receive()
            assert message.body == f"{number}"
            message.accept()


def test_nonsense_on_the_service_ends_the_connection_and_nothing_else(a_cluster):
    source, replica = pair(a_cluster)
    replica.call("replicate", broker=source.address, queue="q")
    wait_same(replica, "q", [])
    for said in (b"nonsense", b'J{"say": "Begin", "uuid": "u"}', b"C" + bytes(7), b"D", b""):
        with connect(source) as client:
            client.receiver("$qpidha.queues", credit=10)
            sender = client.sender("$qpidha.queues")
            with pytest.raises(ClientError):
                sender.send(said)
                client.wait(lambda: False, timeout=0.5)
                client.receiver("q", credit=1, browse=True)
    with connect(source) as client, pytest.raises(ClientError):
        client.sender("$qpidha.queues").send("no data section")
    send(source, "q", ["a"])
    wait_same(replica, "q", ["a"])


def test_what_reaches_a_replica_in_a_transaction_or_by_an_exchange_is_refused(a_cluster):
    source, replica = pair(a_cluster)
    replica.call("replicate", broker=source.address, queue="q")
    declare(replica, "other")
    for queue in ("q", "other"):
        replica.bind("amq.fanout", queue)
    with connect(replica) as client:
        with pytest.raises(ClientError, match="takes no messages"):
            client.sender("amq.fanout").send("x")
        sender = client.sender(None)
        transaction = client.transaction()
        sender.send(Message("x", to="other"), transaction=transaction)
        with pytest.raises(ClientError):
            sender.send(Message("x", to="q"), transaction=transaction)
            transaction.commit()
    assert browse(replica, "other") == [] == browse(replica, "q")


def test_a_replica_of_a_cluster_on_a_cluster_under_load(a_cluster):
    """Both sites hand over, and both lose their primary, while messages come and go: in the end
    both have the same, and nothing that was accepted is missing.
    """
    source, replica = a_cluster(2), a_cluster(2)
    source[0].declare_queue("q")
    replica[0].declare_queue("q")
    replica[0].call("replicate", broker=source.url, queue="q")
    addresses = source.addresses
    with FailoverSender(addresses, "q", prefix="s", rate=300) as sender:
        with FailoverReceiver(addresses, "q") as receiver:
            for turn in range(2):
                for site in (source, replica):
                    primary, other = site[turn % 2], site[1 - turn % 2]
                    sender.wait_accepted(100)
                    if turn:
                        primary.kill()
                        other.promote()
                        primary.restart()
                    else:
                        primary.call("switchover")
                    site.wait_settled(1 - turn % 2)
        sender.wait_accepted(100)
    left = browse(source[0], "q")
    assert left and set(sender.bodies()) <= {*left, *receiver.received}
    wait_same(replica[0], "q", left)
    assert wait_row(replica[0], state="following")["error"] == ""


def test_a_source_over_tls(a_cluster, tmp_path):
    """By its scheme; one whose certificate is not known is not believed."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("source")
    options = {"ssl_cert": certificate, "ssl_key": key, "ssl_trusted": authority.certificate}
    source = a_cluster(1, promote=False, encrypted=True, **ALONE, **options)[0]
    trusting = a_cluster(1, promote=False, **ALONE, ssl_trusted=authority.certificate)[0]
    wary = a_cluster(1, promote=False, **ALONE)[0]
    declare(source, "q")
    send(source, "q", ["a"])
    for replica in (trusting, wary):
        declare(replica, "q")
        replica.call("replicate", broker=f"ssl:{source.encrypted_address}", queue="q")
    wait_same(trusting, "q", ["a"])
    wait_for(lambda: row(wary)["error"], lambda error: "certificate" in error.lower())
    assert row(wary)["state"] == "connecting"


def test_a_broker_that_no_longer_may_keeps_its_replica_and_can_end_it(a_cluster):
    source, replica = pair(a_cluster)
    send(source, "q", ["a"], durable=True)
    replica.call("replicate", broker=source.address, queue="q")
    wait_same(replica, "q", ["a"])
    replica.kill()
    replica.options["ha_queue_replication"] = "no"
    replica.restart()
    found = row(replica)
    assert (found["state"], found["messages"]) == ("idle", 1)
    with pytest.raises(ClientError, match="can only be browsed"), connect(replica) as client:
        list(client.receiver("q", credit=1).until_empty())
    assert replica.call("stop_replica", queue="q")["whole"] is True
    assert receive(replica, "q", 1) == ["a"]
