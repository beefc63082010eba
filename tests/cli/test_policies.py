"""`qpid-ha policy` and `operator-policy`, against a broker alone."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import Said
from tests.cli.test_messages import Run, address

__all__ = ["address"]


@pytest.fixture
def at(qpid_ha: Run, address: str) -> Callable[..., Said]:
    return lambda *words: qpid_ha(*words, "-b", address)


def test_rows_5_6_7_14_16_policies_are_set_listed_explained_and_cleared(
    at: Callable[..., Said],
) -> None:
    assert at("queue", "add", "orders").code == 0
    said = at("policy", "set", "limit", "^orders", "max-length=5", "--priority", "3")
    assert (said.code, said.err) == (0, "")
    assert at("policy", "set", "other", "^x", '{"max-length": 1}', "--merge").code == 0
    listed = json.loads(at("policy", "list", "-o", "json").out)["policies"]
    assert [(row["name"], row["matches"], row["merge"]) for row in listed] == [
        ("limit", 1, False),
        ("other", 0, True),
    ]
    assert "limit" in at("policy", "list").out
    told = at("policy", "explain", "orders").out
    assert "it counts" in told and "does not match ^x" in told and "qpid.max_count" in told
    assert at("policy", "patch", "limit", "overflow=reject-publish").code == 0
    assert at("policy", "drop-keys", "limit", "max-length").code == 0
    assert at("policy", "override", "limit", '{"max-length": 9}', "--for", "2h").code == 0
    (queue,) = json.loads(at("queue", "list", "orders", "-o", "json").out)["queues"]
    assert (queue["policy"], queue["effective_policy"]) == (
        "override.limit",
        {
            "qpid.flow_stop_count": 0,
            "qpid.flow_stop_size": 0,
            "qpid.max_count": 9,
            "qpid.policy_type": "reject",
        },
    )
    for name in ("limit", "other", "override.limit"):
        assert at("policy", "clear", name).code == 0
    assert at("policy", "clear", "limit").code == 1
    assert "no policies" in at("policy", "list").err
    assert at("queue", "del", "orders").code == 0


def test_row_4_a_policy_for_exchanges_is_set_explained_and_shown(at: Callable[..., Said]) -> None:
    assert at("exchange", "add", "direct", "e").code == 0
    words = ("alternate-exchange=amq.fanout", "--apply-to", "exchanges")
    assert at("policy", "set", "lost", "^e$", *words).code == 0
    told = at("policy", "explain", "e", "--exchange").out
    assert "it counts" in told and "alternate-exchange  amq.fanout  policy lost" in told
    shown = json.loads(at("exchange", "show", "e", "-o", "json").out)["exchange"]
    assert (shown["policy"], shown["effective_policy"]) == (
        "lost",
        {"alternate-exchange": "amq.fanout"},
    )
    assert '{"alternate-exchange": "amq.fanout"}' in at("exchange", "show", "e").out
    assert at("exchange", "show", "none").code == 1
    refused = at("policy", "set", "limit", "^e$", "max-length=5", "--apply-to", "exchanges")
    assert refused.code == 1 and "max-length is for queues only" in refused.err
    assert at("policy", "clear", "lost").code == 0
    assert at("exchange", "del", "e").code == 0


def test_row_11_operator_policies(at: Callable[..., Said]) -> None:
    assert at("queue", "add", "q").code == 0
    assert at("operator-policy", "set", "cap", ".*", '{"max-length": 4}').code == 0
    assert "cap" in at("operator-policy", "list").out
    (queue,) = json.loads(at("queue", "list", "q", "-o", "json").out)["queues"]
    assert (queue["policy"], queue["operator_policy"]) == ("", "cap")
    assert at("operator-policy", "clear", "cap").code == 0
    assert at("queue", "del", "q").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "p", ".*", "{"), "cannot be read"),
        (("set", "p", ".*", "[]"), "not KEY=VALUE"),
        (("set", "p", ".*", '{"a": 1, "a": 2}'), "the key a is there twice"),
        (("override", "p", '{"max-length": 1}', "--for", "soon"), "soon"),
        (("override", "p", '{"max-length": 1}', "--for", "0"), "too short"),
    ],
)
def test_row_5_wrong_words_are_told(
    at: Callable[..., Said], words: tuple[str, ...], said: str
) -> None:
    answer = at("policy", *words)
    assert answer.code == 2 and said in answer.err


def test_row_18_what_no_policy_can_set_exits_1(at: Callable[..., Said]) -> None:
    answer = at("policy", "set", "p", ".*", '{"x-queue-type": "quorum"}')
    assert answer.code == 1 and "x-queue-type" in answer.err
    assert json.loads(at("policy", "list", "-o", "json").out)["policies"] == []
