"""Declaring: in some runs with disks an administrator declares and deletes queues while clients
work, durable ones and others, and now and then all brokers lose power when he is answered.

What he was told of a durable queue is so in the end: it is there, or it is gone. Chance has a
generator of its own, so that a seed without this is the history that it would be without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

from tests.sim.history import Violation
from tests.sim.world import MILLISECOND

SHARE = 0.2
"""Of the runs with disks, so many have an administrator who declares queues."""
DURABLE, OTHERS = ("declared.0", "declared.1"), ("declared.2", "declared.3")


class Declaring:
    """What an administrator was told of the queues that he declares."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.number = 0
        self.asked: dict[str, int] = {}
        """Queue -> what was asked for last."""
        self.told: dict[str, bool] = {}
        """Queue -> whether it is there, if that was answered."""

    def ask(self, queue: str, *, declares: bool, cuts_off: bool) -> None:
        """Have a queue made or deleted."""
        for machine in self.run.cluster.primaries()[-1:]:
            if machine.is_up and not self.run.healing:
                self.number += 1
                self.asked[queue] = self.number
                self.told.pop(queue, None)
                params: dict[str, Any] = {"name": queue}
                if declares:
                    params["durable"] = queue in DURABLE
                answered = partial(self.answered, queue, self.number, declares, cuts_off)
                method = "declare_queue" if declares else "delete_queue"
                machine.request(method, params, answered)

    def answered(
        self, queue: str, number: int, declares: bool, cuts_off: bool, reply: dict[str, Any]
    ) -> None:
        """He is told, unless he has asked for something else since."""
        if "result" in reply and self.asked[queue] == number:
            self.told[queue] = declares
            if cuts_off and not self.run.healing:
                self.run.world.at(0, self.cut_off)

    def cut_off(self) -> None:
        """Have all brokers lose power for a moment."""
        run = self.run
        if run.healing or run.is_spared:
            return
        run.injected["declared and cut off"] = run.injected.get("declared and cut off", 0) + 1
        for machine in run.cluster:
            machine.crash(power=True, disk="drop")
            run.world.at(MILLISECOND, machine.restart)

    def judge(self) -> None:
        """See that durable queues are as he was told."""
        if self.run.lost_disks_after:
            return
        for machine in self.run.cluster.primaries()[-1:]:
            there = machine.node.broker.queues
            for queue in DURABLE:
                if self.told.get(queue, queue in there) != (queue in there):
                    what = "declared" if self.told[queue] else "deleted"
                    raise Violation(f"{what} in vain: queue {queue} on {machine.host}")


def draw_declaring(run: Any) -> Random | None:
    """Return the chance of a run in which queues are declared, as its seed has it."""
    chance = Random(f"declaring {run.plan.depth} {run.seed}")
    plan = run.plan
    return chance if plan.disks and not plan.trusting and chance.random() < SHARE else None


@contextmanager
def declaring(run: Any) -> Iterator[None]:
    """Have queues come and go in a run that has some."""
    chance = draw_declaring(run)
    if chance is None:
        yield
        return
    known = Declaring(run)
    for _ in range(chance.choice([10, 40])):
        run.world.at(
            chance.randrange(run.plan.length),
            partial(
                known.ask,
                chance.choice([*DURABLE, *OTHERS]),
                declares=chance.random() < 0.6,
                cuts_off=chance.random() < 0.3,
            ),
        )
    yield
    known.judge()
