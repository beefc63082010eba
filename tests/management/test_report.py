"""The report on a broker: alone, and as part of a cluster."""

from __future__ import annotations

from qpidha.management.report import cluster_report, standalone_report
from qpidha.model.settings import Settings
from tests.ha.cluster_world import World


def test_a_broker_in_no_cluster_has_none_of_the_properties_of_one() -> None:
    report = standalone_report(Settings(), system_id="s", name="b1", address="h:1")
    assert report["state"] == "standalone" and report["primary"] is None
    assert {
        name: report[name] for name in ("live", "complete", "strict", "majority", "expected")
    } == {"live": False, "complete": False, "strict": False, "majority": False, "expected": []}


def test_brokers_of_a_cluster_report_the_same_primary_and_their_own_part() -> None:
    world = World()
    assert [cluster_report(machine.cluster)["primary"] for machine in world.machines] == [None] * 3
    world.machines[0].promote()
    world.settle()
    world.machines[2].paused = True
    world.machines[0].publish("word")
    world.settle()
    primary, backup, _ = (cluster_report(machine.cluster) for machine in world.machines)
    assert (
        primary["primary"]
        == backup["primary"]
        == {"system_id": "0-broker", "address": world.addresses[0]}
    )
    assert primary["applied"] == primary["sequence"] == backup["sequence"] > primary["committed"]
    assert backup["applied"] < backup["sequence"]
    assert backup["expected"] == backup["leaving"] == []
    assert primary["expected"] == list(world.machines[0].cluster.primary.expected)
