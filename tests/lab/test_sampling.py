"""The checks of the samplers see what they are there for."""

from __future__ import annotations

from dataclasses import replace

from tests.lab.sampling import Sample, overlapping, promotions

A = Sample("ha1", 1.0, 1.1, "active", 1, "a", (1, 3, ("a", "b", "c")))
B = Sample("ha2", 1.0, 1.1, "ready", 1, "b", (1, 3, ("a", "b", "c")))


def at(sample: Sample, time: float, **change: object) -> Sample:
    return replace(sample, asked=time, answered=time + 0.1, **change)  # type: ignore[arg-type]


def test_brokers_that_were_active_at_the_same_time_are_found() -> None:
    samples = [
        A,
        at(A, 2),
        at(B, 2.2, state="active", epoch=2),
        at(A, 3),
        at(B, 3.2, state="active", epoch=2),
    ]
    assert [(one.name, other.name) for one, other in overlapping(samples)] == [("ha1", "ha2")]


def test_a_broker_that_took_over_after_the_other_was_active_is_none_of_them() -> None:
    assert (
        overlapping(
            [
                A,
                at(A, 2),
                at(A, 2.5, state="joining"),
                at(B, 2.6, state="active", epoch=2),
                at(B, 3, state="active", epoch=2),
            ]
        )
        == []
    )


def test_a_promoted_broker_that_was_dropped_from_the_newest_set_is_found() -> None:
    dropped = at(A, 2, in_sync=(1, 4, ("a", "c")))
    (found,) = promotions([A, B, dropped, at(B, 3, state="recovering", epoch=2)])
    assert (found.name, found.epoch, found.before, found.was_in_sync) == ("ha2", 2, "ready", False)


def test_a_promoted_member_of_the_newest_set_was_in_sync() -> None:
    (found,) = promotions(
        [A, B, at(B, 3, state="recovering", epoch=2), at(B, 3.2, state="active", epoch=2)]
    )
    assert found.was_in_sync
