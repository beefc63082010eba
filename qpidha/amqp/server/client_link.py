"""What all links of clients have in common: how they end.

A link ends because its peer detaches it, because its session or connection is gone, or because a
rule is broken; whatever it held is given back by `_leave`, once, and only then is the peer told.
Source: AMQP 1.0 section 2.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from qpidha.model.errors import ProtocolViolation

if TYPE_CHECKING:
    from qpidha.amqp.peer.connection import Connection
    from qpidha.amqp.peer.links import LinkEnd
    from qpidha.amqp.peer.terminus import PeerError, Pointer
    from qpidha.amqp.server.host import LinkHome
    from qpidha.model.errors import QpidHaError


class ClientLink(ABC):
    """A link that a client attached."""

    __slots__ = ("_connection", "_host", "_served", "end")

    def __init__(self, served: LinkHome, end: LinkEnd) -> None:
        self._served = served
        self._connection = served.connection
        self._host = served.host
        self.end: LinkEnd | None = end
        """Our end of it; None once it has ended."""

    @property
    def connection(self) -> Connection:
        """The connection that it is on."""
        return self._connection

    @property
    def name(self) -> str:
        """The name that the client gave it; empty once it has ended."""
        return self.end.name if self.end is not None else ""

    @abstractmethod
    def _leave(self) -> None:
        """Give back everything and set `end` to None; nothing if that was done before."""

    def answered(self) -> None:
        """The peer attached the link a second time."""
        raise ProtocolViolation(f"link '{self.name}' is attached already")

    def detached(self, closed: bool, error: PeerError | None) -> None:
        """The peer ended the link."""
        end = self.end
        self._leave()
        if end is not None:
            end.end(closed=closed)
        self._connection.wake()

    def lost(self) -> None:
        """The session or connection is gone."""
        self._leave()

    def broken(self, error: QpidHaError) -> None:
        """The peer broke a rule."""
        self.fail(error)

    def declined(self, delivery: Pointer, error: QpidHaError) -> None:
        """A delivery came that cannot be taken."""
        self.fail(error)

    def fail(self, error: QpidHaError) -> None:
        """End the link, telling the peer why."""
        end = self.end
        self._leave()
        if end is not None:
            end.end(error)
        self._connection.wake()
