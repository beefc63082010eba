"""Memory use: bytes that each kind of content has in memory, summed as it comes and goes.

Who holds such bytes counts them here, so that to know the sum costs nothing. Knows no limit.
"""

from __future__ import annotations


class MemoryUse:
    """What one broker has in memory."""

    __slots__ = ("bodies", "output", "transactions", "unfinished")

    def __init__(self) -> None:
        self.bodies = 0
        """Message bodies on queues, but for those that are on disk only. A body on several queues
        counts for each: after a restart it may be there as often.
        """
        self.transactions = 0
        """Messages in open transactions."""
        self.unfinished = 0
        """Parts of messages of which the rest has not come."""
        self.output = 0
        """What waits for peers that have not read it."""
