"""Links to clients: what receivers get, and what they do with it."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.peer.links import Scratch, settle, update
from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    MIXED,
    MODIFIED,
    REJECTED,
    RELEASED,
    SETTLED,
    Outcome,
    Terminus,
    source,
)
from qpidha.amqp.server import outgoing
from qpidha.broker.queues import dispatch as dispatch_module
from qpidha.broker.queues import returns
from qpidha.broker.queues.queue import Queue
from qpidha.broker.vocabulary import CONSUMER_PRIORITIES
from qpidha.model.encoding import Described, Symbol, UByte, UInt, ULong, decode, sections
from qpidha.model.message_view import (
    HEADER,
    MESSAGE_ANNOTATIONS,
    application_properties,
    body,
    build,
    delivery_annotations,
    header,
    message_annotations,
)
from tests.amqp.builders import AHost, Pair, a_logged_pair, a_pair, bodies
from tests.amqp.raw_client import RawClient
from tests.amqp.wire import BEGIN, OPEN, TARGET, Talk, attach, frame, frames_in, perform

FROM_Q = Described(ULong(0x28), ["q"])


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


def test_a_consumer_that_waits_is_settled_when_the_dequeue_is_committed() -> None:
    pair = a_logged_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    pair.host.delaying = True
    ((delivery, _),) = client.deliveries(end)
    client.accept(delivery, settled=False)
    client.turn()
    assert not client.is_settled(delivery)
    pair.host.release_all()
    client.turn()
    assert client.is_settled(delivery)


def claims_to_be_new(payload: bytes) -> bool:
    """Whether the header says that no other link has acquired the message."""
    return bool(header(payload).get("first_acquirer", False))


def test_d8_a_released_message_comes_again_and_does_not_claim_to_be_new() -> None:
    """AMQP 1.0 section 3.2.1: first-acquirer is for the first link only."""
    pair = a_pair()
    pair.host.broker.queues["q"].enqueue(build("m", header={"first_acquirer": True}))
    client, end = a_raw_receiver(pair)
    ((delivery, payload),) = client.deliveries(end)
    assert claims_to_be_new(payload)
    client.outcome(delivery, Outcome(RELEASED))
    end.end(closed=True)
    client.turn()
    other, other_end = a_raw_receiver(pair)
    ((_, payload),) = other.deliveries(other_end)
    assert not claims_to_be_new(payload)
    assert "delivery_count" not in header(payload)
    assert payload.endswith(build("m"))


def test_d7_what_was_here_at_a_promotion_is_marked_and_what_came_later_is_not() -> None:
    pair = a_logged_pair()
    queue = pair.host.broker.queues["q"]
    new = {"first_acquirer": True}
    for number in range(3):
        queue.enqueue(build(number, header=new, annotations={Symbol("x-opt-mine"): number}))
    client, end = a_raw_receiver(pair, credit=2)
    assert len(client.deliveries(end)) == 2
    client.server.lost("the broker died")
    pair.host.broker.promoted(0)
    queue.enqueue(build(3, header=new))
    client, end = a_raw_receiver(pair)
    payloads = [payload for _, payload in client.deliveries(end)]
    assert bodies(payloads) == [0, 1, 2, 3]
    assert [claims_to_be_new(payload) for payload in payloads] == [False, False, False, True]
    assert [message_annotations(payload) for payload in payloads] == [
        {"x-opt-mine": 0, "x-opt-ha-failover": True, "x-acquired-count": 1},
        {"x-opt-mine": 1, "x-opt-ha-failover": True, "x-acquired-count": 1},
        {"x-opt-mine": 2, "x-opt-ha-failover": True},
        {},
    ]


def test_t_q1_row_96_what_comes_again_says_how_often_it_failed_and_was_given_back() -> None:
    pair = a_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    said = []
    for outcome in (MODIFIED, RELEASED, MODIFIED, None):
        ((delivery, payload),) = client.deliveries(end)
        fields = header(payload)
        said.append(
            (
                fields.get("delivery_count"),
                message_annotations(payload).get("x-acquired-count"),
                fields.get("first_acquirer"),
            )
        )
        if outcome is not None:
            client.outcome(delivery, Outcome(outcome, failed=outcome == MODIFIED))
            client.turn()
    assert said == [(None, None, None), (1, 1, False), (1, 2, False), (2, 3, False)]


def test_a_modified_message_comes_again_with_count_and_annotations() -> None:
    pair = a_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    ((delivery, _),) = client.deliveries(end)
    client.outcome(delivery, Outcome(MODIFIED, failed=True, annotations={Symbol("x-why"): "busy"}))
    client.turn()
    ((_, payload),) = client.deliveries(end)
    assert header(payload)["delivery_count"] == 1
    assert decode(payload, sections(payload)[1][2])[0] == {"x-why": "busy", "x-acquired-count": 1}
    assert payload.endswith(build("m"))


def test_an_outcome_does_not_change_the_number_of_a_message() -> None:
    pair = a_pair()
    broker = pair.host.broker
    arguments = {"qpid.queue_msg_sequence": "x-opt-number"}
    broker.declare_queue("numbered", arguments=arguments)[0].enqueue(build("m"))
    client = RawClient(pair.host)
    end = client.attach_receiver("numbered")
    ((delivery, payload),) = client.deliveries(end)
    number = message_annotations(payload)["x-opt-number"]
    changes = {Symbol("x-opt-number"): number + 7, Symbol("x-why"): "busy"}
    client.outcome(delivery, Outcome(MODIFIED, annotations=changes))
    client.turn()
    ((_, payload),) = client.deliveries(end)
    annotations = message_annotations(payload)
    assert (annotations["x-opt-number"], annotations["x-why"]) == (number, "busy")


def test_an_outcome_does_not_change_what_a_dead_letter_says_of_its_deaths() -> None:
    pair = a_pair()
    broker = pair.host.broker
    dies, _ = broker.declare_queue("dies", arguments={"x-dead-letter-exchange": "/queues/q"})
    dies.enqueue(build("m"))
    dies.reject(next(iter(dies.messages.values())))
    (letter,) = broker.queues["q"].messages.values()
    before = message_annotations(letter.body())
    client, end = a_raw_receiver(pair)
    ((delivery, _),) = client.deliveries(end)
    changes = {Symbol(name): "forged" for name in before} | {Symbol("x-why"): "busy"}
    assert {"x-opt-deaths", "x-routing-key", "x-last-death-queue"} <= set(changes)
    client.outcome(delivery, Outcome(MODIFIED, annotations=changes))
    client.turn()
    assert message_annotations(letter.annotations) == {**before, "x-why": "busy"}


def test_annotations_of_outcomes_do_not_grow_without_bound() -> None:
    pair = a_pair()
    fill(pair, "m")
    client, end = a_raw_receiver(pair)
    for number in range(10):
        ((delivery, payload),) = client.deliveries(end)
        client.outcome(
            delivery, Outcome(MODIFIED, failed=True, annotations={Symbol(f"x-{number}"): "x" * 300})
        )
        client.turn()
    ((_, payload),) = client.deliveries(end)
    assert header(payload)["delivery_count"] == 10
    assert 600 < len(payload) < 1500


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


def test_a_link_that_refuses_everything_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "REFUSALS", 2)
    for module in (dispatch_module, outgoing):
        monkeypatch.setattr(module, "MAX_REFUSALS", 20)
    pair = a_pair()
    fill(pair, *(str(number) for number in range(50)))
    client, end = a_raw_receiver(pair)
    refused = 0
    while not client.detached and refused < 50:
        for delivery, _ in client.deliveries(end):
            if not client.detached:
                client.outcome(delivery, Outcome(MODIFIED, undeliverable=True))
                client.turn()
                refused += 1
    assert list(client.detached.values()) == ["amqp:resource-limit-exceeded"]
    assert refused == 21
    queue = pair.host.broker.queues["q"]
    assert len(queue.messages) == 50 and not queue.acquired and not queue.consumers


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


@pytest.mark.parametrize(
    "payload",
    [
        build("m"),
        build(b"m" * 300, properties={"message_id": "1"}, application_properties={"a": 1}),
        build("m", header={"durable": True}),
        build("m", header={"durable": True, "priority": 9, "ttl": 2**32 - 1}),
        build("m", header={"first_acquirer": True, "delivery_count": 3}),
        build("m", annotations={Symbol("x-opt-mine"): "y" * 300}),
        build("m", header={"durable": True}, annotations={Symbol("x-opt-mine"): 1}),
        bytes.fromhex("005370 45") + build("m"),
        bytes.fromhex("005370 d0 00000005 00000001 41") + build("m"),
        bytes.fromhex("0080 0000000000000070 c0 02 01 41") + build("m"),
    ],
    ids=range(10),
)
def test_d7_the_mark_changes_nothing_else(payload: bytes) -> None:
    pair = a_logged_pair()
    queue = pair.host.broker.queues["q"]
    queue.enqueue(payload)
    pair.host.broker.promoted(0)
    client, end = a_raw_receiver(pair)
    ((_, marked),) = client.deliveries(end)
    assert {**header(marked), "first_acquirer": False} == {
        **header(payload),
        "first_acquirer": False,
    }
    assert not claims_to_be_new(marked)
    annotations = {**message_annotations(payload), "x-opt-ha-failover": True}
    assert message_annotations(marked) == annotations
    bare = min(start for code, start, *_ in sections(payload) if code > MESSAGE_ANNOTATIONS)
    assert marked.endswith(payload[bare:])
    codes = [code for code, *_ in sections(marked) if code != HEADER]
    assert codes == [MESSAGE_ANNOTATIONS, *(code for code, *_ in sections(payload[bare:]))]


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


@pytest.mark.parametrize("behind", [["new"], []], ids=["a message", "none"])
def test_a_drain_is_answered_when_what_has_expired_was_searched(
    behind: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_module, "EXPIRED_A_TURN", 2)
    pair = a_pair()
    broker = pair.host.broker
    for number in range(5):
        broker.queues["q"].enqueue(build(number), expires=pair.host.now)
    fill(pair, *behind)
    client, end = a_raw_receiver(pair, credit=0)
    end.drain(10)
    client.turn()
    assert [body(payload) for _, payload in client.deliveries(end)] == behind
    assert end.credit() == 0 and not broker.runnable


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


@pytest.mark.parametrize(("there", "kept"), [(30, 20), (10, 0)])
def test_a_drain_is_answered_by_a_session_that_is_full(there: int, kept: int) -> None:
    pair = a_pair(session_max_unacked=10)
    fill(pair, *range(there))
    client, end = a_raw_receiver(pair, credit=0)
    end.drain(1000)
    client.turn()
    got = client.deliveries(end)
    assert len(got) == 10
    assert (end.credit(), end.awaits_drained(), end.available() or 0) == (0, False, kept)
    for delivery, _ in got:
        client.accept(delivery)
    end.drain(1000)
    client.turn()
    assert len(client.deliveries(end)) == min(kept, 10)
    client.turn()
    assert not end.awaits_drained()


@pytest.mark.parametrize(("there", "kept"), [(30, 5), (20, 0), (5000, 5)])
def test_a_drain_counts_what_a_selector_selects(there: int, kept: int) -> None:
    """Every other one of the first 30."""
    pair = a_pair(session_max_unacked=10)
    queue = pair.host.broker.queues["q"]
    for number in range(there):
        wanted = number < 30 and number % 2
        properties = {"colour": "red" if wanted else "blue"}
        queue.enqueue(build(number, application_properties=properties))
    selector = Described(Symbol("apache.org:selector-filter:string"), "colour = 'red'")
    client = RawClient(pair.host)
    filters = {Symbol("s"): selector}
    end = client.attach_receiver("q", terminus=source("q", filter=filters), credit=0)
    end.drain(1000)
    client.turn()
    assert len(client.deliveries(end)) == 10
    assert (end.credit(), end.awaits_drained(), end.available() or 0) == (0, False, kept)


def test_all_that_is_settled_at_once_makes_room() -> None:
    pair = a_pair(session_max_unacked=10)
    fill(pair, *range(20))
    client, end = a_raw_receiver(pair, credit=1000)
    for delivery, _ in client.deliveries(end):
        client.accept(delivery)
    client.turn()
    assert len(client.deliveries(end)) == 10


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


def test_what_is_sent_settled_is_not_bounded_by_what_awaits_a_disposition() -> None:
    pair = a_pair(session_max_unacked=10)
    fill(pair, *range(50))
    client, end = a_raw_receiver(pair, credit=50, mode=1)
    assert len(client.deliveries(end)) == 50


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
    payload = build(
        [1, "two", b"3"],
        properties={"message_id": "m"},
        application_properties={"a": 1},
        annotations={"x-a": 1},
    )
    link.send(payload)
    pair.turn()
    _, received = pair.receiver("q")
    assert received.payloads == [payload]
    assert application_properties(received.payloads[0]) == {"a": 1}


def test_the_engine_itself_needs_no_connection_of_ours() -> None:
    """What is used of proton exists: the pinned version is the one this was written for."""
    engine = Engine(
        RawClient(AHost()), is_server=True, max_frame_size=512, channel_max=1, scratch=Scratch()
    )
    engine.free()
    engine.free()
    assert Terminus().kind == 0 and Described("a", 1).value == 1


def a_receiver(talk: Talk, channel: int, window: int, queue: str = "q") -> None:
    """Begin a session with so large a window, and receive a thousand messages on it."""
    talk.say(
        frame(perform(0x11, None, UInt(0), UInt(window), UInt(100)), channel=channel),
        frame(
            perform(
                0x12,
                f"r{channel}",
                UInt(1),
                True,
                None,
                UByte(1),
                Described(ULong(0x28), [queue]),
                Described(ULong(0x29), ["here"]),
            ),
            channel=channel,
        ),
        window_of(channel, window),
    )


def window_of(channel: int, window: int, had: int = 0) -> bytes:
    """A flow that opens a session's window, by what it had of it, and gives a link credit."""
    fields = (UInt(had), UInt(window), UInt(0), UInt(100), UInt(1), UInt(0), UInt(1000))
    return frame(perform(0x13, *fields), channel=channel)


def turn(talk: Talk, times: int) -> None:
    for _ in range(times):
        talk.host.broker.dispatch(talk.host.now)
        talk.answers += frames_in(talk.connection.output())


@pytest.mark.parametrize("is_short", [False, True], ids=["as always", "little memory"])
def test_what_waits_for_windows_is_bounded_for_a_connection_and_not_for_each_session(
    monkeypatch: pytest.MonkeyPatch, is_short: bool
) -> None:
    """Twenty sessions are not read: they hold what one may. A session beside them goes on, and so
    do they when they are read.
    """
    limit = 100_000
    talk = Talk(None, AMQP_HEADER, OPEN)
    broker = talk.host.broker
    if is_short:
        broker.use.peer_share = limit
    else:
        monkeypatch.setattr(outgoing, "TURN_BYTES", limit)
    for name, count in (("q", 3000), ("other", 5)):
        queue, _ = broker.declare_queue(name)
        for _ in range(count):
            queue.enqueue(build("x" * 1000))
    for channel in range(20):
        a_receiver(talk, channel, 0)
    turn(talk, 30)
    waiting = talk.connection.backlog()
    assert limit <= waiting < 2 * limit
    a_receiver(talk, 20, 1000, "other")
    turn(talk, 10)
    assert not broker.queues["other"].available()
    assert sum(answer.code == 0x14 for answer in talk.answers) == 5
    assert talk.connection.backlog() == waiting
    for channel in range(20):
        talk.say(window_of(channel, 1000))
    turn(talk, 100)
    assert not broker.queues["q"].available() and talk.connection.backlog() == 0


def test_faults_b8b_delivery_tags_are_text_that_differs() -> None:
    """proton's Python classes read them as UTF-8."""
    talk = Talk(None, AMQP_HEADER, OPEN, BEGIN, attach("r", 0, receives=True, source=FROM_Q))
    for number in range(300):
        talk.host.broker.queues["q"].enqueue(build(number))
    flow = [UInt(0), UInt(999), UInt(0), UInt(999), UInt(0), UInt(0), UInt(300)]
    answers = talk.say(frame(perform(0x13, *flow)))
    tags = [answer.fields[2].decode("ascii") for answer in answers if answer.code == 0x14]
    assert len(tags) == len({*tags}) == 300


@pytest.mark.parametrize("mode", [MIXED, SETTLED])
@pytest.mark.parametrize("state", [ACCEPTED, REJECTED])
@pytest.mark.parametrize("settled", [True, False])
def test_the_last_message_of_a_queue_that_ends_empty_ends_its_link_alone(
    mode: int, state: int, settled: bool
) -> None:
    host = AHost()
    queue, _ = host.broker.declare_queue("q", arguments={"qpid.lifetime-policy": "delete-if-empty"})
    host.broker.declare_queue("other")
    queue.enqueue(build("last"))
    client = RawClient(host)
    end = client.attach_receiver("q", mode=mode)
    ((delivery, payload),) = client.deliveries(end)
    assert body(payload) == "last"
    if mode == MIXED:
        update(delivery, state)
        if settled:
            settle(delivery)
        client.turn()
    assert client.detached == {"raw-receiver": "amqp:resource-deleted"}
    assert "q" not in host.broker.queues
    # Its session counts it no more, and goes on.
    assert [session.unacked for session in client.server._engine._sessions.values()] == [0]
    client.attach_receiver("other", name="another")
    assert client.close_error is None and not client.server.closed


def test_what_a_connection_had_that_is_gone_comes_back_some_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(returns, "RETURNED_A_TURN", 3)
    pair = a_pair()
    broker = pair.host.broker
    fill(pair, *range(10))
    client = RawClient(pair.host)
    ends = [client.attach_receiver("q", name=f"r{number}", credit=2) for number in range(5)]
    assert [len(client.deliveries(end)) for end in ends] == [2] * 5
    client.server.lost("gone")
    queue = broker.queues["q"]
    for left in (6, 6, 2, 0):
        assert queue.acquired == left
        broker.dispatch(pair.host.now)
    other, end = a_raw_receiver(pair)
    assert [body(payload) for _, payload in other.deliveries(end)] == list(range(10))


# Who gets messages first, and who alone.


def a_receiver_of(name: str, handle: int, **properties: Any) -> bytes:
    fields = [name, UInt(handle), True, None, None, FROM_Q, TARGET, None, None, None, None]
    said = {Symbol(key.replace("_", ":", 1)): value for key, value in properties.items()}
    return frame(perform(0x12, *fields, None, None, said))


def credit_for(handle: int, credit: int = 10) -> bytes:
    numbers = (UInt(0), UInt(1000), UInt(0), UInt(1000), UInt(handle), UInt(0), UInt(credit))
    return frame(perform(0x13, *numbers))


def a_talk(**arguments: Any) -> Talk:
    host = AHost()
    host.broker.declare_queue("q", arguments=arguments)
    return Talk(host, AMQP_HEADER, OPEN, BEGIN)


def test_t_c4_a_flow_says_who_is_active_before_the_first_delivery() -> None:
    talk = a_talk(**{"x-single-active-consumer": True})
    queue = talk.host.broker.queues["q"]
    queue.enqueue(build("m"))
    answers = talk.say(a_receiver_of("a", 0) + credit_for(0))
    assert [answer.code for answer in answers] == [0x12, 0x13, 0x14]
    fields = answers[1].fields
    assert fields[4] == 0 and (fields[5], fields[6]) == (0, 10)
    assert fields[10] == {"rabbitmq:active": True, "qpidha:active": True}
    answers = talk.say(a_receiver_of("b", 1) + credit_for(1))
    assert [answer.code for answer in answers] == [0x12, 0x13]
    fields = answers[1].fields
    assert (fields[4], fields[7]) == (1, 0) and fields[10]["rabbitmq:active"] is False
    assert talk.say(credit_for(1, 20)) == []
    accept = frame(perform(0x15, True, UInt(0), None, True, Described(ULong(0x24), [])))
    answers = talk.say(accept + frame(perform(0x16, UInt(0), True)))
    told = [answer.fields for answer in answers if answer.code == 0x13]
    assert [(fields[4], fields[10]["qpidha:active"]) for fields in told] == [(1, True)]
    queue.enqueue(build("n"))
    assert [answer.code for answer in talk.say(credit_for(1, 20))] == [0x14]


@pytest.mark.parametrize("name", CONSUMER_PRIORITIES)
def test_t_c1_the_priority_is_a_property_of_the_link(name: str) -> None:
    talk = a_talk()
    talk.say(a_receiver_of("a", 0, priority=1) + a_receiver_of("b", 1, **{name: 2}))
    talk.say(credit_for(0) + credit_for(1, 1))
    for content in "mn":
        talk.host.broker.queues["q"].enqueue(build(content))
    answers = talk.say(credit_for(0))
    assert [answer.fields[0] for answer in answers] == [1, 0]


@pytest.mark.parametrize(
    "properties",
    [
        {"priority": "high"},
        {"priority": True},
        {"priority": 2**31},
        {"priority": 1, "x-priority": 2},
        {"qpidha:priority": "high"},
    ],
)
def test_a_priority_that_is_none_is_refused(properties: dict[str, Any]) -> None:
    talk = a_talk()
    answers = talk.say(a_receiver_of("a", 0, **properties))
    assert answers[-1].code == 0x16 and answers[-1].condition


# Fencing tokens.


def tokens_of(answers: list[Any]) -> list[Any]:
    found = [answer.payload for answer in answers if answer.code == 0x14]
    return [delivery_annotations(payload).get(outgoing.FENCING_TOKEN) for payload in found]


@pytest.mark.parametrize("asks", ["the link", "the queue"])
def test_row_14_deliveries_have_rising_fencing_tokens_for_who_asks(asks: str) -> None:
    talk = a_talk(**({"qpidha.fencing_token": True} if asks == "the queue" else {}))
    talk.host.epoch = 3
    said = {"qpidha_fencing-token": True} if asks == "the link" else {}
    queue = talk.host.broker.queues["q"]
    for content in "mn":
        queue.enqueue(build(content, header={"durable": True}, annotations={Symbol("x-a"): 1}))
    (first, second) = tokens_of(talk.say(a_receiver_of("a", 0, **said) + credit_for(0, 3)))
    release = frame(perform(0x15, True, UInt(0), None, True, Described(ULong(0x26), [])))
    answers = talk.say(release)
    (third,) = tokens_of(answers)
    assert [token[0] for token in (first, second, third)] == [3, 3, 3]
    assert first < second < third
    payload = answers[-1].payload
    assert message_annotations(payload)["x-a"] == 1 and header(payload)["durable"]
    assert body(payload) == "m"
    if asks == "the link":
        assert tokens_of(talk.say(a_receiver_of("b", 1) + credit_for(1))) == []
        queue.enqueue(build("o"))
        talk.host.epoch = 4
        assert tokens_of(talk.say(credit_for(1, 20))) == [None]


def test_a_token_has_the_place_of_one_that_was_there() -> None:
    old = outgoing._with_token(build("m"), (1, 1))
    assert delivery_annotations(outgoing._with_token(old, (2, 1))) == {
        outgoing.FENCING_TOKEN: [2, 1]
    }
    assert outgoing._with_token(b"x", (1, 1)) == b"x"


def test_a_broker_alone_gives_no_tokens() -> None:
    talk = a_talk()
    talk.host.epoch = 0
    answers = talk.say(a_receiver_of("a", 0, **{"qpidha_fencing-token": True}))
    assert answers[-1].condition == "amqp:precondition-failed"


def test_a_wish_for_tokens_that_is_none_is_refused() -> None:
    answers = a_talk().say(a_receiver_of("a", 0, **{"qpidha_fencing-token": 1}))
    assert answers[-1].condition == "amqp:invalid-field"


# Who may be there.


def test_receivers_of_a_queue_that_is_browsed_only_take_nothing() -> None:
    talk = a_talk(**{"qpid.browse-only": True})
    queue = talk.host.broker.queues["q"]
    queue.enqueue(build("m"))
    accept = frame(perform(0x15, True, UInt(0), None, True, Described(ULong(0x24), [])))
    for handle, name in enumerate("ab"):
        answers = talk.say(a_receiver_of(name, handle) + credit_for(handle))
        assert [answer.code for answer in answers] == [0x12, 0x14]
        assert answers[0].fields[5].value[6] == "copy"
        talk.say(accept)
    assert len(queue.messages) == 1 and not queue.acquired


def test_a_queue_has_no_more_consumers_than_it_may() -> None:
    talk = a_talk(**{"max-consumers": 2})
    talk.say(a_receiver_of("a", 0) + a_receiver_of("b", 1))
    answers = talk.say(a_receiver_of("c", 2))
    assert answers[-1].condition == "amqp:resource-limit-exceeded"
    talk.say(frame(perform(0x16, UInt(0), True)))
    assert [answer.code for answer in talk.say(a_receiver_of("d", 3))] == [0x12]


def test_a_receiver_may_be_the_only_one() -> None:
    talk = a_talk()
    alone = {"qpidha_exclusive": True}
    assert [answer.code for answer in talk.say(a_receiver_of("a", 0, **alone))] == [0x12]
    assert talk.say(a_receiver_of("b", 1))[-1].condition == "amqp:resource-locked"
    talk.say(frame(perform(0x16, UInt(0), True)))
    assert [answer.code for answer in talk.say(a_receiver_of("c", 2))] == [0x12]
    assert talk.say(a_receiver_of("d", 3, **alone))[-1].condition == "amqp:resource-locked"


def test_what_the_engine_has_sent_is_not_taken_for_new_credit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It makes an event of a transfer as of a flow; with a queue for each message that would cost a
    dispatch of each.
    """
    pair = a_pair()
    client = RawClient(pair.host)
    names = [f"q{number}" for number in range(20)]
    for name in names:
        pair.host.broker.declare_queue(name)
    ends = [client.attach_receiver(name, name=name, credit=10) for name in names]
    dispatched: list[str] = []
    dispatch = Queue.dispatch

    def counted(queue: Queue, now: int) -> None:
        dispatched.append(queue.name)
        dispatch(queue, now)

    monkeypatch.setattr(Queue, "dispatch", counted)
    for name in names:
        pair.host.broker.queues[name].enqueue(build("m"))
    client.turn()
    for end in ends:
        ((delivery, _),) = client.deliveries(end)
        client.accept(delivery)
    client.turn()
    assert dispatched == names
    ends[3].flow(5)
    pair.host.broker.queues["q3"].enqueue(build("m"))
    client.turn()
    assert dispatched == [*names, "q3"] and len(client.deliveries(ends[3])) == 1
