"""Definitions: the queues, exchanges, bindings, policies, links and routes of a cluster as one JSON
document.

`exported` reads them from a broker, `read` reads a document, `planned` compares one with what a
broker has, and `carry_out` makes the broker have it. A document says what was asked for: neither
messages nor counters, nothing that ends with a connection, and of what the broker decides only what
cannot be decided again. So a document can be brought into a cluster twice, and what comes out of a
new cluster is what was put in.

Reads no files; a broker is reached by the `call` of a conversation with it. Source: RabbitMQ's
`export_definitions` and `import_definitions`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from qpidha.broker.declaration import (
    check_exchange,
    check_queue,
    check_same,
    exchange_asked_for,
    queue_asked_for,
)
from qpidha.broker.exchange import EXCHANGE_TYPES
from qpidha.broker.federation import DIRECTIONS, check_route, link_asked_for, tags_in
from qpidha.broker.policy import policy_asked_for
from qpidha.broker.queues.arguments import check_key, check_name, check_plain
from qpidha.broker.queues.delivery_limit import DEFAULT_LIMIT, DELIVERY_LIMIT
from qpidha.broker.queues.lifetime import LIFETIME_POLICY, Lifetime
from qpidha.broker.queues.limits import FLOW_STOP_COUNT, FLOW_STOP_SIZE, POLICY_TYPE
from qpidha.broker.translation import translate
from qpidha.broker.vocabulary import OVERFLOW, QUEUE_TYPE, QUORUM, REJECT_PUBLISH, TABLE
from qpidha.broker.vocabulary import Kind as Place
from qpidha.client.command.exits import Failure
from qpidha.model.errors import InvalidArgument, NotFound, PreconditionFailed, RefusedRequest
from qpidha.model.exit_codes import NO, NO_PERMISSION
from qpidha.model.records import BUILT_IN_EXCHANGES, ExchangeDeclared, QueueDeclared, RouteDeclared
from qpidha.model.replication_level import ALL, HA_UUID, REPLICATE, resolve

SCHEMA_VERSION = 1
TEMPORARY = re.compile(r"Temp(Queue|Topic)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Names of the nodes that brokers make for one link."""
RESERVED = ("amq.", "qpid.", "qpidha.", "$")
"""Beginnings of names that only brokers give."""

Call = Callable[[str, dict[str, Any]], Any]
"""Asks a broker: method and parameters to its result. Raises Failure."""


class Kind(StrEnum):
    """What a definition is of."""

    EXCHANGE = "exchange"
    QUEUE = "queue"
    BINDING = "binding"
    POLICY = "policy"
    OPERATOR_POLICY = "operator policy"
    LINK = "link"
    ROUTE = "route"


SECTIONS = {
    "exchanges": Kind.EXCHANGE,
    "queues": Kind.QUEUE,
    "bindings": Kind.BINDING,
    "policies": Kind.POLICY,
    "operator_policies": Kind.OPERATOR_POLICY,
    "links": Kind.LINK,
    "routes": Kind.ROUTE,
}
"""Lists of a document, in the order in which they are brought in: what others name comes first."""
POLICY_FIELDS = {
    "name": "",
    "pattern": "",
    "apply_to": "all",
    "priority": 0,
    "merge": False,
    "definition": {},
}
FIELDS: dict[Kind, dict[str, Any]] = {
    Kind.EXCHANGE: {
        "name": "",
        "type": "",
        "durable": False,
        "auto_delete": False,
        "alternate": "",
        "arguments": {},
    },
    Kind.QUEUE: {
        "name": "",
        "durable": False,
        "auto_delete": False,
        "alternate": "",
        "arguments": {},
    },
    Kind.BINDING: {
        "exchange": "",
        "queue": "",
        "destination_exchange": "",
        "key": "",
        "arguments": {},
    },
    Kind.POLICY: POLICY_FIELDS,
    Kind.OPERATOR_POLICY: POLICY_FIELDS,
    Kind.LINK: {"name": "", "addresses": "", "mechanism": "", "username": "", "durable": False},
    Kind.ROUTE: {
        "name": "",
        "link": "",
        "kind": "queue",
        "direction": "pull",
        "source": "",
        "destination": "",
        "destination_type": "",
        "key": "",
        "arguments": {},
        "excludes": "",
        "tag": "",
        "ack": 1,
        "credit": 0,
        "durable": False,
    },
}
"""Fields of a definition, each with what counts if it is left out, which is of its type."""
NEEDED = {
    Kind.EXCHANGE: ("name", "type"),
    Kind.QUEUE: ("name",),
    Kind.BINDING: ("exchange",),
    Kind.POLICY: ("name", "pattern", "definition"),
    Kind.OPERATOR_POLICY: ("name", "pattern", "definition"),
    Kind.LINK: ("name", "addresses"),
    Kind.ROUTE: ("name", "link", "source", "destination"),
}
METHODS = {
    Kind.EXCHANGE: "declare_exchange",
    Kind.QUEUE: "declare_queue",
    Kind.BINDING: "bind",
    Kind.POLICY: "set_policy",
    Kind.OPERATOR_POLICY: "set_operator_policy",
    Kind.LINK: "declare_link",
    Kind.ROUTE: "declare_route",
}


class Outcome(StrEnum):
    """What became of a definition, or would become of it."""

    CREATED = "created"
    UNCHANGED = "unchanged"
    CHANGED = "changed"  # a policy, or what a binding says: these may change at any time
    DIFFERS = "differs"  # a queue or an exchange is there as something else, and stays so
    REFUSED = "refused"
    NOT_TRIED = "not tried"  # the broker could not be asked any more


FAILED = (Outcome.DIFFERS, Outcome.REFUSED, Outcome.NOT_TRIED)


@dataclass(frozen=True, slots=True)
class Definition:
    """One object that a document asks for, with every field of its kind."""

    kind: Kind
    values: dict[str, Any]
    where: str = ""
    """Its place in the document, such as `queues[3]`."""

    @property
    def identity(self) -> tuple[str, ...]:
        """What tells it from others of its kind."""
        if self.kind is Kind.BINDING:
            names = ("exchange", "queue", "destination_exchange", "key")
            return tuple(self.values[name] for name in names)
        return (self.values["name"],)

    @property
    def name(self) -> str:
        """What it is called; a binding has no name, and says from where to where it leads."""
        if self.kind is not Kind.BINDING:
            return str(self.values["name"])
        exchange, queue, other, key = self.identity
        return f"{exchange} -> {f'exchange {other}' if other else queue} {key!r}"

    @property
    def title(self) -> str:
        """What it is."""
        return f"{self.kind} {self.name}"


@dataclass(slots=True)
class Step:
    """What is to be done for one definition, and what came of it."""

    definition: Definition
    outcome: Outcome
    reason: str = ""
    """Why it is not as the document says, or what changes."""
    hint: str = ""


# -- documents ------------------------------------------------------------------------------------


def written(definitions: Iterable[Definition]) -> str:
    """Return a document: the same definitions are the same text, whatever their order was."""
    content: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    ordered = sorted(definitions, key=lambda one: one.identity)
    for section, kind in SECTIONS.items():
        content[section] = [_shown(one) for one in ordered if one.kind is kind]
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _shown(one: Definition) -> dict[str, Any]:
    """Leave out the empty end of a binding: it leads to a queue or to an exchange."""
    ends = ("queue", "destination_exchange") if one.kind is Kind.BINDING else ()
    return {name: value for name, value in one.values.items() if value or name not in ends}


def parsed(text: str) -> dict[str, Any]:
    """Read JSON, strictly: a key that is there twice, or a number that is none, may hide what was
    meant. Raises InvalidArgument.
    """
    try:
        content = json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
        json.dumps(content, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise InvalidArgument(
            f"line {error.lineno}, column {error.colno}: it is no JSON",
            reason=error.msg.lower(),
            hint="mend it, or export it again",
        ) from None
    except UnicodeEncodeError:
        raise InvalidArgument(
            "it contains a surrogate, which UTF-8 cannot carry", hint="use Unicode characters"
        ) from None
    except RecursionError:
        raise InvalidArgument("it is nested too deep", hint="use flatter values") from None
    if not isinstance(content, dict):
        raise InvalidArgument(
            "it is no JSON object", hint="a document has lists such as queues and bindings"
        )
    return content


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"the key {twice!r} is in one object twice", hint="keep one")
    return found


def _no_number(text: str) -> None:
    raise InvalidArgument(f"{text} is no number of JSON", hint="use finite numbers")


def read(text: str) -> list[Definition]:
    """Read a document, in the order in which it is to be brought in. Raises RefusedRequest for the
    first thing in it that no broker would take, with its place.
    """
    content = parsed(text)
    version = content.pop("schema_version", None)
    if version != SCHEMA_VERSION:
        raise InvalidArgument(
            f"schema_version is {json.dumps(version)}",
            reason=f"this program reads {SCHEMA_VERSION}",
            hint="qpid-ha definitions export writes such a document; --from reads those of other "
            "brokers",
        )
    for section in content:
        if section not in SECTIONS:
            raise InvalidArgument(
                f"{section!r} is not known", hint=f"known are {', '.join(SECTIONS)}"
            )
    found: list[Definition] = []
    for section, kind in SECTIONS.items():
        rows = content.get(section, [])
        if not isinstance(rows, list):
            raise InvalidArgument(f"{section} is no list", hint=f"a list of {kind.value}s")
        found += [_read(kind, row, f"{section}[{number}]") for number, row in enumerate(rows)]
    return in_order(found)


def in_order(definitions: list[Definition]) -> list[Definition]:
    """Check definitions, and put them into the order in which they can be made. Raises
    RefusedRequest for one that no broker would take, and for two of one object.
    """
    types = {name: type for name, (_, type) in BUILT_IN_EXCHANGES.items()}
    seen: dict[tuple[Kind, tuple[str, ...]], str] = {}
    for one in definitions:
        if one.kind is Kind.EXCHANGE:
            types[one.name] = one.values["type"]
        former = seen.setdefault((one.kind, one.identity), one.where)
        if former != one.where:
            raise InvalidArgument(
                f"{one.where}: {one.title} is there twice",
                reason=f"it is {former} already",
                hint="keep one",
            )
    for one in definitions:
        try:
            check(one, types)
        except RefusedRequest as error:
            raise type(error)(
                f"{one.where}: {one.title}: {error.text}", reason=error.reason, hint=error.hint
            ) from None
    kinds = list(SECTIONS.values())
    exchanges = _behind_alternates([one for one in definitions if one.kind is Kind.EXCHANGE])
    others = [one for one in definitions if one.kind is not Kind.EXCHANGE]
    return [*exchanges, *sorted(others, key=lambda one: kinds.index(one.kind))]


def _read(kind: Kind, row: Any, where: str) -> Definition:
    if not isinstance(row, dict):
        raise InvalidArgument(f"{where}: it is no JSON object", hint=f"describe one {kind}")
    fields = FIELDS[kind]
    for name, value in row.items():
        if name not in fields:
            raise InvalidArgument(
                f"{where}: a {kind} has no {name!r}", hint=f"known are {', '.join(fields)}"
            )
        if type(value) is not type(fields[name]):
            wanted = {str: "text", bool: "true or false", int: "a whole number", dict: "a map"}
            raise InvalidArgument(
                f"{where}: {name} is {json.dumps(value)[:60]}",
                reason=f"it has to be {wanted[type(fields[name])]}",
                hint="mend it",
            )
    for name in NEEDED[kind]:
        if not row.get(name) and name not in row:
            raise InvalidArgument(f"{where}: {name} is not there", hint=f"every {kind} needs one")
    if kind is Kind.BINDING and bool(row.get("queue")) == bool(row.get("destination_exchange")):
        raise InvalidArgument(
            f"{where}: a binding leads to one queue or to one exchange",
            hint="give queue or destination_exchange",
        )
    return Definition(kind, {**fields, **row}, where)


def check(one: Definition, types: Mapping[str, str]) -> None:
    """Raise RefusedRequest for a definition that no broker would take, whatever else it has.
    `types` are the types of exchanges, as far as they are known.
    """
    values = one.values
    if one.kind is Kind.EXCHANGE:
        check_exchange(_exchange(values))
    elif one.kind is Kind.QUEUE:
        if values["name"].startswith(RESERVED):
            raise RefusedRequest(
                "the name begins with a reserved prefix", hint=f"reserved are {', '.join(RESERVED)}"
            )
        check_queue(_queue(values))
    elif one.kind is Kind.BINDING:
        given = translate(Place.BINDING, values["arguments"])
        resolve(given, ALL)
        check_key("binding key", values["key"])
        check_name("binding key", values["key"])
        check_plain(given)
        type = types.get(values["exchange"], "")
        if type in EXCHANGE_TYPES:
            exchange = EXCHANGE_TYPES[type](0, ExchangeDeclared(values["exchange"], type, ""))
            exchange.check_binding(values["key"], given)
    elif one.kind is Kind.LINK:
        link_asked_for(password="", **values)
    elif one.kind is Kind.ROUTE:
        check_route(_route(values))
    else:
        policy_asked_for(
            values["name"],
            values["pattern"],
            values["definition"],
            priority=values["priority"],
            apply_to=values["apply_to"],
            is_operator=one.kind is Kind.OPERATOR_POLICY,
            is_layer=values["merge"],
        )


def _route(values: Mapping[str, Any]) -> RouteDeclared:
    if values["direction"] not in DIRECTIONS:
        raise InvalidArgument(
            f"direction is {values['direction']!r}", hint=f"use {' or '.join(DIRECTIONS)}"
        )
    names = ("name", "link", "kind", "source", "destination", "key", "tag", "ack", "credit")
    return RouteDeclared(
        uuid="",
        excludes=tags_in(values["excludes"]),
        arguments=values["arguments"],
        **{name: values[name] for name in names},
    )


def _exchange(values: Mapping[str, Any]) -> ExchangeDeclared:
    wanted = exchange_asked_for(**values)
    resolve(wanted.arguments, ALL)
    return wanted


def _queue(values: Mapping[str, Any], usual: Any = DEFAULT_LIMIT) -> QueueDeclared:
    """Return what a definition asks for. A broker gives a quorum queue the usual delivery limit."""
    wanted = queue_asked_for(**values)
    if values["arguments"].get(QUEUE_TYPE) == QUORUM:
        wanted.arguments.setdefault(DELIVERY_LIMIT, usual)
    resolve(wanted.arguments, ALL)
    return wanted


def _behind_alternates(exchanges: list[Definition]) -> list[Definition]:
    """Put each exchange behind its alternate one. Raises InvalidArgument for a circle."""
    waiting = {one.name: one for one in exchanges}
    placed: list[Definition] = []
    while waiting:
        free = [one for one in waiting.values() if one.values["alternate"] not in waiting]
        if not free:
            one = next(iter(waiting.values()))
            raise InvalidArgument(
                f"{one.where}: {one.title} is behind itself by alternate exchanges",
                reason=f"in a circle are {', '.join(waiting)}",
                hint="an alternate exchange has to be there first: take one out",
            )
        placed += free
        for one in free:
            del waiting[one.name]
    return placed


# -- what a broker has ----------------------------------------------------------------------------


@dataclass(slots=True)
class Present:
    """What a broker has, as its lists say."""

    queues: dict[str, QueueDeclared] = field(default_factory=dict)
    exchanges: dict[str, ExchangeDeclared] = field(default_factory=dict)
    bindings: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    policies: dict[tuple[Kind, str], dict[str, Any]] = field(default_factory=dict)
    links: dict[tuple[Kind, str], dict[str, Any]] = field(default_factory=dict)
    """Links and routes."""
    of_routes: set[str] = field(default_factory=set)
    """Queues that were made for routes."""

    @classmethod
    def ask(cls, call: Call) -> Present:
        """Ask a broker. Bindings come first, so that what one leads to is there or gone."""
        found = cls()
        for row in call("list_bindings", {}):
            one = Definition(Kind.BINDING, _fields(Kind.BINDING, row))
            if one.values["exchange"]:
                found.bindings[one.identity] = one.values["arguments"]
        for row in call("list_exchanges", {}):
            if row["name"]:
                found.exchanges[row["name"]] = ExchangeDeclared(
                    **{name: row[name] for name in (*FIELDS[Kind.EXCHANGE], "uuid", "replicate")}
                )
        for row in call("list_queues", {}):
            names = (*FIELDS[Kind.QUEUE], "uuid", "replicate", "exclusive")
            found.queues[row["name"]] = QueueDeclared(
                **{name: row[name] for name in names},
                fallback=row.get("replicate_fallback", ""),
                implied=row.get("implied", []),
            )
        for kind, method in (
            (Kind.POLICY, "list_policies"),
            (Kind.OPERATOR_POLICY, "list_operator_policies"),
        ):
            for row in call(method, {}):
                found.policies[kind, row["name"]] = row
        for row in call("list_links", {}):
            addresses = ",".join(row["addresses"])
            values = _fields(Kind.LINK, {**row, "addresses": addresses})
            found.links[Kind.LINK, row["name"]] = values
        for row in call("list_routes", {}):
            values = _fields(Kind.ROUTE, {**row, "excludes": ",".join(row["excludes"])})
            found.links[Kind.ROUTE, row["name"]] = values
            found.of_routes.add(row["queue"])
        return found


def _fields(kind: Kind, row: Mapping[str, Any]) -> dict[str, Any]:
    """Take the fields of a definition out of a row of a list, which has more."""
    return {name: row.get(name) or default for name, default in FIELDS[kind].items()}


def exported(call: Call) -> tuple[list[Definition], list[str]]:
    """Return the definitions of a broker, and what was left out, with the reason."""
    present = Present.ask(call)
    left: dict[str, list[str]] = {}
    found: list[Definition] = []
    for name, exchange in present.exchanges.items():
        if name in BUILT_IN_EXCHANGES:
            continue
        if TEMPORARY.fullmatch(name):
            left.setdefault("exchanges that end with the link that made them", []).append(name)
            continue
        found.append(_defined(Kind.EXCHANGE, exchange))
    for name, queue in present.queues.items():
        why = "queues that were made for routes" if name in present.of_routes else ""
        why = why or _why_left_out(queue)
        if why:
            left.setdefault(why, []).append(name)
            continue
        found.append(_defined(Kind.QUEUE, queue))
    names = {(one.kind, one.name) for one in found}
    for identity, arguments in present.bindings.items():
        exchange_name, queue_name, other, key = identity
        end = (Kind.EXCHANGE, other) if other else (Kind.QUEUE, queue_name)
        has_exchange = exchange_name in BUILT_IN_EXCHANGES
        has_end = end in names or other in BUILT_IN_EXCHANGES
        values = _fields(
            Kind.BINDING,
            {
                "exchange": exchange_name,
                "queue": queue_name,
                "destination_exchange": other,
                "key": key,
                "arguments": arguments,
            },
        )
        one = Definition(Kind.BINDING, values)
        if has_end and (has_exchange or (Kind.EXCHANGE, exchange_name) in names):
            found.append(one)
        else:
            left.setdefault("bindings of what is left out", []).append(one.name)
    for (kind, name), row in present.policies.items():
        if row.get("expires_ns"):
            left.setdefault("policies that end by themselves", []).append(name)
        else:
            found.append(Definition(kind, _fields(kind, row)))
    found += [Definition(kind, values) for (kind, _), values in present.links.items()]
    return found, [f"{why}: {named(names_)}" for why, names_ in left.items()]


def _why_left_out(queue: QueueDeclared) -> str:
    if queue.exclusive:
        return "queues of one connection or subscription (exclusive)"
    if queue.arguments.get(LIFETIME_POLICY) == Lifetime.ON_CLOSE.value or TEMPORARY.fullmatch(
        queue.name
    ):
        return "queues that end with the link that made them"
    if queue.name.startswith(RESERVED):
        return "queues of the broker's own"
    return ""


NAMED = 5
"""So many of those that were left out are named."""


def named(names: list[str]) -> str:
    """How many there are, and what the first of them are called."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return f"{len(names):,} ({', '.join(names[:NAMED])}{more})"


def _defined(kind: Kind, declared: QueueDeclared | ExchangeDeclared) -> Definition:
    """Say what a declaration asked for, without what the broker decided by its own options."""
    arguments = {name: value for name, value in declared.arguments.items() if name != HA_UUID}
    if isinstance(declared, QueueDeclared):
        if declared.fallback:
            arguments.pop(REPLICATE, None)
        _leave_implied(arguments, declared.implied)
    values = {name: getattr(declared, name) for name in FIELDS[kind]}
    return Definition(kind, {**values, "arguments": arguments})


def _leave_implied(arguments: dict[str, Any], implied: Iterable[str]) -> None:
    """Say the arguments with which others came, and not those: policies may say otherwise."""
    for name in implied:
        arguments.pop(name, None)
        if name == DELIVERY_LIMIT:
            arguments.pop(REPLICATE, None)
            arguments[QUEUE_TYPE] = QUORUM
        if name in (FLOW_STOP_COUNT, FLOW_STOP_SIZE) and arguments.pop(POLICY_TYPE, ""):
            arguments[OVERFLOW] = REJECT_PUBLISH
        for entry in TABLE if name == POLICY_TYPE else ():
            if any(comes == name for comes, _ in entry.implies) and int(
                arguments.get(entry.alias_of, 0)
            ):
                arguments[entry.name] = arguments.pop(entry.alias_of)


# -- a plan ---------------------------------------------------------------------------------------


def planned(definitions: Iterable[Definition], present: Present) -> list[Step]:
    """Compare what a document asks for with what a broker has. What is neither there nor to be made
    cannot be named by others.
    """
    wanted = list(definitions)
    queues = {one.name for one in wanted if one.kind is Kind.QUEUE} | present.queues.keys()
    exchanges = {one.name for one in wanted if one.kind is Kind.EXCHANGE}
    exchanges |= present.exchanges.keys()
    links = {one.name for one in wanted if one.kind is Kind.LINK}
    links |= {name for kind, name in present.links if kind is Kind.LINK}
    return [_compared(one, present, queues, exchanges, links) for one in wanted]


def _compared(
    one: Definition,
    present: Present,
    queues: Iterable[str],
    exchanges: Iterable[str],
    links: Iterable[str],
) -> Step:
    try:
        _check_ends(one, queues, exchanges, links)
        return _difference(one, present)
    except RefusedRequest as error:
        outcome = Outcome.REFUSED if isinstance(error, NotFound) else Outcome.DIFFERS
        return Step(one, outcome, error.explanation, error.hint)


def _check_ends(
    one: Definition, queues: Iterable[str], exchanges: Iterable[str], links: Iterable[str]
) -> None:
    """Raise NotFound if there will be nothing of a name that is needed."""
    values = one.values
    for name, known, kind in (
        (values.get("alternate"), exchanges, Kind.EXCHANGE),
        (values.get("exchange"), exchanges, Kind.EXCHANGE),
        (values.get("destination_exchange"), exchanges, Kind.EXCHANGE),
        (values.get("queue"), queues, Kind.QUEUE),
        (values.get("link"), links, Kind.LINK),
    ):
        if name and name not in known:
            raise NotFound(
                f"there is no {kind} {name}",
                reason="it is neither on the broker nor in the file",
                hint="define it as well, or leave this out",
            )


def _difference(one: Definition, present: Present) -> Step:
    """Raise PreconditionFailed for what is there as something else, and cannot change."""
    if one.kind is Kind.EXCHANGE:
        exchange = present.exchanges.get(one.name)
        if exchange is None:
            return Step(one, Outcome.CREATED)
        check_same("it", exchange, _exchange(one.values))
        return Step(one, Outcome.UNCHANGED)
    if one.kind is Kind.QUEUE:
        queue = present.queues.get(one.name)
        if queue is None:
            return Step(one, Outcome.CREATED)
        usual = queue.arguments.get(DELIVERY_LIMIT, DEFAULT_LIMIT)
        check_same("it", queue, _queue(one.values, usual))
        return Step(one, Outcome.UNCHANGED)
    if one.kind is Kind.BINDING:
        arguments = present.bindings.get(one.identity)
        if arguments is None:
            return Step(one, Outcome.CREATED)
        return _changed(
            one, arguments, translate(Place.BINDING, one.values["arguments"]), "argument "
        )
    if one.kind in (Kind.LINK, Kind.ROUTE):
        return _link_difference(one, present.links.get((one.kind, one.name)))
    row = present.policies.get((one.kind, one.name))
    if row is None:
        return Step(one, Outcome.CREATED)
    former = _fields(one.kind, row)
    step = _changed(one, former, one.values, "")
    if row.get("expires_ns") and step.outcome is Outcome.UNCHANGED:
        return Step(one, Outcome.CHANGED, "it ended by itself, and will not")
    return step


def _link_difference(one: Definition, present: dict[str, Any] | None) -> Step:
    """Compare a link or a route; a route cannot change."""
    if present is None:
        return Step(one, Outcome.CREATED)
    asked = dict(one.values)
    if one.kind is Kind.LINK:
        wanted = link_asked_for(password="", **asked)
        asked |= {"addresses": ",".join(wanted.addresses), "mechanism": wanted.mechanism}
    elif not asked["destination_type"]:
        asked["destination_type"] = present["destination_type"]
    step = _changed(one, present, asked, "")
    if one.kind is Kind.ROUTE and step.outcome is Outcome.CHANGED:
        raise PreconditionFailed(
            "it is there as another route", reason=step.reason, hint="delete it first"
        )
    return step


def _changed(one: Definition, has: dict[str, Any], asked: dict[str, Any], noun: str) -> Step:
    names = [name for name in dict.fromkeys((*has, *asked)) if has.get(name) != asked.get(name)]
    if not names:
        return Step(one, Outcome.UNCHANGED)
    told = ", ".join(
        f"{noun}{name} was {json.dumps(has.get(name))}, is {json.dumps(asked.get(name))}"
        for name in names
    )
    return Step(one, Outcome.CHANGED, told)


# -- carrying it out ------------------------------------------------------------------------------


def carry_out(steps: Iterable[Step], call: Call) -> None:
    """Make a broker have what a plan says, and note in its steps what came of it. What is there
    already is asked for again: the answer says that it is on every in-sync broker.

    What the broker refuses is noted, and the rest is done. Raises Failure where it cannot be asked
    any more; what was not tried then is noted as well.
    """
    todo = [step for step in steps if step.outcome not in FAILED]
    for number, step in enumerate(todo):
        one = step.definition
        try:
            call(METHODS[one.kind], one.values)
        except Failure as failure:
            if failure.code not in (NO, NO_PERMISSION):
                for rest in todo[number:]:
                    rest.outcome, rest.reason = Outcome.NOT_TRIED, ""
                raise
            step.outcome = Outcome.REFUSED
            step.reason, step.hint = failure.explanation, failure.hint
