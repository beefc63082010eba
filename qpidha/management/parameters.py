"""Parameters: the arguments of one management request, checked as they are taken.

A handler takes what it knows by name and type and then calls `finish`, which refuses what is left:
a misspelt option must never be ignored in silence. Every refusal says which method, which parameter,
what was wrong and what is expected instead.
Knows nothing of what the parameters mean.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from qpidha.words.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_NAME = 255
"""Characters in the name of a queue, exchange or key; the limit of AMQP 0-10 short strings, kept for the tools."""

DEEPEST = 8
"""Levels of lists and maps inside one argument."""


class Parameters:
    """What is left to be taken of a request's parameters."""

    __slots__ = ("_known", "_left", "_method")

    def __init__(self, method: str, values: Mapping[Any, Any] | None) -> None:
        self._method = method
        self._left: dict[str, Any] = {} if values is None else {str(name): value for name, value in values.items()}
        self._known: list[str] = []

    def name(self, parameter: str) -> str:
        """Take the name of something: required, not empty, of bounded length and without control characters."""
        value = self.text(parameter)
        if not value:
            raise self._bad(parameter, "is missing or empty", "give the name as a string")
        self._check_text(parameter, value)
        return value

    def text(self, parameter: str, default: str = "") -> str:
        """Take a string."""
        value = self._take(parameter)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self._bad(parameter, f"is {_kind(value)}", "give a string")
        self._check_text(parameter, value)
        return str(value)

    def flag(self, parameter: str, default: bool = False) -> bool:
        """Take a boolean."""
        value = self._take(parameter)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._bad(parameter, f"is {_kind(value)}", "give true or false")
        return value

    def number(self, parameter: str, default: int = 0) -> int:
        """Take an integer that is not negative."""
        value = self._take(parameter)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._bad(parameter, f"is {_kind(value)}", "give an integer of 0 or more")
        return int(value)

    def table(self, parameter: str) -> dict[str, Any]:
        """Take a map with string keys."""
        value = self._take(parameter)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._bad(parameter, f"is {_kind(value)}", "give a map")
        return {self._key(parameter, key): self._entry(parameter, str(key), entry, 0) for key, entry in value.items()}

    def finish(self) -> None:
        """Refuse whatever was not taken."""
        if self._left:
            unknown = ", ".join(self._left)
            offered = ", ".join(self._known) or "none"
            raise InvalidArgument(f"{self._method}: unknown parameter {unknown}", hint=f"parameters of {self._method}: {offered}")

    def _take(self, parameter: str) -> Any:
        self._known.append(parameter)
        return self._left.pop(parameter, None)

    def _check_text(self, parameter: str, value: str) -> None:
        if len(value) > LONGEST_NAME:
            raise self._bad(parameter, f"is {len(value)} characters long", f"use at most {LONGEST_NAME}")
        if any(character < " " or character == "\x7f" for character in value):
            raise self._bad(parameter, f"contains a control character: {value!r}", "use printable characters only")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise self._bad(parameter, f"contains a surrogate, which UTF-8 cannot carry: {value!r}", "use Unicode characters")

    def _key(self, parameter: str, key: object) -> str:
        if not isinstance(key, str):
            raise self._bad(parameter, f"has the key {key!r}, which is {_kind(key)}", "give maps with string keys")
        self._check_text(parameter, key)
        return str(key)

    def _entry(self, parameter: str, key: str, entry: object, depth: int) -> Any:
        """Reduce one argument to the plain types that a record carries to every broker, or refuse it."""
        where = f"has the entry {key}, which"
        if depth > DEEPEST:
            raise self._bad(parameter, f"{where} is nested more than {DEEPEST} deep", "use a flatter value")
        if entry is None or isinstance(entry, bool):
            return entry
        if isinstance(entry, int) and -(2**63) <= entry < 2**63:
            return int(entry)
        if isinstance(entry, float) and isfinite(entry):
            return float(entry)
        if isinstance(entry, str) and not any("\ud800" <= character <= "\udfff" for character in entry):
            return str(entry)
        if isinstance(entry, dict):
            return {self._key(parameter, inner): self._entry(parameter, key, value, depth + 1) for inner, value in entry.items()}
        if isinstance(entry, list | tuple):
            return [self._entry(parameter, key, value, depth + 1) for value in entry]
        offered = "use Unicode strings, 64-bit integers, finite numbers, booleans, lists and maps"
        raise self._bad(parameter, f"{where} is {_kind(entry)}", offered)

    def _bad(self, parameter: str, what: str, instead: str) -> InvalidArgument:
        return InvalidArgument(f"{self._method}: parameter {parameter} {what}", hint=instead)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int):
        return f"the integer {value}" if -(2**63) <= value < 2**63 else "an integer outside the signed 64 bits"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, bytes):
        return "binary"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    return "null" if value is None else f"a {type(value).__name__}"
