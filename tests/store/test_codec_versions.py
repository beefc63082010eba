"""The codec between versions: what a later version adds is kept or passed over, and what may not be
left out of account is refused by its name.
"""

from __future__ import annotations

import json
import struct

import pytest

from qpidha.model.errors import ProtocolViolation
from qpidha.model.features import DEPARTURE_CAUSES
from qpidha.model.records import (
    Bound,
    Cause,
    Dequeued,
    Enqueued,
    EpochStarted,
    FeatureEnabled,
    QueueDeclared,
    Requeued,
    Unknown,
)
from qpidha.store.codec import (
    CHECKS,
    OTHER,
    OTHER_HEAD,
    EnqueueRun,
    decode,
    encode_dequeues,
    encode_enqueues,
    encode_record,
)
from qpidha.store.log import Log


def as_json(fields: dict[str, object], sequence: int = 1) -> bytes:
    text = json.dumps(fields).encode()
    return OTHER_HEAD.pack(OTHER, sequence, len(text)) + text


# What commit 21a66c3 wrote, byte for byte: while no feature is in use nothing else may be written.
BASE = {
    "0107000000000000000100000000030000000000000001000000780107000000000000000100000001040000000000"
    "0000010000000900000000000000"
    "79": lambda: encode_enqueues(7, [3], [b"x"], [0]) + encode_enqueues(7, [4], [b"y"], [9]),
    "020700000000000000020000000003000000000000000400000000000000": lambda: encode_dequeues(
        7, [3, 4]
    ),
    "0307000000000000000300000000000000020000000100000061": lambda: encode_record(
        5, Requeued(7, 3, 2, b"a")
    ),
    "0405000000000000000200000001000000000000000000000007000000000000000800000000000000"
    "78": lambda: encode_record(5, Enqueued((7, 8), b"x", 0)),
}


@pytest.mark.parametrize("written", list(BASE))
def test_without_features_the_bytes_are_those_of_the_base(written: str) -> None:
    assert BASE[written]().hex() == written


def test_records_in_json_are_those_of_the_base_as_well() -> None:
    started = encode_record(1, EpochStarted("a", ("a", "b")))
    assert started[OTHER_HEAD.size :] == (
        b'{"record":"EpochStarted","primary":"a","members":["a","b"]}'
    )


def test_a_column_of_a_later_version_is_passed_over() -> None:
    head = struct.pack("<BqIB", 1, 7, 2, 1 | 4 | 128)
    columns = struct.pack("<QQIIQQ", 3, 4, 1, 2, 0, 9)
    later = struct.pack("<I", 5) + b"12345" + struct.pack("<I", 0)
    first, second = decode(head + columns + later + b"xyz" + encode_dequeues(7, [3]))
    assert isinstance(first, EnqueueRun)
    assert (first.sequences, first.payloads, first.expiries) == ([3, 4], [b"x", b"yz"], [0, 9])
    assert second == (0, Dequeued(7, (3,)))


def test_a_single_message_with_a_later_column_is_read_as_well() -> None:
    head = struct.pack("<BqIB", 1, 7, 1, 2)
    (run,) = decode(head + struct.pack("<QI", 3, 1) + struct.pack("<I", 1) + b"!" + b"x")
    assert isinstance(run, EnqueueRun) and run.payloads == [b"x"] and run.expiries == []


@pytest.mark.parametrize("missing", [1, 2, 5])
def test_a_later_column_that_is_cut_short_is_refused(missing: int) -> None:
    head = struct.pack("<BqIB", 2, 7, 1, 4)
    data = head + struct.pack("<Q", 3) + struct.pack("<I", 2) + b"ab"
    with pytest.raises(ProtocolViolation):
        list(decode(data[:-missing]))


def test_a_cause_comes_back_and_so_does_one_that_nobody_knows_yet() -> None:
    data = encode_dequeues(7, [3], Cause.EXPIRED) + encode_dequeues(7, [4, 5], 200)
    assert list(decode(data)) == [
        (0, Dequeued(7, (3,), Cause.EXPIRED)),
        (0, Dequeued(7, (4, 5), 200)),
    ]


def test_a_message_that_is_due_later_comes_back() -> None:
    records = [Requeued(7, 3, 2, b"abc", 10**18), Requeued(7, 4, 0, b"", 5), Requeued(7, 5, 1)]
    data = b"".join(encode_record(9, record) for record in records)
    assert list(decode(data)) == [(0, record) for record in records]
    with pytest.raises(ProtocolViolation):
        list(decode(encode_record(9, records[0])[:-1]))


def test_fields_of_a_later_version_are_kept_and_written_again() -> None:
    fields = {"record": "QueueDeclared", "name": "q", "uuid": "u", "shards": 3, "later": "word"}
    ((sequence, record),) = decode(as_json(fields, 9))  # type: ignore[misc]
    assert isinstance(record, QueueDeclared)
    assert record.later == {"shards": 3, "later": "word"}
    again = json.loads(encode_record(sequence, record)[OTHER_HEAD.size :])
    assert again == {**again, **fields}
    assert list(decode(encode_record(sequence, record))) == [(sequence, record)]


def test_an_ignorable_record_of_a_later_version_is_kept_and_written_again() -> None:
    fields = {"record": "ShardMoved", "ignorable": True, "shard": 3}
    data = as_json(fields, 9)
    ((sequence, record),) = decode(data)  # type: ignore[misc]
    assert record == Unknown(fields)
    assert list(decode(encode_record(sequence, record))) == [(9, record)]


@pytest.mark.parametrize("mark", [{}, {"ignorable": False}, {"ignorable": "yes"}])
def test_any_other_record_of_a_later_version_is_refused_by_its_name(
    mark: dict[str, object],
) -> None:
    with pytest.raises(ProtocolViolation, match="this version knows no record 'ShardMoved'"):
        list(decode(as_json({"record": "ShardMoved", **mark})))


@pytest.mark.parametrize("text", [b"[]", b'{"record":[]}', b'{"record":"Bound"}', b"3", b"{}"])
def test_json_that_is_no_record_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        list(decode(OTHER_HEAD.pack(OTHER, 1, len(text)) + text))


def log_with(features: frozenset[str]) -> Log:
    log = Log(1 << 20)
    log.start_epoch(1)
    log.features = features
    for _ in range(6):
        log.enqueue(7, b"x", 0)
    log.seal()
    log.append(Bound(-2, 7, "k"))
    log.committed = log.last
    return log


def departures(log: Log) -> list[object]:
    log.dequeue(7, 1)
    log.dequeue(7, 2, Cause.EXPIRED)
    log.dequeue(7, 3, Cause.EXPIRED)
    log.dequeue(7, 4, Cause.REJECTED)
    log.dequeue(7, 5)
    log.dequeue_many(7, [6], Cause.PURGED)
    log.seal()
    (*_, batch) = log.batches(1)
    return [entry[1] for entry in decode(batch.data) if isinstance(entry, tuple)]


def test_causes_are_left_out_while_the_feature_is_not_in_use() -> None:
    log = log_with(frozenset())
    assert departures(log)[1:] == [Dequeued(7, (1, 2, 3, 4, 5)), Dequeued(7, (6,))]


def test_departures_gather_by_their_cause_when_it_is() -> None:
    log = log_with(frozenset((DEPARTURE_CAUSES,)))
    assert departures(log)[1:] == [
        Dequeued(7, (1,)),
        Dequeued(7, (2, 3), Cause.EXPIRED),
        Dequeued(7, (4,), Cause.REJECTED),
        Dequeued(7, (5,)),
        Dequeued(7, (6,), Cause.PURGED),
    ]


def test_a_feature_that_is_enabled_comes_back() -> None:
    record = FeatureEnabled(DEPARTURE_CAUSES)
    assert list(decode(encode_record(4, record))) == [(4, record)]


MALFORMED = [
    (kind, name, wrong)
    for kind, checks in CHECKS.items()
    for name in checks
    for wrong in (None, [["x"]], {"x": 1}, 1.5)
    if not (wrong == {"x": 1} and checks[name](wrong))
]


@pytest.mark.parametrize(("kind", "name", "wrong"), MALFORMED)
def test_faults_b8a_a_record_with_a_wrong_type_is_refused(
    kind: type, name: str, wrong: object
) -> None:
    right = {
        field: {"int": 1, "str": "x", "bool": True, "dict[str, Any]": {}}.get(str(one.type), [])
        for field, one in kind.__dataclass_fields__.items()  # type: ignore[attr-defined]
        if field != "later"
    }
    list(decode(as_json({"record": kind.__name__, **right})))
    with pytest.raises(ProtocolViolation, match=f"{name} of {kind.__name__}"):
        list(decode(as_json({"record": kind.__name__, **right, name: wrong})))
