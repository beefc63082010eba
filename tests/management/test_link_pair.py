"""The `/management` link pair: HTTP words over AMQP, as RabbitMQ 4 clients send them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qpidha.management import link_pair
from qpidha.management.acl_file import read
from qpidha.management.link_pair import LinkPairService
from qpidha.management.requests import Requests
from qpidha.model.encoding import Array
from qpidha.model.errors import InvalidArgument, LimitExceeded, RefusedRequest, ResourceLocked
from tests.management.builders import FakeConnection, FakeLink, FakeNode, a_request, open_answer


class Client:
    """A connection with a link pair."""

    def __init__(self) -> None:
        self.target = FakeNode()
        self.service = LinkPairService(Requests(self.target), self.target)
        self.connection = FakeConnection(1)
        self.sender = FakeLink(self.connection, "pair", "/management")
        self.receiver = FakeLink(self.connection, "pair", "/management", sends=True)
        self.service.attached(self.sender)
        self.service.attached(self.receiver)
        self.number = 0
        self.details: dict[str, Any] = {}
        """Condition, reason and hint of the last answer, if it was an error."""

    def send(self, method: str, path: str, body: Any = None) -> int:
        """Send one request; return its message-id."""
        self.number += 1
        self.service.received(
            self.sender,
            a_request(body, subject=method, to=path, reply_to="$me", message_id=self.number),
        )
        return self.number

    def answers(self) -> list[tuple[Any, int, Any]]:
        """Fetch what came back: correlation-id, status and body."""
        found = []
        for payload in self.receiver.sent:
            properties, application, body = open_answer(payload)
            assert application.pop("http:response") == "1.1"
            assert bool(application) is (int(properties["subject"]) >= 400)
            self.details = application
            found.append((properties.get("correlation_id"), int(properties["subject"]), body))
        self.receiver.sent.clear()
        return found

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Send one request, let it be committed, and return status and body."""
        number = self.send(method, path, body)
        self.target.commit_all()
        ((correlation, status, answer),) = self.answers()
        assert correlation == number
        return status, answer


@pytest.fixture
def client() -> Client:
    return Client()


def test_a_queue_is_declared_read_purged_and_deleted_twice_over(client: Client) -> None:
    body = {
        "durable": True,
        "exclusive": False,
        "auto_delete": False,
        "arguments": {"qpid.max_count": 3},
    }
    assert client.ask("PUT", "/queues/q", body)[0] == 201
    status, declared = client.ask("PUT", "/queues/q", body)
    assert status == 200
    client.target.broker.publish("", "q", b"m", headers=dict)
    status, found = client.ask("GET", "/queues/q")
    assert status == 200 and found["message_count"] == 1 and found["consumer_count"] == 0
    assert (
        found["name"] == "q"
        and found["durable"] is True
        and found["arguments"]["qpid.max_count"] == 3
    )
    assert declared["uuid"] == found["uuid"]
    assert client.ask("DELETE", "/queues/q/messages") == (200, {"message_count": 1})
    assert client.ask("DELETE", "/queues/q/messages") == (200, {"message_count": 0})
    assert client.ask("DELETE", "/queues/q") == (200, {"message_count": 0})
    assert client.ask("DELETE", "/queues/q") == (200, {"message_count": 0})
    assert client.ask("GET", "/queues/q")[0] == 404
    assert client.ask("DELETE", "/queues/q/messages")[0] == 404


def test_a_link_that_is_gone_asks_nothing_more_and_the_others_do(client: Client) -> None:
    other = FakeLink(client.connection, "other", "/management")
    client.service.attached(other)
    client.service.detached(other)
    with pytest.raises(InvalidArgument, match="other is not attached"):
        client.service.received(other, a_request(None, subject="GET", to="/bindings"))
    assert client.ask("GET", "/bindings") == (200, [])


def test_a_queue_is_durable_unless_the_body_says_otherwise(client: Client) -> None:
    assert client.ask("PUT", "/queues/q", {})[1]["durable"] is True
    assert client.ask("PUT", "/queues/q", {"durable": False})[0] == 409


def test_a_replicated_queue_tells_its_leader_and_replicas(client: Client) -> None:
    client.ask("PUT", "/queues/q", {})
    _, found = client.ask("GET", "/queues/q")
    assert found["type"] == "quorum" and found["leader"] == "h1:5672"
    assert isinstance(found["replicas"], Array) and found["replicas"].items == ["h1:5672"]


def test_a_queue_of_one_broker_has_its_leader_as_its_only_replica(client: Client) -> None:
    status = client.target.status()
    members = [*status["members"], {"address": "h2:5672"}]
    client.target.status = lambda: {**status, "members": members}  # type: ignore[method-assign]
    shown = {}
    for name, replicate in (("here", "none"), ("everywhere", "all")):
        client.ask("PUT", f"/queues/{name}", {"arguments": {"qpid.replicate": replicate}})
        _, found = client.ask("GET", f"/queues/{name}")
        shown[name] = (found["type"], found["replicas"].items)
    assert shown == {
        "here": ("classic", ["h1:5672"]),
        "everywhere": ("quorum", ["h1:5672", "h2:5672"]),
    }


def test_names_are_percent_encoded(client: Client) -> None:
    assert client.ask("PUT", "/queues/a%2Fb%20%C3%A4%25", {})[1]["name"] == "a/b ä%"
    assert "a/b ä%" in client.target.broker.queues
    assert client.ask("GET", "/queues/a%2Fb%20%C3%A4%25")[0] == 200


def test_exchanges_and_bindings_come_and_go(client: Client) -> None:
    exchange = {"type": "topic", "durable": True, "auto_delete": False, "arguments": {}}
    client.ask("PUT", "/queues/q%3B1", {})
    for _ in range(2):
        assert client.ask("PUT", "/exchanges/x%2F1", exchange) == (204, None)
    assert client.ask("PUT", "/exchanges/x%2F1", {**exchange, "type": "fanout"})[0] == 409
    assert client.ask("GET", "/exchanges/x%2F1")[1]["type"] == "topic"
    binding = {"source": "x/1", "destination_queue": "q;1", "binding_key": "a.*", "arguments": {}}
    for _ in range(2):
        assert client.ask("POST", "/bindings", binding) == (204, None)
    status, (found,) = client.ask("GET", "/bindings?src=x%2F1&dstq=q%3B1&key=a.*")
    location = "/bindings/src=x%2F1;dstq=q%3B1;key=a.%2A;args="
    assert status == 200 and found == {**binding, "location": location}
    assert client.ask("GET", "/bindings?src=x%2F1&dstq=q%3B1&key=other") == (200, [])
    for _ in range(2):
        assert client.ask("DELETE", location) == (204, None)
    assert client.ask("GET", "/bindings") == (200, [])
    for _ in range(2):
        assert client.ask("DELETE", "/exchanges/x%2F1") == (204, None)


def test_bindings_between_exchanges_come_and_go(client: Client) -> None:
    client.ask("PUT", "/exchanges/x%2F1", {"type": "fanout"})
    client.ask("PUT", "/queues/q", {})
    binding = {"source": "amq.topic", "destination_exchange": "x/1", "binding_key": "a.*"}
    for _ in range(2):
        assert client.ask("POST", "/bindings", {**binding, "arguments": {}}) == (204, None)
    both = {**binding, "destination_queue": "q"}
    assert client.ask("POST", "/bindings", both)[0] == 400
    location = "/bindings/src=amq.topic;dste=x%2F1;key=a.%2A;args="
    expected = {**binding, "arguments": {}, "location": location}
    assert client.ask("GET", "/bindings?src=amq.topic&dste=x%2F1&key=a.*") == (200, [expected])
    assert client.ask("GET", "/bindings?src=amq.topic&dstq=q&key=a.*") == (200, [])
    for _ in range(2):
        assert client.ask("DELETE", location) == (204, None)
    assert client.ask("GET", "/bindings") == (200, [])


def test_a_binding_with_arguments_is_deleted_by_its_location_only(client: Client) -> None:
    client.ask("PUT", "/queues/q", {})
    arguments = {"x-match": "any", "a": 1}
    client.ask(
        "POST",
        "/bindings",
        {
            "source": "amq.match",
            "destination_queue": "q",
            "binding_key": "",
            "arguments": arguments,
        },
    )
    _, (found,) = client.ask("GET", "/bindings?src=amq.match&dstq=q&key=")
    client.ask("DELETE", "/bindings/src=amq.match;dstq=q;key=;args=")
    assert len(client.ask("GET", "/bindings")[1]) == 1
    assert not found["location"].endswith("args=")
    client.ask("DELETE", found["location"])
    assert client.ask("GET", "/bindings") == (200, [])


@pytest.mark.parametrize(
    "path",
    [
        "/queues/{}",
        "/queues/{}/messages",
        "/exchanges/{}",
        "/bindings/src={};dstq=there;key=k;args=",
        "/bindings/src={};dstq=there;key=k;args=other",
        "/bindings/src=there;dstq={};key=k;args=",
        "/bindings/src=there;dstq=there;key={};args=",
    ],
)
def test_who_may_not_delete_it_hears_not_whether_it_is_there(client: Client, path: str) -> None:
    broker = client.target.broker
    broker.declare_queue("there")
    broker.declare_exchange("there", "direct")
    for key in ("k", "there"):
        broker.bind("there", "there", key)
    client.target.access.use(read("acl allow all access method\nacl deny all all")[0])
    answers = [client.ask("DELETE", path.format(name)) for name in ("there", "gone")]
    assert [status for status, _ in answers] == [403, 403]
    assert answers[0][1] == answers[1][1].replace("gone", "there")


def test_an_alternate_exchange_stands_among_the_arguments(client: Client) -> None:
    client.ask("PUT", "/queues/q", {"arguments": {"alternate-exchange": "amq.fanout"}})
    assert client.target.broker.queues["q"].options.alternate == "amq.fanout"
    assert "alternate-exchange" not in client.target.broker.queues["q"].options.arguments


def test_answers_keep_the_order_of_pipelined_requests(client: Client) -> None:
    requests = [
        ("GET", "/queues", None),
        ("PUT", "/queues/q", {}),
        ("GET", "/queues/q", None),
        ("GET", "/nowhere", None),
    ]
    numbers = [client.send(*request) for request in requests]
    assert [number for number, _, _ in client.answers()] == numbers[:1]
    client.target.commit_all()
    assert [(number, status) for number, status, _ in client.answers()] == list(
        zip(numbers[1:], (201, 200, 404), strict=True)
    )


def test_the_pair_may_be_attached_in_any_order_and_several_times() -> None:
    client = Client()
    second = FakeLink(client.connection, "second", "/management", sends=True)
    client.service.attached(second)
    sender = FakeLink(client.connection, "second", "/management")
    client.service.attached(sender)
    client.service.received(sender, a_request(subject="GET", to="/queues", reply_to="$me"))
    assert len(second.sent) == 1 and not client.receiver.sent


def test_a_request_that_cannot_be_answered_is_refused(client: Client) -> None:
    client.service.detached(client.receiver)
    with pytest.raises(RefusedRequest):
        client.send("PUT", "/queues/q", {})
    client.service.detached(client.sender)
    with pytest.raises(RefusedRequest):
        client.send("PUT", "/queues/q", {})
    assert client.target.broker.queues == {}


def test_answers_after_the_pair_has_gone_are_dropped(client: Client) -> None:
    client.send("PUT", "/queues/q", {})
    client.service.detached(client.receiver)
    client.service.detached(client.sender)
    client.target.commit_all()
    assert client.receiver.sent == [] and client.service.unanswered == 1


def test_unanswered_requests_are_bounded(client: Client) -> None:
    for _ in range(link_pair.MOST_WAITING):
        client.send("PUT", "/queues/q", {})
    client.target.end_turn()
    with pytest.raises(LimitExceeded):
        client.send("GET", "/queues")
    client.target.commit_all()
    assert len(client.answers()) == link_pair.MOST_WAITING


def test_a_queue_deleted_while_its_declaration_waits_is_still_answered(client: Client) -> None:
    client.send("PUT", "/queues/q", {})
    client.send("DELETE", "/queues/q")
    client.target.commit_all()
    assert [(status, body) for _, status, body in client.answers()] == [
        (201, {}),
        (200, {"message_count": 0}),
    ]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "", None, 400),
        ("GET", "queues", None, 400),
        ("GET", "/", None, 400),
        ("GET", "/queues/", None, 400),
        ("GET", "/nowhere/at/all", None, 404),
        ("GET", "/queues/q/consumers", None, 404),
        ("PATCH", "/queues/q", None, 405),
        ("GET", "/queues/%zz", None, 400),
        ("GET", "/queues/%ff", None, 400),
        ("GET", "/queues/missing", None, 404),
        ("GET", "/exchanges/missing", None, 404),
        ("PUT", "/queues/q", None, 400),
        ("PUT", "/queues/q", {"durable": "yes"}, 400),
        ("PUT", "/queues/q", {"surprise": 1}, 400),
        ("PUT", "/queues/q", {"arguments": {"qpid.surprise": 1}}, 400),
        ("PUT", "/queues/q%0A", {}, 400),
        ("PUT", "/queues/amq.q", {}, 403),
        ("PUT", "/exchanges/amq.default", {}, 403),
        ("DELETE", "/bindings/src=amq.default;dstq=q;key=q;args=", None, 403),
        ("PUT", "/exchanges/amq.x", {}, 403),
        ("PUT", "/exchanges/x", {"type": "xml"}, 400),
        ("PUT", "/exchanges/x", {"internal": True}, 501),
        ("DELETE", "/exchanges/amq.topic", None, 403),
        ("POST", "/bindings", {"source": "", "destination_queue": "q", "binding_key": "k"}, 403),
        (
            "POST",
            "/bindings",
            {"source": "amq.topic", "destination_queue": "q", "binding_key": "k"},
            404,
        ),
        (
            "POST",
            "/bindings",
            {"source": "amq.topic", "destination_exchange": "", "binding_key": "k"},
            400,
        ),
        (
            "POST",
            "/bindings",
            {"source": "amq.topic", "destination_exchange": "x", "binding_key": "k"},
            404,
        ),
        ("DELETE", "/bindings/src=x", None, 400),
        ("GET", "/bindings?src=a&src=b", None, 400),
        ("GET", "/ha/nothing", None, 404),
    ],
)
def test_a_bad_request_is_answered_with_its_status_and_a_reason(
    client: Client, method: str, path: str, body: Any, status: int
) -> None:
    found, text = client.ask(method, path, body)
    assert found == status and isinstance(text, str) and text
    assert client.target.broker.queues == {}


def test_a_backup_answers_gets_and_refuses_the_rest_with_503_and_the_primary(
    client: Client,
) -> None:
    client.ask("PUT", "/queues/q", {})
    _, before = client.ask("GET", "/queues/q")
    client.target.serving = False
    status, found = client.ask("GET", "/queues/q")
    assert (
        status == 200
        and {**found, "leader": ""} == {**before, "leader": ""}
        and found["leader"] == "h2:5672"
    )
    requests = [
        ("PUT", "/queues/r", {}),
        ("DELETE", "/queues/q", None),
        ("DELETE", "/queues/q/messages", None),
        ("PUT", "/exchanges/x", {}),
        ("DELETE", "/exchanges/x", None),
        ("POST", "/bindings", {"source": "amq.topic", "destination_queue": "q", "binding_key": ""}),
        ("DELETE", "/bindings/src=amq.topic;dstq=q;key=;args=", None),
    ]
    for method, path, body in requests:
        status, text = client.ask(method, path, body)
        assert status == 503 and "changes nothing" in text
        assert "it is ready" in client.details["reason"] and "h2:5672" in client.details["hint"]


def test_lists_and_status_can_be_read(client: Client) -> None:
    client.ask("PUT", "/queues/q", {})
    client.target.open_connections.append(client.connection)
    assert [queue["name"] for queue in client.ask("GET", "/queues")[1]] == ["q"]
    assert "amq.topic" in [exchange["name"] for exchange in client.ask("GET", "/exchanges")[1]]
    assert client.ask("GET", "/connections")[1][0]["container"] == "client-1"
    assert client.ask("GET", "/ha/status")[1]["epoch"] == 1


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["GET", "PUT", "POST", "DELETE"]),
    st.text(alphabet="/queuesxhangbindi%2F?&=;:$q", max_size=30),
    st.booleans(),
)
def test_any_path_is_answered(method: str, path: str, has_body: bool) -> None:
    client = Client()
    assert 200 <= client.ask(method, path, {} if has_body else None)[0] < 600


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/{}", None),
        ("GET", "{}", None),
        ("GET", "/queues//{}", None),
        ("{}", "/queues/q", None),
        ("PATCH", "/queues/{}", None),
        ("GET", "/queues/{}", None),
        ("GET", "/queues/q?{}=1", None),
        ("DELETE", "/bindings/{}", None),
        ("POST", "/bindings", "{}"),
    ],
)
def test_what_is_asked_for_is_not_repeated_at_length(
    client: Client, method: str, path: str, body: str | None
) -> None:
    long = "x" * 1_000_000
    given = body and {"source": long, "destination_queue": long}
    status, text = client.ask(method.format(long), path.format(long), given)
    assert status >= 400 and len(text) < 1100
    assert sum(map(len, map(str, client.details.values()))) < 2000


RABBITMQ_ARGUMENTS = {
    "x-max-length": -5,
    "x-overflow": "nonsense",
    "x-message-ttl": -5,
    "x-expires": 0,
    "x-dead-letter-exchange": 1,
    "x-max-priority": -5,
    "x-single-active-consumer": "nonsense",
    "x-quorum-initial-group-size": 3,
    "x-quorum-target-group-size": 3,
    "x-queue-leader-locator": "balanced",
    "x-ha-policy": "nodes",
    "x-consumer-timeout": -1,
    "x-queue-mode": "lazy",
    "ha-mode": "exactly",
}


@pytest.mark.parametrize(("name", "value"), RABBITMQ_ARGUMENTS.items())
def test_rabbitmq_d2_an_argument_that_is_not_followed_is_refused(
    client: Client, name: str, value: Any
) -> None:
    status, text = client.ask("PUT", "/queues/q", {"arguments": {name: value}})
    assert status == 400 and name in text and client.details["hint"]
    assert client.target.broker.queues == {}


@pytest.mark.parametrize("kind", ["stream", "nonsense", 1])
def test_rabbitmq_d2_a_type_of_queue_that_is_not_offered_is_refused(
    client: Client, kind: Any
) -> None:
    status, text = client.ask("PUT", "/queues/q", {"arguments": {"x-queue-type": kind}})
    assert status == 400 and "x-queue-type" in text
    assert client.details["hint"] == "allowed: quorum or classic"


def test_rabbitmq_d2_and_code_d4_a_maximum_length_limits(client: Client) -> None:
    client.ask("PUT", "/queues/ring", {"arguments": {"x-max-length": 3}})
    limited = {"x-max-length": 3, "x-overflow": "reject-publish"}
    client.ask("PUT", "/queues/full", {"arguments": limited})
    broker = client.target.broker
    for number in range(10):
        broker.publish("", "ring", b"%d" % number, headers=dict)
    assert [message.body() for message in broker.queues["ring"].ordering.after(0)] == [
        b"7",
        b"8",
        b"9",
    ]
    for _ in range(3):
        broker.publish("", "full", b"m", headers=dict)
    with pytest.raises(LimitExceeded):
        broker.publish("", "full", b"m", headers=dict)
    assert client.ask("PUT", "/queues/full", {"arguments": limited})[0] == 200
    assert client.ask("PUT", "/queues/full", {"arguments": {"x-max-length": 3}})[0] == 409


@pytest.mark.parametrize("policy", ["reject-publish", "drop-head"])
def test_a_queue_that_rejects_lets_no_sender_of_rabbitmqs_wait(client: Client, policy: str) -> None:
    broker = client.target.broker
    limited = {"x-max-length": 5, "x-overflow": policy}
    for _ in range(2):
        assert client.ask("PUT", "/queues/q", {"arguments": limited})[0] in (200, 201)
    stop = broker.queues["q"].options.arguments.get("qpid.flow_stop_count")
    assert stop == (0 if policy == "reject-publish" else None)
    broker.declare_queue("former", durable=True, arguments=limited)
    assert client.ask("PUT", "/queues/former", {"arguments": limited})[0] == 200
    if policy == "reject-publish":
        asked = {"arguments": {**limited, "qpid.flow_stop_count": 3}}
        assert client.ask("PUT", "/queues/own", asked)[0] == 201
        assert broker.queues["own"].options.arguments["qpid.flow_stop_count"] == 3


def test_rabbitmq_d2_a_quorum_queue_is_durable_and_on_every_broker(client: Client) -> None:
    quorum = {"arguments": {"x-queue-type": "quorum"}}
    for other in ({"durable": False}, {"exclusive": True}):
        assert client.ask("PUT", "/queues/q", {**quorum, **other})[0] == 409
        assert "durable and not exclusive" in client.details["reason"]
    assert client.ask("PUT", "/queues/q", quorum)[1]["type"] == "quorum"
    found = client.target.broker.queues["q"].options
    assert found.durable and found.replicate == "all"
    local = {"arguments": {"x-queue-type": "quorum", "qpid.replicate": "none"}}
    assert client.ask("PUT", "/queues/r", local)[0] == 409


@pytest.mark.parametrize("auto_delete", [False, True])
def test_rabbitmq_d10_an_exclusive_queue_is_of_one_connection_and_one_broker(
    client: Client, auto_delete: bool
) -> None:
    broker = client.target.broker
    asked = {"durable": True, "exclusive": True, "auto_delete": auto_delete}
    assert [client.ask("PUT", "/queues/q", asked)[0] for _ in range(2)] == [201, 200]
    queue = broker.queues["q"]
    assert (queue.owner, queue.options.replicate) == (client.connection, "none")
    assert not queue.options.durable and queue.uid < 0
    with pytest.raises(ResourceLocked):
        broker.declare_queue("q", exclusive=True, owner=object())
    broker.owner_gone(client.connection)
    assert "q" not in broker.queues


def test_two_spellings_of_one_thing_may_not_contradict_each_other(client: Client) -> None:
    same = {"x-max-length": 3, "qpid.max_count": 3}
    assert client.ask("PUT", "/queues/q", {"arguments": same})[0] == 201
    other = {"x-max-length": 3, "qpid.max_count": 4}
    status, text = client.ask("PUT", "/queues/r", {"arguments": other})
    assert status == 409 and "x-max-length=3" in text and "qpid.max_count=4" in text
    status, text = client.ask("PUT", "/queues/r", {"arguments": {"durable": False}})
    assert status == 409 and "durable" in text


RABBITMQ_GET = b"\x00Sw@\x00Ss\xc0\x18\x05\xa1\x01z@\xa1\x07/queues\xa1\x03GET\xa1\x03$me"
"""What RabbitMQ's Python client sends: an empty amqp-value, and then the properties."""


def test_rabbitmq_d5_sections_of_a_request_come_in_any_order(client: Client) -> None:
    client.target.broker.declare_queue("q")
    client.service.received(client.sender, RABBITMQ_GET)
    ((correlation, status, body),) = client.answers()
    assert (correlation, status) == ("z", 200) and body[0]["name"] == "q"


def test_rabbitmq_d5_a_null_body_before_the_properties_is_no_body(client: Client) -> None:
    request = a_request({"durable": True}, subject="PUT", to="/queues/q", reply_to="$me")
    client.service.received(client.sender, b"\x00Sw@" + request)
    client.target.commit_all()
    ((_, status, _),) = client.answers()
    assert status == 201 and client.target.broker.queues["q"].durable


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x00",
        b"nothing like it",
        b"\x00Sw",
        b"\x00Sr\xff",
        b"\x00Ss\x40\x00Su\xa0\x01x\x00Sw\xa1\x01y\x00Sv\x45",
        b"\x00S\x10\x45",
        a_request({}, subject="PUT", to="/queues/q", reply_to="somewhere", message_id=1),
        a_request({}, subject="PUT", to="/queues/q", message_id=1),
        a_request({}, subject="PUT", to="/queues/q", reply_to="$me", message_id=1) + b"\xff",
    ],
)
def test_rabbitmq_d5_a_bad_request_is_answered_by_the_pair(client: Client, payload: bytes) -> None:
    client.service.received(client.sender, payload)
    ((correlation, status, text),) = client.answers()
    assert status == 400 and text and client.details["hint"]
    assert correlation == (1 if b"PUT" in payload else None)
    assert client.target.broker.queues == {}


def test_a_request_with_two_sections_of_one_kind_is_refused(client: Client) -> None:
    client.target.broker.declare_queue("q")
    asked = a_request(subject="GET", to="/queues/q", reply_to="$me")
    client.service.received(
        client.sender, asked + a_request(subject="DELETE", to="/queues/q", reply_to="$me")
    )
    ((_, status, text),) = client.answers()
    assert status == 400 and "twice" in text and "q" in client.target.broker.queues


@pytest.mark.parametrize(
    ("verb", "path", "name"),
    [
        ("DELETE", "/queues/q?if-empty=true", "if-empty"),
        ("GET", "/queues?page=1", "page"),
        ("GET", "/bindings?src=amq.topic&columns=key", "columns"),
    ],
)
def test_a_query_that_is_not_followed_is_refused(
    client: Client, verb: str, path: str, name: str
) -> None:
    client.target.broker.declare_queue("q")
    status, text = client.ask(verb, path)
    assert status == 400 and name in text and "q" in client.target.broker.queues


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_answered(payload: bytes, behind: bool) -> None:
    client = Client()
    client.service.received(client.sender, RABBITMQ_GET + payload if behind else payload)
    ((_, status, _),) = client.answers()
    assert 200 <= status < 500
