"""Output: tables and JSON on standard output, talk and progress on standard error."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure
from qpidha.model.exit_codes import USAGE
from qpidha.model.printable import printable, printable_lines

EPILOG = "Common options (-b, -o, --timeout, --user, ...) and exit codes: qpid-ha help"
"""Last line of a command's help."""


def print_json(value: object) -> None:
    """Write one JSON document."""
    print(json.dumps(value))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table with columns as wide as needed; without heads if there are none."""
    lines = [*([list(heads)] if heads else ()), *[[_cell(value) for value in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """How a list is written: what it is called in JSON, and its columns, which are fields of its
    rows.
    """

    name: str
    columns: tuple[str, ...]
    wide: tuple[str, ...] = ()
    """More columns, for -o wide."""
    key: str = "name"
    """The field that -o name shows; empty for what has no name."""
    cells: Mapping[str, Callable[[Mapping[str, Any]], object]] = field(default_factory=dict)
    """Column -> what the table shows of a row in it, if not the value itself."""
    heads: Mapping[str, str] = field(default_factory=dict)
    """Column -> what stands above it, if not its name."""
    about: tuple[str, ...] = ()
    """Fields of its JSON document beside the rows, in the order of `print_list`."""


def print_list(
    options: Options, listing: Listing, rows: Sequence[Mapping[str, Any]], *about: object
) -> None:
    """Write a list in the form that was asked for, sorted by the field that was asked for."""
    rows = _sorted(options, listing, rows)
    if options.as_json:
        head = dict(zip(listing.about, about, strict=True))
        print_json({"schema_version": 1, **head, listing.name: rows})
    elif options.output == "jsonl":
        for row in rows:
            print_json(row)
    elif options.output == "name":
        if not listing.key:
            raise Failure(USAGE, "-o name is for what has a name", hint="-o csv or -o jsonl")
        for row in rows:
            print(printable(str(row[listing.key])))
    elif options.output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if not options.no_headers:
            writer.writerow(listing.columns)
        for row in rows:
            writer.writerow([_field(row.get(column)) for column in listing.columns])
    else:
        columns = (*listing.columns, *(listing.wide if options.output == "wide" else ()))
        table = [[_shown(listing, column, row) for column in columns] for row in rows]
        heads = [listing.heads.get(column, column.upper()) for column in columns]
        print_table(() if options.no_headers else heads, table)


def _shown(listing: Listing, column: str, row: Mapping[str, Any]) -> object:
    cell = listing.cells.get(column)
    value = row.get(column) if cell is None else cell(row)
    return json.dumps(value) if isinstance(value, dict | list) else value


def ago(seconds: object) -> str:
    """Say how long ago something was, in a unit that one reads."""
    if not isinstance(seconds, float):
        return "-"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size:,.0f}{unit} ago"
    return f"{seconds:.0f}s ago"


def _sorted(
    options: Options, listing: Listing, rows: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    column = options.sort.removeprefix("-")
    if not column or not rows:
        return rows
    known = dict.fromkeys((*listing.columns, *listing.wide, *rows[0]))
    if column not in known:
        near = get_close_matches(column, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"--sort with one of {', '.join(known)}"
        raise Failure(USAGE, f"--sort {column}: there is no such column", hint=hint)
    return sorted(rows, key=lambda row: _order(row.get(column)), reverse=options.sort[0] == "-")


def _order(value: object) -> tuple[int, float, str]:
    """Where a value stands: nothing, numbers, texts."""
    if value is None:
        return (0, 0, "")
    return (1, value, "") if isinstance(value, int | float) else (2, 0, str(value).lower())


def _field(value: object) -> object:
    """A value in CSV: as JSON has it, but for text; nothing is empty."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def talk(options: Options, text: str) -> None:
    """Tell the operator something that is not data."""
    if not options.quiet:
        print(printable_lines(text), file=sys.stderr)


class Progress:
    """One line that is rewritten on a terminal, and nothing elsewhere."""

    __slots__ = ("_enabled", "_shown", "stream")

    def __init__(self, options: Options) -> None:
        self.stream = sys.stderr
        self._enabled = (
            self.stream.isatty() and os.environ.get("TERM") != "dumb" and not options.quiet
        )
        self._shown = 0

    @property
    def enabled(self) -> bool:
        """Whether anybody sees it."""
        return self._enabled

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._enabled:
            columns = _columns()
            cut = text[: columns - 1]
            self.stream.write("\r" + cut.ljust(self._shown))
            self.stream.flush()
            self._shown = len(cut)

    def clear(self) -> None:
        """Remove the line, so that something else can be printed."""
        if self._enabled and self._shown:
            self.stream.write("\r" + " " * self._shown + "\r")
            self.stream.flush()
            self._shown = 0


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:
        return 80


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
