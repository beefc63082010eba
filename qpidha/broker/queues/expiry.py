"""Expiry: a queue is searched for messages whose time is over, some a turn (`walk.py`).

A consumer gets no such message anyway (`dispatch.py`); this is for the queues that nobody consumes
from. They are searched one after the other, so that many queues take many turns as many messages
do. What has expired is not rerouted. What a consumer has may still be accepted; if it is given
back, the next search finds it. After a failover the new primary searches again in its time.

Source: Qpid `Queue.cpp` (purgeExpired).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.walk import Walk
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        """The queue need not be searched again before a message comes that may expire; unless this
        ended because it is being deleted, for it may be a queue again.
        """
        queue = self.queue
        if not self._is_timed and not queue.deleted and queue.ordering.last <= self._last:
            queue.may_expire = False
        super().end()


class Search:
    """All queues are searched for what has expired by `now`."""

    __slots__ = ("_expiry", "_now", "_queues", "is_over", "sequence")

    def __init__(self, queues: Iterable[Queue], now: int) -> None:
        self._queues = iter(list(queues))
        self._now = now
        self._expiry: Expiry | None = None
        """The queue that it has come to."""
        self.sequence = 0
        """The last record of this search; 0 if there is none."""
        self.is_over = False

    def step(self, most: int) -> int:
        """Look at up to `most` messages, and queues without any; return at how many."""
        left = most
        while left > 0 and not self.is_over:
            expiry = self._expiry or self._next()
            if expiry is None:
                left -= 1
                continue
            left -= max(expiry.step(left), 1)
            self.sequence = max(self.sequence, expiry.sequence)
            self._expiry = None if expiry.is_over else expiry
        return most - left

    def _next(self) -> Expiry | None:
        """Go on to the next queue; None if there is nothing on it to be searched for."""
        queue = next(self._queues, None)
        if queue is None:
            self.is_over = True
        elif queue.may_expire and not queue.is_replica:
            return Expiry(queue, self._now)
        return None
