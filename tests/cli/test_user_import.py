"""Users of a sasldb, as Cyrus SASL's own program makes it, in a users file."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from qpidha.amqp.peer.sasl import Users
from qpidha.client.blocking import Client
from qpidha.model.exit_codes import DATA_ERROR, NO, NO_INPUT, UNAVAILABLE
from tests.cli.conftest import Said
from tests.runtime.daemons import Running

Run = Callable[..., Said]
PLACES = f"{os.environ['PATH']}:/usr/sbin"
PROGRAMS = ("saslpasswd2", "sasldblistusers2", "db_dump")

pytestmark = pytest.mark.skipif(
    not all(shutil.which(name, path=PLACES) for name in PROGRAMS), reason="needs sasl2-bin, db-util"
)
PASSWORDS = {("guest", "QPID"): "gu est\\", ("bob", "OTHER"): "päss", ("dora", "QPID"): "x" * 4}


def put(path: Path, name: str, realm: str, password: bytes) -> None:
    command = [str(shutil.which("saslpasswd2", path=PLACES)), "-p", "-c", "-f", str(path)]
    subprocess.run([*command, "-u", realm, name], input=password, check=True, capture_output=True)


@pytest.fixture(scope="module")
def sasldb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sasl") / "sasldb2"
    for (name, realm), password in PASSWORDS.items():
        put(path, name, realm, password.encode())
    return path


def imported(qpid_ha: Run, sasldb: Path, file: Path, *more: str) -> Said:
    return qpid_ha("user", "import", str(sasldb), "--users-file", str(file), *more)


def test_users_keep_their_passwords(qpid_ha: Run, sasldb: Path, tmp_path: Path) -> None:
    file = tmp_path / "users"
    said = imported(qpid_ha, sasldb, file)
    assert said.code == 0
    assert [line.split()[:2] for line in said.out.splitlines()] == [
        ["NAME", "CHANGE"],
        ["bob@OTHER", "added"],
        ["dora", "added"],
        ["guest", "added"],
    ]
    users = Users.parse(file.read_text(), realm="QPID")
    assert users.has_secret and stat.S_IMODE(file.stat().st_mode) == 0o600
    for (name, realm), password in PASSWORDS.items():
        assert users.check(f"{name}@{realm}", password)
        assert not users.check(f"{name}@{realm}", "other")
        assert password not in said.out + said.err + file.read_text()
    with (
        Running("--no-data-dir", "--users-file", file) as daemon,
        Client(f"127.0.0.1:{daemon.port}", user="guest", password="gu est\\") as client,
    ):
        assert client.mechanism == "SCRAM-SHA-512"


def test_who_is_a_user_already_stays_as_he_is(qpid_ha: Run, sasldb: Path, tmp_path: Path) -> None:
    file = tmp_path / "users"
    imported(qpid_ha, sasldb, file)
    before = file.read_text()
    said = imported(qpid_ha, sasldb, file, "-o", "json")
    assert said.code == 0 and file.read_text() == before
    assert {row["change"] for row in json.loads(said.out)["users"]} == {"kept"}


def test_each_may_get_a_new_password(qpid_ha: Run, sasldb: Path, tmp_path: Path) -> None:
    file, told = tmp_path / "users", tmp_path / "told"
    said = imported(qpid_ha, sasldb, file, "--new-passwords", str(told))
    assert said.code == 0 and stat.S_IMODE(told.stat().st_mode) == 0o600
    passwords = dict(line.split(" ") for line in told.read_text().splitlines())
    assert set(passwords) == {"bob@OTHER", "dora", "guest"} and len({*passwords.values()}) == 3
    users = Users.parse(file.read_text(), realm="QPID")
    for name, password in passwords.items():
        assert len(password) >= 20 and users.check(name, password)
        assert password not in said.out
    assert not users.check("dora", "xxxx")
    file.unlink()
    said = imported(qpid_ha, sasldb, file, "--new-passwords", str(told))
    assert said.code == NO_INPUT and "not there yet" in said.err and not file.exists()


def test_new_passwords_are_nobodys_where_the_users_file_cannot_be_written(
    qpid_ha: Run, sasldb: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    file = tmp_path / "no folder" / "users"
    assert imported(qpid_ha, sasldb, file, "--new-passwords", str(told)).code == NO_INPUT
    assert not told.exists()


def test_who_cannot_be_a_user_is_named(qpid_ha: Run, tmp_path: Path) -> None:
    path, file = tmp_path / "sasldb2", tmp_path / "users"
    for name, password in (
        ("car:ol", b"x"),
        ("anonymous", b"x"),
        ("odd", b"\xff\xfe"),
        ("good", b"x"),
    ):
        put(path, name, "QPID", password)
    said = imported(qpid_ha, path, file)
    assert said.code == NO and "not all users" in said.err
    fates = {line.split()[0]: line.split()[1] for line in said.out.splitlines()[1:]}
    assert fates == {"anonymous": "refused", "car:ol": "refused", "good": "added", "odd": "refused"}
    assert [*Users.parse(file.read_text(), realm="QPID").verifiers] == ["good"]


def test_what_is_no_sasldb_is_refused(
    qpid_ha: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sasldb: Path
) -> None:
    file, text, broken = tmp_path / "users", tmp_path / "text", tmp_path / "broken"
    text.write_text("nothing of the kind")
    broken.write_bytes(sasldb.read_bytes()[:100] + b"\xff" * 5000)
    for path, code, why in (
        (tmp_path / "nowhere", NO_INPUT, "No such file"),
        (tmp_path, NO_INPUT, "directory"),
        (text, DATA_ERROR, "no hash of Berkeley DB"),
        (broken, DATA_ERROR, "db_dump cannot read the file"),
    ):
        said = imported(qpid_ha, path, file)
        assert said.code == code and why in said.err, said
    assert imported(qpid_ha, text, file, "--new-passwords", str(tmp_path / "p")).code != 0
    assert not file.exists() and not (tmp_path / "p").exists()
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    said = imported(qpid_ha, sasldb, file)
    assert said.code == UNAVAILABLE and "install the package db-util" in said.err
