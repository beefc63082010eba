"""A reader of encoded messages for the tests, written from AMQP 1.0 part 1 and section 3.2 alone.

What has a size says twice where it ends: by the size, and by its elements. The strict reader
refuses what does not say the same by both; the others believe one of the two, as decoders do that
are in use, and go on with whatever comes next.
"""

from __future__ import annotations

from enum import Enum

WIDTHS = {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}
UNKNOWN = {*range(0x46, 0x50), *range(0x57, 0x60), *range(0x62, 0x70), *range(0x75, 0x80)} | {
    *range(0x85, 0x94), 0x95, 0x96, 0x97, *range(0x99, 0xA0)
}  # fmt: skip
VARIABLE = (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3)
LISTS, MAPS, ARRAYS = (0xC0, 0xD0), (0xC1, 0xD1), (0xE0, 0xF0)
PROPERTIES, DATA, SEQUENCE, VALUE = 0x73, 0x75, 0x76, 0x77
TYPES = {
    **dict.fromkeys((0x70, PROPERTIES, SEQUENCE), (0x45, *LISTS)),
    **dict.fromkeys((0x71, 0x72, 0x74, 0x78), MAPS),
    DATA: (0xA0, 0xB0),
    VALUE: range(256),
}
NAMES = (
    "header:list",
    "delivery-annotations:map",
    "message-annotations:map",
    "properties:list",
    "application-properties:map",
    "data:binary",
    "amqp-sequence:list",
    "amqp-value:*",
    "footer:map",
)
SYMBOLS = {f"amqp:{name}".encode(): 0x70 + place for place, name in enumerate(NAMES)}

Value = tuple[int, object]
"""Format code and content: bytes, or a list of values; that of code 0 is descriptor and value."""


class Malformed(Exception):
    """Not what the specification says."""


class Belief(Enum):
    """What a reader believes."""

    BOTH = "both"
    SIZE = "size"
    ELEMENTS = "elements"


def need(is_right: bool) -> None:
    if not is_right:
        raise Malformed


class Reader:
    """Reads values one after another."""

    def __init__(self, data: bytes, belief: Belief) -> None:
        self.data, self.belief, self.at = data, belief, 0

    def take(self, size: int) -> bytes:
        need(self.at + size <= len(self.data))
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def value(self) -> Value:
        return self.content(self.number(1))

    def content(self, code: int) -> Value:
        """Read what follows a format code."""
        if code == 0:
            return code, [self.value(), self.value()]
        if code >> 4 in WIDTHS:
            need(code not in UNKNOWN)
            return code, self.take(WIDTHS[code >> 4])
        width = 4 if code >> 4 & 1 else 1
        if code in VARIABLE:
            return code, self.take(self.number(width))
        need(code in LISTS + MAPS + ARRAYS)
        size, start = self.number(width), self.at
        count, end = self.number(width), start + size
        items: list[Value] = []
        constructor = self.constructor() if code in ARRAYS else None
        is_empty = constructor is not None and constructor >> 4 == 4
        need(is_empty or count <= len(self.data))
        wanted = 0 if is_empty else count  # Elements without bytes are nowhere.
        by_size = self.belief is Belief.SIZE and not is_empty
        while self.at < end if by_size else len(items) < wanted:
            items.append(self.value() if constructor is None else self.content(constructor))
        need(self.belief is Belief.ELEMENTS or self.at == end)
        need(self.belief is not Belief.BOTH or code not in MAPS or count % 2 == 0)
        return code, items

    def constructor(self) -> int:
        code = self.number(1)
        if code == 0:
            self.value()
            code = self.number(1)
        need(code != 0)
        return code


def sections(data: bytes, belief: Belief = Belief.BOTH) -> list[tuple[int, Value]]:
    """Read a message. The strict reader raises Malformed for whatever is wrong with it; the others
    give what they can read before, in whatever order it comes.
    """
    reader, found = Reader(data, belief), list[tuple[int, Value]]()
    try:
        while reader.at < len(data):
            need(reader.number(1) == 0)
            kind, name = reader.value()
            need(isinstance(name, bytes) and kind in (0x44, 0x53, 0x80, 0xA3, 0xB3))
            assert isinstance(name, bytes)
            code = SYMBOLS.get(name, 0) if kind in (0xA3, 0xB3) else int.from_bytes(name)
            need(code in TYPES)
            value = reader.value()
            if belief is Belief.BOTH:
                last = found[-1][0] if found else 0
                need(code > last or code == last in (DATA, SEQUENCE))
                need(value[0] in TYPES[code])
            found.append((code, value))
    except Malformed:
        if belief is Belief.BOTH:
            raise
    return found


def user_ids(data: bytes, belief: Belief = Belief.BOTH) -> list[object]:
    """Who has sent a message: the second field of each properties section that there is, the bytes
    of a binary, or the value if it is another; a null is as none.
    """
    found = []
    for code, (_, fields) in sections(data, belief):
        if code == PROPERTIES and isinstance(fields, list) and len(fields) > 1:
            kind, content = fields[1]
            if kind != 0x40:
                found.append(content if kind in (0xA0, 0xB0) else fields[1])
    return found
