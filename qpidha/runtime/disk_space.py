"""Disk space: tells when the file system of the write-ahead log gets full, before a write fails.

It is low below the limit and fine again at a fifth more, so that a broker that hovers at the limit
does not change its mind with every message.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from qpidha.model.events import DiskSpaceChanged

SHARE = 8
"""Of what is free, one part in so many may be written beside the log in any case."""


class DiskSpace:
    """Watches how much is left; `limit` 0 is never low."""

    __slots__ = ("_free", "_is_low", "_limit", "left")

    def __init__(self, free: Callable[[], int], limit: int) -> None:
        self._free = free
        self._limit = limit
        self._is_low = False
        self.left = 0
        """Bytes above the limit at the last look; below 0 there is too little."""

    def look(self, on_the_way: int = 0) -> DiskSpaceChanged | None:
        """Look again, where so many bytes are still to be written; the event if it became low or
        fine. At first it is taken to be fine.
        """
        if not self._limit:
            return None
        free = max(self._free() - on_the_way, 0)
        self.left = free - self._limit
        is_low = free < (self._limit * 6 // 5 if self._is_low else self._limit)
        if is_low == self._is_low:
            return None
        self._is_low = is_low
        return DiskSpaceChanged(is_low, free)

    def room(self) -> int:
        """Bytes that may be written beside the log; 0 if that cannot be told. Half of the limit is
        the log's: when no message is taken any more, what is consumed still has to be written. But
        a small part of whatever is left may be a checkpoint, for that is what makes space.
        """
        try:
            free = self._free()
        except OSError:
            return 0
        return max(free - self._limit // 2, free // SHARE)


def free_space(directory: int) -> int:
    """Bytes that an unprivileged process may still write to the file system of an open
    directory.
    """
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
