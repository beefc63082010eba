"""Node patterns: which queue or topic is made for a name that nobody declared.

An operator says of which names queues, or topics, are made when a client attaches to one that is
not there: `queue-patterns` and `topic-patterns`. Of several patterns that fit a name the longest
decides, as it is most likely the one that was meant. Knows no links. Source: Qpid
`NodePolicy.cpp`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.broker.pattern import compile_pattern
from qpidha.broker.queues.lifetime import AUTO_DELETE_TIMEOUT, LIFETIME_POLICY, Lifetime
from qpidha.broker.vocabulary import AUTO_DELETE, DURABLE, EXCLUSIVE, Kind
from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qpidha.broker.pattern import Pattern

_SAYS_HOW_LONG = (AUTO_DELETE, AUTO_DELETE_TIMEOUT, EXCLUSIVE, LIFETIME_POLICY)
"""What says how long a queue stays."""


class NodePatterns:
    """The patterns of one broker."""

    __slots__ = ("_patterns",)

    def __init__(self, queues: Sequence[str], topics: Sequence[str]) -> None:
        """Raises InvalidArgument for what is no pattern, or is one of both kinds."""
        for text in queues:
            if text in topics:
                raise InvalidArgument(
                    f"{text!r} is a pattern of queues and of topics",
                    reason="a name has one kind of node",
                    hint="leave it out of queue-patterns or of topic-patterns",
                )
        named = [(text, Kind.QUEUE) for text in queues] + [(text, Kind.EXCHANGE) for text in topics]
        named.sort(key=lambda one: -len(one[0]))
        self._patterns: list[tuple[Pattern, Kind]] = [
            (compile_pattern(text), kind) for text, kind in named
        ]

    def kind_of(self, name: str, among: Sequence[Kind]) -> Kind | None:
        """Return what is made for a name, of the kinds that may be; None if nothing is."""
        if not self._patterns or not name:
            return None
        return next(
            (kind for pattern, kind in self._patterns if kind in among and pattern.fits(name)), None
        )


def as_made(kind: Kind, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a node is made of, in known names, that is asked for so: unless that says how
    long it stays, it goes when nobody uses it.
    """
    if asked.get(DURABLE):
        return dict(asked)
    if kind is Kind.EXCHANGE:
        return {AUTO_DELETE: True, **asked}
    if any(name in asked for name in _SAYS_HOW_LONG):
        return dict(asked)
    return {LIFETIME_POLICY: Lifetime.IF_UNUSED_AND_EMPTY.value, **asked}
