"""Output: tables and JSON on standard output, talk and progress on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence

from qpidha.client.command.arguments import Options
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
