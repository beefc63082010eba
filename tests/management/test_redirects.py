"""What a client hears that is not served here, and which addresses it is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.management.redirects import client_addresses, elsewhere
from qpidha.model.broker_states import READY
from qpidha.model.errors import FOLLOWS_REDIRECTS, ConnectionForced, Redirect, Unanswered
from qpidha.model.principal import Principal
from qpidha.model.settings import Settings
from qpidha.model.url import parse_address, parse_url

BROKERS = "amqp:20.0.10.1:5672,20.0.10.2:5672"
FOLLOWER = [FOLLOWS_REDIRECTS]


def a_host(primary: str | None = "20.0.10.1:5672", **options: Any) -> Any:
    peer = SimpleNamespace(name=primary, address=parse_address(primary)) if primary else None
    options.setdefault("ha_brokers_url", parse_url(BROKERS))
    return SimpleNamespace(
        settings=Settings(**options),
        address="20.0.10.2:5672",
        cluster=SimpleNamespace(
            primary=None,
            state=READY,
            handover=None,
            peers=SimpleNamespace(current_primary=lambda: peer),
        ),
    )


def a_connection(
    *,
    offered: list[str] = FOLLOWER,
    tls: bool = False,
    local: str = "20.0.10.2",
    product: str = "",
    opened: bool = False,
) -> Any:
    return SimpleNamespace(
        principal=Principal("ann", encrypted=tls),
        remote_offered=offered,
        remote_properties={"product": product},
        local_host=local,
        opened=opened,
    )


def where(error: Any) -> tuple[object, object, object]:
    assert isinstance(error, Redirect), repr(error)
    return error.info["scheme"], error.info["network-host"], error.info["port"]


def test_who_follows_redirects_is_told_and_others_hear_nothing() -> None:
    host = a_host()
    assert where(elsewhere(host, a_connection())) == ("amqp", "20.0.10.1", 5672)
    jms = a_connection(offered=[], product="QpidJMS")
    assert where(elsewhere(host, jms)) == ("amqp", "20.0.10.1", 5672)
    assert isinstance(elsewhere(host, a_connection(offered=[])), Unanswered)


def test_qpid_jms_is_redirected_before_it_is_served_and_hears_nothing_at_a_hand_over() -> None:
    """On an open connection it takes a close for the failure of each message on its way, and tells
    its application's ExceptionListener; from an end without one it goes on.
    """
    jms = a_connection(offered=[], product="QpidJMS", opened=True)
    assert isinstance(elsewhere(a_host(), jms), Unanswered)
    assert where(elsewhere(a_host(), a_connection(opened=True))) == ("amqp", "20.0.10.1", 5672)


def test_ha_refuse_clients_tells_all_or_none() -> None:
    assert isinstance(elsewhere(a_host(ha_refuse_clients="drop"), a_connection()), Unanswered)
    told = elsewhere(a_host(ha_refuse_clients="redirect"), a_connection(offered=[]))
    assert where(told) == ("amqp", "20.0.10.1", 5672)


def test_without_a_primary_only_our_client_is_told_that_there_is_none() -> None:
    host = a_host(None)
    assert isinstance(elsewhere(host, a_connection()), ConnectionForced)
    jms = a_connection(offered=[], product="QpidJMS")
    assert isinstance(elsewhere(host, jms), Unanswered), "it would take an error for the end"


def test_rabbitmq_d11_during_a_hand_over_the_successor_is_named() -> None:
    host = a_host(None)
    successor = SimpleNamespace(name="b3", address=parse_address("20.0.10.3:5672"))
    host.cluster.handover = SimpleNamespace(peer=successor)
    assert where(elsewhere(host, a_connection())) == ("amqp", "20.0.10.3", 5672)


def test_first_use_d3_a_client_on_tls_is_never_sent_to_a_plain_port() -> None:
    host = a_host()
    client = a_connection(tls=True)
    assert isinstance(elsewhere(host, client), ConnectionForced)
    assert client_addresses(host, client) == []
    host = a_host(ha_public_url=parse_url("amqp:h1,ssl:h1:5671,h2,ssl:h2:5671"))
    assert where(elsewhere(host, client)) == ("amqps", "h1", 5671)
    assert where(elsewhere(host, a_connection())) == ("amqp", "h1", 5672)
    assert [str(address) for address in client_addresses(host, client)] == [
        "ssl:h1:5671",
        "ssl:h2:5671",
    ]


def test_qpid_8_a_client_on_another_network_is_not_told_the_brokers_addresses() -> None:
    host = a_host()
    client = a_connection(local="20.0.20.2")
    assert not isinstance(elsewhere(host, client), Redirect)
    assert client_addresses(host, client) == []
    host = a_host(ha_public_url=parse_url("20.0.20.200"))
    assert where(elsewhere(host, client)) == ("amqp", "20.0.20.200", 5672)


@pytest.mark.parametrize("handing_over", [True, False])
def test_text_for_people_names_no_address_that_a_client_cannot_use(handing_over: bool) -> None:
    def said(**options: Any) -> str:
        host = a_host(None if handing_over else "20.0.10.1:5672", **options)
        successor = SimpleNamespace(name="20.0.10.1:5672", address=parse_address("20.0.10.1:5672"))
        host.cluster.handover = SimpleNamespace(peer=successor) if handing_over else None
        return elsewhere(host, a_connection(local="20.0.20.2")).text

    assert "20.0.10" not in said() and "another broker" in said()
    public = said(ha_public_url=parse_url("20.0.20.1,20.0.20.2"))
    assert "20.0.10" not in public and "20.0.20.1:5672" in public


@pytest.mark.parametrize("local", ["127.0.0.1", "::1", "", "/run/socket"])
def test_a_client_of_this_host_or_an_unknown_network_is_told(local: str) -> None:
    client = a_connection(local=local)
    assert where(elsewhere(a_host(), client)) == ("amqp", "20.0.10.1", 5672)
    assert len(client_addresses(a_host(), client)) == 2


def test_public_addresses_that_are_not_one_for_each_broker_say_nothing_of_the_primary() -> None:
    host = a_host(ha_public_url=parse_url("h1,h2,h3"))
    assert not isinstance(elsewhere(host, a_connection()), Redirect)
    assert len(client_addresses(host, a_connection())) == 3
