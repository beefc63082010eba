"""Stage: where the plays of this folder are acted. A play is commands, each followed by what is
then announced.

Brokers are whole nodes in a simulated world (`tests.sim`) in which chance has no part: every delay
is the same. Clients speak AMQP. A line of the trace is what a broker announces, or what a client is
told. `COMMANDS` at the end names all verbs. Source: etcd raft, `rafttest/interaction_env.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.effects import Announce
from qpidha.model.features import FEATURES
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from tests.sim.clients import Client, Receiver, Sender
from tests.sim.history import DURABLE_HEADER, key_of
from tests.sim.machine import Cluster, Machine
from tests.sim.model_node import whole
from tests.sim.network import Network
from tests.sim.wire_client import WireTransport
from tests.sim.world import MILLISECOND, SECOND, World

PAUSE = 300 * MILLISECOND
"""What happens within this time of a command is what it led to."""
PATIENCE = 5 * SECOND
"""How long a promotion may take to be answered."""
QUIET = SECOND
"""So long nothing must be announced for a cluster to be stable."""
LONGEST = 60 * SECOND
NOISE = ("no connection to", "recovered 0 messages", "Connected to primary", "Disconnected from")
"""Beginnings of announcements that no story needs."""
DURATION = re.compile(r"(\d+)(ms|s)")


class PlayError(Exception):
    """A command that cannot be understood or carried out."""


class Actor(Sender):
    """A sender whose messages are numbers; it may be bound to one broker."""

    only: Machine | None = None

    def connect(self) -> None:
        """Go to the one broker, if there is one."""
        if self.only is not None:
            self.hint = self.only
        super().connect()


class Stage(Network):
    """One play."""

    clients: list[Client]

    def __init__(self) -> None:
        super().__init__()
        self.world = World("play", quiet=True)
        self.world.latency = (MILLISECOND, MILLISECOND)
        self.world.carries_bytes = True
        self.make_transport = WireTransport
        self.lines: list[str] = []
        self.senders: dict[str, Actor] = {}
        self.receivers = 0
        self.cluster: Cluster = None  # type: ignore[assignment]
        self.last_word = 0
        self.is_durable = False

    def perform(self, line: str) -> str:
        """Carry out one command and return what was announced."""
        verb, *words = line.split()
        if verb not in COMMANDS:
            raise PlayError(f"there is no command {verb}; there are {', '.join(COMMANDS)}")
        if verb != "brokers" and self.cluster is None:
            raise PlayError("a play begins with: brokers a b c")
        self.lines = []
        try:
            COMMANDS[verb](self, *words)
        except TypeError as error:
            raise PlayError(
                f"{verb} was given other words than it takes: {' '.join(words)}"
            ) from error
        return "".join(f"{each}\n" for each in self.lines) or "nothing\n"

    def say(self, text: str) -> None:
        """Write a line of the trace."""
        self.last_word = self.world.now
        self.lines.append(text)

    def machine(self, name: str) -> Machine:
        """Return a broker."""
        if name not in self.cluster.by_name:
            raise PlayError(f"there is no broker {name}")
        return self.cluster.by_name[name]

    # -- commands: brokers ------------------------------------------------------------------------

    def brokers(self, *words: str) -> None:
        """brokers a b c [option=value ...] [disks] [base]: start them, as the oldest version."""
        names = [word for word in words if "=" not in word and word not in ("disks", "base")]
        given = dict(word.split("=") for word in words if "=" in word)
        self.is_durable = "disks" in words
        options: dict[str, Any] = {
            "auth": False,
            "ha_cluster": True,
            "ha_replicate": "all",
            "ha_safety": given.pop("safety", "strict"),
            "ha_brokers_url": parse_url(",".join(f"{name}:5672" for name in names)),
            "link_heartbeat_interval": SECOND,
            "link_maintenance_interval": 100 * MILLISECOND,
            "ha_backup_timeout": duration(given.pop("backup-timeout", "10s")),
        }
        options |= {f"ha_{name.replace('-', '_')}": int(value) for name, value in given.items()}
        if self.is_durable:
            options["data_dir"] = "simulated"
        self.cluster = Cluster(
            self.world,
            names,
            Settings(**options),
            depth="wire",
            watcher=self,
            disks=self.is_durable,
        )
        if "base" in words:
            for machine in self.cluster:
                machine.features = ()
        self.cluster.start()
        self.world.run_for(PAUSE)

    def upgrade(self, name: str) -> None:
        """upgrade a: stop its broker and start this version."""
        self._install(name, tuple(FEATURES))

    def downgrade(self, name: str) -> None:
        """downgrade a: stop its broker and start the oldest version."""
        self._install(name, ())

    def _install(self, name: str, features: tuple[str, ...]) -> None:
        machine = self.machine(name)
        machine.crash()
        self.world.run_for(PAUSE)
        machine.features = features
        machine.restart()
        if not machine.is_up:
            self.say(f"{name} does not start: {machine.start_error}")
        self.world.run_for(PAUSE)

    def promote(self, *names: str) -> None:
        """promote a [b ...]: the manager promotes one, or several at once."""
        machines = [self.machine(name) for name in names]
        for machine in machines:
            machine.request(
                "promote",
                {},
                lambda reply, name=machine.host: self._replied(f"promote {name}", reply),
            )
        end = self.world.now + PATIENCE
        while self.world.now < end and any(
            machine.requests and not machine.is_paused for machine in machines
        ):
            self.world.run_for(PAUSE)
        self.world.run_for(PAUSE)

    def demote(self, name: str) -> None:
        """demote a: the manager demotes it."""
        self.machine(name).request(
            "demote", {}, lambda reply: self._replied(f"demote {name}", reply)
        )
        self.world.run_for(PAUSE)

    def switchover(self, name: str, target: str) -> None:
        """switchover a b: hand over from a to b."""
        params = {"target": self.machine(target).cluster.by_name[target].node.address}
        self.machine(name).request(
            "switchover", params, lambda reply: self._replied(f"switchover {name} {target}", reply)
        )
        self.world.run_for(PAUSE)

    def recover(self, name: str) -> None:
        """recover a: ask a broker whom to promote after a total failure."""
        self.machine(name).request("recover", {}, self._recovered)
        self.world.run_for(PAUSE)

    def _recovered(self, reply: dict[str, Any]) -> None:
        result = reply.get("result")
        self.say(
            f"recommended: {result['recommended']}, as {result['reason']}"
            if result
            else f"recover: {reply}"
        )

    def _replied(self, what: str, reply: dict[str, Any]) -> None:
        error = reply.get("error")
        self.say(
            f"{what}: refused: {error['message']} ({error['hint']})" if error else f"{what}: done"
        )

    def crash(self, *names: str) -> None:
        """crash a [b ...]: kill the processes."""
        for name in names:
            self.machine(name).crash()
        self.world.run_for(PAUSE)

    def power(self, *names: str) -> None:
        """power a [b ...]: take the power away; what was not synced is gone."""
        for name in names:
            self.machine(name).crash(power=True, disk="drop")
        self.world.run_for(PAUSE)

    def restart(self, *names: str) -> None:
        """restart a [b ...]: start them again."""
        for name in names:
            self.machine(name).restart()
        self.world.run_for(PAUSE)

    def pause(self, name: str) -> None:
        """pause a: stop its process, as SIGSTOP does."""
        self.machine(name).pause()
        self.world.run_for(PAUSE)

    def resume(self, name: str) -> None:
        """resume a: let it go on."""
        self.machine(name).resume()
        self.world.run_for(PAUSE)

    def disk(self, name: str, how: str) -> None:
        """disk a hangs|works|full: what becomes of it."""
        disk = self.machine(name).disk
        if disk is None or how not in ("hangs", "works", "full"):
            raise PlayError("say brokers a b c disks, and disk a hangs, works or full")
        if how == "full":
            disk.capacity = 0
        disk.hang(how == "hangs")
        self.world.run_for(PAUSE)

    def syncs(self, time: str) -> None:
        """syncs 2s: from now on each sync of a disk takes so long, and each write of a state."""
        self.cluster.sync_delay = self.cluster.state_delay = (duration(time), duration(time))
        for machine in self.cluster:
            if machine.disk is not None:
                machine.disk.sync_delay = self.cluster.sync_delay

    # -- commands: the network and time -----------------------------------------------------------

    def cut(self, one: str, other: str) -> None:
        """cut a b: nothing passes between two hosts."""
        self.clog(one, other)
        self.clog(other, one)

    def clog(self, source: str, target: str) -> None:
        """clog a b: nothing passes from a to b."""
        self.cuts[source, target] = None
        self.world.block(source, target)

    def heal(self) -> None:
        """heal: every way is free again."""
        for pair in list(self.cuts):
            del self.cuts[pair]
            if not self.is_cut(*pair):
                self.world.unblock(*pair)
        self.world.run_for(PAUSE)

    def tick(self, time: str) -> None:
        """tick 2s: let time go by."""
        self.world.run_for(duration(time))

    def stabilize(self) -> None:
        """stabilize: let time go by until nothing is announced any more."""
        end = self.world.now + LONGEST
        self.last_word = self.world.now
        while self.world.now < min(self.last_word + QUIET, end):
            self.world.run_for(PAUSE)

    # -- commands: objects and messages -----------------------------------------------------------

    def declare(self, name: str, alternate: str = "") -> None:
        """declare q [alternate]: make a queue."""
        self._ask(
            "declare_queue",
            name=name,
            durable=self.is_durable,
            **({"alternate": alternate} if alternate else {}),
        )

    def exchange(self, name: str, kind: str) -> None:
        """exchange e fanout: make an exchange."""
        self._ask("declare_exchange", name=name, type=kind, durable=self.is_durable)

    def bind(self, exchange: str, queue: str) -> None:
        """bind e q: bind a queue to an exchange."""
        self._ask("bind", exchange=exchange, queue=queue)

    def unbind(self, exchange: str, queue: str) -> None:
        """unbind e q: take a binding away."""
        self._ask("unbind", exchange=exchange, queue=queue)

    def _ask(self, method: str, **params: Any) -> None:
        primaries = self.cluster.primaries()
        if not primaries:
            raise PlayError("there is no primary")
        primaries[-1].request(
            method, params, lambda reply: "error" in reply and self._replied(method, reply)
        )
        self.world.run_for(PAUSE)

    def publish(self, address: str, numbers: str, to: str = "", name: str = "") -> None:
        """publish q 1..3 [to a]: send messages to the primary, or to that broker and no other."""
        key = f"{address} {to and name}".strip()
        if key not in self.senders:
            sender = Actor(
                self.world,
                self.cluster,
                self,
                f"sender{len(self.senders) + 1}",
                address,
                {"durable": self.is_durable},
                window=1000,
                pause=10 * MILLISECOND,
                durable=self.is_durable,
                queues=(),
            )
            sender.only = self.machine(name) if to else None
            self.senders[key] = sender
            self.clients.append(sender)
            if not to and self.cluster.primaries():
                sender.hint = self.cluster.primaries()[-1]
            sender.connect()
        first, _, last = numbers.partition("..")
        sender = self.senders[key]
        sender.waiting.extend(range(int(first), int(last or first) + 1))
        sender.pump()
        self.world.run_for(PAUSE)
        waiting = [str(number) for number in (*sender.unsettled.values(), *sender.waiting)]
        if waiting:
            self.say(f"waiting for acceptance: {' '.join(waiting)}")

    def receive(self, address: str, count: str, *, reject: bool = False) -> None:
        """receive q 2: take that many messages and accept them."""
        self.receivers += 1
        taker = Receiver(
            self.world,
            self.cluster,
            self,
            f"receiver{self.receivers}",
            address,
            {"durable": self.is_durable},
            credit=int(count),
            think=0,
            moods=(0, 0, 0),
        )
        taker.limit = int(count)
        taker.outcome = REJECTED if reject else ACCEPTED
        self.clients.append(taker)
        primaries = self.cluster.primaries()
        if primaries:
            taker.hint = primaries[-1]
        taker.connect()
        self.world.run_for(PAUSE)
        taker.stop()
        self.world.run_for(PAUSE)

    def reject(self, address: str, count: str) -> None:
        """reject q 1: take that many messages and reject them."""
        self.receive(address, count, reject=True)

    def status(self) -> None:
        """status: how each broker is, and what is on its queues."""
        for machine in self.cluster:
            if not machine.is_up:
                self.say(f"{machine.host} is down")
                continue
            set_ = machine.memory.in_sync
            members = " ".join(member.removesuffix("-id") for member in set_.members) or "nobody"
            is_primary = machine.state in (BrokerStatus.ACTIVE, BrokerStatus.RECOVERING)
            paused = ", paused" if machine.is_paused else ""
            self.say(
                f"{machine.host} {machine.state.value}{paused}: epoch "
                f"{machine.node.log.epoch}, in sync {members}"
            )
            if is_primary or machine.state is BrokerStatus.READY:
                for queue in machine.node.broker.queues.values():
                    found = [
                        queue.messages[sequence]
                        for sequence in queue.ordered()
                        if sequence in queue.messages
                    ]
                    self.say(
                        f"  {queue.name}: "
                        f"{' '.join(key_of(whole(message)) for message in found) or 'empty'}"
                    )

    def bindings(self) -> None:
        """bindings: which queues are bound to which exchanges on each broker."""
        for machine in self.cluster:
            rows = [
                f"{exchange.name}-{queue.name}"
                for exchange in machine.node.broker.exchanges.values()
                for queue, *_ in exchange.bindings()
            ]
            self.say(f"{machine.host}: {' '.join(rows) or 'none'}")

    def explain(self, name: str) -> None:
        """explain a: what the acknowledgements of a broker wait for."""
        for cause in self.machine(name).node.explain():
            self.say(f"{name} waits: {cause.get('text') or cause.get('what') or cause}")

    # -- what machines tell -----------------------------------------------------------------------

    def announced(self, machine: Machine, effect: Announce) -> None:
        """A broker said what happened."""
        if "before" in effect.fields and "after" in effect.fields:
            self.say(f"{machine.host}: {effect.fields['before']} -> {effect.fields['after']}")
        elif effect.level not in ("debug", "info") and not effect.text.startswith(NOISE):
            self.say(f"{machine.host}: {effect.text}")

    def look(self, machine: Machine) -> None:
        """A broker has made a turn."""

    def moved(self, machine: Machine) -> None:
        """Something is committed."""

    def saved(self, machine: Machine) -> None:
        """A broker saved its state."""

    def started(self, machine: Machine) -> None:
        """A broker is up."""

    def stopped(self, machine: Machine) -> None:
        """A broker is down."""

    def broken(self, machine: Machine, reason: str) -> None:
        """A broker found itself to be wrong."""
        self.say(f"{machine.host} is broken: {reason}")

    # -- what clients tell ------------------------------------------------------------------------

    def prepare(self, machine: Machine, then: Callable[[bool], None]) -> None:
        """Nothing has to be made before a link is attached."""
        then(True)

    def sent(self, sender: Sender, message: int, number: int) -> bytes:
        """A sender sends."""
        text = f"<{message}>".encode()
        return (
            (DURABLE_HEADER if sender.durable else b"")
            + b"\x00\x53\x75\xb0"
            + len(text).to_bytes(4, "big")
            + text
        )

    def accepted(self, sender: Sender, message: int, number: int) -> None:
        """A sender was told that its message is accepted."""
        where = str(sender.target and sender.target.host)
        start = f"accepted by {where}:"
        if self.lines and self.lines[-1].startswith(start):
            self.lines[-1] += f" {message}"
        else:
            self.say(f"{start} {message}")

    def refused(self, sender: Sender, message: int, number: int) -> None:
        """A sender was told that its message was not taken."""
        self.say(f"refused by {sender.target and sender.target.host}: {message}")
        sender.waiting.clear()

    def in_doubt(self, sender: Sender, message: int, number: int) -> None:
        """A sender will never know."""
        self.say(f"in doubt: {message}")

    def delivered(self, receiver: Receiver, payload: bytes, count: int) -> str:
        """A receiver got a message."""
        key = key_of(payload)
        start = f"received from {receiver.target and receiver.target.host}:"
        if self.lines and self.lines[-1].startswith(start):
            self.lines[-1] += f" {key}"
        else:
            self.say(f"{start} {key}")
        return key

    def consumed(self, receiver: Receiver, key: str) -> None:
        """A receiver is done with a message."""

    def rejected(self, receiver: Receiver, key: str) -> None:
        """A receiver will not have a message."""

    def settled(self, receiver: Receiver, key: str) -> None:
        """A receiver was told that its acceptance is committed."""


def duration(text: str) -> int:
    """Read `2s` or `300ms`."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise PlayError(f"{text} is no duration such as 2s or 300ms")
    return int(match[1]) * (SECOND if match[2] == "s" else MILLISECOND)


COMMANDS: dict[str, Callable[..., None]] = {
    name: getattr(Stage, name)
    for name in (
        "brokers",
        "upgrade",
        "downgrade",
        "promote",
        "demote",
        "switchover",
        "recover",
        "crash",
        "power",
        "restart",
        "pause",
        "resume",
        "disk",
        "syncs",
        "cut",
        "clog",
        "heal",
        "tick",
        "stabilize",
        "declare",
        "exchange",
        "bind",
        "unbind",
        "publish",
        "receive",
        "reject",
        "status",
        "bindings",
        "explain",
    )
}
