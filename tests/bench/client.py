"""Our client beside proton's own Python classes: `python -m tests.bench.client [--rounds N]`.

Sends small messages to a queue of one broker that keeps nothing on disk and receives them again,
with `qpidha.client.blocking`, with proton's `BlockingConnection` and with its `MessagingHandler`.
Each is a process of its own; the rounds are interleaved, so that whatever else the machine does
falls on all alike. It prints, for each way, messages a second and the CPU time of the client for
one message (user and system, without start and login), the median of all rounds, and how many times
better ours is. Used for docs/clients.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.ours import QpidhaBrokers

BODY = b"x" * 100
WINDOW = 500
"""Messages without an outcome, or received ahead."""


class Stopwatch:
    """Elapsed time and CPU time of this process, from its making to `result`."""

    def __init__(self) -> None:
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def result(self, count: int) -> dict[str, float]:
        seconds, cpu = time.perf_counter() - self.began, time.process_time() - self.cpu
        return {"rate": count / seconds, "cpu_us": cpu / count * 1e6}


def ours_pipelined(address: str, count: int) -> dict[str, dict[str, float]]:
    """`send_nowait` with a window, and a receiver with credit."""
    from qpidha.client.blocking import Client

    with Client(address) as client:
        sender = client.sender("bench", window=WINDOW)
        watch = Stopwatch()
        for _ in range(count):
            sender.send_nowait(BODY)
        sender.flush()
        sent = watch.result(count)
        receiver = client.receiver("bench", credit=WINDOW)
        watch = Stopwatch()
        for _ in range(count):
            message = receiver.receive()
            if message.body != BODY:
                raise AssertionError(message)
            message.accept()
        return {"send": sent, "receive": watch.result(count)}


def ours_one_by_one(address: str, count: int) -> dict[str, dict[str, float]]:
    """`send`, which waits for the acceptance of each message, and a receiver with credit."""
    from qpidha.client.blocking import Client

    with Client(address) as client:
        sender = client.sender("bench")
        watch = Stopwatch()
        for _ in range(count):
            sender.send(BODY)
        sent = watch.result(count)
        receiver = client.receiver("bench", credit=WINDOW)
        watch = Stopwatch()
        for _ in range(count):
            message = receiver.receive()
            if message.body != BODY:
                raise AssertionError(message)
            message.accept()
        return {"send": sent, "receive": watch.result(count)}


def proton_blocking(address: str, count: int) -> dict[str, dict[str, float]]:
    """`BlockingConnection`: each send waits for its acceptance."""
    from proton import Message
    from proton.utils import BlockingConnection

    connection = BlockingConnection(address, timeout=60)
    sender = connection.create_sender("bench")
    watch = Stopwatch()
    for _ in range(count):
        sender.send(Message(body=BODY))
    sent = watch.result(count)
    receiver = connection.create_receiver("bench", credit=WINDOW)
    watch = Stopwatch()
    for _ in range(count):
        message = receiver.receive()
        if message.body != BODY:
            raise AssertionError(message)
        receiver.accept()
    received = watch.result(count)
    connection.close()
    return {"send": sent, "receive": received}


def proton_handler(address: str, count: int) -> dict[str, dict[str, float]]:
    """`MessagingHandler`: sends while there is credit, receives with a prefetch."""
    from proton import Message
    from proton.handlers import MessagingHandler
    from proton.reactor import Container

    results: dict[str, dict[str, float]] = {}

    class Send(MessagingHandler):  # type: ignore[misc]  # proton has no types
        def __init__(self) -> None:
            super().__init__()
            self.sent = self.accepted = 0
            self.watch: Stopwatch | None = None

        def on_start(self, event: Any) -> None:
            event.container.create_sender(f"{address}/bench")

        def on_sendable(self, event: Any) -> None:
            self.watch = self.watch or Stopwatch()
            while event.sender.credit and self.sent < count:
                event.sender.send(Message(body=BODY))
                self.sent += 1

        def on_accepted(self, event: Any) -> None:
            self.accepted += 1
            if self.accepted == count and self.watch is not None:
                results["send"] = self.watch.result(count)
                event.connection.close()

    class Receive(MessagingHandler):  # type: ignore[misc]  # proton has no types
        def __init__(self) -> None:
            super().__init__(prefetch=WINDOW)
            self.got = 0
            self.watch: Stopwatch | None = None

        def on_start(self, event: Any) -> None:
            event.container.create_receiver(f"{address}/bench")

        def on_link_opened(self, event: Any) -> None:
            self.watch = Stopwatch()

        def on_message(self, event: Any) -> None:
            if event.message.body != BODY:
                raise AssertionError(event.message)
            self.got += 1
            if self.got == count and self.watch is not None:
                results["receive"] = self.watch.result(count)
                event.connection.close()

    Container(Send()).run()
    Container(Receive()).run()
    return results


WAYS: dict[str, tuple[Callable[[str, int], dict[str, dict[str, float]]], int]] = {
    "ours, send_nowait": (ours_pipelined, 20_000),
    "ours, send": (ours_one_by_one, 3_000),
    "proton, BlockingConnection": (proton_blocking, 1_000),
    "proton, MessagingHandler": (proton_handler, 5_000),
}
"""How it is done, and how many messages of it are enough to measure."""


def measure(rounds: int, scale: float) -> dict[str, dict[str, dict[str, float]]]:
    """Run every way in turn, so many times; return the medians."""
    found: dict[str, list[dict[str, dict[str, float]]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        brokers = QpidhaBrokers(Path(folder), 1)
        try:
            brokers.up()
            brokers.ask(0, "declare_queue", name="bench")
            for number in range(rounds):
                for way, (_, count) in WAYS.items():
                    line = subprocess.run(
                        [
                            sys.executable,
                            "-m",
                            "tests.bench.client",
                            "--way",
                            way,
                            "--address",
                            brokers.address,
                            "--count",
                            str(max(1, int(count * scale))),
                        ],
                        check=True,
                        capture_output=True,
                        text=True,
                    ).stdout
                    found[way].append(json.loads(line))
                    print(f"round {number + 1}: {way}: {line.strip()}", file=sys.stderr)
        finally:
            brokers.down()
    return {
        way: {
            step: {
                figure: statistics.median(run[step][figure] for run in runs)
                for figure in ("rate", "cpu_us")
            }
            for step in ("send", "receive")
        }
        for way, runs in found.items()
    }


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Write the medians as a table."""
    lines = [
        "| client | sent a second | CPU to send one | received a second | CPU to receive one |",
        "|---|---|---|---|---|",
    ]
    for way, steps in found.items():
        send, receive = steps["send"], steps["receive"]
        lines.append(
            f"| {way} | {send['rate']:,.0f} | {send['cpu_us']:.1f} µs "
            f"| {receive['rate']:,.0f} | {receive['cpu_us']:.1f} µs |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="more or fewer messages")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        run, _ = WAYS[arguments.way]
        print(json.dumps(run(arguments.address, arguments.count)))
    else:
        print(table(measure(arguments.rounds, arguments.scale)))


if __name__ == "__main__":
    main()
