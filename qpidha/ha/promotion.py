"""Promotion: one attempt of a backup to become the primary, from the manager's word to the yes or no.

A *ready* broker, or a demoted primary that still has everything, asks the others for their promise of the next
epoch. Whoever promises will accept nothing of a lower one, so an old primary that is still there steps down by that
very question; and each tells, with its answer, the newest in-sync set that it knows. One refusal, or a newer set
without this broker, ends the attempt. With `ha-safety=strict` a majority of the configured brokers must have promised:
every set that was ever in force is recorded by a majority, so somebody among them knows it (S3). A broker that
is not live first asks what the others have, by the rules of `comparison.py` (S4); with the promises come newer
answers, and they are held against the same rules again.
With `ha-recorder=manager` the store decides in their place: `promotion_by_store.py`.

`accept_loss` is the operator's override after a total failure: no rule about content, nobody is waited for
who cannot be reached; what is known to be given up is announced. Who is reached must promise even so.
Where a majority need not promise, each broker begins epochs of its own only, so that no two ever begin the same.
Must not know what a primary does. Source: DESIGN section 5; PacificA (MSR-TR-2008-25) section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from qpidha.ha.comparison import STILL_CATCHING_UP, Comparison, Refusal
from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.peers import ATTEMPTS, Consultation, Peers
from qpidha.ha.port import Port, Reply
from qpidha.ha.recording import Recorder
from qpidha.ha.status import BrokerStatus
from qpidha.ha.wire import Ask, Status
from qpidha.words.errors import NotAllowed, ProtocolViolation


class Candidate(Protocol):
    """The broker that is to be promoted."""

    state: BrokerStatus
    is_live: bool
    saved: SavedState
    peers: Peers
    port: Port
    recorder: Recorder
    system_id: str

    def status(self) -> Status:
        """Return how this broker is."""

    def save(self) -> None:
        """Make what is in `saved` last."""

    def announce(self, level: str, text: str) -> None:
        """Say what happened."""


OVERRIDE = 1000
"""How far an epoch that begins by the operator's word is ahead: brokers that were not heard may have begun others since."""


@dataclass(slots=True)
class Election:
    """The yes to a promotion: the new epoch, the set that it begins with, and who of it is known to be there."""

    epoch: int
    in_sync: InSyncSet
    answered: list[str]
    """System ids."""


class Promotion:
    """One attempt; `become_primary(election)` or `given_up()` is called once, before the reply."""

    def __init__(
        self, candidate: Candidate, reply: Reply, become_primary: Callable[[Election], None], given_up: Callable[[], None],
        *, accept_loss: bool = False,
    ) -> None:  # fmt: skip
        self.candidate = candidate
        self.peers = candidate.peers
        self.accept_loss = accept_loss
        self.over = False
        self._reply = reply
        self._become_primary = become_primary
        self._given_up = given_up
        self._attempts = ATTEMPTS
        self._answered: dict[str, None] = {}
        """Addresses that have answered in this attempt."""
        self._was = candidate.state

    def start(self) -> None:
        """Ask the others."""
        self.candidate.port.notes.add("promotion", f="asked", x="accept-loss" if self.accept_loss else "")
        if self.accept_loss or not self.candidate.is_live:
            self.peers.consult(self._others_known)
        elif self.peers.strict:
            # Our own promise would depose a primary that is well, once it hears of it: not before a majority is there.
            self.peers.consult(self._majority_known, enough=True)
        else:
            self._ask_promises()

    def refuse(self, text: str, hint: str) -> None:
        """End the attempt with a no."""
        self.over = True
        self.candidate.recorder.withdraw()
        self._given_up()
        self.candidate.announce("error", f"promotion refused: {text}")
        self.candidate.port.notes.add("promotion", f="refused", x=text)
        self._reply(NotAllowed(text, hint=hint))

    def _compare(self) -> Comparison:
        return Comparison(self.candidate.status(), self.peers, list(self._answered))

    def _majority_known(self, consultation: Consultation) -> None:
        if self.over:
            return
        self._note(consultation)
        if self.peers.hears_majority(consultation):
            self._attempts = ATTEMPTS
            self._ask_promises()
        elif self._attempts > 1:
            self._attempts -= 1
            self.peers.consult(self._majority_known, enough=True)
        else:
            self._refuse_minority(consultation, "answered")

    def _refuse_minority(self, consultation: Consultation, what: str) -> None:
        heard, all_ = 1 + len(consultation.answered), 1 + len(self.peers.others())
        self.refuse(
            f"{heard} of {all_} brokers {what}, and a majority must",
            "start the others; with ha-safety=trust-manager the cluster manager's word would do",
        )

    def _others_known(self, consultation: Consultation) -> None:
        if self.over:
            return
        self._note(consultation)
        found = self._objection()
        if found is not None:
            self.refuse(*found)
        elif self.peers.strict and not self.accept_loss:
            self._majority_known(consultation)
        else:
            self._ask_promises()

    def _note(self, consultation: Consultation) -> None:
        self._answered.update(dict.fromkeys(peer.name for peer in consultation.answered))

    def _objection(self) -> Refusal | None:
        """Say what speaks against this broker, by what all have that have answered so far."""
        comparison = self._compare()
        if not self.accept_loss:
            return comparison.refusal(comparison.own)
        for row in comparison.rows[1:]:
            if row.is_primary:
                return f"{row.name} is the primary, and nothing is lost as yet", f"demote it first, or: qpid-ha switchover {row.name}"
        return None

    def _ask_promises(self) -> None:
        if not self.accept_loss and self._refused_as_outsider():
            return
        saved = self.candidate.saved
        known = max([saved.promised, *(peer.known.promised for peer in self.peers.others() if peer.known is not None)])
        if self.accept_loss:
            saved.promised = self.peers.own_epoch(known + OVERRIDE)
        else:
            saved.promised = known + 1 if self.peers.strict else self.peers.own_epoch(known + 1)
        self.candidate.save()
        self._consult(saved.promised)

    def _consult(self, epoch: int) -> None:
        enough = self.peers.strict and not self.accept_loss
        self.peers.consult(self._promised, Ask(epoch=epoch, candidate=self.candidate.system_id), enough=enough)

    def _refused_as_outsider(self) -> bool:
        comparison = self._compare()
        found = comparison.outside(comparison.own)
        if found is not None:
            self.refuse(*found)
        return found is not None

    def _promised(self, consultation: Consultation) -> None:
        if self.over:
            return
        candidate, epoch = self.candidate, consultation.question.epoch
        self._note(consultation)
        if consultation.refusals:
            self.refuse("; ".join(consultation.refusals), "look whether another broker has been promoted: qpid-ha status --all")
        elif candidate.saved.promised != epoch or candidate.state is not self._was:
            self.refuse(f"overtaken: now {candidate.state.value}, epoch {candidate.saved.promised} is promised", "ask for its status")
        elif (found := self._objection()) is not None:  # the answers came with news
            self.refuse(*found)
        elif self.peers.hears_majority(consultation) and not (self.accept_loss and consultation.silent):
            self._succeed(epoch, self._first_set())
        elif self._attempts > 1:
            self._attempts -= 1
            self._consult(epoch)
        elif self.peers.strict and not self.accept_loss:
            self._refuse_minority(consultation, f"promised epoch {epoch}")
        else:
            self._succeed(epoch, self._first_set())

    def _first_set(self) -> InSyncSet:
        """Return the set that the new epoch goes on with: the newest, by the operator's word without those who are not there."""
        comparison = self._compare()
        newest = comparison.newest
        if not self.accept_loss:
            return newest
        there = tuple(member for member in newest.members if member in comparison.of and comparison.of[member].answered)
        return InSyncSet(newest.epoch, newest.version, there)

    def _succeed(self, epoch: int, first: InSyncSet) -> None:
        self.over = True
        self.candidate.port.notes.add("promotion", f="granted", e=epoch)
        comparison = self._compare()
        answered = [system_id for system_id, row in comparison.of.items() if row.answered]
        try:
            self._become_primary(Election(epoch, first, answered))
        except ProtocolViolation as error:
            self.refuse(f"this broker's log cannot be read: {error.text}", "promote another; this one fetches everything from it")
            return
        if self.accept_loss:
            loss = comparison.losses(comparison.own)["text"]
            self.candidate.announce("critical", f"promoted by the operator's word, whatever is lost (--accept-loss): {loss}")
        self._reply(None)


def refusal_of_state(state: BrokerStatus, *, is_following: bool) -> NotAllowed | None:
    """Refuse a broker that is being brought up to date: there is somebody who has more."""
    if state is BrokerStatus.CATCHUP and is_following:
        return NotAllowed(STILL_CATCHING_UP, hint="promote a broker whose status is ready")
    return None
