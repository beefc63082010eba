"""A daemon with `http-port` has a console, which ends with it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
from pathlib import Path

import pytest

from qpidha.model.exit_codes import CONFIG
from qpidha.runtime.console import NEEDS, check_console
from qpidha.runtime.exits import CannotStart
from tests.patience import STATE
from tests.runtime.daemons import Running, run
from tests.system.cluster import Port, wait_for


def status(port: int, path: str = "/readyz") -> int:
    """Return what the console answers, 0 for nothing."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=STATE)
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    folder = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in folder.read_text().split()]


def is_free(port: int) -> bool:
    """Whether nobody listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_console_begins_and_ends_with_its_daemon(place: Path, number: int) -> None:
    port = Port()
    with Running("--data-dir", place, "--http-port", port.number) as daemon:
        wait_for(lambda: status(port.number), (200).__eq__)
        (console,) = children(daemon.process.pid)
        code, log = daemon.end(number)
        assert code == (0 if number == signal.SIGTERM else -number)
        assert f"qpidha-console: http://127.0.0.1:{port.number} watches" in log
        wait_for(lambda: is_free(port.number))
        wait_for(lambda: not Path(f"/proc/{console}/cmdline").exists())
    port.close()


def test_its_pages_know_the_consoles_of_the_others(place: Path) -> None:
    port = Port()
    others = f"http://127.0.0.1:{port.number},http://b2:8672/"
    with Running(
        *("--data-dir", place, "--http-port", port.number, "--http-consoles", others)
    ) as daemon:
        wait_for(lambda: status(port.number), (200).__eq__)
        connection = http.client.HTTPConnection("127.0.0.1", port.number, timeout=STATE)
        connection.request("GET", "/")
        answer = connection.getresponse()
        policy = answer.headers["Content-Security-Policy"]
        assert f"connect-src 'self' http://127.0.0.1:{port.number} http://b2:8672" in policy
        assert "http://b2:8672" in answer.read().decode()
        connection.close()
        assert daemon.end(signal.SIGTERM)[0] == 0
    port.close()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--http-consoles", "http://b1:8672"), "for the console that http-port has the daemon"),
        (("--http-port", "8672", "--http-consoles", "b1:8672"), "'b1:8672' is no address of a"),
    ],
)
def test_a_list_of_consoles_that_is_of_no_use_is_refused(
    options: tuple[str, ...], told: str
) -> None:
    code, _, error = run(*options, "--check")
    assert code == CONFIG and told in error


def test_a_console_that_dies_is_started_again_and_tells_of_a_hang(place: Path) -> None:
    port = Port()
    with Running("--data-dir", place, "--http-port", port.number) as daemon:
        wait_for(lambda: status(port.number), (200).__eq__)
        (first,) = children(daemon.process.pid)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: children(daemon.process.pid), lambda found: found and found != [first])
        wait_for(lambda: status(port.number), (200).__eq__)
        daemon.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: status(port.number), (503).__eq__)
        daemon.process.send_signal(signal.SIGCONT)
        wait_for(lambda: status(port.number), (200).__eq__)
        _, log = daemon.end(signal.SIGTERM)
        assert "the console ended with code -9, and is started again in 1 s" in log
    port.close()


def test_a_port_that_is_taken_is_told_and_the_broker_serves(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Running("--data-dir", place, "--http-port", port) as daemon:
            assert daemon.process.stderr is not None
            for line in daemon.process.stderr:
                if "cannot listen" in line:
                    break
            assert daemon.end(signal.SIGTERM)[0] == 0


def test_a_console_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    check_console(8672)
    monkeypatch.setattr(
        "qpidha.runtime.console.find_spec", lambda name: None if name == "uvicorn" else name
    )
    check_console(0)
    with pytest.raises(CannotStart, match="the console needs uvicorn") as caught:
        check_console(8672)
    assert caught.value.code == CONFIG and "qpidha[console]" in caught.value.hint


def test_the_port_is_checked() -> None:
    assert "uvicorn" in NEEDS
    code, _, error = run("--http-port", "65536", "--check")
    assert code == CONFIG and "http-port" in error
