"""Limits: how many messages and bytes a queue may hold, what happens when it is full, and when its
senders are to wait before it is.

With more than `flow-stop` on the queue its senders get no credit; with `flow-resume` or less they
get some again. What is between flow-stop and the limit is for messages that are on their way then.
A queue that makes room by itself, or is to be full, stops nobody. An argument, or a policy, takes
the place of the broker's default; of both the smallest number counts (`broker/policy.py`).
Source: Qpid `QueueSettings.cpp`, `QueueDepth`, `QueueFlowLimit.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.arguments import check_whole_number
from qpidha.broker.queues.defaults import STOP_PERCENT, QueueDefaults
from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_COUNT = "qpid.max_count"
MAX_SIZE = "qpid.max_size"
POLICY_TYPE = "qpid.policy_type"
FLOW_STOP_COUNT, FLOW_RESUME_COUNT = "qpid.flow_stop_count", "qpid.flow_resume_count"
FLOW_STOP_SIZE, FLOW_RESUME_SIZE = "qpid.flow_stop_size", "qpid.flow_resume_size"
LOW_WATER = "qpidha.overflow-low-water"
MEMORY = "qpidha.memory"
REJECT = "reject"
RING = "ring"
RING_STRICT = "ring-strict"
REJECT_DEAD_LETTER = "reject-publish-dlx"
SELF_DESTRUCT = "self-destruct"
FLOW_TO_DISK = "flow_to_disk"
OVERFLOWS = (REJECT, RING, RING_STRICT, REJECT_DEAD_LETTER, SELF_DESTRUCT)
"""What a full queue does: refuse the newcomer; push out its oldest message; the same, unless a
consumer has that one; refuse the newcomer, which becomes a dead letter; end.
"""
UNLIMITED = (1 << 63) - 1
"""Larger than anything that is counted, so that a limit is one comparison, with no test for `no
limit`.
"""


@dataclass(slots=True, frozen=True)
class Limits:
    """The depth a queue may reach, and what happens then."""

    max_count: int = UNLIMITED
    max_bytes: int = UNLIMITED
    overflow: str = REJECT
    """One of `OVERFLOWS`."""
    low_water: int = 100
    """A queue that refused a message takes none before it is down to so many hundredths of its
    limits.
    """
    memory: int = UNLIMITED
    """Bytes of messages that need be in memory, where the log has them all."""
    stop_count: int = UNLIMITED
    stop_bytes: int = UNLIMITED
    """With more than one of these senders get no credit."""
    resume_count: int = UNLIMITED
    resume_bytes: int = UNLIMITED
    """With no more than these they get some again."""

    @property
    def ring(self) -> bool:
        """Whether its oldest message gives way, and not the newcomer."""
        return self.overflow in (RING, RING_STRICT)

    def is_low(self, count: int, size: int) -> bool:
        """Whether a queue that refused a message takes some again, with so much on it."""
        percent = self.low_water
        return count * 100 <= self.max_count * percent and size * 100 <= self.max_bytes * percent

    @property
    def spare_count(self) -> int:
        """How many messages have room once senders are stopped."""
        return UNLIMITED if self.stop_count == UNLIMITED else self.max_count - self.stop_count

    @property
    def spare_bytes(self) -> int:
        """How many bytes have room once senders are stopped."""
        return UNLIMITED if self.stop_bytes == UNLIMITED else self.max_bytes - self.stop_bytes


def read_limits(arguments: Mapping[str, Any], defaults: QueueDefaults) -> Limits:
    """Return the limits in `arguments`, which have been checked; 0 is no limit, as in Qpid."""
    max_count = int(arguments.get(MAX_COUNT, 0)) or UNLIMITED
    max_bytes = int(arguments.get(MAX_SIZE, defaults.max_bytes)) or UNLIMITED
    overflow = str(arguments.get(POLICY_TYPE, REJECT))
    stop_count = stop_bytes = resume_count = resume_bytes = UNLIMITED
    if overflow == REJECT:
        stop_count, resume_count = _thresholds(
            arguments, FLOW_STOP_COUNT, FLOW_RESUME_COUNT, max_count, defaults
        )
        stop_bytes, resume_bytes = _thresholds(
            arguments, FLOW_STOP_SIZE, FLOW_RESUME_SIZE, max_bytes, defaults
        )
    return Limits(
        max_count=max_count,
        max_bytes=max_bytes,
        overflow=overflow,
        low_water=int(arguments.get(LOW_WATER, 100)),
        memory=int(arguments.get(MEMORY, defaults.memory)) or UNLIMITED,
        stop_count=stop_count,
        stop_bytes=stop_bytes,
        resume_count=resume_count,
        resume_bytes=resume_bytes,
    )


def _thresholds(
    arguments: Mapping[str, Any],
    stop_name: str,
    resume_name: str,
    limit: int,
    defaults: QueueDefaults,
) -> tuple[int, int]:
    """Return where senders stop and where they go on below one limit; a stop of 0 is never."""
    percent = defaults.flow_stop
    stop = min(int(arguments.get(stop_name, part_of(limit, percent))), limit)
    if stop == UNLIMITED or (stop == 0 and (stop_name in arguments or not percent)):
        return UNLIMITED, UNLIMITED
    default = part_of(limit, defaults.flow_resume) if limit < UNLIMITED else stop * 7 // 8
    return stop, min(int(arguments.get(resume_name, 0)) or default, stop)


def part_of(limit: int, percent: int) -> int:
    """Return so many hundredths of a limit."""
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
    if MEMORY in arguments:
        check_whole_number(MEMORY, arguments[MEMORY])
    policy = arguments.get(POLICY_TYPE, REJECT)
    if isinstance(policy, str) and policy.replace("-", "_") == FLOW_TO_DISK:
        raise InvalidArgument(
            f"{POLICY_TYPE}={policy} is not offered",
            reason="what is beyond the memory of a queue is on disk by itself",
            hint=f"leave it out, and set {MEMORY} for how much is in memory",
        )
    if policy not in OVERFLOWS:
        raise InvalidArgument(
            f"{POLICY_TYPE}={policy!r} is not known", hint=f"Use {' or '.join(OVERFLOWS)}."
        )
    if LOW_WATER in arguments:
        _check_low_water(arguments[LOW_WATER], policy)


def _check_low_water(percent: Any, policy: str) -> None:
    check_whole_number(LOW_WATER, percent)
    if not 1 <= int(percent) <= 100:
        raise InvalidArgument(
            f"{LOW_WATER}={percent} is no part of a limit", hint="Use hundredths, 1 to 100."
        )
    if policy not in (REJECT, REJECT_DEAD_LETTER):
        raise InvalidArgument(
            f"{LOW_WATER} is when a queue takes messages again that it refused",
            reason=f"with {POLICY_TYPE}={policy} it refuses none",
            hint="leave it out",
        )


def _check_thresholds(
    arguments: Mapping[str, Any], limit_name: str, stop_name: str, resume_name: str
) -> None:
    """Raise InvalidArgument for thresholds that contradict each other, the limit or the policy."""
    limit, stop, resume = (
        int(arguments.get(name, 0)) for name in (limit_name, stop_name, resume_name)
    )
    policy = arguments.get(POLICY_TYPE, REJECT)
    if (stop or resume) and policy != REJECT:
        raise InvalidArgument(
            f"{stop_name if stop else resume_name} is when senders wait, and here they do not",
            reason=f"a queue with {POLICY_TYPE}={policy} makes room by itself, or is to be full",
            hint=f"leave it out, or use {POLICY_TYPE}={REJECT}",
        )
    if limit and stop > limit:
        raise InvalidArgument(
            f"{stop_name}={stop} is more than {limit_name}={limit}", hint="use less, or 0 for never"
        )
    if resume and stop_name in arguments and not stop:
        raise InvalidArgument(
            f"{resume_name} is when senders go on, and {stop_name}=0 stops none",
            hint=f"leave {resume_name} out",
        )
    if stop_name not in arguments:
        stop = limit * STOP_PERCENT // 100
    if stop and resume > stop:
        raise InvalidArgument(
            f"{resume_name}={resume} is more than senders stop at, {stop}", hint="use less"
        )
