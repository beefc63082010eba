"""Intake: which messages a queue takes at all.

A queue with `qpid.filter` takes what its selector selects; others are accepted and go nowhere. It
is the queue of a subscription with a selector: what the subscriber does not want would stay there
for ever. So it is with one that has `qpidha.no-local`: what connections of that container send to
exchanges is not for it. No message says who sent it, so this is decided when it is routed. Only the
primary asks, so a replica need not understand the selector, and a successor goes on with what is in
the declaration. Source: Qpid `QueueSettings.cpp`, `Queue.cpp` (filter, isLocal); JMS 2.0, section
8.3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.selector import all_of, parse
from qpidha.broker.queues.selector_names import Dialect
from qpidha.model.errors import InvalidArgument
from qpidha.model.message import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.broker.queues.selector import MessageSelector

FILTER, SQL_FILTER = "qpid.filter", "qpidha.sql-filter"
LANGUAGES = {FILTER: Dialect.JMS, SQL_FILTER: Dialect.SQL}
"""Arguments -> the language of their value."""
NO_LOCAL = "qpidha.no-local"
"""The container whose messages are not for the queue."""


def check_filters(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a selector, or a container, that cannot be used."""
    for name, dialect in LANGUAGES.items():
        text = arguments.get(name, "")
        if not isinstance(text, str):
            raise InvalidArgument(f"{name} is no text", hint="give a selector")
        parse(dialect, str(text))
    container = arguments.get(NO_LOCAL, "-")
    if not isinstance(container, str) or not container:
        raise InvalidArgument(
            f"{NO_LOCAL} is no name of a container", hint="give the container-id of a connection"
        )


def read_filters(arguments: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the selectors of a queue, each behind the name of its argument."""
    return tuple((name, str(arguments[name])) for name in LANGUAGES if arguments.get(name))


class Intake:
    """Says which messages a queue takes."""

    __slots__ = ("_is_compiled", "_selector", "filters", "left_out", "no_local")

    def __init__(self, filters: tuple[tuple[str, str], ...], no_local: str) -> None:
        self.filters = filters
        self.no_local = no_local
        """The container whose messages to exchanges are not for it; empty if there is none."""
        self._is_compiled = False
        self._selector: MessageSelector | None = None
        self.left_out = 0
        """How many were not taken, in total."""

    def takes(self, payload: bytes) -> bool:
        """Whether a message is for this queue; counts those that are not."""
        if self.selects(payload):
            return True
        self.left_out += 1
        return False

    def selects(self, payload: bytes) -> bool:
        """Whether a message is for this queue."""
        if not self._is_compiled:
            self._is_compiled = True
            parsed = [parse(LANGUAGES[name], text) for name, text in self.filters]
            self._selector = all_of([selector for selector in parsed if selector is not None])
        return self._selector is None or self._selector.selects(Message(0, payload))
