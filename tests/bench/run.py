"""The benchmark: our cluster, one of our brokers alone and, when it is installed, a RabbitMQ
cluster, in one run.

Every subject is up all the time and is loaded in turn, round after round, so that whatever else the
machine does meets them alike. The steadiest figure is the CPU time that the brokers spend on a
message; compare ratios, not absolutes. Run by `make bench`; talk goes to stderr, the table or JSON
to stdout, both and a picture into the folder of results. With `--kinds` one of our brokers alone is
loaded with queues of each kind, in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.cases import CASES, KINDS, Case
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError, cpu_seconds, memory_bytes
from tests.bench.rabbit import RabbitCluster, is_installed
from tests.bench.report import picture, summarise, table

HERE = Path(__file__).parent
BUILD = HERE / "build"
GENERATORS = {"amqpbench": ["-lqpid-proton"], "rabbitbench": ["-lrabbitmq", "-lpthread"]}
WARM_UP = 5000
"""Messages of the round that is not counted: code is loaded, tables grow, Erlang compiles."""
OURS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("qpidha-3", 3, ()),
    ("qpidha-1", 1, ()),
    ("qpidha-3-acl", 3, (f"--acl-file={HERE / 'bench.acl'}",)),
    ("qpidha-3-no-events", 3, ("--journal-events=off",)),
    ("qpidha-3-sampled", 3, ("--journal-events=sampled",)),
    ("qpidha-3-full", 3, ("--journal-events=full",)),
)
"""Name, brokers and further options of each subject that is ours; the others show what access
control costs, and the last three what the event log does.
"""


@dataclass(slots=True)
class Subject:
    """Something to measure: `load(case, messages, queue)` runs the generator and returns what it
    printed.
    """

    name: str
    pids: Callable[[], list[int]]
    load: Callable[[Case, int, str], dict[str, Any]]
    syncs: Callable[[], int] | None = None
    """How often all its brokers together have synced their journals so far, if they say so."""


def build(generator: str) -> Path:
    """Compile a load generator unless that is done."""
    source, program = HERE / f"{generator}.c", BUILD / generator
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(exist_ok=True)
        compiler = os.environ.get("CC", "cc")
        done = subprocess.run(
            [compiler, "-O2", "-o", program, source, *GENERATORS[generator]],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BenchError(
                f"{generator} does not compile; are libqpid-proton and librabbitmq's "
                f"headers there?\n{done.stderr}"
            )
    return program


def generate(command: list[str | Path], timeout: float) -> dict[str, Any]:
    """Run a load generator and return its JSON object."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(
            f"{Path(command[0]).name} failed with code {done.returncode}: "
            f"{(done.stderr + done.stdout).strip()[:500]}"
        )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def our_subject(name: str, brokers: QpidhaBrokers, ask: argparse.Namespace) -> Subject:
    """Make a subject of our brokers, loaded by amqpbench."""
    program = build("amqpbench")

    def load(case: Case, messages: int, queue: str) -> dict[str, Any]:
        is_durable = ask.durable or case.is_durable
        brokers.declare(queue, durable=is_durable, **case.arguments)
        command = [
            program,
            "-n",
            str(messages),
            "-c",
            "0" if case.is_kept else "1",
            "-w",
            str(ask.window),
            "-s",
            str(ask.size),
            "-a",
            queue,
            *(["-d"] if is_durable else []),
            *case.flags,
        ]
        return generate([*command, brokers.address], ask.timeout)

    return Subject(name, brokers.pids, load, brokers.syncs)


def rabbit_subjects(cluster: RabbitCluster, ask: argparse.Namespace) -> list[Subject]:
    """Make two subjects of one RabbitMQ cluster: a mirrored and a quorum queue, loaded by
    rabbitbench.
    """
    program = build("rabbitbench")

    def loader(kind: str, prefix: str) -> Callable[[Case, int, str], dict[str, Any]]:
        def load(case: Case, messages: int, queue: str) -> dict[str, Any]:
            flags = [
                *(["-C"] if case.is_kept else []),
                *(["-p"] if ask.durable or case.is_durable else []),
            ]
            command = [
                program,
                "-n",
                str(messages),
                "-w",
                str(ask.window),
                "-s",
                str(ask.size),
                "-t",
                kind,
                "-q",
                prefix + queue,
                *flags,
            ]
            return generate([*command, cluster.address], ask.timeout)

        return load

    return [
        Subject("rabbitmq-mirrored", cluster.pids, loader("classic", "mirrored.")),
        Subject("rabbitmq-quorum", cluster.pids, loader("quorum", "quorum.")),
    ]


def measure(subject: Subject, case: str, messages: int, queue: str) -> dict[str, Any]:
    """Load one subject once and count what its brokers spend."""
    pids, is_kept = subject.pids(), CASES[case].is_kept
    before, syncs_before = cpu_seconds(pids), subject.syncs() if subject.syncs else 0
    seen = subject.load(CASES[case], messages, queue)
    spent = cpu_seconds(pids) - before
    syncs = subject.syncs() - syncs_before if subject.syncs else None
    if (
        seen["rejected"]
        or seen["acked"] < messages
        or (not is_kept and seen["received"] < messages)
    ):
        raise BenchError(
            f"{subject.name} did not take or give every message, so its figures say nothing: {seen}"
        )
    rate = seen["send_rate"] if is_kept else seen["overall_rate"]
    return {
        "subject": subject.name,
        "case": case,
        "messages": messages,
        "cpu_us_per_message": round(spent / messages * 1e6, 2),
        "messages_per_second": rate,
        "ack_p50_ms": seen["ack_p50_ms"],
        "ack_p99_ms": seen["ack_p99_ms"],
        "syncs_per_1000": None if syncs is None else round(syncs / messages * 1000, 2),
        "memory_mb": round(memory_bytes(pids) / 1e6),
        "generator": seen,
    }


def all_rounds(
    subjects: list[Subject], ask: argparse.Namespace, after: Callable[[Subject, str], None]
) -> list[dict[str, Any]]:
    """Load every subject in every case, round after round; round 0 warms up and is not kept."""
    runs: list[dict[str, Any]] = []
    for number in range(ask.rounds + 1):
        # The order turns from round to round, so that nobody always follows the same neighbour.
        turned = subjects[number % len(subjects) :] + subjects[: number % len(subjects)]
        for case in ask.cases:
            for subject in turned:
                queue = f"bench{number}.{case}"
                run = measure(subject, case, ask.messages if number else WARM_UP, queue)
                after(subject, queue)
                if not number:
                    continue
                run["round"] = number
                runs.append(run)
                figures = (
                    f"{run['cpu_us_per_message']:7.1f} us/msg  "
                    f"{run['messages_per_second']:8,.0f} msg/s"
                )
                say(
                    f"round {number} of {ask.rounds}  {case:14}  {subject.name:18} "
                    f"{figures}  p99 {run['ack_p99_ms']:.1f} ms"
                )
    return runs


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
    }


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=40000, help="a round, subject and case")
    parser.add_argument("--window", type=int, default=500)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument(
        "--durable",
        action="store_true",
        help="durable messages in all cases; quorum queues always have them",
    )
    parser.add_argument(
        "--subjects", help="of: rabbitmq, " + ", ".join(name for name, _, _ in OURS)
    )
    parser.add_argument(
        "--cases", type=lambda text: text.split(","), help="of: " + ", ".join(CASES)
    )
    parser.add_argument("--kinds", action="store_true", help="one broker alone, all kinds")
    parser.add_argument(
        "--before",
        type=Path,
        help="another working copy of qpidha: measure its brokers too, as NAME-before, without the "
        "further options of a subject",
    )
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds for one load")
    parser.add_argument(
        "--results", type=Path, default=BUILD, help="folder for bench.json and bench.svg"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep the folders and logs of the brokers"
    )
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    ask = parser.parse_args()
    ask.subjects = ask.subjects or ("qpidha-1" if ask.kinds else "qpidha-3,qpidha-1,rabbitmq")
    ask.cases = ask.cases or (list(KINDS) if ask.kinds else ["consumed", "kept", "durable"])
    unknown = [case for case in ask.cases if case not in CASES]
    if unknown:
        parser.error(f"there is no case {', '.join(unknown)}: see --help")
    return ask


def bring_up(
    folder: Path, ask: argparse.Namespace, running: list[QpidhaBrokers | RabbitCluster]
) -> tuple[list[Subject], dict[str, str]]:
    """Start what was asked for; what cannot be compared with here is said and left out."""
    wanted = ask.subjects.split(",")
    subjects: list[Subject] = []
    versions: dict[str, str] = {}
    for name, size, options in OURS:
        if name not in wanted:
            continue
        sources = {name: None} if ask.before is None else {name: None, f"{name}-before": ask.before}
        for title, source in sources.items():
            say(f"starting {title}")
            given = options if source is None else ()
            brokers = QpidhaBrokers(folder / title, size, options=given, source=source)
            running.append(brokers)
            brokers.up()
            subjects.append(our_subject(title, brokers, ask))
    if "rabbitmq" in wanted and not is_installed():
        say(
            "RabbitMQ is not installed: measured without it (on Debian: apt-get install "
            "rabbitmq-server librabbitmq-dev)"
        )
    elif "rabbitmq" in wanted:
        say("starting three RabbitMQ nodes")
        cluster = RabbitCluster(folder / "rabbitmq")
        running.append(cluster)
        cluster.up()
        versions["rabbitmq"] = cluster.version()
        subjects += rabbit_subjects(cluster, ask)
    if not subjects:
        raise BenchError("there is nothing to measure: see --subjects")
    return subjects, versions


def run(ask: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure everything; all that was started is stopped, whatever happens."""
    running: list[QpidhaBrokers | RabbitCluster] = []
    try:
        subjects, versions = bring_up(folder, ask, running)
        ours = {
            subject.name: brokers
            for subject, brokers in zip(subjects, running, strict=False)
            if isinstance(brokers, QpidhaBrokers)
        }

        def after(subject: Subject, queue: str) -> None:
            if subject.name in ours:  # rabbitbench deletes its queue itself
                ours[subject.name].delete(queue)

        runs = all_rounds(subjects, ask, after)
    finally:
        for one in reversed(running):
            one.down()
    settings = {
        "rounds": ask.rounds,
        "messages": ask.messages,
        "window": ask.window,
        "size": ask.size,
        "durable": ask.durable,
    }
    return {
        "schema_version": 1,
        "measured": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "versions": versions,
        "settings": settings,
        "summary": summarise(runs),
        "runs": runs,
    }


def main() -> int:
    """Run the benchmark and write its results; 0 done, 1 failed."""
    ask = parse()
    folder = Path(tempfile.mkdtemp(prefix="qpidha-bench-"))
    keep = ask.keep
    try:
        result = run(ask, folder)
    except (BenchError, subprocess.TimeoutExpired) as failure:
        keep = True
        say(f"error: {failure}\n       logs are kept in {folder}")
        return 1
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    title = (
        f"Broker CPU microseconds a message ({ask.size} bytes, "
        f"{'durable' if ask.durable else 'transient'}, window {ask.window})"
    )
    ask.results.mkdir(parents=True, exist_ok=True)
    name = "kinds" if ask.kinds else "bench"
    (ask.results / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
    (ask.results / f"{name}.svg").write_text(picture(result["summary"], title))
    say(f"results are in {ask.results}/{name}.json and {name}.svg")
    print(json.dumps(result) if ask.output == "json" else table(result["summary"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
