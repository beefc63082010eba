"""Who answers where a broker has dialled: what it has to prove, and what it may do."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from qpidha.amqp.peer.sasl import SaslServer, Users
from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.ha.channels import REPLICATION
from qpidha.model.duration import SECOND
from qpidha.model.effects import Announce, Connect, Effect, SendBytes, SendParts
from qpidha.model.events import BytesReceived, ConnectionKind, ConnectionOpened
from qpidha.model.url import parse_url
from tests.amqp.builders import AHost, Recording, a_node

LOGIN: dict[str, Any] = {
    "auth": True,
    "users_file": "users",
    "ha_username": "ha",
    "ha_password": "secret",
}


def offered(mechanism: str, **settings: Any) -> list[Effect]:
    """Return what a backup does whose peer offers this mechanism alone."""
    url = parse_url("h:1,p:2,q:3")
    node = a_node(ha_cluster=True, ha_brokers_url=url, **settings)
    dial = next(
        effect for effect in node.start(SECOND) if isinstance(effect, Connect) and effect.port == 2
    )
    opened = ConnectionOpened(dial.connection_id, "p:2", ConnectionKind.OUTGOING, "", False)
    node.step([opened], SECOND)
    peer = SaslServer([mechanism], Users(), identity="", make_nonce=str)
    return node.step([BytesReceived(dial.connection_id, peer.take_output())], SECOND)


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "EXTERNAL", "PLAIN"])
def test_a_broker_with_a_password_follows_nobody_who_does_not_prove_to_know_it(
    mechanism: str,
) -> None:
    effects = offered(mechanism, **LOGIN)
    (line,) = [effect for effect in effects if isinstance(effect, Announce)]
    assert line.level == "warning" and line.text.startswith(
        f"no connection to p:2: the broker offers SASL mechanisms {mechanism}, none of which "
        "proves who is at either end (SCRAM-SHA-512 SCRAM-SHA-256)"
    )
    assert not [effect for effect in effects if isinstance(effect, SendBytes | SendParts)]


def test_a_broker_that_takes_its_like_without_a_login_takes_a_primary_so() -> None:
    effects = offered("ANONYMOUS", auth=False)
    assert [effect for effect in effects if isinstance(effect, SendBytes | SendParts)]


def test_the_side_that_was_dialled_attaches_nothing() -> None:
    ours, theirs = AHost("ours"), AHost("theirs")
    ours.broker.declare_queue("q")
    services = {name: Recording() for name in ("$management", REPLICATION)}
    ours.services |= services
    dialled = ServedConnection(1, ours, kind=ConnectionKind.OUTGOING, peer="theirs").connection
    peer = ServedConnection(1, theirs, kind=ConnectionKind.CLIENT, peer="ours").connection
    dialled.open("ours", {})
    heard = Recording()

    def turn() -> None:
        for _ in range(6):
            peer.receive(dialled.output())
            dialled.receive(peer.output())

    turn()
    wishes = list(product(("q", *services), (True, False)))
    for address, sender in wishes:
        peer.attach(address, sender=sender, service=heard, name=f"{address} {sender}")
    turn()
    assert len(heard.detached_links) == len(wishes) and not dialled.closed
    assert not any(service.attached_links for service in services.values())
