"""Requeue: an administrator sends dead letters back to the queues on which they died, some a turn.

It is a move (`move.py`) of which each message says where it goes. What the broker wrote on it at
its death counts, and nothing that a client wrote. What does not say where it comes from stays, and
so does what its queue does not take; the others of that queue stay then too, so that they keep
their order, while those of other queues go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from qpidha.broker.queues.dead_letters import sent_back
from qpidha.broker.queues.move import Move, put
from qpidha.model.errors import RefusedRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message

REASONS = 5
"""Queues of which it is said why they do not take theirs; of others only how many there are."""


class Requeue(Move):
    """Dead letters on their way back."""

    __slots__ = ("_find", "_origin", "_queues", "_refusals", "unknown")
    effort: ClassVar[int] = 10  # What is written on each is read, and written anew.

    def __init__(
        self, queue: Queue, find: Callable[[str], Queue], most: int, origin: str = ""
    ) -> None:
        super().__init__(queue, None, most)
        self._find = find
        """Returns a queue that takes messages back; raises RefusedRequest."""
        self._origin = origin
        """Only those go that died there; empty for all."""
        self._queues: dict[str, Queue] = {}
        self._refusals: dict[str, str] = {}
        self.unknown = 0
        """Messages that do not say where they died."""

    def carry(self, message: Message) -> int | None:
        """Put a message where it died; return the sequence to wait for, None if it stays."""
        found = sent_back(message, self.queue.name)
        if found is None:
            self.unknown += 1
            return None
        name, payload = found
        if name in self._refusals or (self._origin and name != self._origin):
            return None
        try:
            queue = self._queues.get(name)
            if queue is None:
                queue = self._queues[name] = self._find(name)
            return put(self.queue, queue, message, payload, 0)
        except RefusedRequest as error:
            self._refusals[name] = error.text
            return None

    @property
    def why(self) -> str:
        """Why some have stayed; empty if none has but those that do not say where they died."""
        reasons = list(self._refusals.values())
        rest = len(reasons) - REASONS
        return "; ".join(reasons[:REASONS]) + (f"; and {rest} queues more" if rest > 0 else "")
