"""Checks of messages in Spark: total-queue, order, redelivery and throughput, from the tables of
facts.

The definitions are those of `checks.py`, under the same names; each count is one aggregate over the
facts, the order one window. What is wrong is few: it comes to the driver in the order of the Python
engine, at most as much as asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qpidha.model.duration import SECOND
from qpidha.pipeline.checks import Settings
from qpidha.pipeline.events import FOREVER
from qpidha.pipeline.spark.facts import CASE, Tables, drained
from qpidha.pipeline.spark.offenders import Offenders
from qpidha.pipeline.verdict import Finding, Row

SHARES = ("ok", "lost", "missing", "unexpected", "duplicated", "recovered", "phantom")
COUNTED = (
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
REASONS = ("resent", "redelivered", "in_fault", "competing", "violations")
VALUE = ("queue", "producer", "seq")


def summed(tables: Tables) -> list[Any]:
    """Return the sums of both counting checks, per case and queue: one pass over the facts."""
    a, k, d = F.col("attempts"), F.col("acked"), F.col("deliveries")
    offences = _offences(tables.epsilon)
    zero = F.lit(0)
    come_first = (a > 0) & (d > 0)
    is_certain = come_first & _is_first_certain(tables.epsilon)
    sums = {
        "attempts": a,
        "acknowledged": k,
        "failed": F.col("failed"),
        "deliveries": d,
        "values": F.when(a > 0, 1).otherwise(zero),
        "ok": F.least(d, a),
        **offences,
        "redelivered": F.when(a > 0, F.greatest(d - a, zero)).otherwise(zero),
        "flagged": F.when(a > 0, F.col("flagged")).otherwise(zero),
        "unflagged": _unflagged(),
        "messages": F.when(is_certain, 1).otherwise(zero),
    }
    clients = [
        function(F.when(come_first, F.col("client"))).alias(name)
        for name, function in (("least", F.min), ("greatest", F.max))
    ]
    return list(
        tables.messages.groupBy(CASE, "queue")
        .agg(*(F.sum(value).alias(name) for name, value in sums.items()), *clients)
        .collect()
    )


def _offences(epsilon: int) -> dict[str, Column]:
    """Return for each offence how often a value commits it; `lost` and `missing` together are
    `unseen`.
    """
    a, k, d = F.col("attempts"), F.col("acked"), F.col("deliveries")
    zero = F.lit(0)
    # As the Python engine does: of a message that came once as it was accepted only a late delivery
    # is worth a look.
    is_plain = (
        (d == 1)
        & (a == 1)
        & (k == 1)
        & (F.col("first_ack").isNull() | (F.col("last_at") <= F.col("first_ack")))
    )
    found = {
        "unexpected": F.when(a == 0, d),
        "duplicated": F.when(a > 0, F.greatest(d - a, zero)),
        "unseen": F.greatest(k - d, zero),
        "recovered": F.greatest(F.least(d, a) - k, zero),
        "phantom": F.when((d > 0) & (a > 0) & (F.col("failed") >= a), 1),
        "resurrected": F.when((a == 1) & (F.col("last_at") > F.col("first_ack") + epsilon), 1),
    }
    return {
        name: F.when(is_plain, zero).otherwise(F.coalesce(value, zero))
        for name, value in found.items()
    }


def _is_first_certain(epsilon: int) -> Column:
    """Whether the delivery that looks like the first one was it, whatever the clocks."""
    if not epsilon:
        return F.lit(True)
    return (F.col("deliveries") == 1) | (
        (F.col("deliveries") == 2) & (F.col("first_at") + epsilon < F.col("last_at"))
    )


def _unflagged() -> Column:
    return F.when(
        F.col("attempts") > 0, F.greatest(F.col("fresh") - F.col("attempts"), F.lit(0))
    ).otherwise(F.lit(0))


def value_row(row: dict[str, Any]) -> Row:
    """Return an offender as both engines show it."""
    names = ("queue", "producer", "seq", "number", "attempts", "acked", "failed", "deliveries")
    times = {
        "enq_ns": "enq_at",
        "enq_ok_ns": "enq_ok",
        "first_ns": "first_at",
        "last_ns": "last_at",
        "first_ack_ns": "first_ack",
    }
    found: Row = {name: row[name] for name in names}
    return (
        found
        | {name: row[column] for name, column in times.items()}
        | {"enq_op": row["enq_op"], "deq_op": row["deq_op"]}
    )


def total_queue(tables: Tables, sums: list[Any], offenders: Offenders) -> dict[int, Finding]:
    """Count what was sent, accepted and delivered."""
    found = {
        case: Finding("total-queue", dict.fromkeys((*COUNTED, "undrained", "foreign"), 0))
        for case in tables.cases
    }
    for row in sums:
        counts = found[row[CASE]].counts
        queue = tables.queues.get((row[CASE], row["queue"]))
        for name in COUNTED:
            if name not in ("lost", "missing"):
                counts[name] += row[name]
        counts["lost" if queue is not None and queue.is_drained else "missing"] += row["unseen"]
    for (case, _), queue in tables.queues.items():
        found[case].counts["undrained"] += queue.has_messages and not queue.is_drained
        found[case].counts["foreign"] += queue.foreign
    for finding in found.values():
        finding.table = [_share(finding.counts, name) for name in SHARES]
    offences = _offences(tables.epsilon)
    for what in (
        "unexpected",
        "duplicated",
        "lost",
        "missing",
        "recovered",
        "phantom",
        "resurrected",
    ):
        if any(finding.counts[what] for finding in found.values()):
            number = offences["unseen" if what in ("lost", "missing") else what]
            rows = tables.messages.withColumn("number", number).where(F.col("number") > 0)
            if what in ("lost", "missing"):
                rows = rows.join(
                    drained(tables), [CASE, "queue"], "left_semi" if what == "lost" else "left_anti"
                )
            offenders.put(found, what, rows, VALUE, value_row)
    return found


def _share(counts: dict[str, int], name: str) -> Row:
    row: Row = {"what": name, "count": counts[name]}
    below = {"of_attempts": counts["attempts"], "of_acknowledged": counts["acknowledged"]}
    return row | {
        share: round(counts[name] / whole, 6) if whole else None for share, whole in below.items()
    }


def redelivery(tables: Tables, sums: list[Any], offenders: Offenders) -> dict[int, Finding]:
    """Count messages that came again and did not say so."""
    found = {
        case: Finding("redelivery", dict.fromkeys(("redelivered", "flagged", "unflagged"), 0))
        for case in tables.cases
    }
    for row in sums:
        for name in found[row[CASE]].counts:
            found[row[CASE]].counts[name] += row[name]
    if any(finding.counts["unflagged"] for finding in found.values()):
        rows = tables.messages.withColumn("number", _unflagged()).where(F.col("number") > 0)
        offenders.put(found, "unflagged", rows, VALUE, value_row)
    return found


def order(
    tables: Tables, sums: list[Any], settings: Settings, offenders: Offenders
) -> dict[int, Finding]:
    """Compare the order of first deliveries with the order of sending."""
    found = {
        case: Finding("order", dict.fromkeys(("streams", "messages", "inversions", *REASONS), 0))
        for case in tables.cases
    }
    for row in sums:
        found[row[CASE]].counts["messages"] += row["messages"]
    come = tables.messages.where(
        (F.col("attempts") > 0) & (F.col("deliveries") > 0) & _is_first_certain(tables.epsilon)
    )
    streams = come.groupBy(CASE, "queue", "producer", "client").agg(F.count("*").alias("n"))
    for row in streams.groupBy(CASE).agg(F.count("*").alias("n")).collect():
        found[row[CASE]].counts["streams"] = row["n"]
    competing = [
        (row[CASE], row["queue"])
        for row in sums
        if row["least"] is not None and row["least"] != row["greatest"]
    ]
    late = _classified(tables, inversions(come), competing, settings).persist(
        StorageLevel.MEMORY_AND_DISK
    )
    try:
        for row in late.groupBy(CASE, "reason").agg(F.count("*").alias("n")).collect():
            found[row[CASE]].counts[row["reason"]] += row["n"]
            found[row[CASE]].counts["inversions"] += row["n"]
        for reason in REASONS:
            if any(finding.counts[reason] for finding in found.values()):
                offenders.put(
                    found, reason, late.where(F.col("reason") == reason), VALUE, _late_row
                )
    finally:
        late.unpersist()
    return found


def inversions(come: DataFrame) -> DataFrame:
    """Return the values that came after one that was sent later: one sort per stream and a running
    maximum.
    """
    stream = Window.partitionBy(CASE, "queue", "producer", "client").orderBy("first_at", "seq")
    before = F.max("seq").over(stream.rowsBetween(Window.unboundedPreceding, -1))
    names = (
        CASE,
        *VALUE,
        "client",
        "first_at",
        "attempts",
        "deliveries",
        "flagged",
        "enq_op",
        "deq_op",
    )
    rows = come.select(*names).withColumn(
        "after_seq", F.greatest(F.coalesce(before, F.lit(-1)), F.lit(-1))
    )
    return rows.where(F.col("seq") < F.col("after_seq"))


def _late_row(row: dict[str, Any]) -> Row:
    names = ("queue", "producer", "seq", "client", "after_seq")
    return {name: row[name] for name in names} | {
        "first_ns": row["first_at"],
        "enq_op": row["enq_op"],
        "deq_op": row["deq_op"],
    }


def _classified(
    tables: Tables, late: DataFrame, competing: list[tuple[int, str]], settings: Settings
) -> DataFrame:
    """Add what excuses each, or `violations`."""
    spark = late.sparkSession
    rows = late.withColumn("in_fault", F.lit(False))
    windows = [
        (case, *window)
        for case, few in tables.few.items()
        for window in merged(few.faults.values(), tables.epsilon)
    ]
    if windows and not settings.strict_order:
        faults = F.broadcast(
            spark.createDataFrame(windows, f"{CASE} int, start bigint, stop bigint")
        )
        rows = late.join(
            faults,
            (late[CASE] == faults[CASE])
            & late["first_at"].between(faults["start"], faults["stop"]),
            "left",
        )
        rows = rows.select(late["*"], faults["start"].isNotNull().alias("in_fault"))
    several = F.broadcast(
        spark.createDataFrame(competing, f"{CASE} int, queue string").withColumn(
            "competing", F.lit(True)
        )
    )
    rows = rows.join(several, [CASE, "queue"], "left")
    again = ((F.col("deliveries") > 1) | (F.col("flagged") > 0)) & F.lit(not settings.strict_order)
    reason = (
        F.when(F.col("attempts") > 1, "resent")
        .when(again, "redelivered")
        .when(F.col("in_fault"), "in_fault")
    )
    return rows.withColumn(
        "reason", reason.when(F.col("competing"), "competing").otherwise("violations")
    )


def merged(faults: Any, epsilon: int) -> Iterator[tuple[int, int]]:
    """Yield the times in which a fault was on, or may have been, those that touch as one."""
    last: tuple[int, int] | None = None
    for fault in sorted(
        (fault for fault in faults if fault.start != FOREVER), key=lambda fault: fault.start
    ):
        start, stop = fault.around(epsilon)
        if last is not None and start <= last[1]:
            last = last[0], max(last[1], stop)
            continue
        if last is not None:
            yield last
        last = start, stop
    if last is not None:
        yield last


def throughput(tables: Tables) -> dict[int, Finding]:
    """Count what each queue took and gave."""
    names = ("enqueued", "delivered", "acknowledged")
    found = {case: Finding("throughput", dict.fromkeys(names, 0)) for case in tables.cases}
    for (case, name), queue in sorted(tables.queues.items()):
        if not any(queue.totals):
            continue
        start, end = tables.runs[case]
        row: Row = {"queue": name}
        for what, total, peak in zip(names, queue.totals, queue.peaks, strict=True):
            found[case].counts[what] += total
            row |= {
                what: total,
                f"{what}_mean": round(total * SECOND / (end - start), 3) if end > start else None,
                f"{what}_peak": peak,
            }
        found[case].table.append(row)
    return found
