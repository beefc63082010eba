"""Timing: in some runs some senders give their messages a time to live, or have them delivered
later.

Whatever happens, none is gone before its time is over, and none is given before it is due. Chance
has a generator of its own here, so that a seed without any of this is the history that it would be
without this.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.sim.history import Violation
from tests.sim.plan import Plan
from tests.sim.world import MILLISECOND

UNHEARD = 50 * MILLISECOND
"""How much earlier a message may expire where a broker of the base is promoted: it does not hear
how late it was at the former primary when that gave it its time, a few ms for each failover.
"""
SHARE = 0.25
"""Of the runs, so many have such senders."""


def time_senders(plan: Plan, seed: int) -> None:
    """Let senders of a run say how long and when, or not, as its seed has it."""
    chance = Random(f"times {plan.depth} {seed}")
    if chance.random() < SHARE:
        for number in range(plan.senders):
            plan.times[number] = chance.choice([(0, 0), (300, 0), (1000, 0), (0, 100), (0, 400)])


def take_note(run: Any, sender: Any, key: str) -> None:
    """A sender sends: judge by that what becomes of it. Its time counts from when it comes, and the
    first time that it was sent may have been that.
    """
    facts, world = run.facts, run.world
    if sender.delay:
        facts.due.setdefault(key, world.now + sender.delay * MILLISECOND)
        if run.plan.clocks:
            facts.late.add(key)
    if sender.ttl and key not in facts.timed:
        facts.timed.add(key)
        slack = UNHEARD if run.plan.mixed else 0
        world.at(sender.ttl * MILLISECOND - slack, facts.may_expire, key)


def check_due(run: Any, key: str, where: str) -> None:
    """A receiver gets nothing early."""
    due = run.facts.due.get(key, 0)
    if run.world.now < due:
        early = (due - run.world.now) // MILLISECOND
        raise Violation(f"early: {where} gave {key} {early} ms before it is due")
