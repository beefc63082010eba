"""One client of the verification workload, a process: a sender to every queue, the receiver of one, or one who wants locks.

`python -m qpidha.cli.verify_client sender|receiver|locker --addresses ... --queues ... --history DIR --run R --index N`. Commands come
as lines on standard input (`stop`: finish what was begun; `drain`: a receiver empties its queue and says so; `end`), reports leave as
JSON lines. Everything is written into a history of its own before it counts. A message whose outcome is not known is sent again.
User and password come in QPIDHA_VERIFY_USER and QPIDHA_VERIFY_PASSWORD.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from proton import Delivery, Event, Link, Message
from proton.reactor import Container

from qpidha.cli.verify_locks import Founder, Locker
from qpidha.cli.verify_process import REPORT, Settling, VerifyClient
from qpidha.connector.failover_client import ClientLoop, Login
from qpidha.pipeline.history import History

CREDIT = 20
FLUSH = 1.0
"""Seconds between the two looks at an empty queue that make it drained."""
BEHIND = 10.0
"""Seconds of its schedule that a sender makes up for after an outage; an operator's cluster is not to be flooded."""


class Lane:
    """What a sender sends to one queue."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.link: Any = None
        self.sequence = 0
        self.again: list[int] = []
        self.fresh: deque[tuple[int, int]] = deque()
        """(sequence, intended time) of what is due and was not sent yet."""
        self.unsettled: dict[str, tuple[int, int, int]] = {}
        """Tag -> (operation, process, sequence)."""


class Sender(VerifyClient):
    """Sends numbered durable messages to all queues in turn, by the clock."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.lanes = [Lane(queue) for queue in ask.queues]
        self.accepted = self.attempts = 0
        self._filler = "x" * ask.size
        self._next = time.monotonic()
        """When the next message is due."""
        self._turn = 0

    def open_links(self, container: Container, connection: Any) -> None:
        for lane in self.lanes:
            lane.link = container.create_sender(connection, lane.queue, name=f"verify-{self.ask.index}-{lane.queue}")

    def link_lost(self) -> None:
        for lane in self.lanes:
            for operation, process, sequence in lane.unsettled.values():
                self._note(lane, operation, process, sequence, "info", err="connection lost")
            lane.again = sorted({*lane.again, *(sequence for _, _, sequence in lane.unsettled.values())})
            lane.unsettled.clear()
            lane.link = None

    def on_sendable(self, event: Event) -> None:
        """Sent by the clock, see `work`."""

    def work(self) -> None:
        now = time.monotonic()
        self._next = max(self._next, now - BEHIND)
        while self._next <= now and not self.stopping:
            lane = self.lanes[self._turn % len(self.lanes)]
            self._turn += 1
            lane.sequence += 1
            lane.fresh.append((lane.sequence, int(self._next * 1e9)))
            self._next += 1 / self.ask.rate
        for lane in self.lanes:
            self._serve(lane)
        if self.stopping and not any(lane.unsettled or lane.again or lane.fresh for lane in self.lanes):
            self.done = True
        super().work()

    def _serve(self, lane: Lane) -> None:
        while lane.link is not None and lane.link.credit > 0 and len(lane.unsettled) < self.ask.window:
            intended: int | None = None
            if lane.again:
                sequence = lane.again.pop(0)
            elif lane.fresh:
                sequence, intended = lane.fresh.popleft()
            else:
                return
            operation, process = self.begin(), self.process
            self._note(lane, operation, process, sequence, "invoke", intended=intended)
            self.attempts += 1
            body = {"w": self.ask.index, "u": sequence, "x": self._filler}
            message = Message(id=self._id(sequence, operation), body=json.dumps(body), durable=True)
            delivery = lane.link.send(message, tag=str(operation))
            lane.unsettled[delivery.tag] = (operation, process, sequence)

    def _id(self, sequence: int, operation: int) -> str:
        """Return the id of a message, which no other run has."""
        return f"{self.ask.run}-{self.ask.index}-{sequence}-{operation}"

    def on_accepted(self, event: Event) -> None:
        """The broker has it."""
        self._outcome(event, "ok")

    def on_rejected(self, event: Event) -> None:
        """The broker will not have it."""
        condition = event.delivery.remote.condition
        self._outcome(event, "fail", err=str(condition or "rejected"))

    def on_released(self, event: Event) -> None:
        """The broker did not take it, or says that it cannot tell."""
        modified = event.delivery.remote_state == Delivery.MODIFIED
        self._outcome(event, "info" if modified else "fail", err="modified" if modified else "released")

    def _outcome(self, event: Event, outcome: str, err: str = "") -> None:
        if event.connection != self.connection:
            return
        for lane in self.lanes:
            sent = lane.unsettled.pop(event.delivery.tag, None)
            if sent is not None:
                self._note(lane, *sent, outcome, err=err)
                self.accepted += outcome == "ok"
                if outcome != "ok":
                    lane.again = sorted({*lane.again, sent[2]})

    def _note(
        self, lane: Lane, operation: int, process: int, sequence: int, y: str, *, err: str = "", intended: int | None = None
    ) -> None:  # fmt: skip
        i = self._id(sequence, operation)
        self.history.op(operation, process, y, "enqueue", q=lane.queue, w=self.ask.index, u=sequence, i=i, j=intended, err=err)

    def report(self) -> dict[str, Any]:
        waiting = sum(len(lane.unsettled) + len(lane.again) + len(lane.fresh) for lane in self.lanes)
        return {"attempts": self.attempts, "accepted": self.accepted, "unsettled": waiting}


class Receiver(Settling):
    """Receives everything of one queue, and settles an acknowledgement when the broker has."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.link: Any = None
        self.waiting: list[int] = []
        """Dequeue operations that credit was given for, oldest first."""
        self.unsettled: dict[Any, tuple[int, int, int, str]] = {}
        self.received = self.foreign = 0
        self._drain_step = ""
        self._drain_since = 0.0
        self._drain_operation = 0
        self._empty = 0
        self._seen_at = 0

    def open_links(self, container: Container, connection: Any) -> None:
        self.link = container.create_receiver(connection, self.address, name=f"verify-{self.ask.index}")
        self.link.rcv_settle_mode = Link.RCV_SECOND
        self._drain_step = ""
        self._empty = 0
        self._give(CREDIT)

    def _give(self, credit: int) -> None:
        for _ in range(credit):
            operation = self.begin()
            self.waiting.append(operation)
            self.history.op(operation, self.process, "invoke", "dequeue", q=self.address)
        self.link.flow(credit)

    def link_lost(self) -> None:
        for operation in self.waiting:
            self.history.op(operation, self.process, "info", "dequeue", q=self.address, err="connection lost")
        for operation, w, u, i in self.unsettled.values():
            self.history.op(operation, self.process, "info", "ack", q=self.address, w=w, u=u, i=i, err="connection lost")
        self.waiting.clear()
        self.unsettled.clear()
        self.link = None

    def settled(self, delivery: Delivery) -> None:
        acked = self.unsettled.pop(delivery._impl, None)
        if acked is not None:
            operation, w, u, i = acked
            self.history.op(operation, self.process, "ok", "ack", q=self.address, w=w, u=u, i=i)

    def take(self, delivery: Delivery, message: Message) -> None:
        operation = self.waiting.pop(0)
        self.received += 1
        # False is what a broker says that does not keep track; only true says something.
        count, first = message.delivery_count, 1 if message.first_acquirer else None
        try:
            body = json.loads(message.body)
            w, u, i = int(body["w"]), int(body["u"]), str(message.id)
        except (ValueError, TypeError, KeyError):
            # Not of this run: it was on the queue before, or somebody else sends to it.
            self.foreign += 1
            self.history.op(operation, self.process, "ok", "dequeue", q=self.address, d=count, fa=first, i=str(message.id or ""))
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
            self._again()
            return
        self.history.op(operation, self.process, "ok", "dequeue", q=self.address, w=w, u=u, d=count, fa=first, i=i)
        acknowledgement = self.begin()
        self.history.op(acknowledgement, self.process, "invoke", "ack", q=self.address, w=w, u=u, i=i)
        # The broker's tags are bytes, which proton's `tag` cannot show; the C object lives as long as the delivery.
        self.unsettled[delivery._impl] = (acknowledgement, w, u, i)
        delivery.update(Delivery.ACCEPTED)
        self._again()

    def _again(self) -> None:
        if not self._drain_step:
            self._give(1)

    def work(self) -> None:
        if self.draining and self.link is not None and not self.done:
            self._drain()
        super().work()

    def _drain(self) -> None:
        """Ask for all there is, twice; drained when nothing came the second time and everything is settled."""
        now = time.monotonic()
        if not self._drain_operation:
            self._drain_operation = self.begin()
            self.history.op(self._drain_operation, self.process, "invoke", "drain", q=self.address)
        if self._drain_step == "" and now - self._drain_since > FLUSH:
            self._seen_at = self.received
            self._drain_step = "asked"
            self._drain_since = now
            if not self.link.credit:
                self._give(CREDIT)
            self.link.drain(0)
        elif self._drain_step == "asked" and not self.link.draining():
            for operation in self.waiting:  # their credit was taken back
                self.history.op(operation, self.process, "fail", "dequeue", q=self.address, err="drained")
            self.waiting.clear()
            self.link.drain_mode = False
            self._empty = self._empty + 1 if self.received == self._seen_at and not self.unsettled else 0
            self._drain_step = ""
            self._drain_since = now
            if self._empty == 2:
                self.history.op(self._drain_operation, self.process, "ok", "drain", q=self.address)
                self.done = True

    def report(self) -> dict[str, Any]:
        return {"received": self.received, "foreign": self.foreign, "unsettled": len(self.unsettled)}


ROLES: dict[str, type[VerifyClient]] = {"sender": Sender, "receiver": Receiver, "locker": Locker, "founder": Founder}


def commands(client: VerifyClient, ending: threading.Event) -> None:
    """Take commands until standard input ends; then end."""
    for line in sys.stdin:
        word = line.strip()
        if word == "stop":
            client.stopping = True
        elif word == "drain":
            client.draining = True
        elif word == "end":
            break
    ending.set()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m qpidha.cli.verify_client")
    parser.add_argument("role", choices=list(ROLES))
    parser.add_argument("--addresses", type=lambda text: text.split(","), required=True)
    parser.add_argument("--queues", type=lambda text: text.split(","), required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--window", type=int, default=50)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--patience", type=float, default=5.0, help="seconds to wait for a lock")
    parser.add_argument("--heartbeat", type=float, default=1.0)
    parser.add_argument("--locks", action="store_true", help="a founder: the queues are locks")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--trusted", default="", help="file with the certificates of authorities")
    ask = parser.parse_args(arguments)
    user, password = os.environ.get("QPIDHA_VERIFY_USER", ""), os.environ.get("QPIDHA_VERIFY_PASSWORD", "")
    ask.login = Login(user, password, encrypted=ask.tls, trusted=ask.trusted)
    return ask


def main(arguments: list[str] | None = None) -> int:
    """Run one client."""
    ask = parse(arguments)
    if not ask.tls:
        os.environ["SSL_CERT_FILE"] = os.devnull  # proton would read the system's certificates for every connection
    history = History(ask.history, ask.run)
    loop = ClientLoop()
    client = ROLES[ask.role](ask, history)
    client.loop, client.owns_loop = loop, False
    ending = threading.Event()
    threading.Thread(target=commands, args=(client, ending), daemon=True).start()
    with loop, client:
        while not ending.wait(REPORT):
            if not loop.is_alive:
                return 1  # its traceback is in the log; the history stays open, as after a crash
        client.say()
    history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
