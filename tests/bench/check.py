"""Whether this working copy costs more than another commit: `make bench-check BASE=origin/main`.

Brokers of both, three each, are up at the same time and loaded in turn with the same generator.
What counts is the CPU time for a message, as the median of the ratios within a round. A case is
decided when the 95 % interval of that median is at most `--limit` to either side; the others go on
until `--most` rounds, and what is then still open is said, with its noise.
"""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.cases import CASES
from tests.bench.processes import BenchError
from tests.bench.report import aligned, cpu_ratios
from tests.bench.run import Ask, Bench, names, our_kind, say

ROOT = Path(__file__).parents[2]
USUAL = ("consumed", "kept", "durable", "window-1", "window-1-durable", "10kib", "pairs")
NOW, BASE = "now", "base"
FEWEST = 6
"""Rounds with which the median has a 95 % interval at all."""


@dataclass(slots=True, frozen=True)
class Verdict:
    """What is known of a case: how often as much CPU as before, and how sure that is."""

    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def noise(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    def word(self, limit: float) -> str:
        """`ok`, `SLOWER`, or `open` while the noise is beyond the limit and hides which."""
        if self.low > 1 + limit:
            return "SLOWER"
        if self.high <= 1 + limit:
            return "ok"
        if self.noise > limit:
            return "open"
        return "SLOWER" if self.ratio > 1 + limit else "ok"


def verdict(ratios: Sequence[float]) -> Verdict:
    """The median of ratios and its 95 % interval, by the order of the ratios: how many of n are
    below the median is binomial, whatever their distribution (David and Nagaraja, Order
    Statistics, 7.1). With fewer than `FEWEST` the interval has no end.
    """
    count, ranked = len(ratios), sorted(ratios)
    outside, below = 0.0, -1
    for rank in range(count // 2):
        outside += math.comb(count, rank) / 2**count
        if 2 * outside > 0.05:
            break
        below = rank
    middle = median(ranked) if ranked else math.nan
    if below < 0:
        return Verdict(middle, 0.0, math.inf, count)
    return Verdict(middle, ranked[below], ranked[count - 1 - below], count)


def git(*arguments: str) -> str:
    """What git says in this working copy."""
    done = subprocess.run(
        ["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"git {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def default_base() -> str:
    """origin/main; where that is what is checked out, unchanged, the commit before."""
    try:
        base = git("rev-parse", "--verify", "--quiet", "origin/main")
    except BenchError:
        return "HEAD~1"
    is_same = base == git("rev-parse", "HEAD") and not git("status", "--porcelain", "qpidha")
    return "HEAD~1" if is_same else "origin/main"


@contextmanager
def checked_out(commit: str, folder: Path) -> Iterator[Path]:
    """A working copy of a commit, which goes afterwards."""
    place = folder / "base"
    git("worktree", "add", "--detach", "--force", str(place), commit)
    try:
        yield place
    finally:
        git("worktree", "remove", "--force", str(place))


def compare(
    ask: Ask, base: Path, folder: Path, limit: float, fewest: int, most: int
) -> dict[str, Verdict]:
    """Load both until every case is decided, or for `most` rounds."""
    found = {case: verdict([]) for case in ask.cases}
    with Bench(ask, folder) as bench:
        kinds = [our_kind(NOW, 3, ()), our_kind(BASE, 3, (), base)]
        subjects = bench.start(kinds)
        bench.warm_up(subjects)
        for number in range(1, most + 1):
            unsure = [
                case
                for case, known in found.items()
                if number <= fewest or known.word(limit) == "open"
            ]
            if not unsure:
                break
            bench.round(number, subjects, unsure)
            if bench.errors:
                raise BenchError(bench.errors[0])
            if lost := [run for run in bench.runs if not run["is_whole"]]:
                raise BenchError(f"a run says nothing, it is not whole: {lost[0]}")
            for case in unsure:
                found[case] = verdict(cpu_ratios(bench.runs, (case, NOW), (case, BASE)))
    return found


def table(found: dict[str, Verdict], limit: float) -> str:
    """What was found as text."""
    lines = [("case", "", "x base", "noise", "rounds", "")]
    lines += [
        (case, "", f"{one.ratio:.3f}", f"{one.noise:.1%}", str(one.rounds), one.word(limit))
        for case, one in found.items()
    ]
    return aligned(lines, 5)


def main() -> int:
    """Compare; 0 nothing costs more, 1 something does or failed, 2 the noise hides it."""
    parser = argparse.ArgumentParser(prog="make bench-check", description=__doc__)
    parser.add_argument("--base", default="", help="commit (default: origin/main, or HEAD~1)")
    parser.add_argument("--cases", type=names(list(CASES), "case"), default=list(USUAL))
    parser.add_argument("--limit", type=float, default=5.0, help="percent (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="to send in each run")
    parser.add_argument("--rounds", type=int, default=FEWEST, help="at least")
    parser.add_argument("--most", type=int, default=30, help="rounds at most")
    asked = parser.parse_args()
    limit = asked.limit / 100
    ask = Ask([], asked.cases, rounds=asked.most, seconds=asked.seconds)
    folder = Path(tempfile.mkdtemp(prefix="qpidha-bench-"))
    try:
        commit = git("rev-parse", "--short", asked.base or default_base())
        say(f"this working copy beside {commit}")
        with checked_out(commit, folder) as base:
            found = compare(ask, base, folder, limit, asked.rounds, asked.most)
    except (BenchError, subprocess.SubprocessError) as failure:
        say(f"error: {failure}")
        say(f"logs are kept in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(table(found, limit))
    words = {one.word(limit) for one in found.values()}
    if "SLOWER" in words:
        say(f"error: this costs more than {asked.limit:g} % above {commit}")
        return 1
    if "open" in words:
        say("undecided: the noise is beyond the limit; try a quiet machine, or more --seconds")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
