"""Admission: who may come in to a broker, and where those are sent who may not.

A client is served by a primary or by a broker alone. Another broker, or an administrator, says in the properties of its
open what it is, and must be logged in as the user of `ha-username` where users log in at all.
Knows nothing of links. Source: Qpid `ConnectionObserver.cpp`, `BackupConnectionExcluder.h`.
"""

from __future__ import annotations

from typing import Any, Protocol

from qpidha.ha.role import Cluster
from qpidha.words.errors import ConnectionForced, LimitExceeded, NotAllowed, QpidHaError, Redirect, Unauthorized
from qpidha.words.events import ConnectionKind
from qpidha.words.notes import Notes
from qpidha.words.settings import Settings
from qpidha.words.url import Address


class House(Protocol):
    """The broker that somebody wants to come in to."""

    settings: Settings
    cluster: Cluster | None
    streams: Any

    @property
    def notes(self) -> Notes:
        """Where to note who came."""

    @property
    def serving(self) -> bool:
        """Whether clients may change things here."""


def admit(house: House, connection: Any) -> None:
    """Decide who somebody is, and whether he may come in; raises what his connection is refused with."""
    if connection.kind is ConnectionKind.OUTGOING:
        return  # we chose to go there
    settings = house.settings
    properties = connection.remote_properties
    claim = "qpid.ha-backup" if "qpid.ha-backup" in properties else "qpid.ha-admin" if "qpid.ha-admin" in properties else ""
    if claim:
        if settings.auth and connection.user != settings.ha_username:
            raise Unauthorized(f"{connection.user or 'anonymous'} may not use {claim}", hint="log in as the user that ha-username names")
        connection.is_backup = claim == "qpid.ha-backup"
        connection.is_admin = not connection.is_backup
        if connection.is_backup and house.cluster is None:
            raise NotAllowed("this broker is not in a cluster", hint="set ha-cluster=yes")
    elif not house.serving:
        raise elsewhere(house)
    elif _count_clients(house) > settings.max_connections:
        house.notes.limit("max-connections", "refused")
        raise LimitExceeded(f"there are max-connections {settings.max_connections} clients already", hint="try again later")
    else:
        house.notes.came(connection.connection_id, connection.peer)


def _count_clients(house: House) -> int:
    return sum(1 for stream in house.streams.by_id.values() if stream.is_ordinary)


def refusal(house: House) -> QpidHaError:
    """Return the error for a change asked of a backup by one who may look at it."""
    away = elsewhere(house)
    is_primary = house.cluster is not None and house.cluster.primary is not None
    return NotAllowed(away.text if is_primary else f"backups are read only: {away.text}", hint=away.hint)


def elsewhere(house: House) -> QpidHaError:
    """Return what ends a client's connection to a backup: where the primary is, if that is known."""
    cluster = house.cluster
    assert cluster is not None
    peer = cluster.current_primary()
    state = cluster.state.value
    if cluster.primary is not None:
        return ConnectionForced("this broker is handing over to another one", hint="try another address, or again in a moment")
    if peer is None:
        return ConnectionForced(f"this broker is {state} and knows no primary", hint="try another address, or again later")
    return Redirect(f"this broker is {state}; the primary is {peer.name}", info=server(peer.address))


def server(address: Address) -> dict[str, object]:
    """Describe an address as clients know it from redirects and server lists."""
    scheme = "amqps" if address.encrypted else "amqp"
    return {"network-host": address.host, "hostname": address.host, "port": address.port, "scheme": scheme}
