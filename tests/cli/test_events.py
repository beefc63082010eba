"""Events of all brokers, and the history made of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import FakeBroker, Said

Run = Callable[..., Said]


def event(at: int, kind: str, text: str, **fields: Any) -> dict[str, Any]:
    return {"at_ns": at, "kind": kind, "text": text, **fields}


@pytest.fixture
def told(broker: FakeBroker) -> FakeBroker:
    """A broker alone that has some events."""
    now = time.time_ns()
    broker.answers["status"]["brokers_url"] = ""
    broker.answers["events"] = {
        "name": "b1",
        "now_ns": now,
        "events": [
            event(10**9, "role", "is recovering, epoch 1", state="recovering", epoch=1),
            event(2 * 10**9, "role", "is active, epoch 1", state="active", epoch=1),
            event(now - 10**9, "conn", "client a\x1b[31m connected"),
        ],
    }
    return broker


def test_events_stand_in_their_order_with_times_and_no_control_characters(
    told: FakeBroker, qpid_ha: Run
) -> None:
    said = qpid_ha("events", "-b", told.socket)
    lines = said.out.splitlines()
    assert said.code == 0 and lines[0].split() == ["TIME", "BROKER", "KIND", "TEXT"]
    assert " ".join(lines[1].split()) == ("1970-01-01 00:00:01.000Z b1 role is recovering, epoch 1")
    assert "client a\\x1b[31m connected" in lines[3]
    assert told.asked[-1] == ("events", {"kinds": ""})


def test_some_of_the_events_are_asked_for(told: FakeBroker, qpid_ha: Run) -> None:
    def texts(*words: str) -> list[str]:
        said = qpid_ha("events", *words, "-o", "json", "-b", told.socket)
        return [row["text"][:9] for row in json.loads(said.out)["events"]]

    assert texts("-n", "1") == texts("--since", "1h") == texts("--since=1d") == ["client a\x1b"]
    assert len(texts("-n", "0")) == 3
    qpid_ha("events", "--type", "role,conn", "-b", told.socket)
    assert told.asked[-1] == ("events", {"kinds": "role conn"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--type", "rol"), "did you mean role?"),
        (("--type", "zzzz"), "one of role, "),
        (("--since", "yesterday"), "--since 24h"),
        (("-n", "-1"), "greater than or equal to 0"),
        (("--follow", "-o", "json"), "-o json does not go with --follow"),
        (("--follow", "--sort", "kind"), "--sort does not go with --follow"),
    ],
)
def test_wrong_words_are_answered(
    told: FakeBroker, qpid_ha: Run, words: tuple[str, ...], message: str
) -> None:
    said = qpid_ha("events", *words, "-b", told.socket)
    assert said.code == 2 and message in said.err and said.out == ""


def test_history_tells_who_was_primary(told: FakeBroker, qpid_ha: Run) -> None:
    said = qpid_ha("history", "-b", told.socket)
    assert said.out.splitlines()[1].split() == (
        ["1", "1970-01-01", "00:00:01.000Z", "-", "b1", "first", "that", "is", "known", "-", "-"]
    )
    (row,) = json.loads(qpid_ha("history", "-o", "json", "-b", told.socket).out)["promotions"]
    assert (row["epoch"], row["to"], row["when_ns"]) == (1, "b1", 10**9)
    assert qpid_ha("history", "--since", "7d", "-b", told.socket) == (
        Said(0, "EPOCH  WHEN  FROM  TO  CAUSE  AWAY  PROMOTION\n", "no promotion is known\n")
    )


def test_brokers_that_do_not_answer_are_named_and_the_others_are_shown(
    told: FakeBroker, qpid_ha: Run
) -> None:
    told.answers["status"]["brokers_url"] = "amqp:127.0.0.1:5672,127.0.0.1:1"
    said = qpid_ha("events", "-b", told.socket, "--timeout", "20")
    assert said.code == 0 and "127.0.0.1:1 is not asked: " in said.err
    assert len(said.out.splitlines()) == 4


def test_friendliness_3_where_no_broker_answers_nothing_is_on_standard_output(
    told: FakeBroker, qpid_ha: Run
) -> None:
    told.answers["events"] = ValueError(
        {"condition": "x", "message": "this broker keeps no events"}
    )
    for words in (("events",), ("history",), ("events", "-f")):
        said = qpid_ha(*words, "-b", told.socket)
        assert said.code == 1 and said.out == "" and "keeps no events" in said.err
        assert qpid_ha(*words, "-b", "127.0.0.1:1").code == 69


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_following_goes_on_behind_what_was_shown(told: FakeBroker, form: str) -> None:
    words = ["events", "-f", "-n", "1", "-o", form, "-b", told.socket]
    command = subprocess.Popen(
        [sys.executable, "-m", "qpidha.cli.main", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert command.stdout is not None
        lines = [command.stdout.readline()]
        if form == "csv":
            assert lines == ["at_ns,broker,kind,text\n"]
            lines = [command.stdout.readline()]
        assert "client a" in lines[0]
        last = told.answers["events"]["events"][-1]["at_ns"]
        told.answers["events"] = {
            "name": "b1",
            "events": [event(last + 5, "queue", "queue m\u00e4rz created")],
        }
        assert "m" in command.stdout.readline()
        asked = [params["after"] for method, params in told.asked if "after" in params]
        assert asked[0] == last
        command.send_signal(2)
        assert command.wait() == 130
    finally:
        command.kill()
        command.wait()
