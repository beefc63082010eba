"""The codec of records: runs of like records to bytes and back.

Messages come in thousands, so enqueues and dequeues of one queue that follow each other are written
as one run: a fixed head, then columns (sequences, lengths, expiries) as arrays, then the payloads
end to end. All other records are rare and written as JSON. Every entry carries its own sequence, so
a run may have gaps where messages came and went before they were written. Knows nothing of what a
record means.

Written for versions to come (docs/internals/versions.md):

- The head of a run names the columns that follow, one bit each. Every column but the expiries
  begins with its length, so a reader passes over one that it does not know.
- A JSON record keeps the fields that this version does not know, and writes them again.
- A JSON record of an unknown kind is kept if it says `"ignorable": true`. Any other one is refused
  by its name: to go on without it would build another state than the primary has.

What a new column or kind belongs to is a feature, so that a version which only passes over it never
gets any while it matters.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from qpidha.model.encoding import LARGE, Parts
from qpidha.model.errors import ProtocolViolation
from qpidha.model.records import (
    Bound,
    Cause,
    DedupRemembered,
    Dequeued,
    Enqueued,
    EpochStarted,
    ExchangeDeclared,
    ExchangeDeleted,
    FeatureEnabled,
    InSyncChanged,
    LevelChanged,
    LifeStarted,
    LinkDeclared,
    LinkDeleted,
    PolicyCleared,
    PolicySet,
    QueueDeclared,
    QueueDeleted,
    QueueUsed,
    Record,
    ReplicaEnded,
    ReplicaSet,
    Requeued,
    RouteDeclared,
    RouteDeleted,
    Unbound,
    Unknown,
)

ENQUEUES, DEQUEUES, REQUEUE, SHARED, OTHER, DELAY = 1, 2, 3, 4, 5, 6
RUN_HEAD = struct.Struct("<BqIB")  # kind, queue, count, which columns follow
EXPIRIES, CAUSE = 1, 2
"""Columns of a run, in the order of their bits. Expiries are one u64 a message, as they always
were; all others are a u32 length and so many bytes. The cause of a run of dequeues is one byte.
"""
COLUMN_HEAD = struct.Struct("<I")
ALONE = struct.Struct("<QI")  # sequence, length of payload: the columns of a run of one message
RUN_OF_ONE = struct.Struct("<BqIBQI")  # a head and those
DEQUEUE_OF_ONE = struct.Struct("<BqIBQ")  # a head and a sequence
REQUEUE_HEAD = struct.Struct(
    "<BqQII"
)  # kind, queue, sequence of the message, delivery count, length of annotations
DELAY_HEAD = struct.Struct("<BqQIIQ")  # the same, and when the message is due
SHARED_HEAD = struct.Struct("<BQIIQ")  # kind, sequence, number of queues, length of payload, expiry
OTHER_HEAD = struct.Struct("<BQI")  # kind, sequence, length of the JSON text

JSON_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        ExchangeDeclared,
        ExchangeDeleted,
        QueueDeclared,
        LevelChanged,
        QueueDeleted,
        Bound,
        Unbound,
        QueueUsed,
        DedupRemembered,
        PolicySet,
        PolicyCleared,
        LinkDeclared,
        LinkDeleted,
        RouteDeclared,
        RouteDeleted,
        ReplicaSet,
        ReplicaEnded,
        LifeStarted,
        EpochStarted,
        InSyncChanged,
        FeatureEnabled,
    )
}
TYPES: dict[str, Callable[[Any], bool]] = {
    "int": lambda value: type(value) is int,
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "dict[str, Any]": lambda value: isinstance(value, dict),
    "list[int]": lambda value: isinstance(value, list) and all(type(one) is int for one in value),
    "list[str]": lambda value: _are_texts(value),
    "tuple[str, ...]": lambda value: _are_texts(value),
}
"""Whether a JSON value is what a field of a record is to be, by the field's annotation."""
CHECKS = {
    kind: {one.name: TYPES[str(one.type)] for one in fields(kind) if one.name != "later"}
    for kind in JSON_RECORDS.values()
}
LEFT_OUT: dict[type, tuple[str, ...]] = {
    QueueDeclared: ("fallback", "implied"),
    LevelChanged: ("recorded", "keeper"),
    DedupRemembered: ("by",),
}
"""Fields that are not written while they are empty."""
CUT_SHORT = "the last record is cut short"
MALFORMED = (KeyError, IndexError, ValueError, TypeError, AttributeError, struct.error)
"""What bytes that are not records raise when they are read."""
IGNORABLE = "ignorable"
"""The mark of a record of a later kind that an older broker may leave out of account."""


class EnqueueRun:
    """Messages of one queue, in order: columns of sequences, payloads and expiries."""

    __slots__ = ("expiries", "payloads", "queue", "sequences")

    def __init__(
        self, queue: int, sequences: list[int], payloads: list[bytes], expiries: list[int]
    ) -> None:
        self.queue = queue
        self.sequences = sequences
        self.payloads = payloads
        self.expiries = expiries
        """One for each message, or empty when none of them expires."""


Entry = tuple[int, Record] | EnqueueRun


def encode_enqueues(
    queue: int, sequences: list[int], payloads: list[bytes], expiries: list[int]
) -> bytes:
    """Encode a run of messages of one queue."""
    return b"".join(enqueue_parts(queue, sequences, payloads, expiries))


def enqueue_parts(
    queue: int, sequences: list[int], payloads: list[bytes], expiries: list[int]
) -> list[bytes]:
    """Encode a run of messages of one queue without copying them."""
    return [_run_head(queue, sequences, list(map(len, payloads)), expiries), *payloads]


def encode_columns(
    queue: int,
    sequences: Sequence[int],
    sizes: Sequence[int],
    expiries: Sequence[int],
    payload: bytes,
) -> bytes:
    """Encode a run of messages of one queue whose bodies are in one piece."""
    return _run_head(queue, sequences, sizes, expiries) + payload


def _run_head(
    queue: int, sequences: Sequence[int], sizes: Sequence[int], expiries: Sequence[int]
) -> bytes:
    expires = any(expiries)
    if len(sequences) == 1 and not expires:  # as where many queues are used in turn
        return RUN_OF_ONE.pack(ENQUEUES, queue, 1, 0, sequences[0], sizes[0])
    columns = _column("Q", sequences) + _column("I", sizes)
    if expires:
        columns += _column("Q", expiries)
    return RUN_HEAD.pack(ENQUEUES, queue, len(sequences), expires) + columns


def first_of_run(data: bytes) -> tuple[int, int] | None:
    """Return the queue and the first sequence of the run of messages that encoded records begin
    with; None if they begin with something else.
    """
    if data[:1] != bytes((ENQUEUES,)):
        return None
    _, queue, count, _ = RUN_HEAD.unpack_from(data)
    end = RUN_HEAD.size + 8
    return (queue, int.from_bytes(data[RUN_HEAD.size : end], "little")) if count else None


def encode_dequeues(queue: int, sequences: Sequence[int], cause: int = Cause.ACCEPTED) -> bytes:
    """Encode a run of dequeues of one queue, all for one cause."""
    if len(sequences) == 1 and not cause:
        return DEQUEUE_OF_ONE.pack(DEQUEUES, queue, 1, 0, sequences[0])
    column = array("Q", sequences)
    if not cause:
        return RUN_HEAD.pack(DEQUEUES, queue, len(column), 0) + _little(column)
    head = RUN_HEAD.pack(DEQUEUES, queue, len(column), CAUSE)
    return head + _little(column) + COLUMN_HEAD.pack(1) + bytes((cause,))


def record_parts(sequence: int, record: Record) -> list[bytes]:
    """Encode any one record with its sequence, without copying a message."""
    if isinstance(record, Enqueued):
        head = SHARED_HEAD.pack(
            SHARED, sequence, len(record.queues), len(record.payload), record.expires
        )
        return [head + _column("q", list(record.queues)), record.payload]
    return [encode_record(sequence, record)]


def encode_record(sequence: int, record: Record) -> bytes:
    """Encode any one record with its sequence."""
    if isinstance(record, Dequeued):
        return encode_dequeues(record.queue, record.sequences, record.cause)
    if isinstance(record, Requeued):
        values = record.queue, record.sequence, record.delivery_count, len(record.annotations)
        head = (
            DELAY_HEAD.pack(DELAY, *values, record.due)
            if record.due
            else REQUEUE_HEAD.pack(REQUEUE, *values)
        )
        return head + record.annotations
    if isinstance(record, Enqueued):
        return b"".join(record_parts(sequence, record))
    text = json.dumps(_json_fields(record), separators=(",", ":")).encode()
    return OTHER_HEAD.pack(OTHER, sequence, len(text)) + text


def _json_fields(record: Record) -> dict[str, Any]:
    """Return a record as it is written: fields of a later version stand beside our own."""
    if isinstance(record, Unknown):
        return record.fields
    values = asdict(record)
    for name in LEFT_OUT.get(type(record), ()):
        if not values[name]:
            del values[name]
    return {"record": type(record).__name__, **values.pop("later"), **values}


class Source:
    """Encoded records, of which only messages may begin with another part than what is before
    them.
    """

    __slots__ = ("_rest", "data")

    def __init__(self, rest: Iterator[bytes | memoryview]) -> None:
        self._rest = rest
        self.data: Any = b""
        """The part that is read at present: bytes, or a view of them."""

    def cut(self, offset: int, length: int) -> tuple[bytes, int]:
        """Cut so many bytes out at an offset, or take the next part if they are that; return them
        and the offset behind them.
        """
        if length and offset == len(self.data):
            part = next(filter(len, self._rest), None)  # one may be empty
            if part is None:
                raise ValueError(CUT_SHORT)
            self.data, offset = part, 0
        end = offset + length
        return self.data[offset:end], end


def decode(data: bytes | Parts) -> Iterator[Entry]:
    """Yield the entries of encoded records: runs of messages, or `(sequence, record)`.

    Dequeues and requeues are yielded with sequence 0: their place in the log has no meaning of its
    own. Raises ProtocolViolation for bytes that are not records.
    """
    parts = iter((data,) if isinstance(data, bytes) else data)
    source = Source(parts)
    offset = 0
    try:
        for part in parts:
            source.data, offset = part, 0
            while offset < len(source.data):
                entry, offset = DECODERS[source.data[offset]](source, offset)
                if offset > len(source.data):
                    raise ValueError(CUT_SHORT)
                yield entry
    except MALFORMED as error:
        raise ProtocolViolation(
            f"record at byte {offset} cannot be read: {error}; the sender may run another version"
        ) from error


def apart(data: Parts, count: int) -> Parts:
    """Cut `count` encoded records, if they are a view of something larger, into parts of which each
    large message is one. A large message is then copied once, whoever needs it.
    """
    if len(data) != 1 or isinstance(data[0], bytes):
        return data
    (view,) = data
    if len(view) < LARGE * count:
        return (bytes(view),)
    found: list[bytes] = []
    source = Source(iter(()))
    source.data = view
    offset = done = 0
    try:
        while offset < len(view):
            entry, offset = DECODERS[view[offset]](source, offset)
            if offset > len(view):
                raise ValueError(CUT_SHORT)
            payloads = _payloads(entry)
            at = offset - sum(map(len, payloads))
            for payload in payloads:
                if len(payload) >= LARGE:
                    if at > done:
                        found.append(bytes(view[done:at]))
                    found.append(bytes(payload))
                    done = at + len(payload)
                at += len(payload)
    except MALFORMED:
        return (bytes(view),)  # Whoever decodes it will say so.
    if done < len(view):
        found.append(bytes(view[done:]))
    return tuple(found)


def _payloads(entry: Entry) -> list[bytes]:
    """The messages in an entry, which ends with them."""
    if isinstance(entry, EnqueueRun):
        return entry.payloads
    return [entry[1].payload] if isinstance(entry[1], Enqueued) else []


def _decode_enqueues(source: Source, offset: int) -> tuple[Entry, int]:
    data = source.data
    _, queue, count, columns = RUN_HEAD.unpack_from(data, offset)
    if not count:
        raise ValueError("a run of no messages")
    offset += RUN_HEAD.size
    if count == 1 and not columns:  # the usual case where each message waits for the one before
        sequence, length = ALONE.unpack_from(data, offset)
        offset += ALONE.size
        payload, offset = source.cut(offset, length)
        return EnqueueRun(queue, [sequence], [payload], []), offset
    sequences, offset = _read("Q", data, offset, count)
    lengths, offset = _read("I", data, offset, count)
    expiries: list[int] = []
    if columns & EXPIRIES:
        expiries, offset = _read("Q", data, offset, count)
    if columns > EXPIRIES:
        _, offset = _later_columns(data, offset, columns)
    payloads = []
    if offset + sum(lengths) > len(data):
        for length in lengths:
            payload, offset = source.cut(offset, length)
            payloads.append(payload)
        return EnqueueRun(queue, sequences, payloads, expiries), offset
    for length in lengths:
        end = offset + length
        payloads.append(data[offset:end])
        offset = end
    return EnqueueRun(queue, sequences, payloads, expiries), offset


def _decode_dequeues(source: Source, offset: int) -> tuple[Entry, int]:
    data = source.data
    _, queue, count, columns = RUN_HEAD.unpack_from(data, offset)
    if count == 1 and not columns:
        sequence = DEQUEUE_OF_ONE.unpack_from(data, offset)[-1]
        return (0, Dequeued(queue, (sequence,))), offset + DEQUEUE_OF_ONE.size
    sequences, offset = _read("Q", data, offset + RUN_HEAD.size, count)
    if not columns:
        return (0, Dequeued(queue, tuple(sequences))), offset
    if columns & EXPIRIES:
        raise ValueError("a run of dequeues with expiries")
    found, offset = _later_columns(data, offset, columns)
    cause = found[CAUSE][0] if CAUSE in found else Cause.ACCEPTED
    return (0, Dequeued(queue, tuple(sequences), cause)), offset


def _later_columns(data: bytes, offset: int, columns: int) -> tuple[dict[int, bytes], int]:
    """Read the columns that begin with their length, known or not, by their bits."""
    found: dict[int, bytes] = {}
    for bit in (2, 4, 8, 16, 32, 64, 128):
        if columns & bit:
            (length,) = COLUMN_HEAD.unpack_from(data, offset)
            start = offset + COLUMN_HEAD.size
            offset = start + length
            if offset > len(data):
                raise ValueError("a column is cut short")
            found[bit] = data[start:offset]
    return found, offset


def _decode_requeue(source: Source, offset: int) -> tuple[Entry, int]:
    data = source.data
    _, queue, sequence, count, length = REQUEUE_HEAD.unpack_from(data, offset)
    start = offset + REQUEUE_HEAD.size
    return (0, Requeued(queue, sequence, count, data[start : start + length])), start + length


def _decode_delay(source: Source, offset: int) -> tuple[Entry, int]:
    data = source.data
    _, queue, sequence, count, length, due = DELAY_HEAD.unpack_from(data, offset)
    start = offset + DELAY_HEAD.size
    end = start + length
    return (0, Requeued(queue, sequence, count, data[start:end], due)), end


def _decode_shared(source: Source, offset: int) -> tuple[Entry, int]:
    data = source.data
    _, sequence, count, length, expires = SHARED_HEAD.unpack_from(data, offset)
    queues, offset = _read("q", data, offset + SHARED_HEAD.size, count)
    payload, offset = source.cut(offset, length)
    return (sequence, Enqueued(tuple(queues), payload, expires)), offset


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _decode_other(source: Source, offset: int) -> tuple[Entry, int]:
    data = source.data
    _, sequence, length = OTHER_HEAD.unpack_from(data, offset)
    start = offset + OTHER_HEAD.size
    values = json.loads(bytes(data[start : start + length]))
    kind = JSON_RECORDS.get(values["record"])
    if kind is None:
        if values.get(IGNORABLE) is not True:
            raise ValueError(f"this version knows no record {values['record']!r}")
        return (sequence, Unknown(values)), start + length
    del values["record"]
    checks = CHECKS[kind]
    later = {name: values.pop(name) for name in list(values) if name not in checks}
    for name, value in values.items():
        if not checks[name](value):
            raise ValueError(f"{name} of {kind.__name__} is {value!r}")
    record: Record = kind(**values, later=later)
    if isinstance(record, EpochStarted | InSyncChanged):
        record.members = tuple(record.members)
    return (sequence, record), start + length


DECODERS = {  # by the first byte; another one is a KeyError, and refused with its number
    ENQUEUES: _decode_enqueues,
    DEQUEUES: _decode_dequeues,
    REQUEUE: _decode_requeue,
    SHARED: _decode_shared,
    OTHER: _decode_other,
    DELAY: _decode_delay,
}


def _column(code: str, values: Sequence[int]) -> bytes:
    return _little(array(code, values))


def _little(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _read(code: str, data: bytes, offset: int, count: int) -> tuple[list[int], int]:
    column = array(code)
    end = offset + count * column.itemsize
    if end > len(data):
        raise ValueError("a column is cut short")
    column.frombytes(data[offset:end])
    if sys.byteorder == "big":
        column.byteswap()
    return column.tolist(), end
