"""One client of the verification workload, a process: a sender to every queue, the receiver of one,
or one who wants locks.

`python -m qpidha.pipeline.workload.clients sender|receiver|locker --addresses ... --queues ...
--history DIR --run R --index N`. Commands come as lines on standard input (`stop`: finish what was
begun; `drain`: a receiver empties its queue and says so; `end`), reports leave as JSON lines.
Everything is written into a history of its own before it counts. A message whose outcome is not
known is sent again. User and password come in QPIDHA_VERIFY_USER and QPIDHA_VERIFY_PASSWORD.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qpidha.client.blocking import Client, Receiver, Sender
from qpidha.client.errors import ClientError
from qpidha.client.links import Delivery, Received
from qpidha.client.message import Message
from qpidha.pipeline.history import History
from qpidha.pipeline.workload.locks import Founder, Locker
from qpidha.pipeline.workload.process import Settling, VerifyClient

CREDIT = 20
FLUSH = 1.0
"""Seconds between the two looks at an empty queue that make it drained."""
BEHIND = 10.0
"""Seconds of its schedule that a sender makes up for after an outage; an operator's cluster is not
to be flooded.
"""


class Lane:
    """What a sender sends to one queue."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.sender: Sender | None = None
        self.sequence = 0
        self.again: list[int] = []
        self.fresh: deque[tuple[int, int]] = deque()
        """(sequence, intended time) of what is due and was not sent yet."""
        self.unsettled: dict[Delivery, tuple[int, int, int]] = {}
        """Delivery -> (operation, process, sequence)."""


class SenderClient(VerifyClient):
    """Sends numbered durable messages to all queues in turn, by the clock."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.lanes = [Lane(queue) for queue in ask.queues]
        self.accepted = self.attempts = 0
        self._filler = "x" * ask.size
        self._next = time.monotonic()
        """When the next message is due."""
        self._lane = 0

    def attach(self, client: Client) -> None:
        for lane in self.lanes:
            lane.sender = client.sender(
                lane.queue,
                window=self.ask.window,
                name=f"verify-{self.index}-{lane.queue}",
                on_outcome=self._hear(lane),
            )

    def _hear(self, lane: Lane) -> Callable[[Delivery], None]:
        return lambda delivery: self.heard.append(lambda: self._outcome(lane, delivery))

    def link_lost(self) -> None:
        for lane in self.lanes:
            for operation, process, sequence in lane.unsettled.values():
                self._note(lane, operation, process, sequence, "info", err="connection lost")
            lane.again = sorted(
                {*lane.again, *(sequence for _, _, sequence in lane.unsettled.values())}
            )
            lane.unsettled.clear()
            lane.sender = None

    def work(self) -> None:
        now = time.monotonic()
        self._next = max(self._next, now - BEHIND)
        while self._next <= now and not self.stopping:
            lane = self.lanes[self._lane % len(self.lanes)]
            self._lane += 1
            lane.sequence += 1
            lane.fresh.append((lane.sequence, int(self._next * 1e9)))
            self._next += 1 / self.ask.rate
        for lane in self.lanes:
            if lane.sender is not None:
                self._serve(lane, lane.sender)
        if self.stopping and not any(
            lane.unsettled or lane.again or lane.fresh for lane in self.lanes
        ):
            self.done = True

    def _serve(self, lane: Lane, sender: Sender) -> None:
        while sender.credit > 0 and len(lane.unsettled) < self.ask.window:
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
            message = Message(
                json.dumps(body), message_id=self._id(sequence, operation), durable=True
            )
            try:
                lane.unsettled[sender.send_nowait(message)] = (operation, process, sequence)
            except ClientError as error:
                # It was never on its way: the link or the connection had ended before.
                self._note(lane, operation, process, sequence, "fail", err=error.text)
                lane.again = sorted({*lane.again, sequence})
                raise

    def _id(self, sequence: int, operation: int) -> str:
        """Return the id of a message, which no other run has."""
        return f"{self.ask.run}-{self.ask.index}-{sequence}-{operation}"

    def _outcome(self, lane: Lane, delivery: Delivery) -> None:
        outcome = delivery.outcome
        if outcome is None or delivery not in lane.unsettled:
            return  # The connection is lost: `link_lost` sees to it.
        operation, process, sequence = lane.unsettled.pop(delivery)
        if outcome.accepted:
            self.accepted += 1
            self._note(lane, operation, process, sequence, "ok")
            return
        lane.again = sorted({*lane.again, sequence})
        # A broker that modifies says that it cannot tell.
        y = "info" if outcome.state == "modified" else "fail"
        condition = ": ".join(part for part in (outcome.condition, outcome.description) if part)
        err = (condition or "rejected") if outcome.state == "rejected" else outcome.state
        self._note(lane, operation, process, sequence, y, err=err)

    def _note(
        self,
        lane: Lane,
        operation: int,
        process: int,
        sequence: int,
        y: str,
        *,
        err: str = "",
        intended: int | None = None,
    ) -> None:
        i = self._id(sequence, operation)
        self.history.op(
            operation,
            process,
            y,
            "enqueue",
            q=lane.queue,
            w=self.ask.index,
            u=sequence,
            i=i,
            j=intended,
            err=err,
        )

    def report(self) -> dict[str, Any]:
        waiting = sum(
            len(lane.unsettled) + len(lane.again) + len(lane.fresh) for lane in self.lanes
        )
        return {"attempts": self.attempts, "accepted": self.accepted, "unsettled": waiting}


class ReceiverClient(Settling):
    """Receives everything of one queue, and settles an acknowledgement when the broker has."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.receiver: Receiver | None = None
        self.waiting: deque[int] = deque()
        """Dequeue operations that credit was given for, oldest first."""
        self.unsettled: dict[Received, tuple[int, int, int, str]] = {}
        self.received = self.foreign = 0
        self._drained_at = 0.0
        self._drain_operation = 0
        self._empty = 0

    def attach(self, client: Client) -> None:
        self.receiver = self.add_receiver(client, self.address)
        self._empty = 0
        self._give(self.receiver, CREDIT)

    def _give(self, receiver: Receiver, credit: int) -> None:
        for _ in range(credit):
            operation = self.begin()
            self.waiting.append(operation)
            self.history.op(operation, self.process, "invoke", "dequeue", q=self.address)
        receiver.add_credit(credit)

    def link_lost(self) -> None:
        for operation in self.waiting:
            self.history.op(
                operation, self.process, "info", "dequeue", q=self.address, err="connection lost"
            )
        for operation, w, u, i in self.unsettled.values():
            self.history.op(
                operation,
                self.process,
                "info",
                "ack",
                q=self.address,
                w=w,
                u=u,
                i=i,
                err="connection lost",
            )
        self.waiting.clear()
        self.unsettled.clear()
        self.receiver = None
        super().link_lost()

    def settled(self, message: Received) -> None:
        acked = self.unsettled.pop(message, None)
        if acked is not None:
            operation, w, u, i = acked
            self.history.op(operation, self.process, "ok", "ack", q=self.address, w=w, u=u, i=i)

    def take(self, message: Received) -> None:
        operation = self.waiting.popleft()
        self.received += 1
        # False is what a broker says that does not keep track; only true says something.
        count, first = message.header.delivery_count, 1 if message.header.first_acquirer else None
        identity = message.properties.message_id
        try:
            body = json.loads(message.body)
            w, u, i = int(body["w"]), int(body["u"]), str(identity)
        except (ValueError, TypeError, KeyError):
            # Not of this run: it was on the queue before, or somebody else sends to it.
            self.foreign += 1
            self.history.op(
                operation,
                self.process,
                "ok",
                "dequeue",
                q=self.address,
                d=count,
                fa=first,
                i=str(identity or ""),
            )
            message.accept()
            return
        self.history.op(
            operation,
            self.process,
            "ok",
            "dequeue",
            q=self.address,
            w=w,
            u=u,
            d=count,
            fa=first,
            i=i,
        )
        acknowledgement = self.begin()
        self.history.op(
            acknowledgement, self.process, "invoke", "ack", q=self.address, w=w, u=u, i=i
        )
        self.unsettled[message] = (acknowledgement, w, u, i)
        message.accept()

    def work(self) -> None:
        super().work()
        if self.receiver is None:
            return
        if self.draining and not self.done and time.monotonic() - self._drained_at > FLUSH:
            self._drain(self.receiver)
        elif not self.draining and len(self.waiting) < CREDIT:
            self._give(self.receiver, CREDIT - len(self.waiting))

    def _drain(self, receiver: Receiver) -> None:
        """Ask for all there is, until twice nothing came and everything is settled."""
        if not self._drain_operation:
            self._drain_operation = self.begin()
            self.history.op(self._drain_operation, self.process, "invoke", "drain", q=self.address)
        before = self.received
        if len(self.waiting) < CREDIT:
            self._give(receiver, CREDIT - len(self.waiting))
        receiver.drain()
        self.take_all(receiver)
        for operation in self.waiting:  # their credit was taken back
            self.history.op(
                operation, self.process, "fail", "dequeue", q=self.address, err="drained"
            )
        self.waiting.clear()
        came = self.received > before
        self._empty = 0 if came or self.unsettled else self._empty + 1
        self._drained_at = 0.0 if came else time.monotonic()
        if self._empty == 2:
            self.history.op(self._drain_operation, self.process, "ok", "drain", q=self.address)
            self.done = True

    def report(self) -> dict[str, Any]:
        return {
            "received": self.received,
            "foreign": self.foreign,
            "unsettled": len(self.unsettled),
        }


ROLES: dict[str, type[VerifyClient]] = {
    "sender": SenderClient,
    "receiver": ReceiverClient,
    "locker": Locker,
    "founder": Founder,
}


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
    parser = argparse.ArgumentParser(prog="python -m qpidha.pipeline.workload.clients")
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
    ask.user = os.environ.get("QPIDHA_VERIFY_USER", "")
    ask.password = os.environ.get("QPIDHA_VERIFY_PASSWORD", "")
    return ask


def main(arguments: list[str] | None = None) -> int:
    """Run one client."""
    ask = parse(arguments)
    history = History(ask.history, ask.run)
    client = ROLES[ask.role](ask, history)
    ending = threading.Event()
    threading.Thread(target=commands, args=(client, ending), daemon=True).start()
    client.run(ending)
    client.say()
    history.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
