"""Clients that keep one connection to whoever is the primary, in a thread beside the test.

They follow redirects and their list of addresses, and note what was accepted or received, so that a test
can compare both after every fault. Several can share one `ClientLoop`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proton import Endpoint, Event, Message
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption

from tests.system.clients import PATIENCE, redirected_to
from tests.system.cluster import wait_for


class ClientLoop(MessagingHandler):
    """A thread with proton's event loop and a timer for the clients in it."""

    TICK = 0.01
    """Seconds between two looks at the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[FailoverClient] = []
        self.container = Container(self)
        self._ending: list[FailoverClient] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="clients")

    def __enter__(self) -> ClientLoop:
        self._thread.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._stopping = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the clients' loop did not end"

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs; it ends only when told to, or by a fault of a client's."""
        return self._thread.is_alive()

    def end(self, client: FailoverClient) -> None:
        """Take a client out and wait until it is."""
        self._ending.append(client)
        wait_for(lambda: client in self.clients and self._thread.is_alive(), lambda present: not present, what="whether a client runs")

    def _run(self) -> None:
        while True:
            try:
                self.container.run()
                return
            except AttributeError as fault:
                # proton's own loop ends so when a socket fails in the very turn in which its heartbeat is due
                # (proton/_handlers.py, on_selectable_expired): go on with a new loop, as with lost connections.
                if "NoneType" not in str(fault):
                    raise
                self.container = Container(self)
                for client in self.clients:
                    client.loop_failed(f"proton: {fault}")

    def on_start(self, event: Event) -> None:
        self.container.schedule(self.TICK, self)

    def on_timer_task(self, event: Event) -> None:
        while self._ending:
            client = self._ending.pop()
            client.ended()
            self.clients.remove(client)
        if self._stopping:
            self.container.stop()
            return
        for client in list(self.clients):
            client.tick()
        self.container.schedule(self.TICK, self)


class FailoverClient(MessagingHandler):
    """One link over one connection to whoever is the primary.

    Its AMQP side runs in the thread of its loop; tests only read the lists it keeps.
    """

    RETRY = 0.02
    """Seconds between two attempts to connect."""
    OPENING = 1.0
    """Seconds after which a broker that does not answer an open is given up; a stopped one still takes connections."""

    def __init__(
        self,
        addresses: Sequence[str],
        address: str,
        *,
        heartbeat: float | None = 1.0,
        follow: bool = True,
        pinned: bool = False,
        loop: ClientLoop | None = None,
    ) -> None:
        super().__init__(prefetch=0, auto_accept=True)
        self.addresses = list(addresses)
        self.address = address
        self.heartbeat = heartbeat
        self.follow = follow
        self.pinned = pinned
        """Whether it tries its own addresses only, whatever a redirect says."""
        self.loop = loop or ClientLoop()
        self.owns_loop = loop is None
        self.connection: Any = None
        self.opened = False
        self.since = 0.0
        self.turn = 0
        self.next_address = ""
        self.losses: list[str] = []
        self.errors: list[str] = []

    def __enter__(self) -> Any:
        self.loop.clients.append(self)
        if self.owns_loop:
            self.loop.__enter__()
        return self

    def __exit__(self, *ignored: object) -> None:
        """End; nothing changes afterwards."""
        self.loop.end(self)
        if self.owns_loop:
            self.loop.__exit__()

    # What subclasses do.

    def open_link(self, container: Container, connection: Any) -> None:
        raise AssertionError("a client has a link")

    def work(self) -> None:
        """Do what can be done now; called about every 10 ms."""

    def link_lost(self) -> None:
        """Forget what was on the lost link."""

    # The connection.

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self.connection is None:
            if (self.follow or not self.losses) and now - self.since >= self.RETRY:
                self._dial()
        elif not self.opened and now - self.since > self.OPENING:
            self._lost(self.connection, "no answer to open")
        else:
            self.work()

    def ended(self) -> None:
        """Leave the broker."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def loop_failed(self, why: str) -> None:
        """The connection is gone with its loop."""
        self.losses.append(why)
        self.connection = None
        self.link_lost()

    def _dial(self) -> None:
        address = self.next_address or self.addresses[self.turn % len(self.addresses)]
        if not self.next_address:
            self.turn += 1
        self.next_address = ""
        self.since = time.monotonic()
        self.opened = False
        self.connection = self.loop.container.connect(f"amqp://{address}", handler=self, reconnect=False, heartbeat=self.heartbeat)

    def _lost(self, connection: Any, why: str) -> None:
        if self.connection is None or connection != self.connection:
            return
        self.losses.append(why)
        self.connection = None
        self.since = time.monotonic()
        self.link_lost()
        if connection.state & Endpoint.LOCAL_ACTIVE:
            connection.close()

    def on_connection_opened(self, event: Event) -> None:
        if event.connection == self.connection:
            self.opened = True
            self.open_link(self.loop.container, event.connection)

    def on_connection_remote_close(self, event: Event) -> None:
        condition = event.connection.remote_condition
        if event.connection == self.connection:
            self.next_address = "" if self.pinned else "".join(redirected_to(event.connection)[:1])
        self._lost(event.connection, str(condition or "closed"))

    def on_connection_error(self, event: Event) -> None:
        """Noted already."""

    def on_disconnected(self, event: Event) -> None:
        self._lost(event.connection, "disconnected")

    def on_transport_error(self, event: Event) -> None:
        self._lost(event.connection, str(event.transport.condition))

    def on_link_error(self, event: Event) -> None:
        self.errors.append(str(event.link.remote_condition))
        self._lost(event.connection, str(event.link.remote_condition))


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
