"""Purges: in some runs an administrator empties queues while clients work and faults happen.

A purge takes one to three messages a turn here, so that faults come between its steps. What was
sent before a purge begins may go; what is sent from then on is to be there as ever. Chance has a
generator of its own here, so that a seed without purges is the history that it would be without
this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from qpidha.broker import broker as broker_module
from qpidha.broker.queues.purge import Purge
from tests.sim.plan import QUEUES

SHARE = 0.25
"""Of the runs, so many have purges."""


def draw_purges(run: Any) -> Random | None:
    """Return the chance of a run that has purges, as its seed has it."""
    chance = Random(f"purges {run.plan.depth} {run.seed}")
    return chance if chance.random() < SHARE else None


@contextmanager
def purges(run: Any) -> Iterator[None]:
    """Let purges happen in a run that has some."""
    chance = draw_purges(run)
    if chance is None:
        yield
        return
    for _ in range(chance.randint(1, 4)):
        run.world.at(
            chance.randrange(run.plan.length), run.administer, "purge", chance.choice(QUEUES)
        )
    former = broker_module.Purge, broker_module.WALKED_A_TURN

    class Noted(Purge):
        """A purge that is known to those who judge."""

        __slots__ = ()

        def __init__(self, queue: Any) -> None:
            super().__init__(queue)
            run.facts.purged(queue.name)

    try:
        broker_module.Purge = Noted  # type: ignore[misc]
        broker_module.WALKED_A_TURN = chance.randint(1, 3)
        yield
    finally:
        broker_module.Purge, broker_module.WALKED_A_TURN = former  # type: ignore[misc]
