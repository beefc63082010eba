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
    from qpidha.model.message import Message


class Purge(Walk):
    """A queue on its way to be empty."""

    __slots__ = ()

    def take(self, found: list[Message]) -> int:
        """Drop those that are available."""
        queue = self.queue
        leaving = [
            message for message in found if not message.acquired or queue.holds(message.sequence)
        ]
        self.count += len(leaving)
        return queue.drop(leaving, Cause.PURGED)
