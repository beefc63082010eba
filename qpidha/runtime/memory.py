"""Memory: how much of it this process may have, the limit that the settings ask for, and giving
back what is free.

What a process may have is what the machine has, or less where the cgroup of the process, or one
around it, says so (versions 1 and 2). In a container the path of the own cgroup may not be there;
then the root of what is mounted is the container's own.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from qpidha.model.options import share_of
from qpidha.model.settings import Settings

LEAST = 16 << 20
"""Bytes of a limit with which a broker still works."""
OWN = 64 << 20
"""Bytes that a broker takes with nothing in it, or more; a percentage is of the others."""
HIGH = 80
"""Percent of the limit: with more in use by the process what is free in it is given back."""
STEP = 20
"""One part in so many of the limit has to be more before that is done again."""
LARGE = 1 << 30
"""With a limit of so many bytes or more nothing is given back while there is work: the allocator
goes through all that it has, with nothing else done meanwhile: 70 ms with 300 MB of messages of
which half have left, a quarter of a second with 1 GB.
"""
LITTLE = 0.02
"""There is no work with less than this part of the time spent."""
WORTH = 16 << 20
"""Bytes more that are free than the last time, before anything is given back for that."""
MOST = 20_000
"""Pieces that are free: giving back so many takes a tenth of a second. After a drain they are few,
for neighbours become one piece; between messages that stay they may be millions.
"""
APART = 32 << 10
"""With a small limit each piece of so many bytes or more is asked for by itself, and so is given
back at once, whatever lies beside it: brokers of 300 MB took up to 320 without.
"""
TOGETHER = 8 << 20
"""With a larger limit, or none, a piece of fewer bytes is taken from what is free, and is not asked
for page by page each time: large messages, and turns of many, cost 5 to 10 % less.
"""
FREE = 16 << 20
"""Bytes at the end of the heap that stay while there is work, for what comes next."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""What the allocator (glibc's) calls these."""
FAR, NEAR = 1.0, 0.1
"""Seconds between two looks, with less than half of the limit in use and with more."""
PERIOD = 10.0
"""Seconds between two looks whether there is no work."""


def available(proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int:
    """Return the bytes of memory that this process may have."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min((machine, *_limits(Path(proc), Path(root))))


def limit_of(settings: Settings, whole: int) -> int:
    """Return memory-limit in bytes, where there are `whole` bytes of memory; 0 is no limit."""
    limit = share_of(settings.memory_limit, max(whole - OWN, 0))
    return max(limit, LEAST) if share_of(settings.memory_limit, 100) else 0


def limit_text(settings: Settings, whole: int) -> str:
    """Say which limit holds."""
    limit = limit_of(settings, whole)
    if not limit:
        return "memory-limit is 0: there is none"
    mebibytes = f"{limit / (1 << 20):,.0f} MiB"
    return f"memory-limit is {mebibytes}, of {whole / (1 << 20):,.0f} MiB that there are"


class Trimmer:
    """Gives back what is free in this process when it has much: between messages that stay, those
    that left leave room that the allocator (glibc's) keeps. Used again it has to be asked for, page
    by page, so nothing is given back while there is enough.
    """

    def __init__(self, limit: int, trim: Callable[[], None], resident: Callable[[], int]) -> None:
        self._limit = limit
        self._trim = trim
        self._resident = resident
        self._after = 0

    def look(self) -> float:
        """Look how much this process has, give back what is free if that is much, and return the
        seconds until the next look.
        """
        size = self._resident()
        self._after = min(self._after, size)
        if size > max(self._limit * HIGH // 100, self._after + self._limit // STEP):
            self._trim()
            size = self._after = self._resident()
        return NEAR if size > self._limit // 2 else FAR


class QuietTrimmer:
    """Gives back what is free in this process while there is no work: after a drain that may be
    most of what it has.
    """

    def __init__(
        self,
        trim: Callable[[], None],
        spent: Callable[[], float],
        free: Callable[[], tuple[int, int]],
    ) -> None:
        """`spent` is the CPU time of this process in seconds, `free` how many bytes are free, given
        back or not, in how many pieces.
        """
        self._trim = trim
        self._spent = spent
        self._free = free
        self._before = spent()
        self._known = 0
        """Bytes that were free when they were given back, or fewer that were since."""

    def look(self) -> float:
        """Give back what is free if little was done since the last look and that may be much;
        return the seconds until the next look.
        """
        spent, before = self._spent(), self._before
        self._before = spent
        if spent - before < LITTLE * PERIOD:
            size, pieces = self._free()
            self._known = min(self._known, size)
            if size > self._known + WORTH and pieces <= MOST:
                self._trim()
                self._known = size
        return PERIOD


class Mallinfo2(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = [
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("others", ctypes.c_size_t * 6),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    ]


def watch(loop: asyncio.AbstractEventLoop, limit: int) -> None:
    """Give back what is free: whenever this process has much, if there is a small limit, and
    when there is no work, whatever the limit.
    """
    libc = ctypes.CDLL(None)
    malloc_trim = getattr(libc, "malloc_trim", None)
    if malloc_trim is None:
        return

    def trim() -> None:
        malloc_trim(0)

    def repeat(look: Callable[[], float]) -> None:
        loop.call_later(look(), repeat, look)

    if 0 < limit < LARGE:
        libc.mallopt(M_MMAP_THRESHOLD, APART)
        repeat(Trimmer(limit, trim, resident).look)
    else:
        libc.mallopt(M_MMAP_THRESHOLD, TOGETHER)
        libc.mallopt(M_TRIM_THRESHOLD, FREE)
    mallinfo2 = getattr(libc, "mallinfo2", None)
    if mallinfo2 is not None:  # glibc 2.33 or later
        mallinfo2.restype = Mallinfo2

        def free() -> tuple[int, int]:
            info = mallinfo2()
            return info.fordblks, info.ordblks

        repeat(QuietTrimmer(trim, time.process_time, free).look)


def resident() -> int:
    """Return the bytes of memory that this process has."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _limits(proc: Path, root: Path) -> Iterator[int]:
    """Yield the limits of all cgroups that the process is in."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _limits_above(root, path, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_above(root / "memory", path, "memory.limit_in_bytes")


def _limits_above(root: Path, path: str, name: str) -> Iterator[int]:
    """Yield the limits of one cgroup and of those around it."""
    place = root / path.lstrip("/")
    for folder in (place, *place.parents):
        if not folder.is_relative_to(root):
            return
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            yield int(text)
