"""A consumer may keep a message for so long: then others may have it, and the consumer hears so."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.links import is_settled, remote_state
from qpidha.amqp.peer.terminus import RELEASED, Outcome
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.spec import compile_spec
from qpidha.model.duration import MILLISECOND, SECOND
from qpidha.model.message_view import body, build, header
from qpidha.model.records import QueueDeclared
from tests.amqp.builders import AHost, Pair
from tests.amqp.raw_client import RawClient

LEVELS = {
    "link": ({}, {}, {"rabbitmq:consumer-timeout": 1000}),
    "queue": ({}, {"x-consumer-timeout": 1000}, {}),
    "broker": ({"consumer_timeout": SECOND}, {}, {}),
    "link before queue": ({}, {"x-consumer-timeout": 9000}, {"rabbitmq:consumer-timeout": 1000}),
    "queue before broker": ({"consumer_timeout": 9 * SECOND}, {"x-consumer-timeout": 1000}, {}),
}
NEVER = {
    "nobody says": ({}, {}, {}),
    "link says for ever": ({}, {"x-consumer-timeout": 1000}, {"rabbitmq:consumer-timeout": 0}),
    "queue says for ever": ({"consumer_timeout": SECOND}, {"x-consumer-timeout": 0}, {}),
}


def a_queue(settings: dict[str, Any], arguments: dict[str, Any]) -> Pair:
    pair = Pair(AHost(**settings))
    broker = pair.host.broker
    broker.now = pair.host.now
    queue, _ = broker.declare_queue("q", arguments=arguments)
    for content in "abc":
        queue.enqueue(build(content))
    return pair


def at(pair: Pair, later: int) -> None:
    """Let it be so much later."""
    broker, now = pair.host.broker, pair.host.now + later
    pair.host.now = broker.now = now
    while 0 < broker.next_deadline <= now:
        broker.tick(now)


@pytest.mark.parametrize(("settings", "arguments", "properties"), LEVELS.values(), ids=LEVELS)
def test_row_115_what_is_kept_for_too_long_is_released(
    settings: dict[str, Any], arguments: dict[str, Any], properties: dict[str, Any]
) -> None:
    pair = a_queue(settings, arguments)
    slow, fast = RawClient(pair.host), RawClient(pair.host, "other", 98)
    end = slow.attach_receiver("q", credit=2, properties=properties)
    first, second = slow.deliveries(end)
    at(pair, SECOND - 1)
    slow.turn()
    assert not is_settled(first[0])
    at(pair, 1)
    slow.turn()
    assert [remote_state(delivery) for delivery, _ in (first, second)] == [RELEASED] * 2
    found = fast.deliveries(fast.attach_receiver("q"))
    assert [body(payload) for _, payload in found] == ["a", "b", "c"]
    assert [header(payload).get("delivery_count") for _, payload in found] == [None] * 3
    for delivery, _ in (first, second):
        slow.accept(delivery)  # too late
    slow.turn()
    assert len(pair.host.broker.queues["q"].messages) == 3
    assert not slow.detached and slow.close_error is None


@pytest.mark.parametrize(("settings", "arguments", "properties"), NEVER.values(), ids=NEVER)
def test_row_115_a_consumer_may_keep_it_for_ever(
    settings: dict[str, Any], arguments: dict[str, Any], properties: dict[str, Any]
) -> None:
    pair = a_queue(settings, arguments)
    client = RawClient(pair.host)
    client.deliveries(client.attach_receiver("q", properties=properties))
    assert not pair.host.broker.next_deadline


def test_row_115_each_delivery_has_its_own_time() -> None:
    pair = a_queue({}, {"x-consumer-timeout": 1000})
    client = RawClient(pair.host)
    end = client.attach_receiver("q", credit=1)
    ((first, _),) = client.deliveries(end)
    at(pair, SECOND // 2)
    end.flow(1)
    ((second, _),) = client.deliveries(end)
    at(pair, SECOND // 2)
    client.turn()
    assert (remote_state(first), remote_state(second)) == (RELEASED, 0)
    client.outcome(second, Outcome(RELEASED))
    client.turn()
    at(pair, SECOND)
    assert not pair.host.broker.next_deadline
    assert pair.host.broker.queues["q"].acquired == 0


def change(pair: Pair, ms: int | None) -> None:
    """Let a policy say another time for the queue, or none."""
    given = {} if ms is None else {"x-consumer-timeout": ms}
    queue = pair.host.broker.queues["q"]
    queue.reconfigure(compile_spec(QueueDeclared("q", "", arguments=given), QueueDefaults()))


def test_row_115_it_holds_from_when_the_queue_says_so_until_it_says_so_no_more() -> None:
    pair = a_queue({}, {})
    queue = pair.host.broker.queues["q"]
    client = RawClient(pair.host)
    end = client.attach_receiver("q", credit=1)
    client.deliveries(end)
    for ms in (1000, None):
        change(pair, ms)
        end.flow(1)
        client.deliveries(end)
    at(pair, 5 * SECOND)
    assert queue.acquired == 3 and not pair.host.broker.next_deadline
    change(pair, 1000)
    at(pair, SECOND - 1)
    assert queue.acquired == 3
    at(pair, 1)
    client.turn()
    assert queue.acquired == 0 and not pair.host.broker.next_deadline


@pytest.mark.parametrize("ms", [1000, 60_000])
def test_row_115_another_time_holds_for_what_consumers_have(ms: int) -> None:
    """Counted from when they got it: a consumer that hangs is helped by a policy at once."""
    pair = a_queue({}, {"x-consumer-timeout": 5000})
    queue = pair.host.broker.queues["q"]
    client = RawClient(pair.host)
    client.deliveries(client.attach_receiver("q", credit=2))
    at(pair, SECOND // 2)
    change(pair, ms)
    at(pair, (ms - 500) * MILLISECOND - 1)
    assert queue.acquired == 2
    at(pair, 1)
    assert queue.acquired == 0


def test_row_115_what_a_link_says_itself_does_not_change() -> None:
    pair = a_queue({}, {})
    client = RawClient(pair.host)
    properties = {"rabbitmq:consumer-timeout": 0}
    client.deliveries(client.attach_receiver("q", properties=properties))
    change(pair, 1000)
    assert not pair.host.broker.next_deadline


def shares(pair: Pair, **given: list[Any]) -> dict[str, list[str]]:
    """Return what each of some clients has been given: client and link by name."""
    return {
        name: [body(payload) for _, payload in client.deliveries(end)]
        for name, (client, end) in given.items()
    }


@pytest.mark.parametrize("single", [True, False])
def test_row_115_who_kept_a_message_for_too_long_gets_none_before_others(single: bool) -> None:
    """It may hang, and a single active one would be given the messages for ever."""
    arguments = {"x-consumer-timeout": 1000, "x-single-active-consumer": single}
    pair = a_queue({}, arguments)
    slow, fast = RawClient(pair.host), RawClient(pair.host, "other", 98)
    links = {"slow": (slow, slow.attach_receiver("q", credit=100))}
    assert shares(pair, **links) == {"slow": ["a", "b", "c"]}
    links["fast"] = (fast, fast.attach_receiver("q", credit=4))
    assert shares(pair, **links) == {"slow": [], "fast": []}
    at(pair, SECOND)
    assert shares(pair, **links) == {"slow": [], "fast": ["a", "b", "c"]}
    for content in "de":
        pair.host.broker.queues["q"].enqueue(build(content))
    # Without credit for others it gets what they cannot have, but for who is the only one.
    late = [] if single else ["e"]
    assert shares(pair, **links) == {"slow": late, "fast": ["d"]}


def test_row_115_a_group_goes_to_another_when_all_that_is_out_of_it_is_released() -> None:
    """Its owner, which may hang, is not given again what was released first."""
    pair = a_queue({}, {"x-consumer-timeout": 1000, "qpid.group_header_key": "group"})
    queue = pair.host.broker.queues["q"]
    slow, fast = RawClient(pair.host), RawClient(pair.host, "other", 98)
    links = {"slow": (slow, slow.attach_receiver("q", credit=100))}
    assert shares(pair, **links) == {"slow": ["a", "b", "c"]}
    links["fast"] = (fast, fast.attach_receiver("q", credit=100))
    at(pair, SECOND // 2)
    queue.enqueue(build("d"))
    assert shares(pair, **links) == {"slow": ["d"], "fast": []}
    at(pair, SECOND // 2)
    queue.enqueue(build("e"))
    assert shares(pair, **links) == {"slow": [], "fast": []}
    at(pair, SECOND // 2)
    assert shares(pair, **links) == {"slow": [], "fast": ["a", "b", "c", "d", "e"]}


def test_row_115_the_owner_of_a_group_that_is_heard_of_gets_the_rest_of_it() -> None:
    pair = a_queue({}, {"x-consumer-timeout": 1000, "qpid.group_header_key": "group"})
    client = RawClient(pair.host)
    end = client.attach_receiver("q", credit=100)
    client.deliveries(end)
    at(pair, SECOND // 2)
    pair.host.broker.queues["q"].enqueue(build("d"))
    client.deliveries(end)
    at(pair, SECOND // 2)
    assert shares(pair, client=(client, end)) == {"client": []}
    end.flow(1)
    assert shares(pair, client=(client, end)) == {"client": ["a", "b", "c"]}


@pytest.mark.parametrize("sign", ["credit", "outcome"])
def test_row_115_who_is_heard_of_again_gets_messages_as_before(sign: str) -> None:
    pair = a_queue({}, {"x-consumer-timeout": 1000})
    queue = pair.host.broker.queues["q"]
    slow, fast = RawClient(pair.host), RawClient(pair.host, "other", 98)
    end = slow.attach_receiver("q", credit=100)
    slow.deliveries(end)
    at(pair, SECOND // 2)
    queue.enqueue(build("d"))
    ((fourth, _),) = slow.deliveries(end)
    links = {"slow": (slow, end), "fast": (fast, fast.attach_receiver("q", credit=100))}
    at(pair, SECOND // 2)
    assert shares(pair, **links) == {"slow": [], "fast": ["a", "b", "c"]}
    if sign == "credit":
        end.flow(1)
    else:
        slow.accept(fourth)
    slow.turn()
    for content in "efgh":
        queue.enqueue(build(content))
    assert {name: len(found) for name, found in shares(pair, **links).items()} == {
        "slow": 2,
        "fast": 2,
    }


def test_row_115_who_is_alone_gets_them_again() -> None:
    pair = a_queue({}, {"x-consumer-timeout": 1000, "x-single-active-consumer": True})
    slow = RawClient(pair.host)
    end = slow.attach_receiver("q", credit=100)
    for _ in range(3):
        assert shares(pair, slow=[slow, end]) == {"slow": ["a", "b", "c"]}
        at(pair, SECOND)


@pytest.mark.parametrize("value", [-1, "soon", True, 10**15])
def test_t_q6_a_time_that_cannot_be_is_refused_at_attach(value: object) -> None:
    pair = a_queue({}, {})
    client = RawClient(pair.host)
    client.attach_receiver("q", properties={"rabbitmq:consumer-timeout": value})
    assert client.detached["raw-receiver"] == "amqp:invalid-field"


def test_a_link_that_is_gone_is_not_waited_for() -> None:
    pair = a_queue({"consumer_timeout": SECOND}, {})
    client = RawClient(pair.host)
    end = client.attach_receiver("q")
    client.deliveries(end)
    end.end(closed=True)
    client.turn()
    assert not pair.host.broker.next_deadline
