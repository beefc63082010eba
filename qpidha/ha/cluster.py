"""The HA machine of one broker: its role in the cluster, and every change of it.

Links to other brokers open and close, messages come, time passes, a manager asks for promotion:
each is a method here, and the machine acts through its `Port`. A broker is a backup, a primary, or
stands alone. Most is decided in parts of its own:

- `backup.py`, `primary.py`: what a role does with the log;
- `promises.py`, `states.py`: what is promised and in sync, and the state; the only owner of each;
- `newcomer.py`: when a broker without memory of that votes;
- `promotion.py`, `promotion_by_store.py`, by the rules of `candidates.py`: whether a backup may
  become primary;
- `membership.py`: how a primary goes on without a member of its set;
- `handover.py`: how a primary makes room for another; `peers.py`: how the others are asked.

Must not know queues, clients or sockets. Source: `docs/internals/safety.md`; Qpid `HaBroker.h`,
`Role.h`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from qpidha.ha.backup import Backup
from qpidha.ha.candidates import compare_all
from qpidha.ha.handover import Handover, choose
from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.membership import Membership
from qpidha.ha.membership_store import MembershipStore
from qpidha.ha.newcomer import counts_votes, new_text, recollect
from qpidha.ha.peers import Peers, PeerState, abstains, incompatible_text
from qpidha.ha.port import Log, Port, Reply, Report
from qpidha.ha.primary import Primary
from qpidha.ha.promises import Promises
from qpidha.ha.promotion import Election, Promotion, refusal_of_state
from qpidha.ha.promotion_by_store import PromotionByStore
from qpidha.ha.states import StateMachine
from qpidha.ha.wire import (
    Answer,
    Ask,
    Begin,
    Chunk,
    Committed,
    Confirm,
    Logged,
    Message,
    SnapshotEnd,
    Status,
    Subscribe,
    TakenOver,
    TakeOver,
    encode,
)
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import NotAllowed, ProtocolViolation, QpidHaError
from qpidha.model.event_codes import (
    BACKUP_STALLED,
    HANDOVER_REFUSED,
    NOT_IN_CLUSTER,
    OUTAGE_LOSS,
    PRIMARY_LOST,
    PROMOTED,
    PROMOTION_REFUSED,
    RECOVERED,
    RECOVERING,
    STEPPED_DOWN,
    WRONG_IDENTITY,
)
from qpidha.model.records import EpochStarted
from qpidha.model.settings import Settings


@dataclass(slots=True)
class InboundPeer:
    """A broker that opened a replication connection to us."""

    system_id: str
    name: str
    features: frozenset[str]


class Cluster:
    """The HA machine."""

    def __init__(
        self,
        port: Port,
        log: Log,
        settings: Settings,
        *,
        system_id: str,
        name: str,
        address: str,
        saved: SavedState,
    ) -> None:
        self.port = port
        self.log = log
        self.settings = settings
        self.system_id = system_id
        self.name = name
        self.address = address
        saved = replace(saved, is_new=saved.is_new and counts_votes(settings))
        self.promises = Promises(port, system_id, saved, self.send_status)
        self._state = StateMachine(port, self.send_status)
        self.peers = Peers(port, settings, system_id)
        self.membership_store = MembershipStore(port, settings)
        """The manager's store, if that is what records in-sync sets."""
        self.inbound: dict[int, InboundPeer] = {}
        self.backup: Backup | None = None
        self.primary: Primary | None = None
        self.membership: Membership | None = None
        """The changes of the set while we are primary."""
        self._handover: Handover | None = None
        self._promotion: Promotion | None = None
        self._taking_over_from = ""
        """The system id of a primary that stepped down for us and is about to follow."""
        self._is_short = self._is_low = self._is_reserved = False
        """Whether this broker's disk is so nearly full that senders should wait, that it can take
        no more, and that this is so for what is sent only.
        """

    def start(self) -> None:
        """Join the cluster, with what was recovered from disk: the broker model has the log up to
        its commit point.
        """
        self._state.change(BrokerStatus.JOINING)
        self.promises.start()
        recollect(self.promises, self.peers)
        self.backup = self._new_backup(self.log.committed, self.log.snapshot_through)
        self.peers.tick(self.port.now)

    def _new_backup(self, applied: int, snapshot_through: int = 0) -> Backup:
        return Backup(
            self.port,
            self.log,
            self.promises,
            self._state,
            self.send_status,
            applied=applied,
            snapshot_through=snapshot_through,
        )

    # -- what others read -------------------------------------------------------------------------

    @property
    def state(self) -> BrokerStatus:
        """The state of this broker."""
        return self._state.current

    @property
    def since(self) -> int:
        """When the broker came into its state."""
        return self._state.since

    @property
    def next_deadline(self) -> int:
        """When to tick next, 0 for never."""
        deadlines = [self.peers.next_deadline(), self.membership_store.next_deadline]
        if self.primary is not None:
            deadlines.append(self.primary.next_deadline)
        if self.membership is not None:
            deadlines.append(self.membership.next_deadline)
        if self.handover is not None:
            deadlines.append(self.handover.deadline)
        return min((deadline for deadline in deadlines if deadline), default=0)

    @property
    def may_deliver(self) -> bool:
        """Whether messages may be handed out: not by a primary that is cut off, for the others may
        have another one by now, and it would hand out the same messages.
        """
        if (
            self.primary is None
            or not self.peers.strict
            or self.primary.in_sync.members == (self.system_id,)
        ):
            return True
        if not self.membership_store.is_used:
            return self.hears_majority
        there = [
            self.system_id,
            *(peer.status.system_id for peer in self.peers.up() if peer.status is not None),
        ]
        return all(
            member in there for member in self.primary.in_sync.members
        )  # each of the others may have become primary

    @property
    def hears_majority(self) -> bool:
        """Whether this broker and those it is connected to are more than half of all.

        Not counted is who is new, and so may have agreed to another primary, unless it is in sync.
        """
        members = self.primary.in_sync.members if self.primary is not None else ()
        heard = [
            peer
            for peer in self.peers.up()
            if peer.status is not None
            and (not peer.status.is_new or peer.status.system_id in members)
        ]
        return 2 * (1 + len(heard)) > 1 + len(self.peers.others())

    def status(self) -> Status:
        """Return how this broker is."""
        set_ = self.promises.in_sync
        epoch, last = self.log.epoch, self.log.last
        if self.backup is not None and not self.backup.has_whole_model:
            epoch = last = 0  # half a snapshot is worth nothing, however far its log goes
        return Status(
            self.system_id,
            self.name,
            self.address,
            self.state.value,
            epoch,
            self.promises.promised,
            last,
            set_.epoch,
            set_.version,
            set_.members,
            self.promises.is_complete,
            self.settings.ha_recorder,
            self._is_short,
            self._is_low,
            self._is_reserved,
            self.settings.ha_replicate,
            self.promises.is_new,
            self.promises.founders,
        )

    @property
    def short_backups(self) -> dict[str, bool]:
        """The addresses of backups that acknowledgements of this primary wait for and whose disks
        are nearly full, and whether they can take no more.
        """
        primary = self.primary
        if primary is None:
            return {}
        return {
            peer.name: peer.status.is_low
            for peer in self.peers.up()
            if peer.status is not None
            and peer.status.is_short
            and peer.status.system_id in primary.required
        }

    def compare(self, reply: Report, forget: str = "") -> None:
        """Ask all others what they have, and tell how they compare, without those that are to
        `forget`: for the operator, after a total failure.
        """

        if self.state is BrokerStatus.STANDALONE:
            error = NotAllowed(
                "this broker is not in a cluster",
                hint="set ha-cluster=yes",
                event_code=NOT_IN_CLUSTER,
            )
            reply(error, None)
        else:
            compare_all(self.peers, self.membership_store, self.status, reply, forget)

    @property
    def handover(self) -> Handover | None:
        """The hand-over that is under way."""
        return self._handover if self._handover is not None and not self._handover.over else None

    def all_know(self, feature: str) -> bool:
        """Whether every configured broker is connected and knows a feature, and so does every other
        broker that is connected to us.

        A member that is away may come back as an older version: it is waited for.
        """
        return all(
            peer.state is PeerState.UP and peer.status is not None and feature in peer.features
            for peer in self.peers.others()
        ) and all(feature in peer.features for peer in self.inbound.values())

    # -- connections to others --------------------------------------------------------------------

    def opened(self, connection_id: int, features: frozenset[str] = frozenset()) -> None:
        """A connection that we dialled can carry messages both ways."""
        peer = self.peers.by_connection(connection_id)
        if peer is not None:
            self.peers.opened(peer, features)

    def called(
        self, connection_id: int, system_id: str, name: str, features: frozenset[str] = frozenset()
    ) -> None:
        """Another broker opened a replication connection to us."""
        self.inbound[connection_id] = InboundPeer(system_id, name, features)
        self._say_status(connection_id)
        # It has just started, or is back: a first primary waits for those that promised to follow.
        self.peers.dial_at_once()

    def lost(self, connection_id: int, reason: str, *, reached: bool) -> None:
        """A connection to or from another broker is gone; `reached` is whether another broker ever
        answered on it.
        """
        if self.inbound.pop(connection_id, None) is not None:
            if self.primary is not None:
                gone = self.primary.lost(connection_id)
                if gone is not None and self.membership is not None:
                    self.membership.drop(gone.system_id, f"{gone.name} lost its connection")
            return
        peer = self.peers.by_connection(connection_id)
        if peer is None:
            return
        if self.backup is not None and self.backup.primary is peer:
            self.backup.primary = None
            self.port.announce(
                "warning",
                f"Disconnected from primary {peer.name}: {reason}",
                event_code=PRIMARY_LOST,
                primary=peer.name,
            )
        self.peers.lost(peer, reason, reached=reached)

    def on_message(self, connection_id: int, message: Message) -> None:
        """A message came on a replication connection."""
        match message:
            case Logged() | Committed() | Begin() | Chunk() | SnapshotEnd():
                if self.backup is not None:
                    self.backup.on_message(connection_id, message)
            case Confirm():
                if self.primary is not None:
                    self.primary.confirm(connection_id, message)
                    self._note_set()
            case Status():
                self._on_status(connection_id, message)
            case Answer():
                peer = self.peers.by_connection(connection_id)
                if peer is not None:
                    self.peers.answered(peer, message)
            case Ask():
                self._on_ask(connection_id, message)
            case TakeOver():
                self._on_take_over(connection_id, message)
            case TakenOver():
                if self._handover is not None:
                    self._handover.answered(connection_id, message)
            case Subscribe():
                self._on_subscribe(connection_id, message)

    # -- what the others are, and ask -------------------------------------------------------------

    def _on_status(self, connection_id: int, status: Status) -> None:
        peer = self.peers.by_connection(connection_id)
        if peer is None:
            return
        is_other = self.peers.status(peer, status)
        recollect(self.promises, self.peers)
        if not is_other:
            # Ourselves, at one of our addresses; or a copy of us: two brokers with one identity
            # would confirm for each other.
            if not peer.incompatible and status.address != self.address:
                text = (
                    f"{peer.name} has our system id {self.system_id}; was its data directory "
                    "copied from ours? It cannot be a member"
                )
                self.port.announce("error", text, event_code=WRONG_IDENTITY)
            return
        if (
            self.backup is not None
            and self.backup.primary is peer
            and not BrokerStatus(status.state).is_primary
        ):
            # It has stepped down. If it is promoted again, it is followed by a new subscription.
            self.backup.primary = None
        # A promise of a higher epoch is enough: the candidate may be primary by now, and nothing of
        # ours would be committed any more (S5).
        if self.primary is not None and status.promised > self.primary.in_sync.epoch:
            self.step_down(
                f"{peer.name} has promised epoch {status.promised}, ours is "
                f"{self.primary.in_sync.epoch}"
            )
        if self.membership is not None:
            self.membership.ask_again()
        self._follow_newest()

    def _on_ask(self, connection_id: int, question: Ask) -> None:
        """Answer with how this broker is, and whether it promises the epoch (S3) or records the
        set (S2) that is asked for.
        """
        promises, refusal = self.promises, ""
        if question.recorder != self.peers.ha_recorder:
            # A majority of brokers and a store are two ways to agree: in one cluster they could
            # agree to two different things.
            refusal = incompatible_text(self.name, self.peers.ha_recorder, question.recorder)
        elif question.version:
            set_ = InSyncSet(question.epoch, question.version, question.members)
            if promises.record(set_):
                self._yield_to(question, "is the primary of epoch")
            else:
                refusal = self._refusal(question)
        elif question.epoch:
            if promises.grant(question.epoch, question.candidate):
                self._yield_to(question, "asked for epoch")
            else:
                refusal = self._refusal(question)
        # The status goes first: a candidate that has the answers of a majority also has what each
        # of them had when it promised, and decides by that (S3).
        self._say_status(connection_id)
        answer = encode(Answer(question.nonce, not refusal, refusal))
        # What was promised or recorded is on disk before the other one counts on it (S2, S5).
        if question.epoch and not refusal:
            self.port.send(connection_id, answer)
        else:
            self.port.tell(connection_id, answer)

    def _refusal(self, question: Ask) -> str:
        if abstains(self.status(), question):
            return new_text(self.peers)
        if self.promises.is_too_far(question.epoch):
            return f"epoch {question.epoch} is too far beyond {self.promises.promised}"
        return f"epoch {self.promises.promised} is promised already"

    def _yield_to(self, question: Ask, what: str) -> None:
        """Step down, as a primary, for a broker that has a higher epoch, or is about to (S5)."""
        if self.primary is not None and question.epoch > self.primary.in_sync.epoch:
            name = self.peers.address_of(question.candidate)
            self.step_down(f"{name} {what} {question.epoch}")

    def _follow_newest(self) -> None:
        """Follow the primary of the highest epoch, unless this broker is about to be one."""
        backup = self.backup
        peer = self.peers.current_primary()
        if backup is None or peer is None or peer is backup.primary or self._promotion is not None:
            return
        assert peer.status is not None
        # A primary of a lower epoch than the promised one has not heard yet that its time is over.
        if self.promises.follow(peer.status.epoch):
            backup.follow(peer)

    # -- promotion --------------------------------------------------------------------------------

    @property
    def is_following(self) -> bool:
        """Whether this is a backup that has a primary."""
        return self.backup is not None and self.backup.primary is not None

    @property
    def is_taking_over(self) -> bool:
        """Whether another broker hands over to this one."""
        return bool(self._taking_over_from)

    def promote(self, reply: Reply, accept_loss: bool = False, forget: str = "") -> None:
        """Become the primary, or say why not. The reply comes when the broker is recovering or
        active.

        With `accept_loss`, whatever others may have that this one has not: the operator's word
        after a total failure. With `forget`, the names of brokers with spaces between, without
        waiting for those: they will not come back, says the operator.
        """
        refusal = refusal_of_state(self.state, is_following=self.is_following)
        if self.state is BrokerStatus.STANDALONE or self.state.is_primary:
            self.port.announce("info", "Ignoring promotion, already primary")
            reply(None)
        elif self._promotion is not None:
            reply(
                NotAllowed(
                    "a promotion of this broker is under way",
                    hint="ask for its status",
                    event_code=PROMOTION_REFUSED,
                )
            )
        elif refusal is not None and not accept_loss:
            reply(refusal)
        else:
            # One attempt at a time: two would promise two epochs, and depose each other.
            kind = PromotionByStore if self.membership_store.is_used else Promotion
            self._promotion = kind(
                self.port,
                self.peers,
                self.promises,
                self.membership_store,
                self._state,
                self.status,
                reply=reply,
                become_primary=self._become_primary,
                given_up=self._promotion_over,
                accept_loss=accept_loss,
                forget=forget,
            )
            self._promotion.start()

    def _promotion_over(self) -> None:
        self._promotion = None
        self._follow_newest()

    def _become_primary(self, election: Election) -> None:
        self._promotion = None
        backup = self.backup
        assert backup is not None
        # Also what is not known to be committed: the former primary may have acknowledged it, and
        # only it could tell.
        try:
            backup.finish()
        except ProtocolViolation:
            backup.start_over()
            raise
        # A new epoch begins with the in-sync set as it was. Its other members are the expected
        # backups: nothing is acknowledged before each has caught up, or was dropped by S2. The
        # first epoch of a cluster begins with those who promised it, a majority: when anything is
        # acknowledged each knows the set, or a majority has recorded a smaller one, so the next
        # candidate is told of it (S3).
        epoch, before = election.epoch, election.in_sync.members
        members = tuple(dict.fromkeys((self.system_id, *(before or election.promised))))
        first = InSyncSet(epoch, 0, members)
        was_complete = self.promises.begin_epoch(first)
        had = f"{self.log.epoch}:{self.log.last}" if self.log.last else ""
        self.log.start_epoch(epoch)
        self.log.append(EpochStarted(self.system_id, members))
        self.backup = None
        self.primary = Primary(self.port, self.log, self.settings, first, self.promises.learn)
        self.membership = Membership(
            self.primary, self.peers, self.membership_store, self.promises.learn, self.step_down
        )
        if before and not was_complete:
            self._announce_recovered(had)
        self._note_set()
        self._state.change(BrokerStatus.RECOVERING)
        self.port.announce(
            "notice", f"Promoted to primary, epoch {epoch}", event_code=PROMOTED, epoch=epoch
        )
        self.primary.expect(self.port.now + self.settings.ha_backup_timeout)
        # The old primary is the first of the set as it was. It is most likely dead, so it is
        # dropped at once, and not after ha-backup-timeout as the other members. It stays if it
        # hands over, or if it answered an incomplete candidate: then it soon comes in.
        old = before[0] if before else self.system_id
        if (
            old != self.system_id
            and (was_complete or old not in election.answered)
            and old != self._taking_over_from
        ):
            self.membership.drop(old, f"{self.peers.address_of(old)} was the primary before")
        self._taking_over_from = ""
        for member in election.gone:
            if member in self.primary.expected and member not in self.primary.leaving:
                self.membership.drop(member, f"{self.peers.address_of(member)} will not come back")
        if self.primary.expected:
            names = ", ".join(self.peers.address_of(member) for member in self.primary.expected)
            self.port.announce("notice", f"Recovering backups: {names}", event_code=RECOVERING)
        self._note_set()

    def _announce_recovered(self, had: str) -> None:
        if had:
            text = (
                f"promoted with its log up to {had}; records that had not reached disk before "
                "the outage are lost"
            )
        else:
            text = (
                "promoted with an empty log; what this cluster had acknowledged before the outage "
                "is lost"
            )
        self.port.announce("warning", text, event_code=OUTAGE_LOSS)

    # -- handing over -----------------------------------------------------------------------------

    def switchover(self, target: str, reply: Report) -> None:
        """Make the backup of that address, name or system id the primary, the best one if none is
        named, losing nothing.
        """
        if self.handover is not None:
            reply(
                NotAllowed(
                    f"handing over to {self.handover.peer.name} already",
                    hint="wait for its end",
                    event_code=HANDOVER_REFUSED,
                ),
                None,
            )
            return
        try:
            backup, peer = choose(self.primary, self.peers, self.state, target)
        except QpidHaError as error:
            reply(error, None)
            return
        assert self.primary is not None
        self._handover = Handover(
            self.port,
            self.log,
            self.peers,
            self._state,
            primary=self.primary,
            target=backup,
            peer=peer,
            reply=reply,
            step_down=self.step_down,
            promote=self.promote,
        )

    def _on_take_over(self, connection_id: int, order: TakeOver) -> None:
        """A primary has stepped down for us."""
        caller = self.inbound.get(connection_id)
        if caller is None:
            raise ProtocolViolation(
                "an order to take over on a connection that is not from a broker"
            )

        def done(error: QpidHaError | None) -> None:
            self._taking_over_from = ""
            epoch = self.log.epoch if error is None else 0
            self.port.send(
                connection_id,
                encode(TakenOver(order.nonce, epoch, error.text if error is not None else "")),
            )

        if self.state.is_primary:
            done(
                None
                if self.log.epoch > order.epoch
                else NotAllowed("it is the primary of an older epoch")
            )
        elif (self.log.epoch, self.log.last) != (order.epoch, order.sequence):
            done(
                NotAllowed(
                    f"it has the log up to {self.log.epoch}:{self.log.last}, not "
                    f"{order.epoch}:{order.sequence}"
                )
            )
        else:
            self._taking_over_from = caller.system_id
            self.promote(done)

    # -- as a primary -----------------------------------------------------------------------------

    def _on_subscribe(self, connection_id: int, request: Subscribe) -> None:
        caller = self.inbound.get(connection_id)
        if caller is None:
            raise ProtocolViolation("a subscription on a connection that is not from a broker")
        if self.primary is None:
            self._say_status(connection_id)  # it has not heard yet that we are no primary
            return
        # False: it is a member that lost its content, and must leave the set before it may come in
        # again (S2).
        if self.primary.subscribe(
            connection_id, caller.system_id, caller.name, request, caller.features
        ):
            self._note_set()
        else:
            self._drop_restarted(connection_id, caller, request)

    def _drop_restarted(self, connection_id: int, caller: InboundPeer, request: Subscribe) -> None:
        """A member of the set has come back without its content: it must leave the set before it
        may come in again.
        """
        primary, membership = self.primary, self.membership
        assert primary is not None
        assert membership is not None

        def again() -> None:
            if (
                primary is self.primary
                and connection_id in self.inbound
                and caller.system_id not in primary.backups
            ):
                self._on_subscribe(connection_id, request)

        membership.drop(caller.system_id, f"{caller.name} came back without its content", again)

    def _note_set(self) -> None:
        """Save the set that an epoch begins with (S1), and go active when no backup is expected any
        more.
        """
        primary = self.primary
        if primary is None:
            return
        self.promises.learn(primary.in_sync)
        if self.state is BrokerStatus.RECOVERING and not primary.expected:
            self._state.change(BrokerStatus.ACTIVE)
            self.port.announce("notice", "All backups recovered.", event_code=RECOVERED)

    def step_down(self, reason: str) -> None:
        """Be a backup again: clients go, the log stays.

        The log keeps what was never committed, too: the next primary may have it. If not, this
        broker starts over with a snapshot, for it has applied all of its log.
        """
        if self.handover is not None and not self.handover.has_stepped_down:
            self.handover.cancel(f"this broker is stepping down: {reason}")
        if self.membership is not None:
            self.membership.end()
            self.membership = None
        # What this turn appended becomes a batch with an identity: a backup's log has nothing else,
        # and the next primary cuts it off by its identity if it lacks it.
        self.log.seal()
        self.port.announce(
            "warning", f"stepping down: {reason}", event_code=STEPPED_DOWN, reason=reason
        )
        self.primary = None
        self.backup = self._new_backup(applied=self.log.last)
        self._state.change(BrokerStatus.JOINING)

    def demote(self, reply: Reply) -> None:
        """Step down because the cluster manager says so."""
        # The order of the manager's commands counts: a promotion that ended after this would leave
        # a primary that the manager takes for a backup.
        if self._promotion is not None:
            self._promotion.refuse(
                "demoted by the cluster manager meanwhile", "promote it again if that was not meant"
            )
        if self.primary is not None:
            self.primary.send_rest()
            self.step_down("demoted by the cluster manager")
        reply(None)

    def stop(self) -> None:
        """This broker is about to end its connections."""
        if self.primary is not None:
            self.primary.send_rest()

    # -- time -------------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Time went by: give up on connections, answers and backups that are overdue."""
        self.peers.tick(now)
        self.membership_store.tick(now)
        primary, membership = self.primary, self.membership
        if primary is not None and membership is not None:
            membership.tick(now)
            for system_id in primary.overdue(now) if self.state is BrokerStatus.RECOVERING else []:
                name = self.peers.address_of(system_id)
                self.port.announce(
                    "error", f"Recovering backup timed out: {name}", event_code=BACKUP_STALLED
                )
                membership.drop(system_id, f"{name} did not come back within ha-backup-timeout")
            for backup in primary.give_up(now):
                kind = (
                    "Recovering backup timed out"
                    if backup.system_id in primary.expected
                    else "Backup has stalled"
                )
                self.port.announce(
                    "warning",
                    f"{kind}: {backup.name} is connected and confirms nothing",
                    event_code=BACKUP_STALLED,
                    backup=backup.name,
                )
                membership.drop(
                    backup.system_id, f"{backup.name} has confirmed nothing for ha-backup-timeout"
                )
        if self.handover is not None:
            self.handover.tick(now)

    def look(self, now: int) -> None:
        """See what is awaited, and what is to be told: seldom enough for small turns, and soon
        after each.
        """
        if self.primary is not None:
            self.primary.look(now)

    def flush(self, now: int) -> None:
        """End of a turn."""
        if self.primary is not None:
            self.primary.flush(now)
            self._note_set()
            if self.membership is not None:
                self.membership.flush()
            handover = self.handover
            if handover is not None:
                handover.flush()
                if handover.over and self.primary is not None:
                    # Given up: what clients sent meanwhile was taken in this turn, and the next
                    # turn may be a long time off.
                    self.primary.flush(now)
        elif self.backup is not None:
            self.backup.flush()

    @property
    def reserved_backups(self) -> set[str]:
        """The addresses of those that can take no more of what is sent, and dead letters still."""
        return {
            peer.name
            for peer in self.peers.up()
            if peer.status is not None and peer.status.is_low and peer.status.is_reserved
        }

    def send_status(self) -> None:
        """Send how this broker is to all that are connected to it."""
        for connection_id in self.inbound:
            self._say_status(connection_id)

    def _say_status(self, connection_id: int) -> None:
        """Send how this broker is; to one of the base nothing that it does not know: it would hang
        up.
        """
        status = self.status()
        caller = self.inbound.get(connection_id)
        if caller is None or not caller.features:
            status.is_short = status.is_low = status.is_reserved = status.is_new = False
            status.replicate, status.founders = "", ()
        self.port.tell(connection_id, encode(status))

    def disk_changed(self, *, is_short: bool, is_low: bool, is_reserved: bool = False) -> None:
        """Tell the others whether this broker's disk is nearly full, and whether it can take no
        more, or no more of what is sent (`is_reserved`).
        """
        self._is_short, self._is_low, self._is_reserved = is_short, is_low, is_reserved
        self.send_status()
