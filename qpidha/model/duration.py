"""Durations: text such as `2`, `0.5`, `250ms` to integer nanoseconds and back.

A number, an optional fraction and an optional suffix with no space before it; a bare number is in
the option's own unit, mostly seconds. Everything in the package counts in nanoseconds, so nothing
is cut to whole seconds on the way. Knows nothing of clocks. Source: Qpid
src/qpid/sys/posix/Time.cpp.
"""

from __future__ import annotations

import re
from decimal import Decimal

NANOSECOND = 1
MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

UNITS = {"s": SECOND, "ms": MILLISECOND, "us": MICROSECOND, "ns": NANOSECOND}
"""suffix -> nanoseconds, largest first; others are read too but never written, as Qpid does not
know them. The long ones are Pacemaker's.
"""
_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND
_ALSO_READ = {
    **UNITS,
    "sec": SECOND,
    "m": _MINUTE,
    "min": _MINUTE,
    "h": _HOUR,
    "hr": _HOUR,
    "d": 24 * _HOUR,
}
_DURATION = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})([a-z]*)")


def parse_duration(text: str, bare_unit: int = SECOND) -> int:
    """Read `text` as nanoseconds; a number without a suffix counts in `bare_unit`. Raises
    ValueError.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError("it is not a number with an optional unit")
    number, suffix = match.groups()
    if suffix and suffix not in _ALSO_READ:
        raise ValueError(f"{suffix} is not a unit of time")
    return int(Decimal(number) * (_ALSO_READ[suffix] if suffix else bare_unit))


def format_duration(nanoseconds: int) -> str:
    """Write a duration with the largest unit that shows it exactly in whole numbers."""
    for suffix, unit in UNITS.items():
        if nanoseconds % unit == 0:
            return f"{nanoseconds // unit}{suffix}"
    raise AssertionError("a nanosecond divides every integer")
