"""Senders wait before messages are refused: above flow-stop a queue admits none, and from
flow-resume down it does again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.limits import UNLIMITED, read_limits
from qpidha.broker.queues.queue import Queue
from qpidha.broker.transaction import Post, Transaction
from qpidha.model.errors import InvalidArgument, LimitExceeded, PreconditionFailed
from tests.broker.parts import Tape, a_broker, a_poster, a_taker, copy_of, expire, send


def a_queue(broker: Broker | None = None, *, messages: int = 0, **arguments: object) -> Queue:
    named = {"qpid." + name: value for name, value in arguments.items()}
    queue, _ = (broker or a_broker(Tape())).declare_queue("q", arguments=named)
    for _ in range(messages):
        queue.enqueue(b"m")
    return queue


def leave(queue: Queue, count: int) -> None:
    for message in list(queue.messages.values())[:count]:
        queue.dequeue(message)


def thresholds(default_max_bytes: int = 0, **arguments: object) -> tuple[int, ...]:
    named = {"qpid." + name: value for name, value in arguments.items()}
    limits = read_limits(named, QueueDefaults(default_max_bytes))
    return limits.stop_count, limits.resume_count, limits.stop_bytes, limits.resume_bytes


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({}, (UNLIMITED,) * 4),
        ({"max_count": 10}, (8, 7, UNLIMITED, UNLIMITED)),
        ({"max_count": 1}, (0, 0, UNLIMITED, UNLIMITED)),
        ({"max_size": "1000"}, (UNLIMITED, UNLIMITED, 800, 700)),
        ({"default_max_bytes": 100}, (UNLIMITED, UNLIMITED, 80, 70)),
        ({"max_count": 10, "policy_type": "ring"}, (UNLIMITED,) * 4),
        ({"max_count": 10, "flow_stop_count": 0}, (UNLIMITED,) * 4),
        ({"max_count": 10, "flow_stop_count": 5}, (5, 5, UNLIMITED, UNLIMITED)),
        ({"flow_stop_count": 8}, (8, 7, UNLIMITED, UNLIMITED)),
        ({"flow_stop_count": 8, "flow_resume_count": "2"}, (8, 2, UNLIMITED, UNLIMITED)),
        ({"default_max_bytes": 100, "flow_stop_size": 500}, (UNLIMITED, UNLIMITED, 100, 70)),
        ({"default_max_bytes": 100, "flow_resume_size": 10}, (UNLIMITED, UNLIMITED, 80, 10)),
    ],
)
def test_senders_stop_at_80_percent_of_a_limit_and_go_on_at_70(
    arguments: dict[str, object], found: tuple[int, ...]
) -> None:
    assert thresholds(**arguments) == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"flow_stop_count": -1},
        {"flow_resume_size": "much"},
        {"max_count": 10, "flow_stop_count": 11},
        {"max_size": 10, "flow_stop_size": 11},
        {"flow_stop_count": 5, "flow_resume_count": 6},
        {"flow_stop_count": 0, "flow_resume_count": 6},
        {"max_count": 10, "flow_resume_count": 9},
        {"flow_stop_count": 5, "policy_type": "ring"},
        {"flow_resume_size": 5, "policy_type": "ring"},
    ],
)
def test_thresholds_that_contradict_something_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument):
        a_queue(**arguments)


def test_a_queue_that_rejects_in_rabbitmqs_words_stops_nobody_unless_it_says_so() -> None:
    broker = a_broker(Tape())

    def declare(name: str, **arguments: object) -> int:
        given = {"x-max-length": 10, **{key.replace("_", "-"): v for key, v in arguments.items()}}
        return broker.declare_queue(name, arguments=given)[0].spec.limits.stop_count

    assert declare("q", x_overflow="reject-publish") == UNLIMITED
    assert broker.declare_queue(
        "q", arguments={"qpid.max_count": 10, "qpid.policy_type": "reject"}
    ) == (broker.queues["q"], 0), "it is the same queue in Qpid's words"
    own = {"x-max-length": 10, "x-overflow": "reject-publish", "qpid.flow_stop_count": 5}
    assert broker.declare_queue("r", arguments=own)[0].spec.limits.stop_count == 5
    with pytest.raises(PreconditionFailed):
        broker.declare_queue("q", arguments=own)


def test_a_queue_above_flow_stop_admits_nobody_until_flow_resume() -> None:
    queue = a_queue(max_count=10, messages=8)
    poster = a_poster(queue)
    assert poster.is_admitted and not queue.is_stopped
    queue.enqueue(b"m")
    assert queue.is_stopped and not poster.ask()
    leave(queue, 1)
    assert queue.is_stopped and poster.told == 0
    leave(queue, 1)
    assert poster.is_admitted and not queue.is_stopped
    assert (poster.told, queue.flow_stops, queue.waiting) == (1, 1, {})


def test_a_queue_stops_by_bytes_and_goes_on_when_both_are_low() -> None:
    queue = a_queue(max_count=10, max_size=100)
    queue.enqueue(bytes(81))
    poster = a_poster(queue)
    assert not poster.is_admitted
    for _ in range(9):
        queue.enqueue(b"")
    leave(queue, 1)
    assert queue.is_stopped
    leave(queue, 2)
    assert poster.is_admitted


def test_what_is_sent_to_a_stopped_queue_is_taken_up_to_the_limit() -> None:
    queue = a_queue(max_count=10, messages=10)
    assert queue.is_stopped
    with pytest.raises(LimitExceeded):
        queue.enqueue(b"m")


def test_a_ring_and_a_queue_that_says_so_stop_nobody() -> None:
    for arguments in ({"policy_type": "ring"}, {"flow_stop_count": 0, "flow_stop_size": 0}):
        queue = a_queue(max_count=10, messages=10, **arguments)
        assert a_poster(queue).is_admitted and not queue.is_stopped


def test_a_queue_that_no_exchange_and_no_commit_passes_by() -> None:
    broker = a_broker(Tape())
    queue = a_queue(broker, max_count=10, messages=7)
    broker.bind("amq.fanout", "q")
    broker.declare_queue("other")
    broker.bind("amq.fanout", "other")
    broker.publish("amq.fanout", "", b"m", headers=dict)
    assert not queue.is_stopped
    broker.publish("amq.fanout", "", b"m", headers=dict)
    assert queue.is_stopped
    leave(queue, 2)
    transaction = Transaction(broker)
    transaction.post(Post(b"m", 0, queue=queue))
    transaction.post(Post(b"m", 0, queue=queue))
    assert not queue.is_stopped
    transaction.commit()
    assert queue.is_stopped


def test_a_message_that_another_queue_refuses_stops_nobody() -> None:
    broker = a_broker(Tape())
    queue = a_queue(broker, max_count=1)
    full, _ = broker.declare_queue("full", arguments={"qpid.max_count": 1})
    full.enqueue(b"m")
    for name in ("q", "full"):
        broker.bind("amq.fanout", name)
    with pytest.raises(LimitExceeded):
        broker.publish("amq.fanout", "", b"m", headers=dict)
    assert not queue.is_stopped and a_poster(queue).is_admitted


def _purge(broker: Broker, queue: Queue) -> None:
    broker.purge("q")


def _expire(broker: Broker, queue: Queue) -> None:
    expire(queue, 100)


def _reject(broker: Broker, queue: Queue) -> None:
    taker = a_taker(queue, 9)
    queue.dispatch(1)
    for message in taker.got:
        queue.reject(message)


def _move(broker: Broker, queue: Queue) -> None:
    broker.declare_queue("other")
    broker.bind("amq.fanout", "other")
    queue.options.alternate = "amq.fanout"
    _reject(broker, queue)


def _delete(broker: Broker, queue: Queue) -> None:
    broker.delete_queue("q")


def _reset(broker: Broker, queue: Queue) -> None:
    broker.reset()


@pytest.mark.parametrize("how", [_purge, _expire, _reject, _move, _delete, _reset])
def test_senders_go_on_however_messages_leave(how: Callable[[Broker, Queue], None]) -> None:
    broker = a_broker(Tape())
    queue = a_queue(broker, max_count=10)
    for _ in range(9):
        queue.enqueue(b"m", 50)
    poster = a_poster(queue)
    assert not poster.is_admitted
    how(broker, queue)
    assert poster.is_admitted


def test_a_successor_looks_at_what_it_has() -> None:
    tape = Tape()
    queue = a_queue(a_broker(tape), max_count=10, messages=9)
    backup = copy_of(tape)
    copy = backup.queues["q"]
    assert queue.is_stopped and not copy.is_stopped
    backup.log_writer = tape
    backup.promoted(1)
    poster = a_poster(copy)
    assert copy.is_stopped and not poster.is_admitted
    leave(copy, 2)
    assert poster.is_admitted


def test_a_replica_stops_nobody() -> None:
    tape = Tape()
    a_queue(a_broker(tape), max_count=10, messages=9)
    backup = copy_of(tape)
    assert not backup.queues["q"].is_stopped


def test_new_limits_count_at_once() -> None:
    broker = a_broker(Tape())
    queue = a_queue(broker, messages=9)
    poster = a_poster(queue)
    tight = a_queue(a_broker(Tape()), max_count=10).spec
    wide = queue.spec
    queue.reconfigure(tight)
    assert queue.is_stopped and not poster.ask()
    queue.reconfigure(wide)
    assert poster.is_admitted


def test_what_all_senders_may_have_on_their_way_finds_room_above_flow_stop() -> None:
    queue = a_queue(max_count=100, max_size=1000)
    a_poster(queue)
    assert (queue.share(1), queue.share(50), queue.share(300)) == (20, 4, 0)
    a_poster(queue)
    other = a_poster(queue)
    assert (queue.share(1), queue.share(50)) == (6, 1)
    queue.remove_sender(other)
    assert queue.share(1) == 10
    queue.enqueue(bytes(200))
    assert (queue.share(100, is_first=True), queue.share(100)) == (3, 1)
    unlimited = a_queue(flow_stop_count=0, flow_stop_size=0)
    assert unlimited.share(1 << 20, is_first=True) == unlimited.share(1 << 20) > 1 << 40
    assert a_queue(max_size=0).share(1 << 20) > 1 << 40


def test_a_sender_whose_next_message_does_not_fit_waits_for_room_and_one_that_never_does_not() -> (
    None
):
    queue = a_queue(max_size=100)
    queue.enqueue(bytes(60))
    too_large, large = a_poster(queue, 101), a_poster(queue, 50)
    assert too_large.is_admitted and not large.is_admitted
    queue.enqueue(bytes(10))
    leave(queue, 1)
    assert large.is_admitted and too_large.is_admitted


def test_a_sender_that_is_gone_is_not_told() -> None:
    queue = a_queue(max_count=10, messages=9)
    poster = a_poster(queue)
    queue.remove_sender(poster)
    leave(queue, 9)
    assert poster.told == 0


def test_many_small_limits_never_leave_a_sender_waiting_for_nothing() -> None:
    for most in range(1, 12):
        queue = a_queue(max_count=most)
        poster = a_poster(queue)
        for _ in range(3 * most):
            if not poster.is_admitted:
                leave(queue, len(queue.messages))
            assert poster.ask()
            queue.enqueue(b"m")
            poster.ask()
        for _ in range(most - len(queue.messages)):
            queue.enqueue(b"m")
        leave(queue, most)
        assert poster.is_admitted


def test_a_named_queue_takes_from_senders_again_after_others_filled_it() -> None:
    broker = a_broker(Tape())
    a_queue(broker, max_count=5)
    send(broker, "q", *"abcde")
    queue = broker.queues["q"]
    assert queue.is_stopped
    leave(queue, 2)
    send(broker, "q", "f")
    assert not queue.is_stopped
