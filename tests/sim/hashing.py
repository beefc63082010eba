"""Hashing: in some runs a sender sends to a consistent hash exchange, which spreads its messages
over the queues by one of their properties.

A value of the property falls to one queue as long as the exchange has the same bindings, whichever
broker is asked, and each message is on one queue. In some of these runs the bindings of the last
queue come and go meanwhile. Chance has a generator of its own here, so that a seed without such an
exchange is the history that it would be without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

from qpidha.broker.exchange import CONSISTENT_HASH, HASH_HEADER, ConsistentHashExchange
from tests.sim.history import Violation
from tests.sim.plan import HASHED, QUEUES, Plan
from tests.sim.policies import ask
from tests.sim.writing import VALUE

if TYPE_CHECKING:
    from tests.sim.checkers import Contents
    from tests.sim.history import Facts

SHARE = 0.25
"""Of the runs in which all brokers are of one version, so many have such an exchange."""
BUCKETS = 20
"""Values that are spread."""
WEIGHTS = ("1", "2", "5")


def draw_hashing(plan: Plan, seed: int) -> None:
    """Have a sender of a run send to such an exchange, or not, as its seed has it."""
    chance = Random(f"hashing {plan.depth} {seed}")
    # One that finds no queue would be told that its message is for nobody; and a value is of one
    # queue, where last values are.
    is_apart = plan.mixed or plan.fan_out or plan.deletions or plan.valued
    if chance.random() < SHARE and not is_apart:
        plan.hashes = True
        plan.rebinds = chance.choice([0, 0, 3, 10])


def bucket_of(key: str) -> str:
    """Say what is hashed of the message with a key."""
    return f"b{crc32(key.encode()) % BUCKETS}"


def way(durable: bool) -> list[tuple[str, dict[str, Any]]]:
    """Return the requests that make the exchange, but for the bindings."""
    arguments = {HASH_HEADER: VALUE}
    return [
        (
            "declare_exchange",
            {"name": HASHED, "type": CONSISTENT_HASH, "durable": durable, "arguments": arguments},
        ),
        *(("bind", {"exchange": HASHED, "queue": queue, "key": WEIGHTS[0]}) for queue in QUEUES),
    ]


@contextmanager
def hashing(run: Any) -> Iterator[None]:
    """See where values fall, and let bindings change, in a run that has such an exchange."""
    plan = run.plan
    if not plan.hashes:
        yield
        return
    chance = Random(f"bindings {plan.depth} {run.seed}")
    for _ in range(plan.rebinds):
        params = {"exchange": HASHED, "queue": QUEUES[-1], "key": chance.choice(WEIGHTS)}
        at = chance.randrange(plan.length)
        run.world.at(at, ask, run, chance.choice(["bind", "unbind"]), params)
    former = ConsistentHashExchange.route
    known: dict[Any, str] = {}

    def route(self: Any, key: str, headers: Any, *more: Any) -> list[Any]:
        found = former(self, key, headers, *more)
        bindings = sorted((each.name, weight) for each, weight, _ in self.bindings())
        names = [each.name for each in found]
        place = known.setdefault((*bindings, headers().get(VALUE)), *names)
        if names != [place] or place not in [name for name, _ in bindings]:
            raise Violation(
                f"spread: with the bindings {bindings} value {headers().get(VALUE)} falls to "
                f"{place}, and then to {', '.join(names)}"
            )
        return found

    try:
        ConsistentHashExchange.route = route  # type: ignore[method-assign]
        yield
    finally:
        ConsistentHashExchange.route = former  # type: ignore[method-assign]


def hashed_once(facts: Facts, present: Contents, where: str) -> None:
    """What is spread over queues is on one of them."""
    for key in facts.hashed:
        places = [queue for queue in QUEUES if key in present.get(queue, ())]
        if len(places) > 1:
            raise Violation(f"spread: {where} has {key} on {' and '.join(places)}")
