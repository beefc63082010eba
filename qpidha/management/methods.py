"""The table of methods: every request that a broker answers stands here once.

A row has the method's name, the question that access control is asked, its parameters with types
and help, its effect, and its handler. The windows are made from it: the admin socket and
`$management` take every method by its name, `$management` also by the operations of AMQP
management, `/management` by HTTP verb and path; the method `help` and docs/management.md are made
from the texts. A new method is one row and one handler. Knows neither JSON nor AMQP encodings.
Source: Qpid qpid/broker/Broker.cpp (ManagementMethod) and qpid/ha/HaBroker.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

from qpidha.broker.declaration import exchange_asked_for, properties_of, queue_asked_for
from qpidha.broker.exchange import Exchange
from qpidha.broker.federation import (
    DIRECTIONS,
    DYNAMIC,
    KINDS,
    check_route,
    link_asked_for,
    tags_in,
)
from qpidha.broker.federation import QUEUE as ROUTE_OF_QUEUE
from qpidha.broker.pattern import LONGEST as LONGEST_PATTERN
from qpidha.broker.policy import APPLY_TO, PRIORITIES, described, listed, policy_asked_for
from qpidha.broker.policy import explained as explained_policies
from qpidha.broker.queues.arguments import check_key
from qpidha.broker.translation import policy_key, translate
from qpidha.broker.vocabulary import Kind
from qpidha.management.access import ONWARD
from qpidha.management.parameters import Parameter, Type
from qpidha.management.peek import MOST, peeked
from qpidha.management.port import Reply
from qpidha.management.report import explained
from qpidha.management.schema import (
    BINDING,
    CONNECTION,
    EXCHANGE,
    HABROKER,
    LINK,
    LOOKS,
    QUEUE,
    ROUTE,
    SESSION,
    SUBSCRIPTION,
    BindingView,
    binding_of,
    bindings_of,
    connection_number,
    describe,
    properties_named,
    session_number,
    subscription_number,
)
from qpidha.management.statistics import statistics
from qpidha.model.duration import SECOND
from qpidha.model.errors import (
    ConnectionForced,
    InvalidArgument,
    NotFound,
    NotImplementedHere,
    RefusedRequest,
)
from qpidha.model.event_log import SHOWN
from qpidha.model.events import ConnectionKind
from qpidha.model.options import LogSelectors, Urls
from qpidha.model.principal import Action, ObjectType
from qpidha.model.records import RouteDeclared
from qpidha.model.url import parse_url

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qpidha.broker.broker import Broker
    from qpidha.broker.queues.queue import Queue
    from qpidha.management.port import Answer, ManagedNode
    from qpidha.management.schema import ObjectClass
    from qpidha.model.records import PolicySet

IN_BROKER = ("org.apache.qpid.broker", "broker")
IN_QUEUE = ("org.apache.qpid.broker", "queue")
IN_CONNECTION = ("org.apache.qpid.broker", "connection")
IN_HA = ("org.apache.qpid.ha", "habroker")
"""Packages and classes where Qpid's rules expect a method."""
RESERVED = ("amq.", "qpid.", "qpidha.", "$")
"""Beginnings of names that belong to the broker."""


class Effect(StrEnum):
    """What a method does, and so where and when it is answered."""

    READ = "read"  # on every broker, at once
    CHANGE = "change"  # on the primary or a broker alone, when its record is committed
    COMMAND = "command"  # by the broker that is asked, when it is done


Later = Callable[[int, object], None]
"""Answers a request when a record is committed, 0 for at once: called with both, once."""


class Call:
    """One request: the broker, the parameters, and the way back."""

    __slots__ = ("_later", "_reply", "check", "done", "node", "owner", "values")

    def __init__(
        self,
        node: ManagedNode,
        values: dict[str, Any],
        owner: object,
        reply: Answer,
        later: Callable[[Answer], Later],
        done: Callable[[], None],
        check: Callable[..., None],
    ) -> None:
        self.node = node
        self.values = values
        """Every parameter of the method, with its value or its default."""
        self.owner = owner
        """The connection that gets exclusive queues; None on the admin socket."""
        self._reply = reply
        self._later = later
        self.done = done
        """Tells who has done it, if it was done."""
        self.check = check
        """Raises unless who asks may do something else as well."""

    def __getitem__(self, parameter: str) -> Any:
        return self.values[parameter]

    @property
    def reply(self) -> Answer:
        """Where the answer goes, for a method that answers later."""
        return self._reply

    def answer(self, result: object) -> None:
        """Answer now."""
        self._reply(Reply(result))

    def answer_when_committed(self, sequence: int, result: object) -> None:
        """Answer when the record `sequence` is committed, at once if there is none."""
        if sequence > 0:
            self.later()(sequence, result)
        else:
            self.answer(result)

    def later(self) -> Later:
        """Let a change take more than a turn; what is returned is called with its last record and
        its result when it is done, and answers as `answer_when_committed` does.
        """
        return self._later(self._reply)


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table."""

    name: str
    effect: Effect
    action: Action
    object_type: ObjectType
    help: str
    """What it does, in the imperative."""
    answers: str
    """What its result is."""
    handler: Callable[[Call], None]
    parameters: tuple[Parameter, ...] = ()
    operations: tuple[tuple[ObjectClass, str], ...] = ()
    """Classes and operations of AMQP management that come here."""
    routes: tuple[str, ...] = ()
    """HTTP verbs and paths that come here."""
    properties: Callable[[dict[str, Any]], dict[str, Any]] = dict
    """What access control is told beside the name, of the values: what is done, in known names."""
    schema: tuple[str, str] = ("", "")
    """Package and class where a rule of Qpid's expects it; of a read there is none."""
    qpid_name: str = ""
    """What such a rule calls it, if not by its name."""

    @property
    def access(self) -> str:
        """What access control is asked, in words."""
        if self.object_type is ObjectType.QUERY:
            return f"access query schemaclass={self.properties({})['schemaclass']}"
        also = f", access method name={self.qpid_name or self.name}" if self.schema[0] else ""
        return f"{self.action} {self.object_type}{also}"

    def object_name(self, values: dict[str, Any]) -> str:
        """Return the name of what it is done to, the question for access control."""
        if self.object_type is ObjectType.QUERY:
            return str(values.get("name", ""))
        is_own = self.object_type is ObjectType.BROKER  # Not one that a parameter names.
        named = None if is_own else values.get(self.object_type.value)
        return str(named or values.get("name") or self.name)


def _of_class(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda values: {"schemaclass": name}


def _of_queue(values: dict[str, Any]) -> dict[str, Any]:
    return properties_of(queue_asked_for(**values))


def _of_exchange(values: dict[str, Any]) -> dict[str, Any]:
    return properties_of(exchange_asked_for(**values))


def _of_new_binding(values: dict[str, Any]) -> dict[str, Any]:
    check_key("binding key", values["key"])
    return _of_binding(values)


def _of_binding(values: dict[str, Any]) -> dict[str, Any]:
    arguments = translate(Kind.BINDING, values.get("arguments", {}))
    other = values.get("destination_exchange", "")
    end = {ONWARD: other} if other else {"queuename": values["queue"]}
    return {**arguments, **end, "routingkey": values["key"]}


def _of_move(values: dict[str, Any]) -> dict[str, Any]:
    return {"target": values["target"]}


# -- reads ----------------------------------------------------------------------------------------


def _help(call: Call) -> None:
    wanted = call["method"]
    described = [reference(method) for method in ([find(wanted)] if wanted else METHODS)]
    call.node.lines.spend(LOOKS * len(described))
    call.answer(described)


def _ping(call: Call) -> None:
    call.answer({"state": call.node.status().get("state", "")})


def _status(call: Call) -> None:
    call.answer(call.node.status())


def _query(call: Call) -> None:
    call.answer(call.node.query())


def _members(call: Call) -> None:
    call.answer(call.node.status().get("members", []))


def _statistics(call: Call) -> None:
    call.answer(statistics(call.node))


def _explain(call: Call) -> None:
    call.answer(explained(call.node))


def _log_level(call: Call) -> None:
    call.answer(_told_log_level(call))


def _told_log_level(call: Call) -> dict[str, str]:
    enabled, disabled = call.node.log_level
    parts = [enabled, *(f"!{part}" for part in disabled.split(",") if part)]
    return {"level": ",".join(parts), "log_enable": enabled, "log_disable": disabled}


def _set_log_level(call: Call) -> None:
    parts = [part.strip() for part in call["level"].split(",")]
    enabled = ",".join(part for part in parts if not part.startswith("!"))
    less = [part[1:] for part in parts if part.startswith("!")]
    disabled = ",".join(less)
    selectors = LogSelectors()
    if not selectors.check(enabled) or (less and not selectors.check(disabled)):
        raise InvalidArgument(
            f"set_log_level: parameter level is {call['level'][:100]!r}",
            hint=f"{selectors.accepts}; with ! before those that are not to be logged",
        )
    call.node.set_log_level(enabled, disabled)
    call.answer(_told_log_level(call))


def _acl(call: Call) -> None:
    found = call.node.access_list()
    call.node.lines.spend(LOOKS * len(found.get("rules", ())))
    call.answer(found)


def _list(kind: ObjectClass, order: Callable[[str], Any] = str) -> Callable[[Call], None]:
    def handler(call: Call) -> None:
        node, name, match = call.node, call["name"], call["match"]
        wanted = properties_named(kind, call["fields"])
        if name:
            entry = kind.get(node, name)
            entries = [] if entry is None else [entry]
        else:
            entries = list(kind.find(node))
            node.lines.spend(len(entries) // LOOKS)
        found: Iterable[Any] = (entry for entry in entries if match in kind.name(entry))
        if call["after"] or call["limit"]:
            found = _page(kind, order, found, call)
        call.answer([describe(kind, entry, node, wanted) for entry in found])

    return handler


def _page(
    kind: ObjectClass, order: Callable[[str], Any], entries: Iterable[Any], call: Call
) -> Iterator[Any]:
    """Return the entries behind `after`, in the order of their names, up to `limit` of them."""
    try:
        after = order(call["after"]) if call["after"] else None
    except ValueError:
        raise InvalidArgument(
            f"parameter after is {call['after']!r}", hint="give the last name of the page before"
        ) from None
    keyed = {order(kind.name(entry)): entry for entry in entries}
    behind = [key for key in keyed if after is None or key > after]
    page = nsmallest(call["limit"], behind) if call["limit"] else sorted(behind)
    call.node.lines.spend(len(behind) // LOOKS)
    return (keyed[key] for key in page)


def _events(call: Call) -> None:
    node = call.node
    if not node.event_log.is_on:
        raise RefusedRequest(
            "this broker keeps no events",
            reason="it has no data-dir, or journal-events is off",
            hint="give it a data-dir, and leave journal-events as it is",
        )
    kinds = call["kinds"].replace(",", " ").split()
    for kind in kinds:
        if kind not in SHOWN:
            near = get_close_matches(kind, SHOWN, 1)
            raise InvalidArgument(
                f"there is no kind of events {kind}",
                hint=f"did you mean {near[0]}?" if near else f"kinds: {', '.join(SHOWN)}",
            )
    found = node.event_log.recent.list(call["after"], call["limit"], kinds)
    node.lines.spend(LOOKS * len(found))
    call.answer({"name": node.status().get("name", ""), "now_ns": node.now, "events": found})


def _list_bindings(call: Call) -> None:
    exchange, queue, key = call["exchange"], call["queue"], call["key"]
    destination = call["destination_exchange"]
    bindings = list(bindings_of(call.node.broker))
    call.node.lines.spend(len(bindings))
    call.answer(
        [
            describe(BINDING, binding, call.node)
            for binding in bindings
            if exchange in ("", binding.exchange)
            and queue in ("", binding.queue)
            and key in ("", binding.key)
            and destination in ("", binding.destination_exchange)
        ]
    )


def _peek_messages(call: Call) -> None:
    queue = call.node.broker.queues.get(call["name"])
    if queue is None:
        raise NotFound(f"There is no queue {call['name']}", hint="list_queues shows what there is")
    if call.owner is not None:
        queue.check_access(call.owner)
    call.node.lines.spend(LOOKS * call["count"] + call["position"] // LOOKS)
    call.answer(peeked(queue, call["position"], call["count"]))


# -- changes --------------------------------------------------------------------------------------


def _declare_queue(call: Call) -> None:
    broker, name = call.node.broker, call["name"]
    existing = broker.find_queue(name)
    created = existing is None
    _check_reserved("queue", name, created)
    if existing is not None:
        _check_existing_queue(call, existing)
    queue, sequence = broker.declare_queue(
        name,
        durable=call["durable"],
        exclusive=call["exclusive"],
        auto_delete=call["auto_delete"],
        alternate=call["alternate"],
        arguments=call["arguments"],
        owner=call.owner,
        waits=True,
    )
    if created:
        call.done()
    call.answer_when_committed(
        sequence or _declared(call, queue.uid),
        {"created": created, **describe(QUEUE, queue, call.node)},
    )


def _check_existing_queue(call: Call, queue: Queue) -> None:
    """Ask what an attach would before a queue is told of, and may become that of who asks."""
    call.check(Action.ACCESS, ObjectType.QUEUE, queue.name)
    if queue.options.exclusive and call.owner is not None and queue.owner is not call.owner:
        call.check(Action.CONSUME, ObjectType.QUEUE, queue.name)


def _delete_queue(call: Call) -> None:
    name = call["name"]
    messages = len(_queue(call, name).messages)
    deletion = call.node.broker.delete_queue(
        name, if_unused=call["if_unused"], if_empty=call["if_empty"]
    )
    call.done()
    answer = call.later()
    deletion.when_over(lambda: answer(deletion.sequence, {"messages": messages}))


def _purge_queue(call: Call) -> None:
    purge = call.node.broker.purge(_queue(call, call["name"], or_resting=True).name)
    call.done()
    answer = call.later()
    purge.when_over(lambda: answer(purge.sequence, {"messages": purge.count}))


def _replicate(call: Call) -> None:
    node = call.node
    source = node.replication.check_source(call["broker"])
    queue = _queue(call, call["queue"])
    sequence = node.broker.begin_replica(queue.name, source, anew=call["replace"])
    call.answer_when_committed(sequence, {"queue": queue.name, "source": source})


def _stop_replica(call: Call) -> None:
    node, name = call.node, call["queue"]
    was = {row["queue"]: row for row in node.replication.report()["replicas"]}.get(name, {})
    sequence = node.broker.end_replica(name)
    call.answer_when_committed(sequence, was)


def _list_replicas(call: Call) -> None:
    call.answer(call.node.replication.report()["replicas"])


def _move_messages(call: Call) -> None:
    target = call["target"]
    call.check(Action.PUBLISH, ObjectType.QUEUE, target)
    _queue(call, target)
    move = call.node.broker.move(_queue(call, call["name"]).name, target, call["count"])
    call.done()
    answer = call.later()
    move.when_over(
        lambda: answer(
            move.sequence,
            {"messages": move.count, "left": len(move.queue.messages), "stopped": move.stopped},
        )
    )


def _requeue_messages(call: Call) -> None:
    def check(home: Queue) -> None:
        call.check(Action.PUBLISH, ObjectType.QUEUE, home.name)
        if call.owner is not None:
            home.check_access(call.owner)

    queue = _queue(call, call["name"])
    requeue = call.node.broker.requeue(
        queue.name, call["count"], origin=call["origin"], check=check
    )
    call.done()
    answer = call.later()
    requeue.when_over(
        lambda: answer(
            requeue.sequence,
            {
                "messages": requeue.count,
                "left": len(queue.messages),
                "unknown": requeue.unknown,
                "stopped": requeue.why,
            },
        )
    )


def _declare_exchange(call: Call) -> None:
    broker, name = call.node.broker, call["name"]
    created = name not in broker.exchanges
    _check_reserved("exchange", name, created)
    if not created:
        call.check(Action.ACCESS, ObjectType.EXCHANGE, name)
    exchange, sequence = broker.declare_exchange(
        name,
        call["type"],
        durable=call["durable"],
        auto_delete=call["auto_delete"],
        alternate=call["alternate"],
        arguments=call["arguments"],
    )
    if created:
        call.done()
    call.answer_when_committed(
        sequence or _declared(call, exchange.uid),
        {"created": created, **describe(EXCHANGE, exchange, call.node)},
    )


def _delete_exchange(call: Call) -> None:
    sequence = call.node.broker.delete_exchange(call["name"], if_unused=call["if_unused"])
    call.done()
    call.answer_when_committed(sequence, {})


def _bind(call: Call) -> None:
    broker, exchange, queue, key, other = _binding(call)
    if other:
        sequence = broker.bind_exchange(exchange, other, key, call["arguments"])
    else:
        _queue(call, queue)
        sequence = broker.bind(exchange, queue, key, call["arguments"])
    call.done()
    view = BindingView(exchange, queue, key, call["arguments"], other)
    call.answer_when_committed(sequence, describe(BINDING, view, call.node))


def _unbind(call: Call) -> None:
    broker, exchange, queue, key, other = _binding(call)
    if binding_of(broker, exchange, queue, key, other) is None:
        what = f"exchange {other}" if other else f"queue {queue}"
        raise NotFound(
            f"unbind: no binding from exchange {exchange} to {what} with key {key!r}",
            hint="list_bindings shows what there is",
        )
    if other:
        sequence = broker.unbind_exchange(exchange, other, key)
    else:
        _queue(call, queue)
        sequence = broker.unbind(exchange, queue, key)
    call.done()
    call.answer_when_committed(sequence, {})


def _binding(call: Call) -> tuple[Broker, str, str, str, str]:
    """Return the broker and the parts of a binding: the exchange, the queue, the key, and the other
    exchange, which or the queue is empty.
    """
    queue, other = call["queue"], call["destination_exchange"]
    if bool(queue) == bool(other):
        raise InvalidArgument(
            "a binding leads to a queue or to an exchange, and "
            + ("both are named" if queue else "none is named: queue is missing or empty"),
            hint="give queue, or destination_exchange",
        )
    return call.node.broker, call["exchange"], queue, call["key"], other


def _queue(call: Call, name: str, *, or_resting: bool = False) -> Queue:
    """Find a queue that may be changed; the admin socket, which owns nothing, may change each."""
    queue = call.node.broker.queue(name, or_resting=or_resting)
    if call.owner is not None:
        queue.check_access(call.owner)
    return queue


def _check_reserved(kind: str, name: str, created: bool) -> None:
    if created and name.startswith(RESERVED):
        raise RefusedRequest(
            f"the {kind} name {name} begins with a reserved prefix",
            hint=f"reserved are {', '.join(RESERVED)}",
        )


def _declared(call: Call, uid: int) -> int:
    """Return what to wait for when something exists already: its own record may not be committed
    yet.
    """
    return uid if uid > 0 and call.node.broker.log_writer is not None else 0


# -- policies -------------------------------------------------------------------------------------


def _list_policies(is_operator: bool) -> Callable[[Call], None]:
    def handler(call: Call) -> None:
        broker, name = call.node.broker, call["name"]
        call.node.lines.spend((len(broker.followed) + len(broker.policies)) // LOOKS)
        rows = listed(broker.policies, broker.followed.values(), is_operator=is_operator)
        call.answer([row for row in rows if name in ("", row["name"])])

    return handler


def _explain_policies(call: Call) -> None:
    broker, name = call.node.broker, call["exchange"]
    if bool(name) == bool(call["queue"]):
        raise InvalidArgument(
            "explain_policies: name a queue or an exchange, and one of them",
            hint="give queue, or exchange",
        )
    what = broker.exchange(name) if name else broker.queue(call["queue"], or_resting=True)
    call.node.lines.spend(LOOKS * len(broker.policies))
    found = explained_policies(broker.policies, what.options, broker.followed.get(what))
    waiting = "" if isinstance(what, Exchange) else broker.levels.waiting.get(what, "")
    call.answer({**found, "waiting": waiting})


def _policy_of(values: dict[str, Any], is_operator: bool = False) -> PolicySet:
    return policy_asked_for(
        values["name"],
        values["pattern"],
        values["definition"],
        priority=values["priority"],
        apply_to=values["apply_to"],
        is_operator=is_operator,
        is_layer=values["merge"],
    )


def _set_policy(call: Call) -> None:
    _put_policy(call, _policy_of(call.values))


def _set_operator_policy(call: Call) -> None:
    _put_policy(call, _policy_of(call.values, is_operator=True))


def _patch_policy(call: Call) -> None:
    _put_policy(call, _changed_policy(call, _policy(call)))


def _override_policy(call: Call) -> None:
    seconds, present = call["seconds"], _policy(call)
    if not 0 < seconds <= LONGEST_OVERRIDE:
        raise InvalidArgument(
            f"override_policy: parameter seconds is {seconds}", hint=f"use 1 to {LONGEST_OVERRIDE}"
        )
    above = replace(
        present,
        name=f"{OVERRIDE}{present.name}",
        priority=min(present.priority + ABOVE, PRIORITIES - 1),
        expires=call.node.broker.time + seconds * SECOND,
    )
    _put_policy(call, _changed_policy(call, above))


def _policy(call: Call) -> PolicySet:
    name = call["name"]
    found = call.node.broker.policies.get(name)
    if found is None:
        raise NotFound(f"there is no policy {name}", hint="qpid-ha policy list shows them.")
    return found


def _changed_policy(call: Call, present: PolicySet) -> PolicySet:
    """Return a policy with other keys, null for those that it is to have no longer. Who asks must
    be allowed to set it.
    """
    changed = {policy_key(key) for key in call["definition"]}
    kept = {
        key: value for key, value in present.definition.items() if policy_key(key) not in changed
    }
    definition = {**kept, **call["definition"]}
    wanted = policy_asked_for(
        present.name,
        present.pattern,
        {key: value for key, value in definition.items() if value is not None},
        priority=present.priority,
        apply_to=present.apply_to,
        is_layer=present.is_layer,
        expires=present.expires,
    )
    call.check(Action.CREATE, ObjectType.POLICY, wanted.name, _told_of_policy(wanted))
    return wanted


def _put_policy(call: Call, wanted: PolicySet) -> None:
    _answer_when_followed(call, call.node.broker.set_policy(wanted), described(wanted))


def _clear_policy(is_operator: bool) -> Callable[[Call], None]:
    def handler(call: Call) -> None:
        sequence = call.node.broker.clear_policy(call["name"], is_operator=is_operator)
        _answer_when_followed(call, sequence, {})

    return handler


def _answer_when_followed(call: Call, sequence: int, result: object) -> None:
    call.done()
    answer = call.later()
    broker = call.node.broker
    broker.when_followed(lambda: answer(max(sequence, broker.levels.sequence), result))


def _of_policy(values: dict[str, Any]) -> dict[str, Any]:
    return _told_of_policy(_policy_of(values))


def _told_of_policy(wanted: PolicySet) -> dict[str, Any]:
    return {**wanted.settings, "pattern": wanted.pattern, "apply_to": wanted.apply_to}


# -- federation -----------------------------------------------------------------------------------


def _declare_link(call: Call) -> None:
    wanted = link_asked_for(
        call["name"],
        call["addresses"],
        mechanism=call["mechanism"],
        username=call["username"],
        password=call["password"],
        durable=call["durable"],
    )
    node = call.node
    tag = node.federation_tag or node.make_uuid()
    sequence = node.broker.declare_link(wanted, tag)
    call.done()
    call.answer_when_committed(
        sequence, describe(LINK, node.broker.federation.links[wanted.name], node)
    )


def _of_new_link(values: dict[str, Any]) -> dict[str, Any]:
    """Return what is told of a new link, which is never its password."""
    return {"link": values["name"], "durable": values["durable"]}


def _delete_link(call: Call) -> None:
    sequence = call.node.broker.delete_link(call["name"], with_routes=call["with_routes"])
    call.done()
    call.answer_when_committed(sequence, {})


def _declare_route(call: Call) -> None:
    direction, destination_type = call["direction"], call["destination_type"]
    if direction not in DIRECTIONS or destination_type not in ("", "queue", "exchange"):
        raise InvalidArgument(
            f"declare_route: direction is {direction!r}, destination_type {destination_type!r}",
            hint=f"use {' or '.join(DIRECTIONS)} for one, queue, exchange or nothing for the other",
        )
    is_push = direction == "push"
    wanted = RouteDeclared(
        call["name"],
        "",
        call["link"],
        call["kind"],
        call["source"],
        call["destination"],
        is_push=is_push,
        key=call["key"],
        arguments=translate(Kind.BINDING, call["arguments"]),
        excludes=tags_in(call["excludes"]),
        tag=call["tag"],
        ack=call["ack"],
        credit=call["credit"],
        durable=call["durable"],
    )
    check_route(wanted)
    node = call.node
    _check_route(call, is_push=is_push)
    sequence = node.broker.declare_route(wanted, destination_type)
    call.done()
    call.answer_when_committed(
        sequence, describe(ROUTE, node.broker.federation.routes[wanted.name], node)
    )


def _check_route(call: Call, *, is_push: bool) -> None:
    """Ask whether who declares a route may himself do here what the route will do for him."""
    name, kind, said = call["source" if is_push else "destination"], call["kind"], ""
    if not is_push:
        said = call["destination_type"]
        if kind == DYNAMIC or (not said and call.node.broker.find_queue(name) is None):
            said = "exchange"
    if is_push and kind != ROUTE_OF_QUEUE:
        call.check(Action.BIND, ObjectType.EXCHANGE, name, {"routingkey": call["key"]})
    elif is_push:
        call.check(Action.CONSUME, ObjectType.QUEUE, name, {"browse": False})
    elif said == "exchange":
        call.check(Action.PUBLISH, ObjectType.EXCHANGE, name)  # With any key: it comes from there.
    else:
        call.check(Action.PUBLISH, ObjectType.QUEUE, name)


def _delete_route(call: Call) -> None:
    sequence = call.node.broker.delete_route(call["name"])
    call.done()
    call.answer_when_committed(sequence, {})


# -- commands -------------------------------------------------------------------------------------


def _promote(call: Call) -> None:
    call.node.promote(call.reply, call["accept_loss"], call["forget"])


def _demote(call: Call) -> None:
    call.node.demote(call.reply)


def _recover(call: Call) -> None:
    call.node.compare(call.reply, call["forget"])


def _switchover(call: Call) -> None:
    call.node.switchover(call["target"], call.reply)


def _close_connection(call: Call) -> None:
    node, number = call.node, call["id"]
    connection = next((one for one in node.connections() if one.connection_id == number), None)
    if connection is None:
        raise NotFound(
            f"there is no connection {number}", hint="list_connections shows what there is"
        )
    if connection is call.owner:
        raise RefusedRequest(
            f"connection {number} is the one that asks", hint="close it at your end"
        )
    if connection.kind is ConnectionKind.OUTGOING or connection.principal.is_broker:
        raise RefusedRequest(
            f"connection {number} is with another broker",
            reason="replication goes by it",
            hint="close connections of clients",
        )
    found = describe(CONNECTION, connection, node)
    reason = call["reason"]
    node.close_connection(
        connection,
        ConnectionForced(
            f"an administrator closed the connection{f': {reason}' if reason else ''}"
        ),
    )
    call.answer(found)


def _set_public_url(call: Call) -> None:
    try:
        url = parse_url(call["url"])
    except ValueError as error:
        raise InvalidArgument(
            f"set_public_url: url {call['url'][:100]!r}: {error}", hint=f"give {Urls().accepts}"
        ) from error
    call.node.set_public_url(url)
    call.answer({"public_url": str(url)})


def _reload(call: Call) -> None:
    call.node.reload(call.reply)


def _shutdown(call: Call) -> None:
    call.answer({})
    call.node.shutdown()


def _recording(call: Call) -> None:
    call.node.record(None, "", call.reply)


def _recorded(call: Call) -> None:
    kept, trouble = call["kept"], call["trouble"]
    if bool(kept) == bool(trouble):
        raise InvalidArgument(
            "recorded: give what the store keeps, or why that is not known",
            hint='"kept": {...} or "trouble": "..."',
        )
    call.node.record(kept or None, trouble, call.reply)


# -- the table ------------------------------------------------------------------------------------

_PAGE = (
    Parameter("limit", Type.NUMBER, "list so many at most, in the order of their names; 0 is all"),
    Parameter("after", Type.TEXT, "list those behind this name, in that order"),
    Parameter(
        "fields",
        Type.TEXT,
        "fields to show, with spaces or commas between; empty is all",
        longest=1000,
    ),
)
_MATCH = (
    Parameter("name", Type.TEXT, "list the one of this name"),
    Parameter("match", Type.TEXT, "list those whose name contains this"),
    *_PAGE,
)
_MATCH_ID = (
    Parameter("name", Type.TEXT, "list the one with this id"),
    Parameter("match", Type.TEXT, "list those whose id contains this"),
    *_PAGE,
)
_FORGET = Parameter(
    "forget",
    Type.TEXT,
    "brokers that will not come back, by address, name or system id, with spaces between",
)
_ALTERNATE = Parameter(
    "alternate",
    Type.TEXT,
    "exchange for messages that are rejected or pushed out, or go to no queue",
    aliases=("altExchange", "alternateExchange"),
)
_QUEUE_NAME = Parameter("name", Type.NAME, "name of the queue")
_EXCHANGE_NAME = Parameter("name", Type.NAME, "name of the exchange")
_BINDING = (
    Parameter("exchange", Type.NAME, "name of the exchange"),
    Parameter("queue", Type.TEXT, "name of the queue"),
    Parameter("key", Type.TEXT, "binding key", aliases=("bindingKey",)),
    Parameter("destination_exchange", Type.TEXT, "in place of the queue: name of another exchange"),
)

_POLICY_NAME = Parameter("name", Type.NAME, "name of the policy")
_DEFINITION = Parameter("definition", Type.MAP, "what it sets, such as `max-length`")
_POLICY = (
    _POLICY_NAME,
    Parameter(
        "pattern",
        Type.TEXT,
        "regular expression, looked for anywhere in a name",
        longest=LONGEST_PATTERN,
    ),
    _DEFINITION,
    Parameter(
        "priority", Type.NUMBER, "of several that match the highest counts", least=-PRIORITIES
    ),
    Parameter(
        "apply_to",
        Type.TEXT,
        f"what it is for: {', '.join(APPLY_TO)}",
        default="all",
        aliases=("apply-to",),
    ),
    Parameter("merge", Type.FLAG, "let it count beside others, as a layer"),
)
OVERRIDE, ABOVE = "override.", 100
"""How the name of an override begins, and how much higher its priority is."""
LONGEST_OVERRIDE = 366 * 86400
"""Seconds."""

_LINK_NAME = Parameter("name", Type.NAME, "name of the link")
_ROUTE_NAME = Parameter("name", Type.NAME, "name of the route")

METHODS: tuple[Method, ...] = (
    Method(
        "help",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List the methods, or explain one.",
        "a list of methods with their parameters",
        _help,
        (Parameter("method", Type.TEXT, "explain this one only"),),
        properties=_of_class("broker"),
    ),
    Method(
        "ping",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "Show that the broker answers.",
        "`state`",
        _ping,
        properties=_of_class("broker"),
    ),
    Method(
        "status",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "Show state, epoch, primary, in-sync set and members, as `qpid-ha status` does.",
        "the status report; fields are only ever added",
        _status,
        routes=("GET /ha/status",),
        properties=_of_class("habroker"),
    ),
    Method(
        "query",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "Show the configuration of high availability.",
        "`state`, `system_id`, `brokers_url`, `public_url`, `replicate`",
        _query,
        properties=_of_class("habroker"),
    ),
    Method(
        "members",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List the brokers of the cluster as this one sees them.",
        "a list of members, as in the status report",
        _members,
        routes=("GET /ha/members",),
        properties=_of_class("habroker"),
    ),
    Method(
        "explain",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "Show what the broker waits for, which queues have unreplicated messages, and which links, "
        "routes and replicas do not what they are for.",
        "`waits`, `queues`, `unwell`, and counts",
        _explain,
        operations=((HABROKER, "EXPLAIN"),),
        routes=("GET /ha/explain",),
        properties=_of_class("habroker"),
    ),
    Method(
        "statistics",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "Add up all queues and connections: what there is, and totals of what came and went.",
        "counts of this moment, and totals since the broker began or was given all objects anew; "
        "totals of deleted queues stay in. `unsafe_messages` are replicated messages on a primary "
        "without a ready backup; `connections` is by who opened them, `departures` by the cause; "
        "`commit_seconds` and `sync_seconds` have counts in buckets, whose upper ends are `bounds`",
        _statistics,
        properties=_of_class("broker"),
    ),
    Method(
        "list_queues",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List queues.",
        "a list of queues with the fields of the class `queue`",
        _list(QUEUE),
        _MATCH,
        routes=("GET /queues", "GET /queues/{name}"),
        properties=_of_class("queue"),
    ),
    Method(
        "peek_messages",
        Effect.READ,
        Action.CONSUME,
        ObjectType.QUEUE,
        "Show messages of a queue in the order in which they came, and change nothing; on a backup "
        "what it has.",
        "a list of messages: `position`, `sequence`, `bytes`, `acquired`, `delivery_count`, "
        "`expires` (ns since 1970, 0 is never), `due` (until when nobody gets it; 0 is now), "
        "`header`, `properties`, `application_properties`, `message_annotations` (null if it is "
        "large), `body`: `text` or `hex`, and `is_cut`",
        _peek_messages,
        (
            _QUEUE_NAME,
            Parameter("position", Type.NUMBER, "the first one to show; 1 is the oldest", default=1),
            Parameter("count", Type.NUMBER, f"how many, up to {MOST}", default=1),
        ),
        operations=((QUEUE, "PEEK"),),
        schema=IN_QUEUE,
    ),
    Method(
        "list_exchanges",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List exchanges.",
        "a list of exchanges with the fields of the class `exchange`",
        _list(EXCHANGE),
        _MATCH,
        routes=("GET /exchanges", "GET /exchanges/{name}"),
        properties=_of_class("exchange"),
    ),
    Method(
        "list_bindings",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List bindings; those to the default exchange are implied and not listed.",
        "a list of bindings with the fields of the class `binding`",
        _list_bindings,
        (
            Parameter("exchange", Type.TEXT, "list those of this exchange"),
            Parameter("queue", Type.TEXT, "list those of this queue"),
            Parameter("key", Type.TEXT, "list those with this key"),
            Parameter("destination_exchange", Type.TEXT, "list those to this exchange"),
        ),
        routes=("GET /bindings",),
        properties=_of_class("binding"),
    ),
    Method(
        "list_connections",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List AMQP connections, oldest first.",
        "a list of connections with the fields of the class `connection`",
        _list(CONNECTION, connection_number),
        _MATCH_ID,
        routes=("GET /connections",),
        properties=_of_class("connection"),
    ),
    Method(
        "list_sessions",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List the sessions of AMQP connections.",
        "a list of sessions with the fields of the class `session`; an id is `CONNECTION/CHANNEL`",
        _list(SESSION, session_number),
        _MATCH_ID,
        routes=("GET /sessions",),
        properties=_of_class("session"),
    ),
    Method(
        "list_subscriptions",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List who consumes from which queue.",
        "a list of consumers with the fields of the class `subscription`; an id is "
        "`CONNECTION/LINK`",
        _list(SUBSCRIPTION, subscription_number),
        _MATCH_ID,
        routes=("GET /subscriptions",),
        properties=_of_class("subscription"),
    ),
    Method(
        "events",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "Tell the last events of this broker's life: its states, promotions, other brokers, "
        "clients, queues, limits, errors.",
        "`name`, `now_ns` and `events`, oldest first: each has `at_ns`, which no other event of "
        "this broker has, `kind`, `text`, and by its kind `what`, `state`, `epoch`, `about`, "
        "`queue`, `count`, `in_sync`, `error`",
        _events,
        (
            Parameter("after", Type.NUMBER, "those behind this `at_ns`, the first ones of them"),
            Parameter("limit", Type.NUMBER, "so many at most; 0 is all"),
            Parameter("kinds", Type.TEXT, f"of these kinds only: {', '.join(SHOWN)}"),
        ),
        properties=_of_class("broker"),
    ),
    Method(
        "list_policies",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List policies, the one that counts most first.",
        "a list of policies as they were given, with `matches`, `in_effect_on`, `shadowed_by` and "
        "`warning`",
        _list_policies(False),
        (Parameter("name", Type.TEXT, "list the one of this name"),),
        routes=("GET /policies", "GET /policies/{name}"),
        properties=_of_class("policy"),
    ),
    Method(
        "list_operator_policies",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List operator policies, the one that counts most first.",
        "a list as of `list_policies`",
        _list_policies(True),
        (Parameter("name", Type.TEXT, "list the one of this name"),),
        routes=("GET /operator-policies", "GET /operator-policies/{name}"),
        properties=_of_class("policy"),
    ),
    Method(
        "explain_policies",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "Say of each policy why it counts for a queue, or an exchange, or does not, and what comes "
        "of them all.",
        "`queue` or `exchange`, `policies`, `settings`, and `waiting`: why a queue keeps its "
        "replicate level",
        _explain_policies,
        (
            Parameter("queue", Type.TEXT, "name of the queue"),
            Parameter("exchange", Type.TEXT, "in place of the queue: name of an exchange"),
        ),
        properties=_of_class("policy"),
    ),
    Method(
        "log_level",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "Tell what is logged.",
        "`level`, which `set_log_level` takes; the same as `log_enable` and `log_disable`",
        _log_level,
        properties=_of_class("broker"),
    ),
    Method(
        "acl",
        Effect.READ,
        Action.ACCESS,
        ObjectType.ACL,
        "Show the access control list that the broker enforces.",
        "`file`, which is empty where there is none, `rules`, `last_word`, `groups`, `hosts` and "
        "`quotas`",
        _acl,
    ),
    Method(
        "declare_queue",
        Effect.CHANGE,
        Action.CREATE,
        ObjectType.QUEUE,
        "Create a queue, or check that it exists as asked for.",
        "`created`, and the fields of the class `queue`",
        _declare_queue,
        (
            _QUEUE_NAME,
            Parameter("durable", Type.FLAG, "keep it, and its durable messages, on disk"),
            Parameter("exclusive", Type.FLAG, "let only the connection that asks use it"),
            Parameter("auto_delete", Type.FLAG, "delete it when its last consumer leaves"),
            _ALTERNATE,
            Parameter("arguments", Type.MAP, "limits and other options, such as `qpid.max_count`"),
        ),
        operations=((QUEUE, "CREATE"),),
        routes=("PUT /queues/{name}",),
        properties=_of_queue,
        schema=IN_BROKER,
        qpid_name="create",
    ),
    Method(
        "delete_queue",
        Effect.CHANGE,
        Action.DELETE,
        ObjectType.QUEUE,
        "Delete a queue and its messages.",
        "`messages`: how many were on it",
        _delete_queue,
        (
            _QUEUE_NAME,
            Parameter("if_unused", Type.FLAG, "refuse while it has consumers"),
            Parameter("if_empty", Type.FLAG, "refuse while it has messages"),
        ),
        operations=((QUEUE, "DELETE"),),
        routes=("DELETE /queues/{name}",),
        schema=IN_BROKER,
        qpid_name="delete",
    ),
    Method(
        "purge_queue",
        Effect.CHANGE,
        Action.PURGE,
        ObjectType.QUEUE,
        "Remove the available messages of a queue.",
        "`messages`: how many were discarded",
        _purge_queue,
        (_QUEUE_NAME,),
        operations=((QUEUE, "PURGE"),),
        routes=("DELETE /queues/{name}/messages",),
        schema=IN_QUEUE,
        qpid_name="purge",
    ),
    Method(
        "move_messages",
        Effect.CHANGE,
        Action.CONSUME,
        ObjectType.QUEUE,
        "Move messages that no consumer has to another queue, each exactly once.",
        "`messages`: how many were moved, `left`: how many are on the queue still, and `stopped`: "
        "why no more, if the target has no room",
        _move_messages,
        (
            _QUEUE_NAME,
            Parameter("target", Type.NAME, "name of the other queue"),
            Parameter("count", Type.NUMBER, "so many of them, the first ones; 0 is all"),
        ),
        operations=((QUEUE, "MOVE"),),
        properties=_of_move,
        schema=IN_BROKER,
        qpid_name="queueMoveMessages",
    ),
    Method(
        "requeue_messages",
        Effect.CHANGE,
        Action.CONSUME,
        ObjectType.QUEUE,
        "Send dead letters, and what was delivered too often, back to the queues on which they "
        "died, each exactly once.",
        "`messages`: how many went back, `left`: how many are on the queue still, `unknown`: how "
        "many were looked at that do not say on which queue they died, and `stopped`: why others "
        "stay, if their queues do not take them",
        _requeue_messages,
        (
            _QUEUE_NAME,
            Parameter("count", Type.NUMBER, "so many of them, the first ones; 0 is all"),
            Parameter("origin", Type.TEXT, "only those that died on the queue of this name"),
        ),
        operations=((QUEUE, "REQUEUE"),),
        schema=IN_QUEUE,
    ),
    Method(
        "declare_exchange",
        Effect.CHANGE,
        Action.CREATE,
        ObjectType.EXCHANGE,
        "Create an exchange, or check that it exists as asked for.",
        "`created`, and the fields of the class `exchange`",
        _declare_exchange,
        (
            _EXCHANGE_NAME,
            Parameter(
                "type",
                Type.TEXT,
                "`direct` (the default), `topic`, `fanout` or `headers`",
                default="direct",
                aliases=("exchangeType",),
            ),
            Parameter("durable", Type.FLAG, "keep it on disk"),
            Parameter("auto_delete", Type.FLAG, "delete it with its last binding"),
            _ALTERNATE,
            Parameter("arguments", Type.MAP, "options"),
        ),
        operations=((EXCHANGE, "CREATE"),),
        routes=("PUT /exchanges/{name}",),
        properties=_of_exchange,
        schema=IN_BROKER,
        qpid_name="create",
    ),
    Method(
        "delete_exchange",
        Effect.CHANGE,
        Action.DELETE,
        ObjectType.EXCHANGE,
        "Delete an exchange and its bindings.",
        "nothing",
        _delete_exchange,
        (_EXCHANGE_NAME, Parameter("if_unused", Type.FLAG, "refuse while it has bindings")),
        operations=((EXCHANGE, "DELETE"),),
        routes=("DELETE /exchanges/{name}",),
        schema=IN_BROKER,
        qpid_name="delete",
    ),
    Method(
        "bind",
        Effect.CHANGE,
        Action.BIND,
        ObjectType.EXCHANGE,
        "Bind a queue, or another exchange, to an exchange.",
        "the fields of the class `binding`",
        _bind,
        (*_BINDING, Parameter("arguments", Type.MAP, "what a headers exchange is to match")),
        operations=((EXCHANGE, "BIND"), (BINDING, "CREATE")),
        routes=("POST /bindings",),
        properties=_of_new_binding,
        schema=IN_BROKER,
        qpid_name="create",
    ),
    Method(
        "unbind",
        Effect.CHANGE,
        Action.UNBIND,
        ObjectType.EXCHANGE,
        "Remove a binding.",
        "nothing",
        _unbind,
        _BINDING,
        operations=((EXCHANGE, "UNBIND"), (BINDING, "DELETE")),
        routes=("DELETE /bindings/{binding}",),
        properties=_of_binding,
        schema=IN_BROKER,
        qpid_name="delete",
    ),
    Method(
        "set_policy",
        Effect.CHANGE,
        Action.CREATE,
        ObjectType.POLICY,
        "Set a policy, in place of one that has its name; answered when all queues and exchanges "
        "follow it.",
        "the policy",
        _set_policy,
        _POLICY,
        routes=("PUT /policies/{name}",),
        properties=_of_policy,
        schema=IN_BROKER,
    ),
    Method(
        "patch_policy",
        Effect.CHANGE,
        Action.CREATE,
        ObjectType.POLICY,
        "Change some keys of a policy; null drops one.",
        "the policy",
        _patch_policy,
        (_POLICY_NAME, _DEFINITION),
        schema=IN_BROKER,
    ),
    Method(
        "override_policy",
        Effect.CHANGE,
        Action.CREATE,
        ObjectType.POLICY,
        "Set a policy `override.NAME` with other keys and a higher priority, for a time.",
        "the new policy",
        _override_policy,
        (_POLICY_NAME, _DEFINITION, Parameter("seconds", Type.NUMBER, "when it ends by itself")),
        schema=IN_BROKER,
    ),
    Method(
        "clear_policy",
        Effect.CHANGE,
        Action.DELETE,
        ObjectType.POLICY,
        "Take a policy away; answered when no queue and no exchange follows it.",
        "nothing",
        _clear_policy(False),
        (_POLICY_NAME,),
        routes=("DELETE /policies/{name}",),
        schema=IN_BROKER,
    ),
    Method(
        "set_operator_policy",
        Effect.CHANGE,
        Action.CREATE,
        ObjectType.OPERATOR_POLICY,
        "Set a policy that comes before what queues, exchanges and policies ask for.",
        "the policy",
        _set_operator_policy,
        _POLICY,
        routes=("PUT /operator-policies/{name}",),
        schema=IN_BROKER,
    ),
    Method(
        "clear_operator_policy",
        Effect.CHANGE,
        Action.DELETE,
        ObjectType.OPERATOR_POLICY,
        "Take an operator policy away.",
        "nothing",
        _clear_policy(True),
        (_POLICY_NAME,),
        routes=("DELETE /operator-policies/{name}",),
        schema=IN_BROKER,
    ),
    Method(
        "list_links",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List the links to other brokers: where each leads, its state and its last error.",
        "a list of objects with the fields of the class `link`; never a password",
        _list(LINK),
        _MATCH,
        routes=("GET /links",),
        properties=_of_class("link"),
    ),
    Method(
        "declare_link",
        Effect.CHANGE,
        Action.CREATE,
        ObjectType.LINK,
        "Create a link to another broker or cluster, or change one.",
        "the fields of the class `link`",
        _declare_link,
        (
            _LINK_NAME,
            Parameter(
                "addresses",
                Type.TEXT,
                "where the other end is: `amqp://HOST:PORT` or `amqps://HOST:PORT`, of a cluster "
                "those of all its brokers with commas between",
                longest=4096,
            ),
            Parameter("mechanism", Type.TEXT, "SASL mechanism; empty chooses one"),
            Parameter("username", Type.TEXT, "user that logs in at the other end"),
            Parameter("password", Type.TEXT, "password of that user"),
            Parameter("durable", Type.FLAG, "keep it on disk"),
        ),
        properties=_of_new_link,
        schema=IN_BROKER,
    ),
    Method(
        "delete_link",
        Effect.CHANGE,
        Action.DELETE,
        ObjectType.LINK,
        "Delete a link to another broker.",
        "nothing",
        _delete_link,
        (_LINK_NAME, Parameter("with_routes", Type.FLAG, "delete its routes as well")),
        schema=IN_BROKER,
    ),
    Method(
        "list_routes",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List the routes over links to other brokers: their ends, states, errors and counts.",
        "a list of objects with the fields of the class `route`",
        _list(ROUTE),
        _MATCH,
        routes=("GET /routes",),
        properties=_of_class("bridge"),
    ),
    Method(
        "declare_route",
        Effect.CHANGE,
        Action.CREATE,
        ObjectType.ROUTE,
        "Create a route, which moves messages over a link from its source to its destination.",
        "the fields of the class `route`",
        _declare_route,
        (
            _ROUTE_NAME,
            Parameter("link", Type.NAME, "name of the link that it goes over"),
            Parameter("source", Type.NAME, "a queue, or an exchange, as its broker calls it"),
            Parameter("destination", Type.NAME, "a queue or an exchange, as its broker calls it"),
            Parameter(
                "kind", Type.TEXT, f"what the source is: {', '.join(KINDS)}", default="queue"
            ),
            Parameter(
                "direction",
                Type.TEXT,
                "`pull` if the source is at the other end, `push` if it is here",
                default="pull",
            ),
            Parameter(
                "destination_type",
                Type.TEXT,
                "of a destination here: `queue` or `exchange`; empty finds out",
            ),
            Parameter("key", Type.TEXT, "binding key, if the source is an exchange"),
            Parameter("arguments", Type.MAP, "binding arguments, if it is a headers exchange"),
            Parameter(
                "excludes",
                Type.TEXT,
                "tags of brokers, with commas between, whose messages do not go over the route",
                longest=4096,
            ),
            Parameter("tag", Type.TEXT, "a further tag for the messages that go over it"),
            Parameter("ack", Type.NUMBER, "settle so many messages together", default=1),
            Parameter("credit", Type.NUMBER, "have so many on their way at most; 0 is link-credit"),
            Parameter("durable", Type.FLAG, "keep it on disk, and what it has at the source"),
        ),
        schema=IN_BROKER,
    ),
    Method(
        "delete_route",
        Effect.CHANGE,
        Action.DELETE,
        ObjectType.ROUTE,
        "Delete a route, and what it has of its own at both ends.",
        "nothing",
        _delete_route,
        (_ROUTE_NAME,),
        schema=IN_BROKER,
    ),
    Method(
        "promote",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Make this broker the primary, if no acknowledged message can be lost by that.",
        "`state` and `epoch`",
        _promote,
        (Parameter("accept_loss", Type.FLAG, "do it though messages may be lost"), _FORGET),
        operations=((HABROKER, "PROMOTE"),),
        schema=IN_HA,
    ),
    Method(
        "demote",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Make a primary a backup again.",
        "`state` and `epoch`",
        _demote,
        operations=((HABROKER, "DEMOTE"),),
        schema=IN_HA,
    ),
    Method(
        "recover",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Compare what all brokers have, and recommend which one to promote; change nothing.",
        "`recommended`, `reason`, `newest_set`, `brokers`",
        _recover,
        (_FORGET,),
        operations=((HABROKER, "RECOVER"),),
        schema=IN_HA,
    ),
    Method(
        "switchover",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Move the primary role to another broker without losing messages.",
        "the new primary and how long it took",
        _switchover,
        (Parameter("target", Type.TEXT, "address or system id; empty chooses the best backup"),),
        operations=((HABROKER, "SWITCHOVER"),),
        schema=IN_HA,
    ),
    Method(
        "replicate",
        Effect.CHANGE,
        Action.UPDATE,
        ObjectType.BROKER,
        "Make a queue a replica of the queue of its name at another broker or cluster.",
        "`queue` and `source`",
        _replicate,
        (
            Parameter(
                "broker", Type.NAME, "URL of the source: host:port, or several", longest=1000
            ),
            Parameter("queue", Type.NAME, "name of the queue, which exists on both"),
            Parameter("replace", Type.FLAG, "give up what is on it for what the source has"),
        ),
        operations=((HABROKER, "REPLICATE"),),
        schema=IN_HA,
    ),
    Method(
        "stop_replica",
        Effect.CHANGE,
        Action.UPDATE,
        ObjectType.BROKER,
        "Make a replica a queue of its own, with all that is on it.",
        "`queue`, `messages`, `state`, `behind`, `late_ns`, `whole`: how it was",
        _stop_replica,
        (Parameter("queue", Type.NAME, "name of the queue"),),
        operations=((HABROKER, "STOP_REPLICA"),),
        schema=IN_HA,
    ),
    Method(
        "list_replicas",
        Effect.READ,
        Action.ACCESS,
        ObjectType.QUERY,
        "List the queues here that are replicas of queues elsewhere, and how far they have come.",
        "a list of `queue`, `source`, `state`, `whole`, `messages`, `behind`, `late_ns`, "
        "`since_ns`, `position`, `lineage`, `error`",
        _list_replicas,
        operations=((HABROKER, "LIST_REPLICAS"),),
        properties=_of_class("queue"),
    ),
    Method(
        "close_connection",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Close the connection of a client; what it had not settled goes back to its queues.",
        "the fields of the class `connection`",
        _close_connection,
        (
            Parameter("id", Type.NUMBER, "of the connection, as `list_connections` has it"),
            Parameter("reason", Type.TEXT, "what the client and the log are told"),
        ),
        schema=IN_CONNECTION,
        qpid_name="close",
    ),
    Method(
        "set_public_url",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Tell clients other addresses than those of `ha-public-url`, until the broker stops.",
        "`public_url`",
        _set_public_url,
        (Parameter("url", Type.TEXT, "as of `ha-public-url`; `none` is none", longest=1000),),
        schema=IN_HA,
        qpid_name="setPublicUrl",
    ),
    Method(
        "set_log_level",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Log other things, until the log's options are read again.",
        "what `log_level` answers",
        _set_log_level,
        (
            Parameter(
                "level",
                Type.TEXT,
                "selectors as of `log-enable`, with commas between, and with ! before those of "
                "`log-disable`",
                longest=1000,
            ),
        ),
        schema=IN_BROKER,
        qpid_name="setLogLevel",
    ),
    Method(
        "reload",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Read users, the access control list, certificates and the log's options again, as SIGHUP "
        "does.",
        "`warnings`, such as which changed options need a restart",
        _reload,
        schema=IN_BROKER,
    ),
    Method(
        "shutdown",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.BROKER,
        "Stop the broker.",
        "nothing",
        _shutdown,
        schema=IN_BROKER,
    ),
    Method(
        "recording",
        Effect.COMMAND,
        Action.ACCESS,
        ObjectType.MEMBERSHIP,
        "Wait until the broker wants the manager's store to keep an in-sync set, and show which.",
        "`wanted`",
        _recording,
    ),
    Method(
        "recorded",
        Effect.COMMAND,
        Action.UPDATE,
        ObjectType.MEMBERSHIP,
        "Tell the broker which in-sync set the manager's store keeps, or why that is unknown.",
        "nothing",
        _recorded,
        (
            Parameter("kept", Type.MAP, "`epoch`, `version` and `members` of the kept set"),
            Parameter("trouble", Type.TEXT, "why the store's content is unknown"),
        ),
    ),
)
"""The methods, reads first."""

BY_NAME = {method.name: method for method in METHODS}


def find(name: str) -> Method:
    """Return the method of that name; raise NotImplementedHere with the nearest name there is."""
    found = BY_NAME.get(name)
    if found is None:
        raise unknown("method", name, BY_NAME)
    return found


def unknown(kind: str, name: str, offered: Any) -> NotImplementedHere:
    """Return the error for a method or operation that does not exist."""
    near = get_close_matches(name, offered, 1)
    hint = f"did you mean {near[0]}?" if near else f"{kind}s: {', '.join(offered)}"
    return NotImplementedHere(f"there is no {kind} {name[:100]!r}", hint=hint)


def reference(method: Method) -> dict[str, Any]:
    """Describe a method as plain data."""
    return {
        "name": method.name,
        "help": method.help,
        "effect": method.effect.value,
        "access": method.access,
        "parameters": [
            {
                "name": each.name,
                "type": each.type.value,
                "required": each.is_required,
                "help": each.help,
            }
            for each in method.parameters
        ],
        "answers": method.answers,
        "operations": [f"{name} {kind.type}" for kind, name in method.operations],
        "routes": list(method.routes),
    }
