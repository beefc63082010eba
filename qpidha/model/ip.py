"""IP addresses of peers: what their text means, wherever one is compared, counted or believed.

On a socket for both kinds the kernel writes a peer of IPv4 as `::ffff:192.0.2.9`; here that is the
address of IPv4. Looks up no names. Source: RFC 4291 section 2.5.5.2.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

NETWORK = 64
"""Bits that all addresses of IPv6 begin with which one stranger may have."""


def host_of(address: str) -> str:
    """Return the host of `host:port`, of IPv6 without its brackets; empty if there is no port."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def address_of(host: str, port: int) -> str:
    """Return `host:port`, of IPv6 with brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ip_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host is given by, None if it is a name."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def plain_host(host: str) -> str:
    """Return a host as it is compared with others: an IP address has one way to be written."""
    found = ip_of(host)
    return host if found is None else str(found)


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a host, which is given by its IP address."""
    found = ip_of(host)
    return found is not None and found.is_loopback


def neighbourhood(address: str) -> str:
    """Return what is common to all addresses that one stranger may have, of an address with a
    port.
    """
    return network_of(host_of(address) or address)


def network_of(host: str) -> str:
    """Return what is common to all addresses that one stranger may have: of IPv6 its first 64
    bits.
    """
    found = ip_of(host)
    if isinstance(found, IPv6Address):
        rest = found.max_prefixlen - NETWORK
        return f"{IPv6Address(int(found) >> rest << rest)}/{NETWORK}"
    return host if found is None else str(found)
