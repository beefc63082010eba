"""Output: tables and JSON on standard output, talk and progress on standard error."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
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
    """Write a table with columns as wide as needed."""
    lines = [list(heads), *[[_cell(value) for value in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def print_rows(
    options: Options, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], key: str = "name"
) -> None:
    """Write a list in one of its own forms: jsonl has all fields of a row, csv those columns, name
    only the field `key`, which is empty for what has no name.
    """
    if options.output == "jsonl":
        for row in rows:
            print_json(row)
    elif options.output == "name":
        if not key:
            raise Failure(USAGE, "-o name is for what has a name", hint="-o csv or -o jsonl")
        for row in rows:
            print(printable(str(row[key])))
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_field(row.get(column)) for column in columns])


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
