"""Schemas: the tables of a lake, their columns with types and units, for Spark, for Arrow and for docs/pipeline-spark.md.

The table of events has the columns of `events.py`, with codes for the words that are closed, and two more: the file, and a note for
rows that are no events but say what became of a file or a line. Everything that is aggregated is a number: a minimum or maximum of
strings would turn Spark's hash aggregates into sorts.
Source: spark-pipeline.md sections 3 and 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow
from pyspark.sql.types import BooleanType, ByteType, DataType, IntegerType, LongType, StringType, StructField, StructType

from qpidha.pipeline.events import FIELDS, KINDS, OPERATIONS, OUTCOMES, ROLES, STEPS, Event

LAKE_SCHEMA = 1
"""Version of the tables; a lake of another is refused."""

Column = tuple[str, str, str, str]
"""Name, type, unit and meaning."""

_CODES = {"kind": "code of the kind", "otype": "code of the outcome of an operation, or of the step of a fault", "role": "code of the role"}
GROUPS = (*dict.fromkeys(kind.group for kind in KINDS), "segment", "quarantine")
"""Values of `kind_group`; the last two are no events."""

EVENTS: tuple[Column, ...] = (
    *((field.column, "tinyint", "", _CODES[field.column]) if field.column in _CODES
      else (field.column, field.type, field.unit, field.meaning) for field in FIELDS),
    ("op", "tinyint", "", "code of the operation in `op` events, whose `what` is null"),
    ("file", "string", "", "file that the event is from"),
    ("note", "string", "", "of group `segment`: what is known of the file, as JSON; of `quarantine`: the first 4 KB of the line"),
)  # fmt: skip

_MESSAGE: tuple[Column, ...] = (
    ("queue", "string", "", ""), ("producer", "int", "", ""), ("seq", "bigint", "", ""),
    ("attempts", "bigint", "count", "a: enqueue invocations"), ("acked", "bigint", "count", "k: enqueues accepted"),
    ("failed", "bigint", "count", "x: enqueues that certainly had no effect"), ("deliveries", "bigint", "count", "d: deliveries"),
    ("fresh", "bigint", "count", "deliveries that claim to be the first"), ("flagged", "bigint", "count", "deliveries marked as repeated"),
    ("enq_at", "bigint", "ns", "first enqueue invocation"), ("enq_ok", "bigint", "ns", "first acceptance"),
    ("first_at", "bigint", "ns", "first delivery"), ("last_at", "bigint", "ns", "last delivery"),
    ("first_ack", "bigint", "ns", "first confirmed acknowledgement"), ("client", "bigint", "", "client of the first delivery"),
    ("enq_op", "bigint", "", "least operation that sent it"), ("deq_op", "bigint", "", "least operation that took it"),
)  # fmt: skip
_OPERATION: tuple[Column, ...] = (
    ("op_id", "bigint", "", ""), ("queue", "string", "", ""), ("op", "tinyint", "", "enqueue, acquire or release"),
    ("process", "bigint", "", ""), ("begin_at", "bigint", "ns", "invocation, or the intended time"),
    ("end_at", "bigint", "ns", "null: it never ended"), ("outcome", "tinyint", "", "0: it never ended"),
    ("is_paired", "boolean", "", "one invocation and at most one end"),
)  # fmt: skip
_TRAFFIC: tuple[Column, ...] = (
    ("queue", "string", "", ""), ("second", "bigint", "s", "time divided by 10⁹ ns"),
    *((f"{name}_{outcome}", "bigint", "count", f"{name} {outcome} events")
      for name, outcomes in (("enqueue", OUTCOMES), ("dequeue", ("ok",)), ("ack", ("ok",))) for outcome in outcomes),
    ("foreign", "bigint", "count", "enqueue and dequeue ok events without a value"),
    ("messages", "bigint", "count", "enqueue and dequeue events"),
    ("min_at", "bigint", "ns", "first event"), ("max_at", "bigint", "ns", "last event"),
    ("last_enqueue", "bigint", "ns", "last enqueue event"), ("last_drain", "bigint", "ns", "last drain ok"),
)  # fmt: skip
TABLES: dict[str, tuple[str, tuple[Column, ...]]] = {
    "message_facts": ("one row a value: everything that the counting checks need", _MESSAGE),
    "ops": ("one row an operation that has a begin and an end: enqueue, acquire, release", _OPERATION),
    "traffic_1s": ("what each queue took and gave in each second, for charts", _TRAFFIC),
    "latency_1s": (
        "latency of each second in which something ended; `what` and `name` as in check latency",
        (
            ("what", "string", "", "replication, acceptance, enqueue, delivery"), ("name", "string", "", "peer or queue"),
            ("second", "bigint", "s", ""), ("n", "bigint", "count", ""), ("p50_us", "bigint", "µs", ""), ("p95_us", "bigint", "µs", ""),
            ("p99_us", "bigint", "µs", ""), ("max_us", "bigint", "µs", ""),
        ),
    ),
    "roles": (
        "who was what, from when to when",
        (
            ("node", "string", "", ""), ("boot", "string", "", ""), ("role", "string", "", ""), ("epoch", "bigint", "", ""),
            ("from_ns", "bigint", "ns", ""), ("to_ns", "bigint", "ns", "the writer's next role, or its last event"),
        ),
    ),
    "faults": (
        "what the nemesis did",
        (
            ("op_id", "bigint", "", ""), ("kind", "string", "", ""), ("target", "string", "", ""), ("start_ns", "bigint", "ns", ""),
            ("stop_ns", "bigint", "ns", "null: it never ended"),
        ),
    ),
    "failovers": (
        "table of check failover",
        (
            ("epoch", "bigint", "", ""), ("old", "string", "", ""), ("new", "string", "", ""), ("first", "bigint", "", "1: no failover"),
            ("fault_op", "bigint", "", ""),
            *((f"{name}_ns", "bigint", "ns", "") for name in (
                "since", "fault", "detected", "asked", "promoted", "active", "accepted", "served", "total")),
        ),
    ),
    "windows": (
        "windows of unavailability, from check availability",
        (
            ("queue", "string", "", ""), ("service", "string", "", "enqueue or delivery"), ("start_ns", "bigint", "ns", ""),
            ("end_ns", "bigint", "ns", ""), ("length_ns", "bigint", "ns", ""), ("open", "bigint", "", "1: to the end of the run"),
            ("fault_op", "bigint", "", "its cause; null: none"),
        ),
    ),
    "run": (
        "one row",
        (
            ("run", "string", "", ""), ("start_ns", "bigint", "ns", "first operation"), ("end_ns", "bigint", "ns", "last operation"),
            ("offset_ns", "bigint", "ns", "add it to a time: ns since 1970"), ("epsilon_ns", "bigint", "ns", "error between clocks"),
        ),
    ),
}  # fmt: skip

_SPARK: dict[str, DataType] = {
    "string": StringType(), "tinyint": ByteType(), "int": IntegerType(), "bigint": LongType(), "boolean": BooleanType(),
}  # fmt: skip
_ARROW = {"string": pyarrow.string(), "tinyint": pyarrow.int8(), "int": pyarrow.int32(), "bigint": pyarrow.int64()}


def struct(columns: Sequence[Column]) -> StructType:
    """Return columns as Spark's schema."""
    return StructType([StructField(name, _SPARK[type_]) for name, type_, _, _ in columns])


def arrow(columns: Sequence[Column]) -> pyarrow.Schema:
    """Return columns as Arrow's schema."""
    return pyarrow.schema([(name, _ARROW[type_]) for name, type_, _, _ in columns])


WRITTEN = struct((*EVENTS, ("kind_group", "string", "", "")))
"""What ingestion writes."""
STORED = StructType([*WRITTEN.fields, StructField("batch", StringType())])
"""What is read back: the folder of the batch is a column too."""
ARROW = arrow((*EVENTS, ("kind_group", "string", "", "")))

_KIND_CODES = {kind.name: kind.code for kind in KINDS}
_KIND_GROUPS = {kind.name: kind.group for kind in KINDS}
_OTYPES = OUTCOMES | STEPS


def record_batch(events: Sequence[Event], file: str) -> pyarrow.RecordBatch:
    """Return events of a file as columns."""
    present = set().union(*events)
    size = len(events)
    arrays = []
    for field in FIELDS:
        if field.key not in present:
            arrays.append(pyarrow.nulls(size, ARROW.field(field.column).type))
            continue
        values: list[Any] = [event.get(field.key) for event in events]
        if field.key == "k":
            values = [_KIND_CODES[word] for word in values]
        elif field.key == "y":
            values = [_OTYPES.get(word) for word in values]
        elif field.key == "r":
            values = [ROLES.get(word) for word in values]
        elif field.key == "f":
            values = [None if event["k"] == "op" else word for event, word in zip(events, values, strict=True)]
        arrays.append(pyarrow.array(values, ARROW.field(field.column).type))
    operations = [OPERATIONS[event["f"]] if event["k"] == "op" else None for event in events]
    arrays.append(pyarrow.array(operations, pyarrow.int8()))
    arrays.append(pyarrow.array([file] * size, pyarrow.string()))
    arrays.append(pyarrow.nulls(size, pyarrow.string()))
    arrays.append(pyarrow.array([_KIND_GROUPS[event["k"]] for event in events], pyarrow.string()))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=ARROW)


def event_of(row: dict[str, object]) -> Event:
    """Return a row of the table as the event that it was."""
    kind = next(kind.name for kind in KINDS if kind.code == row["kind"])
    event: Event = {field.key: row[field.column] for field in FIELDS if row.get(field.column) is not None}
    event["k"] = kind
    if row.get("otype") is not None:
        event["y"] = _word(STEPS if kind == "fault" else OUTCOMES, row["otype"])
    if row.get("role") is not None:
        event["r"] = _word(ROLES, row["role"])
    if row.get("op") is not None:
        event["f"] = _word(OPERATIONS, row["op"])
    return event


def _word(codes: dict[str, int], code: object) -> str:
    return next(word for word, each in codes.items() if each == code)


def documentation() -> str:
    """Return the tables of a lake for docs/pipeline.md."""
    return "\n".join(_documentation())


def _documentation() -> Iterator[str]:
    yield f"Version {LAKE_SCHEMA}. `events` is partitioned by `batch` and by `kind_group`: {', '.join(GROUPS)}."
    yield ""
    yield "| Table | One row | Columns (type, unit) |"
    yield "|---|---|---|"
    own = [(name, type_, unit, meaning) for name, type_, unit, meaning in EVENTS if name in ("op", "file", "note")]
    yield f"| `events` | an event: the columns of all keys above, of these as codes: kind, otype, role; and | {_columns(own)} |"
    for name, (meaning, columns) in TABLES.items():
        yield f"| `{name}` | {meaning} | {_columns(columns)} |"


def _columns(columns: Sequence[Column]) -> str:
    return "; ".join(
        f"`{name}` {type_}{', ' + unit if unit else ''}{': ' + meaning if meaning else ''}" for name, type_, unit, meaning in columns
    )
