"""Who gets what goes on over a kill of the primary: groups, a single active consumer, subscriptions
that are durable, and what a subscriber's own container sends.
"""

from __future__ import annotations

import pytest

from qpidha.client.blocking import Client
from qpidha.client.message import Message
from qpidha.model.encoding import Described, Symbol
from qpidha.model.features import QUEUE_KINDS
from tests.system.clients import PATIENCE
from tests.system.cluster import wait_for

pytestmark = pytest.mark.system

NO_LOCAL = {"no-local": Described(Symbol("apache.org:no-local-filter:list"), [])}


def take(client, receivers, count):
    """Take so many messages, wherever they come; return what each receiver got."""
    taken = [[] for _ in receivers]

    def came():
        for receiver, mine in zip(receivers, taken, strict=True):
            while (message := receiver.receive_nowait()) is not None:
                mine.append(message)
        return sum(map(len, taken)) >= count

    assert client.wait(came, PATIENCE)
    return taken


def bodies(messages):
    return [message.body for message in messages]


def order(number, customer):
    return Message(number, durable=True, application_properties={"customer": customer})


def test_t_c3_consumers_and_subscriptions_go_on_with_the_next_primary(a_cluster):
    cluster = a_cluster(3)
    wait_for(
        lambda: cluster[0].status()["features"]["enabled"],
        lambda enabled: QUEUE_KINDS in enabled,
        what="enabled features",
    )
    cluster[0].declare_queue("orders", group_header_key="customer")
    arguments = {"x-single-active-consumer": True, "qpid.replicate": "all"}
    cluster[0].call("declare_queue", name="one by one", arguments=arguments)
    subscription = {"durable": True, "expiry": "never", "confirm": True}
    with (
        Client(cluster.addresses, timeout=PATIENCE) as client,
        Client(cluster.addresses, timeout=PATIENCE) as other,
    ):
        grouped = [client.receiver("orders", credit=10) for _ in range(2)]
        single = [client.receiver("one by one", credit=10) for _ in range(2)]
        news = client.receiver("amq.fanout", name="news", **subscription)
        foreign = client.receiver("amq.fanout", name="foreign", filters=NO_LOCAL, **subscription)
        orders, ones = client.sender("orders"), client.sender("one by one")
        topics = {"own": client.sender("amq.fanout"), "foreign": other.sender("amq.fanout")}

        def send(first):
            for number in range(first, first + 4):
                orders.send(order(number, "ann" if number % 2 else "bob"))
                ones.send(Message(number, durable=True))
            for who, sender in topics.items():
                sender.send(Message(f"{who} {first}", durable=True))

        send(0)
        before = take(client, grouped, 4)
        assert sorted(map(bodies, before)) == [[0, 2], [1, 3]]
        assert sorted(map(bodies, take(client, single, 4))) == [[], [0, 1, 2, 3]]
        for receiver, expected in ((news, ["own 0", "foreign 0"]), (foreign, ["foreign 0"])):
            (messages,) = take(client, [receiver], len(expected))
            assert bodies(messages) == expected
            for message in messages:
                message.accept()
            receiver.wait_confirmed()
        cluster.kill(0, promote=1)
        send(4)
        # What was with consumers comes again, to those whose turn it is now, before the rest.
        after = take(client, grouped, 8)
        assert sorted(map(bodies, after)) == [[0, 2, 4, 6], [1, 3, 5, 7]]
        after = take(client, single, 8)
        assert sorted(map(bodies, after)) == [[], list(range(8))]
        (messages,) = take(client, [news], 2)
        assert bodies(messages) == ["own 4", "foreign 4"]
        (messages,) = take(client, [foreign], 1)
        assert bodies(messages) == ["foreign 4"]
