"""Messages of the client: what is made comes back the same, in every section."""

from __future__ import annotations

from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.client.message import Header, MalformedMessage, Message, Outcome, Properties, payload_of
from qpidha.model.encoding import Symbol, ULong


def everything() -> Message:
    return Message(
        [1, "two", b"three"],
        kind="sequence",
        durable=True,
        priority=7,
        ttl=2.5,
        message_id=12,
        user_id=b"ann",
        to="q",
        subject="s",
        reply_to="r",
        correlation_id="c",
        content_type="text/plain",
        content_encoding="gzip",
        absolute_expiry_time=1_700_000_000.25,
        creation_time=1_700_000_000.5,
        group_id="g",
        group_sequence=3,
        reply_to_group_id="rg",
        application_properties={"a": 1, "b": True},
        message_annotations={"x-opt-a": 1},
        delivery_annotations={"x-opt-d": "d"},
        footer={"sum": b"\0"},
    )


def test_every_section_comes_back() -> None:
    again = Message.decode(everything().encode())
    assert again.header == Header(True, 7, 2.5)
    assert again.properties == Properties(
        12, b"ann", "q", "s", "r", "c", "text/plain", "gzip", 1_700_000_000.25, 1_700_000_000.5,
        "g", 3, "rg",
    )  # fmt: skip
    assert isinstance(again.properties.message_id, ULong)
    assert (again.body, again.kind) == ([1, "two", b"three"], "sequence")
    assert again.application_properties == {"a": 1, "b": True}
    assert again.message_annotations == {"x-opt-a": 1}
    assert all(isinstance(name, Symbol) for name in again.message_annotations)
    assert again.delivery_annotations == {"x-opt-d": "d"}
    assert again.footer == {"sum": b"\0"}
    assert again.encode() == everything().encode()


def test_another_library_reads_the_same() -> None:
    found = proton.Message()
    found.decode(everything().encode())
    assert (found.durable, found.priority, found.ttl) == (True, 7, 2.5)
    assert (found.id, found.address, found.subject, found.reply_to) == (12, "q", "s", "r")
    assert (found.creation_time, found.expiry_time) == (1_700_000_000.5, 1_700_000_000.25)
    assert found.properties == {"a": 1, "b": True}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES)
def test_any_body_comes_back(body: Any) -> None:
    again = Message.decode(Message(body).encode())
    assert again.body == body
    assert again.kind == ("data" if isinstance(body, bytes) else "value")


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bytes_of_any_length_come_back(size: int) -> None:
    body = b"x" * size
    assert Message.decode(payload_of(body)).body == body
    assert payload_of(body) == Message(body).encode()


def test_a_message_is_decoded_when_it_is_looked_into() -> None:
    broken = Message.decode(b"\0\x53\x75\xa0\x09short")
    assert broken.encode()
    with pytest.raises(MalformedMessage):
        _ = broken.body


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\x53\x70\xa1\x01x",
        b"\0\x53\x73\xc0\x04\x01\x83\0",
        b"\0\x53\x99\x40",
        b"garbage",
        pytest.param(b"\0\x53\x70\xc0\x05\x02\x41\xa1\x01x", id="priority is a word"),
        pytest.param(b"\0\x53\x70\xc0\x07\x02\x41\x72\x7f\x80\0\0", id="priority is infinite"),
        pytest.param(b"\0\x53\x76\x54\x07", id="sequence is a number"),
        pytest.param(b"\0\x53\x76\xa1\x02ab", id="sequence is a string"),
        pytest.param(b"\0\x53\x75\xa1\x01x", id="data is a string"),
    ],
)
def test_bytes_that_are_no_message_are_told(raw: bytes) -> None:
    if not raw:
        assert Message.decode(raw).body is None
        return
    with pytest.raises(MalformedMessage):
        _ = Message.decode(raw).properties


def test_a_received_message_can_be_changed_and_sent_on() -> None:
    message = Message.decode(Message(b"a", subject="s").encode())
    message.body = "b"
    message.properties.subject = "t"
    message.application_properties["hops"] = 1
    again = Message.decode(message.encode())
    assert (again.body, again.kind, again.properties.subject) == ("b", "value", "t")
    assert again.application_properties == {"hops": 1}


@pytest.mark.parametrize("wrong", [{"subjet": "x"}, {"kind": "blob"}])
def test_a_name_that_no_section_has_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        Message("x", **wrong)


def test_what_cannot_be_sent_is_refused() -> None:
    with pytest.raises(TypeError):
        payload_of(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Message(object()).encode()
    with pytest.raises(ValueError, match="over before it begins"):
        Message("x", ttl=-1).encode()


def test_an_outcome_reads_well() -> None:
    assert str(Outcome("accepted")) == "accepted"
    assert str(Outcome("rejected", "amqp:not-found", "gone")) == "rejected (amqp:not-found: gone)"
