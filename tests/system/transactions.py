"""Transactions one after the other on one connection, and a program that is killed in one."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from typing import Any

from qpidha.client.blocking import Receiver, Sender, Transaction
from qpidha.client.message import Message
from tests.system.clients import connect
from tests.system.cluster import Broker


class Session:
    """A connection that works in transactions, one after the other."""

    def __init__(self, broker: Broker | str, **options: Any) -> None:
        self.client = connect(broker, **options)
        self.transaction: Transaction | None = None
        self.senders: dict[str, Sender] = {}
        self.receivers: dict[str, Receiver] = {}

    @property
    def state(self) -> str:
        """Return what became of the last transaction."""
        return self.transaction.state if self.transaction is not None else ""

    def begin(self) -> Session:
        self.transaction = self.client.transaction()
        return self

    def send(self, queue: str, bodies: Iterable[object], *, durable: bool = False) -> None:
        """Send in the transaction; the broker has the messages when this returns."""
        sender = self.sender(queue)
        for body in bodies:
            sender.send_nowait(Message(body, durable=durable), transaction=self.transaction)
        self.client.wait(lambda: not sender.unsettled)

    def send_plain(self, queue: str, bodies: Iterable[object], *, durable: bool = False) -> None:
        """Send outside of the transaction, and wait until each message is accepted."""
        for body in bodies:
            self.sender(queue).send(Message(body, durable=durable))

    def take(self, queue: str, count: int) -> list[Any]:
        """Receive and accept in the transaction."""
        if queue not in self.receivers:
            self.receivers[queue] = self.client.receiver(queue, credit=0)
        receiver = self.receivers[queue]
        receiver.add_credit(count - receiver.credit)
        bodies = []
        for _ in range(count):
            message = receiver.receive()
            bodies.append(message.body)
            message.accept(self.transaction)
        return bodies

    def commit(self) -> None:
        assert self.transaction is not None
        self.transaction.commit()

    def roll_back(self) -> None:
        assert self.transaction is not None
        self.transaction.roll_back()

    def sender(self, queue: str) -> Sender:
        if queue not in self.senders:
            self.senders[queue] = self.client.sender(queue)
        return self.senders[queue]

    def close(self) -> None:
        self.client.close()


def main(address: str) -> None:
    """Take all of q, send to r in a transaction and to s outside of it, and then wait to be
    killed.
    """
    session = Session(address).begin()
    session.take("q", 2)
    session.send("r", ["never"])
    session.send_plain("s", ["arrived"])
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
