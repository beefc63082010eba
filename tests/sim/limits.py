"""Limits: in some runs queues are small, and in some of these they are deleted while clients work.

A small queue gives its senders no credit while it is nearly full, and refuses what comes all the
same; one in three never stops them, and refuses more. Where the queue for rejected messages is
small too, they stay where they are until it has room. A queue that is deleted gives its messages to
its alternate exchange, one to three a turn, so that faults come between; its clients make it again.
Chance has a generator of its own here, so that a seed without limits is the history that it would
be without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from qpidha.broker import broker as broker_module
from qpidha.broker.queues import deletion as deletion_module
from qpidha.broker.queues.deletion import Deletion
from tests.sim.plan import QUEUES, REJECTED, Plan

SHARE = 0.25
"""Of the runs, so many have limits."""


def limit(plan: Plan, seed: int) -> None:
    """Give a run its limits and deletions, or not, as its seed has it."""
    chance = Random(f"limits {plan.depth} {seed}")
    if chance.random() >= SHARE:
        return
    plan.deletions = chance.choice([0, 0, 1, 2, 4])
    for queue in QUEUES:
        most = chance.choice([2, 5, 12] if not plan.deletions else [5, 12, 40])
        plan.limits[queue] = {"qpid.max_count": most}
        stop = chance.choice([0, most // 2, None])
        if stop is not None:
            plan.limits[queue]["qpid.flow_stop_count"] = stop
    if plan.deletions:
        plan.alternate = True
        # Who sends to several queues at once does not make one again that is gone.
        plan.fan_out = plan.transactions = plan.moves = False
        plan.dedup = ()  # What a queue remembers of its messages goes with it.
    elif chance.random() < 0.5:
        plan.alternate = True
        plan.limits[REJECTED] = {"qpid.max_count": chance.choice([1, 3])}
        plan.moods = (0.05, 0.2, 0.02)


@contextmanager
def deletions(run: Any) -> Iterator[None]:
    """Let deletions happen in a run that has some."""
    if not run.plan.deletions:
        yield
        return
    chance = Random(f"deletions {run.plan.depth} {run.seed}")
    for _ in range(run.plan.deletions):
        run.world.at(
            chance.randrange(run.plan.length), run.administer, "delete", chance.choice(QUEUES)
        )

    class Noted(Deletion):
        """A deletion that is known to those who judge."""

        __slots__ = ()

        def __init__(self, queue: Any, *steps: Any) -> None:
            super().__init__(queue, *steps)
            run.facts.deleted(queue.name)

    former = broker_module.Deletion, deletion_module.PASSED_ON_A_TURN
    try:
        broker_module.Deletion = Noted  # type: ignore[misc]
        deletion_module.PASSED_ON_A_TURN = chance.randint(1, 3)
        yield
    finally:
        broker_module.Deletion, deletion_module.PASSED_ON_A_TURN = former  # type: ignore[misc]
