"""Links between clients and queues, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.engine import Engine
from qpidha.amqp.terminus import Outcome, Terminus, source, target
from qpidha.words.encoding import Described, Symbol, decode, sections
from qpidha.words.message_view import application_properties, body, build, header
from tests.amqp.builders import SECOND, AHost, CountingRecorder, Pair, Recording
from tests.amqp.raw_client import RawClient

ACCEPTED, REJECTED, RELEASED, MODIFIED = 0x24, 0x25, 0x26, 0x27


def a_pair(**settings: Any) -> Pair:
    pair = Pair(AHost(**settings))
    pair.host.broker.declare_queue("q")
    return pair


def a_logged_pair() -> Pair:
    host = AHost(ha_replicate="all")
    host.broker.recorder = CountingRecorder()
    pair = Pair(host)
    host.broker.declare_queue("q")
    return pair


def bodies(payloads: list[bytes]) -> list[Any]:
    return [body(payload) for payload in payloads]


def in_order(heard: Recording) -> list[Outcome]:
    """Outcomes by delivery; the engine sends accepted ones in ranges, so that others may overtake them."""
    return [outcome for _, outcome in sorted(heard.outcomes, key=lambda pair: pair[0])]


# Incoming.


def test_a_message_is_accepted_only_when_it_is_safe() -> None:
    pair = a_logged_pair()
    pair.host.holding = True
    link, heard = pair.sender("q")
    link.send(build("m"))
    pair.turn()
    assert heard.outcomes == []
    pair.host.release_all()
    pair.turn()
    assert [outcome.state for outcome in in_order(heard)] == [ACCEPTED]


@pytest.mark.parametrize("how", ["close", "lost", "connection"])
def test_a_release_after_the_link_is_gone_touches_nothing(how: str) -> None:
    pair = a_logged_pair()
    pair.host.holding = True
    link, _ = pair.sender("q")
    link.send(build("m"))
    pair.turn()
    if how == "close":
        link.close()
    elif how == "lost":
        pair.server.lost("gone")
    else:
        pair.client.close()
    pair.turn()
    pair.host.release_all()
    pair.turn()
    assert len(pair.host.broker.queues["q"].messages) == 1


def test_credit_counts_messages_that_are_held() -> None:
    pair = Pair(AHost(link_credit=10, ha_replicate="all"))
    pair.host.broker.recorder = CountingRecorder()
    pair.host.broker.declare_queue("q")
    pair.host.holding = True
    link, heard = pair.sender("q")
    for number in range(25):
        link.send(build(number))
    pair.turn()
    assert len(pair.host.held) == 10
    for _ in range(5):
        pair.host.release_all()
        pair.turn()
    assert len(heard.outcomes) == 25


def test_pre_settled_messages_arrive_without_an_outcome() -> None:
    pair = a_pair(link_credit=10)
    link, heard = pair.sender("q", settled=True)
    for number in range(100):
        link.send(build(number))
    pair.turn()
    assert len(pair.host.broker.queues["q"].messages) == 100
    assert heard.outcomes == []


def test_settled_and_unsettled_messages_mix_on_one_link() -> None:
    pair = a_pair()
    link, heard = pair.sender("q")
    for number in range(10):
        link.send(build(number), settled=number % 2 == 0)
    pair.turn()
    assert bodies([m.payload for m in pair.host.broker.queues["q"].messages.values()]) == list(range(10))
    assert [number for number, _ in heard.outcomes] == [2, 4, 6, 8, 10]


def test_a_message_over_a_queue_limit_is_rejected_with_the_reason() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("small", arguments={"qpid.max_count": 1})
    link, heard = pair.sender("small")
    link.send(build(1))
    link.send(build(2))
    pair.turn()
    accepted, rejected = in_order(heard)
    assert (accepted.state, rejected.state) == (ACCEPTED, REJECTED)
    assert rejected.error is not None and rejected.error.condition == "amqp:resource-limit-exceeded"
    assert link.error is None


def test_a_sender_that_knows_no_rejected_gets_released() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("small", arguments={"qpid.max_count": 1})
    link, heard = pair.sender("small", other=source("me", outcomes=["amqp:accepted:list", "amqp:released:list"]))
    link.send(build(1))
    link.send(build(2))
    pair.turn()
    assert [outcome.state for outcome in in_order(heard)] == [ACCEPTED, RELEASED]


def test_a_payload_that_is_no_message_is_rejected() -> None:
    pair = a_pair()
    link, heard = pair.sender("q")
    link.send(b"this is no message")
    link.send(build("m"))
    pair.turn()
    assert [outcome.state for outcome in in_order(heard)] == [REJECTED, ACCEPTED]
    assert in_order(heard)[0].error.condition == "amqp:decode-error"


@pytest.mark.parametrize(
    "payload", [b"\x00\x53\x70\x45\x00\x53\x73\x45", b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x73\x45", b"\x00\x53\x70\x45"]
)
def test_a_message_without_a_body_is_taken_as_it_is(payload: bytes) -> None:
    pair = a_pair()
    link, heard = pair.sender("q")
    link.send(payload)
    pair.turn()
    assert [outcome.state for outcome in in_order(heard)] == [ACCEPTED]
    receiver, messages = pair.receiver("q")
    assert messages.payloads == [payload]


def test_a_large_message_comes_in_many_frames() -> None:
    pair = a_pair(max_frame_size=1024)
    link, heard = pair.sender("q")
    content = bytes(range(256)) * 4000
    link.send(build(content))
    pair.turn()
    assert [outcome.state for outcome in in_order(heard)] == [ACCEPTED]
    _, received = pair.receiver("q")
    assert body(received.payloads[0]) == content


def test_a_message_over_max_message_size_ends_the_link() -> None:
    pair = a_pair(max_message_size=10_000)
    link, heard = pair.sender("q")
    link.send(build(bytes(20_000)))
    pair.turn()
    assert link.error is not None and link.error.condition == "amqp:link:message-size-exceeded"
    assert not pair.host.broker.queues["q"].messages
    other, heard = pair.sender("q", name="other")
    other.send(build("small"))
    pair.turn()
    assert len(heard.outcomes) == 1


def test_an_aborted_message_leaves_nothing() -> None:
    pair = a_pair()
    client = RawClient(pair.host)
    end = client.attach_sender("q")
    client.send_part(end, build(bytes(500))[:200])
    client.turn()
    client.abort(end)
    client.turn()
    end.send(build("whole"))
    client.turn()
    assert bodies([m.payload for m in pair.host.broker.queues["q"].messages.values()]) == ["whole"]


def test_delivery_annotations_are_not_kept() -> None:
    pair = a_pair()
    link, _ = pair.sender("q")
    bare = build("x", properties={"to": "elsewhere"})
    link.send(b"\x00\x53\x71\xc1\x01\x00" + bare)
    pair.turn()
    (message,) = pair.host.broker.queues["q"].messages.values()
    assert message.payload == bare


def test_a_message_expires_by_its_time_to_live() -> None:
    pair = a_pair()
    link, _ = pair.sender("q")
    link.send(build("old", header={"ttl": 1000}))
    link.send(build("new"))
    pair.turn()
    pair.host.now += 2 * SECOND
    _, received = pair.receiver("q")
    assert bodies(received.payloads) == ["new"]


def test_a_message_expires_by_the_wall_clock_as_it_is_then() -> None:
    """The clock was an hour fast when the broker started, and has been set since: to the others it is what it should be."""
    pair = a_pair()
    pair.host.broker.ahead = -3600 * SECOND
    link, _ = pair.sender("q")
    link.send(build("m", header={"ttl": 1000}))
    pair.turn()
    (message,) = pair.host.broker.queues["q"].messages.values()
    assert message.expires == pair.host.now + (1 - 3600) * SECOND


def test_a_deleted_queue_ends_its_senders_and_receivers() -> None:
    pair = a_pair()
    sender, _ = pair.sender("q")
    receiver, _ = pair.receiver("q")
    pair.host.broker.delete_queue("q")
    pair.turn()
    sender.send(build("m"))
    pair.turn()
    for link in (sender, receiver):
        assert link.error is not None and link.error.condition == "amqp:resource-deleted"


def test_an_anonymous_sender_reaches_what_each_message_names() -> None:
    pair = a_pair()
    pair.host.broker.declare_queue("t")
    pair.host.broker.bind("amq.topic", "t", "a.#")
    link, heard = pair.sender("", terminus=target(None), name="anonymous")
    link.send(build(1, properties={"to": "q"}))
    link.send(build(2, properties={"to": "nowhere"}))
    link.send(build(3, properties={"to": "amq.topic", "subject": "a.b"}))
    link.send(build(4, properties={"to": "amq.topic/a.c"}))
    link.send(build(5, properties={"to": "amq.topic/b"}))
    pair.turn()
    outcomes = in_order(heard)
    assert [outcome.state for outcome in outcomes] == [ACCEPTED, REJECTED, ACCEPTED, ACCEPTED, REJECTED]
    assert outcomes[1].error is not None and outcomes[1].error.condition == "amqp:not-found"
    assert len(pair.host.broker.queues["t"].messages) == 2


def test_an_exchange_routes_by_key_subject_and_headers() -> None:
    pair = Pair()
    broker = pair.host.broker
    for name in ("direct", "headers"):
        broker.declare_queue(name)
    broker.bind("amq.direct", "direct", "k")
    broker.bind("amq.match", "headers", "h", {"x-match": "all", "colour": "red"})
    by_address, _ = pair.sender("amq.direct/k")
    by_subject, _ = pair.sender("amq.direct")
    by_header, heard = pair.sender("amq.match")
    by_address.send(build(1))
    by_subject.send(build(2, properties={"subject": "k"}))
    by_subject.send(build(3, properties={"subject": "other"}))
    by_header.send(build(4, application_properties={"colour": "red"}))
    by_header.send(build(5, application_properties={"colour": "blue"}))
    pair.turn()
    assert len(broker.queues["direct"].messages) == 2
    assert len(broker.queues["headers"].messages) == 1
    assert [outcome.state for outcome in in_order(heard)] == [ACCEPTED, ACCEPTED]


# Outgoing.


def a_raw_receiver(pair: Pair, **options: Any) -> tuple[RawClient, Any]:
    client = RawClient(pair.host)
    return client, client.attach_receiver("q", **options)


def fill(pair: Pair, *contents: Any) -> None:
    for content in contents:
        pair.host.broker.queues["q"].enqueue(build(content))


def test_an_accepted_message_is_gone() -> None:
    pair = a_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    ((delivery, payload),) = client.deliveries(end)
    assert body(payload) == "m"
    client.accept(delivery)
    client.turn()
    assert not pair.host.broker.queues["q"].messages


def test_a_consumer_that_waits_is_settled_when_the_dequeue_is_safe() -> None:
    pair = a_logged_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    pair.host.holding = True
    ((delivery, _),) = client.deliveries(end)
    client.accept(delivery, settled=False)
    client.turn()
    assert not client.is_settled(delivery)
    pair.host.release_all()
    client.turn()
    assert client.is_settled(delivery)


def test_a_released_message_comes_again_unmarked() -> None:
    pair = a_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    ((delivery, _),) = client.deliveries(end)
    client.outcome(delivery, Outcome(RELEASED))
    client.turn()
    ((_, payload),) = client.deliveries(end)
    assert payload == build("m")


def test_a_modified_message_comes_again_with_count_and_annotations() -> None:
    pair = a_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    ((delivery, _),) = client.deliveries(end)
    client.outcome(delivery, Outcome(MODIFIED, failed=True, annotations={Symbol("x-why"): "busy"}))
    client.turn()
    ((_, payload),) = client.deliveries(end)
    assert header(payload)["delivery_count"] == 1
    assert decode(payload, sections(payload)[1][2])[0] == {"x-why": "busy"}
    assert payload.endswith(build("m"))


def test_annotations_of_outcomes_do_not_grow_without_bound() -> None:
    pair = a_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    for number in range(10):
        ((delivery, payload),) = client.deliveries(end)
        client.outcome(delivery, Outcome(MODIFIED, failed=True, annotations={Symbol(f"x-{number}"): "x" * 20_000}))
        client.turn()
    ((_, payload),) = client.deliveries(end)
    assert header(payload)["delivery_count"] == 10
    assert 20_000 < len(payload) < 70_000


def test_a_message_undeliverable_here_goes_to_somebody_else() -> None:
    pair = a_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    ((delivery, _),) = client.deliveries(end)
    client.outcome(delivery, Outcome(MODIFIED, undeliverable=True))
    client.turn()
    assert client.deliveries(end) == []
    other, other_end = a_raw_receiver(pair)
    assert len(other.deliveries(other_end)) == 1


def test_a_rejected_message_goes_to_the_alternate_exchange() -> None:
    pair = Pair()
    broker = pair.host.broker
    broker.declare_queue("q", alternate="amq.fanout")
    broker.declare_queue("dead")
    broker.bind("amq.fanout", "dead")
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    ((delivery, _),) = client.deliveries(end)
    client.outcome(delivery, Outcome(REJECTED))
    client.turn()
    assert not broker.queues["q"].messages
    assert len(broker.queues["dead"].messages) == 1


@pytest.mark.parametrize("how", ["detach", "close", "lost", "session"])
def test_unsettled_messages_go_back_marked_as_failed(how: str) -> None:
    pair = a_pair()
    fill(pair, 1, 2)
    client, end = a_raw_receiver(pair)
    assert len(client.deliveries(end)) == 2
    if how == "lost":
        client.server.lost("gone")
    elif how == "session":
        client.end_session()
    else:
        end.end(closed=how == "close")
    client.turn()
    queue = pair.host.broker.queues["q"]
    assert [message.delivery_count for message in queue.messages.values()] == [1, 1]
    assert queue.acquired == 0 and not queue.consumers


def test_a_browser_sees_everything_and_takes_nothing() -> None:
    pair = a_pair()
    fill(pair, 1, 2, 3)
    _, first = pair.receiver("q", name="b1", terminus=source("q", distribution="copy"))
    _, second = pair.receiver("q", name="b2", terminus=source("q", distribution="copy"))
    assert bodies(first.payloads) == bodies(second.payloads) == [1, 2, 3]
    assert len(pair.host.broker.queues["q"].messages) == 3


def test_credit_bounds_what_is_sent_and_drain_gives_it_back() -> None:
    pair = a_pair()
    fill(pair, *range(5))
    client, end = a_raw_receiver(pair, credit=3)
    assert len(client.deliveries(end)) == 3
    end.drain(10)
    client.turn()
    assert len(client.deliveries(end)) == 2
    assert end.credit() == 0


def test_unacknowledged_messages_of_a_session_are_bounded() -> None:
    pair = a_pair(session_max_unacked=10)
    fill(pair, *range(30))
    client, end = a_raw_receiver(pair, credit=1000)
    got = client.deliveries(end)
    assert len(got) == 10
    seen = 10
    while got:
        for delivery, _ in got:
            client.accept(delivery)
        client.turn()
        got = client.deliveries(end)
        seen += len(got)
    assert seen == 30
    assert not pair.host.broker.queues["q"].messages


def test_unacknowledged_bytes_of_a_session_are_bounded() -> None:
    pair = a_pair(max_output_buffer=400_000)
    fill(pair, *(bytes(30_000) for _ in range(20)))
    client, end = a_raw_receiver(pair, credit=1000)
    got = client.deliveries(end)
    assert len(got) == 4
    seen = 0
    while got:
        seen += len(got)
        for delivery, _ in got:
            client.accept(delivery)
        got = client.deliveries(end)
    assert seen == 20


def test_a_settled_receiver_consumes_what_is_sent() -> None:
    pair = a_pair()
    fill(pair, 1, 2)
    client, end = a_raw_receiver(pair, mode=1)
    assert len(client.deliveries(end)) == 2
    assert not pair.host.broker.queues["q"].messages


def test_a_deep_queue_arrives_completely_at_a_settled_receiver() -> None:
    pair = Pair(AHost(default_queue_limit=0))
    pair.host.broker.declare_queue("q")
    fill(pair, *(bytes(100_000) for _ in range(120)))
    client, end = a_raw_receiver(pair, credit=1000, mode=1)
    assert len(client.deliveries(end)) == 120


def test_a_congested_connection_gets_nothing_until_it_is_not() -> None:
    pair = a_pair()
    pair.server.set_congested(True)
    _, received = pair.receiver("q")
    fill(pair, 1)
    pair.turn()
    assert received.payloads == []
    pair.server.set_congested(False)
    pair.turn()
    assert len(received.payloads) == 1


def test_a_message_larger_than_a_receiver_takes_ends_its_link_and_stays() -> None:
    pair = a_pair()
    fill(pair, bytes(5000))
    client, end = a_raw_receiver(pair, max_message_size=1000)
    assert client.deliveries(end) == []
    assert client.detached[end.name] == "amqp:link:message-size-exceeded"
    assert len(pair.host.broker.queues["q"].messages) == 1


def test_consumers_of_one_queue_share_its_messages() -> None:
    pair = a_pair()
    first, second = pair.receiver("q", name="r1")[1], pair.receiver("q", name="r2")[1]
    fill(pair, *range(10))
    pair.turn()
    assert len(first.payloads) == len(second.payloads) == 5


def test_message_content_is_not_touched_between_sender_and_receiver() -> None:
    pair = a_pair()
    link, _ = pair.sender("q")
    payload = build([1, "two", b"3"], properties={"message_id": "m"}, application_properties={"a": 1}, annotations={"x-a": 1})
    link.send(payload)
    pair.turn()
    _, received = pair.receiver("q")
    assert received.payloads == [payload]
    assert application_properties(received.payloads[0]) == {"a": 1}


def test_the_engine_itself_needs_no_connection_of_ours() -> None:
    """What is used of proton exists: the pinned version is the one this was written for."""
    engine = Engine(RawClient(AHost()), is_server=True, max_frame_size=512, channel_max=1)
    engine.free()
    engine.free()
    assert Terminus().kind == 0 and Described("a", 1).value == 1
