"""Queues: messages on their way from senders to consumers.

The way of a message through a queue, on a primary:

1. `enqueue` asks whether the queue takes it: is there room, has it been here before? While the
   queue has fewer messages than `fast_path_limit` nothing can speak against it, and nothing is
   asked.
2. The log writer gives it a sequence, which is its identity and its place, and `insert` puts it
   there. From now on it is on the queue; its sender is answered when the record is committed.
3. At the end of the turn `dispatch` takes the next message from the ordering, acquires it and gives
   it to a consumer. It stays on the queue: to be acquired is not recorded.
4. The consumer says what becomes of it. Accepted, it leaves by `dequeue`; released or modified, it
   is available again in its place (`release`, `requeue`); rejected, it leaves by `reject`. A
   message may also expire, be purged, or have to make room. Every departure has a `Cause` and goes
   through `departures.py`.

A queue is made of parts, each of which answers one question, and is given by the `QueueSpec`:

| part | question |
|---|---|
| `ordering` | which message is next? |
| `dispatcher` | which consumer may have it? |
| `Departures` | what happens when it leaves? |
| limits, lifetime, window | does it come in, does the queue end, was it here before? |
| senders | who gets no credit while there is too much on the queue? |

Senders wait before messages are refused. A queue that holds more than its flow-stop gives its
senders no credit (`admits`) and tells them when it is down to its flow-resume (`judge`). What all
of them may have on their way (`share`) has room between flow-stop and the limit. Only a queue that
decides does this, and a successor looks at what it has: nothing of it is recorded.

Why replicas agree. Every decision is made on the primary and written as a record: the message came
(`Enqueued`), it changed (`Requeued`), it left (`Dequeued`). A backup makes none: `insert`,
`restate` and `remove` apply the records, and `enqueue`, `dequeue`, `drop` do nothing on a
replica. The rest (which consumer has a message, whose turn it is) is not needed by a successor:
`promoted` makes every message available again, in the same order. An outcome that was not committed
when the primary died counts as never given, so the message is delivered once more; never is one
lost.

Coming features have a place each: priorities and last value in `ordering.py`; groups, consumer
priorities and a single active consumer in `dispatch.py`; selectors in `Consumer.accepts`; dead
letters and a delivery limit in `departures.py` and `requeue`, which counts deliveries; a time to
live in `enqueue`, as the expiry of a message that has a later one or none.

Knows nothing of exchanges, links or clusters. Source: Qpid `Queue.cpp`.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from qpidha.broker.queues.backlog import Backlog
from qpidha.broker.queues.dedup import Window
from qpidha.broker.queues.dispatch import RoundRobin
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.broker.queues.spec import Needs, check_change
from qpidha.model.errors import LimitExceeded, RefusedRequest, ResourceDeleted, ResourceLocked
from qpidha.model.message import Message
from qpidha.model.message_view import is_durable
from qpidha.model.records import Cause, Requeued

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from qpidha.broker.queues.dedup import Dedup
    from qpidha.broker.queues.departures import Departures
    from qpidha.broker.queues.dispatch import Consumer, Dispatch
    from qpidha.broker.queues.log_writer import LogWriter
    from qpidha.broker.queues.remains import Remains
    from qpidha.broker.queues.returns import Returns
    from qpidha.broker.queues.spec import QueueSpec
    from qpidha.model.memory import MemoryUse
    from qpidha.model.records import QueueDeclared

ACCEPTED = int(Cause.ACCEPTED)
"""As a plain number: the short way out of a queue counts with it."""
CAUSES = [(int(cause), cause.name.lower().replace("_", "-")) for cause in Cause]
"""The causes of departures with the names by which they are shown."""


class QueueHost(Protocol):
    """The broker around a queue, as the queue sees it."""

    runnable: dict[Queue, None]
    """Queues with something to dispatch."""
    delivery_paused: bool
    over_budget: dict[Queue, None]
    """Queues with more bytes in memory than they may have."""
    use: MemoryUse

    departures: Departures
    remains: Remains
    returns: Returns

    @property
    def refuse_publishing(self) -> str:
        """Why nothing that is recorded may be added at present; empty if it may."""
        ...

    def left(self, queue: Queue) -> None:
        """A consumer, a sender, the owner or the last message left: the queue may have come to its
        end.
        """
        ...

    def evict(self, queue: Queue, messages: list[Message]) -> None:
        """Give messages that had to make room to the queue's alternate exchange."""
        ...

    def used(self, queue: Queue) -> None:
        """A queue that ends when its users have left has its first one."""
        ...


class Sender(Protocol):
    """Puts messages on a queue, of which it may have some on their way; the links of clients are
    such.
    """

    def resumed(self) -> None:
        """The queue, which did not admit it, may do so now."""
        ...


class Queue(Backlog):
    """One queue."""

    __slots__ = (
        "_host",
        "_local",
        "bindings",
        "consumers",
        "deduplicated",
        "deleted",
        "dispatcher",
        "durable",
        "ends_empty",
        "enqueued",
        "fast_path_bytes",
        "fast_path_limit",
        "flow_stops",
        "inherited",
        "is_replica",
        "is_searching",
        "is_stopped",
        "is_used",
        "lifetime",
        "log_writer",
        "max_bytes",
        "max_count",
        "may_expire",
        "name",
        "not_rerouted",
        "options",
        "owner",
        "ring",
        "senders",
        "spec",
        "syncs",
        "timeout",
        "uid",
        "unplaced",
        "uuid",
        "waiting",
        "window",
    )

    def __init__(
        self, uid: int, options: QueueDeclared, host: QueueHost, *, spec: QueueSpec, logged: bool
    ) -> None:
        super().__init__(logged, spec.limits.memory, host.use)
        self.uid = uid
        self.name = options.name
        self.uuid = options.uuid
        self.options = options
        self.log_writer: LogWriter | None = None
        """Where messages are recorded; None for a queue whose messages are not."""
        self.durable = options.durable
        self.syncs = False
        """Whether a durable message may be here, so that what leaves must be known after a restart.
        """
        self.is_replica = False
        """Whether another broker, the primary, decides about this queue."""
        self.is_used = False
        """Whether it ever had a user; kept for queues that end when their users have left."""
        self.window = None if spec.dedup is None else Window(spec.dedup)
        """What this queue remembers of the messages it had; None if it takes messages twice."""
        self.owner: object | None = None
        self.dispatcher: Dispatch = RoundRobin()
        self.consumers = self.dispatcher.consumers
        self.senders: dict[Sender, None] = {}
        self.waiting: dict[Sender, None] = {}
        """Senders that were not admitted."""
        self.is_stopped = False
        """Whether senders get no credit, until less is here."""
        self.flow_stops = 0
        """How often senders were stopped."""
        self.bindings: dict[tuple[int, str], None] = {}
        """(exchange uid, key) of each binding."""
        self.deleted = False
        self.enqueued = self.deduplicated = 0  # totals
        self.not_rerouted = 0
        """Messages, in total, that were to go to the alternate exchange and found no room there."""
        self.unplaced: dict[int, Message] = {}
        """Messages that consumers rejected and the alternate exchange could not place, by sequence;
        no consumer gets them.
        """
        self.inherited = 0
        """The last sequence that was here when this broker began to decide: up to it, any message
        may have been with a consumer of another broker, or of this one before it was restarted.
        """
        self.is_searching = False
        """Whether the dispatch goes on next turn, behind messages that have expired."""
        self._host = host
        self._local = 0
        """The number of the last message that is not logged."""
        self.may_expire = False
        """Whether a message that is here may expire."""
        self._follow(spec)

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {len(self.messages)} messages)"

    @property
    def departures(self) -> dict[str, int]:
        """How many messages have left, in total, by the name of the cause. Messages that came and
        left in one turn are counted by the primary only: no other broker hears of them.
        """
        return {name: self.departed[cause] for cause, name in CAUSES}

    @property
    def expired(self) -> int:
        """How many messages have expired, in total."""
        return self.departed[Cause.EXPIRED]

    @property
    def rejected(self) -> int:
        """How many messages consumers have rejected, in total."""
        return self.departed[Cause.REJECTED]

    @property
    def discarded(self) -> int:
        """How many messages were purged, or found no room where they were to go, in total."""
        return self.departed[Cause.PURGED] + self.not_rerouted

    # The parts.

    def reconfigure(self, spec: QueueSpec) -> None:
        """Become a queue made of `spec`, with the messages that are here; raise PreconditionFailed,
        with the reason, for a change that cannot be made, and change nothing.

        Every replica is to be given the same spec at the same place in the log. Nothing leaves at
        once: a queue that is over its new limits refuses messages until it is not, or, as a ring,
        makes room when the next message comes. A shorter window forgets its oldest keys now. A new
        lifetime counts from the next time that something leaves the queue.
        """
        check_change(self.name, self.spec, spec)
        if spec.dedup != self.spec.dedup:
            self._change_window(spec.dedup)
        self._follow(spec)
        if self.consumers or self.senders or self.owner is not None:
            self.mark_used()

    def _change_window(self, dedup: Dedup | None) -> None:
        """Remember the keys of more or fewer messages, or none."""
        if dedup is None:
            self.window = None
            return
        if self.window is None:
            self.window = Window(dedup)
        else:
            self.window.resize(dedup.size)
        # A broker that gets a snapshot remembers the keys it is sent and those of the messages that
        # are here. For the window to be the same on this one, it remembers these now too.
        for sequence in self.ordered()[-dedup.size :]:
            payload = self.messages[sequence].body()
            self.window.remember(self.window.key(payload), sequence)

    def take_into_log(self) -> None:
        """The log has messages of this queue after all. Those that were here have numbers that it
        gives to others, and go.
        """
        self.begin_log(self.spec.limits.memory)
        self.window = None if self.spec.dedup is None else Window(self.spec.dedup)
        self.judge()

    def _follow(self, spec: QueueSpec) -> None:
        """Copy the fields of a spec that are read for every message."""
        self.spec = spec
        self.lifetime = spec.lifetime
        self.timeout = spec.timeout
        self.ends_empty = spec.lifetime.needs_no_messages
        self.max_count = spec.limits.max_count
        self.max_bytes = spec.limits.max_bytes
        self.ring = spec.limits.ring
        self.set_memory(spec.limits.memory)
        self.set_fast_path_limit()
        if not self.is_replica:
            self.judge()

    def set_fast_path_limit(self) -> None:
        """Let messages take the short way in, if nothing has to be asked about each of them and
        none makes the queue stop its senders.
        """
        is_asked = (
            self.deleted
            or Needs.DEDUP_KEY in self.spec.needs
            or (self.log_writer is not None and self._host.refuse_publishing)
        )
        limits = self.spec.limits
        count, size = self.max_count, self.max_bytes
        if not self.is_stopped:
            count, size = min(count, limits.stop_count), min(size, limits.stop_bytes)
        self.fast_path_limit = 0 if is_asked else count
        self.fast_path_bytes = size

    # Verbs of a primary.

    def enqueue(self, payload: bytes, expires: int = 0) -> int:
        """Add a message, unless it is a duplicate; return the sequence to wait for, 0 if it is not
        logged.
        """
        leaving: Sequence[Message] | None = None
        # The usual case is one comparison for each limit. A queue that has to look at every message
        # (for duplicates, or because it takes none) has a fast_path_limit of 0.
        if (
            len(self.messages) >= self.fast_path_limit
            or self.bytes + len(payload) > self.fast_path_bytes
        ):
            original = self.duplicate_of(payload)
            if original is not None:
                return original
            leaving = self.room_for(len(payload))
            # Recorded before the newcomer, so that a replica is never over the limit either.
            self._host.departures.leave(self, leaving, Cause.OVERFLOW)
        log_writer = self.log_writer
        if log_writer is None:
            self.check_open()
            self.insert_local(payload, expires)
            sequence = 0
        else:
            # A batch is synced as a whole: once one durable message is in it, the headers of those
            # that follow need not be read.
            if self.durable and not (self.syncs and log_writer.must_sync) and is_durable(payload):
                log_writer.must_sync = self.syncs = True
            sequence = log_writer.enqueue(self.uid, payload, expires)
            self.insert(sequence, payload, expires)
        if leaving is not None:
            self.judge()
            # Only now: messages that overflow may come back to this queue by their alternate
            # exchange, and must not take the place of the newcomer.
            if leaving:
                self._host.evict(self, list(leaving))
        return sequence

    def duplicate_of(self, payload: bytes) -> int | None:
        """Count a message that has been here before and return the sequence to wait for; None for
        one that is new.
        """
        if self.window is None:
            return None
        # Refused before it is looked up: a backup must not answer for a message that only the
        # primary knows to be committed.
        self.check_open()
        original = self.window.find(payload)
        if original is None:
            return None
        self.deduplicated += 1
        # The sender of a duplicate waits for the original: it may not be committed yet.
        return 0 if self.log_writer is None else original

    def room_for(self, size: int) -> list[Message]:
        """Name the messages that must leave before one of `size` bytes can come; raise
        LimitExceeded if it cannot.
        """
        self.check_open()
        excess = len(self.messages) + 1 - self.max_count
        excess_bytes = self.bytes + size - self.max_bytes
        if excess <= 0 and excess_bytes <= 0:
            return []
        if self.ring and size <= self.max_bytes:
            leaving = self.oldest(excess, excess_bytes)
            if leaving:
                return leaving
        depth = f"{len(self.messages)} messages and {self.bytes} bytes"
        raise LimitExceeded(
            f"Queue {self.name} is full: with {depth} it cannot take {size} bytes more",
            hint="Consume from it, or raise qpid.max_count or qpid.max_size.",
        )

    def check_open(self) -> None:
        """Raise RefusedRequest if no message can come here, whatever room there is."""
        if self.deleted:
            raise ResourceDeleted(f"Queue {self.name} has been deleted", hint="Declare it again.")
        if self.is_replica:
            raise RefusedRequest(f"Queue {self.name} is a copy here", hint="Send to the primary.")
        if self.log_writer is not None and self._host.refuse_publishing:
            raise LimitExceeded(
                f"Queue {self.name} takes no messages at present: {self._host.refuse_publishing}",
                hint=(
                    "Try again later; consuming goes on. The broker's operator has to look "
                    "at its disk."
                ),
            )

    def release(self, message: Message) -> None:
        """Make an acquired message available again, in its place."""
        # Not recorded: a message that is on the queue is available to a successor in any case.
        if message.acquired and message.sequence in self.messages:
            message.acquired = False
            message.released = True
            self.acquired -= 1
            self.released += 1
            self.ordering.restore(message)
            self._host.runnable[self] = None

    def requeue(
        self,
        message: Message,
        failed: bool,
        annotations: bytes = b"",
        *,
        not_to: Consumer | None = None,
    ) -> int:
        """Release a message that changed: a failed delivery, other annotations, or undeliverable to
        one consumer.
        """
        if message.sequence not in self.messages:
            return 0
        if not_to is not None:
            not_to.refuse(message)
        self.release(message)
        # Only a change is recorded, so that a successor counts deliveries as this broker does.
        if self.is_replica or not (failed or annotations):
            return 0
        self.restate(
            message.sequence, message.delivery_count + failed, annotations or message.annotations
        )
        if self.log_writer is None:
            return 0
        return self.log_writer.append(
            Requeued(self.uid, message.sequence, message.delivery_count, message.annotations)
        )

    def dequeue(self, message: Message, cause: int = ACCEPTED) -> int:
        """Let one message leave for good that a consumer has done with; return the sequence to wait
        for. This is the short way of `Departures.leave`, for what is not passed on.
        """
        sequence = message.sequence
        if self.is_replica or self.messages.pop(sequence, None) is None:
            return 0  # It was purged, or the queue deleted, while a consumer had it.
        size = message.size
        self.bytes -= size
        self._use.bodies -= size
        if self.paged_out:
            self._forget_paged_out(message)
        self.departed[cause] += 1
        if message.acquired:
            self.acquired -= 1
        log_writer = self.log_writer
        if log_writer is None:
            recorded = 0
        else:
            # The departure of a durable message is synced as its arrival was: else it would be here
            # again after a power cut, although its consumer was told that it is gone.
            if self.syncs:
                log_writer.must_sync = True
            # The log leaves a message out that comes and goes in one turn. But a key must be known
            # to others as long as its sender may send again, so with a window nothing is left out.
            recorded = (
                log_writer.dequeue(self.uid, sequence, cause)
                if self.window is None
                else log_writer.dequeue_many(self.uid, [sequence], cause)
            )
        if self.is_stopped:
            self.judge()
        if self.ends_empty:
            self._host.left(self)
        return recorded

    def remove(self, sequences: Iterable[int], cause: int = ACCEPTED) -> None:
        """Forget messages that left; senders may go on."""
        if self.unplaced:
            sequences = list(sequences)
            for sequence in sequences:
                self.unplaced.pop(sequence, None)
        super().remove(sequences, cause)
        if self.is_stopped:
            self.judge()

    def reject(self, message: Message) -> int:
        """Let a message leave that a consumer will not have: to the alternate exchange, if there is
        one. While that cannot place it, it stays (`keep`), and there is nothing to wait for.
        """
        if not self.options.alternate:
            return self.dequeue(message, Cause.REJECTED)
        # Not the short way: the message lives on elsewhere, so its sender must not take it for
        # consumed before the batch with both is committed.
        return self._leave([message], Cause.REJECTED)

    def keep(self, message: Message) -> None:
        """Keep a rejected message that cannot be placed; it stays acquired, though by nobody."""
        self.unplaced[message.sequence] = message

    def drop(self, messages: Sequence[Message], cause: Cause = Cause.PURGED) -> int:
        """Let messages leave that nobody is to have: an administrator purges the queue, or their
        time is over. Return the sequence to wait for.
        """
        return self._leave(messages, cause)

    def _leave(self, messages: Sequence[Message], cause: Cause) -> int:
        """Let messages leave; if that empties the queue it may be at its end."""
        recorded = self._host.departures.leave(self, messages, cause)
        if self.ends_empty:
            self._host.left(self)
        return recorded

    def promoted(self) -> None:
        """Begin to decide: no consumer has any message yet."""
        # Whether a message is durable stands in its header only, and its bytes may be paged out. So
        # a durable queue with messages counts as having durable ones: one sync too many does no
        # harm.
        self.syncs = self.durable and bool(self.messages)
        if not self.logged:
            self._local = max(self._local, self.ordering.last)
        self.inherited = self.ordering.last
        for message in self.unplaced.values():
            self.acquired -= message.acquired
            message.acquired = False
        self.unplaced.clear()
        # There may be millions of messages, and mostly nobody has any: consumers that go give back
        # what they have.
        if self.acquired:
            for message in self.messages.values():
                message.acquired = False
            self.acquired = 0
        self.ordering.restart()
        self.judge()

    # What consumers do.

    def check_access(self, owner: object) -> None:
        """Raise ResourceLocked if the queue is exclusive to another user."""
        if self.options.exclusive and self.owner is not None and self.owner is not owner:
            raise ResourceLocked(
                f"Queue {self.name} is exclusive to another connection",
                hint="Wait until that one is closed.",
            )

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer; it gets messages at the next dispatch."""
        if self.deleted:
            raise ResourceDeleted(f"Queue {self.name} has been deleted", hint="Declare it again.")
        if self.consumers and (consumer.exclusive or next(iter(self.consumers)).exclusive):
            raise ResourceLocked(
                f"Queue {self.name} has a consumer, and exclusive use is asked for",
                hint="Close the other consumer.",
            )
        self.dispatcher.join(consumer)
        self.mark_used()
        self._host.runnable[self] = None

    def unsubscribe(self, consumer: Consumer) -> None:
        """Take a consumer away. Release its messages first: this may be the end of the queue."""
        if consumer in self.consumers:
            self.dispatcher.leave(consumer)
            self._host.left(self)

    def mark_used(self) -> None:
        """The queue has a user: one that ends without users remembers it, on other brokers too."""
        if not self.is_used and self.lifetime.needs_no_users:
            self._host.used(self)

    def wake(self) -> None:
        """Have this queue dispatched at the end of the turn: a consumer has credit again."""
        self._host.runnable[self] = None

    def dispatch(self, now: int) -> None:
        """Hand available messages to consumers with credit, and show them to browsers."""
        if self._host.returns.holds(self):
            self.is_searching = True  # What is in front of all else is still to come.
            return
        # Only the primary decides that a message is over its time. On a replica it is still there,
        # and is shown.
        was_searching = self.is_searching
        expired, self.is_searching = self.dispatcher.run(
            self,
            now,
            delivers=not self.is_replica and not (self.uid > 0 and self._host.delivery_paused),
            shows_expired=self.is_replica,
        )
        if self.is_searching:
            self._host.runnable[self] = None
        elif was_searching:
            for consumer in self.consumers:
                consumer.searched()
        if expired:
            self._leave(expired, Cause.EXPIRED)

    # What senders do.

    def add_sender(self, sender: Sender) -> None:
        """Take note of a link that sends to this queue."""
        self.senders[sender] = None
        if self.lifetime.needs_no_links:
            self.mark_used()

    def remove_sender(self, sender: Sender) -> None:
        """A link that sends to this queue is gone."""
        self.senders.pop(sender, None)
        self.waiting.pop(sender, None)
        if self.lifetime.needs_no_links:
            self._host.left(self)

    def admits(self, sender: Sender, size: int) -> bool:
        """Whether a sender may have messages on their way here, the largest of about `size` bytes.
        One that may not hears when that is worth asking again.
        """
        limits = self.spec.limits
        if not self.is_stopped:
            # Between flow-stop and a small limit there may be no room for even one. What would not
            # fit alone is for the sender to try, and to be told.
            has_room = len(self.messages) < limits.max_count or limits.stop_count == UNLIMITED
            fits = self.bytes + size <= limits.max_bytes or limits.stop_bytes == UNLIMITED
            if has_room and (fits or size > limits.max_bytes):
                return True
            self._stop()
        self.waiting[sender] = None
        return False

    def share(self, size: int, *, is_first: bool = False) -> int:
        """Return how many messages of `size` bytes each sender may have on their way, so that all
        of them have room when senders are stopped; the first ones, so that they stop nobody.
        """
        limits = self.spec.limits
        room = limits.spare_bytes
        if is_first:
            room = max(room, limits.stop_bytes - self.bytes)
        return min(limits.spare_count, room // size) // max(len(self.senders), 1)

    def judge(self) -> None:
        """Stop the senders, or let them go on, as what is here now says."""
        count, size, limits = len(self.messages), self.bytes, self.spec.limits
        if not self.is_stopped:
            if count > limits.stop_count or size > limits.stop_bytes:
                self._stop()
        elif count <= limits.resume_count and size <= limits.resume_bytes:
            self._resume()

    def _stop(self) -> None:
        self.is_stopped = True
        self.flow_stops += 1
        self.set_fast_path_limit()

    def _resume(self) -> None:
        self.is_stopped = False
        self.set_fast_path_limit()
        waiting, self.waiting = self.waiting, {}
        for sender in waiting:
            sender.resumed()

    # Verbs of a backup; those of a primary use them too.

    def insert(self, sequence: int, payload: bytes, expires: int = 0) -> None:
        """Put a message at the end, whatever the limits: its sequence is above all others."""
        self.messages[sequence] = Message(sequence, payload, expires)
        self.ordering.add(sequence)
        size = len(payload)
        self.bytes = total = self.bytes + size
        self._use.bodies += size
        if total > self._page_out_above:
            self._host.over_budget[self] = None
        self.enqueued += 1
        if expires:
            self.may_expire = True
        # On backups too: after a failover a sender sends again what the former primary may have
        # had.
        if self.window is not None:
            self.window.remember(self.window.key(payload), sequence)
        if self.consumers:
            self._host.runnable[self] = None

    def insert_run(self, sequences: list[int], payloads: list[bytes], expiries: list[int]) -> None:
        """Put messages in their places, unless they are here: sequences rise, and there is an
        expiry for each message or none at all.

        A backup may get a message twice, or before an earlier one: newer records come beside the
        snapshot of an older state. Then each message is looked at.
        """
        is_in_turn = sequences[0] > self.ordering.last
        if not is_in_turn:
            self.ordering.out_of_turn()
        if not is_in_turn or self.window is not None or len(sequences) == 1:
            for sequence, payload, expires in zip(
                sequences, payloads, expiries or repeat(0, len(sequences)), strict=True
            ):
                if sequence not in self.messages:
                    self.insert(sequence, payload, expires)
            return
        self.append_run(sequences, payloads, expiries)
        if self.bytes > self._page_out_above:
            self._host.over_budget[self] = None
        self.enqueued += len(sequences)
        self.may_expire = self.may_expire or bool(expiries)
        if self.consumers:
            self._host.runnable[self] = None

    def insert_local(self, payload: bytes, expires: int) -> None:
        """Put a message that is not logged at the end, under a number of the queue's own."""
        self._local += 1
        self.insert(self._local, payload, expires)

    def close(self) -> None:
        """The queue is deleted: forget everything and tell the consumers."""
        # The messages have no records of their own: the record of the deletion speaks for all.
        self.departed[Cause.DELETED] += len(self.messages)
        self._host.over_budget.pop(self, None)
        self._host.remains.add(*self._clear())
        self.unplaced.clear()
        self.retire()

    def retire(self) -> None:
        """Be there for nobody any more, and tell the consumers: the queue is being deleted, perhaps
        with messages that are still to be passed on.
        """
        self.deleted = True
        self.set_fast_path_limit()
        self.owner = None
        consumers = list(self.consumers)
        self.consumers.clear()
        for consumer in consumers:
            consumer.queue_deleted()
        # Senders find out when they send.
        self._resume()

    def revive(self) -> None:
        """Be a queue again: this broker decides no longer, and the deletion did not come to its
        end.
        """
        self.deleted = False
        self.set_fast_path_limit()

    def statistics(self) -> dict[str, int]:
        """Return what management shows of this queue."""
        return {
            "messages": len(self.messages),
            "bytes": self.bytes,
            "paged_out": self.paged_out,
            "consumers": len(self.consumers),
            "bindings": len(self.bindings),
            "acquired": self.acquired,
            "enqueued": self.enqueued,
            "dequeued": self.dequeued,
            "released": self.released,
            "expired": self.expired,
            "rejected": self.rejected,
            "discarded": self.discarded,
            "deduplicated": self.deduplicated,
            "unplaced": len(self.unplaced),
            "flow_stops": self.flow_stops,
            "waiting_senders": len(self.waiting),
        }
