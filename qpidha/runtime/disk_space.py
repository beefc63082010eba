"""Disk space: tells when the file system of the write-ahead log gets full, before a write fails.

It is low below the limit and fine again at a fifth more, so that a broker that hovers at the limit
does not change its mind with every message.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from qpidha.model.events import DiskSpaceChanged


class DiskSpace:
    """Watches how much is left; `limit` 0 is never low."""

    __slots__ = ("_free", "_is_low", "_limit")

    def __init__(self, free: Callable[[], int], limit: int) -> None:
        self._free = free
        self._limit = limit
        self._is_low = False

    def look(self) -> DiskSpaceChanged | None:
        """Look again; the event if it became low or fine. At first it is taken to be fine."""
        if not self._limit:
            return None
        free = self._free()
        is_low = free < (self._limit * 6 // 5 if self._is_low else self._limit)
        if is_low == self._is_low:
            return None
        self._is_low = is_low
        return DiskSpaceChanged(is_low, free)

    def room(self) -> int:
        """Bytes that may be written beside the log; 0 if that cannot be told. Half of the limit is
        the log's: when no message is taken any more, what is consumed still has to be written.
        """
        try:
            return max(self._free() - self._limit // 2, 0)
        except OSError:
            return 0


def free_space(directory: int) -> int:
    """Bytes that an unprivileged process may still write to the file system of an open
    directory.
    """
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
