"""Topic matching: which patterns a routing key fits, by a tree of words.

Keys and patterns are words joined by dots; in a pattern `*` is exactly one word and `#` any number,
none included. All ways through the tree are followed at once, a word at a time, so that the work
depends on the words and the ways that fit, not on how many patterns there are. Words that follow
each other in one pattern only are one place of the tree, however many they are.
Knows patterns and opaque values only. Source: AMQP 0-10 section 3.1.3.3, Qpid `TopicExchange.cpp`.
"""

from __future__ import annotations

import sys
from typing import Generic, TypeVar

from qpidha.model.errors import RefusedRequest

Value = TypeVar("Value")

ONE = "*"
MANY = "#"
MOST_STEPS = 2000
"""That the comparison of one key with all patterns may take, about a millisecond: twice what a key
of nine words takes where there is each pattern of its words and `*`. Ordinary keys take less than
fifty, however many patterns there are.
"""
MANY_PATTERNS = "it has many words, and there are many patterns that it may fit"
"""Why a key takes too long to be compared with patterns."""


class TooManyWays(RefusedRequest):
    """A key that fits the beginnings of too many patterns, or a message that something else speaks
    of too many bindings of: to go on would take too long.
    """

    condition = "amqp:resource-limit-exceeded"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(
            f"{what} takes too long to be compared with all bindings",
            reason=reason,
            hint="use fewer words in keys, fewer * and # in bindings, or fewer bindings",
        )


class TooManyKeys(RefusedRequest):
    """A key that could be compared with all patterns if others had taken less."""

    condition = "amqp:resource-limit-exceeded"


class Steps:
    """What the comparison of keys with patterns may take until it is renewed: each key has some
    steps whatever the others take. What one takes beyond them, `MOST_STEPS` in all, is shared; it
    may be overdrawn once.
    """

    __slots__ = ("_each", "_hint", "_left", "_shared")

    def __init__(self, each: int, shared: int, hint: str) -> None:
        self._each = each
        self._shared = self._left = shared
        self._hint = hint
        """What to do about a key that finds nothing left."""

    def are_over(self) -> bool:
        """Whether nothing is left of what is shared."""
        return self._left <= 0

    @property
    def most(self) -> int:
        """What the next key may take."""
        return MOST_STEPS if self._left > 0 else min(self._each, MOST_STEPS)

    def take(self, steps: int) -> None:
        """A key has taken so many."""
        if steps > self._each:
            self._left -= steps - self._each

    def renew(self) -> None:
        """Have all of them again."""
        self._left = self._shared

    def refusal(self, what: str, reason: str) -> RefusedRequest:
        """Return what refuses a key, or another thing that is looked for, which would have taken
        more than it may; `reason` is why it takes so much.
        """
        if self.most == MOST_STEPS:
            return TooManyWays(what, reason)
        return TooManyKeys(
            f"{what} and those before it together take too long to be compared with all bindings",
            hint=self._hint,
        )


class StepsOfOne(Steps):
    """What several searches for one key may take together."""

    __slots__ = ()

    def __init__(self, steps: Steps) -> None:
        super().__init__(0, steps.most, "")

    @property
    def most(self) -> int:
        """What the next search may take."""
        return max(self._left, 0)

    @property
    def taken(self) -> int:
        """What the searches have taken until now."""
        return self._shared - self._left


class _Place(Generic[Value]):
    """Where one beginning of some patterns leads to."""

    __slots__ = ("following", "values", "words")

    def __init__(self, words: list[str]) -> None:
        self.words = words
        """The last words of that beginning: those that no pattern goes another way between."""
        self.following: dict[str, _Place[Value]] = {}
        """By the first of their words."""
        self.values: dict[Value, None] = {}


class TopicTree(Generic[Value]):
    """A set of (pattern, value)."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Place[Value] = _Place([])

    def add(self, pattern: str, value: Value) -> None:
        """Add a value under a pattern."""
        place, words = self._root, split(pattern)
        while words:
            following = place.following.get(words[0])
            if following is None:
                following = place.following[words[0]] = _Place(words)
            count = _common(words, following.words)
            if count < len(following.words):
                following = _divide(place, following, count)
            place, words = following, words[count:]
        place.values[value] = None

    def remove(self, pattern: str, value: Value) -> None:
        """Remove a value that was added, and the branches that then lead nowhere."""
        path, words = [self._root], split(pattern)
        while words:
            place = path[-1].following[words[0]]
            path.append(place)
            words = words[len(place.words) :]
        path[-1].values.pop(value, None)
        while len(path) > 1:
            place = path.pop()
            if place.values or len(place.following) > 1:
                break
            first = place.words[0]
            if not place.following:
                del path[-1].following[first]
                continue
            (following,) = place.following.values()
            following.words = place.words + following.words
            path[-1].following[first] = following
            break

    def match(self, key: str, steps: Steps | None = None) -> dict[Value, None]:
        """Return the values of all patterns that `key` fits, each once, in a stable order. With
        `steps` it takes of them, and raises TooManyWays or TooManyKeys where they are too few.
        """
        most = sys.maxsize if steps is None else steps.most
        places: dict[tuple[_Place[Value], int], None] = {}
        """Those that the words up to here lead to: how many of its words each of them took."""
        _arrive(self._root, 0, places)
        taken = len(places)
        for word in split(key):
            reached: dict[tuple[_Place[Value], int], None] = {}
            for place, at in places:
                if at and place.words[at - 1] == MANY:
                    _arrive(place, at, reached)
                if at < len(place.words):
                    way = place.words[at]
                    # A word of a key may look like a wildcard; it is one in patterns only. To where
                    # `#` leads every word does.
                    if way in (word, ONE):
                        _arrive(place, at + 1, reached)
                else:
                    for way in (word, ONE):
                        following = place.following.get(way)
                        if following is not None:
                            _arrive(following, 1, reached)
                if steps is not None and taken + len(reached) > most:
                    refusal = steps.refusal(shown(key), MANY_PATTERNS)
                    steps.take(most)
                    raise refusal
            taken += len(reached)
            places = reached
        if steps is not None:
            steps.take(taken)
        found: dict[Value, None] = {}
        for place, at in places:
            if at == len(place.words):
                found.update(place.values)
        return found


def _common(one: list[str], other: list[str]) -> int:
    """Count the words that both begin with."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _divide(parent: _Place[Value], place: _Place[Value], count: int) -> _Place[Value]:
    """Make two places of one: return the one with the first `count` words, which leads to it."""
    former: _Place[Value] = _Place(place.words[:count])
    place.words = place.words[count:]
    former.following[place.words[0]] = place
    parent.following[former.words[0]] = former
    return former


def _arrive(place: _Place[Value], at: int, places: dict[tuple[_Place[Value], int], None]) -> None:
    """Add a place, and those that `#` leads on to without any word."""
    while (place, at) not in places:
        places[place, at] = None
        if at < len(place.words):
            if place.words[at] != MANY:
                break
            at += 1
        else:
            following = place.following.get(MANY)
            if following is None:
                break
            place, at = following, 1


def shown(key: str) -> str:
    return f"the key {key[:40]!r}..."


def split(text: str) -> list[str]:
    """Return the words of a key or pattern; the empty one has none."""
    return text.split(".") if text else []
