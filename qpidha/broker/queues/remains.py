"""Remains: the messages that queues had when they were deleted.

To free a million messages takes the memory manager longer than a turn may take. So what queues had
is put aside, and freed some a turn; but what the first queues of a turn had goes at once, as long
as that is not too much in all.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qpidha.broker.queues.messages import Messages
    from qpidha.broker.queues.ordering import Ordering

FREED_A_TURN = 5000
"""Messages that are freed in one turn; 0.8 ms."""


class Remains:
    """Messages that nobody can get at any more."""

    __slots__ = ("_left", "_parts")

    def __init__(self) -> None:
        self._parts: deque[tuple[Messages, Ordering]] = deque()
        self._left = FREED_A_TURN
        """How many may still go at once in this turn."""

    def __bool__(self) -> bool:
        """Whether there is something to free."""
        return bool(self._parts)

    def __len__(self) -> int:
        return sum(len(messages) for messages, _ in self._parts)

    def add(self, messages: Messages, ordering: Ordering) -> None:
        """Take the messages of a queue, which has others from now on."""
        if len(messages) > self._left:
            self._parts.append((messages, ordering))
        else:
            self._left -= len(messages)

    def free(self) -> None:
        """Free some; once, at the end of a turn."""
        left = self._left = FREED_A_TURN
        while self._parts and left > 0:
            messages, _ = self._parts[0]
            while messages and left > 0:
                left -= messages.discard()
            if not messages:
                self._parts.popleft()
