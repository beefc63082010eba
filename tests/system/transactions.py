"""Transactions for a blocking client, on top of what python-qpid-proton's container offers for them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from proton import Event, Message
from proton.handlers import TransactionHandler
from proton.reactor import Transaction
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from tests.system.clients import PATIENCE
from tests.system.cluster import Broker


class TransactionFailed(Exception):
    """The broker rolled a transaction back, or did not begin it; the text is its condition."""


class Session(TransactionHandler):
    """A connection that works in transactions, one after the other."""

    def __init__(self, broker: Broker | str, *, early: bool = True) -> None:
        address = broker if isinstance(broker, str) else broker.address
        self.connection = BlockingConnection(f"amqp://{address}", timeout=PATIENCE)
        self.early = early
        self.transaction: Transaction | None = None
        self.senders: dict[str, BlockingSender] = {}
        self.receivers: dict[str, BlockingReceiver] = {}
        self.said = ""
        self.condition = ""

    def begin(self) -> Session:
        self.said = ""
        container = self.connection.container
        self.transaction = container.declare_transaction(self.connection.conn, handler=self, settle_before_discharge=self.early)
        self._wait("declaring")
        return self

    def send(self, queue: str, bodies: Iterable[object], *, durable: bool = False) -> None:
        """Send in the transaction; the messages are on their way when this returns."""
        sender = self.sender(queue)
        for body in bodies:
            self.connection.wait(lambda: sender.link.credit > 0, msg="credit")
            assert self.transaction is not None
            self.transaction.send(sender.link, Message(body=body, durable=durable))

    def send_plain(self, queue: str, bodies: Iterable[object]) -> None:
        """Send outside of the transaction, and wait until each message is accepted."""
        for body in bodies:
            self.sender(queue).send(Message(body=body))

    def take(self, queue: str, count: int) -> list[Any]:
        """Receive and accept in the transaction."""
        if queue not in self.receivers:
            self.receivers[queue] = self.connection.create_receiver(queue, credit=0)
        receiver = self.receivers[queue]
        receiver.link.flow(count - receiver.link.credit)
        bodies = []
        for _ in range(count):
            bodies.append(receiver.receive().body)
            assert self.transaction is not None
            self.transaction.accept(receiver.fetcher.unsettled.pop())
        return bodies

    def commit(self) -> None:
        self.start_commit()
        self._wait("committing")

    def start_commit(self) -> None:
        """Ask for the commit without waiting for the answer."""
        self.said = ""
        assert self.transaction is not None
        self.transaction.commit()

    def rollback(self) -> None:
        self.said = ""
        assert self.transaction is not None
        self.transaction.abort()
        self._wait("rolling back")

    def sender(self, queue: str) -> BlockingSender:
        if queue not in self.senders:
            self.senders[queue] = self.connection.create_sender(queue)
        return self.senders[queue]

    def close(self) -> None:
        self.connection.close()

    def _wait(self, what: str) -> None:
        self.connection.wait(lambda: self.said, msg=what)
        if self.said == "failed":
            raise TransactionFailed(self.condition)

    def on_transaction_declared(self, event: Event) -> None:
        self.said = "declared"

    def on_transaction_committed(self, event: Event) -> None:
        self.said = "committed"

    def on_transaction_aborted(self, event: Event) -> None:
        self.said = "aborted"

    def on_transaction_commit_failed(self, event: Event) -> None:
        self._failed(event)

    def on_transaction_declare_failed(self, event: Event) -> None:
        self._failed(event)

    def _failed(self, event: Event) -> None:
        condition = event.delivery.remote.condition
        self.said, self.condition = "failed", condition.name if condition else ""


def main(address: str) -> None:
    """Take all of q, send to r in a transaction and to s outside of it, and then wait to be killed."""
    session = Session(address).begin()
    session.take("q", 2)
    session.send("r", ["never"])
    session.send_plain("s", ["arrived"])
    session.connection.wait(lambda: False, timeout=60)


if __name__ == "__main__":
    main(sys.argv[1])
