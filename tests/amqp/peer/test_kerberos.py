"""SASL GSSAPI as far as it needs no Kerberos: its frames, whom it believes, and what it says where
the package is missing. Tickets are those of tests/system/test_kerberos.py.
"""

from __future__ import annotations

import sys

import pytest

from qpidha.amqp.peer.kerberos import MOST_STEPS, Acceptor, Initiator, Step, missing, unfit
from qpidha.amqp.peer.sasl import INIT, OK, OUTCOME, SaslClient, SaslServer, Users
from qpidha.model.errors import ProtocolViolation, Unauthorized
from qpidha.model.settings import GSSAPI
from tests.amqp.peer.test_sasl import talk, work


class AnAcceptor(Acceptor):
    """Asks twice, then knows who is there."""

    def __init__(self, name: str = "ann@R", trouble: str = "") -> None:
        super().__init__("amqp", "")
        self.heard: list[bytes] = []
        self._name, self._trouble = name, trouble

    def _go_on(self, token: bytes) -> Step:
        self.heard.append(token)
        if self._trouble:
            return Step(trouble=self._trouble)
        is_last = len(self.heard) == 3
        return Step(name=self._name, is_last=True) if is_last else Step(b"more")


class AnInitiator(Initiator):
    """Says something three times."""

    def __init__(self) -> None:
        super().__init__("amqp", "host")
        self.count = 0

    def _go_on(self, token: bytes) -> Step:
        self.count += 1
        return Step(b"%d" % self.count, is_last=self.count == 3)


def a_server(acceptor: Acceptor, *, realm: str = "") -> SaslServer:
    users = Users.parse("", realm=realm)
    return SaslServer([GSSAPI], users, identity="", make_nonce=lambda: "nonce", acceptor=acceptor)


def a_client(**options: bool) -> SaslClient:
    return SaslClient(
        GSSAPI,
        username="",
        password="",
        hostname="host",
        nonce="n",
        initiator=AnInitiator(),
        **options,
    )


@pytest.mark.parametrize("mutual", [True, False])
def test_tokens_go_to_and_fro_until_both_are_known(mutual: bool) -> None:
    acceptor = AnAcceptor()
    server, client = a_server(acceptor), a_client(mutual=mutual)
    talk(client, server)
    client.receive(server.take_output())
    assert server.done and client.done and server.user == "ann@R"
    assert acceptor.heard == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("name", "realm", "user"),
    [
        ("ann@R", "OTHER", "ann@R"),
        ("ann@R", "R", "ann"),
        ("anonymous@R", "R", ""),
        ("anonymous@R", "OTHER", "anonymous@R"),
    ],
)
def test_a_principal_of_the_brokers_realm_goes_without_it(name: str, realm: str, user: str) -> None:
    server = a_server(AnAcceptor(name), realm=realm)
    client = a_client()
    talk(client, server)
    assert (server.user if server.done else "") == user and server.failed is not bool(user)


def test_why_a_ticket_is_refused_is_not_told_to_who_has_it() -> None:
    server, client = a_server(AnAcceptor(trouble="the clock is wrong")), a_client()
    talk(client, server)
    client.receive(server.take_output())
    assert server.failed and server.reason == "Kerberos: the clock is wrong" and client.failed
    assert server.by_password  # So who fails again and again waits.
    assert "clock" not in client.reason


def test_a_broker_that_lets_in_before_it_is_known_is_not_believed() -> None:
    client = a_client()
    server = a_server(AnAcceptor())
    client.receive(server.take_output())
    work(client)
    with pytest.raises(Unauthorized, match="before it proved"):
        client.performed(OUTCOME, [OK, None])
    assert not client.done


def test_a_side_that_cannot_go_on_says_why() -> None:
    client = a_client()
    client.receive(a_server(AnAcceptor()).take_output())
    with pytest.raises(Unauthorized, match="no login by Kerberos: no ticket"):
        client.worked(Step(trouble="no ticket"))
    client = SaslClient(GSSAPI, username="", password="", hostname="", nonce="n")
    with pytest.raises(Unauthorized, match="nothing here"):
        client.receive(a_server(AnAcceptor()).take_output())


def test_the_steps_of_a_login_have_a_bound() -> None:
    class Endless(Acceptor):
        def _go_on(self, token: bytes) -> Step:
            return Step(b"more")

    endless = Endless("amqp", "")
    for _ in range(MOST_STEPS):
        assert endless.step(b"more") == Step(b"more")
    assert "more steps" in endless.step(b"more").trouble


@pytest.mark.parametrize(("size", "is_taken"), [(47_000, True), (48_001, False)])
def test_a_ticket_may_be_long_and_only_where_tickets_are_taken(size: int, is_taken: bool) -> None:
    acceptor = AnAcceptor()
    server = a_server(acceptor)
    frame = size.to_bytes(4, "big") + b"\x02\x01\x00\x00"
    header = b"AMQP\x03\x01\x00\x00"
    if is_taken:
        server.receive(header + frame)
        other = SaslServer(["PLAIN"], Users(), identity="", make_nonce=lambda: "n")
        with pytest.raises(ProtocolViolation):
            other.receive(header + frame)
    else:
        with pytest.raises(ProtocolViolation, match="faulty SASL frame"):
            server.receive(header + frame)


def test_an_acceptor_is_asked_only_by_who_names_the_mechanism() -> None:
    server = SaslServer(["PLAIN"], Users(), identity="", make_nonce=lambda: "n")
    server.performed(INIT, [GSSAPI, b"token"])
    assert server.failed and "not offered" in server.reason and server.take_work() is None


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    for said in (
        missing(),
        unfit("amqp", ""),
        Acceptor("amqp", "").step(b"token").trouble,
        Initiator("amqp", "host").step(b"").trouble,
    ):
        assert "gssapi is not there" in said and "pip install 'qpidha[kerberos]'" in said
