"""A stage with two sites, each a broker alone or a cluster: on one is a queue, on the other its
replica. Everything is simulated but the nodes; an oracle knows what was decided at the source.

The oracle writes down each message that comes to the source and each departure, with its place in
the log and the lineage of that. So it knows what the source has at any position. It notes what is
so when a part of the stream is made, and looks at the replica when that part is applied.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from qpidha.broker.queues.log_writer import LOCAL
from qpidha.model.encoding import Described, ULong, encode
from qpidha.model.errors import RefusedRequest
from qpidha.model.events import Tick
from qpidha.model.records import Dequeued
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from qpidha.node import Node
from qpidha.replicas import source as stream_module
from qpidha.replicas.replica import Replica
from qpidha.replicas.source import Sources
from qpidha.replicas.wire import Changes, Confirm, Follow
from qpidha.replicas.wire import encode as written
from qpidha.store.codec import EnqueueRun, decode
from tests.sim.machine import Cluster, Machine
from tests.sim.manager import Manager
from tests.sim.planted_bugs import replaced
from tests.sim.world import MILLISECOND, SECOND, World

QUEUE = "q"
DURABLE_HEADER = b"\x00\x53\x70\xc0\x02\x01\x41"
CRASH_WAYS = ("keep", "drop", "lose", "tear", "scramble")


class Violation(AssertionError):
    """The replica is not what it is to be."""


@dataclass(frozen=True, slots=True)
class Event:
    """What was decided at the source: where in which history."""

    lineage: str
    sequence: int


@dataclass(slots=True)
class Facts:
    """What was so when a part was made."""

    came: set[int]
    """Messages whose coming was committed."""
    left: set[int]
    """Those whose departure was."""
    due: set[int]
    """Those that came before something that is told to have left, and have not left."""
    expected: set[int] | None
    """All that the queue had at the position of the part, if the replica is whole with it."""


@dataclass(slots=True)
class Oracle:
    """Everything that was decided."""

    came: dict[int, list[Event]] = field(default_factory=dict)
    left: dict[int, list[Event]] = field(default_factory=dict)
    facts: dict[bytes, Facts] = field(default_factory=dict)
    confirmed: dict[str, int] = field(default_factory=dict)
    """Lineage -> the last position that a replica has confirmed."""
    positions: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    numbers: dict[tuple[str, int], int] = field(default_factory=dict)
    """Lineage of a departure, message -> the number of the message."""
    whole: dict[tuple[int, int], bool] = field(default_factory=dict)
    """Streams that have made their replica whole."""
    checks: int = 0
    """How often a whole replica was compared."""

    def recovered(self, last: int) -> None:
        """A member has what it had for itself, up to this place: what came behind never was."""
        for events in (self.came, self.left):
            for number, found in list(events.items()):
                events[number] = [event for event in found if event.sequence <= last]

    def _is_in(self, node: Node, queue: Any, event: Event, through: int) -> bool:
        lineage = node.replication.lineage(queue, event.sequence)
        if event.lineage != lineage:
            return False
        return event.sequence <= through or (not queue.logged and queue.local_writer is None)

    def made(self, node: Node, connection_id: int, changes: Changes) -> None:
        """A part of the stream is made."""
        queue = node.broker.queues[QUEUE]
        is_local = not queue.logged and queue.local_writer is not None
        committed = node.replication.committed_of(queue)

        def those(events: dict[int, list[Event]], through: int) -> set[int]:
            return {
                number
                for number, found in events.items()
                if any(self._is_in(node, queue, event, through) for event in found)
            }

        expected = None
        if changes.is_whole:
            at = committed if is_local else changes.position
            expected = those(self.came, at) - those(self.left, at)
        left = those(self.left, committed)
        due: set[int] = set()
        if self.whole.get((id(node), connection_id)):
            gone = {
                number
                for entry in decode(changes.data)
                if not isinstance(entry, EnqueueRun) and isinstance(entry[1], Dequeued)
                for number in entry[1].sequences
            }
            latest = max(
                (
                    event.sequence
                    for number, found in self.left.items()
                    for event in found
                    if self.numbers.get((event.lineage, number), 0) in gone
                    and self._is_in(node, queue, event, committed)
                ),
                default=0,
            )
            due = those(self.came, latest) - left if queue.logged else set()
        if changes.is_whole:
            self.whole[id(node), connection_id] = True
        facts = Facts(those(self.came, committed), left, due, expected)
        self.facts[written(changes)] = facts
        if changes.data:  # How far one has come without anything new may be forgotten.
            self.positions[connection_id, changes.number] = changes.lineage, changes.position

    def applied(self, changes: Changes, before: set[int], after: set[int]) -> None:
        """A part is on the replica."""
        facts = self.facts[written(changes)]
        if not after - before <= facts.came:
            raise Violation(f"not committed, and streamed: {after - before - facts.came}")
        if not before - after <= facts.left:
            raise Violation(f"told to have left, and has not: {before - after - facts.left}")
        if not facts.due <= after:
            raise Violation(f"came before what has left, and is not there: {facts.due - after}")
        if facts.expected is not None:
            self.checks += 1
            if after != facts.expected:
                lacks, has = sorted(facts.expected - after), sorted(after - facts.expected)
                where = f"{changes.lineage} {changes.position}"
                raise Violation(f"at {where} the replica lacks {lacks[:9]} and has {has[:9]}")

    def confirm(self, connection_id: int, number: int) -> None:
        """A replica has confirmed a part."""
        lineage, position = self.positions.get((connection_id, number), ("", 0))
        self.confirmed[lineage] = max(self.confirmed.get(lineage, 0), position)

    def follows(self, follow: Follow) -> None:
        """A replica says how far it has come."""
        if follow.position < self.confirmed.get(follow.lineage, 0):
            raise Violation(f"the replica has confirmed more than it knows: {follow}")


def identify(payload: bytes) -> int:
    """Return which message it is."""
    return int(payload[payload.index(b"\x00\x53\x75") + 5 :].split(b" ")[0])


def numbers_on(queue: Any) -> list[int]:
    """Return which messages are on a queue, in their order."""
    return [identify(message.body()) for message in queue.ordering.after(0)]


class SiteMachine(Machine):
    """A machine of one of the sites."""

    def _make_node(self, kind: type[Node], uuids: random.Random, options: dict[str, Any]) -> Node:
        node = super()._make_node(Node, uuids, options)
        stage = self.cluster.stage  # type: ignore[attr-defined]
        if stage.local and node.local is not None and self.host == "a":
            stage.oracle.recovered(LOCAL + node.local.log.last)
            node.local._is_wanted = True  # Each start is followed by a checkpoint.
        return node

    def put_tick(self) -> None:
        """Have a turn: something was decided without an event."""
        self.put(Tick())


class Site(Cluster):
    """A broker alone, or a cluster."""

    def __init__(self, stage: Stage, names: list[str], settings: Settings, *, disks: bool) -> None:
        super().__init__(stage.world, names, settings, depth="wire", watcher=stage, disks=disks)
        self.stage = stage
        self.machines = [SiteMachine(self, name) for name in names]
        self.url = ",".join(self.addresses)
        self.manager: Manager | None = None

    @property
    def deciding(self) -> Machine | None:
        """The broker that decides here, if there is one."""
        found = [
            machine
            for machine in self.machines
            if machine.is_up and not machine.is_paused and machine.node.serving
        ]
        return found[0] if len(found) == 1 else None


class Stage:
    """The world, both sites and the oracle."""

    def __init__(self, seed: int, *, tracing: bool = False, local: bool = False) -> None:
        """With `local` the source is a cluster of one, which has the queue for itself."""
        world = self.world = World(seed, tracing=tracing)
        world.carries_bytes = True
        self.rng = world.rng
        self.oracle = Oracle()
        self.cuts: set[tuple[str, str]] = set()
        self.last = 0
        rng = world.rng
        self.local = local
        self.durable = rng.random() < 0.7 or local
        self.lasting = rng.choice((0.0, 0.2, 0.8))
        """How many of the messages are durable."""
        names = "abc"[: rng.choice((1, 1, 3))]
        self.source = self._site("a" if local else names, disks=self.durable, local=local)
        self.replica = self._site("xyz"[: rng.choice((1, 1, 3))], disks=self.durable)
        by_name = self.source.by_name = {
            machine.host: machine for machine in (*self.source.machines, *self.replica.machines)
        }
        self.replica.by_name = by_name
        self.blocked = 0

    def _site(self, names: str, *, disks: bool, local: bool = False) -> Site:
        rng = self.rng
        options: dict[str, Any] = {
            "auth": False,
            "ha_replicate": "all",
            "ha_queue_replication": True,
            "link_heartbeat_interval": 200 * MILLISECOND,
            "link_maintenance_interval": rng.choice((50, 200)) * MILLISECOND,
            "ha_flow_messages": rng.choice((1000, 3, 1)),
            "log_memory": rng.choice((1500, 1 << 20)),
        }
        if len(names) > 1 or local:
            options |= {
                "ha_cluster": True,
                "ha_brokers_url": parse_url(",".join(f"{name}:5672" for name in names)),
                "ha_backup_timeout": 300 * MILLISECOND,
            }
        if disks:
            options |= {
                "data_dir": "simulated",
                "journal_segment_size": rng.choice((4096, 1 << 20)),
                "queue_memory": rng.choice((1, 500, 1 << 20)),
            }
        site = Site(self, list(names), Settings(**options), disks=disks)
        if len(names) > 1 or local:
            site.manager = Manager(self.world, site, self)
        return site

    # -- what machines tell -----------------------------------------------------------------------

    def hosts(self) -> list[str]:
        return list(self.source.by_name)

    def is_cut(self, one: str, other: str) -> bool:
        return (one, other) in self.cuts

    def broken(self, machine: Machine, reason: str) -> None:
        raise Violation(f"{machine.host} has ended: {reason}")

    def announced(self, machine: Machine, effect: Any) -> None:
        self.world.note(machine.host, f"[{effect.level}] {effect.text}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *told, **more: None

    # -- what is done -----------------------------------------------------------------------------

    def start(self) -> None:
        """Switch everything on, and have the queue at both sites and the replica begun."""
        for site in (self.source, self.replica):
            site.start()
            if site.manager is not None:
                site.manager.start()
        self.settle(lambda: self.has_queue(self.source) and self.has_queue(self.replica))

    def has_queue(self, site: Site) -> bool:
        """Declare the queue at a site; whether it is there."""
        machine = site.deciding
        if machine is None:
            return False
        broker = machine.node.broker
        if QUEUE not in broker.queues:
            is_local = self.local and site is self.source
            arguments = {"qpid.replicate": "none"} if is_local else {}
            broker.declare_queue(QUEUE, durable=self.durable, arguments=arguments)
            machine.put_tick()
            return False
        return True

    def settle(self, is_so: Any, patience: int = 60 * SECOND) -> None:
        """Let time go by until something is so."""
        until = self.world.now + patience
        while not is_so():
            if self.world.now > until:
                raise Violation("it does not come to rest")
            self.world.run_for(20 * MILLISECOND)

    def replicate(self, *, replace: bool = False) -> None:
        """Ask for the replica."""
        machine = self.replica.deciding
        if machine is not None:
            asked = {"broker": self.source.url, "queue": QUEUE, "replace": replace}
            machine.request("replicate", asked, lambda reply: None)

    def publish(self, expires: int = 0) -> None:
        """Have one more message come to the source."""
        machine = self.source.deciding
        queue = machine and machine.node.broker.queues.get(QUEUE)
        if machine is None or queue is None:
            return
        self.last += 1
        text = f"{self.last} {'x' * self.rng.choice((0, 0, 100))}".encode()
        header = DURABLE_HEADER if self.rng.random() < self.lasting else b""
        payload = header + encode(Described(ULong(0x75), text))
        try:
            machine.node.broker.publish("", QUEUE, payload, headers=dict, expires=expires)
        except RefusedRequest:
            return
        number = queue.ordering.last
        self.oracle.came.setdefault(self.last, []).append(self._event(machine.node, queue, number))
        machine.put_tick()

    def _event(self, node: Node, queue: Any, sequence: int) -> Event:
        if not queue.logged:
            if queue.local_writer is not None:
                sequence = queue.local_writer.end
            return Event(node.replication.lineage(queue, 0), sequence)
        if node.cluster is not None:
            return Event(f"epoch:{node.log.epoch}", sequence)
        return Event(node.replication.lineage(queue, sequence), sequence)

    def consume(self) -> None:
        """Have one message leave the source, or come back to it with another count."""
        machine = self.source.deciding
        queue = machine and machine.node.broker.queues.get(QUEUE)
        if machine is None or queue is None or not queue.messages:
            return
        message = self.rng.choice(list(queue.messages.values())[:8])
        if self.rng.random() < 0.1:
            queue.ordering.take()
            queue.acquire(message)
            queue.requeue(message, failed=True)
        else:
            number = identify(message.body())
            sequence = queue.dequeue(message)
            event = self._event(machine.node, queue, sequence)
            self.oracle.numbers[event.lineage, number] = message.sequence
            self.oracle.left.setdefault(number, []).append(event)
        machine.put_tick()

    def fault(self) -> None:
        """Let one of the bad things happen."""
        rng, world = self.rng, self.world
        site = rng.choice((self.source, self.replica))
        machine = rng.choice(site.machines)
        kind = rng.choice(("crash", "power", "cut", "reset", "pause"))
        alone = len(site.machines) == 1
        if kind in ("crash", "power") and not (alone and not self.durable):
            # Where others go on, a disk may also forget what is not synced.
            machine.crash(power=kind == "power", disk=rng.choice(CRASH_WAYS))
            world.at(world.between(50 * MILLISECOND, SECOND), machine.restart)
        elif kind == "pause":
            machine.pause()
            world.at(world.between(10 * MILLISECOND, SECOND), machine.resume)
        elif kind == "cut":
            other = rng.choice(
                self.replica.machines if site is self.source else self.source.machines
            )
            pair = machine.host, other.host
            self.cuts |= {pair, pair[::-1]}
            for one, two in (pair, pair[::-1]):
                world.block(one, two)
                world.at(600 * MILLISECOND, self._join, one, two)
        else:
            for stream in list(world.streams.values()):
                if rng.random() < 0.5:
                    world.reset(stream, "connection reset")

    def _join(self, one: str, other: str) -> None:
        self.cuts.discard((one, other))
        self.world.unblock(one, other)

    # -- the end ----------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return what the replica's broker says of it; empty if there is none."""
        machine = self.replica.deciding
        if machine is None:
            return {}
        rows: list[dict[str, Any]] = machine.node.replication.report()["replicas"]
        return rows[0] if rows else {}

    def look_after(self) -> None:
        """Do what an operator does: begin the replica, and begin it anew when it is blocked."""
        if not (self.has_queue(self.source) and self.has_queue(self.replica)):
            return
        row = self.report()
        if not row:
            self.replicate()
        elif row["state"] == "blocked":
            self.blocked += 1
            self.replicate(replace=True)

    def is_the_same(self) -> bool:
        """Whether both sites have the same, and the replica says so."""
        self.look_after()
        source, replica = self.source.deciding, self.replica.deciding
        row = self.report()
        if source is None or replica is None or not row or row["state"] != "following":
            return False
        ours = numbers_on(source.node.broker.queues[QUEUE])
        return row["behind"] == 0 and numbers_on(replica.node.broker.queues[QUEUE]) == ours


@contextmanager
def watched(oracle: Oracle, most: int) -> Iterator[None]:
    """Have the oracle see every part that is made, of `most` messages, applied and confirmed."""
    follow, confirm, turn = Sources.follow, Sources.confirm, Sources.turn
    apply = Replica._apply

    def following(self: Any, connection_id: int, peer: str, asked: Follow, check: Any) -> None:
        if asked.uuid:
            oracle.follows(asked)
        follow(self, connection_id, peer, asked, check)

    def confirming(self: Any, connection_id: int, message: Confirm) -> None:
        if connection_id in self.streams:
            oracle.confirm(connection_id, message.number)
        confirm(self, connection_id, message)

    def turning(self: Any) -> bool:
        send = self._send

        def sending(connection_id: int, message: Any) -> None:
            if isinstance(message, Changes):
                oracle.made(self._node.node, connection_id, message)
            send(connection_id, message)

        self._send = sending
        try:
            return turn(self)
        finally:
            self._send = send

    def applying(self: Any, changes: Changes) -> bool:
        before = set(numbers_on(self.queue))
        if not apply(self, changes):
            return False
        oracle.applied(changes, before, set(numbers_on(self.queue)))
        return True

    with replaced(
        (stream_module, "MOST_AT_ONCE", most),
        (Sources, "follow", following),
        (Sources, "confirm", confirming),
        (Sources, "turn", turning),
        (Replica, "_apply", applying),
    ):
        yield


def play(seed: int, *, steps: int = 250, tracing: bool = False, local: bool = False) -> Stage:
    """Play one history, and check its end."""
    stage = Stage(seed, tracing=tracing, local=local)
    rng = stage.rng
    with watched(stage.oracle, rng.choice((1, 3, 1000))):
        stage.start()
        faults = rng.choice((0.01, 0.05, 0.1, 0.2))
        for _ in range(steps):
            draw = rng.random()
            if draw < 0.45:
                stage.publish()
            elif draw < 0.8:
                stage.consume()
            if rng.random() < faults:
                stage.fault()
            if rng.random() < 0.3:
                stage.look_after()
            if rng.random() < 0.6:
                stage.world.run_for(rng.choice((0, 1, 5, 50)) * MILLISECOND)
        for site in (stage.source, stage.replica):
            if site.manager is not None:
                site.manager.heal()
        stage.settle(stage.is_the_same)
    return stage
