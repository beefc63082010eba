"""Facts: what the checks need of events, as four tables, each made with one shuffle; a fifth, of
positions, is in `safe.py`.

Of every value one row, of every operation with a begin and an end one row, of every queue one row a
second, and one row a place that a broker noted for a message id of which a client was told. All but
the places are hash aggregates. Only numbers are aggregated: the client of the first delivery is a
packed decimal, since a minimum of a struct would sort. Column `case` tells histories apart that are
judged in one job; it is 0 for a run. The definitions are those of `checks.py`. Judges nothing.
Why so: docs/internals/pipeline.md, "The facts table".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qpidha.model.duration import SECOND
from qpidha.pipeline.events import (
    CLIENT,
    EARLIEST,
    FOREVER,
    KIND,
    LATEST,
    OPERATIONS,
    OUTCOMES,
    Event,
)
from qpidha.pipeline.oracle.facts import Facts, found_empty
from qpidha.pipeline.spark.schema import event_of

CASE = "case"
STEP = {
    (what, outcome): 4 * code + stand
    for what, code in OPERATIONS.items()
    for outcome, stand in OUTCOMES.items()
}
"""One number for what is done and how it stands."""
PAIRED = tuple(OPERATIONS[what] for what in ("enqueue", "acquire", "release", "write"))
CLIENTS = 1 << 44
"""Greater than any client: processes are 64 bits and a client is a million of them."""
PACK = 1 << 45
REIGN = (CASE, "node", "boot", "epoch")
"""While one writer is primary: its positions and its in-sync sets."""
POSITIONS = "decimal(20,0)"
"""Of numbers of positions: of one absurd range there are more than 64 bits can tell."""
SMALL = ("fault", "role", "epoch", "insync", "promotion", "failover", "drop")
"""Kinds of which there are few: a driver takes them as they are."""


@dataclass(slots=True)
class Queue:
    """What is known of one queue of one case."""

    totals: tuple[int, int, int] = (0, 0, 0)
    """Enqueued, delivered, acknowledged."""
    peaks: tuple[int, int, int] = (0, 0, 0)
    """Of these the most in one second."""
    foreign: int = 0
    has_messages: bool = False
    is_drained: bool = False
    """Whether it was certainly found empty after the last that was sent to it."""


@dataclass(slots=True)
class Tables:
    """All that checks work on."""

    cases: list[int]
    epsilon: int
    events: DataFrame
    """With `case` and `at`."""
    messages: DataFrame
    ops: DataFrame
    traffic: DataFrame
    has_brokers: bool = True
    places: DataFrame | None = None
    positions: DataFrame | None = None
    """None, both: no broker wrote, or no check reads them."""
    queues: dict[tuple[int, str], Queue] = field(default_factory=dict)
    runs: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Case -> begin and end of the run."""
    accepted: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Case -> positions that brokers accepted, and of these those before an in-sync set was named.
    """
    few: dict[int, Facts] = field(default_factory=dict)
    """Case -> facts from those kinds of which there are few events."""


def count_if(condition: Column) -> Column:
    """Return how many rows meet a condition."""
    return F.count_if(condition).cast("bigint")


def divided(column: Column, divisor: int) -> Column:
    """Divide integers, rounding down."""
    return F.call_function(
        "div", column - F.pmod(column, F.lit(divisor)), F.lit(divisor).cast("bigint")
    )


def with_time(events: DataFrame, *, one_clock: bool) -> DataFrame:
    """Add `at`. Absurd times are cut, so that no difference of two overflows: one such line must
    not stop a job.
    """
    wall = (
        F.greatest(F.least(F.col("ts_us"), F.lit(LATEST // 1000 + 1)), F.lit(EARLIEST // 1000))
        * 1000
    )
    told = F.col("mono_ns") if one_clock else wall
    return events.withColumn("at", F.greatest(F.least(told, F.lit(LATEST)), F.lit(EARLIEST)))


def operations(events: DataFrame) -> DataFrame:
    """Return the steps of clients' operations, with `step`."""
    ops = events.where((F.col("kind_group") == "op") & (F.col("kind") == KIND["op"].code))
    return ops.withColumn("step", (F.col("op") * 4 + F.col("otype")).cast("int"))


def is_step(what: str, outcome: str) -> Column:
    """Whether a row is this step."""
    return F.col("step") == STEP[what, outcome]


def message_facts(ops: DataFrame) -> DataFrame:
    """Return one row a value."""
    sent, accepted, refused = (is_step("enqueue", outcome) for outcome in ("invoke", "ok", "fail"))
    taken, acked = is_step("dequeue", "ok"), is_step("ack", "ok")
    flagged = (F.col("delivery_count") > 0) | (F.col("first_acquirer") == 0)
    flagged = F.coalesce(flagged, F.lit(False))
    fresh = F.coalesce((F.col("delivery_count") == 0) & ~flagged, F.lit(False))
    client = divided(F.col("process"), CLIENT) + F.lit(CLIENTS)
    # Ordered by time, then client: one number instead of a struct, whose minimum would make Spark
    # sort.
    first = (F.col("at").cast("decimal(20,0)") * F.lit(PACK).cast("decimal(17,0)") + client).cast(
        "decimal(38,0)"
    )
    steps = [
        STEP[key]
        for key in (
            ("enqueue", "invoke"),
            ("enqueue", "ok"),
            ("enqueue", "fail"),
            ("dequeue", "ok"),
            ("ack", "ok"),
        )
    ]
    relevant = ops.where(
        F.col("producer").isNotNull() & F.col("seq").isNotNull() & F.col("step").isin(steps)
    )
    rows = relevant.groupBy(CASE, "queue", "producer", "seq").agg(
        count_if(sent).alias("attempts"),
        count_if(accepted).alias("acked"),
        count_if(refused).alias("failed"),
        count_if(taken).alias("deliveries"),
        count_if(taken & fresh).alias("fresh"),
        count_if(taken & flagged).alias("flagged"),
        F.min(F.when(sent, F.col("at"))).alias("enq_at"),
        F.min(F.when(accepted, F.col("at"))).alias("enq_ok"),
        F.min(F.when(taken, F.col("at"))).alias("first_at"),
        F.max(F.when(taken, F.col("at"))).alias("last_at"),
        F.min(F.when(acked, F.col("at"))).alias("first_ack"),
        F.min(F.when(taken, first)).alias("first_packed"),
        F.min(F.when(sent, F.col("op_id"))).alias("enq_op"),
        F.min(F.when(taken, F.col("op_id"))).alias("deq_op"),
    )
    unpacked = F.pmod(F.col("first_packed"), F.lit(PACK).cast("decimal(17,0)")).cast(
        "bigint"
    ) - F.lit(CLIENTS)
    return rows.withColumn("client", unpacked).drop("first_packed")


def paired(ops: DataFrame, names: DataFrame) -> DataFrame:
    """Return one row an operation that has a begin and an end; `names` are all queues (`queue`,
    `number`).

    An operation is its number, whatever else its steps say: two that share one are found. So the
    queue has to be a number, too.
    """
    names = F.broadcast(names)
    rows = ops.where(F.col("op").isin(list(PAIRED))).join(names, "queue")
    invoked = F.col("otype") == OUTCOMES["invoke"]
    waited = F.greatest(F.coalesce(F.try_subtract("mono_ns", "intended_ns"), F.lit(0)), F.lit(0))
    pairs = rows.groupBy(CASE, "op_id").agg(
        F.min(F.when(invoked, F.col("op"))).alias("op"),
        F.min(F.when(invoked, F.col("process"))).alias("process"),
        F.min(F.when(invoked, F.col("number"))).alias("number"),
        F.min(F.when(invoked, F.col("at") - F.least(waited, F.lit(LATEST)))).alias("begin_at"),
        F.max(F.when(~invoked, F.col("at"))).alias("end_at"),
        F.max("otype").alias("outcome"),
        count_if(invoked).alias("invokes"),
        count_if(~invoked).alias("ends"),
        F.max("epoch").alias("epoch"),
        F.max("position").alias("position"),
    )
    is_paired = (F.col("invokes") == 1) & (F.col("ends") <= 1)
    columns = (
        CASE,
        "op_id",
        "queue",
        "op",
        "process",
        "begin_at",
        "end_at",
        "outcome",
        "is_paired",
        "epoch",
        "position",
    )
    return pairs.withColumn("is_paired", is_paired).join(names, "number", "left").select(*columns)


def queue_names(seconds: DataFrame) -> DataFrame:
    """Return all queues, with numbers."""
    names = sorted(row["queue"] for row in seconds.select("queue").distinct().collect())
    return seconds.sparkSession.createDataFrame(
        [(name, number) for number, name in enumerate(names)], "queue string, number int"
    )


def traffic(ops: DataFrame) -> DataFrame:
    """Return one row a queue and second."""
    enqueue = F.col("op") == OPERATIONS["enqueue"]
    dequeue = F.col("op") == OPERATIONS["dequeue"]
    counts = [
        count_if(is_step(name, outcome)).alias(f"{name}_{outcome}")
        for name, outcomes in (("enqueue", tuple(OUTCOMES)), ("dequeue", ("ok",)), ("ack", ("ok",)))
        for outcome in outcomes
    ]
    foreign = F.col("producer").isNull() & (is_step("enqueue", "ok") | is_step("dequeue", "ok"))
    return ops.groupBy(CASE, "queue", divided(F.col("at"), SECOND).alias("second")).agg(
        *counts,
        count_if(foreign).alias("foreign"),
        count_if(enqueue | dequeue).alias("messages"),
        F.min("at").alias("min_at"),
        F.max("at").alias("max_at"),
        F.max(F.when(enqueue, F.col("at"))).alias("last_enqueue"),
        F.max(F.when(is_step("drain", "ok"), F.col("at"))).alias("last_drain"),
    )


def learn(tables: Tables) -> None:
    """Bring to the driver what is known of queues, and the bounds of runs."""
    names = ("enqueue_ok", "dequeue_ok", "ack_ok")
    rows = tables.traffic.groupBy(CASE, "queue").agg(
        *(F.sum(name).alias(name) for name in names),
        *(F.max(name).alias(f"{name}_peak") for name in names),
        F.sum("foreign").alias("foreign"),
        F.sum("messages").alias("messages"),
        F.min("min_at").alias("min_at"),
        F.max("max_at").alias("max_at"),
        F.max("last_enqueue").alias("last_enqueue"),
        F.max("last_drain").alias("last_drain"),
    )
    for row in rows.collect():
        case = row[CASE]
        start, end = tables.runs.get(case, (FOREVER, -1))
        tables.runs[case] = min(start, row["min_at"]), max(end, row["max_at"])
        last_enqueue, last_drain = (
            -1 if row[name] is None else row[name] for name in ("last_enqueue", "last_drain")
        )
        tables.queues[case, row["queue"]] = Queue(
            (row["enqueue_ok"], row["dequeue_ok"], row["ack_ok"]),
            (row["enqueue_ok_peak"], row["dequeue_ok_peak"], row["ack_ok_peak"]),
            row["foreign"],
            row["messages"] > 0,
            found_empty(last_drain, last_enqueue, tables.epsilon),
        )


def learn_few(tables: Tables) -> None:
    """Bring to the driver those kinds of which there are few events: faults, roles, in-sync sets
    and promotions.
    """
    few = tables.events.where(
        F.col("kind_group").isin("fault", "state")
        & F.col("kind").isin([KIND[name].code for name in SMALL])
    )
    for row in few.orderBy("node", "boot", "s").collect():
        event: Event = event_of(row.asDict())
        tables.few[row[CASE]].add(event)


def places(tables: Tables) -> DataFrame:
    """Return one row for each place that a broker noted for a message id, of the ids that a client
    was told are accepted.

    In-sync sets must be known. Ids are told apart by their checksums first, which sort faster.
    """
    written = tables.events.where((F.col("kind_group") == "msg") & F.col("msg").isNotNull())
    known = [
        (case, *key, True)
        for case, few in tables.few.items()
        for key, reign in few.reigns.items()
        if reign.sets
    ]
    with_set = F.broadcast(
        tables.events.sparkSession.createDataFrame(
            known, f"{CASE} int, node string, boot string, epoch bigint, has_set boolean"
        )
    )
    told = operations(tables.events).where(is_step("enqueue", "ok") & F.col("msg").isNotNull())
    gone = written.where(F.col("kind") == KIND["deq"].code)
    placed = written.where(F.col("kind") == KIND["enq"].code).join(with_set, [*REIGN], "left")
    rows = placed.select(
        *REIGN, "msg", "position", F.coalesce("has_set", F.lit(False)).alias("is_judged")
    )
    for name, found in (("told", told), ("gone", gone)):
        rows = rows.unionByName(
            found.select(CASE, "msg", F.col("at").alias(name)), allowMissingColumns=True
        )
    same = Window.partitionBy("hash", CASE, "msg")
    rows = rows.withColumn("hash", F.xxhash64("msg")).select(
        *REIGN,
        "msg",
        "position",
        "is_judged",
        F.min("told").over(same).alias("told"),
        F.min("gone").over(same).alias("gone"),
        F.count("position").over(same).alias("copies"),
        F.count_if("is_judged").over(same).alias("judged"),
    )
    return rows.where(F.col("told").isNotNull() & F.col("position").isNotNull())


def drained(tables: Tables) -> DataFrame:
    """Return the queues that were found empty at last."""
    rows = [key for key, queue in tables.queues.items() if queue.is_drained]
    return F.broadcast(
        tables.messages.sparkSession.createDataFrame(rows, f"{CASE} int, queue string")
    )
