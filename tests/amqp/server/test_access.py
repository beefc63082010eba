"""Access control is asked wherever a link wants something, and its no is heard."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.terminus import REJECTED, Terminus, source, target
from qpidha.model.encoding import Symbol
from qpidha.model.message_view import build
from qpidha.model.principal import Action, ObjectType
from tests.amqp.builders import AHost, AnAccess, Pair, Recording, a_pair
from tests.amqp.raw_client import RawClient
from tests.management.builders import FakeNode
from tests.management.test_requests import Asker

UNAUTHORIZED = "amqp:unauthorized-access"


def on_demand(make: Any, name: str, **properties: Any) -> Terminus:
    terminus: Terminus = make(name)
    terminus.capabilities = [Symbol("create-on-demand")]
    terminus.properties = properties
    return terminus


def attach(pair: Pair, case: str) -> Any:
    """Attach in one of the ways there are."""
    if case == "to a queue":
        return pair.sender("q")
    if case == "to an exchange":
        return pair.sender("amq.topic/a")
    if case == "from a queue":
        return pair.receiver("q")
    if case in ("subscription", "binding"):
        return pair.receiver("amq.topic", name="news")
    if case == "new queue":
        return pair.sender("new", terminus=on_demand(target, "new"))
    if case == "new exchange":
        wanted = on_demand(source, "new", **{"exchange-type": "fanout"})
        return pair.receiver("new", terminus=wanted)
    assert case == "service"
    pair.host.services["$desk"] = Recording()
    return pair.sender("$desk")


@pytest.mark.parametrize(
    "case, question",
    [
        ("to a queue", (Action.ACCESS, ObjectType.QUEUE, "q")),
        ("to an exchange", (Action.ACCESS, ObjectType.EXCHANGE, "amq.topic")),
        ("subscription", (Action.ACCESS, ObjectType.EXCHANGE, "amq.topic")),
        ("to a queue", (Action.PUBLISH, ObjectType.QUEUE, "q")),
        ("to an exchange", (Action.PUBLISH, ObjectType.EXCHANGE, "amq.topic")),
        ("from a queue", (Action.CONSUME, ObjectType.QUEUE, "q")),
        ("subscription", (Action.CREATE, ObjectType.QUEUE, "client_news")),
        ("subscription", (Action.CONSUME, ObjectType.QUEUE, "client_news")),
        ("binding", (Action.BIND, ObjectType.EXCHANGE, "amq.topic")),
        ("new queue", (Action.CREATE, ObjectType.QUEUE, "new")),
        ("new queue", (Action.PUBLISH, ObjectType.QUEUE, "new")),
        ("new exchange", (Action.CREATE, ObjectType.EXCHANGE, "new")),
        ("service", (Action.ACCESS, ObjectType.SERVICE, "$desk")),
    ],
)
def test_an_attach_is_asked_about_and_refused(
    case: str, question: tuple[Action, ObjectType, str]
) -> None:
    allowed = a_pair()
    link, _ = attach(allowed, case)
    assert link.error is None and ("anonymous", *question) in allowed.host.access.asked

    denied = a_pair()
    denied.host.access.denied.add(question)
    link, _ = attach(denied, case)
    assert link.error is not None and link.error.condition == UNAUTHORIZED
    if question[0] in (Action.CREATE, Action.BIND):
        assert set(denied.host.broker.queues) == {"q"} and "new" not in denied.host.broker.exchanges


CREATES_Q = (Action.CREATE, ObjectType.QUEUE, "new")


@pytest.mark.parametrize(
    "spelled",
    [
        {"x-max-length": 5},
        {"qpid.max_count": 5, "qpid.policy_type": "ring"},
        {"qpid.max_count": 5, "x-overflow": "drop-head", "durable": False},
    ],
)
def test_rules_see_what_is_done_however_it_is_spelled(spelled: dict[str, Any]) -> None:
    done = {
        "qpid.max_count": 5,
        "qpid.policy_type": "ring",
        "durable": False,
        "exclusive": False,
        "auto-delete": False,
        "alternate-exchange": "",
    }
    pair = a_pair()
    link, _ = pair.sender("new", terminus=on_demand(target, "new", **spelled))
    assert link.error is None
    assert pair.host.access.properties[CREATES_Q] == done

    asker = Asker(FakeNode())
    asker.target.access = AnAccess()  # type: ignore[assignment]
    asker.ask("declare_queue", name="new", arguments=spelled)
    assert asker.target.access.properties[CREATES_Q] == done  # type: ignore[attr-defined]


def test_rules_see_the_same_of_an_exchange_and_a_binding_by_every_window() -> None:
    pair = a_pair()
    pair.receiver("new", terminus=on_demand(source, "new", **{"exchange-type": "fanout"}))
    asker = Asker(FakeNode())
    asker.target.access = access = AnAccess()  # type: ignore[assignment]
    asker.ask("declare_exchange", name="new", type="fanout", arguments={"durable": False})
    question = (Action.CREATE, ObjectType.EXCHANGE, "new")
    assert pair.host.access.properties[question] == access.properties[question]
    assert access.properties[question]["exchange-type"] == "fanout"

    pair.receiver("amq.topic/a.#", name="news")
    question = (Action.BIND, ObjectType.EXCHANGE, "amq.topic")
    asker.ask("declare_queue", name="client_news")
    asker.ask("bind", exchange="amq.topic", queue="client_news", key="a.#")
    assert pair.host.access.properties[question] == access.properties[question]
    assert access.properties[question] == {"queuename": "client_news", "routingkey": "a.#"}


@pytest.mark.parametrize("address", ["q", "/queues/q", "/queues/%71", "/exchanges//q", "%71"])
def test_rules_see_the_queue_that_an_address_means(address: str) -> None:
    question = (Action.PUBLISH, ObjectType.QUEUE, "q")
    pair = a_pair()
    pair.host.access.denied.add(question)
    link, _ = pair.sender(address)
    assert link.error is not None and link.error.condition == UNAUTHORIZED
    link, heard = pair.sender("", terminus=target(None), name="anonymous")
    link.send(build(1, properties={"to": address}))
    pair.turn()
    (outcome,) = dict(heard.outcomes).values()
    assert outcome.error.condition == UNAUTHORIZED and not pair.host.broker.queues["q"].messages
    receiver = a_pair()
    receiver.host.access.denied.add((Action.CONSUME, ObjectType.QUEUE, "q"))
    link, _ = receiver.receiver(address)
    assert link.error is not None and link.error.condition == UNAUTHORIZED


def test_rules_see_all_of_the_queue_of_a_subscription() -> None:
    pair = a_pair()
    pair.receiver("amq.topic", name="news")
    seen = pair.host.access.properties[Action.CREATE, ObjectType.QUEUE, "client_news"]
    assert (seen["exclusive"], seen["auto-delete"], seen["durable"]) == (True, True, False)


def test_each_message_on_an_anonymous_link_is_asked_about() -> None:
    pair = a_pair()
    pair.host.broker.declare_queue("t")
    pair.host.broker.bind("amq.topic", "t", "#")
    pair.host.access.denied |= {
        (Action.PUBLISH, ObjectType.QUEUE, "q"),
        (Action.PUBLISH, ObjectType.EXCHANGE, "amq.topic"),
    }
    link, heard = pair.sender("", terminus=target(None), name="anonymous")
    for to in ("q", "amq.topic/a", "t"):
        link.send(build(1, properties={"to": to}))
    pair.turn()
    outcomes = dict(heard.outcomes)
    assert [outcomes[number].state == REJECTED for number in (1, 2, 3)] == [True, True, False]
    assert {outcomes[number].error.condition for number in (1, 2)} == {UNAUTHORIZED}
    assert (
        not pair.host.broker.queues["q"].messages
        and len(pair.host.broker.queues["t"].messages) == 1
    )


def test_who_has_made_something_by_an_attach_is_told() -> None:
    pair = a_pair()
    told = pair.host.access.told
    pair.sender("new", terminus=on_demand(target, "new"))
    pair.sender("new", name="another", terminus=on_demand(target, "new"))
    exchange = on_demand(source, "news", **{"exchange-type": "fanout"})
    pair.receiver("news", name="r", terminus=exchange)
    made = ["queue new", "exchange news", "queue client_r"]
    assert told == [*(f"anonymous create {what}" for what in made), "anonymous bind exchange news/"]
    pair.sender("q")
    pair.receiver("q")
    assert len(told) == 4


@pytest.mark.parametrize("action", [Action.ACCESS, Action.CONSUME, Action.DELETE])
@pytest.mark.parametrize("terminus", [source("amq.topic"), Terminus()])
def test_who_takes_a_subscription_over_needs_what_is_done_with_its_queue(
    action: Action, terminus: Terminus
) -> None:
    host = AHost()
    host.broker.declare_queue("orders_in", durable=True, exclusive=True)
    host.broker.bind("amq.topic", "orders_in", "k")
    question = (action, ObjectType.QUEUE, "orders_in")
    host.access.denied.add(question)
    client = RawClient(host, container_id="orders")
    client.attach_receiver("", name="in", terminus=terminus, credit=0)
    assert client.detached == {"in": UNAUTHORIZED}
    host.access.denied.clear()
    client.attach_receiver("", name="in", terminus=terminus, credit=0).end(closed=True)
    client.turn()
    assert not host.broker.queues


def test_who_has_ended_a_subscription_is_told() -> None:
    host = AHost()
    terminus = source("amq.topic/k", durability=2, expiry="never")
    client = RawClient(host, container_id="c")
    for closed in (False, True):
        client.attach_receiver("", name="sub", terminus=terminus).end(closed=closed)
        client.turn()
    assert host.access.told == [
        "anonymous create queue c_sub",
        "anonymous bind exchange amq.topic/k",
        "anonymous delete queue c_sub",
    ]


def test_nobody_is_told_of_what_was_refused() -> None:
    pair = a_pair()
    pair.host.access.denied.add((Action.BIND, ObjectType.EXCHANGE, "amq.topic"))
    pair.receiver("amq.topic", name="news")
    assert pair.host.access.told == []
