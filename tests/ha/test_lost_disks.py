"""After a total failure a disk is lost: another member of the newest in-sync set has every durable
message, and is promoted where it is known to be a member; otherwise the operator decides.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.ha.candidates import Comparison
from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.wire import Status
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import QpidHaError
from qpidha.model.event_log import EventSink
from tests.ha.cluster_world import Machine, World

ACTIVE, READY = BrokerStatus.ACTIVE, BrokerStatus.READY
ABC = ("a", "b", "c")


def failed(n: int = 3, *, dropped: int = -1, **options: Any) -> World:
    """Return a cluster that has accepted "a" and then failed as a whole; `dropped` left the in-sync
    set before.
    """
    world = World(n, safety="strict", durable=True, **options)
    world.machines[0].promote()
    world.run(0.5)
    if dropped >= 0:
        world.kill(dropped)
        world.run(1)
    world.machines[0].publish("a")
    world.run(0.1)
    assert world.machines[0].accepted == ["a"]
    left = [index for index in range(n) if index != dropped]
    for index in left:
        world.machines[index].paused = True
    for index in left:
        world.kill(index)
        world.machines[index].paused = False
    return world


def after(world: World, machine: Machine, **options: Any) -> str:
    """Return why a broker was refused, empty if it was promoted."""
    replies: list[QpidHaError | None] = machine.promote(**options)
    world.run(6)
    (reply,) = replies
    return "" if reply is None else reply.text


@pytest.mark.parametrize(("lost", "candidate"), [(0, 1), (1, 2), (2, 0)])
def test_faults_b5_one_lost_disk_of_three_does_not_stop_a_cluster(
    lost: int, candidate: int
) -> None:
    world = failed()
    for index in range(3):
        world.replace(index) if index == lost else world.restart(index)
    machine = world.machines[candidate]
    assert after(world, machine) == ""
    assert machine.state is ACTIVE
    assert [each.words for each in world.machines] == [["a"]] * 3
    assert f"{lost}-broker" not in machine.cluster.promises.in_sync.members
    assert [line for line in machine.said if f"promoted without {lost}-broker" in line]
    machine.publish("b")
    world.run(0.5)
    assert machine.accepted == ["b"]


def test_a_broker_that_was_dropped_knows_the_newest_set_and_is_no_member_of_it() -> None:
    world = failed(dropped=2)
    world.replace(0)
    for index in (1, 2):
        world.restart(index)
    assert "host1:5001 is joining and has 1:5" in after(world, world.machines[2])
    assert after(world, world.machines[1]) == ""
    assert [each.words for each in world.machines] == [["a"]] * 3


def test_a_broker_that_does_not_know_that_it_was_dropped_is_refused() -> None:
    world = failed(dropped=2)
    world.replace(0)
    world.restart(2)
    assert "cannot tell" in after(world, world.machines[2], forget="host1:5001")


def test_two_lost_disks_of_three_are_refused_by_name_until_the_operator_accepts_the_loss() -> None:
    world = failed()
    world.replace(0)
    world.replace(2)
    machine = world.restart(1)
    assert "host0:5000, host2:5002 cannot tell who else had" in after(world, machine)
    assert after(world, machine, forget="0-broker 2-broker").endswith("acknowledged messages")
    for new in (world.machines[0], world.machines[2]):
        assert after(world, new) != ""
    assert after(world, machine, accept_loss=True) == ""
    assert [each.words for each in world.machines] == [["a"]] * 3


def test_new_brokers_that_were_told_of_a_set_do_not_vouch_for_it() -> None:
    """They cannot tell whether the former ones had agreed to another."""
    world = failed(dropped=2)
    machine = world.restart(1)
    world.replace(0)
    world.replace(2)
    assert not any(each.cluster.promises.is_new for each in world.machines)
    assert "host0:5000, host2:5002 cannot tell who else had" in after(world, machine)


@pytest.mark.parametrize("name", ["host0:5000", "0-broker"])
def test_the_operator_says_of_a_broker_that_it_will_not_come_back(name: str) -> None:
    world = failed()
    for index in (1, 2):
        world.restart(index)
    machine = world.machines[1]
    machine.event_log = EventSink(is_on=True)
    assert "host0:5000 did not answer" in after(world, machine)
    found = compared(world, machine, name)
    assert found["recommended"] is not None and "will not come back" in str(found["reason"])
    assert after(world, machine, forget=name) == ""
    assert [machine.state, world.machines[2].state] == [ACTIVE, READY]
    assert [machine.words, world.machines[2].words] == [["a"]] * 2
    assert "0-broker" not in machine.cluster.promises.in_sync.members
    events = [json.loads("{" + row + "}") for row in machine.event_log.rows]
    assert [event for event in events if event.get("x") == f"forget {name}"]


def test_a_broker_that_was_forgotten_may_come_back_as_a_backup() -> None:
    world = failed()
    for index in (1, 2):
        world.restart(index)
    assert after(world, world.machines[1], forget="host0:5000") == ""
    world.machines[1].publish("b")
    world.run(0.5)
    world.restart(0)
    world.run(2)
    assert [each.state for each in world.machines] == [READY, ACTIVE, READY]
    assert [each.words for each in world.machines] == [["a", "b"]] * 3


def test_a_majority_has_to_be_there_however_many_are_forgotten() -> None:
    world = failed()
    machine = world.restart(1)
    assert after(world, machine, forget="host0:5000 host2:5002") != ""
    found = compared(world, machine, "host0:5000 host2:5002")
    assert found["recommended"] is None and "a majority must" in str(found["reason"])


def test_who_answers_is_not_forgotten_nor_who_is_unknown() -> None:
    world = failed()
    for index in (1, 2):
        world.restart(index)
    machine = world.machines[1]
    assert "it answered" in after(world, machine, forget="host2:5002")
    assert "no broker nobody is known" in after(world, machine, forget="nobody")
    found = compared(world, machine, "host2:5002")
    assert found["recommended"] is None and "it answered" in str(found["reason"])


def test_one_of_two_brokers_knows_every_set_for_both_had_to_record_it() -> None:
    world = failed(2)
    world.replace(0)
    machine = world.restart(1)
    assert after(world, machine) == ""
    assert [each.words for each in world.machines] == [["a"]] * 2


def test_the_record_of_the_store_tells_the_newest_set() -> None:
    world = failed(2, recorder="manager")
    assert world.store is not None
    world.replace(0)
    machine = world.restart(1)
    assert after(world, machine) == ""
    assert machine.state is ACTIVE and machine.words == ["a"]
    world.run(1)
    assert "0-broker" not in world.store.kept.members


def compared(world: World, machine: Machine, forget: str = "") -> dict[str, object]:
    replies = machine.compare(forget)
    world.run(2)
    ((error, found),) = replies
    assert error is None and found is not None
    return found


# The rule alone: rows of brokers as one of them sees them.


def status(
    system_id: str, point: tuple[int, int] = (1, 50), known: InSyncSet | None = None
) -> Status:
    known = InSyncSet(1, 3, ABC) if known is None else known
    return Status(
        system_id,
        system_id,
        f"{system_id}:1",
        "joining",
        point[0],
        1,
        point[1],
        known.epoch,
        known.version,
        known.members,
        False,
    )


def compare(
    own: Status, *others: Status | None, strict: bool = True, forget: str = ""
) -> Comparison:
    peers: Any = SimpleNamespace(
        strict=strict,
        ha_recorder="brokers",
        others=lambda: [
            SimpleNamespace(name=f"h{number}", known=each) for number, each in enumerate(others)
        ],
    )
    answered = [f"h{number}" for number, each in enumerate(others) if each is not None]
    return Comparison(own, peers, answered, forget=forget)


NEW = status("new", (0, 0), InSyncSet())


def refused(comparison: Comparison) -> str:
    found = comparison.refusal(comparison.own)
    return "" if found is None else found[0]


def test_a_member_is_gone_when_another_broker_is_at_its_address() -> None:
    assert refused(compare(status("b"), NEW, status("c"))) == ""
    assert "did not answer" in refused(compare(status("b"), None, status("c")))
    assert "did not answer" in refused(compare(status("b"), NEW, None))


def test_a_damaged_member_is_not_complete() -> None:
    """One without content, or with half a snapshot, says that it has nothing."""
    assert "b:1 has nothing, and a will not come back" in refused(
        compare(status("b", (0, 0)), NEW, status("c", (0, 0)))
    )
    assert "has 1:50" in refused(compare(status("b", (1, 40)), NEW, status("c")))


def test_brokers_that_know_no_set_do_not_make_up_the_majority() -> None:
    assert "h0, h1 cannot tell" in refused(compare(status("b"), NEW, NEW))
    assert "h0, h1 cannot tell" in refused(compare(status("b"), NEW, None, forget="h1"))
    five = InSyncSet(1, 3, ("a", "b"))
    of_five = [status(name, known=five) for name in "bcde"]
    assert refused(compare(*of_five[:3], NEW, NEW)) == ""
    assert "cannot tell" in refused(compare(*of_five[:2], NEW, NEW, NEW))


def test_more_than_half_of_the_members_gone_is_too_much_whoever_answers() -> None:
    """A broker that lost its disk earlier may have heard of an old set since."""
    assert "cannot tell" in refused(compare(status("c"), status("a-again"), status("b-again")))


def test_a_trusted_manager_waits_for_nobody_as_before() -> None:
    comparison = compare(status("b"), NEW, None, strict=False)
    assert refused(comparison) == "" and comparison.gone == []
