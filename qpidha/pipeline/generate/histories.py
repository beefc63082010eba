"""Synthetic histories and event logs: seeded, of any size, with planted anomalies and the exact
numbers that checks must find.

A plan says how many messages there are and what is wrong with them; the same plan gives the same
lines. Anomalies are planted far enough from each other not to touch, so that what they add to each
number is known. Half of the clients' operations are enqueues, the other half dequeues; locks and
brokers come on request. Writes about half a million events a second: 10 million operations in 40 to
45 s. Raises ValueError for a plan that has no room for its anomalies. See
docs/internals/pipeline.md.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from qpidha.model.duration import SECOND
from qpidha.pipeline.events import CLIENT, Event
from qpidha.pipeline.generate.brokers import BrokerPlan, Brokers, Line, lock_lines
from qpidha.runtime.event_segments import SegmentWriter

EPOCH_US = 1_750_000_000_000_000
"""Wall clock of the first event, µs since 1970."""
PAUSE_NS = 2_500_000_000
CHUNK = 20_000
"""Lines written at once."""
EXTRA_OPS, ACK_OPS = 1 << 40, 1 << 41
"""First numbers of operations that are planted, and of acknowledgements."""

# Planted anomaly -> check -> number -> what one of it adds.
EFFECTS: dict[str, dict[str, dict[str, int]]] = {
    "lost": {"total-queue": {"lost": 1}},
    "dup": {"total-queue": {"duplicated": 1}, "redelivery": {"redelivered": 1, "flagged": 1}},
    "unflagged": {
        "total-queue": {"duplicated": 1},
        "redelivery": {"redelivered": 1, "unflagged": 1},
    },
    "resurrected": {
        "total-queue": {"duplicated": 1, "resurrected": 1},
        "redelivery": {"redelivered": 1, "flagged": 1},
    },
    "invented": {"total-queue": {"unexpected": 1}},
    "reorder": {"order": {"inversions": 1, "violations": 1}},
    "recovered": {"total-queue": {"recovered": 1}},
    "phantom": {"total-queue": {"phantom": 1, "recovered": 1, "failed": 1}},
    "fail": {"total-queue": {"failed": 1}},
    "info": {},
    "pause": {},
    "unsafe": {"accepted-before-safe": {"unsafe": 1, "client_unsafe": 1}},
    "two-primaries": {"primaries": {"shared_epochs": 1}, "failover": {"failovers": 1}},
    "failover": {"primaries": {"overlaps": 1}, "failover": {"failovers": 1}},
}
BY_BROKERS = ("unsafe", "two-primaries", "failover")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to generate."""

    messages: int = 1000
    seed: int = 1
    queues: int = 4
    producers: int = 8
    """Producer p sends to queue p modulo `queues`."""
    plant: Mapping[str, int] = field(default_factory=dict)
    """Anomaly -> how many; see EFFECTS. Those of brokers need `brokers`."""
    brokers: bool = False
    """Three brokers write journals that trace every message."""
    locks: int = 0
    holds: int = 100
    """Holds of each lock."""
    overlaps: int = 0
    """Of all holds, so many begin before the one before has ended."""
    lost_leases: int = 0
    """Of these overlaps, so many come after the holder learned that its session is gone."""
    run: str = "synthetic"
    begin_ns: int = SECOND
    """When clients begin; locks a second later."""

    @property
    def window(self) -> int:
        """Messages on their way to the broker, and again so many in it."""
        return 2 * max(self.producers, self.queues)

    @property
    def operations(self) -> int:
        """Operations of clients without the planted ones: an enqueue and a dequeue a message."""
        return 2 * self.messages


def expected(plan: Plan) -> dict[str, dict[str, int]]:
    """Return the numbers that checks must find, by check; numbers that are not in it depend on the
    times.
    """
    found = {
        "total-queue": dict.fromkeys(
            (
                "lost",
                "missing",
                "unexpected",
                "duplicated",
                "recovered",
                "phantom",
                "resurrected",
                "failed",
            ),
            0,
        ),
        "order": dict.fromkeys(
            ("inversions", "violations", "resent", "redelivered", "in_fault", "competing"), 0
        ),
        "redelivery": dict.fromkeys(("redelivered", "flagged", "unflagged"), 0),
        # Each queue has messages on their way and others waiting whenever everything stands still.
        "availability": {"windows": 2 * plan.queues * plan.plant.get("pause", 0)},
        "mutex": {"locks": plan.locks, "holds": plan.locks * plan.holds, "overlaps": plan.overlaps},
        "evidence": {"problems": 0, "missing": 0, "quarantined": 0},
    }
    found["mutex"]["lease_overlaps"] = plan.overlaps - plan.lost_leases
    if plan.brokers:
        found["accepted-before-safe"] = {"unsafe": 0, "client_unsafe": 0, "unjudged": 0}
        found["primaries"] = {"shared_epochs": 0, "epoch_regressions": 0, "overlaps": 0}
        found["failover"] = {"failovers": 0}
    for anomaly, number in plan.plant.items():
        for check, effects in EFFECTS[anomaly].items():
            for name, each in effects.items():
                found[check][name] += number * each
    not_accepted = sum(plan.plant.get(name, 0) for name in ("recovered", "phantom", "fail", "info"))
    found["total-queue"] |= {
        "attempts": plan.messages,
        "values": plan.messages,
        "acknowledged": plan.messages - not_accepted,
        "undrained": 0,
    }
    return found


def placed(plan: Plan) -> dict[int, str]:
    """Return where anomalies are planted: number of a message -> anomaly."""
    if unknown := sorted(set(plan.plant) - set(EFFECTS)):
        raise ValueError(f"cannot plant {', '.join(unknown)}; there are {', '.join(EFFECTS)}")
    if not plan.brokers and any(plan.plant.get(name) for name in BY_BROKERS):
        raise ValueError(f"{', '.join(BY_BROKERS)} need brokers")
    block = 4 * plan.window
    blocks = plan.messages // block - 2
    wanted = [name for name, number in plan.plant.items() for _ in range(number)]
    if len(wanted) > max(blocks, 0):
        raise ValueError(f"{len(wanted)} anomalies need {(len(wanted) + 2) * block} messages")
    choices = random.Random(plan.seed)
    choices.shuffle(wanted)
    places = sorted(choices.sample(range(1, blocks + 1), len(wanted)))
    return {
        place * block + choices.randrange(plan.producers): name
        for place, name in zip(places, wanted, strict=True)
    }


class Clients:
    """What senders and receivers note, as lines in the order of time."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.places = placed(plan)
        self.at = plan.begin_ns
        self.brokers = Brokers(BrokerPlan(plan.run)) if plan.brokers else None
        self._run = json.dumps(plan.run)
        self._jitter = random.Random(plan.seed + 1).randrange(1 << 16)
        self._extra = count(EXTRA_OPS)
        self._swapped: dict[int, int] = {}

    def lines(self) -> Iterator[Line]:
        """Yield every line: who writes it, its time, and what it says after the envelope."""
        plan, places, window = self.plan, self.places, self.plan.window
        if self.brokers is not None:
            yield from self.brokers.begin(self._tick())
        for step in range(plan.messages + 2 * window):
            if step < plan.messages:
                if step in places:
                    yield from self._happens(places[step], step)
                yield "client-send", self._tick(), self._enqueue(step, "invoke")
            if window <= step < plan.messages + window:
                yield from self._outcome(step - window)
            if step >= 2 * window:
                yield from self._delivery(step - 2 * window)
        for queue in range(plan.queues):
            op = next(self._extra)
            for outcome in ("invoke", "ok"):
                yield (
                    "client-receive",
                    self._tick(),
                    self._op(op, (1000 + queue) * CLIENT, outcome, "drain", f'"q{queue}"'),
                )

    def _tick(self) -> int:
        """Return the next time: no two events have the same."""
        self._jitter = (self._jitter * 25173 + 13849) & 0xFFFF
        self.at += 500 + (self._jitter >> 4)
        return self.at

    def _op(self, op: int, process: int, outcome: str, what: str, queue: str) -> str:
        return (
            f'"k":"op","run":{self._run},"o":{op},"c":{process},"y":"{outcome}",'
            f'"f":"{what}","q":{queue}'
        )

    def _enqueue(self, number: int, outcome: str) -> str:
        producer = number % self.plan.producers
        queue = f'"q{producer % self.plan.queues}"'
        line = self._op(2 * number + 1, (producer + 1) * CLIENT, outcome, "enqueue", queue)
        line += f',"w":{producer},"u":{number // self.plan.producers + 1}'
        return f'{line},"i":"m{number}"' if self.brokers is not None else line

    def _taken(
        self, number: int, flag: int, op: int, what: str = "dequeue", outcome: str = "ok"
    ) -> str:
        producer = number % self.plan.producers
        queue = producer % self.plan.queues
        value = f'"w":{producer},"u":{number // self.plan.producers + 1}'
        line = self._op(op, (1000 + queue) * CLIENT, outcome, what, f'"q{queue}"')
        return f'{line},{value},"d":{flag}' if what == "dequeue" else f"{line},{value}"

    def _happens(self, anomaly: str, number: int) -> Iterator[Line]:
        """Plant what happens at a time rather than to a message."""
        if anomaly == "pause":
            self.at += PAUSE_NS
        elif anomaly == "failover" and self.brokers is not None:
            yield from self.brokers.fail_over(self.at, next(self._extra))
            self.at += self.brokers.plan.failover_ns
        elif anomaly == "two-primaries" and self.brokers is not None:
            yield from self.brokers.usurp(self._tick())
        elif anomaly == "reorder":
            other = number + self.plan.producers
            self._swapped |= {number: other, other: number}

    def _outcome(self, number: int) -> Iterator[Line]:
        anomaly = self.places.get(number)
        outcome = {"recovered": "info", "info": "info", "phantom": "fail", "fail": "fail"}.get(
            anomaly or "", "ok"
        )
        late: list[Line] = []
        if self.brokers is not None and outcome == "ok":
            before = self.brokers.accept(
                self._tick, f"q{number % self.plan.producers % self.plan.queues}", f"m{number}"
            )
            # Out of order: the backups confirm only after the sender was told.
            late = [line for line in before if anomaly == "unsafe" and '"k":"rep"' in line[2]]
            yield from (line for line in before if line not in late)
        yield "client-send", self._tick(), self._enqueue(number, outcome)
        yield from ((who, self._tick(), body) for who, _, body in late)

    def _delivery(self, number: int) -> Iterator[Line]:
        if number in self._swapped:
            number = self._swapped[number]
        anomaly = self.places.get(number)
        if anomaly in ("lost", "fail", "info"):
            return
        yield "client-receive", self._tick(), self._taking(number)
        yield "client-receive", self._tick(), self._taken(number, 0, 2 * number + 2)
        if anomaly == "resurrected":
            for outcome in ("invoke", "ok"):
                yield (
                    "client-receive",
                    self._tick(),
                    self._taken(number, 0, ACK_OPS + number, "ack", outcome),
                )
        if anomaly in ("dup", "unflagged", "resurrected"):
            yield (
                "client-receive",
                self._tick(),
                self._taken(number, int(anomaly != "unflagged"), next(self._extra)),
            )
        if anomaly == "invented":
            queue = number % self.plan.producers % self.plan.queues
            body = self._op(
                next(self._extra), (1000 + queue) * CLIENT, "ok", "dequeue", f'"q{queue}"'
            )
            yield "client-receive", self._tick(), f'{body},"w":{CLIENT},"u":{number + 1},"d":0'

    def _taking(self, number: int) -> str:
        queue = number % self.plan.producers % self.plan.queues
        process = (1000 + queue) * CLIENT
        return self._op(2 * number + 2, process, "invoke", "dequeue", f'"q{queue}"')


def lines(plan: Plan) -> Iterator[Line]:
    """Yield all lines of a plan: those of clients and brokers by time, then those of locks."""
    yield from Clients(plan).lines()
    yield from lock_lines(
        plan.run,
        plan.seed,
        plan.locks,
        plan.holds,
        plan.overlaps,
        plan.lost_leases,
        plan.begin_ns + SECOND,
    )


def events(plan: Plan) -> Iterator[Event]:
    """Yield all events of a plan as a reader would."""
    numbers: dict[str, int] = {}
    for who, at, body in lines(plan):
        number = numbers[who] = numbers.get(who, -1) + 1
        yield json.loads(_line(who, boot_of(plan), number, at, body))


def _line(who: str, boot: str, number: int, at: int, body: str) -> str:
    envelope = f'"n":"{who}","b":"{boot}","s":{number},"t":{EPOCH_US + at // 1000},"m":{at}'
    return f"{{{envelope},{body}}}"


def boot_of(plan: Plan) -> str:
    """Return the boot that all writers of a plan share."""
    return f"{plan.seed & 0xFFFFFFFF:08x}"


def write(plan: Plan, directory: Path, *, segment_bytes: int = 64 << 20) -> int:
    """Write a plan as closed segments, one series for each writer; return the number of events."""
    return write_lines(lines(plan), directory, plan.run, boot_of(plan), segment_bytes=segment_bytes)


def write_lines(
    source: Iterable[Line], directory: Path, run: str, boot: str, *, segment_bytes: int = 64 << 20
) -> int:
    """Write lines as closed segments, one series for each writer; return their number."""
    writers: dict[str, SegmentWriter] = {}
    pending: dict[str, list[str]] = {}
    numbers: dict[str, int] = {}
    total = 0
    for who, at, body in source:
        if who not in writers:
            writers[who] = SegmentWriter(
                directory,
                run,
                node=who,
                boot=boot,
                segment_bytes=segment_bytes,
                segment_seconds=1e9,
            )
            pending[who], numbers[who] = [], 0
        number = numbers[who]
        numbers[who] = number + 1
        waiting = pending[who]
        waiting.append(_line(who, boot, number, at, body) + "\n")
        if len(waiting) >= CHUNK:
            writers[who].write_lines("".join(waiting).encode(), len(waiting))
            waiting.clear()
        total += 1
    for who, writer in writers.items():
        if pending[who]:
            writer.write_lines("".join(pending[who]).encode(), len(pending[who]))
        writer.close()
    return total
