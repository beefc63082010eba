"""Machine: a host with one broker on it, which can be crashed, paused and restarted; and its part
of the runtime.

It does for a node what the daemon does: collects what happened into turns, steps the node, carries
out the effects in their order, writes the state file beside that, which takes a while, and arms one
timer. A crash takes everything but the state file and what the disk has to stay; it may come
between two effects of one turn, and while the state file is written: that has its former content
then, or the new one, which the broker did not live to hear of. A paused machine takes nothing and
does nothing, as SIGSTOP has it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from qpidha.amqp.peer.sasl import Users
from qpidha.ha.in_sync import SavedState
from qpidha.ha.wire import Chunk, Confirm, Logged
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.effects import (
    Admitted,
    Announce,
    Compute,
    Connect,
    Disconnect,
    Effect,
    LoginWaits,
    SaveState,
    SendBytes,
    SendParts,
    Stop,
    WriteEvents,
)
from qpidha.model.errors import UpgradeNeeded
from qpidha.model.events import (
    BytesReceived,
    Computed,
    ConnectionCongested,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
    StateSaved,
    StopRequested,
    Tick,
)
from qpidha.model.features import FEATURES
from qpidha.model.settings import Settings
from qpidha.node import Node
from tests.sim.disk import FakeDisk, Files
from tests.sim.model_node import ModelNode
from tests.sim.world import MICROSECOND, MILLISECOND, Stream, World

SLOWEST = 100
"""A state file is written at most so many times more slowly than usual."""
LATER_CAUSE = 200
CRASH_WAYS = ("keep", "drop", "lose", "tear", "scramble")
DISCHARGE = b"\x00\x53\x32"
Replied = Callable[[dict[str, Any]], None]


class Cluster:
    """All machines of one world, and what watches them."""

    def __init__(
        self,
        world: World,
        names: list[str],
        settings: Settings,
        *,
        depth: str,
        watcher: Any,
        disks: bool,
    ) -> None:
        self.world = world
        self.settings = settings
        self.depth = depth
        self.watcher = watcher
        self.is_mixed = False
        """Whether brokers of several versions take part."""
        self.disks = disks
        self.sync_delay = world.rng.choice(
            [(100 * MICROSECOND, 3 * MILLISECOND), (5 * MILLISECOND, 30 * MILLISECOND)]
        )
        self.state_delay = (
            (100 * MICROSECOND, 100 * MICROSECOND)
            if world.quiet
            else world.rng.choice(
                [
                    (20 * MICROSECOND, 200 * MICROSECOND),
                    (100 * MICROSECOND, 5 * MILLISECOND),
                    (10 * MILLISECOND, 60 * MILLISECOND),
                ]
            )
        )
        self.addresses = [f"{name}:5672" for name in names]
        self.machines = [Machine(self, name) for name in names]
        self.by_name = {machine.host: machine for machine in self.machines}

    def __iter__(self) -> Any:
        return iter(self.machines)

    def start(self) -> None:
        """Switch on every machine."""
        for machine in self.machines:
            machine.start()

    def primaries(self) -> list[Machine]:
        """Return the running machines that take themselves for the primary."""
        return [machine for machine in self.machines if machine.is_up and machine.state.is_primary]


class Socket:
    """One end of a connection at a machine: what the kernel keeps for the process."""

    __slots__ = ("connection_id", "host", "life", "machine")

    def __init__(self, machine: Machine, connection_id: int) -> None:
        self.machine = machine
        self.host = machine.host
        self.life = machine.life
        self.connection_id = connection_id

    def stream_data(self, stream: Stream, chunk: Any) -> None:
        """Bytes came; into the kernel's buffers if the process is stopped."""
        machine = self.machine
        if machine.life == self.life and self.connection_id in machine.streams:
            machine.put(BytesReceived(self.connection_id, chunk))

    def stream_lost(self, stream: Stream, reason: str) -> None:
        """The connection ended, or could not be made."""
        machine = self.machine
        if machine.life == self.life and machine.streams.pop(self.connection_id, None) is not None:
            machine.put(ConnectionLost(self.connection_id, reason))


class Machine:
    """One host with a broker."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.host = host
        self.system_id = f"{host}-id"
        self.saved = b""
        self.features: tuple[str, ...] = tuple(FEATURES)
        """What the version that is installed there knows; it counts from the next start on."""
        self.files: Files | None = Files() if cluster.disks else None
        self.former: tuple[str, bytes, Files | None] | None = None
        """System id, state file and disk of the broker that was here before the disk was lost."""
        self.disk: FakeDisk | None = None
        self.ahead = 0
        """By how many ns its wall clock is ahead of the world's time."""
        self.life = 0
        self.is_up = False
        self.is_paused = False
        self.without_power = False
        self.crash_after = -1
        """Effects that are still carried out before it crashes; below 0 it does not."""
        self.crash_committing = False
        """Whether it crashes in the next turn in which it commits something."""
        self.crash_saving = False
        """Whether it crashes while it writes its state file next."""
        self.node: Node = None  # type: ignore[assignment]
        self.was_complete = False
        self.start_error = ""
        """Why it did not start when that was tried last, if it did not."""
        self._reset()

    def _reset(self) -> None:
        self.inbox: list[Event] = []
        self.scheduled = False
        self.armed = 0
        self.streams: dict[int, tuple[Stream, Socket]] = {}
        self.requests: dict[int, Replied] = {}
        self.next_id = 0
        self.saving: SaveState | None = None
        """What is being written to the state file."""
        self.unsaved: SaveState | None = None
        """What is to be written there next."""
        self.committed = 0
        self.confirmed: dict[int, int] = {}
        """Connection of a backup -> the last sequence it has confirmed on it."""

    # -- what others read -------------------------------------------------------------------------

    @property
    def state(self) -> BrokerStatus:
        """How the broker is; of a machine that is down it is how it was."""
        cluster = self.node.cluster
        return cluster.state if cluster is not None else BrokerStatus.STANDALONE

    @property
    def is_complete(self) -> bool:
        """Whether it runs and has everything that it ever confirmed."""
        return (
            self.is_up and self.node.cluster is not None and self.node.cluster.promises.is_complete
        )

    @property
    def memory(self) -> SavedState:
        """What the state file says."""
        return SavedState.decode(self.saved)

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the broker with what it kept."""
        self.life += 1
        self._reset()
        self.is_up, self.is_paused = True, False
        world, life = self.world, self.life
        kind = Node if self.cluster.depth == "wire" else ModelNode
        uuids = random.Random(f"{self.host} {life} {world.number_of_seed}")
        options: dict[str, Any] = {}
        if self.files is not None:
            self.disk = FakeDisk(
                self.put,
                random.Random(f"disk {self.host} {life} {world.number_of_seed}"),
                self.files,
            )
            self.disk.world, self.disk.machine = world, self
            self.disk.sync_delay = self.cluster.sync_delay
            options["disk"] = self.disk
        world.note(self.host, f"starts{'' if self.features else ' as the base version'}")
        try:
            self.node = self._make_node(kind, uuids, options)
            # A mistake is to be found here, and not to be got over.
            self.node.streams.isolate = lambda connection, error: False
        except UpgradeNeeded as error:
            self.start_error = f"{error.text} ({error.hint})"
            world.note(self.host, f"does not start: {self.start_error}")
            if set(self.features) == set(FEATURES):
                raise
            self.is_up = False
            self.life += 1
            return
        self.cluster.watcher.started(self)
        if self.node.cluster is not None:
            self._overhear(self.node.cluster)
        if self.cluster.is_mixed:
            use_causes(self.node.log)
        self._obey(self.node.start(world.now))

    def _make_node(self, kind: type[Node], uuids: random.Random, options: dict[str, Any]) -> Node:
        return kind(
            self.cluster.settings,
            system_id=self.system_id,
            users=Users({}),
            state=self.saved,
            address=f"{self.host}:5672",
            make_uuid=lambda: f"{uuids.getrandbits(128):032x}",
            features=self.features,
            **options,
        )

    def _overhear(self, cluster: Any) -> None:
        """Note what is confirmed on which link, apart from what the broker makes of it."""
        on_message, lost = cluster.on_message, cluster.lost

        def hear(connection_id: int, message: Any) -> None:
            if isinstance(message, Confirm):
                self.confirmed[connection_id] = message.sequence
            if self.cluster.is_mixed and isinstance(message, Logged | Chunk):
                self.cluster.watcher.replicated(self, message)
            on_message(connection_id, message)
            self.cluster.watcher.moved(self)

        def lose(connection_id: int, reason: str, *, reached: bool) -> None:
            self.cluster.watcher.moved(self)
            self.confirmed.pop(connection_id, None)
            lost(connection_id, reason, reached=reached)

        cluster.on_message, cluster.lost = hear, lose

    def crash(self, *, power: bool = False, disk: str = "keep") -> None:
        """Stop at once. Without power nobody hears of it, and what the disk has not synced may be
        gone (`disk` says how).
        """
        if not self.is_up:
            return
        self.world.note(self.host, "loses power" if power else "crashes")
        self.is_up = False
        self.life += 1
        self.was_complete = False
        self.forget_crashes()
        if self.saving is not None and not self.world.quiet and self.world.chance(0.5):
            self._is_written(self.saving)
        self.saving = self.unsaved = None
        if self.disk is not None:
            self.disk.crash(disk)
        for stream, socket in list(self.streams.values()):
            self.world.lose_tail(
                stream.from_(socket)
            )  # what the kernel had not sent, or the other end not read
            if power:
                self.world.vanish(stream, socket)
            else:
                self.world.close(stream, socket, "connection reset by peer")
        self.streams.clear()
        if power:
            self.without_power = True
            self.cut_off(True)
        self.cluster.watcher.stopped(self)

    def restart(self) -> None:
        """Start again after a crash."""
        if self.is_up:
            return
        if self.without_power:
            self.without_power = False
            self.cut_off(False)
            for stream in list(
                self.world.streams.values()
            ):  # whoever still waits for the old broker hears that it is gone
                for pipe in stream.pipes.values():
                    if pipe.source == self.host and pipe.receiver is not None:
                        self.world.reset(stream, "connection reset by peer")
                        break
        self.start()

    def forget_crashes(self) -> None:
        """Do not crash by what was to end it: the next effect, transaction or state file."""
        self.crash_after, self.crash_committing, self.crash_saving = -1, False, False

    def lose_disk(self) -> None:
        """Have a new broker here, with an empty disk, from the next start on."""
        self.former = (self.system_id, self.saved, self.files)
        self.world.note(self.host, "loses its disk")
        self.system_id = f"{self.host}{self.life}-id"
        self.saved = b""
        self.files = Files() if self.cluster.disks else None

    def find_disk(self) -> None:
        """Have the former broker here again, from the next start on."""
        if self.former is not None:
            self.world.note(self.host, "has its former disk again")
            self.system_id, self.saved, self.files = self.former
            self.former = None

    def congest(self, connection_id: int, congested: bool) -> None:
        """Bytes pile up on a connection, or have left."""
        if connection_id in self.streams:
            self.put(ConnectionCongested(connection_id, congested))

    def cut_off(self, off: bool) -> None:
        """Take the machine off the network, or give it back, without touching other cuts."""
        for other in self.cluster.watcher.hosts():
            for pair in ((self.host, other), (other, self.host)):
                if off:
                    self.world.block(*pair)
                elif not self.cluster.watcher.is_cut(*pair):
                    self.world.unblock(*pair)

    def pause(self) -> None:
        """Stop the process without ending it."""
        if self.is_up and not self.is_paused:
            self.is_paused = True
            self.world.note(self.host, "is paused")
            if self.world.silence:
                self.world.at(self.world.silence, self._unheard, self.life)

    def resume(self) -> None:
        """Let it go on: first with everything that came meanwhile."""
        if self.is_up and self.is_paused:
            self.is_paused = False
            self.world.note(self.host, "goes on")
            self._arm()
            if self.inbox:
                self._schedule()

    def _unheard(self, life: int) -> None:
        """Where no heartbeats are simulated: the others give up on a machine that has been paused
        for long.
        """
        if self.life == life and self.is_paused:
            for stream, socket in list(self.streams.values()):
                pipe = stream.from_(socket)
                if pipe.receiver is not None:
                    endpoint = pipe.receiver
                    self.world.close(stream, endpoint, "the peer heard nothing")
                    endpoint.stream_lost(stream, "silent for twice the heartbeat")
            self.world.at(self.world.silence, self._unheard, life)

    # -- turns ------------------------------------------------------------------------------------

    def put(self, event: Event) -> None:
        """Something happened; it is handled with all else of this turn."""
        if self.is_up:
            self.inbox.append(event)
            if not self.is_paused:
                self._schedule()

    def _schedule(self) -> None:
        if not self.scheduled:
            self.scheduled = True
            self.world.at(
                self.world.between(1 * MICROSECOND, 100 * MICROSECOND), self._turn, self.life
            )

    def _turn(self, life: int) -> None:
        if self.life != life:
            return
        self.scheduled = False
        if self.is_paused:
            return
        events, self.inbox = self.inbox, []
        if self.crash_committing and any(is_commit(event) for event in events):
            self.crash_after = self.world.rng.randrange(1, 5)
        self._obey(self.node.step(events, self.world.now, self.ahead))

    def _obey(self, effects: list[Effect]) -> None:
        life = self.life
        for effect in effects:
            if type(effect) is WriteEvents:
                if self.life == life:  # Else it ended before.
                    self.noted(effect)
                continue
            if type(effect) in (Admitted, LoginWaits) or is_audit(effect):
                continue  # No step at which a machine may crash.
            if self.crash_after >= 0:
                self.crash_after -= 1
                if self.crash_after < 0:
                    self.crash(power=self.world.chance(0.3), disk=self.world.rng.choice(CRASH_WAYS))
            if self.life != life:
                return
            EFFECTS[type(effect)](self, effect)
        if self.life == life:
            self.cluster.watcher.look(self)
            self._arm()

    def _arm(self) -> None:
        deadline = self.node.next_deadline
        if not deadline or self.is_paused or (self.armed and self.armed <= deadline):
            return
        self.armed = deadline
        self.world.at(
            max(deadline - self.world.now + MILLISECOND // 2, MILLISECOND),
            self._due,
            self.life,
            deadline,
        )

    def _due(self, life: int, deadline: int) -> None:
        if self.life != life or self.armed != deadline:
            return
        self.armed = 0
        if self.is_paused:
            return
        if 0 < self.node.next_deadline <= self.world.now:
            self.put(Tick())
        else:
            self._arm()

    # -- effects ----------------------------------------------------------------------------------

    def noted(self, effect: WriteEvents) -> None:
        """Something goes into the event log: that changes nothing, nor is it a step at
        which a machine may crash.
        """

    def _send_parts(self, effect: SendParts) -> None:
        self._send(SendBytes(effect.connection_id, effect.data))

    def _send(self, effect: SendBytes) -> None:
        end = self.streams.get(effect.connection_id)
        if end is not None:
            data: Any = effect.data
            for chunk in data if type(data) is list else (data,):
                self.world.send(*end, chunk)
        elif effect.connection_id in self.requests:
            for line in effect.data.splitlines():
                self.requests.pop(effect.connection_id)(json.loads(line))

    def _connect(self, effect: Connect) -> None:
        target = self.cluster.by_name.get(effect.host)
        if target is None:
            self.put(ConnectionLost(effect.connection_id, "nobody is there"))
            return
        socket = Socket(self, effect.connection_id)
        other = Socket(target, 0)
        stream = self.world.join(socket, other)
        self.streams[effect.connection_id] = stream, socket
        opened = ConnectionOpened(
            effect.connection_id, f"{target.host}:5672", ConnectionKind.OUTGOING
        )
        reach(self.world, stream, socket, other, lambda: self._dialled(socket, opened))

    def _dialled(self, socket: Socket, opened: ConnectionOpened) -> None:
        if self.life == socket.life and socket.connection_id in self.streams:
            self.put(opened)

    def accept(self, stream: Stream, socket: Socket, peer: str) -> None:
        """Somebody connected."""
        self.next_id += 1
        socket.connection_id, socket.life = self.next_id, self.life
        self.streams[self.next_id] = stream, socket
        self.put(ConnectionOpened(self.next_id, peer, ConnectionKind.CLIENT, trusted_host=True))

    def _disconnect(self, effect: Disconnect) -> None:
        end = self.streams.pop(effect.connection_id, None)
        if end is not None:
            self.world.close(*end)

    def _save(self, effect: SaveState) -> None:
        self.unsaved = effect
        if self.saving is None:
            self._write_state()

    def _write_state(self) -> None:
        """Begin to write the last state that was asked for, if there is one."""
        self.saving, self.unsaved = self.unsaved, None
        if self.saving is None:
            return
        slowness = min(self.disk.slowness, SLOWEST) if self.disk is not None else 1
        delay = self.world.between(*self.cluster.state_delay) * slowness
        if self.crash_saving:  # Others may go by what is not written, if they are told of it.
            delay += self.world.between(0, 20 * self.world.latency[1])
        self.world.at(delay, self._state_written, self.life, self.saving)
        if self.crash_saving:
            self.world.at(self.world.between(0, delay), self._crash_now, self.life)

    def _crash_now(self, life: int) -> None:
        if self.life == life and self.crash_saving:  # Else all faults have ended meanwhile.
            self.crash(power=self.world.chance(0.3), disk=self.world.rng.choice(CRASH_WAYS))

    def _state_written(self, life: int, effect: SaveState) -> None:
        if self.life != life:
            return
        if self.is_paused:  # Its threads do nothing either.
            self.world.at(10 * MILLISECOND, self._state_written, life, effect)
            return
        self._is_written(effect)
        self.put(StateSaved(effect.mark))
        self._write_state()

    def _is_written(self, effect: SaveState) -> None:
        self.saved = effect.data
        self.cluster.watcher.saved(self)

    def _compute(self, effect: Compute) -> None:
        self.put(Computed(effect.connection_id, effect.work()))

    def _announce(self, effect: Announce) -> None:
        self.cluster.watcher.announced(self, effect)

    def _stop(self, effect: Stop) -> None:
        self.world.note(self.host, f"ends: {effect.reason}")
        failed_disk = self.disk is not None and self.disk.failed
        self.crash()
        if effect.failed and not failed_disk:
            self.cluster.watcher.broken(self, effect.reason)

    # -- administration ---------------------------------------------------------------------------

    def request(self, method: str, params: dict[str, Any], replied: Replied) -> None:
        """Ask something over the admin socket."""
        self.next_id += 1
        self.requests[self.next_id] = replied
        line = json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n"
        self.put(ConnectionOpened(self.next_id, "admin", ConnectionKind.LOCAL))
        self.put(BytesReceived(self.next_id, line))

    def end(self) -> None:
        """Ask it to stop in good order."""
        self.put(StopRequested())


def use_causes(log: Any) -> None:
    """Have every departure carry a cause that only a version to come knows, once causes may be
    written.
    """
    dequeue = log.dequeue
    log.dequeue = lambda queue, sequence, cause=0: dequeue(queue, sequence, cause or LATER_CAUSE)


def is_audit(effect: Effect) -> bool:
    """Tell whether a line of the log says who did what."""
    return type(effect) is Announce and effect.category == "security"


def is_commit(event: Event) -> bool:
    """Tell whether somebody ends a transaction, in words or in bytes."""
    if type(event) is not BytesReceived:
        return False
    data: Any = event.data
    return DISCHARGE in data if type(data) is bytes else data[0] in ("commit", "move")


def reach(
    world: World, stream: Stream, dialler: Any, other: Socket, opened: Callable[[], None]
) -> None:
    """Carry a SYN to a machine: it is accepted by the kernel, refused, or lost on a cut way, where
    the caller waits in vain.
    """
    target = other.machine

    def arrives() -> None:
        if stream.from_(dialler).closed or stream.towards(dialler).receiver is None:
            return  # given up meanwhile
        if world.is_blocked(dialler.host, target.host) or world.is_blocked(
            target.host, dialler.host
        ):
            world.at(200 * MILLISECOND, arrives)  # SYNs are sent again
        elif not target.is_up:
            for pipe in stream.pipes.values():
                pipe.receiver, pipe.closed = None, True
            world.streams.pop(stream.number, None)
            dialler.stream_lost(stream, "connection refused")
        else:
            target.accept(stream, other, dialler.host)
            opened()

    world.at(world.delay(), arrives)


EFFECTS: dict[type, Callable[[Machine, Any], None]] = {
    SendBytes: Machine._send,
    SendParts: Machine._send_parts,
    Connect: Machine._connect,
    Disconnect: Machine._disconnect,
    SaveState: Machine._save,
    Compute: Machine._compute,
    Announce: Machine._announce,
    Stop: Machine._stop,
}
