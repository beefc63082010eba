"""A queue whose replicate level changes back and forth, on a broker that crashes at any moment:
whatever of both logs a crash leaves, what was accepted is there and what was settled is not.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from qpidha.broker.queues import level as level_module
from qpidha.broker.queues.queue import Queue
from qpidha.model.message_view import build
from qpidha.store.local_log import LocalLog
from qpidha.store.log import Log
from qpidha.store.recovery import fold, snapshot_messages, snapshot_objects
from tests.store.test_local_log import Member, gone

LEVELS = ("none", "configuration", "all")
KINDS: dict[str, dict[str, Any]] = {
    "fifo": {},
    "dedup": {"qpidha.dedup": "message-id"},
    "priority": {"qpid.priorities": 10},
    "values": {"qpid.last_value_queue_key": "key"},
}


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_module, "RECORDED_A_TURN", 2)
        patch.setattr(level_module, "SPARE", 3)
        yield


def left_of(main: Log, last: int) -> Log:
    """Return the log of a cluster as others have it, up to a batch."""
    found = Log(1 << 24)
    for batch in main.batches(1):
        if batch.last <= last:
            found.receive(batch)
    return found


class Run:
    """One queue, those who use it, and what they were told."""

    def __init__(self, seed: int | str, kind: str) -> None:
        self.rng = random.Random(f"{seed} {kind}")
        self.member = Member()
        self.committed = 0
        self.wanted = "none"
        self.accepted: set[str] = set()
        self.taken: set[str] = set()
        self.settled: set[str] = set()
        self.waiting: list[tuple[int, set[str], str]] = []
        self.number = 0
        self.local_committed = 0
        self.kind = kind
        self.follow()
        self.begin()

    def begin(self) -> None:
        """Have what there is at the beginning, and have it written."""
        self.member.broker.declare_queue("q", durable=True, arguments=KINDS[self.kind])
        self.member.broker.declare_exchange(
            "mine", "fanout", durable=True, arguments={"qpid.replicate": "none"}
        )
        self.member.broker.bind("mine", "q")
        self.member.broker.bind("amq.fanout", "q")
        while self.local_committed < self.member.local.end:
            self.turn()

    def follow(self) -> None:
        self.member.broker.levels.wanted = (  # type: ignore[method-assign]
            lambda queue: self.wanted
        )

    def act(self) -> None:
        broker, rng = self.member.broker, self.rng
        queue = broker.queues["q"]
        for _ in range(rng.randint(0, 3)):
            self.number += 1
            key = f"m{self.number}"
            message = build(
                key,
                header={"durable": True, "priority": rng.randint(0, 9)},
                properties={"message_id": key},
                application_properties={"key": key},
            )
            exchange = rng.choice(["", "mine", "amq.fanout"])
            routed = broker.publish(
                exchange, "q" if not exchange else "", message, headers=lambda k=key: {"key": k}
            )
            assert routed.queues == 1, exchange
            self.waiting.append((routed.sequence, self.accepted, key))
        for _ in range(rng.choice([0, 0, 1, 2])):
            free = list(queue.ordering.waiting())
            if not free:
                break
            message_there = rng.choice(free[:3] + free[-1:])
            queue.acquire(message_there)
            if rng.random() < 0.2:
                queue.requeue(message_there, failed=True)
                continue
            key = key_of(message_there)
            self.taken.add(key)
            self.waiting.append((queue.dequeue(message_there), self.settled, key))
        if rng.random() < 0.1:
            self.wanted = rng.choice(LEVELS)
        broker.levels.look(queue)

    def turn(self) -> None:
        member, rng = self.member, self.rng
        broker = member.broker
        broker.now += 1
        broker.committed = member.main.committed = self.committed
        broker.local_committed = self.local_committed
        broker.go_on_walking(self.committed)
        member.turn()
        for _ in range(rng.choice([0, 1, 2, 10])):
            member.disk.pump()
        for event in member.events:
            member.local.log.answer(event.mark)
        member.events.clear()
        if rng.random() < 0.5:
            self.committed = rng.choice(self.ends())
        self.local_committed = member.committed(self.committed)
        member.local.turn()
        if rng.random() < 0.02 and not member.local.is_busy and not member.local.pending:
            if member.local._parts is None:
                member.local.checkpoint()
        rest = []
        for place, told, key in self.waiting:
            if place <= (self.local_committed if place > 1 << 62 else self.committed):
                told.add(key)
            else:
                rest.append((place, told, key))
        self.waiting = rest

    def ends(self) -> list[int]:
        """Return what may be committed."""
        found = [batch.last for batch in self.member.main.batches(1)]
        return [self.committed, *(last for last in found if last > self.committed)]

    def crash(self) -> None:
        """Lose power, and some of what others did not confirm; be a backup, or not, and decide."""
        member, rng = self.member, self.rng
        last = rng.choice(self.ends())
        member.disk.crash(rng.choice(["drop", "lose", "keep"]))
        self.waiting.clear()
        known = rng.choice([0, self.committed // 2, self.committed, self.committed])
        self.restart(left_of(member.main, last), known)

    def restart(self, main: Log, known: int) -> None:
        """Start with a part of the log, and hear of the rest."""
        self.member = Member(self.member.files, left_of(main, known), passive=True)
        self.member.pump()
        for batch in main.batches(self.member.main.last + 1):
            fold(self.member.broker, batch.data)
        self.member.main = main
        if not main.epoch:
            main.start_epoch(1)
        self.committed = main.last
        self.member.promote()
        self.follow()
        self.local_committed = 0
        self.check_told()
        self.check()

    def step_down(self) -> None:
        """Let another one decide, and decide again; what others did not confirm may be gone."""
        member, rng = self.member, self.rng
        broker = member.broker
        last = rng.choice(self.ends())
        broker.log_writer, broker.passive = None, True
        broker.abandon_walks()
        member.local.abandon()
        self.waiting.clear()
        main = left_of(member.main, last)
        if last < member.main.last or rng.random() < 0.3:
            other = Member(main=left_of(main, last), passive=True).broker
            broker.reset(keep_local=True)
            for data in (*snapshot_objects(other), *snapshot_messages(other, last)):
                fold(broker, data, is_snapshot=True)
        if rng.random() < 0.5:
            member.told += member.local.settle()
        if rng.random() < 0.3:
            member.main = main
            self.committed = last
            self.crash()
            return
        if not main.epoch:
            main.start_epoch(1)
        member.main = main
        self.committed = last
        member.promote()
        self.check_told()
        self.check()

    def check_told(self) -> None:
        """Nothing was told to be gone."""
        assert not gone(self.member), gone(self.member)

    def check(self) -> None:
        queue = self.member.broker.queues["q"]
        there = [key_of(message) for message in queue.messages_after(0, 1 << 40)]
        assert len(there) == len(set(there)), "twice"
        missing = self.accepted - self.taken - set(there)
        assert not missing, ("lost", queue.options.replicate, sorted(missing))
        assert not self.settled & set(there), ("back", queue.options.replicate)
        broker = self.member.broker
        for exchange in ("mine", "amq.fanout"):
            assert broker.exchanges[exchange].binding(queue, "") is not None, exchange


def key_of(message: Any) -> str:
    return str(message.body().rpartition(b"m")[2], "utf-8").join(["m", ""])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(4))
def test_whatever_a_crash_leaves_nothing_is_lost_and_nothing_comes_back(
    kind: str, block: int
) -> None:
    for seed in range(block * 15, block * 15 + 15):
        play(seed, kind)


def play(seed: int, kind: str) -> None:
    """Play one history."""
    run = Run(seed, kind)
    for _ in range(6):
        for _ in range(run.rng.randint(3, 40)):
            queue = run.member.broker.queues["q"]
            before = queue.options.replicate
            run.act()
            run.turn()
            if queue.options.replicate != before and run.rng.random() < 0.4:
                break  # Nothing of that may be on any disk yet.
        run.rng.choice([run.crash, run.crash, run.step_down])()


def forget_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Have others forget messages before they are on this broker's disk."""
    take = level_module.OutOfLog.take

    def hasty(self: Any, found: list[Any]) -> int:
        take(self, found)
        self._waits = False
        return 0

    patch.setattr(level_module.OutOfLog, "take", hasty)


def hide_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Have others forget a queue before it is on this broker's disk that it is its own."""
    hides = LocalLog.hides

    def hasty(self: LocalLog, queue: Queue, bindings: Any) -> int:
        hides(self, queue, bindings)
        return 0

    patch.setattr(LocalLog, "hides", hasty)


def record_once(patch: pytest.MonkeyPatch) -> None:
    """Record what leaves a queue that is in both logs in the cluster's only."""

    def once(self: Queue, log_writer: Any) -> None:
        self.log_writer = log_writer

    patch.setattr(Queue, "record_twice", once)


def believe_what_is_old(patch: pytest.MonkeyPatch) -> None:
    """Give up for a record what is here since a later one."""
    ignored = property(lambda self: True, lambda self, value: None)
    patch.setattr(LocalLog, "is_settled", ignored, raising=False)


@pytest.mark.parametrize(
    "bug", [forget_before_sync, hide_before_sync, record_once, believe_what_is_old]
)
def test_a_broken_rule_is_noticed(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(200):
        try:
            play(seed, "fifo")
        except (AssertionError, KeyError):
            return
    pytest.fail("200 seeds did not notice it")
