"""Load: a sender or a receiver, each a process of its own, on the client that applications use.

With `--rate` the sender sends numbered messages by the clock, without it as fast as its window
allows. The client goes on at the next primary and sends again what has no outcome. Reports go to
standard output as JSON lines, the last with `done`. Standard input has `stop`, or for a receiver
the number of messages that it is to wait for; its end ends the process. With `--record` ids and
times go to a file, as pairs of 64-bit integers (id, time in ns).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from array import array
from collections import deque
from typing import Any

from qpidha.bench.counts import percentile
from qpidha.client.blocking import Client
from qpidha.client.endpoint import Endpoint, Tls
from qpidha.client.errors import ClientError, DeliveryLost
from qpidha.client.links import Delivery
from qpidha.client.message import Message

TICK = 0.01
"""Seconds between two looks at the clock."""
REPORT = 0.1
"""Seconds between two reports."""
LOGIN = "QPIDHA_BENCH_LOGIN"
"""Variable of the environment with how to log in, as JSON."""
CREDIT = 200
"""Messages that a receiver has asked for at any time."""


def _login() -> dict[str, Any]:
    """User, password, mechanism and files for TLS, which are in the environment: others can read
    our command line.
    """
    found = json.loads(os.environ.get(LOGIN, "{}"))
    return {**found, "tls": Tls(**found["tls"])} if found else {}


class Load:
    """What sender and receiver share: commands, reports, and the record."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.record: array[int] = array("q")
        self.stopping = False
        self.client = Client(
            arguments.addresses,
            **_login(),
            timeout=None,
            reconnect_timeout=arguments.patience or None,
            heartbeat=arguments.heartbeat,
            on_event=self._on_event,
        )
        self._reported_at = 0.0

    def run(self) -> None:
        """Work until everything is done."""
        with self.client as client:
            self.attach(client)
            while not self.work():
                client.wait(self.has_news, TICK)
                self._report()
            self._write()
            self.say({**self.report(), **self.result(), "done": True})

    def attach(self, client: Client) -> None:
        """Attach the link."""
        raise AssertionError("a load is a sender or a receiver")

    def has_news(self) -> bool:
        """Whether something came that is to be looked at."""
        return False

    def work(self) -> bool:
        """Do what the time asks for; return whether everything is done."""
        return True

    def report(self) -> dict[str, Any]:
        """Say how far it is."""
        return {"time_ns": time.time_ns()}

    def result(self) -> dict[str, Any]:
        """Say what came of it."""
        return {}

    def command(self, word: str | int) -> None:
        """Take a command."""
        self.stopping = True

    def lost(self) -> None:
        """The connection is lost; the client goes on by itself."""

    def say(self, report: dict[str, Any]) -> None:
        """Write one report."""
        print(json.dumps(report), flush=True)

    def _on_event(self, event: str, endpoint: Endpoint, error: ClientError | None) -> None:
        if event == "lost":
            self.lost()
        if event in ("connected", "lost"):
            name = "connected" if event == "connected" else "disconnected"
            self.say({"time_ns": time.time_ns(), name: str(endpoint)})

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._reported_at < REPORT:
            return
        self._reported_at = now
        self.say(self.report())
        if select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline()
            if not line:
                sys.exit(1)  # Whoever conducts us is gone.
            self.command(json.loads(line))

    def _write(self) -> None:
        if self.arguments.record:
            with open(self.arguments.record, "wb") as file:
                self.record.tofile(file)


class SenderLoad(Load):
    """Sends messages and keeps at most a window of them without an outcome."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments)
        self.sent = self.accepted = self.sent_again = self.refused = 0
        self._again: deque[int] = deque()
        """Numbers of messages that were not accepted."""
        self._under_way: dict[Delivery, tuple[int, float]] = {}
        """Delivery -> (number, time at which it was sent)."""
        self._outcomes: deque[tuple[Delivery, float]] = deque()
        """What the client's callback leaves to be done: it may come from another thread."""
        self._latencies: list[float] = []
        body = b"x" * max(0, arguments.size)
        self._payload = Message(body, durable=arguments.durable).encode()
        self._began = time.perf_counter()
        self._ended = self._began

    def attach(self, client: Client) -> None:
        self._sender = client.sender(
            self.arguments.queue, window=self.arguments.window, on_outcome=self._heard
        )
        self._began = time.perf_counter()

    def _heard(self, delivery: Delivery) -> None:
        self._outcomes.append((delivery, time.perf_counter()))

    def has_news(self) -> bool:
        return bool(self._outcomes)

    def lost(self) -> None:
        self.sent_again += self._sender.unsettled

    def work(self) -> bool:
        while self._outcomes:
            self._decide(*self._outcomes.popleft())
        due = self._due()
        while len(self._under_way) < self.arguments.window and (self._again or due > 0):
            if self._again:
                self.sent_again += 1
                self._send(self._again.popleft())
            else:
                due -= 1
                self.sent += 1
                self._send(self.sent)
        return self.stopping and not self._under_way and not self._again

    def _due(self) -> int:
        """How many messages are to be sent now; beyond that an outcome has to come first."""
        ask, now = self.arguments, time.perf_counter()
        if (ask.seconds and now - self._began >= ask.seconds) or (
            ask.messages and self.sent >= ask.messages
        ):
            self.stopping = True
        if self.stopping:
            return 0
        most = ask.messages - self.sent if ask.messages else sys.maxsize
        if not ask.rate:
            return min(most, int(ask.window))
        due = int((now - self._began) * ask.rate) - self.sent
        # After an outage the backlog of the clock is not made up for in one burst.
        if due > ask.rate:
            self._began += (due - ask.rate) / ask.rate
            due = int(ask.rate)
        return min(most, due)

    def _send(self, number: int) -> None:
        if self.arguments.record:
            message = Message(
                b"x" * self.arguments.size, durable=self.arguments.durable, message_id=number
            )
        else:
            message = Message.decode(self._payload)
        now = time.perf_counter()
        self._under_way[self._sender.send_nowait(message)] = (number, now)

    def _decide(self, delivery: Delivery, at: float) -> None:
        number, sent_at = self._under_way.pop(delivery)
        if delivery.error is not None:
            raise delivery.error
        if delivery.outcome is None or not delivery.outcome.accepted:
            self.refused += 1
            self._again.append(number)
            return
        self.accepted += 1
        self._ended = at
        if self.arguments.record:
            self.record.append(number)
            self.record.append(time.time_ns())
        else:
            self._latencies.append(at - sent_at)

    def report(self) -> dict[str, Any]:
        return {
            "time_ns": time.time_ns(),
            "sent": self.sent,
            "accepted": self.accepted,
            "unsettled": len(self._under_way) + len(self._again),
            "sent_again": self.sent_again,
            "refused": self.refused,
        }

    def result(self) -> dict[str, Any]:
        ordered = sorted(self._latencies)
        milliseconds = {
            "p50": round(percentile(ordered, 0.5) * 1e3, 3),
            "p99": round(percentile(ordered, 0.99) * 1e3, 3),
            "max": round((ordered[-1] if ordered else 0.0) * 1e3, 3),
        }
        return {"seconds": self._ended - self._began, "latency_ms": milliseconds}


class ReceiverLoad(Load):
    """Receives and accepts, until it is asked to stop or has as many as it was told."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        super().__init__(arguments)
        self.received = 0
        self.expected = sys.maxsize
        self._seen: set[int] = set()
        self._began = self._ended = 0.0

    def attach(self, client: Client) -> None:
        self._receiver = client.receiver(self.arguments.queue, credit=CREDIT)

    def has_news(self) -> bool:
        return self._receiver.buffered > 0

    def command(self, word: str | int) -> None:
        if isinstance(word, int):
            self.expected = word
        else:
            self.stopping = True

    def work(self) -> bool:
        for _ in range(min(self._receiver.buffered, CREDIT)):
            message = self._receiver.receive_nowait()
            if message is None:
                break
            try:
                message.accept()
            except DeliveryLost:
                continue  # It comes again.
            self.received += 1
            self._ended = time.perf_counter()
            self._began = self._began or self._ended
            if self.arguments.record:
                number = int(message.properties.message_id)
                self.record.append(number)
                self.record.append(time.time_ns())
                self._seen.add(number)
        return self.stopping or self.received >= self.expected

    def report(self) -> dict[str, Any]:
        return {
            "time_ns": time.time_ns(),
            "deliveries": self.received,
            "received": len(self._seen) if self.arguments.record else self.received,
        }

    def result(self) -> dict[str, Any]:
        return {"seconds": self._ended - self._began}


def main(arguments: list[str] | None = None) -> int:
    """Run a sender or a receiver until it is done."""
    parser = argparse.ArgumentParser(prog="python -m qpidha.bench.load")
    parser.add_argument("role", choices=("sender", "receiver"))
    parser.add_argument("--addresses", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--record", default="", help="file for ids and times")
    parser.add_argument("--heartbeat", type=float, default=10.0, help="in seconds")
    parser.add_argument("--patience", type=float, default=0.0, help="seconds without a broker")
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0: all it can")
    parser.add_argument("--seconds", type=float, default=0.0, help="end of sending; 0: when told")
    parser.add_argument("--messages", type=int, default=0, help="end of sending; 0: no limit")
    parser.add_argument("--window", type=int, default=500)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--durable", action="store_true")
    parsed = parser.parse_args(arguments)
    load = SenderLoad(parsed) if parsed.role == "sender" else ReceiverLoad(parsed)
    try:
        load.run()
    except ClientError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
