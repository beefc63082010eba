"""A passive broker, a backup: it changes no replicated object, may have queues of its own, and can
be promoted.
"""

from __future__ import annotations

import pytest

from qpidha.broker.broker import Broker
from qpidha.model.errors import RefusedRequest
from qpidha.model.records import QueueDeleted
from tests.broker.parts import Tape, a_broker, a_taker, contents, copy_of, send

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def passive_copy() -> Broker:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q", auto_delete=True)
    broker.declare_exchange("ex", "fanout")
    broker.bind("ex", "q")
    send(broker, "q", "a", "b", expires=50)
    broker.log_writer = None
    broker.passive = True
    return broker


def test_passive_broker_changes_no_replicated_object() -> None:
    broker = passive_copy()
    for change in (
        lambda: broker.declare_queue("other"),
        lambda: broker.declare_exchange("other"),
        lambda: broker.delete_queue("q"),
        lambda: broker.delete_exchange("ex"),
        lambda: broker.bind("ex", "q", "k"),
        lambda: broker.unbind("ex", "q"),
        lambda: broker.purge("q"),
        lambda: send(broker, "q", "c"),
        lambda: broker.publish("ex", "", b"c", headers=dict),
    ):
        with pytest.raises(RefusedRequest):
            change()
    broker.tick(HOUR)
    assert not broker.next_deadline
    broker.go_on_walking(HOUR)
    assert contents(broker, "q") == ["a", "b"] and "ex" in broker.exchanges


def test_users_of_a_demoted_broker_change_nothing_any_more() -> None:
    broker = passive_copy()
    queue = broker.queues["q"]
    taker = a_taker(queue, 9)
    broker.dispatch(100)
    assert taker.got == []
    for message in queue.messages_after(0, 99):
        queue.acquire(message)
        assert (
            queue.dequeue(message)
            == queue.reject(message)
            == queue.requeue(message, failed=True)
            == 0
        )
        assert message.delivery_count == 0
    queue.unsubscribe(taker)
    assert contents(broker, "q") == ["a", "b"]


def test_passive_broker_can_be_browsed_expired_messages_included() -> None:
    broker = passive_copy()
    browser = a_taker(broker.queues["q"], 9, browse=True)
    broker.dispatch(100)
    assert browser.bodies == ["a", "b"]


def test_passive_broker_may_have_queues_of_its_own() -> None:
    broker = passive_copy()
    queue, _ = broker.declare_queue("mine", auto_delete=True, owner=object())
    send(broker, "mine", "x")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    assert taker.bodies == ["x"]
    queue.dequeue(taker.got[0])
    queue.unsubscribe(taker)
    assert "mine" not in broker.queues


def test_promoted_broker_keeps_auto_delete_queues_for_their_users_to_return() -> None:
    broker = passive_copy()
    broker.log_writer = Tape()
    broker.promoted(1)
    broker.tick(2)
    queue = broker.queues["q"]
    queue.unsubscribe(a_taker(queue))
    assert "q" not in broker.queues


def test_promoted_broker_whose_clock_was_set_since_it_started_keeps_what_has_not_expired() -> None:
    """It started when its clock was an hour fast, and messages have the expiry that the primary
    gave them.
    """
    broker = passive_copy()
    broker.log_writer = Tape()
    broker.ahead = -HOUR
    broker.promoted(HOUR + 10)
    taker = a_taker(broker.queues["q"], 9)
    broker.dispatch(HOUR + 10)
    assert taker.bodies == ["a", "b"]


@pytest.mark.parametrize(("ahead", "late"), [(5 * SECOND, 0), (-5 * SECOND, 5 * SECOND), (0, 0)])
def test_row_109_after_a_failover_nothing_expires_early_whatever_the_clocks(
    ahead: int, late: int
) -> None:
    """The new primary's clock is ahead of the former one's, or behind."""
    tape = Tape()
    former = a_broker(tape)
    former.declare_queue("q")
    send(former, "q", "a", expires=HOUR)
    broker = copy_of(tape)
    broker.ahead, broker.former_ahead = ahead, 0
    broker.log_writer = Tape()
    broker.promoted(HOUR - SECOND)
    taker = a_taker(broker.queues["q"], 0)
    for now in (HOUR - 1, HOUR + late - 1):
        broker.now = now
        while broker.walks:
            broker.go_on_walking(1 << 60)
        while 0 < broker.next_deadline <= now:
            broker.tick(now)
        broker.dispatch(now)
        assert contents(broker, "q") == ["a"]
    broker.tick(HOUR + late + SECOND)
    assert contents(broker, "q") == [] and taker.got == []


def test_messages_that_nobody_asks_for_expire_by_the_wall_clock_too() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("q")
    send(broker, "q", "a", "b", expires=HOUR)
    broker.dispatch(HOUR)
    broker.ahead = -HOUR
    assert broker.next_deadline >= 2 * HOUR
    broker.tick(HOUR + SECOND)
    assert contents(broker, "q") == ["a", "b"]
    broker.ahead = 0
    broker.tick(broker.next_deadline)
    assert contents(broker, "q") == []


def test_promoted_broker_starts_the_timeouts_of_queues() -> None:
    tape = Tape()
    a_taker(a_broker(tape).declare_queue("q", arguments={"qpid.auto_delete_timeout": 2})[0])
    broker = copy_of(tape)
    broker.log_writer = tape
    broker.promoted(10 * SECOND)
    broker.tick(12 * SECOND - 1)
    assert "q" in broker.queues
    broker.tick(12 * SECOND)
    assert "q" not in broker.queues
    assert isinstance(tape.last, QueueDeleted)
