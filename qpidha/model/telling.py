"""Telling: whether a change of something that comes and goes is told, or was told often enough.

What is up or down for good is told at once. What goes down again and again, or is tried in vain for
ever, is told a few times with each reason, and then only when it stays up: so no log grows with the
number of attempts. Knows no clock: its owner says when something has stayed.
"""

from __future__ import annotations

MOST_REASONS = 16
"""Reasons that are told while something is down: each address of a cluster may have another."""
MOST_TIMES = 8
"""So often it is told at once that something is up again, or down, until it stays up."""


class Telling:
    """What was told of one thing."""

    __slots__ = ("_is_up", "_reasons", "_times")

    def __init__(self, *, is_up: bool = False) -> None:
        self._is_up = is_up
        """Whether the last that was told is that it is up."""
        self._reasons: set[str] = set()
        """Why it is down, as far as that was told."""
        self._times = 0
        """How often it went down since it last stayed up."""

    @property
    def waits(self) -> bool:
        """Whether `stays` is wanted: it was down not long ago."""
        return self._times > 0

    def down(self, why: str) -> bool:
        """Whether to tell that it is down, and why."""
        if self._is_up:
            self._is_up = False
            self._times += 1
            self._reasons.clear()
        if why in self._reasons or len(self._reasons) >= MOST_REASONS:
            return False
        self._reasons.add(why)
        return True

    def up(self) -> bool:
        """Whether to tell that it is up."""
        if self._is_up or self._times >= MOST_TIMES:
            return False
        self._is_up = True
        return True

    def stays(self) -> bool:
        """It has been up for long: whether to tell that, now at the latest."""
        self._times = 0
        return self.up()
