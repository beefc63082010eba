"""Limits: how many messages and bytes a queue may hold, what happens when it is full, and when its
senders are to wait before it is.

With more than `flow-stop` on the queue its senders get no credit; with `flow-resume` or less they
get some again. What is between flow-stop and the limit is for messages that are on their way then.
A ring makes room by itself and stops nobody. Of several sources (the queue's arguments, the
broker's default; later policies) the smallest number will count; today an argument replaces the
default.
Source: Qpid `QueueSettings.cpp`, `QueueDepth`, `QueueFlowLimit.cpp`.
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
FLOW_STOP_COUNT, FLOW_RESUME_COUNT = "qpid.flow_stop_count", "qpid.flow_resume_count"
FLOW_STOP_SIZE, FLOW_RESUME_SIZE = "qpid.flow_stop_size", "qpid.flow_resume_size"
STOP_PERCENT, RESUME_PERCENT = 80, 70
"""Of a limit: where senders stop and go on if the queue's arguments do not say; as in Qpid."""
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
    stop_count: int = UNLIMITED
    stop_bytes: int = UNLIMITED
    """With more than one of these senders get no credit."""
    resume_count: int = UNLIMITED
    resume_bytes: int = UNLIMITED
    """With no more than these they get some again."""

    @property
    def spare_count(self) -> int:
        """How many messages have room once senders are stopped."""
        return UNLIMITED if self.stop_count == UNLIMITED else self.max_count - self.stop_count

    @property
    def spare_bytes(self) -> int:
        """How many bytes have room once senders are stopped."""
        return UNLIMITED if self.stop_bytes == UNLIMITED else self.max_bytes - self.stop_bytes


def read_limits(arguments: Mapping[str, Any], default_max_bytes: int, memory: int) -> Limits:
    """Return the limits in `arguments`, which have been checked; 0 is no limit, as in Qpid."""
    max_count = int(arguments.get(MAX_COUNT, 0)) or UNLIMITED
    max_bytes = int(arguments.get(MAX_SIZE, default_max_bytes)) or UNLIMITED
    ring = arguments.get(POLICY_TYPE) == RING
    stop_count = stop_bytes = resume_count = resume_bytes = UNLIMITED
    if not ring:
        stop_count, resume_count = _thresholds(
            arguments, FLOW_STOP_COUNT, FLOW_RESUME_COUNT, max_count
        )
        stop_bytes, resume_bytes = _thresholds(
            arguments, FLOW_STOP_SIZE, FLOW_RESUME_SIZE, max_bytes
        )
    return Limits(
        max_count=max_count,
        max_bytes=max_bytes,
        ring=ring,
        memory=memory or UNLIMITED,
        stop_count=stop_count,
        stop_bytes=stop_bytes,
        resume_count=resume_count,
        resume_bytes=resume_bytes,
    )


def _thresholds(
    arguments: Mapping[str, Any], stop_name: str, resume_name: str, limit: int
) -> tuple[int, int]:
    """Return where senders stop and where they go on below one limit; a stop of 0 is never."""
    stop = min(int(arguments.get(stop_name, _part(limit, STOP_PERCENT))), limit)
    if stop == UNLIMITED or (stop == 0 and stop_name in arguments):
        return UNLIMITED, UNLIMITED
    default = _part(limit, RESUME_PERCENT) if limit < UNLIMITED else stop * 7 // 8
    return stop, min(int(arguments.get(resume_name, 0)) or default, stop)


def _part(limit: int, percent: int) -> int:
    return limit * percent // 100 if limit < UNLIMITED else UNLIMITED


def check_limits(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a limit that is no number, or a policy that is not known."""
    for names in (
        (MAX_COUNT, FLOW_STOP_COUNT, FLOW_RESUME_COUNT),
        (MAX_SIZE, FLOW_STOP_SIZE, FLOW_RESUME_SIZE),
    ):
        for name in names:
            if name in arguments:
                check_whole_number(name, arguments[name])
        _check_thresholds(arguments, *names)
    policy = arguments.get(POLICY_TYPE, REJECT)
    if policy not in (REJECT, RING):
        raise InvalidArgument(
            f"{POLICY_TYPE}={policy} is not offered yet", hint=f"Use {REJECT} or {RING}."
        )


def _check_thresholds(
    arguments: Mapping[str, Any], limit_name: str, stop_name: str, resume_name: str
) -> None:
    """Raise InvalidArgument for thresholds that contradict each other, the limit or the policy."""
    limit, stop, resume = (
        int(arguments.get(name, 0)) for name in (limit_name, stop_name, resume_name)
    )
    if (stop or resume) and arguments.get(POLICY_TYPE) == RING:
        raise InvalidArgument(
            f"{stop_name if stop else resume_name} is when senders wait, and of a ring they do not",
            reason="it makes room by itself",
            hint=f"leave it out, or use {POLICY_TYPE}={REJECT}",
        )
    if limit and stop > limit:
        raise InvalidArgument(
            f"{stop_name}={stop} is more than {limit_name}={limit}", hint="use less, or 0 for never"
        )
    if stop_name not in arguments:
        stop = limit * STOP_PERCENT // 100
    if stop and resume > stop:
        raise InvalidArgument(
            f"{resume_name}={resume} is more than senders stop at, {stop}", hint="use less"
        )
