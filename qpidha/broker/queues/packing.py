"""Packing: has the messages of long queues packed that wait for long, some a turn.

Every second it looks at the queues with more than `LONG` messages that are not packed,
and packs in the turns that follow what was there at the look before, but for those that are next to
be taken. So what a queue that is consumed from has is never packed, and a message that stays costs
0.3 us for being packed once. What somebody asks for is unpacked and, when that was much, packed
again. Knows nothing of clusters: each broker packs what it has.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from qpidha.broker.queues.backlog import LONG
from qpidha.broker.queues.ordering import Fifo
from qpidha.model.duration import SECOND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.broker.queues.queue import Queue

PIECE = 5000
"""Queues that are looked at each second, to find long ones."""
INTERVAL = SECOND
"""A message waits for once to twice this before it is packed."""


SLICES = 3
"""Slices that are packed in one turn, 0.3 ms each: as many messages as one come in a turn, and a
long queue that grows is to be packed sooner than it grows.
"""


class _Long:
    """How far one long queue is packed."""

    __slots__ = ("last", "left", "reached", "through")

    def __init__(self) -> None:
        self.last = 0
        """The last sequence at the last look."""
        self.through = 0
        """Up to here is to be packed."""
        self.reached = 0
        """Up to here has been tried."""
        self.left = 0
        """How many of those could not be packed, roughly."""


class Packing:
    """Packs what is on the queues of one broker."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._walk: list[Queue] = []
        """Queues that are still to be looked at."""
        self._long: dict[Queue, _Long] = {}
        self._due: deque[Queue] = deque()
        self._next = 0

    @property
    def is_busy(self) -> bool:
        """Whether there is more to pack in the next turn."""
        return bool(self._due)

    def tick(self, now: int) -> None:
        """Look for long queues, and at those that are known; about once a second."""
        if not self._walk:
            self._walk = list(self._queues.values())
        for queue in self._walk[-PIECE:]:
            if queue.messages.loose > LONG and queue not in self._long:
                self._long[queue] = _Long()
        del self._walk[-PIECE:]
        if now >= self._next and not self._due:
            self._next = now + INTERVAL
            for queue in list(self._long):
                self._look(queue)

    def _look(self, queue: Queue) -> None:
        messages, ordering = queue.messages, queue.ordering
        if queue.deleted or len(messages) <= LONG:
            del self._long[queue]
            messages.shrink()
            return
        if not isinstance(ordering, Fifo) or not queue.may_pack:
            return
        long = self._long[queue]
        long.through, long.last = long.last, ordering.last
        earlier = messages.loose - ordering.behind(long.reached)
        if earlier > long.left + LONG or long.last < long.reached:
            long.reached = 0  # Much was unpacked, or is other than it was.
        if messages.loose > LONG and long.through > long.reached:
            self._due.append(queue)

    def turn(self) -> None:
        """End of a turn: pack some."""
        for _ in range(SLICES):
            if self._due:
                self._pack()

    def _pack(self) -> None:
        queue = self._due[0]
        long, ordering = self._long[queue], queue.ordering
        reached = 0 if queue.deleted else queue.pack_some(long.reached, long.through)
        if reached:
            long.reached = reached
            return
        self._due.popleft()
        queue.messages.shrink()
        if isinstance(ordering, Fifo):
            long.left = max(queue.messages.loose - ordering.behind(long.reached), 0)
