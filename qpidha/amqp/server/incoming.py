"""Incoming links: a client's messages on their way into a queue, an exchange, or wherever each one
says.

A delivery stays unsettled until the record of its message is committed; then it is accepted and
settled, and only then counts as used up: a peer can never have more than `link-credit` deliveries
in our hands. What it may have on its way is less where messages are large, and less where one queue
could not take as many when it has stopped its senders; a sender to such a queue gets no credit
until the queue goes on, and no sender gets any while the broker has none to give. A message that
cannot be taken is rejected with the reason, and the link goes on; Qpid releases those over a
limit, which tells a sender nothing. A message for which an exchange has no queue is released, or
with unroutable=accept accepted, as in Qpid; released as well is one whose key cannot be looked at
in its turn, because of what others sent. An outcome that the sender's source does not list is
never given: the link ends with the error instead, and so it does for a settled message that
cannot be taken, for that has no outcome; a settled one of those that are released otherwise is
counted and forgotten, for its sender asked for no more. A message of a transaction goes into that,
and is settled at once with the outcome it will have if the transaction is committed; one that
cannot be taken leaves its transaction no way but back. A message whose annotations name further
keys (`x-cc`, and `x-bcc`, which nobody gets to see) goes where those lead as well, all in one
record. Source: AMQP 1.0 section 2.6.12, 2.7.5, 3.5.3, 4.4.1; Using the Anonymous Terminus for
Message Routing 1.0, section 2.2.2; Qpid: src/qpid/broker/amqp/Incoming.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from qpidha.amqp.peer.links import is_aborted, is_settled, remote_state, settle, tag_of, update
from qpidha.amqp.peer.terminus import REJECTED, RELEASED, Pointer
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL, accepted, read_state, rejected
from qpidha.amqp.peer.values import connection_of, fitted, reject, remote_fields, set_state
from qpidha.amqp.server.address import find_address
from qpidha.amqp.server.open_transactions import UnknownTransaction
from qpidha.amqp.server.receiving_link import ReceivingLink, TransferLimitExceeded
from qpidha.broker.credit import DISK_FREE_LIMIT
from qpidha.broker.exchange import UNROUTABLE_HINT
from qpidha.broker.federation import FED_LINK, key_in, with_key
from qpidha.broker.queues.arguments import LONGEST_NAME, check_key, fits_key
from qpidha.broker.topic import TooManyKeys
from qpidha.broker.transaction import Post
from qpidha.model.errors import (
    LimitExceeded,
    LinkStolen,
    MessageTooLarge,
    NotFound,
    NotServing,
    ProtocolViolation,
    QpidHaError,
    QueueFull,
    RefusedRequest,
    ResourceDeleted,
    ResourceLocked,
    Unauthorized,
)
from qpidha.model.message_view import (
    Copies,
    Misnamed,
    add_annotation,
    application_properties,
    arrival,
    arrival_from,
    departure,
    properties,
)
from qpidha.model.principal import Action, ObjectType

if TYPE_CHECKING:
    from qpidha.amqp.peer.links import LinkEnd
    from qpidha.amqp.peer.terminus import PeerError
    from qpidha.amqp.server.host import LinkHome
    from qpidha.amqp.server.open_transactions import Work
    from qpidha.broker.exchange import Exchange
    from qpidha.broker.queues.queue import Queue


PUBLISH, QUEUE, EXCHANGE = Action.PUBLISH, ObjectType.QUEUE, ObjectType.EXCHANGE
"""Named here because a look into an enumeration for each message costs more than the question."""


Arrival = Callable[[bytes, int], tuple[bytes, int, int]]


BEYOND = 64
"""How many deliveries more than it has credit for a peer may have sent while the broker gives none:
a few, for who counts another way than we do.
"""


REASONS: dict[type[QpidHaError], str] = {
    QueueFull: "maxlen",
    Unauthorized: "acl",
    MessageTooLarge: "too-large",
    NotServing: "suspended",
    ResourceLocked: "unavailable",
    ResourceDeleted: "unavailable",
}
"""Why a message is not taken, in one word; with a full disk it is `readonly`."""


class DecodeError(RefusedRequest):
    """A message that is none."""

    condition = "amqp:decode-error"


class Unroutable(RefusedRequest):
    """A message for which an exchange has no queue."""

    condition = "amqp:not-found"


class IncomingLink(ReceivingLink):
    """A link on which a peer sends."""

    __slots__ = (
        "_arrival",
        "_broker",
        "_budget",
        "_counters",
        "_exchange",
        "_exchange_used",
        "_is_of_link",
        "_key",
        "_largest",
        "_largest_before",
        "_must_route",
        "_payload",
        "_posting",
        "_queue",
        "_take_in",
        "address",
    )

    def __init__(
        self, served: LinkHome, end: LinkEnd, *, address: str, outcomes: list[str]
    ) -> None:
        super().__init__(served, end, outcomes=outcomes, window=served.host.settings.link_credit)
        self._counters = self._connection.counters
        self._broker = self._host.broker
        self.address = address
        self._queue: Queue | None = None
        self._is_of_link = FED_LINK in self._connection.remote_properties
        names = self._host.access.user_ids(self._connection.principal, is_link=self._is_of_link)
        self._take_in: Arrival = arrival if names is None else partial(arrival_from, names)
        """Gives what is to be kept of a message that the peer may send."""
        is_annotated = self._host.settings.announce_product == "rabbitmq"
        self._arrival = self._arrival_with_route if is_annotated else self._take_in
        self._exchange = ""
        self._key: str | None = None
        self._exchange_used: Exchange | None = None
        self._payload = b""
        self._posting: Work | None = None
        """The transaction of a message of which a part has come."""
        self._must_route = self._host.settings.unroutable == "release"
        self._budget = self._host.settings.link_credit_bytes
        self._largest = self._largest_before = 0
        """Bytes of the largest message since credit was given last, and between then and the time
        before.
        """

    def to_queue(self, queue: Queue) -> None:
        """Send everything to one queue."""
        self._queue = queue
        queue.add_sender(self)

    def to_exchange(self, exchange: Exchange, key: str | None) -> None:
        """Send everything to an exchange; without a key the subject of each message is its key."""
        self._exchange = exchange.name
        self._key = key
        self._exchange_used = exchange
        exchange.senders += 1

    def start(self) -> None:
        """Give the peer its credit."""
        end = self.end
        assert end is not None
        end.owner = self
        self._broker.credit.senders[self] = None
        self._host.links.attach(self._connection, end.name, False, self)
        self._top_up()
        self._connection.wake()

    def _allowance(self) -> int:
        """Return how many messages of the size that comes the peer may have on its way: as many as
        the queue will have room for, whatever comes of it; 0 if the queue or the broker takes none
        now.
        """
        size = max(self._largest, self._largest_before)
        if self._largest:
            self._largest, self._largest_before = 0, self._largest
        return self._broker.credit.allowance(
            self, self._queue, size, budget=self._budget, window=self._window
        )

    # What the queue tells.

    def resumed(self) -> None:
        """The queue, or the broker, has room again."""
        self._top_up()
        self._connection.wake()

    # What the engine tells.

    def delivery_changed(self, delivery: Pointer) -> None:
        """Take a message, if one is complete."""
        end = self.end
        assert end is not None
        try:
            payload = end.take(delivery)
        except MessageTooLarge as error:
            self.fail_at(delivery, self._with_reason(error))
            return
        if payload is None:
            if remote_state(delivery) == TRANSACTIONAL:
                self._begin_post(delivery)
            return
        if len(payload) > self._largest:
            self._largest = len(payload)
        if not payload and is_settled(delivery):
            self._end_post()
            self._pass_over(delivery)
            return
        if remote_state(delivery) == TRANSACTIONAL:
            self._post(delivery, payload)
            return
        if self._broker.credit.withheld and end.credit() < -BEYOND:
            # Nothing else holds back who sends settled messages.
            without = f"more than {BEYOND} deliveries came without credit"
            self.fail_at(delivery, TransferLimitExceeded(without))
            return
        if self._pending >= self._window:
            # The engine does not enforce credit, and pending answers must not grow without bound.
            self.fail_at(
                delivery,
                TransferLimitExceeded(
                    f"more than link-credit {self._window} deliveries await their outcome"
                ),
            )
            return
        expires = due = 0
        try:
            payload, expires, due = self._arrival(payload, self._broker.time)
            sequence = (
                self._queue.enqueue(payload, expires)
                if self._queue is not None and not due
                else self._publish(payload, expires, due)
            )
        except Copies as copies:
            self._take_with_copies(delivery, copies)
            return
        except ResourceDeleted as error:
            self._queue_gone(delivery, payload, expires, due, error)
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
        self._pending += 1
        if sequence:
            self._host.when_committed(sequence, self, delivery)
        else:
            self.on_committed(delivery)

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer ended the link: its name is free, and what came of a message is not all."""
        self._end_post()
        self._unname()
        super().detached(closed, error)

    def stolen(self) -> None:
        """Another link took this one's name."""
        self.fail(LinkStolen("another link of this name was attached by the same container"))

    def _leave(self) -> None:
        if self.end is None:
            return
        self.end = None
        self._end_post()
        self._unname()
        if self._queue is not None:
            self._queue.remove_sender(self)
        if self._exchange_used is not None:
            self._exchange_used.senders -= 1
            self._broker.left_exchange(self._exchange_used)
        self._broker.credit.leave(self)
        self._broker.owner_gone(self)

    def _unname(self) -> None:
        name = self._line.name
        self._host.links.detach(self._connection, name, False, self)

    # Transactions.

    def _begin_post(self, delivery: Pointer) -> None:
        """Note that a part of a message has come: its transaction cannot be discharged before the
        rest has.
        """
        if self._posting is not None:
            if is_aborted(delivery):
                self._end_post()
            return
        if is_aborted(delivery):
            return
        try:
            self._posting = self._served.transactions.find(read_state(remote_fields(delivery))[0])
        except UnknownTransaction as error:
            self.fail(error)
            return
        self._posting.posting[self] = None

    def _end_post(self) -> None:
        work, self._posting = self._posting, None
        if work is not None:
            del work.posting[self]

    def declined(self, delivery: Pointer, error: QpidHaError) -> None:
        """A message came that cannot be taken."""
        if remote_state(delivery) != TRANSACTIONAL:
            self._refuse(delivery, error)
            return
        work = self._work_of(delivery)
        if work is not None:
            self._refuse_post(delivery, work, error)

    def _work_of(self, delivery: Pointer) -> Work | None:
        """Find the transaction of a message; where there is none the link ends."""
        self._end_post()
        try:
            return self._served.transactions.find(read_state(remote_fields(delivery))[0])
        except UnknownTransaction as error:
            self.fail_at(delivery, self._with_reason(error))
            return None

    def _post(self, delivery: Pointer, payload: bytes) -> None:
        """Put a message into its transaction."""
        transactions = self._served.transactions
        work = self._work_of(delivery)
        if work is None:
            return
        try:
            post = self._post_of(payload)
            if post.exchange:
                post.container = self._connection.remote_container
            transactions.post(work, post)
        except ResourceDeleted as error:
            transactions.mark_rollback_only(work, error)
            self.fail_at(delivery, self._with_reason(error))
        except (RefusedRequest, ProtocolViolation) as error:
            self._refuse_post(delivery, work, error)
        else:
            self._posted(delivery, accepted(work.transaction_id))

    def _refuse_post(self, delivery: Pointer, work: Work, error: QpidHaError) -> None:
        """Say that a message cannot be in its transaction, which cannot be committed then: not
        every client looks at the outcomes of what it sends; every one looks at that of its commit.
        """
        error = self._explained(delivery, error)
        self._served.transactions.mark_rollback_only(work, error)
        is_told = is_settled(delivery) and isinstance(error, LimitExceeded)
        if is_told or (self._has(REJECTED) and not is_settled(delivery)):
            told = fitted(error, connection_of(delivery))
            self._posted(delivery, rejected(work.transaction_id, told))
        else:
            self.fail_at(delivery, _named(delivery, error))

    def _posted(self, delivery: Pointer, state: list[Any]) -> None:
        """Settle a message of a transaction."""
        self._counters.messages_in += 1
        if not is_settled(delivery):
            set_state(delivery, TRANSACTIONAL, state)
        settle(delivery)
        self._use()
        self._connection.wake()

    def _post_of(self, payload: bytes) -> Post:
        """Return what a transaction is to do for a message."""
        try:
            kept, expires, due = self._arrival(payload, self._broker.time)
        except Copies as copies:
            if copies.due:
                self._broker.check_delay()
            exchange, (key, *others) = self._keys_of(copies)
            return Post(
                copies.payload,
                copies.expires,
                due=copies.due,
                exchange=exchange,
                key=key,
                must_route=self._must_route,
                copies=others,
            )
        if due:
            self._broker.check_delay()
        post = self._address(kept, expires)
        post.due = due
        return post

    def _address(self, payload: bytes, expires: int) -> Post:
        """Find out where a message of a transaction is to go; what is there is looked at when it is
        committed.
        """
        if self._queue is not None:
            if self._queue.deleted:
                self._replace_queue(ResourceDeleted(f"queue '{self._queue.name}' was deleted"))
            return Post(payload, expires, queue=self._queue)
        queue, exchange, key = None, self._exchange, self._key
        if not exchange:
            queue, exchange, key = self._find(payload)
        elif key is None:
            key = self._key_of(payload)
        if queue is None and self._broker.federation.queues:
            payload = with_key(payload, key or "")
        return Post(
            payload,
            expires,
            queue=queue,
            exchange=exchange,
            key=key,
            must_route=self._must_route,
            owner=self._connection,
        )

    # Where a message goes.

    def _arrival_with_route(self, payload: bytes, now: int) -> tuple[bytes, int, int]:
        """Do as `arrival`, and annotate where the message was sent, as RabbitMQ does: its clients
        look at the annotations of each message and expect some.
        """
        try:
            payload, expires, due = self._take_in(payload, now)
        except Copies as copies:
            copies.payload = self._with_route(copies.payload)
            raise
        return self._with_route(payload), expires, due

    def _with_route(self, payload: bytes) -> bytes:
        queue, exchange, key = self._queue, self._exchange, self._key
        if queue is None and not exchange:
            queue, exchange, key = self._find(payload)
        if queue is not None:
            key = queue.name
        elif key is None:
            key = _text(properties(payload).get("subject"))
        annotations = add_annotation(payload, b"", "x-exchange", exchange)
        annotations = add_annotation(payload, annotations, "x-routing-key", key)
        return departure(payload, 0, annotations)

    def _publish(self, payload: bytes, expires: int, due: int) -> int:
        """Put a message where it is to go; one that is due later also where this link sends all."""
        if due:
            self._broker.check_delay()
        self._payload = payload
        queue, exchange, key = self._queue, self._exchange, self._key
        if queue is None and not exchange:
            queue, exchange, key = self._find(payload)
        if queue is not None:
            return self._enqueue(queue, payload, expires, due)
        if key is None:
            key = self._key_of(payload)
        if self._broker.federation.queues:
            payload = with_key(payload, key)
        sequence, queues = self._broker.publish(
            exchange,
            key,
            payload,
            headers=self._headers,
            expires=expires,
            due=due,
            container=self._connection.remote_container,
        )
        if not queues and self._must_route:
            raise Unroutable(
                f"exchange '{exchange}' has no queue for key '{key}'", hint=UNROUTABLE_HINT
            )
        return sequence

    def _enqueue(self, queue: Queue, payload: bytes, expires: int, due: int) -> int:
        """Put a message on one queue, which is less when it may be had at once."""
        if due:
            return self._broker.enqueue_on_all([queue], payload, expires, due)
        return queue.enqueue(payload, expires)

    def _take_with_copies(self, delivery: Pointer, copies: Copies) -> None:
        """Take a message that is to go to further places."""
        self._payload = copies.payload
        try:
            if copies.due:
                self._broker.check_delay()
            exchange, keys = self._keys_of(copies)
            sequence, queues = self._broker.publish_copies(
                exchange,
                keys,
                copies.payload,
                headers=self._headers,
                expires=copies.expires,
                due=copies.due,
                container=self._connection.remote_container if exchange else "",
            )
            if not queues and self._must_route:
                raise Unroutable(
                    f"exchange '{exchange}' has no queue for any of the keys '{', '.join(keys)}'",
                    hint=UNROUTABLE_HINT,
                )
        except ResourceDeleted as error:
            self.fail_at(delivery, self._with_reason(error))
        except (RefusedRequest, ProtocolViolation) as error:
            self._refuse(delivery, error)
        else:
            self._taken(delivery, sequence)

    def _keys_of(self, copies: Copies) -> tuple[str, list[str]]:
        """Return the exchange and all keys of a message that is to go to further places, the own
        key first; raise if one of them may not be. A queue is the default exchange with its name.
        """
        queue, exchange, key = self._queue, self._exchange, self._key
        if queue is not None:
            if queue.deleted:
                queue = self._replace_queue(ResourceDeleted(f"queue '{queue.name}' was deleted"))
        elif not exchange:
            queue, exchange, key = self._find(copies.payload)
        elif key is None:
            key = self._key_of(copies.payload)
        if queue is None and self._broker.federation.queues:
            copies.payload = with_key(copies.payload, key or "")
        keys = list(dict.fromkeys((queue.name if queue is not None else key or "", *copies.keys)))
        for other in keys[1:]:
            check_key("key in x-cc or x-bcc", other, "send shorter ones")
            if queue is None:
                self._check_publish(exchange, other)
            else:  # One that is not there may come before the transaction of this message ends.
                self._host.access.check(self._connection.principal, PUBLISH, QUEUE, other)
                if (further := self._broker.find_queue(other)) is not None:
                    self._check_free(further)
        return exchange, keys

    def _check_publish(self, exchange: str, key: str) -> None:
        """Raise unless the peer may send to an exchange with a key."""
        principal = self._connection.principal
        self._host.access.check(principal, PUBLISH, EXCHANGE, exchange, {"routingkey": key})

    def _key_of(self, payload: bytes) -> str:
        """Return the key that a message to the exchange of this link has, if it may have that."""
        found = properties(payload)
        if self._is_of_link:
            found = {"subject": key_in(payload)}
        key = self._subject(found, self._exchange)
        if self._host.access.each_message:
            self._check_publish(self._exchange, key)
        return key

    def _subject(self, found: Mapping[str, Any], exchange: str) -> str:
        """Return the subject of a message to an exchange, which is its key; raise if it cannot be.
        Where nobody looks at keys one that cannot be is none.
        """
        key = _text(found.get("subject"))
        if fits_key(key):
            return key
        if self._host.access.each_message or self._broker.reads_keys(exchange):
            check_key("subject", key, "send a shorter subject, or to EXCHANGE/KEY")
        return ""

    def _find(self, payload: bytes) -> tuple[Queue | None, str, str]:
        """Find the queue, or exchange and key, that a message on an anonymous link is for."""
        found = properties(payload)
        to = _text(found.get("to"))
        address = find_address(self._broker, to)
        if address.queue is not None:
            self._check_queue(address.queue)
            return address.queue, "", ""
        if address.exchange is None:
            raise NotFound(
                f"there is no queue or exchange '{to[:LONGEST_NAME]}'",
                hint="create it, or correct the message's 'to'",
            )
        key = address.key if address.key is not None else self._subject(found, address.name)
        self._check_publish(address.name, key)
        if not self._host.serving:
            raise self._host.refusal()
        return None, address.name, key

    def _check_queue(self, queue: Queue) -> None:
        """Raise unless the peer may send to a queue that it did not attach to."""
        self._host.access.check(self._connection.principal, PUBLISH, QUEUE, queue.name)
        self._check_free(queue)

    def _check_free(self, queue: Queue) -> None:
        """Raise unless a queue is served here, and not for another connection alone."""
        if queue.uid > 0 and not self._host.serving:
            raise self._host.refusal()
        queue.check_access(self._connection)

    def _headers(self) -> dict[Any, Any]:
        return application_properties(self._payload)

    def _explained(self, delivery: Pointer, error: QpidHaError) -> QpidHaError:
        """Make of what prevents a message the error that its sender is told."""
        if isinstance(error, Misnamed):
            error = self._host.access.forged(self._connection.principal, error.user_id)
        if isinstance(error, ProtocolViolation):
            error = DecodeError(error.text)
        is_anonymous = self._queue is None and not self._exchange
        error = self._with_reason(error)
        return _named(delivery, error) if is_anonymous else error

    def _with_reason(self, error: QpidHaError) -> QpidHaError:
        """Make an error say in one word why a message was not taken, and by which queue, as
        RabbitMQ's clients look for it, unless it says more.
        """
        word = next((word for kind, word in REASONS.items() if isinstance(error, kind)), "")
        if not word and isinstance(error, LimitExceeded) and self._broker.refuse_publishing:
            word = "readonly"
        if not word or error.reason:
            return error
        named = {"queue": self._queue.name} if self._queue is not None else {}
        error.info = {**named, **error.info, "reason": word}
        return error

    def _refuse(self, delivery: Pointer, error: QpidHaError) -> None:
        """Say that one message was not taken, and go on: by an outcome that the sender's source
        can have. Where there is none the link ends.
        """
        error = self._explained(delivery, error)
        is_unrouted = isinstance(error, (Unroutable, TooManyKeys))
        is_full = isinstance(error, LimitExceeded)
        if is_full:
            is_disk = bool(self._broker.refuse_publishing)
            self._host.event_log.limit(
                DISK_FREE_LIMIT if is_disk else "queue-size",
                "rejected",
                self._queue.name if self._queue else "",
            )
        releases = (is_full or is_unrouted) and self._has(RELEASED)
        if is_settled(delivery):
            # A queue that is full has counted it; to end the link would say no more to its sender,
            # who does not want to know.
            if not is_unrouted and not isinstance(error, QueueFull):
                self.fail_at(delivery, _named(delivery, error))
                return
            settle(delivery)
        elif self._has(REJECTED) and not (releases and is_unrouted):
            reject(delivery, error)
        elif releases:
            update(delivery, RELEASED)
            settle(delivery)
        else:
            self.fail_at(delivery, _named(delivery, error))
            return
        self._use()
        self._connection.wake()

    def _queue_gone(
        self, delivery: Pointer, payload: bytes, expires: int, due: int, error: ResourceDeleted
    ) -> None:
        """The queue was deleted: one of the same name takes its place, else the link ends."""
        try:
            queue = self._replace_queue(error)
            self._taken(delivery, self._enqueue(queue, payload, expires, due))
        except ResourceDeleted:
            self.fail_at(delivery, self._with_reason(error))
        except RefusedRequest as refusal:
            self._refuse(delivery, refusal)

    def _replace_queue(self, error: ResourceDeleted) -> Queue:
        """Go on with a queue of the same name, if the peer may send to that; without one raise
        `error`.
        """
        old = self._queue
        queue = self._broker.find_queue(old.name) if old is not None else None
        if queue is None or queue is old:
            raise error
        self._check_queue(queue)
        self.to_queue(queue)
        return queue


def _named(delivery: Pointer, error: QpidHaError) -> QpidHaError:
    """Make an error say which delivery it is about; one that ends a link must."""
    error.info = {**error.info, "delivery-tag": tag_of(delivery)}
    return error


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
