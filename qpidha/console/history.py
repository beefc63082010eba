"""History: which state each broker was in since the console began, as far as the console saw it.

It is made of the looks that are taken anyway, so nothing is asked for it, and a change is known to
the second. A broker that is watched and answers speaks for itself; the others are as a broker that
answers reports them. While none does, a broker is `unreachable` if it is watched, else `unknown`.
Kept in memory, up to `MOST` changes; knows neither HTTP nor the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qpidha.console.looks import Look
from qpidha.model.broker_states import ACTIVE, PRIMARY_STATES, UNREACHABLE

UNKNOWN = "unknown"
MOST = 2000
"""Changes that are kept."""


class Change(NamedTuple):
    """A broker came from one state to another."""

    at: float
    """Seconds since 1970."""
    key: str
    before: str
    """Empty for the first one that is known."""
    after: str
    epoch: int


class Span(NamedTuple):
    """A broker was in a state from one time to another."""

    begin: float
    end: float
    state: str
    epoch: int


class Failover(NamedTuple):
    """The primary role came to a broker."""

    at: float
    """When the new primary was active."""
    epoch: int
    before: str
    """Name of the former primary."""
    after: str
    gap: float | None
    """Seconds without an active primary, to the time between looks; None if one was there."""


@dataclass(slots=True)
class Lane:
    """What is known of one broker."""

    key: str
    """Its system id; while that is not known its address."""
    name: str
    address: str
    state: str = ""
    epoch: int = 0
    since: float = 0.0
    seen: float = 0.0
    """When it was last heard of; 0 if never."""
    is_member: bool = True
    """Whether it is watched, or those who answered last have it in their cluster."""


@dataclass(slots=True)
class History:
    """What the console saw of all brokers."""

    began: float
    """When the first look was taken."""
    lanes: dict[str, Lane] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=MOST))
    _looks: dict[str, Look] = field(default_factory=dict)
    """The last look at each broker that is watched, by its place."""
    _own: dict[str, str] = field(default_factory=dict)
    """Key of each broker that is watched and has answered, by its place."""

    def take(self, place: str, look: Look, now: float) -> None:
        """Take a look at a broker that is watched."""
        if not self._looks:
            self.began = now
        self._looks[place] = look
        if look.status is not None:
            self._own[place] = str(look.status["system_id"])
        own = set(self._own.values())
        heard: set[str] = set()
        for at, seen in self._looks.items():
            if seen.status is None:
                continue
            heard.add(self._own[at])
            self._note(_self_of(seen.status), now, answered=True)
        places = {lane.address for lane in self.lanes.values() if lane.key in heard}
        for seen in self._looks.values():
            for row in (seen.status or {}).get("members", ()):
                key = row["system_id"] or row["address"]
                # Who speaks for himself may have another id there still, of before his last start.
                if key not in heard and row["address"] not in places:
                    heard.add(key)
                    is_up = bool(row["connected"]) and key not in own
                    self._note(row if is_up else {**row, "state": UNREACHABLE}, now, answered=is_up)
        for lane in self.lanes.values():
            if heard:
                lane.is_member = lane.key in heard or lane.key in own
            if lane.key not in heard:
                self._change(lane, UNREACHABLE if lane.key in own else UNKNOWN, lane.epoch, now)

    def _note(self, row: dict[str, Any], now: float, *, answered: bool) -> None:
        key = row["system_id"] or row["address"]
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = self._of_address(row["address"]) or Lane(key, "", "")
            self._rename(lane, key)
        lane.name = row["name"] or row["address"]
        lane.address = row["address"] or lane.address
        if answered:
            lane.seen = now
        self._change(lane, str(row["state"]), int(row["epoch"]) or lane.epoch, now)

    def _of_address(self, address: str) -> Lane | None:
        """Take the lane of a broker of which the address alone was known, or that had another id
        before its last start.
        """
        found = [lane for lane in self.lanes.values() if address and lane.address == address]
        return self.lanes.pop(found[0].key) if found else None

    def _rename(self, lane: Lane, key: str) -> None:
        """Give a lane and its past another key."""
        if lane.key != key:
            renamed = (
                each._replace(key=key) if each.key == lane.key else each for each in self.changes
            )
            self.changes = deque(renamed, maxlen=MOST)
            lane.key = key

    def _change(self, lane: Lane, state: str, epoch: int, now: float) -> None:
        if state != lane.state:
            self.changes.append(Change(now, lane.key, lane.state, state, epoch))
            lane.state, lane.since = state, now
        lane.epoch = epoch

    def key_of(self, place: str) -> str:
        """Return the key of a broker that is watched; empty while it is not known."""
        return self._own.get(place, "")

    def name(self, key: str) -> str:
        """Return the name of a broker."""
        return self.lanes[key].name if key in self.lanes else key

    def spans(self, key: str, begin: float, now: float) -> list[Span]:
        """Return the states of a broker one after the other, from `begin` to `now`."""
        found: list[Span] = []
        last: Change | None = None
        for change in (*(each for each in self.changes if each.key == key), None):
            end = now if change is None else change.at
            if last is not None and end > begin:
                found.append(Span(max(last.at, begin), end, last.after, last.epoch))
            last = change
        return found

    def failovers(self) -> list[Failover]:
        """Return how the primary role moved, the newest first."""
        return list(_failovers(self.changes, self.name))[::-1]


def _self_of(status: dict[str, Any]) -> dict[str, Any]:
    """Return what a broker says of itself as the others' rows say it."""
    names = ("system_id", "name", "address", "state", "epoch")
    return {name: status.get(name, "") or ("" if name != "epoch" else 0) for name in names}


def _failovers(changes: Iterable[Change], name: Any) -> Iterator[Failover]:
    primary = ""
    lost: float | None = None
    for change in changes:
        if change.after == ACTIVE:
            if primary and (change.key != primary or lost is not None):
                gap = None if lost is None else change.at - lost
                yield Failover(change.at, change.epoch, name(primary), name(change.key), gap)
            primary, lost = change.key, None
        elif change.key == primary and change.before in PRIMARY_STATES and lost is None:
            lost = change.at
