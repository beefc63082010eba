"""Newcomers: connections that were accepted, and whose peers were not let in yet.

They have an allowance of their own, so that they take no place of a client or a broker: from the
moment the kernel has them, so that who does not even begin TLS counts as well. When there are more,
one is closed, the oldest from the address that has most of them: who logs in is quick, so that he
is hardly ever the oldest, and whoever comes from another address than a crowd does is left alone.
Of IPv6 a network of 64 bits is one address.

Who has tried a password where others failed waits to hear how that ended, and is old because of
them: he makes room for nobody who has tried none. Whether the password was right does not count, or
who is closed would know. Half of the allowance is for such logins; when more wait, the last one
that has begun at the address that has most of them is closed, so that the others come to an end.
"""

from __future__ import annotations

from collections.abc import Callable

from qpidha.model.event_codes import CROWD_CLOSED
from qpidha.model.ip import network_of
from qpidha.model.settings import Settings
from qpidha.runtime.log_lines import Log

Close = Callable[[], None]


class Crowds:
    """Connections, by where they come from."""

    def __init__(self, log: Log, trouble: str) -> None:
        """`trouble` is said when one has to go."""
        self.crowds: dict[str, dict[int, Close]] = {}
        """Network -> those of there, the oldest first, and how each is closed."""
        self._places: dict[int, str] = {}
        self._log = log
        self._trouble = trouble
        self._is_told = False

    def __len__(self) -> int:
        return len(self._places)

    def add(self, number: int, place: str, close: Close) -> None:
        """Count one more."""
        self._places[number] = place
        self.crowds.setdefault(place, {})[number] = close

    def remove(self, number: int) -> tuple[str, Close] | None:
        """Count one no more; return what it was added with, None if it was not."""
        place = self._places.pop(number, None)
        if place is None:
            return None
        crowd = self.crowds[place]
        close = crowd.pop(number)
        if not crowd:
            del self.crowds[place]
        return place, close

    def close_one(self, *, is_oldest: bool) -> None:
        """Close the oldest or the newest of the largest crowd; the first of a row is told."""
        place, crowd = max(self.crowds.items(), key=lambda item: len(item[1]))
        number = next(iter(crowd) if is_oldest else reversed(crowd))
        if not self._is_told:
            self._is_told = True
            text = f"{self._trouble}, {len(crowd)} of them from {place}"
            self._log.write("warning", "security", text, event_code=CROWD_CLOSED)
        close = crowd[number]
        self.remove(number)
        close()

    def calm(self) -> None:
        """Tell the next time again."""
        self._is_told = False


class Newcomers:
    """Those of one broker."""

    def __init__(self, settings: Settings, log: Log) -> None:
        limit = self._limit = settings.max_unauthenticated
        waiting = self._most_waiting = max(1, limit // 2)
        self.silent = Crowds(
            log,
            f"connections that were not let in are closed: there are more than {limit} "
            "(max-unauthenticated)",
        )
        """Those who do not wait for the outcome of a login."""
        self.waiting = Crowds(
            log,
            f"logins are cut off: more than {waiting} (half of max-unauthenticated) wait for their "
            "outcome, as others failed",
        )

    def __len__(self) -> int:
        return len(self.silent) + len(self.waiting)

    def take(self, number: int, host: str, close: Close) -> None:
        """Note a newcomer, or how one that has got further is to be closed; close another one if
        there are too many.
        """
        self.forget(number)
        self.silent.add(number, network_of(host), close)
        if len(self) > self._limit:
            self.silent.close_one(is_oldest=True)

    def wait(self, number: int) -> None:
        """Let a newcomer hear how his login ended before he makes room for others."""
        found = self.silent.remove(number)
        if found is None:
            return
        self.waiting.add(number, *found)
        if len(self.waiting) > self._most_waiting:
            self.waiting.close_one(is_oldest=False)

    def forget(self, number: int) -> None:
        """Somebody was let in, or has gone."""
        self.silent.remove(number)
        self.waiting.remove(number)
        if 2 * len(self) < self._limit:
            self.silent.calm()
        if 2 * len(self.waiting) < self._most_waiting:
            self.waiting.calm()
