"""A little of the fuzzer with each run of the tests, and what it would have found."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer import transaction_wire
from qpidha.model import message_view
from tests.fuzz.run import Sessions, decode_damaged

SESSIONS = 1000


def test_faults_b1_sessions_by_a_grammar_end_no_broker() -> None:
    sessions = Sessions()
    for seed in range(SESSIONS):
        sessions.play(seed)
    assert sessions.node.internal_errors == 0


def test_code_6_decoders_refuse_what_they_cannot_read_and_fail_at_nothing() -> None:
    for seed in range(3000):
        decode_damaged(seed)


def test_a_planted_mistake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a body which is not looked at before it is joined."""

    def trusting(payload: bytes) -> Any:
        parts = [
            message_view.decode(payload, start)[0]
            for code, _, start, _ in message_view.sections(payload)
            if code >= message_view.DATA
        ]
        return parts[0] if len(parts) == 1 and not parts[0] else b"".join(parts)

    monkeypatch.setattr(transaction_wire, "body", trusting)
    sessions = Sessions()
    with pytest.raises(TypeError):
        for seed in range(SESSIONS):
            sessions.play(seed)
