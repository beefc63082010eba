"""The options that Qpid's tools share: read as Qpid's tools read them, and what a tool says where
it cannot do its work, at real brokers.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qpidha.cli.main import main
from qpidha.tools import qpid_config
from qpidha.tools.connection_options import (
    Connecting,
    Parser,
    ToolError,
    add_connection_options,
    add_output_option,
    run,
)
from tests.cli.test_login import serving
from tests.documents import ROOT
from tests.system.cluster import Cluster, held_ports
from tests.system.credentials import Authority

Start = Callable[..., Cluster]


def tool(*words: str, separator: str = ": ", method: str = "ping") -> int:
    """Run a tool that asks the broker one thing and prints its address."""

    def work(arguments: list[str]) -> int:
        parser = Parser(prog="qpid-tool", usage="%prog [options]")
        add_connection_options(parser, broker_addr=True)
        add_output_option(parser)
        options, rest = parser.parse_args(arguments)
        connecting = Connecting.read(parser, options)
        brokers = connecting.brokers(options.broker_addr, options.broker)
        with connecting.management(brokers) as link:
            print(*rest, link.call(method, {"name": "nowhere"} if method[0] == "d" else {}))
        return 0

    return run(work, list(words), separator=separator)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of this machine alone."""
    with serving(str(tmp_path_factory.mktemp("broker") / "a.sock"), "--auth", "no") as found:
        yield found


@pytest.mark.parametrize(
    "words",
    [
        ("-b", "{}"),
        ("-b{}",),
        ("--broker={}",),
        ("-b", "{}", "--time", "7", "--ssl-tru", ""),
        ("-a", "{}"),
        ("--broker-a", "{}"),
        ("-b", "amqp:{}"),
        ("-b", "amqp:tcp:{}"),
        ("-b", "amqp://{}"),
        ("-b", "127.0.0.1:1,{}"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_the_broker_is_named_as_scripts_name_it(
    address: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], first: bool
) -> None:
    given = [word.format(address) for word in words]
    assert tool(*(["hello", *given] if first else [*given, "hello"])) == 0
    assert capsys.readouterr().out == "hello {'state': 'standalone'}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ssl-key", "k"], "missing '--ssl-certificate' (required by '--ssl-key')"),
        (["-t", "soon"], "option -t: invalid integer value: 'soon'"),
        (["--timeout=-1"], "option --timeout: -1 is less than 0"),
        (["-b"], "option requires 1 argument"),
        (["--brok", "x"], "ambiguous option: --brok (--broker, --broker-addr?)"),
        (["--nothing"], "no such option: --nothing"),
        (["-o", "xml"], "option -o: invalid choice: 'xml' (choose from 'text', 'json')"),
    ],
)
def test_a_wrong_line_ends_with_2(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        tool(*words)
    error = capsys.readouterr().err
    assert error.startswith("Usage: qpid-tool [options]\n\nqpid-tool: error: ")
    assert said in error


def test_failures_are_one_line_on_standard_output_and_1(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool("-b", "127.0.0.1:1") == 1
    said = capsys.readouterr().out
    assert said.startswith("Failed: ConnectError: ") and said.count("\n") == 1
    assert tool("-b", "127.0.0.1:1", separator=" - ") == 1
    assert capsys.readouterr().out.startswith("Failed: ConnectError - ")
    assert tool("-b", "host:port") == 1
    assert capsys.readouterr().out.startswith("Failed: ConnectionError: ")
    assert tool("-b", address, method="delete_queue") == 1
    assert capsys.readouterr().out.startswith(
        "Failed: Exception: Exception from Agent: {'error_code': 7, 'error_text': 'not-found: "
    )
    assert tool("-b", "127.0.0.1:1", "--sasl-service-name", "qpidd") == 1  # It needs GSSAPI.
    assert capsys.readouterr().out.startswith("Failed: ConnectError: ")


def test_an_empty_address_is_not_the_usual_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool("-b", "") == 1
    assert capsys.readouterr().out.startswith("Failed: ConnectionError: no broker is named")


def test_a_name_that_is_no_text_is_a_failure(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert qpid_config.main(["add", "queue", "\udcff", "-b", address]) == 1
    assert capsys.readouterr().out.startswith("Failed: UnicodeEncodeError: ")


@pytest.mark.parametrize("where", ["/dev/full", ""])
def test_output_that_cannot_be_written_is_told_on_standard_error(address: str, where: str) -> None:
    call = [sys.executable, "-m", "qpidha.tools.qpid_config", "exchanges", "-b", address]
    line = f"{shlex.join(call)} >{where or '&-'}"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr.partition(":")[0]) == (1, "cannot write")


def test_what_is_no_broker_or_does_not_answer_is_a_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert tool("-b", f"127.0.0.1:{silent.getsockname()[1]}", "-t", "1") == 1
    assert capsys.readouterr().out.startswith("Failed: Timeout: ")


def test_a_broker_is_trusted_by_who_signed_its_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("localhost")
    words = ("--ssl-cert", str(certificate), "--ssl-key", str(key))
    with (
        held_ports(1) as (port,),
        serving(str(tmp_path / "a.sock"), "--auth", "no", *words, "--ssl-port", str(port)),
    ):
        trusted = ("--ssl-trusted", str(authority.certificate))
        for at in (f"amqps://localhost:{port}", f"ssl:localhost:{port}", f"amqps:localhost:{port}"):
            assert tool("-b", at, *trusted) == 0
        assert tool("-b", f"amqps://localhost:{port}") == 1
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith("Failed: ConnectError: ") and "Try: --ssl-trusted FILE" in said
        assert tool("-b", f"ssl:localhost:{port}", "--ssl-trusted", "/nowhere") == 1


def test_a_user_is_in_the_address_or_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "users"
    (tmp_path / "password").write_text("s/cret")
    words = ["user", "add", "ann", "--users-file", str(users), "-q"]
    assert main([*words, "--password-file", str(tmp_path / "password")]) == 0
    with serving(str(tmp_path / "a.sock"), "--users-file", str(users)) as at:
        assert tool("-b", f"ann/s%2fcret@{at}") == 0
        assert tool("-b", f"amqp:ann:s%2fcret@tcp:{at}") == 0
        assert tool("-b", f"ann/wrong@{at}") == 1
        said = capsys.readouterr().out.splitlines()[-1]
        assert said.startswith("Failed: AuthenticationFailure: ")
        assert said.endswith("Try: another user, password or --sasl-mechanism")
        assert tool("-b", f"ann/s%2fcret@{at}", "--sasl-mechanism", "GSSAPI") == 1
        monkeypatch.setenv("QPIDHA_USER", "ann")
        monkeypatch.setenv("QPIDHA_PASSWORD", "s/cret")
        assert tool("-b", at) == 0
        # An administrator would do, and is not asked for: a client is let in as one.
        assert tool("-b", at, "--ha-admin") == 0


def test_a_backup_lets_in_administrators_only(
    a_cluster: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = a_cluster(2)
    primary, backup = cluster.addresses
    cluster.wait_settled(0)
    assert tool("-b", backup) == 1
    assert capsys.readouterr().out.startswith("Failed: ConnectError: ")
    assert tool("-b", backup, "--ha-admin") == 0
    assert capsys.readouterr().out == "{'state': 'ready'}\n"
    assert tool("-b", f"{backup},{primary}") == 0
    assert capsys.readouterr().out == "{'state': 'active'}\n"


def test_what_nobody_expected_is_not_hidden() -> None:
    def work(arguments: list[str]) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(work, [])


def test_a_tool_says_its_own_kind_of_failure(capsys: pytest.CaptureFixture[str]) -> None:
    def work(arguments: list[str]) -> int:
        raise ToolError("InvalidOption", "no\x1b[31m")

    assert run(work, []) == 1
    assert capsys.readouterr().out == "Failed: InvalidOption: no\\x1b[31m\n"
