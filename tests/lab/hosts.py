"""Names and addresses of the lab: hosts, networks, the virtual address, and where the lab keeps its
things.

Each host has two networks: `clients`, on which the virtual address lives, and `cluster`, for the
brokers' links and corosync. The switch's own namespace has an address on both; clients of the
brokers live there.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qpidha.manager.builtin.credentials import Credentials

ROOT = Path(__file__).parents[2]
SWITCH = "qpidha-lab"
"""Network namespace of the switch."""
VIP = "10.77.0.100"
PORT = 5672
NAMES = ("ha1", "ha2", "ha3")
SPARE = "ha4"
"""A host that is not in the cluster until a scenario adds it."""


@dataclass(frozen=True, slots=True)
class Network:
    """One bridge of the switch, and the interface of every host on it."""

    name: str
    number: int

    @property
    def interface(self) -> str:
        return f"eth{self.number}"

    @property
    def bridge(self) -> str:
        return f"br{self.number}"

    @property
    def prefix(self) -> str:
        return f"10.{77 + self.number}.0."

    @property
    def switch_hardware(self) -> str:
        """Return the hardware address of the switch itself."""
        return f"02:00:0a:{77 + self.number:02x}:00:fe"

    def port(self, host: str) -> str:
        """Return the switch's end of a host's cable."""
        return f"v{self.number}{host}"

    def address(self, host: str) -> str:
        return f"{self.prefix}{10 + int(host.removeprefix('ha'))}"

    def hardware(self, host: str) -> str:
        """Return the hardware address of a host's interface; fixed, so that an answer to ARP names
        its host.
        """
        return f"02:00:0a:{77 + self.number:02x}:00:{10 + int(host.removeprefix('ha')):02d}"


CLIENTS = Network("clients", 0)
CLUSTER = Network("cluster", 1)
NETWORKS = (CLIENTS, CLUSTER)


def credentials() -> Credentials:
    """Return the files of a secure lab, whether there are any or not."""
    return Credentials(lab_folder() / "rack")


def make_credentials(names: Iterable[str]) -> None:
    """Make what the hosts of a secure lab need, where each of them sees the rack's folder."""
    made = credentials()
    hosts = {
        name: ["localhost", "127.0.0.1", VIP, name, *(each.address(name) for each in NETWORKS)]
        for name in names
    }
    made.make(hosts)
    for name in hosts:
        settings = {"ssl-port": str(PORT), **Credentials(Path("/run/rack")).settings(name)}
        text = "".join(f"{option} = {value}\n" for option, value in settings.items())
        (made.folder / f"{name}.conf").write_text(text)


def lab_folder() -> Path:
    """Return where the lab keeps its hosts' disks and logs: QPIDHA_LAB, or below the temporary
    directory.

    A host's disk is the upper layer of overlays, and an overlay cannot be that itself; memory can.
    """
    if given := os.environ.get("QPIDHA_LAB"):
        return Path(given)
    below = tempfile.gettempdir()
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", below], capture_output=True, text=True, check=False
    ).stdout.strip()
    return Path("/dev/shm" if kind == "overlayfs" else below) / SWITCH
