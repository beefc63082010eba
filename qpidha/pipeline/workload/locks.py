"""Locks of the verification workload: a queue with one message is a lock, and whoever has the
message holds it.

To hold a lock is to have its message unsettled; to give it back is to release the message, which is
done when the broker settles. Each lock protects a register, a file, in which its holder writes; the
register refuses who shows a lower fencing token than one that it has seen, so that it takes nothing
of a holder whose session was lost and who goes on. Here are those who make the queues and put the
messages in, those who want the locks, and the registers.
"""

from __future__ import annotations

import argparse
import fcntl
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qpidha.client.blocking import Client, Receiver
from qpidha.client.links import Received
from qpidha.client.message import Message
from qpidha.pipeline.history import History
from qpidha.pipeline.workload.process import Settling, VerifyClient

TOKEN = "x-opt-qpidha-fencing-token"


class Register:
    """What a lock protects: a file with the highest token that it has seen."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, token: Sequence[int]) -> bool:
        """Take an order, unless one with a higher token was here."""
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            seen = [int(part) for part in file.read().split()]
            if list(token) < seen:
                return False
            file.truncate(0)
            file.write(f"{token[0]} {token[1]}")
        return True


class Locker(Settling):
    """Takes one lock after the other, writes what it protects, holds it for a moment, writes again,
    and gives it back. When its session is lost meanwhile it writes a while later all the same, as
    one does that was held up and knows nothing.
    """

    HOLDS = (0.02, 0.2)
    """Seconds for which a lock is held."""
    HELD_UP = 3.0
    """Seconds after a lost session in which its holder writes at last."""

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
        self._token: tuple[int, int] | tuple[()] = ()
        self._late: list[tuple[float, str, tuple[int, int]]] = []
        """When to write with the tokens of lost sessions: the lock, the token."""
        self.written = self.refused = 0

    def attach(self, client: Client) -> None:
        for queue in self.ask.queues:
            self.add_receiver(client, queue, {"qpidha:fencing-token": True})

    def link_lost(self) -> None:
        if self._step in ("acquire", "release"):
            self._note("info", self._step, err="connection lost")
        if self._step in ("hold", "release"):
            self._operation = self.begin()
            self._note("info", "lost", err="connection lost")
            if self._token:
                held_up = self.choices.uniform(0.0, self.HELD_UP)
                self._late.append((time.monotonic() + held_up, self._lock, self._token))
        self._message = None
        self._step = ""
        super().link_lost()

    def work(self) -> None:
        super().work()
        now = time.monotonic()
        for late in [late for late in self._late if now >= late[0] or self.stopping]:
            self._late.remove(late)
            self._write(*late[1:])
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
            self._write(self._lock, self._token)
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
        epoch, number = message.delivery_annotations.get(TOKEN) or (0, 0)
        self._token = (int(epoch), int(number)) if number else ()
        self._note("ok", "acquire", d=message.header.delivery_count, token=self._token)
        self._write(self._lock, self._token)
        self._message = message
        self._step = "hold"
        self._until = time.monotonic() + self.choices.uniform(*self.HOLDS)

    def settled(self, message: Received) -> None:
        if self._step == "release" and message is self._message:
            self.released += 1
            self._note("ok", "release")
            self._message = None
            self._step = ""

    def _write(self, lock: str, token: tuple[int, int] | tuple[()]) -> None:
        """Write what a lock protects; a broker of an earlier version gives no tokens for that."""
        if not token:
            return
        operation = self.begin()
        self.history.op(operation, self.process, "invoke", "write", q=lock, token=token)
        is_taken = Register(self.history.directory.parent / f"register-{lock}").write(token)
        self.written += is_taken
        self.refused += not is_taken
        self.history.op(
            operation,
            self.process,
            "ok" if is_taken else "fail",
            "write",
            q=lock,
            token=token,
            err="" if is_taken else "a higher token was here",
        )

    def _note(
        self,
        y: str,
        f: str,
        *,
        d: int | None = None,
        token: tuple[int, int] | tuple[()] = (),
        err: str = "",
    ) -> None:
        self.history.op(
            self._operation, self.process, y, f, q=self._lock, d=d, token=token, err=err
        )

    def report(self) -> dict[str, Any]:
        return {
            "acquired": self.acquired,
            "released": self.released,
            "written": self.written,
            "refused": self.refused,
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
