"""One step a turn, and the timer."""

from __future__ import annotations

import asyncio
import time

from qpidha.broker.queues import remains, returns
from qpidha.management.event_log import EventLog
from qpidha.model.events import LogWritten, Stalled, StopRequested, Tick
from qpidha.node import LOOK, REST
from qpidha.runtime.clock import Clock
from qpidha.runtime.node_loop import NodeLoop
from tests.amqp.builders import a_node
from tests.broker.parts import a_taker
from tests.patience import STATE

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


class Recording:
    """A node that notes its steps."""

    def __init__(self, effects=()):
        self.next_deadline = 0
        self.steps = []
        self.effects = list(effects)
        self.stepped = asyncio.Event()

    def start(self, now):
        self.started = now
        return []

    def step(self, events, now, ahead):
        self.ahead = ahead
        self.steps.append((events, now))
        self.next_deadline = 0
        self.stepped.set()
        return self.effects


def test_all_that_happens_in_one_turn_is_one_step():
    async def play():
        loop = NodeLoop(asyncio.get_running_loop(), Clock())
        node = Recording()
        loop.put(StopRequested())
        loop.start(node, {})
        loop.put(Tick())
        loop.put(Tick())
        await node.stepped.wait()
        assert [len(events) for events, _ in node.steps] == [3]
        loop.put(Tick())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [len(events) for events, _ in node.steps] == [3, 1]

    asyncio.run(play())


def test_the_deadline_ticks_the_node_once_and_not_before():
    async def play():
        clock = Clock()
        loop = NodeLoop(asyncio.get_running_loop(), clock)
        node = Recording()
        node.next_deadline = due = clock.now() + 20_000_000
        loop.start(node, {})
        await asyncio.wait_for(node.stepped.wait(), STATE)
        ((events, now),) = node.steps
        assert [type(event) for event in events] == [Tick] and now >= due

    asyncio.run(play())


def test_a_deadline_that_moves_away_does_not_tick():
    async def play():
        clock = Clock()
        loop = NodeLoop(asyncio.get_running_loop(), clock)
        node = Recording()
        node.next_deadline = clock.now() + 5_000_000
        loop.start(node, {})
        node.next_deadline = due = clock.now() + 40_000_000
        await asyncio.wait_for(node.stepped.wait(), STATE)
        assert len(node.steps) == 1 and node.steps[0][1] >= due

    asyncio.run(play())


def test_a_loop_that_was_stopped_takes_no_step():
    async def play():
        loop = NodeLoop(asyncio.get_running_loop(), Clock())
        node = Recording()
        loop.start(node, {})
        loop.put(Tick())
        await node.stepped.wait()
        loop.put(Tick())
        loop.stop()
        loop.put(Tick())
        for _ in range(3):  # turns of the loop in which a step would come
            await asyncio.sleep(0)
        assert len(node.steps) == 1

    asyncio.run(play())


def test_a_step_is_told_what_the_wall_clock_is_ahead(monkeypatch):
    """Somebody set it an hour back: what is timed goes on, and the node knows."""

    async def play():
        clock = Clock()
        loop = NodeLoop(asyncio.get_running_loop(), clock)
        node = Recording()
        loop.start(node, {})
        before, real = clock.now(), time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: real() - HOUR)
        loop.put(Tick())
        await node.stepped.wait()
        assert abs(node.ahead + HOUR) < SECOND
        assert 0 <= node.steps[0][1] - before < SECOND

    asyncio.run(play())


def test_a_node_lets_messages_expire_by_the_wall_clock():
    node = a_node()
    node.start(HOUR)
    queue, _ = node.broker.declare_queue("q")
    node.broker.publish("", "q", b"m", headers=dict, expires=HOUR)
    node.step([Tick()], HOUR + SECOND, -HOUR)
    assert queue.messages and node.next_deadline >= 2 * HOUR
    node.step([Tick()], HOUR + 2 * SECOND, -SECOND)
    assert not queue.messages


def test_a_node_has_its_next_turn_at_once_while_something_is_to_be_freed(monkeypatch):
    monkeypatch.setattr(remains, "FREED_A_TURN", 2)
    node = a_node()
    node.start(HOUR)
    node.broker.declare_queue("q")
    for _ in range(5):
        node.broker.publish("", "q", b"m", headers=dict)
    node.broker.delete_queue("q")
    for left in (3, 1):
        node.step([], HOUR)
        assert len(node.broker.remains) == left and node.next_deadline == HOUR
    node.step([], HOUR)
    assert not node.broker.remains and not node.next_deadline


def test_a_node_has_its_next_turn_at_once_while_something_is_to_be_given_back(monkeypatch):
    monkeypatch.setattr(returns, "RETURNED_A_TURN", 1)
    node = a_node()
    node.start(HOUR)
    queue, _ = node.broker.declare_queue("q")
    takers = [a_taker(queue, 1) for _ in range(3)]
    for _ in takers:
        node.broker.publish("", "q", b"m", headers=dict)
    node.step([], HOUR)
    for taker in takers:
        node.broker.returns.add(queue, taker.got, failed=True)
        queue.unsubscribe(taker)
    turns = 0
    node.step([], HOUR)
    while node.next_deadline == HOUR:
        node.step([], HOUR)
        turns += 1
    assert turns > 1 and not queue.acquired


def test_a_node_has_its_next_turn_at_once_while_queues_of_an_owner_are_to_end(monkeypatch):
    monkeypatch.setattr("qpidha.broker.broker.WALKED_A_TURN", 1)
    node = a_node()
    node.start(HOUR)
    broker, owner = node.broker, object()
    broker.dispatch(HOUR)
    for name in "abcd":
        broker.declare_queue(name, exclusive=True, auto_delete=True, owner=owner)
    broker.owner_gone(owner)
    for left in (2, 1):
        node.step([], HOUR)
        assert len(broker.queues) == left and node.next_deadline == HOUR
    node.step([], HOUR)
    node.step([], HOUR)
    assert not broker.queues and not node.next_deadline


def test_a_node_looks_around_once_in_a_while_where_nothing_but_traffic_comes(monkeypatch):
    node = a_node(auth=False)
    looked = []
    monkeypatch.setattr(node, "_look_around", lambda: looked.append(node.now))
    traffic = [LogWritten(1)]
    node.start(HOUR)
    node.step([Tick()], HOUR + 1)
    node.step(traffic, HOUR + LOOK)
    assert looked == [HOUR, HOUR + 1] and node.next_deadline == HOUR + 1 + LOOK
    node.step(traffic, HOUR + 1 + LOOK)
    assert looked[2:] == [HOUR + 1 + LOOK] and not node.next_deadline
    node.step([*traffic, Tick()], HOUR + 2 + LOOK)
    node.announce("notice", "something happened")
    node.step(traffic, HOUR + 3 + LOOK)
    assert looked[3:] == [HOUR + 2 + LOOK, HOUR + 3 + LOOK]


def test_each_turn_is_logged_where_messages_are_traced(monkeypatch):
    """What backups confirmed, before clients can hear of it."""
    node = a_node(auth=False, journal_events="full", journal_events_dir="/nowhere")
    logged = []
    monkeypatch.setattr(EventLog, "turn", lambda _, now, *others: logged.append(now))
    node.start(HOUR)
    node.step([LogWritten(1)], HOUR + 1)
    node.step([LogWritten(1)], HOUR + 2)
    assert logged == [HOUR, HOUR + 1, HOUR + 2]


def test_what_is_due_sooner_than_the_next_look_is_not_late(monkeypatch):
    node = a_node(auth=False)
    node.start(HOUR)
    queue, _ = node.broker.declare_queue("q")
    node.broker.publish("", "q", b"m", headers=dict, expires=HOUR + SECOND)
    node.step([Tick()], HOUR)
    due = node.next_deadline
    node.step([Tick()], due - LOOK // 2)
    node.step([LogWritten(1)], due - LOOK // 4)
    assert node.next_deadline == due
    node.step([Tick()], due)
    assert not queue.messages


def test_a_node_rests_between_the_steps_of_a_walk(monkeypatch):
    monkeypatch.setattr("qpidha.broker.broker.WALKED_A_TURN", 2)
    node = a_node()
    node.start(HOUR)
    queue, _ = node.broker.declare_queue("q")
    for _ in range(7):
        node.broker.publish("", "q", b"m", headers=dict)
    node.step([], HOUR)
    purge = node.broker.purge("q")
    assert len(queue.messages) == 5
    now = HOUR + SECOND
    for left in (3, 1):
        node.step([], now)
        assert len(queue.messages) == left and node.next_deadline == now + REST
        node.step([], now + REST - 1)
        assert len(queue.messages) == left and node.next_deadline == now + REST
        now += REST
    node.step([], now)
    assert purge.is_over and not queue.messages


def test_a_node_rests_between_looks_at_what_is_due_at_once(monkeypatch):
    monkeypatch.setattr("qpidha.broker.broker.LOOKED_A_TURN", 2)
    monkeypatch.setattr("qpidha.broker.queues.times.PAGE", 2)
    node = a_node()
    node.start(HOUR)
    queue, _ = node.broker.declare_queue("q")
    for _ in range(5):
        node.broker.publish("", "q", b"m", headers=dict, expires=HOUR + SECOND)
    node.step([], HOUR)
    now = HOUR + 2 * SECOND
    for left in (3, 1):
        node.step([Tick()], now)
        assert len(queue.messages) == left and node.next_deadline == now + REST
        node.step([Tick()], now + REST - 1)
        assert len(queue.messages) == left and node.next_deadline == now + REST
        now += REST
    node.step([Tick()], now)
    assert not queue.messages


def test_the_clock_never_goes_back():
    clock = Clock()
    seen = [clock.now() for _ in range(1000)]
    assert seen == sorted(seen)


class Late:
    """A clock that a test sets."""

    def __init__(self):
        self.time = 1_000 * SECOND

    def now(self):
        return self.time

    def ahead(self):
        return 0


def stalls(node):
    return [event.time for events, _ in node.steps for event in events if type(event) is Stalled]


def test_a_turn_that_took_long_is_told_as_a_stall_and_a_short_one_is_not():
    async def play():
        clock, effect = Late(), object()
        loop = NodeLoop(asyncio.get_running_loop(), clock)
        node = Recording([effect])
        took = iter((250_000_000, 99_000_000, 0, 0, 0))

        def carry_out(_):
            clock.time += next(took)

        loop.start(node, {object: carry_out})
        for _ in range(2):
            loop.put(StopRequested())
            for _ in range(4):
                await asyncio.sleep(0)
        assert stalls(node) == [250_000_000]

    asyncio.run(play())


def test_a_deadline_before_the_start_is_no_stall():
    async def play():
        loop = NodeLoop(asyncio.get_running_loop(), Clock())
        node = Recording()
        node.next_deadline = 1  # At once; counted from 1970 that was 57 years of stalls.
        loop.start(node, {})
        await asyncio.wait_for(node.stepped.wait(), STATE)
        assert sum(stalls(node)) < HOUR

    asyncio.run(play())


def test_a_timer_that_is_late_is_a_stall():
    async def play():
        clock = Late()
        loop = NodeLoop(asyncio.get_running_loop(), clock)
        node = Recording()
        node.next_deadline = due = clock.time + 1_000_000
        loop.start(node, {})
        clock.time = due + 3 * SECOND  # The process was not run.
        await asyncio.wait_for(node.stepped.wait(), STATE)
        assert stalls(node) == [3 * SECOND]

    asyncio.run(play())


def test_a_timer_that_is_late_for_a_turn_is_not_counted_twice():
    async def play():
        clock, effect = Late(), object()
        loop = NodeLoop(asyncio.get_running_loop(), clock)
        node = Recording([effect])
        node.next_deadline = due = clock.time + 1_000_000
        ends = iter((due + 2 * SECOND,))

        def carry_out(_):
            clock.time = next(ends, clock.time)

        loop.start(node, {object: carry_out})
        loop.put(StopRequested())
        await asyncio.wait_for(node.stepped.wait(), STATE)
        clock.time += SECOND
        while len(stalls(node)) < 2:
            node.stepped.clear()
            await asyncio.wait_for(node.stepped.wait(), STATE)
        assert stalls(node) == [due + 2 * SECOND - 1_000 * SECOND, SECOND]

    asyncio.run(play())
