"""Groups: in some runs of the model depth the queues have message groups, and three receivers each,
of which some give many messages back.

Which of three groups a message is of is a matter of its key. Chance has a generator of its own
here, so that a seed without groups is the history that it would be without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from zlib import crc32

from qpidha.broker.queues.groups import Grouping
from tests.sim.history import Violation, key_of
from tests.sim.model_node import ModelLink
from tests.sim.plan import QUEUES, Plan

SHARE = 0.2
"""Of the runs, so many have groups."""
MOODS = ((0.3, 0.0, 0.1), (0.0, 0.05, 0.0))
"""The moods of the receivers that are there for the groups."""


def group(plan: Plan, seed: int) -> None:
    """Have the queues of a run have groups, or not, as its seed has it."""
    chance = Random(f"groups {plan.depth} {seed}")
    # Some brokers may not know of groups, and a receiver with groups selects nothing.
    if plan.depth == "model" and chance.random() < SHARE and not plan.mixed and not plan.selects:
        plan.grouped = QUEUES


def group_of(key: str) -> str:
    """Return the group of the message with a key."""
    return str(crc32(key.encode()) % 3)


@contextmanager
def groups(plan: Plan) -> Iterator[None]:
    """Let groups be read from keys, and see who gets them."""
    if not plan.grouped:
        yield
        return
    former = Grouping.read, ModelLink.deliver

    def deliver(self: Any, message: Any) -> None:
        if self.queue.name in plan.grouped:
            check_holder(self, message)
        former[1](self, message)

    try:
        Grouping.read = lambda self, payload: (group_of(key_of(payload)), False)  # type: ignore[method-assign]
        ModelLink.deliver = deliver  # type: ignore[method-assign]
        yield
    finally:
        Grouping.read, ModelLink.deliver = former  # type: ignore[method-assign]


def check_holder(link: Any, message: Any) -> None:
    """Nobody else has a message of this one's group."""
    key = key_of(message.body())
    for other in link.queue.consumers:
        for held in other.unsettled.values():
            # What was purged is nobody's.
            is_there = link.queue.messages.get(held.sequence) is held
            if other is not link and is_there and group_of(key_of(held.body())) == group_of(key):
                raise Violation(
                    f"group given to two: {link.host.name} gives {key} of {link.queue.name} to one "
                    f"receiver while another has {key_of(held.body())}"
                )
