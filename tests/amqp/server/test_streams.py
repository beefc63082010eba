"""Streams: who is listened to, and what is put off while a broker hands over to another."""

from __future__ import annotations

from qpidha.amqp.peer.engine import Engine
from qpidha.amqp.peer.links import Scratch
from qpidha.amqp.peer.sasl import Users
from qpidha.model.effects import Disconnect, SendBytes
from qpidha.model.events import (
    BytesReceived,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
    Tick,
)
from qpidha.model.settings import Settings
from qpidha.node import Node

SECOND = 1_000_000_000


class Client:
    """A client with a heartbeat of one second, at a broker alone."""

    def __init__(self) -> None:
        self.now = SECOND
        self.error: object = None
        self.node = Node(
            Settings(),
            system_id="x",
            users=Users.parse(""),
            state=b"",
            address="h:1",
            make_uuid=lambda: "u",
        )
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
            if isinstance(effect, SendBytes):
                self.engine.push(effect.data)
            self.ended = self.ended or isinstance(effect, Disconnect)

    def talk(self) -> None:
        data = self.engine.pull()
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
