"""Crossing: in some runs with disks messages go from a durable queue of level `all` to one of level
`none`, and back, as dead letters and in transactions, and the primary loses power meanwhile.

What was accepted is in the end on one of both queues of some broker at least, unless it was taken.
It may be there twice. Chance has a generator of its own, so that a seed without this is the history
that it would be without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from qpidha import node as node_module
from qpidha.broker.transaction import Fate, Post, Retirement, Transaction
from qpidha.model.duration import MILLISECOND
from qpidha.model.errors import RefusedRequest
from qpidha.node import Node
from tests.sim.history import DURABLE_HEADER, Violation, key_of
from tests.sim.model_node import whole
from tests.sim.plan import KEPT, Plan

SHARE = 0.3
"""Of the runs with disks, so many have such queues."""
OURS, MINE = f"{KEPT}ours", f"{KEPT}mine"
"""A queue that all brokers have, and one of each broker; what dies on one goes to the other."""
LEVELS = {OURS: "all", MINE: "none"}
OTHER = {OURS: MINE, MINE: OURS}
DEEDS = ("send", "send", "send", "reject", "reject", "reject", "post", "take")


class Deed:
    """Something that is done on the primary in a turn of its own."""

    def __init__(self, known: Crossing, queue: str, name: str) -> None:
        self.known = known
        self.queue = queue
        self.name = name
        self.key = ""

    def act(self, node: Node) -> None:
        """Do it; or have the queues made before."""
        broker = node.broker
        if broker.passive:
            return
        for name, level in LEVELS.items():
            arguments = {
                "qpid.replicate": level,
                "x-dead-letter-exchange": f"/queues/{OTHER[name]}",
            }
            try:
                if broker.queues.get(name) is None:
                    broker.declare_queue(name, durable=True, arguments=arguments)
            except RefusedRequest:
                return  # Not every broker knows of dead letters yet.
        if self.name == "send":
            self._send(node)
        else:
            self._have_one_go(node)

    def _send(self, node: Node) -> None:
        self.key = self.known.next_key()
        text = f"<{self.key}>".encode()
        payload = DURABLE_HEADER + b"\x00\x53\x75\xb0" + len(text).to_bytes(4, "big") + text
        try:
            routed = node.broker.publish("", self.queue, payload, headers=dict)
        except RefusedRequest:
            return
        node.when_committed(routed.sequence, self, self.known.accepted)

    def _have_one_go(self, node: Node) -> None:
        broker = node.broker
        queue = broker.queues[self.queue]
        message = next(iter(queue.ordering.waiting()), None)
        if message is None or queue.is_replica:
            return
        self.key = key_of(whole(message))
        queue.acquire(message)
        self.known.count(self.name)
        if self.name == "reject":
            self.known.run.facts.rejections.add((self.queue, self.key))
            node.when_committed(queue.reject(message), self, self.known.gone)
        elif self.name == "take":
            self.known.taken[self.key] = None
            queue.dequeue(message)
        else:
            transaction = Transaction(broker)
            retirement = Retirement(transaction, queue, message, Fate.ACCEPT, settled=True)
            transaction.retire(retirement)
            transaction.post(Post(whole(message), 0, queue=broker.queues[OTHER[self.queue]]))
            try:
                node.when_committed(transaction.commit(), self, self.known.gone)
            except RefusedRequest:
                return

    def on_committed(self, item: dict[str, None]) -> None:
        """Who waits is told."""
        item[self.key] = None


class Crossing:
    """What is known of these queues."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.accepted: dict[str, None] = {}
        self.taken: dict[str, None] = {}
        self.gone: dict[str, None] = {}
        """What somebody was told to be on the other queue."""
        self.number = 0

    def next_key(self) -> str:
        """Name a message."""
        self.number += 1
        return f"crosses.{self.number}"

    def count(self, deed: str) -> None:
        """Note that something was done."""
        what = f"crossing {deed}"
        self.run.injected[what] = self.run.injected.get(what, 0) + 1

    def do(self, queue: str, deed: str) -> None:
        """Have something done on the primary."""
        for machine in self.run.cluster.primaries()[-1:]:
            if machine.is_up and not self.run.healing:
                machine.put(Deed(self, queue, deed))

    def cut_off(self) -> None:
        """Have the primary lose power for a moment."""
        for machine in self.run.cluster.primaries()[-1:]:
            if not self.run.healing:
                self.count("cut off")
                machine.crash(power=True, disk="drop")
                self.run.world.at(MILLISECOND, machine.restart)

    def judge(self) -> None:
        """See that nothing is lost."""
        machines = self.run.cluster.machines
        if self.run.lost_disks_after or not all(machine.is_up for machine in machines):
            return
        there = {
            key_of(whole(message))
            for machine in machines
            for name in LEVELS
            if (queue := machine.node.broker.queues.get(name)) is not None
            for message in queue.messages.values()
        }
        missing = [key for key in self.accepted if key not in there and key not in self.taken]
        if missing:
            raise Violation(
                f"lost: {', '.join(missing[:5])} of {len(missing)} between {OURS} and {MINE}"
            )


def draw_crossing(plan: Plan, seed: int) -> None:
    """Give a run such queues, or not, as its seed has it."""
    chance = Random(f"crossing {plan.depth} {seed}")
    if plan.disks and not plan.trusting and chance.random() < SHARE:
        plan.crosses = chance.choice([30, 100])


@contextmanager
def crossing(run: Any) -> Iterator[None]:
    """Have messages go from one log to the other in a run that has such queues."""
    if not run.plan.crosses:
        yield
        return
    chance = Random(f"what crosses {run.plan.depth} {run.seed}")
    known = Crossing(run)
    length = run.plan.length
    for _ in range(run.plan.crosses):
        at = chance.randrange(length)
        run.world.at(at, known.do, chance.choice([OURS, MINE]), chance.choice(DEEDS))
    for _ in range(chance.choice([0, 2, 6])):
        # It goes as a dead letter, and soon after the power does.
        at = chance.randrange(length)
        run.world.at(at, known.do, chance.choice([OURS, MINE]), chance.choice(["reject", "post"]))
        run.world.at(at + chance.randrange(5 * MILLISECOND), known.cut_off)
    node_module.HANDLERS[Deed] = lambda node, deed: deed.act(node)
    try:
        yield
        known.judge()
    finally:
        node_module.HANDLERS.pop(Deed, None)
