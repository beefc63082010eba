"""Following: what a backup makes of the words of the primary it follows.

The log and the broker model are `backup.py`'s; here is what those words say of the backup itself: from where the log goes
on, which set is in force, and when it is ready or no longer so. What cannot be read ends the link, and all starts over.
Must not know what a batch does to queues. Qpid: `Backup.h`, `HaBroker::setMembership`.
"""

from __future__ import annotations

from typing import Protocol

from qpidha.ha.backup import Backup
from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.port import Log, Port
from qpidha.ha.status import BrokerStatus
from qpidha.ha.wire import Begin, Chunk, Logged, Safe, SnapshotEnd
from qpidha.words.errors import ProtocolViolation
from qpidha.words.records import EpochStarted, InSyncChanged, Record


class Follower(Protocol):
    """The broker that may be a backup."""

    port: Port
    log: Log
    saved: SavedState
    state: BrokerStatus
    is_live: bool
    system_id: str
    backup: Backup | None

    def change(self, state: BrokerStatus) -> None:
        """Be in another state from now on."""

    def set_in_sync(self, set_: InSyncSet) -> None:
        """Remember the newest set, and let the others know."""

    def tell_callers(self) -> None:
        """Tell all who are connected to us how we are."""


class Following:
    """What comes from the primary that the backup role follows."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower

    def heard(self, connection_id: int, message: Logged | Safe | Begin | Chunk | SnapshotEnd) -> None:
        """A message came on a replication connection; it counts if that is to the primary, and meant for this subscription."""
        backup = self.follower.backup
        if backup is None or backup.primary is None or backup.primary.connection_id != connection_id:
            return
        if backup.began is isinstance(message, Begin):
            return
        try:
            self._take(backup, connection_id, message)
        except ProtocolViolation as error:
            text = f"cannot read what the primary sent: {error.text}; fetching everything anew"
            self.follower.port.announce("error", text, condition=error.condition)
            backup.primary = None
            self.spoiled(backup)
            self.follower.port.hang_up(connection_id)

    def spoiled(self, backup: Backup) -> None:
        """The broker model may have a batch by half: fetch everything anew."""
        follower = self.follower
        backup.spoil()
        follower.is_live = False
        if follower.state is BrokerStatus.READY:
            follower.change(BrokerStatus.CATCHUP)
        else:
            follower.tell_callers()

    def _take(self, backup: Backup, connection_id: int, message: Logged | Safe | Begin | Chunk | SnapshotEnd) -> None:
        match message:
            case Logged():
                self._logged(backup, connection_id, message)
            case Safe(sequence):
                backup.safe(sequence)
            case Begin():
                self._begin(backup, message)
            case Chunk():
                backup.chunk(message)
            case SnapshotEnd():
                backup.snapshot_end(message)

    def _begin(self, backup: Backup, message: Begin) -> None:
        follower = self.follower
        set_ = InSyncSet(message.in_sync_epoch, message.in_sync_version, message.in_sync_members)
        backup.begin(message)
        is_behind = message.snapshot or follower.system_id not in message.in_sync_members
        # A demoted primary whose log goes on from where it is still has all that it ever accepted.
        follower.is_live = follower.is_live and not is_behind
        if follower.state is BrokerStatus.JOINING or (follower.state is BrokerStatus.READY and is_behind):
            follower.change(BrokerStatus.CATCHUP)
        follower.set_in_sync(set_)

    def _logged(self, backup: Backup, connection_id: int, message: Logged) -> None:
        follower, batch = self.follower, message.batch
        promised, log = follower.saved.promised, follower.log
        if batch.epoch < promised and batch.first > backup.news_after:
            follower.port.announce("warning", f"refused a batch of epoch {batch.epoch}: epoch {promised} is promised")
            follower.port.hang_up(connection_id)
            return
        if batch.first != log.last + 1 or batch.epoch < log.epoch:
            follower.port.announce("error", f"refused a batch that begins with {batch.first}: the log ends with {log.last}")
            follower.port.hang_up(connection_id)
            return
        for sequence, record in backup.logged(message):
            is_news = sequence > backup.news_after
            self._ha_record(batch.epoch, record, is_news=is_news, is_whole=backup.is_whole(sequence))

    def _ha_record(self, epoch: int, record: Record, *, is_news: bool, is_whole: bool) -> None:
        follower = self.follower
        if isinstance(record, EpochStarted):
            follower.set_in_sync(InSyncSet(epoch, 0, record.members))
        elif isinstance(record, InSyncChanged):
            follower.set_in_sync(InSyncSet(epoch, record.version, record.members))
            if not is_news:
                return
            if follower.system_id in record.members and follower.state is BrokerStatus.CATCHUP and is_whole:
                follower.is_live = True
                follower.change(BrokerStatus.READY)
                follower.port.announce("notice", "Backup is ready")
            elif follower.system_id not in record.members and follower.state is BrokerStatus.READY:
                follower.is_live = False
                follower.change(BrokerStatus.CATCHUP)
