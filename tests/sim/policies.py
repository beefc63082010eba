"""Policies: in some runs an administrator sets and clears policies while clients work.

What they say is too large to refuse anything, so that only the brokers can differ in it: what a
queue is made of is compared when nothing happens. Chance has a generator of its own here, so that a
seed without policies is the history that it would be without this.
"""

from __future__ import annotations

from random import Random
from typing import Any

SHARE = 0.25
"""Of the runs, so many have policies."""
NAMES = ("a", "b", "c")


def draw_policies(run: Any) -> Random | None:
    """Return the chance of a run that has policies, as its seed has it."""
    chance = Random(f"policies {run.plan.depth} {run.seed}")
    return chance if chance.random() < SHARE else None


def set_policies(run: Any) -> None:
    """Have policies set and cleared in a run that has some."""
    chance = draw_policies(run)
    if chance is None:
        return
    for number in range(chance.randint(2, 10)):
        kind = chance.choice(["", "", "operator_"])
        params: dict[str, Any] = {"name": chance.choice(NAMES)}
        method = f"clear_{kind}policy"
        if chance.random() < 0.75:
            method = f"set_{kind}policy"
            params |= {
                "pattern": chance.choice([".*", "^q", "^(?!q0)"]),
                "definition": {
                    "max-length-bytes": 10**9 + number,
                    **chance.choice([{}, {"qpid.alert_count": 10**6 + number}]),
                },
                "priority": chance.randint(0, 1),
                "merge": chance.random() < 0.3,
            }
        run.world.at(chance.randrange(run.plan.length), ask, run, method, params)


def ask(run: Any, method: str, params: dict[str, Any]) -> None:
    """Ask a primary; whatever it answers will do."""
    for machine in run.cluster.primaries()[-1:]:
        if not run.healing:
            run.world.note("admin", f"{method} {params} on {machine.host}")
            run.injected[method] = run.injected.get(method, 0) + 1
            machine.request(method, params, lambda reply: None)
