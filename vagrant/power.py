"""The power switch of the Vagrant lab: `python3 -m vagrant.power`, by the user whose machines they
are; ends with Ctrl-C.

It does to a virtual machine what a remote power switch does to a real one, with the hypervisor's
own commands: power off at once, power on, tell which it is. Over ssh, on Vagrant's own network and
not on the lab's, it lays its socket into every machine as /run/rack/power.sock; there the fence
agent of tests/lab finds it. The same connection brings the broker's admin socket and Pacemaker's
log out to the lab's folder, for the scenarios. A machine that was away is connected again.

One request is one line: `on HOST`, `off HOST`, `reboot HOST`, `status HOST`, `plug HOST NUMBER`,
`unplug HOST NUMBER` (the number of a network) and `list`. The answer is the state, on or off, or
`error: ` and why.
"""

from __future__ import annotations

import os
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.hosts import NETWORKS

HERE = Path(__file__).parent
DOTFILES = HERE / ".vagrant"
FOLDER = DOTFILES / "lab"
SSH_CONFIG = FOLDER / "ssh.config"
RACK_SOCKET = FOLDER / "rack" / "power.sock"
REMOTE_RACK_SOCKET = "/run/rack/power.sock"
REMOTE_ADMIN_SOCKET = "/var/lib/qpidha/admin.sock"
PACEMAKER_LOG = "/var/log/pacemaker/pacemaker.log"
PATIENCE = 10.0
"""Seconds for a machine to be off or on after it was told; the fence agent waits 15."""
PAUSE = 1.0
"""Seconds between two attempts to connect to a machine."""
VIRSH = ("virsh", "--connect", "qemu:///system")
OFF = ("poweroff", "aborted", "aborted-saved", "saved", "shut off", "crashed")
"""What VirtualBox and libvirt call a machine that surely does not run."""


class PowerError(Exception):
    """The hypervisor did not do it."""


def run(*command: str) -> str:
    """Run a command of the hypervisor's or Vagrant's and return what it said."""
    try:
        done = subprocess.run(
            command, cwd=HERE, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise PowerError(f"{command[0]} is not there: {error}") from error
    if done.returncode:
        raise PowerError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that Vagrant made."""

    name: str
    provider: str
    ident: str

    def state(self) -> str:
        """Return on or off; what is neither one nor the other counts as on."""
        if self.provider == "virtualbox":
            lines = run("VBoxManage", "showvminfo", self.ident, "--machinereadable").splitlines()
            said = next(
                (
                    line.partition("=")[2].strip('"')
                    for line in lines
                    if line.startswith("VMState=")
                ),
                "",
            )
        else:
            said = run(*VIRSH, "domstate", self.ident).strip()
        return "off" if said in OFF else "on"

    def switch(self, wanted: str) -> str:
        """Switch it on or off, and return when it is; tried again while the hypervisor is still
        busy with it.
        """
        end = time.monotonic() + PATIENCE
        while self.state() != wanted:
            try:
                run(*self._switch_command(wanted))
            except PowerError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
            if time.monotonic() > end and self.state() != wanted:
                raise PowerError(f"{self.name} is not {wanted} after {PATIENCE:g} s")
        return wanted

    def cable(self, number: int, *, plugged: bool) -> str:
        """Plug in or pull out the cable of a network."""
        state = self.state()
        if self.provider == "virtualbox":
            adapter, word = number + 2, "on" if plugged else "off"  # the first is Vagrant's own
            if state == "on":
                run("VBoxManage", "controlvm", self.ident, f"setlinkstate{adapter}", word)
            else:
                run("VBoxManage", "modifyvm", self.ident, f"--cableconnected{adapter}", word)
        elif state == "on":  # libvirt plugs everything in when a machine starts
            run(
                *VIRSH,
                "domif-setlink",
                self.ident,
                NETWORKS[number].hardware(self.name),
                "up" if plugged else "down",
            )
        return state

    def _switch_command(self, wanted: str) -> list[str]:
        if self.provider == "virtualbox":
            if wanted == "on":
                return ["VBoxManage", "startvm", self.ident, "--type", "headless"]
            return ["VBoxManage", "controlvm", self.ident, "poweroff"]
        return [*VIRSH, "start" if wanted == "on" else "destroy", self.ident]


def machines() -> dict[str, Machine]:
    """Find the machines that exist; Vagrant notes the hypervisor's name for each."""
    found = [
        Machine(path.parts[-3], path.parts[-2], path.read_text().strip())
        for path in sorted(DOTFILES.glob("machines/*/*/id"))
    ]
    return {
        machine.name: machine for machine in found if machine.provider in ("virtualbox", "libvirt")
    }


class Rack(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers requests, each in its thread; a machine does one thing at a time."""

    daemon_threads = True

    def __init__(self, hosts: dict[str, Machine]) -> None:
        self.hosts = hosts
        self.locks = {name: threading.Lock() for name in hosts}
        super().__init__(str(RACK_SOCKET), Switch)

    def answer(self, action: str, name: str, number: str) -> str:
        """Do one action and return the state afterwards."""
        if action == "list":
            return " ".join(self.hosts)
        machine = self.hosts.get(name)
        if machine is None or action not in ("on", "off", "reboot", "status", "plug", "unplug"):
            return f"error: no {action} {name}"
        with self.locks[name]:
            try:
                if action == "status":
                    return machine.state()
                sys.stdout.write(f"{time.strftime('%H:%M:%S')} {action} {name} {number}\n")
                if action in ("plug", "unplug"):
                    return machine.cable(int(number), plugged=action == "plug")
                if action in ("off", "reboot"):
                    machine.switch("off")
                return "off" if action == "off" else machine.switch("on")
            except (PowerError, ValueError, IndexError) as error:
                return f"error: {error}".replace("\n", " ")


class Switch(socketserver.StreamRequestHandler):
    """One request."""

    def handle(self) -> None:
        action, name, number = [*self.rfile.readline().decode().split(), "", "", ""][:3]
        rack: Any = self.server
        self.wfile.write(f"{rack.answer(action, name, number)}\n".encode())


class Line(threading.Thread):
    """The connection with one machine, made again whenever it ends."""

    def __init__(self, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.folder = FOLDER / "nodes" / name
        self.log = self.folder / "disk" / PACEMAKER_LOG.lstrip("/")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        command = [
            "ssh",
            "-F",
            str(SSH_CONFIG),
            "-o",
            "ControlPath=none",
            "-o",
            "ExitOnForwardFailure=yes",
            "-o",
            "StreamLocalBindUnlink=yes",
            "-L",
            f"{self.folder / 'admin.sock'}:{REMOTE_ADMIN_SOCKET}",
            "-R",
            f"{REMOTE_RACK_SOCKET}:{RACK_SOCKET}",
            self.name,
            f"exec tail -n 0 -F {PACEMAKER_LOG}",
        ]
        while True:
            with self.log.open("ab") as log, (self.folder / "ssh.log").open("wb") as errors:
                self.process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=errors
                )
                self.process.wait()
            time.sleep(PAUSE)


def write_ssh_config(names: list[str]) -> None:
    """Write what ssh needs to come in as root: Vagrant's own configuration, connections that are
    shared, and quick to notice an end.
    """
    given = "".join(run("vagrant", "ssh-config", name) for name in names)
    lines = [line.replace("User vagrant", "User root") for line in given.splitlines()]
    shared = ("ControlMaster auto", f"ControlPath {FOLDER}/%n-%i", "ControlPersist 60")
    lines += [
        "Host *",
        *(
            f"  {word}"
            for word in (
                *shared,
                "ConnectTimeout 3",
                "ServerAliveInterval 1",
                "ServerAliveCountMax 3",
            )
        ),
    ]
    SSH_CONFIG.write_text("\n".join(lines) + "\n")


def main() -> int:
    """Serve until told to end."""
    os.umask(0o077)
    hosts = machines()
    try:
        on = [name for name, machine in hosts.items() if machine.state() == "on"]
        if not on:
            raise PowerError("no machine runs: 'vagrant up' in the folder vagrant first")
        shutil.rmtree(FOLDER, ignore_errors=True)
        RACK_SOCKET.parent.mkdir(parents=True)
        write_ssh_config(on)
    except PowerError as error:
        sys.stderr.write(f"power: {error}\n")
        return 1
    rack = Rack(hosts)
    lines = [Line(name) for name in on]
    for line in lines:
        line.start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stdout.write(f"power switch of {', '.join(hosts)}; Ctrl-C ends it\n")
    try:
        rack.serve_forever()
    except KeyboardInterrupt:
        for line in lines:
            if line.process is not None:
                line.process.terminate()
        RACK_SOCKET.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
