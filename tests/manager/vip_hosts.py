"""Hosts made of network namespaces on one bridge: `client` holds the bridge, the others have an
`eth0` on it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.patience import STATE

VIP = "10.99.0.100"
VIP6 = "fd99::100"


class Hosts:
    """A client and hosts a and b: 10.99.0.1, .11, .12 and fd99::1, ::11, ::12."""

    def __init__(self) -> None:
        mark = uuid.uuid4().hex[:6]
        self.names = {name: f"qw-{mark}-{name}" for name in ("client", "a", "b")}
        for space in self.names.values():
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
        self.ip("client", "link add br0 type bridge stp_state 0 forward_delay 0")
        self.ip("client", "link set br0 up")
        for number, name in ((11, "a"), (12, "b")):
            self.ip(
                "client", f"link add port-{name} type veth peer name eth0 netns {self.names[name]}"
            )
            self.ip("client", f"link set port-{name} master br0 up")
            self.ip(name, "link set eth0 up")
            self.ip(name, f"addr add 10.99.0.{number}/24 dev eth0")
            self.ip(name, f"addr add fd99::{number}/64 dev eth0 nodad")
        self.ip("client", "addr add 10.99.0.1/24 dev br0")
        self.ip("client", "addr add fd99::1/64 dev br0 nodad")

    def close(self) -> None:
        """Remove everything."""
        for space in self.names.values():
            subprocess.run(["ip", "netns", "del", space], check=False)

    def ip(self, host: str, words: str) -> str:
        """Run `ip` on a host."""
        return _ip("-n", self.names[host], *words.split())

    def command(self, host: str, *words: str) -> list[str]:
        """Give the command line that runs a command on a host."""
        return ["ip", "netns", "exec", self.names[host], *words]

    def run(self, host: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command on a host."""
        return subprocess.run(
            self.command(host, *words), capture_output=True, text=True, check=False, timeout=STATE
        )

    def vip(self, host: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `qpid-ha vip` on a host."""
        return self.run(
            host, sys.executable, "-m", "qpidha.cli.main", "vip", *words, "--vips", str(folder)
        )

    def has(self, host: str, address: str) -> bool:
        """Whether an address is on a host."""
        return f" {address}/" in self.ip(host, "addr show")

    def hardware(self, host: str) -> str:
        """The hardware address of a host."""
        return self.ip(host, "link show dev eth0").split("link/ether ")[1].split()[0]

    def neighbour(self, address: str) -> str:
        """Which hardware address the client believes an address to be at."""
        words = self.ip("client", f"neigh show {address} dev br0").split()
        return words[words.index("lladdr") + 1] if "lladdr" in words else ""


def need_namespaces() -> None:
    """Skip a test where namespaces cannot be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root: makes network namespaces")
    if find_spec("pyroute2") is None:
        pytest.skip("needs pyroute2 (extra vip)")
    try:
        tried = subprocess.run(
            ["unshare", "--net", "ip", "link", "show"], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("needs unshare and ip (Debian: util-linux, iproute2)")
    if tried.returncode:
        pytest.skip(f"network namespaces cannot be made here: {tried.stderr.strip()}")


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout
