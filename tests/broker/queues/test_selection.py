"""Consumers with selectors: each gets the first available message that it selects, and what was
looked at is not looked at again. Row 121.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.broker.broker import SEARCHES_A_TURN, Broker
from qpidha.broker.queues import selection
from qpidha.broker.queues.ordering import Fifo
from qpidha.broker.queues.priority import Priority
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.selection import SLACK
from qpidha.model.message import Message
from qpidha.model.message_view import build, header
from qpidha.model.records import Cause
from tests.broker.parts import Taker, Tape, a_broker, a_taker, send


@dataclass(eq=False)
class Counting:
    """A selector of messages with these letters, which counts what it looks at."""

    letters: str
    looks: int = 0

    def __call__(self, message: Message) -> bool:
        self.looks += 1
        # What was delivered twice in vain is selected no more.
        return message.body().decode() in self.letters and message.delivery_count < 2


@dataclass(eq=False)
class Strict(Taker):
    """A consumer that sees to it that it gets the first message that it may have."""

    log: list[Message] = field(default_factory=list)

    def deliver(self, message: Message) -> None:
        assert self.queue is not None
        wanted = [
            other
            for other in self.queue.messages.values()
            if other is message
            or not (other.acquired or other.sequence in self.refused)
            and (self.wants is None or self.wants(other))
        ]
        assert wanted[0] is message
        super().deliver(message)
        self.log.append(message)


def a_queue(*bodies: str) -> tuple[Broker, Queue]:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *bodies)
    return broker, queue


def run(broker: Broker) -> int:
    """Dispatch until there is nothing more to do; return in how many turns."""
    turns = 0
    while broker.runnable:
        broker.dispatch(1)
        turns += 1
        assert turns < 10_000
    return turns


def test_a_message_that_does_not_match_is_looked_at_once() -> None:
    broker, queue = a_queue(*"a" * 500)
    wants = Counting("b")
    taker = a_taker(queue, 9, wants=wants)
    run(broker)
    assert (wants.looks, taker.got) == (500, [])
    for _ in range(3):
        send(broker, "q", "a")
        run(broker)
    assert wants.looks == 503
    taker.credit = 20
    queue.wake()
    run(broker)
    assert wants.looks == 503
    send(broker, "q", "b")
    run(broker)
    assert taker.bodies == ["b"] and wants.looks == 504


def test_consumers_with_the_same_selector_look_once_and_take_turns() -> None:
    broker, queue = a_queue(*"ab" * 20)
    wants = Counting("b")
    takers = [a_taker(queue, 9, wants=wants) for _ in range(3)]
    run(broker)
    assert [len(taker.got) for taker in takers] == [7, 7, 6]
    assert wants.looks == 40


def test_a_search_goes_on_over_turns_and_the_drain_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selection, "LOOKED_A_TURN", 20)
    broker, queue = a_queue(*"a" * 100, "b")
    taker = a_taker(queue, 9, wants=Counting("b"))
    broker.dispatch(1)
    assert queue.is_searching and queue in broker.runnable and not taker.searches
    assert 3 < run(broker) < 20
    assert taker.bodies == ["b"] and taker.searches == 1 and not queue.is_searching


def test_others_are_served_while_one_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LOOKED_A_TURN", 20)
    monkeypatch.setattr(selection, "SMALLEST_SHARE", 5)
    broker, queue = a_queue(*"a" * 100)
    searching = a_taker(queue, 9, wants=Counting("b"))
    plain, other = a_taker(queue, 5), a_taker(queue, 5, wants=Counting("a"))
    broker.dispatch(1)
    assert len(plain.got) == 5 and len(other.got) >= 2 and not searching.got
    run(broker)
    assert len(other.got) == 5


def test_many_selectors_have_their_turns_and_come_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LOOKED_A_TURN", 20)
    monkeypatch.setattr(selection, "SMALLEST_SHARE", 5)
    letters = "bcdefghijklmnopqrstuvwxyz"
    broker, queue = a_queue(*"a" * 30, *letters)
    takers = [a_taker(queue, 9, wants=Counting(letter)) for letter in letters]
    run(broker)
    assert [taker.bodies for taker in takers] == [[letter] for letter in letters]
    send(broker, "q", "a", "z")
    run(broker)
    assert takers[-1].bodies == ["z", "z"]


def test_what_was_given_back_is_looked_at_again() -> None:
    broker, queue = a_queue(*"abab")
    wants = Counting("b")
    taker = a_taker(queue, 9, wants=wants)
    run(broker)
    for message in taker.got[:]:
        queue.requeue(message, failed=True)
    run(broker)
    assert taker.bodies == list("bbbb")
    first, second = taker.got[2:]
    queue.requeue(first, failed=True)
    queue.release(second)
    run(broker)
    # The first one is selected no more: it was delivered twice in vain.
    assert taker.got[4:] == [second]


def test_what_another_consumer_gave_back_is_found() -> None:
    broker, queue = a_queue(*"ab")
    plain = a_taker(queue, 2)
    run(broker)
    taker = a_taker(queue, 9, wants=Counting("b"))
    run(broker)
    assert not taker.got
    for message in plain.got:
        queue.release(message)
    run(broker)
    assert taker.bodies == ["b"]


def test_what_is_given_back_without_an_end_is_not_remembered_without_an_end() -> None:
    broker, queue = a_queue(*"ab")
    plain = a_taker(queue, 1)
    taker = a_taker(queue, 0, wants=Counting("b"))
    for _ in range(2 * SLACK + 20):
        run(broker)
        queue.release(plain.got.pop())
        plain.credit = 1
    assert len(queue.dispatcher.views._returned) <= SLACK + 3
    taker.credit = 9
    run(broker)
    assert taker.bodies == ["b"]


def test_refused_messages_go_to_another_with_the_same_selector() -> None:
    broker, queue = a_queue(*"abb")
    wants = Counting("b")
    one = a_taker(queue, 9, wants=wants)
    run(broker)
    queue.requeue(one.got[0], failed=False, not_to=one)
    run(broker)
    assert one.bodies == ["b", "b"]
    other = a_taker(queue, 9, wants=wants)
    run(broker)
    assert other.got == [one.got[0]]


def test_a_selector_that_nobody_has_any_more_is_forgotten() -> None:
    broker, queue = a_queue(*"ab")
    taker = a_taker(queue, 9, wants=Counting("b"))
    run(broker)
    queue.release(taker.got[0])
    queue.unsubscribe(taker)
    assert not queue.dispatcher.views
    broker.delete_queue("q")
    assert not queue.dispatcher.views


def test_a_purge_of_what_was_found() -> None:
    broker, queue = a_queue(*"abab")
    taker = a_taker(queue, 1, wants=Counting("b"))
    run(broker)
    queue.release(taker.got[0])
    queue.drop(list(queue.messages.values()), Cause.PURGED)
    taker.credit = 9
    send(broker, "q", *"ab")
    run(broker)
    assert taker.bodies == ["b", "b"] and len(queue.messages) == 2


def test_a_browser_with_a_selector_sees_what_it_selects_some_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qpidha.broker.queues.dispatch.LOOKED_A_TURN", 10)
    broker, queue = a_queue(*"a" * 50, *"bab")
    wants = Counting("b")
    browser = a_taker(queue, 9, wants=wants, browse=True)
    broker.dispatch(1)
    assert queue.is_searching and not browser.got
    run(broker)
    assert browser.bodies == ["b", "b"] and wants.looks == 53 and len(queue.messages) == 53
    send(broker, "q", "b")
    run(broker)
    assert browser.bodies == ["b", "b", "b"] and wants.looks == 54


DO = st.one_of(
    st.tuples(st.just("send"), st.sampled_from("abc")),
    st.tuples(st.just("credit"), st.integers(0, 3)),
    st.tuples(st.sampled_from(("accept", "release", "fail", "refuse")), st.integers(0, 20)),
    st.tuples(st.sampled_from(("turn", "leave", "join", "purge")), st.integers(0, 3)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(DO, max_size=60), st.sampled_from((2, 7, 1000)))
def test_row_121_each_gets_the_first_message_that_it_selects(
    steps: list[tuple[str, object]], budget: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "LOOKED_A_TURN", budget)
        patch.setattr(selection, "SMALLEST_SHARE", 2)
        play(steps)


def play(steps: list[tuple[str, object]]) -> None:
    broker, queue = a_queue()
    shared = Counting("ab")
    kinds = (None, Counting("a"), shared, shared)
    takers = [Strict(queue, wants=wants) for wants in kinds]
    for taker in takers:
        queue.subscribe(taker)
    for name, what in steps:
        taker = takers[what % 4] if isinstance(what, int) else takers[0]
        if name == "send":
            send(broker, "q", str(what))
        elif name == "credit":
            taker.credit = 2
            queue.wake()
        elif name == "turn":
            broker.dispatch(1)
        elif name == "purge":
            queue.drop([one for one in queue.messages.values() if not one.acquired][:3])
        elif name == "leave":
            for message in taker.log:
                queue.release(message)
            taker.log.clear()
            queue.unsubscribe(taker)
        elif name == "join":
            if taker not in queue.consumers:
                queue.subscribe(taker)
        elif taker.log:
            assert isinstance(what, int)
            message = taker.log.pop(what % len(taker.log))
            if name == "accept":
                queue.dequeue(message)
            elif name == "release":
                queue.release(message)
            else:
                queue.requeue(message, name == "fail", not_to=taker if name == "refuse" else None)
    run(broker)
    available = [one for one in queue.messages.values() if not one.acquired]
    for taker in queue.consumers:
        if taker.credit:
            assert not [
                one
                for one in available
                if taker.accepts(one) and (taker.selector is None or taker.selector.selects(one))
            ]
    assert queue.acquired == sum(len(taker.log) for taker in takers)


class ByLetter(Fifo):
    """An ordering that is not that of the sequences, for those who select."""

    is_by_sequence = False

    def place(self, message: Message) -> int:
        return message.body()[0] << 64 | message.sequence


@pytest.mark.parametrize("budget", [3, 1000])
def test_where_sequences_are_not_the_order_all_is_looked_at_before_the_first(
    budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "LOOKED_A_TURN", budget)
    broker, queue = a_queue()
    queue.ordering = ByLetter(queue.messages)
    send(broker, "q", *"cxbxaxcx")
    wants = Counting("abc")
    taker = a_taker(queue, 2, wants=wants)
    run(broker)
    assert taker.bodies == ["a", "b"]
    queue.release(taker.got[1])
    send(broker, "q", "a")
    taker.credit = 9
    run(broker)
    assert taker.bodies[2:] == ["a", "b", "c", "c"] and wants.looks <= 13


def test_selected_messages_of_a_queue_with_priorities_come_by_priority() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", arguments={"qpid.priorities": 10})
    for priority in (3, 9, 1, 9, 0):
        queue.enqueue(build(b"a", header={"priority": priority}))
    taker = a_taker(queue, 3, wants=lambda message: header(message.body()).get("priority", 4) != 3)
    run(broker)
    queue.release(taker.got[2])
    taker.credit = 2
    run(broker)
    got = [header(message.body()).get("priority", 0) for message in taker.got]
    assert got == [9, 9, 1, 1, 0] and len(queue.messages) - queue.acquired == 1


def test_a_browser_with_a_selector_has_no_view() -> None:
    broker, queue = a_queue(*"ab")
    browser = a_taker(queue, 9, wants=Counting("b"), browse=True)
    run(broker)
    assert browser.bodies == ["b"] and not queue.dispatcher.views
    queue.unsubscribe(browser)


def test_browsers_with_selectors_share_what_a_turn_may_spend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qpidha.broker.queues.dispatch.LOOKED_A_TURN", 10)
    broker, queue = a_queue(*"x" * 30, "a")
    wants = [Counting("a") for _ in range(3)]
    browsers = [a_taker(queue, 1, wants=each, browse=True) for each in wants]
    for turn in range(1, 10):
        broker.dispatch(1)
        assert sum(each.looks for each in wants) <= 11 * turn
    assert min(each.looks for each in wants) > 15, "one after the other"
    run(broker)
    assert [browser.bodies for browser in browsers] == [["a"]] * 3


def test_only_some_queues_go_on_in_one_turn_where_each_takes_as_long_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selection, "LOOKED_A_TURN", 10)
    broker = a_broker(Tape())
    wants = []
    for number in range(5):
        queue, _ = broker.declare_queue(f"q{number}")
        send(broker, queue.name, *"x" * 40, "a")
        wants.append(Counting("a"))
        a_taker(queue, 1, wants=wants[-1])
    broker.dispatch(1)
    spent = sum(each.looks for each in wants)
    for _ in range(5):
        broker.dispatch(1)
        now = sum(each.looks for each in wants)
        assert 0 < now - spent <= 11 * SEARCHES_A_TURN
        spent = now
    assert min(each.looks for each in wants) > 20, "all have their turns"
    run(broker)
    assert all(each.looks == 41 for each in wants)


@dataclass(frozen=True)
class Compared:
    """A selector that counts how often it is compared with others."""

    number: int
    cost: int = 1
    seen: ClassVar[list[int]] = []

    def __eq__(self, other: object) -> bool:
        self.seen.append(self.number)
        return isinstance(other, Compared) and self.number == other.number

    def __hash__(self) -> int:
        return hash(self.number)

    def selects(self, message: Message) -> bool:
        return False


@dataclass(eq=False)
class Selective(Taker):
    """A consumer with such a selector."""

    given: Compared | None = None
    is_selective = True

    @property
    def selector(self) -> Compared | None:
        return self.given


def test_consumers_with_many_selectors_are_not_compared_with_each_other() -> None:
    broker, queue = a_queue("x")
    for number in range(200):
        queue.subscribe(Selective(queue, 1, given=Compared(number)))
    Compared.seen.clear()
    run(broker)
    assert len(Compared.seen) < 200 * 10


def test_the_levels_of_a_queue_are_put_together_once_for_all_that_is_selected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", arguments={"qpid.priorities": 10})
    for number in range(100):
        queue.enqueue(build(b"a", header={"priority": number % 10}))
    calls = []
    walk = Priority.after
    monkeypatch.setattr(
        Priority, "after", lambda order, cursor: calls.append(cursor) or walk(order, cursor)
    )
    taker = a_taker(queue, 100, wants=lambda message: True)
    run(broker)
    assert len(taker.got) == 100 and len(calls) < 10
