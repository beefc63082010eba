"""The Vagrant lab as the scenarios of tests/lab see a lab: commands in hosts over ssh, power by
power.py, cables by both.

Clients are on the machine below, which must be Linux: for a while its own network gets the switch's
name, address and bridge.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab.hosts import CLIENTS, NAMES, NETWORKS, ROOT, SWITCH, Network
from tests.lab.lab import ADMIN_SOCKET, Lab
from vagrant.power import FOLDER, SSH_CONFIG

SOURCE = "/opt/qpidha"
"""Where the machines have the project (Vagrantfile)."""
TABLE = "table netdev lab"


class VagrantLab(Lab):
    """Three virtual machines."""

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__(folder)
        self._cuts: list[tuple[str, str, Network, str]] = []
        self._unplugged: list[tuple[str, Network]] = []

    def exists(self, name: str) -> bool:
        """Say whether Vagrant made this machine."""
        return name in self.power("list", "").split()

    def is_on(self, name: str) -> bool:
        return self.exists(name) and self.power("status", name) == "on"

    def pid(self, name: str) -> int | None:
        """Return a number that is another one after each start; None while it cannot be asked."""
        said = self.run(name, "cat", "/proc/sys/kernel/random/boot_id", check=False).stdout.strip()
        return int(said.replace("-", ""), 16) if said else None

    # Inside

    def enter(self, name: str, command: Sequence[str]) -> list[str]:
        words = ["env", "LC_ALL=C.UTF-8", *(word.replace(str(ROOT), SOURCE) for word in command)]
        return ["ssh", "-F", str(SSH_CONFIG), name, shlex.join(words)]

    def path(self, name: str, path: str) -> Path:
        """Return what power.py brings out of a host."""
        assert path == ADMIN_SOCKET, f"{path} is only in {name}"
        return self.folder / "nodes" / name / "admin.sock"

    def kill(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a host's broker."""
        self.run(name, "pkill", f"-{number.value}", "-f", "/usr/bin/qpidha[d]")

    # Cables

    def cut(self, name: str, *networks: Network, port: int = 0) -> None:
        for network in networks or NETWORKS:
            for rest in (f"tcp dport {port} ", f"tcp sport {port} ") if port else ("",):
                self._cuts += [
                    (name, hook, network, f"{rest}drop") for hook in ("ingress", "egress")
                ]
        for other in self.names:
            if self.is_on(other):
                self.run(other, *self._write(other))

    def heal(self) -> None:
        for name, network in self._unplugged:
            self.power("plug", f"{name} {network.number}")
        cut, self._unplugged, self._cuts = bool(self._cuts), [], []
        for name in self.names if cut else ():
            self.run(name, *self._write(name), check=False)  # a host that starts has no cuts

    def unplug(self, name: str, network: Network) -> None:
        self._unplugged.append((name, network))
        self.power("unplug", f"{name} {network.number}")

    def switch(self, *command: str, check: bool = True, text: str | None = None) -> str:
        return subprocess.run(
            command, input=text, capture_output=True, text=True, check=check
        ).stdout

    def _write(self, name: str) -> list[str]:
        """Return the command that makes a host let nothing pass from and to those that are
        cut off.
        """
        chains = ""
        for network in NETWORKS:
            for hook, side in (("ingress", "saddr"), ("egress", "daddr")):
                rules = [
                    f"ether {side} {network.hardware(other)} {rest}"
                    for other, where, its, rest in self._cuts
                    if (where, its) == (hook, network) and other != name
                ]
                if rules:
                    head = (
                        f'type filter hook {hook} device "{self._device(name, network)}" priority 0'
                    )
                    chains += "\n".join([f"chain {hook}{network.number} {{", head, *rules, "}", ""])
        return [
            "sh",
            "-c",
            f"nft -f - <<'END'\n{TABLE}\ndelete {TABLE}\n{TABLE} {{\n{chains}}}\nEND\n",
        ]

    def _device(self, name: str, network: Network) -> str:
        """Return what a host calls its interface on a network; Vagrant's own is the first."""
        return self.run(
            name, "ip", "-o", "-4", "addr", "show", "to", network.address(name)
        ).stdout.split()[1]


def clients_interface() -> str:
    """Return the interface of this machine that is on the clients' network; nothing if there is
    none.
    """
    command = ["ip", "-o", "-4", "addr", "show", "to", f"{CLIENTS.prefix}0/24"]
    words = subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()
    return words[1] if words else ""


def why_not() -> str:
    """Say why the scenarios cannot be played on the machines; nothing if they can."""
    if os.geteuid() != 0:
        return (
            "the scenarios need root on this machine: they ask by ARP who has the virtual address"
        )
    try:
        off = [name for name in NAMES if not VagrantLab().is_on(name)]
    except (OSError, RuntimeError) as error:
        return (
            f"no power switch answers ({error}): 'python3 -m vagrant.power' in a terminal of "
            "its own"
        )
    if off:
        return f"{', '.join(off)} do not run: 'vagrant up' in the folder vagrant"
    if not clients_interface():
        return (
            f"this machine is not on {CLIENTS.prefix}0/24: 'ip addr' should show "
            f"{CLIENTS.prefix}1 on vboxnet or virbr"
        )
    return ""


@contextmanager
def machines() -> Iterator[VagrantLab]:
    """Let this machine be the switch where the clients are, for a while."""
    interface = clients_interface()
    ways = (
        ("addr {} " + f"{CLIENTS.prefix}254/24 dev {interface}", "add", "del"),
        ("link property {} " + f"dev {interface} altname {CLIENTS.bridge}", "add", "del"),
        ("netns {} " + SWITCH, "attach", "del"),
    )
    done: list[str] = []
    try:
        for words, there, back in ways:
            whom = [str(os.getpid())] if there == "attach" else []
            subprocess.run(["ip", *words.format(there).split(), *whom], check=True)
            done.insert(0, words.format(back))
        yield VagrantLab()
    finally:
        for command in done:
            subprocess.run(["ip", *command.split()], check=False)
