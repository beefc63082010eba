"""Virtual addresses: put one on an interface of this machine, see to it that neighbours know, and
take it away again.

Adding and removing are idempotent. An address that another host answers for is not added (IPv4: a
short ARP probe; IPv6: the kernel's own duplicate address detection). `withdraw` removes all that
are noted, and once it has begun no addition that was under way completes: that is what a broker
that is primary no more relies on. Calls block; a program with an event loop makes them in threads.
Knows nothing of brokers. pyroute2 speaks netlink. Source: RFC 5227, RFC 4862; Qpid's chapter on
virtual IP addresses.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from qpidha.manager.vip.state import Held, Notes, Wanted
from qpidha.manager.vip.wire import Announcer, Ipv4Announcer, Ipv6Announcer, hardware_bytes
from qpidha.model.errors import (
    InvalidArgument,
    NotFound,
    RefusedRequest,
    ResourceLocked,
    Unauthorized,
)

PROBE_TIME = 0.05
"""Seconds to wait for another holder's answer; one on the same network answers within a few
milliseconds.
"""
DETECTION_TIME = 5.0
"""Seconds for the kernel's detection of IPv6 duplicates; it takes 1 to 2 unless the interface is
set otherwise.
"""
DETECTION_LOOK = 0.02
_UP, _NO_ARP, _LOOPBACK = 0x1, 0x80, 0x8
_NO_DETECTION, _FAILED, _TENTATIVE = 0x02, 0x08, 0x40
_FOR_EVER = 0xFFFFFFFF
_GONE = (errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO)


@dataclass(frozen=True, slots=True)
class Added:
    """What came of an addition. `announcer` has announced once; None where there are no neighbours
    to tell.
    """

    held: Held
    changed: bool
    announcer: Announcer | None


@dataclass(frozen=True, slots=True)
class _Interface:
    """An interface as the kernel describes it."""

    name: str
    index: int
    flags: int
    hardware: bytes

    @property
    def has_neighbours(self) -> bool:
        return not self.flags & (_NO_ARP | _LOOPBACK) and len(self.hardware) == 6


class VirtualAddresses:
    """The virtual addresses that this machine holds, as noted in a folder."""

    def __init__(self, folder: Path) -> None:
        self.notes = Notes(folder)
        self.generation = 0
        """Counts the withdrawals; an addition of an earlier generation does not complete."""
        self._lock = threading.Lock()

    def add(self, wanted: Wanted, *, force: bool = False, generation: int | None = None) -> Added:
        """Add an address and announce it once.

        Raises ResourceLocked if another host has it, which `force` does not ask; NotFound,
        InvalidArgument, Unauthorized; and RefusedRequest if all addresses were withdrawn meanwhile.
        """
        generation = self.generation if generation is None else generation
        with IPRoute() as route:
            held, present = _place(route, wanted)
            interface = _interface(route, held.interface)
            if not interface.flags & _UP:
                raise RefusedRequest(
                    f"{held.interface} is down",
                    hint=f"ip link set {held.interface} up, or another interface",
                )
            announcer: Announcer | None = None
            try:
                if (
                    isinstance(ipaddress.ip_address(held.address), ipaddress.IPv4Address)
                    and interface.has_neighbours
                ):
                    announcer = Ipv4Announcer(interface.name, interface.hardware, held.address)
                    if not present and not force and (other := announcer.probe(PROBE_TIME)):
                        raise _taken(held, f"{other} answers for it")
                with self._lock:
                    self._check(generation)
                    self._put(route, held, interface.index, force)
                if ":" in held.address:
                    self._await_detection(route, held, interface.index, generation)
                    if interface.has_neighbours:
                        announcer = Ipv6Announcer(interface.name, interface.hardware, held.address)
                if announcer is not None:
                    announcer.send()
            except PermissionError as error:
                raise _unauthorized() from error
            except BaseException:
                if announcer is not None:
                    announcer.close()
                raise
        return Added(held, not present, announcer)

    def remove(self, address: str) -> bool:
        """Remove an address from wherever it is; return whether it was anywhere."""
        found = False
        with self._lock, IPRoute() as route:
            for prefix, index in _where(route, address):
                found = _change(route, "del", Held(address, prefix, ""), index) or found
            self.notes.drop(address)
        return found

    def withdraw(self) -> list[str]:
        """Remove all addresses that are noted and let no addition that is under way complete;
        return which.
        """
        self.generation += 1
        with self._lock:
            held = self.notes.all()
            if held:
                with IPRoute() as route:
                    for one in held:
                        self._take(route, one)
        return [one.address for one in held]

    def show(self) -> list[dict[str, Any]]:
        """Tell the noted addresses, and whether they are on their interfaces."""
        with IPRoute() as route:
            return [
                {**one._asdict(), "present": bool(_where(route, one.address))}
                for one in self.notes.all()
            ]

    def _put(self, route: IPRoute, held: Held, index: int, force: bool) -> None:
        """Note and add an address; one that the kernel refuses is not noted, unless it was
        before.
        """
        was_noted = self.notes.has(held.address)
        self.notes.write(held)
        try:
            _change(route, "add", held, index, force)
        except BaseException:
            if not was_noted:
                self.notes.drop(held.address)
            raise

    def _take(self, route: IPRoute, held: Held) -> None:
        try:
            places = [(held.prefix, socket.if_nametoindex(held.interface))]
        except OSError:
            places = _where(
                route, held.address
            )  # The interface has another name by now, or the note cannot be read.
        for prefix, index in places:
            if not _change(route, "del", Held(held.address, prefix, held.interface), index):
                for other_prefix, other in _where(route, held.address):
                    _change(route, "del", Held(held.address, other_prefix, held.interface), other)
        self.notes.drop(held.address)

    def _check(self, generation: int) -> None:
        if generation != self.generation:
            raise RefusedRequest(
                "the addresses were withdrawn meanwhile", hint="ask the primary's node"
            )

    def _await_detection(self, route: IPRoute, held: Held, index: int, generation: int) -> None:
        """Wait until the kernel has found that no other host has an IPv6 address."""
        deadline = time.monotonic() + DETECTION_TIME
        while flags := _address_flags(route, held.address, index) & (_TENTATIVE | _FAILED):
            if flags & _FAILED:
                self.remove(held.address)
                raise _taken(held, "duplicate address detection failed")
            self._check(generation)
            if time.monotonic() > deadline:
                self.remove(held.address)
                raise RefusedRequest(
                    f"{held.address} is still tentative after {DETECTION_TIME:g} s",
                    hint=f"is {held.interface} connected?",
                )
            time.sleep(DETECTION_LOOK)


def _place(route: IPRoute, wanted: Wanted) -> tuple[Held, bool]:
    """Say where an address goes, and whether it is there already."""
    address = ipaddress.ip_address(wanted.address)
    index = _index(wanted.interface) if wanted.interface else 0
    best: tuple[int, int] | None = None
    for message in route.get_addr(
        family=socket.AF_INET if address.version == 4 else socket.AF_INET6
    ):
        local, prefix, at = _local(message), int(message["prefixlen"]), int(message["index"])
        if local == wanted.address:
            if index and at != index:
                where = socket.if_indextoname(at)
                raise InvalidArgument(
                    f"{local} is already on {where}",
                    hint=f"qpid-ha vip remove {local}, or --interface {where}",
                )
            return Held(local, prefix, socket.if_indextoname(at)), True
        if (
            index in (0, at)
            and address in ipaddress.ip_interface(f"{local}/{prefix}").network
            and (best is None or prefix > best[0])
        ):
            best = (prefix, at)
    if best is None and not index:
        raise NotFound(
            f"no interface has a network that holds {address}",
            hint=f"name one, and a prefix: {address}/24 --interface eth0",
        )
    prefix, at = best or (address.max_prefixlen, index)
    return Held(wanted.address, wanted.prefix or prefix, socket.if_indextoname(index or at)), False


def _local(message: Any) -> str:
    """Return the own address that a netlink message tells of; on point-to-point links IFA_ADDRESS
    is the other end.
    """
    return str(message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS"))


def _where(route: IPRoute, address: str) -> list[tuple[int, int]]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return [
        (int(one["prefixlen"]), int(one["index"]))
        for one in route.get_addr(family=family)
        if _local(one) == address
    ]


def _address_flags(route: IPRoute, address: str, index: int) -> int:
    for message in route.get_addr(family=socket.AF_INET6, index=index):
        if _local(message) == address:
            return int(message.get_attr("IFA_FLAGS") or message["flags"])
    return 0


def _index(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError as error:
        names = ", ".join(name for _, name in socket.if_nameindex())
        raise NotFound(f"there is no interface {interface}", hint=f"one of {names}") from error


def _interface(route: IPRoute, name: str) -> _Interface:
    index = _index(name)
    link = next(iter(route.get_links(index)))
    return _Interface(
        name, index, int(link["flags"]), hardware_bytes(str(link.get_attr("IFLA_ADDRESS") or ""))
    )


def _change(route: IPRoute, what: str, held: Held, index: int, force: bool = False) -> bool:
    """Add or delete an address; return whether that changed anything."""
    more: dict[str, Any] = {}
    if what == "add" and ":" in held.address:
        # Of no preferred life, so that connections of this host's own programs never come from an
        # address that moves.
        more = {"preferred": 0, "valid": _FOR_EVER, "flags": _NO_DETECTION if force else 0}
    try:
        route.addr(what, index=index, address=held.address, prefixlen=held.prefix, **more)
    except NetlinkError as error:
        if error.code == (errno.EEXIST if what == "add" else None) or (
            what == "del" and error.code in _GONE
        ):
            return False
        if (
            error.code == errno.EACCES and ":" in held.address
        ):  # the kernel's word for it, whoever asks
            hint = f"sysctl net.ipv6.conf.{held.interface}.disable_ipv6=0, or another interface"
            raise RefusedRequest(f"IPv6 is switched off on {held.interface}", hint=hint) from error
        if error.code in (errno.EPERM, errno.EACCES):
            raise _unauthorized() from error
        raise RefusedRequest(
            f"{held.address}/{held.prefix} cannot be {what}ed: {error}",
            hint=f"ip addr show {held.interface}",
        ) from error
    return True


def _taken(held: Held, how: str) -> ResourceLocked:
    return ResourceLocked(
        f"{held.address} is in use on the network of {held.interface}: {how}",
        hint="end the other holder; --force adds it all the same",
    )


def _unauthorized() -> Unauthorized:
    return Unauthorized("only root may change addresses", hint="run it as root")
