"""The power fails: what was accepted is what was synced, on every broker that had to have it; torn
ends are cut and said.
"""

from __future__ import annotations

import random

import pytest

from tests.system.clients import browse, receive, send, wait_browse
from tests.system.cluster import Cluster, wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender, first_gap
from tests.system.power import DELAY, LIE, cut_power, slow_down, synced
from tests.system.test_store import declare

pytestmark = pytest.mark.system
POWER = ("-m", "tests.system.power")


def lose_power(cluster: Cluster, *indexes: int, choices: random.Random | None = None) -> None:
    """Let these brokers lose their power, all at once."""
    for i in indexes:
        process = cluster[i].process
        assert process is not None
        process.kill()
    for i in indexes:
        cluster[i].kill()
        cut_power(cluster[i].data_dir, choices)


def test_a_lone_broker_keeps_what_it_accepted(a_cluster):
    """Standalone, durable queue, under load: nothing accepted is missing, and nothing acknowledged
    comes back.
    """
    cluster = a_cluster(1, promote=False, module=POWER, ha_cluster="no", ha_brokers_url=None)
    broker = cluster[0]
    declare(broker)
    send(broker, "q", ["taken", "kept"], durable=True)
    assert receive(broker, "q", 1) == ["taken"]
    with FailoverSender([broker.address], "q", prefix="s", rate=20, durable=True) as sender:
        sender.wait_accepted(300)
        lose_power(cluster, 0)
    broker.restart()
    bodies = browse(broker, "q")
    assert bodies[0] == "kept"
    assert sender.missing(bodies) == []
    assert first_gap(int(body[1:]) for body in bodies[1:]) == 0


@pytest.mark.parametrize("seed", range(3))
def test_three_brokers_that_lose_their_power_together_keep_what_they_accepted(a_cluster, seed):
    """Senders and receivers run; all three go dark at once, with torn files, twice."""
    cluster = a_cluster(3, module=POWER, ha_safety="strict")
    choices = random.Random(seed)
    for queue in ("q", "r"):
        declare(cluster[0], queue)
    with (
        FailoverReceiver(cluster.addresses, "r") as receiver,
        FailoverSender(cluster.addresses, "r", prefix="r", rate=10, durable=True) as consumed,
        FailoverSender(cluster.addresses, "q", prefix="q", rate=10, durable=True) as kept,
    ):
        for _ in range(2):
            kept.wait_accepted(100)
            lose_power(cluster, 0, 1, 2, choices=choices)
            for broker in cluster:
                broker.restart()
            primary = cluster.wait_managed()
        kept.wait_accepted(20)
        consumed.count = consumed.sent
        wait_for(lambda: consumed.done, what="whether all is accepted")
        receiver.wait_received(lambda received: not consumed.missing(received))
    bodies = browse(cluster[primary], "q")
    assert kept.missing(bodies) == []
    assert first_gap(int(body[1:]) for body in bodies) == 0
    for broker in cluster:
        wait_browse(broker, "q", bodies)


def test_a_backup_that_lost_its_power_is_the_same_again(a_cluster):
    """It rejoins with what it has, gets the rest, and may take over."""
    cluster = a_cluster(3, module=POWER, ha_safety="strict")
    declare(cluster[0])
    with FailoverSender(cluster.addresses, "q", rate=10, durable=True) as sender:
        sender.wait_accepted(100)
        lose_power(cluster, 2, choices=random.Random(7))
        sender.wait_accepted(100)
        cluster[2].restart()
        cluster.wait_settled(0)
        sender.wait_accepted(20)
        lose_power(cluster, 0, 1)
        for i in (0, 1):
            cluster[i].restart()
        primary = cluster.wait_managed()
        sender.wait_accepted(20)
    bodies = browse(cluster[primary], "q")
    assert sender.missing(bodies) == []
    for broker in cluster:
        wait_browse(broker, "q", bodies)


def test_a_disk_that_lies_about_syncs_is_noticed_by_these_tests(a_cluster, monkeypatch):
    """With a disk that keeps nothing, accepted messages are missing: so the tests above can
    fail.
    """
    monkeypatch.setenv(LIE, "data")
    cluster = a_cluster(1, promote=False, module=POWER, ha_cluster="no", ha_brokers_url=None)
    broker = cluster[0]
    declare(broker)
    with FailoverSender([broker.address], "q", rate=20, count=100, durable=True) as sender:
        wait_for(lambda: sender.done, what="whether all is accepted")
        lose_power(cluster, 0)
    broker.start()
    wait_for(lambda: broker.state or not broker.is_running, what="whether it starts or refuses to")
    assert not broker.is_running or broker.queue_names() == []


def test_a_slow_disk_delays_acceptance_and_one_sync_serves_many(a_cluster, monkeypatch):
    """Each sync takes 50 ms; hundreds of messages need a few of them, and reading requests do not
    wait.
    """
    monkeypatch.setenv(DELAY, "0.05")
    cluster = a_cluster(3, module=POWER, ha_safety="strict", link_heartbeat_interval="2")
    declare(cluster[0])
    before = cluster[0].status()["journal"]["syncs"]
    with FailoverSender(
        cluster.addresses, "q", rate=50, window=200, count=600, durable=True
    ) as sender:
        wait_for(lambda: sender.done, what="whether all is accepted")
    syncs = cluster[0].status()["journal"]["syncs"] - before
    assert 0 < syncs < 100
    assert cluster[0].status()["state"] == "active"


def test_faults_b2_a_failover_on_slow_disks_takes_three_syncs(a_cluster):
    """A sync takes two seconds, four heartbeats: no connection is lost for that, and the state file
    is written three times from the manager's request to its answer: the candidate's promise, that
    of another broker, and the set that the epoch begins with.
    """
    cluster = a_cluster(3, module=POWER, ha_safety="strict", link_heartbeat_interval="0.5")
    declare(cluster[0])
    send(cluster[0], "q", ["before"], durable=True)
    candidate, other = cluster[1], cluster[2]
    before = [
        wait_for(lambda broker=broker: syncs_at_rest(broker)) for broker in (candidate, other)
    ]
    for broker in (candidate, other):
        slow_down(broker.data_dir, 2)
    cluster[0].kill()
    candidate.promote()
    after = [synced(broker.data_dir, "state") for broker in (candidate, other)]
    for broker in (candidate, other):
        slow_down(broker.data_dir, 0)
        assert "idle-timeout" not in broker.log.read_text()
    assert after[0] - before[0] == 2 and after[1] - before[1] <= 2
    assert candidate.status()["epoch"] == 2
    cluster.wait_settled(1)
    send(candidate, "q", ["after"], durable=True)
    assert browse(candidate, "q") == ["before", "after"]


def syncs_at_rest(broker):
    """Count the syncs of its state file; none before the copy is the same."""
    state, copy = (broker.data_dir / name for name in ("state", "state.copy"))
    if not copy.exists() or state.read_bytes() != copy.read_bytes():
        return 0
    return synced(broker.data_dir, "state")
