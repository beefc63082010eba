"""Pills: one connection with one transfer or attach that would end a broker, and then each of its
backups as the client reconnects.

The frames are whole and legal; what is odd is a type inside of a section, or when a delivery is
aborted. Each costs its own connection at most, and often only the message or the link. What nobody
has thought of yet ends its connection too, unless it went through the state of the broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.broker.queues.queue import Queue
from qpidha.model.effects import Announce, Disconnect, SendBytes, SendParts
from qpidha.model.encoding import Described, Symbol, UInt, ULong, encode
from qpidha.model.errors import InvariantBroken
from qpidha.model.events import (
    BytesReceived,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Tick,
)
from qpidha.model.message_view import build
from tests.amqp.builders import a_node
from tests.amqp.wire import BEGIN, CLOSE, OPEN, attach, frame, frames_in, perform

COORDINATOR = Described(ULong(0x30), [Symbol("amqp:local-transactions")])
LONG, SURROGATE = b"\x81" + b"\xff" * 8, b"\x73\x00\x00\xd8\x00"
"""The long -1, and a char that is half of a surrogate pair."""
NULL = b"\x40"
VALUE = b"\0\x53\x77" + NULL


def target(address: Any) -> Described:
    return Described(ULong(0x29), [address])


def listed(code: int, *fields: bytes) -> bytes:
    """A described list of what is encoded already, right or wrong."""
    body = b"".join(fields)
    size = (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big")
    return b"\0\x53" + bytes([code]) + b"\xd0" + size + body


def properties(to: bytes = NULL, reply_to: bytes = NULL, correlation_id: bytes = NULL) -> bytes:
    return listed(0x73, NULL, NULL, to, NULL, reply_to, correlation_id)


def transfer(
    payload: bytes, number: int = 0, *, settled: bool = False, more: bool = False, end: bool = False
) -> bytes:
    """Of a message, or of a part of one; `end` aborts it."""
    fields = [UInt(0), UInt(number), b"t%d" % number, UInt(0), settled, more, None, None, None, end]
    return frame(perform(0x14, *fields) + payload)


PING = encode(Described(ULong(0x74), {"operation": "ping"})) + VALUE
SEQUENCE, DATA = b"\0\x53\x76U\x01", b"\0\x53\x75U\x01"
"""Sections of a body with the number 1 in them, in place of a list and of bytes."""
PART = b"\0\x53\x75\xa0\x03abc"
SETTLED = frame(perform(0x15, False, UInt(4), None, True, Described(ULong(0x24), [])))


def sent(address: Any, payload: bytes) -> list[bytes]:
    return [attach("s", 0, target=address), transfer(payload)]


LINK_FLOW = [UInt(0), UInt(9), UInt(0), UInt(9), UInt(0)]
PILLS = {
    "a sequence that is none, to a coordinator": sent(COORDINATOR, SEQUENCE),
    "data that is none, to a coordinator": sent(COORDINATOR, DATA),
    "data and then a sequence, to a coordinator": sent(
        COORDINATOR, PART + b"\0\x53\x76" + encode([1])
    ),
    "a sequence that is none, to $management": sent(target("$management"), SEQUENCE),
    "data that is none, to $management": sent(target("$management"), DATA),
    "a sequence that is none, to /management": sent(target("/management"), SEQUENCE),
    "a negative correlation-id": sent(
        target("$management"), properties(reply_to=encode("q"), correlation_id=LONG) + PING
    ),
    "a negative message-id": sent(
        target("$management"), listed(0x73, LONG, NULL, NULL, NULL, encode("q")) + PING
    ),
    "half a character to reply to": sent(
        target("$management"), properties(reply_to=SURROGATE) + PING
    ),
    "half a character to send to": sent(target(None), properties(to=SURROGATE) + VALUE),
    "half a character for an address": [
        frame(
            listed(
                0x12,
                encode("s"),
                encode(UInt(0)),
                encode(False),
                NULL,
                NULL,
                listed(0x28),
                listed(0x29, SURROGATE),
                NULL,
                NULL,
                encode(UInt(0)),
            )
        )
    ],
    "half a character for outcomes": [
        frame(
            listed(
                0x12,
                encode("s"),
                encode(UInt(0)),
                encode(True),
                NULL,
                NULL,
                listed(0x28, encode("amq.topic"), *[NULL] * 8, SURROGATE),
                listed(0x29, encode("me")),
            )
        )
    ],
    "the answer to a flow with more received than sent": [
        attach("r", 0, receives=True, source=Described(ULong(0x28), ["q"])),
        frame(perform(0x13, *LINK_FLOW, UInt(2**31 + 5), UInt(0), None, None, True)),
        frame(perform(0x13, *LINK_FLOW, UInt(9), UInt(2**31 - 1), None, None, True)),
        frame(perform(0x13, *LINK_FLOW, UInt(900), UInt(0), None, None, True)),
    ],
    "an aborted delivery before one that has begun": [
        attach("s", 0, target=target("q")),
        transfer(PART, 4, settled=True, more=True, end=True)
        + transfer(b"", 5, more=True)
        + SETTLED,
        transfer(PART, 5),
    ],
}


class Broker:
    """A node that strangers talk to."""

    def __init__(self) -> None:
        self.node = a_node()
        self.node.start(1)
        self.node.broker.declare_queue("q")
        self.said: list[Announce] = []
        self._last = 0

    def talk(self, *chunks: bytes) -> tuple[bytes, bool]:
        """Open a connection and say that; give the answer, and whether the broker hung up."""
        self._last += 2
        events = [ConnectionOpened(self._last, "h:9", ConnectionKind.CLIENT)]
        effects = self.node.step(events, 1)
        for chunk in (AMQP_HEADER + OPEN + BEGIN, *chunks):
            effects = [*effects, *self.node.step([BytesReceived(self._last, chunk)], 1)]
        self.said += [effect for effect in effects if isinstance(effect, Announce)]
        answer = b"".join(
            effect.data for effect in effects if isinstance(effect, SendBytes | SendParts)
        )
        return answer, any(isinstance(effect, Disconnect) for effect in effects)

    def serve(self) -> None:
        """A client like any other is served."""
        queue = self.node.broker.queues["q"]
        before = len(queue.messages)
        answer, _ = self.talk(attach("s", 0, target=target("q")), transfer(build("m")), CLOSE)
        assert len(queue.messages) == before + 1
        assert frames_in(answer[8:])[-1].code == 0x18


@pytest.mark.parametrize("pill", PILLS)
def test_faults_b1_a_pill_ends_its_connection_at_most(pill: str) -> None:
    broker = Broker()
    broker.talk(*PILLS[pill])
    broker.node.step([ConnectionLost(2, "gone")], 1)
    broker.serve()
    assert not broker.node.internal_errors, broker.said


def test_faults_b1_what_follows_an_aborted_delivery_is_taken() -> None:
    broker = Broker()
    broker.talk(*PILLS["an aborted delivery before one that has begun"])
    assert [message.body() for message in broker.node.broker.queues["q"].messages.values()] == [
        PART
    ]


class Slip:
    """A service with a mistake of ours in it."""

    def attached(self, link: Any) -> None: ...
    def detached(self, link: Any) -> None: ...
    def credited(self, link: Any) -> None: ...

    def received(self, link: Any, payload: bytes) -> None:
        raise KeyError("a slip of ours")


def test_code_d10_a_slip_of_ours_ends_the_connection_that_met_it() -> None:
    broker = Broker()
    broker.node.services["$management"] = Slip()
    answer, has_ended = broker.talk(*sent(target("$management"), PING))
    close = frames_in(answer[8:])[-1]
    assert has_ended and (close.code, close.condition) == (0x18, "amqp:internal-error")
    assert "slip" not in str(close.fields)
    (line,) = [each for each in broker.said if each.level == "error"]
    assert "h:9" in line.text and "KeyError: 'a slip of ours'" in line.text
    assert f"{__name__}:" in line.text and " received" in line.text and "\n" not in line.text
    assert broker.node.internal_errors == broker.node.status()["internal_errors"] == 1
    broker.serve()


def test_code_d10_a_slip_in_a_tick_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    broker.talk()
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "tick", lambda connection, now: {}[now])
        effects = broker.node.step([Tick()], 10**12)
    assert any(isinstance(effect, Disconnect) for effect in effects)
    assert broker.node.internal_errors == 1
    broker.serve()


def test_code_d10_a_slip_in_output_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are no last words, for those are output as well."""
    broker = Broker()
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "output_parts", lambda connection: {}["a slip of ours"])
        answer, has_ended = broker.talk()
    assert has_ended and not answer and 2 not in broker.node.streams.by_id
    assert broker.node.internal_errors == 2
    broker.serve()


@pytest.mark.parametrize(
    ("error", "stops"), [(KeyError("a slip of ours"), False), (InvariantBroken("a rule"), True)]
)
def test_code_d10_a_slip_in_the_state_of_the_broker_stops_it(
    error: Exception, stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be half changed, and that must not go to others."""
    broker = Broker()

    def insert(queue: Queue, payload: bytes, expires: int) -> None:
        raise error

    monkeypatch.setattr(Queue, "insert_local", insert)
    pill = sent(target("q"), build("m"))
    if stops:
        broker.talk(*pill)
        assert broker.node.broken
    else:
        with pytest.raises(KeyError):
            broker.talk(*pill)
    assert not broker.node.internal_errors
