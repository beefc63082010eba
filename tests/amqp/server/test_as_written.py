"""What AMQP 1.0 says of links, outcomes and termini, as a client sees it that keeps to it: tests
are named after the findings of an audit that docs/conformance.md lists.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.amqp.peer.terminus import (
    ACCEPTED,
    MIXED,
    OUTCOME_NAMES,
    REJECTED,
    RELEASED,
    SETTLED,
    SOURCE,
    UNSETTLED,
    source,
    target,
)
from qpidha.amqp.peer.transaction_wire import TRANSACTIONAL
from qpidha.broker import broker as broker_module
from qpidha.model.encoding import Array, Described, Symbol, UInt, ULong
from qpidha.model.errors import Unauthorized
from qpidha.model.message_view import build
from qpidha.model.principal import Action, ObjectType
from tests.amqp.builders import AHost
from tests.amqp.controller import Controller, Sent
from tests.amqp.raw_client import RawClient
from tests.amqp.work import ROLLBACK, UNKNOWN, Work, a_host, a_replicating_host, declare

ONLY_ACCEPTED = [OUTCOME_NAMES[ACCEPTED]]
ACCEPTED_AND_REJECTED = [OUTCOME_NAMES[ACCEPTED], OUTCOME_NAMES[REJECTED]]
NOT_FOUND, DECODE_ERROR = "amqp:not-found", "amqp:decode-error"
NOWHERE = build("m", properties={"to": "nowhere"})
TAG = (1).to_bytes(4, "little")
"""The tag of the first message on a link of the engine."""


def sent_by(
    client: Controller,
    payload: bytes,
    *,
    to: str | None = None,
    outcomes: list[str] | None = None,
    **options: Any,
) -> Sent:
    """Send one message to an address, or on an anonymous link, from a source with outcomes."""
    name = f"s{len(client.session.links)}"
    sender = client.sender("", name, target(to), mine=source("here", outcomes=outcomes or []))
    sent = client.send(sender, payload, **options)
    client.turn()
    return sent


def told(client: Controller) -> tuple[str, Any]:
    """The condition that the only ended link was ended with, and the delivery that it names."""
    (error,) = client.errors.values()
    assert error is not None
    return error.condition, error.info.get("delivery-tag")


# A1: what cannot be routed on an anonymous link.


@pytest.mark.parametrize("outcomes", [[], ACCEPTED_AND_REJECTED])
def test_a1_what_is_unroutable_is_rejected_with_its_tag(outcomes: list[str]) -> None:
    client = Controller(a_host())
    sent = sent_by(client, NOWHERE, outcomes=outcomes)
    assert (sent.state, sent.condition) == (REJECTED, NOT_FOUND)
    assert sent.info["delivery-tag"] == TAG
    assert client.detached == {}


@pytest.mark.parametrize("settled", [True, False])
def test_a1_what_is_unroutable_and_cannot_be_rejected_ends_the_link(settled: bool) -> None:
    client = Controller(a_host())
    sent_by(client, NOWHERE, outcomes=None if settled else ONLY_ACCEPTED, settled=settled)
    assert told(client) == (NOT_FOUND, TAG)


@pytest.mark.parametrize("outcomes", [[], ACCEPTED_AND_REJECTED])
def test_a1_what_is_unroutable_in_a_transaction_is_rejected_with_its_tag(
    outcomes: list[str],
) -> None:
    work = Work()
    sent = sent_by(work.client, NOWHERE, outcomes=outcomes, transaction=work.name)
    assert (sent.state, sent.fields[1].descriptor) == (TRANSACTIONAL, REJECTED)
    condition, _, info = sent.fields[1].value[0].value
    assert (condition, info["delivery-tag"]) == (NOT_FOUND, TAG)
    assert work.discharge().condition == ROLLBACK


@pytest.mark.parametrize("settled", [True, False])
def test_a1_what_is_unroutable_in_a_transaction_and_cannot_be_rejected_ends_the_link(
    settled: bool,
) -> None:
    work = Work()
    outcomes = None if settled else ONLY_ACCEPTED
    sent_by(work.client, NOWHERE, outcomes=outcomes, settled=settled, transaction=work.name)
    assert told(work.client) == (NOT_FOUND, TAG)
    assert work.discharge().condition == ROLLBACK


@pytest.mark.parametrize("to", [None, "q"])
def test_a1_a_settled_message_that_is_none_ends_the_link(to: str | None) -> None:
    client = Controller(a_host())
    sent_by(client, b"\xff no message", to=to, settled=True)
    assert told(client) == (DECODE_ERROR, TAG)


# Messages for which an exchange has no queue.


def test_first_use_d14_unroutable_messages_are_released_and_counted() -> None:
    client = Controller(a_host())
    for to, payload in (
        ("amq.topic/a", build("m")),
        (None, build("m", properties={"to": "amq.topic"})),
    ):
        sent = sent_by(client, payload, to=to)
        assert (sent.state, sent.is_settled) == (RELEASED, True)
    sent_by(client, build("m"), to="amq.topic/a", settled=True)
    assert client.host.broker.exchanges["amq.topic"].dropped == 3
    assert client.detached == {}


@pytest.mark.parametrize("to", ["amq.topic/a", None])
def test_unroutable_messages_are_accepted_in_the_way_of_qpid(to: str | None) -> None:
    work = Work(Controller(AHost(unroutable="accept")).host)
    payload = build("m", properties={"to": "amq.topic/a"})
    assert sent_by(work.client, payload, to=to).state == ACCEPTED
    sent_by(work.client, payload, to=to, transaction=work.name)
    work.commit()
    assert work.broker.exchanges["amq.topic"].dropped == 2


def test_unroutable_messages_are_rejected_where_the_source_has_no_released() -> None:
    client = Controller(a_host())
    sent = sent_by(client, build("m"), to="amq.topic", outcomes=ACCEPTED_AND_REJECTED)
    assert (sent.state, sent.condition) == (REJECTED, NOT_FOUND)
    sent_by(client, build("m"), to="amq.topic", outcomes=ONLY_ACCEPTED)
    assert told(client) == (NOT_FOUND, TAG)


@pytest.mark.parametrize("to", ["amq.topic", None])
def test_what_finds_no_place_because_of_what_others_sent_in_its_turn_may_come_again(
    to: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "PUBLISH_STEPS", (1, 1))
    client = Controller(a_host())
    exchange = client.host.broker.exchanges["amq.topic"]
    client.host.broker.bind("amq.topic", "q", "#.b.#")
    sender = client.sender("", "others", target("amq.topic"))
    own = client.sender("", "own", target(to))

    def sent(key: str, **options: Any) -> Sent:
        client.send(sender, build("m", properties={"subject": f"b.{key}"}))
        found = client.send(
            own, build("m", properties={"to": "amq.topic", "subject": f"b.b.{key}"}), **options
        )
        client.turn()
        return found

    first = sent("1")
    assert (first.state, first.is_settled, exchange.dropped) == (RELEASED, True, 1)
    sent("2", settled=True)
    assert client.detached == {} and exchange.dropped == 2
    own = client.sender(
        "", "no released", target(to), mine=source("here", outcomes=ACCEPTED_AND_REJECTED)
    )
    last = sent("3")
    assert (last.state, last.condition) == (REJECTED, "amqp:resource-limit-exceeded")
    assert len(client.host.broker.queues["q"].messages) == 3


def test_unroutable_messages_let_their_transaction_fail() -> None:
    work = Work()
    sent_by(work.client, build("m"), to="amq.topic", transaction=work.name)
    assert work.discharge().condition == ROLLBACK


# A2: a source without an address.


def test_a2_outcomes_of_a_source_without_an_address_are_read() -> None:
    client = Controller(a_host())
    sender = client.sender("", "s", target(None), mine=source(None, outcomes=ONLY_ACCEPTED))
    client.send(sender, NOWHERE)
    client.turn()
    assert told(client) == (NOT_FOUND, TAG)


def test_a2_a_source_without_an_address_is_answered() -> None:
    client = RawClient(a_host())
    mine = source(None, outcomes=ONLY_ACCEPTED, capabilities=["queue"])
    found = client.attach_sender("q", mine=mine).remote_source()
    assert (found.kind, found.address) == (SOURCE, None)
    assert (found.outcomes, found.capabilities) == (ONLY_ACCEPTED, ["queue"])


@pytest.mark.parametrize("failed", [True, False])
def test_a2_a_coordinator_gives_no_outcome_that_its_controller_does_not_list(failed: bool) -> None:
    work = Work()
    control = work.client.control("c", address=None, outcomes=ONLY_ACCEPTED)
    if failed:
        work.client.discharge(control, b"nobody")
        assert work.client.detached == {"c": UNKNOWN}
    else:
        doomed = Work(client=work.client, control=control)
        sent_by(work.client, b"\xff no message", to="q", transaction=doomed.name)
        doomed.discharge()
        assert work.client.detached == {"c": ROLLBACK}


# A3: what a detach ends, and what a transaction comes to then.


@pytest.mark.parametrize("expiry", ["link-detach", "session-end", "connection-close", "never"])
def test_a3_an_attach_says_that_nothing_outlives_a_detach(expiry: str) -> None:
    client = RawClient(a_host())
    asked = {"expiry": expiry, "timeout": 7}
    receiver = client.attach_receiver("q", terminus=source("q", **asked))
    dynamic = client.attach_receiver("", name="d", terminus=source(None, dynamic=True, **asked))
    sender = client.attach_sender("q", terminus=target("q", **asked))
    for found in (receiver.remote_source(), dynamic.remote_source(), sender.remote_target()):
        assert (found.expiry, found.timeout) == ("link-detach", 0)


@pytest.mark.parametrize("expiry", ["session-end", "never"])
def test_a3_an_attach_says_what_outlives_the_detach_of_a_subscription(expiry: str) -> None:
    client = RawClient(a_host())
    terminus = source("amq.topic", expiry=expiry, timeout=7)
    found = client.attach_receiver("", name="sub", terminus=terminus).remote_source()
    assert found.expiry == ("never" if expiry == "never" else "link-detach")
    assert found.timeout == 7


def test_a3_a_commit_is_refused_when_an_outcome_in_it_came_too_late() -> None:
    """The outcome is known already, and only waits until it is committed."""
    host = a_replicating_host()
    work = Work(host)
    (delivery,) = work.taken("a")
    host.delaying = True
    work.client.accept(delivery, settled=False)
    work.turn()
    work.retire(delivery, REJECTED)
    sent = work.discharge()
    assert (sent.state, sent.condition) == (REJECTED, ROLLBACK)


# A11: outcomes that a source does not list.


@pytest.mark.parametrize("outcomes", [ONLY_ACCEPTED, [*ONLY_ACCEPTED, OUTCOME_NAMES[RELEASED]]])
def test_a11_a_message_that_cannot_be_rejected_ends_the_link(outcomes: list[str]) -> None:
    client = Controller(a_host())
    sent_by(client, b"", to="q", outcomes=outcomes)
    assert told(client) == (DECODE_ERROR, TAG)


def test_a11_a_limit_is_told_by_a_detach_where_no_outcome_says_it() -> None:
    client = Controller(a_host(max_count=1, flow_stop_count=0))
    sent_by(client, build(1), to="q", outcomes=ONLY_ACCEPTED)
    sent_by(client, build(2), to="q", outcomes=ONLY_ACCEPTED)
    assert told(client)[0] == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize("to", ["q", "amq.fanout", None])
def test_t_l3_a_settled_message_over_a_limit_is_dropped_and_counted(to: str | None) -> None:
    host = a_host(max_count=1, flow_stop_count=0)
    host.broker.bind("amq.fanout", "q")
    client = Controller(host)
    for content in range(3):
        sent_by(client, build(content, properties={"to": "q"}), to=to, settled=True)
    queue = host.broker.queues["q"]
    assert (len(queue.messages), queue.refused, client.errors) == (1, 2, {})


def why(client: Controller, payload: bytes = build("m"), **options: Any) -> tuple[str, Any, Any]:
    """What the sender of a message that is not taken is told."""
    sent = sent_by(client, payload, **options)
    assert sent.state == REJECTED
    return sent.condition, sent.info.get("queue"), sent.info.get("reason")


@pytest.mark.parametrize("to", ["q", "amq.fanout", None])
def test_row_91_the_error_of_a_full_queue_names_it_and_the_reason(to: str | None) -> None:
    host = a_host(max_count=1, flow_stop_count=0)
    host.broker.bind("amq.fanout", "q")
    client = Controller(host)
    message = build("m", properties={"to": "q"})
    sent_by(client, message, to="q")
    assert why(client, message, to=to) == ("amqp:resource-limit-exceeded", "q", "maxlen")


def test_row_91_the_error_says_that_nothing_can_be_written() -> None:
    client = Controller(a_replicating_host())
    client.host.broker.refuse_publishing = "the disk is nearly full"
    assert why(client, to="q") == ("amqp:resource-limit-exceeded", "q", "readonly")


def test_row_91_the_error_says_that_the_sender_may_not() -> None:
    client = Controller(a_host())
    client.host.access.error = Unauthorized("no")
    client.host.access.denied.add((Action.PUBLISH, ObjectType.QUEUE, "q"))
    message = build("m", properties={"to": "q"})
    assert why(client, message) == ("amqp:unauthorized-access", None, "acl")


def test_row_91_the_error_says_that_the_queue_is_for_others() -> None:
    host = a_host()
    host.broker.declare_queue("mine", exclusive=True, owner=object())
    client = Controller(host)
    message = build("m", properties={"to": "mine"})
    assert why(client, message)[0::2] == ("amqp:resource-locked", "unavailable")


@pytest.mark.parametrize("annotations", [{}, {"x-cc": ["other"]}])
def test_row_91_the_error_that_ends_a_link_says_that_its_queue_is_gone(
    annotations: dict[str, Any],
) -> None:
    host = a_host()
    client = Controller(host)
    sender = client.sender("", "s", target("q"))
    client.turn()
    host.broker.delete_queue("q")
    client.send(sender, build("m", annotations=annotations))
    client.turn()
    (error,) = client.errors.values()
    assert error is not None
    assert (error.condition, error.info.get("queue"), error.info.get("reason")) == (
        "amqp:resource-deleted",
        "q",
        "unavailable",
    )


def test_row_91_the_error_says_that_the_broker_does_not_serve() -> None:
    client = Controller(a_replicating_host())
    client.host.serving = False
    message = build("m", properties={"to": "q"})
    assert why(client, message)[2] == "suspended"


def test_row_91_the_error_of_a_message_that_is_too_large_says_so() -> None:
    host = declare(AHost(max_message_size=1000))
    client = Controller(host)
    sender = client.sender("", "s", target("q"))
    client.send(sender, build("x" * 2000))
    client.turn()
    (error,) = client.errors.values()
    assert error is not None
    assert (error.condition, error.info.get("queue"), error.info.get("reason")) == (
        "amqp:link:message-size-exceeded",
        "q",
        "too-large",
    )


@pytest.mark.parametrize("to", ["amq.fanout", None])
def test_row_90_t_p4_a_message_that_one_of_several_queues_rejects_is_on_none(
    to: str | None,
) -> None:
    """RabbitMQ leaves it on the others, so a sender that sends it again makes duplicates."""
    host = a_host(max_count=1, flow_stop_count=0)
    other, _ = host.broker.declare_queue("other")
    for name in ("q", "other"):
        host.broker.bind("amq.fanout", name)
    client = Controller(host)
    message = build("m", properties={"to": "amq.fanout"})
    assert sent_by(client, message, to=to).state == ACCEPTED
    assert why(client, message, to=to) == ("amqp:resource-limit-exceeded", "q", "maxlen")
    assert len(other.messages) == 1
    host.broker.purge("q")
    assert sent_by(client, message, to=to).state == ACCEPTED and len(other.messages) == 2


def test_row_90_t_p4_queues_that_are_deleted_do_not_count() -> None:
    host = a_host()
    host.broker.declare_queue("other")
    for name in ("q", "other"):
        host.broker.bind("amq.fanout", name)
    client = Controller(host)
    sender = client.sender("", "s", target("amq.fanout"))
    states = []
    for name in ("", "q", "other"):
        if name:
            host.broker.delete_queue(name)
        sent = client.send(sender, build("m"))
        client.turn()
        states.append(sent.state)
    assert states == [ACCEPTED, ACCEPTED, RELEASED] and client.detached == {}


def test_t_p4_what_a_queue_has_taken_is_accepted_though_it_is_deleted_before_the_answer() -> None:
    host = a_replicating_host()
    host.delaying = True
    client = Controller(host)
    sent = sent_by(client, build("m"), to="q")
    assert not sent.is_settled
    host.broker.delete_queue("q")
    host.release_all()
    client.turn()
    assert sent.state == ACCEPTED


def test_t_p4_a_sender_to_a_queue_that_is_deleted_hears_of_it() -> None:
    client = Controller(a_host())
    sender = client.sender("", "s", target("q"))
    client.host.broker.delete_queue("q")
    client.send(sender, build("m"))
    client.turn()
    (error,) = client.errors.values()
    assert error is not None and error.condition == "amqp:resource-deleted"


def test_a_settled_message_that_the_disk_has_no_room_for_ends_the_link() -> None:
    client = Controller(a_replicating_host())
    client.host.broker.refuse_publishing = "the disk is nearly full"
    sent_by(client, build("m"), to="q", settled=True)
    assert told(client) == ("amqp:resource-limit-exceeded", TAG)


def test_a11_a_source_without_accepted_is_refused() -> None:
    client = RawClient(a_host())
    client.attach_sender("q", mine=source("here", outcomes=[OUTCOME_NAMES[REJECTED]]))
    assert client.detached == {"raw-sender": "amqp:invalid-field"}


# What an attach answers.


@pytest.mark.parametrize("mode", [SETTLED, UNSETTLED, MIXED])
@pytest.mark.parametrize("address", ["q", "$service"])
def test_settle_modes_are_answered_as_agreed(mode: int, address: str) -> None:
    host = a_host()
    host.services["$service"] = _Deaf()
    client = RawClient(host)
    sender = client.attach_sender(address, mode=mode)
    assert sender.remote_sender_mode() == mode
    assert sender.remote_receiver_mode() == 0
    receiver = client.attach_receiver("q", mode=mode, settles_second=True)
    assert receiver.remote_sender_mode() == mode
    assert receiver.remote_receiver_mode() == 1


class _Deaf:
    """A service that does nothing."""

    def attached(self, link: Any) -> None:
        pass

    def detached(self, link: Any) -> None:
        pass


def test_a_source_lists_the_outcomes_that_it_has() -> None:
    client = RawClient(a_host())
    assert client.attach_receiver("q").remote_source().outcomes == list(OUTCOME_NAMES.values())
    some = client.attach_receiver(
        "q", name="some", terminus=source("q", outcomes=ACCEPTED_AND_REJECTED)
    )
    assert some.remote_source().outcomes == ACCEPTED_AND_REJECTED


# (b): where the specification leaves room.


@pytest.mark.parametrize(
    "properties",
    [
        {"lifetime-policy": UInt(7)},
        {"lifetime-policy": Described(ULong(0x99), [])},
        {"lifetime-policy": Described([], [])},
        {"supported-dist-modes": UInt(7)},
        {"supported-dist-modes": Symbol("sideways")},
        {"supported-dist-modes": Array(0xA3, [Symbol("move"), Symbol("sideways")])},
    ],
)
def test_b_a_dynamic_node_with_a_property_of_no_meaning_is_refused(properties: Any) -> None:
    client = RawClient(a_host())
    asked = {Symbol(key): value for key, value in properties.items()}
    client.attach_receiver("", terminus=source(None, dynamic=True, properties=asked))
    assert client.detached == {"raw-receiver": "amqp:invalid-field"}


def test_b_a_dynamic_node_says_its_lifetime_and_takes_the_modes_there_are() -> None:
    client = RawClient(a_host())
    modes = Array(0xA3, [Symbol("move"), Symbol("copy")])
    policy = Described(ULong(0x2C), [])
    asked = {Symbol("lifetime-policy"): policy, Symbol("supported-dist-modes"): modes}
    end = client.attach_receiver("", terminus=source(None, dynamic=True, properties=asked))
    assert end.remote_source().properties == {"lifetime-policy": policy}


def test_b_a_dynamic_node_with_an_address_is_refused() -> None:
    client = RawClient(a_host())
    client.attach_sender("", terminus=target("mine", dynamic=True))
    assert client.detached == {"raw-sender": "amqp:invalid-field"}
