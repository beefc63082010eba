"""Apache Qpid Proton's Python clients, blocking and reactor, as their users write them: a list of
addresses in any order and proton's own reconnection, without a line about redirects.
"""

from __future__ import annotations

import threading

import pytest
from proton import ConnectionException, Message, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy
from proton.utils import BlockingConnection

from tests.interop.faults import FAULTS, befall, come_late_again
from tests.interop.programs import Access
from tests.patience import STATE
from tests.system.clients import browse
from tests.system.cluster import wait_for

PATIENCE = STATE


def urls(cluster, first):
    """Return the addresses of a cluster, beginning with one of them."""
    return [
        f"amqp://{cluster[(first + number) % len(cluster)].address}"
        for number in range(len(cluster))
    ]


def test_a_blocking_connection_is_refused_by_a_backup_as_by_an_address_where_nothing_listens(
    a_cluster,
):
    """A blocking connection ends at the first address of its list that does not serve, whatever the
    reason: its applications catch ConnectionException and try the next one.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    cluster[1].kill()
    for broker in cluster[1:]:
        with pytest.raises(ConnectionException):
            BlockingConnection(urls=[f"amqp://{broker.address}", *urls(cluster, 0)])
    connection = BlockingConnection(urls=urls(cluster, 0), timeout=PATIENCE)
    connection.create_sender("q").send(Message(body="a"))
    connection.close()
    assert browse(cluster[0], "q") == ["a"]


class Application(MessagingHandler):
    """Sends 1, 2, 3... and receives them, over one connection each."""

    def __init__(self, access):
        super().__init__()
        self.access = access
        self.sent = 0
        self.numbers = {}
        self.waiting = 0
        self.accepted = set()
        self.received = []
        self.errors = []
        self.refused = 0
        self.stopping = False
        self.thread = threading.Thread(target=Container(self).run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *ignored):
        self.stop()

    def on_start(self, event):
        login = {}
        if self.access.authority is not None:
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(str(self.access.authority))
            login = {
                "user": self.access.user,
                "password": self.access.password,
                "ssl_domain": domain,
            }
        self.sends, self.receives = (
            event.container.connect(urls=self.access.urls, heartbeat=1, **login) for _ in range(2)
        )
        self.sender = event.container.create_sender(self.sends, "q")
        self.receiver = event.container.create_receiver(self.receives, "q")
        event.container.schedule(0.01, self)

    def on_timer_task(self, event):
        if self.stopping and self.accepted <= set(self.received):
            self.sends.close()
            self.receives.close()
            return
        if not self.stopping and self.sender.credit and self.waiting < 20:
            self.sent += 1
            self.waiting += 1
            self.numbers[self.sender.send(Message(body=self.sent)).tag] = self.sent
        event.container.schedule(0.01, self)

    def on_accepted(self, event):
        self.waiting -= 1
        self.accepted.add(self.numbers[event.delivery.tag])

    def on_disconnected(self, event):
        self.refused += not self.received
        if event.connection == self.sends:
            self.waiting = 0  # What had no outcome then has none: it is not sent again.

    def on_message(self, event):
        self.received.append(event.message.body)

    def on_connection_error(self, event):
        self.errors.append(str(event.connection.remote_condition))

    def wait_received(self, most, what):
        """Wait until more than so many messages were received."""
        try:
            wait_for(lambda: len(self.received), lambda seen: seen > most, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.progress()}") from None

    def progress(self):
        """Return what may keep it waiting; its thread must have nothing to do."""
        ends = [
            (link.state, link.credit, link.connection.state)
            for link in (self.sender, self.receiver)
        ]
        return self.thread.is_alive(), self.sent, self.waiting, len(self.accepted), ends

    def stop(self):
        """Let it end when all that was accepted is received."""
        self.stopping = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), self.progress()


def go_on(application, cluster, fault):
    """What was accepted is received, no error is told, and it goes on with the next primary."""
    application.wait_received(20, "received before")
    befall(cluster, fault, lambda: len(application.accepted))
    application.stop()
    assert application.errors == []
    assert application.accepted <= set(application.received)
    assert come_late_again(application.received) == []


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("fault", FAULTS)
def test_qpid_1_and_first_use_d15_an_application_with_a_list_of_addresses_goes_on(
    a_cluster, fault, first
):
    """What was accepted is received, no error is told, and it goes on with the next primary."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with Application(Access.to(cluster, first)) as application:
        go_on(application, cluster, fault)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_application_with_tls_and_a_password_goes_on(encrypted, fault):
    cluster, access = encrypted(1)
    cluster[0].declare_queue("q")
    with Application(access) as application:
        go_on(application, cluster, fault)


@pytest.mark.parametrize("brokers", ["plain", "encrypted"])
def test_an_application_waits_for_the_first_primary(request, brokers):
    """Whoever comes before there is a primary is served when there is one."""
    cluster, access = request.getfixturevalue(brokers)(0)
    cluster[0].declare_queue("q")
    cluster[0].call("demote")
    with Application(access) as application:
        wait_for(lambda: application.refused, lambda seen: seen > 6, what="attempts")
        cluster[0].promote()
        application.wait_received(20, "received")
        application.stop()
        assert application.errors == []


class Sleepy(Application):
    """Does nothing at all, in the middle of a message, until the broker has given it up."""

    def __init__(self, access, broker):
        super().__init__(access)
        self.broker = broker
        self.slept = False

    def on_message(self, event):
        super().on_message(event)
        if not self.slept and len(self.received) > 5:
            self.slept = True
            wait_for(
                lambda: self.broker.call("list_connections"),
                lambda seen: not seen,
                what="connections",
            )


def test_an_application_that_was_silent_for_too_long_comes_again(a_cluster):
    """As one of a machine that has too much to do: nothing tells it to give up."""
    cluster = a_cluster(1)
    cluster[0].declare_queue("q")
    with Sleepy(Access.to(cluster, 0), cluster[0]) as application:
        application.wait_received(50, "received")
        application.stop()
        assert application.slept
        assert application.errors == []
        assert application.accepted <= set(application.received)


def test_a_receiver_of_a_copy_leaves_the_messages(a_cluster):
    """distribution-mode copy through the blocking API, and afterwards everything is still to be
    had.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    connection = BlockingConnection(f"amqp://{cluster[0].address}", timeout=PATIENCE)
    sender = connection.create_sender("q")
    for number in range(5):
        sender.send(Message(body=number))
    for options in ([Copy()], []):
        receiver = connection.create_receiver(
            "q", name=f"receiver {options}", credit=5, options=options
        )
        assert [receiver.receive().body for _ in range(5)] == list(range(5))
        receiver.close()
    connection.close()
    assert browse(cluster[0], "q") == list(range(5))
