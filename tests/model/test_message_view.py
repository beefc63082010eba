"""Message view: what is seen from a few bytes is what the whole header says."""

from __future__ import annotations

from itertools import product
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model import encoding, message_view
from qpidha.model.encoding import Described, Symbol, UByte, UInt, ULong, Uuid, encode
from qpidha.model.errors import ProtocolViolation
from qpidha.model.message_view import (
    Misnamed,
    application_properties,
    arrival,
    arrival_from,
    body,
    build,
    departure,
    header,
    is_durable,
    message_annotations,
    properties,
    read_parts,
)

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


def user_id(payload: bytes) -> Any:
    """Who has sent a message, as it says; from whom it says it is taken as any other is."""
    try:
        found = arrival_from(frozenset(), payload, 1)
    except Misnamed as error:
        if type(error.user_id) is bytes:
            names = frozenset((error.user_id, b"x"))
            assert arrival_from(names, payload, 1) == arrival(payload, 1)
        return error.user_id
    assert found == arrival(payload, 1)
    return None


BOB = encode(Described(ULong(0x73), [None, b"bob"]))
HEADER, NOTES, MORE = (
    encode(Described(ULong(code), value))
    for code, value in ((0x70, [True]), (0x72, {Symbol("x-opt-a"): 1}), (0x74, {"a": 1}))
)
LONG_NAME = b"\x00\x80" + bytes(7)
WAYS = [
    BOB,
    b"\x00\x53\x73\xd0\x00\x00\x00\x0a\x00\x00\x00\x02\x40\xa0\x03bob",  # list32
    b"\x00\x53\x73\xc0\x0a\x02\x40\xb0\x00\x00\x00\x03bob",  # binary32
    BOB.replace(b"\x00\x53", LONG_NAME),  # the section named by eight bytes
    b"\x00\xa3\x14amqp:properties:list" + BOB[3:],
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("before", [b"", HEADER, NOTES, HEADER + NOTES])
@pytest.mark.parametrize(
    "behind",
    [
        VALUE,
        MORE + VALUE,
        build(b"x" * 1000),
        build(b"x") + build(b"y"),
        build({"a": 1}),
        build(None),
        b"",
    ],
)
def test_every_way_to_say_who_has_sent_a_message_is_understood(
    way: bytes, before: bytes, behind: bytes
) -> None:
    assert user_id(before + way + behind) == b"bob"
    assert not before + behind or user_id(before + behind) is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("before", [VALUE, MORE, BOB, build(b"x"), MORE + VALUE, VALUE + MORE])
def test_no_user_id_hides_behind_sections_out_of_order(way: bytes, before: bytes) -> None:
    for payload in (before + way, before + way + VALUE, HEADER + before + way, way + HEADER):
        with pytest.raises(ProtocolViolation):
            user_id(payload)


@pytest.mark.parametrize(
    "message_id", [None, "m", "m" * 300, ULong(0), ULong(7), ULong(1 << 40), b"m", Uuid(bytes(16))]
)
@given(
    name=st.sampled_from([None, b"", b"ann", b"a" * 300, "ann", 7, ["ann"]]),
    count=st.integers(0, 11),
)
def test_who_has_sent_a_message_is_the_second_property(
    message_id: Any, name: Any, count: int
) -> None:
    fields = [message_id, name, *["x"] * count]
    for bare in (VALUE, MORE + build(b"x" * 300), MORE + VALUE):
        assert user_id(encode(Described(ULong(0x73), fields)) + bare) == name
    assert user_id(encode(Described(ULong(0x73), fields[:1])) + VALUE) is None


def lying(start: bytes, hidden: bytes) -> bytes:
    """A list8 or map8 of no elements that says it ends behind what hides in it."""
    return start + bytes((len(hidden) + 1, 0)) + hidden


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("start", [b"\x00\x53\x70\xc0", b"\x00\x53\x71\xc1", b"\x00\x53\x72\xc1"])
def test_no_user_id_hides_in_a_section_that_lies_about_its_size(start: bytes, way: bytes) -> None:
    """A decoder that counts elements finds it."""
    own = encode(Described(ULong(0x73), [None, b"ann"]))
    for hidden in (way, way + VALUE):
        with pytest.raises(ProtocolViolation):
            user_id(lying(start, hidden) + own + VALUE)
    nested = encode(Described(ULong(0x72), {Symbol("x-opt-a"): Described(ULong(0x73), ["m"])}))
    assert user_id(nested + own + VALUE) == b"ann"


def test_no_user_id_hides_in_a_message_id_that_lies_about_its_size() -> None:
    hidden = lying(b"\xc0", b"\xa0\x03bob") + b"\xa0\x03ann"
    with pytest.raises(ProtocolViolation):
        user_id(b"\x00\x53\x73\xc0" + bytes((len(hidden) + 1, 2)) + hidden + VALUE)


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_a_section_that_lies_about_its_size_is_refused(size: int) -> None:
    with pytest.raises(ProtocolViolation):
        user_id(BOB[:4] + bytes((size,)) + BOB[5:] + VALUE)


def test_faults_b8d_before_1970_a_message_with_a_ttl_has_no_end() -> None:
    """It could not be recorded."""
    payload = build("x", header={"ttl": UInt(1000)})
    assert arrival(payload, -(10**18)) == (payload, 0, 0)
    assert arrival(payload, 1) == (payload, 1_000_000_001, 0)


def test_a_message_that_ends_in_its_ttl_is_refused() -> None:
    for cut in range(1, 4):
        with pytest.raises(ProtocolViolation):
            arrival(b"\x00Sp\xc0\x09\x03AP\x04p" + bytes(cut), 1)


FAR = 1_900_000_000_000


@pytest.mark.parametrize("absolute", [None, 0, 5_000, FAR, 2**62])
@pytest.mark.parametrize("group", [None, "g"])
def test_when_a_message_expires_is_seen_from_a_few_bytes_as_by_looking_at_everything(
    monkeypatch: pytest.MonkeyPatch, absolute: int | None, group: str | None
) -> None:
    fields = {"absolute_expiry_time": absolute, "group_id": group, "message_id": "m", "to": "q"}
    for durable, priority, ttl, now in product(
        (None, True, False), (None, 0, 9), (None, 0, 7, 60_000, 2**32 - 1), (1, FAR * 10**6)
    ):
        payload = build(
            "x",
            header={"durable": durable, "priority": priority, "ttl": ttl},
            properties={name: value for name, value in fields.items() if value is not None},
            application_properties={"a": 1},
        )
        expected = message_view._arrival(payload, now)
        with monkeypatch.context() as patch:
            for name in ("_arrival", "_arrival_from") if ttl != 0 else ():  # 0 has no byte.
                patch.setattr(message_view, name, Mock(side_effect=AssertionError))
            assert arrival(payload, now) == expected
            assert arrival_from(frozenset(), payload, now) == expected


def listed(count: int, content: bytes) -> bytes:
    return b"\xd0" + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content


def in_map(value: bytes) -> bytes:
    content = b"\xa1\x01k" + value
    return b"\xd1" + (len(content) + 4).to_bytes(4) + (2).to_bytes(4) + content


def section(code: int, value: bytes) -> bytes:
    return bytes((0, 0x53, code)) + value


NULLS = listed(70_000, b"\x40" * 70_000)
NUMBERS = b"\xf0" + (70_005).to_bytes(4) + (70_000).to_bytes(4) + b"\x50" + bytes(70_000)
NOTHING = listed(300, b"\xe0\x02\xff\x40" * 300)
"""70,000 values in a list and in an array, and 76,500 in arrays that have 1,200 bytes."""


@pytest.mark.parametrize(
    "value", [NULLS, listed(1, NUMBERS), NOTHING], ids=["nulls", "numbers", "nothing"]
)
@pytest.mark.parametrize(
    ("read", "code"),
    [
        (lambda payload: arrival(payload, 1), 0x70),
        (lambda payload: arrival(payload, 1), 0x73),
        (lambda payload: departure(payload, 1, b""), 0x70),
        (header, 0x70),
        (properties, 0x73),
        (application_properties, 0x74),
        (message_annotations, 0x72),
        (body, 0x77),
        (lambda payload: read_parts(payload, Mock()), 0x73),
    ],
)
def test_nobody_waits_for_the_decoding_of_too_many_values(
    read: Any, code: int, value: bytes
) -> None:
    """A message of 100 MB that are nulls took the broker for ten seconds, one of numbers in an
    array for twenty.
    """
    wrapped = in_map(value) if code in (0x72, 0x74) else listed(9, b"\x40" * 8 + value)
    payload = section(code, wrapped)
    with pytest.raises(ProtocolViolation, match="too many"):
        read(payload if code == 0x77 else payload + VALUE)


@pytest.mark.parametrize("code", [0x70, 0x73])
def test_fields_are_few_in_a_small_message_as_well(code: int) -> None:
    for value in (b"\xe0\x02\xff\x45", listed(300, b"\x40" * 300)):
        payload = section(code, listed(10, b"\x40" * 9 + value)) + VALUE
        with pytest.raises(ProtocolViolation, match="too many"):
            arrival(payload, 1)


@pytest.mark.parametrize("read", [body, lambda payload: read_parts(payload, Mock())])
def test_the_values_of_all_sections_are_counted_together(read: Any) -> None:
    part = section(0x76, listed(10_000, b"\x40" * 10_000))
    read(part * 3)
    with pytest.raises(ProtocolViolation, match="too many"):
        read(part * 4)


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([build(b"ab"), build(b""), build(b"c")], b"abc"),
        (
            [build([1], section=0x76), build([], section=0x76), build([2, 3], section=0x76)],
            [1, 2, 3],
        ),
        ([build(None), build(b"a"), build(b"b")], b"ab"),
        ([build(b"a"), build(b"b"), build(None)], b"ab"),
        ([build("text")], "text"),
        ([build(None)], None),
        ([], None),
    ],
)
def test_a_request_is_joined_once(bodies: list[bytes], expected: Any) -> None:
    """Joined anew at each section it took time by the square of them."""
    changes: list[Any] = []

    class Request:
        def __setattr__(self, name: str, value: Any) -> None:
            changes.append((name, value))

    found: Any = Request()
    read_parts(b"".join(bodies), found)
    assert changes == [("body", expected)]


def test_a_request_has_one_kind_of_body() -> None:
    for other in (build([1], section=0x76), build("text")):
        with pytest.raises(ProtocolViolation, match="several kinds"):
            read_parts(other + build(b"a"), Mock())


def test_a_message_of_too_many_sections_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_SECTIONS", 100)
    assert len(encoding.sections(build(b"") * 100)) == 100
    read_parts(build(b"") * 100, Mock())
    for read in (encoding.sections, lambda payload: read_parts(payload, Mock())):
        with pytest.raises(ProtocolViolation):
            read(build(b"") * 101)
