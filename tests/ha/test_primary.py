"""The primary: too few in sync, backups that stall, and what it says that it waits for."""

from __future__ import annotations

import pytest

from qpidha.ha.explanation import explain
from qpidha.ha.wire import Begin, Confirm, Subscribe, decode
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import InvalidArgument
from qpidha.model.settings import Settings
from tests.ha.cluster_world import SECOND, World

ACTIVE, READY, RECOVERING, CATCHUP = (
    BrokerStatus.ACTIVE,
    BrokerStatus.READY,
    BrokerStatus.RECOVERING,
    BrokerStatus.CATCHUP,
)


def started(n: int = 3, *, safety: str = "strict", durable: bool = False, **options: int) -> World:
    world = World(n, safety=safety, durable=durable, **options)
    world.machines[0].promote()
    world.run(0.5)
    return world


def states(world: World) -> list[BrokerStatus]:
    return [machine.state for machine in world.machines]


def test_nothing_is_accepted_with_fewer_in_sync_than_ha_min_in_sync() -> None:
    world = started(min_in_sync=2)
    primary = world.machines[0]
    primary.publish("a")
    world.settle()
    assert primary.accepted == ["a"]
    world.kill(1)
    world.run(1)
    primary.publish("b")
    world.settle()
    assert primary.accepted == ["a", "b"]
    world.cut(2)
    role = primary.cluster.primary
    assert role is not None
    while len(role.in_sync.members) > 1:
        if not world.step_one(lambda able: able[0]):
            world.now += SECOND // 50
            for machine in (primary, world.machines[2]):
                machine.cluster.tick(world.now)
                machine.end_turn()
    primary.publish("c")
    assert primary.accepted == ["a", "b"]
    world.run(1)
    assert primary.accepted == ["a", "b", "c"]
    assert any("Nothing is acknowledged" in line for line in primary.said)
    assert any("acknowledging again" in line for line in primary.said)


def test_a_lone_primary_with_ha_min_in_sync_says_why_it_accepts_nothing() -> None:
    world = started(3, safety="trust-manager", min_in_sync=2)
    for index in (1, 2):
        world.kill(index)
    world.run(2)
    primary = world.machines[0]
    primary.publish("a")
    world.run(1)
    assert primary.accepted == []
    (entry,) = explain(primary.cluster)
    assert (entry["waits_for"], entry["min_in_sync"], entry["in_sync"]) == (
        "ha-min-in-sync",
        2,
        ["host0:5000"],
    )
    world.restart(1)
    world.run(1)
    assert primary.accepted == ["a"]
    assert explain(primary.cluster) == []


def test_more_in_sync_than_there_are_brokers_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="there are only 2 brokers"):
        Settings.load("ha-cluster=yes\nha-brokers-url=a:1,b:1\nha-min-in-sync=3", {}, ["--auth=no"])
    settings, _ = Settings.load(
        "ha-cluster=yes\nha-brokers-url=a:1,b:1,c:1\nha-min-in-sync=2", {}, ["--auth=no"]
    )
    assert settings.ha_min_in_sync == 2


def test_a_backup_whose_disk_hangs_is_dropped_after_ha_backup_timeout_and_joins_anew() -> None:
    world = started(durable=True, backup_timeout=2 * SECOND)
    primary, backup = world.machines[0], world.machines[2]
    backup.disk_hangs = True
    primary.publish("a")
    world.run(1.5)
    assert primary.accepted == []
    assert [
        (entry["waits_for"], entry["address"], entry["connected"])
        for entry in explain(primary.cluster)
    ] == [("backup", "host2:5002", True)]
    world.run(1.5)
    assert primary.accepted == ["a"]
    assert any("Backup has stalled: 2-broker" in line for line in primary.said)
    assert "2-broker" not in primary.cluster.promises.in_sync.members
    backup.disk_hangs = False
    world.run(2)
    assert states(world) == [ACTIVE, READY, READY]


def test_to_confirm_the_same_again_is_no_sign_of_life_and_a_stalled_link_is_closed() -> None:
    world = started(durable=True, backup_timeout=2 * SECOND)
    primary, backup = world.machines[0], world.machines[2]
    role = primary.cluster.primary
    assert role is not None
    link = role.backups["2-broker"].connection_id
    backup.disk_hangs = True
    primary.publish("a")
    for _ in range(6):
        before = role.backups.get("2-broker")
        if before is not None and before.connection_id == link:
            primary.cluster.on_message(link, Confirm(1, before.reported, 0))
        world.run(0.5)
    assert primary.accepted == ["a"]
    assert link not in world.ends


def test_nothing_waits_for_a_lost_backup_that_had_everything() -> None:
    world = started()
    primary = world.machines[0]
    world.machines[1].paused = True
    world.kill(2)
    assert [entry["waits_for"] for entry in explain(primary.cluster)] == ["majority"]


def test_a_backup_that_confirms_now_and_then_is_not_dropped() -> None:
    world = started(durable=True, backup_timeout=2 * SECOND)
    primary, backup = world.machines[0], world.machines[2]
    for number in range(4):
        primary.publish(f"w{number}")
        backup.disk_hangs = True
        world.run(1.5)
        backup.disk_hangs = False
        world.settle()
    assert "2-broker" in primary.cluster.promises.in_sync.members
    assert len(primary.accepted) == 4


@pytest.mark.parametrize("stopped_for", [2.1, 2.5, 10])
def test_a_primary_that_was_stopped_itself_does_not_take_its_backups_for_stalled(
    stopped_for: float,
) -> None:
    world = started(backup_timeout=2 * SECOND)
    primary = world.machines[0]
    world.machines[1].paused = world.machines[2].paused = True
    primary.publish("a")
    primary.paused = True
    world.machines[1].paused = world.machines[2].paused = False
    world.run(stopped_for)
    assert primary.inbox  # they have confirmed long ago
    primary.paused = False
    primary.cluster.tick(world.now)
    world.run(1)
    assert primary.accepted == ["a"]
    assert not any("No longer in sync" in line for line in primary.said)


def test_an_expected_backup_that_connects_and_never_gets_ready_is_given_up() -> None:
    world = started(3, durable=True, backup_timeout=3 * SECOND)
    world.machines[0].publish("a")
    world.settle()
    world.machines[2].disk_hangs = True
    world.machines[2].log.synced = 0
    world.kill(0)
    world.machines[1].promote()
    world.run(1)
    assert world.machines[1].state is RECOVERING
    (entry,) = [
        entry
        for entry in explain(world.machines[1].cluster)
        if entry["waits_for"] == "expected backup"
    ]
    assert (entry["address"], entry["connected"]) == ("host2:5002", True)
    world.run(4)
    assert world.machines[1].state is ACTIVE
    assert any(
        "Recovering backup timed out: 2-broker is connected" in line
        for line in world.machines[1].said
    )


def test_an_expected_backup_whose_snapshot_moves_is_waited_for_beyond_ha_backup_timeout() -> None:
    world = started(3, safety="trust-manager", backup_timeout=SECOND, log_limit=1500)
    for number in range(30):
        world.machines[0].publish(f"w{number}")
        world.settle()
    world.run(0.1)
    world.machines[0].paused = True
    world.kill(2)
    world.kill(0)
    world.machines[1].promote()
    primary, slow = world.machines[1], world.revive(2)
    began = world.now
    chunks = 0
    while chunks < 8:
        role = slow.cluster.backup
        assert role is not None
        while role.chunks <= chunks:
            if not world.step_one(lambda able: able[0]):
                world.now += SECOND // 50
                for machine in (primary, slow):
                    machine.cluster.tick(world.now)
                    machine.end_turn()
        chunks = role.chunks
        slow.paused = True
        world.run(0.7)
        slow.paused = False
    assert world.now - began > 5 * SECOND
    assert primary.state is RECOVERING
    assert [entry["waits_for"] for entry in explain(primary.cluster)] == ["expected backup"]
    world.run(1)
    assert states(world)[1:] == [ACTIVE, READY]
    assert slow.words == primary.words
    assert not any("No longer in sync: 2-broker" in line for line in primary.said)


def test_what_waits_for_a_majority_names_who_has_not_agreed() -> None:
    world = started()
    primary = world.machines[0]
    world.machines[2].paused = True
    world.kill(1)
    primary.publish("a")
    world.run(1)
    entries = {entry["waits_for"]: entry for entry in explain(primary.cluster)}
    assert entries["majority"]["leaving"] == ["host1:5001"]
    assert entries["majority"]["not_answered"] == ["host1:5001", "host2:5002"]
    assert "host1:5001 lost" in str(
        entries["majority"]["text"]
    ) or "1-broker lost its connection" in str(entries["majority"]["text"])
    backups = {
        entry["address"]: entry
        for entry in explain(primary.cluster)
        if entry["waits_for"] == "backup"
    }
    assert [backups[name]["connected"] for name in ("host1:5001", "host2:5002")] == [False, True]
    assert backups["host2:5002"]["behind"] == 1
    assert int(str(backups["host2:5002"]["for_ns"])) > SECOND // 2
    world.machines[2].paused = False
    world.run(1)
    assert explain(primary.cluster) == []


def test_a_member_that_comes_back_with_nothing_gets_no_difference() -> None:
    """With a part of the log it would count as one that has every durable message."""
    world = started()
    primary = world.machines[0]
    primary.publish("a")
    world.run(0.1)
    role = primary.cluster.primary
    assert role is not None and primary.log.start == 1
    link = role.backups["2-broker"].connection_id
    sent: list[bytes] = []
    primary.send = lambda connection_id, data: sent.append(data)  # type: ignore[method-assign]
    nothing = Subscribe(0, 0, 0, 0)
    assert not role.subscribe(link, "2-broker", "host2:5002", nothing), "it has to leave the set"
    role.expected["2-broker"] = 0
    assert role.subscribe(link, "2-broker", "host2:5002", nothing)
    begin = decode(sent[-1])
    assert isinstance(begin, Begin) and begin.snapshot
    role.expected.clear()
    role.required.remove("2-broker")
    assert role.subscribe(link, "2-broker", "host2:5002", nothing)
    begin = decode(sent[-1])
    assert isinstance(begin, Begin) and not begin.snapshot and begin.point == 0
