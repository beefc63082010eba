"""Times: which messages of a queue are to be looked at when, because one expires or is due then.

A message that may expire has an entry here from the time it comes, and most leave long before. So
an entry has to cost little: those of about the same time share a page, the heap has one item for a
page, and what has left is swept out of old pages while new ones begin. Nothing here walks through
all entries in one go.

Only who decides about a queue has its times. They are made anew by a walk (`expiry.py`) when that
is another broker. Must not know why a message is looked at.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qpidha.broker.queues.messages import Messages

GRAIN = 1 << 25
"""Messages whose times are within so many ns share a page: none is looked at before its time, and
none more than this later, which is 34 ms.
"""
PAGE = 1000
"""Entries on one page: what is done to a page takes a part of a ms."""
SPARE = 64
"""Empty pages that are carried whatever there is beside them."""


class Times:
    """When each message of one queue is to be looked at."""

    __slots__ = ("_count", "_empty", "_heap", "_open", "_present", "_swept")

    def __init__(self, present: Messages) -> None:
        self._present = present
        """The messages on the queue."""
        self._heap: list[tuple[int, int, list[int]]] = []
        """(time in grains, number, sequences) of each page."""
        self._open: dict[int, list[int]] = {}
        """Time in grains -> the page that takes more."""
        self._count = 0
        """Of pages that were ever begun, so that pages are never compared."""
        self._swept = 0
        """The sweep has come to this place of the heap."""
        self._empty = 0
        """How many pages were swept empty, or a few more."""

    def __len__(self) -> int:
        return sum(len(page) for _, _, page in self._heap)

    @property
    def first(self) -> int:
        """When there is something to be looked at, in ns; 0 for never."""
        return self._heap[0][0] * GRAIN if self._heap else 0

    def add(self, at: int, sequence: int) -> bool:
        """Look at a message at a time; return whether that may come before all that was known."""
        grain = -(-at // GRAIN)
        page = self._open.get(grain)
        if page is not None and len(page) < PAGE:
            page.append(sequence)
            return False
        self._open[grain] = page = [sequence]
        self._count += 1
        heappush(self._heap, (grain, self._count, page))
        # Two for one, so that a sweep ends before as many new pages have begun as there were.
        self._sweep()
        self._sweep()
        return self._heap[0][0] == grain

    def add_run(self, at: int, sequences: Sequence[int]) -> bool:
        """Do so with some messages."""
        is_first = False
        done = 0
        while done < len(sequences):
            page = self._open.get(-(-at // GRAIN))
            room = PAGE - len(page) if page is not None else 0
            if page is not None and room > 0:
                page += sequences[done : done + room]
                done += room
            else:
                is_first = self.add(at, sequences[done]) or is_first
                done += 1
        return is_first

    def due(self, now: int, most: int) -> list[int]:
        """Take the messages whose time has come, about `most` of them, the first ones first."""
        found: list[int] = []
        while self._heap and self._heap[0][0] * GRAIN <= now and len(found) < most:
            grain, _, page = heappop(self._heap)
            self._close(grain, page)
            found += page
        return found

    def _sweep(self) -> None:
        """Forget what has left of the next page; and empty pages, when they are most of all."""
        self._swept = (self._swept or len(self._heap)) - 1
        self._swept = min(self._swept, len(self._heap) - 1)
        page = self._heap[self._swept][2]
        if not page:
            return
        page[:] = self._present.here(page)
        self._empty += not page
        if self._empty > len(self._heap) // 2 + SPARE:
            for grain, _, other in self._heap:
                if not other:
                    self._close(grain, other)
            self._heap = [item for item in self._heap if item[2]]
            heapify(self._heap)
            self._empty = 0

    def _close(self, grain: int, page: list[int]) -> None:
        """Put nothing more on a page."""
        if self._open.get(grain) is page:
            del self._open[grain]
