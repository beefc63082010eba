"""What many connections and long queues cost others: `python -m tests.bench.crowd`.

Three figures of one broker: its CPU for the heartbeats of many idle connections, its resident bytes
before and after many connections came and went, and how long another connection waits for an answer
while a long queue is purged, expires or is deleted.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qpidha.client.blocking import Client
from qpidha.client.message import Message
from tests.bench.backlog import resident, run, seconds_until
from tests.bench.ours import QpidhaBrokers
from tests.bench.processes import BenchError
from tests.fidelity.raw_types import NULL, string, uint
from tests.hostile.frames import (
    AMQP_HEADER,
    BEGIN,
    CLOSE,
    FLOW,
    OPEN,
    SASL_HEADER,
    Peer,
    attach_frame,
    begin_frame,
    close_frame,
    open_frame,
    performative,
    sasl_init,
)

QUEUE = "long"
HEARTBEAT = b"\0\0\0\x08\x02\0\0\0"
"""A frame without a body."""
LOGIN = SASL_HEADER + sasl_init() + AMQP_HEADER
TICKS = os.sysconf("SC_CLK_TCK")


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Crowd:
    """Idle connections over plain sockets, which send a heartbeat when one is due."""

    def __init__(self, address: str, size: int, idle: float) -> None:
        self.idle = idle
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        opening = performative(
            OPEN, string("crowd"), string("host"), uint(65536), NULL, uint(int(idle * 1000))
        )
        for _ in range(size):
            peer = Peer(address)
            peer.send(LOGIN + opening)
            peer.wait_for(OPEN)
            self._sockets[peer.socket.fileno()] = peer.socket
            self._poll.register(peer.socket, select.EPOLLIN)

    def stay(self, seconds: float) -> int:
        """Stay for so long; return how many heartbeats came. BenchError: a connection ended."""
        end, due, came = time.monotonic() + seconds, time.monotonic(), 0
        while (now := time.monotonic()) < end:
            if now >= due:
                due = now + self.idle / 2
                for each in self._sockets.values():
                    each.send(HEARTBEAT)
            for number, _ in self._poll.poll(0.1):
                data = self._sockets[number].recv(65536)
                if not data:
                    raise BenchError("the broker ended an idle connection")
                came += len(data) // len(HEARTBEAT)
        return came

    def leave(self) -> None:
        """Close all without a word."""
        for each in self._sockets.values():
            each.close()


def heartbeats(brokers: QpidhaBrokers, size: int, idle: float) -> dict[str, Any]:
    """Measure the share of a core that the heartbeats of a crowd cost."""
    pid = brokers.pids()[0]
    crowd = Crowd(brokers.address, size, idle)
    crowd.stay(idle)
    before, began = cpu(pid), time.monotonic()
    came = crowd.stay(2 * idle)
    spent, seconds = cpu(pid) - before, time.monotonic() - began
    crowd.leave()
    return {
        "idle_connections": size,
        "heartbeats_a_second_sent_by_the_broker": round(came / seconds),
        "percent_of_a_core": round(100 * spent / seconds, 1),
    }


def visit(address: str) -> None:
    """Open a connection with a sender and close it."""
    with Peer(address) as peer:
        peer.send(LOGIN + open_frame() + begin_frame() + attach_frame("in", 0, string(QUEUE)))
        peer.send(close_frame())
        peer.wait_for(CLOSE)


def churn(brokers: QpidhaBrokers, size: int) -> dict[str, Any]:
    """Measure what stays resident of connections that came and went."""
    pid = brokers.pids()[0]
    for _ in range(2000):
        visit(brokers.address)
    before = resident(pid)
    for _ in range(size):
        visit(brokers.address)
    after = resident(pid)
    return {"connections_opened_and_closed": size, "resident_kb_more": (after - before) // 1024}


class Ping(threading.Thread):
    """Asks the broker for a flow again and again, over a connection of its own."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._peer = Peer(address)
        self._peer.send(LOGIN + open_frame() + begin_frame())
        self._peer.wait_for(BEGIN)
        # next-incoming-id, windows, no link, echo
        numbers = [uint(number) for number in (0, 2**31 - 1, 0, 2**31 - 1)]
        self._ask = performative(FLOW, *numbers, *[NULL] * 5, b"\x41")
        self._stopping = False
        self.longest = 0.0

    def run(self) -> None:
        while not self._stopping:
            self._peer.received, self._peer.seen = b"", 0
            began = time.monotonic()
            self._peer.send(self._ask)
            self._peer.wait_for(FLOW)
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(0.001)

    def stop(self) -> float:
        """Stop; return the longest wait for an answer, in milliseconds."""
        self._stopping = True
        self.join()
        self._peer.close()
        return self.longest * 1000


def fill(brokers: QpidhaBrokers, messages: int, ttl: float | None = None) -> float:
    """Send small transient messages to the long queue; return how many seconds that took."""
    brokers.declare(QUEUE)
    began = time.monotonic()
    with Client(brokers.address) as client, client.sender(QUEUE, window=2000) as sender:
        for _ in range(messages):
            sender.send_nowait(Message("x", ttl=ttl))
        sender.flush()
    return time.monotonic() - began


def look(brokers: QpidhaBrokers) -> None:
    """Ask for a message of the long queue, all of which have expired: the broker does not search by
    itself before ten minutes.
    """
    with Client(brokers.address) as client, client.receiver(QUEUE) as receiver:
        if any(True for _ in receiver.until_empty(timeout=900)):
            raise BenchError("a message had not expired")


def depth(brokers: QpidhaBrokers) -> int:
    """Count the messages on the long queue; 0 where it is not."""
    rows = brokers.ask(0, "list_queues", name=QUEUE)
    return int(rows[0]["messages"]) if rows else 0


def longest_wait(brokers: QpidhaBrokers, way: str, empty: Callable[[], object]) -> dict[str, float]:
    """Measure how long another connection waits while a long queue becomes empty, and before."""
    ping = Ping(brokers.address)
    ping.start()
    time.sleep(2)
    quiet, ping.longest = ping.longest * 1000, 0.0
    empty()
    seconds_until(lambda: depth(brokers) == 0, "the queue is empty", 900)
    return {
        f"longest_wait_ms_{way}": round(ping.stop(), 1),
        f"longest_wait_ms_before_{way}": round(quiet, 1),
    }


def slices(brokers: QpidhaBrokers, messages: int) -> dict[str, Any]:
    """Measure the longest wait of another connection while a long queue becomes empty."""
    seconds = fill(brokers, messages)
    found = longest_wait(brokers, "purge", lambda: brokers.ask(0, "purge_queue", name=QUEUE))
    fill(brokers, messages)
    found |= longest_wait(brokers, "delete", lambda: brokers.delete(QUEUE))
    # All are there before the first has expired.
    ttl = 2 * seconds + 10
    fill(brokers, messages, ttl)
    last_expires = time.monotonic() + ttl
    there = depth(brokers)
    if there < messages:
        raise BenchError(f"{messages - there} messages expired before the last was sent")
    time.sleep(max(0.0, last_expires + 1 - time.monotonic()))
    found |= longest_wait(brokers, "expiry", lambda: look(brokers))
    return {"messages_of_a_long_queue": messages, **found}


def measure(ask: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Take the figures, each of a fresh broker."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    options = [f"--max-connections={ask.connections + 100}"]
    found: dict[str, Any] = {}
    figures: list[Callable[[QpidhaBrokers], dict[str, Any]]] = [
        lambda brokers: heartbeats(brokers, ask.connections, ask.idle),
        lambda brokers: churn(brokers, 10 * ask.connections),
        lambda brokers: slices(brokers, ask.messages),
    ]
    for number, figure in enumerate(figures):
        brokers = QpidhaBrokers(folder / str(number), 1, options=options)
        brokers.up()
        try:
            brokers.declare(QUEUE)
            found |= figure(brokers)
        finally:
            brokers.down()
    return found


def main() -> int:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--idle", type=float, default=30.0, help="idle-time-out, in seconds")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")
    return run(parser.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
