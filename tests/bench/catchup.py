"""Catch-up of a backup while publishers run: `python -m tests.bench.catchup [--messages 1000000]`.

Three brokers. The third is away while a backlog is made, then comes without data (everything is
sent to it) while a publisher goes on at the same rate as before; compared are the publisher's 99th
percentiles with and without catch-up. Then the third is away for some seconds under load and comes
back with its data: what it receives is the difference, not the whole.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.backlog import (
    depth,
    directory_size,
    fill,
    kill,
    parser,
    received_from,
    run,
    seconds_until,
    started,
)
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError, wait_until
from tests.system.failover_clients import FailoverSender

RATE = 20
"""Messages begun each 10 ms by the publisher."""


class Timed(FailoverSender):
    """A sender that knows how long each acceptance took."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.looked = 0
        """Acceptances that were looked at."""

    def start(self) -> None:
        """Leave everything until now out of account."""
        self.looked = len(self.accepted)

    def p99_ms(self) -> float:
        """Return the 99th percentile of what was accepted since the last call."""
        first, self.looked = self.looked, len(self.accepted)
        took = sorted(
            self.accepted_at[at] - self.begun_at[self.accepted[at] - 1]
            for at in range(first, self.looked)
        )
        if len(took) < 100:
            raise BenchError(f"the publisher got only {len(took)} messages accepted")
        return took[int(len(took) * 0.99)] * 1000


def measure(ask: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Do it all."""
    brokers = started(
        QpidhaBrokers(
            folder, 3, options=["--link-heartbeat-interval=2", "--link-maintenance-interval=0.1"]
        )
    )
    try:
        brokers.declare("live", durable=True)
        kill(brokers, 2)
        fill(brokers, ask.messages, ask.size)
        with Timed([brokers.address], "live", rate=RATE, window=1000, durable=True) as publisher:
            publisher.wait_accepted(200)
            publisher.start()
            time.sleep(ask.seconds)
            idle = publisher.p99_ms()
            shutil.rmtree(folder / "b3" / "data")
            brokers.start(2)
            seconds = seconds_until(
                lambda: brokers.state(2) == "ready", "the third broker is ready", 900
            )
            during = publisher.p99_ms()
            whole = directory_size(folder / "b3" / "data")
            kill(brokers, 2)
            accepted = len(publisher.accepted)
            time.sleep(ask.away)
            missed = len(publisher.accepted) - accepted
            began = time.monotonic()
            brokers.start(2)
            wait_until(
                lambda: brokers.state(2) == "ready",
                "the third broker is ready",
                watched=brokers.running,
            )
            rejoined = time.monotonic() - began
            moved = received_from(brokers.pids()[2], brokers.ports[0])
        found = depth(brokers, 2)
    finally:
        brokers.down()
    if found != ask.messages:
        raise BenchError(
            f"the backlog on the third broker has {found} messages, not {ask.messages}"
        )
    return {
        "messages": ask.messages,
        "publisher_p99_ms_idle": round(idle, 2),
        "publisher_p99_ms_during_catch_up": round(during, 2),
        "ratio_of_p99": round(during / idle, 2),
        "seconds_of_catch_up": round(seconds, 2),
        "catch_up_messages_per_second": round(ask.messages / seconds),
        "bytes_of_everything": whole,
        "messages_missed_while_away": missed,
        "seconds_to_rejoin": round(rejoined, 2),
        "bytes_moved_by_rejoin": moved,
    }


def main() -> int:
    """Run it."""
    made = parser(__doc__ or "", 1_000_000)
    made.add_argument("--seconds", type=float, default=10.0, help="of the idle measurement")
    made.add_argument(
        "--away",
        type=float,
        default=10.0,
        help="seconds for which the third broker is away before it rejoins",
    )
    return run(made.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
