"""Errors: one tree; each class names its AMQP error condition and how much of the conversation it ends.

A `ProtocolViolation` is the peer's fault, a `RefusedRequest` is legal but not granted now, an
`InvariantBroken` is ours. Whoever handles an error reads `condition` and `scope` from it and never
looks at its class. Source: AMQP 1.0 sections 2.8.14 to 2.8.17.
"""

from __future__ import annotations


class QpidHaError(Exception):
    """Anything qpidha says no with. `scope` is what ends: delivery, link, session, connection or broker."""

    condition = "amqp:internal-error"
    scope = "link"

    def __init__(self, text: str, *, hint: str = "", info: dict[str, object] | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint
        self.info = info or {}


class ProtocolViolation(QpidHaError):
    """The peer broke the protocol; the connection ends."""

    condition = "amqp:connection:framing-error"
    scope = "connection"


class InvariantBroken(QpidHaError):
    """A rule of ours does not hold; the broker stops rather than go on with it."""

    scope = "broker"


class JournalDamaged(InvariantBroken):
    """The journal on disk cannot be read where it was synced: going on would forget what was accepted."""


class StateLost(InvariantBroken):
    """What a broker promised the others is gone or cannot be read: going on would break it."""


class RefusedRequest(QpidHaError):
    """Legal, but not granted now."""

    condition = "amqp:not-allowed"


class InvalidArgument(RefusedRequest):
    """A value that cannot be used."""

    condition = "amqp:invalid-field"


class NotImplementedHere(RefusedRequest):
    """A part of the protocol this broker does not offer."""

    condition = "amqp:not-implemented"


class NotFound(RefusedRequest):
    """No such AMQP node."""

    condition = "amqp:not-found"


class Unauthorized(RefusedRequest):
    """The identity may not do this."""

    condition = "amqp:unauthorized-access"


class ResourceLocked(RefusedRequest):
    """Somebody else has exclusive use."""

    condition = "amqp:resource-locked"


class ResourceDeleted(RefusedRequest):
    """The AMQP node went away under its user."""

    condition = "amqp:resource-deleted"


class PreconditionFailed(RefusedRequest):
    """It exists, but not as asked for."""

    condition = "amqp:precondition-failed"


class LimitExceeded(RefusedRequest):
    """A configured limit was reached."""

    condition = "amqp:resource-limit-exceeded"


class MessageTooLarge(RefusedRequest):
    """A message over max-message-size."""

    condition = "amqp:link:message-size-exceeded"


class ConnectionForced(QpidHaError):
    """The broker ends a connection for a reason of its own."""

    condition = "amqp:connection:forced"
    scope = "connection"


class Redirect(QpidHaError):
    """Clients are served elsewhere; `info` holds network-host, hostname and port of the primary."""

    condition = "amqp:connection:redirect"
    scope = "connection"


class NotAllowed(RefusedRequest):
    """Not here, or not in this state."""
