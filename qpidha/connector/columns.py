"""Columns: the sections of a message as a row, and a row as a message.

No legal message is refused: what has no column of its type is rendered as text, and a message that
cannot be read is a row with all its bytes as `body`. Rendered ids are read back as what they were.
Source: AMQP 1.0 section 3.2; the prefixes of ids are those of the AMQP binding for JMS, section
3.2.1.1.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from qpidha.model.encoding import (
    Array,
    Char,
    Decimal,
    Described,
    ULong,
    Uuid,
    decode,
    encode,
    sections,
)
from qpidha.model.errors import InvalidArgument, ProtocolViolation
from qpidha.model.message_view import (
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    HEADER_FIELDS,
    LARGEST,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    PROPERTY_FIELDS,
    SEQUENCE,
    VALUE,
    build,
    properties,
)

Row = dict[str, Any]


class Column(NamedTuple):
    """A column; `writable` is whether a row that is written may have it."""

    name: str
    type: str
    writable: bool
    meaning: str


COLUMNS = (
    Column(
        "queue", "string", True, "queue it is from; written: where it goes, else to option `queue`"
    ),
    Column(
        "message_id",
        "string",
        True,
        "an id that is no string begins with its type, see below; written: else one is made",
    ),
    Column("correlation_id", "string", True, "as `message_id`"),
    Column("user_id", "binary", True, ""),
    Column("to", "string", True, ""),
    Column("subject", "string", True, ""),
    Column("reply_to", "string", True, ""),
    Column("content_type", "string", True, ""),
    Column("content_encoding", "string", True, ""),
    Column("group_id", "string", True, ""),
    Column("group_sequence", "bigint", True, "from 0 to 2³²-1"),
    Column("reply_to_group_id", "string", True, ""),
    Column(
        "creation_time",
        "timestamp",
        True,
        "read: null if it is not within the years 1 to 9999; AMQP has milliseconds",
    ),
    Column("absolute_expiry_time", "timestamp", True, "as `creation_time`"),
    Column(
        "durable",
        "boolean",
        True,
        "read: false if it does not say; written: true unless it is false",
    ),
    Column("priority", "smallint", True, "0 to 255; 4 if it does not say"),
    Column("ttl_ms", "bigint", True, "time to live in milliseconds, 0 to 2³²-1; null: for ever"),
    Column("first_acquirer", "boolean", False, "what the header says; false if it does not say"),
    Column(
        "delivery_count",
        "bigint",
        False,
        "failed deliveries before this one, as far as the broker knows",
    ),
    Column("annotations", "map<string,string>", False, "message annotations as text"),
    Column(
        "properties",
        "map<string,string>",
        True,
        "application properties; values that are no strings as text",
    ),
    Column("body", "binary", True, "see `body_type`; written: binary or string"),
    Column(
        "body_type", "string", True, "what `body` is: see below; written: `data` unless it says"
    ),
)
BY_NAME = {column.name: column for column in COLUMNS}
_SECTIONS = {"data": DATA, "text": VALUE, "binary": VALUE, "value": VALUE, "sequence": SEQUENCE}
BODY_TYPES = (*_SECTIONS, "message")
_SPARK: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "bigint": LongType(),
    "smallint": ShortType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
}
_ARROW = {
    "string": pyarrow.string(),
    "binary": pyarrow.binary(),
    "bigint": pyarrow.int64(),
    "smallint": pyarrow.int16(),
    "boolean": pyarrow.bool_(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "map<string,string>": pyarrow.map_(pyarrow.string(), pyarrow.string()),
}
_WRITABLE: dict[str, tuple[type[DataType], ...]] = {
    "string": (StringType,),
    "binary": (BinaryType,),
    "boolean": (BooleanType,),
    "timestamp": (TimestampType,),
    "bigint": (ByteType, ShortType, IntegerType, LongType),
    "smallint": (ByteType, ShortType, IntegerType, LongType),
    "map<string,string>": (MapType,),
}
"""Type of a column -> Spark types that it may be written from."""

SCHEMA = StructType([StructField(column.name, _SPARK[column.type]) for column in COLUMNS])
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 in ms since 1970: what a timestamp may be in Spark."""
_ID = re.compile(r"AMQP_(STRING|ULONG|UUID|BINARY):")


def read_schema(schema: StructType) -> pyarrow.Schema:
    """Return the Arrow schema of the columns asked for; raises InvalidArgument for one that is not
    ours or of another type.
    """
    for field in schema.fields:
        column = BY_NAME.get(field.name)
        if column is None:
            raise InvalidArgument(
                f"column {field.name} is unknown: messages have {', '.join(BY_NAME)}"
            )
        if field.dataType.simpleString() != column.type:
            raise InvalidArgument(
                f"column {field.name} is {field.dataType.simpleString()} in the schema, "
                f"must be {column.type}"
            )
    return pyarrow.schema(
        [(field.name, _ARROW[BY_NAME[field.name].type]) for field in schema.fields]
    )


def record_batch(
    schema: pyarrow.Schema, queue: str, payloads: Sequence[bytes]
) -> pyarrow.RecordBatch:
    """Return encoded messages of a queue as rows."""
    rows = [row_of(queue, payload) for payload in payloads]
    arrays = [pyarrow.array([row[field.name] for row in rows], field.type) for field in schema]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def row_of(queue: str, payload: bytes) -> Row:
    """Return a message as a row with every column; timestamps are microseconds since 1970."""
    try:
        return _row(queue, payload)
    except ProtocolViolation:
        return {**_EMPTY, "queue": queue, "body": payload, "body_type": "message"}


def digest(payload: bytes) -> bytes:
    """Return what tells a message from others however often it is delivered: a hash of all that
    brokers do not touch.
    """
    try:
        bare = next((start for code, start, _, _ in sections(payload) if code >= PROPERTIES), 0)
    except ProtocolViolation:
        bare = 0
    return blake2b(payload[bare:], digest_size=16).digest()


def identity(payload: bytes) -> bytes:
    """Return the digest of a message that has an id, and nothing for another: of two that are equal
    to the last byte one may be new.
    """
    try:
        return digest(payload) if "message_id" in properties(payload) else b""
    except ProtocolViolation:
        return b""


_EMPTY: Row = {
    **dict.fromkeys(BY_NAME),
    "durable": False,
    "priority": 4,
    "first_acquirer": False,
    "delivery_count": 0,
    "annotations": [],
    "properties": [],
}


def _row(queue: str, payload: bytes) -> Row:
    row: Row = {**_EMPTY, "queue": queue, "body_type": "data", "body": b""}
    bodies = []
    for code, _, start, _ in sections(payload):
        if code in (DELIVERY_ANNOTATIONS, FOOTER):
            continue
        value = decode(payload, start)[0]
        if DATA <= code <= VALUE:
            bodies.append((code, value))
        elif code in (HEADER, PROPERTIES):
            _fill(row, code, value)
        elif not isinstance(value, dict):
            raise ProtocolViolation("a message section is not the map it must be")
        else:
            row["annotations" if code == MESSAGE_ANNOTATIONS else "properties"] = [
                (_text(k) or "", _text(v)) for k, v in value.items()
            ]
    if bodies:
        row["body_type"], row["body"] = _body(bodies)
    return row


def _fill(row: Row, code: int, values: Any) -> None:
    """Put the fields of a header or of properties into their columns; what is not of its type
    counts as absent.
    """
    if not isinstance(values, list):
        raise ProtocolViolation("a message section is not the list it must be")
    for name, value in zip(
        HEADER_FIELDS if code == HEADER else PROPERTY_FIELDS, values, strict=False
    ):
        column = BY_NAME["ttl_ms" if name == "ttl" else name]
        found = _FROM_AMQP.get(name, _FROM_TYPE[column.type])(value) if value is not None else None
        if found is not None:
            row[column.name] = found


def _microseconds(value: Any) -> int | None:
    return value * 1000 if isinstance(value, int) and FIRST_MS <= value <= LAST_MS else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _whole(largest: int) -> Callable[[Any], int | None]:
    return lambda value: (
        int(value)
        if isinstance(value, int) and type(value) is not bool and 0 <= value <= largest
        else None
    )


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else (_text(value) or "").encode()


def _id(value: Any) -> str | None:
    """Render an id so that it can be written back as what it was."""
    if isinstance(value, str):
        return f"AMQP_STRING:{value}" if _ID.match(value) else str(value)
    if isinstance(value, ULong):
        return f"AMQP_ULONG:{value}"
    if isinstance(value, Uuid):
        return f"AMQP_UUID:{value}"
    return f"AMQP_BINARY:{value.hex()}" if isinstance(value, bytes) else _text(value)


def _read_id(text: str) -> Any:
    """Do the opposite of `_id`."""
    kind, _, rest = text.partition(":")
    try:
        if kind == "AMQP_STRING":
            return rest
        if kind == "AMQP_ULONG" and 0 <= int(rest) < 1 << 64:
            return ULong(rest)
        if kind == "AMQP_UUID":
            return Uuid(UUID(rest).bytes)
        if kind == "AMQP_BINARY":
            return bytes.fromhex(rest)
    except ValueError:
        pass
    return text


def _text(value: Any) -> str | None:
    """Render any value as text: a string as itself, everything else as JSON without quotes around
    it.
    """
    if value is None or type(value) is str:
        return value
    shown = plain(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


_FROM_AMQP: dict[str, Callable[[Any], Any]] = {
    "message_id": _id,
    "correlation_id": _id,
    "priority": _whole(LARGEST["priority"]),
}
_FROM_TYPE: dict[str, Callable[[Any], Any]] = {
    "string": _text,
    "binary": _bytes,
    "bigint": _whole(2**32 - 1),
    "boolean": _boolean,
    "timestamp": _microseconds,
    "smallint": _whole(2**8 - 1),
}


def plain(value: Any) -> Any:
    """Return any AMQP value as what JSON has: binary, decimals and uuids as strings, timestamps as
    milliseconds since 1970.
    """
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case Char():
            return value.encode("utf-8", "replace").decode()
        case str():
            return str(value)
        case bytes():
            return value.hex()
        case Uuid():
            return str(value)
        case Decimal():
            return value.bytes.hex()
        case Array():
            return [plain(item) for item in value.items]
        case list():
            return [plain(item) for item in value]
        case dict():
            return {_text(key) or "null": plain(item) for key, item in value.items()}
        case Described():
            return {"descriptor": plain(value.descriptor), "value": plain(value.value)}
    raise ProtocolViolation(f"{type(value).__name__} is no AMQP value")


def _body(bodies: Sequence[tuple[int, Any]]) -> tuple[str, bytes]:
    """Return the kind and the bytes of a body; several sequences are one."""
    code, value = bodies[0]
    if code == DATA and all(isinstance(part, bytes) for _, part in bodies):
        return "data", b"".join(part for _, part in bodies)
    if code == SEQUENCE and all(isinstance(part, list) for _, part in bodies):
        return "sequence", _json([plain(item) for _, part in bodies for item in part])
    if code != VALUE:
        raise ProtocolViolation("a body section is not of the type it must be")
    if type(value) is str:
        return "text", value.encode()
    return ("binary", value) if isinstance(value, bytes) else ("value", _json(plain(value)))


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


# Rows that are written.


def check_written(schema: StructType, *, has_queue: bool) -> None:
    """Raise InvalidArgument that names the column for rows that cannot become messages; `has_queue`
    is whether the options name one.
    """
    for field in schema.fields:
        column = BY_NAME.get(field.name)
        if column is None:
            raise InvalidArgument(
                f"column {field.name} is unknown: a message has "
                f"{', '.join(c.name for c in COLUMNS if c.writable)}"
            )
        if not column.writable:
            raise InvalidArgument(
                f"column {field.name} is the broker's to say: drop it before writing"
            )
        allowed = (*_WRITABLE[column.type], *((StringType,) if field.name == "body" else ()))
        right = isinstance(field.dataType, allowed)
        if isinstance(field.dataType, MapType):
            right = (
                right
                and isinstance(field.dataType.keyType, StringType)
                and isinstance(field.dataType.valueType, StringType)
            )
        if not right:
            names = (
                "map<string,string>"
                if MapType in allowed
                else " or ".join(kind().simpleString() for kind in allowed)
            )
            raise InvalidArgument(
                f"column {field.name} is {field.dataType.simpleString()}, must be {names}: cast it"
            )
    present = schema.fieldNames()
    if "body" not in present:
        raise InvalidArgument(
            "column body is missing: it is what the message says, binary or string"
        )
    if "queue" not in present and not has_queue:
        raise InvalidArgument(
            "nothing says where messages go: give option queue, or a column queue"
        )


def rows(batch: pyarrow.RecordBatch) -> Iterable[Row]:
    """Yield the rows of a batch that is to be written, without what is null; timestamps become
    milliseconds.
    """
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pyarrow.types.is_timestamp(field.type):
            column = column.cast(pyarrow.timestamp("us", field.type.tz)).cast(pyarrow.int64())
            columns.append(
                [None if value is None else value // 1000 for value in column.to_pylist()]
            )
        else:
            columns.append(column.to_pylist())
    names = batch.schema.names
    for values in zip(*columns, strict=True):
        yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def message_of(row: Mapping[str, Any], message_id: str) -> bytes:
    """Return a row as an encoded message, with `message_id` unless the row has one; raises
    InvalidArgument for a value that cannot be.
    """
    kind = row.get("body_type", "data")
    body = row.get("body", b"")
    body = body if isinstance(body, bytes) else str(body).encode()
    if kind == "message":
        return _whole_message(body)
    fields = {name: row[name] for name in PROPERTY_FIELDS if name in row}
    fields["message_id"] = row.get("message_id", message_id)
    for name in ("message_id", "correlation_id"):
        if name in fields:
            fields[name] = _read_id(fields[name])
    header = {"durable": row.get("durable", True)}
    for name, column in (("priority", "priority"), ("ttl", "ttl_ms")):
        if column in row:
            header[name] = _in_range(column, row[column], LARGEST[name])
    if "group_sequence" in row:
        _in_range("group_sequence", row["group_sequence"], 2**32 - 1)
    for name in ("content_type", "content_encoding"):
        if not row.get(name, "").isascii():
            raise InvalidArgument(f"column {name} is {row[name]!r}, must be ASCII")
    application_properties = dict(row.get("properties", ()))
    return build(
        _content(kind, body),
        section=_SECTIONS[kind],
        header=header,
        properties=fields,
        application_properties=application_properties,
    )


def _in_range(column: str, value: int, largest: int) -> int:
    if not 0 <= value <= largest:
        raise InvalidArgument(f"column {column} is {value}, must be from 0 to {largest}")
    return value


def _whole_message(body: bytes) -> bytes:
    try:
        if sections(body):
            return body
    except ProtocolViolation:
        pass
    raise InvalidArgument("column body_type is message, but body is no encoded AMQP message")


def _content(kind: str, body: bytes) -> Any:
    """Return the value of a body section."""
    if kind not in BODY_TYPES:
        raise InvalidArgument(
            f"column body_type is {kind!r}, must be one of {', '.join(BODY_TYPES)}"
        )
    if kind in ("data", "binary"):
        return body
    try:
        text = body.decode()
        found = text if kind == "text" else json.loads(text)
        encode(found)
    except (ValueError, RecursionError, struct.error) as error:
        raise InvalidArgument(
            f"column body_type is {kind}, and body is not that: {error}"
        ) from None
    if kind == "sequence" and not isinstance(found, list):
        raise InvalidArgument("column body_type is sequence, and body is not a JSON array")
    return found


def documentation() -> str:
    """Return the table of columns for docs/connector.md."""
    lines = ["| Column | Type | Written | Meaning |", "|---|---|---|---|"]
    lines += [
        (
            f"| `{c.name}` | {c.type} | {'yes' if c.writable else 'no'} | "
            f"{c.meaning or 'as in the message'} |"
        )
        for c in COLUMNS
    ]
    return "\n".join(lines)
