"""A broker alone with a write-ahead log on a fake disk: what the store's own tests work with."""

from __future__ import annotations

import random
from itertools import count

from qpidha.broker.broker import Broker
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.model.events import Event, LogFailed, LogWritten
from qpidha.model.settings import Settings
from qpidha.store.checkpointer import Checkpointer
from qpidha.store.log import Log
from qpidha.store.memory import LOW, Memory
from qpidha.store.write_ahead_log import WriteAheadLog
from tests.sim.disk import FakeDisk, Files

DURABLE = b"\x00Sp\xc0\x02\x01A"
"""A header section that says durable."""
SYSTEM_ID = "00000000-0000-4000-8000-000000000001"


def a_message(body: bytes, *, durable: bool = True) -> bytes:
    return (DURABLE if durable else b"") + b"\x00Su\xa0" + bytes([len(body)]) + body


class Machine:
    """A durable broker, and the machine it runs on."""

    def __init__(
        self, files: Files | None = None, *, seed: int = 1, limit: int = 0, **options: object
    ) -> None:
        """`limit` is that of the memory, in bytes; 0 for none."""
        self.settings = Settings(ha_replicate="all", **{"journal_segment_size": 4096, **options})  # type: ignore[arg-type]
        self.files = files if files is not None else Files()
        self.rng = random.Random(seed)
        self.failed = ""
        self.disk = FakeDisk(self._post, self.rng, self.files)
        numbers = count(1)
        size, keep = self.settings.journal_segment_size, self.settings.log_disk
        self.wal = WriteAheadLog(
            self.disk, SYSTEM_ID, segment_size=size, keep=keep, nonce=str(seed)
        )
        self.log = Log(self.settings.log_memory, self.wal)
        self.broker = Broker(
            self.settings, None, lambda effect: None, lambda: f"uuid-{next(numbers)}"
        )
        self.checkpointer = Checkpointer(
            self.broker,
            self.log,
            self.wal,
            system_id=SYSTEM_ID,
            segment_size=self.settings.journal_segment_size,
            most_memory=limit * LOW // 100 or UNLIMITED,
        )
        self.notes = [
            said.text for said in self.checkpointer.recover(alone=True) if said.level == "warning"
        ]
        self.log.start_epoch(self.log.epoch + 1)
        self.broker.log_writer = self.log
        self.broker.promoted(0)
        self.memory = Memory(limit, self.broker, self.log, self.wal, self.checkpointer.weighing)
        self.now = 1

    def _post(self, event: Event) -> None:
        if isinstance(event, LogWritten):
            self.log.answer(event.mark)
        elif isinstance(event, LogFailed):
            self.failed = event.reason

    def turn(self, *, pumps: int = 1000) -> None:
        """End a turn, and let the disk do up to so many things."""
        self.log.seal()
        self.log.committed = self.log.durable_to
        self.checkpointer.turn(self.log.last)
        self.memory.turn(self.now)
        for _ in range(pumps):
            if not self.disk.pump():
                break
        assert not self.failed, self.failed
        self.log.committed = self.log.durable_to

    def settle(self) -> None:
        """Turn until a checkpoint that is under way is done."""
        self.turn()
        while self.checkpointer.is_busy or self.wal.is_snapshotting:
            self.turn()

    def restart(self, how: str = "keep", **options: object) -> Machine:
        """Crash, and start again with what is left."""
        self.disk.crash(how)
        return Machine(self.files, seed=self.rng.randrange(1 << 30), **options)

    def publish(self, queue: str, *bodies: bytes, durable: bool = True) -> None:
        for body in bodies:
            self.broker.publish("", queue, a_message(body, durable=durable), headers=dict)

    def take(self, queue: str, n: int = 1) -> list[bytes]:
        found = []
        for message in list(self.broker.queue(queue).messages.values())[:n]:
            found.append(message.body())
            self.broker.queue(queue).acquire(message)
            self.broker.queue(queue).dequeue(message)
        return found

    def bodies(self, queue: str) -> list[bytes]:
        found = self.broker.queue(queue)
        return [
            found.messages[sequence].body()[len(a_message(b"")) :]
            for sequence in found.ordered()
            if sequence in found.messages
        ]
