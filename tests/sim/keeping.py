"""Keeping: in some runs with disks brokers have durable queues of their own, of level `none` and
`configuration`, which nobody else keeps for them. In some of these a policy raises one of level
`configuration` to `all` meanwhile, or has one change its level back and forth.

What was accepted there is there whenever that broker is up: after crashes and power cuts, whoever
is primary, and whatever snapshots come; unless it was taken. What was taken, and whose taker was
told so, does not come back after that. Of what changes its level, what was accepted is in the end
on some broker, but for as much as brokers told to be gone. Chance has a generator of its own, so
that a seed without such queues is the history that it would be without this.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from qpidha import node as node_module
from qpidha.broker.queues import level as level_module
from qpidha.broker.queues.queue import Queue
from qpidha.model.duration import MILLISECOND
from qpidha.model.errors import RefusedRequest
from qpidha.model.event_codes import LOCAL_GONE
from qpidha.model.replication_level import ALL, CONFIGURATION
from qpidha.node import Node
from qpidha.store import local_log
from tests.sim.history import DURABLE_HEADER, Violation, key_of
from tests.sim.model_node import whole
from tests.sim.plan import KEPT, Plan
from tests.sim.policies import ask

SHARE = 0.4
"""Of the runs with disks, so many have such queues."""
SLACK = 400
"""Bytes by which a local log may be longer than twice what is in it."""
OWN, KNOWN = f"{KEPT}own", f"{KEPT}known"
"""A queue that one broker has, and one of which all know."""
RISING = f"{KEPT}rising"
"""One that is raised, in some of these runs."""
RISES = 0.6
"""Of the runs with such queues, so many have that one."""
SWINGING = f"{KEPT}swinging"
"""One whose level changes back and forth, in some of these runs."""
SWINGS = 0.6
"""Of the runs with such queues, so many have that one."""
LEVELS = {OWN: "none", KNOWN: "configuration", RISING: ""}
POLICY, SWING = "rise", "swing"
POLICIES = {RISING: POLICY, SWINGING: SWING}


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
        level, policy = LEVELS.get(self.queue, ""), POLICIES.get(self.queue, "")
        if policy and node.broker.policies.get(policy, is_operator=False) is None:
            return  # It would have the level that brokers have by themselves.
        arguments = {"qpid.replicate": level} if level else {}
        try:
            node.broker.declare_queue(self.queue, durable=True, arguments=arguments)
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
        is_logged = node.broker.queues[self.queue].logged
        if self.queue == SWINGING or not is_logged:  # Else it is the cluster's from the first.
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
        self.taken: dict[str, None] = {}
        """Of what is raised, what was taken anywhere."""
        self.swinging = Kept()
        self.gone = 0
        """How many messages of what changes its level back and forth were told to be gone."""
        self.was_cut_off = False
        self.number = 0

    def of(self, machine: Any, queue: str) -> Kept:
        """Return what is known of a queue on the broker that is at a machine now."""
        if queue == SWINGING:
            return self.swinging
        who = (machine.system_id, queue)
        if who not in self.facts:
            self.facts[who] = Kept(taken=self.taken) if queue == RISING else Kept()
        return self.facts[who]

    def next_key(self) -> str:
        """Name a message."""
        self.number += 1
        return f"kept.{self.number}"

    def send_on(self, machine: Any, queue: str, *, sends: bool) -> None:
        """Have something done on a broker, if it runs."""
        if machine.is_up and not self.run.healing:
            machine.put(Errand(self, machine, queue, sends=sends))

    def began(self, machine: Any, *, at_end: bool = False) -> None:
        """A broker has read what it kept; it makes a checkpoint of that soon."""
        if machine.node.local is not None:
            machine.node.local._slack = SLACK
        for queue in LEVELS:
            self.judge(machine, queue, at_end=at_end)

    def told(self, machine: Any, effect: Any) -> None:
        """A broker tells that what it kept of a queue is gone: the cluster has that no more, or
        another broker ended what this one began.
        """
        name = effect.fields.get("queue")
        if name == SWINGING:
            self._swung(effect)
            return
        if effect.event_code == LOCAL_GONE and name in (KNOWN, RISING):
            kept = self.facts.pop((machine.system_id, name), None)
            if kept is not None and name == RISING:
                # Of these, what the log got may still be there; nothing more is known of it.
                self.run.injected["rise cut"] = self.run.injected.get("rise cut", 0) + 1
        elif name == RISING and effect.fields.get("replicate") == "configuration":
            for who in [who for who in self.facts if who[1] == RISING]:
                del self.facts[who]  # The primary of now has some of each.
        elif name == RISING and effect.fields.get("replicate") == "all":
            self.run.injected["rise"] = self.run.injected.get("rise", 0) + 1

    def _swung(self, effect: Any) -> None:
        if effect.event_code == LOCAL_GONE:
            self.gone += effect.fields["messages"]
        elif "replicate" in effect.fields:
            what = f"swing {effect.fields['replicate']}"
            self.run.injected[what] = self.run.injected.get(what, 0) + 1

    def judge_swinging(self) -> None:
        """See that nothing of it is gone that was not told of, and that nothing came back."""
        run = self.run
        if run.lost_disks_after or not all(machine.is_up for machine in run.cluster.machines):
            return
        there: set[str] = set()
        for machine in run.cluster.machines:
            node = machine.node
            queue = node.broker.queues.get(SWINGING)
            live = [] if queue is None else [key_of(whole(m)) for m in queue.messages.values()]
            again = self.swinging.settled.keys() & set(live)
            if again:
                raise Violation(f"back: {machine.host} has {sorted(again)[:5]} on {SWINGING} again")
            there.update(live)
            for aside in node.local._aside.values():
                if aside.name == SWINGING:
                    there.update(key_of(whole(message)) for message in aside.messages.values())
        kept = self.swinging
        missing = [key for key in kept.accepted if key not in there and key not in kept.taken]
        if len(missing) > self.gone:
            raise Violation(
                f"lost: {', '.join(missing[:5])} of {len(missing)} on {SWINGING}, and {self.gone} "
                "were told to be gone"
            )

    def judge(self, machine: Any, queue: str, *, at_end: bool) -> None:
        """Compare what is there with what is known. What is raised is known to be there while it is
        on its way, and in the end; others may have taken it, and this broker not know yet.
        """
        if queue == RISING and not at_end:
            here = machine.node.broker.queues.get(queue)
            if here is None or here.options.replicate == ALL:
                return
        kept = self.facts.get((machine.system_id, queue))
        node = machine.node
        if kept is None or node.local is None:
            return
        there: dict[str, bool] = {}
        found = node.broker.queues.get(queue)
        for one in (found, *node.local._aside.values()):
            if one is not None and one.name == queue:
                for message in one.messages.values():
                    there[key_of(whole(message))] = one is not found
        missing = [key for key in kept.accepted if key not in there and key not in kept.taken]
        if missing:
            raise Violation(f"lost: {machine.host} kept {', '.join(missing[:5])} on {queue}")
        # Of what the cluster's log has, a broker that was restarted does not know all yet.
        is_early = queue == RISING and not at_end
        again = [key for key in kept.settled if key in there and (there[key] or not is_early)]
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
    if chance.random() < RISES:
        _have_one_rise(run, known, chance)
    if Random(f"swings {run.plan.depth} {run.seed}").random() < SWINGS:
        _have_one_swing(run, known)
    former = local_log.INTERVAL
    slices = level_module.RECORDED_A_TURN, level_module.SPARE
    if not run.plan.levels:
        level_module.RECORDED_A_TURN, level_module.SPARE = 1, chance.choice([1, 5, 100])
    local_log.INTERVAL = run.plan.length // 20
    node_module.HANDLERS[Errand] = lambda node, errand: errand.act(node)
    try:
        yield
        for machine in run.cluster.machines:
            if machine.is_up:
                known.began(machine, at_end=True)
        known.judge_swinging()
    finally:
        level_module.RECORDED_A_TURN, level_module.SPARE = slices
        node_module.HANDLERS.pop(Errand, None)
        local_log.INTERVAL = former
        run.keeping = None


def _have_one_rise(run: Any, known: Keeping, chance: Random) -> None:
    """Have a queue filled that one broker keeps for itself, and raised a while later."""
    length = run.plan.length
    rises = chance.randrange(length // 4, length)
    for number in range(8):
        at = rises * number // 6
        level = ALL if number >= 6 else CONFIGURATION
        params: dict[str, Any] = {
            "name": POLICY,
            "pattern": f"^{RISING}$",
            "definition": {"replicate": level},
            "merge": True,
        }
        run.world.at(min(at, length), ask, run, "set_policy", params)
    for _ in range(run.plan.keeps):
        run.world.at(chance.randrange(length), _on_primary, run, known, chance.random() < 0.6)
    for number in range(chance.choice([0, 100])):
        run.world.at(rises + number * length // 200, _cut_off, run, known)


def _have_one_swing(run: Any, known: Keeping) -> None:
    """Have a queue change its level back and forth while messages come and go, and the primary lose
    power in between.
    """
    chance = Random(f"how it swings {run.plan.depth} {run.seed}")
    length = run.plan.length
    times = chance.choice([3, 8, 20])
    for number in range(times):
        params: dict[str, Any] = {
            "name": SWING,
            "pattern": f"^{SWINGING}$",
            "definition": {"replicate": chance.choice(["none", CONFIGURATION, ALL, ALL])},
            "merge": True,
        }
        run.world.at(length * number // times, ask, run, "set_policy", params)
    for _ in range(3 * run.plan.keeps):
        sends = chance.random() < 0.7
        run.world.at(chance.randrange(length), _on_primary, run, known, sends, SWINGING)
    for _ in range(chance.choice([0, 0, 1, 3])):
        run.world.at(chance.randrange(length), _lose_power, run, chance.random() < 0.5)


def _lose_power(run: Any, briefly: bool) -> None:
    for machine in run.cluster.primaries()[-1:]:
        if not run.healing:
            run.injected["primary cut off"] = run.injected.get("primary cut off", 0) + 1
            machine.crash(power=True, disk="drop")
            run.world.at(MILLISECOND if briefly else run.plan.length // 10, machine.restart)


def _on_primary(run: Any, known: Keeping, sends: bool, queue: str = RISING) -> None:
    for machine in run.cluster.primaries()[-1:]:
        known.send_on(machine, queue, sends=sends)


def _cut_off(run: Any, known: Keeping) -> None:
    """Have the primary lose power while it raises the queue, once in a run."""
    for machine in run.cluster.primaries()[-1:]:
        queue = machine.node.broker.queues.get(RISING)
        is_rising = queue is not None and queue.unrecorded[0] > 0
        if is_rising and not (known.was_cut_off or run.healing):
            known.was_cut_off = True
            run.injected["rise cut off"] = run.injected.get("rise cut off", 0) + 1
            machine.crash(power=True, disk="drop")
            run.world.at(MILLISECOND, machine.restart)


def _do(known: Keeping, machine: Any, queue: str, sends: bool) -> None:
    known.send_on(machine, queue, sends=sends)
