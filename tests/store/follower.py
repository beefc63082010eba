"""A backup with a write-ahead log on a fake disk, and the primary that it follows, which keeps all
that it ever had.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from typing import Any

from qpidha.broker.broker import Broker
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.ha.backup import Backup, FromPrimary
from qpidha.ha.in_sync import SavedState
from qpidha.ha.peers import Peer
from qpidha.ha.promises import Promises
from qpidha.ha.states import StateMachine
from qpidha.ha.wire import Begin, Chunk, Confirm, Logged, SnapshotEnd, Subscribe, decode
from qpidha.model.broker_states import JOINING, BrokerStatus
from qpidha.model.events import Event, LogFailed, LogWritten
from qpidha.model.records import Batch, EpochStarted, Record
from qpidha.model.settings import Settings
from qpidha.model.url import Address
from qpidha.store.checkpointer import Checkpointer
from qpidha.store.log import Log
from qpidha.store.recovery import fold, ha_records, snapshot_messages, snapshot_objects
from qpidha.store.write_ahead_log import WriteAheadLog
from tests.sim.disk import FakeDisk, Files
from tests.store.durable import SYSTEM_ID, a_message

State = dict[str, dict[int, bytes]]


def state_of(broker: Broker) -> State:
    """Read everything that is on the queues of a model."""
    queues = [queue for queue in broker.queues.values() if queue.uid > 0]
    return {
        f"{queue.name} {queue.uid}": {
            m.sequence: m.body() for m in sorted(queue.messages.values(), key=by_sequence)
        }
        for queue in queues
    }


def by_sequence(message: object) -> int:
    return message.sequence  # type: ignore[attr-defined, no-any-return]


class Source:
    """A primary of one epoch, without a disk; it goes on where another one was."""

    def __init__(self, batches: list[Batch], epoch: int) -> None:
        numbers = count(1)
        self.log = Log(1 << 40)
        self.broker = Broker(
            Settings(ha_replicate="all"),
            None,
            lambda effect: None,
            lambda: f"uuid-{epoch}-{next(numbers)}",
        )
        self.batches = list(batches)
        for batch in batches:
            self.log.receive(batch)
            fold(self.broker, batch.data)
        self.log.start_epoch(epoch)
        self.log.append(EpochStarted("x", ("x",)))
        self.broker.log_writer = self.log
        self.broker.promoted(0)
        self.seal()

    def seal(self) -> None:
        last = self.log.last
        self.log.seal()
        self.batches += self.log.batches(last + 1)

    def work(self, rng: random.Random) -> None:
        """Do something, and seal it."""
        name = rng.choice(["a", "b"])
        roll = rng.random()
        if name not in self.broker.queues:
            self.broker.declare_queue(name, durable=True)
        queue = self.broker.queue(name)
        if roll < 0.55:
            for _ in range(rng.randint(1, 20)):
                self.broker.publish(
                    "",
                    name,
                    a_message(b"%d" % rng.randrange(1 << 60) * rng.randint(1, 5)),
                    headers=dict,
                )
        elif roll < 0.85:
            for message in queue.available()[: rng.randint(1, 20)]:
                queue.acquire(message)
                queue.dequeue(message)
        elif roll < 0.9:
            self.broker.delete_queue(name)
        else:
            for message in queue.available()[:2]:
                queue.acquire(message)
                queue.requeue(message, failed=True)
        self.seal()

    def resume_point(self, request: Subscribe) -> int:
        """Do as a primary does."""
        for epoch, sequence in (
            (request.epoch, request.sequence),
            (request.applied_epoch, request.applied),
        ):
            point = self.log.common_point(epoch, sequence)
            if point >= request.applied and point + 1 >= self.log.start:
                return point
        return -1

    def state_at(self, sequence: int) -> State:
        """Fold the log up to a record."""
        broker = Broker(Settings(ha_replicate="all"), None, lambda effect: None, lambda: "")
        for batch in self.batches:
            if batch.last <= sequence:
                fold(broker, batch.data)
        return state_of(broker)


class Follower:
    """The backup, and its side of the link."""

    def __init__(
        self, files: Files | None = None, *, seed: int = 1, most: int = UNLIMITED, **options: object
    ) -> None:
        """`most` is how many bytes of messages may be in memory."""
        self.options = options
        self.settings = Settings(ha_replicate="all", **{"journal_segment_size": 4096, **options})  # type: ignore[arg-type]
        self.files = files if files is not None else Files()
        self.rng = random.Random(seed)
        self.now = 0
        self.failed = ""
        self.said: list[object] = []
        self.disk = FakeDisk(self._post, self.rng, self.files)
        self.wal = WriteAheadLog(
            self.disk,
            SYSTEM_ID,
            segment_size=self.settings.journal_segment_size,
            keep=self.settings.log_disk,
        )
        self.log = Log(self.settings.log_memory, self.wal)
        self.broker = Broker(self.settings, None, lambda effect: None, lambda: "")
        self.broker.passive = True
        self.checkpointer = Checkpointer(
            self.broker,
            self.log,
            self.wal,
            system_id=SYSTEM_ID,
            segment_size=self.settings.journal_segment_size,
            most_memory=most,
        )
        self.checkpointer.recover(alone=False)
        port: Any = self
        state = StateMachine(port, lambda: None)
        state.change(JOINING)
        self.backup = Backup(
            port,
            self.log,
            Promises(port, SYSTEM_ID, SavedState(), lambda: None),
            state,
            lambda: None,
            applied=self.log.committed,
            snapshot_through=self.log.snapshot_through,
        )
        self.source: Source | None = None
        self.chunks: Iterator[tuple[int, bytes]] | None = None
        self.batch = 0
        """Index of the next batch to come."""
        self.has_objects = False

    def _post(self, event: Event) -> None:
        if isinstance(event, LogWritten):
            self.log.answer(event.mark)
        elif isinstance(event, LogFailed):
            self.failed = event.reason

    # What the role asks of the node.

    def send(self, connection_id: int, data: bytes) -> None:
        self.said.append(decode(data))

    time = 0

    def hear_time(self, time: int) -> None:
        """Nothing expires here."""

    def announce(self, level: str, text: str, **fields: object) -> None:
        """Nobody listens."""

    def apply(self, data: bytes, *, is_snapshot: bool = False) -> None:
        fold(self.broker, data, is_snapshot=is_snapshot)

    def forget(self) -> None:
        self.broker.reset(keep_local=True)

    def ha_records(self, data: bytes) -> list[tuple[int, Record]]:
        return ha_records(data)

    def save(self, data: bytes) -> None:
        """Nobody reads it."""

    def state_changed(self, state: BrokerStatus) -> None:
        """Nobody is admitted or refused."""

    def hang_up(self, connection_id: int) -> None:
        raise AssertionError("what the source sent was refused")

    # What comes over the link.

    def receive(self, message: FromPrimary) -> None:
        """Take a message of the primary."""
        self.backup.on_message(1, message)

    def follow(self, source: Source) -> None:
        """Subscribe, and hear from where on the log comes."""
        self.said.clear()
        peer = Peer(Address("amqp", "host", 1))
        peer.connection_id = 1
        self.backup.follow(peer)
        (request,) = self.said
        assert isinstance(request, Subscribe)
        log = source.log
        point = source.resume_point(request)
        is_snapshot = point < 0
        if is_snapshot:
            point = log.last
            parts = [*snapshot_objects(source.broker), b""]
            self.chunks = enumerate(self._snapshot(source, parts, point), 1)
        else:
            self.chunks = None
        self.has_objects = not is_snapshot
        self.batch = next(
            (index for index, batch in enumerate(source.batches) if batch.first > point),
            len(source.batches),
        )
        history = list(log.history) if is_snapshot else []
        self.receive(Begin(log.epoch_of(point), point, log.end, is_snapshot, history, 1, 1, ()))
        self.source = source

    def _snapshot(self, source: Source, parts: list[bytes], point: int) -> Iterator[bytes]:
        yield from parts
        yield from snapshot_messages(source.broker, point)

    def hear(self) -> None:
        """Take the next thing from the primary, if there is one."""
        source = self.source
        assert source is not None
        if self.chunks is not None and (not self.has_objects or self.rng.random() < 0.4):
            number, data = next(self.chunks, (0, b""))
            if number:
                self.number = number
                self.has_objects = self.has_objects or not data
                self.receive(Chunk(number, data))
            else:
                self.chunks = None
                self.receive(SnapshotEnd(self.number + 1, source.log.end))
        elif self.batch < len(source.batches):
            self.receive(Logged(source.log.committed, source.batches[self.batch]))
            self.batch += 1

    def turn(self, *, pumps: int = 1000) -> None:
        """End a turn, and let the disk do up to so many things."""
        self.backup.flush()
        self.checkpointer.turn(self.backup.applied)
        for _ in range(pumps):
            if not self.disk.pump():
                break
        assert not self.failed, self.failed

    def confirmed(self) -> Confirm:
        """What the primary may rely on now."""
        self.backup.flush()
        return Confirm(self.log.epoch, self.log.durable_to, self.backup.chunks)
