"""Why a message left is in the log: a backup counts it, and a broker that is started again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qpidha.broker import broker as broker_module
from qpidha.broker.broker import Broker
from qpidha.broker.queues.queue import Queue
from qpidha.model.features import FEATURES
from qpidha.model.message import Message
from qpidha.model.records import Cause
from tests.broker.parts import expire
from tests.store.durable import Machine, a_message
from tests.store.follower import Source


def first(queue: Queue) -> Message:
    return next(iter(queue.messages.values()))


def leave_all_ways(broker: Broker, seal: Callable[[], None]) -> dict[str, int]:
    """Have messages leave a queue for every cause but its end; return how many for each."""
    queue, _ = broker.declare_queue("q", durable=True)
    expected = {}
    for number, cause in enumerate(Cause):
        if cause is Cause.DELETED:
            continue
        for _ in range(number + 1):
            queue.enqueue(a_message(b"x"), 10 if cause is Cause.EXPIRED else 0)
        seal()  # What comes and leaves in one batch may never be heard of elsewhere.
        if cause is Cause.ACCEPTED:
            queue.dequeue(first(queue))
        elif cause is Cause.REJECTED:
            while queue.messages:
                queue.reject(first(queue))
        elif cause is Cause.PURGED:
            queue.drop(queue.available())
        elif cause is Cause.EXPIRED:
            expire(queue, 11)
        else:
            broker.departures.leave(queue, list(queue.messages.values()), cause)
        seal()
        expected[cause.name.lower().replace("_", "-")] = number + 1
    assert not queue.messages
    return expected


def counted(broker: Broker) -> dict[str, int]:
    return {name: count for name, count in broker.queue("q").departures.items() if count}


def test_a_backup_counts_departures_by_their_cause() -> None:
    source = Source([], 1)
    source.log.features = frozenset(FEATURES)
    expected = leave_all_ways(source.broker, source.seal)
    assert counted(source.broker) == expected
    assert counted(Source(source.batches, 2).broker) == expected


@pytest.mark.parametrize("features", [FEATURES, ()], ids=["in use", "not in use"])
def test_a_broker_that_is_started_again_counts_what_its_log_says(features: tuple[str, ...]) -> None:
    machine = Machine()
    machine.log.features = frozenset(features)
    expected = leave_all_ways(machine.broker, machine.turn)
    again = counted(machine.restart().broker)
    assert again == expected if features else again == {"accepted": sum(expected.values())}


@pytest.mark.parametrize("holds", [False, True])
def test_what_was_purged_is_not_there_again_after_a_power_cut_once_that_is_answered(
    holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "WALKED_A_TURN", 2)
    machine = Machine()
    queue, _ = machine.broker.declare_queue("q", durable=True)
    machine.publish("q", *(b"%d" % number for number in range(7)))
    machine.turn()
    if holds:  # The last step finds nothing that may leave.
        queue.acquire(queue.messages[queue.ordering.last])
    purge = machine.broker.purge("q")
    while not purge.is_over:
        machine.turn()
        machine.broker.go_on_walking(machine.log.committed)
    machine.turn()
    assert purge.sequence <= machine.log.committed and purge.count == 7 - holds
    assert machine.restart("lose").bodies("q") == [b"6"] * holds
