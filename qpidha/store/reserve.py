"""The reserve: the space on the disk that is kept for what may become dead letters.

A dead letter is written once more, and what it was takes space until the next checkpoint. If
senders could fill the disk up to `disk-free-limit` nothing that died would have a place any more,
and what has no place no consumer takes: nothing could make space again. So of what is left above
that limit as much belongs to dead letters as they would take if all died that can. Senders wait a
fifth of the limit before that, and are refused what would take of it.

What may die is weighed each second, and where there is not much left also when a fifth of the
limit was appended (`weighing.py`); what was appended since is taken to be such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.store.weighing import Weighing

NEAR = 32
"""With so many fifths of the limit left, whatever may die, the look of each second is enough: one
at 100,000 queues takes 0.1 s.
"""
SHARE = 16
"""One part in so many is kept beyond what dead letters would take, and a tenth of the limit."""


class Reserve:
    """Whether the disk has room for all that may become a dead letter, and for more."""

    def __init__(self, weighing: Weighing, until_low: Callable[[], int], limit: int) -> None:
        """`until_low` tells how many bytes may be written above the `limit` of free bytes."""
        self._weighing = weighing
        self._until_low = until_low
        self._margin = limit // 5
        self.is_short = self.is_used_up = False
        """Whether senders are to wait, and whether nothing that is sent may be taken."""
        self._kept = self._mark = self._walks = 0

    @property
    def left(self) -> int:
        """Bytes above the limit that no dead letter may need; below 0 there are too few."""
        until_low = self._until_low()
        if not self._kept:
            return until_low
        return until_low - self._kept - max(self._mark - until_low, 0)

    def look(self) -> bool:
        """Look again; return whether it is another thing now whether senders may go on."""
        weighing, until_low = self._weighing, self._until_low()
        self._mark = max(self._mark, until_low)  # There is space again.
        appended, margin = self._mark - until_low, self._margin
        if appended > margin and until_low - self._kept - 2 * appended < NEAR * margin:
            weighing.step()
        if weighing.walks != self._walks:
            self._walks, self._mark = weighing.walks, until_low
            # Not less than they need in the end: the last ones would have no place.
            needed = weighing.may_die
            self._kept = needed and needed + needed // SHARE + self._margin // 2
        before = self.is_short, self.is_used_up
        if not self._kept:
            self.is_short = self.is_used_up = False
            return before != (False, False)
        left = self.left
        self.is_used_up = left < (margin if self.is_used_up else 0)
        self.is_short = self.is_used_up or left < (2 * margin if self.is_short else margin)
        return before != (self.is_short, self.is_used_up)

    def __str__(self) -> str:
        above = max(self._until_low(), 0) >> 20
        return (
            f"the disk has {above} MiB left above disk-free-limit, and what may become a dead "
            f"letter would take {self._kept >> 20} MiB of them"
        )
