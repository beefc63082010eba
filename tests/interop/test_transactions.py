"""Transactions with python-qpid-proton's own support for them: Container.declare_transaction and
its handlers.
"""

from __future__ import annotations

import threading
from collections import deque

import pytest
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

from tests.patience import STATE
from tests.system.clients import browse, send, wait_browse

PATIENCE = STATE


class Application(MessagingHandler, TransactionHandler):
    """Runs one step after another; each waits for what the client library tells of it."""

    def __init__(self, broker, *, settle_before_discharge=False, queue="q"):
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.url = f"amqp://{broker.address}"
        self.queue = queue
        self.early = settle_before_discharge
        self.said = []
        self.conditions = []
        self.taken = []
        self.deliveries = deque()
        self.failure = ""

    def run(self):
        container = Container(self)
        thread = threading.Thread(target=container.run, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"still running after {self.said}"
        assert not self.failure, self.failure
        return self

    def on_start(self, event):
        self.container = event.container
        self.connection = self.container.connect(self.url, reconnect=False)
        self.sender = self.container.create_sender(self.connection, self.queue)
        self.receiver = self.container.create_receiver(self.connection, self.queue)
        self.waiting = 2

    def on_link_opened(self, event):
        if event.link in (self.sender, self.receiver):
            self.waiting -= 1
            if not self.waiting:
                self.begin()

    def declare(self):
        self.transaction = self.container.declare_transaction(
            self.connection, handler=self, settle_before_discharge=self.early
        )

    def begin(self):
        self.declare()

    def on_transaction_declared(self, event):
        self.said.append("declared")
        self.work(event.transaction)

    def on_transaction_committed(self, event):
        self.said.append("committed")
        self.discharged()

    def on_transaction_aborted(self, event):
        self.said.append("aborted")
        self.discharged()

    def on_transaction_commit_failed(self, event):
        self.said.append("failed")
        self.conditions.append(event.delivery.remote.condition.name)
        self.discharged()

    def on_transaction_declare_failed(self, event):
        self.said.append("declare failed")
        self.finish()

    def on_message(self, event):
        self.taken.append((event.message.body, event.message.delivery_count))
        self.received(event)

    def on_link_error(self, event):
        self.failure = str(event.link.remote_condition)
        self.finish()

    def on_connection_error(self, event):
        self.failure = str(event.connection.remote_condition)
        self.finish()

    def work(self, transaction):
        """What to do in the transaction."""

    def received(self, event):
        """What to do with a message."""

    def discharged(self):
        """What to do after the commit or rollback."""
        self.finish()

    def finish(self):
        self.connection.close()


@pytest.fixture
def broker(a_cluster):
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    cluster[0].declare_queue("r")
    return cluster


class Sends(Application):
    def __init__(self, broker, *, commits, **options):
        super().__init__(broker, **options)
        self.commits = commits

    def work(self, transaction):
        for number in range(5):
            transaction.send(self.sender, Message(body=number))
        if self.commits:
            transaction.commit()
        else:
            transaction.abort()


def test_messages_sent_in_a_transaction_come_with_the_commit(broker):
    assert Sends(broker[0], commits=True).run().said == ["declared", "committed"]
    for one in broker:
        wait_browse(one, "q", range(5))


def test_messages_sent_in_a_transaction_go_with_the_abort(broker):
    assert Sends(broker[0], commits=False).run().said == ["declared", "aborted"]
    send(broker[0], "q", ["after"])
    for one in broker:
        wait_browse(one, "q", ["after"])


def test_a_commit_that_does_not_fit_fails_and_says_so(broker):
    # This application does not look at its credit, and would commit before all has left it.
    broker[0].declare_queue("small", max_count=3, flow_stop_count=0)
    client = Sends(broker[0], commits=True, queue="small").run()
    assert client.said == ["declared", "failed"]
    assert client.conditions == ["amqp:transaction:rollback"]
    assert browse(broker[0], "small") == []


class Takes(Application):
    """Accepts three messages in a transaction, discharges it as told, and takes what comes then."""

    def __init__(self, broker, *, commits, **options):
        super().__init__(broker, **options)
        self.commits = commits
        self.again = False

    def work(self, transaction):
        self.receiver.flow(3)

    def received(self, event):
        if self.again:
            self.accept(event.delivery)
            if len(self.taken) == 6:
                self.finish()
            return
        self.transaction.accept(event.delivery)
        if len(self.taken) == 3:
            if self.commits:
                self.transaction.commit()
            else:
                self.transaction.abort()

    def discharged(self):
        self.again = True
        self.receiver.flow(3)


@pytest.mark.parametrize("early", [True, False])
def test_messages_received_in_a_transaction_go_with_the_commit(broker, early):
    send(broker[0], "q", range(6))
    client = Takes(broker[0], commits=True, settle_before_discharge=early).run()
    assert [body for body, _ in client.taken] == [0, 1, 2, 3, 4, 5]
    for one in broker:
        wait_browse(one, "q", [])


@pytest.mark.parametrize("early", [True, False])
def test_messages_received_in_a_transaction_come_again_after_the_abort(broker, early):
    """The client has settled them, or it releases them itself after the abort: that is how proton
    does it.
    """
    send(broker[0], "q", range(3))
    client = Takes(broker[0], commits=False, settle_before_discharge=early).run()
    assert [body for body, _ in client.taken] == [0, 1, 2] * 2
    assert {count for _, count in client.taken[3:]} == {1 if early else 0}
    for one in broker:
        wait_browse(one, "q", [])


class Moves(Application):
    """Moves messages from q to r, each in a transaction, every third of which is aborted at
    first.
    """

    def on_start(self, event):
        super().on_start(event)
        self.waiting += 1
        self.target = self.container.create_sender(self.connection, "r", name="target")
        self.aborted = set()
        self.moved = 0

    def on_link_opened(self, event):
        if event.link == self.target:
            self.waiting -= 1
            if not self.waiting:
                self.begin()
        else:
            super().on_link_opened(event)

    def work(self, transaction):
        self.receiver.flow(1)

    def received(self, event):
        number = event.message.body
        self.transaction.send(self.target, Message(body=number))
        self.transaction.accept(event.delivery)
        if number % 3 == 0 and number not in self.aborted:
            self.aborted.add(number)
            self.transaction.abort()
        else:
            self.moved += 1
            self.transaction.commit()

    def discharged(self):
        if self.moved == 30:
            self.finish()
        else:
            self.declare()


@pytest.mark.parametrize("early", [True, False])
def test_messages_are_moved_once_through_commits_and_aborts(broker, early):
    send(broker[0], "q", range(30))
    client = Moves(broker[0], settle_before_discharge=early).run()
    assert client.said.count("committed") == 30
    assert client.said.count("aborted") == 10
    for one in broker:
        wait_browse(one, "q", [])
        wait_browse(one, "r", range(30))


class Leaves(Application):
    """Goes away in the middle of a transaction."""

    def work(self, transaction):
        self.receiver.flow(2)

    def received(self, event):
        self.transaction.send(self.sender, Message(body="never"))
        self.transaction.accept(event.delivery)
        if len(self.taken) == 2:
            self.finish()


def test_a_client_that_goes_away_leaves_no_trace(broker):
    send(broker[0], "q", ["a", "b"])
    Leaves(broker[0]).run()
    for one in broker:
        wait_browse(one, "q", ["a", "b"])


class ManyAtOnce(Application):
    """Has ten transactions open, discharges them in another order, and sends without a transaction
    meanwhile.
    """

    def __init__(self, broker):
        super().__init__(broker)
        self.open = []

    def begin(self):
        for _ in range(10):
            self.declare()

    def work(self, transaction):
        self.open.append(transaction)
        if len(self.open) < 10:
            return
        for number, one in enumerate(self.open):
            one.send(self.sender, Message(body=number))
        self.sender.send(Message(body="plain"))
        for number, one in enumerate(reversed(self.open)):
            one.discharge(number % 2 == 1)

    def discharged(self):
        if len(self.said) == 20:
            self.finish()


def test_ten_transactions_of_one_session_are_independent(broker):
    client = ManyAtOnce(broker[0]).run()
    assert client.said.count("committed") == client.said.count("aborted") == 5
    for one in broker:
        wait_browse(one, "q", ["plain", 9, 7, 5, 3, 1])


class SendsToNobody(Application):
    """Sends to an address that is none; proton's handlers do not look at the outcome of that
    message.
    """

    def begin(self):
        self.anonymous = self.container.create_sender(self.connection, None, name="anonymous")

    def on_sendable(self, event):
        if event.link == self.anonymous and not self.said:
            self.declare()

    def work(self, transaction):
        transaction.send(self.sender, Message(body="good"))
        transaction.send(self.anonymous, Message(address="nowhere", body="bad"))
        transaction.commit()


def test_a_message_that_was_refused_fails_the_commit(broker):
    client = SendsToNobody(broker[0]).run()
    assert client.said == ["declared", "failed"]
    assert client.conditions == ["amqp:transaction:rollback"]
    assert browse(broker[0], "q") == []
