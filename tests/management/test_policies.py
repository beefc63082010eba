"""Policies through management: what is set, who may set it, what is shown, when it is answered."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.broker.policy import policy_asked_for
from qpidha.management.acl_file import read
from qpidha.management.requests import Requests
from qpidha.model.duration import SECOND
from qpidha.model.errors import Unauthorized
from qpidha.model.principal import Principal, Role
from tests.management.builders import FakeConnection, FakeNode
from tests.management.test_link_pair import Client
from tests.management.test_requests import Asker

LIMIT = {"max-length": 5}


@pytest.fixture
def asker() -> Asker:
    return Asker(FakeNode())


def put(
    asker: Asker, name: str, definition: dict[str, Any], pattern: str = ".*", **more: Any
) -> Any:
    return asker.ask("set_policy", name=name, pattern=pattern, definition=definition, **more)


def row(asker: Asker, name: str = "q") -> dict[str, Any]:
    found: dict[str, Any] = asker.ask("list_queues", name=name)[0]
    return found


def test_row_5_a_policy_is_answered_when_it_is_committed_and_all_queues_follow_it(
    asker: Asker,
) -> None:
    broker = asker.target.broker
    for number in range(300):
        asker.ask("declare_queue", name=f"q{number}")
    asker.call("set_policy", {"name": "p", "pattern": "^q", "definition": LIMIT})
    asker.target.commit_all()
    assert len(asker.answers) == 300, "some queues do not follow it yet"
    while broker.to_follow:
        broker.dispatch(1)
    assert asker.answers[-1].result["definition"] == LIMIT
    assert all(queue.max_count == 5 for queue in broker.queues.values())


def test_a_policy_that_is_set_already_is_answered_when_it_is_committed(asker: Asker) -> None:
    asked = {"name": "p", "pattern": "^q", "definition": LIMIT}
    for _ in range(2):
        asker.call("set_policy", asked)
        asker.target.broker.dispatch(1)
    assert asker.answers == [], "another primary may never have heard of it"
    asker.target.commit_all()
    assert [answer.result["definition"] for answer in asker.answers] == [LIMIT, LIMIT]


def test_row_4_an_exchange_shows_what_it_follows(asker: Asker) -> None:
    asker.ask("declare_exchange", name="e", alternate="amq.match")
    asker.ask("declare_queue", name="q")
    put(asker, "p", {"alternate-exchange": "amq.fanout", "max-length": 5}, "^[eq]$")
    asker.ask(
        "set_operator_policy",
        name="o",
        pattern="^e$",
        definition={"alternate-exchange": "amq.topic"},
        apply_to="exchanges",
    )

    def shown() -> tuple[str, str, dict[str, Any]]:
        (found,) = asker.ask("list_exchanges", name="e")
        assert found["alternate"] == "amq.match", "that is what it was declared with"
        return found["policy"], found["operator_policy"], found["effective_policy"]

    assert shown() == ("p", "o", {"alternate-exchange": "amq.topic"})
    assert row(asker)["effective_policy"] == {"qpid.max_count": 5, "qpid.policy_type": "ring"}
    told = asker.ask("explain_policies", exchange="e")
    assert (told["exchange"], told["waiting"]) == ("e", "")
    assert told["settings"][0]["from"] == "operator policy o"
    (listed,) = asker.ask("list_policies")
    assert (listed["matches"], listed["in_effect_on"]) == (2, 2)
    asker.ask("clear_operator_policy", name="o")
    assert shown() == ("p", "", {}), "its declaration comes before a policy"
    asker.ask("clear_policy", name="p")
    assert shown() == ("", "", {})


@pytest.mark.parametrize("params", [{}, {"queue": "q", "exchange": "amq.topic"}])
def test_row_14_one_queue_or_one_exchange_is_explained(
    asker: Asker, params: dict[str, Any]
) -> None:
    asker.ask("declare_queue", name="q")
    assert "one of them" in asker.refusal("explain_policies", **params).text
    assert asker.refusal("explain_policies", exchange="no").condition == "amqp:not-found"


def test_rows_6_11_a_queue_shows_what_it_follows(asker: Asker) -> None:
    asker.ask("declare_queue", name="q", arguments={"qpid.max_count": 9})
    put(asker, "p", {"max-length": 6, "dedup": "message-id"})
    asker.ask("set_operator_policy", name="o", pattern=".*", definition=LIMIT)
    shown = row(asker)
    assert (shown["policy"], shown["operator_policy"]) == ("p", "o")
    assert shown["effective_policy"] == {"qpid.max_count": 5, "qpidha.dedup": "message-id"}
    asker.ask("clear_operator_policy", name="o")
    asker.ask("clear_policy", name="p")
    shown = row(asker)
    assert (shown["policy"], shown["operator_policy"], shown["effective_policy"]) == ("", "", {})


def test_t_q3_a_delivery_limit_changes_at_run_time(asker: Asker) -> None:
    asker.ask("declare_queue", name="q", durable=True, arguments={"x-queue-type": "quorum"})
    queue = asker.target.broker.queues["q"]
    limits = [queue.spec.delivery_limit]
    shown = []
    for limit in (5, 10):
        put(asker, "p", {"delivery-limit": limit})
        limits.append(queue.spec.delivery_limit)
        shown.append(row(asker)["effective_policy"])
    asker.ask("clear_policy", name="p")
    limits.append(queue.spec.delivery_limit)
    assert [getattr(limit, "most", None) for limit in limits] == [20, 5, 10, 20]
    assert shown == [{"x-delivery-limit": 5}, {"x-delivery-limit": 10}]


def test_row_6_what_is_listed_can_be_set_anew(asker: Asker) -> None:
    put(asker, "p", {"max-length": 5, "overflow": "reject-publish"}, "^a", priority=3, merge=True)
    (listed,) = asker.ask("list_policies")
    other = Asker(FakeNode())
    keys = ("name", "pattern", "definition", "priority", "apply_to", "merge")
    other.ask("set_policy", **{key: listed[key] for key in keys})
    assert other.ask("list_policies") == [listed]


def test_row_14_explain_tells_of_a_queue(asker: Asker) -> None:
    asker.ask("declare_queue", name="q")
    put(asker, "p", LIMIT)
    put(asker, "r", LIMIT, "^other")
    told = asker.ask("explain_policies", queue="q")
    assert [(each["policy"], each["in_effect"]) for each in told["policies"]] == [
        ("p", True),
        ("r", False),
    ]
    assert told["settings"][0]["from"] == "policy p"
    assert asker.refusal("explain_policies", queue="none").condition == "amqp:not-found"


def test_row_16_a_key_is_changed_and_dropped_however_it_is_spelled(asker: Asker) -> None:
    put(asker, "p", {"max-length": 5, "overflow": "reject-publish"})
    changed = asker.ask("patch_policy", name="p", definition={"qpid.max_count": 7})
    assert changed["definition"] == {"qpid.max_count": 7, "overflow": "reject-publish"}
    changed = asker.ask("patch_policy", name="p", definition={"x-max-length": None})
    assert changed["definition"] == {"overflow": "reject-publish"}
    refusal = asker.refusal("patch_policy", name="p", definition={"maxlength": None})
    assert "maxlength" in refusal.text and "max" in refusal.hint


def test_row_16_keys_are_changed_and_dropped(asker: Asker) -> None:
    put(asker, "p", {"max-length": 5, "overflow": "reject-publish"}, "^a", priority=3)
    changed = asker.ask(
        "patch_policy",
        name="p",
        definition={"max-length": 7, "overflow": None, "dedup": "message-id"},
    )
    assert changed["definition"] == {"max-length": 7, "dedup": "message-id"}
    assert (changed["pattern"], changed["priority"]) == ("^a", 3)
    refusal = asker.refusal(
        "patch_policy", name="p", definition={"max-length": None, "dedup": None}
    )
    assert "empty" in refusal.text
    unknown = asker.refusal("patch_policy", name="x", definition=LIMIT)
    assert unknown.condition == "amqp:not-found" and "qpid-ha policy list" in unknown.hint


def test_row_16_an_override_counts_until_its_time_is_over(asker: Asker) -> None:
    node = asker.target
    asker.ask("declare_queue", name="q")
    put(asker, "p", {"max-length": 5, "overflow": "reject-publish"}, priority=3)
    node.broker.tick(SECOND)
    made = asker.ask("override_policy", name="p", definition={"max-length": 50}, seconds=60)
    assert (made["name"], made["priority"]) == ("override.p", 103)
    assert made["definition"] == {"max-length": 50, "overflow": "reject-publish"}
    queue = node.broker.queues["q"]
    assert queue.max_count == 50 and made["expires_ns"] == 61 * SECOND
    node.broker.tick(61 * SECOND - 1)
    node.broker.dispatch(61 * SECOND - 1)
    assert queue.max_count == 50
    node.broker.tick(61 * SECOND)
    node.broker.dispatch(61 * SECOND)
    assert queue.max_count == 5
    for seconds in (0, -1, 10**12):
        asker.refusal("override_policy", name="p", definition=LIMIT, seconds=seconds)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"pattern": "("}, "no pattern"),
        ({"pattern": "x" * 1025}, "1025 characters"),
        ({"definition": {"x-queue-type": "quorum"}}, "x-queue-type"),
        ({"definition": []}, "definition"),
        ({"priority": "high"}, "priority"),
        ({"priority": 1.5}, "priority"),
        ({"apply_to": "streams"}, "streams"),
        ({"apply_to": "exchanges"}, "max-length is for queues only"),
        ({"merge": 1}, "merge"),
        ({"name": ""}, "name"),
    ],
)
def test_row_5_what_is_wrong_is_refused_by_name(
    asker: Asker, params: dict[str, Any], said: str
) -> None:
    asked = {"name": "p", "pattern": ".*", "definition": LIMIT} | params
    assert said in asker.refusal("set_policy", **asked).text
    assert asker.ask("list_policies") == []


def test_policies_by_http_verbs() -> None:
    client = Client()
    body = {"pattern": ".*", "definition": LIMIT}
    assert client.ask("PUT", "/policies/a%2Fb", body)[0] == 200
    code, found = client.ask("GET", "/policies")
    assert code == 200 and [each["name"] for each in found] == ["a/b"]
    assert client.ask("GET", "/policies/a%2Fb") == (200, found[0])
    code, text = client.ask("GET", "/policies/other")
    assert (code, text) == (404, "there is no policy other")
    assert client.ask("DELETE", "/policies/a%2Fb")[0] == 204
    assert not client.target.broker.policies


def test_row_1_operator_policies_by_http_verbs() -> None:
    client = Client()
    client.target.broker.set_policy(policy_asked_for("cap", ".*", LIMIT, is_operator=True))
    code, found = client.ask("GET", "/operator-policies/cap")
    assert (code, found["definition"]) == (200, LIMIT)
    assert client.ask("GET", "/operator-policies/p")[0] == 404
    assert client.ask("GET", "/policies/cap")[0] == 404


def test_row_5_what_a_policy_is_for_is_spelled_as_rabbitmq_does_too() -> None:
    client = Client()
    body = {"pattern": ".*", "definition": LIMIT, "apply-to": "queues"}
    code, found = client.ask("PUT", "/policies/p", body)
    assert (code, found["apply_to"]) == (200, "queues")
    code, text = client.ask("PUT", "/policies/p", {**body, "apply_to": "exchanges"})
    assert code == 409 and "apply-to=queues" in text and "apply_to=exchanges" in text
    assert client.ask("PUT", "/policies/p", {**body, "apply_to": "queues"})[0] == 200
    assert client.ask("PUT", "/policies/p", {**body, "apply-to": 5})[0] == 400


# -- who may --------------------------------------------------------------------------------------

ANN = Principal("ann", "PLAIN", "10.0.0.1:4711")
ADMIN = Principal("ha", "PLAIN", "10.0.0.1:4712", roles=frozenset((Role.ADMINISTRATOR,)))
METHOD = "acl allow all access method"


def may(principal: Principal, method: str, params: dict[str, Any], *rules: str) -> bool:
    node = FakeNode()
    if rules:
        found, troubles = read("\n".join((METHOD, *rules)), realm="QPID", path="the.acl")
        assert not [str(trouble) for trouble in troubles]
        node.access.use(found)
    answers: list[Any] = []
    connection = FakeConnection(1)
    Requests(node).call(method, params, answers.append, principal=principal, owner=connection)
    node.commit_all()
    error = answers[0].error
    assert error is None or isinstance(error, Unauthorized)
    return error is None


def test_row_158_a_rule_about_policies_decides() -> None:
    asked = {"name": "ann-1", "pattern": "^ann", "definition": LIMIT}
    assert may(ANN, "set_policy", asked)
    assert not may(ANN, "set_policy", asked, "acl allow ann create queue")
    for rule in (
        "acl allow ann create policy",
        "acl allow ann create policy name=${user}-* pattern=^ann applyto=all",
        "acl allow ann create policy queuemaxcountupperlimit=5",
        "acl allow ann all",
    ):
        assert may(ANN, "set_policy", asked, rule), rule
    for rule in (
        "acl allow ann delete policy",
        "acl allow ann create policy name=bob-*",
        "acl allow ann create policy pattern=.*",
        "acl allow ann create policy queuemaxcountupperlimit=4",
    ):
        assert not may(ANN, "set_policy", asked, rule), rule


def test_who_sets_where_dead_letters_go_may_publish_there() -> None:
    asked = {"name": "p", "pattern": ".*", "definition": {"dead-letter-exchange": "/queues/mine"}}
    rule = "acl allow ann create policy"
    publish = "acl allow ann publish exchange name=amq.default routingkey=mine"
    assert not may(ANN, "set_policy", asked, rule)
    assert may(ANN, "set_policy", asked, rule, publish)


def test_who_sets_an_alternate_exchange_may_publish_there_with_any_key() -> None:
    asked = {"name": "p", "pattern": ".*", "definition": {"alternate-exchange": "audit"}}
    rule = "acl allow ann create policy"
    publish = "acl allow ann publish exchange name=audit"
    assert not may(ANN, "set_policy", asked, rule)
    assert not may(ANN, "set_policy", asked, rule, f"{publish} routingkey=k")
    assert may(ANN, "set_policy", asked, rule, publish)


@pytest.mark.parametrize("rules", [(), ("acl allow all all",)])
def test_row_11_operator_policies_are_for_administrators(rules: tuple[str, ...]) -> None:
    asked = {"name": "p", "pattern": ".*", "definition": LIMIT}
    assert not may(ANN, "set_operator_policy", asked, *rules)
    assert may(ADMIN, "set_operator_policy", asked, *rules)
    assert not may(ANN, "clear_operator_policy", {"name": "p"}, *rules)
