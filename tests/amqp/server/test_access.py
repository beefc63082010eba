"""Access control is asked wherever a link wants something, and its no is heard."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.terminus import REJECTED, Terminus, source, target
from qpidha.model.encoding import Symbol
from qpidha.model.message_view import build
from qpidha.model.principal import Action, ObjectType
from tests.amqp.builders import Pair, Recording, a_pair

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
