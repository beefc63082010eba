"""Migration: what a message is known by, what goes on, and what a note keeps."""

from __future__ import annotations

import pytest

from qpidha.client.message import Message
from qpidha.model.encoding import sections
from qpidha.model.errors import ProtocolViolation
from qpidha.tools.migration import DIGEST, Note, fingerprint, forwarded, note_queue


def test_a_message_is_known_though_brokers_wrote_on_it() -> None:
    one = Message(b"x", message_id="a", message_annotations={"x-opt-a": 1}, priority=3)
    other = Message(
        b"x",
        message_id="a",
        message_annotations={"x-opt-a": 2},
        delivery_annotations={"x-opt-b": 2},
        application_properties={"x-delivery-count": 1},
        ttl=3.0,
    )
    assert fingerprint(one.encode()) == fingerprint(other.encode())
    assert len(fingerprint(one.encode())) == DIGEST


@pytest.mark.parametrize(
    "other",
    [
        Message(b"y", message_id="a"),
        Message(b"x", message_id="b"),
        Message(b"x", message_id="a", subject="s"),
        Message("x", message_id="a"),
        Message(b"x", message_id="a", footer={"f": 1}),
    ],
)
def test_another_message_is_another_one(other: Message) -> None:
    assert fingerprint(other.encode()) != fingerprint(Message(b"x", message_id="a").encode())


def test_what_is_no_message_has_no_fingerprint() -> None:
    with pytest.raises(ProtocolViolation):
        fingerprint(b"\x00\x53\x99\x40")


def test_only_delivery_annotations_do_not_go_on() -> None:
    given = Message(
        b"x", durable=True, delivery_annotations={"d": 1}, message_annotations={"x-a": 1}
    ).encode()
    sent = forwarded(given)
    assert [code for code, *_ in sections(sent)] == [0x70, 0x72, 0x75]
    assert Message.decode(sent).message_annotations == {"x-a": 1}
    assert forwarded(sent) == sent and forwarded(b"") == b""


def test_a_note_is_read_as_it_was_written() -> None:
    marks = [number.to_bytes(DIGEST, "big") for number in range(500)]
    note = Note(moved=7000, known=3, perhaps_twice=1, marks=marks)
    assert Note.read(Message.decode(note.message().encode())) == note


@pytest.mark.parametrize("message", [Message("text"), Message(b"odd"), Message(b"x" * DIGEST)])
def test_what_is_no_note_is_not_read(message: Message) -> None:
    with pytest.raises((KeyError, ValueError)):
        Note.read(message)


def test_each_queue_of_each_source_has_its_notes() -> None:
    names = {
        note_queue("a:1", "q", "q"),
        note_queue("a:2", "q", "q"),
        note_queue("a:1", "r", "q"),
        note_queue("a:1", "q", "r"),
    }
    assert len(names) == 4 and note_queue("a:1", "q", "q") in names
