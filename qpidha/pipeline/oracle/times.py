"""Checks of time in plain Python: availability, latency and the mutex, from facts.

The definitions are those of `checks.py`, under the same names. All are sweeps over sorted
intervals: n log n.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby

from qpidha.pipeline.checks import MUTEX, Settings
from qpidha.pipeline.events import FOREVER
from qpidha.pipeline.oracle.facts import Facts, Fault, Interval, LockStep
from qpidha.pipeline.verdict import Finding, Row

Span = tuple[int, int, int]
"""Begin, end, and a number that names it."""


def availability(facts: Facts, settings: Settings) -> Finding:
    """Find when a queue took or gave nothing although a client waited."""
    services = {(queue, "enqueue"): intervals for queue, intervals in facts.enqueues.items()}
    services |= {(queue, "delivery"): intervals for queue, intervals in _deliveries(facts).items()}
    run_ns = max(facts.run_end - facts.run_start, 0)
    faults = sorted(
        (fault for fault in facts.faults.values() if fault.start != FOREVER),
        key=lambda fault: (fault.start, fault.number),
    )
    windows: list[Row] = []
    shares: list[Row] = []
    for (queue, service), intervals in sorted(services.items()):
        total = 0
        for begin, end, is_open in unavailable(intervals, facts.run_end, settings.unavailable_ns):
            total += end - begin
            cause = _cause(faults, begin, end, settings.fault_reach_ns)
            row: Row = {
                "what": "window",
                "queue": queue,
                "service": service,
                "start_ns": begin,
                "end_ns": end,
                "length_ns": end - begin,
            }
            windows.append(
                row | {"open": int(is_open), "fault_op": cause.number if cause else None}
            )
        share = round(100 * (1 - total / run_ns), 4) if run_ns else None
        shares.append(
            {
                "what": "share",
                "queue": queue,
                "service": service,
                "unavailable_ns": total,
                "percent": share,
            }
        )
    rtos = [
        row
        for queue in sorted(facts.enqueues)
        for row in _recoveries(queue, facts.enqueues[queue], faults)
    ]
    lengths = [row["length_ns"] for row in windows if isinstance(row["length_ns"], int)]
    longest = max(lengths, default=0)
    counts = {
        "windows": len(windows),
        "unavailable_ns": sum(lengths),
        "longest_ns": longest,
        "run_ns": run_ns,
        "certain_ns": max(longest - 2 * facts.epsilon, 0),
        "accepted": sum(ok for intervals in facts.enqueues.values() for _, _, ok in intervals),
        "never_again": sum(row["rto_ns"] is None for row in rtos),
    }
    return Finding(
        "availability", counts, {"windows": windows} if windows else {}, [*shares, *windows, *rtos]
    )


def _deliveries(facts: Facts) -> dict[str, list[Interval]]:
    """Return the waiting of messages for their first delivery, per queue."""
    found: dict[str, list[Interval]] = {}
    for (queue, _, _), message in facts.messages.items():
        if message.attempts and message.deliveries:
            found.setdefault(queue, []).append(
                (min(message.enq_ok, message.first), message.first, True)
            )
        elif message.acked and not message.deliveries and not facts.is_drained(queue):
            found.setdefault(queue, []).append((message.enq_ok, FOREVER, False))
    return found


def unavailable(
    intervals: list[Interval], run_end: int, threshold: int
) -> Iterator[tuple[int, int, bool]]:
    """Yield begin and end of each window of unavailability, and whether it lasts to the end of the
    run.
    """
    ends = sorted((end, begin) for begin, end, _ in intervals)
    waiting = [FOREVER] * (len(ends) + 1)
    for index in range(len(ends) - 1, -1, -1):  # least begin of all that end at this index or later
        waiting[index] = min(ends[index][1], waiting[index + 1])
    only_ends = [end for end, _ in ends]
    well = sorted(end for _, end, ok in intervals if ok)
    last = min(begin for begin, _, _ in intervals)
    for end in [*well, run_end]:
        if end - last > threshold:
            begin = max(last, waiting[bisect_right(only_ends, last)])
            if end - begin > threshold:
                yield begin, end, end == run_end and (not well or end != well[-1])
        last = end


def _cause(faults: list[Fault], begin: int, end: int, reach: int) -> Fault | None:
    """Return the last fault that began before a window ended and ended not long before it began."""
    for fault in reversed(faults):
        if fault.start < end and fault.stop + reach >= begin:
            return fault
    return None


def _recoveries(queue: str, intervals: list[Interval], faults: list[Fault]) -> Iterator[Row]:
    """Yield for each fault when what began after it was first accepted."""
    begun = sorted((begin, end) for begin, end, ok in intervals if ok)
    begins = [begin for begin, _ in begun]
    earliest = [FOREVER] * (len(begun) + 1)
    for index in range(len(begun) - 1, -1, -1):
        earliest[index] = min(begun[index][1], earliest[index + 1])
    for fault in faults:
        end = earliest[bisect_right(begins, fault.start)]
        row: Row = {
            "what": "rto",
            "queue": queue,
            "fault_op": fault.number,
            "kind": fault.kind,
            "target": fault.target,
        }
        yield row | {"rto_ns": None if end == FOREVER else end - fault.start}


def cut(nanoseconds: int) -> int:
    """Return microseconds, cut to three significant decimal digits."""
    value = nanoseconds // 1000
    step = 1
    while value >= 1000 * step:
        step *= 10
    return value - value % step


def percentile(values: list[int], percent: int) -> int:
    """Return the nearest-rank percentile of sorted values."""
    return values[-(-percent * len(values) // 100) - 1]


def latency(facts: Facts, _: Settings) -> Finding:
    """Say how long replication, acceptance and delivery took."""
    took = {name: [ns for _, ns in rows] for name, rows in facts.took.items()}
    for queue, intervals in facts.enqueues.items():
        took["enqueue", queue] = [end - begin for begin, end, ok in intervals if ok]
    for (queue, _producer, _seq), message in facts.messages.items():
        if message.attempts and message.deliveries and message.first >= message.enq_at:
            took.setdefault(("delivery", queue), []).append(message.first - message.enq_at)
    counts = dict.fromkeys(("replication", "acceptance", "enqueue", "delivery"), 0)
    table: list[Row] = []
    for (what, name), values in sorted(took.items()):
        if not values:
            continue
        counts[what] += len(values)
        cuts = sorted(map(cut, values))
        row: Row = {"what": what, "name": name, "n": len(cuts)}
        table.append(
            row
            | {f"p{percent}_us": percentile(cuts, percent) for percent in (50, 95, 99)}
            | {"max_us": cuts[-1]}
        )
    return Finding("latency", counts, table=table)


def mutex(facts: Facts, _: Settings) -> Finding:
    """Find holds of a lock that certainly overlap, and tokens that were not followed."""
    counts = dict.fromkeys(MUTEX, 0)
    offenders: dict[str, list[Row]] = {}
    for lock, steps in sorted(facts.locks.items()):
        counts["locks"] += any(step.what == "acquire" for step in steps)
        strict = list(holds(steps, with_leases=False))
        counts["holds"] += len(strict)
        for what, spans in (
            ("overlaps", strict),
            ("lease_overlaps", list(holds(steps, with_leases=True))),
        ):
            for late, before in overlapping(spans, facts.epsilon):
                counts[what] += 1
                row: Row = {
                    "queue": lock,
                    "start_ns": late[0],
                    "op": late[2],
                    "other_end_ns": _end(before),
                    "other_op": before[2],
                }
                offenders.setdefault(what, []).append(row)
        _follow_tokens(lock, steps, facts.epsilon, counts, offenders)
    return Finding("mutex", counts, offenders)


def _follow_tokens(
    lock: str,
    steps: list[LockStep],
    epsilon: int,
    counts: dict[str, int],
    offenders: dict[str, list[Row]],
) -> None:
    """Find writes that were taken after one with a higher token, and tokens that were given after
    one as high or higher of their epoch.
    """
    taken = [one for one in steps if one.what == "acquire" and one.outcome == "ok" and one.token]
    writes = [one for one in steps if one.what == "write"]
    written = [one for one in writes if one.outcome == "ok" and one.token]
    counts["tokens"] += len(taken)
    counts["writes"] += sum(one.outcome == "ok" for one in writes)
    counts["refused"] += sum(one.outcome == "fail" for one in writes)
    late: list[tuple[str, LockStep, tuple[int, int]]] = []
    earliest: tuple[int, int] | None = None
    for _, same in groupby(sorted(written, key=_highest_first), key=lambda one: one.token):
        group = list(same)
        if earliest is not None:
            late += [("stale", one, earliest) for one in group]
        first = min((one.end, one.op) for one in group)
        earliest = first if earliest is None else min(earliest, first)
    for _, of_epoch in groupby(sorted(taken, key=_highest_first), key=_epoch):
        earliest = None
        for one in of_epoch:
            if earliest is not None:
                late.append(("regressions", one, earliest))
            earliest = min(earliest or (FOREVER, FOREVER), (one.end, one.op))
    found = [(what, one, before) for what, one, before in late if one.begin > before[0] + epsilon]
    for what, one, (end, op) in sorted(found, key=lambda each: (each[1].begin, each[1].op)):
        counts[what] += 1
        row: Row = {
            "queue": lock,
            "start_ns": one.begin,
            "op": one.op,
            "other_end_ns": end,
            "other_op": op,
        }
        offenders.setdefault(what, []).append(row)


def _highest_first(step: LockStep) -> tuple[int, int, int, int]:
    epoch, number = step.token or (0, 0)
    return -epoch, -number, step.end, step.op


def _epoch(step: LockStep) -> int:
    return 0 if step.token is None else step.token[0]


def holds(steps: list[LockStep], *, with_leases: bool) -> Iterator[Span]:
    """Yield from when to when each successful acquire certainly held the lock, and its
    operation.
    """
    ends: dict[int, list[int]] = {}
    for step in steps:
        if (step.what == "release" and step.outcome != "fail") or (
            step.what == "lost" and with_leases
        ):
            ends.setdefault(step.process, []).append(step.begin)
    for times in ends.values():
        times.sort()
    for step in steps:
        if step.what == "acquire" and step.outcome == "ok":
            times = ends.get(step.process, [])
            after = bisect_right(times, step.end)
            yield step.end, times[after] if after < len(times) else FOREVER, step.op


def overlapping(spans: Iterable[Span], epsilon: int) -> Iterator[tuple[Span, Span]]:
    """Yield each span that certainly begins before all that began earlier have ended, and the one
    that ends last of these.

    One that is shorter than epsilon may as well have ended before the other began.
    """
    longest: Span | None = None
    for span in sorted(spans):
        if longest is not None and longest[1] > span[0] + epsilon <= span[1]:
            yield span, longest
        if longest is None or span[1] > longest[1]:
            longest = span


def _end(span: Span) -> int | None:
    return None if span[1] == FOREVER else span[1]
