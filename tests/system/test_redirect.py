"""What a backup tells the clients that it refuses: who follows redirects gets one, with the list of
servers, and all others get nothing, so that they go on to their next address.
"""

from __future__ import annotations

import pytest

from qpidha.client.blocking import Client
from tests.system.clients import REDIRECT, Refusal, browse, connect
from tests.system.cluster import wait_for

pytestmark = pytest.mark.system


def ports(servers):
    """Return the ports of a failover-server-list."""
    return sorted(int(server["port"]) for server in servers)


def test_a_refused_client_is_redirected_to_the_primary(a_cluster):
    """The close carries amqp:connection:redirect with the primary's address, the open the list of
    all servers.
    """
    cluster = a_cluster(3)
    everyone = sorted(broker.port.number for broker in cluster)
    for backup in cluster[1:]:
        refusal = Refusal(backup)
        assert refusal.condition == REDIRECT
        assert refusal.info["network-host"] == "127.0.0.1"
        assert refusal.info["port"] == cluster[0].port.number
        assert refusal.info["hostname"]
        assert ports(refusal.properties["failover-server-list"]) == everyone


def test_a_client_that_does_not_follow_redirects_hears_nothing(a_cluster):
    """The stream ends before its open is answered: nothing but the security layer was spoken."""
    cluster = a_cluster(2)
    for backup, options in ((cluster[1], {}), (cluster[1], {"properties": {"product": "proton"}})):
        refusal = Refusal(backup, follows=False, **options)
        assert b"AMQP\x03\x01\x00\x00" in refusal.answer
        assert b"AMQP\x00\x01\x00\x00" not in refusal.answer
    jms = Refusal(cluster[1], follows=False, properties={"product": "QpidJMS"})
    assert jms.condition == REDIRECT


def test_ha_refuse_clients_chooses(a_cluster):
    """Nobody is told, or everybody."""
    cluster = a_cluster(2, ha_refuse_clients="drop")
    assert b"AMQP\x00" not in Refusal(cluster[1]).answer
    cluster = a_cluster(2, ha_refuse_clients="redirect")
    assert Refusal(cluster[1], follows=False).condition == REDIRECT


def test_the_redirect_follows_the_primary(a_cluster):
    """After a failover the backups name the new primary, the former one among them."""
    cluster = a_cluster(3)
    cluster.bounce(0, promote=1)
    for backup in (cluster[0], cluster[2]):
        wait_for(
            lambda backup=backup: Refusal(backup).info.get("port"),
            lambda port: port == cluster[1].port.number,
            what="redirect",
        )


def test_the_primary_gives_its_clients_the_list_of_servers(a_cluster):
    """Who is served learns where to go when this broker dies."""
    cluster = a_cluster(2)
    with connect(cluster[0]) as client:
        properties = {str(key): value for key, value in client.broker_properties.items()}
    assert ports(properties["failover-server-list"]) == sorted(
        broker.port.number for broker in cluster
    )
    assert properties["product"]


def test_the_public_url_is_what_clients_are_told(a_cluster):
    """With ha-public-url the list of servers names only that, for instance a virtual IP."""
    cluster = a_cluster(2, ha_public_url="amqp:192.0.2.7:5670")
    servers = Refusal(cluster[1]).properties["failover-server-list"]
    assert [(server["network-host"], int(server["port"])) for server in servers] == [
        ("192.0.2.7", 5670)
    ]


def test_before_the_first_promotion_nobody_is_served_and_tools_are_let_in(a_cluster):
    """A joining broker has nowhere to send clients to; it refuses them with the list alone."""
    cluster = a_cluster(2, promote=False)
    refusal = Refusal(cluster[0])
    assert refusal.condition == "amqp:connection:forced"
    assert ports(refusal.properties["failover-server-list"]) == sorted(
        broker.port.number for broker in cluster
    )
    connect(cluster[0], admin=True).close()


def test_a_client_that_knows_one_backup_finds_the_primary(a_cluster):
    """Following the redirect is enough."""
    cluster = a_cluster(2)
    cluster[0].declare_queue("q")
    with Client(cluster[1].address) as client:
        assert str(client.endpoint) == cluster[0].address
        client.sender("q").send("a")
    assert browse(cluster[0], "q") == ["a"]
