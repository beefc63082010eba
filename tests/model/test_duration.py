"""Durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model.duration import MILLISECOND, SECOND, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("2", 2 * SECOND),
        ("0.1", SECOND // 10),
        (".5", SECOND // 2),
        ("250ms", 250 * MILLISECOND),
        ("1.5ms", 1_500_000),
        ("10us", 10_000),
        ("7ns", 7),
        ("3s", 3 * SECOND),
        ("2m", 120 * SECOND),
        ("0", 0),
    ],
)
def test_a_duration_is_read_to_the_nanosecond(text, nanoseconds):
    assert parse_duration(text) == nanoseconds


def test_a_bare_number_counts_in_the_unit_of_its_option():
    assert parse_duration("10000", MILLISECOND) == 10 * SECOND
    assert parse_duration("3s", MILLISECOND) == 3 * SECOND


@pytest.mark.parametrize("text", ["", "s", "-1", "1 s", "2parsecs", "1e3", "nan", "1.2.3", "٣"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError):
        parse_duration(text)


@given(st.integers(0, 10**18))
def test_a_written_duration_reads_back(nanoseconds):
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds
