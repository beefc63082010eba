"""Events come from what happened: an announcement says what it is about, and its text is not read;
what is to be seen of a cluster is logged when it is different.
"""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

import pytest

from qpidha.broker.broker import Broker
from qpidha.management.event_log import EventLog
from qpidha.management.measures import CommitTimes
from qpidha.management.tracing import Tracing
from qpidha.model.effects import Announce, Effect, WriteEvents
from qpidha.model.event_log import (
    DepthAlert,
    DiskSpaceChange,
    Happening,
    LinkChange,
    LogTrouble,
    QueueCreated,
    QueueEnded,
    Withholding,
)
from qpidha.model.message_view import build
from qpidha.model.settings import Settings
from qpidha.store.log import Log
from tests.ha.cluster_world import SECOND, World


def an_event_log() -> tuple[EventLog, Broker, list[Effect]]:
    settings, effects, log = Settings(journal_events_dir="/nowhere"), [], Log(1 << 20)
    broker = Broker(settings, None, effects.append, lambda: "uuid")
    return EventLog(settings, log, log, broker, "b1", CommitTimes()), broker, effects


def events(log: EventLog, effects: list[Effect]) -> list[dict[str, Any]]:
    """End a turn and return its events, without those of the start."""
    log.turn(1, None, effects)
    rows = [row for each in effects if isinstance(each, WriteEvents) for row in each.rows]
    effects.clear()
    found = [json.loads("{" + row + "}") for row in rows]
    return [event for event in found if event["k"] not in ("role", "insync")]


@pytest.mark.parametrize(
    "level, about, event",
    [
        ("debug", QueueCreated("q"), {"k": "queue", "q": "q", "f": "created"}),
        ("debug", QueueEnded("q"), {"k": "queue", "q": "q", "f": "deleted"}),
        (
            "error",
            LinkChange("federation", "refused", "link west", "no such user"),
            {"k": "federation", "f": "refused", "x": "link west", "err": "no such user"},
        ),
        (
            "notice",
            LinkChange("replica", "made", "replica q"),
            {"k": "replica", "f": "made", "x": "replica q"},
        ),
        (
            "critical",
            DiskSpaceChange(True),
            {"k": "limit", "f": "disk-free-limit", "x": "refusing messages", "cnt": 1},
        ),
        (
            "notice",
            Withholding("memory-limit", False),
            {"k": "limit", "f": "memory-limit", "x": "giving credit", "cnt": 1},
        ),
        (
            "warning",
            Withholding("memory-limit", True),
            {"k": "limit", "f": "memory-limit", "x": "withholding credit", "cnt": 1},
        ),
        (
            "notice",
            DiskSpaceChange(False),
            {"k": "limit", "f": "disk-free-limit", "x": "taking messages", "cnt": 1},
        ),
        (
            "warning",
            DepthAlert("q", is_up=True, messages=7),
            {"k": "limit", "f": "alert", "x": "crossed upward", "q": "q", "cnt": 7},
        ),
        (
            "info",
            DepthAlert("q", is_up=False, messages=3),
            {"k": "limit", "f": "alert", "x": "crossed downward", "q": "q", "cnt": 3},
        ),
        ("error", None, {"k": "error", "err": "said deleted", "x": "broker"}),
        ("critical", None, {"k": "error", "err": "said deleted", "x": "broker"}),
        (
            "warning",
            LogTrouble("set aside"),
            {"k": "error", "err": "said deleted", "x": "set aside"},
        ),
        ("warning", None, None),
        ("debug", None, None),
    ],
)
def test_an_announcement_becomes_the_event_that_it_is_about(
    level: str, about: Happening | None, event: dict[str, Any] | None
) -> None:
    log, _, _ = an_event_log()
    fields: dict[str, object] = {"queue": "other", "free": 7}
    found = events(log, [Announce(level, "broker", "said deleted", fields, about)])
    assert found == ([] if event is None else [event])


def test_queues_that_come_and_go_are_events() -> None:
    log, broker, effects = an_event_log()
    broker.declare_queue("q")
    broker.delete_queue("q")
    assert [(event["q"], event["f"]) for event in events(log, effects)] == [
        ("q", "created"),
        ("q", "deleted"),
    ]


class Chronicle:
    """A cluster of three, the event log of each."""

    def __init__(self) -> None:
        self.world = World()
        settings = Settings(journal_events_dir="/nowhere")
        self.commits = [CommitTimes() for _ in self.world.machines]
        self.logs = [
            EventLog(
                settings,
                machine.log,
                machine.pending,
                Broker(settings, None, lambda effect: None, lambda: "uuid"),
                f"b{machine.index}",
                self.commits[machine.index],
            )
            for machine in self.world.machines
        ]

    def told(self, index: int) -> list[dict[str, Any]]:
        """End a turn of a broker, and return its events."""
        effects: list[Effect] = []
        machine = self.world.machines[index]
        self.commits[index].turn(machine.log.last, machine.pending.committed, self.world.now)
        self.logs[index].turn(self.world.now, machine.cluster, effects)
        rows = [row for each in effects if isinstance(each, WriteEvents) for row in each.rows]
        return [json.loads("{" + row + "}") for row in rows]


HOSTS = ["host0:5000", "host1:5001", "host2:5002"]


def test_a_promotion_is_told_by_each_broker_as_it_sees_it() -> None:
    chronicle = Chronicle()
    assert chronicle.told(0) == [
        {"k": "member", "x": host, "f": "up", "e": 0} for host in HOSTS[1:]
    ]
    chronicle.told(1)
    chronicle.world.machines[0].promote()
    chronicle.world.settle()
    primary = chronicle.told(0)
    assert primary[:4] == [
        {"k": "epoch", "e": 1},
        {"k": "insync", "e": 1, "set": "b0 host1:5001 host2:5002"},
        {"k": "link", "x": HOSTS[1], "f": "up"},
        {"k": "link", "x": HOSTS[2], "f": "up"},
    ]
    assert {event["k"] for event in primary[4:]} <= {"rep"}
    assert chronicle.told(1) == [
        {"k": "epoch", "e": 1, "x": HOSTS[0]},
        {"k": "insync", "e": 1, "set": "b1 host0:5000 host2:5002"},
        {"k": "link", "x": HOSTS[0], "f": "up"},
    ]


def test_what_is_confirmed_and_accepted_is_told_once_and_how_long_it_took() -> None:
    chronicle = Chronicle()
    world, machine = chronicle.world, chronicle.world.machines[0]
    machine.promote()
    world.settle()
    chronicle.told(0)
    found = []
    for word in ("a", "b"):
        before = machine.log.last
        machine.publish(word)
        chronicle.told(0)
        world.run(0.2)
        events = chronicle.told(0)
        size = len(next(machine.log.batches(machine.log.last)).data)
        for event, host in zip(events, HOSTS[1:], strict=False):
            assert event["z"] >= size
            assert event == {**event, "k": "rep", "x": host, "p": before + 1, "hi": before + 1}
        found.append(events)
        assert events[-1] == {
            "k": "conf",
            "e": 1,
            "p": before + 1,
            "hi": machine.log.last,
            "dt": SECOND // 5,
        }
    assert found[0][2] == {"k": "failover", "f": "accepted", "e": 1}
    assert [len(events) for events in found] == [4, 3]
    assert found[0][0]["z"] == found[1][0]["z"], "of this word only"


def test_what_is_committed_counts_as_accepted_when_clients_are_told() -> None:
    chronicle = Chronicle()
    world, machine = chronicle.world, chronicle.world.machines[0]
    machine.promote()
    world.run(1)
    chronicle.told(0)
    world.machines[2].paused = True
    machine.publish("a")
    world.run(0.1)
    last = machine.log.last
    machine.state_hangs = True
    world.kill(2)
    world.run(1)
    assert machine.log.committed == last and machine.accepted == []
    assert "conf" not in [event["k"] for event in chronicle.told(0)]
    machine.state_hangs = False
    world.run(1)
    assert machine.accepted == ["a"]
    assert "conf" in [event["k"] for event in chronicle.told(0)]


def a_traced_broker(level: str) -> tuple[EventLog, Log, Broker]:
    settings = Settings(
        ha_replicate="all",
        journal_events_dir="/nowhere",
        journal_events=level,
        journal_events_sampling=10,
    )
    log = Log(1 << 20)
    log.start_epoch(1)
    broker = Broker(settings, None, lambda effect: None, lambda: "uuid")
    event_log = EventLog(settings, log, log, broker, "b1", CommitTimes())
    broker.log_writer = event_log.log_writer
    return event_log, log, broker


@pytest.mark.parametrize(("level", "sampling"), [("sampled", 10), ("full", 1)])
def test_messages_are_traced_as_the_level_says(level: str, sampling: int) -> None:
    event_log, _, broker = a_traced_broker(level)
    queue, _ = broker.declare_queue("q")
    for number in range(100):
        queue.enqueue(build("x", properties={"message_id": f"m{number}"}))
    found = [event["i"] for event in events(event_log, []) if event["k"] == "enq"]
    assert found == [f"m{n}" for n in range(100) if crc32(b"m%d" % n) % sampling == 0]


def test_a_message_that_was_accepted_ends_without_its_id() -> None:
    event_log, log, broker = a_traced_broker("full")
    queue, _ = broker.declare_queue("q")
    events(event_log, [])
    position = queue.enqueue(build("x", properties={"message_id": "m"}))
    log.seal()
    log.committed = log.last
    events(event_log, [])
    assert isinstance(event_log.tracer, Tracing) and not event_log.tracer._ids
    queue.dequeue(queue.messages[position])
    assert [event for event in events(event_log, []) if event["k"] == "deq"] == [
        {"k": "deq", "q": "q", "e": 1, "p": position, "x": "accepted"}
    ]
