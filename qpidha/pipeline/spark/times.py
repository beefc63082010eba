"""Checks of time in Spark: availability, latency and the mutex, from the tables of facts.

Pauses longer than a threshold are found among buckets as long as the threshold: two ends in one
bucket are no pause. Percentiles are those of histograms of three digits, so they are exact as
defined and need no sorting of values. Holds of a lock are two windows. The definitions are those of
`checks.py`. Why so: docs/internals/pipeline.md, "Locks" and "Pauses".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from qpidha.model.duration import SECOND
from qpidha.pipeline.checks import MUTEX, Settings
from qpidha.pipeline.events import FOREVER, KIND, OPERATIONS, OUTCOMES
from qpidha.pipeline.oracle.facts import Fault
from qpidha.pipeline.spark.facts import CASE, Tables, divided, drained
from qpidha.pipeline.spark.offenders import Offenders
from qpidha.pipeline.verdict import Finding, Row

OK, FAIL = OUTCOMES["ok"], OUTCOMES["fail"]
LAST_BUCKET = FOREVER - 2
"""Of what never ends: what comes after it must still be a number."""
PERCENTS = (50, 95, 99)
KINDS = ("replication", "acceptance", "enqueue", "delivery")


def bucket(at: Column, nanoseconds: int) -> Column:
    """Return the number of the bucket that a time is in."""
    return F.least(divided(at, nanoseconds), F.lit(LAST_BUCKET))


@dataclass(frozen=True, slots=True)
class Beyond:
    """What `least_beyond` looks at: rows in groups of `keys`, with a time `at` and a `value`."""

    rows: DataFrame
    keys: Sequence[str]
    at: str
    value: str
    bucket_ns: int

    def coarse(self) -> DataFrame:
        """Return the least value of each bucket."""
        rows = self.rows.withColumn("bucket", bucket(F.col(self.at), self.bucket_ns))
        return rows.groupBy(*self.keys, "bucket").agg(F.min(self.value).alias("least"))


def least_beyond(beyond: Beyond, points: DataFrame, coarse: DataFrame | None = None) -> DataFrame:
    """Return points (`keys`, `point`) with `least`: the least value of rows of its group with a
    later time; null if there are none.

    Later buckets count by their least, the point's own is looked at row by row. Points are few.
    """
    keys = list(beyond.keys)
    points = points.withColumn("bucket", bucket(F.col("point"), beyond.bucket_ns))
    buckets = (beyond.coarse() if coarse is None else coarse).select(
        *keys, "bucket", "least", F.lit(None).cast("bigint").alias("point")
    )
    both = buckets.unionByName(
        points.select(*keys, "bucket", F.lit(None).cast("bigint").alias("least"), "point")
    )
    # Downwards from the last bucket: what lies beyond comes before.
    down = (
        Window.partitionBy(*keys)
        .orderBy(-F.col("bucket"))
        .rangeBetween(Window.unboundedPreceding, -1)
    )
    later = (
        both.withColumn("later", F.min("least").over(down))
        .where(F.col("point").isNotNull())
        .select(*keys, "point", "later")
    )
    rows = beyond.rows.withColumn("bucket", bucket(F.col(beyond.at), beyond.bucket_ns))
    beside = rows.join(F.broadcast(points), [*keys, "bucket"]).where(
        F.col(beyond.at) > F.col("point")
    )
    beside = beside.groupBy(*keys, "point").agg(F.min(beyond.value).alias("same"))
    found = later.join(F.broadcast(beside), [*keys, "point"], "left")
    return found.select(*keys, "point", F.least("later", "same").alias("least"))


def enqueues(tables: Tables) -> DataFrame:
    """Return enqueue pairs: case, queue, begin_at, end_at (∞ is FOREVER) and whether they were
    accepted.
    """
    rows = tables.ops.where((F.col("op") == OPERATIONS["enqueue"]) & F.col("is_paired"))
    end = F.coalesce(F.col("end_at"), F.lit(FOREVER))
    return rows.select(
        CASE, "queue", "begin_at", end.alias("end_at"), (F.col("outcome") == OK).alias("ok")
    )


def waits(tables: Tables) -> DataFrame:
    """Return intervals of both services: case, queue, service, begin_at, end_at, ok."""
    a, k, d = F.col("attempts"), F.col("acked"), F.col("deliveries")
    seen = tables.messages.where((a > 0) & (d > 0)).select(
        CASE,
        "queue",
        F.least("enq_ok", "first_at").alias("begin_at"),
        F.col("first_at").alias("end_at"),
        F.lit(True).alias("ok"),
    )
    unseen = tables.messages.where((k > 0) & (d == 0)).join(
        drained(tables), [CASE, "queue"], "left_anti"
    )
    unseen = unseen.select(
        CASE,
        "queue",
        F.col("enq_ok").alias("begin_at"),
        F.lit(FOREVER).alias("end_at"),
        F.lit(False).alias("ok"),
    )
    deliveries = seen.unionByName(unseen).withColumn("service", F.lit("delivery"))
    return enqueues(tables).withColumn("service", F.lit("enqueue")).unionByName(deliveries)


COUNTS = [
    "windows",
    "unavailable_ns",
    "longest_ns",
    "certain_ns",
    "run_ns",
    "accepted",
    "never_again",
]
"""What the check counts, in the order of its verdict."""


def availability(tables: Tables, settings: Settings, offenders: Offenders) -> dict[int, Finding]:
    """Find when a queue took or gave nothing although a client waited."""
    services, windows = _services_and_windows(tables, settings)
    of_case: dict[int, list[tuple[str, str]]] = {}
    for case, queue, service in sorted(services):
        of_case.setdefault(case, []).append((queue, service))
    queues = {
        case: [queue for queue, service in each if service == "enqueue"]
        for case, each in of_case.items()
    }
    faults = {case: known_faults(tables, case) for case in tables.cases}
    points = {
        (case, queue, fault.start)
        for case, each in queues.items()
        for queue in each
        for fault in faults[case]
    }
    recovered = first_accepted(tables, list(points))
    found = {case: Finding("availability", dict.fromkeys(COUNTS, 0)) for case in tables.cases}
    for (case, _, service), row in services.items():
        found[case].counts["accepted"] += row["n"] if service == "enqueue" else 0
    for case, finding in found.items():
        start, stop = tables.runs.get(case, (0, 0))
        run_ns = max(stop - start, 0)
        rows = [
            row | {"fault_op": _cause(faults[case], row, settings)} for row in windows.get(case, [])
        ]
        lengths = [row["length_ns"] for row in rows]
        shares = [_share(key, rows, run_ns) for key in of_case.get(case, [])]
        rtos = [
            _rto(queue, fault, recovered.get((case, queue, fault.start)))
            for queue in queues.get(case, [])
            for fault in faults[case]
        ]
        longest = max(lengths, default=0)
        finding.counts |= {
            "windows": len(rows),
            "unavailable_ns": sum(lengths),
            "longest_ns": longest,
            "certain_ns": max(longest - 2 * tables.epsilon, 0),
            "run_ns": run_ns,
            "never_again": sum(row["rto_ns"] is None for row in rtos),
        }
        finding.table = [*shares, *rows, *rtos]
        if rows:
            finding.offenders["windows"] = rows[: offenders.most or None]
    return found


def _services_and_windows(
    tables: Tables, settings: Settings
) -> tuple[dict[Any, Any], dict[int, list[dict[str, Any]]]]:
    """Return each service of a queue with its waits, and the windows of unavailability by case.

    Waits are put into buckets of the threshold's length first, so that one pass over them serves
    both.
    """
    threshold = max(settings.unavailable_ns, 1)
    intervals = waits(tables)
    keys = [CASE, "queue", "service"]
    end = F.when(F.col("ok"), F.col("end_at"))
    buckets = (
        intervals.groupBy(*keys, bucket(F.col("end_at"), threshold).alias("bucket"))
        .agg(
            F.min("begin_at").alias("least"),
            F.min(end).alias("first"),
            F.max(end).alias("last"),
            F.count_if("ok").alias("n"),
        )
        .persist(StorageLevel.MEMORY_AND_DISK)
    )
    try:
        services = _services(buckets, keys)
        gaps = _gaps(tables, buckets, keys, services, settings.unavailable_ns)
        beyond = Beyond(intervals, keys, "end_at", "begin_at", threshold)
        return services, _windows(beyond, gaps, buckets, settings.unavailable_ns)
    finally:
        buckets.unpersist()


def _rto(queue: str, fault: Fault, end: int | None) -> Row:
    row: Row = {
        "what": "rto",
        "queue": queue,
        "fault_op": fault.number,
        "kind": fault.kind,
        "target": fault.target,
    }
    return row | {"rto_ns": None if end is None else end - fault.start}


def known_faults(tables: Tables, case: int) -> list[Fault]:
    """Return the faults of a case that began, by begin and number."""
    faults = tables.few[case].faults.values()
    return sorted(
        (fault for fault in faults if fault.start != FOREVER),
        key=lambda fault: (fault.start, fault.number),
    )


def _services(buckets: DataFrame, keys: list[str]) -> dict[tuple[int, str, str], Any]:
    rows = buckets.groupBy(*keys).agg(
        F.min("least").alias("first_begin"), F.max("last").alias("last_ok"), F.sum("n").alias("n")
    )
    return {(row[CASE], row["queue"], row["service"]): row for row in rows.collect()}


def _gaps(
    tables: Tables,
    buckets: DataFrame,
    keys: list[str],
    services: dict[tuple[int, str, str], Any],
    threshold: int,
) -> list[tuple[int, str, str, int, int, int]]:
    """Return pauses longer than the threshold, each as key, begin, end and whether it lasts to the
    end of the run.
    """
    service = Window.partitionBy(*keys)
    before = F.max("last").over(
        service.orderBy("bucket").rowsBetween(Window.unboundedPreceding, -1)
    )
    rows = buckets.withColumn("since", F.coalesce(before, F.min("least").over(service)))
    rows = rows.where(F.col("first").isNotNull() & (F.try_subtract("first", "since") > threshold))
    found = [
        (*(row[key] for key in keys), row["since"], row["first"], 0)
        for row in rows.select(*keys, "since", "first").collect()
    ]
    for (case, queue, name), row in services.items():
        since = row["first_begin"] if row["last_ok"] is None else row["last_ok"]
        if tables.runs[case][1] - since > threshold:
            found.append((case, queue, name, since, tables.runs[case][1], 1))
    return found


def _windows(
    beyond: Beyond, gaps: list[Any], buckets: DataFrame, threshold: int
) -> dict[int, list[dict[str, Any]]]:
    """Return windows: the parts of pauses in which somebody waited, by case in order."""
    if not gaps:
        return {}
    spark = buckets.sparkSession
    points = spark.createDataFrame(
        [gap[:4] for gap in gaps], f"{CASE} int, queue string, service string, point bigint"
    )
    rows = least_beyond(
        beyond, points.distinct(), buckets.select(*beyond.keys, "bucket", "least")
    ).collect()
    waiting = {
        (row[CASE], row["queue"], row["service"], row["point"]): row["least"] for row in rows
    }
    found: dict[int, list[dict[str, Any]]] = {}
    for case, queue, service, since, until, is_open in sorted(gaps):
        least = waiting[case, queue, service, since]
        begin = max(since, FOREVER if least is None else least)
        if until - begin > threshold:
            row = {
                "what": "window",
                "queue": queue,
                "service": service,
                "start_ns": begin,
                "end_ns": until,
                "length_ns": until - begin,
            }
            found.setdefault(case, []).append(row | {"open": is_open})
    return found


def _cause(faults: list[Fault], window: dict[str, Any], settings: Settings) -> int | None:
    """Return the last fault that began before a window ended and ended not long before it began."""
    for fault in reversed(faults):
        if (
            fault.start < window["end_ns"]
            and fault.stop + settings.fault_reach_ns >= window["start_ns"]
        ):
            return fault.number
    return None


def _share(key: tuple[str, str], windows: list[dict[str, Any]], run_ns: int) -> Row:
    total = sum(row["length_ns"] for row in windows if (row["queue"], row["service"]) == key)
    percent = round(100 * (1 - total / run_ns), 4) if run_ns else None
    return {
        "what": "share",
        "queue": key[0],
        "service": key[1],
        "unavailable_ns": total,
        "percent": percent,
    }


def first_accepted(
    tables: Tables, points: list[tuple[int, str, int]]
) -> dict[tuple[int, str, int], int]:
    """Return for each case, queue and time when the first enqueue that began later was accepted, if
    one was.
    """
    if not points:
        return {}
    spark = tables.ops.sparkSession
    accepted = enqueues(tables).where("ok")
    wanted = spark.createDataFrame(points, f"{CASE} int, queue string, point bigint")
    rows = least_beyond(
        Beyond(accepted, [CASE, "queue"], "begin_at", "end_at", SECOND), wanted
    ).collect()
    return {
        (row[CASE], row["queue"], row["point"]): row["least"]
        for row in rows
        if row["least"] is not None
    }


def cut(nanoseconds: Column) -> Column:
    """Return microseconds, cut to three significant decimal digits."""
    value = divided(nanoseconds, 1000)
    step = F.when(value < 1000, F.lit(1).cast("bigint"))
    for power in range(1, 14):
        step = step.when(value < 1000 * 10**power, F.lit(10**power))
    return value - F.pmod(value, step.otherwise(F.lit(10**14)))


def durations(tables: Tables) -> DataFrame:
    """Return everything that took time: case, what, name, at, took."""
    pairs = enqueues(tables).where("ok")
    delivered = tables.messages.where(
        (F.col("attempts") > 0) & (F.col("deliveries") > 0) & (F.col("first_at") >= F.col("enq_at"))
    )
    rows = _took(
        pairs, "enqueue", "queue", "end_at", F.col("end_at") - F.col("begin_at")
    ).unionByName(
        _took(delivered, "delivery", "queue", "first_at", F.col("first_at") - F.col("enq_at"))
    )
    if tables.has_brokers:
        noted = tables.events.where((F.col("kind_group") == "msg") & F.col("took_ns").isNotNull())
        for what, kind, name in (("replication", "rep", "peer"), ("acceptance", "conf", "queue")):
            rows = rows.unionByName(
                _took(
                    noted.where(F.col("kind") == KIND[kind].code),
                    what,
                    name,
                    "at",
                    F.col("took_ns"),
                )
            )
    return rows


def _took(rows: DataFrame, what: str, name: str, at: str, took: Column) -> DataFrame:
    return rows.select(
        CASE,
        F.lit(what).alias("what"),
        F.coalesce(name, F.lit("")).alias("name"),
        F.col(at).alias("at"),
        took.alias("took"),
    )


def percentiles(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return n, percentiles and maximum of each group: from a histogram, which is small."""
    histogram = (
        rows.withColumn("us", cut(F.col("took"))).groupBy(*keys, "us").agg(F.count("*").alias("n"))
    )
    group = Window.partitionBy(*keys)
    ranked = histogram.withColumn("whole", F.sum("n").over(group)).withColumn(
        "upto", F.sum("n").over(group.orderBy("us"))
    )
    cuts = [
        F.min(F.when(F.col("upto") * 100 >= F.col("whole") * percent, F.col("us"))).alias(
            f"p{percent}_us"
        )
        for percent in PERCENTS
    ]
    return ranked.groupBy(*keys).agg(F.sum("n").alias("n"), *cuts, F.max("us").alias("max_us"))


def latency(tables: Tables) -> dict[int, Finding]:
    """Say how long replication, acceptance and delivery took."""
    found = {case: Finding("latency", dict.fromkeys(KINDS, 0)) for case in tables.cases}
    for row in (
        percentiles(durations(tables), [CASE, "what", "name"])
        .orderBy(CASE, "what", "name")
        .collect()
    ):
        finding = found[row[CASE]]
        finding.counts[row["what"]] += row["n"]
        finding.table.append(
            {
                name: row[name]
                for name in ("what", "name", "n", "p50_us", "p95_us", "p99_us", "max_us")
            }
        )
    return found


def latency_by_second(tables: Tables) -> DataFrame:
    """Return the table latency_1s."""
    rows = durations(tables).withColumn("second", divided(F.col("at"), SECOND))
    return percentiles(rows, ["what", "name", "second"])


def mutex(tables: Tables, offenders: Offenders) -> dict[int, Finding]:
    """Find holds of a lock that certainly overlap, and tokens that were not followed."""
    found = {case: Finding("mutex", dict.fromkeys(MUTEX, 0)) for case in tables.cases}
    steps = tables.ops.where(
        F.col("op").isin([OPERATIONS[what] for what in ("acquire", "release", "write")])
        & F.col("is_paired")
    )
    acquires = steps.where(F.col("op") == OPERATIONS["acquire"])
    is_taken = (F.col("op") == OPERATIONS["acquire"]) & (F.col("outcome") == OK)
    is_write = F.col("op") == OPERATIONS["write"]
    has_token = F.col("epoch").isNotNull() & F.col("position").isNotNull()
    locks = steps.groupBy(CASE, "queue").agg(
        F.max((F.col("op") == OPERATIONS["acquire"]).cast("int")).alias("locks"),
        F.count_if(is_taken).alias("holds"),
        F.count_if(is_taken & has_token).alias("tokens"),
        F.count_if(is_write & (F.col("outcome") == OK)).alias("writes"),
        F.count_if(is_write & (F.col("outcome") == FAIL)).alias("refused"),
    )
    names = ("locks", "holds", "tokens", "writes", "refused")
    for row in locks.groupBy(CASE).agg(*(F.sum(name).alias(name) for name in names)).collect():
        found[row[CASE]].counts |= {name: row[name] for name in names}
    if any(finding.counts["tokens"] or finding.counts["writes"] for finding in found.values()):
        tokens = steps.where((F.col("outcome") == OK) & has_token)
        for what, late in (
            ("stale", stale(tokens.where(is_write), tables.epsilon)),
            ("regressions", regressions(tokens.where(is_taken), tables.epsilon)),
        ):
            offenders.put_counted(
                found, what, late, F.count("*"), ("queue", "start", "op_id"), _overlap_row
            )
    if not any(finding.counts["holds"] for finding in found.values()):
        return found
    lost = tables.events.where(
        (F.col("kind_group") == "op")
        & (F.col("op") == OPERATIONS["lost"])
        & (F.col("otype") != OUTCOMES["invoke"])
    )
    releases = steps.where((F.col("op") == OPERATIONS["release"]) & (F.col("outcome") != FAIL))
    spans = holds(acquires.where(F.col("outcome") == OK), releases, lost).persist(
        StorageLevel.MEMORY_AND_DISK
    )
    try:
        for what, stop in (("overlaps", "stop"), ("lease_overlaps", "lease_stop")):
            late = overlapping(spans.withColumn("stop", F.col(stop)), tables.epsilon)
            offenders.put_counted(
                found, what, late, F.count("*"), ("queue", "start", "stop", "op_id"), _overlap_row
            )
    finally:
        spans.unpersist()
    return found


def holds(taken: DataFrame, releases: DataFrame, lost: DataFrame) -> DataFrame:
    """Return from when to when each successful acquire certainly held its lock: to the first
    release of its process that comes later.

    Column `lease_stop`: or to the first time at which it learned that its session was gone. All of
    a lock is in one partition.
    """
    keys = (CASE, "queue", "process")
    rows = taken.select(*keys, F.col("end_at").alias("t"), "op_id", F.lit(0).alias("rank"))
    for ends, name in ((releases, "begin_at"), (lost, "at")):
        released = F.lit(ends is releases).alias("is_release")
        rows = rows.unionByName(
            ends.select(*keys, F.col(name).alias("t"), released, F.lit(1).alias("rank")),
            allowMissingColumns=True,
        )
    # Backwards in time, so that the next end is the latest one seen; a frame that reaches forward
    # would be quadratic.
    backwards = (
        Window.partitionBy(*keys)
        .orderBy(F.col("t").desc(), "rank")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    stop, lease_stop = (
        F.coalesce(
            F.last(F.when(is_end, F.col("t")), ignorenulls=True).over(backwards), F.lit(FOREVER)
        )
        for is_end in (F.col("is_release"), F.col("is_release").isNotNull())
    )
    rows = rows.repartition(CASE, "queue").select(
        "*", stop.alias("stop"), lease_stop.alias("lease_stop")
    )
    return rows.where(F.col("op_id").isNotNull()).select(
        CASE, "queue", F.col("t").alias("start"), "stop", "lease_stop", "op_id"
    )


def overlapping(spans: DataFrame, epsilon: int) -> DataFrame:
    """Return holds that certainly begin before all that began earlier have ended, and the one that
    ends last of these.
    """
    ordered = Window.partitionBy(CASE, "queue").orderBy("start", "stop", "op_id")
    longest = F.max(F.struct("stop", (-F.col("number")).alias("number"), "op_id"))
    rows = spans.withColumn("number", F.row_number().over(ordered))
    rows = rows.withColumn(
        "longest", longest.over(ordered.rowsBetween(Window.unboundedPreceding, -1))
    )
    rows = rows.where(
        (F.col("longest.stop") > F.col("start") + epsilon)
        & (F.col("stop") >= F.col("start") + epsilon)
    )
    return rows.select(
        CASE,
        "queue",
        "start",
        "stop",
        "op_id",
        F.col("longest.stop").alias("other_stop"),
        F.col("longest.op_id").alias("other_op"),
    )


def stale(writes: DataFrame, epsilon: int) -> DataFrame:
    """Return writes that certainly began after one with a higher token was taken, and the one of
    these that was taken first.
    """
    key = (CASE, "queue", "epoch", "position")
    higher = _before(Window.partitionBy(CASE, "queue"), F.col("epoch").desc())
    rows = writes.withColumn("before", higher)
    # Of one token the first row has none of its own before it, so it knows the latest.
    rows = rows.withColumn("before", F.max("before").over(Window.partitionBy(*key)))
    return _late(rows, epsilon)


def regressions(taken: DataFrame, epsilon: int) -> DataFrame:
    """Return acquires that certainly began after one of their epoch with a token that is not lower
    had ended, and the one of these that ended first.
    """
    before = _before(Window.partitionBy(CASE, "queue", "epoch"))
    return _late(taken.withColumn("before", before), epsilon)


def _before(group: WindowSpec, *order: Column) -> Column:
    """Return the first end of what has a higher token, or the same and an earlier end."""
    ordered = group.orderBy(*order, F.col("position").desc(), "end_at", "op_id")
    ends = F.struct(F.col("end_at").alias("end"), "op_id")
    first = F.min(ends).over(ordered.rowsBetween(Window.unboundedPreceding, -1))
    nothing = F.struct(F.lit(FOREVER).alias("end"), F.lit(0).cast("bigint").alias("op_id"))
    return F.coalesce(first, nothing)


def _late(rows: DataFrame, epsilon: int) -> DataFrame:
    end = F.col("before.end")
    return rows.where((end < FOREVER) & (F.col("begin_at") > end + epsilon)).select(
        CASE,
        "queue",
        F.col("begin_at").alias("start"),
        "op_id",
        end.alias("other_stop"),
        F.col("before.op_id").alias("other_op"),
    )


def _overlap_row(row: dict[str, Any]) -> Row:
    other_end = None if row["other_stop"] == FOREVER else row["other_stop"]
    return {
        "queue": row["queue"],
        "start_ns": row["start"],
        "op": row["op_id"],
        "other_end_ns": other_end,
        "other_op": row["other_op"],
    }
