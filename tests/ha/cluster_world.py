"""A world of HA machines without brokers: ordered connections, one clock, and lists of words in place of queues.

Each machine has a real Log; what a test appends as `QueueDeclared` named after a word is that word's
record. `model` is what the machine folded, so tests compare models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from qpidha.ha.holds import Holds
from qpidha.ha.in_sync import SavedState
from qpidha.ha.role import Cluster
from qpidha.ha.status import BrokerStatus
from qpidha.ha.wire import decode as decode_spoken
from qpidha.store.codec import EnqueueRun, decode, encode_record
from qpidha.store.log import Log
from qpidha.words.errors import QpidHaError
from qpidha.words.records import HA_RECORDS, QueueDeclared, Record
from qpidha.words.settings import Settings
from qpidha.words.url import parse_url

SECOND = 1_000_000_000


class Machine:
    """One HA machine and its port."""

    def __init__(self, world: World, index: int, saved: bytes = b"", *, life: int = 0) -> None:
        self.world = world
        self.index = index
        self.system_id = f"{index}-broker"
        self.life = life
        self.log = Log(world.log_limit)
        self.holds = Holds()
        self.saved = saved
        self.model: dict[int, str] = {}
        self.accepted: list[str] = []
        self.said: list[str] = []
        address = world.addresses[index]
        self.cluster = Cluster(
            self, self.log, world.settings, system_id=self.system_id, name=address, address=address, saved=SavedState.decode(saved)
        )
        self.paused = False
        self.inbox: deque[tuple[str, int, bytes]] = deque()

    @property
    def now(self) -> int:
        return self.world.now

    @property
    def state(self) -> BrokerStatus:
        return self.cluster.state

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        return self.world.connect(self, port - 5000)

    def hang_up(self, connection_id: int) -> None:
        self.world.close(connection_id)

    def say(self, connection_id: int, data: bytes) -> None:
        self.world.carry(self, connection_id, data)

    def credit(self, connection_id: int) -> int:
        return 1000

    def save(self, data: bytes) -> None:
        self.saved = data

    def announce(self, level: str, text: str, **fields: object) -> None:
        self.said.append(f"{level}: {text}")

    def state_changed(self, state: BrokerStatus) -> None:
        if state in (BrokerStatus.RECOVERING, BrokerStatus.JOINING):
            self.holds.clear(self.log.safe)

    def released(self, safe: int | str) -> None:
        if isinstance(safe, str):
            self.accepted.append(safe)
        else:
            self.holds.release(safe)

    def apply(self, data: bytes) -> None:
        for entry in decode(data):
            assert not isinstance(entry, EnqueueRun)
            sequence, record = entry
            if isinstance(record, QueueDeclared):
                self.model[sequence] = record.name

    def forget(self) -> None:
        self.model.clear()

    def ha_records(self, data: bytes) -> list[tuple[int, Record]]:
        return [e for e in decode(data) if not isinstance(e, EnqueueRun) and isinstance(e[1], HA_RECORDS)]

    def snapshot(self, last: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
        return iter(()), self._words_until(last)

    def _words_until(self, last: int) -> Iterator[bytes]:
        for sequence in sorted(self.model):
            if sequence <= last and sequence in self.model:
                yield encode_record(sequence, QueueDeclared(self.model[sequence], ""))

    # -- what a client does -----------------------------------------------------------------------

    def publish(self, word: str) -> None:
        assert self.cluster.primary is not None
        sequence = self.log.append(QueueDeclared(word, ""))
        self.model[sequence] = word
        self.holds.add(sequence, self, word)
        self.cluster.flush(self.now)

    def promote(self) -> list[QpidHaError | None]:
        replies: list[QpidHaError | None] = []
        self.cluster.promote(replies.append)
        return replies

    @property
    def words(self) -> list[str]:
        return [self.model[sequence] for sequence in sorted(self.model)]


class World:
    """Machines, and the connections between them."""

    def __init__(self, n: int = 3, *, log_limit: int = 1 << 20, backup_timeout: int = 10 * SECOND, safety: str = "trust-manager") -> None:
        self.now = SECOND
        self.log_limit = log_limit
        self.addresses = [f"host{i}:{5000 + i}" for i in range(n)]
        self.settings = Settings(
            ha_cluster=True, ha_safety=safety, ha_brokers_url=parse_url(",".join(self.addresses)), ha_backup_timeout=backup_timeout,
            link_heartbeat_interval=SECOND, link_maintenance_interval=SECOND // 10,
        )  # fmt: skip
        self.ends: dict[int, tuple[Machine, Machine]] = {}
        self.next_id = 0
        self.dead: set[int] = set()
        self.machines = [Machine(self, i) for i in range(n)]
        for machine in self.machines:
            machine.cluster.start()
        self.settle()

    def connect(self, caller: Machine, index: int) -> int:
        self.next_id += 1
        connection_id = self.next_id
        callee = self.machines[index]
        if index in self.dead:
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
        """Deliver one message to a machine of somebody's choice; False if there is none to deliver."""
        able = [m for m in self.machines if m.inbox and not m.paused and m.index not in self.dead]
        if not able:
            return False
        machine = choose(able)
        self._deliver(machine, *machine.inbox.popleft())
        machine.cluster.flush(self.now)
        return True

    def settle(self) -> None:
        """Deliver everything until nobody has anything to do at this time."""
        for _ in range(10_000):
            busy = False
            for machine in self.machines:
                if machine.paused or machine.index in self.dead or not machine.inbox:
                    continue
                busy = True
                self._deliver(machine, *machine.inbox.popleft())
                machine.cluster.flush(self.now)
            if not busy:
                return
        raise AssertionError("the cluster never comes to rest")

    def _deliver(self, machine: Machine, kind: str, connection_id: int, data: bytes) -> None:
        cluster = machine.cluster
        if kind == "called":
            if connection_id in self.ends:
                self.ends[connection_id][0].inbox.append(("opened", connection_id, b""))
                cluster.called(connection_id, data.decode(), data.decode())
        elif kind == "opened":
            cluster.opened(connection_id)
        elif kind == "lost":
            cluster.lost(connection_id, data.decode(), reached=data != b"refused")
        elif connection_id in self.ends:
            cluster.heard(connection_id, decode_spoken(data))

    def run(self, seconds: float) -> None:
        """Let time go by."""
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now += SECOND // 50
            for machine in self.machines:
                if not machine.paused and machine.index not in self.dead:
                    machine.cluster.tick(self.now)
                    machine.cluster.flush(self.now)
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
        """Start a killed broker again, with its state file and nothing else."""
        self.dead.discard(index)
        old = self.machines[index]
        machine = self.machines[index] = Machine(self, index, old.saved, life=old.life + 1)
        machine.cluster.start()
        self.settle()
        self.run(0.5)
        return machine

    def cut(self, index: int) -> None:
        """Close every connection of a broker, as a peer that sees no heartbeat does."""
        for connection_id, ends in list(self.ends.items()):
            if self.machines[index] in ends:
                self.close(connection_id)
