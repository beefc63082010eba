"""Levels: in some runs policies change the replicate level of queues while clients work.

What is accepted while a queue is not on every broker goes with its primary, so it need not be
anywhere: it is adrift. What is on a queue that has become `all` is to be kept from then on, as is
all that is accepted later. One to three messages come into the log in a turn here, so that
faults come between. Chance has a generator of its own, so that a seed without levels is the history
that it would be without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from qpidha.broker.queues import level as level_module
from qpidha.model.replication_level import ALL
from tests.sim.checkers import contents
from tests.sim.plan import QUEUES, Plan
from tests.sim.policies import ask

SHARE = 0.2
"""Of the runs, so many have levels."""


def draw_levels(plan: Plan, seed: int) -> None:
    """Give a run its changes of levels, or not, as its seed has it."""
    chance = Random(f"levels {plan.depth} {seed}")
    if chance.random() < SHARE and not (plan.deletions or plan.dies or plan.moves):
        plan.levels = chance.randint(4, 16)


@contextmanager
def levels(run: Any) -> Iterator[None]:
    """Let levels change in a run that has such."""
    if not run.plan.levels:
        yield
        return
    chance = Random(f"changes of levels {run.plan.depth} {run.seed}")
    for number in range(run.plan.levels):
        level = ALL if number % 2 else chance.choice(["none", "configuration"])
        params: dict[str, Any] = {
            "name": "level",
            "pattern": "^q",
            "definition": {"replicate": level},
            "merge": True,
        }
        method = "set_policy"
        if number % 2 and chance.random() < 0.2:
            method, params = "clear_policy", {"name": "level"}
        at = run.plan.length * number // run.plan.levels
        run.world.at(at, ask, run, method, params)
    former = level_module.RECORDED_A_TURN, level_module.SPARE
    try:
        level_module.RECORDED_A_TURN = chance.randint(1, 3)
        level_module.SPARE = chance.choice([1, 5, 100])
        yield
    finally:
        level_module.RECORDED_A_TURN, level_module.SPARE = former


def drift(run: Any, machine: Any, epoch: int) -> None:
    """Note what a primary need not keep, and what it has to from now on."""
    broker = machine.node.broker
    for name in QUEUES:
        queue = broker.queues.get(name)
        is_kept = (
            queue is not None
            and queue.options.replicate == ALL
            and queue not in broker.levels.changing
        )
        place = (name, machine.host, machine.life, epoch)
        was_kept = run.kept.get(place, True)
        run.kept[place] = is_kept
        if not is_kept:
            for duty in run.facts.duties.values():
                duty.adrift = duty.adrift or name in duty.places
        elif not was_kept and epoch >= max(run.primaries, default=0):
            run.injected["level all"] = run.injected.get("level all", 0) + 1
            for key in contents(machine, shared="rejected").get(name, ()):
                duty = run.facts.duties.get((name, key))
                if duty is not None:
                    duty.adrift = False
