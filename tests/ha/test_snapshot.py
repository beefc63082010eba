"""A backup that needs a snapshot of a broker that goes on working: both roles, with their broker
models, face to face.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from qpidha.broker.broker import Broker
from qpidha.ha.backup import Backup
from qpidha.ha.in_sync import InSyncSet, SavedState
from qpidha.ha.peers import Peer
from qpidha.ha.primary import (
    BATCH_BYTES,
    BATCHES_A_TURN,
    BATCHES_IN_FLIGHT,
    BYTES_IN_FLIGHT,
    CATCH_UP_WINDOW,
    CHUNKS_IN_FLIGHT,
    LARGE_BATCH,
    WINDOW,
    Primary,
)
from qpidha.ha.promises import Promises
from qpidha.ha.states import StateMachine
from qpidha.ha.wire import Chunk, Confirm, Logged, Subscribe, decode
from qpidha.model.broker_states import JOINING
from qpidha.model.encoding import Parts
from qpidha.model.event_log import EventSink
from qpidha.model.records import Record
from qpidha.model.settings import Settings
from qpidha.model.url import Address
from qpidha.store.log import Log
from qpidha.store.recovery import fold, ha_records, snapshot_messages, snapshot_objects

LINK = 7


class Side:
    """A broker model, a log, and what was said to the other side."""

    now = saving_since = 0
    is_awaited = is_hurried = False
    awaited = 0
    """A sequence that a client waits for."""

    def __init__(self, log_memory: int) -> None:
        numbers = count(1)
        self.settings = Settings(ha_cluster=True, ha_replicate="all")
        self.broker = Broker(
            self.settings, None, lambda effect: None, lambda: f"uuid-{next(numbers)}"
        )
        self.log = Log(log_memory)
        self.said: list[bytes] = []
        self.hung_up = False
        self.room = 1000
        """Credit that the other side gives."""
        self.event_log = EventSink()

    def is_awaited_before(self, sequence: int) -> bool:
        return self.log.last < self.awaited < sequence

    def send(self, connection_id: int, data: bytes | Parts) -> None:
        self.said.append(data if isinstance(data, bytes) else b"".join(data))

    def tell(self, connection_id: int, data: bytes | Parts) -> None:
        self.said.append(data if isinstance(data, bytes) else b"".join(data))

    def when_saved(self, action: Callable[[], None]) -> None:
        action()

    def credit(self, connection_id: int) -> int:
        return self.room

    def hang_up(self, connection_id: int) -> None:
        self.hung_up = True

    time = 0

    def hear_time(self, time: int) -> None:
        pass

    def dial(self, host: str, port: int, encrypted: bool) -> int:
        return 0

    def save(self, data: bytes) -> None:
        pass

    def announce(self, level: str, text: str, **fields: object) -> None:
        pass

    def state_changed(self, state: object) -> None:
        pass

    def on_committed(self, committed: int) -> None:
        pass

    def freeze(self, frozen: bool) -> None:
        pass

    def apply(self, data: bytes, *, is_snapshot: bool = False) -> None:
        fold(self.broker, data, is_snapshot=is_snapshot)

    def forget(self) -> None:
        self.broker.reset(keep_local=True)

    def ha_records(self, data: bytes) -> list[tuple[int, Record]]:
        return ha_records(data)

    def snapshot(self, last: int) -> tuple[Iterator[bytes], Iterator[bytes]]:
        return snapshot_objects(self.broker), snapshot_messages(self.broker, last)

    def payloads(self, queue: str) -> list[bytes]:
        found = self.broker.queues.get(queue)
        return (
            []
            if found is None
            else [found.messages[sequence].payload for sequence in sorted(found.messages)]
        )


class Pair:
    """A primary whose old log is gone, and a new backup of it."""

    def __init__(self, *, queues: int = 1, log_memory: int = 1 << 20) -> None:
        self.a = Side(log_memory)
        self.b = Side(log_memory)
        self.b.broker.passive = True
        self.a.log.start_epoch(1)
        self.a.broker.log_writer = self.a.log
        self.primary = Primary(
            self.a, self.a.log, self.a.settings, InSyncSet(1, 0, ("a",)), lambda set_: None
        )
        promises = Promises(self.b, "b", SavedState(), lambda: None)
        state = StateMachine(self.b, lambda: None)
        state.change(JOINING)
        self.backup = Backup(self.b, self.b.log, promises, state, lambda: None, applied=0)
        for number in range(queues):
            self.a.broker.declare_queue(
                f"q{number}", arguments={"note": "x" * 1000} if queues > 1 else {}
            )
        self.publish(b"old", f"q{queues - 1}")
        self.a.log.seal()
        for number in range(2000):
            self.a.broker.bind("amq.direct", "q0", f"{number}")
            self.a.broker.unbind("amq.direct", "q0", f"{number}")
            self.a.log.seal()
        assert self.a.log.start > 1

    def publish(self, payload: bytes, queue: str) -> None:
        self.a.broker.publish("", queue, payload, headers=dict)

    def subscribe(self) -> None:
        self.backup.follow(Peer(Address("tcp", "a", 1)))
        request = decode(self.b.said.pop())
        assert isinstance(request, Subscribe)
        self.primary.subscribe(LINK, "b", "b", request)

    def carry_one(self) -> bool:
        """Take what the primary said first to the backup; False if there is nothing."""
        if not self.a.said:
            return False
        message = decode(self.a.said.pop(0))
        self.backup.on_message(0, message)
        return True

    def answer(self) -> None:
        """End the backup's turn, and take what it said to the primary."""
        self.backup.flush()
        for data in self.b.said:
            message = decode(data)
            assert isinstance(message, Confirm)
            self.primary.confirm(LINK, message)
        self.b.said.clear()

    def settle(self) -> None:
        for turn in range(1, 100):
            self.primary.flush(turn * 1_000_000_000)
            self.primary.look(turn * 1_000_000_000)
            while self.carry_one():
                pass
            self.answer()
        assert self.primary.in_sync.members == ("a", "b")


def test_a_message_that_comes_with_the_subscription_waits_for_its_queue() -> None:
    pair = Pair(log_memory=100_000)
    pair.subscribe()
    pair.publish(b"live", "q0")  # in the same turn
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0") == [b"old", b"live"]


def test_live_records_wait_until_all_queues_are_there() -> None:
    pair = Pair(queues=400 * CHUNKS_IN_FLIGHT, log_memory=100_000)
    last = f"q{400 * CHUNKS_IN_FLIGHT - 1}"
    pair.subscribe()
    pair.primary.flush(1)
    pair.publish(b"live", last)
    pair.a.broker.delete_queue("q0")
    pair.settle()
    assert pair.b.payloads(last) == pair.a.payloads(last) == [b"old", b"live"]
    assert pair.b.broker.queues.keys() == pair.a.broker.queues.keys()


def test_a_snapshot_under_load_does_not_start_over_for_its_live_records_not_being_confirmed() -> (
    None
):
    pair = Pair(log_memory=100_000)
    for number in range(40):
        pair.publish(b"%d" % number * 300_000, "q0")  # a chunk each
    pair.a.log.seal()
    pair.primary.catch_up_window = 50_000
    pair.subscribe()
    for turn in range(12):
        pair.publish(b"live" * 7_500, "q0")
        pair.primary.flush(turn)
        assert not pair.a.hung_up
        while pair.carry_one():
            pass
        pair.answer()
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0")


def test_nothing_waits_for_a_backup_that_has_yet_to_confirm_what_was_there_when_it_came() -> None:
    pair = Pair(log_memory=100_000)
    pair.subscribe()
    pair.primary.flush(1)
    assert pair.primary.backups["b"].cursor == pair.a.log.last + 1
    pair.publish(b"live", "q0")
    pair.primary.flush(2)
    assert pair.a.log.committed == pair.a.log.last
    while pair.carry_one():
        pass
    pair.publish(b"meanwhile", "q0")
    pair.answer()
    pair.primary.flush(3)
    assert pair.a.log.committed == pair.a.log.last
    pair.publish(b"more", "q0")  # from here on what is acknowledged is there too
    pair.primary.flush(4)
    assert pair.a.log.committed == pair.a.log.last - 1
    assert pair.primary.in_sync.members == ("a",)
    pair.settle()
    assert pair.primary.in_sync.members == ("a", "b")
    assert pair.a.log.committed == pair.a.log.last


def test_half_a_snapshot_confirms_nothing() -> None:
    pair = Pair(log_memory=100_000)
    pair.publish(b"big" * 300_000, "q0")
    pair.publish(b"big" * 300_000, "q0")
    pair.subscribe()
    pair.primary.flush(1)
    while pair.backup.chunks < 2:
        pair.carry_one()
    pair.answer()
    assert pair.primary.backups["b"].confirmed == 0
    pair.settle()
    assert pair.primary.backups["b"].confirmed == pair.a.log.last


def test_a_model_that_shows_more_than_its_log_has_is_never_the_base_of_a_delta() -> None:
    pair = Pair(log_memory=100_000)
    pair.subscribe()
    point = pair.a.log.last
    queue = pair.a.broker.queue("q0")
    queue.dequeue(next(iter(queue.messages.values())))  # appended, and not on any backup
    pair.primary._may_seal = lambda: False  # type: ignore[method-assign]
    pair.primary.flush(1)
    while pair.carry_one():
        pass
    assert pair.b.payloads("q0") == []
    assert pair.b.log.last == point
    pair.b.said.clear()
    pair.backup.follow(
        Peer(Address("tcp", "c", 1))
    )  # the next primary knows nothing of that dequeue
    assert decode(pair.b.said[0]) == Subscribe(0, 0, 0, 0)


def test_large_messages_of_a_snapshot_are_sent_one_at_a_time() -> None:
    pair = Pair(log_memory=100_000)
    for number in range(4):
        pair.publish(b"%d" % number * 3_000_000, "q0")
    pair.subscribe()
    sent = []
    for turn in range(1, 10):
        pair.primary.flush(turn * 1_000_000_000)
        sent.append(sum(len(data) for data in pair.a.said if isinstance(decode(data), Chunk)))
        while pair.carry_one():
            pass
        pair.answer()
    assert max(sent) < 4_000_000
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0")


def test_what_is_on_its_way_to_a_backup_that_confirms_nothing_is_bounded() -> None:
    pair = Pair(log_memory=100_000)
    pair.subscribe()
    pair.settle()
    sent = 0
    for turn in range(1, 100):
        pair.publish(b"x" * 1_000_000, "q0")
        pair.primary.flush(turn * 1_000_000)
        batches = [
            message.batch.data
            for message in map(decode, pair.a.said[sent:])
            if isinstance(message, Logged)
        ]
        sent = len(pair.a.said)
        assert all(len(data) < LARGE_BATCH + 2_000_000 for data in batches)
    assert pair.primary.backups["b"].flight_bytes < WINDOW + LARGE_BATCH + 2_000_000
    pair.settle()
    assert len(pair.b.payloads("q0")) == len(pair.a.payloads("q0")) == 100


def test_a_backup_that_catches_up_gets_so_many_small_batches_in_a_turn_and_not_all() -> None:
    pair = Pair(log_memory=100_000)
    pair.a.log.limit = 1 << 30
    pair.subscribe()
    most = 1 + CATCH_UP_WINDOW // BATCH_BYTES
    for number in range(2 * most):
        pair.publish(b"%d" % number, "q0")
        pair.a.log.seal()
    sent = [0]
    for turn in range(1, 10):
        pair.primary.flush(turn)
        sent.append(sum(isinstance(decode(data), Logged) for data in pair.a.said))
    assert sent == [min(turn * BATCHES_A_TURN, most) for turn in range(10)]
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0")


def test_small_messages_gather_while_a_backup_is_busy() -> None:
    pair = Pair(log_memory=100_000)
    pair.subscribe()
    pair.settle()
    for turn in range(1, 1000):
        pair.publish(b"x" * 100, "q0")
        pair.primary.flush(turn * 1_000)
    assert sum(isinstance(decode(data), Logged) for data in pair.a.said) == BATCHES_IN_FLIGHT


def test_large_messages_gather_while_a_backup_has_some_on_their_way() -> None:
    pair = Pair(log_memory=100_000)
    pair.subscribe()
    pair.settle()
    pair.a.log.limit = pair.b.log.limit = 1 << 30
    first = pair.a.log.last + 1
    for turn in range(1, 20):
        pair.publish(b"x" * (BYTES_IN_FLIGHT - 1000), "q0")
        pair.primary.flush(turn * 1_000)
    assert len(list(pair.a.log.batches(first))) == 2
    pair.settle()
    assert len(list(pair.b.log.batches(first))) == 3
    assert pair.b.payloads("q0") == pair.a.payloads("q0")


def test_a_backup_that_gives_no_credit_is_told_only_the_latest_commit() -> None:
    pair = Pair(log_memory=100_000)
    pair.subscribe()
    pair.a.room = 0
    said = list(pair.a.said)
    for turn in range(100):
        pair.publish(b"live", "q0")
        pair.primary.flush(turn * 1_000_000_000)
        assert pair.a.said == said
    pair.a.room = 1000
    pair.settle()
    assert pair.b.payloads("q0") == pair.a.payloads("q0")
