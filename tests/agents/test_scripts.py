"""The two scripts on one node: what each action does in each state, with its exit code; in every
order; and at the same time.

The oracle is a table of a few lines: the broker runs as long as it is primary or the service qpidd
is started.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.agents.node import AGENTS, PRIMARY, Node
from tests.system.cluster import wait_for

START, STOP, PROMOTE, DEMOTE = (
    ("qpidd", "start"),
    ("qpidd", "stop"),
    ("qpidd-primary", "start"),
    ("qpidd-primary", "stop"),
)
RENEW, RENEW_PRIMARY = ("qpidd", "condrestart"), ("qpidd-primary", "try-restart")
"""Restarts of what is started, and of nothing else."""
CALLS = (START, STOP, PROMOTE, DEMOTE, RENEW, RENEW_PRIMARY)
CROSSED = ((START, DEMOTE), (STOP, PROMOTE), (STOP, RENEW_PRIMARY), (DEMOTE, RENEW_PRIMARY))
"""Of the pairs those that want the opposite of each other."""
SOAK = "QPIDHA_SOAK" in os.environ
"""Whether all is tried, which takes minutes; `make soak` does."""


class Situation(NamedTuple):
    """What is true of a node: `broker` is dead, hung, backup or primary; `service` is whether qpidd
    is started.
    """

    broker: str
    service: bool


def after(was: Situation, call: tuple[str, str]) -> tuple[int, Situation]:
    """The oracle: exit code and what becomes of a node."""
    broker, service = was
    if call in (START, PROMOTE) and broker == "hung":
        return 1, was
    if call == START:
        return 0, Situation("backup" if broker == "dead" else broker, True)
    if call == PROMOTE:
        return 0, Situation("primary", service)
    if call == RENEW_PRIMARY:
        return 0, was  # it steps down and is promoted again; whoever is not primary is left alone
    if call == RENEW:
        return 0, Situation(
            "primary" if broker == "primary" else "backup", True
        ) if service else was
    if call == STOP:
        return 0, Situation("primary" if broker == "primary" else "dead", False)
    return 0, Situation(
        "backup" if broker in ("primary", "backup") and service else "dead", service
    )


def seen(node: Node) -> Situation:
    """What is true of a node, looked at from outside."""
    service = node.path("run").joinpath("qpidd.service").exists()
    if not node.pid:
        return Situation("dead", service)
    state = node.state
    return Situation("hung" if not state else "primary" if state in PRIMARY else "backup", service)


def bring(node: Node, situation: Situation, *, was_primary: bool = False) -> None:
    """Make a node so, from whatever it is."""
    now = seen(node)
    if now == situation and now.broker in ("primary", "backup"):
        return
    if now != Situation("dead", False):
        node("qpidd", "stop")
        node("qpidd-primary", "stop")
        assert seen(node) == Situation("dead", False)
    if situation.service:
        node("qpidd", "start")
    if situation.broker == "primary" or was_primary or not situation.service:
        node("qpidd-primary", "start")
    if situation.broker == "hung":
        node.hang()
    elif situation.broker == "dead":
        node.kill()
    assert seen(node) == situation


def walk(length: int) -> list[tuple[str, str]]:
    """A row of calls in which every row of `length` calls occurs: a de Bruijn sequence, written out
    at its end.
    """
    found: list[int] = []
    word = [0] * (len(CALLS) * length)

    def extend(t: int, p: int) -> None:
        if t > length:
            if length % p == 0:
                found.extend(word[1 : p + 1])
            return
        word[t] = word[t - p]
        extend(t + 1, p)
        for letter in range(word[t - p] + 1, len(CALLS)):
            word[t] = letter
            extend(t + 1, t)

    extend(1, 1)
    return [CALLS[letter] for letter in [*found, *found[: length - 1]]]


@pytest.mark.parametrize("length", [2, 3])
def test_the_walk_has_every_row_of_calls(length: int) -> None:
    calls = walk(length)
    assert {tuple(calls[i : i + length]) for i in range(len(calls) - length + 1)} == set(
        itertools.product(CALLS, repeat=length)
    )


def test_in_every_order_of_calls_the_node_is_as_it_should_be(a_node: Callable[..., Node]) -> None:
    """Of two calls, and some rows more; of three in a soak."""
    node, situation = a_node(), Situation("dead", False)
    for i, call in enumerate(
        calls := walk(3) if SOAK else [*walk(2), *random.Random(1).choices(CALLS, k=8)]
    ):
        code, situation = after(situation, call)
        outcome = node(*call)
        assert (outcome.code, seen(node)) == (code, situation), (
            f"{calls[max(0, i - 2) : i + 1]}: {outcome.text}"
        )


SITUATIONS = [
    (Situation("primary", True), True),
    (Situation("backup", True), False),
    (Situation("dead", True), True),  # a primary that was killed: both services see it fail
    (Situation("dead", True), False),
    (Situation("hung", True), True),
    (Situation("hung", True), False),
]


@pytest.mark.parametrize(
    ("situation", "was_primary"),
    SITUATIONS,
    ids=["primary", "backup", "dead-primary", "dead", "hung-primary", "hung"],
)
def test_calls_at_the_same_time_end_as_one_after_the_other(
    a_node: Callable[..., Node], situation: Situation, was_primary: bool
) -> None:
    """Of two of different services, and of all at once; the lock makes an order of them,
    whichever.
    """
    node = a_node()
    if situation.broker == "hung":
        node.set(QPID_ANSWER=1)
    # The scripts cannot tell a backup that has failed from a primary that has, and of a hung one
    # they only wait for an answer.
    crossed = (
        ()
        if situation.broker == "hung" or (situation.broker == "dead" and not was_primary)
        else CROSSED
    )
    pairs = (
        itertools.product((START, STOP, RENEW), (PROMOTE, DEMOTE, RENEW_PRIMARY))
        if SOAK
        else crossed
    )
    for together in [*pairs, CALLS]:
        bring(node, situation, was_primary=was_primary)
        allowed = []
        for order in itertools.permutations(together):
            now, codes = situation, {}
            for call in order:
                codes[call], now = after(now, call)
            allowed.append((codes, now))
        under_way = {call: node.begin(*call) for call in together}
        outcomes = {call: one.outcome() for call, one in under_way.items()}
        found = ({call: outcome.code for call, outcome in outcomes.items()}, seen(node))
        assert found in allowed, f"{together}: {outcomes}"


@pytest.mark.parametrize("script", ["qpidd", "qpidd-primary"])
def test_a_hung_primary_is_seen_and_stopped_by_either_service(
    a_node: Callable[..., Node], script: str
) -> None:
    """The original's status hung too, and its stops took the broker for no primary and for none of
    theirs.
    """
    node = a_node()
    node.set(QPID_ANSWER=1)
    node("qpidd", "start")
    node("qpidd-primary", "start")
    node.hang()
    for action, code in (("status", 1), ("stop", 0)):
        outcome = node(script, action)  # which ends, or fails after two minutes
        assert outcome.code == code, outcome.text
    assert node.pid == 0


def test_a_hung_tool_does_not_hang_the_scripts(a_node: Callable[..., Node]) -> None:
    """Neither does a status that never comes back, so that a stop succeeds all the same."""
    node = a_node()
    node("qpidd", "start")
    node.set(QPID_HA=node.script("hung", "trap '' TERM; while :; do sleep 1; done"), QPID_ANSWER=0)
    calls = [
        node.begin(*call) for call in (("qpidd", "status"), ("qpidd-primary", "status"), DEMOTE)
    ]
    assert [call.outcome().code for call in calls] == [1, 1, 0]
    assert node.pid == 0


def test_status_of_the_broker(a_node: Callable[..., Node]) -> None:
    """With the real qpid-ha."""
    node = a_node()
    node.set(QPID_HA=node.program("qpid-ha", "qpidha.cli.main"))
    assert node("qpidd", "status").code == 3
    outcome = node("qpidd-primary", "status")
    assert (outcome.code, outcome.text) == (
        1,
        "qpidd: the broker is not primary: it does not run\n",
    )
    node("qpidd", "start")
    assert node("qpidd", "status").code == 0
    assert node("qpidd-primary", "status").code == 1
    node("qpidd-primary", "start")
    assert node("qpidd", "status").code == 0
    assert node("qpidd-primary", "status").code == 0
    node.hang()
    node.set(QPID_ANSWER=1)
    assert node("qpidd", "status").code == 1
    outcome = node("qpidd-primary", "status")
    assert outcome.code == 1 and "no answer within 1 s" in outcome.text
    node.kill()
    assert node("qpidd", "status").code == 1
    assert node("qpidd-primary", "status").code == 1


def test_a_half_dead_broker_without_its_admin_socket_and_port_is_ended(
    a_node: Callable[..., Node],
) -> None:
    node = a_node(listen_disable="tcp")
    node("qpidd", "start")
    node.path("data").joinpath("admin.sock").unlink()
    assert node("qpidd", "status").code == 1
    assert node("qpidd-primary", "stop").code == 0
    assert node.pid == 0


def test_a_broker_that_ends_while_start_asks_it_is_started_again(
    a_node: Callable[..., Node],
) -> None:
    """Both services start it at the moment of its death; one that is about to end is not one that
    does not answer.
    """
    node = a_node()
    node("qpidd", "start")
    real = node.settings["QPID_HA"]
    node.set(
        QPID_HA=node.script(
            "deadly",
            f'[ -e "$0.done" ] && exec {real} "$@"; touch "$0.done"; kill -KILL '
            f"{node.pid}; exit 69",
        )
    )
    outcome = node("qpidd", "start")
    assert (outcome.code, node.state) == (0, "joining"), outcome.text


def test_a_broker_lives_until_its_last_thread_has_ended(a_node: Callable[..., Node]) -> None:
    """A stand-in: its first thread is dead, as of a process that was killed, while another one is
    not out of the kernel yet.
    """
    node = a_node()
    text = (
        "import ctypes, threading; threading.Thread(target=threading.Event().wait).start(); "
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    node.path("half.py").write_text(text)
    node.set(
        QPID_BIN=node.script(
            "stand-in",
            f'echo 5672 >&3; exec 3>&-; exec "{sys.executable}" "{node.path("half.py")}"',
        )
    )
    assert node("qpidd", "start").code == 0
    pid = int(node.path("run").joinpath("qpidd.pid").read_text().split()[0])
    stat = Path(f"/proc/{pid}/stat")
    wait_for(
        lambda: stat.read_text().rpartition(")")[2].split()[0],
        lambda letter: letter == "Z",
        what="its first thread",
    )
    assert node("qpidd", "status").code == 1, "it does not answer"
    assert "is dead" not in node("qpidd", "status").text
    assert node("qpidd", "stop").code == 0
    assert not list(Path(f"/proc/{pid}/task").glob("*"))[1:], "all its threads have ended"


def test_a_strangers_process_in_the_pid_file_is_left_alone(a_node: Callable[..., Node]) -> None:
    """A number that was given to another process since, and what is no number."""
    node = a_node()
    with subprocess.Popen(["sleep", "600"]) as stranger:
        node.path("run").mkdir()
        for content in (f"{stranger.pid} 1", str(stranger.pid), "../1 1", "", "-1 -1"):
            node.path("run").joinpath("qpidd.pid").write_text(content + "\n")
            assert node("qpidd", "status").code == 1
            assert node("qpidd", "stop").code == 0
            assert stranger.poll() is None
        stranger.kill()


def test_a_broker_that_was_not_started_here_is_not_passed_over(a_node: Callable[..., Node]) -> None:
    """The pid file is gone: a primary steps down all the same, and to end the rest is refused in a
    sentence.
    """
    node = a_node()
    node("qpidd", "start")
    node("qpidd-primary", "start")
    node.path("run").joinpath("qpidd.pid").unlink()
    outcome = node("qpidd", "start")
    assert outcome.code == 1 and "is in use by process" in outcome.text
    assert node("qpidd-primary", "stop").code == 0
    assert node.state not in PRIMARY
    outcome = node("qpidd", "stop")
    assert outcome.code == 1 and "was not started here" in outcome.text


def test_wrong_words_are_answered_with_the_right_ones(a_node: Callable[..., Node]) -> None:
    node = a_node()
    for words in ((), ("begin",), ("start", "secondary"), ("stop", "primary", "now")):
        outcome = node("qpidd", *words)
        assert outcome.code == 2 and outcome.text.startswith("usage: qpidd start|")
    assert node("qpidd-primary").code == node("qpidd-primary", "begin").code == 2
    assert node("qpidd", "reload").code == node("qpidd-primary", "reload").code == 3


def test_what_is_not_installed_or_not_configured_is_said(a_node: Callable[..., Node]) -> None:
    node = a_node()
    for setting, code in (("QPID_BIN", 5), ("QPID_HA", 5), ("QPID_CONFIG", 6)):
        kept = node.settings[setting]
        node.set(**{setting: "/does/not/exist"})
        for script in ("qpidd", "qpidd-primary"):
            outcome = node(script, "start")
            assert outcome.code == code and "/does/not/exist" in outcome.text
            assert node("qpidd", "stop").code == 0, "stop needs nothing"
        node.set(**{setting: kept})
    node.set(QPID_INIT="/does/not/exist")
    assert node("qpidd-primary", "start").code == 5


def test_a_wrong_configuration_is_told_with_the_brokers_own_words(
    a_node: Callable[..., Node],
) -> None:
    node = a_node(ha_safety="perhaps")
    outcome = node("qpidd", "start")
    assert outcome.code == 6 and "perhaps" in outcome.text
    assert node("qpidd", "status").code == 3
    node.set(QPID_USER="nobody-has-this-name")
    assert node("qpidd", "start").code == (6 if os.geteuid() == 0 else 4)


def test_qpid_5_a_data_directory_and_options_of_the_sysconfig_file_count(
    a_node: Callable[..., Node],
) -> None:
    node = a_node()
    file = node.path("qpidha.conf")
    file.write_text(file.read_text().replace("data-dir=", "#data-dir="))
    node.set(QPID_DATA_DIR=node.path("data"), QPIDD_OPTIONS="-d --name=other --log-format json")
    assert node("qpidd", "start").code == 0 and node("qpidd-primary", "start").code == 0
    assert node.status()["name"] == "other" and node.path("data/systemId").exists()
    assert node("qpidd", "status").code == 0 and node("qpidd-primary", "status").code == 0
    assert node.path("run/qpidd.log").read_text().startswith("{")
    assert node("qpidd-primary", "stop").code == 0 and node("qpidd", "stop").code == 0
    assert not node.pid


def test_qpid_5_the_data_directory_of_the_configuration_comes_first(
    a_node: Callable[..., Node],
) -> None:
    node = a_node()
    node.set(QPID_DATA_DIR=node.path("unused"))
    assert node("qpidd", "start").code == 0 and node("qpidd", "status").code == 0
    assert node.path("data/systemId").exists() and not node.path("unused").exists()
    assert node("qpidd", "stop").code == 0


def test_the_data_directory_of_the_options_comes_first(a_node: Callable[..., Node]) -> None:
    node = a_node()
    file = node.path("qpidha.conf")
    file.write_text(file.read_text().replace("data-dir=", "#data-dir="))
    node.set(QPID_DATA_DIR=node.path("unused"), QPIDD_OPTIONS=f"--data-dir={node.path('data')}")
    assert node("qpidd", "start").code == 0 and node("qpidd", "status").code == 0
    assert node.path("data/systemId").exists() and not node.path("unused").exists()
    assert node("qpidd", "stop").code == 0


def test_a_data_directory_with_blanks_is_refused(a_node: Callable[..., Node]) -> None:
    node = a_node()
    node.set(QPID_DATA_DIR="/var/lib/a b")
    outcome = node("qpidd", "start")
    assert outcome.code == 6 and "name a directory without blanks" in outcome.text


def test_a_standalone_broker_is_not_promoted(a_node: Callable[..., Node]) -> None:
    node = a_node(ha_cluster="no")
    outcome = node("qpidd-primary", "start")
    assert outcome.code == 1 and "not in a cluster" in outcome.text
    assert node("qpidd-primary", "stop").code == 0 and node.pid == 0, "what it has started it ends"
    assert node("qpidd", "start").code == 0
    assert node("qpidd", "stop").code == 0 and node.pid == 0


def test_a_restart_takes_another_process_but_never_from_the_primary(
    a_node: Callable[..., Node],
) -> None:
    node = a_node()
    assert node("qpidd", "condrestart").code == 0 and node.pid == 0
    node("qpidd", "start")
    for action in ("restart", "try-restart", "force-reload"):
        before = node.pid
        assert node("qpidd", action).code == 0
        assert node.pid not in (0, before)
    node("qpidd-primary", "start")
    before = node.pid
    assert node("qpidd", "restart").code == 0 and node.pid == before and node.state in PRIMARY
    assert node("qpidd-primary", "restart").code == 0 and node.state in PRIMARY


@pytest.mark.parametrize("action", ["condrestart", "try-restart"])
def test_the_primary_is_restarted_only_where_it_is(
    a_node: Callable[..., Node], action: str
) -> None:
    """A backup's would be a promotion, whatever the service qpidd is; an elsewhere healthy primary
    would lose its part.
    """
    node = a_node()
    assert node("qpidd-primary", action).code == 0 and node.pid == 0
    node("qpidd", "start")
    before = node.pid
    outcome = node("qpidd-primary", action)
    assert outcome.code == 0 and "is not primary" in outcome.text
    assert node.pid == before and node.state not in PRIMARY
    node("qpidd-primary", "start")
    node("qpidd", "stop")
    epoch = node.status()["epoch"]
    assert node("qpidd-primary", action).code == 0
    assert node.pid not in (0, before) and node.state in PRIMARY, (
        "its service qpidd is stopped, so it ends and begins again"
    )
    assert node.status()["epoch"] > epoch


def test_a_long_output_is_turned_over_when_a_broker_starts(a_node: Callable[..., Node]) -> None:
    node = a_node()
    log, old = node.path("run") / "qpidd.log", node.path("run") / "qpidd.log.old"
    node("qpidd", "start")
    node("qpidd", "stop")
    node("qpidd", "start")
    assert log.stat().st_size and not old.exists(), "one of some lines goes on"
    node("qpidd", "stop")
    log.write_bytes(b"x" * (1 << 20) + b"\n")
    node("qpidd", "start")
    assert old.stat().st_size == (1 << 20) + 1
    assert b"xx" not in log.read_bytes()
    node.set(QPID_LOG="/dev/null")
    assert node("qpidd", "restart").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_broker_runs_as_its_user(a_node: Callable[..., Node]) -> None:
    """A stand-in for it, since not every Python can be read by everybody."""
    node = a_node()
    text = 'id -un >"$2.who"; echo 5672 >&3; exec 3>&-; exec sleep 600'
    node.set(QPID_USER="nobody", QPID_BIN=node.script("stand-in", text))
    node.directory.chmod(0o755)
    who = node.path("qpidha.conf.who")
    who.touch()
    shutil.chown(who, "nobody")
    assert node("qpidd", "start").code == 0
    assert who.read_text() == "nobody\n"
    assert node("qpidd", "stop").code == 0, "it does not answer, and is killed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_who_may_not_is_told(a_node: Callable[..., Node]) -> None:
    node = a_node()
    node("qpidd", "start")
    node.directory.chmod(0o755)
    mine = shutil.copy(AGENTS / "qpidd", node.directory)
    as_nobody = [
        "setpriv",
        "--reuid=nobody",
        "--clear-groups",
        "env",
        f"QPID_SYSCONFIG={node.path('sysconfig')}",
        mine,
    ]
    for action in ("start", "stop"):
        refused = subprocess.run([*as_nobody, action], capture_output=True, text=True, check=False)
        assert refused.returncode == 4 and "no permission" in refused.stderr
    assert node.pid and node.state == "joining"


def test_a_broker_that_does_not_end_in_good_order_is_killed(a_node: Callable[..., Node]) -> None:
    """A stand-in that answers and ignores SIGTERM."""
    node = a_node()
    node("qpidd", "start")
    node.set(QPID_HA=node.script("answers", "echo ready"), QPID_TERM=0)
    node.signal(signal.SIGSTOP)
    assert node("qpidd", "stop").code == 0
    wait_for(lambda: node.pid, lambda pid: pid == 0)


def test_a_clock_that_goes_back_does_not_make_a_limit_longer(
    a_node: Callable[..., Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hours at each look; a broker that hangs is promoted within a second, or not at all."""
    node = a_node()
    node("qpidd", "start")
    looks = tmp_path / "looks"
    program = tmp_path / "date"
    program.write_text(f"#!/bin/sh\necho >>{looks}\necho $((1000000 - 7200 * $(wc -l <{looks})))\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    node.set(
        QPID_HA=node.script(
            "refuses", 'case "$*" in *promote*) echo no; exit 1;; *all*) ;; *) echo joining;; esac'
        ),
        QPID_PROMOTE=1,
    )
    outcome = node.begin("qpidd-primary", "start").outcome()
    assert outcome.code == 1 and "not promoted: no" in outcome.text


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", ["qpidd", "qpidd-primary"])
def test_shellcheck_has_nothing_to_say(script: str) -> None:
    found = subprocess.run(
        ["shellcheck", "-s", "sh", str(AGENTS / script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout
