"""Pending acknowledgements: answered in order, once, and not before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qpidha.ha.pending import PendingAcknowledgements


class Waiter:
    def __init__(self) -> None:
        self.answered: list[object] = []

    def on_committed(self, item: object) -> None:
        self.answered.append(item)


def test_what_is_committed_is_answered_at_once() -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    pending.release(5)
    pending.add(5, waiter, "a")
    assert waiter.answered == ["a"]


def test_a_consumed_message_is_answered_early_and_only_once() -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    for sequence in (1, 2, 3):
        pending.add(sequence, waiter, sequence)
    pending.release_consumed([2])
    assert waiter.answered == [2]
    pending.release(3)
    assert waiter.answered == [2, 1, 3]
    assert len(pending) == 0


def test_consumed_messages_are_answered_in_whatever_order_they_went() -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    for sequence in (2, 3, 3, 5, 6):
        pending.add(sequence, waiter, str(sequence))
    pending.release_consumed([5, 6, 4, 3, 9, 2, 1])
    assert waiter.answered == ["5", "6", "3", "2"]
    pending.release(9)
    assert waiter.answered == ["5", "6", "3", "2", "3"]


def test_somebody_waits_between_two_numbers_while_there_is_no_answer() -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    for sequence in (2, 4, 6, 6, 8):
        pending.add(sequence, waiter, str(sequence))
    assert pending.waits_between(0, 3) and not pending.waits_between(0, 2)
    assert not pending.waits_between(2, 4) and pending.waits_between(3, 5)
    pending.release_consumed([4, 6])
    assert pending.waits_between(3, 7) and not pending.waits_between(3, 6), "one of two waits"
    pending.release(6)
    assert not pending.waits_between(6, 8) and pending.waits_between(6, 9)
    pending.release_consumed([8])
    pending.add(9, waiter, "9")
    assert not pending.waits_between(8, 9) and pending.waits_between(8, 10)
    pending.clear(9)
    pending.add(10, waiter, "10")
    assert pending.waits_between(9, 11)
    pending.release(10)
    assert not pending.waits_between(10, 99)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8))))
def test_who_waits_between_two_numbers_is_known_whatever_came_and_went(
    steps: list[tuple[int, int]],
) -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    last = low = 0
    for what, number in steps:
        if what == 0:
            last += number
            pending.add(last, waiter, last)
        elif what == 1:
            pending.release_consumed([max(last - number, 1)])
        else:
            low = min(max(low, last - number), last)
            pending.release(min(low, number))
        there = [
            sequence
            for sequence, one in zip(
                pending._sequences[pending._head :], pending._waiters[pending._head :], strict=True
            )
            if one is not None
        ]
        for end in (low + 1, low + number, last + 1):
            assert pending.waits_between(low, end) is any(low < each < end for each in there)


def test_cleared_entries_are_never_answered() -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    pending.add(1, waiter, "a")
    pending.clear(0)
    pending.release(9)
    assert waiter.answered == []


def test_what_comes_after_a_clear_gets_its_own_answer() -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    pending.add(1, waiter, "a")
    pending.clear(0)
    pending.add(2, waiter, "b")
    pending.release(2)
    assert waiter.answered == ["b"]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50))))
def test_nothing_is_answered_before_its_sequence_is_committed_and_all_of_it_after(
    steps: list[tuple[bool, int]],
) -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    committed = 0
    waiting: list[int] = []
    for is_add, number in steps:
        if is_add:
            waiting.append(number)
            pending.add(number, waiter, number)
        elif number > committed:
            committed = number
            pending.release(committed)
        assert all(item <= committed for item in waiter.answered)  # type: ignore[operator]
    pending.release(1000)
    assert sorted(waiter.answered) == sorted(waiting)  # type: ignore[type-var]


def test_what_is_asked_for_behind_a_sequence_is_known() -> None:
    pending, waiter = PendingAcknowledgements(), Waiter()
    assert not pending.waits_beyond(0)
    pending.add(3, waiter, "a")
    assert pending.waits_beyond(2) and not pending.waits_beyond(3)
    pending.release(3)
    assert not pending.waits_beyond(2)
