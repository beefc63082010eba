"""Host: what the links of clients ask of the broker around them, beyond what every connection asks
of its surroundings.

The node implements it, and small fakes do in tests. Nothing here knows what a cluster is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from qpidha.amqp.peer.host import Host as PeerHost

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.host import Service
    from qpidha.amqp.server.answers import Answers
    from qpidha.amqp.server.open_transactions import OpenTransactions
    from qpidha.amqp.server.registry import LinkRegistry
    from qpidha.broker.broker import Broker
    from qpidha.model.errors import QpidHaError
    from qpidha.model.event_log import EventSink
    from qpidha.model.principal import AccessControl


class Waiter(Protocol):
    """Somebody that waits for a record to be committed."""

    def on_committed(self, item: Any) -> None:
        """Go on with `item`: the sequence it waited for is committed. May come after the waiter is
        gone.
        """


class Host(PeerHost, Protocol):
    """The node as the links of clients see it."""

    @property
    def broker(self) -> Broker:
        """The broker model."""

    @property
    def access(self) -> AccessControl:
        """Access control."""

    @property
    def event_log(self) -> EventSink:
        """Where events for the event log go."""

    @property
    def links(self) -> LinkRegistry:
        """Who holds which link name, over all connections."""

    @property
    def serving(self) -> bool:
        """Whether ordinary clients may change things here."""

    def refusal(self) -> QpidHaError:
        """The error for a change asked of a broker that is not serving, naming the primary."""

    def service(self, address: str) -> Service | None:
        """The service at an address, if there is one."""

    def fencing_token(self) -> tuple[int, int]:
        """Return a token that is higher than all before it: the epoch, 0 if there are none here,
        and a number.
        """

    def when_committed(self, sequence: int, waiter: Waiter, item: object) -> None:
        """Call `waiter.on_committed(item)` when `sequence` is committed, which may be at once."""


class LinkHome(Protocol):
    """A served connection as its own links see it."""

    host: Host
    connection: Connection
    turn_bytes: int
    out_of_turn_budget: dict[Any, None]
    draining: dict[Any, None]
    outgoing: dict[Any, None]
    transactions: OpenTransactions
    answers: Answers

    def backlog(self) -> int:
        """Count the bytes that wait for the windows of the peer's sessions."""

    def holder(self) -> str:
        """Say who is there."""
