"""What all links of clients have in common: how they end.

A link ends because its peer detaches it, because its session or connection is gone, or because a rule is broken; whatever it
held is given back by `_leave`, once, and only then is the peer told. Source: AMQP 1.0 section 2.6.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qpidha.amqp.engine_links import LinkEnd
    from qpidha.amqp.host import LinkHome
    from qpidha.amqp.terminus import PeerError
    from qpidha.words.errors import QpidHaError


class ClientLink(ABC):
    """A link that a client attached."""

    __slots__ = ("_connection", "_host", "end")

    def __init__(self, connection: LinkHome, end: LinkEnd) -> None:
        self._connection = connection
        self._host = connection.host
        self.end: LinkEnd | None = end
        """Our end of it; None once it has ended."""

    @abstractmethod
    def _leave(self) -> None:
        """Give back everything and set `end` to None; nothing if that was done before."""

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

    def fail(self, error: QpidHaError) -> None:
        """End the link, telling the peer why."""
        end = self.end
        self._leave()
        if end is not None:
            end.end(error)
        self._connection.wake()
