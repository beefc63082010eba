"""Limits: how many messages and bytes a queue may hold, and what happens when it is full.

Of several sources (the queue's arguments, the broker's default; later policies) the smallest number
will count; today an argument replaces the default.
Source: Qpid `QueueSettings.cpp`, `QueueDepth`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.arguments import check_whole_number
from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_COUNT = "qpid.max_count"
MAX_SIZE = "qpid.max_size"
POLICY_TYPE = "qpid.policy_type"
REJECT = "reject"
RING = "ring"
UNLIMITED = (1 << 63) - 1
"""Larger than anything that is counted, so that a limit is one comparison, with no test for `no
limit`.
"""


@dataclass(slots=True, frozen=True)
class Limits:
    """The depth a queue may reach, and whether its oldest message gives way (`ring`) or the
    newcomer (`reject`).
    """

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


def check_limits(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a limit that is no number, or a policy that is not known."""
    for name in (MAX_COUNT, MAX_SIZE):
        if name in arguments:
            check_whole_number(name, arguments[name])
    policy = arguments.get(POLICY_TYPE, REJECT)
    if policy not in (REJECT, RING):
        raise InvalidArgument(
            f"{POLICY_TYPE}={policy} is not offered yet", hint=f"Use {REJECT} or {RING}."
        )
