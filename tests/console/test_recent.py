"""The last items of each group, told by their numbers."""

from __future__ import annotations

from qpidha.console.recent import Recent


def test_a_reader_gets_what_came_after_the_number_that_it_has() -> None:
    recent: Recent[str] = Recent(3)
    assert (recent.last, recent.dropped, recent.after(0, 9)) == (0, 0, [])
    for group, item in (("a", "1"), ("b", "2"), ("a", "3")):
        recent.add(group, item)
    assert recent.after(0, 9) == [(1, "1"), (2, "2"), (3, "3")]
    assert recent.after(1, 9) == [(2, "2"), (3, "3")]
    assert recent.after(1, 1) == [(2, "2")]
    assert recent.after(3, 9) == recent.after(99, 9) == []


def test_many_items_of_a_group_push_none_of_another_out() -> None:
    recent: Recent[int] = Recent(3)
    assert recent.add("few", 0) == 1
    assert [recent.add("many", each) for each in range(10)] == list(range(2, 12))
    assert recent.after(0, 9) == [(1, 0), (9, 7), (10, 8), (11, 9)]
    assert (recent.last, recent.dropped) == (11, 8)
