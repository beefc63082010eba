"""Promotion by the store: one attempt of a backup to become the primary with
`ha-recorder=manager`.

The candidate reads the record that the cluster manager's store keeps, judges itself by it, promises
the next epoch, and puts that epoch, which begins with the members of the record, in the record's
place. When the store keeps that, the candidate is primary. If the store keeps something else by
then, it begins anew with that. No broker need answer, but the others are asked for their promise
afterwards, for an old primary to step down sooner. Only a candidate that is not complete asks first
what the others have (S4); it reads the record before that, so that a promotion which happens
meanwhile makes its own write fail. Why two brokers are enough is in `membership_store.py`.

Must not know what a primary does. Source: rules S3 and S4 in `docs/internals/safety.md`.
"""

from __future__ import annotations

from qpidha.ha.candidates import Comparison
from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.membership_store import PATIENCE
from qpidha.ha.peers import ATTEMPTS, Consultation
from qpidha.ha.promotion import OVERRIDE, Promotion
from qpidha.ha.wire import Ask
from qpidha.model.event_codes import OVERTAKEN, STORE_UNKNOWN

LOOK_AT_THE_MANAGER = (
    "look at the cluster manager (qpid-ha pacemaker status), and whether qpidha-watch runs "
    "beside this broker"
)


class PromotionByStore(Promotion):
    """One attempt; `become_primary(election)` or `given_up()` is called once, before the reply."""

    _kept = InSyncSet()
    """What the store kept when this attempt was begun."""
    _first = InSyncSet()
    """The set that the new epoch goes on with, as it is to be recorded: what is heard later does
    not change it.
    """

    def start(self) -> None:
        """Ask what the store keeps."""
        self._note_asked()
        self.store.read(self._read)

    def _compare(self) -> Comparison:
        return Comparison(
            self._status(), self.peers, list(self._answered), self._kept, forget=self.forget
        )

    def _read(self, kept: InSyncSet | None, trouble: str) -> None:
        if self.over:
            return
        if kept is None:
            self.refuse(
                f"what the cluster manager's store keeps is not known: {trouble}",
                LOOK_AT_THE_MANAGER,
                STORE_UNKNOWN,
            )
            return
        self._kept = kept
        if self.accept_loss or not self.promises.is_complete or not kept.members:
            self._answered.clear()
            self.peers.consult(self._others_known)
        else:
            self._put()

    def _others_known(self, consultation: Consultation) -> None:
        if not self.over:
            self._note(consultation)
            self._put()

    def _put(self) -> None:
        """Promise the next epoch, and have the store keep it, if nothing speaks against this
        broker.
        """
        found = self._objection()
        if found is not None:
            self.refuse(*found)
            return
        epoch = max(self._kept.epoch, self.promises.promised, *self.peers.promised(), 0) + (
            OVERRIDE if self.accept_loss else 1
        )
        # From here on this broker confirms nothing of a lower epoch (S5). So if the store still
        # keeps K when it takes our record in the place of K, the old primary has committed nothing
        # that we lack: without our confirmation it needs a set without us in the place of K.
        self.promises.promise_self(epoch)
        self._first = self._first_set()
        own = self.peers.system_id
        first = InSyncSet(
            epoch, 0, (own, *(member for member in self._first.members if member != own))
        )

        def put() -> None:
            if not self.over:
                self.store.put(
                    first,
                    self._kept,
                    lambda kept, trouble: self._put_done(first, kept, trouble),
                    patience=PATIENCE,
                )

        self.port.when_saved(put)

    def _put_done(self, first: InSyncSet, kept: InSyncSet | None, trouble: str) -> None:
        """The store keeps our record, or something else, or did not say in time."""
        if self.over:
            return
        epoch = first.epoch
        if kept is None:
            self.refuse(
                f"the cluster manager's store did not take epoch {epoch}: {trouble}",
                LOOK_AT_THE_MANAGER,
                STORE_UNKNOWN,
            )
        elif self._is_overtaken(epoch):
            self._refuse_overtaken()
        elif kept.is_same(first):
            self._succeed(epoch, self._first)
            # The others need not agree, but an old primary that hears of the epoch steps down now
            # instead of when it next writes to the store.
            question = Ask(epoch=epoch, candidate=self.peers.system_id)
            self.peers.consult(lambda consultation: None, question)
        elif self._attempts > 1:
            self._attempts -= 1
            self._read(kept, "")
        else:
            self.refuse(
                f"others changed the cluster manager's store {ATTEMPTS} times meanwhile, "
                f"now to epoch {kept.epoch}",
                "try again",
                OVERTAKEN,
            )
