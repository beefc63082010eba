"""How a transaction ends: a commit that does all or nothing and is answered when it is committed,
and everybody who leaves before.
"""

from __future__ import annotations

from qpidha.amqp.peer.links import is_settled
from qpidha.amqp.peer.terminus import ACCEPTED, REJECTED
from qpidha.amqp.peer.values import remote_outcome
from qpidha.model.message_view import build
from tests.amqp.work import ROLLBACK, Work, a_host, a_replicating_host, declare

# Commits.


def test_a_commit_that_does_not_fit_changes_nothing() -> None:
    work = Work(declare(a_host("full", max_count=3, flow_stop_count=0)))
    to_full, to_q = work.sender("full", "s1"), work.sender("q", "s2")
    (delivery,) = work.taken("taken")
    work.retire(delivery)
    work.post(to_q, build("no"))
    for number in range(4):
        work.post(to_full, build(number))
    refused = work.discharge()
    assert (refused.state, refused.condition) == (REJECTED, ROLLBACK)
    assert work.contents("full") == []
    assert work.contents() == ["taken"]


def test_a_commit_to_a_deleted_queue_is_rolled_back() -> None:
    work = Work(a_host("q", "other"))
    work.post(work.sender("q"), build("x"))
    work.post(work.sender("other", "s2"), build("y"))
    work.turn()
    work.broker.delete_queue("q")
    assert work.discharge().condition == ROLLBACK
    assert work.contents("other") == []


def test_a_commit_is_answered_when_it_is_committed() -> None:
    work = Work(a_replicating_host())
    work.post(work.sender(), build("x"))
    work.turn()
    work.host.delaying = True
    sent = work.discharge()
    assert sent.state == 0
    assert work.contents() == ["x"]
    work.host.release_all()
    work.turn()
    assert (sent.state, sent.is_settled) == (ACCEPTED, True)


def test_unsettled_outcomes_are_answered_when_the_commit_is_committed() -> None:
    work = Work(a_replicating_host())
    (delivery,) = work.taken("a")
    work.retire(delivery, settled=False)
    work.host.delaying = True
    work.discharge()
    assert not is_settled(delivery)
    work.host.release_all()
    work.turn()
    assert (is_settled(delivery), remote_outcome(delivery).state) == (True, ACCEPTED)


# Everybody who leaves.


def test_everything_abandoned_is_rolled_back() -> None:
    for leave in (
        lambda work: work.client.detach(work.control),
        lambda work: work.client.end_session(),
        lambda work: work.client.server.lost("gone"),
        lambda work: work.client.server.close(),
    ):
        work = Work()
        server = work.client.server
        transactions = server.owner.transactions
        first, second = work.taken("a", "b")
        work.retire(first)
        work.retire(second, settled=False)
        work.post(work.sender(), build("never"))
        work.turn()
        assert work.broker.use.transactions == transactions.bytes > 0
        leave(work)
        work.turn()
        if server.closed or not work.broker.queues["q"].consumers:
            assert work.available() == ["a", "b"]
            assert [
                message.delivery_count for message in work.broker.queues["q"].messages.values()
            ] == [1, 1]
        assert work.contents() == ["a", "b"]
        assert len(transactions) == 0
        assert transactions.bytes == work.broker.use.transactions == 0


def test_a_receiver_that_leaves_lets_its_outcomes_stand() -> None:
    for committed in (True, False):
        work = Work()
        first, second = work.taken("a", "b")
        work.retire(first)
        work.retire(second, settled=False)
        work.receiver.end()
        work.turn()
        assert work.available() == []
        work.discharge(failed=not committed)
        assert work.available() == work.contents() == ([] if committed else ["a", "b"])


def test_a_sender_that_leaves_lets_its_messages_stand() -> None:
    work = Work()
    sender = work.sender()
    work.post(sender, build("x"))
    work.turn()
    sender.end()
    work.commit()
    assert work.contents() == ["x"]


def test_a_connection_that_is_lost_while_its_commit_is_not_committed_has_committed() -> None:
    work = Work(a_replicating_host())
    work.post(work.sender(), build("x"))
    work.host.delaying = True
    work.discharge()
    work.client.server.lost("gone")
    work.host.release_all()
    assert work.contents() == ["x"]
