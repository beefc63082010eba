"""Clock: the only reader of time and the only source of randomness.

`now` counts nanoseconds since the Unix epoch from the wall clock at start, and goes on with the
monotonic clock: it never goes back, and a correction of the wall clock does not make heartbeats or
timeouts fire. By how much the wall clock was corrected since, `ahead` says: other brokers and
restarts have to agree on when a message expires. How far the wall clock may be from UTC is asked of
the kernel. Source: adjtimex(2).
"""

from __future__ import annotations

import ctypes
import time
import uuid

MAXERROR = 3
"""Which word of `struct timex` it is: `modes`, which is padded to a word, comes first."""
NOT_SYNCHRONISED = 5
"""What the kernel answers if nobody corrects its clock, or not well."""
GROWTH = 500
"""Microseconds a second by which the kernel lets its bound grow while nobody corrects the clock."""


class Clock:
    """Time that never goes back."""

    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset = time.time_ns() - time.monotonic_ns()
        """What it is ahead of the monotonic clock."""

    def now(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return time.monotonic_ns() + self.offset

    def ahead(self) -> int:
        """What the wall clock is ahead of `now`, in ns, negative where it is behind: somebody set
        it, or the machine slept.
        """
        return time.time_ns() - time.monotonic_ns() - self.offset


def wall_error_us(seconds: float) -> int:
    """Return a bound of the wall clock's error against UTC, in µs, that holds for so many seconds
    from now; 0: not known.
    """
    words = (ctypes.c_long * 64)()
    try:
        state = ctypes.CDLL(None).adjtimex(words)
    except (AttributeError, OSError):
        return 0
    if not 0 <= state < NOT_SYNCHRONISED:
        return 0
    return max(words[MAXERROR] + int(seconds * GROWTH), 1)


def new_uuid() -> str:
    """A fresh random identity."""
    return str(uuid.uuid4())


def local_time(now: int) -> str:
    """Write `now` as date and local time with milliseconds and the offset from UTC."""
    seconds, rest = divmod(now, 1_000_000_000)
    local = time.localtime(seconds)
    day, zone = time.strftime("%Y-%m-%d %H:%M:%S", local), time.strftime("%z", local)
    return f"{day}.{rest // 1_000_000:03d}{zone[:3]}:{zone[3:]}"


def utc_time(now: int) -> str:
    """Write `now` as ISO 8601 with milliseconds in UTC."""
    seconds, rest = divmod(now, 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1_000_000:03d}Z"
