"""Selecting: in some runs of the model depth each queue has a receiver that takes half of the
messages, and one that takes any and gives many back.

Which half a message is of is a matter of its key. Chance has a generator of its own here, so that a
seed without selectors is the history that it would be without this.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from tests.sim.history import Violation, key_of
from tests.sim.plan import Plan

SHARE = 0.2
"""Of the runs, so many have selectors."""
GIVING_BACK = (0.3, 0.0, 0.1)
"""The moods of who takes any."""


def select(plan: Plan, seed: int) -> None:
    """Have a run select, or not, as its seed has it."""
    chance = Random(f"selectors {plan.depth} {seed}")
    plan.selects = plan.depth == "model" and chance.random() < SHARE


@dataclass(frozen=True)
class Half:
    """The selector of half of the messages."""

    number: int
    cost: int = 1

    def holds(self, key: str) -> bool:
        """Whether the message with a key is of this half."""
        return crc32(key.encode()) % 2 == self.number

    def selects(self, message: Any) -> bool:
        """Whether a message is of this half."""
        return self.holds(key_of(message.body()))


def check_selected(receiver: Any, key: str, where: str) -> None:
    """A receiver gets only what it selects."""
    half = receiver.options.get("selects")
    if half is not None and not half.holds(key):
        raise Violation(
            f"not selected: {where} gave {key} from queue {receiver.address} to {receiver.host}"
        )
