"""The benchmark: our cluster and what one would take in its place, in one run.

Each subject is up all the time and is loaded in turn, case by case and round after round, so that
whatever else the machine does meets them alike; a run is boxed in time. Then, once, each is started
afresh for the cases of memory. Run by `make bench`; talk goes to stderr, the table or JSON to
stdout, both into the folder of results. The steadiest figure is the CPU time that all brokers
together spend on a message; compare ratios, not absolutes, and look at how much of the machine's
time went elsewhere (`other`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import nats, rabbit
from tests.bench.cases import CASES, FIFO, KINDS, RATES, TABLE, Case, Load
from tests.bench.idle import Idle
from tests.bench.nats import NatsCluster
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError, Meter, memory_bytes, metered
from tests.bench.rabbit import RabbitCluster
from tests.bench.report import summarise, table
from tests.bench.subjects import BUILD, Cluster, OfNats, OfQpidha, OfRabbit, Subject

HERE = Path(__file__).parent
ALL = 5_000_000
"""Messages of one run at most: it ends by time."""
BACKLOG = 2_000_000
CONNECTIONS = 5000
QUEUES = 1000
"""That `declare` declares at most."""
MORE = ("--max-connections=20000", "--connection-backlog=1024")
OURS: dict[str, tuple[int, tuple[str, ...]]] = {
    "qpidha-3": (3, ()),
    "qpidha-1": (1, ()),
    "qpidha-3-acl": (3, (f"--acl-file={HERE / 'bench.acl'}",)),
    "qpidha-3-no-events": (3, ("--journal-events=off",)),
    "qpidha-3-sampled": (3, ("--journal-events=sampled",)),
    "qpidha-3-full": (3, ("--journal-events=full",)),
}
"""Brokers and further options of each subject that is ours; the others show what access control
costs, and the last three what the event log does.
"""
PEERS = ("rabbitmq-quorum", "rabbitmq-mirrored", "nats")


@dataclass(slots=True)
class Ask:
    """What is to be measured."""

    subjects: Sequence[str]
    cases: Sequence[str]
    rounds: int = 3
    seconds: float = 4.0
    """To send in one run."""
    messages: int = ALL
    backlog: int = BACKLOG
    connections: int = CONNECTIONS
    rest: float = 3.0
    """Seconds before memory is read."""


@dataclass(slots=True)
class Kind:
    """A kind of cluster, and how each of its subjects is made of it."""

    title: str
    start: Callable[[Path], Cluster]
    subjects: dict[str, Callable[[Cluster], Subject]]


def our_kind(name: str, size: int, options: Sequence[str], source: Path | None = None) -> Kind:
    """Our brokers, of this working copy or of another."""

    def start(folder: Path) -> Cluster:
        return QpidhaBrokers(folder, size, options=(*MORE, *options), source=source)

    def subject(cluster: Cluster) -> Subject:
        assert isinstance(cluster, QpidhaBrokers)
        return OfQpidha(name, cluster)

    return Kind(name, start, {name: subject})


def kinds_of(subjects: Sequence[str]) -> list[Kind]:
    """What has to be started; a peer that is not installed is said and left out."""
    found = [our_kind(name, *OURS[name]) for name in OURS if name in subjects]
    peers = [
        (
            Kind(
                "rabbitmq",
                RabbitCluster,
                {
                    "rabbitmq-quorum": lambda cluster: OfRabbit(
                        "rabbitmq-quorum", cluster, "quorum", "quorum."
                    ),
                    "rabbitmq-mirrored": lambda cluster: OfRabbit(
                        "rabbitmq-mirrored", cluster, "classic", "mirrored."
                    ),
                },
            ),
            rabbit.is_installed,
            "rabbitmq-server librabbitmq-dev",
        ),
        (
            Kind("nats", NatsCluster, {"nats": lambda cluster: OfNats("nats", cluster, 3)}),
            nats.is_installed,
            "nats-server libnats-dev",
        ),
    ]
    for kind, is_installed, packages in peers:
        kind.subjects = {name: make for name, make in kind.subjects.items() if name in subjects}
        if kind.subjects and not is_installed():
            say(f"{kind.title} is not installed: measured without it (Debian: {packages})")
        elif kind.subjects:
            found.append(kind)
    if not found:
        raise BenchError("there is nothing to measure: see --subjects")
    return found


# One run.


def by_load(subject: Subject, case: Case, queue: str, ask: Ask) -> dict[str, Any]:
    """Send and receive."""
    subject.prepare(case.load, queue)
    pids = subject.cluster.pids()
    try:
        with metered(pids) as meter:
            seen = subject.run(case.load, queue, ask.seconds, ask.messages)
    finally:
        subject.clean(case.load, queue)
    return figures(subject, case.load, seen, meter)


def figures(subject: Subject, load: Load, seen: dict[str, Any], meter: Meter) -> dict[str, Any]:
    """One run in numbers."""
    count = seen["acked"] if load.producers else seen["received"]
    if not count:
        raise BenchError(f"no message came through: {seen}")
    if load.producers:
        rate = seen["overall_rate" if load.consumers else "send_rate"] / max(1, load.fan_out)
    else:
        rate = seen["recv_rate"]
    remarks = [subject.remark(load)]
    if seen["rejected"]:
        remarks.append(f"{seen['rejected']} REJECTED")
    if seen["timed_out"]:
        remarks.append("CUT OFF")
    return {
        "messages": count,
        "cpu_us_per_message": round(meter.cpu / count * 1e6, 2),
        "messages_per_second": rate,
        "mb_per_second": round(rate * load.size / 1e6, 1),
        "ack_p50_ms": seen["ack_p50_ms"],
        "ack_p99_ms": seen["ack_p99_ms"],
        "other": round(meter.other, 3),
        "is_whole": not (seen["rejected"] or seen["timed_out"]),
        "remark": ", ".join(filter(None, remarks)),
        "generator": seen,
    }


def by_declaring(subject: Subject, case: Case, queue: str, ask: Ask) -> dict[str, Any]:
    """Declare queues one after the other."""
    with metered(subject.cluster.pids()) as meter:
        made, seconds = subject.declare(queue, QUEUES, ask.seconds)
    subject.forget(queue, made)
    return {
        "messages": made,
        "cpu_us_per_message": round(meter.cpu / made * 1e6, 2),
        "messages_per_second": made / seconds,
        "other": round(meter.other, 3),
        "is_whole": True,
        "remark": f"{made} queues",
    }


def by_backlog(subject: Subject, case: Case, queue: str, ask: Ask) -> dict[str, Any]:
    """Fill, look at the memory, drain, look again."""
    pids, seconds = subject.cluster.pids(), 10 * ask.seconds
    time.sleep(ask.rest)
    empty = memory_bytes(pids)
    subject.prepare(case.load, queue)
    with metered(pids) as meter:
        seen = subject.run(case.load, queue, seconds, ask.backlog)
    time.sleep(ask.rest)
    found = figures(subject, case.load, seen, meter)
    full, count = memory_bytes(pids), found["messages"]
    drain = Load(producers=0, window=case.load.window)
    left = subject.run(drain, queue, seconds, count)
    time.sleep(ask.rest)
    remark = f"{count:,} messages; {(full - empty) / 1e6:,.0f} MB"
    if left["received"] < count:
        remark += f", {left['received']:,} DRAINED"
    return found | {
        "bytes_each": (full - empty) / count,
        "mb_left": round((memory_bytes(pids) - empty) / 1e6, 1),
        "remark": ", ".join(filter(None, [found["remark"], remark])),
    }


def by_idling(subject: Subject, case: Case, queue: str, ask: Ask) -> dict[str, Any]:
    """Hold connections that do nothing."""
    pids = subject.cluster.pids()
    time.sleep(ask.rest)
    empty = memory_bytes(pids)
    with Idle(subject.protocol, subject.cluster.address, ask.connections) as idle:
        time.sleep(ask.rest)
        full = memory_bytes(pids)
        with metered(pids) as meter:
            time.sleep(5 * ask.rest)
        lost = idle.lost()
    return {
        "messages": ask.connections,
        "bytes_each": (full - empty) / ask.connections,
        "other": round(meter.other, 3),
        "is_whole": not lost,
        "remark": f"{meter.cpu / meter.wall * 1e3:.1f} ms of CPU a second"
        + (f", {lost} LOST" if lost else ""),
    }


WAYS: dict[str, Callable[[Subject, Case, str, Ask], dict[str, Any]]] = {
    "load": by_load,
    "declare": by_declaring,
    "backlog": by_backlog,
    "idle": by_idling,
}


# All of them.


class Bench:
    """Everything that is measured in one go; what was started is stopped, whatever happens."""

    def __init__(self, ask: Ask, folder: Path) -> None:
        self.ask, self.folder = ask, folder
        self.runs: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self.versions: dict[str, str] = {}
        self._running: list[Cluster] = []
        self._started = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, kinds: Sequence[Kind]) -> list[Subject]:
        """Start clusters; return their subjects, each of them warm: code is loaded, tables have
        grown, Erlang has compiled.
        """
        subjects: list[Subject] = []
        for kind in kinds:
            say(f"starting {kind.title}")
            self._started += 1
            cluster = kind.start(self.folder / f"{self._started}-{kind.title}")
            self._running.append(cluster)
            cluster.up()
            if isinstance(cluster, (RabbitCluster, NatsCluster)):
                self.versions[kind.title] = cluster.version()
            subjects += [make(cluster) for make in kind.subjects.values()]
        return subjects

    def stop(self) -> None:
        """Stop what is running."""
        while self._running:
            self._running.pop().down()

    def warm_up(self, subjects: Sequence[Subject]) -> None:
        """Load each once without counting that."""
        for subject in subjects:
            by_load(subject, Case("warm"), "warm", self._with(seconds=min(1.0, self.ask.seconds)))

    def round(self, number: int, subjects: Sequence[Subject], cases: Sequence[str]) -> None:
        """Load every subject in every case. The order turns from round to round, so that nobody
        always follows the same neighbour.
        """
        turn = number % len(subjects)
        for name in cases:
            for subject in [*subjects[turn:], *subjects[:turn]]:
                self.measure(number, subject, name)

    def measure(self, number: int, subject: Subject, name: str) -> None:
        """One run; the trouble of one subject does not end the others'."""
        case = CASES[name]
        if not subject.suits(case.load):
            return
        where = f"round {number} of {self.ask.rounds}  {name:17} {subject.name:18}"
        try:
            found = WAYS[case.way](subject, case, f"bench{number}.{name}", self.ask)
        except (BenchError, OSError, subprocess.SubprocessError) as failure:
            self.errors.append(f"{where}: {failure}")
            say(f"error: {self.errors[-1]}")
            return
        self.runs.append({"case": name, "subject": subject.name, "round": number, **found})
        cpu = found.get("cpu_us_per_message", math.nan)
        rate = found.get("messages_per_second", math.nan)
        other = f"other {found['other']:.0%}"
        say(f"{where} {cpu:9.1f} us/msg {rate:9,.0f} msg/s  {other}  {found['remark']}")

    def fresh(self, kinds: Sequence[Kind], cases: Sequence[str]) -> None:
        """The cases that want brokers of their own."""
        for name in cases:
            for kind in kinds:
                for title, make in kind.subjects.items():
                    for subject in self.start([Kind(kind.title, kind.start, {title: make})]):
                        self.measure(1, subject, name)
                    self.stop()

    def _with(self, *, seconds: float) -> Ask:
        return Ask(self.ask.subjects, self.ask.cases, seconds=seconds, messages=self.ask.messages)


def measure_all(ask: Ask, folder: Path) -> Bench:
    """Measure what is asked for."""
    kinds = kinds_of(ask.subjects)
    shared = [name for name in ask.cases if not CASES[name].is_fresh]
    with Bench(ask, folder) as bench:
        if shared:
            subjects = bench.start(kinds)
            bench.warm_up(subjects)
            for number in range(1, ask.rounds + 1):
                bench.round(number, subjects, shared)
            bench.stop()
        bench.fresh(kinds, [name for name in ask.cases if CASES[name].is_fresh])
    return bench


def say(text: str) -> None:
    """Tell whoever watches."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cores": os.cpu_count(),
        "cpu": models[0] if models else "",
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_average": os.getloadavg(),
    }


def names(known: Sequence[str], what: str) -> Callable[[str], list[str]]:
    """Read a list of names from the command line."""

    def read(text: str) -> list[str]:
        found = text.split(",")
        unknown = [name for name in found if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"there is no {what} {', '.join(unknown)}: it is one of {', '.join(known)}"
            )
        return found

    return read


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="list cases and subjects, and end")
    parser.add_argument("--cases", type=names(list(CASES), "case"), help="such as kept,durable")
    parser.add_argument("--subjects", type=names([*OURS, *PEERS], "subject"))
    parser.add_argument("--kinds", action="store_true", help="one broker alone, all kinds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="to send in each run")
    parser.add_argument("--messages", type=int, default=ALL, help="in each run, at most")
    parser.add_argument("--backlog", type=int, default=BACKLOG, help="messages of that case")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="idle ones")
    parser.add_argument("--rest", type=float, default=3.0, help="seconds before memory is read")
    parser.add_argument("--results", type=Path, default=BUILD, help="folder for bench.json")
    parser.add_argument(
        "--keep", action="store_true", help="keep the folders and logs of the brokers"
    )
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    asked = parser.parse_args()
    asked.subjects = asked.subjects or (["qpidha-1"] if asked.kinds else ["qpidha-3", *PEERS])
    asked.cases = asked.cases or list(KINDS if asked.kinds else TABLE)
    return asked


def listed() -> str:
    """The cases and subjects there are."""
    lines = ["cases of the table:"]
    lines += [f"  {name:18}{case.title}" for name, case in TABLE.items()]
    lines += ["with rate-5000 a curve:"]
    lines += [f"  {name:18}{case.title}" for name, case in RATES.items()]
    lines += [f"kinds of queues, each beside {FIFO}:"]
    lines += [f"  {name:18}{case.title}" for name, case in KINDS.items()]
    return "\n".join([*lines, "subjects:", *(f"  {name}" for name in (*OURS, *PEERS))])


def main() -> int:
    """Run the benchmark and write its results; 0 done, 1 something failed."""
    asked = parse()
    if asked.list:
        print(listed())
        return 0
    known = {name: getattr(asked, name) for name in Ask.__slots__ if hasattr(asked, name)}
    ask = Ask(**known)
    folder = Path(tempfile.mkdtemp(prefix="qpidha-bench-"))
    keep = asked.keep
    try:
        bench = measure_all(ask, folder)
        keep = keep or bool(bench.errors)
    except (BenchError, subprocess.SubprocessError) as failure:
        keep = True
        say(f"error: {failure}")
        return 1
    finally:
        if keep:
            say(f"logs are kept in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    summary = summarise(bench.runs)
    result = {
        "schema_version": 2,
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "versions": bench.versions,
        "settings": known,
        "summary": summary,
        "runs": bench.runs,
        "errors": bench.errors,
    }
    asked.results.mkdir(parents=True, exist_ok=True)
    place = asked.results / f"{'kinds' if asked.kinds else 'bench'}.json"
    place.write_text(json.dumps(result, indent=2, default=str) + "\n")
    text = table(summary)
    place.with_suffix(".txt").write_text(text + "\n")
    print(json.dumps(result, default=str) if asked.output == "json" else text)
    say(f"results are in {place}")
    return 1 if bench.errors else 0


if __name__ == "__main__":
    sys.exit(main())
