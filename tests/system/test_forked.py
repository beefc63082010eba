"""What is known of daemons that were forked, when the kernel gives a pid out again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.system.forked import Forked, Template


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> tuple[Template, socket.socket]:
    """A template whose part the test plays, and the socket to play it with."""
    sockets: list[socket.socket] = []

    def start(*_: object, pass_fds: list[int], **__: object) -> None:
        sockets.append(socket.socket(fileno=os.dup(pass_fds[0])))

    monkeypatch.setattr(subprocess, "Popen", start)
    return Template(), sockets[0]


def tell(ours: socket.socket, **what: int) -> None:
    ours.send(json.dumps(what).encode())


@pytest.fixture
def started(told: tuple[Template, socket.socket], tmp_path: Path) -> list[Forked]:
    """Two daemons, of which the second has the pid of the first, which was killed."""
    template, ours = told
    with (tmp_path / "log").open("wb") as log:
        tell(ours, pid=7, ended=0)
        first = template.start({}, log.fileno())
        tell(ours, pid=7, ended=1, code=-signal.SIGKILL)
        tell(ours, pid=7, ended=0)
        return [first, template.start({}, log.fileno())]


def test_a_daemon_is_not_taken_for_dead_because_a_former_one_had_its_pid(started):
    assert [daemon.poll() for daemon in started] == [-signal.SIGKILL, None]


def test_a_dead_daemon_is_not_killed_again_when_another_has_its_pid(started, monkeypatch):
    killed = []
    monkeypatch.setattr(os, "kill", lambda *call: killed.append(call))
    started[0].kill()
    assert killed == []
    started[1].kill()
    assert killed == [(7, signal.SIGKILL)]
