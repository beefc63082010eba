"""Promotion by the store: one attempt of a backup to become the primary where `ha-recorder=manager`.

It reads the record that the cluster manager's store keeps, judges itself by it, promises the next epoch, and puts that epoch, which
begins with the members of the record, in the record's place. When that is kept it is the primary. If something else is kept by then,
it begins anew with that. The others are asked for their promise afterwards: an old primary hears of it sooner; nobody need answer.
Only a broker that is not live asks first what the others have (S4), and that only after it has read the record that it replaces:
whoever begins an epoch meanwhile replaces that record too. Why this is safe is in `recording.py`.
Must not know what a primary does. Source: DESIGN section 5, S3 and S4.
"""

from __future__ import annotations

from qpidha.ha.comparison import Comparison
from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.peers import ATTEMPTS, Consultation
from qpidha.ha.promotion import OVERRIDE, Promotion
from qpidha.ha.recording import PATIENCE
from qpidha.ha.wire import Ask

LOOK_AT_THE_MANAGER = "look at the cluster manager (qpid-ha pacemaker status), and whether qpidha-watch runs beside this broker"


class PromotionByStore(Promotion):
    """One attempt; `become_primary(election)` or `given_up()` is called once, before the reply."""

    _kept = InSyncSet()
    """What the store kept when this attempt was begun."""
    _first = InSyncSet()
    """The set that the new epoch goes on with, as it is to be recorded: what is heard later does not change it."""

    def start(self) -> None:
        """Ask what the store keeps."""
        self.candidate.port.notes.add("promotion", f="asked", x="accept-loss" if self.accept_loss else "")
        self.candidate.recorder.read(self._read)

    def _compare(self) -> Comparison:
        return Comparison(self.candidate.status(), self.peers, list(self._answered), self._kept)

    def _read(self, kept: InSyncSet | None, trouble: str) -> None:
        if self.over:
            return
        if kept is None:
            self.refuse(f"what the cluster manager's store keeps is not known: {trouble}", LOOK_AT_THE_MANAGER)
            return
        self._kept = kept
        if self.accept_loss or not self.candidate.is_live or not kept.members:
            self._answered.clear()
            self.peers.consult(self._others_known)
        else:
            self._put()

    def _others_known(self, consultation: Consultation) -> None:
        if not self.over:
            self._note(consultation)
            self._put()

    def _put(self) -> None:
        """Promise the next epoch, and have the store keep it, if nothing speaks against this broker."""
        found = self._objection()
        if found is not None:
            self.refuse(*found)
            return
        candidate, saved = self.candidate, self.candidate.saved
        promised = [peer.known.promised for peer in self.peers.others() if peer.known is not None]
        epoch = max(self._kept.epoch, saved.promised, *promised, 0) + (OVERRIDE if self.accept_loss else 1)
        saved.promised = epoch
        candidate.save()
        self._first = self._first_set()
        own = candidate.system_id
        first = InSyncSet(epoch, 0, (own, *(member for member in self._first.members if member != own)))
        candidate.recorder.put(first, self._kept, lambda kept, trouble: self._told(first, kept, trouble), patience=PATIENCE)

    def _told(self, first: InSyncSet, kept: InSyncSet | None, trouble: str) -> None:
        if self.over:
            return
        candidate, epoch = self.candidate, first.epoch
        if kept is None:
            self.refuse(f"the cluster manager's store did not take epoch {epoch}: {trouble}", LOOK_AT_THE_MANAGER)
        elif candidate.saved.promised != epoch or candidate.state is not self._was:
            self.refuse(f"overtaken: now {candidate.state.value}, epoch {candidate.saved.promised} is promised", "ask for its status")
        elif kept.is_same(first):
            self._succeed(epoch, self._first)
            self.peers.consult(lambda consultation: None, Ask(epoch=epoch, candidate=candidate.system_id))
        elif self._attempts > 1:
            self._attempts -= 1
            self._read(kept, "")
        else:
            self.refuse(f"others changed the cluster manager's store {ATTEMPTS} times meanwhile, now to epoch {kept.epoch}", "try again")
