"""Model node: a whole node without the AMQP room. Connections carry Python values in place of
bytes.

Everything else is the product's: broker model, HA machine, log, holds, management, the turn itself.
Messages of the HA machine are handed over as `ha.wire` writes them. What a client says is a tuple
whose first word is a verb: open, attach, transfer, commit, move, disposition, flow; what it hears:
opened, closed, attached, detached, credit, accepted, rejected, message, settled, unmoved. Between
brokers "taken" gives back credit, where replication has little of it. `ModelLink` does to queues
what `amqp.incoming` and `amqp.outgoing` do, in fewer words; credit is counted only of queues that
may stop their senders.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qpidha.amqp.peer.connection import Counters
from qpidha.amqp.peer.terminus import ACCEPTED, MODIFIED, REJECTED, RELEASED, PeerError
from qpidha.broker.exchange import application_properties
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.broker.queues.selection import Selector
from qpidha.broker.transaction import Fate, Post, Retirement, Transaction
from qpidha.ha.channels import Channels
from qpidha.ha.wire import Message
from qpidha.ha.wire import decode as decode_message
from qpidha.model.effects import Effect
from qpidha.model.encoding import Parts
from qpidha.model.errors import (
    FOLLOWS_REDIRECTS,
    InvariantBroken,
    NotFound,
    ProtocolViolation,
    QpidHaError,
    RefusedRequest,
    ResourceDeleted,
)
from qpidha.model.events import ConnectionKind, ConnectionOpened, Event
from qpidha.model.message_view import arrival
from qpidha.model.principal import Principal, Role
from qpidha.node import Node

LINK_OPTIONS = ("selects", "browse", "priority")
"""What is said of a link, and not of its queue."""
PLENTY = 1000
"""Replication credit that nobody counts."""


class ModelNode(Node):
    """A node whose connections are `ModelConnection`s."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.channels = ModelChannels(self)  # type: ignore[assignment]

    def step(self, events: Iterable[Event], now: int, ahead: int = 0) -> list[Effect]:
        """Do as Node.step, with other connections."""
        self.now = now
        rest = []
        for event in events:
            if type(event) is ConnectionOpened and event.kind is not ConnectionKind.LOCAL:
                self._open_model(event)
            else:
                rest.append(event)
        return super().step(rest, now, ahead)

    def _open_model(self, event: ConnectionOpened) -> None:
        connection: Any = ModelConnection(self, event)
        self.streams.add(connection, self.now)
        if event.kind is ConnectionKind.OUTGOING:
            connection.say(("open", {"qpid.ha-backup": self.hello()}))

    def _collect(self, connection_id: int) -> None:
        connection = self.streams.by_id.get(connection_id)
        if isinstance(connection, ModelConnection) and connection.errand is not None:
            # As the real connection does: the last words go before the end.
            connection.finish()
        super()._collect(connection_id)


class ModelChannels(Channels):
    """Channels that hand over what the HA machine says without wrapping it in links."""

    def __init__(self, node: ModelNode) -> None:
        super().__init__(node._channel_opened, node._on_message)
        self.node = node
        self.window = node.settings.ha_flow_messages
        self.is_counted = self.window < PLENTY
        """Whether the other end says what it has taken: with plenty of credit it need not."""

    def send(self, connection_id: int, data: bytes | Parts) -> None:
        """Send a message."""
        connection: Any = self.node.streams.by_id.get(connection_id)
        if connection is not None:
            connection.untaken += 1
            connection.say(data if isinstance(data, bytes) else b"".join(data))

    def credit(self, connection_id: int) -> int:
        """Return how many messages the other end takes now."""
        connection: Any = self.node.streams.by_id.get(connection_id)
        return (
            self.window - connection.untaken
            if connection is not None and self.is_counted
            else self.window
        )

    def forget(self, connection_id: int) -> bool:
        """Nothing is kept."""
        return False


class ModelConnection:
    """One connection of a model node, of either direction; to Node it looks as
    amqp.connection.Connection does.
    """

    is_held_back = goes_on = False

    def __init__(self, host: ModelNode, event: ConnectionOpened) -> None:
        self.connection_id = event.connection_id
        self.host = host
        self.kind = kind = event.kind
        self.principal = Principal(
            "anonymous",
            address=event.peer,
            roles=frozenset((Role.BROKER,)) if kind is ConnectionKind.OUTGOING else frozenset(),
            trusted_host=event.trusted_host,
        )
        self.identity = ""
        self.remote_container = ""
        self.remote_hostname = ""
        self.remote_properties: dict[str, Any] = {}
        self.remote_offered = [FOLLOWS_REDIRECTS]
        self.local_host = ""
        self.closed = False
        self.error: PeerError | None = None
        self.errand: tuple[Any, ...] | None = None
        self.counters = Counters()
        self.chunks: list[Any] = []
        self.links: dict[int, ModelLink] = {}
        self.outgoing: dict[Any, None] = {}
        self.untaken = 0
        """Messages to another broker that it has not taken."""

    def say(self, chunk: Any) -> None:
        """Have something sent at the end of the turn."""
        if self.errand is None and not self.closed:
            self.chunks.append(chunk)
            self.host.streams.woken[self.connection_id] = None

    def receive(self, chunk: Any) -> None:
        """Take what the peer says."""
        if self.closed or self.errand is not None:
            return
        try:
            if type(chunk) is bytes:
                message: Message = decode_message(chunk)
                self.host._on_message(self.connection_id, message)
                if self.host.channels.is_counted:  # type: ignore[attr-defined]
                    self.say(("taken",))
            else:
                VERBS[chunk[0]](self, *chunk[1:])
        except InvariantBroken:
            raise
        except QpidHaError as error:
            self.close(error)

    def output_parts(self) -> list[Any]:
        """Give what is to be sent: one list, which is not looked into."""
        chunks, self.chunks = self.chunks, []
        return [chunks] if chunks else []

    def tick(self, now: int) -> int:
        """There are no heartbeats here."""
        return 0

    def set_patient(self, patient: bool) -> None:
        """There are no heartbeats here."""

    def set_congested(self, congested: bool) -> None:
        """Nothing is written here."""

    def close(self, error: QpidHaError | None = None) -> None:
        """End the connection, saying why."""
        if self.closed or self.errand is not None:
            return
        if error is not None:
            self.error = PeerError.of(error)
        self.drop_links()
        self.errand = (
            "closed",
            error.condition if error else "",
            dict(error.info) if error else {},
        )
        self.host.streams.woken[self.connection_id] = None

    def finish(self) -> None:
        """Say the last word; nothing follows it."""
        if self.errand is not None and not self.closed:
            self.chunks.append(self.errand)
            self.closed = True

    def lost(self, reason: str) -> None:
        """The stream is gone."""
        if self.error is None:
            self.error = PeerError("amqp:connection:forced", reason)
        self.drop_links()
        self.closed = True

    def drop_links(self) -> None:
        """Everything that depended on this connection ends."""
        links, self.links = self.links, {}
        for link in links.values():
            link.leave()
        self.host.broker.owner_gone(self)

    # What a peer says.

    def _open(self, properties: dict[str, Any]) -> None:
        self.remote_container = self.principal.address
        self.remote_properties = properties
        self.host.admit(self)  # type: ignore[arg-type]
        self.say(("opened", self.host.open_properties(self)))
        if self.principal.is_broker:
            self.host._channel_opened(self)  # type: ignore[arg-type]

    def _opened(self, properties: dict[str, Any]) -> None:
        self.remote_container = self.principal.address
        self.remote_properties = properties
        self.host._channel_opened(self)  # type: ignore[arg-type]

    def _closed(self, condition: str, info: dict[str, Any]) -> None:
        if self.error is None and condition:
            self.error = PeerError(condition, condition, info)
        self.close()

    def _attach(
        self, link_id: int, kind: str, address: str, options: dict[str, Any], credit: int
    ) -> None:
        if not self.host.serving:
            raise self.host.refusal()
        link = ModelLink(self, link_id, sends=kind == "receiver")
        try:
            wanted = {name: value for name, value in options.items() if name not in LINK_OPTIONS}
            sequence = link.find(address, wanted)
        except RefusedRequest as error:
            self.say(("detached", link_id, error.condition))
            return
        self.links[link_id] = link
        link.select(options.get("selects"))
        link.browse, link.priority = options.get("browse", False), options.get("priority", 0)
        link.credit_wanted = credit
        self.host.when_committed(sequence, link, None)

    def _link(self, verb: str, link_id: int, *values: Any) -> None:
        link = self.links.get(link_id)
        if link is not None:
            getattr(link, verb)(*values)

    def _transfer(self, link_id: int, number: int, payload: bytes) -> None:
        self._link("take", link_id, number, payload)

    def _commit(self, link_id: int, number: int, queues: tuple[str, ...], payload: bytes) -> None:
        self._link("commit", link_id, number, queues, payload)

    def _move(self, link_id: int, number: int, queue: str) -> None:
        self._link("move", link_id, number, queue)

    def _taken(self) -> None:
        self.untaken -= 1  # streaming goes on at the end of the turn

    def _disposition(self, link_id: int, number: int, state: int) -> None:
        self._link("outcome", link_id, number, state)

    def _flow(self, link_id: int, credit: int) -> None:
        self._link("flow", link_id, credit)


class ModelLink:
    """One link: of a sender to a queue or exchange, or of a queue to a receiver (then it is a
    consumer).
    """

    exclusive = browse = False
    priority = 0

    def __init__(self, connection: ModelConnection, link_id: int, *, sends: bool) -> None:
        self.connection = connection
        self.host = connection.host
        self.link_id = link_id
        self.sends = sends
        self.queue: Any = None
        self.exchange = ""
        self.credit = self.credit_wanted = 0
        self.cursor = 0
        self.numbers = 0
        self.unsettled: dict[int, Any] = {}
        self.given = 0
        """How many messages a sender may send, where that is counted."""
        self.is_counted = False
        self.alive = True
        self.is_active = False
        """Whether it was told that it is the single active consumer of its queue."""
        self.token: tuple[int, int] | None = None
        """The last fencing token."""
        self.select(None)

    def select(self, selector: Selector | None) -> None:
        """Give a receiver only what this selects."""
        self.selector = selector
        self.is_selective = selector is not None

    def find(self, address: str, options: dict[str, Any]) -> int:
        """Find the queue or exchange of an address, or make the queue; return the sequence to wait
        for.
        """
        broker = self.host.broker
        if not self.sends and address in broker.exchanges:
            self.exchange = address
            return 0
        if address in broker.queues:
            self.queue = broker.queue(address)
            return 0
        self.queue, sequence = broker.declare_queue(address, **options)
        return int(sequence)

    def activated(self, is_active: bool) -> None:
        """Take note of it."""
        self.is_active = is_active

    def on_committed(self, number: int | None) -> None:
        """Something that was waited for is committed: the link itself, a message, or a dequeue."""
        if not self.alive:
            return
        say = self.connection.say
        if number is None:
            if not self.sends and self.queue is not None:
                self.queue.add_sender(self)
                self.is_counted = self.queue.spec.limits.stop_count < UNLIMITED
                if self.is_counted:
                    say(("credit", self.link_id, 0))
            say(("attached", self.link_id))
            if self.sends:
                try:
                    self.queue.subscribe(self)
                except RefusedRequest as error:
                    say(("detached", self.link_id, error.condition))
                    return
                self.flow(self.credit_wanted)
            else:
                self.resumed()
        else:
            say(("settled" if self.sends else "accepted", self.link_id, number))

    def resumed(self) -> None:
        """A sender's queue may have room: give credit as far as it has."""
        if self.alive and self.is_counted and self.queue.admits(self, 0):
            more = max(1, self.queue.share(1)) - self.given
            if more > 0:
                self.given += more
                self.connection.say(("credit", self.link_id, more))

    def take(self, number: int, payload: bytes) -> None:
        """A sender's message."""
        host = self.host
        self.given -= 1
        try:
            broker = host.broker
            payload, expires, due = arrival(payload, broker.time)
            if due:
                broker.check_delay()
            if self.queue is None:
                sequence, _ = broker.publish(
                    self.exchange,
                    "",
                    payload,
                    headers=lambda: application_properties(payload),
                    expires=expires,
                    due=due,
                    container=self.connection.remote_container,
                )
            elif due:
                sequence = broker.enqueue_on_all([self.queue], payload, expires, due)
            else:
                sequence = self.queue.enqueue(payload, expires)
        except (RefusedRequest, ProtocolViolation) as error:
            self.connection.say(("rejected", self.link_id, number, error.condition))
            if isinstance(error, ResourceDeleted):
                self.queue_deleted()
            self.resumed()
            return
        host.when_committed(sequence, self, number)
        self.resumed()

    def commit(self, number: int, queues: tuple[str, ...], payload: bytes) -> None:
        """A sender's transaction: one message on each of several queues, on all or on none."""
        broker = self.host.broker
        transaction = Transaction(broker)
        try:
            for name in queues:
                if name not in broker.queues:
                    raise NotFound(f"there is no queue {name}")
                transaction.post(Post(payload, 0, queue=broker.queues[name]))
            sequence = transaction.commit()
        except RefusedRequest as error:
            self.connection.say(("rejected", self.link_id, number, error.condition))
            return
        self.host.when_committed(sequence, self, number)

    def move(self, number: int, queue: str) -> None:
        """A receiver's transaction: its message leaves, and is put on another queue, or nothing
        happens.
        """
        broker = self.host.broker
        message = self.unsettled.get(number)
        if message is None:
            return
        transaction = Transaction(broker)
        try:
            transaction.retire(
                Retirement(transaction, self.queue, message, Fate.ACCEPT, settled=False)
            )
            transaction.post(Post(whole(message), 0, queue=broker.queue(queue)))
            sequence = transaction.commit()
        except RefusedRequest:
            self.connection.say(("unmoved", self.link_id, number))
            return
        del self.unsettled[number]
        self.host.when_committed(sequence, self, number)

    def flow(self, credit: int) -> None:
        """A receiver wants more."""
        if self.queue is not None and self.alive:
            self.credit += credit
            self.queue.wake(self)

    def accepts(self, message: Any) -> bool:
        """A receiver takes everything."""
        return True

    def refuse(self, message: Any) -> None:
        """No receiver calls a message undeliverable."""

    def deliver(self, message: Any) -> None:
        """Give a message to a receiver."""
        self.credit -= 1
        self.numbers += 1
        if not self.browse:
            self.unsettled[self.numbers] = message
            self.token = self.host.fencing_token() if self.queue.spec.fences else None
        told = (whole(message), message.delivery_count, self.token)
        self.connection.say(("message", self.link_id, self.numbers, *told))

    def outcome(self, number: int, state: int) -> None:
        """What a receiver makes of a message."""
        message = self.unsettled.pop(number, None)
        if message is None:
            return
        sequence = 0
        if state == ACCEPTED:
            sequence = self.queue.dequeue(message)
        elif state == REJECTED:
            sequence = self.queue.reject(message)
        elif state == MODIFIED:
            sequence = self.queue.requeue(message, True)
        elif state == RELEASED:
            self.queue.release(message)
        self.host.when_committed(sequence, self, number)

    def timeout_changed(self) -> None:
        """Take no heed of it."""

    def searched(self) -> None:
        """No credit is asked back here."""

    def queue_deleted(self) -> None:
        """The queue is gone."""
        self.leave()
        self.connection.say(("detached", self.link_id, "amqp:resource-deleted"))

    def leave(self) -> None:
        """The end: what was not settled goes back."""
        if not self.alive:
            return
        self.alive = False
        self.credit = 0
        unsettled, self.unsettled = self.unsettled, {}
        if self.sends and self.queue is not None:
            for message in unsettled.values():
                self.queue.requeue(message, True)
            self.queue.unsubscribe(self)
        elif self.queue is not None:
            self.queue.remove_sender(self)


def whole(message: Any) -> bytes:
    """Return the bytes of a message, wherever they are."""
    payload = message.payload
    return payload if type(payload) is bytes else message.body()


VERBS: dict[str, Any] = {
    "open": ModelConnection._open,
    "opened": ModelConnection._opened,
    "closed": ModelConnection._closed,
    "attach": ModelConnection._attach,
    "transfer": ModelConnection._transfer,
    "commit": ModelConnection._commit,
    "move": ModelConnection._move,
    "taken": ModelConnection._taken,
    "disposition": ModelConnection._disposition,
    "flow": ModelConnection._flow,
}
