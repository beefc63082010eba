"""Ports: which process of this machine listens on one. Source: proc(5)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

LISTENS = "0A"
"""How the kernel writes that a socket listens."""


def holders(port: int, pid: int = 0) -> dict[int, str]:
    """Return the processes that listen on a port, with their names, as far as this user may know;
    with `pid` in the network of that process.
    """
    inodes = set(listening_inodes(port, pid))
    found = {}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        try:
            for link in (process / "fd").iterdir():
                if os.readlink(link) in inodes:
                    found[int(process.name)] = (process / "comm").read_text().strip()
                    break
        except OSError:
            continue  # It ended, or belongs to another user.
    return found


def listening_inodes(port: int, pid: int = 0) -> Iterator[str]:
    """Yield the sockets that listen on a port, as the links of a process name them."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid or 'self'}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{fields[9]}]"
