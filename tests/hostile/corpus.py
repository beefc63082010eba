"""A corpus of malformed and misbehaving connections, made from one seed: the same thousand on every
run.

An attack is its name, the bytes to send in pieces, and how the connection is left. Most damage a
real session at one of its layers; the others break one rule on purpose, with random parameters.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from tests.fidelity.raw_types import (
    NULL,
    binary,
    described,
    list_of,
    make_message,
    make_value,
    map_of,
    small_ulong,
    string,
    symbol,
    uint,
)
from tests.hostile.frames import (
    AMQP_HEADER,
    ATTACH,
    BEGIN,
    CLOSE,
    DISPOSITION,
    FLOW,
    OPEN,
    PAUSES,
    SASL_HEADER,
    SASL_INIT,
    SASL_OUTCOME,
    SASL_RESPONSE,
    TRANSFER,
    TRUE,
    attach_frame,
    begin_frame,
    close_frame,
    detach_frame,
    disposition_frame,
    flow_frame,
    frame,
    handshake,
    message,
    open_frame,
    performative,
    sasl_init,
    session,
    transfer_frame,
)

QUEUE = "sink"
LEAVINGS = ("close", "half-close", "reset", "linger")
ODD_ADDRESSES = (
    "",
    "$management",
    "/management",
    "$qpidha.replication",
    "amq.match/x",
    "/queues/%zz",
    "/queues/",
    "/exchanges/amq.direct/" + "k" * 3000,
    "\x00",
    "\u202e" * 50,
    "no such queue",
    "a/b/c/d",
    "//",
    "%",
    "q" * 20_000,
    "amq.topic/#.#.#.*.#",
)


@dataclass(slots=True)
class Attack:
    """What to send and how to leave."""

    name: str
    pieces: list[bytes]
    leaving: str

    def __str__(self) -> str:
        sent = b"".join(self.pieces)
        return (
            f"{self.name} ({len(sent)} bytes in {len(self.pieces)} pieces, then "
            f"{self.leaving}): {sent[:400].hex()}"
        )


Maker = Callable[[Random], bytes | list[bytes]]


# Damage done to a real session.


def in_turns(layers: list[bytes] | list[bytearray]) -> list[bytes]:
    """Group the layers of a session into what is sent before each answer."""
    starts = [0, *PAUSES, len(layers)]
    return [b"".join(layers[a:b]) for a, b in zip(starts, starts[1:], strict=False) if a < b]


def random_bytes(random: Random) -> bytes:
    return random.randbytes(random.choice((1, 7, 8, 9, 100, 4096, 100_000)))


def random_after_header(random: Random) -> bytes:
    start = random.choice(
        (SASL_HEADER, AMQP_HEADER, SASL_HEADER + sasl_init() + AMQP_HEADER, handshake())
    )
    return start + random.randbytes(random.choice((1, 8, 64, 5000)))


def wrong_header(random: Random) -> list[bytes]:
    head = bytearray(random.choice((SASL_HEADER, AMQP_HEADER)))
    head[random.randrange(8)] ^= 1 << random.randrange(8)
    return in_turns([bytes(head), *(part for _, part in session(QUEUE)[1:])])


def truncated(random: Random) -> list[bytes]:
    layers = [part for _, part in session(QUEUE)]
    chosen = random.randrange(len(layers))
    part = layers[chosen]
    return in_turns(
        [*layers[:chosen], part[: random.randrange(len(part))], *[b""] * (len(layers) - chosen - 1)]
    )


def _damaged(random: Random, damage: Callable[[bytearray], None]) -> list[bytes]:
    """Damage one layer and send everything."""
    layers = [bytearray(part) for _, part in session(QUEUE)]
    damage(layers[random.randrange(len(layers))])
    return in_turns(layers)


def bits_flipped(random: Random) -> list[bytes]:
    def flip(part: bytearray) -> None:
        for _ in range(random.choice((1, 1, 1, 2, 8))):
            part[random.randrange(len(part))] ^= 1 << random.randrange(8)

    return _damaged(random, flip)


def bytes_replaced(random: Random) -> list[bytes]:
    def replace(part: bytearray) -> None:
        start = random.randrange(len(part))
        part[start : start + random.randrange(8)] = random.randbytes(random.randrange(8))

    return _damaged(random, replace)


def value_replaced(random: Random) -> bytes:
    """A field becomes a value of another type, within right sizes."""
    code = random.choice((OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, CLOSE))
    fields = [make_value(random, 3) for _ in range(random.randrange(14))]
    start = SASL_HEADER + sasl_init() + AMQP_HEADER
    if code != OPEN:
        start += open_frame() + begin_frame()
    if code in (FLOW, TRANSFER, DISPOSITION):
        start += attach_frame("a", 0, string(QUEUE)) + attach_frame(
            "b", 1, string(QUEUE), receiver=True
        )
    return start + performative(code, *fields, payload=random.randbytes(random.randrange(50)))


def frames_shuffled(random: Random) -> list[bytes]:
    layers = [part for _, part in session(QUEUE)]
    kept = layers[: random.choice((0, 3, 4))]
    rest = layers[len(kept) :]
    random.shuffle(rest)
    return in_turns(kept + rest)


def frame_dropped_or_doubled(random: Random) -> list[bytes]:
    layers = [part for _, part in session(QUEUE)]
    chosen = random.randrange(len(layers))
    layers[chosen] *= random.choice((0, 2, 3))
    return in_turns(layers)


def frame_header_changed(random: Random) -> list[bytes]:
    """A size, data offset, type or channel that is not true."""
    layers = [bytearray(part) for _, part in session(QUEUE)]
    part = random.choice([part for part in layers if not part.startswith(b"AMQP")])
    field = random.randrange(4)
    if field == 0:
        size = random.choice(
            (
                0,
                1,
                7,
                8,
                9,
                len(part) - 1,
                len(part) + 1,
                511,
                65537,
                2**24,
                2**31 - 1,
                2**31,
                2**32 - 1,
            )
        )
        struct.pack_into(">I", part, 0, size)
    elif field == 1:
        part[4] = random.choice((0, 1, 3, 63, 255))
    elif field == 2:
        part[5] = random.choice((1, 2, 128, 255))
    else:
        struct.pack_into(">H", part, 6, random.choice((1, 32, 255, 256, 32767, 65535)))
    return in_turns(layers)


# One rule broken on purpose.


def sasl_garbage(random: Random) -> bytes:
    plain = b"\x00".join((b"", b"user", random.randbytes(20)))
    return SASL_HEADER + random.choice(
        (
            sasl_init("NO-SUCH-MECHANISM"),
            sasl_init("PLAIN", plain),
            sasl_init("PLAIN", b"\x00" * 200),
            sasl_init("PLAIN", b""),
            sasl_init("SCRAM-SHA-256", b"n,,n=user,r=" + b"x" * 5000),
            sasl_init("SCRAM-SHA-256", random.randbytes(100)),
            sasl_init("EXTERNAL", b"root"),
            sasl_init("X" * random.choice((300, 5000, 60_000))),
            sasl_init("", b""),
            sasl_init() * 3 + AMQP_HEADER + open_frame(),
            performative(SASL_RESPONSE, binary(b"early"), kind=1),
            performative(SASL_OUTCOME, b"\x50\x00", kind=1) + AMQP_HEADER + open_frame(),
            performative(SASL_INIT, kind=1),
            performative(SASL_INIT, uint(1), string("no binary"), kind=1),
            performative(SASL_INIT, symbol("ANONYMOUS"), binary(b"x" * 400), kind=0),
            frame(described(small_ulong(SASL_INIT), binary(random.randbytes(10))), kind=1),
            frame(b"", kind=1) * 100,
            frame(random.randbytes(600), kind=1),
            frame(b"", kind=1, size=2**31),
            sasl_init() + SASL_HEADER + sasl_init(),
            sasl_init() + open_frame(),
            b"\x00" * 1000,
        )
    )


def wrong_order(random: Random) -> bytes:
    start = SASL_HEADER + sasl_init() + AMQP_HEADER
    opened = start + open_frame()
    begun = opened + begin_frame()
    return random.choice(
        (
            start + begin_frame(),
            start + attach_frame("a", 0, string(QUEUE)),
            start + close_frame() + close_frame(),
            start + transfer_frame(0, 0, message()),
            opened + open_frame() + open_frame("another"),
            opened + attach_frame("a", 0, string(QUEUE)),
            opened + close_frame() + begin_frame() + attach_frame("a", 0, string(QUEUE)),
            begun + begin_frame(),
            begun + transfer_frame(0, 0, message()),
            begun + flow_frame(7, 10),
            begun + detach_frame(3),
            begun
            + attach_frame("a", 0, string(QUEUE))
            + detach_frame(0)
            + transfer_frame(0, 0, message())
            + detach_frame(0),
            begun + attach_frame("a", 0, string(QUEUE)) * 2,
            begun + attach_frame("a", 0, string(QUEUE)) + attach_frame("b", 0, string(QUEUE)),
            begun + attach_frame("a", 0, string(QUEUE)) + attach_frame("a", 1, string(QUEUE)),
            begun
            + attach_frame("a", 0, string(QUEUE), receiver=True)
            + transfer_frame(0, 0, message()),
            begun + attach_frame("a", 0, string(QUEUE)) + flow_frame(0, 1000, drain=TRUE),
            AMQP_HEADER + open_frame() + begin_frame() + SASL_HEADER + sasl_init(),
        )
    )


def out_of_range(random: Random) -> bytes:
    """Channels, handles and identifiers nobody agreed to."""
    big = random.choice((256, 40_000, 2**16, 2**31, 2**32 - 1))
    sender = attach_frame("a", 0, string(QUEUE))
    receiver = attach_frame("b", 1, string(QUEUE), receiver=True) + flow_frame(1, 3)
    return handshake() + random.choice(
        (
            begin_frame(random.choice((32, 100, 256, 65535))),
            attach_frame("a", big, string(QUEUE)),
            attach_frame("a", big, string(QUEUE)) + transfer_frame(big, 0, message()),
            sender + transfer_frame(big, 0, message()),
            sender + transfer_frame(0, big, message()) + transfer_frame(0, 3, message()),
            sender + transfer_frame(0, 0, message()) * 5,
            sender + transfer_frame(0, 0, message(), first=False),
            sender + receiver + disposition_frame(0, 2**32 - 1),
            sender + receiver + disposition_frame(2**32 - 1, 0),
            sender + receiver + disposition_frame(5, 2),
            sender
            + transfer_frame(0, 0, message())
            + receiver
            + disposition_frame(0, 2**31, receiver=False),
            sender
            + transfer_frame(0, 0, message())
            + receiver
            + disposition_frame(0, 0, state=described(small_ulong(0x99), list_of([]))),
            sender
            + transfer_frame(0, 0, message())
            + receiver
            + disposition_frame(0, 0, state=string("accepted")),
            receiver
            + flow_frame(1, 2**32 - 1)
            + flow_frame(1, 0)
            + flow_frame(1, 2**31, drain=TRUE),
            receiver + flow_frame(1, 10, window=0) + flow_frame(1, 10, window=2**32 - 1),
            performative(BEGIN, b"\x60\x00\x05", uint(0), uint(1), uint(1), channel=3),
            performative(FLOW, NULL, uint(0), uint(0), uint(0)) * 50,
            performative(random.randrange(0x19, 0x100), string("unknown")),
            frame(described(symbol("amqp:no-such-performative:list"), list_of([]))),
            frame(described(small_ulong(TRANSFER), map_of([string("handle"), uint(0)]))),
            frame(small_ulong(OPEN)),
            frame(b"\x00"),
            frame(b"", channel=9) * 20 + frame(b""),
        )
    )


def nested(depth: int, *, wide: bool) -> bytes:
    value = b"\x45"
    for _ in range(depth):
        value = list_of([value], wide=wide)
    return value


def deep_types(random: Random) -> bytes:
    """Nesting without end, and arrays that promise more than they hold."""
    start = SASL_HEADER + sasl_init() + AMQP_HEADER
    deep = random.choice(
        (
            nested(60, wide=False),
            nested(1500, wide=True),
            nested(6000, wide=True),
            b"\x00" * 3000 + NULL,
        )
    )
    count = random.choice((2**16, 2**31 - 1, 2**32 - 1))
    empty = (
        b"\xf0" + struct.pack(">II", 5, count) + random.choice((b"\x40", b"\x41", b"\x43", b"\x45"))
    )
    lying = b"\xd0" + struct.pack(">II", random.choice((4, 8, 2**32 - 1)), count)
    evil = random.choice(
        (
            deep,
            empty,
            lying,
            b"\xd1" + struct.pack(">II", 4, 3),
            b"\xb0" + struct.pack(">I", 2**32 - 1),
        )
    )
    sender = handshake() + attach_frame("a", 0, string(QUEUE))
    return random.choice(
        (
            start + open_frame(properties=map_of([symbol("evil"), evil])),
            start + open_frame(properties=evil),
            handshake() + attach_frame("a", 0, evil),
            handshake()
            + attach_frame("a", 0, string(QUEUE), properties=map_of([symbol("evil"), evil])),
            sender + transfer_frame(0, 0, described(small_ulong(0x77), evil)),
            sender + transfer_frame(0, 0, described(small_ulong(0x74), evil) + message()),
            sender
            + transfer_frame(
                0, 0, described(small_ulong(0x72), map_of([symbol("x"), evil])) + message()
            ),
            sender + transfer_frame(0, 0, described(small_ulong(0x70), evil) + message()),
            sender
            + transfer_frame(0, 0, described(small_ulong(0x73), list_of([evil])) + message()),
            handshake()
            + attach_frame("b", 1, string(QUEUE), receiver=True)
            + disposition_frame(0, 0, state=evil),
            handshake() + performative(CLOSE, described(small_ulong(0x1D), evil)),
        )
    )


def giant_fields(random: Random) -> bytes:
    start = SASL_HEADER + sasl_init() + AMQP_HEADER
    many = [part for i in range(3000) for part in (symbol(f"k{i}"), string("v"))]
    return random.choice(
        (
            start + open_frame("c" * 60_000),
            start
            + open_frame(
                properties=map_of(
                    [symbol("p"), string("x" * random.choice((60_000, 200_000, 1_000_000)))]
                )
            ),
            start + open_frame(properties=map_of(many)),
            start
            + open_frame(
                "\u20ac" * 10_000,
                max_frame=random.choice((0, 1, 511, 512, 2**32 - 1)),
                channel_max=65535,
            ),
            handshake() + attach_frame("n" * 60_000, 0, string(QUEUE)),
            handshake() + attach_frame("a", 0, string("q" * 60_000)),
            handshake() + attach_frame("a", 0, string(QUEUE), properties=map_of(many)),
            handshake()
            + attach_frame("a", 0, string(QUEUE))
            + transfer_frame(0, 0, b"\x00" * 60_000),
        )
    )


def odd_address(random: Random) -> bytes:
    address = random.choice(
        (
            *(string(text) for text in ODD_ADDRESSES),
            NULL,
            uint(5),
            binary(b"\xff"),
            symbol("s"),
            list_of([]),
            b"\xa1\x02\xff\xfe",
        )
    )
    bodies = [
        message(),
        message("{}"),
        make_message(random, random.randrange(100))[:3000],
        b"",
        random.randbytes(30),
    ]
    is_receiver = random.random() < 0.5
    sent = attach_frame("a", 0, address, receiver=is_receiver)
    sent += (
        flow_frame(0, 100)
        if is_receiver
        else b"".join(transfer_frame(0, i, body) for i, body in enumerate(bodies))
    )
    return handshake() + sent


def broken_messages(random: Random) -> bytes:
    """Frames are right; what they carry is no message, or one that is cut off."""
    good = make_message(random, random.randrange(1000))[:20_000]
    payloads = []
    for number in range(10):
        flipped = bytearray(good)
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        payloads.append(
            random.choice(
                (
                    good[: random.randrange(len(good))],
                    bytes(flipped),
                    random.randbytes(20),
                    b"",
                    good * 2,
                )
            )
        )
        payloads[number] = payloads[number][:30_000]
    target = random.choice(
        (string(QUEUE), NULL, string("amq.match"), string("amq.topic"), string("$management"))
    )
    receive = attach_frame("b", 1, string(QUEUE), receiver=True, copy=True) + flow_frame(1, 100)
    return (
        handshake()
        + attach_frame("a", 0, target)
        + b"".join(transfer_frame(0, i, p) for i, p in enumerate(payloads))
        + receive
    )


def too_many(random: Random) -> bytes:
    """More sessions, links or transfers than allowed; messages too large or never ending."""
    sender = attach_frame("a", 0, string(QUEUE))
    part = random.randbytes(60_000)
    first = transfer_frame(0, 0, part, more=True)
    again = transfer_frame(0, 0, part, more=True, first=False)
    return handshake() + random.choice(
        (
            b"".join(begin_frame(channel) for channel in range(1, 120)),
            b"".join(begin_frame(channel) for channel in range(1, 30)),
            b"".join(
                attach_frame(f"l{i}", i, string(QUEUE), receiver=i % 2 == 0) for i in range(100)
            ),
            b"".join(attach_frame(f"l{i}", 0, string(QUEUE)) + detach_frame(0) for i in range(100)),
            sender + b"".join(transfer_frame(0, i, message(), settled=True) for i in range(3000)),
            sender + b"".join(transfer_frame(0, i, message()) for i in range(300)),
            sender + first + again * 5,
            sender + first + again * 25 + transfer_frame(0, 1, message()),
            sender + first + again * 25 + transfer_frame(0, 0, part, first=False),
            sender
            + first
            + again
            + performative(TRANSFER, uint(0), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, TRUE),
            sender + first + transfer_frame(0, 7, message()),
            sender + first + detach_frame(0),
            sender
            + transfer_frame(0, 0, b"", more=True)
            + transfer_frame(0, 0, b"", more=True, first=False) * 2000,
        )
    )


KINDS: list[tuple[int, Maker]] = [
    (60, random_bytes),
    (60, random_after_header),
    (40, wrong_header),
    (150, truncated),
    (180, bits_flipped),
    (80, bytes_replaced),
    (80, value_replaced),
    (40, frames_shuffled),
    (40, frame_dropped_or_doubled),
    (70, frame_header_changed),
    (40, sasl_garbage),
    (40, wrong_order),
    (50, out_of_range),
    (40, deep_types),
    (20, giant_fields),
    (20, odd_address),
    (30, broken_messages),
    (30, too_many),
]


def corpus(seed: int, count: int) -> Iterator[Attack]:
    """Make `count` attacks; kinds come in a random order with their weights."""
    random = Random(seed)
    makers = [maker for weight, maker in KINDS for _ in range(weight)]
    while len(makers) < count:
        makers += makers
    random.shuffle(makers)
    for maker in makers[:count]:
        made = maker(random)
        pieces = made if isinstance(made, list) else after_login(made)
        whole = b"".join(pieces)
        if random.random() < 0.1:
            pieces = [whole]
        elif len(whole) < 3000 and random.random() < 0.1:
            cuts = sorted(
                random.sample(range(len(whole) + 1), min(len(whole), random.randrange(1, 12)))
            )
            pieces = [
                whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if a < b
            ]
        yield Attack(maker.__name__, [piece for piece in pieces if piece], random.choice(LEAVINGS))


def after_login(data: bytes) -> list[bytes]:
    """Have an attack wait for the broker's answers where a client would: after begin, and after its
    first attach.
    """
    login = handshake()
    if not data.startswith(login):
        return [data]
    first = len(login)
    if data[first + 8 : first + 11] == b"\x00\x53\x12":
        first += struct.unpack_from(">I", data, first)[0]
    return [login, data[len(login) : first], data[first:]]
