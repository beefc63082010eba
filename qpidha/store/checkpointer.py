"""The checkpointer: keeps a write-ahead log and a broker model in step: recovery at the start,
checkpoints, and bodies that need not be in memory.

A checkpoint is made when starting would take much longer than what there is to start with: when the
files are more than twice as large as the live content. It is written a chunk at a time, each when
the one before is on disk, so that nobody waits for it. A message whose body is out of memory is
pointed to the checkpoint as it goes by. None is begun for which there is no space, and one that
turns out to be is given up: a full disk would end the broker. Knows nothing of clusters. Source:
the snapshots of `recovery.py`, to disk in place of a backup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from qpidha.broker.broker import Broker
from qpidha.broker.credit import DISK_FREE_LIMIT, SLOW_DISK
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.broker.queues.messages import Segment, as_they_are
from qpidha.model.effects import Announce
from qpidha.model.encoding import Parts
from qpidha.model.errors import ProtocolViolation, UpgradeNeeded
from qpidha.model.event_codes import CUT_OFF, NO_CHECKPOINT
from qpidha.model.event_log import LogTrouble
from qpidha.model.features import FEATURES, UPGRADE_HINT, lacking
from qpidha.model.message import Message, PagedPayload
from qpidha.store.log import Log
from qpidha.store.log_reader import LogReader
from qpidha.store.recovery import Held, fold, message_chunks, page_out, snapshot_objects
from qpidha.store.weighing import Weighing
from qpidha.store.write_ahead_log import Chunk, PayloadRef, WriteAheadLog

if TYPE_CHECKING:
    from qpidha.broker.queues.messages import Places

INTERVAL = 1_000_000_000
"""How often it is considered whether to make a checkpoint, in ns."""
SYNC_BYTES = 1 << 20
"""Bytes of a checkpoint after which it is synced. Synced at its end only, a checkpoint of 140 MB
held up the thread of the disk for 70 to 180 ms, and all that waits for a sync with it.
"""
PARTS = 64
"""Parts of the write-ahead log that a start reads before it looks at some queues again."""
LESS_SLACK = 64
"""By how much smaller the slack is while senders wait for space on the disk."""
RETRY = 60_000_000_000
"""How long to wait with another checkpoint after one was given up, in ns."""
GIVEN_UP = (
    "a checkpoint was given up: the disk is nearly full; consume messages, or make space for "
    "data-dir"
)
TOO_SLOW = "the disk is too slow: too much of the write-ahead log is not written yet"


class Checkpointer:
    """The write-ahead log of one broker, its log and its model."""

    def __init__(
        self,
        broker: Broker,
        log: Log,
        wal: WriteAheadLog,
        *,
        system_id: str,
        segment_size: int,
        most_memory: int = UNLIMITED,
    ) -> None:
        """While messages have more than `most_memory` bytes in memory no body is kept there that a
        start brings, or a snapshot, or that comes while a checkpoint is written.
        """
        self._most_memory = most_memory
        self.weighing = Weighing(broker)
        self._broker = broker
        self._log = log
        self.logs = [log]
        """All logs on the disk: senders wait while it is behind with any of them."""
        self._wal = wal
        self._system_id = system_id
        self._slack = 4 * segment_size
        self._snapshot: Iterator[tuple[bytes, Held]] | None = None
        self._chunk_mark = 0
        self._unsynced = 0
        """Bytes of the checkpoint that is being written since it was synced."""
        self._chunk: tuple[PayloadRef, Held] | None = None
        """The last chunk, until it can be read back."""
        self._moved: list[tuple[Message, PagedPayload]] = []
        self._moved_segments: list[tuple[Segment, Places]] = []
        """What points to the checkpoint that is being written, and to what it pointed before."""
        self.has_given_up = False
        """Whether there was not enough space for the last checkpoint that was begun; until that is
        told.
        """
        self._is_short = False
        self._retry_at = 0
        """Before no checkpoint is begun, as one was given up."""
        self._point = 0
        self._written = self._before = 0
        """Bytes of the checkpoint that is being written, and of the log when it began."""
        self._next = 1
        """At the first turn: a start may have found a write-ahead log that is worth a checkpoint.
        """
        self._is_wanted = False
        self._content = 0
        """What there was to write when the last checkpoint began that was finished, and (`_weight`)
        the one that is being written.
        """
        self._weight = 0

    def recover(self, *, alone: bool, features: Iterable[str] = FEATURES) -> list[Announce]:
        """Rebuild the model and the log from the write-ahead log; give what the operator should
        know.

        A broker `alone` has nobody who could know better: for it all that is on disk holds. Raises
        UpgradeNeeded for a log that needs more than the `features` that this broker knows.
        """
        # The reader gives out what is committed, and that is applied. What is behind it stays in
        # memory: in a cluster the next primary decides whether it holds (S4).
        broker, log = self._broker, self._log
        reader = LogReader(self._wal, self._system_id, features)
        is_checkpoint = False
        for number, part in enumerate(reader.chunks()):
            if is_checkpoint and part.first:
                self._content = self.weighing.all()
            is_checkpoint = not part.first
            self._fold(part.data, is_snapshot=is_checkpoint)
            if not number % PARTS:
                self.weighing.step()
            self._page_out(part, is_pressed=self._has_too_much)
        log.recover(reader)
        if alone:
            for batch in reader.tail:
                self._fold(batch.parts)
            log.committed = log.last
        missing = lacking(broker.features, features)
        if missing:
            raise UpgradeNeeded(
                f"the write-ahead log uses what this version does not know: {', '.join(missing)}",
                hint=UPGRADE_HINT,
            )
        self._wal.use(broker.features)
        self.weighing.all()
        queues = [queue for queue in broker.queues.values() if queue.uid > 0]
        messages = sum(len(queue.messages) for queue in queues)
        text = (
            f"recovered {messages} messages on {len(queues)} queues; the log ends with "
            f"{log.epoch}:{log.last}"
        )
        found = Announce(
            "notice", "store", text, {"messages": messages, "queues": len(queues), "last": log.last}
        )
        trouble = LogTrouble("cut off")
        return [
            Announce("warning", "store", note, {}, trouble, CUT_OFF) for note in reader.notes
        ] + [found]

    def _fold(self, data: bytes | Parts, *, is_snapshot: bool = False) -> None:
        """Apply records that are sound on disk: if they cannot be read, another version wrote
        them.
        """
        try:
            fold(self._broker, data, is_snapshot=is_snapshot)
        except ProtocolViolation as error:
            raise UpgradeNeeded(
                f"the write-ahead log cannot be read: {error.text}", hint=UPGRADE_HINT
            ) from error

    @property
    def next_deadline(self) -> int:
        """When to tick."""
        return self._next

    @property
    def needs_all_sealed(self) -> bool:
        """Whether a checkpoint goes on only in turns that leave nothing unsealed."""
        return self._is_wanted or self._snapshot is not None

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint waits for nothing but the next turn.

        What is appended and not sealed shows in the model already, and may never come to the log.
        """
        log = self._log
        return (
            self._snapshot is not None
            and self._chunk_mark <= log.answered_mark
            and not log.has_pending
        )

    def turn(self, applied: int, *, rests: bool = False) -> bool:
        """End of a turn: `applied` is how far the model has the log. Return whether a part of a
        checkpoint was written; none is if it `rests`, unless the log grows too fast for that.
        """
        # A body may leave memory when its frame can be read back and the message is in the state: a
        # part of a snapshot as soon as it is written, a batch also applied.
        recent, chunks, answered = self._log.recent, self._log.chunks, self._log.answered_mark
        is_pressed = self._wal.is_snapshotting and self._has_too_much
        while chunks and chunks[0][0] <= answered:
            self._page_out(chunks.popleft()[1], is_pressed=is_pressed)
        while recent and recent[0][0] <= answered and recent[0][1].last <= applied:
            self._page_out(recent.popleft()[1], is_pressed=is_pressed)
        self._throttle()
        if self._is_wanted and not self._log.has_pending and not self._wal.is_snapshotting:
            self.checkpoint(applied)
        if not self.is_busy or (rests and self.may_rest):
            return False
        self._write_chunk(applied)
        return True

    @property
    def may_rest(self) -> bool:
        """Whether the checkpoint that is being written grows faster than the log, so that it may
        take its time.
        """
        if DISK_FREE_LIMIT in self._broker.credit.withheld:
            return False
        return self._written >= 2 * (self._wal.live_size - self._before)

    @property
    def _has_too_much(self) -> bool:
        return self._broker.use.bodies + self.weighing.memory > self._most_memory

    def _page_out(self, part: Chunk, *, is_pressed: bool) -> None:
        if is_pressed or self._broker.over_budget:
            page_out(self._broker, part, whole=is_pressed)

    def _throttle(self) -> None:
        """Let senders wait while the disk is far behind, for what it has not written is in memory;
        take nothing more when those do not heed it.
        """
        broker, credit, logs = self._broker, self._broker.credit, self.logs
        if SLOW_DISK not in credit.withheld and not broker.refuse_publishing:
            for log in logs:
                if log.is_behind:
                    break
            else:
                return  # The usual case, at the end of each turn.
        if SLOW_DISK in credit.withheld:
            if all(log.has_caught_up for log in logs):
                credit.withhold(SLOW_DISK, "")
        elif any(log.is_behind for log in logs):
            credit.withhold(SLOW_DISK, TOO_SLOW)
        is_choked = any(log.is_choked(credit.spare) for log in logs)
        if is_choked and not broker.refuse_publishing:
            broker.refuse_publishing = TOO_SLOW
        elif broker.refuse_publishing == TOO_SLOW and not is_choked:
            broker.refuse_publishing = ""

    def tick(self, now: int) -> list[Announce]:
        """See now and then whether a checkpoint is worth its while; it begins at the end of a turn.
        Give what the operator should know.
        """
        if now < self._next:
            return []
        self._next = now + INTERVAL
        content = self.weighing.step()
        wal = self._wal
        self._is_wanted = False
        if self._snapshot is not None or wal.is_snapshotting:
            return []
        if self.has_given_up:
            self.has_given_up = False
            self._retry_at = now + RETRY
            return [Announce("warning", "store", GIVEN_UP, event_code=NO_CHECKPOINT)]
        if now < self._retry_at:
            return []
        if wal.purge():
            return []  # There is more space soon.
        # A checkpoint pays when a start would read more than twice what there is. The slack keeps a
        # small broker from making one all the time.
        # What it would take is not known, but what the last one took is, and how much more or less
        # there is to write since.
        size, before = wal.checkpoint_size, self._content
        size = max(
            size + content - before if content >= before else size * content // before, content
        )
        room = wal.disk.room()
        slack = min(self._slack, room)
        if DISK_FREE_LIMIT in self._broker.credit.withheld:
            slack //= LESS_SLACK  # Senders wait for what a checkpoint gives back.
        if wal.live_size <= 2 * size + slack:
            return []
        self._is_wanted = size + size // 8 < room
        was_short, self._is_short = self._is_short, not self._is_wanted
        if self._is_wanted or was_short:
            return []
        text = (
            f"no checkpoint is made: it would take {size / 1e6:.1f} MB, and {room / 1e6:.1f} "
            "MB are left for it"
        )
        hint = "; until messages are consumed or data-dir has more space, the write-ahead log grows"
        fields: dict[str, object] = {"size": size, "room": room}
        return [Announce("warning", "store", text + hint, fields, event_code=NO_CHECKPOINT)]

    def checkpoint(self, applied: int) -> None:
        """Begin a checkpoint of what the model has, which is the log up to `applied`. Nothing may
        be pending.
        """
        log = self._log
        self._is_wanted = False
        self._weight = self.weighing.step()
        # A backup may have more of the log than it has applied. The checkpoint shows what is
        # applied, so its history ends there too; the segments go on behind it.
        history = [(epoch, first) for epoch, first in log.history if first <= applied]
        self._wal.begin_checkpoint(log.epoch_of(applied), applied, history, last=log.last)
        self._snapshot = self._parts(applied)
        self._point = applied
        self._written, self._before = 0, self._wal.live_size

    def _parts(self, point: int) -> Iterator[tuple[bytes, Held]]:
        for data in snapshot_objects(self._broker):
            yield data, []
        yield from message_chunks(self._broker, point)

    def _write_chunk(self, applied: int) -> None:
        assert self._snapshot is not None
        if (
            not self._wal.is_snapshotting or self._wal.is_receiving
        ):  # a snapshot of a primary has taken its place
            self._forget()
            return
        if self._chunk is not None:
            body, held = self._chunk
            # Messages that are paged out point into files which go with this checkpoint: from now
            # on they are read from it. What they pointed to is kept, should it be given up.
            for one in as_they_are(held):
                if isinstance(one.payload, bytes):
                    continue
                if isinstance(one, Segment):
                    self._moved_segments.append((one, one.places()))
                else:
                    self._moved.append((one, one.payload))
                one.payload = body
        part = next(self._snapshot, None)
        if part is None:
            self._forget()
            self._content = self._weight
            recent = self._log.recent
            while (
                recent and recent[0][1].last <= self._point
            ):  # its file may be gone when it could be read
                recent.popleft()
            # What came with a primary's snapshot may show more than has been applied.
            self._wal.end_checkpoint(max(applied, self._log.snapshot_through))
            return
        data, held = part
        if not data:
            self._chunk = None
            return
        if len(data) >= self._wal.disk.room():
            self._give_up()
            return
        self._chunk = (self._wal.chunk(data), held)
        self._written += len(data)
        self._unsynced += len(data)
        is_due = self._unsynced >= SYNC_BYTES
        if is_due:
            self._unsynced = 0
        self._chunk_mark = self._wal.mark(sync=is_due)

    def _give_up(self) -> None:
        """Make space: without the checkpoint all is as before it was begun."""
        for message, payload in self._moved:
            if not isinstance(message.payload, bytes):
                message.payload = payload
        for segment, places in self._moved_segments:
            segment.read_from(places)
        self._forget()
        self._wal.abandon_checkpoint()
        self.has_given_up = True

    def _forget(self) -> None:
        """The checkpoint is finished, or comes to nothing."""
        self._snapshot = self._chunk = None
        self._moved, self._moved_segments = [], []
