"""How soon health is answered while messages pass: `python -m tests.bench.health [--messages N]`.

A primary with backups has a console beside it. Once with nobody there, and once while a generator
sends and receives as fast as the broker lets it, `/healthz` is asked every 20 ms, and the hot calls
of `qpid-ha` are made one after the other. Printed are the median, the 99th percentile and the
longest of each in ms, and how many messages passed in a second: the promises are 50 ms for
`/healthz` while 10,000 pass, and 150 ms for a hot call.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from qpidha.bench.counts import percentile
from tests.bench.ours import QpidhaBrokers
from tests.bench.subjects import build, generate
from tests.console.consoles import Console

QUEUE = "load"
HOT = (("ping",), ("status", "--is-primary"))
SPACE = 0.02
"""Seconds between two questions to the console."""
PATIENCE = 300.0


def milliseconds(calls: int, call: Callable[[], object], space: float = 0.0) -> dict[str, float]:
    """Make calls, and say how long they took."""
    took = []
    for _ in range(calls):
        began = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - began))
        time.sleep(space)
    took.sort()
    return {
        "median": round(percentile(took, 0.5), 1),
        "p99": round(percentile(took, 0.99), 1),
        "longest": round(took[-1], 1),
    }


def look(console: Console, socket: Path, calls: int) -> dict[str, dict[str, float]]:
    """Ask the console and the command line."""

    def healthz() -> None:
        assert console.status("/healthz") == 200

    found = {"/healthz": milliseconds(calls, healthz, SPACE)}
    for words in HOT:
        command = [sys.executable, "-m", "qpidha.cli.main", *words, "-b", str(socket)]
        found[" ".join(words)] = milliseconds(
            calls // 10,
            lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL),
        )
    return found


def measure(ask: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure without load, and with it."""
    brokers = QpidhaBrokers(folder, ask.brokers)
    try:
        brokers.up()
        brokers.declare(QUEUE)
        socket = folder / "b1" / "admin.sock"
        with Console("--admin-socket", socket) as console, ThreadPoolExecutor(1) as apart:
            idle = look(console, socket, ask.calls)
            command = [build("amqpbench"), "-n", str(ask.messages), "-a", QUEUE, "-t", "240"]
            load = apart.submit(generate, [*command, brokers.address], PATIENCE)
            loaded = look(console, socket, ask.calls)
            was_long_enough = not load.done()
            rate = load.result()["overall_rate"]
        return {
            "brokers": ask.brokers,
            "messages_per_second": rate,
            "load_outlasted_the_look": was_long_enough,
            "idle": idle,
            "loaded": loaded,
        }
    finally:
        brokers.down()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_500_000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--calls", type=int, default=300, help="of /healthz")
    ask = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        print(json.dumps(measure(ask, Path(name)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
