"""Charts of a report: the run as lanes over throughput over latency, lags, and backlog.

Times are seconds since the start of the run, latencies milliseconds on a logarithmic axis. A chart
that has nothing to show is not made. The numbers come from `tables.py` as they are; nothing
is computed here but where it goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from qpidha.pipeline.colours import SERIES, TROUBLE
from qpidha.pipeline.report.failovers import closer_looks
from qpidha.pipeline.report.lanes import (
    CELLS,
    LANE,
    MOST_NAMED,
    draw_bands,
    draw_lanes,
    draw_marks,
    fault_spots,
    lanes_of,
    merged,
    rows_of,
)
from qpidha.pipeline.report.sheets import (
    FAINT,
    INK,
    Chart,
    Sheet,
    drawing,
    milliseconds,
    numbers,
    told_apart,
)
from qpidha.pipeline.report.tables import MOST_CURVES, Axis, Curve, Lake, RunTables
from qpidha.pipeline.report.text import counted

SERVICES = {
    "enqueue": ("#fbe3d3", "#e89a63", "////", "nothing accepted"),
    "delivery": ("#f5e2ec", "#cc79a7", "\\\\\\\\", "nothing delivered"),
}
"""Light and middle colour, hatch and label of windows."""


def charts(lake: Lake, tables: RunTables) -> list[Chart]:
    """Draw everything that there is."""
    axis = tables.axis
    if axis is None:
        return []
    found = [
        chart
        for chart in (timeline(tables, axis), lag(tables, axis), backlog(tables, axis))
        if chart is not None
    ]
    return [*found, *closer_looks(lake, tables)]


def timeline(tables: RunTables, axis: Axis) -> Chart:
    """Draw states of brokers and faults over throughput over latency."""
    faults = tables.faults
    with drawing("timeline"):
        end = axis.since(axis.end_ns)
        lanes, names = lanes_of(tables.roles, axis.start_ns, axis.end_ns)
        spots = fault_spots(faults, axis.since, end)
        high = LANE * (len(names) + rows_of(spots)) + 0.1
        sheet = Sheet("timeline", [*([high] if names or faults else []), 1.6, 1.9], 0, end)
        if names or faults:
            marks = [
                (axis.since(row["promoted_ns"]), f"epoch {row['epoch']}")
                for row in tables.failovers
            ]
            draw_lanes(sheet, sheet.panels[0], lanes, names, spots, axis.since)
            draw_marks(sheet, sheet.panels[0], marks if len(marks) <= MOST_NAMED else [])
        _throughput(sheet, sheet.panels[-2], tables, axis)
        _latency(sheet, sheet.panels[-1], tables, axis)
        for axes in sheet.panels[-2:]:
            draw_bands(axes, faults, axis.since, end)
        return sheet.chart("The run", _timeline_caption(tables, axis, names))


def _timeline_caption(tables: RunTables, axis: Axis, names: Sequence[str]) -> str:
    parts = []
    if names:
        parts.append(
            "Top: what each broker was; blank means that it wrote nothing, because it "
            "was not running or was held up."
        )
        if 0 < len(tables.failovers) <= MOST_NAMED:
            parts.append("Dashed lines are promotions, each the begin of an epoch.")
    elif not tables.roles:
        parts.append("There are no event logs of brokers, so their states are not known.")
    nodes = len({row["node"] for row in tables.roles})
    if nodes > len(names):
        parts.append(f"{len(names)} of {nodes} brokers are drawn.")
    if len(tables.failovers) > MOST_NAMED:
        parts.append(f"The {len(tables.failovers)} promotions are too many to be drawn.")
    if tables.faults:
        parts.append("Dark bars and grey bands are faults.")
    parts.append(
        "Middle: messages per second of all queues together. Bottom: time from sending a "
        "message to its acceptance, in the queue "
        "where it took longest, by the second in which it ended; hatched: windows of "
        "unavailability."
    )
    if axis.width > 1:
        parts.append(
            f"A point stands for {counted(axis.width, 'second')}: the mean of their "
            "rates, the greatest of their latencies."
        )
    return " ".join(parts)


# Curves.


def _rates(axis: Axis, curve: Curve) -> tuple[list[float], list[float]]:
    """Return a curve of counts per second; the first and last bucket are shorter, and not drawn if
    hardly anything is left of them.
    """
    x, y = [], []
    for bucket in range(axis.buckets):
        begin, end = (
            max(axis.at(bucket), 0.0),
            min(axis.at(bucket) + axis.width, axis.since(axis.end_ns)),
        )
        if end - begin >= axis.width / 4 or axis.buckets == 1:
            x.append((begin + end) / 2)
            y.append(curve.get(bucket, 0) / max(end - begin, 1e-3))
    return x, y


def _points(
    axis: Axis, curve: Curve, factor: float, *, gaps: bool
) -> tuple[list[float], list[float]]:
    """Return a curve in the middle of its buckets; what is not there is a gap, or 0."""
    middle = axis.width / 2
    end = axis.since(axis.end_ns)
    x = [min(max(axis.at(bucket) + middle, 0.0), end) for bucket in range(axis.buckets)]
    return x, [
        curve[bucket] * factor if bucket in curve else math.nan if gaps else 0.0
        for bucket in range(axis.buckets)
    ]


def _throughput(sheet: Sheet, axes: Any, tables: RunTables, axis: Axis) -> None:
    failed: Curve = {}
    for name in ("enqueue_fail", "enqueue_info"):
        for bucket, count in tables.traffic.get(name, {}).items():
            failed[bucket] = failed.get(bucket, 0) + count
    lines = (
        ("accepted", tables.traffic.get("enqueue_ok", {}), SERIES[0], "-"),
        ("delivered", tables.traffic.get("dequeue_ok", {}), SERIES[1], "--"),
        ("failed or not known", failed, TROUBLE, "-"),
    )
    handles = []
    for _, curve, colour, style in lines:
        x, y = _rates(axis, curve)
        handles += axes.plot(
            x, y, color=colour, linestyle=style, linewidth=1.5, marker="." if len(x) < 3 else None
        )
    numbers(axes, "messages/s")
    sheet.legend(axes, handles, [name for name, *_ in lines])


def _latency(sheet: Sheet, axes: Any, tables: RunTables, axis: Axis) -> None:
    lines = (("p50", "p50_us", SERIES[2]), ("p99", "p99_us", SERIES[0]), ("longest", "max_us", INK))
    handles, labels = [], []
    for label, percentile, colour in lines:
        curve = tables.latency.get(("enqueue", "", percentile))
        if curve:
            x, y = _points(axis, curve, 1e-3, gaps=True)
            handles += axes.plot(x, y, color=colour, linewidth=1.4, marker=".", markersize=3)
            labels.append(label)
    milliseconds(axes, "until accepted, ms")
    for service, (light, middle, hatch, label) in SERVICES.items():
        spans = merged(
            (
                (axis.since(row["start_ns"]), axis.since(row["end_ns"]))
                for row in tables.windows
                if row["service"] == service
            ),
            sheet.end / CELLS,
        )
        for begin, end in spans:
            axes.axvspan(
                begin, end, facecolor=light, edgecolor=middle, hatch=hatch, linewidth=0, zorder=0.5
            )
        if spans:
            handles.append(Patch(facecolor=light, edgecolor=middle, hatch=hatch, linewidth=0))
            labels.append(label)
    if handles:
        sheet.legend(axes, handles, labels)


def lag(tables: RunTables, axis: Axis) -> Chart | None:
    """Draw percentiles of replication and acceptance."""
    parts = [(what, sorted(tables.lagging.get(what, []))) for what in ("replication", "acceptance")]
    parts = [
        (what, names)
        for what, names in parts
        if any(tables.latency.get((what, name, "p50_us")) for name in names)
    ]
    if not parts:
        return None
    styles = (("p50", "p50_us", ":"), ("p95", "p95_us", "--"), ("p99", "p99_us", "-"))
    titles = {
        "replication": "until a backup\nhas it, ms",
        "acceptance": "until the primary\naccepts, ms",
    }
    with drawing("lag"):
        sheet = Sheet("lag", [1.7] * len(parts), 0, axis.since(axis.end_ns))
        for axes, (what, names) in zip(sheet.panels, parts, strict=True):
            for name, colour in zip(names, SERIES, strict=False):
                for _, percentile, style in styles:
                    x, y = _points(
                        axis, tables.latency.get((what, name, percentile), {}), 1e-3, gaps=True
                    )
                    axes.plot(
                        x, y, color=colour, linestyle=style, linewidth=1.3, marker=".", markersize=2
                    )
            milliseconds(axes, titles[what])
            draw_bands(axes, tables.faults, axis.since, sheet.end)
            handles: list[Any] = [
                Line2D([], [], color=colour) for _, colour in zip(names, SERIES, strict=False)
            ]
            handles += [Line2D([], [], color=FAINT, linestyle=style) for _, _, style in styles]
            sheet.legend(
                axes,
                handles,
                [
                    *(name or "all queues" for name in told_apart(names)),
                    *(label for label, *_ in styles),
                ],
                what,
            )
        words = {
            "replication": (
                "Replication: how long backups take to confirm what the primary sends them."
            ),
            "acceptance": (
                "Acceptance: how long a message waits at the primary until its sender is "
                "told that it is accepted."
            ),
        }
        caption = " ".join(words[what] for what, _ in parts)
        caption += (
            f" At most {MOST_CURVES} curves each, those with the most events. Grey bands are "
            "faults."
        )
        return sheet.chart("Lag", caption)


def backlog(tables: RunTables, axis: Axis) -> Chart | None:
    """Draw what waits in the queues."""
    if not tables.backlog:
        return None
    highest = sorted(
        tables.backlog, key=lambda queue: (-max(tables.backlog[queue].values(), default=0), queue)
    )[:MOST_CURVES]
    with drawing("backlog"):
        sheet = Sheet("backlog", [1.7], 0, axis.since(axis.end_ns))
        axes = sheet.panels[0]
        handles = []
        for queue, colour in zip(sorted(highest), SERIES, strict=False):
            x, y = _points(axis, tables.backlog[queue], 1.0, gaps=False)
            handles += axes.plot(x, y, color=colour, linewidth=1.3)
        numbers(axes, "messages")
        draw_bands(axes, tables.faults, axis.since, sheet.end)
        sheet.legend(axes, handles, told_apart(sorted(highest)), "in the queue")
        caption = (
            "Messages accepted and not yet acknowledged, as clients saw it, at the end of "
            "each point's time: an estimate, "
        )
        caption += "since messages with unknown outcome are not counted. "
        caption += (
            f"The {MOST_CURVES} highest of {len(tables.backlog)} queues. "
            if len(tables.backlog) > MOST_CURVES
            else ""
        )
        return sheet.chart("Backlog", caption + ("Grey bands are faults." if tables.faults else ""))
