"""Facts in plain Python: one pass over events in any order gathers what the checks need, in
numbers.

Per value one `Message`, per operation one pair, per broker its rows: what the tables of the Spark
engine hold too. Memory grows with messages and batches, about half a kilobyte a message, not with
files. The order of events does not matter: everything is a count, a minimum or a maximum, or is
sorted later. Judges nothing. Why so: docs/internals/pipeline.md, "The facts table".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from qpidha.pipeline.checks import window
from qpidha.pipeline.events import CLIENT, EARLIEST, FOREVER, LATEST, Event
from qpidha.pipeline.segments import MOST_RUNS, BadInput, no_such_run

Key = tuple[str, int, int]
"""Queue, producer, sequence."""
Writer = tuple[str, str]
"""Node and boot."""
Interval = tuple[int, int, bool]
"""Begin, end, and whether it ended well."""
R = TypeVar("R", bound=tuple[Any, ...])


class Message:
    """What happened to one value. Times are `at`; FOREVER: never, -1 as a greatest: never."""

    __slots__ = (
        "acked",
        "attempts",
        "client",
        "deliveries",
        "deq_op",
        "enq_at",
        "enq_ok",
        "enq_op",
        "failed",
        "first",
        "first_ack",
        "flagged",
        "fresh",
        "last",
    )

    def __init__(self) -> None:
        self.attempts = self.acked = self.failed = self.deliveries = self.fresh = self.flagged = 0
        self.enq_at = self.enq_ok = self.first = self.first_ack = FOREVER
        self.last = -1
        self.client = self.enq_op = self.deq_op = FOREVER
        """Client of the first delivery; least operation that sent it and that took it."""


@dataclass(slots=True)
class Fault:
    """A fault; FOREVER as its start or stop: not in the history."""

    number: int
    start: int = FOREVER
    stop: int = FOREVER
    kind: str = ""
    target: str = ""

    def around(self, epsilon: int) -> tuple[int, int]:
        """Return from when to when it may have been on, by any clock."""
        return self.start - epsilon, min(self.stop + epsilon, FOREVER)


@dataclass(slots=True)
class LockStep:
    """A paired acquire, release or write, or the loss of a session."""

    what: str
    process: int
    op: int
    begin: int
    end: int
    outcome: str
    """`invoke`: it never ended."""
    token: tuple[int, int] | None = None


@dataclass(slots=True)
class Traffic:
    """What a queue took and gave: events, and events per second of the clock."""

    total: int = 0
    seconds: dict[int, int] = field(default_factory=dict)

    def add(self, at: int) -> None:
        """Count one."""
        self.total += 1
        second = at // 1_000_000_000
        self.seconds[second] = self.seconds.get(second, 0) + 1


@dataclass(slots=True)
class Reign:
    """What one writer noted of one epoch of its own: rows (s, at, ...) in any order."""

    sets: list[tuple[int, int, frozenset[str]]] = field(default_factory=list)
    confirmed: list[tuple[int, int, str, int]] = field(default_factory=list)
    """s, at, peer, greatest position."""
    accepted: list[tuple[int, int, int, int]] = field(default_factory=list)
    """s, at, first and last position."""

    def keep(self, since: int, until: int) -> None:
        """Leave out what was not in this time; the set and the confirmations that stood before
        stay.
        """
        self.sets = kept(self.sets, since, until)
        peers: dict[str, list[tuple[int, int, str, int]]] = {}
        for row in self.confirmed:
            peers.setdefault(row[2], []).append(row)
        self.confirmed = [row for rows in peers.values() for row in kept(rows, since, until)]
        self.accepted = [row for row in self.accepted if since <= row[1] <= until]

    def spans(self) -> list[tuple[int, int, int, int, frozenset[str]]]:
        """Return the in-sync sets: s of each and of the next, at of each and of the next, who else
        is in it; FOREVER: none is next.
        """
        sets = sorted(self.sets, key=lambda row: row[0])
        ends = [(s, at) for s, at, _ in sets[1:]] + [(FOREVER, FOREVER)]
        return [
            (s, end_s, at, end_at, members)
            for (s, at, members), (end_s, end_at) in zip(sets, ends, strict=False)
        ]


def kept(rows: list[R], since: int, until: int) -> list[R]:
    """Return the rows (s, at, ...) that were in this time, and the last one that its writer noted
    before.
    """
    before = max((row for row in rows if row[1] < since), default=None)
    inside = [row for row in rows if since <= row[1] <= until]
    return inside if before is None else [before, *inside]


class Pair:
    """The steps of one operation, until all are known."""

    __slots__ = (
        "begin",
        "end",
        "ends",
        "epoch",
        "invokes",
        "number",
        "outcome",
        "process",
        "queue",
        "what",
    )

    def __init__(self, what: str, queue: str, process: int) -> None:
        self.what, self.queue, self.process = what, queue, process
        self.invokes = self.ends = 0
        self.begin = self.end = FOREVER
        self.outcome = "invoke"
        self.epoch: int | None = None
        self.number: int | None = None
        """Of its fencing token."""

    @property
    def token(self) -> tuple[int, int] | None:
        """The fencing token, if it has one."""
        if self.epoch is None or self.number is None:
            return None
        return self.epoch, self.number


def found_empty(last_drain: int, last_enqueue: int, epsilon: int) -> bool:
    """Whether a queue was certainly found empty after the last that was sent to it; -1: there is
    none.
    """
    return last_drain > (last_enqueue if last_enqueue < 0 else last_enqueue + epsilon)


class Facts:
    """Everything that was gathered. Feed it with `add`, then `finish`."""

    def __init__(self, run: str = "", *, one_clock: bool = True, clock_error_ns: int = 0) -> None:
        self.run = run
        self._only = run
        self._others: dict[str, None] = {}
        """Other runs than the one asked for."""
        self._has_run = False
        self.one_clock = one_clock
        self.epsilon = clock_error_ns
        self.events = self.foreign = self.unpaired = 0
        self.run_start, self.run_end = FOREVER, -1
        self.messages: dict[Key, Message] = {}
        self.enqueues: dict[str, list[Interval]] = {}
        self.locks: dict[str, list[LockStep]] = {}
        self.last_enqueue: dict[str, int] = {}
        self.last_drain: dict[str, int] = {}
        self.queues: set[str] = set()
        """Those with enqueues or dequeues."""
        self.faults: dict[int, Fault] = {}
        self.traffic: dict[tuple[str, str], Traffic] = {}
        """By operation and queue."""
        self.accepted_ids: dict[str, int] = {}
        """Message id -> least at of its enqueue ok."""
        self.reigns: dict[tuple[str, str, int], Reign] = {}
        """Node, boot and epoch -> what that writer noted."""
        self.placed: dict[str, list[tuple[str, str, int, int, int]]] = {}
        """Message id -> node, boot, epoch, position and at of its `enq` events."""
        self.gone: dict[str, list[int]] = {}
        """Message id -> at of `deq` events that name it."""
        self.roles: dict[Writer, list[tuple[int, int, str, int]]] = {}
        """Writer -> s, at, role, epoch."""
        self.promises: dict[Writer, list[tuple[int, int, int]]] = {}
        """Writer -> s, at, epoch."""
        self.writer_ends: dict[Writer, int] = {}
        """Writer -> at of its last event; of brokers only."""
        self.told: list[tuple[int, int]] = []
        """At and epoch of `failover` accepted."""
        self.detected: list[tuple[int, str]] = []
        self.asked: list[int] = []
        self.took: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """(`replication`, peer) and (`acceptance`, queue) -> at and how long, in ns."""
        self._heard: dict[Writer, list[int]] = {}
        """Writer -> at of all its events; of brokers only."""
        self._pairs: dict[int, Pair] = {}

    def add(self, event: Event) -> None:
        """Take one event. Raises BadInput if it is of a second run and none was asked for."""
        self.events += 1
        kind = event["k"]
        told: int = event["m"] if self.one_clock else event["t"] * 1000
        at = min(max(told, EARLIEST), LATEST)
        if kind == "op":
            if (self._has_run and event["run"] == self.run) or self._is_ours(event["run"]):
                self._operation(event, at)
        elif kind == "fault":
            if self._is_ours(event["run"]):
                self._fault(event, at)
        else:
            self._broker(kind, event, at)

    def finish(self) -> Facts:
        """Put the steps of operations together, and leave out what brokers wrote at other times
        than that of the run.

        Call once, after the last event. Raises BadInput if the run asked for is not there.
        """
        if self._only and not self._has_run:
            raise BadInput(no_such_run(self._only, self._others))
        if self.run_end >= 0:
            self._keep(*window(self.run_start, self.run_end, self.epsilon))
        self.writer_ends = {writer: max(times) for writer, times in self._heard.items() if times}
        self._heard.clear()
        for op, pair in self._pairs.items():
            if pair.invokes != 1 or pair.ends > 1:
                self.unpaired += 1
            elif pair.what == "enqueue":
                self.enqueues.setdefault(pair.queue, []).append(
                    (pair.begin, pair.end, pair.outcome == "ok")
                )
            else:
                times = pair.begin, pair.end
                step = LockStep(pair.what, pair.process, op, *times, pair.outcome, pair.token)
                self.locks.setdefault(pair.queue, []).append(step)
        self._pairs.clear()
        return self

    def _keep(self, since: int, until: int) -> None:
        """Leave out what brokers wrote at other times, but for how things stood before."""

        def inside(at: int) -> bool:
            return since <= at <= until

        if all(inside(at) for times in self._heard.values() for at in (min(times), max(times))):
            return
        self._heard = {
            writer: [at for at in times if inside(at)] for writer, times in self._heard.items()
        }
        heard = {writer for writer, times in self._heard.items() if times}
        self.reigns = {key: reign for key, reign in self.reigns.items() if key[:2] in heard}
        for reign in self.reigns.values():
            reign.keep(since, until)
        self.roles = {
            writer: kept(rows, since, until)
            for writer, rows in self.roles.items()
            if writer in heard
        }
        self.promises = {
            writer: kept(rows, since, until)
            for writer, rows in self.promises.items()
            if writer in heard
        }
        placed = {
            name: [place for place in places if inside(place[4])]
            for name, places in self.placed.items()
        }
        self.placed = {name: places for name, places in placed.items() if places}
        self.gone = {name: [at for at in times if inside(at)] for name, times in self.gone.items()}
        self.took = {
            name: [row for row in rows if inside(row[0])] for name, rows in self.took.items()
        }
        self.told = [row for row in self.told if inside(row[0])]
        self.detected = [row for row in self.detected if inside(row[0])]
        self.asked = [at for at in self.asked if inside(at)]

    def is_drained(self, queue: str) -> bool:
        """Whether a queue was found empty after the last that was sent to it."""
        return found_empty(
            self.last_drain.get(queue, -1), self.last_enqueue.get(queue, -1), self.epsilon
        )

    def _is_ours(self, run: str) -> bool:
        """Return whether a run is the one to judge: the one asked for, or the only one."""
        if not self.run:
            self.run = run
        if run != self.run and not self._only:
            raise BadInput(f"two runs, {self.run!r} and {run!r}: name the one to judge")
        if run == self.run:
            self._has_run = True
            return True
        if len(self._others) < MOST_RUNS:
            self._others[run] = None
        return False

    def _operation(self, event: Event, at: int) -> None:
        what, outcome, queue = event["f"], event["y"], event["q"]
        if at < self.run_start:
            self.run_start = at
        if at > self.run_end:
            self.run_end = at
        if what == "enqueue":
            self.queues.add(queue)
            if at > self.last_enqueue.get(queue, -1):
                self.last_enqueue[queue] = at
            self._step(event, at, what, outcome, queue)
            self._enqueue(event, at, outcome, queue)
        elif what == "dequeue":
            self.queues.add(queue)
            if outcome == "ok":
                self._dequeue(event, at, queue)
        elif what == "ack":
            if outcome == "ok":
                self._traffic(what, queue, at)
                if event.get("w") is not None:
                    message = self._message(event, queue)
                    message.first_ack = min(message.first_ack, at)
        elif what == "drain":
            if outcome == "ok":
                self.last_drain[queue] = max(self.last_drain.get(queue, -1), at)
        elif what == "lost":
            if outcome != "invoke":
                self.locks.setdefault(queue, []).append(
                    LockStep(what, event["c"], event["o"], at, at, outcome)
                )
        else:
            self._step(event, at, what, outcome, queue)

    def _message(self, event: Event, queue: str) -> Message:
        key = (queue, event["w"], event["u"])
        message = self.messages.get(key)
        if message is None:
            message = self.messages[key] = Message()
        return message

    def _enqueue(self, event: Event, at: int, outcome: str, queue: str) -> None:
        if outcome == "ok":
            self._traffic("enqueue", queue, at)
            name = event.get("i")
            if name is not None:
                self.accepted_ids[name] = min(self.accepted_ids.get(name, FOREVER), at)
        if event.get("w") is None:
            self.foreign += outcome == "ok"
            return
        message = self._message(event, queue)
        if outcome == "invoke":
            message.attempts += 1
            message.enq_at = min(message.enq_at, at)
            message.enq_op = min(message.enq_op, event["o"])
        elif outcome == "ok":
            message.acked += 1
            message.enq_ok = min(message.enq_ok, at)
        elif outcome == "fail":
            message.failed += 1

    def _dequeue(self, event: Event, at: int, queue: str) -> None:
        self._traffic("dequeue", queue, at)
        if event.get("w") is None:
            self.foreign += 1
            return
        message = self._message(event, queue)
        message.deliveries += 1
        count, first_acquirer = event.get("d"), event.get("fa")
        if (count is not None and count > 0) or first_acquirer == 0:
            message.flagged += 1
        elif count == 0:
            message.fresh += 1
        client = event["c"] // CLIENT
        if at < message.first:
            message.first, message.client = at, client
        elif at == message.first:
            message.client = min(message.client, client)
        message.last = max(message.last, at)
        message.deq_op = min(message.deq_op, event["o"])

    def _step(self, event: Event, at: int, what: str, outcome: str, queue: str) -> None:
        """Take one step of an operation that is to be paired."""
        pair = self._pairs.get(event["o"])
        if pair is None:
            pair = self._pairs[event["o"]] = Pair(what, queue, event["c"])
        if event.get("e") is not None:
            pair.epoch = max(event["e"], event["e"] if pair.epoch is None else pair.epoch)
        if event.get("p") is not None:
            pair.number = max(event["p"], event["p"] if pair.number is None else pair.number)
        if outcome == "invoke":
            pair.invokes += 1
            pair.what, pair.queue, pair.process = what, queue, event["c"]
            intended = event.get("j")
            pair.begin = at if intended is None else at - max(event["m"] - intended, 0)
        else:
            pair.ends += 1
            pair.end, pair.outcome = at, outcome

    def _traffic(self, what: str, queue: str, at: int) -> None:
        traffic = self.traffic.get((what, queue))
        if traffic is None:
            traffic = self.traffic[what, queue] = Traffic()
        traffic.add(at)

    def _fault(self, event: Event, at: int) -> None:
        fault = self.faults.setdefault(event["o"], Fault(event["o"]))
        if event["y"] == "start":
            fault.start, fault.kind, fault.target = min(fault.start, at), event["f"], event["x"]
        else:
            fault.stop = min(fault.stop, at)

    def _broker(self, kind: str, event: Event, at: int) -> None:
        """Take an event of a broker's event log."""
        node, boot, number = event["n"], event["b"], event["s"]
        self._heard.setdefault((node, boot), []).append(at)
        if kind in ("rep", "conf", "insync"):
            self._replication(kind, event, at)
        elif kind == "enq":
            if event.get("i") is not None:
                self.placed.setdefault(event["i"], []).append(
                    (node, boot, event["e"], event["p"], at)
                )
        elif kind == "deq":
            if event.get("i") is not None:
                self.gone.setdefault(event["i"], []).append(at)
        elif kind == "role":
            self.roles.setdefault((node, boot), []).append((number, at, event["r"], event["e"]))
        elif kind == "epoch":
            self.promises.setdefault((node, boot), []).append((number, at, event["e"]))
        elif kind == "failover" and event["f"] == "detected":
            self.detected.append((at, event.get("x") or ""))
        elif kind == "failover" and event.get("e") is not None:
            self.told.append((at, event["e"]))
        elif kind == "promotion" and event["f"] == "asked":
            self.asked.append(at)

    def _replication(self, kind: str, event: Event, at: int) -> None:
        epoch, number = event["e"], event["s"]
        key = (event["n"], event["b"], epoch)
        reign = self.reigns.get(key)
        if reign is None:
            reign = self.reigns[key] = Reign()
        if kind == "insync":
            reign.sets.append((number, at, frozenset(event["set"].split()) - {event["n"]}))
            return
        first = event["p"]
        last = event["hi"] if event.get("hi") is not None else first
        if kind == "rep":
            reign.confirmed.append((number, at, event["x"], last))
            name = ("replication", event["x"])
        else:
            reign.accepted.append((number, at, first, last))
            name = ("acceptance", event.get("q") or "")
        if event.get("dt") is not None:
            self.took.setdefault(name, []).append((at, event["dt"]))
