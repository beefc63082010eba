"""History: what the clients of one run sent, were told and got; the facts that checkers judge by.

A key names a transmission, or, from a sender that gives its messages ids, a message with all its
transmissions: where these are known again, that message is there once. For each queue that it goes
to there is a `Duty`: once the transmission is accepted, the message has to be in one of the places
of its duty until a receiver says that it is done with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DURABLE_HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"
SENT, ACCEPTED, DOUBT, REFUSED = "sent", "accepted", "in doubt", "refused"


class Violation(AssertionError):
    """A property does not hold."""


@dataclass(slots=True)
class Transmission:
    """One message on its way from a sender, once; or all the times that it was sent with the same
    id.
    """

    sender: str
    message: int
    numbers: list[int]
    """When it was sent, as its sender counts; more than one where it has an id."""
    durable: bool
    when: int
    """The last time."""
    began: int
    """The first time."""
    state: str = SENT
    ended: int = 0
    """When its last outcome was known."""
    was_in_doubt: bool = False


@dataclass(slots=True)
class Duty:
    """That one transmission has to be somewhere."""

    key: str
    durable: bool
    places: dict[str, None]
    consumed: bool = False
    accepted: bool = False
    excused: bool = False
    purged: bool = False
    """Whether an administrator purges its queue: then it may be gone, or not."""
    adrift: bool = False
    """Whether it was on a queue that is not on every broker (`levels.py`)."""
    displaced: bool = False
    """Whether an administrator may have moved it to its queue: then it comes in any order."""
    known_again: bool = False
    """Whether another one is there in its place, or was (`remembering.py`)."""
    taken_from: str = ""
    """Where it was consumed."""


@dataclass(slots=True)
class Settlement:
    """That a broker has confirmed that a message was consumed."""

    receiver: str
    epoch: int
    durable: bool
    when: int


@dataclass
class Facts:
    """Everything that is known from outside."""

    transmissions: dict[str, Transmission] = field(default_factory=dict)
    duties: dict[tuple[str, str], Duty] = field(default_factory=dict)
    """By queue and key."""
    settled: dict[tuple[str, str], Settlement] = field(default_factory=dict)
    """Consumptions that a broker has confirmed, by queue and key."""
    stale_deliveries: int = 0
    """Messages that a primary gave whose time was over, after their consumption had been settled by
    a later one.
    """
    seen: set[tuple[str, str]] = field(default_factory=set)
    rejections: set[tuple[str, str]] = field(default_factory=set)
    """What receivers rejected, by queue and key."""
    first_acceptance: dict[int, int] = field(default_factory=dict)
    """Epoch -> when a sender was first told by its primary that a message is accepted that nobody
    had consumed.
    """
    first: str = ""
    """The queue of which the duties are of what is on one of several."""
    alternates: dict[str, str] = field(default_factory=dict)
    """Queue -> where its rejected messages go."""
    dies: bool = False
    """Whether messages go there for other reasons too."""
    moves: dict[str, str] = field(default_factory=dict)
    """Queue -> where a mover brings its messages."""
    in_transactions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Transmission -> the queues on which it is to be, on all or on none."""
    hashed: dict[str, None] = field(default_factory=dict)
    """Transmissions that are on one of several queues; their duties are that of the first."""
    shifts: set[str] = field(default_factory=set)
    """Queues from which messages were moved by an administrator."""
    purges: set[str] = field(default_factory=set)
    """Queues that were purged."""
    timed: set[str] = field(default_factory=set)
    """Transmissions with a time to live."""
    late: set[str] = field(default_factory=set)
    """Transmissions that come when they are due, by clocks that differ: in any order."""
    due: dict[str, int] = field(default_factory=dict)
    """Transmission -> before when nobody may have it."""
    deletions: set[str] = field(default_factory=set)
    """Queues that were deleted."""
    levels: bool = False
    """Whether queues get other replicate levels."""
    valued: tuple[str, ...] = ()
    """Queues with last values."""
    values: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    """Queue and value -> the messages that are of it."""
    repeating: set[str] = field(default_factory=set)
    """Senders that send again what was accepted."""
    known_again: dict[tuple[str, str], tuple[Duty | None, bool]] = field(default_factory=dict)
    """By queue and transmission, which one it was taken for, if that was there; and whether that
    had been excused before anybody was told that it is accepted.
    """
    accepted: int = 0
    delivered: int = 0
    lost_in_total_failures: int = 0

    # -- what senders tell ------------------------------------------------------------------------

    def sent(self, sender: Any, message: int, number: int, now: int) -> bytes:
        """A sender is about to send; return what."""
        key = name_of(sender, message, number)
        known = self.transmissions.get(key)
        if known is None:
            self.transmissions[key] = Transmission(
                sender.host, message, [number], sender.durable, now, now
            )
        else:
            known.numbers.append(number)
            known.when, known.state = now, SENT
        for queue in sender.queues:
            places = dict.fromkeys((queue, self.alternates[queue]) if self.dies else (queue,))
            duty = self.duties.setdefault((queue, key), Duty(key, sender.durable, places))
            duty.excused = duty.excused and duty.accepted
            if sender.hashed_to:
                self.hashed[key] = None
                duty.places |= dict.fromkeys(sender.hashed_to)
            if queue in self.valued:
                self.values.setdefault((queue, sender.value_of(key)), {})[key] = None
        if sender.is_transactional:
            self.in_transactions[key] = sender.queues
        text = b"<" + key.encode() + b">" + sender.padding
        if sender.write is not None:
            return bytes(sender.write(sender, key, text))
        head = DURABLE_HEADER if sender.durable else b""
        if sender.level_of is not None:
            durable = b"\x41" if sender.durable else b"\x42"
            level = bytes((sender.level_of(key),))
            head = b"\x00\x53\x70\xc0\x04\x02" + durable + b"\x50" + level
        if sender.has_ids:
            head += b"\x00\x53\x73\xc0" + bytes((len(key) + 3, 1, 0xA1, len(key))) + key.encode()
        return head + b"\x00\x53\x75\xb0" + len(text).to_bytes(4, "big") + text

    def outcome(
        self, sender: Any, message: int, number: int, state: str, now: int = 0
    ) -> Transmission:
        """A sender knows, or will never know."""
        key = name_of(sender, message, number)
        transmission = self.transmissions[key]
        transmission.was_in_doubt |= state == DOUBT
        transmission.ended = now
        if state != REFUSED or not transmission.was_in_doubt:
            transmission.state = state
        if state == ACCEPTED:
            self.accepted += 1
            for queue in sender.queues:
                self.duties[queue, key].accepted = True
                if (queue, key) in self.known_again:
                    self._accept_in_place_of(queue, key)
        return transmission

    def _accept_in_place_of(self, queue: str, key: str) -> None:
        """A message was accepted as one that is there, which is accepted by that."""
        self.duties[queue, key].known_again = True
        twin, is_excused = self.known_again[queue, key]
        if twin is not None:
            twin.accepted = True
            twin.excused = twin.excused and not is_excused

    # -- what receivers tell ----------------------------------------------------------------------

    def consumed(self, queue: str, key: str) -> None:
        """A receiver is done with a message."""
        duty = self._duty(queue, key)
        if duty is None:
            return
        if duty.consumed and duty.taken_from != queue:
            self._hand_over(duty, {})
        duty.consumed, duty.taken_from = True, queue

    def look(self, present: dict[str, dict[str, bool]]) -> None:
        """See what is there: a copy that is still elsewhere is not the one that was taken."""
        for duty in self.duties.values():
            if duty.consumed and any(
                duty.key in present.get(place, ())
                for place in duty.places.keys() - {duty.taken_from}
            ):
                self._hand_over(duty, present)

    def _hand_over(self, duty: Duty, present: dict[str, dict[str, bool]]) -> None:
        """What was taken was the copy on another queue, if there is one that may have come there
        and is not to be seen.
        """
        for origin in self.alternates:
            twin = self.duties.get((origin, duty.key))
            if (
                twin is not None
                and not twin.consumed
                and (origin, duty.key) not in self.known_again
                and duty.taken_from in twin.places
                and not is_present(twin, present)
            ):
                twin.consumed, twin.taken_from = True, duty.taken_from
                duty.consumed = False
                return

    def _duty(self, queue: str, key: str) -> Duty | None:
        """Return the duty that a message on a queue meets; where several lead to one place, rather
        one that is not met yet, of a queue to which it came, and that nothing excuses.
        """
        found = [
            (duty.consumed, (origin, key) in self.known_again, duty.purged or duty.excused, duty)
            for origin in self._origins(queue, key)
            if (duty := self.duties.get((origin, key))) is not None and queue in duty.places
        ]
        return min(found, key=lambda row: row[:3])[3] if found else None

    def rejected(self, queue: str, key: str) -> None:
        """A receiver will not have a message: it goes elsewhere, or nowhere."""
        self.rejections.add((queue, key))
        duty = self._duty(queue, key)
        elsewhere = self.alternates.get(queue)
        if duty is not None and elsewhere is None:
            duty.consumed = True
        elif duty is not None and elsewhere is not None:
            duty.places[elsewhere] = None

    def moving(self, queue: str, key: str) -> None:
        """A mover commits: a message goes elsewhere, or stays where it is."""
        duty = self._duty(queue, key)
        if duty is not None:
            duty.places[self.moves[queue]] = None

    def settle(self, receiver: Any, key: str, now: int) -> None:
        """A receiver was told that its acceptance, or its commit, is committed."""
        durable = self.transmissions[key].durable
        self.settled[receiver.address, key] = Settlement(
            receiver.host, receiver.epoch, durable, now
        )

    def moved(self, queue: str, key: str) -> None:
        """A mover was told that its commit is committed: so is the message, whatever its sender
        knows.
        """
        duty = self._duty(queue, key)
        if duty is not None and not duty.excused:
            duty.accepted = True

    def purged(self, queue: str) -> None:
        """A purge of a queue begins: what was sent to it until now may go."""
        self.purges.add(queue)
        for duty in self.duties.values():
            if queue in duty.places:
                duty.purged = True

    def shifted(self, queue: str, target: str) -> None:
        """A move of the messages of a queue begins, to a target, or back to where they died."""
        self.shifts.add(queue)
        for duty in self.duties.values():
            if queue in duty.places:
                if target:
                    duty.places[target] = None
                duty.displaced = duty.displaced or target not in self.moves.values()

    def may_expire(self, key: str) -> None:
        """The time of a message is over: it may go."""
        for duty in self.duties.values():
            if duty.key == key:
                duty.purged = True

    def deleted(self, queue: str) -> None:
        """A queue is being deleted: what was sent to it until now may go where its rejected
        messages go.
        """
        self.deletions.add(queue)
        for duty in self.duties.values():
            if queue in duty.places:
                duty.places[self.alternates[queue]] = None

    def may_be(self, queue: str, key: str) -> bool:
        """Tell whether a message may be on a queue at all."""
        return any(
            (duty := self.duties.get((origin, key))) is not None and queue in duty.places
            for origin in self._origins(queue, key)
        )

    def _origins(self, queue: str, key: str) -> tuple[str, ...]:
        """Return the queues of which duties may lead to a queue."""
        if key in self.hashed:
            return (self.first,)
        return (queue, *self.alternates, *self.moves)

    def is_displaced(self, queue: str, key: str) -> bool:
        """Whether a message may come in any order to a queue."""
        duty = self._duty(queue, key)
        return key in self.late or (duty is not None and duty.displaced)

    def total_failure(self, present: dict[str, dict[str, bool]], *, durable_too: bool) -> None:
        """No broker was left that had everything: what is gone is gone."""
        for duty in self.duties.values():
            if (
                not duty.consumed
                and not duty.excused
                and (durable_too or not duty.durable)
                and not is_present(duty, present)
            ):
                duty.excused = True
                self.lost_in_total_failures += duty.accepted
        for place, settlement in list(self.settled.items()):
            if durable_too or not settlement.durable:
                del self.settled[place]


def name_of(sender: Any, message: int, number: int) -> str:
    """Return the key of a transmission."""
    return f"{sender.host}.{message}" if sender.has_ids else f"{sender.host}.{message}.{number}"


def is_present(duty: Duty, present: dict[str, dict[str, bool]]) -> bool:
    """Tell whether a message is in one of its places."""
    return any(duty.key in present.get(place, ()) for place in duty.places)


def key_of(payload: bytes) -> str:
    """Read the key in a message."""
    start = payload.rfind(b"<") + 1
    return payload[start : payload.index(b">", start)].decode()
