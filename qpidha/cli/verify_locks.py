"""Locks of the verification workload: a queue with one message is a lock, and whoever has the message holds it.

To hold a lock is to have its message unsettled; to give it back is to release the message, which is done when the broker settles.
Here are those who make the queues and put the messages in, and those who want the locks.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from proton import Delivery, Event, Link, Message, symbol
from proton.reactor import Container, LinkOption

from qpidha.cli.verify_process import Settling, VerifyClient
from qpidha.pipeline.history import History


class Locker(Settling):
    """Takes one lock after the other, holds it for a moment, and gives it back."""

    HOLDS = (0.02, 0.2)
    """Seconds for which a lock is held."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.choices = random.Random(ask.index)
        self.links: dict[str, Any] = {}
        self.acquired = self.released = 0
        self._lock = ""
        self._operation = 0
        self._step = ""
        """What is under way: acquire, hold, release, or nothing."""
        self._until = 0.0
        self._delivery: Any = None

    def open_links(self, container: Container, connection: Any) -> None:
        for queue in self.ask.queues:
            link = container.create_receiver(connection, queue, name=f"verify-{self.ask.index}-{queue}")
            link.rcv_settle_mode = Link.RCV_SECOND
            self.links[queue] = link

    def link_lost(self) -> None:
        if self._step in ("acquire", "release"):
            self._note("info", self._step, err="connection lost")
        if self._step in ("hold", "release"):
            self._operation = self.begin()
            self._note("info", "lost", err="connection lost")
        self.links.clear()
        self._delivery = None
        self._step = ""

    def work(self) -> None:
        now = time.monotonic()
        if self._step == "" and self.links and not self.stopping:
            self._lock = self.choices.choice(list(self.links))
            self._operation = self.begin()
            self._step = "acquire"
            self._until = now + self.ask.patience
            self._note("invoke", "acquire")
            self.links[self._lock].flow(1)
        elif self._step == "acquire" and now >= self._until:
            self.links[self._lock].drain(0)
            self._step = "giving up"
        elif self._step == "giving up" and not self.links[self._lock].draining():
            self.links[self._lock].drain_mode = False
            self._note("fail", "acquire", err="not within the time")
            self._step = ""
        elif self._step == "hold" and (now >= self._until or self.stopping):
            self._operation = self.begin()
            self._step = "release"
            self._note("invoke", "release")
            self._delivery.update(Delivery.RELEASED)
        self.done = self.stopping and self._step == ""
        super().work()

    def take(self, delivery: Delivery, message: Message) -> None:
        if self._step not in ("acquire", "giving up"):
            delivery.update(Delivery.RELEASED)  # nobody asked for it
            delivery.settle()
            return
        link = self.links[self._lock]
        if self._step == "giving up":
            link.drain_mode = False
        self.acquired += 1
        self._note("ok", "acquire", d=message.delivery_count)
        self._delivery = delivery
        self._step = "hold"
        self._until = time.monotonic() + self.choices.uniform(*self.HOLDS)

    def settled(self, delivery: Delivery) -> None:
        if self._step == "release":
            self.released += 1
            self._note("ok", "release")
            self._delivery = None
            self._step = ""

    def _note(self, y: str, f: str, *, d: int | None = None, err: str = "") -> None:
        self.history.op(self._operation, self.process, y, f, q=self._lock, d=d, err=err)

    def report(self) -> dict[str, Any]:
        return {"acquired": self.acquired, "released": self.released, "unsettled": int(self._step not in ("", "acquire"))}


class OnDemand(LinkOption):  # type: ignore[misc]  # proton has no types
    """Ask for the queue to be made if it does not exist."""

    def apply(self, link: Any) -> None:
        """Say so in the terminus."""
        link.target.capabilities.put_object([symbol("create-on-demand"), symbol("queue")])
        link.target.properties.put_object({symbol("durable"): True, symbol("qpid.replicate"): "all"})


class Founder(VerifyClient):
    """Makes the queues by attaching to them, and puts the one message into those that are locks; then it is done."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.sent: set[str] = set()
        self.ready: set[str] = set()

    def open_links(self, container: Container, connection: Any) -> None:
        for queue in self.ask.queues:
            if queue not in self.ready:
                container.create_sender(connection, queue, name=self._name(queue), options=[OnDemand()])

    def on_link_opened(self, event: Event) -> None:
        """A queue is there."""
        if not self.ask.locks:
            self._is_ready(event.link.name)

    def on_sendable(self, event: Event) -> None:
        """Send the one message; a lock that got two because of a lost connection would be none, so nothing is sent again."""
        if self.ask.locks and event.link.credit > 0 and event.link.name not in self.sent:
            self.sent.add(event.link.name)
            event.link.send(Message(id="lock", body="lock", durable=True))

    def on_accepted(self, event: Event) -> None:
        """The lock exists."""
        self._is_ready(event.link.name)

    def _is_ready(self, name: str) -> None:
        self.ready |= {queue for queue in self.ask.queues if self._name(queue) == name}
        self.done = len(self.ready) == len(self.ask.queues)

    def _name(self, queue: str) -> str:
        return f"verify-{self.ask.index}-{queue}"

    def report(self) -> dict[str, Any]:
        return {"ready": len(self.ready)}
