"""Keeper: keeps a journal and a broker model in step: recovery at the start, checkpoints, and bodies that need not be in memory.

A checkpoint is made when starting would take much longer than what there is to start with: when the files are more
than twice as large as the live content. It is written a chunk at a time, each when the one before is on disk, so
that nobody waits for it. A message whose body is out of memory is pointed to the checkpoint as it goes by.
Knows nothing of clusters. Source: the snapshots of `recovery.py`, to disk in place of a backup.
"""

from __future__ import annotations

from collections.abc import Iterator

from qpidha.broker.broker import Broker
from qpidha.store.journal import Body, Journal
from qpidha.store.log import Log
from qpidha.store.opening import Opening
from qpidha.store.recovery import fold, message_chunks, page_out, snapshot_objects
from qpidha.words.effects import Announce
from qpidha.words.message import Message

INTERVAL = 1_000_000_000
"""How often it is considered whether to make a checkpoint, in ns."""


class Keeper:
    """The journal of one broker, its log and its model."""

    def __init__(self, broker: Broker, log: Log, journal: Journal, *, system_id: str, segment_size: int) -> None:
        self._broker = broker
        self._log = log
        self._journal = journal
        self._system_id = system_id
        self._slack = 4 * segment_size
        self._snapshot: Iterator[tuple[bytes, list[Message]]] | None = None
        self._chunk_mark = 0
        self._chunk: tuple[Body, list[Message]] | None = None
        """The last chunk, until it can be read back."""
        self._point = 0
        self._next = 0

    def recover(self, *, alone: bool) -> list[Announce]:
        """Rebuild the model and the log from the journal; give what the operator should know.

        A broker `alone` has nobody who could know better: for it all that is on disk holds.
        """
        broker, log = self._broker, self._log
        opening = Opening(self._journal, self._system_id)
        for part in opening.parts():
            fold(broker, part.data)
            if broker.heavy:
                page_out(broker, part)
        log.recover(opening)
        if alone:
            for batch in opening.tail:
                fold(broker, batch.data)
            log.safe = log.last
        queues = [queue for queue in broker.queues.values() if queue.uid > 0]
        messages = sum(len(queue.messages) for queue in queues)
        text = f"recovered {messages} messages on {len(queues)} queues; the log ends with {log.epoch}:{log.last}"
        found = Announce("notice", "store", text, {"messages": messages, "queues": len(queues), "last": log.last})
        return [Announce("warning", "store", note) for note in opening.notes] + [found]

    @property
    def next_deadline(self) -> int:
        """When to tick."""
        return self._next

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint waits for nothing but the next turn."""
        return self._snapshot is not None and self._chunk_mark <= self._log.answered_mark

    def turn(self, applied: int) -> None:
        """End of a turn: `applied` is how far the model has the log."""
        recent, answered = self._log.recent, self._log.answered_mark
        while recent and recent[0][0] <= answered and recent[0][1].last <= applied:
            part = recent.popleft()[1]
            if self._broker.heavy:
                page_out(self._broker, part)
        if self.is_busy:
            self._write_chunk(applied)

    def tick(self, now: int, applied: int) -> None:
        """See now and then whether a checkpoint is worth its while."""
        if now < self._next:
            return
        self._next = now + INTERVAL
        journal = self._journal
        if self._snapshot is not None or journal.is_snapshotting or self._log.has_pending:
            return
        live = sum(queue.bytes for queue in self._broker.queues.values())
        if journal.live_size > 2 * live + self._slack:
            self.checkpoint(applied)

    def checkpoint(self, applied: int) -> None:
        """Begin a checkpoint of what the model has, which is the log up to `applied`."""
        log = self._log
        history = [(epoch, first) for epoch, first in log.history if first <= applied]
        self._journal.begin_checkpoint(log.epoch_of(applied), applied, history, last=log.last)
        self._snapshot = self._parts(applied)
        self._point = applied

    def _parts(self, point: int) -> Iterator[tuple[bytes, list[Message]]]:
        for data in snapshot_objects(self._broker):
            yield data, []
        yield from message_chunks(self._broker, point)

    def _write_chunk(self, applied: int) -> None:
        assert self._snapshot is not None
        if not self._journal.is_snapshotting or self._journal.is_receiving:  # a snapshot of a primary has taken its place
            self._snapshot = self._chunk = None
            return
        if self._chunk is not None:
            body, messages = self._chunk
            for message in messages:
                if not isinstance(message.payload, bytes):
                    message.payload = body
        part = next(self._snapshot, None)
        if part is None:
            self._snapshot = self._chunk = None
            recent = self._log.recent
            while recent and recent[0][1].last <= self._point:  # its file may be gone when it could be read
                recent.popleft()
            self._journal.end_checkpoint(applied)
            return
        data, messages = part
        self._chunk = (self._journal.chunk(data), messages)
        self._chunk_mark = self._journal.mark(sync=False)
