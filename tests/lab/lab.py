"""The lab from outside: up and down, power, commands in hosts, and what can happen to cables.

`Lab.up` starts a rack (rack.py) that ends with this process unless told to stay; `Lab.running`
finds one that stayed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from qpidha.client.admin import LinkBroken
from qpidha.model.errors import RefusedRequest
from tests.lab.hosts import NAMES, NETWORKS, ROOT, SPARE, SWITCH, Network, lab_folder
from tests.patience import STATE
from tests.system.cluster import Admin, wait_for
from tests.system.forked import CLONE_NEWNET, LIBC

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"}
NEEDED = ("corosync", "pacemakerd", "pcs", "crm_mon", "nft", "ip", "nsenter", "unshare")
ADMIN_SOCKET = "/var/lib/qpidha/admin.sock"
TABLE = "table bridge lab"


def why_not() -> str:
    """Say why there can be no lab on this machine; nothing if there can."""
    if os.geteuid() != 0:
        return "the lab needs root: it makes namespaces and bridges"
    path = ENVIRONMENT["PATH"]
    if missing := [name for name in NEEDED if shutil.which(name, path=path) is None]:
        return f"the lab needs {', '.join(missing)}: run '.ci/setup lab'"
    for command in (
        ["unshare", "-n", "-m", "-p", "-u", "-i", "--fork", "true"],
        ["unshare", "-n", "nft", "add", "table", "bridge", "lab"],
    ):
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
        if tried.returncode:
            return (
                f"the lab cannot be made on this machine: {' '.join(command)}: "
                f"{tried.stderr.strip()}"
            )
    return ""


def enter_switch() -> None:
    """Move this thread into the switch's network namespace; sockets that it makes from now on are
    there.
    """
    descriptor = os.open(f"/run/netns/{SWITCH}", os.O_RDONLY)
    try:
        if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)


class Lab:
    """Hosts on a switch."""

    def __init__(self, folder: Path, rack: subprocess.Popen[str] | None = None) -> None:
        self.folder = folder
        self.rack = rack
        self.names = [*NAMES, *([SPARE] if self.is_on(SPARE) else [])]
        """The hosts of the cluster."""
        self._rules: list[str] = []

    @staticmethod
    def up(*, stay: bool = False, hosts: Sequence[str] = NAMES) -> Lab:
        """Make the switch and switch the hosts on; an earlier lab's disks and logs are gone."""
        folder = lab_folder()
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = folder.with_name(f"{folder.name}.rack.log")
        command = [
            sys.executable,
            "-m",
            "tests.lab.rack",
            str(folder),
            "--hosts",
            ",".join(hosts),
            *(["--stay"] if stay else []),
        ]
        with log.open("w") as errors:
            rack = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL if stay else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                start_new_session=True,
            )
        assert rack.stdout is not None
        if rack.stdout.readline().strip() != "up":
            rack.wait()
            raise RuntimeError(log.read_text().strip() or "the rack does not start")
        lab = Lab(folder, rack)
        lab.names = list(hosts)
        for name in hosts:
            lab.on(name)
        return lab

    @staticmethod
    def running() -> Lab | None:
        """Find the lab that was left running."""
        folder = lab_folder()
        try:
            os.kill(int((folder / "rack" / "pid").read_text()), 0)
        except (OSError, ValueError):
            return None
        return Lab(folder)

    def down(self) -> None:
        """Switch everything off; disks and logs stay in the folder."""
        pid = int((self.folder / "rack" / "pid").read_text())
        os.kill(pid, signal.SIGTERM)
        if self.rack is not None:
            self.rack.wait(STATE)
        wait_for(
            lambda: Path(f"/run/netns/{SWITCH}").exists(),
            lambda present: not present,
            what="the switch",
        )
        (self.folder / "rack" / "pid").unlink(missing_ok=True)

    # Power

    def power(self, action: str, name: str) -> str:
        """Ask the rack."""
        with socket.socket(socket.AF_UNIX) as rack:
            rack.settimeout(STATE)
            rack.connect(str(self.folder / "rack" / "power.sock"))
            rack.sendall(f"{action} {name}\n".encode())
            answer = rack.makefile().readline().strip()
        if answer.startswith("error"):
            raise RuntimeError(f"{action} {name}: {answer}")
        return answer

    def on(self, name: str) -> None:
        self.power("on", name)

    def off(self, name: str) -> None:
        """Cut a host's power."""
        self.power("off", name)

    def is_on(self, name: str) -> bool:
        return self.pid(name) is not None

    def pid(self, name: str) -> int | None:
        """Return the first process of a host, as we see it."""
        try:
            return int((self.folder / "nodes" / name / "pid").read_text())
        except (OSError, ValueError):
            return None

    # Inside

    def enter(self, name: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in a host."""
        return [
            "nsenter",
            "-t",
            str(self.pid(name)),
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "--wd=/",
            *command,
        ]

    def run(
        self, name: str, *command: str, check: bool = True, timeout: float = STATE
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a host and return what it said; with `check` a failure is an error that
        shows it.
        """
        full = self.enter(name, command)
        done = subprocess.run(
            full,
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{name}: {' '.join(command)} ended with {done.returncode}: "
                f"{done.stdout}{done.stderr}"
            )
        return done

    def path(self, name: str, path: str) -> Path:
        """Return a path of a host that is on, also of what is only in its memory, as seen from
        here.
        """
        return Path(f"/proc/{self.pid(name)}/root{path}")

    def disk(self, name: str, path: str) -> Path:
        """Return a file of a host's disk, also while it is off."""
        return self.folder / "nodes" / name / "disk" / path.lstrip("/")

    def broker(
        self, host: str, method: str, timeout: float = 5.0, **params: object
    ) -> dict[str, object]:
        """Ask the broker of a host over its admin socket; nothing if it does not answer."""
        if not self.is_on(host):
            return {}
        try:
            with Admin(self.path(host, ADMIN_SOCKET), timeout=timeout) as admin:
                return dict(admin.call(method, **params))
        except (LinkBroken, RefusedRequest):
            return {}

    def kill(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a host's broker, also to one that hangs: the kernel says who listens on
        its socket.
        """
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.path(name, ADMIN_SOCKET)))
            pid = struct.unpack(
                "3i", admin.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            )[0]
        os.kill(pid, number)

    # Cables

    def cut(self, name: str, *networks: Network, port: int = 0) -> None:
        """Let nothing pass between a host and the others, or only nothing of one TCP port; clients
        at the switch still reach it.
        """
        match = f"ether type ip meta l4proto tcp tcp {{}} {port} " if port else ""
        for network in networks or NETWORKS:
            for direction in ("iifname", "oifname"):
                for side in ("dport", "sport") if port else ("",):
                    self._rules.append(
                        f'{direction} "{network.port(name)}" {match.format(side)}drop'
                    )
        self._write_rules()

    def heal(self) -> None:
        """Undo all cuts and plug everything in."""
        self._rules.clear()
        self._write_rules()
        for name in self.names:
            for network in NETWORKS:
                self.switch("ip", "link", "set", network.port(name), "up", check=False)

    def unplug(self, name: str, network: Network) -> None:
        """Pull a host's cable: it sees that there is no carrier, and nobody reaches it."""
        self.switch("ip", "link", "set", network.port(name), "down")

    def switch(self, *command: str, check: bool = True, text: str | None = None) -> str:
        """Run a command in the switch's namespace, where the clients are."""
        done = subprocess.run(
            ["ip", "netns", "exec", SWITCH, *command],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"switch: {' '.join(command)}: {done.stderr}")
        return done.stdout

    def _write_rules(self) -> None:
        chain = (
            "chain cuts {\ntype filter hook forward priority 0; policy accept;\n"
            + "".join(f"{rule}\n" for rule in self._rules)
            + "}\n"
        )
        self.switch("nft", "-f", "-", text=f"{TABLE}\ndelete {TABLE}\n{TABLE} {{\n{chain}}}\n")
