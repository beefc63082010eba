"""A queue with `x-expires` ends when it had no consumer for so long."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.policy import policy_asked_for
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.periods import LONGEST
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.spec import compile_spec
from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.errors import InvalidArgument
from qpidha.model.records import QueueDeclared, QueueDeleted
from tests.broker.parts import Tape, a_broker, a_poster, a_taker, copy_of, send

NOW = 1_000 * SECOND


def a_queue(expires: Any = 1000, **options: Any) -> tuple[Broker, Queue, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    broker.now = NOW
    queue, _ = broker.declare_queue("q", arguments={"x-expires": expires}, **options)
    return broker, queue, tape


def is_there(broker: Broker, now: int) -> bool:
    """Whether the queue is still there at a time."""
    broker.now = now
    while 0 < broker.next_deadline <= now:
        broker.tick(now)
    broker.dispatch(now)
    return "q" in broker.queues


def test_row_110_it_counts_from_the_declaration_and_a_redeclaration_renews() -> None:
    broker, _, tape = a_queue()
    send(broker, "q", "m")
    broker.now = NOW + SECOND // 2
    broker.declare_queue("q", arguments={"x-expires": 1000})
    assert is_there(broker, NOW + SECOND + SECOND // 2 - 1)
    assert not is_there(broker, NOW + SECOND + SECOND // 2)
    assert isinstance(tape.last, QueueDeleted) and not broker.next_deadline


def test_t_l9_a_queue_with_a_consumer_stays_and_counts_anew_when_that_leaves() -> None:
    broker, queue, _ = a_queue()
    taker = a_taker(queue)
    a_poster(queue)
    assert is_there(broker, NOW + 5 * SECOND)
    queue.unsubscribe(taker)
    assert is_there(broker, NOW + 6 * SECOND - 1)
    assert not is_there(broker, NOW + 6 * SECOND)


def test_row_110_after_a_failover_it_lives_for_its_whole_time() -> None:
    _, _, tape = a_queue()
    successor = copy_of(tape)
    assert not successor.next_deadline
    successor.log_writer = Tape()
    successor.promoted(NOW + SECOND * 9 // 10)
    assert is_there(successor, NOW + SECOND * 19 // 10 - 1)
    assert not is_there(successor, NOW + SECOND * 19 // 10)


def test_row_110_a_backup_deletes_nothing() -> None:
    broker, _, _ = a_queue()
    broker.passive = True
    assert is_there(broker, NOW + 5 * SECOND)


def test_row_110_it_may_change_and_counts_from_the_change() -> None:
    broker, queue, _ = a_queue(60_000)
    broker.now = NOW + SECOND
    for arguments in ({}, {"x-expires": 1000}):
        queue.reconfigure(
            compile_spec(QueueDeclared("q", "", arguments=arguments), QueueDefaults())
        )
    assert is_there(broker, NOW + 2 * SECOND - 1)
    assert not is_there(broker, NOW + 2 * SECOND)


def test_a_queue_that_cannot_pass_on_its_messages_waits_for_room() -> None:
    broker, _, _ = a_queue(alternate="amq.fanout")
    send(broker, "q", "m")
    broker.refuse_publishing = "no room"
    assert is_there(broker, NOW + 2 * SECOND)
    broker.refuse_publishing = ""
    assert not is_there(broker, NOW + 30 * SECOND)


@pytest.mark.parametrize("expires", [0, -1, LONGEST + 1, "soon", False])
def test_t_l9_a_time_that_cannot_be_is_refused(expires: object) -> None:
    with pytest.raises(InvalidArgument, match="x-expires"):
        a_queue(expires)
    assert a_queue("60000")[1].spec.unused == 60_000 * MILLISECOND


def test_t_l9_of_the_queues_time_and_a_policys_the_smaller_counts() -> None:
    broker, queue, _ = a_queue(1000)
    broker.set_policy(policy_asked_for("p", ".*", {"expires": 10_000}))
    broker.dispatch(NOW)
    assert queue.spec.unused == SECOND
    assert not is_there(broker, NOW + 2 * SECOND)
