"""Memory: what is in use is known at any time, the largest queues are on disk when that is too
much, and a start keeps to the limit as well.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.amqp.peer.sasl import Users
from qpidha.broker.credit import MEMORY_LIMIT
from qpidha.model.settings import Settings
from qpidha.node import Node
from qpidha.store import checkpointer, memory, weighing
from qpidha.store.weighing import Weighing
from tests.store.durable import Machine, a_message
from tests.store.follower import Follower, Source, state_of

SECOND = 1_000_000_000
SMALL = {"log_memory": 1, "log_disk": 0}
"""Nothing of the log is in memory or on disk that need not be."""


def words(machine: Machine, count: int) -> list[bytes]:
    """Make bodies of 200 bytes that are not like each other."""
    return [machine.rng.randbytes(200) for _ in range(count)]


def resident(machine: Machine) -> int:
    """Count again what bodies have in memory."""
    return sum(
        len(message.payload)
        for queue in machine.broker.queues.values()
        for message in queue.messages.values()
        if isinstance(message.payload, bytes)
    )


def contents(machine: Machine, name: str) -> list[bytes]:
    """Read the bodies on a queue, of durable messages and others."""
    queue = machine.broker.queue(name)
    return [queue.messages[sequence].body()[-200:] for sequence in queue.ordered()]


def fill(machine: Machine, name: str, count: int) -> list[bytes]:
    """Put messages on a queue, ten in a turn."""
    if name not in machine.broker.queues:
        machine.broker.declare_queue(name, durable=True)
    bodies = words(machine, count)
    for start in range(0, count, 10):
        machine.publish(name, *bodies[start : start + 10])
        machine.turn()
    return bodies


def test_faults_b3_near_the_limit_the_largest_queue_is_on_disk_only() -> None:
    machine = Machine(limit=100_000, **SMALL)
    small, large = fill(machine, "small", 10), fill(machine, "large", 1000)
    assert resident(machine) == machine.broker.use.bodies <= 80_000 + 10_000
    assert machine.broker.queue("large").paged_out > 100_000
    assert machine.broker.queue("small").paged_out == 0
    assert not machine.broker.credit.withheld
    assert (machine.bodies("small"), machine.bodies("large")) == (small, large)


def test_what_is_next_stays_in_memory() -> None:
    machine = Machine(limit=100_000, **SMALL)
    fill(machine, "q", 500)
    queue = machine.broker.queue("q")
    first = [queue.messages[sequence] for sequence in queue.ordered()[:20]]
    assert queue.paged_out and all(isinstance(message.payload, bytes) for message in first)


def test_many_small_queues_are_on_disk_as_well() -> None:
    machine = Machine(limit=100_000, **SMALL)
    bodies = {f"q{number}": fill(machine, f"q{number}", 10) for number in range(60)}
    while machine.memory.is_busy:
        machine.turn()
    assert machine.broker.use.bodies <= 80_000
    assert {name: machine.bodies(name) for name in bodies} == bodies


def test_messages_from_before_a_checkpoint_are_read_from_that() -> None:
    machine = Machine(**SMALL)
    bodies = fill(machine, "q", 300)
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    bodies += fill(machine, "q", 20)
    low = memory.Memory(20_000, machine.broker, machine.log, machine.wal, None)
    for _ in range(20):
        low.turn(1)
    assert machine.broker.use.bodies <= 16_000
    assert machine.bodies("q") == bodies
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.bodies("q") == bodies


def test_nothing_is_let_go_while_a_checkpoint_is_written_but_what_comes() -> None:
    machine = Machine(limit=100_000, **SMALL)
    bodies = fill(machine, "q", 350)
    assert not machine.broker.queue("q").paged_out
    machine.checkpointer.checkpoint(machine.log.last)
    while machine.wal.is_snapshotting:
        bodies += words(machine, 10)
        machine.publish("q", *bodies[-10:])
        machine.turn()
    assert machine.bodies("q") == bodies
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.bodies("q") == bodies


def test_a_checkpoint_in_the_middle_of_letting_go_keeps_nobody_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "AT_ONCE", 50)
    machine = Machine(limit=100_000, **SMALL)
    fill(machine, "q", 350)
    use, credit = machine.broker.use, machine.broker.credit
    use.output = 40_000
    machine.turn()
    assert MEMORY_LIMIT in credit.withheld and machine.memory.is_busy
    machine.checkpointer.checkpoint(machine.log.last)
    use.output -= machine.memory.used - 75_000
    machine.settle()
    assert machine.memory.used > 70_000 and credit.withheld  # Nothing could be let go meanwhile.
    machine.now += 2 * SECOND
    machine.turn()
    while machine.memory.is_busy:
        machine.turn()
    assert machine.memory.used <= 70_000 and not credit.withheld


def test_log_that_was_kept_for_a_slow_disk_goes_though_nothing_comes_any_more() -> None:
    machine = Machine(limit=100_000, **SMALL)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(40):
        machine.publish("q", *words(machine, 10))
        machine.turn(pumps=0)
    machine.take("q", 400)
    machine.turn(pumps=0)
    assert MEMORY_LIMIT in machine.broker.credit.withheld
    for _ in range(5):
        machine.now += SECOND
        machine.turn()
    assert machine.memory.used <= 70_000 and not machine.broker.credit.withheld


def test_faults_b3_a_start_with_a_full_log_keeps_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpointer, "PARTS", 1)
    machine = Machine(**SMALL)
    bodies = {f"q{number}": fill(machine, f"q{number}", 20) for number in range(30)}
    for with_checkpoint in (False, True):
        if with_checkpoint:
            machine.checkpointer.checkpoint(machine.log.last)
            machine.settle()
        machine = machine.restart(limit=250_000, **SMALL)
        assert resident(machine) == machine.broker.use.bodies < 95_000
        machine.turn()
        while machine.memory.is_busy:
            machine.turn()
        assert machine.memory.used <= 200_000  # With what messages cost beside their bodies.
        assert {name: machine.bodies(name) for name in bodies} == bodies


def test_a_backup_keeps_to_the_limit_when_a_snapshot_comes() -> None:
    source = Source([], 1)
    source.broker.declare_queue("q", durable=True)
    rng = random.Random(3)
    for _ in range(100):
        for _ in range(10):
            source.broker.publish("", "q", a_message(rng.randbytes(200)), headers=dict)
        source.seal()
    source.log.committed = source.log.last
    source.resume_point = lambda request: -1  # type: ignore[method-assign]
    follower = Follower(most=10_000, log_memory=1)
    follower.follow(source)
    while follower.chunks is not None:
        follower.hear()
        follower.turn()
    follower.turn()
    assert follower.broker.queue("q").paged_out > 100_000
    assert follower.broker.use.bodies < 80_000  # A chunk, and what is let be in memory.
    assert state_of(follower.broker) == state_of(source.broker)


@given(st.lists(st.integers(0, 9), max_size=60), st.integers(0, 1 << 30))
def test_the_sum_is_what_a_recount_gives_and_each_body_is_what_it_was(
    steps: list[int], seed: int
) -> None:
    machine = Machine(limit=8_000, seed=seed, **SMALL)
    expected: dict[str, list[bytes]] = {"a": [], "b": []}
    for name in expected:
        machine.broker.declare_queue(name, durable=True)
    machine.turn()
    for step in steps:
        name = machine.rng.choice(["a", "b"])
        if step < 5:
            some = words(machine, machine.rng.randrange(1, 9))
            machine.publish(name, *some, durable=machine.rng.random() < 0.5)
            expected[name] += some
        elif step < 7:
            count = machine.rng.randrange(1, 12)
            machine.take(name, count)
            del expected[name][:count]
        elif step == 7 and not machine.wal.is_snapshotting:
            machine.turn()
            machine.checkpointer.checkpoint(machine.log.last)
        elif step == 8:
            machine.settle()
            machine = machine.restart("keep", limit=8_000, **SMALL)
        elif machine.rng.random() < 0.3:
            machine.broker.purge(name)
            expected[name].clear()
        machine.now += SECOND
        machine.turn(pumps=machine.rng.choice([0, 3, 1000]))
        assert machine.broker.use.bodies == resident(machine)
    machine.settle()
    assert {name: contents(machine, name) for name in expected} == expected
    for name in expected:
        machine.broker.delete_queue(name)
    assert machine.broker.use.bodies == 0


def test_above_the_limit_senders_get_no_credit_until_much_less_is_in_use() -> None:
    machine = Machine(limit=100_000, **SMALL)
    machine.broker.declare_queue("q")
    machine.publish("q", *words(machine, 600))
    said = machine.memory.turn(1)
    assert "memory-limit is 0.1 MB" in machine.broker.credit.withheld[MEMORY_LIMIT]
    assert [one.level for one in said] == ["warning"] and "bodies 0.1" in said[0].text
    machine.take("q", 200)
    assert machine.memory.turn(2) == [] and machine.broker.credit.withheld
    machine.take("q", 100)
    said = machine.memory.turn(3)
    assert [one.level for one in said] == ["notice"] and not machine.broker.credit.withheld
    machine.publish("q", *words(machine, 300))
    assert machine.memory.turn(4) == []  # Told a moment ago.
    assert machine.broker.credit.withheld


def test_a_backup_above_its_limit_does_not_speak_of_senders() -> None:
    machine = Machine(limit=100_000, **SMALL)
    machine.broker.passive = True
    machine.broker.use.output = 110_000
    (said,) = machine.memory.turn(1)
    assert "memory-limit is 0.1 MB; give all brokers the same limit" in said.text
    machine.broker.use.output = 0
    (over,) = machine.memory.turn(2)
    assert over.text == "a backup keeps to its limit again: 0.0 MB are in use"
    assert not any("senders" in text for text in (said.text, over.text))


def test_code_d6_what_is_not_a_body_counts_too() -> None:
    machine = Machine(limit=100_000, **SMALL)
    use, before = machine.broker.use, machine.memory.used
    use.output, use.transactions, use.unfinished, use.answers = 40_000, 30_000, 30_000, 10_000
    machine.memory.turn(1)
    assert machine.memory.used == before + 110_000 and machine.broker.credit.withheld
    report = machine.memory.report()
    assert (report["limit"], report["used"]) == (100_000, before + 110_000)
    assert report["output"] == 50_000
    use.output = 0
    machine.memory.turn(1)
    assert not machine.broker.credit.withheld


def test_without_a_limit_nothing_is_let_go_and_nobody_waits() -> None:
    machine = Machine(**SMALL)
    fill(machine, "q", 500)
    assert not machine.broker.queue("q").paged_out
    assert machine.broker.use.peer_share > 1 << 40
    assert Machine(limit=1 << 30).broker.use.peer_share == 4 << 20
    assert machine.memory.report()["limit"] == 0


def in_memory(machine: Machine) -> int:
    """Count the messages whose records are in the log that is in memory."""
    return sum(batch.last - batch.first + 1 for batch in machine.log._batches)


def test_log_that_came_long_ago_leaves_memory_and_is_read_from_disk() -> None:
    machine = Machine(log_memory=1 << 20, log_disk=1 << 20)
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    start, first = machine.log.start, machine.log.last + 1
    fill(machine, "q", 50)
    machine.memory.tick(SECOND)
    assert in_memory(machine) == 51
    fill(machine, "q", 30)
    machine.memory.tick(SECOND + memory.RESTING - 1)
    assert in_memory(machine) == 81
    machine.memory.tick(2 * SECOND + memory.RESTING)
    assert in_memory(machine) == 30
    assert machine.log.start == start
    batches = list(machine.log.batches(first))
    assert [batch.first for batch in batches] == list(range(first, first + 80, 10))
    machine.memory.tick(3 * SECOND + 2 * memory.RESTING)
    assert in_memory(machine) == 10  # The last batch stays.


def test_the_last_transient_content_leaves_memory_too_though_nothing_follows() -> None:
    machine = Machine(log_memory=1 << 20, log_disk=1 << 20)
    machine.broker.declare_queue("q")
    for body in words(machine, 50):
        machine.publish("q", body, durable=False)
        machine.turn()
    written, last = machine.log.written_to, machine.log.last
    assert written < last - 40 and len(machine.log.recent) > 40
    for step in range(1, 3):
        machine.memory.tick(step * (SECOND + memory.RESTING))
        machine.turn()
        machine.turn()
        assert machine.log.written_to == last and not machine.log.recent
    assert len(machine.log._batches) == 1


def test_log_stays_in_memory_if_the_disk_does_not_keep_it_as_long() -> None:
    machine = Machine(log_memory=1 << 20, log_disk=0)
    fill(machine, "q", 50)
    for step in range(4):
        machine.memory.tick((1 + step) * memory.RESTING)
    assert in_memory(machine) > 50


def test_performance_4_queues_are_weighed_a_piece_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    for number in range(25):
        fill(machine, f"q{number}", 10)
    whole = Weighing(machine.broker)
    assert whole.step() == whole.all() == machine.checkpointer.weighing.all()
    assert whole.memory == 250 * weighing.IN_MEMORY
    monkeypatch.setattr(weighing, "PIECE", 10)
    rolling = Weighing(machine.broker)
    assert [rolling.step() for _ in range(4)] == [0, 0, whole.weight, whole.weight]
    machine.broker.delete_queue("q3")
    assert rolling.all() < whole.weight


def test_with_little_memory_little_is_on_its_way_to_a_backup() -> None:
    def flow(limit: int, **options: object) -> int:
        settings = Settings(ha_cluster=True, **options)  # type: ignore[arg-type]
        node = Node(
            settings,
            system_id="b1",
            users=Users(),
            state=b"",
            address="h:1",
            make_uuid=lambda: "b1",
            memory_limit=limit,
        )
        assert node.cluster is not None
        return node.cluster.settings.ha_flow_bytes

    assert flow(64 << 20) == 256 << 10
    assert flow(64 << 20, ha_flow_bytes=1 << 20) == 1 << 20
    assert flow(1 << 34) == flow(0) == 0  # What it is without a limit.
