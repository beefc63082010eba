"""What a peer can attach to, and what is made for it."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.terminus import ACCEPTED, NONE, Terminus, source, target
from qpidha.amqp.server.address import find_address
from qpidha.model.encoding import Described, Symbol, ULong
from qpidha.model.message_view import body, build
from tests.amqp.builders import AHost, CountingLogWriter, Pair
from tests.amqp.controller import Controller
from tests.amqp.raw_client import RawClient
from tests.amqp.work import Work


def condition(link: Any) -> str:
    return str(link.error.condition) if link.error is not None else ""


def test_an_address_is_decoded_once_and_only_as_far_as_names_go() -> None:
    broker = AHost().broker
    broker.declare_queue("a b")
    assert find_address(broker, "a%20b").queue is not None
    for text in ("a%2520b", "%" + "25" * 3000, "%61" * 5_000_000):
        found = find_address(broker, text)
        assert (found.name, found.queue, found.exchange) == (text, None, None)


@pytest.mark.parametrize(
    "address", ["amq.topic/{}", "/exchanges/amq.topic/{}", "amq%2Etopic%2F{}", "amq%2Etopic/{}"]
)
def test_a_key_that_is_too_long_is_refused_before_anybody_is_asked(address: str) -> None:
    for sender in (True, False):
        pair = Pair()
        for letter, taken in (("k", True), ("%C3%A9", False)):
            pair.host.access.asked.clear()
            link, _ = pair.attach(address.format(letter * 255), sender=sender, name=letter)
            assert (link.error is None) is taken is bool(pair.host.access.asked)
            assert taken or "bytes long" in link.error.description


def test_the_key_of_a_filter_that_is_too_long_is_refused() -> None:
    pair = Pair()
    named = Described(Symbol("apache.org:legacy-amqp-topic-binding:string"), "k" * 256)
    wanted = source("amq.topic", filter={Symbol("key"): named})
    link, _ = pair.receiver("amq.topic", terminus=wanted)
    assert condition(link) == "amqp:invalid-field" and "256 bytes" in link.error.description
    assert not pair.host.broker.queues and not pair.host.access.told
    assert "bind" not in [question[1] for question in pair.host.access.asked]


def test_addresses_take_many_forms() -> None:
    broker = AHost().broker
    for name in ("q", "a/b", "amq.topic/x", "with space"):
        broker.declare_queue(name)
    found = {
        text: find_address(broker, text)
        for text in (
            "q",
            "a/b",
            "amq.topic/x",
            "/queues/q",
            "/queues/with%20space",
            "with%20space",
            "amq.topic",
            "amq.topic/k.l",
            "/exchanges/amq.topic/k%2El",
            "/exchanges/amq.topic",
            "nothing",
            "/queues/nothing",
            "",
            "/exchanges//q",
            "/q",
        )
    }
    names = {
        text: (
            address.queue.name if address.queue else "",
            address.exchange.name if address.exchange else "",
            address.key,
        )
        for text, address in found.items()
    }
    assert names == {
        "q": ("q", "", None),
        "a/b": ("a/b", "", None),
        "amq.topic/x": ("amq.topic/x", "", None),
        "/queues/q": ("q", "", None),
        "/queues/with%20space": ("with space", "", None),
        "with%20space": ("with space", "", None),
        "amq.topic": ("", "amq.topic", None),
        "amq.topic/k.l": ("", "amq.topic", "k.l"),
        "/exchanges/amq.topic/k%2El": ("", "amq.topic", "k.l"),
        "/exchanges/amq.topic": ("", "amq.topic", None),
        "nothing": ("", "", None),
        "/queues/nothing": ("", "", None),
        "": ("", "", None),
        "/exchanges//q": ("q", "", None),
        "/q": ("", "", None),
    }


def test_a_missing_node_is_refused_with_a_null_terminus() -> None:
    pair = Pair()
    for sender in (True, False):
        for address in ("missing", "/missing", "/exchanges//missing", "/exchanges/"):
            link, heard = pair.attach(address, sender=sender)
            assert condition(link) == "amqp:not-found"
            assert heard.attached_links == []


@pytest.mark.parametrize("address", ["/queues/a%zz", "/queues/a%", "/exchanges/amq.topic/%ff"])
def test_an_address_that_is_not_percent_encoded_utf_8_is_refused(address: str) -> None:
    pair = Pair()
    for sender in (True, False):
        link, heard = pair.attach(address, sender=sender)
        assert condition(link) == "amqp:invalid-field" and heard.attached_links == []
    link, heard = pair.sender("", terminus=target(None), name="anonymous")
    assert heard.attached_links == [link], "the connection goes on"


def test_a_name_of_a_queue_may_hold_any_percent_sign() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("100%")
    link, heard = pair.attach("100%", sender=True)
    assert heard.attached_links == [link]
    link, _ = pair.attach("99%", sender=True)
    assert condition(link) == "amqp:not-found"


def test_a_node_is_created_on_demand_from_its_properties() -> None:
    pair = Pair()
    properties = {
        Symbol("durable"): True,
        Symbol("qpid.max_count"): 5,
        Symbol("alternate-exchange"): "amq.fanout",
    }
    link, heard = pair.sender(
        "made", terminus=target("made", capabilities=["create-on-demand"], properties=properties)
    )
    assert heard.attached_links == [link]
    queue = pair.host.broker.queues["made"]
    assert (
        queue.options.durable and queue.options.alternate == "amq.fanout" and queue.max_count == 5
    )


@pytest.mark.parametrize("sender", [True, False])
def test_a_queue_created_on_demand_may_end_with_the_link_it_was_made_for(sender: bool) -> None:
    pair = Pair()
    policy = {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
    describe = target if sender else source
    link, _ = pair.attach(
        "made",
        sender=sender,
        terminus=describe("made", capabilities=["create-on-demand"], properties=policy),
    )
    assert "made" in pair.host.broker.queues
    link.close()
    pair.turn()
    assert "made" not in pair.host.broker.queues


def test_an_exchange_is_created_on_demand() -> None:
    pair = Pair()
    properties = {Symbol("exchange-type"): "fanout"}
    pair.sender(
        "x", terminus=target("x", capabilities=["create-on-demand", "topic"], properties=properties)
    )
    assert pair.host.broker.exchanges["x"].options.type == "fanout"


def test_creation_is_answered_when_it_is_committed() -> None:
    host = AHost(ha_replicate="all")
    host.broker.log_writer = CountingLogWriter()
    host.delaying = True
    pair = Pair(host)
    _, heard = pair.sender("made", terminus=target("made", capabilities=["create-on-demand"]))
    assert heard.attached_links == []
    host.release_all()
    pair.turn()
    assert len(heard.attached_links) == 1


@pytest.mark.parametrize("how", ["detach", "close", "lost"])
def test_an_attach_can_be_taken_back_before_it_is_answered(how: str) -> None:
    host = AHost(ha_replicate="all")
    host.broker.log_writer = CountingLogWriter()
    host.delaying = True
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
    wanted = {
        Symbol("key"): Described(Symbol("apache.org:legacy-amqp-topic-binding:string"), "a.*"),
        Symbol("other"): None,
    }
    link, heard = pair.receiver(
        "amq.topic", name="sub", terminus=source("amq.topic", filter=wanted)
    )
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


def test_subscriptions_that_are_closed_end_also_in_a_turn_that_has_no_time_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qpidha.broker.broker.WALKED_A_TURN", 1)
    host = AHost()
    client = RawClient(host, container_id="c")
    names = [str(number) for number in range(4)]
    ends = [client.attach_receiver("amq.fanout", name=name) for name in names]
    assert list(host.broker.queues) == [f"c_{name}" for name in names]
    for end in ends:
        end.end(closed=True)
    client.turn()
    assert not host.broker.queues
    client.attach_receiver("amq.fanout", name="after")
    assert list(host.broker.queues) == ["c_after"]


def test_who_comes_back_finds_none_of_the_queues_that_are_still_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qpidha.broker.broker.WALKED_A_TURN", 1)
    host = AHost()
    client = RawClient(host, container_id="c")
    for number in range(40):
        client.attach_receiver("amq.fanout", name=str(number))
    former = host.broker.queues["c_38"]
    client.server.lost("gone")
    client = RawClient(host, container_id="c")
    client.attach_receiver("amq.fanout", name="38")
    assert not client.errors and host.broker.queues["c_38"] is not former
    assert "c_39" in host.broker.queues
    client.attach_receiver("c_39", name="by the name of the queue")
    (error,) = client.errors.values()
    assert error is not None and error.condition == "amqp:not-found"


def test_a_subscription_is_closed_while_there_is_no_room_for_what_it_has() -> None:
    host = AHost(ha_replicate="all")
    broker = host.broker
    broker.log_writer = CountingLogWriter()
    broker.declare_exchange("news", "fanout", alternate="amq.fanout")
    broker.declare_queue("orphans")
    broker.bind("amq.fanout", "orphans")
    client = RawClient(host, container_id="c")
    terminus = source("news", durability=2, expiry="never")
    end = client.attach_receiver("", name="sub", terminus=terminus, credit=0)
    broker.publish("news", "", build("a"), headers=dict)
    broker.refuse_publishing = "the disk is nearly full"
    end.end(closed=True)
    client.turn()
    assert client.errors.get("sub") is None and broker.queues["c_sub"].deleted
    broker.refuse_publishing = ""
    broker.go_on_walking(1 << 60)
    assert list(broker.queues) == ["orphans"] and len(broker.queues["orphans"].messages) == 1


def test_a_receiver_without_a_source_gets_the_subscription_of_its_name() -> None:
    """So Qpid JMS ends a durable subscription: it attaches without a source, and closes."""
    host = AHost()
    client = RawClient(host, container_id="durable")
    terminus = source("amq.topic/k", durability=2, expiry="never")
    client.attach_receiver("", name="sub", terminus=terminus).end(closed=False)
    client.turn()
    host.broker.publish("amq.topic", "k", build("while away"), headers=dict)
    end = client.attach_receiver("", name="sub", terminus=Terminus(), credit=0)
    found = end.remote_source()
    assert (found.address, found.durability, found.expiry) == ("amq.topic/k", 1, "never")
    end.flow(1)
    ((_, payload),) = client.deliveries(end)
    assert body(payload) == "while away"
    end.end(closed=True)
    client.turn()
    assert not host.broker.queues


@pytest.mark.parametrize("other", ["another", "a-queue"])
def test_a_receiver_without_a_source_is_told_that_there_is_no_subscription(other: str) -> None:
    host = AHost()
    host.broker.declare_queue("durable_a-queue", durable=True)
    client = RawClient(host, container_id="durable")
    client.attach_receiver("", name=other, terminus=Terminus(), credit=0)
    error = client.errors[other]
    assert error is not None and error.condition == "amqp:not-found"
    assert error.description == f"there is no subscription '{other}' of container 'durable'"
    assert "durable_a-queue" in host.broker.queues


def test_a_subscription_whose_filter_is_refused_leaves_nothing() -> None:
    pair = Pair()
    arguments = Described(Symbol("apache.org:legacy-amqp-headers-binding:map"), {"x-match": "some"})
    link, _ = pair.receiver(
        "amq.match",
        name="durable",
        terminus=source("amq.match", expiry="never", filter={Symbol("f"): arguments}),
    )
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


@pytest.mark.parametrize("shared, exclusive", [(False, False), (True, True), (True, False)])
def test_a_queue_that_is_no_subscription_is_not_taken_for_one(
    shared: bool, exclusive: bool
) -> None:
    host = AHost()
    host.broker.declare_queue("orders_in", durable=True, exclusive=exclusive)
    host.broker.publish("", "orders_in", build("kept"), headers=dict)
    client = RawClient(host, container_id="orders")
    name = "orders_in" if shared else "in"
    wanted = source("amq.topic", capabilities=["shared"] if shared else [])
    client.attach_receiver("", name=name, terminus=wanted)
    error = client.errors[name]
    assert error is not None and error.condition == "amqp:precondition-failed"
    queue = host.broker.queues["orders_in"]
    assert len(queue.messages) == 1 and not queue.bindings and not queue.consumers


def test_an_exclusive_queue_is_locked_for_others() -> None:
    host = AHost()
    first, second = Pair(host, container_id="c1"), Pair(host, container_id="c2")
    properties = {Symbol("exclusive"): True}
    mine, _ = first.receiver(
        "own", terminus=source("own", capabilities=["create-on-demand"], properties=properties)
    )
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
    host.broker.log_writer = CountingLogWriter()
    host.broker.declare_queue("q")
    host.broker.queues["q"].enqueue(build("m"))
    host.serving = False
    pair = Pair(host)
    _, browsed = pair.receiver("q", name="b", terminus=source("q", distribution="copy"))
    assert len(browsed.payloads) == 1
    refused = [
        pair.receiver("q")[0],
        pair.sender("q")[0],
        pair.sender("amq.topic")[0],
        pair.receiver("amq.topic")[0],
        pair.sender("new", terminus=target("new", capabilities=["create-on-demand"]))[0],
    ]
    assert [condition(link) for link in refused] == ["amqp:not-allowed"] * 5
    reply, heard = pair.receiver("", name="reply", terminus=source(None, dynamic=True))
    assert condition(reply) == ""
    sender, outcomes = pair.sender("", name="anonymous", terminus=target(None))
    sender.send(build(1, properties={"to": reply.address}))
    sender.send(build(2, properties={"to": "q"}))
    pair.turn()
    assert len(heard.payloads) == 1
    assert sorted(outcome.state for _, outcome in outcomes.outcomes) == [0x24, 0x25]


@pytest.mark.parametrize(
    "letter", ["\x1b", "\n", "\x01", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028"]
)
def test_nobody_makes_what_an_operator_cannot_read(letter: str) -> None:
    """No window of management takes such a name, and so nobody could delete it."""
    pair = Pair()
    name = f"a{letter}b"
    for capabilities in (["create-on-demand"], ["create-on-demand", "topic"]):
        link, _ = pair.sender(name, name=name, terminus=target(name, capabilities=capabilities))
        assert condition(link) == "amqp:invalid-field"
    wanted = source("amq.topic", filter={Symbol("f"): Described(Symbol(TOPIC), name)})
    link, _ = pair.receiver("", name="keyed", terminus=wanted)
    assert condition(link) == "amqp:invalid-field" and "binding key" in link.error.description
    link, _ = pair.receiver("", name=name, terminus=source("amq.topic"))
    assert condition(link) == "amqp:invalid-field"
    assert list(pair.host.broker.exchanges["amq.topic"].bindings()) == []
    assert list(pair.host.broker.queues) == []


SELECTOR, SQL = "apache.org:selector-filter:string", "amqp:sql-filter"
PROPERTIES, APPLICATION = "amqp:properties-filter", "amqp:application-properties-filter"
OVER_3 = [
    (Symbol(SELECTOR), "n > 3"),
    (ULong(0x0000468C00000004), "n > 3"),
    (Symbol(SQL), "a.n > 3"),
    (ULong(0x120), "n > 3 and properties.subject like 'key-%'"),
]
FOUR = [
    (Symbol(PROPERTIES), {Symbol("subject"): "key-4"}),
    (ULong(0x173), {Symbol("subject"): "&s:-4", Symbol("message-id"): 4}),
    (Symbol(APPLICATION), {"n": 4}),
    (ULong(0x174), {"n": 4.0, "name": "&p:no-4"}),
]


def numbered(pair: Pair, address: str) -> None:
    """Send six messages that say which they are."""
    sender, _ = pair.sender(address, name="numbers")
    for number in range(6):
        sender.send(
            build(
                number,
                properties={"subject": f"key-{number}", "message_id": number},
                application_properties={"n": number, "name": f"no-{number}"},
            )
        )
    pair.turn()


@pytest.mark.parametrize(
    ("descriptor", "value", "expected"),
    [*((*each, [4, 5]) for each in OVER_3), *((*each, [4]) for each in FOUR)],
)
def test_rabbitmq_d3_and_qpid_2_a_filter_on_a_queue_is_in_effect_and_echoed(
    descriptor: Any, value: Any, expected: list[int]
) -> None:
    pair = Pair()
    queue, _ = pair.host.broker.declare_queue("q")
    wanted = {Symbol("selector"): Described(descriptor, value)}
    heard = {}
    for name, mode in (("browser", "copy"), ("consumer", "move")):
        terminus = source("q", distribution=mode, filter=wanted)
        link, heard[name] = pair.receiver("", name=name, terminus=terminus)
        assert link.error is None and link.remote_source.filter == wanted
    numbered(pair, "q")
    for name in heard:
        assert [body(payload) for payload in heard[name].payloads] == expected
    left = [body(message.body()) for message in queue.messages.values()]
    assert left == [number for number in range(6) if number not in expected]


@pytest.mark.parametrize(("descriptor", "value"), OVER_3)
@pytest.mark.parametrize("shared", [False, True])
def test_qpid_2_a_subscription_with_a_selector_keeps_only_what_it_selects(
    descriptor: Any, value: Any, shared: bool
) -> None:
    pair = Pair()
    wanted = {Symbol("mine"): Described(descriptor, value)}
    terminus = source("amq.fanout", filter=wanted, capabilities=["shared"] if shared else [])
    link, heard = pair.receiver("", name="r", terminus=terminus)
    assert link.error is None and link.remote_source.filter == wanted
    numbered(pair, "amq.fanout")
    assert [body(payload) for payload in heard.payloads] == [4, 5]
    (queue,) = pair.host.broker.queues.values()
    assert (queue.enqueued, queue.statistics()["left_out"]) == (2, 4)


def test_a_subscription_keeps_its_selector_and_takes_no_other() -> None:
    pair = Pair()

    def attach(name: str, text: str) -> Any:
        wanted = {Symbol("mine"): Described(Symbol(SELECTOR), text)} if text else {}
        terminus = source("amq.fanout", filter=wanted, expiry="never")
        return pair.receiver("", name=name, terminus=terminus)[0]

    link = attach("r", "n > 3")
    link.end.end(closed=False)
    pair.turn()
    numbered(pair, "amq.fanout")
    for text in ("n > 2", ""):
        refused = attach("r", text)
        assert condition(refused) == "amqp:precondition-failed"
        assert "n > 3" in refused.error.info["reason"]
    again = attach("r", "n > 3")
    assert again.error is None
    again.end.end(closed=False)
    pair.turn()
    resumed, _ = pair.receiver("", name="r", terminus=Terminus(NONE))
    assert resumed.remote_source.filter == {Symbol(SELECTOR): Described(Symbol(SELECTOR), "n > 3")}


@pytest.mark.parametrize(
    "kind", [{"qpid.group_header_key": "name"}, {"x-single-active-consumer": True}]
)
def test_a_shared_subscription_with_a_selector_has_groups_or_a_single_active_consumer(
    kind: dict[str, Any],
) -> None:
    pair = Pair()
    asked = source(
        "amq.fanout",
        filter={Symbol("s"): Described(Symbol(SELECTOR), "n > 2")},
        capabilities=["shared"],
        properties={Symbol(name): value for name, value in kind.items()},
    )
    other = Pair(pair.host, container_id="other")
    sharing = [each.receiver("", name="r", terminus=asked) for each in (pair, other)]
    assert [link.error for link, _ in sharing] == [None, None]
    numbered(pair, "amq.fanout")
    other.turn()
    got = [[body(payload) for payload in heard.payloads] for _, heard in sharing]
    assert sorted(sum(got, [])) == [3, 4, 5]
    if "x-single-active-consumer" in kind:
        assert sorted(got) == [[], [3, 4, 5]]


def test_row_140_filters_select_together() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    wanted = {
        Symbol("one"): Described(Symbol(SELECTOR), "n > 2"),
        Symbol("two"): Described(Symbol(SQL), "n < 5"),
        Symbol("three"): Described(Symbol(APPLICATION), {"name": "&p:no-"}),
        Symbol("four"): Described(Symbol(SELECTOR), " "),
    }
    link, heard = pair.receiver("", name="r", terminus=source("q", filter=wanted))
    assert link.remote_source.filter == wanted
    numbered(pair, "q")
    assert [body(payload) for payload in heard.payloads] == [3, 4]


@pytest.mark.parametrize("address", ["q", "amq.fanout"])
@pytest.mark.parametrize("descriptor", [SELECTOR, SQL])
def test_a_selector_that_cannot_be_used_ends_the_link_and_names_the_place(
    descriptor: str, address: str
) -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    wanted = {Symbol("mine"): Described(Symbol(descriptor), "colour = 'red' or")}
    link, _ = pair.receiver("", name="r", terminus=source(address, filter=wanted))
    assert condition(link) == "amqp:invalid-field"
    assert "at character 18" in link.error.description and link.error.info["reason"]
    assert list(pair.host.broker.queues) == ["q"]


@pytest.mark.parametrize(
    ("descriptor", "value"),
    [
        (PROPERTIES, {}),
        (PROPERTIES, {Symbol("colour"): "red"}),
        (PROPERTIES, {Symbol("message_id"): "red"}),
        (PROPERTIES, {Symbol("subject"): "&x:red"}),
        (APPLICATION, {"n": [1]}),
        (APPLICATION, {5: 1}),
        (APPLICATION, {f"n{number}": 1 for number in range(17)}),
    ],
)
def test_row_140_a_filter_by_fields_that_cannot_be_used_ends_the_link(
    descriptor: str, value: Any
) -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    wanted = {Symbol("mine"): Described(Symbol(descriptor), value)}
    link, _ = pair.receiver("", name="r", terminus=source("q", filter=wanted))
    assert condition(link) == "amqp:invalid-field" and descriptor in link.error.description


NO_LOCAL = "apache.org:no-local-filter:list"
OF_JMS = {Symbol("no-local"): Described(ULong(0x468C00000003), "NoLocalFilter{}")}


@pytest.mark.parametrize("wanted", [{Symbol("mine"): Described(Symbol(NO_LOCAL), [])}, OF_JMS])
def test_qpid_2_who_wants_no_local_gets_nothing_of_its_own_container(wanted: Any) -> None:
    host = AHost(unroutable="release")
    own, same, other = (Pair(host, container_id=name) for name in ("mine", "mine", "theirs"))
    link, heard = own.receiver("", name="r", terminus=source("amq.topic/#", filter=wanted))
    assert link.remote_source.filter == wanted
    for number, pair in enumerate((own, other, same, other)):
        sender, service = pair.sender("amq.topic/k", name=f"s{number}")
        sender.send(build(number))
        pair.turn()
        assert [outcome.state for _, outcome in service.outcomes] == [ACCEPTED]
    own.turn()
    assert [body(payload) for payload in heard.payloads] == [1, 3]
    (queue,) = host.broker.queues.values()
    assert queue.left_out == 2


def test_qpid_2_no_local_does_not_hold_for_what_is_sent_to_the_queue_itself() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q", arguments={"qpidha.no-local": "client"})
    pair.host.broker.bind("amq.fanout", "q", "")
    for address in ("q", "amq.fanout"):
        sender, _ = pair.sender(address)
        sender.send(build(address))
    pair.turn()
    assert [body(one.body()) for one in pair.host.broker.queue("q").messages.values()] == ["q"]


def test_qpid_2_no_local_holds_in_transactions_and_for_copies() -> None:
    host = AHost()
    host.broker.declare_queue("q", arguments={"qpidha.no-local": "client"})
    for key in "ab":
        host.broker.bind("amq.direct", "q", key)
    for number, container in enumerate(("client", "other")):
        work = Work(client=Controller(host, container, number))
        sender = work.sender("amq.direct/a")
        copied = build(f"copied by {container}", annotations={Symbol("x-cc"): ["b"]})
        work.client.send(sender, copied)
        work.post(sender, build(f"posted by {container}"))
        work.turn()
        work.commit()
    bodies = [body(one.body()) for one in host.broker.queue("q").messages.values()]
    assert bodies == ["copied by other", "posted by other"]


def test_qpid_2_no_local_of_a_queue_or_a_shared_subscription_is_refused_by_name() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    wanted = {Symbol("mine"): Described(Symbol(NO_LOCAL), [])}
    for asked in (
        source("q", filter=wanted),
        source("amq.fanout", filter=wanted, capabilities=["shared"]),
    ):
        link, _ = pair.receiver("", name="r", terminus=asked)
        assert condition(link) == "amqp:not-implemented"
        assert link.error.info["reason"] and link.error.hint
    assert list(pair.host.broker.queues) == ["q"]


def test_qpid_2_a_durable_subscription_stays_as_it_is_about_its_own() -> None:
    pair = Pair()
    wanted = {Symbol("mine"): Described(Symbol(NO_LOCAL), [])}

    def attach(filter: Any) -> Any:
        asked = source("amq.fanout", filter=filter, durability=2, expiry="never")
        return pair.receiver("", name="r", terminus=asked)[0]

    first = attach(wanted)
    first.end.end(closed=False)
    pair.turn()
    refused = attach({})
    assert condition(refused) == "amqp:precondition-failed"
    assert "no-local" in refused.error.description
    resumed, _ = pair.receiver("", name="r", terminus=Terminus(NONE))
    assert resumed.remote_source.filter == {Symbol(NO_LOCAL): Described(Symbol(NO_LOCAL), [])}


def test_what_a_deleted_queue_did_not_take_of_a_container_is_forgotten() -> None:
    broker = AHost().broker
    for name in "ab":
        broker.declare_queue(name, arguments={"qpidha.no-local": "client"})
    assert len(broker.not_own["client"]) == 2
    broker.delete_queue("a")
    broker.reset()
    assert not broker.not_own


def test_a_filter_that_is_no_described_value_is_refused() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    link, _ = pair.receiver("", name="r", terminus=source("q", filter={Symbol("mine"): "x"}))
    assert condition(link) == "amqp:invalid-field"


@pytest.mark.parametrize("descriptor", [1.5, None, True, b"x"])
def test_a_filter_whose_descriptor_is_no_name_and_no_number_is_refused(descriptor: Any) -> None:
    pair = Pair()
    wanted = {Symbol("f"): Described(descriptor, "x")}
    link, _ = pair.receiver("", name="r", terminus=source("amq.topic", filter=wanted))
    assert condition(link) == "amqp:invalid-field" and "descriptor" in link.error.hint


TOPIC, DIRECT = (
    "apache.org:legacy-amqp-topic-binding:string",
    "apache.org:legacy-amqp-direct-binding:string",
)


@pytest.mark.parametrize(
    ("exchange", "descriptor", "value", "error"),
    [
        ("amq.topic", DIRECT, "a.b", ""),
        ("amq.direct", TOPIC, "a.b", ""),
        ("amq.direct", DIRECT, "a.*", ""),
        ("amq.topic", DIRECT, "a.*", "amqp:not-implemented"),
        ("amq.direct", TOPIC, "a.#", "amqp:not-implemented"),
        ("amq.fanout", DIRECT, "a", "amqp:not-implemented"),
        ("amq.topic", TOPIC, 5, "amqp:invalid-field"),
    ],
)
def test_a_key_without_wildcards_means_the_same_to_a_topic_and_a_direct_exchange(
    exchange: str, descriptor: str, value: Any, error: str
) -> None:
    pair = Pair()
    wanted = {Symbol("f"): Described(Symbol(descriptor), value)}
    link, _ = pair.receiver("", name="sub", terminus=source(exchange, filter=wanted))
    assert condition(link) == error
    bound = [key for _, key, _ in pair.host.broker.exchanges[exchange].bindings()]
    assert bound == ([] if error else [value])
    assert bool(pair.host.broker.queues) is not bool(error)


def test_two_keys_of_one_subscription_are_refused() -> None:
    pair = Pair()
    topic, direct = (Described(Symbol(name), "a") for name in (TOPIC, DIRECT))
    both = {Symbol("one"): topic, Symbol("two"): direct}
    link, _ = pair.receiver("", name="s1", terminus=source("amq.topic", filter=both))
    assert condition(link) == "amqp:not-implemented"
    one = {Symbol("one"): topic}
    link, _ = pair.receiver("", name="s2", terminus=source("amq.topic/b", filter=one))
    assert condition(link) == "amqp:invalid-field"
    assert not pair.host.broker.queues


@pytest.mark.parametrize("name", ["SHARED-SUBS", "no-such"])
def test_rabbitmq_d13_a_capability_that_is_not_honoured_ends_the_attach(name: str) -> None:
    pair = Pair()
    for sender, terminus in (
        (False, source("amq.topic", capabilities=["topic", name])),
        (True, target("amq.topic", capabilities=["topic", name])),
    ):
        link, _ = pair.attach("", sender=sender, name="l", terminus=terminus)
        assert condition(link) == "amqp:not-implemented"
        assert name in link.error.description and link.error.hint
    assert not pair.host.broker.queues


@pytest.mark.parametrize(
    ("address", "capability", "text"),
    [
        ("q", "topic", "'q' is a queue, but the capability topic asks for an exchange"),
        (
            *("amq.topic", "temporary-queue"),
            "'amq.topic' is an exchange, but the capability temporary-queue asks for a queue",
        ),
    ],
)
def test_a_node_of_the_other_kind_is_refused_by_name(
    address: str, capability: str, text: str
) -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    link, _ = pair.receiver(address, terminus=source(address, capabilities=[capability]))
    assert condition(link) == "amqp:precondition-failed"
    assert link.error.description == text


JMS = {"product": "QpidJMS"}


@pytest.mark.parametrize(
    ("links", "queue"),
    [
        (("sub", "sub|2", "sub|13"), "me_sub"),
        (("sub|volatile1", "sub|volatile2"), "me_sub|volatile"),
        (("sub|global", "sub|global2"), "sub|global"),
        (("sub|global-volatile1", "sub|global-volatile2"), "sub|global-volatile"),
        (("7", "7|2"), "me_7"),
    ],
)
def test_rabbitmq_d13_links_of_jms_share_a_subscription(links: tuple[str, ...], queue: str) -> None:
    host = AHost()
    is_global = "global" in queue
    said = ["topic", "shared", *(["global"] if is_global else [])]
    for number, name in enumerate(links):
        container = f"other{number}" if is_global else "me"
        pair = Pair(host, container_id=container, properties=JMS)
        expiry = "link-detach" if "volatile" in name else "never"
        terminus = source("amq.topic", capabilities=said, expiry=expiry, distribution="copy")
        link, _ = pair.receiver("", name=name, terminus=terminus)
        assert condition(link) == "" and list(host.broker.queues) == [queue]
    assert len(host.broker.queues[queue].consumers) == len(links)
    assert host.broker.queues[queue].options.auto_delete is ("volatile" in queue)


@pytest.mark.parametrize("is_global", [False, True])
def test_jms_ends_a_shared_subscription_by_name_when_nobody_uses_it(is_global: bool) -> None:
    host = AHost()
    client = RawClient(host, container_id="me", properties=JMS)
    other = RawClient(host, container_id="other", properties=JMS)
    name, said = ("sub|global", ["shared", "global"]) if is_global else ("sub", ["shared"])
    terminus = source("amq.topic", capabilities=said, expiry="never", durability=2)
    consumer = client.attach_receiver("", name=name, terminus=terminus)

    def end_by(ending: RawClient) -> str:
        end = ending.attach_receiver("", name=name, terminus=Terminus(), credit=0)
        error = ending.errors.pop(name, None)
        if error is None:
            end.end(closed=True)
            ending.turn()
        return "" if error is None else error.condition

    assert end_by(other) == ("amqp:resource-locked" if is_global else "amqp:not-found")
    consumer.end(closed=False)
    client.turn()
    assert host.broker.queues
    assert end_by(client) == ""
    assert not host.broker.queues


def test_a_shared_subscription_that_lives_with_its_links_is_not_ended_by_name() -> None:
    host = AHost()
    client = RawClient(host, container_id="me", properties=JMS)
    terminus = source("amq.topic", capabilities=["shared"])
    client.attach_receiver("", name="s|volatile1", terminus=terminus)
    client.attach_receiver("", name="s|volatile2", terminus=Terminus(), credit=0)
    error = client.errors["s|volatile2"]
    assert error is not None and error.condition == "amqp:not-found"


def test_a_terminus_with_the_capability_durable_is_durable() -> None:
    pair = Pair()
    broker = pair.host.broker
    broker.declare_queue("transient")
    link, _ = pair.sender("transient", terminus=target("transient", capabilities=["durable"]))
    assert condition(link) == "amqp:precondition-failed"
    capabilities = ["create-on-demand", "queue", "durable"]
    link, _ = pair.sender("new", terminus=target("new", capabilities=capabilities))
    assert broker.queues["new"].options.durable
    assert link.remote_target.capabilities == capabilities


def test_node_properties_may_be_written_as_text() -> None:
    pair = Pair()
    properties = {
        Symbol("auto-delete"): "False",
        Symbol("exclusive"): "False",
        Symbol("durable"): "True",
        Symbol("qpid.max_count"): "5",
        Symbol("supported-dist-modes"): "move",
    }
    pair.sender("q", terminus=target("q", capabilities=["create-on-demand"], properties=properties))
    options = pair.host.broker.queues["q"].options
    assert options.durable and not options.auto_delete and not options.exclusive
    copies = {Symbol("supported-dist-modes"): "copy"}
    pair.sender("x", terminus=target("x", capabilities=["create-on-demand"], properties=copies))
    assert pair.host.broker.exchanges["x"].options.type == "topic"


def test_a_property_that_a_node_does_not_have_is_refused_unless_it_would_be_created() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("q")
    properties = {Symbol("x-max-length"): 5}
    link, _ = pair.sender("q", terminus=target("q", properties=properties))
    assert condition(link) == "amqp:precondition-failed"
    link, _ = pair.sender(
        "q",
        name="creates",
        terminus=target("q", capabilities=["create-on-demand"], properties=properties),
    )
    assert condition(link) == ""


@pytest.mark.parametrize("capability", ["topic", "temporary-topic"])
def test_a_dynamic_topic_lives_as_long_as_its_link(capability: str) -> None:
    pair = Pair(AHost(ha_replicate="all"))
    broker = pair.host.broker
    before = list(broker.exchanges)
    policy = {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
    asked = target(None, dynamic=True, capabilities=[capability], properties=policy)
    made, _ = pair.sender("", name="made", terminus=asked)
    name = made.address
    assert made.remote_target.properties == policy and name not in broker.queues
    subscribed = [
        pair.receiver("", name=f"r{n}", terminus=source(name, capabilities=[capability]))[1]
        for n in range(2)
    ]
    sender, _ = pair.sender("", name="s", terminus=target(name, capabilities=[capability]))
    sender.send(build("news"))
    pair.turn()
    for heard in subscribed:
        assert [body(payload) for payload in heard.payloads] == ["news"]
    made.close()
    pair.turn()
    assert list(broker.exchanges) == before
    refused, _ = pair.receiver("", name="late", terminus=source(name))
    assert condition(refused) == "amqp:not-found"


def test_a_dynamic_topic_goes_with_its_connection_and_its_receiver_subscribes_to_it() -> None:
    pair = Pair()
    before = list(pair.host.broker.exchanges)
    wanted = source(None, dynamic=True, capabilities=["temporary-topic"])
    link, heard = pair.receiver("", name="made", terminus=wanted)
    sender, _ = pair.sender(link.address)
    sender.send(build("news"))
    pair.turn()
    assert [body(payload) for payload in heard.payloads] == ["news"]
    pair.server.lost("gone")
    assert list(pair.host.broker.exchanges) == before and not pair.host.broker.queues


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        *(
            ({"lifetime-policy": Described(ULong(code), [])}, "amqp:invalid-field")
            for code in (0x2C, 0x2D, 0x2E)
        ),
        ({"qpid.replicate": "all"}, "amqp:precondition-failed"),
    ],
)
def test_a_dynamic_topic_that_would_not_end_with_its_link_is_refused(
    properties: dict[str, Any], error: str
) -> None:
    pair = Pair()
    before = list(pair.host.broker.exchanges)
    asked = target(
        None,
        dynamic=True,
        capabilities=["temporary-topic"],
        properties={Symbol(name): value for name, value in properties.items()},
    )
    link, _ = pair.sender("", name="l", terminus=asked)
    assert condition(link) == error and link.error.info["reason"] and link.error.hint
    assert list(pair.host.broker.exchanges) == before


def test_there_is_no_dynamic_topic_on_a_backup() -> None:
    pair = Pair()
    pair.host.serving = False
    before = list(pair.host.broker.exchanges)
    asked = target(None, dynamic=True, capabilities=["temporary-topic"])
    link, _ = pair.sender("", name="l", terminus=asked)
    assert link.error is not None and list(pair.host.broker.exchanges) == before


def test_a_place_for_replies_of_rabbitmq_is_a_dynamic_queue() -> None:
    pair = Pair()
    asked = source(None, dynamic=True, capabilities=["rabbitmq:volatile-queue"])
    link, heard = pair.receiver("", name="replies", terminus=asked)
    assert link.remote_source.capabilities == ["rabbitmq:volatile-queue"]
    assert link.address.startswith("/queues/")
    anonymous, _ = pair.sender("", name="anonymous", terminus=target(None))
    anonymous.send(build("reply", properties={"to": link.address}))
    pair.turn()
    assert [body(payload) for payload in heard.payloads] == ["reply"]


def test_a_subscription_passes_node_properties_to_its_queue() -> None:
    pair = Pair()
    properties = {Symbol("x-max-length"): 5}
    pair.receiver("", name="sub", terminus=source("amq.topic", properties=properties))
    assert pair.host.broker.queues["client_sub"].max_count == 5


@pytest.mark.parametrize("unsettled", [False, True])
@pytest.mark.parametrize("sender", [False, True])
def test_a_link_that_is_detached_and_not_closed_is_let_go(sender: bool, unsettled: bool) -> None:
    host = AHost(max_links=5, ha_replicate="all")
    host.broker.log_writer = CountingLogWriter()
    queue, _ = host.broker.declare_queue("q")
    client = RawClient(host)
    for number in range(20):
        if sender:
            end = client.attach_sender("q", name=f"s{number}")
            host.delaying = unsettled
            end.send(build(number))
        else:
            queue.enqueue(build(number))
            end = client.attach_receiver("q", name=f"r{number}", credit=int(unsettled))
        client.turn()
        end.end(closed=False)
        client.turn()
        host.delaying = False
        host.release_all()
        client.turn()
        assert client.server._engine.link_count() == client.engine.link_count() == 0
    assert not client.detached and client.close_error is None
    assert len(queue.messages) == 20


def test_a_link_is_attached_again_on_its_session_by_its_name() -> None:
    host = AHost()
    queue, _ = host.broker.declare_queue("q")
    client = RawClient(host)
    for number in range(3):
        queue.enqueue(build(number))
        end = client.attach_receiver("q")
        ((delivery, payload),) = client.deliveries(end)
        assert body(payload) == number
        client.accept(delivery)
        client.turn()
        end.end(closed=False)
        client.turn()
    assert not queue.messages
