"""Checks of brokers in plain Python: accepted before safe, one primary an epoch, and the phases of
failovers, from facts.

The definitions are those of `checks.py`, under the same names. What a broker accepted is compared
with what its own event log says before, in the order in which it wrote: no clock is in that. What a
client saw is compared by time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from qpidha.model.broker_states import PRIMARY_STATES
from qpidha.pipeline.checks import Settings
from qpidha.pipeline.events import FOREVER
from qpidha.pipeline.oracle.facts import Facts, Reign
from qpidha.pipeline.oracle.times import Span, overlapping
from qpidha.pipeline.verdict import Finding, Row

NO_EPOCH = 0
"""What a broker without a cluster writes as its epoch."""


class Confirmed:
    """Which positions the members of the in-sync sets had, from when on, while one writer was
    primary.
    """

    def __init__(self, reign: Reign) -> None:
        self._sets = reign.spans()
        self._since = [s for s, *_ in self._sets]
        by_peer: dict[str, list[tuple[int, int, int]]] = {}
        for s, at, peer, last in reign.confirmed:
            by_peer.setdefault(peer, []).append((last, s, at))
        self._confirmed = {peer: _from_the_last(rows) for peer, rows in by_peer.items()}

    @property
    def has_set(self) -> bool:
        """Whether an in-sync set was named at all."""
        return bool(self._sets)

    def lacking(self, position: int, s: int) -> list[str] | None:
        """Return who of the set in force at event `s` had not confirmed a position before; None: no
        set was named.
        """
        index = bisect_left(self._since, s) - 1
        return (
            None
            if index < 0
            else [
                peer for peer in sorted(self._sets[index][-1]) if self._first(peer, position)[0] > s
            ]
        )

    def safe_at(self, position: int) -> int:
        """Return when all members of a set in force had a position; FOREVER: never."""
        found = FOREVER
        for _, _, at, end, members in self._sets:
            all_have = max((self._first(peer, position)[1] for peer in members), default=at)
            if max(at, all_have) <= end:
                found = min(found, max(at, all_have))
        return found

    def _first(self, peer: str, position: int) -> tuple[int, int]:
        """Return the least `s` and the least time at which a peer confirmed a position or one
        beyond.
        """
        rows = self._confirmed.get(peer, [])
        index = bisect_left(rows, (position, -FOREVER, -FOREVER))
        return rows[index][1:] if index < len(rows) else (FOREVER, FOREVER)


def _from_the_last(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return confirmations by position, each with the least `s` and the least time of its own or a
    later position.
    """
    rows.sort()
    for index in range(len(rows) - 2, -1, -1):
        last, s, at = rows[index]
        rows[index] = last, min(s, rows[index + 1][1]), min(at, rows[index + 1][2])
    return rows


def accepted_before_safe(facts: Facts, _: Settings) -> Finding:
    """Compare acceptances, by brokers and as seen by clients, with what the in-sync backups had
    confirmed.
    """
    finding = Finding(
        "accepted-before-safe",
        dict.fromkeys(("accepted", "unsafe", "unjudged", "client_accepted", "client_unsafe"), 0),
    )
    known: dict[tuple[str, str, int], Confirmed] = {}
    for key, reign in sorted(facts.reigns.items()):
        known[key] = Confirmed(reign)
        _by_broker(finding, key, reign, known[key])
    for name, places in sorted(facts.placed.items()):
        if name in facts.accepted_ids:
            _by_client(finding, facts, name, sorted(place[:4] for place in places), known)
    return finding


def _by_broker(
    finding: Finding, key: tuple[str, str, int], reign: Reign, confirmed: Confirmed
) -> None:
    """Judge what one primary accepted."""
    for s, at, first, last in sorted(reign.accepted):
        number = last - first + 1
        lacking = confirmed.lacking(last, s)
        finding.counts["accepted"] += number
        if lacking is None:
            finding.counts["unjudged"] += number
        elif lacking and number > 0:
            finding.counts["unsafe"] += number
            row: Row = {
                "node": key[0],
                "boot": key[1],
                "epoch": key[2],
                "s": s,
                "at_ns": at,
                "position": first,
                "position_to": last,
            }
            finding.offenders.setdefault("unsafe", []).append(row | {"lacking": " ".join(lacking)})


def _by_client(
    finding: Finding,
    facts: Facts,
    name: str,
    places: list[tuple[str, str, int, int]],
    known: dict[tuple[str, str, int], Confirmed],
) -> None:
    """Judge what clients were told of one message id."""
    finding.counts["client_accepted"] += 1
    judged = [place for place in places if place[:3] in known and known[place[:3]].has_set]
    times = [known[place[:3]].safe_at(place[3]) for place in judged] + facts.gone.get(name, [])
    if not times:
        finding.counts["unjudged"] += 1
        return
    told, safe = facts.accepted_ids[name], min(times)
    if told + facts.epsilon < safe or safe == FOREVER:
        finding.counts["client_unsafe"] += 1
        node, _, epoch, position = (judged or places)[0]
        example: Row = {
            "msg": name,
            "accepted_ns": told,
            "safe_ns": None if safe == FOREVER else safe,
        }
        finding.offenders.setdefault("client_unsafe", []).append(
            example | {"node": node, "epoch": epoch, "position": position}
        )


def primaries(facts: Facts, _: Settings) -> Finding:
    """Find epochs with two primaries, brokers that went back, and primaries at the same time."""
    who: dict[int, set[tuple[str, str]]] = {}
    for writer, rows in facts.roles.items():
        for _s, _at, role, epoch in rows:
            if role == "active" and epoch != NO_EPOCH:
                who.setdefault(epoch, set()).add(writer)
    for (node, boot, epoch), reign in facts.reigns.items():
        if reign.accepted and epoch != NO_EPOCH:
            who.setdefault(epoch, set()).add((node, boot))
    offenders: dict[str, list[Row]] = {}
    for epoch, writers in sorted(who.items()):
        if len(writers) > 1:
            names = " ".join(f"{node}/{boot}" for node, boot in sorted(writers))
            offenders.setdefault("shared_epochs", []).append({"epoch": epoch, "writers": names})
    by_node: dict[str, list[tuple[int, int, str, int]]] = {}
    for (node, boot), promised in facts.promises.items():
        by_node.setdefault(node, []).extend((at, s, boot, epoch) for s, at, epoch in promised)
    for node, promises in sorted(by_node.items()):
        for at, s, boot, epoch in sorted(promises):
            earlier = (
                e for t, n, b, e in promises if (n < s if b == boot else t + facts.epsilon < at)
            )
            highest = max(earlier, default=-1)
            if epoch < highest:
                offenders.setdefault("epoch_regressions", []).append(
                    {"node": node, "s": s, "at_ns": at, "epoch": epoch, "after": highest}
                )
    writers_by_number = sorted(facts.roles)
    spans = [
        span
        for number, writer in enumerate(writers_by_number)
        for span in _active(facts, writer, number)
    ]
    for late, before in overlapping(spans, facts.epsilon):
        one, other = writers_by_number[late[2]], writers_by_number[before[2]]
        row: Row = {
            "node": one[0],
            "boot": one[1],
            "other": other[0],
            "other_boot": other[1],
            "start_ns": late[0],
        }
        offenders.setdefault("overlaps", []).append(
            row | {"length_ns": min(late[1], before[1]) - late[0]}
        )
    counts = {"epochs": len(who)} | {
        name: len(offenders.get(name, []))
        for name in ("shared_epochs", "epoch_regressions", "overlaps")
    }
    return Finding("primaries", counts, offenders)


def _active(facts: Facts, writer: tuple[str, str], number: int) -> Iterator[Span]:
    """Yield from when to when a writer was active."""
    rows = sorted(facts.roles[writer])
    for index, (_, at, role, _) in enumerate(rows):
        if role == "active":
            yield (
                at,
                rows[index + 1][1] if index + 1 < len(rows) else facts.writer_ends[writer],
                number,
            )


def failover(facts: Facts, _: Settings) -> Finding:
    """Say for each primary how it became one, and how long each phase took."""
    begun: dict[int, list[tuple[int, str]]] = {}
    active: dict[int, int] = {}
    for (node, _boot), rows in facts.roles.items():
        for _s, at, role, epoch in rows:
            if role in PRIMARY_STATES:
                begun.setdefault(epoch, []).append((at, node))
            if role == "active":
                active[epoch] = min(active.get(epoch, FOREVER), at)
    accepted = sorted(
        (begin, end) for intervals in facts.enqueues.values() for begin, end, ok in intervals if ok
    )
    told = _first_accepted(facts)
    table: list[Row] = []
    previous = -1
    for index, epoch in enumerate(sorted(begun)):
        promoted, new = min(begun[epoch])
        row = _phases(facts, epoch, promoted, active.get(epoch, FOREVER), previous) | {
            "accepted_ns": told.get(epoch)
        }
        served = min(
            (
                end
                for begin, end in accepted[bisect_left(accepted, (_int(row["since_ns"]) + 1, -1)) :]
            ),
            default=FOREVER,
        )
        until = next(
            (
                at
                for at in (served, row["accepted_ns"], row["active_ns"])
                if at is not None and at != FOREVER
            ),
            None,
        )
        row |= {
            "served_ns": None if served == FOREVER else served,
            "new": new,
            "first": int(index == 0),
        }
        row["total_ns"] = _int(until) - _int(row["since_ns"]) if until is not None else None
        table.append(row)
        previous = max(previous, active.get(epoch, -1))
    later = table[1:]
    counts = {"epochs": len(table), "failovers": len(later)}
    counts["longest_ns"] = max(
        (_int(row["total_ns"]) for row in later if row["total_ns"] is not None), default=0
    )
    return Finding("failover", counts, table=table)


def _first_accepted(facts: Facts) -> dict[int, int]:
    """Return when the first message of each epoch was accepted."""
    first: dict[int, int] = {}
    noted = [
        (row[1], epoch) for (_, _, epoch), reign in facts.reigns.items() for row in reign.accepted
    ]
    for at, epoch in [*facts.told, *noted]:
        first[epoch] = min(first.get(epoch, FOREVER), at)
    return first


def _phases(facts: Facts, epoch: int, promoted: int, active: int, previous: int) -> Row:
    """Return the times of one change of the primary; None: not in the evidence."""
    faults = [
        (fault.start, fault.number)
        for fault in facts.faults.values()
        if previous < fault.start <= promoted
    ]
    detected = [(at, old) for at, old in facts.detected if previous < at <= promoted]
    asked = [at for at in facts.asked if previous < at <= promoted]
    fault = max(faults, default=None)
    first = min(detected, default=None)
    since = fault[0] if fault else first[0] if first else promoted
    return {
        "epoch": epoch,
        "old": first[1] if first else None,
        "fault_op": fault[1] if fault else None,
        "since_ns": since,
        "fault_ns": fault[0] if fault else None,
        "detected_ns": first[0] if first else None,
        "asked_ns": max(asked, default=None),
        "promoted_ns": promoted,
        "active_ns": None if active == FOREVER else active,
    }


def _int(value: int | float | str | None) -> int:
    """Return a time of a row as what it is."""
    assert isinstance(value, int)
    return value
