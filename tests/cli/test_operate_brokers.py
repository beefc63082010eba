"""Brokers without a manager, as an operator has them in his hands: explain, switchover, recover,
and salvage into a running cluster.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Said
from tests.system.cluster import Cluster, wait_for

pytestmark = pytest.mark.system
Run = Callable[..., Said]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Three brokers of a strict cluster, of which the first is primary, with three durable messages
    on a durable queue.
    """
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path / "nowhere"))
    cluster = Cluster(tmp_path, 3, options={"ha_safety": "strict"})
    cluster.start()
    yield cluster
    cluster.close()


def fill(cluster: Cluster, qpid_ha: Run) -> None:
    assert qpid_ha("queue", "add", "orders", "--durable", "-b", cluster[0].address).code == 0
    assert qpid_ha("send", "orders", "a", "b", "c", "--durable", "-b", cluster[0].address).code == 0


def contents(address: str, qpid_ha: Run) -> list[str]:
    return qpid_ha("receive", "orders", "--browse", "--idle", "0.3", "-b", address).out.split()


def test_a_switchover_over_amqp_and_its_dry_run(cluster: Cluster, qpid_ha: Run) -> None:
    fill(cluster, qpid_ha)
    cluster.wait_connected()
    at = ("-b", cluster[2].address)
    plan = json.loads(qpid_ha("switchover", "--dry-run", *at, "-o", "json").out)
    assert plan["primary"] == cluster[0].address and [
        row["can_take_over"] for row in plan["brokers"]
    ] == [False, True, True]
    said = qpid_ha("switchover", cluster[1].address, *at)
    assert said.code == 0 and f"{cluster[1].address} is active, epoch 2" in said.out, said
    cluster.wait_settled(1)
    assert contents(cluster[1].address, qpid_ha) == ["a", "b", "c"]
    said = qpid_ha("switchover", cluster[1].address, *at)
    assert said.code == 1 and "is the primary" in said.err


def test_rabbitmq_d12_explain_names_the_majority_that_a_primary_waits_for(
    cluster: Cluster, qpid_ha: Run
) -> None:
    fill(cluster, qpid_ha)
    at = ("-b", str(cluster[0].admin_socket))
    assert qpid_ha("status", "--explain", *at).out.endswith("nothing waits\n")
    cluster[1].kill()
    cluster[2].kill()
    said = wait_for(
        lambda: qpid_ha("status", "--explain", *at),
        lambda said: "majority" in said.out,
        what="the explanation",
    )
    assert said.code == 0 and cluster[2].address in said.out
    found = json.loads(qpid_ha("status", "--explain", *at, "-o", "json").out)
    assert (
        "majority" in [wait["waits_for"] for wait in found["waits"]]
        and found["unreplicated_messages"] == 0
    )
    for said in (qpid_ha("recover", *at), qpid_ha("recover", "--promote", *at)):
        assert said.code == 1 and "there is nothing to recover" in said.out
        assert f"qpid-ha demote -b {cluster[0].address}, then" in said.out + said.err
    assert qpid_ha("demote", *at).code == 0
    said = qpid_ha("recover", *at)
    assert said.code == 1 and "next: " in said.out and "--accept-loss" in said.out
    assert qpid_ha("recover", "--promote", "--accept-loss", "--yes", *at).code == 0
    cluster[0].wait_state("active")


def test_recover_after_a_total_failure(cluster: Cluster, qpid_ha: Run) -> None:
    fill(cluster, qpid_ha)
    members = {broker.address for broker in cluster}
    for broker in cluster:
        broker.kill()
    cluster[0].restart()
    cluster[1].restart()
    at = ("-b", str(cluster[0].admin_socket))
    said = wait_for(
        lambda: qpid_ha("recover", *at), lambda said: "joining" in said.out, what="the comparison"
    )
    assert (
        said.code == 1
        and "recommended: none" in said.out
        and "would be lost" in said.out
        and cluster[2].address in said.out
    )
    said = qpid_ha("recover", "--promote", *at)
    assert said.code == 107 and "--accept-loss" in said.err
    cluster[2].restart()
    found = json.loads(
        wait_for(
            lambda: qpid_ha("recover", *at, "-o", "json"),
            lambda said: said.code == 0,
            what="a recommendation",
        ).out
    )
    assert found["recommended"] in members and all(row["answered"] for row in found["brokers"])
    said = qpid_ha("recover", "--promote", *at)
    assert said.code == 0 and "is promoted, epoch 2" in said.out, said
    primary = [broker.address for broker in cluster].index(found["recommended"])
    cluster.wait_settled(primary)
    assert contents(cluster[primary].address, qpid_ha) == ["a", "b", "c"]


def test_a_loss_that_is_accepted_brings_the_rest_back(cluster: Cluster, qpid_ha: Run) -> None:
    fill(cluster, qpid_ha)
    for broker in cluster:
        broker.kill()
    cluster[1].restart()
    at = ("-b", str(cluster[1].admin_socket))
    said = qpid_ha("promote", "--accept-loss", "--yes", *at)
    assert said.code == 0 and "given up: " in said.err, said
    cluster[1].wait_state("recovering", "active")
    cluster[0].restart()
    cluster[1].wait_state("active")
    assert contents(cluster[1].address, qpid_ha) == ["a", "b", "c"]


def test_messages_are_salvaged_into_a_running_cluster(cluster: Cluster, qpid_ha: Run) -> None:
    fill(cluster, qpid_ha)
    cluster[2].kill()
    data = str(cluster[2].data_dir)
    assert qpid_ha("journal", "verify", data).code in (0, 1)
    assert qpid_ha("journal", "verify", str(cluster[0].data_dir)).code == 69  # it runs
    said = qpid_ha("journal", "salvage", data, "--to", cluster[1].address, "-o", "json")
    assert said.code == 0 and json.loads(said.out)["accepted"] == 3, said
    assert contents(cluster[0].address, qpid_ha) == ["a", "b", "c", "a", "b", "c"]
    assert qpid_ha("journal", "compact", data).code == 0
    cluster[2].restart()
    cluster.wait_settled(0)


def test_a_failover_from_a_primary_that_does_not_answer(cluster: Cluster, qpid_ha: Run) -> None:
    fill(cluster, qpid_ha)
    cluster[0].stop()
    said = qpid_ha("failover", "-b", cluster[1].address)
    assert said.code == 0 and "epoch 2" in said.out, said
    primary = next(i for i in (1, 2) if cluster[i].state == "active")
    cluster[0].cont()
    cluster.wait_settled(primary)
    assert contents(cluster[primary].address, qpid_ha) == ["a", "b", "c"]
