"""How long the slowest acceptances take while a broker has much else to do:
`python -m tests.bench.tail [--messages 1000000] [--rounds 3] [--limit 10]`.

Three brokers and a sender of 5,000 messages a second, which a consumer takes: first with nothing
beside it; then while the third broker comes without data and gets a million messages, while a
checkpoint of a million messages is written, and while a queue of a million is purged, deleted, or
expires. A message's time begins when it was due, so what is late for one turn counts for all that
turn delays. For each: percentiles of acceptance, and the longest turns of the primary by the CPU
that its thread took (`tests/bench/turns.py`), which is the same beside other work. The generator
and three brokers share the machine, and a backup that catches up takes a core: `quiet` tells what
there is to compare with. Figures are medians of the rounds.

Exits with 1 if a 99.9th percentile is over the limit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.backlog import QUEUE as LONG
from tests.bench.backlog import depth, directory_size, fill, kill, parser, seconds_until, started
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError, wait_until
from tests.bench.subjects import GRACE, build
from tests.bench.turns import TURN, read

LIVE, BALLAST = "live", "ballast"
RATE = 5000
FIGURES = ("p50", "p99", "p999", "max")
PATIENCE = 600.0
SLACK = 100 << 20
"""Bytes that a log may have beyond what a checkpoint is made for, and some more."""
LEAST = 2.0
"""Seconds that a run takes at least, for as many samples as a 99.9th percentile needs."""


class Sender:
    """The generator, from its start until it is told to end."""

    def __init__(self, brokers: QpidhaBrokers, *, is_durable: bool) -> None:
        command = [build("amqpbench"), "-n", "10000000", "-r", str(RATE), "-T", "3600"]
        command += ["-t", "3600", "-a", LIVE, *["-d"] * is_durable, brokers.address]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.began = time.time()

    def end(self) -> dict[str, float]:
        """Send no more; the percentiles of acceptance, in milliseconds."""
        time.sleep(max(0.0, self.began + LEAST - time.time()))
        self._process.terminate()
        out, _ = self._process.communicate(timeout=GRACE)
        found = json.loads(out)
        if found["timed_out"] or found["rejected"]:
            raise BenchError(f"not every message was accepted: {found}")
        return {name: float(found[f"ack_{name}_ms"]) for name in FIGURES}


class Tails:
    """One cluster, and what is measured of it."""

    def __init__(self, folder: Path, ask: argparse.Namespace) -> None:
        self.folder, self.ask = folder, ask
        options = ["--link-heartbeat-interval=2", "--link-maintenance-interval=0.1"]
        self.brokers = started(
            QpidhaBrokers(folder, 3, options=options, module="tests.bench.turns")
        )
        self.rows: dict[str, dict[str, float]] = {}

    def run(self) -> None:
        """Measure what is wanted."""
        self.brokers.declare(LIVE, durable=True)
        self.brokers.declare(BALLAST, durable=True)
        ways: dict[str, Callable[[], object]] = {
            "quiet": lambda: time.sleep(self.ask.seconds),
            "catch-up": self.catch_up,
            "checkpoint": self.checkpoint,
            "purge": lambda: self.ask_primary("purge_queue", name=LONG),
            "delete": lambda: self.ask_primary("delete_queue", name=LONG),
            "expiry": self.expiry,
        }
        for name in self.ask.cases.split(",") if self.ask.cases else ways:
            self.prepare(name)
            self.measure(name, ways[name])

    def prepare(self, name: str) -> None:
        """Have the long queue full, unless that is not wanted, and nothing else to do."""
        if name != "quiet" and depth(self.brokers, 0) < self.ask.messages:
            self.brokers.declare(LONG, durable=True)
            fill(self.brokers, self.ask.messages, self.ask.size)
        if name == "checkpoint":
            # As many bytes again that are gone at once: a checkpoint is worth its while then.
            size = self.ask.messages * 150 + SLACK
            fill(self.brokers, size >> 18, 1 << 18, queue=BALLAST, window=20)
        self.settle()
        if name == "catch-up":
            kill(self.brokers, 2)
            shutil.rmtree(self.folder / "b3" / "data")

    def measure(self, name: str, what: Callable[[], object]) -> None:
        """Do something while the sender runs."""
        sender = Sender(self.brokers, is_durable=self.ask.durable)
        time.sleep(0.5)
        began = time.time()
        try:
            what()
        finally:
            seconds = time.time() - began
            row = sender.end()
        turns = sorted(
            (noted for noted in read(self.folder / "b1", began) if noted.kind == TURN),
            key=lambda turn: turn.cpu_ms,
        )
        row |= {
            "turn": turns[-1].cpu_ms if turns else 0.0,
            "over_5": sum(turn.cpu_ms > 5 for turn in turns),
            "seconds": seconds,
        }
        self.rows[name] = row
        for number in range(3):
            noted = sorted(read(self.folder / f"b{number + 1}", began), key=lambda one: -one.ms)
            for one in noted[: self.ask.noted]:
                print(
                    f"{name} b{number + 1} {one.kind} at {one.ended - began:.3f} s: "
                    f"{one.ms:.1f} ms, {one.cpu_ms:.1f} of CPU: {one.where}",
                    file=sys.stderr,
                )

    def ask_primary(self, method: str, **params: Any) -> None:
        with self.brokers.talk(0) as ask:
            ask(method, **params)

    def catch_up(self) -> None:
        """Let the third broker come, and get everything."""
        self.brokers.start(2)
        seconds_until(lambda: self.brokers.state(2) == "ready", "the third is ready", PATIENCE)
        if (found := depth(self.brokers, 2)) != self.ask.messages:
            raise BenchError(f"the third broker has {found} of {self.ask.messages} messages")

    def checkpoint(self) -> None:
        """Have a checkpoint worth its while, and wait for it."""
        before = self.checkpoints()
        self.ask_primary("purge_queue", name=BALLAST)
        seconds_until(
            lambda: bool(self.checkpoints() - before) and not self.partials(1),
            "the primary has made a checkpoint",
            PATIENCE,
        )

    def expiry(self) -> None:
        """Give the long queue a time to live that is over at once."""
        self.ask_primary(
            "set_policy", name="ttl", pattern=f"^{LONG}$", definition={"message-ttl": 1}
        )
        seconds_until(lambda: depth(self.brokers, 0) == 0, "all have expired", PATIENCE)

    def checkpoints(self) -> set[str]:
        """Name the checkpoints of the primary."""
        return {path.name for path in (self.folder / "b1/data/journal").glob("*.checkpoint")}

    def partials(self, brokers: int) -> bool:
        """Whether one of the first brokers writes a checkpoint."""
        return any(
            next((self.folder / f"b{number + 1}/data/journal").glob("*.partial"), None)
            for number in range(brokers)
        )

    def settle(self) -> None:
        """Wait until no broker has anything to do for three seconds."""
        wait_until(self.brokers.all_ready, "all are ready", watched=self.brokers.running)
        since, size = time.monotonic(), -1
        while time.monotonic() - since < 3:
            now = sum(directory_size(self.folder / f"b{n + 1}/data/journal") for n in range(3))
            if self.partials(3) or now != size:
                since, size = time.monotonic(), now
            time.sleep(0.1)


def line(name: str, row: dict[str, float]) -> str:
    """One row of the table."""
    figures = "".join(f"{row[each]:9.2f}" for each in (*FIGURES, "turn"))
    return f"{name:12}{figures}{row['over_5']:8.0f}{row['seconds']:9.1f}"


def main() -> int:
    """Measure, and print."""
    made = parser(__doc__ or "", 1_000_000)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--limit", type=float, default=10.0, help="ms, of the 99.9th percentile")
    made.add_argument("--seconds", type=float, default=10.0, help="of the quiet run")
    made.add_argument("--durable", action="store_true", help="let the sender's messages be so")
    made.add_argument("--cases", default="", help="only these rows, separated by commas")
    made.add_argument("--noted", type=int, default=0, help="tell of so many long turns of each")
    ask = made.parse_args()
    rounds: list[dict[str, dict[str, float]]] = []
    heads = (*FIGURES, "turn ms")
    title = f"{'ms':12}{''.join(f'{each:>9}' for each in heads)}{'>5 ms':>8}{'seconds':>9}"
    for number in range(ask.rounds):
        folder = Path(tempfile.mkdtemp(prefix="qpidha-bench-"))
        tails = Tails(folder, ask)
        try:
            tails.run()
        except (BenchError, subprocess.TimeoutExpired, OSError) as failure:
            print(f"bench: error: {failure}; logs are in {folder}", file=sys.stderr)
            return 1
        finally:
            with contextlib.suppress(subprocess.TimeoutExpired):
                tails.brokers.down()
        shutil.rmtree(folder, ignore_errors=True)
        rounds.append(tails.rows)
        if ask.output == "text" and ask.rounds > 1:
            print(f"round {number + 1}", title, sep="\n")
            print("\n".join(line(*row) for row in tails.rows.items()), flush=True)
    medians = {
        name: {key: statistics.median(each[name][key] for each in rounds) for key in row}
        for name, row in rounds[0].items()
    }
    if ask.output == "json":
        print(json.dumps(medians))
    else:
        print("median", title, *(line(*row) for row in medians.items()), sep="\n")
    late = [name for name, row in medians.items() if row["p999"] > ask.limit]
    if late:
        print(f"bench: p99.9 over {ask.limit:g} ms: {', '.join(late)}", file=sys.stderr)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
