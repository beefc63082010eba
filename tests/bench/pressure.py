"""Back-pressure for a while: `python -m tests.bench.pressure [pace|memory|disks]`.

`pace`: one sender and one slower consumer, with messages of four sizes, transient and durable, on
one broker and on three. Nothing may be rejected or lost, memory is bounded, and the sender comes to
the pace of the consumer. `memory`: three brokers with as much memory as a process of 300 MB has
take more than that of durable messages; none may end, and all start again with what they have.
`disks`: brokers with disks of 60 MB are filled until the sender waits, and emptied, ten times. On
three what was on its way then may be rejected, for the primary is not told how much space a backup
has beside its limit.

Prints a row for each, with what was wrong, and ends with 1 if anything was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qpidha.client.blocking import Client
from qpidha.client.errors import ClientError, TimedOut
from qpidha.client.message import Message
from tests.bench.backlog import kill, seconds_until
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError

QUEUE = "pressed"
PATIENCE = 300.0
NUMBER = 8
"""Bytes with which each body begins: the number of the message."""
RATES = {100: 1000, 10 << 10: 500, 100 << 10: 50, 1 << 20: 10}
"""Size of the messages -> how many a second the slow consumer takes."""
MOST_MESSAGES, MOST_BYTES = 1000, 100 << 20
"""A queue may hold so many messages, and no more than the default limit of bytes."""
PACE_MEMORY = 128 << 20
PROCESS = 300 << 20
PROCESS_MEMORY = (PROCESS - (64 << 20)) * 60 // 100
"""What `memory-limit 60%` comes to in a cgroup of so many bytes."""
DISK = 60_000_000
FREE = 20 << 20
"""disk-free-limit of the small disks."""
LARGE = 100_000


class Sending(threading.Thread):
    """Sends numbered messages as fast as it may until it is told to stop, or so many."""

    def __init__(self, address: str, size: int, *, durable: bool, most: int = 1 << 60) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._filler = bytes(size - NUMBER)
        self._durable = durable
        self._most = most
        self._is_stopping = False
        self.sent = self.accepted = self.refused = 0
        self.error = ""
        self.start()

    def run(self) -> None:
        try:
            with (
                Client(self._address, timeout=PATIENCE) as client,
                client.sender(QUEUE, on_outcome=self._heard) as sender,
            ):
                while not self._is_stopping and self.sent < self._most:
                    body = self.sent.to_bytes(NUMBER, "big") + self._filler
                    sender.send_nowait(Message(body, durable=self._durable))
                    self.sent += 1
        except (ClientError, OSError) as error:
            self.error = f"sender: {error}"

    def _heard(self, delivery: Any) -> None:
        if delivery.error is None and delivery.outcome.accepted:
            self.accepted += 1
        else:
            self.refused += 1

    def stop(self) -> None:
        """Send no more; what is sent has yet to be accepted."""
        self._is_stopping = True


class Taking(threading.Thread):
    """Takes messages at a pace until it is told to hurry, and then until all are there."""

    def __init__(self, address: str, sending: Sending, rate: float) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._sending = sending
        self._rate = rate
        self._is_hurried = False
        self._last = -1
        self.taken = self.out_of_turn = 0
        self.error = ""
        self.start()

    def run(self) -> None:
        try:
            with (
                Client(self._address, timeout=PATIENCE) as client,
                client.receiver(QUEUE, credit=10) as receiver,
            ):
                due = time.monotonic()
                while not self._is_over():
                    try:
                        message = receiver.receive(0.5)
                    except TimedOut:
                        continue
                    number = int.from_bytes(message.body[:NUMBER], "big")
                    self.out_of_turn += number <= self._last
                    self._last = number
                    self.taken += 1
                    message.accept()
                    if not self._is_hurried:
                        due = max(due + 1 / self._rate, time.monotonic() - 1)
                        time.sleep(max(0.0, due - time.monotonic()))
        except (ClientError, OSError) as error:
            self.error = f"consumer: {error}"

    def _is_over(self) -> bool:
        sending = self._sending
        return self._is_hurried and not sending.is_alive() and self.taken >= sending.accepted

    def hurry(self) -> None:
        """Take the rest as fast as it comes."""
        self._is_hurried = True


def finish(sending: Sending, taking: Taking, *, may_refuse: bool = False) -> list[str]:
    """Send no more, take the rest; say what was wrong with the messages."""
    sending.stop()
    taking.hurry()
    for thread in (sending, taking):
        thread.join(PATIENCE)
    found = [sending.error, taking.error]
    if sending.is_alive() or taking.is_alive():
        found.append("did not come to an end")
    if sending.refused and not may_refuse:
        found.append(f"{sending.refused} rejected")
    if taking.out_of_turn or taking.taken != sending.accepted:
        found.append(
            f"{taking.taken} of {sending.accepted} accepted came, {taking.out_of_turn} out of turn"
        )
    return [text for text in found if text]


@dataclass
class Watch:
    """The largest figures of some brokers that were seen."""

    brokers: QpidhaBrokers
    limit: int
    depth: int = 0
    used: int = 0
    own: int = 0
    pids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pids = self.brokers.pids()

    def sees_stop(self) -> bool:
        """Look, and tell whether the queue has stopped its senders."""
        (row,) = self.brokers.ask(0, "list_queues", name=QUEUE)
        self.look()
        return bool(row["flow_stopped"])

    def look(self) -> None:
        """Look once."""
        rows = self.brokers.ask(0, "list_queues", name=QUEUE)
        self.depth = max(self.depth, int(rows[0]["bytes"]))
        for number in range(len(self.pids)):
            memory = self.brokers.ask(number, "status")["memory"]
            self.used = max(self.used, int(memory["used"]))
            self.own = max(self.own, own_memory(self.pids[number]))

    def wrong(self) -> list[str]:
        """Say what is wrong with the brokers."""
        found = []
        if self.used > self.limit * 6 // 5:  # With what was on its way when senders had to wait.
            found.append(f"{self.used / 1e6:.0f} MB in use, of {self.limit / 1e6:.0f}")
        ended = [process for process in self.brokers.running if process.poll() is not None]
        if ended or self.brokers.pids() != self.pids:
            found.append(f"{len(ended)} brokers ended")
        return found


def own_memory(pid: int) -> int:
    """Return the bytes that a process has for itself, which a cgroup cannot take back."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) << 10


def declare(brokers: QpidhaBrokers, most: int, *, durable: bool) -> None:
    """Make the queue, with a limit in bytes; 0 is none."""
    arguments = {"qpid.max_size": most}
    brokers.ask(0, "declare_queue", name=QUEUE, durable=durable, arguments=arguments)


@contextlib.contextmanager
def running(folder: Path, count: int, *options: str) -> Iterator[QpidhaBrokers]:
    """Have brokers run."""
    brokers = QpidhaBrokers(folder, count, options=options)
    brokers.up()
    try:
        yield brokers
    finally:
        brokers.down()


Row = dict[str, Any]


def pace(folder: Path, ask: argparse.Namespace) -> Iterator[Row]:
    """Give a row for each size, transient and durable, on one broker and on three."""
    for count in (1, 3):
        place = folder / f"pace{count}"
        with running(place, count, f"--memory-limit={PACE_MEMORY}") as brokers:
            for size, rate in RATES.items():
                for durable in (False, True):
                    yield pace_of(brokers, size, rate, durable=durable, seconds=ask.seconds)


def pace_of(brokers: QpidhaBrokers, size: int, rate: int, *, durable: bool, seconds: float) -> Row:
    """Send until the queue is full, then send and consume for so many seconds."""
    limit = min(MOST_MESSAGES * size, MOST_BYTES)
    declare(brokers, limit, durable=durable)
    watch = Watch(brokers, PACE_MEMORY)
    sending = Sending(brokers.address, size, durable=durable)
    seconds_until(watch.sees_stop, "the sender has to wait", PATIENCE)
    taking = Taking(brokers.address, sending, rate)
    began, accepted = time.monotonic(), sending.accepted
    while time.monotonic() - began < seconds:
        watch.look()
        time.sleep(0.2)
    spent = time.monotonic() - began
    accepted, taken = sending.accepted - accepted, taking.taken
    wrong = finish(sending, taking) + watch.wrong()
    if watch.depth > limit:
        wrong.append(f"{watch.depth} bytes on the queue, of {limit}")
    # Between where senders stop and where they go on, and what is on its way.
    if abs(accepted - taken) > limit // size // 3:
        wrong.append("the sender had another pace")
    brokers.delete(QUEUE)
    return {
        "what": f"pace, {size:,} B {'durable' if durable else 'transient'}",
        "brokers": len(brokers.ports),
        "messages": taking.taken,
        "rejected": sending.refused,
        "accepted/s": round(accepted / spent),
        "consumed/s": round(taken / spent),
        "depth MB": round(watch.depth / 1e6, 1),
        "used MB": round(watch.used / 1e6),
        "own MB": round(watch.own / 1e6),
        "wrong": "; ".join(wrong),
    }


def memory(folder: Path, ask: argparse.Namespace) -> Iterator[Row]:
    """Fill three brokers of 300 MB with more than that; kill all, and start them again."""
    count = ask.megabytes * 1_000_000 // LARGE
    with running(folder / "memory", 3, f"--memory-limit={PROCESS_MEMORY}") as brokers:
        declare(brokers, 0, durable=True)
        watch = Watch(brokers, PROCESS_MEMORY)
        sending = Sending(brokers.address, LARGE, durable=True, most=count)
        while sending.is_alive():
            watch.look()
            time.sleep(0.05)
        wrong = [sending.error] if sending.error else []
        wrong += watch.wrong()
        for number in range(3):
            kill(brokers, number)
        brokers.up()
        watch.pids = brokers.pids()
        watch.look()
        taking = Taking(brokers.address, sending, 1)
        wrong += finish(sending, taking)
        watch.look()
        wrong += watch.wrong()
        if watch.own > PROCESS:
            wrong.append(f"{watch.own / 1e6:.0f} MB of a broker's own")
        yield {
            "what": f"memory, {ask.megabytes} MB, all killed",
            "brokers": 3,
            "messages": taking.taken,
            "rejected": sending.refused,
            "depth MB": round(watch.depth / 1e6, 1),
            "used MB": round(watch.used / 1e6),
            "own MB": round(watch.own / 1e6),
            "wrong": "; ".join(wrong),
        }


def disks(folder: Path, ask: argparse.Namespace) -> Iterator[Row]:
    """Fill small disks and empty them again, on one broker and on three."""
    for count in (1, 3):
        places = [folder / f"disks{count}" / f"b{number + 1}" / "data" for number in range(count)]
        with (
            small_disks(places),
            running(folder / f"disks{count}", count, f"--disk-free-limit={FREE}") as brokers,
        ):
            declare(brokers, 0, durable=True)
            yield rounds_of(brokers, places, ask.rounds)


def rounds_of(brokers: QpidhaBrokers, places: list[Path], rounds: int) -> Row:
    """Fill and empty so many times."""
    pids, wrong, total, rejected, least = brokers.pids(), [], 0, 0, DISK
    for _ in range(rounds):
        sending = Sending(brokers.address, LARGE, durable=True)
        seconds_until(lambda: "disk" in withheld(brokers), "senders wait for the disk", 120)
        least = min(least, *map(free, places))
        taking = Taking(brokers.address, sending, 1000)
        wrong += finish(sending, taking, may_refuse=len(places) > 1)
        total += taking.taken
        rejected += sending.refused
        seconds_until(lambda: not withheld(brokers), "senders get credit again", 120)
    if brokers.pids() != pids or any(process.poll() is not None for process in brokers.running):
        wrong.append("a broker ended")
    if least < FREE * 9 // 10:
        wrong.append("the limit did not hold")
    return {
        "what": f"disks, {rounds} times",
        "brokers": len(places),
        "messages": total,
        "rejected": rejected,
        "free MB": round(least / 1e6, 1),
        "wrong": "; ".join(wrong),
    }


def withheld(brokers: QpidhaBrokers) -> str:
    """Return why senders get no credit, or nothing."""
    return str(brokers.ask(0, "explain")["withholds"])


def free(place: Path) -> int:
    """Count the bytes that are left on a disk."""
    found = os.statvfs(place)
    return found.f_bavail * found.f_frsize


@contextlib.contextmanager
def small_disks(places: list[Path]) -> Iterator[None]:
    """Mount small file systems in memory; BenchError where that is not allowed."""
    mounted: list[Path] = []
    try:
        for place in places:
            place.mkdir(parents=True)
            words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(place)]
            if subprocess.run(words, check=False, capture_output=True).returncode:
                raise BenchError("mounting a small file system needs root")
            mounted.append(place)
        yield
    finally:
        for place in mounted:
            subprocess.run(["umount", "-l", str(place)], check=False)


PARTS: dict[str, Callable[[Path, argparse.Namespace], Iterator[Row]]] = {
    "pace": pace,
    "memory": memory,
    "disks": disks,
}
COLUMNS = {
    "what": 32,
    "brokers": 7,
    "messages": 8,
    "rejected": 8,
    "accepted/s": 10,
    "consumed/s": 10,
    "depth MB": 8,
    "used MB": 7,
    "own MB": 6,
    "free MB": 7,
    "wrong": 0,
}


def line(row: Row) -> str:
    """Write a row of the table."""
    return "  ".join(
        f"{row.get(name, '')!s:{'<' if name in ('what', 'wrong') else '>'}{width}}"
        for name, width in COLUMNS.items()
    ).rstrip()


def main() -> int:
    """Do as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["all", *PARTS], default="all")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each row of pace")
    parser.add_argument("--rounds", type=int, default=10, help="how often the disks are filled")
    parser.add_argument("--megabytes", type=int, default=480, help="for brokers of 300 MB")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    ask = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="qpidha-bench-"))
    rows: list[Row] = []
    try:
        if ask.output == "text":
            print(line({name: name for name in COLUMNS}), flush=True)
        for part in PARTS if ask.part == "all" else [ask.part]:
            for row in PARTS[part](folder, ask):
                rows.append(row)
                print(json.dumps(row) if ask.output == "json" else line(row), flush=True)
    except (BenchError, subprocess.TimeoutExpired) as failure:
        print(f"bench: error: {failure}; logs are in {folder}", file=sys.stderr)
        return 1
    if any(row["wrong"] for row in rows):
        print(f"bench: logs are in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
