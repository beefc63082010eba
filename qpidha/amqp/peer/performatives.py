"""Performatives: the fields of AMQP 1.0's frames and of what stands in them, as one table.

Each composite is a row with its fields in order: a type, whether it must be there, whether it may
be an array. `read` takes a performative from a frame and checks it; `USUAL` are patterns of bytes,
made from the same rows, for the frames that come with each message: what fits one is right, what
does not is read in full. Must not know channels, links or the engine.
Source: AMQP 1.0 sections 2.7, 2.8, 3.4, 3.5, 4.5.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from qpidha.amqp.peer.terminus import ACCEPTED, MODIFIED, RECEIVED, REJECTED, RELEASED
from qpidha.amqp.peer.transaction_wire import DECLARED, ERROR, TRANSACTIONAL
from qpidha.model.encoding import Array, Symbol, UByte, UInt, ULong, decode
from qpidha.model.errors import ProtocolViolation

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30
NULL = 0x40
MAX_TAG = 32
"""Bytes of the longest delivery-tag (2.8.7)."""


class MalformedFrame(ProtocolViolation):
    """A performative that does not decode, or not to what its fields must be."""

    condition = "amqp:decode-error"


class Kind(NamedTuple):
    """A type that a field may have."""

    name: str
    widths: dict[int, int] = {}
    """Constructor -> bytes of its values or, if they differ, less than 0: bytes of their size. What
    begins with one of these is right, if it `is_sane`.
    """
    is_sane: Callable[[bytes], bool] = lambda raw: True
    """Whether bytes behind a size are right."""
    takes: Callable[[Any], bool] = lambda value: False
    """Whether any other value, decoded, is right."""
    codes: tuple[int, ...] = ()
    """The composites that it may be."""
    is_open: bool = False
    """Whether described values that are none of the specification's may be some extension's."""
    usual: bytes = b""
    """Pattern of its usual forms."""


@dataclass(slots=True, frozen=True)
class Field:
    """A field of a composite."""

    name: str
    kind: Kind
    is_mandatory: bool = False
    is_multiple: bool = False


# Types of fields. An encoded value is its constructor and then bytes; those of a usual form follow
# from the constructor alone.


def _one_of(kind: type, *values: Any) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind and value in values


def _map_of(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is dict and all(type(key) in kinds for key in value)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def _binary(longest: int) -> bytes:
    """Match a short binary: a pattern cannot count, so each length is a case of its own."""
    cases = [re.escape(bytes([size])) + b".{%d}" % size for size in range(longest + 1)]
    return b"\xa0(?:" + b"|".join(cases) + b")"


STRING = Kind("a string", {0xA1: -1, 0xB1: -4}, _is_text)
SYMBOL = Kind("a symbol", {0xA3: -1, 0xB3: -4}, bytes.isascii)
BINARY = Kind("a binary", {0xA0: -1, 0xB0: -4})
BOOLEAN = Kind(
    "a boolean",
    {0x41: 0, 0x42: 0},
    takes=_one_of(bool, True, False),
    usual=rb"(?:[\x41\x42]|\x56[\x00\x01])",
)
USHORT = Kind("a ushort", {0x60: 2})
UINT = Kind("a uint", {0x43: 0, 0x52: 1, 0x70: 4}, usual=rb"(?:\x70.{4}|\x52.|\x43)")
ULONG = Kind("a ulong", {0x44: 0, 0x53: 1, 0x80: 8})
DELIVERY_TAG = Kind(
    f"a binary of at most {MAX_TAG} bytes",
    BINARY.widths,
    lambda raw: len(raw) <= MAX_TAG,
    usual=_binary(MAX_TAG),
)
SENDER_MODE = Kind("a ubyte of 0 to 2", takes=_one_of(UByte, 0, 1, 2))
RECEIVER_MODE = Kind("a ubyte of 0 or 1", takes=_one_of(UByte, 0, 1), usual=rb"\x50[\x00\x01]")
DURABILITY = Kind("a uint of 0 to 2", takes=_one_of(UInt, 0, 1, 2))
EXPIRY = Kind(
    "one of the symbols link-detach, session-end, connection-close and never",
    takes=_one_of(Symbol, "link-detach", "session-end", "connection-close", "never"),
)
FIELDS = Kind("a map with symbols as keys", takes=_map_of(Symbol))
ANNOTATIONS = Kind("a map with symbols or ulongs as keys", takes=_map_of(Symbol, ULong, str))
"""Strings are no keys, but proton's Python client sends a dictionary as it is."""
UNSETTLED = Kind("a map with delivery-tags as keys", takes=_map_of(bytes))


def _usual_states() -> bytes:
    """Match the states that have a form of their own: outcomes without particulars, and each of
    them in a transaction.
    """
    flag = rb"[\x40-\x42]"
    modified = rb"\x27\xc0(?:\x02\x01" + flag + rb"|\x03\x02" + flag + flag + rb")"
    plain = [rb"\x00\x53[\x24-\x27]\x45", rb"\x00\x53[\x24-\x27]\xc0\x01\x00"]
    cases = [*plain, rb"\x00\x53" + modified]
    for size in range(1, MAX_TAG + 1):
        identifier = rb"\xa0" + re.escape(bytes([size])) + b".{%d}" % size
        cases.append(_listed(identifier, size + 2, 1))
        cases.append(_listed(identifier + plain[0], size + 6, 2))
    return b"(?:" + b"|".join(cases) + b")"


def _listed(fields: bytes, size: int, count: int) -> bytes:
    head = re.escape(bytes([size + 1, count]))
    return rb"\x00\x53\x34\xc0" + head + fields


OUTCOMES = (ACCEPTED, REJECTED, RELEASED, MODIFIED, DECLARED)
OUTCOME = Kind("an outcome", codes=OUTCOMES, is_open=True)
STATE = Kind(
    "a delivery state",
    codes=(*OUTCOMES, RECEIVED, TRANSACTIONAL),
    is_open=True,
    usual=_usual_states(),
)
AN_ERROR = Kind("an error", codes=(ERROR,))
A_SOURCE = Kind("a source", codes=(SOURCE,))
A_TARGET = Kind("a target or coordinator", codes=(TARGET, COORDINATOR))


def _rows(*rows: tuple[Any, ...]) -> tuple[Field, ...]:
    return tuple(
        Field(name, kind, "mandatory" in notes, "multiple" in notes) for name, kind, *notes in rows
    )


COMPOSITES: dict[int, tuple[str, tuple[Field, ...]]] = {
    OPEN: (
        "open",
        _rows(
            ("container-id", STRING, "mandatory"),
            ("hostname", STRING),
            ("max-frame-size", UINT),
            ("channel-max", USHORT),
            ("idle-time-out", UINT),
            ("outgoing-locales", SYMBOL, "multiple"),
            ("incoming-locales", SYMBOL, "multiple"),
            ("offered-capabilities", SYMBOL, "multiple"),
            ("desired-capabilities", SYMBOL, "multiple"),
            ("properties", FIELDS),
        ),
    ),
    BEGIN: (
        "begin",
        _rows(
            ("remote-channel", USHORT),
            ("next-outgoing-id", UINT, "mandatory"),
            ("incoming-window", UINT, "mandatory"),
            ("outgoing-window", UINT, "mandatory"),
            ("handle-max", UINT),
            ("offered-capabilities", SYMBOL, "multiple"),
            ("desired-capabilities", SYMBOL, "multiple"),
            ("properties", FIELDS),
        ),
    ),
    ATTACH: (
        "attach",
        _rows(
            ("name", STRING, "mandatory"),
            ("handle", UINT, "mandatory"),
            ("role", BOOLEAN, "mandatory"),
            ("snd-settle-mode", SENDER_MODE),
            ("rcv-settle-mode", RECEIVER_MODE),
            ("source", A_SOURCE),
            ("target", A_TARGET),
            ("unsettled", UNSETTLED),
            ("incomplete-unsettled", BOOLEAN),
            ("initial-delivery-count", UINT),
            ("max-message-size", ULONG),
            ("offered-capabilities", SYMBOL, "multiple"),
            ("desired-capabilities", SYMBOL, "multiple"),
            ("properties", FIELDS),
        ),
    ),
    FLOW: (
        "flow",
        _rows(
            ("next-incoming-id", UINT),
            ("incoming-window", UINT, "mandatory"),
            ("next-outgoing-id", UINT, "mandatory"),
            ("outgoing-window", UINT, "mandatory"),
            ("handle", UINT),
            ("delivery-count", UINT),
            ("link-credit", UINT),
            ("available", UINT),
            ("drain", BOOLEAN),
            ("echo", BOOLEAN),
            ("properties", FIELDS),
        ),
    ),
    TRANSFER: (
        "transfer",
        _rows(
            ("handle", UINT, "mandatory"),
            ("delivery-id", UINT),
            ("delivery-tag", DELIVERY_TAG),
            ("message-format", UINT),
            ("settled", BOOLEAN),
            ("more", BOOLEAN),
            ("rcv-settle-mode", RECEIVER_MODE),
            ("state", STATE),
            ("resume", BOOLEAN),
            ("aborted", BOOLEAN),
            ("batchable", BOOLEAN),
        ),
    ),
    DISPOSITION: (
        "disposition",
        _rows(
            ("role", BOOLEAN, "mandatory"),
            ("first", UINT, "mandatory"),
            ("last", UINT),
            ("settled", BOOLEAN),
            ("state", STATE),
            ("batchable", BOOLEAN),
        ),
    ),
    DETACH: (
        "detach",
        _rows(("handle", UINT, "mandatory"), ("closed", BOOLEAN), ("error", AN_ERROR)),
    ),
    END: ("end", _rows(("error", AN_ERROR))),
    CLOSE: ("close", _rows(("error", AN_ERROR))),
    ERROR: (
        "error",
        _rows(("condition", SYMBOL, "mandatory"), ("description", STRING), ("info", FIELDS)),
    ),
    RECEIVED: (
        "received",
        _rows(("section-number", UINT, "mandatory"), ("section-offset", ULONG, "mandatory")),
    ),
    ACCEPTED: ("accepted", ()),
    REJECTED: ("rejected", _rows(("error", AN_ERROR))),
    RELEASED: ("released", ()),
    MODIFIED: (
        "modified",
        _rows(
            ("delivery-failed", BOOLEAN),
            ("undeliverable-here", BOOLEAN),
            ("message-annotations", ANNOTATIONS),
        ),
    ),
    SOURCE: (
        "source",
        _rows(
            ("address", STRING),
            ("durable", DURABILITY),
            ("expiry-policy", EXPIRY),
            ("timeout", UINT),
            ("dynamic", BOOLEAN),
            ("dynamic-node-properties", FIELDS),
            ("distribution-mode", SYMBOL),
            ("filter", FIELDS),
            ("default-outcome", OUTCOME),
            ("outcomes", SYMBOL, "multiple"),
            ("capabilities", SYMBOL, "multiple"),
        ),
    ),
    TARGET: (
        "target",
        _rows(
            ("address", STRING),
            ("durable", DURABILITY),
            ("expiry-policy", EXPIRY),
            ("timeout", UINT),
            ("dynamic", BOOLEAN),
            ("dynamic-node-properties", FIELDS),
            ("capabilities", SYMBOL, "multiple"),
        ),
    ),
    COORDINATOR: ("coordinator", _rows(("capabilities", SYMBOL, "multiple"))),
    DECLARED: ("declared", _rows(("txn-id", BINARY, "mandatory"))),
    TRANSACTIONAL: (
        "transactional-state",
        _rows(("txn-id", BINARY, "mandatory"), ("outcome", OUTCOME)),
    ),
}
"""Descriptor -> name and fields."""
_ROWS = {
    code: [(field.kind.widths, field) for field in fields]
    for code, (_, fields) in COMPOSITES.items()
}
_LEAST = {
    code: max((place for place, field in enumerate(fields, 1) if field.is_mandatory), default=0)
    for code, (_, fields) in COMPOSITES.items()
}
"""What `read` needs of each row: where its types begin, and how many fields must be written."""
_CODES = {f"amqp:{name}:list": code for code, (name, _) in COMPOSITES.items()}


def code_at(data: bytes, start: int) -> tuple[int, int]:
    """Tell what composite begins at `start`, 0 if it is none of the specification's, and where
    its fields begin. Raise MalformedFrame if nothing is described there.
    """
    if data[start : start + 2] == b"\x00\x53" and start + 2 < len(data):
        code = data[start + 2]
        return code if code in COMPOSITES else 0, start + 3
    if data[start : start + 1] != b"\x00":
        raise MalformedFrame("what should be described has no descriptor")
    descriptor, end = _decoded(data, start + 1)
    if type(descriptor) is Symbol:
        return _CODES.get(descriptor, 0), end
    is_known = type(descriptor) is ULong and descriptor in COMPOSITES
    return int(descriptor) if is_known else 0, end


def read(data: bytes, start: int, code: int) -> tuple[list[int], int]:
    """Check the list of a composite's fields that begins at `start`: give where each of them is,
    as far as they are written, and the offset after the list. Raise MalformedFrame where it is not
    as its row says.
    """
    name, fields = COMPOSITES[code]
    count, place, end = _list_at(data, start, name)
    if count > len(fields):
        raise MalformedFrame(f"{name} has {count} fields, of which there are {len(fields)}")
    places = []
    for widths, field in _ROWS[code][:count]:
        places.append(place)
        constructor = data[place] if place < end else -1
        if constructor == NULL:
            if field.is_mandatory:
                raise MalformedFrame(f"{name} has no {field.name}, which is mandatory")
            place += 1
            continue
        width = widths.get(constructor)
        if width is None:
            place = _field_end(data, place, name, field)
        elif width >= 0:
            place += 1 + width
        else:
            first = place + 1 - width
            place = first + int.from_bytes(data[place + 1 : first], "big")
            if place > end or not field.kind.is_sane(data[first:place]):
                raise MalformedFrame(f"{name}'s {field.name} is not {field.kind.name}")
    if place != end:
        raise MalformedFrame(f"{name}'s fields do not end where it says")
    if count < _LEAST[code]:
        raise MalformedFrame(f"{name} has no {fields[count].name} and no field after it")
    return places, end


def value(data: bytes, places: list[int], index: int) -> Any:
    """Decode one of the fields that were read, None if it was left out."""
    return decode(data, places[index])[0] if index < len(places) else None


def _list_at(data: bytes, start: int, name: str) -> tuple[int, int, int]:
    """Give the number of values in a list, where they begin and where they end."""
    constructor = data[start] if start < len(data) else -1
    if constructor == 0x45:
        return 0, start + 1, start + 1
    width = {0xC0: 1, 0xD0: 4}.get(constructor)
    if width is None:
        raise MalformedFrame(f"{name} is no list of fields")
    counted, first = start + 1 + width, start + 1 + 2 * width
    end = counted + int.from_bytes(data[start + 1 : counted], "big")
    if not first <= end <= len(data):
        raise MalformedFrame(f"{name} is longer than its frame")
    return int.from_bytes(data[counted:first], "big"), first, end


def _field_end(data: bytes, place: int, name: str, field: Field) -> int:
    """Check a field of which the constructor alone does not tell; give the offset after it."""
    kind = field.kind
    if kind.codes:
        code, fields = code_at(data, place)
        if code in kind.codes:
            return read(data, fields, code)[1]
        if kind.is_open and not code:
            return _decoded(data, place)[1]
    else:
        found, end = _decoded(data, place)
        if kind.takes(found) or (
            field.is_multiple
            and type(found) is Array
            and all(type(item) is Symbol for item in found.items)
        ):
            return end
    raise MalformedFrame(f"{name}'s {field.name} is not {kind.name}")


def _decoded(data: bytes, place: int) -> tuple[Any, int]:
    try:
        return decode(data, place)
    except ProtocolViolation as error:
        raise MalformedFrame(error.text) from None


def _usual(code: int) -> re.Pattern[bytes]:
    """Match fields in their usual forms, from the first on; each is a group, so that the index of
    the last group is their number.
    """
    pattern, may_end = b"", True
    for field in reversed(COMPOSITES[code][1]):
        forms = [field.kind.usual] if field.kind.usual else []
        forms += [] if field.is_mandatory else [rb"\x40"]
        may_end = may_end and not field.is_mandatory
        pattern = b"(" + b"|".join(forms) + b")" + pattern
        if may_end:
            pattern = b"(?:" + pattern + b")?"
    return re.compile(pattern, re.DOTALL)


USUAL = {code: _usual(code) for code in (TRANSFER, DISPOSITION, FLOW)}
"""Performative -> pattern of its fields in the usual forms."""
