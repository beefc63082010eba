"""Requests with replies, and transactions, as programs with proton's Python classes have them, with
a list of addresses and a primary that is killed meanwhile.
"""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from tests.interop.faults import kill
from tests.interop.programs import Access
from tests.patience import STATE
from tests.system.clients import browse
from tests.system.cluster import wait_for

BATCH = 5


class Pattern(MessagingHandler):
    """Does the same again and again, until it is stopped."""

    def __init__(self, urls, **options):
        super().__init__(**options)
        self.urls = urls
        self.done = 0
        self.stopping = False
        self.connections = []
        self.thread = threading.Thread(target=Container(self).run, daemon=True)
        self.thread.start()

    def connect(self, container):
        self.connections.append(container.connect(urls=self.urls))
        return self.connections[-1]

    def count(self):
        """Count one that is done; return whether there is to be another."""
        self.done += 1
        if self.stopping:
            for connection in self.connections:
                connection.close()
        return not self.stopping

    def stop(self):
        self.stopping = True
        self.thread.join(STATE)
        assert not self.thread.is_alive(), self.done


class Requests(Pattern):
    """A client that asks for one number after the other, and the server that doubles them."""

    def on_start(self, event):
        container = event.container
        serves, asks = self.connect(container), self.connect(container)
        self.asked = container.create_receiver(serves, "service")
        self.relay = container.create_sender(serves, None)
        self.ask = container.create_sender(asks, "service")
        self.replies = container.create_receiver(asks, None, dynamic=True)
        self.answers = {}

    def on_link_opened(self, event):
        if event.link == self.replies:
            self.next()  # Also after a failover: the replies come to another address then.

    def next(self):
        address = self.replies.remote_source.address
        self.ask.send(Message(reply_to=address, correlation_id=self.done, body=self.done))

    def on_message(self, event):
        message = event.message
        if event.link == self.asked:
            self.relay.send(
                Message(
                    address=message.reply_to,
                    correlation_id=message.correlation_id,
                    body=2 * message.body,
                )
            )
        elif message.correlation_id == self.done:
            self.answers[self.done] = message.body
            if self.count():
                self.next()


class Batches(Pattern, TransactionHandler):
    """Sends batches in transactions, which it declares whenever it is connected."""

    def on_start(self, event):
        self.container = event.container
        connection = self.connect(event.container)
        self.sender = event.container.create_sender(connection, "batches")

    def on_connection_opened(self, event):
        self.declare()

    def declare(self):
        self.container.declare_transaction(self.connections[0], handler=self)

    def on_transaction_declared(self, event):
        for _ in range(BATCH):
            event.transaction.send(self.sender, Message(body=self.done))
        event.transaction.commit()

    def on_transaction_committed(self, event):
        if self.count():
            self.declare()


@pytest.fixture
def cluster(a_cluster):
    cluster = a_cluster(3)
    for queue in ("service", "batches"):
        cluster[0].declare_queue(queue)
    return cluster


def test_requests_and_transactions_go_on_when_the_primary_is_killed(cluster):
    urls = Access.to(cluster, 1).urls
    requests, batches = patterns = [Requests(urls), Batches(urls)]

    def more():
        before = [pattern.done for pattern in patterns]
        wait_for(
            lambda: [pattern.done - done for pattern, done in zip(patterns, before, strict=True)],
            lambda seen: min(seen) > 10,
            what="requests and batches that were done",
        )

    more()
    kill(cluster)
    more()
    for pattern in patterns:
        pattern.stop()
    assert requests.answers == {number: 2 * number for number in range(requests.done)}
    found = Counter(browse(cluster[2], "batches"))
    assert set(range(batches.done)) <= set(found)
    assert all(count % BATCH == 0 for count in found.values())
