"""The `$management` service: management of this broker by request messages, as AMQP management defines it.

A request names `operation`, `type` and `name` (or `identity`) in its application-properties and carries
attributes in its body; the answer carries statusCode and statusDescription. Besides the operations of
the draft there are PURGE, BIND and UNBIND, and every method of `requests.py` (promote, switchover, ...) under its own
name with its parameters as the body. Only administrators may change the state of the broker itself.
Knows the classes by `schema.py`; does nothing itself but translate.
Source: AMQP management 1.0 (working draft 9); Qpid qmf::org::apache::qpid::broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from qpidha.management.envelope import Envelope, open_envelope, seal
from qpidha.management.percent import decode_part
from qpidha.management.schema import BINDING, CLASSES, EXCHANGE, QUEUE, ObjectClass, attribute_names, attributes, plain
from qpidha.management.service_link import ReplyLinks
from qpidha.management.target import Reply
from qpidha.words.encoding import Int
from qpidha.words.errors import InvalidArgument, NotFound, NotImplementedHere, QpidHaError, RefusedRequest, Unauthorized

if TYPE_CHECKING:
    from qpidha.management.requests import Requests
    from qpidha.management.service_link import ServiceLink
    from qpidha.management.target import Target

ADDRESS = "$management"
DESCRIPTIONS = {200: "OK", 201: "Created", 204: "No Content"}
STATUS_OF = {
    "amqp:invalid-field": 400,
    "amqp:unauthorized-access": 401,
    "amqp:not-allowed": 403,
    "amqp:resource-limit-exceeded": 403,
    "amqp:not-found": 404,
    "amqp:resource-deleted": 404,
    "amqp:precondition-failed": 409,
    "amqp:resource-locked": 409,
    "amqp:not-implemented": 501,
    "amqp:connection:forced": 503,
}
"""AMQP error condition -> status code; any other is 500."""
ADMIN_METHODS = ("promote", "demote", "recover", "switchover", "shutdown")
"""What changes the broker itself and not only what it holds."""
SPELLINGS = {
    "autodelete": "auto_delete",
    "altexchange": "alternate",
    "alternateexchange": "alternate",
    "exchangetype": "type",
    "bindingkey": "key",
    "ifunused": "if_unused",
    "ifempty": "if_empty",
}
"""Attribute name without dashes, underscores and capitals -> parameter; others are taken as they are."""
READ_ONLY = ("identity", "uuid")

Operation = Callable[["_Call"], None]


class ManagementService:
    """The service at `$management`."""

    __slots__ = ("_operations", "_replies", "_requests", "_target", "unanswered")

    def __init__(self, requests: Requests, target: Target) -> None:
        self._requests = requests
        self._target = target
        self._replies = ReplyLinks()
        self.unanswered = 0
        """Answers that had nowhere to go."""
        self._operations: dict[str, Operation] = {
            "QUERY": self._query,
            "READ": self._read,
            "CREATE": self._create,
            "DELETE": self._delete,
            "PURGE": self._purge,
            "BIND": lambda call: self._bind(call, "bind"),
            "UNBIND": lambda call: self._bind(call, "unbind"),
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
        """Answer one request, at once or when its change is safe; an answerless one is refused."""
        request = open_envelope(payload)
        reply_to = request.text("reply_to")
        if not reply_to:
            raise InvalidArgument("the request has no reply-to", hint=f"name a receiver of this connection at {ADDRESS}, or a queue")
        correlation = request.properties.get("correlation_id")
        if correlation is None:
            correlation = request.properties.get("message_id")

        def answer(status: int, description: str, body: Any) -> None:
            application = {"statusCode": Int(status), "statusDescription": description}
            self._send(link, reply_to, seal({"to": reply_to, "correlation_id": correlation}, application, body))

        call = _Call(link, request, answer)
        try:
            self._operation(call)(call)
        except QpidHaError as error:
            if error.scope == "broker":
                raise
            call.refuse(error)

    # Operations.

    def _query(self, call: _Call) -> None:
        entity = call.option("entityType")
        kinds = [self._kind(entity)] if entity else list(CLASSES.values())
        wanted = call.body_map().get("attributeNames") or []
        if not isinstance(wanted, list) or not all(isinstance(name, str) for name in wanted):
            raise InvalidArgument("QUERY: attributeNames is not a list of strings", hint="leave it out to get every attribute")
        names = [str(name) for name in wanted] or list(dict.fromkeys(name for kind in kinds for name in attribute_names(kind)))
        rows = [(kind, entry) for kind in kinds for entry in kind.find(self._target)]
        first = call.number("offset", 0)
        results = []
        for kind, entry in rows[first : first + call.number("count", len(rows))]:
            values = attributes(kind, entry, self._target)
            results.append([values.get(name) for name in names])
        call.answer(200, "OK", {"attributeNames": names, "results": results})

    def _read(self, call: _Call) -> None:
        kind, name = self._named(call)
        entry = kind.get(self._target, name)
        if entry is None:
            raise NotFound(f"READ: there is no {kind.type} {name!r}", hint=f"QUERY with entityType {kind.type} lists them")
        call.answer(200, "OK", attributes(kind, entry, self._target))

    def _create(self, call: _Call) -> None:
        kind = self._kind(call.option("type"))
        self._offered(kind, "CREATE")
        params = _parameters(call.body_map(), kind)
        if kind is BINDING:
            self._bind(call, "bind")
            return
        params["name"] = call.option("name") or params.get("name")

        def created(result: Any) -> tuple[int, Any]:
            entry = kind.get(self._target, str(params["name"]))
            return (201 if result["created"] else 200), {} if entry is None else attributes(kind, entry, self._target)

        self._do(call, "declare_queue" if kind is QUEUE else "declare_exchange", params, created)

    def _delete(self, call: _Call) -> None:
        kind, name = self._named(call)
        self._offered(kind, "DELETE")
        if kind is BINDING:
            parts = name.split("/")
            if len(parts) != 3:
                hint = "a binding's name is EXCHANGE/QUEUE/KEY, each part percent-encoded, as QUERY shows it"
                raise InvalidArgument(f"DELETE: {name!r} does not name a binding", hint=hint)
            exchange, queue, key = (decode_part(part) for part in parts)
            self._do(call, "unbind", {"exchange": exchange, "queue": queue, "key": key}, _no_content)
            return
        params = {**_parameters(call.body_map(), kind), "name": name}
        self._do(call, "delete_queue" if kind is QUEUE else "delete_exchange", params, _no_content)

    def _purge(self, call: _Call) -> None:
        kind, name = self._named(call, QUEUE)
        self._offered(kind, "PURGE")
        self._do(call, "purge_queue", {"name": name}, _ok)

    def _bind(self, call: _Call, method: str) -> None:
        params = _parameters(call.body_map(), BINDING)
        if call.option("type") == EXCHANGE.type and call.option("name"):
            params.setdefault("exchange", call.option("name"))
        params.pop("name", None)
        if method == "unbind":
            params.pop("arguments", None)
        self._do(call, method, params, _bound if method == "bind" else _no_content)

    def _get_types(self, call: _Call) -> None:
        call.answer(200, "OK", {kind.type: [] for kind in self._asked(call)})

    def _get_attributes(self, call: _Call) -> None:
        call.answer(200, "OK", {kind.type: attribute_names(kind) for kind in self._asked(call)})

    def _get_operations(self, call: _Call) -> None:
        call.answer(200, "OK", {kind.type: list(kind.operations) for kind in self._asked(call)})

    def _method(self, call: _Call) -> None:
        """Do a method of `requests.py` by its own name."""
        method = call.operation.lower()
        if method in ADMIN_METHODS and not call.link.connection.is_admin:
            hint = "open the connection with the property qpid.ha-admin, as qpid-ha does"
            raise Unauthorized(f"{method} is for administrators", hint=hint)
        self._do(call, method, call.body_map(), _ok)

    # What operations share.

    def _operation(self, call: _Call) -> Operation:
        if not call.operation:
            hint = f"set the application-property operation: {', '.join(self._operations)}"
            raise InvalidArgument("the request has no operation", hint=hint)
        found = self._operations.get(call.operation.upper())
        if found is not None:
            return found
        if call.operation.lower() in self._requests.methods:
            return self._method
        hint = f"operations: {', '.join(self._operations)}; methods: {', '.join(self._requests.methods)}"
        raise NotImplementedHere(f"there is no operation {call.operation[:100]!r}", hint=hint)

    def _do(self, call: _Call, method: str, params: dict[Any, Any], success: Callable[[Any], tuple[int, Any]]) -> None:
        def reply(reply: Reply) -> None:
            if reply.error is not None:
                call.refuse(reply.error)
                return
            status, body = success(reply.result)
            call.answer(status, DESCRIPTIONS[status], body)

        self._requests.call(method, params, reply, owner=call.link.connection)

    def _kind(self, name: str) -> ObjectClass:
        found = CLASSES.get(name)
        if found is None:
            raise NotFound(f"there is no type {name[:100]!r}", hint=f"types: {', '.join(CLASSES)}")
        return found

    def _asked(self, call: _Call) -> list[ObjectClass]:
        entity = call.option("entityType")
        return [self._kind(entity)] if entity else list(CLASSES.values())

    def _named(self, call: _Call, default: ObjectClass | None = None) -> tuple[ObjectClass, str]:
        """Find which object a request is about, by type and name or by identity."""
        identity, kind_name, name = call.option("identity"), call.option("type"), call.option("name")
        if identity and not name:
            for kind in CLASSES.values():
                if identity.startswith(f"{kind.type}:"):
                    return kind, identity[len(kind.type) + 1 :]
            raise NotFound(f"there is no object with the identity {identity[:100]!r}", hint="identities are TYPE:NAME, as QUERY shows them")
        if not name:
            raise InvalidArgument(f"{call.operation}: neither name nor identity is given", hint="set them as application-properties")
        if not kind_name and default is not None:
            return default, name
        return self._kind(kind_name), name

    def _offered(self, kind: ObjectClass, operation: str) -> None:
        if operation not in kind.operations:
            offered = ", ".join(kind.operations)
            raise NotImplementedHere(f"{operation} is not offered for the type {kind.type}", hint=f"operations of {kind.type}: {offered}")

    def _send(self, link: ServiceLink, reply_to: str, payload: bytes) -> None:
        try:
            receiver = self._replies.addressed(link, reply_to)
            if receiver is not None:
                receiver.send(payload)
            else:
                self._publish(reply_to, payload)
        except RefusedRequest:
            # Nobody reads there, or it is full: the requester is not waiting where it said.
            self.unanswered += 1

    def _publish(self, reply_to: str, payload: bytes) -> None:
        name = decode_part(reply_to.removeprefix("/queues/")) if reply_to.startswith("/queues/") else reply_to
        queue = self._target.broker.queues.get(name)
        if queue is None:
            raise NotFound(f"there is no queue {name}")
        if not self._target.serving and queue.options.replicate != "none":
            raise RefusedRequest(f"queue {name} is the primary's to change")
        self._target.broker.publish("", name, payload, headers=dict)


class _Call:
    """One request and the way back to who asked."""

    __slots__ = ("_request", "answer", "link", "operation")

    def __init__(self, link: ServiceLink, request: Envelope, answer: Callable[[int, str, Any], None]) -> None:
        self.link = link
        self.answer = answer
        self._request = request
        self.operation = self.option("operation")

    def option(self, name: str) -> str:
        """Give a string from the application-properties, or an empty one."""
        value = self._request.application.get(name)
        return str(value) if isinstance(value, str) else ""

    def number(self, name: str, default: int) -> int:
        """Give a number from the application-properties."""
        value = self._request.application.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidArgument(f"{self.operation}: {name} is not an integer of 0 or more", hint="leave it out to get everything")
        return int(value)

    def body_map(self) -> dict[Any, Any]:
        """Give the body, which has to be a map or absent."""
        body = self._request.body
        if body is None:
            return {}
        if not isinstance(body, dict):
            raise InvalidArgument(f"{self.operation}: the body is not a map", hint="send an amqp-value section with a map, or none")
        return body

    def refuse(self, error: QpidHaError) -> None:
        """Answer with an error."""
        text = f"{error.text}; {error.hint}" if error.hint else error.text
        self.answer(STATUS_OF.get(error.condition, 500), text, None)


def _parameters(body: dict[Any, Any], kind: ObjectClass) -> dict[str, Any]:
    """Translate attributes to parameters; queue and exchange options that stand among them are arguments."""
    params: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for name, value in body.items():
        text = str(name)
        folded = text.replace("-", "").replace("_", "").lower()
        if text.startswith(("qpid.", "x-")):
            arguments[text] = value
        elif text == "type" and value == kind.type:
            continue  # The draft lets attributes repeat the entity type.
        elif text not in READ_ONLY:
            params[SPELLINGS.get(folded, text)] = value
    if arguments:
        given = params.get("arguments") or {}
        if not isinstance(given, dict):
            raise InvalidArgument("arguments is not a map", hint="give the arguments as a map with string keys")
        params["arguments"] = {**given, **arguments}
    return params


def _ok(result: Any) -> tuple[int, Any]:
    return 200, plain(result)


def _bound(result: Any) -> tuple[int, Any]:
    return 201, result


def _no_content(result: Any) -> tuple[int, Any]:
    return 204, {}
