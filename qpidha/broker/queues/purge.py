"""Purge: an administrator empties a queue, some messages a turn.

A queue may have millions of messages, and a turn that dropped them all would keep heartbeats,
clients and other brokers waiting for seconds. So a purge is a walk through the queue. Each step
drops the available messages of a bounded stretch, as one record; the next step comes in a later
turn, when that record is committed, so that backups get what they can apply in a turn as well.

- What was on the queue when the purge began is looked at once, in the order of the sequences. What
  comes later stays.
- Rejected messages that could not be placed elsewhere are dropped as well.
- A message that a consumer has is not taken from it: its outcome may be under way. One that is
  given back behind the walk stays, too.
- Every step is a change like any other: a failover in the middle leaves a queue of which a part was
  purged. Whoever asked has no answer then, and asks again.

Source: Qpid `Queue.cpp` (purge).
"""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.broker.queues.queue import Queue


class Purge:
    """A queue on its way to be empty."""

    __slots__ = ("_last", "_place", "_then", "count", "is_over", "queue", "sequence")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.count = 0
        """How many messages were dropped."""
        self.sequence = 0
        """The last record of this purge; 0 if there is none, or the queue has no records."""
        self.is_over = False
        self._then: Callable[[], None] | None = None
        self._place = 0
        """The walk has come as far as this sequence."""
        self._last = queue.ordering.last

    def when_over(self, then: Callable[[], None]) -> None:
        """Call `then` in the step that ends this, or now if that was before."""
        if self.is_over:
            then()
        else:
            self._then = then

    def step(self, most: int) -> int:
        """Look at up to `most` messages and drop those that are available; return at how many."""
        queue = self.queue
        found = (
            []
            if queue.deleted
            else list(
                takewhile(
                    lambda message: message.sequence <= self._last,
                    islice(queue.ordering.after(self._place), most),
                )
            )
        )
        leaving = [
            message
            for message in found
            if not message.acquired or message.sequence in queue.unplaced
        ]
        self.count += len(leaving)
        self.sequence = max(self.sequence, queue.drop(leaving))
        if len(found) < most:
            self.is_over = True
            if self._then is not None:
                self._then()
        else:
            self._place = found[-1].sequence
        return len(found)
