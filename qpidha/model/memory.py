"""Memory use: bytes that each kind of content has in memory, summed as it comes and goes.

Who holds such bytes counts them here, so that to know the sum costs nothing.
"""

from __future__ import annotations

ANY = 1 << 62
"""More bytes than there are."""
PEER_SHARE = 256
"""One part in so many of a limit may be on its way to one peer."""
LEAST_FOR_PEER = 64 << 10
ANSWERS_SHARE, LEAST_ANSWERS, MOST_ANSWERS = 32, 1 << 20, 64 << 20
"""One part in so many of a limit may wait for one peer that does not read the answers to its
requests: no less, and no more.
"""
TRANSACTION_SHARE, TRANSACTIONS_SHARE = 8, 2
"""One part in so many of a limit may be in the open transactions of one user, and of all."""


def peer_share(limit: int) -> int:
    """Return how many bytes may be on their way to one peer, with a limit of the memory. Engine and
    socket have several times as much of buffers for it, which stay as large as they once were.
    """
    return max(limit // PEER_SHARE, LEAST_FOR_PEER) if limit else ANY


class MemoryUse:
    """What one broker has in memory, and what those may have that nobody can make let go of it."""

    __slots__ = (
        "answers",
        "answers_share",
        "bodies",
        "output",
        "peer_share",
        "transaction_share",
        "transactions",
        "transactions_of",
        "transactions_share",
        "unfinished",
    )

    def __init__(self) -> None:
        self.peer_share = ANY
        """Bytes that may be on their way to one peer."""
        self.transaction_share = self.transactions_share = ANY
        """Bytes that may be in the open transactions of one user, and of all."""
        self.answers_share = MOST_ANSWERS
        """Bytes of answers to management that may wait for one peer."""
        self.answers = 0
        """Answers to management that wait for peers, or for what they tell of to be committed."""
        self.bodies = 0
        """Message bodies on queues, but for those that are on disk only. A body on several queues
        counts for each: after a restart it may be there as often.
        """
        self.transactions = 0
        """Messages in open transactions."""
        self.transactions_of: dict[str, int] = {}
        """The same of each user, or of an address where nobody logs in."""
        self.unfinished = 0
        """Parts of messages of which the rest has not come."""
        self.output = 0
        """What waits for peers that have not read it."""

    def count_transactions(self, holder: str, size: int) -> None:
        """So many bytes came into the open transactions of a user, or have left if it is below
        0.
        """
        self.transactions += size
        held = self.transactions_of.pop(holder, 0) + size
        if held:
            self.transactions_of[holder] = held

    def share_out(self, limit: int) -> None:
        """Keep to the parts of a limit of the memory."""
        self.peer_share = peer_share(limit)
        self.answers_share = min(max(limit // ANSWERS_SHARE, LEAST_ANSWERS), MOST_ANSWERS)
        self.transaction_share = limit // TRANSACTION_SHARE
        self.transactions_share = limit // TRANSACTIONS_SHARE
