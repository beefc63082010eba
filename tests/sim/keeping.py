"""Keeping: in some runs with disks brokers have durable queues of their own, of level `none` and
`configuration`, which nobody else keeps for them.

What was accepted there is there whenever that broker is up: after crashes and power cuts, whoever
is primary, and whatever snapshots come; unless it was taken. What was taken, and whose taker was
told so, does not come back after that. Chance has a generator of its own, so that a seed without
such queues is the history that it would be without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from qpidha import node as node_module
from qpidha.broker.queues.queue import Queue
from qpidha.model.errors import RefusedRequest
from qpidha.model.event_codes import LOCAL_GONE
from qpidha.node import Node
from qpidha.store import local_log
from tests.sim.history import DURABLE_HEADER, Violation, key_of
from tests.sim.model_node import whole
from tests.sim.plan import KEPT, Plan

SHARE = 0.4
"""Of the runs with disks, so many have such queues."""
SLACK = 400
"""Bytes by which a local log may be longer than twice what is in it."""
OWN, KNOWN = f"{KEPT}own", f"{KEPT}known"
"""A queue that one broker has, and one of which all know."""
LEVELS = {OWN: "none", KNOWN: "configuration"}


@dataclass
class Kept:
    """What is known of one queue on one broker."""

    accepted: dict[str, None] = field(default_factory=dict)
    """What its sender was told is there."""
    taken: dict[str, None] = field(default_factory=dict)
    """What somebody took: it may be gone, or not."""
    settled: dict[str, None] = field(default_factory=dict)
    """What its taker was told is gone."""


class Errand:
    """Something that is done on a broker in a turn of its own."""

    def __init__(self, keeping: Keeping, machine: Any, queue: str, *, sends: bool) -> None:
        self.keeping = keeping
        self.machine = machine
        self.queue = queue
        self.sends = sends
        self.kept = keeping.of(machine, queue)
        self.key = ""

    def act(self, node: Node) -> None:
        """Send a message, or take the oldest; or have the queue made before."""
        broker = node.broker
        queue = broker.queues.get(self.queue)
        if queue is None:
            self._declare(node)
        elif not queue.is_replica and not queue.deleted:
            if self.sends:
                self._send(node)
            else:
                self._take(node, queue)

    def _declare(self, node: Node) -> None:
        level = LEVELS[self.queue]
        try:
            node.broker.declare_queue(self.queue, durable=True, arguments={"qpid.replicate": level})
        except RefusedRequest:
            pass  # A backup makes none that others are to know of.

    def _send(self, node: Node) -> None:
        self.key = self.keeping.next_key()
        text = f"<{self.key}>".encode()
        payload = DURABLE_HEADER + b"\x00\x53\x75\xb0" + len(text).to_bytes(4, "big") + text
        try:
            routed = node.broker.publish("", self.queue, payload, headers=dict)
        except RefusedRequest:
            return
        node.when_committed(routed.sequence, self, self.kept.accepted)

    def _take(self, node: Node, queue: Queue) -> None:
        message = next(iter(queue.ordering.waiting()), None)
        if message is None:
            return
        self.key = key_of(whole(message))
        self.kept.taken[self.key] = None
        queue.acquire(message)
        node.when_committed(queue.dequeue(message), self, self.kept.settled)

    def on_committed(self, item: dict[str, None]) -> None:
        """Its sender, or its taker, is told."""
        item[self.key] = None


class Keeping:
    """The queues of all brokers, as those know of them who use them."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.facts: dict[tuple[str, str], Kept] = {}
        """By broker and queue."""
        self.number = 0

    def of(self, machine: Any, queue: str) -> Kept:
        """Return what is known of a queue on the broker that is at a machine now."""
        return self.facts.setdefault((machine.system_id, queue), Kept())

    def next_key(self) -> str:
        """Name a message."""
        self.number += 1
        return f"kept.{self.number}"

    def send_on(self, machine: Any, queue: str, *, sends: bool) -> None:
        """Have something done on a broker, if it runs."""
        if machine.is_up and not self.run.healing:
            machine.put(Errand(self, machine, queue, sends=sends))

    def began(self, machine: Any) -> None:
        """A broker has read what it kept; it makes a checkpoint of that soon."""
        if machine.node.local is not None:
            machine.node.local._slack = SLACK
        for queue in LEVELS:
            self.judge(machine, queue)

    def told(self, machine: Any, effect: Any) -> None:
        """A broker tells that what it kept of a queue is gone: the cluster has that no more."""
        if effect.event_code == LOCAL_GONE and effect.fields.get("queue") == KNOWN:
            self.facts.pop((machine.system_id, KNOWN), None)

    def judge(self, machine: Any, queue: str) -> None:
        """Compare what is there with what is known."""
        kept = self.facts.get((machine.system_id, queue))
        node = machine.node
        if kept is None or node.local is None:
            return
        there: dict[str, None] = {}
        found = node.broker.queues.get(queue)
        for one in (found, *node.local._aside.values()):
            if one is not None and one.name == queue:
                for message in one.messages.values():
                    there[key_of(whole(message))] = None
        missing = [key for key in kept.accepted if key not in there and key not in kept.taken]
        if missing:
            raise Violation(f"lost: {machine.host} kept {', '.join(missing[:5])} on {queue}")
        again = [key for key in kept.settled if key in there]
        if again:
            raise Violation(f"back: {machine.host} has {', '.join(again[:5])} on {queue} again")


def draw_keeping(plan: Plan, seed: int) -> None:
    """Give a run such queues, or not, as its seed has it."""
    chance = Random(f"keeping {plan.depth} {seed}")
    if plan.disks and chance.random() < SHARE:
        plan.keeps = chance.choice([20, 60, 150])


@contextmanager
def keeping(run: Any) -> Iterator[None]:
    """Let brokers have such queues in a run that has them."""
    if not run.plan.keeps:
        yield
        return
    chance = Random(f"what is kept {run.plan.depth} {run.seed}")
    run.keeping = known = Keeping(run)
    for _ in range(run.plan.keeps):
        machine = chance.choice(run.cluster.machines)
        queue = chance.choice([OWN, OWN, KNOWN])
        if queue == KNOWN:
            machine = run.cluster.machines[0] if chance.random() < 0.5 else machine
        at = chance.randrange(run.plan.length)
        run.world.at(at, _do, known, machine, queue, chance.random() < 0.75)
    former = local_log.INTERVAL
    local_log.INTERVAL = run.plan.length // 20
    node_module.HANDLERS[Errand] = lambda node, errand: errand.act(node)
    try:
        yield
        for machine in run.cluster.machines:
            if machine.is_up:
                known.began(machine)
    finally:
        node_module.HANDLERS.pop(Errand, None)
        local_log.INTERVAL = former
        run.keeping = None


def _do(known: Keeping, machine: Any, queue: str, sends: bool) -> None:
    known.send_on(machine, queue, sends=sends)
