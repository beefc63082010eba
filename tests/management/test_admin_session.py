"""Local sessions: JSON lines in, JSON lines out, whatever comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.management import admin_session as local
from qpidha.management.admin_session import AdminSession
from qpidha.management.requests import Requests
from qpidha.model.json_lines import LONGEST_REQUEST, MOST_WAITING
from tests.management.builders import LOCAL, FakeNode


def a_session(target: FakeNode | None = None) -> AdminSession:
    return AdminSession(Requests(target or FakeNode()), LOCAL)


def answers(session: AdminSession) -> list[dict[str, Any]]:
    return [json.loads(line) for line in session.output().splitlines()]


def line(identity: Any, method: str, **params: Any) -> bytes:
    return json.dumps({"id": identity, "method": method, "params": params}).encode() + b"\n"


def test_a_request_is_answered_on_one_line_with_its_id() -> None:
    session = a_session()
    session.receive(line(1, "ping"))
    assert session.output() == b'{"id":1,"result":{"state":"active"}}\n'
    assert session.output() == b""


def test_requests_may_come_in_pieces_and_together() -> None:
    session = a_session()
    for byte in line("a", "ping") + b"\r\n" + line("b", "ping"):
        session.receive(bytes([byte]))
    session.receive(line(3, "ping") + line(4, "status"))
    assert [answer["id"] for answer in answers(session)] == ["a", "b", 3, 4]


def test_a_slow_change_is_overtaken_by_a_read() -> None:
    target = FakeNode()
    session = a_session(target)
    session.receive(line(1, "declare_queue", name="q") + line(2, "ping"))
    assert [answer["id"] for answer in answers(session)] == [2] and session.waiting == 1
    target.commit_all()
    (answer,) = answers(session)
    assert answer["id"] == 1 and answer["result"]["name"] == "q" and session.waiting == 0


def test_a_refusal_has_condition_message_and_hint() -> None:
    target = FakeNode()
    target.serving = False
    session = a_session(target)
    session.receive(line(1, "declare_queue", name="q"))
    error = answers(session)[0]["error"]
    assert (
        error["condition"] == "amqp:not-allowed" and error["message"] and "h2:5672" in error["hint"]
    )


def test_a_malformed_line_is_an_error_and_the_session_stays_usable() -> None:
    session = a_session()
    bad = [
        b"nonsense",
        b"[1]",
        b'{"id": 1}',
        b'{"id": [], "method": "ping"}',
        b'{"id": 2, "method": "ping", "params": 3}',
        b"\xff\xfe",
    ]
    session.receive(b"\n".join([*bad, b"[" * 100_000, b"", b"  "]) + b"\n" + line(9, "ping"))
    *errors, good = answers(session)
    assert [answer["id"] for answer in errors] == [None, None, 1, None, 2, None, None]
    assert all(answer["error"]["condition"] == "amqp:invalid-field" for answer in errors)
    assert good["result"]


def test_a_line_without_end_is_refused_once_and_takes_no_memory() -> None:
    session = a_session()
    for _ in range(40):
        session.receive(b"x" * (LONGEST_REQUEST // 10))
    assert len(session._lines._partial) <= LONGEST_REQUEST
    session.receive(b"tail\n" + line(1, "ping"))
    refused, good = answers(session)
    assert refused["error"]["condition"] == "amqp:resource-limit-exceeded" and good["id"] == 1


def test_requests_that_wait_are_bounded() -> None:
    target = FakeNode()
    session = a_session(target)
    session.receive(
        b"".join(line(number, "declare_queue", name="q") for number in range(MOST_WAITING + 1))
    )
    (refused,) = answers(session)
    assert (
        refused["id"] == MOST_WAITING
        and refused["error"]["condition"] == "amqp:resource-limit-exceeded"
    )
    target.commit_all()
    assert len(answers(session)) == MOST_WAITING


def test_answers_that_nobody_fetches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "MOST_OUTPUT", 10_000)
    session = a_session()
    session.receive(b"".join(line(number, "list_exchanges") for number in range(500)))
    found = answers(session)
    assert len(found) == 500 and "error" in found[-1] and "result" in found[0]
    session.receive(line(501, "list_exchanges"))
    assert "result" in answers(session)[0]


def test_an_answer_after_close_is_dropped() -> None:
    target = FakeNode()
    session = a_session(target)
    session.receive(line(1, "declare_queue", name="q"))
    session.close()
    target.commit_all()
    session.receive(line(2, "ping"))
    assert session.output() == b""


def test_what_is_not_fetched_when_the_session_is_closed_is_dropped() -> None:
    session = a_session()
    session.receive(line(1, "ping"))
    session.close()
    assert session.output() == b""


def test_output_wakes_once_until_it_is_fetched() -> None:
    woken: list[int] = []
    session = AdminSession(Requests(FakeNode()), LOCAL, lambda: woken.append(1))
    session.receive(line(1, "ping") + line(2, "ping"))
    assert len(woken) == 1
    session.output()
    session.receive(line(3, "ping"))
    assert len(woken) == 2


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from([line(1, "ping"), line(2, "bind"), b'{"id":', b"\n", b"}"]),
        max_size=12,
    )
)
def test_any_bytes_are_answered_by_valid_json_and_nothing_breaks(pieces: list[bytes]) -> None:
    session = a_session()
    for piece in pieces:
        session.receive(piece)
    answers(session)
    session.receive(b"\n" + line(99, "ping"))
    assert answers(session)[-1]["id"] == 99


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["name", "durable", "arguments", "alternate", "type", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=6,
        ),
    )
)
def test_any_json_parameters_are_answered(params: dict[str, Any]) -> None:
    target = FakeNode()
    session = a_session(target)
    for number, method in enumerate(
        ("declare_queue", "declare_exchange", "bind", "delete_queue", "list_queues")
    ):
        session.receive(line(number, method, **params))
    target.commit_all()
    assert sorted(answer["id"] for answer in answers(session)) == [0, 1, 2, 3, 4]
