"""A broker that notes its long turns: `python -m tests.bench.turns [options of qpidhad]`.

It is the daemon, with a line in the file `turns` beside its admin socket for each turn of the node
that took 2 ms of CPU or 10 ms, and for each group of the log's thread that took 10 ms: which of the
two, when it ended, by the clock of the system, and its CPU and its time in milliseconds. The CPU is
that of the thread, so that it says the same beside other work. With QPIDHA_TURNS=where in the
environment each line ends with the frames that a turn was seen in from then on, the innermost last;
a thread looks each millisecond, so figures are a little higher then. Of a group it is told what was
done, and how much of its time was a sync.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TextIO

from qpidha.runtime import daemon
from qpidha.runtime.log_files import Append, LogFiles, Mark, Operation
from qpidha.runtime.node_loop import NodeLoop

LONG = 2_000_000
"""Nanoseconds of CPU from which on a turn is noted."""
LATE = 10_000_000
"""Nanoseconds from which on a turn or a group is noted, whatever its CPU."""
TURN, GROUP = "turn", "group"
FRAMES = 9
"""How many frames of a stack are told."""


class Noted(NamedTuple):
    """A long turn, or group."""

    kind: str
    ended: float
    cpu_ms: float
    ms: float
    where: str


class Watch(threading.Thread):
    """Looks where the loop is while a turn is long."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.began = 0
        """When the turn began that runs; 0 between two."""
        self.seen: Counter[str] = Counter()
        self._collecting = 0
        self._main = threading.get_ident()
        self.start()

    def run(self) -> None:
        while True:
            time.sleep(0.001)
            began = self.began
            if began and time.perf_counter_ns() - began > LONG:
                frame = sys._current_frames().get(self._main)
                if self.began == began:
                    self.seen[stack_of(frame)] += 1

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Count a collection of garbage as a place of its own: nobody else runs meanwhile."""
        now = time.perf_counter_ns()
        if phase == "start":
            self._collecting = now
        elif self.began and (took := (now - self._collecting) // 1_000_000):
            self.seen[f"collection of generation {info['generation']}"] += took

    def told(self) -> str:
        """Say where the last turn was, and forget it."""
        most = " | ".join(f"{count}x {where}" for where, count in self.seen.most_common(3))
        self.seen = Counter()
        return most


def stack_of(frame: FrameType | None) -> str:
    """Name the innermost frames."""
    names: list[str] = []
    while frame is not None and len(names) < FRAMES:
        names.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " > ".join(reversed(names))


def note_turns(out: TextIO, watch: Watch | None) -> None:
    """Have each turn measured from now on."""
    run = NodeLoop._run
    if watch is not None:
        gc.callbacks.append(watch.collected)

    def measured(loop: NodeLoop) -> None:
        cpu, began = time.thread_time_ns(), time.perf_counter_ns()
        if watch is not None:
            watch.began = began
        run(loop)
        spent = time.thread_time_ns() - cpu
        if watch is not None:
            watch.began = 0
        took = time.perf_counter_ns() - began
        if spent >= LONG or took >= LATE:
            where = watch.told() if watch is not None else ""
            note(out, TURN, spent, took, where)
        elif watch is not None and watch.seen:
            watch.told()

    NodeLoop._run = measured  # type: ignore[method-assign]


def note_groups(out: TextIO) -> None:
    """Have each group of the log's thread measured from now on."""
    carry_out = LogFiles.carry_out

    def measured(files: LogFiles, group: Sequence[Operation]) -> int | None:
        cpu, began = time.thread_time_ns(), time.perf_counter_ns()
        mark = carry_out(files, group)
        if (took := time.perf_counter_ns() - began) >= LATE:
            size = sum(len(one.data) for one in group if isinstance(one, Append))
            done = [str(one) for one in group if not isinstance(one, Append | Mark)]
            text = f"{size >> 10} KiB, sync {files.sync_time / 1e6:.1f} ms {' '.join(done)}"
            note(out, GROUP, time.thread_time_ns() - cpu, took, text)
        return mark

    LogFiles.carry_out = measured  # type: ignore[method-assign]


def note(out: TextIO, kind: str, cpu: int, took: int, where: str) -> None:
    """Write a line."""
    out.write(f"{kind} {time.time():.4f} {cpu / 1e6:.2f} {took / 1e6:.2f} {where}\n")


def read(place: Path, since: float) -> list[Noted]:
    """Read what the broker in a folder noted that ended after `since`."""
    found = []
    for line in (place / "turns").read_text().splitlines():
        kind, ended, cpu, took, where = line.split(" ", 4)
        if float(ended) >= since:
            found.append(Noted(kind, float(ended), float(cpu), float(took), where))
    return found


def main() -> int:
    """Be a broker."""
    (admin,) = (word for word in sys.argv if word.startswith("--admin-socket="))
    place = Path(admin.partition("=")[2]).with_name("turns")
    with place.open("a", buffering=1) as out:
        note_turns(out, Watch() if os.environ.get("QPIDHA_TURNS") == "where" else None)
        note_groups(out)
        return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
