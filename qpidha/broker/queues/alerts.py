"""Alerts: a queue tells when it has come to some depth, and when it is down again.

Up and down are two numbers, so that a queue which has just so many messages does not tell of each;
and what happens again within the repeat gap is not told. Only a broker that decides tells, and its
successor tells anew if the queue is still that deep. A queue without alerts has none of this.

Source: Qpid `ThresholdAlerts.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.arguments import check_whole_number
from qpidha.broker.queues.limits import UNLIMITED, part_of
from qpidha.model.duration import SECOND
from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qpidha.broker.queues.defaults import QueueDefaults
    from qpidha.broker.queues.limits import Limits

ALERT_COUNT, ALERT_COUNT_DOWN = "qpid.alert_count", "qpid.alert_count_down"
ALERT_SIZE, ALERT_SIZE_DOWN = "qpid.alert_size", "qpid.alert_size_down"
ALERT_GAP = "qpid.alert_repeat_gap"
GAP = 60
"""Seconds; as in Qpid."""
PAIRS = ((ALERT_COUNT, ALERT_COUNT_DOWN), (ALERT_SIZE, ALERT_SIZE_DOWN))


@dataclass(slots=True, frozen=True)
class Thresholds:
    """With how much a queue tells that it is deep, and with how little that it is no more."""

    count: int
    count_down: int
    size: int
    size_down: int
    gap: int
    """For how long after it has told the same is not told again, in ns."""


def read_alerts(
    arguments: Mapping[str, Any], limits: Limits, defaults: QueueDefaults
) -> Thresholds | None:
    """Return the thresholds in `arguments`, which have been checked, or those that follow from a
    queue's limits; None if there are none.
    """
    parts = [
        part_of(limit, defaults.alert) if defaults.alert else 0
        for limit in (limits.max_count, limits.max_bytes)
    ]
    found = [
        (up, min(int(arguments.get(down_name, up // 2)), up))
        for (up_name, down_name), part in zip(PAIRS, parts, strict=True)
        if (up := int(arguments.get(up_name, part)) or UNLIMITED)
    ]
    (count, count_down), (size, size_down) = found
    if count == size == UNLIMITED:
        return None
    gap = int(arguments.get(ALERT_GAP, GAP)) * SECOND
    return Thresholds(count, count_down, size, size_down, gap)


def check_alerts(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for thresholds that cannot be followed."""
    for name in (*(name for pair in PAIRS for name in pair), ALERT_GAP):
        if name in arguments:
            check_whole_number(name, arguments[name])
    for up_name, down_name in PAIRS:
        if down_name not in arguments:
            continue
        up, down = int(arguments.get(up_name, 0)), int(arguments[down_name])
        if down >= up:
            raise InvalidArgument(
                f"{down_name}={down} is not below {up_name}={up}",
                reason="a queue tells that it is down again after it has told that it is up",
                hint="use less",
            )


class Alerts:
    """What one queue has told."""

    __slots__ = ("_told", "is_up", "thresholds")

    def __init__(self, thresholds: Thresholds) -> None:
        self.thresholds = thresholds
        self.is_up = False
        """Whether it was last said to be deep."""
        self._told = 0
        """When that was last told; 0 for never."""

    def look(self, count: int, size: int, now: int) -> bool | None:
        """Take note of a depth; return whether it is to be told that the queue is deep (True), or
        no more (False); None if neither.
        """
        at = self.thresholds
        if self.is_up:
            self.is_up = count > at.count_down or size > at.size_down
            return None if self.is_up else False
        if count < at.count and size < at.size:
            return None
        if self._told and now < self._told + at.gap:
            return None
        self.is_up, self._told = True, now
        return True
