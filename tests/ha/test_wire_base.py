"""What brokers say to each other has the words of commit 21a66c3, whatever the code calls them: a
broker of that version is a member of the same cluster.
"""

from __future__ import annotations

import json

import pytest

from qpidha.ha.wire import (
    Answer,
    Ask,
    Begin,
    Chunk,
    Committed,
    Confirm,
    Ignored,
    Message,
    SnapshotEnd,
    Status,
    Subscribe,
    TakenOver,
    TakeOver,
    decode,
    encode,
    encode_logged,
)
from qpidha.model.errors import ProtocolViolation
from qpidha.model.records import Batch

STATUS = Status("s", "n", "a:1", "ready", 3, 4, 5, 3, 1, ("s", "t"), True)
BEGIN = Begin(3, 9, 12, True, [(1, 1), (3, 8)], 3, 1, ("s",))
SAID: list[tuple[Message, str]] = [
    (
        STATUS,
        '{"say": "Status", "system_id": "s", "name": "n", "address": "a:1", "state": "ready", '
        '"epoch": 3, "promised": 4, "sequence": 5, "in_sync_epoch": 3, "in_sync_version": 1, '
        '"in_sync_members": ["s", "t"], "is_live": true}',
    ),
    (
        Ask(7, 2, "c", 1, ("c",)),
        '{"say": "Ask", "nonce": 7, "epoch": 2, "candidate": "c", "version": 1, "members": ["c"]}',
    ),
    (Answer(7, True, "r"), '{"say": "Answer", "nonce": 7, "granted": true, "reason": "r"}'),
    (TakeOver(7, 2, 9), '{"say": "TakeOver", "nonce": 7, "epoch": 2, "sequence": 9}'),
    (TakenOver(7, 3, ""), '{"say": "TakenOver", "nonce": 7, "epoch": 3, "reason": ""}'),
    (
        Subscribe(3, 9, 3, 8),
        '{"say": "Subscribe", "epoch": 3, "sequence": 9, "applied_epoch": 3, "applied": 8}',
    ),
    (
        BEGIN,
        '{"say": "Begin", "epoch": 3, "point": 9, "last": 12, "snapshot": true, "history": [[1, 1],'
        ' [3, 8]], "in_sync_epoch": 3, "in_sync_version": 1, "in_sync_members": ["s"]}',
    ),
    (SnapshotEnd(4, 12), '{"say": "SnapshotEnd", "chunks": 4, "through": 12}'),
]


@pytest.mark.parametrize(("message", "text"), SAID)
def test_a_message_is_written_as_the_base_writes_it(message: Message, text: str) -> None:
    assert encode(message) == b"J" + text.encode()
    assert decode(encode(message)) == message


def test_binary_messages_are_those_of_the_base() -> None:
    batch = Batch(3, 9, 12, True, (b"data",), False)
    written = [b"".join(encode_logged(batch, 8)), encode(Committed(8)), encode(Chunk(2, b"data"))]
    written.append(encode(Confirm(3, 9, 2)))
    assert [data.hex() for data in written] == [
        "4c0800000000000000030000000000000009000000000000000c00000000000000010064617461",
        "530800000000000000",
        "4b0200000064617461",
        "430300000000000000090000000000000002000000",
    ]


def with_fields(message: Message, **more: object) -> bytes:
    return b"J" + json.dumps({**json.loads(encode(message)[1:]), **more}).encode()


@pytest.mark.parametrize("message", [message for message, _ in SAID])
def test_a_field_of_a_later_version_is_left_out_of_account(message: Message) -> None:
    assert decode(with_fields(message, is_complete=False, later=[1])) == message


def test_a_message_of_a_later_version_is_ignored_if_it_says_so_and_else_refused() -> None:
    assert decode(b'J{"say": "Later", "ignorable": true, "x": 1}') == Ignored("Later")
    for text in ('{"say": "Later"}', '{"say": "Later", "ignorable": 1}', '{"say": ["Later"]}'):
        with pytest.raises(ProtocolViolation):
            decode(b"J" + text.encode())
