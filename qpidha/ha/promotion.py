"""Promotion: one attempt of a backup to become the primary, from the manager's request to the yes
or no.

The broker that is to be promoted, the candidate, asks the others for their promise of the next
epoch. A broker that promises accepts nothing of a lower epoch any more, so an old primary that is
still there steps down by that question; and it answers with the newest in-sync set that it knows.
One refusal, or a newer set without the candidate, ends the attempt. A candidate that is not
complete first asks what the others have (S4), by the rules of `candidates.py`; the promises bring
newer answers, and they are held against the same rules again. With `ha-recorder=manager` the store
decides in place of the others: `promotion_by_store.py`.

Must not know what a primary does. Source: rules S3, S4, S5 and S8 in `docs/internals/safety.md`;
PacificA (MSR-TR-2008-25) section 2.3; Raft section 9.6 of Ongaro's thesis (the pre-vote).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from qpidha.ha.candidates import STILL_CATCHING_UP, Comparison, Refusal
from qpidha.ha.in_sync import InSyncSet
from qpidha.ha.membership_store import MembershipStore
from qpidha.ha.newcomer import new_text, recollect
from qpidha.ha.peers import ATTEMPTS, Consultation, Peer, Peers, voters
from qpidha.ha.port import Port, Reply
from qpidha.ha.promises import Promises
from qpidha.ha.states import StateMachine
from qpidha.ha.wire import Ask, Status
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import NotAllowed, ProtocolViolation
from qpidha.model.event_codes import (
    ANOTHER_IS_AHEAD,
    CATCHING_UP,
    LOSS_ACCEPTED,
    NEW_WITHOUT_VOTE,
    NO_MAJORITY,
    OVERTAKEN,
    PROMOTED_WITHOUT,
    PROMOTION_REFUSED,
)

OVERRIDE = 1000
"""How far an epoch that begins by the operator's word is ahead: brokers that were not heard may
have begun others since.
"""


@dataclass(slots=True)
class Election:
    """The yes to a promotion: the new epoch, the set that it begins with, and who of it is known to
    be there.
    """

    epoch: int
    in_sync: InSyncSet
    answered: list[str]
    """System ids."""
    gone: list[str]
    """System ids of members of the set that will not come back."""
    promised: tuple[str, ...]
    """System ids of the others that promised the epoch, where a majority had to."""


class Promotion:
    """One attempt; `become_primary(election)` or `given_up()` is called once, before the reply.

    With `accept_loss` the operator overrides the rules about content after a total failure: no
    broker is waited for that cannot be reached, and what is known to be given up is announced.
    Brokers that are reached must promise even so. With `forget` the operator says of some brokers
    that they will not come back; what that makes safe, `candidates.py` says.
    """

    def __init__(
        self,
        port: Port,
        peers: Peers,
        promises: Promises,
        store: MembershipStore,
        state: StateMachine,
        status: Callable[[], Status],
        *,
        reply: Reply,
        become_primary: Callable[[Election], None],
        given_up: Callable[[], None],
        accept_loss: bool = False,
        forget: str = "",
    ) -> None:
        self.port = port
        self.peers = peers
        self.promises = promises
        self.store = store
        self.state = state
        self.accept_loss = accept_loss
        self.forget = forget
        self.over = False
        self._status = status
        """How this broker is: the candidate's own row of a comparison."""
        self._reply = reply
        self._become_primary = become_primary
        self._given_up = given_up
        self._attempts = ATTEMPTS
        self._answered: dict[str, None] = {}
        """Addresses that have answered in this attempt."""
        self._was = state.current

    def start(self) -> None:
        """Ask the others."""
        self._note_asked()
        if self.accept_loss or not self.promises.is_complete:
            self.peers.consult(self._others_known)
        elif self.peers.strict:
            # A question before the promise. Our own promise deposes a healthy primary once that
            # hears of it, so a candidate that is cut off must not make one: a majority first.
            self.peers.consult(self._majority_known, enough=True)
        else:
            self._ask_promises()

    def _note_asked(self) -> None:
        words = ["accept-loss"] if self.accept_loss else []
        words += [f"forget {name}" for name in self.forget.split()]
        self.port.event_log.add("promotion", f="asked", x=" ".join(words))

    def refuse(self, text: str, hint: str, event_code: str = PROMOTION_REFUSED) -> None:
        """End the attempt with a no."""
        self.over = True
        self.store.withdraw()
        self._given_up()
        self.port.announce("error", f"promotion refused: {text}", event_code=event_code)
        self.port.event_log.add("promotion", f="refused", x=text)
        self._reply(NotAllowed(text, hint=hint, event_code=event_code))

    def _compare(self) -> Comparison:
        return Comparison(self._status(), self.peers, list(self._answered), forget=self.forget)

    def _majority_known(self, consultation: Consultation) -> None:
        """A majority answered, or the time for that is over: brokers that were just started, or
        have lost a link, are asked a few times; all of them, as long as this one is new.
        """
        if self.over:
            return
        self._note(consultation)
        recollect(self.promises, self.peers)  # one of the others may have turned out to be this one
        hears_majority, is_new = self.peers.hears_majority(consultation), self.promises.is_new
        if hears_majority and not is_new:
            self._attempts = ATTEMPTS
            self._ask_promises()
        elif self._attempts > 1:
            self._attempts -= 1
            self.peers.consult(self._majority_known, enough=not is_new)
        elif hears_majority:
            self.refuse(
                new_text(self.peers),
                "start all brokers, an empty one in the place of one that is lost; to go on "
                "without, see what would be lost: qpid-ha recover",
                NEW_WITHOUT_VOTE,
            )
        else:
            self._refuse_minority(consultation, "answered")

    def _refuse_minority(self, consultation: Consultation, what: str) -> None:
        heard, all_ = 1 + len(voters(consultation)), 1 + len(self.peers.others())
        new = [
            peer.name for peer in self.peers.up() if peer.status is not None and peer.status.is_new
        ]
        voteless = f"; new, and without a vote as yet: {', '.join(new)}" if new else ""
        self.refuse(
            f"{heard} of {all_} brokers {what}, and a majority must{voteless}",
            "start the others; with ha-safety=trust-manager the cluster manager's decision is "
            "enough",
            NO_MAJORITY,
        )

    def _others_known(self, consultation: Consultation) -> None:
        """What the others have is known, as far as they answered: judge before anything is
        promised (S4).
        """
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
                return (
                    f"{row.name} is the primary, and nothing is lost as yet",
                    f"demote it first, or: qpid-ha switchover {row.name}",
                    ANOTHER_IS_AHEAD,
                )
        return None

    def _ask_promises(self) -> None:
        if not self.accept_loss and self._refused_as_outsider():
            return
        # The next epoch that a broker may still promise. Where a majority must promise it, no two
        # candidates can begin the same one; where no promise is needed, each broker begins epochs
        # of its own only (S8), and by the operator's decision one beyond what unreached brokers may
        # have begun since.
        others = max(self.peers.promised(), default=0)
        epoch = 1 + max(self.promises.promised, others)
        if self.accept_loss:
            epoch = self.peers.own_epoch(epoch - 1 + OVERRIDE)
        elif not self.peers.strict:
            epoch = self.peers.own_epoch(epoch)
        elif self.promises.candidacy > 0 and self.promises.candidacy >= others:
            # An attempt that came to nothing because too few answered: each of them promises the
            # same epoch again, with nothing to write, and a higher one would cost a write each.
            epoch = self.promises.candidacy
        # Our own promise is on disk before the question leaves (S5): after a crash in between this
        # broker must not promise the same epoch to another candidate. Nor do the others have less
        # time for their answers because our disk is slow.
        if epoch != self.promises.candidacy:
            self.promises.promise_self(epoch)
        self.port.when_saved(lambda: self._consult(epoch))

    def _consult(self, epoch: int) -> None:
        if self.over:
            return
        enough = self.peers.strict and not self.accept_loss
        self.peers.consult(
            self._promised, Ask(epoch=epoch, candidate=self.peers.system_id), enough=enough
        )

    def _refused_as_outsider(self) -> bool:
        comparison = self._compare()
        found = comparison.outside(comparison.own)
        if found is not None:
            self.refuse(*found)
        return found is not None

    def _promised(self, consultation: Consultation) -> None:
        """The others have promised the epoch, or refused, or not answered in time."""
        if self.over:
            return
        epoch = consultation.question.epoch
        self._note(consultation)
        # One refusal is enough to end the attempt, also where a majority agreed: there is, or soon
        # will be, a primary of an epoch as high.
        if consultation.refusals:
            self.promises.refused()
            self.refuse(
                "; ".join(consultation.refusals),
                "look whether another broker has been promoted: qpid-ha status --all",
                OVERTAKEN,
            )
        elif self._is_overtaken(epoch):
            self._refuse_overtaken()
        elif (found := self._objection()) is not None:  # the answers came with news
            self.refuse(*found)
        # Every set that was ever in force was recorded by a majority, and every majority shares a
        # broker with that one: a broker that promised knows the newest set (S3). By the
        # operator's decision silence is no agreement: ask again, and then go on without.
        elif self.peers.hears_majority(consultation) and not (
            self.accept_loss and consultation.silent
        ):
            self._succeed(epoch, self._first_set(), consultation.answered)
        elif self._attempts > 1:
            self._attempts -= 1
            self._consult(epoch)
        elif self.peers.strict and not self.accept_loss:
            self._refuse_minority(consultation, f"promised epoch {epoch}")
        else:
            self._succeed(epoch, self._first_set(), consultation.answered)

    def _is_overtaken(self, epoch: int) -> bool:
        """Whether this broker has agreed to a higher epoch, or changed its state, meanwhile."""
        return self.promises.promised != epoch or self.state.current is not self._was

    def _refuse_overtaken(self) -> None:
        self.refuse(
            f"overtaken: now {self.state.current.value}, epoch "
            f"{self.promises.promised} is promised",
            "ask for its status",
            OVERTAKEN,
        )

    def _first_set(self) -> InSyncSet:
        """Return the set that the new epoch goes on with: the newest, by the operator's word
        without those who are not there.
        """
        comparison = self._compare()
        newest = comparison.newest
        if not self.accept_loss:
            return newest
        there = tuple(
            member
            for member in newest.members
            if member in comparison.of and comparison.of[member].answered
        )
        return InSyncSet(newest.epoch, newest.version, there)

    def _succeed(self, epoch: int, first: InSyncSet, agreed: Sequence[Peer] = ()) -> None:
        self.over = True
        promised = tuple(
            peer.known.system_id
            for peer in (agreed if self.peers.strict else ())
            if peer.known is not None
        )
        self.port.event_log.add("promotion", f="granted", e=epoch)
        comparison = self._compare()
        answered = [system_id for system_id, row in comparison.of.items() if row.answered]
        is_complete = self.promises.is_complete
        gone = [] if self.accept_loss else comparison.gone
        try:
            self._become_primary(Election(epoch, first, answered, gone, promised))
        except ProtocolViolation as error:
            # A batch at the end of the log cannot be applied: this broker has begun no epoch, and
            # the next primary sends it everything anew.
            self.refuse(
                f"this broker's log cannot be read: {error.text}",
                "promote another; this one fetches everything from it",
            )
            return
        if gone and not is_complete:
            self.port.announce(
                "warning",
                f"promoted without {comparison.gone_names}, which will not come back: this broker "
                "has every durable message that was accepted",
                event_code=PROMOTED_WITHOUT,
            )
        if self.accept_loss:
            loss = comparison.losses(comparison.own)["text"]
            self.port.announce(
                "critical",
                f"promoted by the operator, whatever is lost (--accept-loss): {loss}",
                event_code=LOSS_ACCEPTED,
            )
        self._reply(None)


def refusal_of_state(state: BrokerStatus, *, is_following: bool) -> NotAllowed | None:
    """Refuse a broker that is being brought up to date: its primary has more."""
    if state is BrokerStatus.CATCHUP and is_following:
        return NotAllowed(
            STILL_CATCHING_UP, hint="promote a broker whose status is ready", event_code=CATCHING_UP
        )
    return None
