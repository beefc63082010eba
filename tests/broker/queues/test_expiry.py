"""Messages expire anywhere on their queue, shortly after their time and never before."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker import broker as broker_module
from qpidha.broker.broker import Broker
from qpidha.broker.policy import policy_asked_for
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.periods import LONGEST
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.spec import compile_spec
from qpidha.broker.transaction import Post, Transaction
from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.errors import InvalidArgument, PreconditionFailed
from qpidha.model.records import Cause, Dequeued, Enqueued, QueueDeclared
from tests.broker.parts import Tape, a_broker, a_taker, at, contents, copy_of, send

NOW = 1_000 * SECOND


def a_queue(ttl: int | None = None, **options: Any) -> tuple[Broker, Queue, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    broker.now = NOW
    arguments = {} if ttl is None else {"x-message-ttl": ttl}
    queue, _ = broker.declare_queue("q", arguments=arguments, **options)
    return broker, queue, tape


def a_spec(ttl: int | None) -> Any:
    arguments = {} if ttl is None else {"x-message-ttl": ttl}
    return compile_spec(QueueDeclared("q", "", arguments=arguments), QueueDefaults())


def test_row_109_a_message_expires_behind_one_that_does_not() -> None:
    broker, queue, tape = a_queue()
    send(broker, "q", "stays")
    (second,) = send(broker, "q", "goes", expires=NOW + SECOND)
    send(broker, "q", "later", expires=NOW + 5 * SECOND)
    at(broker, NOW + SECOND - 1)
    assert contents(broker, "q") == ["stays", "goes", "later"]
    at(broker, NOW + SECOND + SECOND // 20)
    assert contents(broker, "q") == ["stays", "later"]
    assert tape.last == Dequeued(queue.uid, (second,), Cause.EXPIRED) and queue.expired == 1


def test_t_l8_the_smaller_of_the_queues_time_and_the_messages_counts() -> None:
    broker, queue, _ = a_queue(1000)
    send(broker, "q", "none")
    send(broker, "q", "more", expires=NOW + 2 * SECOND)
    send(broker, "q", "less", expires=NOW + SECOND // 2)
    assert [message.expires - NOW for message in queue.messages.values()] == [
        SECOND,
        SECOND,
        SECOND // 2,
    ]
    at(broker, NOW + 2 * SECOND)
    assert not queue.messages


def test_row_109_a_time_of_0_is_delivered_at_once_or_expires() -> None:
    broker, queue, _ = a_queue(0)
    taker = a_taker(queue, 1)
    send(broker, "q", "taken", "left")
    broker.dispatch(NOW)
    assert taker.bodies == ["taken"]
    at(broker, NOW + SECOND // 20)
    assert contents(broker, "q") == ["taken"]


@pytest.mark.parametrize("ttl", [-1, LONGEST + 1, "x", 1.5, True, 10**30])
def test_t_l8_a_time_that_cannot_be_is_refused(ttl: object) -> None:
    with pytest.raises(InvalidArgument, match="x-message-ttl"):
        a_queue(ttl)  # type: ignore[arg-type]
    assert a_queue(LONGEST)[1].spec.ttl == LONGEST * MILLISECOND


def test_a_time_to_live_waits_until_every_broker_knows_it() -> None:
    broker = a_broker(Tape())
    broker.features.clear()
    with pytest.raises(PreconditionFailed, match="x-message-ttl"):
        broker.declare_queue("q", arguments={"x-message-ttl": 5})


def test_row_109_what_is_given_back_keeps_its_expiry() -> None:
    broker, queue, _ = a_queue(1000)
    taker = a_taker(queue, 2)
    send(broker, "q", "a", "b")
    broker.dispatch(NOW)
    at(broker, NOW + SECOND // 2)
    queue.requeue(taker.got[0], failed=True)
    at(broker, NOW + 2 * SECOND)
    assert contents(broker, "q") == ["b"]  # Its consumer may still accept it.
    queue.release(taker.got[1])
    at(broker, NOW + 2 * SECOND + SECOND // 20)
    assert not queue.messages and queue.expired == 2


def test_row_109_a_message_on_several_queues_has_the_time_of_each() -> None:
    broker, short, tape = a_queue(1000)
    plain, _ = broker.declare_queue("plain")
    other, _ = broker.declare_queue("other")
    for name in ("q", "plain", "other"):
        broker.bind("amq.fanout", name)
    routed = broker.publish("amq.fanout", "", b"m", headers=dict, expires=NOW + 5 * SECOND)
    enqueued = [record for _, record in tape.records if isinstance(record, Enqueued)]
    assert [(record.queues, record.expires - NOW) for record in enqueued] == [
        ((short.uid,), SECOND),
        ((plain.uid, other.uid), 5 * SECOND),
    ]
    assert routed == (tape.records[-1][0], 3)
    at(broker, NOW + 2 * SECOND)
    assert [len(queue.messages) for queue in (short, plain, other)] == [0, 1, 1]


def test_a_message_of_a_transaction_has_the_time_of_its_queue() -> None:
    broker, queue, _ = a_queue(1000)
    transaction = Transaction(broker)
    transaction.post(Post(b"m", 0, queue=queue))
    transaction.commit()
    at(broker, NOW + 2 * SECOND)
    assert not queue.messages


def test_t_l10_a_shorter_time_holds_for_all_messages_from_then_on() -> None:
    broker, queue, _ = a_queue()
    send(broker, "q", "old")
    send(broker, "q", "sooner", expires=NOW + SECOND // 2)
    broker.now = NOW + SECOND // 4
    queue.reconfigure(a_spec(1000))
    send(broker, "q", "new")
    at(broker, NOW + SECOND // 2 + SECOND // 20)
    assert contents(broker, "q") == ["old", "new"]
    queue.reconfigure(a_spec(5000))
    at(broker, NOW + SECOND + SECOND // 2)
    assert not queue.messages


def test_row_109_a_successor_gives_each_message_its_time_and_none_less() -> None:
    broker, _, tape = a_queue()
    send(broker, "q", "a", expires=NOW + SECOND)
    send(broker, "q", "b")
    successor = copy_of(tape)
    successor.queues["q"].reconfigure(a_spec(3000))
    successor.log_writer = Tape()
    assert not successor.next_deadline
    successor.promoted(NOW + SECOND // 2)
    at(successor, NOW + SECOND - 1)
    assert contents(successor, "q") == ["a", "b"]
    at(successor, NOW + SECOND + SECOND // 20)
    assert contents(successor, "q") == ["b"]
    at(successor, NOW + 4 * SECOND)
    assert contents(successor, "q") == []


def test_a_broker_that_decides_no_longer_looks_at_nothing() -> None:
    broker, queue, tape = a_queue(1000)
    send(broker, "q", "a")
    broker.passive = True
    broker.tick(NOW + 5 * SECOND)
    assert contents(broker, "q") == ["a"] and queue.times is None
    assert tape.kinds()[-1] == "Enqueued"


def test_much_that_expires_together_takes_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "LOOKED_A_TURN", 1000)
    broker, queue, _ = a_queue(1000)
    for _ in range(2500):
        queue.enqueue(b"m")
    broker.tick(NOW + 2 * SECOND)
    assert len(queue.messages) == 1500 and broker.next_deadline <= NOW + 2 * SECOND
    at(broker, NOW + 2 * SECOND)
    assert not queue.messages


def test_a_queue_that_is_gone_is_not_looked_at() -> None:
    broker, _, _ = a_queue(1000)
    send(broker, "q", "a")
    broker.delete_queue("q")
    assert not broker.next_deadline


def by_policy(broker: Broker, *, is_operator: bool = False, **settings: Any) -> None:
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    broker.set_policy(policy_asked_for("p", ".*", named, is_operator=is_operator))
    broker.dispatch(broker.now)


def test_t_l10_an_operators_time_wins_and_is_applied_to_all() -> None:
    broker, queue, _ = a_queue(100_000)
    send(broker, "q", "old")
    by_policy(broker, is_operator=True, message_ttl=1)
    send(broker, "q", "new")
    at(broker, NOW + SECOND // 20)
    assert not queue.messages and queue.expired == 2


def test_row_109_with_a_policy_of_none_messages_keep_the_time_they_have() -> None:
    broker, queue, _ = a_queue()
    by_policy(broker, message_ttl=1000)
    send(broker, "q", "a")
    broker.clear_policy("p")
    broker.dispatch(NOW)
    send(broker, "q", "b")
    at(broker, NOW + 2 * SECOND)
    assert contents(broker, "q") == ["b"] and queue.spec.ttl == 0
