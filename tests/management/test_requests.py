"""Requests: what each method does, what it refuses, and when it answers."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from qpidha.broker.queues.arguments import DEEPEST
from qpidha.broker.queues.queue import Queue
from qpidha.management.port import Reply
from qpidha.management.requests import Requests
from qpidha.management.schema import plain
from qpidha.model.events import ConnectionKind
from qpidha.model.principal import Role
from qpidha.model.records import Bound, QueueDeclared, QueueDeleted
from tests.broker.parts import Taker
from tests.management.builders import LOCAL, FakeConnection, FakeNode


class Asker:
    """Asks a broker and keeps the answers."""

    def __init__(self, target: FakeNode) -> None:
        self.target = target
        self.requests = Requests(target)
        self.answers: list[Reply] = []

    def call(
        self, method: str, params: dict[str, Any], connection: FakeConnection | None = None
    ) -> None:
        """Ask over the admin socket, or as an AMQP connection."""
        self.requests.call(
            method,
            params,
            self.answers.append,
            principal=LOCAL if connection is None else connection.principal,
            owner=connection,
        )

    def ask(self, method: str, **params: Any) -> Any:
        """Ask, let it be committed, and return the result."""
        before = len(self.answers)
        self.call(method, params)
        self.target.commit_all()
        assert len(self.answers) == before + 1
        reply = self.answers[-1]
        assert reply.error is None, reply.error
        return reply.result

    def refusal(self, method: str, **params: Any) -> Any:
        """Ask for what is refused and return the error."""
        before = len(self.answers)
        self.call(method, params)
        assert len(self.answers) == before + 1
        error = self.answers[-1].error
        assert error is not None and error.text
        return error


@pytest.fixture
def asker() -> Asker:
    return Asker(FakeNode())


def test_a_declared_queue_is_listed_with_real_numbers(asker: Asker) -> None:
    asker.ask("declare_queue", name="q", durable=True, arguments={"qpid.max_count": 10})
    asker.target.broker.publish("", "q", b"12345", headers=dict)
    (row,) = asker.ask("list_queues")
    assert (row["name"], row["durable"], row["messages"], row["bytes"], row["enqueued"]) == (
        "q",
        True,
        1,
        5,
        1,
    )
    assert row["replicate"] == "all" and row["arguments"]["qpid.max_count"] == 10 and row["uuid"]


def test_a_change_is_answered_only_when_its_record_is_committed(asker: Asker) -> None:
    asker.call("declare_queue", {"name": "q"})
    assert asker.answers == [] and "q" in asker.target.broker.queues
    asker.target.commit_all()
    assert asker.answers[0].result["created"] is True


def test_declaring_again_waits_for_the_first_declaration_to_be_committed(asker: Asker) -> None:
    for _ in range(2):
        asker.call("declare_queue", {"name": "q"})
    assert asker.answers == []
    asker.target.commit_all()
    assert [answer.result["created"] for answer in asker.answers] == [True, False]


def test_declaring_an_exchange_again_waits_as_well(asker: Asker) -> None:
    for _ in range(2):
        asker.call("declare_exchange", {"name": "x", "type": "topic"})
    assert asker.answers == []
    asker.target.commit_all()
    assert [answer.result["created"] for answer in asker.answers] == [True, False]


def test_without_a_log_changes_are_answered_at_once() -> None:
    asker = Asker(FakeNode(recorded=False))
    for created in (True, False):
        asker.call("declare_queue", {"name": "q"})
        assert asker.answers[-1].result["created"] is created
    asker.call("delete_queue", {"name": "q"})
    assert asker.answers[-1].result == {"messages": 0}


def test_changes_that_never_are_committed_are_answered_when_the_broker_is_demoted(
    asker: Asker,
) -> None:
    asker.call("declare_queue", {"name": "q"})
    asker.requests.abandon()
    (answer,) = asker.answers
    assert answer.error is not None and answer.error.condition == "amqp:connection:forced"
    asker.target.commit_all()
    assert len(asker.answers) == 1


def test_a_queue_declared_otherwise_is_refused(asker: Asker) -> None:
    asker.ask("declare_queue", name="q", durable=True)
    assert (
        asker.refusal("declare_queue", name="q", durable=False).condition
        == "amqp:precondition-failed"
    )


def test_deleting_tells_how_many_messages_went(asker: Asker) -> None:
    asker.ask("declare_queue", name="q")
    asker.target.broker.publish("", "q", b"m", headers=dict)
    assert (
        asker.refusal("delete_queue", name="q", if_empty=True).condition
        == "amqp:precondition-failed"
    )
    assert asker.ask("delete_queue", name="q") == {"messages": 1}
    assert isinstance(asker.target.log.records[-1], QueueDeleted)
    assert asker.refusal("delete_queue", name="q").condition == "amqp:not-found"


def test_purging_tells_how_many_messages_went(asker: Asker) -> None:
    asker.ask("declare_queue", name="q")
    for _ in range(3):
        asker.target.broker.publish("", "q", b"m", headers=dict)
    assert asker.ask("purge_queue", name="q") == {"messages": 3}
    assert asker.ask("list_queues", name="q")[0]["messages"] == 0
    assert asker.refusal("purge_queue", name="other").condition == "amqp:not-found"


def a_long_purge(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask for a purge that takes more than one turn."""
    monkeypatch.setattr("qpidha.broker.broker.WALKED_A_TURN", 2)
    asker.ask("declare_queue", name="q")
    for _ in range(5):
        asker.target.broker.publish("", "q", b"m", headers=dict)
    asker.answers.clear()
    asker.call("purge_queue", {"name": "q"})


def test_a_long_purge_is_answered_when_its_last_record_is_committed(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_long_purge(asker, monkeypatch)
    target = asker.target
    while target.broker.walks:
        target.commit_all()
        assert asker.answers == []
        target.broker.go_on_walking(target.committed)
    assert asker.answers == [] and not target.broker.queues["q"].messages
    target.commit_all()
    assert [answer.result for answer in asker.answers] == [{"messages": 5}]


def test_a_long_purge_of_a_broker_that_is_demoted_is_answered_once(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_long_purge(asker, monkeypatch)
    asker.requests.abandon()
    (answer,) = asker.answers
    assert answer.error is not None and answer.error.condition == "amqp:connection:forced"
    asker.target.commit_all()
    asker.target.broker.go_on_walking(asker.target.committed)
    asker.target.broker.go_on_walking(1 << 60)
    asker.target.commit_all()
    assert len(asker.answers) == 1


def begin_long_deletion(asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a queue deleted whose five messages go to another one, two a turn."""
    monkeypatch.setattr("qpidha.broker.queues.deletion.PASSED_ON_A_TURN", 2)
    asker.ask("declare_queue", name="orphans")
    asker.ask("bind", exchange="amq.fanout", queue="orphans")
    asker.ask("declare_queue", name="q", alternate="amq.fanout")
    for _ in range(5):
        asker.target.broker.publish("", "q", b"m", headers=dict)
    asker.answers.clear()
    asker.call("delete_queue", {"name": "q"})


def test_a_long_deletion_is_answered_when_its_last_record_is_committed(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_long_deletion(asker, monkeypatch)
    target = asker.target
    while target.broker.walks:
        target.commit_all()
        assert asker.answers == []
        target.broker.go_on_walking(target.committed)
    assert asker.answers == [] and "q" not in target.broker.queues
    target.commit_all()
    assert [answer.result for answer in asker.answers] == [{"messages": 5}]


def test_a_queue_whose_deletion_rests_is_purged_and_both_are_answered(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_long_deletion(asker, monkeypatch)
    target = asker.target
    target.broker.refuse_publishing = "the disk is nearly full"
    target.broker.go_on_walking(target.committed)
    assert asker.refusal("delete_queue", name="q").condition == "amqp:resource-locked"
    asker.answers.clear()
    asker.call("purge_queue", {"name": "q"})
    assert asker.answers == [] and "q" not in target.broker.queues
    target.commit_all()
    assert [answer.result for answer in asker.answers] == [{"messages": 5}, {"messages": 5}]


def test_a_queue_that_takes_the_place_of_one_that_is_to_end_was_created(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qpidha.broker.broker.WALKED_A_TURN", 1)
    broker, owner = asker.target.broker, object()
    broker.dispatch(1)
    for name in "abc":
        broker.declare_queue(name, exclusive=True, auto_delete=True, owner=owner)
    broker.owner_gone(owner)
    assert list(broker.queues) == ["b", "c"]
    assert asker.ask("declare_queue", name="c")["created"] is True


def test_exchanges_and_bindings_come_and_go(asker: Asker) -> None:
    asker.ask("declare_exchange", name="x", type="topic", arguments={"colour": "red"})
    asker.ask("declare_queue", name="q")
    asker.ask("bind", exchange="x", queue="q", key="a.#", arguments={"n": 1})
    assert isinstance(asker.target.log.records[-1], Bound)
    expected = {
        "exchange": "x",
        "queue": "q",
        "key": "a.#",
        "arguments": {"n": 1},
        "destination_exchange": "",
    }
    assert asker.ask("list_bindings") == [expected]
    assert asker.ask("list_bindings", queue="q", exchange="x", key="a.#") == [expected]
    assert asker.ask("list_bindings", queue="other") == []
    (row,) = asker.ask("list_exchanges", name="x")
    assert (row["type"], row["bindings"], row["arguments"]["colour"]) == ("topic", 1, "red")
    asker.ask("unbind", exchange="x", queue="q", key="a.#")
    assert asker.refusal("unbind", exchange="x", queue="q", key="a.#").condition == "amqp:not-found"
    asker.ask("delete_exchange", name="x")
    assert "x" not in [row["name"] for row in asker.ask("list_exchanges")]


def test_an_exchange_is_bound_to_another_one(asker: Asker) -> None:
    asker.ask("declare_exchange", name="x", type="fanout")
    bound = asker.ask("bind", exchange="amq.topic", destination_exchange="x", key="a.#")
    assert isinstance(asker.target.log.records[-1], Bound)
    assert (bound["queue"], bound["destination_exchange"]) == ("", "x")
    assert asker.ask("list_bindings", destination_exchange="x") == [bound]
    assert asker.ask("list_bindings", destination_exchange="y") == []
    for wrong in ({"queue": "q", "destination_exchange": "x"}, {}):
        error = asker.refusal("bind", exchange="amq.topic", key="k", **wrong)
        assert error.condition == "amqp:invalid-field" and error.hint
    asker.ask("unbind", exchange="amq.topic", destination_exchange="x", key="a.#")
    again = {"exchange": "amq.topic", "destination_exchange": "x", "key": "a.#"}
    assert asker.refusal("unbind", **again).condition == "amqp:not-found"


def test_built_in_exchanges_are_listed_and_cannot_be_deleted(asker: Asker) -> None:
    names = [row["name"] for row in asker.ask("list_exchanges", match="amq.")]
    assert names == ["amq.direct", "amq.topic", "amq.fanout", "amq.match"]
    assert asker.refusal("delete_exchange", name="amq.topic").text


@pytest.mark.parametrize("name", ["amq.mine", "qpid.mine", "qpidha.mine", "$management"])
def test_reserved_names_are_refused(asker: Asker, name: str) -> None:
    assert asker.refusal("declare_queue", name=name).condition == "amqp:not-allowed"
    assert asker.refusal("declare_exchange", name=name).condition == "amqp:not-allowed"


@pytest.mark.parametrize(
    ("method", "params", "word"),
    [
        ("declare_queue", {}, "name"),
        ("declare_queue", {"name": ""}, "name"),
        ("declare_queue", {"name": 7}, "integer 7"),
        ("declare_queue", {"name": "a\nb"}, "control character"),
        ("declare_queue", {"name": "a\u202eb"}, "turns the direction"),
        ("declare_exchange", {"name": "a\u2069b"}, "turns the direction"),
        ("declare_queue", {"name": "a\u2029b"}, "line break"),
        ("declare_queue", {"name": "q" * 256}, "256 characters"),
        ("declare_queue", {"name": "\ud800"}, "surrogate"),
        ("declare_queue", {"name": "q", "durabel": True}, "durabel"),
        ("declare_queue", {"name": "q", "durable": "yes"}, "durable"),
        ("declare_queue", {"name": "q", "arguments": [1]}, "arguments"),
        ("declare_queue", {"name": "q", "arguments": {"a": b"x"}}, "binary"),
        ("declare_queue", {"name": "q", "arguments": {"a": 2**63}}, "64 bits"),
        ("declare_queue", {"name": "q", "arguments": {"a": float("nan")}}, "float"),
        ("declare_queue", {"name": "q", "arguments": {"a": {1: 2}}}, "has the key 1"),
        ("declare_queue", {"name": "q", "arguments": {"qpid.no_such": 1}}, "qpid.no_such"),
        ("declare_queue", {"name": "q", "arguments": {"qpid.replicate": "some"}}, "some"),
        ("declare_exchange", {"name": "x", "type": "xml"}, "xml"),
        ("bind", {"exchange": "amq.topic"}, "queue"),
        ("status", {"verbose": True}, "verbose"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(
    asker: Asker, method: str, params: dict[str, Any], word: str
) -> None:
    error = asker.refusal(method, **params)
    assert error.condition == "amqp:invalid-field" and word in error.text
    assert asker.target.broker.queues == {} and asker.target.log.records == []


def test_arguments_are_kept_as_plain_values(asker: Asker) -> None:
    asker.ask("declare_queue", name="q", arguments={"mine": [1, {"a": None}], "other": 1.5})
    record = asker.target.log.records[-1]
    assert isinstance(record, QueueDeclared)
    assert record.arguments["mine"] == [1, {"a": None}] and record.arguments["other"] == 1.5


def test_an_unknown_method_is_refused_with_the_nearest_name(asker: Asker) -> None:
    error = asker.refusal("list_queue")
    assert error.condition == "amqp:not-implemented" and "list_queues" in error.hint


def test_on_a_backup_reads_work_and_changes_are_refused_with_the_primary(asker: Asker) -> None:
    asker.ask("declare_queue", name="q")
    asker.target.serving = False
    assert len(asker.ask("list_queues")) == 1
    assert asker.ask("status")["state"] == "ready" and asker.ask("ping") == {"state": "ready"}
    for method in (
        "declare_queue",
        "delete_queue",
        "purge_queue",
        "declare_exchange",
        "delete_exchange",
        "bind",
        "unbind",
    ):
        error = asker.refusal(method, name="q")
        assert error.condition == "amqp:not-allowed" and "h2:5672" in error.hint
    assert asker.ask("promote") == {"state": "active"} and asker.target.promoted == 1


def test_changes_are_refused_while_the_primary_hands_over_and_nobody_is_sent_to_itself(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = asker.target.status()
    asker.target.serving = False
    monkeypatch.setattr(asker.target, "status", lambda: status)
    error = asker.refusal("declare_queue", name="q")
    assert (
        error.condition == "amqp:not-allowed"
        and "handing over" in error.reason
        and "h1:5672" not in error.hint
    )


def test_the_broker_is_managed(asker: Asker) -> None:
    assert asker.ask("query")["replicate"] == "all"
    assert asker.ask("members")[0]["system_id"] == "s1"
    assert asker.ask("demote") == {"state": "joining"} and asker.target.demoted == 1
    assert asker.ask("shutdown") == {} and asker.target.stopped == 1


def test_connections_are_listed(asker: Asker) -> None:
    asker.target.open_connections.append(FakeConnection(3, is_admin=True))
    (row,) = asker.ask("list_connections")
    assert (row["id"], row["user"], row["container"], row["admin"], row["process"]) == (
        3,
        "guest@QPID",
        "client-3",
        True,
        "test",
    )


def test_a_backup_is_a_broker_that_came_to_us(asker: Asker) -> None:
    client, backup, primary = (FakeConnection(number) for number in (1, 2, 3))
    for each in backup, primary:
        each.principal = each.principal.with_role(Role.BROKER)
    primary.kind = ConnectionKind.OUTGOING
    asker.target.open_connections += [client, backup, primary]
    assert [row["backup"] for row in asker.ask("list_connections")] == [False, True, False]


class FakeSession:
    """What management reads of a session."""

    def __init__(self, channel: int, *links: bool) -> None:
        self.channel = channel
        self.unacked, self.unacked_bytes = 2, 30
        self.links = {number: FakeEnd(sends) for number, sends in enumerate(links)}

    def backlog(self) -> int:
        return 4


@dataclass
class FakeEnd:
    is_sender: bool


def test_sessions_are_listed_with_what_is_under_way(asker: Asker) -> None:
    for number in (9, 10):
        connection = FakeConnection(number)
        connection.open_sessions = [FakeSession(0, True, True, False), FakeSession(1)]
        asker.target.open_connections.append(connection)
    first, second, *_ = asker.ask("list_sessions")
    assert (first["id"], first["user"], first["senders"], first["receivers"]) == (
        "9/0",
        "guest@QPID",
        1,
        2,
    )
    assert (first["unsettled"], first["unsettled_bytes"], first["waiting_bytes"]) == (2, 30, 4)
    assert second["id"] == "9/1"
    assert [row["id"] for row in asker.ask("list_sessions", after="9/1")] == ["10/0", "10/1"]
    assert [row["channel"] for row in asker.ask("list_sessions", name="10/1")] == [1]
    assert asker.ask("list_sessions", name="10/7") == []
    assert "parameter after" in asker.refusal("list_sessions", after="9").text


class Consumer(Taker):
    """What management reads of a consumer."""

    name, address, unsettled = "a/b", "q", 3
    is_settled, delivered = False, 12
    end = SimpleNamespace(session=SimpleNamespace(channel=2))

    def __init__(self, queue: Queue, connection: FakeConnection) -> None:
        super().__init__(queue)
        self.connection = connection


def a_consumer(target: FakeNode, name: str) -> None:
    """Have a client consume from a queue."""
    queue = target.broker.queues[name]
    queue.subscribe(Consumer(queue, FakeConnection(7)))


def test_subscriptions_are_listed_with_what_they_consume_from(asker: Asker) -> None:
    asker.ask("declare_queue", name="q")
    assert asker.ask("list_subscriptions") == []
    a_consumer(asker.target, "q")
    (row,) = asker.ask("list_subscriptions", name="7/a/b")
    assert (row["connection"], row["link"], row["queue"], row["user"]) == (
        7,
        "a/b",
        "q",
        "guest@QPID",
    )
    assert (row["unsettled"], row["browsing"], row["priority"]) == (3, False, 0)
    assert (row["session"], row["acknowledged"], row["delivered"]) == ("7/2", True, 12)


def test_the_connection_of_a_client_is_closed_with_the_reason(asker: Asker) -> None:
    client, peer, ours = (FakeConnection(number) for number in (1, 2, 3))
    peer.principal = peer.principal.with_role(Role.BROKER)
    ours.kind = ConnectionKind.OUTGOING
    asker.target.open_connections += [client, peer, ours]
    assert asker.ask("close_connection", id=1, reason="too old")["container"] == "client-1"
    ((closed, error),) = asker.target.closed
    assert closed is client and error.condition == "amqp:connection:forced"
    assert error.text == "an administrator closed the connection: too old"
    for number in (2, 3):
        assert "with another broker" in asker.refusal("close_connection", id=number).text
    assert asker.refusal("close_connection", id=9).condition == "amqp:not-found"
    assert len(asker.target.closed) == 1


def test_only_administrators_close_connections_and_not_their_own(asker: Asker) -> None:
    client, administrator = FakeConnection(1), FakeConnection(2, is_admin=True)
    asker.target.open_connections += [client, administrator]
    asker.call("close_connection", {"id": 2}, client)
    asker.call("close_connection", {"id": 2}, administrator)
    errors = [reply.error for reply in asker.answers]
    assert [error.condition if error else "" for error in errors] == [
        "amqp:unauthorized-access",
        "amqp:not-allowed",
    ]
    assert asker.target.closed == []
    asker.call("close_connection", {"id": 1}, administrator)
    assert [closed for closed, _ in asker.target.closed] == [client]


@pytest.mark.parametrize(
    ("value", "reduced"),
    [
        (None, None),
        (True, True),
        (b"a\xff", "a\\xff"),
        (float("inf"), "inf"),
        ((1, {2: None}), [1, {"2": None}]),
    ],
)
def test_any_value_is_told_in_the_types_of_json(value: object, reduced: object) -> None:
    assert plain(value) == reduced


def test_an_exclusive_queue_belongs_to_who_asked(asker: Asker) -> None:
    owner = FakeConnection(1)
    asker.call("declare_queue", {"name": "q", "exclusive": True}, owner)
    assert asker.target.broker.queues["q"].owner is owner


@pytest.mark.parametrize(
    ("asked", "stays"),
    [
        ({"arguments": {"qpid.lifetime-policy": "delete-if-unused"}}, True),
        ({"arguments": {"qpid.lifetime-policy": "delete-if-empty"}}, True),
        ({"arguments": {"qpid.lifetime-policy": "delete-if-unused-and-empty"}}, True),
        ({"auto_delete": True}, True),
        ({"arguments": {"qpid.lifetime-policy": "delete-on-close"}}, False),
        ({"auto_delete": True, "exclusive": True}, False),
    ],
)
def test_a_queue_declared_by_a_command_waits_for_its_first_use(
    asker: Asker, asked: dict[str, Any], stays: bool
) -> None:
    broker, owner = asker.target.broker, FakeConnection(1)
    asker.call("declare_queue", {"name": "q", **asked}, owner)
    broker.owner_gone(owner)
    assert ("q" in broker.queues) is stays


@pytest.mark.parametrize(
    "method, params",
    [
        ("purge_queue", {"name": "q"}),
        ("bind", {"exchange": "amq.fanout", "queue": "q"}),
        ("unbind", {"exchange": "amq.direct", "queue": "q", "key": "k"}),
    ],
)
def test_the_exclusive_queue_of_another_connection_is_not_changed(
    asker: Asker, method: str, params: dict[str, Any]
) -> None:
    owner, other = FakeConnection(1), FakeConnection(2)
    asker.call("declare_queue", {"name": "q", "exclusive": True}, owner)
    asker.target.broker.bind("amq.direct", "q", "k")
    asker.target.commit_all()
    asker.call(method, params, other)
    error = asker.answers[-1].error
    assert error is not None and error.condition == "amqp:resource-locked"
    asker.call(method, params, owner)
    asker.target.commit_all()
    assert asker.answers[-1].error is None


def test_arguments_may_be_nested_so_deep_and_no_deeper(asker: Asker) -> None:
    value: Any = 1
    for _ in range(DEEPEST):
        value = [value]
    binding = {"exchange": "amq.match", "queue": "q"}
    asker.ask("declare_queue", name="q")
    asker.ask("bind", **binding, arguments={"x": value})
    error = asker.refusal("bind", **binding, arguments={"x": [value]})
    assert "the entry x, which is nested more than 8 deep" in error.text


@pytest.mark.parametrize("key", ["a\x00", "\ud800", "k" * 256])
def test_a_key_that_no_broker_could_be_told_is_refused(asker: Asker, key: str) -> None:
    error = asker.refusal("declare_queue", name="q", arguments={key: 1})
    assert error.text.startswith("declare_queue: parameter arguments ")


def test_a_promotion_may_be_told_to_accept_loss(asker: Asker) -> None:
    asker.ask("promote")
    assert not asker.target.accepted_loss
    asker.ask("promote", accept_loss=True)
    assert asker.target.accepted_loss
    assert "accept_loss" in asker.refusal("promote", accept_loss="yes").text


def test_a_promotion_and_a_comparison_may_be_told_whom_to_forget(asker: Asker) -> None:
    for method in ("promote", "recover"):
        asker.ask(method, forget="b3 b4")
        assert asker.target.forgotten == "b3 b4"
        asker.ask(method)
        assert asker.target.forgotten == ""


def test_recovery_and_switchover_are_passed_on(asker: Asker) -> None:
    assert asker.ask("recover") == {"recommended": "s2"}
    asker.ask("switchover")
    assert asker.target.switched_to == ""
    asker.ask("switchover", target="h2:5672")
    assert asker.target.switched_to == "h2:5672"
    assert asker.refusal("switchover", target="s9").condition == "amqp:not-found"


def test_messages_beyond_the_commit_point_are_listed_as_unreplicated(asker: Asker) -> None:
    asker.ask("declare_queue", name="q")
    asker.target.broker.publish("", "q", b"safe", headers=dict)
    asker.target.commit_all()
    (row,) = asker.ask("list_queues", name="q")
    assert (row["messages"], row["unreplicated"]) == (1, 0)
    asker.target.broker.publish("", "q", b"not yet", headers=dict)
    asker.call("list_queues", {"name": "q"})
    assert asker.answers[-1].result[0]["unreplicated"] == 1


def test_a_queue_tells_how_far_behind_each_backup_is(asker: Asker) -> None:
    node = asker.target
    asker.ask("declare_queue", name="q")
    node.broker.publish("", "q", b"first", headers=dict)
    node.backups = {"b2": node.log.sequence, "b3": None}
    node.broker.publish("", "q", b"second", headers=dict)
    node.broker.publish("", "q", b"third", headers=dict)
    (row,) = asker.ask("list_queues", name="q")
    assert row["backups"] == {"b2": 2, "b3": None}  # of b3 nothing is known
    asker.ask("declare_queue", name="here", arguments={"qpid.replicate": "none"})
    node.broker.publish("", "here", b"first", headers=dict)
    (row,) = asker.ask("list_queues", name="here")
    assert row["backups"] == {}


def test_a_queue_tells_the_age_of_its_oldest_message(asker: Asker) -> None:
    node = asker.target
    asker.ask("declare_queue", name="q")

    def age() -> tuple[object, object]:
        (row,) = asker.ask("list_queues", name="q")
        return row["oldest_age_seconds"], row["oldest_may_be_older"]

    assert age() == (None, False)
    node.broker.publish("", "q", b"first", headers=dict)
    came, node.now = node.now, node.now + 5 * 10**9
    node.broker.arrivals.turn(node.log.sequence, came, is_exact=True)
    assert age() == (5.0, False)
    node.broker.arrivals.forget()
    node.broker.arrivals.turn(node.log.sequence, node.now - 10**9, is_exact=False)
    assert age() == (1.0, True)


def test_the_explanation_names_what_is_waited_for_and_the_queues_with_most_unreplicated_messages(
    asker: Asker,
) -> None:
    for name, count in (("few", 1), ("many", 3), ("none", 0)):
        asker.ask("declare_queue", name=name)
        for _ in range(count):
            asker.target.broker.publish("", name, b"m", headers=dict)
    asker.target.commit_all()
    assert asker.ask("explain")["queues"] == [] and asker.ask("explain")["waits"] == []
    for name, count in (("few", 1), ("many", 3)):
        for _ in range(count):
            asker.target.broker.publish("", name, b"m", headers=dict)
    asker.target.waits = [
        {"kind": "backup", "backup": "h2:5672", "text": "h2:5672 has not confirmed"}
    ]
    asker.call("explain", {})
    found = asker.answers[-1].result
    assert found["queues"] == [
        {"name": "many", "unsafe": 3, "unreplicated": 3},
        {"name": "few", "unsafe": 1, "unreplicated": 1},
    ]
    assert (found["unreplicated_messages"], found["unreplicated_queues"], found["waits"]) == (
        4,
        2,
        asker.target.waits,
    )


def test_the_explanation_names_queues_that_stop_senders_and_messages_without_a_place(
    asker: Asker,
) -> None:
    asker.ask("declare_queue", name="full", arguments={"qpid.max_count": 1})
    asker.ask("declare_queue", name="q", alternate="amq.fanout")
    broker = asker.target.broker
    assert (asker.ask("explain")["stopped"], asker.ask("explain")["unplaced"]) == ([], [])
    for name in ("full", "q"):
        broker.publish("", name, b"m", headers=dict)
    queue = broker.queues["q"]
    queue.reject(next(iter(queue.messages.values())))
    found = asker.ask("explain")
    assert found["stopped"] == [{"name": "full", "messages": 1, "bytes": 1, "waiting_senders": 0}]
    why = "exchange amq.fanout has no queue for the next one, or only such that it died on before"
    assert found["unplaced"] == [{"name": "q", "unplaced": 1, "why": why}]
    assert (found["stopped_queues"], found["unplaced_queues"]) == (1, 1)
    (full,) = asker.ask("list_queues", name="full")
    assert (full["flow_stopped"], full["flow_stops"], full["unplaced"]) == (True, 1, 0)


def test_the_manager_asks_what_to_record_and_tells_what_is_kept(asker: Asker) -> None:
    kept = {"epoch": 1, "version": 0, "members": ["s1"]}
    assert asker.ask("recording") == {"wanted": False}
    asker.ask("recorded", kept=kept)
    asker.ask("recorded", trouble="not quorate")
    assert asker.target.recorded == [(None, ""), (kept, ""), (None, "not quorate")]
    for params in ({}, {"kept": kept, "trouble": "and yet"}, {"kept": {}}):
        assert (
            "give what the store keeps, or why that is not known"
            in asker.refusal("recorded", **params).text
        )


@pytest.mark.parametrize("method", ["recording", "recorded"])
def test_nobody_speaks_for_the_managers_store_but_over_the_admin_socket(
    asker: Asker, method: str
) -> None:
    asker.call(method, {}, FakeConnection(1, is_admin=True))
    assert (
        asker.answers[0].error is not None
        and "is for the cluster manager" in asker.answers[0].error.text
    )
    assert asker.target.recorded == []
