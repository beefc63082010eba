"""Accepted before safe, in Spark: what brokers accepted and clients were told, against what the
in-sync backups had confirmed.

A member has a position from its first confirmation of that position or a later one on, so each
question asks for a minimum over all that comes later in the log. `positions` is a table of facts:
what was confirmed up to a position and no further, accepted up to there, and told of it. For the
check, positions are cut into buckets: of later buckets one row each says enough, so every bucket is
ordered by itself, in any task. Everything is moved once, with what clients were told beside it; few
of the answers are bad, and only they are looked at again. The definitions are those of `checks.py`.
The rule: S1 in docs/internals/safety.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qpidha.pipeline.events import FOREVER, KIND
from qpidha.pipeline.spark.facts import CASE, POSITIONS, REIGN, Tables, divided
from qpidha.pipeline.spark.offenders import Offenders
from qpidha.pipeline.verdict import Finding, Row

REP, CONF = KIND["rep"].code, KIND["conf"].code
BUCKET = 256
"""Positions of a bucket: enough that buckets are few, few enough that they are ordered quickly."""
MOST_BROADCAST = 100_000
COUNTS = ("accepted", "unsafe", "unjudged", "client_accepted", "client_unsafe")


@dataclass(frozen=True, slots=True)
class Reigns:
    """The reigns with in-sync sets; the other members of a reign have numbers, which are those of
    columns.
    """

    keys: list[tuple[Any, ...]]
    """Case, node, boot, epoch; the place in this list is the number of the reign."""
    members: list[list[str]]
    """Who else was in a set of each."""
    sets: list[tuple[Any, ...]]
    """Reign, s, s of the next, at, at of the next, and of each other member of the reign whether it
    is in the set.
    """
    begins: list[int]
    """First s with a set, of each."""

    @property
    def width(self) -> int:
        """The most other members, and one where there are none, so that there is a column."""
        return max((1, *map(len, self.members)))


def reigns_of(tables: Tables) -> Reigns:
    """Return what the driver knows of in-sync sets."""
    found = Reigns([], [], [], [])
    for case in tables.cases:
        for key, reign in sorted(tables.few[case].reigns.items()):
            if not reign.sets:
                continue
            sets, number = reign.spans(), len(found.keys)
            members = sorted({member for *_, each in sets for member in each})
            found.keys.append((case, *key))
            found.members.append(members)
            found.begins.append(sets[0][0])
            found.sets.extend(
                (number, *span, [member in each for member in members]) for *span, each in sets
            )
    return found


def positions(tables: Tables) -> DataFrame:
    """Return one row for each position up to which something was confirmed or accepted, or that a
    client was told of.

    Of reigns with in-sync sets; `places` must be known.
    """
    assert tables.places is not None
    reigns = reigns_of(tables)
    numbers = _numbers(tables, reigns)
    told = (
        _open_places(tables)
        .where("is_judged")
        .join(numbers, [*REIGN])
        .select("reign", F.col("position").alias("last"), "told")
    )
    answers = [
        F.min(F.when(F.col("member") == i, F.col(name))).alias(f"{name}_{i}")
        for i in range(reigns.width)
        for name in ("s", "at")
    ]
    rows = (
        _answers(tables, numbers)
        .unionByName(told, allowMissingColumns=True)
        .groupBy("reign", "last")
        .agg(
            *answers,
            F.min("accepted_s").alias("accepted_first"),
            F.max("accepted_s").alias("accepted_last"),
            F.min("told").alias("told"),
        )
    )
    members = [
        F.array(*(F.col(f"{name}_{i}") for i in range(reigns.width))).alias(f"confirmed_{name}")
        for name in ("s", "at")
    ]
    rows = rows.select(
        "reign",
        F.col("last").alias("position"),
        *members,
        "accepted_first",
        "accepted_last",
        "told",
    )
    return rows.join(numbers, "reign").drop("reign", "begin", "members")


def _answers(tables: Tables, numbers: DataFrame) -> DataFrame:
    """Return one row for each confirmation by a member, and for each acceptance since the sets of
    its reign are known: its position is `last`.
    """
    events = tables.events.where((F.col("kind_group") == "msg") & F.col("kind").isin(REP, CONF))
    events = events.select(
        *REIGN,
        "kind",
        "s",
        "at",
        "peer",
        "position",
        F.coalesce("position_to", "position").alias("last"),
    )
    events = events.join(numbers, [*REIGN])
    member = F.when(F.col("kind") == REP, F.array_position("members", F.col("peer")) - 1)
    is_accepted = (
        (F.col("kind") == CONF)
        & (F.col("begin") < F.col("s"))
        & (F.col("last") >= F.col("position"))
    )
    accepted_s = F.when(is_accepted, F.col("s"))
    events = events.select(
        "reign", "last", "s", "at", member.alias("member"), accepted_s.alias("accepted_s")
    )
    return events.where((F.col("member") >= 0) | F.col("accepted_s").isNotNull())


def _open_places(tables: Tables) -> DataFrame:
    """Return places of messages that were not gone when a client was told, with that time and ε as
    `deadline`.
    """
    assert tables.places is not None
    places = tables.places.withColumn("deadline", F.col("told") + tables.epsilon)
    return places.where(F.col("gone").isNull() | (F.col("deadline") < F.col("gone")))


def accepted_before_safe(tables: Tables, offenders: Offenders) -> dict[int, Finding]:
    """Compare acceptances, by brokers and as seen by clients, with what the in-sync backups had
    confirmed.
    """
    found = {
        case: Finding("accepted-before-safe", dict.fromkeys(COUNTS, 0)) for case in tables.cases
    }
    if tables.places is None or tables.positions is None:
        return found
    reigns = reigns_of(tables)
    for case, (accepted, unjudged) in tables.accepted.items():
        found[case].counts |= {"accepted": accepted, "unjudged": unjudged}
    has_others = _count_ids(tables.places, found)
    late = _late(tables.positions, tables, reigns).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        number = {
            row["by_client"]: row["n"]
            for row in late.groupBy("by_client").agg(F.count("*").alias("n")).collect()
        }
        if False in number:
            _by_brokers(
                late.where(~F.col("by_client")), number[False], tables, reigns, found, offenders
            )
        if True in number or has_others:
            _by_clients(
                late.where("by_client"), number.get(True, 0), tables, reigns, found, offenders
            )
    finally:
        late.unpersist()
    return found


def _numbers(tables: Tables, reigns: Reigns) -> DataFrame:
    """Return reigns with their numbers, their other members, and where their sets begin."""
    rows = [
        (*key, number, members, begin)
        for number, (key, members, begin) in enumerate(
            zip(reigns.keys, reigns.members, reigns.begins, strict=True)
        )
    ]
    schema = (
        f"{CASE} int, node string, boot string, epoch bigint, reign int, members "
        "array<string>, begin bigint"
    )
    return F.broadcast(tables.events.sparkSession.createDataFrame(rows, schema))


def _sets(tables: Tables, reigns: Reigns) -> DataFrame:
    schema = (
        "of int, since bigint, until_s bigint, since_at bigint, until_at bigint, has array<boolean>"
    )
    return F.broadcast(tables.events.sparkSession.createDataFrame(reigns.sets, schema))


def _count_ids(places: DataFrame, found: dict[int, Finding]) -> bool:
    """Count the ids that clients were told of, and those that nobody can judge; return whether some
    have no set and were seen to go.
    """
    has_no_set = F.col("judged") == 0
    ids = (
        places.groupBy(CASE, "copies")
        .agg(
            F.count("*").alias("rows"),
            F.count_if(has_no_set & F.col("gone").isNull()).alias("unjudged"),
            F.count_if(has_no_set & F.col("gone").isNotNull()).alias("gone"),
        )
        .collect()
    )
    for row in ids:
        # An id with n places is in n rows.
        counts = found[row[CASE]].counts
        counts["client_accepted"] += row["rows"] // row["copies"]
        counts["unjudged"] += row["unjudged"] // row["copies"]
    return any(row["gone"] for row in ids)


def _late(table: DataFrame, tables: Tables, reigns: Reigns) -> DataFrame:
    """Return positions at which a member of the set in force lacked something, or that were not
    safe when a client was told.

    Columns: reign and what is known of it; position; accepted_first, accepted_last; deadline, told
    + ε; by_client; and of each other member `s_i` and `at_i`: when it had confirmed the position.
    """
    names = [f"{name}_{i}" for i in range(reigns.width) for name in ("s", "at")]
    answers = [
        F.get(f"confirmed_{name}", F.lit(i)).alias(f"{name}_{i}")
        for i in range(reigns.width)
        for name in ("s", "at")
    ]
    numbers = _numbers(tables, reigns)
    bucket = divided(F.col("position"), BUCKET).alias("bucket")
    rows = table.join(numbers, [*REIGN])
    rows = rows.select(
        "reign", bucket, "position", "accepted_first", "accepted_last", "told", *answers
    )
    keys = (
        "bucket",
        "reign",
    )  # In this order: Spark sorts by the first one quickly, and few rows share a bucket.
    beyond = (
        Window.partitionBy("reign")
        .orderBy(-F.col("bucket"))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    later = rows.groupBy(*keys).agg(*(F.min(name).alias(name) for name in names))
    later = later.select(
        *keys,
        F.lit(FOREVER).alias("position"),
        *(F.min(name).over(beyond).alias(name) for name in names),
    )
    # Downwards from the last position: what was confirmed there or beyond comes before.
    down = (
        Window.partitionBy(*keys)
        .orderBy(F.col("position").desc())
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    both = rows.unionByName(later, allowMissingColumns=True).repartition(*keys)
    first = [F.coalesce(F.min(name).over(down), F.lit(FOREVER)).alias(name) for name in names]
    both = both.select(
        "reign",
        "position",
        "accepted_first",
        "accepted_last",
        (F.col("told") + tables.epsilon).alias("deadline"),
        *first,
    )
    asked = both.withColumn("by_client", F.explode(F.array(F.lit(False), F.lit(True))))
    asked = asked.where(
        F.when(F.col("by_client"), F.col("deadline").isNotNull()).otherwise(
            F.col("accepted_first").isNotNull()
        )
    )
    late = asked.join(
        _sets(tables, reigns), (F.col("reign") == F.col("of")) & _is_good(reigns.width), "left_anti"
    )
    return late.join(numbers, "reign")


def _is_member(member: int) -> Column:
    return F.coalesce(F.get("has", F.lit(member)), F.lit(False))


def _is_in_force(s: str) -> Column:
    return (F.col("since") < F.col(s)) & (F.col(s) < F.col("until_s"))


def _all_have(width: int) -> Column:
    """Return when all members of a set had a position while it was in force; FOREVER: not then."""
    at = F.greatest(
        F.col("since_at"),
        *(F.when(_is_member(member), F.col(f"at_{member}")) for member in range(width)),
    )
    return F.when(at <= F.col("until_at"), at).otherwise(F.lit(FOREVER))


def _is_good(width: int) -> Column:
    """Whether a set shows that what is asked was safe; of acceptances at several times, each is
    looked at again.
    """
    lacks = F.lit(False)
    for member in range(width):
        lacks |= _lacks(member, "accepted_first")
    all_have = _all_have(width)
    by_broker = (
        (F.col("accepted_first") == F.col("accepted_last"))
        & _is_in_force("accepted_first")
        & ~lacks
    )
    return F.when(
        F.col("by_client"), (all_have <= F.col("deadline")) & (all_have < FOREVER)
    ).otherwise(by_broker)


def _lacks(member: int, s: str) -> Column:
    """Whether a member had not confirmed what was accepted then."""
    return _is_member(member) & (F.col(f"s_{member}") > F.col(s))


def _hinted(rows: DataFrame, number: int) -> DataFrame:
    """Return rows, broadcast where they are few: what Spark takes for the size of a join is the
    product of both sides.
    """
    return F.broadcast(rows) if number <= MOST_BROADCAST else rows


def _by_brokers(
    late: DataFrame,
    number: int,
    tables: Tables,
    reigns: Reigns,
    found: dict[int, Finding],
    offenders: Offenders,
) -> None:
    """Count what brokers accepted too early, and name who lacked it."""
    events = tables.events.where((F.col("kind_group") == "msg") & (F.col("kind") == CONF))
    events = events.select(
        *REIGN,
        "s",
        "at",
        F.col("position").alias("from"),
        F.coalesce("position_to", "position").alias("position"),
    )
    late = late.select(
        *REIGN, "position", "reign", "members", *(f"s_{member}" for member in range(reigns.width))
    )
    wrong = events.where(F.col("position") >= F.col("from")).join(
        _hinted(late, number), [*REIGN, "position"]
    )
    wrong = wrong.join(_sets(tables, reigns), (F.col("reign") == F.col("of")) & _is_in_force("s"))
    lacking = [
        F.when(_lacks(member, "s"), F.get("members", F.lit(member)))
        for member in range(reigns.width)
    ]
    wrong = wrong.select(
        *REIGN, "s", "at", "from", "position", F.concat_ws(" ", *lacking).alias("lacking")
    ).where(F.col("lacking") != "")
    many = F.sum(F.col("position").cast(POSITIONS) - F.col("from") + 1)
    offenders.put_counted(found, "unsafe", wrong, many, ("node", "boot", "epoch", "s"), _unsafe_row)


def _unsafe_row(row: dict[str, Any]) -> Row:
    found: Row = {name: row[name] for name in ("node", "boot", "epoch", "s")}
    return found | {
        "at_ns": row["at"],
        "position": row["from"],
        "position_to": row["position"],
        "lacking": row["lacking"],
    }


def _by_clients(
    late: DataFrame,
    number: int,
    tables: Tables,
    reigns: Reigns,
    found: dict[int, Finding],
    offenders: Offenders,
) -> None:
    """Count what clients were told too early: ids none of whose places was safe, nor was the
    message gone.
    """
    places, keys = _open_places(tables), (*REIGN, "position")
    late = late.join(_sets(tables, reigns), F.col("reign") == F.col("of"))
    late = late.groupBy(*keys).agg(F.min(_all_have(reigns.width)).alias("all_have"))
    is_late = (F.col("all_have") > F.col("deadline")) | (F.col("all_have") == FOREVER)
    rows = places.join(_hinted(late, number), [*keys]).where(is_late)
    # An id without a set counts by when it was gone.
    others = places.where((F.col("judged") == 0) & F.col("gone").isNotNull())
    rows = rows.unionByName(others.withColumn("all_have", F.lit(None).cast("bigint")))
    ids = rows.groupBy(CASE, "msg").agg(
        F.count("all_have").alias("late"),
        F.max("judged").alias("judged"),
        F.min("told").alias("told"),
        F.min(F.least(F.coalesce("all_have", F.lit(FOREVER)), "gone")).alias("safe"),
        F.min(F.struct("node", "boot", "epoch", "position")).alias("place"),
    )
    wrong = ids.where(F.col("late") == F.col("judged"))
    offenders.put_counted(found, "client_unsafe", wrong, F.count("*"), ("msg",), _told_row)


def _told_row(row: dict[str, Any]) -> Row:
    place = row["place"]
    found: Row = {
        "msg": row["msg"],
        "accepted_ns": row["told"],
        "safe_ns": None if row["safe"] == FOREVER else row["safe"],
    }
    return found | {"node": place["node"], "epoch": place["epoch"], "position": place["position"]}
