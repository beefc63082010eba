"""What a message costs inside a queue: `python -m tests.bench.queue_cost [--other TREE]`.

One process, no sockets and no disk: messages are enqueued, dispatched to a consumer and dequeued,
with a log in memory that is sealed after every turn. With `--other` the queue of another working
copy is measured too, in turns with this one, so that both see the same machine; the ratio is that
of the best rounds.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
from pathlib import Path
from time import process_time_ns
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parent.parent.parent
MESSAGES = 100_000
TURNS = {"1 a turn": 1, "100 a turn": 100}
"""How many messages come in one turn."""
SETTINGS = SimpleNamespace(
    default_queue_limit=0,
    queue_memory=0,
    max_queues=10,
    max_exchanges=10,
    max_bindings=10,
    ha_replicate="all",
)


class Consumer:
    """Takes what it gets, and keeps it until it is asked."""

    browse = exclusive = is_selective = False
    cursor = 0

    def __init__(self) -> None:
        self.credit = 0
        self.got: list[Any] = []

    def deliver(self, message: Any) -> None:
        self.credit -= 1
        self.got.append(message)


def measure(size: int) -> float:
    """Return the ns of CPU that each message takes, in turns of `size` messages."""
    from qpidha.broker.broker import Broker
    from qpidha.store.log import Log

    log = Log(1 << 20)
    broker: Any = Broker(SETTINGS, log, lambda announce: None, lambda: "uuid")  # type: ignore[arg-type]
    queue, _ = broker.declare_queue("q")
    log.seal()
    consumer: Any = Consumer()
    queue.subscribe(consumer)
    payload = bytes(100)
    gc.collect()
    gc.disable()
    begun = process_time_ns()
    for _ in range(MESSAGES // size):
        for _ in range(size):
            queue.enqueue(payload)
        log.seal()
        consumer.credit = size
        broker.dispatch(1)
        got, consumer.got = consumer.got, []
        for message in got:
            queue.dequeue(message)
        log.seal()
    spent = process_time_ns() - begun
    assert not queue.messages
    return spent / MESSAGES


def best(trees: list[Path], size: int, rounds: int) -> list[float]:
    """Measure each working copy `rounds` times, in turns; return the best of each."""
    found: list[list[float]] = [[] for _ in trees]
    for _ in range(rounds):
        for tree, times in zip(trees, found, strict=True):
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            command = [sys.executable, __file__, "--measure", str(size)]
            done = subprocess.run(command, env=environment, capture_output=True, check=True)
            times.append(float(done.stdout))
    return [min(times) for times in found]


def main() -> None:
    """Print a line for each kind of turn."""
    parser = argparse.ArgumentParser(description="Measure what a message costs inside a queue.")
    parser.add_argument("--other", type=Path, help="working copy to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(options.measure))
        return
    trees = [ROOT] if options.other is None else [ROOT, options.other.resolve()]
    for name, size in TURNS.items():
        times = best(trees, size, options.rounds)
        ratio = f"   {times[0] / times[1]:.3f} of the other's {times[1]:.0f}" if times[1:] else ""
        print(f"{name}: {times[0]:.0f} ns a message{ratio}")


if __name__ == "__main__":
    main()
