"""Remembering: in some runs policies have the queues take no message twice, and change and go while
clients work; senders send again what was accepted long ago.

A policy may come to a queue with messages: one to three of their keys are remembered a turn here,
and faults like to come then. `Memory` reads what each primary appends, and knows by that which keys
a queue has to know: those of the messages that came under the policy, and those that were recorded
of earlier ones, over all failovers. Whoever is told that a message is accepted which was known
again needs the one that is there in its place. Chance has a generator of its own here, so that a
seed without this is the history that it would be without this.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any

from qpidha.broker import broker as broker_module
from qpidha.broker.queues import recall as recall_module
from qpidha.broker.queues.dedup import DEDUP, DEDUP_WINDOW, MESSAGE_ID, WINDOW
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.recall import Recall
from qpidha.model.broker_states import BrokerStatus
from qpidha.model.records import DedupRemembered, Enqueued, PolicyCleared, PolicySet
from qpidha.store.codec import EnqueueRun, decode
from tests.sim import faults
from tests.sim.history import Violation, key_of
from tests.sim.model_node import whole
from tests.sim.policies import ask
from tests.sim.world import MILLISECOND
from tests.sim.writing import ANNOTATION, id_of, write

if TYPE_CHECKING:
    from tests.sim.plan import Plan

SHARE = 0.3
"""Of the runs in which all brokers are of one version, so many have such policies."""
REPEATED = 0.35
"""Of what is accepted, for so many an earlier message is sent again."""
STUTTERED = 0.25
"""Of what is sent, so much is sent again at once."""
MET = 0.7
"""How many recalls a fault meets."""
CLOSE = 0.5
"""How many changes of a policy follow another one closely."""
MEETING = ("crash", "restart", "power_failure", "isolate", "switchover")
NAME = "dedup"
ANNOTATED = "s:k"
"""What a key begins with that is an annotation, and no other one."""
PAUSE = 20 * MILLISECOND
"""After which an administrator looks again whether there is a primary."""


def remember(plan: Plan, seed: int) -> None:
    """Give a run its policies, or not, as its seed has it."""
    chance = Random(f"remembering {plan.depth} {seed}")
    if chance.random() < SHARE and not plan.mixed:
        plan.remembers = chance.randint(4, 20)
        plan.dedup = ()  # A queue that says it by itself follows no policy in that.
        plan.receivers = chance.choice([0, 0, plan.receivers])  # A recall of few messages is short.


def repeat(run: Any, sender: Any) -> None:
    """Have a sender of a run with such policies repeat itself."""
    chance = Random(f"repeating {run.plan.depth} {run.seed} {sender.host}")
    sender.repeat = lambda last: chance.randint(1, last) if chance.random() < REPEATED else 0
    if not run.plan.limits:  # What is refused is sent again, which would be more and more.
        sender.stutter = lambda: chance.random() < STUTTERED
    sender.write = write
    run.facts.repeating.add(sender.host)


@contextmanager
def remembering(run: Any) -> Iterator[None]:
    """Let such policies come and go in a run that has some."""
    plan = run.plan
    if not plan.remembers:
        yield
        return
    chance = Random(f"what is remembered {plan.depth} {run.seed}")
    at = 0
    for _ in range(plan.remembers):
        # One that follows another one closely meets what that began.
        is_close = chance.random() < CLOSE
        at = at + chance.randrange(8 * run.world.latency[1]) if is_close else 0
        at = at or chance.randrange(plan.length)
        run.world.at(at, _change, run, *_draw_change(chance))
    former = broker_module.Recall, recall_module.READ_A_TURN, Queue.passes_over

    class Noted(Recall):
        """A recall that faults meet, and that is judged when it is over."""

        __slots__ = ("begun_with", "size")

        def __init__(self, queue: Any, window: Any) -> None:
            super().__init__(queue, window)
            self.size = window.size
            self.begun_with = sorted(queue.messages)[-self.size :]
            run.injected["recall"] = run.injected.get("recall", 0) + 1
            if chance.random() < MET:
                after = chance.randrange(8 * run.world.latency[1])
                run.world.at(after, faults.happen, run, chance.choice(MEETING))

        def step(self, most: int) -> int:
            looked = super().step(most)
            if self.is_over:
                check_recalled(self)
            return looked

    def passes_over(self: Any, payload: bytes, passed: Any = None) -> int | None:
        before = self.deduplicated
        original: int | None = former[2](self, payload, passed)
        if original is not None and self.deduplicated > before:
            found = self.messages.get(self.window.find(payload))
            note_known(run, self, key_of(payload), found, is_passed=passed is not None)
        return original

    try:
        broker_module.Recall = Noted  # type: ignore[misc]
        recall_module.READ_A_TURN = chance.choice([1, 1, 3])
        Queue.passes_over = passes_over  # type: ignore[method-assign]
        yield
    finally:
        broker_module.Recall, recall_module.READ_A_TURN = former[:2]  # type: ignore[misc]
        Queue.passes_over = former[2]  # type: ignore[method-assign]


def _change(run: Any, method: str, params: dict[str, Any]) -> None:
    """Ask a primary as soon as there is one."""
    if run.cluster.primaries():
        ask(run, method, params)
    elif not run.healing:
        run.world.at(PAUSE, _change, run, method, params)


def _draw_change(chance: Random) -> tuple[str, dict[str, Any]]:
    """Return a request that sets or clears the policy."""
    if chance.random() < 0.2:
        return "clear_policy", {"name": NAME}
    size = chance.choice([{}, {}, {"dedup_window": 3}, {"dedup_window": 10}])
    return "set_policy", {
        "name": NAME,
        "pattern": chance.choice(["^q", "^q", "^q0", "^q1"]),
        "definition": {"dedup": chance.choice([MESSAGE_ID, MESSAGE_ID, ANNOTATION]), **size},
        "merge": True,
    }


# -- what was known again -------------------------------------------------------------------------


def note_known(run: Any, queue: Any, key: str, original: Any, *, is_passed: bool) -> None:
    """A broker takes a message for one that was there before: for the `original`, unless that has
    left.
    """
    facts, other = run.facts, ""
    if original is not None:
        other = key_of(whole(original))
        if id_of(other) != id_of(key):
            raise Violation(f"mistaken: {key} is taken for {other} on queue {queue.name}")
    elif not is_passed and not any(
        id_of(each) == id_of(key) for each in facts.transmissions if each != key
    ):
        raise Violation(f"mistaken: {key} is known again on queue {queue.name}, and is the first")
    if run.world.tracing:
        run.world.note("dedup", f"{key} is known again on {queue.name}, as {other or 'one before'}")
    duty = facts.duties.get((queue.name, key))
    if is_passed and duty is not None:
        duty.known_again = True
    elif not is_passed:
        twin = facts.duties.get((queue.name, other))
        facts.known_again[queue.name, key] = (
            twin,
            twin is not None and twin.excused and not twin.accepted,
        )


# -- what has to be known -------------------------------------------------------------------------


def text_of(by: str, key: str) -> str:
    """Write down what a window knows the message with a key by."""
    return f"s:{id_of(key)}" if by == MESSAGE_ID else f"{ANNOTATED}{id_of(key)}"


def known_to(queue: Any) -> dict[str, int]:
    """Return the keys that a queue remembers, with their sequences."""
    if queue.window is None:
        return {}
    parts = queue.window.parts(1000)
    return {key: sequence for keys, all_ in parts for key, sequence in zip(keys, all_, strict=True)}


def check_recalled(recall: Any) -> None:
    """When a recall is over, the queue knows the messages that were there and still are, the last
    ones as many as its window takes, but for those that were followed by so many.
    """
    queue = recall.queue
    if queue.deleted or queue.window is not recall._window or queue.window.size != recall.size:
        return  # It was overtaken by another change.
    known, by = known_to(queue), queue.spec.dedup.by
    for sequence in recall.begun_with:
        message = queue.messages.get(sequence)
        if message is None or not queue.window.key(whole(message)):
            continue
        key = key_of(whole(message))
        is_too_old = len(known) >= queue.window.size and message.sequence < min(known.values())
        if text_of(by, key) not in known and not is_too_old:
            raise Violation(
                f"forgotten: {key} was on queue {queue.name} all the time that its messages were "
                f"recalled, and is not known"
            )


Rule = tuple[str, str, int]
"""Pattern, key and size of a policy."""


class Known:
    """What the queues have to know at one place in the log."""

    def __init__(self) -> None:
        self.rule: Rule | None = None
        """What the policy says."""
        self.keys: dict[int, dict[str, tuple[int, int]]] = {}
        """Queue -> key -> the message that had it last, and the record that says so."""
        self.names: dict[int, str] = {}

    def copy(self) -> Known:
        """Return one that goes another way from here."""
        copy = Known()
        copy.rule, copy.names = self.rule, dict(self.names)
        copy.keys = {uid: dict(keys) for uid, keys in self.keys.items()}
        return copy

    def follow(self, rule: Rule | None) -> None:
        """The policy says something else from here on."""
        for uid, keys in self.keys.items():
            before, after = counts(self.rule, self.names[uid]), counts(rule, self.names[uid])
            if before is None or after is None or before[0] != after[0]:
                keys.clear()
            else:
                shorten(keys, after[1])
        self.rule = rule

    def learn(self, uid: int, name: str, text: str, number: int, record: int) -> None:
        """A message with this key is, or was, on a queue."""
        rule = counts(self.rule, name)
        if rule is None:
            return
        self.names[uid] = name
        keys = self.keys.setdefault(uid, {})
        if number > keys.get(text, (0, 0))[0]:
            keys[text] = (number, record)
            shorten(keys, rule[1])


class Memory:
    """What the queues have to know, as the logs of the primaries say."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.who: tuple[str, int, int] | None = None
        """The primary that is followed, its life and its epoch."""
        self.epoch = 0
        self.place = 0
        """Its log is read up to here."""
        self.now = Known()
        """What it has to know."""
        self.safe = 0
        """Up to here its log is committed: every later primary has it."""
        self.base = Known()
        """What all have to know by that."""
        self.tail: deque[tuple[int, Callable[..., None], tuple[Any, ...]]] = deque()
        """By record, what is to be done to it next."""
        self.looked_at: dict[str, int] = {}
        """Broker -> the life of it that was judged last."""
        self.compared: dict[str, int] = {}
        """Backup -> up to where it had the log when it was compared last."""

    def follow(self, machine: Any, epoch: int) -> None:
        """Read what the newest primary has appended."""
        log = machine.node.log
        who = (machine.host, machine.life, epoch)
        if self.who != who:
            self.who, self.epoch = who, epoch
            self._take_over(machine)
            self.check(machine)
        else:
            self._read(machine, log.batches(self.place + 1))
        self.safe = max(self.safe, log.committed)
        while self.tail and self.tail[0][0] <= self.safe:
            _, action, values = self.tail.popleft()
            action(self.base, *values)
        if log.committed == log.last and not log.has_pending:
            self._compare(machine)

    def look(self, machine: Any) -> None:
        """Judge what the start of a broker brought back."""
        if self.looked_at.get(machine.host) != machine.life:
            self.looked_at[machine.host] = machine.life
            check_keys(machine)

    def forget(self) -> None:
        """Nobody was left who had everything."""
        self.safe = -1

    def _take_over(self, machine: Any) -> None:
        """Go on with what was committed, and what the new primary has beside it."""
        log = machine.node.log
        if not log.start - 1 <= self.safe <= log.last:
            self._begin_anew(machine)
            return
        self.place = self.safe
        self.now = self.base.copy()
        self.tail.clear()
        self._read(machine, log.batches(log.start))

    def _begin_anew(self, machine: Any) -> None:
        """Ask for what comes from now on, where the log does not tell of what was before."""
        broker = machine.node.broker
        self.now = Known()
        self.tail.clear()
        policy = broker.policies.find(NAME, is_operator=False)
        self.now.rule = None if policy is None else rule_of(policy.record)
        for uid, queue in broker.by_uid.items():
            # It counts what is known, as a window has room for so many.
            for key, sequence in known_to(queue).items() if isinstance(queue, Queue) else ():
                self.now.learn(uid, queue.name, key, sequence, 0)
        self.base = self.now.copy()
        self.safe = self.place = machine.node.log.last

    def _read(self, machine: Any, batches: Iterator[Any]) -> None:
        names = {
            uid: thing.name
            for uid, thing in machine.node.broker.by_uid.items()
            if isinstance(thing, Queue)
        }
        after = self.place
        for batch in batches:
            if batch.last <= after:
                continue
            if batch.first > self.place + 1:
                break
            for entry in decode(batch.data):
                if isinstance(entry, EnqueueRun):
                    for sequence, payload in zip(entry.sequences, entry.payloads, strict=True):
                        if sequence > after:
                            self._came(names, entry.queue, sequence, payload)
                elif entry[0] > after:
                    self._apply(names, *entry)
            self.place = batch.last
        if self.place != machine.node.log.last:
            self._begin_anew(machine)

    def _apply(self, names: dict[int, str], sequence: int, record: Any) -> None:
        if isinstance(record, Enqueued):
            for uid in record.queues:
                self._came(names, uid, sequence, record.payload)
        elif isinstance(record, DedupRemembered):
            for key, number in zip(record.keys, record.sequences, strict=True):
                name = names.get(record.queue, "")
                self._do(sequence, Known.learn, record.queue, name, key, number, sequence)
        elif isinstance(record, PolicySet) and record.name == NAME:
            self._do(sequence, Known.follow, rule_of(record))
        elif isinstance(record, PolicyCleared) and record.name == NAME:
            self._do(sequence, Known.follow, None)

    def _do(self, sequence: int, action: Callable[..., None], *values: Any) -> None:
        """Take note of a record."""
        self.tail.append((sequence, action, values))
        action(self.now, *values)

    def _came(self, names: dict[int, str], uid: int, sequence: int, payload: bytes) -> None:
        """A message came to a queue: not one that it knows."""
        key, name, facts = key_of(payload), names.get(uid, ""), self.run.facts
        rule = counts(self.now.rule, name)
        if rule is None or key.partition(".")[0] not in facts.repeating:
            return
        text = text_of(rule[0], key)
        former = self.now.keys.get(uid, {}).get(text)
        # What the broker itself moves there comes though it is known, unless it is there.
        if former is not None and not facts.is_displaced(name, key) and not self.run.plan.levels:
            raise Violation(
                f"known, and taken: {key} came to queue {name} of {self.who and self.who[0]} as "
                f"{sequence}, which knew it since {former[1]} from message {former[0]}"
            )
        self._do(sequence, Known.learn, uid, name, text, sequence, sequence)

    def _compare(self, machine: Any) -> None:
        """Who has applied all that the primary has knows what the primary knows."""
        last = machine.node.log.last
        for other in self.run.cluster:
            if other.state is not BrokerStatus.READY or self.compared.get(other.host) == last:
                continue
            backup = other.node.cluster.backup
            if backup is None or backup.applied != last or other.node.log.epoch != self.epoch:
                continue
            self.compared[other.host] = last
            for uid, queue in machine.node.broker.by_uid.items():
                copy = other.node.broker.by_uid.get(uid)
                if not (isinstance(queue, Queue) and isinstance(copy, Queue) and copy.logged):
                    continue
                differ = known_to(queue).items() ^ known_to(copy).items()
                if differ and queue.logged:
                    raise Violation(
                        f"not equal: {other.host} and primary {machine.host} differ in what queue "
                        f"{queue.name} remembers: {sorted(differ)[:5]}"
                    )

    def check(self, machine: Any) -> None:
        """A primary knows all that has to be known."""
        check_keys(machine)
        for uid, known in self.now.keys.items():
            queue = machine.node.broker.by_uid.get(uid)
            if queue is None or queue.deleted or self.run.plan.levels:
                continue
            missing = [key for key in known if key not in known_to(queue)]
            if missing:
                raise Violation(
                    f"forgotten: queue {queue.name} of {machine.host} does not know "
                    f"{', '.join(missing[:5])}, and has to since {known[missing[0]][1]}"
                )


def check_keys(machine: Any) -> None:
    """The queues of a broker know keys by what they are to know them."""
    for queue in machine.node.broker.queues.values():
        is_by_id = queue.window is not None and queue.spec.dedup.by == MESSAGE_ID
        other = [key for key in known_to(queue) if key.startswith(ANNOTATED) == is_by_id]
        if other:
            raise Violation(
                f"other keys: queue {queue.name} of {machine.host} knows {other[0]}, which is no "
                f"key by {queue.spec.dedup.by}"
            )


def rule_of(record: PolicySet) -> Rule:
    """Return what a policy says."""
    settings = record.settings
    return record.pattern, str(settings[DEDUP]), int(settings.get(DEDUP_WINDOW, WINDOW))


def counts(rule: Rule | None, name: str) -> tuple[str, int] | None:
    """Return what a rule says of a queue."""
    return rule[1:] if rule is not None and name and re.match(rule[0], name) else None


def shorten(known: dict[str, tuple[int, int]], size: int) -> None:
    """Leave the newest keys."""
    for key in sorted(known, key=lambda key: known[key])[: max(0, len(known) - size)]:
        del known[key]
