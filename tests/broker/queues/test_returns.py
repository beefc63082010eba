"""Messages on their way back from consumers that are gone: some a turn, and none is overtaken."""

from __future__ import annotations

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues import returns
from qpidha.broker.queues.queue import Queue
from qpidha.model.records import Requeued
from tests.broker.parts import Taker, Tape, a_broker, a_taker, send


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> tuple[Broker, Queue, list[Taker], Tape]:
    """Five consumers that have two messages each, and one more message that nobody has."""
    monkeypatch.setattr(returns, "RETURNED_A_TURN", 3)
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *"abcdefghij")
    takers = [a_taker(queue, 2) for _ in range(5)]
    broker.dispatch(1)
    send(broker, "q", "z")
    broker.dispatch(1)
    broker.returns.turn()
    return broker, queue, takers, tape


def go(broker: Broker, queue: Queue, takers: list[Taker], *, failed: bool | None = True) -> None:
    for taker in takers:
        broker.returns.add(queue, taker.got, failed)
        queue.unsubscribe(taker)


def test_what_many_consumers_had_is_given_back_some_a_turn_and_handed_out_in_order(
    scene: tuple[Broker, Queue, list[Taker], Tape],
) -> None:
    broker, queue, takers, tape = scene
    go(broker, queue, takers)
    other = a_taker(queue, 100)
    before = 0
    turns = 0
    while broker.returns:
        records = sum(isinstance(record, Requeued) for _, record in tape.records)
        assert records - before <= 4 and not other.got and not other.searches
        before = records
        broker.dispatch(1)
        turns += 1
    assert turns == 3
    assert other.bodies == list("abcdefghijz") and other.searches == 1
    assert all(message.delivery_count == 1 for message in other.got[:-1])


def test_what_few_had_is_given_back_at_once(scene: tuple[Broker, Queue, list[Taker], Tape]) -> None:
    broker, queue, takers, _ = scene
    go(broker, queue, takers[:1], failed=None)
    assert not broker.returns and queue.acquired == 8
    assert takers[0].got[0].delivery_count == 0


def test_what_has_left_its_queue_meanwhile_is_not_given_back(
    scene: tuple[Broker, Queue, list[Taker], Tape],
) -> None:
    broker, queue, takers, _ = scene
    go(broker, queue, takers)
    queue.dequeue(takers[4].got[0])
    while broker.returns:
        broker.dispatch(1)
    assert not queue.acquired and len(queue.messages) == 10


def test_a_queue_that_is_deleted_meanwhile_is_forgotten(
    scene: tuple[Broker, Queue, list[Taker], Tape],
) -> None:
    broker, queue, takers, _ = scene
    go(broker, queue, takers)
    broker.delete_queue("q")
    while broker.returns:
        broker.dispatch(1)
    assert not broker.returns.holds(queue) and queue not in broker.runnable


def test_a_broker_that_is_primary_no_more_gives_nothing_back(
    scene: tuple[Broker, Queue, list[Taker], Tape],
) -> None:
    broker, queue, takers, _ = scene
    go(broker, queue, takers)
    broker.passive = True
    broker.abandon_walks()
    assert not broker.returns and not broker.returns.holds(queue)


def test_what_consumers_of_a_local_queue_had_is_given_back_on_a_broker_that_is_demoted(
    scene: tuple[Broker, Queue, list[Taker], Tape],
) -> None:
    broker, queue, takers, _ = scene
    local, _ = broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    send(broker, "local", *"1234")
    others = [a_taker(local, 2) for _ in range(2)]
    broker.dispatch(1)
    go(broker, queue, takers)
    go(broker, local, others)
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    while broker.returns:
        broker.dispatch(1)
    assert queue.acquired and not broker.returns.holds(queue)
    other = a_taker(local, 100)
    broker.dispatch(1)
    assert other.bodies == list("1234")


def test_who_waits_for_what_comes_back_hears_that_it_is_over_also_when_nothing_is_left(
    scene: tuple[Broker, Queue, list[Taker], Tape],
) -> None:
    broker, queue, takers, _ = scene
    go(broker, queue, takers)
    other = a_taker(queue, 1)
    broker.dispatch(1)
    assert broker.returns.holds(queue) and queue.is_searching
    for message in queue.messages_after(0, 1000):
        queue.dequeue(message)
    while broker.returns:
        broker.dispatch(1)
    broker.dispatch(1)
    assert not queue.is_searching and other.searches == 1
