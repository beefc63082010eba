"""Lifetime: when a queue goes away by itself.

A queue says that a user left it, the broker asks here whether that was the end, and deletes it
then or when its timeout has gone by. Qpid's auto-delete looks at consumers only; AMQP's policies
look at all links. A queue with an owner lives at least as long as the owner. Source: Qpid
`Queue.cpp` (tryAutoDelete), AMQP 1.0 section 3.5.10 to 3.5.13.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from qpidha.model.duration import SECOND
from qpidha.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO_DELETE_TIMEOUT = "qpid.auto_delete_timeout"
LIFETIME_POLICY = "qpid.lifetime-policy"
LONGEST_TIMEOUT = 100 * 365 * 86400
"""Seconds; more than a century is a mistake, infinity included."""


class Lifetime(Enum):
    """What ends a queue, besides being deleted; spelled as in `qpid.lifetime-policy`."""

    MANUAL = "manual"
    AUTO_DELETE = "auto-delete"  # the last consumer left
    ON_CLOSE = "delete-on-close"  # its owner left
    IF_UNUSED = "delete-if-unused"  # the last link left, of a consumer or a sender
    IF_EMPTY = "delete-if-empty"  # the last message left
    IF_UNUSED_AND_EMPTY = "delete-if-unused-and-empty"

    @property
    def needs_no_links(self) -> bool:
        """Whether a link keeps the queue alive."""
        return self in (Lifetime.IF_UNUSED, Lifetime.IF_UNUSED_AND_EMPTY)

    @property
    def needs_no_users(self) -> bool:
        """Whether a user, which is a link or the owner, keeps the queue alive, so that its end
        comes when users have left.
        """
        return self not in (Lifetime.MANUAL, Lifetime.IF_EMPTY)

    @property
    def needs_no_messages(self) -> bool:
        """Whether a message keeps the queue alive."""
        return self in (Lifetime.IF_EMPTY, Lifetime.IF_UNUSED_AND_EMPTY)


POLICIES = tuple(policy.value for policy in Lifetime if policy is not Lifetime.AUTO_DELETE)


def read_lifetime(arguments: Mapping[str, Any], auto_delete: bool) -> Lifetime:
    """Return the policy in `arguments`, which have been checked; the older auto-delete where there
    is none.
    """
    if LIFETIME_POLICY in arguments:
        return Lifetime(arguments[LIFETIME_POLICY])
    return (
        Lifetime.AUTO_DELETE if auto_delete or AUTO_DELETE_TIMEOUT in arguments else Lifetime.MANUAL
    )


def read_timeout(arguments: Mapping[str, Any]) -> int:
    """Return how long an unused queue is kept, in ns."""
    return int(float(arguments.get(AUTO_DELETE_TIMEOUT, 0)) * SECOND)


def check_lifetime(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a policy or a timeout that cannot be followed."""
    policy = arguments.get(LIFETIME_POLICY, Lifetime.MANUAL.value)
    if policy not in POLICIES:
        raise InvalidArgument(
            f"{LIFETIME_POLICY}={policy} is not known", hint=f"Use one of {', '.join(POLICIES)}."
        )
    timeout = arguments.get(AUTO_DELETE_TIMEOUT, 0)
    try:
        acceptable = not isinstance(timeout, bool) and 0 <= float(timeout) <= LONGEST_TIMEOUT
    except (TypeError, ValueError):
        acceptable = False
    if not acceptable:
        raise InvalidArgument(
            f"{AUTO_DELETE_TIMEOUT}={timeout!r} is not a number of seconds from 0",
            hint="Say how long to keep the queue unused.",
        )
