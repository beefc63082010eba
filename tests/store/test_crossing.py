"""What goes from a queue in the log of the cluster to one in the local log of a broker, or back: a
crash at any moment, of whatever both logs have then, leaves it on one of both queues at least.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues import level as level_module
from qpidha.broker.queues import move as move_module
from qpidha.broker.queues.crossing import Ends
from qpidha.broker.queues.log_writer import BOTH
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Fate, Post, Retirement, Transaction, TransactionRolledBack
from qpidha.model.duration import MILLISECOND
from qpidha.model.errors import RefusedRequest
from qpidha.model.message import Message
from qpidha.model.message_view import build
from tests.store.test_levels_and_crashes import Run, left_of
from tests.store.test_local_log import Member

SOURCE, TARGET, OTHER = "source", "target", "other"
LEVELS = ("none", "configuration", "all")
PAIRS = [("none", "all"), ("configuration", "all"), ("all", "none"), ("all", "configuration")]
TURN = 40 * MILLISECOND
"""From one turn to the next, so that what expires is seen to."""
DEAD_LETTERS = {
    "x-dead-letter-exchange": "dead",
    "x-delivery-limit": 1,
    "qpidha.dead-letter-on-delete": True,
}


@pytest.fixture(autouse=True, scope="module")
def small_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level_module, "RECORDED_A_TURN", 2)
        patch.setattr(level_module, "SPARE", 3)
        patch.setattr(move_module, "PASSED_ON_A_TURN", 2)
        yield


def a_message(key: str) -> bytes:
    return build(
        f"<{key}>", header={"durable": True}, properties={"message_id": key, "subject": "k"}
    )


def key_of(message: Message) -> str:
    return str(message.body().rpartition(b"<")[2].partition(b">")[0], "utf-8")


def keys_on(queue: Queue | None) -> list[str]:
    return [] if queue is None else [key_of(each) for each in queue.messages_after(0, 1 << 40)]


class Between(Run):
    """Queues in both logs, and messages that go from one to the other."""

    def __init__(self, seed: str, levels: dict[str, str], **options: Any) -> None:
        self.levels, self.options = levels, options
        self.moved: set[str] = set()
        """What was on its way from one log to the other at any time: it may be there twice."""
        self.works: list[tuple[set[str], set[str]]] = []
        """(accepted, posted) of each transaction since the last crash."""
        super().__init__(seed, "fifo")

    def begin(self) -> None:
        broker = self.member.broker
        broker.declare_exchange("dead", "fanout", durable=True)
        for name in (TARGET, OTHER, SOURCE):
            self.declare(name)
        for name in self.options.get("bound", (TARGET,)):
            broker.bind("dead", name)
        self.settle()

    def declare(self, name: str) -> None:
        level = self.levels[name]
        arguments: dict[str, Any] = {"qpid.replicate": level} if level else {}
        given: dict[str, Any] = {"durable": True}
        if name == SOURCE:
            arguments |= self.options.get("arguments", DEAD_LETTERS)
            given["alternate"] = self.options.get("alternate", "")
        broker = self.member.broker
        broker.declare_queue(name, arguments=arguments, **given)

    def settle(self) -> None:
        """Have all written and committed, and all come to its end."""
        for _ in range(300):
            self.step(pump=True, commit=True)

    def step(self, *, pump: bool, commit: bool) -> None:
        """Play a turn; before it the disk does all it is to do, and others have the log, or not."""
        member = self.member
        broker = member.broker
        if pump:
            member.pump()
        if commit:
            self.committed = member.main.last
        self.local_committed = member.committed(self.committed)
        broker.committed = member.main.committed = self.committed
        broker.local_committed = self.local_committed
        self.over = broker.crossed(self.committed)
        self.tell()
        self.note()
        broker.now += TURN
        while 0 < broker.next_deadline <= broker.now:
            broker.tick(broker.now)
        broker.dispatch(broker.now)
        broker.go_on_walking(self.committed)
        self.note()
        broker.go_on_crossing(self.committed)
        member.turn()

    def tell(self) -> None:
        rest = []
        for place, told, key in self.waiting:
            reached = self.over if place > BOTH else self.local_committed
            if place <= (reached if place > 1 << 62 else self.committed):
                told.add(key)
            else:
                rest.append((place, told, key))
        self.waiting = rest

    def note(self) -> None:
        for queue in self.member.broker.queues.values():
            self.moved.update(
                key_of(queue.messages[number])
                for number in queue.crossing
                if number in queue.messages
            )
            if queue.spec.dead_letters is None:
                # It was moved here with its time to live, at the end of which it is dropped.
                self.taken.update(key_of(each) for each in queue.messages.values() if each.expires)

    def turn(self) -> None:
        """Play a turn in which a part of what may come does."""
        rng = self.rng
        for _ in range(rng.choice([0, 1, 2, 10])):
            self.member.disk.pump()
        self.answer()
        if rng.random() < 0.5:
            self.committed = rng.choice(self.ends())
        self.step(pump=False, commit=False)
        local = self.member.local
        if rng.random() < 0.02 and not local.is_busy and not local.pending:
            if local._parts is None:
                local.checkpoint()

    def answer(self) -> None:
        member = self.member
        for event in member.events:
            member.local.log.answer(event.mark)
        member.events.clear()

    # What users do.

    def send(self, name: str, expires: int = 0) -> None:
        self.number += 1
        key = f"m{self.number}"
        broker = self.member.broker
        routed = broker.publish("", name, a_message(key), headers=dict, expires=expires)
        self.waiting.append((routed.sequence, self.accepted, key))

    def one_of(self, name: str) -> Message | None:
        queue = self.member.broker.queues[name]
        free = list(queue.ordering.waiting())
        if not free:
            return None
        message = self.rng.choice(free[:3])
        queue.acquire(message)
        return message

    def act(self) -> None:
        broker, rng = self.member.broker, self.rng
        has_dead_letters = broker.queues[SOURCE].spec.dead_letters is not None
        for _ in range(rng.randint(0, 3)):
            expires = broker.now + rng.randint(1, 10) * TURN if rng.random() < 0.2 else 0
            expires *= has_dead_letters
            self.send(SOURCE, expires)
        for _ in range(rng.choice([0, 0, 1, 2])):
            name = rng.choice([SOURCE, TARGET, OTHER])
            queue, message = broker.queues[name], self.one_of(name)
            if message is None:
                continue
            what = rng.random()
            if what < 0.2:
                queue.requeue(message, failed=True)
            elif what < 0.6 and name == SOURCE:
                queue.reject(message)
            else:
                key = key_of(message)
                self.taken.add(key)
                self.waiting.append((queue.dequeue(message), self.settled, key))
        if rng.random() < 0.1:
            self.work()
        if rng.random() < 0.1:
            source, target = rng.sample([SOURCE, TARGET, OTHER], 2)
            with suppress(RefusedRequest):
                broker.move(source, target, rng.choice([0, 1, 5]))
        if rng.random() < 0.05:
            broker.requeue(TARGET)
        if rng.random() < 0.03 and SOURCE in broker.queues:
            broker.delete_queue(SOURCE)
        if rng.random() < 0.1:
            self.wanted = rng.choice(LEVELS)
        for queue in list(broker.queues.values()):
            broker.levels.look(queue)

    def work(self) -> None:
        """Do a transaction."""
        rng, broker = self.rng, self.member.broker
        transaction = Transaction(broker)
        taken, posted = set(), set()
        for _ in range(rng.randint(0, 3)):
            name = rng.choice([SOURCE, TARGET, OTHER])
            message = self.one_of(name)
            if message is not None:
                fate = rng.choice([Fate.ACCEPT, Fate.ACCEPT, Fate.REJECT, Fate.RELEASE])
                if fate is Fate.ACCEPT or (fate is Fate.REJECT and name != SOURCE):
                    taken.add(key_of(message))
                queue = broker.queues[name]
                transaction.retire(Retirement(transaction, queue, message, fate, settled=True))
        for _ in range(rng.randint(0, 2)):
            self.number += 1
            key = f"m{self.number}"
            posted.add(key)
            queue = broker.queues[rng.choice([SOURCE, TARGET, OTHER])]
            transaction.post(Post(a_message(key), 0, queue=queue))
        try:
            place = transaction.commit()
        except TransactionRolledBack:
            return
        self.taken |= taken
        self.works.append((taken, posted))
        self.waiting += [(place, self.settled, key) for key in taken]
        self.waiting += [(place, self.accepted, key) for key in posted]

    # What must be so.

    def check_told(self) -> None:
        """Of a queue that was deleted, what somebody took just before may be told to be gone."""

    def check(self) -> None:
        broker = self.member.broker
        there: set[str] = set()
        for queue in broker.queues.values():
            keys = keys_on(queue)
            assert len(keys) == len(set(keys)) or self.moved & set(keys), ("twice", queue.name)
            self.moved |= there & set(keys)  # What is there twice may come back.
            there.update(keys)
        missing = self.accepted - self.taken - there
        assert not missing, ("lost", sorted(missing))
        back = (self.settled & there) - self.moved
        assert not back, ("back", sorted(back))
        for taken, posted in self.works:
            if (taken & self.accepted) - there:
                gone = posted - there - self.taken
                assert not gone, ("taken without what was posted", taken, gone)
        self.works.clear()
        if SOURCE not in broker.queues:
            self.declare(SOURCE)


class Calm(Between):
    """The same without crashes."""

    def check_once(self) -> None:
        self.settle()
        broker = self.member.broker
        assert not broker.crossings.is_busy and not self.waiting
        there = [key for queue in broker.queues.values() for key in keys_on(queue)]
        assert sorted(there) == sorted(self.accepted - self.taken)
        for queue in broker.queues.values():
            assert not queue.crossing and not queue.crossing_bytes
            assert queue.acquired == sum(each.acquired for each in queue.messages.values())


KINDS: dict[str, dict[str, Any]] = {
    "dead letters": {},
    "ring": {"arguments": {**DEAD_LETTERS, "qpid.max_count": 3, "qpid.policy_type": "ring"}},
    "alternate": {"alternate": "dead", "arguments": {"x-delivery-limit": 1}},
    "old ring": {
        "alternate": "dead",
        "arguments": {"qpid.max_count": 3, "qpid.policy_type": "ring"},
    },
}


def play(seed: int, kind: str, *, is_calm: bool = False) -> None:
    """Play one history."""
    rng = random.Random(f"levels {seed} {kind}")
    levels = {name: rng.choice(LEVELS) for name in (SOURCE, TARGET, OTHER)}
    swinging = rng.choice(["", "", SOURCE, TARGET])
    if swinging:
        levels[swinging] = ""
    run = (Calm if is_calm else Between)(f"{seed} {kind}", levels, **KINDS[kind])
    for _ in range(6):
        for _ in range(run.rng.randint(3, 40)):
            broker = run.member.broker
            if SOURCE in broker.queues and not broker.queues[SOURCE].deleted:
                run.act()
            elif SOURCE not in broker.queues:
                run.declare(SOURCE)
            run.turn()
        if not is_calm:
            run.rng.choice([run.crash, run.crash, run.step_down])()
    if isinstance(run, Calm):
        run.check_once()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", range(3))
def test_a_message_between_both_logs_is_on_one_queue_at_least(kind: str, block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        play(seed, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_crash_it_is_on_one_queue_only(kind: str) -> None:
    for seed in range(15):
        play(seed, kind, is_calm=True)


# Every cut of one message on its way.


class Way(Between):
    """One message on its way, of which every cut is looked at."""

    def __init__(self, levels: dict[str, str], way: str) -> None:
        self.way = way
        arguments: dict[str, Any] = dict(DEAD_LETTERS)
        options: dict[str, Any] = {"arguments": arguments}
        if "ring" in way:
            arguments |= {"qpid.max_count": 1, "qpid.policy_type": "ring"}
        if "alternate" in way:
            arguments.clear()
            arguments |= {"x-delivery-limit": 1}
            options["alternate"] = "dead"
        if "ring" in way and "alternate" in way:
            arguments |= {"qpid.max_count": 1, "qpid.policy_type": "ring"}
        if "to two" in way:
            options["bound"] = (TARGET, OTHER)
        super().__init__(way, levels, **options)
        self.posted: set[str] = set()
        self.over_told: set[str] = set()
        self.seen: set[Any] = set()
        self.cuts = 0

    def set_out(self) -> None:
        """Have a message on the source, and then let it go."""
        broker = self.member.broker
        start = TARGET if self.way == "sent back" else SOURCE
        if self.way == "sent back":
            self.send(SOURCE)
            self.settle()
            broker.queues[SOURCE].reject(self.take(SOURCE))
            self.settle()
        else:
            self.send(SOURCE, broker.now + 400 * TURN if self.way == "expired" else 0)
            self.settle()
        assert self.accepted == {"m1"} and keys_on(broker.queues[start]) == ["m1"]
        self.waiting.append((self.go(), self.over_told, "m1"))

    def take(self, name: str) -> Message:
        found = self.one_of(name)
        assert found is not None
        return found

    def go(self) -> int:
        broker = self.member.broker
        queue = broker.queues[SOURCE]
        match self.way.replace(",", "").split()[0]:
            case "rejected":
                return queue.reject(self.take(SOURCE))
            case "failed":
                queue.restate(self.take(SOURCE).sequence, 1, b"")
                return queue.requeue(next(iter(queue.messages.values())), failed=True)
            case "expired":
                broker.now += 1000 * TURN
                broker.tick(broker.now)
                return max(queue.crossing.values())
            case "ring":
                self.send(SOURCE)
                return max(queue.crossing.values())
            case "deleted":
                return broker.delete_queue(SOURCE).sequence
            case "moved":
                return broker.move(SOURCE, TARGET).sequence
            case "sent":
                return broker.requeue(TARGET).sequence
        transaction = Transaction(broker)
        fate = Fate.REJECT if "drops" in self.way else Fate.ACCEPT
        if "drops" in self.way:
            queue.reconfigure(broker._compile(_without_dead_letters(queue), None))
        transaction.retire(Retirement(transaction, queue, self.take(SOURCE), fate, settled=True))
        transaction.post(Post(a_message("p1"), 0, queue=broker.queues[TARGET]))
        return transaction.commit()

    def look(self) -> None:
        """Cut here, with each end that the log of the cluster may have."""
        for end in self.ends():
            for how in ("drop", "keep"):
                files = copy.deepcopy(self.member.files)
                files.crash(how, self.rng)
                state = (end, repr(files.written), "m1" in self.over_told)
                if state in self.seen:
                    continue
                self.seen.add(state)
                self.cuts += 1
                self.judge(files, end)

    def judge(self, files: Any, end: int) -> None:
        again = Member(files, left_of(self.member.main, end), passive=True)
        again.pump()
        again.promote()
        there = {name: keys_on(queue) for name, queue in again.broker.queues.items()}
        target = SOURCE if self.way == "sent back" else TARGET
        start = TARGET if self.way == "sent back" else SOURCE
        is_told = "m1" in self.over_told
        if self.way.startswith("transaction"):
            is_gone = "m1" not in there.get(start, ())
            assert not is_gone or "p1" in there[target], ("half", end, there)
            assert not is_told or is_gone, ("not all of it", end, there)
            return
        arrived = [target, OTHER] if "to two" in self.way else [target]
        is_there = all("m1" in there[name] for name in arrived)
        assert "m1" in there.get(start, ()) or is_there, ("lost", end, there)
        if is_told:
            assert is_there and "m1" not in there.get(start, ()), ("told", end, there)

    def travel(self, schedule: str) -> None:
        """Play it to its end, in small steps."""
        for number in range(400):
            steps = {
                "disk first": "dt" if number % 9 else "dct",
                "cluster first": "ct" if number % 9 else "dct",
                "both": "dct",
            }[schedule]
            for step in steps:
                if step == "d":
                    self.member.disk.pump()
                    self.answer()
                elif step == "c":
                    self.committed = self.member.main.last
                else:
                    self.step(pump=False, commit=False)
                self.look()
            if number > 60 and not self.member.broker.crossings.is_busy:
                break
        self.settle()
        self.look()
        start = TARGET if self.way == "sent back" else SOURCE
        found = self.member.broker.queues.get(start)
        assert "m1" not in keys_on(found) and not self.member.broker.crossings.is_busy
        assert "m1" in self.over_told


def _without_dead_letters(queue: Queue) -> Any:
    given = {
        name: value
        for name, value in queue.options.arguments.items()
        if not name.startswith(("x-dead-letter", "qpidha.dead"))
    }
    return replace(queue.options, arguments=given)


WAYS = (
    "rejected",
    "rejected, alternate",
    "rejected to two",
    "failed",
    "expired",
    "ring",
    "ring, alternate",
    "deleted",
    "moved",
    "sent back",
    "transaction",
    "transaction drops",
)


@pytest.mark.parametrize("way", WAYS)
def test_no_cut_of_either_log_leaves_a_message_on_neither_queue(way: str) -> None:
    for source, target in PAIRS:
        for schedule in ("disk first", "cluster first", "both"):
            levels = {SOURCE: source, TARGET: target, OTHER: source}
            run = Way(levels, way)
            run.set_out()
            run.travel(schedule)
            assert run.cuts > 3, (source, target, schedule)


def leave_at_once(patch: pytest.MonkeyPatch) -> None:
    """Let a message leave in the turn in which it is put on its target."""
    patch.setattr(Broker, "crosses", lambda self, source, target: False)


def leave_before_sync(patch: pytest.MonkeyPatch) -> None:
    """Let it leave one turn later, whatever is committed."""
    patch.setattr(Ends, "covers", lambda self, other: True)


def wait_for_the_other_log(patch: pytest.MonkeyPatch) -> None:
    """Wait for the log that the message leaves, and not for the one in which it arrives."""
    covers = Ends.covers
    patch.setattr(
        Ends,
        "covers",
        lambda self, other: covers(self._replace(local=max(self.local, other.local)), other),
    )


@pytest.mark.parametrize("bug", [leave_at_once, leave_before_sync, wait_for_the_other_log])
def test_a_broken_rule_is_noticed(bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        for source, target in PAIRS:
            run = Way({SOURCE: source, TARGET: target, OTHER: source}, "moved")
            run.set_out()
            run.travel("both")
            run.travel("disk first")
            run.travel("cluster first")


def between(levels: tuple[str, str], arguments: dict[str, Any]) -> Between:
    """Return a source with these arguments, and its target, of these levels."""
    source, target = levels
    named = {SOURCE: source, TARGET: target, OTHER: source}
    return Between("one", named, arguments=arguments)


def ended(run: Between) -> bool:
    """Delete the source; return whether it is gone, and nothing is on its way."""
    broker = run.member.broker
    broker.delete_queue(SOURCE)
    run.settle()
    return SOURCE not in broker.queues and not broker.crossings.is_busy and not broker.walks


@pytest.mark.parametrize("levels", PAIRS)
def test_what_was_replaced_in_its_transaction_does_not_leave_once_more(
    levels: tuple[str, str],
) -> None:
    run = between(levels, {"qpid.last_value_queue_key": "qpid.subject"})
    broker = run.member.broker
    queue = broker.queues[SOURCE]
    run.send(SOURCE)
    run.settle()
    message = run.one_of(SOURCE)
    assert message is not None
    transaction = Transaction(broker)
    transaction.retire(Retirement(transaction, queue, message, Fate.REJECT, settled=True))
    transaction.post(Post(a_message("m2"), 0, queue=queue))
    transaction.post(Post(a_message("p1"), 0, queue=broker.queues[TARGET]))
    transaction.commit()
    run.settle()
    assert keys_on(queue) == ["m2"] and keys_on(broker.queues[TARGET]) == ["p1"]
    assert (queue.staying, queue.staying_bytes) == (1, queue.bytes)
    assert queue.in_flight == 0 and ended(run)


@pytest.mark.parametrize("levels", PAIRS)
def test_a_message_on_its_way_is_not_put_off_when_it_is_given_back(levels: tuple[str, str]) -> None:
    """A consumer of a queue that is deleted may give back what it had in a later turn."""
    retry = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000}
    run = between(levels, DEAD_LETTERS | retry)
    broker = run.member.broker
    queue = broker.queues[SOURCE]
    run.send(SOURCE)
    run.settle()
    message = run.one_of(SOURCE)
    assert message is not None
    broker.delete_queue(SOURCE)
    assert list(queue.crossing) == [message.sequence]
    queue.release(message)
    assert not queue.delayed and (queue.acquired, queue.in_flight) == (1, 0)
    run.settle()
    assert SOURCE not in broker.queues and keys_on(broker.queues[TARGET]) == ["m1"]


@pytest.mark.parametrize("levels", PAIRS)
def test_what_comes_back_while_it_is_on_its_way_is_no_duplicate_of_what_leaves(
    levels: tuple[str, str],
) -> None:
    run = between(levels, DEAD_LETTERS | {"qpidha.dedup": "message-id"})
    broker = run.member.broker
    queue, target = broker.queues[SOURCE], broker.queues[TARGET]
    run.send(SOURCE)
    run.settle()
    message = run.one_of(SOURCE)
    assert message is not None
    queue.reject(message)
    broker.requeue(TARGET)
    run.step(pump=False, commit=False)
    run.settle()
    assert keys_on(queue) == ["m1"] and keys_on(target) == []
    assert not queue.crossing and queue.staying == 1 and not target.messages
