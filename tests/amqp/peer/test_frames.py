"""The reader of frames: what other engines encode passes in any pieces, and damage is a fault and
nothing worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import proton
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qpidha.amqp.peer.frames import Apart, Fault, FrameReader, Restated
from qpidha.amqp.peer.payload import APART
from qpidha.amqp.peer.performatives import COMPOSITES, code_at, read
from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.amqp.peer.terminus import MODIFIED, RELEASED, Outcome, source, target
from qpidha.amqp.peer.transaction_wire import accepted, enlisted
from qpidha.model.encoding import Described, Symbol, UInt, ULong, decode
from qpidha.model.errors import InvalidArgument, ProtocolViolation
from qpidha.model.message_view import build
from tests.amqp.builders import Pair
from tests.amqp.wire import ATTACH, BEGIN, frame, perform
from tests.amqp.wire import OPEN as OPEN_FRAME

ZERO = UInt(0)


def passed(data: bytes, cuts: Sequence[int] = ()) -> tuple[bytes, Any]:
    """Read what comes in pieces, cut at these places; give what the engine would have, and the
    first fault.
    """
    reader = FrameReader(65536)
    # What comes behind a begin comes when that was answered.
    begin = data.find(b"\x02\x00\x00\x00\x00\x53\x11") - 4
    begun = begin + int.from_bytes(data[begin : begin + 4], "big") if begin >= 0 else 0
    places = sorted({0, len(data), begun, *(cut % (len(data) + 1) for cut in cuts)})
    found = b""
    for first, last in zip(places, places[1:], strict=False):
        piece, start = reader.whole(data[first:last]), 0
        while start < len(piece):
            reader.renew()
            end, following, fault = reader.look(piece, start)
            found += piece[start:end]
            if isinstance(fault, Restated):
                found += fault.words
            if isinstance(fault, Apart):
                words, payload = fault.words, b"".join(fault.parts)
                while words:
                    head = int.from_bytes(words[:4], "big")
                    size = data[len(found) : len(found) + 4]
                    of_frame = int.from_bytes(size, "big") - head
                    found += size + words[4:head] + payload[:of_frame]
                    words, payload = words[head:], payload[of_frame:]
                assert not payload
            if isinstance(fault, Fault):
                return found, fault
            assert start < following <= len(piece) or fault is not None
            start = following
        reader.answered()
    return found, None


class Recorder:
    """A connection of proton's own classes with another, and what each sends."""

    def __init__(self) -> None:
        self.sides = [proton.Connection(), proton.Connection()]
        self.transports = [proton.Transport(), proton.Transport(proton.Transport.SERVER)]
        for connection, transport in zip(self.sides, self.transports, strict=True):
            transport.bind(connection)
        self.sent = [b"", b""]

    def turn(self) -> None:
        quiet = False
        while not quiet:
            quiet = True
            for mine, theirs in ((0, 1), (1, 0)):
                pending = self.transports[mine].pending()
                if pending > 0:
                    data = self.transports[mine].peek(pending)
                    self.transports[mine].pop(len(data))
                    self.sent[mine] += data
                    self._push(self.transports[theirs], data)
                    quiet = False

    @staticmethod
    def _push(transport: Any, data: bytes) -> None:
        while data:
            room = transport.capacity()
            transport.push(data[:room])
            data = data[room:]


def of_proton(tags: list[str], sizes: list[int], settles: list[bool]) -> list[bytes]:
    """What two of proton's engines say to each other in a life with all performatives."""
    wire = Recorder()
    client, server = wire.sides
    client.container = "c"
    client.hostname = "h"
    client.properties = {proton.symbol("product"): "p", proton.symbol("n"): 7}
    client.desired_capabilities = proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, "a", "b")
    server.container = "s"
    session = client.session()
    sender, receiver = session.sender("out"), session.receiver("in")
    sender.target.address = receiver.source.address = "q"
    receiver.source.filter.put_dict(
        {proton.symbol("f"): proton.Described(proton.symbol("x:f:string"), "a > 1")}
    )
    receiver.source.dynamic = True
    sender.source.outcomes.put_object(
        proton.Array(proton.UNDESCRIBED, proton.Data.SYMBOL, "amqp:accepted:list")
    )
    for end in (client, server, session, sender, receiver):
        end.open()
    wire.turn()
    peers = []
    one = server.session_head(0)
    one.open()
    link = server.link_head(0)
    while link is not None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.open()
        peers.append(link)
        link = link.next(0)
    incoming = next(link for link in peers if link.is_receiver)
    incoming.flow(100)
    wire.turn()
    for number, (tag, size, settled) in enumerate(zip(tags, sizes, settles, strict=False)):
        delivery = sender.delivery(f"{number}{tag}"[:32])
        sender.stream(b"\x00\x53\x77\xb0" + size.to_bytes(4, "big") + bytes(size))
        sender.advance()
        if settled:
            delivery.settle()
    wire.turn()
    states = [
        proton.Delivery.ACCEPTED,
        proton.Delivery.REJECTED,
        proton.Delivery.RELEASED,
        proton.Delivery.MODIFIED,
    ]
    while (delivery := incoming.current) is not None:
        incoming.advance()
        state = states[len(wire.sent[1]) % 4]
        if state == proton.Delivery.MODIFIED:
            delivery.local.failed = True
            delivery.local.annotations = {proton.symbol("a"): 1}
        delivery.update(state)
        delivery.settle()
        wire.turn()
    sender.detach()
    receiver.close()
    wire.turn()
    session.close()
    client.condition = proton.Condition("amqp:internal-error", "d", {proton.symbol("i"): 1})
    client.close()
    server.close()
    wire.turn()
    return wire.sent


CUTS = st.lists(st.integers(0, 1 << 20), max_size=12)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.text(alphabet="ab\u00e9", max_size=12), max_size=8),
    st.lists(st.sampled_from([0, 1, 64, 300, 70000]), min_size=8, max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
    CUTS,
)
def test_what_proton_encodes_passes_in_any_pieces(
    tags: list[str], sizes: list[int], settles: list[bool], cuts: list[int]
) -> None:
    for sent in of_proton(tags, sizes, settles):
        assert len(sent) > 100
        assert passed(sent, cuts) == (sent, None)
        assert passed(sent) == (sent, None)


def our_own() -> list[bytes]:
    """What our own client and broker say to each other behind their opens."""
    pair = Pair()
    pair.host.broker.declare_queue("q")
    said = [b"", b""]

    def turn() -> None:
        while True:
            pair.host.broker.dispatch(pair.host.now)
            data = [pair.client.output(), pair.server.output()]
            if not any(data):
                return
            for number, other in enumerate((pair.server, pair.client)):
                said[number] += data[number]
                if data[number]:
                    other.receive(data[number])

    pair.turn = turn  # type: ignore[method-assign]
    link, _ = pair.sender("q", terminus=target("q", properties={"lifetime-policy": "x"}))
    pair.receiver("q", terminus=source("q", filter={Symbol("f"): "g"}), properties={"a": 1})
    for size in (1, 300, 100_000):
        link.send(build(bytes(size)))
        turn()
    pair.client.close()
    turn()
    return [AMQP_HEADER + OPEN_FRAME + one for one in said]


@pytest.mark.parametrize("side", [0, 1])
def test_what_our_own_client_and_broker_say_passes(side: int) -> None:
    sent = our_own()[side]
    for cuts in ([], [*range(0, len(sent), 7)]):
        assert passed(sent, cuts) == (sent, None)


ATTACHED = AMQP_HEADER + OPEN_FRAME + BEGIN + ATTACH
OUTCOMES = [Described(ULong(code), []) for code in range(0x24, 0x28)]
STATES = [
    None,
    *OUTCOMES,
    Described(ULong(0x25), [Described(ULong(0x1D), [Symbol("a"), "b", {Symbol("c"): 1}])]),
    Described(ULong(0x27), [True, None]),
    Described(ULong(0x34), accepted(b"t" * 16)),
    Described(ULong(0x34), enlisted(b"t")),
    Described(ULong(0x34), enlisted(b"t", Outcome(RELEASED))),
    Described(ULong(0x34), enlisted(b"t", Outcome(MODIFIED, failed=True))),
    Described(Symbol("an:extension:list"), []),
]
UINTS = st.sampled_from([0, 1, 255, 256, 2**32 - 1]).map(UInt)
FLAGS = st.sampled_from([None, True, False])


@st.composite
def some_frames(draw: Any) -> bytes:
    """Good frames as other encoders may write them, of which many are alike."""
    frames = []
    transfers = Transfers(draw)
    for _ in range(draw(st.integers(1, 6))):
        state = draw(st.sampled_from(STATES))
        kind = draw(st.integers(0, 3))
        if kind < 2:
            made = transfers.some(state)
        elif kind == 2:
            first = draw(UINTS)
            last = draw(st.sampled_from([None, UInt((first + draw(st.integers(0, 300))) % 2**32)]))
            fields = [draw(FLAGS) or False, first, last, draw(FLAGS), state, None]
            fields = fields[: draw(st.integers(2, 6))]
            if fields[3:4] != [True] and fields[4:5] in ([], [None]):
                # Otherwise it says nothing, and the engine does not have it.
                fields = [*fields[:3], *[None] * (3 - len(fields)), True]
            made = [perform(0x15, *fields)] * draw(st.integers(1, 3))
        else:
            numbers = [draw(UINTS) for _ in range(4)]
            handle = draw(st.sampled_from([None, ZERO]))
            made = [perform(0x13, *numbers, handle, ZERO, draw(UINTS))] * draw(st.integers(1, 3))
        if draw(st.booleans()):
            # The same with four bytes for size and count.
            made = [_long(one) for one in made]
        frames += [frame(one) for one in made]
    return b"".join(frames)


def _long(made: bytes) -> bytes:
    if made[3] != 0xC0:
        return made
    head = (made[4] + 3).to_bytes(4, "big") + made[5].to_bytes(4, "big")
    return made[:3] + b"\xd0" + head + made[6:]


class Transfers:
    """Transfers of one link whose deliveries follow each other."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.following = int(draw(UINTS))
        self.pending: UInt | None = None
        self.is_settled = False

    def some(self, state: Any) -> list[bytes]:
        """Make a few that differ in little."""
        draw = self.draw
        settled, more, aborted = (draw(FLAGS) for _ in range(3))
        tag, count = draw(st.binary(max_size=32)), draw(st.integers(3, 11))
        more, aborted = more if count > 5 else None, aborted if count > 9 else None
        says_id, payload = draw(st.booleans()), draw(st.binary(max_size=9))
        made = []
        for _ in range(draw(st.integers(1, 3))):
            number = self.pending
            if number is None:
                number, self.is_settled = UInt(self.following % 2**32), False
                self.following += 1
            elif not says_id:
                number = None
            told = None if settled is False and self.is_settled else settled
            self.is_settled |= told is True
            fields = [ZERO, number, tag, ZERO, told, more, None, state, None, aborted, None]
            made.append(perform(0x14, *fields[:count]) + payload)
            if more and not aborted:
                self.pending = self.pending if number is None else number
            else:
                self.pending = None
        return made


@settings(max_examples=150, deadline=None)
@given(some_frames(), CUTS)
def test_every_encoding_of_a_right_frame_passes(frames: bytes, cuts: list[int]) -> None:
    assert passed(ATTACHED + frames, cuts) == (ATTACHED + frames, None)


@settings(max_examples=400, deadline=None)
@given(some_frames(), CUTS, st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255))))
def test_damage_is_a_fault_or_harmless(
    frames: bytes, cuts: list[int], damage: list[tuple[int, int]]
) -> None:
    """Whatever passes is right by the table too: neither shapes nor patterns take more than it."""
    damaged = bytearray(frames)
    for place, octet in damage[:3]:
        damaged[place % len(damaged)] = octet
    found, fault = passed(ATTACHED + bytes(damaged), cuts)
    assert fault is None or isinstance(fault.error, ProtocolViolation | InvalidArgument)
    found = found[len(ATTACHED) :]
    while len(found) >= 8:
        size, body = int.from_bytes(found[:4], "big"), 4 * found[4]
        if size > len(found):
            break
        if body < size:
            code, fields = code_at(found, body)
            places, end = read(found, fields, code)
            assert end <= size and len(places) <= len(COMPOSITES[code][1])
            assert decode(found, body)[1] == end
        found = found[size:]


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([b"", AMQP_HEADER, ATTACHED]), CUTS)
def test_any_bytes_are_a_fault_or_harmless(data: bytes, before: bytes, cuts: list[int]) -> None:
    _, fault = passed(before + data, cuts)
    assert fault is None or isinstance(fault.error, ProtocolViolation | InvalidArgument)


def test_frames_of_many_links_in_turn_pass() -> None:
    count = 200
    links = [
        frame(perform(0x12, str(handle), UInt(handle), False, None, None, None, None, None, None))
        for handle in range(count)
    ]
    transfers = [
        frame(perform(0x14, UInt(number % count), UInt(number), b"tag", ZERO, False) + b"x")
        for number in range(20 * count)
    ]
    data = b"".join([AMQP_HEADER, OPEN_FRAME, BEGIN, *links, *transfers])
    assert passed(data) == (data, None)


@pytest.mark.parametrize("first", [0, 200, 1000])
def test_transfers_of_many_links_in_turn_are_known_by_their_shapes(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come again are not looked at field by field, whatever size a handle has."""
    links = [
        frame(perform(0x12, str(handle), UInt(handle), False, None, None, None, None, None, None))
        for handle in range(first, first + 200)
    ]
    turns = [
        b"".join(
            frame(
                perform(
                    0x14, UInt(first + number), UInt(1000 + turn * 200 + number), b"t", ZERO, False
                )
            )
            for number in range(200)
        )
        for turn in range(3)
    ]
    reader, looks = FrameReader(65536), 0
    look_at = FrameReader._frame

    def counted(self: FrameReader, data: bytes, start: int) -> tuple[bool, int]:
        nonlocal looks
        looks += 1
        return look_at(self, data, start)

    monkeypatch.setattr(FrameReader, "_frame", counted)
    for number, data in enumerate([b"".join([AMQP_HEADER, OPEN_FRAME, BEGIN, *links]), *turns]):
        looks = place = 0
        while place < len(data):
            reader.renew()
            reader.answered()
            _, place, fault = reader.look(data, place)
            assert not isinstance(fault, Fault)
        assert number < 2 or looks == 0


@pytest.mark.parametrize("size", [APART - 100, 60_000])
def test_a_payload_in_many_reads_is_never_joined_anew(size: int) -> None:
    """Only the beginning of a frame waits for more: a small payload goes on as it comes, and a
    large one is gathered in few objects, none of which keeps more in memory than it has.
    """
    payload = bytes(range(256)) * (size // 256)
    data = ATTACHED + frame(perform(0x14, ZERO, ZERO, b"t", ZERO, False) + payload)
    reader = FrameReader(65536)
    held, found = 0, []
    for start in range(0, len(data), 100):
        reader.answered()
        piece, place = reader.whole(data[start : start + 100]), 0
        while place < len(piece):
            _, place, fault = reader.look(piece, place)
            found += [fault] if fault is not None else []
        held = max(held, len(reader._held))
    assert held <= len(ATTACH)
    parts = [found[0].parts] if isinstance(found[0] if found else None, Apart) else []
    assert [b"".join(each) for each in parts] == ([payload] if size > APART else [])
    assert all(len(each) == 1 and isinstance(each[0], bytearray) for each in parts)


def test_a_view_keeps_little_more_in_memory_than_it_has() -> None:
    large = frame(perform(0x14, ZERO, ZERO, b"t", ZERO, False) + bytes(2 * APART))
    for others in (0, 20 * APART):
        data = ATTACHED + large + bytes(others)
        reader = FrameReader(65536)
        for piece in (data[: len(ATTACHED)], data[len(ATTACHED) :]):
            place = 0
            fault: Any = None
            while place < len(piece) and not isinstance(fault, Apart):
                _, place, fault = reader.look(piece, place)
            reader.answered()
        (part,) = fault.parts
        assert isinstance(part, memoryview if not others else bytes) and len(part) == 2 * APART
