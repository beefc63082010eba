"""Topic matching: which patterns a routing key fits, by a tree of words.

Keys and patterns are words joined by dots; in a pattern `*` is exactly one word and `#` any number,
none included. All ways through the tree are followed at once, a word at a time, so that the work
depends on the words and the ways that fit, not on how many patterns there are.
Knows patterns and opaque values only. Source: AMQP 0-10 section 3.1.3.3, Qpid `TopicExchange.cpp`.
"""

from __future__ import annotations

import sys
from typing import Generic, TypeVar

from qpidha.model.errors import RefusedRequest

Value = TypeVar("Value")

ONE = "*"
MANY = "#"


class TooManyWays(RefusedRequest):
    """A key that fits the beginnings of too many patterns: to go on would take too long."""

    condition = "amqp:resource-limit-exceeded"


class _Place(Generic[Value]):
    """Where one beginning of some patterns leads to."""

    __slots__ = ("following", "is_many", "values")

    def __init__(self, is_many: bool = False) -> None:
        self.following: dict[str, _Place[Value]] = {}
        self.values: dict[Value, None] = {}
        self.is_many = is_many
        """Whether it was reached by `#`, and so is stayed at with any further word."""


class TopicTree(Generic[Value]):
    """A set of (pattern, value)."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Place[Value] = _Place()

    def add(self, pattern: str, value: Value) -> None:
        """Add a value under a pattern."""
        place = self._root
        for word in split(pattern):
            if word not in place.following:
                place.following[word] = _Place(word == MANY)
            place = place.following[word]
        place.values[value] = None

    def remove(self, pattern: str, value: Value) -> None:
        """Remove a value that was added, and the branches that then lead nowhere."""
        path = [self._root]
        words = split(pattern)
        for word in words:
            path.append(path[-1].following[word])
        path[-1].values.pop(value, None)
        for parent, word, place in zip(
            reversed(path[:-1]), reversed(words), reversed(path), strict=False
        ):
            if place.values or place.following:
                break
            del parent.following[word]

    def match(self, key: str, most: int = sys.maxsize) -> dict[Value, None]:
        """Return the values of all patterns that `key` fits, each once, in a stable order. Raises
        TooManyWays where that takes more than `most` looks at a place.
        """
        places: dict[_Place[Value], None] = {}
        _arrive(self._root, places)
        for word in split(key):
            most -= len(places)
            if most < 0:
                raise TooManyWays(
                    f"the key {key[:40]!r}... takes too long to be compared with all bindings",
                    reason="it has many words, and there are many patterns that it may fit",
                    hint="use fewer words in keys, or fewer * and # in bindings",
                )
            reached: dict[_Place[Value], None] = {}
            for place in places:
                if place.is_many:
                    _arrive(place, reached)
                for way in (word, ONE):
                    following = place.following.get(way)
                    # A word of a key may look like a wildcard; it is one in patterns only.
                    if following is not None and not (following.is_many and way == word):
                        _arrive(following, reached)
            places = reached
        found: dict[Value, None] = {}
        for place in places:
            found.update(place.values)
        return found


def _arrive(place: _Place[Value], places: dict[_Place[Value], None]) -> None:
    """Add a place, and those that `#` leads on to without any word."""
    while place not in places:
        places[place] = None
        following = place.following.get(MANY)
        if following is None:
            break
        place = following


def split(text: str) -> list[str]:
    """Return the words of a key or pattern; the empty one has none."""
    return text.split(".") if text else []
