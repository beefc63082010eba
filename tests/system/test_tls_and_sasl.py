"""TLS for clients and between brokers, PLAIN and EXTERNAL for clients, SCRAM-SHA-256 between brokers."""

from __future__ import annotations

import socket

import pytest
from proton import ConnectionException, Message, SSLDomain
from proton.reactor import Copy
from proton.utils import BlockingConnection

from tests.system.clients import drained
from tests.system.cluster import wait_for
from tests.system.credentials import Authority, users_file

pytestmark = pytest.mark.system


@pytest.fixture
def authority(tmp_path):
    """Return a certificate authority."""
    return Authority(tmp_path)


def client_domain(authority, certificate=None, key=None):
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(authority.certificate))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if certificate:
        domain.set_credentials(str(certificate), str(key), None)
    return domain


def connect_encrypted(broker, domain, **options):
    url = f"amqps://127.0.0.1:{broker.encrypted_port.number}"
    return BlockingConnection(url, timeout=5, ssl_domain=domain, sni="localhost", **options)


def encryption(authority):
    """Return the options of a broker with a certificate."""
    certificate, key = authority.issue("broker")
    return {"ssl_cert": certificate, "ssl_key": key, "ssl_trusted": authority.certificate}


def browse_as_tool(broker, queue, **options):
    connection = BlockingConnection(f"amqp://{broker.address}", timeout=5, properties={"qpid.ha-admin": True}, **options)
    bodies = drained(connection, queue, Copy())
    connection.close()
    return bodies


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_cluster_replicates_over_tls_with_authentication(a_cluster, authority, tmp_path, mechanism):
    """Brokers reach each other by ssl: addresses with this mechanism; clients use PLAIN on the TLS port."""
    users = users_file(tmp_path / "users", {"ha": "ha secret \u00e9", "guest": "guest"})
    ha = {"ha_username": "ha", "ha_password": "ha secret \u00e9", "ha_mechanism": mechanism}
    cluster = a_cluster(2, encrypted=True, users_file=users, **ha, **encryption(authority))
    cluster[0].declare_queue("q")
    domain = client_domain(authority)
    connection = connect_encrypted(cluster[0], domain, user="guest", password="guest", allowed_mechs="PLAIN")
    connection.create_sender("q").send(Message(body="secret"))
    connection.close()
    look = {"user": "ha", "password": "ha secret \u00e9"}
    wait_for(lambda: browse_as_tool(cluster[1], "q", **look), lambda seen: seen == ["secret"], what="q on the backup")
    with pytest.raises(ConnectionException):
        connect_encrypted(cluster[0], domain, user="guest", password="wrong", allowed_mechs="PLAIN")


def test_a_client_certificate_is_an_identity(a_cluster, authority):
    """With ssl-require-client-authentication and EXTERNAL, who has no certificate of the authority is refused."""
    options = encryption(authority)
    (broker,) = a_cluster(1, encrypted=True, auth="yes", ssl_require_client_authentication="yes", sasl_mechanisms="EXTERNAL", **options)
    broker.declare_queue("q")
    connection = connect_encrypted(broker, client_domain(authority, *authority.issue("guest")), allowed_mechs="EXTERNAL")
    connection.create_sender("q").send(Message(body="a"))
    connection.close()
    with pytest.raises(ConnectionException):
        connect_encrypted(broker, client_domain(authority), allowed_mechs="EXTERNAL")


def test_require_encryption_closes_the_plain_port(a_cluster, authority):
    """Nobody listens there; the TLS port serves."""
    (broker,) = a_cluster(1, encrypted=True, require_encryption="yes", **encryption(authority))
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", broker.port.number), timeout=5):
        pass
    connect_encrypted(broker, client_domain(authority)).close()


def test_plain_bytes_on_the_tls_port_end_that_connection_only(a_cluster, authority):
    """A client that speaks AMQP without TLS there is dropped, and the next one is served."""
    (broker,) = a_cluster(1, encrypted=True, **encryption(authority))
    with socket.create_connection(("127.0.0.1", broker.encrypted_port.number), timeout=5) as stream:
        stream.sendall(b"AMQP\x00\x01\x00\x00")
        while stream.recv(4096):
            pass
    connect_encrypted(broker, client_domain(authority)).close()
