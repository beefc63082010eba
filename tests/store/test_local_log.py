"""The local log: what only this broker has is there after its restart, whatever its level, and
whatever the cluster did meanwhile.
"""

from __future__ import annotations

import random
from itertools import count
from typing import Any

import pytest

from qpidha.amqp.peer.sasl import Users
from qpidha.broker.broker import Broker
from qpidha.broker.credit import SLOW_DISK
from qpidha.broker.policy import policy_asked_for
from qpidha.broker.queues import backlog, messages
from qpidha.broker.queues import level as level_module
from qpidha.broker.queues.log_writer import LOCAL
from qpidha.broker.queues.queue import Queue
from qpidha.model.effects import Announce
from qpidha.model.errors import LogDamaged
from qpidha.model.event_codes import LOCAL_GONE
from qpidha.model.events import LogWritten, Tick
from qpidha.model.message_view import build
from qpidha.model.records import (
    Dequeued,
    ExchangeDeleted,
    FeatureEnabled,
    LevelChanged,
    QueueDeleted,
)
from qpidha.model.settings import Settings
from qpidha.node import Node
from qpidha.store import local_log
from qpidha.store import log as log_module
from qpidha.store.codec import EnqueueRun, decode
from qpidha.store.local_log import LocalLog
from qpidha.store.log import Log
from qpidha.store.recovery import fold, snapshot_messages, snapshot_objects
from qpidha.store.write_ahead_log import Marks
from tests.broker.parts import a_taker, remembered
from tests.sim.disk import FakeDisk, Files

DURABLE = build("d", header={"durable": True})
SYSTEM = "00000000-0000-4000-8000-000000000001"
UUIDS = count(1)


class Member:
    """One broker of a cluster: its model, the log of the cluster in memory, and its local log."""

    def __init__(
        self,
        files: Files | None = None,
        main: Log | None = None,
        *,
        passive: bool = False,
        alone: bool = False,
    ) -> None:
        self.told: list[Announce] = []
        self.files = files or Files()
        self.events: list[Any] = []
        self.disk = FakeDisk(self.events.append, random.Random(1), self.files)
        self.main = main or Log(1 << 24)
        if not self.main.epoch:
            self.main.start_epoch(1)
        self.broker = Broker(
            Settings(ha_cluster=True, default_queue_limit=0),
            None,
            self.told.append,
            lambda: f"uuid-{next(UUIDS)}",
        )
        self.broker.passive = True
        self.broker.records_durable_only = alone
        for batch in self.main.batches(1):
            fold(self.broker, batch.data)
        self.local = LocalLog(
            self.broker, self.disk, SYSTEM, segment_size=4096, marks=Marks(), nonce="n"
        )
        self.told += self.local.recover()
        self.pump()
        if not passive:
            self.promote()

    def promote(self) -> None:
        self.broker.log_writer = self.main
        self.broker.promoted(1)
        if not self.broker.features:
            self.broker.apply(1, FeatureEnabled("queue-kinds"))
        self.told += self.local.settle()

    def turn(self) -> None:
        """End a turn: what was recorded goes to the disk's queue."""
        self.local.seal(self.main.end if self.main.has_pending else 0)
        self.main.seal()
        self.local.turn()

    def pump(self) -> None:
        """Have the disk do all that it was asked for."""
        while self.disk.pump() or self.events:
            for event in self.events:
                assert isinstance(event, LogWritten)
                self.local.log.answer(event.mark)
            self.events.clear()
            self.local.turn()

    def committed(self, main: int | None = None) -> int:
        return self.local.answer(self.main.last if main is None else main)

    def settled(self) -> None:
        self.turn()
        self.pump()
        self.turn()
        self.pump()

    def queue(self, name: str, level: str = "none", **options: Any) -> Queue:
        arguments = {"qpid.replicate": level, **options.pop("arguments", {})}
        return self.broker.declare_queue(name, durable=True, arguments=arguments, **options)[0]

    def restarted(self, how: str = "drop", *, passive: bool = False, alone: bool = False) -> Member:
        self.disk.crash(how)
        return Member(self.files, self.main, passive=passive, alone=alone)


def send(member: Member, name: str, *bodies: str) -> list[int]:
    return [
        member.broker.publish(
            "", name, build(body, header={"durable": True}), headers=dict
        ).sequence
        for body in bodies
    ]


def bodies(queue: Queue) -> list[bytes]:
    return [message.body() for message in queue.messages_after(0, 1 << 40)]


def expected(*texts: str) -> list[bytes]:
    return [build(text, header={"durable": True}) for text in texts]


@pytest.mark.parametrize("level", ["none", "configuration"])
@pytest.mark.parametrize("passive", [True, False])
def test_durable_messages_are_there_after_a_power_cut(level: str, passive: bool) -> None:
    member = Member()
    queue = member.queue("q", level)
    member.settled()
    send(member, "q", "a", "b", "c")
    taker = a_taker(queue, 1)
    member.broker.dispatch(1)
    queue.dequeue(taker.got[0])
    member.settled()
    again = member.restarted(passive=passive)
    found = again.broker.queues["q"]
    assert bodies(found) == expected("b", "c")
    assert found.uuid == queue.uuid and found.options.replicate == level
    assert found.is_replica is (passive and level == "configuration")
    if passive:
        again.promote()
    send(again, "q", "d")
    again.settled()
    assert bodies(again.restarted().broker.queues["q"]) == expected("b", "c", "d")


def test_nothing_of_what_was_written_stays_in_memory_beside_the_messages() -> None:
    member = Member()
    member.queue("q")
    for _ in range(50):
        send(member, "q", "x" * 1000)
        member.settled()
    assert not member.local.log.recent
    assert member.local.log.memory < 5000


def test_a_message_is_committed_when_it_is_synced_here() -> None:
    member = Member()
    member.queue("q")
    member.settled()
    (place,) = send(member, "q", "a")
    assert place > LOCAL
    member.turn()
    assert member.committed() < place
    member.pump()
    assert member.committed() >= place


def test_who_waits_for_both_logs_waits_for_the_cluster_too() -> None:
    member = Member()
    member.queue("mine")
    member.broker.declare_queue("ours", durable=True, arguments={"qpid.replicate": "all"})
    member.broker.declare_exchange("x", "fanout", arguments={"qpid.replicate": "all"})
    for name in ("mine", "ours"):
        member.broker.bind("x", name)
    member.settled()
    before = member.main.last
    routed = member.broker.publish("x", "", DURABLE, headers=dict)
    member.settled()
    assert routed.queues == 2 and routed.sequence > LOCAL
    assert member.committed(before) < routed.sequence
    assert member.committed() >= routed.sequence


def test_what_is_not_durable_is_not_kept() -> None:
    member = Member()
    member.broker.declare_queue("q", arguments={"qpid.replicate": "none"})
    member.broker.declare_exchange("x", arguments={"qpid.replicate": "none"})
    assert send(member, "q", "a") == [0]
    member.settled()
    again = member.restarted("keep")
    assert "q" not in again.broker.queues and "x" not in again.broker.exchanges


def test_bindings_exchanges_and_what_a_queue_remembers_are_there() -> None:
    member = Member()
    broker = member.broker
    broker.declare_exchange("ours", "topic", durable=True, arguments={"qpid.replicate": "all"})
    broker.declare_exchange("mine", "direct", durable=True, arguments={"qpid.replicate": "none"})
    member.queue("q", arguments={"qpidha.dedup": "message-id"})
    for exchange, key in (("mine", "k"), ("ours", "a.*"), ("amq.topic", "b.#"), ("mine", "gone")):
        broker.bind(exchange, "q", key)
    broker.unbind("mine", "q", "gone")
    member.settled()
    once = build("x", header={"durable": True}, properties={"message_id": "1"})
    broker.publish("mine", "k", once, headers=dict)
    (message,) = broker.queues["q"].messages.values()
    broker.queues["q"].acquire(message)
    broker.queues["q"].dequeue(message)
    member.settled()
    for _ in range(2):  # Also of a checkpoint.
        member = member.restarted()
        broker = member.broker
        queue = broker.queues["q"]
        assert broker.exchanges["mine"].binding(queue, "k") is not None
        assert broker.exchanges["mine"].binding(queue, "gone") is None
        assert broker.exchanges["ours"].binding(queue, "a.*") is not None
        assert broker.exchanges["amq.topic"].binding(queue, "b.#") is not None
        broker.publish("mine", "k", once, headers=dict)
        assert not queue.messages and queue.deduplicated == 1
        member.local.checkpoint()
        member.pump()
        assert not member.local.is_busy


def test_a_checkpoint_beside_traffic_loses_and_doubles_nothing() -> None:
    member = Member()
    queue = member.queue("q")
    other = member.queue("r", "configuration")
    member.settled()
    send(member, "q", *(f"m{number}" for number in range(50)))
    send(member, "r", "one")
    member.settled()
    member.local.checkpoint()
    for number in range(50):
        send(member, "q", f"n{number}")
        oldest = queue.messages[queue.ordering.lowest()]
        queue.acquire(oldest)
        queue.dequeue(oldest)
        member.turn()
        member.disk.pump()
        member.disk.pump()
        for event in member.events:
            member.local.log.answer(event.mark)
        member.events.clear()
    member.settled()
    left = bodies(queue)
    assert len(left) == 50 and len(bodies(other)) == 1
    names = [name for name in member.files.written if name.startswith("local/")]
    assert any(name.endswith("checkpoint") for name in names)
    again = member.restarted()
    assert bodies(again.broker.queues["q"]) == left
    assert bodies(again.broker.queues["r"]) == expected("one")


def test_what_is_packed_stays_packed_when_a_checkpoint_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "FEWEST", 2)
    monkeypatch.setattr(messages, "PIECE", 300)
    monkeypatch.setattr(backlog, "LONG", 3)
    monkeypatch.setattr(backlog, "AHEAD", 1)
    member = Member()
    queue = member.queue("q")
    send(member, "q", *(f"m{number}" for number in range(40)))
    member.broker.publish("", "q", DURABLE, headers=dict, expires=1 << 60)
    send(member, "q", *(f"m{number}" for number in range(40, 80)))
    changed, gone = queue.messages_after(0, 1 << 20)[:2]
    queue.acquire(changed)
    queue.requeue(changed, failed=True)
    queue.acquire(gone)
    queue.dequeue(gone)
    member.settled()
    cursor = 0
    while cursor := queue.pack_some(cursor, 50):
        pass
    packed = queue.messages.packed
    assert packed > 40
    member.local.checkpoint()
    member.settled()
    assert any(name.endswith("checkpoint") for name in member.files.written)
    assert queue.messages.packed == packed

    def look(queue: Queue) -> list[tuple[int, bytes, int, int]]:
        return [
            (message.sequence, message.body(), message.expires, message.delivery_count)
            for message in queue.messages_after(0, 1 << 20)
        ]

    left = look(queue)
    assert len(left) == 80 and {expires for _, _, expires, _ in left} == {0, 1 << 60}
    assert [count for *_, count in left].count(1) == 1
    assert look(member.restarted().broker.queues["q"]) == left


def test_a_snapshot_of_the_primary_leaves_what_is_only_here() -> None:
    member = Member()
    member.queue("mine")
    member.queue("ours", "configuration")
    member.queue("gone", "configuration")
    for name in ("mine", "ours", "gone"):
        send(member, name, name)
    member.settled()
    member = member.restarted(passive=True)
    # What the primary has: of these, only one queue, and a message that is its own.
    primary = Member(main=member.main)
    primary.broker.delete_queue("gone")
    send(primary, "ours", "of the primary")
    primary.settled()
    objects = [*snapshot_objects(primary.broker)]
    messages = [*snapshot_messages(primary.broker, primary.main.last)]
    member.broker.reset(keep_local=True)
    assert list(member.broker.queues) == ["mine"]
    for data in (*objects, *messages):
        fold(member.broker, data, is_snapshot=True)
    assert bodies(member.broker.queues["ours"]) == expected("ours")
    told = member.local.settle()
    assert [one.event_code for one in told] == [LOCAL_GONE] and "queue gone" in told[0].text
    member.settled()
    member.main = primary.main
    again = member.restarted(passive=True)
    assert bodies(again.broker.queues["mine"]) == expected("mine")
    assert bodies(again.broker.queues["ours"]) == expected("ours")
    assert "gone" not in again.broker.queues


def test_a_crash_in_the_middle_of_a_snapshot_leaves_it_too() -> None:
    member = Member()
    member.queue("ours", "configuration")
    send(member, "ours", "a")
    member.settled()
    member.broker.passive = True
    member.broker.reset(keep_local=True)
    member.settled()
    again = member.restarted(passive=True)
    assert bodies(again.broker.queues["ours"]) == expected("a")


def test_a_replicated_queue_takes_the_name_of_a_local_one_and_that_is_told() -> None:
    member = Member()
    member.queue("q")
    send(member, "q", "a")
    member.settled()
    member = member.restarted(passive=True)
    primary = Member(main=member.main)
    primary.broker.declare_queue("q", durable=True, arguments={"qpid.replicate": "all"})
    primary.settled()
    for batch in primary.main.batches(1):
        fold(member.broker, batch.data)
    assert not [one for one in member.told if one.event_code == LOCAL_GONE]
    member.told += member.local.settle()  # Now it knows that this was not the log of a former time.
    assert member.told[-1].event_code == LOCAL_GONE
    member.settled()
    member.main = primary.main
    again = member.restarted()
    assert not again.broker.queues["q"].messages and again.broker.queues["q"].uid > 0


def test_a_deleted_queue_does_not_come_back() -> None:
    member = Member()
    member.queue("q")
    member.queue("r", "configuration")
    for name in ("q", "r"):
        send(member, name, "a")
    member.settled()
    for name in ("q", "r"):
        assert member.broker.delete_queue(name).sequence > LOCAL
    member.settled()
    again = member.restarted()
    assert not again.broker.queues and not again.local._things


def test_a_level_that_changes_takes_the_messages_along() -> None:
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True)
    assert queue.options.fallback == "none" and queue.local_writer is not None
    send(member, "q", "a")
    member.settled()
    levels = member.broker.levels
    levels.wanted = lambda queue: "configuration"  # type: ignore[method-assign]
    levels.look(queue)
    send(member, "q", "b")
    go_on(member)
    assert queue.uid > 0 and queue.options.replicate == "configuration"
    member = member.restarted()
    queue = member.broker.queues["q"]
    assert bodies(queue) == expected("a", "b") and queue.uid > 0
    member.broker.levels.wanted = lambda queue: "none"  # type: ignore[method-assign]
    member.broker.levels.look(queue)
    send(member, "q", "c")
    go_on(member)
    queue = member.restarted().broker.queues["q"]
    assert bodies(queue) == expected("a", "b", "c") and queue.uid < 0


def test_messages_that_leave_the_log_of_the_cluster_are_kept_here() -> None:
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    levels = member.broker.levels
    for level, more in (("all", "a"), ("configuration", "b")):
        levels.wanted = lambda queue, level=level: level  # type: ignore[method-assign, misc]
        levels.look(queue)
        go_on(member)
        assert queue.options.replicate == level
        send(member, "q", more)
    member.settled()
    assert any(
        isinstance(record, LevelChanged)
        for batch in member.main.batches(1)
        for record in _records(batch.data)
    )
    assert bodies(member.restarted().broker.queues["q"]) == expected("a", "b")


def _records(data: bytes) -> list[object]:
    return [entry[1] for entry in decode(data) if not isinstance(entry, EnqueueRun)]


def test_records_of_the_cluster_take_away_what_is_kept_here() -> None:
    member = Member()
    queue = member.queue("r", "configuration")
    send(member, "r", "a")
    member.settled()
    member = member.restarted(passive=True)
    member.broker.apply(9, QueueDeleted(queue.uid))
    assert [one.event_code for one in member.local.settle()] == [LOCAL_GONE]
    member.settled()
    assert not member.local._things


def test_damage_names_what_to_move_away() -> None:
    member = Member()
    member.queue("q")
    send(member, "q", "a")
    member.settled()
    send(member, "q", "b")
    member.settled()
    (name,) = [name for name in member.files.written if name.startswith("local/")]
    data = bytearray(member.files.written[name])
    data[len(data) // 2] ^= 0xFF
    member.disk.crash("drop")
    member.files.written[name] = bytes(data)
    with pytest.raises(LogDamaged, match="local log: ") as damaged:
        Member(member.files, member.main)
    assert "journal/local" in damaged.value.hint


def test_senders_wait_while_the_disk_is_far_behind_with_what_is_only_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_module, "BACKLOG", 10_000)
    events: list[Any] = []
    disk = FakeDisk(events.append, random.Random(1))
    node = Node(
        Settings(auth=False, ha_cluster=True),
        system_id=SYSTEM,
        users=Users({}),
        state=b"",
        address="h:1",
        make_uuid=lambda: f"uuid-{next(UUIDS)}",
        disk=disk,
    )
    node.start(1)
    # A backup has objects of its own too.
    node.broker.declare_queue("q", durable=True, arguments={"qpid.replicate": "none"})
    for _ in range(60):
        node.broker.publish("", "q", build("x" * 200), headers=dict)
    node.step([], 2)
    assert "too slow" in node.broker.credit.withheld[SLOW_DISK]
    for now in range(3, 6):
        while disk.pump():
            pass
        node.step([*events, Tick()], now)
        events.clear()
    assert not node.broker.credit.withheld


def test_a_deletion_that_nothing_is_recorded_of_waits_for_nothing() -> None:
    """LOCAL itself is the place of no record: who waited for it waited for ever."""
    member = Member()
    member.broker.declare_exchange("brief", "fanout")
    assert member.broker.delete_exchange("brief") == 0
    member.queue("q")
    member.settled()
    member.broker.declare_exchange("brief", "fanout")
    assert LOCAL < member.broker.delete_exchange("brief") <= member.committed()


def test_what_a_former_primary_recorded_last_waits_for_nothing_of_the_cluster() -> None:
    """Its last records may be cut from the cluster's log, and nothing there may come so far again:
    whoever is served after the next promotion would wait for ever.
    """
    member = Member()
    queue = member.queue("q")
    member.settled()
    queue.waits_for = member.main.last + 1000
    send(member, "q", "a")
    member.local.abandon()
    member.settled()
    assert member.committed() == member.local.end
    queue.waits_for = 0
    (place,) = send(member, "q", "b")
    member.settled()
    assert place <= member.committed()


def _end(member: Member, kind: str, record: bool) -> None:
    """Delete what is replicated, as the primary does or by its record."""
    broker = member.broker
    if kind == "exchange":
        deletion: Any = ExchangeDeleted(broker.exchanges["ours"].uid)
    else:
        deletion = QueueDeleted(broker.queues["ours"].uid)
    if record:
        broker.apply(member.main.append(deletion), deletion)
    elif kind == "exchange":
        broker.delete_exchange("ours")
    else:
        broker.delete_queue("ours")


@pytest.mark.parametrize("kind", ["exchange", "queue"])
@pytest.mark.parametrize("record", [True, False])
def test_nothing_is_left_of_replicated_objects_that_come_and_go(kind: str, record: bool) -> None:
    member = Member()
    broker = member.broker
    ours = {"qpid.replicate": "all"}
    if kind == "exchange":
        member.queue("mine")
    else:
        broker.declare_exchange(
            "mine", "fanout", durable=True, arguments={"qpid.replicate": "none"}
        )
    for _ in range(5):
        if kind == "exchange":
            broker.declare_exchange("ours", "fanout", durable=True, arguments=ours)
            broker.bind("ours", "mine")
        else:
            broker.declare_queue("ours", durable=True, arguments=ours)
            broker.bind("mine", "ours")
        member.settled()
        assert len(member.local._references) == len(member.local._bindings) == 1
        _end(member, kind, record)
        member.settled()
    again = member.restarted()
    for local in (member.local, again.local):
        assert not local._references and not local._bindings and not local._by_uuid
        assert not any(local._ends.values()) and len(local._ends) <= 1


def test_a_reference_outlives_a_snapshot_and_goes_when_the_cluster_has_it_no_more() -> None:
    member = Member()
    member.queue("mine")
    broker = member.broker
    for name in ("stays", "goes"):
        broker.declare_exchange(name, "fanout", durable=True, arguments={"qpid.replicate": "all"})
        broker.bind(name, "mine")
    member.settled()
    primary = Member(main=member.main)
    primary.broker.delete_exchange("goes")
    primary.settled()
    broker.reset(keep_local=True)
    assert len(member.local._references) == 2
    for data in snapshot_objects(primary.broker):
        fold(broker, data, is_snapshot=True)
    member.local.settle()
    member.settled()
    assert [each.name for each in member.local._references.values()] == ["stays"]
    again = member.restarted()
    assert [each.name for each in again.local._references.values()] == ["stays"]
    queue = again.broker.queues["mine"]
    assert again.broker.exchanges["stays"].binding(queue, "") is not None


def rising(messages: int = 50) -> tuple[Member, Queue]:
    """A queue that a policy raises to `all`, with some of its messages in the cluster's log."""
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    raise_to(member, queue, "configuration")
    go_on(member)
    send(member, "q", *(str(number) for number in range(messages)))
    member.settled()
    raise_to(member, queue, "all")
    while not queue.unrecorded[0]:
        go_on(member, 1)
    member.settled()
    assert 0 < queue.unrecorded[0] < queue.unrecorded[1] and queue.logged
    return member, queue


def raise_to(member: Member, queue: Queue, level: str) -> None:
    levels = member.broker.levels
    levels.wanted = lambda queue: level  # type: ignore[method-assign]
    levels.look(queue)


def go_on(member: Member, turns: int = 20) -> None:
    for _ in range(turns):
        member.settled()
        member.broker.local_committed = member.committed()
        member.broker.go_on_walking(member.main.last)


def gone(member: Member) -> list[object]:
    """How many messages were told to be gone, each time."""
    return [one.fields["messages"] for one in member.told if one.event_code == LOCAL_GONE]


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level_module, "RECORDED_A_TURN", 20)


TEXTS = [str(number) for number in range(50)]


@pytest.mark.parametrize("passive", [True, False])
@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.usefixtures("slices")
def test_a_restart_while_a_level_rises_loses_nothing(passive: bool, checkpoint: bool) -> None:
    member, queue = rising()
    taker = a_taker(queue, 1)
    member.broker.dispatch(1)
    queue.dequeue(taker.got[0])
    late = queue.messages[max(queue.messages)]
    queue.acquire(late)
    place = queue.dequeue(late)
    assert place > LOCAL  # It would be here again if it were gone from the cluster's log only.
    member.settled()
    if checkpoint:
        member.local.checkpoint()
        member.pump()
    for _ in range(2):
        member = member.restarted(passive=passive)
        if passive:
            assert not member.told and len(member.broker.queues["q"].messages) < 40
            member.promote()
        queue = member.broker.queues["q"]
        assert bodies(queue) == expected(*TEXTS[1:-1])
    raise_to(member, queue, "all")
    send(member, "q", "new")
    go_on(member)
    assert queue.options.replicate == "all" and not gone(member)
    assert not member.local._things and queue.log_writer is member.main
    # All of it is in the cluster's log.
    again = Member(main=member.main)
    assert bodies(again.broker.queues["q"]) == expected(*TEXTS[1:-1], "new")
    again = member.restarted()
    assert bodies(again.broker.queues["q"]) == expected(*TEXTS[1:-1], "new") and not gone(again)


@pytest.mark.usefixtures("slices")
def test_a_restart_before_the_end_of_the_rise_is_committed_loses_nothing() -> None:
    member, queue = rising()
    before = member.main.last
    while queue.options.replicate != "all":
        member.settled()
        member.broker.local_committed = member.committed()
        member.broker.go_on_walking(member.main.last)
    member.settled()
    assert queue.local_writer is not None
    member.local.checkpoint()
    member.pump()
    # The others have the log as it was before.
    found = Member(passive=True)
    for batch in member.main.batches(1):
        if batch.last <= before:
            fold(found.broker, batch.data)
    member.disk.crash("drop")
    aside = LocalLog(
        found.broker,
        FakeDisk(found.events.append, random.Random(1), member.files),
        SYSTEM,
        segment_size=4096,
        marks=Marks(),
        nonce="n",
    )
    assert aside.recover() == []
    found.broker.log_writer = Log(1 << 24)
    found.broker.promoted(1)
    assert aside.settle() == []
    assert bodies(found.broker.queues["q"]) == expected(*TEXTS)


@pytest.mark.usefixtures("slices")
def test_each_slice_waits_until_the_one_before_is_committed_by_the_cluster() -> None:
    member, queue = rising()
    committed, recorded = member.main.last - 1, queue.unrecorded[0]
    for _ in range(5):
        member.settled()
        member.broker.local_committed = member.committed(committed)
        member.broker.go_on_walking(committed)
    assert queue.unrecorded[0] == recorded and queue.local_writer is not None


@pytest.mark.usefixtures("slices")
def test_a_primary_that_steps_down_while_a_level_rises_keeps_the_rest() -> None:
    member, queue = rising()
    member.broker.log_writer = None
    member.broker.passive = True
    member.broker.abandon_walks()
    assert len(queue.messages) < 50
    # A snapshot, and promoted again.
    objects = [*snapshot_objects(Member(main=member.main, passive=True).broker)]
    other = Member(main=member.main, passive=True)
    messages = [*snapshot_messages(other.broker, member.main.last)]
    member.broker.reset(keep_local=True)
    for data in (*objects, *messages):
        fold(member.broker, data, is_snapshot=True)
    assert member.local.settle() == []
    member.promote()
    assert bodies(member.broker.queues["q"]) == expected(*TEXTS)


@pytest.mark.usefixtures("slices")
def test_it_is_told_what_another_primary_did_not_get_of_a_queue() -> None:
    member, queue = rising()
    member = member.restarted(passive=True)
    queue = member.broker.queues["q"]
    missing = 50 - len(queue.messages)
    first = min(queue.messages)
    member.broker.apply(member.main.last + 1, Dequeued(queue.uid, (first,)))
    record = LevelChanged(queue.uid, "all", logged=True, own_numbers=queue.own_numbers)
    member.broker.apply(member.main.last + 2, record)
    member.told += member.local.settle()
    assert gone(member) == [missing]
    assert not member.local._aside


def test_it_is_told_what_another_primary_does_not_have_of_a_queue_that_it_raises() -> None:
    member = Member()
    queue = member.queue("q", "configuration")
    send(member, "q", "a", "b")
    member.settled()
    member = member.restarted(passive=True)
    record = LevelChanged(queue.uid, "configuration", logged=True, own_numbers=10_002)
    member.broker.apply(member.main.last + 1, record)
    assert member.local.settle()[0].fields["messages"] == 2


@pytest.mark.parametrize("restarts", [True, False])
def test_it_is_told_what_is_gone_of_a_queue_that_this_broker_lowered(restarts: bool) -> None:
    """What others know of it is not recorded here yet, and it has more than they knew since."""
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    raise_to(member, queue, "all")
    go_on(member)
    send(member, "q", "a")
    raise_to(member, queue, "configuration")
    while queue.logged:
        member.settled()
        member.broker.local_committed = member.committed()
        member.broker.go_on_walking(member.main.last)
    send(member, "q", "b")
    if restarts:
        member.settled()
        member = member.restarted(passive=True)
    else:
        # It is in the log of the next primary, and was not committed before that.
        member.broker.log_writer, member.broker.passive = None, True
        member.broker.abandon_walks()
        member.local.abandon()
        member.settled()
    assert bodies(member.broker.queues["q"]) == expected("a", "b")
    record = LevelChanged(
        queue.uid, "configuration", logged=True, own_numbers=10_002, keeper="another"
    )
    member.broker.apply(member.main.last + 1, record)
    assert [one.fields["messages"] for one in member.local.settle()] == [2]


def with_local_exchange(member: Member) -> None:
    member.broker.declare_exchange(
        "mine", "fanout", durable=True, arguments={"qpid.replicate": "none"}
    )


def is_bound(member: Member, exchange: str = "mine") -> bool:
    queue = member.broker.queues["q"]
    return member.broker.exchanges[exchange].binding(queue, "") is not None


def test_bindings_that_only_this_broker_has_stay_when_the_queue_rises() -> None:
    member = Member()
    with_local_exchange(member)
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    member.broker.bind("mine", "q")
    send(member, "q", "a")
    raise_to(member, queue, "all")
    go_on(member)
    assert queue.options.replicate == "all" and queue not in member.local._places
    for _ in range(2):
        member = member.restarted()
        assert is_bound(member)
    member.broker.unbind("mine", "q")
    member.settled()
    assert not is_bound(member.restarted())


def test_bindings_of_a_backup_stay_when_another_broker_raises_the_queue() -> None:
    member = Member()
    with_local_exchange(member)
    queue = member.queue("q", "configuration")
    member.broker.bind("mine", "q")
    send(member, "q", "a")
    member.settled()
    member = member.restarted(passive=True)
    member.local.settle()
    queue = member.broker.queues["q"]
    begin = LevelChanged(queue.uid, "configuration", logged=True, own_numbers=10_002)
    end = LevelChanged(queue.uid, "all", logged=True, own_numbers=10_002)
    for record in (begin, end):
        member.broker.apply(member.main.append(record), record)
    assert gone(member) == [1]
    member.settled()
    assert is_bound(member.restarted(passive=True))


def test_a_binding_that_goes_after_its_queue_was_lowered_does_not_come_back() -> None:
    member = Member()
    with_local_exchange(member)
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    raise_to(member, queue, "all")
    go_on(member)
    member.broker.bind("mine", "q")
    for level in ("configuration", "none"):
        raise_to(member, queue, level)
        send(member, "q", level)
        go_on(member)
        assert queue.options.replicate == level
        member = member.restarted()
        queue = member.broker.queues["q"]
        assert is_bound(member) and queue.options.replicate == level
        assert len(member.local._references) == 0 and len(member.local._bindings) == 1
    member.broker.unbind("mine", "q")
    member.settled()
    again = member.restarted()
    assert not is_bound(again) and not again.local._bindings


def test_a_queue_that_others_forget_keeps_the_bindings_that_they_had() -> None:
    member = Member()
    broker = member.broker
    broker.declare_exchange("ours", "fanout", durable=True, arguments={"qpid.replicate": "all"})
    queue, _ = broker.declare_queue("q", durable=True, arguments={})
    raise_to(member, queue, "configuration")
    go_on(member)
    broker.bind("ours", "q")
    raise_to(member, queue, "none")
    go_on(member)
    assert queue.uid < 0
    member = member.restarted()
    assert is_bound(member, "ours") and member.broker.queues["q"].uid < 0
    queue = member.broker.queues["q"]
    raise_to(member, queue, "configuration")
    go_on(member)
    assert not member.local._bindings, "the cluster has it"
    assert is_bound(member.restarted(), "ours")


@pytest.mark.usefixtures("slices")
def test_a_queue_leaves_the_log_in_slices_that_are_synced_before_others_forget_it() -> None:
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    raise_to(member, queue, "all")
    go_on(member)
    send(member, "q", *TEXTS)
    go_on(member, 1)
    raise_to(member, queue, "configuration")
    copied = []
    while queue.logged:
        before = member.local.log.end
        member.broker.local_committed = member.committed()
        member.broker.go_on_walking(member.main.last)
        copied.append(member.local.log.end - before)
        if not queue.logged:
            assert member.local.log.synced == member.local.log.last >= 3
        member.settled()
    assert len(copied) >= 4 and max(copied) <= 2, "a slice is one record"
    sizes = [
        len(entry.sequences)
        for batch in member.local.log.batches(1)
        for entry in decode(batch.data)
        if isinstance(entry, EnqueueRun)
    ]
    assert sizes == [20, 20, 10]
    go_on(member)
    assert bodies(member.restarted().broker.queues["q"]) == expected(*TEXTS)


def test_what_leaves_a_queue_that_was_lowered_does_not_come_back() -> None:
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    raise_to(member, queue, "all")
    go_on(member)
    send(member, "q", "a", "b")
    raise_to(member, queue, "configuration")
    go_on(member)
    taker = a_taker(queue, 1)
    member.broker.dispatch(1)
    place = queue.dequeue(taker.got[0])
    member.settled()
    assert place <= member.committed()
    assert bodies(member.restarted().broker.queues["q"]) == expected("b")


def test_a_queue_that_was_lowered_remembers_what_it_had() -> None:
    member = Member()
    arguments = {"qpidha.dedup": "message-id"}
    queue, _ = member.broker.declare_queue("q", durable=True, arguments=arguments)
    raise_to(member, queue, "all")
    go_on(member)
    once = build("x", header={"durable": True}, properties={"message_id": "1"})
    member.broker.publish("", "q", once, headers=dict)
    go_on(member, 1)
    taker = a_taker(queue, 1)
    member.broker.dispatch(1)
    queue.dequeue(taker.got[0])
    raise_to(member, queue, "configuration")
    go_on(member)
    queue = member.restarted().broker.queues["q"]
    assert queue.window is not None and queue.window.find(once) is not None


@pytest.mark.parametrize("checkpoint", [False, True])
def test_keys_of_a_former_policy_do_not_come_back(checkpoint: bool) -> None:
    member = Member()
    queue = member.queue("q", "configuration")
    bodies = [
        build(
            "",
            header={"durable": True},
            properties={"message_id": f"{number}"},
            annotations={"x-key": f"k{number}"},
        )
        for number in range(3)
    ]
    for body in bodies:
        member.broker.publish("", "q", body, headers=dict)
    # The last one is known by keys of which there are three, and then three others.
    for by in ("message-id", "x-key"):
        member.broker.set_policy(policy_asked_for("p", "q", {"dedup": by, "dedup_window": 3}))
        go_on(member)
    if checkpoint:
        member.local.checkpoint()
        go_on(member)
    known = remembered(queue.window)
    assert [key for key, _ in known] == ["s:k0", "s:k1", "s:k2"]
    member = member.restarted()
    queue = member.broker.queues["q"]
    assert remembered(queue.window) == known
    for body in bodies:
        member.broker.publish("", "q", body, headers=dict)
    assert queue.deduplicated == 3 and len(queue.messages) == 3


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("changes", [["message-id"], ["x-key"], ["x-key", "message-id"]])
def test_what_is_taken_back_is_remembered_by_all_brokers_alike(changes: list[str]) -> None:
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    raise_to(member, queue, "configuration")
    member.broker.set_policy(policy_asked_for("p", "q", {"dedup": "message-id"}))
    go_on(member)
    for number in range(50):
        keys = {"properties": {"message_id": f"{number}"}, "annotations": {"x-key": f"k{number}"}}
        body = build("", header={"durable": True}, **keys)
        member.broker.publish("", "q", body, headers=dict)
    queue.dequeue(queue.messages[min(queue.messages)])  # It is remembered by its key alone.
    member.settled()
    raise_to(member, queue, "all")
    while not queue.unrecorded[0]:
        go_on(member, 1)
    member.settled()
    for by in changes:
        member.broker.set_policy(policy_asked_for("p", "q", {"dedup": by, "dedup_window": 1000}))
    member.settled()
    member = member.restarted()
    queue = member.broker.queues["q"]
    member.settled()
    other = Member(main=member.main, passive=True).broker.queues["q"]
    assert remembered(queue.window) == remembered(other.window)  # Before it goes on to rise, too.
    raise_to(member, queue, "all")
    go_on(member)
    assert queue.options.replicate == "all"
    known = remembered(queue.window)
    other = Member(main=member.main, passive=True).broker.queues["q"]
    assert known == remembered(other.window)
    # Of other keys, those of what was recorded before are not known: nobody went on to recall them.
    most = [f"s:{number}" if by == "message-id" else f"s:k{number}" for number in range(50)]
    assert [key for key, _ in known] == most[-len(known) :]
    assert len(known) == 50 or (by != "message-id" and len(known) > 20)


@pytest.mark.usefixtures("slices")
@pytest.mark.parametrize("snapshot", [True, False])
def test_what_left_on_another_primary_does_not_come_back_with_the_rest(snapshot: bool) -> None:
    member, queue = rising()
    recorded = queue.unrecorded[0]
    member = member.restarted(passive=True)
    record = Dequeued(queue.uid, (recorded, recorded - 1))
    member.broker.apply(member.main.append(record), record)
    member.main.seal()
    # The power goes before the local log has it, or the broker hears of it by a snapshot only.
    member = member.restarted(passive=True)
    if snapshot:
        other = Member(main=member.main, passive=True).broker
        parts = [*snapshot_objects(other), *snapshot_messages(other, member.main.last)]
        member.broker.reset(keep_local=True)
        for data in parts:
            fold(member.broker, data, is_snapshot=True)
    member.promote()
    there = member.broker.queues["q"].messages
    assert recorded not in there and recorded - 1 not in there and len(there) == 48
    assert not gone(member)


@pytest.mark.usefixtures("slices")
def test_messages_that_were_consumed_elsewhere_do_not_count_as_gone() -> None:
    member, queue = rising()
    while queue.unrecorded[1]:
        member.settled()
        member.broker.local_committed = member.committed()
        member.broker.go_on_walking(member.main.last)
    member.main.seal()
    last = max(queue.messages)
    member = member.restarted(passive=True)
    record = Dequeued(queue.uid, (last, last - 1, last - 2))
    member.broker.apply(member.main.append(record), record)
    member.main.seal()
    assert len(member.local._aside[queue.uuid].messages) == 47
    member = member.restarted(passive=True)
    assert member.local.settle() == []


@pytest.mark.usefixtures("slices")
def test_a_broker_alone_ends_what_it_began_as_a_member() -> None:
    member, queue = rising()
    recorded = queue.unrecorded[0]
    member = member.restarted(alone=True)
    queue = member.broker.queues["q"]
    assert bodies(queue) == expected(*TEXTS) and queue.unrecorded[0] == recorded
    member.broker.levels.tick(1 << 60)
    go_on(member)
    assert queue.unrecorded == (0, 0) and not member.local._things
    assert queue.options.replicate == "all" and queue.log_writer is member.main
    again = Member(main=member.main, alone=True)
    assert bodies(again.broker.queues["q"]) == expected(*TEXTS)


def test_what_was_consumed_does_not_come_back_on_a_broker_alone() -> None:
    """The local log may lose the record that the queue is in the other one."""
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True, arguments={})
    send(member, "q", "a")
    member.settled()
    raise_to(member, queue, "all")
    while queue.local_writer is not None:
        member.settled()
        member.broker.local_committed = member.committed()
        member.broker.go_on_walking(member.main.last)
    taker = a_taker(queue, 1)
    member.broker.dispatch(1)
    queue.dequeue(taker.got[0])
    member.main.seal()
    again = member.restarted(alone=True)
    assert not again.broker.queues["q"].messages


@pytest.mark.usefixtures("slices")
def test_a_checkpoint_goes_on_when_its_queue_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_log, "CHUNK", 100)
    member, queue = rising(200)
    before = len(queue.messages)
    member.local.checkpoint()
    for _ in range(5):  # Some of the messages are in it.
        while member.disk.pump():
            pass
        for event in member.events:
            member.local.log.answer(event.mark)
        member.events.clear()
        member.local.turn()
    assert member.local._parts is not None
    member.broker.log_writer = None
    member.broker.passive = True
    member.broker.abandon_walks()
    while member.local._parts is not None:
        member.settled()
    member = member.restarted()
    assert len(member.broker.queues["q"].messages) == before


def test_a_number_is_not_given_again_after_a_restart() -> None:
    member = Member()
    queue = member.queue("q", "configuration")
    send(member, "q", "a", "b")
    queue.dequeue(queue.messages[2])
    member.settled()
    member = member.restarted()
    send(member, "q", "c")
    assert list(member.broker.queues["q"].messages) == [1, 3]


def test_what_leaves_on_another_broker_is_not_what_is_set_aside_with_its_number() -> None:
    member = Member()
    queue = member.queue("q", "configuration")
    send(member, "q", "a", "b")
    member.settled()
    member = member.restarted(passive=True)
    begin = LevelChanged(
        queue.uid, "configuration", logged=True, own_numbers=10_002, keeper="another"
    )
    for record in (begin, Dequeued(queue.uid, (1, 2))):
        member.broker.apply(member.main.append(record), record)
    assert [one.fields["messages"] for one in member.local.settle()] == [2]


def test_it_is_told_what_goes_with_a_queue_that_the_cluster_deletes() -> None:
    member = Member()
    queue = member.queue("q", "configuration")
    send(member, "q", "a", "b")
    member.broker.passive = True
    member.broker.apply(member.main.end + 1, QueueDeleted(queue.uid))
    assert gone(member) == [2] and "q" not in member.broker.queues


def test_it_is_known_what_no_other_broker_has() -> None:
    member = Member()
    queues = [member.queue(name, name) for name in ("none", "configuration")]
    member.queue("ours", "all")
    member.queue("empty")
    member.settled()
    for name in ("none", "configuration", "ours"):
        send(member, name, "a", "b")
    member.settled()
    assert member.local.kept == dict.fromkeys(queues, 2)
    backup = member.restarted(passive=True)
    assert sorted(backup.local.kept.values()) == [2, 2]
    backup.broker.reset(keep_local=True)  # Those of level configuration are set aside now.
    assert sorted(backup.local.kept.values()) == [2, 2]


def test_of_a_queue_on_its_way_into_the_log_the_rest_is_only_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(level_module, "RECORDED_A_TURN", 2)
    member = Member()
    queue, _ = member.broker.declare_queue("q", durable=True)
    send(member, "q", "a", "b", "c", "d", "e", "f")
    member.settled()
    levels = member.broker.levels
    levels.wanted = lambda queue: "all"  # type: ignore[method-assign]
    levels.look(queue)
    seen = set()
    while queue.options.replicate != "all":
        seen.add(member.local.kept.get(queue, 0))
        go_on(member, 1)
    assert {6, 4, 2} <= seen and member.local.kept == {}
