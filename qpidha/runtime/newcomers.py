"""Newcomers: connections that were accepted, and whose peers were not let in yet.

They have an allowance of their own, so that they take no place of a client or a broker: from the
moment the kernel has them, so that who does not even begin TLS counts as well. When there are more,
one is closed, the oldest from the address that has most of them: who logs in is quick, so that he
is hardly ever the oldest, and whoever comes from another address than a crowd does is left alone.
Of IPv6 a network of 64 bits is one address.
"""

from __future__ import annotations

from collections.abc import Callable

from qpidha.model.ip import network_of
from qpidha.model.settings import Settings
from qpidha.runtime.log_lines import Log

Close = Callable[[], None]


class Newcomers:
    """Those of one broker."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self.limit = settings.max_unauthenticated
        self._log = log
        self._places: dict[int, str] = {}
        self._crowds: dict[str, dict[int, Close]] = {}
        """Network -> those of there, the oldest first, and how each is closed."""
        self._is_crowded = False

    def __len__(self) -> int:
        return len(self._places)

    def take(self, number: int, host: str, close: Close) -> None:
        """Note a newcomer, or how one that has got further is to be closed; close another one if
        there are too many.
        """
        self.forget(number)
        place = self._places[number] = network_of(host)
        self._crowds.setdefault(place, {})[number] = close
        if len(self._places) <= self.limit:
            return
        place, crowd = max(self._crowds.items(), key=lambda item: len(item[1]))
        number, close = next(iter(crowd.items()))
        if not self._is_crowded:
            self._is_crowded = True
            self._log.write(
                "warning",
                "security",
                f"connections that were not let in are closed: there are more than {self.limit} "
                f"(max-unauthenticated), {len(crowd)} of them from {place}",
            )
        self.forget(number)
        close()

    def forget(self, number: int) -> None:
        """Somebody was let in, or has gone."""
        place = self._places.pop(number, None)
        if place is None:
            return
        crowd = self._crowds[place]
        del crowd[number]
        if not crowd:
            del self._crowds[place]
        if 2 * len(self._places) < self.limit:
            self._is_crowded = False
