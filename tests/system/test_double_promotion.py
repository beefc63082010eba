"""Two brokers are promoted by hand: never do both acknowledge, nothing that was accepted is
missing, and the refused one says why.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack

import pytest

from qpidha.client.errors import ConnectError
from tests.patience import STATE
from tests.system.clients import browse
from tests.system.cluster import Broker, Cluster, wait_for
from tests.system.failover_clients import FailoverSender
from tests.system.net import make_network

pytestmark = pytest.mark.system


def promoting(broker: Broker) -> subprocess.Popen[str]:
    """Start `qpid-ha promote --cluster-manager` for a broker, as an operator would."""
    command = [
        sys.executable,
        "-m",
        "qpidha.cli.main",
        "promote",
        "--cluster-manager",
        "-b",
        str(broker.admin_socket),
    ]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit code and what was said."""
    out, err = process.communicate(timeout=STATE)
    return process.returncode, out + err


class Senders:
    """One sender that stays with each broker, whoever is primary: what each broker accepted."""

    def __init__(self, stack: ExitStack, cluster: Cluster) -> None:
        self.senders: list[FailoverSender] = [
            stack.enter_context(
                FailoverSender([broker.address], "q", prefix=f"{broker.name}-", rate=2, pinned=True)
            )
            for broker in cluster
        ]

    def wait_accepted_by(self, index: int, more: int = 20) -> None:
        self.senders[index].wait_accepted(more)

    def check(self, cluster: Cluster) -> None:
        """Everything accepted by anybody is on the last primary, and no two brokers accepted in
        turns.
        """
        accepted = [body for sender in self.senders for body in sender.bodies()]
        final = browse_primary(cluster)
        assert [body for body in accepted if body not in final] == []
        # The broker that accepts changes with a new epoch only.
        assert self.changes() < max(
            broker.status()["epoch"] for broker in cluster if broker.is_running
        )

    def changes(self) -> int:
        """Count how often another broker accepted than before, for sure: a message that was begun
        after another one was accepted was accepted after it.
        """
        accepted = sorted(
            (at, sender.begun_at[number - 1], index)
            for index, sender in enumerate(self.senders)
            for at, number in zip(list(sender.accepted_at), list(sender.accepted), strict=False)
        )
        count, present, since = 0, -1, 0.0
        for at, begun, index in accepted:
            if present < 0 or (index != present and begun > since):
                count, present, since = count + (present >= 0), index, at
        return count


def browse_primary(cluster: Cluster) -> set[object]:
    """Return what the primary has, when there is one that stays."""
    while True:
        primary = cluster.wait_managed()
        try:
            return set(browse(cluster[primary], "q"))
        except ConnectError:  # it has just heard of a higher promise
            continue


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def test_both_backups_promoted_at_once_give_one_primary(a_cluster, stack):
    """The old primary lives: the first of the two takes over, the other is refused or follows it in
    a later epoch; never both.
    """
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    senders = Senders(stack, cluster)
    senders.wait_accepted_by(0)
    both = [promoting(cluster[1]), promoting(cluster[2])]
    outcomes = [outcome(process) for process in both]
    for code, said in outcomes:
        assert (
            code == 0
            or "promised" in said
            or "overtaken" in said
            or "not in the newest in-sync set" in said
        )
    primary = cluster.wait_managed()
    senders.wait_accepted_by(primary)
    senders.check(cluster)


def test_both_survivors_promoted_at_once_give_one_primary(a_cluster, stack):
    """The old primary is dead: one of the two wins, and what it accepts is what there is."""
    cluster = a_cluster(3, ha_safety="strict")
    cluster[0].declare_queue("q")
    senders = Senders(stack, cluster)
    senders.wait_accepted_by(0)
    cluster[0].kill()
    outcomes = [outcome(process) for process in [promoting(cluster[1]), promoting(cluster[2])]]
    assert all(code == 0 or said.strip() for code, said in outcomes)
    primary = cluster.wait_managed()
    senders.wait_accepted_by(primary)
    senders.check(cluster)


def test_in_a_partition_the_minority_is_refused_and_says_why(a_cluster, stack):
    """The primary is with one backup; the other, cut off, may not become a second one, and clients
    notice nothing.
    """
    cluster = a_cluster(3, ha_safety="strict", network=make_network(3))
    cluster[0].declare_queue("q")
    senders = Senders(stack, cluster)
    senders.wait_accepted_by(0)
    for other in (0, 1):
        cluster.network.cut(2, other)
    senders.wait_accepted_by(0, 100)  # by now the backup that is cut off was dropped
    wait_for(
        lambda: cluster[0].status()["in_sync"]["members"],
        lambda members: len(members) == 2,
        what="the in-sync set",
    )
    code, said = outcome(promoting(cluster[2]))
    assert code != 0
    assert "1 of 3 brokers answered" in said and "a majority must" in said
    assert cluster[2].state not in ("active", "recovering")
    epoch = cluster[0].status()["epoch"]
    cluster.network.heal()
    wait_for(
        lambda: [m["connected"] for m in cluster[0].call("members")],
        all,
        what="who is connected to the primary",
    )
    cluster[2].wait_state("ready")
    # A promotion that was refused does not depose the primary when it hears of it.
    assert (cluster[0].state, cluster[0].status()["epoch"]) == ("active", epoch)
    senders.check(cluster)


def test_in_a_partition_the_primary_that_is_cut_off_accepts_nothing_more(a_cluster, stack):
    """The majority gets a new primary; the old one, told by hand to be primary too, acknowledges
    nothing and steps down when healed.
    """
    cluster = a_cluster(3, ha_safety="strict", network=make_network(3))
    cluster[0].declare_queue("q")
    senders = Senders(stack, cluster)
    senders.wait_accepted_by(0)
    for other in (1, 2):
        cluster.network.cut(0, other)
    assert outcome(promoting(cluster[1]))[0] == 0
    senders.wait_accepted_by(1)
    code, said = outcome(promoting(cluster[0]))
    assert (
        code == 0 or said.strip()
    )  # it believes to be primary already; what counts is what it accepts
    before = len(senders.senders[0].accepted)
    senders.wait_accepted_by(1, 50)
    assert len(senders.senders[0].accepted) == before
    cluster.network.heal()
    primary = cluster.wait_managed()
    senders.wait_accepted_by(primary)
    senders.check(cluster)
