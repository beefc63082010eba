"""Parameters: what a method takes, and the check of what a request gives.

A `Parameter` stands in a method's row: name, type and help. `read` checks the parameters of one
request against a row and refuses whatever is misspelt, missing or of another type: an option must
never be ignored in silence. Each refusal names the method, the parameter, what is wrong with it and
what is expected. Knows nothing of what the parameters mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from math import isfinite
from typing import Any

from qpidha.broker.queues.arguments import DEEPEST, LONGEST_NAME
from qpidha.model.errors import InvalidArgument
from qpidha.model.printable import flaw_in_name


class Type(StrEnum):
    """What the value of a parameter is."""

    NAME = "name"  # a string of 1 to 255 characters; required
    TEXT = "string"  # of 0 to 255 characters; empty if it is left out
    FLAG = "boolean"  # false if it is left out, unless the parameter says otherwise
    NUMBER = "integer"  # 0 if it is left out, unless the parameter says otherwise
    MAP = "map"  # with strings as keys; empty if it is left out


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a method."""

    name: str
    type: Type
    help: str
    default: Any = None
    """What it is if it is left out; None stands for the empty value of its type."""
    longest: int = LONGEST_NAME
    """Characters of a text."""
    least: int = 0
    """The smallest number that is allowed."""
    aliases: tuple[str, ...] = ()
    """Names that AMQP management knows it by, beside its own in any spelling."""

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        return self.type is Type.NAME


def read(
    method: str, parameters: Sequence[Parameter], given: Mapping[Any, Any] | None
) -> dict[str, Any]:
    """Return the value of each parameter; raise InvalidArgument for what is not right."""
    left = {} if given is None else {str(name): value for name, value in given.items()}
    found = {
        each.name: _READERS[each.type](method, each, left.pop(each.name, None))
        for each in parameters
    }
    if left:
        raise _unknown(method, [each.name for each in parameters], list(left))
    return found


def _unknown(method: str, known: list[str], unknown: list[str]) -> InvalidArgument:
    offered = f"parameters of {method}: {', '.join(known) or 'none'}"
    near = get_close_matches(unknown[0], known, 1)
    return InvalidArgument(
        f"{method}: unknown parameter {', '.join(unknown)}",
        hint=f"did you mean {near[0]}? {offered}" if near else offered,
    )


def _name(method: str, parameter: Parameter, value: Any) -> str:
    text = _text(method, parameter, value)
    if not text:
        raise _bad(method, parameter, "is missing or empty", "give the name as a string")
    return text


def _text(method: str, parameter: Parameter, value: Any) -> str:
    if value is None:
        return str(parameter.default or "")
    if not isinstance(value, str):
        raise _bad(method, parameter, f"is {_kind(value)}", "give a string")
    _check_text(method, parameter, value)
    return str(value)


def _flag(method: str, parameter: Parameter, value: Any) -> bool:
    if value is None:
        return bool(parameter.default)
    if not isinstance(value, bool):
        raise _bad(method, parameter, f"is {_kind(value)}", "give true or false")
    return value


def _number(method: str, parameter: Parameter, value: Any) -> int:
    if value is None:
        return int(parameter.default or 0)
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not (parameter.least <= value < 2**63)
    ):
        hint = f"give a whole number from {parameter.least}"
        raise _bad(method, parameter, f"is {_kind(value)}", hint)
    return int(value)


def _map(method: str, parameter: Parameter, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _bad(method, parameter, f"is {_kind(value)}", "give a map")
    return {
        _key(method, parameter, key): _entry(method, parameter, str(key), entry, 0)
        for key, entry in value.items()
    }


_READERS = {
    Type.NAME: _name,
    Type.TEXT: _text,
    Type.FLAG: _flag,
    Type.NUMBER: _number,
    Type.MAP: _map,
}


def _check_text(method: str, parameter: Parameter, value: str) -> None:
    if len(value) > parameter.longest:
        hint = f"use at most {parameter.longest}"
        raise _bad(method, parameter, f"is {len(value)} characters long", hint)
    if flaw := flaw_in_name(value):
        raise _bad(method, parameter, *flaw)


def _key(method: str, parameter: Parameter, key: object) -> str:
    if not isinstance(key, str):
        raise _bad(
            method,
            parameter,
            f"has the key {key!r}, which is {_kind(key)}",
            "give maps with string keys",
        )
    _check_text(method, parameter, key)
    return str(key)


def _entry(method: str, parameter: Parameter, key: str, entry: object, depth: int) -> Any:
    """Reduce one argument to the plain types that a record carries to every broker."""
    where = f"has the entry {key}, which"
    if depth > DEEPEST:
        raise _bad(
            method, parameter, f"{where} is nested more than {DEEPEST} deep", "use a flatter value"
        )
    if entry is None or isinstance(entry, bool):
        return entry
    if isinstance(entry, int) and -(2**63) <= entry < 2**63:
        return int(entry)
    if isinstance(entry, float) and isfinite(entry):
        return float(entry)
    if isinstance(entry, str) and not any("\ud800" <= character <= "\udfff" for character in entry):
        return str(entry)
    if isinstance(entry, dict):
        return {
            _key(method, parameter, inner): _entry(method, parameter, key, value, depth + 1)
            for inner, value in entry.items()
        }
    if isinstance(entry, list | tuple):
        return [_entry(method, parameter, key, value, depth + 1) for value in entry]
    offered = "use Unicode strings, 64-bit integers, finite numbers, booleans, lists and maps"
    raise _bad(method, parameter, f"{where} is {_kind(entry)}", offered)


def _bad(method: str, parameter: Parameter, fault: str, instead: str) -> InvalidArgument:
    return InvalidArgument(f"{method}: parameter {parameter.name} {fault}", hint=instead)


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int):
        return (
            f"the integer {value}"
            if -(2**63) <= value < 2**63
            else "an integer outside the signed 64 bits"
        )
    if isinstance(value, str):
        return "a string"
    if isinstance(value, bytes):
        return "binary"
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list"
    return "null" if value is None else f"a {type(value).__name__}"
