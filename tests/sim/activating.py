"""Activating: in some runs the queues have a single active consumer each, and fencing tokens.

At the model depth three receivers more want each queue, one of them with a higher priority, so that
it takes over while another is active. While one receiver has messages no other gets any; and of two
messages that a queue gives the later one has the higher token, over all failovers, but for what a
former primary gives that does not know yet that it is one: its tokens are lower than those of its
successor. Chance has a generator of its own here, so that a seed without single active consumers is
the history that it would be without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from tests.sim.history import Violation, key_of
from tests.sim.model_node import ModelLink
from tests.sim.plan import QUEUES, Plan

SHARE = 0.2
"""Of the runs in which all brokers are of one version, so many have such queues."""
WANT = ((0, (0.0, 0.0, 0.0)), (0, (0.3, 0.0, 0.1)), (1, (0.1, 0.0, 0.0)))
"""Priority and moods of the receivers that are there for this."""


def activate(plan: Plan, seed: int) -> None:
    """Have the queues of a run have single active consumers, or not, as its seed has it."""
    chance = Random(f"single active {plan.depth} {seed}")
    # Groups are for several consumers. What the active one does not select, nobody gets.
    if chance.random() < SHARE and not (plan.mixed or plan.grouped or plan.selects):
        plan.single = QUEUES


@contextmanager
def single_actives(plan: Plan) -> Iterator[None]:
    """See who gets messages, and with which tokens."""
    if not plan.single:
        yield
        return
    former = ModelLink.deliver
    last: dict[str, tuple[int, int]] = {}

    def deliver(self: Any, message: Any) -> None:
        if self.queue.name not in plan.single or self.browse:
            former(self, message)
            return
        check_alone(self, message)
        former(self, message)
        check_token(last, self.queue.name, self.token, self.host.name)

    try:
        ModelLink.deliver = deliver  # type: ignore[method-assign]
        yield
    finally:
        ModelLink.deliver = former  # type: ignore[method-assign]


def check_alone(link: Any, message: Any) -> None:
    """Whoever gets a message was told that he is the active one, and nobody else was, or has any
    message.
    """
    key, queue = key_of(message.body()), link.queue
    if not link.is_active:
        raise Violation(f"two active: {link.host.name} gives {key} of {queue.name} to one of them")
    for other in queue.consumers:
        held = [
            key_of(each.body())
            for each in other.unsettled.values()
            # What left in another way is nobody's.
            if queue.messages.get(each.sequence) is each
        ]
        if other is not link and (other.is_active or held):
            raise Violation(
                f"two active: {link.host.name} gives {key} of {queue.name} to one receiver, and "
                f"another {'has ' + ', '.join(held) if held else 'is active'}"
            )


def check_token(
    last: dict[str, tuple[int, int]], queue: str, token: tuple[int, int], where: str
) -> None:
    """What a queue gives has a higher token than all before it, unless its primary is a former
    one.
    """
    before = last.get(queue, (0, 0))
    if token[0] == before[0] and token <= before:
        raise Violation(f"fencing: {where} gives a message of {queue} token {token} after {before}")
    last[queue] = max(before, token)


def check_fenced(run: Any, receiver: Any, token: tuple[int, int]) -> None:
    """A receiver gets a token that nobody had, higher than those before it on its connection."""
    known = run.tokens.setdefault((receiver.address, token), receiver.host)
    if token <= receiver.last_token or known is not receiver.host:
        raise Violation(
            f"fencing: {receiver.host} got token {token} of {receiver.address}, after "
            f"{receiver.last_token}, and {known} had it first"
        )
    receiver.last_token = token
