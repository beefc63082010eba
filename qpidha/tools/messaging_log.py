"""What Qpid's messaging programs log: connections that are made, lost and not made, and warnings.

Lines look like those of Qpid, of the category Messaging, and go to standard error unless an option
says otherwise.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from qpidha.model.options import LEVELS
from qpidha.model.printable import printable
from qpidha.tools.connection_options import ToolError

CATEGORY = "Messaging"
DEFAULT = "notice+"


@dataclass(frozen=True, slots=True)
class LogRule:
    """`LEVEL[+|-][:pattern]`: these lines, whose category has the pattern."""

    level: str
    reach: str
    pattern: str

    @staticmethod
    def read(text: str) -> LogRule:
        """Read a rule. Raises ToolError for what is none."""
        level, _, pattern = text.partition(":")
        reach = level[-1:] if level[-1:] in ("+", "-") else ""
        level = level.removesuffix(reach)
        if level not in LEVELS:
            raise ToolError(
                "InvalidOption",
                f"{text!r} is no rule of a log. Try: LEVEL[+|-][:pattern] with a level of "
                + ", ".join(LEVELS),
            )
        return LogRule(level, reach, pattern)

    def holds(self, level: str) -> bool:
        """Whether lines of this level are meant."""
        here, there = LEVELS.index(level), LEVELS.index(self.level)
        reaches = here == there or (here > there if self.reach == "+" else here < there)
        return (reaches if self.reach else here == there) and self.pattern in CATEGORY


class Log:
    """Where lines go, and which."""

    def __init__(
        self,
        *,
        enabled: list[str],
        disabled: list[str],
        to_stderr: bool = True,
        to_stdout: bool = False,
        to_file: str = "",
        time: bool = True,
        level: bool = True,
        category: bool = True,
        prefix: str = "",
    ) -> None:
        self._enabled = [LogRule.read(each) for each in enabled or [DEFAULT]]
        self._disabled = [LogRule.read(each) for each in disabled]
        self._time, self._level, self._category = time, level, category
        self._prefix = prefix
        self._sinks: list[IO[str]] = []
        if to_stderr:
            self._sinks.append(sys.stderr)
        if to_stdout:
            self._sinks.append(sys.stdout)
        if to_file:
            file = Path(to_file).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115
            self._sinks.append(file)

    def write(self, level: str, text: str) -> None:
        """Write a line, if lines of its level are wanted."""
        if not any(rule.holds(level) for rule in self._enabled):
            return
        if any(rule.holds(level) for rule in self._disabled):
            return
        parts = [
            self._prefix,
            time.strftime("%Y-%m-%d %H:%M:%S") if self._time else "",
            f"[{CATEGORY}]" if self._category else "",
            level if self._level else "",
            printable(text),
        ]
        line = " ".join(part for part in parts if part) + "\n"
        for sink in self._sinks:
            sink.write(line)
            sink.flush()
