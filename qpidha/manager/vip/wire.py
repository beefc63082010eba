"""Virtual addresses on the wire: is the address in use by somebody else, and where is it now.

Neighbours keep the last hardware address for tens of seconds unless they are told of the new one.
IPv4 is announced by an ARP *request* for the own address: the reply form is ignored by hosts that
updated their entry within the last second. IPv6 is announced by an unsolicited neighbour
advertisement that overrides. Closing a packet socket takes 20 to 30 ms, so who announces keeps one
socket until the repeats are out. Knows nothing of interfaces' addresses. Source: RFC 5227, RFC 4861
section 7.2.6.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
import time
from collections.abc import Callable

REPEATS = 3
"""Announcements after the first one, in case that one was lost or ignored."""
REPEAT_INTERVAL = 0.5
"""Seconds between them."""
_ETHERTYPE_ARP = 0x0806
_ARP = struct.Struct("!6s6sHHHBBH6s4s6s4s")
_REQUEST = 1
_BROADCAST = b"\xff" * 6
_NOBODY = b"\0" * 6
_ADVERTISEMENT = 136
_OVERRIDE = 0x20000000
_ALL_NODES = "ff02::1"


def hardware_bytes(text: str) -> bytes:
    """Turn aa:bb:cc:dd:ee:ff into its six bytes."""
    return bytes.fromhex(text.replace(":", ""))


class Ipv4Announcer:
    """Probes for, and announces, one IPv4 address on one interface."""

    def __init__(self, interface: str, hardware: bytes, address: str) -> None:
        self._hardware = hardware
        self._address = socket.inet_aton(address)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self._socket.bind((interface, _ETHERTYPE_ARP))
        except OSError:
            self._socket.close()
            raise

    def probe(self, seconds: float) -> str:
        """Ask twice who has the address; return the hardware address of another host that answers,
        or an empty text.
        """
        began = time.monotonic()
        for part in (0.5, 1.0):
            self._socket.send(self._request(b"\0" * 4))
            while (left := began + seconds * part - time.monotonic()) > 0:
                self._socket.settimeout(left)
                try:
                    other = self._claimant(self._socket.recv(128))
                except TimeoutError:
                    break
                if other:
                    return other
        return ""

    def send(self) -> None:
        """Announce the address once."""
        self._socket.send(self._request(self._address))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _request(self, sender: bytes) -> bytes:
        return _ARP.pack(
            _BROADCAST,
            self._hardware,
            _ETHERTYPE_ARP,
            1,
            0x0800,
            6,
            4,
            _REQUEST,
            self._hardware,
            sender,
            _NOBODY,
            self._address,
        )

    def _claimant(self, frame: bytes) -> str:
        """Return who holds the address or probes for it as well, if this frame says so."""
        if len(frame) < _ARP.size:
            return ""
        *_, hardware, sender, _, target = _ARP.unpack_from(frame)
        claims = sender == self._address or (sender == b"\0" * 4 and target == self._address)
        return hardware.hex(":") if claims and hardware != self._hardware else ""


class Ipv6Announcer:
    """Announces one IPv6 address on one interface; whether it is in use, the kernel finds out."""

    def __init__(self, interface: str, hardware: bytes, address: str) -> None:
        index = socket.if_nametoindex(interface)
        target = ipaddress.IPv6Address(address).packed
        # The kernel writes the checksum. Option 2 is the hardware address of the target, in units
        # of eight bytes.
        self._packet = struct.pack(
            "!BBHI16sBB6s", _ADVERTISEMENT, 0, 0, _OVERRIDE, target, 2, 1, hardware
        )
        self._to = (_ALL_NODES, 0, 0, index)
        self._socket = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        try:
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
            self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
            self._socket.bind((address, 0, 0, index))
        except OSError:
            self._socket.close()
            raise

    def send(self) -> None:
        """Announce the address once."""
        self._socket.sendto(self._packet, self._to)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


Announcer = Ipv4Announcer | Ipv6Announcer


def repeat(announcer: Announcer, still: Callable[[], bool]) -> None:
    """Announce a few times more while the address is `still` ours, then close. Takes 1.5 s."""
    try:
        for _ in range(REPEATS):
            time.sleep(REPEAT_INTERVAL)
            if not still():
                return
            announcer.send()
    except OSError:
        # The interface went down; when it comes up again, the kernel or the next holder announces.
        pass
    finally:
        announcer.close()
