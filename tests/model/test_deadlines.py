"""Deadlines, held against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qpidha.model.deadlines import SPARE, Deadlines

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 30)),
        st.tuples(st.just("remove"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("due"), st.just(0), st.integers(0, 30)),
    ),
    max_size=200,
)


@given(STEPS)
def test_they_are_what_a_dictionary_says(steps: list[tuple[str, int, int]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    plain: dict[int, int] = {}
    for what, key, at in steps:
        if what == "set":
            deadlines.set(key, at)
            plain[key] = at
        elif what == "remove":
            deadlines.remove(key)
            plain.pop(key, None)
        else:
            due = {one for one, when in plain.items() if 0 < when <= at}
            found = deadlines.due(at)
            assert sorted(found, key=plain.__getitem__) == found
            assert set(found) == due and len(found) == len(due)
            plain = {one: when for one, when in plain.items() if one not in due}
        plain = {one: when for one, when in plain.items() if when}
        assert deadlines.first == min(plain.values(), default=0)
        assert set(deadlines) == set(plain) and len(deadlines) == len(plain)


def test_what_is_moved_all_the_time_does_not_pile_up() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at in range(1, 10_000):
        deadlines.set("x", at)
    assert len(deadlines._heap) <= SPARE + 3
    assert deadlines.due(9_999) == ["x"]


def test_keys_of_one_time_are_due_as_they_were_set_and_need_no_order() -> None:
    deadlines: Deadlines[object] = Deadlines()
    keys = [object(), "x", 3, None]
    for key in keys:
        deadlines.set(key, 5)
    assert deadlines.due(4) == [] and deadlines.due(5) == keys and deadlines.first == 0


class Time(int):
    """A time that counts how often times are compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Time.compared += 1
        return int(self) < int(other)


def test_performance_4_the_first_is_known_without_a_look_at_all_others() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(10_000):
        deadlines.set(key, Time(key + 2))
    Time.compared = 0
    for key in range(100):
        deadlines.set(10_000 + key, Time(1))
        assert deadlines.first == 1
        deadlines.remove(10_000 + key)
    assert Time.compared < 10_000


def test_of_many_that_are_due_some_are_taken_and_the_others_stay_due() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(5):
        deadlines.set(key, 1)
    assert [deadlines.due(2, 2) for _ in range(4)] == [[0, 1], [2, 3], [4], []]
