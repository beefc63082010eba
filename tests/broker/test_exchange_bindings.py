"""Exchanges that are bound to exchanges: where messages come to, and what other brokers know."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.broker import Broker
from qpidha.broker.state import State
from qpidha.broker.topic import MOST_STEPS, Steps, TooManyKeys, TooManyWays, split
from qpidha.broker.transaction import Post, Transaction
from qpidha.model.errors import (
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    RefusedRequest,
)
from qpidha.model.message_view import build
from qpidha.model.records import Bound, FeatureEnabled
from tests.broker.parts import Tape, a_broker, contents, copy_of, picture


def with_exchanges(**types: str) -> Broker:
    broker = a_broker()
    for name, kind in types.items():
        broker.declare_exchange(name, kind)
    return broker


def test_a_message_goes_on_to_an_exchange_that_is_bound() -> None:
    broker = with_exchanges(orders="topic", audit="fanout")
    for queue in ("shop", "archive"):
        broker.declare_queue(queue)
    broker.bind("orders", "shop", "order.*")
    broker.bind("audit", "archive")
    broker.bind_exchange("orders", "audit", "order.#")
    assert broker.publish("orders", "order.new", b"1", headers=dict).queues == 2
    assert broker.publish("orders", "order.new.again", b"2", headers=dict).queues == 1
    assert broker.publish("orders", "other", b"3", headers=dict).queues == 0
    assert contents(broker, "shop") == ["1"]
    assert contents(broker, "archive") == ["1", "2"]
    broker.unbind_exchange("orders", "audit", "order.#")
    assert broker.publish("orders", "order.new.again", b"4", headers=dict).queues == 0


def test_a_queue_gets_a_message_once_by_however_many_ways() -> None:
    broker = with_exchanges(a="fanout", b="fanout", c="direct")
    broker.declare_queue("q")
    for exchange in ("a", "b", "c"):
        broker.bind(exchange, "q", "k")
    for source, target in (("a", "b"), ("a", "c"), ("b", "c"), ("c", "a"), ("a", "a")):
        broker.bind_exchange(source, target, "k")
    assert broker.publish("a", "k", b"1", headers=dict).queues == 1
    assert contents(broker, "q") == ["1"]


def test_an_exchange_on_the_way_that_finds_nothing_has_its_alternate_asked() -> None:
    broker = with_exchanges(lost="fanout", front="fanout")
    broker.declare_exchange("back", "direct", alternate="lost")
    broker.declare_queue("q")
    broker.bind("lost", "q")
    broker.bind_exchange("front", "back", "k")
    assert broker.publish("front", "k", b"1", headers=dict).queues == 1
    broker.declare_exchange("first", "direct", alternate="front")
    assert broker.publish("first", "k", b"2", headers=dict).queues == 1
    assert contents(broker, "q") == ["1", "2"]


def test_a_binding_goes_with_either_end() -> None:
    broker = with_exchanges(a="fanout", b="fanout", c="fanout")
    broker.declare_queue("q")
    broker.bind("c", "q")
    broker.bind_exchange("a", "b")
    broker.bind_exchange("b", "c")
    broker.delete_exchange("b")
    assert broker.exchanges["a"].binding_count == broker.exchanges["a"].leads_on == 0
    assert broker.exchanges["c"].incoming == {}
    assert broker.publish("a", "", b"1", headers=dict).queues == 0


def test_exchanges_that_end_with_their_last_binding_end_one_after_the_other() -> None:
    broker = a_broker()
    names = [f"e{number}" for number in range(1500)]  # More than a call may call itself.
    for name in names:
        broker.declare_exchange(name, "fanout", auto_delete=True)
    for source, target in zip(names, names[1:], strict=False):
        broker.bind_exchange(source, target)
    broker.declare_queue("q")
    broker.bind(names[-1], "q")
    broker.delete_queue("q")
    assert not set(names) & set(broker.exchanges)


def test_the_default_exchange_is_bound_to_nothing_and_nothing_to_it() -> None:
    broker = with_exchanges(a="fanout")
    with pytest.raises(RefusedRequest):
        broker.bind_exchange("", "a")
    with pytest.raises(RefusedRequest):
        broker.bind_exchange("a", "")
    with pytest.raises(NotFound):
        broker.bind_exchange("a", "nowhere")


def test_an_exchange_has_at_most_max_bindings_that_lead_to_it() -> None:
    broker = a_broker(max_bindings=2)
    broker.declare_exchange("a", "direct")
    for key in ("1", "2"):
        broker.bind_exchange("amq.direct", "a", key)
    with pytest.raises(LimitExceeded, match="exchange a: it has 2 bindings"):
        broker.bind_exchange("amq.direct", "a", "3")


def test_every_broker_has_the_binding_whatever_is_deleted_later() -> None:
    tape = Tape()
    broker = a_broker(tape)
    for name in ("a", "b"):
        broker.declare_exchange(name, "fanout")
    broker.declare_queue("q")
    broker.bind("b", "q")
    broker.bind_exchange("a", "b", "k")
    broker.bind_exchange("amq.topic", "b", "#")
    broker.bind_exchange("a", "amq.topic", "x")
    assert [type(record) for _, record in tape.records[-2:]] == [Bound, Bound]
    copy = copy_of(tape)
    assert picture(copy) == picture(broker)
    later = State(broker.settings)
    for sequence, record in broker.objects():
        later.apply(sequence, record)
    assert picture(later) == picture(broker)
    broker.unbind_exchange("amq.topic", "b", "#")
    broker.delete_exchange("b")
    assert picture(copy_of(tape)) == picture(broker)


def test_an_older_broker_would_not_follow_it_so_all_must_know_it() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.features.clear()
    broker.declare_exchange("a", "fanout")
    with pytest.raises(PreconditionFailed) as refusal:
        broker.bind_exchange("a", "amq.topic")
    assert "queue-kinds" in refusal.value.reason and refusal.value.hint
    assert broker.exchanges["a"].binding_count == 0
    with pytest.raises(PreconditionFailed, match="x-consistent-hash"):
        broker.declare_exchange("h", "x-consistent-hash")
    broker.apply(1, FeatureEnabled("queue-kinds"))
    broker.bind_exchange("a", "amq.topic")


KEYS = st.sampled_from(["", "a", "b", "a.b", "#", "*", "a.#"])
BINDINGS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 9), KEYS, st.booleans()), max_size=25
)
TYPES = ("direct", "topic", "fanout", "topic", "direct")


@given(BINDINGS, st.lists(KEYS, max_size=4), st.integers(0, 4))
def test_messages_come_to_all_queues_that_some_way_leads_to(
    bindings: list[tuple[int, int, str, bool]], keys: list[str], alternate: int
) -> None:
    broker = a_broker()
    for number, kind in enumerate(TYPES):
        last = number == len(TYPES) - 1
        broker.declare_exchange(f"e{number}", kind, alternate=f"e{min(alternate, 3)}" * last)
    for number in range(5):
        broker.declare_queue(f"q{number}")
    model: dict[tuple[int, int], set[str]] = {}
    for source, target, key, removes in bindings:
        to_queue = target < 5
        name = f"{'q' if to_queue else 'e'}{target % 5}"
        keys_of = model.setdefault((source, target), set())
        if removes:
            (broker.unbind if to_queue else broker.unbind_exchange)(f"e{source}", name, key)
            keys_of.discard(key)
        else:
            (broker.bind if to_queue else broker.bind_exchange)(f"e{source}", name, key)
            keys_of.add(key)

    def fits(kind: str, pattern: list[str], words: list[str]) -> bool:
        if kind == "fanout":
            return True
        if kind == "direct":
            return pattern == words
        if not pattern:
            return not words
        if pattern[0] == "#":
            return any(fits(kind, pattern[1:], words[skip:]) for skip in range(len(words) + 1))
        return bool(words) and pattern[0] in ("*", words[0]) and fits(kind, pattern[1:], words[1:])

    def oracle(first: int, key: str) -> set[str]:
        found, asked, waiting = set(), {first}, [first]
        while waiting:
            here = waiting.pop()
            leads = [
                target
                for (source, target), patterns in model.items()
                if source == here
                and any(fits(TYPES[here], split(pattern), split(key)) for pattern in patterns)
            ]
            if not leads and here == 4:
                leads = [5 + min(alternate, 3)]
            found |= {f"q{target}" for target in leads if target < 5}
            for target in leads:
                if target >= 5 and target - 5 not in asked:
                    asked.add(target - 5)
                    waiting.append(target - 5)
        if not found and first == 4:
            return oracle(min(alternate, 3), key)
        return found

    for first in range(5):
        for key in keys:
            if "#" in key or "*" in key:
                continue
            steps = Steps(1000, 10**6, "")
            found = broker.routes(broker.exchanges[f"e{first}"], key, dict, steps, b"")
            assert {queue.name for queue in found} == oracle(first, key)
            assert len(found) == len(set(found))


def test_a_net_of_exchanges_takes_a_bounded_number_of_steps() -> None:
    broker = a_broker()
    for number in range(MOST_STEPS // 3):
        broker.declare_exchange(f"e{number}", "fanout")
        broker.bind_exchange("amq.fanout", f"e{number}")
    with pytest.raises(TooManyWays) as refusal:
        broker.publish("amq.fanout", "k", b"", headers=dict)
    assert "leads to many others" in refusal.value.reason
    steps = Steps(50, MOST_STEPS + 1, "later")
    exchange = broker.exchanges["amq.fanout"]
    with pytest.raises(TooManyWays):
        broker.routes(exchange, "k", dict, steps, b"")
    assert steps.are_over() or steps.most == MOST_STEPS
    steps.take(MOST_STEPS)
    with pytest.raises(TooManyKeys):
        broker.routes(exchange, "k", dict, steps, b"")


def test_a_net_that_is_asked_too_much_does_not_spoil_an_exchange_for_others() -> None:
    broker = a_broker()
    broker.declare_queue("q")
    broker.bind("amq.topic", "q", "a.#")
    for number in range(499):
        broker.declare_exchange(f"e{number}", "fanout")
        broker.bind_exchange("amq.fanout", f"e{number}")
    broker.bind_exchange("amq.fanout", "amq.topic")
    with pytest.raises(RefusedRequest):
        broker.publish("amq.fanout", "a.b", b"", headers=dict)
    assert broker.publish("amq.topic", "a.b", b"1", headers=dict).queues == 1


def test_headers_are_read_once_for_all_exchanges() -> None:
    broker = with_exchanges(a="headers", b="headers")
    broker.declare_queue("q")
    broker.bind_exchange("amq.fanout", "a")
    broker.bind_exchange("a", "b", "", {"colour": "red"})
    broker.bind("b", "q", "", {"size": 3})
    reads: list[int] = []

    def headers() -> dict[str, Any]:
        reads.append(1)
        return {"colour": "red", "size": 3}

    assert broker.publish("amq.fanout", "", b"1", headers=headers).queues == 1
    assert len(reads) == 1


def test_a_commit_follows_bindings_between_exchanges() -> None:
    broker = with_exchanges(a="fanout", b="fanout")
    broker.declare_queue("q")
    broker.bind("b", "q")
    broker.bind_exchange("a", "b")
    work = Transaction(broker)
    work.post(Post(build("x"), 0, exchange="a", must_route=True))
    work.commit()
    assert len(broker.queues["q"].messages) == 1


@pytest.mark.parametrize("kind", ["xml", "x-delayed-message", "x-modulus-hash"])
def test_types_of_other_brokers_are_refused_by_name_with_the_reason(kind: str) -> None:
    with pytest.raises(InvalidArgument, match=f"type {kind} is not offered") as refusal:
        a_broker().declare_exchange("ex", kind)
    assert refusal.value.reason and "x-consistent-hash" in refusal.value.hint
