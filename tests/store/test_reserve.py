"""What is kept of the disk for what may become dead letters."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from qpidha.model.errors import LimitExceeded
from qpidha.store.reserve import SHARE, Reserve
from qpidha.store.weighing import PER_DEATH, Weighing
from tests.broker.parts import Tape, a_broker, at, contents, send

DEAD_LETTERS = {"x-dead-letter-exchange": "/queues/dead"}
SIZE = 1000
EACH = SIZE + PER_DEATH


def kept(count: int) -> int:
    """The bytes that are kept for so many messages, with the limit of the world below."""
    return count * EACH + count * EACH // SHARE + 1000


class World:
    """A broker, and how much there is until its disk is low."""

    def __init__(self, limit: int = 10_000) -> None:
        self.broker = a_broker(Tape())
        self.broker.declare_queue("dead")
        self.broker.declare_queue("q", arguments=DEAD_LETTERS)
        self.until_low = 50_000
        self.weighing = Weighing(self.broker)
        self.reserve = Reserve(self.weighing, lambda: self.until_low, limit)

    def send(self, queue: str, count: int) -> None:
        send(self.broker, queue, *(["x" * SIZE] * count))

    def look(self) -> tuple[bool, bool]:
        before = self.reserve.is_short, self.reserve.is_used_up
        has_changed = self.reserve.look()
        after = self.reserve.is_short, self.reserve.is_used_up
        assert has_changed == (before != after)
        return after


def test_senders_wait_and_then_are_refused_for_what_may_die() -> None:
    world = World()
    world.send("q", 10)
    world.until_low = kept(10) + 2000
    world.weighing.step()
    assert world.look() == (False, False) and world.reserve.left == 2000
    world.until_low -= 1
    assert world.look() == (True, False)
    world.until_low = kept(10)
    world.weighing.step()
    assert world.look() == (True, False)
    world.until_low -= 1
    assert world.look() == (True, True)
    assert "what may become a dead letter" in str(world.reserve)
    world.until_low = kept(10) + 1999
    assert world.look() == (True, True)
    world.until_low += 1
    assert world.look() == (True, False)
    world.until_low += 1999
    assert world.look() == (True, False)
    world.until_low += 1
    assert world.look() == (False, False)


@pytest.mark.parametrize(
    ("options", "is_counted"),
    [
        ({"arguments": {"x-delivery-limit": 0}}, True),
        ({"arguments": {"x-delivery-limit": -1}}, False),
        ({"arguments": {"x-delivery-limit": 0, "qpidha.delivery-limit-action": "drop"}}, False),
        ({"arguments": {"x-message-ttl": 10, "x-overflow": "drop-head"}}, False),
        ({"alternate": "amq.fanout"}, True),
    ],
)
def test_what_may_be_put_aside_or_have_another_exchange_counts(
    options: dict[str, Any], is_counted: bool
) -> None:
    world = World()
    world.broker.declare_queue("other", **options)
    world.send("other", 3)
    world.weighing.step()
    assert world.weighing.may_die == (3 * EACH if is_counted else 0)


def test_what_only_this_broker_keeps_counts_as_well() -> None:
    world = World()
    mine, _ = world.broker.declare_queue(
        "mine", durable=True, arguments={**DEAD_LETTERS, "qpid.replicate": "none"}
    )
    world.send("mine", 3)
    world.weighing.step()
    assert world.weighing.may_die == 0  # It is in memory only.
    world.broker.local_log = mine.local_writer = Mock()
    world.weighing.step()
    assert world.weighing.may_die == 3 * EACH


def test_queues_without_dead_letters_need_nothing() -> None:
    world = World()
    world.send("dead", 10)
    world.until_low = 100
    world.weighing.step()
    assert world.look() == (False, False) and world.reserve.left == 100


def test_it_is_weighed_again_when_much_was_appended_and_when_there_is_space_again() -> None:
    world = World()
    world.send("q", 1)
    world.until_low = 100
    world.weighing.step()
    assert world.look() == (True, True)
    world.until_low = 20_000
    assert world.look() == (False, False)
    world.send("q", 12)
    world.until_low -= 12_000
    assert world.look() == (True, True)


def test_with_much_space_nothing_is_weighed_however_much_was_appended() -> None:
    world = World()
    world.until_low = 1_000_000
    world.look()
    world.send("q", 12)
    world.until_low = 700_000
    assert world.look() == (False, False) and world.weighing.walks == 0
    world.until_low = 650_000
    assert world.look() == (False, False) and world.weighing.walks == 1
    assert world.reserve.left == 650_000 - kept(12)


def test_what_is_on_its_way_since_counts_twice() -> None:
    world = World()
    world.send("q", 1)
    world.weighing.step()
    world.look()
    world.until_low -= 1500
    assert world.reserve.left == 50_000 - 1500 - kept(1) - 1500


def test_what_is_passed_on_opens_its_queue_to_nothing_else() -> None:
    broker = World().broker
    broker.delete_queue("dead")
    dead, _ = broker.declare_queue("dead", arguments={"qpid.alert_count": 1})
    (sequence,) = send(broker, "q", "a")
    broker.reserve("it is for dead letters")
    queue = broker.queues["q"]
    queue.reject(queue.messages[sequence])
    assert len(dead.messages) == 1
    with pytest.raises(LimitExceeded):
        send(broker, "dead", "b")


def test_what_is_sent_has_no_part_of_it_and_what_dies_has() -> None:
    broker = World().broker
    (first, second) = send(broker, "q", "a", "b")
    broker.reserve("it is for dead letters")
    with pytest.raises(LimitExceeded, match="it is for dead letters"):
        send(broker, "q", "c")
    with pytest.raises(LimitExceeded, match="it is for dead letters"):
        send(broker, "dead", "c")
    queue = broker.queues["q"]
    queue.reject(queue.messages[first])
    at(broker, 1)
    assert contents(broker, "q") == ["b"] and len(broker.queues["dead"].messages) == 1
    broker.refuse_publishing = "the disk is nearly full"
    queue.reject(queue.messages[second])
    at(broker, 2)
    assert len(queue.unplaced) == 1 and len(broker.queues["dead"].messages) == 1
    broker.refuse_publishing = ""
    at(broker, 2_000_000_000)
    assert not queue.messages and len(broker.queues["dead"].messages) == 2
    with pytest.raises(LimitExceeded):
        send(broker, "q", "c")
    broker.reserve("")
    send(broker, "q", "c")
    assert contents(broker, "q") == ["c"]
