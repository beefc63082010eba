"""The order of a queue's messages, against the plainest description of it there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import booleans, data, integers, lists, sampled_from

from qpidha.broker.queues.messages import Messages
from qpidha.broker.queues.ordering import SLACK, Fifo
from qpidha.model.message import Message


def filled(*sequences: int) -> tuple[Messages, Fifo]:
    messages = Messages()
    fifo = Fifo(messages)
    for sequence in sequences:
        messages[sequence] = Message(sequence, b"")
        fifo.add(sequence)
    return messages, fifo


def numbers(found: Iterator[Message]) -> list[int]:
    return [message.sequence for message in found]


def test_a_message_that_is_given_back_while_others_are_taken_comes_again_in_its_place() -> None:
    _, fifo = filled(1, 2, 3)
    seen = []
    for message in iter(fifo.take, None):
        seen.append(message.sequence)
        if seen == [1, 2]:
            fifo.restore(message)
    assert seen == [1, 2, 2, 3]


def test_what_comes_out_of_turn_is_before_those_that_were_passed() -> None:
    messages, fifo = filled(5, 6)
    assert numbers(iter(fifo.take, None)) == [5, 6]
    for message in messages.values():
        message.acquired = True
    fifo.out_of_turn()
    messages[2] = Message(2, b"")
    fifo.add(2)
    assert fifo.last == 6
    fifo.tidy()
    assert numbers(iter(fifo.take, None)) == [2]
    assert numbers(fifo.after(0)) == [2, 5, 6]
    assert fifo.last == 6


def test_the_oldest_is_found_without_passing_over_what_has_left_each_time() -> None:
    messages, fifo = filled(*range(1, SLACK))
    for sequence in range(1, SLACK - 1):
        del messages[sequence]
    assert next(fifo.waiting()).sequence == SLACK - 1
    assert fifo._head == SLACK - 2


def test_what_has_left_at_the_front_is_cut_off_before_it_is_the_greater_part() -> None:
    messages, fifo = filled(*range(1, 10 * SLACK))
    taken = [fifo.take() for _ in range(2 * SLACK)]
    for message in taken[:-1]:
        assert message is not None
        del messages[message.sequence]
    fifo.tidy()
    assert len(fifo) == len(messages)
    following = fifo.take()
    assert following is not None and following.sequence == 2 * SLACK + 1
    assert taken[-1] is not None
    fifo.restore(taken[-1])
    restored = fifo.take()
    assert restored is taken[-1]


class Counted(Messages):
    """Messages, and how often one was looked for."""

    looks = 0

    def gone(self, order: Sequence[int], start: int) -> int:
        found = super().gone(order, start)
        self.looks += found - start + 1
        return found

    def get(self, key: int, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


def test_what_leaves_from_the_front_some_at_a_time_is_looked_at_once() -> None:
    messages = Counted()
    fifo = Fifo(messages)
    count = 64 * SLACK
    for sequence in range(1, count + 1):
        messages[sequence] = Message(sequence, b"")
        fifo.add(sequence)
    for first in range(1, count, 50):
        for sequence in range(first, first + 50):
            del messages[sequence]
        fifo.tidy()
        assert fifo.lowest() == (first + 50 if first + 50 <= count else 0)
    # Once when it is found to have left, and once for each time that a step ends before it.
    assert messages.looks < 2 * count
    fifo.out_of_turn()
    messages[7] = Message(7, b"")
    fifo.add(7)
    assert fifo.lowest() == 7


def test_the_oldest_is_given_back_and_taken_again_without_a_look_at_all_that_consumers_have() -> (
    None
):
    messages = Counted()
    messages.update((sequence, Message(sequence, b"")) for sequence in range(1, 1001))
    fifo = Fifo(messages)
    fifo.add_run(list(messages))
    for message in iter(fifo.take, None):
        message.acquired = True
    messages.looks = 0
    for turn in range(100):
        oldest = messages[1 + turn % 3]
        oldest.acquired = False
        fifo.restore(oldest)
        fifo.tidy()
        assert list(fifo.waiting()) == [oldest]
        assert fifo.take() is oldest
        oldest.acquired = True
        assert fifo.take() is None
    assert messages.looks < 1000


def test_messages_that_nobody_may_have_are_not_passed_over_each_time() -> None:
    messages = Counted()
    messages.update((sequence, Message(sequence, b"")) for sequence in range(1, 1001))
    fifo = Fifo(messages)
    fifo.add_run(list(messages))
    for message in messages.values():
        message.acquired = True
    for _ in range(10):
        assert not list(fifo.waiting())
    assert messages.looks < 2000
    messages[5].acquired = False
    fifo.restore(messages[5])
    assert list(fifo.waiting()) == [messages[5]] and fifo.take() is messages[5]


def test_the_oldest_that_were_given_back_are_found_without_sorting_all_of_them() -> None:
    messages, fifo = filled(*range(1, 1001))
    taken = list(iter(fifo.take, None))
    for message in reversed(taken):
        fifo.restore(message)
    assert numbers(islice(fifo.waiting(), 5)) == [1, 2, 3, 4, 5]
    for sequence in (1, 2, 4):
        del messages[sequence]
    assert numbers(fifo.waiting()) == [3, *range(5, 1001)]
    assert numbers(iter(fifo.take, None)) == [3, *range(5, 1001)]


def test_what_is_given_back_again_and_again_without_being_taken_is_there_once() -> None:
    messages, fifo = filled(1, 2, 3)
    assert fifo.take() is messages[1]
    for _ in range(10 * SLACK):  # A consumer with a selector has it in between.
        messages[1].acquired = False
        fifo.restore(messages[1])
        fifo.tidy()
        messages[1].acquired = True
    messages[1].acquired = False
    assert numbers(fifo.waiting()) == [1, 2, 3]
    assert len(fifo._back) <= 2 * SLACK
    assert numbers(iter(fifo.take, None)) == [1, 2, 3]


class OrderingMachine(RuleBasedStateMachine):
    """Whatever happens on a backup and then on a primary, the lowest available message is next."""

    def __init__(self) -> None:
        super().__init__()
        self.messages, self.fifo = filled()
        self.highest = 0
        self.passed: set[int] = set()
        """Given by `take`, not acquired and not restored: nobody is to see them."""

    def put(self, sequence: int) -> None:
        self.messages[sequence] = Message(sequence, b"")
        self.fifo.add(sequence)
        self.highest = max(self.highest, sequence)

    @rule(more=integers(1, 3))
    def add(self, more: int) -> None:
        self.put(self.highest + more)

    @rule(more=lists(integers(1, 3), min_size=1, max_size=4))
    def add_run(self, more: list[int]) -> None:
        run = [self.highest + sum(more[: index + 1]) for index in range(len(more))]
        self.messages.update((sequence, Message(sequence, b"")) for sequence in run)
        self.fifo.add_run(run)
        self.highest = run[-1]

    @rule(sequence=integers(1, 60))
    def add_out_of_turn(self, sequence: int) -> None:
        if sequence not in self.messages and sequence not in self.fifo._order:
            self.fifo.out_of_turn()
            self.put(sequence)

    @precondition(lambda self: self.messages)
    @rule(chosen=data())
    def leave(self, chosen: object) -> None:
        sequence = chosen.draw(sampled_from(sorted(self.messages)))  # type: ignore[attr-defined]
        del self.messages[sequence]

    @rule(count=integers(1, 5), acquires=booleans(), at_once=booleans())
    def take(self, count: int, acquires: bool, at_once: bool) -> None:
        self.fifo.tidy()
        expected = sorted(
            sequence for sequence, message in self.messages.items() if not message.acquired
        )[:count]
        taken = []
        for message in iter(self.fifo.take, None):
            taken.append(message)
            if len(taken) == count:
                break
        assert [message.sequence for message in taken] == expected
        if acquires:
            for message in taken:
                message.acquired = True
        elif at_once:
            self.fifo.restore_run(taken)
        else:
            for message in taken:
                self.fifo.restore(message)

    @precondition(lambda self: not all(message.acquired for message in self.messages.values()))
    @rule(chosen=data())
    def select(self, chosen: object) -> None:
        available = [message for message in self.messages.values() if not message.acquired]
        chosen.draw(sampled_from(available)).acquired = True  # type: ignore[attr-defined]

    @precondition(lambda self: any(message.acquired for message in self.messages.values()))
    @rule(chosen=data())
    def release(self, chosen: object) -> None:
        acquired = [message for message in self.messages.values() if message.acquired]
        message = chosen.draw(sampled_from(acquired))  # type: ignore[attr-defined]
        message.acquired = False
        self.fifo.tidy()
        self.fifo.restore(message)

    @rule()
    def promote(self) -> None:
        for message in self.messages.values():
            message.acquired = False
        self.fifo.restart()

    @invariant()
    def last_is_at_least_the_highest_present(self) -> None:
        assert self.fifo.last >= max(self.messages, default=0)

    @rule(cursor=integers(0, 70))
    def look(self, cursor: int) -> None:
        present = sorted(self.messages)
        assert numbers(self.fifo.after(cursor)) == [one for one in present if one > cursor]
        assert self.fifo.lowest() == min(present, default=0)
        assert numbers(self.fifo.waiting()) == [
            one for one in present if not self.messages[one].acquired
        ]


OrderingMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestOrdering = OrderingMachine.TestCase
