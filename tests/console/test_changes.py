"""Changes: who may make which, what they would do, what is logged, and what no client can do."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from fastapi import Request
from uvicorn.server import ServerState

from qpidha.client.admin import LinkAbsent, LinkBroken
from qpidha.client.blocking import Client
from qpidha.console import changing, connections
from qpidha.console.changes import CHANGES, LEFT_OUT, LEFT_OUT_PARAMS, check
from qpidha.console.connections import Connection
from qpidha.console.looks import MOST_CHANGES, NotAnswered, Watched
from qpidha.console.plans import ABOUT_BROKERS, ABOUT_OBJECTS, planned
from qpidha.console.problems import Problem
from qpidha.management.methods import METHODS, Effect
from qpidha.management.parameters import Type
from qpidha.model.errors import InvalidArgument, RefusedRequest
from tests.console.conftest import HEARTBEAT
from tests.console.consoles import PAGE, Answer, Console, member, status_of
from tests.patience import STATE
from tests.runtime.daemons import Running

MONITOR, OPERATOR, ADMINISTRATOR = (
    "monitor-0123456789",
    "operator-0123456789",
    "administrator-0123456789",
)
TOKENS = f"monitor {MONITOR}\noperator {OPERATOR} ann\nadministrator {ADMINISTRATOR} bob\n"
JSON = {"Content-Type": "application/json"}


class Guarded(NamedTuple):
    """A daemon, and a console that asks for tokens."""

    daemon: Running
    console: Console
    errors: Path

    def change(
        self, method: str, body: object = None, query: str = "", token: str = OPERATOR, **more: str
    ) -> Answer:
        """Ask for a change."""
        text = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        headers = {**JSON, "Authorization": f"Bearer {token}", **more}
        path = f"/api/v1/methods/{method}{query}"
        return self.console.ask(path, "POST", text, **headers)

    def result(self, method: str, body: object = None, **more: Any) -> Any:
        """Make a change that is granted."""
        answer = self.change(method, body, **more)
        assert answer.status == 200, answer
        return json.loads(answer.text)["result"]

    def plan(self, method: str, body: object = None, **more: Any) -> list[str]:
        """Ask what would be done."""
        answer = self.change(method, body, "?dry_run=true", **more)
        assert answer.status == 200, answer
        found = json.loads(answer.text)
        assert found["dry_run"] is True and "result" not in found
        lines: list[str] = found["plan"]
        return lines

    def queues(self) -> list[str]:
        path = "/api/v1/queues?limit=1000"
        answer = self.console.ask(path, Authorization=f"Bearer {MONITOR}")
        return [row["name"] for row in json.loads(answer.text)["items"]]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with tempfile.TemporaryDirectory(prefix="qpidha-") as name:
        place = Path(name)
        tokens = place / "tokens"
        tokens.write_text(TOKENS)
        tokens.chmod(0o600)
        with (
            open(place / "errors", "w") as errors,
            Running("--data-dir", place, *HEARTBEAT) as daemon,
            Console("--data-dir", place, "--token-file", tokens, errors=errors) as console,
        ):
            yield Guarded(daemon, console, place / "errors")


def problem(answer: Answer) -> dict[str, Any]:
    """Return what a problem says."""
    assert answer.headers["content-type"] == "application/problem+json", answer
    found: dict[str, Any] = json.loads(answer.text)
    assert found["status"] == answer.status and found["detail"]
    return found


# -- the table -------------------------------------------------------------------------------------


def test_every_change_is_here_or_left_out_with_the_parameters_of_the_broker() -> None:
    methods = {method.name: method for method in METHODS if method.effect is not Effect.READ}
    known = {change.method: change for change in CHANGES}
    assert known.keys() | LEFT_OUT.keys() == methods.keys() and not known.keys() & LEFT_OUT.keys()
    types = {Type.NAME: "string", Type.TEXT: "string", Type.FLAG: "boolean"}
    types |= {Type.NUMBER: "integer", Type.MAP: "object"}
    for name, change in known.items():
        method = methods[name]
        assert change.help == method.help
        is_change = method.effect is Effect.CHANGE
        assert change.scope.word == ("operator" if is_change else "administrator")
        told = [(each.name, each.type, each.is_required) for each in change.params]
        assert told == [
            (each.name, types[each.type], each.is_required)
            for each in method.parameters
            if (name, each.name) not in LEFT_OUT_PARAMS
        ]
    assert ABOUT_OBJECTS.keys() | ABOUT_BROKERS.keys() == known.keys()


def test_the_page_has_every_path(guarded: Guarded) -> None:
    answer = guarded.console.ask("/openapi.json", Authorization=f"Bearer {MONITOR}")
    paths = json.loads(answer.text)["paths"]
    told = set(re.findall(r"^\| `(/api/v1/[^`]+)`", PAGE.read_text(), re.MULTILINE))
    known = {path.replace("{name}", "NAME") for path in paths if path.startswith("/api/v1/")}
    assert told <= known
    untold = known - told
    assert {path for path in untold if not path.endswith("/NAME")} == {
        f"/api/v1/methods/{change.method}" for change in CHANGES
    }
    words = PAGE.read_text().partition("\n## Changes\n")[2]
    assert all(f"`{change.method}`" in words for change in CHANGES)
    assert all(f"`{method}`" in words for method in LEFT_OUT)


def test_the_description_says_what_is_answered(guarded: Guarded) -> None:
    bearer = {"Authorization": f"Bearer {ADMINISTRATOR}"}
    found = json.loads(guarded.console.ask("/openapi.json", **bearer).text)
    assert found["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    never = ("promote", "demote", "recover", "switchover")
    for path, operations in found["paths"].items():
        for method, about in operations.items():
            assert about["summary"] and "422" not in about["responses"]
            if path.endswith(never) or path == "/api/v1/events":
                continue
            where = path.replace("{name}", "none")
            for body, headers in (
                (None, {}),
                (None, {"Authorization": "Bearer x"}),
                (None, bearer),
                (b"{", {**bearer, **JSON}),
                (b'{"nonsense": 1}', {**bearer, **JSON}),
                (b"x", bearer),
                (None, {**bearer, "Host": "evil.example"}),
                (None, {**bearer, "Origin": "http://evil.example"}),
            ):
                asked = method.upper()
                answer = guarded.console.ask(where, asked, body, **headers)
                told = about["responses"].get(str(answer.status))
                assert told is not None, (asked, where, answer)
                kind = answer.headers["content-type"].partition(";")[0]
                assert kind in told["content"] or answer.status == 200, (asked, where, answer)
                nowhere = guarded.console.ask(f"{where}?broker=b9", asked, body, **headers)
                assert str(nowhere.status) in about["responses"] or path == "/metrics"
    declare = found["paths"]["/api/v1/methods/declare_queue"]["post"]
    schema = declare["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["name"] and schema["additionalProperties"] is False
    assert declare["security"] == [{"token": ["operator"]}]


# -- what they do ----------------------------------------------------------------------------------


def test_queues_come_and_go_and_a_plan_changes_nothing(guarded: Guarded) -> None:
    assert guarded.plan("declare_queue", {"name": "q é"}) == ["the queue q é would be created"]
    assert "q é" not in guarded.queues()
    assert guarded.result("declare_queue", {"name": "q é"})["created"] is True
    assert "is there" in guarded.plan("declare_queue", {"name": "q é"})[0]
    guarded.result("declare_queue", {"name": "other"})
    with Client(f"127.0.0.1:{guarded.daemon.port}") as client:
        sender = client.sender("q é")
        for _ in range(3):
            sender.send("x")
    move = {"name": "q é", "target": "other", "count": 1}
    assert guarded.plan("move_messages", move) == [
        "1 of 3 messages of the queue q é would be moved to the queue other, which has 0"
    ]
    assert guarded.result("move_messages", move)["left"] == 2
    assert guarded.plan("purge_queue", {"name": "q é"}) == [
        "2 of 2 messages of the queue q é would be removed"
    ]
    assert "looked at" in guarded.plan("requeue_messages", {"name": "other"})[0]
    assert guarded.result("requeue_messages", {"name": "other"})["unknown"] == 1
    assert guarded.result("purge_queue", {"name": "q é"}) == {"messages": 2}
    full = guarded.change("delete_queue", {"name": "other", "if_empty": True})
    planned_full = guarded.change("delete_queue", {"name": "other", "if_empty": True}, "?dry_run=1")
    assert full.status == planned_full.status == 409
    assert guarded.plan("delete_queue", {"name": "other"}) == [
        "the queue other would be deleted, with 1 messages, 0 consumers and 0 bindings"
    ]
    assert guarded.result("delete_queue", {"name": "other"}) == {"messages": 1}
    assert guarded.result("delete_queue", {"name": "q é"}) == {"messages": 0}
    gone = problem(guarded.change("purge_queue", {"name": "other"}))
    assert (gone["status"], gone["condition"]) == (404, "amqp:not-found")
    assert gone["event_code"].startswith("QHA") and gone["hint"]
    assert problem(guarded.change("purge_queue", {"name": "other"}, "?dry_run=1"))["status"] == 404


def test_exchanges_bindings_and_policies_come_and_go(guarded: Guarded) -> None:
    guarded.result("declare_queue", {"name": "bound"})
    assert "created" in guarded.plan("declare_exchange", {"name": "e"})[0]
    guarded.result("declare_exchange", {"name": "e", "type": "topic"})
    binding = {"exchange": "e", "queue": "bound", "key": "a.*"}
    assert guarded.change("unbind", binding, "?dry_run=1").status == 404
    assert guarded.plan("bind", binding)[0].endswith("with the key 'a.*' would be made")
    guarded.result("bind", binding)
    assert "is there" in guarded.plan("bind", binding)[0]
    assert guarded.change("bind", {"exchange": "e"}, "?dry_run=1").status == 400
    used = {"name": "e", "if_unused": True}
    assert guarded.change("delete_exchange", used).status == 409
    assert guarded.change("delete_exchange", used, "?dry_run=1").status == 409
    assert "would be removed" in guarded.plan("unbind", binding)[0]
    guarded.result("unbind", binding)
    assert "with 0 bindings" in guarded.plan("delete_exchange", {"name": "e"})[0]
    guarded.result("delete_exchange", {"name": "e"})
    policy = {"name": "p", "pattern": "^bound", "definition": {"max-length": 5}}
    for kind in ("policy", "operator_policy"):
        words = kind.replace("_", " ")
        assert guarded.plan(f"set_{kind}", policy) == [f"the {words} p would be set"]
        guarded.result(f"set_{kind}", policy)
        shown = "p (pattern ^bound, in effect on 1)"
        assert guarded.plan(f"set_{kind}", policy)[0].endswith(f"in place of {shown}")
        if kind == "policy":
            patch = {"name": "p", "definition": {"max-length": None, "message-ttl": 5}}
            assert guarded.plan("patch_policy", patch)[1:] == [
                "max-length would be taken away",
                "message-ttl would be 5",
            ]
            guarded.result("patch_policy", patch)
            assert "for 60 s" in guarded.plan("override_policy", {**patch, "seconds": 60})[0]
            guarded.result("override_policy", {**patch, "seconds": 60})
            guarded.result("clear_policy", {"name": "override.p"})
        assert "would be taken away" in guarded.plan(f"clear_{kind}", {"name": "p"})[0]
        guarded.result(f"clear_{kind}", {"name": "p"})
        assert guarded.change(f"clear_{kind}", {"name": "p"}, "?dry_run=1").status == 404
    guarded.result("delete_queue", {"name": "bound"})


def test_a_connection_is_closed_and_a_broker_commanded(guarded: Guarded) -> None:
    token = {"token": ADMINISTRATOR}
    with Client(f"127.0.0.1:{guarded.daemon.port}") as client:
        client.sender("amq.fanout")
        path = "/api/v1/connections"
        answer = guarded.console.ask(path, Authorization=f"Bearer {MONITOR}")
        (row,) = json.loads(answer.text)["items"]
        (line,) = guarded.plan("close_connection", {"id": row["id"]}, **token)
        assert line == (
            f"connection {row['id']} of {row['user'] or 'nobody'} at {row['peer']} would be closed"
        )
        guarded.result("close_connection", {"id": row["id"], "reason": "test"}, **token)
    gone = guarded.change("close_connection", {"id": row["id"]}, **token)
    assert gone.status == 404
    assert guarded.change("close_connection", {"id": 10**6}, "?dry_run=1", **token).status == 404
    assert "would read its users" in guarded.plan("reload", **token)[0]
    assert guarded.result("reload", **token) == {"warnings": []}
    # A broker alone has no role.
    assert guarded.change("switchover", **token).status == 409
    assert guarded.result("promote", **token)["state"] == "standalone"


class OfACluster:
    """A broker that says what a test says."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        found = self.answers[method]
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        """Nothing is open."""


def plan_of(method: str, params: dict[str, Any], **answers: Any) -> dict[str, Any]:
    (change,) = (change for change in CHANGES if change.method == method)
    return asyncio.run(planned(change, params, OfACluster(**answers).ask))


def test_a_switchover_is_planned_as_the_command_line_does() -> None:
    members = [member("1", "active"), member("2"), member("3", "catchup"), member("4")]
    in_sync = {"epoch": 1, "version": 1, "members": ["1", "2"]}
    status = status_of("active", members=members, in_sync=in_sync)
    found = plan_of("switchover", {}, status=status)
    assert found["plan"][0] == "plan: b1 (host1:5672) -> b2 (host2:5672)"
    assert "cluster manager" in found["plan"][1]
    assert (found["primary"], found["target"]) == ("host1:5672", "host2:5672")
    assert [row["reason"] for row in found["brokers"]] == [
        "is the primary",
        "",
        "is catchup",
        "is not in the newest in-sync set",
    ]
    status["local_journal"] = {"messages": 1, "queues": 1}
    found = plan_of("switchover", {}, status=status)
    assert found["plan"][1].startswith("stays behind: 1 message on 1 queue that are not replicated")
    assert plan_of("demote", {}, status={**status, "epoch": 1})["plan"][1] == found["plan"][1]
    with pytest.raises(RefusedRequest, match="b3 .* cannot take over: it is catchup"):
        plan_of("switchover", {"target": "host3:5672"}, status=status)
    with pytest.raises(RefusedRequest, match="no broker b9"):
        plan_of("switchover", {"target": "b9"}, status=status)


def test_what_a_promotion_would_lose_is_told() -> None:
    status = status_of("ready", address="host1:5672", primary={"address": "host2:5672"})
    losses = [{"address": "host1:5672", "text": "3 messages"}]
    found = {"recommended": "host2:5672", "reason": "it has most", "losses": losses}
    told = plan_of("promote", {}, status=status, recover=found)
    assert told["plan"][1:3] == [
        "recommended: host2:5672: it has most",
        "would be lost: 3 messages",
    ]
    best = plan_of("promote", {}, status=status, recover={"recommended": "host1:5672"})
    assert "nothing durable" in best["plan"][1]
    active = status_of("active", epoch=3)
    assert "nothing would be changed" in plan_of("promote", {}, status=active)["plan"][0]
    assert "step down from epoch 3" in plan_of("demote", {}, status=active)["plan"][0]
    assert "nothing is changed" in plan_of("demote", {}, status=status)["plan"][0]
    assert "nothing would be changed" in plan_of("recover", {}, status=status)["plan"][0]
    with pytest.raises(RefusedRequest, match="changes nothing itself"):
        plan_of("purge_queue", {"name": "q"}, status=status)


# -- who may ---------------------------------------------------------------------------------------


def test_a_token_covers_its_scope_and_those_below(guarded: Guarded) -> None:
    declare = ("declare_queue", {"name": "scopes"})
    for token in (OPERATOR, ADMINISTRATOR):
        guarded.result(*declare, token=token)
    refused = guarded.change(*declare, token=MONITOR)
    assert "needs the scope operator" in problem(refused)["detail"] and refused.status == 403
    assert problem(refused)["event_code"] == "QHA4102"
    assert 'error="insufficient_scope", scope="operator"' in refused.headers["www-authenticate"]
    assert "administrator" in problem(guarded.change("reload"))["detail"]
    assert guarded.change(*declare, query="?dry_run=1", token=MONITOR).status == 403
    for wrong in ("x" * 20, "", f"{OPERATOR}x"):
        denied = guarded.change(*declare, token=wrong)
        assert denied.status == 401 and problem(denied)["event_code"] == "QHA4102"
        assert denied.headers["www-authenticate"].startswith('Bearer realm="qpidha-console"')
    path = "/api/v1/methods/declare_queue"
    assert guarded.console.ask(path, "POST", b"{}", **JSON).status == 401
    guarded.result("delete_queue", {"name": "scopes"})


def test_without_a_token_file_nothing_can_be_changed_on_the_loopback_either(pair: Any) -> None:
    for change in CHANGES:
        path = f"/api/v1/methods/{change.method}"
        for headers in (JSON, {**JSON, "Authorization": f"Bearer {ADMINISTRATOR}"}):
            answer = pair.console.ask(path, "POST", b"{}", **headers)
            assert answer.status == 401 and "--token-file" in problem(answer)["hint"]
    for method in ("PUT", "DELETE", "PATCH", "POST", "OPTIONS"):
        answer = pair.console.ask("/api/v1/queues/q", method)
        assert answer.status == 405 and not any("access-control" in name for name in answer.headers)


def test_pages_of_other_sites_may_not_ask(guarded: Guarded) -> None:
    port = guarded.console.port
    declare = ("declare_queue", {"name": "origin"})
    for origin in ("http://evil.example", "null", f"http://localhost:{port}", "http://127.0.0.1"):
        answer = guarded.change(*declare, Origin=origin)
        assert answer.status == 403 and "may not ask here" in problem(answer)["detail"]
        headers = {"Authorization": f"Bearer {MONITOR}", "Origin": origin}
        assert guarded.console.ask("/api/v1/events", **headers).status == 403
    assert "origin" not in guarded.queues()
    own = guarded.change(*declare, Origin=f"http://127.0.0.1:{port}")
    assert own.status == 200 and not any("access-control" in name for name in own.headers)
    guarded.result("delete_queue", {"name": "origin"})
    assert guarded.change(*declare, Host="evil.example").status == 421


def test_the_console_logs_who_changed_what(guarded: Guarded) -> None:
    guarded.result("declare_queue", {"name": "logged é"})
    guarded.change("declare_queue", {"name": "logged\n\x1b[31m"})
    guarded.result("delete_queue", {"name": "logged é"}, token=ADMINISTRATOR)
    guarded.plan("declare_queue", {"name": "planned only"})
    text = guarded.errors.read_text()
    lines = [line for line in text.splitlines() if "logged" in line]
    assert len(lines) == 3 and "planned only" not in text
    assert "ann (operator) at 127.0.0.1 asked" in lines[0] and ": done, " in lines[0]
    assert 'declare_queue {"name": "logged \\u00e9"}' in lines[0]
    assert "refused: " in lines[1] and "\x1b" not in text
    assert "bob (administrator)" in lines[2]
    assert not any(token in text for token in (MONITOR, OPERATOR, ADMINISTRATOR))


# -- what is not known -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "is_open"), [(LinkAbsent("nobody"), False), (LinkBroken("it hung up"), True)]
)
def test_a_change_that_is_not_answered_may_have_been_made(error: Exception, is_open: bool) -> None:
    watched = Watched("b1", OfACluster(purge_queue=error))
    with pytest.raises(NotAnswered) as caught:
        asyncio.run(watched.change("purge_queue", {}))
    assert caught.value.is_open is is_open


def test_changes_are_made_once_for_each_call_and_bounded() -> None:
    async def play() -> None:
        calls: list[str] = []
        may_end = asyncio.Event()

        class Link(OfACluster):
            async def ask(self, method: str, params: dict[str, Any]) -> Any:
                calls.append(method)
                await may_end.wait()
                return {}

        watched = Watched("b1", Link())
        asked = [asyncio.create_task(watched.change("reload", {})) for _ in range(MOST_CHANGES)]
        await asyncio.sleep(0)
        with pytest.raises(NotAnswered, match="changes to make first"):
            await watched.change("reload", {})
        with pytest.raises(NotAnswered) as late:
            await Watched("b1", Link()).change("reload", {}, patience=0.01)
        assert late.value.is_open
        may_end.set()
        await asyncio.gather(*asked)
        assert len(calls) == MOST_CHANGES + 1
        assert await watched.change("reload", {}) == {}

    asyncio.run(play())


# -- attacks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"nam": "q"}, "unknown parameter nam"),
        ({"x" * 999: 1}, "unknown parameter x"),
        ({}, "parameter name is missing"),
        ({"name": ""}, "parameter name is missing"),
        ({"name": None}, "is null, and is to be a string"),
        ({"name": 1}, "is an integer, and is to be a string"),
        ({"name": ["q"]}, "is an array"),
        ({"name": "\ud800"}, "half of a character"),
        ({"name": "q", "durable": 1}, "is to be a boolean"),
        ({"name": "q", "durable": "true"}, "is to be a boolean"),
        ({"name": "q", "arguments": []}, "is to be an object"),
        ({"name": "q", "arguments": {"a": 2**64}}, "64 bits"),
        ({"name": "q", "arguments": {"a": [float("inf")]}}, "no finite number"),
        ({"name": "q", "arguments": {"\udfff": 1}}, "half of a character"),
    ],
)
def test_parameters_of_other_kinds_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check(CHANGES[0], given)
    assert why in caught.value.text and caught.value.hint and len(caught.value.text) < 200
    deep: Any = 1
    for _ in range(20):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="levels deep"):
        check(CHANGES[0], {"name": "q", "arguments": {"a": deep}})


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"[1]", 400, "not an object"),
        (b"nonsense", 400, "not JSON"),
        (b'{"name": "a", "name": "b"}', 400, "twice"),
        (b'{"name": NaN}', 400, "NaN is no number"),
        (b'{"name": "q", "arguments": {"a": 1e999}}', 400, "no finite number"),
        (b'{"name": "q", "arguments": {"a": ' + b"9" * 5000 + b"}}", 400, "not JSON"),
        (b'{"name": "\xff"}', 400, "not JSON"),
        (b"\xef\xbb\xbf{}", 400, "not JSON"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b'{"name": "' + b"x" * (256 << 10) + b'"}', 413, "more than"),
        (b'{"name": "' + b"x" * 300 + b'"}', 400, "name"),
    ],
)
def test_bodies_that_are_wrong_are_refused(
    guarded: Guarded, body: bytes, status: int, why: str
) -> None:
    answer = guarded.change("purge_queue", body)
    if status == 400 and b"arguments" in body:
        answer = guarded.change("declare_queue", body)
    assert answer.status == status and why in problem(answer)["detail"], answer


def test_a_body_of_another_type_is_refused(guarded: Guarded) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = guarded.change("purge_queue", {"name": "q"}, **{"Content-Type": kind})
        assert answer.status == 415 and problem(answer)["hint"], kind
    kind = 'application/json; charset="utf-8"'
    assert guarded.change("purge_queue", {"name": "q"}, **{"Content-Type": kind}).status == 404
    assert guarded.change("purge_queue", {"name": "q"}, "?dry_run=perhaps").status == 400


def raw(port: int, text: bytes) -> bytes:
    """Send bytes, and return all that is answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=STATE) as connection:
        connection.sendall(text)
        found = b""
        while piece := connection.recv(1 << 16):
            found += piece
        return found


HEAD = b"POST /api/v1/methods/purge_queue HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
BEARER = f"Authorization: Bearer {OPERATOR}\r\n".encode()


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (HEAD + BEARER + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + BEARER + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
        (HEAD + BEARER + b"Content-Length: 2, 3\r\n\r\n{}", 400),
        (HEAD + BEARER + b"Content-Length: +2\r\n\r\n{}", 400),
        (HEAD + BEARER + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + BEARER + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (HEAD + b"Host: evil.example\r\n" + BEARER + b"\r\n", 400),
        (HEAD + BEARER + BEARER + b"Content-Length: 2\r\n\r\n{}", 400),
        (HEAD + b"Origin: http://localhost\r\nOrigin: http://evil\r\n" + BEARER + b"\r\n", 400),
        (HEAD + b"Authorization: Bearer \xff\x80\r\n\r\n", 401),
        (HEAD + b"Authorization: Bearer \x00\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
        (b"GET http://evil.example/healthz HTTP/1.0\r\n\r\n", 401),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ],
)
def test_requests_that_can_be_read_in_two_ways_are_refused(
    guarded: Guarded, text: bytes, status: int
) -> None:
    answer = raw(guarded.console.port, text)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert answer.count(b"HTTP/1.1 ") == 1 and b"application/problem+json" in answer


def test_headers_without_an_end_are_not_read_to_it(guarded: Guarded) -> None:
    try:
        answer = raw(guarded.console.port, HEAD + b"X: " + b"x" * 5_000_000)
    except ConnectionError:
        return  # it hung up before all was sent
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_what_no_browser_would_send_does_not_become_an_answer_of_another(guarded: Guarded) -> None:
    hidden = b"GET /api/v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"
    chunk = f"{len(hidden):x}\r\n".encode() + hidden + b"\r\n0\r\n\r\n"
    text = HEAD + BEARER + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = raw(guarded.console.port, text + chunk)
    assert answer.count(b"HTTP/1.1 ") == 1 and b"not JSON" in answer


class Pipe:
    """A transport that is only looked at."""

    def __init__(self, app: Any, left: int = 0, speed: int = 0) -> None:
        """`left` is what the client has not read, `speed` how much it reads between two looks."""
        self.written = b""
        self.left = left
        self.speed = speed
        self.looks = 0
        self.is_closed = self.is_aborted = False
        config = uvicorn.Config(app, log_level="critical", ws="none", http=Connection)
        config.load()
        self.client = Connection(config, ServerState(), {})
        self.client.connection_made(self)

    def get_extra_info(self, name: str) -> Any:
        return None

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        self.left = max(0, self.left - self.speed)
        return self.left

    def write(self, data: bytes) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True
        self.client.connection_lost(ConnectionAbortedError())

    def close(self) -> None:
        self.is_closed = True  # Waits for a client that reads what is left.

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


def test_slow_clients_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ASKING", 0.02)
    monkeypatch.setattr(connections, "STUCK", 0.02)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.1)  # longer than a client may take
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late", "more_body": True})
        await send({"type": "http.response.body", "body": b"later"})

    async def ended(pipe: Pipe) -> None:
        while not pipe.is_aborted:
            await asyncio.sleep(0.001)

    async def play() -> None:
        half = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"
        for begun in (b"G", b"GET / HTTP/1.1\r\nHo", half):
            pipe = Pipe(app)
            pipe.client.data_received(begun)
            await asyncio.wait_for(ended(pipe), STATE)
        # One whose request is whole waits for its answer for as long as that takes.
        pipe = Pipe(app)
        pipe.client.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        while b"late" not in pipe.written:
            assert not pipe.is_aborted
            await asyncio.sleep(0.001)
        pipe.client.pause_writing()
        pipe.client.resume_writing()
        await asyncio.wait_for(ended(pipe), STATE)  # the next request does not come
        pipe = Pipe(app)
        pipe.client.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        pipe.client.pause_writing()
        await asyncio.wait_for(ended(pipe), STATE)
        assert b"late" not in pipe.written

    asyncio.run(play())


def test_who_reads_slowly_has_time_and_who_reads_nothing_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "STUCK", 0.02)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"long"})

    async def play(ends: bytes, speed: int) -> int:
        pipe = Pipe(app, 10 * connections.SLOWEST, speed)
        pipe.client.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n" + ends + b"\r\n")
        pipe.client.pause_writing()
        while not pipe.is_aborted:
            await asyncio.sleep(0.001)
        return pipe.looks

    # Also one that is to be closed when all is sent: without a bound it was there for ever.
    for ends in (b"", b"Connection: close\r\n"):
        assert asyncio.run(asyncio.wait_for(play(ends, 0), STATE)) < 5
        assert asyncio.run(asyncio.wait_for(play(ends, connections.SLOWEST), STATE)) > 9


def test_of_too_many_connections_the_one_goes_that_says_nothing_for_longest(
    guarded: Guarded,
) -> None:
    port = guarded.console.port
    held = [
        socket.create_connection(("127.0.0.1", port), timeout=STATE)
        for _ in range(connections.MOST + 20)
    ]
    headers = {"Authorization": f"Bearer {MONITOR}"}
    for _ in range(3):
        assert guarded.console.ask("/healthz", **headers).status == 200
    for each in held[:20]:
        try:
            assert each.recv(1) == b""
        except ConnectionResetError:
            pass
    for each in held:
        each.close()


def test_a_cookie_changes_something_for_pages_of_this_console_only(guarded: Guarded) -> None:
    path, body = "/api/v1/methods/declare_queue", b'{"name": "cookie"}'
    cookie = {**JSON, "Cookie": f"qpidha-console={OPERATOR}"}
    for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        refused = guarded.console.ask(path, "POST", body, **cookie, **origin)
        assert refused.status == 403 and problem(refused)
    assert "cookie" not in guarded.queues()
    own = {"Origin": f"http://127.0.0.1:{guarded.console.port}"}
    assert guarded.console.ask(path, "POST", body, **cookie, **own).status == 200
    assert guarded.result("delete_queue", {"name": "cookie"}) == {"messages": 0}


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "PATIENCE", 0.01)

    async def play() -> None:
        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError("nothing comes")

        about = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
        with pytest.raises(Problem) as caught:
            await changing._params(Request(about, receive))
        assert caught.value.status == 408

    asyncio.run(play())


def test_changes_are_made_over_amqp_too(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    tokens.chmod(0o600)
    with Running() as daemon:
        place = f"127.0.0.1:{daemon.port}"
        with Console("--brokers", place, "--token-file", tokens) as console:
            guarded = Guarded(daemon, console, tmp_path)
            assert "created" in guarded.plan("declare_queue", {"name": "over AMQP"})[0]
            assert guarded.result("declare_queue", {"name": "over AMQP"})["created"] is True
            assert guarded.queues() == ["over AMQP"]
            # The broker decides whom it believes to be an administrator.
            refused = problem(guarded.change("reload", token=ADMINISTRATOR))
            assert (refused["status"], refused["event_code"]) == (403, "QHA4102")
            daemon.process.kill()
            daemon.process.wait()
            gone = problem(guarded.change("purge_queue", {"name": "over AMQP"}))
            assert gone["status"] == 503 and "may or may not" not in gone["detail"]
