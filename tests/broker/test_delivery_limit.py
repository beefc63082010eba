"""The delivery limit: what counts as a delivery that failed, and what becomes of a message that had
too many.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues.dead_letters import DEATHS
from qpidha.broker.queues.queue import Queue
from qpidha.model.errors import InvalidArgument, PreconditionFailed, ResourceLocked
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.message import Message
from qpidha.model.message_view import header, message_annotations, properties
from qpidha.model.records import Cause
from tests.broker.parts import Tape, a_broker, a_message, a_taker, contents, copy_of, picture, send

UNLIMITED = (1 << 63) - 1


def a_queue(broker: Broker, limit: int | str = 1, **options: Any) -> Queue:
    arguments = {"x-delivery-limit": limit, **options.pop("arguments", {})}
    return broker.declare_queue("q", arguments=arguments, **options)[0]


def first(queue: Queue) -> Message:
    return next(iter(queue.messages.values()))


def fail(queue: Queue, times: int = 1) -> None:
    """Have the first message come back as a delivery that failed."""
    for _ in range(times):
        message = first(queue)
        queue.acquire(message)
        queue.requeue(message, True)


def reason(broker: Broker, queue: str) -> str:
    found = message_annotations(first(broker.queues[queue]).body())[DEATHS]
    return str(found.items[0]["reason"])


@pytest.mark.parametrize(("limit", "deliveries"), [(0, 1), (1, 2), ("2", 3)])
def test_row_94_a_message_leaves_when_it_failed_more_often_than_the_limit(
    limit: int | str, deliveries: int
) -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("dead")
    queue = a_queue(broker, limit, arguments={"x-dead-letter-exchange": "/queues/dead"})
    queue.enqueue(a_message("x"))
    fail(queue, deliveries - 1)
    assert first(queue).delivery_count == deliveries - 1
    fail(queue)
    assert not queue.messages and reason(broker, "dead") == "delivery_limit"
    assert header(first(broker.queues["dead"]).body())["delivery_count"] == deliveries
    assert queue.departures["delivery-limit"] == 1
    assert picture(broker) == picture(copy_of(tape))


@pytest.mark.parametrize("arguments", [{}, {"x-delivery-limit": -1}, {"x-queue-type": "classic"}])
def test_t_q2_without_a_limit_a_message_comes_back_for_ever(arguments: dict[str, Any]) -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q", arguments=arguments)
    send(broker, "q", "a")
    fail(queue, 50)
    assert first(queue).delivery_count == 50


def test_row_95_what_was_released_does_not_count() -> None:
    broker = a_broker()
    queue = a_queue(broker, 0)
    send(broker, "q", "a")
    for count in (1, 2, 3):
        queue.acquire(first(queue))
        queue.release(first(queue))
        queue.acquire(first(queue))
        queue.requeue(first(queue), False, b"")
        assert (first(queue).delivery_count, first(queue).acquired_count) == (0, 2 * count)


@pytest.mark.parametrize(("counts", "left"), [("all", []), ("oldest", ["b"])])
def test_row_95_pain_14_of_what_is_lost_with_its_consumer_all_counts_or_the_oldest(
    counts: str, left: list[str]
) -> None:
    broker = a_broker()
    queue = a_queue(broker, 1, arguments={"x-loss-counts": counts})
    send(broker, "q", "a", "b")
    for _ in range(2):
        taker = a_taker(queue, 2)
        broker.dispatch(1)
        broker.returns.add(queue, taker.got, True)
        queue.unsubscribe(taker)
    assert contents(broker, "q") == left
    assert contents(broker, "q.undeliverable") == [body for body in "ab" if body not in left]


def test_t_q2_five_messages_two_at_a_time() -> None:
    broker = a_broker()
    queue = a_queue(broker, 0)
    send(broker, "q", *"abcde")
    for left in (3, 1, 0):
        taker = a_taker(queue, 2)
        broker.dispatch(1)
        broker.returns.add(queue, taker.got, True)
        queue.unsubscribe(taker)
        assert len(queue.messages) == left
    assert contents(broker, "q.undeliverable") == list("abcde")


def test_row_97_the_count_survives_a_failover_and_the_failover_does_not_count() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue = a_queue(broker, 2)
    send(broker, "q", "a")
    fail(queue, 2)
    queue.acquire(first(queue))
    backup = copy_of(tape)
    backup.log_writer = tape
    backup.promoted(1)
    taken = backup.queues["q"]
    assert first(taken).delivery_count == 2
    fail(taken)
    assert not taken.messages and contents(backup, "q.undeliverable") == ["a"]


@pytest.mark.parametrize(
    "options", [{"durable": True}, {"arguments": {"qpid.replicate": "none"}}, {}]
)
def test_what_has_nowhere_to_go_is_put_aside_on_a_queue_like_its_own(
    options: dict[str, Any],
) -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue = a_queue(broker, 0, **options)
    for subject in "ab":
        queue.enqueue(a_message(subject))
        fail(queue)
    aside = broker.queues["q.undeliverable"]
    assert [properties(m.body())["subject"] for m in aside.messages.values()] == ["a", "b"]
    assert reason(broker, "q.undeliverable") == "delivery_limit"
    assert (aside.durable, aside.options.replicate) == (queue.durable, queue.options.replicate)
    assert aside.logged == queue.logged and aside.spec.delivery_limit.most == UNLIMITED
    assert picture(broker) == picture(copy_of(tape))


@pytest.mark.parametrize("name", ["q" * 241, "q" * 242, "q" * 255, "\N{SNOWMAN}" * 81], ids=len)
def test_what_has_nowhere_to_go_is_put_aside_whatever_the_name_of_its_queue(name: str) -> None:
    broker = a_broker()
    asides = []
    for each in (name, f"{name[:-1]}x"):
        queue, _ = broker.declare_queue(each, arguments={"x-delivery-limit": 0})
        queue.enqueue(a_message("x"))
        fail(queue)
        assert not queue.messages
        asides.append(list(broker.queues)[-1])
    assert len(set(asides)) == 2 and all(aside.endswith(".undeliverable") for aside in asides)
    assert (asides[0] == f"{name}.undeliverable") == (name == "q" * 241)
    for aside in asides:
        assert len(aside.encode()) <= 255
        assert broker.requeue(aside).count == 1 and not broker.queues[aside].messages


def test_what_is_put_aside_from_an_exclusive_queue_is_for_its_owner_alone() -> None:
    broker = a_broker(Tape())
    owner, heir, other = object(), object(), object()
    queue = a_queue(broker, 0, exclusive=True, owner=owner)
    send(broker, "q", "a")
    fail(queue)
    aside = broker.queues["q.undeliverable"]
    aside.check_access(owner)
    with pytest.raises(ResourceLocked):
        aside.check_access(other)
    broker.owner_gone(owner)
    assert contents(broker, "q.undeliverable") == ["a"], "nothing vanishes"
    a_queue(broker, 0, exclusive=True, owner=heir)
    send(broker, "q", "b")
    fail(queue)
    aside.check_access(heir)
    with pytest.raises(ResourceLocked):
        aside.check_access(other)


def test_what_is_put_aside_is_not_for_an_owner_who_has_just_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qpidha.broker.broker.WALKED_A_TURN", 1)
    broker = a_broker()
    owner = object()
    for number in range(3):
        broker.declare_queue(f"q{number}", exclusive=True, owner=owner)
    queue = a_queue(broker, 0, exclusive=True, owner=owner)
    send(broker, "q", "a")
    broker.dispatch(1)
    broker.owner_gone(owner)
    assert queue.owner is owner, "it has not heard of it yet"
    fail(queue)
    while broker.may_walk(1):
        broker.dispatch(1)
    broker.queues["q.undeliverable"].check_access(object())


def test_what_has_nowhere_to_go_is_dropped_where_that_is_asked_for() -> None:
    broker = a_broker()
    queue = a_queue(broker, 0, arguments={"qpidha.delivery-limit-action": "drop"})
    send(broker, "q", "a")
    fail(queue)
    assert not queue.messages and list(broker.queues) == ["q"]
    assert queue.departures["delivery-limit"] == 1


def test_an_alternate_exchange_takes_what_was_delivered_too_often() -> None:
    broker = a_broker()
    broker.declare_queue("old")
    broker.bind("amq.fanout", "old")
    queue = a_queue(broker, 0, alternate="amq.fanout")
    send(broker, "q", "a")
    fail(queue)
    assert contents(broker, "old") == ["a"] and "q.undeliverable" not in broker.queues


def test_where_no_queue_more_can_be_made_the_message_waits() -> None:
    broker = a_broker(max_queues=1)
    queue = a_queue(broker, 0)
    send(broker, "q", "a")
    fail(queue)
    assert len(queue.unplaced) == 1 and "q.undeliverable" in queue.why_unplaced


def test_t_d13_the_dead_letters_of_a_delivery_limit_are_in_the_order_of_the_deaths() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    queue = a_queue(broker, 0, arguments={"x-dead-letter-exchange": "/queues/dead"})
    send(broker, "q", *"abcd")
    taker = a_taker(queue, 4)
    broker.dispatch(1)
    queue.requeue(taker.got[2], True)
    broker.returns.add(queue, [taker.got[0], taker.got[1], taker.got[3]], True)
    assert contents(broker, "dead") == ["c", "a", "b", "d"]


# -- a limit that changes -------------------------------------------------------------------------


def sweep(broker: Broker) -> None:
    while broker.walks:
        broker.go_on_walking(1 << 60)


def limited(limit: int) -> Any:
    """The spec of a queue with another limit."""
    return a_queue(a_broker(), limit).spec


def test_row_94_t_q3_a_lower_limit_sweeps_what_is_over_it() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue = a_queue(broker, 20)
    send(broker, "q", *"abc")
    for message, times in zip(list(queue.messages.values()), (3, 6, 6), strict=True):
        for _ in range(times):
            queue.acquire(message)
            queue.requeue(message, True)
    held = list(queue.messages.values())[2]
    queue.acquire(held)
    queue.reconfigure(limited(5))
    assert contents(broker, "q") == ["a", "b", "c"]
    sweep(broker)
    assert contents(broker, "q") == ["a", "c"]
    queue.requeue(held, True)
    assert contents(broker, "q.undeliverable") == ["b", "c"]
    for limit in (10, 20):
        queue.reconfigure(limited(limit))
    assert not broker.walks and contents(broker, "q") == ["a"]
    assert picture(broker) == picture(copy_of(tape))


def test_a_successor_goes_on_with_a_sweep() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue = a_queue(broker, 5)
    send(broker, "q", "a")
    fail(queue, 3)
    backup = copy_of(tape)
    backup.queues["q"].reconfigure(limited(2))
    assert not backup.walks
    backup.log_writer = tape
    backup.promoted(1)
    sweep(backup)
    assert contents(backup, "q") == []


# -- declarations ---------------------------------------------------------------------------------


def test_a_quorum_queue_has_a_limit_of_twenty_unless_it_says_so() -> None:
    broker = a_broker(Tape())
    quorum = {"x-queue-type": "quorum"}
    queue, _ = broker.declare_queue("q", durable=True, arguments=quorum)
    assert queue.spec.delivery_limit.most == 20
    assert broker.declare_queue("q", durable=True, arguments=quorum) == (queue, 0)
    for limit, most in ((3, 3), (-1, UNLIMITED)):
        given = {**quorum, "x-delivery-limit": limit}
        other, _ = broker.declare_queue(f"q{limit}", durable=True, arguments=given)
        assert other.spec.delivery_limit.most == most
        assert broker.declare_queue(f"q{limit}", durable=True, arguments=quorum) == (other, 0)


def test_a_quorum_queue_of_an_earlier_version_stays_without_a_limit() -> None:
    broker = a_broker(Tape())
    del broker.features[QUEUE_KINDS]
    quorum = {"x-queue-type": "quorum"}
    queue, _ = broker.declare_queue("q", durable=True, arguments=quorum)
    assert queue.spec.delivery_limit.most == UNLIMITED
    broker.features[QUEUE_KINDS] = 1
    assert broker.declare_queue("q", durable=True, arguments=quorum) == (queue, 0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        *(
            ({"x-delivery-limit": value}, InvalidArgument)
            for value in (-2, 1.5, "x", " 5", "\u0663")
        ),
        *(({"x-delivery-limit": value}, InvalidArgument) for value in (True, 2**32)),
        ({"qpidha.delivery-limit-action": "drop"}, PreconditionFailed),
        ({"x-delivery-limit": 1, "qpidha.delivery-limit-action": "no"}, InvalidArgument),
        ({"qpidha.loss-counts": "newest"}, InvalidArgument),
    ],
)
def test_a_limit_that_cannot_be_followed_is_refused(
    arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        a_broker(Tape()).declare_queue("q", arguments=arguments)


def test_the_cause_of_a_message_that_was_delivered_too_often_is_recorded() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue = a_queue(broker, 0)
    send(broker, "q", "a")
    fail(queue)
    assert copy_of(tape).queues["q"].departed[Cause.DELIVERY_LIMIT] == 1


# -- undeliverable here ---------------------------------------------------------------------------


BURIES = {"qpidha.undeliverable-here": "dead-letter"}
TO_DEAD = {"x-dead-letter-exchange": "/queues/dead"}


@pytest.mark.parametrize("failed", [False, True])
def test_t_m9_row_138_what_is_undeliverable_here_goes_to_others_or_dies(failed: bool) -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("dead")
    for name, more in (("kept", {}), ("buried", BURIES)):
        queue, _ = broker.declare_queue(name, arguments={**TO_DEAD, **more})
        queue.enqueue(a_message(name))
        taker, other = a_taker(queue, 1), a_taker(queue)
        broker.dispatch(1)
        queue.requeue(taker.got[0], failed, not_to=taker)
        taker.credit = other.credit = 1
        broker.dispatch(2)
        assert (len(taker.got), len(other.got)) == (1, 1 if name == "kept" else 0)
    assert [queue.departures["undeliverable"] for queue in broker.queues.values()] == [0, 0, 1]
    assert reason(broker, "dead") == "undeliverable"
    fields = header(first(broker.queues["dead"]).body())
    assert (fields["delivery_count"], fields["first_acquirer"]) == (1, False)
    assert picture(copy_of(tape)) == picture(broker)


def test_row_138_without_dead_letters_what_is_undeliverable_is_as_what_is_rejected() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    broker.bind("amq.fanout", "dead")
    for name, alternate in (("none", ""), ("alternate", "amq.fanout")):
        queue, _ = broker.declare_queue(name, alternate=alternate, arguments=BURIES)
        send(broker, name, name)
        taker = a_taker(queue, 1)
        broker.dispatch(1)
        queue.requeue(taker.got[0], False, not_to=taker)
        assert not queue.messages
    assert contents(broker, "dead") == ["alternate"]


def test_row_138_what_is_undeliverable_may_come_back_and_waits_for_a_place() -> None:
    broker = a_broker(Tape())
    given = {**BURIES, "x-dead-letter-exchange": "/queues/q"}
    queue, _ = broker.declare_queue("q", arguments=given)
    queue.enqueue(a_message("x"))
    taker = a_taker(queue, 3)
    for turn in range(3):
        broker.dispatch(turn)
        queue.requeue(taker.got[turn], False, not_to=taker)
    (death,) = message_annotations(first(queue).body())[DEATHS].items
    assert death["count"] == 3
    held, _ = broker.declare_queue("held", arguments={**BURIES, **TO_DEAD})
    held.enqueue(a_message("x"))
    taker = a_taker(held, 1)
    broker.dispatch(9)
    held.requeue(taker.got[0], True, not_to=taker)
    assert (len(held.messages), len(held.unplaced), held.why_unplaced != "") == (1, 1, True)


def test_row_138_what_becomes_of_it_is_one_of_two_words() -> None:
    with pytest.raises(InvalidArgument, match="undeliverable-here"):
        a_broker().declare_queue("q", arguments={"qpidha.undeliverable-here": "drop"})
