"""Management over AMQP: an answer belongs to the call that asked."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.client.endpoint import Endpoint
from qpidha.client.errors import ClientError, ConnectError, LoginError, NotPrimary, TimedOut
from qpidha.client.management import AmqpManagement
from qpidha.client.message import Message


class Answer(Message):
    """A message that can be accepted."""

    __slots__ = ()

    def accept(self) -> None: ...


class Answering:
    """A client, and both its links: it answers each request by its operation, but not while it is
    slow.
    """

    name = "answers"
    endpoint = Endpoint("primary", 1)

    def __init__(self) -> None:
        self.is_slow = False
        self.answers: list[Answer] = []

    def sender(self, address: str) -> Answering:
        return self

    receiver = sender

    def send(self, request: Message) -> None:
        self.answer(request.properties.message_id, request.application_properties["operation"])

    def answer(self, identity: Any, body: str) -> None:
        code = {"statusCode": 200}
        self.answers.append(Answer(body, correlation_id=identity, application_properties=code))

    def close(self) -> None: ...

    def receive(self) -> Answer:
        if self.is_slow:
            raise TimedOut("no answer")
        return self.answers.pop(0)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Answering:
    client = Answering()
    monkeypatch.setattr(AmqpManagement, "_open", lambda *given, **more: client)
    return client


def conversation() -> AmqpManagement:
    return AmqpManagement(Endpoint("h", 1), tls=None, timeout=1)


def test_a_late_answer_is_not_taken_for_the_answer_to_the_next_call(client: Answering) -> None:
    management = conversation()
    client.is_slow = True
    for _ in range(2):
        with pytest.raises(TimedOut):
            management.call("first")
    client.is_slow = False
    assert management.call("second") == "second"
    assert management.call("third") == "third"


def test_an_answer_that_nobody_asked_for_is_an_error(client: Answering) -> None:
    management = conversation()
    client.answer("first-9", "nothing")
    with pytest.raises(ClientError, match="another request"):
        management.call("first")


DENIED = LoginError(
    "h:1 does not let the client in",
    reason="anonymous may not connect as an administrator (qpid.ha-admin): 192.0.2.9:1 is not on "
    "the broker's machine",
    condition="amqp:unauthorized-access",
    info={"hint": "ask there"},
)


@pytest.mark.parametrize("follow", [True, False])
def test_code_d1_who_is_not_believed_is_told_of_the_primary_or_goes_on_there(
    monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    def open_one(self: AmqpManagement, properties: dict[str, Any], **more: Any) -> Answering:
        if properties:
            raise DENIED
        return Answering()

    monkeypatch.setattr(AmqpManagement, "_open", open_one)
    management = AmqpManagement(Endpoint("h", 1), tls=None, timeout=1, follow=follow)
    if follow:
        assert management.call("status") == "status"
        return
    with pytest.raises(NotPrimary, match="an anonymous client may not ask; the primary is") as no:
        management.call("status")
    assert (no.value.reason, no.value.hint) == (DENIED.reason, "-b primary:1, or ask there")


def test_code_d1_who_is_not_believed_is_told_why_where_no_broker_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def open_one(self: AmqpManagement, properties: dict[str, Any], **more: Any) -> Answering:
        raise DENIED if properties else ConnectError("h:1 refused", reason="it is a backup")

    monkeypatch.setattr(AmqpManagement, "_open", open_one)
    with pytest.raises(ConnectError) as no:
        conversation()
    assert no.value.reason == f"it is a backup; {DENIED.reason}"
    assert no.value.hint.endswith("or ask there")
