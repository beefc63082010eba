"""The alternate exchange: what is rejected, what a deleted queue had and what a ring lets go of is
on it.
"""

from __future__ import annotations

from typing import Any

from qpidha.broker.broker import Broker
from qpidha.model.records import QueueDeleted
from qpidha.store.log import Log
from tests.broker.parts import Tape, a_broker, a_message, a_taker, contents, copy_of, send


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
    assert queue.reject(taker.got[1]) and queue.reject(taker.got[2])
    (message,) = broker.queues["altq"].messages_after(0, 1)
    assert (message.body(), message.expires) == (payload, 99)
    assert not queue.messages


def test_rejected_message_is_routed_by_its_application_properties() -> None:
    broker = a_broker()
    broker.declare_queue("altq")
    broker.bind("amq.match", "altq", "", {"colour": "red"})
    queue, _ = broker.declare_queue("q", alternate="amq.match")
    broker.publish("", "q", a_message(colour="red"), headers=dict)
    queue.reject(queue.messages_after(0, 1)[0])
    assert len(broker.queues["altq"].messages) == 1


def test_rejected_message_is_dropped_if_the_alternate_is_full() -> None:
    announced: list[Any] = []
    broker = a_broker()
    broker._announce = announced.append
    broker.declare_queue("altq", arguments={"qpid.max_count": 1})
    broker.bind("amq.fanout", "altq")
    queue, _ = broker.declare_queue("q", alternate="amq.fanout")
    send(broker, "q", "a", "b")
    for message in queue.messages_after(0, 99):
        queue.reject(message)
    assert contents(broker, "altq") == ["a"] and not queue.messages
    assert queue.discarded == 1 and announced[-1].level == "warning"


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


def test_rings_that_overflow_into_each_other_and_themselves_come_to_an_end() -> None:
    tape = Tape()
    broker = a_broker(tape)
    for name in ("one", "two"):
        a_ring(broker, name, "amq.fanout")
        broker.bind("amq.fanout", name)
    send(broker, "one", "a", "b", "c")
    assert contents(broker, "one") == ["c"] and contents(broker, "two") == ["b"]
    assert all(len(queue.messages) <= 1 for queue in copy_of(tape).queues.values())
