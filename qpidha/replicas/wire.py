"""What a replica of a queue and its source say to each other, and how it is written.

The broker with the replica opens the connection and says `Follow`, with what it has as `Held`, and
`Confirm`. The other one answers `Begin` or `Refused`, and then says `Changes`, each as one message.
What happens often is binary, and the changes are records as in a log; all else is JSON. A field
that a reader does not know is left out of account. Knows neither queues nor links.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from qpidha.model.errors import ProtocolViolation

RANGES_AT_ONCE = 4000
"""Ranges of numbers that one message carries."""


@dataclass(slots=True)
class Follow:
    """Send me the queue of this name. If I follow it already, it has this uuid, and I have come to
    `position` of that lineage of your log; what I have of its messages follows.
    """

    queue: str
    uuid: str = ""
    lineage: str = ""
    position: int = 0


@dataclass(slots=True)
class Held:
    """I have the messages in these ranges, `(first, last)` by rising numbers; `is_last` of such."""

    ranges: list[tuple[int, int]]
    is_last: bool


@dataclass(slots=True)
class Begin:
    """The changes of the queue with this uuid follow."""

    uuid: str


@dataclass(slots=True)
class Refused:
    """There are none for you. `kind` says whether that can pass by itself."""

    kind: str
    text: str


GONE = "gone"
"""There is no such queue here."""
REPLACED = "replaced"
"""It is another queue than the one that was followed."""
DIVERGED = "diverged"
"""The log here does not have what the replica has."""
NOT_ALLOWED = "not-allowed"
KINDS = (GONE, REPLACED, DIVERGED, NOT_ALLOWED)


@dataclass(slots=True)
class Changes:
    """Part `number` of what happened on the queue: records, after which the replica is at
    `position` of `lineage`.
    """

    number: int
    lineage: str
    position: int
    is_whole: bool
    """Whether the replica has all that the queue had at that position."""
    behind: int
    """How many changes wait to be sent after these."""
    late: int
    """For how long some have waited, in ns."""
    data: bytes


@dataclass(slots=True)
class Confirm:
    """I have the parts up to this number to stay."""

    number: int


Message = Follow | Held | Begin | Refused | Changes | Confirm

HELD = struct.Struct("<c?I")  # kind, last, how many ranges
CHANGES = struct.Struct(
    "<cQHQ?QQ"
)  # kind, number, length of lineage, position, whole, behind, late
CONFIRM = struct.Struct("<cQ")
JSON_KINDS: dict[str, type] = {kind.__name__: kind for kind in (Follow, Begin, Refused)}
TYPES: dict[str, type] = {"str": str, "int": int}


def encode(message: Message) -> bytes:
    """Write a message."""
    match message:
        case Changes(number, lineage, position, is_whole, behind, late, data):
            name = lineage.encode()
            head = CHANGES.pack(b"D", number, len(name), position, is_whole, behind, late)
            return head + name + data
        case Confirm(number):
            return CONFIRM.pack(b"C", number)
        case Held(ranges, is_last):
            column = array("Q", [number for pair in ranges for number in pair])
            return HELD.pack(b"H", is_last, len(ranges)) + struct.pack(f"<{len(column)}Q", *column)
        case _:
            return b"J" + json.dumps({"say": type(message).__name__, **asdict(message)}).encode()


def decode(data: bytes, start: int = 0) -> Message:
    """Read a message, which begins at `start`; raises ProtocolViolation if it is none."""
    data = data[start:]
    try:
        kind = data[:1]
        if kind == b"D":
            _, number, length, position, is_whole, behind, late = CHANGES.unpack_from(data)
            end = CHANGES.size + length
            lineage = data[CHANGES.size : end].decode()
            return Changes(number, lineage, position, is_whole, behind, late, data[end:])
        if kind == b"C":
            return Confirm(*CONFIRM.unpack(data)[1:])
        if kind == b"H":
            _, is_last, count = HELD.unpack_from(data)
            numbers = struct.unpack(f"<{2 * count}Q", data[HELD.size :])
            return Held(_rising(list(zip(numbers[::2], numbers[1::2], strict=True))), is_last)
        values: dict[str, Any] = json.loads(data[1:])
        said = JSON_KINDS[values.pop("say")]
        types = {field.name: TYPES[str(field.type)] for field in fields(said)}
        values = {name: value for name, value in values.items() if name in types}
        for name, value in values.items():
            if type(value) is not types[name] or (type(value) is int and not 0 <= value < 1 << 63):
                raise ValueError(f"{name} cannot be {str(value)[:40]!r}")
        message: Message = said(**values)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise ProtocolViolation(
            f"not a message of queue replication: {error.__class__.__name__}: {error}",
            hint="run the same version on both brokers",
        ) from error
    return message


def _rising(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges; raise ValueError unless they rise."""
    before = 0
    for first, last in ranges:
        if not before < first <= last < 1 << 63:
            raise ValueError("ranges of numbers that do not rise")
        before = last
    return ranges


def held_of(numbers: Iterable[int]) -> list[Held]:
    """Write rising numbers as ranges, in as many messages as they need."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    parts = [ranges[at : at + RANGES_AT_ONCE] for at in range(0, len(ranges), RANGES_AT_ONCE)] or [
        []
    ]
    return [Held(part, is_last=index == len(parts) - 1) for index, part in enumerate(parts)]
