"""Clients that keep one connection to whoever is the primary, in a thread beside the test.

They are the clients of `qpid-ha verify run`, which follow redirects and their list of addresses; these note what was accepted or
received, so that a test can compare both after every fault. Several can share one `ClientLoop`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proton import Event, Message
from proton.reactor import Container, LinkOption

from qpidha.connector.failover_client import ClientLoop, FailoverClient
from tests.system.cluster import wait_for

__all__ = ["ClientLoop", "FailoverClient", "FailoverReceiver", "FailoverSender", "first_gap"]


class FailoverSender(FailoverClient):
    """Sends `prefix` + 1, 2, 3... in order, again from the first that was not accepted after every loss.

    At most `window` messages wait for acceptance, and `rate` are begun each 10 ms.
    """

    def __init__(self, addresses: Sequence[str], address: str, *, prefix: str = "", count: int | None = None, **options: Any) -> None:
        self.window: int = options.pop("window", 50)
        self.rate: int = options.pop("rate", 5)
        self.node: LinkOption | None = options.pop("node", None)
        self.durable: bool = options.pop("durable", False)
        super().__init__(addresses, address, **options)
        self.prefix = prefix
        self.count = count
        self.sent = 0
        """The highest number ever sent."""
        self.accepted: list[int] = []
        self.accepted_at: list[float] = []
        self.refused: list[tuple[int, str]] = []
        self._again: list[int] = []
        self._unsettled: dict[str, int] = {}
        self._tag = 0
        self._link: Any = None

    @property
    def unsettled(self) -> int:
        """How many messages wait for an outcome."""
        return len(self._unsettled)

    @property
    def done(self) -> bool:
        return self.count is not None and len(set(self.accepted)) >= self.count

    def wait_accepted(self, more: int) -> None:
        """Wait until so many more are accepted than now."""
        goal = len(self.accepted) + more
        wait_for(lambda: len(self.accepted), lambda seen: seen >= goal, what=f"accepted messages ({goal} wanted, {self.losses[-5:]})")

    def bodies(self) -> list[str]:
        """Return the bodies of everything that was accepted, in order and once."""
        return [f"{self.prefix}{number}" for number in sorted(set(self.accepted))]

    def missing(self, bodies: Iterable[object]) -> list[str]:
        """Return what was accepted and is not among these bodies."""
        present = set(bodies)
        return [body for body in self.bodies() if body not in present]

    def open_link(self, container: Container, connection: Any) -> None:
        self._link = container.create_sender(connection, self.address, options=[self.node] if self.node else None)

    def link_lost(self) -> None:
        self._again = sorted({*self._again, *self._unsettled.values()})
        self._unsettled.clear()
        self._link = None

    def on_sendable(self, event: Event) -> None:
        self.work()

    def work(self) -> None:
        for _ in range(self.rate):
            if self._link is None or not self._link.credit or len(self._unsettled) >= self.window:
                return
            if self._again:
                number = self._again.pop(0)
            elif self.count is None or self.sent < self.count:
                self.sent += 1
                number = self.sent
            else:
                return
            self._tag += 1
            delivery = self._link.send(Message(id=number, body=f"{self.prefix}{number}", durable=self.durable), tag=str(self._tag))
            self._unsettled[delivery.tag] = number

    def on_accepted(self, event: Event) -> None:
        number = self._outcome(event)
        if number:
            self.accepted.append(number)
            self.accepted_at.append(time.monotonic())

    def on_rejected(self, event: Event) -> None:
        self.refused.append((self._outcome(event), "rejected"))

    def on_released(self, event: Event) -> None:
        self.refused.append((self._outcome(event), "released"))

    def _outcome(self, event: Event) -> int:
        return self._unsettled.pop(event.delivery.tag, 0) if event.connection == self.connection else 0


class FailoverReceiver(FailoverClient):
    """Receives and accepts everything on a queue."""

    def __init__(self, addresses: Sequence[str], address: str, **options: Any) -> None:
        super().__init__(addresses, address, **options)
        self.received: list[str] = []

    def wait_received(self, until: Callable[[list[str]], object]) -> None:
        wait_for(lambda: self.received, until, what=f"what came from {self.address} ({self.losses[-5:]})")

    def open_link(self, container: Container, connection: Any) -> None:
        self._link = container.create_receiver(connection, self.address)
        self._link.flow(100)

    def on_message(self, event: Event) -> None:
        if event.connection == self.connection:
            self.received.append(str(event.message.body))
            event.receiver.flow(1)

    def numbers(self, prefix: str = "") -> list[int]:
        return [int(body.removeprefix(prefix)) for body in list(self.received)]


def first_gap(numbers: Iterable[int]) -> int:
    """Return the first number that came before its predecessor ever did, or 0: repeats are allowed, gaps are not."""
    last = 0
    for number in numbers:
        if number > last + 1:
            return number
        last = max(last, number)
    return 0
