"""Tracing: each message is told of by position and id, sampled ones whole, and why it went."""

from __future__ import annotations

import itertools
import json
from typing import Any
from zlib import crc32

import pytest

from qpidha.broker.broker import Broker
from qpidha.management.tracing import Tracing, message_id
from qpidha.store.log import Log
from qpidha.words.message_view import build
from qpidha.words.notes import Notes
from qpidha.words.settings import Settings


def message(name: str | None, **header: Any) -> bytes:
    return build("x", header=header, properties={"message_id": name} if name is not None else {})


class Traced:
    """A broker whose log is traced."""

    def __init__(self, *, sampling: int = 1, queues: tuple[str, ...] = ()) -> None:
        numbers = itertools.count()
        self.log = Log(1 << 20)
        self.log.start_epoch(3)
        self.notes = Notes(is_on=True)
        self.broker = Broker(Settings(ha_replicate="all"), None, lambda effect: None, lambda: f"uuid-{next(numbers)}")
        self.tracing = Tracing(self.log, self.notes, self.broker, sampling=sampling, queues=queues)
        self.broker.recorder = self.tracing
        self.queue, _ = self.broker.declare_queue("q")

    def told(self) -> list[dict[str, Any]]:
        rows, self.notes.rows = self.notes.rows, []
        return [json.loads("{" + row + "}") for row in rows]


def test_a_message_is_told_of_from_its_enqueue_to_its_end() -> None:
    traced = Traced()
    position = traced.queue.enqueue(message("m1"))
    assert traced.told() == [{"k": "enq", "q": "q", "e": 3, "p": position, "i": "m1", "z": len(message("m1"))}]
    traced.tracing.delivered("q", position, message("m1"), 0, "here")
    assert traced.told() == [{"k": "dlv", "q": "q", "e": 3, "p": position, "i": "m1", "d": 0, "x": "here"}]
    traced.queue.dequeue(traced.queue.messages[position])
    assert traced.told() == [{"k": "deq", "q": "q", "e": 3, "p": position, "i": "m1", "x": "accepted"}]


def test_the_end_of_a_message_that_all_have_needs_no_id() -> None:
    traced = Traced()
    position = traced.queue.enqueue(message("m1"))
    traced.log.seal()
    traced.log.safe = position
    traced.tracing.safe(position)
    traced.told()
    traced.queue.dequeue(traced.queue.messages[position])
    assert traced.told() == [{"k": "deq", "q": "q", "e": 3, "p": position, "x": "accepted"}]


@pytest.mark.parametrize(
    ("arguments", "act", "why"),
    [
        ({}, lambda queue: queue.purge(), "purged"),
        ({}, lambda queue: queue.expire(10**19), "expired"),
        ({"qpid.max_count": 1, "qpid.policy_type": "ring"}, lambda queue: queue.enqueue(message("m2")), "ring"),
        ({}, lambda queue: queue.dequeue(next(iter(queue.messages.values()))), "accepted"),
    ],
)
def test_why_a_message_went(arguments: dict[str, Any], act: Any, why: str) -> None:
    traced = Traced()
    queue, _ = traced.broker.declare_queue("r", arguments=arguments)
    queue.enqueue(message("m1"), 1)
    traced.told()
    act(queue)
    assert [event["x"] for event in traced.told() if event["k"] == "deq"] == [why]


def test_the_same_messages_are_sampled_everywhere_and_wholly() -> None:
    names = [f"m{number}" for number in range(200)]
    expected = [name for name in names if crc32(name.encode()) % 10 == 0]
    assert expected
    for _ in range(2):
        traced = Traced(sampling=10)
        positions = {name: traced.queue.enqueue(message(name)) for name in names}
        for name, position in positions.items():
            traced.tracing.delivered("q", position, message(name), 0, "here")
        for name in names:
            traced.queue.dequeue(traced.queue.messages[positions[name]])
        told = traced.told()
        for kind in ("enq", "dlv"):
            assert [event["i"] for event in told if event["k"] == kind] == expected
        assert [event["p"] for event in told if event["k"] == "deq"] == [positions[name] for name in expected]


def test_queues_can_be_chosen_by_pattern() -> None:
    traced = Traced(queues=("other", "r.*"))
    traced.broker.declare_queue("r.1")[0].enqueue(message("m1"))
    traced.queue.enqueue(message("m2"))
    assert [event["i"] for event in traced.told()] == ["m1"]


@pytest.mark.parametrize(("payload", "name"), [(message("m"), "m"), (message(None), ""), (b"\x00\x53\x73nonsense", "")])
def test_the_id_of_a_message_is_text_or_nothing(payload: bytes, name: str) -> None:
    assert message_id(payload) == name


def test_nothing_is_kept_of_a_queue_that_is_deleted() -> None:
    traced = Traced()
    for number in range(5):
        queue, _ = traced.broker.declare_queue(f"reply-{number}")
        queue.dequeue(queue.messages[queue.enqueue(message("m"))])
        assert traced.tracing._totals
        traced.broker.delete_queue(queue.name)
    assert not traced.tracing._totals


def test_a_sampled_message_on_two_queues_ends_on_each() -> None:
    name = next(f"m{number}" for number in itertools.count() if crc32(f"m{number}".encode()) % 10 == 0)
    traced = Traced(sampling=10)
    other, _ = traced.broker.declare_queue("other")
    for queue in ("q", "other"):
        traced.broker.bind("amq.fanout", queue, "")
    traced.broker.publish("amq.fanout", "", message(name), headers=dict)
    for queue in (traced.queue, other):
        queue.dequeue(next(iter(queue.messages.values())))
    assert [(row["k"], row["q"]) for row in traced.told()] == [("enq", "q"), ("enq", "other"), ("deq", "q"), ("deq", "other")]
    assert not traced.tracing._sampled
