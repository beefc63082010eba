"""Definitions of RabbitMQ: what `rabbitmqctl export_definitions` and its HTTP API write, of 3.x and
4.x, as definitions of this broker.

There are no virtual hosts here, so the objects of one are taken. What RabbitMQ keeps in the same
file and brokers here have elsewhere (users, permissions, limits) is ignored, and the place is
named. Source: RabbitMQ `rabbit_definitions.erl`, and exports of 3.10, 3.13 and 4.1.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qpidha.broker.declaration import REFUSED_TYPES
from qpidha.broker.policy import NOT_FOR
from qpidha.broker.queues.delivery_limit import DEFAULT_LIMIT, DELIVERY_LIMIT
from qpidha.broker.vocabulary import QUEUE_TYPE, QUORUM
from qpidha.broker.vocabulary import Kind as Place
from qpidha.model.errors import InvalidArgument
from qpidha.tools.definitions import FIELDS, Definition, Kind, in_order, parsed
from qpidha.tools.foreign import Translation, Verdict

OF_THE_FILE = (
    "rabbit_version",
    "rabbitmq_version",
    "product_name",
    "product_version",
    "rabbitmq_definition_format",
    "original_cluster_name",
    "explanation",
)
"""Keys that say where a file comes from."""
ELSEWHERE = {
    "users": "add users with qpid-ha user add NAME: SCRAM cannot use RabbitMQ's password hashes",
    "permissions": "write them as rules of the acl-file",
    "topic_permissions": "write them as rules of the acl-file",
    "vhosts": "there are no virtual hosts: run a cluster for each",
    "global_parameters": "there are none: set the option on every broker of the cluster",
}
"""Lists of what brokers here have in another place."""
LISTS = ("exchanges", "queues", "bindings", "policies", "parameters")
OPERATOR_POLICY = "operator_policy"
VHOST_LIMITS = "vhost-limits"
DONE_OTHERWISE = {
    "shovel": "create a link and a route: qpid-ha link add, qpid-ha route add, or qpid-route",
    "federation-upstream": "create a link and a route: qpid-ha link add, qpid-ha route add, or "
    "qpid-route",
    "federation-upstream-set": "create links and routes: qpid-ha link add, qpid-ha route add, or "
    "qpid-route",
}
"""Components of parameters that do something which is done otherwise here."""
SAME_EXCHANGE = {"amq.headers": "amq.match"}
LIMITED_SINCE, NO_LIMIT = 4, -1
"""The first version whose quorum queues have a delivery limit of their own, and what says none."""
HA_MODE, HA_PARAMS = "ha-mode", "ha-params"
FIELDS_OF: dict[str, dict[str, type]] = {
    "exchanges": {
        "name": str,
        "vhost": str,
        "type": str,
        "durable": bool,
        "auto_delete": bool,
        "internal": bool,
        "arguments": dict,
    },
    "queues": {
        "name": str,
        "vhost": str,
        "type": str,
        "durable": bool,
        "auto_delete": bool,
        "exclusive": bool,
        "arguments": dict,
    },
    "bindings": {
        "source": str,
        "vhost": str,
        "destination": str,
        "destination_type": str,
        "routing_key": str,
        "arguments": dict,
    },
    "policies": {
        "name": str,
        "vhost": str,
        "pattern": str,
        "apply-to": str,
        "priority": int,
        "definition": dict,
    },
    "parameters": {"name": str, "vhost": str, "component": str, "value": object},
}
"""Fields of the objects in a file, with their types; others are left out by their name."""


@dataclass(slots=True)
class FromRabbit(Translation):
    """A translation of a file of RabbitMQ."""

    version: int = LIMITED_SINCE
    """The major version that wrote it."""


def _version(content: Mapping[str, Any]) -> int:
    text = str(content.get("rabbitmq_version") or content.get("rabbit_version") or "")
    major = text.partition(".")[0]
    return int(major) if major.isdecimal() and len(major) < 4 else LIMITED_SINCE


def read(text: str, vhost: str = "") -> Translation:
    """Read a file: the objects of one virtual host, which has to be named if there are several.
    Raises InvalidArgument for what is no such file.
    """
    content = parsed(text)
    if not any(name in content for name in ("rabbit_version", "rabbitmq_version", *LISTS)):
        raise InvalidArgument(
            "it has none of the lists of RabbitMQ",
            reason=f"these are {', '.join(LISTS)}",
            hint="rabbitmqctl export_definitions FILE writes one",
        )
    found = FromRabbit(version=_version(content))
    lists = {name: _rows(name, content.get(name, [])) for name in LISTS}
    chosen = _choose(lists, vhost, found)
    for key, value in content.items():
        if key in OF_THE_FILE:
            found.note(Verdict.IGNORED, "file", key, "it says where the file comes from")
        elif key in ELSEWHERE:
            count = len(value) if isinstance(value, list) else 1
            if count:
                found.note(Verdict.IGNORED, "file", key, f"{ELSEWHERE[key]} ({count:,})")
        elif key not in LISTS:
            found.note(Verdict.LEFT_OUT, "file", key, "the key is not known")
    for name, read_one in (
        ("exchanges", _exchange),
        ("queues", _queue),
        ("bindings", _binding),
        ("policies", _policy),
        ("parameters", _parameter),
    ):
        for number, row in enumerate(lists[name]):
            if row.get("vhost", chosen) == chosen:
                read_one(found, row, f"{name}[{number}]")
    found.definitions = in_order(found.definitions)
    return found


def _rows(name: str, rows: Any) -> list[dict[str, Any]]:
    if not isinstance(rows, list):
        raise InvalidArgument(f"{name} is no list", hint="export it again")
    for number, row in enumerate(rows):
        where = f"{name}[{number}]"
        if not isinstance(row, dict):
            raise InvalidArgument(f"{where}: it is no JSON object", hint="export it again")
        for key, kind in FIELDS_OF[name].items():
            value = row.get(key)
            if key == "definition" and isinstance(value, list):
                row[key] = value = _pairs(where, value)
            if key in row and not isinstance(value, kind):
                raise InvalidArgument(
                    f"{where}: {key} is {json.dumps(value)[:60]}", hint="export it again"
                )
        for key in ("source", "destination") if name == "bindings" else ("name",):
            if key not in row:
                raise InvalidArgument(f"{where}: {key} is not there", hint="export it again")
    return rows


def _pairs(where: str, value: list[Any]) -> dict[str, Any]:
    """Read a map as some versions write those of operator policies: a list of pairs."""
    try:
        return {str(key): each for key, each in value}
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"{where}: {json.dumps(value)[:60]} is no map", hint="export it again"
        ) from None


def _choose(lists: Mapping[str, list[dict[str, Any]]], wanted: str, found: Translation) -> str:
    """Return the virtual host whose objects are taken."""
    counts = Counter(row.get("vhost", "") for rows in lists.values() for row in rows)
    named = sorted(name for name in counts if name)
    if wanted and wanted not in counts and named:
        raise InvalidArgument(
            f"it has nothing of the virtual host {wanted}", hint=f"it has {', '.join(named)}"
        )
    if not wanted and len(named) > 1:
        raise InvalidArgument(
            f"it has objects of {len(named)} virtual hosts: {', '.join(named)}",
            reason="there are none here, and their names may be the same",
            hint="--vhost NAME takes those of one; another may go into another cluster",
        )
    chosen = wanted or (named[0] if named else "")
    for name in named:
        if name != chosen:
            reason = f"--vhost chooses {chosen} ({counts[name]:,} objects)"
            found.note(Verdict.IGNORED, f"virtual host {name}", "", reason)
    return chosen


def _unknown(found: Translation, name: str, row: Mapping[str, Any], title: str) -> None:
    for key in row:
        if key not in FIELDS_OF[name]:
            found.note(Verdict.LEFT_OUT, title, key, "the key is not known")


def _taken(kind: Kind, row: Mapping[str, Any], where: str, **more: Any) -> Definition:
    """A definition with the fields that are called alike on both sides."""
    same = {key: row[key] for key in FIELDS[kind] if key in row}
    return Definition(kind, {**FIELDS[kind], **same, **more}, where)


def _exchange(found: FromRabbit, row: Mapping[str, Any], where: str) -> None:
    type = row.get("type", "direct")
    one = _taken(Kind.EXCHANGE, row, where, type=type, arguments={})
    _unknown(found, "exchanges", row, one.title)
    for key in ("durable", "auto_delete", "type"):
        if key in row:
            found.note(Verdict.KEPT, one.title, key)
    if row.get("internal"):
        found.note(
            Verdict.IGNORED,
            one.title,
            "internal",
            "clients may publish to every exchange; rules of the acl-file can deny it",
        )
    arguments = dict(row.get("arguments", {}))
    alternate = arguments.pop("alternate-exchange", "")
    if alternate:
        one.values["alternate"] = SAME_EXCHANGE.get(str(alternate), str(alternate))
        found.note(
            Verdict.MAPPED, one.title, "alternate-exchange", f"alternate={one.values['alternate']}"
        )
    if type in REFUSED_TYPES:
        found.leave_out(one, f"the type {type} is not offered: {REFUSED_TYPES[type]}")
        return
    one.values["arguments"] = found.arguments(Place.EXCHANGE, one.title, arguments)
    found.add(one)


def _queue(found: FromRabbit, row: Mapping[str, Any], where: str) -> None:
    one = _taken(Kind.QUEUE, row, where, arguments={})
    _unknown(found, "queues", row, one.title)
    for key in ("durable", "auto_delete"):
        if key in row:
            found.note(Verdict.KEPT, one.title, key)
    given = dict(row.get("arguments", {}))
    type = given.get(QUEUE_TYPE) or row.get("type", "classic")
    if row.get("exclusive"):
        found.leave_out(one, "it is exclusive: it ends with its connection", Verdict.IGNORED)
        return
    if type not in ("classic", QUORUM):
        found.leave_out(one, f"a queue of the type {type} is not offered")
        return
    if "type" in row:
        found.note(Verdict.KEPT, one.title, "type", QUEUE_TYPE)
        if type == QUORUM:
            given[QUEUE_TYPE] = QUORUM
    one.values["arguments"] = found.arguments(Place.QUEUE, one.title, given)
    if type == QUORUM and DELIVERY_LIMIT not in one.values["arguments"]:
        limit = DEFAULT_LIMIT if found.version >= LIMITED_SINCE else NO_LIMIT
        one.values["arguments"][DELIVERY_LIMIT] = limit
        found.note(
            Verdict.MAPPED,
            one.title,
            QUEUE_TYPE,
            f"{DELIVERY_LIMIT}={limit}, which RabbitMQ {found.version} has without saying so",
        )
    found.add(one)


def _binding(found: FromRabbit, row: Mapping[str, Any], where: str) -> None:
    source, destination = row["source"], row["destination"]
    to_exchange = row.get("destination_type", "queue") == "exchange"
    one = _taken(
        Kind.BINDING,
        {},
        where,
        exchange=SAME_EXCHANGE.get(source, source),
        queue="" if to_exchange else destination,
        destination_exchange=SAME_EXCHANGE.get(destination, destination) if to_exchange else "",
        key=row.get("routing_key", ""),
        arguments={},
    )
    _unknown(found, "bindings", row, one.title)
    if not source:
        found.note(Verdict.IGNORED, one.title, "", "every queue is bound to the default exchange")
        return
    for key in ("source", "destination"):
        if row[key] in SAME_EXCHANGE and (key == "source" or to_exchange):
            found.note(Verdict.MAPPED, one.title, key, SAME_EXCHANGE[row[key]])
        else:
            found.note(Verdict.KEPT, one.title, key)
    found.note(Verdict.KEPT, one.title, "routing_key")
    given = row.get("arguments", {})
    before = len(found.notes)
    one.values["arguments"] = found.arguments(Place.BINDING, one.title, given)
    for note in found.notes[before:]:
        if note.verdict in (Verdict.IGNORED, Verdict.LEFT_OUT):
            # Without it other messages would fit.
            found.leave_out(one, f"{note.key}: {note.reason}")
            return
    found.add_binding(one)


def _policy(found: FromRabbit, row: Mapping[str, Any], where: str) -> None:
    _set(found, row, where, Kind.POLICY)


def _set(found: FromRabbit, row: Mapping[str, Any], where: str, kind: Kind) -> None:
    apply_to = row.get("apply-to", "all")
    one = _taken(kind, row, where, apply_to=apply_to, definition={})
    if kind is Kind.POLICY:
        _unknown(found, "policies", row, one.title)
    for key in ("pattern", "priority", "apply-to"):
        if key in row:
            found.note(Verdict.KEPT, one.title, key)
    if apply_to in NOT_FOR:
        found.leave_out(one, f"it is for {apply_to}: {NOT_FOR[apply_to]}")
        return
    given = dict(row.get("definition", {}))
    mode = given.get(HA_MODE)
    if mode in ("exactly", "nodes"):
        del given[HA_MODE]
        params = json.dumps(given.get(HA_PARAMS))
        found.note(
            Verdict.MAPPED,
            one.title,
            HA_MODE,
            f"ha-mode=all, was {mode} {params}: all brokers of a cluster have one log, so a queue "
            "is on all of them or on one",
        )
    kept = found.arguments(Place.POLICY, one.title, given)
    if mode in ("exactly", "nodes"):
        kept[HA_MODE] = "all"
    if not kept:
        told = [note for note in found.notes if note.of == one.title and note.reason]
        reasons = "; ".join(f"{note.key}: {note.reason}" for note in told)
        found.leave_out(one, f"nothing of it is left, and policies behind it count ({reasons})")
        return
    one.values["definition"] = kept
    found.add(one)


def _parameter(found: FromRabbit, row: Mapping[str, Any], where: str) -> None:
    component, value = row.get("component", ""), row.get("value")
    title = f"parameter {component} {row['name']}"
    _unknown(found, "parameters", row, title)
    if component == OPERATOR_POLICY:
        if not isinstance(value, dict):
            raise InvalidArgument(f"{where}: value is no map", hint="export it again")
        policy = {**value, "name": row["name"]}
        (policy,) = _rows("policies", [policy])
        found.note(Verdict.MAPPED, title, "", f"operator policy {row['name']}")
        _set(found, policy, where, Kind.OPERATOR_POLICY)
    elif component == VHOST_LIMITS:
        found.note(
            Verdict.IGNORED, title, "", "limits are options of brokers: max-connections, max-queues"
        )
    else:
        reason = DONE_OTHERWISE.get(component, f"there is no {component or 'such component'}")
        found.note(Verdict.LEFT_OUT, title, "", reason)
