"""The users file: made, changed and read without ever holding a password."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qpidha.amqp.peer.sasl import Users
from tests.cli.conftest import Said

Run = Callable[..., Said]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.fixture
def put(qpid_ha: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def add(name: str, password: str, *more: str) -> Said:
        monkeypatch.setattr(sys, "stdin", io.StringIO(password))
        return qpid_ha("user", "add", name, "--users-file", str(file), "--password-stdin", *more)

    return add


def test_an_added_user_can_log_in_with_the_password_and_no_other(put: Run, file: Path) -> None:
    assert put("ann", "päss word\n").code == 0
    users = Users.parse(file.read_text())
    assert users.check("ann", "päss word") and not users.check("ann", "other")
    assert "päss" not in file.read_text()


def test_code_7_a_verifier_has_as_many_iterations_as_rfc_7677_recommends(
    put: Run, file: Path
) -> None:
    assert put("ann", "secret").code == 0
    found = Users.parse(file.read_text()).verifiers["ann"]
    assert {each.iterations for each in found.values()} == {15_000}


def test_only_the_owner_may_read_the_file(put: Run, file: Path) -> None:
    file.write_text("")
    file.chmod(0o644)
    put("ann", "a")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(file.parent) == [file.name]


def test_adding_again_replaces_the_line_and_keeps_the_others(put: Run, file: Path) -> None:
    file.write_text("# who may log in\n\n")
    put("ann", "old")
    put("bob", "b")
    assert put("ann", "new").code == 0
    users = Users.parse(file.read_text())
    assert users.check("ann", "new") and not users.check("ann", "old") and users.check("bob", "b")
    assert file.read_text().startswith("# who may log in\n\n")
    secret, *lines = file.read_text().splitlines()[2:]
    assert secret.startswith("secret:")
    assert [line.partition("$")[0] for line in lines] == [
        f"{name}:SCRAM-SHA-{size}" for name in ("bob", "ann") for size in (256, 512)
    ]


def test_the_file_has_one_secret_that_stays(put: Run, qpid_ha: Run, file: Path) -> None:
    for name in ("ann", "secret"):
        put(name, "a")
    (line,) = [line for line in file.read_text().splitlines() if "$" not in line]
    put("ann", "b")
    assert qpid_ha("user", "del", "secret", "--users-file", str(file)).code == 0
    assert [each for each in file.read_text().splitlines() if "$" not in each] == [line]
    put("ann", "c", "--users-file", str(other := file.with_name("other")))
    assert line not in other.read_text() and "secret:" in other.read_text()


def test_a_name_with_the_realm_is_the_same_user(put: Run, file: Path) -> None:
    put("ann@QPID", "old")
    put("ann", "new")
    users = Users.parse(file.read_text(), realm="QPID")
    assert len(users.verifiers) == 1 and users.check("ann@QPID", "new")


def test_equal_passwords_do_not_look_equal(put: Run, file: Path) -> None:
    put("ann", "same")
    put("bob", "same")
    own = [line.partition(":")[2] for line in file.read_text().splitlines() if "$" in line]
    assert len(set(own)) == len(own) == 4


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("", "a"),
        ("a$b", "a"),
        ("#a", "a"),
        (" a", "a"),
        ("a\nb", "a"),
        ("a\u202eb", "a"),
        ("anonymous", "a"),
        ("anonymous@QPID", "a"),
        ("ann", ""),
        ("ann", "\x07"),
    ],
)
def test_what_cannot_be_a_user_is_refused_and_changes_nothing(
    put: Run, file: Path, name: str, password: str
) -> None:
    said = put(name, password)
    assert said.code == 2 and said.out == ""
    assert not file.exists()


def test_a_file_that_is_no_users_file_is_left_alone(put: Run, file: Path) -> None:
    file.write_text("root:x:0:0\n")
    said = put("ann", "a")
    assert said.code == 65 and "line 1" in said.err
    assert file.read_text() == "root:x:0:0\n"


def test_users_are_listed_without_their_verifiers(put: Run, qpid_ha: Run, file: Path) -> None:
    put("ann", "a")
    put("bob", "b")
    said = qpid_ha("user", "list", "--users-file", str(file), "-o", "json")
    users = json.loads(said.out)["users"]
    assert [user["name"] for user in users] == ["ann", "bob"]
    assert users[0]["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert [
        line.split()[0]
        for line in qpid_ha("user", "list", "--users-file", str(file)).out.splitlines()
    ] == ["NAME", "ann", "bob"]


def test_a_deleted_user_is_gone_and_an_unknown_one_is_1(put: Run, qpid_ha: Run, file: Path) -> None:
    put("ann", "a")
    put("bob", "b")
    assert qpid_ha("user", "del", "ann", "--users-file", str(file)).code == 0
    assert list(Users.parse(file.read_text()).verifiers) == ["bob"]
    assert qpid_ha("user", "del", "ann", "--users-file", str(file)).code == 1


def test_a_missing_file_or_directory_is_66(put: Run, qpid_ha: Run, tmp_path: Path) -> None:
    assert qpid_ha("user", "list", "--users-file", str(tmp_path / "none")).code == 66
    assert put("ann", "a", "--users-file", str(tmp_path / "none" / "users")).code == 66


def test_without_a_terminal_the_password_is_not_asked_for(
    qpid_ha: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a"))
    said = qpid_ha("user", "add", "ann", "--users-file", str(file))
    assert said.code == 2 and "--password-stdin" in said.err


def test_the_password_may_come_from_a_file(qpid_ha: Run, file: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    words = ("user", "add", "ann", "--users-file", str(file))
    assert qpid_ha(*words, "--password-file", str(tmp_path / "password")).code == 0
    assert Users.parse(file.read_text()).check("ann", "secret")


def test_the_password_is_asked_for_twice(
    qpid_ha: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    answers = iter(["one", "two", "same", "same"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert qpid_ha("user", "add", "ann", "--users-file", str(file)).code == 1
    assert qpid_ha("user", "add", "ann", "--users-file", str(file)).code == 0
    assert Users.parse(file.read_text()).check("ann", "same")


@pytest.mark.parametrize(
    "name", ["jo e", "jo:e", "jo e:", "jo\te", "jo\x01", " jo", "", "#jo", "j$o"]
)
def test_a_name_that_a_line_cannot_hold_is_refused(put: Run, file: Path, name: str) -> None:
    said = put(name, "secret")
    assert said.code == 2 and "cannot be a user's name" in said.err and not file.exists()
