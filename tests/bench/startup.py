"""Start-up with a backlog of durable messages: `python -m tests.bench.startup [--messages
1000000]`.

A broker alone is filled and killed; what is measured is the time from starting the process until it
answers with every message there, and until a client has got the first of them.
"""

from __future__ import annotations

import argparse
import sys
import time
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
from tests.bench.subjects import build, generate


def measure(ask: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Fill, kill, start, look."""
    brokers = started(QpidhaBrokers(folder, 1))
    try:
        filled = fill(brokers, ask.messages, ask.size)
        before = resident(brokers.pids()[0])
        kill(brokers, 0)
        on_disk = directory_size(folder / "b1" / "data")
        began = time.monotonic()
        brokers.start(0)
        seconds_until(lambda: depth(brokers, 0) == ask.messages, "all messages are there", 600)
        ready = time.monotonic() - began
        after = resident(brokers.pids()[0])
        generate(
            [
                build("amqpbench"),
                "-n",
                "1000",
                "-p",
                "0",
                "-a",
                "backlog",
                "-t",
                "60",
                brokers.address,
            ],
            70,
        )
        served = time.monotonic() - began
    finally:
        brokers.down()
    return {
        "messages": ask.messages,
        "bytes_on_disk": on_disk,
        "fill_messages_per_second": round(filled["send_rate"]),
        "seconds_to_ready": round(ready, 2),
        "seconds_to_first_thousand_received": round(served, 2),
        "resident_mb_before": round(before / 1e6),
        "resident_mb_after": round(after / 1e6),
    }


if __name__ == "__main__":
    sys.exit(run(parser(__doc__ or "", 1_000_000).parse_args(), measure))
