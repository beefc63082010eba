"""Streams: who is listened to, and what is put off while a broker hands over to another."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import pytest

from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.peer.links import Scratch
from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.amqp.server import streams
from qpidha.model.duration import MILLISECOND
from qpidha.model.effects import Disconnect, SendBytes, SendParts
from qpidha.model.encoding import Described, Symbol, UInt, ULong
from qpidha.model.events import (
    BytesReceived,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
    Tick,
)
from qpidha.node import Node
from tests.amqp.builders import a_node
from tests.amqp.wire import BEGIN, CLOSE, OPEN, attach, frame, perform

SECOND = 1_000_000_000
COORDINATOR = Described(ULong(0x30), [Symbol("amqp:local-transactions")])
MANAGEMENT = Described(ULong(0x29), ["$management"])
PART = frame(perform(0x14, UInt(0), UInt(0), b"t", UInt(0), False, True) + b"\0\x53\x75")
BUSY = [
    AMQP_HEADER + OPEN + BEGIN,
    attach("s", 0) + attach("r", 1, receives=True, source=Described(ULong(0x28), ["q"])),
    attach("t", 2, target=COORDINATOR) + attach("m", 3, target=MANAGEMENT),
    frame(perform(0x13, None, UInt(0), UInt(9), UInt(9), UInt(1), None, UInt(5))),
    PART,
]
"""A connection with links of every kind, of which one is in the middle of a message."""


class Client:
    """A client with a heartbeat of one second, at a broker alone."""

    def __init__(self) -> None:
        self.now = SECOND
        self.error: object = None
        self.node = a_node()
        self.node.start(self.now)
        self.engine = Engine(
            self, is_server=False, max_frame_size=65536, channel_max=10, scratch=Scratch()
        )
        self.engine.set_idle_timeout(2000)
        self.engine.open("c", {})
        self.engine.tick(1000)
        self.ended = False
        self.happens(ConnectionOpened(2, "p", ConnectionKind.CLIENT, "", False))
        for _ in range(4):
            self.talk()

    def peer_opened(self) -> None: ...
    def peer_closed(self, error: object) -> None:
        self.error = error

    def wake(self) -> None: ...

    def happens(self, *events: Event) -> None:
        for effect in self.node.step(list(events), self.now):
            if isinstance(effect, SendBytes | SendParts):
                self.engine.push(effect.data)
            self.ended = self.ended or isinstance(effect, Disconnect)

    def talk(self) -> None:
        data = b"".join(self.engine.pull())
        self.happens(*([BytesReceived(2, data)] if data else []), Tick())

    def live(self, seconds: float) -> None:
        for _ in range(int(seconds * 4)):
            self.now += SECOND // 4
            self.engine.tick(self.now // 1_000_000)
            self.talk()


def test_a_client_whose_bytes_wait_is_not_taken_for_dead_and_gets_heartbeats() -> None:
    client = Client()
    client.node.freeze(True)
    client.live(10)
    assert client.node.streams.frozen
    client.node.freeze(False)
    client.live(10)
    assert not client.ended and client.error is None


def test_a_client_that_is_silent_after_a_freeze_is_given_up_as_before() -> None:
    client = Client()
    client.node.freeze(True)
    client.live(1)
    client.node.freeze(False)
    for _ in range(40):
        client.now += SECOND // 4
        client.happens(Tick())
    assert client.ended


def test_the_end_of_a_client_that_is_not_listened_to_is_put_off_with_what_it_sent_before() -> None:
    client = Client()
    client.node.freeze(True)
    client.live(1)
    client.happens(ConnectionLost(2, "gone"))
    assert 2 in client.node.streams.by_id
    client.node.freeze(False)
    assert 2 not in client.node.streams.by_id


def test_what_was_put_off_is_heard_in_several_turns_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 MB of it took seconds, in which no other broker was heard."""
    monkeypatch.setattr(streams, "HEARD_BYTES", 20_000)
    node = started()
    heard: dict[int, list[bytes]] = {}
    for number in (2, 4):
        node.step([ConnectionOpened(number, "h:9", ConnectionKind.CLIENT)], SECOND)
        node.step([BytesReceived(number, AMQP_HEADER + OPEN + BEGIN)], SECOND)
        heard[number] = []
    monkeypatch.setattr(
        Connection, "receive", lambda one, data: heard[one.connection_id].append(data)
    )
    node.freeze(True)
    sent = [b"%03d" % turn * 300 for turn in range(100)]
    for data in sent[:98]:
        node.step([BytesReceived(2, data), BytesReceived(4, data)], SECOND)
    assert heard == {2: [], 4: []}
    node.freeze(False)
    turns = 0
    while node.streams.is_behind:
        count = len(heard[2])
        # What comes now stands behind; another freeze keeps the rest.
        more = [BytesReceived(2, sent[98 + turns])] if turns < 2 else []
        if turns == 1:
            node.freeze(True)
            node.step([], SECOND)
            assert len(heard[2]) == count
            node.freeze(False)
        node.step(more, SECOND)
        assert len(heard[2]) - count < 25
        assert (node.next_deadline == SECOND) == node.streams.is_behind
        turns += 1
    assert turns > 5
    assert heard == {2: sent, 4: sent[:98]}
    node.step([BytesReceived(2, b"next")], SECOND)
    assert heard[2][-1] == b"next"


def test_a_client_whose_words_are_still_to_be_heard_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "HEARD_BYTES", 1)
    client = Client()
    client.node.freeze(True)
    client.live(10)
    client.node.freeze(False)
    client.live(20)
    assert not client.ended and client.error is None


def started(**settings: Any) -> Node:
    node = a_node(**settings)
    node.start(SECOND)
    node.broker.declare_queue("q")
    return node


def test_code_d3_only_connections_that_are_due_are_ticked(monkeypatch: pytest.MonkeyPatch) -> None:
    node = started(link_heartbeat_interval=0)
    for number in range(2, 42, 2):
        node.step([ConnectionOpened(number, "h:9", ConnectionKind.CLIENT)], SECOND)
        if number < 40:  # The last one opens nothing, and has until max-negotiate-time.
            node.step([BytesReceived(number, AMQP_HEADER + OPEN)], SECOND)
    ticked = []
    tick = Connection.tick
    monkeypatch.setattr(
        Connection, "tick", lambda one, now: (ticked.append(one.connection_id), tick(one, now))[1]
    )
    node.step([Tick()], 5 * SECOND)
    assert not ticked
    node.step([Tick()], 11 * SECOND)
    assert ticked == [40]


def test_code_d3_heartbeats_that_are_due_at_nearly_the_same_time_share_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = started(link_heartbeat_interval=10 * SECOND)
    for number in range(2, 42, 2):
        now = SECOND + number * MILLISECOND
        node.step([ConnectionOpened(number, "h:9", ConnectionKind.CLIENT)], now)
        node.step([BytesReceived(number, AMQP_HEADER + OPEN)], now)
    turns: list[list[int]] = []
    tick = Connection.tick
    monkeypatch.setattr(
        Connection,
        "tick",
        lambda one, now: (turns[-1].append(one.connection_id), tick(one, now))[1],
    )
    while sum(map(len, turns)) < 20:
        assert 0 < node.next_deadline <= 30 * SECOND
        turns.append([])
        node.step([Tick()], node.next_deadline)
    assert len([turn for turn in turns if turn]) <= 2


ENDS = {
    "it closes": CLOSE,
    "it is gone": b"",
    "its session ends": frame(perform(0x17)) + CLOSE,
    "its session is ended": frame(perform(0x13)) + CLOSE,
    "it is ended": frame(perform(0x99)),
    "its bytes are no frames": b"\x00\x00\x00\x01\x02\x00\x00\x00",
    "its delivery cannot be taken": frame(perform(0x14, UInt(0), UInt(7), b"u", UInt(0))) + CLOSE,
}


def ours() -> Counter[str]:
    """Count the objects of our classes that are alive."""
    found = [type(one) for one in gc.get_objects()]
    return Counter(kind.__name__ for kind in found if str(kind.__module__).startswith("qpidha."))


@pytest.mark.parametrize("end", ENDS)
def test_code_d2_what_a_connection_was_made_of_is_freed_without_a_collection(end: str) -> None:
    node = started()

    def come_and_go(number: int) -> None:
        node.step([ConnectionOpened(number, "h:9", ConnectionKind.CLIENT)], SECOND)
        for data in (*BUSY, ENDS[end]):
            node.step([BytesReceived(number, data)], SECOND)
        node.step([ConnectionLost(number, "gone")], SECOND)

    come_and_go(2)
    gc.collect()
    gc.disable()
    try:
        before = ours()
        for number in range(4, 12, 2):
            come_and_go(number)
        assert ours() - before == Counter()
    finally:
        gc.enable()
    assert not node.streams.by_id
