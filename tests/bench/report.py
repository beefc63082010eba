"""What the benchmark says: medians, ratios, a table and a small picture, from the single
measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

from tests.bench.cases import CASES, FIFO, KINDS

FIGURES = ("cpu_us_per_message", "messages_per_second", "ack_p50_ms", "ack_p99_ms")
COLOURS = ("#2a78b5", "#e08b2c", "#5a9e4b", "#9b7fb5", "#c0504d", "#7f7f7f", "#8c6d46")
OURS = "qpidha-3"


def summarise(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each subject and case: the medians of its rounds, and how often as much as
    ours.
    """
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        rows.setdefault((run["case"], run["subject"]), []).append(run)
    summary: list[dict[str, Any]] = []
    for (case, subject), rounds in rows.items():
        row: dict[str, Any] = {"case": case, "subject": subject, "rounds": len(rounds)}
        for figure in FIGURES:
            row[figure] = median(run[figure] for run in rounds)
        syncs = [run["syncs_per_1000"] for run in rounds if run.get("syncs_per_1000") is not None]
        row["syncs_per_1000"] = median(syncs) if syncs else None
        row["cpu_us_lowest"] = min(run["cpu_us_per_message"] for run in rounds)
        row["cpu_us_highest"] = max(run["cpu_us_per_message"] for run in rounds)
        summary.append(row)
    _add_ratios("cpu_ratio_to_qpidha_3", summary, runs, lambda case, subject: (case, OURS))
    _add_ratios(
        "cpu_ratio_to_fifo",
        summary,
        runs,
        lambda case, subject: (FIFO if case in KINDS else None, subject),
    )
    return summary


def _add_ratios(
    name: str,
    summary: list[dict[str, Any]],
    runs: Sequence[dict[str, Any]],
    base_of: Callable[[str, str], tuple[str | None, str]],
) -> None:
    """Add the ratio to another case and subject, as `base_of` says: the median over rounds of the
    ratio within a round, so that a busy machine counts less.
    """
    found = {(run["case"], run["subject"], run["round"]): run["cpu_us_per_message"] for run in runs}
    for row in summary:
        case, subject = row["case"], row["subject"]
        ratios = [
            found[case, subject, number] / base
            for number in range(max(run["round"] for run in runs) + 1)
            if (case, subject, number) in found
            and (base := found.get((*base_of(case, subject), number)))
        ]
        row[name] = round(median(ratios), 2) if ratios else None


def table(summary: Sequence[dict[str, Any]]) -> str:
    """The medians as text."""
    head = (
        "case",
        "subject",
        "CPU us/msg",
        "(lowest-highest)",
        "messages/s",
        "ack p50 ms",
        "ack p99 ms",
        "syncs/1000",
        "x qpidha-3",
        "x fifo",
    )
    lines = [head]
    for row in summary:
        lines.append(
            (
                row["case"],
                row["subject"],
                f"{row['cpu_us_per_message']:.1f}",
                f"({row['cpu_us_lowest']:.1f}-{row['cpu_us_highest']:.1f})",
                f"{row['messages_per_second']:,.0f}",
                f"{row['ack_p50_ms']:.2f}",
                f"{row['ack_p99_ms']:.2f}",
                _or_dash(row.get("syncs_per_1000"), 1),
                _or_dash(row["cpu_ratio_to_qpidha_3"], 2),
                _or_dash(row["cpu_ratio_to_fifo"], 2),
            )
        )
    # What there is nothing to compare with is left out.
    shown = [at for at in range(len(head)) if at < 2 or {line[at] for line in lines[1:]} != {"-"}]
    lines = [tuple(line[at] for at in shown) for line in lines]
    widths = [max(len(line[at]) for line in lines) for at in range(len(shown))]
    text = [
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    text.insert(1, "  ".join("=" * width for width in widths))
    return "\n".join(line.rstrip() for line in text)


def _or_dash(figure: float | None, places: int) -> str:
    return "-" if figure is None else f"{figure:.{places}f}"


def picture(summary: Sequence[dict[str, Any]], title: str) -> str:
    """Bars of CPU time a message as SVG."""
    subjects = list(dict.fromkeys(row["subject"] for row in summary))
    cases = list(dict.fromkeys(row["case"] for row in summary))
    colours = dict(zip(cases, cycle(COLOURS), strict=False))
    widest = max((row["cpu_us_per_message"] for row in summary), default=1.0) or 1.0
    left, bar, gap, scale = 150, 16, 14, 430 / widest
    parts: list[str] = []
    y = 50
    for subject in subjects:
        rows = [row for row in summary if row["subject"] == subject]
        middle = y + len(rows) * bar / 2 + 4
        parts.append(
            f'<text x="{left - 8}" y="{middle:.0f}" text-anchor="end">{escape(subject)}</text>'
        )
        for row in rows:
            width = row["cpu_us_per_message"] * scale
            parts.append(
                f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{bar - 2}" '
                f'fill="{colours[row["case"]]}"/>'
            )
            parts.append(
                f'<text x="{left + width + 5:.1f}" '
                f'y="{y + bar - 4}">{row["cpu_us_per_message"]:.1f}</text>'
            )
            y += bar
        y += gap
    for at, case in enumerate(cases):
        x, y = 10 + at % 4 * 185, y + (18 if at and at % 4 == 0 else 0)
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colours[case]}"/>')
        parts.append(f'<text x="{x + 17}" y="{y + 10}">{escape(CASES[case].title)}</text>')
    head = f'<text x="10" y="22" font-size="14">{escape(title)}</text>'
    size = f'width="760" height="{y + 26}" viewBox="0 0 760 {y + 26}"'
    style = (
        '<rect width="100%" height="100%" fill="white"/><g font-family="sans-serif" '
        'font-size="12" fill="#222">'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{head}{"".join(parts)}</g></svg>\n'
    )
