"""Nodes that are made for unknown names that fit a pattern, and when they go."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.terminus import source, target
from qpidha.broker.node_patterns import NodePatterns
from qpidha.broker.vocabulary import Kind
from qpidha.model.encoding import Symbol
from qpidha.model.errors import InvalidArgument
from qpidha.model.message_view import body, build
from qpidha.model.principal import Action, ObjectType
from tests.amqp.builders import AHost, CountingLogWriter, Pair
from tests.amqp.raw_client import RawClient

BOTH = (Kind.QUEUE, Kind.EXCHANGE)
WITH_NODE = {"queue_patterns": ("^orders",), "topic_patterns": ("^news", r"^orders\.all$")}


def condition(link: Any) -> str:
    return str(link.error.condition) if link.error is not None else ""


def a_pair() -> Pair:
    return Pair(AHost(**WITH_NODE))


@pytest.mark.parametrize(
    ("name", "among", "kind"),
    [
        ("orders", BOTH, Kind.QUEUE),
        ("orders.all", BOTH, Kind.EXCHANGE),
        ("orders.all", (Kind.QUEUE,), Kind.QUEUE),
        ("news.x", BOTH, Kind.EXCHANGE),
        ("news.x", (Kind.QUEUE,), None),
        ("old news", BOTH, None),
        ("", BOTH, None),
    ],
)
def test_the_longest_pattern_decides(name: str, among: Any, kind: Kind | None) -> None:
    patterns = NodePatterns(WITH_NODE["queue_patterns"], WITH_NODE["topic_patterns"])
    assert patterns.kind_of(name, among) is kind


def test_what_is_no_pattern_or_one_of_both_kinds_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is no pattern"):
        NodePatterns(["("], [])
    with pytest.raises(InvalidArgument, match="of queues and of topics"):
        NodePatterns(["a", "b"], ["b"])


def test_a_queue_is_made_for_a_name_and_goes_unused_and_empty() -> None:
    pair = a_pair()
    broker = pair.host.broker
    sender, heard = pair.sender("orders")
    assert heard.attached_links == [sender]
    queue = broker.queues["orders"]
    assert not queue.options.durable
    sender.send(build("first"))
    pair.turn()
    sender.close()
    pair.turn()
    assert "orders" in broker.queues
    receiver, taken = pair.receiver("orders")
    pair.turn()
    assert [body(payload) for payload in taken.payloads] == ["first"]
    receiver.close()
    pair.turn()
    assert "orders" not in broker.queues
    assert ("anonymous", Action.CREATE, ObjectType.QUEUE, "orders") in [
        (who.split("@")[0], *asked) for who, *asked in pair.host.access.asked
    ]


def test_a_topic_stays_while_somebody_sends_to_it() -> None:
    pair = a_pair()
    broker = pair.host.broker
    sender, outcomes = pair.sender("news")
    assert broker.exchanges["news"].options.type == "topic"
    receiver, taken = pair.receiver("news")
    sender.send(build(1))
    pair.turn()
    assert [body(payload) for payload in taken.payloads] == [1]
    receiver.close()
    pair.turn()
    assert "news" in broker.exchanges
    sender.close()
    pair.turn()
    assert "news" not in broker.exchanges and not broker.queues


@pytest.mark.parametrize("first", ["sender", "receiver"])
def test_a_topic_goes_with_its_last_user(first: str) -> None:
    pair = a_pair()
    link, _ = getattr(pair, first)("news")
    assert "news" in pair.host.broker.exchanges
    link.close()
    pair.turn()
    assert "news" not in pair.host.broker.exchanges and not pair.host.broker.queues


def test_a_declared_exchange_waits_for_its_first_binding_whoever_sends() -> None:
    pair = a_pair()
    pair.host.broker.declare_exchange("x", auto_delete=True)
    sender, _ = pair.sender("x")
    sender.close()
    pair.turn()
    assert "x" in pair.host.broker.exchanges
    sender, _ = pair.sender("x", name="again")
    receiver, _ = pair.receiver("x")
    receiver.close()
    pair.turn()
    assert "x" in pair.host.broker.exchanges
    sender.close()
    pair.turn()
    assert "x" not in pair.host.broker.exchanges


def test_capabilities_and_properties_say_what_is_made() -> None:
    pair = a_pair()
    broker = pair.host.broker
    pair.sender("orders.all", terminus=target("orders.all", capabilities=["queue"]))
    assert "orders.all" in broker.queues
    durable = {Symbol("durable"): True}
    kept, _ = pair.sender("orders.kept", terminus=target("orders.kept", properties=durable))
    kept.close()
    pair.turn()
    assert broker.queues["orders.kept"].options.durable
    fanout = {Symbol("exchange-type"): "fanout"}
    pair.receiver("news", terminus=source("news", properties=fanout))
    assert broker.exchanges["news"].options.type == "fanout"
    link, _ = pair.sender("news.q", terminus=target("news.q", capabilities=["queue"]))
    assert condition(link) == "amqp:not-found"
    link, _ = pair.sender("/exchanges/orders")
    assert condition(link) == "amqp:not-found"
    link, _ = pair.sender("elsewhere")
    assert condition(link) == "amqp:not-found"


def test_who_may_not_create_gets_nothing_made() -> None:
    pair = a_pair()
    pair.host.access.denied = {
        (Action.CREATE, ObjectType.QUEUE, "orders"),
        (Action.CONSUME, ObjectType.QUEUE, "orders.2"),
    }
    link, _ = pair.sender("orders")
    assert condition(link) == "amqp:unauthorized-access"
    link, _ = pair.receiver("orders.2")
    assert condition(link) == "amqp:unauthorized-access"
    assert not pair.host.broker.queues


@pytest.mark.parametrize("name", ["orders", "news"])
@pytest.mark.parametrize("sender", [True, False])
@pytest.mark.parametrize("how", ["detach", "close", "lost"])
def test_nothing_stays_of_an_attach_that_is_taken_back(how: str, sender: bool, name: str) -> None:
    host = AHost(ha_replicate="all", **WITH_NODE)
    host.broker.log_writer = CountingLogWriter()
    host.delaying = True
    client = RawClient(host)
    end = client.attach_sender(name) if sender else client.attach_receiver(name)
    assert name in host.broker.queues or name in host.broker.exchanges
    if how == "lost":
        client.server.lost("gone")
    else:
        end.end(closed=how == "close")
        client.turn()
    host.release_all()
    client.turn()
    assert name not in host.broker.queues and name not in host.broker.exchanges


def test_a_backup_makes_nothing() -> None:
    host = AHost(ha_replicate="all", **WITH_NODE)
    host.broker.log_writer = CountingLogWriter()
    host.serving = False
    pair = Pair(host)
    assert condition(pair.sender("orders")[0]) == "amqp:not-allowed"
    assert condition(pair.receiver("news")[0]) == "amqp:not-allowed"
    assert not host.broker.queues and "news" not in host.broker.exchanges
