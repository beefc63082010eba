"""Brokers with a network of their own, as Qpid's documentation recommends, and clients on another:
brokers name each other by addresses that no client reaches.
"""

from __future__ import annotations

import socket

import pytest

from tests.interop.faults import kill
from tests.interop.programs import Access
from tests.interop.test_proton_python import Application
from tests.system.clients import REDIRECT, Refusal, connect
from tests.system.cluster import wait_for
from tests.system.failover_clients import FailoverReceiver, FailoverSender
from tests.system.net import TwoNetworks, can_make_namespaces


@pytest.fixture
def on_two_networks(a_cluster):
    """Return a function that starts three brokers on two networks; with `public` they know what the
    clients call them.
    """
    if not can_make_namespaces():
        pytest.skip("needs root: makes network namespaces")

    def start(public):
        network = TwoNetworks(3)
        url = "amqp:" + ",".join(f"{network.host(index).address}:5672" for index in range(3))
        return a_cluster(3, network=network, **{"ha_public_url": url} if public else {})

    return start


def everything_told(cluster):
    """Return what clients of each kind are told by each broker, whether it serves them or not."""
    with connect(cluster[0]) as client:
        yield client.broker_properties
    for backup in cluster[1:]:
        for options in ({}, {"follows": False}, {"properties": {"product": "QpidJMS"}}):
            refusal = Refusal(backup, **options)
            yield refusal.properties, refusal.info, refusal.answer


@pytest.mark.parametrize("public", [True, False])
def test_no_client_is_told_an_address_of_the_brokers_network(on_two_networks, public):
    """Nor can it reach one: that is how the networks are made."""
    cluster = on_two_networks(public)
    inner = [broker.host.addresses[1] for broker in cluster]
    for address in inner:
        with pytest.raises(OSError), socket.create_connection((address, 5672)):
            pass
    told = [str(what) for what in everything_told(cluster)]
    assert not [what for what in told for address in inner if address in what]
    refusal = Refusal(cluster[1])
    if public:
        assert refusal.condition == REDIRECT
        assert refusal.info["network-host"] == cluster[0].host.address
        servers = refusal.properties["failover-server-list"]
        assert [server["network-host"] for server in servers] == [
            broker.host.address for broker in cluster
        ]
    else:
        assert refusal.condition == "amqp:connection:forced"
        assert not refusal.properties.get("failover-server-list")


@pytest.mark.parametrize("public", [True, False])
def test_clients_go_on_after_a_kill_of_the_primary(on_two_networks, public):
    """Ours, which is told one backup and the rest by the brokers, or, where they cannot know what
    clients call them, has a list; and proton, which always has one.
    """
    cluster = on_two_networks(public)
    for queue in ("q", "ours"):
        cluster[0].declare_queue(queue)
    known = cluster.addresses[1:2] if public else cluster.addresses
    with (
        FailoverSender(known, "ours", rate=1) as sender,
        FailoverReceiver(known, "ours") as receiver,
        Application(Access.to(cluster, 1)) as application,
    ):
        sender.wait_accepted(50)
        application.wait_received(20, "received before")
        kill(cluster)
        before = len(application.accepted)
        sender.wait_accepted(50)
        wait_for(lambda: len(application.accepted), lambda seen: seen > before + 50, what="after")
        bodies = sender.bodies()
        receiver.wait_received(lambda received: set(bodies) <= set(received))
        application.stop()
        assert application.errors == []
        assert application.accepted <= set(application.received)
