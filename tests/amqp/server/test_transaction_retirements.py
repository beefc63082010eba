"""Outcomes given in a transaction: they apply at its commit, and a rollback gives the messages
back.
"""

from __future__ import annotations

import pytest

from qpidha.amqp.peer.links import is_settled, remote_state
from qpidha.amqp.peer.terminus import ACCEPTED, MODIFIED, REJECTED, RELEASED, source
from qpidha.amqp.server import open_transactions
from qpidha.broker import transaction as transaction_module
from qpidha.model.encoding import Symbol
from qpidha.model.message_view import body, build, header
from tests.amqp.builders import AHost
from tests.amqp.work import ROLLBACK, UNKNOWN, Work, a_host, declare

OUTCOMES = pytest.mark.parametrize(
    ("state", "fields"),
    [(ACCEPTED, []), (RELEASED, []), (REJECTED, []), (MODIFIED, [True])],
    ids=["accepted", "released", "rejected", "modified"],
)
SETTLED = pytest.mark.parametrize("settled", [True, False], ids=["settled", "unsettled"])


def a_host_with_dead_letters() -> AHost:
    """A host with the queues q and other; what q rejects goes to dead."""
    host = a_host("other", "dead")
    host.broker.declare_exchange("dlx", "fanout")
    host.broker.bind("dlx", "dead")
    host.broker.declare_queue("q", alternate="dlx")
    return host


@SETTLED
def test_accepted_messages_go_with_the_commit(settled: bool) -> None:
    work = Work()
    deliveries = work.taken("a", "b", "c")
    for delivery in deliveries[:2]:
        work.retire(delivery, settled=settled)
    assert work.contents() == ["a", "b", "c"]
    assert work.available() == []
    work.commit()
    assert work.contents() == ["c"]
    if not settled:
        for delivery in deliveries[:2]:
            assert (is_settled(delivery), remote_state(delivery)) == (True, ACCEPTED)


def test_settled_deliveries_of_a_rollback_come_again_as_failed() -> None:
    work = Work()
    for delivery in work.taken("a", "b"):
        work.retire(delivery)
    work.rollback()
    again = work.redelivered()
    assert [body(payload) for payload in again] == ["a", "b"]
    assert [header(payload)["delivery_count"] for payload in again] == [1, 1]


def test_unsettled_deliveries_of_a_rollback_stay_with_their_consumer() -> None:
    first = Work()
    deliveries = first.taken("a", "b", "c")
    for delivery in deliveries:
        first.retire(delivery, settled=False)
    first.rollback()
    assert first.redelivered() == []
    assert first.available() == []
    second = first.another()
    second.retire(deliveries[0])
    second.commit()
    first.client.settle(deliveries[1], ACCEPTED)
    first.client.settle(deliveries[2], RELEASED)
    assert first.contents() == ["c"]
    assert [body(payload) for payload in first.redelivered()] == ["c"]


def test_outcomes_of_all_kinds_apply_at_the_commit() -> None:
    work = Work(a_host_with_dead_letters())
    deliveries = work.taken("accepted", "released", "rejected", "modified")
    work.retire(deliveries[0], ACCEPTED)
    work.retire(deliveries[1], RELEASED)
    work.retire(deliveries[2], REJECTED)
    work.retire(deliveries[3], MODIFIED, [True, False, {Symbol("x-why"): "because"}], settled=False)
    assert work.redelivered() == []
    assert work.contents("dead") == []
    work.commit()
    again = work.redelivered()
    assert [body(payload) for payload in again] == ["released", "modified"]
    assert "delivery_count" not in header(again[0])
    assert header(again[1])["delivery_count"] == 1
    assert work.contents("dead") == ["rejected"]
    assert work.contents() == ["released", "modified"]


def test_a_rejected_message_without_an_alternate_is_gone() -> None:
    work = Work()
    (delivery,) = work.taken("a")
    work.retire(delivery, REJECTED)
    assert work.contents() == ["a"]
    work.commit()
    assert work.contents() == []


def test_undeliverable_here_is_not_delivered_here_again() -> None:
    work = Work()
    (delivery,) = work.taken("a")
    work.retire(delivery, MODIFIED, [False, True])
    work.commit()
    assert work.redelivered() == []
    assert work.available() == ["a"]


def test_t_m9_undeliverable_here_is_a_death_in_a_transaction_as_well() -> None:
    host = declare(AHost(), "dead")
    given = {"qpidha.undeliverable-here": "dead-letter", "x-dead-letter-exchange": "/queues/dead"}
    host.broker.declare_queue("q", arguments=given)
    work = Work(host)
    (delivery,) = work.taken("a")
    work.retire(delivery, MODIFIED, [False, True])
    assert not host.broker.queues["dead"].messages
    work.commit()
    assert work.available() == [] and len(host.broker.queues["dead"].messages) == 1


def test_consume_and_produce_in_one_transaction_moves_a_message() -> None:
    work = Work(a_host("other", "q", max_count=1, flow_stop_count=0))
    (delivery,) = work.taken("old")
    work.retire(delivery)
    work.post(work.sender(), build("new"))
    work.commit()
    assert work.contents() == ["new"]


def test_an_outcome_may_be_changed_and_settled_later() -> None:
    work = Work()
    first, second = work.taken("a", "b")
    work.retire(first, ACCEPTED, settled=False)
    work.retire(first, RELEASED, settled=False)
    work.retire(second, ACCEPTED, settled=False)
    work.client.settle(second)
    work.commit()
    assert work.contents() == ["a"]
    assert [body(payload) for payload in work.redelivered()] == ["a"]


def test_an_outcome_outside_of_its_transaction_ends_the_link_and_the_message_stays() -> None:
    work = Work()
    (delivery,) = work.taken("a")
    work.retire(delivery, settled=False)
    work.client.settle(delivery, ACCEPTED)
    assert work.client.detached == {"raw-receiver": "amqp:illegal-state"}
    assert work.contents() == ["a"]
    work.rollback()
    assert work.available() == ["a"]


def test_an_outcome_settled_in_two_transactions_is_in_none() -> None:
    first = Work()
    second = first.another()
    (delivery,) = first.taken("a")
    first.retire(delivery, settled=False)
    second.retire(delivery)
    assert first.client.detached == {"txn": ROLLBACK}
    assert [body(payload) for payload in first.redelivered()] == ["a"]


def test_an_outcome_in_two_transactions_ends_the_control_link() -> None:
    first = Work()
    second = first.another()
    (delivery,) = first.taken("a")
    first.retire(delivery, settled=False)
    second.retire(delivery, settled=False)
    assert first.client.detached == {"txn": ROLLBACK}
    first.client.settle(delivery, RELEASED)
    assert first.contents() == ["a"]


def test_an_outcome_in_an_unknown_transaction_ends_the_link_and_frees_the_message() -> None:
    work = Work()
    (delivery,) = work.taken("a")
    work.client.retire(delivery, b"nobody")
    assert work.client.detached == {"raw-receiver": UNKNOWN}
    assert work.available() == ["a"]


def test_a_browser_takes_nothing_in_a_transaction_either() -> None:
    work = Work()
    work.fill("a", "b")
    receiver = work.client.attach_receiver("q", terminus=source("q", distribution="copy"))
    first, second = (delivery for delivery, _ in work.client.deliveries(receiver))
    work.retire(first)
    work.retire(second, settled=False)
    assert is_settled(second)
    work.commit()
    assert work.available() == ["a", "b"]


def test_deliveries_in_a_transaction_do_not_use_up_the_session() -> None:
    work = Work(declare(AHost(session_max_unacked=10)))
    work.fill(*range(50))
    receiver = work.client.attach_receiver("q")
    count = 0
    while deliveries := work.client.deliveries(receiver):
        for delivery, _ in deliveries:
            work.retire(delivery)
            count += 1
    assert count == 50
    work.commit()
    assert work.contents() == []


@SETTLED
def test_outcomes_beyond_the_limit_leave_no_way_but_back(
    monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    monkeypatch.setattr(transaction_module, "MAX_OPERATIONS", 3)
    work = Work()
    bodies = [str(number) for number in range(10)]
    for delivery in work.taken(*bodies):
        work.retire(delivery, settled=settled)
    sent = work.discharge()
    assert (sent.state, sent.condition) == (REJECTED, ROLLBACK)
    work.client.detach(work.receiver)
    assert work.available() == bodies


@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
def test_annotations_of_outcomes_count_for_the_memory_of_transactions(
    monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(open_transactions, "MAX_BYTES", 10_000)
    work = Work()
    use = work.broker.use
    for delivery in work.taken(*range(20)):
        if late:
            work.retire(delivery, settled=False)
        work.retire(delivery, MODIFIED, [True, False, {Symbol("x-why"): "w" * 900}], settled=False)
        assert use.transactions < 12_500
    sent = work.discharge()
    assert (sent.state, sent.condition) == (REJECTED, ROLLBACK)
    assert use.transactions == 0


# Messages that leave their queue before their transaction is discharged.


@pytest.mark.parametrize("failed", [False, True], ids=["committed", "rolled back"])
@SETTLED
def test_a_purge_passes_over_messages_in_a_transaction(settled: bool, failed: bool) -> None:
    work = Work()
    (delivery,) = work.taken("in it")
    work.retire(delivery, settled=settled)
    work.fill("not in it")
    work.broker.purge("q")
    assert work.contents() == ["in it"]
    assert work.discharge(failed=failed).state == ACCEPTED
    assert work.contents() == (["in it"] if failed else [])


@SETTLED
@OUTCOMES
def test_a_message_purged_meanwhile_is_no_obstacle(
    state: int, fields: list[bool], settled: bool
) -> None:
    work = Work(a_host_with_dead_letters())
    purged, kept = work.taken("purged", "kept")
    work.retire(purged, state, fields, settled=settled)
    work.post(work.sender("other"), build("posted"))
    work.turn()
    queue = work.broker.queues["q"]
    queue.release(next(iter(queue.messages.values())))  # a purge passes over it otherwise
    work.broker.purge("q")
    assert work.contents() == ["kept"]
    before = queue.statistics()
    work.commit()
    assert is_settled(purged)
    assert (work.contents(), work.contents("other"), work.contents("dead")) == (
        ["kept"],
        ["posted"],
        [],
    )
    assert queue.statistics() == before
    assert (work.available(), work.redelivered(), work.client.detached) == ([], [], {})
    work.client.settle(kept, ACCEPTED)
    assert work.contents() == []


@SETTLED
@OUTCOMES
def test_a_message_whose_queue_was_deleted_meanwhile_is_no_obstacle(
    state: int, fields: list[bool], settled: bool
) -> None:
    work = Work(a_host_with_dead_letters())
    (delivery,) = work.taken("deleted")
    work.retire(delivery, state, fields, settled=settled)
    work.post(work.sender("other"), build("posted"))
    work.turn()
    work.broker.delete_queue("q")
    work.broker.declare_queue("q")
    work.fill("of its namesake")
    work.turn()
    assert work.client.detached == {"raw-receiver": "amqp:resource-deleted"}
    before = work.broker.queues["q"].statistics()
    work.commit()
    assert (work.available(), work.contents("other"), work.contents("dead")) == (
        ["of its namesake"],
        ["posted"],
        ["deleted"],
    )
    assert work.broker.queues["q"].statistics() == before
