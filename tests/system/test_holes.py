"""Holes of the original that no other test shows closed; docs/holes.md lists all of them with their
tests.
"""

from __future__ import annotations

import pytest

from qpidha.client.message import Message
from qpidha.model.message_view import build
from tests.system.clients import browse, connect, receive, send, wait_browse
from tests.system.cluster import Admin, wait_for
from tests.system.failover_clients import FailoverSender
from tests.system.test_store import declare

pytestmark = pytest.mark.system
NEW = {"first_acquirer": True}


def test_a_backup_is_not_ready_before_it_has_all_exchanges_and_bindings(a_cluster):
    """At the moment at which it says ready, a backup that joined late has every object; the
    original counted queues only.
    """
    cluster = a_cluster(2, started=1)
    primary, late = cluster
    primary.declare_queue("q")
    with Admin(primary.admin_socket) as admin:
        for i in range(150):
            admin.call("declare_exchange", name=f"e{i}", type="fanout", arguments={})
            admin.call("bind", exchange=f"e{i}", queue="q", key=f"k{i}", arguments={})
    late.start()
    late.wait_up()
    late.wait_state("ready")
    assert len(late.bindings()) == 150
    assert late.bindings() == primary.bindings()


def test_queues_of_a_broker_that_was_alone_are_replicated_when_it_gets_backups(a_cluster):
    """A standalone broker with durable queues becomes the first of a cluster; its backup gets them
    with their messages.
    """
    cluster = a_cluster(2, started=1, promote=False)
    first, second = cluster
    first.kill()
    first.options["ha_cluster"] = "no"
    first.restart()
    declare(first)
    first.bind("amq.fanout", "q")
    send(first, "q", ["a", "b"], durable=True)
    first.kill()
    first.options["ha_cluster"] = "yes"
    first.restart()
    first.promote()
    first.wait_state("active")
    assert browse(first, "q") == ["a", "b"]
    second.start()
    second.wait_up()
    second.wait_state("ready")
    wait_browse(second, "q", ["a", "b"])
    assert second.bindings() == first.bindings()
    cluster.kill(0, promote=1)
    send(second, "amq.fanout", ["c"])
    assert browse(second, "q") == ["a", "b", "c"]


def test_an_auto_delete_queue_that_was_left_before_a_backup_joined_does_not_live_for_ever(
    a_cluster,
):
    """Its last consumer left within the timeout, a backup joined and took over: the queue goes when
    its time is up. Of queues with longer and longer timeouts it is the first that was there still.
    """
    cluster = a_cluster(2, started=1)
    names = [f"q{number:03}" for number in (1, 2, 4, 8, 16, 32, 64, 128)]
    with connect(cluster[0]) as client:
        for name in names:
            arguments = {"qpid.auto_delete_timeout": int(name[1:])}
            cluster[0].call("declare_queue", name=name, auto_delete=True, arguments=arguments)
            client.receiver(name)
    cluster[1].start()
    cluster[1].wait_up()
    cluster[1].wait_state("ready")
    cluster.kill(0, promote=1)
    first = cluster[1].queue_names()[0]
    assert first in names
    wait_for(
        lambda: cluster[1].queue_names(),
        lambda names: first not in names,
        what="the queues of the new primary",
    )


def test_a_redelivery_is_marked_after_a_failover(a_cluster):
    """A failed delivery was counted before the primary died: the next consumer at the new primary
    sees the count.
    """
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    send(cluster[0], "q", ["x"])
    with connect(cluster[0]) as client:
        client.receiver("q").receive()  # and leaves with it: so it has failed once
    sequence = cluster[0].status()["committed"]
    wait_for(
        lambda: cluster[1].status()["applied"],
        lambda applied: applied >= sequence,
        what="what the backup has applied",
    )
    cluster.kill(0, promote=1)
    with connect(cluster[1]) as client:
        message = client.receiver("q").receive()
    assert message.body == "x" and message.header.delivery_count == 1


def test_d7_what_was_in_a_consumers_hands_at_a_failover_says_so(a_cluster):
    """100 messages with a consumer, 40 of them done with: after the primary's death the other 60
    come, in order, each marked and none as new; what is sent afterwards is not marked.
    """
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with connect(cluster[0]) as client:
        sender = client.sender("q")
        for number in range(100):
            sender.send(Message.decode(build(number, header=NEW)))
        receiver = client.receiver("q", credit=100, confirm=True)
        had = [receiver.receive() for _ in range(100)]
        for message in had[:40]:
            message.accept()
        receiver.wait_confirmed()
        cluster.kill(0, promote=1)
    with connect(cluster[1]) as client:
        client.sender("q").send(Message.decode(build(100, header=NEW)))
        receiver = client.receiver("q")
        again = [receiver.receive() for _ in range(61)]
    assert [message.body for message in again] == list(range(40, 101))
    assert [message.header.first_acquirer for message in again] == [False] * 60 + [True]
    marks = [message.message_annotations.get("x-opt-ha-failover", False) for message in again]
    assert marks == [True] * 60 + [False]


def test_a_broker_is_added_by_a_rolling_restart_under_load(a_cluster):
    """The brokers get a longer ha-brokers-url one after the other, the primary last; nothing is
    lost and the fourth is a member.
    """
    cluster = a_cluster(4, started=0, promote=False, ha_safety="strict")
    three = ",".join(broker.address for broker in cluster[:3])
    for broker in cluster[:3]:
        broker.options["ha_brokers_url"] = three
        broker.start()
    for broker in cluster[:3]:
        broker.wait_up()
    cluster.promote(0)
    cluster.wait_settled(0)
    declare(cluster[0])
    with FailoverSender(cluster.addresses, "q", rate=1, durable=True) as sender:
        sender.wait_accepted(20)
        for i in (1, 2):
            cluster[i].kill()
            cluster[i].options["ha_brokers_url"] = cluster.url
            cluster[i].restart()
            cluster.wait_settled(0)
        cluster[3].start()  # three of four are a majority without the primary
        cluster[3].wait_up()
        cluster[0].kill()
        cluster.promote(1)
        cluster[0].options["ha_brokers_url"] = cluster.url
        cluster[0].restart()
        cluster.wait_settled(1)
        sender.wait_accepted(20)
    assert len(cluster[1].status()["in_sync"]["members"]) == 4
    bodies = browse(cluster[1], "q")
    assert sender.missing(bodies) == []
    wait_browse(cluster[3], "q", bodies)
    assert receive(cluster[1], "q", 1) == ["1"]
