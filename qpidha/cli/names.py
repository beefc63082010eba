"""Names for completion: which queues, exchanges, brokers, connections, policies or contexts there
are, where a command line wants the name of one, and which words an option takes.

A shell asks with every press of a key, so a broker has a second to answer, and whatever is wrong is
no answer: the person at the keyboard hears of it from the command itself.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from qpidha.client.command.arguments import FORMATS, Options, hoist
from qpidha.client.command.ask import Brokers, ask
from qpidha.client.command.contexts import read_contexts
from qpidha.client.command.exits import Failure
from qpidha.client.command.target import local_cluster
from qpidha.model.broker_states import EXPECTED, STATES
from qpidha.model.event_log import SHOWN
from qpidha.model.replication_level import LEVELS

MOST_CONNECTIONS = 20
"""Connections that one command line may name, of which the ids are completed."""
PATIENCE = 1.0
"""Seconds for everything together."""
QUEUE, EXCHANGE, ADDRESS, BROKER = "queue", "exchange", "address", "broker"
CONNECTION, POLICY, OPERATOR_POLICY = "connection", "policy", "operator policy"
LINK, ROUTE = "link", "route"
CONTEXT, LOCAL, METHOD, CHECK = "context", "local broker", "method", "check"
ARGUMENTS = {
    "queue del": (QUEUE,),
    "queue list": (QUEUE,),
    "queue move": (QUEUE, QUEUE),
    "queue peek": (QUEUE,),
    "queue purge": (QUEUE,),
    "queue requeue": (QUEUE,),
    "queue show": (QUEUE,),
    "subscription list": (QUEUE,),
    "lag": (QUEUE,),
    "check": (CHECK, QUEUE),
    "connection close": (CONNECTION,) * MOST_CONNECTIONS,
    "policy clear": (POLICY,),
    "policy drop-keys": (POLICY,),
    "policy explain": (QUEUE,),
    "policy override": (POLICY,),
    "policy patch": (POLICY,),
    "policy set": (POLICY,),
    "operator-policy clear": (OPERATOR_POLICY,),
    "operator-policy set": (OPERATOR_POLICY,),
    "link add": (LINK,),
    "link del": (LINK,),
    "route add": (ROUTE, LINK),
    "route del": (ROUTE,),
    "context set": (CONTEXT,),
    "context use": (CONTEXT,),
    "context delete": (CONTEXT,),
    "local kill": (LOCAL,),
    "local restart": (LOCAL,),
    "local logs": (LOCAL,),
    "methods": (METHOD,),
    "exchange del": (EXCHANGE,),
    "exchange list": (EXCHANGE,),
    "exchange show": (EXCHANGE,),
    "bind": (EXCHANGE, QUEUE),
    "unbind": (EXCHANGE, QUEUE),
    "send": (ADDRESS,),
    "receive": (ADDRESS,),
    "replicate": (QUEUE,),
    "replica stop": (QUEUE,),
    "switchover": (BROKER,),
    "failover": (BROKER,),
}
"""Command -> what its arguments are names of."""
FORMS, STATE, CONDITION, EVENT, LEVEL = "form", "state", "condition", "event", "level"
ORDER, MONITOR, SORT = "order", "monitor", "sort"
VALUES = {
    "-b": BROKER,
    "--broker": BROKER,
    "--context": CONTEXT,
    "--alternate-exchange": EXCHANGE,
    "-o": FORMS,
    "--output": FORMS,
    "--sort": SORT,
    "--expect": STATE,
    "--for": CONDITION,
    "--type": EVENT,
    "--replicate": LEVEL,
    "--by": ORDER,
    "--format": MONITOR,
}
"""Option -> what its value is the name of."""
OTHER = (("policy override", "--for"),)
"""Command and option: this one means something else by the word."""
WORDS: dict[str, Callable[[], Iterable[str]]] = {
    FORMS: lambda: FORMATS,
    STATE: lambda: EXPECTED,
    CONDITION: lambda: (*(f"state={state}" for state in STATES), "role=primary", "synced"),
    EVENT: lambda: SHOWN,
    LEVEL: lambda: LEVELS,
    ORDER: lambda: _table("top", "ORDERS"),
    MONITOR: lambda: _table("check", "FORMATS"),
    CHECK: lambda: (*_table("check", "CHECKS"), "all"),
    CONTEXT: lambda: read_contexts().known,
    LOCAL: lambda: [one["name"] for one in (local_cluster() or {}).get("brokers", [])],
}
"""What is known here without asking a broker."""
SORTED = {
    "list": ("observe", "MEMBER_COLUMNS"),
    "methods": ("observe", "METHODS"),
    "events": ("events", "EVENTS"),
    "history": ("events", "HISTORY"),
    "queue list": ("objects", "QUEUES"),
    "exchange list": ("objects", "EXCHANGES"),
    "connection list": ("connections", "CONNECTIONS"),
    "session list": ("connections", "SESSIONS"),
    "subscription list": ("connections", "SUBSCRIPTIONS"),
    "policy list": ("policies", "POLICIES"),
    "operator-policy list": ("policies", "POLICIES"),
    "link list": ("links", "LINKS"),
    "route list": ("links", "ROUTES"),
    "replica list": ("replicas", "REPLICAS"),
    "user list": ("users", "USERS"),
    "context list": ("contexts", "CONTEXTS"),
}
"""List -> the module and name of what has its columns."""
QUEUES = ("list_queues", "name", {"fields": "name"})
EXCHANGES = ("list_exchanges", "name", {"fields": "name"})
LISTED: dict[str, tuple[tuple[str, str, dict[str, str]], ...]] = {
    QUEUE: (QUEUES,),
    EXCHANGE: (EXCHANGES,),
    ADDRESS: (QUEUES, EXCHANGES),
    CONNECTION: (("list_connections", "id", {"fields": "id"}),),
    POLICY: (("list_policies", "name", {}),),
    OPERATOR_POLICY: (("list_operator_policies", "name", {}),),
    LINK: (("list_links", "name", {"fields": "name"}),),
    ROUTE: (("list_routes", "name", {"fields": "name"}),),
    METHOD: (("help", "name", {}),),
}
"""What a broker is asked for, with the field of each row that is a name, and the parameters."""


def names_at(line: str, command_of: Callable[[str], Any]) -> list[str]:
    """Return the names that may stand at the end of a command line, as far as a broker says them
    soon; `command_of` finds a command of the tree by its first word.
    """
    found: list[str] = []

    def look() -> None:
        try:
            words = shlex.split(line)[1:]
            if not line[-1:].isspace():
                words.pop()
            options, rest = hoist(words[:-1] if words[-1:] and words[-1] in VALUES else words)
            path, kind = _kind_of(rest, command_of)
            if words and words[-1] in VALUES and (path, words[-1]) not in OTHER:
                kind = VALUES[words[-1]]
            options.quiet, options.timeout, options.may_ask = True, PATIENCE, False
            found.extend(name for name in _names(kind, options, path) if name.isprintable())
        except (Failure, ValueError, IndexError, OSError):
            pass  # The command itself will say it.

    # In a thread, for a name service may take as long as it likes.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return sorted(found)


def meant(options: Options, words: list[str], command_of: Callable[[str], Any]) -> str:
    """Return the nearest name to one of a command line that there is not, as far as a broker says
    soon which there are; else nothing.
    """
    asking = replace(options, quiet=True, timeout=PATIENCE, may_ask=False)
    for place, word in enumerate(words):
        path, kind = _kind_of(words[:place], command_of)
        if not kind or word.startswith("-"):
            continue
        with suppress(Failure):
            known = _names(kind, asking, path)
            near = get_close_matches(word, known, 1)
            if near and word not in known:
                return near[0]
    return ""


def _kind_of(words: list[str], command_of: Callable[[str], Any]) -> tuple[str, str]:
    """Tell which command is called, and what its next word is the name of; empty if of nothing that
    is known here.
    """
    if not words:
        return "", ""
    path, command, rest = words[0], command_of(words[0]), words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        path, command, rest = f"{path} {rest[0]}", command.commands[rest[0]], rest[1:]
    valued = [
        word
        for param in getattr(command, "params", ())
        if param.param_type_name == "option" and not param.is_flag
        for word in param.opts
    ]
    given = 0
    waiting = iter(rest)
    for word in waiting:
        if word in valued:
            if next(waiting, None) is None:
                return path, VALUES.get(word, "")
        elif not word.startswith("-"):
            given += 1
    return path, "".join(ARGUMENTS.get(path, ())[given : given + 1])


def _names(kind: str, options: Options, path: str) -> list[str]:
    if kind == BROKER:
        return Brokers.find(options).addresses
    if kind == SORT:
        return _columns(path)
    if kind in WORDS:
        return [*WORDS[kind]()]
    return [
        str(row[field])
        for method, field, params in LISTED.get(kind, ())
        for row in ask(options, method, params)
        if row[field] not in ("", None)
    ]


def _columns(path: str) -> list[str]:
    """Name the columns of a list, by its command."""
    if path not in SORTED:
        return []
    found = _table(*SORTED[path])
    return [*found] if isinstance(found, tuple) else [*found.columns, *found.wide]


def _table(module: str, name: str) -> Any:
    """Return what a module of commands says of its own words; like the commands, it is loaded when
    it is asked for.
    """
    return getattr(import_module(f"qpidha.cli.broker.{module}"), name)
