"""What waits for a peer that asks services and does not read their answers has a bound."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.sasl import AMQP_HEADER
from qpidha.management import amqp_management, link_pair
from qpidha.management.amqp_management import ManagementService
from qpidha.management.link_pair import LinkPairService
from qpidha.management.requests import Requests
from qpidha.model.encoding import Described, UByte, UInt, ULong
from qpidha.model.message_view import build
from qpidha.model.principal import Role
from tests.amqp.builders import AHost, Pair, Recording
from tests.amqp.wire import OPEN, Frame, Talk, frame, frames_in, perform
from tests.management.builders import FakeNode

FLOW, TRANSFER, DISPOSITION = 0x13, 0x14, 0x15
PART = 30_000
LIMIT = 64 << 20
"""Of the memory; one connection may have a 32nd of it waiting."""
LARGE = "x" * 100_000


class Asker:
    """A client with a sender and a receiver at a service, in a session with a window of none."""

    def __init__(self, address: str = amqp_management.ADDRESS, **settings: Any) -> None:
        self.host = host = AHost(**settings)
        self.node = node = FakeNode()
        node.broker = host.broker
        node.settings = host.settings
        of = ManagementService if address == amqp_management.ADDRESS else LinkPairService
        host.services[address] = of(Requests(node), node)
        self.address = address
        self.sent = self.limit = self.answered = self.refused = 0
        self.talk = Talk(host, AMQP_HEADER, OPEN)
        ends = (
            (Described(ULong(0x28), ["me"]), Described(ULong(0x29), [address])),
            (Described(ULong(0x28), [address]), Described(ULong(0x29), ["me"])),
        )
        self.hear(
            self.talk.say(
                frame(perform(0x11, None, UInt(0), UInt(0), UInt(100))),
                *(
                    frame(
                        perform(
                            0x12,
                            "pair",
                            UInt(handle),
                            bool(handle),
                            UByte(handle),
                            None,
                            *ends[handle],
                            None,
                            None,
                            None if handle else UInt(0),
                        )
                    )
                    for handle in (0, 1)
                ),
                self.window(0),
            )
        )

    @property
    def held(self) -> int:
        """Bytes that wait for this client, as the memory counts them."""
        return self.host.broker.use.answers

    def window(self, size: int) -> bytes:
        """Open the window, and give all the credit that is needed."""
        had = self.answered
        fields = (UInt(self.transfers), UInt(size), UInt(self.out), UInt(100))
        return frame(perform(FLOW, *fields, UInt(1), UInt(had), UInt(100_000)))

    transfers = out = 0
    """Transfer frames that came, and that went out."""

    def hear(self, answers: list[Frame]) -> None:
        for answer in answers:
            assert answer.code < 0x16, answer
            if answer.code == FLOW and answer.fields[4:5] == [0]:
                self.limit = int(answer.fields[5]) + int(answer.fields[6])
            elif answer.code == TRANSFER:
                self.transfers += 1
                self.answered += not (len(answer.fields) > 5 and answer.fields[5])
            elif answer.code == DISPOSITION and int(answer.fields[4].descriptor) == 0x25:
                last = answer.fields[2]
                self.refused += 1 if last is None else int(last) - int(answer.fields[1]) + 1

    def ask(self, *, reply_to: str = "me", **application: Any) -> None:
        """Send one request, whose answer repeats what it says."""
        if self.address == link_pair.ADDRESS:
            said = {"subject": "GET", "to": "/nothing", "reply_to": "$me", "message_id": LARGE}
            request = build(None, properties=said)
        else:
            request = build(
                None,
                properties={"reply_to": reply_to, "correlation_id": LARGE},
                application_properties={"operation": "ping", **application},
            )
        number = self.sent
        self.sent += 1
        tag = number.to_bytes(4, "big")
        for start in range(0, len(request), PART):
            more = start + PART < len(request)
            self.out += 1
            head = perform(TRANSFER, UInt(0), UInt(number), tag, UInt(0), False, more)
            self.hear(self.talk.say(frame(head + request[start : start + PART])))

    def ask_all(self, most: int) -> int:
        """Ask while there is credit."""
        before = self.sent
        while self.sent - before < most and self.sent < self.limit:
            self.ask()
        return self.sent - before

    def turn(self, times: int = 50) -> None:
        for _ in range(times):
            self.hear(frames_in(self.talk.connection.output()))

    def read(self) -> None:
        """Open the window, and read what comes."""
        self.hear(self.talk.say(self.window(10_000)))
        self.turn()
        assert self.talk.connection.backlog() == 0 == self.held


@pytest.mark.parametrize("address", [amqp_management.ADDRESS, link_pair.ADDRESS])
def test_requests_are_refused_while_too_many_answers_wait(address: str) -> None:
    asker = Asker(address)
    asker.host.broker.use.share_out(LIMIT)
    for _ in range(200):
        asker.ask()
        assert asker.held <= LIMIT // 32 + 2 * len(LARGE)
    assert asker.held >= asker.talk.connection.backlog() > 0
    assert asker.talk.connection.backlog() <= asker.host.broker.use.peer_share + 2 * len(LARGE)
    assert asker.refused > 100 and asker.answered == 0
    asker.read()
    assert asker.answered == 200 - asker.refused
    refused = asker.refused
    for _ in range(20):
        asker.ask()
        asker.turn(2)
    assert asker.answered == 220 - refused and asker.refused == refused and asker.held == 0


@pytest.mark.parametrize("address", [amqp_management.ADDRESS, link_pair.ADDRESS])
def test_who_does_not_read_answers_gets_no_credit_and_all_of_them_when_it_reads(
    address: str,
) -> None:
    asker = Asker(address, ha_flow_messages=20)
    asker.host.broker.use.share_out(LIMIT)
    asked = asker.ask_all(200)
    assert asked < 40 and not asker.refused
    for _ in range(20):
        asker.read()
        asked += asker.ask_all(200 - asked)
        asker.turn()
    assert asked == 200
    asker.read()
    assert asker.answered == 200 and not asker.refused


@pytest.mark.parametrize("way", ["detach", "end", "lost"])
def test_what_waits_is_forgotten_with_its_link(way: str) -> None:
    asker = Asker()
    for _ in range(100):
        asker.ask()
    assert asker.held > 5_000_000
    if way == "lost":
        asker.talk.connection.lost("it is gone")
    else:
        told = (0x16, UInt(1), True) if way == "detach" else (0x17,)
        asker.talk.say(frame(perform(*told)))
        asker.talk.say(frame(b""))
        asker.talk.connection.close()
        asker.talk.connection.output()
    assert asker.held == 0


def test_answers_that_are_still_to_come_count() -> None:
    """A change is answered when it is committed, and that may take long."""
    asker = Asker()
    asker.host.broker.use.share_out(LIMIT)
    asker.node.serving = True
    node = asker.node
    node.committed = -1  # Even what is there already waits.
    asker.host.broker.log_writer = node.log
    for number in range(200):
        asker.ask(operation="CREATE", type="queue", name=f"q{number}")
    assert asker.held <= LIMIT // 32 + 2 * len(LARGE)
    assert asker.refused > 100
    node.commit_all()
    asker.read()
    assert asker.answered == 200 - asker.refused


def test_a_broker_is_sent_what_it_has_credit_for() -> None:
    """Brokers ask each other for more than any client has room for, and heed credit."""
    pair = Pair()
    pair.host.broker.use.share_out(LIMIT)
    pair.server.principal = pair.server.principal.with_role(Role.BROKER)
    pair.host.services["svc"] = service = Recording()
    _, heard = pair.receiver("svc")
    for _ in range(40):
        service.attached_links[0].send(bytes(1 << 20))
    assert service.attached_links[0].waiting == 0 == pair.host.broker.use.answers
    pair.turn()
    assert len(heard.payloads) == 40


def test_messages_that_wait_before_answers_are_none() -> None:
    """A client that consumes and manages on one session, and does not read for a while."""
    asker = Asker()
    broker = asker.host.broker
    broker.use.share_out(LIMIT)
    queue, _ = broker.declare_queue("q")
    for _ in range(20):
        queue.enqueue(build(LARGE))
    ends = Described(ULong(0x28), ["q"]), Described(ULong(0x29), ["me"])
    attach = perform(0x12, "consumer", UInt(2), True, UByte(0), None, *ends)
    window = (UInt(0), UInt(0), UInt(0), UInt(100))
    asker.talk.say(frame(attach), frame(perform(FLOW, *window, UInt(2), UInt(0), UInt(100))))
    asker.turn()
    messages = asker.talk.connection.backlog()
    assert messages >= broker.use.peer_share
    for _ in range(10):
        asker.ask()
        asker.turn(1)
    assert not asker.refused
    # They are counted while they may wait, and no longer.
    assert 10 * len(LARGE) < asker.held < 11 * len(LARGE)
    asker.talk.say(asker.window(10_000))
    for _ in range(50):
        asker.talk.connection.output()
    assert asker.talk.connection.backlog() == 0 == asker.held


def test_messages_that_wait_on_another_session_hold_no_answers_back() -> None:
    asker = Asker(ha_flow_messages=20)
    broker = asker.host.broker
    broker.use.share_out(LIMIT)
    asker.talk.say(asker.window(10_000))
    queue, _ = broker.declare_queue("q")
    for _ in range(20):
        queue.enqueue(build(LARGE))
    ends = Described(ULong(0x28), ["q"]), Described(ULong(0x29), ["me"])
    for said in (
        perform(0x11, None, UInt(0), UInt(0), UInt(100)),
        perform(0x12, "consumer", UInt(0), True, UByte(0), None, *ends),
        perform(FLOW, UInt(0), UInt(0), UInt(0), UInt(100), UInt(0), UInt(0), UInt(100)),
    ):
        asker.talk.say(frame(said, channel=1))
    asker.turn()
    assert asker.talk.connection.backlog() >= broker.use.peer_share
    for _ in range(20):
        asker.ask_all(10)
        asker.turn()
    assert asker.answered == 200 and asker.held == 0
