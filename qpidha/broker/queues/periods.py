"""Periods: arguments of queues that say how long.

All of them are milliseconds, as RabbitMQ has them; here they become nanoseconds. Must not know what
ends with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qpidha.broker.queues.arguments import check_whole_number
from qpidha.model.duration import MILLISECOND
from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

MESSAGE_TTL = "x-message-ttl"
EXPIRES = "x-expires"
CONSUMER_TIMEOUT = "x-consumer-timeout"
RETRY_TYPE = "x-delayed-retry-type"
RETRY_MIN, RETRY_MAX = "x-delayed-retry-min", "x-delayed-retry-max"
RETRIES = ("disabled", "all", "failed", "returned")
LONGEST = 10 * 365 * 86400 * 1000
"""Milliseconds; more than ten years is a mistake, as in RabbitMQ."""


def read_ttl(arguments: Mapping[str, Any]) -> int:
    """Return how long a queue keeps each message, in ns; 0 for ever. With `x-message-ttl` 0 that is
    as long as the turn in which it comes.
    """
    return max(int(arguments[MESSAGE_TTL]) * MILLISECOND, 1) if MESSAGE_TTL in arguments else 0


def read_unused(arguments: Mapping[str, Any]) -> int:
    """Return how long a queue stays without a consumer, in ns; 0 for ever."""
    return int(arguments.get(EXPIRES, 0)) * MILLISECOND


@dataclass(slots=True, frozen=True)
class Retry:
    """How long messages wait that consumers gave back."""

    after_failure: bool
    """Whether those do whose delivery failed."""
    after_return: bool
    """Whether those do that were given back otherwise."""
    least: int
    most: int
    """In ns."""

    def delay(self, count: int, failed: bool) -> int:
        """Return how long a message waits whose delivery failed so often, or that was given back so
        often, in ns.
        """
        waits = self.after_failure if failed else self.after_return
        return min(self.least * count, self.most) if waits else 0


def read_retry(arguments: Mapping[str, Any]) -> Retry | None:
    """Return how long messages wait that were given back; None if none does."""
    kind = arguments.get(RETRY_TYPE, "disabled")
    if kind == "disabled" or RETRY_MIN not in arguments:
        return None  # Of several policies one may say which wait, and none how long.
    least, most = int(arguments[RETRY_MIN]), int(arguments.get(RETRY_MAX, LONGEST))
    return Retry(
        kind in ("all", "failed"),
        kind in ("all", "returned"),
        least * MILLISECOND,
        max(least, most) * MILLISECOND,
    )


def _check_retry(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for delays of what is given back that cannot be followed."""
    kind = arguments.get(RETRY_TYPE, "disabled")
    if kind not in RETRIES:
        raise InvalidArgument(
            f"{RETRY_TYPE}={kind!r:.60} is not known", hint=f"Use one of {', '.join(RETRIES)}."
        )
    check_period(arguments, RETRY_MIN, 1)
    check_period(arguments, RETRY_MAX, 1)
    if kind != "disabled" and RETRY_MIN not in arguments:
        raise InvalidArgument(
            f"{RETRY_TYPE}={kind} does not say how long", hint=f"Give {RETRY_MIN} as well."
        )
    for name in (RETRY_MIN, RETRY_MAX):
        if name in arguments and RETRY_TYPE not in arguments:
            raise InvalidArgument(
                f"{name} does not say which messages wait", hint=f"Give {RETRY_TYPE} as well."
            )
    least, most = arguments.get(RETRY_MIN), arguments.get(RETRY_MAX)
    if most is not None and int(most) < int(least or 0):
        raise InvalidArgument(
            f"{RETRY_MAX}={most} is less than {RETRY_MIN}={least}", hint="Give as much, or more."
        )


def read_patience(arguments: Mapping[str, Any]) -> int | None:
    """Return how long consumers may keep a message, in ns; 0 for ever, None if that is not said."""
    if CONSUMER_TIMEOUT not in arguments:
        return None
    return int(arguments[CONSUMER_TIMEOUT]) * MILLISECOND


def check_periods(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a time that cannot be followed."""
    check_period(arguments, MESSAGE_TTL, 0, "0 is for what a consumer can have at once.")
    check_period(arguments, EXPIRES, 1)
    check_period(arguments, CONSUMER_TIMEOUT, 0, "0 is for ever.")
    _check_retry(arguments)


def check_period(arguments: Mapping[Any, Any], name: str, least: int, hint: str = "") -> None:
    """Raise InvalidArgument unless an argument, if given, is a time of `least` ms to ten years."""
    if name not in arguments:
        return
    value = arguments[name]
    hint = f"Give milliseconds, {least} to {LONGEST}. {hint}".rstrip()
    check_whole_number(name, value, hint)
    if not least <= int(value) <= LONGEST:
        raise InvalidArgument(f"{name}={value} is too short or too long", hint=hint)
