"""The benchmark of the pipeline: a synthetic history of N operations, made by Spark in columns, and
how long each check takes.

`python -m tests.bench.pipeline --operations 1000000 --operations 10000000`. Half of the operations
are enqueues; 64 producers send into 16 queues, ten locks are taken in turn. `--journals`: three
brokers trace every message besides, which doubles the events. `--files`: a history with journals
that is written and ingested as files, for the time of that. What is planted is found with the exact
number, or the benchmark fails. Everything depends on the number of the message alone, so the same
arguments give the same history. Times are those of a warm session after a first small run; peak
memory is that of the Java process.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qpidha.model.duration import SECOND
from qpidha.pipeline.columns import EVENTS
from qpidha.pipeline.events import CLIENT, KIND, OPERATIONS, OUTCOMES, ROLES
from qpidha.pipeline.generate.histories import Plan, expected, write
from qpidha.pipeline.segments import Segment
from qpidha.pipeline.spark.engine import Asked, check_lake
from qpidha.pipeline.spark.ingest import ingest
from qpidha.pipeline.spark.lake import Lake
from qpidha.pipeline.spark.schema import WRITTEN
from qpidha.pipeline.spark.session import session
from qpidha.pipeline.verdict import Verdict

PRODUCERS, QUEUES, LOCKS = 64, 16, 10
SIZES = {
    "clients": (1_000_000, 3_000_000, 10_000_000),
    "journals": (1_000_000, 5_000_000, 10_000_000),
    "files": (1_000_000,),
}
BROKERS = 3
ALLOWED_GROWTH = 1.3
"""How much longer an operation may take in a larger history: time is to grow no faster than what is
judged.
"""
STEP_NS = 100_000
"""Between two messages."""
PAUSE_NS = 3 * SECOND
START_NS = 10 * SECOND
LOCK_STEP_NS = 1_000_000
PERIOD = 200
"""Of 200 messages one is refused and two have an unknown outcome, one of which was sent
nevertheless.
"""
FAIL, INFO_SEEN, INFO_UNSEEN, LOST, TWICE, LATE, INVENTED, UNSAFE, TOO_SOON = (
    13,
    57,
    157,
    3,
    5,
    7,
    9,
    11,
    15,
)
"""Places in such a period."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is, and of what."""

    operations: int
    journals: bool = False
    """Three brokers trace every message; each pause is a failover."""

    @property
    def messages(self) -> int:
        """Messages, a multiple of the period."""
        return self.operations // 2 // PERIOD * PERIOD

    @property
    def planted(self) -> dict[str, int]:
        """Return how many of each anomaly there are."""
        periods = self.messages // PERIOD
        return {
            "lost": min(100, periods // 10),
            "twice": periods // 5,
            "late": min(50, periods // 10),
            "invented": min(20, periods // 10),
            "unsafe": min(30, periods // 10),
            "too_soon": min(20, periods // 10),
        }

    @property
    def pauses(self) -> int:
        """Times at which everything stands still."""
        return 5

    @property
    def holds(self) -> int:
        """Holds of all locks."""
        return self.operations // 50

    @property
    def overlaps(self) -> int:
        """Holds that begin while another lasts: one of each lock, if there are enough."""
        return LOCKS if self.holds >= 20 * LOCKS else 0

    def expected(self) -> dict[str, dict[str, int]]:
        """Return the numbers that must be found."""
        periods, planted = self.messages // PERIOD, self.planted
        found = {
            "total-queue": {
                "attempts": self.messages,
                "acknowledged": self.messages - 3 * periods,
                "failed": periods,
                "lost": planted["lost"],
                "duplicated": planted["twice"],
                "unexpected": planted["invented"],
                "recovered": periods,
                "phantom": 0,
                "missing": 0,
            },
            "order": {
                "streams": PRODUCERS,
                "inversions": planted["late"],
                "violations": planted["late"],
            },
            "redelivery": {
                "redelivered": planted["twice"],
                "flagged": planted["twice"],
                "unflagged": 0,
            },
            "availability": {"windows": 2 * QUEUES * self.pauses},
            "mutex": {"locks": LOCKS, "holds": self.holds, "overlaps": self.overlaps},
            "evidence": {"problems": 0},
        }
        if self.journals:
            found["accepted-before-safe"] = {
                "accepted": self.messages - 2 * periods,
                "unsafe": planted["unsafe"],
                "unjudged": 0,
                "client_accepted": self.messages - 3 * periods,
                "client_unsafe": planted["too_soon"],
            }
            found["primaries"] = {
                "epochs": self.pauses + 1,
                "shared_epochs": 0,
                "epoch_regressions": 0,
                "overlaps": 0,
            }
            found["failover"] = {"failovers": self.pauses}
            found["latency"] = {
                "replication": (BROKERS - 1) * (self.messages - 2 * periods),
                "acceptance": self.messages - 2 * periods,
            }
        return found


def is_planted(number: Column, place: int, count: int, periods: int) -> Column:
    """Whether a message is one of `count` at this place of a period, evenly spread."""
    every = max(periods // max(count, 1), 1)
    period = F.floor(number / PERIOD)
    return (number % PERIOD == place) & (period % every == 0) & (period < every * count)


def jitter(number: Column, salt: int, most: int) -> Column:
    """Return a number below `most` that looks random."""
    return F.pmod(F.xxhash64(number, F.lit(salt)), F.lit(most))


def messages(spark: Any, size: Size) -> DataFrame:
    """Return one row a message with the times of its steps."""
    number = F.col("id")
    block = size.messages // (size.pauses + 1)

    def shifted(ahead: int) -> Column:
        # The messages just before a pause are under way while it lasts.
        paused = F.least(F.floor((number + ahead) / block), F.lit(size.pauses))
        return number * STEP_NS + START_NS + paused * PAUSE_NS

    periods = size.messages // PERIOD
    late = is_planted(number, LATE, size.planted["late"], periods)
    # A late one comes after the next of its producer, which is so many steps behind.
    behind = F.when(late, PRODUCERS * STEP_NS * 3 // 2).otherwise(0)
    producer = (number % PRODUCERS).cast("int")
    rows = spark.range(size.messages).select(
        "id",
        producer.alias("producer"),
        (F.floor(number / PRODUCERS) + 1).alias("seq"),
        F.concat(F.lit("q"), (producer % QUEUES).cast("string")).alias("queue"),
        shifted(0).alias("sent"),
        (shifted(500) + 1_000_000 + jitter(number, 1, 2_000_000)).alias("told"),
        (shifted(1000) + 20_000_000 + jitter(number, 2, 2_000_000) + behind).alias("taken"),
        (number % PERIOD).alias("place"),
        F.least(F.floor(number / block), F.lit(size.pauses)).alias("turn"),
    )
    return rows


def step(what: str, outcome: int | Column, at: str | Column, **more: Column) -> Column:
    """Return one event as a struct of all columns that differ."""
    stands = outcome if isinstance(outcome, Column) else F.lit(outcome)
    fields = {
        "op": F.lit(OPERATIONS[what]).cast("tinyint"),
        "otype": stands.cast("tinyint"),
        "at": F.col(at) if isinstance(at, str) else at,
        "queue": F.col("queue"),
        "op_id": F.lit(0).cast("bigint"),
        "process": F.lit(0).cast("bigint"),
        "producer": F.lit(None).cast("int"),
        "seq": F.lit(None).cast("bigint"),
        "delivery_count": F.lit(None).cast("int"),
        "msg": F.lit(None).cast("string"),
        **more,
    }
    return F.struct(*(value.alias(name) for name, value in fields.items()))


def sent(rows: DataFrame, *, with_ids: bool) -> DataFrame:
    """Return what the senders wrote."""
    unknown = F.col("place").isin(INFO_SEEN, INFO_UNSEEN)
    outcome = (
        F.when(F.col("place") == FAIL, OUTCOMES["fail"])
        .when(unknown, OUTCOMES["info"])
        .otherwise(OUTCOMES["ok"])
    )
    same = {
        "op_id": F.col("id") * 2 + 1,
        "process": (F.col("producer") + 1).cast("bigint") * CLIENT,
        "producer": F.col("producer"),
        "seq": F.col("seq"),
    }
    told = same | ({"msg": message_id()} if with_ids else {})
    steps = F.array(
        step("enqueue", OUTCOMES["invoke"], "sent", **same),
        step("enqueue", outcome, "told", **told),
    )
    return rows.select(F.explode(steps).alias("e")).select("e.*")


def message_id() -> Column:
    """Return the id of a message."""
    return F.concat(F.lit("message-"), F.col("id").cast("string"))


def taken(rows: DataFrame, size: Size) -> DataFrame:
    """Return what the receivers wrote."""
    periods, planted = size.messages // PERIOD, size.planted
    number = F.col("id")
    seen = ~F.col("place").isin(FAIL, INFO_UNSEEN) & ~is_planted(
        number, LOST, planted["lost"], periods
    )
    process = ((F.col("producer") % QUEUES) + 1000).cast("bigint") * CLIENT
    asked = {"op_id": number * 2 + 2, "process": process}
    first = {
        **asked,
        "producer": F.col("producer"),
        "seq": F.col("seq"),
        "delivery_count": F.lit(0),
    }
    again = first | {"op_id": number + (1 << 40), "delivery_count": F.lit(1)}
    wrong = first | {"op_id": number + (1 << 41), "producer": F.lit(CLIENT)}
    later = F.col("taken") + 500_000
    rows = rows.where(seen).withColumn("asked", F.col("taken") - 500_000)
    twice, invented = (
        is_planted(number, place, planted[name], periods)
        for place, name in ((TWICE, "twice"), (INVENTED, "invented"))
    )
    steps = F.array_compact(
        F.array(
            step("dequeue", OUTCOMES["invoke"], "asked", **asked),
            step("dequeue", OUTCOMES["ok"], "taken", **first),
            F.when(twice, step("dequeue", OUTCOMES["ok"], later, **again)),
            F.when(invented, step("dequeue", OUTCOMES["ok"], later, **wrong)),
        )
    )
    return rows.select(F.explode(steps).alias("e")).select("e.*")


def drains(spark: Any, size: Size) -> DataFrame:
    """Return the drain of each queue."""
    end = START_NS + size.messages * STEP_NS + size.pauses * PAUSE_NS + SECOND // 10
    rows = spark.range(QUEUES).select(
        F.concat(F.lit("q"), F.col("id").cast("string")).alias("queue"),
        F.lit(end).alias("at"),
        "id",
    )
    return rows.select(
        step("drain", OUTCOMES["ok"], "at", op_id=F.col("id") + (1 << 42)).alias("e")
    ).select("e.*")


def locks(spark: Any, size: Size) -> DataFrame:
    """Return the history of locks: each is taken a little after it was released, but for the
    planted holds.
    """
    number = F.col("id")
    turn = F.floor(number / LOCKS)
    overlong = (turn == 0) & F.lit(size.overlaps > 0)
    rows = spark.range(size.holds).select(
        "id", F.concat(F.lit("lock"), (number % LOCKS).cast("string")).alias("queue")
    )
    begin = START_NS + turn * LOCK_STEP_NS
    given = begin + F.when(overlong, LOCK_STEP_NS + LOCK_STEP_NS // 5).otherwise(LOCK_STEP_NS // 2)
    process = (turn % 5 + 2000).cast("bigint") * CLIENT
    first, second = (
        {"op_id": number * 2 + place + (1 << 43), "process": process} for place in (0, 1)
    )
    steps = F.array(
        step("acquire", OUTCOMES["invoke"], begin, **first),
        step("acquire", OUTCOMES["ok"], begin + LOCK_STEP_NS // 10, **first),
        step("release", OUTCOMES["invoke"], given, **second),
        step("release", OUTCOMES["ok"], given + LOCK_STEP_NS // 10, **second),
    )
    return rows.select(F.explode(steps).alias("e")).select("e.*")


def traced(rows: DataFrame, size: Size) -> DataFrame:
    """Return what the primaries noted of messages: a place, what both backups confirmed, the
    acceptance.
    """
    periods, planted = size.messages // PERIOD, size.planted
    number, place = F.col("id"), F.col("id") + 1
    unsafe, too_soon = (
        is_planted(number, at, planted[name], periods)
        for at, name in ((UNSAFE, "unsafe"), (TOO_SOON, "too_soon"))
    )
    first = number * 8 + 8
    none = F.lit(None).cast("string")

    def note(kind: str, s: Column, after_ns: int, **more: Column) -> Column:
        fields = {
            "kind": F.lit(KIND[kind].code),
            "s": s,
            "at": F.col("sent") + after_ns,
            "epoch": F.col("turn") + 1,
            "position": place,
            "took_ns": F.lit(after_ns),
            "peer": none,
            "msg": none,
            **more,
        }
        return F.struct(*(value.alias(name) for name, value in fields.items()))

    peers = [broker(F.col("turn") + other) for other in (1, 2)]
    # What a client hears of too soon has a place that no backup ever reaches.
    beyond = F.when(too_soon, place + (1 << 40)).otherwise(place)
    steps = F.array(
        note(
            "enq", first, 50_000, msg=message_id(), took_ns=F.lit(None).cast("int"), position=beyond
        ),
        note("rep", first + 1, 200_000, peer=peers[0]),
        note("rep", F.when(unsafe, first + 4).otherwise(first + 2), 250_000, peer=peers[1]),
        note("conf", first + 3, 300_000),
    )
    kept = rows.where(~F.col("place").isin(FAIL, INFO_UNSEEN))
    return kept.select(
        broker(F.col("turn")).alias("node"), "queue", F.explode(steps).alias("e")
    ).select("node", "queue", "e.*")


def broker(turn: Column) -> Column:
    """Return the name of the broker whose turn it is."""
    return F.concat(F.lit("broker-"), (turn % BROKERS).cast("string"))


def turns(spark: Any, size: Size) -> DataFrame:
    """Return who became primary when, and who then was no longer."""
    names = [f"broker-{number}" for number in range(BROKERS)]
    block = size.messages // (size.pauses + 1)
    rows = []
    for turn in range(size.pauses + 1):
        at, s = turn * (block * STEP_NS + PAUSE_NS) + START_NS - 1000, turn * block * 8
        if turn:
            rows.append(
                (
                    names[(turn - 1) % BROKERS],
                    KIND["role"].code,
                    s,
                    at - 1000,
                    turn,
                    ROLES["ready"],
                    None,
                )
            )
        rows.append(
            (names[turn % BROKERS], KIND["role"].code, s + 1, at, turn + 1, ROLES["active"], None)
        )
        rows.append(
            (names[turn % BROKERS], KIND["insync"].code, s + 2, at, turn + 1, None, " ".join(names))
        )
    return spark.createDataFrame(
        rows, "node string, kind int, s bigint, at bigint, epoch bigint, role int, members string"
    )


def generate(lake: Lake, size: Size) -> int:
    """Write the history as a batch of a lake; return the number of events."""
    spark = lake.create().spark
    rows = messages(spark, size)
    parts = {
        "client-send": sent(rows, with_ids=size.journals),
        "client-receive": taken(rows, size),
        "client-drain": drains(spark, size),
        "client-lock": locks(spark, size),
    }
    path = lake.batch_path("once-000001")
    frames = [clients(part, node) for node, part in parts.items()]
    if size.journals:
        frames += [events(traced(rows, size), "msg"), events(turns(spark, size), "state")]
    for place, frame in enumerate(frames):
        frame.write.mode("append" if place else "overwrite").partitionBy("kind_group").parquet(path)
    written = spark.read.parquet(path).groupBy("node").agg(F.count("*"), F.max("s")).collect()
    notes = [note(*row) for row in written]
    texts = [(f"journal-{index}.jsonl", json.dumps(each)) for index, each in enumerate(notes)]
    columns = [
        F.lit(None).cast(field.dataType).alias(field.name)
        for field in WRITTEN
        if field.name not in ("file", "note", "kind_group")
    ]
    about = spark.createDataFrame(texts, "file string, note string").select(
        "*", *columns, F.lit("segment").alias("kind_group")
    )
    about.select(*(field.name for field in WRITTEN)).write.mode("append").partitionBy(
        "kind_group"
    ).parquet(path)
    return sum(each["events"] for each in notes)


def clients(part: DataFrame, node: str) -> DataFrame:
    """Return steps of clients with all columns of the table of events."""
    return events(
        part,
        "op",
        node=F.lit(node),
        s=F.monotonically_increasing_id(),
        kind=F.lit(KIND["op"].code),
        run_id=F.lit("bench"),
    )


def events(part: DataFrame, group: str, **more: Column) -> DataFrame:
    """Return rows with all columns of the table of events."""
    known = (
        {name: F.col(name) for name in part.columns if name != "at"}
        | more
        | {
            "boot": F.lit("0"),
            "ts_us": F.col("at").cast("bigint") / 1000 + 1_750_000_000_000_000,
            "mono_ns": F.col("at"),
        }
    )
    known["file"] = F.concat(F.lit("journal-"), known["node"])
    types = {field.name: field.dataType for field in WRITTEN}
    columns = [known.get(name, F.lit(None)).cast(types[name]).alias(name) for name, *_ in EVENTS]
    return part.select(*columns, F.lit(group).alias("kind_group"))


def note(node: str, count: int, last: int) -> dict[str, Any]:
    """Return what ingestion would have noted of a file with so many events."""
    by_broker = node.startswith("broker")
    run = "" if by_broker else "bench"
    segment = Segment(
        f"journal-{node}", node, "0", run, "clock", lines=count, state="closed", is_final=True
    )
    return {
        "segment": {name: getattr(segment, name) for name in Segment.__slots__},
        "events": count,
        "duplicates": 0,
        "lines": count,
        "quarantined": 0,
        "problems": [],
        "ranges": [[0, last]],
        "operations": not by_broker,
        "unknown_fields": {},
        "runs": [run] if run else [],
        "brokers": by_broker,
        "drops": [],
        "path": f"journal-{node}",
        "size": count,
        "changed": 0,
    }


def wrong_numbers(verdict: Verdict, expected: dict[str, dict[str, int]]) -> list[str]:
    """Return which numbers are not those that were planted."""
    return [
        f"{check} {name}: {verdict[check].counts[name]}, and {number} were planted"
        for check, numbers in expected.items()
        for name, number in numbers.items()
        if verdict[check].counts[name] != number
    ]


def measure(spark: Any, size: Size, folder: Path) -> dict[str, Any]:
    """Generate, check, and return the seconds of each step."""
    lake = Lake(spark, str(folder / "lake"))
    begun = time.monotonic()
    count = generate(lake, size)
    made = {
        "operations": size.operations,
        "events": count,
        "generate_s": round(time.monotonic() - begun, 1),
    }
    return made | judge(lake, size.expected(), folder)


def measure_files(spark: Any, size: Size, folder: Path) -> dict[str, Any]:
    """Write a history with the journals of three brokers, ingest it, check, and return the seconds
    of each step.
    """
    plan = Plan(
        messages=size.messages,
        brokers=True,
        plant={"unsafe": 20, "failover": 5, "two-primaries": 2, "lost": 20},
    )
    begun = time.monotonic()
    count = write(plan, folder / "history")
    made = time.monotonic()
    lake = Lake(spark, str(folder / "lake"))
    ingest(lake, [folder / "history"])
    read = time.monotonic()
    shutil.rmtree(folder / "history")
    steps = {
        "operations": size.operations,
        "events": count,
        "generate_s": round(made - begun, 1),
        "ingest_s": round(read - made, 1),
    }
    return steps | judge(lake, expected(plan), folder)


def judge(lake: Lake, planted: dict[str, dict[str, int]], folder: Path) -> dict[str, Any]:
    """Check a lake, remove it, and return the seconds of each step and which numbers are wrong."""
    seconds: dict[str, float] = {}
    last = ["files", time.monotonic()]

    def noticed(what: str) -> None:
        now = time.monotonic()
        seconds[str(last[0])] = round(now - float(last[1]), 1)
        last[:] = [what, now]

    begun = time.monotonic()
    verdict = check_lake(lake, asked=Asked(noticed=noticed))
    noticed("end")
    total = time.monotonic() - begun
    shutil.rmtree(folder / "lake")
    peak = java_peak(lake.spark)
    return {
        "total_s": round(total, 1),
        "seconds": seconds,
        "java_peak_mb": peak,
        "wrong": wrong_numbers(verdict, planted),
    }


def java_peak(spark: Any) -> int:
    """Return the peak of resident memory of the Java process, in MB."""
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--operations",
        type=int,
        action="append",
        help="may be given again; without it several sizes",
    )
    parser.add_argument(
        "--journals",
        action="store_true",
        help="with event logs of brokers; default 1, 5 and 10 million operations",
    )
    parser.add_argument(
        "--files",
        action="store_true",
        help="with journals, written and ingested as files; default 1 million operations",
    )
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g", help="of the driver")
    parser.add_argument("--no-warm-up", action="store_true")
    arguments = parser.parse_args()
    spark = session(arguments.master, {"spark.driver.memory": arguments.memory})
    results = []
    step = measure_files if arguments.files else measure
    sizes = SIZES["files" if arguments.files else "journals" if arguments.journals else "clients"]
    folder = Path(tempfile.mkdtemp(prefix="qpidha-pipeline-bench-"))
    try:
        if not arguments.no_warm_up:
            step(spark, Size(20_000, arguments.journals), folder)
        for operations in arguments.operations or sizes:
            results.append(step(spark, Size(operations, arguments.journals), folder))
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(
        json.dumps(
            {
                "master": arguments.master,
                "memory": arguments.memory,
                "kernel": platform.release(),
                "results": results,
            },
            indent=1,
        )
    )
    growth = (
        max((result["total_s"] / result["operations"] for result in results[1:]), default=0)
        * results[0]["operations"]
    )
    if growth > results[0]["total_s"] * ALLOWED_GROWTH:
        sys.stderr.write(
            f"an operation took {growth / results[0]['total_s']:.2f} times as long as in "
            "the first, smallest history\n"
        )
        return 1
    return int(any(result["wrong"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
