"""What brokers say to each other, written and read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.ha.wire import (
    Answer,
    Ask,
    Begin,
    Chunk,
    Committed,
    Confirm,
    Logged,
    Message,
    SnapshotEnd,
    Status,
    Subscribe,
    TakenOver,
    TakeOver,
    decode,
    encode,
)
from qpidha.model.errors import ProtocolViolation
from qpidha.model.records import Batch

SPOKEN: list[Message] = [
    Status("id", "b1", "h:1", "ready", 3, 4, 99, 3, 2, ("id", "other"), True),
    Status("id", "b1", "h:1", "ready", 3, 4, 99, 3, 2, ("id", "other"), True, "manager"),
    Status(
        "id",
        "b1",
        "h:1",
        "ready",
        3,
        4,
        99,
        3,
        2,
        ("id", "other"),
        True,
        is_short=True,
        is_low=True,
    ),
    Status("id", "b1", "h:1", "joining", 0, 0, 0, 0, 0, (), False, is_new=True),
    Status("id", "b1", "h:1", "joining", 0, 0, 0, 0, 0, (), False, founders=("other",)),
    Ask(1, 5, "id", recorder="manager"),
    Ask(1, 5, "id"),
    Ask(2, 5, "id", 7, ("id", "other")),
    Answer(1, False, "epoch 5 is promised already"),
    TakeOver(1, 3, 99),
    TakenOver(1, 4),
    TakenOver(1, 0, "why not"),
    Subscribe(3, 99, 2, 80),
    Begin(3, 99, 120, True, [(1, 1), (3, 70)], 3, 2, ("id",)),
    Begin(3, 99, 120, False, [], 3, 2, ("id",), 10**18),
    SnapshotEnd(4, 130),
    Logged(7, Batch(3, 8, 12, True, (b"\x00records",))),
    Committed(12),
    Chunk(2, b"\xffrecords"),
    Confirm(3, 12, 2),
]


@pytest.mark.parametrize("message", SPOKEN, ids=lambda message: type(message).__name__)
def test_every_message_is_read_as_it_was_written(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary())
def test_anything_else_is_a_protocol_violation(data: bytes) -> None:
    try:
        decode(data)
    except ProtocolViolation:
        pass


@pytest.mark.parametrize(
    "text",
    [
        '{"say": "Ask", "nonce": "one"}',
        '{"say": "Ask", "nonce": 1, "epoch": -1}',
        '{"say": "Ask", "nonce": 1, "epoch": 9223372036854775808}',
        '{"say": "Ask", "nonce": 1, "epoch": 2, "candidate": "\\ud800"}',
        '{"say": "Answer", "nonce": 1, "granted": "yes"}',
        '{"say": "Subscribe", "epoch": null, "sequence": 1, "applied_epoch": 1, "applied": {}}',
        encode(Status("id", "b1", "h:1", "bogus", 3, 4, 99, 3, 2, (), False))[1:].decode(),
        encode(Begin(3, 99, 120, True, [], 3, 2, ()))[1:]
        .decode()
        .replace('"history": []', '"history": [[1]]'),
        "[" * 100_000,
    ],
)
def test_values_that_a_field_is_not_for_are_a_protocol_violation(text: str) -> None:
    with pytest.raises(ProtocolViolation):
        decode(b"J" + text.encode())


def test_what_came_later_is_said_only_where_its_absence_says_something_else() -> None:
    status = Status("id", "b1", "h:1", "ready", 3, 4, 99, 3, 2, ("id",), True)
    assert b"recorder" not in encode(status) and b"recorder" not in encode(Ask(1, 5, "id"))
    status.recorder = "manager"
    assert b'"recorder": "manager"' in encode(status) and b"is_short" not in encode(status)
    status.is_short = True
    assert b'"is_short": true' in encode(status) and b"is_low" not in encode(status)
