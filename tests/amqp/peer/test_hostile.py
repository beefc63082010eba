"""Peers that mean no good, or know no better: each ends its own connection and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.peer.sasl import AMQP_HEADER, SASL_HEADER
from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.model.encoding import Array, Described, Symbol, UByte, UInt, ULong, UShort, encode
from qpidha.model.events import ConnectionKind
from qpidha.model.message_view import body, build
from tests.amqp.builders import AHost, CountingLogWriter, Pair
from tests.amqp.wire import CLOSE, GOOD, OPEN, TRANSFER, a_host, frame, perform
from tests.model.test_encoding import VALUES


def talk(host: AHost, chunks: list[bytes]) -> tuple[Connection, bytes]:
    connection = ServedConnection(7, host, kind=ConnectionKind.CLIENT, peer="hostile").connection
    answer = b""
    for chunk in chunks:
        connection.receive(chunk)
        host.broker.dispatch(host.now)
        answer += connection.output()
    connection.tick(host.now)
    return connection, answer


def assert_still_serves(host: AHost) -> None:
    pair = Pair(host, container_id="normal")
    link, heard = pair.sender("q", name="after")
    link.send(build("fine"))
    pair.turn()
    assert [outcome.state for _, outcome in heard.outcomes] == [0x24]
    _, received = pair.receiver("q", name="check")
    assert body(received.payloads[-1]) == "fine"
    pair.client.close()
    pair.turn()


def test_the_frames_used_here_are_good() -> None:
    host = a_host()
    connection, _ = talk(host, GOOD)
    assert not connection.closed and connection.error is None
    assert len(host.broker.queues["q"].messages) == 1


@pytest.mark.parametrize(
    "bad",
    [
        frame(perform(0x18, "no error")),
        frame(b""),
        frame(b"\x00"),
        frame(perform(0x99)),
        frame(perform(0x14, UInt(77), UInt(1), b"x")),
        frame(perform(0x12, "r", UInt(2**32 - 1), True)),
        frame(perform(0x16, UInt(5), UInt(9))),
        frame(perform(0x11), channel=9999),
        frame(perform(0x13, UInt(0), UInt(0), UInt(0), UInt(0), UInt(99))),
        frame(perform(0x15, True, UInt(2**32 - 1), UInt(0))),
        b"\x00\x00\x00\x07\x02\x00\x00\x00",
        b"\xff\xff\xff\xff\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\xff\x00\x00\x00",
        b"\x00\x00\x00\x08\x02\x05\x00\x00",
        OPEN,
        frame(perform(0x10, None)),
        frame(perform(0x12, "s", UInt(0), False)),
        frame(perform(0x15, True, UInt(0), UInt(2**31))),
        frame(encode(Described(ULong(0x13), {"not": "a list"}))),
        frame(perform(0x12, "x", UInt(1), False, UByte(9), UByte(9), "source", 7)),
        frame(perform(0x12, "\u00e9\u0000", UInt(3), True)),
        frame(
            perform(
                0x12,
                "d",
                UInt(1),
                True,
                None,
                None,
                Described(ULong(0x28), ["q", None, None, None, None, {1: 2}, 5, 6, 7, 8, 9]),
            )
        ),
    ],
)
@pytest.mark.parametrize("after", [2, 3, 4, 5])
def test_a_bad_frame_harms_only_its_own_connection(after: int, bad: bytes) -> None:
    host = a_host()
    connection, _ = talk(host, [*GOOD[:after], bad, TRANSFER, CLOSE])
    connection.lost("done")
    assert host.broker.queues["q"].acquired == 0
    assert_still_serves(host)


def test_a_bad_frame_is_answered_with_an_error() -> None:
    connection, answer = talk(
        a_host(), [*GOOD[:3], frame(perform(0x12, "r", UInt(2**32 - 1), True))]
    )
    assert connection.closed
    assert connection.error is not None and connection.error.condition.startswith("amqp:")
    assert connection.error.condition.encode() in answer


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"AMQP\x02\x01\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_another_protocol_is_answered_with_ours(first: bytes) -> None:
    connection, answer = talk(a_host(), [first])
    assert answer == AMQP_HEADER
    assert connection.closed and connection.error is not None


def test_sasl_frames_out_of_place_end_the_connection() -> None:
    for bad in (
        perform(0x41, Symbol("KERBEROS")),
        perform(0x43, b"x"),
        perform(0x40, Array(0xA3, [])),
        perform(0x44, UByte(0)),
        b"\x40",
    ):
        connection, _ = talk(a_host(), [SASL_HEADER, frame(bad, kind=1)])
        assert connection.closed


def test_a_flood_before_authentication_is_bounded() -> None:
    connection, _ = talk(
        a_host(), [SASL_HEADER, b"\x00\x00\x10\x00\x02\x01\x00\x00" + bytes(100), bytes(100_000)]
    )
    assert connection.closed


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_conversations_harm_nobody(data: st.DataObject) -> None:
    host = a_host()
    conversation = bytearray(b"".join([*GOOD, TRANSFER, CLOSE]))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(8, len(conversation) - 1))
        conversation[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(1, len(conversation)))
    connection, _ = talk(host, [bytes(conversation[:cut]), bytes(conversation[cut:])])
    connection.lost("done")
    assert_still_serves(host)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0x10, 0x18), st.lists(VALUES, max_size=12), st.integers(1, 5), st.integers(0, 3))
def test_any_performative_with_any_fields_harms_nobody(
    code: int, fields: list[Any], after: int, channel: int
) -> None:
    host = a_host()
    connection, _ = talk(
        host,
        [*GOOD[:after], frame(encode(Described(ULong(code), fields)), channel=channel), TRANSFER],
    )
    connection.lost("done")
    assert_still_serves(host)


def test_sessions_are_limited_by_channel_max() -> None:
    begins = [
        frame(perform(0x11, None, UInt(0), UInt(10), UInt(10)), channel=channel)
        for channel in (0, 1, 2)
    ]
    host = AHost(channel_max=1)
    connection, _ = talk(host, [AMQP_HEADER, OPEN, *begins])
    assert connection.closed and connection.error is not None
    assert UShort(1) == 1


def test_a_sender_that_ignores_its_credit_is_cut_off() -> None:
    host = AHost(link_credit=10, ha_replicate="all")
    host.broker.log_writer = CountingLogWriter()
    host.broker.declare_queue("q")
    host.delaying = True
    transfers = [
        frame(
            perform(0x14, UInt(0), UInt(number), str(number).encode(), UInt(0), False) + build("m")
        )
        for number in range(30)
    ]
    _, answer = talk(host, [*GOOD[:4], *transfers])
    assert b"amqp:link:transfer-limit-exceeded" in answer
    assert len(host.pending) == 10
    host.release_all()
    host.delaying = False
    assert_still_serves(host)


def test_endless_pieces_of_one_message_end_at_the_limit() -> None:
    host = AHost(max_message_size=100_000)
    host.broker.declare_queue("q")
    piece = frame(perform(0x14, UInt(0), UInt(0), b"t", UInt(0), False, True) + bytes(1000))
    connection, answer = talk(host, [*GOOD[:4], *[piece] * 500])
    assert b"amqp:link:message-size-exceeded" in answer
    assert not connection.closed
    assert_still_serves(host)
