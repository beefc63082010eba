"""One node as rgmanager sees it: a directory with the settings of the two scripts, and the broker
that they start.

Nodes of a test share the loopback; each has a port, a data directory and a run directory of its
own, named in the file that stands for /etc/sysconfig/qpidd.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qpidha.client.admin import LinkBroken
from tests.patience import STATE
from tests.programs import fast_qpid_ha
from tests.system.cluster import Admin, Port, wait_for

AGENTS = Path(__file__).parent.parent.parent / "agents"
PRIMARY = ("active", "recovering")
TIMES = {"QPID_ANSWER": 20, "QPID_START": 30, "QPID_PROMOTE": 8, "QPID_TERM": 3}
"""With these no broker is thought hung, however busy the machine is."""
BRISK = 4
"""Seconds for an answer of a broker that hangs."""
CONFIGURATION = {
    "auth": "no",
    "ha-cluster": "yes",
    "ha-replicate": "all",
    "ha-backup-timeout": "5",
    "link-maintenance-interval": "0.1",
    "link-heartbeat-interval": "0.5",
}


class Outcome(NamedTuple):
    """What a call of a script came to."""

    code: int
    text: str


class Call:
    """A call of a script that may still be under way."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def outcome(self) -> Outcome:
        """Wait for the end of the call; a daemon that kept our pipe would keep us waiting, and fail
        the test.
        """
        text, _ = self.process.communicate(timeout=STATE)
        return Outcome(self.process.returncode, text)


class Node:
    """A node: `node("qpidd", "start")` calls a script and returns its exit code and text."""

    def __init__(self, name: str, **settings: object) -> None:
        self.name = name
        self.port = Port()
        self.directory = Path(
            tempfile.mkdtemp(prefix=f"qpidha-{name}-")
        )  # short, for the limit on socket paths
        self.settings: dict[str, object] = {
            "QPID_BIN": self.program("qpidhad", "qpidha.runtime.daemon"),
            "QPID_HA": fast_qpid_ha(),
            "QPID_CONFIG": self.directory / "qpidha.conf",
            "QPID_RUN": self.directory / "run",
            **TIMES,
            **settings,
        }

    def program(self, name: str, module: str) -> Path:
        """Write a program that is the tree's own, whatever is installed."""
        return self.script(name, f'exec "{sys.executable}" -m {module} "$@"')

    def script(self, name: str, text: str) -> Path:
        """Write a program."""
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def configure(self, nodes: Sequence[Node] = (), **options: object) -> None:
        """Write the settings of the scripts and of the broker."""
        url = ",".join(f"127.0.0.1:{node.port.number}" for node in nodes or [self])
        own = {
            "name": self.name,
            "port": self.port.number,
            "data-dir": self.directory / "data",
            "interface": "127.0.0.1",
        }
        values = {
            **CONFIGURATION,
            **own,
            "ha-brokers-url": f"amqp:{url}",
            **{key.replace("_", "-"): value for key, value in options.items()},
        }
        self.path("qpidha.conf").write_text(
            "".join(f"{key}={value}\n" for key, value in values.items())
        )
        self.set()

    def set(self, **settings: object) -> None:
        """Write the settings of the scripts, changed."""
        self.settings.update(settings)
        self.path("sysconfig").write_text(
            "".join(f"{key}='{value}'\n" for key, value in self.settings.items())
        )

    def path(self, name: str) -> Path:
        return self.directory / name

    def begin(self, script: str, *words: str) -> Call:
        """Call a script and go on."""
        root = str(AGENTS.parent)
        ours = {"QPID_SYSCONFIG": str(self.path("sysconfig")), "PYTHONPATH": root}
        return Call([str(AGENTS / script), *words], os.environ | ours)

    def __call__(self, script: str, *words: str) -> Outcome:
        return self.begin(script, *words).outcome()

    # The broker.

    @property
    def pid(self) -> int:
        """The broker's process, or 0: found by its command line, so that the scripts' own records
        are not believed.
        """
        config = str(self.path("qpidha.conf"))
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue  # It just ended.
            if (
                config in words
                and "qpidha.runtime.daemon" in words
                and self._letter(int(process.name)) != "Z"
            ):
                return int(process.name)
        return 0

    def status(self) -> dict[str, Any]:
        """Ask the broker; nothing if there is none, or if it hangs, which is not waited for."""
        if not self.pid or self._letter(self.pid) == "T":
            return {}
        try:
            with Admin(self.directory / "data" / "admin.sock", timeout=2.0) as admin:
                return dict(admin.call("status"))
        except LinkBroken:
            return {}

    @property
    def state(self) -> str:
        return str(self.status().get("state", ""))

    def wait_state(self, *states: str) -> None:
        wait_for(
            lambda: self.state,
            lambda state: state in states,
            what=f"{self.name}, expected to be {' or '.join(states)},",
        )

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        wait_for(lambda: self.pid, lambda pid: pid == 0, what=f"the broker of {self.name}")

    def hang(self) -> None:
        """Freeze the broker; from now on the scripts of this node wait less for an answer."""
        self.set(QPID_ANSWER=min(BRISK, int(str(self.settings["QPID_ANSWER"]))))
        pid = self.pid
        self.signal(signal.SIGSTOP)
        wait_for(lambda: self._letter(pid), lambda letter: letter == "T", what="its state")

    @staticmethod
    def _letter(pid: int) -> str:
        """The kernel's letter for what a process does."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "Z"

    def close(self) -> None:
        while pid := self.pid:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: self.pid != pid, what=f"the end of {pid}")
        self.port.close()
        shutil.rmtree(self.directory, ignore_errors=True)
