"""What is done to a whole queue goes in steps, a purge and an expiry: what each drops, what stays,
and how it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from qpidha.broker import broker as broker_module
from qpidha.broker.broker import Broker
from qpidha.broker.queues.purge import Purge
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.walk import Walk
from qpidha.model.message import Message
from qpidha.model.records import Cause, Dequeued
from tests.broker.parts import Tape, a_broker, a_taker, contents, send

FOR_EVER = 1 << 60


@pytest.fixture(autouse=True)
def two_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "WALKED_A_TURN", 2)


def filled(bodies: str = "abcde") -> tuple[Broker, Queue, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *bodies)
    return broker, queue, tape


def over(purge: Purge) -> list[int]:
    """Where it is written that a purge is over, and how many messages it has dropped then."""
    said: list[int] = []
    purge.when_over(lambda: said.append(purge.count))
    return said


class Endless(Walk):
    """Takes all the time that a turn has."""

    looks = 0

    def take(self, found: list[Message]) -> int:
        raise NotImplementedError

    def step(self, most: int) -> int:
        return most

    def __getattribute__(self, name: str) -> Any:
        if name in ("is_over", "__class__"):
            Endless.looks += 1
        return super().__getattribute__(name)


def test_a_turn_looks_only_at_the_walks_that_it_comes_to() -> None:
    broker, queue, _ = filled()
    broker.walks = [Endless(queue) for _ in range(1000)]
    Endless.looks = 0
    assert broker.may_walk(0)
    broker.go_on_walking(0)
    broker.trim(queue)
    broker.trim(queue)
    assert Endless.looks < 10 and len(broker.walks) == 1001


def test_first_use_d6_each_step_is_a_record_and_waits_until_the_one_before_is_committed() -> None:
    broker, queue, tape = filled()
    first, *_ = queue.messages
    purge = broker.purge("q")
    said = over(purge)
    assert contents(broker, "q") == ["c", "d", "e"] and not broker.may_walk(purge.sequence - 1)
    broker.go_on_walking(purge.sequence - 1)
    assert contents(broker, "q") == ["c", "d", "e"]
    before = purge.sequence
    assert broker.may_walk(before)
    broker.go_on_walking(before)
    assert contents(broker, "q") == ["e"] and purge.sequence > before and said == []
    broker.go_on_walking(FOR_EVER)
    assert contents(broker, "q") == [] and said == [5] and not broker.walks
    assert [record for _, record in tape.records if isinstance(record, Dequeued)] == [
        Dequeued(queue.uid, sequences, Cause.PURGED)
        for sequences in ((first, first + 1), (first + 2, first + 3), (first + 4,))
    ]


def test_what_comes_later_stays() -> None:
    broker, queue, _ = filled()
    broker.purge("q")
    send(broker, "q", "f", "g")
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert contents(broker, "q") == ["f", "g"]


def test_what_a_consumer_has_stays_and_one_that_is_given_back_before_the_walk_goes() -> None:
    broker, queue, _ = filled("abcdefgh")
    taker = a_taker(queue, 4)
    queue.dispatch(1)
    broker.purge("q")
    assert contents(broker, "q") == list("abcdefgh")
    queue.release(taker.got[0])
    queue.release(taker.got[3])
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert contents(broker, "q") == ["a", "b", "c"]


@pytest.mark.parametrize("end", [lambda broker: broker.delete_queue("q"), lambda broker: None])
def test_a_purge_of_a_queue_that_is_deleted_is_over(end: Callable[[Broker], object]) -> None:
    broker, queue, _ = filled()
    said = over(broker.purge("q"))
    send(broker, "q", "later")
    end(broker)
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert said == [2 if queue.deleted else 5]


def test_several_purges_share_a_turn() -> None:
    broker, queue, _ = filled()
    other, _ = broker.declare_queue("other")
    send(broker, "other", *"abcde")
    said = [over(broker.purge(name)) for name in ("q", "other", "q")]
    for left in (8, 6, 4, 2):
        assert len(queue.messages) + len(other.messages) == left
        broker.go_on_walking(FOR_EVER)
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert [sum(each) for each in said] == [5, 5, 0]


def test_many_purges_of_one_turn_do_no_more_at_once_than_one() -> None:
    broker = a_broker()
    for name in "abcd":
        broker.declare_queue(name)
        send(broker, name, "1")
        broker.purge(name)
    assert [len(broker.queues[name].messages) for name in "abcd"] == [0, 0, 1, 1]
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert not any(queue.messages for queue in broker.queues.values())


def test_a_queue_without_records_is_purged_in_steps_too() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *"abcde")
    said = over(broker.purge("q"))
    for left in (3, 1, 0):
        assert len(queue.messages) == left
        broker.go_on_walking(0)
    assert said == [5] and not broker.walks


def searched(broker: Broker) -> None:
    """Begin to decide, and so to search for what has expired by now, which is 10."""
    broker.promoted(10)


def expired(tape: Tape) -> list[tuple[int, ...]]:
    """What left because its time was over, by records."""
    return [
        tuple(record.sequences)
        for _, record in tape.records
        if isinstance(record, Dequeued) and record.cause == Cause.EXPIRED
    ]


def test_performance_4_expired_messages_go_in_steps_and_each_is_a_record() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q")
    first = send(broker, "q", "a", expires=5)
    send(broker, "q", "b")
    rest = send(broker, "q", "c", "d", "e", expires=5)
    searched(broker)
    assert contents(broker, "q") == list("abcde")
    broker.go_on_walking(FOR_EVER)
    assert contents(broker, "q") == list("bcde") and broker.may_walk(len(tape.records))
    broker.go_on_walking(len(tape.records) - 1)
    assert contents(broker, "q") == list("bcde")
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert contents(broker, "q") == ["b"]
    assert expired(tape) == [(first[0],), tuple(rest[:2]), tuple(rest[2:])]


def test_a_queue_is_searched_again_while_something_on_it_may_expire() -> None:
    broker, queue, _ = filled("")
    send(broker, "q", "old", expires=5)
    send(broker, "q", "later", expires=FOR_EVER)
    searched(broker)
    a_taker(queue, 1)
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert contents(broker, "q") == ["later"] and queue.may_expire
    broker.purge("q")
    searched(broker)
    send(broker, "q", "newer", expires=FOR_EVER)
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert queue.may_expire
    broker.purge("q")
    searched(broker)
    broker.go_on_walking(FOR_EVER)
    assert not queue.may_expire
    searched(broker)
    assert not broker.walks


def test_many_queues_with_little_to_find_share_turns() -> None:
    broker = a_broker(Tape())
    for number in range(5):
        broker.declare_queue(f"q{number}")
        send(broker, f"q{number}", "x", expires=5)
        broker.queues[f"q{number}"].messages.clear()
    searched(broker)
    for left in (3, 1, 0):
        broker.go_on_walking(FOR_EVER)
        assert sum(queue.may_expire for queue in broker.queues.values()) == left
    assert not broker.walks


def test_a_search_is_one_walk_however_many_queues_there_are() -> None:
    broker = a_broker(Tape())
    for number in range(20):
        broker.declare_queue(f"q{number}")
        send(broker, f"q{number}", "x", expires=5)
    searched(broker)
    assert len(broker.walks) == 1
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert not any(queue.messages for queue in broker.queues.values())


def test_a_queue_whose_deletion_comes_to_nothing_is_searched_again() -> None:
    broker, _, _ = filled("")
    queue, _ = broker.declare_queue("r", alternate="amq.fanout")
    send(broker, "r", *"abc", expires=FOR_EVER)
    searched(broker)
    queue.retire()  # It is being deleted.
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    queue.revive()
    assert queue.may_expire
