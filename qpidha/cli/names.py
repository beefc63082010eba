"""Names for completion: which queues, exchanges or brokers there are, where a command line wants
the name of one.

A shell asks with every press of a key, so a broker has a second to answer, and whatever is wrong is
no answer: the person at the keyboard hears of it from the command itself.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable
from typing import Any

from qpidha.client.command.arguments import Options, hoist
from qpidha.client.command.ask import Brokers, ask
from qpidha.client.command.exits import Failure

PATIENCE = 1.0
"""Seconds for everything together."""
QUEUE, EXCHANGE, ADDRESS, BROKER = "queue", "exchange", "address", "broker"
ARGUMENTS = {
    "queue del": (QUEUE,),
    "queue list": (QUEUE,),
    "queue purge": (QUEUE,),
    "queue show": (QUEUE,),
    "exchange del": (EXCHANGE,),
    "exchange list": (EXCHANGE,),
    "exchange show": (EXCHANGE,),
    "bind": (EXCHANGE, QUEUE),
    "unbind": (EXCHANGE, QUEUE),
    "send": (ADDRESS,),
    "receive": (ADDRESS,),
    "switchover": (BROKER,),
    "failover": (BROKER,),
}
"""Command -> what its arguments are names of."""
VALUES = {"-b": BROKER, "--broker": BROKER, "--alternate-exchange": EXCHANGE}
"""Option -> what its value is the name of."""


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
            kind = VALUES.get(words[-1] if words else "") or _kind_of(rest, command_of)
            options.quiet, options.timeout, options.may_ask = True, PATIENCE, False
            found.extend(name for name in _names(kind, options) if name.isprintable())
        except (Failure, ValueError, IndexError, OSError):
            pass  # The command itself will say it.

    # In a thread, for a name service may take as long as it likes.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return sorted(found)


def _kind_of(words: list[str], command_of: Callable[[str], Any]) -> str:
    """Tell what a command's next word is the name of; empty if of nothing that is known here."""
    if not words:
        return ""
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
                return VALUES.get(word, "")
        elif not word.startswith("-"):
            given += 1
    return "".join(ARGUMENTS.get(path, ())[given : given + 1])


def _names(kind: str, options: Options) -> list[str]:
    if kind == BROKER:
        return Brokers.find(options).addresses
    found: list[str] = []
    for each, method in ((QUEUE, "list_queues"), (EXCHANGE, "list_exchanges")):
        if kind in (each, ADDRESS):
            found += [row["name"] for row in ask(options, method) if row["name"]]
    return found
