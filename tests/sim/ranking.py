"""Ranking: in some runs the queues have levels of priority, and each message is of one.

Which level a message is of is a matter of its key. Within a level what one sender sent stays in
order; and whoever becomes primary gives the higher levels first. Chance has a generator of its own
here, so that a seed without levels is the history that it would be without this.
"""

from __future__ import annotations

from random import Random
from typing import Any
from zlib import crc32

from qpidha.model.features import QUEUE_KINDS
from tests.sim.history import Violation, key_of
from tests.sim.model_node import whole
from tests.sim.plan import LEVELS, QUEUES, Plan

SHARE = 0.25
"""Of the runs in which all brokers are of one version, so many have levels."""


def rank(plan: Plan, seed: int) -> None:
    """Give a run its levels, or not, as its seed has it."""
    chance = Random(f"levels {plan.depth} {seed}")
    # A queue with groups has no levels.
    plan.ranks = not plan.mixed and chance.random() < SHARE and not plan.grouped


def level_of(key: str) -> int:
    """Say of which level the message with a key is."""
    return crc32(key.encode()) % LEVELS


def is_known(machines: Any) -> bool:
    """Whether a primary may make queues with levels."""
    return any(QUEUE_KINDS in machine.node.broker.features for machine in machines.primaries())


def check_ranks(machine: Any) -> None:
    """A primary gives higher levels first, and each in the order of arrival."""
    for name in QUEUES:
        queue = machine.node.broker.queues.get(name)
        if queue is None:
            continue
        rows = [
            (-level_of(key_of(whole(message))), message.sequence) for message in queue.available()
        ]
        if rows != sorted(rows):
            raise Violation(
                f"levels: queue {name} of {machine.host} gives "
                f"{', '.join(f'{number} of level {-level}' for level, number in rows[:8])}"
            )
