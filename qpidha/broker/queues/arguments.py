"""Arguments of declarations: names, and values that a record can carry.

Arguments are checked once, when a client declares an object; what was accepted then is read again
by every broker that learns of the object from a record, without complaint.
Source: Qpid `QueueSettings.cpp`, `QueueFactory.cpp`.
"""

from __future__ import annotations

from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any

from qpidha.model.errors import InvalidArgument
from qpidha.model.printable import flaw_in_new_name

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_NAME = 255
"""Characters of a queue's or exchange's name; as in Qpid."""
LONGEST_KEY = 255
"""Bytes of a routing key or a binding key; as in Qpid and RabbitMQ."""
DEEPEST = 8
"""Lists and maps within each other in an argument."""
MOST_DIGITS = 18
"""Of a number that comes as text, so that it has at most 63 bits."""


def check_name(kind: str, name: str) -> None:
    """Raise InvalidArgument for a name that is too long to be kept, listed and recorded, or has in
    it what a terminal would obey.
    """
    if len(name) > LONGEST_NAME:
        raise InvalidArgument(
            f"The {kind} {name[:40]}... is {len(name)} characters long",
            hint=f"Use at most {LONGEST_NAME}.",
        )
    if flaw := flaw_in_new_name(name):
        raise InvalidArgument(f"The {kind} {flaw[0]}", hint=flaw[1])


def fits_key(key: str) -> bool:
    """Whether an exchange takes a key as long as this one."""
    return 4 * len(key) <= LONGEST_KEY or _bytes_of(key) <= LONGEST_KEY


def check_key(kind: str, key: str, hint: str = "use a shorter one") -> None:
    """Raise InvalidArgument for a key that is too long to be matched with others."""
    if not fits_key(key):
        raise InvalidArgument(
            f"the {kind} {key[:40]!r}... is {_bytes_of(key)} bytes long",
            reason=f"an exchange takes keys of up to {LONGEST_KEY} bytes",
            hint=hint,
        )


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def check_plain(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a value that a record cannot carry: records and tools know what
    JSON knows.
    """
    for name, value in arguments.items():
        _check_plain(name, value, DEEPEST)


def _check_plain(name: str, value: Any, depth: int) -> None:
    if depth < 0:
        raise InvalidArgument(
            f"The argument {name} is nested more than {DEEPEST} deep", hint="Use a flatter value."
        )
    if isinstance(value, list | tuple):
        for item in value:
            _check_plain(name, item, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidArgument(
                    f"The argument {name} has the key {key!r}, which is no text",
                    hint="Use text for keys.",
                )
            _check_plain(name, item, depth - 1)
    elif isinstance(value, int | float):
        if not (isfinite(value) if isinstance(value, float) else -(2**63) <= value < 2**63):
            raise InvalidArgument(
                f"The argument {name} is {value}",
                hint="Use finite numbers, and integers of 64 bits with a sign.",
            )
    elif value is not None and not isinstance(value, str):
        kind = type(value).__name__.lower()
        raise InvalidArgument(
            f"The argument {name} is of the type {kind}",
            hint="Use text, numbers, booleans, lists or maps of them.",
        )


def short_name(name: str) -> str:
    """Return a name that a message says, and that is kept in memory as long as the message is
    there; a digest of it if it is long.
    """
    if len(name) <= LONGEST_NAME:
        return name
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


def is_same(one: Any, other: Any) -> bool:
    """Whether two values of an argument say the same: 5 and "5" do, 1 and true do not."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, str) != isinstance(other, str):
        text, number = (one, other) if isinstance(one, str) else (other, one)
        return isinstance(number, int) and _is_number(text) and int(text) == number
    return bool(one == other)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS


def check_whole_number(name: str, value: Any, hint: str = "0 means no limit.") -> None:
    """Raise InvalidArgument unless `value` is a number from 0; tools send it as text too."""
    if isinstance(value, str):
        acceptable = _is_number(value)
    else:
        acceptable = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not acceptable:
        shown = value[:40] if isinstance(value, str) else value
        raise InvalidArgument(f"{name}={shown!r} is not a whole number from 0", hint=hint)
