"""What brokers measure while one is killed and another promoted, as their statistics tell it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qpidha.client.errors import ConnectError
from tests.system.clients import connect, send
from tests.system.cluster import Broker, Cluster, wait_for

pytestmark = pytest.mark.system
NUMBER = 50


def measured(broker: Broker) -> dict[str, Any]:
    """Return what a broker says of its sums."""
    found: dict[str, Any] = broker.call("statistics")
    return found


def test_commits_syncs_and_logins_are_counted(a_cluster: Callable[..., Cluster]) -> None:
    cluster = a_cluster(2)
    before = measured(cluster[0])
    cluster[0].call("declare_queue", name="q", durable=True)
    send(cluster[0], "q", range(NUMBER), durable=True)
    after = measured(cluster[0])
    assert sum(after["commit_seconds"]["counts"]) >= NUMBER
    assert after["commit_seconds"]["sum"] > before["commit_seconds"]["sum"]
    assert sum(after["sync_seconds"]["counts"]) > sum(before["sync_seconds"]["counts"])
    assert after["sync_seconds"]["sum"] > before["sync_seconds"]["sum"]
    assert after["logins_accepted"] > before["logins_accepted"]
    assert cluster[0].status()["journal"]["free"] > 0
    with pytest.raises(ConnectError):
        connect(cluster[1])
    assert measured(cluster[1])["logins_refused"]["not_primary"] == 1


def test_a_promotion_and_a_stall_are_timed(a_cluster: Callable[..., Cluster]) -> None:
    cluster = a_cluster(3)
    assert measured(cluster[0])["promotions"] == 1
    cluster[2].stop()
    wait_for(
        lambda: [row["state"] for row in cluster[0].status()["members"]],
        lambda states: "unreachable" in states,
    )
    cluster[2].cont()
    wait_for(lambda: measured(cluster[2])["stall_seconds"], lambda seconds: seconds > 0.1)
    cluster.wait_settled(0)
    cluster.kill(0, promote=1)
    cluster[1].wait_state("active")
    found = measured(cluster[1])
    assert found["promotion_seconds"].keys() == {"wait", "promote", "recover"}
    assert all(seconds >= 0 for seconds in found["promotion_seconds"].values())
    assert sum(found["promotion_seconds"].values()) > 0
    assert found["promotions"] == 1 and measured(cluster[2])["promotions"] == 0
