"""The report on a run: one HTML file that needs nothing else, and its charts as PNG files.

Reads the verdict of a check and the tables that it left in a lake; no Spark is needed. Raises BadInput where these are missing, of
another version, or do not belong together. Source: spark-pipeline.md section 7, "Report contents".
"""

from __future__ import annotations

from pathlib import Path

from qpidha.pipeline.report_charts import charts
from qpidha.pipeline.report_page import Page
from qpidha.pipeline.report_tables import Lake, read_tables, read_verdict

NAME = "report.html"
PREFIX = "report-"
"""Of the pictures' names: `report-timeline.png`."""


def write_report(check: Path, lake: str, out: Path) -> list[Path]:
    """Write the report on the check in a folder; return the files, the page first. Pictures of an earlier report are removed."""
    verdict = read_verdict(check)
    source = Lake(lake, verdict)
    tables = read_tables(source, verdict)
    drawn = charts(source, tables)
    html = Page(verdict, tables, drawn).html()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{PREFIX}*.png"):
        old.unlink()
    files = [out / NAME]
    files[0].write_text(html, encoding="utf-8")
    for chart in drawn:
        files.append(out / f"{PREFIX}{chart.name}.png")
        files[-1].write_bytes(chart.png)
    return files
