"""Sweep: a limit of a queue was lowered, and what is over it leaves, some a turn (`walk.py`).

- The delivery limit: what a consumer has is looked at when it comes back as a delivery that failed.
- The depth of a ring: the next message would have all leave in one turn that are over it. While
  there are too many for that a newcomer has as many leave as it needs itself, and the rest goes
  turn by turn. What is over it and cannot leave, as consumers have it or as it has no place among
  the dead letters, is for the newcomers that follow.

After a failover in the middle the new primary begins again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.deletion import PASSED_ON_A_TURN, WEIGHT
from qpidha.broker.queues.walk import Walk
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from qpidha.broker.queues.messages import Segment
    from qpidha.model.message import Message


class Sweep(Walk):
    """A queue whose messages are over a limit that was lowered."""

    __slots__ = ()

    def take(self, found: list[Message]) -> int:
        """Let those leave that were delivered too often and that no consumer has."""
        queue = self.queue
        most = queue.spec.delivery_limit.most
        leaving = [
            message for message in found if message.delivery_count > most and not message.acquired
        ]
        self.count += len(leaving)
        return queue.drop(leaving, Cause.DELIVERY_LIMIT) if leaving else 0

    def take_packed(self, segment: Segment) -> int:
        """Let none leave: no consumer has had any."""
        return 0


LETTERS = 10
"""To make a dead letter takes as long as to pass on so many messages as they are."""


class Trim(Walk):
    """A ring that is far over its limits, on its way down to them."""

    __slots__ = ()

    def step(self, most: int) -> int:
        """Let some leave, the first to give way first."""
        queue = self.queue
        weight = 1
        if queue.spec.dead_letters is not None:
            weight = WEIGHT * LETTERS
        elif queue.options.alternate:
            weight = WEIGHT
        most = max(min(most, PASSED_ON_A_TURN * WEIGHT) // weight, 1)
        found = [] if queue.deleted else list(queue.at_once(queue.surplus(most)))
        depth = queue.staying
        if found:
            self.sequence = max(self.sequence, self.take(found))
        gone = depth - queue.staying
        self.count += gone
        if not gone or not queue.ease():
            queue.tighten()
            self.end()
        return len(found) * weight

    def take(self, found: list[Message]) -> int:
        """Let these leave."""
        return self.queue.push_out(found)
