"""Tables as Qpid's tools print them, and the forms of what stands in them.

A table has a title, heads, a line of `=`, and rows whose columns are as wide as needed; without
rows it is only a title. What scripts cut out of it stands where it stood. Knows no broker.
Source: the module disp of qpidtoollibs, which Qpid has beside its tools.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from qpidha.model.duration import SECOND
from qpidha.model.printable import printable

PREFIX, SPACING = "  ", 2
WIDEST = 255
"""Characters of the line below the heads."""


def y_or_n(value: Any) -> str:
    """Show a flag."""
    return "Y" if value else "N"


def y_or_blank(value: Any) -> str:
    """Show a flag of which most are not set."""
    return "Y" if value else ""


def commas(value: Any) -> str:
    """Show a number with commas between its thousands."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def kmg(value: int) -> str:
    """Show a number in four places, or by three digits and the letter of a unit."""
    if value < 1000:
        return f"{value:4d}"
    unit = "k"
    for unit in "kmg":
        if value < 1_000_000:
            break
        if unit != "g":
            value //= 1000
    thousands = value / 1000
    if thousands < 10:
        return f"{thousands:.2f}{unit}"
    return f"{thousands:.1f}{unit}" if thousands < 100 else f"{value // 1000:4d}{unit}"


def duration(value: int) -> str:
    """Show nanoseconds as days, hours, minutes and seconds."""
    seconds = max(value, 0) // SECOND
    shown = ""
    for letter, size, wraps in (("d", 86400, 1 << 62), ("h", 3600, 24), ("m", 60, 60)):
        if seconds >= size:
            shown += f"{seconds // size % wraps}{letter} "
    return f"{shown}{seconds % 60}s"


def moment(value: int) -> str:
    """Show a time in ns since 1970, of the clock of Greenwich."""
    return time.strftime("%c", time.gmtime(value // SECOND))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    head: str
    shown: Callable[[Any], str] = str
    """How a value is shown; None is shown as nothing."""


def print_table(title: str, columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; a row may end before its last columns, or go on behind them."""
    print(title)
    lines = [
        [
            "" if value is None else printable(column.shown(value))
            for column, value in zip(columns, (*row, *[None] * len(columns)), strict=False)
        ]
        for row in rows
    ]
    if not lines:
        return
    heads = [column.head for column in columns]
    widths = [max(map(len, cells)) + SPACING for cells in zip(heads, *lines, strict=True)]
    for line in (heads, ["=" * width for width in widths], *lines):
        *padded, last = line
        text = "".join(map(str.ljust, padded, widths))
        print(f"{PREFIX}{text}{last}"[: WIDEST if last.startswith("==") else None])


def in_order(
    columns: Sequence[Column], rows: Sequence[Sequence[Any]], head: str, *, rises: bool, limit: int
) -> list[Sequence[Any]]:
    """Sort rows by the column of that head, and leave out those behind the limit; 0 is none.
    Raises ValueError if there is no such column.
    """
    heads = [column.head for column in columns]
    if head not in heads:
        raise ValueError(f"sortCol '{head}', not found in headers: {', '.join(heads)}")
    at = heads.index(head)

    def place(row: Sequence[Any]) -> tuple[bool, float, str]:
        value = row[at]
        if isinstance(value, int | float):
            return (True, value, "")
        return (value is not None, 0, str(value or ""))

    found = sorted(rows, key=place, reverse=not rises)
    return found[:limit] if limit > 0 else found
