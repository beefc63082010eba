"""What a durable broker keeps over restarts: the original's StoreTests, total failure in every
order, and odd data directories.
"""

from __future__ import annotations

import itertools
import re
import shutil
import signal

import pytest

from qpidha.model.errors import RefusedRequest
from tests.system.clients import browse, receive, send, send_unroutable, wait_browse
from tests.system.cluster import Broker, Cluster, wait_for
from tests.system.failover_clients import FailoverSender

pytestmark = pytest.mark.system


def declare(broker: Broker, name: str = "q") -> None:
    broker.call("declare_queue", name=name, durable=True, arguments={})


def promote_any(cluster: Cluster, order: list[int]) -> tuple[int, dict[int, str]]:
    """Try to promote in this order until one agrees; return who did, and what the others said."""
    said: dict[int, str] = {}
    for i in order:
        try:
            cluster.promote(i)
        except RefusedRequest as refused:
            said[i] = refused.text
            continue
        return i, said
    raise AssertionError(f"nobody may be promoted: {said}")


def test_store_recovery(a_cluster):
    """Contents and bindings are there after each restart of a durable broker, after a backup joins,
    and after that takes over.
    """
    cluster = a_cluster(2, started=1)
    primary, other = cluster
    declare(primary)
    primary.call("declare_exchange", name="e", type="fanout", durable=True, arguments={})
    primary.bind("e", "q")
    send(primary, "q", ["foo", "bar", "baz"], durable=True)
    assert receive(primary, "q", 1) == ["foo"]
    expected = ["bar", "baz"]

    def check(broker: Broker) -> None:
        assert browse(broker, "q") == expected
        send(broker, "e", ["x"], durable=True)
        expected.append("x")
        assert browse(broker, "q") == expected

    primary.kill()
    primary.restart()
    primary.promote()
    primary.wait_state("active")
    check(primary)
    other.start()
    other.wait_up()
    other.wait_state("ready")
    wait_browse(other, "q", expected)
    cluster.kill(0, promote=1)
    check(other)
    other.kill()
    other.restart()
    other.promote()
    other.wait_state("active")
    check(other)


def test_catchup_store(a_cluster):
    """A durable backup that was away while things changed is the same as the primary after both
    were restarted.
    """
    cluster = a_cluster(2)
    primary, backup = cluster
    declare(primary)
    for key in ("old", "new"):
        primary.call("declare_exchange", name=key, type="fanout", durable=True, arguments={})
    primary.bind("old", "q")
    send(primary, "q", ["old1", "old2"], durable=True)
    wait_browse(backup, "q", ["old1", "old2"])
    backup.kill()
    assert receive(primary, "q", 2) == ["old1", "old2"]
    primary.unbind("old", "q")
    primary.bind("new", "q")
    send(primary, "q", ["new1"], durable=True)
    primary.kill()
    primary.restart()
    # Nobody else is there, and this one has the newest set to itself.
    primary.promote()
    primary.wait_state("active")
    backup.restart()
    cluster.wait_settled(0)
    for broker in cluster:
        wait_browse(broker, "q", ["new1"])
    send_unroutable(primary, "old", durable=True)
    send(primary, "new", ["new2"], durable=True)
    for broker in cluster:
        wait_browse(broker, "q", ["new1", "new2"])
        assert [binding for binding in broker.bindings() if binding[0] == "old"] == []


def test_a_standalone_broker_keeps_durable_messages_and_forgets_others(a_cluster):
    """Killed without a word, and everything durable that was accepted is there after the
    restart.
    """
    cluster = a_cluster(1, promote=False, ha_cluster="no", ha_brokers_url=None)
    broker = cluster[0]
    declare(broker)
    broker.call("declare_queue", name="transient", durable=False, arguments={})
    send(broker, "q", ["a", "b", "c"], durable=True)
    assert receive(broker, "q", 1) == ["a"]
    with FailoverSender([broker.address], "q", prefix="s", rate=20, durable=True) as sender:
        sender.wait_accepted(300)
        broker.kill()
    broker.restart()
    assert broker.queue_names() == ["q"]
    bodies = browse(broker, "q")
    assert bodies[:2] == ["b", "c"]
    assert sender.missing(bodies) == []


def test_faults_b7_a_broker_alone_does_not_start_when_what_it_kept_is_gone(a_cluster):
    """It was stopped in good order, and its journal is shorter now: it refuses, and with the whole
    journal it has everything.
    """
    cluster = a_cluster(1, promote=False, ha_cluster="no", ha_brokers_url=None)
    broker = cluster[0]
    declare(broker)
    send(broker, "q", ["a", "b", "c"], durable=True)
    broker.signal(signal.SIGTERM)
    assert broker.process is not None and broker.process.wait() == 0
    segment = max((broker.data_dir / "journal").glob("*.log"))
    content = segment.read_bytes()
    segment.write_bytes(content[:-20])
    broker.start()
    assert broker.process.wait() == 65
    assert "stopped in good order" in broker.log.read_text()
    segment.write_bytes(content)
    broker.restart()
    assert browse(broker, "q") == ["a", "b", "c"]


def test_what_was_accepted_alone_is_kept_in_a_cluster_whatever_its_level(a_cluster):
    """A broker alone joins a cluster: its durable messages outlive the first checkpoint there, and
    its old segments.
    """
    alone = {"ha_cluster": "no", "ha_brokers_url": None}
    cluster = a_cluster(1, promote=False, **alone)
    broker = cluster[0]
    broker.call(
        "declare_queue", name="q", durable=True, arguments={"qpid.replicate": "configuration"}
    )
    bodies = [f"{i} " + "x" * 5000 for i in range(23)]
    send(broker, "q", bodies, durable=True)
    assert receive(broker, "q", 20) == bodies[:20]
    wait_browse(broker, "q", bodies[20:])
    checkpoints = (broker.data_dir / "journal").glob
    assert not list(checkpoints("*.checkpoint"))
    broker.kill()
    broker.options |= {
        "ha_cluster": "yes",
        "ha_brokers_url": broker.address,
        "journal_segment_size": 4096,
        "log_disk": 0,
    }
    for _ in range(2):
        broker.restart()
        broker.promote()
        broker.wait_state("active")
        wait_for(lambda: list(checkpoints("*.checkpoint")), bool, what="the checkpoint")
        assert browse(broker, "q") == bodies[20:]
        broker.kill()
    broker.options |= alone
    broker.restart()
    assert browse(broker, "q") == bodies[20:]


@pytest.mark.parametrize(
    "order", list(itertools.permutations(range(3))), ids=lambda order: "".join(map(str, order))
)
def test_total_failure_and_restart_in_every_order(a_cluster, order):
    """Three brokers die one after the other and come back in another order: all is there, and
    refusals name the better one.

    The backup that died first misses what was accepted later, so it must not be promoted; the two
    others have everything.
    """
    cluster = a_cluster(3, ha_safety="strict")
    declare(cluster[0])
    send(cluster[0], "q", ["all have this"], durable=True)
    cluster.wait_settled(0)
    cluster[order[0]].kill()
    if order[0] == 0:
        cluster.promote(order[1])
        cluster[order[1]].wait_state("active")
    primary = next(
        i for i in (0, order[1]) if cluster[i].is_running and cluster[i].state == "active"
    )
    send(cluster[primary], "q", ["two have this"], durable=True)
    cluster[order[1]].kill()
    cluster[order[2]].kill()
    first = cluster[order[0]]
    first.restart()
    with pytest.raises(RefusedRequest) as alone:
        first.promote()
    assert "did not answer" in alone.value.text or "a majority must" in alone.value.text
    for i in reversed(order[1:]):
        cluster[i].restart()
    connected = "all three hear of each other"
    wait_for(
        lambda: [sum(m["connected"] for m in b.call("members")) for b in cluster],
        lambda seen: min(seen) == 3,
        what=connected,
    )
    chosen, said = promote_any(cluster, list(order))
    assert chosen in order[1:]
    better = [cluster[i].address for i in order[1:]]
    assert any(address in said[order[0]] for address in better), said
    cluster.wait_settled(chosen)
    assert browse(cluster[chosen], "q") == ["all have this", "two have this"]
    for broker in cluster:
        wait_browse(broker, "q", ["all have this", "two have this"])


def test_min_in_sync_two_accepts_nothing_on_one_broker_alone(a_cluster):
    """With ha-min-in-sync=2 a message waits while the primary is the only member, and is accepted
    when another has it.
    """
    cluster = a_cluster(3, ha_safety="trust-manager", ha_min_in_sync="2")
    declare(cluster[0])
    cluster[1].kill()
    cluster[2].kill()
    wait_for(
        lambda: cluster[0].status()["in_sync"]["members"],
        lambda members: len(members) == 1,
        what="the in-sync set",
    )
    with FailoverSender([cluster[0].address], "q", prefix="m", count=3, durable=True) as sender:
        wait_for(
            lambda: browse(cluster[0], "q"),
            lambda seen: len(seen) == 3,
            what="the queue of the primary",
        )
        assert sender.accepted == []
        cluster[2].restart()
        wait_for(lambda: sender.done, what="whether all is accepted")
    wait_browse(cluster[2], "q", ["m1", "m2", "m3"])


def test_a_broker_with_a_wiped_data_directory_joins_as_a_new_one(a_cluster):
    """It has another identity, is no member until it has everything, and nobody takes it for its
    former self.
    """
    cluster = a_cluster(3, ha_safety="strict")
    declare(cluster[0])
    send(cluster[0], "q", ["a"], durable=True)
    former = cluster[2].system_id
    cluster[2].kill()
    shutil.rmtree(cluster[2].data_dir)
    send(cluster[0], "q", ["b"], durable=True)
    cluster[2].restart()
    cluster.wait_settled(0)
    assert cluster[2].system_id != former
    wait_browse(cluster[2], "q", ["a", "b"])
    members = wait_for(
        lambda: cluster[0].status()["in_sync"]["members"],
        lambda members: len(members) == 3,
        what="the in-sync set",
    )
    assert former not in members and cluster[2].system_id in members


def test_a_copied_data_directory_is_no_second_member(a_cluster):
    """A broker on a copy of another's directory has its identity: it is told so, never becomes
    ready, and counts for nothing.
    """
    cluster = a_cluster(3, started=2, ha_safety="strict")
    declare(cluster[0])
    send(cluster[0], "q", ["a"], durable=True)
    cluster[1].kill()
    shutil.copytree(cluster[1].data_dir, cluster[2].data_dir, ignore=shutil.ignore_patterns("lock"))
    cluster[1].restart()
    cluster[1].wait_state("ready")
    cluster[2].start()
    wait_for(
        lambda: cluster[0].log.read_text() + cluster[2].log.read_text(),
        lambda text: "copied" in text,
        what="the logs",
    )
    send(cluster[0], "q", ["b"], durable=True)
    assert not cluster[2].is_running or cluster[2].state != "ready"
    assert len(cluster[0].status()["in_sync"]["members"]) <= 2
    wait_browse(cluster[1], "q", ["a", "b"])


def test_a_rejoin_after_a_restart_moves_the_difference_only(a_cluster):
    """What the backup has on disk is not sent again."""
    cluster = a_cluster(2)
    declare(cluster[0])
    bulk = [f"{i:04d}" + "x" * 1000 for i in range(1000)]
    with FailoverSender(
        [cluster[0].address], "q", prefix="x" * 1000, count=1000, rate=50, durable=True
    ) as sender:
        wait_for(lambda: sender.done, what="whether all is accepted")
    wait_for(
        lambda: cluster[1].status()["applied"],
        lambda applied: applied >= cluster[0].status()["committed"],
        what="what is applied",
    )
    cluster[1].kill()
    send(cluster[0], "q", bulk[:10], durable=True)
    cluster[1].restart()
    cluster.wait_settled(0)
    wait_for(
        lambda: cluster[1].call("list_queues", name="q")[0]["messages"],
        lambda count: count == 1010,
        what="messages on the backup",
    )
    text = cluster[1].log.read_text().rpartition("--- ")[2]
    assert not re.search("snapshot", text.partition("\n")[2])
