"""Checks of messages in plain Python: total-queue, order, redelivery and throughput, from facts.

The definitions are those of `checks.py`, under the same names; offenders are sorted by queue,
producer and sequence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from qpidha.model.duration import SECOND
from qpidha.pipeline.checks import Settings
from qpidha.pipeline.events import FOREVER
from qpidha.pipeline.oracle.facts import Facts, Fault, Key, Message
from qpidha.pipeline.verdict import Finding, Row

SHARES = ("ok", "lost", "missing", "unexpected", "duplicated", "recovered", "phantom")


def total_queue(facts: Facts, _: Settings) -> Finding:
    """Count what was sent, accepted and delivered."""
    names = (
        "attempts",
        "acknowledged",
        "failed",
        "deliveries",
        "values",
        "ok",
        "unexpected",
        "duplicated",
        "lost",
        "missing",
        "recovered",
        "phantom",
        "resurrected",
    )
    counts = dict.fromkeys(names, 0)
    offenders: dict[str, list[tuple[Key, Row]]] = {}
    drained = {queue: facts.is_drained(queue) for queue in facts.queues}
    for key, message in facts.messages.items():
        attempts, acked, deliveries = message.attempts, message.acked, message.deliveries
        counts["attempts"] += attempts
        counts["acknowledged"] += acked
        counts["failed"] += message.failed
        counts["deliveries"] += deliveries
        counts["values"] += attempts > 0
        counts["ok"] += min(deliveries, attempts)
        if deliveries == attempts == acked == 1 and message.last <= message.first_ack:
            continue
        for what, number in _offences(
            message, facts.epsilon, is_drained=drained.get(key[0], False)
        ):
            counts[what] += number
            offenders.setdefault(what, []).append((key, _row(key, message, number)))
    counts["undrained"] = sum(not is_drained for is_drained in drained.values())
    counts["foreign"] = facts.foreign
    table: list[Row] = []
    for name in SHARES:
        row: Row = {"what": name, "count": counts[name]}
        table.append(row | _shares(counts[name], counts["attempts"], counts["acknowledged"]))
    return Finding(
        "total-queue", counts, {what: _sorted(rows) for what, rows in offenders.items()}, table
    )


def _offences(message: Message, epsilon: int, *, is_drained: bool) -> Iterator[tuple[str, int]]:
    """Yield what is unusual about a message, and how often."""
    attempts, acked, deliveries = message.attempts, message.acked, message.deliveries
    if deliveries and not attempts:
        yield "unexpected", deliveries
    if attempts and deliveries > attempts:
        yield "duplicated", deliveries - attempts
    if acked > deliveries:
        yield "lost" if is_drained else "missing", acked - deliveries
    if min(deliveries, attempts) > acked:
        yield "recovered", min(deliveries, attempts) - acked
    if deliveries and 0 < attempts <= message.failed:
        yield "phantom", 1
    if (
        attempts == 1
        and message.first_ack != FOREVER
        and message.last > message.first_ack + epsilon
    ):
        yield "resurrected", 1


def _row(key: Key, message: Message, number: int) -> Row:
    """Return an offender: the value, its numbers and times, and the operations to look for."""
    return {
        "queue": key[0],
        "producer": key[1],
        "seq": key[2],
        "number": number,
        "attempts": message.attempts,
        "acked": message.acked,
        "failed": message.failed,
        "deliveries": message.deliveries,
        "enq_ns": _time(message.enq_at),
        "enq_ok_ns": _time(message.enq_ok),
        "first_ns": _time(message.first),
        "last_ns": None if message.last < 0 else message.last,
        "first_ack_ns": _time(message.first_ack),
        "enq_op": _time(message.enq_op),
        "deq_op": _time(message.deq_op),
    }


def _time(value: int) -> int | None:
    return None if value == FOREVER else value


def _sorted(rows: list[tuple[Key, Row]]) -> list[Row]:
    return [row for _, row in sorted(rows, key=lambda each: each[0])]


def _shares(count: int, attempts: int, acknowledged: int) -> Row:
    return {
        "of_attempts": round(count / attempts, 6) if attempts else None,
        "of_acknowledged": round(count / acknowledged, 6) if acknowledged else None,
    }


def order(facts: Facts, settings: Settings) -> Finding:
    """Compare the order of first deliveries with the order of sending."""
    counts = dict.fromkeys(
        (
            "streams",
            "messages",
            "inversions",
            "resent",
            "redelivered",
            "in_fault",
            "competing",
            "violations",
        ),
        0,
    )
    streams: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    clients: dict[str, set[int]] = {}
    for (queue, producer, seq), message in facts.messages.items():
        if message.attempts and message.deliveries:
            clients.setdefault(queue, set()).add(message.client)
            if _is_first_certain(message, facts.epsilon):
                streams.setdefault((queue, producer, message.client), []).append(
                    (message.first, seq)
                )
                counts["messages"] += 1
    counts["streams"] = len(streams)
    during = Windows(facts.faults.values(), facts.epsilon)
    offenders: dict[str, list[tuple[Key, Row]]] = {}
    for (queue, producer, client), deliveries in streams.items():
        latest = -1
        for first, seq in sorted(deliveries):
            if seq >= latest:
                latest = seq
                continue
            counts["inversions"] += 1
            message = facts.messages[queue, producer, seq]
            reason = _disorder(message, during, settings, competing=len(clients[queue]) > 1)
            counts[reason] += 1
            row: Row = {
                "queue": queue,
                "producer": producer,
                "seq": seq,
                "client": client,
                "after_seq": latest,
                "first_ns": first,
            }
            row |= {"enq_op": _time(message.enq_op), "deq_op": _time(message.deq_op)}
            offenders.setdefault(reason, []).append(((queue, producer, seq), row))
    return Finding("order", counts, {what: _sorted(rows) for what, rows in offenders.items()})


def _is_first_certain(message: Message, epsilon: int) -> bool:
    """Whether the delivery that looks like the first one was it, whatever the clocks."""
    return (
        message.deliveries == 1
        or not epsilon
        or (message.deliveries == 2 and message.first + epsilon < message.last)
    )


def _disorder(message: Message, during: Windows, settings: Settings, *, competing: bool) -> str:
    """Return what excuses a message that came too late, or `violations`."""
    if message.attempts > 1:
        return "resent"
    if not settings.strict_order:
        if message.deliveries > 1 or message.flagged:
            return "redelivered"
        if message.first in during:
            return "in_fault"
    return "competing" if competing else "violations"


class Windows:
    """The times in which a fault was on, or may have been."""

    def __init__(self, faults: Iterable[Fault], epsilon: int) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for fault in sorted(faults, key=lambda fault: fault.start):
            if fault.start == FOREVER:
                continue
            start, stop = fault.around(epsilon)
            if self._begins and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], stop)
            else:
                self._begins.append(start)
                self._ends.append(stop)

    def __contains__(self, at: int) -> bool:
        index = bisect_right(self._begins, at) - 1
        return index >= 0 and at <= self._ends[index]


def redelivery(facts: Facts, _: Settings) -> Finding:
    """Count messages that came again and did not say so."""
    counts = dict.fromkeys(("redelivered", "flagged", "unflagged"), 0)
    rows: list[tuple[Key, Row]] = []
    for key, message in facts.messages.items():
        if not message.attempts:
            continue
        counts["redelivered"] += max(message.deliveries - message.attempts, 0)
        counts["flagged"] += message.flagged
        unflagged = max(message.fresh - message.attempts, 0)
        counts["unflagged"] += unflagged
        if unflagged:
            rows.append((key, _row(key, message, unflagged)))
    return Finding("redelivery", counts, {"unflagged": _sorted(rows)} if rows else {})


def throughput(facts: Facts, _: Settings) -> Finding:
    """Count what each queue took and gave."""
    counts = dict.fromkeys(("enqueued", "delivered", "acknowledged"), 0)
    names = (("enqueue", "enqueued"), ("dequeue", "delivered"), ("ack", "acknowledged"))
    run_ns = facts.run_end - facts.run_start
    table: list[Row] = []
    for queue in sorted({queue for _, queue in facts.traffic}):
        row: Row = {"queue": queue}
        for what, name in names:
            traffic = facts.traffic.get((what, queue))
            total = traffic.total if traffic else 0
            counts[name] += total
            row |= {
                name: total,
                f"{name}_mean": round(total * SECOND / run_ns, 3) if run_ns > 0 else None,
            }
            row[f"{name}_peak"] = max(traffic.seconds.values()) if traffic else 0
        table.append(row)
    return Finding("throughput", counts, table=table)
