"""Envelopes: a request message as a service reads it, and the message of an answer.

The two AMQP services differ in where they put method, object and status; what they share is here.
Must not know what a request means.
Source: AMQP 1.0 section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from qpidha.model.errors import InvalidArgument, ProtocolViolation
from qpidha.model.message_view import build, read_parts

if TYPE_CHECKING:
    from qpidha.management.port import ConnectionView


@dataclass(slots=True)
class Envelope:
    """The parts of a request message that a service needs, as far as they can be read."""

    properties: dict[str, Any]
    application: dict[Any, Any]
    body: Any
    fault: InvalidArgument | None = None
    """Why the rest cannot be read."""

    def text(self, name: str) -> str:
        """Give a string property, or an empty string."""
        value = self.properties.get(name)
        return str(value) if isinstance(value, str) else ""


def open_envelope(payload: bytes) -> Envelope:
    """Read a request. Its sections may come in any order: RabbitMQ's Python client puts an empty
    amqp-value before the properties.
    """
    envelope = Envelope({}, {}, None)
    try:
        read_parts(payload, envelope)
    except ProtocolViolation as fault:
        envelope.fault = InvalidArgument(
            f"the request is not a valid AMQP message: {fault.text}",
            hint="send properties and an amqp-value body",
        )
    return envelope


def seal(fields: dict[str, Any], status: dict[str, Any], content: Any) -> bytes:
    """Write an answer: its properties, application-properties and body."""
    return build(content, properties=fields, application_properties=status)


REQUEST = 2 << 10
"""Bytes that are kept of a request until it is answered, beside its own, roughly."""


class Target(Protocol):
    """Where a link leads to."""

    @property
    def address(self) -> str | None:
        """Its address, if it has one."""
        ...


class ServiceLink(Protocol):
    """One link between a peer and a service."""

    name: str
    address: str
    sends: bool

    @property
    def connection(self) -> ConnectionView:
        """The connection it is on."""
        ...

    @property
    def remote_target(self) -> Target:
        """The target as the peer describes it; on a link that sends to it, that is its own end."""
        ...

    def send(self, payload: bytes) -> object:
        """Send one encoded message; it waits while the peer gives no credit, or does not read.
        Raises LimitExceeded when too much waits.
        """
        ...

    def owe(self, size: int) -> None:
        """Count bytes that are kept for an answer to the peer, or below 0 are no longer."""
        ...


class ReplyLinks:
    """The links of one service by which answers can leave."""

    __slots__ = ("_addressed", "_named")

    def __init__(self) -> None:
        self._named: dict[tuple[int, str], dict[ServiceLink, None]] = {}
        self._addressed: dict[tuple[int, str | None], dict[ServiceLink, None]] = {}
        """Connection, and name or address that links have in common -> those links, the oldest
        first.
        """

    def add(self, link: ServiceLink) -> None:
        """Remember a link."""
        if link.sends:
            number = link.connection.connection_id
            self._named.setdefault((number, link.name), {})[link] = None
            self._addressed.setdefault((number, link.remote_target.address), {})[link] = None

    def remove(self, link: ServiceLink) -> None:
        """Forget a link."""
        number = link.connection.connection_id
        _remove(self._named, (number, link.name), link)
        _remove(self._addressed, (number, link.remote_target.address), link)

    def paired(self, link: ServiceLink) -> ServiceLink | None:
        """Find the link that is paired with the one a request came by."""
        return next(iter(self._named.get((link.connection.connection_id, link.name), ())), None)

    def addressed(self, link: ServiceLink, address: str) -> ServiceLink | None:
        """Find the receiver of the same connection that calls itself `address`."""
        return next(iter(self._addressed.get((link.connection.connection_id, address), ())), None)


def _remove(links: dict[Any, dict[ServiceLink, None]], key: Any, link: ServiceLink) -> None:
    found = links.get(key)
    if found is not None:
        found.pop(link, None)
        if not found:
            del links[key]
