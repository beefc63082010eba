"""The event sink: rows of JSON, nothing while the event log is off, and limits that are hit often
told once.
"""

from __future__ import annotations

import json

from qpidha.model.event_log import LONGEST, EventSink, quoted, writer_name


def test_a_note_is_a_json_object_without_braces_and_without_empty_texts() -> None:
    sink = EventSink(is_on=True)
    sink.add("conn", x='a "b"\n', f="up", err="", cnt=3)
    assert json.loads("{" + sink.rows[0] + "}") == {
        "k": "conn",
        "x": 'a "b"\n',
        "f": "up",
        "cnt": 3,
    }


def test_long_texts_are_cut() -> None:
    sink = EventSink(is_on=True)
    sink.add("error", err="x" * 5000)
    assert len(json.loads("{" + sink.rows[0] + "}")["err"]) == LONGEST


def test_text_that_is_no_unicode_can_be_written() -> None:
    assert json.loads(quoted("a\udc80b")) == "a?b"


def test_nothing_is_noted_while_the_journal_is_off() -> None:
    sink = EventSink()
    sink.add("conn", x="a", f="up")
    sink.limit("queue-size", "rejected")
    sink.client_connected(1, "a")
    sink.client_disconnected(1, "")
    assert not sink.rows and not sink.hits


def test_only_clients_that_were_let_in_are_said_to_leave() -> None:
    sink = EventSink(is_on=True)
    sink.client_connected(1, "here")
    sink.client_disconnected(1, "closed")
    sink.client_disconnected(2, "never came in")
    assert [json.loads("{" + row + "}") for row in sink.rows] == [
        {"k": "conn", "x": "here", "f": "up"},
        {"k": "conn", "x": "here", "f": "down", "err": "closed"},
    ]


def test_limits_are_counted() -> None:
    sink = EventSink(is_on=True)
    for _ in range(3):
        sink.limit("queue-size", "rejected", "q")
    assert not sink.rows and sink.hits == {("queue-size", "rejected", "q"): 3}


def test_names_of_writers_fit_into_file_names_and_lists() -> None:
    assert writer_name("my broker/1") == "my_broker_1"
