"""Where the password of a command comes from."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from qpidha.cli.names import names_at
from qpidha.client.command.arguments import hoist
from qpidha.client.command.exits import Failure
from qpidha.client.command.target import resolve


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files with a password each, and no terminal."""
    for name in ("file", "ha"):
        (tmp_path / name).write_text(f"of the {name}\nno password\n")
    (tmp_path / "conf").write_text("ha-username=ha\nha-password-file=ha\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QPIDHA_DIR", str(tmp_path))
    for name in ("QPIDHA_USER", "QPIDHA_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    terminal(monkeypatch, [], is_there=False)
    return tmp_path


def terminal(monkeypatch: pytest.MonkeyPatch, answers: list[str], *, is_there: bool = True) -> None:
    """Sit at the terminal, or have none, and answer so."""

    def getpass(prompt: str) -> str:
        if not answers:
            raise EOFError
        return f"{prompt}{answers.pop(0)}"

    monkeypatch.setattr("getpass.getpass", getpass)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: is_there))


def login(line: str) -> tuple[str, str]:
    target = resolve(hoist(line.split())[0])[-1]
    return target.user, target.password


@pytest.mark.parametrize(
    ("line", "user", "password"),
    [
        ("-b h", "env", "of the environment"),
        ("-b h --user ann", "ann", "of the environment"),
        ("-b ann@h", "ann", "of the environment"),
        ("-b h --user ann --password-file file", "ann", "of the file"),
        ("-b h --user ann --password word", "ann", "word"),
        ("-b amqp://ann:url@h,other --password-file file", "ann", "url"),
        ("-b ann@h,other --password-file file", "ann", "of the file"),
        ("-b h --config conf", "ha", "of the ha"),
        ("-b h --config conf --user ann", "ann", "of the environment"),
        ("-b h --config conf --password-file file", "ha", "of the file"),
        ("--config conf", "ha", "of the ha"),
    ],
)
def test_first_use_d10_a_password_need_not_be_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, line: str, user: str, password: str
) -> None:
    monkeypatch.setenv("QPIDHA_USER", "env")
    monkeypatch.setenv("QPIDHA_PASSWORD", "of the environment")
    terminal(monkeypatch, ["never asked"])
    assert login(line) == (user, password)


def test_a_password_that_is_given_nowhere_is_asked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal(monkeypatch, ["secret"])
    options, _ = hoist(["-b", "h,i", "--user", "ann"])
    for _ in range(2):
        assert {target.password for target in resolve(options)} == {"Password of ann: secret"}


@pytest.mark.parametrize(
    "line", ["-b h", "-b h --user ann --sasl-mechanism EXTERNAL", "-b ./a.sock --user ann"]
)
def test_a_password_that_nobody_wants_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    terminal(monkeypatch, ["secret"])
    assert login(line)[1] == ""


def test_without_a_terminal_nobody_is_asked() -> None:
    assert login("-b h --user ann") == ("ann", "")


def test_who_ends_the_question_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal(monkeypatch, [])
    with pytest.raises(Failure) as failure:
        login("-b h --user ann")
    assert failure.value.code == 130 and "--password-file" in failure.value.hint


def test_a_completion_asks_for_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["secret"]
    terminal(monkeypatch, asked)
    assert names_at("qpid-ha queue del -b ann@127.0.0.1:1 ", lambda name: None) == []
    assert asked == ["secret"]


def test_standard_input_has_the_password_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(b"secret\nof message 1\n"), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)
    options, _ = hoist(["-b", "h", "--user", "ann", "--password-file", "-"])
    assert [resolve(options)[0].password for _ in range(2)] == ["secret", "secret"]
    assert stdin.buffer.read() == b"of message 1\n"


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("--password-file nowhere", 66, "cannot use nowhere: No such file"),
        ("--password-file empty", 65, "cannot use empty: its first line"),
        ("--password-file file --password x", 2, "exclude each other"),
    ],
)
def test_a_file_without_a_password_is_refused(place: Path, line: str, code: int, says: str) -> None:
    (place / "empty").touch()
    with pytest.raises(Failure) as failure:
        login(f"-b h --user ann {line}")
    assert failure.value.code == code and says in failure.value.explanation
