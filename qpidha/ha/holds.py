"""Holds: what waits for the log to be safe.

A hold is `(sequence, target, item)`: when everything up to `sequence` is safe, `target.released(item)`
is called, in the order of the holds. Held are a sender's delivery until its message is safe, a
consumer's until its dequeue is, and replies to management. This is Qpid's delayed completion; its cost
for a message is three appends and a comparison.
Knows nothing of what it releases. Qpid: `QueueGuard.h`, `AsyncCompletion.h`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Protocol

COMPACT_AFTER = 4096
"""Released entries that are carried before the lists are cut."""


class Target(Protocol):
    """Whoever waits."""

    def released(self, item: Any) -> None:
        """What `item` stands for is safe."""


class Holds:
    """All holds of one broker."""

    __slots__ = ("_head", "_items", "_sequences", "_targets", "safe")

    def __init__(self) -> None:
        self.safe = 0
        self._head = 0
        # Three columns rather than a list of tuples: nothing is allocated for a hold. Sequences never fall.
        self._sequences: list[int] = []
        self._targets: list[Target | None] = []
        self._items: list[Any] = []

    def __len__(self) -> int:
        return len(self._sequences) - self._head

    def add(self, sequence: int, target: Target, item: Any) -> None:
        """Call `target.released(item)` when `sequence` is safe, at once if it is."""
        if sequence <= self.safe:
            target.released(item)
            return
        sequences = self._sequences
        if sequences and sequence < sequences[-1]:
            sequence = sequences[-1]  # waits a little longer, and the column stays sorted
        sequences.append(sequence)
        self._targets.append(target)
        self._items.append(item)

    def release(self, safe: int) -> None:
        """Everything up to `safe` is safe."""
        self.safe = safe
        sequences, targets, items = self._sequences, self._targets, self._items
        head = self._head
        end = len(sequences)
        # released() may add holds, but only beyond `end`; those are for a later safe point.
        while head < end and sequences[head] <= safe:
            target = targets[head]
            if target is not None:
                targets[head] = None
                target.released(items[head])
                items[head] = None
            head += 1
        if head == len(sequences):
            sequences.clear()
            targets.clear()
            items.clear()
            head = 0
        elif head > COMPACT_AFTER:
            del sequences[:head], targets[:head], items[:head]
            head = 0
        self._head = head

    def release_consumed(self, consumed: list[int]) -> None:
        """Release the first hold on exactly each of these sequences: its message was consumed, so there is nothing left to lose."""
        sequences, targets, items = self._sequences, self._targets, self._items
        place = self._head
        for sequence in consumed:
            # Most messages are consumed in the order in which they came: then it is the next one.
            if place >= len(sequences) or sequences[place] != sequence:
                place = bisect_left(sequences, sequence, self._head)
                if place == len(sequences) or sequences[place] != sequence:
                    continue
            target = targets[place]
            if target is not None:
                targets[place] = None
                target.released(items[place])
                items[place] = None
            place += 1

    def clear(self, safe: int) -> None:
        """Forget every hold unreleased: those who wait are gone, or must ask the next primary."""
        self._sequences.clear()
        self._targets.clear()
        self._items.clear()
        self._head = 0
        self.safe = safe
