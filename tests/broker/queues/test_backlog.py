"""Backlogs: messages whose bytes are elsewhere are messages like others, and take little memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.broker import Broker
from qpidha.broker.policy import policy_asked_for
from qpidha.broker.queues.queue import Queue
from qpidha.model.message_view import build
from qpidha.model.records import QueueDeclared
from tests.broker.parts import (
    Reels,
    Taker,
    Tape,
    a_broker,
    a_taker,
    contents,
    copy_of,
    expire,
    picture,
    remembered,
    send,
)


def a_long_queue(tape: Tape, *bodies: str, **settings: object) -> tuple[Broker, Queue]:
    broker = a_broker(tape, **settings)
    queue, _ = broker.declare_queue("q")
    send(broker, "q", *bodies)
    return broker, queue


def test_paged_out_messages_are_delivered_browsed_and_copied_as_they_are() -> None:
    tape = Tape()
    broker, queue = a_long_queue(tape, "a", "bb", "ccc", "dddd")
    reels = Reels(tape)
    assert queue.page_out(3, 4, reels) == 5
    assert (queue.bytes, queue.paged_out) == (10, 5)
    assert contents(broker, "q") == ["a", "bb", "ccc", "dddd"]
    assert picture(copy_of(tape)) == picture(broker)
    browser = a_taker(queue, 9, browse=True)
    taker = a_taker(queue, 9)
    broker.dispatch(1)
    assert browser.bodies == taker.bodies == ["a", "bb", "ccc", "dddd"]


def test_what_is_paged_out_is_neither_read_nor_counted_when_it_leaves() -> None:
    tape = Tape()
    _, queue = a_long_queue(tape, "a", "bb", "ccc", "dddd")
    reels = Reels(tape)
    queue.page_out(0, 99, reels)
    first, *_ = queue.messages_after(0, 1)
    queue.dequeue(first)
    assert queue.paged_out == queue.bytes == 9
    queue.drop(queue.available()[:2])
    assert queue.paged_out == queue.bytes == 4
    queue.remove([5])
    assert queue.paged_out == queue.bytes == 0
    assert reels.read_count == 0


def test_paging_out_twice_moves_nothing_more() -> None:
    tape = Tape()
    _, queue = a_long_queue(tape, "a", "b")
    assert queue.page_out(0, 2, Reels(tape)) == 1
    assert queue.page_out(0, 99, Reels(tape)) == 1
    assert queue.page_out(0, 99, Reels(tape)) == 0
    assert queue.paged_out == 2


def test_queue_is_heavy_when_the_bytes_in_memory_are_too_many_whatever_lies_elsewhere() -> None:
    tape = Tape()
    broker, queue = a_long_queue(tape, "12345", "12345", queue_memory=10)
    assert not broker.over_budget
    send(broker, "q", "1")
    assert list(broker.over_budget) == [queue]
    broker.over_budget.clear()
    queue.page_out(0, 3, Reels(tape))
    send(broker, "q", "1234")
    assert not broker.over_budget
    queue.remove([2])  # one of the cold ones
    send(broker, "q", "12345")
    assert not broker.over_budget
    send(broker, "q", "1")
    assert list(broker.over_budget) == [queue]


def test_a_backup_is_heavy_too_and_a_queue_that_is_not_in_the_log_never() -> None:
    tape = Tape()
    a_long_queue(tape, "12345", "123456")
    backup = a_broker(queue_memory=10)
    backup.passive = True
    for sequence, record in tape.records:
        backup.apply(sequence, record)
    assert [queue.name for queue in backup.over_budget] == ["q"]
    broker = a_broker(Tape(), queue_memory=10)
    for level in ("none", "configuration"):
        broker.declare_queue(level, arguments={"qpid.replicate": level})
        send(broker, level, "12345678901")
    assert not broker.over_budget


def test_memory_without_limit_is_never_heavy() -> None:
    broker, _ = a_long_queue(Tape(), "x" * 1000, queue_memory=0)
    assert not broker.over_budget


def test_the_smallest_of_the_memories_that_policies_and_the_queue_name_counts() -> None:
    broker = a_broker(Tape(), queue_memory=1 << 20)
    queue, _ = broker.declare_queue("q", arguments={"x-max-in-memory-bytes": 10})
    send(broker, "q", "12345")
    assert not broker.over_budget
    broker.set_policy(policy_asked_for("p", ".*", {"memory": 5}))
    broker.follow_policies(1)
    send(broker, "q", "6")
    assert list(broker.over_budget) == [queue]
    broker.clear_policy("p")
    broker.follow_policies(1)
    assert queue.spec.limits.memory == 10


def test_a_deleted_queue_is_not_heavy_any_more() -> None:
    broker, queue = a_long_queue(Tape(), "12345", queue_memory=1)
    broker.delete_queue("q")
    assert not broker.over_budget and queue.paged_out == queue.bytes == 0


def test_a_deleted_queue_gives_what_is_paged_out_to_its_alternate() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("orphans")
    broker.bind("amq.fanout", "orphans")
    queue, _ = broker.declare_queue("q", alternate="amq.fanout")
    send(broker, "q", "a", "b")
    queue.page_out(0, 99, Reels(tape))
    broker.delete_queue("q")
    assert contents(broker, "orphans") == ["a", "b"]


def test_unreplicated_counts_what_came_after_the_commit_point_and_is_still_here() -> None:
    broker, queue = a_long_queue(Tape(), "a", "b", "c")
    assert [queue.unreplicated(committed) for committed in range(6)] == [3, 3, 2, 1, 0, 0]
    queue.dequeue(queue.messages_after(2, 1)[0])
    assert [queue.unreplicated(committed) for committed in range(6)] == [2, 2, 1, 1, 0, 0]
    local, _ = broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    send(broker, "local", "a")
    assert local.unreplicated(0) == 0


@given(
    st.lists(
        st.lists(st.integers(1, 60), min_size=1, max_size=5, unique=True).map(sorted), max_size=12
    ),
    st.booleans(),
    st.booleans(),
)
def test_a_run_at_once_is_the_same_as_one_message_after_the_other(
    runs: list[list[int]], expires: bool, dedup: bool
) -> None:
    arguments = {"qpidha.dedup": "message-id"} if dedup else {}
    pictures = []
    for at_once in (True, False):
        broker = a_broker(queue_memory=900)
        broker.passive = True
        broker.apply(1, QueueDeclared("q", "uuid", replicate="all", arguments=arguments))
        queue = broker.queues["q"]
        known: set[int] = set()
        for run in runs:
            sequences = [sequence for sequence in run if sequence not in known]
            known.update(sequences)
            payloads = [
                build("x" * sequence, properties={"message_id": sequence}) for sequence in sequences
            ]
            expiries = [1000 + sequence for sequence in sequences] if expires else []
            if at_once and sequences:
                queue.insert_run(sequences, payloads, expiries)
            for sequence, payload in zip(sequences, payloads, strict=True) if not at_once else ():
                queue.insert_run([sequence], [payload], [1000 + sequence] if expires else [])
        seen = [
            (message.sequence, message.body(), message.expires)
            for message in queue.messages_after(0, 1 << 30)
        ]
        before = queue.statistics()
        assert len(seen) == len(known)
        queue.is_replica = False
        queue.promoted()
        expire(queue, 1030)
        assert not expires or all(message.sequence > 30 for message in queue.available())
        window = remembered(queue.window)
        assert len(window) == len(known) * dedup
        pictures.append(
            (seen, before, queue.statistics(), window, list(broker.over_budget) == [queue])
        )
    assert pictures[0] == pictures[1]


def test_forgetting_messages_counts_only_those_that_were_there() -> None:
    tape = Tape()
    broker, queue = a_long_queue(tape, "a", "bb", "ccc", "dddd")
    queue.page_out(2, 3, Reels(tape))
    a_taker(queue, 2)
    broker.dispatch(1)
    queue.remove([1, 3, 4, 3, 99])
    assert (queue.bytes, queue.paged_out, queue.acquired, queue.dequeued) == (5, 1, 1, 2)


def test_a_promoted_queue_of_its_own_numbers_gives_none_twice() -> None:
    backup = a_broker()
    backup.passive = True
    backup.apply(1, QueueDeclared("q", "uuid", replicate="configuration"))
    queue = backup.queues["q"]
    queue.insert(5, b"from before its level changed")
    backup.log_writer = Tape()
    backup.promoted(1)
    for number in range(6):
        queue.enqueue(str(number).encode())
    taker = Taker(credit=9)
    queue.subscribe(taker)
    backup.dispatch(1)
    assert taker.bodies == ["from before its level changed", *"012345"]
