"""The log with a write-ahead log: what it says of the disk is so, whatever was cut off, reset, or
is slow.
"""

from __future__ import annotations

from qpidha.store.recovery import fold
from tests.store.durable import Machine
from tests.store.test_write_ahead_log import words


def cut_off(machine: Machine, sequence: int) -> None:
    """Cut the log as a backup does, whose model never had what goes."""
    machine.broker.reset()
    machine.log.retain_from = sequence + 1
    machine.log.cut(sequence)
    for batch in machine.log.batches(1):
        fold(machine.broker, batch.data)
    machine.broker.log_writer = machine.log
    machine.broker.promoted(0)


def test_what_is_cut_off_while_the_disk_is_slow_is_not_called_synced_later() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    committed = machine.log.last
    for word in words(20):
        machine.publish("q", word)
        machine.turn(pumps=0)
    cut_off(machine, committed)
    machine.turn()
    assert machine.log.synced <= machine.log.last
    assert machine.log.written_to <= machine.log.last
    machine.publish("q", b"one")
    machine.turn(pumps=0)
    machine.publish("q", b"two")
    machine.turn(pumps=0)
    while machine.disk.pump():
        pass
    name = max(name for name in machine.files.written if name.endswith(".log") and "/" not in name)
    machine.disk.crash("keep")
    content = machine.files.written[name]
    at = content.index(b"one")
    machine.files.written[name] = (
        content[:at] + b"\0\0\0" + content[at + 3 :]
    )  # never synced, so not damage
    again = Machine(machine.files)
    assert again.bodies("q") == [] and again.wal.report()["torn"] > 0


def test_what_a_killed_process_wrote_counts_for_nothing_until_it_is_synced() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    kept = machine.log.durable_to
    machine.publish("q", *words(3))
    machine.log.seal()
    assert machine.disk.pump()  # written, and the sync does not come any more
    again = machine.restart("keep")
    assert again.bodies("q") == words(3)
    assert again.log.last > kept and again.log.durable_to == again.log.synced == 0
    assert again.restart("drop").bodies("q") == []


def test_what_a_former_process_wrote_counts_once_it_is_synced() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    machine.publish("q", *words(3))
    machine.log.seal()
    assert machine.disk.pump()
    machine = machine.restart("keep")
    last = machine.log.last
    machine.turn()
    assert machine.log.durable_to == machine.log.synced == last
    assert machine.restart("drop").bodies("q") == words(3)


def test_what_was_cut_off_gives_no_bodies_to_what_took_its_place() -> None:
    machine = Machine(queue_memory=50)
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    committed = machine.log.last
    for word in words(20, b"void"):
        machine.publish("q", word)
        machine.log.seal()  # written, and the owner has not been told
    cut_off(machine, committed)
    for word in words(20, b"new"):
        machine.publish("q", word)
        machine.turn()
    assert machine.broker.queue("q").paged_out > 0
    assert machine.bodies("q") == words(20, b"new")


def test_a_disk_that_hangs_stops_transient_content_before_the_memory_is_full() -> None:
    machine = Machine(log_memory=1000)
    machine.broker.declare_queue("q", durable=True)
    machine.turn()
    body = bytes(200)
    sent = 0
    while machine.log.durable_to == machine.log.last and sent < 1_000_000:
        machine.publish("q", *[body] * 500, durable=False)
        machine.take("q", 500)
        machine.publish("q", *[body] * 500, durable=False)
        machine.turn(pumps=0)
        machine.take("q", 500)
        sent += 1000
    assert sent * len(body) < 100 << 20
    machine.turn()
    assert machine.log.durable_to == machine.log.last
    machine.publish("q", body, durable=False)
    machine.turn(pumps=0)
    assert machine.log.durable_to == machine.log.last


def test_starting_over_moves_nothing_aside_that_the_primary_has_too() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    history, last = list(machine.log.history), machine.log.last
    machine.broker.reset()
    machine.log.reset(
        0, []
    )  # what is here cannot be gone on with; what the primary has is not known yet
    machine.log.reset(last + 10, history)
    machine.log.snapshot_end(last + 10)
    machine.turn()
    assert [name for name in machine.files.written if name.startswith("discarded-")] == []


def test_starting_over_moves_aside_what_the_primary_has_not() -> None:
    machine = Machine()
    machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *words(5))
    machine.turn()
    history, last = list(machine.log.history), machine.log.last
    machine.publish("q", *words(5))
    machine.turn()
    machine.broker.reset()
    machine.log.reset(0, [])
    machine.log.reset(last, history)
    machine.log.snapshot_end(last)
    machine.turn()
    assert [name for name in machine.files.written if name.startswith("discarded-")]
    assert machine.wal.set_aside == machine.wal.news != []
    again = machine.restart("keep")
    assert again.wal.set_aside == again.wal.news == machine.wal.set_aside
    assert again.wal.records_set_aside == machine.wal.records_set_aside == 5
