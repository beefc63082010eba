"""Clients and backups over a change of primary: the original's ReplicationTests that fail over.

What one log makes different is said in each test.
"""

from __future__ import annotations

import pytest
from proton import ConnectionException, Message, Timeout
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import ConnectionClosed, LinkDetached

from tests.system.clients import REDIRECT, browse, connect, connect_any, receive, redirected_to, send, wait_browse
from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender, first_gap

pytestmark = pytest.mark.system


def test_failover_python(a_cluster):
    """A client is refused by a backup, a tool is not, and a client with all addresses is served before and after a failover.

    A refused client of the original lost its TCP connection; here it is redirected.
    """
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with pytest.raises(ConnectionClosed) as refused:
        connect(cluster[1])
    assert refused.value.condition == REDIRECT
    connect(cluster[1], admin=True).close()

    backup_first = [cluster[1].address, cluster[0].address]
    connection = connect_any(backup_first)
    sender = connection.create_sender("q")
    sender.send(Message(body="foo"))
    cluster.kill(0, promote=1)
    with pytest.raises(ConnectionException):
        sender.send(Message(body="lost"))
    connection = connect_any(backup_first)
    connection.create_sender("q").send(Message(body="bar"))
    connection.close()
    assert browse(cluster[1], "q") == ["foo", "bar"]


class ListFollower(MessagingHandler):
    """Receives over proton's own reconnection: a list of addresses, tried in turn when a connection is lost.

    proton begins its list again whenever a broker has answered an open, so that a list which begins with a backup
    would never get further: an application follows the redirect, with the broker it names as the first of the list.
    """

    def __init__(self, addresses, at_first):
        super().__init__()
        self.addresses = addresses
        self.at_first = at_first
        self.received = []
        self.redirects = 0

    def on_start(self, event):
        self.dial(event.container, self.addresses)
        event.container.schedule(15, self)

    def dial(self, container, addresses):
        urls = [f"amqp://{address}" for address in addresses]
        connection = container.connect(urls=urls, reconnect=[0, *[0.05] * 100], heartbeat=1)
        container.create_receiver(connection, "q")

    def on_connection_error(self, event):
        target = redirected_to(event.connection)
        self.redirects += 1
        self.dial(event.container, [*target, *(address for address in self.addresses if address not in target)])

    def on_transport_error(self, event):
        """Proton goes on with the next address."""

    def on_message(self, event):
        self.received.append(event.message.body)
        if len(self.received) == 1:
            self.at_first()
        if self.received[-1] == "bar":
            event.container.stop()

    def on_timer_task(self, event):
        event.container.stop()


def test_failover_with_the_failover_list_of_proton(a_cluster):
    """A reactor application with a list of addresses receives from the new primary."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["foo"])

    def fail_over():
        cluster.kill(0, promote=1)
        send(cluster[1], "q", ["bar"])

    client = ListFollower([cluster[1].address, cluster[0].address], fail_over)
    Container(client).run()
    # "foo" may come twice: the primary died while its acceptance was on the way.
    assert client.redirects >= 1
    assert client.received in (["foo", "bar"], ["foo", "foo", "bar"])


def test_heartbeat_python(a_cluster):
    """A client with a heartbeat gets an error from a stopped broker: in use, on connecting and on connecting again."""
    (broker,) = a_cluster(1)
    broker.declare_queue("q")
    receiver_connection = connect(broker, heartbeat=0.5)
    receiver = receiver_connection.create_receiver("q")
    sender_connection = connect(broker, heartbeat=0.5)
    sender = sender_connection.create_sender("q")
    broker.stop()
    try:
        with pytest.raises(ConnectionException):
            receiver.receive(timeout=5)
        with pytest.raises(ConnectionException):
            sender.send(Message(body="x"), timeout=5)
        with pytest.raises((ConnectionException, Timeout)):
            connect(broker, heartbeat=0.5, timeout=1)
        with pytest.raises((ConnectionException, Timeout)):
            connect_any([broker.address], deadline=0, timeout=1, heartbeat=0.5)
    finally:
        broker.cont()


def test_failover_cpp(a_cluster):
    """A numbered sender and receiver with all addresses go on after a failover, without a gap."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with FailoverSender(cluster.addresses, "q") as sender, FailoverReceiver(cluster.addresses, "q") as receiver:
        receiver.wait_received(lambda received: len(received) > 10)
        cluster.kill(0, promote=1)
        last = max(receiver.numbers())
        wait_for(lambda: max(receiver.numbers()), lambda seen: seen > last + 10, what="the highest number received")
    assert first_gap(receiver.numbers()) == 0
    assert sender.refused == []


def test_backup_failover(a_cluster):
    """A backup follows the new primary and keeps what it had."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a"])
    for backup in cluster[1:]:
        wait_browse(backup, "q", ["a"])
    cluster.kill(0, promote=1)
    send(cluster[1], "q", ["b"])
    wait_browse(cluster[2], "q", ["a", "b"])
    assert receive(cluster[1], "q", 1) == ["a"]
    wait_browse(cluster[2], "q", ["b"])


def test_empty_backup_failover(a_cluster):
    """A cluster without a single queue fails over too."""
    cluster = a_cluster(3)
    cluster.kill(0, promote=1)
    cluster.wait_settled(1)


def test_delete_missing_response(a_cluster):
    """A broker that joins a primary loses objects that the primary does not have, and same-named ones are the primary's.

    A backup of the original could be given objects of its own by a tool; here only a primary has its own. So #1
    was primary by itself, hung, and finds that #0 was promoted meanwhile, with a higher epoch: it steps down and rejoins.
    """
    cluster = a_cluster(2, started=1)
    cluster.kill(0)  # #0 has promised epoch 1, so that its next one is higher than #1's.
    cluster[1].start()
    cluster[1].wait_up()
    cluster.promote(1)
    cluster[1].wait_state("active")
    for queue, exchange in (("q1", "e1"), ("q2", "e2")):
        cluster[1].declare_queue(queue)
        cluster[1].declare_exchange(exchange)
        cluster[1].bind(exchange, queue, "old")
        send(cluster[1], queue, ["old"])

    cluster[1].stop()
    try:
        cluster[0].restart()
        cluster.promote(0)
        cluster[0].wait_state("active")
        cluster[0].declare_queue("q1")
        cluster[0].declare_exchange("e1")
        send(cluster[0], "q1", ["new"])
    finally:
        cluster[1].cont()
    cluster.wait_settled(0)
    wait_browse(cluster[1], "q1", ["new"])
    assert cluster[1].queue_names() == ["q1"]
    assert [name for name in cluster[1].exchange_names() if name.startswith("e")] == ["e1"]
    assert cluster[1].bindings() == []


def test_delete_qpid_4285(a_cluster):
    """A queue that came by replication can be deleted on the new primary, and nothing of it is left."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    wait_for(cluster[1].queue_names, lambda names: "q" in names, what="queues of the backup")
    cluster.kill(0, promote=1)
    cluster[1].delete_queue("q")
    with pytest.raises(LinkDetached) as missing:
        browse(cluster[1], "q")
    assert missing.value.condition == "amqp:not-found"
    assert "q" not in cluster[1].queue_names()


def test_missed_recreate(a_cluster):
    """A backup that missed that a queue and an exchange were deleted and made again has none of their former contents.

    The original did this on #1 before promoting it; only a primary can, so #2 is away while #1, promoted, does it.
    """
    cluster = a_cluster(3, ha_backup_timeout="0.5")
    cluster[0].declare_queue("qq")
    cluster[0].declare_exchange("ex")
    cluster[0].bind("ex", "qq", "k")
    send(cluster[0], "ex/k", ["old"])
    for backup in cluster[1:]:
        wait_browse(backup, "qq", ["old"])
    cluster[2].stop()
    cluster.kill(0)
    try:
        cluster.promote(1)
        cluster[1].delete_queue("qq")
        cluster[1].delete_exchange("ex")
        cluster[1].declare_queue("qq")
        cluster[1].declare_exchange("ex")
        send(cluster[1], "qq", ["new"])
    finally:
        cluster[2].cont()
    cluster.wait_settled(1)
    wait_browse(cluster[2], "qq", ["new"])
    assert cluster[2].bindings() == []
    cluster.kill(1, promote=2)
    send(cluster[2], "ex/k", ["unrouted"])
    assert browse(cluster[2], "qq") == ["new"]


def test_resource_limit_bug(a_cluster):
    """Deleting and making a replicated queue again on a new primary meets no limit."""
    cluster = a_cluster(3)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["a"])
    cluster.kill(0, promote=1)
    cluster[1].delete_queue("q")
    cluster[1].declare_queue("q")
    send(cluster[1], "q", ["b"])
    wait_browse(cluster[2], "q", ["b"])
