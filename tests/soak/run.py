"""One soak: bring up three brokers and six clients, let the nemesis work, heal, drain, and judge
what is on disk.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qpidha.client.admin import LinkBroken
from qpidha.model.errors import RefusedRequest
from tests.soak.checker import Verdict, check
from tests.soak.history import History, read
from tests.soak.nemesis import LOOK, Manager, Nemesis
from tests.system.cluster import Cluster
from tests.system.forked import die_with_parent
from tests.system.net import make_network

READY_WITHIN = 60.0
"""Seconds after the last fault within which all brokers have to be active or ready."""
DRAIN_PATIENCE = 120.0
POWER = ("-m", "tests.system.power")
"""The daemon that notes what its disk was made to keep, so that a power cut can be played."""


@dataclass(slots=True)
class SoakOptions:
    """What the soak was asked for."""

    directory: Path
    minutes: float = 10.0
    seed: int = 1
    rate: float = 100.0
    clients: int = 3
    module: Sequence[str] = POWER
    brokers: int = 3


class Client:
    """A client process."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], reports: Path) -> None:
        self.name = name
        self.process = process
        self.reports = reports

    def tell(self, word: str) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def last(self) -> dict[str, Any]:
        """Return its latest report."""
        lines = self.reports.read_bytes().split(b"\n")
        return dict(json.loads(lines[-2])) if len(lines) > 1 else {}

    @property
    def done(self) -> bool:
        return bool(self.last().get("done"))


class Soak:
    """One run."""

    def __init__(self, options: SoakOptions) -> None:
        self.options = options
        self.began = time.monotonic()
        self.problems: list[str] = []
        self.clients: list[Client] = []
        self.histories = options.directory / "history"
        self.queues = [f"soak{i}" for i in range(options.clients)]
        options.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "ha_safety": "strict",
            "ha_backup_timeout": "5",
            "link_heartbeat_interval": "0.5",
            "link_maintenance_interval": "0.1",
            "log_enable": "info+",
        }
        self.cluster = Cluster(
            options.directory,
            options.brokers,
            options=settings,
            network=make_network(options.brokers),
        )
        for broker in self.cluster:
            broker.module = list(options.module)
        self.history = History(self.histories, self.name, node="nemesis")
        self.manager = Manager(self.cluster, self.say)
        self.nemesis = Nemesis(self.cluster, self.manager, self.history, options.seed, self.say)

    @property
    def name(self) -> str:
        """What this run is called in its history."""
        return f"soak-{self.options.seed}"

    def say(self, text: str) -> None:
        """Tell whoever watches, and keep it."""
        line = f"{time.monotonic() - self.began:7.2f}s  {text}"
        print(line, file=sys.stderr, flush=True)
        with (self.options.directory / "soak.log").open("a") as file:
            file.write(line + "\n")

    def run(self) -> dict[str, Any]:
        """Do everything; return the summary."""
        settled = -1.0
        try:
            self.cluster.start()
            for queue in self.queues:
                self.cluster[0].call(
                    "declare_queue", name=queue, durable=True, arguments={"qpid.max_size": 2**33}
                )
            self._start_clients()
            self._faults()
            settled = self._settle()
            self._drain()
        except (AssertionError, LinkBroken, RefusedRequest) as problem:
            self.problems.append(str(problem)[:2000])
        finally:
            self._stop_clients()
            self.cluster.close()
            self.history.close()
        return self._judge(settled)

    def _start_clients(self) -> None:
        addresses = ",".join(self.cluster.addresses)
        for number in range(2 * self.options.clients):
            role = "receiver" if number % 2 else "sender"
            queues = [self.queues[number // 2]] if role == "receiver" else self.queues
            name = f"{role}{number // 2}"
            reports = self.options.directory / f"{name}.reports"
            command = [
                sys.executable,
                "-m",
                "qpidha.pipeline.workload.clients",
                role,
                "--addresses",
                addresses,
                "--queues",
                ",".join(queues),
            ]
            command += [
                "--history",
                str(self.histories),
                "--run",
                self.name,
                "--index",
                str(number + 1),
                "--rate",
                str(self.options.rate),
            ]
            with (
                reports.open("wb") as out,
                (self.options.directory / "clients.log").open("ab") as log,
            ):
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=out,
                    stderr=log,
                    preexec_fn=die_with_parent,
                )
            self.clients.append(Client(name, process, reports))

    def _faults(self) -> None:
        """Let the nemesis and the manager work."""
        until = time.monotonic() + self.options.minutes * 60
        while time.monotonic() < until:
            self.nemesis.look(self.manager.look())
            self._watch()
            time.sleep(LOOK)

    def _watch(self) -> None:
        for client in self.clients:
            if client.process.poll() is not None:
                raise AssertionError(
                    f"{client.name} ended with code {client.process.returncode}: see clients.log"
                )

    def _settle(self) -> float:
        """Heal all, and wait until one is active and all others are ready; how long that took."""
        self.nemesis.last_fault()
        self.nemesis.end_all()
        self.manager.restart_at = dict.fromkeys(self.manager.restart_at, 0.0)
        last_fault = time.monotonic()
        self.say("healed: no more faults")
        states: list[str] = []
        while time.monotonic() - last_fault < 2 * READY_WITHIN:
            seen = self.manager.look()
            states = sorted(str(status["state"]) for status in seen.values())
            if states == ["active"] + ["ready"] * (self.options.brokers - 1):
                took = time.monotonic() - last_fault
                self.say(f"all ready after {took:.2f} s")
                if took > READY_WITHIN:
                    self.problems.append(
                        f"all were ready {took:.1f} s after the last fault, and "
                        f"{READY_WITHIN:g} s is the limit"
                    )
                return took
            time.sleep(LOOK)
        self.problems.append(
            f"{2 * READY_WITHIN:g} s after the last fault the brokers are {states}"
        )
        return -1.0

    def _drain(self) -> None:
        """Let senders finish and receivers empty their queues."""
        self._until_done("sender", "stop", "finished")
        self._until_done("receiver", "drain", "drained its queue")

    def _until_done(self, role: str, word: str, what: str) -> None:
        ours = [client for client in self.clients if client.name.startswith(role)]
        for client in ours:
            client.tell(word)
        deadline = time.monotonic() + DRAIN_PATIENCE
        while not all(client.done for client in ours):
            self.manager.look()
            self._watch()
            if time.monotonic() > deadline:
                late = [f"{client.name} {client.last()}" for client in ours if not client.done]
                raise AssertionError(
                    f"after {DRAIN_PATIENCE:g} s not every {role} has {what}: {', '.join(late)}"
                )
            time.sleep(LOOK)
        self.say(f"every {role} has {what}")

    def _stop_clients(self) -> None:
        for client in self.clients:
            client.tell("end")
        for client in self.clients:
            try:
                client.process.wait(10)
            except subprocess.TimeoutExpired:
                client.process.kill()
                client.process.wait()

    def _judge(self, settled: float) -> dict[str, Any]:
        """Read the files back and sum up."""
        verdict: Verdict = check(read(self.histories))
        passed = verdict.valid is True and not self.problems
        return {
            "schema_version": 1,
            "passed": passed,
            "valid": "unknown" if verdict.valid is None else verdict.valid,
            "seed": self.options.seed,
            "minutes": self.options.minutes,
            "network": type(self.cluster.network).__name__.lower(),
            "counts": verdict.counts,
            "faults": self.nemesis.counts,
            "promotions": self.manager.promotions,
            "refusals": self.manager.refusals,
            "ready_after_seconds": round(settled, 3),
            "reasons": [*verdict.reasons, *self.problems],
            "examples": verdict.examples,
            "directory": str(self.options.directory),
        }
