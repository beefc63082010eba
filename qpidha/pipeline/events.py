"""The event format: every kind of event of client histories and broker journals, its fields, their
types and units.

One table for all: the recorder writes by it, the reader checks against it, tables take their
numeric codes from it, and docs/pipeline.md shows it (a test compares). An event is one JSON object
on one line. Integers are written as integers; a field that is null counts as absent; a field that
is not in the table is accepted and counted, so that a newer writer can be read. Codes are stored in
tables and never change their meaning. Knows nothing of files, checks or Spark. Definitions:
docs/pipeline.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qpidha.model.event_log import FORMAT

Event = dict[str, Any]

INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1
FOREVER = INT64
"""As a time: never."""
EARLIEST, LATEST = -(1 << 61), 1 << 62
"""Bounds of times, in ns: what is beyond is cut, so that no difference of two overflows."""
UNBOUNDED = (1 << 62) - 1
"""Error in ns between clocks of which nothing is known: more than any two times differ, and no sum
with one overflows.
"""
CLIENT = 1_000_000
"""Process numbers are `client * CLIENT + how many processes this client had before`, so a client
outlives its processes.
"""

OPERATIONS = {
    "enqueue": 1,
    "dequeue": 2,
    "ack": 3,
    "drain": 4,
    "acquire": 5,
    "release": 6,
    "lost": 7,
    "write": 8,
}
"""What a client does -> code. `lost` is the moment in which the holder of a lock learns that its
session is gone; `write` an order to what the lock protects, with the holder's fencing token.
"""
OUTCOMES = {"invoke": 0, "ok": 1, "fail": 2, "info": 3}
"""How an operation stands -> code: begun, done, certainly without effect, not known."""
STEPS = {"start": 0, "stop": 1}
"""Of a fault -> code."""
ROLES = {"standalone": 0, "joining": 1, "catchup": 2, "ready": 3, "recovering": 4, "active": 5}
"""State of a broker -> code; from `recovering` on it is a primary."""


@dataclass(frozen=True, slots=True)
class Field:
    """One key of an event."""

    key: str
    column: str
    """Its name in tables."""
    type: str
    """`string`, or the Spark type of an integer: `tinyint`, `int`, `bigint`."""
    unit: str
    meaning: str


FIELDS = (
    Field(
        "n", "node", "string", "", "the writer: `client-<host>`, `nemesis`, or the name of a broker"
    ),
    Field("b", "boot", "string", "", "8 hex digits, new for each start of the writer"),
    Field(
        "s",
        "s",
        "bigint",
        "count",
        "number of the event of this node and boot, from 0 without gaps over all segments",
    ),
    Field("t", "ts_us", "bigint", "µs", "wall clock, UTC, since 1970"),
    Field("m", "mono_ns", "bigint", "ns", "monotonic clock of the host"),
    Field("k", "kind", "string", "", "kind of the event"),
    Field("run", "run_id", "string", "", "name of the run"),
    Field(
        "o",
        "op_id",
        "bigint",
        "",
        "number of the operation or fault, unique in the run; its steps share it",
    ),
    Field(
        "c",
        "process",
        "bigint",
        "",
        "logical process; retired when an outcome is not known, its successor has the next number",
    ),
    Field("y", "otype", "string", "", "how an operation stands, or the step of a fault"),
    Field("f", "what", "string", "", "what is done or what happened, by kind"),
    Field("q", "queue", "string", "", "queue, or the queue that is a lock"),
    Field("w", "producer", "int", "", "producer of the value"),
    Field(
        "u",
        "seq",
        "bigint",
        "count",
        "sequence number of the value in the order in which its producer sends, per queue",
    ),
    Field(
        "d",
        "delivery_count",
        "int",
        "count",
        "delivery-count of the message: failed deliveries before this one",
    ),
    Field("fa", "first_acquirer", "int", "0 or 1", "first-acquirer of the message's header"),
    Field(
        "j",
        "intended_ns",
        "bigint",
        "ns",
        "monotonic time at which an open-loop generator wanted to begin",
    ),
    Field("i", "msg", "string", "", "message id"),
    Field(
        "x",
        "peer",
        "string",
        "",
        "the other side or the object: peer node, client address, target of a fault, reason",
    ),
    Field("r", "role", "string", "", "state of the broker from now on"),
    Field(
        "e",
        "epoch",
        "bigint",
        "",
        "epoch of the primary that writes, or that is followed; of a fencing token",
    ),
    Field(
        "p",
        "position",
        "bigint",
        "count",
        "sequence in the replication log; first of a range; of a fencing token its number",
    ),
    Field("hi", "position_to", "bigint", "count", "last of the range `p`..`hi`; absent: `p` alone"),
    Field("z", "bytes", "bigint", "bytes", "size"),
    Field("dt", "took_ns", "bigint", "ns", "how long it took"),
    Field("cnt", "count", "bigint", "count", "how many"),
    Field("set", "members", "string", "", "names of brokers, sorted, separated by blanks"),
    Field("err", "error", "string", "", "what went wrong"),
)
FIELD = {field.key: field for field in FIELDS}

ENVELOPE = ("n", "b", "s", "t", "m", "k")
"""What every event has; `segment` lines have `k` only, and fields of their own."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of event."""

    name: str
    code: int
    group: str
    """Partition of the table of events: `op`, `fault`, `state` or `msg`."""
    needs: tuple[str, ...]
    may: tuple[str, ...]
    meaning: str
    words: tuple[str, ...] = ()
    """What `f` may say, where that is closed."""


KINDS = (
    Kind(
        "op",
        1,
        "op",
        ("run", "o", "c", "y", "f", "q"),
        ("w", "u", "d", "fa", "j", "i", "e", "p", "err"),
        "a step of a client's operation",
        tuple(OPERATIONS),
    ),
    Kind(
        "fault",
        2,
        "fault",
        ("run", "o", "y", "f", "x"),
        (),
        "start or stop of a fault of kind `f` at `x`",
    ),
    Kind(
        "role",
        3,
        "state",
        ("r", "e"),
        ("x",),
        "the broker's state changed to `r`, in epoch `e`, because of `x`",
    ),
    Kind(
        "member",
        4,
        "state",
        ("x", "f"),
        ("e",),
        "the broker sees peer `x` come or go",
        ("up", "down"),
    ),
    Kind("epoch", 5, "state", ("e",), ("x",), "the broker promised epoch `e`, to candidate `x`"),
    Kind(
        "insync",
        6,
        "state",
        ("e", "set"),
        ("x",),
        "from now on `set` (names; it holds the primary) must have what is accepted",
    ),
    Kind(
        "promotion",
        7,
        "state",
        ("f",),
        ("e", "x"),
        "a promotion of this broker, and why",
        ("asked", "granted", "refused"),
    ),
    Kind(
        "failover",
        8,
        "state",
        ("f",),
        ("e", "x", "dt"),
        "`detected`: primary `x` of epoch `e` is gone, silent for `dt`; `accepted`: "
        "first acceptance in epoch `e`",
        ("detected", "accepted"),
    ),
    Kind("link", 9, "state", ("x", "f"), ("err",), "replication link to peer `x`", ("up", "down")),
    Kind("conn", 10, "state", ("x", "f"), ("err",), "client connection from `x`", ("up", "down")),
    Kind(
        "queue",
        11,
        "state",
        ("q", "f"),
        ("cnt", "z"),
        "queue created or deleted; `stat`: `cnt` messages of `z` bytes are in it",
        ("created", "deleted", "stat"),
    ),
    Kind(
        "rep",
        12,
        "msg",
        ("x", "e", "p"),
        ("hi", "z", "dt"),
        "the primary: peer `x` has confirmed `p`..`hi`, `dt` after they were sent",
    ),
    Kind(
        "enq",
        13,
        "msg",
        ("q", "e", "p"),
        ("i", "w", "u", "z"),
        "the primary: message `i` got position `p`",
    ),
    Kind(
        "conf",
        14,
        "msg",
        ("e", "p"),
        ("hi", "q", "dt"),
        "the primary tells senders `accepted`, `dt` after the oldest arrived",
    ),
    Kind("dlv", 15, "msg", ("q", "e", "p"), ("i", "d", "x"), "message sent to consumer `x`"),
    Kind(
        "deq",
        16,
        "msg",
        ("q", "e", "p"),
        ("hi", "i", "x"),
        "messages gone from the queue, because of `x`: accepted, expired, ring, rejected, purged, "
        "deleted; with the id if not all brokers have it yet",
    ),
    Kind("limit", 17, "state", ("f", "x"), ("q", "cnt"), "a limit `f` was hit and `x` was done"),
    Kind(
        "drop",
        18,
        "state",
        ("cnt",),
        ("x", "p", "hi"),
        "`cnt` events, with numbers `p`..`hi`, were not written, because of `x`",
    ),
    Kind("error", 19, "state", ("err",), ("x",), "something failed"),
    Kind(
        "federation",
        20,
        "state",
        ("f", "x"),
        ("err",),
        "what became of `x`, a link or a route to another broker or cluster",
        ("made", "changed", "ended", "up", "down", "refused", "stalled", "moving", "rejected"),
    ),
    Kind(
        "replica",
        21,
        "state",
        ("f", "x"),
        ("err",),
        "what became of `x`, a replica of a queue elsewhere",
        ("made", "ended", "following", "lost", "refused", "blocked"),
    ),
)
KIND = {kind.name: kind for kind in KINDS}

SEGMENT_HEAD = (
    ("v", "int", "version of the format"),
    ("n, b", "string", "writer of all events of this segment"),
    ("run", "string", "run, empty in a broker's event log"),
    (
        "host, clock",
        "string",
        "host name; what names the monotonic clock: equal on all that share it",
    ),
    ("first", "bigint", "number of the first event"),
    (
        "clock_error_us",
        "bigint",
        "bound of the error of `t` against UTC while the segment is written, as the "
        "kernel says; 0: not known",
    ),
    ("sampling", "int", "one message in so many was written; 1: all"),
    ("versions, t", "object, bigint", "of Python and the kernel; wall clock in µs"),
)
SEGMENT_TAIL = (
    ("end", "boolean", "true: this is the last line of the segment"),
    ("lines", "bigint", "events in it"),
    ("crc32", "bigint", "CRC-32 of all bytes before this line"),
    (
        "final",
        "boolean",
        "true: the writer ended in good order and no segment of this boot follows",
    ),
)

_PYTHON = {"string": str, "tinyint": int, "int": int, "bigint": int}
_TYPE: dict[str, type] = {field.key: _PYTHON[field.type] for field in FIELDS}
_BOUND = {
    field.key: {"int": INT32, "tinyint": 127}.get(field.type, INT64)
    for field in FIELDS
    if field.type != "string"
}
_NEEDS = {kind.name: (*ENVELOPE, *kind.needs) for kind in KINDS}
_WORDS = {kind.name: frozenset(kind.words) for kind in KINDS}
_STANDS = {"op": frozenset(OUTCOMES), "fault": frozenset(STEPS)}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the kind, the keys and the types of an event's values say about it: the same for most
    lines of a file.
    """

    reason: str
    """Why nothing of this shape is an event, or nothing."""
    bounds: tuple[tuple[str, int], ...] = ()
    """Integer fields and the greatest value of each."""
    unknown: tuple[str, ...] = ()
    """Keys that the format does not have."""


_SHAPES: dict[tuple[object, ...], Shape] = {}
_MOST_SHAPES = 10_000


def shape_of(event: Event) -> Shape:
    """Return the shape of a JSON object; it is computed once for all lines that have it."""
    kind = event.get("k")
    if type(kind) is not str or kind not in KIND:
        return Shape(f"unknown kind {str(kind)[:40]!r}")
    key = (kind, *event, *map(type, event.values()))
    shape = _SHAPES.get(key)
    if shape is None:
        if len(_SHAPES) >= _MOST_SHAPES:
            _SHAPES.clear()
        shape = _SHAPES[key] = _shape(kind, event)
    return shape


def _shape(kind: str, event: Event) -> Shape:
    present = {key: value for key, value in event.items() if value is not None}
    for key, value in present.items():
        expected = _TYPE.get(key)
        if expected is not None and type(value) is not expected:
            return Shape(f"{key} is not {'an integer' if expected is int else 'a string'}")
    for key in _NEEDS[kind]:
        if key not in present:
            return Shape(f"{key} is missing")
    if ("w" in present) is not ("u" in present):
        return Shape("a value needs both w and u")
    bounds = tuple((key, _BOUND[key]) for key in present if key in _BOUND)
    return Shape("", bounds, tuple(key for key in event if key not in _TYPE))


def examine(event: object) -> tuple[str, tuple[str, ...]]:
    """Return why this is no event of the format, or nothing; and its keys that the format does not
    have.
    """
    if not isinstance(event, dict):
        return "not an object", ()
    shape = shape_of(event)
    if shape.reason:
        return shape.reason, ()
    for key, bound in shape.bounds:
        if not -bound - 1 <= event[key] <= bound:
            return f"{key} is out of range", ()
    return _meaningless(event["k"], event), shape.unknown


def _meaningless(kind: str, event: Event) -> str:
    """Return which word of an event means nothing, if one does."""
    words = _WORDS[kind]
    if words and event["f"] not in words:
        return f"{kind} knows no {event['f'][:40]!r}"
    if kind in _STANDS and event["y"] not in _STANDS[kind]:
        return f"{kind} cannot be {event['y'][:40]!r}"
    if kind == "role" and event["r"] not in ROLES:
        return f"unknown role {event['r'][:40]!r}"
    return "s is out of range" if event["s"] < 0 else ""


def documentation() -> str:
    """Return the tables of the format for docs/pipeline.md."""
    return "\n".join(_documentation())


def _documentation() -> Iterator[str]:
    yield f"Format version {FORMAT}. Every event has `{'`, `'.join(ENVELOPE)}`, and by its kind:"
    yield ""
    yield "| Kind | Code | Group | Needs | May have | Meaning |"
    yield "|---|---|---|---|---|---|"
    for kind in KINDS:
        words = f" (`f`: {', '.join(kind.words)})" if kind.words else ""
        yield (
            f"| `{kind.name}` | {kind.code} | {kind.group} | {' '.join(kind.needs)} | "
            f"{' '.join(kind.may)} | {kind.meaning}{words} |"
        )
    yield ""
    yield "| Key | Column | Type | Unit | Meaning |"
    yield "|---|---|---|---|---|"
    for field in FIELDS:
        yield (
            f"| `{field.key}` | `{field.column}` | {field.type} | {field.unit} | {field.meaning} |"
        )
    yield ""
    yield "| Codes of | |"
    yield "|---|---|"
    codes = {
        "operations (`f` of `op`)": OPERATIONS,
        "outcomes (`y` of `op`)": OUTCOMES,
        "steps (`y` of `fault`)": STEPS,
    }
    codes["roles (`r`)"] = ROLES
    for name, table in codes.items():
        yield f"| {name} | {', '.join(f'{word} {code}' for word, code in table.items())} |"
    yield ""
    yield "| First line of a segment | Type | Meaning |"
    yield "|---|---|---|"
    yield from (f"| `{key}` | {type_} | {meaning} |" for key, type_, meaning in SEGMENT_HEAD)
    yield ""
    yield "| Last line of a segment | Type | Meaning |"
    yield "|---|---|---|"
    yield from (f"| `{key}` | {type_} | {meaning} |" for key, type_, meaning in SEGMENT_TAIL)
