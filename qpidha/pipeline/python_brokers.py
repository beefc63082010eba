"""Checks of brokers in plain Python: accepted before safe, one primary an epoch, and the phases of failovers, from facts.

The definitions are those of `checks.py`, under the same names. What a broker accepted is compared with what its own
journal says before, in the order in which it wrote: no clock is in that. What a client saw is compared by time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from qpidha.pipeline.checks import Settings
from qpidha.pipeline.events import FOREVER
from qpidha.pipeline.python_facts import Facts, Reign
from qpidha.pipeline.python_times import Span, overlapping
from qpidha.pipeline.verdict import Finding, Row

PRIMARY = ("recovering", "active")
NO_EPOCH = 0
"""What a broker without a cluster writes as its epoch."""


class Frontier:
    """Up to which position all members of the in-sync set but the primary have everything, while one writer is primary."""

    def __init__(self, reign: Reign) -> None:
        self.unsafe: list[tuple[int, int, int, int, int]] = []
        """s, at, first, last and frontier of acceptances beyond the frontier."""
        self.unjudged = 0
        self.has_set = bool(reign.sets)
        self._reached: list[tuple[int, int]] = []
        """Position and at, one for each time the frontier moved."""
        rows: list[tuple[int, int, str, object]] = [(s, at, "set", members) for s, at, members in reign.sets]
        rows += [(s, at, "rep", (peer, last)) for s, at, peer, last in reign.confirmed]
        rows += [(s, at, "conf", (first, last)) for s, at, first, last in reign.accepted]
        members: frozenset[str] | None = None
        confirmed: dict[str, int] = {}
        frontier = 0
        for s, at, what, value in sorted(rows, key=lambda row: row[0]):
            if what == "conf":
                assert isinstance(value, tuple)
                self._accept(s, at, value, frontier if members is not None else None)
                continue
            if isinstance(value, frozenset):
                members = value
            elif isinstance(value, tuple):
                confirmed[value[0]] = max(confirmed.get(value[0], 0), value[1])
            if members is not None:
                frontier = min((confirmed.get(member, 0) for member in members), default=FOREVER)
                self._reached.append((frontier, at))
        self._order()

    def _accept(self, s: int, at: int, positions: tuple[int, int], frontier: int | None) -> None:
        first, last = positions
        if frontier is None:
            self.unjudged += last - first + 1
        elif last > frontier:
            self.unsafe.append((s, at, first, last, frontier))

    def _order(self) -> None:
        """Make of the moves the earliest time for each position: sort by position, least time of this position or beyond."""
        self._reached.sort()
        earliest = FOREVER
        for index in range(len(self._reached) - 1, -1, -1):
            position, at = self._reached[index]
            earliest = min(earliest, at)
            self._reached[index] = (position, earliest)

    def safe_at(self, position: int) -> int:
        """Return when a position was first safe; FOREVER: never."""
        index = bisect_left(self._reached, (position, -1))
        return self._reached[index][1] if index < len(self._reached) else FOREVER


def accepted_before_safe(facts: Facts, _: Settings) -> Finding:
    """Compare acceptances, by brokers and as seen by clients, with what the in-sync backups had confirmed."""
    counts = dict.fromkeys(("accepted", "unsafe", "unjudged", "client_accepted", "client_unsafe"), 0)
    offenders: dict[str, list[Row]] = {}
    frontiers: dict[tuple[str, str, int], Frontier] = {}
    for key, reign in sorted(facts.reigns.items()):
        frontier = frontiers[key] = Frontier(reign)
        counts["accepted"] += sum(last - first + 1 for _, _, first, last in reign.accepted)
        counts["unjudged"] += frontier.unjudged
        for s, at, first, last, safe in frontier.unsafe:
            number = last - max(safe, first - 1)
            counts["unsafe"] += number
            row: Row = {"node": key[0], "boot": key[1], "epoch": key[2], "s": s, "at_ns": at, "position": first, "position_to": last}
            offenders.setdefault("unsafe", []).append(row | {"safe_to": safe, "number": number})
    for name, places in sorted(facts.placed.items()):
        told = facts.accepted_ids.get(name)
        if told is None:
            continue
        counts["client_accepted"] += 1
        known = [(frontiers.get((node, boot, epoch)), position) for node, boot, epoch, position, _ in places]
        judged = [frontier.safe_at(position) for frontier, position in known if frontier is not None and frontier.has_set]
        judged += facts.gone.get(name, [])
        if not judged:
            counts["unjudged"] += 1
            continue
        safe = min(judged)
        if told + facts.epsilon < safe:
            counts["client_unsafe"] += 1
            example: Row = {"msg": name, "accepted_ns": told, "safe_ns": None if safe == FOREVER else safe}
            example |= {"node": places[0][0], "epoch": places[0][2], "position": places[0][3]}
            offenders.setdefault("client_unsafe", []).append(example)
    return Finding("accepted-before-safe", counts, offenders)


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
            earlier = (e for t, n, b, e in promises if (n < s if b == boot else t + facts.epsilon < at))
            highest = max(earlier, default=-1)
            if epoch < highest:
                offenders.setdefault("epoch_regressions", []).append({"node": node, "s": s, "at_ns": at, "epoch": epoch, "after": highest})
    writers_by_number = sorted(facts.roles)
    spans = [span for number, writer in enumerate(writers_by_number) for span in _active(facts, writer, number)]
    for late, before in overlapping(spans, facts.epsilon):
        one, other = writers_by_number[late[2]], writers_by_number[before[2]]
        row: Row = {"node": one[0], "boot": one[1], "other": other[0], "other_boot": other[1], "start_ns": late[0]}
        offenders.setdefault("overlaps", []).append(row | {"length_ns": min(late[1], before[1]) - late[0]})
    counts = {"epochs": len(who)} | {name: len(offenders.get(name, [])) for name in ("shared_epochs", "epoch_regressions", "overlaps")}
    return Finding("primaries", counts, offenders)


def _active(facts: Facts, writer: tuple[str, str], number: int) -> Iterator[Span]:
    """Yield from when to when a writer was active."""
    rows = sorted(facts.roles[writer])
    for index, (_, at, role, _) in enumerate(rows):
        if role == "active":
            yield at, rows[index + 1][1] if index + 1 < len(rows) else facts.writer_ends[writer], number


def failover(facts: Facts, _: Settings) -> Finding:
    """Say for each primary how it became one, and how long each phase took."""
    begun: dict[int, list[tuple[int, str]]] = {}
    active: dict[int, int] = {}
    for (node, _boot), rows in facts.roles.items():
        for _s, at, role, epoch in rows:
            if role in PRIMARY:
                begun.setdefault(epoch, []).append((at, node))
            if role == "active":
                active[epoch] = min(active.get(epoch, FOREVER), at)
    accepted = sorted((begin, end) for intervals in facts.enqueues.values() for begin, end, ok in intervals if ok)
    told = _first_accepted(facts)
    table: list[Row] = []
    previous = -1
    for index, epoch in enumerate(sorted(begun)):
        promoted, new = min(begun[epoch])
        row = _phases(facts, epoch, promoted, active.get(epoch, FOREVER), previous) | {"accepted_ns": told.get(epoch)}
        served = min((end for begin, end in accepted[bisect_left(accepted, (_int(row["since_ns"]) + 1, -1)) :]), default=FOREVER)
        until = next((at for at in (served, row["accepted_ns"], row["active_ns"]) if at is not None and at != FOREVER), None)
        row |= {"served_ns": None if served == FOREVER else served, "new": new, "first": int(index == 0)}
        row["total_ns"] = _int(until) - _int(row["since_ns"]) if until is not None else None
        table.append(row)
        previous = max(previous, active.get(epoch, -1))
    later = table[1:]
    counts = {"epochs": len(table), "failovers": len(later)}
    counts["longest_ns"] = max((_int(row["total_ns"]) for row in later if row["total_ns"] is not None), default=0)
    return Finding("failover", counts, table=table)


def _first_accepted(facts: Facts) -> dict[int, int]:
    """Return when the first message of each epoch was accepted."""
    first: dict[int, int] = {}
    noted = [(row[1], epoch) for (_, _, epoch), reign in facts.reigns.items() for row in reign.accepted]
    for at, epoch in [*facts.told, *noted]:
        first[epoch] = min(first.get(epoch, FOREVER), at)
    return first


def _phases(facts: Facts, epoch: int, promoted: int, active: int, previous: int) -> Row:
    """Return the times of one change of the primary; None: not in the evidence."""
    faults = [(fault.start, fault.number) for fault in facts.faults.values() if previous < fault.start <= promoted]
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
