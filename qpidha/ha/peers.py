"""Peers: the other brokers, as seen over the connections that this broker opens to each of them.

Every address of `ha-brokers-url` is dialled and redialled for as long as the broker runs; the one
that answers with our own system id is ourselves and is left alone. Over these connections a broker
hears at once of every change elsewhere, follows a primary, and consults the others before it does
what they must agree to: a promotion (S3), and going on without a member of the set (S2).

Must not know what the answers decide. Source: `docs/internals/promotion.md`; Qpid `StatusCheck.h`,
`Link.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from qpidha.ha.port import Port
from qpidha.ha.wire import Answer, Ask, Status, encode
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.duration import SECOND
from qpidha.model.event_codes import PEER_UNREACHABLE, SETTINGS_DIFFER
from qpidha.model.settings import Settings
from qpidha.model.url import Address

ATTEMPTS = 6
"""How often the others are asked before a broker that sees no majority gives up asking; each takes
half a heartbeat at most.
"""
WRITING = 10 * SECOND
"""For how long a broker whose connection lives is waited for, in ns, where what it is asked for has
to be on its disk before it answers. One that hangs loses its connection sooner.
"""
REDIALS = 5
"""How often a peer that takes connections and closes them is dialled again at once, because its
answer is wanted: until one of them lives for as long as the pause between two attempts.
"""


class PeerState(Enum):
    """How the connection to a peer is."""

    DOWN = "down"
    DIALLING = "dialling"
    UP = "up"
    OURSELVES = "ourselves"


class Peer:
    """One address of the brokers URL."""

    __slots__ = (
        "address",
        "connection_id",
        "deadline",
        "error",
        "failures",
        "features",
        "incompatible",
        "known",
        "opened_at",
        "replicate",
        "state",
        "status",
    )

    def __init__(self, address: Address) -> None:
        self.address = address
        self.state = PeerState.DOWN
        self.connection_id = 0
        self.status: Status | None = None
        """What it said of itself on this connection."""
        self.known: Status | None = None
        """What it last said on any."""
        self.deadline = 0
        """When to dial again while DOWN, when to give up while DIALLING."""
        self.error = ""
        self.features: frozenset[str] = frozenset()
        """What it said on this connection that it knows."""
        self.failures = self.opened_at = 0
        self.incompatible = ""
        """The peer's `ha-recorder` if it differs from ours; such a peer is ignored.
        """
        self.replicate = ""
        """The peer's `ha-replicate` if it differs from ours."""

    @property
    def name(self) -> str:
        """The address as people write it."""
        return self.address.host_port


class Consultation:
    """One question to all others, with a deadline: `done` is called once, when each has answered or
    cannot, or enough have.

    The ends of a peer are told apart, because they mean different things where the manager is
    trusted (S8): where no process listens there is no broker; a silent one may still be primary.
    """

    __slots__ = (
        "answered",
        "deadline",
        "done",
        "enough",
        "gone",
        "needs_votes",
        "newcomers",
        "patient_until",
        "question",
        "refusals",
        "silent",
        "waiting",
    )

    def __init__(
        self,
        question: Ask,
        waiting: list[Peer],
        deadline: int,
        done: Callable[[Consultation], None],
    ) -> None:
        self.question = question
        self.waiting = waiting
        self.answered: list[Peer] = []
        self.enough = len(waiting)
        """After so many answers the others are not waited for."""
        self.deadline = deadline
        self.needs_votes = False
        """Whether a majority has to agree."""
        self.newcomers: list[Peer] = []
        """Peers whose vote does not count as yet (`newcomer.py`). They are asked again when it
        does.
        """
        self.patient_until = 0
        """Until then peers that are connected and have not answered are waited for."""
        self.done = done
        self.refusals: list[str] = []
        self.gone: list[Peer] = []
        """Peers that nothing can be sent to: no process listens at their address."""
        self.silent: list[Peer] = []
        """Peers that did not answer in time: dead, frozen or slow."""


class Peers:
    """All other brokers, and the questions that they have not answered yet."""

    def __init__(self, port: Port, settings: Settings, system_id: str) -> None:
        self.port = port
        self.system_id = system_id
        self.strict = settings.ha_safety == "strict"
        self.ha_recorder = settings.ha_recorder
        self.ha_replicate = settings.ha_replicate
        self.redial = settings.link_maintenance_interval
        # How long to wait for an answer of a peer that seems to be alive. It is part of the time
        # that a failover takes when the old primary hangs, hence a fraction of the heartbeat.
        self.patience = min(settings.link_heartbeat_interval, SECOND) // 2
        self.dial_timeout = max(settings.link_heartbeat_interval, SECOND)
        self.all = [Peer(address) for address in dict.fromkeys(settings.ha_brokers_url)]
        self.consultations: list[Consultation] = []
        self._nonce = 0

    def by_connection(self, connection_id: int) -> Peer | None:
        """Return the peer at the other end of a connection that we opened."""
        for peer in self.all:
            if peer.connection_id == connection_id:
                return peer
        return None

    def others(self) -> list[Peer]:
        """Return all but ourselves."""
        return [peer for peer in self.all if peer.state is not PeerState.OURSELVES]

    def up(self) -> list[Peer]:
        """Return those that are connected and have sent their status."""
        return [peer for peer in self.all if peer.state is PeerState.UP and peer.status is not None]

    def promised(self) -> list[int]:
        """Return the highest epoch that each of the others told that it has promised."""
        return [peer.known.promised for peer in self.others() if peer.known is not None]

    def current_primary(self) -> Peer | None:
        """Return the connected primary of the highest epoch: an old one may not know yet that it is
        replaced.
        """
        best: Peer | None = None
        for peer in self.up():
            assert peer.status is not None
            if BrokerStatus(peer.status.state).is_primary and (
                best is None or best.status is None or peer.status.epoch > best.status.epoch
            ):
                best = peer
        return best

    # -- connections ------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Dial who is due, give up on who does not answer."""
        for peer in self.all:
            if peer.state is PeerState.DIALLING and now >= peer.deadline:
                self.port.hang_up(peer.connection_id)
                self.lost(peer, "no answer", reached=True)
            if peer.state is PeerState.DOWN and now >= peer.deadline:
                self._dial(peer)
        for consultation in list(self.consultations):
            if now < consultation.deadline:
                continue
            if self._are_writing(consultation, now):
                consultation.deadline = now + self.patience
                continue
            consultation.silent += consultation.waiting + consultation.newcomers
            consultation.waiting, consultation.newcomers = [], []
            self._settle(consultation)

    def _are_writing(self, consultation: Consultation, now: int) -> bool:
        """Whether enough answers may still come, from disks. Not if this broker was suspended
        meanwhile: then those who ask have to ask again.
        """
        there = sum(peer.state is PeerState.UP for peer in consultation.waiting)
        return (
            now < min(consultation.patient_until, consultation.deadline + self.patience)
            and there > 0
            and len(consultation.answered) + there >= consultation.enough
        )

    def next_deadline(self) -> int:
        """When to tick next."""
        deadlines = [
            peer.deadline for peer in self.all if peer.state in (PeerState.DOWN, PeerState.DIALLING)
        ]
        deadlines += [consultation.deadline for consultation in self.consultations]
        return min(deadlines, default=0)

    def dial_at_once(self) -> None:
        """Dial now whoever is to be dialled again later."""
        for peer in self.all:
            if peer.state is PeerState.DOWN:
                self._dial(peer)

    def _dial(self, peer: Peer) -> None:
        address = peer.address
        peer.state = PeerState.DIALLING
        peer.deadline = self.port.now + self.dial_timeout
        peer.connection_id = self.port.dial(address.host, address.port, address.encrypted)

    def opened(self, peer: Peer, features: frozenset[str]) -> None:
        """Both links of the connection are attached."""
        peer.state = PeerState.UP
        peer.features = features
        peer.opened_at = self.port.now
        peer.error = ""
        for consultation in self.consultations:
            if consultation.patient_until and peer in consultation.gone:
                consultation.gone.remove(peer)
                consultation.waiting.append(peer)
            if peer in consultation.waiting:
                self._ask(peer, consultation.question)

    def lost(self, peer: Peer, reason: str, *, reached: bool) -> None:
        """The connection is gone, or (not `reached`) never came about."""
        peer.connection_id = 0
        peer.status = None
        peer.features = frozenset()  # it may come back as another version
        peer.incompatible = ""
        if peer.state is PeerState.OURSELVES:
            return
        if reason != peer.error:
            # A broker that refuses this one is worth more notice than an address without a broker.
            self.port.announce(
                "warning" if reached else "info",
                f"no connection to {peer.name}: {reason}; dialling again",
                event_code=PEER_UNREACHABLE,
            )
        now = self.port.now
        lived = peer.state is PeerState.UP and now - peer.opened_at >= self.redial
        if lived or not reached:
            peer.failures = 0
        peer.failures += reached
        peer.state = PeerState.DOWN
        peer.deadline = now + self.redial
        peer.error = reason
        for consultation in self.consultations:
            if peer in consultation.newcomers:
                consultation.newcomers.remove(peer)
                consultation.waiting.append(peer)
        if reached and any(peer in consultation.waiting for consultation in self.consultations):
            if peer.failures < REDIALS:  # only a broker that cannot be reached anew is not heard
                self._dial(peer)
            return
        for consultation in list(self.consultations):
            if peer in consultation.waiting:
                consultation.waiting.remove(peer)
                consultation.gone.append(peer)
                self._settle(consultation)

    def status(self, peer: Peer, status: Status) -> bool:
        """Take a peer's word of itself; False if it is ourselves, and the connection needless, or
        `incompatible`.
        """
        if status.recorder != self.ha_recorder and status.system_id != self.system_id:
            if peer.incompatible != status.recorder:
                self.port.announce(
                    "error",
                    incompatible_text(peer.name, status.recorder, self.ha_recorder),
                    event_code=SETTINGS_DIFFER,
                    peer=peer.name,
                )
            peer.incompatible, peer.status, peer.known = status.recorder, None, None
            return False
        peer.incompatible = ""
        is_another = peer.known is not None and peer.known.system_id != status.system_id
        peer.status = peer.known = status
        if status.system_id != self.system_id:
            self._compare_levels(peer, status.replicate or self.ha_replicate)
            self._count_anew(peer, status, is_another=is_another)
            return True
        peer.state = PeerState.OURSELVES
        for consultation in list(self.consultations):
            if peer in consultation.waiting:
                consultation.waiting.remove(peer)
                self._settle(consultation)
        self.port.hang_up(peer.connection_id)
        return False

    def _count_anew(self, peer: Peer, status: Status, *, is_another: bool) -> None:
        """Ask a peer that is new no longer, and do not count one that is, or `is_another` at the
        same address: it does not know that the former one agreed.
        """
        for consultation in self.consultations:
            if not consultation.needs_votes:
                continue
            if (status.is_new or is_another) and peer in consultation.answered:
                consultation.answered.remove(peer)
                consultation.newcomers.append(peer)
            if not status.is_new and peer in consultation.newcomers:
                consultation.newcomers.remove(peer)
                consultation.waiting.append(peer)
                self._ask(peer, consultation.question)

    def _compare_levels(self, peer: Peer, theirs: str) -> None:
        """Say once that a peer has another `ha-replicate`: whichever of both is primary decides
        whether a queue that names no level is on the others at all.
        """
        differs = theirs if theirs != self.ha_replicate else ""
        if differs and peer.replicate != differs:
            self.port.announce(
                "warning",
                f"{peer.name} has ha-replicate={theirs}, and this broker {self.ha_replicate}: what "
                "is declared without a level is replicated or not as the primary has it. Give all "
                "brokers the same ha-replicate, and restart those that change",
                event_code=SETTINGS_DIFFER,
                peer=peer.name,
            )
        peer.replicate = differs

    # -- consultations ----------------------------------------------------------------------------

    def consult(
        self,
        done: Callable[[Consultation], None],
        question: Ask | None = None,
        *,
        enough: bool = False,
    ) -> Consultation:
        """Ask all others something, by default how they are; `done` is called with the result.

        With `enough`, not before all have answered but as soon as a majority, with ourselves, has
        agreed; and who has to write down what he agrees to may take his time. A broker with another
        `ha-recorder` is not asked, so it cannot agree.
        """
        self._nonce += 1
        question = question or Ask()
        question.nonce, question.recorder = self._nonce, self.ha_recorder
        asked = [peer for peer in self.others() if not peer.incompatible]
        consultation = Consultation(question, asked, self.port.now + self.patience, done)
        if enough:
            # Of n brokers n // 2 others make a majority with ourselves.
            consultation.enough = (1 + len(self.others())) // 2
            consultation.needs_votes = True
            if question.epoch:
                consultation.patient_until = self.port.now + WRITING
        self.consultations.append(consultation)
        for peer in list(consultation.waiting):
            if peer.state is PeerState.UP:
                self._ask(peer, question)
            elif peer.state is PeerState.DOWN:
                self._dial(peer)
        self._settle(consultation)
        return consultation

    def _ask(self, peer: Peer, question: Ask) -> None:
        """Ask one: what a broker is to agree to when our own part in it is on disk (S5)."""
        if question.epoch:
            self.port.send(peer.connection_id, encode(question))
        else:
            self.port.tell(peer.connection_id, encode(question))

    def answered(self, peer: Peer, answer: Answer) -> None:
        """Take an answer; one that is late, or of an earlier connection, is ignored."""
        for consultation in list(self.consultations):
            if consultation.question.nonce == answer.nonce and peer in consultation.waiting:
                consultation.waiting.remove(peer)
                _take(consultation, peer, answer)
                self._settle(consultation)

    def hears_majority(self, consultation: Consultation) -> bool:
        """Whether so many agreed that no other broker has a majority (S2, S3).

        With `ha-safety=trust-manager` also if every broker that may be alive agreed (S8): none
        was silent, and none refused. The majority is of all configured brokers, not of those
        that were heard: two halves of a cluster must not both have one.
        """
        heard, all_ = 1 + len(voters(consultation)), 1 + len(self.others())
        return 2 * heard > all_ or (
            not self.strict and not consultation.silent and not consultation.refusals
        )

    def own_epoch(self, least: int) -> int:
        """Return an epoch from `least` on that no other broker begins.

        Where no majority has to promise, nothing else keeps two brokers that do not hear each other
        from beginning the same one, and then neither would give way when they meet, nor could a
        backup tell their logs apart.
        """
        for place, peer in enumerate(self.all, start=1):
            if peer.state is PeerState.OURSELVES:
                return least + (place - least) % len(self.all)
        return least

    def address_of(self, system_id: str) -> str:
        """Return where a broker is, for people; its system id where that is not known."""
        for peer in self.all:
            if peer.known is not None and peer.known.system_id == system_id:
                return peer.name
        return system_id

    def _settle(self, consultation: Consultation) -> None:
        awaited = consultation.waiting or consultation.newcomers
        is_over = not awaited or len(consultation.answered) >= consultation.enough
        if is_over and consultation in self.consultations:
            self.consultations.remove(consultation)
            if self.port.now >= consultation.deadline + self.patience:
                # This broker was suspended. What the others answered before may have been overtaken
                # since: one that agreed to a hand-over is promoted again when it hears nothing, and
                # an old agreement must not make a second primary (S3). Who asked asks again.
                consultation.silent += consultation.answered
                consultation.answered = []
            consultation.done(consultation)


def _take(consultation: Consultation, peer: Peer, answer: Answer) -> None:
    """Put a peer where its answer belongs."""
    status = peer.status
    is_new = status is not None and status.is_new
    abstained = status is not None and abstains(status, consultation.question)
    if is_new and consultation.needs_votes and (answer.granted or abstained):
        consultation.newcomers.append(peer)
    elif answer.granted:
        consultation.answered.append(peer)
    elif abstained:
        consultation.silent.append(peer)
    else:
        consultation.refusals.append(f"{peer.name}: {answer.reason}")


def abstains(status: Status, question: Ask) -> bool:
    """Whether a broker that is so refuses only because it is new, and not because of a promise that
    stands in the way.
    """
    is_record = question.version > 0
    return status.is_new and status.promised < question.epoch + is_record


def voters(consultation: Consultation) -> list[Peer]:
    """Return those that answered and whose vote counts."""
    return [peer for peer in consultation.answered if peer.status is None or not peer.status.is_new]


def incompatible_text(name: str, theirs: str, ours: str) -> str:
    """Say that a broker records elsewhere than we do, and what to do."""
    return (
        f"{name} has ha-recorder={theirs}, and this broker {ours}: neither follows nor "
        "promises nor agrees. "
        "Stop all brokers, give them the same ha-recorder, and start them"
    )
