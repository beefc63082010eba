"""Queues: messages in order, who waits for them, and who has them at present.

A queue has two sets of verbs. With those of a primary (enqueue, acquire, release, requeue, dequeue)
it decides and lets its recorder know; with those of a backup (insert, remove, restate) it follows
what was decided elsewhere. `order` holds the sequences of all messages, oldest first, and perhaps
some of messages that have left; `_head` is where the first available one may be found.
Where another kind of order (priority, last value) would differ: insert, room_for, _rewind, _hand_out.
Knows nothing of exchanges, links or clusters. Source: Qpid `Queue.cpp`, `MessageDeque.cpp`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Protocol

from qpidha.broker.level import ALL
from qpidha.words.errors import LimitExceeded, RefusedRequest, ResourceDeleted, ResourceLocked
from qpidha.words.message import Message
from qpidha.words.records import Requeued

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qpidha.broker.lifetime import Lifetime
    from qpidha.broker.limits import Limits
    from qpidha.broker.recorder import Recorder
    from qpidha.words.records import QueueDeclared

SLACK = 1000
"""Sequences of departed messages that `order` may hold beyond the number of messages present, before it is rebuilt."""


class Consumer(Protocol):
    """Somebody who takes messages, or looks at them (`browse`)."""

    credit: int
    browse: bool
    exclusive: bool
    cursor: int
    """The last sequence a browser was shown; kept by the queue."""

    def deliver(self, message: Message) -> None:
        """Take a message and count down `credit`; may dequeue or release it at once, but not unsubscribe."""
        ...

    def queue_deleted(self) -> None:
        """The queue is gone, and this consumer's subscription with it."""
        ...


class QueueHost(Protocol):
    """What a queue asks of the broker around it."""

    dirty: dict[Queue, None]
    """Queues with something to dispatch."""

    def left(self, queue: Queue) -> None:
        """A consumer, a sender, the owner or the last message left: the queue may have come to its end."""
        ...

    def reroute(self, queue: Queue, message: Message) -> int:
        """Give a message to the queue's alternate exchange; return the sequence to wait for."""
        ...


class Queue:
    """A FIFO queue."""

    __slots__ = (
        "_excluded", "_expiring", "_head", "_host", "_local", "_turn", "_unsorted", "acquired", "bindings", "bytes", "consumers",
        "deleted", "dequeued", "discarded", "ends_empty", "enqueued", "expired", "follows", "lifetime", "max_bytes", "max_count",
        "messages", "name", "options", "order", "owner", "recorder", "rejected", "released", "ring", "senders", "timeout", "uid",
        "uuid",
    )  # fmt: skip

    def __init__(self, uid: int, options: QueueDeclared, host: QueueHost, *, limits: Limits, lifetime: Lifetime, timeout: int) -> None:
        self.uid = uid
        self.name = options.name
        self.uuid = options.uuid
        self.options = options
        self.recorder: Recorder | None = None
        """Where messages are recorded; None for a queue whose messages are not."""
        self.follows = False
        """Whether somebody else decides about this queue, so that what its users do here changes nothing."""
        self.lifetime = lifetime
        self.timeout = timeout
        self.ends_empty = lifetime.needs_no_messages
        self.max_count = limits.max_count
        self.max_bytes = limits.max_bytes
        self.ring = limits.ring
        self.owner: object | None = None
        self.consumers: list[Consumer] = []
        self.senders = 0
        self.bindings: dict[tuple[int, str], None] = {}
        """(exchange uid, key) of each binding."""
        self.messages: dict[int, Message] = {}
        self.order: list[int] = []
        self.bytes = 0
        self.deleted = False
        self.acquired = 0  # how many consumers have at present; the rest are totals
        self.enqueued = self.dequeued = self.released = self.expired = self.rejected = self.discarded = 0
        self._host = host
        self._head = 0
        self._local = 0
        self._turn = 0
        self._unsorted = False
        self._expiring = False
        self._excluded: dict[Consumer, set[int]] = {}

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {len(self.messages)} messages)"

    @property
    def logged(self) -> bool:
        """Whether the messages of this queue belong in the log."""
        return self.options.replicate == ALL

    # What a primary does.

    def enqueue(self, payload: bytes, expires: int = 0) -> int:
        """Add a message; return the sequence to wait for, 0 if it is not logged."""
        size = len(payload)
        if len(self.messages) >= self.max_count or self.bytes + size > self.max_bytes:
            self.drop(self.room_for(size))
        if self.recorder is None:
            self.check_open()
            self.insert_local(payload, expires)
            return 0
        sequence = self.recorder.enqueue(self.uid, payload, expires)
        self.insert(sequence, payload, expires)
        return sequence

    def room_for(self, size: int) -> list[Message]:
        """Name the messages that must leave before one of `size` bytes can come; raise LimitExceeded if it cannot."""
        self.check_open()
        excess = len(self.messages) + 1 - self.max_count
        excess_bytes = self.bytes + size - self.max_bytes
        leaving: list[Message] = []
        if excess <= 0 and excess_bytes <= 0:
            return leaving
        if self.ring and size <= self.max_bytes:
            self._tidy()
            self._advance()
            for index in range(self._head, len(self.order)):
                message = self.messages.get(self.order[index])
                if message is not None and not message.acquired:
                    leaving.append(message)
                    excess -= 1
                    excess_bytes -= len(message.payload)
                    if excess <= 0 and excess_bytes <= 0:
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
        if self.follows:
            raise RefusedRequest(f"Queue {self.name} is a copy here", hint="Send to the primary.")

    def acquire(self, message: Message) -> None:
        """Keep an available message for one consumer."""
        message.acquired = True
        self.acquired += 1

    def release(self, message: Message) -> None:
        """Make an acquired message available again, in its place."""
        if message.acquired and message.sequence in self.messages:
            message.acquired = False
            self.acquired -= 1
            self.released += 1
            self._rewind(message.sequence)
            self._host.dirty[self] = None

    def requeue(self, message: Message, failed: bool, annotations: bytes = b"", *, not_to: Consumer | None = None) -> int:
        """Release a message that changed: a failed delivery, other annotations, or undeliverable to one consumer."""
        if message.sequence not in self.messages:
            return 0
        if not_to is not None and not_to in self.consumers:
            self._excluded.setdefault(not_to, set()).add(message.sequence)
        self.release(message)
        if self.follows or not (failed or annotations):
            return 0
        self.restate(message.sequence, message.delivery_count + failed, annotations or message.annotations)
        if self.recorder is None:
            return 0
        return self.recorder.append(Requeued(self.uid, message.sequence, message.delivery_count, message.annotations))

    def dequeue(self, message: Message) -> int:
        """Let go of a message for good; return the sequence to wait for."""
        sequence = message.sequence
        if self.follows or self.messages.pop(sequence, None) is None:
            return 0  # It was purged, or the queue deleted, while a consumer had it.
        self.bytes -= len(message.payload)
        self.dequeued += 1
        if message.acquired:
            self.acquired -= 1
        recorded = 0 if self.recorder is None else self.recorder.dequeue(self.uid, sequence)
        if self.ends_empty:
            self._host.left(self)
        return recorded

    def dequeue_many(self, messages: Iterable[Message]) -> int:
        """Let go of several messages, as one record."""
        recorded = self.drop(messages)
        if self.ends_empty:
            self._host.left(self)
        return recorded

    def reject(self, message: Message) -> int:
        """Give a message that a consumer will not have to the alternate exchange, if there is one, and let go of it."""
        if self.follows or message.sequence not in self.messages:
            return 0
        self.rejected += 1
        rerouted = self._host.reroute(self, message)
        if not rerouted:
            return self.dequeue(message)
        # Not a plain dequeue: the message lives on elsewhere, so its sender must not take it for consumed.
        return max(rerouted, self.dequeue_many([message]))

    def purge(self, count: int = 0) -> int:
        """Drop all available messages, or the `count` oldest; return the sequence to wait for."""
        available = [message for message in map(self.messages.get, self.ordered()) if message is not None and not message.acquired]
        leaving = available[:count] if count else available
        self.discarded += len(leaving)
        return self.dequeue_many(leaving)

    def expire(self, now: int) -> None:
        """Drop available messages whose time is over; they are not rerouted."""
        if self._expiring:
            timed = [message for message in self.messages.values() if message.expires]
            self._expiring = bool(timed)
            self._drop_expired([message for message in timed if message.expires <= now and not message.acquired])

    def promoted(self) -> None:
        """Begin to decide: nobody has any message yet."""
        self._unsorted = True
        self._tidy()
        self.acquired = 0
        for message in self.messages.values():
            message.acquired = False

    # What consumers do.

    def check_access(self, user: object) -> None:
        """Raise ResourceLocked if the queue is exclusive to somebody else."""
        if self.options.exclusive and self.owner is not None and self.owner is not user:
            raise ResourceLocked(f"Queue {self.name} is exclusive to another connection", hint="Wait until that one is closed.")

    def subscribe(self, consumer: Consumer) -> None:
        """Add a consumer; it gets messages at the next dispatch."""
        if self.deleted:
            raise ResourceDeleted(f"Queue {self.name} has been deleted", hint="Declare it again.")
        if self.consumers and (consumer.exclusive or self.consumers[0].exclusive):
            raise ResourceLocked(f"Queue {self.name} has a consumer, and exclusive use is asked for", hint="Close the other consumer.")
        self.consumers.append(consumer)
        self._host.dirty[self] = None

    def unsubscribe(self, consumer: Consumer) -> None:
        """Take a consumer away. Release what it has first: this may be the end of the queue."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self._excluded.pop(consumer, None)
            self._turn = 0
            self._host.left(self)

    def add_sender(self) -> None:
        """Count a link that sends to this queue."""
        self.senders += 1

    def remove_sender(self) -> None:
        """A link that sends to this queue is gone."""
        self.senders -= 1
        if self.lifetime.needs_no_links:
            self._host.left(self)

    def wake(self) -> None:
        """Have this queue dispatched at the end of the turn: a consumer has credit again."""
        self._host.dirty[self] = None

    def dispatch(self, now: int) -> None:
        """Hand available messages to consumers with credit, in turn."""
        self._tidy()
        consumers = self.consumers
        if self._turn:
            consumers = consumers[self._turn :] + consumers[: self._turn]
        takers = []
        for consumer in consumers:
            if consumer.credit > 0:
                if consumer.browse:
                    self._show(consumer, now)
                elif not self.follows:
                    takers.append(consumer)
        if takers:
            given = self._hand_out_selectively(takers, now) if self._excluded else self._hand_out(takers, now)
            if len(self.consumers) > 1:
                self._turn = (self._turn + given) % len(self.consumers)

    def _hand_out(self, takers: list[Consumer], now: int) -> int:
        """Give messages from the head to each taker in turn; return how many."""
        order = self.order
        messages = self.messages
        expired: list[Message] = []
        given = turn = 0
        # A consumer may call back into this queue, so the head is kept up to date for it before it is called.
        while self._head < len(order):
            message = messages.get(order[self._head])
            self._head += 1
            if message is None or message.acquired:
                continue
            if message.expires and message.expires <= now:
                expired.append(message)
                continue
            consumer = takers[turn]
            message.acquired = True
            self.acquired += 1
            given += 1
            consumer.deliver(message)
            if consumer.credit > 0:
                turn += 1
            else:
                del takers[turn]
                if not takers:
                    break
            if turn >= len(takers):
                turn = 0
        if expired:
            self._drop_expired(expired)
        return given

    def _hand_out_selectively(self, takers: list[Consumer], now: int) -> int:
        """Give messages as _hand_out does, passing over those that no taker may have."""
        given = 0
        expired: list[Message] = []
        self._advance()
        index = self._head
        # A consumer that takes the last message may end the queue, and so its order.
        while index < len(self.order):
            sequence = self.order[index]
            index += 1
            message = self.messages.get(sequence)
            if message is None or message.acquired:
                continue
            if message.expires and message.expires <= now:
                expired.append(message)
                continue
            consumer = next((taker for taker in takers if sequence not in self._excluded.get(taker, ())), None)
            if consumer is None:
                continue
            takers.remove(consumer)
            self.acquire(message)
            given += 1
            consumer.deliver(message)
            if consumer.credit > 0:
                takers.append(consumer)
            if not takers:
                break
        self._drop_expired(expired)
        return given

    def _show(self, browser: Consumer, now: int) -> None:
        """Show a browser the available messages that it has not seen."""
        order = self.order
        for index in range(bisect_right(order, browser.cursor), len(order)):
            sequence = order[index]
            message = self.messages.get(sequence)
            if message is None or message.acquired or (message.expires and message.expires <= now and not self.follows):
                continue
            browser.cursor = sequence
            browser.deliver(message)
            if browser.credit <= 0:
                break

    # What a backup does; the verbs above use these too.

    def insert(self, sequence: int, payload: bytes, expires: int = 0) -> None:
        """Put a message in its place, whatever the limits."""
        order = self.order
        if order and sequence <= order[-1]:
            if sequence in self.messages:
                return
            self._unsorted = True
        order.append(sequence)
        self.messages[sequence] = Message(sequence, payload, expires)
        self.bytes += len(payload)
        self.enqueued += 1
        if expires:
            self._expiring = True
        if self.consumers:
            self._host.dirty[self] = None

    def insert_local(self, payload: bytes, expires: int) -> None:
        """Put a message that is not logged at the end, under a number of the queue's own."""
        self._local += 1
        self.insert(self._local, payload, expires)

    def remove(self, sequences: Iterable[int]) -> None:
        """Forget messages that left; unknown ones never came here and are no loss."""
        for sequence in sequences:
            message = self.messages.pop(sequence, None)
            if message is not None:
                self.bytes -= len(message.payload)
                self.dequeued += 1
                self.acquired -= message.acquired
        self._tidy()

    def restate(self, sequence: int, delivery_count: int, annotations: bytes) -> None:
        """Say what is now beside the payload of a message."""
        message = self.messages.get(sequence)
        if message is not None:
            message.delivery_count = delivery_count
            message.annotations = annotations

    def ordered(self) -> list[int]:
        """Return the order, sorted; it may name messages that have left."""
        self._tidy()
        return self.order

    def messages_after(self, cursor: int, max_bytes: int) -> list[Message]:
        """Return the messages after sequence `cursor`, acquired or not: as many as fit, but one at least if there is one."""
        self._tidy()
        found: list[Message] = []
        for index in range(bisect_right(self.order, cursor), len(self.order)):
            message = self.messages.get(self.order[index])
            if message is not None:
                max_bytes -= len(message.payload)
                if found and max_bytes < 0:
                    break
                found.append(message)
        return found

    def close(self) -> None:
        """The queue is deleted: forget everything and tell the consumers."""
        self.deleted = True
        self.max_count = 0  # So that enqueue takes its slow path, where it finds the queue deleted.
        self.messages.clear()
        self.order.clear()
        self._excluded.clear()
        self._head = self.bytes = self.acquired = 0
        self.owner = None
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            consumer.queue_deleted()

    def statistics(self) -> dict[str, int]:
        """Return what management shows of this queue."""
        return {
            "messages": len(self.messages), "bytes": self.bytes, "consumers": len(self.consumers), "bindings": len(self.bindings),
            "acquired": self.acquired, "enqueued": self.enqueued, "dequeued": self.dequeued, "released": self.released,
            "expired": self.expired, "rejected": self.rejected, "discarded": self.discarded,
        }  # fmt: skip

    # Order and housekeeping.

    def drop(self, messages: Iterable[Message]) -> int:
        """Dequeue messages as one record, without asking whether this empties the queue."""
        sequences = [message.sequence for message in messages if message.sequence in self.messages]
        if self.follows or not sequences:
            return 0
        self.remove(sequences)
        return 0 if self.recorder is None else self.recorder.dequeue_many(self.uid, sequences)

    def _drop_expired(self, messages: list[Message]) -> None:
        if messages:
            self.expired += len(messages)
            self.dequeue_many(messages)

    def _rewind(self, sequence: int) -> None:
        """Move the head back to a message that is available again."""
        index = bisect_left(self.order, sequence, 0, self._head)
        if index < self._head:
            self._head = index

    def _advance(self) -> None:
        """Move the head on to the first available message."""
        while self._head < len(self.order):
            message = self.messages.get(self.order[self._head])
            if message is not None and not message.acquired:
                break
            self._head += 1

    def _tidy(self) -> None:
        """Put `order` right: sorted after insertions out of turn, and not much longer than the queue."""
        if self._unsorted:
            self._unsorted = False
            self.order.sort()
            self._head = 0
        if len(self.order) > 2 * len(self.messages) + SLACK:
            following = self.order[self._head] if self._head < len(self.order) else None
            self.order[:] = [sequence for sequence in self.order if sequence in self.messages]
            self._head = len(self.order) if following is None else bisect_left(self.order, following)
            for consumer, sequences in self._excluded.items():
                self._excluded[consumer] = {sequence for sequence in sequences if sequence in self.messages}
