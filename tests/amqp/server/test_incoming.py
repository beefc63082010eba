"""Links from clients: what senders send, and the outcomes they get."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer import links
from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED, RELEASED, Outcome, source, target
from qpidha.broker import topic
from qpidha.model.encoding import Described, Symbol, Timestamp, UInt, ULong, encode
from qpidha.model.message_view import body, build, message_annotations
from qpidha.model.principal import Action, ObjectType
from tests.amqp.builders import (
    SECOND,
    AHost,
    CountingLogWriter,
    Pair,
    Recording,
    a_logged_pair,
    a_pair,
    bodies,
)
from tests.amqp.controller import Controller
from tests.amqp.raw_client import RawClient
from tests.amqp.wire import BEGIN, OPEN, Talk, a_host, attach, frame, perform, told

FULL_WITH_ONE = {"qpid.max_count": 1, "qpid.flow_stop_count": 0}
"""Of a queue that refuses, and does not make its senders wait."""


def in_order(heard: Recording) -> list[Outcome]:
    """Outcomes by delivery; the engine sends accepted ones in ranges, so that others may overtake
    them.
    """
    return [outcome for _, outcome in sorted(heard.outcomes, key=lambda pair: pair[0])]


def test_a_message_is_accepted_only_when_it_is_committed() -> None:
    pair = a_logged_pair()
    pair.host.delaying = True
    link, heard = pair.sender("q")
    link.send(build("m"))
    pair.turn()
    assert heard.outcomes == []
    pair.host.release_all()
    pair.turn()
    assert [outcome.state for outcome in in_order(heard)] == [ACCEPTED]


@pytest.mark.parametrize(
    ("to", "properties", "route"),
    [
        ("q", {}, {"x-exchange": "", "x-routing-key": "q"}),
        ("amq.fanout", {"subject": "s"}, {"x-exchange": "amq.fanout", "x-routing-key": "s"}),
        ("amq.fanout/k", {"subject": "s"}, {"x-exchange": "amq.fanout", "x-routing-key": "k"}),
        (None, {"to": "q"}, {"x-exchange": "", "x-routing-key": "q"}),
        (None, {"to": "amq.fanout/k"}, {"x-exchange": "amq.fanout", "x-routing-key": "k"}),
    ],
)
def test_a_broker_that_calls_itself_rabbitmq_annotates_the_route(
    to: str | None, properties: dict[str, str], route: dict[str, str]
) -> None:
    client = Controller(AHost(announce_product="rabbitmq"))
    broker = client.host.broker
    broker.declare_queue("q")
    broker.bind("amq.fanout", "q")
    payload = build("m", properties=properties, annotations={Symbol("x-opt-mine"): 1})
    sender = client.sender("", "s", target(to))
    sent = client.send(sender, payload)
    client.turn()
    assert sent.state == ACCEPTED
    (message,) = broker.queues["q"].messages.values()
    assert message_annotations(message.body()) == {"x-opt-mine": 1, **route}


def test_a_broker_that_calls_itself_rabbitmq_refuses_what_has_no_place() -> None:
    client = Controller(AHost(announce_product="rabbitmq"))
    sender = client.sender("", "s", target(None))
    sent = client.send(sender, build("m", properties={"to": "nowhere"}))
    client.turn()
    assert (sent.state, sent.condition) == (REJECTED, "amqp:not-found")


@pytest.mark.parametrize("how", ["close", "lost", "connection"])
def test_a_release_after_the_link_is_gone_touches_nothing(how: str) -> None:
    pair = a_logged_pair()
    pair.host.delaying = True
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
    pair.host.broker.log_writer = CountingLogWriter()
    pair.host.broker.declare_queue("q")
    pair.host.delaying = True
    link, heard = pair.sender("q")
    for number in range(25):
        link.send(build(number))
    pair.turn()
    assert len(pair.host.pending) == 10
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
    assert bodies([m.payload for m in pair.host.broker.queues["q"].messages.values()]) == list(
        range(10)
    )
    assert [number for number, _ in heard.outcomes] == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("transaction", [None, b"of the connection before"])
def test_what_proton_says_after_a_reconnection_of_messages_settled_before_is_passed_over(
    transaction: bytes | None,
) -> None:
    """It settles a message late, whose outcome came with the end of the connection: on the next one
    it sends a transfer for it, settled and with nothing in it.
    """
    client = Controller(AHost())
    broker = client.host.broker
    broker.declare_queue("q")
    sender = client.sender("q")
    client.send(sender, b"", transaction, settled=True)
    sent = client.send(sender, build("m"))
    client.turn()
    assert client.detached == {}
    assert sent.state == ACCEPTED
    assert bodies([m.payload for m in broker.queues["q"].messages.values()]) == ["m"]


def test_a_message_over_a_queue_limit_is_rejected_with_the_reason() -> None:
    pair = Pair()
    pair.host.broker.declare_queue("small", arguments=FULL_WITH_ONE)
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
    pair.host.broker.declare_queue("small", arguments=FULL_WITH_ONE)
    link, heard = pair.sender(
        "small", other=source("me", outcomes=["amqp:accepted:list", "amqp:released:list"])
    )
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
    "payload",
    [
        b"\x00\x53\x70\x45\x00\x53\x73\x45",
        b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x73\x45",
        b"\x00\x53\x70\x45",
    ],
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
    """The clock was an hour fast when the broker started, and has been set since: to the others it
    is what it should be.
    """
    pair = a_pair()
    pair.host.broker.ahead = -3600 * SECOND
    link, _ = pair.sender("q")
    link.send(build("m", header={"ttl": 1000}))
    pair.turn()
    (message,) = pair.host.broker.queues["q"].messages.values()
    assert message.expires == pair.host.now + (1 - 3600) * SECOND


@pytest.mark.parametrize(
    ("name", "value", "delay"),
    [
        ("x-opt-delivery-delay", 5000, 5000),
        ("x-opt-delivery-time", "at", 5000),
        ("x-opt-scheduled-enqueue-time", "timestamp", 5000),
        ("_AMQ_SCHED_DELIVERY", "at", 5000),
        ("x-opt-delivery-time", 1, 0),
        ("x-opt-delivery-delay", -1, 0),
        ("x-opt-other", 5000, 0),
    ],
)
@pytest.mark.parametrize("address", ["q", "amq.fanout"])
def test_row_118_a_message_says_when_it_is_due(
    name: str, value: Any, delay: int, address: str
) -> None:
    pair = a_pair()
    broker, now = pair.host.broker, pair.host.now
    broker.now = now
    broker.bind("amq.fanout", "q")
    at = now // 1_000_000 + delay
    given = {"at": at, "timestamp": Timestamp(at)}.get(str(value), value)
    link, _ = pair.sender(address)
    link.send(build("m", annotations={name: given}))
    link.send(build("n", annotations={name: given, "x": "y" * 300}))
    pair.turn()
    assert list(broker.queues["q"].delayed.values()) == [
        pytest.approx(now + delay * 1_000_000, abs=1_000_000)
    ] * (2 if delay else 0)
    assert len(broker.queues["q"].messages) == 2


@pytest.mark.parametrize("value", ["soon", True, 10**15])
def test_row_118_a_time_that_cannot_be_is_no_reason_to_deliver_at_once(value: object) -> None:
    pair = a_pair()
    link, heard = pair.sender("q")
    link.send(build("m", annotations={"x-opt-delivery-delay": value}))
    pair.turn()
    (outcome,) = in_order(heard)
    assert outcome.error is not None and outcome.error.condition == "amqp:invalid-field"
    assert not pair.host.broker.queues["q"].messages


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


def test_a_sender_is_asked_again_about_the_queue_that_takes_the_place_of_its_own() -> None:
    pair = a_pair()
    broker, access = pair.host.broker, pair.host.access
    link, heard = pair.sender("q")
    question = (Action.PUBLISH, ObjectType.QUEUE, "q")

    def send() -> None:
        link.send(build("m"))
        pair.turn()

    broker.delete_queue("q")
    theirs, _ = broker.declare_queue("q", exclusive=True, owner=object())
    send()
    broker.delete_queue("q")
    open_to_others, _ = broker.declare_queue("q")
    access.denied.add(question)
    send()
    assert not theirs.messages and not open_to_others.messages
    access.denied.clear()
    send()
    outcomes = in_order(heard)
    assert [outcome.state for outcome in outcomes] == [REJECTED, REJECTED, ACCEPTED]
    assert [outcome.error.condition for outcome in outcomes[:2] if outcome.error] == [
        "amqp:resource-locked",
        "amqp:unauthorized-access",
    ]
    assert len(open_to_others.messages) == 1 and link.error is None


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
    assert [outcome.state for outcome in outcomes] == [
        ACCEPTED,
        REJECTED,
        ACCEPTED,
        ACCEPTED,
        RELEASED,
    ]
    assert outcomes[1].error is not None and outcomes[1].error.condition == "amqp:not-found"
    assert len(pair.host.broker.queues["t"].messages) == 2


def test_code_d8_an_anonymous_sender_does_not_reach_the_exclusive_queue_of_somebody_else() -> None:
    host = AHost()
    owner, other = Pair(host, container_id="c1"), Pair(host, container_id="c2")
    own = source("own", capabilities=["create-on-demand"], properties={Symbol("exclusive"): True})
    owner.receiver("own", terminus=own)
    found = []
    for pair in (owner, other):
        link, heard = pair.sender("", terminus=target(None), name="anonymous")
        link.send(build("m", properties={"to": "own"}))
        pair.turn()
        found += in_order(heard)
    assert [outcome.state for outcome in found] == [ACCEPTED, REJECTED]
    assert found[1].error is not None and found[1].error.condition == "amqp:resource-locked"


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
    assert [outcome.state for outcome in in_order(heard)] == [ACCEPTED, RELEASED]


LONG = [("k" * 255, True), ("k" * 256, False), ("\u00e9" * 128, False), ("a." * 1_000_000, False)]


@pytest.mark.parametrize("to", [None, "amq.topic", "amq.topic/"])
def test_a_key_that_is_too_long_is_rejected_before_anybody_is_asked(to: str | None) -> None:
    """The key is the subject of a message to an exchange, by its link or by its own `to`, or stands
    in its `to`.
    """
    pair = a_pair()
    pair.host.broker.bind("amq.topic", "q", "#.b.#.c.#")
    pair.host.access.each_message = True
    if to is None:
        link, heard = pair.sender("amq.topic")
    else:
        link, heard = pair.sender("", terminus=target(None), name="anonymous")
    for number, (key, _) in enumerate(LONG):
        found = {"subject": key}
        if to is not None:
            found = {"to": to + key} if to.endswith("/") else {"to": to, "subject": key}
        link.send(build(number, properties=found))
    pair.host.access.asked.clear()
    pair.turn()
    outcomes = in_order(heard)
    assert [outcome.state == RELEASED for outcome in outcomes] == [taken for _, taken in LONG]
    assert len(pair.host.access.asked) == 1
    for outcome in outcomes[1:]:
        assert outcome.state == REJECTED and outcome.error is not None
        assert outcome.error.condition == "amqp:invalid-field"
        assert "bytes long" in str(outcome.error.description)
        assert outcome.error.info["reason"] and outcome.error.info["hint"]
    assert list(pair.host.broker.exchanges["amq.topic"]._remembered) == [LONG[0][0]]


@pytest.mark.parametrize("is_anonymous", [False, True])
def test_a_subject_of_any_length_goes_where_nobody_looks_at_keys(is_anonymous: bool) -> None:
    """Qpid JMS sends the JMSType as the subject."""
    pair = a_pair()
    broker = pair.host.broker
    broker.declare_exchange("fans", "fanout", alternate="amq.fanout")
    broker.declare_exchange("topics", "fanout", alternate="amq.topic")
    for name in ("amq.fanout", "amq.match", "topics", "amq.direct"):
        broker.bind(name, "q")

    def sent_to(name: str) -> int:
        properties = {"subject": LONG[1][0]}
        link = f"to {name}, asked for {pair.host.access.each_message}"
        if is_anonymous:
            sender, heard = pair.sender("", terminus=target(None), name=link)
            properties["to"] = name
        else:
            sender, heard = pair.sender(name, name=link)
        sender.send(build(1, properties=properties))
        pair.turn()
        return in_order(heard)[0].state

    found = [sent_to(name) for name in ("amq.fanout", "amq.match", "fans", "topics", "amq.direct")]
    assert found == [ACCEPTED, ACCEPTED, ACCEPTED, REJECTED, REJECTED]
    assert len(broker.queues["q"].messages) == 3
    pair.host.access.each_message = True
    assert sent_to("amq.fanout") == REJECTED


def test_a_key_that_too_many_bindings_may_fit_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "MOST_STEPS", 10)
    pair = a_pair()
    pair.host.broker.bind("amq.topic", "q", "#.a.#")
    link, heard = pair.sender("amq.topic")
    for key in ("a.a", "a.a.a.a.a"):
        link.send(build(key, properties={"subject": key}))
    pair.turn()
    taken, refused = in_order(heard)
    assert taken.state == ACCEPTED and refused.state == REJECTED and refused.error is not None
    assert refused.error.condition == "amqp:resource-limit-exceeded" and refused.error.hint
    assert len(pair.host.broker.queues["q"].messages) == 1


WHOLE = encode(Described(ULong(0x75), bytes(90_000)))


def piece(handle: int, start: int, end: int | None) -> bytes:
    """A transfer with a part of a message, whose delivery-id is the handle."""
    identity = [None] * 3 if start else [UInt(handle), b"%d" % handle, UInt(0)]
    performative = perform(0x14, UInt(handle), *identity, False, end is not None)
    return frame(performative + WHOLE[start:end])


def unfinished(talk: Talk) -> int:
    engine = talk.connection._engine
    assert engine.scratch.unfinished == engine.unfinished  # It is the only connection.
    return engine.unfinished


def test_code_d6_unfinished_messages_of_one_connection_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "UNFINISHED", 250_000)
    talk = Talk(a_host(max_message_size=100_000), AMQP_HEADER, OPEN, BEGIN)
    for handle in range(4):
        talk.say(attach(f"s{handle}", handle))
    for handle in range(4):
        talk.say(piece(handle, 0, 40_000), piece(handle, 40_000, 80_000))
    assert told(talk.answers) == [(0x16, "amqp:resource-limit-exceeded")]
    assert talk.answers[-1].fields[0] == 3 and unfinished(talk) == 240_000
    # The others go on: one is finished, one aborted, one ended in the middle.
    talk.say(piece(0, 80_000, None))
    assert (talk.messages, unfinished(talk)) == (1, 160_000), told(talk.answers)
    abort = perform(0x14, UInt(1), *[None] * 3, True, False, None, None, None, True)
    talk.say(frame(abort), frame(perform(0x16, UInt(2), True)))
    assert unfinished(talk) == 0
    talk.say(attach("again", 4), piece(4, 0, 40_000))
    assert unfinished(talk) == 40_000
    talk.say(frame(perform(0x17)))
    assert unfinished(talk) == 0


def test_a_message_in_small_parts_is_kept_in_few() -> None:
    talk = Talk(a_host(), AMQP_HEADER, OPEN, BEGIN, attach("s", 0))
    whole = encode(Described(ULong(0x75), bytes(300)))
    parts = [whole[at : at + 1] for at in range(len(whole))]
    talk.say(frame(perform(0x14, UInt(0), UInt(0), b"t", UInt(0), False, True) + parts[0]))
    more = [frame(perform(0x14, UInt(0), *[None] * 4, True) + part) for part in parts[1:-1]]
    talk.say(b"".join(more[:100]), *more[100:])
    (end,) = talk.connection._engine._links.values()
    assert len(end._chunks) == 1
    talk.say(frame(perform(0x14, UInt(0), *[None] * 4, False) + parts[-1]))
    assert [message.body() for message in talk.host.broker.queues["q"].messages.values()] == [whole]
