"""Sums over a broker, and pages of a list."""

from __future__ import annotations

from typing import Any

import pytest

from qpidha.management.requests import Requests
from tests.management.builders import LOCAL, FakeConnection, FakeNode


def ask(node: FakeNode, method: str, **params: Any) -> Any:
    answers: list[Any] = []
    Requests(node).call(method, params, answers.append, principal=LOCAL)
    node.commit_all()
    if answers[0].error is not None:
        raise answers[0].error
    return answers[0].result


def put(node: FakeNode, name: str, count: int) -> None:
    queue = node.broker.queues[name]
    for _ in range(count):
        queue.enqueue(b"12345678", 0)


def test_what_is_there_is_added_up() -> None:
    node = FakeNode()
    node.open_connections = [FakeConnection(1), FakeConnection(2)]
    empty = ask(node, "statistics")
    assert (empty["queues"], empty["messages"], empty["bytes"]) == (0, 0, 0)
    for name in ("a", "b", "c"):
        ask(node, "declare_queue", name=name)
    put(node, "a", 3)
    put(node, "b", 2)
    found = ask(node, "statistics")
    assert (found["queues"], found["messages"], found["enqueued"]) == (3, 5, 5)
    assert found["bytes"] == sum(queue.bytes for queue in node.broker.queues.values()) > 0
    assert found["connections"] == {"client": 2, "broker": 0, "outgoing": 0}
    assert (found["unreplicated_queues"], found["unreplicated_messages"]) == (2, 5)
    assert ask(node, "statistics")["unreplicated_messages"] == 0  # it is committed now


def test_totals_of_deleted_queues_stay() -> None:
    node = FakeNode()
    for name in ("a", "b"):
        ask(node, "declare_queue", name=name)
        put(node, name, 4)
    ask(node, "purge_queue", name="a")
    before = ask(node, "statistics")
    assert (before["enqueued"], before["departures"]["purged"]) == (8, 4)
    ask(node, "delete_queue", name="a")
    ask(node, "delete_queue", name="b")
    after = ask(node, "statistics")
    assert (after["queues"], after["enqueued"]) == (0, 8)
    assert after["departures"] == {**before["departures"], "deleted": 4}
    node.broker.reset()
    assert ask(node, "statistics")["enqueued"] == 0


def other(**fields: Any) -> dict[str, Any]:
    return {"system_id": "s2", "state": "ready", "connected": True, "in_sync": True, **fields}


@pytest.mark.parametrize(
    ("state", "others", "unsafe"),
    [
        ("active", [], 2),
        ("active", [other()], 0),
        ("recovering", [other(state="catchup")], 2),
        ("active", [other(connected=False)], 2),
        ("active", [other(in_sync=False)], 2),
        ("active", [other(in_sync=False), other(system_id="s3")], 0),
        ("ready", [], 0),
        ("standalone", [], 0),
    ],
)
def test_messages_are_unsafe_while_no_ready_backup_has_them(
    state: str, others: list[dict[str, Any]], unsafe: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FakeNode()
    ask(node, "declare_queue", name="replicated")
    ask(node, "declare_queue", name="local", arguments={"qpid.replicate": "none"})
    put(node, "replicated", 2)
    put(node, "local", 3)
    status = node.status()
    own = {"system_id": "s1", "state": state, "connected": True, "in_sync": True}
    monkeypatch.setattr(
        node, "status", lambda: status | {"state": state, "members": [own, *others]}
    )
    found = ask(node, "statistics")
    assert (found["unsafe_queues"], found["unsafe_messages"]) == (unsafe // 2, unsafe)


def names(node: FakeNode, method: str = "list_queues", **params: Any) -> list[Any]:
    return [row["name"] for row in ask(node, method, **params)]


def test_a_list_has_pages_in_the_order_of_names() -> None:
    node = FakeNode()
    for name in ("c", "a", "d", "b"):
        ask(node, "declare_queue", name=name)
    assert names(node) == ["c", "a", "d", "b"]
    assert names(node, limit=3) == ["a", "b", "c"]
    assert names(node, limit=3, after="c") == ["d"]
    assert names(node, after="b") == ["c", "d"]
    assert names(node, after="b", match="d", limit=9) == ["d"]
    assert names(node, "list_exchanges", limit=2) == ["", "amq.direct"]
    node.open_connections = [FakeConnection(number) for number in (2, 9, 10, 11)]
    page = ask(node, "list_connections", limit=2, after="9", fields="id")
    assert page == [{"id": 10}, {"id": 11}]
    with pytest.raises(Exception, match="parameter after is 'x'"):
        ask(node, "list_connections", after="x")


def test_a_list_has_the_fields_that_are_asked_for() -> None:
    node = FakeNode()
    ask(node, "declare_queue", name="q")
    assert ask(node, "list_queues", fields="name, messages") == [{"name": "q", "messages": 0}]
    with pytest.raises(Exception, match="a queue has no field mesages") as caught:
        ask(node, "list_queues", fields="name mesages")
    assert "did you mean messages?" in caught.value.hint
