"""Queues: messages in order, who waits for them, and who has them at present.

A queue has two sets of verbs. With those of a primary (enqueue, acquire, release, requeue, dequeue)
it decides and lets its recorder know; with those of a backup (insert, remove, restate) it follows
what was decided elsewhere. A message takes the short way through `enqueue` as long as the queue is
shorter than its gate; whatever is unusual (limits, duplicates, a refusal) closes the gate.
Where another kind of order (priority, last value) would differ: insert, room_for, _rewind, _hand_out.
Knows nothing of exchanges, links or clusters. Source: Qpid `Queue.cpp`.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from qpidha.broker.backlog import Backlog
from qpidha.broker.dedup import read_window
from qpidha.broker.lifetime import Lifetime
from qpidha.broker.limits import Limits
from qpidha.words.errors import LimitExceeded, RefusedRequest, ResourceDeleted, ResourceLocked
from qpidha.words.message import Message
from qpidha.words.message_view import is_durable
from qpidha.words.records import Requeued

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from qpidha.broker.consumer import Consumer
    from qpidha.broker.recorder import Recorder
    from qpidha.words.records import QueueDeclared


class QueueHost(Protocol):
    """What a queue asks of the broker around it."""

    dirty: dict[Queue, None]
    """Queues with something to dispatch."""
    withholds: bool
    heavy: dict[Queue, None]
    """Queues with more bytes in memory than they may have."""

    @property
    def refuse_publishing(self) -> str:
        """Why nothing that is recorded may be added at present; empty if it may."""
        ...

    def left(self, queue: Queue) -> None:
        """A consumer, a sender, the owner or the last message left: the queue may have come to its end."""
        ...

    def reroute(self, queue: Queue, message: Message) -> int:
        """Give a message to the queue's alternate exchange; return the sequence to wait for."""
        ...

    def evict(self, queue: Queue, messages: list[Message]) -> None:
        """Give messages that had to make room to the queue's alternate exchange."""
        ...

    def used(self, queue: Queue) -> None:
        """A queue that ends when its users have left has its first one."""
        ...


class Queue(Backlog):
    """A FIFO queue."""

    __slots__ = (
        "_expiring", "_gate", "_host", "_local", "_turn", "bindings", "consumers", "deduplicated", "deleted", "discarded", "durable",
        "ends_empty", "enqueued", "expired", "follows", "is_used", "lifetime", "max_bytes", "max_count", "name", "options",
        "owner", "recorder", "rejected", "released", "ring", "senders", "syncs", "timeout", "uid", "uuid", "window",
    )  # fmt: skip

    def __init__(
        self, uid: int, options: QueueDeclared, host: QueueHost, *, limits: Limits, lifetime: Lifetime, timeout: int, logged: bool
    ) -> None:
        super().__init__(logged, limits.memory)
        self.uid = uid
        self.name = options.name
        self.uuid = options.uuid
        self.options = options
        self.recorder: Recorder | None = None
        """Where messages are recorded; None for a queue whose messages are not."""
        self.durable = options.durable
        self.syncs = False
        """Whether a durable message may be here, so that what leaves must be known after a restart."""
        self.follows = False
        """Whether somebody else decides about this queue, so that what its users do here changes nothing."""
        self.lifetime = lifetime
        self.timeout = timeout
        self.ends_empty = lifetime.needs_no_messages
        self.is_used = False
        """Whether it ever had a user; kept for queues that end when their users have left."""
        self.max_count = limits.max_count
        self.max_bytes = limits.max_bytes
        self.ring = limits.ring
        self.window = read_window(options.arguments)
        """What this queue remembers of the messages it had; None if it takes messages twice."""
        self.owner: object | None = None
        self.consumers: list[Consumer] = []
        self.senders = 0
        self.bindings: dict[tuple[int, str], None] = {}
        """(exchange uid, key) of each binding."""
        self.deleted = False
        self.enqueued = self.released = self.expired = self.rejected = self.discarded = self.deduplicated = 0  # totals
        self._host = host
        self._local = 0
        self._turn = 0
        self._expiring = False
        self.set_gate()

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, {len(self.messages)} messages)"

    # What a primary does.

    def enqueue(self, payload: bytes, expires: int = 0) -> int:
        """Add a message, unless it is a duplicate; return the sequence to wait for, 0 if it is not logged."""
        leaving: Sequence[Message] = ()
        if len(self.messages) >= self._gate or self.bytes + len(payload) > self.max_bytes:
            original = self.duplicate_of(payload)
            if original is not None:
                return original
            leaving = self.room_for(len(payload))
            self.drop(leaving)
        recorder = self.recorder
        if recorder is None:
            self.check_open()
            self.insert_local(payload, expires)
            sequence = 0
        else:
            # The first durable message of a batch answers for all that follow it.
            if self.durable and not (self.syncs and recorder.must_sync) and is_durable(payload):
                recorder.must_sync = self.syncs = True
            sequence = recorder.enqueue(self.uid, payload, expires)
            self.insert(sequence, payload, expires)
        if leaving:
            self._host.evict(self, list(leaving))
        return sequence

    def duplicate_of(self, payload: bytes) -> int | None:
        """Count a message that has been here before and return the sequence to wait for; None for one that is new."""
        if self.window is None:
            return None
        self.check_open()
        original = self.window.find(payload)
        if original is None:
            return None
        self.deduplicated += 1
        return 0 if self.recorder is None else original

    def room_for(self, size: int) -> list[Message]:
        """Name the messages that must leave before one of `size` bytes can come; raise LimitExceeded if it cannot."""
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
        if self.follows:
            raise RefusedRequest(f"Queue {self.name} is a copy here", hint="Send to the primary.")
        if self.recorder is not None and self._host.refuse_publishing:
            raise LimitExceeded(
                f"Queue {self.name} takes no messages at present: {self._host.refuse_publishing}",
                hint="Try again later; consuming goes on. The broker's operator has to look at its disk.",
            )

    def set_gate(self) -> None:
        """Let messages take the short way in, if nothing has to be asked about each of them."""
        refusing = self.recorder is not None and self._host.refuse_publishing
        self._gate = 0 if self.deleted or self.window is not None or refusing else self.max_count

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
        self.bytes -= message.size
        if self.cold:
            self._forget_cold(message)
        self.dequeued += 1
        if message.acquired:
            self.acquired -= 1
        recorder = self.recorder
        if recorder is None:
            recorded = 0
        else:
            if self.syncs:
                recorder.must_sync = True
            # A key must be known to others as long as its sender may send again, so such a message is never
            # kept from them, not even when it has come and gone before they could know.
            recorded = recorder.dequeue(self.uid, sequence) if self.window is None else recorder.dequeue_many(self.uid, [sequence])
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
        available = self.available()
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
        # What is beside a message in a record does not say whether it is durable, and its bytes may be far.
        self.syncs = self.durable and bool(self.messages)
        if self.order and not self.logged:
            self._local = max(self._local, self.order[-1])
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
        self.mark_used()
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
        if self.lifetime.needs_no_links:
            self.mark_used()

    def remove_sender(self) -> None:
        """A link that sends to this queue is gone."""
        self.senders -= 1
        if self.lifetime.needs_no_links:
            self._host.left(self)

    def mark_used(self) -> None:
        """The queue has a user: one that ends without users remembers it, on other brokers too."""
        if not self.is_used and self.lifetime.needs_no_users:
            self._host.used(self)

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
                elif not self.follows and not (self.uid > 0 and self._host.withholds):
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
        total = self.bytes + len(payload)
        self.bytes = total
        if total > self._warm_end:
            self._host.heavy[self] = None
        self.enqueued += 1
        if expires:
            self._expiring = True
        if self.window is not None:
            self.window.remember(self.window.key(payload), sequence)
        if self.consumers:
            self._host.dirty[self] = None

    def insert_run(self, sequences: list[int], payloads: list[bytes], expiries: list[int]) -> None:
        """Put messages in their places, as `insert` does: sequences rise, and there is an expiry for each message or none at all."""
        if self.window is not None or len(sequences) == 1 or (self.order and sequences[0] <= self.order[-1]):
            for sequence, payload, expires in zip(sequences, payloads, expiries or repeat(0, len(sequences)), strict=True):
                self.insert(sequence, payload, expires)
            return
        self.append_run(sequences, payloads, expiries)
        if self.bytes > self._warm_end:
            self._host.heavy[self] = None
        self.enqueued += len(sequences)
        self._expiring = self._expiring or bool(expiries)
        if self.consumers:
            self._host.dirty[self] = None

    def insert_local(self, payload: bytes, expires: int) -> None:
        """Put a message that is not logged at the end, under a number of the queue's own."""
        self._local += 1
        self.insert(self._local, payload, expires)

    def close(self) -> None:
        """The queue is deleted: forget everything and tell the consumers."""
        self.deleted = True
        self.set_gate()
        self._host.heavy.pop(self, None)
        self._clear()
        self.owner = None
        consumers, self.consumers = self.consumers, []
        for consumer in consumers:
            consumer.queue_deleted()

    def statistics(self) -> dict[str, int]:
        """Return what management shows of this queue."""
        return {
            "messages": len(self.messages), "bytes": self.bytes, "cold": self.cold, "consumers": len(self.consumers),
            "bindings": len(self.bindings), "acquired": self.acquired, "enqueued": self.enqueued, "dequeued": self.dequeued,
            "released": self.released, "expired": self.expired, "rejected": self.rejected, "discarded": self.discarded,
            "deduplicated": self.deduplicated,
        }  # fmt: skip

    # Housekeeping.

    def drop(self, messages: Iterable[Message]) -> int:
        """Dequeue messages as one record, without asking whether this empties the queue."""
        sequences = [message.sequence for message in messages if message.sequence in self.messages]
        if self.follows or not sequences:
            return 0
        self.remove(sequences)
        if self.recorder is None:
            return 0
        if self.syncs:
            self.recorder.must_sync = True
        return self.recorder.dequeue_many(self.uid, sequences)

    def _drop_expired(self, messages: list[Message]) -> None:
        if messages:
            self.expired += len(messages)
            self.dequeue_many(messages)
