"""The demo: a cluster of three, real clients, a fault under load, and a count of what was lost.

Everything it knows comes from outside the brokers: events of the manager, reports and records of
the clients, and one question about the queue's depth at the end. Phases of a failover are detect
(fault until the manager knows), promote (until the new primary agreed) and recover (until it is
active).
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qpidha.bench.counts import delivered, longest_gap
from qpidha.bench.load_processes import LoadProcess
from qpidha.bench.timeline import Timeline, Zoom, fine_rates, rates, svg
from qpidha.client.admin import ask
from qpidha.client.command.arguments import Options
from qpidha.client.command.exits import Failure, failures
from qpidha.client.command.output import Progress
from qpidha.manager.builtin.cluster import ClusterOptions
from qpidha.manager.builtin.events import is_stale, summary_line
from qpidha.manager.builtin.launch import (
    DOWN_PATIENCE,
    EventStream,
    free_ports,
    manager_link,
    reach_manager,
    start_manager,
)
from qpidha.model.exit_codes import NO, OK, SOFTWARE, TIMED_OUT
from qpidha.pipeline.workload.run_dirs import brief, home, program, prune, renew

FAULTS = ("kill", "stop", "kill-backup", "stop-backup")
QUEUE = "orders"
START_PATIENCE = 60.0
RECOVERY_PATIENCE = 60.0
DRAIN_PATIENCE = 60.0
AFTER = 1.0
"""Seconds of load after the recovery, at least."""


@dataclass(slots=True)
class DemoOptions:
    """What the demo was asked for. Times are in seconds."""

    directory: Path
    fault: str = "kill"
    seconds: float = 15.0
    rate: float = 1000.0
    size: int = 100
    heartbeat: float = 0.5
    brokers: int = 3

    @property
    def stops(self) -> bool:
        """Whether the victim is stopped and continued, not killed."""
        return self.fault.startswith("stop")

    @property
    def hits_primary(self) -> bool:
        """Whether the victim is the primary."""
        return not self.fault.endswith("-backup")


class Demo:
    """One run."""

    def __init__(self, options: DemoOptions, cli: Options) -> None:
        self.options = options
        self.cli = cli
        self.progress = Progress(cli)
        self.began = time.time_ns()
        self.phase = "start"
        self.plan = ClusterOptions(
            directory=options.directory,
            ports=free_ports(options.brokers),
            name="demo",
            heartbeat=options.heartbeat,
            fence=not options.stops,
            attached=True,
        )
        self.marks: list[tuple[float, str]] = []
        self.problem = ""
        self.stream: EventStream
        self.sender: LoadProcess
        self.receiver: LoadProcess
        self.processes: list[LoadProcess] = []
        self._quiet_until_load = True
        self._newest_epoch = 0

    def run(self) -> tuple[dict[str, Any], int]:
        """Do everything; return the result and the exit code."""
        renew(self.options.directory)
        self.line(
            "start",
            f"{' '.join(self.plan.addresses())}   built-in manager, heartbeat "
            f"{self.options.heartbeat:g} s",
        )
        process = start_manager(self.plan)
        assert isinstance(process, subprocess.Popen)
        try:
            return self._conduct(process)
        finally:
            self.progress.clear()
            for client in self.processes:
                client.finish()
            process.terminate()
            try:
                process.wait(DOWN_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()

    def line(self, word: str, text: str, *, at: int = 0) -> None:
        """Print one line about what happened."""
        self.progress.clear()
        seconds = ((at or time.time_ns()) - self.began) / 1e9
        text = f"{seconds:5.1f}s  {word:<10} {text}"
        if not self.cli.as_json and not self.cli.quiet:
            print(text, flush=True)
        elif not self.cli.quiet:
            print(text, file=self.progress.stream, flush=True)

    def _conduct(self, process: subprocess.Popen[bytes]) -> tuple[dict[str, Any], int]:
        self.stream = reach_manager(self.plan, process)
        self.stream.on_event = self._on_event
        self.stream.on_tick = self._on_tick
        self.stream.await_settled(self.options.directory, START_PATIENCE)
        primary = self._primary()
        self.line("ready", self._states())
        self._ask(primary, "declare_queue", {"name": QUEUE, "arguments": {"qpid.replicate": "all"}})
        self._start_load()
        loading = time.time_ns()
        self._quiet_until_load = False
        self.stream.wait(
            lambda: self._time_left(loading) <= self.options.seconds - self._calm(),
            self.options.seconds + 5,
        )
        fault: dict[str, Any] = {}
        try:
            fault = self._inject(primary)
            recovered = fault["settled_after"]
            self.stream.wait(
                lambda: self.stream.find("settled", since=recovered) is not None,
                RECOVERY_PATIENCE,
                what="the recovery",
            )
            self.line("settled", self._states())
            self.stream.wait(lambda: False, max(AFTER, self._time_left(loading)))
        except Failure as failure:
            if failure.code != TIMED_OUT:
                raise
            self.problem = failure.text
            self.line("FAILED", failure.text)
        left = self._stop_load()
        result = self._result(fault, left)
        self._write(result)
        prune("demo", self.options.directory)
        return result, OK if result["passed"] else NO

    # The steps.

    def _calm(self) -> float:
        return min(8.0, max(1.0, self.options.seconds * 0.3))

    def _time_left(self, loading: int) -> float:
        return self.options.seconds - (time.time_ns() - loading) / 1e9

    def _start_load(self) -> None:
        directory = self.options.directory
        # A client notices a silent broker no later than the manager does, so that it is ready when
        # the new primary is.
        common = [
            "--addresses",
            ",".join(self.plan.addresses()),
            "--queue",
            QUEUE,
            "--heartbeat",
            f"{0.75 * self.options.heartbeat:g}",
        ]
        log = directory / "clients.log"
        self.receiver = LoadProcess(
            self.stream, ["receiver", *common], record=directory / "received.bin", log=log
        )
        self.sender = LoadProcess(
            self.stream,
            [
                "sender",
                *common,
                "--rate",
                f"{self.options.rate:g}",
                "--size",
                str(self.options.size),
            ],
            record=directory / "accepted.bin",
            log=log,
        )
        self.processes = [self.receiver, self.sender]

        def flowing() -> bool:
            if any(process.ended for process in self.processes):
                raise Failure(SOFTWARE, "a client ended at once", hint=f"look at {log}")
            return self.sender.count("accepted") > 0 and self.receiver.count("received") > 0

        self.stream.wait(flowing, 20.0, what="the first message")
        self.line(
            "load", f"queue {QUEUE} (replicate=all)   1 sender {self.options.rate:g}/s   1 receiver"
        )

    def _inject(self, primary: str) -> dict[str, Any]:
        backups = [name for name, state in sorted(self.stream.states().items()) if state == "ready"]
        victim = primary if self.options.hits_primary or not backups else backups[0]
        number = "STOP" if self.options.stops else "KILL"
        link = manager_link(self.options.directory)
        answer = link.call("kill", {"name": victim, "signal": number})
        at = int(answer["time_ns"])
        fault: dict[str, Any] = {
            "victim": victim,
            "pid": answer["pid"],
            "time_ns": at,
            "settled_after": at,
        }
        self.mark(at, f"SIG{number} {victim}")
        self.line(f"SIG{number}", f"{victim} (pid {answer['pid']})   {self._counts()}", at=at)
        if self.options.stops:
            self._await_stop(fault)
            continued = int(link.call("kill", {"name": victim, "signal": "CONT"})["time_ns"])
            fault["continued_ns"] = fault["settled_after"] = continued
            self.mark(continued, f"SIGCONT {victim}")
            self.line("SIGCONT", victim, at=continued)
        link.close()
        return fault

    def _await_stop(self, fault: dict[str, Any]) -> None:
        """Wait until the cluster works without the stopped broker."""
        at, victim = fault["time_ns"], fault["victim"]
        self.stream.wait(
            lambda: self.stream.find("hung", since=at, broker=victim) is not None,
            RECOVERY_PATIENCE,
            what="the detection",
        )
        if self.options.hits_primary:
            self.stream.wait(
                lambda: self._active_event(fault) is not None,
                RECOVERY_PATIENCE,
                what="the promotion of a backup",
            )
        self.stream.wait(lambda: False, 4 * self.options.heartbeat)
        before = self.sender.count("accepted")
        self.stream.wait(
            lambda: self.sender.count("accepted") > before,
            RECOVERY_PATIENCE,
            what="the next accepted message",
        )

    def _stop_load(self) -> int:
        """Stop the sender, empty the queue, stop the receiver; return how many messages are left in
        the queue.
        """
        self.line("stop load", self._counts())
        self.sender.tell("stop")
        self.stream.wait(lambda: self.sender.ended, DRAIN_PATIENCE)
        left = -1
        asked = 0.0

        def empty() -> bool:
            nonlocal left, asked
            if time.monotonic() - asked > 0.1:
                asked = time.monotonic()
                left = self._depth()
            return left == 0 or self.receiver.ended

        drained = self.stream.wait(empty, DRAIN_PATIENCE)
        if not drained and not self.problem:
            self.problem = f"the queue did not drain: {left} messages are left"
        self.receiver.tell("stop")
        self.stream.wait(lambda: self.receiver.ended, 10.0)
        for process in (self.sender, self.receiver):
            if not process.done and not self.problem:
                self.problem = f"a client ended early: see {self.options.directory / 'clients.log'}"
            process.finish()
        return left

    def _depth(self) -> int:
        try:
            rows = self._ask(self._primary(), "list_queues", {"name": QUEUE})
        except Failure:
            return -1
        return int(rows[0]["messages"]) if rows else 0

    # What came of it.

    def _result(self, fault: dict[str, Any], left: int) -> dict[str, Any]:
        accepted, received = self.sender.records(), self.receiver.records()
        found = delivered(accepted, received, max(0, left))
        at = int(fault.get("time_ns", 0))
        until = self.stream.events[-1]["time_ns"] if self.stream.events else at
        accept_gap, _ = longest_gap(accepted[1::2], at, until) if at else (0.0, 0)
        receive_gap, _ = longest_gap(received[1::2], at, until) if at else (0.0, 0)
        phases, failover = self._phases(fault)
        passed = found.lost == 0 and not self.problem and found.accepted > 0
        return {
            "schema_version": 1,
            "fault": self.options.fault,
            "victim": fault.get("victim"),
            "new_primary": self._primary(),
            "epoch": max(
                [int(entry["epoch"]) for entry in self.stream.events if entry["event"] == "state"],
                default=0,
            ),
            "lost": found.lost,
            "duplicates": found.duplicates,
            # A client that was killed has left no record, but has said how far it was.
            "accepted": max(found.accepted, self.sender.count("accepted")),
            "received": found.received,
            "deliveries": found.deliveries,
            "sent": self.sender.count("sent"),
            "sent_again": self.sender.count("sent_again"),
            "in_doubt": found.in_doubt,
            "left_in_queue": left,
            "lost_ids": found.lost_ids if found.lost else [],
            "failover_seconds": failover,
            "client_gap_seconds": round(max(accept_gap, receive_gap), 4),
            "accept_gap_seconds": round(accept_gap, 4),
            "receive_gap_seconds": round(receive_gap, 4),
            "phases": phases,
            "heartbeat_seconds": self.options.heartbeat,
            "rate": self.options.rate,
            "seconds": round((time.time_ns() - self.began) / 1e9, 3),
            "passed": passed,
            "problem": self.problem,
            "directory": str(self.options.directory),
            "result_file": str(self.options.directory / "result.json"),
            "timeline_file": str(self.options.directory / "timeline.svg"),
        }

    def _phases(self, fault: dict[str, Any]) -> tuple[dict[str, float], float]:
        """Split the time from the fault to the recovery; of a backup's fault there is no
        promotion.
        """
        at, victim = int(fault.get("time_ns", 0)), fault.get("victim")
        if not at:
            return {"detect": 0.0, "promote": 0.0, "recover": 0.0}, 0.0
        noticed = self.stream.find(
            "hung" if self.options.stops else "exited", since=at, broker=victim
        )
        detect = int(noticed["time_ns"]) if noticed is not None else at
        if not self.options.hits_primary:
            ready = self.stream.find(
                "state", since=fault["settled_after"], broker=victim, state="ready"
            )
            recovered = int(ready["time_ns"]) if ready is not None else detect
            return _seconds(detect=detect - at, promote=0, recover=recovered - detect), 0.0
        promoted_event = self.stream.find("promoted", since=at)
        active_event = self._active_event(fault)
        active = int(active_event["time_ns"]) if active_event is not None else detect
        promoted = (
            min(active, int(promoted_event["time_ns"])) if promoted_event is not None else active
        )
        return _seconds(
            detect=detect - at, promote=promoted - detect, recover=active - promoted
        ), round((active - at) / 1e9, 4)

    def _active_event(self, fault: dict[str, Any]) -> dict[str, Any] | None:
        for entry in self.stream.events:
            if (
                entry["event"] == "state"
                and entry["state"] == "active"
                and entry["time_ns"] >= fault["time_ns"]
            ):
                if entry["broker"] != fault["victim"]:
                    return entry
        return None

    def _write(self, result: dict[str, Any]) -> None:
        (self.options.directory / "result.json").write_text(json.dumps(result, indent=2) + "\n")
        (self.options.directory / "timeline.svg").write_text(svg(self._timeline(result)))
        events = [json.dumps(entry) for entry in self.stream.events]
        (self.options.directory / "events.jsonl").write_text("\n".join(events) + "\n")

    def _timeline(self, result: dict[str, Any]) -> Timeline:
        def series(process: LoadProcess, name: str) -> list[tuple[float, float]]:
            return [
                ((sample["time_ns"] - self.began) / 1e9, sample[name])
                for sample in process.samples
                if name in sample
            ]

        return Timeline(
            title=(
                f"qpid-ha demo --fault {self.options.fault}: lost {result['lost']}, client "
                f"gap {result['client_gap_seconds']:.2f} s"
            ),
            seconds=(time.time_ns() - self.began) / 1e9,
            rates={
                "accepted": rates(series(self.sender, "accepted")),
                "received": rates(series(self.receiver, "received")),
            },
            waiting=series(self.sender, "unsettled"),
            lanes=lanes(self.stream.events, self.began),
            marks=self.marks,
            zoom=self._zoom(result),
        )

    def _zoom(self, result: dict[str, Any]) -> Zoom | None:
        """The second around the fault, or more if the clients waited for longer."""
        fault = next((time for time, label in self.marks if label.startswith("SIG")), None)
        if fault is None:
            return None
        at, until = self.began + int(fault * 1e9), time.time_ns()
        times = {"accepted": self.sender.records()[1::2], "received": self.receiver.records()[1::2]}
        gap, gap_end = max(longest_gap(found, at, until) for found in times.values())
        waited = (
            ((gap_end - self.began) / 1e9 - gap, (gap_end - self.began) / 1e9)
            if gap
            else (0.0, 0.0)
        )
        begin = max(0.0, fault - 0.2)
        end = max(begin + 1.0, fault + result["failover_seconds"] + 0.2, waited[1] + 0.2)
        curves = {
            name: fine_rates([(each - self.began) / 1e9 for each in found], begin, end)
            for name, found in times.items()
        }
        return Zoom(begin=begin, end=end, origin=fault, rates=curves, gap=waited)

    # What is shown meanwhile.

    def mark(self, at: int, label: str) -> None:
        """Put a mark into the timeline."""
        self.marks.append(((at - self.began) / 1e9, label))

    def _on_event(self, entry: dict[str, Any]) -> None:
        if entry["event"] == "state" and entry["state"] == "active":
            self._newest_epoch = max(self._newest_epoch, int(entry["epoch"]))
        if self._quiet_until_load:
            return
        told = summary_line(entry, newest_epoch=self._newest_epoch)
        if told is not None:
            self.line(*told, at=int(entry["time_ns"]))
        if entry["event"] == "promoted":
            self.mark(int(entry["time_ns"]), f"promote {entry['broker']}")

    def _on_tick(self) -> None:
        if self.progress.enabled:
            seconds = (time.time_ns() - self.began) / 1e9
            self.progress.show(
                f"{seconds:5.1f}s  {self._states()}   "
                f"{'' if self._quiet_until_load else self._counts()}"
            )

    def _states(self) -> str:
        return "   ".join(f"{name} {state}" for name, state in sorted(self.stream.states().items()))

    def _counts(self) -> str:
        sent, accepted, received = (
            self.sender.count("sent"),
            self.sender.count("accepted"),
            self.receiver.count("received"),
        )
        return (
            f"sent {sent:,}  accepted {accepted:,}  received {received:,}  in flight "
            f"{self.sender.count('unsettled'):,}"
        )

    def _primary(self) -> str:
        primaries = [entry for entry in self.stream.events if entry["event"] == "primary"]
        return str(primaries[-1]["broker"]) if primaries else ""

    def _ask(self, name: str, method: str, params: dict[str, Any]) -> Any:
        with failures():
            return ask(
                str(self.options.directory / name / "admin.sock"), method, params, timeout=5.0
            )


def lanes(events: list[dict[str, Any]], began: int) -> dict[str, list[tuple[float, str]]]:
    """Turn the manager's events into one list of (time, state) per broker, a stopped or stale
    broker shown as such.
    """
    found: dict[str, list[tuple[float, str]]] = {}
    newest_epoch = 0
    for entry in events:
        if entry["event"] == "state":
            state = "stale" if is_stale(entry, newest_epoch) else entry["state"]
            newest_epoch = max(newest_epoch, int(entry.get("epoch", 0)) if state == "active" else 0)
        elif entry["event"] == "signal" and entry["signal"] in ("SIGSTOP", "SIGCONT"):
            state = "stopped" if entry["signal"] == "SIGSTOP" else "hung"
        else:
            continue
        lane = found.setdefault(entry["broker"], [])
        if entry["event"] == "state" and state == "hung" and lane and lane[-1][1] == "stopped":
            continue  # That it was noticed does not change what it is.
        lane.append((max(0.0, (entry["time_ns"] - began) / 1e9), state))
    return dict(sorted(found.items()))


def verdict(result: dict[str, Any], options: DemoOptions) -> list[str]:
    """Sum up the run."""
    phases = "  ".join(f"{name} {seconds:.3f}" for name, seconds in result["phases"].items())
    allowed = " (allowed: at-least-once)" if result["duplicates"] else ""
    again = (
        f"{result['sent_again']:,} in flight were sent again"
        if result["sent_again"]
        else "nothing in flight had to be sent again"
    )
    lines = [
        f"        gap        clients waited {result['client_gap_seconds']:.2f} s    {again}",
        f"        phases     {phases}   (seconds; heartbeat {options.heartbeat:g} s)",
        f"result  lost {result['lost']:,}   duplicates {result['duplicates']:,}{allowed} "
        f"  accepted {result['accepted']:,}   "
        f"received {result['received']:,}   failover {result['failover_seconds']:.2f} s  "
        f" {'PASS' if result['passed'] else 'FAIL'}",
    ]
    if result["problem"]:
        lines.append(f"problem {result['problem']}")
    lines.append(f"files   {brief(result['timeline_file'])}   {brief(result['result_file'])}")
    other = FAULTS[(FAULTS.index(options.fault) + 1) % len(FAULTS)]
    started = program()
    where = (
        ""
        if options.directory.parent == home("demo")
        else f" --dir {shlex.quote(brief(options.directory))}"
    )
    lines.append(
        f"next    {started} demo --fault {other}{where}      {started} local up      "
        f"{started} bench"
    )
    return lines


def describe(options: DemoOptions) -> dict[str, Any]:
    """The options as data."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(options).items()
    }


def _seconds(**nanoseconds: int) -> dict[str, float]:
    return {name: round(max(0, value) / 1e9, 4) for name, value in nanoseconds.items()}
