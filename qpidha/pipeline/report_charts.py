"""Charts of a report: the run as lanes over throughput over latency, lags, backlog, and a closer look at each failover.

Times are seconds since the start of the run, latencies milliseconds on a logarithmic axis. A chart that has nothing to show is not made.
The numbers come from `report_tables.py` as they are; nothing is computed here but where it goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from qpidha.pipeline.colours import LIGHT, SERIES, STATES, TROUBLE
from qpidha.pipeline.report_sheets import DATA_WIDTH, FAINT, INK, LETTER, Sheet, drawing, first_fit, milliseconds, numbers, short
from qpidha.pipeline.report_tables import MOST_CURVES, SECOND, Axis, Closer, Curve, Lake, Record, RunTables, look_closer
from qpidha.pipeline.report_words import counted, duration

LANE = 0.27
MOST_LANES = 12
MOST_BARS = 400
"""Faults and promotions that are drawn."""
CELLS = 1500
"""A bar is not narrower than the time axis divided by this."""
MOST_LOOKS = 6
PHASES = ("fault", "detected", "asked", "promoted", "active", "accepted", "served")
FAULT, FAULT_BAND = "#555555", "#efefef"
BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
"""Behind a name, so that lines do not run through it."""
SERVICES = {"enqueue": (TROUBLE, "////", "nothing accepted"), "delivery": ("#cc79a7", "\\\\\\\\", "nothing delivered")}


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture and what it says."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


def charts(lake: Lake, tables: RunTables) -> list[Chart]:
    """Draw everything that there is."""
    axis = tables.axis
    if axis is None:
        return []
    makers: tuple[Callable[[RunTables, Axis], Chart | None], ...] = (timeline, lag, backlog)
    found = [chart for chart in (make(tables, axis) for make in makers) if chart is not None]
    return [*found, *closer_looks(lake, tables, axis)]


def timeline(tables: RunTables, axis: Axis) -> Chart | None:
    """Draw states of brokers and faults over throughput over latency."""
    faults = tables.faults[:MOST_BARS]
    with drawing("timeline"):
        end = axis.since(axis.end_ns)
        lanes, names = lanes_of(tables.roles, axis.start_ns, axis.end_ns)
        spots = _spots([fault_bar(fault, axis.since, end) for fault in faults], 0, end)
        high = LANE * (len(names) + max((spot.row for spot in spots), default=-1) + 1) + 0.1
        sheet = Sheet("timeline", [*([high] if names or faults else []), 1.6, 1.9], 0, end)
        if names or faults:
            marks = [(axis.since(row["promoted_ns"]), f"epoch {row['epoch']}") for row in tables.failovers[:MOST_BARS]]
            _lanes(sheet, sheet.panels[0], lanes, names, spots, axis.since)
            _marks(sheet, sheet.panels[0], marks)
        _throughput(sheet, sheet.panels[-2], tables, axis)
        _latency(sheet, sheet.panels[-1], tables, axis)
        for axes in sheet.panels[-2:]:
            _bands(axes, faults, axis, end)
        return _done(sheet, "The run", _timeline_caption(tables, axis, names))


def _timeline_caption(tables: RunTables, axis: Axis, names: Sequence[str]) -> str:
    parts = []
    if names:
        parts.append("Top: what each broker was; blank means that it wrote nothing, because it was not running or was held up.")
        parts.append("Dashed lines are promotions, each the begin of an epoch.")
    elif not tables.roles:
        parts.append("There are no journals of brokers, so their states are not known.")
    nodes = len({row["node"] for row in tables.roles})
    if nodes > len(names):
        parts.append(f"{len(names)} of {nodes} brokers are drawn.")
    if len(tables.faults) > MOST_BARS:
        parts.append(f"The first {MOST_BARS} of {len(tables.faults)} faults are drawn.")
    if tables.faults:
        parts.append("Dark bars and grey bands are faults.")
    parts.append("Middle: messages per second of all queues together. Bottom: time from sending a message to its acceptance, in the queue "
                 "where it took longest, by the second in which it ended; hatched: windows of unavailability.")  # fmt: skip
    if axis.width > 1:
        parts.append(f"A point stands for {counted(axis.width, 'second')}: the mean of their rates, the greatest of their latencies.")
    return " ".join(parts)


def _done(sheet: Sheet, title: str, caption: str) -> Chart:
    return Chart(sheet.name, title, caption, sheet.svg(), sheet.png())


# What brokers were.


def lanes_of(roles: Iterable[Record], begin_ns: int, end_ns: int) -> tuple[dict[str, list[tuple[int, int, str]]], list[str]]:
    """Return for each broker bars (begin, end, role) within a part of the run, in ns, neighbours that are equal as one; and the names.

    What is too short to be seen is left out, unless it serves: then it is made wide enough.
    """
    cell = max((end_ns - begin_ns) // CELLS, 1)
    lanes: dict[str, list[tuple[int, int, str]]] = {}
    for row in sorted(roles, key=lambda row: (row["node"], row["from_ns"])):
        bars = lanes.setdefault(row["node"], [])
        begin, end = max(row["from_ns"], begin_ns), min(row["to_ns"], end_ns)
        if end - begin < cell:
            if row["role"] not in ("active", "recovering") or begin > end or row["to_ns"] < begin_ns or row["from_ns"] > end_ns:
                continue
            end = begin + cell
        if bars and bars[-1][2] == row["role"] and begin - bars[-1][1] < cell:
            bars[-1] = (bars[-1][0], max(end, bars[-1][1]), row["role"])
        else:
            bars.append((begin, end, row["role"]))
    names = sorted(lanes)[:MOST_LANES]
    return {name: lanes[name] for name in names}, names


def _fault_label(fault: Record) -> str:
    return f"{short(fault['kind'], 14)} {short(fault['target'], 16)}"


@dataclass(slots=True)
class Spot:
    """A fault on a picture: its bar, and where its name goes: into it, to its right or to its left."""

    begin: float
    end: float
    label: str
    side: str = "in"
    row: int = 0


def fault_bar(fault: Record, since: Callable[[int], float], end: float) -> Spot:
    """Return the bar of a fault."""
    return Spot(since(fault["start_ns"]), end if fault["stop_ns"] is None else since(fault["stop_ns"]), _fault_label(fault))


def _spots(spots: list[Spot], begin: float, end: float) -> list[Spot]:
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


def _lanes(
    sheet: Sheet, axes: Any, lanes: dict[str, list[tuple[int, int, str]]], names: Sequence[str], spots: Sequence[Spot],
    since: Callable[[int], float],
) -> None:  # fmt: skip
    """Draw a lane for each broker, and below them the faults."""
    for row, name in enumerate(names):
        axes.axhline(row, color="#f0f0f0", linewidth=13, zorder=0, solid_capstyle="butt")
        for begin, end, role in lanes[name]:
            left, right = since(begin), since(end)
            axes.broken_barh([(left, right - left)], (row - 0.38, 0.76), facecolors=STATES.get(role, "#bbbbbb"), linewidth=0, zorder=2)
            if right - left > sheet.room(role):
                ink = INK if role in LIGHT else "white"
                axes.text(left + sheet.per_inch * 0.04, row, role, va="center", ha="left", fontsize=8, color=ink, zorder=3)
    lowest = len(names)
    for spot in spots:
        row = lowest + spot.row
        length = max(spot.end - spot.begin, (sheet.end - sheet.begin) / CELLS)
        axes.broken_barh([(spot.begin, length)], (row - 0.38, 0.76), facecolors=FAULT, linewidth=0, zorder=2)
        air = sheet.per_inch * 0.04
        x = {"in": spot.begin + air, "right": spot.begin + length + air, "left": spot.begin - air}[spot.side]
        ink, anchor = "white" if spot.side == "in" else INK, "right" if spot.side == "left" else "left"
        box = None if spot.side == "in" else BOX
        axes.text(x, row, spot.label, va="center", ha=anchor, fontsize=8, color=ink, zorder=5, clip_on=True, bbox=box)
    ticks = [(row, short(name, 14)) for row, name in enumerate(names)] + ([(lowest, "faults")] if spots else [])
    axes.set_yticks([row for row, _ in ticks], [label for _, label in ticks])
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.set_ylim(lowest + max((spot.row for spot in spots), default=-1) + 0.6, -0.6)
    axes.spines["left"].set_visible(False)
    seen = {role for bars in lanes.values() for _, _, role in bars}
    known = [role for role in STATES if role in seen] + sorted(seen - STATES.keys())
    handles = [Patch(facecolor=STATES.get(role, "#bbbbbb")) for role in known] + ([Patch(facecolor=FAULT)] if spots else [])
    sheet.legend(axes, handles, [*known, *(["fault"] if spots else [])])


def _marks(sheet: Sheet, axes: Any, marks: Sequence[tuple[float, str]]) -> None:
    """Draw promotions through the lanes, named above where there is room."""
    last = -math.inf
    for at, label in sorted(marks):
        if not sheet.begin <= at <= sheet.end:
            continue
        axes.axvline(at, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=4)
        if at - last > sheet.room(label):
            axes.annotate(label, (at, 1.0), xycoords=("data", "axes fraction"), xytext=(0, 2), textcoords="offset points", ha="center",
                          fontsize=8, color=INK)  # fmt: skip
            last = at


# Curves.


def _rates(axis: Axis, curve: Curve) -> tuple[list[float], list[float]]:
    """Return a curve of counts per second; the first and last bucket are shorter, and not drawn if hardly anything is left of them."""
    x, y = [], []
    for bucket in range(axis.buckets):
        begin, end = max(axis.at(bucket), 0.0), min(axis.at(bucket) + axis.width, axis.since(axis.end_ns))
        if end - begin >= axis.width / 4 or axis.buckets == 1:
            x.append((begin + end) / 2)
            y.append(curve.get(bucket, 0) / max(end - begin, 1e-3))
    return x, y


def _points(axis: Axis, curve: Curve, factor: float, *, gaps: bool) -> tuple[list[float], list[float]]:
    """Return a curve in the middle of its buckets; what is not there is a gap, or 0."""
    middle = axis.width / 2
    end = axis.since(axis.end_ns)
    x = [min(max(axis.at(bucket) + middle, 0.0), end) for bucket in range(axis.buckets)]
    return x, [curve[bucket] * factor if bucket in curve else math.nan if gaps else 0.0 for bucket in range(axis.buckets)]


def _throughput(sheet: Sheet, axes: Any, tables: RunTables, axis: Axis) -> None:
    failed: Curve = {}
    for name in ("enqueue_fail", "enqueue_info"):
        for bucket, count in tables.traffic.get(name, {}).items():
            failed[bucket] = failed.get(bucket, 0) + count
    lines = (
        ("accepted", tables.traffic.get("enqueue_ok", {}), SERIES[0], "-"), ("delivered", tables.traffic.get("dequeue_ok", {}), SERIES[1], "--"),
        ("failed or not known", failed, TROUBLE, "-"),
    )  # fmt: skip
    handles = []
    for _, curve, colour, style in lines:
        x, y = _rates(axis, curve)
        handles += axes.plot(x, y, color=colour, linestyle=style, linewidth=1.5, marker="." if len(x) < 3 else None)
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
    for service, (colour, hatch, label) in SERVICES.items():
        spans = merged((axis.since(row["start_ns"]), axis.since(row["end_ns"])) for row in tables.windows if row["service"] == service)
        for begin, end in spans:
            axes.axvspan(begin, end, facecolor=colour, alpha=0.14, hatch=hatch, edgecolor=colour, linewidth=0, zorder=0.5)
        if spans:
            handles.append(Patch(facecolor=colour, alpha=0.25, hatch=hatch, edgecolor=colour, linewidth=0))
            labels.append(label)
    if handles:
        sheet.legend(axes, handles, labels)


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return spans with those that touch as one, by begin."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def _bands(axes: Any, faults: Sequence[Record], axis: Axis, end: float) -> None:
    spans = merged((axis.since(fault["start_ns"]), end if fault["stop_ns"] is None else axis.since(fault["stop_ns"])) for fault in faults)
    for begin, stop in spans:
        axes.axvspan(begin, stop, facecolor=FAULT_BAND, edgecolor="none", zorder=0)


def lag(tables: RunTables, axis: Axis) -> Chart | None:
    """Draw percentiles of replication and acceptance."""
    parts = [(what, sorted(tables.lagging.get(what, []))) for what in ("replication", "acceptance")]
    parts = [(what, names) for what, names in parts if any(tables.latency.get((what, name, "p50_us")) for name in names)]
    if not parts:
        return None
    styles = (("p50", "p50_us", ":"), ("p95", "p95_us", "--"), ("p99", "p99_us", "-"))
    titles = {"replication": "until a backup\nhas it, ms", "acceptance": "until the primary\naccepts, ms"}
    with drawing("lag"):
        sheet = Sheet("lag", [1.7] * len(parts), 0, axis.since(axis.end_ns))
        for axes, (what, names) in zip(sheet.panels, parts, strict=True):
            for name, colour in zip(names, SERIES, strict=False):
                for _, percentile, style in styles:
                    x, y = _points(axis, tables.latency.get((what, name, percentile), {}), 1e-3, gaps=True)
                    axes.plot(x, y, color=colour, linestyle=style, linewidth=1.3, marker=".", markersize=2)
            milliseconds(axes, titles[what])
            _bands(axes, tables.faults[:MOST_BARS], axis, sheet.end)
            handles: list[Any] = [Line2D([], [], color=colour) for _, colour in zip(names, SERIES, strict=False)]
            handles += [Line2D([], [], color=FAINT, linestyle=style) for _, _, style in styles]
            sheet.legend(axes, handles, [*(name or "all queues" for name in names), *(label for label, *_ in styles)], what)
        caption = "Top: " if len(parts) == 2 else ""
        caption += "how long backups take to confirm what the primary sends them. " if parts[0][0] == "replication" else ""
        caption += "Bottom: how long a message waits at the primary until its sender is told accepted. " if parts[-1][0] == "acceptance" else ""
        caption += f"At most {MOST_CURVES} curves each, those with the most events. Grey bands are faults."
        return _done(sheet, "Lag", caption)


def backlog(tables: RunTables, axis: Axis) -> Chart | None:
    """Draw what waits in the queues."""
    if not tables.backlog:
        return None
    highest = sorted(tables.backlog, key=lambda queue: (-max(tables.backlog[queue].values(), default=0), queue))[:MOST_CURVES]
    with drawing("backlog"):
        sheet = Sheet("backlog", [1.7], 0, axis.since(axis.end_ns))
        axes = sheet.panels[0]
        handles = []
        for queue, colour in zip(sorted(highest), SERIES, strict=False):
            x, y = _points(axis, tables.backlog[queue], 1.0, gaps=False)
            handles += axes.plot(x, y, color=colour, linewidth=1.3)
        numbers(axes, "messages")
        _bands(axes, tables.faults[:MOST_BARS], axis, sheet.end)
        sheet.legend(axes, handles, sorted(highest), "in the queue")
        caption = "Messages accepted and not yet acknowledged, as clients saw it, at the end of each point's time: an estimate, since messages with "
        caption += "unknown outcome are not counted. "
        caption += f"The {MOST_CURVES} highest of {len(tables.backlog)} queues. " if len(tables.backlog) > MOST_CURVES else ""
        return _done(sheet, "Backlog", caption + ("Grey bands are faults." if tables.faults else ""))


# Failovers, closer.


def closer_looks(lake: Lake, tables: RunTables, axis: Axis) -> Iterator[Chart]:
    """Draw the longest failovers, by time."""
    changes = [row for row in tables.failovers if not row["first"] and row["total_ns"] is not None]
    longest = sorted(changes, key=lambda row: (-row["total_ns"], row["epoch"]))[:MOST_LOOKS]
    rows = sorted(longest, key=lambda row: row["epoch"])
    looks = [Closer(*_part(row)) for row in rows]
    has_operations = look_closer(lake, looks)
    for row, look in zip(rows, looks, strict=True):
        yield closer(tables, row, look if has_operations else None, look)


def phases(row: Record) -> list[tuple[str, int]]:
    """Return the phases of a failover that are known and belong to it, by time."""
    known = [(name, row[f"{name}_ns"]) for name in PHASES if row[f"{name}_ns"] is not None]
    return sorted(((name, at) for name, at in known if at >= row["since_ns"]), key=lambda each: each[1])


def _part(row: Record) -> tuple[int, int]:
    times = [at for _, at in phases(row)] or [row["since_ns"]]
    last = max([*times, row["since_ns"] + row["total_ns"]])
    length = max(last - row["since_ns"], SECOND // 5)
    return row["since_ns"] - length // 4, last + length // 2


def closer(tables: RunTables, row: Record, counted_look: Closer | None, look: Closer) -> Chart:
    """Draw one failover: who was what, and how many enqueues ended, in milliseconds since the fault."""
    name = f"failover-{row['epoch']}"

    def since(at: int) -> float:
        return (at - row["since_ns"]) / 1e6

    begin, end = since(look.begin_ns), since(look.end_ns)
    origin = next((word for word in ("fault", "detected") if row[f"{word}_ns"] == row["since_ns"]), "promoted")
    unit = f"milliseconds since {'the fault' if origin == 'fault' else 'the primary was missed' if origin == 'detected' else 'the promotion'}"
    lanes, names = lanes_of(tables.roles, look.begin_ns, look.end_ns)
    faults = [fault for fault in tables.faults if fault["start_ns"] < look.end_ns and (fault["stop_ns"] or look.end_ns) > look.begin_ns]
    spots = [fault_bar(fault, since, end) for fault in faults[:3]]
    for level, spot in enumerate(spots):
        spot.begin, spot.end, spot.row = max(spot.begin, begin), min(spot.end, end), level
        spot.side = "in" if spot.end - spot.begin > (end - begin) / 4 else "left" if spot.end > (begin + end) / 2 else "right"
    marks = phases(row)
    with drawing(name):
        per_inch = (end - begin) / DATA_WIDTH
        rows = first_fit([(since(at), since(at) + per_inch * (LETTER * len(word) + 0.12)) for word, at in marks], 7)
        depth = max(rows, default=0) + 1
        heights = [0.17 * depth + 0.05, LANE * (len(names) + len(spots)) + 0.1, *([1.3] if counted_look is not None else [])]
        sheet = Sheet(name, heights, begin, end, unit)
        top = sheet.panels[0]
        top.set_axis_off()
        top.set_ylim(depth, 0)
        _lanes(sheet, sheet.panels[1], lanes, names, spots, since)
        for (word, at), level in zip(marks, rows, strict=True):
            top.plot([since(at)] * 2, [level + 0.2, depth + 1.3], color=INK, linewidth=0.8, linestyle=(0, (4, 3)), clip_on=False)
            right = since(at) + per_inch * (LETTER * len(word) + 0.12) > end
            top.text(since(at) + per_inch * (-0.04 if right else 0.04), level + 0.5, word, fontsize=8, va="center", ha="right" if right else "left",
                     bbox=BOX)  # fmt: skip
            for axes in sheet.panels[1:]:
                axes.axvline(since(at), color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=4)
        if counted_look is not None:
            _ends(sheet, sheet.panels[2], counted_look, since)
        title = f"Failover to {short(row['new'])}, epoch {row['epoch']}: {duration(row['total_ns'])}"
        return _done(sheet, title, _closer_caption(counted_look, origin))


def _closer_caption(look: Closer | None, origin: str) -> str:
    words = {"fault": "fault: it began", "detected": "detected: a broker missed the primary", "promoted": "promoted: the next primary begins"}
    text = f"Time 0 is the {origin}. Marks: {words['fault']}; {words['detected']}; asked: somebody asked for the promotion; {words['promoted']}; active: "
    text += "it serves; accepted: its first acceptance; served: the first message that was sent after time 0 and accepted, by whomever."
    return text if look is None else f"{text} Below: enqueues that ended, in steps of {look.width_ns / 1e6:g} ms."


def _ends(sheet: Sheet, axes: Any, look: Closer, since: Callable[[int], float]) -> None:
    buckets = range(-(-(look.end_ns - look.begin_ns) // look.width_ns))
    left = [since(look.begin_ns + bucket * look.width_ns) for bucket in buckets]
    width = look.width_ns / 1e6
    accepted = [look.accepted.get(bucket, 0) for bucket in buckets]
    others = [look.others.get(bucket, 0) for bucket in buckets]
    handles = [axes.bar(left, accepted, width=width * 0.92, align="edge", color=SERIES[0], linewidth=0)]
    labels = ["accepted"]
    if any(others):
        handles.append(axes.bar(left, others, width=width * 0.92, align="edge", bottom=accepted, color=TROUBLE, linewidth=0))
        labels.append("failed or not known")
    numbers(axes, f"enqueues\nper {look.width_ns / 1e6:g} ms")
    sheet.legend(axes, handles, labels)
