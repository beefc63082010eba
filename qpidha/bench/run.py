"""The benchmark: how many messages a second, how long to an acceptance, and how much broker CPU for
each.

Runs against a cluster that is there, or against a temporary one of its own. CPU is what all broker
processes of this machine used between the first send and the last receipt, which is the steadiest
of the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qpidha.bench.demo import lanes
from qpidha.bench.load_processes import LoadProcess
from qpidha.bench.timeline import Timeline, rates, svg
from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import ask, chosen
from qpidha.client.command.clients import endpoint_of, tls_of
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import Progress, talk
from qpidha.client.command.target import (
    Target,
    local_cluster,
    log_in_locally,
    parse,
    public_address,
)
from qpidha.manager.builtin.cluster import ClusterOptions
from qpidha.manager.builtin.launch import (
    DOWN_PATIENCE,
    EventStream,
    check_count,
    free_ports,
    manager_link,
    reach_manager,
    start_manager,
)
from qpidha.model.broker_states import SERVING_STATES
from qpidha.model.exit_codes import NO, OK, UNAVAILABLE
from qpidha.pipeline.workload.run_dirs import default_directory as run_directory
from qpidha.pipeline.workload.run_dirs import prune

UP_PATIENCE = 60.0
DRAIN_PATIENCE = 60.0


@dataclass(slots=True)
class BenchOptions:
    """What the benchmark was asked for."""

    directory: Path
    seconds: float = 5.0
    messages: int = 0
    size: int = 100
    window: int = 500
    brokers: int = 3
    durable: bool = False
    receive: bool = True
    temporary: bool = False
    replicate: str = "all"


class Bench:
    """One run."""

    def __init__(self, options: BenchOptions, cli: Options) -> None:
        self.options = options
        self.cli = cli
        self.progress = Progress(cli)
        self.stream = EventStream()
        self.processes: list[LoadProcess] = []
        self.began = time.time_ns()
        self.marks: list[tuple[float, str]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._admin = Target()
        self._address = ""
        self._login: dict[str, Any] = {}
        self._pids: list[int] = []
        self._names: list[str] = []

    def run(self) -> tuple[dict[str, Any], int]:
        """Do everything; return the result and the exit code."""
        self.options.directory.mkdir(parents=True, exist_ok=True)
        queue = f"bench-{os.getpid()}"
        try:
            self._find_cluster()
            ask(
                self.cli,
                "declare_queue",
                {"name": queue, "arguments": self._arguments()},
                target=self._admin,
            )
            try:
                result = self._measure(queue)
            finally:
                for process in self.processes:
                    process.finish()
                ask(self.cli, "delete_queue", {"name": queue}, target=self._admin)
        except KeyboardInterrupt:
            self.progress.clear()
            counts = [
                f"{name} {process.count(name):,}"
                for process in self.processes
                for name in ("accepted", "received")
                if name in process.last
            ]
            talk(self.cli, f"interrupted: {', '.join(counts) or 'nothing was sent'}")
            raise
        finally:
            self.progress.clear()
            self._stop_temporary()
        self._write(result)
        prune("bench", self.options.directory)
        return result, OK if result["complete"] else NO

    def _arguments(self) -> dict[str, Any]:
        # Without a receiver the queue holds everything that was sent, so the usual limit would end
        # the run.
        return {
            "qpid.replicate": self.options.replicate,
            **({} if self.options.receive else {"qpid.max_size": 4 << 30}),
        }

    # Which brokers.

    def _find_cluster(self) -> None:
        if self.cli.broker or self.cli.config:
            self._use(chosen(self.cli), {})
            return
        cluster = local_cluster()
        if not self.options.temporary and cluster is not None and cluster.get("manager_pid"):
            try:
                self._use_local(Path(cluster["directory"]))
                return
            except Failure as failure:
                if failure.code != UNAVAILABLE:
                    raise
        self._start_temporary()

    def _use(
        self, target: Target, pids: dict[str, int], clients_target: Target | None = None
    ) -> None:
        """Measure a broker; `clients_target` is where clients find it, if that is to be told."""
        self._admin = target
        status = ask(self.cli, "status", target=target)
        primary = status.get("primary") or {}
        serving = SERVING_STATES
        self._address = str(
            status["address"]
            if status["state"] in serving
            else primary.get("address") or status["address"]
        )
        seen = clients_target or target
        if not seen.socket:
            self._address = endpoint_of(seen).url
        tls = tls_of(self.cli)
        self._login = {
            "user": seen.user or self.cli.user,
            "password": seen.password or self.cli.password,
            "mechanism": seen.mechanism or self.cli.sasl_mechanism,
            "tls": {
                "trusted": tls.trusted,
                "certificate": tls.certificate,
                "key": tls.key,
                "password": tls.password,
            },
        }
        self._pids, self._names = list(pids.values()), list(pids)

    def _use_local(self, directory: Path) -> None:
        link = manager_link(directory)
        status = link.call("status")
        link.close()
        primary = next(
            (broker for broker in status["brokers"] if broker["name"] == status["primary"]), None
        )
        if primary is None:
            raise Failure(
                NO, f"the local cluster in {directory} has no primary", hint="qpid-ha local status"
            )
        self.stream = EventStream(str(directory / "manager.sock"))
        cluster = local_cluster(str(directory)) or {}
        seen = parse(
            public_address(
                next(broker for broker in cluster["brokers"] if broker["name"] == primary["name"])
            )
        )
        seen.user = self.cli.user
        self._use(
            Target(socket=primary["admin_socket"]),
            {broker["name"]: broker["pid"] for broker in status["brokers"] if broker["pid"]},
            log_in_locally(seen, cluster, self.cli),
        )

    def _start_temporary(self) -> None:
        check_count(self.options.brokers)
        where = self.options.directory / "cluster"
        talk(self.cli, f"starting a temporary cluster of {self.options.brokers}")
        process = start_manager(
            ClusterOptions(
                directory=where, ports=free_ports(self.options.brokers), name="bench", attached=True
            )
        )
        assert isinstance(process, subprocess.Popen)
        self._process = process
        stream = reach_manager(ClusterOptions(directory=where, ports=()), process)
        stream.await_settled(where, UP_PATIENCE)
        stream.close()
        self._use_local(where)

    def _stop_temporary(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(DOWN_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()

    # The run.

    def _measure(self, queue: str) -> dict[str, Any]:
        options = self.options
        log = options.directory / "clients.log"
        common = ["--addresses", self._address, "--queue", queue, "--patience", "10"]
        load = [
            "--seconds",
            f"{options.seconds:g}",
            "--messages",
            str(options.messages),
            "--size",
            str(options.size),
        ]
        load += ["--window", str(options.window), *(["--durable"] if options.durable else [])]
        self.stream.on_tick = self._on_tick
        receiver: LoadProcess | None = None
        if options.receive:
            receiver = self._load_process(["receiver", *common], log)
            self.stream.wait(
                lambda: receiver.connected or receiver.ended, 20.0, what="the start of the receiver"
            )
            if not receiver.connected:
                raise _ended_early("receiver", log)
        before = self._cpu()
        self.began = time.time_ns()
        sender = self._load_process(["sender", *common, *load], log)
        self.stream.wait(
            lambda: sender.ended, options.seconds + DRAIN_PATIENCE, what="the end of the load"
        )
        accepted = sender.count("accepted")
        if receiver is not None:
            receiver.tell(accepted)
            self.stream.wait(
                lambda: receiver.ended, DRAIN_PATIENCE, what="the receipt of all messages"
            )
        used = self._cpu() - before
        if not sender.done:
            raise _ended_early("sender", log)
        return self._result(sender, receiver, used)

    def _load_process(self, arguments: list[str], log: Path) -> LoadProcess:
        process = LoadProcess(self.stream, arguments, log=log, login=self._login)
        self.processes.append(process)
        return process

    def _result(
        self, sender: LoadProcess, receiver: LoadProcess | None, used: float
    ) -> dict[str, Any]:
        accepted, seconds = sender.count("accepted"), float(sender.last["seconds"])
        received = receiver.count("received") if receiver is not None else 0
        receiving = float(receiver.last.get("seconds", 0.0)) if receiver is not None else 0.0
        return {
            "schema_version": 1,
            "sent": sender.count("sent"),
            "accepted": accepted,
            "received": received,
            "seconds": round(seconds, 3),
            "accepted_per_second": round(accepted / seconds) if seconds else 0,
            "received_per_second": round(received / receiving) if receiving else 0,
            "latency_ms": sender.last["latency_ms"],
            "broker_cpu_us_per_message": round(used / accepted * 1e6, 2)
            if accepted and self._pids
            else None,
            "brokers": len(self._pids) or None,
            "size": self.options.size,
            "window": self.options.window,
            "replicate": self.options.replicate,
            "complete": accepted == sender.count("sent")
            and (receiver is None or received >= accepted),
            "directory": str(self.options.directory),
            "result_file": str(self.options.directory / "result.json"),
            "timeline_file": str(self.options.directory / "timeline.svg"),
        }

    def _cpu(self) -> float:
        """Seconds of CPU that all brokers of this machine used so far."""
        ticks = 0
        for pid in self._pids:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _on_tick(self) -> None:
        if self.progress.enabled:
            known = {
                name: process.count(name)
                for process in self.processes
                for name in ("accepted", "received")
                if name in process.last
            }
            counts = "  ".join(f"{name} {count:,}" for name, count in known.items())
            self.progress.show(f"{(time.time_ns() - self.began) / 1e9:5.1f}s  {counts}")

    def _write(self, result: dict[str, Any]) -> None:
        (self.options.directory / "result.json").write_text(json.dumps(result, indent=2) + "\n")
        series: dict[str, list[tuple[float, float]]] = {}
        for process in self.processes:
            for name in ("accepted", "received", "unsettled"):
                points = [
                    ((sample["time_ns"] - self.began) / 1e9, sample[name])
                    for sample in process.samples
                    if name in sample
                ]
                if points:
                    series[name] = points
        timeline = Timeline(
            title=(
                f"qpid-ha bench: {result['accepted_per_second']:,} messages/s, p99 "
                f"{result['latency_ms']['p99']} ms"
            ),
            seconds=max([time for points in series.values() for time, _ in points] or [1.0]),
            rates={
                name: rates(series[name]) for name in ("accepted", "received") if name in series
            },
            waiting=series.get("unsettled", []),
            lanes=lanes(
                [entry for entry in self.stream.events if entry.get("broker") in self._names],
                self.began,
            ),
        )
        (self.options.directory / "timeline.svg").write_text(svg(timeline))


def _ended_early(who: str, log: Path) -> Failure:
    """Say why a client ended, by the last line of its log."""
    lines = log.read_text(errors="replace").strip().splitlines()
    reason = lines[-1].removeprefix("error: ") if lines else "it said nothing"
    return Failure(NO, f"the {who} ended early", reason=reason, hint=f"look at {log}")


def default_directory() -> Path:
    """Where results go unless told otherwise."""
    return run_directory("bench")
