"""Voting: how a primary goes on without a required backup, with the consent of the others.

They are told the set without it, and record it unless they have promised a higher epoch: then it was we who
were gone. Strictly, that takes a majority, and until there is one what waits for that backup goes on waiting
(S2). Else we go on when the others have answered or nobody listens at their addresses, and ask again a
few times while so many say nothing that a majority may be elsewhere. Only one change is on its way at a time.
Must not know why somebody is to go. Source: DESIGN section 5, S2; PacificA (MSR-TR-2008-25) section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable

from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.peers import ATTEMPTS, Consultation, Peers
from qpidha.ha.primary import Primary
from qpidha.ha.wire import Ask


def nothing() -> None:
    """Follow up with nothing."""


class Voting:
    """The changes of the in-sync set of one primary, in one epoch."""

    def __init__(self, primary: Primary, peers: Peers, system_id: str, in_force: Callable[[InSyncSet], None]) -> None:
        self.primary = primary
        self.peers = peers
        self.system_id = system_id
        self.over = False
        """Whether this primary is one no longer."""
        self.asked: Consultation | None = None
        self.since = 0
        """When the change that is on its way was begun; 0 if none is."""
        self.next_deadline = 0
        """When to ask again, 0 for never."""
        self._attempts = 0
        self._in_force = in_force

    def drop(self, system_id: str, why: str, then: Callable[[], None] = nothing) -> None:
        """Go on without a required backup, once the others agree; `then` is called when that is so."""
        if self.primary.leave(system_id, why, then):
            self.since = self.peers.port.now
            self._propose(ATTEMPTS)

    def unheard(self) -> list[str]:
        """Return the addresses of those that have not agreed to the change that is on its way."""
        if not self.since or self.asked is None:
            return []
        return [peer.name for peer in self.peers.others() if peer not in self.asked.answered]

    def tick(self, now: int) -> None:
        """Ask again if it is time."""
        if self.next_deadline and now >= self.next_deadline:
            self.somebody_came()

    def somebody_came(self) -> None:
        """Do not wait for the time to ask again: there is somebody else to ask."""
        if self.next_deadline and not self.over:
            self.next_deadline = 0
            self._propose(self._attempts)

    def _propose(self, attempts: int) -> None:
        set_ = self.primary.propose()

        def done(consultation: Consultation) -> None:
            if self.over:
                return
            if not self.peers.hears_majority(consultation) and (self.peers.strict or attempts > 1):
                # Where nobody listens the answer is there at once; the question is not to be.
                self.next_deadline, self._attempts = max(consultation.deadline, 1), attempts - 1
                self.tick(self.peers.port.now)
                return
            self.since = 0
            self._in_force(set_)
            for then in self.primary.commit(set_):
                then()
            if self.primary.leaving and not self.primary.is_proposing:
                self.since = self.peers.port.now
                self._propose(ATTEMPTS)

        question = Ask(epoch=set_.epoch, candidate=self.system_id, version=set_.version, members=set_.members)
        self.asked = self.peers.consult(done, question, enough=True)
