"""What part of a broker takes which share of its one thread: `python -m tests.bench.shares`.

Three brokers at full load, consumed, kept and durable: the CPU of the primary for each message, and
where it goes (`tests/bench/sampled.py`). Then one broker and a client, once plain and once over
TLS, with bodies of three sizes: what TLS costs the broker for a message, sent and received. Used
for docs/internals/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from qpidha.client.blocking import Client
from qpidha.client.endpoint import Tls
from tests.bench.backlog import run
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import cpu_seconds, free_ports
from tests.bench.subjects import GRACE, build
from tests.system.credentials import Authority

LOADS = {"consumed": [], "kept": ["-c", "0"], "durable": ["-d"]}
SIZES = {100: 20_000, 10 << 10: 5_000, 100 << 10: 1_000}
"""Bytes of a body -> messages of a run."""


def shares(folder: Path, seconds: float) -> dict[str, Any]:
    """Load a cluster, and look at its primary."""
    brokers = QpidhaBrokers(folder / "cluster", 3, module="tests.bench.sampled")
    found: dict[str, Any] = {}
    try:
        brokers.up()
        primary = brokers.pids()[0]
        for load, flags in LOADS.items():
            brokers.declare("q", durable=True)
            os.kill(primary, signal.SIGUSR2)
            before = cpu_seconds([primary])
            command = [build("amqpbench"), "-n", "5000000", "-T", str(seconds), "-a", "q"]
            out = subprocess.run(
                [*command, *flags, brokers.address],
                capture_output=True,
                timeout=seconds + GRACE,
                check=True,
            ).stdout
            spent = cpu_seconds([primary]) - before
            found[f"{load}: us of CPU a message"] = round(spent / json.loads(out)["acked"] * 1e6, 1)
            os.kill(primary, signal.SIGUSR1)
            brokers.ask(0, "status")  # It has heard the signal.
            seen = json.loads((folder / "cluster/b1/samples").read_text())
            for part, count in sorted(seen.items(), key=lambda each: -each[1]):
                found[f"{load}: % {part}"] = round(100 * count / sum(seen.values()), 1)
            brokers.delete("q")
    finally:
        brokers.down()
    return found


def cost(broker: QpidhaBrokers, client: Client, size: int, count: int) -> float:
    """CPU of the broker for a message that is sent and received, in microseconds."""
    body, before = bytes(size), cpu_seconds(broker.pids())
    sender = client.sender("q", window=200)
    receiver = client.receiver("q", credit=200)
    for number in range(count):
        sender.send_nowait(body)
        if number >= 100:
            receiver.receive().accept()
    sender.flush()
    for _ in range(100):
        receiver.receive().accept()
    spent = cpu_seconds(broker.pids()) - before
    sender.close()
    receiver.close()
    return spent / count * 1e6


def encrypted(folder: Path, rounds: int) -> dict[str, Any]:
    """Compare plain with TLS, in turn."""
    (folder / "keys").mkdir()
    authority = Authority(folder / "keys")
    certificate, key = authority.issue("broker")
    (port,) = free_ports(1)
    options = [f"--ssl-cert={certificate}", f"--ssl-key={key}", f"--ssl-port={port}"]
    broker = QpidhaBrokers(folder / "tls", 1, options=options)
    found: dict[str, Any] = {}
    try:
        broker.up()
        broker.declare("q")
        tls = Tls(str(authority.certificate), server_name="localhost")
        with Client(broker.address) as plain, Client(f"amqps://127.0.0.1:{port}", tls=tls) as safe:
            for size, count in SIZES.items():
                costs = [
                    [cost(broker, client, size, count) for client in (plain, safe)]
                    for _ in range(rounds)
                ]
                for way, each in zip(("plain", "TLS"), zip(*costs, strict=True), strict=True):
                    found[f"{size} B, {way}: us of CPU a message"] = round(statistics.median(each))
    finally:
        broker.down()
    return found


def measure(ask: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Do it all."""
    return shares(folder, ask.seconds) | encrypted(folder, ask.rounds)


def main() -> int:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--rounds", type=int, default=5, help="plain and TLS in turn")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    return run(parser.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
