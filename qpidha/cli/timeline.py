"""Timelines: a run as one picture, written as SVG by hand.

Three bands over one time axis: messages accepted and received per second, messages without an outcome yet, and one
lane per broker coloured by its state. Marks name what happened. Needs no plotting library and knows nothing of brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, LEFT, RIGHT = 960, 90, 20
CHART, LANE, GAP = 150, 22, 34
COLOURS = {
    "active": "#2e9e5b",
    "recovering": "#9ccf3c",
    "ready": "#4a90d9",
    "catchup": "#e8c34a",
    "joining": "#e39a3c",
    "starting": "#c9c9c9",
    "stopped": "#8e6bb8",
    "hung": "#b04fa0",
    "down": "#d64545",
    "standalone": "#7a7a7a",
}
"""State -> fill."""


@dataclass(slots=True)
class Timeline:
    """What is drawn. Times are seconds since the start of the run."""

    title: str
    seconds: float
    rates: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Label -> (time, messages per second)."""
    waiting: list[tuple[float, float]] = field(default_factory=list)
    """(time, messages without an outcome)."""
    lanes: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    """Broker -> (time, state from then on)."""
    marks: list[tuple[float, str]] = field(default_factory=list)


def rates(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Turn (time, count so far) into (time, count per second)."""
    found = []
    for (before, low), (after, high) in zip(samples, samples[1:], strict=False):
        if after > before:
            found.append((after, (high - low) / (after - before)))
    return found


def svg(timeline: Timeline) -> str:
    """Draw."""
    lanes_top = 60 + 2 * (CHART + GAP)
    height = lanes_top + len(timeline.lanes) * (LANE + 6) + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="16">{escape(timeline.title)}</text>',
    ]
    colours = dict(zip(timeline.rates, ("#2e6fb7", "#e07b39", "#7a7a7a"), strict=False))
    parts += _chart(timeline, "messages/s", 60, [(label, points, colours[label]) for label, points in timeline.rates.items()])
    parts += _chart(timeline, "unacknowledged", 60 + CHART + GAP, [("", timeline.waiting, "#8e6bb8")])
    parts += _lanes(timeline, lanes_top)
    parts += _axis(timeline, lanes_top + len(timeline.lanes) * (LANE + 6))
    parts += _marks(timeline, height - 70)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _x(timeline: Timeline, time: float) -> float:
    share = min(1.0, max(0.0, time / timeline.seconds)) if timeline.seconds > 0 else 0.0
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _chart(timeline: Timeline, label: str, top: int, lines: list[tuple[str, list[tuple[float, float]], str]]) -> list[str]:
    highest = max([value for _, points, _ in lines for _, value in points] or [0.0]) or 1.0
    parts = [
        f'<text x="{LEFT}" y="{top - 8}" fill="#444">{escape(label)}</text>',
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{CHART}" fill="#f7f7f7" stroke="#ddd"/>',
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end" fill="#666">{highest:,.0f}</text>',
        f'<text x="{LEFT - 6}" y="{top + CHART}" text-anchor="end" fill="#666">0</text>',
    ]
    for index, (name, points, colour) in enumerate(lines):
        path = " ".join(f"{_x(timeline, time)},{round(top + CHART - value / highest * CHART, 1)}" for time, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if name:
            parts.append(f'<text x="{LEFT + 120 + 110 * index}" y="{top - 8}" fill="{colour}">{escape(name)}</text>')
    return parts


def _lanes(timeline: Timeline, top: int) -> list[str]:
    parts = []
    for index, (name, states) in enumerate(timeline.lanes.items()):
        y = top + index * (LANE + 6)
        parts.append(f'<text x="{LEFT - 6}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        ends = [time for time, _ in states[1:]] + [timeline.seconds]
        for (begin, state), end in zip(states, ends, strict=True):
            x, width = _x(timeline, begin), _x(timeline, end) - _x(timeline, begin)
            if width <= 0:
                continue
            title = f"<title>{escape(name)} {escape(state)} {begin:.3f}-{end:.3f} s</title>"
            colour = COLOURS.get(state, "#bbb")
            parts.append(f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{LANE}" fill="{colour}">{title}</rect>')
            if width > 8 * len(state):
                parts.append(f'<text x="{x + 4}" y="{y + 15}" fill="white">{escape(state)}</text>')
    return parts


def _axis(timeline: Timeline, y: int) -> list[str]:
    step = next((step for step in (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600) if timeline.seconds / step <= 14), 3600)
    parts = []
    for index in range(int(timeline.seconds / step) + 1):
        x = _x(timeline, index * step)
        parts.append(f'<text x="{x}" y="{y + 14}" text-anchor="middle" fill="#666">{index * step:g} s</text>')
    legend = list(dict.fromkeys(state for states in timeline.lanes.values() for _, state in states))
    for index, state in enumerate(legend):
        x = LEFT + index * 95
        parts.append(f'<rect x="{x}" y="{y + 30}" width="12" height="12" fill="{COLOURS.get(state, "#bbb")}"/>')
        parts.append(f'<text x="{x + 16}" y="{y + 40}">{escape(state)}</text>')
    return parts


def _marks(timeline: Timeline, bottom: int) -> list[str]:
    parts = []
    for index, (time, label) in enumerate(timeline.marks):
        x = _x(timeline, time)
        parts.append(f'<line x1="{x}" y1="40" x2="{x}" y2="{bottom}" stroke="#c0392b" stroke-dasharray="3 3"/>')
        parts.append(f'<text x="{x + 3}" y="{72 + 13 * (index % 6)}" fill="#c0392b">{escape(label)}</text>')
    return parts
