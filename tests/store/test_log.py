"""The log and its codec."""

from __future__ import annotations

import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model.errors import InvariantBroken, ProtocolViolation
from qpidha.model.records import (
    Batch,
    Bound,
    Dequeued,
    Enqueued,
    EpochStarted,
    InSyncChanged,
    PolicyCleared,
    QueueDeclared,
    Requeued,
)
from qpidha.store.codec import EnqueueRun, decode, encode_enqueues, encode_record
from qpidha.store.log import Log


def flat(data: bytes) -> list[object]:
    entries: list[object] = []
    for entry in decode(data):
        if isinstance(entry, EnqueueRun):
            entries += [
                ("enqueue", entry.queue, s, p)
                for s, p in zip(entry.sequences, entry.payloads, strict=True)
            ]
        else:
            entries.append(entry[1])
    return entries


RECORDS = st.one_of(
    st.builds(
        QueueDeclared,
        name=st.text(),
        uuid=st.text(),
        arguments=st.dictionaries(st.text(), st.integers() | st.text()),
    ),
    st.builds(Bound, exchange=st.integers(-5, 99), queue=st.integers(1, 99), key=st.text()),
    st.builds(
        Requeued,
        queue=st.integers(1, 99),
        sequence=st.integers(0, 2**60),
        delivery_count=st.integers(0, 99),
        annotations=st.binary(),
    ),
    st.builds(
        Dequeued,
        queue=st.integers(1, 99),
        sequences=st.lists(st.integers(0, 2**60)).map(tuple),
        cause=st.integers(0, 255),
    ),
    st.builds(
        Enqueued,
        queues=st.lists(st.integers(-9, 99)).map(tuple),
        payload=st.binary(),
        expires=st.integers(0, 2**60),
    ),
    st.builds(EpochStarted, primary=st.text(), members=st.lists(st.text()).map(tuple)),
    st.builds(InSyncChanged, version=st.integers(0, 99), members=st.lists(st.text()).map(tuple)),
)


@given(st.lists(RECORDS))
def test_every_record_comes_back_as_it_was_written(records: list[object]) -> None:
    data = b"".join(encode_record(sequence, record) for sequence, record in enumerate(records, 1))  # type: ignore[arg-type]
    assert flat(data) == records


@given(st.binary(max_size=60))
def test_bytes_that_are_no_records_are_refused_and_nothing_else(data: bytes) -> None:
    try:
        list(decode(data))
    except ProtocolViolation:
        pass


def test_runs_keep_sequences_and_expiries() -> None:
    (run,) = decode(encode_enqueues(7, [3, 9], [b"a", b"bc"], [0, 5]))
    assert isinstance(run, EnqueueRun)
    assert (run.queue, run.sequences, run.payloads, run.expiries) == (
        7,
        [3, 9],
        [b"a", b"bc"],
        [0, 5],
    )


def test_a_run_of_no_messages_is_refused() -> None:
    with pytest.raises(ProtocolViolation, match="no messages"):
        list(decode(encode_enqueues(7, [], [], [])))


def test_records_behind_a_run_of_one_message_are_read() -> None:
    data = encode_enqueues(7, [3], [b"abc"], [0]) + encode_record(4, Dequeued(7, (3,)))
    assert flat(data) == [("enqueue", 7, 3, b"abc"), Dequeued(7, (3,))]


def test_columns_are_turned_on_a_machine_with_the_other_order_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = encode_enqueues(7, [3, 4], [b"a", b"b"], [0, 0])
    assert struct.pack("<QQ", 3, 4) in here
    monkeypatch.setattr(sys, "byteorder", "little" if sys.byteorder == "big" else "big")
    there = encode_enqueues(7, [3, 4], [b"a", b"b"], [0, 0])
    assert struct.pack(">QQ", 3, 4) in there
    assert flat(there) == [("enqueue", 7, 3, b"a"), ("enqueue", 7, 4, b"b")]


def primary() -> Log:
    log = Log(1 << 20)
    log.start_epoch(1)
    return log


def test_a_turn_is_one_batch_in_order_and_dequeues_gather() -> None:
    log = primary()
    first = log.enqueue(7, b"a", 0)
    second = log.enqueue(7, b"b", 0)
    log.seal()
    log.committed = log.last
    log.dequeue(7, first)
    log.dequeue(7, second)
    log.enqueue(7, b"c", 0)
    log.seal()
    one, two = log.batches(1)
    assert flat(one.data) == [("enqueue", 7, 1, b"a"), ("enqueue", 7, 2, b"b")]
    assert flat(two.data) == [Dequeued(7, (1, 2)), ("enqueue", 7, 4, b"c")]
    assert (one.first, one.last, two.first, two.last) == (1, 2, 3, 4)


def test_each_batch_says_whether_it_is_control_and_durable() -> None:
    log = primary()
    log.enqueue(7, b"a", 0)
    log.seal()
    log.append(EpochStarted("a", ("a",)))
    log.seal()
    log.append(PolicyCleared("p", is_operator=False))
    log.seal()
    log.append(Bound(-2, 7, "k"))
    log.seal()
    log.must_sync = True
    log.append(Bound(-2, 7, "k"))
    log.seal()
    log.enqueue(7, b"b", 0)
    log.seal()
    assert [(batch.control, batch.durable) for batch in log.batches(1)] == [
        (False, False),
        (True, True),
        (False, True),
        (False, False),
        (False, True),
        (False, False),
    ]


def test_a_message_that_comes_and_goes_in_one_turn_leaves_no_trace() -> None:
    log = primary()
    sequence = log.enqueue(7, b"a", 0)
    assert log.dequeue(7, sequence) == sequence
    log.seal()
    (batch,) = log.batches(1)
    assert flat(batch.data) == []
    assert batch.last == sequence
    assert log.consumed == [sequence]


def test_a_part_of_what_is_pending_is_a_batch_that_ends_with_a_turn() -> None:
    log = primary()
    left = log.enqueue(7, b"left", 0)
    gone = log.enqueue(7, b"gone", 0)
    log.seal()
    log.committed = log.last
    first = log.enqueue(7, b"a", 0)
    log.dequeue(7, left)
    log.must_sync = True
    log.end_turn()
    through = log.end
    log.dequeue(7, gone)  # Of the next turn: in a record of its own.
    second = log.enqueue(7, b"four", 0)
    assert (log.first_unsealed(), log.unsealed, log.pending_bytes) == (first, 2, 5)
    log.seal(through)
    assert (log.last, log.end, log.has_pending, log.has_departures) == (through, second, True, True)
    assert (log.first_unsealed(), log.unsealed, log.pending_bytes) == (second, 1, 4)
    assert log.must_sync, "it is not known for which of them"
    log.dequeue(7, second)
    assert (log.unsealed, log.pending_bytes, log.consumed) == (0, 0, [second])
    assert log.first_unsealed() == log.end + 1
    log.seal()
    assert not log.must_sync and not log.has_departures
    _, one, two = log.batches(1)
    assert flat(one.data) == [("enqueue", 7, first, b"a"), Dequeued(7, (left,))]
    assert flat(two.data) == [Dequeued(7, (gone,))]
    assert (one.last, two.first, two.last) == (through, through + 1, second)


def test_no_part_is_sealed_of_what_has_more_than_messages_and_departures() -> None:
    log = primary()
    log.enqueue(7, b"a", 0)
    through = log.end
    log.append(Bound(-2, 7, "k"))
    with pytest.raises(InvariantBroken):
        log.seal(through)


def test_what_was_taken_out_does_not_count_as_pending() -> None:
    log = primary()
    log.dequeue(7, log.enqueue(7, b"many bytes", 0))
    assert log.pending_bytes == 0


def test_a_message_on_two_queues_is_not_taken_out_when_one_of_them_lets_it_go() -> None:
    log = primary()
    sequence = log.enqueue_shared((7, 8), b"a", 0)
    log.dequeue(7, sequence)
    log.seal()
    (batch,) = log.batches(1)
    assert flat(batch.data) == [Enqueued((7, 8), b"a", 0), Dequeued(7, (sequence,))]
    assert log.consumed == []


def test_dequeues_of_other_queues_do_not_mix() -> None:
    log = primary()
    sequences = [log.enqueue(queue, b"x", 0) for queue in (7, 8, 7)]
    log.seal()
    log.committed = log.last
    for queue, sequence in zip((7, 8, 7), sequences, strict=True):
        log.dequeue(queue, sequence)
    log.seal()
    assert flat(list(log.batches(4))[0].data) == [
        Dequeued(7, (1,)),
        Dequeued(8, (2,)),
        Dequeued(7, (3,)),
    ]


def test_old_batches_go_when_the_limit_is_passed_unless_they_are_needed() -> None:
    log = Log(1000)
    log.start_epoch(1)
    for _ in range(20):
        log.enqueue(7, b"x" * 100, 0)
        log.seal()
    assert 1 < log.start <= 20
    kept = log.start
    log.retain_from = kept
    for _ in range(20):
        log.enqueue(7, b"x" * 100, 0)
        log.seal()
    assert log.start == kept
    assert [batch.first for batch in log.batches(30)] == list(range(30, 41))


def test_a_backup_cuts_what_the_new_primary_has_not() -> None:
    log = Log(1 << 20)
    for first in (1, 3, 5):
        log.receive(Batch(1, first, first + 1, False, (b"",)))
    log.receive(Batch(2, 7, 9, False, (b"",)))
    assert (
        log.common_point(1, 100),
        log.common_point(1, 4),
        log.common_point(2, 8),
        log.common_point(3, 9),
    ) == (6, 4, 8, -1)
    log.cut(4)
    assert (log.epoch, log.last, log.history) == (1, 4, [(1, 1)])
    with pytest.raises(InvariantBroken):
        log.receive(Batch(1, 6, 7, False, (b"",)))


def test_a_message_that_somebody_waits_for_with_all_before_it_is_not_left_out() -> None:
    log = primary()
    log.enqueue(7, b"a", 0)
    last = log.enqueue(8, b"b", 0)
    assert log.all_so_far() == log.end == last
    log.dequeue(8, last)
    assert not log.consumed, "it would answer who waits for the first one too"
    log.seal()
    (batch,) = log.batches(1)
    assert flat(batch.data) == [("enqueue", 7, 1, b"a"), ("enqueue", 8, 2, b"b"), Dequeued(8, (2,))]
