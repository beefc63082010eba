"""Policies: which of them a queue or an exchange follows, what comes of several, and that it is the
same on every broker.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.broker.broker import UNROUTED, Broker
from qpidha.broker.policy import (
    APPLY_TO,
    MOST_POLICIES,
    Followed,
    Policies,
    explained,
    listed,
    policy_asked_for,
)
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.broker.state import ALL_LOOKS, State
from qpidha.broker.vocabulary import Entry, policy_keys
from qpidha.model.duration import SECOND
from qpidha.model.encoding import Described, ULong, encode
from qpidha.model.errors import (
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    RefusedRequest,
)
from qpidha.model.message_view import priority as priority_of
from qpidha.model.records import ExchangeDeclared, PolicyCleared, PolicySet, QueueDeclared, Record
from tests.broker.parts import Tape, a_broker, a_taker, contents, copy_of, picture, remembered, send
from tests.broker.queues.test_priority import ranked


def put(
    broker: Broker, name: str, definition: dict[str, Any], pattern: str = ".*", **more: Any
) -> int:
    return broker.set_policy(policy_asked_for(name, pattern, definition, **more))


def limit_of(state: State, queue: str = "q") -> int:
    found = state.queues[queue].max_count
    return 0 if found == UNLIMITED else found


def effective(state: State, queue: str = "q") -> dict[str, Any]:
    there = state.queues[queue]
    followed = state.followed.get(there)
    return {} if followed is None else followed.effective(there.options)


def snapshot_of(broker: Broker) -> Broker:
    """A broker that got what there is, and no log."""
    other = a_broker()
    other.passive = True
    for sequence, record in broker.objects():
        other.apply(sequence, record)
    return other


def same(one: State, other: State) -> None:
    other.follow_policies(ALL_LOOKS)
    assert one.policies.records() == other.policies.records()
    for name, queue in one.queues.items():
        if queue.uid > 0:
            assert other.queues[name].spec == queue.spec
            assert effective(other, name) == effective(one, name)
    for name, exchange in one.exchanges.items():
        there = other.exchanges[name]
        assert there.alternate == exchange.alternate
        assert (there in other.followed) == (exchange in one.followed)


def test_row_1_a_policy_is_for_queues_that_are_there_and_that_come() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q")
    assert put(broker, "limit", {"max-length": 5}) == len(tape.records)
    broker.dispatch(1)
    broker.declare_queue("later")
    broker.declare_queue("own", arguments={"x-max-length": 3})
    assert [limit_of(broker, name) for name in ("q", "later", "own")] == [5, 5, 3]
    assert broker.queues["q"].ring, "RabbitMQ's default is to push out the oldest"
    same(broker, copy_of(tape))
    same(broker, snapshot_of(broker))


@pytest.mark.parametrize(
    ("policies", "wins"),
    [
        ([("a", 1, 10), ("b", 8, 20)], 20),
        ([("b", 8, 20), ("a", 1, 10)], 20),
        ([("b", 0, 20), ("a", 0, 10)], 10),
        ([("a", 0, 10), ("b", 0, 20)], 10),
        ([("a", -5, 10), ("b", -6, 20)], 10),
    ],
)
def test_row_3_the_highest_priority_counts_and_of_equals_the_first_name(
    policies: list[tuple[str, int, int]], wins: int
) -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q")
    for name, priority, length in policies:
        put(broker, name, {"max-length": length}, priority=priority)
    broker.dispatch(1)
    assert limit_of(broker) == wins
    same(broker, copy_of(tape))
    same(broker, snapshot_of(broker))


def test_row_7_t_l7_a_policy_that_is_cleared_lets_the_next_one_count() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("q")
    put(broker, "base", {"max-length": 3, "overflow": "reject-publish"})
    put(broker, "tight", {"max-length": 1, "overflow": "reject-publish"}, priority=1)
    broker.dispatch(1)
    send(broker, "q", "a")
    with pytest.raises(LimitExceeded):
        send(broker, "q", "b")
    broker.clear_policy("tight")
    broker.dispatch(1)
    send(broker, "q", "b", "c")
    with pytest.raises(LimitExceeded):
        send(broker, "q", "d")
    broker.clear_policy("base")
    broker.dispatch(1)
    send(broker, "q", "d")
    with pytest.raises(NotFound, match="no policy base"):
        broker.clear_policy("base")


def test_t_l6_without_overflow_the_oldest_gives_way_again() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("q")
    put(broker, "p", {"max-length": 1, "overflow": "reject-publish"})
    broker.dispatch(1)
    send(broker, "q", "old")
    with pytest.raises(LimitExceeded):
        send(broker, "q", "refused")
    put(broker, "p", {"max-length": 1})
    broker.dispatch(1)
    send(broker, "q", "new")
    assert contents(broker, "q") == ["new"]


@pytest.mark.parametrize(
    ("argument", "user", "operator", "counts"),
    [
        (0, 100, 50, 50),
        (0, 20, 50, 20),
        (10, 20, 50, 10),
        (30, 20, 50, 20),
        (60, 0, 50, 50),
        (0, 0, 50, 50),
        (7, 0, 0, 7),
    ],
)
def test_rows_11_12_of_limits_the_smallest_counts(
    argument: int, user: int, operator: int, counts: int
) -> None:
    broker = a_broker(Tape())
    put(broker, "u", {"qpid.max_count": user})
    put(broker, "o", {"qpid.max_count": operator}, is_operator=True)
    broker.declare_queue("q", arguments={"qpid.max_count": argument})
    assert limit_of(broker) == counts


def test_row_12_of_all_else_the_operator_comes_first_and_then_the_argument() -> None:
    broker = a_broker(Tape())
    put(broker, "u", {"overflow": "drop-head"})
    broker.declare_queue("argued", arguments={"qpid.policy_type": "reject"})
    broker.declare_queue("plain")
    assert (broker.queues["argued"].ring, broker.queues["plain"].ring) == (False, True)
    put(broker, "o", {"overflow": "drop-head"}, "argued", is_operator=True)
    broker.dispatch(1)
    assert broker.queues["argued"].ring
    assert effective(broker, "argued") == {"qpid.policy_type": "ring"}


def test_a_queue_with_a_limit_of_its_own_rejects_unless_somebody_says_otherwise() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("q", arguments={"qpid.max_count": 5})
    put(broker, "p", {"max-length": 2})
    broker.dispatch(1)
    assert (limit_of(broker), broker.queues["q"].ring) == (2, False)


def test_t_d10_dead_letters_go_where_the_argument_says_and_then_where_the_policy_does() -> None:
    broker = a_broker(Tape())
    for name in ("by.argument", "by.policy"):
        broker.declare_queue(name)
    broker.declare_queue("q", arguments={"x-dead-letter-exchange": "/queues/by.argument"})
    broker.declare_queue("plain")
    for name in ("q", "plain"):
        send(broker, name, "a")
    takers = [a_taker(broker.queues[name], credit=1) for name in ("q", "plain")]
    broker.dispatch(1)
    put(broker, "p", {"dead-letter-exchange": "/queues/by.policy"}, "^(q|plain)$")
    broker.dispatch(2)
    for taker in takers:
        assert taker.queue is not None
        taker.queue.reject(taker.got[0])
    assert [len(broker.queues[name].messages) for name in ("by.argument", "by.policy")] == [1, 1]


NO_WAITING = {"qpid.flow_stop_count": 0, "qpid.flow_stop_size": 0}
"""What comes with `overflow=reject-publish`."""


def limits_of(broker: Broker, queue: str = "q") -> tuple[str, int]:
    spec = broker.queues[queue].spec
    return spec.limits.overflow, spec.delivery_limit.most


def test_row_12_what_a_declaration_only_implies_counts_while_nobody_says_it() -> None:
    """A quorum queue has a delivery limit of 20, and one with x-max-length is a ring, unless they
    say otherwise, or a policy does.
    """
    tape = Tape()
    broker = a_broker(tape)
    arguments = {"x-queue-type": "quorum", "x-max-length": 5}
    broker.declare_queue("q", durable=True, arguments=arguments)
    assert limits_of(broker) == ("ring", 20)
    put(broker, "p", {"delivery-limit": 50, "overflow": "reject-publish"})
    broker.dispatch(1)
    assert limits_of(broker) == ("reject", 50)
    shown = explained(broker.policies, broker.queues["q"].options, followed_by(broker))
    assert {row["name"]: row["from"] for row in shown["settings"]} == dict.fromkeys(
        (*NO_WAITING, "qpid.policy_type", "x-delivery-limit"), "policy p"
    )
    for other in (copy_of(tape), snapshot_of(broker)):
        other.follow_policies(ALL_LOOKS)
        assert limits_of(other) == ("reject", 50)
    put(broker, "p", {"delivery-limit": -1})
    broker.dispatch(2)
    assert limits_of(broker) == ("ring", UNLIMITED)
    put(broker, "o", {"delivery-limit": 3}, is_operator=True)
    broker.dispatch(3)
    assert limits_of(broker) == ("ring", 3)
    broker.clear_policy("o", is_operator=True)
    broker.clear_policy("p")
    broker.dispatch(4)
    assert limits_of(broker) == ("ring", 20), "T-Q3, row 7: back to what is usual"
    broker.declare_queue("q", durable=True, arguments=arguments)


def test_row_7_senders_do_not_wait_where_a_policy_rejects_in_rabbitmqs_words() -> None:
    broker = a_broker(Tape())

    def stops(queue: str) -> int:
        return broker.queues[queue].spec.limits.stop_count

    broker.declare_queue("plain")
    broker.declare_queue("own", arguments={"x-max-length": 10})
    broker.declare_queue("qpid", arguments={"qpid.max_count": 10, "qpid.policy_type": "reject"})
    put(broker, "p", {"max-length": 10, "overflow": "reject-publish"})
    broker.dispatch(1)
    assert [stops(name) for name in ("plain", "own")] == [UNLIMITED, UNLIMITED]
    assert stops("qpid") == 8, "it says itself what it does when it is full"
    assert limits_of(broker, "own")[0] == "reject"
    put(broker, "p", {"max-length": 10, "overflow": "reject-publish", "flow_stop_count": 5})
    broker.dispatch(2)
    assert [stops(name) for name in ("plain", "own")] == [5, 5]
    put(broker, "p", {"max-length": 10, "policy_type": "reject"})
    broker.dispatch(3)
    assert [stops(name) for name in ("plain", "own")] == [8, 8]
    put(broker, "o", {"policy_type": "reject"}, is_operator=True)
    put(broker, "p", {"max-length": 10, "overflow": "reject-publish"})
    broker.dispatch(4)
    assert [stops(name) for name in ("plain", "own")] == [8, 8], "the operator says what it does"


def test_row_12_what_a_declaration_says_itself_is_its_own() -> None:
    broker = a_broker(Tape())
    put(broker, "p", {"delivery-limit": 50, "overflow": "reject-publish"})
    broker.declare_queue(
        "q",
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": 20,
            "x-max-length": 5,
            "x-overflow": "drop-head",
        },
    )
    assert limits_of(broker) == ("ring", 20)


def followed_by(broker: Broker, queue: str = "q") -> Followed | None:
    return broker.followed.get(broker.queues[queue])


def test_t_d10_an_address_is_the_whole_target_whatever_key_others_say() -> None:
    broker = a_broker(Tape())
    for name in ("mine", "theirs"):
        broker.declare_queue(name)
    broker.declare_queue("q", arguments={"x-dead-letter-exchange": "/queues/mine"})
    put(broker, "p", {"dead-letter-exchange": "", "dead-letter-routing-key": "theirs"}, "^q$")
    broker.dispatch(1)
    send(broker, "q", "a")
    taker = a_taker(broker.queues["q"], credit=1)
    broker.dispatch(2)
    broker.queues["q"].reject(taker.got[0])
    assert [len(broker.queues[name].messages) for name in ("mine", "theirs")] == [1, 0]
    shown = explained(broker.policies, broker.queues["q"].options, followed_by(broker))
    (key,) = (row for row in shown["settings"] if row["name"] == "x-dead-letter-routing-key")
    assert (key["value"], key["from"]) == ("mine", "argument")
    assert key["others"] == [{"value": "theirs", "from": "policy p"}]


def test_t_d10_an_operators_address_is_the_whole_target_too() -> None:
    broker = a_broker(Tape())
    broker.declare_queue(
        "q", arguments={"x-dead-letter-exchange": "amq.direct", "x-dead-letter-routing-key": "k"}
    )
    put(broker, "o", {"dead-letter-exchange": "/exchanges/e/"}, "^q$", is_operator=True)
    broker.dispatch(1)
    target = broker.queues["q"].spec.dead_letters
    assert target is not None
    assert (target.exchange, target.key) == ("e", "")
    put(broker, "o", {"dead-letter-exchange": "/exchanges/e"}, "^q$", is_operator=True)
    broker.dispatch(2)
    target = broker.queues["q"].spec.dead_letters
    assert target is not None
    assert (target.exchange, target.key) == ("e", "k"), "it names no key"


def test_row_13_layers_are_put_on_one_another_by_priority() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("q")
    put(broker, "base", {"max-length": 9, "overflow": "reject-publish"}, priority=50)
    put(broker, "a", {"dedup": "message-id"}, is_layer=True)
    put(broker, "b", {"dedup_window": 7, "dedup": "x-key"}, is_layer=True, priority=3)
    put(broker, "other", {"max-length": 4}, priority=2)
    broker.dispatch(1)
    assert effective(broker) == {
        **NO_WAITING,
        "qpid.max_count": 9,
        "qpid.policy_type": "reject",
        "qpidha.dedup": "x-key",
        "qpidha.dedup_window": 7,
    }
    assert remembered(broker.queues["q"].window) == [] and broker.queues["q"].window is not None
    told = explained(
        broker.policies, broker.queues["q"].options, broker.followed[broker.queues["q"]]
    )
    assert [row["policy"] for row in told["policies"] if row["in_effect"]] == ["base", "b", "a"]


def test_row_14_explain_says_of_each_policy_why() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("q", arguments={"qpid.max_count": 30, "qpid.replicate": "none"})
    put(broker, "wins", {"max-length": 20}, priority=8)
    put(broker, "shadowed", {"max-length": 10})
    put(broker, "elsewhere", {"max-length": 10}, "^other")
    put(broker, "replicated", {"max-length": 10}, apply_to="quorum_queues")
    put(broker, "layer", {"overflow": "reject-publish"}, is_layer=True)
    put(broker, "cap", {"max-length": 5}, is_operator=True)
    broker.dispatch(1)
    queue = broker.queues["q"]
    told = explained(broker.policies, queue.options, broker.followed[queue])
    assert [(row["policy"], row["operator"], row["reason"]) for row in told["policies"]] == [
        ("cap", True, "it counts"),
        ("wins", False, "it counts"),
        ("elsewhere", False, "the name does not match ^other"),
        ("layer", False, "a layer, beside the others"),
        ("replicated", False, "it is for quorum_queues"),
        ("shadowed", False, "policy wins comes before it"),
    ]
    assert told["settings"] == [
        *(
            {
                "name": name,
                "value": value,
                "from": "policy layer",
                "others": [],
                "rule": "the smallest counts",
            }
            for name, value in NO_WAITING.items()
        ),
        {
            "name": "qpid.max_count",
            "value": 5,
            "from": "operator policy cap",
            "others": [{"value": 20, "from": "policy wins"}, {"value": 30, "from": "argument"}],
            "rule": "the smallest counts",
        },
        {
            "name": "qpid.policy_type",
            "value": "reject",
            "from": "policy layer",
            "others": [],
            "rule": "operator policy, argument, policy",
        },
    ]


def test_row_6_the_list_is_by_priority_and_tells_of_shadows_and_equals() -> None:
    broker = a_broker(Tape())
    for name in ("q1", "q2", "other"):
        broker.declare_queue(name)
    put(broker, "b", {"max-length": 1}, "^q")
    put(broker, "a", {"max-length": 2}, "^q1")
    put(broker, "top", {"max-length": 3}, "other", priority=9)
    broker.dispatch(1)
    rows = listed(broker.policies, broker.followed.values(), is_operator=False)
    assert [(row["name"], row["matches"], row["in_effect_on"]) for row in rows] == [
        ("top", 1, 1),
        ("a", 1, 1),
        ("b", 2, 1),
    ]
    assert [row["shadowed_by"] for row in rows] == [[], [], ["a"]]
    assert [bool(row["warning"]) for row in rows] == [False, True, True]
    assert rows[0]["definition"] == {"max-length": 3}


KINDS = {
    "all": {"q", "local"},
    "queues": {"q", "local"},
    "classic_queues": {"q", "local"},
    "exchanges": set[str](),
    "quorum_queues": {"q"},
    "replicated_queues": {"q"},
    "lvq": set[str](),
    "priority_queues": set[str](),
}


@pytest.mark.parametrize("apply_to", APPLY_TO)
def test_row_4_a_policy_is_for_queues_of_a_kind(apply_to: str) -> None:
    broker = a_broker(Tape())
    broker.declare_queue("q")
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    definition = {"alternate-exchange": "a"} if apply_to == "exchanges" else {"max-length": 5}
    put(broker, "p", definition, apply_to=apply_to)
    broker.dispatch(1)
    assert {name for name in broker.queues if limit_of(broker, name)} == KINDS[apply_to]
    followers = {each.name for each in broker.followed if each.name in broker.exchanges}
    assert bool(followers) == (apply_to == "exchanges")


def test_row_4_last_value_and_priority_queues_are_known_by_their_arguments() -> None:
    for apply_to, argument in (
        ("lvq", {"qpid.last_value_queue_key": "k"}),
        ("priority_queues", {"qpid.priorities": 5}),
    ):
        assert not APPLY_TO[apply_to](ExchangeDeclared("e", "direct", "", arguments=argument))
        assert APPLY_TO[apply_to](QueueDeclared("q", "", arguments=argument))
        assert not APPLY_TO[apply_to](QueueDeclared("q", ""))


INVALID: list[dict[str, Any]] = [
    *({"definition": wrong} for wrong in (
        {},
        {"ha-sync-mode": "automatic"},
        {"max-lenght": 1},
        {"colour": "red"},
        {"max-length": -1},
        {"max-length": 0},
        {"max-length": "many"},
        {"max-length": True},
        {"max-length": 1.5},
        {"max-length": 2**63},
        {"max-length": None},
        {"max-length": [1]},
        {"max-length-bytes": -5},
        {"qpid.max_count": -1},
        {"qpid.max_size": "x"},
        {"overflow": "explode"},
        {"overflow": 1},
        {"qpid.policy_type": "paging"},
        {"max-length": 1, "x-max-length": 2},
        {"flow_stop_count": 5, "max-length": 2},
        {"dedup": "colour"},
        {"dedup_window": 5},
        {"dedup": "message-id", "dedup_window": 0},
        {"replicate": "some"},
        {"ha-mode": "exactly", "ha-params": 2},
        {"ha-mode": "nodes"},
        {"ha-params": 2},
        {"ha-sync-mode": "manual"},
        {"ha-promote-on-failure": "always"},
        {"x-queue-type": "quorum"},
        {"queue-type": "classic"},
        {"durable": True},
        {"exclusive": True},
        {"auto-delete": True},
        {"qpid.lifetime-policy": "manual"},
        {"x-max-priority": 5},
        {"qpid.priorities": 5},
        {"fairshare": -1},
        {"fairshare-256": 1},
        {"fairshare-x": 1},
        {"x-priority-weight": 3},
        {"x-single-active-consumer": True},
        {"target-group-size": 3},
        {"federation-upstream": "up"},
        {"max-age": "1D"},
        {"memory": "much"},
        {"memory": -1},
        {"memory": 5, "x-max-in-memory-bytes": 6},
        {"x-max-in-memory-length": 5},
        {"qpid.paging": True},
        {"queue-mode": "lazy"},
        {"ttl": -1},
        {"ttl": 5, "message-ttl": 6},
        {"max-length": {"a": 1}},
    )),
    {"name": ""},
    {"name": "n" * 256},
    {"name": "a\x00"},
    {"pattern": "("},
    {"apply_to": "streams"},
    {"definition": {"overflow": "reject-publish", "flow_resume_count": 5}},
    {"priority": 2**31},
    {"priority": True},
    {"definition": {"max-length": 1, "ha-sync-batch-size": "x" * 20_000}},
    {"definition": {"replicate": "all"}, "is_operator": True},
]  # fmt: skip


@pytest.mark.parametrize("wrong", INVALID, ids=repr)
def test_rows_5_18_what_no_policy_can_say_is_refused_by_name(wrong: dict[str, Any]) -> None:
    asked = {"name": "p", "pattern": ".*", "definition": {"max-length": 5}} | wrong
    with pytest.raises(RefusedRequest) as refusal:
        policy_asked_for(**asked)
    assert refusal.value.hint
    told = f"{refusal.value.text} {refusal.value.reason} {refusal.value.hint}"
    if wrong.get("definition") and len(told) < 1000:
        names = [key.removeprefix("x-").removeprefix("qpid.") for key in wrong["definition"]]
        aliases = {"max-length": "max_count", "max-length-bytes": "max_size"}
        assert any(name in told or aliases.get(name, name) in told for name in names) or (
            "empty" in told or "longer" in told
        )


def test_keys_have_both_spellings() -> None:
    for key, known, value in (
        ("ttl", "x-message-ttl", 5),
        ("message-ttl", "x-message-ttl", 5),
        ("memory", "qpidha.memory", 6),
        ("x-max-in-memory-bytes", "qpidha.memory", 6),
    ):
        assert policy_asked_for("p", ".*", {key: value}).settings == {known: value}


def test_row_18_shares_of_levels_may_change_and_the_levels_may_not() -> None:
    tape = Tape()
    broker = a_broker(tape)
    arguments: dict[str, dict[str, Any]] = {
        "q": {"qpid.priorities": 2},
        "own": {"qpid.priorities": 2, "qpid.fairshare-1": 3},
        "strict": {"x-priority-mode": "strict"},
        "fair": {"x-priority-mode": "fair"},
        "fifo": {},
    }
    for name, asked in arguments.items():
        broker.declare_queue(name, arguments=asked)
    before = {name: queue.spec.priorities for name, queue in broker.queues.items()}
    put(broker, "p", {"fairshare": 1, "fairshare-1": 2, "max-length": 50})
    broker.dispatch(1)
    shares = {name: queue.spec.priorities for name, queue in broker.queues.items()}
    assert shares["q"] is not None and shares["q"].shares == (1, 2)
    assert shares["own"] is not None and shares["own"].shares == (1, 3)
    assert [shares[name] for name in ("strict", "fair", "fifo")] == [
        before[name] for name in ("strict", "fair", "fifo")
    ]
    assert effective(broker, "q") == {
        "qpid.fairshare": 1,
        "qpid.fairshare-1": 2,
        "qpid.max_count": 50,
        "qpid.policy_type": "ring",
    }
    assert effective(broker, "fifo") == {"qpid.max_count": 50, "qpid.policy_type": "ring"}
    fifo = broker.queues["fifo"]
    (told,) = explained(broker.policies, fifo.options, broker.followed[fifo])["policies"]
    assert (
        told["reason"] == "it counts, but for qpid.fairshare, qpid.fairshare-1: not for this queue"
    )
    queue = broker.queues["q"]
    for number in (4, 4, 9, 9, 9, 9):
        queue.enqueue(ranked(number))
    taker = a_taker(queue, 6)
    broker.dispatch(2)
    assert [priority_of(message.body()) for message in taker.got] == [9, 9, 4, 9, 9, 4]
    same(broker, copy_of(tape))
    same(broker, snapshot_of(broker))
    broker.clear_policy("p")
    broker.dispatch(3)
    assert {name: queue.spec.priorities for name, queue in broker.queues.items()} == before


@pytest.mark.parametrize(
    ("arguments", "reason", "hint"),
    [
        ({"ha-mode": "exactly", "ha-params": 2}, "one log", "all"),
        ({"ha-mode": "nodes", "ha-params": ["a", "b"]}, "one log", "all"),
        ({"x-ha-policy": "nodes"}, "one log", "all"),
        ({"x-queue-type": "stream"}, "streams", "quorum or classic"),
    ],
)
def test_what_has_no_meaning_with_one_log_is_refused_with_the_reason_and_what_there_is(
    arguments: dict[str, Any], reason: str, hint: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        if "ha-mode" in arguments:
            policy_asked_for("p", ".*", arguments)
        else:
            a_broker().declare_queue("q", arguments=arguments)
    assert reason in refused.value.reason
    assert hint in refused.value.hint


def test_row_4_an_unknown_apply_to_lists_those_that_are() -> None:
    with pytest.raises(InvalidArgument) as refusal:
        policy_asked_for("p", ".*", {"max-length": 1}, apply_to="streams")
    assert all(name in refusal.value.hint for name in APPLY_TO)


@pytest.mark.parametrize(
    ("definition", "apply_to", "said"),
    [
        ({"max-length": 5}, "exchanges", "max-length is for queues only"),
        ({"alternate-exchange": "a", "ttl": 5}, "exchanges", "ttl is for queues only"),
        ({"replicate": "all"}, "exchanges", "replicate is for queues only"),
        ({"ha-mode": "all"}, "exchanges", "ha-mode is for queues only"),
        ({"alternate-exchange": "a"}, "queues", "alternate-exchange is for exchanges only"),
        ({"alternate-exchange": "a"}, "lvq", "alternate-exchange is for exchanges only"),
        ({"hash-header": "h"}, "exchanges", "hash-header"),
        ({"alternate-exchange": ""}, "all", "is empty"),
        ({"alternate-exchange": 5}, "all", "alternate-exchange=5 is not allowed"),
        ({"alternate-exchange": "a" * 256}, "all", "256 characters"),
    ],
)
def test_row_4_a_key_is_for_queues_or_for_exchanges_and_says_so(
    definition: dict[str, Any], apply_to: str, said: str
) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        policy_asked_for("p", ".*", definition, apply_to=apply_to)
    assert said in refusal.value.text and refusal.value.hint


def test_what_rabbitmq_says_of_mirrors_is_taken_where_it_asks_for_nothing_else() -> None:
    definition = {
        "ha-mode": "all",
        "ha-sync-mode": "automatic",
        "ha-promote-on-failure": "when-synced",
    }
    broker = a_broker(Tape(), ha_replicate="none")
    put(broker, "ha", definition, "^ha")
    assert broker.policies.get("ha").definition == definition  # type: ignore[union-attr]
    broker.declare_queue("ha.1")
    broker.declare_queue("ha.own", arguments={"qpid.replicate": "none"})
    broker.declare_queue("ha.mine", owner=object(), exclusive=True, auto_delete=True)
    broker.declare_queue("q")
    levels = [broker.queues[name].options.replicate for name in ("ha.1", "ha.own", "ha.mine", "q")]
    assert levels == ["all", "none", "none", "none"]


def test_only_a_primary_changes_policies_and_only_where_all_know_them() -> None:
    broker = a_broker(Tape())
    put(broker, "p", {"max-length": 5})
    broker.passive = True
    for change in (lambda: put(broker, "p", {"max-length": 6}), lambda: broker.clear_policy("p")):
        with pytest.raises(RefusedRequest, match="on a backup"):
            change()
    broker.passive = False
    broker.features.clear()
    with pytest.raises(PreconditionFailed, match="every broker"):
        put(broker, "p", {"max-length": 6})
    assert broker.policies.get("p").definition == {"max-length": 5}  # type: ignore[union-attr]


def test_what_changes_nothing_is_not_recorded_and_there_are_only_so_many() -> None:
    tape = Tape()
    broker = a_broker(tape)
    put(broker, "p0", {"max-length": 5})
    assert put(broker, "p0", {"max-length": 5}) == 1 and len(tape.records) == 1
    alone = a_broker()
    put(alone, "p0", {"max-length": 5})
    assert put(alone, "p0", {"max-length": 5}) == 0, "it records nothing to be waited for"
    for number in range(1, MOST_POLICIES):
        put(broker, f"p{number}", {"max-length": 5})
    with pytest.raises(LimitExceeded):
        put(broker, "more", {"max-length": 5})
    put(broker, "more", {"max-length": 5}, is_operator=True)
    put(broker, "p0", {"max-length": 6})


def test_many_queues_follow_some_in_each_turn_and_again_if_it_changes_meanwhile() -> None:
    tape = Tape()
    broker = a_broker(tape)
    for number in range(300):
        broker.declare_queue(f"q{number}")
    put(broker, "p", {"max-length": 5})
    broker.dispatch(1)
    done = sum(bool(limit_of(broker, name)) for name in broker.queues)
    assert 0 < done < 300 and broker.may_walk(0)
    put(broker, "p", {"max-length": 6})
    turns = 0
    while broker.to_follow:
        broker.dispatch(turns := turns + 1)
    assert 1 < turns < 20
    assert {limit_of(broker, name) for name in broker.queues} == {6}


def test_fewer_queues_follow_in_a_turn_where_there_are_many_policies_or_slow_ones() -> None:
    broker = a_broker()
    for number in range(50):
        broker.declare_queue(f"q{number}")
    put(broker, "slow", {"max-length": 5}, r"(.?){120}a{120}")
    for number in range(MOST_POLICIES - 1):
        put(broker, f"p{number}", {"max-length": 6}, priority=1)
    broker.follow_policies(ALL_LOOKS)
    other = snapshot_of(broker)
    other.promoted(1)
    for turn in range(1, 50):
        before = len(other.to_follow)
        other.dispatch(turn)
        assert before - len(other.to_follow) <= 5
    assert not other.to_follow
    same(broker, other)


def test_what_is_remembered_is_remembered_from_the_record_on_everywhere() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q")
    put(broker, "p", {"dedup": "message-id"})
    queue = broker.queues["q"]
    assert queue.window is not None
    replica = copy_of(tape)
    assert replica.queues["q"].window is not None, "without waiting for a turn"
    broker.clear_policy("p")
    assert queue.window is None


def test_what_another_policy_lets_be_remembered_is_so_from_that_record_on_everywhere() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q")
    put(broker, "p", {"dedup": "message-id"})
    put(broker, "before", {"max-length": 100}, priority=5)
    replica = copy_of(tape)
    assert broker.queues["q"].window is replica.queues["q"].window is None
    put(broker, "layer", {"ttl": 5}, is_layer=True)
    broker.clear_policy("before")
    broker.publish("", "q", keyed_payload("k"), headers=dict)
    a_taker(broker.queues["q"], 1, settles=True)
    broker.dispatch(1)
    for sequence, record in tape.records[replica.policies.last :]:
        replica.apply(sequence, record)
    replica.dispatch(2)
    known = remembered(broker.queues["q"].window)
    assert [key for key, _ in known] == ["s:k"]
    assert remembered(replica.queues["q"].window) == known


def keyed_payload(message_id: str) -> bytes:
    return encode(Described(ULong(0x73), [message_id]))


def test_row_16_a_policy_ends_by_itself_on_the_primary_also_after_a_failover() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q")
    broker.ahead = 100 * SECOND
    put(broker, "p", {"max-length": 5}, expires=110 * SECOND)
    broker.dispatch(1)
    assert broker.next_deadline == 10 * SECOND
    replica = copy_of(tape)
    replica.ahead = 50 * SECOND
    replica.dispatch(1)
    assert replica.next_deadline == 0, "a backup decides nothing"
    replica.tick(1000 * SECOND)
    assert limit_of(replica) == 5
    replica.promoted(1)
    assert replica.next_deadline == 60 * SECOND
    replica.tick(60 * SECOND - 1)
    assert limit_of(replica) == 5
    replica.tick(60 * SECOND)
    replica.dispatch(60 * SECOND)
    assert limit_of(replica) == 0 and not replica.policies
    broker.tick(10 * SECOND)
    assert tape.last == PolicyCleared("p")


def test_a_policy_ends_though_the_new_primary_does_not_know_yet_what_is_committed() -> None:
    tape = Tape()
    put(a_broker(tape), "p", {"max-length": 5}, expires=SECOND)
    successor = copy_of(tape)
    successor.log_writer, successor.committed = tape, -1
    successor.promoted(1)
    successor.tick(2 * SECOND)
    assert not successor.policies and tape.last == PolicyCleared("p")


def test_a_snapshot_shows_effects_of_records_that_come_after_it() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("q")
    start = len(tape.records)
    put(broker, "a", {"max-length": 1})
    put(broker, "a", {"max-length": 2})
    put(broker, "b", {"max-length": 3}, priority=5)
    broker.clear_policy("b")
    broker.dispatch(1)
    late = snapshot_of(broker)
    for sequence, record in tape.records[start:]:
        late.apply(sequence, record)
        late.follow_policies(ALL_LOOKS)
        assert limit_of(late) == 2, "what is older changes nothing"
    same(broker, late)


def test_all_is_forgotten_with_the_log() -> None:
    broker = a_broker(Tape())
    broker.declare_queue("local", arguments={"qpid.replicate": "none"})
    put(broker, "p", {"max-length": 5})
    broker.dispatch(1)
    broker.reset(keep_local=True)
    broker.dispatch(2)
    assert not broker.policies and limit_of(broker, "local") == 0
    assert broker.policies.last == 0


def test_a_later_pattern_that_is_not_known_is_for_nothing() -> None:
    broker = a_broker()
    broker.declare_queue("q")
    broker.apply(1, PolicySet("p", "(?<=later)", {}, {"qpid.max_count": 5}))
    broker.apply(2, PolicySet("r", ".*", {}, {"qpid.max_count": 5}, apply_to="streams"))
    broker.dispatch(1)
    assert limit_of(broker) == 0


DEFINITIONS = st.fixed_dictionaries(
    {},
    optional={
        "qpid.max_count": st.integers(0, 9),
        "max-length-bytes": st.integers(1, 9),
        "overflow": st.sampled_from(["drop-head", "reject-publish"]),
        "flow_stop_count": st.integers(0, 9),
        "flow_resume_size": st.integers(0, 9),
        "dedup": st.sampled_from(["message-id", "x-key"]),
        "message-ttl": st.integers(0, 9),
        "dead-letter-exchange": st.sampled_from(["", "amq.fanout"]),
        "dead-letter-routing-key": st.just("k"),
        "alternate-exchange": st.sampled_from(["amq.fanout", "e1", "none"]),
    },
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([".*", "^q1", r"^(?!q1)"]),
        DEFINITIONS,
        st.integers(-1, 1),
        st.booleans(),
        st.booleans(),
        st.integers(0, 3),
    ),
    max_size=12,
)


def play(broker: Broker, steps: list[Any]) -> None:
    for number, (name, pattern, definition, priority, operator, layer, then) in enumerate(steps):
        try:
            wanted = policy_asked_for(
                name, pattern, definition, priority=priority, is_operator=operator, is_layer=layer
            )
        except RefusedRequest:
            if broker.policies.get(name, is_operator=operator) is not None:
                broker.clear_policy(name, is_operator=operator)
        else:
            broker.set_policy(wanted)
        if then == 1:
            broker.declare_queue(f"q1.{number}", arguments={"x-max-length": 4})
            broker.declare_exchange(f"q1.{number}", alternate="amq.topic" if number % 2 else "")
        elif then == 2:
            broker.dispatch(number + 1)


@given(STEPS)
def test_row_9_whatever_happens_every_broker_comes_to_the_same(steps: list[Any]) -> None:
    tape = Tape()
    broker = a_broker(tape)
    for name in ("q1", "q2"):
        broker.declare_queue(name, arguments={"qpid.max_count": 5})
    play(broker, steps)
    while broker.to_follow:
        broker.dispatch(1 << 40)
    same(broker, copy_of(tape))
    other = snapshot_of(broker)
    same(broker, other)
    for queue in broker.queues.values():
        assert oracle(tape.records, queue.options) == (queue.max_count, queue.ring)
    for exchange in broker.exchanges.values():
        if exchange.name:
            operator, _, user, _ = told(tape.records, exchange.options)
            names = (operator.get(AE), exchange.options.alternate, user.get(AE))
            assert exchange.alternate == next(filter(None, names), "")


AE = "alternate-exchange"


def oracle(records: list[tuple[int, Record]], queue: QueueDeclared) -> tuple[int, bool]:
    """What counts for a queue, said in another way: the count that it takes, and whether it is a
    ring.
    """
    said = told(records, queue)
    counts = [each["qpid.max_count"] for each in said if each.get("qpid.max_count")]
    kinds = [each["qpid.policy_type"] for each in said if "qpid.policy_type" in each]
    return min(counts, default=UNLIMITED), kinds[:1] == ["ring"]


def told(
    records: list[tuple[int, Record]], what: QueueDeclared | ExchangeDeclared
) -> list[dict[str, Any]]:
    """What is said of a queue or an exchange by operators, its declaration and users, and what
    counts if nobody says it.
    """
    policies: dict[tuple[bool, str], PolicySet] = {}
    for _, record in records:
        if isinstance(record, PolicySet):
            policies[record.is_operator, record.name] = record
        elif isinstance(record, PolicyCleared):
            del policies[record.is_operator, record.name]
    said: list[dict[str, Any]] = []
    for is_operator in (True, False):
        fit = [
            record
            for (operator, _), record in policies.items()
            if operator is is_operator
            and says(record, what)
            and {".*": True, "^q1": what.name.startswith("q1")}.get(
                record.pattern, not what.name.startswith("q1")
            )
        ]
        fit.sort(key=lambda record: record.name)
        fit.sort(key=lambda record: record.priority, reverse=True)
        bases = [record for record in fit if not record.is_layer][:1]
        settings: dict[str, Any] = {}
        for record in bases + [record for record in fit if record.is_layer][::-1]:
            settings |= says(record, what)
        said.append(settings)
    implied = what.implied if isinstance(what, QueueDeclared) else []
    said.insert(1, {name: value for name, value in what.arguments.items() if name not in implied})
    said.append({name: what.arguments[name] for name in implied})
    return said


def says(record: PolicySet, what: QueueDeclared | ExchangeDeclared) -> dict[str, Any]:
    is_exchange = isinstance(what, ExchangeDeclared)
    return {name: value for name, value in record.settings.items() if (name == AE) is is_exchange}


def test_values_say_who_says_what_and_the_first_counts() -> None:
    policies = Policies()
    policies.apply(1, policy_asked_for("u", ".*", {"max-length": 3}))
    queue = QueueDeclared("q", "", arguments={"qpid.max_count": 2})
    followed = policies.of(queue)
    assert isinstance(followed, Followed)
    assert followed.values(queue)["qpid.max_count"] == [(2, "argument"), (3, "policy u")]
    assert followed.effective(queue) == {}


EACH = [
    entry
    for entry in policy_keys()
    if entry.example is not None and "replicate" not in entry.alias_of + entry.name
]
NEEDS = {
    "qpidha.dedup_window": {"qpidha.dedup": "message-id"},
    **dict.fromkeys(
        ("x-dead-letter-routing-key", "x-dead-letter-strategy", "qpidha.dead-letter-on-delete"),
        {"x-dead-letter-exchange": "amq.direct"},
    ),
    **dict.fromkeys(
        ("x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"),
        {"x-delayed-retry-type": "all", "x-delayed-retry-min": 1000},
    ),
    "qpid.alert_count_down": {"qpid.alert_count": 200},
    "qpid.alert_size_down": {"qpid.alert_size": 200},
    "qpidha.delivery-limit-action": {"x-delivery-limit": 5},
}
"""Keys that are said with another one only."""


@pytest.mark.parametrize("entry", EACH, ids=lambda entry: entry.name)
def test_row_15_every_key_is_followed_beside_whatever_others_say(entry: Entry) -> None:
    tape = Tape()
    broker = a_broker(tape)
    for number, other in enumerate(EACH):
        name = f"q{number}"
        broker.declare_queue(name)
        send(broker, name, "a")
        told = {**NEEDS.get(other.name, {}), other.name: other.example}
        put(broker, "other", told, f"^{name}$")
        broker.follow_policies(ALL_LOOKS)
        wanted = {**NEEDS.get(entry.name, {}), entry.name: entry.example}
        put(broker, "each", wanted, is_operator=True)
        broker.follow_policies(ALL_LOOKS)
        broker.clear_policy("each", is_operator=True)
        broker.follow_policies(ALL_LOOKS)
    same(broker, copy_of(tape))


@pytest.mark.parametrize("dead_letters", [False, True])
def test_a_ring_that_is_far_over_a_lower_limit_comes_down_to_it_turn_by_turn(
    dead_letters: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidha.broker.queues.queue.MOST_OVER", 10)
    monkeypatch.setattr("qpidha.broker.queues.sweep.PASSED_ON_A_TURN", 200 if dead_letters else 4)
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("dead")
    arguments = {"x-overflow": "drop-head", "x-max-length": 200}
    if dead_letters:
        arguments["x-dead-letter-exchange"] = "/queues/dead"
    queue, _ = broker.declare_queue("q", arguments=arguments)
    send(broker, "q", *map(str, range(100)))
    put(broker, "p", {"max-length": 5})
    broker.dispatch(1)
    assert len(queue.messages) == 100
    broker.go_on_walking(len(tape.records))
    assert len(queue.messages) == 80
    send(broker, "q", "new")
    assert len(queue.messages) == 80, "it has one leave"
    cut = copy_of(tape)
    cut.dispatch(1)
    cut.promoted(1)
    for one in (broker, cut):
        turns = 0
        while one.walks:
            one.go_on_walking(1 << 60)
            turns += 1
        assert turns > 3
        assert contents(one, "q") == ["96", "97", "98", "99", "new"]
        send(one, "q", "last")
        assert len(one.queues["q"].messages) == 5
    assert picture(broker) == picture(copy_of(tape))
    assert len(broker.queues["dead"].messages) == (5 if dead_letters else 0), "it is one as well"


def with_orphans(tape: Tape) -> Broker:
    """Return a broker with a message on a queue that has an alternate exchange with a queue."""
    broker = a_broker(tape)
    broker.declare_queue("orphans")
    broker.bind("amq.fanout", "orphans")
    broker.declare_queue("q", alternate="amq.fanout")
    send(broker, "q", "a")
    return broker


def test_a_queue_whose_deletion_came_to_nothing_follows_what_was_set_meanwhile() -> None:
    tape = Tape()
    broker = with_orphans(tape)
    put(broker, "p", {"max-length": 5})
    broker.follow_policies(ALL_LOOKS)
    broker.refuse_publishing = "no"
    broker.delete_queue("q", may_rest=True)
    put(broker, "p", {"max-length": 6})
    broker.follow_policies(ALL_LOOKS)
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    broker.follow_policies(ALL_LOOKS)
    assert limit_of(broker) == 6
    same(broker, copy_of(tape))


def test_a_queue_whose_deletion_came_to_nothing_remembers_the_next_message() -> None:
    tape = Tape()
    broker = with_orphans(tape)
    broker.refuse_publishing = "no"
    broker.delete_queue("q", may_rest=True)
    put(broker, "p", {"dedup": "message-id"})
    successor = copy_of(tape)
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    before = tape.end
    successor.log_writer = tape
    successor.promoted(1)
    successor.publish("", "q", keyed_payload("k"), headers=dict)
    for sequence, record in tape.records[before:]:
        broker.apply(sequence, record)
    known = remembered(successor.queues["q"].window)
    assert [key for key, _ in known] == ["s:k"]
    assert remembered(broker.queues["q"].window) == known


def test_a_queue_whose_deletion_came_to_nothing_has_forgotten_what_the_others_have() -> None:
    tape = Tape()
    broker = a_broker(tape)
    broker.declare_queue("orphans")
    broker.bind("amq.fanout", "orphans")
    queue, _ = broker.declare_queue("q", alternate="amq.fanout")
    put(broker, "p", {"dedup": "message-id"})
    broker.publish("", "q", keyed_payload("k"), headers=dict)
    broker.refuse_publishing = "no"
    broker.delete_queue("q", may_rest=True)
    for definition in ({"dedup": "x-other"}, {"dedup": "message-id"}):
        put(broker, "p", definition)
    successor = copy_of(tape)
    broker.log_writer = None
    broker.passive = True
    broker.abandon_walks()
    broker.follow_policies(ALL_LOOKS)
    assert broker.queues["q"] is queue and queue.spec == successor.queues["q"].spec
    assert remembered(queue.window) == remembered(successor.queues["q"].window) == []


# -- exchanges ------------------------------------------------------------------------------------


def with_exchanges(tape: Tape | None = None, **declared: str) -> Broker:
    """A broker with the exchange e, with what it is declared with, and two that lead to a queue
    each of their name.
    """
    broker = a_broker(tape)
    for name in ("one", "two"):
        broker.declare_exchange(name, "fanout")
        broker.declare_queue(name)
        broker.bind(name, name)
    broker.declare_exchange("e", "direct", **declared)
    return broker


def publish(broker: Broker, exchange: str = "e") -> list[str]:
    """Publish a message, and return the queues on which it is."""
    before = {name: len(queue.messages) for name, queue in broker.queues.items()}
    routed = broker.publish(exchange, "k", b"x", headers=dict)
    found = [name for name, queue in broker.queues.items() if len(queue.messages) > before[name]]
    assert routed.queues == len(found) and (found or routed == UNROUTED)
    return found


def test_row_4_an_exchange_has_the_alternate_that_a_policy_says() -> None:
    tape = Tape()
    broker = with_exchanges(tape)
    assert publish(broker) == []
    put(broker, "p", {"alternate-exchange": "one"}, "^(e|later|amq.topic)$", apply_to="exchanges")
    broker.dispatch(1)
    broker.declare_exchange("later", "topic")
    broker.declare_exchange("other", "topic")
    assert [publish(broker, name) for name in ("e", "later", "amq.topic", "other", "")] == [
        ["one"],
        ["one"],
        ["one"],
        [],
        [],
    ]
    same(broker, copy_of(tape))
    same(broker, snapshot_of(broker))
    heir = copy_of(tape)
    heir.promoted(1)
    heir.dispatch(1)
    assert publish(heir) == ["one"]
    put(broker, "p", {"alternate-exchange": "two"})
    broker.dispatch(1)
    assert publish(broker) == publish(broker, "later") == publish(broker, "other") == ["two"]
    broker.clear_policy("p")
    broker.dispatch(1)
    assert publish(broker) == publish(broker, "later") == []
    same(broker, copy_of(tape))


def test_the_default_exchange_has_no_alternate_whatever_policies_say() -> None:
    tape = Tape()
    broker = with_exchanges(tape)
    put(broker, "p", {"alternate-exchange": "one"})
    broker.dispatch(1)
    assert publish(broker, "") == []
    same(broker, copy_of(tape))
    same(broker, snapshot_of(broker))


@pytest.mark.parametrize(
    ("argument", "user", "operator", "counts"),
    [
        ("", "one", "", "one"),
        ("", "", "two", "two"),
        ("", "one", "two", "two"),
        ("one", "two", "", "one"),
        ("one", "", "two", "two"),
        ("amq.fanout", "one", "two", "two"),
    ],
)
def test_row_12_of_alternates_the_operators_counts_and_then_the_declared_one(
    argument: str, user: str, operator: str, counts: str
) -> None:
    tape = Tape()
    broker = with_exchanges(tape, alternate=argument)
    for name, is_operator in ((user, False), (operator, True)):
        if name:
            put(broker, "p", {"alternate-exchange": name}, "^e$", is_operator=is_operator)
    broker.dispatch(1)
    assert publish(broker) == [counts]
    same(broker, copy_of(tape))
    same(broker, snapshot_of(broker))


def test_row_15_of_a_policy_for_all_each_takes_what_it_knows() -> None:
    tape = Tape()
    broker = with_exchanges(tape)
    put(broker, "both", {"alternate-exchange": "one", "max-length": 5})
    put(broker, "queues", {"max-length": 3}, priority=1)
    put(broker, "exchanges", {"alternate-exchange": "two"}, "^e$", priority=2)
    broker.dispatch(1)
    assert limit_of(broker, "one") == 3, "who says nothing of queues is in nobody's way there"
    assert (publish(broker), publish(broker, "amq.topic")) == (["two"], ["one"])
    rows = listed(broker.policies, broker.followed.values(), is_operator=False)
    assert [(row["name"], row["matches"], row["in_effect_on"]) for row in rows] == [
        ("exchanges", 1, 1),
        ("queues", 2, 2),
        ("both", 9, 6),
    ]
    told = explained(broker.policies, *following(broker, "amq.topic"))
    assert {row["policy"]: row["reason"] for row in told["policies"]} == {
        "exchanges": "the name does not match ^e$",
        "queues": "it says nothing of exchanges",
        "both": "it counts, but for qpid.max_count: not for this exchange",
    }
    same(broker, copy_of(tape))
    same(broker, snapshot_of(broker))


def following(broker: Broker, name: str) -> tuple[ExchangeDeclared, Followed | None]:
    exchange = broker.exchanges[name]
    return exchange.options, broker.followed.get(exchange)


def test_row_14_explain_says_what_counts_for_an_exchange() -> None:
    broker = with_exchanges(alternate="two")
    put(broker, "p", {"alternate-exchange": "one"})
    put(broker, "q", {"alternate-exchange": "one"}, apply_to="exchanges", priority=-1)
    put(broker, "limit", {"max-length": 5}, apply_to="queues")
    put(broker, "o", {"alternate-exchange": "amq.fanout"}, is_operator=True)
    broker.dispatch(1)
    told = explained(broker.policies, *following(broker, "e"))
    assert told["exchange"] == "e"
    assert [(row["policy"], row["in_effect"], row["reason"]) for row in told["policies"]] == [
        ("o", True, "it counts"),
        ("limit", False, "it is for queues"),
        ("p", True, "it counts"),
        ("q", False, "policy p comes before it"),
    ]
    assert told["settings"] == [
        {
            "name": "alternate-exchange",
            "value": "amq.fanout",
            "from": "operator policy o",
            "others": [{"value": "two", "from": "argument"}, {"value": "one", "from": "policy p"}],
            "rule": "operator policy, argument, policy",
        }
    ]


def test_an_alternate_that_is_not_there_has_no_queue_until_it_comes() -> None:
    broker = with_exchanges()
    put(broker, "p", {"alternate-exchange": "unsent"}, "^e$")
    broker.dispatch(1)
    assert publish(broker) == [] and broker.exchanges["e"].dropped == 1
    broker.declare_exchange("unsent", "fanout")
    broker.declare_queue("q")
    broker.bind("unsent", "q")
    assert publish(broker) == ["q"]


def test_an_alternate_is_not_deleted_while_an_exchange_has_it_by_a_policy() -> None:
    broker = with_exchanges(alternate="one")
    put(broker, "p", {"alternate-exchange": "two"}, is_operator=True)
    broker.dispatch(1)
    for name in ("one", "two"):
        with pytest.raises(RefusedRequest, match="in use as alternate of exchange"):
            broker.delete_exchange(name)
    broker.clear_policy("p", is_operator=True)
    broker.dispatch(1)
    broker.delete_exchange("two")
    put(broker, "p", {"alternate-exchange": "own"}, "^own$")
    broker.dispatch(1)
    broker.declare_exchange("own", "direct")
    assert publish(broker, "own") == []
    broker.delete_exchange("own")


def test_an_exchange_on_the_way_has_the_alternate_of_a_policy() -> None:
    broker = with_exchanges()
    broker.declare_exchange("first", "fanout")
    broker.bind_exchange("first", "e")
    broker.declare_queue("q")
    broker.bind("first", "q")
    put(broker, "p", {"alternate-exchange": "one"}, "^e$")
    broker.dispatch(1)
    assert sorted(publish(broker, "first")) == ["one", "q"]


def test_exchanges_follow_some_in_each_turn_and_only_what_is_said_of_them() -> None:
    tape = Tape()
    broker = a_broker(tape)
    for number in range(600):
        broker.declare_exchange(f"e{number}")
    put(broker, "limit", {"max-length": 5})
    assert not broker.to_follow, "there is no queue"
    ends = []
    put(broker, "p", {"alternate-exchange": "amq.fanout"}, apply_to="exchanges")
    broker.when_followed(lambda: ends.append(sum(e.alternate != "" for e in broker.followed)))
    broker.dispatch(1)
    assert 0 < len(broker.followed) < 600 and not ends
    put(broker, "more", {"max-length": 5})
    broker.delete_exchange("e599")
    while broker.to_follow:
        broker.dispatch(1)
    assert ends == [599 + 4]
    same(broker, copy_of(tape))


def test_built_in_exchanges_forget_their_policies_with_the_log() -> None:
    broker = with_exchanges()
    put(broker, "p", {"alternate-exchange": "amq.fanout"}, r"^amq\.")
    broker.dispatch(1)
    broker.reset(keep_local=True)
    broker.follow_policies(ALL_LOOKS)
    assert not broker.followed and not broker.exchanges["amq.topic"].alternate
