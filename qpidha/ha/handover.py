"""Hand-over: a primary makes room for a backup of the operator's choice, with no message in doubt
(`qpid-ha switchover`).

The primary is frozen: it takes nothing more from clients and appends nothing. When its whole log is
committed and the target has it, the primary steps down and asks the target to take over, which is a
promotion like any other: the others must promise, and the target must be in the newest in-sync set.
If anything goes wrong before the primary has stepped down, nothing was done. After that the old
primary tries to be promoted again, for it still has everything.

Must not know how a promotion works. Source: rule S9 in `docs/internals/safety.md`; Raft's
leadership transfer (Ongaro, section 3.10).
"""

from __future__ import annotations

from collections.abc import Callable

from qpidha.ha.peers import ATTEMPTS, WRITING, Peer, Peers
from qpidha.ha.port import Log, Port, Reply, Report
from qpidha.ha.primary import Primary, RemoteBackup
from qpidha.ha.states import StateMachine
from qpidha.ha.wire import Committed, TakenOver, TakeOver, encode
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import NotAllowed, NotFound, QpidHaError, coded
from qpidha.model.event_codes import (
    HANDED_OVER,
    HANDING_OVER,
    HANDOVER_REFUSED,
    NEW_WITHOUT_VOTE,
    NOT_HANDED_OVER,
)


class Handover:
    """One hand-over, on the broker that is primary when it begins. It is gone when `over`; the
    reply comes once, before that.
    """

    def __init__(
        self,
        port: Port,
        log: Log,
        peers: Peers,
        state: StateMachine,
        *,
        primary: Primary,
        target: RemoteBackup,
        peer: Peer,
        reply: Report,
        step_down: Callable[[str], None],
        promote: Callable[[Reply], None],
    ) -> None:
        self.port = port
        self.log = log
        self.peers = peers
        self.state = state
        self.over = False
        self.target = target
        self.peer = peer
        """The target as a peer: the connection to it that this broker dialled."""
        self.has_stepped_down = False
        self.since = port.now
        self.deadline = port.now + primary.patience
        self._primary = primary
        self._reply = reply
        self._step_down = step_down
        self._promote = promote
        self._epoch = primary.in_sync.epoch
        self._connection_id = 0
        self._patient_until = 0
        """Until then a target that is connected is waited for: it has to write down promises."""
        port.announce(
            "notice",
            f"Handing over to {peer.name}: clients wait",
            event_code=HANDING_OVER,
            target=peer.name,
        )
        port.freeze(True)

    def flush(self) -> None:
        """End of a turn: go on if the target has everything."""
        port, log, primary = self.port, self.log, self._primary
        if self.over or self.has_stepped_down:
            return
        if (
            primary.backups.get(self.target.system_id) is not self.target
            or self.target.system_id not in primary.in_sync.members
        ):
            self.cancel(f"{self.peer.name} is not in sync any more")
            return
        if (
            log.has_pending
            or primary.is_proposing
            or port.saving_since  # what is committed may not have been told yet
            or not log.committed == log.durable_to == log.last == self.target.confirmed
        ):
            return
        if self.peer.connection_id == 0:
            self.cancel(f"there is no connection to {self.peer.name}")
            return
        for backup in primary.backups.values():
            port.send(backup.connection_id, encode(Committed(log.committed)))
        self.has_stepped_down = True
        # The target's promotion asks the others as often as this, and they may have to be dialled
        # first.
        self.deadline = port.now + (ATTEMPTS + 2) * self.peers.patience
        self._patient_until = port.now + WRITING
        self._connection_id = self.peer.connection_id
        self._step_down(f"handing over to {self.peer.name}")
        port.freeze(False)
        port.send(self._connection_id, encode(TakeOver(self.since, self._epoch, log.last)))

    def tick(self, now: int) -> None:
        """Time went by."""
        if self.over or now < self.deadline:
            return
        if not self.has_stepped_down:
            self.cancel(
                f"{self.peer.name} has not confirmed everything within "
                f"{self._primary.patience / 1e9:g} s"
            )
            return
        if self._ended_by_later(self._epoch):
            return  # its answer was lost
        if now < self._patient_until and self.peer.connection_id == self._connection_id:
            self.deadline = now + self.peers.patience
            return
        self._fail(f"{self.peer.name} did not answer")

    def answered(self, connection_id: int, answer: TakenOver) -> None:
        """The target is primary, or says why not."""
        if self.over or connection_id != self._connection_id or answer.nonce != self.since:
            return
        if answer.epoch:
            if not self._ended_by_later(
                answer.epoch
            ):  # else it was late: another has followed it, and is the primary
                self._succeed(self.peer.name, self.target.system_id, answer.epoch)
        else:
            self._fail(f"{self.peer.name} says: {answer.reason}")

    def cancel(self, why: str) -> None:
        """Give up. Before this broker has stepped down that undoes everything; after that another
        request decides which broker is primary.
        """
        self.over = True
        self.port.announce(
            "error", f"hand-over to {self.peer.name} given up: {why}", event_code=NOT_HANDED_OVER
        )
        if not self.has_stepped_down:
            self.port.freeze(False)
        self._reply(
            NotAllowed(
                f"not handed over to {self.peer.name}: {why}",
                hint="look at qpid-ha status --explain and try again",
                event_code=NOT_HANDED_OVER,
            ),
            None,
        )

    def _ended_by_later(self, epoch: int) -> bool:
        """End with the primary of a later epoch, if we know of one."""
        other = self.peers.current_primary()
        if other is None or other.status is None or other.status.epoch <= epoch:
            return False
        self._succeed(other.name, other.status.system_id, other.status.epoch)
        return True

    def _succeed(self, address: str, system_id: str, epoch: int) -> None:
        self.over = True
        self.port.announce(
            "notice",
            f"Handed over to {address}, epoch {epoch}",
            event_code=HANDED_OVER,
            target=address,
            epoch=epoch,
        )
        self._reply(
            None,
            {
                "state": self.state.current.value,
                "address": address,
                "system_id": system_id,
                "epoch": epoch,
            },
        )

    def _fail(self, why: str) -> None:
        """The target is not primary. We have everything, so we are promoted again if the others let
        us.
        """
        self.over = True
        self.port.announce(
            "error", f"hand-over failed: {why}; being promoted again", event_code=NOT_HANDED_OVER
        )

        def promoted(error: QpidHaError | None) -> None:
            now = (
                "this broker is primary again"
                if error is None
                else f"nor could this broker be promoted again: {error.text}"
            )
            hint = "look at qpid-ha status --all" if error is None else error.hint
            self._reply(
                NotAllowed(
                    f"not handed over to {self.peer.name}: {why}; {now}",
                    hint=hint,
                    event_code=NOT_HANDED_OVER,
                ),
                None,
            )

        self._promote(promoted)


@coded(HANDOVER_REFUSED)
def choose(
    primary: Primary | None, peers: Peers, state: BrokerStatus, name: str
) -> tuple[RemoteBackup, Peer]:
    """Return the backup that an address, name or system id means, or the best if there is none;
    raises why it cannot take over.
    """
    if primary is None:
        peer = peers.current_primary()
        where = f"the primary is {peer.name}" if peer is not None else "no primary is known"
        raise NotAllowed(f"this broker is {state.value} and has nothing to hand over", hint=where)
    if state is not BrokerStatus.ACTIVE:
        raise NotAllowed(
            "this broker is still recovering", hint="wait until it is active: qpid-ha status"
        )
    if primary.short_since:
        raise NotAllowed(
            "too few brokers are in sync for anything to be committed (ha-min-in-sync)",
            hint="qpid-ha status --explain",
        )
    peer = _peer_named(peers, name)
    able = [
        each
        for each in primary.backups.values()
        if each.is_ready and each.system_id in primary.in_sync.members
    ]
    if peer is not None:
        assert peer.known is not None
        able = [each for each in able if each.system_id == peer.known.system_id]
    if not able:
        who = peer.name if peer is not None else "no backup"
        known = f": it is {peer.known.state}" if peer is not None and peer.known is not None else ""
        raise NotAllowed(
            f"{who} is ready to take over{known}"
            if peer is None
            else f"{who} is not in sync{known}",
            hint="wait until it is ready",
        )
    best = max(able, key=lambda each: each.confirmed)
    for up in peers.up():
        if up.status is not None and up.status.system_id == best.system_id:
            _check_votes(peers, up)
            return best, up
    raise NotAllowed(
        f"there is no connection to {best.name} at present", hint="try again in a moment"
    )


def _check_votes(peers: Peers, target: Peer) -> None:
    """Refuse where neither the target nor this broker again would be promoted, because brokers are
    new (`newcomer.py`).
    """
    new = [peer for peer in peers.up() if peer.status is not None and peer.status.is_new]
    votes = 1 + len(peers.up()) - len(new)
    if target in new or (new and 2 * votes <= 1 + len(peers.others())):
        names = ", ".join(peer.name for peer in new)
        raise NotAllowed(
            f"new, and without a vote as yet: {names}",
            hint=f"qpid-ha status --explain -b {new[0].name} says which broker it waits for",
            event_code=NEW_WITHOUT_VOTE,
        )


def _peer_named(peers: Peers, name: str) -> Peer | None:
    """Return the peer that a name means; None if any broker will do."""
    if not name:
        return None
    for peer in peers.all:
        known = peer.known
        if known is not None and name in (
            peer.name,
            str(peer.address),
            known.address,
            known.name,
            known.system_id,
        ):
            if known.system_id == peers.system_id:
                raise NotAllowed(f"{name} is this broker, and primary already", hint="name another")
            return peer
    names = ", ".join(peer.name for peer in peers.others())
    raise NotFound(
        f"no broker {name} is known in this cluster",
        hint=f"name one of {names}" if names else "this broker knows no others",
    )
