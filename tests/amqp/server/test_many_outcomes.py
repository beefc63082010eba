"""Dispositions of many deliveries: a few bytes must not keep the broker busy for long."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.server.outgoing import OutgoingLink
from qpidha.model.encoding import Described, UInt, ULong
from qpidha.model.message_view import build
from tests.amqp.server.test_rare_frames import (
    ACCEPTED,
    FROM_Q,
    HEADER,
    OPEN,
    PLAIN_BEGIN,
    a_delaying_host,
    disposition,
)
from tests.amqp.wire import Talk, attach, frame, perform

DELIVERIES, FRAMES = 5000, 500
WIDE = UInt(100_000)


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
    talk.say(frame(perform(0x13, UInt(0), WIDE, UInt(0), WIDE, UInt(0), UInt(0), WIDE)))
    assert len([one for one in talk.answers if one.code == 0x14]) == DELIVERIES
    return talk


@pytest.mark.parametrize("state", [None, Described(ULong(0x23), [UInt(0), ULong(0)])])
def test_a_disposition_that_changes_nothing_is_not_looked_at_for_each_delivery(
    talk: Talk, counted: list[int], state: Any
) -> None:
    talk.say(disposition(0, DELIVERIES - 1, state, settled=False) * FRAMES)
    assert sum(counted) < 20_000
    assert not talk.connection.closed
    talk.say(disposition(0, DELIVERIES - 1, Described(ULong(ACCEPTED), [])))
    assert not talk.messages


def test_ranges_of_deliveries_are_handed_out_as_they_come(talk: Talk, counted: list[int]) -> None:
    accepted = Described(ULong(ACCEPTED), [])
    talk.say(disposition(0, DELIVERIES - 1, accepted, settled=False) * 50)
    assert max(counted) < 20_000
    assert not talk.connection.closed
