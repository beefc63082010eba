"""Processes of the benchmark: start, read their CPU time, stop. Ends nothing that it did not
start.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
START_PATIENCE = 60.0
"""Seconds to wait for a broker to be ready; three Erlang nodes on two cores take about twenty."""


class BenchError(Exception):
    """The benchmark cannot go on; the text says why and what to do."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in held]
    for one in held:
        one.close()
    return ports


def start(
    command: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that it and its children can be stopped
    together.
    """
    with log.open("ab") as out:
        return subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=env,
            start_new_session=True,
        )


def stop(process: subprocess.Popen[bytes], patience: float = 10.0) -> None:
    """Ask the process and its children to end, then make them."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                pass
        try:
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            continue


def cpu_seconds(pids: Sequence[int]) -> float:
    """CPU time, user and system, that these processes and all their threads have used so far."""
    ticks = 0
    for pid in pids:
        # The name in field two may hold spaces and brackets: count from the last bracket on.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / CLOCK_TICKS


def memory_bytes(pids: Sequence[int]) -> int:
    """Resident memory of these processes together."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE")


def busy_seconds() -> float:
    """CPU seconds that the whole machine has spent so far."""
    fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _idle, _wait, hard, soft, _steal = fields[:8]
    return (user + nice + system + hard + soft) / CLOCK_TICKS


def own_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


@dataclass(slots=True)
class Meter:
    """What happened between two moments, in seconds of CPU and of the clock."""

    cpu: float = 0.0
    wall: float = 0.0
    other: float = 0.0
    """The share of the machine's time that neither the brokers nor the load generator took."""


@contextmanager
def metered(pids: Sequence[int]) -> Iterator[Meter]:
    """Count what these processes spend meanwhile."""
    meter = Meter()
    began, cpu, own, busy = time.monotonic(), cpu_seconds(pids), own_seconds(), busy_seconds()
    yield meter
    meter.cpu = cpu_seconds(pids) - cpu
    meter.wall = time.monotonic() - began
    others = busy_seconds() - busy - meter.cpu - (own_seconds() - own)
    meter.other = max(0.0, others) / meter.wall / (os.cpu_count() or 1)


def wait_until(
    condition: Callable[[], bool], what: str, *, watched: Sequence[subprocess.Popen[bytes]] = ()
) -> None:
    """Wait for a condition while the watched processes live."""
    deadline = time.monotonic() + START_PATIENCE
    while not condition():
        dead = [process for process in watched if process.poll() is not None]
        if dead:
            raise BenchError(
                f"a process ended with code {dead[0].returncode} while waiting until "
                f"{what}: see its log"
            )
        if time.monotonic() > deadline:
            raise BenchError(f"it is not so after {START_PATIENCE:.0f} s that {what}: see the logs")
        time.sleep(0.05)
