"""A Spark job reads and writes queues while the primary is killed, and is killed itself, inside and
between batches.

Nothing that a sender was told is accepted may be missing at the end; what is there twice is counted
and has to say why. With QPIDHA_SOAK there are many rounds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.connector.clients import messages
from tests.system.clients import browse
from tests.system.cluster import Cluster, wait_for
from tests.system.failover_clients import FailoverSender
from tests.system.forked import die_with_parent

ROOT = Path(__file__).parents[3]
ROUNDS = 20 if "QPIDHA_SOAK" in os.environ else 1
WINDOW = 50
PATIENCE = 400.0
"""Seconds for a job to start and get somewhere."""

pytestmark = pytest.mark.timeout(1500 * ROUNDS)


class Job:
    """The job of connector_job.py, as often as it is killed."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        for name in ("sink", "source"):
            (folder / name).mkdir(parents=True)
        self.command = [
            sys.executable,
            "-m",
            "tests.pipeline.spark.connector_job",
            url,
            str(folder),
        ]
        self.process: subprocess.Popen[bytes] | None = None
        self.lines = 0
        self.late_workers = 0
        """How often Spark gave a worker up that was not there within its ten seconds, which no
        setting changes.
        """

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def kill(self) -> None:
        """End Python and Java at once."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def add_lines(self, count: int) -> None:
        """Let a file appear that is to be written to a queue."""
        fresh = self.folder / "fresh.txt"
        fresh.write_text(
            "".join(f"line {number}\n" for number in range(self.lines, self.lines + count))
        )
        self.lines += count
        fresh.rename(self.folder / "source" / f"{self.lines}.txt")

    def committed(self, name: str = "sink") -> int:
        """Return how many batches of a query are committed."""
        folder = self.folder / "checkpoint" / name / "commits"
        return (
            len([file for file in folder.iterdir() if file.name.isdigit()])
            if folder.is_dir()
            else 0
        )

    def wait_for(self, look: Callable[[], object], what: str) -> None:
        """Wait for something that only a running job brings about."""

        def seen() -> object:
            assert self.process is not None
            if self.process.poll() is not None:
                log = (self.folder / "log").read_text()
                assert "Python worker failed to connect back" in log and self.late_workers < 20, log
                self.late_workers += 1
                self.kill()
                self.start()
            return look()

        wait_for(seen, what=what, deadline=PATIENCE)

    def wait_batches(self, more: int) -> None:
        """Wait until every query has committed so many more batches; that of the lines, which have
        come, one at all: in the middle of its first Spark cannot be killed and go on.
        """
        goals = {name: self.committed(name) + more for name in ("sink", "out")} | {"made": 1}
        self.wait_for(
            lambda: all(self.committed(name) >= goal for name, goal in goals.items()),
            f"batches ({goals})",
        )

    def rows(self) -> list[tuple[str, int]]:
        """Return (body, delivery count) of all rows of committed batches, in order."""
        batches = sorted((self.folder / "sink").iterdir(), key=lambda file: int(file.stem))
        committed = self.folder / "checkpoint" / "sink" / "commits"
        return [
            tuple(row)
            for file in batches
            if (committed / file.stem).exists()
            for row in json.loads(file.read_text())
        ]


@pytest.fixture
def cluster(a_cluster: Callable[..., Cluster]) -> Cluster:
    """Three brokers; `out` and `made` take each id once."""
    cluster = a_cluster(3)
    for name in ("in", "in2"):
        cluster[0].declare_queue(name)
    for name in ("out", "made"):
        cluster[0].call(
            "declare_queue",
            name=name,
            arguments={"qpidha.dedup": "message-id", "qpidha.dedup_window": 100_000},
        )
    return cluster


@pytest.fixture
def job(cluster: Cluster, tmp_path: Path) -> Iterator[Job]:
    """The job, not started yet."""
    job = Job(",".join(cluster.addresses), tmp_path / "job")
    yield job
    job.kill()


def fail_over(cluster: Cluster, number: int) -> int:
    """Kill the primary, promote another one, and start the killed one again; return the new
    primary.
    """
    new = (number + 1) % 3
    cluster.bounce(number, promote=new)
    cluster.wait_settled(new)
    return new


def kill_inside(job: Job) -> None:
    """Kill the job while a batch with rows is handed out and not written."""
    (job.folder / "inside").unlink(missing_ok=True)
    (job.folder / "hold").touch()
    job.wait_for((job.folder / "inside").exists, "a batch that is held")
    job.kill()
    (job.folder / "hold").unlink()


def test_no_row_is_lost_over_failovers_and_kills_of_the_job(cluster: Cluster, job: Job) -> None:
    primary = 0
    options = {"rate": 1, "tick": 0.05, "window": WINDOW, "durable": True}
    with (
        FailoverSender(cluster.addresses, "in", **options) as first,
        FailoverSender(cluster.addresses, "in2", **options) as second,
    ):
        for _ in range(ROUNDS):
            job.start()
            job.add_lines(100)
            job.wait_batches(2)
            primary = fail_over(cluster, primary)
            job.add_lines(100)
            job.wait_batches(2)
            kill_inside(job)
            job.start()
            job.add_lines(100)
            job.wait_batches(2)
            job.kill()
        job.start()
        job.wait_batches(1)
    job.add_lines(100)
    settled = ("in", "in2")
    job.wait_for(
        lambda: not any(messages(cluster[primary], queue) for queue in settled),
        "whether the queues are settled and empty",
    )
    job.wait_for(lambda: messages(cluster[primary], "made") >= job.lines, "lines in queue made")
    job.kill()
    losses = sum(1 for sender in (first, second) for _ in sender.losses)

    rows = job.rows()
    bodies = Counter(body for body, _ in rows)
    assert first.missing(bodies) == []
    assert set(bodies) <= {str(number) for number in range(1, first.sent + 1)}
    again: Counter[str] = Counter()
    seen: set[str] = set()
    for body, delivery_count in rows:
        again["said" if delivery_count else "silent"] += body in seen
        seen.add(body)
    # A sender that lost its connection sends again what has no outcome; everything else says that
    # it was delivered before.
    assert losses and again["silent"] <= WINDOW * ROUNDS, again
    assert again.total() <= WINDOW * ROUNDS + (2 * ROUNDS + job.late_workers) * 600, again

    out, made = browse(cluster[primary], "out"), browse(cluster[primary], "made")
    assert second.missing(map(str, out)) == [] and len(out) == len(set(out))
    assert Counter(made) == Counter(f"line {number}" for number in range(job.lines))
    counts = {
        "accepted": len(first.accepted),
        "rows": len(rows),
        **again,
        "bridged": len(out),
        "made": len(made),
    }
    print(", ".join(f"{name} {count}" for name, count in counts.items()))
