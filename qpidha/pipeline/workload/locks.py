"""Locks of the verification workload: a queue with one message is a lock, and whoever has the
message holds it.

To hold a lock is to have its message unsettled; to give it back is to release the message, which is
done when the broker settles. Here are those who make the queues and put the messages in, and those
who want the locks.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from qpidha.client.blocking import Client, Receiver
from qpidha.client.links import Received
from qpidha.client.message import Message
from qpidha.pipeline.history import History
from qpidha.pipeline.workload.process import Settling, VerifyClient


class Locker(Settling):
    """Takes one lock after the other, holds it for a moment, and gives it back."""

    HOLDS = (0.02, 0.2)
    """Seconds for which a lock is held."""

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.choices = random.Random(ask.index)
        self.acquired = self.released = 0
        self._lock = ""
        self._operation = 0
        self._step = ""
        """What is under way: acquire, hold, release, or nothing."""
        self._until = 0.0
        self._message: Received | None = None

    def attach(self, client: Client) -> None:
        for queue in self.ask.queues:
            self.add_receiver(client, queue)

    def link_lost(self) -> None:
        if self._step in ("acquire", "release"):
            self._note("info", self._step, err="connection lost")
        if self._step in ("hold", "release"):
            self._operation = self.begin()
            self._note("info", "lost", err="connection lost")
        self._message = None
        self._step = ""
        super().link_lost()

    def work(self) -> None:
        super().work()
        now = time.monotonic()
        if self._step == "" and self.receivers and not self.stopping:
            self._lock = self.choices.choice(list(self.receivers))
            self._operation = self.begin()
            self._step = "acquire"
            self._until = now + self.ask.patience
            self._note("invoke", "acquire")
            self.receivers[self._lock].add_credit(1)
        elif self._step == "acquire" and now >= self._until:
            self._give_up(self.receivers[self._lock])
        elif self._step == "hold" and (now >= self._until or self.stopping):
            self._operation = self.begin()
            self._step = "release"
            self._note("invoke", "release")
            assert self._message is not None
            self._message.release()
        self.done = self.stopping and self._step == ""

    def _give_up(self, receiver: Receiver) -> None:
        """Take the credit back; the lock may come at the last moment."""
        receiver.drain()
        self.take_all(receiver)
        if self._step == "acquire":
            self._note("fail", "acquire", err="not within the time")
            self._step = ""

    def take(self, message: Received) -> None:
        if self._step != "acquire":
            message.release()  # nobody asked for it
            return
        self.acquired += 1
        self._note("ok", "acquire", d=message.header.delivery_count)
        self._message = message
        self._step = "hold"
        self._until = time.monotonic() + self.choices.uniform(*self.HOLDS)

    def settled(self, message: Received) -> None:
        if self._step == "release" and message is self._message:
            self.released += 1
            self._note("ok", "release")
            self._message = None
            self._step = ""

    def _note(self, y: str, f: str, *, d: int | None = None, err: str = "") -> None:
        self.history.op(self._operation, self.process, y, f, q=self._lock, d=d, err=err)

    def report(self) -> dict[str, Any]:
        return {
            "acquired": self.acquired,
            "released": self.released,
            "unsettled": int(self._step not in ("", "acquire")),
        }


class Founder(VerifyClient):
    """Makes the queues by attaching to them, and puts the one message into those that are locks;
    then it is done.
    """

    def __init__(self, ask: argparse.Namespace, history: History) -> None:
        super().__init__(ask, history)
        self.sent: set[str] = set()
        self.ready: set[str] = set()

    def attach(self, client: Client) -> None:
        for queue in self.ask.queues:
            if queue in self.ready:
                continue
            sender = client.sender(
                queue,
                name=f"verify-{self.index}-{queue}",
                capabilities=("create-on-demand", "queue"),
                node_properties={"durable": True, "qpid.replicate": "all"},
            )
            if self.ask.locks:
                # A lock that got two because of a lost connection would be none, so nothing is
                # sent again.
                if queue in self.sent:
                    continue
                self.sent.add(queue)
                sender.send(Message("lock", message_id="lock", durable=True))
            self.ready.add(queue)
        self.done = len(self.ready) == len(self.ask.queues)

    def report(self) -> dict[str, Any]:
        return {"ready": len(self.ready)}
