"""The HA machine of one broker: its state, its role, and every change of them.

It is told what happens (links to other brokers open and close, messages come, time passes, a manager
asks for promotion) and acts through its `Port`. A broker is a backup, a primary, or stands alone; what a
role does is in `backup.py` and `primary.py`, how the others are asked is in `peers.py`.

A new epoch begins with the in-sync set as it was; its other members are the expected backups, and nothing is
acknowledged before each has caught up or been dropped. How a broker comes to begin one is in `promotion.py`.

Must not know queues, clients or sockets. Qpid: `HaBroker.h`, `Role.h`; DESIGN sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qpidha.ha.backup import Backup
from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.peers import ATTEMPTS, Consultation, Peer, Peers, PeerState
from qpidha.ha.port import Log, Port, Reply
from qpidha.ha.primary import Primary
from qpidha.ha.promotion import Promotion
from qpidha.ha.status import BrokerStatus, check_change
from qpidha.ha.wire import Answer, Ask, Begin, Chunk, Confirm, Logged, Safe, SnapshotEnd, Spoken, Status, Subscribe, encode
from qpidha.words.errors import NotAllowed, ProtocolViolation
from qpidha.words.records import EpochStarted, InSyncChanged, Record
from qpidha.words.settings import Settings


def _nothing() -> None:
    pass


@dataclass(slots=True)
class Caller:
    """A broker that opened a replication connection to us."""

    system_id: str
    name: str


class Cluster:
    """The HA machine."""

    def __init__(self, port: Port, log: Log, settings: Settings, *, system_id: str, name: str, address: str, saved: SavedState) -> None:
        self.port = port
        self.log = log
        self.settings = settings
        self.system_id = system_id
        self.name = name
        self.address = address
        self.saved = saved
        self.state = BrokerStatus.STANDALONE
        self.since = 0
        self.is_live = False
        """Whether this broker, since it started, has everything that it ever confirmed or accepted as a member of the in-sync set."""
        self.peers = Peers(port, settings, system_id)
        self.callers: dict[int, Caller] = {}
        self.backup: Backup | None = None
        self.primary: Primary | None = None
        self._promotion: Promotion | None = None
        self._granted = (0, "")
        """The last promise given to another: (epoch, system id)."""

    def start(self) -> None:
        """Join the cluster."""
        self._change(BrokerStatus.JOINING)
        self.backup = Backup(self.port, self.log, applied=0)
        self.peers.tick(self.port.now)

    # -- what others read -------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int:
        """When to tick next, 0 for never."""
        deadlines = [self.peers.next_deadline()]
        if self.primary is not None:
            deadlines.append(self.primary.next_deadline)
        return min((deadline for deadline in deadlines if deadline), default=0)

    def current_primary(self) -> Peer | None:
        """Return the primary that this backup knows of."""
        best: Peer | None = None
        for peer in self.peers.up():
            assert peer.status is not None
            if BrokerStatus(peer.status.state).is_primary and (
                best is None or best.status is None or peer.status.epoch > best.status.epoch
            ):
                best = peer
        return best

    def status(self) -> Status:
        """Return how this broker is."""
        set_ = self.saved.in_sync
        return Status(
            self.system_id, self.name, self.address, self.state.value, self.log.epoch, self.saved.promised, self.log.last,
            set_.epoch, set_.version, set_.members, self.is_live,
        )  # fmt: skip

    def members(self) -> list[dict[str, object]]:
        """Return what is known of every broker, ourselves first."""
        confirmed = {}
        if self.primary is not None:
            confirmed = {backup.system_id: backup.confirmed for backup in self.primary.backups.values()}
        rows: list[tuple[Status | None, str, bool]] = [(self.status(), self.address, True)]
        rows += [(peer.known, peer.name, peer.state is PeerState.UP) for peer in self.peers.others()]
        result: list[dict[str, object]] = []
        for status, address, connected in rows:
            row: dict[str, object] = {"system_id": "", "name": "", "address": address, "state": "unknown", "epoch": 0, "sequence": 0}
            if status is not None:
                sequence = confirmed.get(status.system_id, status.sequence)
                row |= {
                    "system_id": status.system_id,
                    "name": status.name,
                    "state": status.state,
                    "epoch": status.epoch,
                    "sequence": sequence,
                }
            row["connected"] = connected
            result.append(row)
        return result

    # -- connections to others --------------------------------------------------------------------

    def opened(self, connection_id: int) -> None:
        """A connection that we dialled can carry messages both ways."""
        peer = self.peers.by_connection(connection_id)
        if peer is not None:
            self.peers.opened(peer)

    def called(self, connection_id: int, system_id: str, name: str) -> None:
        """Another broker opened a replication connection to us."""
        self.callers[connection_id] = Caller(system_id, name)
        self.port.say(connection_id, encode(self.status()))

    def lost(self, connection_id: int, reason: str, *, reached: bool) -> None:
        """A connection to or from another broker is gone; `reached` is whether there ever was somebody at the other end."""
        if self.callers.pop(connection_id, None) is not None:
            if self.primary is not None:
                gone = self.primary.lost(connection_id)
                if gone is not None:
                    self._drop(gone.system_id, f"{gone.name} lost its connection")
            return
        peer = self.peers.by_connection(connection_id)
        if peer is None:
            return
        if self.backup is not None and self.backup.primary is peer:
            self.backup.primary = None
            self.port.announce("warning", f"Disconnected from primary {peer.name}: {reason}", primary=peer.name)
        self.peers.lost(peer, reason, reached=reached)

    def heard(self, connection_id: int, message: Spoken) -> None:
        """A message came on a replication connection."""
        match message:
            case Logged():
                self._logged(connection_id, message)
            case Confirm():
                if self.primary is not None:
                    self.primary.confirm(connection_id, message)
                    self._note_set()
            case Safe(sequence):
                backup = self._follows(connection_id)
                if backup is not None:
                    backup.safe(sequence)
            case Begin():
                self._begin(connection_id, message)
            case Chunk():
                backup = self._follows(connection_id)
                if backup is not None:
                    backup.chunk(message)
            case SnapshotEnd():
                backup = self._follows(connection_id)
                if backup is not None:
                    backup.snapshot_end(message)
            case Status():
                self._peer_status(connection_id, message)
            case Answer():
                peer = self.peers.by_connection(connection_id)
                if peer is not None:
                    self.peers.answered(peer, message)
            case Ask():
                self._asked(connection_id, message)
            case Subscribe():
                self._subscribed(connection_id, message)

    # -- as a backup ------------------------------------------------------------------------------

    def _peer_status(self, connection_id: int, status: Status) -> None:
        peer = self.peers.by_connection(connection_id)
        if peer is None:
            return
        if not self.peers.status(peer, status):
            if status.address != self.address:
                text = f"{peer.name} has our system id {self.system_id}; was its data directory copied from ours? It cannot be a member"
                self.port.announce("error", text)
            return
        if self.backup is not None and self.backup.primary is peer and not BrokerStatus(status.state).is_primary:
            self.backup.primary = None  # should it be promoted again, it is to be followed anew
        if self.primary is not None and status.promised > self.primary.in_sync.epoch:
            self.step_down(f"{peer.name} has promised epoch {status.promised}, ours is {self.primary.in_sync.epoch}")
        self._follow_newest()

    def _follow_newest(self) -> None:
        backup = self.backup
        peer = self.current_primary()
        if backup is None or peer is None or peer is backup.primary or self._promotion is not None:
            return
        assert peer.status is not None
        if peer.status.epoch < self.saved.promised:
            return  # it has not heard yet that its time is over
        if peer.status.epoch > self.saved.promised:
            self.saved.promised = peer.status.epoch
            self.save()
        backup.follow(peer)

    def _follows(self, connection_id: int, *, began: bool = True) -> Backup | None:
        """Return the backup role if that connection is to the primary it follows, and what comes is meant for this subscription."""
        backup = self.backup
        if backup is None or backup.primary is None or backup.primary.connection_id != connection_id or backup.began is not began:
            return None
        return backup

    def _begin(self, connection_id: int, message: Begin) -> None:
        backup = self._follows(connection_id, began=False)
        if backup is None:
            return
        set_ = InSyncSet(message.in_sync_epoch, message.in_sync_version, message.in_sync_members)
        backup.begin(message)
        is_behind = message.snapshot or self.system_id not in message.in_sync_members
        if self.state is BrokerStatus.JOINING or (self.state is BrokerStatus.READY and is_behind):
            self.is_live = False
            self._change(BrokerStatus.CATCHUP)
        self._set_in_sync(set_)

    def _logged(self, connection_id: int, message: Logged) -> None:
        backup = self._follows(connection_id)
        if backup is None:
            return
        if message.batch.epoch < self.saved.promised and message.batch.first > backup.news_after:
            self.port.announce("warning", f"refused a batch of epoch {message.batch.epoch}: epoch {self.saved.promised} is promised")
            self.port.hang_up(connection_id)
            return
        if message.batch.first != self.log.last + 1 or message.batch.epoch < self.log.epoch:
            self.port.announce("error", f"refused a batch that begins with {message.batch.first}: the log ends with {self.log.last}")
            self.port.hang_up(connection_id)
            return
        for sequence, record in backup.logged(message):
            is_news = sequence > backup.news_after
            self._ha_record(message.batch.epoch, record, is_news=is_news, is_whole=backup.is_whole(sequence))

    def _ha_record(self, epoch: int, record: Record, *, is_news: bool, is_whole: bool) -> None:
        if isinstance(record, EpochStarted):
            self._set_in_sync(InSyncSet(epoch, 0, record.members))
        elif isinstance(record, InSyncChanged):
            self._set_in_sync(InSyncSet(epoch, record.version, record.members))
            if not is_news:
                return
            if self.system_id in record.members and self.state is BrokerStatus.CATCHUP and is_whole:
                self.is_live = True
                self._change(BrokerStatus.READY)
                self.port.announce("notice", "Backup is ready")
            elif self.system_id not in record.members and self.state is BrokerStatus.READY:
                self.is_live = False
                self._change(BrokerStatus.CATCHUP)

    def _set_in_sync(self, set_: InSyncSet) -> None:
        if set_ > self.saved.in_sync:
            self.saved.in_sync = set_
            self.save()
            self._tell_callers()

    # -- promotion --------------------------------------------------------------------------------

    def promote(self, reply: Reply) -> None:
        """Become the primary, or say why not. The reply comes when the broker is recovering or active."""
        if self.state is BrokerStatus.STANDALONE or self.state.is_primary:
            self.port.announce("info", "Ignoring promotion, already primary")
            reply(None)
        elif self._promotion is not None:
            reply(NotAllowed("a promotion of this broker is under way", hint="ask for its status"))
        elif self.state is BrokerStatus.CATCHUP:
            reply(NotAllowed("Still catching up, cannot be promoted.", hint="promote a broker whose status is ready"))
        else:
            self._promotion = Promotion(self, reply, self._become_primary, self._promotion_over)
            self._promotion.start()

    def _promotion_over(self) -> None:
        self._promotion = None
        self._follow_newest()

    def _become_primary(self, epoch: int, set_: InSyncSet) -> None:
        self._promotion = None
        backup = self.backup
        assert backup is not None
        backup.finish()
        before = set_.members
        members = (self.system_id, *(member for member in before if member != self.system_id))
        self.log.start_epoch(epoch)
        self.log.append(EpochStarted(self.system_id, members))
        self.backup = None
        self.primary = Primary(self.port, self.log, self.settings, InSyncSet(epoch, 0, members))
        if before and not self.is_live:
            self.port.announce("warning", "promoted without content: what this cluster had accepted before all its brokers stopped is gone")
        self.is_live = True
        self._note_set()
        self._change(BrokerStatus.RECOVERING)
        self.port.announce("notice", f"Promoted to primary, epoch {epoch}", epoch=epoch)
        self.primary.expect(self.port.now + self.settings.ha_backup_timeout)
        # The old primary is the first of the set as it was. It was asked a moment ago and is either gone or
        # has promised this epoch, so the new one need not wait for it as it does for the other members.
        if before and before[0] != self.system_id:
            self._drop(before[0], f"{self.peers.address_of(before[0])} was the primary before")
        if self.primary.expected:
            names = ", ".join(self.peers.address_of(member) for member in self.primary.expected)
            self.port.announce("notice", f"Recovering backups: {names}")
        self._note_set()

    # -- as a primary -----------------------------------------------------------------------------

    def _subscribed(self, connection_id: int, request: Subscribe) -> None:
        caller = self.callers.get(connection_id)
        if caller is None:
            raise ProtocolViolation("a subscription on a connection that is not from a broker")
        if self.primary is None:
            self.port.say(connection_id, encode(self.status()))  # it has not heard yet that we are no primary
            return
        if self.primary.subscribe(connection_id, caller.system_id, caller.name, request):
            self._note_set()
        else:
            self._drop_restarted(connection_id, caller, request)

    def _drop(self, system_id: str, why: str, then: Callable[[], None] = _nothing) -> None:
        """Go on without a required backup, once the others agree; `then` is called when that is so.

        They are told the set without it, and record it unless they have promised a higher epoch: then it was we who
        were gone. Strictly, that takes a majority, and until there is one what waits for that backup goes on waiting
        (S2). Else we go on when the others have answered or nobody listens at their addresses, and ask again a
        few times while so many say nothing that a majority may be elsewhere. Only one change is on its way at a time.
        """
        primary = self.primary
        if primary is None:
            return
        if primary.leave(system_id, why, then):
            self._propose(primary, ATTEMPTS)

    def _propose(self, primary: Primary, attempts: int) -> None:
        set_ = primary.propose()

        def done(consultation: Consultation) -> None:
            if primary is not self.primary:
                return
            if not self.peers.hears_majority(consultation) and (self.peers.strict or attempts > 1):
                self._propose(primary, attempts - 1)
                return
            self._set_in_sync(set_)
            for then in primary.commit(set_):
                then()
            if primary.leaving:
                self._propose(primary, ATTEMPTS)
            self._note_set()

        question = Ask(epoch=set_.epoch, candidate=self.system_id, version=set_.version, members=set_.members)
        self.peers.consult(done, question, enough=True)

    def _drop_restarted(self, connection_id: int, caller: Caller, request: Subscribe) -> None:
        """A member of the set has come back without its content: it must leave the set before it may come in again."""
        primary = self.primary
        assert primary is not None

        def again() -> None:
            if primary is self.primary and connection_id in self.callers and caller.system_id not in primary.backups:
                self._subscribed(connection_id, request)

        self._drop(caller.system_id, f"{caller.name} came back without its content", again)

    def _note_set(self) -> None:
        """Save the set if the primary changed it, and go active when nobody is expected any more."""
        primary = self.primary
        if primary is None:
            return
        if primary.in_sync > self.saved.in_sync:
            self._set_in_sync(primary.in_sync)
        if self.state is BrokerStatus.RECOVERING and not primary.expected:
            self._change(BrokerStatus.ACTIVE)
            self.port.announce("notice", "All backups recovered.")

    def step_down(self, reason: str) -> None:
        """Be a backup again: clients go, the log stays."""
        self.log.seal()
        self.port.announce("warning", f"stepping down: {reason}", reason=reason)
        self.primary = None
        self.backup = Backup(self.port, self.log, applied=self.log.last)
        self._change(BrokerStatus.JOINING)
        self._follow_newest()

    def demote(self, reply: Reply) -> None:
        """Step down because the cluster manager says so."""
        if self._promotion is not None:
            self._promotion.refuse("demoted by the cluster manager meanwhile", "promote it again if that was not meant")
        if self.primary is not None:
            self.step_down("demoted by the cluster manager")
        reply(None)

    def _asked(self, connection_id: int, question: Ask) -> None:
        saved = self.saved
        granted, reason = True, ""
        if question.version:
            granted = question.epoch >= saved.promised
            if granted:
                saved.promised = question.epoch
                self._set_in_sync(InSyncSet(question.epoch, question.version, question.members))
        elif question.epoch and (question.epoch, question.candidate) != self._granted:  # not asked again by the same
            granted = question.epoch > saved.promised
            if granted:
                self._granted = (question.epoch, question.candidate)
                saved.promised = question.epoch
                self.save()
                if self.primary is not None:
                    self.step_down(f"{self.peers.address_of(question.candidate)} asked for epoch {question.epoch}")
        if not granted:
            reason = f"epoch {saved.promised} is promised already"
        self.port.say(connection_id, encode(self.status()))
        self.port.say(connection_id, encode(Answer(question.nonce, granted, reason)))

    # -- time -------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Time went by."""
        self.peers.tick(now)
        if self.primary is not None and self.state is BrokerStatus.RECOVERING:
            for system_id in self.primary.overdue(now):
                name = self.peers.address_of(system_id)
                self.port.announce("error", f"Recovering backup timed out: {name}")
                self._drop(system_id, f"{name} did not come back within ha-backup-timeout")

    def flush(self, now: int) -> None:
        """End of a turn."""
        if self.primary is not None:
            self.primary.flush(now)
            self._note_set()
        elif self.backup is not None:
            self.backup.flush()

    def save(self) -> None:
        """Make what is in `saved` last."""
        self.port.save(self.saved.encode())

    def announce(self, level: str, text: str) -> None:
        """Say what happened."""
        self.port.announce(level, text)

    def _change(self, state: BrokerStatus) -> None:
        check_change(self.state, state)
        before, self.state = self.state, state
        self.since = self.port.now
        self.port.announce("info", f"Status change: {before.value} -> {state.value}", before=before.value, after=state.value)
        self.port.state_changed(state)
        self._tell_callers()

    def _tell_callers(self) -> None:
        word = encode(self.status())
        for connection_id in self.callers:
            self.port.say(connection_id, word)
