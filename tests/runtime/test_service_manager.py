"""What the daemon tells systemd: that it is ready, what it is, that it lives, reloads and stops."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from qpidha.runtime.service_manager import ServiceManager
from tests.patience import STATE
from tests.runtime.daemons import ENVIRONMENT, Running


class Manager:
    """A service manager: a socket, and what comes to it."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(STATE)

    def lines(self) -> list[str]:
        return self.socket.recv(1 << 16).decode().split("\n")

    def until(self, line: str) -> list[str]:
        """Lines up to and with the message that has this one."""
        heard: list[str] = []
        while line not in heard:
            heard += self.lines()
        return heard


@pytest.fixture
def manager() -> Iterator[Manager]:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as place:
        found = Manager(str(Path(place, "notify")))
        yield found
        found.socket.close()


def test_a_daemon_is_ready_lives_reloads_and_stops(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "NOTIFY_SOCKET", manager.socket.getsockname())
    monkeypatch.setitem(ENVIRONMENT, "WATCHDOG_USEC", "100000")
    with Running("--name", "b7") as daemon:
        assert manager.lines() == ["READY=1", "STATUS=b7 is standalone"]
        assert [manager.lines() for _ in range(3)] == [["WATCHDOG=1"]] * 3
        daemon.process.send_signal(signal.SIGHUP)
        heard = manager.until("RELOADING=1")
        assert heard[-1].startswith("MONOTONIC_USEC=")
        assert "READY=1" not in heard
        manager.until("READY=1")
        assert daemon.end(signal.SIGTERM)[0] == 0
    manager.until("STOPPING=1")
    manager.until("STATUS=stopping: asked to stop")


def test_a_refused_reload_ends_too(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "NOTIFY_SOCKET", manager.socket.getsockname())
    rules = tmp_path / "acl"
    rules.write_text("acl allow all all\n")
    with Running("--auth", "no", "--acl-file", rules) as daemon:
        manager.until("READY=1")
        rules.write_text("nonsense\n")
        daemon.process.send_signal(signal.SIGHUP)
        assert "READY=1" not in manager.until("RELOADING=1")
        manager.until("READY=1")


def test_a_backup_says_what_it_becomes(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "NOTIFY_SOCKET", manager.socket.getsockname())
    options = ("--name", "b7", "--ha-cluster", "yes", "--auth", "no", "--data-dir", tmp_path)
    with Running(*options), socket.socket(socket.AF_UNIX) as admin:
        assert "STATUS=b7 is joining" in manager.until("READY=1")
        admin.settimeout(STATE)
        admin.connect(str(tmp_path / "admin.sock"))
        admin.sendall(b'{"id": 1, "method": "promote", "params": {}}\n')
        assert "result" in json.loads(admin.makefile().readline())
        manager.until("STATUS=b7 is active")


@pytest.mark.parametrize(
    "env", [{}, {"NOTIFY_SOCKET": "/nowhere/notify"}, {"WATCHDOG_USEC": "soon"}]
)
def test_nobody_need_listen(env: dict[str, str]) -> None:
    loop = asyncio.new_event_loop()
    service = ServiceManager(env, loop)
    service.ready("b7 is active")
    service.stopping()
    service.close()
    loop.close()


def test_an_abstract_socket_is_reached_and_a_line_stays_one_line() -> None:
    name = f"qpidha-{os.getpid()}"
    listening = Manager(f"\0{name}")
    loop = asyncio.new_event_loop()
    service = ServiceManager({"NOTIFY_SOCKET": f"@{name}"}, loop)
    service.status("stopping: a\nREADY=1")
    assert len(listening.lines()) == 1
    service.close()
    loop.close()
    listening.socket.close()


def test_the_watchdog_of_another_process_is_not_ours() -> None:
    name = f"qpidha-{os.getpid()}-w"
    listening = Manager(f"\0{name}")
    loop = asyncio.new_event_loop()
    env = {"NOTIFY_SOCKET": f"@{name}", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    service = ServiceManager(env, loop)
    service.ready("b7 is active")
    service.stopping()
    assert listening.lines()[0] == "READY=1" and listening.lines() == ["STOPPING=1"]
    service.close()
    loop.close()
    listening.socket.close()
