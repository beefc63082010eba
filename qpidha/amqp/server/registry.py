"""Registry of links by user, container and name: a link that is attached again elsewhere is stolen
from its old holder. A container id is what a client says it is, so that it cannot take a link from
another user.

Owned by the host, filled by connections. Source: AMQP 1.0 section 2.6.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from qpidha.amqp.peer.host import ConnectionView


class Stealable(Protocol):
    """A link that can lose its name to a newer one."""

    def stolen(self) -> None:
        """End: the same container has attached a link of this name again."""


class LinkRegistry:
    """Who holds which link name."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[tuple[str, str, str, bool], Stealable] = {}

    def attach(
        self, connection: ConnectionView, name: str, is_sender: bool, link: Stealable
    ) -> None:
        """Make `link` the holder of its name; tell the previous holder."""
        key = (connection.principal.name, connection.remote_container, name, is_sender)
        previous = self._holders.get(key)
        self._holders[key] = link
        if previous is not None and previous is not link:
            previous.stolen()

    def detach(
        self, connection: ConnectionView, name: str, is_sender: bool, link: Stealable
    ) -> None:
        """Forget `link` if it is still the holder."""
        key = (connection.principal.name, connection.remote_container, name, is_sender)
        if self._holders.get(key) is link:
            del self._holders[key]
