"""Outgoing links: messages of a queue on their way to a client, and what becomes of them.

A link is a consumer of its queue. Its `credit` is what the queue may still hand it: the peer's
credit, but no more than there is room for among the unsettled deliveries of the session, in this
turn, and in the peer's socket. An outcome is carried out at once; if the peer waits for us to
settle, that happens when the record of it is committed, so that it never sees that message again.
What was not settled when the link ends goes back to its place, marked as having failed once. An
outcome in a transaction is carried out when that is committed, and until then the message stays
with this link's client; a delivery that the client has not settled stays unsettled, and is the
client's to give another outcome if there is no commit. `available` is told with credit that is
given back though there are messages: the session has as many unsettled as it may.
Source: AMQP 1.0 sections 2.6.7, 2.6.12, 3.4, 4.4.2; Qpid: src/qpid/broker/amqp/Outgoing.cpp.
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
from qpidha.broker.queues.dead_letters import is_of_deaths
from qpidha.broker.queues.dispatch import MAX_REFUSALS, Refusals
from qpidha.broker.queues.selection import price
from qpidha.broker.transaction import Fate, Retirement, TransactionRolledBack
from qpidha.model.encoding import Described, Symbol, ULong, encode
from qpidha.model.errors import (
    LimitExceeded,
    LinkStolen,
    MessageTooLarge,
    PreconditionFailed,
    ProtocolViolation,
    QpidHaError,
    RefusedRequest,
    ResourceDeleted,
)
from qpidha.model.message_view import (
    ACQUIRED_COUNT,
    DELIVERY_ANNOTATIONS,
    DELIVERY_TIMES,
    FAILED_OVER,
    add_annotation,
    departure,
    due_at,
    merge_annotations,
    place_of_annotations,
)
from qpidha.model.principal import Action, ObjectType

if TYPE_CHECKING:
    from qpidha.amqp.peer.links import LinkEnd, SessionEnd
    from qpidha.amqp.server.host import LinkHome
    from qpidha.amqp.server.open_transactions import Work
    from qpidha.broker.queues.queue import Queue
    from qpidha.broker.queues.selection import Selector
    from qpidha.model.message import Message

_FAILED_OVER_SECTION = add_annotation(b"", b"", FAILED_OVER, True)
ACTIVE = ("rabbitmq:active", "qpidha:active")
"""Properties of a flow that say whether the peer is the single active consumer of its queue."""
FENCING_TOKEN = "x-opt-qpidha-fencing-token"
"""The delivery annotation with the token of a delivery, for who asks for it: the primary's epoch
and a number. Of two deliveries from one queue the later one has the higher token.
"""
TURN_BYTES = 4 << 20
"""Bytes of messages put into one connection in one turn, so that one consumer of a deep queue does
not hold up all others.
"""

LOOKED_AT = 200
"""What may be spent, for one drain, to count what a peer selects; 1 ms."""
MAX_ANNOTATIONS = 1 << 10
"""Bytes of annotations that outcomes may put beside a message, beyond as many as it has itself.
More are not taken: they are in no limit, and each outcome may add some.
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
        "_fences",
        "_given",
        "_is_late",
        "_is_timed",
        "_limit",
        "_max_bytes",
        "_max_size",
        "_most_at_once",
        "_patience",
        "_queue",
        "_refusals",
        "_resume",
        "_settled",
        "_tracer",
        "_unsettled",
        "address",
        "browse",
        "credit",
        "exclusive",
        "is_selective",
        "priority",
        "selector",
    )

    def __init__(
        self,
        served: LinkHome,
        end: LinkEnd,
        *,
        browse: bool,
        exclusive: bool = False,
        priority: int = 0,
        fences: bool = False,
        patience: int | None = None,
    ) -> None:
        """`patience`: how long the peer may keep a message, in ns; 0 for ever, None if it does not
        say.
        """
        super().__init__(served, end)
        self._broker = self._host.broker
        self.address = ""
        self.credit = 0
        self.browse = browse
        self.exclusive = exclusive
        self.priority = priority
        self._fences = fences
        """Whether each delivery has a fencing token."""
        self.selector: Selector | None = None
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
        self._patience = patience
        self._is_timed = patience is not None or self._host.settings.consumer_timeout > 0
        self._given: dict[Pointer, int] = {}
        """When deliveries were made that may not be kept for ever, oldest first; some are settled
        since.
        """
        self._is_late = False
        """Whether the peer kept a message for too long, and nothing was heard of it since."""
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

    def select(self, selector: Selector | None) -> None:
        """Take only what this selects; before `start`."""
        self.selector = selector
        self.is_selective = selector is not None

    def start(
        self, queue: Queue, source: Terminus, target: Terminus, *, deletes: bool = False
    ) -> None:
        """Subscribe to a queue and answer the attach; `deletes` is whether closing the link ends
        the queue.
        """
        end = self.end
        if end is None:
            return
        self.browse = self.browse or queue.spec.browse_only
        self._fences = (self._fences or queue.spec.fences) and not self.browse
        if self._fences and not self._host.fencing_token()[0]:
            raise PreconditionFailed(
                "there are no fencing tokens on a broker alone",
                reason="a token has the epoch of the primary in it, and brokers of a cluster alone "
                "have epochs",
                hint="start the broker with ha-cluster=yes; a cluster of one will do",
            )
        queue.subscribe(self)
        self._queue = queue
        self._deletes = deletes
        self._default = source.default_outcome
        self.address = source.address or queue.name
        end.owner = self
        self._served.outgoing[self] = None
        end.open(source, target, mode=end.remote_sender_mode())
        self._connection.wake()
        self.flowed()

    @property
    def delivered(self) -> int:
        """How many messages the peer was sent."""
        return self.end.sent if self.end is not None else 0

    @property
    def is_settled(self) -> bool:
        """Whether messages are settled when they are sent."""
        return self._settled

    @property
    def unsettled(self) -> int:
        """How many messages the peer has, and nobody has settled yet."""
        return len(self._unsettled) + len(self._enlisted)

    # What the queue does.

    def accepts(self, message: Message) -> bool:
        """Whether the peer may have a message that it selects: it has not said that it is
        undeliverable here.
        """
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
        if (
            inherited
            or message.delivery_count
            or message.annotations
            or message.released
            or self._fences
        ):
            payload = _departing(message, payload, inherited=inherited)
            if self._fences:
                payload = _with_token(payload, self._host.fencing_token())
        if self._max_size and len(payload) > self._max_size:
            self._break(message, queue)
            return
        self.credit -= 1
        delivery = end.send(payload, settled=self._settled)
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
            if not self.browse:
                queue.dequeue(message)
        else:
            self._unsettled[delivery] = message
            if self._is_timed or queue.spec.patience:
                self._time(delivery, queue)
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

    def activated(self, is_active: bool) -> None:
        """Tell the peer, before the first message that it gets for it."""
        if self.end is not None:
            self.end.tell(dict.fromkeys(ACTIVE, is_active), None if is_active else 0)
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
        if end.is_draining():
            self._connection.wake()
        if credit <= 0 or self._connection.congested:
            return
        session, most = end.session, self._most_at_once
        # What is sent settled awaits nothing, and nothing would unblock it.
        room = credit if self._settled else self._limit - session.unacked
        if not self._settled and self._is_full(session):
            session.blocked[self] = None
        elif self._served.turn_bytes >= most or session.backlog() >= most:
            self._served.out_of_turn_budget[self] = None
        elif self._served.backlog() < most:
            self.credit = min(credit, room)
            queue.wake(self)
        else:
            # Sessions whose windows are closed hold as much as the connection may. One whose window
            # is open goes on all the same, a message a turn.
            self._served.out_of_turn_budget[self] = None
            if not session.backlog():
                self.credit = 1
                queue.wake(self)

    def finish_drain(self) -> None:
        """Give back credit that the queue, dispatched by now, has no messages for, or that cannot
        be used before the peer settles some.
        """
        end, queue = self.end, self._queue
        if end is None or queue is None or not end.is_draining():
            return
        if end.credit() > 0 and self.credit == 0:
            if not self._settled and self._is_full(end.session) and not end.queued():
                end.drained(self._kept_back(queue, end))
                return
            # There may be messages yet: this link was held back and goes on later.
            self._served.draining[self] = None
            return
        if queue.is_searching:
            return  # There may be messages behind those that have expired: `searched` tells.
        end.drained()
        self.credit = 0

    def _is_full(self, session: SessionEnd) -> bool:
        """Tell whether the peer has to settle messages before it gets more."""
        return session.unacked >= self._limit or session.unacked_bytes >= self._max_bytes

    def _kept_back(self, queue: Queue, end: LinkEnd) -> int:
        """Count the messages that the peer could have; where it does not want all of them, those
        that are found among the next ones.
        """
        if self.is_selective:
            return 0 if self.browse else self._found(queue)
        count = len(queue.messages)
        return max(count - end.sent, 0) if self.browse else count - queue.acquired

    def _found(self, queue: Queue) -> int:
        """Count the messages that the peer selects and has not refused, among those that can be
        looked at in a moment.
        """
        selector, left, found = self.selector, LOOKED_AT, 0
        for message in queue.ordering.waiting():
            if left <= 0:
                break
            left -= 1 if selector is None else price(selector, message)
            if (selector is None or selector.selects(message)) and self.accepts(message):
                found += 1
        return found

    # What the engine tells.

    def flowed(self) -> None:
        """Take note of new credit."""
        end, queue = self.end, self._queue
        if end is None or queue is None:
            return
        if self._is_late:
            self._heard_of(queue)
        # The engine also tells of each transfer that it has sent, if others came in between.
        if end.credit() == self.credit and not end.is_draining():
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
        if self._is_late and self._queue is not None:
            self._heard_of(self._queue)
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

    def _time(self, delivery: Pointer, queue: Queue) -> None:
        """Take note of when a delivery was made, if it may not be kept for ever."""
        patience = self._patience_with(queue)
        if not patience or self.browse:
            return
        # The engine may have given a delivery the address of one that was settled.
        self._given.pop(delivery, None)
        self._given[delivery] = now = self._broker.now
        if self not in self._broker.patience:
            self._broker.patience.set(self, now + patience)

    def _patience_with(self, queue: Queue) -> int:
        """Return how long the peer may keep messages, in ns; 0 for ever."""
        if self._patience is not None:
            return self._patience
        of_queue = queue.spec.patience
        return self._host.settings.consumer_timeout if of_queue is None else of_queue

    def timeout_changed(self) -> None:
        """The queue says another time for which the peer may keep messages. Where it said none
        before, that counts from now for those that the peer has.
        """
        queue, given = self._queue, self._given
        if queue is None or self._patience is not None or self.browse:
            return
        patience = self._patience_with(queue)
        if patience:
            now = self._broker.now
            for delivery in self._unsettled:
                given.setdefault(delivery, now)
        else:
            given.clear()  # Deliveries that are made from now on may have the same addresses.
        first = next(iter(given.values())) + patience if given else 0
        self._broker.patience.set(self, first)

    def overdue(self, now: int, most: int) -> int:
        """Release messages that the peer has kept for too long; it hears of it, and its link goes
        on. None counts as a delivery that failed.
        """
        end, queue = self.end, self._queue
        if end is None or queue is None:
            return 0
        patience, unsettled, given = self._patience_with(queue), self._unsettled, self._given
        late: list[Pointer] = []
        for delivery, at in given.items():
            if delivery in unsettled:
                if len(late) >= most or at + patience > now:
                    break
                late.append(delivery)
        messages = [unsettled.pop(delivery) for delivery in late] if patience else []
        if messages and not self._is_late:
            self._is_late = True
            queue.suspect(self)
        while given and (not patience or next(iter(given)) not in unsettled):
            del given[next(iter(given))]
        for delivery, message in zip(late, messages, strict=False):
            self.answer(delivery, RELEASED)
            queue.release(message)
        self._forget(messages)
        if given:
            self._broker.patience.set(self, next(iter(given.values())) + patience)
        return len(messages)

    def _heard_of(self, queue: Queue) -> None:
        """The peer, which kept a message for too long, does something."""
        self._is_late = False
        queue.trust(self)

    def _unblock(self, session: SessionEnd) -> None:
        """Go on with links that waited for deliveries to be settled, when all that came in this
        turn are.
        """
        if session.unacked < self._resume and session.unacked_bytes < self._max_bytes:
            blocked, session.blocked = session.blocked, {}
            self._served.out_of_turn_budget.update(blocked)
            self._connection.wake()

    def _returned(self, delivery: Pointer, message: Message, state: int) -> int:
        """Carry out an outcome other than accepted; where there is none it is the default."""
        queue = self._queue
        assert queue is not None
        if state == REJECTED:
            return queue.reject(message)
        outcome = self._default if state not in FATES else remote_outcome(delivery)
        if outcome is None or outcome.state != MODIFIED:
            return queue.release(message)
        not_to = self if outcome.undeliverable else None
        return queue.requeue(
            message,
            outcome.failed,
            self._annotations(message, outcome),
            not_to=not_to,
            at=self._due(outcome),
        )

    def _due(self, outcome: Outcome) -> int | None:
        """Return when a message is due again, if an outcome says that; 0 for at once."""
        annotations = outcome.annotations
        if not annotations or DELIVERY_TIMES[0] not in annotations:
            return None
        at = annotations[DELIVERY_TIMES[0]]
        try:
            return due_at({DELIVERY_TIMES[0]: at}, self._broker.time)
        except RefusedRequest:
            return None  # An outcome cannot be refused.

    def _annotations(self, message: Message, outcome: Outcome) -> bytes:
        """Make the annotations that an outcome puts beside a message, if any. What a broker says
        there of the message stays.
        """
        numbered = "" if self._queue is None else self._queue.spec.sequence_key
        annotations = b""
        if outcome.annotations:
            changes = {
                Symbol(key): value
                for key, value in outcome.annotations.items()
                if isinstance(key, str) and not is_of_deaths(key) and key != numbered
            }
            try:
                annotations = merge_annotations(message.body(), message.annotations, changes)
            except ProtocolViolation:
                annotations = b""
            if len(annotations) > message.size + MAX_ANNOTATIONS:
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
            retirement.at = self._due(outcome)

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
                if self._queue is not None:
                    self._time(delivery, self._queue)
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
        self._broker.patience.remove(self)
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
        if message.acquired_count:
            count = ULong(message.acquired_count)
            annotations = add_annotation(payload, annotations, ACQUIRED_COUNT, count)
        return departure(
            payload,
            message.delivery_count,
            annotations,
            acquired_before=inherited or message.released > 0,
        )
    except ProtocolViolation:
        return payload


def _with_token(payload: bytes, token: tuple[int, int]) -> bytes:
    """Make the message with a fencing token. One that cannot be read leaves as it came."""
    told = {Symbol(FENCING_TOKEN): [ULong(part) for part in token]}
    section = encode(Described(ULong(DELIVERY_ANNOTATIONS), told))
    try:
        return departure(payload, 0, b"", delivery_annotations=section)
    except ProtocolViolation:
        return payload
