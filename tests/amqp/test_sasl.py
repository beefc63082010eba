"""SASL on both sides, through whole connections."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.connection import Connection
from qpidha.amqp.sasl import AMQP_HEADER, SASL_HEADER, Users, make_verifier
from qpidha.words.errors import InvalidArgument
from qpidha.words.events import ConnectionKind
from tests.amqp.builders import AHost, Pair

SALT = b"0123456789abcdef"


def a_host_with_users(**settings: Any) -> AHost:
    host = AHost(auth=True, users_file="users", **settings)
    host.users = Users.parse(f"# who may log in\n\nann:{make_verifier('päss', SALT)}\nbob:{make_verifier('b', SALT, 5000)}\n")
    return host


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", ""])
def test_the_right_password_lets_in(mechanism: str) -> None:
    pair = Pair(a_host_with_users(), mechanism=mechanism, username="ann", password="päss")
    assert pair.server.user == "ann"
    assert pair.server.mechanism == (mechanism or "SCRAM-SHA-256")
    assert pair.client.remote_container == "broker"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("name", ["ann", "nobody"])
def test_a_wrong_password_or_name_is_refused_before_open(mechanism: str, name: str) -> None:
    pair = Pair(a_host_with_users(), mechanism=mechanism, username=name, password="wrong")
    assert pair.server.closed and pair.client.closed
    assert pair.host.admitted == []
    assert pair.client.error is not None and pair.client.error.condition == "amqp:unauthorized-access"


def test_anonymous_is_not_offered_where_users_must_log_in() -> None:
    pair = Pair(a_host_with_users(), mechanism="ANONYMOUS")
    assert pair.client.closed
    assert pair.client.error is not None and "none of which is usable" in pair.client.error.description


def test_external_takes_the_identity_of_the_certificate() -> None:
    pair = Pair(AHost(auth=True), identity="CN=b2", encrypted=True, mechanism="EXTERNAL")
    assert pair.server.user == "CN=b2"


def test_external_is_not_offered_without_a_certificate() -> None:
    assert Pair(AHost(), mechanism="EXTERNAL").client.closed


def test_offered_mechanisms_can_be_restricted() -> None:
    pair = Pair(a_host_with_users(sasl_mechanisms=("PLAIN",)), username="bob", password="b")
    assert pair.server.mechanism == "PLAIN"


def test_a_client_without_sasl_is_refused_where_users_must_log_in() -> None:
    host = a_host_with_users()
    connection = Connection(1, host, kind=ConnectionKind.CLIENT, peer="client")
    connection.receive(AMQP_HEADER)
    assert connection.output() == SASL_HEADER
    assert connection.closed


def test_a_client_without_sasl_is_served_where_nobody_must_log_in() -> None:
    connection = Connection(1, AHost(), kind=ConnectionKind.CLIENT, peer="client")
    connection.receive(AMQP_HEADER)
    assert connection.output().startswith(AMQP_HEADER)
    assert not connection.closed


def test_bytes_may_come_one_at_a_time() -> None:
    host = a_host_with_users()
    client = Connection(1, AHost("client"), kind=ConnectionKind.OUTGOING, peer="broker")
    server = Connection(1, host, kind=ConnectionKind.CLIENT, peer="client")
    client.open("client", {}, username="ann", password="päss")
    for _ in range(10):
        for sender, receiver in ((client, server), (server, client)):
            for octet in sender.output():
                receiver.receive(bytes((octet,)))
    assert server.user == "ann" and client.remote_container == "broker"


def test_a_faulty_users_file_is_named_by_line() -> None:
    with pytest.raises(InvalidArgument, match="line 2"):
        Users.parse("# fine\nann:plain-password\n")
    with pytest.raises(InvalidArgument, match="line 1"):
        Users.parse("ann:SCRAM-SHA-256$1:c2FsdA==$a2V5:a2V5\n")


def test_a_name_is_the_same_with_and_without_the_realm() -> None:
    users = Users.parse(f"ann@QPID:{make_verifier('a', SALT)}\nbob:{make_verifier('b', SALT)}\n", realm="QPID")
    assert users.check("ann", "a") and users.check("ann@QPID", "a") and users.check("bob@QPID", "b")
    assert not users.check("ann@OTHER", "a")
    assert users.auth_info("bob@QPID") == users.auth_info("bob")
