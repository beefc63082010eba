"""Outgoing links: messages of a queue on their way to a client, and what becomes of them.

A link is a consumer of its queue. Its `credit` is what the queue may still hand it: the peer's
credit, but no more than there is room for among the unsettled deliveries of the session, in this
turn, and in the peer's socket. An outcome is carried out at once; if the peer waits for us to
settle, that happens when the record of it is committed, so that it never sees that message again.
What was not settled when the link ends goes back to its place, marked as having failed once. An
outcome in a transaction is carried out when that is committed, and until then the message stays
with this link's client; a delivery that the client has not settled stays unsettled, and is the
client's to give another outcome if there is no commit. `available` is not told: proton's engine
never puts it into a flow. Source: AMQP 1.0 sections 2.6.7, 2.6.12, 3.4, 4.4.2; Qpid:
src/qpid/broker/amqp/Outgoing.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.amqp.peer.links import is_settled, remote_state, settle, update
from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    MODIFIED,
    REJECTED,
    RELEASED,
    SETTLED,
    Outcome,
    PeerError,
    Pointer,
    Terminus,
)
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL, read_state
from qpidha.amqp.peer.values import remote_fields, remote_outcome
from qpidha.amqp.server.client_link import ClientLink
from qpidha.amqp.server.open_transactions import UnknownTransaction
from qpidha.broker.queues.dispatch import MAX_REFUSALS, Refusals
from qpidha.broker.transaction import Fate, Retirement, TransactionRolledBack
from qpidha.model.encoding import Symbol
from qpidha.model.errors import (
    LimitExceeded,
    LinkStolen,
    MessageTooLarge,
    ProtocolViolation,
    QpidHaError,
    ResourceDeleted,
)
from qpidha.model.message_view import (
    add_annotation,
    departure,
    merge_annotations,
    place_of_annotations,
)
from qpidha.model.principal import Action, ObjectType

if TYPE_CHECKING:
    from qpidha.amqp.peer.links import LinkEnd, SessionEnd
    from qpidha.amqp.server.host import LinkHome
    from qpidha.amqp.server.open_transactions import Work
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message

FAILED_OVER = "x-opt-ha-failover"
"""The message annotation of a message that was on its queue when its primary changed. Who had it
then is not replicated, so it may have been with a consumer or not.
"""
_FAILED_OVER_SECTION = add_annotation(b"", b"", FAILED_OVER, True)
TURN_BYTES = 4 << 20
"""Bytes of messages put into one connection in one turn, so that one consumer of a deep queue does
not hold up all others.
"""


MAX_ANNOTATIONS = 64 << 10
"""Bytes of annotations that outcomes may put beside a message; more are not taken, for each outcome
may add some.
"""
FATES = {
    ACCEPTED: Fate.ACCEPT,
    REJECTED: Fate.REJECT,
    RELEASED: Fate.RELEASE,
    MODIFIED: Fate.REQUEUE,
}
"""What the outcomes do to a message."""
STATES = {fate: state for state, fate in FATES.items()}
LOST = Outcome(MODIFIED, failed=True)
"""The outcome of deliveries that are lost with their link."""


class IllegalState(QpidHaError):
    """An outcome that contradicts an earlier one."""

    condition = "amqp:illegal-state"


class OutgoingLink(ClientLink):
    """A link on which a peer receives."""

    __slots__ = (
        "_broken",
        "_broker",
        "_default",
        "_deletes",
        "_enlisted",
        "_limit",
        "_max_bytes",
        "_max_size",
        "_most_at_once",
        "_queue",
        "_refusals",
        "_resume",
        "_settled",
        "_tracer",
        "_unsettled",
        "address",
        "browse",
        "credit",
        "cursor",
        "exclusive",
        "is_selective",
    )

    def __init__(
        self, served: LinkHome, end: LinkEnd, *, browse: bool, exclusive: bool = False
    ) -> None:
        super().__init__(served, end)
        self._broker = self._host.broker
        self.address = ""
        self.credit = 0
        self.browse = browse
        self.exclusive = exclusive
        self.cursor = 0
        self.is_selective = False
        self._refusals = Refusals()
        self._queue: Queue | None = None
        self._tracer = self._host.event_log.tracer
        self._settled = end.remote_sender_mode() == SETTLED
        self._default: Outcome | None = None
        """Of a delivery that is settled, or lost with the link, without an outcome: None is
        released, and modified with delivery-failed.
        """
        self._unsettled: dict[Pointer, Message] = {}
        self._enlisted: dict[Pointer, Retirement] = {}
        """Unsettled too, but with an outcome in a transaction; they are in one of the two, so that
        others cost nothing more.
        """
        self._limit = self._host.settings.session_max_unacked
        # Many blocked links are woken together, when a tenth of the room is there again.
        self._resume = self._limit - self._limit // 10
        # Far below what may wait for a slow socket before its connection is given up.
        self._max_bytes = self._host.settings.max_output_buffer // 4
        self._max_size = end.remote_max_message_size()
        self._most_at_once = min(TURN_BYTES, self._broker.use.peer_share)
        self._deletes = False
        self._broken: QpidHaError | None = None

    def start(
        self, queue: Queue, source: Terminus, target: Terminus, *, deletes: bool = False
    ) -> None:
        """Subscribe to a queue and answer the attach; `deletes` is whether closing the link ends
        the queue.
        """
        end = self.end
        if end is None:
            return
        queue.subscribe(self)
        self._queue = queue
        self._deletes = deletes
        self._default = source.default_outcome
        self.address = source.address or queue.name
        end.owner = self
        self._served.outgoing[self] = None
        end.open(source, target, mode=end.remote_sender_mode())
        self.flowed()

    # What the queue does.

    def accepts(self, message: Message) -> bool:
        """Whether the peer may have a message: it has not said that it is undeliverable here."""
        return message.sequence not in self._refusals

    def refuse(self, message: Message) -> None:
        """Do not take a message again. A link that refuses too many ends after this turn."""
        queue = self._queue
        if queue is None:
            return
        self.is_selective = True
        if not self._refusals.add(message.sequence, queue.messages) and self.end is not None:
            self._end_soon(
                LimitExceeded(
                    f"this link has refused more than {MAX_REFUSALS} messages that are on "
                    f"{self.address} as undeliverable here",
                    hint="reject what nobody can take",
                )
            )

    def deliver(self, message: Message) -> None:
        """Send one message."""
        end = self.end
        queue = self._queue
        if end is None or queue is None:
            return
        payload = message.body()
        inherited = message.sequence <= queue.inherited
        if inherited or message.delivery_count or message.annotations or message.released:
            payload = _departing(message, payload, inherited=inherited)
        if self._max_size and len(payload) > self._max_size:
            self._break(message, queue)
            return
        self.credit -= 1
        delivery = end.send(payload)
        connection = self._connection
        if self._tracer is not None and queue.log_writer is not None and not self.browse:
            self._tracer.delivered(
                queue.name,
                message.sequence,
                payload,
                message.delivery_count,
                connection.principal.address,
            )
        if self._settled:
            settle(delivery)
            if not self.browse:
                queue.dequeue(message)
        else:
            self._unsettled[delivery] = message
            session = end.session
            session.unacked += 1
            session.unacked_bytes += message.size
            if session.unacked >= self._limit or session.unacked_bytes >= self._max_bytes:
                self.credit = 0
                session.blocked[self] = None
        connection.counters.messages_out += 1
        served = self._served
        served.turn_bytes += len(payload)
        if served.turn_bytes >= self._most_at_once:
            self.credit = 0
            served.out_of_turn_budget[self] = None
        connection.wake()

    def _break(self, message: Message, queue: Queue) -> None:
        """Give back a message that the peer would not take; the link ends after this turn's
        dispatch.
        """
        size = message.size
        if not self.browse:
            queue.release(message)
        self._end_soon(
            MessageTooLarge(
                f"the next message has {size} bytes, over this link's max-message-size "
                f"{self._max_size}"
            )
        )

    def _end_soon(self, error: QpidHaError) -> None:
        """Take nothing more; the queue is in the middle of something."""
        self._broken = error
        self.credit = 0
        self._served.out_of_turn_budget[self] = None
        self._connection.wake()

    def searched(self) -> None:
        """Credit that is asked back is given back now."""
        if self.end is not None and self.end.is_draining():
            self._served.draining[self] = None
            self._connection.wake()

    def queue_deleted(self) -> None:
        """End the link: its queue is gone."""
        self.fail(ResourceDeleted(f"queue '{self.address}' was deleted"))

    def refresh_credit(self) -> None:
        """Find out how many messages the queue may hand over, and have it do so."""
        end, queue = self.end, self._queue
        if self._broken is not None:
            self.fail(self._broken)
            return
        if end is None or queue is None:
            return
        credit = end.credit()
        self.credit = 0
        if credit <= 0 or self._connection.congested:
            return
        session, most = end.session, self._most_at_once
        # What is sent settled awaits nothing, and nothing would unblock it.
        room = credit if self._settled else self._limit - session.unacked
        if room <= 0 or (not self._settled and session.unacked_bytes >= self._max_bytes):
            session.blocked[self] = None
        elif self._served.turn_bytes >= most or session.backlog() >= most:
            self._served.out_of_turn_budget[self] = None
        elif self._served.backlog() < most:
            self.credit = min(credit, room)
            queue.wake()
        else:
            # Sessions whose windows are closed hold as much as the connection may. One whose window
            # is open goes on all the same, a message a turn.
            self._served.out_of_turn_budget[self] = None
            if not session.backlog():
                self.credit = 1
                queue.wake()

    def finish_drain(self) -> None:
        """Give back credit that the queue, dispatched by now, has no messages for."""
        end, queue = self.end, self._queue
        if end is None or queue is None or not end.is_draining():
            return
        if end.credit() > 0 and self.credit == 0:
            # There may be messages yet: this link was held back and goes on later.
            self._served.draining[self] = None
            return
        if queue.is_searching:
            return  # There may be messages behind those that have expired: `searched` tells.
        end.drained()
        self.credit = 0

    # What the engine tells.

    def flowed(self) -> None:
        """Take note of new credit."""
        end, queue = self.end, self._queue
        if end is None or queue is None:
            return
        self.refresh_credit()
        if end.is_draining():
            self._served.draining[self] = None
        self._connection.wake()

    def delivery_changed(self, delivery: Pointer) -> None:
        """Carry out the outcome of a delivery."""
        unsettled = self._unsettled
        if delivery not in unsettled:
            if delivery in self._enlisted:
                self._enlisted_changed(delivery, self._enlisted[delivery])
            return  # Else its outcome is known; it is settled when its record is committed.
        assert self.end is not None
        session = self.end.session  # The outcome may end the queue, and this link with it.
        state = remote_state(delivery)
        if state == ACCEPTED:
            message = unsettled.pop(delivery)
            queue = self._queue
            sequence = 0 if self.browse or queue is None else queue.dequeue(message)
        elif state == TRANSACTIONAL:
            self._enlist(delivery)
            return
        elif state in (REJECTED, RELEASED, MODIFIED) or is_settled(delivery):
            message = unsettled.pop(delivery)
            sequence = 0 if self.browse else self._returned(delivery, message, state)
        else:
            return
        if is_settled(delivery):
            settle(delivery)
        elif sequence:
            self._host.when_committed(sequence, self, delivery)
        else:
            self.on_committed(delivery)
        session.unacked -= 1
        session.unacked_bytes -= message.size
        if session.blocked:
            self._unblock(session)

    def _unblock(self, session: SessionEnd) -> None:
        """Go on with links that waited for deliveries to be settled."""
        if session.unacked < self._resume and session.unacked_bytes < self._max_bytes:
            blocked, session.blocked = session.blocked, {}
            for link in blocked:
                link.refresh_credit()

    def _returned(self, delivery: Pointer, message: Message, state: int) -> int:
        """Carry out an outcome other than accepted; where there is none it is the default."""
        queue = self._queue
        assert queue is not None
        if state == REJECTED:
            return queue.reject(message)
        outcome = self._default if state not in FATES else remote_outcome(delivery)
        if outcome is None or outcome.state != MODIFIED:
            queue.release(message)
            return 0
        not_to = self if outcome.undeliverable else None
        return queue.requeue(
            message, outcome.failed, self._annotations(message, outcome), not_to=not_to
        )

    @staticmethod
    def _annotations(message: Message, outcome: Outcome) -> bytes:
        """Make the annotations that an outcome puts beside a message, if any."""
        annotations = b""
        if outcome.annotations:
            changes = {
                Symbol(key): value
                for key, value in outcome.annotations.items()
                if isinstance(key, str)
            }
            try:
                annotations = merge_annotations(message.body(), message.annotations, changes)
            except ProtocolViolation:
                annotations = b""
            if len(annotations) > MAX_ANNOTATIONS:
                annotations = b""
        return annotations

    def on_committed(self, delivery: Pointer) -> None:
        """Settle a delivery: what became of it is committed."""
        if self.end is None:
            return
        self.answer(delivery, remote_state(delivery))

    def answer(self, delivery: Pointer, state: int) -> None:
        """Settle a delivery with an outcome."""
        update(delivery, state)
        settle(delivery)
        self._connection.wake()

    # Transactions.

    def _enlist(self, delivery: Pointer) -> None:
        """Put an outcome into its transaction."""
        self._served.transactions.taken += 1
        transaction_id, outcome = read_state(remote_fields(delivery))
        try:
            work = self._served.transactions.find(transaction_id)
        except UnknownTransaction as error:
            self.fail(error)
            return
        settled, queue = bool(is_settled(delivery)), self._queue
        if outcome is None and not settled:
            return  # Nothing is said yet of what is to become of it.
        message = self._unsettled.pop(delivery)
        if self.browse or queue is None:
            self.answer(delivery, RELEASED if outcome is None else outcome.state)
            self._forget([message])
            return
        retirement = Retirement(work.transaction, queue, message, Fate.RELEASE, settled=settled)
        if outcome is not None:
            self._change(retirement, outcome)
        self._served.transactions.retire(work, retirement)
        if settled:
            settle(delivery)
            self._forget([message])
        else:
            self._enlisted[delivery] = retirement
            work.participants[self] = None

    def _enlisted_changed(self, delivery: Pointer, retirement: Retirement) -> None:
        """Hear more of a delivery whose outcome is in a transaction: another outcome in the same,
        or that it is settled.
        """
        state, fields = remote_state(delivery), remote_fields(delivery)
        if is_settled(delivery):
            retirement.transaction.settle(retirement)
            del self._enlisted[delivery]
            settle(delivery)
            self._forget([retirement.message])
        if state == TRANSACTIONAL:
            self._served.transactions.taken += 1
            transaction_id, outcome = read_state(fields)
            try:
                work = self._served.transactions.find(transaction_id)
            except UnknownTransaction as error:
                self.fail(error)
                return
            if retirement.transaction is not work.transaction:
                work.owner.fail(
                    TransactionRolledBack(
                        "an outcome was given in two transactions that are both open"
                    )
                )
            elif outcome is not None:
                self._change(retirement, outcome)
                self._served.transactions.changed(work, retirement)
        elif state in FATES:
            self.fail(
                IllegalState(
                    "an outcome was given outside of the transaction that the delivery's "
                    "outcome belongs to"
                )
            )

    def _change(self, retirement: Retirement, outcome: Outcome) -> None:
        """Take what the peer says is to become of a message, if there may be a commit."""
        if retirement.transaction.cause is not None:
            return
        retirement.fate = FATES[outcome.state]
        if outcome.state == MODIFIED:
            retirement.failed = outcome.failed
            retirement.annotations = self._annotations(retirement.message, outcome)
            retirement.not_to = self if outcome.undeliverable else None

    def discharged(self, work: Work, sequence: int, committed: bool) -> None:
        """A transaction came to its end: its unsettled deliveries with it, or they are as they were
        before.
        """
        if self.end is None:
            return
        mine = {
            delivery: one
            for delivery, one in self._enlisted.items()
            if one.transaction is work.transaction
        }
        answers = _Answers(self)
        for delivery, retirement in mine.items():
            del self._enlisted[delivery]
            if committed:
                self._host.when_committed(sequence, answers, (delivery, STATES[retirement.fate]))
            else:
                self._unsettled[delivery] = retirement.message
        if committed:
            self._forget([retirement.message for retirement in mine.values()])

    def _forget(self, messages: list[Message]) -> None:
        """Count these as settled."""
        assert self.end is not None
        session = self.end.session
        session.unacked -= len(messages)
        session.unacked_bytes -= sum(message.size for message in messages)
        self._unblock(session)

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer ended the link; a subscription that is closed, not detached, ends with it."""
        queue = self._queue
        deletes = closed and self._deletes
        super().detached(closed, error)
        if not deletes or queue is None or self._broker.find_queue(queue.name) is not queue:
            return
        if not queue.deleted and not queue.consumers:
            self._broker.delete_queue(queue.name, may_rest=True)
            principal = self._connection.principal
            self._host.access.done(principal, Action.DELETE, ObjectType.QUEUE, queue.name)

    def stolen(self) -> None:
        """Another link took this one's name."""
        if self._queue is None:
            self._leave()  # Not answered yet: whoever answers finds it gone.
        else:
            self.fail(LinkStolen("another link of this name was attached by the same container"))

    def _leave(self) -> None:
        """Give back what was not settled, and everything else."""
        end, self.end = self.end, None
        if end is None:
            return
        self.credit = 0
        served, queue = self._served, self._queue
        self._host.links.detach(self._connection, end.name, True, self)
        for table in (
            served.outgoing,
            served.out_of_turn_budget,
            served.draining,
            end.session.blocked,
        ):
            table.pop(self, None)
        unsettled, self._unsettled = self._unsettled, {}
        enlisted, self._enlisted = self._enlisted, {}
        end.session.unacked -= len(unsettled) + len(enlisted)
        gone = (*unsettled.values(), *(retirement.message for retirement in enlisted.values()))
        end.session.unacked_bytes -= sum(message.size for message in gone)
        if queue is not None:
            if not self.browse:
                default = self._default or LOST
                failed = default.failed if default.state == MODIFIED else None
                self._broker.returns.add(queue, unsettled.values(), failed)
            for retirement in enlisted.values():
                # Nobody is left to say what becomes of it if there is no commit.
                retirement.transaction.settle(retirement)
            queue.unsubscribe(self)
        self._broker.owner_gone(self)


class _Answers:
    """Settles deliveries of a transaction when what it did is committed."""

    __slots__ = ("_link",)

    def __init__(self, link: OutgoingLink) -> None:
        self._link = link

    def on_committed(self, item: tuple[Pointer, int]) -> None:
        """Settle one."""
        if self._link.end is not None:
            self._link.answer(*item)


def _departing(message: Message, payload: bytes, *, inherited: bool) -> bytes:
    """Make the message with what is beside it, and with a mark if it may have been with a consumer
    before this broker was primary. One that cannot be read leaves as it came.
    """
    annotations = message.annotations
    try:
        if inherited and not annotations and not message.delivery_count:
            at = place_of_annotations(payload)
            if at >= 0:
                return payload[:at] + _FAILED_OVER_SECTION + payload[at:]
        if inherited:
            annotations = add_annotation(payload, annotations, FAILED_OVER, True)
        return departure(
            payload,
            message.delivery_count,
            annotations,
            acquired_before=inherited or message.released,
        )
    except ProtocolViolation:
        return payload
