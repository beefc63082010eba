"""What the clients of the verification workload have in common: connections, numbers of processes
and operations, reports.

An operation whose outcome is not known retires its process number, as in Jepsen's histories: each
connection is a process of its own. So the client goes on by itself, with a new connection, and
sends again by itself; both are written into the history.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from qpidha.client.blocking import Client, Receiver
from qpidha.client.endpoint import Tls
from qpidha.client.errors import ClientError, DeliveryLost
from qpidha.client.links import Received
from qpidha.pipeline.history import History

REPORT = 0.5
"""Seconds between two reports."""
PROCESSES = 1_000_000
"""Process numbers are this times the client, plus how many processes it had before."""
TICK = 0.01
"""Seconds between two looks at the clock."""
RETRY = 0.02
"""Seconds between two attempts to connect."""
OPENING = 1.5
"""Seconds after which a broker that does not answer is given up; a stopped one still takes
connections.
"""
ANSWER = 5.0
"""Seconds for a broker to answer an attach or a drain."""
GOODBYE = 1.0
REMEMBERED = 10
"""Losses and errors that are kept."""


class VerifyClient:
    """What all have in common: one connection at a time, process and operation numbers, commands
    and reports.
    """

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        self.ask = ask
        self.address: str = ask.queues[0]
        self.index: int = ask.index
        self.history = history
        self.session = 0
        self.operation: int = ask.index << 40
        self.stopping = False
        self.draining = False
        self.done = False
        self.serving = ""
        """The address of the present connection."""
        self.lost_connections = 0
        self.errors: deque[str] = deque(maxlen=REMEMBERED)
        self.heard: deque[Callable[[], None]] = deque()
        """What the client's callbacks leave to be done here: they may come from another thread."""
        self._reported = 0.0
        self._turn = 0

    @property
    def process(self) -> int:
        """The number of this connection's process."""
        return self.index * PROCESSES + self.session

    def begin(self) -> int:
        """Number a new operation; numbers of different clients differ."""
        self.operation += 1
        return self.operation

    def run(self, ending: threading.Event) -> None:
        """Work until told to end, through every failover."""
        while not ending.is_set():
            client = self._connect()
            if client is None:
                self.report_if_due()
                ending.wait(RETRY)
                continue
            try:
                self.attach(client)
                while not ending.is_set():
                    self.work()
                    self.report_if_due()
                    client.wait(self.has_news, TICK)
                    self._listen()
            except ClientError as error:
                self._failed(error)
                self._listen()
                self.link_lost()
            finally:
                self.serving = ""
                with suppress(ClientError):
                    client.close(GOODBYE)

    # What subclasses do.

    def attach(self, client: Client) -> None:
        """Attach what this client needs."""
        raise AssertionError("a client has links")

    def has_news(self) -> bool:
        """Whether something came that is to be looked at."""
        return bool(self.heard)

    def work(self) -> None:
        """Do what can be done now; called every 10 ms and whenever there is news."""

    def link_lost(self) -> None:
        """Forget what was on the lost connection."""

    def report(self) -> dict[str, Any]:
        """Say how far it is."""
        return {}

    # The connection.

    def _connect(self) -> Client | None:
        address = self.ask.addresses[self._turn % len(self.ask.addresses)]
        self._turn += 1
        client = Client(
            f"{'amqps' if self.ask.tls else 'amqp'}://{address}",
            user=self.ask.user,
            password=self.ask.password,
            tls=Tls(trusted=self.ask.trusted),
            timeout=ANSWER,
            reconnect_timeout=0.0,
            heartbeat=self.ask.heartbeat,
        )
        try:
            client.open(OPENING)
        except ClientError as error:
            self._failed(error)
            with suppress(ClientError):
                client.close(0.0)
            return None
        self.session += 1
        self.serving = str(client.endpoint)
        return client

    def _failed(self, error: ClientError) -> None:
        self.lost_connections += 1
        self.errors.append(str(error))

    def _listen(self) -> None:
        """Do what callbacks left."""
        while self.heard:
            self.heard.popleft()()

    # Reports.

    def report_if_due(self) -> None:
        """Write a report every half second."""
        if time.monotonic() - self._reported > REPORT:
            self.say()

    def say(self) -> None:
        """Write one report."""
        self._reported = time.monotonic()
        about = {
            "time_ns": time.time_ns(),
            "lost_connections": self.lost_connections,
            "serving": self.serving,
            "error": self.errors[-1] if self.errors else "",
        }
        print(json.dumps({**about, "done": self.done, **self.report()}), flush=True)


class Settling(VerifyClient):
    """A client whose outcomes the broker confirms: `settled` is called when it has."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.receivers: dict[str, Receiver] = {}

    def add_receiver(
        self, client: Client, queue: str, properties: Mapping[str, Any] | None = None
    ) -> Receiver:
        """Attach a receiver that asks for messages one by one, with properties of its link."""
        receiver = client.receiver(
            queue,
            credit=0,
            confirm=True,
            properties=properties,
            name=f"verify-{self.index}-{queue}",
            on_confirmed=lambda message: self.heard.append(lambda: self.settled(message)),
        )
        self.receivers[queue] = receiver
        return receiver

    def has_news(self) -> bool:
        return bool(self.heard) or any(one.buffered for one in self.receivers.values())

    def work(self) -> None:
        for receiver in self.receivers.values():
            self.take_all(receiver)

    def take_all(self, receiver: Receiver) -> None:
        """Take what has come."""
        while receiver.buffered:
            message = receiver.receive(0.0)
            with suppress(DeliveryLost):  # Its connection is lost, which ends this turn.
                self.take(message)

    def link_lost(self) -> None:
        self.receivers.clear()

    def take(self, message: Received) -> None:
        """A message came."""

    def settled(self, message: Received) -> None:
        """The broker has settled a message as it was told."""
