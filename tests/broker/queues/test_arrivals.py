"""When messages came: known of every one within a second or a 16th of its age, by few numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.queues.arrivals import SHARE, Arrivals
from qpidha.broker.queues.queue import Queue
from qpidha.model.duration import SECOND
from qpidha.model.message_view import build
from tests.broker.parts import Tape, a_broker, send

YEAR = 365 * 24 * 3600


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5)), max_size=300))
def test_a_number_is_known_within_a_second_or_a_part_of_its_age(
    turns: list[tuple[int, int]],
) -> None:
    arrivals = Arrivals()
    now = last = 0
    came: dict[int, int] = {}
    for tenths, count in turns:
        now += tenths * SECOND // 10
        for number in range(last + 1, last + count + 1):
            came[number] = now
        last += count
        arrivals.turn(last, now, is_exact=True)
    for number, time in came.items():
        found = arrivals.find(number)
        assert found is not None and found.is_exact
        assert 0 <= time - found.time <= SECOND + (now - time) // SHARE


def test_a_year_of_messages_each_second_is_some_hundred_numbers() -> None:
    arrivals = Arrivals()
    for second in range(0, YEAR, 97):
        arrivals.turn(second + 1, second * SECOND, is_exact=True)
    assert len(arrivals) < 1000


def test_what_came_before_anybody_looked_is_older_than_that() -> None:
    arrivals = Arrivals()
    arrivals.turn(100, 50 * SECOND, is_exact=False)
    arrivals.turn(200, 70 * SECOND, is_exact=False)  # it is still catching up
    arrivals.turn(201, 70 * SECOND, is_exact=True)
    assert arrivals.find(7) == arrivals.find(200) == (70 * SECOND, False)
    assert arrivals.find(201) == (70 * SECOND, True)


def test_numbers_that_are_cut_off_and_given_again_count_anew() -> None:
    arrivals = Arrivals()
    arrivals.turn(10, 0, is_exact=True)
    arrivals.turn(20, 5 * SECOND, is_exact=True)
    arrivals.turn(12, 6 * SECOND, is_exact=True)
    arrivals.turn(20, 7 * SECOND, is_exact=True)
    assert arrivals.find(10) == (0, True)
    assert arrivals.find(15) == (7 * SECOND, True)


def oldest(queue: Queue) -> int | None:
    arrival = queue.oldest_arrival
    return None if arrival is None else arrival.time // SECOND


def test_a_recorded_queue_tells_when_its_oldest_message_came() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    assert oldest(queue) is None
    for second in (10, 20, 30):
        broker.now = second * SECOND
        send(broker, "q", str(second))
        broker.arrivals.turn(tape.end, broker.now, is_exact=True)
    assert oldest(queue) == 10
    queue.dequeue(queue.messages_after(0, 1)[0])
    assert oldest(queue) == 20
    queue.acquire(queue.messages_after(0, 1)[0])  # a consumer has it
    assert oldest(queue) == 20


def test_a_queue_that_is_not_recorded_knows_it_by_its_own_numbers() -> None:
    broker = a_broker(None)
    queue, _ = broker.declare_queue("q")
    for second in range(10, 2000):
        broker.now = second * SECOND
        send(broker, "q", "m")
        if second > 20:
            queue.dequeue(queue.messages_after(0, 1)[0])
    assert queue.oldest_arrival == ((1999 - 10) * SECOND, True)
    assert oldest(queue) == 1989


def test_priorities_do_not_make_a_message_younger() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", arguments={"x-max-priority": 5})
    for second, priority in ((10, 0), (20, 5)):
        broker.now = second * SECOND
        queue.enqueue(build(b"m", header={"priority": priority}))
        broker.arrivals.turn(tape.end, broker.now, is_exact=True)
    assert oldest(queue) == 10
