"""Memory: how much of it this process may have, and the limit that the settings ask for.

That is what the machine has, or less where the cgroup of the process, or one around it, says so
(versions 1 and 2). In a container the path of the own cgroup may not be there; then the root of
what is mounted is the container's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from qpidha.model.options import share_of
from qpidha.model.settings import Settings

LEAST = 16 << 20
"""Bytes of a limit with which a broker still works."""


def available(proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int:
    """Return the bytes of memory that this process may have."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min((machine, *_limits(Path(proc), Path(root))))


def limit_of(settings: Settings, whole: int) -> int:
    """Return memory-limit in bytes, where there are `whole` bytes of memory; 0 is no limit."""
    limit = share_of(settings.memory_limit, whole)
    return max(limit, LEAST) if limit else 0


def limit_text(settings: Settings, whole: int) -> str:
    """Say which limit holds."""
    limit = limit_of(settings, whole)
    if not limit:
        return "memory-limit is 0: there is none"
    mebibytes = f"{limit / (1 << 20):,.0f} MiB"
    return f"memory-limit is {mebibytes}, of {whole / (1 << 20):,.0f} MiB that there are"


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
