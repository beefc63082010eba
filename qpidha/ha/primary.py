"""The primary role: which backup gets which records, whose confirmation is required, and what is
committed.

A backup subscribes with the point up to which it has the log. It gets the batches from there on or,
if that point is not in our history or no longer in the log, a snapshot in chunks: all objects, then
the messages on them with new batches beside them. It joins the in-sync set in three steps, and
their order is rule S1:

1. it has confirmed everything that had been sent when that was everything: its confirmation is
   *required* from then on;
2. it has confirmed what came meanwhile: a set with it is appended to the log;
3. it has that record, and so knows itself ready.

`committed` is the least that any required backup has confirmed and this broker has on its own disk.
A member whose link is lost, or that confirms nothing any more, keeps it where it is until the
smaller set is recorded (`membership.py`, S2). Confirmations are forgotten with their link (S6).
With fewer members than `ha-min-in-sync` nothing is committed (S7).

Must not know what is in a batch, nor how the others are asked. Source: `docs/internals/safety.md`,
`docs/internals/catch-up.md`; Qpid `Primary.h`, `RemoteBackup.h`, `QueueGuard.h`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from qpidha.ha.gathering import Gathering
from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.port import Log, Port
from qpidha.ha.wire import (
    Begin,
    Chunk,
    Committed,
    Confirm,
    SnapshotEnd,
    Subscribe,
    encode,
    encode_logged,
)
from qpidha.model.event_codes import (
    ACKNOWLEDGING,
    BACKUP_LOST,
    BACKUP_READY,
    NOTHING_ACKNOWLEDGED,
    OUT_OF_SYNC,
    STARTS_OVER,
)
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.records import InSyncChanged
from qpidha.model.settings import Settings

BATCHES_IN_FLIGHT = 3
"""Batches a backup may have unconfirmed before new records wait to be sent together: fewer and
larger transfers.
"""
BYTES_IN_FLIGHT = 128 << 10
"""So many bytes of them are as good as that many batches: what is consumed while records gather
leaves no more for the backups than its absence.
"""
LARGE_BATCH = 8 << 20
"""Bytes of messages that do not wait for more, whichever backup is busy: what is on its way to a
backup has to be bounded.
"""
CHUNKS_IN_FLIGHT = 4
"""Chunks of a snapshot that a backup may have unconfirmed."""
WINDOW = 4 << 20
"""Bytes of log that may be unconfirmed on the way to a backup, where ha-flow-bytes does not say."""
CATCH_UP_WINDOW = 1 << 18
"""The same while it catches up: so much may be read from disk and sent in one turn, and publishers
wait for that. Four times as much filled a backup no faster, and publishers waited half as long
again.
"""
BATCH_BYTES = 1 << 10
"""So much of that window each batch takes at least: small ones cost both sides 15 to 25 us each."""
BATCHES_A_TURN = 64
"""Batches that are sent to it in one turn."""
LAST_CHANCE = 100_000_000
"""For how long a backup that seems to have stalled is still listened to, in ns: what it said may
wait in our own socket.
"""
LEAST_PATIENCE = 1_000_000_000
"""However short ha-backup-timeout is, a backup that is connected has so long to confirm something,
in ns.
"""
COMMITTED_DELAY = 20_000_000
"""How long the news that the log is committed waits for a batch to travel with, in ns."""


class RemoteBackup:
    """One subscribed backup. Lives as long as its link."""

    __slots__ = (
        "chunk_sizes",
        "chunks_confirmed",
        "chunks_sent",
        "confirmed",
        "confirmed_bytes",
        "connection_id",
        "cursor",
        "flight",
        "flight_bytes",
        "reported",
        "is_doubted",
        "is_ready",
        "join_point",
        "messages",
        "name",
        "objects",
        "required",
        "settle_point",
        "since",
        "system_id",
        "through",
        "told_committed",
        "took",
    )

    def __init__(self, connection_id: int, system_id: str, name: str) -> None:
        self.connection_id = connection_id
        self.system_id = system_id
        self.name = name
        self.cursor = 0
        """The first sequence that has not been sent."""
        self.confirmed = 0
        self.reported = 0
        """What it last said that it has; of no worth before it is whole."""
        self.since = 0
        """While something is awaited from it: when it last gave any."""
        self.is_doubted = False
        """Whether it has given nothing for so long that this is its last chance."""
        self.objects: Iterator[bytes] | None = None
        self.messages: Iterator[bytes] | None = None
        """What is left of its snapshot: the objects, and then what is on them."""
        self.through = 0
        """Its snapshot may show effects of records up to here."""
        self.chunks_sent = 0
        self.chunks_confirmed = 0
        self.chunk_sizes: deque[int] = deque()
        """Bytes of each chunk that is unconfirmed; one may be a message of any size."""
        self.flight: deque[tuple[int, int, int]] = deque()
        """(last sequence, bytes, when it was sent) of each batch that is unconfirmed."""
        self.flight_bytes = self.confirmed_bytes = 0
        self.took = 0
        """For how long the batch that was confirmed last was on its way, in ns."""
        self.required = False
        self.settle_point = 0
        """What had been sent to it when that was everything; while it has not confirmed that,
        publishers would wait for it long.
        """
        self.join_point = 0
        """What it must confirm to enter the in-sync set."""
        self.is_ready = False
        """Whether it was told, on this link, that it is in the set."""
        self.told_committed = 0

    @property
    def is_whole(self) -> bool:
        """Whether it has its snapshot, if it needed one: only then is what it has of the log of any
        worth.
        """
        return self.messages is None and self.chunks_confirmed == self.chunks_sent

    def is_awaited(self, last: int) -> bool:
        """Whether it has not confirmed everything up to `last`."""
        return self.confirmed < max(last, self.through) or not self.is_whole


@dataclass(slots=True)
class Leaving:
    """A member that is to be dropped."""

    why: str
    then: Callable[[], None]
    """What follows when it is."""
    since: int


class Primary:
    """The role of a primary, for one epoch."""

    def __init__(
        self,
        port: Port,
        log: Log,
        settings: Settings,
        in_sync: InSyncSet,
        in_force: Callable[[InSyncSet], None],
    ) -> None:
        self.port = port
        self.log = log
        self._in_force = in_force
        """Has a set saved, before anything is done by it."""
        self.in_sync = in_sync
        self.version = in_sync.version
        """The last version that was given to a set of this epoch."""
        self.system_id = in_sync.members[0]
        self.window = settings.ha_flow_bytes or WINDOW
        self.catch_up_window = settings.ha_flow_bytes or CATCH_UP_WINDOW
        self.backups: dict[str, RemoteBackup] = {}
        self.required: list[str] = [
            member for member in in_sync.members if member != self.system_id
        ]
        """System ids whose confirmation every commit needs, connected or not.

        Never less than the members of the set in force, so that each of them has every committed
        record (S1); more, while a backup is about to enter the set.
        """
        self.expected: dict[str, int] = {}
        """Members that have not caught up since the promotion -> when to give up on them unless
        they are connected; 0 if we have.
        """
        self.leaving: dict[str, Leaving] = {}
        """Members of the set that are to be dropped."""
        self.set_sequence = 0
        """The sequence of the record that tells the set in force."""
        self.is_proposing = False
        """Whether a smaller set is on its way to be recorded.

        Only one change at a time (S2): of two that cross, the one that comes into force last could
        be a set that no majority has recorded, and a candidate would be told of another one.
        """
        self.committed_deadline = 0
        self.gathering = Gathering(log, port)
        self.min_in_sync = settings.ha_min_in_sync
        self.patience = max(settings.ha_backup_timeout, LEAST_PATIENCE)
        self.short_since = 0
        """Since when the set has too few members for a commit; 0 if it has enough."""
        self.disk_since = 0
        """Since when our own disk is behind; 0 if it is not."""

    # -- membership -------------------------------------------------------------------------------

    def expect(self, deadline: int) -> None:
        """Wait for all required backups, until `deadline` for those that do not even connect."""
        self.expected = dict.fromkeys(self.required, deadline)

    def subscribe(
        self,
        connection_id: int,
        system_id: str,
        name: str,
        request: Subscribe,
        features: frozenset[str] = frozenset(),
    ) -> bool:
        """Begin to send the log to a backup, which knows `features`; False if it is in the set and
        needs a snapshot: it must leave the set first.
        """
        log = self.log
        self._replace(system_id)
        backup = RemoteBackup(connection_id, system_id, name)
        point = self._resume_point(request)
        # A member with nothing gets no difference, though the whole log could be sent as one: half
        # way it would tell how far its log goes, and a member whose log goes somewhere is taken to
        # have every durable message (S4). In the middle of a snapshot it tells that it has nothing.
        has_lost_all = point == 0 and log.committed > 0 and system_id in self.required
        snapshot = point < 0 or has_lost_all
        if snapshot:
            # A member that needs a snapshot has lost what it confirmed, and nothing more is
            # committed until it has all of it again. So it leaves the set first, and the others go
            # on meanwhile (S2). For an expected backup everything waits in any case.
            if system_id in self.required and system_id not in self.expected:
                return False
            log.seal()
            point = log.last
            backup.objects, backup.messages = self.port.snapshot(point)
        backup.cursor = point + 1
        # `confirmed` begins at 0 with each link: the backup may have been started again, and have
        # lost what it confirmed before (S6).
        backup.required = system_id in self.required
        self.backups[system_id] = backup
        set_ = self.in_sync
        history = log.history if snapshot else []
        begin = Begin(
            log.epoch_of(point),
            point,
            log.end,
            snapshot,
            history,
            set_.epoch,
            set_.version,
            set_.members,
            # The base takes no message with a field that it does not know. Who knows of the feature
            # has to hear it now: the first backups of a cluster come before it is enabled.
            max(self.port.time, 0) if QUEUE_KINDS in features else 0,
        )
        self.port.send(connection_id, encode(begin))
        how = "a snapshot" if snapshot else f"the log from {point + 1}"
        kind = (
            "Known backup reconnection" if system_id in self.expected else "New backup connection"
        )
        self.port.announce(
            "info", f"{kind}: {name}, catching up with {how}", backup=name, snapshot=snapshot
        )
        return True

    def _replace(self, system_id: str) -> None:
        """Give up the link of a backup that subscribes again."""
        old = self.backups.pop(system_id, None)
        if old is not None:
            self.port.announce(
                "error", f"backup {old.name} subscribed again before its old link closed"
            )
            self.port.hang_up(old.connection_id)

    def _resume_point(self, request: Subscribe) -> int:
        """Return the last sequence that both have, or -1 if only a snapshot will do."""
        log = self.log
        for epoch, sequence in (
            (request.epoch, request.sequence),
            (request.applied_epoch, request.applied),
        ):
            point = log.common_point(epoch, sequence)
            # What it has applied it cannot take back, and what we no longer keep we cannot send.
            if point >= request.applied and point + 1 >= log.start:
                return point
        return -1

    def lost(self, connection_id: int) -> RemoteBackup | None:
        """A link closed: forget the backup and its confirmations; return it if it was required."""
        for system_id, backup in self.backups.items():
            if backup.connection_id == connection_id:
                # It stays required. A lost link does not prove that it is dead: it may be promoted
                # elsewhere, so nothing is committed without it until a set without it is recorded
                # (S1, S2).
                del self.backups[system_id]
                self.port.announce(
                    "warning", f"Disconnected from backup {backup.name}", event_code=BACKUP_LOST
                )
                return backup if system_id in self.required else None
        return None

    def leave(self, system_id: str, why: str, then: Callable[[], None]) -> bool:
        """Note that a required backup is to go; True if a smaller set is to be proposed for that,
        and none is at present.
        """
        if system_id not in self.in_sync.members:
            # It was about to enter the set, and no recorded set names it: no consent is needed.
            if system_id in self.required:
                self.required.remove(system_id)
            then()
            return False
        self.leaving[system_id] = Leaving(why, then, self.port.now)
        return not self.is_proposing

    def propose(self) -> InSyncSet:
        """Return the set without those who are leaving, under a version that is used up whether or
        not it comes into force.

        A member that came back with its content meanwhile does not leave.
        """
        self.is_proposing = True
        # A version that was proposed once may be recorded by a part of the others, even if the
        # proposal came to nothing. Used for another set, it would name two (S2).
        self.leaving = {
            member: going for member, going in self.leaving.items() if member not in self.backups
        }
        self.version += 1
        return InSyncSet(
            self.in_sync.epoch,
            self.version,
            tuple(member for member in self.in_sync.members if member not in self.leaving),
        )

    def is_back(self, system_id: str) -> bool:
        """Whether a required backup is connected and holds nothing back."""
        backup = self.backups.get(system_id)
        return backup is not None and backup.is_whole and backup.confirmed >= self.log.last

    @property
    def all_know_set(self) -> bool:
        """Whether every other member has the record that tells the set in force, and so knows that
        it may be promoted.
        """
        members = (
            self.backups.get(member) for member in self.in_sync.members if member != self.system_id
        )
        return all(
            backup is not None and backup.confirmed >= self.set_sequence for backup in members
        )

    def commit(self, set_: InSyncSet) -> list[Callable[[], None]]:
        """Put a proposed set in force, which is recorded by now; return what was to be done then.

        From here on those who left are not waited for (S2): only now may their confirmation be
        missing from a commit.
        """
        self.is_proposing = False
        todo = []
        for system_id in [member for member in self.in_sync.members if member not in set_.members]:
            leaving = self.leaving.pop(system_id)
            todo.append(leaving.then)
            self.port.announce(
                "warning",
                f"No longer in sync: {leaving.why}",
                event_code=OUT_OF_SYNC,
                backup=system_id,
            )
            self.expected.pop(system_id, None)
            self.required.remove(system_id)
            backup = self.backups.get(system_id)
            if (
                backup is not None
            ):  # it came back while the set was on its way to be recorded: it joins anew
                backup.required = backup.is_ready = False
                backup.join_point = 0
        if todo:
            self._put_in_force(set_)
        return todo

    @property
    def next_deadline(self) -> int:
        """When the news of the commit point, departures that gather, or a backup that does not come
        or does not confirm, are due; 0 for never.
        """
        due = [
            deadline
            for member, deadline in self.expected.items()
            if deadline and member not in self.backups
        ]
        due += [backup.since + self.patience for backup in self.backups.values() if backup.since]
        due += [self.committed_deadline, self.gathering.until]
        return min([deadline for deadline in due if deadline], default=0)

    def overdue(self, now: int) -> list[str]:
        """Return, once, the expected backups that have neither connected nor will be waited for any
        longer.
        """
        late = [
            member
            for member, deadline in self.expected.items()
            if 0 < deadline <= now and member not in self.backups
        ]
        late = [member for member in late if member not in self.leaving]
        self.expected.update(dict.fromkeys(late, 0))
        return late

    def give_up(self, now: int) -> list[RemoteBackup]:
        """Forget, and return, the required backups that are connected and have given nothing that
        is awaited for too long.

        The link of each is closed, for it to join anew: a backup whose disk hangs must not keep a
        cluster from working. Each is given a last chance first: if it was we who were stopped, what
        it said meanwhile is still to be heard.
        """
        if self.port.saving_since:
            return []
        overdue = [
            backup
            for backup in self.backups.values()
            if backup.since and now >= backup.since + self.patience
        ]
        stalled = [backup for backup in overdue if backup.is_doubted]
        for backup in overdue:
            if not backup.is_doubted:
                backup.is_doubted = True
                backup.since = now + LAST_CHANCE - self.patience
        for backup in stalled:
            del self.backups[backup.system_id]
            self.port.hang_up(backup.connection_id)
        return stalled

    # -- the log ----------------------------------------------------------------------------------

    def confirm(self, connection_id: int, message: Confirm) -> None:
        """A backup has the log up to a point, on this link."""
        for backup in self.backups.values():
            if backup.connection_id == connection_id:
                break
        else:
            return
        # A backup that has nothing of this epoch yet confirms with an earlier one. That counts up
        # to the end of our log; beyond it, it is a record of another history.
        if message.epoch != self.in_sync.epoch and message.sequence > self.log.last:
            return
        # Only progress counts as a sign of life, not the confirmation itself: a backup whose disk
        # hangs goes on confirming what it had before.
        if backup.since and (
            message.sequence > backup.reported or message.chunks > backup.chunks_confirmed
        ):
            backup.since = self.port.now
            backup.is_doubted = False
        backup.reported = message.sequence
        backup.chunks_confirmed = message.chunks
        while len(backup.chunk_sizes) > max(backup.chunks_sent - message.chunks, 0):
            backup.chunk_sizes.popleft()
        flight = backup.flight
        while flight and flight[0][0] <= message.sequence:
            _, size, sent = flight.popleft()
            backup.flight_bytes -= size
            backup.confirmed_bytes += size
            backup.took = self.port.now - sent
        # Until it has all that its snapshot may show effects of, it could not start again with what
        # it has.
        if (
            message.sequence > backup.confirmed
            and backup.is_whole
            and message.sequence >= backup.through
        ):
            backup.confirmed = message.sequence
        self._advance()

    def flush(self, now: int) -> None:
        """End of a turn: seal what was appended and send what can be sent."""
        self._send(now)
        if self._join():
            self._send(now)

    def look(self, now: int) -> None:
        """Have the news of the commit point told where no batch takes it along, and note what is
        awaited: neither needs to be exact to a millisecond.
        """
        self._plan_committed(now)
        self._note_waiting(now)

    def send_rest(self) -> None:
        """Seal and send what gathers, for no later turn would: this broker stops, or another one is
        to be primary.
        """
        if self.log.has_pending:
            self.log.seal()
            self._send(self.port.now)

    def _note_waiting(self, now: int) -> None:
        """Note since when something is awaited, and from whom."""
        log = self.log
        last = log.last
        for backup in self.backups.values():
            if not backup.required or not backup.is_awaited(last):
                backup.since = 0
                backup.is_doubted = False
            elif not backup.since or self.port.saving_since:
                backup.since = now  # While our state file is written nothing leaves for it.
        if log.durable_to >= last:
            self.disk_since = 0
        elif not self.disk_since:
            self.disk_since = now
        members = len(self.in_sync.members)
        if members < self.min_in_sync and not self.short_since:
            self.short_since = now
            self.port.event_log.limit("ha-min-in-sync", "accepting nothing")
            self.port.announce(
                "warning",
                f"Nothing is acknowledged: {members} in sync, and ha-min-in-sync is "
                f"{self.min_in_sync}",
                event_code=NOTHING_ACKNOWLEDGED,
                in_sync=members,
            )
        elif members >= self.min_in_sync and self.short_since:
            self.short_since = 0
            self.port.announce(
                "notice",
                f"{members} in sync, as ha-min-in-sync wants: acknowledging again",
                event_code=ACKNOWLEDGING,
                in_sync=members,
            )

    def _send(self, now: int) -> None:
        log = self.log
        through = self._ripe(now)
        if through and self._may_seal():
            log.seal(through)
        self._advance()
        # Batches stay in the log while a required backup has still to get them: dropped there, they
        # would cost it a snapshot. A backup that catches up is not waited for so.
        needed = 0
        for backup in self.backups.values():
            if backup.cursor <= log.last or not backup.is_ready:
                self._stream(backup)
            if backup.required and (not needed or backup.cursor < needed):
                needed = backup.cursor
        log.retain_from = needed

    def _join(self) -> bool:
        """Take backups that have everything into the set; True if that changed it. While a member
        is leaving, joining waits.
        """
        joining = [b for b in self.backups.values() if b.join_point and b.confirmed >= b.join_point]
        if not joining or self.is_proposing:
            return False
        for backup in joining:
            backup.join_point = 0
            backup.is_ready = True
            expected = self.expected.pop(backup.system_id, None) is not None
            self.port.announce(
                "notice",
                f"{'Recovering' if expected else 'New'} backup is ready: {backup.name}",
                event_code=BACKUP_READY,
                backup=backup.name,
            )
        # A larger set needs no consent (S2): its new member has confirmed everything, and a
        # broker that knows only the smaller set would promote a member of both. In the log it
        # stands behind all that the new member had to confirm, so a broker with the record has the
        # content.
        members = dict.fromkeys([*self.in_sync.members, *(backup.system_id for backup in joining)])
        # Appended even if the set is the same: to the backups this record is the word that they are
        # ready.
        self.version += 1
        self._put_in_force(InSyncSet(self.in_sync.epoch, self.version, tuple(members)))
        return True

    def _put_in_force(self, set_: InSyncSet) -> None:
        self._in_force(set_)
        self.in_sync = set_
        self.set_sequence = self.log.append(InSyncChanged(set_.version, set_.members))

    def _ripe(self, now: int) -> int:
        """Return up to where what is appended is to be sealed, 0 for nothing: what is better sent a
        moment later waits (`gathering.py`).
        """
        port, gathering = self.port, self.gathering
        log = self.log
        if not log.has_pending:
            gathering.over()
            return 0
        if log.has_more or log.pending_bytes >= LARGE_BATCH or port.is_hurried:
            gathering.over()
            return max(log.end, log.last + 1)
        took = 0
        for backup in self.backups.values():
            if backup.took > took and backup.required:
                took = backup.took
        return gathering.ripe(now, took)

    def _may_seal(self) -> bool:
        """Whether some required backup could take a batch now; if none can, more records gather for
        the next one, up to a point.
        """
        if self.log.pending_bytes >= LARGE_BATCH:
            return True
        connected = False
        for backup in self.backups.values():
            if backup.required:
                connected = True
                if len(backup.flight) < BATCHES_IN_FLIGHT and (
                    backup.flight_bytes < BYTES_IN_FLIGHT
                ):
                    return True
        # Without a required backup to send to there is nothing to gather for: the own disk can
        # begin.
        return not connected

    def _stream(self, backup: RemoteBackup) -> None:
        port = self.port
        log = self.log
        if backup.cursor < log.start and backup.cursor <= log.last:
            self.port.announce(
                "warning",
                f"backup {backup.name} is too far behind for the log that is kept; it starts over",
                event_code=STARTS_OVER,
            )
            port.hang_up(backup.connection_id)
            return
        if backup.objects is not None:
            # New batches wait until the queues that they are about are on the other side.
            if not self._send_chunks(backup, backup.objects):
                return
            backup.objects = None
        window = self.window if backup.required else self.catch_up_window
        if backup.cursor <= log.last and backup.flight_bytes < window:
            credit = port.credit(backup.connection_id)
            if not backup.required:
                most = 1 + window // BATCH_BYTES - len(backup.flight)
                credit = min(credit, BATCHES_A_TURN, most)
            for batch in log.batches(backup.cursor):
                if credit <= 0 or backup.flight_bytes >= window:
                    break
                port.send(backup.connection_id, encode_logged(batch, log.committed))
                size = batch.size
                backup.flight.append((batch.last, size, port.now))
                backup.flight_bytes += size
                backup.cursor = batch.last + 1
                backup.told_committed = log.committed
                credit -= 1
        if backup.messages is not None:
            if self._send_chunks(backup, backup.messages):
                backup.messages = None
                backup.through = log.end
                backup.chunks_sent += 1
                backup.chunk_sizes.append(0)
                port.send(backup.connection_id, encode(SnapshotEnd(backup.chunks_sent, log.end)))
        elif (
            not backup.is_ready
            and not backup.join_point
            and backup.cursor > max(log.last, backup.through)
        ):
            # Everything was sent to it. To require its confirmation now would let all publishers
            # wait for all that is on its way, so first it confirms what was sent until here.
            if not backup.settle_point:
                backup.settle_point = max(log.last, backup.through)
            if not backup.required and backup.confirmed < backup.settle_point:
                return
            # Only what came since is on its way: from here on nothing is acknowledged without it.
            # Required before it is a member: were it the other way round, a promotion could find a
            # member that lacks what was acknowledged in between (S1). 0 stands for no join point.
            backup.join_point = max(log.last, 1)
            if not backup.required:
                backup.required = True
                self.required.append(backup.system_id)

    def _send_chunks(self, backup: RemoteBackup, chunks: Iterator[bytes]) -> bool:
        """Send what may be sent now; True when that was the last."""
        sizes = backup.chunk_sizes
        while (
            len(sizes) < CHUNKS_IN_FLIGHT
            and sum(sizes) < self.catch_up_window
            and self.port.credit(backup.connection_id) > 0
        ):
            data = next(chunks, None)
            if data is None:
                return True
            backup.chunks_sent += 1
            sizes.append(len(data))
            self.port.send(backup.connection_id, encode(Chunk(backup.chunks_sent, data)))
        return False

    def _advance(self) -> None:
        """Commit what every required backup has confirmed and our own disk has (S1)."""
        # Below ha-min-in-sync nothing more is committed, but what was, stays so (S7). The set is
        # counted and not the connections: a member counts until a smaller set is recorded, and
        # until then a commit needs its confirmation anyway.
        if len(self.in_sync.members) < self.min_in_sync:
            return
        log = self.log
        # Our own disk counts as a member's: without a data-dir it is the end of the log.
        committed = log.durable_to
        for system_id in self.required:
            backup = self.backups.get(system_id)
            # A required backup that is not connected has confirmed nothing: all waits until it is
            # back, or dropped (S2).
            confirmed = backup.confirmed if backup is not None else 0
            if confirmed < committed:
                committed = confirmed
        if committed > log.committed:
            log.committed = committed
            self.port.on_committed(committed)

    def _plan_committed(self, now: int) -> None:
        """Tell backups what is committed, soon, if no batch takes the news along."""
        # No commit depends on this news. But a backup applies only what it knows to be committed:
        # without it, an idle cluster would leave the last records unapplied on every backup.
        # The latest is enough, so one that gives no credit is told when it does.
        committed = self.log.committed
        due = [
            backup
            for backup in self.backups.values()
            if backup.told_committed < committed and self.port.credit(backup.connection_id) > 0
        ]
        if not due:
            self.committed_deadline = 0
        elif not self.committed_deadline:
            self.committed_deadline = now + COMMITTED_DELAY
        elif now >= self.committed_deadline:
            self.committed_deadline = 0
            for backup in due:
                backup.told_committed = committed
                self.port.send(backup.connection_id, encode(Committed(committed)))
