"""Gathering: in some runs every message waits to be consumed for as long as backups take to confirm
one, as if all were consumed so soon: faults come between what a client did and what others hear.

Chance has a generator of its own here, so that a seed without it is the history that it would be
without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from qpidha.ha import gathering as gathering_module

SHARE = 0.25
"""Of the runs, so many gather."""


def gathers(run: Any) -> bool:
    """Tell whether messages wait in a run."""
    return Random(f"gathering {run.plan.depth} {run.seed}").random() < SHARE


@contextmanager
def gathering(run: Any) -> Iterator[None]:
    """Let messages wait in a run in which they do."""
    if not gathers(run):
        yield
        return
    former = gathering_module.PROBES, gathering_module.SAMPLE, gathering_module.SHARE
    try:
        gathering_module.PROBES, gathering_module.SAMPLE, gathering_module.SHARE = 1, 1, 0
        yield
    finally:
        gathering_module.PROBES, gathering_module.SAMPLE, gathering_module.SHARE = former
