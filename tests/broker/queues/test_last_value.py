"""Last values: of the messages with one key the last one is there."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import (
    binary,
    booleans,
    dictionaries,
    integers,
    just,
    lists,
    none,
    one_of,
    sampled_from,
    text,
    tuples,
)

from qpidha.broker.broker import Broker
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Fate, Post, Retirement, Transaction, TransactionRolledBack
from qpidha.model.encoding import Symbol, ULong
from qpidha.model.errors import LimitExceeded, PreconditionFailed, ProtocolViolation
from qpidha.model.message import Message
from qpidha.model.message_view import (
    application_property,
    arrival,
    build,
    departure,
    message_annotations,
)
from qpidha.model.records import Cause, Dequeued, Enqueued
from tests.broker.parts import Reels, Tape, a_broker, a_taker, copy_of, picture

LVQ = {"qpid.last_value_queue_key": "key"}


def keyed(key: Any, text: str, **more: Any) -> bytes:
    properties = {} if key is None else {"key": key}
    return build(text.encode(), application_properties={**more, **properties})


def text_of(message: Message) -> str:
    return message.body().rpartition(b"\xa0")[2][1:].decode()


def texts(messages: Iterable[Message]) -> str:
    return " ".join(map(text_of, messages))


def on(queue: Queue) -> str:
    return texts(queue.messages_after(0, 1 << 30))


def a_queue(tape: Tape | None = None, **options: Any) -> tuple[Broker, Queue]:
    broker = a_broker(Tape() if tape is None else tape)
    queue, _ = broker.declare_queue("q", **{"arguments": LVQ, **options})
    return broker, queue


SENDS = [
    ("a", "a-1", "a-1"),
    ("b", "b-1", "a-1 b-1"),
    ("a", "a-2", "b-1 a-2"),
    ("a", "a-3", "b-1 a-3"),
    ("c", "c-1", "b-1 a-3 c-1"),
    ("c", "c-2", "b-1 a-3 c-2"),
    ("b", "b-2", "a-3 c-2 b-2"),
    ("c", "c-3", "a-3 b-2 c-3"),
    ("d", "d-1", "a-3 b-2 c-3 d-1"),
]


def test_qpid_12_after_every_send_a_backup_has_the_last_values_in_order() -> None:
    tape = Tape()
    broker, queue = a_queue(tape)
    for key, body, expected in SENDS:
        queue.enqueue(keyed(key, body))
        assert on(queue) == expected
        copy = copy_of(tape)
        assert on(copy.queues["q"]) == expected and picture(copy) == picture(broker)
    assert queue.departed[Cause.REPLACED] == 5
    copy.promoted(0)
    successor = copy.queues["q"]
    successor.log_writer = tape
    successor.enqueue(keyed("b", "b-3"))
    assert on(successor) == "a-3 c-3 d-1 b-3"


def test_long_keys_are_kept_short_and_stay_different() -> None:
    _, queue = a_queue()
    for number, end in enumerate("abba"):
        queue.enqueue(keyed("k" * 100_000 + end, str(number)))
    assert on(queue) == "2 3"
    assert all(len(message.key) < 256 for message in queue.messages.values())


def test_what_is_replaced_leaves_before_the_new_one_comes_and_in_its_turn() -> None:
    tape = Tape()
    _, queue = a_queue(tape)
    queue.enqueue(keyed("a", "1"))
    first = queue.ordering.last
    queue.enqueue(keyed("a", "2"))
    left, came = (record for _, record in tape.records[-2:])
    assert isinstance(left, Dequeued) and isinstance(came, Enqueued)
    assert (left.sequences, left.cause) == ((first,), Cause.REPLACED)


@pytest.mark.parametrize(
    ("one", "other"), [(7, "7"), (None, ""), (True, "True"), (Symbol("s"), "s")]
)
def test_keys_are_texts_and_a_message_without_one_has_the_empty_one(one: Any, other: Any) -> None:
    _, queue = a_queue()
    queue.enqueue(keyed(one, "1", more="x"))
    queue.enqueue(keyed(other, "2"))
    queue.enqueue(keyed("elsewhere", "3", other="7"))
    assert on(queue) == "2 3"


def test_what_cannot_be_read_has_the_empty_key() -> None:
    _, queue = a_queue()
    for payload in (b"\x00\x53\x74\xc1\x05\x02\xa1\x09", b"", b"\x00"):
        queue.enqueue(payload)
    assert len(queue.messages) == 1


@given(
    dictionaries(
        sampled_from(["key", "k", "keys", "other"]),
        one_of(none(), text(max_size=5), integers(-3, 300), booleans(), just("x" * 300)),
        max_size=4,
    ),
    dictionaries(sampled_from(["key", "x-opt-a"]), text(max_size=4), max_size=2),
)
def test_what_is_seen_from_a_few_bytes_is_what_the_properties_say(
    properties: dict[str, Any], annotations: dict[str, Any]
) -> None:
    payload = build(
        b"", annotations=annotations, application_properties=properties, header={"priority": 3}
    )
    found = application_property(payload, b"key")
    assert found == properties.get("key") and type(found) is type(properties.get("key"))


@given(binary(max_size=20))
def test_any_bytes_have_a_property_or_none_or_are_malformed(rest: bytes) -> None:
    for beginning in (b"\x00\x53\x74\xc1\x20\x04\xa1\x03key", b"\x00\x53\x74", b""):
        with suppress(ProtocolViolation):
            application_property(beginning + rest, b"key")


def test_a_browser_sees_each_new_value_and_a_consumer_only_what_is_there() -> None:
    _, queue = a_queue()
    browser = a_taker(queue, credit=9, browse=True)
    queue.enqueue(keyed("a", "a-1"))
    queue.enqueue(keyed("b", "b-1"))
    queue.dispatch(1)
    queue.enqueue(keyed("a", "a-2"))
    queue.dispatch(1)
    assert texts(browser.got) == "a-1 b-1 a-2"
    taker = a_taker(queue, credit=9, settles=True)
    queue.dispatch(1)
    assert texts(taker.got) == "b-1 a-2" and not queue.messages


@pytest.mark.parametrize("outcome", ["dequeue", "release", "requeue", "reject"])
def test_a_value_that_a_consumer_has_is_replaced_and_its_outcome_finds_nothing(
    outcome: str,
) -> None:
    tape = Tape()
    broker, queue = a_queue(tape, alternate="amq.fanout")
    broker.declare_queue("elsewhere")
    broker.bind("amq.fanout", "elsewhere")
    taker = a_taker(queue, credit=1)
    queue.enqueue(keyed("a", "1"))
    queue.dispatch(1)
    queue.enqueue(keyed("a", "2"))
    assert on(queue) == "2" and queue.acquired == 0
    options = (True,) if outcome == "requeue" else ()
    replaced = len(tape.records)
    waits_for = getattr(queue, outcome)(taker.got[0], *options)
    # What settles a message for good waits until that is committed by which it left.
    assert waits_for == (replaced if outcome in ("dequeue", "reject") else 0)
    assert len(tape.records) == replaced
    assert on(queue) == "2" and not broker.queues["elsewhere"].messages
    assert queue.departures == {**dict.fromkeys(queue.departures, 0), "replaced": 1}
    taker.credit = 1
    queue.dispatch(1)
    assert texts(taker.got) == "1 2"


@pytest.mark.parametrize("fate", [Fate.ACCEPT, Fate.REJECT])
def test_a_transaction_that_settles_a_replaced_value_waits_for_what_replaced_it(fate: Fate) -> None:
    tape = Tape()
    broker, queue = a_queue(tape)
    taker = a_taker(queue, credit=1)
    queue.enqueue(keyed("a", "1"))
    queue.dispatch(1)
    queue.enqueue(keyed("a", "2"))
    replaced = len(tape.records)
    transaction = Transaction(broker)
    transaction.retire(Retirement(transaction, queue, taker.got[0], fate, settled=False))
    assert transaction.commit() == len(tape.records) == replaced


def test_a_value_that_was_consumed_makes_room_for_another() -> None:
    _, queue = a_queue()
    taker = a_taker(queue, credit=1, settles=True)
    queue.enqueue(keyed("a", "1"))
    queue.dispatch(1)
    queue.enqueue(keyed("a", "2"))
    assert on(queue) == "2" and not queue.departed[Cause.REPLACED] and taker.got


def test_a_full_queue_takes_new_values_of_its_keys() -> None:
    _, queue = a_queue(arguments={**LVQ, "qpid.max_count": 2, "qpid.flow_stop_count": 0})
    for key in "ab":
        queue.enqueue(keyed(key, f"{key}-1"))
    queue.enqueue(keyed("a", "a-2"))
    with pytest.raises(LimitExceeded):
        queue.enqueue(keyed("c", "c-1"))
    assert on(queue) == "b-1 a-2"


def test_a_ring_of_last_values_pushes_out_the_oldest_key() -> None:
    _, queue = a_queue(arguments={**LVQ, "qpid.max_count": 2, "qpid.policy_type": "ring"})
    for key, body in (("a", "a-1"), ("b", "b-1"), ("a", "a-2"), ("c", "c-1")):
        queue.enqueue(keyed(key, body))
    assert on(queue) == "a-2 c-1"
    assert (queue.departed[Cause.REPLACED], queue.departed[Cause.OVERFLOW]) == (1, 1)


def test_a_ring_limited_in_bytes_names_what_is_replaced_once() -> None:
    first, second, third = keyed("a", "1"), keyed("b", "2"), keyed("a", "3" * 20)
    size = len(second) + len(third) - 1
    _, queue = a_queue(arguments={**LVQ, "qpid.max_size": size, "qpid.policy_type": "ring"})
    for payload in (first, second, third):
        queue.enqueue(payload)
    assert on(queue) == "3" * 20 and queue.bytes == len(third)


def test_one_message_for_several_queues_replaces_on_each_that_has_its_key() -> None:
    tape = Tape()
    broker, queue = a_queue(tape)
    plain, _ = broker.declare_queue("plain")
    other, _ = broker.declare_queue("other", arguments={"qpid.last_value_queue_key": "colour"})
    for name in ("q", "plain", "other"):
        broker.bind("amq.fanout", name)
    for key, colour in (("a", "red"), ("a", "blue"), ("b", "red")):
        payload = keyed(key, f"{key}-{colour}", colour=colour)
        broker.publish("amq.fanout", "", payload, headers=dict)
    assert on(queue) == "a-blue b-red" and on(other) == "a-blue b-red"
    assert on(plain) == "a-red a-blue b-red"
    assert picture(copy_of(tape)) == picture(broker)


def test_what_is_refused_replaces_nothing_on_any_queue() -> None:
    broker, queue = a_queue()
    broker.declare_queue("full", arguments={"qpid.max_count": 1})
    for name in ("full", "q"):
        broker.bind("amq.fanout", name)
    broker.publish("amq.fanout", "", keyed("a", "1"), headers=dict)
    with pytest.raises(LimitExceeded):
        broker.publish("amq.fanout", "", keyed("a", "2"), headers=dict)
    assert on(queue) == "1"


def committed(broker: Broker, queue: Queue, *posts: bytes, accepts: Iterable[Message] = ()) -> None:
    work = Transaction(broker)
    for message in accepts:
        work.retire(Retirement(work, queue, message, Fate.ACCEPT, settled=False))
    for payload in posts:
        work.post(Post(payload, 0, queue=queue))
    work.commit()


def test_a_commit_replaces_and_counts_each_key_once() -> None:
    tape = Tape()
    broker, queue = a_queue(tape, arguments={**LVQ, "qpid.max_count": 2})
    queue.enqueue(keyed("a", "a-1"))
    committed(broker, queue, keyed("a", "a-2"), keyed("b", "b-1"), keyed("b", "b-2"))
    assert on(queue) == "a-2 b-2"
    with pytest.raises(TransactionRolledBack):
        committed(broker, queue, keyed("a", "a-3"), keyed("c", "c-1"))
    assert on(queue) == "a-2 b-2"
    taker = a_taker(queue, credit=1)
    queue.dispatch(1)
    with pytest.raises(TransactionRolledBack):
        committed(
            broker, queue, keyed("a", "a-4"), keyed("c", "c-1"), keyed("d", "d"), accepts=taker.got
        )
    committed(broker, queue, keyed("a", "a-4"), keyed("b", "b-3"), accepts=taker.got)
    assert on(queue) == "a-4 b-3" and picture(copy_of(tape)) == picture(broker)


@settings(max_examples=60, deadline=None)
@given(
    lists(tuples(sampled_from(["send", "send", "send", "take"]), integers(0, 3)), max_size=25),
    lists(integers(0, 30), max_size=4),
)
def test_whatever_happens_it_is_as_a_dictionary_that_is_written_anew(
    steps: list[tuple[str, int]], cuts: list[int]
) -> None:
    tape = Tape()
    broker, queue = a_queue(tape)
    taker = a_taker(queue, settles=True)
    oracle: dict[str, str] = {}
    for index, (what, key) in enumerate(steps):
        if what == "send":
            oracle.pop(str(key), None)
            oracle[str(key)] = f"v{index}"
            queue.enqueue(keyed(key, f"v{index}"))
        elif oracle:
            oracle.pop(next(iter(oracle)))
            taker.credit = 1
            queue.dispatch(1)
        assert on(queue) == " ".join(oracle.values())
    assert picture(copy_of(tape)) == picture(broker)
    # One that gets what is there in parts, out of turn, and then decides.
    other = a_broker()
    other.passive = True
    other.apply(*tape.records[0])
    copy = other.queues["q"]
    rows = [(message.sequence, message.body()) for message in queue.messages_after(0, 1 << 30)]
    bounds = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    for first, last in sorted(zip(bounds, bounds[1:], strict=False), reverse=True):
        copy.insert_run(*map(list, zip(*rows[first:last], strict=True)), [])
    other.promoted(0)
    copy.log_writer = tape
    for key in range(4):
        oracle.pop(str(key), None)
        oracle[str(key)] = f"new{key}"
        copy.enqueue(keyed(key, f"new{key}"))
    assert on(copy) == " ".join(oracle.values())
    order: Any = copy.ordering
    assert set(order._by_key) == set(oracle)


def test_keys_are_forgotten_with_their_messages_and_paged_out_ones_are_replaced() -> None:
    tape = Tape()
    broker, queue = a_queue(tape)
    for key in "abc":
        queue.enqueue(keyed(key, f"{key}-1"))
    body = Reels(tape)
    queue.page_out(0, 1 << 62, body)
    queue.enqueue(keyed("b", "b-2"))
    queue.promoted()
    assert not body.read_count and on(queue) == "a-1 c-1 b-2"
    broker.purge("q")
    order: Any = queue.ordering
    assert not order._by_key and queue.paged_out == 0 and queue.bytes == 0


def test_the_key_of_a_queue_cannot_change() -> None:
    broker, queue = a_queue()
    plain, _ = broker.declare_queue("plain")
    for one, other in ((queue, plain), (plain, queue)):
        with pytest.raises(PreconditionFailed, match="the order of queue"):
            one.reconfigure(other.spec)


@pytest.mark.parametrize("name", ["qpid.last_value_queue", "qpid.last_value_queue_no_browse"])
def test_the_older_names_mean_the_property_of_their_time(name: str) -> None:
    _, queue = a_queue(arguments={name: True})
    assert queue.spec.last_value == "qpid.LVQ_key"
    _, queue = a_queue(arguments={name: "false"})
    assert queue.spec.last_value == ""


# -- numbers --------------------------------------------------------------------------------------


def test_messages_have_their_numbers_in_an_annotation_on_every_broker() -> None:
    tape = Tape()
    broker, queue = a_queue(tape, arguments={"qpid.queue_msg_sequence": "x-opt-number"})
    queue.enqueue(build("plain"))
    queue.enqueue(build("marked", annotations={"x-opt-mine": 1, "x-opt-number": "no"}))
    for row in (queue, copy_of(tape).queues["q"]):
        first, second = row.messages_after(0, 1 << 30)
        assert [
            message_annotations(departure(each.body(), 0, each.annotations))
            for each in (first, second)
        ] == [
            {"x-opt-number": ULong(first.sequence)},
            {"x-opt-mine": 1, "x-opt-number": ULong(second.sequence)},
        ]
    assert picture(copy_of(tape)) == picture(broker)


def test_a_queue_that_is_not_recorded_counts_from_one() -> None:
    _, queue = a_queue(arguments={"qpid.queue_msg_sequence": "n", "qpid.replicate": "none"})
    for _ in range(3):
        queue.enqueue(build("x"))
    assert [
        message_annotations(each.annotations)["n"] for each in queue.messages_after(0, 1 << 30)
    ] == [1, 2, 3]


@pytest.mark.parametrize("annotations", ["7100000000", "c0020140", "c10602a1016e5605"])
def test_a_message_whose_annotations_cannot_be_read_has_no_number(annotations: str) -> None:
    tape = Tape()
    _, queue = a_queue(tape, arguments={"qpid.queue_msg_sequence": "n"})
    payload, _, _ = arrival(bytes.fromhex("005372" + annotations) + build(b"body"), 1)
    queue.enqueue(payload)
    replica = copy_of(tape).queues["q"]
    for there in (queue, replica):
        (message,) = there.messages.values()
        assert (message.body(), message.annotations) == (payload, b"")


def test_a_run_of_messages_is_numbered_on_a_backup_as_well() -> None:
    tape = Tape()
    a_queue(tape, arguments={"qpid.queue_msg_sequence": "n"})
    other = a_broker()
    other.passive = True
    other.apply(*tape.records[0])
    copy = other.queues["q"]
    copy.insert_run([5, 9], [build("x"), build("y")], [])
    assert [
        message_annotations(each.annotations)["n"] for each in copy.messages_after(0, 1 << 30)
    ] == [5, 9]
