"""`python -m tests.soak --minutes 10 --seed 1`: one JSON line and an exit code: 0 nothing lost, 1
something was, 2 not known.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.run import POWER, Soak, SoakOptions


def main() -> int:
    """Run one soak."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description="Break three brokers under load and check what clients saw.",
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the choices of faults"
    )
    parser.add_argument(
        "--dir",
        type=Path,
        default=None,
        help="new directory for history, logs and data; a temporary one by default",
    )
    parser.add_argument(
        "--rate", type=float, default=100.0, help="messages a second of each of the three senders"
    )
    parser.add_argument(
        "--daemon",
        default="",
        help="what Python runs as the broker, such as '-m qpidha.runtime.daemon'",
    )
    ask = parser.parse_args()
    directory = ask.dir or Path(tempfile.mkdtemp(prefix="qpidha-soak-"))
    if ask.dir is not None and ask.dir.exists() and any(ask.dir.iterdir()):
        parser.error(f"{ask.dir} is not empty")
    module = shlex.split(ask.daemon) or POWER
    summary = Soak(
        SoakOptions(
            directory.absolute(), minutes=ask.minutes, seed=ask.seed, rate=ask.rate, module=module
        )
    ).run()
    line = json.dumps(summary)
    (directory / "summary.json").write_text(line + "\n")
    print(line)
    return (
        0
        if summary["passed"]
        else 2
        if summary["valid"] == "unknown" and summary["counts"].get("accepted")
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
