"""A broker without memory of what it promised votes when others have told it what that may have
been; and a cluster without memory, a new one, begins with a majority.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qpidha.ha.explanation import explain
from qpidha.ha.in_sync import SavedState, newest_of
from qpidha.model.broker_states import BrokerStatus
from tests.ha.cluster_world import SECOND, Machine, World, after, publish

ACTIVE, READY, JOINING = BrokerStatus.ACTIVE, BrokerStatus.READY, BrokerStatus.JOINING


def started(n: int = 3, **options: Any) -> World:
    """Return a cluster whose first broker is primary."""
    world = World(n, safety="strict", durable=True, **options)
    world.machines[0].promote()
    world.run(0.5)
    assert world.machines[0].state is ACTIVE
    return world


def new(world: World) -> list[int]:
    """Return which brokers are new."""
    return [machine.index for machine in world.machines if machine.cluster.promises.is_new]


def epochs_of(machine: Machine) -> list[int]:
    return [epoch for epoch, _ in machine.log.history]


# -- a broker that has forgotten ------------------------------------------------------------------


def test_a_new_broker_does_not_record_a_set_for_a_primary_that_another_has_replaced() -> None:
    world = started()
    world.part((0,), (1, 2))
    world.run(1)
    former, primary = world.machines[:2]
    assert after(world, primary) == ""
    assert publish(world, 1, "m")
    world.kill(2)
    world.kill(1)
    world.part()
    late = world.replace(2)
    world.run(3)
    assert new(world) == [2]
    assert "1-broker" in former.cluster.promises.in_sync.members
    assert not former.cluster.may_deliver
    assert not publish(world, 0, "x"), "a majority of those that remember agreed to another set"
    (entry,) = [entry for entry in explain(late.cluster) if entry["waits_for"] == "others"]
    assert "host1:5001" in str(entry["text"])
    primary = world.restart(1)
    world.run(1)
    assert new(world) == [] and late.cluster.promises.promised >= 2
    assert former.cluster.primary is None, "it has heard of the epoch that was promised"
    assert after(world, primary) == ""
    world.run(1)
    assert [machine.words for machine in world.machines] == [["m"]] * 3


def test_a_new_broker_promises_nothing_to_a_complete_one_that_was_dropped_elsewhere() -> None:
    world = started()
    world.part((1,), (0, 2))
    world.run(1)
    assert publish(world, 0, "m"), "without the one that is cut off, as a majority recorded"
    world.kill(2)
    world.kill(0)
    world.part()
    world.replace(2)
    candidate = world.machines[1]
    assert candidate.cluster.promises.is_complete
    text = after(world, candidate)
    assert "a majority must; new, and without a vote as yet: host2:5002" in text
    world.restart(0)
    world.run(1)
    assert "not in the newest in-sync set" in after(world, candidate)
    assert after(world, world.machines[0]) == ""
    world.run(1)
    assert [machine.words for machine in world.machines] == [["m"]] * 3


def test_of_four_two_that_remember_are_enough() -> None:
    world = started(4)
    world.kill(2)
    world.kill(3)
    world.replace(3)
    assert new(world) == []


def test_a_new_broker_votes_at_once_where_all_others_are_there() -> None:
    world = started()
    world.kill(2)
    world.replace(2)
    assert new(world) == [] and world.machines[2].cluster.promises.promised == 1
    world.run(1)
    world.kill(0)
    assert after(world, world.machines[1]) == ""


def test_a_new_broker_in_the_place_of_one_is_a_backup_while_another_is_down() -> None:
    world = started()
    world.kill(2)
    world.run(1)
    assert publish(world, 0, "a")
    world.kill(1)
    world.replace(1)
    world.run(1)
    assert new(world) == [1]
    world.kill(1)
    late = world.restart(1)
    assert new(world) == [1], "it has not heard more by now"
    world.restart(2)
    world.run(2)
    assert new(world) == []
    assert [machine.state for machine in world.machines] == [ACTIVE, READY, READY]
    assert late.words == ["a"]


def test_a_primary_does_not_hand_over_to_a_new_broker() -> None:
    """Neither would then be promoted."""
    world = started()
    world.kill(1)
    world.run(1)
    world.revive(1).disk_hangs = True
    world.run(1)
    world.kill(2)
    world.run(2)
    world.kill(1)
    late = world.replace(1)
    world.run(1)
    assert late.state is READY and new(world) == [1]
    ((error, _),) = world.machines[0].switchover()
    assert error is not None and error.text == "new, and without a vote as yet: host1:5001"
    assert world.machines[0].state is ACTIVE


def test_a_new_broker_follows_and_confirms_before_it_votes() -> None:
    world = started()
    world.part((0, 1), (2,))
    world.run(1)
    world.kill(1)
    world.replace(1)
    assert new(world) == [1]
    assert not publish(world, 0, "a"), "the former one is a member until a majority agrees"
    world.part()
    world.run(1)
    assert new(world) == [] and world.machines[0].accepted == ["a"]
    assert world.machines[1].words == ["a"]


def test_of_five_three_that_remember_are_enough_and_two_are_not() -> None:
    world = started(5)
    for index in (2, 3, 4):
        world.kill(index)
    world.replace(4)
    assert new(world) == [4]
    world.restart(3)
    world.run(0.5)
    assert new(world) == []


def test_where_all_others_have_answered_nothing_more_can_be_known() -> None:
    world = started()
    for index in range(3):
        world.kill(index)
    world.restart(0)
    world.replace(1)
    assert new(world) == [1]
    assert after(world, world.machines[0]) != ""
    world.replace(2)
    world.run(0.5)
    assert new(world) == []


def test_the_newest_set_may_never_have_been_in_force_and_its_epoch_is_not_begun_again() -> None:
    """Three of five disks are lost: those who took over from a primary that was cut off. It had
    recorded a set without them.
    """
    world = started(5, backup_timeout=SECOND)
    assert publish(world, 0, "a")
    world.part((0, 3), (1, 2, 4))
    world.run(2)
    assert after(world, world.machines[1]) == ""
    assert publish(world, 1, "b")
    for index in range(5):
        world.kill(index)
    world.part()
    first = world.restart(0)
    world.restart(3)
    assert set(world.machines[3].cluster.promises.in_sync.members) == {"0-broker", "3-broker"}
    world.replace(1)
    world.replace(2)
    assert new(world) == [1, 2]
    assert "2 of 5 brokers" in after(world, first)
    world.replace(4)
    world.run(0.5)
    assert new(world) == []
    highest = max(machine.cluster.promises.promised for machine in world.machines)
    assert after(world, first) == ""
    world.run(1)
    assert first.log.epoch > highest
    assert [machine.words for machine in world.machines] == [["a"]] * 5
    assert [epochs_of(machine)[-1] for machine in world.machines] == [first.log.epoch] * 5


def test_the_operator_goes_on_without_the_vote_of_a_new_broker() -> None:
    world = started()
    assert publish(world, 0, "a")
    world.kill(0)
    world.kill(2)
    survivor, late = world.machines[1], world.replace(2)
    assert new(world) == [2]
    assert "a majority must" in after(world, survivor)
    assert after(world, survivor, accept_loss=True) == ""
    world.run(1)
    assert [survivor.state, late.state] == [ACTIVE, READY] and late.words == ["a"]


def test_the_operator_has_a_new_broker_promoted() -> None:
    world = started()
    for index in range(3):
        world.kill(index)
    world.restart(0)
    machine = world.replace(1)
    world.kill(0)
    assert after(world, machine) != ""
    assert after(world, machine, accept_loss=True) == ""
    assert new(world) == [] and not SavedState.decode(machine.saved).is_new
    assert machine.state is ACTIVE


def test_a_vote_of_a_broker_that_was_started_again_without_memory_is_not_counted() -> None:
    world = started(5)
    world.kill(0)
    world.kill(4)
    world.machines[3].paused = True
    found = world.machines[1].cluster.peers.consult(lambda consultation: None, enough=True)
    world.settle()
    assert [peer.name for peer in found.answered] == ["host2:5002"]
    world.kill(2)
    world.replace(2)
    assert found.answered == []


def test_nor_is_that_of_a_broker_that_another_has_replaced() -> None:
    """It may be new no longer when it is heard first."""
    world = started(5)
    for index in (3, 4):
        world.machines[index].paused = True
    peers = world.machines[1].cluster.peers
    found = peers.consult(lambda consultation: None, enough=True)
    found.enough = 4
    world.settle()
    replaced = peers.all[2]
    assert replaced in found.answered and replaced.status is not None
    peers.status(replaced, replace(replaced.status, name="renamed"))
    assert replaced in found.answered
    peers.status(replaced, replace(replaced.status, system_id="2-new-1"))
    assert replaced not in found.answered and replaced in found.waiting
    world.settle()
    assert replaced in found.answered, "it was asked again"


def test_recover_counts_no_new_brokers_for_the_majority() -> None:
    world = started()
    for index in range(3):
        world.kill(index)
    world.restart(0)
    world.replace(1)
    replies = world.machines[0].compare()
    world.run(2)
    ((_, found),) = replies
    assert found is not None and found["recommended"] is None
    assert "1 of 3 brokers answered (host1:5001: new, and without a vote as yet)" in str(
        found["reason"]
    )


# -- a new cluster --------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "absent"), [(3, (2,)), (5, (3, 4)), (2, ()), (1, ())])
def test_a_new_cluster_begins_with_a_majority(n: int, absent: tuple[int, ...]) -> None:
    world = World(n, safety="strict", durable=True, absent=absent)
    assert [index for index in new(world) if index not in absent] == []
    assert after(world, world.machines[0]) == ""
    assert publish(world, 0, "a")
    for index in absent:
        world.revive(index)
    world.run(2)
    assert new(world) == []
    assert [machine.words for machine in world.machines] == [["a"]] * n


def test_a_new_broker_alone_waits_for_a_majority() -> None:
    world = World(3, safety="strict", durable=True, absent=(1, 2))
    assert new(world) == [0, 1, 2]
    assert "1 of 3 brokers" in after(world, world.machines[0])
    world.revive(1)
    world.run(0.5)
    assert new(world) == [2]
    world.revive(2)
    world.run(0.5)
    assert new(world) == []


def test_a_candidate_that_is_new_waits_for_all_that_are_there() -> None:
    world = World(3, safety="strict", durable=True, absent=(0,))
    assert new(world) == [0]
    world.machines[2].paused = True
    candidate = world.revive(0)
    world.run(0.2)
    assert new(world) == [0]
    replies = candidate.promote()
    world.run(0.5)
    assert replies == []
    world.machines[2].paused = False
    world.run(1)
    assert replies == [None] and candidate.state is ACTIVE


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_new_cluster_is_promoted_while_it_connects(n: int) -> None:
    world = World(n, safety="strict", durable=True, absent=tuple(range(n)))
    for index in range(n):
        world.revive(index)
    replies = world.machines[0].promote()
    world.run(1)
    assert replies == [None] and world.machines[0].state is ACTIVE


def test_who_hears_of_a_founder_when_that_is_a_candidate_promises_to_it() -> None:
    """The others of a new cluster are heard one after the other, and a manager does not wait."""
    world = World(3, safety="strict", durable=True, absent=(0, 1, 2))
    world.refused = {(1, 0), (1, 2)}
    for index in range(3):
        world.revive(index)
    world.run(0.5)
    assert new(world) == [1]
    world.machines[2].state_hangs = True
    replies = world.machines[0].promote()
    world.run(0.1)
    world.refused = set()
    world.run(0.5)
    assert new(world) == []
    assert replies == [None] and world.machines[0].state is ACTIVE


def test_who_hears_of_a_founder_late_is_a_founder_too() -> None:
    world = World(3, safety="strict", durable=True, absent=(1, 2))
    world.refused = {(1, 0)}
    world.revive(1)
    world.run(0.5)
    assert new(world) == [1, 2]
    world.refused = set()
    world.run(0.5)
    assert new(world) == [2]


def test_who_was_there_before_is_no_founder_with_one_that_comes_later() -> None:
    """The later one may be in the place of one that has voted."""
    world = World(3, safety="strict", durable=True)
    world.part((0, 2), (1,))
    assert after(world, world.machines[0]) == ""
    world.part((0,), (1,), (2,))
    world.kill(2)
    world.kill(0)
    world.part()
    world.replace(2)
    world.run(1)
    assert new(world) == [2]
    assert after(world, world.machines[1]) != ""


def test_who_was_new_and_is_not_heard_any_more_is_no_founder() -> None:
    """It may have heard since what the broker before it had promised, and have voted."""
    world = World(5, safety="strict", durable=True, absent=(0, 1, 2, 3, 4))
    world.revive(0)
    world.revive(1)
    world.run(0.5)
    assert new(world) == [0, 1, 2, 3, 4]
    world.kill(1)
    world.revive(2)
    world.run(0.5)
    assert new(world) == [0, 1, 2, 3, 4]
    world.revive(3)
    world.run(0.5)
    assert new(world) == [1, 4], "nor does it stand in the way"


def test_who_has_followed_a_primary_is_no_founder() -> None:
    world = started()
    for index in (1, 2):
        world.kill(index)
    world.replace(1)
    world.run(0.5)
    assert new(world) == [1] and world.machines[1].cluster.promises.promised == 1
    world.kill(1)
    world.kill(0)
    world.restart(1)
    world.replace(2)
    assert new(world) == [1, 2]


def test_what_was_told_counts_though_the_teller_is_replaced() -> None:
    """The primary is cut off; one other broker loses its memory, hears of the set, and waits for
    the primary. Then the broker that told it loses its memory as well.
    """
    world = started()
    world.part((0,), (1, 2))
    world.kill(2)
    late = world.replace(2)
    world.run(1)
    assert new(world) == [2]
    world.kill(1)
    world.replace(1)
    world.run(2)
    assert new(world) == [1, 2]
    world.part()
    world.run(2)
    assert new(world) == [] and late.cluster.promises.promised == 1
    assert world.machines[0].state is ACTIVE and publish(world, 0, "m")


def test_founders_that_heard_of_each_other_in_any_order_all_vote() -> None:
    """Of five one is away; the second pair hears of each founder only through the other."""
    world = World(5, safety="strict", durable=True, absent=(0, 1, 2, 3, 4))
    walls = {(0, 3), (1, 2), (2, 0), (2, 1), (3, 0), (3, 1), (2, 3), (3, 2)}
    world.refused = set(walls)
    for index in range(4):
        world.revive(index)
    world.run(0.5)
    assert new(world) == [2, 3, 4]
    world.refused = set()
    world.run(0.5)
    assert new(world) == [4]


def test_a_cluster_of_one_is_extended_while_all_are_stopped() -> None:
    alone = World(1, safety="strict", durable=True)
    alone.machines[0].promote()
    alone.run(0.5)
    assert publish(alone, 0, "a")
    alone.kill(0)
    former = alone.machines[0]
    assert former.disk is not None
    former.disk.crash("keep")
    world = World(3, safety="strict", durable=True, absent=(0, 1, 2))
    world.dead.discard(0)
    first = Machine(world, 0, former.saved, life=1, files=former.disk.files)
    world.machines[0] = first
    first.cluster.start()
    world.revive(1)
    world.run(0.5)
    assert new(world) == [1, 2], "the third may have been the one that knows more"
    world.revive(2)
    world.run(0.5)
    assert new(world) == []
    assert after(world, first) == ""
    world.run(1)
    assert [machine.words for machine in world.machines] == [["a"]] * 3


@pytest.mark.parametrize(
    ("safety", "recorder"), [("trust-manager", "brokers"), ("strict", "manager")]
)
def test_nobody_is_new_where_brokers_do_not_vote(safety: str, recorder: str) -> None:
    world = World(2, safety=safety, recorder=recorder, absent=(1,))
    assert new(world) == []


# -- the state file -------------------------------------------------------------------------------


def test_a_state_file_says_that_its_broker_is_new() -> None:
    new_one = SavedState(is_new=True)
    assert SavedState.decode(new_one.encode()) == new_one
    assert b"is_new" not in SavedState().encode()
    voted = replace(new_one, promised=1, is_new=False)
    assert newest_of(voted.encode(), new_one.encode()) == voted.encode()
    assert newest_of(new_one.encode(), new_one.encode()) == new_one.encode()
