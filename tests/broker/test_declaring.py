"""What is declared and bound: options, arguments, replicate levels and the limits on all of
them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from qpidha.broker.vocabulary import BY_NAME, Kind
from qpidha.model.errors import InvalidArgument, LimitExceeded, PreconditionFailed, RefusedRequest
from qpidha.model.features import QUEUE_KINDS
from qpidha.model.records import Bound, FeatureEnabled, QueueDeclared, Unbound
from tests.broker.parts import Tape, a_broker, contents, send


def test_declared_queue_is_recorded_under_the_sequence_that_is_its_uid() -> None:
    tape = Tape()
    queue, sequence = a_broker(tape).declare_queue("q", durable=True, arguments={"mine": 1})
    assert queue.uid == sequence == 1
    assert tape.last == QueueDeclared(
        "q",
        "uuid-1",
        durable=True,
        arguments={"mine": 1, "qpid.replicate": "all", "qpid.ha-uuid": "uuid-1"},
        fallback="all",
    )


def test_what_came_with_other_arguments_is_named_in_the_record_once_all_brokers_know_that() -> None:
    tape = Tape()
    broker = a_broker(tape)
    ring = {"x-max-length": 5}
    broker.declare_queue("q", arguments=ring)
    assert isinstance(tape.last, QueueDeclared) and tape.last.implied == ["qpid.policy_type"]
    del broker.features[QUEUE_KINDS]
    queue, _ = broker.declare_queue("r", arguments=ring)
    assert queue.options.implied == []
    assert queue.spec.limits.overflow == "ring", "an older broker reads it among the arguments"


def test_what_an_older_broker_would_not_follow_is_refused_until_all_are_upgraded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is not recorded is followed by this broker only."""
    entry = BY_NAME[Kind.QUEUE, "qpid.max_count"]
    monkeypatch.setitem(BY_NAME, (Kind.QUEUE, entry.name), replace(entry, feature=QUEUE_KINDS))
    broker = a_broker(Tape())
    del broker.features[QUEUE_KINDS]
    with pytest.raises(PreconditionFailed, match="every broker of this cluster"):
        broker.declare_queue("q", arguments={"x-max-length": 3})
    assert "q" not in broker.queues
    broker.declare_queue("mine", arguments={"x-max-length": 3, "qpid.replicate": "none"})
    broker.apply(1, FeatureEnabled(QUEUE_KINDS))
    broker.declare_queue("q", arguments={"x-max-length": 3})


def test_same_declaration_again_gives_the_same_queue() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q", arguments={"qpid.max_count": 3})
    assert broker.declare_queue("q", arguments={"qpid.max_count": 3}) == (queue, 0)
    assert broker.declare_queue("q", arguments={"qpid.max_count": 3, "qpid.replicate": "all"}) == (
        queue,
        0,
    )
    assert len(tape.records) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"durable": True},
        {"auto_delete": True},
        {"exclusive": True},
        {"alternate": "amq.fanout"},
        {"arguments": {"qpid.max_count": 3}},
        {"arguments": {"qpid.replicate": "none"}},
    ],
)
def test_different_declaration_of_an_existing_queue_is_refused(other: dict[str, Any]) -> None:
    broker = a_broker()
    broker.declare_queue("q")
    with pytest.raises(PreconditionFailed):
        broker.declare_queue("q", **other)


def test_a_number_that_comes_as_text_asks_for_the_same() -> None:
    broker = a_broker()
    broker.declare_queue("q", arguments={"x-max-length": 5, "x-message-ttl": "9"})
    same = {"qpid.max_count": "5", "x-max-length": 5, "x-message-ttl": 9, "x-overflow": "drop-head"}
    broker.declare_queue("q", arguments=same)
    for other in ({"qpid.max_count": "6"}, {"qpid.max_count": True}, {"qpid.max_count": " 5"}):
        with pytest.raises(RefusedRequest):
            broker.declare_queue("q", arguments={**same, **other})


def test_a_different_declaration_is_told_what_exists_and_what_it_asked_for() -> None:
    broker = a_broker()
    broker.declare_queue("q", arguments={"qpid.max_count": 5})
    with pytest.raises(
        PreconditionFailed,
        match=(
            "q exists with durable=no, qpid.max_count=5, you asked for durable=yes, "
            "qpid.max_count=none"
        ),
    ):
        broker.declare_queue("q", durable=True)


@pytest.mark.parametrize(
    "arguments",
    [
        {"qpid.replicate": "bogus"},
        {"qpid.policy_type": "self-destroy"},
        {"qpidha.overflow-low-water": 0},
        {"qpidha.overflow-low-water": 101},
        {"qpidha.overflow-low-water": 80, "x-max-length": 5},
        {"qpid.policy_type": "flow_to_disk"},
        {"qpid.priorities": 257},
        {"qpid.priorities": -1},
        {"qpid.priorities": 10, "x-max-priority": 9},
        {"qpid.group_header_key": "group", "qpid.priorities": 10},
        {"x-max-priority": 0},
        {"x-max-priority": 256},
        {"x-priority-mode": "loose"},
        {"x-priority-mode": "fair", "qpid.fairshare": 5, "qpid.priorities": 3},
        {"x-priority-mode": "strict", "x-priority-weight": 2},
        {"x-priority-weight": 0},
        {"qpid.fairshare": 5},
        {"qpid.fairshare-0": 5},
        {"qpid.fairshare-3": 5, "qpid.priorities": 3},
        {"qpid.fairshare-N": 5, "qpid.priorities": 3},
        {"qpid.fairshare-\u0661": 5, "qpid.priorities": 3},
        {"qpid.no_such_thing": 1},
        {"qpid.max_count": -1},
        {"qpid.max_count": "many"},
        {"qpid.max_size": True},
        {"qpid.max_size": 2**63},
        {"qpid.max_size": "9" * 19},
        {"qpid.max_size": "9" * 5000},
        {"qpid.max_size": "\u0665"},
        {"qpid.auto_delete_timeout": "soon"},
        {"qpid.auto_delete_timeout": float("nan")},
        {"qpid.auto_delete_timeout": float("inf")},
        {"qpid.auto_delete_timeout": None},
        {"qpid.lifetime-policy": "for-ever"},
        {"qpid.lifetime-policy": "manual", "auto-delete": True},
        {"qpid.lifetime-policy": "manual", "qpid.auto_delete_timeout": 5},
        {"qpid.queue_msg_sequence": "x-acquired-count"},
        {"qpid.queue_msg_sequence": "x-opt-ha-failover"},
        {"qpid.queue_msg_sequence": "x-opt-deaths"},
        {"qpid.queue_msg_sequence": "x-first-death-queue"},
        {"qpid.queue_msg_sequence": "x-opt-delivery-time"},
        {"qpid.queue_msg_sequence": "x-opt-delivery-delay"},
        {"qpid.queue_msg_sequence": "x-cc"},
    ],
)
def test_argument_that_cannot_be_followed_is_refused_and_nothing_created(
    arguments: dict[str, Any],
) -> None:
    tape = Tape()
    broker = a_broker(tape)
    with pytest.raises(InvalidArgument) as refusal:
        broker.declare_queue("q", arguments=arguments)
    if "qpid.replicate" not in arguments:
        assert next(iter(arguments)) in refusal.value.text
    assert not broker.queues and not tape.records


def test_limits_are_read_from_text_too_and_zero_is_none() -> None:
    broker = a_broker(default_queue_limit=5)
    broker.declare_queue("two", arguments={"qpid.max_count": "2", "qpid.max_size": 0})
    broker.declare_queue("short")
    with pytest.raises(LimitExceeded):
        send(broker, "two", "longer than five", "b", "c")
    assert contents(broker, "two") == ["longer than five", "b"]
    with pytest.raises(LimitExceeded):
        send(broker, "short", "longer than five")


def test_queues_are_limited_in_number() -> None:
    broker = a_broker(max_queues=2)
    broker.declare_queue("a")
    broker.declare_queue("b")
    with pytest.raises(LimitExceeded):
        broker.declare_queue("c")
    broker.delete_queue("a")
    broker.declare_queue("c")


def test_default_level_is_the_setting() -> None:
    for level in ("none", "configuration", "all"):
        queue, sequence = a_broker(Tape(), ha_replicate=level).declare_queue("q")
        assert queue.options.replicate == queue.options.arguments["qpid.replicate"] == level
        assert bool(sequence) == ("qpid.ha-uuid" in queue.options.arguments) == (level != "none")
        assert bool(queue.enqueue(b"a")) == (level == "all")


def test_temporary_queue_is_not_replicated_unless_it_says_so() -> None:
    broker = a_broker(Tape())
    owner = object()

    def level(name: str, **options: Any) -> str:
        return broker.declare_queue(name, **options)[0].options.replicate

    assert level("exad", exclusive=True, auto_delete=True, owner=owner) == "none"
    assert level("ex", exclusive=True, owner=owner) == "all"
    assert level("ad", auto_delete=True) == "all"
    timed = {"qpid.auto_delete_timeout": 1}
    assert level("time", exclusive=True, auto_delete=True, arguments=timed, owner=owner) == "all"
    assert (
        level(
            "said",
            exclusive=True,
            auto_delete=True,
            arguments={"qpid.replicate": "all"},
            owner=owner,
        )
        == "all"
    )
    assert (
        level("dynamic", arguments={"qpid.lifetime-policy": "delete-on-close"}, owner=owner)
        == "none"
    )


def test_binding_is_recorded_if_both_its_ends_are_and_it_does_not_say_no() -> None:
    tape = Tape()
    broker = a_broker(tape)
    queue, _ = broker.declare_queue("q")
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    exchange, _ = broker.declare_exchange("ex", "topic")
    broker.declare_exchange("localex", "topic", arguments={"qpid.replicate": "none"})
    before = len(tape.records)
    assert broker.bind("ex", "local", "k") == 0
    assert broker.bind("localex", "q", "k") == 0
    assert broker.bind("ex", "q", "k", {"qpid.replicate": "none"}) == 0
    assert len(tape.records) == before
    assert broker.bind("ex", "q", "k2") == before + 1
    assert tape.last == Bound(exchange.uid, queue.uid, "k2", {})
    assert broker.bind("ex", "q", "k2") == 0
    broker.bind("ex", "q", "k2", {"qpid.replicate": "none"})
    assert tape.last == Unbound(exchange.uid, queue.uid, "k2")
    assert broker.bind("amq.topic", "q", "k") > 0
    broker.unbind("amq.topic", "q", "k")
    assert tape.last == Unbound(-3, queue.uid, "k")
    assert broker.unbind("amq.topic", "q", "k") == 0


def test_bad_level_of_a_binding_is_refused() -> None:
    broker = a_broker()
    broker.declare_queue("q")
    with pytest.raises(InvalidArgument):
        broker.bind("amq.topic", "q", "k", {"qpid.replicate": "some"})


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        [1, [b"x"]],
        {"a": {1: "x"}},
        object(),
        2**63,
        -(2**63) - 1,
        [2**64],
        float("nan"),
        float("inf"),
        [[[[[[[[[1]]]]]]]]],
    ],
)
def test_arguments_that_a_record_cannot_carry_are_refused_by_name(value: object) -> None:
    broker = a_broker()
    broker.declare_queue("q")
    for change in (
        lambda: broker.declare_queue("new", arguments={"mine": value}),
        lambda: broker.declare_exchange("x", arguments={"mine": value}),
        lambda: broker.bind("amq.direct", "q", "k", {"mine": value}),
    ):
        with pytest.raises(InvalidArgument, match="mine"):
            change()
    assert list(broker.queues) == ["q"]


def test_names_and_keys_are_of_bounded_length() -> None:
    broker = a_broker()
    broker.declare_queue("q" * 255)
    for change in (
        lambda: broker.declare_queue("q" * 256),
        lambda: broker.declare_exchange("x" * 256),
        lambda: broker.bind("amq.direct", "q" * 255, "k" * 256),
    ):
        with pytest.raises(InvalidArgument, match="256"):
            change()


def test_limits_on_exchanges_and_bindings_are_kept() -> None:
    broker = a_broker(max_exchanges=6, max_bindings=2)  # five are built in
    broker.declare_exchange("x")
    with pytest.raises(LimitExceeded, match="there are 6"):
        broker.declare_exchange("y")
    broker.declare_queue("q")
    broker.bind("x", "q", "a")
    broker.bind("x", "q", "b")
    broker.bind("x", "q", "b")
    with pytest.raises(LimitExceeded, match="it has 2 bindings"):
        broker.bind("x", "q", "c")
