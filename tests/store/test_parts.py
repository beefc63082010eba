"""Batches in parts: large messages are referenced, and what is written is what always was."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qpidha.ha.wire import Logged, encode_logged
from qpidha.ha.wire import decode as decode_message
from qpidha.model.encoding import LARGE, Parts, gathered
from qpidha.model.errors import ProtocolViolation
from qpidha.model.records import Batch, Cause, QueueDeclared
from qpidha.store.codec import EnqueueRun, apart, decode, encode_enqueues, encode_record
from qpidha.store.frames import BATCH, decode_frame, encode_frame, frame_parts
from qpidha.store.log import Log

SIZES = (0, 1, 300, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE)


def entries(data: bytes | Parts) -> list[object]:
    """What records say, message by message."""
    found: list[object] = []
    for entry in decode(data):
        if isinstance(entry, EnqueueRun):
            expiries = entry.expiries or [0] * len(entry.sequences)
            columns = zip(entry.sequences, entry.payloads, expiries, strict=True)
            found += [(entry.queue, *each) for each in columns]
        else:
            found.append(entry)
    return found


def payload(number: int, size: int) -> bytes:
    """Bytes that no other message has."""
    return (b"%d," % number * (size // 2 + 1))[:size]


def written(log: Log) -> Batch:
    """Seal what is pending, and give it."""
    first = log.last + 1
    log.seal()
    (batch,) = log.batches(first)
    return batch


def on_backup(batch: Batch) -> Batch:
    """What a backup keeps of a batch that was sent to it."""
    message = decode_message(b"a head, " + b"".join(encode_logged(batch, 0)), 8)
    assert isinstance(message, Logged)
    log = Log(1 << 30)
    log.last = batch.first - 1
    log.receive(message.batch)
    (kept,) = log.batches(batch.first)
    return kept


STEPS = st.one_of(
    st.tuples(st.just("one"), st.integers(1, 2), st.sampled_from(SIZES), st.integers(0, 1)),
    st.tuples(st.just("shared"), st.sampled_from(SIZES), st.integers(0, 1)),
    st.tuples(st.just("numbered"), st.lists(st.sampled_from(SIZES), min_size=1, max_size=3)),
    st.tuples(st.just("gone"), st.integers(1, 2)),
    st.just(("declared",)),
)


@given(st.lists(STEPS, max_size=12))
@example([("numbered", [LARGE, 0, LARGE])])
def test_a_batch_in_parts_says_what_it_says_in_one_piece_and_a_backup_has_the_same(
    steps: list[Any],
) -> None:
    log = Log(1 << 30)
    log.last = log.committed = 1000
    expected: list[object] = []
    for number, step in enumerate(steps, 1):
        match step:
            case ("one", queue, size, expires):
                sequence = log.enqueue(queue, payload(number, size), expires)
                expected.append((queue, sequence, payload(number, size), expires))
            case ("shared", size, expires):
                log.enqueue_shared((1, 2), payload(number, size), expires)
            case ("numbered", sizes):
                bodies = [payload(number * 10 + at, size) for at, size in enumerate(sizes)]
                numbers = list(range(number * 10, number * 10 + len(sizes)))
                log.enqueue_numbered(3, numbers, bodies, [0] * len(sizes))
                expected += [(3, *each, 0) for each in zip(numbers, bodies, strict=True)]
            case ("gone", queue):
                log.dequeue(queue, number)
            case _:
                log.append(QueueDeclared("q", "uuid"))
    if not steps:
        return
    batch = written(log)
    found = entries(batch.parts)
    assert found == entries(batch.data)
    assert [each for each in found if isinstance(each[0], int) and len(each) == 4] == expected  # type: ignore[index, arg-type]
    kept = on_backup(batch)
    assert kept.data == batch.data and entries(kept.parts) == found
    assert all(isinstance(part, bytes) for part in kept.parts)


def test_a_large_message_is_referenced_by_batch_frame_and_transfer() -> None:
    log, body = Log(1 << 30), payload(1, LARGE)
    log.enqueue(7, body, 0)
    log.enqueue(7, b"small", 0)
    log.enqueue_shared((8, 9), body, 0)
    batch = written(log)
    for parts in (batch.parts, frame_parts(BATCH, batch.parts), gathered(encode_logged(batch, 0))):
        assert sum(part is body for part in parts) == 2
        assert len(parts) == 4


def test_a_backup_has_one_copy_of_a_large_message_for_log_and_queue() -> None:
    log = Log(1 << 30)
    for number in range(3):
        log.enqueue(7, payload(number, LARGE + number), 0)
    log.enqueue_shared((7, 8), payload(3, LARGE), 0)
    kept = on_backup(written(log))
    run, (_, shared) = decode(kept.parts)  # type: ignore[misc]
    assert all(any(part is body for part in kept.parts) for body in [*run.payloads, shared.payload])
    assert all(type(part) is bytes for part in kept.parts)


def test_small_messages_are_one_part() -> None:
    log = Log(1 << 30)
    for number in range(100):
        log.enqueue(7, payload(number, 500), 0)
    log.dequeue(7, 0, Cause.ACCEPTED)
    batch = written(log)
    assert len(batch.parts) == 1 and len(on_backup(batch).parts) == 1


def test_what_is_written_is_what_always_was() -> None:
    first, second = payload(1, LARGE), payload(2, LARGE + 1)
    log = Log(1 << 30)
    log.enqueue(7, first, 0)
    log.enqueue(7, second, 0)
    log.enqueue_shared((8,), first, 5)
    batch = written(log)
    run = struct.pack("<BqIB2Q2I", 1, 7, 2, 0, 1, 2, LARGE, LARGE + 1) + first + second
    shared = struct.pack("<BQIIQq", 4, 3, 1, LARGE, 5, 8) + first
    assert batch.data == run + shared
    assert b"".join(encode_logged(batch, 9)) == (
        struct.pack("<cQQQQ??", b"L", 9, 0, 1, 3, False, False) + run + shared
    )
    fields = {"salt": 77, "epoch": 2, "first": 1, "last": 3, "committed": 1}
    frame = b"".join(frame_parts(BATCH, batch.parts, **fields))
    assert frame == encode_frame(BATCH, batch.data, **fields)
    found = decode_frame(frame, salt=77)
    assert found is not None and found.data == batch.data


@given(st.lists(st.sampled_from((0, 1, LARGE - 1, LARGE)), max_size=6))
def test_only_neighbours_that_are_small_are_put_together(sizes: list[int]) -> None:
    parts = [payload(number, size) for number, size in enumerate(sizes)]
    found = gathered(parts)
    assert b"".join(found) == b"".join(parts)
    large = [part for part in parts if len(part) >= LARGE]
    assert [part for part in found if any(part is one for one in large)] == large
    assert len(found) <= 2 * sum(size >= LARGE for size in sizes) + 1


@pytest.mark.parametrize("change", ["swap", "drop", "half", "more"])
def test_parts_that_are_not_what_was_sealed_are_noticed_by_the_frame(change: str) -> None:
    log = Log(1 << 30)
    for number in range(2):
        log.enqueue(7, payload(number, LARGE), 0)
    batch = written(log)
    *parts, last = frame_parts(BATCH, batch.parts)
    wrong = {
        "swap": [*parts[:-1], last, parts[-1]],
        "drop": parts,
        "half": [*parts, last[: LARGE // 2]],
        "more": [*parts[:-1], last, last],
    }[change]
    frame = decode_frame(b"".join(wrong))
    assert frame is None


@pytest.mark.parametrize("lacking", [1, LARGE, LARGE + 3])
def test_a_message_that_is_cut_short_is_refused_in_parts_and_in_one_piece(lacking: int) -> None:
    data = encode_enqueues(7, [1, 2], [payload(1, LARGE), payload(2, LARGE)], [0, 0])[:-lacking]
    parts = apart((memoryview(data),), 1)
    assert b"".join(parts) == data
    for one in (data, parts, (data[:33], data[33:])):
        with pytest.raises(ProtocolViolation, match="cut short"):
            list(decode(one))


def test_empty_parts_say_nothing() -> None:
    record = encode_record(3, QueueDeclared("q", "uuid"))
    assert len(list(decode((b"", record, b"", record)))) == 2
