"""A purge of a queue that only the primary has goes on as soon as its disk has each step, while
messages of other queues come and go.
"""

from __future__ import annotations

from qpidha.model.events import Tick
from qpidha.node import REST
from tests.scenarios.stage import Stage
from tests.sim.history import DURABLE_HEADER
from tests.sim.world import MILLISECOND, SECOND

STEPS = 5
"""Of a purge."""
MESSAGES = STEPS * 2000


def test_a_purge_of_a_local_queue_does_not_wait_for_what_comes_and_goes() -> None:
    stage = Stage()
    for line in ("brokers a b c disks", "promote a", "declare q"):
        stage.perform(line)
    machine = stage.machine("a")
    machine.request(
        "declare_queue",
        {"name": "own", "durable": True, "arguments": {"qpid.replicate": "none"}},
        lambda reply: None,
    )
    stage.perform("tick 300ms")
    broker, cluster = machine.node.broker, machine.node.cluster
    assert cluster is not None and cluster.primary is not None
    for _ in range(MESSAGES):
        broker.publish("", "own", DURABLE_HEADER, headers=dict)
    machine.put(Tick())
    stage.perform("tick 1s")
    own, quick = broker.queue("own"), broker.queue("q")
    end = stage.world.now + 2 * SECOND

    def come_and_go() -> None:
        cluster.primary.gathering.is_quick = True
        broker.publish("", "q", b"", headers=dict)
        quick.dequeue(quick.messages[quick.ordering.last])
        machine.put(Tick())
        if stage.world.now < end:
            stage.world.at(MILLISECOND, come_and_go)

    come_and_go()
    stage.perform("tick 10ms")
    took = 0
    machine.request("purge_queue", {"name": "own"}, lambda reply: None)
    while own.messages:
        stage.perform("tick 1ms")
        took += MILLISECOND
        assert took < SECOND, f"{len(own.messages)} are still there"
    assert took < STEPS * (REST + 16 * MILLISECOND)
