"""What a console costs its broker: `python -m tests.bench.console [--queues 1000 10000]`.

Beside a broker with so many queues, each with a message, runs a console. First nobody asks it, then
it is scraped each second, then clients follow its events as well. What is counted is the CPU time
of both processes, in percent of a core, beside that of the same broker without a console, and how
long a scrape takes: the median and the longest. One that
the console gives up, as the broker did not answer in time, is unanswered.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from qpidha.client.admin import AdminSocket
from qpidha.client.blocking import Client
from qpidha.client.message import Message
from tests.bench.processes import cpu_seconds
from tests.console.consoles import Console
from tests.console.streams import Stream
from tests.runtime.daemons import Running

Row = dict[str, float | int | str]
PATIENCE = 60.0
FOLLOWERS = 50
DETAILED = "/metrics/detailed?family=queue&limit=10000"


@contextmanager
def a_broker(queues: int) -> Iterator[tuple[Running, Path]]:
    """Start a broker with queues of one message each."""
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name, Running("--data-dir", name) as one:
        admin = AdminSocket(f"{name}/admin.sock", PATIENCE)
        for number in range(queues):
            admin.call("declare_queue", {"name": f"bench-{number:05}"})
        admin.close()
        with Client(f"127.0.0.1:{one.port}") as client:
            sender = client.sender(None)
            for number in range(queues):
                sender.send_nowait(Message(b"x" * 100, to=f"bench-{number:05}"))
            sender.flush()
        yield one, Path(name)


def percent(pids: list[int], seconds: float, console: Console | None, path: str = "") -> Row:
    """Ask for a path each second, and say how much of a core each process took."""
    before = [cpu_seconds([pid]) for pid in pids]
    began = time.monotonic()
    took: list[float] = []
    unanswered = 0
    for second in range(int(seconds)):
        if console is not None and path:
            asked = time.perf_counter()
            answer = console.ask(path)
            took.append(time.perf_counter() - asked)
            unanswered += answer.status != 200
        time.sleep(max(began + second + 1 - time.monotonic(), 0.0))
    passed = time.monotonic() - began
    used = [cpu_seconds([pid]) - each for pid, each in zip(pids, before, strict=True)]
    names = ("broker_percent_of_a_core", "console_percent_of_a_core")
    row: Row = {
        name: round(100 * each / passed, 2) for name, each in zip(names, used, strict=False)
    }
    if took:
        row |= {"scrape_seconds": round(median(took), 3), "longest": round(max(took), 3)}
        row["unanswered"] = unanswered
    return row


def measure(queues: int, seconds: float) -> Iterator[Row]:
    """Measure one broker, step by step."""
    with a_broker(queues) as (broker, place), ExitStack() as stack:
        pid = broker.process.pid
        yield {"queues": queues, "step": "no console", **percent([pid], seconds, None)}
        console = stack.enter_context(Console("--data-dir", place))
        pids = [pid, console.process.pid]
        yield {"queues": queues, "step": "nobody asks", **percent(pids, seconds, console)}
        for step in ("/metrics", DETAILED):
            yield {"queues": queues, "step": step, **percent(pids, seconds, console, step)}
        for _ in range(FOLLOWERS):
            stack.enter_context(Stream(console.port))
        step = f"/metrics, {FOLLOWERS} clients follow"
        yield {"queues": queues, "step": step, **percent(pids, seconds, console, "/metrics")}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each step")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    ask = parser.parse_args()
    for queues in ask.queues:
        for row in measure(queues, ask.seconds):
            text = json.dumps(row)
            if ask.output == "text":
                text = "  ".join(f"{name} {value}" for name, value in row.items())
            print(text, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
