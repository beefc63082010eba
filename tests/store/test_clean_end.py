"""After a stop in good order nothing of the log may be missing; after a kill its end may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qpidha.broker.queues import returns
from qpidha.model.errors import LogDamaged
from qpidha.model.events import LogFailed, StopRequested
from qpidha.store.write_ahead_log import CLEAN_END, NEW_CLEAN_END
from tests.sim.disk import Files
from tests.store.durable import Machine, a_message
from tests.store.test_damage import a_node

SECOND = 1_000_000_000


def with_messages(machine: Machine, count: int = 3) -> Machine:
    """Accept messages of 100 bytes, a batch and a sync each."""
    if "q" not in machine.broker.queues:
        machine.broker.declare_queue("q", durable=True)
    for number in range(count):
        machine.publish("q", b"%d" % number * 100)
        machine.turn()
    return machine


def stop(machine: Machine) -> Files:
    """Stop in good order; what is left is on disk to stay."""
    machine.wal.end_in_order(machine.log.last)
    machine.turn()
    machine.disk.crash("drop")
    return machine.files


def newest(files: Files) -> str:
    return max(name for name in files.written if name.endswith(".log"))


def cut(files: Files) -> None:
    files.written[newest(files)] = files.written[newest(files)][:-1]


def cut_by_messages(files: Files) -> None:
    files.written[newest(files)] = files.written[newest(files)][:-300]


def zero(files: Files) -> None:
    content = files.written[newest(files)]
    files.written[newest(files)] = content[:-200] + bytes(200)


def remove(files: Files) -> None:
    del files.written[newest(files)]


DAMAGES = [cut, cut_by_messages, zero, remove]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("count", [3, 60], ids=["one file", "several"])
def test_faults_b7_a_tail_that_is_lost_after_a_stop_in_good_order_is_noticed(
    damage: Callable[[Files], None], count: int
) -> None:
    files = stop(with_messages(Machine(), count))
    before = dict(files.written)
    damage(files)
    left = dict(files.written)
    for _ in range(2):
        with pytest.raises(LogDamaged, match="stopped in good order") as raised:
            Machine(files)
        assert "qpid-ha journal salvage" in raised.value.hint
    assert files.written == left
    files.written = before
    assert len(Machine(files).bodies("q")) == count


@pytest.mark.parametrize("damage", [cut, cut_by_messages, zero])
def test_what_a_kill_leaves_is_cut_off_as_ever(damage: Callable[[Files], None]) -> None:
    machine = with_messages(Machine())
    machine.disk.crash("keep")
    damage(machine.files)
    again = Machine(machine.files)
    assert len(again.bodies("q")) in (0, 1, 2) and "cut off" in again.notes[0]


@pytest.mark.parametrize("damage", [cut, cut_by_messages, zero])
def test_the_same_holds_for_what_came_after_a_stop_and_what_was_before_it_is_missed(
    damage: Callable[[Files], None],
) -> None:
    files = stop(with_messages(Machine()))
    size = len(files.written[newest(files)])
    machine = with_messages(Machine(files), 4)
    machine.disk.crash("keep")
    damage(files)
    again = Machine(files)
    assert 3 <= len(again.bodies("q")) < 7 and "cut off" in again.notes[0]
    again.disk.crash("keep")
    files.written[newest(files)] = files.written[newest(files)][: size - 1]
    with pytest.raises(LogDamaged):
        Machine(files)


def test_a_file_that_a_later_one_has_replaced_may_go() -> None:
    machine = Machine(stop(with_messages(Machine())))
    first = newest(machine.files)
    machine.wal.keep = 0
    machine.checkpointer.checkpoint(machine.log.last)
    machine.settle()
    with_messages(machine)
    assert first not in machine.files.written
    machine.disk.crash("keep")
    cut(machine.files)
    again = Machine(machine.files)
    assert len(again.bodies("q")) == 5 and "cut off" in again.notes[0]


def test_a_snapshot_that_is_on_its_way_at_the_stop_is_not_missed() -> None:
    machine = with_messages(Machine())
    machine.wal.reset(2, 0, [], diverged=None)
    files = stop(machine)
    assert CLEAN_END not in files.written
    assert len(Machine(files).bodies("q")) == 3


def test_a_mark_that_cannot_be_read_or_was_not_finished_says_nothing() -> None:
    files = stop(with_messages(Machine()))
    files.written[CLEAN_END] = files.written[CLEAN_END][:-1]
    files.written[NEW_CLEAN_END] = b"torn"
    cut(files)
    machine = Machine(files)
    assert f"{CLEAN_END} is damaged" in machine.notes[0]
    with_messages(machine)
    files = stop(machine)
    assert NEW_CLEAN_END not in files.written
    cut(files)
    with pytest.raises(LogDamaged):
        Machine(files)


@pytest.mark.parametrize("failed", [False, True])
def test_only_a_broker_that_is_stopped_in_good_order_says_so(failed: bool) -> None:
    node, disk = a_node([])
    node.start(SECOND)
    node.broker.declare_queue("q", durable=True)
    node.step([LogFailed("no") if failed else StopRequested()], 2 * SECOND)
    while disk.pump():
        pass
    assert (CLEAN_END in disk.files.written) is not failed


def test_what_consumers_had_is_given_back_before_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "RETURNED_A_TURN", 2)
    node, disk = a_node([])
    node.start(SECOND)
    queue, _ = node.broker.declare_queue("q", durable=True)
    for number in range(9):
        node.broker.publish("", "q", a_message(b"%d" % number), headers=dict)
    for message in list(queue.messages.values()):
        queue.acquire(message)
        node.broker.returns.add(queue, [message], True)
    node.step([StopRequested()], 2 * SECOND)
    while disk.pump():
        pass
    left = Machine(disk.files).broker.queues["q"].messages.values()
    assert [message.delivery_count for message in left] == [1] * 9
