"""Frames that do not decode, or may not come: what each is answered with, and that nothing else
happens.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from qpidha.amqp.peer import terminus
from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.peer.links import Scratch
from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.model.encoding import Described, Symbol, UByte, UInt, ULong, UShort, encode
from qpidha.model.message_view import build
from tests.amqp.builders import AHost
from tests.amqp.raw_client import RawClient
from tests.amqp.wire import ATTACH, BEGIN, GOOD, OPEN, TARGET, Talk, a_host, frame, perform, told

DECODE_ERROR = "amqp:decode-error"
OPENED, BEGUN, ATTACHED, FLOWED, DISPOSED, DETACHED, ENDED, CLOSED = (
    0x10,
    0x11,
    0x12,
    0x13,
    0x15,
    0x16,
    0x17,
    0x18,
)
ZERO = UInt(0)
FROM_Q = Described(ULong(0x28), ["q"])
RECEIVER = frame(perform(0x12, "r", UInt(1), True, None, None, FROM_Q, TARGET))


def raw(code: int, fields: bytes) -> bytes:
    """Make a frame whose list of fields is encoded already."""
    return frame(b"\x00\x53" + bytes([code]) + fields)


def listed(*encoded: bytes) -> bytes:
    body = b"".join(encoded)
    return b"\xd0" + struct.pack(">II", len(body) + 4, len(encoded)) + body


def assert_session_ended(talk: Talk, bad: bytes, condition: str = DECODE_ERROR) -> None:
    """Say it on channel 0: that session ends, what comes on it after that is dropped, and the rest
    of the connection goes on.
    """
    before = talk.messages
    other = frame(perform(0x11, None, ZERO, UInt(100), UInt(100)), channel=1)
    attach = frame(
        perform(0x12, "o", ZERO, False, None, None, FROM_Q, TARGET, None, None, ZERO), channel=1
    )
    talk.say(other, attach)
    answers = talk.say(bad + frame(perform(0x14, ZERO, UInt(3), b"t", ZERO, False) + build("no")))
    assert told(answers) == [(ENDED, condition)]
    assert talk.messages == before and not talk.connection.closed
    transfer = frame(perform(0x14, ZERO, ZERO, b"t", ZERO, False) + build("m"), channel=1)
    talk.say(transfer)
    assert talk.messages == before + 1
    # Once the peer has ended it too, its channel is free.
    talk.say(frame(perform(0x17)))
    assert [answer.code for answer in talk.say(BEGIN, ATTACH)] == [BEGUN, ATTACHED, FLOWED]
    talk.say(frame(perform(0x14, ZERO, ZERO, b"t", ZERO, False) + build("m")))
    assert talk.messages == before + 2 and not talk.connection.closed


def assert_closed(talk: Talk, bad: bytes, condition: str) -> None:
    answers = talk.say(bad)
    assert talk.connection.closed
    assert answers[0].fields[0] == "broker" or OPENED not in [a.code for a in answers]
    assert told(answers) == [(CLOSED, condition)] and answers[-1].code == CLOSED
    assert [a.code for a in talk.answers].count(OPENED) == 1


# A6, A14: fields.


@pytest.mark.parametrize(
    "bad",
    [
        perform(0x10),
        perform(0x10, None),
        perform(0x10, UInt(7)),
        perform(0x10, "c", None, None, None, None, None, None, None, None, "properties"),
        perform(0x10, "c", None, None, None, None, None, None, None, None, {"string": 1}),
        perform(0x10, "c", None, UShort(512)),
        perform(0x10, "c", None, None, None, None, None, None, None, None, None, 11),
    ],
)
def test_a6_an_open_without_its_fields_is_answered_and_closed(bad: bytes) -> None:
    talk = Talk(None, AMQP_HEADER)
    assert_closed(talk, frame(bad), DECODE_ERROR)
    assert [answer.code for answer in talk.answers] == [OPENED, CLOSED]
    assert talk.host.admitted == []


ZERO_BYTES = encode(ZERO)
NUMBERS = encode(None) + encode(ZERO) + encode(UInt(9)) + encode(UInt(9))


@pytest.mark.parametrize(
    "fields",
    [
        listed(),
        listed(*[encode(None)] * 4),
        listed(encode(None), *[encode("1")] * 3),
        b"\xd0" + struct.pack(">II", 4, 2**32 - 1),
        b"\xd0" + struct.pack(">II", 6, 2**32 - 1) + b"\x40\x40",
        listed(encode(None), ZERO_BYTES, ZERO_BYTES, ZERO_BYTES) + b"\x40",
        b"\xd0" + struct.pack(">II", 99, 4) + NUMBERS,
        b"\xc0\x0e\x08" + NUMBERS + b"\x40\x40\x40\xff",
        b"\xd0" + struct.pack(">II", 18, 8) + NUMBERS + b"\x40\x40\x40\xb0" + b"\xff" * 4,
        b"\xd0" + struct.pack(">II", 18, 8) + NUMBERS + b"\x40\x40\x40\xb1" + b"\xff" * 4,
        b"\xd0" + struct.pack(">II", 14 + 60000, 8) + NUMBERS + b"\x40\x40\x40" + bytes(60000),
        b"\xd0"
        + struct.pack(">II", 13 + 60001, 8)
        + NUMBERS
        + b"\x40\x40\x40"
        + b"\x00\x40" * 30000
        + b"\x40",
    ],
    ids=[
        "no fields",
        "null windows",
        "strings for numbers",
        "count of 4294967295 and no value",
        "count of 4294967295 and two nulls",
        "behind the list",
        "list longer than its frame",
        "properties of type code 0xff",
        "binary longer than its frame",
        "string longer than its frame",
        "60,000 descriptors cut off",
        "30,000 nested described values",
    ],
)
def test_a6_a_begin_that_does_not_decode_closes_the_connection(fields: bytes) -> None:
    assert_closed(Talk(None, AMQP_HEADER, OPEN), raw(0x11, fields), DECODE_ERROR)


def attach(**given: Any) -> bytes:
    fields: dict[str, Any] = {
        "name": "bad",
        "handle": UInt(5),
        "role": True,
        "snd": None,
        "rcv": None,
        "source": FROM_Q,
        "target": Described(ULong(0x29), []),
        "unsettled": None,
        "incomplete": None,
        "count": None,
        "size": None,
        "offered": None,
        "desired": None,
        "properties": None,
    }
    return frame(perform(0x12, *{**fields, **given}.values()))


def source(**given: Any) -> Described:
    fields: dict[str, Any] = {
        "address": "q",
        "durable": None,
        "expiry": None,
        "timeout": None,
        "dynamic": None,
        "node": None,
        "mode": None,
        "filter": None,
        "default": None,
        "outcomes": None,
        "capabilities": None,
    }
    return Described(ULong(0x28), list({**fields, **given}.values()))


@pytest.mark.parametrize(
    "bad",
    [
        frame(perform(0x12)),
        attach(name=None),
        attach(name=UInt(7)),
        attach(handle=None),
        attach(handle="5"),
        attach(role=None),
        attach(snd=UByte(77)),
        attach(rcv=UByte(2)),
        attach(snd=UInt(1)),
        attach(source="q"),
        attach(target=source()),
        attach(source=source(address=Symbol("q"))),
        attach(source=source(durable=UInt(3))),
        attach(source=source(expiry=Symbol("never-ever"))),
        attach(source=source(outcomes="amqp:accepted:list")),
        attach(source=source(default=Described(ULong(0x28), []))),
        attach(unsettled={"tag": None}),
        attach(properties={1: 2}),
        frame(perform(0x13)),
        frame(perform(0x13, *["1"] * 4)),
        frame(perform(0x13, ZERO, ZERO, ZERO)),
        frame(perform(0x14, None, UInt(1), b"t", ZERO, True) + build("x")),
        frame(perform(0x14, ZERO, "1", b"t", ZERO, True) + build("x")),
        frame(perform(0x14, ZERO, UInt(1), "t", ZERO, True) + build("x")),
        frame(perform(0x14, ZERO, UInt(1), b"t" * 33, ZERO, True) + build("x")),
        frame(perform(0x14, ZERO, UInt(1), b"t", ZERO, True, False, UByte(2)) + build("x")),
        frame(perform(0x14, ZERO, UInt(1), b"t", ZERO, True, None, None, "state") + build("x")),
        frame(perform(0x15)),
        frame(perform(0x15, True)),
        frame(perform(0x15, True, ZERO, ZERO, True, Described(ULong(0x25), ["error"]))),
        frame(perform(0x15, True, ZERO, ZERO, True, Described(ULong(0x34), [None]))),
        frame(perform(0x15, True, ZERO, ZERO, True) + b"more"),
        frame(perform(0x16)),
        frame(perform(0x16, ZERO, True, Described(ULong(0x1D), [None]))),
        frame(perform(0x16, ZERO, True, Described(ULong(0x1D), ["a string"]))),
    ],
)
def test_a6_a_frame_without_its_fields_ends_its_session(bad: bytes) -> None:
    assert_session_ended(Talk(None, *GOOD[:4]), bad)


def test_a6_a_message_of_a_transfer_that_does_not_decode_is_not_stored() -> None:
    talk = Talk(None, *GOOD[:4])
    talk.say(frame(perform(0x14, None, ZERO, b"t", ZERO, False) + build("m")))
    assert talk.messages == 0
    assert told(talk.answers) == [(ENDED, DECODE_ERROR)]


def test_a14_terminus_durability_is_0_to_2() -> None:
    bad = attach(source=source(durable=UInt(9)))
    assert_session_ended(Talk(None, *GOOD[:4]), bad)
    good = attach(source=source(durable=UInt(2)))
    assert [a.code for a in Talk(None, *GOOD[:4]).say(good)] == [ATTACHED]


@pytest.mark.parametrize(
    "filter_set",
    [
        b"\xc1\x09\x02\xa3\x01f\x00\xa3\x01s\xff",
        b"\xc1\x0c\x02\xa3\x01f\x00\xa3\x01s\xa1\xf0x\x40",
        encode("no map"),
        encode(["no", "map"]),
        encode({"a string": Described(Symbol("s"), "x")}),
    ],
)
def test_a13_a_filter_that_cannot_be_decoded_ends_the_session(filter_set: bytes) -> None:
    nulls = [b"\x40"] * 6
    encoded = b"\x00\x53\x28" + listed(encode("q"), *nulls, filter_set)
    bad = raw(
        0x12, listed(encode("bad"), encode(UInt(5)), b"\x41", b"\x40\x40"[:1], b"\x40", encoded)
    )
    talk = Talk(None, *GOOD[:4])
    assert_session_ended(talk, bad)
    assert [a for a in talk.answers if a.code == ATTACHED and a.fields[0] == "bad"] == []


@pytest.mark.parametrize("descriptor", [[1], {1: 2}, Described(ULong(1), 2)])
def test_a_filter_described_by_a_compound_value_ends_its_link(descriptor: Any) -> None:
    wanted = source(filter={Symbol("f"): Described(descriptor, "x")})
    talk = Talk(None, *GOOD[:4])
    answers = talk.say(attach(source=wanted))
    assert [answer.code for answer in answers] == [ATTACHED, DETACHED]
    assert answers[-1].fields[2].value[0] == "amqp:invalid-field"


# A9: the size of frames.


@pytest.mark.parametrize("size", [0, 1, 256, 511])
def test_a9_a_max_frame_size_under_512_is_refused(
    size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    talk = Talk(None, AMQP_HEADER)
    assert_closed(talk, frame(perform(0x10, "c", None, UInt(size))), "amqp:invalid-field")
    assert capfd.readouterr().err == ""


def test_a9_frames_are_of_512_bytes_where_the_peer_takes_no_more() -> None:
    talk = Talk(None, AMQP_HEADER, frame(perform(0x10, "c", None, UInt(512))), BEGIN)
    talk.host.broker.queues["q"].enqueue(build("x" * 5000))
    flow = frame(perform(0x13, ZERO, UInt(999), ZERO, UInt(999), UInt(1), ZERO, UInt(1)))
    answers = talk.say(RECEIVER, flow)
    assert len([a for a in answers if a.code == 0x14]) > 9
    assert max(len(a.payload) for a in answers) < 512


def test_faults_b8c_and_hostile_the_engine_writes_nothing_to_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It has no handle for the second link."""
    client = RawClient(a_host())
    client.engine.free()
    engine = Engine(client, is_server=False, max_frame_size=512, channel_max=1, scratch=Scratch())
    engine.open("c", {})
    session = engine.new_session()
    begin = frame(perform(0x11, UShort(0), ZERO, UInt(9), UInt(9), ZERO))
    client.engine = engine
    engine.pull()
    engine.push(AMQP_HEADER + OPEN + begin)
    for name in ("a", "b"):
        engine.new_link(name, sender=True, session=session).open(
            terminus.source("s"), terminus.target("q")
        )
    engine.pull()
    assert engine.is_finished()
    assert capfd.readouterr().err == ""


# A10: before the open.


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (BEGIN, "amqp:illegal-state"),
        (ATTACH, "amqp:illegal-state"),
        (frame(perform(0x18)), "amqp:illegal-state"),
        (frame(encode([])), "amqp:connection:framing-error"),
        (frame(perform(0x99)), "amqp:connection:framing-error"),
        (frame(b"\x00"), "amqp:connection:framing-error"),
        (frame(perform(0x10, "c"), kind=1), "amqp:connection:framing-error"),
        (frame(perform(0x10, "c"), channel=1), "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x04\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", "amqp:connection:framing-error"),
        (b"\xff\xff\xff\xff\x02\x00\x00\x00", "amqp:connection:framing-error"),
    ],
)
def test_a10_what_fails_before_the_open_is_told_in_a_close(bad: bytes, condition: str) -> None:
    talk = Talk(None, AMQP_HEADER)
    assert_closed(talk, bad, condition)
    assert [answer.code for answer in talk.answers] == [OPENED, CLOSED]
    assert talk.answers[0].fields[0] == "broker"


@pytest.mark.parametrize("bad", [frame(encode([])), frame(perform(0x99)), frame(perform(0x11, 1))])
def test_a10_it_is_told_behind_the_open_too(bad: bytes) -> None:
    talk = Talk(None, AMQP_HEADER, OPEN)
    talk.say(bad)
    assert [answer.code for answer in talk.answers] == [OPENED, CLOSED]


def test_a10_silence_before_the_open_is_told_in_a_close() -> None:
    host = AHost(max_negotiate_time=1_000_000_000)
    talk = Talk(host, AMQP_HEADER)
    talk.connection.tick(host.now + 2_000_000_000)
    talk.say(b"")
    assert told(talk.answers) == [(CLOSED, "amqp:connection:forced")]
    assert talk.answers[0].fields[0] == "broker"


def test_a10_everything_in_one_write_is_answered_in_order() -> None:
    talk = Talk(None)
    talk.say(b"".join([*GOOD[:3], frame(perform(0x12)), frame(perform(0x18))]))
    assert [answer.code for answer in talk.answers] == [OPENED, BEGUN, ENDED, CLOSED]
    assert told(talk.answers) == [(ENDED, DECODE_ERROR), (CLOSED, "")]


# The rest of the table of hostile input.


def test_hostile_a_begin_on_a_channel_in_use_closes_the_connection() -> None:
    assert_closed(Talk(None, *GOOD[:4]), BEGIN, "amqp:illegal-state")


@pytest.mark.parametrize("code", [0x12, 0x13, 0x14, 0x15, 0x16, 0x17])
def test_a_frame_on_a_channel_without_a_session_closes_the_connection(code: int) -> None:
    talk = Talk(None, *GOOD[:4])
    assert_closed(talk, frame(perform(code), channel=3), "amqp:illegal-state")


def test_hostile_a_transfer_on_a_link_whose_sender_is_the_broker_ends_the_session() -> None:
    talk = Talk(None, *GOOD[:4], RECEIVER)
    bad = frame(perform(0x14, UInt(1), ZERO, b"t", ZERO, False) + build("m"))
    assert_session_ended(talk, bad, "amqp:not-allowed")


def test_a5_a_handle_in_use_ends_the_session() -> None:
    talk = Talk(a_host(), *GOOD)
    bad = frame(perform(0x12, "two", ZERO, False, None, None, None, TARGET, None, None, ZERO))
    assert_session_ended(talk, bad, "amqp:session:handle-in-use")


@pytest.mark.parametrize(
    "bad",
    [
        perform(0x13, ZERO, UInt(9), ZERO, UInt(9), UInt(4242), ZERO, UInt(1)),
        perform(0x14, UInt(7), ZERO, b"t", ZERO, False) + build("m"),
        perform(0x14, UInt(7), ZERO, b"t" * 32, ZERO, False, None, None, None, None, None, True),
        perform(0x16, UInt(7), True),
    ],
)
def test_a4_a_handle_that_was_never_attached_ends_the_session(bad: bytes) -> None:
    assert_session_ended(Talk(None, *GOOD[:4]), frame(bad), "amqp:session:unattached-handle")


def test_a_handle_is_free_after_a_detach() -> None:
    talk = Talk(None, *GOOD, frame(perform(0x16, ZERO, True)), ATTACH)
    talk.say(frame(perform(0x14, ZERO, UInt(1), b"t", ZERO, False) + build("m")))
    assert talk.messages == 2 and not talk.connection.closed


def test_a_session_ends_also_while_messages_wait_for_its_window() -> None:
    talk = Talk(None, AMQP_HEADER, OPEN, frame(perform(0x11, None, ZERO, UInt(1), UInt(100))))
    for number in range(9):
        talk.host.broker.queues["q"].enqueue(build(number))
    flow = frame(perform(0x13, ZERO, UInt(1), ZERO, UInt(999), UInt(1), ZERO, UInt(9)))
    assert [a.code for a in talk.say(RECEIVER, flow)] == [ATTACHED, 0x14]
    assert told(talk.say(frame(perform(0x15)))) == [(ENDED, DECODE_ERROR)]
    assert talk.host.broker.queues["q"].acquired == 0
    assert talk.messages == 9
