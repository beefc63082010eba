"""Recent events: what is told of a broker's life, and where one goes on."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.management.recent_events import OTHERS, RecentEvents, text_of
from qpidha.model.errors import RefusedRequest
from qpidha.model.event_log import SHOWN, STORY_LENGTH, EventSink
from qpidha.pipeline.events import KINDS
from tests.management.builders import FakeNode
from tests.management.test_requests import Asker


def row(kind: str, **fields: Any) -> str:
    """An event as the event log has it."""
    sink = EventSink(is_on=True)
    sink.add(kind, **fields)
    return sink.rows[0]


def test_each_event_has_a_time_of_its_own_and_one_goes_on_behind_it() -> None:
    recent = RecentEvents()
    recent.note(10, [row("role", r="joining", e=0), row("conn", x="a", f="up")])
    recent.note(10, [row("queue", q="q", f="created")])
    recent.note(50, [row("role", r="ready", e=1)])
    found = recent.list(0, 0, ())
    assert [event["at_ns"] for event in found] == [10, 11, 12, 50]
    assert found[0] == {
        "at_ns": 10,
        "kind": "role",
        "state": "joining",
        "epoch": 0,
        "text": "is joining, epoch 0",
    }
    assert recent.list(11, 0, ()) == found[2:] and recent.list(50, 0, ()) == []
    assert recent.list(10, 1, ()) == [found[1]] and recent.list(0, 1, ()) == [found[3]]
    assert recent.list(0, 0, ["conn", "queue"]) == found[1:3]


def test_messages_and_depths_are_left_out_and_nothing_crowds_out_the_story() -> None:
    recent = RecentEvents()
    recent.note(1, [row("role", r="active", e=1)])
    recent.note(2, [row("enq", q="q"), row("conf", e=1), row("queue", q="q", f="stat")])
    for number in range(OTHERS + 5):
        recent.note(3 + number, [row("conn", x=str(number), f="up")])
    found = recent.list(0, 0, ())
    assert len(found) == OTHERS + 1 and found[0]["kind"] == "role" and found[1]["about"] == "5"
    for number in range(STORY_LENGTH + 5):
        recent.note(1, [row("epoch", e=number)])
    assert recent.list(0, 0, ["role"]) == []


def test_every_kind_of_a_broker_is_shown_or_left_out_and_has_a_text() -> None:
    fields = {"x": "b2", "f": "up", "e": 3, "r": "ready", "q": "q", "cnt": 7, "set": "b1 b2"}
    fields |= {"err": "so"}
    for kind in SHOWN:
        text = text_of({"k": kind, **fields})
        assert text and "None" not in text and "{" not in text
    assert {kind.name for kind in KINDS} >= {*SHOWN}


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        ("failover", {"f": "detected", "e": 2, "x": "b1"}, "primary b1 of epoch 2 is gone"),
        ("conn", {"x": "1.2.3.4:5", "f": "down", "err": "y"}, "client 1.2.3.4:5 disconnected: y"),
        ("promotion", {"f": "refused", "x": "why"}, "is not promoted: why"),
        ("limit", {"f": "max-queues", "x": "refused", "cnt": 2}, "max-queues: refused, 2 times"),
        ("error", {"err": "disk"}, "disk"),
    ],
)
def test_an_event_is_told_in_words(kind: str, fields: dict[str, Any], text: str) -> None:
    assert text_of({"k": kind, **fields}) == text


def test_a_broker_tells_its_events_and_refuses_what_there_is_not() -> None:
    asker = Asker(FakeNode())
    asker.target.event_log.turn(5, None, [])
    found = asker.ask("events", kinds="role, insync")
    assert (found["name"], found["now_ns"]) == ("b1", asker.target.now)
    assert [event["text"] for event in found["events"]] == [
        "is standalone, epoch 0",
        "in sync in epoch 0: b1",
    ]
    assert "did you mean role?" in asker.refusal("events", kinds="rol").hint
    assert "kinds: role" in asker.refusal("events", kinds="zzzz").hint
    asker.target.event_log.is_on = False
    assert isinstance(asker.refusal("events"), RefusedRequest)
