"""Logins: by turns of the addresses that they come from."""

from __future__ import annotations

import pytest

from qpidha.amqp.peer.sasl import AMQP_HEADER, SaslClient, make_verifier
from qpidha.management.logins import LoginWork, neighbourhood
from qpidha.model.effects import Announce, Compute, Disconnect, Effect, SendBytes
from qpidha.model.events import (
    BytesReceived,
    Computed,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
)
from tests.amqp.builders import a_node
from tests.amqp.wire import OPEN

SECOND = 1_000_000_000
HERE, THERE = "192.0.2.9:4711", "192.0.2.10:4711"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("192.0.2.9:4711", "192.0.2.9"),
        ("[2001:db8:1:2:3:4:5:6]:4711", "2001:db8:1:2::/64"),
        ("[2001:db8:1:3::1]:4711", "2001:db8:1:3::/64"),
        ("[::ffff:192.0.2.9]:4711", "192.0.2.9"),
        ("[::1]:4711", "::/64"),
        ("[fe80::1%eth0]:4711", "fe80::/64"),
        ("localhost:4711", "localhost"),
        ("client", "client"),
    ],
)
def test_a_stranger_has_one_address_or_64_bits_of_them(address: str, found: str) -> None:
    assert neighbourhood(address) == found


class Turns:
    """Work that is begun, by the number of its connection."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.work = LoginWork(lambda number, work: self.begun.append(number))
        for number, address in enumerate((HERE, HERE, HERE, THERE), 1):
            self.work.add(number, address, lambda: None)


def test_one_address_has_one_work_done_at_a_time() -> None:
    turns = Turns()
    assert turns.begun == [1, 4]
    turns.work.done(1)
    assert turns.begun == [1, 4, 2]
    turns.work.done(4)
    turns.work.done(2)
    turns.work.done(3)
    turns.work.done(3)
    assert turns.begun == [1, 4, 2, 3]
    assert not turns.work._lines and not turns.work._where


def test_who_is_gone_has_no_turn() -> None:
    turns = Turns()
    for number in (1, 2, 9):
        turns.work.forget(number)
    assert turns.begun == [1, 4]  # What is begun cannot be stopped.
    turns.work.done(1)
    assert turns.begun == [1, 4, 3]
    turns.work.forget(3)
    turns.work.done(3)
    turns.work.done(4)
    assert not turns.work._lines and not turns.work._where


class Broker:
    """A broker with the user ann, whose name is her password."""

    def __init__(self) -> None:
        line = make_verifier("ann", b"0123456789abcdef")
        self.node = a_node(
            f"ann:{line}", auth=True, users_file="users", sasl_plain_without_tls=True
        )
        self.now = SECOND
        self.node.start(self.now)
        self.last = 0

    def happens(self, *events: Event) -> list[Effect]:
        return self.node.step(events, self.now)

    def log_in(self, password: str, address: str = HERE, rest: bytes = b"") -> list[Effect]:
        """Open a connection and log in by PLAIN as ann, sending `rest` right behind it."""
        self.last += 2
        client = SaslClient("PLAIN", username="ann", password=password, hostname="", nonce="n")
        opened = ConnectionOpened(self.last, address, ConnectionKind.CLIENT)
        (answer,) = self.happens(opened, BytesReceived(self.last, client.take_output()))
        assert isinstance(answer, SendBytes)
        client.receive(answer.data)
        return self.happens(BytesReceived(self.last, client.take_output() + rest))


def computed(effects: list[Effect]) -> Computed:
    """What becomes of the one effect there is."""
    (effect,) = effects
    assert isinstance(effect, Compute)
    return Computed(effect.connection_id, effect.work())


def sent(effects: list[Effect]) -> dict[int, bytes]:
    return {each.connection_id: each.data for each in effects if isinstance(each, SendBytes)}


def test_others_are_answered_while_a_password_is_checked() -> None:
    broker = Broker()
    done = computed(broker.log_in("ann", rest=AMQP_HEADER))
    opened = ConnectionOpened(90, THERE, ConnectionKind.CLIENT)
    client = SaslClient("PLAIN", username="ann", password="", hostname="", nonce="n")
    assert list(sent(broker.happens(opened, BytesReceived(90, client.take_output())))) == [90]
    assert broker.happens(BytesReceived(2, OPEN)) == []  # It is kept.
    (answer,) = sent(broker.happens(done)).values()
    assert AMQP_HEADER in answer
    assert broker.node.streams.by_id[2].remote_container


@pytest.mark.parametrize("password", ["ann", "guess"])
def test_who_is_gone_when_his_password_was_checked_is_forgotten(password: str) -> None:
    broker = Broker()
    done = computed(broker.log_in(password))
    broker.happens(ConnectionLost(2, "gone"))
    assert broker.happens(done) == []
    assert computed(broker.log_in("ann")).result


def test_who_sends_too_much_meanwhile_is_dropped() -> None:
    broker = Broker()
    done = computed(broker.log_in("ann"))
    effects = broker.happens(BytesReceived(2, bytes(1 << 17)))
    assert [type(effect) for effect in effects] == [Announce, Disconnect]
    assert broker.happens(done) == []


def test_a_mistake_in_the_arithmetic_ends_one_connection() -> None:
    broker = Broker()
    broker.log_in("ann")
    effects = broker.happens(Computed(2, error=ZeroDivisionError("no number")))
    (line,) = [effect for effect in effects if isinstance(effect, Announce)]
    assert line.level == "error" and "ZeroDivisionError: no number" in line.text
    assert Disconnect(2) in effects and not broker.node.broken


def test_during_a_handover_the_result_of_a_login_waits() -> None:
    broker = Broker()
    done = computed(broker.log_in("ann"))
    broker.node.freeze(True)
    assert broker.happens(done) == []
    broker.node.freeze(False)
    assert list(sent(broker.happens())) == [2]
