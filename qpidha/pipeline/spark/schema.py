"""Schemas: the tables of a lake for Spark and for Arrow, and events as their rows. The columns are
those of `columns.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from qpidha.pipeline.columns import EVENTS, Column
from qpidha.pipeline.events import FIELDS, KINDS, OPERATIONS, OUTCOMES, ROLES, STEPS, Event
from qpidha.pipeline.segments import unicode

_SPARK: dict[str, DataType] = {
    "string": StringType(),
    "tinyint": ByteType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "boolean": BooleanType(),
}
_ARROW = {
    "string": pyarrow.string(),
    "tinyint": pyarrow.int8(),
    "int": pyarrow.int32(),
    "bigint": pyarrow.int64(),
}


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
            values = [
                None if event["k"] == "op" else word
                for event, word in zip(events, values, strict=True)
            ]
        arrays.append(pyarrow.array(values, ARROW.field(field.column).type))
    operations = [OPERATIONS[event["f"]] if event["k"] == "op" else None for event in events]
    arrays.append(pyarrow.array(operations, pyarrow.int8()))
    arrays.append(pyarrow.array([unicode(file)] * size, pyarrow.string()))
    arrays.append(pyarrow.nulls(size, pyarrow.string()))
    arrays.append(pyarrow.array([_KIND_GROUPS[event["k"]] for event in events], pyarrow.string()))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=ARROW)


def event_of(row: dict[str, object]) -> Event:
    """Return a row of the table as the event that it was."""
    kind = next(kind.name for kind in KINDS if kind.code == row["kind"])
    event: Event = {
        field.key: row[field.column] for field in FIELDS if row.get(field.column) is not None
    }
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
