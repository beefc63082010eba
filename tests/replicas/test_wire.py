"""What replicas and sources say: written and read again, and what is none of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model.errors import ProtocolViolation
from qpidha.model.records import QueueDeleted, Requeued
from qpidha.replicas.replica import _read
from qpidha.replicas.source import Home, Stream
from qpidha.replicas.wire import (
    RANGES_AT_ONCE,
    Begin,
    Changes,
    Confirm,
    Follow,
    Held,
    Refused,
    decode,
    encode,
    held_of,
)
from qpidha.store.codec import encode_dequeues, encode_enqueues, encode_record

MESSAGE = b"\x00\x53\x75\xa0\x01x"
SAID = [
    Follow("q", "uuid", "epoch:3", 17),
    Follow("q"),
    Held([(1, 3), (7, 7)], is_last=True),
    Held([], is_last=False),
    Begin("uuid"),
    Refused("gone", "there is no queue q"),
    Changes(4, "life:ü", 9, True, 2, 1_000, b"data"),
    Confirm(12),
]


@pytest.mark.parametrize("message", SAID)
def test_what_is_written_is_read_again(message: Any) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=60))
def test_anything_else_is_refused_and_breaks_nothing(data: bytes) -> None:
    for kind in (b"", b"D", b"C", b"H", b"J"):
        try:
            decode(kind + data)
        except ProtocolViolation:
            pass


@pytest.mark.parametrize(
    "text",
    [
        '{"say": "Follow", "queue": 5}',
        '{"say": "Follow", "queue": "q", "position": -1}',
        '{"say": "Follow", "queue": "q", "position": true}',
        '{"say": "Follow"}',
        '{"say": "Else"}',
        "[]",
        "5",
    ],
)
def test_a_wrong_field_is_refused(text: str) -> None:
    with pytest.raises(ProtocolViolation):
        decode(b"J" + text.encode())


def test_a_later_field_is_left_out_of_account() -> None:
    assert decode(b'J{"say": "Begin", "uuid": "u", "more": 1}') == Begin("u")


@pytest.mark.parametrize("ranges", [[(3, 2)], [(0, 1)], [(1, 5), (5, 6)], [(1, 1 << 63)]])
def test_ranges_that_do_not_rise_are_refused(ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(ProtocolViolation):
        decode(encode(Held(ranges, is_last=True)))


@given(st.sets(st.integers(1, 200)))
def test_ranges_say_which_numbers_are_held(numbers: set[int]) -> None:
    parts = held_of(sorted(numbers))
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    told = [n for part in parts for first, last in part.ranges for n in range(first, last + 1)]
    assert told == sorted(numbers)


def test_many_ranges_take_several_messages() -> None:
    parts = held_of(range(1, 4 * RANGES_AT_ONCE, 2))
    assert len(parts) == 2 and max(len(part.ranges) for part in parts) == RANGES_AT_ONCE


def changes(data: bytes, position: int = 10) -> Changes:
    return Changes(1, "epoch:1", position, False, 0, 0, data)


def test_what_a_source_sends_is_looked_at_before_anything_is_done() -> None:
    good = encode_enqueues(0, [3, 7], [MESSAGE, MESSAGE], [0, 0])
    good += encode_record(0, Requeued(0, 3, 1)) + encode_dequeues(0, [1, 2])
    assert len(_read(changes(good))) == 3
    for bad in (
        encode_enqueues(0, [7, 3], [MESSAGE, MESSAGE], [0, 0]),
        encode_enqueues(0, [3, 3], [MESSAGE, MESSAGE], [0, 0]),
        encode_enqueues(0, [11], [MESSAGE], [0]),
        encode_enqueues(0, [0], [MESSAGE], [0]),
        encode_enqueues(0, [3], [b"no message"], [0]),
        encode_record(0, Requeued(0, 3, 1, b"no map")),
        encode_record(1, QueueDeleted(5)),
        good[:-1],
        b"\xff",
    ):
        with pytest.raises(ProtocolViolation):
            _read(changes(bad))
    with pytest.raises(ProtocolViolation):
        _read(changes(encode_enqueues(0, [1 << 62], [MESSAGE], [0]), position=(1 << 63) - 1))


class Anyone:
    """A node and a queue that are asked for nothing."""

    now = 0
    flow_messages = 1
    logged = True

    last_number = 0

    def home_of(self, queue: Any) -> Home:
        return Home.LOG

    def end_of(self, queue: Any) -> int:
        return 0


def test_a_replica_that_says_what_cannot_be_is_refused() -> None:
    def stream() -> Stream:
        return Stream(Anyone(), Anyone(), Follow("q", "u", "epoch:1", 10), "peer")  # type: ignore[arg-type]

    for wrong in (
        [Held([(5, 11)], is_last=True)],
        [Held([(5, 5)], is_last=False), Held([(4, 4)], is_last=True)],
        [Held([], is_last=True), Held([(1, 1)], is_last=True)],
    ):
        with pytest.raises(ProtocolViolation):
            follower = stream()
            for held in wrong:
                follower.hold(held)
    with pytest.raises(ProtocolViolation):
        stream().confirm(Confirm(1))
