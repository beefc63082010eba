"""A queue is given another spec while messages are on it."""

from __future__ import annotations

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues import backlog, messages, recall
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.lifetime import Lifetime
from qpidha.broker.queues.queue import Queue
from qpidha.broker.queues.spec import Needs, QueueSpec, compile_spec
from qpidha.model.duration import SECOND
from qpidha.model.encoding import Described, Symbol, ULong, encode
from qpidha.model.errors import LimitExceeded, PreconditionFailed
from qpidha.model.message_view import build
from qpidha.model.records import QueueDeclared, QueueDeleted, QueueUsed
from tests.broker.parts import (
    Reels,
    Tape,
    a_broker,
    a_taker,
    contents,
    copy_of,
    picture,
    remembered,
    send,
)

FOR_EVER = 1 << 60


def a_spec(*, durable: bool = False, auto_delete: bool = False, **arguments: object) -> QueueSpec:
    given = {"qpid." + name: value for name, value in arguments.items()}
    given |= {
        name.replace("qpid.", "qpidha."): given.pop(name)
        for name in list(given)
        if name.startswith("qpid.dedup")
    }
    return compile_spec(
        QueueDeclared("q", "", durable=durable, auto_delete=auto_delete, arguments=given),
        QueueDefaults(),
    )


def a_queue(tape: Tape | None = None, **arguments: object) -> tuple[Broker, Queue]:
    broker = a_broker(Tape() if tape is None else tape)
    queue, _ = broker.declare_queue("q")
    queue.reconfigure(a_spec(**arguments))
    return broker, queue


def a_key(key: str) -> bytes:
    return build("", properties={"message_id": key})


def test_a_lower_limit_refuses_until_there_is_room_and_drops_nothing() -> None:
    broker, queue = a_queue()
    send(broker, "q", "a", "b", "c")
    queue.reconfigure(a_spec(max_count=2))
    assert contents(broker, "q") == ["a", "b", "c"]
    with pytest.raises(LimitExceeded):
        send(broker, "q", "d")
    queue.drop(queue.available()[:2])
    send(broker, "q", "e")
    assert contents(broker, "q") == ["c", "e"]


def test_a_queue_made_a_ring_makes_room_for_the_next_message() -> None:
    broker, queue = a_queue()
    send(broker, "q", "a", "b", "c", "d")
    queue.reconfigure(a_spec(max_count=2, policy_type="ring"))
    send(broker, "q", "e")
    assert contents(broker, "q") == ["d", "e"]
    queue.reconfigure(a_spec())
    send(broker, "q", "f", "g")
    assert contents(broker, "q") == ["d", "e", "f", "g"]


def test_a_window_that_is_turned_on_knows_the_messages_that_are_there() -> None:
    broker, queue = a_queue()
    original = queue.enqueue(a_key("a"))
    queue.reconfigure(a_spec(dedup="message-id", dedup_window=5))
    assert queue.enqueue(a_key("a")) == original
    queue.enqueue(a_key("b"))
    assert (len(queue.messages), queue.deduplicated) == (2, 1)
    queue.reconfigure(a_spec())
    queue.enqueue(a_key("b"))
    assert len(queue.messages) == 3


def test_a_shorter_window_forgets_the_oldest_keys() -> None:
    _, queue = a_queue(dedup="message-id", dedup_window=9)
    for key in "abc":
        queue.enqueue(a_key(key))
    queue.drop(queue.available())
    queue.reconfigure(a_spec(dedup="message-id", dedup_window=2))
    queue.enqueue(a_key("c"))
    assert queue.messages == {}
    queue.enqueue(a_key("a"))
    assert len(queue.messages) == 1


def test_a_replica_that_is_given_the_same_specs_has_the_same_window() -> None:
    tape = Tape()
    _, queue = a_queue(tape)
    for key in "abcd":
        queue.enqueue(a_key(key))
    queue.drop(queue.available()[:1])
    other = copy_of(tape)
    replica = other.queues["q"]
    for spec in (
        a_spec(dedup="message-id", dedup_window=3),
        a_spec(dedup="message-id", dedup_window=1),
        a_spec(dedup="message-id", dedup_window=3),
    ):
        replica.reconfigure(spec)
        before = tape.end
        queue.reconfigure(spec)
        for sequence, record in tape.records[before:]:
            other.apply(sequence, record)
        assert queue.window is not None and replica.window is not None
        assert remembered(queue.window) == remembered(replica.window)
    assert [key for key, _ in remembered(replica.window)] == ["s:b", "s:c", "s:d"]


@pytest.mark.parametrize("has_room", [True, False])
def test_a_window_of_many_messages_is_filled_some_a_turn_and_a_replica_reads_none(
    monkeypatch: pytest.MonkeyPatch, has_room: bool
) -> None:
    monkeypatch.setattr(recall, "READ_A_TURN", 2)
    tape = Tape()
    broker, queue = a_queue(tape)
    for key in "abcdefgh":
        queue.enqueue(a_key(key))
    other = copy_of(tape)
    copy, reels = other.queues["q"], Reels(tape)
    for each in (queue, copy):
        each.page_out(0, tape.end, reels)
    before = tape.end
    if not has_room:
        broker.refuse_publishing = "the disk is full"
    spec = a_spec(dedup="message-id", dedup_window=6)
    copy.reconfigure(spec)
    assert reels.read_count == 0
    queue.reconfigure(spec)
    if not has_room:
        broker.go_on_walking(FOR_EVER)
        assert reels.read_count == 0 and not broker.may_walk(FOR_EVER)
        broker.refuse_publishing = ""
        broker.go_on_walking(FOR_EVER)
    assert reels.read_count == 2
    gone = queue.messages[tape.records[before - 1][0]]
    queue.dequeue(gone)  # what leaves before it is read is not remembered
    queue.enqueue(a_key("new"))
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert [key for key, _ in remembered(queue.window)] == ["s:" + key for key in "cdefg"] + [
        "s:new"
    ]
    assert reels.read_count == 5
    for sequence, record in tape.records[before:]:
        other.apply(sequence, record)
    assert remembered(copy.window) == remembered(queue.window) and reels.read_count == 5
    assert picture(broker) == picture(other)


def test_messages_that_the_window_does_not_take_stay_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(messages, "FEWEST", 2)
    monkeypatch.setattr(messages, "PIECE", 10)
    monkeypatch.setattr(backlog, "LONG", 3)
    monkeypatch.setattr(backlog, "AHEAD", 1)
    monkeypatch.setattr(recall, "READ_A_TURN", 2)
    broker, queue = a_queue()
    keys = [str(number) for number in range(60)]
    for key in keys:
        queue.enqueue(a_key(key))
    cursor = 0
    while cursor := queue.pack_some(cursor, 50):
        pass
    packed = queue.messages.packed
    assert packed > 40
    queue.reconfigure(a_spec(dedup="message-id", dedup_window=7))
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert [key for key, _ in remembered(queue.window)] == ["s:" + key for key in keys[-7:]]
    assert queue.messages.packed > packed - 10


def test_a_window_that_changes_again_is_filled_by_its_last_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recall, "READ_A_TURN", 1)
    broker, queue = a_queue()
    for key in "ab":
        queue.enqueue(a_key(key))
    queue.reconfigure(a_spec(dedup="x-key"))
    queue.reconfigure(a_spec(dedup="message-id"))
    while broker.walks:
        broker.go_on_walking(FOR_EVER)
    assert [key for key, _ in remembered(queue.window)] == ["s:a", "s:b"]


def test_a_queue_that_gets_a_lifetime_ends_by_it_and_others_know_of_its_user() -> None:
    tape = Tape()
    broker, queue = a_queue(tape)
    taker = a_taker(queue)
    assert not queue.is_used
    queue.reconfigure(a_spec(auto_delete=True))
    assert queue.is_used and isinstance(tape.last, QueueUsed)
    queue.unsubscribe(taker)
    assert broker.queues == {} and isinstance(tape.last, QueueDeleted)


def test_a_queue_whose_lifetime_is_taken_away_stays() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", auto_delete=True)
    taker = a_taker(queue)
    queue.reconfigure(a_spec(auto_delete_timeout=3))
    assert (queue.lifetime, queue.timeout) == (Lifetime.AUTO_DELETE, 3 * SECOND)
    queue.reconfigure(a_spec())
    queue.unsubscribe(taker)
    assert list(broker.queues) == ["q"]


def test_memory_follows_the_spec_when_messages_are_paged_out() -> None:
    broker, queue = a_queue()
    for spec, is_over in (
        (compile_spec(queue.options, QueueDefaults(memory=3)), True),
        (compile_spec(queue.options, QueueDefaults(memory=300)), False),
    ):
        queue.reconfigure(spec)
        broker.over_budget.clear()
        send(broker, "q", "four")
        assert bool(broker.over_budget) is is_over


def test_a_window_of_other_keys_begins_with_the_messages_that_are_here() -> None:
    broker, queue = a_queue(dedup="message-id")
    first, second = (
        encode(Described(ULong(0x72), {Symbol("x-key"): key}))
        + encode(Described(ULong(0x73), [key, None]))
        for key in "ab"
    )
    for payload in (first, second):
        broker.publish("", "q", payload, headers=dict)
    queue.dequeue(next(iter(queue.messages.values())))
    queue.reconfigure(a_spec(dedup="x-key"))
    assert [key for key, _ in remembered(queue.window)] == ["s:b"]


@pytest.mark.parametrize(
    ("present", "wanted", "reason"),
    [
        ({}, {"lifetime-policy": "delete-on-close"}, "created it"),
        ({}, {"durable": True}, "durable cannot change"),
    ],
)
def test_what_cannot_change_is_refused_with_the_reason_and_nothing_changes(
    present: dict[str, object], wanted: dict[str, object], reason: str
) -> None:
    broker, queue = a_queue(**present)
    send(broker, "q", "a")
    before = queue.spec
    with pytest.raises(PreconditionFailed, match=reason):
        queue.reconfigure(a_spec(max_count=1, **wanted))  # type: ignore[arg-type]
    assert queue.spec is before and queue.max_count > 1
    send(broker, "q", "b")


def test_only_what_is_read_of_a_message_is_needed() -> None:
    assert a_spec().needs is Needs.NOTHING
    assert a_spec(dedup="x-key", durable=True).needs == Needs.DEDUP_KEY | Needs.DURABLE
