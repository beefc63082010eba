"""Definitions: what is put into a new cluster comes out of it; what a document cannot mean is
refused with its place; a plan says what it comes to.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qpidha.client.command.exits import Failure, failure_of
from qpidha.management.schema import plain
from qpidha.model.errors import RefusedRequest
from qpidha.model.exit_codes import UNAVAILABLE
from qpidha.tools.definitions import (
    FIELDS,
    Definition,
    Kind,
    Outcome,
    Present,
    Step,
    carry_out,
    exported,
    planned,
    read,
    written,
)
from tests.management.builders import FakeConnection, FakeNode
from tests.management.test_requests import Asker


class Broker:
    """A broker that is asked as by a command."""

    def __init__(self) -> None:
        self.asker = Asker(FakeNode())
        self.asked: list[str] = []

    def call(self, method: str, params: dict[str, Any]) -> Any:
        before = len(self.asker.answers)
        self.asked.append(method)
        self.asker.call(method, json.loads(json.dumps(params)))
        while len(self.asker.answers) == before:
            self.asker.target.commit_all()
        reply = self.asker.answers[-1]
        if reply.error is not None:
            assert isinstance(reply.error, RefusedRequest)
            raise failure_of(reply.error)
        return plain(reply.result)

    def bring_in(self, text: str) -> list[Step]:
        steps = planned(read(text), Present.ask(self.call))
        carry_out(steps, self.call)
        return steps

    def export(self) -> str:
        return written(exported(self.call)[0])


def outcomes(steps: list[Step]) -> dict[str, str]:
    return {step.definition.title: step.outcome.value for step in steps}


def a_document(**sections: list[dict[str, Any]]) -> str:
    return json.dumps({"schema_version": 1, **sections})


ALL = a_document(
    exchanges=[
        {"name": "events", "type": "topic", "durable": True, "alternate": "lost"},
        {"name": "lost", "type": "fanout", "arguments": {"qpid.replicate": "all"}},
        {"name": "hash", "type": "x-consistent-hash", "arguments": {"hash-header": "customer"}},
    ],
    queues=[
        {
            "name": "orders",
            "durable": True,
            "alternate": "lost",
            "arguments": {
                "x-dead-letter-exchange": "/queues/orders.dead",
                "x-max-length": 100,
                "x-delivery-limit": 3,
                "colour": ["red", {"deep": 1.5}],
            },
        },
        {"name": "orders.dead", "arguments": {"qpid.replicate": "none"}},
        {"name": "short", "auto_delete": True, "arguments": {"qpid.auto_delete_timeout": 5}},
    ],
    bindings=[
        {"exchange": "events", "queue": "orders", "key": "order.#"},
        {"exchange": "events", "destination_exchange": "lost", "key": "#"},
        {"exchange": "amq.match", "queue": "orders", "arguments": {"x-match": "any", "a": 1}},
        {"exchange": "hash", "queue": "orders", "key": "2"},
    ],
    policies=[
        {"name": "p", "pattern": "^o", "definition": {"max-length": 9}, "priority": 3},
        {"name": "q", "pattern": "x", "definition": {"ttl": 5}, "merge": True},
    ],
    operator_policies=[{"name": "cap", "pattern": ".*", "definition": {"max-length": 1000}}],
    links=[{"name": "paris", "addresses": "ssl:paris:5671,h:5672", "username": "ann"}],
    routes=[
        {
            "name": "in",
            "link": "paris",
            "source": "far",
            "destination": "orders",
            "excludes": "x,y",
        },
        {
            "name": "out",
            "link": "paris",
            "kind": "exchange",
            "direction": "push",
            "source": "events",
            "destination": "far",
            "key": "order.#",
        },
    ],
)


def test_row_154_what_is_put_into_a_new_cluster_comes_out_of_it() -> None:
    one, other = Broker(), Broker()
    assert set(outcomes(one.bring_in(ALL)).values()) == {"created"}
    text = one.export()
    assert set(outcomes(other.bring_in(text)).values()) == {"created"}
    assert other.export() == text
    content = json.loads(text)
    assert {name: len(rows) for name, rows in content.items() if name != "schema_version"} == {
        "exchanges": 3,
        "queues": 3,
        "bindings": 4,
        "policies": 2,
        "operator_policies": 1,
        "links": 1,
        "routes": 2,
    }
    orders = content["queues"][0]
    assert orders["arguments"]["colour"] == ["red", {"deep": 1.5}]
    assert "qpid.ha-uuid" not in text, "it is of one cluster"
    assert "qpid.replicate" not in orders["arguments"], "policies may still say it"
    assert content["queues"][1]["arguments"] == {"qpid.replicate": "none"}


def test_a_link_keeps_its_password_which_no_document_has_unless_it_leads_elsewhere() -> None:
    broker = Broker()
    link = {"name": "l", "addresses": "h:5672", "username": "ann", "password": "hush"}
    broker.call("declare_link", link)
    text = broker.export()
    assert "hush" not in text
    links = broker.asker.target.broker.federation.links
    assert set(outcomes(broker.bring_in(text)).values()) == {"unchanged"}
    assert links["l"].password == "hush"
    broker.bring_in(a_document(links=[{"name": "l", "addresses": "h:5672", "username": "bob"}]))
    assert (links["l"].username, links["l"].password) == ("bob", "")
    broker.call("declare_link", link)
    broker.bring_in(a_document(links=[{"name": "l", "addresses": "evil", "username": "ann"}]))
    assert links["l"].password == "", "it would have been sent to another address"


def test_a_route_that_is_another_one_differs_and_one_without_its_link_is_refused() -> None:
    broker = Broker()
    broker.bring_in(ALL)
    other = {"name": "in", "link": "paris", "source": "else", "destination": "orders"}
    lost = {"name": "new", "link": "gone", "source": "s", "destination": "orders"}
    steps = broker.bring_in(a_document(routes=[other, lost]))
    assert outcomes(steps) == {"route in": "differs", "route new": "refused"}


def test_a_queue_without_a_level_of_its_own_follows_policies_where_it_was_brought_in() -> None:
    one, other = Broker(), Broker()
    one.call("declare_queue", {"name": "free"})
    one.call("declare_queue", {"name": "fixed", "arguments": {"qpid.replicate": "all"}})
    other.call("set_policy", {"name": "p", "pattern": ".*", "definition": {"replicate": "none"}})
    other.bring_in(one.export())
    rows = {row["name"]: row for row in other.call("list_queues", {})}
    assert (rows["free"]["replicate_fallback"], rows["fixed"]["replicate_fallback"]) == ("all", "")
    assert (rows["free"]["replicate"], rows["fixed"]["replicate"]) == ("none", "all")


def test_what_came_with_other_arguments_comes_with_them_again_and_policies_may_say_it() -> None:
    one, other = Broker(), Broker()
    arguments = {
        "x-queue-type": "quorum",
        "x-max-length": 5,
        "qpid.max_size": 0,
        "qpidha.delivery-limit-action": "drop",
    }
    one.call("declare_queue", {"name": "q", "durable": True, "arguments": arguments})
    rejecting = {"qpid.max_count": 5, "x-overflow": "reject-publish"}
    one.call("declare_queue", {"name": "r", "arguments": rejecting})
    text = one.export()
    first, second = json.loads(text)["queues"]
    assert (first["arguments"], second["arguments"]) == (arguments, rejecting)
    definition = {"delivery-limit": 50, "overflow": "reject-publish"}
    other.call("set_policy", {"name": "p", "pattern": ".*", "definition": definition})
    other.bring_in(text)
    row, second = other.call("list_queues", {})
    assert second["implied"] == ["qpid.flow_stop_count", "qpid.flow_stop_size"]
    assert row["implied"] == ["qpid.policy_type", "x-delivery-limit"]
    assert row["effective_policy"] == {
        "qpid.flow_stop_count": 0,
        "qpid.flow_stop_size": 0,
        "qpid.policy_type": "reject",
        "x-delivery-limit": 50,
    }
    assert set(outcomes(other.bring_in(text)).values()) == {"unchanged"}


def test_a_second_time_changes_nothing_and_asks_again() -> None:
    broker = Broker()
    broker.bring_in(ALL)
    before = broker.export()
    broker.asked.clear()
    steps = broker.bring_in(ALL)
    assert set(outcomes(steps).values()) == {"unchanged"}
    assert broker.asked.count("declare_queue") == 3, "what is there may not be committed yet"
    assert broker.export() == before


def test_what_differs_is_named_with_the_argument_and_stays() -> None:
    broker = Broker()
    broker.bring_in(ALL)
    content = json.loads(ALL)
    content["queues"][0]["arguments"]["x-max-length"] = 7
    content["exchanges"][0]["type"] = "direct"
    steps = broker.bring_in(json.dumps(content))
    found = {step.definition.name: step for step in steps if step.outcome is Outcome.DIFFERS}
    assert found.keys() == {"orders", "events"}
    assert "qpid.max_count=100" in found["orders"].reason
    assert "qpid.max_count=7" in found["orders"].reason
    assert "type=topic" in found["events"].reason and "type=direct" in found["events"].reason
    assert json.loads(broker.export())["queues"][0]["arguments"]["x-max-length"] == 100


def test_policies_and_what_bindings_say_change() -> None:
    broker = Broker()
    broker.bring_in(ALL)
    content = json.loads(ALL)
    content["policies"][0]["definition"]["max-length"] = 8
    content["bindings"][2]["arguments"]["a"] = 2
    steps = broker.bring_in(json.dumps(content))
    changed = {
        step.definition.name: step.reason for step in steps if step.outcome is Outcome.CHANGED
    }
    assert changed == {
        "p": 'definition was {"max-length": 9}, is {"max-length": 8}',
        "amq.match -> orders ''": "argument a was 1, is 2",
    }
    rows = json.loads(broker.export())
    assert rows["policies"][0]["definition"] == {"max-length": 8}
    (binding,) = (row for row in rows["bindings"] if row["exchange"] == "amq.match")
    assert binding["arguments"] == {"x-match": "any", "a": 2}


def test_what_names_nothing_is_refused_and_the_rest_is_done() -> None:
    broker = Broker()
    steps = broker.bring_in(
        a_document(
            queues=[{"name": "q", "alternate": "nowhere"}, {"name": "r"}],
            bindings=[
                {"exchange": "nowhere", "queue": "r"},
                {"exchange": "amq.topic", "queue": "none"},
                {"exchange": "amq.topic", "queue": "r"},
            ],
        )
    )
    assert [step.outcome.value for step in steps] == [
        "refused",
        "created",
        "refused",
        "refused",
        "created",
    ]
    assert "there is no exchange nowhere" in steps[0].reason and steps[0].hint
    assert [row["name"] for row in broker.call("list_queues", {})] == ["r"]


def test_what_the_broker_refuses_is_noted_with_its_reason() -> None:
    broker = Broker()
    weights = [{"exchange": "h", "queue": f"q{number}", "key": "600"} for number in (1, 2)]
    steps = broker.bring_in(
        a_document(
            exchanges=[{"name": "h", "type": "x-consistent-hash"}],
            queues=[{"name": "q1"}, {"name": "q2"}],
            bindings=weights,
        )
    )
    assert [step.outcome.value for step in steps[-2:]] == ["created", "refused"]
    assert "the weight 600 already" in steps[-1].reason and "divide" in steps[-1].hint


def test_a_broker_that_goes_away_leaves_the_rest_untried() -> None:
    broker = Broker()
    steps = planned(read(ALL), Present.ask(broker.call))

    def call(method: str, params: dict[str, Any]) -> Any:
        if params.get("name") == "orders.dead":
            raise Failure(UNAVAILABLE, "gone")
        return broker.call(method, params)

    with pytest.raises(Failure, match="gone"):
        carry_out(steps, call)
    told = [step.outcome for step in steps]
    assert told == [Outcome.CREATED] * 4 + [Outcome.NOT_TRIED] * 12
    assert Outcome.CREATED in outcomes(broker.bring_in(ALL)).values()


def test_what_ends_with_a_connection_is_left_out_and_said() -> None:
    broker = Broker()
    connection = FakeConnection(1)
    broker.asker.call("declare_queue", {"name": "mine", "exclusive": True}, connection)
    uuid = "00000000-0000-0000-0000-000000000001"
    lifetime = {"qpid.lifetime-policy": "delete-on-close"}
    host = broker.asker.target.broker
    host.declare_queue(f"TempQueue{uuid}", arguments=lifetime, owner=connection)
    host.declare_exchange(f"TempTopic{uuid}", "topic", owner=connection)
    broker.asker.target.commit_all()
    broker.call("declare_queue", {"name": "kept"})
    for queue in ("mine", "kept"):
        broker.call("bind", {"exchange": "amq.topic", "queue": queue, "key": "a"})
    broker.call("set_policy", {"name": "p", "pattern": ".*", "definition": {"ttl": 5}})
    broker.call("override_policy", {"name": "p", "definition": {"ttl": 6}, "seconds": 60})
    definitions, left = exported(broker.call)
    assert [one.title for one in definitions] == [
        "queue kept",
        "binding amq.topic -> kept 'a'",
        "policy p",
    ]
    text = "; ".join(left)
    for name in ("mine", f"TempQueue{uuid}", f"TempTopic{uuid}", "override.p"):
        assert name in text


def test_exchanges_come_behind_their_alternates_whatever_the_order_is() -> None:
    rows = [
        {"name": f"e{number}", "type": "fanout", "alternate": f"e{number - 1}" if number else ""}
        for number in range(9)
    ]
    random.Random(3).shuffle(rows)
    assert set(outcomes(Broker().bring_in(a_document(exchanges=rows))).values()) == {"created"}


def test_a_quorum_queue_is_unchanged_when_it_is_brought_in_again() -> None:
    text = a_document(
        queues=[{"name": "q", "durable": True, "arguments": {"x-queue-type": "quorum"}}]
    )
    broker = Broker()
    assert outcomes(broker.bring_in(text)) == {"queue q": "created"}
    assert outcomes(broker.bring_in(text)) == {"queue q": "unchanged"}


E = {"name": "e", "type": "fanout"}


@pytest.mark.parametrize(
    ("text", "what", "why"),
    [
        ("{", "line 1, column 2", "expecting"),
        ("[]", "no JSON object", ""),
        ('{"schema_version": NaN}', "NaN", ""),
        (
            '{"schema_version": 1, "queues": [], "queues": []}',
            "'queues' is in one object twice",
            "",
        ),
        ('{"queues": []}', "schema_version is null", "reads 1"),
        ('{"schema_version": 2}', "schema_version is 2", "reads 1"),
        ('{"schema_version": 1, "queue": []}', "'queue' is not known", ""),
        ('{"schema_version": 1, "queues": {}}', "queues is no list", ""),
        ('{"schema_version": 1, "queues": [{"name": "\\ud800"}]}', "surrogate", ""),
        (a_document(queues=[{}]), "queues[0]: name is not there", ""),
        (a_document(queues=[{"name": "q"}, {"name": 5}]), "queues[1]: name is 5", "text"),
        (a_document(queues=[{"name": "q", "durable": 1}]), "durable is 1", "true or false"),
        (a_document(queues=[{"name": "q", "exclusive": True}]), "no 'exclusive'", ""),
        (a_document(queues=[{"name": "qpid.q"}]), "reserved", ""),
        (a_document(queues=[{"name": "q"}, {"name": "q"}]), "queue q is there twice", "queues[0]"),
        (a_document(queues=[{"name": "q", "arguments": {"x-nope": 1}}]), "x-nope", "done or"),
        (a_document(queues=[{"name": "q", "arguments": {"qpid.replicate": 1}}]), "replication", ""),
        (a_document(queues=[{"name": "q", "arguments": {"x-max-age": "1D"}}]), "x-max-age", "str"),
        (a_document(exchanges=[{"name": "e", "type": "xml"}]), "xml", "parsed"),
        (a_document(exchanges=[{"name": "amq.e", "type": "fanout"}]), "reserved", ""),
        (
            a_document(exchanges=[{**E, "alternate": "f"}, {**E, "name": "f", "alternate": "e"}]),
            "exchange e is behind itself",
            "e, f",
        ),
        (a_document(bindings=[{"exchange": "e"}]), "bindings[0]: a binding leads to one", ""),
        (
            a_document(bindings=[{"exchange": "e", "queue": "q", "destination_exchange": "f"}]),
            "leads to one",
            "",
        ),
        (
            a_document(
                exchanges=[E],
                bindings=[{"exchange": "e", "queue": "q", "arguments": {"x-match": "all"}}],
            ),
            "x-match says nothing",
            "",
        ),
        (
            a_document(bindings=[{"exchange": "amq.match", "queue": "q", "key": "k" * 300}]),
            "300 bytes",
            "255",
        ),
        (a_document(policies=[{"name": "p", "pattern": "("}]), "definition is not there", ""),
        (
            a_document(policies=[{"name": "p", "pattern": "(", "definition": {"ttl": 1}}]),
            "policies[0]: policy p",
            "",
        ),
        (
            a_document(operator_policies=[{"name": "p", "pattern": ".*", "definition": {"x": 1}}]),
            "operator_policies[0]: operator policy p",
            "",
        ),
        ("[" * 100_000, "nested", ""),
    ],
)
def test_a_document_that_means_nothing_is_refused_with_its_place(
    text: str, what: str, why: str
) -> None:
    with pytest.raises(RefusedRequest) as refused:
        read(text)
    error = refused.value
    assert what in error.text and why in error.reason and error.hint, (error.text, error.reason)


# -- any definitions ------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12).map(
    lambda name: f"n{name}"
)
WORDS = st.dictionaries(
    st.sampled_from(["colour", "size", "owner"]),
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
    | st.lists(st.integers(0, 9), max_size=3),
    max_size=2,
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "qpid.max_count": st.integers(1, 10_000),
        "qpid.replicate": st.sampled_from(["none", "configuration", "all"]),
        "x-message-ttl": st.integers(0, 10_000),
        "x-delivery-limit": st.integers(1, 9),
        "x-dead-letter-exchange": st.sampled_from(["", "amq.fanout", "/queues/dead"]),
        "x-single-active-consumer": st.booleans(),
        "qpidha.dedup": st.just("message-id"),
        "x-expires": st.integers(1, 10**9),
    },
)
POLICIES = st.lists(
    st.fixed_dictionaries(
        {
            "name": NAMES,
            "pattern": st.sampled_from([".*", "^n", r"\.dead$", "."]),
            "definition": st.fixed_dictionaries(
                {"max-length": st.integers(1, 99)}, optional={"ttl": st.integers(0, 99)}
            ),
        },
        optional={
            "priority": st.integers(-(2**31), 2**31 - 1),
            "merge": st.booleans(),
            "apply_to": st.sampled_from(["all", "queues", "lvq"]),
        },
    ),
    max_size=3,
    unique_by=lambda row: row["name"],
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Draw a document in which everything that is named is there."""
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    exchanges: list[dict[str, Any]] = []
    for name in names:
        alternates = st.sampled_from(["", "amq.fanout", *(one["name"] for one in exchanges)])
        types = st.sampled_from(["direct", "topic", "fanout", "headers"])
        exchanges.append(
            {
                "name": name,
                "type": draw(types),
                "durable": draw(st.booleans()),
                "alternate": draw(alternates),
                "arguments": draw(WORDS),
            }
        )
    known = ["amq.direct", *names]
    queues = [
        {
            "name": name,
            "durable": draw(st.booleans()),
            "auto_delete": draw(st.booleans()),
            "alternate": draw(st.sampled_from(["", *known])),
            "arguments": draw(WORDS) | draw(LIMITS),
        }
        for name in draw(st.lists(NAMES, max_size=4, unique=True))
    ]
    ends = [{"queue": one["name"]} for one in queues]
    ends += [{"destination_exchange": name} for name in known]
    keys = st.sampled_from(["", "a", "a.*", "#"])
    bindings = draw(
        st.lists(
            st.builds(
                lambda exchange, end, key, arguments: {
                    "exchange": exchange,
                    **end,
                    "key": key,
                    "arguments": arguments,
                },
                st.sampled_from(known),
                st.sampled_from(ends),
                keys,
                WORDS,
            ),
            max_size=5,
            unique_by=lambda row: json.dumps({**row, "arguments": 0}, sort_keys=True),
        )
    )
    rows = {
        "exchanges": draw(st.permutations(exchanges)),
        "queues": queues,
        "bindings": bindings,
        "policies": draw(POLICIES),
        "operator_policies": draw(POLICIES),
    }
    return a_document(**{name: list(each) for name, each in rows.items()})


@given(documents())
def test_any_definitions_come_out_of_a_new_cluster_as_they_came_out_of_the_former(
    text: str,
) -> None:
    one, other = Broker(), Broker()
    assert {step.outcome for step in one.bring_in(text)} <= {Outcome.CREATED}
    first = one.export()
    assert {step.outcome for step in planned(read(text), Present.ask(one.call))} <= {
        Outcome.UNCHANGED
    }
    assert {step.outcome for step in other.bring_in(first)} <= {Outcome.CREATED}
    assert other.export() == first


@given(documents(), st.randoms(use_true_random=False))
def test_one_set_of_definitions_is_one_text(text: str, dice: random.Random) -> None:
    definitions = read(text)
    before = written(definitions)
    dice.shuffle(definitions)
    assert written(definitions) == before
    assert written(read(before)) == before


def test_every_field_of_a_definition_is_a_parameter_of_its_method() -> None:
    broker = Broker()
    values = {**FIELDS[Kind.POLICY], "name": "p", "pattern": "a", "definition": {"ttl": 1}}
    one = Definition(Kind.POLICY, values)
    broker.call("set_policy", one.values)
    assert broker.call("list_policies", {})[0]["definition"] == {"ttl": 1}
