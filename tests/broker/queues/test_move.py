"""Moving messages from a queue to another one: each is on one of them at any time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.broker import Broker
from qpidha.broker.queues import deletion
from qpidha.broker.queues.move import Move, put
from qpidha.model.errors import LimitExceeded, NotFound, RefusedRequest
from qpidha.model.message_view import build, merge_annotations, message_annotations
from qpidha.model.records import Cause, Dequeued, Enqueued
from tests.broker.parts import Tape, a_broker, a_taker, contents, copy_of, picture, send


def two_queues(tape: Tape | None = None, **arguments: Any) -> Broker:
    broker = a_broker(tape)
    broker.declare_queue("source")
    broker.declare_queue("target", arguments=arguments)
    return broker


def finish(broker: Broker, move: Move) -> None:
    """Have turns, with all committed, until it is over."""
    while not move.is_over:
        broker.dispatch(0)
        broker.go_on_walking(1 << 60)


def test_messages_go_behind_what_is_there_each_in_one_batch_with_its_departure() -> None:
    tape = Tape()
    broker = two_queues(tape)
    send(broker, "source", "1", "2", "3")
    send(broker, "target", "0")
    before = len(tape.records)
    move = broker.move("source", "target")
    assert (move.is_over, move.count, move.stopped) == (True, 3, "")
    assert (contents(broker, "source"), contents(broker, "target")) == ([], ["0", "1", "2", "3"])
    records = [record for _, record in tape.records[before:]]
    assert [type(record) for record in records] == [Enqueued] * 3 + [Dequeued]
    assert isinstance(tape.last, Dequeued) and tape.last.cause == Cause.MOVED
    assert move.sequence == tape.records[-1][0]
    assert broker.queues["source"].departures["moved"] == 3
    assert picture(copy_of(tape)) == picture(broker)


def test_as_many_as_asked_for_are_moved_and_none_that_a_consumer_has() -> None:
    broker = two_queues()
    send(broker, "source", "1", "2", "3", "4", "5")
    taker = a_taker(broker.queues["source"], 2)
    broker.dispatch(0)
    assert taker.bodies == ["1", "2"]
    assert broker.move("source", "target", 2).count == 2
    assert (contents(broker, "source"), contents(broker, "target")) == (["1", "2", "5"], ["3", "4"])
    assert broker.move("source", "target").count == 1
    assert contents(broker, "source") == ["1", "2"]


def test_what_finds_no_room_stays_and_the_number_is_told() -> None:
    broker = two_queues(**{"qpid.max_count": 2})
    send(broker, "source", "1", "2", "3")
    move = broker.move("source", "target")
    assert (move.is_over, move.count) == (True, 2) and "full" in move.stopped
    assert (contents(broker, "source"), contents(broker, "target")) == (["3"], ["1", "2"])
    with pytest.raises(LimitExceeded, match="target is full"):
        broker.move("source", "target")
    assert contents(broker, "source") == ["3"]


def test_a_target_that_takes_nothing_before_it_is_down_again_makes_no_dead_letter() -> None:
    broker = two_queues(
        Tape(),
        **{
            "qpid.max_count": 4,
            "qpid.policy_type": "reject-publish-dlx",
            "qpidha.overflow-low-water": 50,
            "x-dead-letter-exchange": "/queues/dead",
        },
    )
    broker.declare_queue("dead")
    source, target = broker.queues["source"], broker.queues["target"]
    send(broker, "target", *"abcd")
    with pytest.raises(LimitExceeded):
        send(broker, "target", "e")
    a_taker(target, 1, settles=True)
    broker.dispatch(0)
    send(broker, "source", "f")
    with pytest.raises(LimitExceeded):
        broker.move("source", "target")
    with pytest.raises(LimitExceeded):
        put(source, target, next(iter(source.messages.values())), b"f", 0)
    assert len(broker.queues["dead"].messages) == 1
    a_taker(target, 1, settles=True)
    broker.dispatch(0)
    assert broker.move("source", "target").count == 1


def test_nothing_has_to_make_room_in_a_ring() -> None:
    broker = two_queues(**{"qpid.max_count": 2, "qpid.policy_type": "ring"})
    send(broker, "source", "1", "2", "3")
    move = broker.move("source", "target")
    assert move.count == 2 and move.stopped
    assert (contents(broker, "source"), contents(broker, "target")) == (["3"], ["1", "2"])


def test_a_large_message_that_does_not_fit_ends_it_in_its_place() -> None:
    broker = two_queues(**{"qpid.max_size": 10})
    send(broker, "source", "small", "much too large", "tiny")
    assert broker.move("source", "target").count == 1
    assert contents(broker, "source") == ["much too large", "tiny"]


def test_messages_are_not_moved_to_where_they_are_nor_to_nowhere() -> None:
    broker = two_queues(Tape())
    with pytest.raises(RefusedRequest, match="to that queue itself") as refusal:
        broker.move("source", "source")
    assert refusal.value.hint
    for names in (("source", "nowhere"), ("nowhere", "target")):
        with pytest.raises(NotFound):
            broker.move(*names)
    broker.passive = True
    with pytest.raises(RefusedRequest, match="on a backup"):
        broker.move("source", "target")


def test_an_empty_queue_is_moved_to_a_full_one() -> None:
    broker = two_queues(**{"qpid.max_count": 1})
    send(broker, "target", "1")
    assert broker.move("source", "target").count == 0


def test_two_moves_against_each_other_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qpidha.broker.queues.move.PASSED_ON_A_TURN", 10)
    broker = two_queues()
    send(broker, "source", *map(str, range(25)))
    send(broker, "target", *map(str, range(25, 50)))
    there, back = broker.move("source", "target"), broker.move("target", "source")
    for move in (there, back):
        finish(broker, move)
    assert (there.count, back.count) == (25, 25 + (back.count - 25))
    moved = contents(broker, "source") + contents(broker, "target")
    assert sorted(map(int, moved)) == list(range(50))


def test_many_go_some_a_turn_and_each_step_waits_for_the_one_before() -> None:
    tape = Tape()
    broker = two_queues(tape)
    count = deletion.PASSED_ON_A_TURN + 500
    send(broker, "source", *map(str, range(count)))
    told: list[int] = []
    move = broker.move("source", "target")
    move.when_over(lambda: told.append(move.count))
    assert move.count == deletion.PASSED_ON_A_TURN and not told
    broker.go_on_walking(move.sequence - 1)
    assert move.count == deletion.PASSED_ON_A_TURN
    broker.go_on_walking(move.sequence)
    assert told == [count]
    assert contents(broker, "target") == list(map(str, range(count)))
    assert picture(copy_of(tape)) == picture(broker)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 40), st.integers(1, 5))
def test_after_any_step_a_successor_has_each_message_once(
    count: int, most: int, cut: int, step: int
) -> None:
    tape = Tape()
    broker = two_queues(tape, **{"qpid.max_count": 8})
    send(broker, "source", *map(str, range(count)))
    before = len(tape.records)
    move = Move(broker.queues["source"], broker.queues["target"], most)
    bounds = [before]
    while not move.is_over:
        move.step(step)
        bounds.append(len(tape.records))
    last = max(bound for bound in bounds if bound <= before + cut)  # A batch is whole or not there.
    cut_off = Tape()
    cut_off.records = tape.records[:last]
    successor = copy_of(cut_off)
    everything = contents(successor, "target") + contents(successor, "source")
    assert everything == list(map(str, range(count)))
    assert move.count == min(count, most or count, 8)


def test_what_was_written_on_a_message_goes_with_it() -> None:
    broker = two_queues()
    payload = build("x", annotations={"x-opt-old": 1})
    broker.publish("", "source", payload, headers=dict)
    queue = broker.queues["source"]
    (message,) = queue.messages.values()
    queue.requeue(message, True, merge_annotations(payload, b"", {"x-opt-died": 2}))
    assert broker.move("source", "target").count == 1
    (moved,) = broker.queues["target"].messages.values()
    assert message_annotations(moved.body()) == {"x-opt-old": 1, "x-opt-died": 2}
    assert (moved.delivery_count, moved.annotations) == (0, b"")


def test_a_message_that_was_there_before_is_not_there_twice() -> None:
    broker = two_queues(**{"qpidha.dedup": "message-id"})
    payload = build("x", properties={"message_id": "m"})
    for queue in ("source", "target"):
        broker.publish("", queue, payload, headers=dict)
    assert broker.move("source", "target").count == 1
    assert (len(broker.queues["source"].messages), len(broker.queues["target"].messages)) == (0, 1)


def test_a_message_that_its_target_had_and_has_no_longer_is_not_lost() -> None:
    tape = Tape()
    broker = two_queues(tape, **{"qpidha.dedup": "message-id"})
    payload = build("x", properties={"message_id": "m"})
    for name in ("source", "target"):
        broker.publish("", name, payload, headers=dict)
    target = broker.queues["target"]
    target.drop(list(target.messages.values()))
    assert broker.move("source", "target").count == 1
    assert len(target.messages) == 1
    broker.publish("", "target", payload, headers=dict)
    assert len(target.messages) == 1 and target.deduplicated == 1
    assert picture(copy_of(tape)) == picture(broker)


def test_what_the_filter_of_its_target_does_not_select_ends_it_in_its_place() -> None:
    broker = two_queues(**{"qpid.filter": "n < 2"})
    for n in (1, 2, 1):
        payload = build(n, application_properties={"n": n})
        broker.publish("", "source", payload, headers=dict)
    move = broker.move("source", "target")
    assert move.count == 1 and "does not select" in move.stopped
    assert len(broker.queues["source"].messages) == 2
    assert broker.queues["target"].left_out == 0


def test_a_target_that_is_deleted_meanwhile_ends_it() -> None:
    broker = two_queues()
    send(broker, "source", *map(str, range(deletion.PASSED_ON_A_TURN + 1)))
    move = broker.move("source", "target")
    broker.delete_queue("target")
    finish(broker, move)
    assert "deleted" in move.stopped and len(broker.queues["source"].messages) == 1


def test_a_queue_that_ends_empty_ends_when_all_has_gone() -> None:
    broker = a_broker()
    broker.declare_queue("source", arguments={"qpid.lifetime-policy": "delete-if-empty"})
    broker.declare_queue("target")
    send(broker, "source", "1")
    broker.move("source", "target")
    assert "source" not in broker.queues and contents(broker, "target") == ["1"]
