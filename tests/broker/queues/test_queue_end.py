"""How long a queue lives and whose it is: owners, auto-delete and its timeout, lifetime policies,
deletion.
"""

from __future__ import annotations

import pytest

from qpidha.broker import broker as broker_module
from qpidha.broker.broker import Broker
from qpidha.broker.queues import remains
from qpidha.broker.queues.queue import Queue
from qpidha.model.errors import NotFound, PreconditionFailed, ResourceLocked
from qpidha.model.records import Cause, QueueDeleted
from tests.broker.parts import (
    Taker,
    Tape,
    a_broker,
    a_poster,
    a_taker,
    contents,
    copy_of,
    picture,
    send,
)

SECOND = 1_000_000_000


def test_exclusive_queue_is_its_owners_until_it_goes() -> None:
    broker = a_broker()
    mine, other = object(), object()
    queue, _ = broker.declare_queue("q", exclusive=True, owner=mine)
    assert broker.declare_queue("q", exclusive=True, owner=mine) == (queue, 0)
    for attempt in (True, False):
        with pytest.raises(ResourceLocked):
            broker.declare_queue("q", exclusive=attempt, owner=other)
    with pytest.raises(ResourceLocked):
        queue.check_access(other)
    queue.check_access(mine)
    broker.owner_gone(mine)
    assert broker.declare_queue("q", exclusive=True, owner=other) == (queue, 0)
    with pytest.raises(ResourceLocked):
        queue.check_access(mine)


def test_auto_delete_queue_goes_with_its_last_consumer_but_not_before_the_first() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", auto_delete=True)
    queue.remove_sender(a_poster(queue))
    first, second = a_taker(queue), a_taker(queue)
    queue.unsubscribe(first)
    assert "q" in broker.queues
    queue.unsubscribe(second)
    assert "q" not in broker.queues
    assert tape.last == QueueDeleted(queue.uid)


def test_auto_delete_timeout_starts_when_nobody_uses_the_queue() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q", arguments={"qpid.auto_delete_timeout": 1})
    broker.dispatch(SECOND)
    taker = a_taker(queue)
    queue.unsubscribe(taker)
    broker.dispatch(100 * SECOND)
    assert broker.next_deadline == 101 * SECOND
    broker.tick(101 * SECOND - 1)
    assert "q" in broker.queues
    broker.tick(101 * SECOND)
    assert "q" not in broker.queues


def test_auto_delete_timeout_is_called_off_by_a_consumer() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q", arguments={"qpid.auto_delete_timeout": 1})
    queue.unsubscribe(a_taker(queue))
    broker.dispatch(SECOND)
    taker = a_taker(queue)
    broker.tick(3 * SECOND)
    assert "q" in broker.queues
    queue.unsubscribe(taker)
    broker.dispatch(4 * SECOND)
    broker.tick(5 * SECOND)
    assert "q" not in broker.queues


def test_exclusive_auto_delete_queue_goes_with_its_owner() -> None:
    broker = a_broker()
    owner = object()
    queue, _ = broker.declare_queue("q", exclusive=True, auto_delete=True, owner=owner)
    queue.unsubscribe(a_taker(queue))
    assert "q" in broker.queues
    broker.owner_gone(owner)
    assert "q" not in broker.queues
    broker.owner_gone(owner)


@pytest.mark.parametrize(
    ("policy", "ends_with"),
    [
        ("delete-on-close", "owner"),
        ("delete-if-unused", "links"),
        ("delete-if-empty", "messages"),
        ("delete-if-unused-and-empty", "links and messages"),
        ("manual", ""),
    ],
)
def test_lifetime_policy_says_when_a_queue_ends(policy: str, ends_with: str) -> None:
    broker = a_broker()
    owner = object()
    queue, _ = broker.declare_queue("q", arguments={"qpid.lifetime-policy": policy}, owner=owner)

    def ended_now(what: str) -> bool:
        ended.append(what)
        over = "q" not in broker.queues
        assert over == (bool(ends_with) and all(part in ended for part in ends_with.split(" and ")))
        return over

    ended: list[str] = []
    poster = a_poster(queue)
    taker = a_taker(queue, 1)
    send(broker, "q", "a")
    broker.dispatch(1)
    queue.unsubscribe(taker)
    if ended_now("consumers"):
        return
    queue.remove_sender(poster)
    if ended_now("links"):
        return
    queue.dequeue(taker.got[0])
    if ended_now("messages"):
        return
    broker.owner_gone(owner)
    ended_now("owner")


def test_delete_respects_if_unused_and_if_empty() -> None:
    broker = a_broker()
    queue, _ = broker.declare_queue("q")
    send(broker, "q", "a")
    a_taker(queue)
    with pytest.raises(PreconditionFailed):
        broker.delete_queue("q", if_unused=True)
    with pytest.raises(PreconditionFailed):
        broker.delete_queue("q", if_empty=True)
    broker.delete_queue("q")
    with pytest.raises(NotFound):
        broker.delete_queue("q")
    with pytest.raises(NotFound):
        broker.purge("q")


def test_redeclared_queue_is_another_queue() -> None:
    tape = Tape()
    broker = a_broker(tape)
    former, _ = broker.declare_queue("q")
    broker.bind("amq.topic", "q", "k")
    send(broker, "q", "old")
    (message,) = former.messages_after(0, 1)
    broker.delete_queue("q")
    queue, _ = broker.declare_queue("q")
    assert (queue.uid, queue.uuid) != (former.uid, former.uuid)
    assert contents(broker, "q") == [] and queue.bindings == {}
    recorded = len(tape.records)
    assert former.dequeue(message) == recorded == len(tape.records)


def test_subscriber_of_a_queue_deleted_by_its_owner_is_told() -> None:
    broker = a_broker()
    owner = object()
    queue, _ = broker.declare_queue(
        "q", arguments={"qpid.lifetime-policy": "delete-on-close"}, owner=owner
    )
    taker: Taker = a_taker(queue)
    broker.owner_gone(owner)
    assert taker.is_told


def left_behind(monkeypatch: pytest.MonkeyPatch, tape: Tape) -> tuple[Broker, list[Queue]]:
    """Queues of an owner who is gone, of which a turn ends two."""
    monkeypatch.setattr(broker_module, "WALKED_A_TURN", 12)
    broker, owner = a_broker(tape), object()
    arguments = {"qpid.replicate": "all"}
    queues = [
        broker.declare_queue(
            f"q{number}", exclusive=True, auto_delete=number != 6, arguments=arguments, owner=owner
        )[0]
        for number in range(8)
    ]
    broker.owner_gone(owner)
    assert list(broker.queues) == [f"q{number}" for number in range(2, 8)]
    return broker, queues


def test_many_queues_of_an_owner_end_some_a_turn_or_when_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tape = Tape()
    broker, former = left_behind(monkeypatch, tape)
    assert broker.may_walk(0)
    other = object()
    queue, _ = broker.declare_queue("q7", exclusive=True, auto_delete=True, owner=other)
    assert former[7].deleted and queue is not former[7] and queue.owner is other
    assert broker.declare_queue("q6", exclusive=True, owner=other)[0] is former[6]
    assert former[6].owner is other
    with pytest.raises(NotFound):
        broker.queue("q5")
    broker.dispatch(1)
    assert list(broker.queues) == ["q4", "q6", "q7"]
    for _ in range(2):
        broker.dispatch(1)
    assert list(broker.queues) == ["q6", "q7"] and not broker.may_walk(0)
    broker.owner_gone(other)
    assert list(broker.queues) == ["q6"]


def test_a_broker_that_is_demoted_leaves_the_queues_of_an_owner_to_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tape = Tape()
    broker, former = left_behind(monkeypatch, tape)
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    assert not broker.may_walk(0) and not any(queue.owner for queue in former)
    assert list(broker.queues) == [f"q{number}" for number in range(2, 8)]
    assert picture(broker) == picture(copy_of(tape))


@pytest.mark.parametrize("is_copy", [False, True], ids=["primary", "backup"])
def test_performance_4_what_a_long_queue_had_is_freed_some_a_turn(
    is_copy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remains, "FREED_A_TURN", 2)
    tape = Tape()
    broker = a_broker(tape)
    for name, bodies in (("short", "ab"), ("long", "abcde"), ("longer", "abcdef")):
        broker.declare_queue(name)
        send(broker, name, *bodies)
    if is_copy:
        broker = copy_of(tape)
    former = dict(broker.queues)
    for queue in former.values():
        if is_copy:
            broker.apply(len(tape.records) + 1, QueueDeleted(queue.uid))
        else:
            broker.delete_queue(queue.name)
        assert not queue.messages and not queue.bytes and not queue.available()
    for left in (9, 7, 5, 3, 1):
        broker.remains.free()
        assert len(broker.remains) == left
    broker.remains.free()
    assert not broker.remains
    assert former["long"].departed[Cause.DELETED] == 5


def test_what_many_short_queues_had_is_freed_some_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remains, "FREED_A_TURN", 2)
    broker = a_broker(Tape())
    broker.remains.free()
    for name in "abcd":
        broker.declare_queue(name)
        send(broker, name, "1", "2")
    for name in "abcd":
        broker.delete_queue(name)
    for left in (6, 4, 2, 0):
        assert len(broker.remains) == left
        broker.remains.free()
