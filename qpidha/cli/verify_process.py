"""What the clients of the verification workload have in common: numbers of processes and operations, reports, confirmed outcomes.

An operation whose outcome is not known retires its process number, as in Jepsen's histories: each connection is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from proton import Delivery, Event, Message
from proton.handlers import IncomingMessageHandler
from proton.reactor import Container

from qpidha.connector.failover_client import FailoverClient
from qpidha.pipeline.history import History

REPORT = 0.5
"""Seconds between two reports."""
PROCESSES = 1_000_000
"""Process numbers are this times the client, plus how many processes it had before."""


class VerifyClient(FailoverClient):
    """What all have in common: process numbers, operation numbers, commands and reports."""

    OPENING = 1.5

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask.addresses, ask.queues[0], heartbeat=ask.heartbeat, login=ask.login)
        self.ask = ask
        self.index: int = ask.index
        self.history = history
        self.session = 0
        self.operation: int = ask.index << 40
        self.stopping = False
        self.draining = False
        self.done = False
        self._reported = 0.0

    @property
    def process(self) -> int:
        """The number of this connection's process."""
        return self.index * PROCESSES + self.session

    def begin(self) -> int:
        """Number a new operation; numbers of different clients differ."""
        self.operation += 1
        return self.operation

    def open_link(self, container: Container, connection: Any) -> None:
        self.session += 1
        self.open_links(container, connection)

    def open_links(self, container: Container, connection: Any) -> None:
        """Attach what this client needs."""
        raise AssertionError("a client has links")

    def report(self) -> dict[str, Any]:
        """Say how far it is."""
        return {}

    def work(self) -> None:
        if time.monotonic() - self._reported > REPORT:
            self.say()

    def say(self) -> None:
        """Write one report."""
        self._reported = time.monotonic()
        serving = self.dialled if self.connection is not None and self.opened else ""
        error = "".join((self.errors or self.losses)[-1:])
        about = {"time_ns": time.time_ns(), "lost_connections": len(self.losses), "serving": serving, "error": error}
        print(json.dumps({**about, "done": self.done, **self.report()}), flush=True)

    def tick(self) -> None:
        super().tick()
        if self.connection is None and time.monotonic() - self._reported > REPORT:
            self.say()


class Settling(VerifyClient):
    """A client whose outcomes the broker confirms: `settled` is called when it has."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        # Proton's own handler would accept and settle at once.
        self.handlers: list[Any] = [handler for handler in self.handlers if not isinstance(handler, IncomingMessageHandler)]

    def on_delivery(self, event: Event) -> None:
        """Take a message, or the broker's settlement of an outcome."""
        delivery = event.delivery
        if event.connection != self.connection or not delivery.link.is_receiver:
            return
        if delivery.settled:
            self.settled(delivery)
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            message = Message()
            message.decode(delivery.link.recv(delivery.pending))
            delivery.link.advance()
            self.take(delivery, message)

    def take(self, delivery: Delivery, message: Message) -> None:
        """A message came."""

    def settled(self, delivery: Delivery) -> None:
        """The broker has settled a delivery."""
