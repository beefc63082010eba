"""What is appended waits to be sealed where that costs nobody anything."""

from __future__ import annotations

from qpidha.ha.gathering import DEPARTURES, NUMBERS, SAMPLE
from tests.ha.test_snapshot import Pair


def in_sync_with_a_message() -> Pair:
    pair = Pair(log_memory=100_000)
    pair.subscribe()
    pair.publish(b"new", "q0")
    pair.settle()
    assert pair.primary.in_sync.members == ("a", "b")
    pair.primary.flush(NOW)
    return pair


def consume(pair: Pair) -> None:
    queue = pair.a.broker.queue("q0")
    queue.dequeue(next(iter(queue.messages.values())))


def turn(pair: Pair, now: int) -> int:
    """End a turn of the primary; return how many batches it made."""
    before = pair.a.log.last
    pair.primary.flush(now)
    return pair.a.log.last - before


NOW = 1_000_000_000_000


def test_a_departure_travels_with_the_next_message() -> None:
    pair = in_sync_with_a_message()
    consume(pair)
    assert turn(pair, NOW + 1) == 0
    assert pair.primary.next_deadline == NOW + 1 + DEPARTURES
    pair.publish(b"next", "q0")
    assert turn(pair, NOW + 2) == 2
    assert sum(1 for _ in pair.a.log.batches(pair.a.log.last - 1)) == 1
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0") == [b"new", b"next"]


def test_a_departure_that_nothing_follows_leaves_by_itself() -> None:
    pair = in_sync_with_a_message()
    consume(pair)
    assert turn(pair, NOW) == 0
    consume(pair)
    assert turn(pair, NOW + DEPARTURES - 1) == 0
    assert turn(pair, NOW + DEPARTURES) == 1  # Of one queue: a record for both.
    assert pair.primary.gathering.until == 0
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0") == []


def test_a_departure_that_somebody_waits_for_leaves_at_once() -> None:
    pair = in_sync_with_a_message()
    consume(pair)
    assert turn(pair, NOW) == 0
    pair.a.is_awaited = True
    assert turn(pair, NOW + 1) == 1
    assert pair.primary.gathering.until == 0


def test_a_departure_leaves_at_once_with_whatever_else_is_recorded() -> None:
    pair = in_sync_with_a_message()
    consume(pair)
    pair.a.broker.bind("amq.direct", "q0", "key")
    assert turn(pair, NOW) == 2


def test_nothing_is_due_when_departures_left_with_something_else() -> None:
    pair = in_sync_with_a_message()
    consume(pair)
    assert turn(pair, NOW) == 0
    pair.a.log.seal()  # A snapshot begins, for instance.
    assert turn(pair, NOW + 1) == 0
    assert pair.primary.gathering.until == 0


def test_a_departure_leaves_at_once_when_something_needs_all_sealed() -> None:
    pair = in_sync_with_a_message()
    consume(pair)
    pair.a.is_hurried = True
    assert turn(pair, NOW) == 1


def confirm(pair: Pair, now: int) -> None:
    """Let the backup confirm what was sent, at that time."""
    while pair.carry_one():
        pass
    pair.a.now = now
    pair.answer()


def consumers_are_quick(pair: Pair, now: int) -> int:
    """Have messages consumed before the backup, which takes 1 ms, confirms them, until the primary
    knows it; return how many that took.
    """
    count = 0
    while not pair.primary.gathering.is_quick:
        count += 1
        pair.publish(b"quick", "q0")
        pair.a.now = now
        pair.primary.flush(now)
        consume_last(pair)
        confirm(pair, now + MS)
    pair.a.now = now + NUMBERS
    assert turn(pair, now + NUMBERS) > 0  # What is left of these.
    confirm(pair, now + NUMBERS + MS)
    return count


def consume_last(pair: Pair) -> None:
    queue = pair.a.broker.queue("q0")
    queue.dequeue(list(queue.messages.values())[-1])


MS = 1_000_000


def test_a_message_waits_a_moment_where_messages_are_consumed_at_once() -> None:
    pair = in_sync_with_a_message()
    consumers_are_quick(pair, NOW)
    pair.a.is_awaited = True
    now = NOW + 1000 * MS
    pair.primary.flush(now)
    pair.publish(b"consumed", "q0")
    assert turn(pair, now) == 0
    assert pair.primary.next_deadline == now + MS
    pair.a.log.consumed.clear()
    consume_last(pair)
    assert pair.a.log.consumed == [pair.a.log.end]
    pair.a.is_awaited = False
    assert turn(pair, now + MS // 2) == 0
    assert pair.primary.gathering.until == now + MS // 2 + NUMBERS
    pair.publish(b"kept", "q0")
    now += 10 * MS
    assert turn(pair, now) == 0
    assert turn(pair, now + MS - 1) == 0
    assert turn(pair, now + MS) == 2
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0") == [b"old", b"new", b"kept"]


def test_numbers_without_a_trace_leave_by_themselves() -> None:
    pair = in_sync_with_a_message()
    consumers_are_quick(pair, NOW)
    now = NOW + 1000 * MS
    pair.primary.flush(now)
    pair.publish(b"consumed", "q0")
    consume_last(pair)
    assert turn(pair, now) == 0
    assert turn(pair, now + NUMBERS - 1) == 0
    assert turn(pair, now + NUMBERS) == 1


def test_no_message_waits_any_more_where_that_was_of_no_use() -> None:
    pair = in_sync_with_a_message()
    now = NOW
    took = []
    for _ in range(4):
        took.append(consumers_are_quick(pair, now))
        count = 0
        while pair.primary.gathering.is_quick:
            count += 1
            now += 1000 * MS
            pair.a.now = now
            pair.publish(b"kept", "q0")
            pair.primary.flush(now)
            pair.a.now = now + MS
            assert turn(pair, now + MS) == 1 or not pair.primary.gathering.is_quick
            confirm(pair, now + 2 * MS)
        assert count <= 2 * SAMPLE
    samples = [round(count / SAMPLE) for count in took]
    assert samples[1:] == [2, 3, 5], "one more than it rests"
