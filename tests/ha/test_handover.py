"""Hand-over: the target has everything before it is primary, and what goes wrong leaves a
primary.
"""

from __future__ import annotations

from qpidha.ha.explanation import explain
from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.wire import TakenOver, decode
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.records import QueueDeclared
from tests.ha.cluster_world import SECOND, Machine, World

ACTIVE, READY, JOINING = BrokerStatus.ACTIVE, BrokerStatus.READY, BrokerStatus.JOINING


def started(n: int = 3, **options: int) -> World:
    world = World(n, safety="strict", **options)
    world.machines[0].promote()
    world.run(0.5)
    return world


def states(world: World) -> list[BrokerStatus]:
    return [machine.state for machine in world.machines]


def refusal(replies: list) -> str:  # type: ignore[type-arg]
    ((error, found),) = replies
    assert found is None
    return str(error.text)


def test_a_named_backup_takes_over_with_everything_and_the_old_primary_stays_in_the_set() -> None:
    world = started()
    world.machines[2].paused = True
    world.machines[0].publish("a")
    replies = world.machines[0].switchover("host2:5002")
    assert world.machines[0].frozen
    world.run(0.3)
    assert states(world) == [ACTIVE, READY, READY]  # it has not got everything
    assert replies == []
    world.machines[2].paused = False
    world.run(1)
    assert states(world) == [READY, READY, ACTIVE]
    assert world.machines[0].accepted == ["a"]
    assert [machine.words for machine in world.machines] == [["a"]] * 3
    assert not world.machines[0].frozen
    ((error, found),) = replies
    assert error is None
    assert found is not None
    assert (found["address"], found["epoch"]) == ("host2:5002", 2)
    assert world.machines[2].cluster.promises.in_sync.members == (
        "2-broker",
        "0-broker",
        "1-broker",
    )
    assert not any("No longer in sync" in line for line in world.machines[2].said)


def test_without_a_name_the_best_backup_takes_over() -> None:
    world = started()
    replies = world.machines[0].switchover()
    world.run(1)
    assert replies[0][0] is None
    assert states(world)[0] is READY
    assert ACTIVE in states(world)


def test_without_a_backup_there_is_nobody_to_hand_over_to() -> None:
    world = started(1)
    assert refusal(world.machines[0].switchover()) == "no backup is ready to take over"


def test_all_backups_hear_what_is_committed_before_the_primary_steps_down() -> None:
    world = started()
    primary, bystander = world.machines[0], world.machines[1]
    primary.publish("a")
    primary.switchover("host2:5002")
    while primary.state is ACTIVE:
        assert world.step_one(lambda able: able[0])
    while bystander.inbox:
        world.step_one(lambda able: bystander if bystander in able else able[0])
    assert bystander.words == ["a"]


def test_a_hand_over_whose_answer_is_lost_ends_once_with_the_primary_that_is_known() -> None:
    world = started()
    carry = world.carry

    def lose_the_answer(sender: Machine, connection_id: int, data: bytes) -> None:
        if not isinstance(decode(data), TakenOver):
            carry(sender, connection_id, data)

    world.carry = lose_the_answer  # type: ignore[method-assign]
    replies = world.machines[0].switchover("host2:5002")
    world.run(10)
    ((error, found),) = replies
    assert error is None and found is not None
    assert (found["address"], found["epoch"]) == ("host2:5002", 2)
    assert states(world) == [READY, READY, ACTIVE]


def test_a_system_id_names_a_broker_too() -> None:
    world = started()
    world.machines[0].switchover("1-broker")
    world.run(1)
    assert states(world) == [READY, ACTIVE, READY]


def test_a_hand_over_is_refused_with_its_reason() -> None:
    world = started()
    assert "joining and has nothing" in refusal(_joining(world).switchover())
    assert "is ready and has nothing to hand over" in refusal(world.machines[1].switchover())
    assert "no broker host9 is known" in refusal(world.machines[0].switchover("host9"))
    world.kill(2)
    world.run(1)
    assert (
        refusal(world.machines[0].switchover("host2:5002"))
        == "host2:5002 is not in sync: it is ready"
    )
    world.machines[1].paused = True
    world.machines[0].publish("a")
    world.machines[0].switchover("host1:5001")
    assert "already" in refusal(world.machines[0].switchover("host1:5001"))


def _joining(world: World):  # type: ignore[no-untyped-def]
    world.machines[0].cluster.demote(lambda error: None)
    machine = world.machines[0]
    assert machine.state is JOINING

    class Once:
        def switchover(self) -> object:
            replies = machine.switchover()
            machine.promote()
            world.run(1)
            assert machine.state is ACTIVE
            return replies

    return Once()


def test_a_target_that_does_not_get_everything_in_time_changes_nothing() -> None:
    world = started(backup_timeout=2 * SECOND)
    primary = world.machines[0]
    world.machines[2].paused = True
    primary.publish("a")
    replies = primary.switchover("host2:5002")
    world.run(3)
    assert "not handed over to host2:5002" in refusal(replies)
    assert primary.state is ACTIVE
    assert not primary.frozen
    assert primary.cluster.handover is None


def test_a_target_that_dies_before_it_has_everything_changes_nothing() -> None:
    world = started()
    primary = world.machines[0]
    world.machines[2].paused = True
    primary.publish("a")
    replies = primary.switchover("host2:5002")
    world.kill(2)
    world.run(1)
    assert "not in sync any more" in refusal(replies)
    assert primary.state is ACTIVE
    assert not primary.frozen
    assert primary.accepted == ["a"]


def test_a_target_that_dies_when_it_is_its_turn_makes_the_old_primary_primary_again() -> None:
    world = started()
    primary = world.machines[0]
    primary.publish("a")
    replies = primary.switchover("host2:5002")
    while primary.state is ACTIVE:
        assert world.step_one(lambda able: able[0])
    world.kill(2)
    world.run(20)
    assert "this broker is primary again" in refusal(replies)
    assert states(world)[:2] == [ACTIVE, READY]
    assert primary.words == ["a"]
    assert not primary.frozen


def test_a_target_that_is_refused_by_the_others_makes_the_old_primary_primary_again() -> None:
    world = started()
    primary, target = world.machines[0], world.machines[2]
    replies = primary.switchover("host2:5002")
    target.cluster.promises._in_sync = InSyncSet(9, 9, ("somebody",))
    world.run(5)
    assert "host2:5002 says: not in the newest in-sync set" in refusal(replies)
    assert not primary.frozen


def test_a_demotion_ends_a_hand_over_that_has_not_begun_to_move() -> None:
    world = started()
    world.machines[2].paused = True
    world.machines[0].publish("a")
    replies = world.machines[0].switchover("host2:5002")
    world.machines[0].cluster.demote(lambda error: None)
    assert "stepping down" in refusal(replies)
    assert not world.machines[0].frozen


def test_what_a_hand_over_waits_for_is_explained() -> None:
    world = started()
    world.machines[2].paused = True
    world.machines[0].publish("a")
    world.machines[0].switchover("host2:5002")
    entries = {entry["waits_for"]: entry for entry in explain(world.machines[0].cluster)}
    assert entries.keys() == {"backup", "hand-over"}
    assert entries["hand-over"]["address"] == "host2:5002"


def test_what_clients_sent_meanwhile_is_on_its_way_at_once_when_a_hand_over_is_given_up() -> None:
    world = started()
    primary = world.machines[0]
    world.machines[2].paused = True
    primary.publish("a")
    freeze = primary.freeze

    def thaw(frozen: bool) -> None:
        freeze(frozen)
        if not frozen:
            primary.log.append(QueueDeclared("meanwhile", ""))

    primary.freeze = thaw  # type: ignore[method-assign]
    primary.switchover("host2:5002")
    world.close(
        next(number for number, ends in world.ends.items() if ends == (world.machines[2], primary))
    )
    while primary.frozen:
        assert world.step_one(lambda able: able[0])
    assert not primary.log.has_pending
