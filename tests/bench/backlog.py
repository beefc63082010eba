"""A backlog of durable messages on disk, and what the recovery benchmarks share: filling, reading
figures, printing.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError, wait_until
from tests.bench.subjects import build, generate

QUEUE = "backlog"


def parser(about: str, messages: int) -> argparse.ArgumentParser:
    """Make a parser with what all have in common."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--messages", type=int, default=messages)
    made.add_argument("--size", type=int, default=100)
    made.add_argument("-o", "--output", choices=["text", "json"], default="text")
    return made


def fill(
    brokers: QpidhaBrokers, messages: int, size: int, *, queue: str = QUEUE, window: int = 2000
) -> dict[str, Any]:
    """Send durable messages that nobody consumes."""
    command = [
        build("amqpbench"),
        "-n",
        str(messages),
        "-c",
        "0",
        "-w",
        str(window),
        "-s",
        str(size),
        "-a",
        queue,
        "-d",
        "-t",
        "3600",
    ]
    found = generate([*command, brokers.address], 3700)
    if found["acked"] < messages:
        raise BenchError(f"not every message was accepted: {found}")
    return found


def depth(brokers: QpidhaBrokers, number: int) -> int:
    """Count the messages of the backlog on one broker; -1 while it does not answer."""
    process = brokers.running[number]
    if process.poll() is not None:
        raise BenchError(f"broker {number + 1} ended with code {process.returncode}: see its log")
    try:
        rows = brokers.ask(number, "list_queues", name=QUEUE)
    except (OSError, BenchError):
        return -1
    return int(rows[0]["messages"]) if rows else -1


def seconds_until(condition: Callable[[], bool], what: str, patience: float) -> float:
    """Wait for a condition; how long that took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > patience:
            raise BenchError(f"after {patience:g} s it is not so that {what}")
        time.sleep(0.02)
    return time.monotonic() - began


def kill(brokers: QpidhaBrokers, number: int) -> None:
    """End one broker as a crash does."""
    brokers.running[number].kill()
    brokers.running[number].wait()


def resident(pid: int) -> int:
    """Resident bytes of a process."""
    line = next(
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return int(line.split()[1]) * 1024


def received_from(pid: int, port: int) -> int:
    """Bytes that a process has received over its connections to a port, by the kernel's own
    count.
    """
    said = subprocess.run(
        ["ss", "-tinpH", "dst", f"127.0.0.1:{port}"], capture_output=True, text=True, check=True
    ).stdout
    connections = re.findall(r"^\S.*\n(?:\s+.*\n?)*", said, re.MULTILINE)
    counts = [
        re.search(r"bytes_received:(\d+)", one) for one in connections if f"pid={pid}," in one
    ]
    return sum(int(count[1]) for count in counts if count)


def directory_size(place: Path) -> int:
    """Bytes of all files under a directory."""
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def run(
    ask: argparse.Namespace, measure: Callable[[argparse.Namespace, Path], dict[str, Any]]
) -> int:
    """Measure in a directory that goes afterwards, and print what came of it."""
    folder = Path(tempfile.mkdtemp(prefix="qpidha-bench-"))
    try:
        result = measure(ask, folder)
    except (BenchError, subprocess.TimeoutExpired) as failure:
        print(f"bench: error: {failure}; logs are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    if ask.output == "json":
        print(json.dumps(result))
    else:
        width = max(map(len, result))
        print(
            "\n".join(
                f"{name.replace('_', ' '):<{width}}  {value:,}" for name, value in result.items()
            )
        )
    return 0


def started(brokers: QpidhaBrokers) -> QpidhaBrokers:
    """Bring brokers up with an empty durable queue."""
    brokers.up()
    brokers.declare(QUEUE, durable=True)
    return brokers


def wait_all_ready(brokers: QpidhaBrokers) -> None:
    """Wait until one is active and all others are ready."""
    wait_until(
        brokers.all_ready, "one broker is active and the others are ready", watched=brokers.running
    )
