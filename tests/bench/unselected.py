"""What it costs that a consumer waits whose selector finds nothing: `python -m
tests.bench.unselected`.

One broker alone gets messages on a queue for which nobody waits, on one where a consumer with a
selector waits that selects none of them, and on one where such a consumer waits behind a million of
them. Prints the CPU time of the broker for each message that comes, the median of rounds in which
the three take turns. What is not selected stays, so nobody takes anything.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from qpidha.client.blocking import Client
from tests.bench.backlog import parser, run
from tests.bench.cases import ANY_KIND
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError, cpu_seconds
from tests.bench.subjects import build, generate

SELECTOR = "key = 'none'"
ALONE, WAITING, BEHIND = QUEUES = ("nobody-waits", "one-waits", "one-waits-behind-the-backlog")
PATIENCE = 600.0
"""Seconds in which the broker looks at all messages of a queue, at most."""


def send(brokers: QpidhaBrokers, queue: str, messages: int, size: int) -> None:
    """Send messages that nobody consumes."""
    flags = ("-n", str(messages), "-c", "0", "-s", str(size), "-a", queue, "-t", f"{PATIENCE:.0f}")
    found = generate([build("amqpbench"), *flags, *ANY_KIND, brokers.address], PATIENCE)
    if found["acked"] < messages:
        raise BenchError(f"not every message was accepted: {found}")


def rounds(brokers: QpidhaBrokers, ask: argparse.Namespace) -> list[dict[str, float]]:
    """Load the three in turn; return the us of CPU that each message took, a row for each round."""
    found = []
    with ExitStack() as stack:
        client = stack.enter_context(Client(brokers.address))
        for queue in QUEUES:
            brokers.declare(queue)
        send(brokers, BEHIND, ask.backlog, ask.size)
        waiting = {queue: client.receiver(queue, selector=SELECTOR) for queue in (WAITING, BEHIND)}
        for number in range(ask.rounds + 1):
            row = {}
            for queue in QUEUES:
                # The answer to a drain says that all messages have been looked at.
                if number == 0 and queue in waiting:
                    waiting[queue].drain(PATIENCE)
                before = cpu_seconds(brokers.pids())
                send(brokers, queue, ask.messages, ask.size)
                if queue in waiting and waiting[queue].drain(PATIENCE):
                    raise BenchError(f"{queue} gave a message that was not selected")
                spent = cpu_seconds(brokers.pids()) - before
                row[queue] = round(spent / ask.messages * 1e6, 2)
            print(f"bench: round {number} of {ask.rounds}  {row}", file=sys.stderr)
            found.append(row)
    return found[1:]  # the first one warms up


def measure(ask: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure on a broker of our own."""
    brokers = QpidhaBrokers(folder, 1)
    try:
        brokers.up()
        found = rounds(brokers, ask)
    finally:
        brokers.down()
    return {
        f"us of CPU a message, {queue.replace('-', ' ')}": statistics.median(
            row[queue] for row in found
        )
        for queue in QUEUES
    }


def main() -> int:
    """Measure, and print what came of it."""
    made = parser("Messages come that a waiting consumer does not select.", 40_000)
    made.add_argument("--backlog", type=int, default=1_000_000)
    made.add_argument("--rounds", type=int, default=5)
    return run(made.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
