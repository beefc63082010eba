"""A broker that tells where its thread spends its CPU: `python -m tests.bench.sampled [options of
qpidhad]`.

It is the daemon, with a timer of its CPU time that looks where it is each millisecond from SIGUSR2
on. SIGUSR1 writes what was seen into the file `samples` beside its admin socket, as JSON: part of
the broker -> samples.
"""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

from qpidha.runtime import daemon

EACH = 0.001
CLIENTS, REPLICATION = "protocol of clients", "replication"
PARTS = {
    "amqp/peer/": CLIENTS,
    "amqp/server/": "links of clients",
    "broker/": "queues",
    "store/": "log",
    "runtime/network": "sockets",
    "model/message": "queues",
}
"""How the name of the innermost file begins, and what part of the broker that is."""


def part_of(frame: FrameType | None) -> str:
    """Name the part of the broker that a thread is in."""
    inner, names = "", []
    while frame is not None:
        _, here, name = frame.f_code.co_filename.rpartition("/qpidha/")
        if here:
            inner = inner or name
            names.append(f"{name} {frame.f_code.co_qualname}")
        frame = frame.f_back
    if any("ServiceLink" in name or name.startswith("ha/") for name in names):
        return REPLICATION
    return next((part for start, part in PARTS.items() if inner.startswith(start)), "the rest")


def main() -> int:
    """Be a broker."""
    seen: Counter[str] = Counter()
    (admin,) = (word for word in sys.argv if word.startswith("--admin-socket="))
    place = Path(admin.partition("=")[2]).with_name("samples")

    def begin(*_: object) -> None:
        seen.clear()
        signal.setitimer(signal.ITIMER_PROF, EACH, EACH)

    def look(_: int, frame: FrameType | None) -> None:
        seen[part_of(frame)] += 1

    signal.signal(signal.SIGPROF, look)
    signal.signal(signal.SIGUSR2, begin)
    signal.signal(signal.SIGUSR1, lambda *_: place.write_text(json.dumps(seen)))
    return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
