"""What receivers of `amq.failover` are told of the brokers of a cluster, and when."""

from __future__ import annotations

import pytest

from qpidha.client.errors import LinkError
from tests.system.clients import connect
from tests.system.cluster import wait_for

pytestmark = pytest.mark.system


def urls(cluster, *order):
    return [f"amqp://{cluster[number].address}" for number in order]


def test_a_receiver_is_told_the_brokers_and_every_change(a_cluster):
    """The primary comes first, then the members of the set; a broker that is lost comes last."""
    cluster = a_cluster(3)
    with connect(cluster[0]) as client:
        first, second = client.receiver("amq.failover"), client.receiver("/exchanges/amq.failover")
        told = first.receive()
        assert told.properties.subject == "amq.failover"
        assert told.body == second.receive().body == urls(cluster, 0, 1, 2)
        cluster.kill(1)
        for receiver in (first, second):
            assert receiver.receive().body == urls(cluster, 0, 2, 1)
        with pytest.raises(LinkError, match="nothing can be sent"):
            client.sender("amq.failover")


def test_a_receiver_without_credit_gets_the_newest_list_only(a_cluster):
    cluster = a_cluster(3)
    with connect(cluster[0]) as client:
        receiver = client.receiver("amq.failover", credit=0)
        cluster.kill(1)
        wait_for(
            lambda: len(cluster[0].status()["in_sync"]["members"]),
            lambda count: count == 2,
            what="the loss",
        )
        receiver.add_credit(5)
        assert receiver.receive().body == urls(cluster, 0, 2, 1)


def test_the_next_primary_is_the_first_of_its_list(a_cluster):
    cluster = a_cluster(3)
    cluster.kill(0, promote=1)
    with connect(cluster[1]) as client:
        assert client.receiver("amq.failover").receive().body == urls(cluster, 1, 2, 0)


def test_the_public_url_is_what_receivers_are_told(a_cluster):
    cluster = a_cluster(2, ha_public_url="amqp:192.0.2.7:5670")
    with connect(cluster[0]) as client:
        assert client.receiver("amq.failover").receive().body == ["amqp://192.0.2.7:5670"]


def test_a_broker_without_a_cluster_has_no_such_exchange(a_cluster):
    (broker,) = a_cluster(1, promote=False, ha_cluster=False, ha_brokers_url="none")
    with connect(broker) as client, pytest.raises(LinkError, match=r"no .*amq\.failover"):
        client.receiver("amq.failover")
