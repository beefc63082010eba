"""Completion in real shells: what Tab puts there, with names that a broker knows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from qpidha.cli.app import COMMANDS, LISTS, QPID_TOOLS
from qpidha.cli.names import ARGUMENTS, SORTED, VALUES
from tests.cli.conftest import FakeBroker, Said
from tests.cli.terminals import terminal
from tests.cli.test_words import commands
from tests.documents import ROOT
from tests.patience import STATE
from tests.programs import fast_qpid_ha

Run = Callable[..., Said]
BIN = str(Path(sys.executable).parent)
LINES = [
    ("sta", "status"),
    ("queue pur", "queue purge"),
    ("queue list --no-h", "queue list --no-headers"),
    ("queue del ord", "queue del orders"),
    ("queue del my", "queue del my\\ odd\\ name"),
    ("connection close 1", "connection close 17"),
    ("subscription list ord", "subscription list orders"),
    ("--context pr", "--context prod"),
    ("wait --for state=read", "wait --for state=ready"),
    ("events --type fail", "events --type failover"),
    ("queue list --sort cons", "queue list --sort consumers"),
]
"""What is typed, and what is there behind Tab."""


OF_TOOLS = [
    ("qpid-config que", "qpid-config queues"),
    ("qpid-config add ex", "qpid-config add exchange"),
    ("qpid-config add queue q --repl", "qpid-config add queue q --replicate"),
    ("qpid-stat --sort", "qpid-stat --sort-by"),
    ("qpid-route dy", "qpid-route dynamic"),
    ("qpid-route route fl", "qpid-route route flush"),
    ("qpid-send -a q --content-std", "qpid-send -a q --content-stdin"),
    ("qpid-receive --verify", "qpid-receive --verify-sequence"),
    ("qpid-printevents --heart", "qpid-printevents --heartbeats"),
    ("qpidhad --ha-clu", "qpidhad --ha-cluster"),
]
"""The same of the other programs, which ask no broker for names."""


@pytest.fixture
def named(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, qpid_ha: Run
) -> FakeBroker:
    """A broker with names, that is the only context of this user."""
    broker.answers["list_queues"] = [{"name": name} for name in ("orders", "my odd name")]
    broker.answers["list_exchanges"] = [{"name": "amq.topic"}]
    broker.answers["list_connections"] = [{"id": 17}]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{fast_qpid_ha().parent}:{BIN}:{os.environ['PATH']}")
    monkeypatch.setenv("PS1", "$ ")
    monkeypatch.setenv("QPIDHA_CONTEXT", "prod")
    assert qpid_ha("context", "set", "prod", "-b", broker.socket).code == 0
    return broker


@pytest.mark.parametrize(("typed", "there"), LINES)
def test_tab_in_bash(named: FakeBroker, tmp_path: Path, typed: str, there: str) -> None:
    rc = tmp_path / "rc"
    rc.write_text("source <(qpid-ha completion bash); bind 'set bell-style none'; PS1='$ '\n")
    with terminal("bash", "--noprofile", "--rcfile", str(rc), "-i", columns=200) as shell:
        shell.see("$ ")
        shell.press(f"qpid-ha {typed}\t".encode())
        shell.see(f"qpid-ha {there}")


@pytest.mark.parametrize(("typed", "there"), OF_TOOLS)
def test_tab_in_bash_completes_the_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, there: str
) -> None:
    monkeypatch.setenv("PATH", f"{fast_qpid_ha().parent}:{BIN}:{os.environ['PATH']}")
    rc = tmp_path / "rc"
    rc.write_text("source <(qpid-ha completion bash); bind 'set bell-style none'; PS1='$ '\n")
    with terminal("bash", "--noprofile", "--rcfile", str(rc), "-i", columns=200) as shell:
        shell.see("$ ")
        shell.press(f"{typed}\t".encode())
        shell.see(there)


def test_every_program_for_people_is_completed(qpid_ha: Run) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert [name for name in scripts if name.startswith("qpid-")] == sorted(
        ("qpid-ha", *QPID_TOOLS)
    )
    for shell in ("bash", "zsh", "fish"):
        script = qpid_ha("completion", shell).out
        for program in ("qpid-ha", "qpidhad", *QPID_TOOLS):
            assert re.search(rf"(#compdef|complete) .*\b{program}\b", script), (shell, program)


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(("typed", "there"), [*LINES[3:8], *OF_TOOLS[1:4]])
def test_tab_in_zsh(named: FakeBroker, tmp_path: Path, typed: str, there: str) -> None:
    # Ctrl-X shows the line as it is: what Tab does not change is not written again.
    (tmp_path / ".zshrc").write_text(
        f"fpath=({tmp_path} $fpath); autoload -Uz compinit; compinit -D -u; PS1='$ '\n"
        "show() { zle -I; print -r -- \"LINE<${BUFFER%% }>\"; }; zle -N show; bindkey '^X' show\n"
    )
    with open(tmp_path / "_qpid-ha", "w") as script:
        subprocess.run([fast_qpid_ha(), "completion", "zsh"], stdout=script, check=True)
    with terminal("zsh", "-d", "-i", columns=200, ZDOTDIR=str(tmp_path)) as shell:
        shell.see("$ ")
        program = "" if typed.startswith("qpid-") else "qpid-ha "
        shell.press(f"{program}{typed}\t\x18".encode())
        shell.see(f"LINE<{program}{there}>")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("typed", "there"), [*LINES[3:8], *OF_TOOLS[1:4]])
def test_tab_in_fish(named: FakeBroker, tmp_path: Path, typed: str, there: str) -> None:
    program = "" if typed.startswith("qpid-") else "qpid-ha "
    script = f"qpid-ha completion fish | source; complete -C '{program}{typed}'"
    done = subprocess.run(
        ["fish", "-N", "-c", script],
        capture_output=True,
        text=True,
        timeout=STATE,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    before = typed.rpartition(" ")[0]
    wanted = there.removeprefix(before).strip().replace("\\", "")
    assert wanted in [line.partition("\t")[0] for line in done.stdout.splitlines()], done.stderr


def test_what_has_names_is_a_command_that_takes_them() -> None:
    known = dict(commands())
    for path, kinds in ARGUMENTS.items():
        given = [p for p in known[path].params if p.param_type_name == "argument"]
        assert len(kinds) <= sum(99 if p.nargs != 1 else 1 for p in given), path
    options = {
        word for command in known.values() for param in command.params for word in param.opts
    }
    assert {*VALUES} <= options | {"-b", "--broker", "--context", "-o", "--output", "--sort"}
    assert SORTED.keys() == {*LISTS}
    assert {path.split()[0] for path in ARGUMENTS} <= COMMANDS.keys()


@pytest.mark.parametrize("name", LISTS)
def test_columns_of_each_list_are_completed(named: FakeBroker, qpid_ha: Run, name: str) -> None:
    found = qpid_ha("completion", "names", f"qpid-ha {name} --sort ").out.splitlines()
    assert len(found) > 2 and all(column.isidentifier() for column in found)


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("list -o ", "jsonl"),
        ("status --expect ", "primary"),
        ("queue add q --replicate ", "configuration"),
        ("top --by ", "unreplicated"),
        ("check all --format ", "nagios"),
        ("check ", "synced"),
        ("check queue ", "orders"),
        ("context use ", "prod"),
        ("queue move orders ", "my odd name"),
        ("connection close 3 4 ", "17"),
    ],
)
def test_words_are_completed(named: FakeBroker, qpid_ha: Run, line: str, among: str) -> None:
    found = qpid_ha("completion", "names", f"qpid-ha {line}")
    assert (found.code, found.err) == (0, "") and among in found.out.splitlines()


def test_the_same_option_of_another_command_means_something_else(
    named: FakeBroker, qpid_ha: Run
) -> None:
    assert qpid_ha("completion", "names", "qpid-ha policy override p --for ").out == ""
