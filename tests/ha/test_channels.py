"""Channels: brokers speak over a connection while both of its links are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.amqp.peer import service_link
from qpidha.ha.channels import DATA_SECTION, Channels, identify
from qpidha.ha.wire import Confirm, Message, encode
from qpidha.model.errors import LimitExceeded, ProtocolViolation
from tests.amqp.builders import Pair


class Ends:
    """One connection, the two links of a channel on it, and what came of them."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.heard: list[tuple[int, Message]] = []
        self.closed: list[object] = []
        self.sent: list[bytes] = []
        self.channels = Channels(
            lambda connection: self.opened.append(connection.connection_id),
            lambda connection_id, message: self.heard.append((connection_id, message)),
        )
        self.connection: Any = SimpleNamespace(connection_id=7, closed=False, close=self.close)
        self.sender: Any = SimpleNamespace(
            connection=self.connection, sends=True, send=self.sent.append, credit=3
        )
        self.receiver: Any = SimpleNamespace(connection=self.connection, sends=False)

    def close(self, error: object) -> None:
        self.closed.append(error)
        self.connection.closed = True


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.mark.parametrize("first", ["sender", "receiver"])
def test_a_channel_is_open_when_both_links_are_there(ends: Ends, first: str) -> None:
    for name in (first, "receiver" if first == "sender" else "sender"):
        assert ends.opened == []
        ends.channels.attached(getattr(ends, name))
    assert ends.opened == [7]
    ends.channels.send(7, b"abc")
    assert ends.sent == [DATA_SECTION + b"\x00\x00\x00\x03abc"] and ends.channels.credit(7) == 3
    said = Confirm(1, 2, 0)
    ends.channels.received(ends.receiver, DATA_SECTION + bytes(4) + encode(said))
    assert ends.heard == [(7, said)]


@pytest.mark.parametrize("there", [["sender", "receiver"], ["sender"], ["receiver"]])
def test_the_end_of_a_link_ends_the_connection_once(ends: Ends, there: list[str]) -> None:
    for name in there:
        ends.channels.attached(getattr(ends, name))
    for name in there:
        ends.channels.detached(getattr(ends, name))
    assert ends.closed == [None]
    ends.channels.send(7, b"abc")
    assert ends.sent == [] and ends.channels.credit(7) == 0


def test_a_connection_that_is_closed_already_is_not_closed_again(ends: Ends) -> None:
    ends.channels.attached(ends.sender)
    ends.connection.closed = True
    ends.channels.detached(ends.sender)
    assert ends.closed == []


def test_a_message_that_cannot_be_read_ends_the_connection_with_the_reason(ends: Ends) -> None:
    ends.channels.attached(ends.sender)
    ends.channels.attached(ends.receiver)
    ends.channels.received(ends.receiver, DATA_SECTION + bytes(4) + b"nonsense")
    (error,) = ends.closed
    assert isinstance(error, ProtocolViolation)
    with pytest.raises(ProtocolViolation, match="one data section"):
        ends.channels.received(ends.receiver, b"\x00\x53\x77\xa1\x01a")


def test_a_peer_for_which_too_much_waits_loses_the_connection(ends: Ends) -> None:
    error = LimitExceeded("too much waits for credit")

    def send(data: bytes) -> None:
        raise error

    ends.sender.send = send
    ends.channels.attached(ends.sender)
    ends.channels.attached(ends.receiver)
    for _ in range(2):
        ends.channels.send(7, b"abc")
    assert ends.closed == [error]


def test_a_peer_that_gives_no_credit_loses_the_connection_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_link, "MAX_WAITING", 1000)
    pair = Pair()
    channels = Channels(lambda connection: None, lambda connection_id, message: None)
    pair.host.services["$peers"] = channels
    pair.attach("$peers", sender=True, settled=True)
    pair.attach("$peers", sender=False, credit=0)
    assert pair.server.error is None
    for _ in range(100):
        channels.send(pair.server.connection_id, b"x" * 100)
    pair.turn()
    assert pair.server.closed
    assert pair.client.error is not None
    assert pair.client.error.condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("info", [None, "x", {}, {"system-id": ""}])
def test_a_broker_that_does_not_say_who_it_is_is_refused(info: object) -> None:
    connection = SimpleNamespace(remote_properties={"qpid.ha-backup": info})
    with pytest.raises(ProtocolViolation, match="system-id"):
        identify(connection)
