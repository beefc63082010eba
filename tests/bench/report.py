"""What the benchmark says: medians, ratios and a table, from the single runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.bench.cases import CASES, FIFO, KINDS

OURS = "qpidha-3"


@dataclass(slots=True, frozen=True)
class Column:
    """A figure of a run, in the table."""

    head: str
    figure: str
    places: int
    unit: str = ""
    """With which a target is written."""


COLUMNS = (
    Column("CPU us/msg", "cpu_us_per_message", 1, "{} us"),
    Column("msg/s", "messages_per_second", 0),
    Column("MB/s", "mb_per_second", 1),
    Column("p50 ms", "ack_p50_ms", 2, "p50 {} ms"),
    Column("p99 ms", "ack_p99_ms", 2, "p99 {} ms"),
    Column("bytes each", "bytes_each", 0, "{} bytes"),
    Column("MB left", "mb_left", 0, "{} MB left"),
)


def summarise(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each subject and case: the medians of its rounds, how often as much as ours, and
    what ours is to reach.
    """
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        rows.setdefault((run["case"], run["subject"]), []).append(run)
    summary: list[dict[str, Any]] = []
    for (case, subject), rounds in rows.items():
        row: dict[str, Any] = {"case": case, "subject": subject, "rounds": len(rounds)}
        for column in COLUMNS:
            seen = [run[column.figure] for run in rounds if run.get(column.figure) is not None]
            row[column.figure] = median(seen) if seen else None
        cpu = [run["cpu_us_per_message"] for run in rounds if "cpu_us_per_message" in run]
        row["cpu_us_lowest"], row["cpu_us_highest"] = min(cpu, default=None), max(cpu, default=None)
        row["other"] = median(run["other"] for run in rounds)
        row["target"] = dict(CASES[case].target) if subject == OURS else {}
        row["remark"] = "; ".join(dict.fromkeys(run["remark"] for run in rounds if run["remark"]))
        summary.append(row)
    _add_ratios("cpu_ratio_to_qpidha_3", summary, runs, lambda case, subject: (case, OURS))
    _add_ratios(
        "cpu_ratio_to_fifo",
        summary,
        runs,
        lambda case, subject: (FIFO if case in KINDS else None, subject),
    )
    # A table is read case by case.
    order = list(dict.fromkeys(row["case"] for row in summary))
    return sorted(summary, key=lambda row: (order.index(row["case"]), row["subject"] != OURS))


def _add_ratios(
    name: str,
    summary: list[dict[str, Any]],
    runs: Sequence[dict[str, Any]],
    base_of: Callable[[str, str], tuple[str | None, str]],
) -> None:
    """Add the ratio to another case and subject, as `base_of` says: the median over rounds of the
    ratio within a round, so that a busy machine counts less.
    """
    for row in summary:
        ratios = cpu_ratios(
            runs, (row["case"], row["subject"]), base_of(row["case"], row["subject"])
        )
        row[name] = round(median(ratios), 2) if ratios else None


def cpu_ratios(
    runs: Sequence[dict[str, Any]], one: tuple[str, str], other: tuple[str | None, str]
) -> list[float]:
    """How often as much CPU a case and subject took as another in the same round, round by
    round.
    """
    found = {
        (run["case"], run["subject"], run["round"]): run["cpu_us_per_message"]
        for run in runs
        if run.get("cpu_us_per_message")
    }
    return [
        found[(*one, number)] / base
        for number in sorted({run["round"] for run in runs})
        if (*one, number) in found and (base := found.get((*other, number)))
    ]


def table(summary: Sequence[dict[str, Any]]) -> str:
    """The medians as text."""
    head = ("case", "subject", *(column.head for column in COLUMNS), "lowest-highest")
    head = (*head, "x qpidha-3", "x fifo", "to reach", "other", "remarks")
    lines: list[tuple[str, ...]] = [head]
    for row in summary:
        spread = (row["cpu_us_lowest"], row["cpu_us_highest"])
        lines.append(
            (
                row["case"],
                row["subject"],
                *(_cell(row[column.figure], column.places) for column in COLUMNS),
                "-".join(_cell(figure, 1) for figure in spread if figure is not None) or "-",
                _cell(row["cpu_ratio_to_qpidha_3"], 2),
                _cell(row["cpu_ratio_to_fifo"], 2),
                target(row["target"]) or "-",
                f"{row['other']:.0%}",
                row["remark"] or "-",
            )
        )
    # What nobody has a figure for is left out.
    shown = [at for at in range(len(head)) if at < 2 or {line[at] for line in lines[1:]} != {"-"}]
    return aligned([tuple(line[at] for at in shown) for line in lines], head.index("to reach"))


def aligned(lines: Sequence[tuple[str, ...]], numbers_end: int) -> str:
    """Columns of text: names to the left, numbers to the right."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    text = [
        "  ".join(
            cell.ljust(width) if at < 2 or at >= numbers_end else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    text.insert(1, "  ".join("=" * width for width in widths))
    return "\n".join(text)


def target(figures: dict[str, float]) -> str:
    """What is to be reached, as text: `180 us, p50 0.13 ms`."""
    return ", ".join(
        column.unit.format(f"{figures[column.figure]:,g}")
        for column in COLUMNS
        if column.figure in figures
    )


def _cell(figure: float | None, places: int) -> str:
    return "-" if figure is None else f"{figure:,.{places}f}"
