"""What counts as a living process: the manager and the OCF agents must mean the same."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qpidha.manager.builtin.process import open_log, start_time
from tests.system.cluster import wait_for

AGENTS = Path(__file__).parents[3] / "ocf" / "qpidha_ocf.py"
HEADLESS = """
import ctypes, os, sys, threading
threading.Thread(target=sys.stdin.read).start()
exit_of_one_thread = {"x86_64": 60, "aarch64": 93}[os.uname().machine]
ctypes.CDLL(None).syscall(exit_of_one_thread, 0)
"""
"""A process whose first thread ends while another one goes on until its input ends."""


def agents_start_time() -> Callable[[int], int]:
    """Load the agents' twin of the function."""
    spec = importlib.util.spec_from_file_location("qpidha_ocf", AGENTS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[int], int] = module.start_time
    return found


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("began", [start_time, agents_start_time()], ids=["manager", "agents"])
def test_a_process_is_dead_when_its_last_thread_is(began: Callable[[int], int]) -> None:
    process = subprocess.Popen([sys.executable, "-c", HEADLESS], stdin=subprocess.PIPE)
    try:
        wait_for(
            lambda: state_of(process.pid), "Z".__eq__, what="whether the first thread has ended"
        )
        assert began(process.pid) > 0
        assert process.stdin is not None
        process.stdin.close()
        wait_for(lambda: began(process.pid), lambda at: at == 0, what="whether it counts as dead")
    finally:
        process.kill()
        process.wait()
    assert began(process.pid) == 0 and began(os.getpid()) > 0


def test_a_log_is_not_for_strangers_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "manager.log"
    for line in (b"one\n", b"two\n"):
        with open_log(path) as log:
            log.write(line)
    assert path.read_bytes() == b"one\ntwo\n" and path.stat().st_mode & 0o27 == 0
