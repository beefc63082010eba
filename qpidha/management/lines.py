"""Lines: requests of connections that wait until there is time for them.

A request of 200 bytes may ask for all queues, and a client sends hundreds at once; a turn that
answered them all would keep everybody waiting. So a turn has some reads to spend, and when they are
spent, or others wait already, requests stand in the line of their connection. Then one of each
connection goes in turn, those of one connection in their order. What a request costs is known when
it is done, so that the last one of a turn may take more than there is. Knows no request.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

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


class Lines:
    """The requests that wait, by connection."""

    __slots__ = ("_left", "_waiting")

    def __init__(self) -> None:
        self._left = READS_A_TURN
        self._waiting: dict[int, deque[tuple[Asker, int, Callable[[], None]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def spend(self, reads: int) -> None:
        """So much was read, or done that takes as long."""
        self._left -= reads

    def renew(self) -> None:
        """Begin a turn."""
        self._left = READS_A_TURN

    def add(self, link: Asker, owed: int, do: Callable[[], None]) -> None:
        """Do what a request asks for, now or when its turn comes; `owed` bytes are counted for it
        until it is answered.
        """
        if self._left > 0 and not self._waiting:
            self._left -= READS_OF_ONE
            do()
        else:
            number = link.connection.connection_id
            self._waiting.setdefault(number, deque()).append((link, owed, do))

    def go_on(self, isolate: Callable[[Any, Exception], bool]) -> None:
        """Do what waits, as far as there is something to spend. `isolate` ends a connection that
        met a mistake of ours, or says that this is not enough.
        """
        waiting = self._waiting
        while waiting and self._left > 0:
            number = next(iter(waiting))
            line = waiting.pop(number)
            link, _, do = line.popleft()
            if line:
                waiting[number] = line
            self._left -= READS_OF_ONE
            try:
                do()
            except Exception as error:
                if not isolate(link.connection, error):
                    raise

    def forget(self, connection_id: int) -> None:
        """A connection is gone: nothing of what it still asked for is done."""
        for link, owed, _ in self._waiting.pop(connection_id, ()):
            link.owe(-owed)
