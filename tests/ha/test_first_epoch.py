"""The first epoch of a cluster: nothing is accepted of which another majority could not know."""

from __future__ import annotations

from qpidha.model.broker_states import BrokerStatus
from tests.ha.cluster_world import SECOND, World, after, publish

ACTIVE, READY = BrokerStatus.ACTIVE, BrokerStatus.READY


def test_the_first_set_has_those_that_promised_and_is_active_at_once() -> None:
    world = World(3, safety="strict", durable=True, backup_timeout=60 * SECOND)
    world.machines[0].promote()
    world.run(0.5)
    assert [machine.state for machine in world.machines] == [ACTIVE, READY, READY]
    assert any("Recovering backups: host" in line for line in world.machines[0].said)
    assert not any("promoted with an empty log" in line for line in world.machines[0].said)


def test_nothing_is_accepted_in_a_first_epoch_of_which_nobody_else_has_heard() -> None:
    world = World(3, safety="strict", durable=True, backup_timeout=60 * SECOND)
    part_one_way(world)
    assert after(world, world.machines[0]) == ""
    assert not publish(world, 0, "a")
    world.kill(0)
    world.refused = set()
    assert after(world, world.machines[1]) == "", "any will do: nothing was ever accepted"


def test_a_majority_records_the_first_set_without_those_that_do_not_come() -> None:
    world = World(3, safety="strict", durable=True, backup_timeout=SECOND)
    part_one_way(world)
    assert after(world, world.machines[0]) == ""
    assert publish(world, 0, "a")
    world.kill(0)
    world.refused = set()
    assert "not in the newest in-sync set" in after(world, world.machines[1])
    world.restart(0)
    assert after(world, world.machines[0]) == ""
    world.run(1)
    assert [machine.words for machine in world.machines] == [["a"]] * 3


def part_one_way(world: World) -> None:
    """The first broker reaches the others, and they do not reach it."""
    world.refused = {(1, 0), (2, 0)}
    for connection_id, (caller, callee) in list(world.ends.items()):
        if (caller.index, callee.index) in world.refused:
            world.close(connection_id)
    world.settle()
