"""Dying: in some runs rejected messages become dead letters, and so do those that were delivered
too often; each is on its queue or among the dead letters, and never on both.

Chance has a generator of its own here, so that a seed without dead letters is the history that it
would be without this.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.sim.history import Facts, Violation

if TYPE_CHECKING:
    from tests.sim.checkers import Contents
    from tests.sim.plan import Plan

SHARE = 0.2
"""Of the runs, so many have dead letters, unless older brokers take part, which know none."""


def die(plan: Plan, seed: int) -> None:
    """Have messages of a run die, or not, as its seed has it."""
    chance = Random(f"dying {plan.depth} {seed}")
    if chance.random() >= SHARE or plan.mixed:
        return
    plan.alternate = True
    plan.dies = {
        "x-delivery-limit": chance.choice([0, 1, 3]),
        "qpidha.dead-letter-on-delete": True,
        "qpidha.loss-counts": chance.choice(["all", "oldest"]),
    }
    plan.moods = (0.05, 0.2, 0.05)


def died_whole(facts: Facts, present: Contents, where: str) -> None:
    """What is among the dead letters is no longer where it died."""
    for origin, place in facts.alternates.items() if facts.dies else ():
        both = [
            key
            for key in present.get(place, ())
            if key in present.get(origin, ())
            and sum((other, key) in facts.duties for other in facts.alternates) == 1
        ]
        if both:
            raise Violation(
                f"half a death: {where} has {', '.join(both[:5])} on {place}, and still on {origin}"
            )
