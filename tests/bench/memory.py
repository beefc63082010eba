"""Memory of a long queue: `python -m tests.bench.memory [--messages 5000000]`, durable messages
that nobody consumes.

Resident bytes of the broker that took them, and of one that was started on the same data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from tests.bench.backlog import (
    depth,
    directory_size,
    fill,
    kill,
    parser,
    resident,
    run,
    seconds_until,
    started,
)
from tests.bench.ours import QpidhaBrokers


def measure(ask: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Fill, look, restart, look."""
    brokers = started(QpidhaBrokers(folder, 1))
    try:
        empty = resident(brokers.pids()[0])
        fill(brokers, ask.messages, ask.size)
        full = resident(brokers.pids()[0])
        kill(brokers, 0)
        brokers.start(0)
        seconds = seconds_until(
            lambda: depth(brokers, 0) == ask.messages, "all messages are there", 1200
        )
        restarted = resident(brokers.pids()[0])
        on_disk = directory_size(folder / "b1" / "data")
    finally:
        brokers.down()
    return {
        "messages": ask.messages,
        "resident_mb_empty": round(empty / 1e6),
        "resident_mb_full": round(full / 1e6),
        "resident_mb_after_restart": round(restarted / 1e6),
        "bytes_a_message": round((full - empty) / ask.messages),
        "seconds_to_restart": round(seconds, 1),
        "bytes_on_disk": on_disk,
    }


if __name__ == "__main__":
    sys.exit(run(parser(__doc__ or "", 5_000_000).parse_args(), measure))
