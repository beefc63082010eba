"""Host: what a connection asks of the node it lives in, and what it offers to services.

These protocols are the whole border between this room and the floors above: a host is implemented by
the node (and by small fakes in tests), a service by management and replication. Nothing here knows
what a cluster is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from qpidha.amqp.open_transactions import OpenTransactions
    from qpidha.amqp.registry import LinkRegistry
    from qpidha.amqp.sasl import Users
    from qpidha.amqp.terminus import PeerError
    from qpidha.broker.broker import Broker
    from qpidha.words.errors import QpidHaError
    from qpidha.words.notes import Notes
    from qpidha.words.settings import Settings


class Released(Protocol):
    """Somebody that waits for a record to be safe."""

    def released(self, item: Any) -> None:
        """Go on with `item`: the sequence it waited for is safe. May come after the waiter is gone."""


class ConnectionView(Protocol):
    """What a host may know of a connection."""

    connection_id: int
    peer: str
    identity: str
    encrypted: bool
    user: str
    mechanism: str
    remote_container: str
    remote_hostname: str
    remote_properties: dict[str, Any]
    is_admin: bool
    is_backup: bool
    closed: bool

    def close(self, error: QpidHaError | None = None) -> None:
        """End the connection, telling the peer why."""


class LinkHome(ConnectionView, Protocol):
    """A connection as its own links see it."""

    host: Host
    error: PeerError | None
    counters: Any
    congested: bool
    turn_bytes: int
    starved: dict[Any, None]
    draining: dict[Any, None]
    outgoing: dict[Any, None]
    transactions: OpenTransactions

    def wake(self) -> None:
        """Have output fetched at the end of the turn."""


class Service(Protocol):
    """Something at an address that is neither queue nor exchange, or the local end of a link we opened."""

    def attached(self, link: Any) -> None:
        """A link exists (for links we open: the peer has answered). May raise a RefusedRequest."""

    def received(self, link: Any, payload: bytes) -> None:
        """One complete encoded message came; a RefusedRequest raised here rejects it."""

    def credited(self, link: Any) -> None:
        """More can be sent."""

    def detached(self, link: Any) -> None:
        """The link is gone; `link.error` says why if the peer said so."""


class Host(Protocol):
    """The node as its connections see it."""

    @property
    def settings(self) -> Settings:
        """The options in force."""

    @property
    def broker(self) -> Broker:
        """The broker model."""

    @property
    def notes(self) -> Notes:
        """What there is to tell the journal of events."""

    @property
    def users(self) -> Users:
        """Who may log in."""

    @property
    def now(self) -> int:
        """The time of this step, ns since the Unix epoch."""

    @property
    def container_id(self) -> str:
        """Our AMQP container id."""

    @property
    def links(self) -> LinkRegistry:
        """Who holds which link name, over all connections."""

    @property
    def serving(self) -> bool:
        """Whether ordinary clients may change things here."""

    def refusal(self) -> QpidHaError:
        """The error for a change asked of a broker that is not serving, naming the primary."""

    def make_uuid(self) -> str:
        """A fresh unguessable uuid, for dynamic AMQP nodes and SASL nonces."""

    def admit(self, connection: Any) -> None:
        """Let a connection in, once it has said who it is, or raise; decides `is_admin` and `is_backup`."""

    def open_properties(self) -> dict[str, object]:
        """Connection properties we open with."""

    def service(self, address: str) -> Service | None:
        """The service at an address, if there is one."""

    def hold(self, sequence: int, target: Released, item: object) -> None:
        """Call `target.released(item)` when `sequence` is safe, which may be at once."""

    def wake(self, connection: Any) -> None:
        """This connection has output; fetch it at the end of the turn."""

    def connection_closed(self, connection: Any) -> None:
        """This connection will say nothing more."""
