"""Workload: one run. A seed draws the cluster, its knobs, its clients and its faults; the run heals it and judges.

`Run` is what all parts of a world report to. First the cluster is made and serves; then clients work while faults happen;
then every fault ends, a manager who knows his trade gets everything ready again, the senders finish, and the receivers
take what is left. Checkers look at every turn, every promotion and the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.store import recovery
from qpidha.words.effects import Announce
from qpidha.words.settings import Settings
from qpidha.words.url import parse_url
from tests.sim import checkers, faults
from tests.sim.clients import ModelTransport, Receiver, Sender
from tests.sim.history import ACCEPTED, DOUBT, REFUSED, Facts, Violation, key_of
from tests.sim.machine import Cluster, Machine
from tests.sim.manager import Manager
from tests.sim.wire_client import WireTransport
from tests.sim.world import MILLISECOND, SECOND, World

DISKS = True
"""Whether runs may have disks: a node takes one."""
PATIENCE = 40 * SECOND
"""How long a healed cluster may take until everybody is ready."""
QUEUES = ("q0", "q1")
ALTERNATE, REJECTED = "dead", "rejected"
"""An exchange for rejected messages, and the queue behind it."""


@dataclass
class Plan:
    """What a seed draws."""

    depth: str
    brokers: int
    disks: bool
    settings: Settings
    durable: float
    fan_out: bool
    transactions: bool
    alternate: bool
    senders: int
    receivers: int
    window: int
    credit: int
    pause: int
    messages: int
    faults: int
    length: int
    padding: int
    chunk: int
    """Bytes of a part of a snapshot: small ones, so that a snapshot of a few messages has several."""
    moods: tuple[float, float, float]


def draw(world: World, depth: str) -> Plan:
    """Draw the knobs of a run."""
    rng = world.rng
    brokers = rng.choice([3, 3, 3, 3, 3, 3, 2, 4, 5])
    disks = DISKS and rng.random() < 0.5
    heartbeat = rng.choice([60, 100, 200, 500]) * MILLISECOND
    names = "abcdefgh"[:brokers]
    options: dict[str, Any] = {
        "ha_cluster": True, "ha_safety": "strict", "ha_replicate": "all",
        "ha_brokers_url": parse_url(",".join(f"{name}:5672" for name in names)),
        "ha_backup_timeout": rng.choice([100, 300, 1000, 3000]) * MILLISECOND, "link_heartbeat_interval": heartbeat,
        "link_maintenance_interval": rng.choice([50, 100, 300]) * MILLISECOND,
        "log_memory": rng.choice([1500, 6000, 1 << 20]), "link_credit": rng.choice([1, 10, 1000, 1000]),
        "session_max_unacked": rng.choice([1, 10, 5000]), "ha_flow_bytes": rng.choice([0, 0, 300, 2000]),
    }  # fmt: skip
    if disks:
        options |= {
            "data_dir": "simulated", "journal_segment_size": rng.choice([4096, 4096, 1 << 20]), "log_disk": rng.choice([0, 8192, 1 << 20]),
            "queue_memory": rng.choice([0, 1, 500, 1 << 20]),
        }  # fmt: skip
    return Plan(
        depth=depth, brokers=brokers, disks=disks, settings=Settings(**options), durable=rng.choice([0.0, 0.5, 1.0]) if disks else 0.0,
        fan_out=rng.random() < 0.2, transactions=depth == "model" and rng.random() < 0.3,
        alternate=rng.random() < 0.3, senders=rng.choice([1, 1, 2, 3]), receivers=rng.choice([0, 1, 1, 2]),
        window=rng.choice([1, 3, 10, 30]), credit=rng.choice([1, 1, 5, 50]), pause=rng.choice([2, 10, 40]) * MILLISECOND,
        messages=rng.choice([20, 40, 80]), faults=rng.choice([2, 5, 10, 15, 20]), length=rng.choice([1000, 2000, 4000]) * MILLISECOND,
        padding=rng.choice([0, 0, 30, 300]), chunk=rng.choice([100, 500, recovery.CHUNK]),
        moods=rng.choice([(0.0, 0.0, 0.0), (0.05, 0.05, 0.02)]),
    )  # fmt: skip


class Run:
    """One history."""

    def __init__(self, seed: int, *, depth: str, tracing: bool = False) -> None:
        self.seed = seed
        self.world = world = World(f"{depth} {seed}", tracing=tracing)
        self.plan = plan = draw(world, depth)
        self.facts = Facts()
        self.injected: dict[str, int] = {}
        self.promotions = 0
        self.cuts: dict[tuple[str, str], None] = {}
        self.last_states: dict[tuple[str, int], str] = {}
        self.primaries: dict[int, tuple[str, int]] = {}
        self.sets: list[InSyncSet] = []
        self.clients: list[Any] = []
        self.healing = False
        self.impatience = 0
        """How many brokers the manager promotes when they have just begun to catch up."""
        self.upon_acceptance: list[str] = []
        """Faults that happen when something is accepted next."""
        slow = min(20 * MILLISECOND, plan.settings.link_heartbeat_interval // 20)
        world.latency = world.rng.choice([world.latency, world.latency, (slow // 10, slow)])
        if depth == "model":
            world.silence = 2 * plan.settings.link_heartbeat_interval
        else:
            world.carries_bytes = True
            world.split_chunks = world.chance(0.3)
        self.cluster = Cluster(world, list("abcdefgh"[: plan.brokers]), plan.settings, depth=depth, watcher=self, disks=plan.disks)
        self.manager = Manager(world, self.cluster)
        self.make_transport = ModelTransport if depth == "model" else WireTransport
        world.note("world", f"{plan}")

    # -- the course of a run ----------------------------------------------------------------------

    def play(self) -> None:
        """Live through it all; raises Violation."""
        former, recovery.CHUNK = recovery.CHUNK, self.plan.chunk
        try:
            self.begin()
            faults.plan(self)
            self.world.run_for(self.plan.length)
            self.heal()
            self.finish()
        finally:
            recovery.CHUNK = former

    def begin(self) -> None:
        """Make the cluster and its clients."""
        world = self.world
        self.cluster.start()
        world.at(20 * MILLISECOND, self.manager.promote, self.cluster.machines[0])
        self.manager.start()
        self._wait(lambda: checkers.all_ready(self.cluster.machines), "the cluster does not begin")
        self._make_clients()
        for client in self.clients:
            world.at(world.between(0, 50 * MILLISECOND), client.connect)
        world.run_for(100 * MILLISECOND)

    def _make_clients(self) -> None:
        plan, world = self.plan, self.world
        options: dict[str, Any] = {"durable": plan.durable > 0} | ({"alternate": ALTERNATE} if plan.alternate else {})
        if plan.alternate:
            self.facts.alternates = dict.fromkeys(QUEUES, REJECTED)
        for number in range(plan.senders):
            spread = plan.fan_out and number == 0
            transactional = plan.transactions and number == plan.senders - 1 and not spread
            queue = world.rng.choice(QUEUES)
            address, queues = ("amq.fanout", QUEUES) if spread else (queue, QUEUES if transactional else (queue,))
            sender = Sender(
                world, self.cluster, self, f"s{number}", address, options,
                window=plan.window, pause=plan.pause, durable=world.chance(plan.durable), queues=queues,
            )  # fmt: skip
            sender.is_transactional = transactional
            sender.padding = b"." * plan.padding
            self.clients.append(sender)
            self._produce(sender, plan.messages)
        for number in range(plan.receivers):
            queue = QUEUES[number % 2]
            self.clients.append(self._receiver(f"r{number}", queue, options, plan.moods))

    def _produce(self, sender: Sender, left: int) -> None:
        """Have a sender work all the time while faults happen, in bursts."""
        if left > 0:
            burst = min(left, self.world.rng.randint(1, 5))
            sender.produce(burst)
            pause = 2 * self.plan.length * burst // self.plan.messages
            self.world.at(self.world.between(0, pause), self._produce, sender, left - burst)

    def _receiver(self, name: str, queue: str, options: dict[str, Any], moods: tuple[float, float, float]) -> Receiver:
        plan = self.plan
        return Receiver(self.world, self.cluster, self, name, queue, options, credit=plan.credit, think=plan.pause, moods=moods)

    def prepare(self, machine: Machine, then: Callable[[bool], None]) -> None:
        """Make exchanges and bindings on a broker, one after the other; queues are made on demand."""
        durable = self.plan.durable > 0
        requests: list[tuple[str, dict[str, Any]]] = []
        if self.plan.alternate:
            requests.append(("declare_exchange", {"name": ALTERNATE, "type": "fanout", "durable": durable}))
            requests.append(("declare_queue", {"name": REJECTED, "durable": durable}))
            requests.append(("bind", {"exchange": ALTERNATE, "queue": REJECTED}))
        if self.plan.fan_out or self.plan.transactions:
            alternate = ALTERNATE if self.plan.alternate else ""
            for queue in QUEUES:
                requests.append(("declare_queue", {"name": queue, "durable": durable, "alternate": alternate}))
                requests.append(("bind", {"exchange": "amq.fanout", "queue": queue}))

        def proceed(reply: dict[str, Any]) -> None:
            if "error" in reply:
                then(False)
            elif requests:
                machine.request(*requests.pop(0), proceed)
            else:
                then(True)

        proceed({})

    def heal(self) -> None:
        """End all faults, and get everybody ready."""
        world = self.world
        world.note("world", "heals")
        self.healing = True
        faults.end_all(self)
        for machine in self.cluster:
            machine.resume()
            machine.restart()
        deadline = world.now + PATIENCE
        self.manager.heal()
        while not checkers.all_ready(self.cluster.machines):
            if world.now > deadline:
                raise Violation(f"not ready: {PATIENCE // SECOND} s after the last fault the brokers are {self.states()}")
            world.run_for(100 * MILLISECOND)
            for machine in self.cluster:
                machine.restart()

    def finish(self) -> None:
        """Let the senders finish and the receivers take everything; then look whether anything is missing."""
        world, facts = self.world, self.facts
        senders = [client for client in self.clients if isinstance(client, Sender)]
        self._wait(lambda: all(sender.is_done for sender in senders), "the senders have not finished")
        for client in self.clients:
            client.stop()
        world.run_for(100 * MILLISECOND)
        self._judge_at_rest()
        options = {"durable": self.plan.durable > 0} | ({"alternate": ALTERNATE} if self.plan.alternate else {})
        last = [self._receiver(f"z{number}", queue, options, (0, 0, 0)) for number, queue in enumerate(QUEUES)]
        if self.plan.alternate:
            last.append(self._receiver("z9", REJECTED, {"durable": self.plan.durable > 0}, (0, 0, 0)))
        for receiver in last:
            receiver.connect()
        self.clients += last
        self._wait(self._is_empty, "the receivers do not get everything")
        world.run_for(200 * MILLISECOND)
        left = [duty.key for duty in facts.duties.values() if checkers.owed(duty)]
        if left:
            raise Violation(f"lost: nobody received {', '.join(left[:5])}")
        for receiver in last:
            receiver.stop()
        world.run_for(100 * MILLISECOND)
        self._judge_at_rest()

    def _judge_at_rest(self) -> None:
        self._wait(lambda: checkers.is_quiet(self.cluster.machines), "the brokers do not come to rest")
        if not checkers.all_ready(self.cluster.machines):
            raise Violation(f"not ready: without any fault the brokers came to be {self.states()}")
        primary = self.cluster.primaries()[0]
        present = checkers.contents(primary, shared=self._shared())
        checkers.no_loss(self.facts, present, f"{primary.host}, at rest")
        checkers.all_or_nothing(self.facts, present, primary.host)
        checkers.nothing_unexpected(self.facts, present, primary.host)
        checkers.order_kept(self.facts, present, primary.host)
        checkers.backups_equal(self.cluster.machines)

    def _is_empty(self) -> bool:
        primaries = self.cluster.primaries()
        return bool(primaries) and not any(queue.messages for queue in primaries[0].node.broker.queues.values())

    def _wait(self, condition: Any, otherwise: str) -> None:
        deadline = self.world.now + PATIENCE
        while not condition():
            if self.world.now > deadline:
                raise Violation(f"stuck: {otherwise}: {self.states()}")
            self.world.run_for(50 * MILLISECOND)

    def states(self) -> str:
        """Write down how the brokers are."""
        return ", ".join(f"{machine.host} {machine.state.value if machine.is_up else 'down'}" for machine in self.cluster)

    # -- what machines tell -----------------------------------------------------------------------

    def hosts(self) -> list[str]:
        """Name every host."""
        return [machine.host for machine in self.cluster] + [client.host for client in self.clients]

    def is_cut(self, source: str, target: str) -> bool:
        """Tell whether a way is cut on purpose, or a host at its end without power."""
        powerless = any(machine.without_power and machine.host in (source, target) for machine in self.cluster)
        return powerless or (source, target) in self.cuts

    def announced(self, machine: Machine, effect: Announce) -> None:
        """A broker said what happened."""
        self.world.note(machine.host, f"{effect.level}: {effect.text}")
        if "before" in effect.fields and "after" in effect.fields:
            who = (machine.host, machine.life)
            before, after = str(effect.fields["before"]), str(effect.fields["after"])
            if before != self.last_states.get(who, "standalone"):
                raise Violation(f"illegal change of {machine.host}: it was {self.last_states.get(who)}, not {before}")
            checkers.legal_change(before, after, machine.host)
            self.last_states[who] = after
            if after == "catchup" and self.impatience and not self.healing:
                self.impatience -= 1
                self.world.at(self.world.between(0, 4 * self.world.latency[1]), self.manager.promote, machine)

    def saved(self, machine: Machine) -> None:
        """A broker saved its state."""
        set_ = SavedState.decode(machine.saved).in_sync
        if not self.sets or set_ > self.sets[-1]:
            self.sets.append(set_)
        elif set_ < self.sets[-1] and set_ not in self.sets:
            self.sets = sorted([*self.sets, set_])

    def moved(self, machine: Machine) -> None:
        """Something is safe that was not, perhaps."""
        safe = machine.node.log.safe
        if safe > machine.safe:
            machine.safe = safe
            cluster = machine.node.cluster
            if cluster is not None and cluster.primary is not None:
                checkers.safe_is_everywhere(machine, cluster, safe)

    def look(self, machine: Machine) -> None:
        """A broker has made a turn."""
        self.moved(machine)
        primary = machine.node.cluster.primary if machine.node.cluster is not None else None
        if primary is not None:
            checkers.counted_was_said(machine, machine.node.cluster)
            epoch = primary.in_sync.epoch
            who = (machine.host, machine.life)
            if self.primaries.get(epoch) != who:
                checkers.one_primary_each_epoch(self.primaries, epoch, who)
                self._promoted(machine, epoch)
        machine.was_live = machine.is_live

    def _promoted(self, machine: Machine, epoch: int) -> None:
        """Judge a new primary."""
        self.promotions += 1
        self.world.note(machine.host, f"is primary of epoch {epoch}")
        present = checkers.contents(machine, shared=self._shared())
        others = [other for other in self.cluster if other is not machine and other.is_live]
        members = max((set_ for set_ in self.sets if set_.epoch < epoch), default=InSyncSet()).members
        if not machine.was_live and not any(other.system_id in members for other in others):
            checkers.nothing_taken(self.facts, present, others, machine.host)
            self.facts.total_failure(present, durable_too=not self.plan.disks)
        checkers.no_loss(self.facts, present, f"{machine.host}, promoted to epoch {epoch}")
        checkers.all_or_nothing(self.facts, present, machine.host)
        checkers.nothing_unexpected(self.facts, present, machine.host)
        checkers.order_kept(self.facts, present, machine.host)

    def _shared(self) -> str:
        return REJECTED if (self.plan.fan_out or self.plan.transactions) and self.plan.alternate else ""

    def stopped(self, machine: Machine) -> None:
        """A broker is down."""

    def broken(self, machine: Machine, reason: str) -> None:
        """A broker found itself to be wrong."""
        raise Violation(f"broken: {machine.host} stopped: {reason}")

    # -- what clients tell ------------------------------------------------------------------------

    def sent(self, sender: Sender, message: int, number: int) -> bytes:
        """A sender sends."""
        return self.facts.sent(sender, message, number, self.world.now)

    def accepted(self, sender: Sender, message: int, number: int) -> None:
        """A sender was told that its message is accepted."""
        transmission = self.facts.outcome(sender, message, number, ACCEPTED)
        key = f"{sender.host}.{message}.{number}"
        if self.world.tracing:
            self.world.note(sender.host, f"{key} is accepted")
        self.facts.first_acceptance.setdefault(sender.epoch, self.world.now)
        while self.upon_acceptance:
            self.world.at(self.world.between(0, MILLISECOND // 2), faults.happen, self, self.upon_acceptance.pop())
        if not all(self.facts.duties[queue, key].consumed for queue in sender.queues):
            checkers.one_acknowledging(self.facts, sender.epoch, transmission.when, key, str(sender.target and sender.target.host))

    def refused(self, sender: Sender, message: int, number: int) -> None:
        """A sender was told that its message was not taken."""
        self.facts.outcome(sender, message, number, REFUSED)

    def in_doubt(self, sender: Sender, message: int, number: int) -> None:
        """A sender will never know."""
        self.facts.outcome(sender, message, number, DOUBT)

    def delivered(self, receiver: Receiver, payload: bytes, count: int) -> str:
        """A receiver got a message."""
        key = key_of(payload)
        where = str(receiver.target and receiver.target.host)
        if self.world.tracing:
            self.world.note(receiver.host, f"gets {key} from {receiver.address} of {where}")
        checkers.expected_delivery(self.facts, receiver.address, key, where)
        checkers.settled_stays_settled(self.facts, receiver.address, key, receiver.epoch, where)
        self.facts.delivered += 1
        return key

    def consumed(self, receiver: Receiver, key: str) -> None:
        """A receiver is done with a message, and says so."""
        self.facts.consumed(receiver.address, key)

    def rejected(self, receiver: Receiver, key: str) -> None:
        """A receiver will not have a message."""
        self.facts.rejected(receiver.address, key)

    def settled(self, receiver: Receiver, key: str) -> None:
        """A receiver was told that its acceptance is safe."""
        self.facts.settled[receiver.address, key] = receiver.epoch, self.facts.transmissions[key].durable
