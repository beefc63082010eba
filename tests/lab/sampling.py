"""What the lab sees all the time: who answers for the virtual address, how each broker is, what
Pacemaker writes.

Each sampler is a thread that looks many times a second and keeps what it saw with the time, so that
a scenario can ask afterwards: had the address two holders, were two brokers active at once, was
anyone promoted who was not in sync? Times are `time.monotonic()`.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from qpidha.client.admin import LinkBroken
from qpidha.model.errors import RefusedRequest
from tests.lab.hosts import CLIENTS, VIP
from tests.lab.lab import ADMIN_SOCKET, Lab, enter_switch
from tests.system.cluster import Admin

ARP = 0x0806
REQUEST, REPLY = 1, 2
PRIMARY = ("recovering", "active")


class Sampler:
    """A thread that looks until it is told to end."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=type(self).__name__)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """End, and wait for it."""
        self._ending.set()
        self._thread.join(10)

    def _run(self) -> None:
        self.prepare()
        while not self._ending.wait(self.interval):
            self.look()

    def prepare(self) -> None:
        """Do what the thread needs once."""

    def look(self) -> None:
        raise AssertionError("a sampler looks")


class AddressSampler(Sampler):
    """Asks by ARP who has the virtual address, and keeps every hardware address that answers."""

    def __init__(self, lab: Lab, interval: float = 0.05) -> None:
        super().__init__(interval)
        self.lab = lab
        self.rounds: list[tuple[float, tuple[str, ...]]] = []
        """When it asked, and the hosts that answered until the next question."""

    def prepare(self) -> None:
        enter_switch()
        bridge, asker = CLIENTS.bridge, f"{CLIENTS.prefix}254"
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ARP))
        self._socket.bind((bridge, ARP))
        hardware = self._socket.getsockname()[4]
        head = b"\xff" * 6 + hardware + struct.pack("!HHHBBH", ARP, 1, 0x0800, 6, 4, REQUEST)
        self._question = (
            head + hardware + socket.inet_aton(asker) + bytes(6) + socket.inet_aton(VIP)
        )

    def look(self) -> None:
        at = time.monotonic()
        self._socket.send(self._question)
        hosts = {CLIENTS.hardware(name): name for name in self.lab.names}
        seen: set[str] = set()
        end = at + self.interval / 2
        while (left := end - time.monotonic()) > 0 and select.select([self._socket], [], [], left)[
            0
        ]:
            frame, origin = self._socket.recvfrom(128)
            if origin[2] == socket.PACKET_OUTGOING or len(frame) < 42:
                continue
            operation, sender, owner = struct.unpack("!H6s4s", frame[20:32])
            if operation == REPLY and owner == socket.inet_aton(VIP):
                hardware = sender.hex(":")
                seen.add(hosts.get(hardware, hardware))
        self.rounds.append((at, tuple(sorted(seen))))

    def doubles(self, since: float) -> list[tuple[float, tuple[str, ...]]]:
        """Return the rounds in which more than one host answered."""
        return [one for one in self.rounds if one[0] >= since and len(one[1]) > 1]

    def holders(self, since: float) -> list[str]:
        """Return who held the address one after the other."""
        found: list[str] = []
        for at, names in self.rounds:
            if at >= since and names and found[-1:] != list(names):
                found += names
        return found


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer of a broker to `status`."""

    name: str
    asked: float
    answered: float
    state: str
    epoch: int
    system_id: str
    in_sync: tuple[int, int, tuple[str, ...]]


@dataclass(slots=True)
class Span:
    """A time in which every answer of a broker said that it is active in this epoch; it
    surely was.
    """

    name: str
    epoch: int
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Promotion:
    """A broker that became primary: when it was first seen as that, what it was before, and the
    in-sync set known then.
    """

    name: str
    at: float
    epoch: int
    before: str
    was_in_sync: bool
    known: tuple[int, int, tuple[str, ...]] = field(default=(0, 0, ()))


class BrokerSampler(Sampler):
    """Asks the broker of one host how it is."""

    def __init__(self, lab: Lab, name: str, interval: float = 0.1) -> None:
        super().__init__(interval)
        self.lab = lab
        self.name = name
        self.samples: list[Sample] = []
        self._admin: Admin | None = None

    def look(self) -> None:
        asked = time.monotonic()
        status = self._ask()
        if not status:
            return
        record = status.get("in_sync") or {}
        in_sync = (
            int(record.get("epoch", 0)),
            int(record.get("version", 0)),
            tuple(record.get("members", ())),
        )
        self.samples.append(
            Sample(
                self.name,
                asked,
                time.monotonic(),
                status["state"],
                int(status["epoch"]),
                status["system_id"],
                in_sync,
            )
        )

    def _ask(self) -> dict[str, Any]:
        try:
            if self._admin is None:
                if not self.lab.is_on(self.name):
                    return {}
                self._admin = Admin(self.lab.path(self.name, ADMIN_SOCKET), timeout=0.5)
            return dict(self._admin.call("status"))
        except (LinkBroken, RefusedRequest, ValueError):
            if self._admin is not None:
                self._admin.__exit__()
                self._admin = None
            return {}


class LogSampler(Sampler):
    """Reads the logs of Pacemaker on all hosts as they grow, and keeps when each line came."""

    def __init__(self, lab: Lab, interval: float = 0.01) -> None:
        super().__init__(interval)
        self.lab = lab
        self.lines: list[tuple[float, str, str]] = []
        self._open: dict[str, int] = {}
        self._rest: dict[str, bytes] = {}

    def look(self) -> None:
        for name in self.lab.names:
            if name not in self._open:
                path = self.lab.disk(name, "/var/log/pacemaker/pacemaker.log")
                if not path.exists():
                    continue
                self._open[name] = os.open(path, os.O_RDONLY)
            data = os.read(self._open[name], 1 << 20)
            if data:
                *lines, rest = (self._rest.get(name, b"") + data).split(b"\n")
                self._rest[name] = rest
                at = time.monotonic()
                self.lines += [(at, name, line.decode(errors="replace")) for line in lines]

    def first(self, since: float, *parts: str) -> float | None:
        """Return when the first line with one of these parts came."""
        for at, _, line in self.lines:
            if at >= since and any(part in line for part in parts):
                return at
        return None


class Watch:
    """All samplers of a lab."""

    def __init__(self, lab: Lab, interval: float = 0.1) -> None:
        self.lab = lab
        self.interval = interval
        self.address = AddressSampler(lab)
        self.log = LogSampler(lab)
        self.brokers = {name: BrokerSampler(lab, name, interval) for name in lab.names}

    def __enter__(self) -> Watch:
        for sampler in self._samplers():
            sampler.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        for sampler in self._samplers():
            sampler.end()

    def add(self, name: str) -> None:
        """Ask one more broker."""
        self.brokers[name] = BrokerSampler(self.lab, name, self.interval)
        self.brokers[name].start()

    def samples(self, since: float = 0.0) -> list[Sample]:
        """Return all answers of all brokers in the order in which they came."""
        found = [
            one
            for sampler in self.brokers.values()
            for one in list(sampler.samples)
            if one.answered >= since
        ]
        return sorted(found, key=lambda one: one.answered)

    def promotions(self, since: float) -> list[Promotion]:
        """Return the promotions since then."""
        return [one for one in promotions(self.samples()) if one.at >= since]

    def _samplers(self) -> list[Sampler]:
        return [self.address, self.log, *self.brokers.values()]


def active_spans(samples: list[Sample]) -> list[Span]:
    """Join each broker's answers while it was active in one epoch without a break."""
    spans: list[Span] = []
    last: dict[str, Span] = {}
    for one in samples:
        span = last.get(one.name)
        if one.state != "active":
            last.pop(one.name, None)
        elif span is not None and span.epoch == one.epoch:
            span.last = one.asked
        else:
            last[one.name] = Span(one.name, one.epoch, one.answered, one.answered)
            spans.append(last[one.name])
    return spans


def overlapping(samples: list[Sample]) -> list[tuple[Span, Span]]:
    """Return the pairs of brokers that were surely active at the same time."""
    spans = active_spans(samples)
    pairs = [
        (one, other)
        for i, one in enumerate(spans)
        for other in spans[i + 1 :]
        if one.name != other.name
    ]
    return [
        (one, other)
        for one, other in pairs
        if max(one.first, other.first) < min(one.last, other.last)
    ]


def promotions(samples: list[Sample]) -> list[Promotion]:
    """Find every broker's change to primary, and whether it was in the newest in-sync set that
    anybody had shown before.
    """
    found: list[Promotion] = []
    last: dict[str, Sample] = {}
    newest: tuple[int, int, tuple[str, ...]] = (0, 0, ())
    for one in samples:
        before = last.get(one.name)
        if (
            before
            and one.state in PRIMARY
            and (before.epoch != one.epoch or before.state not in PRIMARY)
        ):
            was_in_sync = not newest[2] or one.system_id in newest[2]
            found.append(
                Promotion(one.name, one.answered, one.epoch, before.state, was_in_sync, newest)
            )
        last[one.name] = one
        newest = max(newest, one.in_sync)
    return found
