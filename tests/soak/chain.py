"""`python -m tests.soak.chain --minutes 5`: a chain A -> cluster -> B of routes; primaries are
killed.

A and B are brokers alone with disks, the cluster has three brokers and the built-in manager. A
client offers messages at A, another takes them at B. It prints one JSON line; exit code 0 says that
B gave everything that A accepted, and with `--dedup` nothing twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from qpidha.client.aio import Client
from qpidha.client.errors import TimedOut
from qpidha.client.message import Message
from tests.patience import STATE
from tests.system.cluster import Broker, wait_for

ALONE = {"log_enable": "notice+", "link_maintenance_interval": "0.1"}
TICK = 0.01
"""Seconds between two portions of the sender."""
IDLE = 2.0
"""Seconds without a message after which the receiver looks whether it is to end."""
LAST = 300.0
"""Seconds that the rest may take to come through."""


@dataclass(slots=True)
class Options:
    """What is played."""

    folder: Path
    seconds: float
    rate: float = 10_000.0
    kill_every: float = 10.0
    dedup: bool = False
    size: int = 64


def offer(address: str, rate: float, end: Event, results: Any) -> None:
    """Send numbered messages to A at a rate; put how many were accepted."""

    async def send() -> int:
        sent = 0
        began = time.monotonic()
        async with Client(address, timeout=STATE) as client:
            sender = await client.sender("q")
            while not end.is_set():
                due = int((time.monotonic() - began) * rate)
                if due - sent > rate:  # What A did not take in a second is not offered again.
                    began = time.monotonic() - sent / rate
                    due = sent + int(rate * TICK)
                for _ in range(due - sent):
                    await sender.send_nowait(
                        Message(b"x" * 64, durable=True, message_id=f"m{sent}")
                    )
                    sent += 1
                await asyncio.sleep(TICK)
            await sender.flush()
        return sent

    results.put(asyncio.run(send()))


def take(address: str, end: Event, results: Any) -> None:
    """Take messages of B; put how often each number came."""

    async def receive() -> bytes:
        counts = bytearray()
        async with Client(address, timeout=STATE) as client:
            receiver = await client.receiver("q", credit=2000)
            while True:
                try:
                    message = await receiver.receive(IDLE)
                except TimedOut:
                    if end.is_set():
                        return bytes(counts)
                    continue
                number = int(str(message.properties.message_id)[1:])
                if number >= len(counts):
                    counts.extend(bytes(number + 10_000 - len(counts)))
                counts[number] = min(counts[number] + 1, 255)
                message.accept()

    results.put(asyncio.run(receive()))


class LocalCluster:
    """Three brokers of `qpid-ha local`, which supervises and promotes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *words: str) -> str:
        """Have `qpid-ha local` do something."""
        command = [sys.executable, "-m", "qpidha.cli.main", "local", *words, "--dir", self.folder]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=STATE, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    def up(self) -> None:
        """Start it."""
        self.run("up", "-n", "3", "--base-port", "0", "--set", "link-maintenance-interval=0.1")

    def primary(self) -> tuple[str, str]:
        """Return name and address of the active primary; empty if there is none."""
        found = json.loads(self.run("status", "-o", "json"))
        for broker in found["brokers"]:
            if broker.get("state") == "active":
                return str(broker["name"]), str(broker["address"])
        return "", ""

    def ask(self, *words: str) -> None:
        """Have `qpid-ha` ask the primary."""
        _, address = wait_for(self.primary, lambda found: found[0], what="the primary")
        command = [sys.executable, "-m", "qpidha.cli.main", *words, "-b", address]
        subprocess.run(command, check=True, timeout=STATE, stdout=subprocess.DEVNULL)

    def down(self) -> None:
        """End it."""
        self.run("down")


def depth(broker: Broker) -> int:
    """Return how many messages are on the queue of a broker alone."""
    return int(broker.call("list_queues", name="q")[0]["messages"])


class Chain:
    """One run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.ends = [Broker(name, options.folder, options=ALONE) for name in ("A", "B")]
        self.cluster = LocalCluster(options.folder / "cluster")
        self.kills = 0

    def run(self) -> dict[str, Any]:
        """Do everything; return what came of it."""
        options = self.options
        options.folder.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("spawn")
        no_more, all_taken = context.Event(), context.Event()
        sent, taken = context.Queue(), context.Queue()
        source, target = self.ends
        clients = [
            context.Process(target=offer, args=(source.address, options.rate, no_more, sent)),
            context.Process(target=take, args=(target.address, all_taken, taken)),
        ]
        try:
            self._begin()
            for client in clients:
                client.start()
            began = time.monotonic()
            while time.monotonic() - began < options.seconds:
                time.sleep(min(options.kill_every, options.seconds))
                self._kill()
            no_more.set()
            accepted = sent.get(timeout=STATE)
            drain = time.monotonic()
            wait_for(lambda: depth(source), (0).__eq__, what="what A has", deadline=LAST)
            # What is under way still comes while the receiver waits.
            wait_for(self._in_cluster, (0).__eq__, what="what the cluster has", deadline=LAST)
            drained = time.monotonic() - drain
            all_taken.set()
            counts = taken.get(timeout=LAST)
        finally:
            no_more.set()
            all_taken.set()
            for client in clients:
                if client.pid is not None:
                    client.join(STATE)
            for broker in self.ends:
                broker.close()
            self.cluster.down()
        came = sum(1 for count in counts if count)
        twice = sum(count - 1 for count in counts if count)
        return {
            "accepted": accepted,
            "received": came,
            "lost": accepted - came,
            "twice": twice,
            "kills": self.kills,
            "seconds": options.seconds,
            "drained_after": round(drained, 1),
            "dedup": options.dedup,
            "passed": accepted == came > 0 and (not options.dedup or twice == 0),
        }

    def _begin(self) -> None:
        words = ["--argument", "qpidha.dedup=message-id"] if self.options.dedup else []
        arguments = {"qpidha.dedup": "message-id"} if self.options.dedup else {}
        for broker in self.ends:
            broker.start()
            broker.wait_up()
            broker.call("declare_queue", name="q", durable=True, arguments=arguments)
        self.cluster.up()
        self.cluster.ask("queue", "add", "q", "--durable", *words)
        for link, broker in zip(("a", "b"), self.ends, strict=True):
            self.cluster.ask("link", "add", link, broker.address, "--durable")
        self.cluster.ask("route", "add", "in", "a", "q", "q", "--durable")
        self.cluster.ask("route", "add", "out", "b", "q", "q", "--push", "--durable")

    def _kill(self) -> None:
        name, _ = self.cluster.primary()
        if name:
            self.cluster.run("kill", name)
            self.kills += 1

    def _in_cluster(self) -> int:
        name, address = self.cluster.primary()
        if not name:
            return -1
        command = [sys.executable, "-m", "qpidha.cli.main", "queue", "list", "-o", "json"]
        done = subprocess.run(
            [*command, "-b", address], capture_output=True, text=True, timeout=STATE, check=False
        )
        rows = json.loads(done.stdout)["queues"] if done.returncode == 0 else []
        return next((int(row["messages"]) for row in rows if row["name"] == "q"), -1)


def main() -> int:
    """Run one chain."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.chain",
        description="Kill primaries in the middle of a chain of routes, and count.",
    )
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=10_000.0, help="messages a second, at A")
    parser.add_argument("--kill-every", type=float, default=10.0, help="seconds")
    parser.add_argument("--dedup", action="store_true", help="queues remember message ids")
    parser.add_argument("--dir", type=Path, default=None, help="new directory for logs and data")
    asked = parser.parse_args()
    folder = asked.dir or Path(tempfile.mkdtemp(prefix="qpidha-chain-"))
    summary = Chain(
        Options(folder.absolute(), asked.minutes * 60, asked.rate, asked.kill_every, asked.dedup)
    ).run()
    print(json.dumps(summary))
    return 0 if summary["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
