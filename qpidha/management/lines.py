"""Lines: requests of connections that wait until there is time for them.

A request of 200 bytes may ask for all queues, and a client sends hundreds at once; a turn that
answered them all would keep everybody waiting. So a turn has some reads to spend, and when they are
spent, or others wait already, requests stand in the line of their connection. Then one of each
connection goes in turn, those of one connection in their order. What a request costs is known when
it is done, so that the last one of a turn may take more than there is. Knows no request.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

READS_A_TURN = 20_000
"""Properties of objects that are read in a turn, roughly: some tens of ms."""
READS_OF_ONE = 50
"""What any request takes, whatever it asks for, as so many reads."""


class Asker(Protocol):
    """The link by which a request came."""

    @property
    def connection(self) -> Any:
        """The connection it is on."""

    def owe(self, size: int) -> None:
        """Count bytes that are kept for an answer to the peer, or below 0 are no longer."""


class _Request(NamedTuple):
    """One that waits."""

    link: Asker
    owed: int
    do: Callable[[], None]
    is_read: bool


class Lines:
    """The requests that wait, by connection."""

    __slots__ = ("_left", "_waiting")

    def __init__(self) -> None:
        self._left = READS_A_TURN
        self._waiting: dict[int, deque[_Request]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def spend(self, reads: int) -> None:
        """So much was read, or done that takes as long."""
        self._left -= reads

    def renew(self) -> None:
        """Begin a turn."""
        self._left = READS_A_TURN

    def add(self, link: Asker, owed: int, do: Callable[[], None], *, is_read: bool = False) -> None:
        """Do what a request asks for, now or when its turn comes; `owed` bytes are counted for it
        until it is answered. One that only reads is not done for a client that is gone.
        """
        if self._left > 0 and not self._waiting:
            self._left -= READS_OF_ONE
            do()
        else:
            number = link.connection.connection_id
            self._waiting.setdefault(number, deque()).append(_Request(link, owed, do, is_read))

    def goes_on(self, rests: Callable[[Any], bool]) -> bool:
        """Whether anything waits of a connection that does not rest."""
        return self._next(rests) is not None

    def _next(self, rests: Callable[[Any], bool]) -> int | None:
        """Return the connection whose turn it is."""
        for number, line in self._waiting.items():
            if not rests(line[0].link.connection):
                return number
        return None

    def go_on(
        self, isolate: Callable[[Any, Exception], bool], rests: Callable[[Any], bool]
    ) -> None:
        """Do what waits, as far as there is something to spend, but for connections that rest,
        which a request may change. `isolate` ends a connection that met a mistake of ours, or says
        that this is not enough.
        """
        waiting = self._waiting
        while self._left > 0:
            number = self._next(rests)
            if number is None:
                return
            line = waiting.pop(number)
            link, _, do, _ = line.popleft()
            if line:
                waiting[number] = line
            self._left -= READS_OF_ONE
            try:
                do()
            except Exception as error:
                if not isolate(link.connection, error):
                    raise

    def forget(self, connection_id: int, last: Callable[[], None]) -> None:
        """A connection is gone: its changes were accepted and are still made in their turns, and
        then `last` is done; nobody hears what it wanted to read.
        """
        line = self._waiting.pop(connection_id, deque())
        for request in line:
            if request.is_read:
                request.link.owe(-request.owed)
        changes = deque(request for request in line if not request.is_read)
        if changes:
            changes.append(_Request(changes[-1].link, 0, last, is_read=False))
            self._waiting[connection_id] = changes
