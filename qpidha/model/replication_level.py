"""Replication levels: how much of an object other brokers get to know.

An object of level `none` stays on this broker; of `configuration` others know that it exists; of
`all` they get its messages as well. The level is decided once, when the object is declared, and
kept in its record. Source: Qpid `ReplicationTest.cpp`, `Primary::queueCreate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

REPLICATE = "qpid.replicate"
HA_UUID = "qpid.ha-uuid"
NONE = "none"
CONFIGURATION = "configuration"
ALL = "all"
LEVELS = (NONE, CONFIGURATION, ALL)


def resolve(arguments: Mapping[str, Any], default: str) -> str:
    """Return the level that `arguments` ask for, or the default if they say nothing."""
    level = arguments.get(REPLICATE, default)
    if level not in LEVELS:
        raise InvalidArgument(
            f"Invalid replication value: {level}",
            hint=f"Set {REPLICATE} to one of {', '.join(LEVELS)}.",
        )
    return str(level)
