"""Colours of what brokers are, the same in every picture: of the demo, of benchmarks and of
reports.

They keep apart for people who do not tell red from green: what serves is bluish green, what waits
blue, what is on its way yellow and orange, what is gone vermilion. Source: the palette of Okabe and
Ito, widened.
"""

from __future__ import annotations

STATES = {
    "active": "#009e73",
    "recovering": "#93dcc0",
    "ready": "#4a90d9",
    "catchup": "#f0e05a",
    "joining": "#e69f00",
    "starting": "#c9c9c9",
    "stopped": "#9a86c4",
    "hung": "#cc79a7",
    "stale": "#6b3f1d",
    "down": "#d55e00",
    "standalone": "#7a7a7a",
}
"""State -> fill, in the order of a legend."""
LIGHT = ("recovering", "catchup", "joining", "starting")
"""States whose fill needs dark letters."""
SERIES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#6b3f1d")
"""Curves of equal rank."""
TROUBLE = "#d55e00"
"""What went wrong."""
