"""How long clients notice a failover: `python -m tests.bench.failover [--rounds 10] [-o json]`.

Starts three brokers under the built-in manager (`qpid-ha local up`), lets a client send
without pause, ends or freezes the primary, and measures the longest time in which nothing was
accepted to that client. One round follows the other on the same cluster, when all its brokers are
ready again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverSender

ROOT = Path(__file__).resolve().parent.parent.parent
HEARTBEAT = 0.5
"""Seconds; the heartbeat of the cluster's links, of the manager and of the client."""


def qpid_ha(*arguments: object) -> str:
    """Run a command of qpid-ha and return what it prints."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, "-m", "qpidha.cli.main", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)} ended with {done.returncode}: {done.stderr}{done.stdout}"
        )
    return done.stdout


class LocalCluster:
    """Three brokers under the built-in manager."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        qpid_ha(
            "local", "up", "-n", 3, "--dir", directory, "--base-port", 0, "--heartbeat", HEARTBEAT
        )
        self.addresses = [broker["address"] for broker in self.brokers()]

    def brokers(self) -> list[dict[str, Any]]:
        return list(
            json.loads(qpid_ha("local", "status", "--dir", self.directory, "-o", "json"))["brokers"]
        )

    def wait_complete(self) -> list[dict[str, Any]]:
        """Wait for one active broker and two ready ones; the active one comes first."""

        def is_complete(brokers: list[dict[str, Any]]) -> bool:
            return sorted(broker["state"] for broker in brokers) == ["active", "ready", "ready"]

        brokers = wait_for(self.brokers, is_complete, what="the cluster", deadline=60)
        return sorted(brokers, key=lambda broker: broker["state"] != "active")

    def down(self) -> None:
        qpid_ha("local", "down", "--dir", self.directory)


def gap_of(cluster: LocalCluster, sender: FailoverSender, fault: signal.Signals) -> float:
    """Fault the primary once; return the seconds without an acceptance."""
    primary = cluster.wait_complete()[0]
    sender.wait_accepted(100)
    began = time.monotonic()
    os.kill(primary["pid"], fault)
    # Up to two windows may still have been on their way; what comes later comes from the new
    # primary.
    sender.wait_accepted(2 * sender.window + 100)
    if fault is signal.SIGSTOP:
        try:
            os.kill(primary["pid"], signal.SIGCONT)
        except ProcessLookupError:
            pass  # The manager fenced it.
    times = [at for at in list(sender.accepted_at) if at >= began - 1]
    return max(after - before for before, after in zip(times, times[1:], strict=False))


def measure(rounds: int) -> dict[str, Any]:
    """Run all rounds of both faults."""
    result: dict[str, Any] = {"rounds": rounds, "heartbeat_seconds": HEARTBEAT}
    with tempfile.TemporaryDirectory(prefix="qpidha-bench-") as directory:
        cluster = LocalCluster(directory)
        try:
            cluster.wait_complete()
            qpid_ha(
                "queue",
                "add",
                "bench",
                "--replicate",
                "all",
                "-b",
                cluster.wait_complete()[0]["address"],
            )
            for name, fault in (("kill", signal.SIGKILL), ("stop", signal.SIGSTOP)):
                # A client bears silence of two heartbeats: HEARTBEAT, as the manager does.
                sender = FailoverSender(cluster.addresses, "bench", heartbeat=HEARTBEAT / 2)
                with sender:
                    gaps = []
                    for number in range(rounds):
                        gaps.append(gap_of(cluster, sender, fault))
                        print(f"{name} {number + 1} of {rounds}: {gaps[-1]:.3f} s", file=sys.stderr)
                    cluster.wait_complete()
                gap = statistics.median(gaps)
                result[name] = {
                    "median_seconds": gap,
                    "worst_seconds": max(gaps),
                    "median_heartbeats": gap / HEARTBEAT,
                    "all_seconds": gaps,
                }
        finally:
            cluster.down()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.failover", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("-o", dest="output", choices=("text", "json"), default="text")
    options = parser.parse_args()
    result = measure(options.rounds)
    if options.output == "json":
        print(json.dumps(result))
        return
    kill, stop = result["kill"], result["stop"]
    print(
        f"SIGKILL of the primary: median gap {kill['median_seconds']:.3f} s, worst "
        f"{kill['worst_seconds']:.3f} s"
    )
    print(
        f"SIGSTOP of the primary: median gap {stop['median_heartbeats']:.2f} heartbeats "
        f"of {HEARTBEAT:g} s ({stop['median_seconds']:.3f} s)"
    )


if __name__ == "__main__":
    main()
