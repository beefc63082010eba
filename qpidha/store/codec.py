"""The codec of records: runs of like records to bytes and back.

Messages come in thousands, so enqueues and dequeues of one queue that follow each other are written
as one run: a fixed head, then columns (sequences, lengths, expiries) as arrays, then the payloads end
to end. All other records are rare and written as JSON. Every entry carries its own sequence, so a run
may have gaps where messages came and went before they were written.
Knows nothing of what a record means.
"""

from __future__ import annotations

import json
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from qpidha.words.errors import ProtocolViolation
from qpidha.words.records import (
    Bound,
    DedupRemembered,
    Dequeued,
    Enqueued,
    EpochStarted,
    ExchangeDeclared,
    ExchangeDeleted,
    InSyncChanged,
    QueueDeclared,
    QueueDeleted,
    QueueUsed,
    Record,
    Requeued,
    Unbound,
)

ENQUEUES, DEQUEUES, REQUEUE, SHARED, OTHER = 1, 2, 3, 4, 5
RUN_HEAD = struct.Struct("<BqI?")  # kind, queue, count, whether an expiry column follows
ALONE = struct.Struct("<QI")  # sequence, length of payload: the columns of a run of one message
REQUEUE_HEAD = struct.Struct("<BqQII")  # kind, queue, sequence of the message, delivery count, length of annotations
SHARED_HEAD = struct.Struct("<BQIIQ")  # kind, sequence, number of queues, length of payload, expiry
OTHER_HEAD = struct.Struct("<BQI")  # kind, sequence, length of the JSON text

JSON_RECORDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        ExchangeDeclared, ExchangeDeleted, QueueDeclared, QueueDeleted, Bound, Unbound, QueueUsed, DedupRemembered,
        EpochStarted, InSyncChanged,
    )
}  # fmt: skip


class EnqueueRun:
    """Messages of one queue, in order: columns of sequences, payloads and expiries."""

    __slots__ = ("expiries", "payloads", "queue", "sequences")

    def __init__(self, queue: int, sequences: list[int], payloads: list[bytes], expiries: list[int]) -> None:
        self.queue = queue
        self.sequences = sequences
        self.payloads = payloads
        self.expiries = expiries
        """One for each message, or empty when none of them expires."""


Entry = tuple[int, Record] | EnqueueRun


def encode_enqueues(queue: int, sequences: list[int], payloads: list[bytes], expiries: list[int]) -> bytes:
    """Encode a run of messages of one queue."""
    expires = any(expiries)
    columns = _column("Q", sequences) + _column("I", [len(payload) for payload in payloads])
    if expires:
        columns += _column("Q", expiries)
    return RUN_HEAD.pack(ENQUEUES, queue, len(sequences), expires) + columns + b"".join(payloads)


def encode_dequeues(queue: int, sequences: Iterable[int]) -> bytes:
    """Encode a run of dequeues of one queue."""
    column = array("Q", sequences)
    head = RUN_HEAD.pack(DEQUEUES, queue, len(column), False)
    return head + _little(column)


def encode_record(sequence: int, record: Record) -> bytes:
    """Encode any one record with its sequence."""
    if isinstance(record, Dequeued):
        return encode_dequeues(record.queue, record.sequences)
    if isinstance(record, Requeued):
        head = REQUEUE_HEAD.pack(REQUEUE, record.queue, record.sequence, record.delivery_count, len(record.annotations))
        return head + record.annotations
    if isinstance(record, Enqueued):
        head = SHARED_HEAD.pack(SHARED, sequence, len(record.queues), len(record.payload), record.expires)
        return head + _column("q", list(record.queues)) + record.payload
    text = json.dumps({"record": type(record).__name__, **asdict(record)}, separators=(",", ":")).encode()
    return OTHER_HEAD.pack(OTHER, sequence, len(text)) + text


def decode(data: bytes) -> Iterator[Entry]:
    """Yield the entries of encoded records: runs of messages, or `(sequence, record)`.

    Dequeues and requeues are yielded with sequence 0: their place in the log has no meaning of its own.
    Raises ProtocolViolation for bytes that are not records.
    """
    offset = 0
    try:
        while offset < len(data):
            kind = data[offset]
            entry, offset = DECODERS[kind](data, offset)
            if offset > len(data):
                raise ValueError("the last record is cut short")
            yield entry
    except (KeyError, IndexError, ValueError, TypeError, struct.error) as error:
        raise ProtocolViolation(f"record at byte {offset} cannot be read: {error}; the sender may run another version") from error


def _decode_enqueues(data: bytes, offset: int) -> tuple[Entry, int]:
    _, queue, count, expires = RUN_HEAD.unpack_from(data, offset)
    if not count:
        raise ValueError("a run of no messages")
    offset += RUN_HEAD.size
    if count == 1 and not expires:  # the usual case where each message waits for the one before
        sequence, length = ALONE.unpack_from(data, offset)
        offset += ALONE.size
        return EnqueueRun(queue, [sequence], [data[offset : offset + length]], []), offset + length
    sequences, offset = _read("Q", data, offset, count)
    lengths, offset = _read("I", data, offset, count)
    expiries: list[int] = []
    if expires:
        expiries, offset = _read("Q", data, offset, count)
    payloads = []
    for length in lengths:
        end = offset + length
        payloads.append(data[offset:end])
        offset = end
    return EnqueueRun(queue, sequences, payloads, expiries), offset


def _decode_dequeues(data: bytes, offset: int) -> tuple[Entry, int]:
    _, queue, count, _ = RUN_HEAD.unpack_from(data, offset)
    sequences, offset = _read("Q", data, offset + RUN_HEAD.size, count)
    return (0, Dequeued(queue, tuple(sequences))), offset


def _decode_requeue(data: bytes, offset: int) -> tuple[Entry, int]:
    _, queue, sequence, count, length = REQUEUE_HEAD.unpack_from(data, offset)
    start = offset + REQUEUE_HEAD.size
    return (0, Requeued(queue, sequence, count, data[start : start + length])), start + length


def _decode_shared(data: bytes, offset: int) -> tuple[Entry, int]:
    _, sequence, count, length, expires = SHARED_HEAD.unpack_from(data, offset)
    queues, start = _read("q", data, offset + SHARED_HEAD.size, count)
    return (sequence, Enqueued(tuple(queues), data[start : start + length], expires)), start + length


def _decode_other(data: bytes, offset: int) -> tuple[Entry, int]:
    _, sequence, length = OTHER_HEAD.unpack_from(data, offset)
    start = offset + OTHER_HEAD.size
    fields = json.loads(data[start : start + length])
    record: Record = JSON_RECORDS[fields.pop("record")](**fields)
    if isinstance(record, EpochStarted | InSyncChanged):
        record.members = tuple(record.members)
    return (sequence, record), start + length


DECODERS = {
    ENQUEUES: _decode_enqueues,
    DEQUEUES: _decode_dequeues,
    REQUEUE: _decode_requeue,
    SHARED: _decode_shared,
    OTHER: _decode_other,
}


def _column(code: str, values: list[int]) -> bytes:
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
