"""Walk: something is done to all messages of a queue, some a turn.

A queue may have millions of messages, and a turn that dropped them all would keep heartbeats,
clients and other brokers waiting for seconds. So what concerns them all is a walk through the
queue. Each step looks at a bounded stretch, and what leaves there leaves as one record or a few;
the next step comes in a later turn, when those are committed, so that backups get what they can
apply in a turn as well.

- What was on the queue when the walk began is looked at once, in the order of the sequences. What
  comes later is not.
- Every step is a change like any other: a failover in the middle leaves a queue of which a part was
  walked.

Knows nothing of why messages leave: that is said by each kind of walk.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from qpidha.broker.queues.messages import Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message


class Walk(ABC):
    """A way through the messages that a queue has now."""

    __slots__ = ("_last", "_place", "_then", "count", "is_over", "is_resting", "queue", "sequence")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.count = 0
        """How many messages have left."""
        self.sequence = 0
        """The last record of this walk; 0 if there is none, or the queue has no records."""
        self.is_over = False
        self.is_resting = False
        """Whether it waits for room on the disk."""
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
        """Look at up to `most` messages and let leave what has to; return at how many."""
        queue, seen = self.queue, 0
        while seen < most:
            if queue.deleted or not (
                found := queue.part_after(self._place, self._last, most=most - seen)
            ):
                self.end()
                break
            seen += len(found)
            if isinstance(found, Segment):
                self._place = found.sequences[-1]
                recorded = self.take_packed(found)
            else:
                self._place = found[-1].sequence
                recorded = self.take(found)
            self.sequence = max(self.sequence, recorded)
        return seen

    @abstractmethod
    def take(self, found: list[Message]) -> int:
        """Let leave what has to of these messages; return the sequence to wait for."""

    def take_packed(self, segment: Segment) -> int:
        """Do so with messages that are packed: nobody has them, and nobody has had them."""
        messages = self.queue.messages
        return self.take([messages[sequence] for sequence in segment.sequences])

    def end(self) -> None:
        """There is nothing more to look at."""
        self.is_over = True
        if self._then is not None:
            self._then()
