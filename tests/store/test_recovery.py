"""A broker model written as records and folded again is the same model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.policy import policy_asked_for
from qpidha.broker.queues import recall
from qpidha.broker.queues.queue import Queue
from qpidha.model.errors import ProtocolViolation
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.message_view import build
from qpidha.model.records import EpochStarted, InSyncChanged, QueueDeclared, Record
from qpidha.model.settings import Settings
from qpidha.store import recovery
from qpidha.store.codec import EnqueueRun, decode, encode_enqueues, encode_record
from qpidha.store.log import Log
from qpidha.store.recovery import fold, ha_records, snapshot_messages, snapshot_objects

SETTINGS = Settings(ha_replicate="all")


def a_primary() -> tuple[Broker, Log]:
    log = Log(1 << 24)
    log.start_epoch(1)
    numbers = count(1)
    return Broker(SETTINGS, log, lambda effect: None, lambda: f"uuid-{next(numbers)}"), log


def a_backup() -> Broker:
    broker = Broker(SETTINGS, None, lambda effect: None, lambda: "never")
    broker.passive = True
    return broker


def picture(broker: Broker) -> object:
    return (
        sorted(repr(record) for _, record in broker.objects()),
        {
            name: [
                (m.sequence, m.payload, m.delivery_count, m.annotations)
                for m in broker.messages_after(queue, 0, 1 << 40)
            ]
            for name, queue in sorted(broker.queues.items())
        },
    )


def fill(broker: Broker) -> None:
    broker.declare_exchange("ex", "fanout")
    for name in ("a", "b"):
        broker.declare_queue(name)
        broker.bind("ex", name)
    for number in range(20):
        broker.publish("ex", "", b"shared %d" % number, headers=dict)
        broker.publish("", "a", b"own %d" % number, headers=dict, expires=number)
    queue = broker.queue("a")
    first = queue.messages[min(queue.messages)]
    queue.acquire(first)
    queue.requeue(first, True, b"annotations")
    second = queue.messages[sorted(queue.messages)[1]]
    queue.acquire(second)
    queue.dequeue(second)


def test_folding_the_log_gives_the_same_model() -> None:
    broker, log = a_primary()
    fill(broker)
    log.seal()
    backup = a_backup()
    for batch in log.batches(1):
        fold(backup, batch.data)
    assert picture(backup) == picture(broker)


def test_messages_in_a_row_on_the_same_queues_come_to_each_of_them_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    primary, log = a_primary()
    primary.declare_exchange("ex", "direct")
    for name in ("a", "b", "c"):
        primary.declare_queue(name)
        primary.bind("ex", name, "all")
        if name != "c":
            primary.bind("ex", name, "some")
    for key, number in [(key, number) for key in ("all", "some", "all") for number in range(10)]:
        primary.publish("ex", key, b"%d" % number, headers=dict, expires=number % 3)
    for message in primary.queue("b").available():
        primary.queue("b").dequeue(message)
    primary.publish("ex", "all", b"after that", headers=dict)
    log.seal()
    runs: list[int] = []
    insert_run = Queue.insert_run

    def counted(queue: Queue, sequences: list[int], *columns: list[Any]) -> None:
        runs.append(len(sequences))
        insert_run(queue, sequences, *columns)

    monkeypatch.setattr(Queue, "insert_run", counted)
    backup = a_backup()
    for batch in log.batches(1):
        fold(backup, batch.data)
    assert runs == [10] * 8 + [1] * 3
    assert picture(backup) == picture(primary)
    assert [m.expires for m in backup.queue("a").available()[:4]] == [0, 1, 2, 0]


def test_folding_a_snapshot_gives_the_same_model() -> None:
    broker, log = a_primary()
    fill(broker)
    log.seal()
    backup = a_backup()
    for chunk in (*snapshot_objects(broker), *snapshot_messages(broker, log.last)):
        fold(backup, chunk, is_snapshot=True)
    assert picture(backup) == picture(broker)


def test_a_snapshot_with_live_records_beside_it_misses_and_doubles_nothing() -> None:
    broker, log = a_primary()
    broker.declare_queue("q")
    for number in range(50):
        broker.publish("", "q", b"%d" % number * 20_000, headers=dict)
    log.seal()
    last = log.last
    backup = a_backup()
    for chunk in snapshot_objects(broker):
        fold(backup, chunk, is_snapshot=True)
    for step, chunk in enumerate(snapshot_messages(broker, last)):
        queue = broker.queue("q")
        for sequence in sorted(queue.messages)[1:4]:  # some that were copied, some that were not
            queue.dequeue(queue.messages[sequence])
        broker.publish("", "q", b"new %d" % step, headers=dict)
        log.seal()
        fold(backup, chunk, is_snapshot=True)
    for batch in log.batches(last + 1):
        fold(backup, batch.data)
    assert picture(backup) == picture(broker)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_snapshot_of_a_queue_that_still_learns_its_keys_has_those_that_it_learnt(
    monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    monkeypatch.setattr(recall, "READ_A_TURN", 1)
    broker, log = a_primary()
    queue, _ = broker.declare_queue("q")
    keys = "abcd"
    sequences = [queue.enqueue(build("", properties={"message_id": key})) for key in keys]
    log.seal()
    broker.features[QUEUE_KINDS] = log.last
    broker.set_policy(policy_asked_for("p", "q", {"dedup": "message-id", "dedup_window": 3}))
    log.seal()
    broker.go_on_walking(log.last)
    log.seal()
    backup = a_backup()
    for chunk in (*snapshot_objects(broker), *snapshot_messages(broker, log.last)):
        fold(backup, chunk, is_snapshot=True)
    # A failover in the middle leaves the rest unknown; so does a message that leaves before its
    # turn. Who knew more would, with a short window, forget what the others know.
    if leaves:
        through = log.last
        queue.dequeue(queue.messages[sequences[-1]])
        while broker.walks:
            log.seal()
            broker.go_on_walking(log.last)
        log.seal()
        for batch in log.batches(through + 1):
            fold(backup, batch.data)
    assert picture(backup) == picture(broker)


def test_queues_without_messages_are_passed_over_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qpidha.store.recovery.QUEUES_AT_ONCE", 2)
    broker, log = a_primary()
    for name in "abcdefg":
        broker.declare_queue(name)
    broker.publish("", "d", b"here", headers=dict)
    log.seal()
    parts = list(snapshot_messages(broker, log.last))
    assert [bool(part) for part in parts] == [False, True, False]


def test_records_of_the_cluster_are_picked_out_and_change_no_model() -> None:
    broker, log = a_primary()
    log.append(EpochStarted("id", ("id",)))
    broker.declare_queue("q")
    log.append(InSyncChanged(1, ("id", "other")))
    log.seal()
    (batch,) = log.batches(1)
    assert batch.control
    assert [record for _, record in ha_records(batch.data)] == [
        EpochStarted("id", ("id",)),
        InSyncChanged(1, ("id", "other")),
    ]
    backup = a_backup()
    fold(backup, batch.data)
    assert picture(backup) == picture(broker)


def test_a_run_of_no_messages_is_no_record() -> None:
    with pytest.raises(ProtocolViolation, match="a run of no messages"):
        fold(a_backup(), encode_enqueues(1, [], [], []))


def test_faults_b8a_a_record_that_cannot_be_applied_is_a_fault_of_its_sender() -> None:
    record = QueueDeclared("q", "u", arguments={"qpid.max_count": "many"})
    with pytest.raises(ProtocolViolation, match="a record cannot be applied: ValueError"):
        fold(a_backup(), encode_record(1, record))


def test_a_message_that_travels_alone_arrives_as_it_was() -> None:
    for expiries in ([0], [7]):
        data = encode_enqueues(1, [3], [b"body"], expiries) * 2
        runs = [entry for entry in decode(data) if isinstance(entry, EnqueueRun)]
        assert [(run.queue, run.sequences, run.payloads, run.expiries) for run in runs] == [
            (1, [3], [b"body"], [7] * any(expiries))
        ] * 2
        for end in range(1, len(data) // 2):
            with pytest.raises(ProtocolViolation):
                list(decode(data[:end]))


def test_performance_4_no_more_objects_are_looked_at_than_a_chunk_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "CHUNK", 1000)
    broker, _ = a_primary()
    for number in range(100):
        broker.declare_queue(f"q{number}", arguments={"note": "x" * 100})
    looked_at: list[object] = []

    take = broker.objects

    def objects() -> Iterator[tuple[int, Record]]:
        for entry in take():
            looked_at.append(entry)
            yield entry

    monkeypatch.setattr(broker, "objects", objects)
    chunk = next(snapshot_objects(broker))
    assert len(looked_at) == len(list(decode(chunk))) < 10


def change(broker: Broker, chance: Random) -> None:
    """Declare, delete, bind, unbind, send or consume something, or none of these."""
    queue, exchange = f"q{chance.randrange(4)}", f"e{chance.randrange(2)}"
    what = chance.randrange(7)
    if what == 0:
        broker.declare_exchange(exchange, "topic")
    elif what == 1 and exchange in broker.exchanges:
        broker.delete_exchange(exchange)
    elif what == 2 and queue in broker.queues:
        broker.delete_queue(queue)
    elif what == 3 and queue in broker.queues and exchange in broker.exchanges:
        broker.unbind(exchange, queue, "key")
    elif what == 4 and queue in broker.queues and broker.queues[queue].messages:
        broker.queues[queue].drop(broker.queues[queue].available()[:2])
    else:
        broker.declare_queue(
            queue, arguments={"qpidha.dedup": "message-id", "qpidha.dedup_window": 5}
        )
        broker.declare_exchange(exchange, "topic")
        if what == 5:
            note = f"{chance.random()}"
            broker.bind(exchange, queue, "key", {"note": note})
        else:
            payload = build("", properties={"message_id": chance.randrange(1000)})
            broker.publish("", queue, payload, headers=dict)


@pytest.mark.parametrize("seed", range(20))
def test_objects_that_change_between_chunks_are_as_the_log_has_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "CHUNK", 1)
    monkeypatch.setattr("qpidha.broker.state.KEYS_IN_RECORD", 2)
    chance = Random(seed)
    broker, log = a_primary()
    for _ in range(60):
        change(broker, chance)
    log.seal()
    point = log.last
    backup = a_backup()
    for chunk in snapshot_objects(broker):
        fold(backup, chunk, is_snapshot=True)
        for _ in range(chance.randrange(4)):
            change(broker, chance)
        log.seal()
    for chunk in snapshot_messages(broker, point):
        fold(backup, chunk, is_snapshot=True)
    for batch in log.batches(point + 1):
        fold(backup, batch.data)
    assert picture(backup) == picture(broker)
