"""qpid-send and qpid-receive against a real broker: what they print and how they end, as Qpid's
scripts and tests use them.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from qpidha.tools import messaging_links, qpid_receive, qpid_send
from tests.cli.test_login import serving
from tests.patience import STATE
from tests.system.cluster import Cluster
from tests.system.credentials import Authority, users_file
from tests.tools.transcripts import is_as_written

ROOT = Path(__file__).parents[2]


@dataclass
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str


class Programs:
    """The two programs, at one broker."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.address = address
        self._capsys = capsys

    def send(self, address: str, *words: str) -> Ended:
        return self._run(qpid_send, address, *words)

    def receive(self, address: str, *words: str) -> Ended:
        return self._run(qpid_receive, address, *words)

    def make(self, name: str, kind: str = "queue", **declare: object) -> None:
        """Make a queue or an exchange, without a message."""
        said = ",".join(f"'{key}':{value}" for key, value in declare.items())
        node = f"{{type:{kind},x-declare:{{{said}}}}}"
        ended = self.send(f"{name};{{create:always,node:{node}}}", "--content-stdin")
        assert (ended.code, ended.err) == (0, "")

    def _run(self, program: object, address: str, *words: str) -> Ended:
        try:
            code = program.main(["-b", self.address, "-a", address, *words])  # type: ignore[attr-defined]
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = self._capsys.readouterr()
        return Ended(code, said.out, said.err)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of this machine alone."""
    folder = tmp_path_factory.mktemp("broker")
    words = ("--auth", "no", "--data-dir", str(folder / "data"))
    with serving(str(folder / "a.sock"), *words) as found:
        yield found


@pytest.fixture
def at(
    broker: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Programs:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    return Programs(broker, capsys)


def test_what_documents_and_scripts_do(broker: str) -> None:
    is_as_written("qpid_send_receive.txt", {"node1": broker})


def numbers(printed: str) -> list[int]:
    """The numbers of messages whose headers were printed."""
    return [int(found) for found in re.findall(r"sn:(\d+)", printed)]


def test_messages_are_numbered_timed_and_printed(at: Programs) -> None:
    assert at.send("a;{create:always}", "-m", "3", "--content-string", "hello") == Ended(0, "", "")
    found = at.receive("a;{mode:browse}", "--print-headers", "yes")
    assert re.fullmatch(r"(Properties: \{sn:[123], ts:\d{19}\}\n\nhello\n){3}", found.out), (
        found.out
    )
    assert at.receive("a", "-m", "2") == Ended(0, "hello\nhello\n", "")
    assert at.receive("a") == Ended(0, "hello\n", "")
    assert at.receive("a") == Ended(0, "", "")


def test_every_field_is_sent_and_printed(at: Programs) -> None:
    words = ["--durable", "yes", "--ttl", "90000", "--priority", "7", "-i", "id1"]
    words += ["--correlation-id", "c1", "--reply-to", "'r'/s; {create: always}"]
    words += ["-P", "n=7", "-P", "big=1.5", "-P", "yes=true", "-P", "text=red", "-P", "none="]
    words += ["-P", "void", "-P", "x-amqp-group-id=g", "-P", "x-amqp-group-sequence=4"]
    words += ["-P", "x-amqp-creation-time=1000", "-P", "x-amqp-content-encoding=gzip"]
    words += ["--sequence", "no", "--timestamp", "no", "--content-size", "3"]
    assert at.send("fields/colour;{create:always}", *words) == Ended(0, "", "")
    found = at.receive(
        "fields", "--print-headers", "yes", "--print-object-type", "yes", "--ignore-reply-to"
    )
    assert found.out == (
        "Subject: colour\nReplyTo: r/s\nMessageId: id1\nCorrelationId: c1\nTTL: 90000\n"
        "Priority: 7\nDurable: true\n"
        "Properties: {big:1.5, n:7, none:<void>, text:red, void:<void>, "
        "x-amqp-content-encoding:gzip, x-amqp-creation-time:1000, x-amqp-group-id:g, "
        "x-amqp-group-sequence:4, yes:True}\n\n[Object: string]\nXXX\n"
    ), found


def test_maps_lines_and_bytes_are_content(at: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    assert at.send("c;{create:always}", "-M", "b=2", "-M", "a=1", "-M", "n").code == 0
    assert at.send("c", "--content-string", "\udcff\udcfe").code == 0
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one\n\nthree")))
    assert at.send("c", "--content-stdin", "-m", "1").code == 0
    code = subprocess.run(
        [sys.executable, "-m", "qpidha.tools.qpid_receive", "-b", at.address, "-a", "c"],
        capture_output=True,
        cwd=ROOT,
        timeout=STATE,
    )
    assert (code.returncode, code.stderr) == (0, b"")
    assert code.stdout == b"{a:1, b:2, n:<void>}\n\xff\xfe\none\n\nthree\n"


def test_a_message_ends_the_input(at: Programs) -> None:
    assert at.send("e;{create:always}", "-m", "2", "--send-eos", "2").code == 0
    assert at.receive("e", "--forever", "--print-headers", "yes").code == 0
    # The second one is for another receiver.
    assert at.receive("e", "-f", "--print-content", "no") == Ended(0, "", "")
    assert at.receive("e") == Ended(0, "", "")


def test_reports_have_the_columns_that_scripts_cut(at: Programs) -> None:
    sent = at.send("r;{create:always}", "-m", "4", "--report-every", "2", "--report-total")
    assert re.fullmatch(r"tp\(m/s\)\n(\d+\n){3}", sent.out), sent
    sent = at.send("r", "-m", "2", "--report-total", "--report-header", "no")
    assert re.fullmatch(r"\d+\n", sent.out), sent
    words = ["--print-content", "no", "--report-total", "--report-every", "3"]
    found = at.receive("r", *words)
    line = r"\d+\t\d+\.\d\d\t\d+\.\d\d\t\d+\.\d\d\n"
    assert re.fullmatch(rf"tp\(m/s\)\tl-min\tl-max\tl-avg\n({line}){{3}}", found.out), found
    assert at.send("r", "--timestamp", "no").code == 0
    found = at.receive("r", *words)
    assert re.fullmatch(r"tp\(m/s\)\tl-min\tl-max\tl-avg\n\d+\n", found.out), found
    assert at.receive("r", *words).out == "tp(m/s)\tl-min\tl-max\tl-avg\n0\n"


def test_transactions_are_committed_and_rolled_back(at: Programs) -> None:
    words = ["-m", "10", "--tx", "2", "--rollback-frequency", "2"]
    assert at.send("tx;{create:always}", *words).code == 0
    browse = at.receive("tx;{mode:browse}", "--print-headers", "yes", "--print-content", "no")
    assert numbers(browse.out) == [1, 2, 5, 6, 9, 10]
    # What is rolled back comes again.
    words = ["--tx", "2", "--rollback-frequency", "2", "-m", "4", "--print-headers", "yes"]
    found = at.receive("tx", *words)
    assert (found.code, numbers(found.out)) == (0, [1, 2, 5, 6])
    found = at.receive("tx", "--print-headers", "yes", "--tx", "10")
    assert numbers(found.out) == [5, 6, 9, 10]
    assert at.receive("tx") == Ended(0, "", "")


def test_acknowledging_nothing_leaves_messages_there(at: Programs) -> None:
    assert at.send("k;{create:always}", "-m", "3").code == 0
    found = at.receive("k", "--ack-frequency", "0", "--print-headers", "yes")
    assert numbers(found.out) == [1, 2, 3]
    found = at.receive("k", "--print-headers", "yes", "-m", "1", "--capacity", "0")
    assert numbers(found.out) == [1]
    assert numbers(at.receive("k", "--print-headers", "yes", "--capacity", "0").out) == [2, 3]


def test_gaps_and_repetitions_are_found(at: Programs) -> None:
    assert at.send("s;{create:always}", "-m", "5").code == 0
    assert at.receive("s", "-m", "2", "--verify-sequence", "--print-content", "no").code == 0
    found = at.receive("s", "--verify-sequence", "--print-content", "no")
    assert found == Ended(1, "", "qpid-receive: Gap in sequence numbers 0-3\n")
    assert at.send("s", "-m", "4").code == 0
    # 3, 4 and 5 came back from the run before, which failed.
    found = at.receive("s", "--ignore-duplicates", "--print-headers", "yes")
    assert numbers(found.out) == [3, 4, 5]
    for _ in range(2):
        assert at.send("s", "-m", "1").code == 0
    found = at.receive("s", "--ignore-duplicates", "--check-redelivered", "--print-content", "no")
    assert found.code == 1
    assert found.err == "qpid-receive: duplicate 1 is not marked as delivered before\n"


def test_groups_are_made(at: Programs) -> None:
    words = ["-m", "7", "--group-key", "g", "--group-size", "2", "--group-interleave", "2"]
    assert at.send("g;{create:always}", *words, "--group-prefix", "G").code == 0
    found = at.receive("g", "--print-headers", "yes", "--print-content", "no")
    assert re.findall(r"g:(\w+)", found.out) == ["G0", "G1", "G0", "G1", "G2", "G3", "G2"]
    words = ["-m", "20", "--group-key", "g", "--group-size", "3", "--group-randomize-size"]
    assert at.send("g", *words).code == 0
    found = at.receive("g", "--print-headers", "yes", "--print-content", "no")
    groups = re.findall(r"g:GROUP-(\d+)", found.out)
    assert groups == sorted(groups, key=int)
    assert all(1 <= groups.count(each) <= 3 for each in groups)


def test_rates_are_kept(at: Programs) -> None:
    began = time.monotonic()
    assert at.send("rate;{create:always}", "-m", "6", "--send-rate", "20").code == 0
    assert time.monotonic() - began >= 0.25
    began = time.monotonic()
    assert at.receive("rate", "--receive-rate", "20", "--print-content", "no").code == 0
    assert time.monotonic() - began >= 0.25


def test_answers_go_where_they_are_asked_for(at: Programs) -> None:
    at.make("answers")
    words = ["--content-string", "ask", "--reply-to", "answers", "-P", "n=1", "--durable", "yes"]
    assert at.send("asked/first;{create:always}", *words).code == 0
    assert at.receive("asked;{mode:browse}", "--ignore-reply-to") == Ended(0, "ask\n", "")
    assert at.receive("answers") == Ended(0, "", "")
    assert at.receive("asked", "--reply-to", "back") == Ended(0, "ask\n", "")
    found = at.receive("answers", "--print-headers", "yes", "--ignore-reply-to")
    assert re.fullmatch(
        r"ReplyTo: back\nDurable: true\nProperties: \{n:1, sn:1, ts:\d+\}\n\nask\n", found.out
    ), found


def test_who_waits_for_a_receiver_hears_that_it_is_ready(at: Programs) -> None:
    at.make("ready")
    at.make("events", "topic")
    found: list[Ended] = []
    told = at.receive("ready", "--timeout", "0", "--print-headers", "yes")
    assert told == Ended(0, "", "")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "qpidha.tools.qpid_receive", "-b", at.address),
            *("-a", "events/a.#", "-m", "1", "--forever", "--ready-address", "ready"),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert at.receive("ready", "-m", "1", "--timeout", str(STATE)).code == 0
        assert at.send("events/b.c", "--content-string", "other").code == 1  # Nobody wants it.
        assert at.send("events/a.b", "--content-string", "wanted").code == 0
        assert process.communicate(timeout=STATE) == ("wanted\n", None)
        assert process.returncode == 0
    finally:
        process.kill()
    assert not found


def test_nodes_are_made_checked_bound_and_deleted(at: Programs) -> None:
    at.make("ex", "topic", type="direct")
    declare = "x-declare:{auto-delete:false,alternate-exchange:amq.fanout,"
    declare += "arguments:{'qpid.max_count':5}}"
    bound = "x-bindings:[{exchange:ex,key:k}]"
    node = f"node:{{type:queue,durable:false,{declare},{bound}}}"
    assert at.send(f"made;{{create:always,assert:always,{node}}}", "--content-stdin").code == 0
    assert at.send("ex/k", "--content-string", "by key") == Ended(0, "", "")
    assert at.receive(f"made;{{assert:receiver,{node}}}") == Ended(0, "by key\n", "")
    other = node.replace("5", "6")
    for policy in ("assert:always", "create:always,assert:always"):
        found = at.receive(f"made;{{{policy},{other}}}")
        assert found.code == 1
        assert "'made' exists, but qpid.max_count is not 6" in found.err
    found = at.receive(f"made;{{assert:always,{node.replace('key:k', 'key:j')}}}")
    assert found.code == 1
    assert "'made' is not bound to 'ex' with the key 'j'" in found.err
    found = at.receive("made;{node:{type:topic}}")
    assert found.code == 1
    assert "'made' is a queue, but the capability topic asks for an exchange" in found.err
    found = at.receive("made;{node:{x-declare:{arguments:{'qpid.max_count':6}}}}")
    assert found.code == 0
    assert "warning what made;{node:{" in found.err
    assert "is ignored: neither create nor assert is asked for" in found.err
    assert at.receive("made;{delete:receiver}") == Ended(0, "", "")
    found = at.receive("made")
    assert found.code == 1
    assert found.err == (
        "qpid-receive: the broker refused the link to 'made': there is no queue or exchange "
        "'made'. Try: create it, or ask for it with {create: always}\n"
    )
    assert at.send("ex;{delete:sender,node:{type:topic}}", "--content-stdin").code == 0
    assert at.send("ex").code == 1


def test_subjects_and_selectors_choose(at: Programs) -> None:
    for colour in ("red", "blue", "green"):
        words = ["--content-string", colour, "-P", f"colour={colour}"]
        assert at.send(f"sub/{colour};{{create:always}}", *words).code == 0
    assert at.receive("sub/blue") == Ended(0, "blue\n", "")
    selector = "sub;{link:{selector:\"colour = 'green'\"}}"
    assert at.receive(selector) == Ended(0, "green\n", "")
    found = at.receive("sub/b.*")
    assert found.code == 1
    assert "is not offered for a queue" in found.err
    assert at.receive("sub") == Ended(0, "red\n", "")


def test_a_subscription_outlives_its_receiver(at: Programs) -> None:
    at.make("news", "topic")
    words = ["--connection-options", "{container-id: reader}"]
    for name, options in (
        ("timed", "durable:true,timeout:100,x-declare:{arguments:{'qpid.max_count':7}}"),
        ("kept", "x-declare:{auto-delete:false}"),
    ):
        address = f"news/{name};{{node:{{type:topic}},link:{{name:{name},{options}}}}}"
        assert at.receive(address, *words) == Ended(0, "", "")
        assert at.send(f"news/{name}", "--content-string", name) == Ended(0, "", "")
        assert at.receive(address, *words) == Ended(0, f"{name}\n", "")
    assert at.receive("news/short;{link:{name:short}}", *words) == Ended(0, "", "")
    assert at.send("news/short").code == 1


def test_a_queue_that_the_broker_names_ends_with_its_receiver(at: Programs) -> None:
    assert at.receive("#mine;{node:{x-declare:{arguments:{'qpid.max_count':1}}}}").code == 0


def test_unreliable_senders_wait_for_nothing(at: Programs) -> None:
    assert at.send("u;{create:always,link:{reliability:unreliable}}", "-m", "5").code == 0
    found = at.receive("u;{link:{reliability:at-most-once}}", "--timeout", f"{STATE}", "-m", "5")
    assert (found.code, len(found.out.splitlines())) == (0, 5)


def test_what_nobody_takes_is_told_or_sent_again(at: Programs) -> None:
    found = at.send("amq.fanout")
    assert found == Ended(
        1,
        "",
        "qpid-send: a message to 'amq.fanout' was released: the broker has no queue for it, or "
        "cannot take it now. Try: send to a queue, or bind one to the exchange with this key\n",
    )
    words = ["--connection-options", "{reconnect: true, max-delivery-attempts: 3}"]
    found = at.send("amq.fanout", *words)
    assert found.code == 1
    assert "; it is sent again, as others will be" in found.err
    words = ["--connection-options", "{reconnect: true, redelivery-timeout: 0.3}"]
    assert at.send("amq.fanout", *words).code == 1
    ended: list[Ended] = []
    words = ["--connection-options", "{reconnect: true}", "--content-string", "late"]
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "qpidha.tools.qpid_send", "-b", at.address),
            *("-a", "amq.direct/late", *words),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert "it is sent again" in process.stderr.readline()
        bound = "node:{x-bindings:[{exchange:amq.direct,key:late}]}"
        found = at.receive(f"late;{{create:always,{bound}}}", "-m", "1", "--timeout", str(STATE))
        assert found == Ended(0, "late\n", "")
        assert process.wait(STATE) == 0
    finally:
        process.kill()
        process.communicate()
    assert not ended


def test_a_full_queue_ends_the_sender_unless_it_is_told_to_go_on(at: Programs) -> None:
    at.make("full", arguments="{x-max-length:2,x-overflow:reject-publish}")
    found = at.send("full", "-m", "5")
    assert found.code == 1
    assert "a message to 'full' was rejected" in found.err
    words = ["--connection-options", "{raise-rejected: false}"]
    found = at.send("full", "-m", "5", *words)
    assert found.code == 0
    assert found.err.count("warning a message to 'full' was rejected") == 5, found.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "many"], "the argument ('many') for option -m is a whole number"),
        (["-m", "-1"], "the argument ('-1') for option -m is a whole number"),
        (["--durable", "maybe"], "the argument ('maybe') for option --durable is yes or no"),
        (["--priority", "256"], "the argument for option --priority is at most 255"),
        (["--no-such"], "no such option: --no-such"),
        (["q2"], "too many positional options: 'q2'"),
        (["--group-key", "g", "--group-size", "0"], "a group of no messages never ends"),
        (["--log-to-syslog", "yes"], "--log-to-syslog is not offered. Try: --log-to-file"),
        (["--log-thread", "yes"], "--log-thread is not offered: lines have not the thread"),
    ],
)
def test_a_wrong_command_line_ends_with_1_and_the_usage(
    at: Programs, words: list[str], said: str
) -> None:
    found = at.send("q", *words)
    assert (found.code, found.out) == (1, "")
    assert found.err.startswith("Usage: qpid-send [OPTIONS] -a ADDRESS\n")
    assert said in found.err.splitlines()[-1]


def test_the_address_and_rules_of_the_log_are_needed_as_they_are(at: Programs) -> None:
    assert at.send("").err.endswith("no address is given. Try: -a NAME\n")
    found = at.send("q", "--log-enable", "loud")
    assert (found.code, found.err[:37]) == (1, "qpid-send: 'loud' is no rule of a log")
    assert at.send("q", "-P", "x-amqp-unknown=1").code == 1
    assert at.send("q;{creat:always}").code == 1
    assert at.receive("q", "--timeout=-1").code == 1


def test_the_log_says_what_is_connected(at: Programs, tmp_path: Path) -> None:
    file = tmp_path / "log"
    words = ["--log-enable", "info+", "--log-to-stderr", "no", "--log-to-file", str(file)]
    assert at.send("log;{create:always}", *words, "--log-prefix", "x").err == ""
    line = r"x \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[Messaging\] info connected to 127\.0\.0\.1:\d+\n"
    assert re.fullmatch(line, file.read_text())
    words = ["--trace", "--log-time", "no", "--log-level", "no", "--log-category", "no"]
    assert at.receive("log", *words).err == f"connected to {at.address}\n"
    words = ["--trace", "--log-disable", "info-", "--log-to-stdout", "yes"]
    assert at.receive("log", *words) == Ended(0, "", "")


def test_options_stand_in_the_environment_too(
    at: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QPID_MESSAGES", "2")
    monkeypatch.setenv("QPID_REPORT_TOTAL", "yes")
    found = at.send("env;{create:always}", "--report-header", "no")
    assert re.fullmatch(r"\d+\n", found.out)
    monkeypatch.delenv("QPID_REPORT_TOTAL")
    assert len(at.receive("env", "-m", "1").out.splitlines()) == 1
    assert len(at.receive("env").out.splitlines()) == 1


@pytest.mark.parametrize("reconnect", ["true", "false"])
def test_what_is_not_taken_in_a_transaction_ends_the_sender(at: Programs, reconnect: str) -> None:
    words = ["--tx", "2", "-m", "4", "--connection-options", f"{{reconnect: {reconnect}}}"]
    found = at.send("amq.fanout", *words)
    assert (found.code, found.out) == (1, "")
    assert "the broker rolled the transaction back" in found.err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("x-amqp-creation-time=soon", "x-amqp-creation-time is a whole number, not 'soon'"),
        ("x-amqp-group-sequence=-1", "x-amqp-group-sequence is a whole number, not '-1'"),
        ("x-amqp-group-sequence=4294967296", "is a whole number, not '4294967296'"),
        ("x-amqp-first-acquirer=1", "x-amqp-first-acquirer is true or false, not '1'"),
        ("x-amqp-subject=a", "the property x-amqp-subject stands for no field of a message"),
    ],
)
def test_a_field_takes_what_it_can_be(at: Programs, given: str, said: str) -> None:
    found = at.send("q", "-P", given)
    assert (found.code, found.out) == (1, "")
    assert said in found.err


@pytest.mark.parametrize(
    "words", [["--ack-frequency", "0"], ["--tx", "50"], ["--tx", "50", "--forever"]]
)
def test_a_broker_that_waits_for_outcomes_is_not_waited_for(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    monkeypatch.setattr(messaging_links, "ASK", 0.2)
    limit = ("--auth", "no", "--session-max-unacked", "10")
    with serving(str(tmp_path / "a.sock"), *limit) as address:
        at = Programs(address, capsys)
        assert at.send("q;{create:always}", "-m", "30").code == 0
        found = at.receive("q", *words, "--print-content", "no")
        assert (found.code, found.out) == (1, "")
        assert "the broker sends no more while 10 messages are not acknowledged" in found.err
        found = at.receive("q", "--ack-frequency", "10", "--print-headers", "yes")
        assert numbers(found.out) == list(range(1, 31))
        assert at.send("q", "-m", "10").code == 0
        found = at.receive("q", *words[:2], "--print-headers", "yes")  # As many as there may be.
        assert (found.code, numbers(found.out)) == (0, list(range(1, 11)))


def test_brokers_are_reached_by_tls(
    a_cluster: Callable[..., Cluster], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("broker")
    users = users_file(tmp_path / "users", {"boss": "boss", "ann": "p w"})
    (broker,) = a_cluster(
        1,
        encrypted=True,
        auth="yes",
        users_file=users,
        ha_username="boss",
        ha_password="boss",
        ssl_cert=certificate,
        ssl_key=key,
        ssl_trusted=authority.certificate,
    )
    at = Programs(broker.encrypted_address.removeprefix("ssl:"), capsys)
    login = "transport: ssl, username: ann"
    trusted = f"ssl-trustfile: '{authority.certificate}'"
    words = ["--auto-user-id", "yes", "--connection-options"]
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        given = f"{{{login}, password: 'p w', {trusted}, sasl-mechanisms: {mechanism}}}"
        assert at.send("q;{create:always}", *words, given) == Ended(0, "", "")
    found = at.receive("q", "--connection-options", given, "--print-headers", "yes")
    assert found.out.count("UserId: ann\n") == 2
    given = f"{{transport: ssl, ssl-certfile: '{certificate}', ssl-keyfile: '{key}', {trusted}}}"
    assert at.send("q", *words, given) == Ended(0, "", "")
    for given, said in (
        (f"{{{login}, password: 'p w'}}", "{ssl-trustfile: 'FILE'}, with the certificate"),
        (f"{{{login}, password: x, {trusted}}}", "refused user 'ann'"),
        ("{username: ann, password: 'p w'}", "Try: amqps://127.0.0.1"),
    ):
        found = at.send("q", "--connection-options", given)
        assert (found.code, found.out) == (1, "")
        assert said in found.err


def test_output_that_nobody_reads_ends_the_program(at: Programs) -> None:
    assert at.send("pipe;{create:always}", "-m", "3000", "--content-size", "100").code == 0
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "qpidha.tools.qpid_receive", "-b", at.address, "-a", "pipe"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
    )
    os.close(write)
    os.read(read, 10)
    os.close(read)
    assert process.communicate(timeout=STATE)[1] == b""
    assert process.returncode == 1


def test_a_receiver_that_waits_is_ended_by_the_keyboard(at: Programs) -> None:
    at.make("wait")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "qpidha.tools.qpid_receive", "-b", at.address),
            *("-a", "wait", "-f", "--log-enable", "info+"),
        ],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert "connected" in process.stderr.readline()
    ender = threading.Timer(0.1, lambda: process.send_signal(2))
    ender.start()
    assert process.communicate(timeout=STATE)[1] == ""
    assert process.returncode == 130


@pytest.mark.parametrize("where", ["/dev/full", ""])
def test_output_that_cannot_be_written_is_one_error(at: Programs, where: str) -> None:
    at.make("q")
    at.send("q", "--content-string", "x")
    for module, words in (("receive", ["--print-headers", "yes"]), ("send", ["--report-total"])):
        call = [sys.executable, "-m", f"qpidha.tools.qpid_{module}", "-b", at.address]
        line = f"{shlex.join([*call, '-a', 'q', *words])} >{where or '&-'}"
        done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert done.returncode == 1
        assert done.stderr.startswith(f"qpid-{module}: [Errno "), done.stderr
        assert done.stderr.count("\n") == 1
