"""What a message costs inside a queue: `python -m tests.bench.queue_cost [--other TREE | --kinds]`.

One process, no sockets and no disk: messages are enqueued, dispatched to a consumer and dequeued,
with a log in memory that is sealed after every turn. With `--other` the queue of another working
copy is measured too, in turns with this one, so that both see the same machine; the ratio is that
of the best rounds. With `--kinds` each kind of queue is measured beside one in the order of
arrival.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
from pathlib import Path
from time import process_time_ns
from typing import Any

ROOT = Path(__file__).parent.parent.parent
MESSAGES = 100_000
TURNS = {"1 a turn": 1, "100 a turn": 100}
"""How many messages come in one turn."""
FIFO = "fifo"
KINDS: dict[str, dict[str, Any]] = {
    FIFO: {},
    "priorities": {"qpid.priorities": 10},
    "fair shares": {"x-priority-mode": "fair"},
    "time to live": {"x-message-ttl": 60_000},
    "delivery limit": {"x-delivery-limit": 5},
    "limits, alerts and dead letters": {
        "x-max-length": 1 << 20,
        "x-dead-letter-exchange": "amq.fanout",
        "qpid.alert_count": 1 << 19,
    },
    "last value": {"qpid.last_value_queue_key": "key"},
}
"""Kinds of queues, and their arguments."""
SETTINGS = {"default_queue_limit": 0, "queue_memory": 0, "ha_replicate": "all"}


class Consumer:
    """Takes what it gets, and keeps it until it is asked."""

    browse = exclusive = is_selective = False
    selector = None
    priority = 0

    def __init__(self) -> None:
        self.credit = 0
        self.got: list[Any] = []

    def deliver(self, message: Any) -> None:
        self.credit -= 1
        self.got.append(message)


def measure(size: int, kind: str) -> float:
    """Return the ns of CPU that each message takes, in turns of `size` messages."""
    from qpidha.broker.broker import Broker
    from qpidha.model.message_view import build
    from qpidha.model.settings import Settings
    from qpidha.store.log import Log

    log = Log(1 << 20)
    broker: Any = Broker(Settings(**SETTINGS), log, lambda announce: None, lambda: "uuid")  # type: ignore[arg-type]
    if kind != FIFO:
        from qpidha.model.features import FEATURES

        broker.features.update(dict.fromkeys(FEATURES, 0))
    queue, _ = broker.declare_queue("q", arguments=KINDS[kind])
    log.seal()
    consumer: Any = Consumer()
    queue.subscribe(consumer)
    payloads = [
        build(
            bytes(100),
            header={"priority": number % 10},
            application_properties={"key": f"value-{number}"},
        )
        for number in range(size)
    ]
    gc.collect()
    gc.disable()
    begun = process_time_ns()
    for _ in range(MESSAGES // size):
        for payload in payloads:
            queue.enqueue(payload)
        log.seal()
        consumer.credit = size
        queue.wake(consumer)
        broker.dispatch(1)
        got, consumer.got = consumer.got, []
        for message in got:
            queue.dequeue(message)
        log.seal()
    spent = process_time_ns() - begun
    assert not queue.messages
    return spent / MESSAGES


def best(cases: list[tuple[Path, str]], size: int, rounds: int) -> list[float]:
    """Measure each working copy and kind `rounds` times, in turns; return the best of each."""
    found: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        for (tree, kind), times in zip(cases, found, strict=True):
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            command = [sys.executable, __file__, "--measure", str(size), kind]
            done = subprocess.run(command, env=environment, capture_output=True, check=True)
            times.append(float(done.stdout))
    return [min(times) for times in found]


def main() -> None:
    """Print a line for each kind of turn."""
    parser = argparse.ArgumentParser(description="Measure what a message costs inside a queue.")
    parser.add_argument("--other", type=Path, help="working copy to compare with")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kinds", action="store_true", help="measure all kinds of queues")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(measure(int(options.measure[0]), options.measure[1]))
        return
    cases = [(ROOT, kind) for kind in (KINDS if options.kinds else [FIFO])]
    if options.other is not None:
        cases.append((options.other.resolve(), FIFO))
    for turn, size in TURNS.items():
        times = best(cases, size, options.rounds)
        for (tree, kind), time in zip(cases, times, strict=True):
            name = kind if tree == ROOT else f"{kind} of {tree}"
            print(f"{turn}, {name}: {time:.0f} ns a message, {time / times[0]:.3f}")


if __name__ == "__main__":
    main()
