"""What is done with what the fuzzer makes, and what must be true of it.

A node takes sessions with its isolation off, so that a mistake ends the run with the seed that
found it; a client like any other is served between them. Decoders raise ProtocolViolation for what
they cannot read, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

from qpidha.amqp.peer.sasl import AMQP_HEADER, Users
from qpidha.broker.queues.selector import parse
from qpidha.broker.queues.selector_names import Dialect
from qpidha.ha import wire
from qpidha.management.reply_link import open_envelope
from qpidha.model.encoding import Described, UInt, ULong, decode, sections, skip
from qpidha.model.errors import ProtocolViolation
from qpidha.model.events import (
    BytesReceived,
    ConnectionCongested,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Tick,
)
from qpidha.model.message import Message
from qpidha.model.message_view import (
    Misnamed,
    add_annotation,
    arrival,
    arrival_from,
    body,
    build,
    departure,
    is_durable,
    pick,
    properties,
)
from qpidha.model.records import Bound, Enqueued, EpochStarted, Requeued
from qpidha.model.settings import Settings
from qpidha.model.sizes import check
from qpidha.node import Node
from qpidha.store import codec
from tests.amqp.wire import BEGIN, CLOSE, OPEN, attach, frame, perform
from tests.fidelity.raw_types import make_value
from tests.fuzz.grammar import Grammar

SECOND = 1_000_000_000
TO_VISITORS = attach("s", 0, target=Described(ULong(0x29), ["visitors"]))
SENT = frame(perform(0x14, UInt(0), UInt(0), b"t", UInt(0), False) + build("m"))
RECORDS = (
    codec.encode_enqueues(7, [3, 4], [b"one", b"two"], [0, 9]),
    codec.encode_dequeues(7, [3, 4], 2),
    codec.encode_record(5, Enqueued((7, 8), b"x", 0)),
    codec.encode_record(5, Requeued(7, 3, 2, b"a")),
    codec.encode_record(5, Bound(1, 2, "k", {"a": 1})),
    codec.encode_record(5, EpochStarted("a", ("a", "b"))),
    wire.encode(wire.Ask(nonce=1, epoch=2, candidate="a")),
    wire.encode(wire.Confirm(1, 2, 3)),
    wire.encode(wire.Chunk(1, b"data")),
)
SELECTOR = parse(Dialect.SQL, "a.a = 1 or p.subject like '%a' or h.priority > 4 or m.x is null")
DECODERS: dict[str, Callable[[bytes], object]] = {
    "decode": decode,
    "skip": lambda data: skip(data, 0),
    "sections": sections,
    "body": body,
    "properties": properties,
    "arrival": lambda data: arrival(data, SECOND),
    "departure": lambda data: departure(data, 3, b""),
    "is_durable": is_durable,
    "add_annotation": lambda data: add_annotation(data, b"", "x-opt-b", True),
    "sizes": lambda data: check(data, 0),
    "request": open_envelope,
    "arrival_from": lambda data: arrival_from(frozenset((b"", b"ann")), data, SECOND),
    "picked": lambda data: pick(data, {b"a": 0, b"b": 1}, [None, None]),
    "selected": lambda data: SELECTOR.selects(Message(1, data)),
    "wire": wire.decode,
    "records": lambda data: list(codec.decode(data)),
}


def a_node() -> Node:
    """A broker alone with some queues, which gets over nothing."""
    numbers = count(1)
    node = Node(
        Settings(auth=False, max_message_size=1 << 20),
        system_id="x",
        users=Users.parse(""),
        state=b"",
        address="h:1",
        make_uuid=lambda: f"00000000-0000-0000-0000-{next(numbers) % 9:012x}",
    )
    node.streams.isolate = lambda connection, error: False
    node.start(SECOND)
    broker = node.broker
    for name in ("q", "topic-q"):
        broker.declare_queue(name, arguments={"qpid.max_count": 50, "qpid.policy_type": "ring"})
    broker.declare_queue("visitors")
    broker.bind("amq.topic", "topic-q", "#")
    broker.bind("amq.match", "topic-q", "k", {"x-match": "any", "name": "q", "type": None})
    return node


class Sessions:
    """One node, and the sessions that it lives through."""

    def __init__(self) -> None:
        self.node = a_node()
        self.now = SECOND
        self.count = 0

    def play(self, seed: int) -> None:
        """Let one peer come and go."""
        random = Random(seed)
        node = self.node
        self.count += 1
        number = 2 * self.count
        node.step([ConnectionOpened(number, "h:9", ConnectionKind.CLIENT)], self.now)
        for read in Grammar(random).session():
            self.now += random.choice((1, SECOND // 10, 6 * SECOND))
            events = [BytesReceived(number, read)]
            if random.random() < 0.1:
                events += [Tick(), ConnectionCongested(number, random.random() < 0.5)]  # type: ignore[list-item]
            node.step(events, self.now)
            assert not node.broken
        if random.random() < 0.8:
            node.step([ConnectionLost(number, "gone")], self.now)
        if self.count % 20 == 0:
            self.visit()

    def visit(self) -> None:
        """Serve a client like any other."""
        self.count += 1
        node, number = self.node, 2 * self.count
        queue = node.broker.queues["visitors"]
        before = len(queue.messages)
        node.step([ConnectionOpened(number, "h:9", ConnectionKind.CLIENT)], self.now)
        for data in (AMQP_HEADER + OPEN + BEGIN, TO_VISITORS, SENT, CLOSE):
            node.step([BytesReceived(number, data)], self.now)
        assert len(queue.messages) == before + 1
        node.broker.purge("visitors")


def decode_damaged(seed: int) -> None:
    """Give every decoder a message, a value or a record that is damaged."""
    random = Random(seed)
    grammar = Grammar(random)
    right = random.choice((grammar.message(), make_value(random), random.choice(RECORDS)))
    data = bytearray(right)
    for _ in range(random.choice((0, 1, 1, 2, 5))):
        if data:
            place = random.randrange(len(data))
            data[place] = random.choice((0, 0x40, 0x45, 0x7F, 0x80, 0xFF, random.randrange(256)))
    if random.random() < 0.2:
        del data[random.randrange(len(data) + 1) :]
    for name, read in DECODERS.items():
        try:
            read(bytes(data))
        except (ProtocolViolation, Misnamed):
            pass
        except Exception as error:
            raise AssertionError(f"{name} of {bytes(data)!r}") from error
