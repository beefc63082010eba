"""Alerts: a queue tells when it has come to some depth, and when it is down again."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.broker import Broker
from qpidha.broker.queues.alerts import read_alerts
from qpidha.broker.queues.defaults import QueueDefaults
from qpidha.broker.queues.limits import Limits
from qpidha.broker.queues.queue import Queue
from qpidha.model.duration import SECOND
from qpidha.model.errors import InvalidArgument
from qpidha.model.event_log import DepthAlert
from tests.broker.parts import Tape, a_broker, copy_of, send


def a_queue(broker: Broker | None = None, **arguments: Any) -> tuple[Queue, list[bool]]:
    """A queue with such alerts, and what it has told."""
    broker = broker or a_broker(Tape())
    told: list[bool] = []

    def hear(announce: Any) -> None:
        if isinstance(announce.about, DepthAlert):
            told.append(announce.about.is_up)

    broker._announce = hear
    given = {f"qpid.alert_{name}": value for name, value in arguments.items()}
    return broker.declare_queue("q", arguments=given)[0], told


def fill(queue: Queue, count: int) -> None:
    for _ in range(count):
        queue.enqueue(b"12345")


def leave(queue: Queue, count: int, *, at_once: bool = False) -> None:
    messages = list(queue.messages.values())[:count]
    if at_once:
        queue.drop(messages)
        return
    for message in messages:
        queue.dequeue(message)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("limits", [{"count": 10}, {"size": 50}, {"count_up": 10, "count_down": 5}])
def test_qpid_3_5_a_queue_tells_when_it_is_deep_and_when_it_is_not_any_more(
    limits: dict[str, Any], at_once: bool
) -> None:
    queue, told = a_queue(repeat_gap=0, **limits)
    fill(queue, 9)
    assert told == []
    fill(queue, 5)
    assert told == [True]
    leave(queue, 8, at_once=at_once)
    assert told == [True]
    leave(queue, 1, at_once=at_once)
    assert told == [True, False]
    fill(queue, 5)
    assert told == [True, False, True]


def test_qpid_3_5_what_happens_again_within_the_gap_is_not_told() -> None:
    queue, told = a_queue(broker := a_broker(Tape()), count=2, repeat_gap=60)
    for now in (1, 30, 59, 61):
        broker.now = now * SECOND
        fill(queue, 2)
        leave(queue, 2)
    assert told == [True, False, True, False]


def test_a_queue_pays_for_alerts_only_near_them() -> None:
    queue, told = a_queue(count=10)
    assert queue.fast_path_limit == 9 and not queue.is_judged
    fill(queue, 10)
    assert (queue.fast_path_limit > 10, queue.is_judged) == (True, True)
    leave(queue, 10)
    assert (queue.fast_path_limit, queue.is_judged) == (9, False)
    plain, _ = a_broker(Tape()).declare_queue("q")
    fill(plain, 10)
    assert plain.alerts is None and not plain.is_judged


def test_only_who_decides_tells_and_a_successor_tells_anew() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, told = a_queue(broker, count=2)
    send(broker, "q", "a", "b")
    backup = copy_of(tape)
    heard: list[Any] = []
    backup._announce = heard.append
    assert told == [True] and backup.queues["q"].alerts is not None
    backup.log_writer = tape
    backup.promoted(1)
    assert [one.about.is_up for one in heard] == [True]


def test_alerts_can_be_set_and_taken_away_while_messages_are_there() -> None:
    queue, told = a_queue()
    fill(queue, 5)
    queue.reconfigure(a_queue(count=3)[0].spec)
    assert told == [True]
    queue.reconfigure(a_queue()[0].spec)
    leave(queue, 5)
    assert told == [True] and queue.alerts is None


@pytest.mark.parametrize(
    "arguments", [{"count": -1}, {"size": "x"}, {"count": 5, "count_down": 5}, {"size_down": 1}]
)
def test_alerts_that_cannot_be_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        a_queue(**arguments)


def test_qpid_3_5_the_older_names_mean_the_same() -> None:
    given = {
        "x-qpid-maximum-message-count": 10,
        "x-qpid-maximum-message-size": 100,
        "x-qpid-minimum-alert-repeat-gap": 1,
    }
    queue, _ = a_broker(Tape()).declare_queue("q", arguments=given)
    named = {"count": 10, "size": 100, "repeat_gap": 1}
    assert queue.spec.alerts == read_alerts(
        {f"qpid.alert_{n}": v for n, v in named.items()}, Limits(), QueueDefaults()
    )
