"""Who has logged in sends messages in no other name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED, target
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL
from qpidha.management.access import Access
from qpidha.model.encoding import Described, ULong, encode
from qpidha.model.message_view import build
from qpidha.model.principal import Principal, Role
from qpidha.model.settings import Settings
from tests.amqp.builders import AHost
from tests.amqp.controller import Controller, Sent

ANN = Principal("ann", "PLAIN", "192.0.2.9:4711")
FORGED = "amqp:unauthorized-access"
EVERY_WAY = pytest.mark.parametrize("to", ["q", "amq.fanout", None])


class Client(Controller):
    """A client of a principal, at a broker whose queue is bound to an exchange."""

    def __init__(self, principal: Principal = ANN, auth: bool = True, **settings: Any) -> None:
        host: Any = AHost(**settings)
        self.said: list[str] = []
        ears: Any = SimpleNamespace(denied=lambda who, kind, error, **_: self.said.append(str(who)))
        host.access = Access(Settings(auth=auth, ha_username="ha"), ears)
        super().__init__(host)
        self.server.principal = principal
        self.host.broker.declare_queue("q")
        self.host.broker.bind("amq.fanout", "q")

    def tell(self, to: str | None, payload: bytes, **options: Any) -> Sent:
        sent = self.send(self.sender(to or "", "s", target(to)), payload, **options)
        self.turn()
        return sent

    @property
    def count(self) -> int:
        return len(self.host.broker.queues["q"].messages)


def message(user_id: Any) -> bytes:
    return build("m", properties={"to": "q", "user_id": user_id})


@EVERY_WAY
@pytest.mark.parametrize("user_id", [None, b"", b"ann", b"ann@QPID"])
def test_who_names_himself_or_nobody_is_served(to: str | None, user_id: Any) -> None:
    client = Client()
    assert client.tell(to, message(user_id)).state == ACCEPTED
    assert client.count == 1 and not client.said


@EVERY_WAY
@pytest.mark.parametrize("product", ["qpidha", "rabbitmq"])
@pytest.mark.parametrize("user_id", [b"bob", b"ann@OTHER", b"annabel", "ann"])
def test_qpid_15_a_forged_user_id_is_refused(to: str | None, product: str, user_id: Any) -> None:
    client = Client(announce_product=product)
    sent = client.tell(to, message(user_id))
    assert (sent.state, sent.condition, sent.is_settled) == (REJECTED, FORGED, True)
    assert client.count == 0 and client.said == ["ann"]
    sent = client.send(client.sender("q", "another"), message(b"ann"))
    client.turn()
    assert sent.state == ACCEPTED


def test_a_forged_user_id_that_is_sent_settled_ends_the_link() -> None:
    client = Client()
    client.tell("q", message(b"bob"), settled=True)
    assert client.count == 0 and client.detached == {"s": FORGED}


@EVERY_WAY
def test_a_transaction_with_a_forged_user_id_is_not_committed(to: str | None) -> None:
    client = Client()
    control = client.control()
    name = client.declare(control)
    sent = client.tell(to, message(b"bob"), transaction=name)
    assert (sent.state, sent.is_settled) == (TRANSACTIONAL, True)
    outcome = sent.fields[1]
    assert outcome.descriptor == REJECTED and outcome.value[0].value[0] == FORGED
    assert client.discharge(control, name).state == REJECTED
    assert client.count == 0 and client.said == ["ann"]


def test_a_forged_user_id_does_not_hide_behind_other_sections() -> None:
    client = Client()
    forged = encode(Described(ULong(0x73), [None, b"bob"]))
    own = encode(Described(ULong(0x73), [None, b"ann"]))
    for place, payload in enumerate((build("m") + forged, own + forged + build("m"))):
        sent = client.send(client.sender("q", f"s{place}"), payload)
        client.turn()
        assert (sent.state, sent.condition) == (REJECTED, "amqp:decode-error")
    assert client.count == 0


def hidden(size: int = 0) -> bytes:
    """A message of ann's whose body is a list that is longer than its elements are: who counts
    those finds another section of properties behind it.
    """
    own = encode(Described(ULong(0x73), [None, b"ann", "q"]))
    forged = encode(Described(ULong(0x73), [None, b"bob", "q"])) + build("m")
    inside = encode("x" * size)
    length = len(inside) + len(forged) + 4
    head = b"\x00\x53\x77\xd0" + length.to_bytes(4) + (1).to_bytes(4)
    return own + head + inside + forged


@EVERY_WAY
@pytest.mark.parametrize("product", ["qpidha", "rabbitmq"])
@pytest.mark.parametrize("size", [0, 200_000])
def test_a_forged_user_id_does_not_hide_behind_a_size_that_lies(
    to: str | None, product: str, size: int
) -> None:
    client = Client(announce_product=product)
    sent = client.tell(to, hidden(size))
    assert (sent.state, sent.condition, sent.is_settled) == (REJECTED, "amqp:decode-error", True)
    assert client.count == 0 and not client.detached


@EVERY_WAY
def test_a_transaction_with_a_message_whose_size_lies_is_not_committed(to: str | None) -> None:
    client = Client()
    control = client.control()
    name = client.declare(control)
    sent = client.tell(to, hidden(), transaction=name)
    outcome = sent.fields[1]
    assert outcome.descriptor == REJECTED and outcome.value[0].value[0] == "amqp:decode-error"
    assert client.discharge(control, name).state == REJECTED
    assert client.count == 0


def test_a_message_whose_size_lies_that_is_sent_settled_ends_the_link() -> None:
    client = Client()
    client.tell("q", hidden(), settled=True)
    assert client.count == 0 and client.detached == {"s": "amqp:decode-error"}


@EVERY_WAY
@pytest.mark.parametrize(
    ("principal", "auth"),
    [
        (ANN, False),
        (Principal("anonymous"), True),
        (Principal("ha"), True),
        (ANN.with_role(Role.ADMINISTRATOR), True),
    ],
)
def test_others_may_name_anybody(to: str | None, principal: Principal, auth: bool) -> None:
    client = Client(principal, auth)
    assert client.tell(to, message(b"bob")).state == ACCEPTED
    assert client.count == 1 and not client.said
