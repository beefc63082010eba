"""Writes the tables of docs/metrics.md anew: `python -m tests.console.metrics_page`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from qpidha.console.metrics import CUT, DETAILED, METRICS, PREFIX, QueueRow, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"
RULES = ROOT / "examples" / "prometheus-rules.yml"
WRITTEN = re.compile(
    r"(<!-- (aggregated|detailed|alerts) begin[^\n]*\n).*?(<!-- \2 end -->)", re.DOTALL
)


def table(rows: Iterable[Row | QueueRow]) -> str:
    """Return a table of metrics."""
    lines = ["| metric | type | labels | |", "|---|---|---|---|"]
    for row in rows:
        labels = ", ".join(f"`{name}`" for name in row.labels)
        lines.append(f"| `{PREFIX}{row.name}` | {row.kind} | {labels} | {row.help} |")
    return "\n".join(lines)


def alerts() -> str:
    """Return a table of the alert rules."""
    lines = ["| alert | when | for | severity |", "|---|---|---|---|"]
    found = re.findall(
        r"- alert: (\w+)\n +expr: (.+)\n +for: (\w+)\n +labels: {severity: (\w+)}",
        RULES.read_text(),
    )
    lines += [
        f"| {name} | `{expr}` | {time} | {severity} |" for name, expr, time, severity in found
    ]
    return "\n".join(lines)


def with_tables(text: str) -> str:
    """Return the page with the tables as they are now."""
    tables = {
        "aggregated": table(METRICS),
        "detailed": table([*DETAILED["queue"], CUT]),
        "alerts": alerts(),
    }
    return WRITTEN.sub(lambda found: f"{found[1]}\n{tables[found[2]]}\n\n{found[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
