"""Voting: how a primary goes on without a required backup, with the consent of the others.

They are told the set without it, and record it unless they have promised a higher epoch: then it was we who
were gone. Strictly, that takes a majority, and until there is one what waits for that backup goes on waiting
(S2). Else we go on when the others have answered or nobody listens at their addresses, and ask again a
few times while so many say nothing that a majority may be elsewhere. Only one change is on its way at a time.
With `ha-recorder=manager` the manager's store takes the place of the others (`recording.py`): the smaller set is in force when it is
kept there, a larger one is recorded when all its members know of it, and a record of a higher epoch means that we are primary no more.
Must not know why somebody is to go. Source: DESIGN section 5, S2; PacificA (MSR-TR-2008-25) section 2.2.
"""

from __future__ import annotations

from collections.abc import Callable

from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.peers import ATTEMPTS, Consultation, Peers
from qpidha.ha.primary import Primary
from qpidha.ha.recording import Recorder
from qpidha.ha.wire import Ask


def nothing() -> None:
    """Follow up with nothing."""


class Voting:
    """The changes of the in-sync set of one primary, in one epoch."""

    def __init__(
        self, primary: Primary, peers: Peers, recorder: Recorder, in_force: Callable[[InSyncSet], None], overtaken: Callable[[str], None]
    ) -> None:
        self.primary = primary
        self.peers = peers
        self.recorder = recorder
        self.over = False
        """Whether this primary is one no longer."""
        self.asked: Consultation | None = None
        self.since = 0
        """When the change that is on its way was begun; 0 if none is."""
        self.next_deadline = 0
        """When to ask again, 0 for never."""
        self._attempts = 0
        self._in_force = in_force
        self._overtaken = overtaken

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

    def end(self) -> None:
        """Change nothing any more: somebody else is primary, or nobody."""
        self.over = True
        self.recorder.withdraw()

    def flush(self) -> None:
        """End of a turn. Have the store follow a set that grew; and leave who is to go, and confirms again, where he is."""
        primary, recorder = self.primary, self.recorder
        if not recorder.is_used or self.over:
            return
        if recorder.kept.epoch > primary.in_sync.epoch:
            self._overtaken(f"the cluster manager's store keeps epoch {recorder.kept.epoch}, ours is {primary.in_sync.epoch}")
        elif primary.is_proposing:
            if any(primary.is_back(member) for member in primary.leaving):
                self._record(primary.propose())
        elif recorder.wish is None and primary.in_sync > recorder.kept and primary.all_know_set:
            self._record(primary.in_sync)

    def _record(self, set_: InSyncSet) -> None:
        """Have the store keep a set in the place of whatever it keeps of our time."""

        def told(kept: InSyncSet | None, trouble: str) -> None:
            if self.over or kept is None:
                return
            if kept.is_same(set_):
                if self.primary.is_proposing:
                    self._commit(set_)
            elif kept.epoch > set_.epoch:
                self._overtaken(f"the cluster manager's store keeps epoch {kept.epoch}, ours is {set_.epoch}")
            else:
                self._record(set_)

        self.recorder.put(set_, self.recorder.kept, told)

    def _commit(self, set_: InSyncSet) -> None:
        self.since = 0
        self._in_force(set_)
        todo = self.primary.commit(set_)
        if self.recorder.is_used and not todo:
            self.primary.in_sync = set_  # the same members: a version is never recorded again after a later one
        for then in todo:
            then()
        if self.primary.leaving and not self.primary.is_proposing:
            self.since = self.peers.port.now
            self._propose(ATTEMPTS)

    def _propose(self, attempts: int) -> None:
        set_ = self.primary.propose()
        if self.recorder.is_used:
            self._record(set_)
            return

        def done(consultation: Consultation) -> None:
            if self.over:
                return
            if not self.peers.hears_majority(consultation) and (self.peers.strict or attempts > 1):
                # Where nobody listens the answer is there at once; the question is not to be.
                self.next_deadline, self._attempts = max(consultation.deadline, 1), attempts - 1
                self.tick(self.peers.port.now)
                return
            self._commit(set_)

        question = Ask(epoch=set_.epoch, candidate=self.primary.system_id, version=set_.version, members=set_.members)
        self.asked = self.peers.consult(done, question, enough=True)
