"""Users of a users file at a real broker where everybody must log in."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qpidha.cli.main import main
from tests.cli.conftest import Said
from tests.patience import STATE
from tests.system.cluster import held_ports

Run = Callable[..., Said]
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with the users admin and ann, whose names are their passwords."""
    with (
        tempfile.TemporaryDirectory(prefix="qpidha-") as directory,
        pytest.MonkeyPatch.context() as patch,
    ):
        users = ["--users-file", f"{directory}/users"]
        for name in ("admin", "ann"):
            patch.setattr(sys, "stdin", io.StringIO(name))
            words = ["user", "add", name, *users, "--password-stdin", "-q"]
            assert main(words) == 0
        plain = ("--sasl-plain-without-tls", "yes")
        with serving(f"{directory}/a.sock", *users, "--ha-username", "admin", *plain) as found:
            yield found


@contextmanager
def serving(admin: str, *options: str) -> Iterator[str]:
    """A broker of this machine alone, with an admin socket."""
    read, write = os.pipe()
    with held_ports(1) as (port,):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "qpidha.runtime.daemon", "--interface", "127.0.0.1"),
                *(() if "--data-dir" in options else ("--no-data-dir",)),
                *("--port", str(port), "--admin-socket", admin, "--ready-fd", str(write), *options),
            ],
            pass_fds=(write,),
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        os.close(write)
        try:
            assert os.read(read, 64), "the broker did not start"
            yield f"127.0.0.1:{port}"
        finally:
            os.close(read)
            process.terminate()
            process.wait(STATE)


@pytest.fixture
def at(address: str, qpid_ha: Run) -> Run:
    return lambda user, *words: qpid_ha(*words, "-b", f"amqp://{user}@{address}")


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["ann", "admin"])
def test_everybody_who_logs_in_may_use_a_primary(at: Run, user: str, mechanism: str) -> None:
    login = (f"{user}:{user}", "--sasl-mechanism", mechanism)
    assert at(*login, "ping") == Said(0, "", "")
    assert at(*login, "queue", "add", f"q-{user}-{mechanism}").code == 0
    assert (
        json.loads(at(*login, "queue", "list", f"q-{user}-{mechanism}", "-o", "json").out)[
            "queues"
        ][0]["messages"]
        == 0
    )


def test_waiting_logs_in_as_any_other_command_does(at: Run) -> None:
    assert at("ann:ann", "wait", "--for", "state=standalone", "--sasl-mechanism", "PLAIN").code == 0
    assert (
        at("ann:ann", "wait", "--for", "state=standalone", "--sasl-mechanism", "EXTERNAL").code
        == 77
    )


def test_only_administrators_command_a_broker(at: Run) -> None:
    said = at("ann:ann", "promote", "--cluster-manager")
    assert said.code == 77 and "Try: log in as the user that ha-username names [" in said.err
    said = at("admin:admin", "promote", "--cluster-manager")
    assert said.code == 1 and "not in a cluster" in said.err


@pytest.mark.parametrize("login", ["ann:wrong", "nobody:x"])
def test_a_wrong_password_or_name_is_77(at: Run, login: str) -> None:
    said = at(login, "status")
    assert said.code == 77 and said.out == "" and "refused user" in said.err


def test_code_d1_without_users_local_programs_use_queues_and_administer_by_the_socket(
    qpid_ha: Run,
) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="qpidha-") as directory,
        serving(f"{directory}/a.sock") as address,
    ):
        at = ("-b", address)
        assert qpid_ha("queue", "add", "q", *at) == Said(0, "", "")
        assert qpid_ha("send", "q", "x", *at).code == 0
        assert qpid_ha("receive", "q", "-m", "1", *at).out == "x\n"
        assert qpid_ha("status", *at).out == "standalone\n"
        said = qpid_ha("promote", "--cluster-manager", *at)
        assert said.code == 77 and "promote is for administrators" in said.err
        assert "this broker has no users" in said.err
        assert "Try: use its admin socket [" in said.err
        said = qpid_ha("promote", "--cluster-manager", "-b", f"{directory}/a.sock")
        assert said.code == 1 and "not in a cluster" in said.err
