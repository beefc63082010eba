"""AMQP values and messages as bytes, generated in every encoding the specification allows, and
sections found again.

Written from AMQP 1.0 part 1 and section 3.2 alone and without the broker's codec, so that the two
check each other. Every function takes the random generator it draws from: one seed, one set of
messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = (
    0x70,
    0x71,
    0x72,
    0x73,
    0x74,
)
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
SECTION_SYMBOLS = {
    HEADER: "amqp:header:list",
    DELIVERY_ANNOTATIONS: "amqp:delivery-annotations:map",
    MESSAGE_ANNOTATIONS: "amqp:message-annotations:map",
    PROPERTIES: "amqp:properties:list",
    APPLICATION_PROPERTIES: "amqp:application-properties:map",
    DATA: "amqp:data:binary",
    SEQUENCE: "amqp:amqp-sequence:list",
    VALUE: "amqp:amqp-value:*",
    FOOTER: "amqp:footer:map",
}
NULL = b"\x40"

# Encoders of one value each.


def variable(code8: int, code32: int, content: bytes, *, wide: bool = False) -> bytes:
    """Binary, string or symbol."""
    if len(content) < 256 and not wide:
        return bytes((code8, len(content))) + content
    return bytes((code32,)) + struct.pack(">I", len(content)) + content


def binary(content: bytes, *, wide: bool = False) -> bytes:
    return variable(0xA0, 0xB0, content, wide=wide)


def string(text: str, *, wide: bool = False) -> bytes:
    return variable(0xA1, 0xB1, text.encode(), wide=wide)


def symbol(text: str, *, wide: bool = False) -> bytes:
    return variable(0xA3, 0xB3, text.encode("ascii"), wide=wide)


def compound(code8: int, code32: int, items: list[bytes], *, wide: bool = False) -> bytes:
    """List or map of encoded items; the count of a map is twice its pairs."""
    content = b"".join(items)
    if len(content) < 255 and len(items) < 256 and not wide:
        return bytes((code8, len(content) + 1, len(items))) + content
    return bytes((code32,)) + struct.pack(">II", len(content) + 4, len(items)) + content


def list_of(items: list[bytes], *, wide: bool = False) -> bytes:
    if not items and not wide:
        return b"\x45"
    return compound(0xC0, 0xD0, items, wide=wide)


def map_of(items: list[bytes], *, wide: bool = False) -> bytes:
    return compound(0xC1, 0xD1, items, wide=wide)


def array_of(constructor: bytes, items: list[bytes], *, wide: bool = False) -> bytes:
    """Array of items whose constructor is given once."""
    content = constructor + b"".join(items)
    if len(content) < 255 and len(items) < 256 and not wide:
        return bytes((0xE0, len(content) + 1, len(items))) + content
    return b"\xf0" + struct.pack(">II", len(content) + 4, len(items)) + content


def described(descriptor: bytes, value: bytes) -> bytes:
    return b"\x00" + descriptor + value


def small_ulong(number: int) -> bytes:
    return bytes((0x53, number))


def uint(number: int) -> bytes:
    return b"\x70" + struct.pack(">I", number)


# Generators: one for each type, together every constructor.

Maker = Callable[[Random], bytes]


def fixed(code: int, width: int) -> Maker:
    """Any content will do for a number, a decimal, a timestamp or a UUID."""
    return lambda random: bytes((code,)) + random.randbytes(width)


def one_of(*makers: Maker) -> Maker:
    return lambda random: random.choice(makers)(random)


def constant(content: bytes) -> Maker:
    return lambda random: content


def some_text(random: Random) -> str:
    alphabet = "abcXYZ 019-_/.\u00e9\u4e2d\u20ac\U0001f407\n\x00"
    return "".join(
        random.choices(
            alphabet, k=random.choice((0, 1, 7, 40, 300) if random.random() < 0.2 else (3, 8, 12))
        )
    )


def some_symbol(random: Random) -> str:
    return "".join(
        random.choices(
            "abcdefghijklmnop-:.0123456789",
            k=random.choice((1, 5, 20, 280) if random.random() < 0.1 else (4, 9)),
        )
    )


def make_binary(random: Random) -> bytes:
    return binary(random.randbytes(random.choice((0, 1, 16, 255, 256))), wide=random.random() < 0.2)


def make_string(random: Random) -> bytes:
    return string(some_text(random), wide=random.random() < 0.2)


def make_symbol(random: Random) -> bytes:
    return symbol(some_symbol(random), wide=random.random() < 0.2)


def make_float(random: Random) -> bytes:
    return b"\x72" + random.choice(
        (
            struct.pack(">f", random.uniform(-1e9, 1e9)),
            b"\x7f\xc0\x00\x01",
            b"\xff\x80\x00\x00",
            b"\x80\x00\x00\x00",
        )
    )


def make_double(random: Random) -> bytes:
    return b"\x82" + random.choice(
        (
            struct.pack(">d", random.uniform(-1e300, 1e300)),
            b"\x7f\xf8" + b"\x00" * 5 + b"\x09",
            b"\x80" + b"\x00" * 7,
        )
    )


def make_char(random: Random) -> bytes:
    return b"\x73" + struct.pack(">I", ord(random.choice("aZ0\u00e9\u4e2d\U0001f407\x00")))


SCALARS: dict[str, Maker] = {
    "null": constant(NULL),
    "boolean": one_of(
        constant(b"\x41"), constant(b"\x42"), constant(b"\x56\x00"), constant(b"\x56\x01")
    ),
    "ubyte": fixed(0x50, 1),
    "ushort": fixed(0x60, 2),
    "uint": one_of(constant(b"\x43"), fixed(0x52, 1), fixed(0x70, 4)),
    "ulong": one_of(constant(b"\x44"), fixed(0x53, 1), fixed(0x80, 8)),
    "byte": fixed(0x51, 1),
    "short": fixed(0x61, 2),
    "int": one_of(fixed(0x54, 1), fixed(0x71, 4)),
    "long": one_of(fixed(0x55, 1), fixed(0x81, 8)),
    "float": make_float,
    "double": make_double,
    "decimal32": fixed(0x74, 4),
    "decimal64": fixed(0x84, 8),
    "decimal128": fixed(0x94, 16),
    "char": make_char,
    "timestamp": fixed(0x83, 8),
    "uuid": fixed(0x98, 16),
    "binary": make_binary,
    "string": make_string,
    "symbol": make_symbol,
}
COMPOUNDS = ("list", "map", "array", "described")
TYPES = (*SCALARS, *COMPOUNDS)
ARRAY_ELEMENTS: dict[int, Maker] = {
    0x40: constant(b""),
    0x41: constant(b""),
    0x42: constant(b""),
    0x43: constant(b""),
    0x44: constant(b""),
    0x45: constant(b""),
    0x50: fixed(0x50, 1),
    0x51: fixed(0x51, 1),
    0x52: fixed(0x52, 1),
    0x53: fixed(0x53, 1),
    0x54: fixed(0x54, 1),
    0x55: fixed(0x55, 1),
    0x56: one_of(constant(b"\x56\x00"), constant(b"\x56\x01")),
    0x60: fixed(0x60, 2),
    0x61: fixed(0x61, 2),
    0x70: fixed(0x70, 4),
    0x71: fixed(0x71, 4),
    0x72: make_float,
    0x73: make_char,
    0x74: fixed(0x74, 4),
    0x80: fixed(0x80, 8),
    0x81: fixed(0x81, 8),
    0x82: make_double,
    0x83: fixed(0x83, 8),
    0x84: fixed(0x84, 8),
    0x94: fixed(0x94, 16),
    0x98: fixed(0x98, 16),
    0xA0: lambda random: binary(random.randbytes(5)),
    0xB0: lambda random: binary(random.randbytes(300), wide=True),
    0xA1: lambda random: string("caf\u00e9"),
    0xB1: lambda random: string(some_text(random), wide=True),
    0xA3: lambda random: symbol("s:1"),
    0xB3: lambda random: symbol(some_symbol(random), wide=True),
    0xC0: lambda random: compound(0xC0, 0xD0, [SCALARS["int"](random), NULL]),
    0xD0: lambda random: compound(0xC0, 0xD0, [SCALARS["long"](random)], wide=True),
    0xC1: lambda random: compound(0xC1, 0xD1, [symbol("k"), SCALARS["uint"](random)]),
    0xD1: lambda random: compound(0xC1, 0xD1, [string("k"), SCALARS["uuid"](random)], wide=True),
    0xE0: lambda random: array_of(b"\x54", [random.randbytes(1) for _ in range(3)]),
    0xF0: lambda random: array_of(b"\xa1", [b"\x01x", b"\x00"], wide=True),
}


def make_array(random: Random) -> bytes:
    """An array of any constructor, described or not, empty or not."""
    code = random.choice(list(ARRAY_ELEMENTS))
    items = [ARRAY_ELEMENTS[code](random) for _ in range(random.choice((0, 1, 2, 5)))]
    # What makes an encoded value is its constructor and its content; zero-width elements have no
    # content.
    content = [item[1:] for item in items]
    constructor = bytes((code,))
    if random.random() < 0.2:
        constructor = (
            b"\x00"
            + random.choice(
                (symbol("example:point:list"), b"\x80" + random.randbytes(8), small_ulong(7))
            )
            + constructor
        )
    return array_of(constructor, content, wide=random.random() < 0.2)


def make_value(random: Random, depth: int = 3, kind: str = "") -> bytes:
    """A value of the kind, or of any kind; compounds are nested at most `depth` deep."""
    kind = kind or random.choice(TYPES if depth else tuple(SCALARS))
    wide = random.random() < 0.2
    if kind == "list":
        return list_of(
            [make_value(random, depth - 1) for _ in range(random.randrange(5))], wide=wide
        )
    if kind == "map":
        items = []
        for number in range(random.randrange(4)):
            key = random.choice(
                (
                    string(f"k{number}"),
                    symbol(f"k{number}"),
                    uint(number),
                    b"\x55" + bytes((number,)),
                )
            )
            items += [key, make_value(random, depth - 1)]
        return map_of(items, wide=wide)
    if kind == "array":
        return make_array(random)
    if kind == "described":
        descriptor = random.choice(
            (
                symbol("example:thing"),
                b"\x80" + random.randbytes(8),
                string("any value may describe"),
                small_ulong(0x42),
            )
        )
        return described(descriptor, make_value(random, depth - 1))
    return SCALARS[kind](random)


# Messages.

MESSAGE_IDS: dict[str, Maker] = {
    "ulong": SCALARS["ulong"],
    "uuid": SCALARS["uuid"],
    "binary": make_binary,
    "string": make_string,
}
BODIES = ("data", "several data", "sequence", "several sequences", "value")


def section(random: Random, code: int, content: bytes) -> bytes:
    """A section; its descriptor is nearly always written in its shortest form."""
    form = random.random()
    if form < 0.02:
        return described(symbol(SECTION_SYMBOLS[code]), content)
    if form < 0.04:
        return described(b"\x80" + struct.pack(">Q", code), content)
    return described(small_ulong(code), content)


def make_header(random: Random) -> bytes:
    """A header of 0 to 5 fields; the times to live are long enough for a slow test."""
    fields = [
        random.choice((b"\x41", b"\x42", NULL)),
        random.choice((b"\x50" + bytes((random.randrange(256),)), NULL)),
        random.choice((uint(random.randrange(3_600_000, 2**32)), NULL, NULL)),
        random.choice((b"\x41", b"\x42", NULL)),
        random.choice((b"\x43", NULL)),
    ]
    return list_of(fields[: random.randrange(6)], wide=random.random() < 0.1)


def make_annotations(random: Random) -> bytes:
    """Annotations: keys are symbols."""
    items = []
    for number in range(random.randrange(4)):
        items += [symbol(f"x-opt-{some_symbol(random)}{number}"), make_value(random, 2)]
    return map_of(items, wide=random.random() < 0.2)


def make_properties(random: Random, message_id: str) -> bytes:
    """Properties of 0 to 13 fields."""
    fields = [
        MESSAGE_IDS[message_id](random),
        random.choice((binary(b"guest"), NULL)),
        random.choice((string("q"), NULL)),
        random.choice((make_string(random), NULL)),
        random.choice((make_string(random), NULL)),
        random.choice((*(maker(random) for maker in MESSAGE_IDS.values()), NULL)),
        random.choice((symbol("text/plain"), NULL)),
        random.choice((symbol("gzip"), NULL)),
        # Absolute expiry in the year 2100, and any time of creation.
        random.choice((b"\x83" + struct.pack(">q", 4_102_444_800_000), NULL, NULL)),
        random.choice((b"\x83" + struct.pack(">q", random.randrange(2**41)), NULL)),
        random.choice((make_string(random), NULL)),
        random.choice((uint(random.randrange(2**32)), b"\x43", b"\x52\x09", NULL)),
        random.choice((make_string(random), NULL)),
    ]
    return list_of(fields[: random.randrange(1, 14)], wide=random.random() < 0.1)


def make_application_properties(random: Random) -> bytes:
    """Application properties: simple values under strings."""
    items = []
    for number in range(random.randrange(6)):
        items += [
            string(f"key {number} {some_text(random)[:20]}"),
            SCALARS[random.choice(list(SCALARS))](random),
        ]
    return map_of(items, wide=random.random() < 0.2)


def make_body(random: Random, body: str, kind: str, size: int) -> bytes:
    """A body of at least `size` bytes."""
    parts = 1 if not body.startswith("several") else random.randrange(2, 5)
    if "data" in body:
        lengths = [size // parts] * parts
        return b"".join(
            section(random, DATA, binary(random.randbytes(length), wide=random.random() < 0.1))
            for length in lengths
        )
    filler = [binary(random.randbytes(size))] if size else []
    if "sequence" in body:
        sequences = [[make_value(random) for _ in range(random.randrange(5))] for _ in range(parts)]
        return b"".join(
            section(random, SEQUENCE, list_of([*items, *filler], wide=random.random() < 0.1))
            for items in sequences
        )
    value = make_value(random, kind=kind)
    return section(random, VALUE, list_of([value, *filler]) if filler else value)


def make_message(random: Random, number: int) -> bytes:
    """Message `number` of a set: types, bodies and identifiers take turns, so that every one occurs
    often.
    """
    kind = TYPES[number % len(TYPES)]
    body = BODIES[number % len(BODIES)]
    size = 0
    if number % 40 == 7:
        size = random.randrange(70_000, 300_000)
    elif number % 5 == 3:
        size = random.choice((1, 200, 255, 256, 1000, 5000, 20_000))
    parts = []
    if random.random() < 0.7:
        parts.append(section(random, HEADER, make_header(random)))
    if random.random() < 0.1:
        parts.append(section(random, DELIVERY_ANNOTATIONS, make_annotations(random)))
    if random.random() < 0.6:
        parts.append(section(random, MESSAGE_ANNOTATIONS, make_annotations(random)))
    if random.random() < 0.8:
        parts.append(
            section(
                random,
                PROPERTIES,
                make_properties(random, list(MESSAGE_IDS)[number % len(MESSAGE_IDS)]),
            )
        )
    if random.random() < 0.6:
        parts.append(section(random, APPLICATION_PROPERTIES, make_application_properties(random)))
    parts.append(make_body(random, body, kind, size))
    if random.random() < 0.4:
        parts.append(section(random, FOOTER, make_annotations(random)))
    return b"".join(parts)


# Sections found again.

_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}


def skip(content: bytes, offset: int) -> int:
    """Give the offset after the value at `offset`."""
    code = content[offset]
    if code == 0:
        return skip(content, skip(content, offset + 1))
    width = _WIDTHS.get(code >> 4)
    if width is not None:
        return offset + 1 + width
    if code >> 4 in (0xA, 0xC, 0xE):
        return offset + 2 + content[offset + 1]
    size: int = struct.unpack_from(">I", content, offset + 1)[0]
    return offset + 5 + size


def walk(content: bytes, offset: int) -> int:
    """Skip a value as `skip` does, and fail if anything inside does not fill the size and count
    around it.
    """
    code = content[offset]
    if code == 0:
        return walk(content, walk(content, offset + 1))
    end = skip(content, offset)
    assert end <= len(content)
    if code >> 4 < 0xC:
        return end
    wide = code in (0xD0, 0xD1, 0xF0)
    count = struct.unpack_from(">I", content, offset + 5)[0] if wide else content[offset + 2]
    inner = offset + (9 if wide else 3)
    assert code not in (0xC1, 0xD1) or count % 2 == 0, "half a pair in a map"
    if code in (0xE0, 0xF0):
        if content[inner] == 0:
            inner = walk(content, inner + 1)
        constructor = content[inner : inner + 1]
        inner += 1
        for _ in range(count):
            # With the constructor put before it, an element is a value.
            inner += walk(constructor + content[inner:end], 0) - 1
    else:
        for _ in range(count):
            inner = walk(content, inner)
    assert inner == end, f"compound 0x{code:02x} of {count} items ends at {inner} and not at {end}"
    return end


_CODES = {described(symbol(name), b""): code for code, name in SECTION_SYMBOLS.items()}
_CODES |= {described(b"\x80" + struct.pack(">Q", code), b""): code for code in SECTION_SYMBOLS}
_CODES |= {described(small_ulong(code), b""): code for code in SECTION_SYMBOLS}


def sections(message: bytes) -> list[tuple[int, bytes]]:
    """Split a message into (section code, its bytes with the descriptor)."""
    found = []
    offset = 0
    while offset < len(message):
        value_start = skip(message, offset + 1)
        end = skip(message, value_start)
        assert end <= len(message), "the message is cut off"
        found.append((_CODES[message[offset:value_start]], message[offset:end]))
        offset = end
    return found


def bare(message: bytes) -> bytes:
    """The bytes that no broker may change, and the footer, which ours does not touch either."""
    return b"".join(content for code, content in sections(message) if code >= PROPERTIES)


def annotations(message: bytes) -> bytes:
    """The bytes of the message-annotations section, or nothing."""
    return b"".join(content for code, content in sections(message) if code == MESSAGE_ANNOTATIONS)
