"""What brokers say to each other, and how it is written.

Each broker opens one connection to every other and asks; the one that accepted it answers. The
opener says `Ask`, `Subscribe`, `Confirm` and `TakeOver`; the acceptor says `Status`, `Answer`,
`TakenOver`, `Begin`, batches, snapshot chunks and `Committed`. Batches, confirmations and chunks
are binary, all else is JSON. Messages on one connection arrive in order or not at all.

Brokers of several versions speak to each other (docs/internals/versions.md). So what is written has
the names of the first version that is supported, whatever the code calls it today; a field that
came later (LATER) is written only where it says something else than its absence; a field that a
reader does not know is left out of account; a message of an unknown kind is ignored if it says
`"ignorable": true`, and else refused by its name. A message, or a value that is not the absence's,
that an older broker must understand belongs to a feature.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from qpidha.model.broker_states import BrokerStatus
from qpidha.model.errors import ProtocolViolation
from qpidha.model.records import Batch

if TYPE_CHECKING:
    from qpidha.model.encoding import Parts

History = list[tuple[int, int]]


@dataclass(slots=True)
class Status:
    """How the speaker is: sent when a link is made and at every change."""

    system_id: str
    name: str
    address: str
    state: str
    epoch: int
    promised: int
    sequence: int
    in_sync_epoch: int
    in_sync_version: int
    in_sync_members: tuple[str, ...]
    is_complete: bool
    """Whether, since it started, it has everything that it confirmed or accepted as a member of the
    in-sync set.
    """
    recorder: str = "brokers"
    """Its ha-recorder: who records in-sync sets."""
    is_short: bool = False
    """Whether its disk is so nearly full that senders should wait."""
    is_low: bool = False
    """Whether its disk has too little space left to take more."""
    is_reserved: bool = False
    """Whether that is so for what is sent only: dead letters have the space that is left."""
    replicate: str = ""
    """Its ha-replicate; empty if it does not say."""
    is_new: bool = False
    """Whether it may have forgotten what it promised, and does not vote."""
    founders: tuple[str, ...] = ()
    """Others that were new when it was, as long as it knows of no set."""


@dataclass(slots=True)
class Ask:
    """Answer with your status. If `epoch` is not 0, promise it to `candidate`; or, with a
    `version`, record its in-sync set.
    """

    nonce: int = 0
    epoch: int = 0
    candidate: str = ""
    version: int = 0
    members: tuple[str, ...] = ()
    recorder: str = "brokers"
    """The `ha-recorder` of the broker that asks; one with another promises and records nothing."""


@dataclass(slots=True)
class Answer:
    """The reply to an Ask; `reason` says why a promise was refused."""

    nonce: int
    granted: bool
    reason: str = ""


@dataclass(slots=True)
class TakeOver:
    """Become primary in my place: I was it until `(epoch, sequence)`, which you have, and have
    stepped down.
    """

    nonce: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class TakenOver:
    """The reply to a TakeOver: the epoch of the new primary, or 0 and why it is not."""

    nonce: int
    epoch: int
    reason: str = ""


@dataclass(slots=True)
class Subscribe:
    """Send me the log. I have it up to `(epoch, sequence)` and have applied it up to
    `(applied_epoch, applied)`.
    """

    epoch: int
    sequence: int
    applied_epoch: int
    applied: int


@dataclass(slots=True)
class Begin:
    """The log follows from after `point`; with `snapshot`, chunks of what existed then flow beside
    it.

    `last` is the end of the log now: records up to it are history, not news.
    """

    epoch: int
    point: int
    last: int
    snapshot: bool
    history: History
    in_sync_epoch: int
    in_sync_version: int
    in_sync_members: tuple[str, ...]
    time: int = 0
    """The time by which messages expire, in ns since the Unix epoch; 0 if it is not said."""


@dataclass(slots=True)
class SnapshotEnd:
    """That was the snapshot, the last of its `chunks`; it may show effects of records up to
    `through`.
    """

    chunks: int
    through: int


@dataclass(slots=True)
class Logged:
    """One batch of the log, and how far the log is committed."""

    committed: int
    batch: Batch


@dataclass(slots=True)
class Committed:
    """How far the log is committed, when there is no batch to say it with."""

    sequence: int


@dataclass(slots=True)
class Chunk:
    """A part of a snapshot: encoded records."""

    number: int
    data: bytes


@dataclass(slots=True)
class Confirm:
    """I have the log up to `sequence` in this epoch, and this many chunks."""

    epoch: int
    sequence: int
    chunks: int


Message = (
    Status
    | Ask
    | Answer
    | TakeOver
    | TakenOver
    | Subscribe
    | Begin
    | SnapshotEnd
    | Logged
    | Committed
    | Chunk
    | Confirm
)

LOGGED = struct.Struct("<cQQQQ??")  # kind, committed, epoch, first, last, control, durable
COMMITTED = struct.Struct("<cQ")
CHUNK = struct.Struct("<cI")
CONFIRM = struct.Struct("<cQQI")
JSON_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (Status, Ask, Answer, TakeOver, TakenOver, Subscribe, Begin, SnapshotEnd)
}
LATER: dict[str, object] = {
    "recorder": "brokers",
    "is_short": False,
    "is_low": False,
    "is_reserved": False,
    "replicate": "",
    "is_new": False,
    "founders": (),
    "time": 0,
}
"""Fields that came after the first version, and what their absence says."""
WRITTEN_AS = {"is_complete": "is_live"}
"""Fields whose name on the wire is that of the first version."""
READ_AS = {name: field for field, name in WRITTEN_AS.items()}
FIELDS = {
    kind: frozenset(WRITTEN_AS.get(field.name, field.name) for field in fields(kind))
    for kind in JSON_KINDS.values()
}
"""The names of its fields on the wire."""
IGNORABLE = "ignorable"


@dataclass(slots=True)
class Ignored:
    """A message of a kind that only a later version knows, and that may be left out of account."""

    kind: str


def encode_logged(batch: Batch, committed: int) -> Parts:
    """Write a batch without building a Logged first: this is the hot one. What is in the batch is
    not copied.
    """
    head = LOGGED.pack(
        b"L", committed, batch.epoch, batch.first, batch.last, batch.control, batch.durable
    )
    return (head, *batch.parts)


def encode(message: Message) -> bytes:
    """Write any message."""
    match message:
        case Logged(committed, batch):
            return b"".join(encode_logged(batch, committed))
        case Committed(sequence):
            return COMMITTED.pack(b"S", sequence)
        case Chunk(number, data):
            return CHUNK.pack(b"K", number) + data
        case Confirm(epoch, sequence, chunks):
            return CONFIRM.pack(b"C", epoch, sequence, chunks)
        case _:
            said = {
                WRITTEN_AS.get(name, name): value
                for name, value in asdict(message).items()
                if name not in LATER or LATER[name] != value
            }
            return b"J" + json.dumps({"say": type(message).__name__, **said}).encode()


def decode(data: bytes, start: int = 0) -> Message | Ignored:
    """Read a message, which begins at `start`; raises ProtocolViolation if it is none. A batch is
    not copied out of it.
    """
    try:
        kind = data[start : start + 1]
        if kind == b"L":
            _, committed, epoch, first, last, control, durable = LOGGED.unpack_from(data, start)
            records = memoryview(data)[start + LOGGED.size :]
            return Logged(committed, Batch(epoch, first, last, control, (records,), durable))
        data = data[start:]
        if kind == b"C":
            return Confirm(*CONFIRM.unpack(data)[1:])
        if kind == b"S":
            return Committed(COMMITTED.unpack(data)[1])
        if kind == b"K":
            return Chunk(CHUNK.unpack_from(data)[1], data[CHUNK.size :])
        values = json.loads(data[1:])
        name = values.pop("say")
        kind_of = JSON_KINDS.get(name)
        if kind_of is None:
            if values.get(IGNORABLE) is not True:
                raise ValueError(f"this version knows no message {name!r}")
            return Ignored(str(name))
        known = FIELDS[kind_of]
        message: Message = kind_of(
            **{READ_AS.get(key, key): value for key, value in values.items() if key in known}
        )
        _check(message)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise ProtocolViolation(
            f"not a message of this cluster: {error}; do all brokers run the same version?"
        ) from error
    if isinstance(message, Status | Begin):
        message.in_sync_members = tuple(message.in_sync_members)
    if isinstance(message, Status):
        message.founders = tuple(message.founders)
    if isinstance(message, Ask):
        message.members = tuple(message.members)
    if isinstance(message, Begin):
        message.history = [(epoch, first) for epoch, first in message.history]
    return message


def _check(message: Message) -> None:
    """Raise ValueError for a value that is not what its field is for."""
    for field in fields(message):
        value = getattr(message, field.name)
        if not CHECKS[str(field.type)](value):
            raise ValueError(f"{field.name} cannot be {str(value)[:40]!r}")
    if isinstance(message, Status):
        BrokerStatus(message.state)


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_text(value: object) -> bool:
    # JSON can name half a character, which cannot be written again: encode() raises ValueError for
    # it.
    return isinstance(value, str) and bool(value.encode() or True)


def _is_history(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair)) for pair in value
    )


CHECKS: dict[str, Callable[[object], bool]] = {
    "int": _is_number,
    "str": _is_text,
    "bool": lambda value: isinstance(value, bool),
    "tuple[str, ...]": lambda value: isinstance(value, list | tuple) and all(map(_is_text, value)),
    "History": _is_history,
}
"""By the type of a field."""
