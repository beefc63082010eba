"""Checks of brokers in Spark that few events decide: one primary an epoch, and the phases of
failovers.

Roles, in-sync sets, promises and promotions are few: they come to the driver, where the functions
of the Python engine look at them. The definitions are those of `checks.py`. The rules:
docs/internals/safety.md.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from qpidha.pipeline.checks import Settings, window
from qpidha.pipeline.events import KIND
from qpidha.pipeline.oracle.brokers import failover as told_failover
from qpidha.pipeline.oracle.brokers import primaries as told_primaries
from qpidha.pipeline.oracle.facts import Reign
from qpidha.pipeline.spark.facts import CASE, POSITIONS, REIGN, Tables
from qpidha.pipeline.spark.times import first_accepted
from qpidha.pipeline.verdict import Finding

REP, CONF, INSYNC, ROLE, EPOCH = (
    KIND[name].code for name in ("rep", "conf", "insync", "role", "epoch")
)


def keep_runs(tables: Tables) -> None:
    """Leave out what brokers wrote at other times than that of the run, and learn when each was
    last heard of.

    One small aggregate over the events of brokers; where all is of the run nothing else is done.
    How things stood before are few rows.
    """
    spark = tables.events.sparkSession
    is_broker = F.col("kind_group").isin("state", "msg")
    windows = [
        (case, *window(start, end, tables.epsilon)) for case, (start, end) in tables.runs.items()
    ]
    bounds = F.broadcast(spark.createDataFrame(windows, f"{CASE} int, since bigint, until bigint"))
    rows = tables.events.where(is_broker).join(bounds, CASE, "left")
    is_inside = F.coalesce(F.col("at").between(F.col("since"), F.col("until")), F.lit(True))
    standing = F.when(
        (F.col("at") < F.col("since")) & F.col("kind").isin(ROLE, EPOCH, INSYNC, REP), F.col("kind")
    )
    keys = (
        standing,
        F.when(standing.isin(INSYNC, REP), F.col("epoch")),
        F.when(standing == REP, F.col("peer")),
    )
    names = ("standing", "of_epoch", "of_peer")
    last = rows.groupBy(
        CASE, "node", "boot", *(key.alias(name) for key, name in zip(keys, names, strict=True))
    ).agg(
        F.max("s").alias("s"),
        F.max(F.when(is_inside, F.col("at"))).alias("heard"),
        F.count_if(~is_inside).alias("others"),
    )
    found = last.collect()
    for row in found:
        if row["heard"] is not None:
            tables.few[row[CASE]].writer_ends[row["node"], row["boot"]] = row["heard"]
    if not any(row["others"] for row in found):
        return
    wanted = [
        (row[CASE], row["node"], row["boot"], row["s"])
        for row in found
        if row["standing"] is not None
        and (row["node"], row["boot"]) in tables.few[row[CASE]].writer_ends
    ]
    before = F.broadcast(
        spark.createDataFrame(wanted, f"{CASE} int, node string, boot string, s bigint")
    )
    stood = (
        tables.events.where(is_broker)
        .join(before, [CASE, "node", "boot", "s"], "left_semi")
        .withColumn("took_ns", F.lit(None).cast("bigint"))
    )
    columns = tables.events.columns
    local = spark.createDataFrame(stood.select(*columns).collect(), tables.events.schema)
    tables.events = (
        tables.events.where(~is_broker)
        .unionByName(rows.where(is_inside).select(*columns))
        .unionByName(local)
    )


def learn_brokers(tables: Tables) -> None:
    """Complete what the driver knows of brokers: who accepted how much in which epoch since when.
    In-sync sets must be known.
    """
    spark = tables.events.sparkSession
    begins = [
        (case, *key, reign.spans()[0][0])
        for case, few in tables.few.items()
        for key, reign in few.reigns.items()
        if reign.sets
    ]
    known = F.broadcast(
        spark.createDataFrame(
            begins, f"{CASE} int, node string, boot string, epoch bigint, begin bigint"
        )
    )
    number = F.coalesce("position_to", "position").cast(POSITIONS) - F.col("position") + 1
    has_no_set = F.col("begin").isNull() | (F.col("s") < F.col("begin"))
    accepted = tables.events.where((F.col("kind_group") == "msg") & (F.col("kind") == CONF)).join(
        known, [*REIGN], "left"
    )
    sums = accepted.groupBy(*REIGN).agg(
        F.min("at").alias("at"),
        F.sum(number).alias("number"),
        F.sum(F.when(has_no_set, number).otherwise(0)).alias("unjudged"),
    )
    for row in sums.collect():
        few = tables.few[row[CASE]]
        few.reigns.setdefault((row["node"], row["boot"], row["epoch"]), Reign()).accepted.append(
            (0, row["at"], 0, 0)
        )
        number_before, unjudged_before = tables.accepted.get(row[CASE], (0, 0))
        tables.accepted[row[CASE]] = (
            number_before + int(row["number"]),
            unjudged_before + int(row["unjudged"]),
        )


def primaries(tables: Tables, settings: Settings) -> dict[int, Finding]:
    """Find epochs with two primaries, brokers that went back, and primaries at the same time."""
    return {case: told_primaries(tables.few[case], settings) for case in tables.cases}


def failover(tables: Tables, settings: Settings) -> dict[int, Finding]:
    """Say for each primary how it became one, and how long each phase took."""
    queues: dict[int, list[str]] = {}
    for (case, queue), known in tables.queues.items():
        if known.totals[0]:
            queues.setdefault(case, []).append(queue)
    points: dict[tuple[int, str, int], None] = {}
    for case in tables.cases:
        tables.few[case].enqueues.clear()
        for row in told_failover(tables.few[case], settings).table:
            points |= {(case, queue, _int(row["since_ns"])): None for queue in queues.get(case, [])}
    for (case, queue, since), end in first_accepted(tables, list(points)).items():
        # What was served first after a time stands for all that began after it: later times have
        # later first ones.
        tables.few[case].enqueues.setdefault(queue, []).append((since + 1, end, True))
    return {case: told_failover(tables.few[case], settings) for case in tables.cases}


def _int(value: Any) -> int:
    return int(value)
