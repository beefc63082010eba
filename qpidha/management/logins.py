"""Logins: how much of the broker strangers have who try passwords.

The arithmetic of passwords is done one after the other, by turns of the addresses that it is for: a
crowd at one address keeps nobody else waiting. Who has failed a few times hears later how his next
logins ended, whether they are good or bad. Knows nothing of how anybody logs in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.ip import neighbourhood

WINDOW, FREE = 60 * SECOND, 5
"""In so many ns so many logins of an address may fail before the next ones wait."""
FIRST_WAIT, LONGEST_WAIT = 100 * MILLISECOND, 2 * SECOND
"""The wait doubles with each failure."""
REMEMBERED = FREE + 5
"""Failures of one address: with so many the wait is the longest."""
ADDRESSES = 1000
"""That have failed of late; then those are forgotten whose last failure is the longest ago."""

Work = Callable[[], object]


class LoginWork:
    """Has the arithmetic of logins done: of each address one at a time, the others wait for it."""

    __slots__ = ("_begin", "_lines", "_where")

    def __init__(self, begin: Callable[[int, Work], None]) -> None:
        """`begin` has the work of a connection done; `done` hears of it."""
        self._begin = begin
        self._lines: dict[str, dict[int, Work]] = {}
        """Neighbourhood -> connection -> its work; the first of a line is being done."""
        self._where: dict[int, str] = {}

    def add(self, number: int, address: str, work: Work) -> None:
        """Have the work of a connection from `address` done when it is its turn."""
        place = self._where[number] = neighbourhood(address)
        line = self._lines.setdefault(place, {})
        line[number] = work
        if len(line) == 1:
            self._begin(number, work)

    def done(self, number: int) -> None:
        """Let the next one of its address have its turn."""
        place = self._where.pop(number, None)
        if place is None:
            return
        line = self._lines[place]
        del line[number]
        if line:
            self._begin(*next(iter(line.items())))
        else:
            del self._lines[place]

    def forget(self, number: int) -> None:
        """Hear that a connection is gone; what is being done for it cannot be stopped."""
        place = self._where.get(number)
        if place is not None and next(iter(self._lines[place])) != number:
            del self._lines[place][number], self._where[number]


class LoginGuard:
    """How long who tries to log in waits for the outcome, by what failed at its address."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        self._failures: dict[str, deque[int]] = {}
        """Neighbourhood -> the times of its last failures; who failed last is last."""

    def decided(self, address: str, now: int, *, refused: bool) -> int:
        """Hear how a login ended; return how many ns it is to wait, which says nothing of that."""
        place = neighbourhood(address)
        times = self._failures.get(place)
        if times is None:
            times = deque(maxlen=REMEMBERED)
        while times and times[0] <= now - WINDOW:
            times.popleft()
        failed = len(times)
        if refused:
            self._failures.pop(place, None)
            self._failures[place] = times
            times.append(now)
            if len(self._failures) > ADDRESSES:
                del self._failures[next(iter(self._failures))]
        elif not times:
            self._failures.pop(place, None)
        return min(FIRST_WAIT << failed - FREE, LONGEST_WAIT) if failed >= FREE else 0
