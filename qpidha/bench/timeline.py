"""Timelines: a run as one picture, written as SVG by hand.

Bands over one time axis: messages accepted and received per second, messages without an outcome
yet, and one lane per broker coloured by its state. A second panel shows a short part at fine
resolution, because a failover is too short to be seen in a whole run. Marks name what happened.
Needs no plotting library and knows nothing of brokers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from qpidha.pipeline.colours import LIGHT, STATES

WIDTH, LEFT, RIGHT = 960, 90, 20
CHART, LANE, GAP = 130, 22, 34
ROW = 14
"""Height of a line of text."""
LETTER = 6.8
"""Width of a letter, about, at the usual size."""
SERIES = ("#2e6fb7", "#e07b39", "#7a7a7a")
STEPS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600)
BINS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

Points = list[tuple[float, float]]


@dataclass(slots=True)
class Zoom:
    """A short part of a run, at fine resolution."""

    begin: float
    end: float
    origin: float
    """The time that its axis calls 0."""
    rates: dict[str, Points] = field(default_factory=dict)
    gap: tuple[float, float] = (0.0, 0.0)
    """From when to when clients waited."""


@dataclass(slots=True)
class Timeline:
    """What is drawn. Times are seconds since the start of the run."""

    title: str
    seconds: float
    rates: dict[str, Points] = field(default_factory=dict)
    """Label -> (time, messages per second)."""
    waiting: Points = field(default_factory=list)
    """(time, messages without an outcome)."""
    lanes: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    """Broker -> (time, state from then on)."""
    marks: list[tuple[float, str]] = field(default_factory=list)
    zoom: Zoom | None = None


@dataclass(slots=True)
class Panel:
    """A time axis on the page, and how far down the page is used."""

    begin: float
    end: float
    y: float
    origin: float = 0.0

    def x(self, time: float) -> float:
        """Say where a time is."""
        span = self.end - self.begin
        share = min(1.0, max(0.0, (time - self.begin) / span)) if span > 0 else 0.0
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def rates(samples: Sequence[tuple[float, float]]) -> Points:
    """Turn (time, count so far) into (time, count per second)."""
    found = []
    for (before, low), (after, high) in zip(samples, samples[1:], strict=False):
        if after > before:
            found.append((after, (high - low) / (after - before)))
    return found


def fine_rates(times: Sequence[float], begin: float, end: float) -> Points:
    """Turn the time of each message into (time, count per second), over the part from `begin` to
    `end`.
    """
    width = next((width for width in BINS if (end - begin) / width <= 80), 5.0)
    counts = [0] * max(1, math.ceil(round((end - begin) / width, 6)))
    for time in times:
        if begin <= time < end:
            counts[min(len(counts) - 1, int((time - begin) / width))] += 1
    return [(begin + (index + 0.5) * width, count / width) for index, count in enumerate(counts)]


def svg(timeline: Timeline) -> str:
    """Draw."""
    panel = Panel(0.0, timeline.seconds, 36)
    parts = _chart(panel, "messages/s", timeline.rates, timeline.marks)
    parts += _chart(panel, "in flight", {"": timeline.waiting}, timeline.marks, named=False)
    parts += _lanes(panel, timeline)
    parts += _axis(panel)
    if timeline.zoom is not None:
        parts += _zoomed(panel, timeline, timeline.zoom)
    parts += _legend(panel, timeline)
    height = round(panel.y + 10)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="16">{escape(timeline.title)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def _zoomed(whole: Panel, timeline: Timeline, zoom: Zoom) -> list[str]:
    panel = Panel(zoom.begin, zoom.end, whole.y + 16, zoom.origin)
    parts = _chart(
        panel,
        f"{zoom.end - zoom.begin:.1f} s around the fault: messages/s",
        zoom.rates,
        timeline.marks,
    )
    parts += _gap(panel, zoom.gap, panel.y - 16 - CHART)
    parts += _lanes(panel, timeline)
    parts += _axis(panel)
    whole.y = panel.y
    return parts


def _gap(panel: Panel, gap: tuple[float, float], top: float) -> list[str]:
    """Shade the time that clients waited, with its length within or, by an arrow, beside it."""
    begin, end = gap
    if end <= begin:
        return []
    low, high, y = panel.x(begin), panel.x(end), top + 10
    text = f"clients waited {end - begin:.2f} s"
    parts = [
        (
            f'<rect x="{low}" y="{top}" width="{max(1.0, high - low):.1f}" height="{CHART}" '
            'fill="#c0392b" fill-opacity="0.15"/>'
        )
    ]
    if high - low > LETTER * len(text) + 10:
        x, anchor = (low + high) / 2, "middle"
    else:
        parts.append(
            f'<path d="M{high + 30} {y}H{high}M{high + 7} {y - 4}L{high} {y}L{high + 7} '
            f'{y + 4}" fill="none" stroke="#c0392b"/>'
        )
        x, anchor = high + 34, "start"
    parts.append(
        f'<text x="{x:.1f}" y="{y + 4}" text-anchor="{anchor}" fill="#c0392b">{text}</text>'
    )
    return parts


def _chart(
    panel: Panel,
    label: str,
    lines: dict[str, Points],
    marks: list[tuple[float, str]],
    *,
    named: bool = True,
) -> list[str]:
    """Draw curves; the marks' lines run through, and their labels, if wanted, stand above."""
    parts = [f'<text x="{LEFT}" y="{panel.y + ROW}" fill="#444">{escape(label)}</text>']
    x = LEFT + LETTER * len(label) + 24
    for name, colour in zip(lines, SERIES, strict=False):
        parts.append(
            f'<text x="{x:.0f}" y="{panel.y + ROW}" '
            f'fill="{colour if name else "#444"}">{escape(name)}</text>'
        )
        x += LETTER * len(name) + 20
    panel.y += ROW + 6
    labels, rows = _labels(panel, marks if named else [])
    top = panel.y + rows * ROW
    bottom = top + CHART
    parts.append(
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{CHART}" '
        'fill="#f7f7f7" stroke="#ddd"/>'
    )
    step, highest = _scale(
        max([value for points in lines.values() for _, value in points] or [0.0])
    )
    for index in range(round(highest / step) + 1):
        y = round(bottom - index * step / highest * CHART, 1)
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#e4e4e4"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end" '
            f'fill="#666">{index * step:,.10g}</text>'
        )
    parts += labels + _lines(panel, marks, top, bottom)
    for (name, points), colour in zip(
        lines.items(), SERIES if named else ("#8e6bb8",), strict=False
    ):
        path = " ".join(
            f"{panel.x(time)},{round(bottom - value / highest * CHART, 1)}"
            for time, value in points
        )
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" '
            f'stroke-width="1.5"><title>{escape(name)}</title></polyline>'
        )
    panel.y = bottom + 16
    return parts


def _scale(highest: float) -> tuple[float, float]:
    """Choose a round step, and an end of the axis that leaves room above the highest value."""
    rough = max(highest, 1e-9) * 1.1 / 4
    power = 10.0 ** math.floor(math.log10(rough)) if highest > 0 else 1.0
    step = max(
        1.0, next((power * factor for factor in (1, 2, 5, 10) if power * factor >= rough), power)
    )
    return step, step * max(1, math.ceil(highest * 1.1 / step))


def _shown(panel: Panel, marks: list[tuple[float, str]]) -> list[tuple[float, str]]:
    return sorted(mark for mark in marks if panel.begin <= mark[0] <= panel.end)


def _labels(panel: Panel, marks: list[tuple[float, str]]) -> tuple[list[str], int]:
    """Write the marks' labels, each in the first row that has room; return them and the number of
    rows.
    """
    parts = []
    ends: list[float] = []
    for time, label in _shown(panel, marks):
        width = LETTER * len(label) + 8
        x = panel.x(time)
        begin = x if x + width < WIDTH else x - width
        row = next((row for row, end in enumerate(ends) if end <= begin), len(ends))
        ends[row : row + 1] = [begin + width]
        y = panel.y + row * ROW + 10
        parts.append(f'<text x="{begin + 3:.1f}" y="{y}" fill="#c0392b">{escape(label)}</text>')
        parts.append(
            f'<line x1="{x}" y1="{y - 9}" x2="{x}" y2="{panel.y}" stroke="#c0392b" '
            'stroke-dasharray="3 3"/>'
        )
    rows = len(ends)
    return [part.replace(f'y2="{panel.y}"', f'y2="{panel.y + rows * ROW}"') for part in parts], rows


def _lines(panel: Panel, marks: list[tuple[float, str]], top: float, bottom: float) -> list[str]:
    shown = [panel.x(time) for time, _ in _shown(panel, marks)]
    return [
        (
            f'<line x1="{x}" y1="{top}" x2="{x}" y2="{bottom}" stroke="#c0392b" '
            'stroke-dasharray="3 3"/>'
        )
        for x in shown
    ]


def merged(states: Sequence[tuple[float, str]], end: float) -> list[tuple[float, float, str]]:
    """Turn (time, state from then on) into bars (begin, end, state), with equal neighbours as
    one.
    """
    bars: list[tuple[float, float, str]] = []
    for (begin, state), until in zip(states, [time for time, _ in states[1:]] + [end], strict=True):
        if bars and bars[-1][2] == state:
            bars[-1] = (bars[-1][0], until, state)
        else:
            bars.append((begin, until, state))
    return bars


def _lanes(panel: Panel, timeline: Timeline) -> list[str]:
    parts = []
    top = panel.y
    for name, states in timeline.lanes.items():
        parts.append(
            f'<text x="{LEFT - 6}" y="{panel.y + 15}" text-anchor="end">{escape(name)}</text>'
        )
        for begin, end, state in merged(states, timeline.seconds):
            x, width = panel.x(begin), panel.x(end) - panel.x(begin)
            if width <= 0:
                continue
            title = f"<title>{escape(name)} {escape(state)} {begin:.3f}-{end:.3f} s</title>"
            colour = STATES.get(state, "#bbb")
            parts.append(
                f'<rect x="{x}" y="{panel.y}" width="{width:.1f}" height="{LANE}" '
                f'fill="{colour}">{title}</rect>'
            )
            size = next(
                (size for size in (12, 9) if width > LETTER * size / 12 * len(state) + 6), 0
            )
            if size:
                ink = "#333" if state in LIGHT else "white"
                parts.append(
                    f'<text x="{x + 4}" y="{panel.y + 15}" font-size="{size}" '
                    f'fill="{ink}">{escape(state)}</text>'
                )
        panel.y += LANE + 6
    return parts + _lines(panel, timeline.marks, top, panel.y - 6)


def _axis(panel: Panel) -> list[str]:
    step = next((step for step in STEPS if (panel.end - panel.begin) / step <= 14), 3600)
    first = math.ceil(round((panel.begin - panel.origin) / step, 6))
    last = math.floor(round((panel.end - panel.origin) / step, 6))
    parts = []
    for index in range(first, last + 1):
        x = panel.x(panel.origin + index * step)
        parts.append(
            f'<text x="{x}" y="{panel.y + 10}" text-anchor="middle" '
            f'fill="#666">{round(index * step, 6):g} s</text>'
        )
    panel.y += 20
    return parts


def _legend(panel: Panel, timeline: Timeline) -> list[str]:
    """Name the colours of the states that occur, always in the same order."""
    bars = [bar for states in timeline.lanes.values() for bar in merged(states, timeline.seconds)]
    occurring = {state for begin, end, state in bars if end > begin}
    known = [state for state in STATES if state in occurring]
    parts = []
    panel.y += 12
    x = float(LEFT)
    for state in [*known, *sorted(occurring - STATES.keys())]:
        parts.append(
            f'<rect x="{x:.0f}" y="{panel.y}" width="12" height="12" '
            f'fill="{STATES.get(state, "#bbb")}"/>'
        )
        parts.append(f'<text x="{x + 16:.0f}" y="{panel.y + 10}">{escape(state)}</text>')
        x += 16 + LETTER * len(state) + 16
    panel.y += 16
    return parts
