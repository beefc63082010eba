"""Clocks: in some runs the wall clocks of the hosts differ, by more than messages live or wait.

A broker that takes over goes by the clock of the former primary where its own is ahead of that, so
no message is over or due early. Only what nobody heard is lost: a broker that is promoted when no
other was left knows its own clock alone. Chance has a generator of its own here, so that a seed
with equal clocks is the history that it would be without this.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.sim.plan import Plan
from tests.sim.world import SECOND

SHARE = 0.15
"""Of the runs in which all brokers are of one version, so many have such clocks."""
AHEAD = (0, 0, 5 * SECOND, 20 * SECOND)
"""By how much a clock is ahead: more than messages live and wait, and less than a healed run has
time for, as who is behind has them wait for longer.
"""


def set_clocks(plan: Plan, seed: int) -> None:
    """Have the clocks of a run differ, or not, as its seed has it."""
    chance = Random(f"clocks {plan.depth} {seed}")
    if chance.random() >= SHARE or plan.mixed:
        return
    plan.clocks = [chance.choice(AHEAD) for _ in range(plan.brokers)]
    for number in range(plan.senders):
        plan.times[number] = chance.choice([(3000, 0), (3000, 0), (0, 400), (0, 0)])


def promoted_unheard(run: Any, machine: Any) -> None:
    """Note that a broker was promoted that heard of no clock, if so."""
    if run.plan.clocks and not machine.was_complete:
        facts = run.facts
        facts.due = dict.fromkeys(facts.due, 0)  # Also of what is sent again and known again.
        for duty in facts.duties.values():
            duty.purged = duty.purged or duty.key in facts.timed
