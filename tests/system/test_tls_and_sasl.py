"""TLS for clients and between brokers, PLAIN and EXTERNAL for clients, SCRAM-SHA-256 between
brokers.
"""

from __future__ import annotations

import socket

import pytest

from qpidha.client.endpoint import Tls
from qpidha.client.errors import ConnectError, LoginError
from tests.patience import STATE
from tests.system.clients import connect, wait_browse
from tests.system.credentials import Authority, users_file

pytestmark = pytest.mark.system


@pytest.fixture
def authority(tmp_path):
    """Return a certificate authority."""
    return Authority(tmp_path)


def encrypted(broker, authority, *identity, **options):
    """Open a connection to the TLS port; an identity is a certificate and its key."""
    tls = Tls(str(authority.certificate), *map(str, identity), server_name="localhost")
    return connect(f"amqps://127.0.0.1:{broker.encrypted_port.number}", tls=tls, **options)


def encryption(authority):
    """Return the options of a broker with a certificate."""
    certificate, key = authority.issue("broker")
    return {"ssl_cert": certificate, "ssl_key": key, "ssl_trusted": authority.certificate}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_cluster_replicates_over_tls_with_authentication(
    a_cluster, authority, tmp_path, mechanism
):
    """Brokers reach each other by ssl: addresses with this mechanism; clients use PLAIN on the TLS
    port.
    """
    users = users_file(tmp_path / "users", {"ha": "ha secret \u00e9", "guest": "guest"})
    ha = {"ha_username": "ha", "ha_password": "ha secret \u00e9", "ha_mechanism": mechanism}
    cluster = a_cluster(2, encrypted=True, users_file=users, **ha, **encryption(authority))
    cluster[0].declare_queue("q")
    guest = {"user": "guest", "password": "guest", "mechanism": "PLAIN"}
    with encrypted(cluster[0], authority, **guest) as client:
        client.sender("q").send("secret")
    wait_browse(cluster[1], "q", ["secret"], user="ha", password="ha secret \u00e9")
    with pytest.raises(LoginError):
        encrypted(cluster[0], authority, **{**guest, "password": "wrong"})


def test_a_client_certificate_is_an_identity(a_cluster, authority):
    """With ssl-require-client-authentication and EXTERNAL, who has no certificate of the authority
    is refused.
    """
    options = encryption(authority)
    (broker,) = a_cluster(
        1,
        encrypted=True,
        auth="yes",
        ssl_require_client_authentication="yes",
        sasl_mechanisms="EXTERNAL",
        **options,
    )
    broker.declare_queue("q")
    with encrypted(broker, authority, *authority.issue("guest"), mechanism="EXTERNAL") as client:
        client.sender("q").send("a")
    with pytest.raises(ConnectError):
        encrypted(broker, authority, mechanism="EXTERNAL")


def test_code_d8_without_a_certificate_nobody_is_let_in_where_one_is_required(a_cluster, authority):
    """Also where SASL lets everybody in."""
    (broker,) = a_cluster(
        1, encrypted=True, ssl_require_client_authentication="yes", **encryption(authority)
    )
    encrypted(broker, authority, *authority.issue("guest")).close()
    with pytest.raises(ConnectError):
        encrypted(broker, authority)


def test_require_encryption_closes_the_plain_port(a_cluster, authority):
    """Nobody listens there; the TLS port serves."""
    (broker,) = a_cluster(1, encrypted=True, require_encryption="yes", **encryption(authority))
    with (
        pytest.raises(OSError),
        socket.create_connection(("127.0.0.1", broker.port.number), timeout=STATE),
    ):
        pass
    encrypted(broker, authority).close()


def test_plain_bytes_on_the_tls_port_end_that_connection_only(a_cluster, authority):
    """A client that speaks AMQP without TLS there is dropped, and the next one is served."""
    (broker,) = a_cluster(1, encrypted=True, **encryption(authority))
    with socket.create_connection(
        ("127.0.0.1", broker.encrypted_port.number), timeout=STATE
    ) as stream:
        stream.sendall(b"AMQP\x00\x01\x00\x00")
        while stream.recv(4096):
            pass
    encrypted(broker, authority).close()
