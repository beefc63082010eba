"""A world of HA machines without brokers: ordered connections, one clock, and lists of words in
place of queues.

Each machine has a real Log; what a test appends as `QueueDeclared` named after a word is that
word's record. `model` is what the machine folded, so tests compare models. In a durable world each
also has a write-ahead log on a fake disk, which does what it is asked for only when somebody pumps
it. Where the state is `slow`, so is the state file.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qpidha.ha.cluster import Cluster
from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.membership_store import fields_of, read_record
from qpidha.ha.pending import PendingAcknowledgements
from qpidha.ha.saves import Saves
from qpidha.ha.wire import decode as decode_message
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.encoding import Parts
from qpidha.model.errors import ProtocolViolation, QpidHaError
from qpidha.model.event_log import EventSink
from qpidha.model.events import Event, LogWritten
from qpidha.model.features import FEATURES
from qpidha.model.records import HA_RECORDS, QueueDeclared, Record
from qpidha.model.settings import Settings
from qpidha.model.url import parse_url
from qpidha.store.codec import EnqueueRun, decode, encode_record
from qpidha.store.log import Log
from qpidha.store.log_reader import LogReader
from qpidha.store.write_ahead_log import WriteAheadLog
from tests.sim.disk import FakeDisk, Files

SECOND = 1_000_000_000


@dataclass(slots=True)
class Job:
    """What the manager's process beside a broker is about to do: change the store as it was told,
    and then tell what is kept.
    """

    index: int
    wanted: Mapping[str, Any]
    kept: InSyncSet | None = None
    is_done: bool = False


class Store:
    """The cluster manager's store, and its processes beside the brokers: whoever asks what is
    wanted, does it, and says what is kept.
    """

    def __init__(self, n: int) -> None:
        self.kept = InSyncSet()
        self.history: list[InSyncSet] = []
        self.jobs: list[Job] = []
        self.reachable = [True] * n
        """From the machine of each broker; where it is not, the manager there says that it is not
        quorate.
        """
        self.compares = True
        self.answers = True
        """Whether the manager does its work when `settle` lets it."""

    def ask(self, machine: Machine) -> None:
        """Ask a broker what is to be recorded, unless it is asked already."""
        if not machine.is_asked and machine.cluster.membership_store.is_used:
            machine.is_asked = True

            def answered(error: QpidHaError | None, wanted: Mapping[str, Any] | None) -> None:
                machine.is_asked = False
                assert error is None and wanted is not None
                if wanted["wanted"]:
                    self.jobs.append(Job(machine.index, wanted))

            machine.cluster.membership_store.exchange(
                None, "", lambda *told: machine.saves.then(lambda: answered(*told))
            )

    def do(self, job: Job) -> None:
        """Change the store, if it can be reached and keeps what it is said to keep."""
        job.is_done = True
        if not self.reachable[job.index]:
            return
        if job.wanted["record"] is not None and (
            not self.compares or self.kept.is_same(read_record(job.wanted["instead"]))
        ):
            self.kept = read_record(job.wanted["record"])
            self.history.append(self.kept)
        job.kept = self.kept

    def tell(self, job: Job, machine: Machine) -> None:
        """Tell a broker what is kept."""
        kept = fields_of(job.kept) if job.kept is not None else None
        machine.cluster.membership_store.exchange(
            kept, "" if kept is not None else "not quorate", lambda error, wanted: None
        )
        machine.end_turn()

    def work(self, machine: Machine) -> bool:
        """Do all that a broker wants, at once; False if it wants nothing."""
        if not self.answers or not self.reachable[machine.index]:
            return False
        self.ask(machine)
        mine = [job for job in self.jobs if job.index == machine.index]
        for job in mine:
            self.jobs.remove(job)
            self.do(job)
            self.tell(job, machine)
        return bool(mine)


class Machine:
    """One HA machine and its port."""

    def __init__(
        self,
        world: World,
        index: int,
        saved: bytes = b"",
        *,
        life: int = 0,
        files: Files | None = None,
        system_id: str = "",
    ) -> None:
        self.world = world
        self.index = index
        self.system_id = system_id or f"{index}-broker"
        self.life = life
        self.disk: FakeDisk | None = None
        wal = None
        if world.durable:
            self.disk = FakeDisk(self.post, world.rng, files)
            wal = WriteAheadLog(self.disk, self.system_id, segment_size=4096, keep=world.log_disk)
        self.log = Log(world.log_limit, wal)
        self.spoiled: set[bytes] = set()
        """Batches and chunks that cannot be read, once."""
        self.pending = PendingAcknowledgements()
        self.saves = Saves()
        self.saved = saved
        self.unsaved: tuple[int, bytes] | None = None
        """What the state file is to be, where that takes time; the last one is enough."""
        self.state_hangs = False
        self._saving_since = 0
        self.model: dict[int, str] = {}
        self.accepted: list[str] = []
        self.said: list[str] = []
        if wal is not None:
            reader = LogReader(wal, self.system_id)
            for part in reader.chunks():
                self.apply(part.data)
            self.log.recover(reader)
        address = world.addresses[index]
        self.cluster = Cluster(
            self,
            self.log,
            world.settings,
            system_id=self.system_id,
            name=address,
            address=address,
            saved=SavedState.decode(saved, self.log.epoch),
        )
        self.event_log = EventSink()
        self.is_asked = False
        self.paused = False
        self.frozen = False
        self.disk_hangs = False
        self.inbox: deque[tuple[str, int, bytes]] = deque()
        self.ahead = self.heard_time = 0

    @property
    def now(self) -> int:
        return self.world.now

    @property
    def state(self) -> BrokerStatus:
        return self.cluster.state

    def post(self, event: Event) -> None:
        assert isinstance(event, LogWritten)
        self.log.answer(event.mark)

    def write_state(self) -> bool:
        """Let the state file be written; False if there is nothing to write."""
        if self.unsaved is None or self.state_hangs:
            return False
        (mark, self.saved), self.unsaved = self.unsaved, None
        self.saves.over(mark)
        self.end_turn()
        return True

    def pump(self) -> bool:
        """Let the disk do one thing; False if it has nothing to do."""
        if self.disk is None or self.disk_hangs or not self.disk._queue:
            return False
        self.disk.pump()
        self.end_turn()
        return True

    @property
    def time(self) -> int:
        return self.world.now + self.ahead

    def hear_time(self, time: int) -> None:
        self.heard_time = time

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        return self.world.connect(self, port - 5000)

    def hang_up(self, connection_id: int) -> None:
        self.world.close(connection_id)

    def send(self, connection_id: int, data: bytes | Parts) -> None:
        self.saves.then(lambda: self.tell(connection_id, data))

    def tell(self, connection_id: int, data: bytes | Parts) -> None:
        parts = (data,) if isinstance(data, bytes) else data
        self.world.carry(self, connection_id, b"".join(parts))

    is_awaited = is_hurried = True

    def is_awaited_before(self, sequence: int) -> bool:
        return True

    def when_saved(self, action: Callable[[], None]) -> None:
        self.saves.then(action)

    def credit(self, connection_id: int) -> int:
        return 1000

    @property
    def saving_since(self) -> int:
        return 0 if self.saves.is_idle else self._saving_since

    def save(self, data: bytes) -> None:
        if self.saves.is_idle:
            self._saving_since = self.now
        mark = self.saves.begin()
        if self.world.slow_state or self.state_hangs:
            self.unsaved = (mark, data)
        else:
            self.saved = data
            self.saves.over(mark)

    def announce(self, level: str, text: str, **fields: object) -> None:
        self.said.append(f"{level}: {text}")

    def state_changed(self, state: BrokerStatus) -> None:
        if state in (BrokerStatus.RECOVERING, BrokerStatus.JOINING):
            self.pending.clear(self.log.committed)

    def on_committed(self, committed: int | str) -> None:
        if isinstance(committed, str):
            self.accepted.append(committed)
        else:
            primary = self.cluster.primary
            self.saves.then(lambda: self._release(committed, primary))

    def _release(self, committed: int, primary: object) -> None:
        if self.cluster.primary is primary:
            self.pending.release(committed)

    def freeze(self, frozen: bool) -> None:
        self.frozen = frozen

    def apply(self, data: bytes, *, is_snapshot: bool = False) -> None:
        for entry in decode(data):
            assert not isinstance(entry, EnqueueRun)
            sequence, record = entry
            self._read(data)
            if isinstance(record, QueueDeclared):
                self.model[sequence] = record.name

    def forget(self) -> None:
        self.model.clear()

    def _read(self, data: bytes) -> None:
        whole = data if isinstance(data, bytes) else b"".join(data)
        if whole in self.spoiled:
            self.spoiled.discard(whole)
            raise ProtocolViolation("nobody can read this")

    def ha_records(self, data: bytes) -> list[tuple[int, Record]]:
        self._read(data)
        return [
            e
            for e in decode(data)
            if not isinstance(e, EnqueueRun) and isinstance(e[1], HA_RECORDS)
        ]

    def snapshot(self, last: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
        return iter(()), self._words_until(last)

    def _words_until(self, last: int) -> Iterator[bytes]:
        for sequence in sorted(self.model):
            if sequence <= last and sequence in self.model:
                yield encode_record(sequence, QueueDeclared(self.model[sequence], ""))

    # -- what a client does -----------------------------------------------------------------------

    def end_turn(self) -> None:
        """End a turn in which there is time for everything."""
        self.cluster.flush(self.now)
        self.cluster.look(self.now)

    def publish(self, word: str) -> None:
        assert self.cluster.primary is not None
        self.log.must_sync = True
        sequence = self.log.append(QueueDeclared(word, ""))
        self.model[sequence] = word
        self.pending.add(sequence, self, word)
        self.end_turn()

    def promote(self, *, accept_loss: bool = False, forget: str = "") -> list[QpidHaError | None]:
        replies: list[QpidHaError | None] = []
        self.cluster.promote(
            lambda error: self.saves.then(lambda: replies.append(error)), accept_loss, forget
        )
        return replies

    def switchover(
        self, target: str = ""
    ) -> list[tuple[QpidHaError | None, dict[str, object] | None]]:
        replies: list[tuple[QpidHaError | None, dict[str, object] | None]] = []
        self.cluster.switchover(target, lambda error, found: replies.append((error, found)))
        self.end_turn()
        return replies

    def compare(
        self, forget: str = ""
    ) -> list[tuple[QpidHaError | None, dict[str, object] | None]]:
        replies: list[tuple[QpidHaError | None, dict[str, object] | None]] = []
        self.cluster.compare(lambda error, found: replies.append((error, found)), forget)
        return replies

    @property
    def words(self) -> list[str]:
        return [self.model[sequence] for sequence in sorted(self.model)]


class World:
    """Machines, and the connections between them."""

    def __init__(
        self,
        n: int = 3,
        *,
        log_limit: int = 1 << 20,
        backup_timeout: int = 10 * SECOND,
        safety: str = "trust-manager",
        min_in_sync: int = 1,
        durable: bool = False,
        log_disk: int = 1 << 20,
        seed: int = 1,
        recorder: str = "brokers",
        slow_state: bool = False,
        absent: tuple[int, ...] = (),
    ) -> None:
        self.now = SECOND
        self.slow_state = slow_state
        """Whether a state file is written when somebody lets it, as a disk is pumped."""
        self.store = Store(n) if recorder == "manager" else None
        self.durable = durable
        self.log_disk = log_disk
        self.rng = random.Random(seed)
        self.log_limit = log_limit
        self.addresses = [f"host{i}:{5000 + i}" for i in range(n)]
        self.settings = Settings(
            ha_cluster=True,
            ha_safety=safety,
            ha_brokers_url=parse_url(",".join(self.addresses)),
            ha_backup_timeout=backup_timeout,
            link_heartbeat_interval=SECOND,
            link_maintenance_interval=SECOND // 10,
            ha_min_in_sync=min_in_sync,
            ha_recorder=recorder,
        )
        self.ends: dict[int, tuple[Machine, Machine]] = {}
        self.next_id = 0
        self.dead: set[int] = set(absent)
        self.refused: set[tuple[int, int]] = set()
        """Who cannot open a connection to whom."""
        self.machines = [Machine(self, i) for i in range(n)]
        for machine in self.machines:
            if machine.index not in absent:
                machine.cluster.start()
        self.settle()

    def connect(self, caller: Machine, index: int) -> int:
        self.next_id += 1
        connection_id = self.next_id
        callee = self.machines[index]
        if index in self.dead or (caller.index, index) in self.refused:
            caller.inbox.append(("lost", connection_id, b"refused"))
            return connection_id
        self.ends[connection_id] = (caller, callee)
        callee.inbox.append(("called", connection_id, caller.system_id.encode()))
        return connection_id

    def carry(self, sender: Machine, connection_id: int, data: bytes) -> None:
        if connection_id in self.ends:
            caller, callee = self.ends[connection_id]
            (callee if sender is caller else caller).inbox.append(("said", connection_id, data))

    def close(self, connection_id: int) -> None:
        ends = self.ends.pop(connection_id, None)
        for machine in ends or ():
            machine.inbox.append(("lost", connection_id, b"closed"))

    def step_one(self, choose: Callable[[list[Machine]], Machine]) -> bool:
        """Deliver one message to a machine of somebody's choice; False if there is none to
        deliver.
        """
        able = [m for m in self.machines if m.inbox and not m.paused and m.index not in self.dead]
        if not able:
            return False
        machine = choose(able)
        self._deliver(machine, *machine.inbox.popleft())
        machine.end_turn()
        return True

    def settle(self) -> None:
        """Deliver everything until nobody has anything to do at this time."""
        for _ in range(10_000):
            busy = False
            for machine in self.machines:
                if machine.paused or machine.index in self.dead:
                    continue
                busy = machine.write_state() or busy
                busy = machine.pump() or busy
                busy = (self.store is not None and self.store.work(machine)) or busy
                if machine.inbox:
                    busy = True
                    self._deliver(machine, *machine.inbox.popleft())
                    machine.end_turn()
            if not busy:
                return
        raise AssertionError("the cluster never comes to rest")

    def _deliver(self, machine: Machine, kind: str, connection_id: int, data: bytes) -> None:
        cluster = machine.cluster
        if kind == "called":
            if connection_id in self.ends:
                self.ends[connection_id][0].inbox.append(("opened", connection_id, b""))
                name = data.decode()
                cluster.called(connection_id, name, name, frozenset(FEATURES))
        elif kind == "opened":
            cluster.opened(connection_id)
        elif kind == "lost":
            cluster.lost(connection_id, data.decode(), reached=data != b"refused")
        elif connection_id in self.ends:
            cluster.on_message(connection_id, decode_message(data))

    def run(self, seconds: float) -> None:
        """Let time go by."""
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now += SECOND // 50
            for machine in self.machines:
                if not machine.paused and machine.index not in self.dead:
                    machine.cluster.tick(self.now)
                    machine.end_turn()
            self.settle()

    def kill(self, index: int) -> None:
        self.dead.add(index)
        machine = self.machines[index]
        machine.inbox.clear()
        for connection_id, ends in list(self.ends.items()):
            if machine in ends:
                self.close(connection_id)
        machine.inbox.clear()
        self.settle()

    def restart(self, index: int) -> Machine:
        """Start a killed broker again, with its state file and, in a durable world, its disk."""
        machine = self.revive(index)
        self.settle()
        self.run(0.5)
        return machine

    def revive(self, index: int, how: str = "lose") -> Machine:
        """Start a killed broker again, and let nothing else happen; `how` is what its disk went
        through.
        """
        self.dead.discard(index)
        old = self.machines[index]
        if old.disk is not None:
            old.disk.crash(how)
        files = old.disk.files if old.disk is not None else None
        saved = old.saved
        if old.unsaved is not None and self.rng.random() < 0.5:
            saved = old.unsaved[1]  # it was on disk, and nobody had been told
        machine = self.machines[index] = Machine(
            self, index, saved, life=old.life + 1, files=files, system_id=old.system_id
        )
        machine.cluster.start()
        return machine

    def replace(self, index: int) -> Machine:
        """Start a new broker in the place of a killed one whose disk was lost."""
        self.dead.discard(index)
        life = self.machines[index].life + 1
        machine = Machine(self, index, life=life, system_id=f"{index}-new-{life}")
        self.machines[index] = machine
        machine.cluster.start()
        self.settle()
        self.run(0.5)
        return machine

    def part(self, *groups: tuple[int, ...]) -> None:
        """Cut the brokers of each group off from those of the others; no group joins all."""
        self.refused = {
            (one, other)
            for group in groups
            for one in group
            for rest in groups
            if rest is not group
            for other in rest
        }
        for connection_id, (caller, callee) in list(self.ends.items()):
            if (caller.index, callee.index) in self.refused:
                self.close(connection_id)
        self.settle()

    def cut(self, index: int) -> None:
        """Close every connection of a broker, as a peer that sees no heartbeat does."""
        for connection_id, ends in list(self.ends.items()):
            if self.machines[index] in ends:
                self.close(connection_id)


def after(world: World, machine: Machine, **options: Any) -> str:
    """Return why a broker was refused, empty if it was promoted."""
    replies: list[QpidHaError | None] = machine.promote(**options)
    world.run(6)
    (reply,) = replies
    return "" if reply is None else reply.text


def publish(world: World, index: int, word: str) -> bool:
    """Return whether a primary accepts a word."""
    world.machines[index].publish(word)
    world.run(0.5)
    return word in world.machines[index].accepted
