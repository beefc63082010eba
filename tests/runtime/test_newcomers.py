"""Newcomers: who has to go when there are too many, and who waits for the outcome of a login."""

from __future__ import annotations

import io

import pytest

from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.management.logins import FREE, REMEMBERED
from qpidha.model.effects import Effect, LoginWaits
from qpidha.model.events import BytesReceived, ConnectionKind, ConnectionLost, ConnectionOpened
from qpidha.model.settings import Settings
from qpidha.runtime.clock import Clock
from qpidha.runtime.log_lines import Log
from qpidha.runtime.log_sinks import StreamSink
from qpidha.runtime.newcomers import Newcomers
from tests.amqp.wire import OPEN
from tests.management.test_logins import HERE, SECOND, Broker

HOST = HERE.partition(":")[0]


class Hall:
    """Newcomers, and the numbers of those who were closed."""

    def __init__(self, most: int) -> None:
        self.output = io.StringIO()
        self.newcomers = Newcomers(
            Settings(max_unauthenticated=most), Log([StreamSink(self.output)], Clock())
        )
        self.closed: list[int] = []

    def come(self, number: int, host: str = HOST, *, waits: bool = False) -> None:
        self.newcomers.take(number, host, lambda: self.closed.append(number))
        if waits:
            self.newcomers.wait(number)


def test_who_has_a_network_of_ipv6_is_one_crowd() -> None:
    hall = Hall(3)
    hosts = ("2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3", "192.0.2.9", "192.0.2.9")
    for number, host in enumerate(hosts):
        hall.come(number, host)
    assert hall.closed == [0, 1]


def test_who_waits_for_the_outcome_of_a_login_makes_no_room() -> None:
    hall = Hall(4)
    hall.come(1, waits=True)
    for number in range(2, 7):
        hall.come(number)
    assert hall.closed == [2, 3]
    hall.newcomers.forget(1)
    hall.come(7)
    assert hall.closed == [2, 3] and len(hall.newcomers) == 4


def test_of_those_who_wait_the_first_come_to_an_end() -> None:
    hall = Hall(4)
    for number in range(4):
        hall.come(number, waits=True)
    assert hall.closed == [2, 3]
    hall.come(4, "192.0.2.10", waits=True)
    assert hall.closed == [2, 3, 1]
    assert hall.output.getvalue().count("logins are cut off: more than 2 (half of max-unau") == 1


def test_nobody_waits_who_is_gone() -> None:
    hall = Hall(1)
    hall.newcomers.wait(1)
    hall.come(1, waits=True)
    hall.newcomers.forget(1)
    assert len(hall.newcomers) == 0 and not hall.closed


@pytest.mark.parametrize("password", ["ann", "guess"])
def test_who_guesses_and_crowds_keeps_nobody_out_and_learns_nothing(password: str) -> None:
    broker, hall = Broker(), Hall(10)
    broker.guess(FREE)
    while broker.last < 2 * REMEMBERED:
        broker.try_out("guess")
        broker.tick_at(broker.now + 2 * SECOND)

    def obey(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, LoginWaits):
                hall.newcomers.wait(effect.connection_id)

    number = broker.last + 2
    hall.come(number)
    obey(broker.try_out(password))
    due = broker.now + 2 * SECOND
    assert broker.node.next_deadline == due
    for other in range(1000, 1100):
        broker.happens(ConnectionOpened(other, HERE, ConnectionKind.CLIENT))
        hall.come(other)
        for gone in hall.closed[-1:]:
            broker.happens(ConnectionLost(gone, "crowded out"))
    assert number not in hall.closed
    broker.tick_at(due)
    broker.happens(BytesReceived(number, AMQP_HEADER + OPEN))
    assert (number in broker.node.streams.by_id) == (password == "ann")
