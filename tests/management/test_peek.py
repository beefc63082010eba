"""Peeking at messages and moving them, by the methods of management."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.broker import Broker
from qpidha.management.peek import FARTHEST, LARGEST, MOST, SHOWN, peeked
from qpidha.model.duration import SECOND
from qpidha.model.message_view import SEQUENCE, build, merge_annotations
from tests.broker.parts import a_broker, a_taker, send
from tests.management.builders import FakeNode
from tests.management.test_requests import Asker


@pytest.fixture
def asker() -> Asker:
    asker = Asker(FakeNode())
    asker.target.broker.declare_queue("q")
    return asker


def a_queue_of(*payloads: bytes) -> Broker:
    broker = a_broker()
    broker.declare_queue("q")
    for payload in payloads:
        broker.publish("", "q", payload, headers=dict)
    return broker


def shown(payload: bytes) -> dict[str, Any]:
    return peeked(a_queue_of(payload).queues["q"], 1, 1)[0]


def test_row_120_a_peek_shows_positions_from_1_and_changes_nothing(asker: Asker) -> None:
    broker = asker.target.broker
    send(broker, "q", "a", "b")
    taker = a_taker(broker.queues["q"], 1)
    broker.dispatch(0)
    before = (broker.queues["q"].statistics(), len(asker.target.log.records))
    first, second = asker.ask("peek_messages", name="q", position=1, count=5)
    assert (first["position"], first["acquired"]) == (1, True)
    assert (second["position"], second["acquired"], second["delivery_count"]) == (2, False, 0)
    assert asker.ask("peek_messages", name="q", position=2) == [second]
    error = asker.refusal("peek_messages", name="q", position=3)
    assert error.condition == "amqp:not-found" and "has 2 messages" in error.text
    assert (broker.queues["q"].statistics(), len(asker.target.log.records)) == before
    assert len(taker.got) == 1


def test_row_120_a_peek_says_when_a_message_is_due(asker: Asker) -> None:
    broker = asker.target.broker
    broker.publish("", "q", build("later"), headers=dict, due=broker.time + SECOND)
    send(broker, "q", "now")
    later, now = asker.ask("peek_messages", name="q", count=5)
    assert (later["due"], later["acquired"]) == (broker.time + SECOND, False)
    assert (now["due"], now["acquired"]) == (0, False)


def test_row_120_a_backup_shows_what_it_has_and_moves_nothing(asker: Asker) -> None:
    broker = asker.target.broker
    send(broker, "q", "a")
    asker.target.serving = False
    broker.passive = True
    assert len(asker.ask("peek_messages", name="q")) == 1
    for method, more in (("move_messages", {"target": "r"}), ("requeue_messages", {})):
        assert "changes nothing itself" in asker.refusal(method, name="q", **more).text


@pytest.mark.parametrize("params", [{"position": 0}, {"position": FARTHEST + 1}, {"count": 51}])
def test_what_cannot_be_peeked_at_is_refused(asker: Asker, params: dict[str, int]) -> None:
    error = asker.refusal("peek_messages", name="q", **params)
    assert error.condition == "amqp:invalid-field" and error.hint
    assert MOST == 50


@pytest.mark.parametrize(
    ("content", "body"),
    [
        (b"text \xc3\xa9\n", {"text": "text é\n", "is_cut": False}),
        (b"\x00\xff", {"hex": "00ff", "is_cut": False}),
        (b"a\x1b[2J", {"hex": "611b5b324a", "is_cut": False}),
        ("é" * SHOWN, {"text": "é" * SHOWN, "is_cut": False}),
        (("é" * SHOWN).encode(), {"text": "é" * (SHOWN // 2), "is_cut": True}),
        (b"x" * 100_000, {"text": "x" * SHOWN, "is_cut": True}),
        ({"a": [1, True]}, {"text": '{"a": [1, true]}', "is_cut": False}),
        (None, {"text": "null", "is_cut": False}),
    ],
)
def test_a_body_is_shown_as_text_or_in_hex_and_the_beginning_of_it(
    content: Any, body: dict[str, Any]
) -> None:
    assert shown(build(content))["body"] == body


def test_a_large_value_is_not_decoded() -> None:
    found = shown(build([0] * LARGEST, section=SEQUENCE))
    assert found["body"]["is_cut"] and "hex" in found["body"]


def test_the_sections_of_a_message_are_shown_with_what_changed() -> None:
    payload = build(
        "x",
        header={"durable": True},
        properties={"message_id": "m", "subject": "s"},
        application_properties={"colour": "red", "large": 1},
        annotations={"x-opt-a": 1},
    )
    broker = a_queue_of(payload)
    queue = broker.queues["q"]
    (message,) = queue.messages.values()
    queue.requeue(message, True, merge_annotations(payload, b"", {"x-opt-b": 2}))
    (found,) = peeked(queue, 1, 1)
    assert found["header"] == {"durable": True} and found["delivery_count"] == 1
    assert found["properties"] == {"message_id": "m", "subject": "s"}
    assert found["application_properties"] == {"colour": "red", "large": 1}
    assert found["message_annotations"] == {"x-opt-a": 1, "x-opt-b": 2}
    large = shown(build("x", application_properties={"a": "x" * LARGEST}))
    assert large["application_properties"] is None


def test_what_a_dead_letter_says_is_shown_as_it_is_and_not_as_python_writes_it() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    broker.declare_queue("q", arguments={"x-dead-letter-exchange": "/queues/dead"})
    broker.publish("", "q", build("a"), headers=dict)
    taker = a_taker(broker.queues["q"], 1)
    broker.dispatch(0)
    broker.queues["q"].reject(taker.got[0])
    (found,) = peeked(broker.queues["dead"], 1, 1)
    (death,) = found["message_annotations"]["x-opt-deaths"]
    assert (death["queue"], death["reason"], death["routing-keys"]) == ("q", "rejected", ["q"])


@given(st.binary(max_size=200), st.integers(0, 100))
def test_any_bytes_are_shown(noise: bytes, cut: int) -> None:
    for payload in (noise, build("x", properties={"subject": "s"})[:cut] + noise):
        assert shown(payload)["body"].keys() & {"text", "hex"}


def test_a_move_is_answered_when_it_is_committed(asker: Asker) -> None:
    broker = asker.target.broker
    broker.declare_queue("r", arguments={"qpid.max_count": 2})
    send(broker, "q", "1", "2", "3")
    result = asker.ask("move_messages", name="q", target="r", count=1)
    assert result == {"messages": 1, "left": 2, "stopped": ""}
    result = asker.ask("move_messages", name="q", target="r")
    assert (result["messages"], result["left"]) == (1, 1) and "full" in result["stopped"]
    assert asker.refusal("move_messages", name="q", target="q").hint
    for wrong in (-1, True, "all"):
        assert "count" in asker.refusal("move_messages", name="q", target="r", count=wrong).text


def test_dead_letters_are_sent_back_and_who_asks_hears_how_many_and_why_no_more(
    asker: Asker,
) -> None:
    broker = asker.target.broker
    broker.declare_queue("dead")
    for name, limit in (("one", 0), ("two", 1)):
        arguments = {"x-dead-letter-exchange": "/queues/dead", "qpid.max_count": limit}
        queue, _ = broker.declare_queue(name, arguments=arguments)
        for number in range(2):
            queue.enqueue(build(f"{name} {number}"))
            queue.reject(next(iter(queue.messages.values())))
    send(broker, "dead", "plain")
    result = asker.ask("requeue_messages", name="dead", origin="one", count=1)
    assert result == {"messages": 1, "left": 4, "unknown": 0, "stopped": ""}
    result = asker.ask("requeue_messages", name="dead")
    assert (result["messages"], result["left"], result["unknown"]) == (2, 2, 1)
    assert "two is full" in result["stopped"]
    assert asker.refusal("requeue_messages", name="dead", origin="none").hint
