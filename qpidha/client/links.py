"""The client's links: senders, receivers and the coordinator, without any I/O.

A link outlives its connection: the core attaches it again on the next one. A sender keeps every
message until its outcome is known, and sends those without one again, first and in their order. A
receiver forgets what it had of the lost connection, for the broker delivers that again. What
belongs to a transaction is never sent again: it fails with its transaction. Knows no sockets.
Source: AMQP 1.0 sections 2.6, 2.7.3 and 4.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from qpidha.amqp.peer.links import LinkEnd, is_settled, remote_state, settle, update
from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    COORDINATOR,
    MIXED,
    MODIFIED,
    NONE,
    REJECTED,
    RELEASED,
    SETTLED,
    UNSETTLED,
    PeerError,
    Pointer,
    Terminus,
    source,
    target,
)
from qpidha.amqp.peer.terminus import Outcome as PeerOutcome
from qpidha.amqp.peer.transaction_wire import (
    DECLARED,
    TRANSACTIONAL,
    declare,
    discharge,
    enlisted,
    read_state,
)
from qpidha.amqp.peer.values import give, remote_fields, remote_outcome, set_state
from qpidha.client.errors import (
    ClientError,
    Closed,
    DeliveryLost,
    LinkError,
    MessageTooLarge,
    TransactionFailed,
    TransactionLost,
)
from qpidha.client.message import Message, Outcome
from qpidha.model.encoding import Described, Symbol, encode
from qpidha.model.errors import LimitExceeded, QpidHaError
from qpidha.model.errors import MessageTooLarge as TooLargeHere

SELECTOR = "apache.org:selector-filter:string"
"""The filter for JMS selectors, as every broker calls it."""
COPY = "copy"
"""The distribution mode of who browses (AMQP 1.0 section 3.5.7)."""
BESIDE = 150
"""Bytes of an attach that are there whatever its names, filters and properties are, at most."""
ALL_IS_WELL = Outcome("accepted")
STATES = {ACCEPTED: "accepted", REJECTED: "rejected", RELEASED: "released", MODIFIED: "modified"}
CODES = {name: code for code, name in STATES.items()}


class Wire(Protocol):
    """The connection of the moment, as its links use it."""

    def new_end(self, name: str, *, sender: bool, own_session: bool = False) -> LinkEnd:
        """Begin a link; raises LimitExceeded if there is no room for a session of its own."""

    def remote_max_frame_size(self) -> int:
        """Read how many bytes a frame may have that the broker takes; 0 is any number."""

    def wake(self) -> None:
        """Have output fetched."""


class Transaction:
    """One transaction: messages posted and outcomes given in it hold when it is committed, all or
    none.

    `state` is declaring, open, discharging, committed, rolled back, or failed (then `error` says
    why).
    """

    __slots__ = ("error", "failed", "queued_at", "state", "transaction_id", "waiting")

    def __init__(self) -> None:
        self.state = "declaring"
        self.transaction_id = b""
        self.failed = False
        """Whether it is discharged to be rolled back."""
        self.error: TransactionFailed | None = None
        self.waiting = 0
        """Messages posted in it that the broker has not answered: it cannot be committed before."""
        self.queued_at: set[Sender] = set()
        """Senders at which messages of it waited for credit."""

    def give_up_unsent(self) -> None:
        """Give up its messages that still wait for credit: it is to be rolled back, and they must
        not go out after that.
        """
        senders, self.queued_at = self.queued_at, set()
        for sender in senders:
            sender.give_up(self)

    def check(self) -> None:
        """Raise if nothing more can be done in it."""
        if self.error is not None:
            raise self.error
        if self.state not in ("declaring", "open"):
            raise TransactionFailed(f"the transaction is {self.state}", hint="begin another one")

    def fail(self, error: TransactionFailed) -> None:
        """End it with an error, unless it has ended."""
        if self.error is None and self.state not in ("committed", "rolled back"):
            self.state, self.error = "failed", error

    @property
    def is_over(self) -> bool:
        """Whether it has ended, one way or the other."""
        return self.state in ("committed", "rolled back", "failed")


class Delivery:
    """One message that was sent: `outcome` is None until the broker says what became of it."""

    __slots__ = ("error", "number", "on_done", "outcome", "payload", "transaction")

    def __init__(self, number: int, payload: bytes, transaction: Transaction | None) -> None:
        self.number = number
        """1 for the first message of its sender."""
        self.payload = payload
        self.transaction = transaction
        self.outcome: Outcome | None = None
        self.error: ClientError | None = None
        """Why there will be no outcome: the link or its transaction failed."""
        self.on_done: Callable[[], None] | None = None

    @property
    def is_done(self) -> bool:
        """Whether its outcome is known, or never will be."""
        return self.outcome is not None or self.error is not None


class Link(ABC):
    """What both directions share: name, address, and the end on the connection of the moment."""

    sends = False
    own_session = False
    """Whether no other link is on its session."""

    def __init__(self, wire: Wire | None, name: str, address: str | None) -> None:
        self.wire = wire
        """The connection it is attached on; None while there is none."""
        self.name = name
        self.address = address
        """Of the broker's end; of a dynamic node it changes with every connection."""
        self.end: LinkEnd | None = None
        self.is_open = False
        """Whether the broker has agreed to it on this connection."""
        self.error: ClientError | None = None
        """Why the link has ended; every later call raises it."""
        self.remote_source = Terminus()
        self.remote_target = Terminus()

    def attach(self, wire: Wire) -> None:
        """Attach on a new connection, unless the broker would end that for an attach as large."""
        most, size = wire.remote_max_frame_size(), self._attach_size()
        if most and size > most:
            where = (self.address or "any address")[:100]
            self.fail(
                LinkError(
                    f"the attach of the link to {where!r} is too large",
                    reason=f"it has some {size} bytes, and the broker takes frames of {most}",
                    condition=LimitExceeded.condition,
                    hint="use a shorter selector, or shorter properties; max-frame-size is the "
                    "broker's option",
                )
            )
            return
        try:
            self.end = wire.new_end(self.name, sender=self.sends, own_session=self.own_session)
        except LimitExceeded as limit:
            self.fail(
                LinkError(
                    f"there is no session for the link to {self.address or 'any address'!r}",
                    reason=limit.text,
                    condition=limit.condition,
                    hint="close receivers that have a session of their own, or use another client",
                )
            )
            return
        self.wire = wire
        self.end.owner = self
        self._begin(self.end)
        wire.wake()

    def _begin(self, end: LinkEnd) -> None:
        """Send the attach."""
        here, there, properties = self._ends()
        end.open(here, there, properties=properties, mode=self._mode())

    @abstractmethod
    def _ends(self) -> tuple[Terminus, Terminus, dict[Any, Any]]:
        """Say what the attach does: source, target and properties."""

    def _mode(self) -> int:
        """Say who settles first."""
        return MIXED

    def _attach_size(self) -> int:
        """Count the bytes of the attach, or a few more."""
        *ends, properties = self._ends()
        values = [
            (each.address, each.properties, each.capabilities, each.filter, each.outcomes)
            for each in ends
        ]
        return len(encode([self.name, properties, *map(list, values)])) + BESIDE

    def answered(self) -> None:
        """The broker answered our attach; without a terminus it refuses, and its error follows."""
        end = self.end
        assert end is not None
        self.remote_source, self.remote_target = end.remote_source(), end.remote_target()
        theirs = self.remote_target if self.sends else self.remote_source
        if theirs.kind != NONE:
            self.is_open = True
            self._opened(end, theirs)

    def _opened(self, end: LinkEnd, theirs: Terminus) -> None:  # noqa: B027  # Not all need it.
        """Begin to use the link."""

    @abstractmethod
    def delivery_changed(self, delivery: Pointer) -> None:
        """A message came, or what became of one."""

    def flowed(self) -> None:  # noqa: B027  # Not all need it.
        """Credit or drain changed."""

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The broker ended the link."""
        end, self.end = self.end, None
        if end is not None:
            end.end(closed=closed)
            if self.wire is not None:
                self.wire.wake()
        reason = error or PeerError("", "the broker gave no reason")
        verb = "ended" if self.is_open else "refused"
        self.fail(
            LinkError(
                f"the broker {verb} the link to {self.address or 'any address'!r}",
                reason=reason.explanation,
                condition=reason.condition,
                hint=reason.hint,
                info=reason.info,
            )
        )

    def broken(self, error: QpidHaError) -> None:
        """The broker broke a rule."""
        self.detached(True, PeerError.of(error))

    def declined(self, delivery: Pointer, error: QpidHaError) -> None:
        """A message came that cannot be taken."""
        self.broken(error)

    def lost(self) -> None:
        """The connection is gone, and the core attaches the link again on the next one; or only the
        session, and with it the link for ever.
        """
        why = None if self.end is None else self.end.session.why_ended
        self.end, self.wire, self.is_open = None, None, False
        if why is not None:
            self.fail(
                LinkError(
                    f"the session of the link to {self.address or 'any address'!r} has ended",
                    reason=why.explanation,
                    condition=why.condition,
                    hint=why.hint,
                    info=why.info,
                )
            )

    def fail(self, error: ClientError) -> None:
        """End the link for ever."""
        self.is_open = False
        if self.error is None:
            self.error = error

    def close(self) -> None:
        """Detach; what had no outcome fails with Closed."""
        end, self.end = self.end, None
        if end is not None:
            end.end()
            if self.wire is not None:
                self.wire.wake()
        self.fail(Closed(f"the link to {self.address or 'any address'!r} is closed"))


class Sender(Link):
    """A link on which messages are sent. At most `window` of them are without an outcome."""

    sends = True

    def __init__(
        self,
        name: str,
        address: str | None,
        *,
        window: int,
        settled: bool = False,
        properties: Mapping[str, Any] | None = None,
        capabilities: tuple[str, ...] = (),
        node_properties: Mapping[str, Any] | None = None,
        on_outcome: Callable[[Delivery], None] | None = None,
    ) -> None:
        super().__init__(None, name, address)
        self.window = window
        self.settled = settled
        self.on_outcome = on_outcome
        self.sent = 0
        """Messages handed to `send`."""
        self.not_accepted: list[Delivery] = []
        """Deliveries that were not accepted since somebody last asked; not kept with
        `on_outcome`.
        """
        self._credit = 0
        self._queue: deque[Delivery] = deque()
        """What waits for a connection or for credit."""
        self._sent: dict[Pointer, Delivery] = {}
        """What is on its way, in the order in which it was sent."""
        self._max_size = 0
        self._properties = dict(properties or {})
        self._capabilities = list(capabilities)
        self._node_properties = {
            Symbol(key): value for key, value in (node_properties or {}).items()
        }

    @property
    def unsettled(self) -> int:
        """Messages without an outcome."""
        return len(self._sent) + len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether the window is used up."""
        return len(self._sent) + len(self._queue) >= self.window

    @property
    def credit(self) -> int:
        """Messages that the broker would take now."""
        return max(0, self._credit - len(self._queue))

    def send(self, payload: bytes, transaction: Transaction | None = None) -> Delivery:
        """Send one encoded message, or have it wait for a connection or for credit."""
        if self.error is not None:
            raise self.error
        if self._max_size and len(payload) > self._max_size:
            raise MessageTooLarge(
                f"a message of {len(payload)} bytes for {self.address!r} is too large",
                reason=f"the broker takes {self._max_size} bytes",
                hint="max-message-size is the broker's option",
                condition="amqp:link:message-size-exceeded",
            )
        if transaction is not None:
            transaction.check()
            transaction.waiting += 1
        self.sent += 1
        delivery = Delivery(self.sent, payload, transaction)
        if self._credit > 0 and not self._queue:
            self._transfer(delivery)
        else:
            self._queue.append(delivery)
            if transaction is not None:
                transaction.queued_at.add(self)
        return delivery

    def _transfer(self, delivery: Delivery) -> None:
        end, wire = self.end, self.wire
        assert end is not None and wire is not None
        self._credit -= 1
        state = None
        if delivery.transaction is not None:
            state = enlisted(delivery.transaction.transaction_id)
        pointer = end.send(delivery.payload, settled=self.settled, state=state)
        if self.settled:
            self._done(delivery, ALL_IS_WELL)
        else:
            self._sent[pointer] = delivery
        wire.wake()

    def _ends(self) -> tuple[Terminus, Terminus, dict[Any, Any]]:
        theirs = target(
            self.address, capabilities=self._capabilities, properties=self._node_properties
        )
        properties = {Symbol(key): value for key, value in self._properties.items()}
        return source(self.name), theirs, properties

    def _mode(self) -> int:
        return SETTLED if self.settled else UNSETTLED

    def _opened(self, end: LinkEnd, theirs: Terminus) -> None:
        self._max_size = end.remote_max_message_size()

    def flowed(self) -> None:
        """Use new credit: first for what has no outcome since the last connection."""
        end = self.end
        if end is None:
            return
        self._credit = end.credit()
        queue = self._queue
        while queue and self._credit > 0:
            delivery = queue.popleft()
            if delivery.error is None:
                self._transfer(delivery)
        if self._credit > 0 and end.is_draining():
            end.drained()
            self._credit = 0
            if self.wire is not None:
                self.wire.wake()

    def delivery_changed(self, delivery: Pointer) -> None:
        """Take note of what became of a message."""
        state = remote_state(delivery)
        if state == ACCEPTED:
            found = self._sent.pop(delivery, None)
            outcome = ALL_IS_WELL
        elif state == TRANSACTIONAL or state in STATES or is_settled(delivery):
            found = self._sent.pop(delivery, None)
            outcome = _read_outcome(delivery, state)
        else:
            return
        settle(delivery)
        if found is not None:
            self._done(found, outcome)

    def _done(self, delivery: Delivery, outcome: Outcome) -> None:
        delivery.outcome = outcome
        delivery.payload = b""
        if delivery.transaction is not None:
            delivery.transaction.waiting -= 1
        if self.on_outcome is not None:
            self.on_outcome(delivery)
        elif outcome is not ALL_IS_WELL and not outcome.accepted:
            self.not_accepted.append(delivery)
        if delivery.on_done is not None:
            delivery.on_done()

    def lost(self) -> None:
        """Have everything without an outcome wait for the next connection, but for what belongs to
        a transaction.
        """
        super().lost()
        self._credit = 0
        waiting = [*self._sent.values(), *self._queue]
        self._sent, self._queue = {}, deque()
        for delivery in waiting:
            if delivery.transaction is None:
                self._queue.append(delivery)
            else:
                error = delivery.transaction.error
                self._give_up(delivery, error or TransactionLost("the connection was lost"))

    def fail(self, error: ClientError) -> None:
        """End the link: what has no outcome will not have one."""
        super().fail(error)
        waiting = [*self._sent.values(), *self._queue]
        self._sent, self._queue = {}, deque()
        for delivery in waiting:
            self._give_up(delivery, error)

    def give_up(self, transaction: Transaction) -> None:
        """Take what a transaction posted and what still waits out of the queue."""
        waiting = list(self._queue)
        self._queue.clear()
        self._queue.extend(each for each in waiting if each.transaction is not transaction)
        error = TransactionFailed("the message was not sent: its transaction is rolled back")
        for delivery in waiting:
            if delivery.transaction is transaction:
                self._give_up(delivery, error)

    def _give_up(self, delivery: Delivery, error: ClientError) -> None:
        delivery.error = error
        delivery.payload = b""
        if delivery.transaction is not None:
            delivery.transaction.waiting -= 1
        if self.on_outcome is not None:
            self.on_outcome(delivery)
        if delivery.on_done is not None:
            delivery.on_done()


class Settler(Protocol):
    """Carries out what an application decides of a message."""

    def settle(self, message: Received, outcome: Outcome, transaction: Transaction | None) -> None:
        """Give a message its outcome."""


class Received(Message):
    """A message that was received, to be given an outcome: accepted, rejected, released or
    modified (AMQP 1.0 section 3.4). One of a link that browses, or that was sent settled, needs
    none.

    Raises DeliveryLost from each of them if its connection is gone: the broker delivers the message
    again.
    """

    __slots__ = ("_delivery", "_generation", "_settler", "is_confirmed", "outcome")

    _delivery: Pointer | None
    _generation: int
    _settler: Settler
    outcome: Outcome | None
    """What it was given."""
    is_confirmed: bool
    """Whether the broker said that it has carried the outcome out, on links with `confirm`; of a
    message that was sent settled, or is browsed, there is nothing to carry out.
    """

    def unload(self) -> bytes:
        """Return the message as it was encoded, and let go of it here: what is left can be given
        its outcome, and takes less memory.
        """
        payload, self._raw = self.encode(), b""
        return payload

    def accept(self, transaction: Any = None) -> None:
        """Take the message off its queue; in a transaction when that is committed."""
        self._settler.settle(self, ALL_IS_WELL, transaction)

    def reject(
        self, description: str = "", *, condition: str = "", transaction: Any = None
    ) -> None:
        """Refuse the message for ever: the broker drops it or puts it into the dead-letter queue
        of its own. `condition` is an AMQP error condition.
        """
        if description and not condition:
            condition = "amqp:not-allowed"
        self._settler.settle(self, Outcome("rejected", condition, description), transaction)

    def release(self, transaction: Any = None) -> None:
        """Give the message back as if it had never been delivered."""
        self._settler.settle(self, Outcome("released"), transaction)

    def modify(
        self,
        *,
        failed: bool = True,
        undeliverable_here: bool = False,
        annotations: Mapping[str, Any] | None = None,
        transaction: Any = None,
    ) -> None:
        """Give the message back: counted as a failed delivery if `failed`, not to this link if
        `undeliverable_here`, with message annotations added to it.
        """
        outcome = Outcome(
            "modified",
            failed=failed,
            undeliverable_here=undeliverable_here,
            annotations={Symbol(key): value for key, value in (annotations or {}).items()},
        )
        self._settler.settle(self, outcome, transaction)


class Receiver(Link):
    """A link on which messages are received. The broker may send `window` of them ahead of what
    the application took; with a window of 0 credit is given by `flow` alone.
    """

    def __init__(
        self,
        name: str,
        address: str | None,
        *,
        window: int,
        terminus: Terminus,
        settled: bool = False,
        confirm: bool = False,
        own_session: bool = False,
        properties: Mapping[str, Any] | None = None,
        on_confirmed: Callable[[Received], None] | None = None,
    ) -> None:
        super().__init__(None, name, address)
        self.own_session = own_session
        self.window = window
        self.settled = settled
        self.confirm = confirm
        self.settler: Settler = self
        """Who settles a message when the application asks it to: a face that locks, or this
        link.
        """
        self.on_message: Callable[[], None] | None = None
        """Called for each message that was put into `buffer`."""
        self.on_confirmed = on_confirmed
        self.buffer: deque[Received] = deque()
        self.generation = 0
        """Counts the connections that were lost."""
        self.credit = 0
        """Messages that the broker may still send."""
        self._used = 0
        self._drains = False
        """Whether the broker was asked to give credit back and has not answered."""
        self._drains_again = False
        """Whether it was asked once more meanwhile: its answer may be older than outcomes that make
        room.
        """
        self._granted = 0
        """Credit that was asked for by `flow` and not used, which a new connection gets again."""
        self._terminus = terminus
        self._browses = terminus.distribution == COPY
        """Whether messages stay on their queue, so that no outcome is of use, and all come again on
        the next connection.
        """
        self._properties = dict(properties or {})
        self._unconfirmed: dict[Pointer, Received] = {}

    def _ends(self) -> tuple[Terminus, Terminus, dict[Any, Any]]:
        properties = {Symbol(key): value for key, value in self._properties.items()}
        return self._terminus, target(self.name), properties

    def _mode(self) -> int:
        return SETTLED if self.settled or self._browses else MIXED

    def _begin(self, end: LinkEnd) -> None:
        super()._begin(end)
        self._used = 0
        self._drains = self._drains_again = False
        self.credit = max(0, self.window - len(self.buffer)) if self.window else self._granted
        if self.credit:
            end.flow(self.credit)

    def _opened(self, end: LinkEnd, theirs: Terminus) -> None:
        self.address = theirs.address or self.address
        missing = [str(name) for name in self._terminus.filter if name not in theirs.filter]
        if missing:
            # A receiver that gets what it did not ask for takes other receivers' messages.
            self.end = None
            end.end()
            self.fail(
                LinkError(
                    f"the broker does not filter messages of {self.address!r}",
                    reason=f"it left out {', '.join(missing)} when it answered",
                    condition="amqp:not-implemented",
                )
            )

    def delivery_changed(self, delivery: Pointer) -> None:
        """Take a message, or hear that what became of one is carried out."""
        if delivery in self._unconfirmed:
            if is_settled(delivery):
                self._confirmed(self._unconfirmed.pop(delivery))
                settle(delivery)
            return
        end = self.end
        assert end is not None
        try:
            payload = end.take(delivery)
        except TooLargeHere:
            return  # No limit is set on this side.
        if payload is None:
            return
        message = Received.__new__(Received)
        message._raw = payload
        message._settler = self.settler
        message._generation = self.generation
        message.outcome = None
        if self._browses or is_settled(delivery):
            settle(delivery)
            message._delivery = None
            message.is_confirmed = True
        else:
            message._delivery = delivery
            message.is_confirmed = False
        self.credit -= 1
        if self._granted:
            self._granted -= 1
        self.buffer.append(message)
        if self.on_message is not None:
            self.on_message()

    def take(self) -> Received:
        """Take the first message of the buffer; there must be one."""
        message = self.buffer.popleft()
        if self.window:
            self._used += 1
            if 2 * self._used >= self.window:
                self._top_up()
        return message

    def _top_up(self) -> None:
        end, wire = self.end, self.wire
        if end is not None and wire is not None and not end.awaits_drained():
            end.flow(self._used)
            self.credit += self._used
            self._used = 0
            wire.wake()

    def flow(self, credit: int) -> None:
        """Let the broker send this many messages more."""
        if self.error is not None:
            raise self.error
        self._granted += credit
        if self.end is not None and self.wire is not None:
            self.end.flow(credit)
            self.credit += credit
            self.wire.wake()

    def drain(self) -> None:
        """Ask the broker to use the credit or give it back."""
        if self.end is not None and self.wire is not None:
            self._drains_again = self.end.awaits_drained()
            self._drains = True
            self.end.drain(0)
            self.wire.wake()

    @property
    def is_drained(self) -> bool:
        """Whether the broker has used the credit or given it back."""
        return self.end is not None and self.is_open and not self.end.awaits_drained()

    @property
    def kept_back(self) -> int:
        """Messages that the broker, asked to drain, had and did not send: it waits for outcomes of
        others.
        """
        return (self.end.available() or 0) if self.end is not None and self.is_open else 0

    def check_empty(self) -> None:
        """Raise ClientError if the drain that ended is not for want of messages."""
        if self.kept_back:
            raise ClientError(
                f"the broker keeps {self.kept_back} messages of {self.address!r} back",
                reason="so many others are not settled that it sends no more",
                hint="accept messages as they come, or raise the broker's session-max-unacked",
            )

    def drain_ended(self, generation: int) -> bool:
        """Whether a drain that began in this generation is over, because the broker answered or
        because nobody will.
        """
        return self.is_drained or self.error is not None or self.generation != generation

    def refill(self) -> None:
        """Give the window again after a drain."""
        missing = self.window - len(self.buffer) - self.credit if self.window else 0
        if self.end is not None and self.wire is not None and missing > 0:
            self.end.flow(missing)
            self.credit += missing
            self._used = 0
            self.wire.wake()

    def flowed(self) -> None:
        """Hear that credit was given back; a window is given again, for the call that drained may
        have timed out before.
        """
        if self.end is not None and not self.end.awaits_drained():
            self.credit = self.end.credit()
            if not self.window:
                self._granted = self.credit
            elif self._drains:
                again = self._drains_again and not self.buffer
                self._drains = self._drains_again = False
                self.refill()
                if again:
                    self.drain()

    def settle(self, message: Received, outcome: Outcome, transaction: Transaction | None) -> None:
        """Give a message its outcome."""
        delivery = message._delivery
        if message.outcome is not None:
            raise ClientError(f"the message was {message.outcome.state} already")
        if delivery is None:
            message.outcome = outcome  # Sent settled, or browsed: nobody waits for an outcome.
            return
        end, wire = self.end, self.wire
        if message._generation != self.generation or end is None or wire is None:
            raise self.error or DeliveryLost(
                f"a message of {self.address!r} cannot be {outcome.state}",
                reason="its connection was lost",
                hint="the broker delivers it again",
            )
        if transaction is not None:
            transaction.check()  # First: a refused call leaves the message to be settled otherwise.
        message.outcome = outcome
        message._delivery = None
        if transaction is not None:
            set_state(
                delivery,
                TRANSACTIONAL,
                enlisted(transaction.transaction_id, _peer_outcome(outcome)),
            )
            settle(delivery)
        elif self.confirm:
            _give(delivery, outcome)
            self._unconfirmed[delivery] = message
        else:
            _give(delivery, outcome)
            settle(delivery)
        wire.wake()

    @property
    def unconfirmed(self) -> int:
        """Messages whose outcome the broker has yet to confirm."""
        return len(self._unconfirmed)

    def _confirmed(self, message: Received) -> None:
        message.is_confirmed = True
        if self.on_confirmed is not None:
            self.on_confirmed(message)

    def lost(self) -> None:
        """Forget what the broker delivers again; what came settled is ours."""
        super().lost()
        self.generation += 1
        self.credit = 0
        self._unconfirmed = {}
        if self._browses:
            self.buffer.clear()
        else:
            self.buffer = deque(message for message in self.buffer if message._delivery is None)

    def fail(self, error: ClientError) -> None:
        """End the link: outcomes that the broker has not confirmed never will be."""
        super().fail(error)
        self._unconfirmed = {}

    def close(self) -> None:
        """Detach. What the application never saw is released: for its queue it was not delivered.
        The broker gives the rest without an outcome to others as well.
        """
        if self.end is not None:
            for message in self.buffer:
                if message._delivery is not None:
                    _give(message._delivery, Outcome("released"))
                    settle(message._delivery)
        super().close()
        self.buffer.clear()


class Coordinator(Link):
    """The link on which transactions begin and end."""

    sends = True

    def __init__(self, name: str) -> None:
        super().__init__(None, name, "the coordinator")
        self._credit = 0
        self._queue: deque[Transaction] = deque()
        self._asked: dict[Pointer, Transaction] = {}
        self._open: dict[Transaction, None] = {}

    def declare(self) -> Transaction:
        """Begin a transaction; it is open when the broker gave it an id."""
        transaction = Transaction()
        self._open[transaction] = None
        self._ask(transaction)
        return transaction

    def discharge(self, transaction: Transaction, *, failed: bool) -> None:
        """Commit a transaction, or roll it back; then its unsent messages are given up."""
        if transaction.error is not None:
            if failed:
                return
            raise transaction.error
        transaction.check()
        if failed:
            transaction.give_up_unsent()
        transaction.state, transaction.failed = "discharging", failed
        self._ask(transaction)

    def _ask(self, transaction: Transaction) -> None:
        if self.error is not None:
            raise self.error
        self._queue.append(transaction)
        self._use()

    def _use(self) -> None:
        end, wire = self.end, self.wire
        if end is None or wire is None:
            return
        while self._queue and self._credit > 0:
            transaction = self._queue.popleft()
            self._credit -= 1
            payload = (
                declare()
                if transaction.state == "declaring"
                else discharge(transaction.transaction_id, failed=transaction.failed)
            )
            self._asked[end.send(payload)] = transaction
        wire.wake()

    def _ends(self) -> tuple[Terminus, Terminus, dict[Any, Any]]:
        return source(self.name), Terminus(COORDINATOR), {}

    def _mode(self) -> int:
        return UNSETTLED

    def flowed(self) -> None:
        """Use new credit."""
        if self.end is not None:
            self._credit = self.end.credit()
            self._use()

    def delivery_changed(self, delivery: Pointer) -> None:
        """Take what the broker says of a declaration or discharge."""
        state = remote_state(delivery)
        if state not in STATES and state != DECLARED and not is_settled(delivery):
            return
        transaction = self._asked.pop(delivery, None)
        fields = remote_fields(delivery) if state == DECLARED else None
        outcome = _read_outcome(delivery, state) if state in STATES else None
        settle(delivery)
        if transaction is None:
            return
        if state == DECLARED and isinstance(fields, list) and fields:
            transaction.transaction_id, transaction.state = fields[0], "open"
            return
        del self._open[transaction]
        if state == ACCEPTED:
            transaction.state = "rolled back" if transaction.failed else "committed"
            return
        condition = outcome.condition if outcome is not None else ""
        reason = outcome.explanation if outcome is not None else ""
        hint = outcome.hint if outcome is not None else ""
        transaction.fail(
            TransactionFailed(
                "the broker rolled the transaction back"
                if transaction.state == "discharging"
                else "the broker began no transaction",
                reason=reason or "it gave no reason",
                hint=hint,
                condition=condition,
            )
        )

    def lost(self) -> None:
        """Every transaction ends with its connection."""
        super().lost()
        self._credit = 0
        asked = set(self._asked.values())
        self._asked, self._queue = {}, deque()
        transactions, self._open = self._open, {}
        for transaction in transactions:
            in_doubt = (
                transaction.state == "discharging"
                and transaction in asked
                and not transaction.failed
            )
            transaction.fail(
                TransactionLost(
                    "the transaction is lost with its connection",
                    in_doubt=in_doubt,
                    reason="its commit was on its way, and may have been done"
                    if in_doubt
                    else "the broker rolled it back",
                    hint="look whether it was done, then repeat it" if in_doubt else "repeat it",
                )
            )

    def fail(self, error: ClientError) -> None:
        """End the link, and every transaction with it."""
        super().fail(error)
        transactions, self._open = self._open, {}
        for transaction in transactions:
            transaction.fail(
                TransactionFailed(
                    error.text, reason=error.reason, hint=error.hint, condition=error.condition
                )
            )


def source_of(
    address: str | None,
    *,
    browse: bool = False,
    dynamic: bool = False,
    selector: str = "",
    filters: Mapping[str, Any] | None = None,
    capabilities: tuple[str, ...] = (),
    node_properties: Mapping[str, Any] | None = None,
    durable: bool = False,
    expiry: str = "session-end",
) -> Terminus:
    """Describe the source that a receiver asks for (AMQP 1.0 section 3.5.3)."""
    wanted: dict[Any, Any] = {}
    if selector:
        wanted[Symbol("selector")] = Described(Symbol(SELECTOR), selector)
    for name, described in (filters or {}).items():
        wanted[Symbol(name)] = described
    return source(
        address,
        dynamic=dynamic,
        distribution=COPY if browse else "",
        filter=wanted,
        capabilities=list(capabilities),
        properties={Symbol(key): value for key, value in (node_properties or {}).items()},
        durability=2 if durable else 0,
        expiry=expiry,
    )


def _read_outcome(delivery: Pointer, state: int) -> Outcome:
    """Read what the broker says became of a message."""
    found: PeerOutcome | None = None
    if state == TRANSACTIONAL:
        found = read_state(remote_fields(delivery))[1]
    elif state in STATES:
        found = remote_outcome(delivery)
    if found is None:
        return Outcome("released", description="the broker settled it without an outcome")
    error = found.error or PeerError("")
    return Outcome(
        STATES.get(found.state, "released"),
        error.condition,
        error.description,
        error.info,
        found.failed,
        found.undeliverable,
        found.annotations,
    )


def _peer_outcome(outcome: Outcome) -> PeerOutcome:
    return PeerOutcome(
        CODES[outcome.state],
        PeerError(outcome.condition, outcome.description) if outcome.condition else None,
        outcome.failed,
        outcome.undeliverable_here,
        dict(outcome.annotations),
    )


def _give(delivery: Pointer, outcome: Outcome) -> None:
    """Tell the broker the outcome of a delivery."""
    if outcome is ALL_IS_WELL:
        update(delivery, ACCEPTED)
        return
    give(delivery, _peer_outcome(outcome))
