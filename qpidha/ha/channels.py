"""Channels: the two links of a replication connection, paired and unwrapped.

Brokers reach each other at one service address. On each connection the broker that opened it attaches
a link in either direction; when both are there the connection is a channel, and messages are what
`wire.py` writes, each wrapped in one AMQP data section so that it is a message like any other.
Knows a link only as something with a connection, `sends`, `credit` and `send`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qpidha.ha.wire import Spoken, decode
from qpidha.words.errors import NotAllowed, ProtocolViolation

REPLICATION = "$qpidha.replication"
"""The address."""
DATA_SECTION = b"\x00\x53\x75\xb0"
"""Start of an AMQP data section (section 3.2.6) with a 32-bit length."""


def caller(connection: Any) -> tuple[str, str]:
    """Return the system id of the broker that opened a connection, and what to call it."""
    info = connection.remote_properties.get("qpid.ha-backup")
    if not isinstance(info, dict) or not info.get("system-id"):
        raise ProtocolViolation("qpid.ha-backup must be a map with a system-id")
    return str(info["system-id"]), str(info.get("address") or info.get("name") or connection.peer)


class Channels:
    """All channels of one broker; the service at REPLICATION, at both ends."""

    def __init__(self, opened: Callable[[Any], None], heard: Callable[[int, Spoken], None]) -> None:
        self._opened = opened
        self._heard = heard
        self._senders: dict[int, Any] = {}
        self._receivers: dict[int, Any] = {}

    def attached(self, link: Any) -> None:
        """One of the two links is there."""
        connection = link.connection
        if not connection.is_broker:
            raise NotAllowed(f"{REPLICATION} is for brokers", hint="a broker says so with the connection property qpid.ha-backup")
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
            spoken = decode(payload[8:])
        except ProtocolViolation as error:
            # What brokers say is settled, so only the end of the connection can tell the other one why.
            self.forget(connection.connection_id)
            connection.close(error)
            return
        self._heard(connection.connection_id, spoken)

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

    def say(self, connection_id: int, data: bytes) -> None:
        """Send a message, if there still is somebody to send it to."""
        link = self._senders.get(connection_id)
        if link is not None:
            link.send(DATA_SECTION + len(data).to_bytes(4, "big") + data)

    def credit(self, connection_id: int) -> int:
        """Return how many messages the other end takes now."""
        link = self._senders.get(connection_id)
        return link.credit if link is not None else 0
