"""The `$management` service: requests as AMQP management defines them, and where their
answers go.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.broker.credit import MEMORY_LIMIT
from qpidha.management.amqp_management import ManagementService
from qpidha.management.requests import Requests
from qpidha.management.schema import CLASSES, Property
from qpidha.model.encoding import Symbol, ULong
from qpidha.model.errors import (
    LimitExceeded,
    NotFound,
    RefusedRequest,
    ResourceLocked,
    Unauthorized,
)
from qpidha.model.principal import Action, ObjectType, Principal
from qpidha.model.records import LinkDeclared, RouteDeclared
from tests.management.builders import FakeConnection, FakeLink, FakeNode, a_request, open_answer
from tests.management.test_requests import FakeSession, a_consumer

if TYPE_CHECKING:
    from qpidha.management.port import ManagedNode


class Client:
    """A connection with a sender and a receiver at `$management`."""

    def __init__(self, *, is_admin: bool = False, target: FakeNode | None = None) -> None:
        self.target = target or FakeNode()
        self.service = ManagementService(Requests(self.target), self.target)
        self.connection = FakeConnection(1, is_admin=is_admin)
        self.sender = FakeLink(self.connection, "s", "$management")
        self.receiver = FakeLink(self.connection, "r", "$management", sends=True, peer_address="me")
        self.service.attached(self.sender)
        self.service.attached(self.receiver)

    def send(self, operation: str, body: Any = None, **application: Any) -> None:
        """Send one request."""
        self.service.received(
            self.sender,
            a_request(
                body,
                application={"operation": operation, **application},
                reply_to="me",
                correlation_id=17,
            ),
        )

    def ask(self, operation: str, body: Any = None, **application: Any) -> tuple[int, str, Any]:
        """Send one request, let it be committed, and return status, description and body."""
        self.send(operation, body, **application)
        self.target.commit_all()
        properties, found, answer = open_answer(self.receiver.sent.pop())
        assert (
            not self.receiver.sent
            and properties["correlation_id"] == 17
            and properties["to"] == "me"
        )
        self.details = {name: found.get(name) for name in ("condition", "reason", "hint")}
        return found["statusCode"], found["statusDescription"], answer


@pytest.fixture
def client() -> Client:
    return Client()


def test_create_read_delete_a_queue(client: Client) -> None:
    body = {"durable": True, "autoDelete": False, "qpid.max_count": 5, "arguments": {"mine": "x"}}
    status, _, created = client.ask("CREATE", body, type="queue", name="q")
    assert status == 201 and created["identity"] == "queue:q" and created["type"] == "queue"
    assert created["arguments"]["qpid.max_count"] == 5 and created["arguments"]["mine"] == "x"
    assert client.ask("CREATE", body, type="queue", name="q")[0] == 200
    assert client.ask("READ", type="queue", name="q")[2]["msgDepth"] == 0
    assert client.ask("READ", identity="queue:q")[2]["name"] == "q"
    assert client.ask("DELETE", {"ifEmpty": True}, type="queue", name="q") == (
        204,
        "No Content",
        {},
    )
    assert client.ask("READ", type="queue", name="q")[0] == 404


@pytest.mark.parametrize(
    ("operation", "application"),
    [
        ("READ", {"type": "queue", "name": "{}"}),
        ("READ", {"identity": "{}"}),
        ("READ", {"type": "{}", "name": "q"}),
        ("QUERY", {"entityType": "{}"}),
        ("{}", {"type": "queue", "name": "q"}),
    ],
)
def test_what_is_asked_for_is_not_repeated_at_length(
    client: Client, operation: str, application: dict[str, str]
) -> None:
    long = "x" * 1_000_000
    given = {name: value.format(long) for name, value in application.items()}
    status, text, _ = client.ask(operation.format(long), **given)
    assert status >= 400 and len(text) < 1100
    assert sum(map(len, map(str, client.details.values()))) < 2000


def test_a_creation_is_answered_when_it_is_committed(client: Client) -> None:
    client.send("CREATE", type="queue", name="q")
    assert client.receiver.sent == []
    client.target.commit_all()
    assert len(client.receiver.sent) == 1


def test_exchanges_and_bindings(client: Client) -> None:
    assert client.ask("CREATE", {"exchange-type": "topic"}, type="exchange", name="x")[0] == 201
    assert client.ask("CREATE", {"exchangeType": "fanout"}, type="exchange", name="x")[0] == 409
    client.ask("CREATE", type="queue", name="a/b")
    assert client.ask("BIND", {"queue": "a/b", "key": "k.#"}, type="exchange", name="x")[0] == 201
    assert (
        client.ask(
            "CREATE",
            {"exchange": "x", "queue": "a/b", "bindingKey": "l", "arguments": {"n": 1}},
            type="binding",
        )[0]
        == 201
    )
    status, _, found = client.ask(
        "QUERY",
        {"attributeNames": ["name", "exchange", "queue", "bindingKey"]},
        entityType="binding",
    )
    assert status == 200 and found["results"] == [
        ["x/a%2Fb/k.%23", "x", "a/b", "k.#"],
        ["x/a%2Fb/l", "x", "a/b", "l"],
    ]
    assert client.ask("READ", type="binding", name="x/a%2Fb/l")[2]["arguments"] == {"n": 1}
    assert client.ask("DELETE", type="binding", name="x/a%2Fb/l")[0] == 204
    unbound = {"exchange": "x", "queue": "a/b", "key": "k.#", "arguments": {"n": 1}}
    assert client.ask("UNBIND", unbound)[0] == 204  # known by its key, whatever was bound with it
    assert client.ask("UNBIND", {"exchange": "x", "queue": "a/b", "key": "k.#"})[0] == 404
    assert client.ask("QUERY", entityType="binding")[2]["results"] == []
    onward = {"exchange": "x", "destinationExchange": "amq.topic", "bindingKey": "l"}
    assert client.ask("CREATE", onward, type="binding")[0] == 201
    read = client.ask("READ", type="binding", name="x/>amq.topic/l")[2]
    assert (read["queue"], read["destinationExchange"]) == ("", "amq.topic")
    assert client.ask("DELETE", type="binding", name="x/>amq.topic/l")[0] == 204
    assert client.ask("DELETE", type="exchange", name="x")[0] == 204


def test_query_gives_what_is_asked_for_in_pages(client: Client) -> None:
    for number in range(5):
        client.ask("CREATE", type="queue", name=f"q{number}")
    body = {"attributeNames": ["name", "no-such"]}
    _, _, found = client.ask("QUERY", body, entityType="queue", offset=1, count=2)
    assert found == {"attributeNames": ["name", "no-such"], "results": [["q1", None], ["q2", None]]}
    _, _, first = client.ask("QUERY", body, entityType="queue", offset=0, count=1)
    assert first["results"] == [["q0", None]]
    _, _, everything = client.ask("QUERY")
    assert {row[2] for row in everything["results"]} == {
        "queue",
        "exchange",
        "broker",
        "org.apache.qpid.ha:habroker",
    }
    assert all(len(row) == len(everything["attributeNames"]) for row in everything["results"])


def count_reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each attribute of queues is read."""
    reads: Counter[str] = Counter()

    def counted(each: Property) -> Property:
        def read(entry: Any, node: ManagedNode) -> Any:
            reads[each.attribute] += 1
            return each.read(entry, node)

        return replace(each, read=read)

    kind = CLASSES["queue"]
    counting = replace(kind, properties=tuple(map(counted, kind.properties)))
    monkeypatch.setitem(CLASSES, "queue", counting)
    return reads


def test_query_reads_no_more_than_is_asked_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        client.target.broker.declare_queue(f"q{number}")
    reads = count_reads(monkeypatch)
    body = {"attributeNames": ["name", "msgDepth"]}
    client.ask("QUERY", body, entityType="queue", offset=1, count=2)
    assert reads == {"msgDepth": 2}


def test_pages_go_on_over_classes_and_may_be_larger_than_any_list(client: Client) -> None:
    client.target.broker.declare_queue("q")
    body = {"attributeNames": ["name", "type"]}
    everything = client.ask("QUERY", body)[2]["results"]
    assert everything[0] == ["q", "queue"] and everything[1][1] == "exchange"
    pages = [
        client.ask("QUERY", body, offset=ULong(n), count=2)[2]["results"] for n in (0, 2, 4, 2**63)
    ]
    assert pages == [everything[0:2], everything[2:4], everything[4:6], []]
    most = ULong(2**64 - 1)
    assert client.ask("QUERY", body, offset=1, count=most)[2]["results"] == everything[1:]
    assert client.ask("QUERY", body, offset=most, count=most)[2]["results"] == []


def test_purge_tells_how_many_messages_went(client: Client) -> None:
    client.ask("CREATE", type="queue", name="q")
    client.target.broker.publish("", "q", b"m", headers=dict)
    assert client.ask("PURGE", type="queue", name="q") == (200, "OK", {"messages": 1})


def test_the_broker_and_the_ha_broker_can_be_read(client: Client) -> None:
    _, _, broker = client.ask("READ", type="broker", name="b1")
    assert broker["queueCount"] == 0 and broker["state"] == "active" and broker["maxConns"] == 500
    _, _, found = client.ask("READ", identity="org.apache.qpid.ha:habroker:ha-broker")
    assert (found["status"], found["systemId"], found["replicateDefault"]) == (
        "active",
        "s1",
        "all",
    )
    assert found["members"][0]["address"] == "h1:5672"


def test_types_attributes_and_operations_describe_every_class(client: Client) -> None:
    assert list(client.ask("GET-TYPES")[2]) == list(CLASSES)
    assert "msgDepth" in client.ask("GET-ATTRIBUTES", entityType="queue")[2]["queue"]
    assert client.ask("GET-OPERATIONS", entityType="queue")[2] == {
        "queue": ["READ", "PEEK", "CREATE", "DELETE", "PURGE", "MOVE", "REQUEUE"]
    }
    assert client.ask("GET-TYPES", entityType="nothing")[0] == 404


def test_every_attribute_that_is_named_is_given(client: Client) -> None:
    client.ask("CREATE", type="queue", name="q")
    client.ask("BIND", {"exchange": "amq.topic", "queue": "q", "key": "k"})
    connection = FakeConnection(4)
    connection.open_sessions = [FakeSession(0)]
    client.target.open_connections.append(connection)
    a_consumer(client.target, "q")
    client.target.broker.declare_link(LinkDeclared("l", "", ["h:1"]), "tag")
    client.target.broker.declare_route(RouteDeclared("r", "", "l", "queue", "s", "q"))
    for kind, names in client.ask("GET-ATTRIBUTES")[2].items():
        _, _, found = client.ask("QUERY", entityType=kind)
        identity = found["results"][0][1]
        assert list(client.ask("READ", identity=identity)[2]) == names == found["attributeNames"]


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("topic", "policy"),
        ("QueuePolicy", "queue-patterns"),
        ("TopicPolicy", "topic-patterns"),
        ("domain", "link add"),
        ("incoming", "route add"),
    ],
)
def test_types_of_qpid_that_are_not_here_name_what_is(
    client: Client, kind: str, instead: str
) -> None:
    assert client.ask("CREATE", {}, type=kind, name="x")[0] == 404
    assert instead in client.details["hint"]


def test_methods_of_the_admin_socket_go_by_their_own_names(client: Client) -> None:
    assert client.ask("ping")[2] == {"state": "active"}
    assert client.ask("declare_queue", {"name": "q", "durable": True})[2]["created"] is True
    assert client.ask("list_queues", {"name": "q"})[2][0]["durable"] is True
    assert client.ask("status")[2]["system_id"] == "s1"


def test_only_administrators_promote() -> None:
    client = Client()
    for operation in (
        "promote",
        "demote",
        "recover",
        "switchover",
        "shutdown",
        "PROMOTE",
        "SWITCHOVER",
    ):
        assert client.ask(operation, type="org.apache.qpid.ha:habroker", name="ha-broker")[0] == 403
    assert client.target.promoted == client.target.demoted == client.target.stopped == 0
    admin = Client(is_admin=True)
    assert admin.ask("promote", type="org.apache.qpid.ha:habroker", name="ha-broker") == (
        200,
        "OK",
        {"state": "active"},
    )
    assert admin.target.promoted == 1
    assert admin.ask("RECOVER") == (200, "OK", {"recommended": "s2"})
    assert (
        admin.ask("switchover", body={"target": "h2:5672"})[0] == 200
        and admin.target.switched_to == "h2:5672"
    )
    assert admin.ask("promote", body={"accept_loss": True})[0] == 200 and admin.target.accepted_loss


def test_a_backup_refuses_changes_and_names_the_primary(client: Client) -> None:
    client.ask("CREATE", type="queue", name="q")
    client.target.serving = False
    status, description, _ = client.ask("CREATE", type="queue", name="other")
    assert (status, description) == (503, "this broker changes nothing itself")
    assert client.details == {
        "condition": "amqp:not-allowed",
        "reason": "it is ready",
        "hint": "send the request to the primary at h2:5672",
    }
    assert client.ask("READ", type="queue", name="q")[0] == 200


@pytest.mark.parametrize(
    ("operation", "body", "application", "status"),
    [
        ("", None, {}, 400),
        ("EXPLODE", None, {}, 501),
        ("UPDATE", None, {"type": "queue", "name": "q"}, 501),
        ("READ", None, {"type": "queue"}, 400),
        ("READ", None, {"type": "nothing", "name": "q"}, 404),
        ("READ", None, {"identity": "nothing:q"}, 404),
        ("READ", None, {"type": "queue", "name": "missing"}, 404),
        ("CREATE", None, {"type": "queue"}, 400),
        ("CREATE", None, {"type": "connection", "name": "c"}, 501),
        ("CREATE", [1], {"type": "queue", "name": "q"}, 400),
        ("CREATE", {"durabel": True}, {"type": "queue", "name": "q"}, 400),
        ("CREATE", {"arguments": 1, "qpid.max_count": 1}, {"type": "queue", "name": "q"}, 400),
        ("DELETE", None, {"type": "exchange", "name": "amq.topic"}, 403),
        ("DELETE", None, {"type": "binding", "name": "x"}, 400),
        ("DELETE", None, {"type": "broker", "name": "b1"}, 501),
        ("QUERY", {"attributeNames": "name"}, {}, 400),
        ("QUERY", None, {"count": -1}, 400),
        ("PURGE", None, {"name": "missing"}, 404),
        ("BIND", {"exchange": "amq.topic"}, {}, 400),
    ],
)
def test_a_bad_request_is_answered_with_its_status(
    client: Client, operation: str, body: Any, application: dict[str, Any], status: int
) -> None:
    found, description, _ = client.ask(operation, body, **application)
    assert found == status and description


@pytest.mark.parametrize("name", ["operation", "type", "name", "identity", "entityType"])
def test_an_application_property_that_is_no_string_is_refused_by_name(
    client: Client, name: str
) -> None:
    operation = 7 if name == "operation" else "QUERY" if name == "entityType" else "READ"
    given = {} if name == "operation" else {"name": "q", name: 7}
    status, text, _ = client.ask(operation, **given)
    assert status == 400 and name in text


def test_the_message_id_serves_as_correlation_when_there_is_no_other(client: Client) -> None:
    client.service.received(
        client.sender,
        a_request(application={"operation": "ping"}, reply_to="me", message_id=b"\x01"),
    )
    assert open_answer(client.receiver.sent[0])[0]["correlation_id"] == b"\x01"


def test_symbols_are_taken_as_strings(client: Client) -> None:
    assert (
        client.ask(Symbol("CREATE"), {Symbol("durable"): True}, type=Symbol("queue"), name="q")[0]
        == 201
    )


def test_an_answer_goes_to_a_queue_when_no_receiver_has_that_address(client: Client) -> None:
    client.ask("CREATE", type="queue", name="answers")
    for address in ("answers", "/queues/answers"):
        client.service.received(
            client.sender, a_request(application={"operation": "ping"}, reply_to=address)
        )
    payloads = [
        message.payload for message in client.target.broker.queues["answers"].messages.values()
    ]
    assert len(payloads) == 2 and open_answer(payloads[0])[1]["statusCode"] == 200


def test_no_answer_goes_to_the_exclusive_queue_of_somebody_else(client: Client) -> None:
    broker = client.target.broker
    broker.declare_queue("own", exclusive=True, owner=client.connection)
    broker.declare_queue("theirs", exclusive=True, owner=FakeConnection(2))
    for name in ("own", "theirs"):
        request = a_request(application={"operation": "ping"}, reply_to=name)
        with nullcontext() if name == "own" else pytest.raises(ResourceLocked):
            client.service.received(client.sender, request)
    assert len(broker.queues["own"].messages) == 1 and not broker.queues["theirs"].messages


def test_no_answer_goes_to_a_queue_while_the_memory_is_short(client: Client) -> None:
    """It would fill up with them; what is asked then is refused before it is done."""
    client.ask("CREATE", type="queue", name="answers")
    broker = client.target.broker
    asked = a_request(application={"operation": "ping"}, reply_to="answers")
    create = {"operation": "CREATE", "type": "queue", "name": "q"}
    broker.credit.withhold(MEMORY_LIMIT, "9.0 MB are in use")
    for request in (asked, a_request({}, application=create, reply_to="answers")):
        with pytest.raises(LimitExceeded, match="9.0 MB are in use") as refusal:
            client.service.received(client.sender, request)
        assert refusal.value.hint
    assert not broker.queues["answers"].messages and "q" not in broker.queues
    assert client.ask("ping")[0] == 200, "who reads what it asks for may ask"
    assert client.ask("PURGE", name="answers")[0] == 200
    broker.credit.withhold(MEMORY_LIMIT, "")
    client.service.received(client.sender, asked)
    assert len(broker.queues["answers"].messages) == 1
    assert client.sender.owed == 0


def test_an_answer_never_goes_to_another_connection(client: Client) -> None:
    other = FakeLink(FakeConnection(2), "r", "$management", sends=True, peer_address="theirs")
    client.service.attached(other)
    with pytest.raises(NotFound, match="theirs"):
        client.service.received(
            client.sender, a_request(application={"operation": "ping"}, reply_to="theirs")
        )
    assert other.sent == []


def test_an_answer_to_a_link_that_went_is_dropped(client: Client) -> None:
    client.send("CREATE", type="queue", name="q")
    client.service.detached(client.receiver)
    client.service.detached(client.receiver)
    client.target.commit_all()
    assert (
        client.receiver.sent == []
        and client.service.unanswered == 1
        and "q" in client.target.broker.queues
    )


def test_a_backup_does_not_put_answers_on_replicated_queues(client: Client) -> None:
    client.ask("CREATE", type="queue", name="answers")
    client.target.serving = False
    with pytest.raises(RefusedRequest, match="the primary's to change"):
        client.service.received(
            client.sender, a_request(application={"operation": "ping"}, reply_to="answers")
        )
    assert not client.target.broker.queues["answers"].messages


def test_an_answer_goes_to_no_queue_that_its_requester_may_not_publish_to(client: Client) -> None:
    client.ask("CREATE", type="queue", name="answers")
    asked: list[tuple[Any, ...]] = []

    def check(principal: Principal, *question: Any) -> None:
        asked.append(question)
        raise Unauthorized(f"{principal} may not publish", hint="ask the operator")

    client.target.access = SimpleNamespace(check=check)  # type: ignore[assignment]
    for reply_to in ("answers", "nowhere"):  # Who may not use it hears not whether it is there.
        with pytest.raises(Unauthorized):
            client.service.received(
                client.sender, a_request(application={"operation": "ping"}, reply_to=reply_to)
            )
        assert asked.pop() == (Action.PUBLISH, ObjectType.QUEUE, reply_to)
    assert not client.target.broker.queues["answers"].messages
    with pytest.raises(NotFound, match="no such queue"):
        client.service.received(
            client.sender, a_request(application={"operation": "ping"}, reply_to="q" * 256)
        )
    assert asked == [], "no queue can have that name"


def test_a_request_whose_answer_has_nowhere_to_go_does_nothing(client: Client) -> None:
    asked = {"operation": "CREATE", "type": "queue", "name": "q"}
    for reply_to in ({}, {"reply_to": "nowhere"}):
        with pytest.raises(RefusedRequest) as refusal:
            client.service.received(client.sender, a_request({}, application=asked, **reply_to))
        assert "reply-to" in refusal.value.text and refusal.value.hint
    assert client.target.broker.queues == {}


def test_a_request_that_cannot_be_read_to_its_end_is_answered(client: Client) -> None:
    request = a_request(application={"operation": "ping"}, reply_to="me", correlation_id=17)
    client.service.received(client.sender, b"\x00Sw@" + request)
    client.service.received(client.sender, request + b"\xff")
    statuses = [open_answer(payload)[1]["statusCode"] for payload in client.receiver.sent]
    assert statuses == [200, 400]
    assert open_answer(client.receiver.sent[1])[0]["correlation_id"] == 17


def test_a_request_without_reply_to_is_rejected(client: Client) -> None:
    with pytest.raises(RefusedRequest):
        client.service.received(
            client.sender,
            a_request(application={"operation": "CREATE", "type": "queue", "name": "q"}),
        )
    assert client.target.broker.queues == {}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_answered(payload: bytes) -> None:
    client = Client()
    try:
        client.service.received(client.sender, payload)
    except RefusedRequest as error:
        assert error.text
