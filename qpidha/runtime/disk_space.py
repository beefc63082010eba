"""Disk space: tells when the file system of the write-ahead log gets full, before a write fails.

It is short below a fifth more than the limit, where senders are to wait, and low below the limit
itself, where nothing can be taken any more. Each is over with a fifth of the limit more than it
began with, so that a broker that hovers there does not change its mind with every message.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from qpidha.model.events import DiskSpaceChanged

SHARE = 8
"""Of what is free, one part in so many may be written beside the log in any case."""


class DiskSpace:
    """Watches how much is left; `limit` 0 is never low."""

    __slots__ = ("_free", "_is_low", "_is_short", "_limit", "free", "left", "until_low")

    def __init__(self, free: Callable[[], int], limit: int) -> None:
        self._free = free
        self._limit = limit
        self._is_low = self._is_short = False
        self.free = -1
        """Bytes that were free at the last look, whatever was on its way; -1 before the first, or
        if that cannot be told.
        """
        self.left = 0
        """Bytes at the last look above where it would have become short, or low if it was short;
        below 0 there is too little.
        """
        self.until_low = 0
        """Bytes at the last look above the limit."""

    def look(self, on_the_way: int = 0) -> DiskSpaceChanged | None:
        """Look again, where so many bytes are still to be written; the event if it became low,
        short or fine. At first it is taken to be fine. Raises OSError, but with no limit: then it
        is only told.
        """
        try:
            self.free = self._free()
        except OSError:
            if self._limit:
                raise
            self.free = -1
        if not self._limit:
            return None
        free = max(self.free - on_the_way, 0)
        low, above, far = self._limit, self._limit * 6 // 5, self._limit * 7 // 5
        is_low = free < (above if self._is_low else low)
        is_short = is_low or free < (far if self._is_short else above)
        self.until_low = free - low
        self.left = free - (low if is_short else above)
        if (is_low, is_short) == (self._is_low, self._is_short):
            return None
        self._is_low, self._is_short = is_low, is_short
        return DiskSpaceChanged(is_low, free, is_short)

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
