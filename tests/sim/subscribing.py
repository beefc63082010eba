"""Subscribing: in some runs with a fan-out the last queue is that of a subscription which does not
take what its own connections send (no-local).

Two senders send to the exchange, and the first of them is of the subscription's container. So what
it sends is never on that queue, whoever is primary, while what the other sends is on both. Chance
has a generator of its own here, so that a seed without such a subscription is the history that it
would be without this.
"""

from __future__ import annotations

from random import Random

from tests.sim.plan import Plan

SHARE = 0.7
"""Of the runs with a fan-out in which all brokers are of one version, so many have this."""
OWN = "s0"
"""The container of the subscription, which is the first sender."""


def subscribe(plan: Plan, seed: int) -> None:
    """Have a subscription of a run not take what is its own, or not, as its seed has it."""
    chance = Random(f"no-local {plan.depth} {seed}")
    if plan.fan_out and chance.random() < SHARE and not plan.mixed:
        plan.not_own = OWN
        plan.senders = max(plan.senders, 2)
