"""The broker's decisions: publishing to several queues at once, handing out, and what expires."""

from __future__ import annotations

import pytest

from qpidha.model.errors import LimitExceeded
from qpidha.model.records import Enqueued
from tests.broker.parts import Tape, a_broker, a_taker, contents, send


def test_broker_alone_records_nothing_and_waits_for_nothing() -> None:
    broker = a_broker(None)
    _, sequence = broker.declare_queue("q")
    assert sequence == 0
    assert broker.bind("amq.topic", "q", "k") == 0
    assert broker.publish("amq.topic", "k", b"a", headers=dict) == (0, 1)
    assert broker.delete_queue("q").sequence == 0


def test_message_for_several_queues_is_recorded_once() -> None:
    tape = Tape()
    broker = a_broker(tape)
    uids = tuple(broker.declare_queue(name)[0].uid for name in "abc")
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    for name in ("a", "b", "c", "local"):
        broker.bind("amq.fanout", name)
    sequence, queues = broker.publish("amq.fanout", "", b"x", headers=dict, expires=7)
    assert queues == 4
    assert tape.records[-1] == (sequence, Enqueued(uids, b"x", 7))
    assert {name: contents(broker, name) for name in broker.queues} == dict.fromkeys(
        ("a", "b", "c", "local"), ["x"]
    )


def test_message_goes_to_all_queues_or_to_none() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("ring", arguments={"qpid.policy_type": "ring", "qpid.max_count": 1})
    broker.declare_queue("full", arguments={"qpid.max_count": 1})
    send(broker, "ring", "old")
    send(broker, "full", "old")
    for name in ("ring", "full"):
        broker.bind("amq.fanout", name)
    before = list(tape.records)
    with pytest.raises(LimitExceeded):
        broker.publish("amq.fanout", "", b"new", headers=dict)
    assert tape.records == before
    assert contents(broker, "ring") == ["old"]
    broker.purge("full")
    broker.publish("amq.fanout", "", b"new", headers=dict)
    assert contents(broker, "ring") == contents(broker, "full") == ["new"]


def test_dispatch_reaches_every_queue_with_something_to_hand_out() -> None:
    broker = a_broker()
    takers = [a_taker(broker.declare_queue(name)[0], 9) for name in "ab"]
    send(broker, "a", "1")
    send(broker, "b", "2")
    broker.dispatch(1)
    assert [taker.bodies for taker in takers] == [["1"], ["2"]]
    assert not broker.runnable
