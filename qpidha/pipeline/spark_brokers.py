"""Checks of brokers in Spark: accepted before safe, one primary an epoch, and the phases of failovers.

Roles, promises and promotions are few: they come to the driver, where the functions of the Python engine look at them. What is as many as
messages or batches stays in Spark: the frontier of a reign is a running maximum per peer in the order in which its broker wrote; when a
position became safe is a running minimum from the last position down. A reign is one task of a window.
The definitions are those of `checks.py`. Source: spark-pipeline.md 4.6.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qpidha.pipeline.checks import Settings, window
from qpidha.pipeline.events import FOREVER, KIND
from qpidha.pipeline.facts import CASE, Tables, is_step, operations
from qpidha.pipeline.python_brokers import failover as told_failover
from qpidha.pipeline.python_brokers import primaries as told_primaries
from qpidha.pipeline.python_facts import Reign
from qpidha.pipeline.spark_offenders import Offenders
from qpidha.pipeline.spark_times import first_accepted
from qpidha.pipeline.verdict import Finding, Row

REIGN = (CASE, "node", "boot", "epoch")
REP, CONF, INSYNC, ENQ, DEQ, ROLE, EPOCH = (KIND[name].code for name in ("rep", "conf", "insync", "enq", "deq", "role", "epoch"))


def keep_runs(tables: Tables) -> None:
    """Leave out what brokers wrote at other times than that of the run, and learn when each was last heard of.

    One small aggregate over the events of brokers; where all is of the run nothing else is done. How things stood before are few rows.
    """
    spark = tables.events.sparkSession
    is_broker = F.col("kind_group").isin("state", "msg")
    windows = [(case, *window(start, end, tables.epsilon)) for case, (start, end) in tables.runs.items()]
    bounds = F.broadcast(spark.createDataFrame(windows, f"{CASE} int, since bigint, until bigint"))
    rows = tables.events.where(is_broker).join(bounds, CASE, "left")
    is_inside = F.coalesce(F.col("at").between(F.col("since"), F.col("until")), F.lit(True))
    standing = F.when((F.col("at") < F.col("since")) & F.col("kind").isin(ROLE, EPOCH, INSYNC, REP), F.col("kind"))
    keys = (standing, F.when(standing.isin(INSYNC, REP), F.col("epoch")), F.when(standing == REP, F.col("peer")))
    names = ("standing", "of_epoch", "of_peer")
    last = rows.groupBy(CASE, "node", "boot", *(key.alias(name) for key, name in zip(keys, names, strict=True))).agg(
        F.max("s").alias("s"), F.max(F.when(is_inside, F.col("at"))).alias("heard"), F.count_if(~is_inside).alias("others")
    )
    found = last.collect()
    for row in found:
        if row["heard"] is not None:
            tables.few[row[CASE]].writer_ends[row["node"], row["boot"]] = row["heard"]
    if not any(row["others"] for row in found):
        return
    wanted = [
        (row[CASE], row["node"], row["boot"], row["s"]) for row in found
        if row["standing"] is not None and (row["node"], row["boot"]) in tables.few[row[CASE]].writer_ends
    ]  # fmt: skip
    before = F.broadcast(spark.createDataFrame(wanted, f"{CASE} int, node string, boot string, s bigint"))
    stood = (
        tables.events.where(is_broker)
        .join(before, [CASE, "node", "boot", "s"], "left_semi")
        .withColumn("took_ns", F.lit(None).cast("bigint"))
    )
    columns = tables.events.columns
    local = spark.createDataFrame(stood.select(*columns).collect(), tables.events.schema)
    tables.events = tables.events.where(~is_broker).unionByName(rows.where(is_inside).select(*columns)).unionByName(local)


def learn_brokers(tables: Tables) -> None:
    """Complete what the driver knows of brokers: who accepted in which epoch since when."""
    accepted = tables.events.where((F.col("kind_group") == "msg") & (F.col("kind") == CONF))
    for row in accepted.groupBy(*REIGN).agg(F.min("at").alias("at")).collect():
        tables.few[row[CASE]].reigns[row["node"], row["boot"], row["epoch"]] = Reign(accepted=[(0, row["at"], 0, 0)])


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
        # What was served first after a time stands for all that began after it: later times have later first ones.
        tables.few[case].enqueues.setdefault(queue, []).append((since + 1, end, True))
    return {case: told_failover(tables.few[case], settings) for case in tables.cases}


def _int(value: Any) -> int:
    return int(value)


def accepted_before_safe(tables: Tables, offenders: Offenders) -> dict[int, Finding]:
    """Compare acceptances, by brokers and as seen by clients, with what the in-sync backups had confirmed."""
    names = ("accepted", "unsafe", "unjudged", "client_accepted", "client_unsafe")
    found = {case: Finding("accepted-before-safe", dict.fromkeys(names, 0)) for case in tables.cases}
    if not tables.has_brokers:
        return found
    moves = frontiers(tables).persist()
    try:
        _by_brokers(tables, moves, found, offenders)
        _by_clients(tables, moves, found, offenders)
    finally:
        moves.unpersist()
    return found


def frontiers(tables: Tables) -> DataFrame:
    """Return the rep, conf and insync events of all reigns with the frontier at that moment; null: no set was named before."""
    events = tables.events.where(F.col("kind_group").isin("state", "msg") & F.col("kind").isin(REP, CONF, INSYNC))
    sets = F.when(F.col("kind") == INSYNC, F.split(F.trim("members"), r"\s+"))
    rows = events.select(
        *REIGN, "s", "at", "kind", "peer", "position", F.coalesce("position_to", "position").alias("last"), sets.alias("members")
    )
    named = rows.where(F.col("kind") == INSYNC).select(F.explode("members")).distinct().collect()
    written = Window.partitionBy(*REIGN).orderBy("s").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    current = F.last("members", ignorenulls=True).over(written)
    rows = rows.withColumn("current", current)
    members = sorted(row[0] for row in named if row[0])
    frontier: Column = F.lit(FOREVER)
    for number, member in enumerate(members):
        confirmed = F.when((F.col("kind") == REP) & (F.col("peer") == member), F.col("last"))
        rows = rows.withColumn(f"confirmed_{number}", F.greatest(F.coalesce(F.max(confirmed).over(written), F.lit(0)), F.lit(0)))
        waits = F.array_contains("current", member) & (F.col("node") != member)
        frontier = F.least(frontier, F.when(waits, F.col(f"confirmed_{number}")).otherwise(F.lit(FOREVER)))
    rows = rows.withColumn("frontier", F.when(F.col("current").isNotNull(), frontier))
    return rows.select(*REIGN, "s", "at", "kind", "position", "last", "frontier")


def _by_brokers(tables: Tables, moves: DataFrame, found: dict[int, Finding], offenders: Offenders) -> None:
    accepted = moves.where(F.col("kind") == CONF)
    positions = F.col("last") - F.col("position") + 1
    number = F.col("last") - F.greatest("frontier", F.col("position") - 1)
    unsafe = accepted.where(F.col("last") > F.col("frontier")).withColumn("number", number)
    sums = accepted.groupBy(CASE).agg(
        F.sum(positions).alias("accepted"),
        F.sum(F.when(F.col("frontier").isNull(), positions).otherwise(F.lit(0))).alias("unjudged"),
        F.sum(F.when(F.col("last") > F.col("frontier"), number).otherwise(F.lit(0))).alias("unsafe"),
    )
    for row in sums.collect():
        found[row[CASE]].counts |= {name: row[name] for name in ("accepted", "unjudged", "unsafe")}
    if any(finding.counts["unsafe"] for finding in found.values()):
        offenders.put(found, "unsafe", unsafe, ("node", "boot", "epoch", "s"), _unsafe_row)


def _unsafe_row(row: dict[str, Any]) -> Row:
    found: Row = {name: row[name] for name in ("node", "boot", "epoch", "s")}
    return found | {
        "at_ns": row["at"], "position": row["position"], "position_to": row["last"], "safe_to": row["frontier"], "number": row["number"],
    }  # fmt: skip


def _by_clients(tables: Tables, moves: DataFrame, found: dict[int, Finding], offenders: Offenders) -> None:
    """Compare by message id: when the client heard of it, and when its position was safe."""
    told = operations(tables.events).where(is_step("enqueue", "ok") & F.col("msg").isNotNull())
    nothing = F.lit(None).cast("bigint")
    told = told.select(CASE, "msg", F.col("at").alias("told"), nothing.alias("safe"), F.lit(0).alias("placed"), F.lit(0).alias("judged"))
    places = safe_places(tables, moves)
    rows = told.unionByName(
        places.select(CASE, "msg", nothing.alias("told"), "safe", F.lit(1).alias("placed"), F.col("has_set").cast("int").alias("judged"))
    )
    gone = tables.events.where((F.col("kind_group") == "msg") & (F.col("kind") == DEQ) & F.col("msg").isNotNull())
    rows = rows.unionByName(
        gone.select(CASE, "msg", nothing.alias("told"), F.col("at").alias("safe"), F.lit(0).alias("placed"), F.lit(1).alias("judged"))
    )
    both = rows.groupBy(CASE, "msg").agg(
        F.min("told").alias("told"), F.min("safe").alias("safe"), F.sum("placed").alias("placed"), F.sum("judged").alias("judged")
    )
    both = both.where(F.col("told").isNotNull() & (F.col("placed") > 0))
    is_unsafe = (F.col("judged") > 0) & (F.col("safe").isNull() | (F.col("told") + tables.epsilon < F.col("safe")))
    sums = both.groupBy(CASE).agg(
        F.count("*").alias("all"), F.count_if(F.col("judged") == 0).alias("unjudged"), F.count_if(is_unsafe).alias("unsafe")
    )
    for row in sums.collect():
        counts = found[row[CASE]].counts
        counts["client_accepted"] += row["all"]
        counts["unjudged"] += row["unjudged"]
        counts["client_unsafe"] += row["unsafe"]
    if any(finding.counts["client_unsafe"] for finding in found.values()):
        wrong = both.where(is_unsafe).select(CASE, "msg", "told", "safe").join(
            places.groupBy(CASE, "msg").agg(F.min(F.struct("node", "boot", "epoch", "position")).alias("place")), [CASE, "msg"]
        )  # fmt: skip
        offenders.put(found, "client_unsafe", wrong, ("msg",), _told_row)


def _told_row(row: dict[str, Any]) -> Row:
    place = row["place"]
    found: Row = {"msg": row["msg"], "accepted_ns": row["told"], "safe_ns": row["safe"]}
    return found | {"node": place["node"], "epoch": place["epoch"], "position": place["position"]}


def safe_places(tables: Tables, moves: DataFrame) -> DataFrame:
    """Return each `enq` event that names a message, with the time at which its position was first safe; null: never."""
    placed = tables.events.where((F.col("kind_group") == "msg") & (F.col("kind") == ENQ) & F.col("msg").isNotNull())
    nothing = F.lit(None).cast("bigint")
    marks = moves.where((F.col("kind") != CONF) & F.col("frontier").isNotNull())
    rows = placed.select(*REIGN, "position", "msg", nothing.alias("reached"), F.lit(1).alias("rank")).unionByName(
        marks.select(
            *REIGN, F.col("frontier").alias("position"), F.lit(None).cast("string").alias("msg"), F.col("at").alias("reached"),
            F.lit(0).alias("rank"),
        )
    )  # fmt: skip
    reign = Window.partitionBy(*REIGN)
    # From the last position down: the least time at which the frontier was here or beyond.
    down = reign.orderBy(F.col("position").desc(), "rank").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn("safe", F.min("reached").over(down)).withColumn("has_set", F.max("reached").over(reign).isNotNull())
    return rows.where(F.col("msg").isNotNull()).select(*REIGN, "position", "msg", "safe", "has_set")
