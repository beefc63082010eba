"""Purge: an administrator empties a queue, some messages a turn (`walk.py`).

- Rejected messages that could not be placed elsewhere are dropped as well, and those that are not
  due yet.
- A message that a consumer has is not taken from it: its outcome may be under way. One that is
  given back behind the walk stays, too.
- After a failover in the middle, whoever asked has no answer, and asks again.

Source: Qpid `Queue.cpp` (purge).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.walk import Walk
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from qpidha.broker.queues.messages import Segment
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message


class Purge(Walk):
    """A queue on its way to be empty."""

    __slots__ = ("_left", "_recorded")

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self._left = self._recorded = 0
        """The last message that has left, and the last one before this step."""

    def step(self, most: int) -> int:
        """Let some leave; it is over when that is synced."""
        self._recorded = self._left
        return super().step(most)

    def end(self) -> None:
        """Whoever asked for this is told that they have left: let them stay away."""
        queue, log_writer = self.queue, self.queue.log_writer
        if self._left and queue.syncs and log_writer is not None and not queue.deleted:
            log_writer.must_sync = True
            if self._left == self._recorded:  # Said before, and not synced: say it once more.
                self.sequence = log_writer.dequeue_many(queue.uid, [self._left], Cause.PURGED)
        super().end()

    def take(self, found: list[Message]) -> int:
        """Drop those that are available."""
        queue = self.queue
        leaving = [
            message for message in found if not message.acquired or queue.holds(message.sequence)
        ]
        if not leaving:
            return 0
        self.count += len(leaving)
        self._left = leaving[-1].sequence
        return queue.drop(leaving, Cause.PURGED)

    def take_packed(self, segment: Segment) -> int:
        """Drop all."""
        self.count += len(segment)
        self._left = segment.sequences[-1]
        return self.queue.drop_packed(list(segment.sequences), Cause.PURGED)
