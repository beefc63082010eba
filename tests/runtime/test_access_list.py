"""The acl-file: enforced, or the start is refused."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from qpidha.management.acl import Decision
from qpidha.model.exit_codes import CONFIG, UNAVAILABLE
from qpidha.model.settings import Settings
from qpidha.runtime.access_list import load_access_list, resolve
from qpidha.runtime.exits import CannotStart
from tests.runtime.daemons import run
from tests.system.credentials import users_file


def settings(place: Path, *lines: str, **more: int) -> Settings:
    path = place / "the.acl"
    path.write_text("\n".join(lines))
    return Settings(acl_file=str(path), **more)  # type: ignore[arg-type]


def test_without_a_file_and_without_limits_there_is_no_list() -> None:
    assert load_access_list(Settings()) == (None, [])


def test_limits_are_those_of_who_is_not_named(tmp_path: Path) -> None:
    limits = {
        "connection_limit_per_user": 3,
        "max_queues_per_user": 4,
        "connection_limit_per_ip": 5,
    }
    lines = ("quota connections 7 ann", "quota queues 8 all")
    found, _ = load_access_list(settings(tmp_path, *lines, **limits))
    assert found is not None and found.per_address == 5
    assert found.quotas == {"connections": {"ann": 7, "all": 3}, "queues": {"all": 8}}
    assert found.last_word.decision is Decision.DENY
    found, _ = load_access_list(Settings(**limits))  # type: ignore[arg-type]
    assert found is not None and found.last_word.decision is Decision.ALLOW
    assert found.quota("connections", "ann") == 3 and found.per_address == 5


def test_a_rule_that_can_never_fit_is_a_warning(tmp_path: Path) -> None:
    given = settings(tmp_path, "acl allow ann move queue", "acl deny all all")
    found, warnings = load_access_list(given)
    assert found is not None and warnings == [
        f"acl-file {given.acl_file} line 1: can never fit: move queue is never asked"
    ]


@pytest.mark.parametrize("line", ["acl allow all", "acl allow älle all", "\x00"])
def test_a_file_with_an_error_is_refused(tmp_path: Path, line: str) -> None:
    given = settings(tmp_path, "# rules", line)
    with pytest.raises(CannotStart, match="the.acl line 2: ") as refused:
        load_access_list(given)
    assert refused.value.code == CONFIG and "acl check" in refused.value.hint


def no_answer(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Have each name looked up in vain."""

    def look_up(*_: object) -> NoReturn:
        raise socket.gaierror(code, "No answer")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


RULES = ("acl deny all create connection host=h1.example", "acl allow all all")


def test_a_name_that_is_not_known_is_an_error_of_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_answer(monkeypatch, socket.EAI_NONAME)
    with pytest.raises(CannotStart, match="line 1: the host 'h1.example' is no add") as refused:
        load_access_list(settings(tmp_path, *RULES))
    assert refused.value.code == CONFIG


def test_a_name_that_nobody_can_look_up_now_is_no_mistake_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_answer(monkeypatch, socket.EAI_AGAIN)
    with pytest.raises(CannotStart, match="the.acl: .*'h1.example' are not known now") as refused:
        load_access_list(settings(tmp_path, *RULES))
    assert refused.value.code == UNAVAILABLE and "try again" in refused.value.hint


def test_names_of_hosts_are_those_of_this_machine(tmp_path: Path) -> None:
    assert "127.0.0.1" in resolve("localhost") and resolve("a" * 70) == []
    found, _ = load_access_list(
        settings(tmp_path, "acl deny all create connection host=localhost", "acl allow all all")
    )
    assert found is not None and not found.connection("ann", "127.0.0.1").decision.allows


@pytest.mark.parametrize("command", [[], ["--check"]])
def test_qpid_3_a_broker_does_not_start_with_a_list_that_it_cannot_enforce(
    tmp_path: Path, command: list[str]
) -> None:
    given = settings(tmp_path, "acl deny all", "acl allow all all")
    users = users_file(tmp_path / "users", {"ann": "ann"})
    for path in (given.acl_file, str(tmp_path / "nowhere")):
        code, _, said = run("--users-file", users, "--acl-file", path, "--port", "0", *command)
        assert code == CONFIG and f"acl-file {path}" in said and "next: " in said
        assert ("line 1: a rule is: acl DECISION" in said) == (path == given.acl_file)
