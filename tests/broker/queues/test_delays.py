"""Messages that nobody has before they are due: scheduled by their senders, or given back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Fate, Post, Retirement, Transaction
from qpidha.model.duration import SECOND
from qpidha.model.errors import InvalidArgument, LimitExceeded, PreconditionFailed
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.message_view import build
from qpidha.model.records import Cause, Dequeued, Enqueued, Requeued
from qpidha.store.recovery import fold, snapshot_messages, snapshot_objects
from tests.broker.parts import Taker, Tape, a_broker, a_taker, at, contents, copy_of, send

NOW = 1_000 * SECOND
GRACE = SECOND // 20


def a_queue(**arguments: Any) -> tuple[Broker, Queue, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    broker.now = NOW
    alternate = arguments.pop("alternate", "")
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    given |= {name.replace("-", "_", 0): given.pop(name) for name in list(given)}
    if "max-count" in given:
        given["qpid.max_count"] = given.pop("max-count")
    queue, _ = broker.declare_queue("q", alternate=alternate, arguments=given)
    return broker, queue, tape


def later(
    broker: Broker, delay: int, *bodies: str, queue: str = "q", expires: int = 0
) -> list[int]:
    due = broker.now + delay
    return [
        broker.publish("", "q", body.encode(), headers=dict, expires=expires, due=due).sequence
        for body in bodies
    ]


def test_a_message_that_dies_before_it_is_due_waits_among_the_dead_letters() -> None:
    broker, _, _ = a_queue(
        **{"x-dead-letter-exchange": "/queues/dead", "qpidha.dead-letter-on-delete": True}
    )
    dead, _ = broker.declare_queue("dead")
    taker = a_taker(dead, 9)
    later(broker, SECOND, "late")
    send(broker, "q", "now")
    broker.delete_queue("q")
    at(broker, NOW + SECOND - 1)
    assert len(taker.bodies) == 1 and len(dead.delayed) == 1
    at(broker, NOW + SECOND + GRACE)
    assert len(taker.bodies) == 2


def test_row_118_a_message_is_delivered_when_it_is_due_and_in_its_place() -> None:
    broker, queue, tape = a_queue()
    taker = a_taker(queue, 9)
    (sequence,) = later(broker, SECOND, "late")
    assert tape.records[-2:] == [
        (sequence, Enqueued((queue.uid,), b"late")),
        (sequence + 1, Requeued(queue.uid, sequence, 0, b"", NOW + SECOND)),
    ]
    send(broker, "q", "now")
    at(broker, NOW + SECOND - 1)
    assert taker.bodies == ["now"]
    send(broker, "q", "then")
    at(broker, NOW + SECOND + GRACE)
    assert taker.bodies == ["now", "late", "then"]
    assert not queue.delayed and queue.acquired == 3


def test_row_118_they_come_in_the_order_of_their_times() -> None:
    broker, queue, _ = a_queue()
    later(broker, 3 * SECOND, "c")
    later(broker, SECOND, "a")
    later(broker, 2 * SECOND, "b")
    taker = a_taker(queue, 9)
    for second in (1, 2, 3):
        at(broker, NOW + second * SECOND + GRACE)
    assert taker.bodies == ["a", "b", "c"]


def test_row_118_what_waits_counts_is_shown_and_is_not_browsed() -> None:
    broker, queue, _ = a_queue(max_count=2)
    later(broker, SECOND, "a", "b")
    with pytest.raises(LimitExceeded):
        send(broker, "q", "c")
    browser = a_taker(queue, 9, browse=True)
    at(broker, NOW)
    figures = queue.statistics()
    assert browser.bodies == [] and queue.available() == []
    assert (figures["messages"], figures["delayed"], figures["acquired"]) == (2, 2, 0)
    at(broker, NOW + SECOND + GRACE)
    assert browser.bodies == ["a", "b"] and queue.statistics()["delayed"] == 0


def test_row_118_it_may_expire_before_and_the_time_of_the_queue_counts_from_then() -> None:
    broker, queue, tape = a_queue(x_message_ttl=1000)
    (sequence,) = later(broker, 5 * SECOND, "dies", expires=NOW + 2 * SECOND)
    later(broker, 5 * SECOND, "lives")
    at(broker, NOW + 3 * SECOND)
    assert contents(broker, "q") == ["lives"]
    assert tape.last == Dequeued(queue.uid, (sequence,), Cause.EXPIRED)
    at(broker, NOW + 5 * SECOND + GRACE)
    assert [message.body() for message in queue.available()] == [b"lives"]
    at(broker, NOW + 6 * SECOND + GRACE)
    assert not queue.messages and queue.acquired == 0


def test_row_118_a_failover_keeps_the_time() -> None:
    broker, _, tape = a_queue()
    later(broker, 5 * SECOND, "late")
    later(broker, 2 * SECOND, "over")
    send(broker, "q", "now")
    successor = copy_of(tape)
    browser = a_taker(successor.queues["q"], 9, browse=True)
    successor.dispatch(NOW + 9 * SECOND)
    assert browser.bodies == ["now"] and not successor.next_deadline
    successor.log_writer = Tape()
    successor.promoted(NOW + 2 * SECOND)
    taker = a_taker(successor.queues["q"], 9)
    at(successor, NOW + 5 * SECOND - 1)
    assert sorted(taker.bodies) == ["now", "over"]
    at(successor, NOW + 5 * SECOND + GRACE)
    assert taker.bodies[2:] == ["late"]


def test_done_2_a_hundred_messages_wait_for_5_s_with_a_kill_at_2_s() -> None:
    """None is early, and all are there within 6 s, each once and in their order."""
    broker, _, tape = a_queue()
    later(broker, 5 * SECOND, *map(str, range(100)))
    former = a_taker(broker.queues["q"], 1000)
    at(broker, NOW + 2 * SECOND)
    successor = copy_of(tape)
    successor.log_writer = Tape()
    successor.promoted(NOW + 2 * SECOND)
    heir = a_taker(successor.queues["q"], 1000)
    at(successor, NOW + 5 * SECOND - 1)
    assert former.bodies == heir.bodies == []
    at(successor, NOW + 6 * SECOND)
    assert heir.bodies == [str(number) for number in range(100)]


def test_row_118_a_snapshot_keeps_the_time() -> None:
    broker, _, _ = a_queue()
    later(broker, 5 * SECOND, "late")
    send(broker, "q", "now")
    copy = a_broker(Tape())
    copy.passive = True
    for data in (*snapshot_objects(broker), *snapshot_messages(broker, 1 << 60)):
        fold(copy, data)
    copy.promoted(NOW)
    assert [message.body() for message in copy.queues["q"].available()] == [b"now"]
    at(copy, NOW + 5 * SECOND + GRACE)
    assert len(copy.queues["q"].available()) == 2


def test_row_118_on_several_queues_and_in_a_transaction() -> None:
    broker, queue, _ = a_queue()
    other, _ = broker.declare_queue("other", arguments={"x-message-ttl": 60_000})
    for name in ("q", "other"):
        broker.bind("amq.fanout", name)
    transaction = Transaction(broker)
    transaction.post(Post(b"m", 0, due=NOW + SECOND, exchange="amq.fanout"))
    transaction.commit()
    assert not queue.available() and not other.available()
    at(broker, NOW + SECOND + GRACE)
    assert len(queue.available()) == len(other.available()) == 1


def test_a_message_sent_again_does_not_delay_the_first_one() -> None:
    broker, queue, _ = a_queue(**{"qpidha.dedup": "message-id"})
    payload = build("m", properties={"message_id": "1"})
    for due in (0, NOW + SECOND):
        broker.publish("", "q", payload, headers=dict, due=due)
    assert len(queue.available()) == len(queue.messages) == 1


def test_what_waits_is_purged_and_passed_on_with_its_time() -> None:
    broker, queue, _ = a_queue(alternate="amq.fanout")
    taker_queue, _ = broker.declare_queue("orphans")
    broker.bind("amq.fanout", "orphans")
    later(broker, SECOND, "a")
    broker.purge("q")
    assert not queue.messages and not queue.delayed and queue.acquired == 0
    later(broker, SECOND, "b")
    broker.delete_queue("q")
    assert contents(broker, "orphans") == ["b"] and not taker_queue.available()
    at(broker, NOW + SECOND + GRACE)
    assert len(taker_queue.available()) == 1


def test_row_118_it_is_refused_while_a_broker_would_not_keep_it() -> None:
    broker, _, _ = a_queue()
    broker.check_delay()
    broker.features.clear()
    with pytest.raises(PreconditionFailed, match="later"):
        broker.check_delay()


def a_retry(**arguments: Any) -> tuple[Broker, Queue, Tape, Taker]:
    given = {f"x_delayed_retry_{name}": value for name, value in arguments.items()}
    broker, queue, tape = a_queue(**given)
    send(broker, "q", "m")
    taker = a_taker(queue, 99)
    broker.dispatch(NOW)
    return broker, queue, tape, taker


def test_row_117_a_failed_message_waits_longer_each_time() -> None:
    broker, queue, tape, taker = a_retry(type="failed", min=1000, max=2500)
    now = NOW
    for count, delay in enumerate((1000, 2000, 2500, 2500), 1):
        queue.requeue(taker.got[-1], failed=True)
        assert tape.last == Requeued(queue.uid, 2, count, b"", now + delay * 1_000_000)
        at(broker, now + delay * 1_000_000 - 1)
        assert len(taker.got) == count
        now += delay * 1_000_000 + GRACE
        at(broker, now)
        assert len(taker.got) == count + 1
    assert queue.statistics()["acquired"] == 1


@pytest.mark.parametrize(
    ("kind", "failed_waits", "returned_waits"),
    [
        ("all", True, True),
        ("failed", True, False),
        ("returned", False, True),
        ("disabled", False, False),
    ],
)
def test_t_q5_which_messages_wait(kind: str, failed_waits: bool, returned_waits: bool) -> None:
    for failed, waits in ((True, failed_waits), (False, returned_waits)):
        broker, queue, _, taker = a_retry(type=kind, min=1000)
        if failed:
            queue.requeue(taker.got[0], failed=True)
        else:
            queue.release(taker.got[0])
        broker.dispatch(NOW)
        assert len(taker.got) == 2 - waits
        at(broker, NOW + SECOND + GRACE)
        assert len(taker.got) == 2


@pytest.mark.parametrize("at", [None, NOW + 5 * SECOND])
def test_what_was_delivered_too_often_is_a_dead_letter_at_once(at: int | None) -> None:
    given = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000, "x-delivery-limit": 1}
    broker, queue, _ = a_queue(**given, **{"x-dead-letter-exchange": "/queues/dead"})
    dead, _ = broker.declare_queue("dead")
    send(broker, "q", "a")
    taker = a_taker(queue, 9)
    broker.dispatch(NOW)
    queue.requeue(taker.got.pop(), True)
    while not taker.got:
        broker.tick(broker.next_deadline)
        broker.dispatch(broker.now)
    queue.requeue(taker.got.pop(), True, at=at)
    assert not queue.messages and len(dead.messages) == 1 and not dead.delayed


@pytest.mark.parametrize("at_alternate", [False, True])
@pytest.mark.parametrize("failed", [False, True])
def test_what_waits_for_another_try_and_dies_waits_no_more(
    failed: bool, at_alternate: bool
) -> None:
    given = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 60_000}
    if at_alternate:
        given["alternate"] = "amq.fanout"
    else:
        given |= {"x-dead-letter-exchange": "/queues/dead", "qpidha.dead-letter-on-delete": True}
    broker, queue, _ = a_queue(**given)
    dead, _ = broker.declare_queue("dead")
    broker.bind("amq.fanout", "dead")
    send(broker, "q", "tried")
    taker = a_taker(queue, 9)
    broker.dispatch(NOW)
    queue.requeue(taker.got[0], failed) if failed else queue.release(taker.got[0])
    assert queue.delayed
    later(broker, SECOND, "late")
    broker.delete_queue("q")
    assert len(dead.messages) == 2 and len(dead.delayed) == 1


def test_t_q5_a_consumer_says_when_a_message_is_due_again() -> None:
    broker, queue, _, taker = a_retry(type="all", min=60_000)
    queue.requeue(taker.got[-1], failed=True, at=NOW + SECOND)
    at(broker, NOW + SECOND + GRACE)
    queue.requeue(taker.got[-1], failed=True, at=NOW)
    broker.dispatch(broker.now)
    assert len(taker.got) == 3
    transaction = Transaction(broker)
    retirement = Retirement(
        transaction, queue, taker.got[-1], Fate.REQUEUE, settled=True, at=broker.now + SECOND
    )
    transaction.retire(retirement)
    transaction.commit()
    at(broker, broker.now + SECOND - 1)
    assert len(taker.got) == 3
    at(broker, broker.now + GRACE)
    assert len(taker.got) == 4


def test_t_q8_a_failover_keeps_the_rest_of_the_delay_and_the_count() -> None:
    _, queue, tape, taker = a_retry(type="failed", min=1000)
    queue.requeue(taker.got[0], failed=True)
    successor = copy_of(tape)
    successor.log_writer = Tape()
    successor.promoted(NOW + SECOND // 2)
    heir = a_taker(successor.queues["q"], 9)
    at(successor, NOW + SECOND - 1)
    assert heir.got == []
    at(successor, NOW + SECOND + GRACE)
    assert [message.delivery_count for message in heir.got] == [1]


def test_what_had_no_place_and_waits_since_waits_on_a_broker_that_comes_back_too() -> None:
    given = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000}
    broker, queue, tape = a_queue(**given, **{"x-dead-letter-exchange": "missing"})
    send(broker, "q", "a")
    taker = a_taker(queue, 1)
    at(broker, NOW)
    queue.reject(taker.got.pop())
    assert len(queue.unplaced) == 1
    queue.unsubscribe(taker)
    broker.passive = True
    broker.abandon_walks()
    other = copy_of(tape)
    other.log_writer = tape
    other.promoted(NOW)
    there = other.queues["q"]
    second = a_taker(there, 1)
    at(other, NOW)
    before = len(tape.records)
    there.requeue(second.got[0], True)
    due = there.delayed[second.got[0].sequence]
    for number, record in tape.records[before:]:
        broker.apply(number, record)
    broker.passive = False
    broker.promoted(NOW)
    third, fourth = a_taker(queue, 9), a_taker(queue, 9)
    broker.dispatch(NOW)  # Before it has looked through its queues.
    at(broker, due - 1)
    assert not third.got and not fourth.got and queue.acquired == 1
    at(broker, due + GRACE)
    at(broker, due + SECOND)
    assert third.bodies + fourth.bodies == ["a"] and queue.acquired == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"type": "failed"},
        {"type": "often", "min": 5},
        {"type": "all", "min": 0},
        {"type": "all", "min": 10, "max": 5},
        {"min": "x"},
        {"min": 5},
        {"max": 5},
    ],
)
def test_row_117_a_delay_that_cannot_be_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="x-delayed-retry"):
        a_retry(**arguments)


@pytest.mark.parametrize("seed", range(5))
def test_what_consumers_see_is_what_an_oracle_says(seed: int) -> None:
    """Nothing early, nothing twice at once, nothing lost, on this broker and on its successors."""
    random_ = random.Random(seed)
    broker, _, tape = a_queue()
    due: dict[int, int] = {}
    held: set[int] = set()
    taker = a_taker(broker.queues["q"], 0)
    for _ in range(300):
        chance, now = random_.random(), broker.now
        queue = broker.queues["q"]
        if chance < 0.4:
            delay = random_.choice((0, 0, 1, 5)) * SECOND
            (sequence,) = later(broker, delay, "m") if delay else send(broker, "q", "m")
            due[sequence] = now + delay
        elif chance < 0.7 and held:
            sequence = random_.choice(sorted(held))
            held.discard(sequence)
            message = queue.messages[sequence]
            if random_.random() < 0.5:
                queue.dequeue(message)
                del due[sequence]
            else:
                due[sequence] = now + random_.choice((0, 2)) * SECOND
                queue.requeue(message, failed=True, at=due[sequence])
        elif chance < 0.75:
            broker = copy_of(tape)
            broker.log_writer = tape
            broker.promoted(now)
            held.clear()
            taker = a_taker(broker.queues["q"], 0)
        else:
            taker.credit = random_.randrange(4)
            at(broker, now + random_.randrange(SECOND))
            for message in taker.got:
                assert due[message.sequence] <= broker.now and message.sequence not in held
                held.add(message.sequence)
            taker.got.clear()
    taker.credit = 10**6
    at(broker, broker.now + 10 * SECOND)
    assert held | {message.sequence for message in taker.got} == set(due)


def test_what_is_due_later_goes_to_those_only_who_select_it() -> None:
    broker, queue, _ = a_queue()
    picky, other = (
        a_taker(queue, 9, wants=lambda message, first=first: message.body()[:1] == first)
        for first in (b"a", b"b")
    )
    later(broker, SECOND, "b", "a", "c")
    send(broker, "q", "a now")
    broker.dispatch(NOW)
    at(broker, NOW + SECOND + GRACE)
    assert (picky.bodies, other.bodies) == (["a now", "a"], ["b"])
    assert [message.body() for message in queue.available()] == [b"c"]


def test_a_delay_of_a_queue_of_one_broker_is_not_recorded_before_every_broker_knows_it() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.now = NOW
    del broker.features[QUEUE_KINDS]
    broker.declare_queue("shared")
    broker.bind("amq.fanout", "shared")
    retry = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 5000}
    queue, _ = broker.declare_queue(
        "q", alternate="amq.fanout", arguments={"qpid.replicate": "none", **retry}
    )
    send(broker, "q", "m")
    taker = a_taker(queue, 1)
    broker.dispatch(NOW)
    queue.release(taker.got[0])
    assert queue.delayed
    broker.delete_queue("q")
    assert contents(broker, "shared") == ["m"]
    assert not any(isinstance(record, Requeued) and record.due for _, record in tape.records)
    other = a_taker(broker.queues["shared"], 1)
    broker.dispatch(NOW)
    assert other.bodies == ["m"]
