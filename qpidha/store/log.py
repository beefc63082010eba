"""The log: every record a broker has appended or received, in one order, and the recent ones kept.

On a primary the broker model appends through the Recorder verbs; what one turn of the loop appends is
sealed into a `Batch` that goes to every backup. On a backup, sealed batches arrive and are kept as they
are, so that a promoted backup can serve the others from the same point. Old batches are let go when they
exceed `limit` bytes: a broker that asks for them gets a snapshot instead.

A message that is dequeued before its batch is sealed is taken out of the batch again, and no trace of
it leaves this broker. Sequences are never given twice in one epoch, so such gaps are harmless.
Knows nothing of queues or of the cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from qpidha.store.codec import encode_dequeues, encode_enqueues, encode_record
from qpidha.store.journal import Part
from qpidha.words.errors import InvariantBroken
from qpidha.words.records import HA_RECORDS, Batch, Dequeued, Enqueued, Record, Requeued

if TYPE_CHECKING:
    from qpidha.store.journal import Journal
    from qpidha.store.opening import Opening

BATCH_OVERHEAD = 200
"""Bytes that a kept batch costs beside its data."""
MARK_BYTES = 1 << 20
"""Bytes of transient content after which the disk is asked to say that they are written."""
BACKLOG = 32 << 20
"""With more bytes than this not written yet, transient content too waits for the disk, and so do its senders. With twice as
many nothing is taken any more: a sender that wants no answer waits for none."""
OF_MESSAGES = (Enqueued, Dequeued, Requeued)
"""Records of messages: whether they must be synced, the queue knows. All others must."""


class Log:
    """One broker's log."""

    def __init__(self, limit: int, journal: Journal | None = None) -> None:
        self.limit = limit
        self.journal = journal
        self.epoch = 0
        self.last = 0
        """The last sequence that is sealed."""
        self.history: list[tuple[int, int]] = []
        """(epoch, first sequence of it), oldest first."""
        self.consumed: list[int] = []
        """Messages dequeued while unsafe, since the owner last emptied this list."""
        self.safe = 0
        """Up to here every in-sync broker has the log; kept by the owner."""
        self.needed = 0
        """From here on the log is kept whatever its size: an in-sync backup, or ourselves to cut it, still need it. 0 for none."""
        self.must_sync = False
        """Whether something pending must survive a power cut; set by whoever records it."""
        self.written = 0
        """Up to here the log can be read back from disk."""
        self.floor = 0
        """What was recovered, or came as a snapshot, may show effects of records up to here."""
        self.syncs = 0
        """How often the disk has synced the log; one sync serves many batches."""
        self.synced = 0
        """Up to here all of the log is on disk to stay, whatever is in it."""
        self._marks: deque[tuple[int, int, bool, int]] = deque()
        """(mark, last sequence before it, whether it syncs, bytes since the mark before) for each that the disk has not answered."""
        self._unsynced: deque[tuple[int, int]] = deque()
        """(mark, first sequence) of each batch that does not count before the disk has it."""
        self.recent: deque[tuple[int, Part]] = deque()
        """(mark, what was written before it): emptied by the owner, who may let go of bodies once the mark is answered."""
        self._unmarked = 0
        self._unwritten = 0
        """Bytes that the disk has not said to be written."""
        self.chunks: deque[tuple[int, Part]] = deque()
        """(mark, part) of a snapshot that comes, as with `recent`; what comes beside it may not be applied for long."""
        self._former: tuple[list[tuple[int, int]], int] = ([], 0)
        """History and end of the log that was here before a snapshot began to come."""
        self._snapshot_mark = 0
        self.answered_mark = 0
        """Up to this mark the disk is done."""
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        # One slot for each sequence since `last`: (queue, payload, expires) of a message, None where it was
        # taken out again, (queue, [sequences]) of dequeues, or any other record.
        self._pending: list[tuple[int, bytes, int] | tuple[int, list[int]] | Record | None] = []
        self.pending_bytes = 0
        """Bytes of the messages that were appended since the last batch was sealed."""
        self._shared: set[int] = set()
        self._run_queue = 0
        self._run: list[int] = []
        self._control = False

    # -- appending, on a primary ------------------------------------------------------------------

    def enqueue(self, queue: int, payload: bytes, expires: int) -> int:
        """Append a message on one queue."""
        pending = self._pending
        pending.append((queue, payload, expires))
        self.pending_bytes += len(payload)
        self._run_queue = 0
        return self.last + len(pending)

    def enqueue_shared(self, queues: tuple[int, ...], payload: bytes, expires: int) -> int:
        """Append one message on several queues."""
        sequence = self.append(Enqueued(queues, payload, expires))
        self._shared.add(sequence)
        self.pending_bytes += len(payload)
        return sequence

    def dequeue(self, queue: int, sequence: int) -> int:
        """Append that a message left; if it is not sealed yet, take it out of the batch instead."""
        pending = self._pending
        if sequence > self.safe and sequence not in self._shared:
            self.consumed.append(sequence)
            slot = sequence - self.last - 1
            if slot >= 0:
                pending[slot] = None
                return sequence
        if self._run_queue == queue:
            self._run.append(sequence)
        else:
            self._run = [sequence]
            self._run_queue = queue
            pending.append((queue, self._run))
        return self.last + len(pending)

    def dequeue_many(self, queue: int, sequences: list[int]) -> int:
        """Append that several messages left."""
        return self.append(Dequeued(queue, tuple(sequences)))

    def append(self, record: Record) -> int:
        """Append any record and return its sequence."""
        self._pending.append(record)
        self._run_queue = 0
        if isinstance(record, HA_RECORDS):
            self._control = True
        if not isinstance(record, OF_MESSAGES):
            self.must_sync = True
        return self.last + len(self._pending)

    def start_epoch(self, epoch: int) -> None:
        """Append under a higher epoch from here on."""
        if epoch <= self.epoch or self._pending:
            raise InvariantBroken(f"epoch {epoch} cannot start after {self.epoch} with {len(self._pending)} records pending")
        self.epoch = epoch
        self.history.append((epoch, self.last + 1))

    @property
    def has_pending(self) -> bool:
        """Whether something is appended and not sealed."""
        return bool(self._pending)

    @property
    def kept(self) -> int:
        """Up to here this broker has the log to stay: in memory, and on its disk where a record must be."""
        return self._unsynced[0][1] - 1 if self._unsynced else self.last

    @property
    def end(self) -> int:
        """The last sequence given, sealed or not."""
        return self.last + len(self._pending)

    def seal(self) -> None:
        """Close what is pending into a batch and keep it."""
        pending = self._pending
        if not pending:
            return
        first = self.last + 1
        batch = Batch(self.epoch, first, self.last + len(pending), self._control, self._encode(pending, first), self.must_sync)
        self._pending = []
        self._run_queue = self.pending_bytes = 0
        self._control = self.must_sync = False
        self._keep(batch)
        if self._shared:
            self._shared = {sequence for sequence in self._shared if sequence > self.safe}

    @staticmethod
    def _encode(pending: list[tuple[int, bytes, int] | tuple[int, list[int]] | Record | None], first: int) -> bytes:
        parts: list[bytes] = []
        run_queue = 0
        sequences: list[int] = []
        payloads: list[bytes] = []
        expiries: list[int] = []
        for sequence, entry in enumerate(pending, first):
            if entry is None:
                continue
            if type(entry) is tuple and len(entry) == 3:
                queue, payload, expires = entry
                if queue != run_queue:
                    if sequences:
                        parts.append(encode_enqueues(run_queue, sequences, payloads, expiries))
                    run_queue, sequences, payloads, expiries = queue, [], [], []
                sequences.append(sequence)
                payloads.append(payload)
                expiries.append(expires)
                continue
            if sequences:
                parts.append(encode_enqueues(run_queue, sequences, payloads, expiries))
                run_queue, sequences, payloads, expiries = 0, [], [], []
            if type(entry) is tuple:
                parts.append(encode_dequeues(entry[0], entry[1]))
            else:
                parts.append(encode_record(sequence, entry))  # type: ignore[arg-type]
        if sequences:
            parts.append(encode_enqueues(run_queue, sequences, payloads, expiries))
        return b"".join(parts)

    # -- receiving, on a backup -------------------------------------------------------------------

    def receive(self, batch: Batch) -> None:
        """Keep a batch from the primary; it must follow the last one."""
        if batch.first != self.last + 1 or batch.epoch < self.epoch or self._pending:
            raise InvariantBroken(f"batch {batch.epoch}:{batch.first} does not follow {self.epoch}:{self.last}")
        if batch.epoch > self.epoch:
            self.epoch = batch.epoch
            self.history.append((batch.epoch, batch.first))
        self._keep(batch)

    def cut(self, sequence: int) -> None:
        """Forget everything after `sequence`, which ends a batch."""
        gone: list[Batch] = []
        while self._batches and self._batches[-1].last > sequence:
            batch = self._batches.pop()
            self._bytes -= len(batch.data) + BATCH_OVERHEAD
            self.last = batch.first - 1
            gone.append(batch)
        if self.last > sequence:
            raise InvariantBroken(f"cannot cut the log at {sequence}: {self.last} is in or before its oldest batch")
        while self.history and self.history[-1][1] > self.last:
            self.history.pop()
        self.epoch = self.history[-1][0] if self.history else 0
        journal = self.journal
        if journal is None:
            return
        while self._unsynced and self._unsynced[-1][1] > self.last:
            self._unsynced.pop()
        while self.recent and self.recent[-1][1].last > self.last:  # others will have its numbers
            self.recent.pop()
        self._marks = deque((mark, min(last, self.last), syncs, size) for mark, last, syncs, size in self._marks)
        self.written, self.synced = min(self.written, self.last), min(self.synced, self.last)
        if gone:
            journal.cut(self.last, gone[::-1], synced=self.synced)
        if journal.is_receiving:  # it was to be a snapshot, and is the log from its first record instead
            self.snapshot_end(0)

    def reset(self, sequence: int, history: list[tuple[int, int]]) -> None:
        """Start again after a snapshot of everything up to `sequence`."""
        if self.journal is not None:
            diverged = self._diverged(sequence, history)
            self.journal.reset(history[-1][0] if history else 0, sequence, history, diverged=diverged)
            for waiting in (self._unsynced, self._marks, self.recent, self.chunks):
                waiting.clear()
            self._unmarked = self._unwritten = 0
            self.written = sequence
            self.synced = self.floor = 0  # nothing of it counts before the snapshot is whole
        self._batches.clear()
        self._bytes = 0
        self._pending = []
        self._run_queue = self.pending_bytes = 0
        self._shared = set()
        self.consumed = []
        self.last = self.safe = sequence
        self.history = history
        self.epoch = history[-1][0] if history else 0

    def chunk(self, data: bytes) -> None:
        """Keep a part of a snapshot that a primary sends."""
        if self.journal is not None:
            body = self.journal.chunk(data)
            self.chunks.append((self.journal.mark(sync=False), Part(data, 0, 0, body)))

    def snapshot_end(self, through: int) -> None:
        """The snapshot is whole; it may show effects of records up to `through`."""
        if self.journal is not None:
            self.floor = through
            self._snapshot_mark = self.journal.end_checkpoint(through)

    @property
    def snapshot_kept(self) -> bool:
        """Whether the snapshot that came last is here to stay."""
        return self._snapshot_mark <= self.answered_mark

    @property
    def chunks_waiting(self) -> int:
        """How many parts of a snapshot are not written yet: no more should come before they are."""
        return sum(mark > self.answered_mark for mark, _ in self.chunks)

    @property
    def is_choked(self) -> bool:
        """Whether the disk is so far behind that nothing more should be taken, even where nobody waits for an answer."""
        return self._unwritten > 2 * BACKLOG

    def _diverged(self, sequence: int, history: list[tuple[int, int]]) -> tuple[int, int] | None:
        """Return epoch and sequence of what is here, and worth keeping, that a log with another history has not; it ends with `sequence`.

        Where the one that is here is half a snapshot, this is about the one that was here before.
        """
        assert self.journal is not None
        is_here = not self.journal.is_receiving
        if is_here:
            self._former = (self.history, self.last)
        known, last = self._former
        point = 0
        for epoch in dict(known):
            if epoch in dict(history):
                point = max(point, min(end_of(history, sequence, epoch), end_of(known, last, epoch)))
        if point >= last:
            return None
        if is_here and history:
            batch = next((batch for batch in self.batches(max(point + 1, self.start)) if batch.durable), None)
            return (batch.epoch, batch.first) if batch is not None else None
        return known[-1][0] if known else 0, point + 1

    # -- the disk ---------------------------------------------------------------------------------

    def recover(self, opening: Opening) -> None:
        """Go on where the journal ends; what is not safe yet is in memory, to be cut off or applied.

        A process that was killed may have written and not synced: nothing counts before the disk has it all.
        """
        self.history = opening.history
        self.epoch = self.history[-1][0] if self.history else 0
        self.last = self.written = opening.last
        self.safe = opening.safe
        self.floor = opening.floor
        self._batches.extend(opening.tail)
        self._bytes = sum(len(batch.data) + BATCH_OVERHEAD for batch in opening.tail)
        for batch, body in zip(opening.tail, opening.bodies, strict=True):
            self.recent.append((0, Part(batch.data, batch.first, batch.last, body)))
        if self.journal is not None and self.last:
            mark = self.journal.mark(sync=True)
            self._marks.append((mark, self.last, True, 0))
            self._unsynced.append((mark, 1))

    def answer(self, mark: int) -> None:
        """Everything up to a mark is on disk, as far as that was asked."""
        self.answered_mark = mark
        while self._unsynced and self._unsynced[0][0] <= mark:
            self._unsynced.popleft()
        has_synced = False
        while self._marks and self._marks[0][0] <= mark:
            _, self.written, syncs, size = self._marks.popleft()
            self._unwritten -= size
            if syncs:
                self.synced = self.written
                has_synced = True
        self.syncs += has_synced

    # -- reading ----------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The first sequence that is still kept, or the next one."""
        in_memory = self._batches[0].first if self._batches else self.last + 1
        return in_memory if self.journal is None else min(in_memory, self.journal.start)

    def batches(self, sequence: int) -> Iterator[Batch]:
        """Yield the kept batches from the one that begins with `sequence`; what is not in memory any more comes from disk."""
        batches = self._batches
        low, high = 0, len(batches)
        if sequence > self.last:
            return
        if self.journal is not None and (not high or sequence < batches[0].first):
            for batch in self.journal.batches(sequence):
                yield batch
                if high and batch.last + 1 >= batches[0].first:
                    break  # the next one may not be written yet
        if not high:
            return
        if batches[-1].first == sequence:  # the usual case: a backup that follows closely
            yield batches[-1]
            return
        while low < high:
            middle = (low + high) // 2
            if batches[middle].first < sequence:
                low = middle + 1
            else:
                high = middle
        yield from islice(batches, low, None)

    def common_point(self, epoch: int, sequence: int) -> int:
        """Return the last sequence shared with a log that ends at `(epoch, sequence)`, or -1 where that epoch is unknown here."""
        if any(known == epoch for known, _ in self.history):
            return min(sequence, end_of(self.history, self.last, epoch))
        return 0 if sequence == 0 else -1

    def epoch_of(self, sequence: int) -> int:
        """Return the epoch in which `sequence` was appended."""
        for epoch, first in reversed(self.history):
            if sequence >= first:
                return epoch
        return 0

    def _keep(self, batch: Batch) -> None:
        self.last = batch.last
        batches = self._batches
        batches.append(batch)
        self._bytes += len(batch.data) + BATCH_OVERHEAD
        if self.journal is not None:
            self._write(self.journal, batch)
        while self._bytes > self.limit and len(batches) > 1 and not 0 < self.needed <= batches[0].last:
            if self.journal is not None and batches[0].last > self.written:
                break  # it could not be read back yet
            self._bytes -= len(batches.popleft().data) + BATCH_OVERHEAD

    def _write(self, journal: Journal, batch: Batch) -> None:
        body = journal.append(batch, safe=self.safe, synced=self.synced)
        self.recent.append((journal.next_mark, Part(batch.data, batch.first, batch.last, body)))
        size = len(batch.data) + BATCH_OVERHEAD
        self._unmarked += size
        self._unwritten += size
        # Without what a snapshot shows effects of, all that it brought would be worth nothing after a power cut.
        must_sync = batch.durable or batch.first <= self.floor
        must_wait = must_sync or self._unwritten > BACKLOG
        if must_wait or self._unmarked > MARK_BYTES:
            mark = journal.mark(sync=must_sync)
            self._marks.append((mark, batch.last, must_sync, self._unmarked))
            self._unmarked = 0
            if must_wait:
                self._unsynced.append((mark, batch.first))


def end_of(history: list[tuple[int, int]], last: int, epoch: int) -> int:
    """Return the last sequence that was appended in an epoch, by the history of a log that ends with `last`."""
    for index, (known, _) in enumerate(history):
        if known == epoch:
            return history[index + 1][1] - 1 if index + 1 < len(history) else last
    return 0
