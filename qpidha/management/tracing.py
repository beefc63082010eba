"""Tracing: events of single messages: enqueued, sent to a consumer, gone and why.

It stands between the queues and the log as the broker's log writer, so it hears of every record of
a message, with the cause of each departure; outgoing links tell it what they send. With `sampling`
N only messages with CRC-32(message id) mod N = 0 are logged: the same ones on every broker and
client, so that the story of each is whole. docs/pipeline.md has the event format.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol
from zlib import crc32

from qpidha.broker.broker import Broker
from qpidha.broker.queues.log_writer import LogWriter
from qpidha.broker.queues.queue import Queue
from qpidha.model.errors import ProtocolViolation
from qpidha.model.event_log import EventSink, Tracer
from qpidha.model.message_view import properties
from qpidha.model.records import Cause, QueueDeleted, Record

CAUSES: dict[int, str] = {
    Cause.ACCEPTED: "accepted",
    Cause.EXPIRED: "expired",
    Cause.OVERFLOW: "ring",
    Cause.REJECTED: "rejected",
    Cause.DELIVERY_LIMIT: "delivery-limit",
    Cause.REPLACED: "replaced",
    Cause.PURGED: "purged",
    Cause.DELETED: "deleted",
    Cause.MOVED: "moved",
    Cause.UNDELIVERABLE: "undeliverable",
}
"""Cause of a departure -> its name in the event format."""
MOST_SAMPLED = 1_000_000
"""Messages that are remembered to be in the sample."""


class TracedLog(LogWriter, Protocol):
    """The log as tracing sees it."""

    epoch: int
    committed: int

    def epoch_of(self, sequence: int) -> int: ...


class Tracing(Tracer):
    """A log writer that logs events of what passes through it."""

    __slots__ = ("_broker", "_ids", "_log", "_events", "_queues", "_sampled", "_sampling")

    def __init__(
        self,
        log: TracedLog,
        events: EventSink,
        broker: Broker,
        *,
        sampling: int,
        queues: Sequence[str],
    ) -> None:
        self._log = log
        self._events = events
        self._broker = broker
        self._sampling = sampling
        self._queues = tuple(queues)
        self._sampled: dict[int, int] = {}
        """Position of each message in the sample -> on how many queues it is."""
        self._ids: dict[int, str] = {}
        """Position -> id of each traced message that is not committed yet."""

    # -- the log writer ----------------------------------------------------------------------------

    @property
    def must_sync(self) -> bool:
        """Whether something pending must survive a restart."""
        return self._log.must_sync

    @must_sync.setter
    def must_sync(self, must_sync: bool) -> None:
        self._log.must_sync = must_sync

    @property
    def end(self) -> int:
        """The last sequence given."""
        return self._log.end

    def all_so_far(self) -> int:
        """The last sequence given, to wait for."""
        return self._log.all_so_far()

    def append(self, record: Record) -> int:
        """Append any record."""
        if isinstance(record, QueueDeleted):
            queue = self._broker.by_uid.get(record.queue)
            if isinstance(queue, Queue) and queue.logged:
                self._gone(record.queue, queue.ordered(), Cause.DELETED, may_be_left_out=False)
        return self._log.append(record)

    def enqueue(self, queue_uid: int, payload: bytes, expires: int) -> int:
        """Append a message on one queue."""
        sequence = self._log.enqueue(queue_uid, payload, expires)
        self._came((queue_uid,), payload, sequence)
        return sequence

    def enqueue_shared(self, queue_uids: tuple[int, ...], payload: bytes, expires: int) -> int:
        """Append one message on several queues."""
        sequence = self._log.enqueue_shared(queue_uids, payload, expires)
        self._came(queue_uids, payload, sequence)
        return sequence

    def enqueue_numbered(
        self, queue_uid: int, sequences: list[int], payloads: list[bytes], expiries: list[int]
    ) -> int:
        """Append messages that were on the queue before."""
        return self._log.enqueue_numbered(queue_uid, sequences, payloads, expiries)

    def pass_over(self, sequence: int) -> int:
        """Give no sequence up to this one."""
        return self._log.pass_over(sequence)

    def dequeue(self, queue_uid: int, sequence: int, cause: int = 0) -> int:
        """Append that a message left."""
        self._gone(queue_uid, (sequence,), cause, may_be_left_out=True)
        return self._log.dequeue(queue_uid, sequence, cause)

    def dequeue_many(self, queue_uid: int, sequences: list[int], cause: int = 0) -> int:
        """Append that several messages left."""
        self._gone(queue_uid, sequences, cause, may_be_left_out=False)
        return self._log.dequeue_many(queue_uid, sequences, cause)

    # -- events -----------------------------------------------------------------------------------

    def committed(self, committed: int) -> None:
        """All brokers have everything up to here."""
        ids = self._ids
        while ids and (first := next(iter(ids))) <= committed:
            del ids[first]

    def delivered(
        self, queue: str, position: int, payload: bytes, delivery_count: int, to: str
    ) -> None:
        """A message of a logged queue was sent to a consumer."""
        if not self._traces(queue):
            return
        name = message_id(payload)
        if self._is_sampled(name):
            if self._sampling > 1 and len(self._sampled) < MOST_SAMPLED:
                self._sampled.setdefault(position, 1)
            epoch = self._log.epoch_of(position)
            self._events.add("dlv", q=queue, e=epoch, p=position, i=name, d=delivery_count, x=to)

    def _came(self, queue_uids: tuple[int, ...], payload: bytes, sequence: int) -> None:
        name: str | None = None
        for uid in queue_uids:
            queue = self._broker.by_uid.get(uid)
            if not isinstance(queue, Queue) or not self._traces(queue.name):
                continue
            if name is None:
                name = message_id(payload)
                if not self._is_sampled(name):
                    return
                if self._sampling > 1 and len(self._sampled) < MOST_SAMPLED:
                    self._sampled[sequence] = len(queue_uids)
                self._ids[sequence] = name
            self._events.add(
                "enq", q=queue.name, e=self._log.epoch, p=sequence, i=name, z=len(payload)
            )

    def _gone(
        self, queue_uid: int, sequences: Sequence[int], cause: int, *, may_be_left_out: bool
    ) -> None:
        """Log that messages left. One that is left out of the log, as it came and went before all
        brokers had it, is logged with its id: its sender may hear of acceptance all the same.
        """
        queue = self._broker.by_uid.get(queue_uid)
        if not isinstance(queue, Queue) or not self._traces(queue.name):
            return
        why = CAUSES.get(cause, str(cause))
        for sequence in sequences:
            if self._sampling > 1:
                queues = self._sampled.pop(sequence, 0)
                if not queues:
                    continue
                if queues > 1:
                    self._sampled[sequence] = queues - 1
            is_unknown = may_be_left_out and sequence > self._log.committed
            name = self._ids.get(sequence, "") if is_unknown else ""
            self._events.add(
                "deq", q=queue.name, e=self._log.epoch_of(sequence), p=sequence, i=name, x=why
            )

    def _traces(self, queue: str) -> bool:
        return not self._queues or any(fnmatchcase(queue, pattern) for pattern in self._queues)

    def _is_sampled(self, name: str) -> bool:
        return self._sampling == 1 or (
            name != "" and crc32(name.encode(errors="replace")) % self._sampling == 0
        )


def message_id(payload: bytes) -> str:
    """Return the id of a message as text, empty if it has none that can be read."""
    try:
        found: Any = properties(payload).get("message_id")
    except ProtocolViolation:
        return ""
    return "" if found is None else found.hex() if isinstance(found, bytes) else str(found)
