"""Pending acknowledgements: answers that wait until the log is committed up to a sequence.

A broker accepts a message, settles a consumer's acceptance and answers a management request only
when the record of it is committed (S1). Until then the answer is an entry
`(sequence, waiter, item)` here: when everything up to `sequence` is committed,
`waiter.on_committed(item)` is called, in the order of the entries. This is Qpid's delayed
completion; it costs a message three appends and a comparison. Must not know what an answer is.
Source: rule S1; Qpid `QueueGuard.h`, `AsyncCompletion.h`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Protocol

COMPACT_AFTER = 4096
"""Answered entries that are carried before the columns are cut."""


class Waiter(Protocol):
    """Something that gives an answer when its record is committed."""

    def on_committed(self, item: Any) -> None:
        """The record that `item` stands for is committed: answer."""


class PendingAcknowledgements:
    """All answers of one broker that wait for a commit."""

    __slots__ = ("_head", "_items", "_looked", "_sequences", "_waiters", "committed")

    def __init__(self) -> None:
        self.committed = 0
        self._head = 0
        self._looked = 0
        """Where `waits_between` goes on."""
        # Three columns rather than a list of tuples: nothing is allocated for an entry. Sequences
        # never fall, so the entries that a commit answers are always the first ones.
        self._sequences: list[int] = []
        self._waiters: list[Waiter | None] = []
        self._items: list[Any] = []

    def __len__(self) -> int:
        return len(self._sequences) - self._head

    def waits_beyond(self, sequence: int) -> bool:
        """Whether an answer waits for something behind `sequence`."""
        return bool(self._sequences) and self._sequences[-1] > sequence

    def waits_between(self, sequence: int, end: int) -> bool:
        """Whether an answer waits for something behind `sequence`, which never falls, and before
        `end`.
        """
        sequences, waiters = self._sequences, self._waiters
        place, size = max(self._looked, self._head), len(self._sequences)
        while place < size and (waiters[place] is None or sequences[place] <= sequence):
            place += 1
        self._looked = place
        return place < size and sequences[place] < end

    def add(self, sequence: int, waiter: Waiter, item: Any) -> None:
        """Call `waiter.on_committed(item)` when `sequence` is committed, at once if it is."""
        if sequence <= self.committed:
            waiter.on_committed(item)
            return
        sequences = self._sequences
        # An answer for an earlier record may come late: a declaration that is asked for again
        # waits for the first one's record. It then waits a little longer than it must, and the
        # column stays sorted.
        if sequences and sequence < sequences[-1]:
            sequence = sequences[-1]
        sequences.append(sequence)
        self._waiters.append(waiter)
        self._items.append(item)

    def release(self, committed: int) -> None:
        """Answer all that waits for a sequence up to `committed`."""
        self.committed = committed
        sequences, waiters, items = self._sequences, self._waiters, self._items
        head = self._head
        end = len(sequences)
        # on_committed() may add entries, but only beyond `end`; those are for a later commit.
        while head < end and sequences[head] <= committed:
            waiter = waiters[head]
            if waiter is not None:
                waiters[head] = None
                waiter.on_committed(items[head])
                items[head] = None
            head += 1
        if head == len(sequences):
            sequences.clear()
            waiters.clear()
            items.clear()
            head = self._looked = 0
        elif head > COMPACT_AFTER:
            del sequences[:head], waiters[:head], items[:head]
            self._looked = max(self._looked - head, 0)
            head = 0
        self._head = head

    def release_consumed(self, consumed: list[int]) -> None:
        """Answer the first entry of exactly each of these sequences: its message was consumed
        before its record left this broker.

        There is nothing left to lose, so its sender need not wait for any backup.
        """
        sequences, waiters, items = self._sequences, self._waiters, self._items
        place = self._head
        for sequence in consumed:
            # Most messages are consumed in the order in which they came: then it is the next one.
            if place >= len(sequences) or sequences[place] != sequence:
                place = bisect_left(sequences, sequence, self._head)
                if place == len(sequences) or sequences[place] != sequence:
                    continue
            waiter = waiters[place]
            if waiter is not None:
                waiters[place] = None
                waiter.on_committed(items[place])
                items[place] = None
            place += 1
        while len(waiters) > self._head and waiters[-1] is None:
            del sequences[-1], waiters[-1], items[-1]
        self._looked = min(self._looked, len(waiters))

    def clear(self, committed: int) -> None:
        """Forget every entry unanswered: the clients are gone, or must ask the next primary.

        Whether such a record is committed is for the next primary to find out (S1): to answer now
        could acknowledge a message that it does not have.
        """
        self._sequences.clear()
        self._waiters.clear()
        self._items.clear()
        self._head = self._looked = 0
        self.committed = committed
