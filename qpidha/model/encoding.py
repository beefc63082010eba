"""Encoding: the AMQP 1.0 type system as Python values, to bytes and back.

A type that Python has is itself (None, bool, float, bytes, str, list, dict); a plain int is an AMQP
long. Every other type is a thin subclass, so that what was decoded encodes to the same type again.
Input is never trusted: sizes are checked before they are used, nesting and arrays are bounded, and
whatever is wrong with it is a ProtocolViolation. Must not know messages, frames or performatives.
Source: AMQP 1.0 part 1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from qpidha.model.errors import ProtocolViolation

MAX_DEPTH = 32
"""Nesting that is followed; deeper input is refused, so that a peer cannot exhaust our stack."""
MAX_EMPTY_ITEMS = 256
"""Values that are read beyond one for each byte: elements of arrays may take no bytes, and without
a bound 10 bytes could ask for 4 thousand million objects.
"""
SHORT = 40
"""Characters of a key of a map whose bytes are remembered."""
MAX_SECTIONS = 1 << 16
"""Sections of a message; without a bound 100 MB of the smallest ones took a minute."""
TOO_MANY_SECTIONS = f"the message has more than {MAX_SECTIONS} sections"


Parts = tuple[bytes | memoryview, ...]
"""Bytes that are one behind the other, and need not be put together."""
LARGE = 1 << 13
"""From so many bytes on a part stays by itself: to copy fewer costs less than one part more."""


def gathered(parts: Sequence[bytes | memoryview]) -> Parts:
    """Put small parts that are neighbours together; large ones are not copied."""
    if sum(map(len, parts)) < LARGE or max(map(len, parts)) < LARGE:
        return (b"".join(parts),)
    found: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = []
    for part in parts:
        if len(part) < LARGE:
            small.append(part)
            continue
        if small:
            found.append(b"".join(small))
            small = []
        found.append(part)
    if small:
        found.append(b"".join(small))
    return tuple(found)


class Symbol(str):
    __slots__ = ()  # An ASCII name from a constrained domain.


class Char(str):
    __slots__ = ()  # One Unicode character.


class UByte(int):
    __slots__ = ()  # Unsigned, 8 bits.


class UShort(int):
    __slots__ = ()  # Unsigned, 16 bits.


class UInt(int):
    __slots__ = ()  # Unsigned, 32 bits.


class ULong(int):
    __slots__ = ()  # Unsigned, 64 bits.


class Byte(int):
    __slots__ = ()  # Signed, 8 bits.


class Short(int):
    __slots__ = ()  # Signed, 16 bits.


class Int(int):
    __slots__ = ()  # Signed, 32 bits.


class Timestamp(int):
    __slots__ = ()  # Milliseconds since the Unix epoch.


class Float(float):
    __slots__ = ()  # 32-bit floating point.


@dataclass(slots=True, frozen=True)
class Uuid:
    """A UUID as its 16 bytes."""

    bytes: bytes

    def __str__(self) -> str:
        digits = self.bytes.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


@dataclass(slots=True, frozen=True)
class Decimal:
    """A decimal number of 4, 8 or 16 bytes, which is carried but never calculated with."""

    bytes: bytes


@dataclass(slots=True)
class Described:
    """A value with a descriptor that says what it means. It has no hash and is no key of a map:
    hashes of pairs of numbers are the same everywhere, and who sends keys could choose equal ones.
    """

    descriptor: Any
    value: Any


@dataclass(slots=True)
class Array:
    """Values of one type; `constructor` is the format code of its elements, `descriptor` their
    common one or None.
    """

    constructor: int
    items: list[Any]
    descriptor: Any = None


def decode(buf: bytes, offset: int = 0, left: list[int] | None = None) -> tuple[Any, int]:
    """Read one value; give it and the offset after it. `left` has in it how many values more may be
    inside of it, and is counted down; without it there may be as many as there are bytes, and
    MAX_EMPTY_ITEMS.
    """
    if left is None:
        left = [len(buf) - offset + MAX_EMPTY_ITEMS]
    try:
        return _decode(buf, offset, 0, left)
    except (
        IndexError,
        struct.error,
        UnicodeDecodeError,
        TypeError,
        ValueError,
        OverflowError,
    ) as error:
        raise ProtocolViolation(f"malformed AMQP value at byte {offset}: {error}") from None


def encode(value: Any) -> bytes:
    """Write one value."""
    out = bytearray()
    _encode(out, value)
    return bytes(out)


def skip(buf: bytes, offset: int, count: int = 1) -> int:
    """Give the offset after the value at `offset`, or after so many, without building them."""
    try:
        end = _skip(buf, offset, count)
    except (IndexError, struct.error) as error:
        raise ProtocolViolation(f"malformed AMQP value at byte {offset}: {error}") from None
    if end > len(buf):
        raise ProtocolViolation(
            f"AMQP value at byte {offset} ends {end - len(buf)} bytes after the end of the data"
        )
    return end


SECTION_NAMES = {
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": 0x77,
    "amqp:footer:map": 0x78,
}


def sections(payload: bytes) -> list[tuple[int, int, int, int]]:
    """Split an encoded message: `(code, start, body_start, end)` of each section, code 0x70 header
    to 0x78 footer.
    """
    found: list[tuple[int, int, int, int]] = []
    offset, size, last = 0, len(payload), 0
    while offset < size:
        if payload[offset : offset + 2] == b"\x00\x53" and offset + 2 < size:
            code, body = payload[offset + 2], offset + 3
        else:
            code, body = _section_code(payload, offset)
        # Only the body sections may repeat, and nothing may come before what precedes it in the
        # format.
        if not 0x70 <= code <= 0x78 or code < last or (code == last and code not in (0x75, 0x76)):
            raise ProtocolViolation(
                f"message section {code:#x} at byte {offset} is unknown or out of order"
            )
        if len(found) == MAX_SECTIONS:
            raise ProtocolViolation(TOO_MANY_SECTIONS)
        last = code
        end = skip(payload, body)
        found.append((code, offset, body, end))
        offset = end
    return found


def walk(payload: bytes) -> Iterator[tuple[int, int]]:
    """Yield `(code, body_start)` of each section, in whatever order they come; raise
    ProtocolViolation at the first that cannot be read.
    """
    offset = count = 0
    while offset < len(payload):
        if payload[offset : offset + 2] == b"\x00\x53" and offset + 2 < len(payload):
            code, body = payload[offset + 2], offset + 3
        else:
            code, body = _section_code(payload, offset)
        if not 0x70 <= code <= 0x78:
            raise ProtocolViolation(f"message section {code:#x} at byte {offset} is unknown")
        count += 1
        if count > MAX_SECTIONS:
            raise ProtocolViolation(TOO_MANY_SECTIONS)
        yield code, body
        offset = skip(payload, body)


def _section_code(payload: bytes, offset: int) -> tuple[int, int]:
    """Read a descriptor that is not in its usual three bytes."""
    if payload[offset] != 0:
        raise ProtocolViolation(f"no message section at byte {offset}")
    if payload[offset + 1 : offset + 2] not in _DESCRIPTORS:
        return 0, offset
    descriptor, body = decode(payload, offset + 1)
    if isinstance(descriptor, Symbol):
        return SECTION_NAMES.get(descriptor, 0), body
    return (descriptor if isinstance(descriptor, ULong) else 0), body


def _skip(buf: bytes, offset: int, wanted: int = 1) -> int:
    described = 0
    while wanted:
        code = buf[offset]
        width = _FIXED_WIDTH[code >> 4]
        if width >= 0:
            offset += 1 + width
        elif width == -1:
            offset += 2 + buf[offset + 1]
        elif width == -4:
            offset += 5 + int(_U32.unpack_from(buf, offset + 1)[0])
        elif code:
            raise ProtocolViolation(f"unknown AMQP format code {code:#04x}")
        elif described == MAX_DEPTH:
            raise ProtocolViolation("AMQP value is nested too deep")
        else:  # a descriptor and a value in place of one value
            described += 1
            wanted += 2
            offset += 1
        wanted -= 1
    return offset


_FIXED_WIDTH = [-9, -9, -9, -9, 0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4]
"""Bytes of a value by the upper half of its format code; -1 and -4 a size of that many bytes comes
first, -9 invalid.
"""

_DESCRIPTORS = frozenset((b"\x44", b"\x53", b"\x80", b"\xa3", b"\xb3"))
"""Format codes that the descriptor of a section may have: those of ulongs and symbols."""
_U8, _U16, _U32, _U64 = (struct.Struct(layout) for layout in ("!B", "!H", "!I", "!Q"))
_I8, _I16, _I32, _I64 = (struct.Struct(layout) for layout in ("!b", "!h", "!i", "!q"))
_F32, _F64, _B16 = (struct.Struct(layout) for layout in ("!f", "!d", "16s"))

Reader = Callable[[bytes, int, int, list[int]], tuple[Any, int]]
"""Reads a value at an offset, so deep inside of others, with so many values left."""


def _decode(buf: bytes, offset: int, depth: int, left: list[int]) -> tuple[Any, int]:
    code = buf[offset]
    if code == 0:
        _count(2, depth, left)
        descriptor, offset = _decode(buf, offset + 1, depth + 1, left)
        value, offset = _decode(buf, offset, depth + 1, left)
        return Described(descriptor, value), offset
    reader = _READERS.get(code)
    if reader is None:
        raise ProtocolViolation(f"unknown AMQP format code {code:#04x}")
    return reader(buf, offset + 1, depth, left)


def _count(count: int, depth: int, left: list[int]) -> None:
    """Count the values of a compound one before they are read."""
    left[0] -= count
    if left[0] < 0:
        raise ProtocolViolation(f"AMQP value of {count} elements has too many to be read")
    if depth > MAX_DEPTH:
        raise ProtocolViolation("AMQP value is nested too deep")


def _constant(value: Any) -> Reader:
    def read(buf: bytes, offset: int, depth: int, left: list[int]) -> tuple[Any, int]:
        return value, offset

    return read


def _number(layout: struct.Struct, kind: Callable[[Any], Any]) -> Reader:
    unpack, width = layout.unpack_from, layout.size

    def read(buf: bytes, offset: int, depth: int, left: list[int]) -> tuple[Any, int]:
        return kind(unpack(buf, offset)[0]), offset + width

    return read


def _variable(layout: struct.Struct, kind: Callable[[bytes], Any]) -> Reader:
    unpack, width = layout.unpack_from, layout.size

    def read(buf: bytes, offset: int, depth: int, left: list[int]) -> tuple[Any, int]:
        start = offset + width
        end = start + unpack(buf, offset)[0]
        if end > len(buf):
            raise ProtocolViolation(f"AMQP value at byte {offset} passes the end of the data")
        return kind(bytes(buf[start:end])), end

    return read


def _truth(octet: int) -> bool:
    if octet > 1:
        raise ProtocolViolation(f"{octet:#x} is no boolean")
    return octet == 1


def _compound(layout: struct.Struct, is_map: bool) -> Reader:
    unpack, width = layout.unpack_from, layout.size

    def read(buf: bytes, offset: int, depth: int, left: list[int]) -> tuple[Any, int]:
        size, count = unpack(buf, offset)[0], unpack(buf, offset + width)[0]
        end = offset + width + size
        offset += 2 * width
        if end > len(buf) or end < offset or count > end - offset:
            raise ProtocolViolation(
                f"compound AMQP value with {count} elements in {size} bytes passes its end"
            )
        _count(count, depth, left)
        items = []
        for _ in range(count):
            item, offset = _decode(buf, offset, depth + 1, left)
            items.append(item)
        if offset != end:
            raise ProtocolViolation(f"compound AMQP value ends at byte {offset} but says {end}")
        if not is_map:
            return items, end
        if count % 2:
            raise ProtocolViolation("AMQP map with a key that has no value")
        return dict(zip(items[::2], items[1::2], strict=True)), end

    return read


def _array(layout: struct.Struct) -> Reader:
    unpack, width = layout.unpack_from, layout.size

    def read(buf: bytes, offset: int, depth: int, left: list[int]) -> tuple[Any, int]:
        size, count = unpack(buf, offset)[0], unpack(buf, offset + width)[0]
        end = offset + width + size
        offset += 2 * width
        if end > len(buf) or end < offset:
            raise ProtocolViolation(f"AMQP array of {size} bytes passes its end")
        _count(count, depth, left)
        descriptor = None
        if buf[offset] == 0:
            descriptor, offset = _decode(buf, offset + 1, depth + 1, left)
        code = buf[offset]
        offset += 1
        reader = _READERS.get(code)
        if reader is None or (count > end - offset and code >> 4 != 4):
            raise ProtocolViolation(
                f"AMQP array of {count} elements with format code {code:#04x} cannot be read"
            )
        items = []
        for _ in range(count):
            item, offset = reader(buf, offset, depth + 1, left)
            items.append(item)
        if offset != end:
            raise ProtocolViolation(f"AMQP array ends at byte {offset} but says {end}")
        return Array(code, items, descriptor), end

    return read


def _character(point: int) -> Char:
    """Make a character of its number; half of a surrogate pair is none, and is in no text."""
    if 0xD800 <= point <= 0xDFFF:
        raise ValueError(f"{point:#x} is no character")
    return Char(chr(point))


_READERS: dict[int, Reader] = {
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(UInt(0)),
    0x44: _constant(ULong(0)),
    0x45: lambda buf, offset, depth, left: ([], offset),
    0x50: _number(_U8, UByte),
    0x51: _number(_I8, Byte),
    0x52: _number(_U8, UInt),
    0x53: _number(_U8, ULong),
    0x54: _number(_I8, Int),
    0x55: _number(_I8, int),
    0x56: _number(_U8, _truth),
    0x60: _number(_U16, UShort),
    0x61: _number(_I16, Short),
    0x70: _number(_U32, UInt),
    0x71: _number(_I32, Int),
    0x72: _number(_F32, Float),
    0x73: _number(_U32, _character),
    0x74: _number(struct.Struct("4s"), Decimal),
    0x80: _number(_U64, ULong),
    0x81: _number(_I64, int),
    0x82: _number(_F64, float),
    0x83: _number(_I64, Timestamp),
    0x84: _number(struct.Struct("8s"), Decimal),
    0x94: _number(_B16, Decimal),
    0x98: _number(_B16, Uuid),
    0xA0: _variable(_U8, bytes),
    0xA1: _variable(_U8, bytes.decode),
    0xA3: _variable(_U8, lambda raw: Symbol(raw.decode("ascii"))),
    0xB0: _variable(_U32, bytes),
    0xB1: _variable(_U32, bytes.decode),
    0xB3: _variable(_U32, lambda raw: Symbol(raw.decode("ascii"))),
    0xC0: _compound(_U8, False),
    0xC1: _compound(_U8, True),
    0xD0: _compound(_U32, False),
    0xD1: _compound(_U32, True),
    0xE0: _array(_U8),
    0xF0: _array(_U32),
}


def _encode(out: bytearray, value: Any) -> None:
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = next((_WRITERS[kind] for kind in type(value).__mro__ if kind in _WRITERS), None)
        if writer is None:
            raise TypeError(f"{type(value).__name__} has no AMQP type")
    writer(out, value)


def _put_fixed(code: int, layout: struct.Struct) -> Callable[[bytearray, Any], None]:
    def put(out: bytearray, value: Any) -> None:
        out.append(code)
        out += layout.pack(value)

    return put


def _put_unsigned(
    zero: int, small: int, code: int, layout: struct.Struct
) -> Callable[[bytearray, Any], None]:
    def put(out: bytearray, value: Any) -> None:
        if value == 0:
            out.append(zero)
        elif 0 < value < 256:
            out.append(small)
            out.append(value)
        else:
            out.append(code)
            out += layout.pack(value)

    return put


def _put_signed(small: int, code: int, layout: struct.Struct) -> Callable[[bytearray, Any], None]:
    def put(out: bytearray, value: Any) -> None:
        if -128 <= value < 128:
            out.append(small)
            out += _I8.pack(value)
        else:
            out.append(code)
            out += layout.pack(value)

    return put


def _put_variable(small: int, to_bytes: Callable[[Any], bytes]) -> Callable[[bytearray, Any], None]:
    def put(out: bytearray, value: Any) -> None:
        raw = to_bytes(value)
        if len(raw) < 256:
            out.append(small)
            out.append(len(raw))
        else:
            out.append(small + 0x10)
            out += _U32.pack(len(raw))
        out += raw

    return put


def _put_sized(out: bytearray, small: int, count: int, body: bytearray) -> None:
    if len(body) < 255 and count < 256:
        out.append(small)
        out.append(len(body) + 1)
        out.append(count)
    else:
        out.append(small + 0x10)
        out += _U32.pack(len(body) + 4)
        out += _U32.pack(count)
    out += body


def _put_list(out: bytearray, value: Any) -> None:
    if not value:
        out.append(0x45)
        return
    body = bytearray()
    writers = _WRITERS
    for item in value:
        writers.get(type(item), _encode)(body, item)
    _put_sized(out, 0xC0, len(value), body)


def _put_map(out: bytearray, value: Any) -> None:
    body = bytearray()
    writers = _WRITERS
    for key, item in value.items():
        if type(key) is str and len(key) <= SHORT:
            body += _short_text(key)
        else:
            _encode(body, key)
        writers.get(type(item), _encode)(body, item)
    _put_sized(out, 0xC1, 2 * len(value), body)


@lru_cache(1000)
def _short_text(text: str) -> bytes:
    """Write a string that comes as a key again and again."""
    return encode(text)


def _put_described(out: bytearray, value: Described) -> None:
    out.append(0)
    _encode(out, value.descriptor)
    _encode(out, value.value)


def _put_array(out: bytearray, value: Array) -> None:
    _put_sized(out, 0xE0, len(value.items), _array_body(value))


def _array_body(value: Array) -> bytearray:
    """Write the elements in the widest form of their type, so that one constructor fits all of
    them.
    """
    body = bytearray()
    if value.descriptor is not None:
        body.append(0)
        _encode(body, value.descriptor)
    code = _WIDE.get(value.constructor, value.constructor)
    body.append(code)
    for item in value.items:
        if code in _ELEMENT_LAYOUT:
            body += _ELEMENT_LAYOUT[code].pack(ord(item) if code == 0x73 else item)
        elif code in (0xB0, 0xB1, 0xB3):
            raw = item if isinstance(item, bytes) else item.encode()
            body += _U32.pack(len(raw)) + raw
        elif code in (0xD0, 0xD1, 0xF0):
            _put_wide_compound(body, code, item)
        elif code in (0x74, 0x84, 0x94, 0x98):
            body += item.bytes
    return body


def _put_wide_compound(body: bytearray, code: int, item: Any) -> None:
    inner = bytearray()
    if code == 0xF0:
        count = len(item.items)
        inner = _array_body(item)
    else:
        parts = [part for pair in item.items() for part in pair] if code == 0xD1 else item
        count = len(parts)
        for part in parts:
            _encode(inner, part)
    body += _U32.pack(len(inner) + 4) + _U32.pack(count) + inner


_WIDE = {
    0x41: 0x56,
    0x42: 0x56,
    0x43: 0x70,
    0x52: 0x70,
    0x44: 0x80,
    0x53: 0x80,
    0x54: 0x71,
    0x55: 0x81,
    0xA0: 0xB0,
    0xA1: 0xB1,
    0xA3: 0xB3,
    0x45: 0xD0,
    0xC0: 0xD0,
    0xC1: 0xD1,
    0xE0: 0xF0,
}
_ELEMENT_LAYOUT = {
    0x50: _U8,
    0x51: _I8,
    0x56: _U8,
    0x60: _U16,
    0x61: _I16,
    0x70: _U32,
    0x71: _I32,
    0x72: _F32,
    0x73: _U32,
    0x80: _U64,
    0x81: _I64,
    0x82: _F64,
    0x83: _I64,
}


_WRITERS: dict[type, Callable[[bytearray, Any], None]] = {
    type(None): lambda out, value: out.append(0x40),
    bool: lambda out, value: out.append(0x41 if value else 0x42),
    int: _put_signed(0x55, 0x81, _I64),
    str: _put_variable(0xA1, str.encode),
    bytes: _put_variable(0xA0, bytes),
    Symbol: _put_variable(0xA3, lambda value: value.encode("ascii")),
    float: _put_fixed(0x82, _F64),
    list: _put_list,
    tuple: _put_list,
    dict: _put_map,
    UInt: _put_unsigned(0x43, 0x52, 0x70, _U32),
    ULong: _put_unsigned(0x44, 0x53, 0x80, _U64),
    UByte: _put_fixed(0x50, _U8),
    UShort: _put_fixed(0x60, _U16),
    Byte: _put_fixed(0x51, _I8),
    Short: _put_fixed(0x61, _I16),
    Int: _put_signed(0x54, 0x71, _I32),
    Timestamp: _put_fixed(0x83, _I64),
    Float: _put_fixed(0x72, _F32),
    Char: lambda out, value: out.extend(b"\x73" + _U32.pack(ord(value))),
    Uuid: lambda out, value: out.extend(b"\x98" + value.bytes),
    Decimal: lambda out, value: out.extend(
        bytes([{4: 0x74, 8: 0x84, 16: 0x94}[len(value.bytes)]]) + value.bytes
    ),
    Described: _put_described,
    Array: _put_array,
}
