"""Real AMQP clients for the system tests, made of python-qpid-proton as an application would.

They send, receive and browse on one broker and wait for it; `failover_clients.py` has those that move.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from proton import ConnectionException, Delivery, Event, Message, Terminus, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy, LinkOption
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached

from qpidha.connector.failover_client import REDIRECT, redirected_to
from tests.system.cluster import Broker, wait_for

__all__ = ["REDIRECT", "redirected_to"]

PATIENCE = 10.0
"""Seconds that a blocking call may take."""
ADMIN = {symbol("qpid.ha-admin"): True}
"""The connection property with which tools are let in by a backup."""


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
    """Receive and accept this many messages, and wait until the broker has settled each: from then on it is gone for good.

    Proton's own `accept` settles first, and a broker killed at that moment may deliver the message again.
    """
    connection = connect(broker, admin=admin)
    try:
        receiver = connection.create_receiver(address, credit=0)
        receiver.link.flow(count)
        bodies, deliveries = [], []
        for _ in range(count):
            connection.wait(lambda: receiver.fetcher.has_message, msg=f"receiving from {address}")
            bodies.append(receiver.fetcher.pop().body)
            deliveries.append(receiver.fetcher.unsettled.popleft())
            deliveries[-1].update(Delivery.ACCEPTED)
        connection.wait(lambda: all(delivery.settled for delivery in deliveries), msg=f"settling what was accepted from {address}")
        for delivery in deliveries:
            delivery.settle()
        receiver.close()
        return bodies
    finally:
        connection.close()


class Drainer(MessagingHandler):
    """Keeps what comes and notices when a drain is over."""

    def __init__(self, *, settles: bool = False) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.settles = settles
        """Whether what came is let go of at once; a session holds a few thousand only. Right for copies."""
        self.bodies: list[Any] = []
        self.drained = False

    def on_message(self, event: Event) -> None:
        self.bodies.append(event.message.body)
        if self.settles:
            event.delivery.settle()

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
    drainer = Drainer(settles=any(isinstance(option, Copy) for option in options))
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
