"""Sending, receiving and managing over AMQP, against one real broker without a cluster."""

from __future__ import annotations

import io
import json
import os
import re
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qpidha.broker.declaration import REFUSED_TYPES
from qpidha.broker.exchange import EXCHANGE_TYPES
from qpidha.broker.vocabulary import TABLE, Entry, Fate, Kind
from qpidha.cli.broker import messages
from qpidha.cli.broker.objects import TYPES
from tests.cli.conftest import Said
from tests.management.test_vocabulary import NEEDS, one_of
from tests.patience import STATE
from tests.system.cluster import held_ports, wait_for

Run = Callable[..., Said]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A standalone broker's address."""
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="qpidha-") as directory, held_ports(1) as (port,):
        config = Path(directory) / "qpidd.conf"
        config.write_text(
            f"auth=no\nport={port}\ninterface=127.0.0.1\ndata-dir={directory}/data\nadmin-socket={directory}/admin.sock\nready-fd={write}\n"
        )
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
            process.wait(STATE)


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


def test_a_selector_takes_what_it_selects(at: Run) -> None:
    at("send", "q", "one", "--subject", "a")
    at("send", "q", "two", "--subject", "b")
    assert at("receive", "q", "-m", "1", "--selector", "JMSType = 'b'").out == "two\n"
    wrong = at("receive", "q", "--selector", "JMSType =")
    assert wrong.code and "at character 10" in wrong.err
    assert at("receive", "q", "-m", "1").out == "one\n"


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
    assert [(json.loads(line)["body"], json.loads(line)["delivery_count"]) for line in left] == [
        (str(n), 0) for n in range(4, 51)
    ]


def test_first_use_d2_a_queue_that_takes_each_id_once_takes_the_messages_of_every_call(
    at: Run,
) -> None:
    assert at("queue", "add", "once", "--argument", "qpidha.dedup=message-id").code == 0
    assert at("send", "once", "alpha", "beta").code == 0
    assert at("send", "once", "gamma", "delta").code == 0
    assert at("receive", "once", "-m", "4").out.split() == ["alpha", "beta", "gamma", "delta"]
    assert at("queue", "del", "once", "--force").code == 0


def test_more_than_a_window_of_messages_goes_through(at: Run) -> None:
    assert (
        json.loads(at("send", "q", "-m", "1200", "--content-size", "50", "-o", "json").out)[
            "accepted"
        ]
        == 1200
    )
    assert len(at("receive", "q", "-m", "1200").out.splitlines()) == 1200


def test_an_exchange_routes_by_its_binding(at: Run) -> None:
    assert at("bind", "amq.direct", "q", "red").code == 0
    assert at("send", "amq.direct/red", "hello").code == 0
    assert at("receive", "q", "-m", "1").out == "hello\n"
    assert at("unbind", "amq.direct", "q", "red").code == 0
    assert at("unbind", "amq.direct", "q", "red").code == 1


def test_first_use_d14_a_message_without_a_queue_is_released_and_the_sender_is_told(
    at: Run,
) -> None:
    said = at("send", "amq.direct/nowhere", "hello")
    assert said.code == 1 and "0 of 1 accepted" in said.err
    assert "message 1: released: the broker has no queue for it" in said.err
    assert "bind one to the exchange" in said.err


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
    at("queue", "add", "small", "--max-queue-count", "2", "--flow-stop-count", "0")
    said = at("send", "small", "-m", "3", "-o", "json")
    assert said.code == 1 and json.loads(said.out) == {
        "schema_version": 1,
        "sent": 3,
        "accepted": 2,
        "refused": 1,
        "without_outcome": 0,
    }
    at("queue", "del", "small", "--force")


def test_nobody_there_is_69(qpid_ha: Run) -> None:
    assert qpid_ha("status", "-b", "127.0.0.1:1").code == 69


def test_a_hint_says_what_to_do_with_a_name_that_is_not_there(at: Run) -> None:
    assert "Try: qpid-ha queue add nope [" in at("send", "nope", "x").err
    for words in (
        ("queue", "del", "nope"),
        ("queue", "purge", "nope"),
        ("bind", "amq.topic", "nope"),
        ("receive", "nope"),
    ):
        said = at(*words)
        assert said.code == 1 and ". Try: qpid-ha queue list [" in said.err, said.err
    assert "Try: qpid-ha exchange list [" in at("exchange", "del", "nope").err
    said = at("unbind", "amq.topic", "q", "nope")
    assert "Try: qpid-ha exchange list --bindings [" in said.err


def test_bindings_are_listed(at: Run) -> None:
    at("bind", "amq.topic", "q", "a.#")
    at("bind", "amq.match", "q", "h", "all", "colour=red")
    rows = json.loads(at("exchange", "list", "--bindings", "-o", "json").out)["bindings"]
    assert sorted((row["exchange"], row["queue"], row["key"]) for row in rows) == [
        ("amq.match", "q", "h"),
        ("amq.topic", "q", "a.#"),
    ]
    at("bind", "amq.fanout", "amq.topic", "--to-exchange")
    rows = json.loads(at("exchange", "list", "--bindings", "fanout", "-o", "json").out)["bindings"]
    assert [row["destination_exchange"] for row in rows] == ["amq.topic"]
    at("unbind", "amq.fanout", "amq.topic", "--to-exchange")
    assert at("unbind", "amq.fanout", "amq.topic", "--to-exchange").code == 1
    said = at("exchange", "list", "--bindings", "match").out.splitlines()
    assert (
        len(said) == 2
        and said[1].split()[:3] == ["amq.match", "q", "h"]
        and "colour=red" in said[1]
    )


def test_row_120_messages_are_shown_and_moved(at: Run) -> None:
    at("send", "q", "one", "two")
    said = at("queue", "peek", "q", "2")
    assert said.out.splitlines()[1].split()[0] == "2" and "two" in said.out
    found = json.loads(at("queue", "peek", "q", "--count", "5", "-o", "json").out)["messages"]
    assert [message["body"]["text"] for message in found] == ["one", "two"]
    said = at("queue", "peek", "q", "3")
    assert said.code == 1 and "has 2 messages" in said.err
    at("queue", "add", "tight", "--max-queue-count", "1")
    said = at("queue", "move", "q", "tight")
    assert said.code == 1 and "1 messages moved to tight, 1 left" in said.err
    assert "tight is full" in said.err
    assert at("queue", "move", "tight", "q").code == 0
    assert at("queue", "del", "tight").code == 0
    shown = json.loads(at("queue", "show", "q", "-o", "json").out)["queue"]
    assert (shown["name"], shown["messages"]) == ("q", 2)
    found = at("queue", "show", "q").out
    assert "messages" in found and re.search(r"oldest_age_seconds +[0-9.]+ s\n", found)
    assert at("queue", "show", "nowhere").code == 1


def test_dead_letters_are_sent_back(at: Run) -> None:
    target = "x-dead-letter-exchange=/queues/dead"
    at("queue", "add", "dead")
    at("queue", "add", "dies", "--argument", target, "--argument", "x-max-length=1")
    at("send", "dies", "one", "two", "three")
    said = at("queue", "requeue", "dead")
    assert said.code == 1 and "0 messages sent back, 2 left" in said.err
    assert "dies is full" in said.err
    at("receive", "dies")
    said = at("queue", "requeue", "dead", "--from", "dies", "--count", "1")
    assert (said.code, said.err) == (0, "queue dead: 1 messages sent back, 1 left\n")
    assert at("receive", "dies").out == "one\n"
    at("send", "dead", "plain")
    said = at("queue", "requeue", "dead", "-o", "json")
    found = {"schema_version": 1, "messages": 1, "left": 1, "unknown": 1, "stopped": ""}
    assert json.loads(said.out) == found
    assert said.code == 1 and "1 messages do not say" in said.err and "queue move dead" in said.err


def test_what_differs_from_an_existing_queue_is_named_with_both_values(at: Run) -> None:
    assert (
        "exists with durable=no, you asked for durable=yes"
        in at("queue", "add", "q", "--durable").err
    )


@pytest.mark.parametrize(
    "words",
    [("queue", "add", ""), ("exchange", "add", "topic", ""), ("send", "", "x"), ("receive", "")],
)
def test_an_empty_name_is_a_usage_error(at: Run, words: tuple[str, ...]) -> None:
    said = at(*words)
    assert said.code == 2 and "is empty" in said.err


@pytest.mark.parametrize(
    "words",
    [("send", "q", "-m", "-3"), ("receive", "q", "-m", "-3"), ("receive", "q", "--idle", "-1")],
)
def test_numbers_below_zero_are_usage_errors(at: Run, words: tuple[str, ...]) -> None:
    assert at(*words).code == 2


def test_text_that_is_not_utf8_is_sent_as_binary(at: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\xff\nplain\n")))
    assert at("send", "q").code == 0
    assert at("send", "q", os.fsdecode(b"y\xfe")).code == 0
    assert at("receive", "q", "-m", "3").out == "x\\xff\nplain\ny\\xfe\n"


def test_tls_to_a_plain_port_says_so(address: str, qpid_ha: Run) -> None:
    said = qpid_ha("status", "-b", f"amqps://{address}")
    assert (
        said.code == 69
        and "does not speak TLS" in said.err
        and said.err.endswith(f"Try: -b amqp://{address}\n")
    )


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no AMQP broker: it answers 'HTTP/1.1 400"),
        (b"\x15\x03\x03\x00\x02\x02F", "speaks TLS"),
    ],
)
def test_a_peer_that_is_no_amqp_broker_is_called_so(qpid_ha: Run, answer: bytes, text: str) -> None:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(100)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        said = qpid_ha("send", "q", "x", "-b", f"127.0.0.1:{server.server_address[1]}")
        thread.join()
    assert said.code == 69 and text in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("send",),
        ("receive",),
        ("queue", "add"),
        ("exchange", "list"),
        ("list",),
        ("user", "add"),
        ("version",),
    ],
)
def test_help_of_a_command_ends_with_where_the_common_options_are(
    qpid_ha: Run, words: tuple[str, ...]
) -> None:
    assert qpid_ha(*words, "--help").out.rstrip().endswith("qpid-ha help")


@pytest.mark.parametrize("words", [("send",), ("queue", "add"), ("exchange", "add")])
def test_help_says_what_durable_keeps(qpid_ha: Run, words: tuple[str, ...]) -> None:
    assert "on disk" in " ".join(qpid_ha(*words, "--help").out.split())


def _text(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def entries(*kinds: Kind) -> list[object]:
    return [
        pytest.param(entry, id=f"{entry.kind}-{entry.name}".replace(" ", "_"))
        for entry in TABLE
        if entry.kind in kinds
    ]


def check_said(said: Said, entry: Entry) -> None:
    if entry.fate is Fate.REFUSED:
        assert said.code == 1
        assert entry.name in said.err and entry.text in said.err and entry.hint in said.err
    else:
        assert (said.code, said.err) == (0, "")


@pytest.mark.parametrize("entry", entries(Kind.QUEUE, Kind.POLICY, Kind.EXCHANGE))
def test_each_argument_is_done_or_refused_by_name(address: str, qpid_ha: Run, entry: Entry) -> None:
    is_exchange = entry.kind is Kind.EXCHANGE
    kind = "x-consistent-hash" if entry.name.startswith("hash-") else "fanout"
    words = ["exchange", "add", kind, "new"] if is_exchange else ["queue", "add", "new"]
    words += ["--durable"] if entry.name == "x-queue-type" else []
    for name, value in NEEDS.get(entry.name, {}).items():
        words += ["--argument", f"{name}={_text(value)}"]
    given = f"{one_of(entry.name)}={_text(entry.example)}"
    said = qpid_ha(*words, "--argument", given, "-b", address)
    check_said(said, entry)
    if said.code == 0:
        force = [] if is_exchange else ["--force"]
        qpid_ha(words[0], "del", "new", *force, "-b", address)


@pytest.mark.parametrize(("kind", "why"), [*REFUSED_TYPES.items(), ("odd", "is not known")])
def test_an_exchange_of_another_type_is_refused_with_the_reason_and_what_there_is(
    at: Run, kind: str, why: str
) -> None:
    said = at("exchange", "add", kind, "new")
    assert said.code == 1 and kind in said.err and why in said.err
    assert all(known in said.err for known in EXCHANGE_TYPES) and set(EXCHANGE_TYPES) == set(TYPES)


@pytest.mark.parametrize("entry", entries(Kind.BINDING))
def test_each_argument_of_a_binding_is_done_or_refused_by_name(at: Run, entry: Entry) -> None:
    given = f"{entry.name}={_text(entry.example)}"
    headers = [entry.example] if entry.name == "x-match" else ["all", given]
    check_said(at("bind", "amq.match", "q", "key", *headers), entry)


def test_first_use_d1_lines_are_sent_as_they_come(at: Run, address: str) -> None:
    command = [sys.executable, "-m", "qpidha.cli.main", "send", "q", "-b", address]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        wait_for(lambda: at("receive", "q", "--browse", "--idle", "0.1").out, what="the first line")
        process.stdin.write("two\n")
        process.stdin.close()
        assert process.stderr.read() == "2 of 2 accepted\n"
    assert at("receive", "q", "-m", "2").out == "one\ntwo\n"


def test_first_use_d1_messages_are_made_when_they_are_sent() -> None:
    contents = messages._contents([], 10**22, 0)
    assert [next(contents), next(contents)] == ["1", "2"]
