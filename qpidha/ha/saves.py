"""Saves: what waits until the state file has it.

The state file is written beside the broker, which goes on meanwhile: heartbeats leave, and so does
the word of how it is, of which nothing follows. But what follows from a promise or from a set must
not be told before that is on disk (S1, S2, S5): it waits here, in its order. Saves are numbered;
one that is over stands for all before it, so what gathers during a write costs one more. After a
crash the file has what was told, or more: nobody can hold this broker to what it has forgotten.

Must not know what is saved, nor what waits. Source: rule S5 in `docs/internals/safety.md`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Saves:
    """The saves of one broker that are under way, and what is to be done after them."""

    __slots__ = ("_asked", "_over", "_waiting")

    def __init__(self) -> None:
        self._asked = self._over = 0
        """The last save that was asked for, and the last that is over."""
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether nothing has to wait."""
        return self._over == self._asked and not self._waiting

    def begin(self) -> int:
        """Ask for one more; return its number."""
        self._asked += 1
        return self._asked

    def then(self, action: Callable[[], None]) -> None:
        """Do something when all saves that were asked for are over, and behind all that waits; at
        once if nothing does.
        """
        if self.is_idle:
            action()
        else:
            self._waiting.append((self._asked, action))

    def over(self, number: int) -> None:
        """A save is over, and all before it: do what waited for them."""
        self._over = number
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()[1]()
