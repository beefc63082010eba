"""`qpid-ha check` and `qpid-ha lag`: what each answers, in which form and with which exit code."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qpidha.cli.broker.check import ALL, CHECKS
from tests.cli.conftest import STATUS, FakeBroker
from tests.cli.test_messages import Run
from tests.system.credentials import Authority

QUIET = {"unsafe_queues": 0, "unreplicated_messages": 3, "refuses": "", "withholds": ""}


def member(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "address": f"{name}:5672",
        "system_id": name,
        "state": "ready",
        "connected": True,
        "in_sync": True,
        "sequence": 1204,
        **more,
    }


@pytest.fixture
def primary(broker: FakeBroker) -> FakeBroker:
    """A primary of three brokers, which answer all."""
    own = member("b1", address=STATUS["address"], system_id=STATUS["system_id"], state="active")
    broker.answers["status"]["members"] = [own, member("b2"), member("b3")]
    broker.answers["statistics"] = dict(QUIET)
    return broker


def members(broker: FakeBroker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = broker.answers["status"]["members"]
    return found


def test_what_is_good_is_ok_in_every_form(primary: FakeBroker, qpid_ha: Run) -> None:
    for what in ("alive", "primary", "ready", "synced", "quorum", "lag", "disk", "all"):
        said = qpid_ha("check", what, "-b", primary.socket)
        assert (said.code, said.err) == (0, "") and " ok " in said.out, what
        found = json.loads(qpid_ha("check", what, "-b", primary.socket, "-o", "json").out)
        assert found["level"] == "ok", found
    said = qpid_ha("check", "all", "-b", primary.socket, "--format", "nagios")
    assert said.code == 0 and said.out == (
        "QPIDHA OK - alive: b1 answers; ready: b1 is active; synced: b1 active, 2/2 backups ready, "
        "0 unsafe queues; quorum: 1 of 1 brokers answer, a majority is 1; lag: b2 0 records "
        "behind; b3 0 records behind; disk: b1 has room | epoch=2 ready=2 unsafe=0 unreplicated=3 "
        "answering=1 brokers=1 lag=0;10000;100000\n"
    )


@pytest.mark.parametrize(
    ("change", "what", "code", "told"),
    [
        ({"state": "recovering"}, "primary", 0, "b1 is recovering"),
        ({"state": "recovering"}, "ready", 1, "b1 is recovering"),
        ({"state": "catchup", "primary": None}, "ready", 1, "b1 is catchup"),
        ({"state": "ready", "primary": None}, "primary", 2, "b1 is ready"),
        ({"state": "ready", "primary": None}, "synced", 2, "no primary"),
        ({"state": "ready", "primary": None}, "lag", 2, "no primary"),
        ({"state": "standalone", "members": []}, "synced", 0, "in no cluster"),
        ({"state": "standalone", "members": []}, "all", 0, "in no cluster"),
    ],
)
def test_states(
    primary: FakeBroker, qpid_ha: Run, change: dict[str, Any], what: str, code: int, told: str
) -> None:
    primary.answers["status"] |= change
    said = qpid_ha("check", what, "-b", primary.socket, "--format", "nagios")
    assert said.code == code and told in said.out
    plain = qpid_ha("check", what, "-b", primary.socket)
    assert plain.code == bool(code)


def test_backups_that_are_missing_or_behind(primary: FakeBroker, qpid_ha: Run) -> None:
    def nagios(*words: str) -> tuple[int, str]:
        said = qpid_ha("check", *words, "-b", primary.socket, "--format", "nagios")
        return said.code, said.out

    members(primary)[1]["sequence"] = 1100
    assert nagios("lag") == (
        0,
        "QPIDHA OK - lag: b2 104 records behind; b3 0 records behind | lag=104;10000;100000\n",
    )
    assert nagios("lag", "--warn", "100")[0] == 1
    assert nagios("lag", "--crit", "100")[0] == 2, "the warning comes with it"
    members(primary)[1] |= {"state": "unreachable", "connected": False, "in_sync": False}
    code, out = nagios("synced")
    assert code == 1 and "1/2 backups ready" in out and "b2 is unreachable, not in sync" in out
    code, out = nagios("lag")
    assert code == 2 and "b2 is not connected" in out
    members(primary)[2]["in_sync"] = False
    primary.answers["statistics"]["unsafe_queues"] = 7
    code, out = nagios("synced")
    assert code == 2 and "0/2 backups ready, 7 unsafe queues" in out
    code, out = nagios("all")
    assert code == 2 and out.startswith("QPIDHA CRITICAL - synced: b1") and "alive:" not in out


def test_a_queue_has_thresholds(primary: FakeBroker, qpid_ha: Run) -> None:
    primary.answers["list_queues"] = [{"name": "q|", "messages": 50, "consumers": 0}]

    def check(*words: str) -> tuple[int, str]:
        said = qpid_ha("check", "queue", "q|", *words, "-b", primary.socket, "--format", "nagios")
        return said.code, said.out

    assert check() == (
        0,
        "QPIDHA OK - queue: queue q/ has 50 messages and 0 consumers | messages=50;; consumers=0\n",
    )
    assert check("--warn", "50", "--crit", "60")[0] == 1
    assert check("--warn", "10", "--crit", "50")[0] == 2
    assert check("--crit", "50")[0] == 2
    assert primary.asked[-1][1]["name"] == "q|"
    primary.answers["list_queues"] = []
    assert check()[0] == 2


def test_a_full_disk_is_critical_and_no_credit_is_a_warning(
    primary: FakeBroker, qpid_ha: Run
) -> None:
    primary.answers["statistics"]["withholds"] = "memory is at its limit"
    said = qpid_ha("check", "disk", "-b", primary.socket, "--format", "nagios")
    assert said.code == 1 and "memory is at its limit" in said.out
    primary.answers["statistics"]["refuses"] = "2 MiB left for data-dir"
    said = qpid_ha("check", "disk", "-b", primary.socket, "--format", "nagios")
    assert said.code == 2 and "2 MiB left" in said.out


def test_who_does_not_answer_is_an_answer_for_nagios_only(qpid_ha: Run, tmp_path: Path) -> None:
    gone = str(tmp_path / "none.sock")
    assert qpid_ha("check", "alive", "-b", gone).code == 69
    for what, code in (("alive", 2), ("all", 2), ("synced", 3)):
        said = qpid_ha("check", what, "-b", gone, "--format", "nagios")
        assert said.code == code and said.out.startswith("QPIDHA ") and not said.err
        assert said.out.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("sync",), "no check 'sync'"),
        (("queue",), "check queue needs name"),
        (("ready", "x"), "check ready has no name"),
        (("ready", "--warn", "1"), "no --warn"),
        (("lag", "--warn", "9", "--crit", "3"), "wrong way round"),
        (("all", "--format", "xml"), "'xml' is not known"),
    ],
)
def test_wrong_words(primary: FakeBroker, qpid_ha: Run, words: tuple[str, ...], told: str) -> None:
    said = qpid_ha("check", *words, "-b", primary.socket)
    assert said.code == 2 and told in said.err and "Try: " in said.err


def test_a_check_that_cannot_be_made_is_unknown_and_the_others_are(
    primary: FakeBroker, qpid_ha: Run
) -> None:
    primary.answers["statistics"] = Exception(
        {"condition": "amqp:unauthorized-access", "message": "you may not"}
    )
    said = qpid_ha("check", "all", "-b", primary.socket, "--format", "nagios")
    assert said.code == 3 and "disk: you may not" in said.out
    assert qpid_ha("check", "disk", "-b", primary.socket).code == 77


def test_every_check_of_all_is_one() -> None:
    assert set(ALL) < set(CHECKS)


@pytest.fixture
def days() -> int:
    return 40


@pytest.fixture
def secure(tmp_path: Path, days: int) -> Iterator[tuple[str, str]]:
    """The address of a port with TLS, and who signed its certificate."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("127.0.0.1", days=days)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    stream, _ = server.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(stream, server_side=True).close()
                except OSError:
                    stream.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"amqps://127.0.0.1:{server.getsockname()[1]}", str(authority.certificate)


def test_a_certificate_is_good_for_some_days(secure: tuple[str, str], qpid_ha: Run) -> None:
    address, trusted = secure

    def check(*words: str) -> tuple[int, str]:
        said = qpid_ha("check", "cert", "-b", address, "--format", "nagios", *words)
        return said.code, said.out

    known = ("--ssl-trusted", trusted)
    code, out = check(*known)
    assert code == 0 and "good for 39 days | days=39;30:;7:" in out
    assert check(*known, "--warn", "40")[0] == 1
    assert check(*known, "--warn", "50", "--crit", "40")[0] == 2
    assert check(*known, "--crit", "40")[0] == 2
    code, out = check()
    assert code == 3 and "--ssl-trusted" in out


@pytest.mark.parametrize("days", [-1])
def test_a_certificate_whose_time_is_over_is_critical(
    secure: tuple[str, str], qpid_ha: Run
) -> None:
    address, trusted = secure
    words = ("check", "cert", "-b", address, "--ssl-trusted", trusted, "--format", "nagios")
    said = qpid_ha(*words)
    assert said.code == 2 and "expired" in said.out


def test_without_tls_there_is_no_certificate(qpid_ha: Run) -> None:
    said = qpid_ha("check", "cert", "-b", "127.0.0.1:1", "--format", "nagios")
    assert said.code == 3 and "amqps://" in said.out


def test_lag_shows_backups_and_queues(primary: FakeBroker, qpid_ha: Run) -> None:
    members(primary)[1]["sequence"] = 1200
    members(primary)[2] |= {"connected": False, "state": "unreachable", "in_sync": False}
    primary.answers["list_queues"] = [
        {"name": "q", "messages": 5, "unreplicated": 2},
        {"name": "r", "messages": 5, "unreplicated": 0},
    ]
    said = qpid_ha("lag", "-b", primary.socket)
    assert said.code == 0
    assert [line.split() for line in said.out.splitlines()] == [
        ["NAME", "ADDRESS", "STATE", "IN", "SYNC", "BEHIND"],
        ["b2", "b2:5672", "ready", "yes", "4"],
        ["b3", "b3:5672", "unreachable", "no", "-"],
        ["QUEUE", "MESSAGES", "UNREPLICATED"],
        ["q", "5", "2"],
    ]
    found = json.loads(qpid_ha("lag", "r", "-b", primary.socket, "-o", "json").out)
    assert found["backups"][0]["behind"] == 4 and len(found["queues"]) == 2
    primary.answers["list_queues"] = []
    assert qpid_ha("lag", "none", "-b", primary.socket).code == 1
    primary.answers["status"] |= {"state": "ready", "primary": None}
    assert qpid_ha("lag", "-b", primary.socket).code == 1
