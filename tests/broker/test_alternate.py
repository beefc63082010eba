"""The alternate exchange: what is rejected, what a deleted queue had and what a ring lets go of is
on it. What is rejected and finds no place there stays until it does.
"""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker import topic
from qpidha.broker.broker import RETRIED_A_TURN, RETRY_INTERVAL, Broker
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Fate, Retirement, Transaction
from qpidha.model.duration import SECOND
from qpidha.model.effects import Announce
from qpidha.model.errors import QueueFull
from qpidha.model.event_codes import MESSAGE_DROPPED
from qpidha.model.records import QueueDeleted
from qpidha.model.settings import Settings
from qpidha.store.log import Log
from tests.broker.parts import Tape, a_broker, a_message, a_taker, contents, copy_of, picture, send


def test_deleted_queue_gives_its_messages_to_the_alternate_exchange_in_order() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("altq")
    broker.declare_exchange("altex", "fanout")
    broker.bind("altex", "altq")
    queue, _ = broker.declare_queue("q", auto_delete=True, alternate="altex")
    broker.bind("altex", "q")
    send(broker, "q", *"abc")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    queue.unsubscribe(taker)
    assert contents(broker, "altq") == ["a", "b", "c"]
    assert tape.last == QueueDeleted(queue.uid)


def test_rejected_message_is_on_the_alternate_before_it_leaves() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("altq")
    broker.declare_exchange("altex", "topic")
    broker.bind("altex", "altq", "news.#")
    queue, _ = broker.declare_queue("q", alternate="altex")
    payload = a_message("news.today")
    for body in (payload, a_message("other"), b"not AMQP"):
        broker.publish("", "q", body, headers=dict, expires=99)
    taker = a_taker(queue, 3)
    broker.dispatch(1)
    sequence = queue.reject(taker.got[0])
    assert tape.kinds()[-2:] == ["Enqueued", "Dequeued"] and sequence == len(tape.records)
    (message,) = broker.queues["altq"].messages_after(0, 1)
    assert (message.body(), message.expires) == (payload, 99)
    assert queue.reject(taker.got[1]) == queue.reject(taker.got[2]) == 0
    assert len(queue.unplaced) == 2


def test_rejected_message_is_routed_by_its_application_properties() -> None:
    broker = a_broker()
    broker.declare_queue("altq")
    broker.bind("amq.match", "altq", "", {"colour": "red"})
    queue, _ = broker.declare_queue("q", alternate="amq.match")
    broker.publish("", "q", a_message(colour="red"), headers=dict)
    queue.reject(queue.messages_after(0, 1)[0])
    assert len(broker.queues["altq"].messages) == 1


def test_a_subject_that_is_too_long_for_a_key_is_none() -> None:
    broker = a_broker()
    for name, key in (("all", "#"), ("some", "key.#")):
        broker.declare_queue(name)
        broker.bind("amq.topic", name, key)
    queue, _ = broker.declare_queue("q", alternate="amq.topic")
    for words in (64, 65):  # Of 255 bytes and of 259.
        broker.publish("", "q", a_message(".".join(["key"] * words)), headers=dict)
        queue.reject(next(iter(queue.messages.values())))
    assert [len(broker.queues[name].messages) for name in ("q", "all", "some")] == [0, 2, 1]


def test_a_subject_that_takes_too_long_to_be_compared_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic, "MOST_STEPS", 10)
    broker = a_broker()
    broker.declare_queue("all")
    broker.bind("amq.topic", "all", "#")
    broker.bind("amq.topic", "all", "#.a.#")
    queue, _ = broker.declare_queue("q", alternate="amq.topic")
    broker.publish("", "q", a_message("a.a.a.a.a"), headers=dict)
    queue.reject(next(iter(queue.messages.values())))
    assert [len(broker.queues[name].messages) for name in ("q", "all")] == [0, 1]


def with_full_alternate(tape: Tape | None = None, **options: Any) -> tuple[Broker, Queue]:
    """A queue whose alternate exchange has one queue, which has no room."""
    broker = a_broker(tape)
    broker.declare_queue("full", arguments={"qpid.max_count": 1})
    broker.bind("amq.fanout", "full")
    send(broker, "full", "first")
    queue, _ = broker.declare_queue("q", alternate="amq.fanout", **options)
    return broker, queue


def retry(broker: Broker, now: int = SECOND) -> None:
    broker.dispatch(now)
    broker.tick(now + RETRY_INTERVAL)


def test_rabbitmq_d4_a_rejected_message_whose_alternate_is_full_stays_until_there_is_room() -> None:
    tape = Tape()
    announced: list[Any] = []
    broker, queue = with_full_alternate(tape)
    broker._announce = announced.append
    send(broker, "q", "a", "b")
    taker = a_taker(queue, 9)
    broker.dispatch(1)
    for message in taker.got:
        assert queue.reject(message) == 0
    assert contents(broker, "full") == ["first"] and contents(broker, "q") == ["a", "b"]
    assert (queue.statistics()["unplaced"], queue.discarded, queue.rejected) == (2, 0, 0)
    assert [one.level for one in announced] == ["warning"]
    retry(broker)
    assert contents(broker, "q") == ["a", "b"] and len(announced) == 1
    taker.credit = 9
    broker.dispatch(2)
    assert taker.bodies == ["a", "b"]
    for expected in ("a", "b"):
        full = broker.queues["full"]
        full.drop(full.available())
        retry(broker)
        for one in (broker, copy_of(tape)):
            assert contents(one, "full") == [expected]
    assert (len(queue.messages), queue.unplaced, queue.acquired, queue.rejected) == (0, {}, 0, 2)
    assert broker.exchanges["amq.fanout"].received == 2


def test_rabbitmq_d4_a_rejected_message_without_a_queue_stays_until_there_is_one() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", alternate="amq.fanout")
    send(broker, "q", "a")
    queue.reject(next(iter(queue.messages.values())))
    retry(broker)
    assert contents(broker, "q") == ["a"]
    broker.declare_queue("dead")
    broker.bind("amq.fanout", "dead")
    retry(broker)
    assert (contents(broker, "q"), contents(broker, "dead")) == ([], ["a"])
    assert broker.exchanges["amq.fanout"].dropped == 0


def test_a_rejection_in_a_transaction_stays_as_well() -> None:
    broker, queue = with_full_alternate(Tape())
    send(broker, "q", "a")
    taker = a_taker(queue, 1)
    broker.dispatch(1)
    transaction = Transaction(broker)
    transaction.retire(Retirement(transaction, queue, taker.got[0], Fate.REJECT, settled=True))
    transaction.commit()
    assert len(queue.unplaced) == 1 and contents(broker, "q") == ["a"]


def test_a_message_without_a_place_is_retried_only_while_there_is_one() -> None:
    broker, queue = with_full_alternate()
    send(broker, "q", "a")
    broker.dispatch(SECOND)
    assert not broker.next_deadline
    queue.reject(next(iter(queue.messages.values())))
    broker.dispatch(SECOND)
    assert broker.next_deadline == SECOND + RETRY_INTERVAL
    broker.queues["full"].drop(broker.queues["full"].available())
    broker.tick(SECOND + RETRY_INTERVAL)
    broker.dispatch(SECOND + RETRY_INTERVAL)
    assert not queue.messages and not broker.next_deadline


def test_a_message_without_a_place_goes_with_a_purge() -> None:
    broker, queue = with_full_alternate()
    send(broker, "q", "a", "b")
    taker = a_taker(queue, 2)
    broker.dispatch(1)
    queue.reject(taker.got[0])
    assert broker.purge("q").count == 1
    assert contents(broker, "q") == ["b"] and not queue.unplaced
    retry(broker)


def test_a_message_without_a_place_is_dropped_and_counted_with_its_queue() -> None:
    broker, queue = with_full_alternate()
    send(broker, "q", "a")
    queue.reject(next(iter(queue.messages.values())))
    broker.delete_queue("q")
    assert queue.not_rerouted == 1
    retry(broker)


def test_what_a_turn_drops_is_one_line_for_each_queue() -> None:
    said: list[Announce] = []
    broker = Broker(Settings(), None, said.append, lambda: "uuid")
    broker.declare_queue("full", arguments={"qpid.max_count": 1, "qpid.policy_type": "reject"})
    broker.bind("amq.fanout", "full")
    broker.declare_queue("q", alternate="amq.fanout")
    send(broker, "q", "a", "b", "c", "d")
    broker.delete_queue("q")
    broker.dispatch(1)
    broker.dispatch(2)
    (line,) = [each for each in said if each.event_code == MESSAGE_DROPPED]
    assert line.text.startswith("3 messages of queue q dropped, not rerouted: Queue full is full")
    assert line.fields == {"queue": "q", "messages": 3}


def test_an_auto_delete_queue_ends_when_its_last_message_has_found_a_place() -> None:
    broker, queue = with_full_alternate(arguments={"qpid.lifetime-policy": "delete-if-empty"})
    send(broker, "q", "a")
    queue.reject(next(iter(queue.messages.values())))
    assert "q" in broker.queues
    broker.queues["full"].drop(broker.queues["full"].available())
    retry(broker)
    assert "q" not in broker.queues


def test_a_successor_delivers_a_message_without_a_place_again() -> None:
    tape = Tape()
    broker, queue = with_full_alternate(tape)
    send(broker, "q", "a")
    queue.reject(next(iter(queue.messages.values())))
    backup = copy_of(tape)
    backup.log_writer = tape
    for successor in (backup, broker):  # another broker, and the same one at another time
        successor.promoted(1)
        taker = a_taker(successor.queues["q"], 1)
        successor.dispatch(1)
        assert taker.bodies == ["a"] and not successor.queues["q"].unplaced


def test_many_messages_without_a_place_are_tried_in_parts() -> None:
    broker = a_broker()
    broker.declare_queue("dead")
    broker.bind("amq.topic", "dead", "news.#")
    queue, _ = broker.declare_queue("q", alternate="amq.topic")
    for number in range(RETRIED_A_TURN + 1):
        broker.publish("", "q", a_message("other", number=number), headers=dict)
    broker.publish("", "q", a_message("late.news"), headers=dict)
    for message in list(queue.messages.values()):
        queue.reject(message)
    broker.bind("amq.topic", "dead", "late.#")
    retry(broker)
    assert len(broker.queues["dead"].messages) == 0
    retry(broker, 10 * SECOND)
    assert len(broker.queues["dead"].messages) == 1
    assert len(queue.unplaced) == RETRIED_A_TURN + 1


def test_messages_behind_those_that_found_a_place_are_tried_too() -> None:
    broker, queue = with_full_alternate()
    for number in range(RETRIED_A_TURN + 2):
        send(broker, "q", str(number))
    for message in list(queue.messages.values()):
        queue.reject(message)
    broker.declare_queue("large")
    broker.bind("amq.fanout", "large")
    broker.unbind("amq.fanout", "full")
    retry(broker)
    assert len(queue.unplaced) == 2
    retry(broker, 10 * SECOND)
    assert not queue.unplaced and len(broker.queues["large"].messages) == RETRIED_A_TURN + 2


def test_many_queues_with_messages_without_a_place_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("qpidha.broker.broker.RETRIED_A_TURN", 2)
    broker, _ = with_full_alternate()
    for name in "abc":
        queue, _ = broker.declare_queue(name, alternate="amq.fanout")
        send(broker, name, "1", "2")
        for message in list(queue.messages.values()):
            queue.reject(message)
    broker.delete_queue("full")
    broker.declare_queue("large")
    broker.bind("amq.fanout", "large")
    broker.dispatch(SECOND)
    now = SECOND + RETRY_INTERVAL
    for placed in (2, 4, 6):
        assert broker.next_deadline <= now
        broker.tick(now)
        assert len(broker.queues["large"].messages) == placed
    broker.dispatch(now)
    assert not broker.next_deadline


def test_large_messages_without_a_place_are_tried_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("broker", "queues.deletion"):
        monkeypatch.setattr(f"qpidha.broker.{module}.BYTES_A_TURN", 3)
    broker, queue = with_full_alternate()
    other, _ = broker.declare_queue("other", alternate="amq.fanout")
    send(broker, "q", "aa", "bb", "cc")
    send(broker, "other", "dd", "ee")
    for one in (queue, other):
        for message in list(one.messages.values()):
            one.reject(message)
    broker.declare_queue("large")
    broker.bind("amq.fanout", "large")
    broker.unbind("amq.fanout", "full")
    for placed in (2, 4, 5):
        retry(broker, placed * 10 * SECOND)
        assert len(broker.queues["large"].messages) == placed


def test_a_broker_that_was_demoted_does_not_try_again_for_ever() -> None:
    broker, queue = with_full_alternate(Tape())
    send(broker, "q", "a")
    queue.reject(next(iter(queue.messages.values())))
    broker.dispatch(SECOND)
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    broker.tick(SECOND + RETRY_INTERVAL)
    broker.dispatch(SECOND + RETRY_INTERVAL)
    assert not broker.next_deadline and contents(broker, "full") == ["first"]


def test_a_message_that_is_rerouted_does_not_count_as_consumed() -> None:
    log = Log(1 << 20)
    log.start_epoch(1)
    broker = a_broker(log)
    broker.declare_exchange("altex", "fanout")
    broker.declare_queue("altq")
    broker.bind("altex", "altq")
    queue, _ = broker.declare_queue("q", alternate="altex")
    sequence = queue.enqueue(a_message("x"))
    message = queue.messages[sequence]
    queue.acquire(message)
    assert queue.reject(message) > sequence
    assert log.consumed == []
    assert len(broker.queue("altq").messages) == 1


def a_ring(broker: Broker, name: str, alternate: str) -> None:
    broker.declare_queue(
        name, alternate=alternate, arguments={"qpid.max_count": 1, "qpid.policy_type": "ring"}
    )


def test_message_that_a_ring_lets_go_of_is_on_the_alternate_exchange_on_every_broker_once() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("old")
    broker.bind("amq.fanout", "old")
    a_ring(broker, "ring", "amq.fanout")
    send(broker, "ring", "a", "b", "c")
    for one in (broker, copy_of(tape)):
        assert contents(one, "ring") == ["c"] and contents(one, "old") == ["a", "b"]


def test_message_for_several_rings_reroutes_what_each_lets_go_of() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("old")
    broker.bind("amq.topic", "old", "#")
    for name in ("one", "two"):
        a_ring(broker, name, "amq.topic")
        broker.bind("amq.fanout", name)
    for body in (b"a", b"b"):
        broker.publish("amq.fanout", "", body, headers=dict)
    assert contents(broker, "old") == ["a", "a"]
    assert contents(broker, "one") == contents(broker, "two") == ["b"]


def test_what_one_ring_lets_go_of_is_rerouted_though_another_has_no_room_in_the_end() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("altq")
    broker.declare_exchange("altex", "fanout")
    broker.bind("altex", "altq")
    ring = {"qpid.max_count": 1, "qpid.policy_type": "ring"}
    broker.declare_queue("one", alternate="altex", arguments=ring)
    broker.declare_queue("other", arguments={**ring, "x-dead-letter-exchange": "missing"})
    for name in ("one", "other"):
        broker.bind("amq.fanout", name)
    broker.publish("amq.fanout", "", b"a", headers=dict)
    with pytest.raises(QueueFull, match="missing"):
        broker.publish("amq.fanout", "", b"b", headers=dict)
    assert contents(broker, "other") == ["a"]
    assert contents(broker, "one") + contents(broker, "altq") == ["a"]


@pytest.mark.parametrize("count", [1, 3])
def test_nothing_comes_to_a_queue_that_ends_by_what_a_ring_lets_go_of(count: int) -> None:
    tape = Tape()
    broker = a_broker(tape)
    ring = {"qpid.max_size": 4, "qpid.policy_type": "ring", "x-dead-letter-exchange": ""}
    ring["x-dead-letter-strategy"] = "at-most-once"
    broker.declare_queue("ring", arguments={**ring, "x-dead-letter-routing-key": "brief"})
    brief, _ = broker.declare_queue(
        "brief", arguments={"qpid.max_count": count, "qpid.policy_type": "self-destruct"}
    )
    send(broker, "ring", *"abcd")
    for name in ("brief", "ring"):
        broker.bind("amq.fanout", name)
    broker.publish("amq.fanout", "", b"wide", headers=dict)
    assert "brief" not in broker.queues and not brief.messages
    assert contents(broker, "ring")[-1] == "wide"
    assert picture(copy_of(tape)) == picture(broker)
    assert broker.use.bodies == broker.queues["ring"].bytes


def test_rings_that_overflow_into_each_other_and_themselves_come_to_an_end() -> None:
    tape = Tape()
    broker = a_broker(tape)
    for name in ("one", "two"):
        a_ring(broker, name, "amq.fanout")
        broker.bind("amq.fanout", name)
    send(broker, "one", "a", "b", "c")
    assert contents(broker, "one") == ["c"] and contents(broker, "two") == ["b"]
    assert all(len(queue.messages) <= 1 for queue in copy_of(tape).queues.values())
