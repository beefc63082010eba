"""Deadlines: when each of many things is due, kept so that the first is known at once.

A heap with what is out of date left in it: to move a deadline costs a push, and what was meant
before is thrown away when it comes to the front. Nothing here walks through all of them, but for
the heap that is made anew when most of it is out of date. Must not know what a time is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key")
SPARE = 64
"""Entries out of date that are carried whatever there is beside them."""


class Deadlines(Generic[Key]):
    """A time for each key, 0 for none."""

    __slots__ = ("_at", "_count", "_heap")

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []
        self._count = 0
        """Of entries that were ever made: keys of one time are due as they were set, and are never
        compared.
        """

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: object) -> bool:
        return key in self._at

    def __iter__(self) -> Iterator[Key]:
        return iter(self._at)

    def set(self, key: Key, at: int) -> None:
        """Let a key be due at a time, and at no other."""
        if not at:
            self.remove(key)
        elif self._at.get(key) != at:
            self._at[key] = at
            self._count += 1
            heappush(self._heap, (at, self._count, key))
            if len(self._heap) > 2 * len(self._at) + SPARE:
                self._heap = [entry for entry in self._heap if self._at.get(entry[2]) == entry[0]]
                heapify(self._heap)

    def remove(self, key: Key) -> None:
        """Let a key be due no more."""
        self._at.pop(key, None)

    @property
    def first(self) -> int:
        """When the first key is due, 0 for never."""
        heap, at = self._heap, self._at
        while heap and at.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else 0

    def due(self, now: int, most: int = sys.maxsize) -> list[Key]:
        """Take the keys whose time has come, the first ones first and no more than `most`; they
        have none any more.
        """
        found: list[Key] = []
        while len(found) < most and 0 < self.first <= now:
            key = heappop(self._heap)[2]
            del self._at[key]
            found.append(key)
        return found
