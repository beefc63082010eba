"""Admission: which connections a broker lets in.

A primary, or a broker without a cluster, serves clients. Another broker, or an administrator,
claims its role in the properties of its open; access control (access.py) decides whether it gets
the role. Knows nothing of links. Source: Qpid `ConnectionObserver.cpp`,
`BackupConnectionExcluder.h`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from qpidha.broker.broker import Broker
from qpidha.broker.federation import FED_LINK
from qpidha.ha.channels import features_of, identify
from qpidha.ha.cluster import Cluster
from qpidha.management.access import CLAIMS, Access
from qpidha.management.redirects import elsewhere
from qpidha.model.errors import LimitExceeded, NotAllowed
from qpidha.model.event_codes import BROKER_REFUSED, NOT_IN_CLUSTER, TOO_MANY_CONNECTIONS
from qpidha.model.event_log import EventSink
from qpidha.model.events import ConnectionKind
from qpidha.model.features import lacking, upgrade_text
from qpidha.model.principal import Action, ObjectType, Role
from qpidha.model.settings import Settings

MOST_REFUSED = 20
"""Refused brokers that are remembered, so that each is announced once."""


class Host(Protocol):
    """The broker that a connection wants to use."""

    settings: Settings
    cluster: Cluster | None
    address: str
    streams: Any
    broker: Broker
    refused: dict[str, dict[str, object]]

    @property
    def access(self) -> Access:
        """Access control."""

    @property
    def event_log(self) -> EventSink:
        """Where events for the event log go."""

    def announce(self, level: str, text: str, *, event_code: str = "", **fields: object) -> None:
        """Write a line into the log."""

    @property
    def serving(self) -> bool:
        """Whether clients may change things here."""


def admit(host: Host, connection: Any) -> None:
    """Let a connection in and give its principal the role it claims; raise the error that the
    connection is refused with.
    """
    if connection.kind is ConnectionKind.OUTGOING:
        return  # we chose to go there
    host.access.check(connection.principal, Action.CREATE, ObjectType.CONNECTION)
    role = claimed_role(connection.remote_properties)
    if role is not None:
        host.access.check(connection.principal, Action.ACCESS, ObjectType.ROLE, role)
        if role is Role.BROKER:
            host.access.check(connection.principal, Action.CREATE, ObjectType.LINK)
        connection.principal = connection.principal.with_role(role)
        if role is Role.BROKER and host.cluster is None:
            raise NotAllowed(
                "this broker is not in a cluster",
                hint="set ha-cluster=yes",
                event_code=NOT_IN_CLUSTER,
            )
        if role is Role.BROKER:
            _check_features(host, connection)
    elif not host.serving:
        raise elsewhere(host, connection)
    else:
        if FED_LINK in connection.remote_properties:
            host.access.check(connection.principal, Action.CREATE, ObjectType.LINK)
        _let_in(host, connection)


def _let_in(host: Host, connection: Any) -> None:
    """Let in a client, or a link of another broker, if there is a place."""
    if len(host.streams.clients) >= host.settings.max_connections:
        host.event_log.limit("max-connections", "refused")
        raise LimitExceeded(
            f"there are max-connections {host.settings.max_connections} clients already",
            hint="try again later",
            event_code=TOO_MANY_CONNECTIONS,
        )
    host.access.let_in(connection.connection_id, connection.principal)
    host.streams.clients[connection.connection_id] = None
    host.event_log.client_connected(connection.connection_id, connection.principal.address)


def claimed_role(properties: Mapping[Any, Any]) -> Role | None:
    """Return the role that the properties of an open claim."""
    return next((role for role, name in CLAIMS.items() if name in properties), None)


def _check_features(host: Host, connection: Any) -> None:
    """Refuse a broker that does not know what the log here uses: it could not read the log, and
    would ask for it again and again. It is told when it opens the connection, so it says so once.
    """
    missing = lacking(host.broker.features, features_of(connection))
    if not missing and not host.refused:
        return
    _, name = identify(connection)
    if not missing:
        host.refused.pop(name, None)
        return
    text = upgrade_text(name, missing)
    if name not in host.refused and len(host.refused) < MOST_REFUSED:
        host.refused[name] = {"address": name, "missing": missing}
        host.announce("error", f"refused a broker: {text}", event_code=BROKER_REFUSED, broker=name)
    raise NotAllowed(text, event_code=BROKER_REFUSED)
