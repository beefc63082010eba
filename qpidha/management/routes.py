"""Routes: what each method and path of `/management` does.

A path is percent-encoded, each part by itself, so a queue may be called `a/b`. Bodies are maps as in
RabbitMQ 4; what it does by one call and we by another is translated here, and statuses are chosen here.
Knows no links and no messages.
Source: RabbitMQ deps/rabbit/src/rabbit_amqp_management.erl.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from qpidha.management.parameters import Parameters
from qpidha.management.percent import decode_part, decode_query
from qpidha.management.schema import EXCHANGE, QUEUE, BindingView, binding_of, bindings_of, describe, plain
from qpidha.words.encoding import Array, UInt, ULong
from qpidha.words.errors import InvalidArgument, NotAllowed, NotFound, NotImplementedHere, QpidHaError, RefusedRequest

if TYPE_CHECKING:
    from qpidha.broker.queue import Queue
    from qpidha.management.requests import Requests
    from qpidha.management.target import Reply, Target

Respond = Callable[[int, Any], None]
Success = Callable[[Any], tuple[int, Any]]
"""From the result of a request to the status and body that tell it."""
STRING_ARRAY = 0xA1
STATUS_OF = {
    "amqp:invalid-field": 400,
    "amqp:unauthorized-access": 403,
    "amqp:not-allowed": 403,
    "amqp:resource-limit-exceeded": 403,
    "amqp:not-found": 404,
    "amqp:precondition-failed": 409,
    "amqp:resource-locked": 409,
    "amqp:resource-deleted": 404,
    "amqp:not-implemented": 501,
    "amqp:connection:forced": 503,
}
"""AMQP error condition -> HTTP status; any other is 500."""
BINDING_PATH = re.compile(r"src=([^;]+);dst([eq])=([^;]+);key=([^;]*);args=([0-9A-Za-z_-]*)")


class Routes:
    """Serves the paths of one broker."""

    __slots__ = ("_requests", "_routes", "_target")

    def __init__(self, requests: Requests, target: Target) -> None:
        self._requests = requests
        self._target = target
        self._routes: dict[tuple[str, str, int], Callable[[_Call], None]] = {
            ("GET", "queues", 1): self._get_queues,
            ("GET", "queues", 2): self._get_queue,
            ("PUT", "queues", 2): self._put_queue,
            ("DELETE", "queues", 2): self._delete_queue,
            ("DELETE", "queues", 3): self._purge_queue,
            ("GET", "exchanges", 1): self._get_exchanges,
            ("GET", "exchanges", 2): self._get_exchange,
            ("PUT", "exchanges", 2): self._put_exchange,
            ("DELETE", "exchanges", 2): self._delete_exchange,
            ("GET", "bindings", 1): self._get_bindings,
            ("POST", "bindings", 1): self._post_binding,
            ("DELETE", "bindings", 2): self._delete_binding,
            ("GET", "connections", 1): self._get_connections,
            ("GET", "ha", 2): self._get_ha,
        }

    def serve(self, method: str, path: str, body: Any, *, owner: object, answer: Respond) -> None:
        """Do what `method` on `path` asks and answer exactly once, now or when it is safe."""
        try:
            parts, query = _split(path)
            route = self._routes.get((method, parts[0], len(parts)))
            if route is None or parts[2:] not in ([], ["messages"]):
                raise self._no_route(method, path, parts)
            route(_Call(method, parts, query, body, owner, answer))
        except QpidHaError as error:
            if error.scope == "broker":
                raise
            answer(*self._failure(error))

    def _do(self, call: _Call, method: str, params: dict[str, Any], success: Success) -> None:
        """Pass a request on and translate its answer."""

        def reply(reply: Reply) -> None:
            call.answer(*(success(reply.result) if reply.error is None else self._failure(reply.error)))

        self._requests.call(method, params, reply, owner=call.owner)

    # Queues.

    def _get_queues(self, call: _Call) -> None:
        call.answer(200, [self._queue_map(queue) for queue in list(self._target.broker.queues.values())])

    def _get_queue(self, call: _Call) -> None:
        call.answer(200, self._queue_map(self._queue(call.parts[1])))

    def _put_queue(self, call: _Call) -> None:
        given = Parameters("queue", call.map_body())
        name = call.parts[1]
        arguments = given.table("arguments")
        params = {
            "name": name,
            "durable": given.flag("durable", True),
            "exclusive": given.flag("exclusive"),
            "auto_delete": given.flag("auto_delete"),
            "alternate": _text(arguments.pop("alternate-exchange", "")),
            "arguments": arguments,
        }
        given.finish()

        def declared(result: Any) -> tuple[int, Any]:
            # Somebody may have deleted it again while the declaration was becoming safe.
            queue = self._target.broker.queues.get(name)
            return (201 if result["created"] else 200), {} if queue is None else self._queue_map(queue)

        self._do(call, "declare_queue", params, declared)

    def _delete_queue(self, call: _Call) -> None:
        if call.parts[1] in self._target.broker.queues or not self._target.serving:
            self._do(call, "delete_queue", {"name": call.parts[1]}, _message_count)
        else:
            # Deleting twice is no error for RabbitMQ's clients.
            call.answer(200, {"message_count": ULong(0)})

    def _purge_queue(self, call: _Call) -> None:
        self._do(call, "purge_queue", {"name": call.parts[1]}, _message_count)

    # Exchanges.

    def _get_exchanges(self, call: _Call) -> None:
        self._do(call, "list_exchanges", {}, lambda result: (200, result))

    def _get_exchange(self, call: _Call) -> None:
        call.answer(200, describe(EXCHANGE, self._target.broker.exchange(call.parts[1]), self._target))

    def _put_exchange(self, call: _Call) -> None:
        _refuse_default(call.parts[1])
        given = Parameters("exchange", call.map_body())
        arguments = given.table("arguments")
        params = {
            "name": call.parts[1],
            "type": given.text("type", "direct"),
            "durable": given.flag("durable", True),
            "auto_delete": given.flag("auto_delete"),
            "alternate": _text(arguments.pop("alternate-exchange", "")),
            "arguments": arguments,
        }
        if given.flag("internal"):
            raise NotImplementedHere("internal exchanges are not offered", hint="leave internal out or set it to false")
        given.finish()
        self._do(call, "declare_exchange", params, _nothing)

    def _delete_exchange(self, call: _Call) -> None:
        _refuse_default(call.parts[1])
        if call.parts[1] in self._target.broker.exchanges or not self._target.serving:
            self._do(call, "delete_exchange", {"name": call.parts[1]}, _nothing)
        else:
            call.answer(204, None)

    # Bindings.

    def _get_bindings(self, call: _Call) -> None:
        source, queue, key = call.query.get("src"), call.query.get("dstq"), call.query.get("key")
        if "dste" in call.query:
            raise _no_exchange_bindings()
        found = []
        for binding in bindings_of(self._target.broker):
            if source in (None, binding.exchange) and queue in (None, binding.queue) and key in (None, binding.key):
                found.append(_binding_map(binding))
        call.answer(200, found)

    def _post_binding(self, call: _Call) -> None:
        given = Parameters("binding", call.map_body())
        if given.text("destination_exchange"):
            raise _no_exchange_bindings()
        source = given.text("source")
        _refuse_default(source)
        params = {
            "exchange": source,
            "queue": given.text("destination_queue"),
            "key": given.text("binding_key"),
            "arguments": given.table("arguments"),
        }
        given.finish()
        self._do(call, "bind", params, _nothing)

    def _delete_binding(self, call: _Call) -> None:
        match = BINDING_PATH.fullmatch(call.raw_part)
        if match is None:
            hint = "use /bindings/src=EXCHANGE;dstq=QUEUE;key=KEY;args=HASH, each part percent-encoded, or the location that GET gave"
            raise InvalidArgument(f"{call.raw_part!r} does not name a binding", hint=hint)
        source, kind, queue, key, arguments = match.groups()
        if kind == "e":
            raise _no_exchange_bindings()
        source, queue, key = decode_part(source), decode_part(queue), decode_part(key)
        _refuse_default(source)
        binding = binding_of(self._target.broker, source, queue, key)
        if self._target.serving and (binding is None or arguments_hash(binding.arguments) != arguments):
            call.answer(204, None)
            return
        self._do(call, "unbind", {"exchange": source, "queue": queue, "key": key}, _nothing)

    # The broker.

    def _get_connections(self, call: _Call) -> None:
        self._do(call, "list_connections", {}, lambda result: (200, result))

    def _get_ha(self, call: _Call) -> None:
        if call.parts[1] not in ("status", "members", "explain"):
            raise NotFound(f"there is no /ha/{call.parts[1]}", hint="there are /ha/status, /ha/members and /ha/explain")
        self._do(call, call.parts[1], {}, lambda result: (200, plain(result)))

    def _queue(self, name: str) -> Queue:
        return self._target.broker.queue(name)

    def _queue_map(self, queue: Queue) -> dict[str, Any]:
        """Show a queue under RabbitMQ's names, and after them what it has no name for."""
        shown = describe(QUEUE, queue, self._target)
        status = self._target.status()
        primary = status.get("primary") or {}
        replicated = shown["replicate"] == "all"
        leader = str(primary.get("address") or status.get("address", ""))
        members = [str(member.get("address", "")) for member in status.get("members", ())]
        return {
            "message_count": ULong(shown.pop("messages")),
            "consumer_count": UInt(shown.pop("consumers")),
            "vhost": "/",
            # RabbitMQ's clients know a fixed list of types; a replicated FIFO is what they call a quorum queue.
            "type": "quorum" if replicated else "classic",
            "leader": leader,
            "replicas": Array(STRING_ARRAY, members if replicated and members else [leader]),
            **shown,
        }

    def _no_route(self, method: str, path: str, parts: list[str]) -> QpidHaError:
        offered = ", ".join(route[0] for route in self._routes if route[1:] == (parts[0], len(parts)))
        if offered and parts[2:] in ([], ["messages"]):
            return _MethodNotOffered(f"{method or 'a request without subject'} is not offered on {path}", hint=f"offered: {offered}")
        return NotFound(f"there is nothing at {path!r}", hint="there are /queues, /exchanges, /bindings, /connections, /ha/status")

    def _failure(self, error: QpidHaError) -> tuple[int, str]:
        status = 405 if isinstance(error, _MethodNotOffered) else STATUS_OF.get(error.condition, 500)
        if isinstance(error, NotAllowed) and not self._target.serving:
            status = 503
        return status, f"{error.text}; {error.hint}" if error.hint else error.text


class _MethodNotOffered(RefusedRequest):
    """The path exists, but not for this method."""


class _Call:
    """One request, taken apart."""

    __slots__ = ("_body", "answer", "method", "owner", "parts", "query", "raw_part")

    def __init__(self, method: str, parts: list[str], query: dict[str, str], body: Any, owner: object, answer: Respond) -> None:
        self.method = method
        self.raw_part = parts[1] if len(parts) > 1 else ""
        self.parts = parts if parts[0] == "bindings" else [decode_part(part) for part in parts]
        self.query = query
        self.owner = owner
        self.answer = answer
        self._body = body

    def map_body(self) -> dict[Any, Any]:
        """Give the body, which has to be a map."""
        if not isinstance(self._body, dict):
            hint = "send an amqp-value section with a map, which may be empty"
            raise InvalidArgument(f"the body of {self.method} is not a map", hint=hint)
        return self._body


def arguments_hash(arguments: dict[str, Any]) -> str:
    """Give binding arguments a short name for use in a path; empty for none."""
    if not arguments:
        return ""
    text = json.dumps(plain(arguments), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _split(path: str) -> tuple[list[str], dict[str, str]]:
    head, _, query = path.partition("?")
    if not head.startswith("/") or head == "/":
        raise InvalidArgument(f"the path {path!r} is not absolute", hint="set the property to, such as /queues/name")
    parts = head[1:].split("/")
    if not all(parts):
        raise InvalidArgument(f"the path {path!r} has an empty part", hint="percent-encode a slash inside a name as %2F")
    return parts, decode_query(query)


def _binding_map(binding: BindingView) -> dict[str, Any]:
    source, queue, key = (quote(part, safe="") for part in (binding.exchange, binding.queue, binding.key))
    return {
        "source": binding.exchange,
        "destination_queue": binding.queue,
        "binding_key": binding.key,
        "arguments": binding.arguments,
        "location": f"/bindings/src={source};dstq={queue};key={key};args={arguments_hash(binding.arguments)}",
    }


def _message_count(result: Any) -> tuple[int, Any]:
    return 200, {"message_count": ULong(result["messages"])}


def _nothing(result: Any) -> tuple[int, Any]:
    return 204, None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidArgument("alternate-exchange is not a string", hint="give the name of an exchange")
    return value


def _refuse_default(exchange: str) -> None:
    if exchange in ("", "amq.default"):
        raise RefusedRequest("the default exchange cannot be changed", hint="every queue is bound to it by its name; use another exchange")


def _no_exchange_bindings() -> QpidHaError:
    return NotImplementedHere("bindings from exchange to exchange are not offered", hint="bind a queue: destination_queue or dstq")
