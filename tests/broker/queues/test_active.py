"""Consumers with priorities, and queues with a single active consumer."""

from __future__ import annotations

import random
from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues.dispatch import SINGLE_ACTIVE
from qpidha.broker.queues.queue import Queue
from qpidha.model.errors import PreconditionFailed
from tests.broker.parts import Taker, Tape, a_broker, a_taker, copy_of, send


def a_queue(*bodies: str, **options: Any) -> tuple[Broker, Queue]:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", arguments={SINGLE_ACTIVE: True}, **options)
    send(broker, "q", *bodies)
    return broker, queue


# Priorities.


def test_t_c1_the_consumer_of_the_highest_priority_gets_messages_while_it_has_credit() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q")
    send(broker, "q", "1", "2", "3")
    low, high = a_taker(queue, 9), a_taker(queue, 2, priority=10)
    broker.dispatch(1)
    assert (high.bodies, low.bodies) == (["1", "2"], ["3"])
    queue.dequeue(high.got[0])
    high.credit = 1
    send(broker, "q", "4", "5")
    broker.dispatch(1)
    assert (high.bodies, low.bodies) == (["1", "2", "4"], ["3", "5"])


def test_row_113_the_default_is_0_and_less_is_possible() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q")
    send(broker, "q", "1", "2")
    last, usual = a_taker(queue, 9, priority=-1), a_taker(queue, 1)
    broker.dispatch(1)
    assert (usual.bodies, last.bodies) == (["1"], ["2"])


def test_consumers_of_one_priority_take_turns_and_selective_ones_leave_messages_to_others() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *"123456")
    low = a_taker(queue, 9)
    one = a_taker(queue, 9, priority=1, wants=lambda message: message.body() < b"5")
    two = a_taker(queue, 9, priority=1, wants=lambda message: message.body() < b"5")
    broker.dispatch(1)
    assert (one.bodies, two.bodies, low.bodies) == (["1", "3"], ["2", "4"], ["5", "6"])


# A single active consumer.


def test_t_c2_one_consumer_gets_all_and_the_next_one_when_it_goes() -> None:
    broker, queue = a_queue(*"12345")
    takers = [a_taker(queue, 9) for _ in range(3)]
    broker.dispatch(1)
    assert [len(taker.got) for taker in takers] == [5, 0, 0]
    first = takers[0]
    queue.dequeue(first.got[0])
    first.credit = 0
    broker.returns.add(queue, first.got[1:], True)
    queue.unsubscribe(first)
    broker.dispatch(1)
    assert [taker.bodies for taker in takers[1:]] == [["2", "3", "4", "5"], []]
    queue.unsubscribe(takers[2])
    send(broker, "q", "6")
    broker.dispatch(1)
    assert takers[1].bodies[-1] == "6"


@pytest.mark.parametrize("end", ["dequeue", "release", "requeue", "reject"])
def test_t_c3_a_higher_priority_waits_until_all_in_flight_is_settled_or_given_back(
    end: str,
) -> None:
    broker, queue = a_queue("1", "2")
    low = a_taker(queue, 2)
    broker.dispatch(1)
    high = a_taker(queue, 9, priority=1)
    send(broker, "q", "3")
    low.credit = 9
    broker.dispatch(1)
    assert (low.bodies, high.bodies) == (["1", "2"], []) and high.active == [False]
    queue.dequeue(low.got[0])
    broker.dispatch(1)
    assert (low.bodies, high.bodies) == (["1", "2"], [])
    if end == "requeue":
        queue.requeue(low.got[1], failed=True)
    else:
        getattr(queue, end)(low.got[1])
    assert queue in broker.runnable  # without new credit of anybody
    broker.dispatch(1)
    assert high.bodies == (["3"] if end in ("dequeue", "reject") else ["2", "3"])
    assert low.bodies == ["1", "2"]
    assert (low.active, high.active) == ([True, False], [False, True])


def test_t_c3_a_higher_one_that_goes_gives_the_place_back() -> None:
    broker, queue = a_queue()
    low, high = a_taker(queue, 9), a_taker(queue, 9, priority=1)
    broker.dispatch(1)
    queue.unsubscribe(high)
    send(broker, "q", "1")
    broker.dispatch(1)
    assert low.bodies == ["1"] and low.active == [False, True]


def test_t_c3_an_equal_priority_takes_no_place() -> None:
    broker, queue = a_queue()
    first = a_taker(queue, 9, priority=1)
    broker.dispatch(1)
    second = a_taker(queue, 9, priority=1)
    send(broker, "q", "1")
    broker.dispatch(1)
    assert (first.bodies, second.bodies) == (["1"], [])


def test_t_c4_consumers_are_told_before_the_first_message_and_only_of_changes() -> None:
    broker, queue = a_queue("1")

    class Watcher(Taker):
        def deliver(self, message: Any) -> None:
            assert self.active == [True]
            super().deliver(message)

    first = Watcher(queue, 9)
    queue.subscribe(first)
    second = a_taker(queue, 9)
    for _ in range(3):
        broker.dispatch(1)
        queue.wake()
    assert (first.active, second.active) == ([True], [False])
    queue.unsubscribe(first)
    broker.dispatch(1)
    assert (first.active, second.active) == ([True], [False, True])


def test_an_active_one_with_a_selector_leaves_the_rest_to_the_next() -> None:
    broker, queue = a_queue(*"1234")
    first = a_taker(queue, 9, wants=lambda message: message.body() > b"2")
    second = a_taker(queue, 9)
    broker.dispatch(1)
    assert (first.bodies, second.bodies) == (["3", "4"], [])
    for message in list(first.got):
        queue.dequeue(message)
    queue.unsubscribe(first)
    broker.dispatch(1)
    assert second.bodies == ["1", "2"]


def test_browsers_see_messages_and_are_not_active() -> None:
    broker, queue = a_queue("1")
    browser, taker = a_taker(queue, 9, browse=True), a_taker(queue, 9)
    broker.dispatch(1)
    assert (browser.bodies, taker.bodies) == (["1"], ["1"])
    assert (browser.active, taker.active) == ([], [True])


def test_row_114_a_successor_has_the_first_that_comes() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", arguments={SINGLE_ACTIVE: True})
    send(broker, "q", "1", "2")
    a_taker(queue, 9)
    broker.dispatch(1)
    successor = copy_of(tape).queues["q"]
    successor.is_replica = False
    successor.promoted()
    one, two = a_taker(successor, 9), a_taker(successor, 9)
    successor.dispatch(1)
    assert (one.bodies, two.bodies) == (["1", "2"], [])


def test_a_rejected_message_that_cannot_be_placed_keeps_nobody_waiting() -> None:
    broker = a_broker(Tape())
    broker.declare_exchange("dead", "direct")
    queue, _ = broker.declare_queue("q", alternate="dead", arguments={SINGLE_ACTIVE: True})
    send(broker, "q", "1", "2")
    low = a_taker(queue, 1)
    broker.dispatch(1)
    high = a_taker(queue, 9, priority=1)
    broker.dispatch(1)
    queue.reject(low.got[0])
    assert queue.unplaced
    broker.dispatch(1)
    assert high.bodies == ["2"]


def test_a_message_that_is_not_due_keeps_nobody_waiting() -> None:
    broker, queue = a_queue("1", "2")
    queue.postpone(next(iter(queue.messages)), 50)
    low = a_taker(queue, 1)
    broker.dispatch(1)
    assert low.bodies == ["2"]
    high = a_taker(queue, 9, priority=1)
    broker.dispatch(1)
    queue.dequeue(low.got[0])
    broker.dispatch(1)
    assert (low.active, high.active) == ([True, False], [False, True])


def test_a_queue_with_consumers_cannot_be_given_a_single_active_one() -> None:
    _, queue = a_queue()
    broker = a_broker(Tape())
    plain, _ = broker.declare_queue("plain")
    with pytest.raises(PreconditionFailed):
        plain.reconfigure(queue.spec)


@pytest.mark.parametrize("seed", range(30))
def test_all_is_delivered_in_order_to_one_at_a_time(seed: int) -> None:
    """Who is active is the one of the highest priority, the first of these, as soon as nothing is
    in flight.
    """
    draw = random.Random(seed)
    broker, queue = a_queue()
    takers: list[Taker] = []
    active: Taker | None = None
    sent = 0
    out: dict[int, Taker] = {}
    for _ in range(150):
        step = draw.randrange(7)
        if step < 2:
            sent += 1
            send(broker, "q", str(sent))
        elif step == 2 and len(takers) < 4:
            takers.append(a_taker(queue, draw.randrange(3), priority=draw.randrange(2)))
        elif step == 3 and takers:
            draw.choice(takers).credit += draw.randrange(1, 4)
            queue.wake()
        elif step == 4 and takers and draw.random() < 0.3:
            gone = takers.pop(draw.randrange(len(takers)))
            gone.credit = 0
            mine = [queue.messages[one] for one, taker in out.items() if taker is gone]
            broker.returns.add(queue, mine, None)
            queue.unsubscribe(gone)
            out = {one: taker for one, taker in out.items() if taker is not gone}
            active = None if gone is active else active
        elif out:
            sequence = draw.choice(sorted(out))
            end = draw.choice((queue.dequeue, queue.release))
            end(queue.messages[sequence])
            del out[sequence]
        best = max(takers, key=lambda taker: taker.priority, default=None)
        waits = False
        if best is not None and (active is None or best.priority > active.priority):
            waits = active is not None and bool(out)
            active = active if waits else best
        expected: list[int] = []
        if active is not None and not waits:
            free = [one for one, message in queue.messages.items() if not message.acquired]
            expected = sorted(free)[: active.credit]
        before = {taker: len(taker.got) for taker in takers}
        broker.dispatch(1)
        for taker in takers:
            new = [message.sequence for message in taker.got[before[taker] :]]
            assert new == (expected if taker is active else []), seed
            out.update(dict.fromkeys(new, taker))
            assert not taker.active or taker.active[-1] is (taker is active)
