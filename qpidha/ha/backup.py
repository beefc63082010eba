"""The backup's side of replication: follow a primary, keep its log, apply what is safe.

A backup keeps every batch as it comes and confirms it, but folds into its broker model only what the
primary has called safe: what is beyond may still be cut off by the next primary, and cutting unapplied
batches undoes nothing. It decides nothing and accepts nothing of a lower epoch than it has promised.
Must not know what is in a batch, but for the HA records. Qpid: `Backup.h`, `BrokerReplicator.h`.
"""

from __future__ import annotations

from collections import deque

from qpidha.ha.peers import Peer
from qpidha.ha.port import Log, Port
from qpidha.ha.wire import Begin, Chunk, Confirm, Logged, SnapshotEnd, Subscribe, encode
from qpidha.words.records import Batch, Record


class Backup:
    """The role of a backup."""

    def __init__(self, port: Port, log: Log, applied: int, floor: int = 0) -> None:
        self.port = port
        self.log = log
        self.applied = applied
        """Up to here the broker model has the log."""
        self.floor = floor
        """Up to here the model may have effects of the log that came with a snapshot, and cannot go back."""
        self.tail: deque[Batch] = deque(log.batches(applied + 1))
        """Batches that are kept and not applied."""
        self.primary: Peer | None = None
        self.in_snapshot = False
        self.began = False
        self.chunks = 0
        self.last_chunk = 0
        """The number that says that the snapshot is whole, until it may be confirmed; 0 for none."""
        self.news_after = 0
        """Records up to here are history: what they say of the in-sync set need not hold any more."""
        self.told = (0, 0, 0)
        """What was confirmed last on this link: epoch, sequence, chunks."""

    def follow(self, peer: Peer) -> None:
        """Ask a primary for its log."""
        self.primary = peer
        self.began = False
        log = self.log
        if not self.has_whole_model:  # half a snapshot is worth nothing
            request = Subscribe(0, 0, 0, 0)
            self.spoil()
        else:
            applied = max(self.applied, self.floor)
            request = Subscribe(log.epoch, log.last, log.epoch_of(applied), applied)
        self.port.say(peer.connection_id, encode(request))
        self.port.announce("notice", f"Connected to primary {peer.name}", primary=peer.name)

    @property
    def has_whole_model(self) -> bool:
        """Whether the broker model can be taken as of a point in the log: not in the middle of a snapshot, nor beyond the log."""
        return not self.in_snapshot and self.floor <= self.log.last

    def spoil(self) -> None:
        """Keep nothing: what there is cannot be gone on with."""
        self.in_snapshot = self.began = False
        self._start_over(0, [])

    def begin(self, message: Begin) -> None:
        """The primary says where its log and ours part."""
        self.began = True
        self.told = (0, 0, 0)
        self.chunks = self.last_chunk = 0
        self.news_after = message.last
        self.in_snapshot = message.snapshot
        if message.snapshot:
            self._start_over(message.point, message.history)
            return
        if self.log.last > message.point:
            self.port.announce("notice", f"records {message.point + 1} to {self.log.last} are not in the new primary's log: cut off")
        self.log.cut(message.point)
        while self.tail and self.tail[-1].last > message.point:
            self.tail.pop()

    def _start_over(self, sequence: int, history: list[tuple[int, int]]) -> None:
        self.port.forget()
        self.tail.clear()
        self.log.reset(sequence, history)
        self.applied = sequence
        self.floor = 0

    def logged(self, message: Logged) -> list[tuple[int, Record]]:
        """Keep a batch, apply what is safe; return the HA records in it."""
        batch = message.batch
        self.log.needed = self.applied + 1  # what may have to be cut off is kept
        self.log.receive(batch)
        self.tail.append(batch)
        if batch.first <= self.floor < batch.last:
            self.floor = batch.last  # a snapshot may end within what became one batch
        self.safe(message.safe)
        return self.port.ha_records(batch.data) if batch.control else []

    def safe(self, sequence: int) -> None:
        """Apply everything up to `sequence`."""
        tail = self.tail
        while tail and tail[0].last <= sequence:
            batch = tail.popleft()
            self.port.apply(batch.data)
            self.applied = batch.last
        if sequence > self.log.safe:
            self.log.safe = min(sequence, self.log.last)

    def chunk(self, message: Chunk) -> None:
        """Fold a part of a snapshot."""
        self.port.apply(message.data)
        self.log.chunk(message.data)
        self.chunks = message.number

    def snapshot_end(self, message: SnapshotEnd) -> None:
        """The snapshot is whole: with this confirmed, what we have of the log counts."""
        self.in_snapshot = False
        self.floor = message.through
        self.log.snapshot_end(message.through)
        self.last_chunk = message.chunks

    def is_whole(self, sequence: int) -> bool:
        """Whether with the log up to `sequence` all is here that the primary had then."""
        return not self.in_snapshot and sequence > self.floor

    def flush(self) -> None:
        """End of a turn: confirm, once, what is here to stay. That may be more than before although nothing came: a disk was written."""
        if self.primary is None or not self.began:
            return
        log = self.log
        if self.last_chunk and log.snapshot_kept:
            self.chunks = self.last_chunk
            self.last_chunk = 0
        here = (log.epoch, min(log.kept, log.last), max(self.chunks - log.chunks_waiting, 0))
        if here != self.told:
            self.told = here
            self.port.say(self.primary.connection_id, encode(Confirm(*here)))

    def finish(self) -> None:
        """Apply all that is kept: this broker is to be primary, and its whole log stands, safe or not yet."""
        if not self.has_whole_model:
            self.spoil()
        while self.tail:
            batch = self.tail.popleft()
            self.port.apply(batch.data)
            self.applied = batch.last
