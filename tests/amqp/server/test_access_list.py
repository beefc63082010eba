"""An access control list is enforced on links: at attach, and for each message whose key or target
is its own.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED, target
from qpidha.broker.vocabulary import CREATE
from qpidha.management.access import Access
from qpidha.management.acl_file import read
from qpidha.model.encoding import Symbol
from qpidha.model.message_view import build
from tests.amqp.builders import Pair, Recording, a_pair
from tests.amqp.work import Work

UNAUTHORIZED = "amqp:unauthorized-access"


def ruled(*lines: str) -> Pair:
    """Return a pair with the queue q, where everybody is anonymous."""
    pair = a_pair()
    found, troubles = read("\n".join(lines))
    assert troubles == []
    access = Access(pair.host.settings, None, pair.host.broker)
    access.use(found)
    pair.host.access = access  # type: ignore[assignment]
    return pair


SEND_Q = "acl allow all publish exchange name=amq.default routingkey=q"
SEE_Q, SEE_TOPIC = (
    "acl allow all access queue name=q",
    "acl allow all access exchange name=amq.topic",
)
SUBSCRIBE = (
    "acl allow all consume queue name=client_*",
    "acl allow all create queue name=client_* exclusive=true",
    "acl allow all bind exchange name=amq.topic queuename=client_* routingkey=a.#",
)


@pytest.mark.parametrize(
    ("address", "sender", "needs"),
    [
        ("q", True, (SEE_Q, SEND_Q)),
        ("q", False, (SEE_Q, "acl allow all consume queue name=q")),
        (
            "amq.topic/a",
            True,
            (SEE_TOPIC, "acl allow all publish exchange name=amq.topic routingkey=a"),
        ),
        ("amq.topic/a.b", False, (SEE_TOPIC, *SUBSCRIBE)),
    ],
)
def test_qpid_4_an_attach_needs_each_of_its_rights(
    address: str, sender: bool, needs: tuple[str, ...]
) -> None:
    link, _ = ruled(*needs).attach(address, sender=sender, name="news")
    assert link.error is None
    for missing in needs:
        rules = [rule for rule in needs if rule != missing]
        link, _ = ruled(*rules).attach(address, sender=sender, name="news")
        assert link.error is not None and link.error.condition == UNAUTHORIZED


def test_who_may_not_see_a_queue_is_not_told_how_it_is() -> None:
    pair = ruled("acl deny all all")
    wanted = target("q", capabilities=[Symbol("durable"), Symbol(CREATE)])
    link, _ = pair.sender("q", terminus=wanted)
    assert link.error is not None and link.error.condition == UNAUTHORIZED


def outcomes(pair: Pair, link: Any, heard: Recording, *messages: bytes) -> list[Any]:
    for message in messages:
        link.send(message)
    pair.turn()
    found = dict(heard.outcomes)
    return [found[number].state for number in sorted(found)]


CREATE_IT = ("acl allow all create", "acl allow all access", "acl allow all bind")
TO_X = "acl allow all publish exchange name=x"


def test_who_makes_a_queue_or_exchange_may_publish_to_its_alternate_exchange() -> None:
    """With a queue of his own a sender could have the broker publish what he rejects."""
    asked = {"exchange-type": "fanout", "alternate-exchange": "x"}
    for properties in ({"alternate-exchange": "x"}, asked):
        for rules, may in (((), False), ((TO_X,), True)):
            pair = ruled(*CREATE_IT, *rules, "acl allow all publish exchange name=amq.default")
            pair.host.broker.declare_exchange("x", "topic")
            wanted = target("new", capabilities=[Symbol(CREATE)], properties=properties)
            link, _ = pair.sender("new", terminus=wanted)
            assert ("new" in {**pair.host.broker.queues, **pair.host.broker.exchanges}) is may
            assert may or (link.error is not None and link.error.condition == UNAUTHORIZED)


def test_who_subscribes_may_publish_to_the_alternate_exchange_of_the_exchange() -> None:
    for rules, may in (((), False), ((TO_X,), True)):
        pair = ruled(*CREATE_IT, *rules, "acl allow all consume")
        pair.host.broker.declare_exchange("x", "topic")
        pair.host.broker.declare_exchange("news", "topic", alternate="x")
        link, _ = pair.receiver("news", name="mine")
        assert (link.error is None) is may
        assert ("client_mine" in pair.host.broker.queues) is may


def test_each_message_to_an_exchange_by_its_own_key_is_asked_about() -> None:
    pair = ruled(SEE_TOPIC, "acl allow all publish exchange name=amq.topic routingkey=a.*")
    pair.host.broker.bind("amq.topic", "q", "#")
    link, heard = pair.sender("amq.topic")
    keys = ("a.b", "b.a", "", "a.c")
    states = outcomes(pair, link, heard, *(build(1, properties={"subject": key}) for key in keys))
    assert states == [ACCEPTED, REJECTED, REJECTED, ACCEPTED]
    assert dict(heard.outcomes)[2].error.condition == UNAUTHORIZED
    assert len(pair.host.broker.queues["q"].messages) == 2


def test_each_message_on_an_anonymous_link_is_asked_about() -> None:
    pair = ruled(SEND_Q, "acl allow all publish exchange name=amq.topic routingkey=a")
    pair.host.broker.declare_queue("other")
    pair.host.broker.bind("amq.topic", "q", "#")
    link, heard = pair.sender("", terminus=target(None), name="anonymous")
    places = ("q", "other", "amq.topic/a", "amq.topic/b")
    states = outcomes(pair, link, heard, *(build(1, properties={"to": to}) for to in places))
    assert states == [ACCEPTED, REJECTED, ACCEPTED, REJECTED]


def test_rules_that_are_read_again_hold_for_the_next_message() -> None:
    pair = ruled(SEE_TOPIC, "acl allow all publish exchange")
    pair.host.broker.bind("amq.topic", "q", "#")
    link, heard = pair.sender("amq.topic")
    message = build(1, properties={"subject": "a"})
    assert outcomes(pair, link, heard, message) == [ACCEPTED]
    pair.host.access.use(read("acl deny all all")[0])  # type: ignore[attr-defined]
    assert outcomes(pair, link, heard, message) == [ACCEPTED, REJECTED]
    pair.host.access.use(None)  # type: ignore[attr-defined]
    assert outcomes(pair, link, heard, message) == [ACCEPTED, REJECTED, ACCEPTED]


def test_a_refused_attach_leaves_nothing_behind() -> None:
    pair = ruled(SEE_TOPIC, *SUBSCRIBE)
    link, _ = pair.receiver("amq.topic/b", name="news")
    assert link.error is not None and link.error.condition == UNAUTHORIZED
    assert set(pair.host.broker.queues) == {"q"}


def test_a_message_of_a_transaction_is_asked_about() -> None:
    pair = ruled(SEND_Q, SEE_TOPIC, "acl allow all publish exchange name=amq.topic routingkey=a")
    work = Work(pair.host)
    pair.host.broker.bind("amq.topic", "q", "#")
    to_topic, anonymous = work.sender("amq.topic", "s1"), work.sender("", "s2", target(None))
    sent = [
        work.post(to_topic, build("1", properties={"subject": "a"})),
        work.post(anonymous, build("2", properties={"to": "q"})),
        work.post(to_topic, build("3", properties={"subject": "b"})),
        work.post(anonymous, build("4", properties={"to": "amq.topic", "subject": "b"})),
    ]
    work.turn()
    found = [outcome.fields[1].descriptor for outcome in sent]
    assert found == [ACCEPTED, ACCEPTED, REJECTED, REJECTED]
    work.rollback()
    assert work.contents() == []
