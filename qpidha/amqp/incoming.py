"""Incoming links: a client's messages on their way into a queue, an exchange, or wherever each one says.

A delivery stays unsettled until the record of its message is safe; then it is accepted and settled,
and only then counts as used up: a peer can never have more than `link-credit` deliveries in our hands.
A message that cannot be taken is rejected with the reason, and the link goes on; Qpid releases those
over a limit, which tells a sender nothing. Nothing routed is accepted, as in Qpid, except on an
anonymous link, where the address was the message's own.
A message of a transaction goes into that, and is settled at once with the outcome it will have if the
transaction is committed; one that cannot be taken leaves its transaction no way but back.
Source: AMQP 1.0 section 2.6.12, 2.7.5, 4.4.1; Qpid: src/qpid/broker/amqp/Incoming.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.amqp.address import find_address
from qpidha.amqp.client_link import ClientLink
from qpidha.amqp.engine_links import is_aborted, is_settled, remote_state, settle, update
from qpidha.amqp.engine_values import reject, remote_fields, set_state
from qpidha.amqp.open_transactions import UnknownTransaction
from qpidha.amqp.registry import LinkStolen
from qpidha.amqp.terminus import ACCEPTED, RELEASED, Pointer
from qpidha.amqp.transaction_wire import TRANSACTIONAL, accepted, read_state, rejected
from qpidha.broker.transaction import Post
from qpidha.words.errors import LimitExceeded, MessageTooLarge, NotFound, ProtocolViolation, QpidHaError, RefusedRequest, ResourceDeleted
from qpidha.words.message_view import application_properties, arrival, properties

if TYPE_CHECKING:
    from qpidha.amqp.engine_links import LinkEnd
    from qpidha.amqp.host import LinkHome
    from qpidha.amqp.open_transactions import Work
    from qpidha.broker.queue import Queue


class DecodeError(RefusedRequest):
    """A message that is none."""

    condition = "amqp:decode-error"


class TransferLimitExceeded(QpidHaError):
    """The peer sent more than it had credit for."""

    condition = "amqp:link:transfer-limit-exceeded"


class IncomingLink(ClientLink):
    """A link on which a peer sends."""

    __slots__ = (
        "_broker", "_counters", "_exchange", "_half", "_held", "_key", "_payload", "_posting", "_queue", "_rejects", "_used", "_window",
        "address",
    )  # fmt: skip

    def __init__(self, connection: LinkHome, end: LinkEnd, *, address: str, outcomes: list[str]) -> None:
        super().__init__(connection, end)
        self._counters = connection.counters
        self._broker = connection.host.broker
        self.address = address
        self._queue: Queue | None = None
        self._exchange = ""
        self._key: str | None = None
        self._payload = b""
        self._posting: Work | None = None
        """The transaction of a message of which a part has come."""
        self._held = 0
        self._used = 0
        self._window = self._host.settings.link_credit
        self._half = (self._window + 1) // 2
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
            self.fail(error)
            return
        if payload is None:
            if remote_state(delivery) == TRANSACTIONAL:
                self._begin_post(delivery)
            return
        if remote_state(delivery) == TRANSACTIONAL:
            self._post(delivery, payload)
            return
        try:
            payload, expires = arrival(payload, self._host.now + self._host.broker.ahead)
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
        self._counters.messages_in += 1
        if is_settled(delivery):
            settle(delivery)
            self._use()
            return
        self._held += 1
        if self._held > self._window:
            # The engine does not enforce credit, and what is held must not grow without bound.
            self.fail(TransferLimitExceeded(f"more than link-credit {self._window} deliveries await their outcome"))
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
        if self._used >= self._half:
            self._top_up()
        self._connection.wake()

    def _use(self) -> None:
        self._used += 1
        if self._used >= self._half:
            self._top_up()

    def _top_up(self) -> None:
        assert self.end is not None
        self.end.flow(self._used)
        self._used = 0

    def flowed(self) -> None:
        """Ignore what a sender says of how much it has."""

    def stolen(self) -> None:
        """Another link took this one's name."""
        self.fail(LinkStolen("another link of this name was attached by the same container"))

    def _leave(self) -> None:
        end, self.end = self.end, None
        if end is None:
            return
        self._end_post()
        self._host.links.detach(self._connection.remote_container, end.name, False, self)
        if self._queue is not None:
            self._queue.remove_sender()
        self._broker.owner_gone(self)

    # Transactions.

    def _begin_post(self, delivery: Pointer) -> None:
        """Note that a part of a message has come: its transaction cannot be discharged before the rest has."""
        if self._posting is not None:
            if is_aborted(delivery):
                self._end_post()
            return
        if is_aborted(delivery):
            return
        try:
            self._posting = self._connection.transactions.find(read_state(remote_fields(delivery))[0])
        except UnknownTransaction as error:
            self.fail(error)
            return
        self._posting.posting[self] = None

    def _end_post(self) -> None:
        work, self._posting = self._posting, None
        if work is not None:
            del work.posting[self]

    def _post(self, delivery: Pointer, payload: bytes) -> None:
        """Put a message into its transaction."""
        transactions = self._connection.transactions
        self._end_post()
        transaction_id, _ = read_state(remote_fields(delivery))
        try:
            work = transactions.find(transaction_id)
        except UnknownTransaction as error:
            self.fail(error)
            return
        try:
            kept, expires = arrival(payload, self._host.now + self._host.broker.ahead)
            transactions.post(work, self._address(kept, expires))
            state = accepted(transaction_id)
        except ResourceDeleted as error:
            transactions.doom(work, error)
            self.fail(error)
            return
        except (RefusedRequest, ProtocolViolation) as found:
            # Not every client looks at the outcomes of what it sends; every one looks at that of its commit.
            why = DecodeError(found.text) if isinstance(found, ProtocolViolation) else found
            transactions.doom(work, why)
            state = rejected(transaction_id, why)
        self._counters.messages_in += 1
        if not is_settled(delivery):
            set_state(delivery, TRANSACTIONAL, state)
        settle(delivery)
        self._use()
        self._connection.wake()

    def _address(self, payload: bytes, expires: int) -> Post:
        """Find out where a message of a transaction is to go; what is there is looked at when it is committed."""
        if self._queue is not None:
            if self._queue.deleted:
                self._replace_queue(ResourceDeleted(f"queue '{self._queue.name}' was deleted"))
            return Post(payload, expires, queue=self._queue)
        key = self._key
        if self._exchange:
            return Post(payload, expires, exchange=self._exchange, key=_text(properties(payload).get("subject")) if key is None else key)
        queue, exchange, key = self._find(payload)
        return Post(payload, expires, queue=queue, exchange=exchange, key=key, must_route=True, user=self._connection)

    # Where a message goes.

    def _publish(self, payload: bytes, expires: int) -> int:
        self._payload = payload
        key = self._key
        if self._exchange:
            if key is None:
                key = _text(properties(payload).get("subject"))
            return self._broker.publish(self._exchange, key, payload, headers=self._headers, expires=expires)[0]
        queue, exchange, key = self._find(payload)
        if queue is not None:
            return queue.enqueue(payload, expires)
        sequence, queues = self._broker.publish(exchange, key, payload, headers=self._headers, expires=expires)
        if not queues:
            raise NotFound(f"exchange '{exchange}' has no queue for key '{key}'")
        return sequence

    def _find(self, payload: bytes) -> tuple[Queue | None, str, str]:
        """Find the queue, or exchange and key, that a message on an anonymous link is for."""
        found = properties(payload)
        to = _text(found.get("to"))
        address = find_address(self._broker, to)
        if address.queue is not None:
            queue: Queue = address.queue
            if queue.uid > 0 and not self._host.serving:
                raise self._host.refusal()
            queue.check_access(self._connection)
            return queue, "", ""
        if address.exchange is None:
            raise NotFound(f"there is no queue or exchange '{to}'", hint="create it, or correct the message's 'to'")
        if not self._host.serving:
            raise self._host.refusal()
        return None, address.name, address.key if address.key is not None else _text(found.get("subject"))

    def _headers(self) -> dict[Any, Any]:
        return application_properties(self._payload)

    def _refuse(self, delivery: Pointer, error: QpidHaError) -> None:
        """Reject one message and go on."""
        if isinstance(error, LimitExceeded):
            is_disk = bool(self._broker.refuse_publishing)
            self._host.notes.limit("disk-free-limit" if is_disk else "queue-size", "rejected", self._queue.name if self._queue else "")
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
        try:
            queue = self._replace_queue(error)
        except ResourceDeleted:
            self.fail(error)
            return
        try:
            self._taken(delivery, queue.enqueue(payload, expires))
        except RefusedRequest as refusal:
            self._refuse(delivery, refusal)

    def _replace_queue(self, error: ResourceDeleted) -> Queue:
        """Go on with a queue of the same name, or raise `error`."""
        old = self._queue
        queue = self._broker.queues.get(old.name) if old is not None else None
        if queue is None or queue is old:
            raise error
        self.to_queue(queue)
        return queue


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
