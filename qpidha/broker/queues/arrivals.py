"""Arrivals: when numbers were given to messages, without a word about each of them.

Numbers rise, and so do times. So it is enough to know of some numbers when they were given: a
*bucket* begins with a number and a time, at most one each second, and what comes until the next one
came about then. Far back there are fewer: two buckets become one where that moves a time by less
than a 16th of its age, so that a year takes some hundred of them. Times are told too early rather
than too late, by a second or by that 16th.

A broker knows when records came to it. What it has from its disk, or is given while it catches up,
is older than that by nobody knows how much: there the time is the latest that it can be. Nothing of
this is recorded: a backup that follows its primary sees the same with its own eyes. Must not know
queues, nor a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from qpidha.model.duration import SECOND

GRAIN = SECOND
"""How long a bucket takes numbers, in ns."""
SHARE = 16
"""Two buckets become one if they are apart by no more than this part of their age."""
FEW = 64
"""So many buckets are left as they are."""


class Arrival(NamedTuple):
    """When something came."""

    time: int
    is_exact: bool
    """Whether it came then, or then or before."""


class Arrivals:
    """When the numbers of one row were given."""

    __slots__ = ("_enough", "_exact", "_firsts", "_last", "_times", "until")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._times: list[int] = []
        self._exact: list[bool] = []
        self._last = 0
        """The last number that is known to be given; of a row that is told of with `turn`."""
        self._enough = FEW
        self.until = 0
        """From this time on a number that is given begins a bucket."""

    def __len__(self) -> int:
        return len(self._firsts)

    def begin(self, first: int, now: int, *, is_exact: bool = True) -> None:
        """Numbers from `first` on are given now, or were until now."""
        self.until = now + GRAIN
        if not is_exact and self._exact and not self._exact[-1]:
            self._times[-1] = now
            return
        self._firsts.append(first)
        self._times.append(now)
        self._exact.append(is_exact)
        if len(self._firsts) > self._enough:
            self._thin(now)

    def turn(self, last: int, now: int, *, is_exact: bool) -> None:
        """At the end of a turn numbers have been given up to `last`: in it, or perhaps before."""
        if last < self._last:
            self._cut(last)
        if last > self._last:
            if now >= self.until or is_exact is not self._exact[-1]:
                self.begin(self._last + 1, now, is_exact=is_exact)
            self._last = last

    def forget(self) -> None:
        """Know nothing of the numbers that were given."""
        for rows in (self._firsts, self._times, self._exact):
            rows.clear()
        self._last = self.until = 0

    def forget_before(self, number: int) -> None:
        """Nobody asks for what was given before a number."""
        gone = bisect_right(self._firsts, number) - 1
        if gone > 0:
            for rows in (self._firsts, self._times, self._exact):
                del rows[:gone]

    def find(self, number: int) -> Arrival | None:
        """Say when a number was given; None if nothing is known of it."""
        at = bisect_right(self._firsts, number) - 1
        return Arrival(self._times[at], self._exact[at]) if at >= 0 else None

    def _cut(self, last: int) -> None:
        """What is above `last` was never given, and will be given anew."""
        kept = bisect_right(self._firsts, last)
        for rows in (self._firsts, self._times, self._exact):
            del rows[kept:]
        self._last, self.until = last, 0

    def _thin(self, now: int) -> None:
        """Make one bucket of two where that says nearly the same."""
        kept = [(self._firsts[-1], self._times[-1], self._exact[-1])]
        for first, time, exact in zip(
            self._firsts[-2::-1], self._times[-2::-1], self._exact[-2::-1], strict=True
        ):
            _, newer, is_newer_exact = kept[-1]
            end = kept[-2][1] if len(kept) > 1 else now
            if end - time <= (now - end) // SHARE:
                is_exact = exact and is_newer_exact
                kept[-1] = (first, time if is_exact else newer, is_exact)
            else:
                kept.append((first, time, exact))
        kept.reverse()
        self._firsts = [first for first, _, _ in kept]
        self._times = [time for _, time, _ in kept]
        self._exact = [exact for _, _, exact in kept]
        self._enough = max(FEW, 2 * len(kept))
