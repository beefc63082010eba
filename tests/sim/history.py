"""History: what the clients of one run sent, were told and got; the facts that checkers judge by.

A key names a transmission. For each queue that it goes to there is a `Duty`: once the transmission is accepted, the
message has to be in one of the places of its duty until a receiver says that it is done with it.
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
    """One message on its way from a sender, once."""

    sender: str
    message: int
    number: int
    durable: bool
    when: int
    state: str = SENT


@dataclass(slots=True)
class Duty:
    """That one transmission has to be somewhere."""

    key: str
    durable: bool
    places: dict[str, None]
    consumed: bool = False
    accepted: bool = False
    excused: bool = False


@dataclass
class Facts:
    """Everything that is known from outside."""

    transmissions: dict[str, Transmission] = field(default_factory=dict)
    duties: dict[tuple[str, str], Duty] = field(default_factory=dict)
    """By queue and key."""
    settled: dict[tuple[str, str], tuple[int, bool]] = field(default_factory=dict)
    """Consumptions that a broker has confirmed -> its epoch, and whether the message was durable."""
    stale_deliveries: int = 0
    """Messages that a primary gave whose time was over, after their consumption had been settled by a later one."""
    seen: set[tuple[str, str]] = field(default_factory=set)
    first_acceptance: dict[int, int] = field(default_factory=dict)
    """Epoch -> when a sender was first told by its primary that a message is accepted."""
    alternates: dict[str, str] = field(default_factory=dict)
    """Queue -> where its rejected messages go."""
    in_transactions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Transmission -> the queues on which it is to be, on all or on none."""
    accepted: int = 0
    delivered: int = 0
    lost_in_total_failures: int = 0

    # -- what senders tell ------------------------------------------------------------------------

    def sent(self, sender: Any, message: int, number: int, now: int) -> bytes:
        """A sender is about to send; return what."""
        key = f"{sender.host}.{message}.{number}"
        self.transmissions[key] = Transmission(sender.host, message, number, sender.durable, now)
        for queue in sender.queues:
            self.duties[queue, key] = Duty(key, sender.durable, {queue: None})
        if sender.is_transactional:
            self.in_transactions[key] = sender.queues
        text = b"<" + key.encode() + b">" + sender.padding
        return (DURABLE_HEADER if sender.durable else b"") + b"\x00\x53\x75\xb0" + len(text).to_bytes(4, "big") + text

    def outcome(self, sender: Any, message: int, number: int, state: str) -> Transmission:
        """A sender knows, or will never know."""
        key = f"{sender.host}.{message}.{number}"
        transmission = self.transmissions[key]
        transmission.state = state
        if state == ACCEPTED:
            self.accepted += 1
            for queue in sender.queues:
                self.duties[queue, key].accepted = True
        return transmission

    # -- what receivers tell ----------------------------------------------------------------------

    def consumed(self, queue: str, key: str) -> None:
        """A receiver is done with a message."""
        duty = self._duty(queue, key)
        if duty is not None:
            duty.consumed = True

    def _duty(self, queue: str, key: str) -> Duty | None:
        """Return the duty that a message on a queue meets; where several lead to one place, rather one that is not met yet."""
        duties = [self.duties.get((origin, key)) for origin in (queue, *self.alternates)]
        found = [duty for duty in duties if duty is not None and queue in duty.places]
        return next((duty for duty in found if not duty.consumed), found[0] if found else None)

    def rejected(self, queue: str, key: str) -> None:
        """A receiver will not have a message: it goes elsewhere, or nowhere."""
        duty = self._duty(queue, key)
        elsewhere = self.alternates.get(queue)
        if duty is not None and elsewhere is None:
            duty.consumed = True
        elif duty is not None and elsewhere is not None:
            duty.places[elsewhere] = None

    def may_be(self, queue: str, key: str) -> bool:
        """Tell whether a message may be on a queue at all."""
        origins = (queue, *self.alternates)
        return any((duty := self.duties.get((origin, key))) is not None and queue in duty.places for origin in origins)

    def total_failure(self, present: dict[str, dict[str, bool]], *, durable_too: bool) -> None:
        """No broker was left that had everything: what is gone is gone."""
        for duty in self.duties.values():
            if not duty.consumed and not duty.excused and (durable_too or not duty.durable) and not is_present(duty, present):
                duty.excused = True
                self.lost_in_total_failures += duty.accepted
        for place, (_, durable) in list(self.settled.items()):
            if durable_too or not durable:
                del self.settled[place]


def is_present(duty: Duty, present: dict[str, dict[str, bool]]) -> bool:
    """Tell whether a message is in one of its places."""
    return any(duty.key in present.get(place, ()) for place in duty.places)


def key_of(payload: bytes) -> str:
    """Read the key in a message."""
    start = payload.rfind(b"<") + 1
    return payload[start : payload.index(b">", start)].decode()
