"""Tracing: notes of single messages, from the broker model to its log: enqueued, sent to a consumer, gone.

It stands before the log as the broker's recorder, and outgoing links tell it what they send. With `sampling` N only messages with
CRC-32(message id) mod N = 0 are noted: the same ones on every broker and client, so that what is known of one is whole.
A message that goes before all brokers have it is noted with its id: its sender may hear of acceptance then.
Source: spark-pipeline.md section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol
from zlib import crc32

from qpidha.broker.broker import Broker
from qpidha.broker.queue import Queue
from qpidha.broker.recorder import Recorder
from qpidha.words.errors import ProtocolViolation
from qpidha.words.message_view import properties
from qpidha.words.notes import Notes, Tracer
from qpidha.words.records import Dequeued, QueueDeleted, Record

MOST_SAMPLED = 1_000_000
"""Messages that are remembered to be in the sample."""


class TracedLog(Recorder, Protocol):
    """The log as tracing sees it."""

    epoch: int
    safe: int

    def epoch_of(self, sequence: int) -> int: ...


class Tracing(Tracer):
    """A recorder that notes what passes through it."""

    __slots__ = ("_broker", "_ids", "_log", "_notes", "_queues", "_sampled", "_sampling", "_totals")

    def __init__(self, log: TracedLog, notes: Notes, broker: Broker, *, sampling: int, queues: Sequence[str]) -> None:
        self._log = log
        self._notes = notes
        self._broker = broker
        self._sampling = sampling
        self._queues = tuple(queues)
        self._sampled: dict[int, int] = {}
        """Position of each message in the sample -> on how many queues it is."""
        self._ids: dict[int, str] = {}
        """Position -> id of each traced message that is not safe yet."""
        self._totals: dict[int, tuple[int, int]] = {}
        """Uid of a queue -> messages that had expired or were discarded when some went for the last time."""

    # -- the recorder -----------------------------------------------------------------------------

    @property
    def must_sync(self) -> bool:
        """Whether something pending must survive a restart."""
        return self._log.must_sync

    @must_sync.setter
    def must_sync(self, must_sync: bool) -> None:
        self._log.must_sync = must_sync

    def append(self, record: Record) -> int:
        """Append any record."""
        if isinstance(record, Dequeued):
            self._gone(record.queue, record.sequences, single=False)
        elif isinstance(record, QueueDeleted):
            self._totals.pop(record.queue, None)
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

    def dequeue(self, queue_uid: int, sequence: int) -> int:
        """Append that a message left."""
        self._gone(queue_uid, (sequence,), single=True)
        return self._log.dequeue(queue_uid, sequence)

    def dequeue_many(self, queue_uid: int, sequences: list[int]) -> int:
        """Append that several messages left."""
        self._gone(queue_uid, sequences, single=False)
        return self._log.dequeue_many(queue_uid, sequences)

    # -- notes ------------------------------------------------------------------------------------

    def safe(self, safe: int) -> None:
        """All brokers have everything up to here."""
        ids = self._ids
        while ids and (first := next(iter(ids))) <= safe:
            del ids[first]

    def delivered(self, queue: str, position: int, payload: bytes, delivery_count: int, to: str) -> None:
        """A message of a logged queue was sent to a consumer."""
        if not self._traces(queue):
            return
        name = message_id(payload)
        if self._is_sampled(name):
            if self._sampling > 1 and len(self._sampled) < MOST_SAMPLED:
                self._sampled.setdefault(position, 1)
            epoch = self._log.epoch_of(position)
            self._notes.add("dlv", q=queue, e=epoch, p=position, i=name, d=delivery_count, x=to)

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
            self._notes.add("enq", q=queue.name, e=self._log.epoch, p=sequence, i=name, z=len(payload))

    def _gone(self, queue_uid: int, sequences: Sequence[int], *, single: bool) -> None:
        queue = self._broker.by_uid.get(queue_uid)
        if not isinstance(queue, Queue) or not self._traces(queue.name):
            return
        why = self._reason(queue, single=single)
        for sequence in sequences:
            if self._sampling > 1:
                queues = self._sampled.pop(sequence, 0)
                if not queues:
                    continue
                if queues > 1:
                    self._sampled[sequence] = queues - 1
            name = self._ids.get(sequence, "") if single and sequence > self._log.safe else ""
            self._notes.add("deq", q=queue.name, e=self._log.epoch_of(sequence), p=sequence, i=name, x=why)

    def _reason(self, queue: Queue, *, single: bool) -> str:
        """Tell why messages leave by what the queue has counted just before."""
        expired, discarded = self._totals.get(queue.uid, (0, 0))
        self._totals[queue.uid] = (queue.expired, queue.discarded)
        if single or queue.window is not None and queue.expired == expired and queue.discarded == discarded:
            return "accepted"
        return "expired" if queue.expired > expired else "purged" if queue.discarded > discarded else "ring"

    def _traces(self, queue: str) -> bool:
        return not self._queues or any(fnmatchcase(queue, pattern) for pattern in self._queues)

    def _is_sampled(self, name: str) -> bool:
        return self._sampling == 1 or (name != "" and crc32(name.encode(errors="replace")) % self._sampling == 0)


def message_id(payload: bytes) -> str:
    """Return the id of a message as text, empty if it has none that can be read."""
    try:
        found: Any = properties(payload).get("message_id")
    except ProtocolViolation:
        return ""
    return "" if found is None else found.hex() if isinstance(found, bytes) else str(found)
