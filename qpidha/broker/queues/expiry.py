"""Expiry: when a message's time is over, and which message that is.

A message has the time that its sender gave it, and no more than its queue gives to each
(`x-message-ttl`), from when it came. A consumer gets none whose time is over (`dispatch.py`); what
nobody asks for leaves shortly after its time, wherever it is on the queue: `times.py` says when to
look at which. What a consumer has then may still be accepted; if it is given back it leaves.

Only who decides about a queue looks at the clock. A broker that comes to do so knows of no times
yet, so it walks through its queues, some messages a turn (`walk.py`). On that walk, and on the one
that follows when a queue's time to live becomes shorter, each message gets at most that time from
then on: no message is ever over before a broker that has the queue would say so, and a message that
was there before the queue had a time to live has one from then on.

Source: Qpid `Queue.cpp` (purgeExpired); RabbitMQ's guide to time-to-live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.walk import Walk
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qpidha.broker.queues.messages import Segment
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message


class Expiry(Walk):
    """A queue is searched for what has expired by `now`; what may expire later is noted."""

    __slots__ = ("_is_timed", "_now")

    def __init__(self, queue: Queue, now: int) -> None:
        super().__init__(queue)
        self._now = now
        self._is_timed = False
        """Whether a message stays that is to be looked at later."""

    def take(self, found: list[Message]) -> int:
        """Drop those that are available and whose time is over."""
        leaving = self.queue.over(found, self._now)
        if not self._is_timed:
            timed = sum(1 for message in found if message.expires)
            self._is_timed = timed > len(leaving)
        self.count += len(leaving)
        return self.queue.drop(leaving, Cause.EXPIRED) if leaving else 0

    def take_packed(self, segment: Segment) -> int:
        """Drop those whose time is over."""
        leaving = self.queue.over_packed(segment, self._now)
        if segment.expiries is not None and not self._is_timed:
            timed = len(segment) - segment.expiries.count(0)
            self._is_timed = timed > len(leaving)
        self.count += len(leaving)
        return self.queue.drop_packed(leaving, Cause.EXPIRED) if leaving else 0

    def end(self) -> None:
        """The queue need not be searched again before a message comes that may expire; unless this
        ended because it is being deleted, for it may be a queue again.
        """
        queue = self.queue
        if not self._is_timed and not queue.deleted and queue.ordering.last <= self._last:
            queue.may_expire = False
        super().end()


class Search:
    """All queues that a broker has begun to decide about are searched for what has expired by
    `now`.
    """

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
        elif queue.has_times and not queue.is_replica:
            return Expiry(queue, self._now)
        return None
