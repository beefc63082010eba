"""Sending, receiving and managing over AMQP, against one real broker without a cluster."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Said

Run = Callable[..., Said]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A standalone broker's address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="qpidha-") as directory:
        config = Path(directory) / "qpidd.conf"
        config.write_text(f"port={port}\ninterface=127.0.0.1\nadmin-socket={directory}/admin.sock\nready-fd={write}\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "qpidha.runtime.daemon", "--config", str(config)],
            pass_fds=(write,),
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        os.close(write)
        try:
            assert os.read(read, 64), "the broker did not start"
            yield f"127.0.0.1:{port}"
        finally:
            os.close(read)
            process.terminate()
            process.wait(10)


@pytest.fixture
def at(address: str, qpid_ha: Run, request: pytest.FixtureRequest) -> Iterator[Run]:
    """Run a command on the broker, with a queue named q."""
    assert qpid_ha("queue", "add", "q", "-b", address).code == 0
    yield lambda *words: qpid_ha(*words, "-b", address)
    qpid_ha("queue", "del", "q", "--force", "-b", address)


def test_a_standalone_broker_says_so_over_amqp(at: Run) -> None:
    assert at("status").out == "standalone\n"
    assert at("ping") == Said(0, "", "")


def test_what_was_sent_is_received_in_order(at: Run) -> None:
    assert at("send", "q", "one", "two", "three").code == 0
    assert at("receive", "q", "-m", "3").out == "one\ntwo\nthree\n"


def test_browsing_leaves_the_messages(at: Run) -> None:
    at("send", "q", "-m", "2")
    said = at("receive", "q", "--browse", "-m", "2", "-o", "json")
    assert [json.loads(line)["body"] for line in said.out.splitlines()] == ["1", "2"]
    assert json.loads(at("queue", "list", "q", "-o", "json").out)["queues"][0]["messages"] == 2


def test_what_was_not_printed_stays_in_the_queue(at: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    at("send", "q", "-m", "50")
    printed: list[str] = []

    def stop_after_three(text: str, **_: object) -> None:
        if len(printed) == 3:
            raise KeyboardInterrupt
        printed.append(text)

    with monkeypatch.context() as patch:
        patch.setattr("builtins.print", stop_after_three)
        assert at("receive", "q").code == 130
    left = at("receive", "q", "-o", "json").out.splitlines()
    assert printed == ["1", "2", "3"]
    assert [(json.loads(line)["body"], json.loads(line)["delivery_count"]) for line in left] == [(str(n), 0) for n in range(4, 51)]


def test_more_than_a_window_of_messages_goes_through(at: Run) -> None:
    assert json.loads(at("send", "q", "-m", "1200", "--content-size", "50", "-o", "json").out)["accepted"] == 1200
    assert len(at("receive", "q", "-m", "1200").out.splitlines()) == 1200


def test_an_exchange_routes_by_its_binding(at: Run) -> None:
    assert at("bind", "amq.direct", "q", "red").code == 0
    assert at("send", "amq.direct/red", "hello").code == 0
    assert at("receive", "q", "-m", "1").out == "hello\n"
    assert at("unbind", "amq.direct", "q", "red").code == 0
    assert at("unbind", "amq.direct", "q", "red").code == 1


def test_purge_says_how_many(at: Run) -> None:
    at("send", "q", "-m", "3")
    assert json.loads(at("queue", "purge", "q", "-o", "json").out)["messages"] == 3


def test_a_queue_that_does_not_exist_is_refused_with_its_name(at: Run) -> None:
    for command in (("send", "nosuch", "x"), ("receive", "nosuch"), ("queue", "del", "nosuch")):
        said = at(*command)
        assert said.code == 1 and "nosuch" in said.err and said.out == ""


def test_a_queue_with_messages_is_not_deleted_without_force(at: Run) -> None:
    at("send", "q", "x")
    assert at("queue", "del", "q").code == 1
    assert at("queue", "del", "q", "--force-if-not-empty").code == 0


def test_a_full_queue_refuses_and_the_sender_is_told(at: Run) -> None:
    at("queue", "add", "small", "--max-queue-count", "2")
    said = at("send", "small", "-m", "3", "-o", "json")
    assert said.code == 1 and json.loads(said.out) == {"schema_version": 1, "sent": 3, "accepted": 2, "refused": 1}
    at("queue", "del", "small", "--force")


def test_nobody_there_is_69(qpid_ha: Run) -> None:
    assert qpid_ha("status", "-b", "127.0.0.1:1").code == 69
