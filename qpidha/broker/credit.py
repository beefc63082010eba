"""Credit: whether the senders of a broker may have messages on their way, whatever their queues
say.

While a limit of the whole broker is reached its senders get no credit, and hear when they may have
some again; what they sent before is taken. Of the memory that is left when it gets short each one
has a share, and so it has of the space on the disk before it gets low. Knows no link and no limit.
Source: Qpid `QueueFlowLimit.cpp`, for a broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.broker.queues.queue import Queue, Sender

MEMORY_LIMIT = "memory-limit"
DISK_FREE_LIMIT = "disk-free-limit"
"""Holds up only those who send to a queue that is recorded; who sends to an exchange may mean
others, and is refused what cannot be recorded.
"""

SLOW_DISK = "slow-disk"
"""Too much waits to be written. Holds up all but those who send to a queue that is not recorded:
this passes by itself.
"""


MOST_ON_ITS_WAY = 1 << 30
"""Bytes, to all who send, where there is no limit of the memory: they wait in memory while the disk
is slow.
"""


FIRST_CREDIT, LARGE = 64, 1 << 20
"""How many messages a peer may send before the size of any is known, if there is room for so many
of so many bytes.
"""


DELIVERY = 2 << 10
"""Bytes that the engine takes for a message until it has its outcome, beside its own, roughly."""


class Credit:
    """Whether senders get credit."""

    __slots__ = ("senders", "spare", "spare_disk", "waiting", "withheld")

    def __init__(self) -> None:
        self.withheld: dict[str, str] = {}
        """Limits that are reached, and why senders have to wait for each."""
        self.senders: dict[Sender, None] = {}
        self.waiting: dict[Sender, None] = {}
        """Senders that were given nothing."""
        self.spare = MOST_ON_ITS_WAY
        """Bytes that all senders together may have on their way."""
        self.spare_disk: Callable[[], int] = lambda: MOST_ON_ITS_WAY
        """Tells how many bytes may be written before the disk is low."""

    def share(self, queue: Queue | None) -> int:
        """Return how many bytes one sender, to one queue or to others, may have on their way. For
        a recorded queue it is a part of half of what the disk has room for: senders that come later
        have some as well, and consuming writes too.
        """
        spare = self.spare
        if queue is not None and queue.is_recorded:
            spare = max(min(spare, self.spare_disk() // 2), 0)
        return spare // max(len(self.senders), 1)

    def withhold(self, limit: str, reason: str) -> None:
        """Give senders no credit, as a limit is reached; or again some, with an empty reason."""
        if reason:
            self.withheld[limit] = reason
        elif self.withheld.pop(limit, ""):
            waiting, self.waiting = self.waiting, {}
            for sender in waiting:
                sender.resumed()

    def allows(self, sender: Sender, queue: Queue | None) -> bool:
        """Whether a sender, to one queue or to others, may have credit. One that may not hears when
        that is worth asking again.
        """
        withheld = self.withheld
        is_recorded = queue is not None and queue.is_recorded
        if (
            MEMORY_LIMIT in withheld
            or (DISK_FREE_LIMIT in withheld and is_recorded)
            or (SLOW_DISK in withheld and (is_recorded or queue is None))
        ):
            self.waiting[sender] = None
            return False
        return True

    def allowance(
        self, sender: Sender, queue: Queue | None, size: int, *, budget: int, window: int
    ) -> int:
        """Return how many messages of about `size` bytes, 0 if that is not known, a sender may have
        on their way: as many as its queue will have room for, whatever comes of it, in `budget`
        bytes and no more than `window`; 0 if the queue or the broker takes none now.
        """
        if self.withheld and not self.allows(sender, queue):
            return 0
        most = budget // size if size else FIRST_CREDIT
        most = min(most, self.share(queue) // ((size or LARGE) + DELIVERY))
        if queue is not None:
            if not queue.admits(sender, size):
                return 0
            most = min(most, queue.share(size) if size else queue.share(LARGE, is_first=True))
        return max(1, min(most, window))

    def leave(self, sender: Sender) -> None:
        """A sender is gone."""
        self.senders.pop(sender, None)
        self.waiting.pop(sender, None)
