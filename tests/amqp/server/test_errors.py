"""The three fields of an error stay apart on the wire: the description is the text alone."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.service_link import ServiceLink
from qpidha.amqp.peer.terminus import REJECTED, PeerError, target
from qpidha.amqp.peer.transaction_wire import read_state, rejected
from qpidha.model.encoding import decode, encode
from qpidha.model.errors import InvalidArgument, NotFound, RefusedRequest, Unauthorized
from qpidha.model.message_view import build
from qpidha.model.principal import Action, ObjectType
from tests.amqp.builders import AHost, Pair, Recording, a_pair

TEXT = "cannot connect to host e.g. 10.0.0.1; it is gone."
REASON, HINT = "the wire is cut. Twice", "mend it; then try again"


def of_a_connection() -> Any:
    host = AHost()
    host.admission_error = RefusedRequest(TEXT, reason=REASON, hint=HINT, info={"port": 5672})
    return Pair(host).client.error


def of_a_link() -> Any:
    pair = a_pair()
    pair.host.services["$desk"] = desk = Recording()
    desk.refusal = RefusedRequest(TEXT, reason=REASON, hint=HINT, info={"port": 5672})
    return pair.sender("$desk")[0].error


def of_a_message() -> Any:
    pair = a_pair()
    pair.host.access.error = Unauthorized(TEXT, reason=REASON, hint=HINT, info={"port": 5672})
    pair.host.access.denied.add((Action.PUBLISH, ObjectType.QUEUE, "q"))
    link, heard = pair.sender("", terminus=target(None), name="anonymous")
    link.send(build(1, properties={"to": "q"}))
    pair.turn()
    error = heard.outcomes[0][1].error
    assert isinstance(error.info.pop("delivery-tag"), bytes)
    assert error.info.pop("event_code") == "QHA4102"
    return error


def of_a_message_in_a_transaction() -> Any:
    error = RefusedRequest(TEXT, reason=REASON, hint=HINT, info={"port": 5672})
    fields = decode(encode(rejected(b"t", PeerError.of(error))))[0]
    outcome = read_state(fields)[1]
    assert outcome is not None
    return outcome.error


@pytest.mark.parametrize(
    "ask", [of_a_connection, of_a_link, of_a_message, of_a_message_in_a_transaction]
)
def test_text_reason_and_hint_arrive_apart(ask: Any) -> None:
    error = ask()
    assert error.description == TEXT and error.hint == HINT
    assert error.info == {"port": 5672, "reason": REASON, "hint": HINT}
    assert error.explanation == f"{TEXT}: {REASON}"


def test_an_error_without_reason_and_hint_has_no_info() -> None:
    error = PeerError.of(RefusedRequest("nothing"))
    assert PeerError.of(NotFound("nothing")).info == {"event_code": "QHA7108"}
    assert (error.info, error.hint, error.explanation) == ({}, "", "nothing")
    assert PeerError("c", "", {"hint": 7, "reason": None}).explanation == "c"
    assert PeerError("c", "", {"hint": 7}).hint == ""


class Strict(Recording):
    """A service that refuses every request."""

    def received(self, link: ServiceLink, payload: bytes) -> None:
        raise InvalidArgument("the request has no reply-to", hint="set it")


def test_rabbitmq_d5_a_settled_request_that_is_refused_ends_its_link() -> None:
    pair = Pair()
    pair.host.services["$strict"] = Strict()
    link, outcomes = pair.sender("$strict")
    link.send(build("unsettled"), settled=False)
    pair.turn()
    ((_, outcome),) = outcomes.outcomes
    assert outcome.state == REJECTED and outcome.error.condition == "amqp:invalid-field"
    assert link.error is None
    link.send(build("settled"), settled=True)
    pair.turn()
    assert link.error is not None and link.error.condition == "amqp:invalid-field"
    assert link.error.info == {"hint": "set it"}


def test_what_proton_says_after_a_reconnection_of_requests_settled_before_is_passed_over() -> None:
    """A transfer for each, settled and with nothing in it."""
    pair = Pair()
    pair.host.services["$strict"] = Strict()
    link, _ = pair.sender("$strict")
    link.send(b"", settled=True)
    pair.turn()
    assert link.error is None
