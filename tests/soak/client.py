"""One client of the soak as a process: a sender to every queue, or the receiver of one, with its own history.

`python -m tests.soak.client sender|receiver --addresses ... --queues ... --history DIR --run R --index N`. Commands come as lines
on standard input (`stop`: a sender finishes what it began; `drain`: a receiver empties its queue and says so; `end`), reports leave as
JSON lines. An operation whose outcome is unknown retires its process number, as in a Jepsen history; the
message is then sent again by the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from proton import Delivery, Event, Link, Message
from proton.handlers import IncomingMessageHandler
from proton.reactor import Container

from tests.soak.history import History
from tests.system.failover_clients import ClientLoop, FailoverClient

CREDIT = 20
FLUSH = 1.0
"""Seconds between the two looks at an empty queue that make it drained."""
REPORT = 0.5


class SoakClient(FailoverClient):
    """What senders and receivers share: process numbers, operation numbers, commands and reports."""

    OPENING = 1.5

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask.addresses, ask.queues[0], heartbeat=ask.heartbeat)
        self.ask = ask
        self.history = history
        self.session = 0
        self.operation = ask.index << 40
        self.stopping = False
        self.draining = False
        self.done = False
        self._reported = 0.0

    @property
    def process(self) -> int:
        """The number of this connection's process."""
        return self.ask.index * 1_000_000 + self.session

    def begin(self) -> int:
        """Number a new operation; numbers of different clients differ."""
        self.operation += 1
        return self.operation

    def open_link(self, container: Container, connection: Any) -> None:
        self.session += 1
        self.open_links(container, connection)

    def open_links(self, container: Container, connection: Any) -> None:
        raise AssertionError("a client has links")

    def report(self) -> dict[str, Any]:
        return {}

    def work(self) -> None:
        if time.monotonic() - self._reported > REPORT:
            self.say()

    def say(self) -> None:
        self._reported = time.monotonic()
        print(json.dumps({"time_ns": time.time_ns(), "losses": len(self.losses), "done": self.done, **self.report()}), flush=True)


class Lane:
    """What a sender sends to one queue."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.link: Any = None
        self.sequence = 0
        self.again: list[int] = []
        self.unsettled: dict[str, tuple[int, int, int]] = {}
        """Tag -> (operation, process, sequence)."""


class Sender(SoakClient):
    """Sends numbered durable messages to every queue at a rate."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.lanes = [Lane(queue) for queue in ask.queues]
        self.accepted = 0
        self._filler = "x" * ask.size
        self._due = 0.0
        self._looked = time.monotonic()

    def open_links(self, container: Container, connection: Any) -> None:
        for lane in self.lanes:
            lane.link = container.create_sender(connection, lane.queue, name=f"soak-{self.ask.index}-{lane.queue}")

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
        self._due = min(self._due + (now - self._looked) * self.ask.rate, self.ask.rate)
        self._looked = now
        for lane in self.lanes:
            self._serve(lane)
        if self.stopping and not any(lane.unsettled or lane.again for lane in self.lanes):
            self.done = True
        super().work()

    def _serve(self, lane: Lane) -> None:
        while lane.link is not None and lane.link.credit > 0 and len(lane.unsettled) < self.ask.window:
            if lane.again:
                sequence = lane.again.pop(0)
            elif self._due >= 1 and not self.stopping:
                self._due -= 1
                lane.sequence += 1
                sequence = lane.sequence
            else:
                return
            operation, process = self.begin(), self.process
            self._note(lane, operation, process, sequence, "invoke")
            body = {"w": self.ask.index, "u": sequence, "x": self._filler}
            message = Message(id=f"{self.ask.index}-{sequence}-{operation}", body=json.dumps(body), durable=True)
            delivery = lane.link.send(message, tag=str(operation))
            lane.unsettled[delivery.tag] = (operation, process, sequence)

    def on_accepted(self, event: Event) -> None:
        self._outcome(event, "ok")

    def on_rejected(self, event: Event) -> None:
        condition = event.delivery.remote.condition
        self._outcome(event, "fail", err=str(condition or "rejected"))

    def on_released(self, event: Event) -> None:
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

    def _note(self, lane: Lane, operation: int, process: int, sequence: int, y: str, err: str = "") -> None:
        i = f"{self.ask.index}-{sequence}-{operation}"
        self.history.op(operation, process, y, "enqueue", q=lane.queue, w=self.ask.index, u=sequence, i=i, err=err)

    def report(self) -> dict[str, Any]:
        return {"accepted": self.accepted, "unsettled": sum(len(lane.unsettled) + len(lane.again) for lane in self.lanes)}


class Receiver(SoakClient):
    """Receives everything of one queue, and settles an acknowledgement when the broker has."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        # Proton's own handler would accept and settle at once.
        self.handlers = [handler for handler in self.handlers if not isinstance(handler, IncomingMessageHandler)]
        self.link: Any = None
        self.waiting: list[int] = []
        """Dequeue operations that credit was given for, oldest first."""
        self.unsettled: dict[Any, tuple[int, int, int, str]] = {}
        self.received = 0
        self._drain_step = ""
        self._drain_since = 0.0
        self._drain_operation = 0
        self._empty = 0
        self._seen_at = 0

    def open_links(self, container: Container, connection: Any) -> None:
        self.link = container.create_receiver(connection, self.address, name=f"soak-{self.ask.index}")
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

    def on_delivery(self, event: Event) -> None:
        """Take a message, or the broker's settlement of an acknowledgement."""
        delivery = event.delivery
        if event.connection != self.connection or not delivery.link.is_receiver:
            return
        if delivery.settled:
            acked = self.unsettled.pop(delivery._impl, None)
            if acked is not None:
                operation, w, u, i = acked
                self.history.op(operation, self.process, "ok", "ack", q=self.address, w=w, u=u, i=i)
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            self._take(delivery)

    def _take(self, delivery: Delivery) -> None:
        message = Message()
        message.decode(delivery.link.recv(delivery.pending))
        delivery.link.advance()
        body = json.loads(message.body)
        w, u, i = int(body["w"]), int(body["u"]), str(message.id)
        operation = self.waiting.pop(0)
        self.received += 1
        self.history.op(operation, self.process, "ok", "dequeue", q=self.address, w=w, u=u, d=message.delivery_count, i=i)
        acknowledgement = self.begin()
        self.history.op(acknowledgement, self.process, "invoke", "ack", q=self.address, w=w, u=u, i=i)
        # The broker's tags are bytes, which proton's `tag` cannot show; the C object lives as long as the delivery.
        self.unsettled[delivery._impl] = (acknowledgement, w, u, i)
        delivery.update(Delivery.ACCEPTED)
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
        return {"received": self.received, "unsettled": len(self.unsettled)}


def commands(client: SoakClient, ending: threading.Event) -> None:
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


def main() -> int:
    """Run one client."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.client")
    parser.add_argument("role", choices=("sender", "receiver"))
    parser.add_argument("--addresses", type=lambda text: text.split(","), required=True)
    parser.add_argument("--queues", type=lambda text: text.split(","), required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--index", type=int, required=True)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--window", type=int, default=50)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--heartbeat", type=float, default=1.0)
    ask = parser.parse_args()
    os.environ["SSL_CERT_FILE"] = os.devnull  # proton would read the system's certificates for every connection
    history = History(ask.history, ask.run)
    loop = ClientLoop()
    client = (Sender if ask.role == "sender" else Receiver)(ask, history)
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
