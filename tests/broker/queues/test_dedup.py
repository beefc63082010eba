"""De-duplication: a message sent again is there once, also after a failover, a restart, or when it
was consumed meanwhile.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qpidha.broker.broker import Broker
from qpidha.broker.policy import policy_asked_for
from qpidha.broker.queues.dedup import LARGEST_WINDOW, Dedup, Window
from qpidha.broker.queues.queue import Queue
from qpidha.broker.state import KEYS_IN_RECORD
from qpidha.model.encoding import Timestamp, UInt, ULong, Uuid
from qpidha.model.errors import InvalidArgument, LimitExceeded, RefusedRequest
from qpidha.model.message_view import build
from qpidha.model.records import DedupRemembered, Dequeued, Enqueued
from qpidha.store.log import Log
from tests.broker.parts import Tape, a_broker, a_taker, copy_of, picture, remembered


def a_dedup_queue(tape: Tape | Log | None, name: str = "q", **more: Any) -> tuple[Broker, Queue]:
    broker = a_broker(tape)
    return broker, broker.declare_queue(name, arguments={"qpidha.dedup": "message-id", **more})[0]


def named(message_id: object, content: str = "") -> bytes:
    return build(content, properties={"message_id": message_id})


def window_of(broker: Broker, name: str = "q") -> list[tuple[str, int]]:
    window = broker.queues[name].window
    assert window is not None
    return remembered(window)


def rebuilt(broker: Broker) -> Broker:
    """A broker made from a snapshot."""
    other = a_broker()
    other.passive = True
    for sequence, record in broker.objects():
        other.apply(sequence, record)
    for queue in broker.queues.values():
        for message in broker.messages_after(queue, 0, 1 << 30):
            other.apply(message.sequence, Enqueued((queue.uid,), message.body(), message.expires))
    return other


@pytest.mark.parametrize("leaves", [False, True])
def test_a_policy_that_is_set_during_a_snapshot_has_the_same_remembered(leaves: bool) -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    queue.enqueue(named("before"))
    objects, start = list(broker.objects()), tape.end
    broker.set_policy(policy_asked_for("p", ".*", {"dedup": "message-id"}))
    queue.enqueue(named("after"))
    other = a_broker()
    other.passive = True
    for sequence, record in objects:
        other.apply(sequence, record)
    if leaves:
        for message in list(queue.messages.values()):
            queue.dequeue(message)
    for message in broker.messages_after(queue, 0, 1 << 30):
        other.apply(message.sequence, Enqueued((queue.uid,), message.body(), 0))
    for sequence, record in tape.records[start:]:
        other.apply(sequence, record)
    assert [key for key, _ in window_of(broker)] == ["s:before", "s:after"]
    assert window_of(other) == window_of(broker)


def test_message_sent_again_is_there_once_and_waits_for_the_first() -> None:
    tape = Tape()
    _, queue = a_dedup_queue(tape)
    first, second = queue.enqueue(named("a")), queue.enqueue(named("b"))
    before = len(tape.records)
    assert queue.enqueue(named("a", "sent again")) == first
    assert queue.enqueue(named("b")) == second
    assert len(tape.records) == before
    assert len(queue.messages) == 2
    assert queue.statistics()["deduplicated"] == 2


def test_message_sent_again_after_it_was_consumed_is_still_a_duplicate() -> None:
    _, queue = a_dedup_queue(Tape())
    sequence = queue.enqueue(named("a"))
    queue.dequeue(queue.messages[sequence])
    assert queue.enqueue(named("a")) == sequence
    assert not queue.messages


def test_messages_without_a_key_are_all_taken() -> None:
    _, queue = a_dedup_queue(Tape())
    for payload in (
        b"not a message",
        build("x"),
        build("x"),
        build("x", properties={"subject": "s"}),
    ):
        queue.enqueue(payload)
    assert len(queue.messages) == 4


def test_keys_of_different_types_are_different_keys() -> None:
    _, queue = a_dedup_queue(Tape())
    ids = ["1", ULong(1), b"1", Uuid(b"1" * 16), "1" * 16, b"1" * 16, "31" * 16]
    for message_id in ids:
        queue.enqueue(named(message_id))
    assert len(queue.messages) == len(ids)
    for message_id in ids:
        queue.enqueue(named(message_id))
    assert len(queue.messages) == len(ids)


def test_long_keys_are_told_apart_and_kept_short() -> None:
    broker, queue = a_dedup_queue(Tape())
    for message_id in ("x" * 10_000, "x" * 9_999, b"x" * 10_000, "x" * 10_000):
        queue.enqueue(named(message_id))
    assert len(queue.messages) == 3
    assert max(len(key) for key, _ in window_of(broker)) <= 100


def test_key_may_be_an_annotation() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q", arguments={"qpidha.dedup": "x-opt-dedup"})
    for value in ("a", "a", UInt(5), ULong(5), Timestamp(5), "5", True, True, 0.5, 0.5, None):
        queue.enqueue(
            build("x", properties={"message_id": "same"}, annotations={"x-opt-dedup": value})
        )
    assert len(queue.messages) == 3 + 2 + 2 + 1  # those that are no keys are all taken


def test_window_forgets_the_oldest() -> None:
    broker, queue = a_dedup_queue(Tape(), **{"qpidha.dedup_window": 2})
    for message_id in "abca":
        queue.enqueue(named(message_id))
    assert len(queue.messages) == 4
    assert [key for key, _ in window_of(broker)] == ["s:c", "s:a"]


def test_duplicate_is_taken_by_a_full_queue_and_refused_by_a_deleted_one_and_by_a_backup() -> None:
    broker, queue = a_dedup_queue(Tape(), **{"qpid.max_count": 1})
    sequence = queue.enqueue(named("a"))
    assert queue.enqueue(named("a")) == sequence
    with pytest.raises(LimitExceeded):
        queue.enqueue(named("b"))
    queue.drop(queue.available())
    assert queue.enqueue(named("b"))  # what was refused is not remembered
    broker.passive = True
    with pytest.raises(RefusedRequest):
        queue.enqueue(named("a"))
    broker.passive = False
    broker.delete_queue("q")
    with pytest.raises(RefusedRequest):
        queue.enqueue(named("a"))


def test_duplicate_pushes_nothing_out_of_a_ring() -> None:
    _, queue = a_dedup_queue(Tape(), **{"qpid.max_count": 2, "qpid.policy_type": "ring"})
    first, second = queue.enqueue(named("a")), queue.enqueue(named("b"))
    queue.enqueue(named("a"))
    assert list(queue.messages) == [first, second]


def test_each_queue_of_a_message_decides_for_itself() -> None:
    tape = Tape()
    broker, queue = a_dedup_queue(tape, "one")
    broker.declare_queue("two", arguments={"qpidha.dedup": "message-id"})
    broker.declare_queue("plain")
    for name in ("one", "two", "plain"):
        broker.bind("amq.fanout", name)
    original = queue.enqueue(named("a"))
    routed = broker.publish("amq.fanout", "", named("a"), headers=dict)
    assert tape.last == Enqueued((broker.queues["two"].uid, broker.queues["plain"].uid), named("a"))
    assert routed.sequence == len(tape.records) > original and routed.queues == 3
    assert [len(broker.queues[name].messages) for name in ("one", "two", "plain")] == [1, 1, 1]
    broker.delete_queue("plain")
    assert broker.publish("amq.fanout", "", named("a"), headers=dict).sequence == routed.sequence
    assert len(broker.queues["two"].messages) == 1


def test_queue_that_is_not_recorded_has_nothing_to_wait_for() -> None:
    _, queue = a_dedup_queue(Tape(), **{"qpid.replicate": "none"})
    assert [queue.enqueue(named(message_id)) for message_id in "abab"] == [0] * 4
    assert len(queue.messages) == 2


def test_what_is_consumed_before_others_heard_of_it_is_told_to_them_all_the_same() -> None:
    log = Log(1 << 20)
    log.start_epoch(1)
    broker, queue = a_dedup_queue(log)
    taker = a_taker(queue, 9)
    sequence = queue.enqueue(named("a"))
    broker.dispatch(1)
    queue.dequeue(taker.got[0])
    log.seal()
    assert named("a") in b"".join(batch.data for batch in log.batches(1))
    assert sequence not in log.consumed  # its sender is not told before others have the key


def test_after_a_failover_a_message_sent_again_is_a_duplicate_consumed_or_not() -> None:
    tape = Tape()
    broker, queue = a_dedup_queue(tape)
    sequences = [queue.enqueue(named(message_id)) for message_id in "abc"]
    queue.dequeue(queue.messages[sequences[1]])
    for other in (copy_of(tape), rebuilt(broker)):
        other.log_writer = Tape()
        other.promoted(1)
        assert [other.queues["q"].enqueue(named(message_id)) for message_id in "abc"] == sequences
        assert list(other.queues["q"].messages) == [sequences[0], sequences[2]]


def test_a_snapshot_carries_a_large_window_in_parts() -> None:
    broker, queue = a_dedup_queue(Tape())
    for number in range(KEYS_IN_RECORD + 1):
        queue.enqueue(named(ULong(number)))
    queue.drop(queue.available())
    parts = [record for _, record in broker.objects() if isinstance(record, DedupRemembered)]
    assert [len(part.keys) for part in parts] == [KEYS_IN_RECORD, 1]
    assert window_of(rebuilt(broker)) == window_of(broker)


def test_records_of_a_window_for_a_queue_without_one_are_no_concern() -> None:
    broker = a_broker(Tape())
    queue, _ = broker.declare_queue("q")
    broker.apply(0, DedupRemembered(queue.uid, ["s:a"], [1]))
    broker.apply(0, DedupRemembered(999, ["s:a"], [1]))
    assert queue.window is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"qpidha.dedup": "subject"},
        {"qpidha.dedup": ""},
        {"qpidha.dedup": None},
        {"qpidha.dedup": 1},
        {"qpidha.dedup_window": 5},
        {"qpidha.dedup": "message-id", "qpidha.dedup_window": 0},
        {"qpidha.dedup": "message-id", "qpidha.dedup_window": LARGEST_WINDOW + 1},
        {"qpidha.dedup": "message-id", "qpidha.dedup_window": "many"},
        {"qpidha.dedup": "message-id", "qpidha.dedup_window": True},
        {"qpidha.dedup": "message-id", "qpidha.dedup_window": 1.5},
        {"qpidha.dedup": "message-id", "qpidha.dedup_window": None},
        {"qpidha.dedub": "message-id"},
    ],
)
def test_dedup_that_cannot_be_done_is_refused(arguments: dict[str, Any]) -> None:
    broker = a_broker()
    with pytest.raises(InvalidArgument):
        broker.declare_queue("q", arguments=arguments)
    assert not broker.queues


def test_window_is_read_from_text_too() -> None:
    _, queue = a_dedup_queue(None, **{"qpidha.dedup_window": "3"})
    assert queue.window is not None and queue.window.size == 3


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 30))),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_window_is_the_same_in_whatever_order_it_learns_of_messages(
    entries: list[tuple[str, int]], size: int, random: Any
) -> None:
    newest: dict[str, int] = {}
    for key, sequence in entries:
        newest[key] = max(sequence, newest.get(key, 0))
    unique = {sequence: key for key, sequence in newest.items()}  # one message has one key
    entries = [(key, sequence) for key, sequence in entries if unique.get(newest[key]) == key]
    expected = sorted({key: newest[key] for key, _ in entries}.items(), key=lambda entry: entry[1])[
        -size:
    ]
    for _ in range(3):
        random.shuffle(entries)
        window = Window(Dedup("message-id", size))
        for key, sequence in entries:
            window.remember(key, sequence)
        assert remembered(window) == expected


class DedupAgainstOracle(RuleBasedStateMachine):
    """Random sends, consumption and failovers; the oracle is a list of all messages that were ever
    taken.
    """

    SIZE = 4

    def __init__(self) -> None:
        super().__init__()
        self.tape = Tape()
        self.broker, _ = a_dedup_queue(
            self.tape, **{"qpidha.dedup_window": self.SIZE, "qpid.max_count": 6}
        )
        self.taken: list[tuple[str, int]] = []
        self.present: dict[int, str] = {}
        self.duplicates = 0

    @property
    def queue(self) -> Queue:
        return self.broker.queues["q"]

    @rule(message_id=st.sampled_from("abcdefg"))
    def send(self, message_id: str) -> None:
        remembered = dict(self.taken[-self.SIZE :])
        if message_id in remembered:
            assert self.queue.enqueue(named(message_id)) == remembered[message_id]
            return
        if len(self.present) == 6:
            with pytest.raises(LimitExceeded):
                self.queue.enqueue(named(message_id))
            return
        sequence = self.queue.enqueue(named(message_id))
        self.taken.append((message_id, sequence))
        self.present[sequence] = message_id

    @rule(which=st.integers(0, 5))
    def consume(self, which: int) -> None:
        if which < len(self.present):
            sequence = list(self.present)[which]
            del self.present[sequence]
            self.queue.dequeue(self.queue.messages[sequence])
            assert self.tape.last == Dequeued(self.queue.uid, (sequence,))

    @rule(snapshot=st.booleans())
    def fail_over(self, snapshot: bool) -> None:
        before = picture(self.broker)
        self.broker = rebuilt(self.broker) if snapshot else copy_of(self.tape)
        assert picture(self.broker) == before
        self.broker.log_writer = self.tape
        self.broker.promoted(1)

    @invariant()
    def window_holds_the_last_that_were_taken(self) -> None:
        assert window_of(self.broker) == [
            ("s:" + key, sequence) for key, sequence in self.taken[-self.SIZE :]
        ]
        assert list(self.queue.messages) == list(self.present)


DedupAgainstOracle.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
test_window_agrees_with_its_oracle_over_failovers = DedupAgainstOracle.TestCase
