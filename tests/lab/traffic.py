"""Real clients at the switch: a sender and a receiver of durable messages who know nothing but the
virtual address.

They stay connected to whoever answers there, note what was accepted and what was received, and say
at the end what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from qpidha.client.endpoint import Tls
from qpidha.manager.builtin.credentials import PROGRAMS
from tests.lab.hosts import PORT, VIP, credentials
from tests.lab.lab import enter_switch
from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender, first_gap

QUEUE = "lab"


def address() -> str:
    """Return where clients find the primary."""
    return f"{'amqps' if credentials().folder.exists() else 'amqp'}://{VIP}:{PORT}"


def login() -> dict[str, Any]:
    """Return what a client of a secure lab shows."""
    files = credentials()
    if not files.folder.exists():
        return {}
    password = files.password_file(PROGRAMS).read_text().strip()
    return {"user": PROGRAMS, "password": password, "tls": Tls(str(files.trusted))}


class Sender(FailoverSender):
    """A sender whose sockets are in the switch's namespace, and those of the client's own thread
    with it.
    """

    def prepare(self) -> None:
        enter_switch()


class Receiver(FailoverReceiver):
    """A receiver there."""

    def prepare(self) -> None:
        enter_switch()


class Traffic:
    """A sender and a receiver of one scenario."""

    def __init__(self, prefix: str) -> None:
        self._ends = ExitStack()
        self.sender = Sender(
            [address()],
            QUEUE,
            login=login(),
            prefix=f"{prefix}-{time.time_ns()}-",
            rate=1,
            durable=True,
            insists=True,
            pinned=True,
        )
        self.receiver = Receiver([address()], QUEUE, login=login(), pinned=True)

    def __enter__(self) -> Traffic:
        for part in (self.sender, self.receiver):
            self._ends.enter_context(part)
        return self

    def __exit__(self, *ignored: object) -> None:
        self._ends.close()

    def wait_flow(self, more: int = 50) -> None:
        """Wait until so many more messages were accepted, and received."""
        accepted, received = len(self.sender.accepted) + more, len(self.receiver.received) + more
        self.wait(lambda: len(self.sender.accepted), accepted, "messages are accepted")
        self.wait(lambda: len(self.receiver.received), received, "messages are received")

    def wait(self, look: Callable[[], int], goal: int, what: str) -> None:
        """Wait until a count reaches a goal."""
        wait_for(
            look,
            lambda seen: seen >= goal,
            what=f"how many {what} ({goal} wanted; {self.sender.losses[-3:]})",
        )

    def first_accepted_after(self, at: float) -> float | None:
        """Return when the first message was accepted after that time."""
        return next((when for when in list(self.sender.accepted_at) if when > at), None)

    def outage(self, since: float) -> float:
        """Return the longest time between two acceptances since then, in seconds."""
        times = [when for when in list(self.sender.accepted_at) if when >= since]
        return max(
            (later - earlier for earlier, later in zip([since, *times], times, strict=False)),
            default=time.monotonic() - since,
        )

    def settle(self) -> list[str]:
        """Send no more, wait for every outcome and for all of it to arrive; return what was
        accepted and never came.
        """
        self.sender.count = self.sender.sent
        wait_for(
            lambda: self.sender.done,
            what=f"whether all that was sent is accepted ({self.sender.losses[-3:]})",
        )
        expected = set(self.sender.bodies())
        wait_for(
            lambda: len(expected - set(self.receiver.received)),
            lambda left: left == 0,
            what="what did not arrive",
        )
        return sorted(expected - set(self.receiver.received))

    def disorder(self) -> str:
        """Say where the first message came before its predecessor ever did, and what surrounds it;
        nothing if none did.
        """
        prefix = self.sender.prefix
        numbers = [
            int(body.removeprefix(prefix))
            for body in list(self.receiver.received)
            if body.startswith(prefix)
        ]
        gap = first_gap(numbers)
        if not gap:
            return ""
        at = numbers.index(gap)
        lost = [*self.sender.losses, *self.receiver.losses]
        return (
            f"{numbers[max(0, at - 10) : at + 10]}; not accepted: "
            f"{self.sender.refused[:10]}; connections lost: {lost}"
        )
