"""Run simulated histories: `python -m tests.sim --seeds 1000 --start 0 --depth both --jobs 2`, or
`--seed 42` to see one.

Ends with one line of totals, and exit code 1 if any seed failed. A failing seed prints the command
that replays it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from tests.sim.history import Violation
from tests.sim.workload import Run

WIRE_SHARE = 10
"""With both depths, every so many seeds one is played at the wire depth."""


@dataclass
class Result:
    """What became of one seed."""

    seed: int
    depth: str
    failure: str = ""
    accepted: int = 0
    delivered: int = 0
    promotions: int = 0
    excused: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    trace_hash: int = 0
    lines: list[str] = field(default_factory=list)


def play(seed: int, depth: str, bug: str = "", *, tracing: bool = False) -> Result:
    """Play one seed; with a bug, only if its run has what the bug needs, or to see its trace."""
    if depth == "both":
        depth = "wire" if seed % WIRE_SHARE == 0 else "model"
    result = Result(seed, depth)
    run: Run | None = None
    with planted(bug):
        try:
            run = Run(seed, depth=depth, tracing=tracing)
            if tracing or may_show(run, bug):
                run.play()
        except Violation as violation:
            result.failure = str(violation)
        except Exception as error:
            result.failure = f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    if run is not None:
        facts, world = run.facts, run.world
        world.note("world", f"ends after {world.events} events with {world.rng.random()}")
        result.accepted, result.delivered, result.excused = (
            facts.accepted,
            facts.delivered,
            facts.lost_in_total_failures,
        )
        result.promotions, result.faults = run.promotions, run.injected
        result.trace_hash, result.lines = world.trace_hash, world.lines
    return result


def planted(bug: str) -> Any:
    """Plant a bug by its name."""
    if not bug:
        return nullcontext()
    from tests.sim.planted_bugs import BUGS

    return BUGS[bug]()


def may_show(run: Run, bug: str) -> bool:
    """Tell whether a run has what a bug needs."""
    from tests.sim.planted_bugs import NEEDS

    return bug not in NEEDS or bool(NEEDS[bug](run))


def command(result: Result, bug: str) -> str:
    """Return what replays a seed."""
    return f"python -m tests.sim --seed {result.seed} --depth {result.depth}" + (
        f" --bug {bug}" if bug else ""
    )


def _play(task: tuple[int, str, str]) -> Result:
    return play(*task)


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this one, and print its trace")
    parser.add_argument("--depth", choices=("model", "wire", "both"), default="both")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--bug", default="", help="plant this bug (tests/sim/planted_bugs.py)")
    given = parser.parse_args()
    if given.seed is not None:
        result = play(given.seed, given.depth, given.bug, tracing=True)
        print("\n".join(result.lines))
        print(f"trace hash {result.trace_hash:08x}")
        print(result.failure or "no failure")
        return 1 if result.failure else 0
    began = time.monotonic()
    totals = Result(0, given.depth)
    failures = 0
    tasks = [
        (seed, given.depth, given.bug) for seed in range(given.start, given.start + given.seeds)
    ]
    with multiprocessing.Pool(given.jobs) as pool:
        for result in (
            pool.imap_unordered(_play, tasks, chunksize=8) if given.jobs > 1 else map(_play, tasks)
        ):
            totals.accepted += result.accepted
            totals.delivered += result.delivered
            totals.promotions += result.promotions
            totals.excused += result.excused
            for name, count in result.faults.items():
                totals.faults[name] = totals.faults.get(name, 0) + count
            if result.failure:
                failures += 1
                print(
                    f"seed {result.seed} {result.depth}: {result.failure}\n  replay: "
                    f"{command(result, given.bug)}",
                    flush=True,
                )
    seconds = time.monotonic() - began
    count = sum(totals.faults.values())
    print(
        f"simulation: {given.seeds} seeds from {given.start} ({given.depth}), {failures} "
        f"failures, {seconds:.1f} s, "
        f"{totals.accepted} accepted, {totals.delivered} delivered, {totals.promotions} "
        f"promotions, {count} faults, "
        f"{totals.excused} excused by total failures"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
