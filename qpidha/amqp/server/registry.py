"""Registry of links by container and name: a link that is attached again elsewhere is stolen from
its old holder.

Owned by the host, filled by connections. Source: AMQP 1.0 section 2.6.1.
"""

from __future__ import annotations

from typing import Protocol


class Stealable(Protocol):
    """A link that can lose its name to a newer one."""

    def stolen(self) -> None:
        """End: the same container has attached a link of this name again."""


class LinkRegistry:
    """Who holds which link name."""

    __slots__ = ("_holders",)

    def __init__(self) -> None:
        self._holders: dict[tuple[str, str, bool], Stealable] = {}

    def attach(self, container_id: str, name: str, is_sender: bool, link: Stealable) -> None:
        """Make `link` the holder of its name; tell the previous holder."""
        key = (container_id, name, is_sender)
        previous = self._holders.get(key)
        self._holders[key] = link
        if previous is not None and previous is not link:
            previous.stolen()

    def detach(self, container_id: str, name: str, is_sender: bool, link: Stealable) -> None:
        """Forget `link` if it is still the holder."""
        key = (container_id, name, is_sender)
        if self._holders.get(key) is link:
            del self._holders[key]
