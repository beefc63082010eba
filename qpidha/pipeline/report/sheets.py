"""Sheets: pictures of several panels over one axis of time, measured in inches, and what all of
them share.

A sheet has its panels one below the other, legends to the right of the data and names to the left.
Text of the run is never read as mathematics. A sheet becomes an SVG that can stand in a page beside
others, and a PNG. Knows nothing of runs.
"""

from __future__ import annotations

import io
import logging
import math
import os
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from qpidha.pipeline.report.text import plain

WIDTH, LEFT, RIGHT, TOP, BOTTOM, GAP = 11.0, 1.05, 1.75, 0.28, 0.52, 0.16
"""Inches."""
DATA_WIDTH = WIDTH - LEFT - RIGHT
DPI = 144
INK, FAINT, GRID = "#222222", "#666666", "#e3e3e3"
STYLE = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 9,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "axes.edgecolor": "#999999",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "hatch.linewidth": 0.6,
}
"""How everything looks; math in labels is off, so that a queue named `a$b$` is a name."""
MOST_LETTERS = 19
"""Of a name in a legend."""
LETTER = 0.072
"""Width of a letter in inches, about."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture and what it says."""

    name: str
    title: str
    caption: str
    svg: str
    png: bytes


class Sheet:
    """One picture. Panels are added from the top down; use within `drawing`."""

    def __init__(
        self,
        name: str,
        heights: Sequence[float],
        begin: float,
        end: float,
        unit: str = "seconds since the start of the run",
    ) -> None:
        self.name = name
        height = TOP + sum(heights) + GAP * (len(heights) - 1) + BOTTOM
        self.begin, self.end = begin, max(end, begin + 1e-6)
        self.figure = Figure(figsize=(WIDTH, height), facecolor="white")
        FigureCanvasAgg(self.figure)
        self.panels: list[Any] = []
        y = height - TOP
        for each in heights:
            y -= each
            axes = self.figure.add_axes(
                (LEFT / WIDTH, y / height, DATA_WIDTH / WIDTH, each / height)
            )
            axes.set_xlim(self.begin, self.end)
            axes.tick_params(labelbottom=False, length=3)
            axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
            self.panels.append(axes)
            y -= GAP
        self.panels[-1].tick_params(labelbottom=True)
        self.panels[-1].set_xlabel(unit)
        self.panels[-1].xaxis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.10g}".replace("-", "−"))
        )

    @property
    def per_inch(self) -> float:
        """How much time an inch is."""
        return (self.end - self.begin) / DATA_WIDTH

    def room(self, text: str) -> float:
        """Return how much time a small text takes, with some air around it."""
        return self.per_inch * (LETTER * len(text) + 0.1)

    def legend(
        self, axes: Any, handles: Sequence[Any], labels: Sequence[str], title: str = ""
    ) -> None:
        """Put a legend to the right of a panel."""
        shown = [_unhidden(short(label, MOST_LETTERS)) for label in labels]
        found = axes.legend(
            handles,
            shown,
            title=title or None,
            loc="upper left",
            bbox_to_anchor=(1.015, 1.03),
            frameon=False,
            fontsize=8.5,
            title_fontsize=8.5,
            borderaxespad=0,
            handlelength=1.6,
            labelspacing=0.35,
            alignment="left",
        )
        found.set_zorder(10)

    def chart(self, title: str, caption: str) -> Chart:
        """Return the finished picture."""
        return Chart(self.name, title, caption, self.svg(), self.png())

    def svg(self) -> str:
        """Return it as an element of a page: as wide as there is room, its names its own."""
        text = io.StringIO()
        self._save(
            text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
        source = text.getvalue()
        source = source[source.index("<svg") :]
        source = re.sub(
            r'(<svg[^>]*?) width="[^"]*"',
            r"\1",
            re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", source, count=1),
            count=1,
        )
        source = re.sub(r'(\sid="|url\(#|xlink:href="#)', rf"\g<1>{self.name}-", source)
        return re.sub(r"\n\s*", "\n", re.sub(r"<!--.*?-->", "", source, flags=re.DOTALL))

    def png(self) -> bytes:
        """Return it as a picture for elsewhere."""
        content = io.BytesIO()
        self._save(content, format="png", dpi=DPI)
        return content.getvalue()

    def _save(self, target: Any, **how: Any) -> None:
        logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            # A name may have letters that the font lacks: a box stands for them in the PNG.
            warnings.simplefilter("ignore")
            self.figure.savefig(target, **how)


def drawing(name: str) -> Any:
    """Return a context in which a sheet of this name is made and saved: the same each time."""
    return matplotlib.rc_context({**STYLE, "svg.hashsalt": name})


def short(name: str, most: int = 22) -> str:
    """Return a name that fits beside a chart."""
    text = plain(name)
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most // 2) :]}"


def told_apart(names: Sequence[str]) -> list[str]:
    """Return names without the beginning that all of them share, up to a dot, dash or slash, if
    they are too long for a legend.
    """
    is_long = len(names) > 1 and max(map(len, names)) > MOST_LETTERS
    begin = os.path.commonprefix(list(names)) if is_long else ""
    cut = max(begin.rfind(mark) for mark in ".-/") + 1
    return [name[cut:] or name for name in names]


def _unhidden(label: str) -> str:
    """Keep matplotlib from dropping what begins with an underscore."""
    return f"\u2060{label}" if label.startswith("_") else label


def numbers(axes: Any, label: str) -> None:
    """Make a linear axis of counts from 0 up, with a light grid."""
    axes.set_ylim(0, max(axes.get_ylim()[1] * 1.05, 1))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.set_ylabel(label)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def milliseconds(axes: Any, label: str) -> None:
    """Make a logarithmic axis of ms, with a light grid."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    low, high = max(low, 1e-4), max(high, 1e-3)
    if math.floor(math.log10(high)) - math.ceil(math.log10(low)) < 1:
        # Two marks at least, so that the scale can be read.
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high * 1.001))
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(label)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)


def first_fit(spans: Iterable[tuple[float, float]], most: int) -> list[int]:
    """Give each span a row in which nothing else is at that time; the last row takes what has no
    room.
    """
    ends: list[float] = []
    rows = []
    for begin, end in spans:
        row = next((row for row, before in enumerate(ends) if before <= begin), len(ends))
        row = min(row, most - 1)
        ends[row : row + 1] = [end]
        rows.append(row)
    return rows
