"""Incoming links: a client's messages on their way into a queue, an exchange, or wherever each one says.

A delivery stays unsettled until the record of its message is safe; then it is accepted and settled,
and only then counts as used up: a peer can never have more than `link-credit` deliveries in our hands.
A message that cannot be taken is rejected with the reason, and the link goes on; Qpid releases those
over a limit, which tells a sender nothing. Nothing routed is accepted, as in Qpid, except on an
anonymous link, where the address was the message's own.
Source: AMQP 1.0 section 2.6.12, 2.7.5; Qpid: src/qpid/broker/amqp/Incoming.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.amqp.address import find_address
from qpidha.amqp.engine_links import is_settled, settle, update
from qpidha.amqp.engine_values import reject
from qpidha.amqp.registry import LinkStolen
from qpidha.amqp.terminus import ACCEPTED, RELEASED, PeerError, Pointer
from qpidha.words.errors import MessageTooLarge, NotFound, ProtocolViolation, QpidHaError, RefusedRequest, ResourceDeleted
from qpidha.words.message_view import application_properties, arrival, properties

if TYPE_CHECKING:
    from qpidha.amqp.engine_links import LinkEnd
    from qpidha.amqp.host import LinkHome
    from qpidha.broker.queue import Queue


class DecodeError(RefusedRequest):
    """A message that is none."""

    condition = "amqp:decode-error"


class TransferLimitExceeded(QpidHaError):
    """The peer sent more than it had credit for."""

    condition = "amqp:link:transfer-limit-exceeded"


class IncomingLink:
    """A link on which a peer sends."""

    __slots__ = (
        "_broker", "_connection", "_exchange", "_held", "_host", "_key", "_payload", "_queue", "_rejects", "_used", "_window", "address",
        "end",
    )  # fmt: skip

    def __init__(self, connection: LinkHome, end: LinkEnd, *, address: str, outcomes: list[str]) -> None:
        self._connection = connection
        self._host = connection.host
        self._broker = connection.host.broker
        self.end: LinkEnd | None = end
        self.address = address
        self._queue: Queue | None = None
        self._exchange = ""
        self._key: str | None = None
        self._payload = b""
        self._held = 0
        self._used = 0
        self._window = self._host.settings.link_credit
        # A source that lists its outcomes without rejected must not get it.
        self._rejects = not outcomes or "amqp:rejected:list" in outcomes

    def to_queue(self, queue: Queue) -> None:
        """Send everything to one queue."""
        self._queue = queue
        queue.add_sender()

    def to_exchange(self, name: str, key: str | None) -> None:
        """Send everything to an exchange; without a key the subject of each message is its key."""
        self._exchange = name
        self._key = key

    def start(self) -> None:
        """Give the peer its credit."""
        end = self.end
        assert end is not None
        end.owner = self
        self._host.links.attach(self._connection.remote_container, end.name, False, self)
        end.flow(self._window)
        self._connection.wake()

    # What the engine tells.

    def delivery_changed(self, delivery: Pointer) -> None:
        """Take a message, if one is complete."""
        end = self.end
        assert end is not None
        try:
            payload = end.take(delivery)
        except MessageTooLarge as error:
            self._fail(error)
            return
        if payload is None:
            return
        try:
            payload, expires = arrival(payload, self._host.now)
        except ProtocolViolation as error:
            self._refuse(delivery, DecodeError(error.text))
            return
        try:
            sequence = self._queue.enqueue(payload, expires) if self._queue is not None else self._publish(payload, expires)
        except ResourceDeleted as error:
            self._queue_gone(delivery, payload, expires, error)
            return
        except (RefusedRequest, ProtocolViolation) as error:
            self._refuse(delivery, error)
            return
        self._taken(delivery, sequence)

    def _taken(self, delivery: Pointer, sequence: int) -> None:
        self._connection.counters.messages_in += 1
        if is_settled(delivery):
            settle(delivery)
            self._use()
            return
        self._held += 1
        if self._held > self._window:
            # The engine does not enforce credit, and what is held must not grow without bound.
            self._fail(TransferLimitExceeded(f"more than link-credit {self._window} deliveries await their outcome"))
        elif sequence:
            self._host.hold(sequence, self, delivery)
        else:
            self.released(delivery)

    def released(self, delivery: Pointer) -> None:
        """Accept a delivery whose message is safe."""
        if self.end is None:
            return
        update(delivery, ACCEPTED)
        settle(delivery)
        self._held -= 1
        self._used += 1
        if 2 * self._used >= self._window:
            self._top_up()
        self._connection.wake()

    def _use(self) -> None:
        self._used += 1
        if 2 * self._used >= self._window:
            self._top_up()

    def _top_up(self) -> None:
        assert self.end is not None
        self.end.flow(self._used)
        self._used = 0

    def flowed(self) -> None:
        """Ignore what a sender says of how much it has."""

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer ended the link; held deliveries are settled without an outcome."""
        end = self.end
        self._leave()
        if end is not None:
            end.end(closed=closed)
        self._connection.wake()

    def lost(self) -> None:
        """The session or connection is gone."""
        self._leave()

    def stolen(self) -> None:
        """Another link took this one's name."""
        self._fail(LinkStolen("another link of this name was attached by the same container"))

    def _fail(self, error: QpidHaError) -> None:
        end = self.end
        self._leave()
        if end is not None:
            end.end(error)
        self._connection.wake()

    def _leave(self) -> None:
        end, self.end = self.end, None
        if end is None:
            return
        self._host.links.detach(self._connection.remote_container, end.name, False, self)
        if self._queue is not None:
            self._queue.remove_sender()
        self._broker.owner_gone(self)

    # Where a message goes.

    def _publish(self, payload: bytes, expires: int) -> int:
        self._payload = payload
        key = self._key
        if self._exchange:
            if key is None:
                key = _text(properties(payload).get("subject"))
            return self._broker.publish(self._exchange, key, payload, headers=self._headers, expires=expires)[0]
        found = properties(payload)
        to = _text(found.get("to"))
        address = find_address(self._broker, to)
        if address.queue is not None:
            queue: Queue = address.queue
            if queue.uid > 0 and not self._host.serving:
                raise self._host.refusal()
            queue.check_access(self._connection)
            return queue.enqueue(payload, expires)
        if address.exchange is None:
            raise NotFound(f"there is no queue or exchange '{to}'", hint="create it, or correct the message's 'to'")
        key = address.key if address.key is not None else _text(found.get("subject"))
        if not self._host.serving:
            raise self._host.refusal()
        sequence, queues = self._broker.publish(address.name, key, payload, headers=self._headers, expires=expires)
        if not queues:
            raise NotFound(f"exchange '{address.name}' has no queue for key '{key}'")
        return sequence

    def _headers(self) -> dict[Any, Any]:
        return application_properties(self._payload)

    def _refuse(self, delivery: Pointer, error: QpidHaError) -> None:
        """Reject one message and go on."""
        if is_settled(delivery):
            settle(delivery)
        elif self._rejects:
            reject(delivery, error)
        else:
            update(delivery, RELEASED)
            settle(delivery)
        self._use()
        self._connection.wake()

    def _queue_gone(self, delivery: Pointer, payload: bytes, expires: int, error: ResourceDeleted) -> None:
        """The queue was deleted: one of the same name takes its place, else the link ends."""
        old = self._queue
        queue = self._broker.queues.get(old.name) if old is not None else None
        if queue is None or queue is old:
            self._fail(error)
            return
        self.to_queue(queue)
        try:
            self._taken(delivery, queue.enqueue(payload, expires))
        except RefusedRequest as refusal:
            self._refuse(delivery, refusal)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
