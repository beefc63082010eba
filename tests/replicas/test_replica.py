"""One replica, step by step: room, deletion, restarts, and what becomes of it at its end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from qpidha.broker.credit import MEMORY_LIMIT
from qpidha.broker.queues.dead_letters import DEAD_LETTER_EXCHANGE, DEAD_LETTER_KEY
from qpidha.management.report import explained
from qpidha.model.errors import ConnectionForced, PreconditionFailed
from qpidha.model.event_codes import REPLICA_NOT_SERVED
from qpidha.model.event_log import LinkChange
from qpidha.model.features import QUEUE_REPLICATION
from qpidha.model.telling import MOST_TIMES
from qpidha.replicas import replica as replica_module
from qpidha.replicas.replica import MOST_WAIT, Replica
from qpidha.replicas.source import Sources, Stream
from qpidha.replicas.wire import Follow
from qpidha.store.codec import decode
from tests.replicas.stage import QUEUE, Site, Stage, numbers_on, watched
from tests.sim.world import MILLISECOND, SECOND


@pytest.fixture
def stage() -> Any:
    for seed in range(100):
        stage = Stage(seed)
        sizes = len(stage.source.machines), len(stage.replica.machines)
        if sizes == (1, 1) and stage.durable:
            break
    with watched(stage.oracle, 1000):
        stage.start()
        stage.replicate()
        stage.settle(stage.is_the_same)
        yield stage


@pytest.fixture
def own() -> Any:
    """Like `stage`, with a queue that the only member of a cluster has for itself."""
    stage = Stage(0, local=True)
    with watched(stage.oracle, 1000):
        stage.start()
        stage.replicate()
        stage.settle(stage.is_the_same)
        yield stage


def broker(site: Site) -> Any:
    machine = site.deciding
    assert machine is not None
    return machine.node.broker


def publish(stage: Stage, count: int) -> None:
    for _ in range(count):
        stage.publish()
    stage.world.run_for(300 * MILLISECOND)


@pytest.mark.parametrize("limit", ["disk", "memory"])
def test_without_room_a_replica_waits_and_goes_on_by_itself(stage: Stage, limit: str) -> None:
    replica = broker(stage.replica)
    if limit == "disk":
        replica.refuse_publishing = "the disk is nearly full"
    else:
        replica.credit.withhold(MEMORY_LIMIT, "memory is short")
    publish(stage, 20)
    assert numbers_on(replica.queues[QUEUE]) == []
    row = stage.report()
    assert row["state"] == "waiting" and row["behind"] > 0 and row["late_ns"] > 0
    assert row["error"] in ("the disk is nearly full", "memory is short")
    replica.refuse_publishing = ""
    replica.credit.withhold(MEMORY_LIMIT, "")
    stage.settle(stage.is_the_same)
    assert stage.report()["error"] == "" and len(numbers_on(replica.queues[QUEUE])) == 20


def test_a_replica_that_ends_numbers_what_comes_behind_what_it_has(stage: Stage) -> None:
    publish(stage, 5)
    stage.settle(stage.is_the_same)
    replica = broker(stage.replica)
    stage.source = stage.replica  # From now on the oracle is not asked.
    replica.end_replica(QUEUE)
    stage.world.run_for(SECOND)
    publish(stage, 3)
    assert numbers_on(replica.queues[QUEUE]) == [1, 2, 3, 4, 5, 6, 7, 8]
    machine = stage.replica.machines[0]
    stage.world.run_for(SECOND)
    machine.crash(power=True, disk="keep")
    machine.restart()
    stage.world.run_for(SECOND)
    queue = broker(stage.replica).queues[QUEUE]
    assert not queue.is_copy and not queue.is_replica
    assert numbers_on(queue)[:5] == [1, 2, 3, 4, 5]


def test_what_dies_elsewhere_does_not_come_to_a_replica(stage: Stage) -> None:
    """The dead letters of another queue there stay where they are, and wait."""
    replica = broker(stage.replica)
    to_replica = {DEAD_LETTER_EXCHANGE: "", DEAD_LETTER_KEY: QUEUE}
    other, _ = replica.declare_queue("other", durable=True, arguments=to_replica)
    replica.publish("", "other", b"\x00\x53\x75\xa0\x011", headers=dict)
    message = next(iter(other.messages.values()))
    other.ordering.take()
    other.acquire(message)
    other.reject(message)
    assert len(other.messages) == 1 and len(other.unplaced) == 1
    assert numbers_on(replica.queues[QUEUE]) == []


def test_a_deleted_replica_leaves_nothing_behind(stage: Stage) -> None:
    publish(stage, 5)
    stage.settle(stage.is_the_same)
    replica = broker(stage.replica)
    replica.delete_queue(QUEUE)
    stage.world.run_for(SECOND)
    machine = stage.replica.deciding
    assert machine is not None and replica.replicas == {} and stage.report() == {}
    assert machine.node.replication.replicas.active == {}
    source = stage.source.deciding
    assert source is not None and source.node.replication.report()["replica_streams"] == []
    assert broker(stage.source).queues[QUEUE].watch is None


def test_times_count_from_the_end_of_a_replica_on(stage: Stage) -> None:
    """What expired at no time on the replica expires when it is a queue of its own."""
    replica = broker(stage.replica)
    stage.publish(stage.world.now + SECOND)
    stage.world.run_for(100 * MILLISECOND)
    assert numbers_on(replica.queues[QUEUE]) == [1]
    stage.source.machines[0].crash()
    stage.world.run_for(2 * SECOND)
    assert numbers_on(replica.queues[QUEUE]) == [1]
    replica.end_replica(QUEUE)
    stage.world.run_for(SECOND)
    assert numbers_on(replica.queues[QUEUE]) == []


def test_a_cluster_with_an_older_broker_has_no_replicas(stage: Stage) -> None:
    replica = broker(stage.replica)
    replica.declare_queue("other", durable=True)
    del replica.features[QUEUE_REPLICATION]
    with pytest.raises(PreconditionFailed, match="cannot be a replica yet") as refused:
        replica.begin_replica("other", "a:5672")
    assert "Upgrade" in refused.value.hint


def test_a_source_that_begins_and_hangs_up_is_dialled_less_and_less(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow, dialled = Sources.follow, []

    def drop(self: Any, connection_id: int, peer: str, asked: Follow, check: Any) -> None:
        follow(self, connection_id, peer, asked, check)
        self._close(connection_id, ConnectionForced("out of order"))
        dialled.append(stage.world.now)

    monkeypatch.setattr(Sources, "follow", drop)
    machine = stage.source.deciding
    assert machine is not None
    for connection in machine.node.connections():
        machine.node.close_connection(connection, ConnectionForced("out of order"))
    machine.put_tick()
    stage.world.run_for(60 * SECOND)
    replica = stage.replica.deciding
    assert replica is not None
    pause = replica.node.settings.link_maintenance_interval
    later = [two - one for one, two in pairwise(dialled)][6:]
    assert min(later) >= MOST_WAIT * pause
    monkeypatch.setattr(Sources, "follow", follow)
    stage.settle(stage.is_the_same)


def lines_of(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list of what replicas tell from now on."""
    told: list[Any] = []

    def hear(machine: Any, line: Any) -> None:
        if isinstance(line.about, LinkChange):
            told.append(line.about)

    monkeypatch.setattr(stage, "announced", hear, raising=False)
    return told


def unwell(stage: Stage) -> list[dict[str, Any]]:
    """Return what `status --explain` lists of replicas."""
    machine = stage.replica.deciding
    assert machine is not None
    rows: list[dict[str, Any]] = explained(machine.node)["unwell"]
    return rows


def test_what_becomes_of_a_replica_is_told_once_for_each_change(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = lines_of(stage, monkeypatch)
    machine = stage.source.machines[0]
    for _ in range(5):  # It is behind and whole again and again.
        publish(stage, 20)
    stage.settle(stage.is_the_same)
    assert told == [] and unwell(stage) == []
    machine.crash()
    stage.world.run_for(60 * SECOND)
    assert {each.what for each in told} == {"lost"} and len(told) <= 3
    del told[:]
    machine.restart()
    stage.settle(stage.is_the_same)
    assert [(each.kind, each.what, each.name) for each in told] == [
        ("replica", "following", f"replica {QUEUE}")
    ]
    broker(stage.source).delete_queue(QUEUE)
    stage.world.run_for(30 * SECOND)
    refused = [each.why for each in told if each.what == "refused"]
    assert refused == [f"queue {QUEUE} is not here any more", f"there is no queue {QUEUE}"]
    (row,) = unwell(stage)
    assert row["name"] == f"replica {QUEUE}" and "there is no queue" in row["why"] and row["next"]
    broker(stage.source).declare_queue(QUEUE, durable=True)
    stage.world.run_for(30 * SECOND)
    assert [each.what for each in told].count("blocked") == 1
    (row,) = unwell(stage)
    assert row["state"] == "blocked" and "another queue" in row["why"]
    assert f"qpid-ha replica stop {QUEUE}" in row["next"]
    broker(stage.replica).end_replica(QUEUE)
    stage.world.run_for(SECOND)
    assert told[-1] == LinkChange("replica", "ended", f"replica {QUEUE}") and unwell(stage) == []


def test_a_replica_whose_source_comes_and_goes_is_told_of_a_few_times(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = lines_of(stage, monkeypatch)
    for _ in range(50):
        for stream in list(stage.world.streams.values()):
            stage.world.reset(stream, "connection reset")
        stage.settle(stage.is_the_same)
        stage.world.run_for(SECOND // 20)
    assert len(told) < 3 * MOST_TIMES
    stage.world.run_for(60 * SECOND)
    assert told[-1].what == "following"


def test_numbers_of_a_queue_that_a_member_has_for_itself_are_not_given_again(own: Stage) -> None:
    """Also if no message is left that has the last one, and a checkpoint has taken the log's place:
    the replica is where it was, and blocks for no queue that has not lost anything.
    """
    machine = own.source.machines[0]
    publish(own, 5)
    while broker(own.source).queues[QUEUE].messages:
        own.consume()
    own.settle(own.is_the_same)
    for _ in range(2):
        machine.crash(power=True, disk="lose")
        machine.restart()
        own.settle(lambda: own.source.deciding is not None)
        assert broker(own.source).queues[QUEUE].last_number == 5
        own.world.run_for(SECOND)  # A checkpoint.
    publish(own, 3)
    own.settle(own.is_the_same)
    assert own.blocked == 0 and sorted(broker(own.source).queues[QUEUE].messages) == [6, 7, 8]
    assert own.report()["position"] == 8


def test_a_queue_of_the_same_name_is_another_one_also_where_a_member_has_it_for_itself(
    own: Stage,
) -> None:
    publish(own, 5)
    own.settle(own.is_the_same)
    source = broker(own.source)
    source.delete_queue(QUEUE)
    source.declare_queue(QUEUE, durable=True, arguments={"qpid.replicate": "none"})
    machine = own.source.machines[0]
    own.world.run_for(SECOND)
    machine.crash()
    machine.restart()
    own.world.run_for(10 * SECOND)
    assert own.report()["state"] == "blocked" and own.report()["messages"] == 5


def test_what_a_replica_has_counts_in_the_memory_limit_and_what_waits_as_well(stage: Stage) -> None:
    machine = stage.replica.deciding
    assert machine is not None
    node = machine.node
    before = node.memory.report()
    publish(stage, 50)
    stage.settle(stage.is_the_same)
    queue = node.broker.queues[QUEUE]
    after = node.memory.report()
    assert after["bodies"] - before["bodies"] == queue.resident
    node.broker.refuse_publishing = "the disk is nearly full"
    publish(stage, 50)
    (replica,) = node.replication.replicas.active.values()
    assert replica.waiting > 0
    assert node.memory.report()["unfinished"] - after["unfinished"] == replica.waiting
    node.broker.credit.withhold(MEMORY_LIMIT, "memory is short")
    stage.world.run_for(SECOND)
    assert node.memory.report()["unfinished"] == after["unfinished"], "it has let go of it"
    row = stage.report()
    assert row["state"] == "waiting" and row["behind"] >= 50 and row["error"] == "memory is short"
    node.broker.refuse_publishing = ""
    node.broker.credit.withhold(MEMORY_LIMIT, "")
    stage.settle(stage.is_the_same)
    assert replica.waiting == 0 and stage.report()["behind"] == 0


def test_a_stream_and_a_replica_at_rest_cost_a_turn_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, source = stage.replica.deciding, stage.source.deciding
    assert machine is not None and source is not None
    stage.world.run_for(5 * SECOND)
    assert not source.node.replication.sources.wanting
    visits: list[str] = []
    turn, end_turn = Replica.turn, Stream.end_turn

    def turning(self: Any) -> bool:
        visits.append("replica")
        return turn(self)

    def ending(self: Any, committed: int) -> None:
        visits.append("stream")
        end_turn(self, committed)

    monkeypatch.setattr(Replica, "turn", turning)
    monkeypatch.setattr(Stream, "end_turn", ending)
    for node in (machine.node, source.node):
        node.broker.declare_queue("other", durable=True)
        for number in range(5):
            node.broker.publish("", "other", b"\x00\x53\x75\xa0\x01%d" % number, headers=dict)
    stage.world.run_for(5 * SECOND)
    assert visits == []
    publish(stage, 1)
    stage.settle(stage.is_the_same)
    assert {"replica", "stream"} == set(visits) and len(visits) < 20


def test_how_far_a_replica_is_behind_is_read_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = stage.replica.deciding
    assert machine is not None
    machine.node.broker.refuse_publishing = "the disk is nearly full"
    publish(stage, 20)
    read: list[int] = []

    def reading(data: bytes) -> Any:
        read.append(len(data))
        return decode(data)

    monkeypatch.setattr(replica_module, "decode", reading)
    behind = [stage.report()["behind"] for _ in range(5)]
    assert behind == [20] * 5
    (replica,) = machine.node.replication.replicas.active.values()
    assert len(read) == len(replica.inbox) > 0


def test_that_a_source_has_no_replica_for_somebody_is_told_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[str] = []
    monkeypatch.setattr(
        stage, "announced", lambda machine, line: codes.append(line.event_code), raising=False
    )
    for _ in range(2):
        broker(stage.source).delete_queue(QUEUE)
        stage.world.run_for(30 * SECOND)
        assert codes.count(REPLICA_NOT_SERVED) == 1
        broker(stage.source).declare_queue(QUEUE, durable=True)
        stage.settle(stage.is_the_same)
        codes.clear()
