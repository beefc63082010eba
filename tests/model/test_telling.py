"""What is told of things that come and go."""

from __future__ import annotations

from qpidha.model.telling import MOST_REASONS, MOST_TIMES, Telling


def test_each_change_is_told_and_each_reason_once() -> None:
    telling = Telling()
    assert [telling.down(why) for why in ("a", "b", "a", "b")] == [True, True, False, False]
    assert [telling.up(), telling.up()] == [True, False]
    assert [telling.down("a"), telling.down("a"), telling.up()] == [True, False, True]


def test_what_comes_and_goes_is_told_a_few_times_and_when_it_stays() -> None:
    telling = Telling()
    told = sum(telling.up() + telling.down("it broke") for _ in range(1000))
    assert told == 2 * MOST_TIMES
    assert not telling.up() and telling.waits
    assert telling.stays() and not telling.stays() and not telling.waits
    assert telling.down("it broke") and telling.up()


def test_reasons_without_end_are_not_all_told() -> None:
    telling = Telling()
    assert sum(telling.down(str(number)) for number in range(1000)) == MOST_REASONS
