"""Frames made by hand, and a broker's connection that is spoken to in them."""

from __future__ import annotations

from typing import Any, NamedTuple

from qpidha.amqp.peer.connection import Connection
from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.amqp.server.served_connection import ServedConnection
from qpidha.model.encoding import Described, UInt, ULong, decode, encode
from qpidha.model.events import ConnectionKind
from qpidha.model.message_view import build
from tests.amqp.builders import AHost


def frame(performative: bytes, *, channel: int = 0, kind: int = 0) -> bytes:
    return (
        (len(performative) + 8).to_bytes(4, "big")
        + bytes((2, kind))
        + channel.to_bytes(2, "big")
        + performative
    )


def perform(code: int, *fields: Any) -> bytes:
    return encode(Described(ULong(code), list(fields)))


OPEN = frame(perform(0x10, "hostile"))
BEGIN = frame(perform(0x11, None, UInt(0), UInt(100), UInt(100)))
SOURCE, TARGET = Described(ULong(0x28), ["s"]), Described(ULong(0x29), ["q"])


def attach(
    name: str, handle: int, *, receives: bool = False, source: Any = SOURCE, target: Any = TARGET
) -> bytes:
    count = None if receives else UInt(0)
    return frame(
        perform(0x12, name, UInt(handle), receives, None, None, source, target, None, None, count)
    )


ATTACH = attach("s", 0)
TRANSFER = frame(perform(0x14, UInt(0), UInt(0), b"t", UInt(0), False) + build("m"))
CLOSE = frame(perform(0x18))
GOOD = [AMQP_HEADER, OPEN, BEGIN, ATTACH, TRANSFER]


def a_host(**settings: Any) -> AHost:
    host = AHost(**settings)
    host.broker.declare_queue("q")
    return host


class Frame(NamedTuple):
    """A frame of the broker's."""

    channel: int
    code: int
    fields: list[Any]
    payload: bytes

    @property
    def condition(self) -> str:
        """Of a detach, end or close, empty if there is no error."""
        error = (self.fields + [None] * 3)[2 if self.code == 0x16 else 0]
        return str(error.value[0]) if error is not None else ""


def frames_in(data: bytes) -> list[Frame]:
    found = []
    while data:
        size, channel = int.from_bytes(data[:4], "big"), int.from_bytes(data[6:8], "big")
        if size > 8:
            performative, end = decode(data[:size], 8)
            code, fields = int(performative.descriptor), performative.value
            found.append(Frame(channel, code, fields, data[end:size]))
        data = data[size:]
    return found


def told(answers: list[Frame]) -> list[tuple[int, str]]:
    """What ended, and why."""
    return [(answer.code, answer.condition) for answer in answers if answer.code >= 0x16]


class Talk:
    """A connection of a broker, of which the bytes are the test's own."""

    def __init__(self, host: AHost | None = None, *chunks: bytes) -> None:
        self.host = host or a_host()
        self.connection: Connection = ServedConnection(
            7, self.host, kind=ConnectionKind.CLIENT, peer="hostile"
        ).connection
        self.answers: list[Frame] = []
        self._greeted = False
        for chunk in chunks:
            self.say(chunk)

    def say(self, *chunks: bytes) -> list[Frame]:
        """Send bytes, each in a read of its own; give the frames of the answer."""
        data = b""
        for chunk in chunks:
            self.connection.receive(chunk)
            self.host.broker.dispatch(self.host.now)
            data += self.connection.output()
        if data and not self._greeted:
            assert data.startswith(AMQP_HEADER)
            self._greeted, data = True, data[8:]
        answers = frames_in(data)
        self.answers += answers
        return answers

    @property
    def messages(self) -> int:
        return len(self.host.broker.queues["q"].messages)
