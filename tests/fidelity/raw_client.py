"""Clients that send and receive encoded messages as they are, over proton's reactor.

proton's message codec is not involved: what goes over the link is exactly the bytes given, and what
came is handed out unread. A receiver lets the broker settle first, so that what it reports as
settled is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from proton import Delivery, Event, Handler
from proton.reactor import Container

from tests.patience import STATE

PATIENCE = STATE
OUTCOMES = {
    "accepted": Delivery.ACCEPTED,
    "released": Delivery.RELEASED,
    "modified": Delivery.MODIFIED,
}


class RawClient(Handler):
    """One connection, one link; `run` returns when the work is done and fails when the connection
    does.
    """

    def __init__(self, address: str, node: str, **options: Any) -> None:
        super().__init__()
        self.address = address
        self.node = node
        self.options = options
        self.container = Container(self)
        self.connection: Any = None
        self.failure = ""
        self.finished = False

    def run(self) -> None:
        self.container.run()
        assert self.finished, self.failure or "the connection ended early"

    def on_reactor_init(self, event: Event) -> None:
        self.connection = self.container.connect(
            f"amqp://{self.address}", reconnect=False, handler=self, **self.options
        )
        self.open_link()
        self.container.schedule(PATIENCE, self)

    def open_link(self) -> None:
        raise AssertionError("a client has a link")

    def finish(self) -> None:
        self.finished = True
        self.connection.close()
        self.container.stop()

    def fail(self, why: str) -> None:
        self.failure = self.failure or why
        self.container.stop()

    def on_timer_task(self, event: Event) -> None:
        self.fail(f"{self!r} did not end in {PATIENCE} s")

    def on_transport_error(self, event: Event) -> None:
        self.fail(str(event.transport.condition))

    def on_connection_remote_close(self, event: Event) -> None:
        if not self.finished:
            self.fail(f"connection closed: {event.connection.remote_condition}")

    def on_link_remote_close(self, event: Event) -> None:
        self.fail(f"link closed: {event.link.remote_condition}")


class RawSender(RawClient):
    """Sends encoded messages and waits until each is accepted."""

    def __init__(self, address: str, node: str, messages: Sequence[bytes], **options: Any) -> None:
        super().__init__(address, node, **options)
        self.messages = messages
        self.sent = 0
        self.accepted = 0

    def __repr__(self) -> str:
        return f"RawSender({self.sent} sent, {self.accepted} of {len(self.messages)} accepted)"

    def open_link(self) -> None:
        self.container.create_sender(self.connection, self.node)

    def on_link_flow(self, event: Event) -> None:
        self.send(event.link)

    def send(self, link: Any) -> None:
        while link.credit and self.sent < len(self.messages) and self.sent - self.accepted < 100:
            link.delivery(str(self.sent))
            link.stream(self.messages[self.sent])
            link.advance()
            self.sent += 1

    def on_delivery(self, event: Event) -> None:
        delivery = event.delivery
        if not delivery.updated:
            return
        if delivery.remote_state != Delivery.ACCEPTED:
            self.fail(
                f"message {delivery.tag} came back as {delivery.remote_state}: "
                f"{delivery.remote.condition}"
            )
            return
        delivery.settle()
        self.accepted += 1
        if self.accepted == len(self.messages):
            self.finish()
        else:
            self.send(event.link)


class RawReceiver(RawClient):
    """Receives `count` encoded messages, gives them all one outcome and waits until the broker has
    settled them.
    """

    def __init__(
        self, address: str, node: str, count: int, outcome: str = "accepted", **options: Any
    ) -> None:
        super().__init__(address, node, **options)
        self.count = count
        self.outcome = outcome
        self.prepare: Callable[[Any], None] | None = None
        self.messages: list[bytes] = []
        self.settled = 0

    def __repr__(self) -> str:
        return f"RawReceiver({len(self.messages)} of {self.count} received, {self.settled} settled)"

    def open_link(self) -> None:
        link = self.container.create_receiver(self.connection, self.node)
        link.flow(self.count)

    def on_delivery(self, event: Event) -> None:
        delivery = event.delivery
        if delivery.readable and not delivery.partial:
            self.messages.append(bytes(event.link.recv(delivery.pending) or b""))
            event.link.advance()
            if self.prepare is not None:
                self.prepare(delivery.local)
            delivery.update(OUTCOMES[self.outcome])
        if delivery.settled:
            delivery.settle()
            self.settled += 1
            if self.settled == self.count:
                self.finish()


def send_raw(address: str, node: str, messages: Sequence[bytes], **options: Any) -> None:
    """Send encoded messages and wait until they are committed."""
    RawSender(address, node, messages, **options).run()


def receive_raw(address: str, node: str, count: int, **options: Any) -> list[bytes]:
    """Receive and accept encoded messages, and wait until that is committed."""
    receiver = RawReceiver(address, node, count, **options)
    receiver.run()
    return receiver.messages
