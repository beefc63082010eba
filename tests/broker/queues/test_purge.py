"""A purge goes in steps: what each drops, what stays, and how it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qpidha.broker import broker as broker_module
from qpidha.broker.broker import Broker
from qpidha.broker.queues.purge import Purge
from qpidha.broker.queues.queue import Queue
from qpidha.model.records import Cause, Dequeued
from tests.broker.parts import Tape, a_broker, a_taker, contents, send

FOR_EVER = 1 << 60


@pytest.fixture(autouse=True)
def two_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "PURGED_A_TURN", 2)


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


def test_each_step_is_a_record_and_waits_until_the_one_before_is_committed() -> None:
    broker, queue, tape = filled()
    first, *_ = queue.messages
    purge = broker.purge("q")
    said = over(purge)
    assert contents(broker, "q") == ["c", "d", "e"] and not broker.may_purge(purge.sequence - 1)
    broker.go_on_purging(purge.sequence - 1)
    assert contents(broker, "q") == ["c", "d", "e"]
    before = purge.sequence
    assert broker.may_purge(before)
    broker.go_on_purging(before)
    assert contents(broker, "q") == ["e"] and purge.sequence > before and said == []
    broker.go_on_purging(FOR_EVER)
    assert contents(broker, "q") == [] and said == [5] and not broker.purges
    assert [record for _, record in tape.records if isinstance(record, Dequeued)] == [
        Dequeued(queue.uid, sequences, Cause.PURGED)
        for sequences in ((first, first + 1), (first + 2, first + 3), (first + 4,))
    ]


def test_what_comes_later_stays() -> None:
    broker, queue, _ = filled()
    broker.purge("q")
    send(broker, "q", "f", "g")
    while broker.purges:
        broker.go_on_purging(FOR_EVER)
    assert contents(broker, "q") == ["f", "g"]


def test_what_a_consumer_has_stays_and_one_that_is_given_back_before_the_walk_goes() -> None:
    broker, queue, _ = filled("abcdefgh")
    taker = a_taker(queue, 4)
    queue.dispatch(1)
    broker.purge("q")
    assert contents(broker, "q") == list("abcdefgh")
    queue.release(taker.got[0])
    queue.release(taker.got[3])
    while broker.purges:
        broker.go_on_purging(FOR_EVER)
    assert contents(broker, "q") == ["a", "b", "c"]


@pytest.mark.parametrize("end", [lambda broker: broker.delete_queue("q"), lambda broker: None])
def test_a_purge_of_a_queue_that_is_deleted_is_over(end: Callable[[Broker], object]) -> None:
    broker, queue, _ = filled()
    said = over(broker.purge("q"))
    send(broker, "q", "later")
    end(broker)
    while broker.purges:
        broker.go_on_purging(FOR_EVER)
    assert said == [2 if queue.deleted else 5]


def test_several_purges_share_a_turn() -> None:
    broker, queue, _ = filled()
    other, _ = broker.declare_queue("other")
    send(broker, "other", *"abcde")
    said = [over(broker.purge(name)) for name in ("q", "other", "q")]
    for left in (8, 6, 4, 2):
        assert len(queue.messages) + len(other.messages) == left
        broker.go_on_purging(FOR_EVER)
    while broker.purges:
        broker.go_on_purging(FOR_EVER)
    assert [sum(each) for each in said] == [5, 5, 0]


def test_a_queue_without_records_is_purged_in_steps_too() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *"abcde")
    said = over(broker.purge("q"))
    for left in (3, 1, 0):
        assert len(queue.messages) == left
        broker.go_on_purging(0)
    assert said == [5] and not broker.purges
