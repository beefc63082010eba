"""Quotas: how many connections and queues each user has, and whether he may have one more.

Connections are counted whether or not there are quotas, for these may come with a reload. Of queues
those are counted that a user with a quota has created while this broker was primary: who created a
queue is not in the log. Knows no rules: access.py says what a user may have.
"""

from __future__ import annotations

from collections.abc import Container


class Quotas:
    """What users have."""

    __slots__ = ("_connections", "_creators", "_of_address", "_of_user", "_queues")

    def __init__(self) -> None:
        self._connections: dict[int, tuple[str, str]] = {}
        """Number of a connection -> its user and address."""
        self._of_user: dict[str, int] = {}
        self._of_address: dict[str, int] = {}
        self._queues: dict[str, dict[str, None]] = {}
        """User -> names of the queues that he has created, some of which may be gone."""
        self._creators: dict[str, str] = {}
        """Name of a queue -> the user who has it among his."""

    def connections_of(self, user: str) -> int:
        """How many connections a user has."""
        return self._of_user.get(user, 0)

    def connections_from(self, address: str) -> int:
        """How many connections there are from an address."""
        return self._of_address.get(address, 0)

    def connected(self, number: int, user: str, address: str) -> None:
        """Count a connection."""
        self._connections[number] = user, address
        self._of_user[user] = self.connections_of(user) + 1
        self._of_address[address] = self.connections_from(address) + 1

    def disconnected(self, number: int) -> None:
        """Count a connection no more, if it was counted."""
        if number not in self._connections:
            return
        user, address = self._connections.pop(number)
        for counts, key in ((self._of_user, user), (self._of_address, address)):
            counts[key] -= 1
            if not counts[key]:
                del counts[key]

    def queues_of(self, user: str, there: Container[str], enough: int) -> int:
        """How many queues a user has created, of those that are `there`; exact if it is `enough` or
        more.
        """
        names = self._queues.get(user, {})
        if len(names) >= enough:
            for name in [name for name in names if name not in there]:
                del names[name], self._creators[name]
        return len(names)

    def creates(self, user: str, name: str) -> None:
        """Note that a user is about to create a queue."""
        before = self._creators.get(name)
        if before is not None:
            del self._queues[before][name]
        self._creators[name] = user
        self._queues.setdefault(user, {})[name] = None
