"""Quotas: how many connections and queues each user has, and whether he may have one more.

Connections are counted whether or not there are quotas, for these may come with a reload. Of queues
those are counted that a user with a quota has created while this broker was primary: who created a
queue is not in the log. Each count is kept, so that a question walks through nothing. Knows no
rules: access.py says what a user may have.
"""

from __future__ import annotations

from qpidha.broker.queues.delivery_limit import quarantine_of


class Quotas:
    """What users have."""

    __slots__ = (
        "_asked",
        "_asides",
        "_connections",
        "_creators",
        "_of_address",
        "_of_user",
        "_queues",
    )

    def __init__(self) -> None:
        self._connections: dict[int, tuple[str, str]] = {}
        """Number of a connection -> its user and address, of IPv6 a network."""
        self._of_user: dict[str, int] = {}
        self._of_address: dict[str, int] = {}
        self._queues: dict[str, int] = {}
        """User -> how many queues there are that he has created."""
        self._creators: dict[str, str] = {}
        """Name of a queue that is there -> the user who has created it."""
        self._asides: dict[str, str] = {}
        """Name of the queue on which messages of such a queue are put aside -> its user."""
        self._asked = ("", "")
        """Who asked last whether he may create a queue, and its name."""

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

    def queues_of(self, user: str) -> int:
        """How many queues there are that a user has created."""
        return self._queues.get(user, 0)

    def may_create(self, user: str, name: str) -> None:
        """Note that a user who is counted may create a queue; until the next note."""
        self._asked = user, name

    def queue_came(self, name: str) -> None:
        """Count a queue, if it is the one that was asked for; and one on which messages of a queue
        that is counted are put aside, for the broker makes it without asking.
        """
        (user, asked), self._asked = self._asked, ("", "")
        if name != asked:
            user = self._asides.get(name, "")
        if user:
            self._creators[name] = user
            self._queues[user] = self.queues_of(user) + 1
            self._asides[_aside_of(name)] = user

    def queue_went(self, name: str) -> None:
        """Count a queue no more, if it was counted."""
        user = self._creators.pop(name, None)
        if user is not None:
            del self._asides[_aside_of(name)]
            self._queues[user] -= 1
            if not self._queues[user]:
                del self._queues[user]


def _aside_of(queue: str) -> str:
    return str(quarantine_of(queue).key)
