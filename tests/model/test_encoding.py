"""The AMQP type codec and the message view."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model import encoding
from qpidha.model.encoding import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Uuid,
    decode,
    encode,
    sections,
    skip,
    walk,
)
from qpidha.model.errors import ProtocolViolation
from qpidha.model.message_view import (
    FIRST_EXPIRY,
    application_properties,
    arrival,
    body,
    build,
    departure,
    header,
    merge_annotations,
    properties,
)

NOW = 1_700_000_000_000_000_000
ASCII = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=300)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=300),
    st.text(max_size=300).filter(lambda text: "\ud800" not in text),
    ASCII.map(Symbol),
    st.characters(exclude_categories=["Cs"]).map(Char),
    st.integers(0, 255).map(UByte),
    st.integers(0, 2**16 - 1).map(UShort),
    st.integers(0, 2**32 - 1).map(UInt),
    st.integers(0, 2**64 - 1).map(ULong),
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**31), 2**31 - 1).map(Int),
    st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    st.floats(width=32, allow_nan=False).map(Float),
    st.binary(min_size=16, max_size=16).map(Uuid),
    st.binary(min_size=8, max_size=8).map(Decimal),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.dictionaries(st.text(max_size=5), inner, max_size=5),
        st.builds(Described, st.integers(0, 2**64 - 1).map(ULong), inner),
        st.lists(st.binary(max_size=20), max_size=5).map(lambda items: Array(0xB0, items)),
        st.lists(st.lists(inner, max_size=3), max_size=3).map(lambda items: Array(0xD0, items)),
    ),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_encoded_decodes_to_the_same_value_and_type(value: Any) -> None:
    raw = encode(value)
    found, end = decode(raw)
    assert end == len(raw) == skip(raw, 0)
    assert found == value
    assert type(found) is type(value)
    assert encode(found) == raw


@given(st.binary(max_size=200))
def test_any_bytes_decode_or_are_a_protocol_violation(raw: bytes) -> None:
    for read in (decode, sections, header, body, lambda payload: arrival(payload, 1)):
        try:
            read(raw)
        except ProtocolViolation:
            pass


@given(VALUES, st.data())
def test_damaged_values_decode_or_are_a_protocol_violation(value: Any, data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(raw))
    except ProtocolViolation:
        pass


def test_deep_nesting_is_refused() -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    with pytest.raises(ProtocolViolation, match="too deep"):
        decode(encode(value))


def test_an_array_of_nothing_cannot_ask_for_much_memory() -> None:
    with pytest.raises(ProtocolViolation):
        decode(b"\xf0" + (5).to_bytes(4, "big") + (2**32 - 1).to_bytes(4, "big") + b"\x40")


def test_many_arrays_of_nothing_cannot_either() -> None:
    """Four bytes for 255 values: 64 kB of them were five million lists."""
    inner = b"\xe0\x02\xff\x45"
    in_list = b"\xd0" + (404).to_bytes(4) + (100).to_bytes(4) + inner * 100
    in_array = b"\xf0" + (305).to_bytes(4) + (100).to_bytes(4) + b"\xe0" + inner[1:] * 100
    for value in (in_list, in_array, b"\0\x40" + in_list):
        assert skip(value, 0) == len(value)
        with pytest.raises(ProtocolViolation, match="too many"):
            decode(value)
    few, end = decode(inner)
    assert (few, end) == (Array(0x45, [[]] * 255), 4)


@pytest.mark.parametrize("value", [[1] * 100, Array(0x50, [1] * 100), Described(1, [1] * 99)])
def test_no_more_values_are_read_than_are_left(value: Any) -> None:
    raw = encode(value)
    left = [150]
    assert decode(raw, 0, left) == (value, len(raw)) and 49 <= left[0] <= 50
    with pytest.raises(ProtocolViolation, match="too many"):
        decode(raw, 0, left)


def test_a_described_value_is_no_key() -> None:
    """Numbers in pairs can be chosen so that all have one hash: 3,000 in a frame took a second."""
    key = encode(Described(ULong(1), 2))
    with pytest.raises(ProtocolViolation):
        decode(b"\xc1" + bytes((len(key) + 2, 2)) + key + b"\x40")
    assert decode(b"\xc1" + bytes((len(key) + 2, 2)) + b"\x40" + key)[0] == {
        None: Described(ULong(1), 2)
    }


def test_what_describes_a_section_is_a_number_or_a_name_or_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list of 100 MB was decoded before it was refused."""
    monkeypatch.setattr(encoding, "decode", None)
    for descriptor in (encode([None] * 100), encode(Array(0x50, [0x77])), encode({}), b"\x40", b""):
        for read in (sections, lambda payload: list(walk(payload))):
            with pytest.raises(ProtocolViolation, match="unknown"):
                read(b"\0" + descriptor + b"\x45")


def test_what_is_passed_over_has_few_descriptions_in_it() -> None:
    """Described values as descriptors and values of each other were 100 million steps."""

    def tree(depth: int) -> bytes:
        return b"\0" + tree(depth - 1) * 2 if depth else b"\x40"

    assert skip(tree(5), 0) == len(tree(5)) == 63
    with pytest.raises(ProtocolViolation, match="too deep"):
        skip(tree(6), 0)


def test_a_built_message_reads_as_it_was_given() -> None:
    payload = build(
        {"a": [1, 2]},
        header={"durable": True, "ttl": 500},
        properties={"message_id": 7, "to": "q", "subject": "s", "content_type": "text/plain"},
        application_properties={"colour": "red"},
    )
    assert header(payload) == {"durable": True, "ttl": 500}
    assert properties(payload) == {
        "message_id": 7,
        "to": "q",
        "subject": "s",
        "content_type": "text/plain",
    }
    assert application_properties(payload) == {"colour": "red"}
    assert body(payload) == {"a": [1, 2]}
    assert body(build(b"raw")) == b"raw"


def test_arrival_drops_delivery_annotations_and_nothing_else() -> None:
    bare = build("x", properties={"to": "q"})
    annotated = encode(Described(ULong(0x71), {Symbol("hop"): 1})) + bare
    assert arrival(annotated, 5) == (bare, 0, 0)
    with_header = build("x", header={"durable": True})
    assert arrival(with_header, 5) == (with_header, 0, 0)


def test_arrival_finds_when_a_message_expires() -> None:
    second = 1_000_000_000
    assert arrival(build("x", header={"ttl": 2000}), 10 * second)[1] == 12 * second
    ends = 1_700_000_000
    payload = build("x", properties={"absolute_expiry_time": 1000 * ends})
    assert arrival(payload, (ends - 1) * second)[1] == ends * second


def test_oslo_a_time_since_the_start_of_a_machine_is_no_time_of_expiry() -> None:
    """oslo.messaging gives the reading of its monotonic clock; the time to live beside it holds."""
    boot = {"absolute_expiry_time": 90_000_000}
    assert arrival(build("x", properties=boot), NOW)[1] == 0
    payload = build("x", header={"ttl": 2000}, properties=boot)
    assert arrival(payload, NOW)[1] == NOW + 2_000_000_000


@given(
    st.dictionaries(ASCII, st.integers(0, 9), max_size=3),
    st.dictionaries(st.text(max_size=5), SCALARS, max_size=3),
    SCALARS,
    st.integers(0, 3),
)
def test_departure_changes_only_header_and_annotations(
    notes: dict[str, int], fields: dict[str, Any], content: Any, count: int
) -> None:
    bare = build(content, properties={"to": "q"}, application_properties=fields)
    payload = build(
        content,
        properties={"to": "q"},
        application_properties=fields,
        annotations=notes,
        header={"priority": 3},
    )
    merged = merge_annotations(payload, b"", {Symbol("x-new"): 1})
    sent = departure(payload, count, merged)
    assert sent.endswith(bare)
    assert header(sent).get("delivery_count", 0) == count
    assert header(sent)["priority"] == 3
    found, _ = decode(sent, sections(sent)[1][2])
    assert found == {**notes, "x-new": 1}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([None, None, None, None, UInt(2**32 - 1)], {"delivery_count": 2**32 - 1}),
        (
            [True, UByte(3), UInt(5), None, -5],
            {"durable": True, "priority": 3, "ttl": 5, "delivery_count": 1},
        ),
        (["x", 300, "ttl", None, "y"], {"delivery_count": 1}),
        ([None, -1, ULong(2**64 - 1), None, True], {"delivery_count": 1}),
        ([None] * 5 + [6, 7], {"delivery_count": 1}),
    ],
)
def test_a_header_that_makes_no_sense_leaves_as_one_that_does(
    fields: list[Any], expected: dict[str, Any]
) -> None:
    payload = encode(Described(ULong(0x70), fields)) + build("x")
    arrival(payload, 1)
    assert header(departure(payload, 1, b"")) == {**expected, "first_acquirer": False}


@pytest.mark.parametrize(
    "fields",
    [
        {"header": [None, None, ULong(2**64 - 1)]},
        {"header": [None, None, -(2**63)]},
        {"properties": [None] * 8 + [Timestamp(2**63 - 1)]},
    ],
)
def test_a_message_that_expires_in_another_age_never_does(fields: dict[str, list[Any]]) -> None:
    code = 0x70 if "header" in fields else 0x73
    payload = encode(Described(ULong(code), next(iter(fields.values())))) + build("x")
    assert arrival(payload, 1) == (payload, 0, 0)


def test_nothing_is_no_message_but_a_body_may_be_missing() -> None:
    with pytest.raises(ProtocolViolation):
        arrival(b"", 0)
    assert arrival(b"\x00\x53\x70\x45", 0) == (b"\x00\x53\x70\x45", 0, 0)


@given(
    st.dictionaries(
        st.sampled_from(["to", "subject", "message_id", "absolute_expiry_time", "creation_time"]),
        st.integers(FIRST_EXPIRY, 2 * FIRST_EXPIRY),
    )
)
def test_the_short_way_to_the_expiry_of_a_message_finds_what_the_long_one_does(
    given: dict[str, int],
) -> None:
    fields = {
        name: value if name.endswith("time") or name == "message_id" else str(value)
        for name, value in given.items()
    }
    payload = build("x", header={"durable": True}, properties=fields)
    assert arrival(payload, 5) == (payload, 1_000_000 * given.get("absolute_expiry_time", 0), 0)


def test_a_key_is_written_as_what_it_is_though_its_text_was_written_before() -> None:
    for key, code in (("key", 0xA1), (Symbol("key"), 0xA3), ("key", 0xA1), ("k" * 300, 0xB1)):
        raw = encode({key: 1})
        assert raw[9 if code == 0xB1 else 3] == code and decode(raw)[0] == {key: 1}
