"""Who gets which message: turns, and consumers that do not take everything."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues import dispatch as dispatch_module
from qpidha.broker.queues.dispatch import (
    MAX_REFUSALS,
    REFUSALS,
    SINGLE_ACTIVE,
    Refusals,
    RoundRobin,
)
from qpidha.broker.queues.queue import Queue
from qpidha.model.message import Message
from qpidha.model.records import Cause, Dequeued
from tests.broker.parts import Taker, Tape, a_broker, a_taker, send


def a_queue(*bodies: str) -> Queue:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *bodies)
    return queue


def is_odd(message: Message) -> bool:
    return int(message.body()) % 2 == 1


def test_a_selective_consumer_gets_what_it_accepts_and_others_the_rest() -> None:
    queue = a_queue(*"123456")
    odd = a_taker(queue, 2, wants=is_odd)
    queue.dispatch(1)
    assert odd.bodies == ["1", "3"]
    all_ = a_taker(queue, 9)
    queue.dispatch(1)
    assert all_.bodies == ["2", "4", "5", "6"]


def test_what_no_taker_accepts_stays_first_for_the_next_one() -> None:
    queue = a_queue(*"2143")
    odd = a_taker(queue, 9, wants=is_odd)
    queue.dispatch(1)
    assert odd.bodies == ["1", "3"]
    queue.release(odd.got[0])
    all_ = a_taker(queue, 9)
    odd.credit = 0
    queue.dispatch(1)
    assert all_.bodies == ["2", "1", "4"]


def test_selective_consumers_take_turns() -> None:
    queue = a_queue(*"11111")
    first, second = a_taker(queue, 9, wants=is_odd), a_taker(queue, 9)
    queue.dispatch(1)
    assert (len(first.got), len(second.got)) == (3, 2)


def test_a_consumer_that_settles_at_once_may_be_selective() -> None:
    queue = a_queue(*"12345")
    odd = a_taker(queue, 9, wants=is_odd, settles=True)
    queue.dispatch(1)
    assert odd.bodies == ["1", "3", "5"] and len(queue.messages) == 2


def test_an_expired_message_that_is_found_twice_is_recorded_once() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    send(broker, "q", "1", "2", "3")
    first, over, last = queue.messages.values()
    over.expires = 5

    class GivesBack(Taker):
        """Releases the first message when it gets the last one."""

        def deliver(self, message: Message) -> None:
            super().deliver(message)
            if message is last:
                queue.release(first)

    taker = GivesBack(queue, credit=9)
    queue.subscribe(taker)
    queue.dispatch(9)
    assert taker.bodies == ["1", "3", "1"]
    assert [record for _, record in tape.records if isinstance(record, Dequeued)] == [
        Dequeued(queue.uid, (over.sequence,), Cause.EXPIRED)
    ]
    assert queue.expired == 1


def test_refusals_of_messages_that_have_left_are_forgotten() -> None:
    refusals, messages = Refusals(), {7: Message(7, b"")}
    for sequence in range(3 * REFUSALS):
        refusals.add(sequence, messages)
    assert 7 in refusals and len(refusals) < 2 * REFUSALS


def test_refusals_of_messages_that_stay_have_a_bound() -> None:
    refusals, messages = Refusals(), dict.fromkeys(range(2 * MAX_REFUSALS), Message(7, b""))
    taken = 0
    while refusals.add(taken, messages):
        taken += 1
    assert taken == MAX_REFUSALS


@pytest.mark.parametrize("wants", [None, lambda message: True], ids=["plain", "selective"])
def test_expired_messages_that_a_dispatch_meets_go_some_a_turn(
    wants: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_module, "EXPIRED_A_TURN", 2)
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    old = send(broker, "q", *"abcde", expires=5)
    send(broker, "q", "new")
    taker = a_taker(queue, 9, wants=wants)
    for left in (4, 2):
        broker.dispatch(10)
        assert len(queue.messages) == left and taker.got == [] and queue in broker.runnable
        assert queue.is_searching and not taker.searches
    broker.dispatch(10)
    assert taker.bodies == ["new"] and not broker.runnable
    assert not queue.is_searching and taker.searches == 1
    assert [record for _, record in tape.records if isinstance(record, Dequeued)] == [
        Dequeued(queue.uid, tuple(gone), Cause.EXPIRED) for gone in (old[:2], old[2:4], old[4:])
    ]


def test_expired_messages_that_a_browser_meets_are_passed_over_some_a_turn_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A million of them were gone through for each browser at each dispatch."""
    monkeypatch.setattr(dispatch_module, "EXPIRED_A_TURN", 2)
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q")
    old = send(broker, "q", *"abcde", expires=5)
    send(broker, "q", "new")
    browser = a_taker(queue, 9, browse=True)
    for seen in (old[1], old[3]):
        broker.dispatch(10)
        assert seen_by(browser) == seen and queue in broker.runnable and not browser.searches
    broker.dispatch(10)
    assert browser.bodies == ["new"] and not broker.runnable and browser.searches == 1
    assert len(queue.messages) == 6


def seen_by(browser: Taker) -> int:
    """Up to where a browser was shown a queue without priorities."""
    assert browser.queue is not None
    dispatcher = browser.queue.dispatcher
    assert isinstance(dispatcher, RoundRobin)
    (place,) = dispatcher.seen[browser]
    return place


def a_browsed_queue(monkeypatch: pytest.MonkeyPatch) -> tuple[Broker, Queue, Taker, Taker]:
    """A queue whose eight messages one consumer has, and a browser without credit."""
    monkeypatch.setattr(dispatch_module, "ACQUIRED_A_TURN", 3)
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *"abcdefgh")
    taker = a_taker(queue, 8)
    broker.dispatch(1)
    assert taker.bodies == list("abcdefgh") and not broker.runnable
    return broker, queue, taker, a_taker(queue, 9, browse=True)


def test_messages_that_others_have_are_passed_over_some_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A million of them were gone through for each browser at each dispatch."""
    broker, queue, taker, browser = a_browsed_queue(monkeypatch)
    for _ in range(2):
        broker.dispatch(1)
        assert queue.is_searching and seen_by(browser) == 0
    broker.dispatch(1)
    assert not queue.is_searching and not broker.runnable and browser.searches == 1
    queue.release(taker.got[4])
    for _ in range(2):
        broker.dispatch(1)
    assert browser.bodies == ["e"] and seen_by(browser) == taker.got[4].sequence


def test_what_is_given_back_behind_the_look_of_a_browser_is_shown_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, queue, taker, browser = a_browsed_queue(monkeypatch)
    broker.dispatch(1)
    broker.dispatch(1)
    queue.release(taker.got[0])
    while broker.runnable:
        broker.dispatch(1)
    assert browser.bodies == ["a"]


def test_what_is_given_back_during_the_look_of_a_browser_comes_before_what_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, queue, taker, browser = a_browsed_queue(monkeypatch)
    send(broker, "q", "z")
    broker.dispatch(1)
    for message in taker.got:
        queue.release(message)
    while broker.runnable:
        broker.dispatch(1)
    assert browser.bodies == list("abcdefghz")


def test_a_browser_comes_to_the_end_though_messages_are_given_back_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, queue, taker, browser = a_browsed_queue(monkeypatch)
    send(broker, "q", "z")
    for _ in range(10):
        queue.release(taker.got[0])
        taker.got[0].acquired = True  # somebody takes it again
        queue.acquired += 1
        broker.dispatch(1)
    assert browser.bodies == ["z"]


def test_a_browser_that_goes_in_the_middle_of_its_look_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, queue, _, browser = a_browsed_queue(monkeypatch)
    broker.dispatch(1)
    queue.unsubscribe(browser)
    while broker.runnable:
        broker.dispatch(1)
    assert not queue.is_searching and not queue.dispatcher._looks


class Compared(Taker):
    """A consumer that counts how often it is compared with others."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)


def test_performance_8_a_consumer_that_leaves_is_not_compared_with_others() -> None:
    queue = a_queue("1", "2", "3")
    first, *others = takers = [Compared(queue, credit=1) for _ in range(4000)]
    for taker in takers:
        queue.subscribe(taker)
    Compared.comparisons = 0
    for taker in takers[2000:]:
        queue.unsubscribe(taker)
        queue.unsubscribe(taker)
    assert Compared.comparisons < 4000 and list(queue.consumers) == takers[:2000]
    queue.dispatch(1)
    assert [taker.bodies for taker in (first, *others[:3])] == [["1"], ["2"], ["3"], []]
    for taker in takers[:3]:
        queue.unsubscribe(taker)
    assert list(queue.consumers) == takers[3:2000]


class Counted(Taker):
    """Counts how often it is asked for its credit."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "credit":
            Counted.asked += 1
        return super().__getattribute__(name)


@pytest.mark.parametrize("is_single", [False, True])
def test_a_message_costs_the_same_with_ten_consumers_and_with_thousands(is_single: bool) -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q", arguments={SINGLE_ACTIVE: is_single})
    takers = [Counted(queue, credit=5) for _ in range(3000)]
    for taker in takers:
        queue.subscribe(taker)
    broker.dispatch(1)
    Counted.asked = 0
    for number in range(10):
        send(broker, "q", str(number))
        broker.dispatch(1)
    assert Counted.asked < 100
    assert [len(taker.got) for taker in takers[:10]] == ([5, *[0] * 9] if is_single else [1] * 10)
    taken = takers[:1] if is_single else takers[:10]
    for taker in taken:
        taker.credit = 0
    for number in range(10, 12):
        send(broker, "q", str(number))
    broker.dispatch(1)
    assert [len(taker.got) for taker in takers[10:13]] == ([0] * 3 if is_single else [1, 1, 0])


def test_one_that_went_and_one_without_credit_are_passed_over_once() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q")
    takers = [a_taker(queue, credit=1) for _ in range(4)]
    queue.unsubscribe(takers[1])
    again = a_taker(queue, credit=1)
    send(broker, "q", "1", "2", "3", "4")
    queue.dispatch(1)
    assert [taker.bodies for taker in (*takers, again)] == [["1"], [], ["2"], ["3"], ["4"]]
    send(broker, "q", "5", "6")
    takers[3].credit = 1
    takers[0].credit = 1
    queue.dispatch(1)
    assert (takers[3].bodies, takers[0].bodies) == (["3", "5"], ["1", "6"])


def test_credit_for_a_queue_without_messages_dispatches_nothing() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q")
    taker = a_taker(queue)
    broker.dispatch(1)
    taker.credit = 3
    assert not broker.runnable
    send(broker, "q", "1")
    broker.dispatch(1)
    assert taker.bodies == ["1"]
