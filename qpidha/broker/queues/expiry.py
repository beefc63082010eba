"""Expiry: a queue is searched for messages whose time is over, some a turn (`walk.py`).

A consumer gets no such message anyway (`dispatch.py`); this is for the queues that nobody consumes
from. They are not rerouted. What a consumer has may still be accepted; if it is given back, the
next search finds it. After a failover the new primary searches again in its time.

Source: Qpid `Queue.cpp` (purgeExpired).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.walk import Walk
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message


class Expiry(Walk):
    """A queue that is searched for what has expired by `now`."""

    __slots__ = ("_is_timed", "_now")

    def __init__(self, queue: Queue, now: int) -> None:
        super().__init__(queue)
        self._now = now
        self._is_timed = False
        """Whether a message stays that may expire later."""

    def take(self, found: list[Message]) -> int:
        """Drop those that are available and whose time is over."""
        timed = [message for message in found if message.expires]
        leaving = [
            message for message in timed if message.expires <= self._now and not message.acquired
        ]
        self._is_timed = self._is_timed or len(leaving) < len(timed)
        self.count += len(leaving)
        return self.queue.drop(leaving, Cause.EXPIRED) if leaving else 0

    def end(self) -> None:
        """The queue need not be searched again before a message comes that may expire."""
        if not self._is_timed and self.queue.ordering.last <= self._last:
            self.queue.may_expire = False
        super().end()
