"""Logins: by turns of the addresses that they come from."""

from __future__ import annotations

import pytest

from qpidha.amqp.peer.sasl import AMQP_HEADER, INIT, SaslClient, make_verifier
from qpidha.management.logins import ADDRESSES, FREE, LONGEST_WAIT, WINDOW, LoginGuard, LoginWork
from qpidha.model.effects import (
    Announce,
    Compute,
    Disconnect,
    Effect,
    LoginWaits,
    SendBytes,
    SendParts,
)
from qpidha.model.encoding import Symbol
from qpidha.model.events import (
    BytesReceived,
    Computed,
    ConnectionKind,
    ConnectionLost,
    ConnectionOpened,
    Event,
    Tick,
)
from tests.amqp.builders import a_node
from tests.amqp.wire import OPEN

SECOND = 1_000_000_000
WAITS = [0] * FREE + [SECOND // 10 * factor for factor in (1, 2, 4, 8, 16, 20, 20)]
HERE, THERE = "192.0.2.9:4711", "192.0.2.10:4711"


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


def test_each_failure_within_a_minute_doubles_the_wait() -> None:
    guard = LoginGuard()
    assert [guard.decided(HERE, SECOND, refused=True) for _ in WAITS] == WAITS
    for address, waits in ((HERE, LONGEST_WAIT), ("192.0.2.9:1", LONGEST_WAIT), (THERE, 0)):
        assert guard.decided(address, SECOND + WINDOW - 1, refused=False) == waits
    assert guard.decided(HERE, SECOND + WINDOW, refused=False) == 0
    assert not guard._failures


def test_who_fails_rarely_never_waits() -> None:
    guard = LoginGuard()
    for number in range(30):
        assert guard.decided(HERE, number * WINDOW // FREE, refused=True) == 0


def test_logins_that_succeed_are_not_counted() -> None:
    guard = LoginGuard()
    assert not any(guard.decided(HERE, SECOND, refused=False) for _ in range(30))
    assert not guard._failures


def test_of_many_addresses_those_that_failed_last_are_remembered() -> None:
    guard = LoginGuard()
    for _ in range(FREE):
        guard.decided(HERE, SECOND, refused=True)
        guard.decided(THERE, SECOND, refused=True)
    for number in range(ADDRESSES - 1):
        guard.decided(f"10.0.{number >> 8}.{number & 255}:1", SECOND, refused=True)
        if number == 500:
            assert guard.decided(HERE, SECOND, refused=True)
    assert len(guard._failures) == ADDRESSES
    assert guard.decided(HERE, SECOND, refused=False)
    assert not guard.decided(THERE, SECOND, refused=False)


class Broker:
    """A broker with the user ann, whose name is her password."""

    def __init__(self, **settings: int) -> None:
        line = make_verifier("ann", b"0123456789abcdef")
        self.node = a_node(
            f"ann:{line}", auth=True, users_file="users", sasl_plain_without_tls=True, **settings
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
        assert isinstance(answer, SendBytes | SendParts)
        client.receive(answer.data)
        return self.happens(BytesReceived(self.last, client.take_output() + rest))

    def try_out(self, password: str, address: str = HERE, rest: bytes = b"") -> list[Effect]:
        """Log in, and have the password checked."""
        return self.happens(computed(self.log_in(password, address, rest)))

    def guess(self, times: int, address: str = HERE) -> None:
        """Fail to log in, and be told so at once."""
        for _ in range(times):
            assert Disconnect(self.last + 2) in self.try_out("guess", address)

    def tick_at(self, now: int) -> list[Effect]:
        self.now = now
        return self.happens(Tick())


def computed(effects: list[Effect]) -> Computed:
    """What becomes of the one effect there is."""
    (effect,) = effects
    assert isinstance(effect, Compute)
    return Computed(effect.connection_id, effect.work())


def sent(effects: list[Effect]) -> dict[int, bytes]:
    return {
        each.connection_id: each.data for each in effects if isinstance(each, SendBytes | SendParts)
    }


def test_performance_4_others_are_answered_while_a_password_is_checked() -> None:
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


def test_code_7_after_five_failures_good_and_bad_logins_wait_alike() -> None:
    broker = Broker()
    broker.guess(FREE)
    due = SECOND + SECOND // 10
    for password in ("ann", "guess"):
        assert broker.try_out(password) == [LoginWaits(broker.last)]
    assert broker.node.next_deadline == due
    assert broker.tick_at(due - 1) == []
    answers = sent(broker.tick_at(due))
    good, bad = broker.last - 2, broker.last
    assert list(answers) == [good, bad] and good in broker.node.streams.by_id
    assert bad not in broker.node.streams.by_id
    assert broker.happens(BytesReceived(good, AMQP_HEADER + OPEN))
    assert broker.node.streams.by_id[good].principal.name == "ann"


def test_another_host_is_answered_at_once() -> None:
    broker = Broker()
    broker.guess(FREE, "127.0.0.1:1")
    # Loopback counts as well.
    assert broker.try_out("ann", "127.0.0.1:2") == [LoginWaits(broker.last)]
    assert sent(broker.try_out("ann", THERE)) and sent(broker.try_out("ann", "127.0.0.2:1"))


def test_who_waits_can_go_on_with_what_he_has_sent_meanwhile() -> None:
    broker = Broker()
    broker.guess(FREE)
    assert broker.try_out("ann", rest=AMQP_HEADER) == [LoginWaits(broker.last)]
    assert broker.happens(BytesReceived(broker.last, OPEN)) == []
    assert broker.tick_at(2 * SECOND)
    assert broker.node.streams.by_id[broker.last].remote_container
    assert broker.node.next_deadline != 11 * SECOND  # It is not in a hurry any more.


def test_who_does_not_open_after_he_has_waited_is_dropped() -> None:
    broker = Broker(max_negotiate_time=9 * SECOND)
    broker.guess(FREE)
    broker.try_out("ann")
    assert sent(broker.tick_at(2 * SECOND))
    assert broker.node.next_deadline == 10 * SECOND
    assert Disconnect(broker.last) in broker.tick_at(10 * SECOND)


def test_who_waits_has_half_of_his_time_left() -> None:
    broker = Broker(max_negotiate_time=SECOND // 10)
    broker.guess(FREE)
    broker.try_out("ann")
    assert broker.node.next_deadline == SECOND + SECOND // 20


@pytest.mark.parametrize("password", ["ann", "guess"])
def test_no_flood_lets_the_outcome_out(password: str) -> None:
    broker = Broker()
    broker.guess(FREE)
    broker.try_out(password)
    effects = broker.happens(BytesReceived(broker.last, bytes(1 << 17)))
    assert Disconnect(broker.last) in effects and not sent(effects)


def test_who_leaves_while_he_waits_is_named_in_the_log() -> None:
    broker = Broker()
    broker.guess(FREE)
    broker.try_out("guess")
    (line,) = broker.happens(ConnectionLost(broker.last, "gone"))
    assert isinstance(line, Announce) and "refused the login of 'ann' at 192.0.2.9" in line.text


def test_what_is_no_guess_is_not_counted() -> None:
    broker = Broker()
    for number in range(FREE + 1):
        client = SaslClient("X", username="ann", password="ann", hostname="", nonce="n")
        client.say(INIT, Symbol("ANONYMOUS"))
        opened = ConnectionOpened(2 * number + 2, HERE, ConnectionKind.CLIENT)
        received = BytesReceived(2 * number + 2, client.take_output())
        assert Disconnect(2 * number + 2) in broker.happens(opened, received)
