"""A long queue with an alternate exchange is deleted in steps: where its messages are after each,
who may use it meanwhile, and what a failover leaves.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker import broker as broker_module
from qpidha.broker.broker import PUT_OFF, Broker
from qpidha.broker.queues import deletion as deletion_module
from qpidha.broker.queues.deletion import Deletion
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Post, Transaction
from qpidha.model.errors import LimitExceeded, NotFound, ResourceDeleted, ResourceLocked
from qpidha.model.records import Cause, Dequeued, Enqueued, QueueDeclared, QueueDeleted
from tests.broker.parts import Tape, a_broker, a_poster, a_taker, contents, copy_of, picture, send

FOR_EVER = 1 << 60
SECOND = 1_000_000_000
FULL = "the disk is nearly full"


@pytest.fixture(autouse=True)
def two_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "PASSED_ON_A_TURN", 2)


def filled(bodies: str = "abcde", *, auto_delete: bool = False) -> tuple[Broker, Queue, Tape]:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("orphans")
    broker.bind("amq.fanout", "orphans")
    queue, _ = broker.declare_queue("q", alternate="amq.fanout", auto_delete=auto_delete)
    # What leaves it must not come back to it.
    broker.bind("amq.fanout", "q")
    for body in bodies:
        send(broker, "q", body)
    return broker, queue, tape


def over(deletion: Deletion) -> list[int]:
    """Where it is written that a deletion is over, and for what to wait then."""
    said: list[int] = []
    deletion.when_over(lambda: said.append(deletion.sequence))
    return said


def finish(broker: Broker) -> None:
    while broker.walks:
        broker.go_on_walking(FOR_EVER)


def test_performance_4_each_step_moves_some_and_waits_until_the_one_before_is_committed() -> None:
    broker, queue, tape = filled()
    first, before = min(queue.messages), len(tape.records)
    deletion = broker.delete_queue("q")
    said = over(deletion)
    assert contents(broker, "orphans") == [] and len(tape.records) == before
    broker.go_on_walking(0)
    assert contents(broker, "orphans") == list("ab") and contents(broker, "q") == list("cde")
    assert tape.last == Dequeued(queue.uid, (first, first + 1), Cause.DELETED)
    assert broker.may_walk(deletion.sequence) and not broker.may_walk(deletion.sequence - 1)
    broker.go_on_walking(deletion.sequence - 1)
    assert contents(broker, "q") == list("cde") and deletion.sequence == len(tape.records)
    finish(broker)
    assert contents(broker, "orphans") == list("abcde") and "q" not in broker.queues
    assert [type(record) for _, record in tape.records[before:]] == [
        *(Enqueued, Enqueued, Dequeued) * 2,
        Enqueued,
        QueueDeleted,
    ]
    assert said == [len(tape.records)] and not queue.messages
    assert queue.departed[Cause.DELETED] == 5
    assert picture(copy_of(tape)) == picture(broker)


def test_a_short_queue_ends_in_the_turn_and_one_without_alternate_whatever_its_length() -> None:
    broker, _, tape = filled("a")
    assert over(broker.delete_queue("q")) == [len(tape.records)]
    assert contents(broker, "orphans") == ["a"] and not broker.walks
    broker.declare_queue("q")
    send(broker, "q", *"abcde")
    assert over(broker.delete_queue("q")) == [len(tape.records)] and not broker.walks


def test_a_step_passes_on_no_more_than_some_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "PASSED_ON_A_TURN", 100)
    monkeypatch.setattr(deletion_module, "BYTES_A_TURN", 3)
    broker, _, _ = filled("abcde")
    broker.delete_queue("q")
    broker.go_on_walking(FOR_EVER)
    assert contents(broker, "orphans") == list("abc")


def test_a_long_deletion_rests_while_there_is_no_room_on_the_disk() -> None:
    broker, _, tape = filled()
    send(broker, "orphans", *"xyz")
    deletion = broker.delete_queue("q")
    broker.go_on_walking(FOR_EVER)
    broker.refuse_publishing, before = FULL, len(tape.records)
    purge = broker.purge("orphans")
    assert broker.may_walk(FOR_EVER)
    broker.go_on_walking(FOR_EVER)
    assert purge.is_over and contents(broker, "orphans") == []
    assert contents(broker, "q") == list("cde") and len(tape.records) == before + 1
    assert not broker.may_walk(FOR_EVER)
    broker.refuse_publishing = ""
    assert broker.may_walk(FOR_EVER)
    finish(broker)
    assert deletion.is_over and contents(broker, "orphans") == list("cde")


@pytest.mark.parametrize("policy", ["delete-on-close", "delete-if-unused"])
def test_a_short_deletion_rests_as_well_while_there_is_no_room_on_the_disk(policy: str) -> None:
    broker, _, tape = filled("")
    owner = object()
    arguments = {"qpid.lifetime-policy": policy, "qpid.replicate": "all"}
    queue, _ = broker.declare_queue(
        "short", alternate="amq.fanout", arguments=arguments, owner=owner
    )
    taker = a_taker(queue)
    send(broker, "short", "a")
    broker.refuse_publishing, before = FULL, len(tape.records)
    queue.unsubscribe(taker)
    broker.owner_gone(owner)
    broker.go_on_walking(FOR_EVER)
    assert len(tape.records) == before and not broker.may_walk(FOR_EVER)
    with pytest.raises(ResourceLocked, match=FULL):
        broker.declare_queue("short")
    broker.refuse_publishing = ""
    finish(broker)
    assert contents(broker, "orphans") == ["a"] and "short" not in broker.queues
    assert picture(copy_of(tape)) == picture(broker)


def test_an_unused_queue_is_there_for_its_users_while_there_is_no_room_for_what_it_has() -> None:
    broker, _, _ = filled("")
    arguments = {"qpid.auto_delete_timeout": 1}
    queue, _ = broker.declare_queue("unused", alternate="amq.fanout", arguments=arguments)
    send(broker, "unused", "a")
    queue.unsubscribe(a_taker(queue))
    broker.dispatch(SECOND)
    broker.refuse_publishing = FULL
    broker.tick(2 * SECOND)
    assert not queue.deleted and contents(broker, "orphans") == []
    assert broker.next_deadline == 2 * SECOND + PUT_OFF
    broker.refuse_publishing = ""
    broker.tick(2 * SECOND + PUT_OFF)
    assert "unused" not in broker.queues and contents(broker, "orphans") == ["a"]


@pytest.mark.parametrize("bodies", ["a", "abcde"], ids=["short", "long"])
def test_what_goes_to_queues_that_are_not_recorded_needs_no_room_on_the_disk(bodies: str) -> None:
    broker, _, _ = filled(bodies)
    broker.delete_queue("orphans")
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    broker.bind("amq.fanout", "local")
    broker.refuse_publishing = FULL
    broker.delete_queue("q", may_rest=True)
    finish(broker)
    assert contents(broker, "local") == list(bodies) and "q" not in broker.queues


def test_a_purge_ends_a_queue_whose_deletion_rests() -> None:
    broker, queue, tape = filled()
    said = over(broker.delete_queue("q"))
    broker.go_on_walking(FOR_EVER)
    broker.refuse_publishing = FULL
    broker.go_on_walking(FOR_EVER)
    with pytest.raises(ResourceLocked, match=FULL):
        broker.bind("amq.direct", "q")
    purge = broker.purge("q")
    assert purge.is_over and purge.count == 3 and [purge.sequence] == said == [len(tape.records)]
    assert "q" not in broker.queues and not queue.messages
    broker.refuse_publishing = ""
    assert not broker.walks and contents(broker, "orphans") == list("ab")
    assert picture(copy_of(tape)) == picture(broker)


def test_a_deletion_that_rests_comes_to_nothing_on_a_broker_that_is_demoted() -> None:
    broker, queue, tape = filled()
    broker.refuse_publishing = FULL
    broker.delete_queue("q", may_rest=True)
    broker.go_on_walking(FOR_EVER)
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    broker.refuse_publishing = ""
    assert not queue.deleted and not broker.walks and picture(broker) == picture(copy_of(tape))


def unused(broker: Broker, name: str, body: str, **options: Any) -> Queue:
    """A queue that has a message and loses its user."""
    queue, _ = broker.declare_queue(name, alternate="amq.fanout", **options)
    taker = a_taker(queue)
    send(broker, name, body)
    queue.unsubscribe(taker)
    return queue


@pytest.mark.parametrize(
    ("most", "size", "body"),
    [(20, 8 << 20, "a"), (500, 10, "123456789")],
    ids=["messages", "bytes"],
)
def test_what_many_short_queues_have_is_passed_on_some_a_turn_when_their_time_is_over(
    most: int, size: int, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_module, "PASSED_ON_A_TURN", 100)
    monkeypatch.setattr(deletion_module, "BYTES_A_TURN", size)
    monkeypatch.setattr(broker_module, "WALKED_A_TURN", most)
    broker, _, _ = filled("")
    for number in range(5):
        unused(broker, f"u{number}", body, arguments={"qpid.auto_delete_timeout": 1})
    for passed_on in (2, 4, 5):
        broker.dispatch(SECOND)
        assert broker.next_deadline == 2 * SECOND
        broker.tick(2 * SECOND)
        assert len(contents(broker, "orphans")) == passed_on
    broker.dispatch(2 * SECOND)
    assert not broker.next_deadline and len(broker.queues) == 2


def test_queues_that_end_beyond_what_a_turn_has_time_for_end_later_or_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletion_module, "PASSED_ON_A_TURN", 100)
    monkeypatch.setattr(broker_module, "WALKED_A_TURN", 10)
    broker, _, tape = filled("")
    former = [unused(broker, f"u{body}", body, auto_delete=True) for body in "abcd"]
    assert all(queue.deleted for queue in former) and contents(broker, "orphans") == ["a"]
    assert broker.publish("", "ub", b"new", headers=dict).queues == 0
    with pytest.raises(ResourceLocked):
        broker.declare_queue("ub")
    broker.dispatch(1)
    queue, _ = broker.declare_queue("ud")
    assert queue is not former[3] and contents(broker, "orphans") == ["a", "d"]
    broker.go_on_walking(FOR_EVER)
    assert contents(broker, "orphans") == ["a", "d", "b"]
    finish(broker)
    assert contents(broker, "orphans") == ["a", "d", "b", "c"]
    assert list(broker.queues) == ["orphans", "q", "ud"]
    assert picture(copy_of(tape)) == picture(broker)


def test_what_no_queue_of_the_alternate_exchange_can_take_goes_to_its_own_alternate() -> None:
    broker, _, _ = filled("")
    broker.declare_exchange("dead", "fanout", alternate="amq.fanout")
    for name, bodies in (("short", "a"), ("long", "bcd")):
        broker.declare_queue(name, alternate="dead")
        broker.bind("dead", name)
        send(broker, name, *bodies)
        broker.delete_queue(name)
        if broker.walks:
            assert broker.publish("dead", "", b"new", headers=dict).queues == 2
            transaction = Transaction(broker)
            transaction.post(Post(b"newer", 0, exchange="dead", key="", must_route=True))
            transaction.commit()
        finish(broker)
    assert contents(broker, "orphans") == ["a", "new", "newer", "b", "c", "d"]


@pytest.mark.parametrize("bodies", ["a", "abcde"], ids=["short", "long"])
def test_no_deletion_begins_for_which_there_is_no_room_on_the_disk(bodies: str) -> None:
    broker, _, _ = filled(bodies)
    broker.refuse_publishing = FULL
    with pytest.raises(LimitExceeded, match="cannot be deleted at present.*the disk is nearly"):
        broker.delete_queue("q")
    broker.purge("q")
    broker.delete_queue("q")
    assert "q" not in broker.queues and contents(broker, "orphans") == []


def test_nobody_uses_a_queue_that_is_being_deleted_and_its_name_is_taken() -> None:
    broker, queue, tape = filled()
    taker, poster = a_taker(queue, 1), a_poster(queue)
    broker.dispatch(1)
    broker.delete_queue("q")
    broker.go_on_walking(FOR_EVER)
    assert taker.is_told and poster.told == 0
    queue.release(taker.got[0])
    recorded = len(tape.records)
    assert queue.dequeue(taker.got[0]) == recorded == len(tape.records)
    assert broker.publish("", "q", b"new", headers=dict).queues == 0
    assert broker.publish("amq.fanout", "", b"new", headers=dict).queues == 1
    transaction = Transaction(broker)
    transaction.post(Post(b"newer", 0, exchange="amq.fanout", key=""))
    transaction.commit()
    for refused in (
        lambda: broker.declare_queue("q"),
        lambda: broker.bind("amq.direct", "q"),
        lambda: broker.purge("q"),
        lambda: broker.delete_queue("q"),
    ):
        with pytest.raises(ResourceLocked):
            refused()
    with pytest.raises(ResourceDeleted):
        queue.enqueue(b"new")
    with pytest.raises(ResourceDeleted):
        a_taker(queue)
    queue.remove_sender(poster)
    broker.dispatch(2)
    finish(broker)
    assert sorted(contents(broker, "orphans")) == ["a", "b", "c", "d", "e", "new", "newer"]
    assert broker.declare_queue("q")[0] is not queue


def test_what_a_consumer_has_done_with_meanwhile_is_not_passed_on() -> None:
    broker, queue, _ = filled()
    taker = a_taker(queue, 5)
    broker.dispatch(1)
    broker.delete_queue("q")
    broker.go_on_walking(FOR_EVER)
    queue.dequeue(taker.got[3])
    finish(broker)
    assert contents(broker, "orphans") == list("abce")


@pytest.mark.parametrize("auto_delete", [False, True])
def test_a_failover_between_two_steps_loses_nothing(auto_delete: bool) -> None:
    broker, queue, tape = filled(auto_delete=auto_delete)
    if auto_delete:
        queue.unsubscribe(a_taker(queue))
    else:
        broker.delete_queue("q")
    ends = [len(tape.records)]
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
        ends.append(len(tape.records))
    for steps, end in enumerate(ends[:-1]):
        read = Tape()
        read.records = tape.records[:end]
        other = copy_of(read)
        assert contents(other, "orphans") == list("abcde")[: 2 * steps]
        assert contents(other, "q") == list("abcde")[2 * steps :]
        other.log_writer = read
        other.promoted(1)
        if auto_delete:
            other.tick(60 * SECOND)
        else:
            send(other, "q", "more")
            other.delete_queue("q")
        finish(other)
        assert contents(other, "orphans") == [*"abcde", *([] if auto_delete else ["more"])]
        with pytest.raises(NotFound):
            other.queue("q")


def test_a_broker_that_is_demoted_meanwhile_has_a_queue_like_its_successor() -> None:
    broker, queue, tape = filled()
    said = over(broker.delete_queue("q"))
    broker.go_on_walking(FOR_EVER)
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    assert picture(broker) == picture(copy_of(tape)) and said == []
    broker.log_writer = tape
    broker.promoted(1)
    assert send(broker, "q", "more") and contents(broker, "q") == [*"cde", "more"]


def test_a_local_queue_ends_with_the_broker_that_decided() -> None:
    broker, _, _ = filled()
    queue, _ = broker.declare_queue(
        "local", alternate="amq.fanout", arguments={"qpid.replicate": "none"}
    )
    send(broker, "local", *"12345")
    broker.delete_queue("local")
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    assert "local" not in broker.queues and queue.deleted and not broker.walks


@pytest.mark.parametrize("bodies", ["1", "12345"], ids=["at once", "in steps"])
def test_a_local_queue_of_a_backup_ends_though_nothing_can_be_passed_on(bodies: str) -> None:
    _, _, tape = filled()
    backup = copy_of(tape)
    queue, _ = backup.declare_queue(
        "local", alternate="amq.fanout", arguments={"qpid.replicate": "none"}
    )
    send(backup, "local", *bodies)
    backup.delete_queue("local")
    finish(backup)
    assert "local" not in backup.queues and queue.not_rerouted == len(bodies)
    assert picture(backup) == picture(copy_of(tape))


def test_a_local_queue_that_is_being_deleted_makes_room_for_a_replicated_one_of_its_name() -> None:
    _, _, tape = filled()
    backup = copy_of(tape)
    backup.declare_queue("new", alternate="amq.fanout", arguments={"qpid.replicate": "none"})
    send(backup, "new", *"12345")
    said = over(backup.delete_queue("new"))
    backup.go_on_walking(FOR_EVER)
    sequence = tape.append(QueueDeclared("new", uuid="u", replicate="all"))
    backup.apply(sequence, tape.last)
    finish(backup)
    assert backup.queue("new").uid == sequence and len(said) == 1
    assert picture(backup) == picture(copy_of(tape))
