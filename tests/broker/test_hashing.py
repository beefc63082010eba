"""Consistent hashing: the same choice everywhere, shares as the weights say, and few that move."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.broker import Broker
from qpidha.broker.hashing import MOST_WEIGHT, Ring
from qpidha.model.errors import InvalidArgument, LimitExceeded
from qpidha.model.message_view import build
from tests.broker.parts import Tape, a_broker, contents, copy_of, enough_steps

VALUES = [f"customer {number}" for number in range(2000)]


def a_ring(**weights: int) -> Ring[str]:
    return Ring((name, str(weight), name) for name, weight in weights.items())


def hashing(tape: Tape | None = None, **arguments: Any) -> Broker:
    broker = a_broker(tape)
    broker.declare_exchange("h", "x-consistent-hash", arguments=arguments)
    for name, weight in (("a", "1"), ("b", "1"), ("c", "2")):
        broker.declare_queue(name)
        broker.bind("h", name, weight)
    return broker


def chosen(broker: Broker, key: str = "", payload: bytes = b"", **headers: Any) -> str:
    (queue,) = broker.exchanges["h"].route(key, lambda: headers, enough_steps(), payload)
    return str(queue.name)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 3), min_size=1), st.data())
def test_a_taker_that_comes_or_goes_moves_only_what_falls_to_it(
    weights: dict[str, int], data: st.DataObject
) -> None:
    before = a_ring(**weights)
    after = a_ring(**weights, new=data.draw(st.integers(1, 3)))
    for value in VALUES[:200]:
        was, is_now = before.find(value.encode()), after.find(value.encode())
        assert is_now in (was, "new")


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_choice_does_not_depend_on_the_order_of_the_bindings(names: list[str]) -> None:
    ring, other = a_ring(**dict.fromkeys(names, 1)), a_ring(a=1, b=1, c=1, d=1)
    assert all(ring.find(value.encode()) == other.find(value.encode()) for value in VALUES[:100])


def test_takers_get_shares_by_their_weights() -> None:
    ring = a_ring(a=10, b=10, c=20)
    counts = Counter(ring.find(value.encode()) for value in VALUES)
    assert counts.total() == len(VALUES)
    for name, share in (("a", 0.25), ("b", 0.25), ("c", 0.5)):
        assert 0.8 * share < counts[name] / len(VALUES) < 1.2 * share


def test_a_greater_weight_moves_only_what_comes_to_it() -> None:
    before, after = hashing(), hashing()
    after.bind("h", "c", "3")
    moved = [key for key in VALUES if chosen(before, key) != chosen(after, key)]
    assert moved and {chosen(after, key) for key in moved} == {"c"}


def test_a_message_comes_to_one_queue_the_same_for_the_same_key() -> None:
    broker = hashing()
    for body in ("1", "2", "3"):
        assert broker.publish("h", "k", body.encode(), headers=dict).queues == 1
    assert contents(broker, chosen(broker, "k")) == ["1", "2", "3"]
    assert len({chosen(broker, key) for key in VALUES}) == 3


def test_every_broker_and_a_successor_choose_alike() -> None:
    tape = Tape()
    broker = hashing(tape)
    copy = copy_of(tape)
    later = a_broker()
    for sequence, record in reversed(list(broker.objects())):
        later.apply(sequence, record)
    for sequence, record in broker.objects():
        later.apply(sequence, record)
    for key in VALUES[:200]:
        assert chosen(broker, key) == chosen(copy, key) == chosen(later, key)


def test_a_queue_that_goes_gives_what_it_had_to_the_others() -> None:
    broker, other = hashing(), hashing()
    other.delete_queue("c")
    for key in VALUES[:200]:
        was = chosen(broker, key)
        assert chosen(other, key) in ("ab" if was == "c" else was)
    for name in ("a", "b"):
        other.delete_queue(name)
    assert other.publish("h", "k", b"", headers=dict).queues == 0


def test_the_value_of_a_header_is_hashed_in_place_of_the_key() -> None:
    broker = hashing(**{"hash-header": "customer"})
    same = {chosen(broker, key, customer="c1") for key in VALUES[:50]}
    assert len(same) == 1
    assert len({chosen(broker, "k", customer=value) for value in VALUES[:50]}) == 3
    assert chosen(broker, "one") == chosen(broker, "another")  # Neither has the header.
    for odd in (7, 2.5, True, b"x", [1], {"a": 1}):
        assert chosen(broker, customer=odd) in "abc"


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("message_id", "message_id", [1, "x", b"y"]),
        ("correlation_id", "correlation_id", VALUES[:50]),
        ("timestamp", "creation_time", range(50)),
    ],
)
def test_a_property_is_hashed_in_place_of_the_key(name: str, field: str, values: Any) -> None:
    broker = hashing(**{"hash-property": name})
    for value in values:
        payload = build("x", properties={field: value})
        assert chosen(broker, "one", payload) == chosen(broker, "other", payload)
    if len(values) > 3:
        found = {chosen(broker, "", build("x", properties={field: value})) for value in values}
        assert len(found) == 3
    assert chosen(broker, "", b"no message") in "abc"


def test_an_exchange_may_be_one_of_those_to_choose_from() -> None:
    broker = hashing()
    broker.declare_exchange("onward", "fanout")
    broker.declare_queue("q")
    broker.bind("onward", "q")
    broker.bind_exchange("h", "onward", "5")
    came = sum(broker.publish("h", key, b"", headers=dict).queues for key in VALUES[:100])
    assert came == 100 and 0 < len(broker.queues["q"].messages) < 100


@pytest.mark.parametrize("key", ["", "0", "-1", "1.5", "one", "1001", "٣"])
def test_a_binding_key_that_is_no_weight_is_refused(key: str) -> None:
    broker = hashing()
    with pytest.raises(InvalidArgument, match="no weight") as refusal:
        broker.bind("h", "a", key)
    assert refusal.value.hint


def test_all_weights_together_are_bounded() -> None:
    broker = hashing()
    with pytest.raises(LimitExceeded, match="weight 4 already"):
        broker.bind("h", "a", str(MOST_WEIGHT - 3))
    broker.bind("h", "a", str(MOST_WEIGHT - 4))
    broker.unbind("h", "a", str(MOST_WEIGHT - 4))
    broker.bind("h", "b", str(MOST_WEIGHT - 4))
    assert chosen(broker, "k") in "abc"


def test_what_is_hashed_is_said_once_and_to_such_an_exchange_only() -> None:
    broker = a_broker()
    both = {"hash-header": "a", "hash-property": "message_id"}
    with pytest.raises(InvalidArgument, match="both say what is hashed"):
        broker.declare_exchange("h", "x-consistent-hash", arguments=both)
    with pytest.raises(InvalidArgument, match="says nothing to an exchange of the type direct"):
        broker.declare_exchange("h", "direct", arguments={"hash-header": "a"})
    with pytest.raises(InvalidArgument, match="not allowed"):
        broker.declare_exchange("h", "x-consistent-hash", arguments={"hash-property": "app_id"})
