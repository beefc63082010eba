"""Moves: in some runs an administrator moves messages from one queue to another and back, and sends
dead letters back to where they died, while clients work and faults happen.

A step of a move takes one to three messages here, so that faults come between its steps. Whatever
fails, each message is in one place of both. What may have been moved to a queue comes in any order
there. Chance has a generator of its own here, so that a seed without moves is the history that it
would be without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from qpidha.broker import broker as broker_module
from qpidha.broker.queues import move as move_module
from qpidha.broker.queues.move import Move
from qpidha.broker.queues.requeue import Requeue
from tests.sim.plan import QUEUES, REJECTED, SHIFTED, Plan
from tests.sim.policies import ask

SHARE = 0.25
"""Of the runs, so many have moves."""


def shift(plan: Plan, seed: int) -> None:
    """Give a run its moves, or not, as its seed has it."""
    chance = Random(f"moves {plan.depth} {seed}")
    if chance.random() < SHARE:
        plan.shifts = chance.randint(2, 10)


@contextmanager
def moves(run: Any) -> Iterator[None]:
    """Let moves happen in a run that has some."""
    plan = run.plan
    if not plan.shifts:
        yield
        return
    chance = Random(f"moves meanwhile {plan.depth} {run.seed}")
    for _ in range(plan.shifts):
        method, params = "move_messages", {"name": QUEUES[-1], "target": SHIFTED}
        roll = chance.random()
        if roll < 0.3:
            params = {"name": SHIFTED, "target": QUEUES[-1]}
        elif roll < 0.7 and plan.dies:
            method, params = "requeue_messages", {"name": REJECTED}
        params |= {"count": chance.choice([0, 1, 5])}
        run.world.at(chance.randrange(plan.length), ask, run, method, params)
    former = broker_module.Move, broker_module.Requeue, move_module.PASSED_ON_A_TURN

    class Noted(Move):
        """A move that is known to those who judge."""

        __slots__ = ()

        def __init__(self, queue: Any, target: Any, most: int) -> None:
            super().__init__(queue, target, most)
            run.facts.shifted(queue.name, target.name)

    class NotedRequeue(Requeue):
        """One of dead letters."""

        __slots__ = ()
        effort = 1

        def __init__(self, queue: Any, *more: Any) -> None:
            super().__init__(queue, *more)
            run.facts.shifted(queue.name, "")

    try:
        broker_module.Move, broker_module.Requeue = Noted, NotedRequeue  # type: ignore[misc]
        move_module.PASSED_ON_A_TURN = chance.randint(1, 3)
        yield
    finally:
        broker_module.Move, broker_module.Requeue = former[:2]  # type: ignore[misc]
        move_module.PASSED_ON_A_TURN = former[2]
