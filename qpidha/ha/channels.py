"""Channels: the two links of a replication connection, paired and unwrapped.

Brokers reach each other at one service address. On each connection the broker that opened it
attaches a link in either direction; when both are there the connection is a channel, and messages
are what `wire.py` writes, each wrapped in one AMQP data section so that it is a message like any
other. Knows a link only as something with a connection, `sends`, `credit` and `send`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qpidha.ha.wire import Ignored, decode
from qpidha.model.encoding import LARGE, gathered
from qpidha.model.errors import LimitExceeded, ProtocolViolation
from qpidha.model.events import ConnectionKind
from qpidha.model.features import read_features

if TYPE_CHECKING:
    from qpidha.model.encoding import Parts

REPLICATION = "$qpidha.replication"
"""The address."""
QUEUE_STREAMS = "$qpidha.queues"
"""The address where brokers get what happens on a queue, for a replica of it."""
FEATURES_PROPERTY = "qpidha.features"
"""The property of a broker's open with the names of the features that it knows. The one who calls
says it in the map qpid.ha-backup, as `features`.
"""
DATA_SECTION = b"\x00\x53\x75\xb0"
"""Start of an AMQP data section (section 3.2.6) with a 32-bit length."""
DATA_HEAD = len(DATA_SECTION) + 4
"""Bytes before what is in the section."""


def identify(connection: Any) -> tuple[str, str]:
    """Return the system id of the broker that opened a connection, and what to call it."""
    info = connection.remote_properties.get("qpid.ha-backup")
    if not isinstance(info, dict) or not info.get("system-id"):
        raise ProtocolViolation("qpid.ha-backup must be a map with a system-id")
    return str(info["system-id"]), str(
        info.get("address") or info.get("name") or connection.principal.address
    )


def features_of(connection: Any) -> frozenset[str]:
    """Return what the broker at the other end of a connection says that it knows."""
    properties = connection.remote_properties
    if connection.kind is ConnectionKind.OUTGOING:
        return read_features(properties.get(FEATURES_PROPERTY))
    info = properties.get("qpid.ha-backup")
    return read_features(info.get("features") if isinstance(info, dict) else None)


class Channels:
    """All channels of one kind of one broker; the service at their address, at both ends."""

    def __init__(
        self,
        opened: Callable[[Any], None],
        on_message: Callable[[int, Any], None],
        decode: Callable[[bytes, int], Any] = decode,
    ) -> None:
        self._opened = opened
        self._on_message = on_message
        self._decode = decode
        self._senders: dict[int, Any] = {}
        self._receivers: dict[int, Any] = {}

    def attached(self, link: Any) -> None:
        """One of the two links is there."""
        connection = link.connection
        connection_id = connection.connection_id
        (self._senders if link.sends else self._receivers)[connection_id] = link
        if connection_id in self._senders and connection_id in self._receivers:
            self._opened(connection)

    def received(self, link: Any, payload: bytes) -> None:
        """One message came."""
        if payload[:4] != DATA_SECTION:
            raise ProtocolViolation("a replication message must be one data section")
        connection = link.connection
        try:
            message = self._decode(payload, DATA_HEAD)
        except ProtocolViolation as error:
            # What brokers say is settled, so only the end of the connection can tell the other one
            # why.
            self.forget(connection.connection_id)
            connection.close(error)
            return
        if not isinstance(message, Ignored):
            self._on_message(connection.connection_id, message)

    def credited(self, link: Any) -> None:
        """Streaming goes on at the end of the turn."""

    def detached(self, link: Any) -> None:
        """One of the links is gone, and with it the use of the other."""
        connection = link.connection
        if self.forget(connection.connection_id) and not connection.closed:
            connection.close(None)

    def forget(self, connection_id: int) -> bool:
        """The connection is of no use any more; False if it was no channel."""
        sender = self._senders.pop(connection_id, None)
        receiver = self._receivers.pop(connection_id, None)
        return sender is not None or receiver is not None

    def send(self, connection_id: int, data: bytes | Parts) -> None:
        """Send a message, as a whole or in parts, if the peer is still connected. One that lets too
        much wait for its credit loses the connection.
        """
        link = self._senders.get(connection_id)
        if link is None:
            return
        try:
            parts = (data,) if isinstance(data, bytes) else data
            size = sum(map(len, parts))
            parts = (DATA_SECTION, size.to_bytes(4, "big"), *parts)
            link.send(b"".join(parts) if size < LARGE else gathered(parts))
        except LimitExceeded as error:
            self.forget(connection_id)
            link.connection.close(error)

    def credit(self, connection_id: int) -> int:
        """Return how many messages the other end takes now."""
        link = self._senders.get(connection_id)
        return link.credit if link is not None else 0
