"""Two brokers with ha-safety=strict and ha-recorder=manager: either may die or be cut off, and
nothing that was accepted is lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from qpidha.model.errors import RefusedRequest
from tests.patience import STATE
from tests.system.clients import browse
from tests.system.cluster import Cluster, wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender, first_gap
from tests.system.net import Network, make_network
from tests.system.store_manager import StoreManager
from tests.system.test_double_promotion import Senders

pytestmark = pytest.mark.system
Pair = tuple[Cluster, StoreManager]


@pytest.fixture
def a_pair(a_cluster: Callable[..., Cluster], tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    """Return a function that starts two brokers and what records for them; #0 is the primary."""
    with ExitStack() as stack:

        def start(network: Network | None = None) -> Pair:
            cluster = a_cluster(
                2, promote=False, network=network, ha_safety="strict", ha_recorder="manager"
            )
            manager = stack.enter_context(StoreManager(tmp_path / "in-sync.json", cluster))
            cluster[0].promote()
            cluster.wait_settled(0)
            wait_both_recorded(manager)
            cluster[0].declare_queue("q")
            return cluster, manager

        yield start


def wait_both_recorded(manager: StoreManager) -> None:
    wait_for(manager.members, lambda members: len(members) == 2, what="the record")


def waits(cluster: Cluster, index: int) -> list[str]:
    return [
        entry["text"]
        for entry in cluster[index].call("explain")["waits"]
        if entry["waits_for"] == "recorder"
    ]


def refused(cluster: Cluster, index: int) -> str:
    with pytest.raises(RefusedRequest) as caught:
        cluster[index].promote()
    return caught.value.text


def test_either_is_killed_under_load_and_the_other_serves(a_pair: Callable[..., Pair]) -> None:
    cluster, manager = a_pair()
    with FailoverSender(cluster.addresses, "q", rate=20) as sender:
        for primary, backup in ((0, 1), (1, 0)):
            sender.wait_accepted(200)
            cluster.kill(primary, promote=backup)
            sender.wait_accepted(200)
            wait_for(manager.members, (cluster[backup].system_id,).__eq__, what="the record")
            cluster[primary].restart()
            cluster.wait_settled(backup)
            wait_both_recorded(manager)
            sender.wait_accepted(100)
            cluster[primary].kill()  # the backup now
            sender.wait_accepted(200)
            assert manager.members() == (cluster[backup].system_id,)
            cluster[primary].restart()
            cluster.wait_settled(backup)
            wait_both_recorded(manager)
        sender.wait_accepted(100)
    bodies = browse(cluster[0], "q")
    assert sender.missing(bodies) == []
    assert first_gap(map(int, bodies)) == 0


def test_a_primary_that_is_cut_off_goes_on_alone_and_the_other_is_refused(
    a_pair: Callable[..., Pair],
) -> None:
    cluster, manager = a_pair(make_network(2))
    with ExitStack() as stack:
        senders = Senders(stack, cluster)
        senders.wait_accepted_by(0)
        cluster.network.cut(0, 1)
        wait_for(manager.members, (cluster[0].system_id,).__eq__, what="the record")
        senders.wait_accepted_by(0, 100)
        assert "not in the newest in-sync set" in refused(cluster, 1)
        cluster.network.heal()
        cluster.wait_settled(0)
        senders.check(cluster)


def test_a_primary_that_the_store_left_behind_accepts_nothing_and_steps_down(
    a_pair: Callable[..., Pair],
) -> None:
    cluster, manager = a_pair(make_network(2))
    with ExitStack() as stack:
        senders = Senders(stack, cluster)
        senders.wait_accepted_by(0)
        manager.reach = {cluster[1].name}  # and that is all that decides: nobody is fenced
        cluster.network.cut(0, 1)
        cluster[1].promote()
        senders.wait_accepted_by(1, 50)
        wait_for(
            lambda: waits(cluster, 0),
            lambda texts: any("not quorate" in text for text in texts),
            what="what #0 waits for",
        )
        before = len(senders.senders[0].accepted)
        senders.wait_accepted_by(1, 100)
        assert len(senders.senders[0].accepted) == before
        manager.reach = {
            broker.name for broker in cluster
        }  # its manager hears of the new epoch before the broker does
        cluster[0].wait_state("joining")
        assert "not in the newest in-sync set" in refused(cluster, 0)
        cluster.network.heal()
        cluster.wait_settled(1)
        senders.check(cluster)


def test_without_a_manager_it_waits_and_says_so(
    a_pair: Callable[..., Pair], tmp_path: Path
) -> None:
    cluster, manager = a_pair()
    with FailoverSender(cluster.addresses, "q", rate=20) as sender:
        sender.wait_accepted(50)
        manager.close()
        cluster[1].kill()
        said = wait_for(lambda: waits(cluster, 0), what="what it waits for")
        assert "keep the smaller set, to go on without" in said[0]
        # All that the sender has begun and not heard of waits at the broker: no acceptance is on
        # its way.
        wait_for(
            lambda: (sender.unsettled, cluster[0].status()["held"]),
            (sender.window, sender.window).__eq__,
            what="unsettled messages, and those that the broker holds",
        )
        before = len(sender.accepted)
        assert cluster[0].status()["to_record"]["members"] == [cluster[0].system_id]
        assert len(sender.accepted) == before
        with StoreManager(tmp_path / "in-sync.json", cluster) as manager:
            sender.wait_accepted(100)
            assert manager.members() == (cluster[0].system_id,)
    assert sender.missing(browse(cluster[0], "q")) == []


def test_after_a_failure_of_both_the_one_that_went_on_alone_is_promoted_alone(
    a_pair: Callable[..., Pair],
) -> None:
    cluster, manager = a_pair()
    with FailoverSender(cluster.addresses, "q", rate=20, durable=True) as sender:
        sender.wait_accepted(50)
        cluster[1].kill()
        sender.wait_accepted(100)
        cluster[0].kill()
    cluster[1].restart()
    assert "not in the newest in-sync set" in refused(cluster, 1)
    found = cluster[1].call("recover")
    assert found["recommended"] is None and found["recorder"] == "manager"
    cluster[1].kill()
    cluster[0].restart()
    assert cluster[0].call("recover")["recommended"] == cluster[0].address
    cluster[0].promote()
    cluster[0].wait_state("active")
    cluster[1].restart()
    cluster.wait_settled(0)
    wait_both_recorded(manager)


def test_a_broker_that_records_otherwise_is_neither_followed_nor_follows(
    a_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    cluster = a_cluster(2, promote=False, ha_safety="strict", ha_recorder="manager")
    cluster[1].kill()
    cluster[1].options["ha_recorder"] = "brokers"
    cluster[1].restart()
    with StoreManager(tmp_path / "in-sync.json", cluster) as manager:
        cluster[0].promote()
        wait_for(
            lambda: cluster[0].status()["incompatible"],
            [cluster[1].address].__eq__,
            what="the foreign brokers of #0",
        )
        cluster[0].wait_state("active")
        said = wait_for(
            lambda: cluster[1].call("explain")["waits"],
            lambda found: found[-1]["waits_for"] == "ha-recorder",
            what="its waits",
        )
        assert "has ha-recorder=manager, and this broker brokers" in said[-1]["text"]
        assert cluster[1].state == "joining" and "1 of 2 brokers answered" in refused(cluster, 1)
        cluster[1].kill()
        cluster[1].options["ha_recorder"] = "manager"
        cluster[1].restart()
        cluster.wait_settled(0)
        wait_both_recorded(manager)


def local(folder: str, *words: str) -> dict[str, Any]:
    """Run `qpid-ha local`, and return what it says as data."""
    command = [
        sys.executable,
        "-m",
        "qpidha.cli.main",
        "local",
        *words,
        "--dir",
        folder,
        "-o",
        "json",
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STATE, check=True
    )
    return dict(json.loads(done.stdout or "{}"))


def test_the_built_in_manager_keeps_two_brokers_serving_whichever_dies() -> None:
    """On a busy machine a backup that is ready may leave the set before the primary is killed, so
    the only member is: what was accepted comes back from its disk, and must be durable.
    """
    with tempfile.TemporaryDirectory(prefix="qpidha-") as folder:
        brokers = local(folder, "up", "-n", "2", "--base-port", "0")["brokers"]
        try:
            addresses = [broker["address"] for broker in brokers]
            subprocess.run(
                [
                    *(sys.executable, "-m", "qpidha.cli.main"),
                    *("queue", "add", "q", "--durable", "-b", addresses[0]),
                ],
                timeout=STATE,
                check=True,
            )
            with FailoverSender(addresses, "q", rate=20, durable=True) as sender:
                for is_primary in (True, False, True):
                    sender.wait_accepted(200)
                    settled(folder)
                    victim = next(
                        broker
                        for broker in local(folder, "status")["brokers"]
                        if (broker["state"] == "active") is is_primary
                    )
                    os.kill(victim["pid"], signal.SIGKILL)
                    sender.wait_accepted(200)
                sender.wait_accepted(200)
            settled(folder)
            with FailoverReceiver(addresses, "q") as receiver:
                receiver.wait_received(lambda received: not sender.missing(received))
            record = json.loads((Path(folder) / "in-sync.json").read_text())
            assert (
                len(record["members"]) == 2
                and record["epoch"] == local(folder, "status")["epoch"] == 3
            )
        finally:
            local(folder, "down")


def settled(folder: str) -> None:
    wait_for(
        lambda: sorted(broker["state"] for broker in local(folder, "status")["brokers"]),
        ["active", "ready"].__eq__,
        what="the states",
    )
