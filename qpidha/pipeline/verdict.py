"""Verdicts: what an engine finds, what a check makes of it, how checks merge, and the file and exit
code that say so.

An engine (plain Python or Spark) returns one `Finding` a check: numbers, offenders and a table.
`checks.judge` turns it into a `CheckResult`; `merge` makes one verdict of all: invalid beats
unknown beats valid, checks that had nothing to judge do not count, and if none had, nothing is
known. Knows no formula. Source: Jepsen's `checker.clj` (merge-valid).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1
"""Version of verdict.json."""
EXAMPLES = 20
"""Examples of each kind of offence in verdict.json; files of offenders have them all."""
TABLE_ROWS = 1000
"""Rows of a check's table in verdict.json."""
VALID, INVALID, UNKNOWN, BAD_INPUT = 0, 1, 2, 3
"""Exit codes; BAD_INPUT also for wrong usage."""

Row = dict[str, int | float | str | None]


@dataclass(slots=True)
class Finding:
    """What an engine found for one check."""

    name: str
    counts: dict[str, int] = field(default_factory=dict)
    offenders: dict[str, list[Row]] = field(default_factory=dict)
    """Kind of offence -> every offender, in the order that the check's definition names."""
    table: list[Row] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    """Kind of offence -> where every offender was written, if it was."""


@dataclass(slots=True)
class CheckResult:
    """The verdict of one check."""

    name: str
    valid: bool | None
    """True, False, or None: unknown."""
    applies: bool
    """Whether there was anything to judge; what does not apply is unknown and does not count in a
    merge.
    """
    counts: dict[str, int]
    reasons: list[str]
    offenders: dict[str, list[Row]] = field(default_factory=dict)
    table: list[Row] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Where all offenders were written, if they were."""

    def as_json(self) -> dict[str, Any]:
        """Return the entry of verdict.json."""
        examples = [
            {"what": what} | row | {"what": what}
            for what, rows in self.offenders.items()
            for row in rows[:EXAMPLES]
        ]
        return {
            "name": self.name,
            "valid": word(self.valid),
            "applies": self.applies,
            "counts": self.counts,
            "reasons": self.reasons,
            "examples": examples,
            "offenders": self.files,
            "table": self.table[:TABLE_ROWS],
            "table_rows": len(self.table),
        }


@dataclass(slots=True)
class Verdict:
    """The verdict on a run."""

    run: str
    checks: list[CheckResult]
    inputs: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def valid(self) -> bool | None:
        """True, False, or None: unknown."""
        return merge(check.valid for check in self.checks if check.applies)

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 unknown; bad input never comes to a verdict and is 3."""
        return {True: VALID, False: INVALID, None: UNKNOWN}[self.valid]

    def __getitem__(self, name: str) -> CheckResult:
        """Return the result of a check; KeyError if it was not asked for."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def as_json(self) -> dict[str, Any]:
        """Return verdict.json."""
        return {
            "schema": SCHEMA,
            "run": self.run,
            "valid": word(self.valid),
            "checks": [check.as_json() for check in self.checks],
            "inputs": self.inputs,
            "versions": self.versions,
            "settings": self.settings,
        }

    def write(self, directory: Path, *, all_offenders: bool = False) -> Path:
        """Write verdict.json, and on request each kind of offence as
        `offenders/<check>-<kind>.jsonl`; return the former's path.
        """
        directory.mkdir(parents=True, exist_ok=True)
        if all_offenders:
            for check in self.checks:
                check.files = [
                    write_offenders(directory, check.name, what, rows)
                    for what, rows in check.offenders.items()
                    if rows
                ]
        path = directory / "verdict.json"
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")
        return path


def merge(verdicts: Iterable[bool | None]) -> bool | None:
    """Return False if any is, else None if any is or there is none, else True."""
    given = list(verdicts)
    if False in given:
        return False
    return None if None in given or not given else True


def word(valid: bool | None) -> bool | str:
    """Return a verdict as verdict.json spells it."""
    return "unknown" if valid is None else valid


def clear_offenders(directory: Path, checks: Iterable[str]) -> None:
    """Remove the files of offenders of these checks, which an earlier verdict names."""
    for check in checks:
        for path in (directory / "offenders").glob(f"{check}-*.jsonl"):
            path.unlink()


def write_offenders(directory: Path, check: str, what: str, rows: Iterable[Row]) -> str:
    """Write all offenders of a kind into a file, one row in memory at a time; return its path from
    the directory.
    """
    file = Path("offenders") / f"{check}-{what}.jsonl"
    (directory / "offenders").mkdir(parents=True, exist_ok=True)
    with (directory / file).open("w") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    return str(file)
