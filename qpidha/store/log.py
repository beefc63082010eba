"""The log: every record a broker has appended or received, in one order, and the recent ones kept.

On a primary the broker appends through the verbs of `LogWriter`; what one turn of the loop appends
is sealed into a `Batch` that goes to every backup. On a backup, sealed batches arrive and are kept
as they are, so that a promoted backup can serve the others from the same point. Old batches are let
go when they exceed `limit` bytes: a broker that asks for them gets a snapshot instead.

There is one log and one order. Whatever must survive or be replicated is a record in it, with the
identity (epoch, sequence); state is a fold over it. So replication, durability and recovery are
questions of one number each, and an acknowledgement waits for a comparison:

    start .. committed .. durable_to .. last .. end

- `start`: the oldest record that can still be read back, from memory or from disk.
- `committed`: every member of the in-sync set has the log up to here (S1). The owner sets it: the
  primary from confirmations, a backup from what the primary says. What is committed is applied by
  backups, and acknowledged to clients. It never goes back within one life of the broker.
- `durable_to`: this broker has the log to stay up to here, so it may be confirmed up to here. A
  batch with a durable record counts when it is synced, a transient one at once.
- `last`: sealed. `end`: also what is appended and not sealed.

On disk there are two more. `written_to` can be read back, so memory may let go of it. `synced` is
there after a power cut, whatever it is. A sequence that is synced and not committed is still no
promise: the next primary may not have it, and then it is cut off.

A message that is dequeued before its batch is sealed is taken out of the batch again, and no trace
of it leaves this broker. Sequences are never given twice in one epoch, so such gaps are harmless.
Knows nothing of queues or of the cluster. Source: docs/internals/safety.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeGuard

from qpidha.model.encoding import Parts, gathered
from qpidha.model.errors import InvariantBroken
from qpidha.model.features import DEPARTURE_CAUSES
from qpidha.model.records import (
    HA_RECORDS,
    Batch,
    Bound,
    Cause,
    Dequeued,
    Enqueued,
    ExchangeDeclared,
    ExchangeDeleted,
    QueueDeclared,
    QueueDeleted,
    QueueUsed,
    Record,
    ReplicaSet,
    Requeued,
    Unbound,
)
from qpidha.store.codec import apart, encode_dequeues, enqueue_parts, record_parts
from qpidha.store.write_ahead_log import Chunk

if TYPE_CHECKING:
    from qpidha.store.log_reader import LogReader
    from qpidha.store.write_ahead_log import WriteAheadLog

BATCH_OVERHEAD = 200
"""Bytes that a kept batch costs beside its data."""
MARK_BYTES = 1 << 20
"""Bytes of transient content after which the disk is asked to say that they are written."""
BACKLOG = 32 << 20
"""With more bytes than this not written yet, transient content too waits for the disk, and so do
its senders. With twice as many nothing is taken any more: a sender that wants no answer waits for
none.
"""
OF_MESSAGES = (Enqueued, Dequeued, Requeued, ReplicaSet)
"""Records of messages, and how far a replica has come with them: whether they must be synced, the
queue knows.
"""
OF_OBJECTS = (
    QueueDeclared,
    QueueUsed,
    QueueDeleted,
    ExchangeDeclared,
    ExchangeDeleted,
    Bound,
    Unbound,
)
"""Records of queues, exchanges and bindings, which may be durable or not: whether they must be
synced, who appends them says.
"""
NOT_ALWAYS_SYNCED = OF_MESSAGES + OF_OBJECTS
"""All others must be."""


Pending = (
    tuple[int, bytes, int]
    | tuple[int, list[int]]
    | tuple[int, list[int], int, None]
    | Record
    | list[bytes]
    | None
)


class Log:
    """One broker's log."""

    def __init__(self, limit: int, wal: WriteAheadLog | None = None) -> None:
        self.limit = limit
        self.wal = wal
        self.epoch = 0
        self.last = 0
        """The last sequence that is sealed."""
        self.history: list[tuple[int, int]] = []
        """(epoch, first sequence of it), oldest first."""
        self.consumed: list[int] = []
        """Messages dequeued while unreplicated, since the owner last emptied this list."""
        self.committed = 0
        """Up to here every in-sync broker has the log; kept by the owner."""
        self.retain_from = 0
        """From here on the log is kept whatever its size: an in-sync backup, or ourselves to cut
        it, still need it. 0 for none.
        """
        self.must_sync = False
        """Whether something pending must survive a power cut; set by whoever records it."""
        self.messages = self.elided = 0
        """How many messages on one queue were appended ever, and how many of them were dequeued
        before they were sealed.
        """
        self.probe = 0
        """Becomes 0 when the message of this sequence is dequeued; below 0 it is to become that of
        the next message.
        """
        self.unsealed = 0
        """How many of them are pending."""
        self.has_more = False
        """Whether something is pending beside messages on one queue, and that messages left."""
        self.has_departures = False
        self.written_to = 0
        """Up to here the log can be read back from disk."""
        self.snapshot_through = 0
        """The recovered or received snapshot may already include effects of records up to here."""
        self.syncs = 0
        """How often the disk has synced the log; one sync serves many batches."""
        self.synced = 0
        """Up to here all of the log is on disk to stay, whatever is in it."""
        self._marks: deque[tuple[int, int, bool, int]] = deque()
        """(mark, last sequence before it, whether it syncs, bytes since the mark before) for each
        that the disk has not answered.
        """
        self._unsynced: deque[tuple[int, int]] = deque()
        """(mark, first sequence) of each batch that does not count before the disk has it."""
        self.recent: deque[tuple[int, Chunk]] = deque()
        """(mark, what was written before it): emptied by the owner, who may let go of bodies once
        the mark is answered.
        """
        self._unmarked = 0
        self._unwritten = 0
        """Bytes that the disk has not said to be written."""
        self.chunks: deque[tuple[int, Chunk]] = deque()
        """(mark, part) of a snapshot that comes, as with `recent`; what comes beside it may not be
        applied for long.
        """
        self._former: tuple[list[tuple[int, int]], int] = ([], 0)
        """History and end of the log that was here before a snapshot began to come."""
        self._snapshot_mark = 0
        self.answered_mark = 0
        """Up to this mark the disk is done."""
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        # One slot for each sequence since `last`: (queue, payload, expires) of a message, None
        # where it was taken out again, (queue, [sequences]) of dequeues, with (cause, None) where
        # that is not acceptance, any other record, or what is encoded already.
        self._pending: list[Pending] = []
        self.pending_bytes = 0
        """Bytes of the messages that were appended and are in no batch yet."""
        self._passed = 0
        """So many slots, from the first on, have no message."""
        self._pass_over = 0
        """The next batch ends here at least."""
        self._shared: set[int] = set()
        self._run_queue = 0
        self._run: list[int] = []
        self._control = False
        self.features: frozenset[str] = frozenset()
        """Features that may be used in what is appended: committed, as the owner says."""

    # -- appending, on a primary ------------------------------------------------------------------

    def enqueue(self, queue: int, payload: bytes, expires: int) -> int:
        """Append a message on one queue."""
        pending = self._pending
        pending.append((queue, payload, expires))
        self.pending_bytes += len(payload)
        self._run_queue = 0
        self.messages += 1
        self.unsealed += 1
        sequence = self.last + len(pending)
        if self.probe < 0:
            self.probe = sequence
        return sequence

    def enqueue_shared(self, queues: tuple[int, ...], payload: bytes, expires: int) -> int:
        """Append one message on several queues."""
        sequence = self.append(Enqueued(queues, payload, expires))
        self._shared.add(sequence)
        self.pending_bytes += len(payload)
        return sequence

    def enqueue_numbered(
        self, queue: int, sequences: list[int], payloads: list[bytes], expiries: list[int]
    ) -> int:
        """Append messages on one queue that have numbers already, none above what is committed."""
        self.pending_bytes += sum(map(len, payloads))
        return self.append_encoded(enqueue_parts(queue, sequences, payloads, expiries))

    def append_encoded(self, parts: list[bytes]) -> int:
        """Append records of messages that are encoded already, in one part or several."""
        self._pending.append(parts)
        self._run_queue = 0
        self.has_more = True
        return self.last + len(self._pending)

    def pass_over(self, sequence: int) -> int:
        """Give no sequence up to this one, from the next batch on; return the last that is given
        or passed over.
        """
        self._pass_over = max(self._pass_over, sequence)
        self.has_more = True
        return max(self._pass_over, self.end)

    def dequeue(self, queue: int, sequence: int, cause: int = Cause.ACCEPTED) -> int:
        """Append that a message left; if it is not sealed yet, take it out of the batch instead."""
        pending = self._pending
        if sequence == self.probe:
            self.probe = 0
        # A message that was consumed before it was committed needs no commit any more: its sender
        # may be told at once (`consumed`). Not so one on several queues, of which this is one, or
        # one that others wait for (`all_so_far`).
        if sequence > self.committed and sequence not in self._shared:
            self.consumed.append(sequence)
            slot = sequence - self.last - 1
            if slot >= 0:
                # It is not sealed: no backup ever hears of it. The slot stays, for the sequences
                # behind it are given.
                entry = pending[slot]
                if type(entry) is tuple:
                    self.unsealed -= 1
                    self.elided += 1
                    self.pending_bytes -= len(entry[1])
                pending[slot] = None
                return sequence
        if cause and DEPARTURE_CAUSES in self.features:
            return self._dequeue_for(queue, sequence, cause)
        if self._run_queue == queue:
            self._run.append(sequence)
        else:
            self._run = [sequence]
            self._run_queue = queue
            self.has_departures = True
            pending.append((queue, self._run))
        return self.last + len(pending)

    def _dequeue_for(self, queue: int, sequence: int, cause: int) -> int:
        """Append that a message left for a cause that is written; such runs have keys below 0."""
        key = -(queue << 8 | cause)
        if self._run_queue == key:
            self._run.append(sequence)
        else:
            self._run = [sequence]
            self._run_queue = key
            self.has_departures = True
            self._pending.append((queue, self._run, cause, None))
        return self.last + len(self._pending)

    def dequeue_many(self, queue: int, sequences: list[int], cause: int = Cause.ACCEPTED) -> int:
        """Append that several messages left, all for one cause. The cause is written when every
        member can read it; until then it is left out.
        """
        if DEPARTURE_CAUSES not in self.features:
            cause = Cause.ACCEPTED
        return self.append(Dequeued(queue, tuple(sequences), cause))

    def append(self, record: Record) -> int:
        """Append any record and return its sequence."""
        self._pending.append(record)
        self._run_queue = 0
        self.has_more = True
        # Backups read such a batch when it arrives and not only when it is committed: they must
        # know of an epoch or an in-sync set before they could be asked to promise against it (S1).
        if isinstance(record, HA_RECORDS):
            self._control = True
        if not isinstance(record, NOT_ALWAYS_SYNCED):
            self.must_sync = True
        return self.last + len(self._pending)

    def start_epoch(self, epoch: int) -> None:
        """Append under a higher epoch from here on."""
        if epoch <= self.epoch or self._pending:
            raise InvariantBroken(
                f"epoch {epoch} cannot start after {self.epoch} with "
                f"{len(self._pending)} records pending"
            )
        # Sequences go on from here, so two epochs can give the same sequence to different records.
        # The history tells them apart: up to its end in a common epoch, two logs are the same.
        self.epoch = epoch
        self.history.append((epoch, self.last + 1))

    @property
    def has_pending(self) -> bool:
        """Whether something is appended and not sealed."""
        return bool(self._pending) or self._pass_over > self.last

    @property
    def durable_to(self) -> int:
        """Up to here this broker has the log to stay: in memory, and on its disk where a record
        must be.
        """
        return self._unsynced[0][1] - 1 if self._unsynced else self.last

    @property
    def end(self) -> int:
        """The last sequence given, sealed or not."""
        return self.last + len(self._pending)

    def all_so_far(self) -> int:
        """Return the last sequence given, for somebody who waits for all up to it: were that a
        message and left out, he would be answered as its sender is.
        """
        if self.end > self.committed:
            self._shared.add(self.end)
        return self.end

    def first_unsealed(self) -> int:
        """Return the sequence of the first message on one queue that is pending; one behind the end
        if there is none.
        """
        pending, place = self._pending, self._passed
        size = len(pending)
        while place < size and not _is_message(pending[place]):
            place += 1
        self._passed = place
        return self.last + 1 + place

    def end_turn(self) -> None:
        """Let what is appended from now on be in another batch than what was so far: a record that
        is pending gets nothing more.
        """
        self._run_queue = 0

    def seal(self, through: int = 0) -> None:
        """Close what is pending into a batch and keep it: all of it, or up to a sequence where
        `end_turn` was called, if messages, and that others left, are all there is.
        """
        pending = self._pending
        if not pending and self._pass_over <= self.last:
            return
        # One batch for all of a turn: one transfer to each backup, one frame on disk, at most one
        # sync, one confirmation. A backup keeps and applies it whole or not at all, so what one
        # turn did, a transaction for instance, is never seen by halves.
        first = self.last + 1
        rest: list[Pending] = []
        if self.last < through < self.end:
            if self.has_more or self._control:
                raise InvariantBroken(
                    "a part of what is pending is sealed, and there is more in it"
                )
            rest = pending[through - self.last :]
            pending = pending[: through - self.last]
        batch = Batch(
            self.epoch,
            first,
            max(self.last + len(pending), self._pass_over),
            self._control,
            self._encode(pending, first),
            self.must_sync,
        )
        messages = [entry for entry in rest if _is_message(entry)]
        self._pending = rest
        self._run_queue = self._passed = 0
        self.pending_bytes = sum(len(payload) for _, payload, _ in messages)
        self.unsealed = len(messages)
        self.has_departures = len(rest) - rest.count(None) > len(messages)
        self.must_sync = self.must_sync and bool(rest)
        self._control = self.has_more = False
        self._keep(batch)
        if self._shared:
            self._shared = {sequence for sequence in self._shared if sequence > self.committed}

    @staticmethod
    def _encode(pending: list[Pending], first: int) -> Parts:
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
                        parts += enqueue_parts(run_queue, sequences, payloads, expiries)
                    run_queue, sequences, payloads, expiries = queue, [], [], []
                sequences.append(sequence)
                payloads.append(payload)
                expiries.append(expires)
                continue
            if sequences:
                parts += enqueue_parts(run_queue, sequences, payloads, expiries)
                run_queue, sequences, payloads, expiries = 0, [], [], []
            if type(entry) is tuple:
                parts.append(encode_dequeues(*entry[:3]))
            elif type(entry) is list:
                parts += entry
            else:
                parts += record_parts(sequence, entry)  # type: ignore[arg-type]
        if sequences:
            parts += enqueue_parts(run_queue, sequences, payloads, expiries)
        return gathered(parts)

    # -- receiving, on a backup -------------------------------------------------------------------

    def receive(self, batch: Batch) -> None:
        """Keep a batch from the primary; it must follow the last one."""
        # The batch is kept as it came, byte for byte: a promoted backup serves the others the same
        # batches from the same points, and needs no encoding of its own. But not in one piece: a
        # large message is copied once, and what the log has of it is what its queue will have.
        if batch.first != self.last + 1 or batch.epoch < self.epoch or self._pending:
            raise InvariantBroken(
                f"batch {batch.epoch}:{batch.first} does not follow {self.epoch}:{self.last}"
            )
        if batch.epoch > self.epoch:
            self.epoch = batch.epoch
            self.history.append((batch.epoch, batch.first))
        batch.parts = apart(batch.parts, batch.last - batch.first + 1)
        self._keep(batch)

    def cut(self, sequence: int) -> None:
        """Forget everything after `sequence`, which ends a batch."""
        # A new primary does not have what is behind `sequence`, so it was never committed (S1, S3).
        # Nothing of it was applied here, so there is nothing to undo but the log itself. The
        # batches are in memory: `retain_from` keeps what may have to be cut.
        gone: list[Batch] = []
        while self._batches and self._batches[-1].last > sequence:
            batch = self._batches.pop()
            self._bytes -= batch.size + BATCH_OVERHEAD
            self.last = batch.first - 1
            gone.append(batch)
        if self.last > sequence:
            raise InvariantBroken(
                f"cannot cut the log at {sequence}: {self.last} is in or before its oldest batch"
            )
        while self.history and self.history[-1][1] > self.last:
            self.history.pop()
        self.epoch = self.history[-1][0] if self.history else 0
        self._pass_over = 0
        wal = self.wal
        if wal is None:
            return
        # What waits for the disk is about numbers that will be given again, to other records: an
        # answer for the old ones must not count for the new ones.
        while self._unsynced and self._unsynced[-1][1] > self.last:
            self._unsynced.pop()
        while self.recent and self.recent[-1][1].last > self.last:  # others will have its numbers
            self.recent.pop()
        self._marks = deque(
            (mark, min(last, self.last), syncs, size) for mark, last, syncs, size in self._marks
        )
        self.written_to, self.synced = min(self.written_to, self.last), min(self.synced, self.last)
        if gone:
            wal.cut(self.last, gone[::-1], synced=self.synced)
        if (
            wal.is_receiving
        ):  # it was to be a snapshot, and is the log from its first record instead
            self.snapshot_end(0)

    def reset(self, sequence: int, history: list[tuple[int, int]]) -> None:
        """Start again after a snapshot of everything up to `sequence`."""
        # The files of the log that is here stay until the snapshot is whole: a crash in the middle
        # leaves this broker with the log it had, and not with half of another.
        if self.wal is not None:
            diverged = self._diverged(sequence, history)
            self.wal.reset(history[-1][0] if history else 0, sequence, history, diverged=diverged)
            for waiting in (self._unsynced, self._marks, self.recent, self.chunks):
                waiting.clear()
            self._unmarked = self._unwritten = 0
            self.written_to = sequence
            self.synced = self.snapshot_through = (
                0  # nothing of it counts before the snapshot is whole
            )
        self._batches.clear()
        self._bytes = 0
        self._pending = []
        self._run_queue = self.pending_bytes = self._pass_over = self.unsealed = self._passed = 0
        self.has_more = self.has_departures = False
        self._shared = set()
        self.consumed = []
        self.last = self.committed = sequence
        self.history = history
        self.epoch = history[-1][0] if history else 0

    def chunk(self, data: bytes) -> None:
        """Keep a part of a snapshot that a primary sends; one may be empty."""
        if self.wal is not None and data:
            body = self.wal.chunk(data)
            self.chunks.append((self.wal.mark(sync=False), Chunk(data, 0, 0, body)))

    def snapshot_end(self, through: int) -> None:
        """The snapshot is whole; it may show effects of records up to `through`."""
        if self.wal is not None:
            self.snapshot_through = through
            self._snapshot_mark = self.wal.end_checkpoint(through)

    @property
    def snapshot_kept(self) -> bool:
        """Whether the snapshot that came last is here to stay."""
        return self._snapshot_mark <= self.answered_mark

    @property
    def chunks_waiting(self) -> int:
        """How many parts of a snapshot are not written yet: no more should come before they are."""
        return sum(mark > self.answered_mark for mark, _ in self.chunks)

    @property
    def memory(self) -> int:
        """Bytes in memory: what is kept, and what waits for the disk beside it."""
        return self._bytes + self._unwritten

    @property
    def is_behind(self) -> bool:
        """Whether the disk is so far behind that senders should wait, even those who wait for no
        answer.
        """
        return self._unwritten > BACKLOG

    @property
    def has_caught_up(self) -> bool:
        """Whether the disk is so little behind that they may go on."""
        return self._unwritten <= BACKLOG // 2

    def is_choked(self, spare: int) -> bool:
        """Whether the disk is so far behind that nothing more should be taken: further than by what
        senders with credit for `spare` bytes may have had on their way when they were to wait.
        """
        return self._unwritten > 2 * BACKLOG + spare

    def _diverged(
        self, sequence: int, history: list[tuple[int, int]]
    ) -> tuple[int, int, int] | None:
        """Return epoch, first and last sequence of what is here, and worth keeping, that a log with
        another history has not; it ends with `sequence`.

        Where the one that is here is half a snapshot, this is about the one that was here before.
        """
        assert self.wal is not None
        is_here = not self.wal.is_receiving
        if is_here:
            self._former = (self.history, self.last)
        known, last = self._former
        point = 0
        for epoch in dict(known):
            if epoch in dict(history):
                point = max(
                    point, min(end_of(history, sequence, epoch), end_of(known, last, epoch))
                )
        if point >= last:
            return None
        if is_here and history:
            batch = next(
                (batch for batch in self.batches(max(point + 1, self.start)) if batch.durable), None
            )
            return (batch.epoch, batch.first, last) if batch is not None else None
        return known[-1][0] if known else 0, point + 1, last

    # -- the disk ---------------------------------------------------------------------------------

    def recover(self, reader: LogReader) -> None:
        """Go on where the write-ahead log ends; what is not committed yet is in memory, to be cut
        off or applied.

        A process that was killed may have written and not synced: nothing counts before the disk
        has it all.
        """
        self.history = reader.history
        self.epoch = self.history[-1][0] if self.history else 0
        self.last = self.written_to = reader.last
        self.committed = reader.committed
        self.snapshot_through = reader.snapshot_through
        self._batches.extend(reader.tail)
        self._bytes = sum(batch.size + BATCH_OVERHEAD for batch in reader.tail)
        for batch, body in zip(reader.tail, reader.bodies, strict=True):
            self.recent.append((0, Chunk(batch.parts, batch.first, batch.last, body)))
        # So all of it is synced once more, and until then `durable_to` is 0: this broker confirms
        # nothing that a power cut could take from it.
        if self.wal is not None and self.last:
            mark = self.wal.mark(sync=True)
            self._marks.append((mark, self.last, True, 0))
            self._unsynced.append((mark, 1))

    def answer(self, mark: int) -> None:
        """Everything up to a mark is on disk, as far as that was asked."""
        # Marks rise and are answered in order, several at once: what arrived while the disk was
        # synced is one group with one sync. The slower the disk, the larger the groups.
        self.answered_mark = mark
        while self._unsynced and self._unsynced[0][0] <= mark:
            self._unsynced.popleft()
        has_synced = False
        while self._marks and self._marks[0][0] <= mark:
            _, self.written_to, syncs, size = self._marks.popleft()
            self._unwritten -= size
            if syncs:
                self.synced = self.written_to
                has_synced = True
        self.syncs += has_synced

    # -- reading ----------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        """The first sequence that is still kept, or the next one."""
        in_memory = self._batches[0].first if self._batches else self.last + 1
        return in_memory if self.wal is None else min(in_memory, self.wal.start)

    def batches(self, sequence: int) -> Iterator[Batch]:
        """Yield the kept batches from the one that begins with `sequence`; what is not in memory
        any more comes from disk.
        """
        batches = self._batches
        low, high = 0, len(batches)
        if sequence > self.last:
            return
        if self.wal is not None and (not high or sequence < batches[0].first):
            for batch in self.wal.batches(sequence):
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
        """Return the last sequence shared with a log that ends at `(epoch, sequence)`, or -1 where
        that epoch is unknown here.
        """
        # Two logs that have an epoch in common are equal up to the end of the shorter one in it:
        # one primary appended it, and everybody keeps it in order.
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
        self._bytes += batch.size + BATCH_OVERHEAD
        if self.wal is not None:
            self._write(self.wal, batch)
        self.trim()

    def rest(self, through: int) -> None:
        """Let go of the batches up to `through`, which came long ago: whoever asks for one gets it
        from disk. They stay where the files are not kept for as long as batches may be in memory.
        """
        if self.wal is not None and self.wal.keep >= self.limit:
            self._let_go(0, through)
            if self._unmarked:  # Else the last ones would stay until more comes.
                self._mark(self.wal, sync=False)

    def trim(self) -> None:
        """Let the oldest batches go that are too many."""
        self._let_go(self.limit, self.last)

    def _let_go(self, limit: int, through: int) -> None:
        """Let the oldest batches go, down to `limit` bytes and up to `through`, but for those that
        an in-sync backup still has to get, and those that could not be read back from disk yet.
        """
        batches = self._batches
        while (
            self._bytes > limit
            and len(batches) > 1
            and batches[0].last <= through
            and not 0 < self.retain_from <= batches[0].last
        ):
            if self.wal is not None and batches[0].last > self.written_to:
                break  # it could not be read back yet
            self._bytes -= batches.popleft().size + BATCH_OVERHEAD

    def _write(self, wal: WriteAheadLog, batch: Batch) -> None:
        body = wal.append(batch, committed=self.committed, synced=self.synced)
        self.recent.append((wal.next_mark, Chunk(batch.parts, batch.first, batch.last, body)))
        size = batch.size + BATCH_OVERHEAD
        self._unmarked += size
        self._unwritten += size
        # Without what a snapshot shows effects of, all that it brought would be worth nothing after
        # a power cut.
        must_sync = batch.durable or batch.first <= self.snapshot_through
        # Transient content waits for nobody, unless the disk is so far behind that memory would
        # fill with it.
        must_wait = must_sync or self._unwritten > BACKLOG
        if must_wait or self._unmarked > MARK_BYTES:
            mark = self._mark(wal, sync=must_sync)
            if must_wait:
                self._unsynced.append((mark, batch.first))

    def _mark(self, wal: WriteAheadLog, *, sync: bool) -> int:
        """Ask the disk to say when all that was sealed is written, or synced."""
        mark = wal.mark(sync=sync)
        self._marks.append((mark, self.last, sync, self._unmarked))
        self._unmarked = 0
        return mark


def _is_message(entry: Pending) -> TypeGuard[tuple[int, bytes, int]]:
    return type(entry) is tuple and len(entry) == 3


def end_of(history: list[tuple[int, int]], last: int, epoch: int) -> int:
    """Return the last sequence that was appended in an epoch, by the history of a log that ends
    with `last`.
    """
    for index, (known, _) in enumerate(history):
        if known == epoch:
            return history[index + 1][1] - 1 if index + 1 < len(history) else last
    return 0
