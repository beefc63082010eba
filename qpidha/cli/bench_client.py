"""Bench clients: a sender or a receiver at full speed, each a process of its own, on our own client.

The sender keeps a window of messages unsettled and times each from its send to its acceptance. Reports go to standard
output as JSON lines, the last with `done`; the end of standard input ends the process.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time

from qpidha.cli.arguments import Options
from qpidha.cli.client import Client
from qpidha.cli.exits import Failure, report
from qpidha.cli.measure import percentile
from qpidha.cli.target import parse
from qpidha.words.message_view import build

REPORT = 0.2
"""Seconds between two reports."""


class Sender:
    """Sends for some seconds or some messages, whichever is first."""

    def __init__(self, client: Client, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.client = client
        self.outbox = client.sender(arguments.queue)
        self.outbox.on_outcome = self._settled
        self.sent = 0
        self.began = time.perf_counter()
        self.ended = self.began
        self._sent_at: dict[int, float] = {}
        self._latencies: list[float] = []
        self._payload = build(b"x" * arguments.size, header={"durable": True} if arguments.durable else None)

    def work(self) -> bool:
        """Fill the window and read outcomes; whether there is more to do."""
        now = time.perf_counter()
        over = now - self.began >= self.arguments.seconds
        limit = self.sent if over else (self.arguments.messages or sys.maxsize)
        room = min(self.arguments.window - (self.sent - self.outbox.settled), self.outbox.credit, limit - self.sent)
        for _ in range(room):
            self._sent_at[self.outbox.send(self._payload)] = now
        self.sent += max(0, room)
        self.client.pump(0.05)
        return self.sent < limit or self.outbox.settled < self.sent

    def report(self) -> dict[str, object]:
        """Say how far it is."""
        accepted = self.outbox.accepted
        return {"time_ns": time.time_ns(), "sent": self.sent, "accepted": accepted, "unsettled": self.sent - self.outbox.settled}

    def result(self) -> dict[str, object]:
        """Say what came of it."""
        ordered = sorted(self._latencies)
        milliseconds = {
            "p50": round(percentile(ordered, 0.5) * 1e3, 3),
            "p99": round(percentile(ordered, 0.99) * 1e3, 3),
            "max": round((ordered[-1] if ordered else 0.0) * 1e3, 3),
        }
        return {**self.report(), "seconds": self.ended - self.began, "latency_ms": milliseconds, "done": True}

    def _settled(self, number: int) -> None:
        self.ended = time.perf_counter()
        self._latencies.append(self.ended - self._sent_at.pop(number))


class Receiver:
    """Receives until it is told how many there are and has them."""

    def __init__(self, client: Client, arguments: argparse.Namespace) -> None:
        self.client = client
        self.inbox = client.receiver(arguments.queue)
        self.inbox.on_message = self._received
        self.received = 0
        self.expected = sys.maxsize
        self.began = 0.0
        self.ended = 0.0

    def work(self) -> bool:
        """Read; whether there is more to do."""
        if self.received < self.expected:
            self.client.pump(0.05)
        return self.received < self.expected

    def report(self) -> dict[str, object]:
        """Say how far it is."""
        return {"time_ns": time.time_ns(), "received": self.received}

    def result(self) -> dict[str, object]:
        """Say what came of it."""
        return {**self.report(), "seconds": self.ended - self.began, "done": True}

    def _received(self, payload: bytes) -> None:
        self.received += 1
        self.ended = time.perf_counter()
        self.began = self.began or self.ended


def main(arguments: list[str] | None = None) -> int:
    """Run a sender or a receiver."""
    parser = argparse.ArgumentParser(prog="python -m qpidha.cli.bench_client")
    parser.add_argument("role", choices=("sender", "receiver"))
    parser.add_argument("--broker", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--record", default="")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--window", type=int, default=500)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--durable", action="store_true")
    parsed = parser.parse_args(arguments)
    try:
        client = Client(parse(parsed.broker), Options(), follow=True)
        worker: Sender | Receiver = Sender(client, parsed) if parsed.role == "sender" else Receiver(client, parsed)
        _run(worker)
        client.close()
    except Failure as failure:
        return report(failure, as_json=False)
    return 0


def _run(worker: Sender | Receiver) -> None:
    _say({"time_ns": time.time_ns(), "connected": True})
    reported = 0.0
    while worker.work():
        now = time.perf_counter()
        if worker.client.connection.closed:
            raise Failure(1, "the broker ended the connection")
        if now - reported >= REPORT:
            reported = now
            _say(worker.report())
            if select.select([sys.stdin], [], [], 0)[0]:
                line = sys.stdin.readline()
                if not line or not isinstance(worker, Receiver):
                    sys.exit(1)  # Whoever conducts us is gone.
                worker.expected = int(json.loads(line))
    _say(worker.result())


def _say(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
