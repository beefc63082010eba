"""Linking: in some runs an administrator declares and deletes links to other brokers, and routes
over them, while clients work.

There is nobody at the other ends: what goes over routes is played in `tests/federation`. Here all
brokers must have the same links and routes, whatever befalls them. Chance has a generator of its
own, so that a seed without links is the history that it would be without this.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.sim.plan import QUEUES
from tests.sim.policies import ask

SHARE = 0.25
"""Of the runs, so many have links."""
NAMES = ("l", "m")
NOWHERE = "nowhere:5672"


def draw_links(run: Any) -> Random | None:
    """Return the chance of a run that has links, as its seed has it."""
    chance = Random(f"links {run.plan.depth} {run.seed}")
    return chance if chance.random() < SHARE else None


def declare_links(run: Any) -> None:
    """Have links and routes come and go in a run that has some."""
    chance = draw_links(run)
    if chance is None:
        return
    for link in NAMES:
        params = {"name": link, "addresses": NOWHERE}
        run.world.at(chance.randrange(run.plan.length // 10), ask, run, "declare_link", params)
    for number in range(chance.randint(5, 15)):
        name, link = f"r{number % 4}", chance.choice(NAMES)
        method, params = chance.choice(
            [
                ("declare_link", {"name": link, "addresses": NOWHERE, "username": str(number)}),
                ("declare_link", {"name": link, "addresses": NOWHERE, "username": str(number)}),
                ("declare_route", {"name": name, "link": link, **_ends(chance)}),
                ("declare_route", {"name": name, "link": link, **_ends(chance)}),
                ("declare_route", {"name": name, "link": link, **_ends(chance)}),
                ("delete_route", {"name": name}),
                ("delete_link", {"name": link, "with_routes": chance.random() < 0.3}),
            ]
        )
        run.world.at(chance.randrange(run.plan.length), ask, run, method, params)


def _ends(chance: Random) -> dict[str, Any]:
    if chance.random() < 0.3:
        ends = {"source": "amq.topic", "destination": "there", "kind": "exchange"}
        return {**ends, "direction": "push", "key": "nothing.comes"}
    return {"source": "there", "destination": chance.choice(QUEUES)}
