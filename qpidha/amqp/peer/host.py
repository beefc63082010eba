"""Host: what a connection asks of its surroundings, be they a broker, another broker's link or a
client.

A host gives options, time and identity, lets the peer in and is told when there is output. An owner
is there on brokers only: it answers the attaches of the peer and is told of the connection's turns.
A service is the local end of a link whose other end is not a queue. Knows no broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.amqp.peer.channels import Retiring
    from qpidha.amqp.peer.links import LinkEnd, Scratch, SessionEnd
    from qpidha.amqp.peer.sasl import Users
    from qpidha.amqp.peer.terminus import PeerError
    from qpidha.model.errors import QpidHaError
    from qpidha.model.principal import Principal
    from qpidha.model.settings import Settings


class ConnectionView(Protocol):
    """What a host may know of a connection."""

    connection_id: int
    principal: Principal
    identity: str
    remote_container: str
    remote_hostname: str
    remote_properties: dict[str, Any]
    closed: bool

    def close(self, error: QpidHaError | None = None) -> None:
        """End the connection, telling the peer why."""


class LinkHome(ConnectionView, Protocol):
    """A connection as its own links see it."""

    error: PeerError | None
    counters: Any

    @property
    def host(self) -> Host:
        """The surroundings of the connection."""

    def wake(self) -> None:
        """Have output fetched at the end of the turn."""


class AnswerLink(Protocol):
    """A link of a service that was held back."""

    def go_on(self) -> None:
        """See whether there is room by now."""


class AnswerRoom(Protocol):
    """What may wait for a peer of the answers of services."""

    def count(self, size: int) -> None:
        """So many bytes came to wait in a link or a service, or have left if it is below 0."""

    def check(self) -> None:
        """Raise LimitExceeded while too much waits for another request."""

    def may_send(self, link: AnswerLink, session: SessionEnd) -> bool:
        """Whether an answer may be handed to the connection; if not the link hears when to ask
        again.
        """

    def handed(self, session: SessionEnd, size: int) -> None:
        """An answer of so many bytes was handed to the connection."""

    def may_ask(self, link: AnswerLink) -> bool:
        """Whether a link may have credit for more requests; if not it hears when to ask again."""


class Service(Protocol):
    """Something at an address that is neither queue nor exchange, or the local end of a link we
    opened.
    """

    def attached(self, link: Any) -> None:
        """A link exists (for links we open: the peer has answered). May raise a RefusedRequest."""

    def received(self, link: Any, payload: bytes) -> None:
        """One complete encoded message came; a RefusedRequest raised here rejects it, or ends the
        link if it came settled.
        """

    def credited(self, link: Any) -> None:
        """More can be sent."""

    def detached(self, link: Any) -> None:
        """The link is gone; `link.error` says why if the peer said so."""


class ConnectionOwner(Protocol):
    """The server's side of a connection: it answers attaches and hears of the connection's turns.
    A client's connection has none, and refuses the attaches of its peer.
    """

    @property
    def is_in_use(self) -> bool:
        """Whether the peer consumes messages or has open transactions."""

    def attach(self, end: LinkEnd) -> None:
        """Answer an attach of the peer."""

    def peer_retires(self, retiring: Retiring) -> None:
        """An outcome in a transaction will be told, or was: of the deliveries that are there."""

    def before_output(self) -> None:
        """Output is about to be fetched: the queues were dispatched."""

    def after_output(self) -> None:
        """Output was fetched: there is room again."""

    def congestion_changed(self) -> None:
        """The peer has become slow to read, or is no longer."""

    def finished(self) -> None:
        """The connection will say nothing more."""


class Host(Protocol):
    """The surroundings of a connection."""

    @property
    def scratch(self) -> Scratch:
        """What engines work with in the thread of this host."""

    @property
    def settings(self) -> Settings:
        """The options in force."""

    @property
    def users(self) -> Users:
        """Who may log in, where peers log in here."""

    @property
    def now(self) -> int:
        """The time of this step, ns since the Unix epoch."""

    @property
    def container_id(self) -> str:
        """Our AMQP container id."""

    def make_uuid(self) -> str:
        """A fresh unguessable uuid, for dynamic AMQP nodes and SASL nonces."""

    def compute(self, connection: Any, work: Callable[[], Any], *, blocks: bool) -> Any:
        """Do arithmetic that takes long, or what asks the network if it `blocks`, and give its
        result; None if `Connection.computed` will hear of it.
        """

    def login_decided(self, connection: Any, *, refused: bool) -> int:
        """Hear how a login by a password ended; how many ns its peer is to wait for the outcome."""

    def admit(self, connection: Any) -> None:
        """Let a connection in, once it has said who it is, or raise; gives its principal roles."""

    def open_properties(self, connection: Any) -> dict[str, object]:
        """Connection properties we answer the open of this connection with."""

    def wake(self, connection: Any) -> None:
        """This connection has output; fetch it at the end of the turn."""

    def connection_closed(self, connection: Any) -> None:
        """This connection will say nothing more."""
