"""The command line as a stranger meets it: old scripts, closed streams, small and simple terminals,
brokers that are not there, and words that are nearly right.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qpidha.cli.app import COMMANDS, GROUPS, LISTS
from qpidha.client.blocking import Client
from tests.cli.conftest import STATUS, FakeBroker, Said
from tests.cli.terminals import terminal
from tests.cli.test_words import commands
from tests.patience import STATE
from tests.programs import fast_qpid_ha
from tests.system.cluster import Cluster

Run = Callable[..., Said]
BIN = str(Path(sys.executable).parent)
ODD = "a queue 'with' \"quotes\", blanks, \u00e4\u00f6\u00fc and more letters than 60 columns have"
READS = (
    "status",
    "status --all",
    "status --explain",
    "query",
    "query --all",
    "list",
    "top -n 1",
    "events",
    "history",
    "wait --for state=active --timeout 5",
    "check all",
    "lag",
    "methods",
    "methods ping",
    "queue list",
    f"queue show {shlex.quote(ODD)}",
    f"queue peek {shlex.quote(ODD)}",
    "exchange list",
    "exchange list --bindings",
    "exchange show amq.topic",
    "connection list",
    "session list",
    "subscription list",
    "policy list",
    f"policy explain {shlex.quote(ODD)}",
    "operator-policy list",
    "link list",
    "route list",
    "replica list",
    "acl show",
    "definitions export",
)
"""What reads from a broker, and has JSON."""
ELSEWHERE = {
    "ping": "prints nothing",
    "receive": "takes messages; -o json is an object a line",
    "recover": "compares all brokers after a total failure",
    "report": "writes a file",
    "journal": "reads the files of a stopped broker",
    "local": "a cluster of this machine",
    "pacemaker": "a cluster under Pacemaker",
    "rgmanager": "a cluster under rgmanager",
    "vip": "addresses of this machine",
    "demo": "starts its own cluster",
    "verify": "starts its own cluster",
    "bench": "measures",
    "pipeline": "reads histories",
    "user": "reads a file",
    "context": "reads a file",
    "completion": "prints a script",
    "version": "asks nobody",
    "help": "asks nobody",
}
"""Commands that are no such reads, and why."""
CHANGES = (
    "switchover",
    "failover",
    "demote",
    "reload",
    "set",
    "promote",
    "send",
    "bind",
    "unbind",
    "queue add",
    "queue del",
    "queue move",
    "queue requeue",
    "queue purge",
    "exchange add",
    "exchange del",
    "connection close",
    "policy set",
    "policy clear",
    "policy patch",
    "policy drop-keys",
    "policy override",
    "operator-policy set",
    "operator-policy clear",
    "link add",
    "link del",
    "route add",
    "route del",
    "replicate",
    "replica stop",
    "acl check",
    "acl reload",
    "definitions import",
    "migrate",
)


def test_every_command_is_known_here() -> None:
    known = [path for path, _ in commands()]
    read = {path for path in known for line in READS if f"{line} ".startswith(f"{path} ")}
    assert read | {*CHANGES} == {path for path in known if path.split()[0] not in ELSEWHERE}
    assert ELSEWHERE.keys() <= COMMANDS.keys()
    assert {*LISTS} - read == {"user list", "context list"}


@pytest.fixture(scope="module")
def real() -> Iterator[str]:
    """The admin socket of a broker that is a cluster of one and has a queue with an odd name."""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as place:
        cluster = Cluster(Path(place), 1, options={})
        try:
            cluster.start()
            cluster[0].wait_state("active")
            cluster[0].declare_queue(ODD)
            with Client([cluster[0].address], timeout=STATE) as client:
                client.sender(ODD).send("x")
            yield str(cluster[0].admin_socket)
        finally:
            cluster.close()


def script(lines: list[str], socket: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the shell with commands of a broker, `qpid-ha`."""
    text = "\n".join([f'q() {{ qpid-ha -b {shlex.quote(socket)} "$@"; }}', *lines])
    return subprocess.run(
        ["bash", "-c", text],
        capture_output=True,
        text=True,
        timeout=STATE,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", **environment},
    )


# -- 2: historic calls ----------------------------------------------------------------------------

QUERY = f"""Status:              active
Broker ID:           {STATUS["system_id"]}
Brokers URL:         amqp:127.0.0.1:5672
Public URL:          amqp:10.0.0.9:5672
Replicate:           all
"""
HISTORIC: list[tuple[str, str, int]] = [
    ("ping", "", 0),
    ("status", "active\n", 0),
    ("status --expect active", "", 0),
    ("status --expect=active", "", 0),
    ("status --expect ready", "", 1),
    ("status --expect standalone", "", 1),
    ("status --is-primary", "", 0),
    ("status --all", "127.0.0.1:5672 active\n", 0),
    ("query", QUERY, 0),
    ("query --all", f"Address:             127.0.0.1:5672\n{QUERY}\n", 0),
    ("promote", "", 1),
]
"""Call of the original tool, what it prints and its exit code."""


@pytest.mark.parametrize(("call", "out", "code"), HISTORIC)
def test_friendliness_2_historic_calls_print_what_they_did(
    broker: FakeBroker, qpid_ha: Run, call: str, out: str, code: int
) -> None:
    target = ("-b", broker.socket)
    options = ("--timeout", "7", "--sasl-service-name", "x")
    for words in (
        (*target, *options, *call.split()),
        (*call.split(), *target, *options),
        (*options, *call.split(), *target),
        (f"--broker={broker.socket}", *call.split()),
    ):
        said = qpid_ha(*words)
        assert (said.code, said.out) == (code, out), words


def test_friendliness_2_recovering_is_primary_and_a_backup_is_not(
    broker: FakeBroker, qpid_ha: Run
) -> None:
    codes = {}
    for state in ("joining", "catchup", "ready", "recovering", "active", "standalone"):
        broker.answers["status"]["state"] = state
        assert qpid_ha("status", "-b", broker.socket).out == f"{state}\n"
        codes[state] = qpid_ha("-b", broker.socket, "status", "--is-primary").code
    assert [state for state, code in codes.items() if code == 0] == ["recovering", "active"]


def test_friendliness_2_help_is_where_it_was(qpid_ha: Run) -> None:
    for word in ("help", "--help", "help-all", "--help-all"):
        said = qpid_ha(word)
        assert said.code == 0 and "status" in said.out and said.err == ""


# -- 3: data, and nothing else --------------------------------------------------------------------


def test_friendliness_3_every_reading_command_gives_json_also_without_standard_error(
    real: str,
) -> None:
    done = script([f'q {line} -o json 2>&-; echo "=== $?"' for line in READS], real)
    parts = re.split(r"^=== (\d+)\n", done.stdout, flags=re.MULTILINE)
    assert len(parts) == 2 * len(READS) + 1, done.stdout
    for line, document, code in zip(READS, parts[::2], parts[1::2], strict=False):
        assert isinstance(json.loads(document), dict), line
        # A cluster of one is not synced, as `check` says.
        assert code == "0" or line == "check all", (line, code)


def test_friendliness_3_where_nobody_answers_nothing_is_printed(qpid_ha: Run) -> None:
    for line in READS:
        for form in ((), ("-o", "json")):
            said = qpid_ha(*shlex.split(line), *form, "-b", "127.0.0.1:1", "--timeout", "0.3")
            assert (said.code, said.out) == (69, ""), (line, said)


# -- 4: simple and small terminals ----------------------------------------------------------------


@pytest.mark.parametrize(
    "environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"LANG": "C", "LC_ALL": "C"}]
)
def test_friendliness_4_no_escape_code_and_nothing_is_cut(
    real: str, environment: dict[str, str]
) -> None:
    # What takes the whole screen moves the cursor, where a terminal can do that.
    reads = [line for line in READS if "TERM" in environment or not line.startswith("top")]
    lines = " ; ".join(f"qpid-ha -b {real} {line}; echo code $?" for line in reads)
    # What a locale means is decided when Python starts.
    place = BIN if "LANG" in environment else fast_qpid_ha().parent
    path = f"{place}:{os.environ['PATH']}"
    with terminal("bash", "-c", lines, columns=60, PATH=path, **environment) as shown:
        assert shown.end() == 0
    text = shown.shown
    assert "\x1b" not in text and "Traceback" not in text and "internal error" not in text
    assert {"code 0", "code 1"} >= {line.strip() for line in text.splitlines() if "code " in line}
    assert text.count(ODD) >= 2  # In the list, and shown.


def test_friendliness_4_help_has_no_line_that_is_too_long(
    qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for line in ("queue add", "events", "top", "connection close", "context set", "policy set"):
        said = qpid_ha(*line.split(), "--help")
        assert said.code == 0 and "\x1b" not in said.out
        assert max(map(len, said.out.splitlines())) <= 80


def test_friendliness_4_help_of_every_group_has_an_example(qpid_ha: Run) -> None:
    for group in GROUPS:
        said = qpid_ha(group, "--help")
        assert said.code == 0 and f"Example: qpid-ha {group} " in said.out, group
        assert said.out.count("Example:") == 1


# -- 5: interrupts and pipes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("wait --for state=ready --timeout 0", "waiting for state=ready"),
        ("list -w1", "q to leave"),
        ("top", "q to leave"),
        ("events --follow", "is active, epoch 1"),
        ("status --watch", "active"),
    ],
)
def test_friendliness_5_an_interrupt_ends_it_with_130_and_the_terminal_is_as_it_was(
    real: str, line: str, seen: str
) -> None:

    words = [sys.executable, "-m", "qpidha.cli.main", *line.split(), "-b", real]
    with terminal(*words) as shown:
        shown.see(seen)
        shown.press(b"\x03")
        assert shown.end() == 130 and "Traceback" not in shown.shown
        assert termios.tcgetattr(shown.side) == shown.before
        assert shown.shown.count("\x1b[?1049h") == shown.shown.count("\x1b[?1049l")


def test_friendliness_5_a_reader_that_has_enough_hears_no_complaint(real: str) -> None:
    lines = [f"q -q {line} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}" for line in READS]
    lines += ["q -q events -f | head -1 >/dev/null; echo ${PIPESTATUS[0]}"]
    done = script(lines, real)
    assert done.stderr == "" and {*done.stdout.split()} <= {"0", "1"}


# -- 6: words that are nearly right ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("stauts", "status"),
        ("queue lsit", "list"),
        ("connection clsoe 1", "close"),
        ("queue list --no-haeders", "--no-headers"),
        ("--contxt x list", "--context"),
        ("queue list --sort mesages", "messages"),
        ("status --expect redy", "ready"),
        ("wait --for state=redy", "ready"),
        ("events --type rol", "role"),
        ("top --by mesages", "messages"),
        ("queue list -o jsno", "json"),
        ("exchange show amq.topc", "amq.topic"),
        ("methods list_queus", "list_queues"),
    ],
)
def test_friendliness_6_the_nearest_word_is_named(
    real: str, qpid_ha: Run, line: str, near: str
) -> None:
    said = qpid_ha(*line.split(), "-b", real)
    assert said.code in (1, 2) and said.out == ""
    assert near in said.err.partition("Try: ")[2], said.err


@pytest.mark.parametrize(
    "line",
    ["queue show X", "queue purge X", "queue del X", "queue peek X", "lag X", "policy explain X"],
)
def test_friendliness_6_the_nearest_queue_is_named(real: str, qpid_ha: Run, line: str) -> None:
    typed = ODD.replace("blanks", "blnaks")
    said = qpid_ha(*[word.replace("X", typed) for word in line.split()], "-b", real)
    assert said.code == 1 and f"did you mean {ODD}?" in said.err
    said = qpid_ha(*line.replace("X", "zzz").split(), "-b", real)
    assert said.code == 1 and "did you mean" not in said.err


def test_friendliness_6_the_nearest_key_of_a_configuration_is_named(tmp_path: Path) -> None:
    config = tmp_path / "qpidd.conf"
    config.write_text("ha-clustr=yes\n")
    words = [sys.executable, "-m", "qpidha.runtime.daemon", "--check", "--config", str(config)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=STATE)
    assert done.returncode == 78 and "did you mean ha-cluster?" in done.stderr


LOADED_BY_HOT_CALLS = 120
"""Modules beside those of the bare interpreter; other commands load twice as many."""
HEAVY = ("typer", "rich", "pydantic", "asyncio", "cffi", "_cffi_backend", "cproton", "ssl")


@pytest.mark.parametrize("words", [("ping",), ("status", "--is-primary"), ("status",)])
def test_friendliness_7_hot_calls_load_little(broker: FakeBroker, words: tuple[str, ...]) -> None:
    """What a call loads is what it costs: the budget is 150 ms, of which a broker takes one."""
    broker.answers |= {"ping": {}, "status": STATUS}

    def loaded(*command: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *command], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))

    found = loaded("-m", "qpidha.cli.main", *words, "-b", broker.socket) - loaded("-c", "pass")
    assert "qpidha.cli.status" in found and found.isdisjoint(HEAVY)
    assert len(found) < LOADED_BY_HOT_CALLS
    others = loaded("-m", "qpidha.cli.main", "help")
    assert "typer" in others and len(others) > 1.5 * LOADED_BY_HOT_CALLS  # it would be seen
