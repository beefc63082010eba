"""`python -m tests.lab.measure --runs 5`: how long failovers take under Pacemaker, as a table and
as JSON.

Each run is a play with clients at work, so that what must hold is checked too. Times are seconds
after the event: `detect` is Pacemaker's first line about it, `promote` another broker as primary,
`accept` the first message that it accepts through the virtual address, `outage` the longest time
without one.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.lab.cluster import DC_DEADTIME, MONITOR
from tests.lab.faults import FAULTS
from tests.lab.lab import Lab, why_not
from tests.lab.play import Stage, Times

PROGRAMS = {
    "corosync": ("corosync", "-v"),
    "pacemaker": ("pacemakerd", "--version"),
    "pcs": ("pcs", "--version"),
}
COLUMNS = ("detect", "promote", "accept", "outage")
INTERVAL = 0.02
"""Seconds between two questions to a broker: how exactly a promotion is timed."""


def table(times: Sequence[Times]) -> str:
    """Write minimum, median and maximum of every scenario as Markdown."""
    lines = ["| event | n | " + " | ".join(COLUMNS) + " |", "|---|---|" + "---|" * len(COLUMNS)]
    for name in dict.fromkeys(one.scenario for one in times):
        runs = [one for one in times if one.scenario == name]
        cells = [
            _three([value for one in runs if (value := getattr(one, column)) is not None])
            for column in COLUMNS
        ]
        about = (FAULTS[name].__doc__ or name).strip().rstrip(".")
        lines.append(f"| {about} | {len(runs)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _three(values: list[float]) -> str:
    return (
        f"{min(values):.2f} / {statistics.median(values):.2f} / {max(values):.2f}"
        if values
        else "-"
    )


def settings(lab: Lab) -> dict[str, str]:
    """Say what it was measured with."""
    versions = {
        name: lab.run(lab.names[0], *command).stdout.split("\n")[0]
        for name, command in PROGRAMS.items()
    }
    conf = lab.disk(lab.names[0], "/etc/corosync/corosync.conf").read_text().split()
    token, consensus = (f"{conf[conf.index(f'{key}:') + 1]} ms" for key in ("token", "consensus"))
    planned = {"monitor": f"{MONITOR} s", "dc-deadtime": f"{DC_DEADTIME} s"}
    return {
        **versions,
        "kernel": platform.release(),
        "token": token,
        "consensus": consensus,
        **planned,
    }


def main(words: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.measure",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=5, help="of each event (default 5)")
    parser.add_argument("--events", default=",".join(FAULTS), help=f"which, of {', '.join(FAULTS)}")
    parser.add_argument(
        "--json", type=Path, default=Path("lab-times.json"), help="file for every single run"
    )
    ask = parser.parse_args(words)
    if reason := why_not():
        print(reason, file=sys.stderr)
        return 1
    found = Lab.running()
    lab = found or Lab.up()
    stage = Stage(lab, INTERVAL)
    try:
        with stage.watch:
            if found is None:
                stage.cluster.start()
            known = settings(lab)
            print(
                "; ".join(f"{name} {value}" for name, value in known.items()),
                file=sys.stderr,
                flush=True,
            )
            for turn in range(ask.runs):
                for name in ask.events.split(","):
                    with stage.play(name) as play:
                        FAULTS[name](play)
                        play.wait_promoted()
                    print(
                        json.dumps({"run": turn + 1, **asdict(stage.times[-1])}),
                        file=sys.stderr,
                        flush=True,
                    )
    finally:
        if stage.times:
            ask.json.write_text(
                json.dumps(
                    {"settings": known, "runs": [asdict(one) for one in stage.times]}, indent=1
                )
                + "\n"
            )
            print(table(stage.times))
        if found is None:
            lab.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
