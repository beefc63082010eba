"""The verification run: clients that write down every operation, faults meanwhile, and a final
drain.

Against a cluster that it starts under the built-in manager, or any other. It judges nothing:
histories and, of its own cluster, the brokers' event logs are left for `qpid-ha pipeline
check`. In the manner of Jepsen's tests of queues and of a mutex on a queue. What the clients do is
in `clients.py`, the faults in `faults.py`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from qpidha.client.command.arguments import Options
from qpidha.client.command.ask import ask
from qpidha.client.command.exits import Failure
from qpidha.client.command.output import Progress
from qpidha.client.command.passwords import read_password
from qpidha.client.command.target import Target, log_in, parse
from qpidha.manager.builtin.cluster import ClusterOptions, brokers_url
from qpidha.manager.builtin.launch import (
    DOWN_PATIENCE,
    EventStream,
    environment,
    free_ports,
    reach_manager,
    start_manager,
)
from qpidha.model.exit_codes import NO, OK, TIMED_OUT
from qpidha.pipeline.history import History
from qpidha.pipeline.workload.fault_proxies import FaultProxies
from qpidha.pipeline.workload.faults import HookFaults, LocalFaults, Nemesis
from qpidha.pipeline.workload.run_dirs import brief, program

START_PATIENCE = 60.0
SETTLE_PATIENCE = 60.0
DRAIN_PATIENCE = 120.0
END_PATIENCE = 10.0
CALM = 2.0
"""Seconds without a fault before the end; of a cluster that does not tell when it is well again,
five times as long.
"""
BROKERS = 3


@dataclass(slots=True)
class VerifyOptions:
    """What the run was asked for. Times are in seconds."""

    directory: Path
    brokers: list[Target] = field(default_factory=list)
    """Of a given cluster; none: one is started."""
    workload: str = "queue"
    queues: int = 3
    senders: int = 3
    receivers: int = 3
    minutes: float = 2.0
    faults: list[str] = field(default_factory=list)
    fault_command: str = ""
    rate: float = 100.0
    size: int = 100
    seed: int = 1
    heartbeat: float = 0.5
    journal: str = "full"
    settings: dict[str, str] = field(default_factory=dict)
    secure: bool = False
    """Whether the cluster that is started has TLS, passwords and rules, and clients and brokers a
    network each.
    """


class ClientPool:
    """A process with some clients."""

    def __init__(
        self, stream: EventStream, name: str, arguments: list[str], log: Path, env: dict[str, str]
    ) -> None:
        self.name = name
        self.last: dict[str, Any] = {}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "qpidha.pipeline.workload.clients", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self._stream = stream
        stream.add(self.process.stdout.fileno(), self._take)

    def _take(self, report: dict[str, Any]) -> None:
        self.last = report

    @property
    def is_done(self) -> bool:
        """Whether it has done what it was last told to."""
        return bool(self.last.get("done"))

    def tell(self, word: str) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(word.encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            pass  # it is gone, which its end tells

    def finish(self) -> None:
        """Wait for the end, and see to it."""
        self.tell("end")
        try:
            self.process.wait(END_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stream.remove(self.process.stdout.fileno())
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except OSError:
                pass


class Verify:
    """One run."""

    def __init__(self, options: VerifyOptions, cli: Options) -> None:
        self.options = options
        self.cli = cli
        self.began = time.time_ns()
        self.run_id = time.strftime("verify-%Y%m%d-%H%M%S", time.gmtime())
        self.queues = [
            f"{self.run_id}.{'lock' if options.workload == 'mutex' else 'q'}{number}"
            for number in range(options.queues)
        ]
        self.problems: list[str] = []
        self.pools: list[ClientPool] = []
        self.is_drained = False
        self.stream = EventStream()
        self.nemesis: Nemesis
        self._progress = Progress(cli)
        self._proxies: FaultProxies | None = None
        self._manager: subprocess.Popen[bytes] | None = None
        self._plan: ClusterOptions | None = None
        log_in(options.brokers, cli, Target())
        options.directory.mkdir(parents=True, exist_ok=True)
        self._log = options.directory / "verify.log"
        self._history = History(options.directory / "history", self.run_id, node="nemesis")
        if not options.brokers:
            self._plan = self._own_cluster()

    def run(self) -> tuple[dict[str, Any], int]:
        """Do everything; return the summary and the exit code."""
        try:
            self._start_cluster()
            self._found()
            self._start_clients()
            self._under_faults()
            self._settle()
            self._finish_clients()
        except Failure as failure:
            self.problems.append(failure.text)
            self.line("FAILED", failure.text)
        finally:
            self._progress.clear()
            for pool in self.pools:
                pool.tell("end")
            for pool in self.pools:
                pool.finish()
            self._history.close()
            self._remove_queues()
            self._stop_cluster()
        summary = self._summary()
        (self.options.directory / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        return summary, NO if self.problems else OK

    def line(self, word: str, text: str) -> None:
        """Tell whoever watches, and keep it."""
        self._progress.clear()
        told = f"{(time.time_ns() - self.began) / 1e9:6.1f}s  {word:<10} {text}"
        if not self.cli.quiet:
            print(told, file=sys.stderr if self.cli.as_json else sys.stdout, flush=True)
        with self._log.open("a") as file:
            file.write(told + "\n")

    # The cluster.

    def _own_cluster(self) -> ClusterOptions:
        options = self.options
        ports = free_ports(BROKERS)
        settings = {
            "journal-events": options.journal,
            "journal-events-dir": str(options.directory / "journals"),
            **options.settings,
        }
        plan = ClusterOptions(
            directory=options.directory / "cluster",
            ports=ports,
            name="verify",
            heartbeat=options.heartbeat,
            fence="stop" not in options.faults,
            attached=True,
            settings=settings,
            secure=options.secure,
            two_networks=options.secure,
        )
        if "partition" in options.faults:
            self._proxies = FaultProxies(BROKERS)
            hosts = [spec.host for spec in plan.brokers()]
            for index in range(BROKERS):
                places = self._proxies.brokers_url(index, ports, hosts).split(",")
                settings[f"b{index + 1}:ha-brokers-url"] = brokers_url(
                    places, secure=options.secure
                )
        return plan

    def _start_cluster(self) -> None:
        options, plan = self.options, self._plan
        if plan is None:
            addresses = [str(target) for target in options.brokers]
            runner: LocalFaults | HookFaults = HookFaults(
                options.fault_command, options.faults, addresses, self._serving
            )
            self.line("cluster", " ".join(addresses))
        else:
            runner = LocalFaults(plan, options.faults, self._proxies, self._primary)
            self.line(
                "start",
                f"{' '.join(plan.addresses())}   built-in manager, heartbeat {plan.heartbeat:g} s",
            )
            process = start_manager(plan)
            assert isinstance(process, subprocess.Popen)
            self._manager = process
            self.stream = reach_manager(plan, process)
            self.stream.await_settled(plan.directory, START_PATIENCE)
        self.nemesis = Nemesis(runner, self._history, options.seed, self.line)

    def _stop_cluster(self) -> None:
        if self._manager is not None:
            self._manager.terminate()
            try:
                self._manager.wait(DOWN_PATIENCE)
            except subprocess.TimeoutExpired:
                self._manager.kill()
        if self._proxies is not None:
            self._proxies.close()

    def _primary(self) -> str:
        """The primary that the manager knows of."""
        primaries = [entry for entry in self.stream.events if entry["event"] == "primary"]
        return str(primaries[-1]["broker"]) if primaries else ""

    def _serving(self) -> str:
        """The broker to which most clients are connected: the primary, if redirects name the
        addresses that we were given.
        """
        seen = [str(pool.last.get("serving", "")) for pool in self.pools]
        known = [
            address
            for address in seen
            if address in {str(target) for target in self.options.brokers}
        ]
        return max(set(known), key=known.count) if known else ""

    # The clients.

    def _found(self) -> None:
        """Make the queues, and locks of them."""
        locks = ["--locks"] if self.options.workload == "mutex" else []
        founder = self._client("founder", 0, self.queues, *locks)
        try:
            self._wait(lambda: founder.is_done, START_PATIENCE, "the queues to exist", [founder])
        finally:
            founder.finish()

    def _start_clients(self) -> None:
        options = self.options
        index = 0
        if options.workload == "mutex":
            for number in range(options.receivers):
                index += 1
                self.pools.append(self._client(f"locker{number}", index, self.queues))
        else:
            for number in range(options.senders):
                index += 1
                self.pools.append(self._client(f"sender{number}", index, self.queues))
            for number in range(options.receivers):
                index += 1
                self.pools.append(
                    self._client(
                        f"receiver{number}", index, [self.queues[number % len(self.queues)]]
                    )
                )
        self.line(
            "load",
            f"{options.workload}: {len(self.queues)} queues, {len(self.pools)} "
            f"clients, {options.minutes:g} minutes",
        )

    def _client(self, name: str, index: int, queues: list[str], *more: str) -> ClientPool:
        options = self.options
        targets = options.brokers
        addresses = (
            [str(target) for target in targets]
            if targets
            else self._plan.addresses()
            if self._plan
            else []
        )
        arguments = [
            name.rstrip("0123456789"),
            "--addresses",
            ",".join(addresses),
            "--queues",
            ",".join(queues),
            "--run",
            self.run_id,
        ]
        arguments += [
            "--history",
            str(options.directory / "history"),
            "--index",
            str(index),
            "--rate",
            f"{options.rate:g}",
        ]
        arguments += [
            "--size",
            str(options.size),
            "--heartbeat",
            f"{2 * options.heartbeat:g}",
            *more,
        ]
        user, password, trusted = self._login()
        if trusted is not None:
            arguments += ["--tls", "--trusted", trusted]
        env = environment()
        if user:
            env |= {"QPIDHA_VERIFY_USER": user, "QPIDHA_VERIFY_PASSWORD": password}
        return ClientPool(self.stream, name, arguments, options.directory / "clients.log", env)

    def _login(self) -> tuple[str, str, str | None]:
        """As whom clients log in, with which password, and whom they trust: None is no TLS."""
        targets = self.options.brokers
        if targets:
            trusted = self.cli.ssl_trusted if targets[0].encrypted else None
            return targets[0].user, targets[0].password, trusted
        clients = self._plan.clients() if self._plan is not None else {}
        if "user" not in clients:
            return "", "", None
        return clients["user"], read_password(clients["password_file"]), clients["ssl_trusted"]

    def _under_faults(self) -> None:
        """Let the nemesis work, and leave it some time to end."""
        until = time.monotonic() + self.options.minutes * 60
        quiet = (
            until - CALM
            if self._plan is not None
            else until - min(5 * CALM, self.options.minutes * 20)
        )
        while time.monotonic() < until:
            if time.monotonic() < quiet:
                self.nemesis.look()
            self._read_along(0.1)
        self.nemesis.end()

    def _settle(self) -> None:
        """Wait until all brokers are well, where that can be known."""
        plan = self._plan
        if plan is None:
            return
        wanted = ["active", *["ready"] * (BROKERS - 1)]
        what = "one active broker and the others ready"
        self._wait(
            lambda: sorted(self.stream.states().values()) == wanted,
            SETTLE_PATIENCE,
            what,
            self.pools,
        )
        self.line(
            "settled",
            "  ".join(f"{name} {state}" for name, state in sorted(self.stream.states().items())),
        )

    def _finish_clients(self) -> None:
        """Let senders finish and receivers empty their queues."""
        first = [pool for pool in self.pools if not pool.name.startswith("receiver")]
        for word, what, ours in (
            ("stop", "every client to finish what it began", first),
            (
                "drain",
                "every queue to be empty",
                [pool for pool in self.pools if pool not in first],
            ),
        ):
            for pool in ours:
                pool.tell(word)
            self._wait(
                lambda ours=ours: all(pool.is_done for pool in ours),
                DRAIN_PATIENCE,
                what,
                self.pools,
            )
        self.is_drained = self.options.workload == "queue"
        self.line("drained" if self.is_drained else "finished", self._counts())

    def _wait(self, until: Any, seconds: float, what: str, pools: list[ClientPool]) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            self._read_along(0.1, pools)
            if time.monotonic() > deadline:
                late = ", ".join(f"{pool.name} {pool.last}" for pool in pools if not pool.is_done)
                raise Failure(
                    TIMED_OUT,
                    f"waited {seconds:g} s in vain for {what}: {late[:1000]}",
                    hint="look at clients.log",
                )

    def _read_along(self, seconds: float, pools: list[ClientPool] | None = None) -> None:
        self.stream.wait(lambda: False, seconds)
        for pool in self.pools if pools is None else pools:
            if pool.process.poll() is not None and not pool.is_done:
                text = f"{pool.name} ended with code {pool.process.returncode}"
                raise Failure(NO, text, hint=f"look at {self.options.directory / 'clients.log'}")
        self._progress.show(f"{(time.time_ns() - self.began) / 1e9:6.1f}s  {self._counts()}")

    def _remove_queues(self) -> None:
        """Leave no queues behind in a cluster that is not ours; one that holds messages stays."""
        left = []
        for queue in self.queues if self._plan is None else []:
            for target in self.options.brokers:
                try:
                    ask(
                        self.cli,
                        "delete_queue",
                        {"name": queue, "if_empty": self.options.workload == "queue"},
                        target=target,
                    )
                    break
                except Failure:
                    continue
            else:
                left.append(queue)
        if left:
            self.line(
                "left",
                f"queues {left[0]} to {left[-1]}: remove them when they are not needed any more",
            )

    # What came of it.

    def _total(self, name: str) -> int:
        return sum(int(pool.last.get(name, 0)) for pool in self.pools)

    def _counts(self) -> str:
        names = (
            ("acquired", "released", "written", "refused")
            if self.options.workload == "mutex"
            else ("attempts", "accepted", "received", "unsettled")
        )
        return "  ".join(f"{name} {self._total(name):,}" for name in names)

    def _summary(self) -> dict[str, Any]:
        options = self.options
        nemesis = getattr(self, "nemesis", None)
        names = (
            "attempts",
            "accepted",
            "received",
            "foreign",
            "acquired",
            "released",
            "written",
            "refused",
            "lost_connections",
        )
        if nemesis is not None:
            self.problems += nemesis.problems
        return {
            "schema_version": 1,
            "run": self.run_id,
            "workload": options.workload,
            "finished": not self.problems,
            "drained": self.is_drained,
            "minutes": options.minutes,
            "seed": options.seed,
            "seconds": (time.time_ns() - self.began) / 1e9,
            "queues": self.queues,
            "counts": {name: self._total(name) for name in names},
            "faults": nemesis.counts if nemesis is not None else {},
            "problems": self.problems,
            "directory": str(options.directory),
            "next": next_command(options.directory, options.workload),
        }


def next_command(directory: Path, workload: str) -> str:
    """The command that judges what was written: on Spark, which needs a place for its tables, if
    that is installed.
    """
    where = brief(directory)
    how = (
        f"--out {shlex.quote(os.path.join(where, 'check'))}"
        if find_spec("pyspark")
        else "--engine python"
    )
    report = " --mutex report" if workload == "mutex" else ""
    return f"{program()} pipeline check {shlex.quote(where)} {how}{report}"


def parse_brokers(text: str) -> list[Target]:
    """Read `--brokers`: addresses or URLs, separated by commas; a user of the first counts
    for all.
    """
    targets = [parse(part) for part in text.removeprefix("amqp:tcp:").split(",") if part]
    for target in targets:
        if not target.user:
            target.user, target.password = targets[0].user, targets[0].password
    if any(target.socket for target in targets):
        raise Failure(
            2,
            "--brokers takes addresses that clients can reach, not admin sockets",
            hint="--brokers host1:5672,host2:5672",
        )
    if len({target.encrypted for target in targets}) > 1:
        hint = "give all with amqps://, or none: --brokers amqps://host1,amqps://host2"
        raise Failure(
            2,
            "--brokers mixes encrypted addresses and others: passwords would cross the "
            "network in the clear",
            hint=hint,
        )
    return targets


def verdict(summary: dict[str, Any]) -> list[str]:
    """Sum up the run."""
    faults = (
        "  ".join(f"{kind} {count}" for kind, count in sorted(summary["faults"].items())) or "none"
    )
    counts = "  ".join(
        f"{name.replace('_', ' ')} {count:,}" for name, count in summary["counts"].items() if count
    )
    lines = [
        f"result  {'finished' if summary['finished'] else 'NOT FINISHED'}   {counts}",
        f"faults  {faults}",
    ]
    lines += [f"problem {problem}" for problem in summary["problems"]]
    where = brief(summary["directory"])
    journals = (
        f"   {where}/journals"
        if os.path.isdir(os.path.join(summary["directory"], "journals"))
        else ""
    )
    return [
        *lines,
        f"files   {where}/history{journals}   {where}/summary.json",
        f"next    {summary['next']}",
    ]
