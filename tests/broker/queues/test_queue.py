"""Queues: order, acquisition, redelivery, limits, browsers; and what is recorded of it."""

from __future__ import annotations

import pytest

from qpidha.broker.queues.ordering import SLACK
from qpidha.broker.queues.queue import Queue
from qpidha.model.errors import LimitExceeded, ResourceDeleted, ResourceLocked
from qpidha.model.records import Cause, Dequeued, Requeued
from tests.broker.parts import Taker, Tape, a_broker, a_taker, contents, expire, send


def a_queue(**arguments: object) -> Queue:
    named = {"qpid." + name: value for name, value in arguments.items()}
    return a_broker(Tape()).declare_queue("q", arguments=named)[0]


def fill(queue: Queue, *bodies: str) -> list[int]:
    return [queue.enqueue(body.encode()) for body in bodies]


def texts(queue: Queue) -> list[str]:
    return [message.body().decode() for message in queue.messages_after(-1, 1 << 60)]


def test_consumer_gets_messages_in_order_and_no_more_than_its_credit() -> None:
    queue = a_queue()
    fill(queue, "a", "b", "c")
    taker = a_taker(queue, 2)
    queue.dispatch(1)
    assert taker.bodies == ["a", "b"]
    assert queue.acquired == 2
    taker.credit = 5
    queue.dispatch(1)
    assert taker.bodies == ["a", "b", "c"]


def test_released_message_comes_again_in_its_place_without_a_count() -> None:
    queue = a_queue()
    fill(queue, "a", "b", "c")
    taker = a_taker(queue, 2)
    queue.dispatch(1)
    queue.release(taker.got[0])
    taker.credit = 2
    queue.dispatch(1)
    assert taker.bodies == ["a", "b", "a", "c"]
    assert taker.got[0].delivery_count == 0


def test_failed_delivery_is_counted_and_recorded() -> None:
    tape = Tape()
    queue, _ = a_broker(tape).declare_queue("q")
    fill(queue, "a", "b")
    taker = a_taker(queue, 1)
    queue.dispatch(1)
    sequence = queue.requeue(taker.got[0], failed=True, annotations=b"note")
    assert tape.records[-1] == (sequence, Requeued(queue.uid, taker.got[0].sequence, 1, b"note"))
    queue.requeue(taker.got[0], failed=True)
    assert tape.last == Requeued(queue.uid, taker.got[0].sequence, 2, b"note")
    assert texts(queue) == ["a", "b"]


def test_message_undeliverable_to_one_consumer_goes_to_another_and_holds_up_nobody() -> None:
    queue = a_queue()
    fill(queue, "a", "b")
    picky = a_taker(queue, 1)
    queue.dispatch(1)
    queue.requeue(picky.got[0], failed=False, not_to=picky)
    picky.credit = 5
    queue.dispatch(1)
    assert picky.bodies == ["a", "b"]
    other = a_taker(queue, 5)
    queue.dispatch(1)
    assert other.bodies == ["a"]


def test_consumers_take_turns_over_several_dispatches() -> None:
    queue = a_queue()
    takers = [a_taker(queue, 100) for _ in range(3)]
    for body in "abcdef":
        fill(queue, body)
        queue.dispatch(1)
    assert [taker.bodies for taker in takers] == [["a", "d"], ["b", "e"], ["c", "f"]]


def test_consumers_take_turns_within_one_dispatch_and_one_without_credit_is_passed_over() -> None:
    queue = a_queue()
    takers = [a_taker(queue, credit) for credit in (1, 0, 9)]
    fill(queue, *"abcd")
    queue.dispatch(1)
    assert [taker.bodies for taker in takers] == [["a"], [], ["b", "c", "d"]]


def test_consumer_may_settle_while_it_is_handed_messages() -> None:
    queue = a_queue()
    fill(queue, *map(str, range(3 * SLACK)))
    taker = a_taker(queue, 10 * SLACK, settles=True)
    queue.dispatch(1)
    assert taker.bodies == [str(number) for number in range(3 * SLACK)]
    assert not queue.messages and queue.bytes == 0 and queue.acquired == 0


def test_dequeue_is_recorded_once_and_a_second_one_is_nothing() -> None:
    tape = Tape()
    queue, _ = a_broker(tape).declare_queue("q")
    fill(queue, "a")
    message = queue.messages_after(0, 1)[0]
    assert queue.dequeue(message) == len(tape.records)
    assert tape.last == Dequeued(queue.uid, (message.sequence,))
    recorded = len(tape.records)
    assert queue.dequeue(message) == recorded == len(tape.records)
    queue.release(message)
    assert queue.requeue(message, failed=True) == 0
    assert queue.reject(message) == recorded == len(tape.records)
    assert queue.acquired == 0


def test_a_queue_may_end_while_its_last_messages_are_handed_out() -> None:
    queue = a_broker(Tape()).declare_queue(
        "q", arguments={"qpid.lifetime-policy": "delete-if-empty"}
    )[0]
    fill(queue, "a", "b")
    picky = a_taker(queue, 1)
    queue.dispatch(1)
    queue.requeue(picky.got[0], failed=False, not_to=picky)
    other = a_taker(queue, 5, settles=True)
    queue.dispatch(1)
    assert other.bodies == ["a", "b"]
    assert queue.deleted and picky.is_told and other.is_told


def test_browser_sees_each_message_once_and_takes_none() -> None:
    queue = a_queue()
    fill(queue, "a", "b", "c")
    browser = a_taker(queue, 2, browse=True)
    queue.dispatch(1)
    assert browser.bodies == ["a", "b"]
    browser.credit = 9
    fill(queue, "d")
    queue.dispatch(1)
    queue.dispatch(1)
    assert browser.bodies == ["a", "b", "c", "d"]
    assert len(queue.messages) == 4 and queue.acquired == 0


def test_browser_does_not_see_acquired_messages() -> None:
    queue = a_queue()
    fill(queue, "a", "b")
    a_taker(queue, 1)
    queue.dispatch(1)
    browser = a_taker(queue, 9, browse=True)
    queue.dispatch(1)
    assert browser.bodies == ["b"]


def test_expired_messages_are_dequeued_and_not_delivered() -> None:
    tape = Tape()
    queue, _ = a_broker(tape).declare_queue("q")
    sequences = [queue.enqueue(b"old", 50), queue.enqueue(b"new", 150), queue.enqueue(b"older", 40)]
    taker = a_taker(queue, 9)
    queue.dispatch(100)
    assert taker.bodies == ["new"]
    assert tape.last == Dequeued(queue.uid, (sequences[0], sequences[2]), Cause.EXPIRED)
    assert queue.expired == 2


def test_nothing_expires_at_time_zero() -> None:
    queue = a_queue()
    queue.enqueue(b"old", 50)
    browser = a_taker(queue, 9, browse=True)
    queue.dispatch(0)
    assert browser.bodies == ["old"]


def test_expiry_sweep_leaves_acquired_messages_alone() -> None:
    queue = a_queue()
    queue.enqueue(b"held", 50)
    a_taker(queue, 1)
    queue.dispatch(1)
    queue.enqueue(b"gone", 50)
    expire(queue, 60)
    assert texts(queue) == ["held"]


def test_reject_queue_refuses_the_message_too_many() -> None:
    queue = a_queue(max_count=5)
    fill(queue, *"01234")
    with pytest.raises(LimitExceeded):
        fill(queue, "5")
    assert texts(queue) == list("01234")


def test_reject_queue_counts_bytes() -> None:
    queue = a_queue(max_size=10)
    fill(queue, "12345", "67890")
    with pytest.raises(LimitExceeded):
        fill(queue, "x")
    queue.dequeue(queue.messages_after(-1, 1)[0])
    fill(queue, "12345")


def test_ring_queue_keeps_the_newest() -> None:
    queue = a_queue(max_count=5, policy_type="ring")
    fill(queue, *"0123456789")
    assert texts(queue) == list("56789")


def test_ring_queue_makes_room_in_bytes() -> None:
    queue = a_queue(max_size=6, policy_type="ring")
    fill(queue, "ab", "cd", "ef", "ghi")
    assert texts(queue) == ["ef", "ghi"]
    with pytest.raises(LimitExceeded):
        fill(queue, "too long")
    assert texts(queue) == ["ef", "ghi"]


def test_ring_queue_does_not_drop_what_a_consumer_has() -> None:
    queue = a_queue(max_count=3, policy_type="ring")
    fill(queue, *"012")
    taker = a_taker(queue, 2)
    queue.dispatch(1)
    fill(queue, "3")
    assert texts(queue) == ["0", "1", "3"]
    taker.credit = 1
    queue.dispatch(1)
    with pytest.raises(LimitExceeded):
        fill(queue, "4")
    assert texts(queue) == ["0", "1", "3"]


def test_ring_overflow_records_the_dequeue_before_the_enqueue() -> None:
    tape = Tape()
    queue, _ = a_broker(tape).declare_queue(
        "q", arguments={"qpid.max_count": 1, "qpid.policy_type": "ring"}
    )
    fill(queue, "a", "b")
    assert tape.kinds()[-2:] == ["Dequeued", "Enqueued"]


def test_busy_ring_stays_small_in_memory() -> None:
    queue = a_queue(max_count=3, policy_type="ring")
    fill(queue, *map(str, range(5 * SLACK)))
    assert len(queue.ordering) <= 2 * 3 + SLACK + 1


def test_messages_keep_their_place_when_the_order_is_rebuilt() -> None:
    queue = a_queue()
    fill(queue, *map(str, range(2 * SLACK)))
    taker = a_taker(queue, 2 * SLACK - 2)
    queue.dispatch(1)
    kept = taker.got[7], taker.got[9], taker.got[-1]
    for message in taker.got:
        if message not in kept:
            queue.dequeue(message)
    queue.release(kept[1])
    taker.credit = 2
    queue.dispatch(1)
    assert len(queue.ordering) == len(queue.messages) == 5
    assert taker.bodies[-2:] == ["9", str(2 * SLACK - 2)]
    queue.release(kept[0])
    taker.credit = 9
    queue.dispatch(1)
    assert taker.bodies[-2:] == ["7", str(2 * SLACK - 1)]


def test_purge_drops_the_oldest_available_as_one_record() -> None:
    tape = Tape()
    queue, _ = a_broker(tape).declare_queue("q")
    fill(queue, *"abcd")
    a_taker(queue, 1)
    queue.dispatch(1)
    before = len(tape.records)
    assert queue.drop(queue.available()[:2]) == before + 1
    assert texts(queue) == ["a", "d"]
    queue.drop(queue.available())
    assert texts(queue) == ["a"]
    assert queue.drop(queue.available()) == 0


def test_exclusive_consumer_is_alone() -> None:
    queue = a_queue()
    first = a_taker(queue, exclusive=True)
    with pytest.raises(ResourceLocked):
        a_taker(queue)
    queue.unsubscribe(first)
    a_taker(queue)
    with pytest.raises(ResourceLocked):
        a_taker(queue, exclusive=True)


def test_consumer_that_left_gets_nothing_more() -> None:
    queue = a_queue()
    taker = a_taker(queue, 9)
    queue.unsubscribe(taker)
    queue.unsubscribe(taker)
    fill(queue, "a")
    queue.dispatch(1)
    assert taker.got == []


def test_backup_sorts_what_arrives_out_of_order() -> None:
    queue = a_queue()
    for sequence in (30, 50, 40, 10, 20):
        queue.insert_run([sequence], [str(sequence).encode()], [])
    queue.remove([50, 999])
    queue.insert_run([40], [b"again"], [])
    assert texts(queue) == ["10", "20", "30", "40"]
    queue.restate(20, 3, b"note")
    queue.restate(999, 3, b"note")
    taker = a_taker(queue, 9)
    queue.promoted()
    queue.dispatch(1)
    assert taker.bodies == ["10", "20", "30", "40"]
    assert taker.got[1].delivery_count == 3


def test_promotion_makes_acquired_messages_available() -> None:
    queue = a_queue()
    fill(queue, *"ab")
    taker = a_taker(queue, 9)
    queue.dispatch(1)
    queue.unsubscribe(taker)
    queue.promoted()
    other = a_taker(queue, 9)
    queue.dispatch(1)
    assert other.bodies == ["a", "b"]
    assert queue.acquired == 2


def test_chunks_after_a_cursor_are_bounded_by_bytes_but_never_empty_before_the_end() -> None:
    queue = a_queue()
    fill(queue, "aaaa", "bbbb", "cccc")
    cursor, chunks = 0, []
    while chunk := queue.messages_after(cursor, 5):
        chunks.append([message.body().decode() for message in chunk])
        cursor = chunk[-1].sequence
    assert chunks == [["aaaa"], ["bbbb"], ["cccc"]]
    assert len(queue.messages_after(0, 8)) == 2


def test_deleted_queue_tells_its_consumers_and_takes_nothing_more() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    send(broker, "q", "a")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    broker.delete_queue("q")
    assert taker.is_told
    recorded = len(tape.records)
    assert queue.dequeue(taker.got[0]) == recorded == len(tape.records)
    with pytest.raises(ResourceDeleted):
        queue.enqueue(b"b")
    with pytest.raises(ResourceDeleted):
        queue.subscribe(Taker())


def test_queue_that_is_not_replicated_records_nothing() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, sequence = broker.declare_queue("q", arguments={"qpid.replicate": "none"})
    assert sequence == 0 and queue.uid < 0
    assert send(broker, "q", "a", "b") == [0, 0]
    taker = a_taker(queue, 9)
    broker.dispatch(1)
    queue.requeue(taker.got[0], failed=True)
    queue.dequeue(taker.got[1])
    assert contents(broker, "q") == ["a"]
    assert tape.records == []
