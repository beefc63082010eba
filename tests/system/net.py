"""Networks whose links can be cut: a namespace per broker when we are root, else TCP relays between
the brokers.

`Namespaces` gives each broker a host of its own on a bridge; a cut sends the frames for the other
side to an address that nobody has, so nothing arrives and nobody is told, as when a cable is
pulled. `Relays` does the same to the bytes between brokers on the loopback: it stops carrying them.
After `heal` what was on its way is delivered late, as TCP would. Both cut between brokers; only
namespaces can cut a broker off from its clients too. Ends only what it started.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from typing import Protocol

from qpidha.pipeline.workload.fault_proxies import FaultProxies

_NUMBERS = count(1)
NOBODY = "02:00:00:00:ff:ff"
"""A hardware address that no host has."""


class Network(Protocol):
    """Links between the brokers 0, 1, 2..."""

    isolates: bool
    """Whether a broker can be cut off from its clients too."""

    def host(self, index: int) -> Host:
        """Return where broker `index` runs."""

    def brokers_url(self, index: int, ports: Sequence[int]) -> str:
        """Return how broker `index` is to reach all brokers."""

    def cut(self, one: int, other: int, *, both: bool = True) -> None:
        """Let nothing pass from `one` to `other`, and unless told otherwise nothing back."""

    def isolate(self, index: int) -> None:
        """Cut one broker off from everybody."""

    def heal(self) -> None:
        """Let everything pass again."""

    def close(self) -> None:
        """Remove what was made."""


class Host:
    """Where a broker runs."""

    def __init__(
        self,
        address: str = "127.0.0.1",
        namespace: str = "",
        port: int = 0,
        *,
        others: tuple[str, ...] = (),
    ) -> None:
        self.address = address
        """Where clients reach it."""
        self.addresses = (address, *others)
        """Where it listens."""
        self.namespace = namespace
        """The file of its network namespace; empty for the one of the tests."""
        self.port = port
        """A fixed port, where no other process could take it; 0 is any free one."""


@cache
def can_make_namespaces() -> bool:
    """Whether we may make network namespaces, bridges and links."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"qh-try{os.getpid()}"
    try:
        _ip("netns", "add", name)
        try:
            _ip("-n", name, "link", "add", "try0", "type", "bridge")
            _ip("-n", name, "link", "add", "try1", "type", "veth", "peer", "name", "try2")
        finally:
            _ip("netns", "del", name)
    except (subprocess.CalledProcessError, OSError):
        return False
    return True


def make_network(count: int) -> Network:
    """Make the best network there can be here."""
    return Namespaces(count) if can_make_namespaces() else Relays(count)


def _subnet(first: int, end: int) -> str:
    """Draw a network that this machine has no route to yet. Tests may seed the generator that all
    share, alike in each worker: two then made the same network at once.
    """
    chance = random.SystemRandom()
    while True:
        subnet = f"10.{chance.randrange(first, end)}.{chance.randrange(256)}"
        words = ["ip", "route", "show", f"{subnet}.0/24"]
        if not subprocess.run(words, capture_output=True, check=True).stdout:
            return subnet


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Namespaces:
    """A bridge of our own and one namespace for each broker, 10.x.y.2 and up; clients are at
    10.x.y.1.
    """

    isolates = True

    def __init__(self, count: int) -> None:
        self.count = count
        self.cuts: set[tuple[int, int]] = set()
        self.made: list[tuple[str, ...]] = []
        # Never the names of one before: the kernel removes its links some time after their
        # namespace.
        self.tag = f"{os.getpid():x}-{next(_NUMBERS):x}"
        self.subnet = _subnet(64, 250)
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        bridge = f"qhb{self.tag}"
        _ip("link", "add", bridge, "type", "bridge")
        self.made.append(("link", "del", bridge))
        _ip("link", "set", bridge, "address", self._hardware(-1), "up")
        _ip("addr", "add", f"{self.subnet}.1/24", "dev", bridge)
        for index in range(self.count):
            name, ours, theirs = self._name(index), f"qhv{self.tag}{index}", f"qhw{self.tag}{index}"
            _ip("netns", "add", name)
            self.made.append(("netns", "del", name))
            _ip("link", "add", ours, "type", "veth", "peer", "name", theirs)
            _ip("link", "set", ours, "master", bridge, "up")
            _ip("link", "set", theirs, "netns", name)
            _ip("-n", name, "link", "set", theirs, "name", "eth0", "address", self._hardware(index))
            _ip("-n", name, "addr", "add", f"{self._address(index)}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", name, "link", "set", device, "up")

    def _name(self, index: int) -> str:
        return f"qh{self.tag}-{index}"

    def _address(self, index: int) -> str:
        """Return the address of a broker; -1 is where the clients are."""
        return f"{self.subnet}.{index + 2}"

    def _hardware(self, index: int) -> str:
        return f"02:00:00:00:01:{index + 2:02x}"

    def host(self, index: int) -> Host:
        return Host(self._address(index), f"/run/netns/{self._name(index)}", 5672)

    def brokers_url(self, index: int, ports: Sequence[int]) -> str:
        return ",".join(f"{self._address(other)}:{port}" for other, port in enumerate(ports))

    def cut(self, one: int, other: int, *, both: bool = True) -> None:
        for here, there in [(one, other), (other, one)][: 2 if both else 1]:
            if here >= 0:  # what leaves the clients' host is not touched: other clients share it
                self._send_to(here, there, NOBODY)
                self.cuts.add((here, there))

    def isolate(self, index: int) -> None:
        for other in range(-1, self.count):
            if other != index:
                self.cut(index, other)

    def heal(self) -> None:
        for here, there in sorted(self.cuts):
            self._send_to(here, there, self._hardware(there))
        self.cuts.clear()

    def _send_to(self, here: int, there: int, hardware: str) -> None:
        state = "permanent" if hardware == NOBODY else "reachable"
        _ip(
            "-n",
            self._name(here),
            "neigh",
            "replace",
            self._address(there),
            "lladdr",
            hardware,
            "nud",
            state,
            "dev",
            "eth0",
        )

    def close(self) -> None:
        for words in reversed(self.made):
            subprocess.run(["ip", *words], check=False, capture_output=True)
        self.made.clear()


class TwoNetworks(Namespaces):
    """The brokers have a network of their own, which no client is on, and an address each on the
    one of the clients.
    """

    def _build(self) -> None:
        super()._build()
        first, bridge = self.made[0][-1], f"qhc{self.tag}"
        _ip("addr", "flush", "dev", first)
        # Else it would be asked of the default gateway.
        inner = ("unreachable", f"{self.subnet}.0/24")
        _ip("route", "add", *inner)
        self.made.append(("route", "del", *inner))
        self.clients = _subnet(250, 256)
        _ip("link", "add", bridge, "type", "bridge")
        self.made.append(("link", "del", bridge))
        _ip("link", "set", bridge, "up")
        _ip("addr", "add", f"{self.clients}.1/24", "dev", bridge)
        for index in range(self.count):
            name, ours, theirs = self._name(index), f"qhx{self.tag}{index}", f"qhy{self.tag}{index}"
            _ip("link", "add", ours, "type", "veth", "peer", "name", theirs)
            _ip("link", "set", ours, "master", bridge, "up")
            _ip("link", "set", theirs, "netns", name)
            _ip("-n", name, "link", "set", theirs, "name", "eth1")
            _ip("-n", name, "addr", "add", f"{self.clients}.{index + 2}/24", "dev", "eth1")
            _ip("-n", name, "link", "set", "eth1", "up")

    def host(self, index: int) -> Host:
        own = super().host(index)
        return Host(f"{self.clients}.{index + 2}", own.namespace, own.port, others=(own.address,))


class Relays(FaultProxies):
    """A relay from each broker to each other on the loopback, in one thread."""

    isolates = False

    def host(self, index: int) -> Host:
        return Host()


class FloatingAddress(threading.Thread):
    """An address that moves from broker to broker, as a virtual IP address does: what was connected
    through it is cut off when its client says something, for the new host knows nothing of it.
    """

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.streams: list[socket.socket] = []

    def run(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            port = self.port
            try:
                broker = socket.create_connection(("127.0.0.1", port))
            except OSError:
                client.close()
                continue
            self.streams += [client, broker]
            for pair in ((client, broker), (broker, client)):
                threading.Thread(target=self.forward, args=(*pair, port), daemon=True).start()

    def forward(self, source: socket.socket, target: socket.socket, port: int) -> None:
        try:
            while (data := source.recv(65536)) and port == self.port:
                target.sendall(data)
        except OSError:
            pass
        for stream in (source, target):
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def move(self, port: int) -> None:
        """Lead new connections to another port of this machine."""
        self.port = port

    def close(self) -> None:
        """Lead nowhere."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        for stream in (self.listener, *self.streams):
            stream.close()
