"""How long things took on a broker, and how logins ended."""

from __future__ import annotations

import pytest

from qpidha.management.measures import BOUNDS, MOST_BATCHES, CommitTimes, Histogram, Measures
from qpidha.model.errors import LimitExceeded, NotAllowed, NotServing, QpidHaError, Unauthorized
from qpidha.model.events import HandshakeFailed, LogWritten, Stalled
from tests.amqp.builders import a_node

MS = 1_000_000


def filled(histogram: Histogram) -> dict[float, int]:
    """Return the buckets in which something is: upper end, or 0 for above all, and the number."""
    said = histogram.report()
    ends = [*said["bounds"], 0.0]
    return {end: n for end, n in zip(ends, said["counts"], strict=True) if n}


def test_a_histogram_has_what_is_at_most_its_bound() -> None:
    times = Histogram()
    for time, number in ((0, 1), (BOUNDS[1], 2), (BOUNDS[1] + 1, 3), (60_000 * MS, 1)):
        times.add(time, number)
    assert filled(times) == {0.0005: 1, 0.001: 2, 0.0025: 3, 0.0: 1}
    assert times.report()["sum"] == pytest.approx(60 + 0.005, abs=1e-6)


def test_records_wait_from_their_turn_until_they_are_answered() -> None:
    waits = CommitTimes()
    waits.begin(100)
    waits.turn(103, 100, 1000 * MS)
    waits.turn(104, 100, 1001 * MS)
    waits.turn(104, 103, 1004 * MS)
    assert filled(waits.times) == {0.005: 3}
    waits.turn(104, 104, 1041 * MS)
    assert filled(waits.times) == {0.005: 3, 0.05: 1}
    waits.turn(104, 104, 2000 * MS)
    assert filled(waits.times) == {0.005: 3, 0.05: 1}


def test_what_a_former_primary_never_answered_is_not_counted() -> None:
    waits = CommitTimes()
    waits.turn(10, 0, 0)
    waits.begin(7)
    waits.turn(9, 9, 0)
    assert filled(waits.times) == {0.0005: 2}


def test_what_waits_for_long_takes_no_more_memory_and_is_counted_all_the_same() -> None:
    waits = CommitTimes()
    for turn in range(1, MOST_BATCHES + 500):
        waits.turn(turn, 0, 0)
    waits.turn(MOST_BATCHES + 500, MOST_BATCHES + 500, MS)
    assert filled(waits.times) == {0.001: MOST_BATCHES + 500}


def test_the_longest_wait_is_told_once() -> None:
    waits = CommitTimes()
    waits.begin(0)
    waits.turn(5, 0, 10 * MS)
    waits.turn(6, 0, 12 * MS)
    waits.turn(6, 6, 13 * MS)
    assert (waits.take_longest(), waits.take_longest()) == (3 * MS, 0)
    waits.turn(7, 0, 20 * MS)
    waits.turn(7, 7, 25 * MS)
    waits.begin(7)
    assert waits.take_longest() == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (LimitExceeded("too many"), "limit"),
        (NotServing("another broker"), "not_primary"),
        (Unauthorized("no"), "not_allowed"),
        (NotAllowed("no"), "not_allowed"),
    ],
)
def test_who_is_not_let_in_is_counted_by_the_reason(error: QpidHaError, reason: str) -> None:
    measures = Measures()
    measures.not_admitted(error)
    refused = measures.report()["logins_refused"]
    assert {name for name, number in refused.items() if number} == {reason}
    assert set(refused) == {"credentials", "certificate", "limit", "not_primary", "not_allowed"}


def test_a_promotion_has_parts_and_a_handover_only_the_last() -> None:
    measures = Measures()
    measures.primary_lost(1000 * MS)
    measures.asked(1500 * MS, is_following=False)
    measures.promoted(1700 * MS, is_handover=False)
    measures.active(2700 * MS)
    parts = {"wait": 0.5, "promote": 0.2, "recover": 1.0}
    assert measures.report()["promotion_seconds"] == parts
    measures.asked(3000 * MS, is_following=True)  # refused: the primary is there
    measures.promoted(4000 * MS, is_handover=True)
    measures.active(4100 * MS)
    assert measures.report()["promotion_seconds"] == {"recover": 0.1}
    assert measures.report()["promotions"] == 2


def test_a_node_counts_what_it_hears_of_the_world() -> None:
    node = a_node()
    node.step([LogWritten(1, 3 * MS), LogWritten(2), Stalled(250 * MS)], 1)
    node.step([HandshakeFailed("10.0.0.1", "no", by_certificate=True)], 2)
    said = node.measures.report()
    assert filled(node.measures.syncs) == {0.005: 1} and said["stall_seconds"] == 0.25
    assert said["logins_refused"]["certificate"] == 1
