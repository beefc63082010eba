"""What a run says, from the records of its clients."""

from __future__ import annotations

from qpidha.bench.counts import delivered, longest_gap, percentile

SECOND = 1_000_000_000


def test_accepted_and_never_received_is_lost() -> None:
    found = delivered([1, 0, 2, 0, 3, 0], [1, 0, 3, 0])
    assert (found.accepted, found.received, found.lost, found.lost_ids) == (3, 2, 1, [2])


def test_what_is_still_in_the_queue_is_not_lost() -> None:
    assert delivered([1, 0, 2, 0], [1, 0], left=1).lost == 0


def test_duplicates_are_counted_and_are_no_loss() -> None:
    found = delivered([1, 0, 2, 0], [1, 0, 1, 5, 2, 0])
    assert (found.duplicates, found.lost, found.deliveries) == (1, 0, 3)


def test_received_without_an_acceptance_is_in_doubt_not_lost() -> None:
    found = delivered([1, 0], [1, 0, 2, 0])
    assert (found.in_doubt, found.lost) == (1, 0)


def test_the_gap_is_the_longest_silence_around_the_fault() -> None:
    times = [0, 5 * SECOND, 6 * SECOND, 8 * SECOND, 9 * SECOND]
    assert longest_gap(times, 6 * SECOND, 9 * SECOND) == (2.0, 8 * SECOND)


def test_a_silence_before_the_fault_does_not_count() -> None:
    assert longest_gap([0, 5 * SECOND, 6 * SECOND], int(5.5 * SECOND), 6 * SECOND) == (
        1.0,
        6 * SECOND,
    )


def test_percentiles_of_nothing_are_zero() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.99) == 4.0
