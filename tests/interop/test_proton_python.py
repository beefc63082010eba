"""Apache Qpid Proton's Python clients, blocking and reactor: they are told where to go, and go there."""

from __future__ import annotations

import threading
import time

import pytest
from proton import ConnectionException, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy
from proton.utils import BlockingConnection, ConnectionClosed

from tests.system.clients import Redirectable, browse
from tests.system.cluster import wait_for

REDIRECT = "amqp:connection:redirect"
PATIENCE = 15.0


def server_list(connection):
    """Return the addresses that a broker names in its open, in its order."""
    properties = connection.remote_properties or {}
    return [f"{server[symbol('network-host')]}:{server[symbol('port')]}" for server in properties.get(symbol("failover-server-list"), [])]


def redirect_target(connection):
    """Return where the close of a connection points, or nothing."""
    condition = connection.remote_condition
    if condition is None or condition.name != REDIRECT:
        return ""
    return f"{condition.info['network-host']}:{condition.info['port']}"


def test_a_blocking_connection_to_a_backup_is_redirected(a_cluster):
    """The client gets the condition, and the info map is enough to connect to the primary."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    for backup in cluster[1:]:
        targets = []
        with pytest.raises(ConnectionClosed) as refused:
            Redirectable(f"amqp://{backup.address}", targets, timeout=PATIENCE)
        assert refused.value.condition == REDIRECT
        assert set(targets) == {cluster[0].address}
        connection = BlockingConnection(f"amqp://{targets[0]}", timeout=PATIENCE)
        connection.create_sender("q").send(Message(body=backup.name))
        connection.close()
    assert browse(cluster[0], "q") == ["b1", "b2"]


def test_a_blocking_application_fails_over_with_the_servers_list(a_cluster):
    """It is given one address; the list it was told by that broker, and redirects, lead it to the next primary.

    A blocking connection takes a list of URLs too, but reports the first refusal instead of trying the second.
    """
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    connection = BlockingConnection(f"amqp://{cluster[0].address}", timeout=PATIENCE)
    known = server_list(connection.conn)
    assert known == cluster.addresses
    sender = connection.create_sender("q")
    for number in range(10):
        sender.send(Message(body=number))
    cluster[0].kill()
    with pytest.raises(ConnectionException):
        sender.send(Message(body="lost"))
    promotion = threading.Thread(target=cluster.promote, args=(2,))
    promotion.start()
    connection = dial_until_served(known)
    promotion.join()
    sender = connection.create_sender("q")
    for number in range(10, 20):
        sender.send(Message(body=number))
    receiver = connection.create_receiver("q", credit=20)
    bodies = []
    for _ in range(20):
        bodies.append(receiver.receive().body)
        receiver.accept()
    connection.close()
    assert bodies == list(range(20))


def dial_until_served(addresses):
    """Try the addresses in turn, a redirect's target first, until a broker lets us in."""
    waiting = list(addresses)
    end = time.monotonic() + PATIENCE
    while True:
        targets = []
        try:
            return Redirectable(f"amqp://{waiting.pop(0)}", targets, timeout=PATIENCE)
        except ConnectionException:
            assert time.monotonic() < end, "no broker let us in"
        waiting = targets + waiting or list(addresses)


class Follower(MessagingHandler):
    """A reactor application that is given one address and afterwards knows only what brokers tell it.

    The reconnection is proton's own, with its list of URLs. It begins the list again whenever a broker has
    answered an open, so a redirect is followed by dialling anew with the broker it names as the first.
    """

    def __init__(self, address):
        super().__init__(prefetch=0, auto_accept=True)
        self.known = [address]
        self.container = Container(self)
        self.connection = None
        self.dialled = []
        self.redirects = []
        self.stopping = False
        self.thread = threading.Thread(target=self.container.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *ignored):
        self.stopping = True
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def on_start(self, event):
        self.dial(self.known)
        event.container.schedule(0.01, self)

    def dial(self, addresses):
        self.dialled = addresses
        urls = [f"amqp://{address}" for address in addresses]
        self.connection = self.container.connect(urls=urls, reconnect=[0, *[0.05] * 1000], heartbeat=1)
        self.attach(self.connection)

    def on_timer_task(self, event):
        if self.stopping:
            self.connection.close()
            event.container.stop()
            return
        self.work()
        event.container.schedule(0.01, self)

    def on_connection_opened(self, event):
        self.known = server_list(event.connection) or self.known

    def on_connection_error(self, event):
        target = redirect_target(event.connection)
        if event.connection != self.connection:
            return
        if target:
            self.redirects.append(target)
        self.lost()
        self.dial([*([target] if target else []), *(address for address in self.known if address != target)])

    def on_transport_error(self, event):
        """Leave it to proton to try its next URL, once its list is the one the brokers gave."""
        if event.connection != self.connection:
            return
        self.lost()
        if set(self.dialled) != set(self.known):
            self.connection.close()
            self.dial(self.known)

    def lost(self):
        pass

    def work(self):
        pass


class FollowingSender(Follower):
    """Sends 1, 2, 3... and whatever was not accepted again."""

    def __init__(self, address):
        super().__init__(address)
        self.link = None
        self.next = 1
        self.again = []
        self.pending = {}
        self.accepted = []

    def attach(self, connection):
        self.link = self.container.create_sender(connection, "q")

    def lost(self):
        self.again = sorted({*self.again, *self.pending.values()})
        self.pending.clear()

    def work(self):
        while self.link.credit and len(self.pending) < 5:
            if self.again:
                number = self.again.pop(0)
            else:
                number, self.next = self.next, self.next + 1
            self.pending[self.link.send(Message(body=number)).tag] = number

    def on_accepted(self, event):
        # proton sends again by itself what was unsettled; of that we do not know any more which it was.
        number = self.pending.pop(event.delivery.tag, None) if event.connection == self.connection else None
        if number is not None:
            self.accepted.append(number)


class FollowingReceiver(Follower):
    """Receives and accepts."""

    def __init__(self, address):
        super().__init__(address)
        self.received = []

    def attach(self, connection):
        self.container.create_receiver(connection, "q").flow(1000)

    def on_message(self, event):
        self.received.append(event.message.body)
        event.receiver.flow(1)


def test_reactor_containers_fail_over_with_the_servers_list(a_cluster):
    """A sender that knew one backup only and a receiver that knew the primary only go on with the new primary; nothing is missing."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    with FollowingSender(cluster[1].address) as sender, FollowingReceiver(cluster[0].address) as receiver:
        wait_for(lambda: len(receiver.received), lambda seen: seen > 50, what="messages received before the failover")
        assert sender.redirects == [cluster[0].address]
        assert sender.known == receiver.known == cluster.addresses
        cluster.kill(0, promote=2)
        before = len(sender.accepted)
        wait_for(lambda: len(sender.accepted), lambda seen: seen > before + 100, what="messages accepted after the failover")
        wait_for(lambda: set(sender.accepted) - set(receiver.received), lambda missing: len(missing) < 20, what="missing messages")
        sender.stopping = True
        sender.thread.join(PATIENCE)
        wait_for(lambda: set(sender.accepted) - set(receiver.received), lambda missing: not missing, what="missing messages")


def test_a_receiver_of_a_copy_leaves_the_messages(a_cluster):
    """distribution-mode copy through the blocking API, and afterwards everything is still to be had."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    connection = BlockingConnection(f"amqp://{cluster[0].address}", timeout=PATIENCE)
    sender = connection.create_sender("q")
    for number in range(5):
        sender.send(Message(body=number))
    for options in ([Copy()], []):
        receiver = connection.create_receiver("q", name=f"receiver {options}", credit=5, options=options)
        assert [receiver.receive().body for _ in range(5)] == list(range(5))
        receiver.close()
    connection.close()
    assert browse(cluster[0], "q") == list(range(5))
