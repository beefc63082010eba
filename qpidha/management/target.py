"""Target: what management asks of the broker it manages, and the shape of an answer.

The node implements `Target`; tests implement it around a real broker model. An answer may come later
than its request, because a change is answered only when the record of it is safe: `Target.hold`
calls back when that is so.
Knows nothing of how a request arrived, nor how its answer leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qpidha.broker.broker import Broker
    from qpidha.words.errors import QpidHaError
    from qpidha.words.settings import Settings


@dataclass(slots=True)
class Reply:
    """The answer to one request: `result`, or `error` if it was refused."""

    result: Any = None
    error: QpidHaError | None = None


Answer = Callable[[Reply], None]
"""Where an answer goes; called exactly once for each request, at once or later."""


def reporting(reply: Answer) -> Callable[[QpidHaError | None, dict[str, object] | None], None]:
    """Return what takes an error, or something to tell, and answers with that."""
    return lambda error, found: reply(Reply(found, error))


class Released(Protocol):
    """Somebody who waits until a record is safe."""

    def released(self, item: object) -> None:
        """Go on with `item`: what it waited for is safe."""
        ...


class ConnectionView(Protocol):
    """What can be read of one AMQP connection."""

    @property
    def connection_id(self) -> int:
        """A number that no other connection of this broker ever has."""
        ...

    @property
    def peer(self) -> str:
        """The address of the other end."""
        ...

    @property
    def user(self) -> str:
        """Who authenticated, or empty."""
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
    def encrypted(self) -> bool:
        """Whether it runs over TLS."""
        ...

    @property
    def is_admin(self) -> bool:
        """Whether it said it is an administration tool and may be one."""
        ...

    @property
    def is_backup(self) -> bool:
        """Whether it is another broker's replication link."""
        ...


class SafePoint(Protocol):
    """The log, as far as management looks at it."""

    @property
    def safe(self) -> int:
        """Up to here every in-sync broker has what was recorded."""
        ...


class Target(Protocol):
    """One broker as management sees it."""

    broker: Broker
    settings: Settings
    now: int

    @property
    def log(self) -> SafePoint:
        """What the messages of this broker are recorded in."""
        ...

    @property
    def serving(self) -> bool:
        """Whether clients may change things here: true on a primary and on a broker without a cluster."""
        ...

    def status(self) -> dict[str, Any]:
        """Tell everything there is to know of state, epoch, primary, in-sync set and members."""
        ...

    def query(self) -> dict[str, Any]:
        """Tell the HA configuration."""
        ...

    def connections(self) -> Iterable[ConnectionView]:
        """Name the AMQP connections there are, oldest first."""
        ...

    def promote(self, reply: Answer, accept_loss: bool = False) -> None:
        """Become primary if the rules allow it, or, with `accept_loss`, though something may be lost; may raise RefusedRequest."""
        ...

    def compare(self, reply: Answer) -> None:
        """Ask every broker of the cluster what it has, and answer with the comparison; may raise RefusedRequest.

        The answer has `recommended` (the address of a broker that can be promoted and nothing is lost, or None), `reason`,
        `newest_set`, `brokers` and, for each of them that answered, in `losses` what its promotion would give up.
        """
        ...

    def switchover(self, target: str, reply: Answer) -> None:
        """Hand the part of the primary over to another broker (empty: the best), losing nothing; may raise RefusedRequest."""
        ...

    def explain(self) -> list[dict[str, Any]]:
        """Tell what this broker waits for, one entry for each cause; nothing when nothing waits.

        An entry has `waits_for` (a word), `text` (a sentence), `since_ns` and `for_ns`.
        """
        ...

    def record(self, kept: Mapping[str, object] | None, trouble: str, reply: Answer) -> None:
        """Hear what the manager's store keeps (of epoch 0: nothing), or why that is not known; without either tell what is wanted.

        The answer to the latter comes when something is wanted, or after a while. May raise RefusedRequest.
        """
        ...

    def demote(self, reply: Answer) -> None:
        """Stop being primary and join again; may raise RefusedRequest."""
        ...

    def shutdown(self) -> None:
        """End the daemon at the end of this turn."""
        ...

    def hold(self, sequence: int, target: Released, item: object) -> None:
        """Call `target.released(item)` when the record `sequence` is safe, which may be at once."""
        ...
