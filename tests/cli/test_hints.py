"""What is said when a broker cannot be reached, trusted or logged in to, and what to do next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from qpidha.bench.load_processes import LoadProcess
from qpidha.bench.run import Bench
from qpidha.cli.broker import messages
from qpidha.client.endpoint import Tls
from tests.cli.conftest import Said
from tests.patience import STATE
from tests.system.cluster import held_ports
from tests.system.credentials import Authority, users_file

Run = Callable[..., Said]
ROOT = Path(__file__).parent.parent.parent


class Served(NamedTuple):
    """A broker with a plain port where everybody may in, and one with TLS."""

    plain: str
    secure: str
    trusted: str
    strict: str
    """Where one must log in."""


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Two brokers: one without authentication and with TLS, and one with users."""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name, ExitStack() as stack:
        directory = Path(name)
        authority = Authority(directory)
        certificate, key = authority.issue("broker", "DNS:localhost")
        users = users_file(directory / "users", {"ann": "ann"})
        ports = [str(port) for port in stack.enter_context(held_ports(3))]
        tls = ["--ssl-cert", str(certificate), "--ssl-key", str(key), "--ssl-port", ports[1]]
        with (
            _broker(
                *("--port", ports[0], *tls, "--max-message-size", "100k"),
                *("--admin-socket", f"{name}/a.sock"),
            ),
            _broker("--port", ports[2], "--users-file", str(users), "--admin-socket", f"{name}/b"),
        ):
            yield Served(
                f"127.0.0.1:{ports[0]}",
                ports[1],
                str(authority.certificate),
                f"127.0.0.1:{ports[2]}",
            )


class _broker:
    """A daemon that serves, for a block."""

    def __init__(self, *options: str) -> None:
        self.read, write = os.pipe()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "qpidha.runtime.daemon", "--interface", "127.0.0.1"),
                "--no-data-dir",
                *(*options, "--ready-fd", str(write)),
            ],
            pass_fds=(write,),
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        os.close(write)

    def __enter__(self) -> None:
        assert os.read(self.read, 64), "the broker did not start"

    def __exit__(self, *ignored: object) -> None:
        os.close(self.read)
        self.process.terminate()
        self.process.wait(STATE)


COMMANDS = [("status",), ("send", "q", "x"), ("receive", "q")]


@pytest.mark.parametrize("command", COMMANDS)
def test_first_use_m3_a_plain_client_of_a_tls_port_is_told_of_tls(
    served: Served, qpid_ha: Run, command: tuple[str, ...]
) -> None:
    said = qpid_ha(*command, "-b", f"127.0.0.1:{served.secure}", "--timeout", "4")
    assert said.code == 69 and "without a word, as a port for TLS does" in said.err
    assert said.err.endswith(f"Try: -b amqps://127.0.0.1:{served.secure}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_first_use_m4_a_certificate_for_another_name_is_not_called_untrusted(
    served: Served, qpid_ha: Run, command: tuple[str, ...]
) -> None:
    at = ("-b", f"amqps://127.0.0.1:{served.secure}", "--ssl-trusted", served.trusted)
    said = qpid_ha(*command, *at)
    assert said.code == 69 and "is not for this address" in said.err
    assert "an address that is in the certificate" in said.err and "--ssl-trusted" not in said.err
    untrusted = qpid_ha(*command, "-b", f"amqps://localhost:{served.secure}")
    assert untrusted.code == 69 and "Try: --ssl-trusted FILE" in untrusted.err


def test_first_use_m5_an_unknown_host_is_not_asked_whether_its_broker_runs(qpid_ha: Run) -> None:
    said = qpid_ha("status", "-b", "no-such-host.invalid")
    assert said.code == 69 and "is the name right?" in said.err and "local status" not in said.err


def test_first_use_m6_a_wrong_password_is_told_from_none(served: Served, qpid_ha: Run) -> None:
    none = qpid_ha("status", "-b", served.strict)
    assert none.code == 77 and "Try: --user NAME, with the password in" in none.err
    wrong = qpid_ha("status", "-b", served.strict, "--user", "ann", "--password", "bob")
    assert wrong.code == 77 and "refused user 'ann'" in wrong.err
    assert "Try: another user, password or --sasl-mechanism" in wrong.err


def test_first_use_m7_options_about_safety_that_have_no_effect_are_told(
    served: Served, qpid_ha: Run
) -> None:
    given = ("--user", "ann", "--password", "x", "--ssl-trusted", served.trusted)
    said = qpid_ha("queue", "list", "-b", served.plain, *given)
    assert said.code == 0 and "user ann is not used" in said.err and "there is no TLS" in said.err
    assert said.err.count("warning: ") == 2
    assert qpid_ha("queue", "list", "-b", served.plain, *given, "-q").err == ""
    right = ("-b", f"amqps://localhost:{served.secure}", "--ssl-trusted", served.trusted)
    assert "warning" not in qpid_ha("queue", "list", *right).err


def test_first_use_m8_the_benchmark_logs_in_and_speaks_tls_as_other_commands_do(
    served: Served, qpid_ha: Run, tmp_path: Path
) -> None:
    bench = ("bench", "--seconds", "10", "-m", "20", "-o", "json", "--dir", str(tmp_path))
    secure = ("-b", f"amqps://localhost:{served.secure}", "--ssl-trusted", served.trusted)
    for at in (secure, ("-b", served.strict, "--user", "ann", "--password", "ann")):
        said = qpid_ha(*bench, *at)
        assert said.code == 0 and json.loads(said.out)["received"] == 20, said
    assert "ann" not in (tmp_path / "clients.log").read_text()


def test_first_use_m8_a_client_of_the_benchmark_that_ends_early_says_why(
    served: Served, qpid_ha: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidha.bench.run.tls_of", lambda options: Tls())
    secure = ("-b", f"amqps://localhost:{served.secure}", "--ssl-trusted", served.trusted)
    said = qpid_ha("bench", "-m", "20", "--dir", str(tmp_path), *secure)
    assert said.code == 1 and "the receiver ended early" in said.err
    assert "certificate" in said.err and "manager" not in said.err


def test_first_use_m14_an_interrupt_says_how_far_it_came(
    served: Served, qpid_ha: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def sending(self: Any, client: Any) -> None:
        self.accepted = 1
        raise KeyboardInterrupt

    def receiving(self: Any, command: Any, client: Any) -> None:
        self.count = 3
        raise KeyboardInterrupt

    def measuring(self: Any, queue: str) -> None:
        sender = LoadProcess(self.stream, ["sender", "--help"], log=tmp_path / "log")
        sender.last = {"accepted": 7000}
        self.processes.append(sender)
        raise KeyboardInterrupt

    monkeypatch.setattr(messages._Sending, "run", sending)
    monkeypatch.setattr(messages._Receiving, "run", receiving)
    monkeypatch.setattr(Bench, "_measure", measuring)
    at = ("-b", served.plain)
    assert qpid_ha("send", "q", "a", "b", *at) == Said(130, "", "interrupted: 1 of 2 accepted\n")
    assert qpid_ha("receive", "q", *at) == Said(130, "", "interrupted: 3 received\n")
    said = qpid_ha("bench", "--dir", str(tmp_path / "bench"), *at)
    assert said == Said(130, "", "interrupted: accepted 7,000\n")


def test_first_use_m30_a_message_that_is_too_large_is_refused_and_not_sent_again(
    served: Served, qpid_ha: Run
) -> None:
    at = ("-b", served.plain)
    assert qpid_ha("queue", "add", "large", *at).code == 0
    said = qpid_ha("send", "large", "-m", "1", "--content-size", "102400", *at)
    assert said.code == 1 and "is too large: the broker takes 102400 bytes" in said.err
    assert "Try: smaller messages, or a larger max-message-size" in said.err
    assert qpid_ha("send", "large", "small", *at).code == 0


def test_the_password_of_a_key_comes_from_a_file(qpid_ha: Run, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("guest")
    own = ("--ssl-certificate", str(certificate), "--ssl-key", str(authority.lock(key, "secret")))
    ask = ("status", "-b", "amqps://localhost:1", *own)
    said = qpid_ha(*ask)
    assert said.code == 65 and "the key needs a password" in said.err
    assert "Try: --ssl-key-password-file FILE" in said.err
    file = tmp_path / "password"
    for content, code, says in (
        (None, 66, "No such file"),
        ("\n", 65, "is empty"),
        ("wrong\n", 65, "the key has another password"),
        ("secret\n", 69, "localhost:1"),  # Nobody listens there.
    ):
        if content is not None:
            file.write_text(content)
        said = qpid_ha(*ask, "--ssl-key-password-file", str(file))
        assert said.code == code and says in said.err, said.err


def test_a_file_that_is_no_certificate_is_called_so(qpid_ha: Run, tmp_path: Path) -> None:
    (tmp_path / "odd.pem").write_text("odd\n")
    for option in ("--ssl-trusted", "--ssl-certificate"):
        said = qpid_ha("status", "-b", "amqps://localhost:1", option, str(tmp_path / "odd.pem"))
        assert said.code == 65 and "_ssl.c" not in said.err
        assert "PEM form" in said.err or "no certificate is in it" in said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-b", ""), "option -b has an empty value"),
        (("--broker=",), "option --broker has an empty value"),
        (("-b", "::1:31000"), "an IPv6 address stands in brackets"),
        (("-b", "amqp://fe80::1"), "an IPv6 address stands in brackets"),
    ],
)
def test_an_address_that_is_none_is_a_usage_error(
    qpid_ha: Run, words: tuple[str, ...], says: str
) -> None:
    said = qpid_ha("status", *words)
    assert said.code == 2 and says in said.err
