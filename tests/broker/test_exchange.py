"""Exchanges: which queues each type names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker import exchange as exchange_module
from qpidha.broker.broker import Broker
from qpidha.broker.exchange import matches
from qpidha.broker.topic import MOST_STEPS, TooManyWays
from qpidha.model.errors import InvalidArgument, NotFound, PreconditionFailed, RefusedRequest
from tests.broker.parts import a_broker, contents, enough_steps


def with_queues(*names: str) -> Broker:
    broker = a_broker()
    for name in names:
        broker.declare_queue(name)
    return broker


def routed(broker: Broker, exchange: str, key: str = "", **headers: Any) -> list[str]:
    queues = broker.exchanges[exchange].route(key, lambda: headers, enough_steps())
    return [queue.name for queue in queues]


def test_default_exchange_routes_by_queue_name() -> None:
    broker = with_queues("a", "b")
    assert routed(broker, "", "b") == ["b"]
    assert routed(broker, "", "c") == []


def test_default_exchange_takes_no_bindings() -> None:
    with pytest.raises(RefusedRequest):
        with_queues("a").bind("", "a", "key")


def test_direct_exchange_routes_by_equal_key() -> None:
    broker = with_queues("a", "b")
    broker.bind("amq.direct", "a", "x")
    broker.bind("amq.direct", "b", "x")
    broker.bind("amq.direct", "b", "y")
    assert routed(broker, "amq.direct", "x") == ["a", "b"]
    broker.unbind("amq.direct", "b", "x")
    assert routed(broker, "amq.direct", "x") == ["a"]
    assert routed(broker, "amq.direct", "y") == ["b"]
    assert routed(broker, "amq.direct", "z") == []


@pytest.mark.parametrize("key", ["k" * 255, "é" * 127], ids=["of one byte", "of two"])
def test_a_binding_key_has_as_many_bytes_as_a_routing_key_may_have(key: str) -> None:
    broker = with_queues("a")
    broker.bind("amq.topic", "a", key)
    with pytest.raises(InvalidArgument, match="binding key .* is 25[67] bytes long") as refusal:
        broker.bind("amq.topic", "a", key + key[0])
    assert "255" in refusal.value.reason and refusal.value.hint
    assert routed(broker, "amq.topic", key) == ["a"]


def test_fanout_exchange_routes_to_each_queue_once() -> None:
    broker = with_queues("a", "b")
    for queue, key in (("a", ""), ("a", "again"), ("b", "")):
        broker.bind("amq.fanout", queue, key)
    assert routed(broker, "amq.fanout", "whatever") == ["a", "b"]
    broker.unbind("amq.fanout", "a", "")
    assert routed(broker, "amq.fanout") == ["a", "b"]
    broker.unbind("amq.fanout", "a", "again")
    assert routed(broker, "amq.fanout") == ["b"]


def test_topic_exchange_follows_its_bindings_as_they_change() -> None:
    broker = with_queues("a", "b")
    broker.bind("amq.topic", "a", "usa.#")
    broker.bind("amq.topic", "b", "*.news")
    assert routed(broker, "amq.topic", "usa.news") == ["b", "a"] or routed(
        broker, "amq.topic", "usa.news"
    ) == ["a", "b"]
    assert routed(broker, "amq.topic", "usa") == ["a"]
    broker.unbind("amq.topic", "a", "usa.#")
    assert routed(broker, "amq.topic", "usa.news") == ["b"]
    broker.delete_queue("b")
    assert routed(broker, "amq.topic", "usa.news") == []


def test_topic_exchange_names_a_queue_once_however_many_patterns_fit() -> None:
    broker = with_queues("a")
    for pattern in ("#", "*", "x", "x.#"):
        broker.bind("amq.topic", "a", pattern)
    assert routed(broker, "amq.topic", "x") == ["a"]


def test_headers_exchange_matches_all_or_any() -> None:
    broker = with_queues("all", "any", "present")
    broker.bind("amq.match", "all", "k", {"x-match": "all", "colour": "red", "size": 3})
    broker.bind("amq.match", "any", "k", {"x-match": "any", "colour": "red", "size": 3})
    broker.bind("amq.match", "present", "k", {"colour": None, "qpid.replicate": "none"})
    assert routed(broker, "amq.match", colour="red", size=3) == ["all", "any", "present"]
    assert routed(broker, "amq.match", colour="blue", size=3) == ["any", "present"]
    assert routed(broker, "amq.match", shape="round") == []


GIVEN = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.sampled_from([0, 1, True, 1.0, "1", "x", b"x", [1]])
)
WANTED = st.builds(
    lambda pairs, mode: {**pairs, **mode},
    st.dictionaries(
        st.sampled_from(["a", "b", "c", "x-own"]),
        st.sampled_from([None, 0, 1, True, "x", [1], 2.5]),
    ),
    st.sampled_from([{}, {"x-match": "all"}, {"x-match": "any"}]),
)
CHANGES = st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), WANTED)), max_size=20)


@given(CHANGES, st.lists(GIVEN, max_size=10))
def test_performance_4_a_headers_exchange_finds_what_a_look_at_every_binding_would(
    changes: list[tuple[int, dict[str, Any] | None]], messages: list[dict[str, Any]]
) -> None:
    broker = a_broker()
    bound: dict[str, dict[str, Any]] = {}
    for number in range(6):
        broker.declare_queue(f"q{number}")
    exchange = broker.exchanges["amq.match"]
    for number, wanted in changes:
        queue = broker.queues[f"q{number}"]
        exchange.unbind(queue, "k")
        bound.pop(queue.name, None)
        if wanted is not None:
            exchange.bind(queue, "k", wanted)
            bound[queue.name] = wanted
    for message in messages:
        right = {name for name, wanted in bound.items() if matches(wanted, message)}
        found = routed(broker, "amq.match", **message)
        assert set(found) == right and len(found) == len(right)


def test_performance_4_a_headers_exchange_looks_at_few_of_many_bindings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = a_broker()
    for number in range(100):
        broker.declare_queue(f"q{number}")
        broker.bind("amq.match", f"q{number}", "k", {"kind": "order", "customer": number})
    looked = []
    monkeypatch.setattr(
        exchange_module,
        "matches",
        lambda wanted, given: (looked.append(1), matches(wanted, given))[1],
    )
    assert routed(broker, "amq.match", kind="order", customer=7) == ["q7"]
    assert len(looked) <= 2


def test_a_headers_exchange_finds_bindings_that_want_a_header_to_be_there_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = a_broker()
    for number in range(100):
        broker.declare_queue(f"q{number}")
        mode = ("all", "any")[number % 2]
        broker.bind("amq.match", f"q{number}", "k", {"x-match": mode, f"h{number}": None})
    broker.declare_queue("never")
    broker.bind("amq.match", "never", "k", {"x-match": "any"})
    looked = []
    monkeypatch.setattr(
        exchange_module,
        "matches",
        lambda wanted, given: (looked.append(1), matches(wanted, given))[1],
    )
    assert routed(broker, "amq.match", h7="x", h8=[1], other=1) == ["q7", "q8"]
    assert len(looked) <= 2


def test_a_message_that_has_something_of_what_thousands_of_bindings_want_is_refused() -> None:
    broker = a_broker()
    broker.declare_queue("q")
    exchange, queue = broker.exchanges["amq.match"], broker.queues["q"]
    for number in range(MOST_STEPS + 1):
        pairs = {f"h{digit}": number >> digit & 1 for digit in range(12)}
        exchange.bind(queue, f"k{number}", {**pairs, "never": None, "x-match": "all"})
    for number in range(MOST_STEPS + 2):
        exchange.bind(queue, f"any{number}", {"x-match": "any", "a": 1, f"b{number}": 1})
    with pytest.raises(TooManyWays, match="headers takes too long"):
        routed(broker, "amq.match", a=1, c=1)
    assert routed(broker, "amq.match", b7=1) == ["q"]


def test_as_many_queues_as_want_a_message_get_it() -> None:
    broker = a_broker()
    exchange = broker.exchanges["amq.match"]
    for number in range(MOST_STEPS + 1):
        broker.declare_queue(f"q{number}")
        exchange.bind(broker.queues[f"q{number}"], "k", {"kind": "news"})
    assert len(routed(broker, "amq.match", kind="news")) == MOST_STEPS + 1


def test_headers_are_not_looked_at_without_need() -> None:
    broker = with_queues("a")

    def forbidden() -> dict[str, Any]:
        raise AssertionError("nobody needs them")

    broker.bind("amq.topic", "a", "#")
    for exchange in ("", "amq.topic", "amq.direct", "amq.fanout", "amq.match"):
        broker.publish(exchange, "a", b"", headers=forbidden)


def test_unknown_x_match_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        with_queues("a").bind("amq.match", "a", "k", {"x-match": "some"})


def test_unroutable_message_goes_to_the_alternate_exchange() -> None:
    broker = with_queues("lost")
    broker.declare_exchange("altex", "fanout")
    broker.declare_exchange("ex", "direct", alternate="altex")
    assert broker.publish("ex", "nowhere", b"1", headers=dict).queues == 0
    broker.bind("altex", "lost")
    assert broker.publish("ex", "nowhere", b"2", headers=dict).queues == 1
    assert contents(broker, "lost") == ["2"]
    assert broker.exchanges["ex"].statistics()["dropped"] == 1


def test_unknown_exchange_is_not_found() -> None:
    broker = with_queues("a")
    with pytest.raises(NotFound):
        broker.publish("nowhere", "", b"", headers=dict)
    with pytest.raises(NotFound):
        broker.bind("nowhere", "a")
    with pytest.raises(NotFound):
        broker.bind("amq.topic", "nowhere")
    with pytest.raises(NotFound):
        broker.declare_exchange("ex", "direct", alternate="nowhere")


def test_built_in_exchanges_stay_and_their_names_are_reserved() -> None:
    broker = a_broker()
    for name in ("", "amq.direct", "amq.topic", "amq.fanout", "amq.match"):
        with pytest.raises(RefusedRequest):
            broker.delete_exchange(name)
    with pytest.raises(RefusedRequest):
        broker.declare_exchange("amq.mine", "topic")
    assert broker.declare_exchange("amq.topic", "topic")[0].uid == -3
    with pytest.raises(PreconditionFailed):
        broker.declare_exchange("amq.topic", "direct")


def test_alternate_exchange_in_use_cannot_be_deleted() -> None:
    broker = a_broker()
    broker.declare_exchange("altex", "fanout")
    broker.declare_exchange("ex", "direct", alternate="altex")
    broker.declare_queue("q", alternate="altex")
    with pytest.raises(RefusedRequest):
        broker.delete_exchange("altex")
    broker.delete_exchange("ex")
    with pytest.raises(RefusedRequest):
        broker.delete_exchange("altex")
    broker.delete_queue("q")
    broker.delete_exchange("altex")
    assert "altex" not in broker.exchanges


def test_exchange_in_use_is_kept_if_asked_for_unused() -> None:
    broker = with_queues("a")
    broker.declare_exchange("ex", "fanout")
    broker.bind("ex", "a")
    with pytest.raises(PreconditionFailed):
        broker.delete_exchange("ex", if_unused=True)
    broker.delete_exchange("ex")
    assert broker.queues["a"].bindings == {}


def test_auto_delete_exchange_goes_with_its_last_binding() -> None:
    broker = with_queues("a", "b")
    broker.declare_exchange("ex", "fanout", auto_delete=True)
    broker.bind("ex", "a")
    broker.bind("ex", "b")
    broker.unbind("ex", "a")
    assert "ex" in broker.exchanges
    broker.delete_queue("b")
    assert "ex" not in broker.exchanges


@pytest.mark.parametrize("kind", ["xml", "", "Direct"])
def test_unknown_exchange_type_is_refused(kind: str) -> None:
    with pytest.raises(InvalidArgument):
        a_broker().declare_exchange("ex", kind)
