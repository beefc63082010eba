"""Failovers, closer: for each a picture in milliseconds, with its phases, the states of brokers and
the enqueues that ended.

The longest are drawn, `MOST_LOOKS` at most. Enqueues come from the table `ops`, where a check wrote
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from qpidha.model.duration import SECOND
from qpidha.pipeline.colours import SERIES, TROUBLE
from qpidha.pipeline.report.lanes import BOX, DASHES, LANE, draw_lanes, fault_bar, lanes_of
from qpidha.pipeline.report.sheets import (
    DATA_WIDTH,
    INK,
    LETTER,
    Chart,
    Sheet,
    drawing,
    first_fit,
    numbers,
    short,
)
from qpidha.pipeline.report.tables import Closer, Lake, Record, RunTables, look_closer
from qpidha.pipeline.report.text import duration

MOST_LOOKS = 6
PHASES = ("fault", "detected", "asked", "promoted", "active", "accepted", "served")
ORIGINS = {"fault": "the fault", "detected": "the primary was missed", "promoted": "the promotion"}
"""What a failover may be counted from -> how a time axis calls it."""
CAPTION = (
    "Marks: fault: it began; detected: a broker missed the primary; asked: a manager or an "
    "operator asked for the promotion; promoted: the next primary begins; active: it serves; "
    "accepted: its first acceptance; served: the first message that was sent after time 0 and "
    "accepted, by any broker."
)


def closer_looks(lake: Lake, tables: RunTables) -> Iterator[Chart]:
    """Draw the longest failovers, by time."""
    changes = [row for row in tables.failovers if not row["first"] and row["total_ns"] is not None]
    longest = sorted(changes, key=lambda row: (-row["total_ns"], row["epoch"]))[:MOST_LOOKS]
    rows = sorted(longest, key=lambda row: row["epoch"])
    looks = [Closer(*_part(row)) for row in rows]
    has_operations = look_closer(lake, looks)
    for row, look in zip(rows, looks, strict=True):
        yield closer(tables, row, look, has_operations=has_operations)


def phases(row: Record) -> list[tuple[str, int]]:
    """Return the phases of a failover that are known and belong to it, by time."""
    known = [(name, row[f"{name}_ns"]) for name in PHASES if row[f"{name}_ns"] is not None]
    return sorted(
        ((name, at) for name, at in known if at >= row["since_ns"]), key=lambda each: each[1]
    )


def _part(row: Record) -> tuple[int, int]:
    times = [at for _, at in phases(row)] or [row["since_ns"]]
    last = max([*times, row["since_ns"] + row["total_ns"]])
    length = max(last - row["since_ns"], SECOND // 5)
    return row["since_ns"] - length // 4, last + length // 2


def closer(tables: RunTables, row: Record, look: Closer, *, has_operations: bool) -> Chart:
    """Draw one failover: the role of each broker, and how many enqueues ended, in milliseconds
    since the fault.
    """
    name = f"failover-{row['epoch']}"

    def since(at: int) -> float:
        return float(at - row["since_ns"]) / 1e6

    begin, end = since(look.begin_ns), since(look.end_ns)
    origin = next(
        (word for word in ("fault", "detected") if row[f"{word}_ns"] == row["since_ns"]), "promoted"
    )
    lanes, names = lanes_of(tables.roles, look.begin_ns, look.end_ns)
    faults = [
        fault
        for fault in tables.faults
        if fault["start_ns"] < look.end_ns and (fault["stop_ns"] or look.end_ns) > look.begin_ns
    ]
    spots = [fault_bar(fault, since, end) for fault in faults[:3]]
    for level, spot in enumerate(spots):
        spot.begin, spot.end, spot.row = max(spot.begin, begin), min(spot.end, end), level
        spot.side = (
            "in"
            if spot.end - spot.begin > (end - begin) / 4
            else "left"
            if spot.end > (begin + end) / 2
            else "right"
        )
    marks = phases(row)
    with drawing(name):
        per_inch = (end - begin) / DATA_WIDTH
        levels = first_fit(
            [(since(at), since(at) + per_inch * (LETTER * len(word) + 0.12)) for word, at in marks],
            7,
        )
        depth = max(levels, default=0) + 1
        heights = [
            0.17 * depth + 0.05,
            LANE * (len(names) + len(spots)) + 0.1,
            *([1.3] if has_operations else []),
        ]
        sheet = Sheet(name, heights, begin, end, f"milliseconds since {ORIGINS[origin]}")
        draw_lanes(sheet, sheet.panels[1], lanes, names, spots, since)
        _draw_phases(
            sheet,
            [(word, since(at), level) for (word, at), level in zip(marks, levels, strict=True)],
            depth,
        )
        if has_operations:
            _ends(sheet, sheet.panels[2], look, since)
        title = (
            f"Failover to {short(row['new'])}, epoch {row['epoch']}: {duration(row['total_ns'])}"
        )
        below = (
            f" Below: enqueues that ended, in steps of {look.width_ns / 1e6:g} ms."
            if has_operations
            else ""
        )
        return sheet.chart(title, CAPTION + below)


def _draw_phases(sheet: Sheet, marks: list[tuple[str, float, int]], depth: int) -> None:
    """Name the phases at the top, each in its own level, with lines down through all panels."""
    top, *others = sheet.panels
    top.set_axis_off()
    top.set_ylim(depth, 0)
    for word, at, level in marks:
        top.plot(
            [at] * 2,
            [level + 0.2, depth + 1.3],
            color=INK,
            linewidth=0.8,
            linestyle=DASHES,
            clip_on=False,
            zorder=1,
        )
        is_last = at + sheet.per_inch * (LETTER * len(word) + 0.12) > sheet.end
        x, anchor = (
            (at - 0.04 * sheet.per_inch, "right")
            if is_last
            else (at + 0.04 * sheet.per_inch, "left")
        )
        top.text(x, level + 0.5, word, fontsize=8, va="center", ha=anchor, bbox=BOX, zorder=6)
        for axes in others:
            axes.axvline(at, color=INK, linewidth=0.8, linestyle=DASHES, zorder=4)


def _ends(sheet: Sheet, axes: Any, look: Closer, since: Callable[[int], float]) -> None:
    buckets = range(-(-(look.end_ns - look.begin_ns) // look.width_ns))
    left = [since(look.begin_ns + bucket * look.width_ns) for bucket in buckets]
    width = look.width_ns / 1e6
    accepted = [look.accepted.get(bucket, 0) for bucket in buckets]
    others = [look.others.get(bucket, 0) for bucket in buckets]
    handles = [
        axes.bar(left, accepted, width=width * 0.92, align="edge", color=SERIES[0], linewidth=0)
    ]
    labels = ["accepted"]
    if any(others):
        handles.append(
            axes.bar(
                left,
                others,
                width=width * 0.92,
                align="edge",
                bottom=accepted,
                color=TROUBLE,
                linewidth=0,
            )
        )
        labels.append("failed or not known")
    numbers(axes, f"enqueues\nper {look.width_ns / 1e6:g} ms")
    sheet.legend(axes, handles, labels)
