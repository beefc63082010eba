"""Changes: what the HTTP API can change of a broker, each one method of its table.

A change is `POST /api/v1/methods/NAME` with the parameters as a JSON object, so what a broker takes
and refuses is said in one place (docs/management.md). Rows here are those of its table, with the
scope that a token needs: `operator` for what is replicated, `administrator` for commands. Methods
that are not here stand in `LEFT_OUT` with the reason. Knows no HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

from qpidha.console.access import Scope
from qpidha.model.errors import InvalidArgument

OPERATOR, ADMINISTRATOR = Scope.OPERATOR, Scope.ADMINISTRATOR
STRING, INTEGER, BOOLEAN, OBJECT = "string", "integer", "boolean", "object"
"""Types of parameters, as JSON schema has them."""
_TYPES: dict[str, type] = {STRING: str, INTEGER: int, BOOLEAN: bool, OBJECT: dict}
DEEPEST = 16
"""Levels of a value."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter."""

    name: str
    type: str
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One method that changes something."""

    method: str
    scope: Scope
    help: str
    params: tuple[Param, ...] = ()


NAME = Param("name", STRING, is_required=True)
BINDING = (
    Param("exchange", STRING, is_required=True),
    Param("queue", STRING),
    Param("key", STRING),
    Param("destination_exchange", STRING),
)
POLICY = (
    NAME,
    Param("pattern", STRING),
    Param("definition", OBJECT),
    Param("priority", INTEGER),
    Param("apply_to", STRING),
    Param("merge", BOOLEAN),
)
CHANGES = (
    Change(
        "declare_queue",
        OPERATOR,
        "Create a queue, or check that it exists as asked for.",
        (
            NAME,
            Param("durable", BOOLEAN),
            Param("auto_delete", BOOLEAN),
            Param("alternate", STRING),
            Param("arguments", OBJECT),
        ),
    ),
    Change(
        "delete_queue",
        OPERATOR,
        "Delete a queue and its messages.",
        (NAME, Param("if_unused", BOOLEAN), Param("if_empty", BOOLEAN)),
    ),
    Change("purge_queue", OPERATOR, "Remove the available messages of a queue.", (NAME,)),
    Change(
        "move_messages",
        OPERATOR,
        "Move messages that no consumer has to another queue, each exactly once.",
        (NAME, Param("target", STRING, is_required=True), Param("count", INTEGER)),
    ),
    Change(
        "requeue_messages",
        OPERATOR,
        "Send dead letters, and what was delivered too often, back to the queues on "
        "which they died, each exactly once.",
        (NAME, Param("count", INTEGER), Param("origin", STRING)),
    ),
    Change(
        "declare_exchange",
        OPERATOR,
        "Create an exchange, or check that it exists as asked for.",
        (
            NAME,
            Param("type", STRING),
            Param("durable", BOOLEAN),
            Param("auto_delete", BOOLEAN),
            Param("alternate", STRING),
            Param("arguments", OBJECT),
        ),
    ),
    Change(
        "delete_exchange",
        OPERATOR,
        "Delete an exchange and its bindings.",
        (NAME, Param("if_unused", BOOLEAN)),
    ),
    Change(
        "bind",
        OPERATOR,
        "Bind a queue, or another exchange, to an exchange.",
        (*BINDING, Param("arguments", OBJECT)),
    ),
    Change("unbind", OPERATOR, "Remove a binding.", BINDING),
    Change(
        "set_policy",
        OPERATOR,
        "Set a policy, in place of one that has its name; answered when all queues "
        "and exchanges follow it.",
        POLICY,
    ),
    Change(
        "patch_policy",
        OPERATOR,
        "Change some keys of a policy; null drops one.",
        (NAME, Param("definition", OBJECT)),
    ),
    Change(
        "override_policy",
        OPERATOR,
        "Set a policy `override.NAME` with other keys and a higher priority, for a time.",
        (NAME, Param("definition", OBJECT), Param("seconds", INTEGER)),
    ),
    Change(
        "clear_policy",
        OPERATOR,
        "Take a policy away; answered when no queue and no exchange follows it.",
        (NAME,),
    ),
    Change(
        "set_operator_policy",
        OPERATOR,
        "Set a policy that comes before what queues, exchanges and policies ask for.",
        POLICY,
    ),
    Change("clear_operator_policy", OPERATOR, "Take an operator policy away.", (NAME,)),
    Change(
        "promote",
        ADMINISTRATOR,
        "Make this broker the primary, if no acknowledged message can be lost by that.",
        (Param("accept_loss", BOOLEAN), Param("forget", STRING)),
    ),
    Change("demote", ADMINISTRATOR, "Make a primary a backup again.", ()),
    Change(
        "recover",
        ADMINISTRATOR,
        "Compare what all brokers have, and recommend which one to promote; change nothing.",
        (Param("forget", STRING),),
    ),
    Change(
        "switchover",
        ADMINISTRATOR,
        "Move the primary role to another broker without losing messages.",
        (Param("target", STRING),),
    ),
    Change(
        "close_connection",
        ADMINISTRATOR,
        "Close the connection of a client; what it had not settled goes back to its queues.",
        (Param("id", INTEGER), Param("reason", STRING)),
    ),
    Change(
        "reload",
        ADMINISTRATOR,
        "Read users, the access control list, certificates and the log's options "
        "again, as SIGHUP does.",
        (),
    ),
)
"""Every change, in the order of the broker's table."""
LEFT_OUT = {
    "shutdown": "whoever starts a broker stops it: systemd, a cluster manager",
    **dict.fromkeys(
        (
            "declare_link",
            "delete_link",
            "declare_route",
            "delete_route",
            "replicate",
            "stop_replica",
        ),
        "links to other brokers have logins of theirs, so they are for the command line",
    ),
    "set_public_url": "it lasts until the broker stops, so it is for the command line",
    "set_log_level": "it lasts until the log's options are read again",
    "recording": "for the watch beside a broker",
    "recorded": "for the watch beside a broker",
}
LEFT_OUT_PARAMS = {("declare_queue", "exclusive"): "the queue would be the console's own"}


def check(change: Change, given: dict[str, Any]) -> None:
    """Raise InvalidArgument for parameters that the method does not take. What a value means is for
    the broker.
    """
    known = {param.name: param for param in change.params}
    offered = f"parameters of {change.method}: {', '.join(known) or 'none'}"
    for name, value in given.items():
        if name not in known:
            raise InvalidArgument(f"unknown parameter {name[:100]}", hint=offered)
        wanted = known[name].type
        is_right = isinstance(value, _TYPES[wanted]) and not (
            wanted == INTEGER and isinstance(value, bool)
        )
        if not is_right:
            text = f"parameter {name} is {_kind(value)}, and is to be {_a(wanted)}"
            raise InvalidArgument(text, hint=offered)
        _check_value(name, value)
    for param in change.params:
        if param.is_required and not given.get(param.name):
            raise InvalidArgument(f"parameter {param.name} is missing or empty", hint=offered)


def _check_value(name: str, value: Any, depth: int = 0) -> None:
    """Raise for what JSON can say and a broker cannot be told."""
    why = ""
    if depth > DEEPEST:
        why = f"is nested more than {DEEPEST} levels deep"
    elif isinstance(value, str):
        why = "has half of a character" if _is_broken(value) else ""
    elif isinstance(value, float):
        why = "" if isfinite(value) else "is no finite number"
    elif isinstance(value, int):
        why = "" if -(2**63) <= value < 2**64 else "is a number of more than 64 bits"
    elif isinstance(value, dict | list):
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_value(name, each, depth + 1)
    if why:
        raise InvalidArgument(f"parameter {name} {why}", hint="docs/management.md has its values")


def _is_broken(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    kinds = {str: "a string", int: "an integer", float: "a fraction", dict: "an object"}
    return kinds.get(type(value), "an array")


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
