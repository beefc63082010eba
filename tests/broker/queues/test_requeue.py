"""Dead letters go back to the queues on which they died: each is on one queue at any time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.broker import Broker
from qpidha.broker.queues.dead_letters import DEATHS
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.requeue import REASONS, Requeue
from qpidha.model.errors import NotFound, RefusedRequest, Unauthorized
from qpidha.model.message import Message
from qpidha.model.message_view import arrival, body, build, message_annotations
from qpidha.model.records import Cause, Dequeued, Enqueued
from tests.broker.parts import Tape, a_broker, a_taker, copy_of, picture

TO_DEAD = {"x-dead-letter-exchange": "/queues/dead"}


def a_broker_of(tape: Tape | None = None, **queues: dict[str, Any]) -> Broker:
    """A broker with these queues, whose dead letters go to the queue `dead`."""
    broker = a_broker(tape)
    broker.declare_queue("dead")
    for name, arguments in queues.items():
        broker.declare_queue(name, arguments={**TO_DEAD, **arguments})
    return broker


def kill(broker: Broker, name: str, *texts: str, cause: Cause = Cause.REJECTED) -> None:
    """Have messages die on a queue."""
    queue = broker.queues[name]
    for text in texts:
        queue.enqueue(build(text, properties={"message_id": text}))
        queue.drop([list(queue.messages.values())[-1]], cause)


def texts(broker: Broker, name: str) -> list[str]:
    return [body(message.body()) for message in broker.queues[name].messages.values()]


def first(queue: Queue) -> Message:
    return next(iter(queue.messages.values()))


def finish(broker: Broker, requeue: Requeue) -> None:
    """Have turns, with all committed, until it is over."""
    while not requeue.is_over:
        broker.dispatch(0)
        broker.go_on_walking(1 << 60)


def test_each_goes_back_to_where_it_died_behind_what_is_there_in_one_batch() -> None:
    tape = Tape()
    broker = a_broker_of(tape, orders={}, bills={})
    kill(broker, "orders", "o1")
    kill(broker, "bills", "b1", cause=Cause.EXPIRED)
    kill(broker, "orders", "o2")
    broker.queues["orders"].enqueue(build("o3"))
    before = len(tape.records)
    requeue = broker.requeue("dead")
    assert (requeue.is_over, requeue.count, requeue.why, requeue.unknown) == (True, 3, "", 0)
    assert [texts(broker, name) for name in ("dead", "orders", "bills")] == [
        [],
        ["o3", "o1", "o2"],
        ["b1"],
    ]
    records = [record for _, record in tape.records[before:]]
    assert [type(record) for record in records] == [Enqueued] * 3 + [Dequeued]
    assert isinstance(tape.last, Dequeued) and tape.last.cause == Cause.MOVED
    assert requeue.sequence == tape.records[-1][0]
    assert picture(copy_of(tape)) == picture(broker)


def test_what_was_put_aside_goes_back_and_may_be_delivered_as_often_again() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", arguments={"x-delivery-limit": 1})
    queue.enqueue(build("x"))
    for _ in range(2):
        for _ in range(2):
            queue.acquire(first(queue))
            queue.requeue(first(queue), True)
        assert texts(broker, "q.undeliverable") == ["x"] and not queue.messages
        assert broker.requeue("q.undeliverable").count == 1
        assert texts(broker, "q") == ["x"]


def test_the_first_so_many_go_or_those_of_one_queue_and_none_that_a_consumer_has() -> None:
    broker = a_broker_of(orders={}, bills={})
    for number in range(3):
        kill(broker, "orders", f"o{number}")
        kill(broker, "bills", f"b{number}")
    taker = a_taker(broker.queues["dead"], 1)
    broker.dispatch(0)
    assert len(taker.got) == 1
    assert broker.requeue("dead", 2).count == 2
    assert (texts(broker, "bills"), texts(broker, "orders")) == (["b0"], ["o1"])
    assert broker.requeue("dead", origin="bills").count == 2
    assert texts(broker, "dead") == ["o0", "o2"]
    assert broker.requeue("dead", 1, origin="bills").count == 0


def test_a_queue_that_takes_no_more_keeps_none_of_the_others_back() -> None:
    broker = a_broker_of(full={"qpid.max_count": 1}, ring={}, orders={}, gone={})
    for name in ("gone", "full", "orders", "full", "gone", "orders"):
        kill(broker, name, f"{name} {len(broker.queues['dead'].messages)}")
    broker.delete_queue("gone")
    requeue = broker.requeue("dead")
    assert requeue.count == 3 and requeue.unknown == 0
    assert "no queue gone" in requeue.why and "full is full" in requeue.why
    assert texts(broker, "dead") == ["gone 0", "full 3", "gone 4"]
    assert (texts(broker, "full"), texts(broker, "orders")) == (
        ["full 1"],
        ["orders 2", "orders 5"],
    )


def test_nothing_has_to_make_room_and_the_order_of_one_queue_is_kept() -> None:
    broker = a_broker_of(ring={"qpid.max_size": 3000, "qpid.policy_type": "ring"})
    kill(broker, "ring", "small", "large" * 200, "tiny")
    here = "here" * 125
    broker.queues["ring"].enqueue(build(here))
    assert broker.requeue("dead").count == 1
    assert (texts(broker, "ring"), texts(broker, "dead")) == (
        [here, "small"],
        ["large" * 200, "tiny"],
    )


def test_of_many_queues_that_take_nothing_some_are_named() -> None:
    names = [f"q{number}" for number in range(REASONS + 2)]
    broker = a_broker_of(**{name: {} for name in names})
    for name in names:
        kill(broker, name, name)
        broker.delete_queue(name)
    why = broker.requeue("dead").why
    assert why.count("There is no queue") == REASONS and why.endswith("and 2 queues more")


def test_what_says_nothing_or_was_sent_again_by_a_client_stays() -> None:
    broker = a_broker_of(orders={})
    kill(broker, "orders", "died")
    dead = broker.queues["dead"]
    forged, *_ = arrival(first(dead).body(), 0)
    for payload in (forged, build("plain"), b"not AMQP"):
        dead.enqueue(payload)
    requeue = broker.requeue("dead")
    assert (requeue.count, requeue.unknown, requeue.why) == (1, 3, "")
    assert len(dead.messages) == 3 and texts(broker, "orders") == ["died"]


def test_a_letter_that_was_moved_before_goes_back_all_the_same() -> None:
    broker = a_broker_of(orders={})
    broker.declare_queue("archive")
    kill(broker, "orders", "x")
    broker.move("dead", "archive")
    assert broker.requeue("archive").count == 1 and texts(broker, "orders") == ["x"]


def test_it_goes_back_one_step_and_its_former_deaths_count_no_more() -> None:
    broker = a_broker()
    broker.declare_queue("deader")
    to = {name: {"x-dead-letter-exchange": f"/queues/{name}"} for name in ("dead", "deader")}
    broker.declare_queue("dead", arguments=to["deader"])
    orders, _ = broker.declare_queue("orders", arguments=to["dead"])
    kill(broker, "orders", "x", cause=Cause.EXPIRED)
    dead = broker.queues["dead"]
    dead.drop([first(dead)], Cause.EXPIRED)
    assert broker.requeue("deader").count == 1 and texts(broker, "dead") == ["x"]
    assert broker.requeue("dead").unknown == 1  # It has another try there, and nobody knows more.
    dead.drop([first(dead)], Cause.EXPIRED)
    kill(broker, "orders", "y", cause=Cause.EXPIRED)
    assert broker.requeue("dead").count == 1
    written = message_annotations(first(orders).body())
    assert [death["queue"] for death in written[DEATHS].items] == ["orders"]
    orders.drop([first(orders)], Cause.EXPIRED)  # A cycle, if the former death counted.
    (death,) = message_annotations(first(dead).body())[DEATHS].items
    assert (death["queue"], death["count"]) == ("orders", 1)


def test_its_next_death_has_the_key_of_its_first_one() -> None:
    broker = a_broker()
    for name in ("dead", "other"):
        broker.declare_queue(name)
    broker.bind("amq.direct", "other", "news")
    orders, _ = broker.declare_queue(
        "orders",
        arguments={"x-dead-letter-exchange": "amq.topic", "x-dead-letter-routing-key": "k"},
    )
    broker.bind("amq.topic", "dead", "k")
    orders.enqueue(build("x", properties={"subject": "news"}))
    orders.reject(first(orders))
    assert broker.requeue("dead").count == 1
    later, _ = broker.declare_queue("later", arguments={"x-dead-letter-exchange": "amq.direct"})
    orders.reconfigure(later.spec)
    orders.reject(first(orders))
    assert texts(broker, "other") == ["x"]


def test_a_queue_that_knows_duplicates_takes_its_own_back() -> None:
    tape = Tape()
    broker = a_broker_of(tape, orders={"qpidha.dedup": "message-id"})
    kill(broker, "orders", "m")
    assert broker.requeue("dead").count == 1 and texts(broker, "orders") == ["m"]
    broker.queues["orders"].enqueue(build("again", properties={"message_id": "m"}))
    assert texts(broker, "orders") == ["m"]
    assert picture(copy_of(tape)) == picture(broker)


def test_its_time_to_live_is_that_of_the_queue_it_goes_to() -> None:
    broker = a_broker()
    broker.declare_queue("dead", arguments={"x-message-ttl": 1})
    for name, more in (("keeps", {}), ("short", {"x-message-ttl": 5})):
        broker.declare_queue(name, arguments={**TO_DEAD, **more})
        kill(broker, name, name)
    broker.requeue("dead")
    assert first(broker.queues["keeps"]).expires == 0
    assert first(broker.queues["short"]).expires == 5_000_000


def test_who_may_not_publish_there_sends_nothing_back() -> None:
    broker = a_broker_of(orders={}, bills={})
    kill(broker, "orders", "o")
    kill(broker, "bills", "b")
    asked: list[str] = []

    def check(queue: Queue) -> None:
        asked.append(queue.name)
        if queue.name == "orders":
            raise Unauthorized("you may not", hint="ask")

    requeue = broker.requeue("dead", check=check)
    assert (requeue.count, requeue.why, asked) == (1, "you may not", ["orders", "bills"])
    with pytest.raises(Unauthorized):
        broker.requeue("dead", origin="orders", check=check)


def test_a_backup_and_a_wrong_name_are_refused() -> None:
    broker = a_broker_of(Tape(), orders={})
    with pytest.raises(NotFound):
        broker.requeue("nowhere")
    with pytest.raises(NotFound):
        broker.requeue("dead", origin="nowhere")
    broker.passive = True
    with pytest.raises(RefusedRequest, match="on a backup"):
        broker.requeue("dead")


def test_many_go_some_a_turn_and_each_step_waits_for_the_one_before() -> None:
    tape = Tape()
    broker = a_broker_of(tape, orders={})
    bodies = [str(number) for number in range(250)]
    for text in bodies:
        broker.dispatch(0)
        kill(broker, "orders", text)
    broker.dispatch(0)
    requeue = broker.requeue("dead")
    assert requeue.count == 100 and not requeue.is_over
    broker.go_on_walking(requeue.sequence - 1)
    assert requeue.count == 100
    finish(broker, requeue)
    assert texts(broker, "orders") == bodies and not broker.queues["dead"].messages
    assert picture(copy_of(tape)) == picture(broker)


@given(st.integers(0, 8), st.integers(0, 40), st.integers(1, 30))
def test_after_any_step_a_successor_has_each_message_once(count: int, cut: int, step: int) -> None:
    tape = Tape()
    broker = a_broker_of(tape, orders={"qpid.max_count": 5}, bills={})
    everything = [f"{name} {number}" for number in range(count) for name in ("orders", "bills")]
    for text in everything:
        kill(broker, text.split()[0], text)
    before = len(tape.records)
    requeue = Requeue(broker.queues["dead"], broker.queue, 0)
    bounds = [before]
    while not requeue.is_over:
        requeue.step(step)
        bounds.append(len(tape.records))
    cut_off = Tape()  # A batch is whole or not there.
    cut_off.records = tape.records[: max(bound for bound in bounds if bound <= before + cut)]
    successor = copy_of(cut_off)
    found = [text for name in ("orders", "bills", "dead") for text in texts(successor, name)]
    assert sorted(found) == sorted(everything)
    assert requeue.count == count + min(count, 5)
