"""Sizes: whether encoded values are as long as they say.

A list says how many bytes it has and how many elements. Some decoders go by the one, some by the
other, and where the two differ they find different values behind it. What is passed over here is
the same for all of them.
Source: AMQP 1.0 section 1.2.
"""

from __future__ import annotations

import struct

from qpidha.model.encoding import MAX_DEPTH
from qpidha.model.errors import ProtocolViolation

AT_ONCE = 1 << 12
"""How many values are looked at where nothing else is said: what has more is unusual."""


class TooManyValues(ProtocolViolation):
    """More values than may be looked at, or nested deeper. They may be right."""


def check(buf: bytes, offset: int, left: list[int] | None = None) -> int:
    """Give the offset after the value at `offset` without building it. Whatever in it has a size is
    as long as its elements are together. `left` as in `pass_over`.
    """
    try:
        end = pass_over(buf, offset, 1, 0, left)
    except (IndexError, struct.error) as error:
        raise ProtocolViolation(f"malformed AMQP value at byte {offset}: {error}") from None
    if end > len(buf):
        raise ProtocolViolation(f"AMQP value at byte {offset} passes the end of the data")
    return end


def pass_over(
    buf: bytes, offset: int, count: int, depth: int = 0, left: list[int] | None = None
) -> int:
    """Do as `check`, with `count` values. The result may be behind the end of the data, and where
    that has no value IndexError or struct.error is raised. `left` has in it how many values more
    may be looked at, and is counted down; beyond that TooManyValues is raised.
    """
    for _ in range(count):
        code = buf[offset]
        step = _STEPS[code]
        if step > 0:
            offset += step
        elif step < 0:
            offset += 2 + buf[offset + 1]
        else:
            if left is None:
                left = [AT_ONCE]
            offset = _pass_content(buf, offset + 1, code, depth, left)
    return offset


def pass_map(buf: bytes, offset: int) -> int:
    """Do as `pass_over`, with a map that is usually short and flat."""
    kind = buf[offset]
    if kind == 0xC1:
        count, start, end = buf[offset + 2], offset + 3, offset + 2 + buf[offset + 1]
    elif kind == 0xD1:
        size, count = _SIZE_AND_COUNT.unpack_from(buf, offset + 1)
        start, end = offset + 9, offset + 5 + size
    else:
        count = 1
    if count > 255 or count % 2:
        return pass_over(buf, offset, 1)
    return end if pass_over(buf, start, count, 1) == end else -1


def _pass_content(buf: bytes, offset: int, code: int, depth: int, left: list[int]) -> int:
    """Pass over what follows a format code whose values have no width of their own."""
    if code in _WIDE_VARIABLE:
        return offset + 4 + int(_U32.unpack_from(buf, offset)[0])
    if code in _VARIABLE:
        return offset + 1 + buf[offset]
    if code in _LISTS:
        count, start, end = buf[offset + 1], offset + 2, offset + 1 + buf[offset]
    elif code in _WIDE_LISTS:
        size, count = _SIZE_AND_COUNT.unpack_from(buf, offset)
        start, end = offset + 8, offset + 4 + size
    elif code == 0:
        count, start, end = 2, offset, -1
    else:
        raise ProtocolViolation(f"unknown AMQP format code {code:#04x}")
    is_array = code in _ARRAYS
    if count % 2 and code in _MAPS:
        raise ProtocolViolation("AMQP map with a key that has no value")
    left[0] -= 4 if is_array else count + 4
    if not is_array and count > len(buf) - start:
        raise ProtocolViolation(f"AMQP value with {count} elements ends before them")
    if left[0] < 0 or depth > MAX_DEPTH:
        raise TooManyValues(f"AMQP value with {count} elements is too large or nested too deep")
    found = (_pass_elements if is_array else pass_over)(buf, start, count, depth + 1, left)
    if found != end and code:
        raise ProtocolViolation(f"compound AMQP value ends at byte {found} but says {end}")
    return found


def _pass_elements(buf: bytes, offset: int, count: int, depth: int, left: list[int]) -> int:
    """Pass over the constructor of an array, and its elements."""
    if buf[offset] == 0:
        offset = pass_over(buf, offset + 1, 1, depth, left)
    code = buf[offset]
    offset += 1
    step = _STEPS[code]
    if code == 0:
        raise ProtocolViolation("AMQP array of described values that have each a descriptor")
    if step > 0:
        return offset + count * (step - 1)
    if count > len(buf) - offset:
        raise ProtocolViolation(f"AMQP array with {count} elements ends before them")
    left[0] -= count
    if left[0] < 0:
        raise TooManyValues(f"AMQP array with {count} elements is too large")
    for _ in range(count):
        offset = _pass_content(buf, offset, code, depth, left)
    return offset


_VARIABLE, _WIDE_VARIABLE = b"\xa0\xa1\xa3", b"\xb0\xb1\xb3"
_LISTS, _WIDE_LISTS = b"\xc0\xc1\xe0", b"\xd0\xd1\xf0"
_MAPS, _ARRAYS = b"\xc1\xd1", b"\xe0\xf0"
_FIXED = {
    1: b"\x40\x41\x42\x43\x44\x45",
    2: b"\x50\x51\x52\x53\x54\x55\x56",
    3: b"\x60\x61",
    5: b"\x70\x71\x72\x73\x74",
    9: b"\x80\x81\x82\x83\x84",
    17: b"\x94\x98",
}
_WIDTHS = {code: width for width, codes in _FIXED.items() for code in codes}
_STEPS = tuple(_WIDTHS.get(code, -1 if code in _VARIABLE else 0) for code in range(256))
"""Format code -> bytes of a value and its code; -1 if it begins with a size of one byte, 0 if it
takes a closer look.
"""
_U32, _SIZE_AND_COUNT = struct.Struct(">I"), struct.Struct(">II")
