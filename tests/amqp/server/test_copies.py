"""Messages that name further keys, as RabbitMQ's clients do: `x-cc`, and `x-bcc`, which nobody sees
(rows 103 and 148, T-A13, T-D16).
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED, RELEASED, target
from qpidha.model.encoding import Array, Symbol
from qpidha.model.errors import InvalidArgument, ProtocolViolation
from qpidha.model.message_view import (
    MOST_COPIES,
    Copies,
    arrival,
    arrival_from,
    body,
    build,
    message_annotations,
)
from tests.amqp.builders import AHost
from tests.amqp.controller import Controller, Sent
from tests.amqp.server.test_access_list import ruled
from tests.amqp.work import Work

TEXT_ARRAY = 0xA1
NUMBERS = count()


def a_client(*, direct: bool = True, **settings: Any) -> Controller:
    """A client of a broker with three queues, each bound to amq.direct by its name."""
    client = Controller(AHost(**settings))
    for name in ("a", "b", "c"):
        client.host.broker.declare_queue(name)
        if direct:
            client.host.broker.bind("amq.direct", name, name)
    return client


def sent_to(client: Controller, address: str | None, payload: bytes) -> Sent:
    sent = client.send(client.sender("", f"s{next(NUMBERS)}", target(address)), payload)
    client.turn()
    return sent


def contents(client: Controller) -> dict[str, list[Any]]:
    return {
        name: [body(message.body()) for message in queue.messages.values()]
        for name, queue in client.host.broker.queues.items()
        if queue.messages
    }


def cc(*keys: str, name: str = "x-cc", **more: Any) -> bytes:
    return build("m", annotations={name: list(keys), **more.pop("annotations", {})}, **more)


@pytest.mark.parametrize("keys", [["b", "c"], Array(TEXT_ARRAY, ["b", "c"])])
def test_row_148_a_message_to_an_exchange_goes_where_its_further_keys_lead(keys: Any) -> None:
    client = a_client()
    sent = sent_to(client, "amq.direct/a", build("m", annotations={"x-cc": keys}))
    assert sent.state == ACCEPTED
    assert contents(client) == {"a": ["m"], "b": ["m"], "c": ["m"]}
    assert client.host.broker.exchanges["amq.direct"].received == 1


@pytest.mark.parametrize(
    ("address", "properties"),
    [
        ("a", {}),
        (None, {"to": "a"}),
        ("amq.direct/a", {}),
        ("amq.direct", {"subject": "a"}),
        (None, {"to": "amq.direct/a"}),
    ],
)
@pytest.mark.parametrize("product", ["qpidha", "rabbitmq"])
def test_t_a13_further_keys_count_whatever_a_message_is_sent_to(
    address: str | None, properties: dict[str, str], product: str
) -> None:
    client = a_client(announce_product=product)
    sent = sent_to(client, address, cc("b", "a", "nowhere", properties=properties))
    assert sent.state == ACCEPTED
    assert contents(client) == {"a": ["m"], "b": ["m"]}
    (message,) = client.host.broker.queues["b"].messages.values()
    found = message_annotations(message.body())
    assert found["x-cc"] == ["b", "a", "nowhere"]
    assert ("x-routing-key" in found) == (product == "rabbitmq")


def test_t_a13_a_key_that_leads_nowhere_does_no_harm_beside_one_that_does() -> None:
    client = a_client()
    assert sent_to(client, "amq.direct/none", cc("b")).state == ACCEPTED
    assert sent_to(client, "amq.direct/none", cc("none either")).state == RELEASED
    assert contents(client) == {"b": ["m"]}


def test_t_d16_keys_in_x_bcc_are_followed_and_shown_to_nobody() -> None:
    client = a_client()
    payload = cc("b", name="x-bcc", annotations={"x-cc": ["c"], "x-opt-mine": 1})
    assert sent_to(client, "amq.direct/a", payload).state == ACCEPTED
    assert contents(client) == {"a": ["m"], "b": ["m"], "c": ["m"]}
    for queue in client.host.broker.queues.values():
        (message,) = queue.messages.values()
        assert message_annotations(message.body()) == {"x-cc": ["c"], "x-opt-mine": 1}


@pytest.mark.parametrize("name", ["x-cc", "x-bcc"])
@pytest.mark.parametrize(
    "value", ["b", 1, [1], ["b", 2], [Symbol("b")], {"b": 1}, ["b"] * 2 + [None]]
)
def test_t_a13_what_is_no_list_of_text_is_rejected_by_name(name: str, value: Any) -> None:
    client = a_client()
    sent = sent_to(client, "amq.direct/a", build("m", annotations={name: value}))
    assert (sent.state, sent.condition) == (REJECTED, "amqp:invalid-field")
    assert contents(client) == {}
    assert sent_to(client, "amq.direct/a", build("m", annotations={name: None})).state == ACCEPTED


def test_too_many_keys_and_too_long_ones_are_refused() -> None:
    client = a_client()
    many = cc(*(f"k{number}" for number in range(MOST_COPIES + 1)))
    for payload in (many, cc("k" * 256)):
        assert sent_to(client, "amq.direct/a", payload).condition == "amqp:invalid-field"
    assert sent_to(client, "amq.direct/a", cc(*["b"] * 1000)).state == ACCEPTED
    assert contents(client) == {"a": ["m"], "b": ["m"]}


def test_one_full_queue_refuses_it_for_all() -> None:
    client = a_client()
    client.host.broker.declare_queue("full", arguments={"qpid.max_count": 1})
    assert sent_to(client, "full", build("m")).state == ACCEPTED
    sent = sent_to(client, "a", cc("full"))
    assert (sent.state, sent.condition) == (REJECTED, "amqp:resource-limit-exceeded")
    assert contents(client) == {"full": ["m"]}


def test_each_key_is_one_that_who_sends_may_use() -> None:
    rules = "acl allow all access queue name=q", "acl allow all publish exchange name=amq.default"
    pair = ruled(rules[0], f"{rules[1]} routingkey=q", f"{rules[1]} routingkey=mine")
    for name in ("mine", "other"):
        pair.host.broker.declare_queue(name)
    link, heard = pair.sender("q")
    for key in ("mine", "other", "to come"):
        link.send(cc(key))
    pair.turn()
    states = [outcome.state for _, outcome in sorted(heard.outcomes, key=lambda each: each[0])]
    # A queue that is not there may be there when a transaction is committed.
    assert states == [ACCEPTED, REJECTED, REJECTED]
    assert len(pair.host.broker.queues["mine"].messages) == 1
    assert not pair.host.broker.queues["other"].messages


def test_a_message_of_a_transaction_goes_there_with_the_commit() -> None:
    work = Work()
    broker = work.client.host.broker
    broker.declare_queue("further")
    work.post(work.sender(), cc("further"))
    work.turn()
    assert not broker.queues["further"].messages
    work.commit()
    assert len(broker.queues["further"].messages) == 1 and work.contents() == ["m"]


HEADERS = st.fixed_dictionaries({"durable": st.booleans(), "priority": st.integers(0, 9)})
OTHERS = st.sampled_from(["x-opt-a", "x-opt-cc", "cc"])


@given(
    st.one_of(st.none(), HEADERS),
    st.dictionaries(OTHERS, st.text(max_size=300), max_size=2),
    st.sampled_from(["x-cc", "x-bcc"]),
    st.lists(st.text(max_size=10), min_size=1, max_size=5),
)
def test_further_keys_are_found_however_a_message_is_built(
    header: dict[str, Any] | None, others: dict[str, str], name: str, keys: list[str]
) -> None:
    payload = build("m", header=header, annotations={**others, name: keys})
    for take in (arrival, lambda payload, now: arrival_from(frozenset((b"me",)), payload, now)):
        with pytest.raises(Copies) as found:
            take(payload, 1)
        assert found.value.keys == list(dict.fromkeys(keys))
        kept = message_annotations(found.value.payload)
        assert kept == ({**others, name: keys} if name == "x-cc" else others)
        assert body(found.value.payload) == "m"
        without = build("m", header=header, annotations=others)
        assert take(without, 1) == (without, 0, 0)


@given(st.binary(max_size=60), st.integers(0, 60))
def test_any_bytes_with_the_name_in_them_are_taken_or_refused(noise: bytes, cut: int) -> None:
    payload = cc("b")
    try:
        arrival(payload[:cut] + noise + payload[cut:], 1)
    except (Copies, ProtocolViolation, InvalidArgument):
        pass
