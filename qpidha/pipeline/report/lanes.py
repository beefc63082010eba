"""Lanes: what each broker was over time, faults below them, promotions through them; at any
resolution.

A picture never has more bars than can be seen: what is shorter than a cell of the time axis is left
out, unless it serves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.patches import Patch

from qpidha.model.broker_states import PRIMARY_STATES
from qpidha.pipeline.colours import LIGHT, STATES
from qpidha.pipeline.report.sheets import DATA_WIDTH, INK, LETTER, Sheet, first_fit, short
from qpidha.pipeline.report.tables import Record

LANE = 0.27
"""Height of a lane in inches."""
MOST_LANES = 12
MOST_NAMED = 60
"""Faults and promotions that have room for a name each."""
CELLS = 1500
"""A bar is not narrower than the time axis divided by this."""
FAULT, FAULT_BAND = "#555555", "#efefef"
DASHES = (0, (4, 3))
BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
"""Behind a name, so that lines do not run through it."""

Lanes = dict[str, list[tuple[int, int, str]]]
"""Broker -> bars: begin and end in ns, role."""


def lanes_of(roles: Iterable[Record], begin_ns: int, end_ns: int) -> tuple[Lanes, list[str]]:
    """Return for each broker bars (begin, end, role) within a part of the run, in ns, neighbours
    that are equal as one; and the names.

    What is too short to be seen is left out, unless it serves: then it is made wide enough.
    """
    cell = max((end_ns - begin_ns) // CELLS, 1)
    lanes: Lanes = {}
    for row in sorted(roles, key=lambda row: (row["node"], row["from_ns"])):
        bars = lanes.setdefault(row["node"], [])
        used = bars[-1][1] if bars else begin_ns
        begin, end = max(row["from_ns"], used), min(row["to_ns"], end_ns)
        if end - begin < cell:
            if (
                row["role"] not in PRIMARY_STATES
                or not begin_ns <= row["from_ns"] <= end_ns
                or row["to_ns"] + cell <= used
            ):
                continue
            end = begin + cell
        if bars and bars[-1][2] == row["role"] and begin - used < cell:
            bars[-1] = (bars[-1][0], end, row["role"])
        else:
            bars.append((begin, end, row["role"]))
    names = sorted(lanes)[:MOST_LANES]
    return {name: lanes[name] for name in names}, names


def _label(fault: Record) -> str:
    return f"{short(fault['kind'], 14)} {short(fault['target'], 16)}"


@dataclass(slots=True)
class Spot:
    """A fault on a picture: its bar, and where its name goes: into it, to its right or to its
    left.
    """

    begin: float
    end: float
    label: str
    side: str = "in"
    row: int = 0


def fault_bar(fault: Record, since: Callable[[int], float], end: float) -> Spot:
    """Return the bar of a fault."""
    return Spot(
        since(fault["start_ns"]),
        end if fault["stop_ns"] is None else since(fault["stop_ns"]),
        _label(fault),
    )


def placed(spots: list[Spot], begin: float, end: float) -> list[Spot]:
    """Give each bar a row in which neither it nor its name meets another."""
    per_inch = max(end - begin, 1e-6) / DATA_WIDTH
    spans = []
    for spot in spots:
        room = per_inch * (LETTER * len(spot.label) + 0.1)
        low, high = spot.begin, spot.end
        if high - low < room:
            spot.side = "right" if high + room <= end else "left"
            low, high = (low, high + room) if spot.side == "right" else (low - room, high)
        spans.append((low, high))
    for spot, row in zip(spots, first_fit(spans, 4), strict=True):
        spot.row = row
    return spots


def fault_spots(faults: Sequence[Record], since: Callable[[int], float], end: float) -> list[Spot]:
    """Return faults as bars with names; if they are too many for that, as bars in one row."""
    bars = [fault_bar(fault, since, end) for fault in faults]
    if len(bars) <= MOST_NAMED:
        return placed(bars, 0, end)
    return [
        Spot(begin, stop, "")
        for begin, stop in merged(((bar.begin, bar.end) for bar in bars), end / CELLS)
    ]


def rows_of(spots: Sequence[Spot]) -> int:
    """Return how many rows the bars take."""
    return max((spot.row for spot in spots), default=-1) + 1


def draw_lanes(
    sheet: Sheet,
    axes: Any,
    lanes: Lanes,
    names: Sequence[str],
    spots: Sequence[Spot],
    since: Callable[[int], float],
) -> None:
    """Draw a lane for each broker, and below them the faults."""
    for row, name in enumerate(names):
        axes.axhline(row, color="#f0f0f0", linewidth=13, zorder=0, solid_capstyle="butt")
        for begin, end, role in lanes[name]:
            left, right = since(begin), since(end)
            axes.broken_barh(
                [(left, right - left)],
                (row - 0.38, 0.76),
                facecolors=STATES.get(role, "#bbbbbb"),
                linewidth=0,
                zorder=2,
            )
            if right - left > sheet.room(role):
                ink = INK if role in LIGHT else "white"
                axes.text(
                    left + sheet.per_inch * 0.04,
                    row,
                    role,
                    va="center",
                    ha="left",
                    fontsize=8,
                    color=ink,
                    zorder=3,
                )
    lowest = len(names)
    for spot in spots:
        draw_fault(sheet, axes, spot, lowest + spot.row)
    ticks = [(row, short(name, 14)) for row, name in enumerate(names)] + (
        [(lowest, "faults")] if spots else []
    )
    axes.set_yticks([row for row, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_ylim(lowest + rows_of(spots) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    seen = {role for bars in lanes.values() for _, _, role in bars}
    known = [role for role in STATES if role in seen] + sorted(seen - STATES.keys())
    handles = [Patch(facecolor=STATES.get(role, "#bbbbbb")) for role in known] + (
        [Patch(facecolor=FAULT)] if spots else []
    )
    sheet.legend(axes, handles, [*known, *(["fault"] if spots else [])])


def draw_fault(sheet: Sheet, axes: Any, spot: Spot, row: int) -> None:
    """Draw one fault as a bar in a row, with its name inside or beside it."""
    length = max(spot.end - spot.begin, (sheet.end - sheet.begin) / CELLS)
    axes.broken_barh(
        [(spot.begin, length)], (row - 0.38, 0.76), facecolors=FAULT, linewidth=0, zorder=2
    )
    air = sheet.per_inch * 0.04
    inside = spot.side == "in"
    places = {"in": spot.begin + air, "right": spot.begin + length + air, "left": spot.begin - air}
    axes.text(
        places[spot.side],
        row,
        spot.label,
        va="center",
        ha="right" if spot.side == "left" else "left",
        fontsize=8,
        color="white" if inside else INK,
        zorder=5,
        clip_on=True,
        bbox=None if inside else BOX,
    )


def draw_marks(sheet: Sheet, axes: Any, marks: Sequence[tuple[float, str]]) -> None:
    """Draw promotions through the lanes, named above where there is room."""
    last = -math.inf
    for at, label in sorted(marks):
        if not sheet.begin <= at <= sheet.end:
            continue
        axes.axvline(at, color=INK, linewidth=0.9, linestyle=DASHES, zorder=4)
        if at - last > sheet.room(label):
            axes.annotate(
                label,
                (at, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=INK,
            )
            last = at


def merged(spans: Iterable[tuple[float, float]], near: float) -> list[tuple[float, float]]:
    """Return spans with those that touch, or nearly so, as one, by begin."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1] + near:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def draw_bands(
    axes: Any, faults: Sequence[Record], since: Callable[[int], float], end: float
) -> None:
    """Shade the times of faults behind curves."""
    bars = [fault_bar(fault, since, end) for fault in faults]
    for begin, stop in merged(((bar.begin, bar.end) for bar in bars), end / CELLS):
        axes.axvspan(begin, stop, facecolor=FAULT_BAND, edgecolor="none", zorder=0)
