"""Service links: what the AMQP services of this room ask of a link, and the way back to a requester.

A request names where its answer goes: `$me` is the link paired with the one it came by (same
connection, same name), another address is that of a receiving link of the same connection, and
otherwise it is a queue of this broker, such as a requester's dynamic one.
Knows links only as this protocol; the room `amqp` implements it.
Source: AMQP link pairing 1.0 section 2.1; AMQP management 1.0 (draft) section 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from qpidha.management.target import ConnectionView


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
        """Send one encoded message; it waits while the peer gives no credit. Raises LimitExceeded when too much waits."""
        ...


class ReplyLinks:
    """The links of one service by which answers can leave, by connection."""

    __slots__ = ("_links",)

    def __init__(self) -> None:
        self._links: dict[int, list[ServiceLink]] = {}

    def add(self, link: ServiceLink) -> None:
        """Remember a link."""
        if link.sends:
            self._links.setdefault(link.connection.connection_id, []).append(link)

    def remove(self, link: ServiceLink) -> None:
        """Forget a link."""
        number = link.connection.connection_id
        kept = [other for other in self._links.get(number, ()) if other is not link]
        if kept:
            self._links[number] = kept
        else:
            self._links.pop(number, None)

    def paired(self, link: ServiceLink) -> ServiceLink | None:
        """Find the link that is paired with the one a request came by."""
        return next((other for other in self._of(link) if other.name == link.name), None)

    def addressed(self, link: ServiceLink, address: str) -> ServiceLink | None:
        """Find the receiver of the same connection that calls itself `address`."""
        return next((other for other in self._of(link) if other.remote_target.address == address), None)

    def _of(self, link: ServiceLink) -> list[ServiceLink]:
        return self._links.get(link.connection.connection_id, [])
