"""Words for people: help of every command, which word was meant, and completion."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from qpidha.cli.app import COMMANDS, _app
from qpidha.cli.words import nearest
from tests.cli.conftest import FakeBroker, Said

Run = Callable[..., Said]


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with its words."""

    def inside(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        inner = getattr(command, "commands", {})
        for name in inner:
            yield from inside(f"{path} {name}", inner[name])
        if not inner:
            yield path, command

    for name, (module, _) in COMMANDS.items():
        tree: Any = get_command(_app([module]))
        if name in tree.commands:
            yield from inside(name, tree.commands[name])


@pytest.mark.parametrize(("path", "command"), list(commands()))
def test_first_use_m16_help_has_words_for_each_parameter_an_example_and_no_types(
    qpid_ha: Run, path: str, command: Any
) -> None:
    text = qpid_ha(*path.split(), "--help", "--cluster-manager").out
    for param in command.params:
        assert param.name in ("help",) or getattr(param, "help", ""), param.name
    for kind in ("<str", "<int", "<float", "<path", "<list", "{", "922337"):
        assert kind not in text
    assert f"Example: qpid-ha {path}" in " ".join(text.split())


def test_first_use_m16_lists_of_commands_are_whole_sentences(
    qpid_ha: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in ("60", "160"):
        monkeypatch.setenv("COLUMNS", columns)
        assert "..." not in qpid_ha("journal", "--help").out.replace("[ARGS]...", "").replace(
            "--user, ...", ""
        )
    assert max(map(len, qpid_ha("journal", "--help").out.splitlines())) > 80


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("stauts", "status"),
        ("recieve", "receive"),
        ("lst", "list"),
        ("nosuch", ""),
        ("consumer", ""),
        ("ls", ""),
    ],
)
def test_first_use_m17_only_a_word_that_is_near_was_meant(word: str, meant: str) -> None:
    assert nearest(word, COMMANDS) == meant


@pytest.mark.parametrize(("command", "instead"), [("ready", "--expect ready")])
def test_first_use_m31_a_command_of_others_that_is_not_offered_says_so(
    qpid_ha: Run, command: str, instead: str
) -> None:
    said = qpid_ha(command, "q", "other")
    assert said.code == 2 and f"no command '{command}'" in said.err and instead in said.err


def test_first_use_m18_a_misspelt_subcommand_is_answered_in_one_clean_line(qpid_ha: Run) -> None:
    assert qpid_ha("queue", "ad", "x").err == (
        "error: no such command 'ad'. Try: did you mean 'add'? "
        "qpid-ha queue with one of add, del, list, show, peek, move, requeue, purge\n"
    )


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("queue remove x", "del"),
        ("queue rm x", "del"),
        ("queue create x", "add"),
        ("policy delete x", "clear"),
        ("policy add x", "set"),
        ("exchange ls", "list"),
    ],
)
def test_a_subcommand_that_means_the_same_is_named_before_one_that_looks_alike(
    qpid_ha: Run, line: str, meant: str
) -> None:
    assert f"Try: did you mean '{meant}'? " in qpid_ha(*line.split()).err


def test_the_list_of_commands_has_one_column_and_names_every_subcommand(qpid_ha: Run) -> None:
    listed = (
        qpid_ha("help", "--cluster-manager").out.partition("Commands:\n")[2].partition("\n\n")[0]
    )
    rows = {line.split()[0]: line for line in listed.splitlines()}
    assert set(rows) == set(COMMANDS)
    assert {rows[name].index(what) for name, (_, what) in COMMANDS.items()} == {
        4 + max(map(len, COMMANDS))
    }
    for path, _ in commands():
        group, _, name = path.partition(" ")
        assert name in rows[group], path


@pytest.mark.parametrize("word", ["-h", "--help", "help"])
def test_first_use_m19_help_may_stand_before_the_command(qpid_ha: Run, word: str) -> None:
    assert qpid_ha(word, "queue", "add") == qpid_ha("queue", "add", "--help")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("st", ["status"]),
        ("queue ", ["add", "del", "list", "show", "peek", "move", "requeue", "purge", "--help"]),
        ("-b host queue add --du", ["--durable"]),
        ("queue list --time", ["--timeout"]),
        ("promo", []),
    ],
)
def test_first_use_m15_bash_completes_by_what_stands_before(
    qpid_ha: Run, line: str, offered: list[str]
) -> None:
    script = qpid_ha("completion", "bash").out
    words = line.split(" ")
    asked = f"{script}\nCOMP_WORDS=(qpid-ha {' '.join(words[:-1])} '{words[-1]}')\n"
    asked += f'COMP_CWORD={len(words)}; _qpid_ha; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered


@pytest.fixture
def named(broker: FakeBroker) -> FakeBroker:
    """A broker that has queues and exchanges."""
    broker.answers["list_queues"] = [{"name": name} for name in ("orders", "old ones", "a\nb")]
    broker.answers["list_exchanges"] = [{"name": name} for name in ("", "amq.topic", "orders-x")]
    return broker


EXCHANGES, QUEUES = ["amq.topic", "orders-x"], ["old ones", "orders"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("queue del ", QUEUES),
        ("queue purge --timeout 3 or", QUEUES),
        ("bind ", EXCHANGES),
        ("bind --replicate all amq.topic ", QUEUES),
        ("unbind amq.topic orders ", []),
        ("send --subject x ", sorted(EXCHANGES + QUEUES)),
        ("send --subject ", []),
        ("queue add new --alternate-exchange ", EXCHANGES),
        ("switchover ", ["127.0.0.1:5672"]),
        ("queue add ", []),
        ("queue del 'or", []),
        ("", []),
        ("nosuch ", []),
    ],
)
def test_m15_names_are_completed_where_they_are_wanted(
    named: FakeBroker, qpid_ha: Run, line: str, names: list[str]
) -> None:
    said = qpid_ha("completion", "names", f"qpid-ha -b {named.socket} {line}")
    assert said == Said(0, "".join(f"{name}\n" for name in names), "")


def test_m15_brokers_are_completed_behind_their_option(named: FakeBroker, qpid_ha: Run) -> None:
    assert qpid_ha("completion", "names", f"qpid-ha -b {named.socket} list -b ").out == (
        "127.0.0.1:5672\n"
    )


def test_m15_without_a_broker_nothing_is_said(
    broker: FakeBroker, qpid_ha: Run, tmp_path: Path
) -> None:
    silent = tmp_path / "silent"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(silent))
        listener.listen()
        for address in (silent, tmp_path / "nobody", "no:such:address"):
            line = f"qpid-ha -b {address} queue del "
            assert qpid_ha("completion", "names", line) == Said(0, "", "")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("queue del or", ["orders"]),
        ("queue del o", ["orders", "old\\ ones"]),
        ("queue del --f", ["--force", "--force-if-used", "--force-if-not-empty"]),
        ("-b 127.0.0.1:5", ["5672"]),
        ("status o", []),
    ],
)
def test_m15_bash_completes_names(qpid_ha: Run, line: str, offered: list[str]) -> None:
    script = qpid_ha("completion", "bash").out
    words = line.replace(":", " : ").split(" ")
    asked = f"""{script}
qpid-ha() {{
  case $3 in *' -b '*) echo 127.0.0.1:5672;; *) echo orders; echo old ones; echo new;; esac
}}
COMP_WORDS=(qpid-ha {" ".join(words[:-1])} '{words[-1]}')
COMP_LINE='qpid-ha {line}'
COMP_CWORD={len(words)}; COMP_POINT=${{#COMP_LINE}}; _qpid_ha
printf '%s\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == (offered or [""]) and not done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_first_use_m15_completion_knows_commands_and_the_options_of_the_daemon(
    qpid_ha: Run, shell: str
) -> None:
    script = qpid_ha("completion", shell).out
    assert (
        "completion names" in script
        and "qpidhad" in script
        and "--ha-brokers-url" in script
        and "--max-queue-count" in script
    )
