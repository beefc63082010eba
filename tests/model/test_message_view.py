"""Message view: what is seen from a few bytes is what the whole header says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model.encoding import Described, Symbol, UByte, UInt, ULong, encode
from qpidha.model.message_view import build, is_durable

VALUE = encode(Described(ULong(0x77), "body"))
FIELDS = st.lists(st.sampled_from([None, True, False, UByte(4), UInt(7)]), max_size=5)


@pytest.mark.parametrize("durable", [True, False])
def test_a_built_header_says_whether_its_message_is_durable(durable: bool) -> None:
    assert is_durable(build("x", header={"durable": durable, "priority": 9})) is durable
    assert is_durable(build(b"x" * 1000, header={"durable": durable})) is durable


def test_a_message_without_a_header_or_with_an_empty_one_is_not_durable() -> None:
    assert not is_durable(build("x", properties={"message_id": "m"}))
    assert not is_durable(b"\x00\x53\x70\x45" + VALUE)


@pytest.mark.parametrize(
    ("header", "durable"),
    [
        (b"\x00\x53\x70\xc0\x02\x01\x41", True),  # list8, true
        (b"\x00\x53\x70\xc0\x02\x01\x42", False),
        (b"\x00\x53\x70\xc0\x03\x01\x56\x01", True),  # a boolean with its value in a byte
        (b"\x00\x53\x70\xc0\x03\x01\x56\x00", False),
        (b"\x00\x53\x70\xc0\x02\x01\x40", False),  # null
        (b"\x00\x53\x70\xc0\x01\x00", False),  # a list8 of nothing
        (b"\x00\x53\x70\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41", True),  # list32
        (b"\x00\x53\x70\xd0\x00\x00\x00\x06\x00\x00\x00\x01\x56\x01", True),
        (b"\x00\x53\x70\xd0\x00\x00\x00\x04\x00\x00\x00\x00", False),
        (
            b"\x00\x80" + b"\x00" * 7 + b"\x70\xc0\x02\x01\x41",
            True,
        ),  # the section named by eight bytes
        (b"\x00\xa3\x10amqp:header:list\xc0\x02\x01\x41", True),  # and by its symbol
        (b"\x00\xa3\x10amqp:header:list\xc0\x02\x01\x42", False),
    ],
)
def test_every_way_to_write_a_header_is_understood(header: bytes, durable: bool) -> None:
    assert is_durable(header + VALUE) is durable


@given(FIELDS)
def test_what_is_seen_is_the_first_field(fields: list[object]) -> None:
    payload = encode(Described(ULong(0x70), fields)) + VALUE
    assert is_durable(payload) is bool(fields and fields[0] is True)
    named = encode(Described(Symbol("amqp:header:list"), fields)) + VALUE
    assert is_durable(named) is bool(fields and fields[0] is True)


@given(
    st.binary(max_size=20),
    st.sampled_from([b"", b"\x00\x53\x70", b"\x00\x53\x70\xc0", b"\x00\x53\x70\xd0", b"\x00\x53"]),
)
def test_what_cannot_be_read_is_never_an_error(tail: bytes, head: bytes) -> None:
    assert is_durable(head + tail) in (True, False)
