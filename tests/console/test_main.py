"""A console beside a daemon: what it answers while the daemon lives, hangs, is dead and is back."""

from __future__ import annotations

import http.client
import json
import re
import resource
import signal
import socket
import ssl
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from qpidha.console.connections import MOST
from qpidha.console.main import main, parser
from qpidha.pipeline.workload.fault_proxies import FaultProxies
from tests.console.conftest import HEARTBEAT, Pair
from tests.console.consoles import PAGE, Answer, Console
from tests.console.streams import Stream
from tests.patience import STATE
from tests.runtime.daemons import Running
from tests.system.cluster import wait_for
from tests.system.credentials import Authority, users_file

TOKEN = "0123456789abcdef"


def test_endpoints_answer_get_and_head(pair: Pair) -> None:
    answer = pair.console.ask_broker("/readyz")
    assert answer.status == 200 and answer.text.endswith(" is standalone\n")
    assert pair.console.ask("/primary").status == 503
    wait_for(lambda: pair.console.ask("/readyz", "HEAD")[:2], (200, "").__eq__)
    assert pair.console.ask("/healthz").text.endswith(" answers\n")
    verbose = pair.console.ask_broker("/readyz?verbose")
    assert verbose.status == 200 and "[+]publishing ok\n" in verbose.text


def test_what_is_wrong_is_a_problem_with_a_hint(pair: Pair) -> None:
    def problem(answer: Answer) -> tuple[int, str]:
        assert answer.headers["content-type"] == "application/problem+json"
        body = json.loads(answer.text)
        assert body["status"] == answer.status
        return answer.status, body["detail"]

    console = pair.console
    assert problem(console.ask("/nothing"))[0] == 404
    assert problem(console.ask("/primary", "POST"))[0] == 405
    assert problem(console.ask("/primary?broker=b9")) == (404, "no broker b9 is watched")
    assert problem(console.ask("/backup?lag=x"))[1].startswith("lag: ")
    assert problem(console.ask("/backup?age=2x")) == (400, "age=2x: x is not a unit of time")
    for query, why in (("", "a family is to be named"), ("?family=x", "there is no family x")):
        answer = console.ask(f"/metrics/detailed{query}")
        assert problem(answer) == (400, why)
        assert json.loads(answer.text)["hint"] == "?family=queue"
    assert problem(console.ask("/primary", Host="evil.example"))[0] == 421


def test_a_daemon_that_hangs_is_told_from_one_that_lives(pair: Pair) -> None:
    # One that was never heard does not hang, and no other test may have asked before.
    wait_for(lambda: pair.console.status("/healthz"), (200).__eq__)
    pair.daemon.process.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: pair.console.status("/readyz"), (503).__eq__)
        wait_for(lambda: pair.console.status("/healthz"), (503).__eq__)
        assert "it hangs from" in pair.console.ask("/livez").text
        # Many ask at once, and wait for one look.
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: pair.console.ask("/readyz"), range(100)))
        assert {answer.status for answer in answers} == {503}
        assert all("did not answer to status within" in answer.text for answer in answers)
    finally:
        pair.daemon.process.send_signal(signal.SIGCONT)
    wait_for(lambda: pair.console.status("/readyz"), (200).__eq__)
    assert pair.console.status("/healthz") == 200


def test_a_console_outlives_its_daemon() -> None:
    with (
        tempfile.TemporaryDirectory(prefix="qpidha-") as name,
        Console("--data-dir", name) as console,
    ):
        answer = console.ask("/healthz")
        assert answer.status == 503 and "no broker answers at" in answer.text
        for _ in range(2):
            with Running("--data-dir", name):
                wait_for(lambda: console.status("/readyz"), (200).__eq__)
            wait_for(lambda: console.status("/healthz"), (503).__eq__)


def test_brokers_are_watched_over_amqp() -> None:
    with Running() as one, Running() as other:
        addresses = [f"127.0.0.1:{daemon.port}" for daemon in (one, other)]
        with Console("--brokers", ",".join(addresses)) as console:
            path = f"/readyz?broker={addresses[1]}"
            wait_for(lambda: console.status(path), (200).__eq__)
            answer = console.ask("/readyz")
            assert answer.status == 400 and addresses[0] in answer.text
            other.process.send_signal(signal.SIGSTOP)
            wait_for(lambda: console.status(path), (503).__eq__)
            other.process.send_signal(signal.SIGCONT)
            wait_for(lambda: console.status(path), (200).__eq__)
            other.process.kill()
            wait_for(lambda: console.status(path), (503).__eq__)
            assert console.ask_broker(f"/readyz?broker={addresses[0]}").status == 200


def test_a_broker_that_is_cut_off_is_found_again() -> None:
    proxies = FaultProxies(2)
    with Running(*HEARTBEAT) as daemon:
        place = proxies.brokers_url(0, [1, daemon.port]).split(",")[1]
        with Console("--brokers", place) as console:
            wait_for(lambda: console.status("/healthz"), (200).__eq__)
            proxies.cut(0, 1)
            wait_for(lambda: console.status("/readyz"), (503).__eq__)
            wait_for(lambda: console.status("/healthz"), (503).__eq__)
            proxies.heal()
            wait_for(lambda: console.status("/readyz"), (200).__eq__)
    proxies.close()


def test_a_broker_is_asked_as_a_user_with_a_password(tmp_path: Path) -> None:
    users = users_file(tmp_path / "users", {"ops": "right"})
    password = tmp_path / "password"
    password.write_text("right\n")
    with Running("--users-file", users, "--ha-username", "ops") as daemon:
        login = ["--brokers", f"127.0.0.1:{daemon.port}", "--user", "ops", "--password-file"]
        with Console(*login, password) as console:
            wait_for(lambda: console.status("/readyz"), (200).__eq__)
        password.write_text("wrong\n")
        with Console(*login, password) as console:
            answer = console.ask_broker("/readyz")
            assert answer.status == 503 and "not known: " in answer.text, answer


def test_a_token_is_asked_for_where_there_is_a_token_file(pair: Pair, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"monitor {TOKEN}\n")
    tokens.chmod(0o600)
    with Console("--data-dir", pair.place, "--token-file", tokens) as console:
        answer = console.ask("/readyz")
        assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Bearer ")
        assert console.ask_broker("/readyz", Authorization=f"Bearer {TOKEN}").status == 200


def test_a_console_for_others_speaks_tls(pair: Pair, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("console")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"monitor {TOKEN}\n")
    tokens.chmod(0o600)
    options = ["--ssl-cert", certificate, "--ssl-key", key, "--token-file", tokens]
    with Console("--data-dir", pair.place, "--interface", "0.0.0.0", *options) as console:
        context = ssl.create_default_context(cafile=str(authority.certificate))
        context.check_hostname = False
        connection = http.client.HTTPSConnection("127.0.0.1", console.port, context=context)
        connection.request("GET", "/healthz", headers={"Authorization": f"Bearer {TOKEN}"})
        assert connection.getresponse().status == 200
        connection.close()


def test_connections_that_begin_no_tls_keep_nobody_out(pair: Pair, tmp_path: Path) -> None:
    """They count from the moment they are accepted, and those who wait for the longest go."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue("console")
    context = ssl.create_default_context(cafile=str(authority.certificate))
    options = ["--ssl-cert", certificate, "--ssl-key", key]
    crowd = 2 * MOST + 100
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], crowd + 500), limits[1]))
    with Console("--data-dir", pair.place, *options) as console, ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        process = Path(f"/proc/{console.process.pid}")
        resource.prlimit(console.process.pid, resource.RLIMIT_NOFILE, (MOST + 100, MOST + 100))

        def healthy() -> None:
            asked = http.client.HTTPSConnection(
                "127.0.0.1", console.port, context=context, timeout=STATE
            )
            with closing(asked):
                asked.request("GET", "/healthz")
                assert asked.getresponse().status == 200

        def memory() -> int:
            """Return how many KiB it has."""
            found = re.search(r"VmRSS:\s+(\d+)", (process / "status").read_text())
            assert found is not None
            return int(found[1])

        def come(count: int) -> list[socket.socket]:
            return [
                held.enter_context(
                    socket.create_connection(("127.0.0.1", console.port), timeout=STATE)
                )
                for _ in range(count)
            ]

        healthy()
        before = memory()
        first = come(crowd // 2)
        healthy()
        come(crowd // 2)
        for _ in range(3):
            healthy()
        assert len(list((process / "fd").iterdir())) <= MOST + 50
        assert memory() - before < 100 << 10
        for each in first[:20]:
            with suppress(ConnectionResetError):
                assert each.recv(1) == b""


def certificate_of(port: int) -> bytes:
    """Return what the console shows who it is by."""
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=STATE).encode()


def test_tokens_and_the_certificate_are_read_again_on_sighup(pair: Pair, tmp_path: Path) -> None:
    def written(*lines: str) -> None:
        tokens.write_text("".join(f"{line}\n" for line in lines))
        tokens.chmod(0o600)

    def log() -> str:
        return errors.read_text()

    def reload(said: str) -> None:
        before = log().count(said)
        console.process.send_signal(signal.SIGHUP)
        wait_for(lambda: log().count(said), lambda count: count > before)

    errors, tokens = tmp_path / "errors", tmp_path / "tokens"
    other = TOKEN[::-1]
    written(f"monitor {TOKEN}")
    with (
        errors.open("w") as file,
        Console("--data-dir", pair.place, "--token-file", tokens, errors=file) as console,
    ):

        def status(token: str) -> int:
            return console.ask_broker("/readyz", Authorization=f"Bearer {token}").status

        streams = [Stream(console.port, Authorization=f"Bearer {TOKEN}")]
        written(f"monitor {TOKEN}", f"operator {other} ann")
        assert status(other) == 401, "it is read when that is asked for"
        reload("read again")
        assert (status(TOKEN), status(other)) == (200, 200)
        streams.append(Stream(console.port, Authorization=f"Bearer {other}"))
        for each in streams:
            assert each.until(kind="state")
        written("manager x")
        reload("there is no scope manager")
        assert "nothing is changed" in log()
        assert (status(TOKEN), status(other)) == (200, 200)
        written(f"operator {other} ann")
        reload("read again")
        assert (status(TOKEN), status(other)) == (401, 200)
        # Who follows by a token that is taken away is let go; all come back with what they have.
        for each in streams:
            for _ in each:
                pass
            each.close()
        assert "Traceback" not in log()


def test_a_certificate_that_is_renewed_is_shown_after_sighup(pair: Pair, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("console")
    options = ["--ssl-cert", certificate, "--ssl-key", key]
    with Console("--data-dir", pair.place, *options) as console:
        first = certificate_of(console.port)
        authority.issue("console")
        assert certificate_of(console.port) == first
        console.process.send_signal(signal.SIGHUP)
        second = wait_for(lambda: certificate_of(console.port), first.__ne__)
        Path(key).write_text("cut short")
        console.process.send_signal(signal.SIGHUP)
        assert console.process.stderr is not None
        lines = iter(console.process.stderr.readline, "")
        assert any("nothing is changed" in line for line in lines)
        assert certificate_of(console.port) == second


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["--interface", "0.0.0.0"], 78, "--interface 0.0.0.0 needs --token-file"),
        (["--interface", "192.0.2.1"], 78, "needs --token-file"),
        (["--token-file", "/nowhere"], 78, "token-file /nowhere: No such file or directory"),
        (["--ssl-cert", "/nowhere"], 78, "--ssl-cert /nowhere: No such file"),
        (["--ssl-cert", __file__], 78, "test_main.py: [SSL] PEM lib"),
        (["--ssl-key", __file__], 78, "--ssl-key without --ssl-cert"),
        (["--user", "ann"], 78, "--user is for --brokers"),
        (["--brokers", "host:x"], 78, "is no broker's address"),
        (["--brokers", "host", "--password-file", "/nowhere"], 78, "No such file"),
        (["--data-dir", "x", "--brokers", "y"], 2, "not allowed with"),
        (["--port", "99999"], 78, "--port 99999: a port is a number from 0 to 65535"),
        (["--interface", "127.0.0.256"], 78, "--interface 127.0.0.256 needs"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    options: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--port", "0", *options])
    assert ended.value.code == code and why in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_warned_of(tmp_path: Path) -> None:
    """A broker that does not run yet is none to warn of: a console may be there first."""
    for folder, is_warned in ((tmp_path, False), (tmp_path / "nowhere", True)):
        errors = tmp_path / "errors"
        with errors.open("w") as file, Console("--data-dir", folder, errors=file):
            text = errors.read_text()
        assert (f"warning: there is no directory {folder}" in text) is is_warned, text


def test_a_port_that_is_taken_is_refused(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--port", str(pair.console.port)])
    text = f"cannot listen on 127.0.0.1:{pair.console.port}"
    assert ended.value.code == 69 and text in capsys.readouterr().err


def test_the_page_has_every_option() -> None:
    text = PAGE.read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    told = set(
        re.findall(r"`(--[a-z-]+)", "".join(re.findall(r"^\| (.+?) \|", text, re.MULTILINE)))
    )
    known = {name for action in parser()._actions for name in action.option_strings}
    assert told == known - {"-h", "--help"}
