"""Virtual addresses as data: what is wanted, what is held, and notes of that in a folder that a
reboot empties.

A note is written before its address is added and removed after it, so that whoever comes next finds
every address that may still be there, however the last one ended. Knows nothing of interfaces.
"""

from __future__ import annotations

import ipaddress
import json
import os
from pathlib import Path
from typing import NamedTuple

from qpidha.model.errors import InvalidArgument

BROADCAST = ipaddress.IPv4Address("255.255.255.255")


class Wanted(NamedTuple):
    """An address to add. `prefix` 0 and an empty `interface` mean: as of the network that holds the
    address.
    """

    address: str
    prefix: int = 0
    interface: str = ""

    @staticmethod
    def parse(text: str, interface: str = "") -> Wanted:
        """Read ADDRESS or ADDRESS/PREFIX; raise InvalidArgument."""
        try:
            found = host_interface(text)
        except ValueError as error:
            raise InvalidArgument(
                f"{text!r} is no address: {error}", hint="an address as 10.0.0.100 or 10.0.0.100/24"
            ) from error
        return Wanted(str(found.ip), found.network.prefixlen if "/" in text else 0, interface)


def host_interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface:
    """Read ADDRESS or ADDRESS/PREFIX as an address that a host can have; raise ValueError with the
    reason for any other.
    """
    found = ipaddress.ip_interface(text)
    if found.ip.is_unspecified or found.ip.is_multicast or found.ip == BROADCAST:
        raise ValueError(f"{found.ip} belongs to no host")
    network = found.network
    if (
        found.version == 4
        and network.num_addresses > 2
        and found.ip in (network.network_address, network.broadcast_address)
    ):
        raise ValueError(
            f"in a network of prefix {network.prefixlen} {found.ip} stands for the "
            "network, and belongs to no host"
        )
    return found


class Held(NamedTuple):
    """A virtual address and where it is."""

    address: str
    prefix: int
    interface: str


class Notes:
    """The folder of notes."""

    __slots__ = ("folder",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, held: Held) -> None:
        """Note an address. Raises OSError if that is not possible."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = self.folder / f".{held.address}.{os.getpid()}"
        fresh.write_text(json.dumps({"schema_version": 1, **held._asdict()}) + "\n")
        fresh.replace(self.folder / held.address)

    def has(self, address: str) -> bool:
        """Whether an address is noted."""
        return (self.folder / address).exists()

    def drop(self, address: str) -> None:
        """Forget an address."""
        (self.folder / address).unlink(missing_ok=True)

    def all(self) -> list[Held]:
        """Return what is noted, by address. A note that cannot be read still tells its address,
        which is its name, if it is one.
        """
        try:
            names = sorted(name for name in os.listdir(self.folder) if not name.startswith("."))
        except FileNotFoundError:
            return []
        return [self._read(name) for name in names if _is_address(name)]

    def _read(self, name: str) -> Held:
        try:
            found = json.loads((self.folder / name).read_text())
            prefix = ipaddress.ip_interface(f"{name}/{int(found['prefix'])}").network.prefixlen
            return Held(name, prefix, str(found["interface"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Held(name, 0, "")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
