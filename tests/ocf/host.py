"""A host for the virtual address: a network namespace."""

from __future__ import annotations

import os
import subprocess

from tests.ocf.node import wait_for

ADDRESS = "10.99.0.100"


class Host:
    """A network namespace with an interface d0, cabled to p0 (10.99.0.1/24, fd99::1/64)."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        wait_for(
            lambda: (
                os.readlink(f"/proc/{self.process.pid}/ns/net") != os.readlink("/proc/self/ns/net")
            )
        )
        self.inside = ["nsenter", "-t", str(self.process.pid), "-n"]
        self.ip("link", "add", "d0", "type", "veth", "peer", "name", "p0")
        self.ip("link", "set", "p0", "up")
        self.ip("link", "set", "lo", "up")
        self.ip("link", "set", "d0", "up")
        self.ip("address", "add", "10.99.0.1/24", "dev", "d0")
        self.ip("address", "add", "fd99::1/64", "dev", "d0", "nodad")

    def ip(self, *words: str) -> str:
        return subprocess.run(
            [*self.inside, "ip", *words], capture_output=True, text=True, check=True
        ).stdout

    def has(self, address: str = ADDRESS) -> bool:
        return f" {address}/" in self.ip("-o", "address")

    def has_link(self) -> bool:
        """Whether the kernel has noticed what the other end of d0 is: that takes a while."""
        return " state UP " in self.ip("-o", "link", "show", "d0")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
