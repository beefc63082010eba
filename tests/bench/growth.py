"""What a message costs the more there is of something: `python -m tests.bench.growth`.

Each case has sizes. Brokers with the smallest and brokers with a larger one are up together and are
loaded in turn with the same messages, so that both meet whatever else the machine does; the ratio
of a size is the median of the ratios within a round. What a connection, a link and its first
message cost is not in it, nor what it costs to fill a backlog. Work is to be proportional to what
happens: with exit code 1 a message costs more than 1.5 times what it costs where there is least.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.cases import Load
from tests.bench.idle import Idle
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError, cpu_seconds, memory_bytes, metered
from tests.bench.report import aligned
from tests.bench.run import ALL, MORE, names, say
from tests.bench.subjects import OfQpidha

MOST = 1.5
"""How often as much a message may cost."""
OPTIONS = (*MORE, "--max-queues=200000", "--max-links=20000", "--max-negotiate-time=600000")
NO_LIMIT = {"qpid.max_size": 2**40}
QUEUE = "growth"
DECLARED = 2000
"""Queues that are declared in one run of that case, at most."""
PAIRS, WINDOW = 50, 500
"""Senders with a receiver each, of queues that are used in turn, and messages they have on their
way.
"""
WARM = 5000
"""Messages that come before what counts, at least."""
FILLED = 3600.0
"""Seconds that the filling of a backlog may take."""
ATTACHED = 300.0
"""Seconds that it may take to attach 200,000 links and to use each."""

Measure = Callable[[OfQpidha, float], float]
"""Load brokers for so many seconds, and return the us of CPU that a message takes."""


@dataclass(slots=True, frozen=True)
class Growth:
    """A case."""

    title: str
    sizes: tuple[int, ...]
    prepare: Callable[[OfQpidha, int], AbstractContextManager[Measure]]
    """Have so many of something there, and give how it is measured beside them."""


def load_of(load: Load, subject: OfQpidha, seconds: float, links: int = 1) -> float:
    """Load brokers; return the us of CPU that a message takes."""
    subject.prepare(load, QUEUE)
    try:
        return cost_of(load, subject, seconds, links)
    finally:
        subject.clean(load, QUEUE)


def cost_of(load: Load, subject: OfQpidha, seconds: float, links: int = 1) -> float:
    """Do so with queues that are there. What counts begins when each of so many links has had
    messages, and ends before anything is closed.
    """
    counted = replace(load, flags=(*load.flags, "-W", str(max(WARM, 2 * links))))
    command = [str(word) for word in subject.command(counted, QUEUE, seconds, ALL)]
    pids = subject.cluster.pids()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as generator:
        assert generator.stdout is not None
        first = generator.stdout.readline()
        cpu = cpu_seconds(pids)
        last = generator.stdout.readline()
        cpu = cpu_seconds(pids) - cpu
    if not last:
        raise BenchError(f"a run says nothing, it is not whole: {first}")
    begun, seen = json.loads(first), json.loads(last)
    if seen["rejected"] or seen["timed_out"]:
        raise BenchError(f"a run says nothing, it is not whole: {seen}")
    # Each message comes and goes; where there is a backlog a few more may go than come.
    ways = sum(seen[way] - begun[way] for way in ("acked", "received"))
    return cpu / (ways / 2) * 1e6


def declare(subject: OfQpidha, count: int, prefix: str = "idle") -> None:
    """Declare queues, hundreds at a time."""
    ask_all(
        subject.cluster,
        "declare_queue",
        ({"name": f"{prefix}.{number}", "arguments": NO_LIMIT} for number in range(count)),
    )


def ask_all(brokers: QpidhaBrokers, method: str, requests: Iterable[dict[str, Any]]) -> None:
    """Make requests without waiting for each answer. Errors: BenchError: one is refused."""
    with socket.socket(socket.AF_UNIX) as admin:
        admin.settimeout(60)
        admin.connect(str(brokers.folder / "b1" / "admin.sock"))
        lines, waiting = admin.makefile("rb"), 0
        for request in requests:
            asked = {"id": 1, "method": method, "params": request}
            admin.sendall(json.dumps(asked).encode() + b"\n")
            waiting += 1
            if waiting == 100:
                _hear(lines.readline(), method)
                waiting -= 1
        for _ in range(waiting):
            _hear(lines.readline(), method)


def _hear(line: bytes, method: str) -> None:
    answer = json.loads(line or b'{"error": "the socket was closed"}')
    if "error" in answer:
        raise BenchError(f"the broker refused {method}: {answer['error']}")


# What there may be more or less of.


@contextmanager
def beside_queues(subject: OfQpidha, size: int) -> Iterator[Measure]:
    """One pair beside queues that nobody uses."""
    declare(subject, size - 1)
    yield partial(load_of, Load())


@contextmanager
def over_queues(subject: OfQpidha, size: int) -> Iterator[Measure]:
    """Pairs that use all queues in turn: so many that no queue gets two messages in a turn. Of many
    pairs, for the more links a connection has the longer the engine takes to attach one.
    """
    load = Load(PAIRS, PAIRS, is_pair_apart=True, queues=max(1, size // PAIRS))
    load = replace(load, window=WINDOW // PAIRS, credit=10, flags=("-t", str(ATTACHED)))
    subject.prepare(load, QUEUE)
    yield partial(cost_of, load, links=size)


@contextmanager
def declaring(subject: OfQpidha, size: int) -> Iterator[Measure]:
    """Declarations, beside queues that are there."""
    declare(subject, size)

    def measure(subject: OfQpidha, seconds: float) -> float:
        with metered(subject.cluster.pids()) as meter:
            made, _ = subject.declare("new.", DECLARED, seconds)
        subject.forget("new.", made)
        return meter.cpu / made * 1e6

    yield measure


@contextmanager
def beside_connections(subject: OfQpidha, size: int) -> Iterator[Measure]:
    """One pair beside connections that do nothing."""
    with Idle(subject.protocol, subject.cluster.address, size) as idle:
        yield partial(load_of, Load())
        if lost := idle.lost():
            raise BenchError(f"{lost} idle connections were lost")


@contextmanager
def among_consumers(subject: OfQpidha, size: int) -> Iterator[Measure]:
    """Consumers of one queue, which get its messages in turn: as links of ten connections, for to
    write to a connection costs whatever the queue does.
    """
    flags = ("-j", str(max(1, size // 10)))
    yield partial(load_of, Load(consumers=10, credit=10, flags=flags), links=size)


@contextmanager
def with_bindings(kind: str, subject: OfQpidha, size: int) -> Iterator[Measure]:
    """An exchange with bindings, all to one queue, of which one fits."""
    brokers, exchange, others = subject.cluster, f"by.{kind}", f"others.{kind}"
    brokers.ask(0, "declare_exchange", name=exchange, type=kind)
    brokers.declare(others)
    of_others = {"exchange": exchange, "queue": others}
    if kind == "topic":
        requests = [{**of_others, "key": f"a.{number}.*.#"} for number in range(size)]
    else:
        requests = [
            {
                **of_others,
                "key": str(number),
                "arguments": {"x-match": "all", "key": f"no {number}"},
            }
            for number in range(size)
        ]
    ask_all(brokers, "bind", requests)

    def measure(subject: OfQpidha, seconds: float) -> float:
        load = Load(flags=("-g", "1", "-a", f"{exchange}/a.fits.it", "-R", QUEUE))
        subject.prepare(load, QUEUE)
        key = "a.fits.*" if kind == "topic" else ""
        brokers.ask(0, "bind", exchange=exchange, queue=QUEUE, key=key)
        try:
            return cost_of(load, subject, seconds)
        finally:
            subject.clean(load, QUEUE)

    yield measure


@contextmanager
def on_backlog(subject: OfQpidha, size: int) -> Iterator[Measure]:
    """One pair on a queue with a backlog: each message is put behind it, and one from its front is
    taken.
    """
    brokers = subject.cluster
    brokers.declare(QUEUE, **NO_LIMIT)
    seen = subject.run(Load(consumers=0, window=1000), QUEUE, FILLED, size)
    if seen["acked"] < size:
        raise BenchError(f"the backlog is not there: {seen}")

    yield partial(cost_of, Load(flags=("-B",)))


CONNECTIONS = (10, 1000, 10_000)
CASES = {
    "queues": Growth("a pair beside idle queues", (1, 100, 10_000, 100_000), beside_queues),
    "over-queues": Growth("pairs over queues in turn", (1000, 10_000, 100_000), over_queues),
    "declare": Growth("declare a queue beside others", (1, 10_000, 100_000), declaring),
    "connections": Growth("a pair beside idle connections", CONNECTIONS, beside_connections),
    "consumers": Growth("consumers of one queue", CONNECTIONS, among_consumers),
    "topic": Growth("bindings of a topic exchange", CONNECTIONS, partial(with_bindings, "topic")),
    "headers": Growth(
        "bindings of a headers exchange", CONNECTIONS, partial(with_bindings, "headers")
    ),
    "backlog": Growth(
        "messages on the queue", (10_000, 100_000, 1_000_000, 10_000_000), on_backlog
    ),
}


@dataclass(slots=True, frozen=True)
class Found:
    """What a message cost with one size of a case, and with the smallest."""

    case: str
    size: int
    cpu: float
    """Us of CPU."""
    memory: int
    """Bytes that the largest of the brokers has in memory."""
    ratio: float

    @property
    def is_too_much(self) -> bool:
        """Whether it costs more than it may."""
        return self.ratio > MOST


def sizes_of(case: Growth, divisor: int) -> list[int]:
    """The sizes of a case, smaller by a divisor; two at least."""
    sizes = sorted({max(1, size // divisor) for size in case.sizes})
    return sizes if len(sizes) > 1 else [*sizes, 2 * sizes[0]]


def measure(
    name: str, folder: Path, count: int, *, divisor: int, rounds: int, seconds: float
) -> Iterator[Found]:
    """Measure one case, with `count` brokers of each size."""
    case = CASES[name]
    smallest, *larger = sizes_of(case, divisor)
    with ExitStack() as stack:
        least, of_least = stack.enter_context(ready(case, folder / f"{name}-0", count, smallest))
        for number, size in enumerate(larger, 1):
            with ready(case, folder / f"{name}-{number}", count, size) as (most, of_most):
                pairs = []
                for turn in range(rounds + 1):
                    costs = of_least(least, seconds), of_most(most, seconds)
                    if turn:  # the first one warms up
                        pairs.append(costs)
                before, memory = largest(least), largest(most)
            if size == larger[0]:
                yield Found(name, smallest, median(one for one, _ in pairs), before, 1.0)
            ratio = median(other / one for one, other in pairs)
            yield Found(name, size, median(other for _, other in pairs), memory, ratio)


def largest(subject: OfQpidha) -> int:
    """Tell how many bytes the largest of the brokers has in memory."""
    return max(memory_bytes([pid]) for pid in subject.cluster.pids())


@contextmanager
def ready(case: Growth, folder: Path, count: int, size: int) -> Iterator[tuple[OfQpidha, Measure]]:
    """Have brokers up with so many of something."""
    brokers = QpidhaBrokers(folder, count, options=OPTIONS)
    try:
        brokers.up()
        subject = OfQpidha("growth", brokers)
        with case.prepare(subject, size) as how:
            yield subject, how
    finally:
        brokers.down()


def table(found: Sequence[Found]) -> str:
    """What was found, as text."""
    lines = [("case", "", "size", "us/msg", "MB", "x smallest", "")]
    lines += [
        (
            one.case,
            CASES[one.case].title,
            f"{one.size:,}",
            f"{one.cpu:.1f}",
            f"{one.memory / 1e6:.0f}",
            f"{one.ratio:.2f}",
            "TOO MUCH" if one.is_too_much else "",
        )
        for one in found
    ]
    return aligned(lines, 6)


def main() -> int:
    """Measure; 0 nothing costs too much, 1 something does or failed."""
    parser = argparse.ArgumentParser(prog="make bench-growth", description=__doc__)
    parser.add_argument("--cases", type=names(list(CASES), "case"), default=list(CASES))
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="(default 1)")
    parser.add_argument("--rounds", type=int, default=5, help="of each size (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="to send in each run")
    parser.add_argument(
        "--divide", type=int, default=1, help="sizes by this: 100 shows in minutes that all works"
    )
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="qpidha-bench-"))
    how = {"divisor": asked.divide, "rounds": asked.rounds, "seconds": asked.seconds}
    found: list[Found] = []
    try:
        for name in asked.cases:
            for one in measure(name, folder, asked.brokers, **how):
                say(f"{name:12} {one.size:>12,} {one.cpu:8.1f} us/msg  x {one.ratio:.2f}")
                found.append(one)
    except (BenchError, OSError, subprocess.SubprocessError) as failure:
        say(f"error: {name}: {failure}")
        say(f"logs are kept in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    rows = [
        {
            "case": one.case,
            "size": one.size,
            "cpu_us_per_message": one.cpu,
            "memory_bytes": one.memory,
            "ratio": one.ratio,
        }
        for one in found
    ]
    print(json.dumps(rows) if asked.output == "json" else table(found))
    if any(one.is_too_much for one in found):
        say(f"error: a message may cost {MOST} times what it costs with the smallest size")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
