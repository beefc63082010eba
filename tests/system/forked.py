"""Daemons that are forked from a process that has imported `qpidhad` already, which saves most of
what a start costs.

`start` takes the place of `subprocess.Popen` where the start itself is not what a test is about;
tests/runtime/test_daemon.py starts the program itself. Brokers of one cluster come from different
templates, so that the order of their sets differs as between real processes. The template tells by
its socket which process it made, and later how each of them ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import itertools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

REQUEST_BYTES = 150_000
"""Of a command line and its environment; a sequenced packet carries about 200 kB."""
TEMPLATES = 3
CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
_turns = itertools.count()
_templates: dict[int, Template] = {}


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that made it ends, however it ends."""
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def enter_namespace(path: str) -> None:
    """Move this thread, or a process of one thread, to a network namespace."""
    descriptor = os.open(path, os.O_RDONLY)
    if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns {path}")
    os.close(descriptor)


def start(module: str, options: Sequence[str], output: int, namespace: str = "") -> Forked:
    """Start the daemon that is `main` of a module with these options, in a network namespace if
    one is named; it writes to a file that is open already.
    """
    number = next(_turns) % TEMPLATES
    if number not in _templates:
        _templates[number] = Template()
    ask = {"module": module, "options": list(options), "namespace": namespace}
    return _templates[number].start(ask, output)


class Template:
    """The process that daemons are forked from, as this process sees it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lock = threading.RLock()
        self.running: dict[int, Forked] = {}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.forked", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                preexec_fn=die_with_parent,
            )

    def start(self, ask: dict[str, object], output: int) -> Forked:
        here = {"environment": dict(os.environ), "folder": os.getcwd()}
        with self.lock:
            socket.send_fds(self.socket, [json.dumps(ask | here).encode()], [output])
            while (answer := self.read())["ended"]:
                pass
            # Told after the end of whoever had this pid before, as the kernel gives it out.
            self.running[answer["pid"]] = daemon = Forked(self, answer["pid"])
            return daemon

    def read(self) -> dict[str, int]:
        """Read what the template tells next, and note what ended."""
        packet = self.socket.recv(1000)
        if not packet:
            raise RuntimeError(f"the template of daemons ended: {self.process.wait()}")
        told: dict[str, int] = json.loads(packet)
        if told["ended"]:
            self.running.pop(told["pid"]).returncode = told["code"]
        return told

    def hear_of(self, daemon: Forked, seconds: float | None) -> None:
        """Read until a daemon has ended, some seconds at most; None is for ever."""
        end = None if seconds is None else time.monotonic() + seconds
        with self.lock, selectors.DefaultSelector() as ready:
            ready.register(self.socket, selectors.EVENT_READ)
            while daemon.returncode is None:
                left = None if end is None else max(0.0, end - time.monotonic())
                if not ready.select(left):
                    return
                self.read()


class Forked:
    """A daemon, with what the tests use of `subprocess.Popen`."""

    def __init__(self, template: Template, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._template = template

    def poll(self) -> int | None:
        if self.returncode is None:
            self._template.hear_of(self, 0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._template.hear_of(self, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("qpidhad", timeout or 0)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ended, and that is on its way
                os.kill(self.pid, signal.SIGKILL)


def serve(control: socket.socket) -> int:
    """Fork a daemon for each request, until nobody is there to ask; in a fork, be that daemon and
    return its exit code.
    """
    importlib.import_module("qpidha.runtime.daemon")
    gc.collect()
    gc.freeze()
    running: dict[int, int] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is not control:
                    pidfd = key.fd
                    ready.unregister(pidfd)
                    os.close(pidfd)
                    pid = running.pop(pidfd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    control.send(json.dumps({"pid": pid, "ended": 1, "code": code}).encode())
                    continue
                packet, files, _, _ = socket.recv_fds(control, REQUEST_BYTES, 1)
                if not packet:
                    return 0
                pid = os.fork()
                if not pid:
                    for pidfd in running:
                        os.close(pidfd)
                    break
                os.close(files[0])
                pidfd = os.pidfd_open(pid)
                running[pidfd] = pid
                ready.register(pidfd, selectors.EVENT_READ)
                control.send(json.dumps({"pid": pid, "ended": 0}).encode())
            else:
                continue
            break
    control.close()
    die_with_parent()
    ask = json.loads(packet)
    for number in (1, 2):
        os.dup2(files[0], number)
    os.close(files[0])
    os.chdir(ask["folder"])
    os.environ.clear()
    os.environ.update(ask["environment"])
    if ask["namespace"]:
        enter_namespace(ask["namespace"])
    sys.argv = ["qpidhad", *ask["options"]]
    return int(importlib.import_module(ask["module"]).main())


if __name__ == "__main__":
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1]))))
