"""The managed node: what management asks of the broker it manages, and the shape of an answer.

The node implements `ManagedNode`; tests implement it around a real broker model. An answer may come
later than its request, because a change is answered only when its record is committed:
`ManagedNode.hold` calls back then. Knows nothing of how a request arrives, nor how its answer
leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qpidha.broker.broker import Broker
    from qpidha.management.event_log import EventLog
    from qpidha.management.lines import Lines
    from qpidha.management.measures import Measures
    from qpidha.model.errors import QpidHaError
    from qpidha.model.events import ConnectionKind
    from qpidha.model.principal import AccessControl, Principal
    from qpidha.model.settings import Settings
    from qpidha.model.url import Url


@dataclass(slots=True)
class Reply:
    """The answer to one request: `result`, or `error` if it was refused."""

    result: Any = None
    error: QpidHaError | None = None


Answer = Callable[[Reply], None]
"""Where an answer goes; called exactly once for each request, at once or later."""


def reporting(reply: Answer) -> Callable[[QpidHaError | None, dict[str, object] | None], None]:
    """Return a callback that takes an error or a report, and answers with it."""
    return lambda error, found: reply(Reply(found, error))


class Waiter(Protocol):
    """A request that waits until a record is committed."""

    def on_committed(self, item: object) -> None:
        """Go on with `item`: its record is committed."""
        ...


class CountersView(Protocol):
    """What went through a connection."""

    bytes_in: int
    bytes_out: int
    messages_in: int
    messages_out: int


class LinkView(Protocol):
    """One link of a session, as far as management reads it."""

    is_sender: bool
    """Whether the broker sends on it."""


class SessionView(Protocol):
    """One session of a connection, as far as management reads it."""

    channel: int
    """On which the other end speaks."""
    unacked: int
    unacked_bytes: int
    """What was sent in it and is not settled."""

    @property
    def links(self) -> Mapping[Any, LinkView]:
        """Its links."""
        ...

    def backlog(self) -> int:
        """Count the bytes that wait for the other end's window."""
        ...


class ConnectionView(Protocol):
    """One AMQP connection, as far as management reads it."""

    @property
    def connection_id(self) -> int:
        """A number that no other connection of this broker ever has."""
        ...

    @property
    def kind(self) -> ConnectionKind:
        """Whether a client or broker opened it, or this broker."""
        ...

    @property
    def principal(self) -> Principal:
        """The identity of the other end."""
        ...

    @property
    def remote_container(self) -> str:
        """The container id of the other end, or empty before its open."""
        ...

    @property
    def remote_properties(self) -> dict[Any, Any]:
        """The properties of the other end's open."""
        ...

    @property
    def since_ns(self) -> int:
        """When it began, in ns since 1970."""
        ...

    @property
    def heard_ns(self) -> int:
        """When something came from the other end last, in ns since 1970."""
        ...

    @property
    def counters(self) -> CountersView:
        """What went through it."""
        ...

    def sessions(self) -> Iterable[SessionView]:
        """List its sessions."""
        ...


class CommitPoint(Protocol):
    """The log, as far as management looks at it."""

    @property
    def committed(self) -> int:
        """The sequence up to which every in-sync broker has the log."""
        ...


class QueueReplication(Protocol):
    """The replicas of single queues, as far as management sees them."""

    def check_source(self, url: str) -> str:
        """Return the addresses of a source as they are recorded; raise RefusedRequest for what
        cannot be one.
        """
        ...

    def report(self) -> dict[str, Any]:
        """Tell of `replicas` here, and of the `replica_streams` to those elsewhere."""
        ...


class ManagedNode(Protocol):
    """One broker as management sees it."""

    broker: Broker
    settings: Settings
    now: int
    lines: Lines
    measures: Measures

    @property
    def access(self) -> AccessControl:
        """Access control."""
        ...

    @property
    def replication(self) -> QueueReplication:
        """The replicas of single queues."""
        ...

    @property
    def log(self) -> CommitPoint:
        """The log of this broker."""
        ...

    @property
    def serving(self) -> bool:
        """Whether clients may change things here: true on a primary and on a broker without a
        cluster.
        """
        ...

    def status(self) -> dict[str, Any]:
        """Report state, epoch, primary, in-sync set and members."""
        ...

    def confirmed(self) -> Mapping[str, int | None]:
        """Tell, on a primary, up to which sequence each other broker of the cluster has confirmed
        the log, by its name; None where that is not known.
        """
        ...

    def query(self) -> dict[str, Any]:
        """Report the HA configuration."""
        ...

    @property
    def federation_tag(self) -> str:
        """By what messages are known that were here; empty while there is no link."""
        ...

    def link_report(self, name: str) -> dict[str, object]:
        """Tell how a link to another broker is, if this broker runs it."""
        ...

    def route_report(self, name: str) -> dict[str, object]:
        """Tell how a route over such a link is, if this broker runs it."""
        ...

    def make_uuid(self) -> str:
        """Return a fresh unguessable uuid."""
        ...

    def access_list(self) -> dict[str, Any]:
        """Report the access control list that is enforced."""
        ...

    def connections(self) -> Iterable[ConnectionView]:
        """List the AMQP connections, oldest first."""
        ...

    def close_connection(self, connection: Any, error: QpidHaError) -> None:
        """Close one of them, and tell the other end why."""
        ...

    @property
    def event_log(self) -> EventLog:
        """The events of this broker."""
        ...

    def promote(self, reply: Answer, accept_loss: bool = False, forget: str = "") -> None:
        """Become primary if the rules allow it; with `accept_loss` even if messages may be lost,
        with `forget` without waiting for those brokers. May raise RefusedRequest.
        """
        ...

    def compare(self, reply: Answer, forget: str = "") -> None:
        """Ask every broker of the cluster what it has, and answer with the comparison, without
        waiting for those to `forget`; may raise RefusedRequest.

        The answer has `recommended` (the address of a broker whose promotion loses nothing, or
        None), `reason`, `newest_set`, and `brokers`; each broker that answered has in `losses` the
        records that its promotion would give up.
        """
        ...

    def switchover(self, target: str, reply: Answer) -> None:
        """Move the primary role to another broker (empty: the best) without losing messages;
        may raise RefusedRequest.
        """
        ...

    def unwell(self) -> list[dict[str, Any]]:
        """Tell which links, routes and replicas do not what they are for, why, and what to do."""

    def explain(self) -> list[dict[str, Any]]:
        """List the causes that this broker waits for; an empty list when nothing waits.

        An entry has `waits_for` (a word), `text` (a sentence), `since_ns` and `for_ns`.
        """
        ...

    def record(self, kept: Mapping[str, object] | None, trouble: str, reply: Answer) -> None:
        """Take the in-sync set that the manager's store keeps (epoch 0: none), or the reason why
        that is unknown; without either, answer with the set that the store is to keep.

        That answer comes when the broker wants a set kept, or after ten seconds. May raise
        RefusedRequest.
        """
        ...

    def demote(self, reply: Answer) -> None:
        """Stop being primary and join again; may raise RefusedRequest."""
        ...

    def reload(self, reply: Answer) -> None:
        """Have users, the access control list, certificates and the log's options read again, and
        answer with `warnings`.
        """
        ...

    def set_public_url(self, url: Url) -> None:
        """Tell clients these addresses; raises NotAllowed outside of a cluster."""
        ...

    @property
    def log_level(self) -> tuple[str, str]:
        """What is logged, and what is not although that says so, as selectors."""
        ...

    def set_log_level(self, enabled: str, disabled: str) -> None:
        """Log what these selectors say."""
        ...

    def shutdown(self) -> None:
        """End the daemon at the end of this turn."""
        ...

    def when_committed(self, sequence: int, waiter: Waiter, item: object) -> None:
        """Call `waiter.on_committed(item)` when the record `sequence` is committed: perhaps at
        once.
        """
        ...
