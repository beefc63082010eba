"""Tracing: each message is told of by position and id, sampled ones whole, and why it went."""

from __future__ import annotations

import itertools
import json
from typing import Any
from zlib import crc32

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Fate, Retirement, Transaction
from qpidha.management import tracing
from qpidha.management.tracing import Tracing, message_id
from qpidha.model.event_log import EventSink
from qpidha.model.message import Message
from qpidha.model.message_view import build
from qpidha.model.records import Cause
from qpidha.model.settings import Settings
from qpidha.store.log import Log
from qpidha.store.recovery import fold
from tests.broker.parts import expire


def message(name: str | None, **header: Any) -> bytes:
    return build("x", header=header, properties={"message_id": name} if name is not None else {})


class Traced:
    """A broker whose log is traced."""

    def __init__(self, *, sampling: int = 1, queues: tuple[str, ...] = ()) -> None:
        numbers = itertools.count()
        self.log = Log(1 << 20)
        self.log.start_epoch(3)
        self.events = EventSink(is_on=True)
        self.broker = Broker(
            Settings(ha_replicate="all"), None, lambda effect: None, lambda: f"uuid-{next(numbers)}"
        )
        self.tracing = Tracing(self.log, self.events, self.broker, sampling=sampling, queues=queues)
        self.broker.log_writer = self.tracing
        self.queue, _ = self.broker.declare_queue("q")

    def successor(self) -> Traced:
        """A backup that has the log, promoted."""
        other = Traced()
        other.log = Log(1 << 20)
        self.log.seal()
        other.broker.reset()
        for batch in self.log.batches(1):
            other.log.receive(batch)
            fold(other.broker, batch.data)
        other.log.start_epoch(4)
        other.tracing = Tracing(other.log, other.events, other.broker, sampling=1, queues=())
        other.broker.log_writer = other.tracing
        other.broker.promoted(0)
        return other

    def told(self) -> list[dict[str, Any]]:
        rows, self.events.rows = self.events.rows, []
        return [json.loads("{" + row + "}") for row in rows]


def test_a_message_is_told_of_from_its_enqueue_to_its_end() -> None:
    traced = Traced()
    position = traced.queue.enqueue(message("m1"))
    assert traced.told() == [
        {"k": "enq", "q": "q", "e": 3, "p": position, "i": "m1", "z": len(message("m1"))}
    ]
    traced.tracing.delivered("q", position, message("m1"), 0, "here")
    assert traced.told() == [
        {"k": "dlv", "q": "q", "e": 3, "p": position, "i": "m1", "d": 0, "x": "here"}
    ]
    traced.queue.dequeue(traced.queue.messages[position])
    assert traced.told() == [
        {"k": "deq", "q": "q", "e": 3, "p": position, "i": "m1", "x": "accepted"}
    ]


def test_the_end_of_a_message_that_all_have_needs_no_id() -> None:
    traced = Traced()
    position = traced.queue.enqueue(message("m1"))
    traced.log.seal()
    traced.log.committed = position
    traced.tracing.committed(position)
    traced.told()
    traced.queue.dequeue(traced.queue.messages[position])
    assert traced.told() == [{"k": "deq", "q": "q", "e": 3, "p": position, "x": "accepted"}]


def first(queue: Queue) -> Message:
    return next(iter(queue.messages.values()))


def in_transaction(queue: Queue, fate: Fate) -> None:
    transaction = Transaction(queue._host)  # type: ignore[arg-type]
    queue.acquire(first(queue))
    transaction.retire(Retirement(transaction, queue, first(queue), fate, settled=True))
    transaction.commit()


def rejected_to_another(queue: Queue) -> None:
    broker = queue._host
    broker.declare_queue("dead")  # type: ignore[attr-defined]
    broker.bind("amq.fanout", "dead")  # type: ignore[attr-defined]
    queue.reject(first(queue))


WAYS_OUT: list[tuple[str, dict[str, Any], Any]] = [
    ("purged", {}, lambda queue: queue.drop(queue.available())),
    ("expired", {}, lambda queue: expire(queue, 10**19)),
    (
        "ring",
        {"arguments": {"qpid.max_count": 1, "qpid.policy_type": "ring"}},
        lambda queue: queue.enqueue(message("m2")),
    ),
    ("accepted", {}, lambda queue: queue.dequeue(first(queue))),
    (
        "accepted",
        {"arguments": {"qpidha.dedup": "message-id"}},
        lambda queue: queue.dequeue(first(queue)),
    ),
    ("accepted", {}, lambda queue: in_transaction(queue, Fate.ACCEPT)),
    ("rejected", {}, lambda queue: queue.reject(first(queue))),
    ("rejected", {"alternate": "amq.fanout"}, rejected_to_another),
    ("rejected", {}, lambda queue: in_transaction(queue, Fate.REJECT)),
    ("deleted", {}, lambda queue: queue._host.delete_queue(queue.name)),
    *(
        (
            cause.name.lower().replace("_", "-"),
            {},
            lambda queue, cause=cause: queue._host.departures.leave(queue, [first(queue)], cause),
        )
        for cause in (Cause.DELIVERY_LIMIT, Cause.REPLACED, Cause.MOVED)
    ),
]
"""What an event and the statistics call it, how the queue is declared, and how a message leaves."""


@pytest.mark.parametrize("promoted", [False, True], ids=["primary", "after a failover"])
@pytest.mark.parametrize(
    ("why", "options", "act"), WAYS_OUT, ids=[f"{way[0]}-{n}" for n, way in enumerate(WAYS_OUT)]
)
def test_a_departure_is_traced_and_counted_by_its_cause(
    why: str, options: dict[str, Any], act: Any, promoted: bool
) -> None:
    traced = Traced()
    queue, _ = traced.broker.declare_queue("r", **options)
    queue.enqueue(message("m1"), 1)
    if promoted:
        traced = traced.successor()
        queue = traced.broker.queues["r"]
    traced.told()
    act(queue)
    assert [event["x"] for event in traced.told() if event["k"] == "deq"] == [why]
    counted = {name: count for name, count in queue.departures.items() if count}
    assert counted == {"overflow" if why == "ring" else why: 1}


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
        assert [event["p"] for event in told if event["k"] == "deq"] == [
            positions[name] for name in expected
        ]


def test_queues_can_be_chosen_by_pattern() -> None:
    traced = Traced(queues=("other", "r.*"))
    queue, _ = traced.broker.declare_queue("r.1")
    for each, name in (queue, "m1"), (traced.queue, "m2"):
        each.enqueue(message(name))
        each.dequeue(first(each))
    assert [(event["k"], event["i"]) for event in traced.told()] == [("enq", "m1"), ("deq", "m1")]


def test_what_is_purged_is_in_the_log_and_needs_no_id() -> None:
    traced = Traced()
    position = traced.queue.enqueue(message("m1"))
    traced.told()
    traced.queue.drop(traced.queue.available())
    assert traced.told() == [{"k": "deq", "q": "q", "e": 3, "p": position, "x": "purged"}]


def test_only_so_many_messages_of_a_sample_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "MOST_SAMPLED", 3)
    names = [f"m{n}" for n in range(200) if crc32(f"m{n}".encode()) % 10 == 0]
    before, after = Traced(sampling=10), Traced(sampling=10)
    for number, name in enumerate(names, 1):
        before.queue.enqueue(message(name))
        after.tracing.delivered("q", number, message(name), 0, "here")
    assert len(before.tracing._sampled) == len(after.tracing._sampled) == 3
    whole = Traced()
    whole.tracing.delivered("q", 1, message("m"), 0, "here")
    assert not whole.tracing._sampled, "where all are traced none need be remembered"


@pytest.mark.parametrize(
    ("payload", "name"), [(message("m"), "m"), (message(None), ""), (b"\x00\x53\x73nonsense", "")]
)
def test_the_id_of_a_message_is_text_or_nothing(payload: bytes, name: str) -> None:
    assert message_id(payload) == name


def test_a_sampled_message_on_two_queues_ends_on_each() -> None:
    name = next(
        f"m{number}" for number in itertools.count() if crc32(f"m{number}".encode()) % 10 == 0
    )
    traced = Traced(sampling=10)
    other, _ = traced.broker.declare_queue("other")
    for queue in ("q", "other"):
        traced.broker.bind("amq.fanout", queue, "")
    traced.broker.publish("amq.fanout", "", message(name), headers=dict)
    for queue in (traced.queue, other):
        queue.dequeue(next(iter(queue.messages.values())))
    assert [(row["k"], row["q"]) for row in traced.told()] == [
        ("enq", "q"),
        ("enq", "other"),
        ("deq", "q"),
        ("deq", "other"),
    ]
    assert not traced.tracing._sampled
