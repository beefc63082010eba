"""What the benchmark says: medians, ratios, a table and a small picture, from the single
measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

FIGURES = ("cpu_us_per_message", "messages_per_second", "ack_p50_ms", "ack_p99_ms")
COLOURS = {
    "consumed": "#2a78b5",
    "kept": "#e08b2c",
    "durable": "#5a9e4b",
    "durable-kept": "#9b7fb5",
}
CASES = {
    "consumed": "sent and consumed",
    "kept": "sent, nothing consumed",
    "durable": "durable, consumed",
    "durable-kept": "durable, kept",
}


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
    _add_ratios(summary, runs)
    return summary


def _add_ratios(summary: list[dict[str, Any]], runs: Sequence[dict[str, Any]]) -> None:
    """Add the ratio to our cluster: the median over rounds of the ratio within a round, so that a
    busy machine counts less.
    """
    ours = {
        (run["case"], run["round"]): run["cpu_us_per_message"]
        for run in runs
        if run["subject"] == "qpidha-3"
    }
    for row in summary:
        ratios = [
            run["cpu_us_per_message"] / ours[run["case"], run["round"]]
            for run in runs
            if run["subject"] == row["subject"]
            and run["case"] == row["case"]
            and ours.get((run["case"], run["round"]))
        ]
        row["cpu_ratio_to_qpidha_3"] = round(median(ratios), 2) if ratios else None


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
    )
    lines = [head]
    for row in summary:
        ratio = row["cpu_ratio_to_qpidha_3"]
        lines.append(
            (
                row["case"],
                row["subject"],
                f"{row['cpu_us_per_message']:.1f}",
                f"({row['cpu_us_lowest']:.1f}-{row['cpu_us_highest']:.1f})",
                f"{row['messages_per_second']:,.0f}",
                f"{row['ack_p50_ms']:.2f}",
                f"{row['ack_p99_ms']:.2f}",
                _or_dash(row.get("syncs_per_1000")),
                f"{ratio:.2f}" if ratio else "-",
            )
        )
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    text = [
        "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    text.insert(1, "  ".join("=" * width for width in widths))
    return "\n".join(line.rstrip() for line in text)


def _or_dash(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.1f}"


def picture(summary: Sequence[dict[str, Any]], title: str) -> str:
    """Bars of CPU time a message as SVG."""
    subjects = list(dict.fromkeys(row["subject"] for row in summary))
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
                f'fill="{COLOURS[row["case"]]}"/>'
            )
            parts.append(
                f'<text x="{left + width + 5:.1f}" '
                f'y="{y + bar - 4}">{row["cpu_us_per_message"]:.1f}</text>'
            )
            y += bar
        y += gap
    for at, (case, text) in enumerate(CASES.items()):
        parts.append(
            f'<rect x="{left + at * 150}" y="{y}" width="12" height="12" fill="{COLOURS[case]}"/>'
        )
        parts.append(f'<text x="{left + at * 150 + 17}" y="{y + 10}">{text}</text>')
    head = f'<text x="10" y="22" font-size="14">{escape(title)}</text>'
    size = f'width="760" height="{y + 26}" viewBox="0 0 760 {y + 26}"'
    style = (
        '<rect width="100%" height="100%" fill="white"/><g font-family="sans-serif" '
        'font-size="12" fill="#222">'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{head}{"".join(parts)}</g></svg>\n'
    )
