"""The checkpointer: checkpoints come when they are worth it, show a moment of the log, and no body
points to a file that is gone.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from qpidha.broker import credit as credit_module
from qpidha.broker.credit import DISK_FREE_LIMIT, SLOW_DISK
from qpidha.broker.queues import backlog, messages
from qpidha.broker.queues.queue import Queue
from qpidha.model.message import Message
from qpidha.store import checkpointer, weighing
from qpidha.store import log as log_module
from qpidha.store.recovery import snapshot_objects
from tests.store.durable import Machine, a_message
from tests.store.test_write_ahead_log import words

SECOND = 1_000_000_000


def ticks(machine: Machine, n: int, *, since: int = 1) -> int:
    """Let some seconds go by; return how many checkpoints were made."""
    made = 0
    for second in range(since, since + n):
        before = machine.wal.checkpoint_size, machine.wal.report()["written"]
        machine.checkpointer.tick(second * 2 * SECOND)
        machine.settle()
        made += (machine.wal.checkpoint_size, machine.wal.report()["written"]) != before
    return made


def test_a_broker_with_many_tiny_messages_makes_no_checkpoint_after_checkpoint() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(30):
        machine.publish("q", *[b""] * 200, durable=False)
        machine.turn()
    ticks(machine, 2)
    assert ticks(machine, 10, since=10) == 0


def test_a_broker_with_many_objects_and_no_messages_makes_no_checkpoint_after_checkpoint() -> None:
    machine = Machine(log_disk=0)
    for number in range(300):
        machine.broker.declare_queue(f"q{number}", durable=True)
    machine.turn()
    ticks(machine, 2)
    assert ticks(machine, 10, since=10) == 0
    again = machine.restart("lose", log_disk=0)
    assert ticks(again, 10) == 0


def test_what_a_large_checkpoint_held_is_reclaimed_when_it_was_consumed() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(30):
        machine.publish("q", *words(200))
        machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.wal.checkpoint_size > 16 * 4096
    machine.take("q", 6000)
    machine.turn()
    ticks(machine, 3)
    assert machine.wal.size < 8 * 4096


def test_a_broker_that_never_rests_makes_its_checkpoints_all_the_same() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    for second in range(1, 60):
        machine.publish("q", *words(50))
        machine.turn()
        machine.take("q", 50)
        machine.checkpointer.tick(second * 2 * SECOND)  # with something pending, whenever it comes
        machine.turn()
    assert machine.wal.size < 16 * 4096


def test_a_start_is_followed_by_a_look_at_the_journal() -> None:
    machine = Machine()
    machine.turn()
    assert machine.restart().checkpointer.next_deadline > 0


def test_a_checkpoint_shows_nothing_that_is_not_in_the_log_yet() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.take("q", 5)
    for _ in range(20):  # as on a primary whose backups take no batch now
        machine.checkpointer.turn(machine.log.last)
        while machine.disk.pump():
            pass
    assert machine.restart("keep").bodies("q") == words(5)


@pytest.mark.parametrize("limit", [1_000_000, 0])
def test_senders_wait_while_the_disk_is_far_behind_and_what_was_on_its_way_is_taken(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "BACKLOG", 10_000)
    monkeypatch.setattr(credit_module, "MOST_ON_ITS_WAY", 200_000)
    machine = Machine(limit=limit)
    credit = machine.broker.credit
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    machine.publish("q", *[bytes(200)] * 60, durable=False)
    machine.turn(pumps=0)
    machine.turn(pumps=0)
    assert "too slow" in credit.withheld[SLOW_DISK]
    # What senders may have had on their way then, all together.
    machine.publish("q", *[bytes(200)] * (credit.spare // 300), durable=False)
    machine.turn(pumps=0)
    assert machine.broker.refuse_publishing == ""
    machine.turn()
    machine.turn()
    assert not credit.withheld


@pytest.mark.parametrize("limit", [1_000_000, 0])
def test_nothing_is_taken_from_those_who_do_not_heed_that_the_disk_is_far_behind(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "BACKLOG", 10_000)
    monkeypatch.setattr(credit_module, "MOST_ON_ITS_WAY", 200_000)
    machine = Machine(limit=limit)
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    machine.publish("q", *[bytes(200)] * 1200, durable=False)
    machine.turn(pumps=0)
    machine.turn(pumps=0)
    assert "disk" in machine.broker.refuse_publishing
    machine.turn()
    machine.turn()
    assert machine.broker.refuse_publishing == ""


def partials(machine: Machine) -> list[str]:
    return [name for name in machine.files.written if name.endswith(".partial")]


def test_no_checkpoint_is_begun_for_which_there_is_no_space_and_that_is_said_once() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    for number in range(40):
        machine.publish("q", *words(100))
        machine.turn()
        if number >= 5:
            machine.take("q", 100)
        machine.turn()
    size = machine.wal.size
    machine.disk.free = 3000
    said = []
    for second in range(1, 10):
        said += machine.checkpointer.tick(second * 2 * SECOND)
        machine.settle()
    assert machine.wal.checkpoint_size == 0
    (told,) = said
    assert told.level == "warning" and "no checkpoint" in told.text
    again = machine.restart("keep", log_disk=0)
    again.disk.free = 3000
    assert [told.text for told in again.checkpointer.tick(SECOND)] != []
    again.settle()
    assert again.wal.checkpoint_size == 0
    again.take("q", 490)
    again.turn()
    assert ticks(again, 3, since=10) == 1  # it is small enough now, and gives back all the rest
    assert again.wal.size < size / 4


def test_a_small_log_goes_as_well_while_senders_wait_for_space_on_the_disk() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(200))
    machine.turn()
    machine.take("q", 200)
    machine.turn()
    size = machine.wal.size
    machine.broker.credit.withhold(DISK_FREE_LIMIT, "the disk is nearly full")
    assert ticks(machine, 3) == 1 and machine.wal.size < size / 4
    machine.publish("q", b"x")
    machine.turn()
    assert ticks(machine, 10, since=10) == 0  # One after the other would give nothing back.


def test_a_checkpoint_that_the_disk_has_no_space_for_is_given_up_and_nothing_is_missing() -> None:
    machine = Machine(log_disk=0, queue_memory=1)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(80):
        machine.publish("q", *words(40, b"x" * 90))
        machine.turn()
    machine.turn()
    before = machine.bodies("q")
    machine.checkpointer.checkpoint(machine.log.last)
    for _ in range(4):
        machine.turn(pumps=3)
    assert partials(machine)
    machine.disk.free = 1
    machine.settle()
    assert (
        machine.checkpointer.has_given_up
        and partials(machine) == []
        and not machine.wal.is_snapshotting
    )
    assert machine.broker.queue("q").paged_out > 0 and machine.bodies("q") == before
    (told,) = machine.checkpointer.tick(SECOND)
    assert told.level == "warning" and "given up" in told.text
    machine.publish("q", b"later")
    machine.disk.free = 1 << 40
    machine.settle()
    again = machine.restart("lose", log_disk=0)
    assert again.bodies("q") == [*before, b"later"]
    machine = again
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.restart("lose").bodies("q") == [*before, b"later"]


def a_long_checkpoint() -> Machine:
    """One of some parts that has begun."""
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(40):
        machine.publish("q", *words(40, b"x" * 90))
        machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.turn()
    assert machine.checkpointer.is_busy
    return machine


def test_a_checkpoint_may_rest_while_the_log_grows_no_faster() -> None:
    machine = a_long_checkpoint()
    assert not machine.checkpointer.turn(machine.log.last, rests=True)
    assert machine.checkpointer.is_busy
    assert machine.checkpointer.turn(machine.log.last)
    while machine.checkpointer.may_rest:
        machine.publish("q", *words(40, b"x" * 90))
        machine.log.seal()
    while machine.disk.pump():
        pass
    assert machine.checkpointer.turn(machine.log.last, rests=True)


def test_a_checkpoint_that_senders_wait_for_does_not_rest() -> None:
    machine = a_long_checkpoint()
    machine.broker.credit.withhold(DISK_FREE_LIMIT, "too little")
    assert machine.checkpointer.turn(machine.log.last, rests=True)


def test_a_checkpoint_that_is_given_up_leaves_no_empty_segment() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", b"before")
    machine.settle()
    before = machine.wal.report()["files"]
    machine.disk.free = 1
    for _ in range(3):
        machine.checkpointer.checkpoint(machine.log.last)
        machine.settle()
    assert machine.checkpointer.has_given_up and machine.wal.report()["files"] == before
    machine.disk.free = 1 << 40
    machine.publish("q", b"later")
    machine.settle()
    again = machine.restart("lose", log_disk=0)
    assert again.bodies("q") == [b"before", b"later"]


def test_a_segment_that_got_something_stays_when_its_checkpoint_is_given_up() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", b"before")
    machine.settle()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.publish("q", b"meanwhile")
    machine.disk.free = 1
    machine.settle()
    assert machine.checkpointer.has_given_up
    assert machine.restart("lose", log_disk=0).bodies("q") == [b"before", b"meanwhile"]


def test_queues_without_messages_do_not_end_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qpidha.store.recovery.QUEUES_AT_ONCE", 1)
    machine = Machine(log_disk=0)
    for name in "abcdef":
        machine.broker.declare_queue(name, durable=True)
    machine.publish("e", b"here")
    machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.wal.checkpoint_size
    assert machine.restart("lose", log_disk=0).bodies("e") == [b"here"]


def test_a_queue_within_its_memory_keeps_its_bodies_there_when_a_checkpoint_is_read() -> None:
    machine = Machine(log_disk=0, queue_memory=300)
    for name, n in ("long", 100), ("short", 5):
        machine.broker.declare_queue(name, durable=True)
        machine.publish(name, *words(n))
    machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    again = machine.restart(log_disk=0, queue_memory=300)
    assert again.broker.queue("long").paged_out > 0
    assert again.broker.queue("short").paged_out == 0
    assert again.bodies("long") == words(100) and again.bodies("short") == words(5)


def test_bodies_of_replicas_leave_memory_though_their_numbers_are_not_those_of_the_log() -> None:
    """Those of one number on two queues come in one batch, and one of them stays in memory."""
    machine = Machine(log_disk=0)
    queues = [machine.broker.declare_queue(name, durable=True)[0] for name in ("q", "r")]
    for queue in queues:
        queue.begin_copying()
    machine.log.pass_over(10_000)
    machine.turn()
    for start in range(1, 500, 50):
        for queue, numbers in zip(queues, (range(start, start + 50), [start]), strict=True):
            payloads = [a_message(b"%s %d" % (queue.name.encode(), each)) for each in numbers]
            machine.log.enqueue_numbered(queue.uid, [*numbers], payloads, [])
            queue.insert_run([*numbers], payloads, [])
        machine.log.must_sync = True
        machine.turn()
    machine.turn()
    q, r = queues
    assert q.paged_out + r.paged_out > 0
    assert q.resident + r.resident == sum(len(a_message(b"q %d" % n)) for n in range(1, 500, 50))
    wanted = [b"q %d" % number for number in range(1, 501)]
    assert machine.bodies("q") == wanted
    assert machine.bodies("r") == [b"r %d" % number for number in range(1, 500, 50)]
    late = a_message(b"another")
    q.begin_anew()
    q.insert_run([7], [late], [])
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.bodies("q") == [b"another"]


def test_a_backup_keeps_as_many_bodies_in_memory_as_the_primary() -> None:
    """It is primary after a failover, and consumers are next to get them."""
    machine = Machine(log_disk=0, queue_memory=500)
    queue, _ = machine.broker.declare_queue("q", durable=True)
    machine.broker.passive = True
    queue.reconfigure(queue.spec)
    for count in (10, 100):
        assert queue.paged_out == 0
        for _ in range(count):
            queue.insert(machine.log.enqueue(queue.uid, bytes(10), 0), bytes(10))
        machine.log.must_sync = True
        machine.turn()
        machine.turn()
    assert queue.paged_out == 1000 and queue not in machine.broker.over_budget


def test_a_part_of_a_checkpoint_that_would_take_all_the_space_is_not_written() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    machine.disk.free = len(next(snapshot_objects(machine.broker)))
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.checkpointer.has_given_up and machine.wal.checkpoint_size == 0


def test_after_one_was_given_up_another_checkpoint_is_not_tried_at_once() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(40):
        machine.publish("q", *words(100))
        machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.disk.free = 1
    machine.settle()
    machine.disk.free = 1 << 40
    machine.take("q", 3900)
    machine.turn()
    assert ticks(machine, 20) == 0
    machine.take("q", 50)
    machine.turn()
    assert ticks(machine, 1, since=21) == 0
    # Meanwhile queues are weighed as ever: the memory limit goes by that.
    assert machine.checkpointer.weighing.memory == 50 * weighing.IN_MEMORY
    assert ticks(machine, 20, since=30) == 1


def test_old_segments_go_when_the_disk_gets_full_though_a_backup_could_use_them() -> None:
    machine = Machine(log_disk=1 << 30)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(40):
        machine.publish("q", *words(100))
        machine.turn()
        machine.take("q", 100)
        machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    size = machine.wal.size
    assert size > 16 * 4096
    machine.disk.free = 20_000
    ticks(machine, 2)
    assert machine.wal.size < 8 * 4096
    machine.publish("q", *words(3))
    machine.turn()
    assert machine.restart("drop").bodies("q") == words(3)


class Life:
    """Random things done to a durable broker whose queues keep next to nothing in memory."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.options: dict[str, Any] = {
            "queue_memory": self.rng.choice([1, 60, 200]),
            "log_memory": self.rng.choice([0, 2000]),
            "log_disk": self.rng.choice([0, 9000]),
        }
        self.machine = Machine(seed=seed, **self.options)
        self.expected: dict[str, dict[int, bytes]] = {}
        self.acquired: list[tuple[str, Message]] = []
        self.number = 0
        self.second = 0

    def step(self) -> None:
        rng, machine = self.rng, self.machine
        name = rng.choice(["a", "b", "c"])
        roll = rng.random()
        if name not in machine.broker.queues:
            machine.broker.declare_queue(
                name, durable=True, alternate="amq.fanout" if name == "a" else ""
            )
            if name == "c":
                machine.broker.bind("amq.fanout", "c")
        elif roll < 0.45:
            self.publish(name)
        elif roll < 0.6:
            self.acquire(name)
        elif roll < 0.75:
            self.settle()
        elif roll < 0.8:
            machine.broker.delete_queue(name)
            self.acquired = [(held, message) for held, message in self.acquired if held != name]
        elif roll < 0.9 and not machine.wal.is_snapshotting and not machine.log.has_pending:
            machine.checkpointer.checkpoint(machine.log.last)
        elif roll < 0.93:
            self.second += 2
            machine.disk.free = rng.choice([500, 5000, 1 << 40])
            machine.checkpointer.tick(self.second * SECOND)
        elif roll < 0.94:
            kept = machine.log.durable_to
            self.machine = machine.restart("keep", **self.options)
            self.acquired.clear()
            for known in (
                self.expected.values()
            ):  # what was not kept is gone, and others may have its numbers
                for sequence in [sequence for sequence in known if sequence > kept]:
                    del known[sequence]
        self.machine.turn(pumps=rng.choice([0, 1, 3, 1000]))

    def publish(self, name: str) -> None:
        for _ in range(self.rng.randint(1, 30)):
            self.number += 1
            body = b"%d" % self.number * self.rng.randint(1, 30)
            if self.rng.random() < 0.1:
                self.machine.broker.publish("amq.fanout", "", a_message(body[:200]), headers=dict)
            else:
                self.machine.publish(name, body[:200])

    def acquire(self, name: str) -> None:
        queue = self.machine.broker.queue(name)
        for message in queue.available()[: self.rng.randint(1, 10)]:
            queue.acquire(message)
            self.acquired.append((name, message))

    def settle(self) -> None:
        self.rng.shuffle(self.acquired)
        for _ in range(self.rng.randint(0, len(self.acquired))):
            name, message = self.acquired.pop()
            queue = self.machine.broker.queue(name)
            how = self.rng.choice(["dequeue", "release", "requeue", "reject"])
            if how == "dequeue":
                queue.dequeue(message)
            elif how == "release":
                queue.release(message)
            elif how == "requeue":
                queue.requeue(message, failed=True)
            else:
                queue.reject(message)

    def look(self) -> None:
        """Every message that is anywhere can be read, and is what it was."""
        for name, queue in self.machine.broker.queues.items():
            known = self.expected.setdefault(f"{name} {queue.uid}", {})
            for message in queue.messages.values():
                body = message.body()
                assert len(body) == message.size
                assert known.setdefault(message.sequence, body) == body, (name, message.sequence)
            warm = sum(
                message.size
                for message in queue.messages.values()
                if isinstance(message.payload, bytes)
            )
            assert queue.bytes - queue.paged_out == warm, name


@pytest.mark.parametrize("seed", range(120))
def test_every_body_can_be_read_at_any_time(seed: int) -> None:
    life = Life(seed)
    for _ in range(60):
        life.step()
        life.look()


class PackedLife(Life):
    """The same with queues of which nearly all is packed, whenever that can be."""

    def step(self) -> None:
        super().step()
        for queue in self.machine.broker.queues.values():
            sequences = list(queue.messages)
            if sequences and self.rng.random() < 0.2:
                queue.messages.get(self.rng.choice(sequences))
            if self.rng.random() < 0.6:
                cursor = 0
                while cursor := queue.pack_some(cursor, 1 << 62):
                    pass
        if self.rng.random() < 0.1:
            self.look()

    def look(self) -> None:
        self.machine.wal._cache.clear()  # What is there no more is not in memory by luck.
        super().look()


@pytest.mark.parametrize("seed", range(120))
def test_every_body_can_be_read_at_any_time_of_messages_that_are_packed(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(messages, "FEWEST", 2)
    monkeypatch.setattr(messages, "PIECE", 300)
    monkeypatch.setattr(backlog, "WHOLE", 600)
    monkeypatch.setattr(backlog, "LONG", 3)
    monkeypatch.setattr(backlog, "AHEAD", 1)
    monkeypatch.setattr(backlog, "AT_ONCE", 5)
    life = PackedLife(seed)
    for _ in range(100):
        life.step()
    life.look()


def test_what_is_packed_stays_packed_when_a_checkpoint_is_written() -> None:
    machine = Machine(log_disk=0, queue_memory=1 << 20)
    queue, _ = machine.broker.declare_queue("q", durable=True)
    assert isinstance(queue, Queue)
    for _ in range(60):
        machine.publish("q", *words(100, b"x" * 90))
        machine.turn()
    machine.settle()
    cursor = 0
    while cursor := queue.pack_some(cursor, 5000):
        pass
    packed = queue.messages.packed
    assert packed >= 2900
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert not machine.wal.is_snapshotting
    assert queue.messages.packed == packed
    before = machine.bodies("q")
    assert len(before) == 6000 and machine.restart("lose").bodies("q") == before


def test_a_checkpoint_is_synced_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointer, "SYNC_BYTES", 100_000)
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    for _ in range(40):
        machine.publish("q", *[bytes(200)] * 200)
        machine.turn()
    before = machine.disk.syncs
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.wal.checkpoint_size > 1_500_000
    # So little is left for the one at its end, for which all else waits.
    assert machine.disk.syncs - before > 10
