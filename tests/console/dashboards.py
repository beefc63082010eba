"""Clusters with a console beside each broker, and a browser that looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.chromium import AS_ROOT, CHROMIUM
from tests.console.consoles import Console
from tests.system.cluster import Cluster, Port


@dataclass
class Watched:
    """A cluster, and the console of each broker."""

    cluster: Cluster
    consoles: list[Console]

    def address(self, number: int) -> str:
        """Return where a console is."""
        return f"http://127.0.0.1:{self.consoles[number].port}"


@contextmanager
def watched(directory: Path, count: int = 3, *more: object) -> Iterator[Watched]:
    """Run a cluster of brokers b1, b2, ... whose first one is active, with a console for each that
    has `more` options.
    """
    cluster = Cluster(directory, count, options={})
    ports = [Port() for _ in range(count)]
    consoles: list[Console] = []
    try:
        for number, broker in enumerate(cluster, 1):
            broker.options["name"] = f"b{number}"
        cluster.start()
        every = ",".join(f"http://127.0.0.1:{port.number}" for port in ports)
        for broker, port in zip(cluster, ports, strict=True):
            socket = broker.admin_socket
            options = ("--admin-socket", socket, "--consoles", every, "--cluster", "orders", *more)
            consoles.append(Console(*options, port=port.number))
        yield Watched(cluster, consoles)
    finally:
        for console in consoles:
            console.__exit__()
        cluster.close()
        for port in ports:
            port.close()


@contextmanager
def browser() -> Iterator[Browser]:
    """Start the system's Chromium; nothing is downloaded."""
    assert CHROMIUM is not None
    flags = ["--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    flags += AS_ROOT
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        try:
            yield found
        finally:
            found.close()
