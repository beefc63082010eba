"""A node as the agents see it: a directory with a configuration, and tools of Pacemaker that record
their calls.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.patience import STATE

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
AGENTS = ("broker", "vip", "qpidd", "qpidd-primary")
DEADLINE = STATE
NODE_PYTHON = Path("/usr/bin/python3")


@dataclass
class Done:
    """How a call of an agent ended."""

    code: int
    reason: str
    output: str
    log: str


@dataclass
class Node:
    """A directory that plays a machine."""

    directory: Path
    agents: Path
    environment: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    name: str = "broker"
    inside: Sequence[object] = ()
    """What agents are run through, such as nsenter."""

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def socket(self) -> Path:
        return self.data / "admin.sock"

    @property
    def pid_file(self) -> Path:
        return self.directory / "run" / f"{self.name}.pid"

    @property
    def calls(self) -> list[str]:
        """What Pacemaker's tools and the watch were told."""
        record = Path(self.environment["RECORD"])
        return record.read_text().splitlines() if record.exists() else []

    def forget_calls(self) -> None:
        Path(self.environment["RECORD"]).unlink(missing_ok=True)

    def run(
        self,
        agent: str,
        action: str,
        *,
        user: str | None = None,
        resource: str = "",
        **environment: object,
    ) -> Done:
        """Call an agent; `interval`, `role` and `timeout` are Pacemaker's, the rest are parameters
        of the resource.
        """
        return self.begin(agent, action, user=user, resource=resource, **environment)()

    def begin(
        self,
        agent: str,
        action: str,
        *,
        user: str | None = None,
        resource: str = "",
        **given: object,
    ) -> Callable[[], Done]:
        """Begin a call; the result waits for its end."""
        environment = {
            **self.environment,
            "OCF_RESOURCE_INSTANCE": resource or self.name,
            "OCF_RESKEY_CRM_meta_interval": "10000",
        }
        for name, value in {**self.parameters, **given}.items():
            meta = name in ("interval", "role", "timeout")
            environment[
                name
                if name.startswith("OCF_")
                else f"OCF_RESKEY_{'CRM_meta_' if meta else ''}{name}"
            ] = str(value)
        process = subprocess.Popen(
            [*map(str, self.inside), str(self.agents / agent), action],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            user=user,
        )

        def done() -> Done:
            output, log = process.communicate(timeout=STATE)
            reasons = [
                line.partition(":")[2]
                for line in log.splitlines()
                if line.startswith("ocf-exit-reason:")
            ]
            return Done(process.returncode, "".join(reasons), output, log)

        return done

    def tell(self, **how: object) -> None:
        """Make the stand-in daemon be so."""
        self.data.mkdir(exist_ok=True)
        fresh = self.data / "fresh"
        fresh.write_text(json.dumps(how))
        fresh.replace(self.data / "stand-in.json")

    def pid(self, what: str = "pid") -> int:
        """Pid of the broker, or of its watch (`watch.pid`)."""
        return int((self.directory / "run" / f"{self.name}.{what}").read_text().split()[0])

    def processes(self) -> dict[int, str]:
        """Living processes that know this directory: brokers and watches."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    words = (
                        (folder / "cmdline")
                        .read_bytes()
                        .decode(errors="replace")
                        .replace("\0", " ")
                    )
                    dead = (folder / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
                except OSError:
                    continue
                if str(self.directory) in words and not dead and int(folder.name) != os.getpid():
                    found[int(folder.name)] = words
        return found

    def kill_watch(self) -> None:
        """Kill the watch. Its process has no command line before its socket is closed, so what is
        waited for is its end.
        """
        watch = os.pidfd_open(self.pid("watch.pid"))
        try:
            signal.pidfd_send_signal(watch, signal.SIGKILL)
            assert select.select([watch], [], [], DEADLINE)[0], "the watch does not end"
        finally:
            os.close(watch)

    def brokers(self) -> list[int]:
        return [pid for pid, words in self.processes().items() if "--config" in words]

    def watches(self) -> list[int]:
        return [pid for pid, words in self.processes().items() if "--vips" in words]

    def ask(self, method: str) -> Any:
        """Ask the broker, as an administrator would."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.settimeout(DEADLINE)
            admin.connect(str(self.socket))
            admin.sendall(json.dumps({"id": 1, "method": method, "params": {}}).encode() + b"\n")
            return json.loads(admin.makefile().readline())

    def state(self) -> str:
        try:
            return str(self.ask("status")["result"]["state"])
        except OSError:
            return ""

    def close(self) -> None:
        """End all processes; return when none is left that could still write into the directory."""

        def killed() -> dict[int, str]:
            alive = self.processes()
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return alive

        wait_for(killed, lambda alive: not alive, what="the node")


def wait_for(
    look: Callable[[], Any], until: Callable[[Any], object] = bool, *, what: str = "this"
) -> Any:
    """Look again and again until what is seen satisfies `until`."""
    end = time.monotonic() + DEADLINE
    while not until(seen := look()):
        assert time.monotonic() < end, f"{what} is still {seen!r}"
        time.sleep(0.01)
    return seen


def script(path: Path, *command: object) -> Path:
    """Write a program that runs another."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
    path.chmod(0o755)
    return path
