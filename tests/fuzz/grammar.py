"""Sessions by a grammar: whole frames in an order that makes sense, with odd values where a peer
may put any.

What damages bytes does not find what a wrong type inside of a section does, nor what an aborted
delivery of several transfers does; here both are usual. A session is a list of reads.
"""

from __future__ import annotations

from random import Random

from tests.fidelity.raw_types import (
    NULL,
    binary,
    described,
    list_of,
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
    DETACH,
    DISPOSITION,
    END,
    FALSE,
    FLOW,
    SASL_HEADER,
    TRANSFER,
    TRUE,
    open_frame,
    performative,
    sasl_init,
)

QUEUES = ("q", "topic-q", "gone")
ADDRESSES = (*QUEUES, "amq.topic", "amq.topic/a.b", "amq.match", "amq.direct/q", "nowhere", "")
SERVICES = ("$management", "/management")
COORDINATOR, SOURCE, TARGET = 0x30, 0x28, 0x29
DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = 0x31, 0x32, 0x33, 0x34
OUTCOMES = (0x23, 0x24, 0x25, 0x26, 0x27)
OPERATIONS = ("QUERY", "READ", "CREATE", "DELETE", "GET-TYPES", "BIND", "PURGE", "ping", "nosuch")
KINDS = ("queue", "exchange", "binding", "broker", "nosuch")
ODD = (
    b"\x73\x00\x00\xd8\x00",  # half of a surrogate pair
    b"\x73\x00\x11\x00\x00",  # no character at all
    b"\x81" + b"\xff" * 8,
    b"\x55\x80",
    b"\x80" + b"\xff" * 8,
    b"\x70" + b"\xff" * 4,
    b"\xa1\x02\xff\xfe",
    b"\xa3\x02\xc3\xa9",
    b"\x82\x7f\xf8" + bytes(6),
    b"\x45",
    b"\xc1\x01\x00",
    b"\xe0\x02\x00\x40",
    b"\x00\x53\x24\x45",
    b"\x00\x00\x53\x24\x45\x45",
)


RARE = 0.003


class Grammar:
    """One peer that means no good, or knows no better."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.handles: dict[int, bool] = {}
        """Handles in use, and whether the peer receives there."""
        self.deliveries = 0
        self.unfinished: dict[int, int] = {}
        """Handle -> delivery-id of what has begun there."""

    def session(self) -> list[bytes]:
        """Make the reads of one connection."""
        random = self.random
        reads = [SASL_HEADER + sasl_init() if random.random() < 0.3 else b""]
        reads[0] += AMQP_HEADER + open_frame(properties=self.maybe(map_of([]), RARE))
        reads.append(self.begin())
        reads += [self.attach() for _ in range(random.randrange(1, 6))]
        for _ in range(random.randrange(4, 40)):
            reads.append(self.step())
        if random.random() < 0.5:
            reads.append(performative(CLOSE, self.maybe(NULL, 0.2)))
        if random.random() < 0.3:  # As a network cuts it.
            whole = b"".join(reads)
            cuts = sorted(random.randrange(len(whole)) for _ in range(8))
            reads = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        return [read for read in reads if read]

    def step(self) -> bytes:
        """Make what a peer does next."""
        weights = {
            self.attach: 5 if len(self.handles) < 4 else 0.5,
            self.transfer: 12 if False in self.handles.values() else 0,
            self.flow: 3 if self.handles else 0,
            self.disposition: 3,
            self.detach: 0.7 if self.handles else 0,
            self.end: 0.3,
            self.noise: 0.2,
        }
        (what,) = self.random.choices(list(weights), list(weights.values()))
        return what()

    # Values.

    def any(self) -> bytes:
        """Make any value."""
        random = self.random
        return random.choice(ODD) if random.random() < 0.5 else make_value(random)

    def maybe(self, right: bytes, odds: float = 0.02) -> bytes:
        """Give the right value, or now and then any."""
        return self.any() if self.random.random() < odds else right

    def fields(self, *right: bytes) -> list[bytes]:
        """Take fields of a performative, one of which may be odd, or some missing: that ends most
        sessions.
        """
        fields = [self.maybe(field, RARE) for field in right]
        if self.random.random() < RARE:
            del fields[self.random.randrange(len(fields)) :]
        return fields

    def composite(self, code: int, *fields: bytes) -> bytes:
        return described(small_ulong(code), list_of(list(fields)))

    def handle(self, *, receives: bool | None = None) -> int:
        """Choose a link of one direction, or of any."""
        handles = [one for one, role in self.handles.items() if receives in (None, role)]
        return 77 if self.random.random() < RARE else self.random.choice(handles)

    def transaction(self) -> bytes:
        """Make a transaction's id: they count up."""
        return binary(self.random.randrange(1, 9).to_bytes(16, "big"))

    def state(self) -> bytes:
        random = self.random
        error = self.composite(
            0x1D, symbol("amqp:x"), self.maybe(string("why"), 0.2), self.maybe(NULL, 0.2)
        )
        outcome = random.choice(
            (
                self.composite(0x24),
                self.composite(0x26),
                self.composite(0x25, self.maybe(error, 0.2)),
                self.composite(
                    0x27, TRUE, FALSE, self.maybe(map_of([symbol("k"), string("v")]), 0.3)
                ),
                self.composite(0x23, self.maybe(uint(0), 0.3), self.maybe(b"\x44", 0.3)),
            )
        )
        if random.random() < 0.3:
            return self.composite(
                TRANSACTIONAL, self.maybe(self.transaction(), 0.1), self.maybe(outcome)
            )
        return self.maybe(outcome, 0.05)

    # Frames.

    def begin(self) -> bytes:
        self.handles.clear()
        window = self.random.choice((1, 5, 1000, 2**31 - 1))
        return performative(
            BEGIN, *self.fields(NULL, uint(0), uint(window), uint(window), uint(255))
        )

    def attach(self) -> bytes:
        random = self.random
        free = [one for one in range(8) if one not in self.handles]
        handle, receives = random.choice(free or [0]), random.random() < 0.4
        self.handles[handle] = receives
        is_dynamic = random.random() < 0.1
        address = string(random.choice((*ADDRESSES, *SERVICES * 2)))
        there = self.composite(
            SOURCE if receives else TARGET,
            self.maybe(
                NULL if is_dynamic or not receives and random.random() < 0.2 else address, RARE
            ),
            *self.fields(
                random.choice((NULL, uint(0), uint(2))),
                random.choice((NULL, symbol("never"), symbol("link-detach"))),
                NULL,
                TRUE if is_dynamic else FALSE,
                random.choice((NULL, map_of([symbol("lifetime-policy"), self.composite(0x2B)]))),
            ),
            *(
                self.fields(random.choice((NULL, symbol("copy"))), NULL, NULL, NULL, NULL)
                if receives
                else [self.maybe(NULL, RARE)]
            ),
        )
        here = self.composite(
            TARGET if receives else SOURCE, self.maybe(string("here"), RARE), *[NULL] * 3
        )
        if not receives and random.random() < 0.25:
            there = self.composite(COORDINATOR, self.maybe(NULL, RARE))
        mode = random.choice((NULL, b"\x50\x00", b"\x50\x01", b"\x50\x02"))
        modes = [mode, random.choice((NULL, b"\x50\x00", b"\x50\x01"))]
        source, target = (there, here) if receives else (here, there)
        rest = [NULL if receives else uint(0), NULL, NULL, NULL, self.maybe(NULL, RARE)]
        role = TRUE if receives else FALSE
        name = string(f"l{handle}" if random.random() < 0.9 else "same")
        fields = [name, uint(handle), role, *modes, source, target, NULL, NULL, *rest]
        return performative(ATTACH, *self.fields(*fields))

    def message(self) -> bytes:
        """Make a message, or a request, or a control of a transaction."""
        random = self.random
        roll = random.random()
        if roll < 0.25:
            control = random.choice(
                (
                    self.composite(DECLARE, *self.fields(NULL)),
                    self.composite(
                        DISCHARGE, *self.fields(self.transaction(), random.choice((TRUE, FALSE)))
                    ),
                )
            )
            return self.section(0x77, control)
        sections = [
            (0x70, list_of(self.fields(TRUE, b"\x50\x04", uint(5), FALSE, uint(0)))),
            (0x71, map_of([symbol("d"), self.maybe(uint(1))])),
            (0x72, map_of([symbol("x-opt-a"), self.maybe(uint(1), 0.2)])),
            (
                0x73,
                list_of(
                    self.fields(
                        self.maybe(string("id"), 0.2),
                        binary(b"user"),
                        self.maybe(
                            string(random.choice((*ADDRESSES, "/queues/a", "/bindings"))), 0.1
                        ),
                        string(random.choice(("a.b", "PUT", "GET", "POST", "DELETE"))),
                        self.maybe(string(random.choice(("q", "$me", "here"))), 0.1),
                        self.maybe(NULL, 0.3),
                    )
                ),
            ),
            (0x74, self.application()),
        ]
        kept = [one for one in sections if random.random() < 0.5]
        if random.random() < 0.05:
            random.shuffle(kept)
        body = random.choice((0x75, 0x76, 0x77))
        value = {0x75: binary(b"data"), 0x76: list_of([uint(1)]), 0x77: string("v")}[body]
        if random.random() < 0.3:
            value = map_of([string("name"), self.any(), string("durable"), self.maybe(TRUE, 0.3)])
        kept.append((body, self.maybe(value, 0.1)))
        if random.random() < 0.05:
            kept.append(random.choice(kept))
        return b"".join(self.section(code, value) for code, value in kept)

    def application(self) -> bytes:
        random = self.random
        return map_of(
            [
                string("operation"),
                self.maybe(string(random.choice(OPERATIONS)), 0.05),
                string("type"),
                self.maybe(string(random.choice(KINDS)), 0.05),
                string("name"),
                self.maybe(string(random.choice(("new", "q", "a/b"))), 0.1),
                self.maybe(string("k"), 0.05),
                self.maybe(string("v"), 0.2),
            ]
        )

    def section(self, code: int, value: bytes) -> bytes:
        """Make a section; rarely it is that of another."""
        return described(small_ulong(code), self.maybe(value, 0.03))

    def transfer(self) -> bytes:
        """Make a message in one or several transfers, or what comes next of one that has begun."""
        random = self.random
        handle = self.handle(receives=False)
        state = self.state() if random.random() < 0.2 else NULL
        settled = random.choice((FALSE, FALSE, TRUE))
        payload = self.message()
        if handle in self.unfinished:
            number, is_first = self.unfinished[handle], random.random() < 0.3
        else:
            number, is_first = self.deliveries, True
            self.deliveries += 1
        more, aborted = random.random() < 0.3, random.random() < 0.1
        if more and not aborted:
            self.unfinished[handle] = number
        else:
            self.unfinished.pop(handle, None)
        if more or random.random() < 0.2:
            payload = payload[: random.randrange(len(payload) + 1)]
        identity = [uint(number), binary(number.to_bytes(4, "big")), uint(0)]
        flags = [settled, TRUE if more else FALSE, NULL, state, NULL, TRUE if aborted else FALSE]
        fields = [uint(handle), *(identity if is_first else [NULL] * 3), *flags]
        return performative(TRANSFER, *self.fields(*fields), payload=payload)

    def flow(self) -> bytes:
        random = self.random
        numbers = [uint(random.choice((0, 5, 1000, 2**31 - 1))) for _ in range(4)]
        link = [
            uint(self.handle()),
            uint(random.randrange(3)),
            uint(random.choice((0, 1, 10, 2**31))),
            NULL,
            random.choice((NULL, TRUE)),
            random.choice((NULL, TRUE)),
        ]
        return performative(FLOW, *self.fields(*numbers, *(link if random.random() < 0.8 else [])))

    def disposition(self) -> bytes:
        random = self.random
        first = random.randrange(max(self.deliveries, 3))
        last = random.choice((NULL, uint(first), uint(first + 3), uint(2**32 - 1)))
        role, settled = random.choice((TRUE, FALSE)), random.choice((TRUE, FALSE, NULL))
        fields = [role, uint(first), last, settled, self.state(), NULL]
        return performative(DISPOSITION, *self.fields(*fields))

    def detach(self) -> bytes:
        handle = self.handle()
        self.handles.pop(handle, None)
        self.unfinished.pop(handle, None)
        error = self.composite(0x1D, symbol("amqp:x"), string("why"))
        ends = self.random.choice((TRUE, FALSE))
        return performative(
            DETACH, *self.fields(uint(handle), ends, self.random.choice((NULL, error)))
        )

    def end(self) -> bytes:
        self.handles.clear()
        self.unfinished.clear()
        self.deliveries = 0
        return performative(END, self.maybe(NULL, 0.2)) + self.begin()

    def noise(self) -> bytes:
        """Make a frame with any fields."""
        code = self.random.randrange(0x10, 0x19)
        return performative(code, *[self.any() for _ in range(self.random.randrange(8))])
