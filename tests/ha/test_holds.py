"""Holds: released in order, once, and not before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qpidha.ha.holds import Holds


class Waiter:
    def __init__(self) -> None:
        self.released_items: list[object] = []

    def released(self, item: object) -> None:
        self.released_items.append(item)


def test_a_hold_on_what_is_safe_is_released_at_once() -> None:
    holds, waiter = Holds(), Waiter()
    holds.release(5)
    holds.add(5, waiter, "a")
    assert waiter.released_items == ["a"]


def test_a_consumed_message_is_released_early_and_only_once() -> None:
    holds, waiter = Holds(), Waiter()
    for sequence in (1, 2, 3):
        holds.add(sequence, waiter, sequence)
    holds.release_consumed([2])
    assert waiter.released_items == [2]
    holds.release(3)
    assert waiter.released_items == [2, 1, 3]
    assert len(holds) == 0


def test_holds_of_consumed_messages_are_released_in_whatever_order_those_went() -> None:
    holds, waiter = Holds(), Waiter()
    for sequence in (2, 3, 3, 5, 6):
        holds.add(sequence, waiter, str(sequence))
    holds.release_consumed([5, 6, 4, 3, 9, 2, 1])
    assert waiter.released_items == ["5", "6", "3", "2"]
    holds.release(9)
    assert waiter.released_items == ["5", "6", "3", "2", "3"]


def test_cleared_holds_are_never_released() -> None:
    holds, waiter = Holds(), Waiter()
    holds.add(1, waiter, "a")
    holds.clear(0)
    holds.release(9)
    assert waiter.released_items == []


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 50))))
def test_nothing_is_released_before_its_sequence_is_safe_and_all_of_it_after(steps: list[tuple[bool, int]]) -> None:
    holds, waiter = Holds(), Waiter()
    safe = 0
    waiting: list[int] = []
    for is_add, number in steps:
        if is_add:
            waiting.append(number)
            holds.add(number, waiter, number)
        elif number > safe:
            safe = number
            holds.release(safe)
        assert all(item <= safe for item in waiter.released_items)  # type: ignore[operator]
    holds.release(1000)
    assert sorted(waiter.released_items) == sorted(waiting)  # type: ignore[type-var]
