"""Transactions over AMQP: declaring and discharging, posting, retiring, and every way in which they end early."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.amqp import open_transactions
from qpidha.amqp.coordinator import WINDOW, Coordinator
from qpidha.amqp.engine_links import is_settled, remote_state, settle
from qpidha.amqp.engine_values import remote_outcome, set_state
from qpidha.amqp.terminus import ACCEPTED, COORDINATOR, MODIFIED, REJECTED, RELEASED, SOURCE, Terminus, source, target
from qpidha.amqp.transaction_wire import CAPABILITIES, DECLARE, DECLARED, DISCHARGE, TRANSACTIONAL
from qpidha.words.encoding import Described, Symbol, ULong
from qpidha.words.message_view import body, build, header
from tests.amqp.builders import AHost, CountingRecorder, Recording
from tests.amqp.controller import Controller

ROLLBACK = "amqp:transaction:rollback"
UNKNOWN = "amqp:transaction:unknown-id"


def a_host(*queues: str, **arguments: Any) -> AHost:
    host = AHost()
    for queue in queues or ("q",):
        host.broker.declare_queue(queue, arguments={f"qpid.{name}": value for name, value in arguments.items()})
    return host


def contents(host: AHost, queue: str = "q") -> list[Any]:
    found = host.broker.queues[queue]
    return [body(found.messages[number].body()) for number in found.ordered() if number in found.messages]


def available(host: AHost, queue: str = "q") -> list[Any]:
    found = host.broker.queues[queue]
    return [body(message.body()) for message in found.messages.values() if not message.acquired]


def fill(host: AHost, *bodies: Any, queue: str = "q") -> None:
    for one in bodies:
        host.broker.queues[queue].enqueue(build(one))


# Declaring and discharging.


def test_a_coordinator_says_what_it_can_do() -> None:
    client = Controller(a_host())
    control = client.control()
    terminus = control.remote_target()
    assert terminus.kind == COORDINATOR
    assert terminus.capabilities == list(CAPABILITIES)
    assert control.remote_source().kind == SOURCE


def test_each_transaction_has_an_id_of_its_own() -> None:
    client = Controller(a_host())
    control = client.control()
    ids = {client.declare(control) for _ in range(300)}
    assert len(ids) == 300
    for one in ids:
        assert len(one) <= 32
        client.commit(control, one)


def test_controls_may_be_named_by_symbols() -> None:
    client = Controller(a_host())
    control = client.control()
    sent = client.ask(control, build(Described(Symbol("amqp:declare:list"), [None])))
    assert sent.state == DECLARED
    sent = client.ask(control, build(Described(Symbol("amqp:discharge:list"), [sent.fields[0], False])))
    assert sent.state == ACCEPTED


@pytest.mark.parametrize(
    ("control", "condition"),
    [
        (Described(ULong(DECLARE), ["global"]), "amqp:not-implemented"),
        (Described(ULong(DISCHARGE), [b"nobody", False]), UNKNOWN),
        (Described(ULong(DISCHARGE), []), "amqp:invalid-field"),
        (Described(ULong(DISCHARGE), [["a list"]]), "amqp:invalid-field"),
        (Described(ULong(0x99), []), "amqp:invalid-field"),
        (Described([1], []), "amqp:invalid-field"),
        ("hello", "amqp:invalid-field"),
    ],
)
def test_a_control_that_cannot_be_followed_is_rejected_and_the_link_goes_on(control: Any, condition: str) -> None:
    client = Controller(a_host())
    link = client.control()
    sent = client.ask(link, build(control))
    assert (sent.state, sent.condition) == (REJECTED, condition)
    client.commit(link, client.declare(link))


def test_bytes_that_are_no_message_are_rejected() -> None:
    client = Controller(a_host())
    link = client.control()
    assert client.ask(link, b"\xff\xff\xff").condition == "amqp:invalid-field"
    client.declare(link)


def test_a_source_without_rejected_hears_of_errors_by_a_detach() -> None:
    client = Controller(a_host())
    link = client.control(outcomes=["amqp:accepted:list"])
    client.discharge(link, b"nobody")
    assert client.detached == {"txn": UNKNOWN}


def test_a_control_that_is_settled_ends_the_link() -> None:
    client = Controller(a_host())
    link = client.control()
    client.ask(link, build(Described(ULong(DECLARE), [])), settled=True)
    assert client.detached == {"txn": "amqp:illegal-state"}


def test_a_transaction_is_discharged_once() -> None:
    client = Controller(a_host())
    control = client.control()
    one = client.declare(control)
    client.commit(control, one)
    assert client.discharge(control, one).condition == UNKNOWN
    assert client.discharge(control, one, failed=True).condition == UNKNOWN


def test_a_transaction_is_discharged_where_it_was_declared() -> None:
    client = Controller(a_host())
    first, second = client.control("first"), client.control("second")
    one = client.declare(first)
    assert client.discharge(second, one).condition == UNKNOWN
    client.commit(first, one)


def test_a_backup_coordinates_nothing() -> None:
    host = a_host()
    host.serving = False
    client = Controller(host)
    client.control()
    assert client.detached == {"txn": "amqp:not-allowed"}


def test_a_coordinator_is_no_source() -> None:
    client = Controller(a_host())
    client.attach_receiver("", terminus=Terminus(COORDINATOR))
    assert client.detached


def test_more_open_transactions_than_allowed_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "MAX_TRANSACTIONS", 3)
    client = Controller(a_host())
    control = client.control()
    ids = [client.declare(control) for _ in range(3)]
    sent = client.ask(control, build(Described(ULong(DECLARE), [])))
    assert (sent.state, sent.condition) == (REJECTED, "amqp:resource-limit-exceeded")
    client.commit(control, ids[0])
    client.declare(control)


# Posting.


def test_posted_messages_come_with_the_commit_and_not_before() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    sent = [client.send(sender, build(number), one) for number in range(3)]
    client.turn()
    for outcome in sent:
        assert (outcome.state, outcome.is_settled) == (TRANSACTIONAL, True)
        assert outcome.fields == [one, Described(ULong(ACCEPTED), [])]
    assert contents(host) == []
    client.commit(control, one)
    assert contents(host) == [0, 1, 2]


def test_posted_messages_go_with_the_rollback() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, build("gone"), one)
    client.rollback(control, one)
    client.commit(control, client.declare(control))
    assert contents(host) == []


def test_messages_may_be_posted_settled() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, build("a"), one, settled=True)
    client.send(sender, build("b"), settled=True)
    client.turn()
    assert contents(host) == ["b"]
    client.commit(control, one)
    assert contents(host) == ["b", "a"]


def test_many_more_messages_than_link_credit_fit_into_a_transaction() -> None:
    host = AHost(link_credit=10)
    host.broker.declare_queue("q")
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    for number in range(200):
        client.send(sender, build(number), one)
        client.turn()
    client.commit(control, one)
    assert contents(host) == list(range(200))


def test_transactions_at_the_same_time_do_not_mix() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    first, second = client.declare(control), client.declare(control)
    for number in range(4):
        client.send(sender, build(number), (first, second)[number % 2])
    client.send(sender, build("plain"))
    client.turn()
    assert contents(host) == ["plain"]
    client.commit(control, second)
    assert contents(host) == ["plain", 1, 3]
    client.rollback(control, first)
    assert contents(host) == ["plain", 1, 3]


def test_a_transaction_may_be_used_on_another_session() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control(session=client.engine.new_session())
    sender = client.sender("q")
    one = client.declare(control)
    client.send(sender, build("x"), one)
    client.commit(control, one)
    assert contents(host) == ["x"]


def test_exchanges_route_at_the_commit() -> None:
    host = a_host("before", "after")
    host.broker.bind("amq.topic", "before", "a.*")
    client = Controller(host)
    control = client.control()
    to_key, to_exchange = client.sender("amq.topic/a.b", "s1"), client.sender("amq.topic", "s2")
    anonymous = client.sender("", "s3", target(None))
    one = client.declare(control)
    client.send(to_key, build("1"), one)
    client.send(to_exchange, build("2", properties={"subject": "a.c"}), one)
    client.send(anonymous, build("3", properties={"to": "amq.topic", "subject": "a.d"}), one)
    client.send(anonymous, build("4", properties={"to": "after"}), one)
    client.turn()
    host.broker.unbind("amq.topic", "before", "a.*")
    host.broker.bind("amq.topic", "after", "a.*")
    client.commit(control, one)
    assert contents(host, "before") == []
    assert contents(host, "after") == ["1", "2", "3", "4"]


def test_a_post_that_cannot_be_accepted_is_rejected_and_dooms_its_transaction() -> None:
    host = a_host()
    client = Controller(host)
    control, sender, anonymous = client.control(), client.sender("q"), client.sender("", "s2", target(None))
    one = client.declare(control)
    client.send(sender, build("x"), one)
    sent = client.send(anonymous, build("y", properties={"to": "nowhere"}), one)
    later = client.send(sender, build("z"), one)
    client.turn()
    assert sent.fields[1].descriptor == later.fields[1].descriptor == REJECTED
    assert sent.fields[1].value[0].value[0] == "amqp:not-found"
    refused = client.discharge(control, one)
    assert (refused.state, refused.condition) == (REJECTED, ROLLBACK)
    assert contents(host) == []


def test_a_settled_post_that_cannot_be_accepted_dooms_its_transaction() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, b"\xff no message", one, settled=True)
    client.send(sender, build("x"), one)
    assert client.discharge(control, one).condition == ROLLBACK
    assert contents(host) == []


@pytest.mark.parametrize("settled", [True, False])
def test_a_post_to_an_unknown_transaction_ends_its_link(settled: bool) -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.commit(control, one)
    client.send(sender, build("x"), one, settled=settled)
    client.turn()
    assert client.detached == {"raw-sender": UNKNOWN}
    assert contents(host) == []


def test_a_state_without_an_id_is_an_unknown_transaction() -> None:
    host = a_host()
    client = Controller(host)
    sender = client.sender("q")
    set_state(sender.send(build("x")), TRANSACTIONAL, [])
    client.turn()
    assert client.detached == {"raw-sender": UNKNOWN}
    assert contents(host) == []


def test_a_message_of_several_transfers_can_be_posted() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, build("x" * 300_000), one)
    client.commit(control, one)
    assert contents(host) == ["x" * 300_000]


def test_a_discharge_in_the_middle_of_a_post_ends_the_control_link() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, build("whole"), one)
    client.send_part(sender, build("only a part")[:9])
    set_state(client.partial, TRANSACTIONAL, [one])
    client.turn()
    client.discharge(control, one)
    assert client.detached == {"txn": ROLLBACK}
    assert contents(host) == []


def test_a_sender_that_leaves_in_the_middle_of_a_post_leaves_its_transaction_whole() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, build("whole"), one)
    client.send_part(sender, build("only a part")[:9])
    set_state(client.partial, TRANSACTIONAL, [one])
    client.turn()
    sender.end()
    client.turn()
    client.commit(control, one)
    assert contents(host) == ["whole"]


def test_a_post_that_is_aborted_leaves_nothing_behind() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send_part(sender, build("only a part")[:9])
    set_state(client.partial, TRANSACTIONAL, [one])
    client.turn()
    client.abort(sender)
    client.turn()
    client.commit(control, one)
    assert contents(host) == []


def test_bytes_in_open_transactions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "MAX_BYTES", 1000)
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    first, second = client.declare(control), client.declare(control)
    client.send(sender, build("x" * 700), first)
    refused = client.send(sender, build("x" * 700), second)
    client.turn()
    assert refused.fields[1].value[0].value[0] == "amqp:resource-limit-exceeded"
    assert client.discharge(control, second).condition == ROLLBACK
    client.commit(control, first)
    third = client.declare(control)
    client.send(sender, build("x" * 700), third)
    client.commit(control, third)
    assert len(contents(host)) == 2


def test_small_messages_count_for_the_memory_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_transactions, "MAX_BYTES", 100_000)
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    for _ in range(1000):  # with all that is kept of each, more than 100 bytes
        client.send(sender, build(""), one)
    client.turn()
    assert client.discharge(control, one).condition == ROLLBACK


def test_a_commit_that_does_not_fit_changes_nothing() -> None:
    host = a_host("full", max_count=3)
    host.broker.declare_queue("q")
    client = Controller(host)
    control, to_full, to_q = client.control(), client.sender("full", "s1"), client.sender("q", "s2")
    receiver = client.attach_receiver("q")
    fill(host, "taken")
    ((delivery, _),) = client.deliveries(receiver)
    one = client.declare(control)
    client.retire(delivery, one)
    client.send(to_q, build("no"), one)
    for number in range(4):
        client.send(to_full, build(number), one)
    refused = client.discharge(control, one)
    assert (refused.state, refused.condition) == (REJECTED, ROLLBACK)
    assert contents(host, "full") == []
    assert contents(host) == ["taken"]


def test_a_commit_to_a_deleted_queue_is_rolled_back() -> None:
    host = a_host("q", "other")
    client = Controller(host)
    control, sender, other = client.control(), client.sender("q"), client.sender("other", "s2")
    one = client.declare(control)
    client.send(sender, build("x"), one)
    client.send(other, build("y"), one)
    client.turn()
    host.broker.delete_queue("q")
    assert client.discharge(control, one).condition == ROLLBACK
    assert contents(host, "other") == []


def test_a_commit_is_answered_when_it_is_safe() -> None:
    host = AHost(ha_replicate="all")
    host.broker.recorder = CountingRecorder()
    host.broker.declare_queue("q")
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, build("x"), one)
    client.turn()
    host.holding = True
    sent = client.discharge(control, one)
    assert sent.state == 0
    assert contents(host) == ["x"]
    host.release_all()
    client.turn()
    assert (sent.state, sent.is_settled) == (ACCEPTED, True)


def test_discharges_that_wait_are_limited_though_their_sender_heeds_no_credit(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Coordinator.start

    def generous(self: Coordinator, source: Terminus) -> None:
        start(self, source)
        assert self.end is not None
        self.end.flow(10 * WINDOW)  # our client's engine sends nothing without credit

    monkeypatch.setattr(Coordinator, "start", generous)
    host = AHost(ha_replicate="all")
    host.broker.recorder = CountingRecorder()
    host.broker.declare_queue("q")
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    host.holding = True
    for number in range(2 * WINDOW):
        one = client.declare(control)
        client.send(sender, build(number), one)
        client.discharge(control, one)
        if "txn" in client.detached:
            break
    assert client.detached["txn"] == "amqp:link:transfer-limit-exceeded"
    assert len(contents(host)) == WINDOW


def test_a_service_takes_no_part_in_transactions() -> None:
    host = a_host()
    service = host.services["$service"] = Recording()
    client = Controller(host)
    control, sender = client.control(), client.sender("$service")
    one = client.declare(control)
    client.send(sender, build("settled"), one, settled=True)
    refused = client.send(sender, build("not settled"), one)
    taken = client.send(sender, build("plain"))
    client.turn()
    assert (refused.state, refused.condition) == (REJECTED, "amqp:not-implemented")
    assert taken.state == ACCEPTED
    assert [body(payload) for payload in service.payloads] == ["plain"]


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.binary(max_size=20) | st.integers(-9, 99) | st.sampled_from([ULong(code) for code in range(0x23, 0x28)]),
    lambda inner: st.lists(inner, max_size=4) | st.builds(Described, st.builds(ULong, st.integers(0, 0x40)), inner),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ANYTHING, max_size=4), st.lists(ANYTHING, max_size=4), st.booleans(), st.booleans(), ANYTHING)
def test_nonsense_in_states_and_controls_hurts_nobody_else(
    of_post: list[Any], of_outcome: list[Any], named: bool, settled: bool, control: Any
) -> None:
    """Whatever a client says: the broker goes on, and what it had is there when the client is gone."""
    host = a_host("q", "r")
    client = Controller(host)
    link, sender = client.control(), client.sender("r")
    _, (delivery,) = taken(client, host, "a")
    name = [client.declare(link)] if named else []
    for one, fields in ((sender.send(build("x")), of_post), (delivery, of_outcome)):
        set_state(one, TRANSACTIONAL, [*name, *fields])
        if settled:
            settle(one)
    client.turn()
    client.ask(link, build(control))
    client.server.lost("gone")
    assert contents(host, "r") == []
    assert available(host) == ["a"]


# Retiring.


def taken(client: Controller, host: AHost, *bodies: Any) -> tuple[Any, list[Any]]:
    """A receiver on q that has these messages."""
    fill(host, *bodies)
    receiver = client.attach_receiver("q")
    deliveries = client.deliveries(receiver)
    assert [body(payload) for _, payload in deliveries] == list(bodies)
    return receiver, [delivery for delivery, _ in deliveries]


@pytest.mark.parametrize("settled", [True, False])
def test_accepted_messages_go_with_the_commit(settled: bool) -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    _, deliveries = taken(client, host, "a", "b", "c")
    one = client.declare(control)
    for delivery in deliveries[:2]:
        client.retire(delivery, one, settled=settled)
    assert contents(host) == ["a", "b", "c"]
    assert available(host) == []
    client.commit(control, one)
    assert contents(host) == ["c"]
    if not settled:
        for delivery in deliveries[:2]:
            assert (is_settled(delivery), remote_state(delivery)) == (True, ACCEPTED)


def test_settled_deliveries_of_a_rollback_come_again_as_failed() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    receiver, deliveries = taken(client, host, "a", "b")
    one = client.declare(control)
    for delivery in deliveries:
        client.retire(delivery, one)
    client.rollback(control, one)
    again = client.deliveries(receiver)
    assert [body(payload) for _, payload in again] == ["a", "b"]
    assert [header(payload)["delivery_count"] for _, payload in again] == [1, 1]


def test_unsettled_deliveries_of_a_rollback_stay_with_their_consumer() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    receiver, deliveries = taken(client, host, "a", "b", "c")
    first = client.declare(control)
    for delivery in deliveries:
        client.retire(delivery, first, settled=False)
    client.rollback(control, first)
    assert client.deliveries(receiver) == []
    assert available(host) == []
    second = client.declare(control)
    client.retire(deliveries[0], second)
    client.commit(control, second)
    client.settle(deliveries[1], ACCEPTED)
    client.settle(deliveries[2], RELEASED)
    assert contents(host) == ["c"]
    assert [body(payload) for _, payload in client.deliveries(receiver)] == ["c"]


def test_outcomes_of_all_kinds_apply_at_the_commit() -> None:
    host = a_host("other", "dead")
    host.broker.declare_exchange("dlx", "fanout")
    host.broker.bind("dlx", "dead")
    host.broker.declare_queue("q", alternate="dlx")
    client = Controller(host)
    control = client.control()
    receiver, deliveries = taken(client, host, "accepted", "released", "rejected", "modified")
    one = client.declare(control)
    client.retire(deliveries[0], one, ACCEPTED)
    client.retire(deliveries[1], one, RELEASED)
    client.retire(deliveries[2], one, REJECTED)
    client.retire(deliveries[3], one, MODIFIED, [True, False, {Symbol("x-why"): "because"}], settled=False)
    assert client.deliveries(receiver) == []
    assert contents(host, "dead") == []
    client.commit(control, one)
    again = [payload for _, payload in client.deliveries(receiver)]
    assert [body(payload) for payload in again] == ["released", "modified"]
    assert "delivery_count" not in header(again[0])
    assert header(again[1])["delivery_count"] == 1
    assert contents(host, "dead") == ["rejected"]
    assert contents(host) == ["released", "modified"]


def test_a_rejected_message_without_an_alternate_is_gone() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    _, (delivery,) = taken(client, host, "a")
    one = client.declare(control)
    client.retire(delivery, one, REJECTED)
    assert contents(host) == ["a"]
    client.commit(control, one)
    assert contents(host) == []


def test_undeliverable_here_is_not_delivered_here_again() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    receiver, (delivery,) = taken(client, host, "a")
    one = client.declare(control)
    client.retire(delivery, one, MODIFIED, [False, True])
    client.commit(control, one)
    assert client.deliveries(receiver) == []
    assert available(host) == ["a"]


def test_consume_and_produce_in_one_transaction_moves_a_message() -> None:
    host = a_host("other", max_count=1)
    host.broker.declare_queue("q", arguments={"qpid.max_count": 1})
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    _, (delivery,) = taken(client, host, "old")
    one = client.declare(control)
    client.retire(delivery, one)
    client.send(sender, build("new"), one)
    client.commit(control, one)
    assert contents(host) == ["new"]


def test_an_outcome_may_be_changed_and_settled_later() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    receiver, (first, second) = taken(client, host, "a", "b")
    one = client.declare(control)
    client.retire(first, one, ACCEPTED, settled=False)
    client.retire(first, one, RELEASED, settled=False)
    client.retire(second, one, ACCEPTED, settled=False)
    client.settle(second)
    client.commit(control, one)
    assert contents(host) == ["a"]
    assert [body(payload) for _, payload in client.deliveries(receiver)] == ["a"]


def test_an_outcome_outside_of_its_transaction_ends_the_link_and_the_message_stays() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    _, (delivery,) = taken(client, host, "a")
    one = client.declare(control)
    client.retire(delivery, one, settled=False)
    client.settle(delivery, ACCEPTED)
    assert client.detached == {"raw-receiver": "amqp:illegal-state"}
    assert contents(host) == ["a"]
    client.rollback(control, one)
    assert available(host) == ["a"]


def test_an_outcome_settled_in_two_transactions_is_in_none() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    receiver, (delivery,) = taken(client, host, "a")
    first, second = client.declare(control), client.declare(control)
    client.retire(delivery, first, settled=False)
    client.retire(delivery, second)
    assert client.detached == {"txn": ROLLBACK}
    assert [body(payload) for _, payload in client.deliveries(receiver)] == ["a"]


def test_an_outcome_in_two_transactions_ends_the_control_link() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    _, (delivery,) = taken(client, host, "a")
    first, second = client.declare(control), client.declare(control)
    client.retire(delivery, first, settled=False)
    client.retire(delivery, second, settled=False)
    assert client.detached == {"txn": ROLLBACK}
    client.settle(delivery, RELEASED)
    assert contents(host) == ["a"]


def test_an_outcome_in_an_unknown_transaction_ends_the_link_and_the_message_is_there_for_others() -> None:
    host = a_host()
    client = Controller(host)
    _, (delivery,) = taken(client, host, "a")
    client.retire(delivery, b"nobody")
    assert client.detached == {"raw-receiver": UNKNOWN}
    assert available(host) == ["a"]


def test_a_browser_takes_nothing_in_a_transaction_either() -> None:
    host = a_host()
    fill(host, "a", "b")
    client = Controller(host)
    control = client.control()
    receiver = client.attach_receiver("q", terminus=source("q", distribution="copy"))
    first, second = (delivery for delivery, _ in client.deliveries(receiver))
    one = client.declare(control)
    client.retire(first, one)
    client.retire(second, one, settled=False)
    assert is_settled(second)
    client.commit(control, one)
    assert available(host) == ["a", "b"]


def test_deliveries_in_a_transaction_do_not_use_up_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    host = AHost(session_max_unacked=10)
    host.broker.declare_queue("q")
    fill(host, *range(50))
    client = Controller(host)
    control, receiver = client.control(), client.attach_receiver("q")
    one = client.declare(control)
    count = 0
    while deliveries := client.deliveries(receiver):
        for delivery, _ in deliveries:
            client.retire(delivery, one)
            count += 1
    assert count == 50
    client.commit(control, one)
    assert contents(host) == []


def test_a_message_purged_meanwhile_is_no_obstacle() -> None:
    host = a_host()
    client = Controller(host)
    control = client.control()
    _, (delivery,) = taken(client, host, "a")
    one = client.declare(control)
    client.retire(delivery, one)
    host.broker.delete_queue("q")
    client.commit(control, one)


def test_unsettled_outcomes_are_answered_when_the_commit_is_safe() -> None:
    host = AHost(ha_replicate="all")
    host.broker.recorder = CountingRecorder()
    host.broker.declare_queue("q")
    client = Controller(host)
    control = client.control()
    _, (delivery,) = taken(client, host, "a")
    one = client.declare(control)
    client.retire(delivery, one, settled=False)
    host.holding = True
    client.discharge(control, one)
    assert not is_settled(delivery)
    host.release_all()
    client.turn()
    assert (is_settled(delivery), remote_outcome(delivery).state) == (True, ACCEPTED)


# Ends.


def test_everything_abandoned_is_rolled_back() -> None:
    for leave in (
        lambda client, control: client.detach(control),
        lambda client, control: client.end_session(),
        lambda client, control: client.server.lost("gone"),
        lambda client, control: client.server.close(),
    ):
        host = a_host()
        client = Controller(host)
        control, sender = client.control(), client.sender("q")
        _, (first, second) = taken(client, host, "a", "b")
        one = client.declare(control)
        client.retire(first, one)
        client.retire(second, one, settled=False)
        client.send(sender, build("never"), one)
        client.turn()
        leave(client, control)
        client.turn()
        if client.server.closed or not host.broker.queues["q"].consumers:
            assert available(host) == ["a", "b"]
            assert [message.delivery_count for message in host.broker.queues["q"].messages.values()] == [1, 1]
        assert contents(host) == ["a", "b"]
        assert len(client.server.transactions) == 0
        assert client.server.transactions.bytes == 0


def test_a_receiver_that_leaves_lets_its_outcomes_stand() -> None:
    for committed in (True, False):
        host = a_host()
        client = Controller(host)
        control = client.control()
        receiver, (first, second) = taken(client, host, "a", "b")
        one = client.declare(control)
        client.retire(first, one)
        client.retire(second, one, settled=False)
        receiver.end()
        client.turn()
        assert available(host) == []
        client.discharge(control, one, failed=not committed)
        assert available(host) == contents(host) == ([] if committed else ["a", "b"])


def test_a_sender_that_leaves_lets_its_messages_stand() -> None:
    host = a_host()
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, build("x"), one)
    client.turn()
    sender.end()
    client.commit(control, one)
    assert contents(host) == ["x"]


def test_transactions_of_one_connection_are_unknown_to_another() -> None:
    host = a_host()
    mine, theirs = Controller(host), Controller(host, "other", 100)
    one = mine.declare(mine.control())
    theirs.send(theirs.sender("q"), build("x"), one)
    theirs.turn()
    assert theirs.detached == {"raw-sender": UNKNOWN}


def test_a_connection_that_is_lost_while_its_commit_is_not_safe_has_committed() -> None:
    host = AHost(ha_replicate="all")
    host.broker.recorder = CountingRecorder()
    host.broker.declare_queue("q")
    client = Controller(host)
    control, sender = client.control(), client.sender("q")
    one = client.declare(control)
    client.send(sender, build("x"), one)
    host.holding = True
    client.discharge(control, one)
    client.server.lost("gone")
    host.release_all()
    assert contents(host) == ["x"]
