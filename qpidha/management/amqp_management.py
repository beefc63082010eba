"""The `$management` service: management of this broker by request messages, as AMQP management
defines it.

A request names `operation`, `type` and `name` (or `identity`) in its application-properties and
carries attributes in its body; the answer carries statusCode and statusDescription, an error also
`condition`, `reason` and `hint`. QUERY, READ and GET-* are answered here from the classes
of `schema.py`. Everything else goes to the table of methods (`methods.py`): by an operation on a
class (CREATE on a queue), or by a method's own name with its parameters as the body.
Source: AMQP management 1.0 (working draft 9); Qpid qmf::org::apache::qpid::broker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from qpidha.broker.credit import MEMORY_LIMIT
from qpidha.broker.queues.arguments import LONGEST_NAME
from qpidha.broker.vocabulary import INSTRUCTIONS
from qpidha.management.methods import BY_NAME, METHODS, Effect, Method, unknown
from qpidha.management.port import Reply
from qpidha.management.reply_link import REQUEST, Envelope, ReplyLinks, open_envelope, seal
from qpidha.management.schema import (
    BINDING,
    CLASSES,
    EXCHANGE,
    HABROKER,
    LOOKS,
    ObjectClass,
    attribute_names,
    attributes,
    binding_parts,
    plain,
    rows,
)
from qpidha.management.status_codes import OK, status_of, told
from qpidha.model.encoding import Int
from qpidha.model.errors import (
    InvalidArgument,
    InvariantBroken,
    LimitExceeded,
    NotFound,
    NotImplementedHere,
    QpidHaError,
    RefusedRequest,
)
from qpidha.model.percent import decode_part
from qpidha.model.principal import Action, ObjectType

if TYPE_CHECKING:
    from qpidha.management.port import ManagedNode
    from qpidha.management.reply_link import ServiceLink
    from qpidha.management.requests import Requests

ADDRESS = "$management"
REPLY_TO = f"set reply-to to the address of a receiver of this connection at {ADDRESS}, or a queue"
DESCRIPTIONS = {200: "OK", 201: "Created", 204: "No Content"}
OPERATIONS: dict[str, dict[str, Method]] = {}
"""Operation on a class -> class -> method. Those of the HA class go by the methods' names."""
for _method in METHODS:
    for _kind, _operation in _method.operations:
        if _kind is not HABROKER:
            OPERATIONS.setdefault(_operation, {})[_kind.type] = _method
ANSWERS = {"CREATE": 201, "BIND": 201, "PURGE": 200, "DELETE": 204, "UNBIND": 204}
"""Operation -> status code when it is done."""
_LINKS = "qpid-ha link add and route add move messages to and from other brokers"
ELSEWHERE = {
    "topic": "a policy gives the queues of subscriptions their limits, by name: qpid-ha policy set",
    "QueuePolicy": "the option queue-patterns makes queues; a policy says what they are like",
    "TopicPolicy": "the option topic-patterns makes topics",
    "domain": _LINKS,
    "incoming": _LINKS,
    "outgoing": _LINKS,
}
"""Types of Qpid that are not here, and what is in their place."""
READ_ONLY = ("identity", "uuid")
"""Attributes that say what an object is; in a request they change nothing."""

Operation = Callable[["_Call"], None]


class ManagementService:
    """The service at `$management`."""

    __slots__ = ("_node", "_operations", "_replies", "_requests", "unanswered")

    def __init__(self, requests: Requests, node: ManagedNode) -> None:
        self._requests = requests
        self._node = node
        self._replies = ReplyLinks()
        self.unanswered = 0
        """Answers that had nowhere to go."""
        self._operations: dict[str, Operation] = {
            "QUERY": self._query,
            "READ": self._read,
            "GET-TYPES": self._get_types,
            "GET-ATTRIBUTES": self._get_attributes,
            "GET-OPERATIONS": self._get_operations,
        }

    def attached(self, link: ServiceLink) -> None:
        """Take a link of either direction."""
        self._replies.add(link)

    def detached(self, link: ServiceLink) -> None:
        """Forget a link."""
        self._replies.remove(link)

    def credited(self, link: ServiceLink) -> None:
        """Nothing to do: answers wait in the link itself."""

    def received(self, link: ServiceLink, payload: bytes) -> None:
        """Answer one request, at once, when its turn comes, or when its change is committed; one
        that could not be answered is refused, and nothing is done.
        """
        request = open_envelope(payload)
        reply_to = request.text("reply_to")
        if not reply_to:
            raise request.fault or InvalidArgument("the request has no reply-to", hint=REPLY_TO)
        to_queue = self._replies.addressed(link, reply_to) is None
        if to_queue:
            self._answers_queue(link, reply_to)
            self._check_memory()
        correlation = request.properties.get("correlation_id")
        if correlation is None:
            correlation = request.properties.get("message_id")

        owed = len(payload) + REQUEST
        link.owe(owed)

        def send(application: dict[str, Any], body: Any) -> None:
            link.owe(-owed)
            fields = {"to": reply_to, "correlation_id": correlation}
            self._send(link, reply_to, seal(fields, application, body))

        call = _Call(link, request, send)
        is_read = not to_queue and self._is_read(request.application.get("operation"))
        self._node.lines.add(link, owed, partial(self._serve, call), is_read=is_read)

    def _is_read(self, operation: object) -> bool:
        name = str(operation)
        method = BY_NAME.get(name.lower())
        return name.upper() in self._operations or (
            method is not None and method.effect is Effect.READ
        )

    def _serve(self, call: _Call) -> None:
        try:
            call.begin()
            self._answer(call)
        except InvariantBroken:
            raise
        except QpidHaError as error:
            call.refuse(error)

    def _answer(self, call: _Call) -> None:
        name = call.operation
        own = self._operations.get(name.upper())
        if own is not None:
            own(call)
        elif name.upper() in OPERATIONS:
            self._operate(call, OPERATIONS[name.upper()])
        elif name.lower() in BY_NAME:
            self._do(call, BY_NAME[name.lower()], call.body_map(), _ok)
        elif not name:
            offered = ", ".join([*self._operations, *OPERATIONS])
            raise InvalidArgument(
                "the request has no operation",
                hint=f"set the application-property operation: {offered}",
            )
        else:
            raise unknown("operation", name, [*self._operations, *OPERATIONS, *BY_NAME])

    # Operations of the draft that only read.

    def _query(self, call: _Call) -> None:
        kinds = self._asked(call)
        wanted = call.body_map().get("attributeNames") or []
        if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
            raise InvalidArgument(
                "QUERY: attributeNames is not a list of strings",
                hint="leave it out to get every attribute",
            )
        names = [str(name) for name in wanted] or list(
            dict.fromkeys(name for kind in kinds for name in attribute_names(kind))
        )
        for kind in kinds:
            self._check_access(call, kind)
        first, count = call.number("offset", 0), call.number("count", sys.maxsize)
        results: list[list[Any]] = []
        for kind in kinds:
            entries = list(islice(kind.find(self._node), min(first + count, sys.maxsize)))
            found = entries[first:]
            self._node.lines.spend(len(entries) // LOOKS)
            results += rows(kind, found, self._node, names)
            first, count = max(first - len(entries), 0), count - len(found)
        call.answer(OK, {"attributeNames": names, "results": results})

    def _read(self, call: _Call) -> None:
        kind, name = self._named(call)
        self._check_access(call, kind, name)
        entry = kind.get(self._node, name)
        if entry is None:
            raise NotFound(
                f"READ: there is no {kind.type} {name!r}",
                hint=f"QUERY with entityType {kind.type} lists them",
            )
        call.answer(OK, attributes(kind, entry, self._node))

    def _get_types(self, call: _Call) -> None:
        call.answer(OK, {kind.type: [] for kind in self._asked(call)})

    def _get_attributes(self, call: _Call) -> None:
        call.answer(OK, {kind.type: attribute_names(kind) for kind in self._asked(call)})

    def _get_operations(self, call: _Call) -> None:
        call.answer(OK, {kind.type: operations_of(kind) for kind in self._asked(call)})

    # Operations that are methods.

    def _operate(self, call: _Call, offered: dict[str, Method]) -> None:
        """Do an operation of the draft on the class that the request names."""
        operation = call.operation.upper()
        kind, name = self._object(call, offered)
        method = offered.get(kind.type)
        if method is None:
            raise NotImplementedHere(
                f"{operation} is not offered for the type {kind.type}",
                hint=f"operations of {kind.type}: {', '.join(operations_of(kind))}",
            )
        params = parameters_of(method, kind, call.body_map())
        if kind is BINDING and operation == "DELETE":
            params = _binding_parts(name)
        elif kind is EXCHANGE and operation in ("BIND", "UNBIND"):
            params.setdefault("exchange", name or None)
            if operation == "UNBIND":
                params.pop("arguments", None)  # a binding is known by its key
        elif kind is not BINDING:
            params["name"] = name or params.get("name")

        def done(result: Any) -> tuple[int, Any]:
            if operation != "CREATE" or kind is BINDING:
                return ANSWERS[operation], result if ANSWERS[operation] != 204 else {}
            # It may have been deleted again while its creation was being committed.
            entry = kind.get(self._node, str(params["name"]))
            shown = {} if entry is None else attributes(kind, entry, self._node)
            return (201 if result["created"] else 200), shown

        self._do(call, method, params, done)

    def _object(self, call: _Call, offered: dict[str, Method]) -> tuple[ObjectClass, str]:
        """Find the class, and the name if there is one, that an operation is about."""
        if call.option("identity") or call.operation.upper() == "DELETE":
            return self._named(call)
        type_ = call.option("type")
        if not type_ and len(offered) == 1:  # PURGE, BIND and UNBIND are of one class
            type_ = next(iter(offered))
        return self._kind(type_), call.option("name")

    def _do(
        self,
        call: _Call,
        method: Method,
        params: dict[Any, Any],
        success: Callable[[Any], tuple[int, Any]],
    ) -> None:
        def reply(reply: Reply) -> None:
            if reply.error is not None:
                call.refuse(reply.error)
            else:
                call.answer(*success(reply.result))

        connection = call.link.connection
        self._requests.call(
            method.name, params, reply, principal=connection.principal, owner=connection
        )

    # What operations share.

    def _check_access(self, call: _Call, kind: ObjectClass, name: str = "") -> None:
        principal, told = call.link.connection.principal, {"schemaclass": kind.schemaclass}
        self._node.access.check(principal, Action.ACCESS, ObjectType.QUERY, name, told)

    def _kind(self, name: str) -> ObjectClass:
        found = CLASSES.get(name)
        if found is None:
            hint = ELSEWHERE.get(name) or f"types: {', '.join(CLASSES)}"
            raise NotFound(f"there is no type {name[:100]!r}", hint=hint)
        return found

    def _asked(self, call: _Call) -> list[ObjectClass]:
        entity = call.option("entityType")
        return [self._kind(entity)] if entity else list(CLASSES.values())

    def _named(self, call: _Call) -> tuple[ObjectClass, str]:
        """Find which object a request is about, by type and name or by identity."""
        identity, name = call.option("identity"), call.option("name")
        if identity and not name:
            for kind in CLASSES.values():
                if identity.startswith(f"{kind.type}:"):
                    return kind, identity[len(kind.type) + 1 :]
            raise NotFound(
                f"there is no object with the identity {identity[:100]!r}",
                hint="identities are TYPE:NAME, as QUERY shows them",
            )
        if not name:
            raise InvalidArgument(
                f"{call.operation}: neither name nor identity is given",
                hint="set them as application-properties",
            )
        return self._kind(call.option("type")), name

    def _send(self, link: ServiceLink, reply_to: str, payload: bytes) -> None:
        try:
            receiver = self._replies.addressed(link, reply_to)
            if receiver is not None:
                receiver.send(payload)
            else:
                self._publish(link, reply_to, payload)
        except RefusedRequest:
            # Nobody reads there, or it is full: the requester is not waiting where it said.
            self.unanswered += 1

    def _publish(self, link: ServiceLink, reply_to: str, payload: bytes) -> None:
        name = self._answers_queue(link, reply_to)
        self._node.broker.publish("", name, payload, headers=dict)

    def _check_memory(self) -> None:
        """Refuse a request whose answer would go to a queue while no sender gets credit."""
        reason = self._node.broker.credit.withheld.get(MEMORY_LIMIT)
        if reason:
            raise LimitExceeded(
                f"no answer can be put on a queue: {reason}",
                hint=f"try again later, or name a receiver of this connection at {ADDRESS}",
            )

    def _answers_queue(self, link: ServiceLink, reply_to: str) -> str:
        """Return the name of the queue that an answer goes to; raise if it cannot go there."""
        name = (
            decode_part(reply_to.removeprefix("/queues/"))
            if reply_to.startswith("/queues/")
            else reply_to
        )
        queue = self._node.broker.find_queue(name)
        if len(name) <= LONGEST_NAME:  # No other is one of a queue, nor anybody's secret.
            principal = link.connection.principal
            self._node.access.check(principal, Action.PUBLISH, ObjectType.QUEUE, name)
        if queue is None:
            raise NotFound(f"reply-to is {name[:100]!r}, and there is no such queue", hint=REPLY_TO)
        if not self._node.serving and queue.options.replicate != "none":
            raise RefusedRequest(
                f"reply-to is the queue {name}, which is the primary's to change",
                hint=f"name a receiver of this connection at {ADDRESS}",
            )
        queue.check_access(link.connection)
        return name


class _Call:
    """One request and the way back to who asked."""

    __slots__ = ("_request", "_send", "link", "operation")

    def __init__(
        self, link: ServiceLink, request: Envelope, send: Callable[[dict[str, Any], Any], None]
    ) -> None:
        self.link = link
        self._send = send
        self._request = request
        self.operation = ""

    def begin(self) -> None:
        """Note what is asked; raise what is wrong with the request."""
        if self._request.fault is not None:
            raise self._request.fault
        self.operation = self.option("operation")

    def option(self, name: str) -> str:
        """Give a string from the application-properties, or an empty one."""
        value = self._request.application.get(name)
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(
                f"the application-property {name} is not a string", hint="give it as a string"
            )
        return str(value or "")

    def number(self, name: str, default: int) -> int:
        """Give a number from the application-properties."""
        value = self._request.application.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidArgument(
                f"{self.operation}: {name} is not an integer of 0 or more",
                hint="leave it out to get everything",
            )
        return int(value)

    def body_map(self) -> dict[Any, Any]:
        """Give the body, which has to be a map or absent."""
        body = self._request.body
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise InvalidArgument(
                f"{self.operation}: the body is not a map",
                hint="send an amqp-value section with a map",
            )
        return body

    def answer(self, status: int, body: Any) -> None:
        """Answer that it is done."""
        self._send({"statusCode": Int(status), "statusDescription": DESCRIPTIONS[status]}, body)

    def refuse(self, error: QpidHaError) -> None:
        """Answer with an error; its fields stay apart."""
        status = status_of(error, self.link.connection.principal)
        self._send(
            {
                "statusCode": Int(status),
                "statusDescription": told(error),
                "condition": error.condition,
                **error.details,
            },
            None,
        )


def operations_of(kind: ObjectClass) -> list[str]:
    """Name the operations of a class."""
    offered = [each for method in METHODS for each in method.operations]
    return ["READ", *(name for on, name in offered if on is kind)]


def parameters_of(method: Method, kind: ObjectClass, body: dict[Any, Any]) -> dict[str, Any]:
    """Translate attributes to the method's parameters; queue and exchange options that stand among
    them are arguments.
    """
    known = {
        _folded(name): each.name
        for each in method.parameters
        for name in (each.name, *each.aliases)
    }
    params: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for name, value in body.items():
        text = str(name)
        if text.startswith(INSTRUCTIONS):
            arguments[text] = value
        elif text == "type" and value == kind.type:
            continue  # The draft lets attributes repeat the entity type.
        elif text not in READ_ONLY:
            params[known.get(_folded(text), text)] = value
    if arguments:
        given = params.get("arguments") or {}
        if not isinstance(given, dict):
            raise InvalidArgument(
                "arguments is not a map", hint="give the arguments as a map with string keys"
            )
        params["arguments"] = {**given, **arguments}
    return params


def _folded(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _binding_parts(name: str) -> dict[str, Any]:
    parts = binding_parts(name)
    if parts is None:
        raise InvalidArgument(
            f"DELETE: {name!r} does not name a binding",
            hint="a binding's name is EXCHANGE/QUEUE/KEY or EXCHANGE/>EXCHANGE/KEY, each part "
            "percent-encoded, as QUERY shows it",
        )
    return dict(parts)


def _ok(result: Any) -> tuple[int, Any]:
    return 200, plain(result)
