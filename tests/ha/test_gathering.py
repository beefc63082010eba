"""What is appended waits to be sealed where that costs nobody anything."""

from __future__ import annotations

import pytest

from qpidha.ha import gathering
from qpidha.ha.gathering import DEPARTURES, MESSAGES, NUMBERS, PROBES, SAMPLE, TIMES
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


def test_a_departure_leaves_before_the_primary_stops() -> None:
    pair = in_sync_with_a_message()
    consume(pair)
    assert turn(pair, NOW) == 0
    pair.primary.send_rest()
    while pair.carry_one():
        pass
    assert pair.b.log.last == pair.a.log.end
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0") == [b"new"]


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
    """Have messages consumed soon, the backup takes 1 ms to confirm them, until the primary knows
    it; return how many that took.
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
    assert pair.primary.next_deadline == now + TIMES * MS
    pair.a.log.consumed.clear()
    consume_last(pair)
    assert pair.a.log.consumed == [pair.a.log.end]
    pair.a.is_awaited = False
    assert turn(pair, now + MS // 2) == 0
    assert pair.primary.gathering.until == now + NUMBERS
    pair.publish(b"kept", "q0")
    now += 10 * MS
    assert turn(pair, now) == 0
    assert turn(pair, now + TIMES * MS - 1) == 0
    assert turn(pair, now + TIMES * MS) == 2
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0") == [b"old", b"new", b"kept"]


def test_messages_on_their_way_to_a_consumer_count_when_it_is_known_what_came_of_them() -> None:
    pair = in_sync_with_a_message()
    consumers_are_quick(pair, NOW)
    queue = pair.a.broker.queue("q0")
    now = NOW + 1000 * MS
    before = pair.a.log.last
    for turn_number in range(8):  # With so many that it has none of the first before the last came.
        for _ in range(SAMPLE):
            pair.publish(b"quick", "q0")
        pair.a.now = now + turn_number * MS // 4
        pair.primary.flush(pair.a.now)
    pair.a.is_awaited = True
    for message in list(queue.messages.values())[2:]:
        queue.dequeue(message)
    pair.primary.flush(now + 2 * MS)
    assert pair.primary.gathering.is_quick
    pair.a.is_awaited = False
    pair.primary.flush(now + NUMBERS + 4 * MS)
    assert sum(batch.size for batch in pair.a.log.batches(before + 1)) == 0


def test_a_message_and_departures_beside_it_wait_for_20_ms_at_most() -> None:
    pair = in_sync_with_a_message()
    consumers_are_quick(pair, NOW)
    (backup,) = pair.primary.backups.values()
    backup.took = 50 * MS
    now = NOW + 1000 * MS
    consume(pair)
    pair.publish(b"kept", "q0")
    assert turn(pair, now) == 0
    assert pair.primary.gathering.until == now + MESSAGES
    assert turn(pair, now + MESSAGES - 1) == 0
    assert turn(pair, now + MESSAGES) > 0
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0") == [b"new", b"kept"]


def test_a_message_that_came_later_waits_on_when_one_is_sent() -> None:
    pair = in_sync_with_a_message()
    consumers_are_quick(pair, NOW)
    now = NOW + 1000 * MS
    pair.publish(b"early", "q0")
    assert turn(pair, now) == 0
    pair.publish(b"late", "q0")
    assert turn(pair, now + MS) == 0
    assert turn(pair, now + TIMES * MS) == 1
    assert pair.primary.next_deadline == now + MS + TIMES * MS
    consume_last(pair)
    assert turn(pair, now + MS + TIMES * MS) == 0
    assert turn(pair, now + MS + NUMBERS) == 1
    pair.settle()
    assert pair.b.payloads("q0")[-1] == b"early"


def test_departures_that_are_due_leave_without_messages_of_later_turns() -> None:
    pair = in_sync_with_a_message()
    consumers_are_quick(pair, NOW)
    now = NOW + 1000 * MS
    consume(pair)
    assert turn(pair, now) == 0
    pair.publish(b"in one turn with it", "q0")
    assert turn(pair, now + 2 * MS) == 0
    pair.publish(b"later", "q0")
    assert turn(pair, now + DEPARTURES - 1) == 0
    assert turn(pair, now + DEPARTURES) == 2
    assert pair.primary.gathering.until == now + DEPARTURES - 1 + TIMES * MS
    pair.settle()
    assert pair.b.payloads("q0")[-1] == b"in one turn with it"


def test_who_waits_for_a_number_waits_for_a_moment_only_while_messages_come_and_go() -> None:
    pair = in_sync_with_a_message()
    consumers_are_quick(pair, NOW)
    queue = pair.a.broker.queue("q0")
    for is_awaited, most in ((False, NUMBERS), (True, DEPARTURES)):
        now = pair.a.now + 1000 * MS
        pair.publish(b"consumed", "q0")
        pair.a.awaited = pair.a.log.end * is_awaited
        consume_last(pair)
        before = pair.a.log.last
        late = 0
        while pair.a.log.last == before:
            pair.publish(b"next", "q0")
            pair.a.now = now + late
            pair.primary.flush(pair.a.now)
            consume_last(pair)
            late += MS
        assert pair.a.now == now + most
        pair.a.log.seal()
        turn(pair, pair.a.now)
        confirm(pair, pair.a.now + MS)
    assert len(queue.messages) == 2, "of those that came and went backups have at most the last"


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


def keep_until_none_waits(pair: Pair, now: int) -> int:
    """Have nobody take the messages that wait until none does any more; return the time then."""
    count = 0
    while pair.primary.gathering.is_quick:
        count += 1
        now += 1000 * MS
        pair.a.now = now
        pair.publish(b"kept", "q0")
        pair.primary.flush(now)
        pair.a.now = now + TIMES * MS
        assert turn(pair, pair.a.now) == 1 or not pair.primary.gathering.is_quick
        confirm(pair, pair.a.now + MS)
    assert count <= 2 * SAMPLE
    return now


def rounds_until_quick(pair: Pair, now: int) -> int:
    """Have messages consumed soon; return how many decisions it took until they wait."""
    # Each message is in one turn with what is left of the one before: every other one is followed.
    return round(consumers_are_quick(pair, now) / (2 * PROBES))


def test_no_message_waits_any_more_where_that_was_of_no_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "REST", 4)
    pair = in_sync_with_a_message()
    now = NOW
    rounds = []
    for _ in range(5):
        rounds.append(rounds_until_quick(pair, now))
        now = keep_until_none_waits(pair, now)
    assert rounds[1:] == [2, 3, 5, 5], "one more than it rests"


def test_the_next_rest_is_a_short_one_where_waiting_was_of_use() -> None:
    pair = in_sync_with_a_message()
    now = NOW
    for _ in range(3):
        consumers_are_quick(pair, now)
        now = keep_until_none_waits(pair, now)
    consumers_are_quick(pair, now)
    for _ in range(2 * SAMPLE):
        now += 1000 * MS
        pair.a.now = now
        pair.publish(b"consumed", "q0")
        assert turn(pair, now) == 0
        consume_last(pair)
        pair.a.now = now + NUMBERS
        turn(pair, pair.a.now)
        confirm(pair, pair.a.now + MS)
    assert pair.primary.gathering.is_quick
    now = keep_until_none_waits(pair, now)
    assert rounds_until_quick(pair, now) == 2


def test_there_is_no_rest_where_consumers_became_slow_meanwhile() -> None:
    pair = in_sync_with_a_message()
    now = NOW
    for _ in range(3):
        consumers_are_quick(pair, now)
        now = keep_until_none_waits(pair, now)
    for i in range(1, 2 * PROBES):
        follow(pair, now + i * 100 * MS, TIMES * MS + 1)
    now += 10_000 * MS
    assert rounds_until_quick(pair, now) == 1
    now = keep_until_none_waits(pair, now)
    assert rounds_until_quick(pair, now) == 2


def follow(pair: Pair, now: int, after: int) -> None:
    """Have one message consumed so long after it came."""
    pair.publish(b"followed", "q0")
    pair.a.now = now
    pair.primary.flush(now)
    confirm(pair, now + MS)
    consume_last(pair)
    pair.a.now = now + after
    pair.primary.flush(now + after)


@pytest.mark.parametrize("after,quick", [(TIMES * MS, True), (TIMES * MS + 1, False)])
def test_soon_is_a_few_times_what_backups_take_also_after_they_have_confirmed(
    after: int, quick: bool
) -> None:
    pair = in_sync_with_a_message()
    follow(pair, NOW, MS)  # From here on it is known what backups take.
    for i in range(1, PROBES + 1):
        follow(pair, NOW + i * 100 * MS, after)
    assert pair.primary.gathering.is_quick is quick


def test_a_message_that_nobody_takes_is_followed_for_that_long_only() -> None:
    pair = in_sync_with_a_message()
    for i in range(PROBES):
        pair.publish(b"kept", "q0")
        pair.a.now = NOW + i * 100 * MS
        pair.primary.flush(pair.a.now)
        confirm(pair, pair.a.now + MS)
    consumers_are_quick(pair, NOW + 10_000 * MS)
