"""Routes: which method an HTTP verb and a path mean, in RabbitMQ 4's words.

The paths are those of the table of methods (`methods.py`); bodies are maps as in RabbitMQ 4. Where
RabbitMQ's request or answer differs from ours, a translation stands here. Knows no links and no
messages. Source: RabbitMQ deps/rabbit/src/rabbit_amqp_management.erl.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from qpidha.broker.queues.lifetime import LIFETIME_POLICY, Lifetime
from qpidha.management.methods import METHODS
from qpidha.management.parameters import Parameter, Type, read
from qpidha.management.port import Reply
from qpidha.management.schema import QUEUE, BindingView, binding_of, describe, plain
from qpidha.management.status_codes import (
    CREATED,
    METHOD_NOT_ALLOWED,
    NO_CONTENT,
    OK,
    status_of,
    told,
)
from qpidha.model.encoding import Array, UInt, ULong
from qpidha.model.errors import (
    InvalidArgument,
    InvariantBroken,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    QpidHaError,
    RefusedRequest,
)
from qpidha.model.percent import decode_part, decode_query

if TYPE_CHECKING:
    from qpidha.management.port import ConnectionView, ManagedNode
    from qpidha.management.requests import Requests

Respond = Callable[[int, Any, "QpidHaError | None"], None]
"""Takes the status, the body and, if it failed, the error."""
Success = Callable[[Any], "tuple[int, Any] | QpidHaError"]
"""From the result of a request to its status and body, or to the error that RabbitMQ answers."""
SHOWN = 200
"""So much of a path, or of a part of it, is repeated to who asks for it."""
STRING_ARRAY = 0xA1
BINDING_PATH = re.compile(r"src=([^;]+);dst([eq])=([^;]+);key=([^;]*);args=([0-9A-Za-z_-]*)")
BINDING_QUERY = ("src", "dstq", "dste", "key")
ROUTES = {tuple(route.split(" ", 1)): method.name for method in METHODS for route in method.routes}
"""(verb, path) -> method; a part of a path in braces stands for any text."""
_ARGUMENTS = Parameter("arguments", Type.MAP, "options")
_DURABLE = Parameter("durable", Type.FLAG, "keep it on disk", default=True)
_AUTO_DELETE = Parameter("auto_delete", Type.FLAG, "delete it when it is used no more")
QUEUE_BODY = (
    _DURABLE,
    Parameter("exclusive", Type.FLAG, "for this connection only"),
    _AUTO_DELETE,
    _ARGUMENTS,
)
EXCHANGE_BODY = (
    Parameter("type", Type.TEXT, "type of the exchange", default="direct"),
    _DURABLE,
    _AUTO_DELETE,
    Parameter("internal", Type.FLAG, "not offered"),
    _ARGUMENTS,
)
BINDING_BODY = (
    Parameter("source", Type.TEXT, "exchange"),
    Parameter("destination_queue", Type.TEXT, "queue"),
    Parameter("destination_exchange", Type.TEXT, "another exchange"),
    Parameter("binding_key", Type.TEXT, "key"),
    _ARGUMENTS,
)
"""What RabbitMQ's clients send; its defaults differ from those of the methods."""
APPLY_TO = "apply-to"
"""What RabbitMQ calls `apply_to` of a policy."""


class Routes:
    """Serves the paths of one broker."""

    __slots__ = ("_node", "_requests", "_translations")

    def __init__(self, requests: Requests, node: ManagedNode) -> None:
        self._requests = requests
        self._node = node
        self._translations: dict[str, Callable[[_Call], None]] = {
            "list_queues": self._list_queues,
            "list_exchanges": self._list_exchanges,
            "list_bindings": self._list_bindings,
            "declare_queue": self._declare_queue,
            "delete_queue": self._delete_queue,
            "purge_queue": lambda call: self._do(call, {"name": call.name}, _message_count),
            "declare_exchange": self._declare_exchange,
            "delete_exchange": self._delete_exchange,
            "bind": self._bind,
            "unbind": self._unbind,
            "list_policies": lambda call: self._list(call, "policy", "/policies", plain),
            "list_operator_policies": lambda call: self._list(
                call, "operator policy", "/operator-policies", plain
            ),
            "set_policy": self._set_policy,
            "clear_policy": self._clear_policy,
            "set_operator_policy": self._set_policy,
            "clear_operator_policy": self._clear_policy,
        }
        """Methods whose request or answer RabbitMQ words otherwise."""

    def serve(
        self, verb: str, path: str, body: Any, *, connection: ConnectionView, answer: Respond
    ) -> None:
        """Do what `verb` on `path` asks and answer exactly once, now or when it is committed."""
        try:
            parts, query = _split(path)
            method = _route(verb, path, parts)
            _check_query(method, query)
            call = _Call(method, verb, parts, query, body, connection, answer)
            translation = self._translations.get(method)
            if translation is not None:
                translation(call)
            else:
                self._do(call, {}, lambda result: (OK, plain(result)))
        except InvariantBroken:
            raise
        except QpidHaError as error:
            answer(_status(error, connection), told(error), error)

    def _do(
        self, call: _Call, params: dict[str, Any], success: Success, absent: Any = None
    ) -> None:
        """Call the method and translate its answer: to that for the result `absent`, if there is
        one, where there is nothing to delete, which for RabbitMQ's clients is no error.
        """

        def reply(reply: Reply) -> None:
            if absent is not None and isinstance(reply.error, NotFound):
                reply = Reply(absent)
            found = success(reply.result) if reply.error is None else reply.error
            if isinstance(found, QpidHaError):
                call.answer(_status(found, call.connection), told(found), found)
            else:
                call.answer(*found, None)

        self._requests.call(
            call.method, params, reply, principal=call.connection.principal, owner=call.connection
        )

    # Queues.

    def _list_queues(self, call: _Call) -> None:
        status = self._node.status()
        self._list(call, "queue", "/queues", lambda row: _queue_map(row, status))

    def _declare_queue(self, call: _Call) -> None:
        given, name = read("queue", QUEUE_BODY, call.map_body()), call.name
        if given["exclusive"]:
            # RabbitMQ's are of one connection and of one broker, and of no disk.
            given["durable"] = False
            if not given["auto_delete"] and "lifetime-policy" not in given["arguments"]:
                given["arguments"] = {
                    LIFETIME_POLICY: Lifetime.ON_CLOSE.value,
                    **given["arguments"],
                }

        def declared(result: Any) -> tuple[int, Any]:
            # Somebody may have deleted it again while the declaration was being committed.
            queue = self._node.broker.queues.get(name)
            shown = (
                {}
                if queue is None
                else _queue_map(describe(QUEUE, queue, self._node), self._node.status())
            )
            return (CREATED if result["created"] else OK), shown

        self._do(call, {**given, "name": name}, declared)

    def _delete_queue(self, call: _Call) -> None:
        self._do(call, {"name": call.name}, _message_count, absent={"messages": 0})

    # Exchanges.

    def _list_exchanges(self, call: _Call) -> None:
        self._list(call, "exchange", "/exchanges", lambda row: row)

    def _declare_exchange(self, call: _Call) -> None:
        _refuse_default(call.name)
        given = read("exchange", EXCHANGE_BODY, call.map_body())
        if given.pop("internal"):
            raise NotImplementedHere(
                "internal exchanges are not offered", hint="leave internal out or set it to false"
            )
        self._do(call, {**given, "name": call.name}, _nothing)

    def _delete_exchange(self, call: _Call) -> None:
        _refuse_default(call.name)
        self._do(call, {"name": call.name}, _nothing, absent={})

    # Bindings.

    def _list_bindings(self, call: _Call) -> None:
        query = call.query
        wanted = {"exchange": "src", "queue": "dstq", "destination_exchange": "dste", "key": "key"}

        def found(rows: Any) -> tuple[int, Any]:
            # An empty value in a query asks for the empty one, where a method takes it for any.
            return OK, [
                _binding_map(BindingView(**row))
                for row in rows
                if all(query.get(word, row[name]) == row[name] for name, word in wanted.items())
            ]

        self._do(call, {name: query.get(word, "") for name, word in wanted.items()}, found)

    def _bind(self, call: _Call) -> None:
        given = read("binding", BINDING_BODY, call.map_body())
        _refuse_default(given["source"])
        params = {
            "exchange": given["source"],
            "queue": given["destination_queue"],
            "destination_exchange": given["destination_exchange"],
            "key": given["binding_key"],
            "arguments": given["arguments"],
        }
        self._do(call, params, _nothing)

    def _unbind(self, call: _Call) -> None:
        match = BINDING_PATH.fullmatch(call.raw_part)
        if match is None:
            hint = (
                "use /bindings/src=EXCHANGE;dstq=QUEUE;key=KEY;args=HASH, each part "
                "percent-encoded, or the location that GET gave"
            )
            raise InvalidArgument(f"{call.raw_part[:SHOWN]!r} does not name a binding", hint=hint)
        source, kind, name, key, arguments = match.groups()
        source, name, key = decode_part(source), decode_part(name), decode_part(key)
        queue, other = ("", name) if kind == "e" else (name, "")
        _refuse_default(source)
        params = {"exchange": source, "queue": queue, "key": key, "destination_exchange": other}
        binding = binding_of(self._node.broker, source, queue, key, other)
        if binding is None or arguments_hash(binding.arguments) == arguments:
            self._do(call, params, _nothing, absent={})
            return
        self._requests.check(call.method, params, call.connection.principal)
        call.answer(NO_CONTENT, None, None)

    # Policies.

    def _set_policy(self, call: _Call) -> None:
        params = {**call.map_body(), "name": call.name}
        if APPLY_TO in params:
            asked = params.pop(APPLY_TO)
            if params.setdefault("apply_to", asked) != asked:
                raise PreconditionFailed(
                    f"{APPLY_TO}={asked} and apply_to={params['apply_to']} contradict each other",
                    hint="give one of them",
                )
        self._do(call, params, lambda result: (OK, plain(result)))

    def _clear_policy(self, call: _Call) -> None:
        self._do(call, {"name": call.name}, _nothing, absent={})

    def _list(
        self, call: _Call, kind: str, path: str, show: Callable[[dict[str, Any]], Any]
    ) -> None:
        """List all, or show the one that the path names."""

        def found(rows: Any) -> tuple[int, Any] | QpidHaError:
            if not call.name:
                return OK, [show(row) for row in rows]
            if not rows:
                return NotFound(f"there is no {kind} {call.name}", hint=f"GET {path} lists them")
            return OK, show(rows[0])

        self._do(call, {"name": call.name}, found)


class MethodNotOffered(RefusedRequest):
    """The path exists, but not for this verb."""


class _Call:
    """One request, taken apart."""

    __slots__ = ("_body", "_verb", "answer", "connection", "method", "name", "query", "raw_part")

    def __init__(
        self,
        method: str,
        verb: str,
        parts: list[str],
        query: dict[str, str],
        body: Any,
        connection: ConnectionView,
        answer: Respond,
    ) -> None:
        self.method = method
        self._verb = verb
        self.raw_part = parts[1] if len(parts) > 1 else ""
        self.name = "" if parts[0] == "bindings" else decode_part(self.raw_part)
        """The name in the path, if there is one."""
        self.query = query
        self.connection = connection
        self.answer = answer
        self._body = body

    def map_body(self) -> dict[Any, Any]:
        """Give the body, which has to be a map."""
        if not isinstance(self._body, dict):
            hint = "send an amqp-value section with a map, which may be empty"
            raise InvalidArgument(f"the body of {self._verb} is not a map", hint=hint)
        return self._body


def arguments_hash(arguments: dict[str, Any]) -> str:
    """Give binding arguments a short name for use in a path; empty for none."""
    if not arguments:
        return ""
    text = json.dumps(plain(arguments), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _route(verb: str, path: str, parts: list[str]) -> str:
    """Return the method that a verb and a path mean."""
    offered = {
        route[0]: method
        for route, method in ROUTES.items()
        if _fits(route[1][1:].split("/"), parts)
    }
    if verb in offered:
        return offered[verb]
    if offered:
        raise MethodNotOffered(
            f"{verb[:SHOWN] or 'a request without subject'} is not offered on {path[:SHOWN]}",
            hint=f"offered: {', '.join(offered)}",
        )
    paths = dict.fromkeys(route[1] for route in ROUTES)
    raise NotFound(f"there is nothing at {path[:SHOWN]!r}", hint=f"there are {', '.join(paths)}")


def _check_query(method: str, query: dict[str, str]) -> None:
    """Refuse what a query asks for and would not get."""
    known = BINDING_QUERY if method == "list_bindings" else ()
    for name in query:
        if name not in known:
            raise InvalidArgument(
                f"the query {name[:SHOWN]} is not known here",
                reason="what is asked for is done or refused",
                hint=f"leave it out; known are {', '.join(known)}" if known else "leave it out",
            )


def _fits(pattern: list[str], parts: list[str]) -> bool:
    return len(pattern) == len(parts) and all(
        wanted.startswith("{") or wanted == part
        for wanted, part in zip(pattern, parts, strict=True)
    )


def _status(error: QpidHaError, connection: ConnectionView) -> int:
    if isinstance(error, MethodNotOffered):
        return METHOD_NOT_ALLOWED
    return status_of(error, connection.principal)


def _split(path: str) -> tuple[list[str], dict[str, str]]:
    head, _, query = path.partition("?")
    if not head.startswith("/") or head == "/":
        raise InvalidArgument(
            f"the path {path[:SHOWN]!r} is not absolute",
            hint="set the property to, such as /queues/name",
        )
    parts = head[1:].split("/")
    if not all(parts):
        raise InvalidArgument(
            f"the path {path[:SHOWN]!r} has an empty part",
            hint="percent-encode a slash inside a name as %2F",
        )
    return parts, decode_query(query)


def _queue_map(row: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    """Show a queue under RabbitMQ's names, and after them what it has no name for."""
    shown = dict(row)
    primary = status.get("primary") or {}
    replicated = shown["replicate"] == "all"
    leader = str(primary.get("address") or status.get("address", ""))
    members = [str(member.get("address", "")) for member in status.get("members", ())]
    return {
        "message_count": ULong(shown.pop("messages")),
        "consumer_count": UInt(shown.pop("consumers")),
        "vhost": "/",
        # RabbitMQ's clients know a fixed list of types; a replicated FIFO is what they call a
        # quorum queue.
        "type": "quorum" if replicated else "classic",
        "leader": leader,
        "replicas": Array(STRING_ARRAY, members if replicated and members else [leader]),
        **shown,
    }


def _binding_map(binding: BindingView) -> dict[str, Any]:
    other = binding.destination_exchange
    kind, destination = ("exchange", other) if other else ("queue", binding.queue)
    source, name, key = (
        quote(part, safe="") for part in (binding.exchange, destination, binding.key)
    )
    arguments = arguments_hash(binding.arguments)
    return {
        "source": binding.exchange,
        f"destination_{kind}": destination,
        "binding_key": binding.key,
        "arguments": binding.arguments,
        "location": f"/bindings/src={source};dst{kind[0]}={name};key={key};args={arguments}",
    }


def _message_count(result: Any) -> tuple[int, Any]:
    return OK, {"message_count": ULong(result["messages"])}


def _nothing(result: Any) -> tuple[int, Any]:
    return NO_CONTENT, None


def _refuse_default(exchange: str) -> None:
    if exchange in ("", "amq.default"):
        raise RefusedRequest(
            "the default exchange cannot be changed",
            hint="every queue is bound to it by its name; use another exchange",
        )
