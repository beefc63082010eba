"""Clients that stay with whoever is the primary, each in a thread beside the test.

They are applications on `qpidha.client.blocking`, which finds the primary, goes on after every loss
and sends again what has no outcome. These note what was accepted or received, so that a test can
compare both after every fault. What a receiver accepts it has noted before: nothing is taken off a
queue that `received` does not have.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from qpidha.client.blocking import Client
from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import ClientError, DeliveryLost, TimedOut
from qpidha.client.links import Delivery
from qpidha.client.message import Message
from tests.system.clients import CREATE, PATIENCE
from tests.system.cluster import wait_for

T = TypeVar("T")
TICK = 0.01
"""Seconds between two looks at what a client is to do."""
HEARTBEAT = 1.0
"""Seconds; a broker that is silent for twice as long is left."""
ATTACH = 5.0
"""Seconds for one attempt to attach: a broker that recovers holds the answer back."""
SILENT = 600.0
"""A heartbeat with which a client stays with a frozen broker."""


class FailoverClient(ABC):
    """A thread with a client in it; others only read the lists that it keeps.

    With `follow` false it ends with its first connection. A `pinned` one tries its own addresses
    only, whatever brokers name.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        address: str,
        *,
        heartbeat: float = HEARTBEAT,
        follow: bool = True,
        pinned: bool = False,
        login: Mapping[str, Any] | None = None,
    ) -> None:
        """`login` is what else the client is made with: user, password and tls."""
        self.address = address
        self.losses: list[str] = []
        """Connections that were lost, and brokers that did not serve."""
        self.failure: BaseException | None = None
        """What ended the thread before it was told to."""
        self._follow = follow
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"client of {address}")
        self._client = Client(
            addresses,
            timeout=PATIENCE,
            reconnect_timeout=None if follow else 0,
            heartbeat=heartbeat,
            follow_redirects=not pinned,
            on_event=self._heard,
            **(login or {}),
        )

    def __enter__(self) -> Any:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End; nothing changes afterwards. Raises what ended the client before, or adds it to why
        the test fails.
        """
        self._ending.set()
        self._thread.join(2 * PATIENCE)
        assert not self._thread.is_alive(), "the client does not end"
        if error is None:
            self.check()
        elif self.failure is not None:
            error.add_note(f"the client of {self.address} had ended: {self.failure!r}")

    def check(self) -> None:
        """Raise what ended the client; a client that does not follow may end with its broker."""
        if self.failure is not None:
            raise self.failure

    def prepare(self) -> None:  # noqa: B027 - most need nothing
        """Do what the thread needs before it dials."""

    @abstractmethod
    def work(self, client: Client) -> None:
        """Attach, and go on until it `is_over`."""

    def is_over(self) -> bool:
        """Whether the client is to end."""
        return self._ending.is_set()

    def attached(self, attach: Callable[[], T]) -> T:
        """Attach, however long there is nobody who serves; raises TimedOut when the client is to
        end.
        """
        while True:
            try:
                return attach()
            except TimedOut:
                if self.is_over():
                    raise

    def wait(self, look: Callable[[], int], goal: int, what: str) -> None:
        """Wait until a count reaches a goal, or the client has failed."""

        def reached() -> int:
            self.check()
            return look()

        wait_for(reached, goal.__le__, what=f"{what} ({goal} wanted; {self.losses[-5:]})")

    def _run(self) -> None:
        client = self._client
        try:
            self.prepare()
            client.wait(lambda: client.connects > 0 or self.is_over(), None)
            if not self.is_over():
                self.work(client)
        except BaseException as failure:
            if not isinstance(failure, ClientError) or (self._follow and not self.is_over()):
                self.failure = failure
        finally:
            try:
                client.close(timeout=0)
            except ClientError:
                pass  # What has no outcome yet will not have one.

    def _heard(self, event: str, endpoint: Endpoint, error: ClientError | None) -> None:
        if event != "connected":
            self.losses.append(f"{endpoint}: {error}")


class FailoverSender(FailoverClient):
    """Sends `prefix` + 1, 2, 3... in order.

    At most `window` messages wait for their outcome, and `rate` are begun each `tick` seconds; it
    stops at `count`. With `create` the queue is made if it does not exist. What a broker does not
    accept is `refused`, and with `insists` sent again.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        address: str,
        *,
        prefix: str = "",
        count: int | None = None,
        window: int = 50,
        rate: int = 5,
        tick: float = TICK,
        durable: bool = False,
        create: bool = False,
        insists: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(addresses, address, **options)
        self.prefix = prefix
        self.count = count
        self.window = window
        self.rate = rate
        self.tick = tick
        self.durable = durable
        self.create = create
        self.insists = insists
        self.sent = 0
        """The highest number ever sent."""
        self.begun_at: list[float] = []
        """When each number was sent first."""
        self.accepted: list[int] = []
        self.accepted_at: list[float] = []
        self.refused: list[tuple[int, str]] = []
        self._numbers: list[int] = []
        """What each delivery carried."""
        self._again: list[int] = []

    @property
    def unsettled(self) -> int:
        """How many messages wait for an outcome."""
        return len(self._numbers) - len(self.accepted) - len(self.refused)

    @property
    def done(self) -> bool:
        return self.count is not None and len(self.accepted) >= self.count

    def wait_accepted(self, more: int) -> None:
        """Wait until so many more are accepted than now."""
        self.wait(lambda: len(self.accepted), len(self.accepted) + more, "accepted messages")

    def bodies(self) -> list[str]:
        """Return the bodies of everything that was accepted, in order."""
        return [f"{self.prefix}{number}" for number in sorted(self.accepted)]

    def missing(self, bodies: Iterable[object]) -> list[str]:
        """Return what was accepted and is not among these bodies."""
        present = set(bodies)
        return [body for body in self.bodies() if body not in present]

    def work(self, client: Client) -> None:
        sender = self.attached(
            lambda: client.sender(
                self.address,
                window=self.window,
                capabilities=CREATE if self.create else (),
                on_outcome=self._came_to,
                timeout=ATTACH,
            )
        )
        while not client.wait(self.is_over, self.tick):
            for _ in range(self.rate):
                number = self._next() if sender.unsettled < self.window else 0
                if not number:
                    break
                self._numbers.append(number)
                sender.send_nowait(
                    Message(f"{self.prefix}{number}", durable=self.durable, message_id=number)
                )

    def _next(self) -> int:
        """Return the number to send now; 0 for none."""
        if self._again:
            return self._again.pop(0)
        if self.count is not None and self.sent >= self.count:
            return 0
        self.begun_at.append(time.monotonic())
        self.sent += 1
        return self.sent

    def _came_to(self, delivery: Delivery) -> None:
        number, outcome = self._numbers[delivery.number - 1], delivery.outcome
        if outcome is None:
            return  # The client has ended: nobody knows.
        if outcome.accepted:
            self.accepted_at.append(time.monotonic())
            self.accepted.append(number)
            return
        self.refused.append((number, outcome.state))
        if self.insists:
            self._again.append(number)


class FailoverReceiver(FailoverClient):
    """Receives and accepts everything on a queue."""

    def __init__(self, addresses: Sequence[str], address: str, **options: Any) -> None:
        super().__init__(addresses, address, **options)
        self.received: list[str] = []

    def wait_received(self, until: Callable[[list[str]], object]) -> None:
        self.wait(lambda: bool(until(self.received)), True, f"what came from {self.address}")

    def work(self, client: Client) -> None:
        receiver = self.attached(lambda: client.receiver(self.address, timeout=ATTACH))
        while not self.is_over():
            try:
                message = receiver.receive(TICK)
            except TimedOut:
                continue
            self.received.append(str(message.body))
            try:
                self.judge(message)
            except DeliveryLost:
                pass  # It comes again.

    @staticmethod
    def judge(message: Delivery) -> None:
        """Say what becomes of a message."""
        message.accept()

    def numbers(self) -> list[int]:
        return [int(body) for body in list(self.received)]


def first_gap(numbers: Iterable[int]) -> int:
    """Return the first number that came before its predecessor ever did, or 0: repeats are allowed,
    gaps are not.
    """
    last = 0
    for number in numbers:
        if number > last + 1:
            return number
        last = max(last, number)
    return 0
