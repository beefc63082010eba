"""JSON lines: what one end writes the other reads, and nothing else gets through."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.model.errors import NotFound
from qpidha.model.json_lines import (
    BadRequest,
    LineReader,
    Request,
    error_line,
    parse_answer,
    parse_request,
    request_line,
    result_line,
    to_line,
)


@given(st.lists(st.binary(max_size=30)), st.integers(1, 9))
def test_lines_are_the_same_however_their_bytes_are_cut(lines: list[bytes], step: int) -> None:
    whole = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in whole) + b"begun"
    reader = LineReader(30)
    found = [line for at in range(0, len(data), step) for line in reader.feed(data[at : at + step])]
    assert found == whole


def test_a_line_that_is_too_long_is_told_once_and_the_next_one_is_read() -> None:
    reader = LineReader(4)
    assert reader.feed(b"1234\n12") == [b"1234"]
    assert reader.feed(b"345") == [None]
    assert reader.feed(b"678" * 1000) == []
    assert reader.feed(b"9\nnext\n12345\nlast\n") == [b"next", None, b"last"]


def test_what_follows_a_clear_begins_a_line() -> None:
    reader = LineReader(4)
    assert reader.feed(b"12345") == [None]
    reader.clear()
    assert reader.feed(b"next\n") == [b"next"]


def test_a_request_comes_back_as_it_was_written() -> None:
    line = request_line(7, "declare_queue", {"name": "q\n"})
    assert line.count(b"\n") == 1
    assert parse_request(line) == Request(7, "declare_queue", {"name": "q\n"})
    assert parse_request(b'{"method": "ping"}') == Request(None, "ping", {})


@pytest.mark.parametrize(
    ("line", "identity", "says"),
    [
        (b"nonsense", None, "not JSON"),
        (b"\xff\xfe", None, "not JSON"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b"[1]", None, "not an object"),
        (b'{"id": [], "method": "ping"}', None, "id is neither"),
        (b'{"id": NaN, "method": "ping"}', None, "id is neither"),
        (b'{"id": 1e999, "method": "ping"}', None, "id is neither"),
        (b'{"id": 1}', 1, "method is missing"),
        (b'{"id": 2, "method": 5}', 2, "method is missing"),
        (b'{"id": "x", "method": "ping", "params": 3}', "x", "params is not an object"),
    ],
)
def test_what_is_no_request_is_refused_with_a_hint(line: bytes, identity: Any, says: str) -> None:
    with pytest.raises(BadRequest, match=says) as refused:
        parse_request(line)
    assert refused.value.identity == identity and refused.value.hint


def test_an_answer_keeps_its_id_and_result() -> None:
    assert parse_answer(result_line("a", {"x": 1})) == ("a", {"x": 1}, None)


def test_an_error_keeps_its_fields_apart() -> None:
    refused = NotFound("no queue 'q'. Really", reason="it was deleted; see", hint="declare it")
    line = error_line(3, refused)
    assert json.loads(line)["error"] == {
        "condition": "amqp:not-found",
        "message": "no queue 'q'. Really",
        "reason": "it was deleted; see",
        "hint": "declare it",
        "event_code": "QHA7108",
    }
    identity, result, error = parse_answer(line)
    assert (identity, result) == (3, None) and error is not None
    assert (error.condition, error.text, error.reason, error.hint) == (
        refused.condition,
        refused.text,
        refused.reason,
        refused.hint,
    )
    assert NotFound.condition == "amqp:not-found"


def test_an_event_has_no_id() -> None:
    entry = {"event": "state", "broker": "b1"}
    assert parse_answer(to_line(entry)) == (None, entry, None)


@pytest.mark.parametrize("line", [b"[]", b"7", b"no", b'{"id": 1, "error": 3}', b'{"id": []}'])
def test_what_is_no_answer_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        parse_answer(line)
