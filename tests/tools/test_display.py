"""Tables and numbers as Qpid's tools print them."""

from __future__ import annotations

import pytest

from qpidha.model.duration import SECOND
from qpidha.tools.display import (
    Column,
    commas,
    duration,
    in_order,
    kmg,
    moment,
    print_table,
    y_or_blank,
    y_or_n,
)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "   0"),
        (7, "   7"),
        (999, " 999"),
        (1000, "1.00k"),
        (1239, "1.24k"),
        (9999, "10.00k"),
        (10_000, "10.0k"),
        (99_940, "99.9k"),
        (100_000, " 100k"),
        (999_999, " 999k"),
        (1_000_000, "1.00m"),
        (23_456_789, "23.5m"),
        (999_999_999, " 999m"),
        (1_000_000_000, "1.00g"),
        (4_567_000_000_000, "4567g"),
    ],
)
def test_numbers_have_three_digits_and_a_letter(number: int, shown: str) -> None:
    assert kmg(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (60, "1m 0s"),
        (3600, "1h 0m 0s"),
        (86400 + 61, "1d 0h 1m 1s"),
        (400 * 86400, "400d 0h 0m 0s"),
    ],
)
def test_durations_leave_out_units_that_are_not_reached(seconds: float, shown: str) -> None:
    assert duration(int(seconds * SECOND)) == shown


def test_flags_commas_and_times() -> None:
    assert [y_or_n(True), y_or_n(0), y_or_blank(1), y_or_blank(False)] == ["Y", "N", "Y", ""]
    assert commas(1234567) == "1,234,567" and commas("x") == "x"
    assert moment(86400 * SECOND) == "Fri Jan  2 00:00:00 1970"


COLUMNS = [Column("name"), Column("dur", y_or_blank), Column("msg", kmg)]


def test_a_table_has_columns_as_wide_as_needed(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Queues", COLUMNS, [("a-long-name", True, 5), ("q\x1b", False)])
    assert capsys.readouterr().out == (
        "Queues\n"
        "  name         dur  msg\n"
        "  ========================\n"
        "  a-long-name  Y       5\n"
        "  q\\x1b             \n"
    )
    print_table("Queues", COLUMNS, [])
    assert capsys.readouterr().out == "Queues\n"
    print_table("Queues", COLUMNS, [("n" * 300, True, 5)])
    assert [len(line) for line in capsys.readouterr().out.splitlines()] == [6, 312, 255, 313]


def test_rows_are_sorted_and_cut() -> None:
    rows = [("a", True, 5), ("b", False, 70), ("c", True, None), ("d", False, 6)]
    found = in_order(COLUMNS, rows, "msg", rises=False, limit=3)
    assert [row[0] for row in found] == ["b", "d", "a"]
    assert [row[0] for row in in_order(COLUMNS, rows, "msg", rises=True, limit=0)] == list("cadb")
    with pytest.raises(ValueError, match="sortCol 'x', not found in headers: name, dur, msg"):
        in_order(COLUMNS, rows, "x", rises=True, limit=0)
