"""What happened around what is wrong: the life of each example's message, or the operations and
states near it in time.

Only the examples of verdict.json are looked at, so the keys are few: they are broadcast and meet
all events in one pass. An event that was found may name what the next pass looks for: the
operations and message of a value, then the position of that message, then what confirmed it. Three
passes are enough for that; without examples there is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qpidha.model.duration import SECOND
from qpidha.pipeline.events import FIELDS, FOREVER, KIND, OPERATIONS
from qpidha.pipeline.spark.facts import Tables
from qpidha.pipeline.spark.schema import event_of
from qpidha.pipeline.verdict import EXAMPLES, Finding, Row

PASSES = 3
MOST_EVENTS = 40
"""Events around one example."""
MOST_ALIKE = 12
"""Of these, of one kind and writer."""
STATES = "state"
"""The track of brokers' states and of faults; a queue that is a lock is a track, too."""
TELLING = tuple(
    KIND[name].code
    for name in ("role", "member", "epoch", "insync", "promotion", "failover", "link", "error")
)
OF_EPOCH = (
    *(KIND[name].code for name in ("role", "epoch", "insync", "promotion", "failover", "conf")),
)
OF_PLACE = tuple(KIND[name].code for name in ("enq", "rep", "conf", "dlv", "deq"))
LOCKS = tuple(OPERATIONS[what] for what in ("acquire", "release", "lost", "write"))
BELOW = ("by_value", "by_op", "by_msg", "by_place", "by_span", "by_epoch")

COLUMNS = tuple(field.column for field in FIELDS)

Key = tuple[Any, ...]


@dataclass(slots=True)
class Example:
    """What is looked for around one example."""

    check: str
    what: str
    number: int
    row: Row
    centre: int | None = None
    """The nearer to it, the better; None: the earlier, the better."""
    found: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)


class Keys:
    """Which examples want which events: key -> numbers of examples, by kind of key."""

    def __init__(self) -> None:
        self.wanted: dict[str, dict[Key, set[int]]] = {name: {} for name in BELOW}

    def add(self, kind: str, key: Key, example: int) -> None:
        """Want what has this key, if it is one."""
        if None not in key:
            self.wanted[kind].setdefault(key, set()).add(example)

    def without(self, known: Keys) -> Keys:
        """Return what is wanted here and was not wanted before; `known` learns it."""
        fresh = Keys()
        for kind, keys in self.wanted.items():
            for key, examples in keys.items():
                for example in examples - known.wanted[kind].get(key, set()):
                    fresh.add(kind, key, example)
                    known.add(kind, key, example)
        return fresh

    def __bool__(self) -> bool:
        return any(self.wanted.values())


def around(tables: Tables, findings: Iterable[Finding]) -> Iterator[Row]:
    """Yield the rows of the table `around`."""
    examples = list(_examples(findings))
    wanted, known = Keys(), Keys()
    for index, example in enumerate(examples):
        _look_for(index, example, wanted)
    for _ in range(PASSES):
        fresh = wanted.without(known)
        if not fresh:
            break
        wanted = Keys()
        for row in _matched(tables, fresh, examples).collect():
            event = row.asDict()
            examples[row["example"]].found[row["node"], row["boot"], row["s"]] = event
            if row["is_own"]:
                _follow(row["example"], event, wanted)
    for example in examples:
        yield from _rows(example)


def _examples(findings: Iterable[Finding]) -> Iterator[Example]:
    for finding in findings:
        for what, rows in finding.offenders.items():
            yield from (
                Example(finding.name, what, number, row)
                for number, row in enumerate(rows[:EXAMPLES])
            )
        if finding.name == "failover":
            changes = [
                (number, row) for number, row in enumerate(finding.table) if not row["first"]
            ]
            yield from (
                Example(finding.name, "failovers", number, row)
                for number, row in changes[:EXAMPLES]
            )


def _look_for(index: int, example: Example, keys: Keys) -> None:
    """Want what an example names."""
    row = example.row
    if "seq" in row:
        keys.add("by_value", (row["queue"], row["producer"], row["seq"]), index)
        keys.add("by_value", (row["queue"], row["producer"], row.get("after_seq")), index)
    for name in ("enq_op", "deq_op", "op", "other_op"):
        keys.add("by_op", (row.get(name),), index)
    keys.add("by_msg", (row.get("msg"),), index)
    place = row.get("position_to", row.get("position"))
    keys.add("by_place", (row.get("node"), row.get("epoch"), place), index)
    if example.what == "shared_epochs":
        keys.add("by_epoch", (row["epoch"],), index)
    span = _span(example)
    if span is not None:
        example.centre = span[3]
        keys.add("by_span", span[:3], index)


def _span(example: Example) -> tuple[str, int, int, int] | None:
    """Return the track, the begin, the end and the middle of what else is worth seeing."""
    row, what = example.row, example.what
    if example.check == "mutex":
        start, end = _int(row["start_ns"]), row["other_end_ns"]
        return (
            f"lock {row['queue']}",
            start - 10 * SECOND,
            start + 10 * SECOND if end is None else _int(end) + SECOND,
            start,
        )
    if what == "failovers":
        since = _int(row["since_ns"])
        until = max(
            [
                since,
                *(
                    _int(at)
                    for name, at in row.items()
                    if name.endswith("_ns") and name != "total_ns" and at is not None
                ),
            ]
        )
        return STATES, since - SECOND // 2, until + SECOND, since
    if what == "windows" or (what == "overlaps" and example.check == "primaries"):
        start = _int(row["start_ns"])
        return STATES, start - SECOND, start + _int(row["length_ns"]) + SECOND, start
    if what in ("unsafe", "epoch_regressions"):
        at = _int(row["at_ns"])
        return STATES, at - SECOND, at + SECOND, at
    return None


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _follow(index: int, event: dict[str, Any], keys: Keys) -> None:
    """Want what an event of an example's own life names."""
    if event["kind"] == KIND["op"].code:
        keys.add("by_op", (event["op_id"],), index)
        keys.add("by_msg", (event["msg"],), index)
    elif event["kind"] == KIND["enq"].code:
        keys.add("by_msg", (event["msg"],), index)
        keys.add("by_place", (event["node"], event["epoch"], event["position"]), index)


def _matched(tables: Tables, keys: Keys, examples: Sequence[Example]) -> DataFrame:
    """Return the events that meet a key, once for each example that wants them; the nearest of
    those that are alike.
    """
    kind, group = F.col("kind"), F.col("kind_group")
    track = F.when(
        (group == "fault") | ((group == "state") & kind.isin(*TELLING)), F.lit(STATES)
    ).when(F.col("op").isin(*LOCKS), F.concat(F.lit("lock "), F.col("queue")))
    last = F.coalesce("position_to", "position")
    rows = tables.events.select(*COLUMNS, "at", "kind_group", "op").withColumn("track", track)
    epoch = F.when(kind.isin(*OF_EPOCH), F.col("epoch"))
    placed = F.when(kind.isin(*OF_PLACE), F.col("epoch"))
    joins: tuple[tuple[str, str, dict[str, Column], Column | None], ...] = (
        (
            "by_value",
            "k0 string, k1 int, k2 bigint",
            {"k0": F.col("queue"), "k1": F.col("producer"), "k2": F.col("seq")},
            None,
        ),
        ("by_op", "k0 bigint", {"k0": F.when(group == "op", F.col("op_id"))}, None),
        ("by_msg", "k0 string", {"k0": F.col("msg")}, None),
        (
            "by_place",
            "k0 string, k1 bigint, k2 bigint",
            {"k0": F.col("node"), "k1": placed},
            F.col("k2").between(F.col("position"), last),
        ),
        (
            "by_span",
            "k0 string, k1 bigint, k2 bigint",
            {"k0": F.col("track")},
            F.col("at").between(F.col("k1"), F.col("k2")),
        ),
        ("by_epoch", "k0 bigint", {"k0": epoch}, None),
    )
    for name, names, columns, more in joins:
        rows = _joined(rows, name, names, columns, more, keys.wanted[name])
    # Nearly all rows end here: what follows is dear.
    rows = rows.where(F.coalesce(*BELOW).isNotNull())
    wanted = F.array_distinct(
        F.flatten(F.array(*(F.coalesce(name, F.array().cast("array<int>")) for name in BELOW)))
    )
    rows = rows.withColumn(
        "is_own", F.coalesce("by_value", "by_op", "by_msg", "by_place").isNotNull()
    )
    rows = rows.withColumn("example", F.explode(wanted)).drop(*BELOW, "track")
    return _nearest(rows, examples)


def _joined(
    rows: DataFrame,
    name: str,
    names: str,
    columns: dict[str, Column],
    more: Column | None,
    keys: dict[Key, set[int]],
) -> DataFrame:
    """Add for each row which examples want it by this kind of key."""
    if not keys:
        return rows.withColumn(name, F.lit(None).cast("array<int>"))
    few = rows.sparkSession.createDataFrame(
        [(*key, sorted(examples)) for key, examples in sorted(keys.items())],
        f"{names}, {name} array<int>",
    )
    condition = F.lit(True) if more is None else more
    for key, column in columns.items():
        condition = condition & (column == F.col(key))
    return rows.join(F.broadcast(few), condition, "left").drop(
        *(each.split()[0] for each in names.split(", "))
    )


def _nearest(rows: DataFrame, examples: Sequence[Example]) -> DataFrame:
    centres = [
        (index, example.centre)
        for index, example in enumerate(examples)
        if example.centre is not None
    ]
    known = rows.sparkSession.createDataFrame(centres, "example int, centre bigint")
    rows = rows.join(F.broadcast(known), "example", "left")
    far = F.coalesce(
        F.abs(F.try_subtract("at", F.col("centre"))),
        F.when(F.col("centre").isNull(), F.col("at")),
        F.lit(FOREVER),
    )
    alike = Window.partitionBy("example", "node", "boot", "kind", "otype", "op").orderBy("far", "s")
    rows = rows.withColumn("far", far).withColumn("rank", F.row_number().over(alike))
    return rows.where(F.col("rank") <= MOST_ALIKE)


def _rows(example: Example) -> Iterator[Row]:
    """Yield what was found around an example, by time."""
    nearest = sorted(
        example.found.values(),
        key=lambda row: (not row["is_own"], row["far"], row["node"], row["boot"], row["s"]),
    )
    for row in sorted(
        nearest[:MOST_EVENTS], key=lambda row: (row["at"], row["node"], row["boot"], row["s"])
    ):
        event = event_of(row)
        yield {
            "check": example.check,
            "what": example.what,
            "example": example.number,
            "at_ns": row["at"],
            "node": row["node"],
            "boot": row["boot"],
            "s": row["s"],
            "kind": str(event["k"]),
            "event": json.dumps(event),
        }
