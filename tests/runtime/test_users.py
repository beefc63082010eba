"""The users file, and whether the brokers can log in to each other by it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from qpidha.amqp.peer.sasl import SCRAM, line_of_secret
from qpidha.model.exit_codes import CONFIG
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from qpidha.runtime.exits import CannotStart
from qpidha.runtime.users import check_users, load_users
from tests.system.credentials import users_file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return those of a member of a cluster whose brokers log in as `ha`."""
    return Settings(
        ha_cluster=True,
        ha_brokers_url=parse_url("b1,b2,b3"),
        auth=True,
        users_file=str(users_file(tmp_path / "users", {"ha": "secret", "guest": "guest"})),
        ha_username="ha",
        ha_password="secret",
    )


def found(settings: Settings) -> str:
    """Return what is found, in one text."""
    try:
        return " ".join(check_users(settings, load_users(settings)))
    except CannotStart as error:
        assert error.code == CONFIG and "qpid-ha user add" in error.hint
        return f"refused: {error.text}"


def test_what_strangers_are_told_of_unknown_users_is_of_the_file(settings: Settings) -> None:
    """Else two brokers, or one before and after its restart, tell of a name that it is none."""

    def told() -> tuple[bytes, bytes, bytes, int]:
        return load_users(settings).auth_info("nobody", SCRAM)

    assert told() != told()  # A file without a secret: it is of one process.
    file = Path(settings.users_file)
    text = file.read_text()
    file.write_text(f"{line_of_secret(bytes)}\n{text}")
    before = told()
    assert before == told()
    another = text.splitlines()[1].replace("guest:", "another:")
    file.write_text(f"{file.read_text()}{another}\n")
    assert told() == before and "another" in load_users(settings).verifiers


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"ha_username": "ha@QPID"}, ""),
        ({"ha_username": "other"}, "refused: users-file "),
        ({"ha_username": "other", "ha_mechanism": "SCRAM-SHA-256"}, "has no user other"),
        ({"ha_username": "other", "ha_mechanism": "EXTERNAL"}, ""),
        ({"ha_username": "other", "sasl_mechanisms": ("EXTERNAL",)}, ""),
        ({"ha_username": "other", "sasl_mechanisms": ("EXTERNAL", "PLAIN")}, "has no user other"),
        ({"ha_username": "other", "auth": False}, ""),
        ({"ha_username": "other", "users_file": ""}, ""),
        ({"ha_username": "other", "ha_cluster": False}, ""),
        ({"ha_username": "other", "ha_brokers_url": parse_url("b1")}, ""),
        ({"ha_username": ""}, ""),
        ({"ha_password": "wrong"}, "ha-password is not the password of ha"),
        ({"ha_password": ""}, ""),
    ],
)
def test_first_use_d9_a_login_of_the_brokers_that_is_none_is_found(
    settings: Settings, changes: dict[str, object], says: str
) -> None:
    text = found(replace(settings, **changes))
    assert says in text if says else not text


def test_a_users_file_without_users_is_told(settings: Settings) -> None:
    """It was emptied, or cut while it was written."""
    Path(settings.users_file).write_text(f"{line_of_secret(bytes)}\n")
    assert found(settings).startswith("refused: ")  # The brokers' own login is missing.
    alone = replace(settings, ha_cluster=False)
    assert "has no users: nobody logs in with a password" in found(alone)
    assert not found(replace(alone, auth=False))


def test_a_users_file_that_is_a_pipe_or_a_device_is_refused(settings: Settings) -> None:
    """Nobody may ever write to the one, and the other has no end."""
    pipe = Path(settings.users_file).with_name("pipe")
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        assert "it is no regular file" in found(replace(settings, users_file=path))
