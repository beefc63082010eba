"""Notes: rows of JSON, nothing while the journal is off, and limits that are hit often told once."""

from __future__ import annotations

import json

from qpidha.words.notes import LONGEST, Notes, quoted, writer_name


def test_a_note_is_a_json_object_without_braces_and_without_empty_texts() -> None:
    notes = Notes(is_on=True)
    notes.add("conn", x='a "b"\n', f="up", err="", cnt=3)
    assert json.loads("{" + notes.rows[0] + "}") == {"k": "conn", "x": 'a "b"\n', "f": "up", "cnt": 3}


def test_long_texts_are_cut() -> None:
    notes = Notes(is_on=True)
    notes.add("error", err="x" * 5000)
    assert len(json.loads("{" + notes.rows[0] + "}")["err"]) == LONGEST


def test_text_that_is_no_unicode_can_be_written() -> None:
    assert json.loads(quoted("a\udc80b")) == "a?b"


def test_nothing_is_noted_while_the_journal_is_off() -> None:
    notes = Notes()
    notes.add("conn", x="a", f="up")
    notes.limit("queue-size", "rejected")
    notes.came(1, "a")
    notes.left(1, "")
    assert not notes.rows and not notes.hits


def test_only_clients_that_were_let_in_are_said_to_leave() -> None:
    notes = Notes(is_on=True)
    notes.came(1, "here")
    notes.left(1, "closed")
    notes.left(2, "never came in")
    assert [json.loads("{" + row + "}") for row in notes.rows] == [
        {"k": "conn", "x": "here", "f": "up"},
        {"k": "conn", "x": "here", "f": "down", "err": "closed"},
    ]


def test_limits_are_counted() -> None:
    notes = Notes(is_on=True)
    for _ in range(3):
        notes.limit("queue-size", "rejected", "q")
    assert not notes.rows and notes.hits == {("queue-size", "rejected", "q"): 3}


def test_names_of_writers_fit_into_file_names_and_lists() -> None:
    assert writer_name("my broker/1") == "my_broker_1"
