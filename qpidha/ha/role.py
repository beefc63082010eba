"""The HA machine of one broker: its state, its role, and every change of them.

It is told what happens (links to other brokers open and close, messages come, time passes, a manager
asks for promotion) and acts through its `Port`. A broker is a backup, a primary, or stands alone; what a
role does is in `backup.py` and `primary.py`, how the others are asked is in `peers.py`.

A new epoch begins with the in-sync set as it was; its other members are the expected backups, and nothing is
acknowledged before each has caught up or been dropped (`voting.py`). How a broker comes to begin one is in `promotion.py`,
by what rules in `comparison.py`; how a primary makes room for another is in `handover.py`.

Must not know queues, clients or sockets. Qpid: `HaBroker.h`, `Role.h`; DESIGN sections 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from qpidha.ha.backup import Backup
from qpidha.ha.comparison import compare_all
from qpidha.ha.explanation import describe_members, explain
from qpidha.ha.following import Following
from qpidha.ha.handover import Handover, choose
from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.peers import Peer, Peers
from qpidha.ha.port import Log, Port, Reply, Report
from qpidha.ha.primary import Primary
from qpidha.ha.promising import answer
from qpidha.ha.promotion import Election, Promotion, refusal_of_state
from qpidha.ha.promotion_by_store import PromotionByStore
from qpidha.ha.recording import Recorder
from qpidha.ha.status import BrokerStatus, check_change
from qpidha.ha.voting import Voting
from qpidha.ha.wire import (
    Answer,
    Ask,
    Begin,
    Chunk,
    Confirm,
    Logged,
    Safe,
    SnapshotEnd,
    Spoken,
    Status,
    Subscribe,
    TakenOver,
    TakeOver,
    encode,
)
from qpidha.words.errors import NotAllowed, ProtocolViolation, QpidHaError
from qpidha.words.records import EpochStarted
from qpidha.words.settings import Settings


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
        self.recorder = Recorder(port, settings)
        """The manager's store, if that is what records in-sync sets."""
        self.callers: dict[int, Caller] = {}
        self.backup: Backup | None = None
        self.primary: Primary | None = None
        self.voting: Voting | None = None
        """The changes of the set while we are primary."""
        self._following = Following(self)
        self._handover: Handover | None = None
        self._promotion: Promotion | None = None
        self._taking_over_from = ""
        """The system id of a primary that stepped down for us and is about to follow."""
        self.granted = (0, "")
        """The last promise given to another: (epoch, system id)."""

    def start(self) -> None:
        """Join the cluster, with what was recovered from disk: the broker model has the log up to its safe point."""
        self.change(BrokerStatus.JOINING)
        if not self.saved.promised:
            self.save()  # from here on a log of some epoch without a state file means that it was lost
        self.backup = Backup(self.port, self.log, applied=self.log.safe, floor=self.log.floor)
        self.peers.tick(self.port.now)

    # -- what others read -------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int:
        """When to tick next, 0 for never."""
        deadlines = [self.peers.next_deadline(), self.recorder.next_deadline]
        if self.primary is not None:
            deadlines.append(self.primary.next_deadline)
        if self.voting is not None:
            deadlines.append(self.voting.next_deadline)
        if self.handover is not None:
            deadlines.append(self.handover.deadline)
        return min((deadline for deadline in deadlines if deadline), default=0)

    @property
    def may_deliver(self) -> bool:
        """Whether messages may be handed out: not by a primary that is cut off, where the others may have another one by now."""
        if self.primary is None or not self.peers.strict or self.primary.in_sync.members == (self.system_id,):
            return True
        if not self.recorder.is_used:
            return self.hears_majority
        there = [self.system_id, *(peer.status.system_id for peer in self.peers.up() if peer.status is not None)]
        return all(member in there for member in self.primary.in_sync.members)  # each of the others may have become primary

    @property
    def hears_majority(self) -> bool:
        """Whether this broker and those it is connected to are more than half of all."""
        return 2 * (1 + len(self.peers.up())) > 1 + len(self.peers.others())

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
        epoch, last = self.log.epoch, self.log.last
        if self.backup is not None and not self.backup.has_whole_model:
            epoch = last = 0  # half a snapshot is worth nothing, however far its log goes
        return Status(
            self.system_id, self.name, self.address, self.state.value, epoch, self.saved.promised, last,
            set_.epoch, set_.version, set_.members, self.is_live, self.settings.ha_recorder,
        )  # fmt: skip

    def members(self) -> list[dict[str, object]]:
        """Return what is known of every broker, ourselves first."""
        return describe_members(self)

    def explain(self) -> list[dict[str, object]]:
        """Return what is waited for at this moment: why nothing is acknowledged, or why this backup is not ready."""
        return explain(self)

    def compare(self, reply: Report) -> None:
        """Ask all others what they have, and tell how they compare: for the operator, after a total failure."""

        if self.state is BrokerStatus.STANDALONE:
            reply(NotAllowed("this broker is not in a cluster", hint="set ha-cluster=yes"), None)
        else:
            compare_all(self, reply)

    @property
    def handover(self) -> Handover | None:
        """The hand-over that is under way."""
        return self._handover if self._handover is not None and not self._handover.over else None

    @property
    def min_in_sync(self) -> int:
        """Brokers that must be in sync for anything to be acknowledged."""
        return self.settings.ha_min_in_sync

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
                if gone is not None and self.voting is not None:
                    self.voting.drop(gone.system_id, f"{gone.name} lost its connection")
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
            case Logged() | Safe() | Begin() | Chunk() | SnapshotEnd():
                self._following.heard(connection_id, message)
            case Confirm():
                if self.primary is not None:
                    self.primary.confirm(connection_id, message)
                    self._note_set()
            case Status():
                self._peer_status(connection_id, message)
            case Answer():
                peer = self.peers.by_connection(connection_id)
                if peer is not None:
                    self.peers.answered(peer, message)
            case Ask():
                answer(self, connection_id, message)
            case TakeOver():
                self._take_over(connection_id, message)
            case TakenOver():
                if self._handover is not None:
                    self._handover.answered(connection_id, message)
            case Subscribe():
                self._subscribed(connection_id, message)

    # -- as a backup ------------------------------------------------------------------------------

    def _peer_status(self, connection_id: int, status: Status) -> None:
        peer = self.peers.by_connection(connection_id)
        if peer is None:
            return
        if not self.peers.status(peer, status):
            if not peer.foreign and status.address != self.address:
                text = f"{peer.name} has our system id {self.system_id}; was its data directory copied from ours? It cannot be a member"
                self.port.announce("error", text)
            return
        if self.backup is not None and self.backup.primary is peer and not BrokerStatus(status.state).is_primary:
            self.backup.primary = None  # should it be promoted again, it is to be followed anew
        if self.primary is not None and status.promised > self.primary.in_sync.epoch:
            self.step_down(f"{peer.name} has promised epoch {status.promised}, ours is {self.primary.in_sync.epoch}")
        if self.voting is not None:
            self.voting.somebody_came()
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

    def set_in_sync(self, set_: InSyncSet) -> None:
        """Remember the newest set, and let the others know."""
        if set_ > self.saved.in_sync:
            self.saved.in_sync = set_
            self.save()
            self.tell_callers()

    # -- promotion --------------------------------------------------------------------------------

    def promote(self, reply: Reply, accept_loss: bool = False) -> None:
        """Become the primary, or say why not. The reply comes when the broker is recovering or active.

        With `accept_loss`, whatever others may have that this one has not: the operator's word after a total failure.
        """
        following = self.backup is not None and self.backup.primary is not None
        refusal = refusal_of_state(self.state, is_following=following)
        if self.state is BrokerStatus.STANDALONE or self.state.is_primary:
            self.port.announce("info", "Ignoring promotion, already primary")
            reply(None)
        elif self._promotion is not None:
            reply(NotAllowed("a promotion of this broker is under way", hint="ask for its status"))
        elif refusal is not None and not accept_loss:
            reply(refusal)
        else:
            kind = PromotionByStore if self.recorder.is_used else Promotion
            self._promotion = kind(self, reply, self._become_primary, self._promotion_over, accept_loss=accept_loss)
            self._promotion.start()

    def _promotion_over(self) -> None:
        self._promotion = None
        self._follow_newest()

    def _become_primary(self, election: Election) -> None:
        self._promotion = None
        backup = self.backup
        assert backup is not None
        try:
            backup.finish()
        except ProtocolViolation:
            self._following.spoiled(backup)
            raise
        epoch, before = election.epoch, election.in_sync.members
        members = (self.system_id, *(member for member in before if member != self.system_id))
        had = f"{self.log.epoch}:{self.log.last}" if self.log.last else ""
        self.log.start_epoch(epoch)
        self.log.append(EpochStarted(self.system_id, members))
        self.backup = None
        self.primary = Primary(self.port, self.log, self.settings, InSyncSet(epoch, 0, members))
        self.voting = Voting(self.primary, self.peers, self.recorder, self.set_in_sync, self.step_down)
        was_live, self.is_live = self.is_live, True
        if before and not was_live:
            self._announce_recovered(had)
        self._note_set()
        self.change(BrokerStatus.RECOVERING)
        self.port.announce("notice", f"Promoted to primary, epoch {epoch}", epoch=epoch)
        self.primary.expect(self.port.now + self.settings.ha_backup_timeout)
        # The old primary is the first of the set as it was. If it is gone, the new one need not wait for it as it does
        # for the other members. If it is there and hands over, or has nothing that we have not, it soon comes in.
        old = before[0] if before else self.system_id
        if old != self.system_id and (was_live or old not in election.answered) and old != self._taking_over_from:
            self.voting.drop(old, f"{self.peers.address_of(old)} was the primary before")
        self._taking_over_from = ""
        if self.primary.expected:
            names = ", ".join(self.peers.address_of(member) for member in self.primary.expected)
            self.port.announce("notice", f"Recovering backups: {names}")
        self._note_set()

    def _announce_recovered(self, had: str) -> None:
        if had:
            text = f"promoted with what its log kept, up to {had}: what was not on disk when all brokers stopped is gone"
        else:
            text = "promoted without content: what this cluster had accepted before all its brokers stopped is gone"
        self.port.announce("warning", text)

    # -- handing over -----------------------------------------------------------------------------

    def switchover(self, target: str, reply: Report) -> None:
        """Make the backup of that address, name or system id the primary, the best one if none is named, losing nothing."""
        if self.handover is not None:
            reply(NotAllowed(f"handing over to {self.handover.peer.name} already", hint="wait for its end"), None)
            return
        try:
            backup, peer = choose(self, target)
        except QpidHaError as error:
            reply(error, None)
            return
        assert self.primary is not None
        self._handover = Handover(self, self.primary, backup, peer, reply)

    def _take_over(self, connection_id: int, order: TakeOver) -> None:
        """A primary has stepped down for us."""
        caller = self.callers.get(connection_id)
        if caller is None:
            raise ProtocolViolation("an order to take over on a connection that is not from a broker")

        def done(error: QpidHaError | None) -> None:
            self._taking_over_from = ""
            epoch = self.log.epoch if error is None else 0
            self.port.say(connection_id, encode(TakenOver(order.nonce, epoch, error.text if error is not None else "")))

        if self.state.is_primary:
            done(None if self.log.epoch > order.epoch else NotAllowed("it is the primary of an older epoch"))
        elif (self.log.epoch, self.log.last) != (order.epoch, order.sequence):
            done(NotAllowed(f"it has the log up to {self.log.epoch}:{self.log.last}, not {order.epoch}:{order.sequence}"))
        else:
            self._taking_over_from = caller.system_id
            self.promote(done)

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

    def _drop_restarted(self, connection_id: int, caller: Caller, request: Subscribe) -> None:
        """A member of the set has come back without its content: it must leave the set before it may come in again."""
        primary, voting = self.primary, self.voting
        assert primary is not None
        assert voting is not None

        def again() -> None:
            if primary is self.primary and connection_id in self.callers and caller.system_id not in primary.backups:
                self._subscribed(connection_id, request)

        voting.drop(caller.system_id, f"{caller.name} came back without its content", again)

    def _note_set(self) -> None:
        """Save the set if the primary changed it, and go active when nobody is expected any more."""
        primary = self.primary
        if primary is None:
            return
        if primary.in_sync > self.saved.in_sync:
            self.set_in_sync(primary.in_sync)
        if self.state is BrokerStatus.RECOVERING and not primary.expected:
            self.change(BrokerStatus.ACTIVE)
            self.port.announce("notice", "All backups recovered.")

    def step_down(self, reason: str) -> None:
        """Be a backup again: clients go, the log stays."""
        if self.handover is not None and not self.handover.has_stepped_down:
            self.handover.cancel(f"this broker is stepping down: {reason}")
        if self.voting is not None:
            self.voting.end()
            self.voting = None
        self.log.seal()
        self.port.announce("warning", f"stepping down: {reason}", reason=reason)
        self.primary = None
        self.backup = Backup(self.port, self.log, applied=self.log.last)
        self.change(BrokerStatus.JOINING)
        self._follow_newest()

    def demote(self, reply: Reply) -> None:
        """Step down because the cluster manager says so."""
        if self._promotion is not None:
            self._promotion.refuse("demoted by the cluster manager meanwhile", "promote it again if that was not meant")
        if self.primary is not None:
            self.step_down("demoted by the cluster manager")
        reply(None)

    # -- time -------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Time went by."""
        self.peers.tick(now)
        self.recorder.tick(now)
        primary, voting = self.primary, self.voting
        if primary is not None and voting is not None:
            voting.tick(now)
            for system_id in primary.overdue(now) if self.state is BrokerStatus.RECOVERING else []:
                name = self.peers.address_of(system_id)
                self.port.announce("error", f"Recovering backup timed out: {name}")
                voting.drop(system_id, f"{name} did not come back within ha-backup-timeout")
            for backup in primary.give_up(now):
                kind = "Recovering backup timed out" if backup.system_id in primary.expected else "Backup has stalled"
                self.port.announce("warning", f"{kind}: {backup.name} is connected and confirms nothing", backup=backup.name)
                voting.drop(backup.system_id, f"{backup.name} has confirmed nothing for ha-backup-timeout")
        if self.handover is not None:
            self.handover.tick(now)

    def flush(self, now: int) -> None:
        """End of a turn."""
        if self.primary is not None:
            self.primary.flush(now)
            self._note_set()
            if self.voting is not None:
                self.voting.flush()
            handover = self.handover
            if handover is not None:
                handover.flush()
                if handover.over and self.primary is not None:
                    # Given up: what clients sent meanwhile was taken just now, and nobody may call again soon.
                    self.primary.flush(now)
        elif self.backup is not None:
            self.backup.flush()

    def save(self) -> None:
        """Make what is in `saved` last."""
        self.port.save(self.saved.encode())

    def announce(self, level: str, text: str) -> None:
        """Say what happened."""
        self.port.announce(level, text)

    def change(self, state: BrokerStatus) -> None:
        """Be in another state from now on."""
        check_change(self.state, state)
        before, self.state = self.state, state
        self.since = self.port.now
        self.port.announce("info", f"Status change: {before.value} -> {state.value}", before=before.value, after=state.value)
        self.port.state_changed(state)
        self.tell_callers()

    def tell_callers(self) -> None:
        """Tell all who are connected to us how we are."""
        word = encode(self.status())
        for connection_id in self.callers:
            self.port.say(connection_id, word)
