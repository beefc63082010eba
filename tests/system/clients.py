"""Real AMQP clients for the system tests, made of python-qpid-proton as an application would.

The blocking ones send, receive and browse on one broker. The failover ones live in a thread each: they
keep one connection to whoever is the primary, follow redirects and the list of addresses, and note
what was accepted or received, so that a test can compare both after every fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from proton import ConnectionException, Delivery, Disposition, Endpoint, Event, Message, Terminus, Timeout, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy, LinkOption
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached, SendException

from tests.system.cluster import Broker, wait_for

PATIENCE = 10.0
"""Seconds that a blocking call may take."""
REDIRECT = "amqp:connection:redirect"
ADMIN = {symbol("qpid.ha-admin"): True}
"""The connection property with which tools are let in by a backup."""
__all__ = [
    "ADMIN", "REDIRECT", "ConnectionClosed", "ConnectionException", "CreateOnDemand", "Delivery", "Disposition", "FailoverReceiver",
    "FailoverSender", "LinkDetached", "Message", "SendException", "Timeout", "browse", "connect", "connect_any", "drained", "receive",
    "send", "wait_browse",
]  # fmt: skip


class CreateOnDemand(LinkOption):
    """Ask for the AMQP node to be created with these properties if it does not exist."""

    def __init__(self, **properties: object) -> None:
        self.properties = {symbol(name): value for name, value in properties.items()}

    def apply(self, link: Any) -> None:
        terminus: Terminus = link.target if link.is_sender else link.source
        terminus.capabilities.put_object([symbol("create-on-demand"), symbol("queue")])
        terminus.properties.put_object(self.properties)


def connect(broker: Broker, *, admin: bool = False, timeout: float = PATIENCE, **options: Any) -> BlockingConnection:
    """Open a connection to one broker, whoever it is; with `admin`, as a tool."""
    if admin:
        options["properties"] = ADMIN
    return BlockingConnection(f"amqp://{broker.address}", timeout=timeout, **options)


class Redirectable(BlockingConnection):
    """A blocking connection that notes where a redirect points; proton has freed it when the error reaches the caller."""

    def __init__(self, url: str, targets: list[str], **options: Any) -> None:
        self.targets = targets
        super().__init__(url, **options)

    def on_connection_remote_close(self, event: Event) -> None:
        self.targets += redirected_to(event.connection)
        super().on_connection_remote_close(event)


def connect_any(addresses: Sequence[str], *, deadline: float = PATIENCE, timeout: float = PATIENCE, **options: Any) -> BlockingConnection:
    """Try the addresses in turn and follow redirects until a broker serves us, as a blocking application does."""
    end = time.monotonic() + deadline
    waiting = list(addresses)
    while True:
        targets: list[str] = []
        try:
            return Redirectable(f"amqp://{waiting.pop(0)}", targets, timeout=timeout, **options)
        except ConnectionException:
            if time.monotonic() > end:
                raise
        waiting = targets + waiting or list(addresses)


def redirected_to(connection: Any) -> list[str]:
    """Return where a redirect points, if it says so."""
    condition = connection.remote_condition
    info = (condition and condition.info) or {}
    if condition is None or condition.name != REDIRECT or "network-host" not in info or "port" not in info:
        return []
    return [f"{info['network-host']}:{info['port']}"]


def send(broker: Broker, address: str, bodies: Iterable[object], *, admin: bool = False) -> None:
    """Send and wait until each message is accepted."""
    connection = connect(broker, admin=admin)
    try:
        sender = connection.create_sender(address)
        for body in bodies:
            sender.send(Message(body=body))
    finally:
        connection.close()


def receive(broker: Broker, address: str, count: int, *, admin: bool = False) -> list[Any]:
    """Receive and accept this many messages."""
    connection = connect(broker, admin=admin)
    try:
        receiver = connection.create_receiver(address, credit=0)
        receiver.link.flow(count)
        bodies = []
        for _ in range(count):
            bodies.append(receiver.receive().body)
            receiver.accept()
        receiver.close()
        return bodies
    finally:
        connection.close()


class Drainer(MessagingHandler):
    """Keeps what comes and notices when a drain is over."""

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.bodies: list[Any] = []
        self.drained = False

    def on_message(self, event: Event) -> None:
        self.bodies.append(event.message.body)

    def on_link_flow(self, event: Event) -> None:
        """Proton handles this after the deliveries that came before it."""
        self.drained = not event.link.draining()
        event.container.yield_()

    def on_link_error(self, event: Event) -> None:
        raise LinkDetached(event.link)

    def on_connection_error(self, event: Event) -> None:
        raise ConnectionClosed(event.connection)


def drained(connection: BlockingConnection, address: str, *options: LinkOption) -> list[Any]:
    """Return the bodies of all messages that a new receiver can have now; it closes without an outcome for them."""
    drainer = Drainer()
    # Link names are unique in a connection, and proton makes the same one for every receiver on an address.
    name = f"drain {address} {time.monotonic_ns()}"
    receiver = connection.create_receiver(address, credit=0, handler=drainer, name=name, options=list(options))
    receiver.link.drain(100_000)
    connection.wait(lambda: drainer.drained, msg="draining")
    receiver.close()
    return drainer.bodies


def browse(broker: Broker, address: str, *, admin: bool = False) -> list[Any]:
    """Return the bodies of the messages on a queue and leave them there; with `admin` also on a backup."""
    connection = connect(broker, admin=admin)
    try:
        return drained(connection, address, Copy())
    finally:
        connection.close()


def wait_browse(broker: Broker, address: str, expected: Sequence[object]) -> None:
    """Wait until a queue, on a backup or not, holds exactly these bodies in this order."""

    def look() -> list[Any]:
        try:
            return browse(broker, address, admin=True)
        except LinkDetached as missing:
            if missing.condition not in ("amqp:not-found", "amqp:resource-deleted"):
                raise
            return [f"({missing.condition})"]

    wait_for(look, lambda seen: seen == list(expected), what=f"{address} on {broker.name}, expected to hold {list(expected)!r},")


class FailoverClient(MessagingHandler):
    """One link over one connection to whoever is the primary, in a thread of its own.

    Its AMQP side runs in the thread; tests only read the lists it keeps.
    """

    RETRY = 0.02
    """Seconds between two attempts to connect."""
    OPENING = 1.0
    """Seconds after which a broker that does not answer an open is given up; a stopped one still takes connections."""

    def __init__(self, addresses: Sequence[str], address: str, *, heartbeat: float | None = 1.0, follow: bool = True) -> None:
        super().__init__(prefetch=0, auto_accept=True)
        self.addresses = list(addresses)
        self.address = address
        self.heartbeat = heartbeat
        self.follow = follow
        self.connection: Any = None
        self.opened = False
        self.since = 0.0
        self.turn = 0
        self.next_address = ""
        self.losses: list[str] = []
        self.errors: list[str] = []
        self._stopping = False
        self._container = Container(self)
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"{type(self).__name__} {address}")

    def start(self) -> Any:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread; nothing changes afterwards."""
        self._stopping = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), f"{self._thread.name} did not end"

    def _run(self) -> None:
        while True:
            try:
                self._container.run()
                return
            except AttributeError as fault:
                # proton's own loop ends so when a socket fails in the very turn in which its heartbeat is due
                # (proton/_handlers.py, on_selectable_expired): go on with a new loop, as with a lost connection.
                if "NoneType" not in str(fault):
                    raise
                self.losses.append(f"proton: {fault}")
                self.connection = None
                self.link_lost()
                self._container = Container(self)

    def __enter__(self) -> Any:
        return self.start()

    def __exit__(self, *ignored: object) -> None:
        self.stop()

    # What subclasses do.

    def open_link(self, container: Container, connection: Any) -> None:
        raise AssertionError("a client has a link")

    def work(self) -> None:
        """Do what can be done now; called about every 10 ms."""

    def link_lost(self) -> None:
        """Forget what was on the lost link."""

    # The connection.

    def on_start(self, event: Event) -> None:
        self._dial()
        self._container.schedule(0.01, self)

    def on_timer_task(self, event: Event) -> None:
        if self._stopping:
            if self.connection is not None:
                self.connection.close()
            self._container.stop()
            return
        now = time.monotonic()
        if self.connection is None:
            if self.follow or not self.losses:
                if now - self.since >= self.RETRY:
                    self._dial()
        elif not self.opened and now - self.since > self.OPENING:
            self._lost(self.connection, "no answer to open")
        else:
            self.work()
        self._container.schedule(0.01, self)

    def _dial(self) -> None:
        address = self.next_address or self.addresses[self.turn % len(self.addresses)]
        if not self.next_address:
            self.turn += 1
        self.next_address = ""
        self.since = time.monotonic()
        self.opened = False
        self.connection = self._container.connect(f"amqp://{address}", reconnect=False, heartbeat=self.heartbeat)

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
            self.open_link(self._container, event.connection)

    def on_connection_remote_close(self, event: Event) -> None:
        condition = event.connection.remote_condition
        if event.connection == self.connection:
            self.next_address = "".join(redirected_to(event.connection)[:1])
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
            delivery = self._link.send(Message(id=number, body=f"{self.prefix}{number}"), tag=str(self._tag))
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


class Refusal(MessagingHandler):
    """Connects once and notes how the broker answered: its open properties and its error."""

    def __init__(self, broker: Broker, **options: Any) -> None:
        super().__init__()
        self.broker = broker
        self.options = options
        self.properties: dict[str, Any] = {}
        self.condition = ""
        self.description = ""
        self.info: dict[str, Any] = {}

    def run(self) -> Refusal:
        container = Container(self)
        container.run()
        return self

    def on_start(self, event: Event) -> None:
        event.container.connect(f"amqp://{self.broker.address}", reconnect=False, **self.options)

    def on_connection_remote_open(self, event: Event) -> None:
        self.properties = {str(key): value for key, value in (event.connection.remote_properties or {}).items()}

    def on_connection_opened(self, event: Event) -> None:
        """Wait for the close that follows the open of a broker that refuses."""

    def on_connection_remote_close(self, event: Event) -> None:
        condition = event.connection.remote_condition
        if condition:
            self.condition, self.description = condition.name, condition.description
            self.info = {str(key): value for key, value in (condition.info or {}).items()}
        event.container.stop()

    def on_connection_error(self, event: Event) -> None:
        """Noted already."""

    def on_transport_error(self, event: Event) -> None:
        self.condition = self.condition or event.transport.condition.name
        self.description = self.description or event.transport.condition.description
        event.container.stop()
