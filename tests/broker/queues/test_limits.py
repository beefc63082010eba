"""What a full queue does: it refuses, makes room, or ends; it is never over its limit, and each
message has one outcome.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues.dead_letters import DEATHS
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Post, Transaction, TransactionRolledBack
from qpidha.model.errors import (
    InvalidArgument,
    LimitExceeded,
    PreconditionFailed,
    QueueFull,
    ResourceDeleted,
)
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.message_view import build, message_annotations, properties
from tests.bench import exact_limit
from tests.broker.parts import (
    Tape,
    a_broker,
    a_message,
    a_poster,
    a_taker,
    contents,
    copy_of,
    picture,
    send,
)

OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
"""As RabbitMQ spells them."""


def a_queue(broker: Broker, overflow: str = "", **arguments: Any) -> Queue:
    """A queue for one message, unless it says otherwise, that does so when it is full."""
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    given.setdefault("x-max-length", 1)
    if overflow:
        given["x-overflow" if overflow in OVERFLOWS else "qpid.policy_type"] = overflow
    return broker.declare_queue("q", arguments=given)[0]


def send_all(broker: Broker, *bodies: str) -> list[str]:
    """Send messages; return those that were taken."""
    taken = []
    for body in bodies:
        try:
            send(broker, "q", body)
        except QueueFull:
            continue
        taken.append(body)
    return taken


@pytest.mark.parametrize("arguments", [{}, {"x-overflow": "drop-head"}])
def test_t_l1_row_105_the_oldest_gives_way_unless_it_is_said_otherwise(
    arguments: dict[str, Any],
) -> None:
    broker = a_broker()
    broker.declare_queue("q", arguments={"x-max-length": 1, **arguments})
    send(broker, "q", "m1", "m2", "m3")
    assert contents(broker, "q") == ["m3"]


def test_a_message_that_was_given_back_twice_makes_room_once() -> None:
    broker = a_broker(Tape())
    queue = a_queue(broker, "drop-head", x_max_length=9, x_max_length_bytes=400)
    send(broker, "q", *(letter * 100 for letter in "abcd"))
    first = a_taker(queue, 1)
    broker.dispatch(1)
    queue.release(first.got[0])
    selecting = a_taker(queue, 1, wants=lambda message: True)
    broker.dispatch(1)
    queue.release(selecting.got[0])
    send(broker, "q", "e" * 150)
    assert [body[0] for body in contents(broker, "q")] == ["c", "d", "e"]


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_row_104_three_messages_of_80_bytes_are_too_many_for_100(overflow: str) -> None:
    broker = a_broker()
    broker.declare_queue("q", arguments={"x-max-length-bytes": 100, "x-overflow": overflow})
    bodies = [character * 80 for character in "abc"]
    send_all(broker, *bodies)
    assert contents(broker, "q") == [bodies[2 if overflow == "drop-head" else 0]]


def test_t_l2_a_full_queue_refuses_until_something_is_consumed() -> None:
    broker = a_broker()
    queue = a_queue(broker, "reject-publish")
    assert send_all(broker, "a", "b", "c") == ["a"] and queue.refused == 2
    queue.dequeue(next(iter(queue.messages.values())))
    assert send_all(broker, "d") == ["d"]


@pytest.mark.parametrize("overflow", ["reject-publish", "drop-head"])
def test_t_l4_row_108_what_comes_back_may_be_over_the_limit_and_in_its_place(overflow: str) -> None:
    broker = a_broker()
    queue = a_queue(broker, overflow)
    send(broker, "q", "m1")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    queue.reconfigure(a_queue(a_broker(), overflow, x_max_length=2).spec)
    send(broker, "q", "m2")
    queue.reconfigure(a_queue(a_broker(), overflow).spec)
    queue.release(taker.got[0])
    assert contents(broker, "q") == ["m1", "m2"]
    assert [message.body() for message in queue.available()] == [b"m1", b"m2"]


def test_t_l5_row_106_a_queue_of_twelve_is_never_over_it_and_each_send_has_one_outcome() -> None:
    """`python -m tests.bench.exact_limit` plays as many as are wanted."""
    accepted, refused = exact_limit.play(24_000)
    assert accepted > 0 < refused


@pytest.mark.parametrize("overflow", ["reject-publish", "drop-head"])
def test_row_106_no_replica_is_over_the_limit_at_any_record(overflow: str) -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue = a_queue(broker, overflow, x_max_length=3)
    for turn in range(20):
        send_all(broker, *"abcde")
        for message in list(queue.messages.values())[: turn % 4]:
            queue.dequeue(message)
    backup = a_broker()
    backup.passive = True
    for sequence, record in tape.records:
        backup.apply(sequence, record)
        assert "q" not in backup.queues or len(backup.queues["q"].messages) <= 3


def test_t_l6_without_its_overflow_a_queue_is_a_ring_again() -> None:
    broker = a_broker()
    queue = a_queue(broker, "reject-publish")
    assert send_all(broker, "a", "b") == ["a"]
    queue.reconfigure(a_queue(a_broker()).spec)
    send(broker, "q", "c")
    assert contents(broker, "q") == ["c"]


def test_row_106_with_a_low_water_a_full_queue_stays_closed_until_it_is_down_to_it() -> None:
    broker = a_broker()
    given = {"x_max_length": 10, "qpidha.overflow_low_water": 50}
    queue = a_queue(broker, "reject-publish", **given)
    assert len(send_all(broker, *"abcdefghijkl")) == 10
    for left in (9, 8, 7, 6):
        queue.dequeue(next(iter(queue.messages.values())))
        assert send_all(broker, "x") == [] and len(queue.messages) == left
    queue.dequeue(next(iter(queue.messages.values())))
    assert len(send_all(broker, *"123456")) == 5 and len(queue.messages) == 10
    with pytest.raises(LimitExceeded):
        send(broker, "q", "y")


def test_row_107_what_is_refused_becomes_a_dead_letter() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("dead")
    queue = a_queue(broker, "reject-publish-dlx", x_dead_letter_exchange="/queues/dead")
    for subject in ("m1", "m2", "m3"):
        try:
            queue.enqueue(a_message(subject))
        except QueueFull:
            continue
        assert subject == "m1"
    dead = list(broker.queues["dead"].messages.values())
    assert [properties(message.body())["subject"] for message in dead] == ["m2", "m3"]
    (death,) = message_annotations(dead[0].body())[DEATHS].items
    assert (death["queue"], death["reason"]) == ("q", "maxlen")
    assert len(queue.messages) == 1 and picture(broker) == picture(copy_of(tape))


def test_row_107_a_message_for_several_queues_is_a_dead_letter_of_the_full_one_once() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    broker.declare_queue("other")
    a_queue(broker, "reject-publish-dlx", x_dead_letter_exchange="/queues/dead")
    for name in ("other", "q"):
        broker.bind("amq.fanout", name)
    send(broker, "q", "a")
    with pytest.raises(QueueFull):
        broker.publish("amq.fanout", "", b"b", headers=dict)
    assert (contents(broker, "dead"), contents(broker, "other")) == (["b"], [])


@pytest.mark.parametrize("target", [{}, {"x-dead-letter-exchange": "missing"}])
def test_row_107_what_is_refused_is_refused_though_there_are_no_dead_letters(
    target: dict[str, str],
) -> None:
    broker = a_broker()
    queue = a_queue(broker, "reject-publish-dlx", **target)
    assert send_all(broker, "a", "b") == ["a"] and queue.not_rerouted == len(target)


@pytest.mark.parametrize("overflow", ["ring-strict", "ring_strict"])
def test_a_strict_ring_refuses_while_a_consumer_has_its_oldest_message(overflow: str) -> None:
    broker = a_broker()
    queue = a_queue(broker, overflow, x_max_length=2)
    send(broker, "q", "a", "b", "c")
    assert contents(broker, "q") == ["b", "c"]
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    assert send_all(broker, "d") == [] and contents(broker, "q") == ["b", "c"]
    queue.dequeue(taker.got[0])
    assert send_all(broker, "d", "e") == ["d", "e"] and contents(broker, "q") == ["d", "e"]


def test_a_strict_ring_with_priorities_refuses_for_what_should_leave_before() -> None:
    broker = a_broker()
    queue = a_queue(broker, "ring-strict", x_max_length=3, **{"x-max-priority": 9})
    for priority in (9, 1, 1):
        queue.enqueue(build("x", header={"priority": priority}))
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    for _ in range(2):  # The highest has left the place in which it was; it would go last.
        queue.enqueue(build("x", header={"priority": 1}))
    assert len(queue.messages) == 3
    taker.credit = 1
    broker.dispatch(1)
    with pytest.raises(QueueFull):
        queue.enqueue(build("x", header={"priority": 1}))


def test_qpid_2_11_a_queue_destroys_itself_when_it_is_full() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("old")
    broker.bind("amq.fanout", "old")
    queue, _ = broker.declare_queue(
        "q",
        alternate="amq.fanout",
        arguments={"qpid.max_count": 2, "qpid.policy_type": "self-destruct"},
    )
    taker = a_taker(queue)
    send(broker, "q", "a", "b")
    with pytest.raises(ResourceDeleted, match="was full"):
        send(broker, "q", "c")
    assert "q" not in broker.queues and taker.is_told
    assert contents(broker, "old") == ["a", "b"] and picture(broker) == picture(copy_of(tape))


def test_a_queue_that_makes_room_or_is_to_be_full_has_no_sender_wait() -> None:
    for overflow in ("ring-strict", "self-destruct", "reject-publish-dlx"):
        queue = a_queue(a_broker(), overflow)
        queue.enqueue(b"a")
        assert a_poster(queue).is_admitted and not queue.is_stopped


def test_a_commit_is_whole_though_a_strict_ring_would_refuse_a_part() -> None:
    broker = a_broker(Tape())
    queue = a_queue(broker, "ring-strict", x_max_length=2)
    send(broker, "q", "a")
    a_taker(queue, 1)
    broker.dispatch(1)
    transaction = Transaction(broker)
    for body in (b"b", b"c", b"d"):
        transaction.post(Post(body, 0, queue=queue))
    try:
        transaction.commit()
    except TransactionRolledBack:
        assert contents(broker, "q") == ["a"]
    else:
        assert contents(broker, "q")[-3:] == ["b", "c", "d"]


def test_a_commit_is_whole_though_its_dead_letters_fill_a_queue_that_is_to_end_then() -> None:
    tape = Tape()
    broker = a_broker(tape)
    ending = broker.declare_queue(
        "ending", arguments={"qpid.max_count": 1, "qpid.policy_type": "self-destruct"}
    )[0]
    ring = a_queue(broker, "ring", x_dead_letter_exchange="/queues/ending")
    send(broker, "q", "old")
    transaction = Transaction(broker)
    for queue in (ring, ending):
        transaction.post(Post(b"new", 0, queue=queue))
    transaction.commit()
    assert contents(broker, "q") == ["new"]
    assert contents(broker, "ending")[-1] == "new" and len(ending.messages) == 2
    assert picture(broker) == picture(copy_of(tape))


@pytest.mark.parametrize("name", ["flow_to_disk", "flow-to-disk"])
def test_flow_to_disk_is_refused_with_what_there_is_instead(name: str) -> None:
    with pytest.raises(InvalidArgument, match="not offered") as error:
        a_queue(a_broker(), name)
    assert "on disk" in error.value.reason and "qpidha.memory" in error.value.hint


@pytest.mark.parametrize("overflow", ["ring-strict", "self-destruct", "reject-publish-dlx"])
def test_what_an_older_broker_takes_for_another_kind_is_refused_until_all_know_it(
    overflow: str,
) -> None:
    broker = a_broker(Tape())
    del broker.features[QUEUE_KINDS]
    with pytest.raises(PreconditionFailed, match="every broker"):
        a_queue(broker, overflow)
    a_queue(broker, "reject-publish")
