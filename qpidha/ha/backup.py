"""The backup role: follow a primary, keep its log, apply what is committed.

A backup keeps every batch as it comes and confirms it, but folds into its broker model only what
the primary has called committed. What is beyond may still be cut off by the next primary, and to
cut off a batch that is not applied undoes nothing. The records that concern the cluster itself
change the in-sync set that this broker knows (`promises.py`) and its state (`states.py`).

Must not decide anything, and must not know what is in a batch, but for these records. Source: rules
S1, S4 and S5 in `docs/internals/safety.md`, `docs/internals/catch-up.md`; Qpid `Backup.h`,
`BrokerReplicator.h`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.peers import Peer
from qpidha.ha.port import Log, Port
from qpidha.ha.promises import Promises
from qpidha.ha.states import StateMachine
from qpidha.ha.wire import Begin, Chunk, Committed, Confirm, Logged, SnapshotEnd, Subscribe, encode
from qpidha.model.broker_states import CATCHUP, JOINING, READY
from qpidha.model.errors import ProtocolViolation
from qpidha.model.event_codes import BACKUP_READY, BATCH_REFUSED, PRIMARY_FOUND, STARTS_OVER
from qpidha.model.records import Batch, EpochStarted, InSyncChanged, Record

FromPrimary = Logged | Committed | Begin | Chunk | SnapshotEnd
"""What a primary sends to the backups that subscribed."""


class Backup:
    """The role of a backup, from when the broker has it until it is promoted."""

    def __init__(
        self,
        port: Port,
        log: Log,
        promises: Promises,
        state: StateMachine,
        send_status: Callable[[], None],
        *,
        applied: int,
        snapshot_through: int = 0,
    ) -> None:
        self.port = port
        self.log = log
        self.promises = promises
        self.state = state
        self._send_status = send_status
        """Lets the other brokers know how this one is."""
        self.applied = applied
        """Up to here the broker model has the log."""
        self.snapshot_through = snapshot_through
        """Up to here the model may have effects of the log that came with a snapshot, and cannot go
        back.
        """
        self.tail: deque[Batch] = deque(log.batches(applied + 1))
        """Batches that are in the log and not applied."""
        log.retain_from = applied + 1  # a batch that may have to be cut off stays in the log
        self.primary: Peer | None = None
        self.in_snapshot = False
        self.began = False
        """Whether the primary has answered the subscription of this link."""
        self.chunks = 0
        self.last_chunk = 0
        """The number that says that the snapshot is whole, until it may be confirmed; 0 for none.
        """
        self.history_end = 0
        """Records up to here are history: what they tell of the in-sync set may be out of date."""
        self.confirmed = (0, 0, 0)
        """What was confirmed last on this link: epoch, sequence, chunks."""

    # -- the subscription -------------------------------------------------------------------------

    def follow(self, peer: Peer) -> None:
        """Ask a primary for its log."""
        self.primary = peer
        self.began = False
        log = self.log
        if not self.has_whole_model:
            # Half a snapshot shows a part of what existed at its point, and no primary can send
            # just the rest of it: begin with nothing.
            self._forget()
            request = Subscribe(0, 0, 0, 0)
        else:
            # What is applied cannot be undone, so the primary must know how far that goes: a delta
            # from an earlier point is of no use to this broker.
            applied = max(self.applied, self.snapshot_through)
            request = Subscribe(log.epoch, log.last, log.epoch_of(applied), applied)
        self.port.send(peer.connection_id, encode(request))
        self.port.announce(
            "notice",
            f"Connected to primary {peer.name}",
            event_code=PRIMARY_FOUND,
            primary=peer.name,
        )

    @property
    def has_whole_model(self) -> bool:
        """Whether the broker model is that of one point in the log: not in the middle of a
        snapshot, nor beyond the log.
        """
        return not self.in_snapshot and self.snapshot_through <= self.log.last

    def on_message(self, connection_id: int, message: FromPrimary) -> None:
        """Take a message of the primary that is followed; one of another connection is ignored.

        So is what was sent before the primary answered this subscription: it belongs to an earlier
        one, whose log may have parted from the present one.
        """
        primary = self.primary
        if primary is None or primary.connection_id != connection_id:
            return
        if self.began is isinstance(message, Begin):
            return
        try:
            match message:
                case Logged():
                    self._on_logged(connection_id, message)
                case Committed(sequence):
                    self._on_committed(sequence)
                case Begin():
                    self._on_begin(message)
                case Chunk():
                    self._on_chunk(message)
                case SnapshotEnd():
                    self._on_snapshot_end(message)
        except ProtocolViolation as error:
            text = f"cannot read what the primary sent: {error.text}; fetching everything anew"
            self.port.announce("error", text, event_code=STARTS_OVER, condition=error.condition)
            self.primary = None
            self.start_over()
            self.port.hang_up(connection_id)

    def _on_begin(self, message: Begin) -> None:
        """The primary tells where its log and ours part."""
        self.began = True
        self.port.hear_time(message.time)
        self.confirmed = (0, 0, 0)
        self.chunks = self.last_chunk = 0
        self.history_end = message.last
        self.in_snapshot = message.snapshot
        if message.snapshot:
            self._reset(message.point, message.history)
        else:
            self._cut(message.point)
        # A demoted primary whose log goes on from where it is still has all that it ever accepted.
        # Any other broker that has to catch up lacks committed records, until the primary says
        # that it has them (S4).
        promises, state = self.promises, self.state
        set_ = InSyncSet(message.in_sync_epoch, message.in_sync_version, message.in_sync_members)
        is_behind = message.snapshot or not promises.is_member(set_)
        if is_behind:
            promises.incomplete()
        if state.current is JOINING or (state.current is READY and is_behind):
            state.change(CATCHUP)
        promises.learn(set_)

    def _cut(self, point: int) -> None:
        """Give up the records behind `point`, which the new primary does not have.

        They were never committed: the primary is a member of the set that was in force, and a
        member has every committed record (S1, S3).
        """
        if self.log.last > point:
            self.port.announce(
                "notice",
                f"records {point + 1} to {self.log.last} are not in the new primary's log: cut off",
            )
        self.log.cut(point)
        while self.tail and self.tail[-1].last > point:
            self.tail.pop()

    def start_over(self) -> None:
        """Forget everything and be behind: the broker model may have a batch by half."""
        self._forget()
        self.promises.incomplete()
        if self.state.current is READY:
            self.state.change(CATCHUP)
        else:
            self._send_status()

    def _forget(self) -> None:
        self.in_snapshot = self.began = False
        self._reset(0, [])

    def _reset(self, sequence: int, history: list[tuple[int, int]]) -> None:
        self.port.forget()
        self.tail.clear()
        self.log.reset(sequence, history)
        self.applied = sequence
        self.snapshot_through = 0

    # -- a snapshot -------------------------------------------------------------------------------

    def _on_chunk(self, message: Chunk) -> None:
        """Fold a part of a snapshot."""
        self.port.apply(message.data, is_snapshot=True)
        self.log.chunk(message.data)
        self.chunks = message.number

    def _on_snapshot_end(self, message: SnapshotEnd) -> None:
        """The snapshot is whole. Batches came beside its chunks, and the later chunks show effects
        of them: what this broker has counts when its log has reached `through`.
        """
        self.in_snapshot = False
        self.snapshot_through = message.through
        self.log.snapshot_end(message.through)
        self.last_chunk = message.chunks

    # -- the log ----------------------------------------------------------------------------------

    def _on_logged(self, connection_id: int, message: Logged) -> None:
        """Keep a batch, apply what is committed, and take up what it tells of the cluster."""
        batch, log = message.batch, self.log
        promised = self.promises.promised
        # A primary of a lower epoch than the promised one is one no longer (S5). History that the
        # present primary sends has lower epochs, too.
        if batch.epoch < promised and batch.first > self.history_end:
            self.port.announce(
                "warning",
                f"refused a batch of epoch {batch.epoch}: epoch {promised} is promised",
                event_code=BATCH_REFUSED,
            )
            self.port.hang_up(connection_id)
            return
        # A gap, or a step back to an earlier epoch, would break the prefix property, on which every
        # comparison of logs stands.
        if batch.first != log.last + 1 or batch.epoch < log.epoch:
            self.port.announce(
                "error",
                f"refused a batch that begins with {batch.first}: the log ends with {log.last}",
                event_code=BATCH_REFUSED,
            )
            self.port.hang_up(connection_id)
            return
        log.retain_from = self.applied + 1  # a batch that may have to be cut off stays in the log
        log.receive(batch)
        self.tail.append(batch)
        if batch.first <= self.snapshot_through < batch.last:
            self.snapshot_through = batch.last  # a snapshot may end within what became one batch
        self._on_committed(message.committed)
        if batch.control:
            for sequence, record in self.port.ha_records(batch.parts):
                self._on_cluster_record(batch.epoch, sequence, record)

    def _on_committed(self, sequence: int) -> None:
        """Apply everything up to `sequence`."""
        tail = self.tail
        while tail and tail[0].last <= sequence:
            batch = tail.popleft()
            self.port.apply(batch.parts)
            self.applied = batch.last
        if sequence > self.log.committed:
            self.log.committed = min(sequence, self.log.last)

    def _on_cluster_record(self, epoch: int, sequence: int, record: Record) -> None:
        """Take up a record of the cluster itself."""
        promises, state = self.promises, self.state
        if isinstance(record, EpochStarted):
            promises.learn(InSyncSet(epoch, 0, record.members))
            return
        if not isinstance(record, InSyncChanged):
            return
        set_ = InSyncSet(epoch, record.version, record.members)
        promises.learn(set_)
        # A set that was in force once tells nothing of who is in sync now.
        if sequence <= self.history_end:
            return
        if not promises.is_member(set_):
            if state.current is READY:
                promises.incomplete()
                state.change(CATCHUP)
        elif state.current is CATCHUP and not self.in_snapshot and sequence > self.snapshot_through:
            # The primary appends this record when we have confirmed all that was there before, so
            # with the record itself we have every committed record (S2).
            promises.complete(set_)
            state.change(READY)
            self.port.announce("notice", "Backup is ready", event_code=BACKUP_READY)

    def flush(self) -> None:
        """End of a turn: confirm, once, what is here to stay. That may be more than before although
        nothing came: a disk was written.
        """
        if self.primary is None or not self.began:
            return
        log = self.log
        if self.last_chunk and log.snapshot_kept:
            self.chunks = self.last_chunk
            self.last_chunk = 0
        # A confirmation is a promise that the record survives a crash of this broker, as far as
        # the primary asks for that: it never goes beyond what is on disk.
        here = (log.epoch, min(log.durable_to, log.last), max(self.chunks - log.chunks_waiting, 0))
        if here != self.confirmed:
            self.confirmed = here
            self.port.send(self.primary.connection_id, encode(Confirm(*here)))

    # -- promotion --------------------------------------------------------------------------------

    def finish(self) -> None:
        """Apply the whole log, committed or not: this broker is to be primary, and its log stands.

        Whether a record at the end was committed only the former primary knew. To keep it is safe
        in both cases: its sender was either told that it is accepted, or was told nothing.
        """
        if not self.has_whole_model:
            self._forget()
        while self.tail:
            batch = self.tail.popleft()
            self.port.apply(batch.parts)
            self.applied = batch.last
