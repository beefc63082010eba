"""Redirects: what a client hears that is not served here, and which addresses it is told.

Clients that reconnect over a list of addresses go on to the next one when a connection ends before
their open was answered, and after they were served when the stream breaks; most of them give up
when they are told an error. So a client is told nothing, unless it says that it follows redirects:
by a capability, or, before its open is answered, by being Qpid JMS. An address is told only to who
can use it: one of the scheme that the client came with, and of the network on which it came. Knows
nothing of links. Source: AMQP 1.0 section 2.8.18; Qpid `ConnectionObserver.cpp`,
`BackupConnectionExcluder.h`.
"""

from __future__ import annotations

from typing import Any, Protocol

from qpidha.ha.cluster import Cluster
from qpidha.ha.peers import Peer
from qpidha.model.errors import (
    FOLLOWS_REDIRECTS,
    ConnectionForced,
    NotServing,
    QpidHaError,
    Redirect,
    Unanswered,
)
from qpidha.model.ip import ip_of
from qpidha.model.settings import Settings
from qpidha.model.url import Address, parse_address

FOLLOWING_PRODUCTS = ("QpidJMS",)
"""Clients that follow a redirect and do not say so. On an open connection they take any close for
the failure of every message on its way, and tell their application.
"""


class Host(Protocol):
    """The broker that clients are sent away from."""

    settings: Settings
    cluster: Cluster | None
    address: str


def elsewhere(host: Host, connection: Any) -> QpidHaError:
    """Return the error that ends the connection of a client that another broker serves."""
    primary = _primary_to_be(host)
    address = client_address(host, connection, primary.address) if primary is not None else None
    name = address.host_port if address is not None else "another broker"
    if primary is not None and not connection.principal.is_ordinary:
        name = primary.name
    error = _away(host, name)
    if address is not None:
        error = Redirect(error.text, info=described(address))
    return as_told(host, connection, error)


def as_told(host: Host, connection: Any, error: QpidHaError) -> QpidHaError:
    """Return the error with which a connection is ended in place of another broker's service: the
    one given where the client understands it, else one that is not told.
    """
    rule = host.settings.ha_refuse_clients
    if rule == "redirect" or not connection.principal.is_ordinary:
        return error
    if rule == "auto" and FOLLOWS_REDIRECTS in connection.remote_offered:
        return error
    if (
        rule == "auto"
        and isinstance(error, Redirect)
        and not connection.opened
        and connection.remote_properties.get("product") in FOLLOWING_PRODUCTS
    ):
        return error
    return Unanswered(error.text, reason=error.reason, hint=error.hint)


def refusal(host: Host) -> QpidHaError:
    """Return the error for a change that an administrator asks of a broker that is not serving."""
    primary = _primary_to_be(host)
    away = _away(host, primary.name if primary is not None else "")
    if host.cluster is not None and host.cluster.primary is not None:
        return NotServing(away.text, hint=away.hint)
    return NotServing("backups are read only", reason=away.text, hint=away.hint)


def _primary_to_be(host: Host) -> Peer | None:
    """Return the broker that serves in this one's place, now or in a moment, if that is known."""
    cluster = host.cluster
    assert cluster is not None
    if cluster.primary is not None:
        return None
    peer = cluster.peers.current_primary()
    return cluster.handover.peer if peer is None and cluster.handover is not None else peer


def _away(host: Host, name: str) -> QpidHaError:
    """Say why this broker does not serve; `name` is what the reader knows the other one by."""
    cluster = host.cluster
    assert cluster is not None
    if cluster.primary is not None:
        return ConnectionForced(
            "this broker is handing over to another one",
            hint="try another address, or again in a moment",
        )
    state = cluster.state.value
    if cluster.peers.current_primary() is not None:
        return ConnectionForced(f"this broker is {state}; the primary is {name}")
    if cluster.handover is not None:
        return ConnectionForced(
            f"this broker is {state}; {name} is about to be the primary",
            hint="try another address, or again in a moment",
        )
    return ConnectionForced(
        f"this broker is {state} and knows no primary", hint="try another address, or again later"
    )


def client_addresses(host: Host, connection: Any) -> list[Address]:
    """Return every address of the cluster that a client can use, in the order configured."""
    if host.settings.ha_public_url:
        return _public(host, connection)
    return [
        address for address in host.settings.ha_brokers_url if _is_usable(host, connection, address)
    ]


def client_address(host: Host, connection: Any, broker: Address) -> Address | None:
    """Return where a client finds the broker that others know by this address; None if that is
    not known. With `ha-public-url` it is the one public address of the client's scheme, or, where
    there is one for each broker, that at the broker's place in `ha-brokers-url`.
    """
    if not host.settings.ha_public_url:
        return broker if _is_usable(host, connection, broker) else None
    public, brokers = _public(host, connection), host.settings.ha_brokers_url
    if len(public) == 1:
        return public[0]
    if len(public) == len(brokers) and broker in brokers:
        return public[brokers.index(broker)]
    return None


def _public(host: Host, connection: Any) -> list[Address]:
    encrypted = connection.principal.encrypted
    return [address for address in host.settings.ha_public_url if address.encrypted == encrypted]


def _is_usable(host: Host, connection: Any, address: Address) -> bool:
    """Whether a client can use an address that brokers use: it has the client's scheme, and the
    client came over the network of the brokers. Where brokers go by names, a name may lead a client
    to another address than it leads a broker.
    """
    if address.encrypted != connection.principal.encrypted:
        return False
    met, own = ip_of(connection.local_host), ip_of(parse_address(host.address).host)
    return met is None or own is None or met == own or met.is_loopback


def described(address: Address) -> dict[str, object]:
    """Describe an address as clients know it from redirects and server lists."""
    scheme = "amqps" if address.encrypted else "amqp"
    return {
        "network-host": address.host,
        "hostname": address.host,
        "port": address.port,
        "scheme": scheme,
    }
