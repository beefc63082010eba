"""Dispositions of many deliveries: a few bytes must not keep the broker busy for long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qpidha.amqp.peer.engine import PUT_OFF, Engine
from qpidha.amqp.server.incoming import IncomingLink
from qpidha.amqp.server.outgoing import OutgoingLink
from qpidha.model.effects import SendBytes, SendParts
from qpidha.model.encoding import Described, Symbol, UInt, ULong
from qpidha.model.events import BytesReceived, ConnectionKind, ConnectionLost, ConnectionOpened
from qpidha.model.message_view import build
from qpidha.model.principal import Role
from qpidha.node import Node
from tests.amqp.builders import a_node
from tests.amqp.server.test_rare_frames import (
    ACCEPTED,
    FROM_Q,
    HEADER,
    OPEN,
    PLAIN_BEGIN,
    a_delaying_host,
    disposition,
)
from tests.amqp.wire import Talk, attach, frame, frames_in, perform, told

DELIVERIES, FRAMES = 5000, 500
NOW = 1_000_000_000
ACCEPT = Described(ULong(ACCEPTED), [])
WIDE = UInt(100_000)
CREDIT = frame(perform(0x13, UInt(0), WIDE, UInt(0), WIDE, UInt(0), UInt(0), WIDE))
ECHO = frame(perform(0x13, UInt(0), WIDE, UInt(0), WIDE, None, None, None, None, None, True))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a consumer hears of a delivery, for each time that events are handed out."""
    rounds = [0]
    changed, hand_out = OutgoingLink.delivery_changed, Engine.hand_out

    def count(link: OutgoingLink, delivery: Any) -> None:
        rounds[-1] += 1
        changed(link, delivery)

    def begin(engine: Engine) -> None:
        rounds.append(0)
        hand_out(engine)

    monkeypatch.setattr(OutgoingLink, "delivery_changed", count)
    monkeypatch.setattr(Engine, "hand_out", begin)
    return rounds


@pytest.fixture
def talk() -> Talk:
    """A consumer that has many messages and settled none."""
    host = a_delaying_host()
    for number in range(DELIVERIES):
        host.broker.queues["q"].enqueue(build(number))
    talk = Talk(host, HEADER, OPEN, PLAIN_BEGIN, attach("r", 0, receives=True, source=FROM_Q))
    talk.say(CREDIT)
    assert len([one for one in talk.answers if one.code == 0x14]) == DELIVERIES
    return talk


@pytest.mark.parametrize("state", [None, Described(ULong(0x23), [UInt(0), ULong(0)])])
def test_a_disposition_that_changes_nothing_is_not_looked_at_for_each_delivery(
    talk: Talk, counted: list[int], state: Any
) -> None:
    talk.say(disposition(0, DELIVERIES - 1, state, settled=False) * FRAMES)
    assert sum(counted) < 20_000
    assert not talk.connection.closed
    talk.say(disposition(0, DELIVERIES - 1, ACCEPT))
    assert not talk.messages


def test_ranges_of_deliveries_are_handed_out_as_they_come(talk: Talk, counted: list[int]) -> None:
    talk.say(disposition(0, DELIVERIES - 1, ACCEPT, settled=False) * 50)
    assert max(counted) < 20_000


def test_a_state_that_is_told_over_and_over_waits_for_other_turns(
    talk: Talk, counted: list[int]
) -> None:
    said = disposition(0, DELIVERIES - 1, ACCEPT, settled=False) * FRAMES
    assert talk.say(said[:-7]) == []
    assert sum(counted) < 40_000 and talk.connection.goes_on and not talk.messages
    answers, turns = talk.say(said[-7:] + ECHO), 1
    while talk.connection.goes_on:
        assert answers == []
        del counted[1:]
        answers = talk.say(b"")
        assert sum(counted) < 40_000
        turns += 1
        if turns == 5:  # Its deliveries are settled then, and cost nothing more.
            talk.host.release_all()
            answers = [one for one in talk.say(b"") if one.code != 0x15]
    assert 5 < turns < FRAMES
    assert [one.code for one in answers] == [0x13]


def annotated(size: int) -> Described:
    """Tell that a delivery failed, and have so many bytes put beside the message."""
    return Described(ULong(0x27), [True, False, {Symbol("x-opt-why"): "a" * size}])


@pytest.mark.parametrize("state", [annotated(60_000), annotated(1500)])
def test_a_disposition_cannot_put_much_beside_thousands_of_messages(
    talk: Talk, state: Described
) -> None:
    answers = talk.say(disposition(0, DELIVERIES - 1, state))
    assert told(answers) == [(0x17, "amqp:invalid-field")]
    queue = talk.host.broker.queues["q"]
    assert not any(message.annotations for message in queue.messages.values())


def test_what_is_put_beside_messages_costs_turns_by_its_length(
    talk: Talk, counted: list[int]
) -> None:
    said = b"".join(disposition(number, None, annotated(60_000)) for number in range(50))
    talk.connection.receive(said)
    assert 0 < sum(counted) < 20 and talk.connection.goes_on
    while talk.connection.goes_on:
        talk.connection.receive(b"")
    assert sum(counted) == 50


def test_who_tells_states_without_end_is_hung_up_on(talk: Talk) -> None:
    said = disposition(0, DELIVERIES - 1, ACCEPT, settled=False)
    talk.say(said * (PUT_OFF // len(said) // 2))
    assert told(talk.say(said * (PUT_OFF // len(said)))) == [(0x18, "amqp:resource-limit-exceeded")]


def test_a_broker_goes_on_in_its_next_turns_with_what_was_put_off() -> None:
    node, now = a_node(), NOW
    node.start(now)
    queue, _ = node.broker.declare_queue("q")
    for number in range(DELIVERIES):
        queue.enqueue(build(number))
    node.step([ConnectionOpened(2, "p", ConnectionKind.CLIENT, "", False)], now)
    first = HEADER + OPEN + PLAIN_BEGIN + attach("r", 0, receives=True, source=FROM_Q) + CREDIT
    node.step([BytesReceived(2, first)], now)
    said = disposition(0, DELIVERIES - 1, ACCEPT, settled=False) * 20
    node.step([BytesReceived(2, said + ECHO)], now)
    turns = 0
    while node.streams.late:
        assert node.next_deadline == now
        effects = node.step([], now)
        turns += 1
    [last] = [effect for effect in effects if isinstance(effect, SendBytes | SendParts)]
    assert turns > 1 and frames_in(last.data)[-1].code == 0x13
    assert not queue.messages


WIDE_RANGE = disposition(0, 2**30, ACCEPT)
ONE_MESSAGE = frame(perform(0x14, UInt(1), UInt(0), b"t", UInt(0), True) + build("m"))


def a_node_that_is_behind(behind: bytes) -> Node:
    """A broker with a client that told the states of many deliveries, and then more."""
    node = a_node()
    node.start(NOW)
    node.broker.declare_queue("q")
    node.step([ConnectionOpened(2, "p", ConnectionKind.CLIENT, "", False)], NOW)
    links = attach("r", 0, receives=True, source=FROM_Q) + attach("s", 1)
    node.step([BytesReceived(2, HEADER + OPEN + PLAIN_BEGIN + links)], NOW)
    node.step([BytesReceived(2, WIDE_RANGE * 20 + behind)], NOW)
    assert node.streams.late
    return node


def test_all_that_was_put_off_is_heard_if_the_stream_ends() -> None:
    node = a_node_that_is_behind(ONE_MESSAGE)
    node.step([ConnectionLost(2, "reset")], NOW)
    turns = 0
    while node.streams.late:
        assert not node.broker.queues["q"].messages and node.next_deadline == NOW
        node.step([], NOW)
        turns += 1
    assert turns > 5 and len(node.broker.queues["q"].messages) == 1
    assert not node.streams.by_id and not node.stopping


def test_what_is_put_off_behind_the_end_of_a_hand_over_is_heard_as_well() -> None:
    node = a_node_that_is_behind(ONE_MESSAGE)
    node.freeze(True)
    node.step([ConnectionLost(2, "reset")], NOW)
    assert node.streams.late and node.next_deadline != NOW
    node.freeze(False)
    while node.streams.late:
        node.step([], NOW)
    assert len(node.broker.queues["q"].messages) == 1 and not node.streams.by_id


def test_a_mistake_with_what_was_put_off_ends_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    node = a_node_that_is_behind(ONE_MESSAGE)

    def fail(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(IncomingLink, "delivery_changed", fail)
    node.step([ConnectionLost(2, "reset")], NOW)
    while node.streams.is_behind:
        node.step([], NOW)
    assert node.internal_errors == 1 and not node.stopping and not node.streams.by_id


def test_an_administrator_goes_on_while_another_broker_is_to_be_primary() -> None:
    node = a_node_that_is_behind(ONE_MESSAGE)
    connection = node.streams.by_id[2]
    connection.principal = replace(connection.principal, roles=frozenset((Role.ADMINISTRATOR,)))
    node.freeze(True)
    node.step([], NOW)
    assert node.next_deadline == NOW
    while node.streams.late:
        node.step([], NOW)
    assert node.streams.frozen and len(node.broker.queues["q"].messages) == 1


def test_messages_that_stream_in_behind_many_states_are_no_reason_to_hang_up(talk: Talk) -> None:
    """A client of 20 sessions, at as much in a turn as a stream with TLS gives."""
    talk.say(attach("s", 1))
    states = WIDE_RANGE * 20
    sent = [
        frame(
            perform(0x14, UInt(1), UInt(number), b"t%d" % number, UInt(0), True)
            + build("m" * 60_000)
        )
        for number in range(40)
    ]
    talk.say(states)
    for start in range(0, len(sent), 4):
        talk.say(b"".join(sent[start : start + 4]))
    while talk.connection.goes_on:
        talk.say(b"")
    assert not talk.connection.closed and talk.messages == len(sent)
