"""The backup role: messages of the primary that cannot be read, and the explanation of what a
backup waits for.
"""

from __future__ import annotations

from qpidha.ha.explanation import explain
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.duration import SECOND
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.records import QueueDeclared
from qpidha.store.codec import encode_record
from tests.ha.cluster_world import Machine, World

ACTIVE, READY, CATCHUP = BrokerStatus.ACTIVE, BrokerStatus.READY, BrokerStatus.CATCHUP


def started(**options: int) -> World:
    world = World(3, safety="strict", **options)
    world.machines[0].promote()
    world.run(0.5)
    return world


def spoil(machine: Machine, sequence: int, *words: str) -> None:
    """Let a machine be unable to read the batch of these words."""
    machine.spoiled.add(
        b"".join(
            encode_record(sequence + n, QueueDeclared(word, "")) for n, word in enumerate(words)
        )
    )


def test_a_batch_that_cannot_be_applied_makes_the_backup_start_over_with_a_snapshot() -> None:
    world = started(log_limit=1500)
    primary, backup = world.machines[0], world.machines[2]
    for number in range(30):
        primary.publish(f"w{number}")
        world.settle()
    world.run(0.1)
    spoil(backup, primary.log.last + 1, "b")
    primary.publish("b")
    world.run(0.1)
    assert any(
        "error: cannot read what the primary sent: nobody can read this" in line
        for line in backup.said
    )
    world.run(2)
    assert [machine.state for machine in world.machines] == [ACTIVE, READY, READY]
    assert backup.words == primary.words
    assert any("2-broker, catching up with a snapshot" in line for line in primary.said)
    assert "notice: Connected to primary host0:5000" in backup.said


def test_a_restarted_broker_keeps_what_it_may_have_to_cut_off_however_much_that_is() -> None:
    world = started(log_limit=1500, durable=True)
    for index in (1, 2):
        world.machines[index].paused = True
    for number in range(9):
        world.machines[0].publish(f"w{number}" * 300)
        world.settle()
    world.run(0.1)
    world.kill(0)
    for index in (1, 2):
        world.machines[index].paused = False
    assert world.machines[1].promote() in ([], [None])
    world.run(6)
    world.machines[1].publish("b")
    machine = world.revive(0)
    assert machine.log.last > machine.log.committed
    machine.log.trim()  # as where its memory is short
    world.run(6)
    assert [each.state for each in world.machines] == [READY, ACTIVE, READY]
    assert [each.words for each in world.machines] == [["b"]] * 3


def test_a_backup_that_cannot_read_its_tail_is_not_promoted_with_half_of_it() -> None:
    world = started()
    primary, backup = world.machines[0], world.machines[1]
    world.machines[2].paused = True
    spoil(backup, primary.log.last + 1, "a")
    primary.publish("a")
    world.settle()
    world.machines[2].paused = False
    world.settle()
    world.kill(0)
    assert backup.words == []
    replies = backup.promote()
    world.run(1)
    (reply,) = replies
    assert reply is not None
    assert "this broker's log cannot be read" in reply.text
    assert backup.state is CATCHUP
    assert not backup.cluster.promises.is_complete
    assert world.machines[2].promote() in ([], [None])
    world.run(12)
    assert [machine.state for machine in world.machines[1:]] == [READY, ACTIVE]
    assert [machine.words for machine in world.machines[1:]] == [["a"]] * 2


def test_a_backup_without_a_primary_says_whether_it_could_be_one() -> None:
    world = started()
    world.kill(0)
    world.run(0.2)
    (entry,) = explain(world.machines[1].cluster)
    assert entry["waits_for"] == "primary"
    assert entry["is_complete"] is True
    world.kill(1)
    (entry,) = explain(world.restart(1).cluster)
    assert (entry["is_complete"], entry["not_connected"]) == (False, ["host0:5000"])
    assert "this broker has nothing" in str(entry["text"])


def test_a_backup_that_catches_up_says_how_far_it_is() -> None:
    world = started()
    world.kill(2)
    world.run(1)
    late = world.revive(2)
    while late.state is not CATCHUP:
        if not world.step_one(lambda able: able[0]):
            world.run(0.02)
    entries = explain(late.cluster)
    assert [entry["waits_for"] for entry in entries] == ["catch-up"]
    assert entries[0]["address"] == "host0:5000"
    world.run(1)
    assert explain(late.cluster) == []


def test_row_109_a_backup_hears_how_late_it_is_at_the_primary() -> None:
    world = World(3, safety="strict")
    world.machines[0].ahead = 5 * SECOND
    late, base = world.machines[1:]
    for caller in world.machines[0].cluster.inbound.values():
        if caller.system_id == base.system_id:
            caller.features = frozenset()
    world.machines[0].promote()
    world.run(0.5)
    assert QUEUE_KINDS not in world.machines[0].log.features  # as in a cluster that is new
    assert 4 * SECOND < late.heard_time - world.now <= 5 * SECOND
    assert not base.heard_time
