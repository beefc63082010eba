"""Patterns: which names a policy is for.

A pattern is a regular expression that is looked for anywhere in a name, as in RabbitMQ. Every
broker of a cluster must come to the same answer, so no clock may end a search that takes too long;
instead RE2 matches in a time that is proportional to the name, whatever the pattern. It knows no
look-around for that reason. But `^(?!amq\\.).*` is what RabbitMQ's guides say, so look-ahead at the
beginning is done here: there it is nothing but one more pattern, which must or must not fit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from qpidha.model.errors import InvalidArgument

LONGEST = 1024
"""Bytes of a pattern."""
MOST_STEPS = 2000
"""What a pattern may come to when it is compiled: at worst each character of a name is compared
with all of it.
"""
STEPS_AT_ONCE = 4
"""So many take about as long as the call of RE2."""
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True
_HEAD = re.compile(r"((?:\(\?[imsU]+\))?)(?:\^|\\A)(?=\(\?[!=])")
"""What may stand before look-ahead at the beginning: flags, and that it is the beginning."""
_STEP = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
"""One step through a pattern: an escape, a class of characters, or one character."""
_HINT = (
    "as in RE2: no back references, no look-behind, and look-ahead at the beginning only, as in "
    "^(?!amq\\.).*"
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern that is ready."""

    wanted: tuple[Any, ...]
    """All of these must fit."""
    unwanted: tuple[Any, ...]
    """None of these may."""
    cost: int
    """What it takes at worst to look for it in a long name; a plain one has 1 or 2."""

    def fits(self, name: str) -> bool:
        """Whether it is found in a name."""
        try:
            text = name.encode()  # It is what RE2 looks at.
        except UnicodeError:  # a name that is no text
            return False
        return all(one.search(text) for one in self.wanted) and not any(
            one.search(text) for one in self.unwanted
        )


@lru_cache(maxsize=2000)
def compile_pattern(text: str) -> Pattern:
    """Make a pattern ready; raise InvalidArgument for what is none."""
    if not text:
        raise _refused(text, "it is empty", "write .* for every name")
    if len(text.encode("utf-8", "surrogatepass")) > LONGEST:
        raise _refused(text, f"it is longer than {LONGEST} bytes", "use a shorter one")
    head = _HEAD.match(text)
    if head is None:
        return _ready(text, [_compiled(text, text)], [])
    flags, rest = head[1], text[head.end() :]
    wanted: list[Any] = []
    unwanted: list[Any] = []
    while rest.startswith(("(?!", "(?=")):
        end = _end_of_group(text, rest)
        one = _compiled(f"{flags}^(?:{rest[3:end]})", text)
        (unwanted if rest[2] == "!" else wanted).append(one)
        rest = rest[end + 1 :]
    if _has_alternatives(rest):
        raise _refused(
            text,
            "its look-ahead is for the first alternative only",
            f"write ^...(?:{rest[:100]}) for all of them",
        )
    return _ready(text, [*wanted, _compiled(f"{flags}^{rest}", text)], unwanted)


def _ready(text: str, wanted: list[Any], unwanted: list[Any]) -> Pattern:
    steps = sum(one.programsize for one in (*wanted, *unwanted))
    if steps > MOST_STEPS:
        raise _refused(
            text,
            f"it is too large: {steps} steps for a character, of {MOST_STEPS} at most",
            "repeat less often what is long, or has a choice",
        )
    return Pattern(tuple(wanted), tuple(unwanted), 1 + steps // STEPS_AT_ONCE)


def _compiled(part: str, whole: str) -> Any:
    try:
        return re2.compile(part, _OPTIONS)
    except re2.error as error:
        said = error.args[0]
        reason = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise _refused(whole, reason, _HINT) from None
    except UnicodeError:
        raise _refused(whole, "it is no text", "use Unicode") from None


def _end_of_group(whole: str, text: str) -> int:
    """Return where the group ends that a text begins with."""
    depth = 0
    for step in _STEP.finditer(text):
        depth += {"(": 1, ")": -1}.get(step[0], 0)
        if not depth:
            return step.start()
    raise _refused(whole, "a bracket is not closed", _HINT)


def _has_alternatives(text: str) -> bool:
    """Whether a text has a choice outside of all groups."""
    depth = 0
    for step in _STEP.finditer(text):
        depth += {"(": 1, ")": -1}.get(step[0], 0)
        if not depth and step[0] == "|":
            return True
    return False


def _refused(text: str, reason: str, hint: str) -> InvalidArgument:
    return InvalidArgument(f"{text[:100]!r} is no pattern", reason=reason, hint=hint)
