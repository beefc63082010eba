"""The HA machine: states, promotion, catch-up, safety, on machines without brokers."""

from __future__ import annotations

import pytest

from qpidha.ha.status import LEGAL_CHANGES, BrokerStatus, check_change
from qpidha.words.errors import InvariantBroken
from tests.ha.cluster_world import World

ACTIVE, READY, JOINING, RECOVERING, CATCHUP = (
    BrokerStatus.ACTIVE, BrokerStatus.READY, BrokerStatus.JOINING, BrokerStatus.RECOVERING, BrokerStatus.CATCHUP,
)  # fmt: skip


def started(n: int = 3, **options: int) -> World:
    world = World(n, **options)
    assert world.machines[0].promote() in ([], [None])
    world.settle()
    world.run(0.2)
    return world


def states(world: World) -> list[BrokerStatus]:
    return [machine.state for machine in world.machines]


@pytest.mark.parametrize("before", BrokerStatus)
@pytest.mark.parametrize("after", BrokerStatus)
def test_only_changes_in_the_table_are_legal(before: BrokerStatus, after: BrokerStatus) -> None:
    if after in LEGAL_CHANGES[before]:
        check_change(before, after)
    else:
        with pytest.raises(InvariantBroken):
            check_change(before, after)


def test_first_promotion_makes_one_primary_and_ready_backups() -> None:
    world = started()
    assert states(world) == [ACTIVE, READY, READY]
    assert world.machines[0].cluster.saved.in_sync.members == ("0-broker", "1-broker", "2-broker")
    assert world.machines[2].cluster.saved.in_sync == world.machines[0].cluster.saved.in_sync


def test_a_word_is_accepted_only_when_every_backup_has_it() -> None:
    world = started()
    primary = world.machines[0]
    world.machines[2].paused = True
    primary.publish("a")
    world.settle()
    assert primary.accepted == []
    world.machines[2].paused = False
    world.settle()
    assert primary.accepted == ["a"]


def test_backups_apply_only_what_is_safe() -> None:
    world = started()
    world.machines[2].paused = True
    world.machines[0].publish("a")
    world.run(0.5)
    assert world.machines[1].words == []
    assert world.machines[1].log.last == world.machines[0].log.last
    world.machines[2].paused = False
    world.run(0.5)
    assert [machine.words for machine in world.machines] == [["a"]] * 3


def test_failover_keeps_every_accepted_word_and_the_other_backup_follows_with_a_delta() -> None:
    world = started()
    for word in "abc":
        world.machines[0].publish(word)
    world.settle()
    assert world.machines[0].accepted == list("abc")
    world.kill(0)
    assert world.machines[1].promote() in ([], [None])
    world.settle()
    world.run(0.3)
    assert states(world)[1:] == [ACTIVE, READY]
    assert world.machines[1].words == list("abc")
    assert not any("snapshot" in line for line in world.machines[1].said)
    world.machines[1].publish("d")
    world.settle()
    assert world.machines[1].accepted == ["d"]
    world.restart(0)
    world.run(0.3)
    assert states(world) == [READY, ACTIVE, READY]
    assert [machine.words for machine in world.machines] == [list("abcd")] * 3


def test_a_dead_backup_is_dropped_and_what_waited_for_it_is_accepted() -> None:
    world = started()
    world.machines[2].paused = True
    world.machines[0].publish("a")
    world.settle()
    assert world.machines[0].accepted == []
    world.kill(2)
    world.run(0.3)
    assert world.machines[0].accepted == ["a"]
    assert world.machines[0].cluster.saved.in_sync.members == ("0-broker", "1-broker")


def test_stopped_primary_that_wakes_up_steps_down_and_accepts_nothing() -> None:
    world = started()
    old = world.machines[0]
    old.publish("a")
    world.settle()
    old.paused = True
    world.cut(0)  # the others' heartbeats run out
    world.run(0.5)
    world.machines[1].promote()
    world.run(1.5)
    assert states(world)[1:] == [ACTIVE, READY]
    old.publish("lost")  # what a client had sent before
    old.paused = False
    world.run(1)
    assert old.accepted == ["a"]
    assert states(world) == [READY, ACTIVE, READY]
    assert old.words == ["a"]


def test_a_promise_makes_a_live_primary_step_down() -> None:
    world = started()
    world.machines[1].promote()
    world.run(1)
    assert states(world) == [READY, ACTIVE, READY]


def test_a_restarted_broker_is_not_promoted_over_a_ready_one() -> None:
    world = started(2)
    world.kill(0)
    world.restart(0)
    replies = world.machines[0].promote()
    world.run(1)
    assert replies[0] is not None
    assert "Joining active cluster" in replies[0].text
    world.machines[1].paused = True
    replies = world.machines[0].promote()
    world.run(4)
    assert replies == [None]
    assert world.machines[0].state is RECOVERING  # the member that does not answer is expected


def test_a_backup_in_catchup_refuses_promotion() -> None:
    world = started()
    world.machines[2].cluster.state = CATCHUP
    (reply,) = world.machines[2].promote()
    assert reply is not None
    assert "Still catching up" in reply.text


def test_recovering_waits_for_expected_backups_until_the_timeout() -> None:
    world = started(backup_timeout=2_000_000_000)
    world.kill(2)
    world.kill(0)  # before the primary could drop 2
    world.machines[1].promote()
    world.run(0.5)
    machine = world.machines[1]
    if machine.state is RECOVERING:
        machine.publish("a")
        world.run(0.5)
        assert machine.accepted == []
        world.run(2.5)
    assert machine.state is ACTIVE


def test_expected_backups_hold_acknowledgements_until_they_are_back() -> None:
    world = started(4, backup_timeout=120_000_000_000)
    world.machines[0].paused = True  # it notices nothing and drops nobody
    for index in (1, 2):
        world.kill(index)
    world.kill(0)
    world.machines[3].promote()
    world.run(1)
    primary = world.machines[3]
    assert primary.state is RECOVERING
    primary.publish("a")
    world.restart(1)
    world.run(1)
    assert primary.accepted == []
    world.restart(2)
    world.run(1)
    assert primary.accepted == ["a"]
    assert primary.state is ACTIVE
    assert world.machines[1].state is READY
    assert world.machines[1].words == ["a"]


def test_a_backup_too_far_behind_gets_a_snapshot_while_words_flow() -> None:
    world = started(log_limit=2000)
    world.kill(2)
    for number in range(100):
        world.machines[0].publish(f"w{number}")
        world.settle()
    world.restart(2)
    for number in range(100, 120):
        world.machines[0].publish(f"w{number}")
    world.run(0.5)
    assert states(world) == [ACTIVE, READY, READY]
    assert world.machines[2].words == [f"w{number}" for number in range(120)]
    assert any("snapshot" in line for line in world.machines[0].said)


def test_divergent_tail_is_cut() -> None:
    world = started()
    for index in (1, 2):
        world.machines[index].paused = True
    world.machines[0].publish("only on 0")
    world.machines[2].paused = False
    world.settle()  # now 2 has it too, unapplied
    world.machines[1].paused = False
    world.machines[1].inbox.clear()  # 1 never gets it
    world.kill(0)
    world.machines[1].promote()
    world.run(1)
    world.machines[1].publish("new")
    world.run(1)
    assert world.machines[1].words == ["new"]
    assert world.machines[2].words == ["new"]
    assert world.machines[1].accepted == ["new"]


def test_demote_makes_room_for_another() -> None:
    world = started()
    world.machines[0].cluster.demote(lambda error: None)
    assert world.machines[0].state is JOINING
    world.machines[2].promote()
    world.run(1)
    assert states(world) == [READY, READY, ACTIVE]


def test_lone_broker_goes_active_at_once() -> None:
    world = started(1)
    assert states(world) == [ACTIVE]
    world.machines[0].publish("a")
    world.settle()
    assert world.machines[0].accepted == ["a"]
