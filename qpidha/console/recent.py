"""The last items of something that goes on, numbered, for readers that come back for more.

A reader says up to which number it has everything, and gets what came after. There is a ring for
each group of items, so that many of one group (connections of clients) push none of another out
(changes of the role). Knows neither what the items are nor the time.
"""

from __future__ import annotations

from collections import deque
from heapq import merge
from itertools import islice, takewhile
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Recent(Generic[Item]):
    """Keeps the last `most` items of each group."""

    __slots__ = ("_groups", "_most", "dropped", "last")

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: dict[str, deque[tuple[int, Item]]] = {}
        self.last = 0
        """Number of the newest item; the first one has 1."""
        self.dropped = 0
        """The highest number that is not kept any more: who has less may have missed some."""

    def add(self, group: str, item: Item) -> int:
        """Add an item and return its number."""
        ring = self._groups.get(group)
        if ring is None:
            ring = self._groups[group] = deque(maxlen=self._most)
        if len(ring) == self._most:
            self.dropped = max(self.dropped, ring[0][0])
        self.last += 1
        ring.append((self.last, item))
        return self.last

    def after(self, number: int, most: int) -> list[tuple[int, Item]]:
        """Return the items behind a number, the oldest first, up to `most` of them."""
        behind = (
            reversed(list(takewhile(lambda one: one[0] > number, reversed(ring))))
            for ring in self._groups.values()
        )
        return list(islice(merge(*behind, key=lambda one: one[0]), most))
