"""The write-ahead log: what was synced is there again after any crash, in the place it had."""

from __future__ import annotations

import json
import random
from typing import Any
from zlib import crc32

import pytest

from qpidha.broker.policy import policy_asked_for
from qpidha.model.errors import LogDamaged
from qpidha.model.features import QUEUE_KINDS
from qpidha.store.codec import encode_enqueues
from qpidha.store.disk import Disk
from qpidha.store.frames import BATCH, Frame, decode_frame, encode_frame, sound_frames
from qpidha.store.log_reader import NAME, SegmentReader
from qpidha.store.write_ahead_log import Bodies, File, PayloadRef, WriteAheadLog
from tests.store.durable import Machine


def words(n: int, prefix: bytes = b"w") -> list[bytes]:
    return [b"%s%d" % (prefix, number) for number in range(n)]


def test_a_frame_that_is_changed_anywhere_is_none() -> None:
    frame = encode_frame(2, b"some data", salt=7, epoch=3, first=4, last=5, committed=2, synced=1)
    assert decode_frame(frame, salt=7) is not None
    for place in range(len(frame)):
        changed = bytearray(frame)
        changed[place] ^= 0x10
        assert decode_frame(bytes(changed), salt=7) is None, place


def test_sound_frames_are_found_behind_rubbish() -> None:
    one, two = encode_frame(2, b"one", first=1, last=1), encode_frame(2, b"two", first=2, last=2)
    assert [
        frame.data for frame in sound_frames(b"\xa7Qrubbish" + one + b"\xa7" + two[:-1], 0)
    ] == [b"one"]


def test_durable_objects_and_messages_survive_a_restart() -> None:
    machine = Machine()
    machine.broker.declare_exchange("ex", "fanout", durable=True)
    machine.broker.declare_queue("q", durable=True)
    machine.broker.bind("ex", "q")
    machine.publish("q", *words(20))
    machine.turn()
    assert machine.take("q", 5)
    machine.turn()
    again = machine.restart()
    assert again.bodies("q") == words(20)[5:]
    assert again.broker.exchange("ex").binding_count == 1
    assert again.notes == []


def test_what_is_not_synced_does_not_count_and_what_counts_survives_a_power_cut() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    before = machine.log.durable_to
    machine.publish("q", *words(3))
    machine.turn(pumps=0)
    assert machine.log.durable_to == before < machine.log.last
    machine.turn()
    assert machine.log.durable_to == machine.log.last
    assert machine.restart("lose").bodies("q") == words(3)


def test_one_sync_serves_all_that_arrived_meanwhile() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    syncs = machine.disk.syncs
    for word in words(50):
        machine.publish("q", word)
        machine.turn(pumps=0)
    machine.turn()
    assert machine.log.durable_to == machine.log.last
    assert machine.disk.syncs - syncs <= 51


def test_transient_content_waits_for_no_disk() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    machine.publish("q", *words(10), durable=False)
    machine.turn(pumps=0)
    assert machine.log.durable_to == machine.log.last


@pytest.mark.parametrize("cut", range(1, 80, 7))
def test_a_torn_tail_is_cut_off_and_said(cut: int) -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    machine.publish("q", b"last")
    machine.turn()
    name = max(name for name in machine.files.written if name.endswith(".log"))
    machine.disk.crash("keep")
    machine.files.written[name] = machine.files.written[name][:-cut]
    again = Machine(machine.files)
    assert again.bodies("q") == words(5)
    assert "cut off" in again.notes[0]
    again.publish("q", b"next")
    again.turn()
    assert again.restart().bodies("q") == [*words(5), b"next"]


def test_a_payload_that_is_a_frame_is_none_when_the_power_cut_tears_the_frame_around_it() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    name = max(name for name in machine.files.written if name.endswith(".log"))
    size = len(machine.files.written[name])
    machine.publish(
        "q",
        encode_frame(
            2, b"", epoch=1, first=1 << 40, last=1 << 40, committed=1 << 40, synced=1 << 40
        ),
    )
    machine.turn()
    machine.disk.crash("keep")
    content = machine.files.written[name]
    machine.files.written[name] = content[:size] + bytes(20) + content[size + 20 :]
    again = Machine(machine.files)
    assert again.bodies("q") == words(5)
    assert "cut off" in again.notes[0]


def test_no_salt_is_lost_by_a_frame_that_reaches_over_the_next_one() -> None:
    """Where the salt begins the checksum instead, that of the outer frame is the same for all
    salts, and can be made up.
    """
    found = set()
    for salt in range(100):
        inner = encode_frame(2, b"message", salt=salt, first=1, last=1)
        outer = encode_frame(2, bytes(len(inner) - 8 - 46) + inner, salt=salt)
        found.add(outer[2:6])
    assert len(found) == 100


@pytest.mark.parametrize("kind", ["log", "checkpoint"])
def test_all_files_of_a_journal_have_its_salt_whatever_the_next_life_would_take(kind: str) -> None:
    machine = Machine(seed=1)
    machine.broker.declare_queue("q", durable=True)
    for seed in (2, 3):
        machine.publish("q", *words(100))
        machine.turn()
        machine.checkpointer.checkpoint(machine.log.last)
        machine.settle()
        machine.disk.crash("keep")
        machine = Machine(machine.files, seed=seed)
    heads = [
        decode_frame(content)
        for name, content in machine.files.written.items()
        if name.endswith(kind)
    ]
    assert {head.first for head in heads if head is not None} == {crc32(b"1")}
    assert machine.bodies("q") == words(100) * 2


def test_a_lone_segment_whose_head_is_damaged_is_refused_where_it_was_synced() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    for word in words(5):
        machine.publish("q", word)
        machine.turn()
    (name,) = machine.files.written
    machine.disk.crash("keep")
    machine.files.written[name] = bytes(20) + machine.files.written[name][20:]
    with pytest.raises(LogDamaged, match=name):
        Machine(machine.files)


def test_damage_before_the_synced_end_is_refused_and_named() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    for word in words(5):
        machine.publish("q", word)
        machine.turn()
    name = min(name for name in machine.files.written if name.endswith(".log"))
    content = bytearray(machine.files.written[name])
    content[len(content) // 2] ^= 1
    machine.disk.crash("keep")
    machine.files.written[name] = bytes(content)
    with pytest.raises(LogDamaged, match=name):
        Machine(machine.files)


def test_a_missing_segment_is_refused() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    for word in words(300):
        machine.publish("q", word)
        machine.turn()
    names = sorted(name for name in machine.files.written if name.endswith(".log"))
    assert len(names) > 3
    machine.disk.crash("keep")
    del machine.files.written[names[1]]
    with pytest.raises(LogDamaged):
        Machine(machine.files)


def test_the_journal_of_another_broker_is_refused() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    machine.disk.crash("keep")
    for name, content in machine.files.written.items():
        head = decode_frame(content)
        assert head is not None
        data = head.data.replace(b"8000-000000000001", b"8000-000000000002")
        frame = encode_frame(head.kind, data, epoch=head.epoch, first=head.first, last=head.last)
        machine.files.written[name] = frame + content[head.end :]
    with pytest.raises(LogDamaged, match="is of broker"):
        Machine(machine.files)


def test_a_checkpoint_takes_the_place_of_consumed_history() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(40):
        machine.publish("q", *words(50))
        machine.turn()
        machine.take("q", 50)
        machine.turn()
    machine.publish("q", *words(7, b"left"))
    machine.turn()
    before = machine.wal.size
    machine.checkpointer.tick(1)
    machine.settle()
    assert machine.wal.size < before / 4
    machine.publish("q", b"after")
    machine.turn()
    again = machine.restart("lose")
    assert again.bodies("q") == [*words(7, b"left"), b"after"]


def test_the_report_counts_the_files_that_are_there() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    assert machine.wal.report()["files"] == len(machine.files.written) == 1
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    machine.turn()
    assert machine.wal.report()["files"] == len(machine.files.written) == 2


def test_space_is_reclaimed_on_an_idle_broker() -> None:
    machine = Machine(log_disk=0)
    machine.broker.declare_queue("q", durable=True)
    for _ in range(40):
        machine.publish("q", *words(50))
        machine.turn()
    machine.take("q", 2000)
    machine.turn()
    for second in range(1, 4):
        machine.checkpointer.tick(second * 2_000_000_000)
        machine.settle()
    assert machine.wal.size < 4 * 4096


@pytest.mark.parametrize(
    ("queue_memory", "arguments"), [(300, {}), (0, {"qpidha.memory": 300}), (9000, {"memory": 300})]
)
def test_bodies_of_a_long_queue_are_read_back_from_segments_and_checkpoints(
    queue_memory: int, arguments: dict[str, int]
) -> None:
    """By the option, the argument or a policy."""
    machine = Machine(queue_memory=queue_memory, log_memory=100, log_disk=0)
    machine.broker.features[QUEUE_KINDS] = 0
    if "memory" in arguments:
        machine.broker.declare_queue("q", durable=True)
        machine.broker.set_policy(policy_asked_for("p", "^q$", arguments))
        machine.broker.follow_policies(1)
    else:
        machine.broker.declare_queue("q", durable=True, arguments=arguments)
    for start in range(0, 600, 30):
        machine.publish("q", *words(600)[start : start + 30])
        machine.turn()
    queue = machine.broker.queue("q")
    assert queue.bytes - queue.paged_out <= 300 + 30 * 20
    assert machine.bodies("q") == words(600)
    machine.take("q", 200)
    machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    assert machine.bodies("q") == words(600)[200:]
    again = machine.restart("lose", queue_memory=queue_memory, log_memory=100, log_disk=0)
    assert again.broker.queue("q").paged_out > 0
    assert again.bodies("q") == words(600)[200:]


def test_the_log_is_read_back_from_disk_where_memory_has_it_no_more() -> None:
    machine = Machine(log_memory=1000)
    machine.broker.declare_queue("q", durable=True)
    for word in words(200):
        machine.publish("q", word)
        machine.turn()
    assert machine.log.start == 1
    batches = list(machine.log.batches(1))
    assert [batch.first for batch in batches][1:] == [batch.last + 1 for batch in batches][:-1]
    assert batches[-1].last == machine.log.last


def test_batches_are_read_back_by_their_own_bytes_and_no_others() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    for word in words(20):
        machine.publish("q", word)
        machine.turn()
    sizes: list[int] = []
    read = machine.disk.read

    def counted(name: str, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(name, offset, size)

    machine.disk.read = counted  # type: ignore[method-assign]
    batches = list(machine.wal.batches(1))
    assert len(sizes) == len(batches) == 20
    assert sum(sizes) < machine.wal.size


def test_a_reset_keeps_the_former_log_until_the_snapshot_is_whole() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    machine.log.reset(50, [(7, 1)])
    machine.log.chunk(b"")
    machine.turn()
    again = machine.restart()
    assert again.bodies("q") == words(5)
    assert "never was complete" in again.notes[0]


def test_what_is_cut_off_and_durable_goes_to_a_folder_whole() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    common = machine.log.last
    for word in words(3):
        machine.publish("q", word)
        machine.log.seal()
    batches = list(machine.log.batches(common + 1))
    machine.log.cut(common)
    while machine.disk.pump():
        pass
    (name,) = [name for name in machine.files.written if name.startswith("discarded-")]
    assert machine.wal.news == [name.partition("/")[0]]
    assert machine.wal.records_set_aside == 3
    head, *rest = SegmentReader(machine.disk, name, len(machine.files.written[name]))
    assert json.loads(head.data)["common"] == common
    assert [(frame.epoch, frame.first, frame.last, frame.data) for frame in rest] == [
        (batch.epoch, batch.first, batch.last, batch.data) for batch in batches
    ]


def test_a_log_that_another_primary_has_not_is_moved_aside() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    machine.broker.reset()
    machine.log.reset(50, [(7, 1)])
    machine.log.snapshot_end(50)
    machine.turn()
    assert machine.log.snapshot_kept
    assert [name for name in machine.files.written if name.startswith("discarded-")]
    assert all(
        NAME.fullmatch(name) or name.startswith("discarded-") for name in machine.files.written
    )
    assert Machine(machine.files).log.last >= 50


def one_life(
    machine: Machine,
    rng: random.Random,
    expected: dict[str, list[bytes]],
    kept: dict[str, list[bytes]],
) -> None:
    """Do random things; `expected` follows what was done, `kept` what is synced."""
    for _ in range(rng.randint(1, 25)):
        name = rng.choice(["a", "b"])
        roll = rng.random()
        if name not in machine.broker.queues:
            machine.broker.declare_queue(name, durable=True)
            expected[name] = []
        elif roll < 0.6:
            bodies = words(rng.randint(1, 12), b"%d-" % rng.randrange(1 << 20))
            machine.publish(name, *bodies)
            expected[name] += bodies
        elif roll < 0.8:
            n = rng.randint(1, 15)
            machine.take(name, n)
            del expected[name][:n]
        elif roll < 0.85:
            machine.broker.delete_queue(name)
            del expected[name]
        elif not machine.wal.is_snapshotting and not machine.log.has_pending:
            machine.checkpointer.checkpoint(machine.log.last)
        machine.turn(pumps=rng.choice([0, 1, 2, 5, 1000]))
        states.append((machine.log.last, {name: list(bodies) for name, bodies in expected.items()}))
        for last, state in states:
            if last <= machine.log.durable_to:
                kept.clear()
                kept.update(state)


states: list[tuple[int, dict[str, list[bytes]]]] = []


@pytest.mark.parametrize("seed", range(150))
def test_after_a_crash_the_model_is_that_of_a_moment_no_earlier_than_the_last_sync(
    seed: int,
) -> None:
    rng = random.Random(seed)
    options: dict[str, Any] = {
        "queue_memory": rng.choice([0, 100]),
        "log_memory": rng.choice([100, 1 << 20]),
        "log_disk": rng.choice([0, 1 << 20]),
    }
    machine = Machine(seed=seed, **options)
    expected: dict[str, list[bytes]] = {}
    for _ in range(4):
        states[:] = [
            (machine.log.last, {name: machine.bodies(name) for name in machine.broker.queues})
        ]
        one_life(machine, rng, expected, {})
        kept = machine.log.durable_to
        machine = machine.restart(
            rng.choice(["keep", "drop", "lose", "tear", "scramble"]), **options
        )
        found = {name: machine.bodies(name) for name in machine.broker.queues}
        assert found in [state for last, state in states if last >= kept], (seed, kept)
        expected = found


class Body(PayloadRef):
    """A frame of so many bytes with one message, which counts how often it is read."""

    __slots__ = ("reads", "sequence")

    def __init__(self, wal: WriteAheadLog, sequence: int, size: int) -> None:
        super().__init__(wal, File(1, "log", epoch=1, start=0), 0, size)
        self.sequence, self.reads = sequence, 0

    def frame(self, disk: Disk) -> Frame:
        self.reads += 1
        frame = encode_frame(BATCH, encode_enqueues(1, [self.sequence], [b"m"], [0]))
        decoded = decode_frame(frame)
        assert decoded is not None
        return decoded


@pytest.mark.parametrize(("size", "count", "most"), [(1 << 16, 200, 1), (20 << 20, 2, 3)])
def test_consumers_of_many_queues_read_each_frame_once(size: int, count: int, most: int) -> None:
    """As long as they are not large: what is kept has a bound in bytes."""
    wal = Machine().wal
    bodies = [Body(wal, number, size) for number in range(1, count + 1)]
    for _ in range(3):
        assert [body.read(body.sequence) for body in bodies] == [b"m"] * count
    assert {body.reads for body in bodies} == {most}


def test_what_was_read_back_leaves_memory_when_nobody_reads_any_more() -> None:
    wal = Machine().wal
    body = Body(wal, 1, 1 << 16)
    assert body.read(1) == b"m"
    wal.rest()
    assert body.read(1) == b"m" and body.reads == 1
    wal.rest()
    wal.rest()
    assert body.read(1) == b"m" and body.reads == 2


@pytest.mark.parametrize("gap", [1, 3])
def test_a_frame_in_one_piece_has_each_message_and_no_other(gap: int) -> None:
    payloads = {number: b"x" * (number % 4) + b"%d" % number for number in range(50, 5, -gap)}
    bodies = Bodies(payloads)
    assert {number: bodies[number] for number in payloads} == payloads
    numbers = sorted(payloads)
    for run in numbers, numbers[2:7], [20, 32, 35]:
        assert bodies.run(run) == b"".join(payloads[number] for number in run)
    for number in range(60):
        if number not in payloads:
            with pytest.raises(KeyError):
                bodies[number]
