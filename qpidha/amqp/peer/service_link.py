"""Service links: links whose other end, on our side, is a piece of code and not a queue.

They serve management and replication on connections that came to us, and everything we do on
connections that we opened. A receiver's credit is topped up by itself; a sender's messages wait
here, within bounds, while the peer gives no credit, or reads slower than it asks. Source: AMQP 1.0
section 2.6.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from qpidha.amqp.peer.links import is_settled, remote_state, settle, update
from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    MIXED,
    NONE,
    SETTLED,
    UNSETTLED,
    Outcome,
    PeerError,
    Pointer,
    Terminus,
)
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL
from qpidha.amqp.peer.values import give, reject, remote_outcome
from qpidha.model.errors import (
    LimitExceeded,
    LinkStolen,
    MessageTooLarge,
    NotImplementedHere,
    ProtocolViolation,
    QpidHaError,
    RefusedRequest,
)

if TYPE_CHECKING:
    from qpidha.amqp.peer.host import AnswerRoom, LinkHome, Service
    from qpidha.amqp.peer.links import LinkEnd
    from qpidha.model.encoding import Parts

MAX_WAITING = 64 << 20
"""Bytes that may wait for credit on one link; a service that makes more must look at `credit`
first.
"""
LONGEST_REQUEST = 1 << 20
"""Bytes of a message to a service, if not of another broker: each is read at once."""
UNLIMITED_WINDOW = 100_000
"""Credit that stands for `unlimited`."""


class ServiceLink:
    """One link of a service."""

    __slots__ = (
        "_accepts",
        "_is_ours",
        "_manual",
        "_numbers",
        "_room",
        "_sent",
        "_settled",
        "_used",
        "_waiting",
        "_waiting_bytes",
        "_window",
        "address",
        "connection",
        "credit",
        "end",
        "error",
        "last_delivery",
        "name",
        "remote_source",
        "remote_target",
        "sends",
        "service",
    )

    def __init__(
        self,
        connection: LinkHome,
        end: LinkEnd,
        service: Service,
        address: str,
        room: AnswerRoom | None = None,
    ) -> None:
        self.connection = connection
        self.end: LinkEnd | None = end
        self.service = service
        self.name = end.name
        self.address = address
        self.sends = end.is_sender
        self.credit = 0
        """Messages the peer would take now (of a sender)."""
        self.remote_source = Terminus()
        self.remote_target = Terminus()
        self.error: PeerError | None = None
        self.last_delivery: Pointer | None = None
        """The delivery of the message that `received` was called with last."""
        self._window = connection.host.settings.ha_flow_messages or UNLIMITED_WINDOW
        self._manual = False
        self._settled = True
        self._accepts = True
        self._is_ours = False
        self._room = room
        """How much may wait for the peer, if it is a client of ours."""
        self._used = 0
        self._sent = 0
        self._numbers: dict[Pointer, int] = {}
        self._waiting: deque[tuple[bytes | Parts, int, bool]] = deque()
        self._waiting_bytes = 0

    # Beginning.

    def accept(self, source: Terminus, target: Terminus) -> None:
        """Answer a peer that attached to the service; raise what the service refuses it with."""
        assert self.end is not None
        self.remote_target = Terminus(target.kind, target.address)
        self.service.attached(self)
        self.end.owner = self
        if (
            not self.sends and not self.connection.principal.is_broker
        ):  # brokers send each other more at a time than any client
            most = self.connection.host.settings.max_message_size
            self.end.set_limit(min(most, LONGEST_REQUEST))
        mode = SETTLED if self.sends else MIXED
        self.end.open(source, target, mode=mode)
        if not self.sends:
            self.end.flow(self._window)

    def begin(
        self,
        source: Terminus,
        target: Terminus,
        *,
        properties: dict[Any, Any],
        credit: int,
        settled: bool,
        accepts: bool,
        max_size: int = 0,
    ) -> None:
        """Attach to a peer; `credit` below 0 is topped up by itself, else given by `flow`.
        `max_size` is that of a message, 0 for any.
        """
        assert self.end is not None
        if max_size and not self.sends:
            self.end.set_limit(max_size)
        self.end.owner = self
        self._is_ours = True
        self._accepts = accepts
        self._settled = settled
        self._manual = credit >= 0
        mode = UNSETTLED if not settled else SETTLED if self.sends else MIXED
        self.end.open(source, target, properties=properties, mode=mode)
        if not self.sends and credit:
            self.end.flow(credit if self._manual else self._window)

    def answered(self) -> None:
        """The peer answered our attach; if it gave no terminus, it refuses, and its error
        follows.
        """
        if not self._is_ours:
            raise ProtocolViolation(f"link '{self.name}' is attached already")
        assert self.end is not None
        self.remote_source, self.remote_target = self.end.remote_source(), self.end.remote_target()
        if (self.remote_target if self.sends else self.remote_source).kind == NONE:
            return
        found = self.remote_target.address if self.sends else self.remote_source.address
        self.address = found or self.address
        self.service.attached(self)

    # A sender's.

    def send(self, payload: bytes | Parts, *, settled: bool | None = None) -> int:
        """Send one message, as a whole or in parts, or let it wait for credit; give its number,
        which `outcome` of the service will name.

        It is pre-settled, unless the link was attached otherwise or `settled` says so.
        """
        if settled is None:
            settled = self._settled
        self._sent += 1
        if self.end is None:
            return self._sent
        size = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))
        if self.credit > 0 and not self._waiting and self._may_send(self.end):
            self._send(payload, size, settled, self._sent)
        else:
            if self._waiting_bytes + size > MAX_WAITING:
                raise LimitExceeded(
                    f"{self._waiting_bytes} bytes already wait for credit on link "
                    f"'{self.name}' to {self.address}",
                    hint="send no more than its credit",
                )
            self._waiting.append((payload, size, settled))
            self._waiting_bytes += size
            self.owe(size)
        return self._sent

    def owe(self, size: int) -> None:
        """Count bytes that are kept for an answer to the peer, or below 0 are no longer."""
        if self._room is not None:
            self._room.count(size)

    def _may_send(self, end: LinkEnd) -> bool:
        return self._room is None or self._room.may_send(self, end.session)

    def _send(self, payload: bytes | Parts, size: int, settled: bool, number: int) -> None:
        assert self.end is not None
        self.credit -= 1
        delivery = self.end.send(payload, settled=settled)
        if not settled:
            self._numbers[delivery] = number
        if self._room is not None:
            self._room.handed(self.end.session, size)
        self.connection.wake()

    @property
    def waiting(self) -> int:
        """Messages that wait for credit."""
        return len(self._waiting)

    @property
    def unsettled(self) -> int:
        """Messages sent whose outcome is not known."""
        return len(self._numbers)

    # A receiver's.

    def flow(self, credit: int) -> None:
        """Allow the peer more messages, on a link whose credit is not topped up by itself."""
        if self.end is not None:
            self.end.flow(credit)
            self.connection.wake()

    def drain(self) -> None:
        """Ask for the credit that the peer cannot use."""
        if self.end is not None:
            self.end.drain(0)
            self.connection.wake()

    def settle(
        self, delivery: Pointer, state: int = ACCEPTED, outcome: Outcome | None = None
    ) -> None:
        """Give a message that was received without `accepts` its outcome; `delivery` was
        `last_delivery` then. An `outcome` says more than a `state`.
        """
        if self.end is not None:
            if outcome is None:
                update(delivery, state)
            else:
                give(delivery, outcome)
            settle(delivery)
            self._use(self.end)
            self.connection.wake()

    def go_on(self) -> None:
        """There may be room again: use it."""
        if self.sends:
            self.flowed()
        elif self.end is not None and self._top_up(self.end):
            self.connection.wake()

    # End.

    def _leave(self) -> LinkEnd | None:
        """Give up the end of the link, if there is one still, and what waits for it."""
        end, self.end = self.end, None
        self._waiting.clear()
        self.owe(-self._waiting_bytes)
        self._waiting_bytes = 0
        return end

    def close(self, error: QpidHaError | None = None, *, closed: bool = True) -> None:
        """End the link, or detach if it is not `closed`; the service is not called again."""
        end = self._leave()
        if end is not None:
            end.end(error, closed=closed)
            self.connection.wake()

    # What the engine tells.

    def delivery_changed(self, delivery: Pointer) -> None:
        """Take a message, or the outcome of one."""
        if self.sends:
            self._outcome(delivery)
            return
        end = self.end
        assert end is not None
        try:
            payload = end.take(delivery)
        except MessageTooLarge as error:
            self._fail(error)
            return
        if payload is None:
            return
        self.last_delivery = delivery
        refusal: QpidHaError | None = None
        try:
            if remote_state(delivery) == TRANSACTIONAL:
                raise NotImplementedHere(
                    "this service takes no part in transactions", hint="send to it without one"
                )
            if self._room is not None:
                self._room.check()
            self.service.received(self, payload)
        except (RefusedRequest, ProtocolViolation) as error:
            refusal = error
        if self.end is None:
            return
        if is_settled(delivery):
            settle(delivery)
            if refusal is not None and payload:  # see ReceivingLink._pass_over
                self._fail(refusal)  # There is no outcome to say it with.
                return
        elif refusal is not None:
            reject(delivery, refusal)
        elif not self._accepts:
            return
        else:
            update(delivery, ACCEPTED)
            settle(delivery)
        self._use(end)

    def _use(self, end: LinkEnd) -> None:
        self._used += 1
        self._top_up(end)

    def _top_up(self, end: LinkEnd) -> bool:
        """Let the peer send on when it has used half of its credit; tell whether it may."""
        if self._manual or 2 * self._used < self._window:
            return False
        if self._room is not None and not self._room.may_ask(self):
            return False
        end.flow(self._used)
        self._used = 0
        return True

    def _outcome(self, delivery: Pointer) -> None:
        state = remote_state(delivery)
        settled = is_settled(delivery)
        if delivery not in self._numbers or not (settled or ACCEPTED <= state <= ACCEPTED + 3):
            return
        number = self._numbers.pop(delivery)
        outcome = remote_outcome(delivery)
        settle(delivery)
        report = getattr(self.service, "outcome", None)
        if report is not None:
            report(self, number, outcome)

    def flowed(self) -> None:
        """Use new credit: first for what waits, then the service may make more."""
        if not self.sends or self.end is None:
            return
        self.credit = self.end.credit()
        while self._waiting and self.credit > 0 and self._may_send(self.end):
            payload, size, settled = self._waiting.popleft()
            self._waiting_bytes -= size
            self.owe(-size)
            self._send(payload, size, settled, self._sent - len(self._waiting))
        if self.credit > 0:
            self.service.credited(self)
        self._give_back_credit()

    def _give_back_credit(self) -> None:
        if self._waiting:
            return
        if self.end is not None and self.credit > 0 and self.end.is_draining():
            self.end.drained()
            self.credit = 0

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer ended the link."""
        self.error = error
        end = self._leave()
        if end is not None:
            end.end(closed=closed)
        self.service.detached(self)

    def lost(self) -> None:
        """The session or connection is gone."""
        self._leave()
        if self.error is None:
            self.error = self.connection.error
        self.service.detached(self)

    def stolen(self) -> None:
        """Another link took this one's name."""
        self._fail(LinkStolen(f"link '{self.name}' was attached again by the same container"))

    def declined(self, delivery: Pointer, error: QpidHaError) -> None:
        """A message came that cannot be taken."""
        if self.end is not None:
            reject(delivery, error)
            self._use(self.end)
            self.connection.wake()

    def broken(self, error: QpidHaError) -> None:
        """The peer broke a rule."""
        self._fail(error)

    def _fail(self, error: QpidHaError) -> None:
        end = self._leave()
        if end is not None:
            end.end(error)
            self.connection.wake()
            self.service.detached(self)
