"""Words of `qpid-ha pipeline` that several of its commands know, and which of them do not go together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from qpidha.cli.exits import Failure
from qpidha.pipeline.checks import SECOND
from qpidha.pipeline.verdict import BAD_INPUT

ENGINES = ("spark", "python")
LARGEST_ERROR = 86400
"""Seconds that clocks may be apart by --clock-error."""


def seconds(value: float) -> float:
    """Return a number of seconds. Raises BadParameter if it is none."""
    if not math.isfinite(value) or value < 0:
        raise typer.BadParameter(f"{value} is no number of seconds")
    return value


Paths = Annotated[list[Path], typer.Argument(metavar="PATH...", help="segments, or directories with them at any depth")]
Lake = Annotated[str, typer.Option("--lake", metavar="DIR", help="folder of tables; a path or URL that every worker can see")]
Master = Annotated[str, typer.Option("--master", metavar="URL", help="local[N], spark://host:port, yarn, ...; default local[*]")]
Conf = Annotated[list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="a setting of Spark; may be given again")]
Engine = Annotated[str, typer.Option("--engine", metavar="ENGINE", help="spark, or python: for a million operations or so, without Java")]
Run = Annotated[str, typer.Option("--run", help="the run to judge; default: the only one")]
Checks = Annotated[str, typer.Option("--checks", metavar="A,B", help="only these checks")]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="where verdict.json goes")]
ExactlyOnce = Annotated[bool, typer.Option("--exactly-once", help="duplicates are invalid")]
StrictAck = Annotated[bool, typer.Option("--strict-ack", help="a delivery after its confirmed acknowledgement is invalid")]
StrictOrder = Annotated[bool, typer.Option("--strict-order", help="neither redelivery nor a fault excuses disorder")]
Mutex = Annotated[str, typer.Option("--mutex", help="overlapping holds that are invalid: strict, lease, report (none)")]
Unavailable = Annotated[float, typer.Option("--unavailable", metavar="SECONDS", help="a shorter pause is none", callback=seconds)]
MaxUnavailable = Annotated[
    float, typer.Option("--max-unavailable", metavar="SECONDS", help="a longer one is invalid; 0: none is", callback=seconds)
]
ClockError = Annotated[
    float | None, typer.Option("--clock-error", metavar="SECONDS", help="how far clocks of two hosts may be apart; default: as files say"),
]  # fmt: skip


def refuse_wrong_values(engine: str, mutex: str) -> None:
    """Raise Failure for an engine or a kind of overlap that there is not."""
    if engine not in ENGINES:
        raise Failure(BAD_INPUT, f"no such engine: {engine}", hint="--engine spark or --engine python")
    if mutex not in ("strict", "lease", "report"):
        raise Failure(BAD_INPUT, f"--mutex cannot be {mutex!r}", hint="strict, lease or report")


def refuse_words_for_spark(engine: str, words: dict[str, object]) -> None:
    """Raise Failure if one of the words, which are for Spark, is given to the Python engine."""
    if engine == "python" and any(value not in (None, "", []) for value in words.values()):
        *names, last = words
        raise Failure(BAD_INPUT, f"{', '.join(names)} and {last} are for Spark", hint="--engine spark, or leave them out")


def refuse_wrong_words(
    engine: str, mutex: str, history: list[Path] | None, lake: str, out: Path | None, *, all_offenders: bool,
    report: bool,
) -> None:  # fmt: skip
    """Raise Failure for words of `check` that cannot be, or not together."""
    refuse_wrong_values(engine, mutex)
    if not history and (engine == "python" or not lake):
        raise Failure(BAD_INPUT, "nothing to judge", hint="directories with segments, or --lake with the Spark engine")
    if engine == "spark" and not lake and out is None:
        raise Failure(BAD_INPUT, "tables need a place", hint="--lake DIR, or --out DIR for tables below it")
    if report and (engine == "python" or out is None):
        raise Failure(BAD_INPUT, "--report needs a place, and the tables of the Spark engine", hint="--out DIR --engine spark")
    if all_offenders and out is None:
        raise Failure(BAD_INPUT, "--all-offenders needs a place", hint="--out DIR")


def error_ns(seconds: float | None) -> int | None:
    """Return a bound of the error between clocks in ns. Raises Failure if it is none."""
    if seconds is None:
        return None
    if not 0 <= seconds <= LARGEST_ERROR:
        raise Failure(BAD_INPUT, f"--clock-error cannot be {seconds:g}", hint=f"seconds, 0 to {LARGEST_ERROR}")
    return round(seconds * SECOND)
