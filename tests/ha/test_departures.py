"""That messages left their queues travels with the next batch, where nobody waits for it."""

from __future__ import annotations

from qpidha.ha.primary import DEPARTURES_DELAY
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
    assert pair.primary.next_deadline == NOW + 1 + DEPARTURES_DELAY
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
    assert turn(pair, NOW + DEPARTURES_DELAY - 1) == 0
    assert turn(pair, NOW + DEPARTURES_DELAY) == 1  # Of one queue: a record for both.
    assert pair.primary.departures_deadline == 0
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0") == []


def test_a_departure_that_somebody_waits_for_leaves_at_once() -> None:
    pair = in_sync_with_a_message()
    consume(pair)
    assert turn(pair, NOW) == 0
    pair.a.is_awaited = True
    assert turn(pair, NOW + 1) == 1
    assert pair.primary.departures_deadline == 0


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
    assert pair.primary.departures_deadline == 0
