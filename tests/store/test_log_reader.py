"""LogReader: a start takes what counts, all of it, and refuses only what is damaged."""

from __future__ import annotations

import pytest

from qpidha.model.errors import LogDamaged
from qpidha.model.records import Batch
from qpidha.store.frames import HEAD, decode_frame, encode_frame
from qpidha.store.recovery import fold
from tests.store.durable import Machine
from tests.store.test_write_ahead_log import words


def names_of(machine: Machine, kind: str) -> list[str]:
    return sorted(name for name in machine.files.written if name.endswith(kind) and "/" not in name)


def after_a_snapshot(machine: Machine) -> None:
    """Let the machine have the content of another broker's snapshot, as if it had been its
    backup.
    """
    machine.broker.reset()
    machine.log.reset(50, [(7, 1)])
    machine.log.snapshot_end(50)
    machine.turn()
    machine.broker.declare_queue("q", durable=True)


def test_what_came_after_a_snapshot_survives_a_checkpoint_of_our_own() -> None:
    machine = Machine()
    after_a_snapshot(machine)
    machine.publish("q", *words(5))
    machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    machine.publish("q", b"after")
    machine.turn()
    assert machine.restart().bodies("q") == [*words(5), b"after"]


def test_segments_go_only_from_the_oldest_on() -> None:
    machine = Machine(log_disk=0, log_memory=0)
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    committed = machine.log.last
    machine.log.retain_from = committed + 1
    machine.publish("q", *words(300))
    machine.turn(pumps=0)
    machine.wal.rotate(machine.log.epoch, machine.log.last)
    machine.broker.reset()
    machine.log.cut(committed)
    machine.log.retain_from = 0
    for batch in machine.log.batches(1):
        fold(machine.broker, batch.data)
    machine.broker.log_writer = machine.log
    machine.broker.promoted(0)
    machine.publish("q", *words(5))
    machine.turn()
    machine.wal.rotate(machine.log.epoch, machine.log.last)
    machine.publish("q", *words(5, b"next"))
    machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    machine.publish("q", b"last")
    machine.turn()
    batches = list(machine.log.batches(machine.log.start))
    assert [batch.first for batch in batches] == [
        machine.log.start,
        *(batch.last + 1 for batch in batches[:-1]),
    ]
    assert machine.restart("lose", log_disk=0).bodies("q") == [
        *words(5),
        *words(5, b"next"),
        b"last",
    ]


def test_a_snapshot_whose_first_segment_lost_its_head_keeps_nobody_from_starting() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(3))
    machine.turn()
    machine.log.reset(500, [(7, 1)])
    machine.log.receive(Batch(7, 501, 501, False, (b"",), True))
    while machine.disk.pump():
        pass
    (*_, name) = names_of(machine, ".log")
    head = decode_frame(machine.files.written[name])
    assert head is not None
    machine.disk.crash("keep")
    machine.files.written[name] = bytes(head.end) + machine.files.written[name][head.end :]
    assert Machine(machine.files).bodies("q") == words(3)


def test_files_of_a_snapshot_that_never_was_complete_are_removed_at_the_next_start() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(3))
    machine.turn()
    before = set(machine.files.written)
    machine.log.reset(500, [(7, 1)])
    machine.log.receive(Batch(7, 501, 501, False, (b"",), True))
    while machine.disk.pump():
        pass
    half = set(machine.files.written) - before
    assert sorted(name.partition(".")[2] for name in half) == ["log", "partial"]
    again = machine.restart()
    again.turn()
    assert before <= set(again.files.written) and not half & set(again.files.written)
    assert again.bodies("q") == words(3)


def test_a_checkpoint_that_is_void_is_moved_aside_with_its_log_however_often_the_power_fails() -> (
    None
):
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    former = names_of(machine, ".checkpoint")
    machine.publish("q", *words(5))
    machine.turn()
    machine.broker.reset()
    machine.log.reset(50, [(7, 1)])
    machine.log.snapshot_end(50)
    while len(names_of(machine, ".checkpoint")) < 2:
        machine.disk.pump()
    machine.disk.crash("lose")
    again = Machine(machine.files)
    again.turn()
    assert [name for name in again.files.written if name.endswith("/" + former[0])]


def test_a_file_that_begins_with_something_else_than_a_head_is_named() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    machine.disk.crash("keep")
    (name,) = names_of(machine, ".log")
    content = machine.files.written[name]
    head = decode_frame(content)
    assert head is not None
    assert head.kind == HEAD
    machine.files.written[name] = content[head.end :]
    try:
        Machine(machine.files)
    except LogDamaged as error:
        assert name in error.text
        assert error.hint
    else:
        raise AssertionError("it was read")


def test_segments_that_were_cut_off_and_are_there_again_after_a_crash_are_void() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    first, second = words(40), words(40, b"old")
    for word in first:
        machine.publish("q", word)
        machine.turn(pumps=0)
    machine.wal.rotate(machine.log.epoch, machine.log.last)
    machine.publish("q", *second)
    machine.turn(pumps=0)
    while machine.disk.pump():
        pass
    one, two = names_of(machine, ".log")[-2:]
    machine.disk.crash("keep")
    lost = machine.files.written[two]
    # A page of the first of the two never came to the disk; nothing had been synced after it.
    content = machine.files.written[one]
    machine.files.written[one] = unsynced(content[:-200])
    machine.files.written[two] = unsynced(lost)
    again = Machine(machine.files, seed=2)
    short = again.bodies("q")
    assert short == first[: len(short)]
    missing = len(first) - len(short)
    assert missing > 0
    again.publish("q", *words(missing, b"new"))
    again.turn()
    head = decode_frame(lost)
    assert head is not None
    assert head.last == again.log.last  # it would follow
    assert two not in again.files.written
    again.disk.crash("keep")
    again.files.written[two] = unsynced(lost)  # the removal never came to the disk
    once_more = Machine(again.files, seed=3)
    assert once_more.bodies("q") == short + words(missing, b"new")


def unsynced(content: bytes) -> bytes:
    """Write the frames of a file anew, as if none had been synced."""
    parts = []
    offset = 0
    salt = 0
    while (frame := decode_frame(content, offset, salt=salt)) is not None:
        fields = {
            "flags": frame.flags,
            "epoch": frame.epoch,
            "first": frame.first,
            "last": frame.last,
            "committed": frame.committed,
        }
        parts.append(encode_frame(frame.kind, frame.data, salt=salt, **fields))
        offset, salt = frame.end, frame.first if frame.kind == HEAD else salt
    return b"".join(parts) + content[offset:]


def test_bodies_of_what_was_not_committed_at_the_start_leave_the_memory_too() -> None:
    machine = Machine(queue_memory=300, log_memory=100)
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    for word in words(100):
        machine.publish("q", word)
        machine.log.seal()  # and nothing was committed since
    machine.turn()
    again = machine.restart("keep", queue_memory=300, log_memory=100)
    again.turn()
    queue = again.broker.queue("q")
    assert queue.bytes - queue.paged_out <= 300
    assert again.bodies("q") == words(100)


def test_a_checkpoint_that_is_gone_is_damage_and_not_an_empty_journal() -> None:
    machine = Machine(log_disk=0, log_memory=0)
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    machine.disk.crash("keep")
    (checkpoint,) = names_of(machine, ".checkpoint")
    del machine.files.written[checkpoint]
    assert names_of(machine, ".log")
    with pytest.raises(LogDamaged, match="what had all up to there is gone"):
        Machine(machine.files)
