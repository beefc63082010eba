"""A broker whose disk does not give back what was written ends at once, says once why and what to
do, and tells nobody else anything.
"""

from __future__ import annotations

import random
from zlib import crc32

from qpidha.amqp.peer.sasl import Users
from qpidha.model.effects import SaveState, SendBytes, Stop
from qpidha.model.events import Event, Tick
from qpidha.model.message import Message
from qpidha.model.settings import Settings
from qpidha.node import Node
from qpidha.store.frames import decode_frame
from tests.sim.disk import FakeDisk
from tests.store.durable import SYSTEM_ID, a_message

SECOND = 1_000_000_000


class Reader:
    """A consumer that needs the bytes."""

    browse = exclusive = is_selective = False
    selector = None
    priority = 0
    credit = 100
    cursor = 0

    def __init__(self) -> None:
        self.read: list[bytes] = []

    def accepts(self, message: Message) -> bool:
        return True

    def refuse(self, message: Message) -> None:
        """It takes everything."""

    def deliver(self, message: Message) -> None:
        self.read.append(message.body())

    def timeout_changed(self) -> None:
        """Take no heed of it."""

    def searched(self) -> None:
        """It waits for nothing."""

    def queue_deleted(self) -> None:
        """It has nothing to end."""


def a_node(events: list[Event]) -> tuple[Node, FakeDisk]:
    disk = FakeDisk(events.append, random.Random(1))
    settings = Settings(journal_segment_size=4096, queue_memory=1)
    node = Node(
        settings,
        system_id=SYSTEM_ID,
        users=Users.parse(""),
        state=b"",
        address="host:1",
        make_uuid=lambda: "uuid",
        disk=disk,
    )
    return node, disk


def test_a_body_that_cannot_be_read_back_ends_the_broker() -> None:
    events: list[Event] = []
    node, disk = a_node(events)
    node.start(SECOND)
    node.broker.declare_queue("q", durable=True)
    for number in range(3):
        node.broker.publish("", "q", a_message(b"%d" % number), headers=dict)
    for second in range(2, 6):
        taken, events[:] = list(events), []
        node.step([*taken, Tick()], second * SECOND)
        while disk.pump():
            pass
    queue = node.broker.queue("q")
    assert queue.paged_out
    head = decode_frame(next(iter(disk.files.written.values())))
    assert head is not None and head.first == crc32(b"uuid")  # the salt: what no client knows
    disk.files.written = {name: content[:-1] + b"?" for name, content in disk.files.written.items()}
    node.wal._cache.clear()  # type: ignore[union-attr]
    queue.subscribe(Reader())  # type: ignore[arg-type]
    effects = node.step([Tick()], 9 * SECOND)
    (stop,) = [effect for effect in effects if isinstance(effect, Stop)]
    assert stop.failed
    assert "write-ahead log file" in stop.reason
    assert "qpid-ha journal verify" in stop.reason
    assert not [effect for effect in effects if isinstance(effect, SendBytes | SaveState)]
    assert node.step([Tick()], 10 * SECOND) == []
