"""Promotion: one attempt of a backup to become the primary, from the manager's word to the yes or no.

A *ready* broker, or a demoted primary that still has everything, asks the others for their promise of the next
epoch. Whoever promises will accept nothing of a lower one, so an old primary that is still there steps down by that
very question; and each tells, with its answer, the newest in-sync set that it knows. One refusal, or a newer set
without this broker, ends the attempt. With `ha-safety=strict` a majority of the configured brokers must have promised:
every set that was ever in force is recorded by a majority, so somebody among them knows it (S3). A broker that
is merely *joining* has nothing: it may be promoted only where all others are joining or catching up, or silent;
and, strictly, in a cluster that has had a primary, only where none is silent (S4).
Must not know what a primary does. Source: DESIGN section 5; PacificA (MSR-TR-2008-25) section 2.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.peers import ATTEMPTS, Consultation, Peers
from qpidha.ha.port import Reply
from qpidha.ha.status import BrokerStatus
from qpidha.ha.wire import Ask
from qpidha.words.errors import NotAllowed


class Candidate(Protocol):
    """The broker that is to be promoted."""

    state: BrokerStatus
    is_live: bool
    saved: SavedState
    peers: Peers
    system_id: str

    def save(self) -> None:
        """Make what is in `saved` last."""

    def announce(self, level: str, text: str) -> None:
        """Say what happened."""


class Promotion:
    """One attempt; `become_primary(epoch, set)` or `given_up()` is called once, before the reply."""

    def __init__(
        self, candidate: Candidate, reply: Reply, become_primary: Callable[[int, InSyncSet], None], given_up: Callable[[], None]
    ) -> None:
        self.candidate = candidate
        self.peers = candidate.peers
        self.over = False
        self._reply = reply
        self._become_primary = become_primary
        self._given_up = given_up
        self._attempts = ATTEMPTS

    def start(self) -> None:
        """Ask the others."""
        if self.candidate.state is BrokerStatus.READY or self.candidate.is_live:
            self._ask_promises()
        else:
            self.peers.consult(self._others_known)

    def refuse(self, text: str, hint: str) -> None:
        """End the attempt with a no."""
        self.over = True
        self._given_up()
        self.candidate.announce("error", f"promotion refused: {text}")
        self._reply(NotAllowed(text, hint=hint))

    def _others_known(self, consultation: Consultation) -> None:
        if self.over:
            return
        members = self._newest().members
        for peer in consultation.answered:
            status = peer.known  # also of one whose connection is lost again
            if status is None:
                continue
            # Who is catching up has less than the broker that it copied, or it would be ready; a demoted primary has
            # what it had. Strictly that counts also when a newer set is without it: we have nothing at all.
            has_more = status.state not in (BrokerStatus.JOINING.value, BrokerStatus.CATCHUP.value)
            if has_more or (status.is_live and (self.peers.strict or status.system_id in members)):
                has = "" if has_more else " and has what this broker has not"
                text = f"Joining active cluster, cannot be promoted. {peer.name} is {status.state}{has}."
                self.refuse(text, f"promote {peer.name}, or wait until this broker is ready")
                return
        if self.peers.strict and self._newest().members:
            missing = ", ".join(peer.name for peer in self.peers.others() if peer not in consultation.answered)
            if missing:
                self.refuse(
                    f"this broker has nothing, and {missing} did not answer and may have what was accepted",
                    "start them, or set ha-safety=trust-manager to go on without them",
                )
                return
        self._ask_promises()

    def _newest(self) -> InSyncSet:
        """Return the newest set that we know, or that anybody ever told us of."""
        told = [peer.known for peer in self.peers.others() if peer.known is not None]
        sets = [InSyncSet(status.in_sync_epoch, status.in_sync_version, status.in_sync_members) for status in told]
        return max([self.candidate.saved.in_sync, *sets])

    def _ask_promises(self) -> None:
        if self._is_outside_set():
            return
        saved = self.candidate.saved
        saved.promised = max([saved.promised, *(peer.known.promised for peer in self.peers.others() if peer.known is not None)]) + 1
        self.candidate.save()
        self._consult(saved.promised)

    def _consult(self, epoch: int) -> None:
        self.peers.consult(self._promised, Ask(epoch=epoch, candidate=self.candidate.system_id), enough=self.peers.strict)

    def _is_outside_set(self) -> bool:
        newest = self._newest()
        if not newest.members or self.candidate.system_id in newest.members:
            return False
        members = ", ".join(self.peers.address_of(member) for member in newest.members)
        self.refuse(f"not in the newest in-sync set: {members}", f"promote one of {members}, or wait until this broker is ready")
        return True

    def _promised(self, consultation: Consultation) -> None:
        if self.over:
            return
        candidate, epoch = self.candidate, consultation.question.epoch
        if consultation.refusals:
            self.refuse("; ".join(consultation.refusals), "look whether another broker has been promoted: qpid-ha status --all")
        elif candidate.saved.promised != epoch or candidate.state not in (BrokerStatus.READY, BrokerStatus.JOINING):
            self.refuse(f"overtaken: now {candidate.state.value}, epoch {candidate.saved.promised} is promised", "ask for its status")
        elif self._is_outside_set():  # the answers came with news
            return
        elif self.peers.hears_majority(consultation):
            self._succeed(epoch)
        elif self._attempts > 1:
            self._attempts -= 1
            self._consult(epoch)
        elif self.peers.strict:
            heard, all_ = 1 + len(consultation.answered), 1 + len(self.peers.others())
            self.refuse(
                f"{heard} of {all_} brokers promised epoch {epoch}, and a majority must",
                "start the others; with ha-safety=trust-manager the cluster manager's word would do",
            )
        else:
            self._succeed(epoch)

    def _succeed(self, epoch: int) -> None:
        self.over = True
        self._become_primary(epoch, self._newest())
        self._reply(None)
