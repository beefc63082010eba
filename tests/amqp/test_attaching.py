"""What a peer can attach to, and what is made for it."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.address import find_address
from qpidha.amqp.terminus import Terminus, source, target
from qpidha.words.encoding import Described, Symbol, ULong
from qpidha.words.message_view import body, build
from tests.amqp.builders import AHost, CountingRecorder, Pair
from tests.amqp.raw_client import RawClient


def condition(link: Any) -> str:
    return str(link.error.condition) if link.error is not None else ""


def test_addresses_take_many_forms() -> None:
    broker = AHost().broker
    for name in ("q", "a/b", "amq.topic/x", "with space"):
        broker.declare_queue(name)
    found = {text: find_address(broker, text) for text in (
        "q", "a/b", "amq.topic/x", "/queues/q", "/queues/with%20space", "with%20space", "amq.topic", "amq.topic/k.l",
        "/exchanges/amq.topic/k%2El", "/exchanges/amq.topic", "nothing", "/queues/nothing", "", "/exchanges//q", "/q",
    )}  # fmt: skip
    names = {text: (address.queue.name if address.queue else "", address.exchange.name if address.exchange else "", address.key)
             for text, address in found.items()}  # fmt: skip
    assert names == {
        "q": ("q", "", None), "a/b": ("a/b", "", None), "amq.topic/x": ("amq.topic/x", "", None), "/queues/q": ("q", "", None),
        "/queues/with%20space": ("with space", "", None), "with%20space": ("with space", "", None), "amq.topic": ("", "amq.topic", None),
        "amq.topic/k.l": ("", "amq.topic", "k.l"), "/exchanges/amq.topic/k%2El": ("", "amq.topic", "k.l"),
        "/exchanges/amq.topic": ("", "amq.topic", None), "nothing": ("", "", None), "/queues/nothing": ("", "", None), "": ("", "", None),
        "/exchanges//q": ("q", "", None), "/q": ("", "", None),
    }  # fmt: skip


def test_a_missing_node_is_refused_with_a_null_terminus() -> None:
    pair = Pair()
    for sender in (True, False):
        for address in ("missing", "/missing", "/exchanges//missing", "/exchanges/"):
            link, heard = pair.attach(address, sender=sender)
            assert condition(link) == "amqp:not-found"
            assert heard.attached_links == []


def test_a_node_is_created_on_demand_from_its_properties() -> None:
    pair = Pair()
    properties = {Symbol("durable"): True, Symbol("qpid.max_count"): 5, Symbol("alternate-exchange"): "amq.fanout"}
    link, heard = pair.sender("made", terminus=target("made", capabilities=["create-on-demand"], properties=properties))
    assert heard.attached_links == [link]
    queue = pair.host.broker.queues["made"]
    assert queue.options.durable and queue.options.alternate == "amq.fanout" and queue.max_count == 5


@pytest.mark.parametrize("sender", [True, False])
def test_a_queue_created_on_demand_may_end_with_the_link_it_was_made_for(sender: bool) -> None:
    pair = Pair()
    policy = {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
    describe = target if sender else source
    link, _ = pair.attach("made", sender=sender, terminus=describe("made", capabilities=["create-on-demand"], properties=policy))
    assert "made" in pair.host.broker.queues
    link.close()
    pair.turn()
    assert "made" not in pair.host.broker.queues


def test_an_exchange_is_created_on_demand() -> None:
    pair = Pair()
    properties = {Symbol("exchange-type"): "fanout"}
    pair.sender("x", terminus=target("x", capabilities=["create-on-demand", "topic"], properties=properties))
    assert pair.host.broker.exchanges["x"].options.type == "fanout"


def test_creation_is_answered_when_it_is_safe() -> None:
    host = AHost(ha_replicate="all")
    host.broker.recorder = CountingRecorder()
    host.holding = True
    pair = Pair(host)
    _, heard = pair.sender("made", terminus=target("made", capabilities=["create-on-demand"]))
    assert heard.attached_links == []
    host.release_all()
    pair.turn()
    assert len(heard.attached_links) == 1


@pytest.mark.parametrize("how", ["detach", "close", "lost"])
def test_an_attach_can_be_taken_back_before_it_is_answered(how: str) -> None:
    host = AHost(ha_replicate="all")
    host.broker.recorder = CountingRecorder()
    host.holding = True
    client = RawClient(host)
    end = client.attach_sender("made", terminus=target("made", capabilities=["create-on-demand"]))
    if how == "lost":
        client.server.lost("gone")
    else:
        end.end(closed=how == "close")
        client.turn()
    host.release_all()
    client.turn()
    assert client.server.closed == (how == "lost")


def test_properties_that_do_not_fit_are_a_failed_precondition() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    link, _ = pair.sender("q", terminus=target("q", properties={Symbol("durable"): True}))
    assert condition(link) == "amqp:precondition-failed"
    link, _ = pair.sender("q", name="x", terminus=target("q", capabilities=["topic"]))
    assert condition(link) == "amqp:precondition-failed"


def test_a_dynamic_queue_lives_as_long_as_its_link() -> None:
    pair = Pair()
    link, heard = pair.receiver("", name="reply", terminus=source(None, dynamic=True))
    name = link.address
    assert name in pair.host.broker.queues
    sender, _ = pair.sender(name)
    sender.send(build("answer"))
    pair.turn()
    assert [body(payload) for payload in heard.payloads] == ["answer"]
    link.close()
    pair.turn()
    assert name not in pair.host.broker.queues
    assert condition(sender) in ("", "amqp:resource-deleted")


def test_a_dynamic_target_can_outlive_its_link() -> None:
    pair = Pair()
    policy = {Symbol("lifetime-policy"): Described(ULong(0x2E), [])}
    link, _ = pair.sender("", name="made", terminus=target(None, dynamic=True, properties=policy))
    name = link.address
    link.send(build(1))
    pair.turn()
    link.close()
    pair.turn()
    assert len(pair.host.broker.queues[name].messages) == 1
    receiver, heard = pair.receiver(name)
    assert len(heard.payloads) == 1
    receiver.close()
    pair.turn()
    assert name not in pair.host.broker.queues


def test_dynamic_queues_go_with_their_connection() -> None:
    pair = Pair()
    pair.receiver("", name="reply", terminus=source(None, dynamic=True))
    assert len(pair.host.broker.queues) == 1
    pair.server.lost("gone")
    assert not pair.host.broker.queues


def test_a_subscription_to_an_exchange_has_a_queue_of_its_own() -> None:
    pair = Pair()
    broker = pair.host.broker
    wanted = {Symbol("key"): Described(Symbol("apache.org:legacy-amqp-topic-binding:string"), "a.*"), Symbol("other"): "x"}
    link, heard = pair.receiver("amq.topic", name="sub", terminus=source("amq.topic", filter=wanted))
    assert list(broker.queues) == ["client_sub"]
    assert list(link.remote_source.filter) == ["key"]
    sender, _ = pair.sender("amq.topic")
    for key in ("a.b", "b.b"):
        sender.send(build(key, properties={"subject": key}))
    pair.turn()
    assert [body(payload) for payload in heard.payloads] == ["a.b"]
    link.close()
    pair.turn()
    assert not broker.queues


def test_a_durable_subscription_outlives_a_detach_and_ends_with_a_close() -> None:
    host = AHost()
    terminus = source("amq.topic/k", durability=2, expiry="never")
    client = RawClient(host, container_id="durable")
    client.attach_receiver("", name="sub", terminus=terminus).end(closed=False)
    client.turn()
    host.broker.publish("amq.topic", "k", build("while away"), headers=dict)
    end = client.attach_receiver("", name="sub", terminus=terminus)
    ((_, payload),) = client.deliveries(end)
    assert body(payload) == "while away"
    end.end(closed=True)
    client.turn()
    assert not host.broker.queues


def test_a_subscription_whose_filter_is_refused_leaves_nothing() -> None:
    pair = Pair()
    arguments = Described(Symbol("apache.org:legacy-amqp-headers-binding:map"), {"x-match": "some"})
    link, _ = pair.receiver("amq.match", name="durable", terminus=source("amq.match", expiry="never", filter={Symbol("f"): arguments}))
    assert condition(link) == "amqp:invalid-field"
    assert not pair.host.broker.queues


def test_a_shared_subscription_is_named_by_its_link_and_shared() -> None:
    host = AHost()
    terminus = source("amq.fanout", capabilities=["shared"])
    first, second = Pair(host, container_id="c1"), Pair(host, container_id="c2")
    _, one = first.receiver("amq.fanout", name="work", terminus=terminus)
    _, two = second.receiver("amq.fanout", name="work", terminus=terminus)
    for number in range(4):
        host.broker.publish("amq.fanout", "", build(number), headers=dict)
    first.turn()
    second.turn()
    assert list(host.broker.queues) == ["work"]
    assert len(one.payloads) == len(two.payloads) == 2


def test_an_exclusive_queue_is_locked_for_others() -> None:
    host = AHost()
    first, second = Pair(host, container_id="c1"), Pair(host, container_id="c2")
    properties = {Symbol("exclusive"): True}
    mine, _ = first.receiver("own", terminus=source("own", capabilities=["create-on-demand"], properties=properties))
    assert condition(mine) == ""
    theirs, _ = second.receiver("own")
    assert condition(theirs) == "amqp:resource-locked"


def test_a_link_without_a_terminus_is_refused() -> None:
    client = RawClient(AHost())
    client.attach_sender("", name="s", terminus=Terminus())
    client.attach_receiver("", name="r", terminus=source(None))
    assert client.detached == {"s": "amqp:invalid-field", "r": "amqp:invalid-field"}


def test_a_backup_lets_tools_browse_and_use_services_but_change_nothing() -> None:
    host = AHost(ha_replicate="all")
    host.broker.recorder = CountingRecorder()
    host.broker.declare_queue("q")
    host.broker.queues["q"].enqueue(build("m"))
    host.serving = False
    pair = Pair(host)
    _, browsed = pair.receiver("q", name="b", terminus=source("q", distribution="copy"))
    assert len(browsed.payloads) == 1
    refused = [
        pair.receiver("q")[0], pair.sender("q")[0], pair.sender("amq.topic")[0], pair.receiver("amq.topic")[0],
        pair.sender("new", terminus=target("new", capabilities=["create-on-demand"]))[0],
    ]  # fmt: skip
    assert [condition(link) for link in refused] == ["amqp:not-allowed"] * 5
    reply, heard = pair.receiver("", name="reply", terminus=source(None, dynamic=True))
    assert condition(reply) == ""
    sender, outcomes = pair.sender("", name="anonymous", terminus=target(None))
    sender.send(build(1, properties={"to": reply.address}))
    sender.send(build(2, properties={"to": "q"}))
    pair.turn()
    assert len(heard.payloads) == 1
    assert sorted(outcome.state for _, outcome in outcomes.outcomes) == [0x24, 0x25]
