"""`qpid-ha acl`: files looked through, and what a broker enforces."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from qpidha.management.acl_file import read
from qpidha.model.exit_codes import DATA_ERROR, NO_INPUT, UNAVAILABLE
from tests.cli.conftest import FakeBroker, Said

Run = Callable[..., Said]
RULES = """\
# who may do what
group shop ann bob@QPID
acl allow shop create queue name=shop* durable=true
acl allow shop create queue name=shop1 durable=true
acl deny all create connection host=10.0.0.1,10.0.0.9
quota connections 5 shop
acl deny-log all all
"""
SHOWN = """\
group shop: ann bob
LINE  DECISION  USERS    ACTION  OBJECT  PROPERTIES
3     allow     ann bob  create  queue   name=shop* durable=true
4     allow     ann bob  create  queue   name=shop1 durable=true
all else: deny-log (line 7)
LINE  DECISION  USERS  HOST
5     deny      all    10.0.0.1,10.0.0.9
connections: ann 5, bob 5
"""


def test_a_good_file_is_shown(qpid_ha: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text(RULES)
    said = qpid_ha("acl", "check", str(file))
    assert (said.code, said.out, said.err) == (0, SHOWN, "")
    said = qpid_ha("acl", "check", str(file), "-o", "json")
    found = json.loads(said.out)
    assert said.code == 0 and found["last_word"] == {"line": 7, "decision": "deny-log"}
    assert found["troubles"] == []


def test_what_is_odd_is_a_warning(qpid_ha: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("acl allow all all queue\nacl deny ann purge queue\nacl allow all move queue\n")
    said = qpid_ha("acl", "check", str(file))
    assert said.code == 0
    assert said.out.splitlines()[:3] == [
        f"{file}: warning: line 2: never decides, as line 1 fits whatever it fits",
        f"{file}: warning: line 3: can never fit: move queue is never asked",
        f"{file}: warning: line 3: never decides, as line 1 fits whatever it fits",
    ]


def test_every_error_is_shown_by_its_line(qpid_ha: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text("acl allow\nacl allow all purge queue\nacl alow all purge\n")
    said = qpid_ha("acl", "check", str(file))
    assert said.code == DATA_ERROR and "2 lines are not understood" in said.err
    assert [line.partition(": line ")[2][:2] for line in said.out.splitlines()] == ["1:", "3:"]
    said = qpid_ha("acl", "check", str(file), "-o", "json")
    assert said.code == DATA_ERROR
    assert [each["line"] for each in json.loads(said.out)["troubles"]] == [1, 3]


def test_a_host_that_nobody_can_look_up_now(
    qpid_ha: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*_: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_AGAIN, "No answer")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    file = tmp_path / "rules"
    file.write_text("acl deny all create connection host=h1\n")
    said = qpid_ha("acl", "check", str(file))
    assert said.code == UNAVAILABLE and "'h1' are not known now" in said.err


def test_a_file_that_is_not_there(qpid_ha: Run, tmp_path: Path) -> None:
    said = qpid_ha("acl", "check", str(tmp_path / "rules"))
    assert said.code == NO_INPUT and "cannot read" in said.err


def test_what_a_broker_enforces_is_shown(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["acl"] = read(RULES, realm="QPID")[0].report()
    assert qpid_ha("acl", "show", "-b", broker.socket).out == SHOWN
    found = json.loads(qpid_ha("acl", "show", "-b", broker.socket, "-o", "json").out)
    assert found["groups"] == {"shop": ["ann", "bob"]}
    broker.answers["acl"] = {"file": ""}
    assert qpid_ha("acl", "show", "-b", broker.socket).out.startswith("no acl-file: ")


def test_reload_reads_all_again(broker: FakeBroker, qpid_ha: Run) -> None:
    broker.answers["reload"] = {"warnings": []}
    said = qpid_ha("acl", "reload", "-b", broker.socket)
    assert said.code == 0 and broker.asked == [("reload", {})]
