"""Limits: how much a queue may hold, and which queue arguments this broker understands.

Arguments are checked once, when a client declares a queue; what was accepted then is read again by
every broker that learns of the queue from a record, without complaint.
Source: Qpid `QueueSettings.cpp`, `QueueFactory.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from qpidha.broker.dedup import DEDUP, DEDUP_WINDOW, check_dedup
from qpidha.broker.level import HA_UUID, REPLICATE
from qpidha.broker.lifetime import AUTO_DELETE_TIMEOUT, LIFETIME_POLICY, check_lifetime
from qpidha.words.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_COUNT = "qpid.max_count"
MAX_SIZE = "qpid.max_size"
POLICY_TYPE = "qpid.policy_type"
REJECT = "reject"
RING = "ring"
LONGEST_NAME = 255
"""Characters of a queue's or exchange's name, and of a binding key; as in Qpid."""
DEEPEST = 8
"""Lists and maps within each other in an argument."""
MOST_DIGITS = 18
"""Of a number that comes as text, so that it has at most 63 bits."""
UNLIMITED = (1 << 63) - 1
"""Larger than anything that is counted, so that a limit is one comparison, with no test for `no limit`."""

QUEUE_ARGUMENTS = (MAX_COUNT, MAX_SIZE, POLICY_TYPE, REPLICATE, HA_UUID, AUTO_DELETE_TIMEOUT, LIFETIME_POLICY, DEDUP, DEDUP_WINDOW)
EXCHANGE_ARGUMENTS = (REPLICATE, HA_UUID)
OWN_PREFIXES = ("qpid.", "x-qpid-", "qpidha.")
"""Arguments that begin so are instructions to the broker; all others belong to the application and are only kept."""


@dataclass(slots=True, frozen=True)
class Limits:
    """The depth a queue may reach, and whether its oldest message gives way (`ring`) or the newcomer (`reject`)."""

    max_count: int = UNLIMITED
    max_bytes: int = UNLIMITED
    ring: bool = False
    memory: int = UNLIMITED
    """Bytes of messages that need be in memory, where the log has them all."""


def read_limits(arguments: Mapping[str, Any], default_max_bytes: int, memory: int) -> Limits:
    """Return the limits in `arguments`, which have been checked; 0 is no limit, as in Qpid."""
    return Limits(
        max_count=int(arguments.get(MAX_COUNT, 0)) or UNLIMITED,
        max_bytes=int(arguments.get(MAX_SIZE, default_max_bytes)) or UNLIMITED,
        ring=arguments.get(POLICY_TYPE) == RING,
        memory=memory or UNLIMITED,
    )


def check_queue_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for an instruction that cannot be followed."""
    check_plain(arguments)
    check_known(arguments, QUEUE_ARGUMENTS)
    for name in (MAX_COUNT, MAX_SIZE):
        if name in arguments:
            check_whole_number(name, arguments[name])
    policy = arguments.get(POLICY_TYPE, REJECT)
    if policy not in (REJECT, RING):
        raise InvalidArgument(f"{POLICY_TYPE}={policy} is not offered yet", hint=f"Use {REJECT} or {RING}.")
    check_lifetime(arguments)
    check_dedup(arguments)


def check_known(arguments: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise InvalidArgument for an instruction that is not in `known`: doing half of what was asked would be a lie."""
    for name in arguments:
        if name.startswith(OWN_PREFIXES) and name not in known:
            raise InvalidArgument(f"The argument {name} is not offered yet", hint=f"Leave it out; known are {', '.join(known)}.")


def check_name(kind: str, name: str) -> None:
    """Raise InvalidArgument for a name or key that is too long to be kept, listed and recorded."""
    if len(name) > LONGEST_NAME:
        raise InvalidArgument(f"The {kind} {name[:40]}... is {len(name)} characters long", hint=f"Use at most {LONGEST_NAME}.")


def check_plain(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a value that a record cannot carry: records and tools know what JSON knows."""
    for name, value in arguments.items():
        _check_plain(name, value, DEEPEST)


def _check_plain(name: str, value: Any, depth: int) -> None:
    if depth == 0:
        raise InvalidArgument(f"The argument {name} is nested more than {DEEPEST} deep", hint="Use a flatter value.")
    if isinstance(value, list | tuple):
        for item in value:
            _check_plain(name, item, depth - 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidArgument(f"The argument {name} has the key {key!r}, which is no text", hint="Use text for keys.")
            _check_plain(name, item, depth - 1)
    elif isinstance(value, int | float):
        if not (isfinite(value) if isinstance(value, float) else -(2**63) <= value < 2**63):
            raise InvalidArgument(f"The argument {name} is {value}", hint="Use finite numbers, and integers of 64 bits with a sign.")
    elif value is not None and not isinstance(value, str):
        kind = type(value).__name__.lower()
        raise InvalidArgument(f"The argument {name} is of the type {kind}", hint="Use text, numbers, booleans, lists or maps of them.")


def check_whole_number(name: str, value: Any) -> None:
    """Raise InvalidArgument unless `value` is a number from 0; tools send it as text too."""
    if isinstance(value, str):
        acceptable = value.isascii() and value.isdecimal() and len(value) <= MOST_DIGITS
    else:
        acceptable = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if not acceptable:
        shown = value[:40] if isinstance(value, str) else value
        raise InvalidArgument(f"{name}={shown!r} is not a whole number from 0", hint="0 means no limit.")
