"""Promotion after restarts and total failures: who may be promoted by what all have, and what
--accept-loss gives up.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from qpidha.ha.candidates import Comparison
from qpidha.ha.explanation import explain
from qpidha.ha.peers import ATTEMPTS, Consultation
from qpidha.ha.wire import Ask, decode
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import QpidHaError
from qpidha.model.event_log import EventSink
from tests.ha.cluster_world import SECOND, Machine, World

ACTIVE, READY, JOINING, CATCHUP = (
    BrokerStatus.ACTIVE,
    BrokerStatus.READY,
    BrokerStatus.JOINING,
    BrokerStatus.CATCHUP,
)


def started(n: int = 3, *, safety: str = "strict", durable: bool = True, **options: int) -> World:
    world = World(n, safety=safety, durable=durable, **options)
    world.machines[0].promote()
    world.run(0.5)
    return world


def text_of(replies: list[QpidHaError | None]) -> str:
    (reply,) = replies
    assert reply is not None
    return reply.text


def states(world: World) -> list[BrokerStatus]:
    return [machine.state for machine in world.machines]


def total_failure(world: World, order: tuple[int, ...] = (0, 1, 2)) -> None:
    """Kill every broker before anybody could drop anybody."""
    for index in order:
        world.machines[index].paused = True
    for index in order:
        world.kill(index)
        world.machines[index].paused = False


def uneven(*, safety: str = "strict") -> World:
    """Return a cluster that failed as a whole; 0 and 1 have a word that 2 has not, which nobody has
    accepted.
    """
    world = started(safety=safety)
    world.machines[0].publish("a")
    world.settle()
    world.machines[2].paused = True
    world.machines[0].publish("b")
    world.settle()
    total_failure(world)
    return world


def until(world: World, machine: Machine, state: BrokerStatus) -> Machine:
    """Go on until a broker is in a state, and not one event further."""
    while machine.state is not state:
        if not world.step_one(lambda able: able[0]):
            world.run(0.02)
    return machine


def test_a_restarted_backup_goes_on_from_its_journal_without_a_snapshot() -> None:
    world = started()
    for word in "abc":
        world.machines[0].publish(word)
    world.run(0.1)
    world.kill(2)
    world.run(1)
    world.machines[0].publish("d")
    world.run(0.5)
    machine = world.restart(2)
    world.run(1)
    assert states(world) == [ACTIVE, READY, READY]
    assert machine.words == list("abcd")
    assert (
        "catching up with the log from"
        in [line for line in world.machines[0].said if "backup connection: 2-broker" in line][-1]
    )


def test_a_backup_confirms_only_what_is_on_its_disk() -> None:
    world = started()
    world.machines[2].disk_hangs = True
    world.machines[0].publish("a")
    world.run(0.5)
    assert world.machines[2].log.last == world.machines[0].log.last
    assert world.machines[0].accepted == []
    world.machines[2].disk_hangs = False
    world.run(0.1)
    assert world.machines[0].accepted == ["a"]


def test_a_primary_accepts_only_what_is_on_its_own_disk() -> None:
    world = started()
    world.machines[0].disk_hangs = True
    world.machines[0].publish("a")
    world.run(0.5)
    assert world.machines[0].accepted == []
    (entry,) = explain(world.machines[0].cluster)
    assert (entry["waits_for"], entry["behind"]) == ("disk", 1)
    world.machines[0].disk_hangs = False
    world.run(0.1)
    assert world.machines[0].accepted == ["a"]
    assert explain(world.machines[0].cluster) == []


def test_after_a_total_failure_nobody_is_promoted_while_a_member_of_the_set_has_not_answered() -> (
    None
):
    world = uneven()
    world.restart(1)
    world.restart(2)
    replies = world.machines[1].promote()
    world.run(5)
    assert "host0:5000 did not answer and may have newer acknowledged" in text_of(replies)
    world.restart(0)
    assert world.machines[1].promote() == []
    world.run(5)
    assert states(world) == [READY, ACTIVE, READY]
    assert [machine.words for machine in world.machines] == [["a", "b"]] * 3


def test_after_a_total_failure_the_one_with_less_is_refused_and_the_better_one_named() -> None:
    world = uneven()
    for index in range(3):
        world.restart(index)
    replies = world.machines[2].promote()
    world.run(5)
    (reply,) = replies
    assert reply is not None
    assert "host0:5000 is joining and has 1:" in reply.text
    assert f"error: promotion refused: {reply.text}" in world.machines[2].said
    assert "promote host0:5000 (qpid-ha promote there)" in reply.hint
    assert "qpid-ha recover" in reply.hint


def test_a_broker_that_was_dropped_long_ago_need_not_answer() -> None:
    world = started()
    world.kill(2)
    world.run(1)
    world.machines[0].publish("a")
    world.run(0.5)
    total_failure(world, (0, 1))
    world.restart(0)
    world.restart(1)
    world.machines[1].promote()
    world.run(5)
    assert states(world)[:2] == [READY, ACTIVE]
    assert world.machines[1].words == ["a"]


def test_a_broker_that_was_dropped_is_refused_whatever_its_journal_has() -> None:
    world = started()
    world.kill(2)
    world.run(1)
    total_failure(world, (0, 1))
    for index in range(3):
        world.restart(index)
    replies = world.machines[2].promote()
    world.run(5)
    assert "host" in text_of(replies)
    assert world.machines[2].state is not ACTIVE


def test_with_a_trusted_manager_the_silent_are_skipped_and_who_answered_with_more_is_not() -> None:
    world = uneven(safety="trust-manager")
    world.restart(2)
    world.restart(1)
    replies = world.machines[2].promote()
    world.run(5)
    assert "host1:5001 is joining and has" in text_of(replies)
    assert world.machines[1].promote() in ([], [None])
    world.run(15)
    assert world.machines[1].state is ACTIVE
    assert world.machines[1].words == ["a", "b"]


def test_a_broker_in_catchup_can_be_promoted_when_the_primary_came_back_with_less() -> None:
    world = started(2, safety="trust-manager")
    world.machines[0].publish("a")
    world.run(0.1)
    total_failure(world, (0, 1))
    world.restart(0)
    world.restart(1)
    world.machines[0].promote()
    while world.machines[1].state is not CATCHUP:
        assert world.step_one(lambda able: able[0])
    world.kill(0)
    world.run(0.3)
    assert world.machines[1].state is CATCHUP
    replies = world.machines[1].promote()
    world.run(5)
    assert "did not answer" in text_of(replies)  # it had more a moment ago
    world.restart(0)
    replies = (
        world.machines[1]
        if world.machines[1].log.last >= world.machines[0].log.last
        else world.machines[0]
    ).promote()
    world.run(5)
    assert replies == [None]
    assert sorted(state.value for state in states(world)) == ["active", "ready"]
    assert [machine.words for machine in world.machines] == [["a"]] * 2


def test_accept_loss_promotes_the_only_one_that_is_left_and_says_what_is_given_up() -> None:
    world = uneven()
    survivor = world.restart(2)
    assert "did not answer" in text_of(_after(world, survivor, accept_loss=False))
    assert _after(world, survivor, accept_loss=True) == [None]
    assert survivor.state is ACTIVE
    assert survivor.words == ["a"]
    assert survivor.cluster.promises.in_sync.members == ("2-broker",)
    (line,) = [line for line in survivor.said if line.startswith("critical")]
    assert "host0:5000" in line or "0-broker" in line
    assert "did not answer and may have more" in line
    survivor.publish("c")
    world.settle()
    assert survivor.accepted == ["c"]


def test_accept_loss_names_brokers_that_have_more_and_keeps_those_that_answered() -> None:
    world = uneven()
    for index in range(3):
        world.restart(index)
    machine = world.machines[2]
    assert _after(world, machine, accept_loss=True) == [None]
    assert states(world) == [READY, READY, ACTIVE]
    assert [each.words for each in world.machines] == [["a"]] * 3
    (line,) = [line for line in machine.said if line.startswith("critical")]
    last = machine.log.history[-1][1] - 1
    assert (
        f"host2:5002 has 1:{last}; host0:5000 has 1:{last + 1}; host1:5001 has 1:{last + 1}" in line
    )


def test_accept_loss_is_refused_while_there_is_a_primary() -> None:
    world = started()
    replies = world.machines[1].promote(accept_loss=True)
    world.run(1)
    assert "host0:5000 is the primary" in text_of(replies)
    assert states(world) == [ACTIVE, READY, READY]


def test_accept_loss_takes_a_broker_out_of_a_catch_up_that_will_never_end() -> None:
    world = started(
        2,
        log_limit=1500,
        log_disk=0,
        safety="trust-manager",
        durable=False,
        backup_timeout=2 * SECOND,
    )
    world.kill(1)
    for number in range(50):
        world.machines[0].publish(f"w{number}")
        world.settle()
    world.run(1)
    late = until(world, world.revive(1), CATCHUP)
    world.kill(0)
    world.run(0.5)
    assert late.state is CATCHUP
    assert _after(world, late, accept_loss=True) == [None]
    assert late.state is ACTIVE


def _after(world: World, machine: Machine, *, accept_loss: bool) -> list[QpidHaError | None]:
    replies = machine.promote(accept_loss=accept_loss)
    world.run(6)
    return replies


def test_the_comparison_recommends_the_one_with_most_and_tells_what_the_others_would_lose() -> None:
    world = uneven()
    for index in range(3):
        world.restart(index)
    replies = world.machines[2].compare()
    world.run(2)
    ((error, found),) = replies
    assert error is None
    assert found is not None
    brokers = found["brokers"]
    assert isinstance(brokers, list)
    assert [broker["address"] for broker in brokers] == ["host2:5002", "host0:5000", "host1:5001"]
    assert [broker["answered"] for broker in brokers] == [True] * 3
    assert brokers[1]["sequence"] == brokers[0]["sequence"] + 1
    assert found["recommended"] == "host0:5000"
    losses = found["losses"]
    assert isinstance(losses, list)
    assert [loss["address"] for loss in losses if loss["more_on"]] == ["host2:5002"]


def test_the_comparison_recommends_nobody_while_a_member_is_silent_and_says_whom_to_start() -> None:
    world = uneven()
    world.restart(1)
    world.restart(2)
    replies = world.machines[2].compare()
    world.run(2)
    found = replies[0][1]
    assert found is not None
    assert found["recommended"] is None
    assert "start host0:5000" in str(found["reason"])


def test_the_comparison_recommends_nobody_where_a_minority_answers_and_brokers_record() -> None:
    world = started()
    total_failure(world)
    machine = world.restart(1)
    replies = machine.compare()
    world.run(2)
    found = replies[0][1]
    assert found is not None and found["recommended"] is None
    assert found["reason"] == "1 of 3 brokers answered, and a majority must: start the others"


def test_a_broker_that_is_known_by_two_addresses_has_the_name_of_the_first_that_answered() -> None:
    world = started()
    own = world.machines[0].cluster.status()
    known = world.machines[1].cluster.status()
    others = [SimpleNamespace(name=name, known=known) for name in ("silent", "one", "other")]
    peers: Any = SimpleNamespace(strict=True, ha_recorder="brokers", others=lambda: others)
    assert Comparison(own, peers, ["one", "other"]).name("1-broker") == "one"


def test_a_promotion_is_overtaken_by_a_higher_promise_of_its_own_broker() -> None:
    world = started()
    world.kill(0)
    candidate = world.machines[1]
    replies = candidate.promote()
    while candidate.cluster.promises.promised == 1:
        assert world.step_one(lambda able: able[0])
    candidate.cluster.promises.promise_self(9)
    world.run(2)
    assert text_of(replies) == "overtaken: now ready, epoch 9 is promised"


def test_promises_are_asked_for_a_few_times_before_the_silent_are_passed_over() -> None:
    world = started()
    world.kill(0)
    world.run(0.5)
    world.machines[2].paused = True
    candidate = world.machines[1]
    replies = candidate.promote(accept_loss=True)
    world.run(10)
    assert replies == [None]
    asked = [
        message
        for kind, _, data in world.machines[2].inbox
        if kind == "said" and isinstance(message := decode(data), Ask) and message.epoch
    ]
    assert len(asked) == ATTEMPTS


def test_the_events_of_a_promotion_are_logged() -> None:
    world = World(3, safety="strict")
    for index, accept_loss in (0, False), (1, True), (1, False):
        machine = world.machines[index]
        machine.event_log = EventSink(is_on=True)
        machine.promote(accept_loss=accept_loss)
        world.run(1)
        events = [json.loads("{" + row + "}") for row in machine.event_log.rows]
        asked, ended = (event for event in events if event["k"] == "promotion")
        assert (asked["f"], asked.get("x", "")) == ("asked", "accept-loss" if accept_loss else "")
        assert ended["f"] == ("refused" if accept_loss else "granted")


def test_the_comparison_says_that_there_is_a_primary() -> None:
    world = started()
    replies = world.machines[1].compare()
    world.run(1)
    found = replies[0][1]
    assert found is not None
    assert found["recommended"] is None
    assert found["reason"] == "host0:5000 is the primary: there is nothing to recover"


def test_promotions_of_one_broker_at_the_same_time_are_serialised() -> None:
    world = started()
    world.kill(0)
    first = world.machines[1].promote()
    second = world.machines[1].promote()
    world.run(3)
    assert first == [None]
    assert "a promotion of this broker is under way" in text_of(second)
    assert world.machines[1].state is ACTIVE


def test_promotions_of_two_brokers_at_the_same_time_never_make_two_primaries() -> None:
    world = started()
    world.kill(0)
    replies = [world.machines[1].promote(), world.machines[2].promote()]
    world.run(5)
    assert [len(each) for each in replies] == [1, 1]
    assert (
        [state.is_primary for state in states(world)[1:]].count(True) == replies.count([None]) <= 1
    )
    if [None] not in replies:
        assert "is promised already" in text_of(replies[0])
        assert world.machines[1].promote() == []
        world.run(5)
    assert ACTIVE in states(world)
    assert READY in states(world)


def test_a_backup_that_became_ready_just_before_the_primary_died_is_expected_by_its_successor() -> (
    None
):
    world = started()
    world.kill(2)
    world.run(1)
    late = until(world, world.revive(2), READY)
    world.kill(0)  # whatever the other backup has heard of it by now
    world.machines[1].promote()
    world.run(0.2)
    primary = world.machines[1].cluster.primary
    replies = late.promote()
    world.run(5)
    if primary is not None:
        assert "2-broker" in primary.in_sync.members
    assert late.words == world.machines[1].words
    assert replies


def test_of_two_primaries_that_a_trusted_manager_made_one_has_the_higher_epoch_and_stays() -> None:
    world = World(3, safety="trust-manager")
    first, one, other = world.machines
    first.promote()
    world.run(1)
    first.publish("a")
    world.run(0.2)
    world.kill(0)
    connect = world.connect

    def refuse(caller: Machine, index: int) -> int:
        world.next_id += 1
        caller.inbox.append(("lost", world.next_id, b"refused"))
        return world.next_id

    world.connect = refuse  # type: ignore[method-assign]
    world.cut(1)
    world.run(0.2)
    one.promote()
    other.promote()
    world.run(2)
    one.publish("x")
    other.publish("y")
    world.connect = connect  # type: ignore[method-assign]
    world.run(12)
    assert one.log.epoch == other.log.epoch
    assert sorted(machine.state.value for machine in (one, other)) == ["active", "ready"]
    assert one.words == other.words


def test_a_primary_that_is_told_the_set_of_a_higher_epoch_steps_down() -> None:
    world = started()
    primary = world.machines[0]
    question = Ask(
        nonce=1, epoch=7, candidate="1-broker", version=3, members=("1-broker", "2-broker")
    )
    connection = next(iter(primary.cluster.primary.backups.values())).connection_id
    primary.cluster.on_message(connection, question)
    assert primary.state is JOINING and primary.cluster.primary is None
    assert (primary.cluster.promises.promised, primary.cluster.promises.in_sync.epoch) == (7, 7)


def test_answers_that_a_suspended_broker_reads_long_after_its_question_count_for_nothing() -> None:
    world = started(safety="trust-manager")
    candidate = world.machines[2]
    world.machines[1].paused = True
    found: list[Consultation] = []
    peers = candidate.cluster.peers
    peers.consult(found.append)
    world.settle()
    assert not found
    world.now += 60 * SECOND  # suspended; meanwhile others may have promised, and been promoted
    world.kill(1)
    world.settle()  # and now nobody listens there any more
    candidate.cluster.tick(world.now)
    (consultation,) = found
    assert consultation.answered == []
    assert [peer.name for peer in consultation.silent] == ["host0:5000"]
    assert not peers.hears_majority(consultation)
