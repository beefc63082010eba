"""Membership: how a primary goes on without a member of its in-sync set, with the consent of the
others.

A primary cannot tell a dead backup from one that is cut off and was promoted elsewhere. So before
a smaller set is in force it is recorded where a candidate must ask (S2): by a majority of the
brokers, each of which refuses if it has promised a higher epoch, or with `ha-recorder=manager` by
the manager's store (`membership_store.py`). Until then everything that needs the lost backup waits.
A larger set is in force with its record in the log, and the store follows when all members have
that record.

Must not know why a member is to go. Source: rules S2 and S8 in `docs/internals/safety.md`;
PacificA (MSR-TR-2008-25) section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable

from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.membership_store import MembershipStore
from qpidha.ha.peers import ATTEMPTS, Consultation, Peers
from qpidha.ha.primary import Primary
from qpidha.ha.wire import Ask


def nothing() -> None:
    """Follow up with nothing."""


class Membership:
    """The changes of the in-sync set of one primary, in one epoch."""

    def __init__(
        self,
        primary: Primary,
        peers: Peers,
        store: MembershipStore,
        in_force: Callable[[InSyncSet], None],
        overtaken: Callable[[str], None],
    ) -> None:
        self.primary = primary
        self.peers = peers
        self.store = store
        self.over = False
        """Whether this primary is one no longer."""
        self.asked: Consultation | None = None
        """The question about the change that is on its way, where a majority records it."""
        self.since = 0
        """When the change that is on its way was begun; 0 if none is."""
        self.next_deadline = 0
        """When to ask again, 0 for never."""
        self._attempts = 0
        self._in_force = in_force
        self._overtaken = overtaken

    def drop(self, system_id: str, why: str, then: Callable[[], None] = nothing) -> None:
        """Go on without a required backup, once the others agree; `then` is called when that
        is so.
        """
        if self.primary.leave(system_id, why, then):
            self.since = self.peers.port.now
            self._propose(ATTEMPTS)

    def not_answered(self) -> list[str]:
        """Return the addresses of those that have not agreed to the change that is on its way."""
        if not self.since or self.asked is None:
            return []
        return [peer.name for peer in self.peers.others() if peer not in self.asked.answered]

    def tick(self, now: int) -> None:
        """Ask again if it is time."""
        if self.next_deadline and now >= self.next_deadline:
            self.ask_again()

    def ask_again(self) -> None:
        """Ask now instead of waiting for the time: there is another broker to ask."""
        if self.next_deadline and not self.over:
            self.next_deadline = 0
            self._propose(self._attempts)

    def end(self) -> None:
        """Change nothing any more: this broker is no longer primary."""
        self.over = True
        self.store.withdraw()

    def flush(self) -> None:
        """End of a turn: have the store follow a set that grew, and keep a member that was to go
        and confirms again.
        """
        primary, store = self.primary, self.store
        if not store.is_used or self.over:
            return
        if store.kept.epoch > primary.in_sync.epoch:
            # Another broker put its epoch into the store: it is primary, and ours is over (S5).
            self._overtaken(
                f"the cluster manager's store keeps epoch {store.kept.epoch}, ours is "
                f"{primary.in_sync.epoch}"
            )
        elif primary.is_proposing:
            if any(primary.is_back(member) for member in primary.leaving):
                self._record(primary.propose())
        # A set that grew is recorded when each of its members has the record of it in its log. The
        # store may promote by its record, so a broker must not stand in it before it knows that it
        # may be promoted.
        elif store.pending_write is None and primary.in_sync > store.kept and primary.all_know_set:
            self._record(primary.in_sync)

    def _record(self, set_: InSyncSet) -> None:
        """Have the store keep a set in the place of whatever it keeps of our epoch."""

        def done(kept: InSyncSet | None, trouble: str) -> None:
            if self.over or kept is None:
                return
            if kept.is_same(set_):
                if self.primary.is_proposing:
                    self._commit(set_)
            elif kept.epoch > set_.epoch:
                self._overtaken(
                    f"the cluster manager's store keeps epoch {kept.epoch}, ours is {set_.epoch}"
                )
            else:
                # Our own earlier record, which the answer to an earlier write told of: try again in
                # the place of that.
                self._record(set_)

        self.store.put(set_, self.store.kept, done)

    def _commit(self, set_: InSyncSet) -> None:
        """The set is recorded: put it in force."""
        self.since = 0
        self._in_force(set_)
        todo = self.primary.commit(set_)
        if self.store.is_used and not todo:
            # All who were to go came back: the members are the same under a newer version, and the
            # store must not be given the older one again.
            self.primary.in_sync = set_
        for then in todo:
            then()
        if self.primary.leaving and not self.primary.is_proposing:
            self.since = self.peers.port.now
            self._propose(ATTEMPTS)

    def _propose(self, attempts: int) -> None:
        """Ask for the smaller set to be recorded; where strict, until that is done.

        With `ha-safety=trust-manager` silence counts as consent after a few attempts: the manager
        has seen to it that who is silent is gone (S8).
        """
        set_ = self.primary.propose()
        if self.store.is_used:
            self._record(set_)
            return

        def done(consultation: Consultation) -> None:
            if self.over:
                return
            if not self.peers.hears_majority(consultation) and (self.peers.strict or attempts > 1):
                # Where no broker listens the answer is there at once; the question is not to be.
                self.next_deadline, self._attempts = max(consultation.deadline, 1), attempts - 1
                self.tick(self.peers.port.now)
                return
            self._commit(set_)

        question = Ask(
            epoch=set_.epoch,
            candidate=self.primary.system_id,
            version=set_.version,
            members=set_.members,
        )
        self.asked = self.peers.consult(done, question, enough=True)
