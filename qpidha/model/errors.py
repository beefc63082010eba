"""Errors: one tree; each class names its AMQP error condition.

An error has three fields that stay apart to the end: `text` says what failed, `reason` why, `hint`
what to do next. Handlers look at the class: a `ProtocolViolation` is the peer's fault and ends its
connection, a `RefusedRequest` ends what was asked for (a link, a delivery, a request), an
`InvariantBroken` is our own and stops the broker. Peers are told the condition and the fields.
Source: AMQP 1.0 sections 2.8.14 to 2.8.17.
"""

from __future__ import annotations

FOLLOWS_REDIRECTS = "qpid.follows-redirects"
"""The capability that a client offers which goes where a `Redirect` points."""


class QpidHaError(Exception):
    """Says no, in three fields; `info` is what else the peer is told, under AMQP's own keys."""

    condition = "amqp:internal-error"

    def __init__(
        self, text: str, *, reason: str = "", hint: str = "", info: dict[str, object] | None = None
    ) -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason
        self.hint = hint
        self.info = info or {}

    @property
    def details(self) -> dict[str, str]:
        """The reason and the hint, as far as there are any."""
        fields = {"reason": self.reason, "hint": self.hint}
        return {name: value for name, value in fields.items() if value}


class ProtocolViolation(QpidHaError):
    """The peer broke the protocol; the connection ends."""

    condition = "amqp:connection:framing-error"


class InvariantBroken(QpidHaError):
    """An internal rule is violated; the broker stops rather than go on with it."""


class InternalError(QpidHaError):
    """A mistake of ours that the bytes of one peer brought to light; only its connection ends."""


class LogDamaged(InvariantBroken):
    """The write-ahead log on disk cannot be read where it was synced: going on would forget what
    was accepted.
    """


class UpgradeNeeded(LogDamaged):
    """What this broker keeps, or was sent, was written by a later version in a way that this one
    cannot read. Nothing is wrong with it.
    """


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


class QueueFull(LimitExceeded):
    """A message finds no room on its queue."""


class MessageTooLarge(RefusedRequest):
    """A message over max-message-size."""

    condition = "amqp:link:message-size-exceeded"


class LinkStolen(QpidHaError):
    """The same container attached a link of this name again."""

    condition = "amqp:link:stolen"


class ConnectionForced(QpidHaError):
    """The broker ends a connection for a reason of its own."""

    condition = "amqp:connection:forced"


class Unanswered(QpidHaError):
    """Ends a connection without a word: to the client it is a failure, after which it goes on to
    its next address. Clients take any close with an error for the end.
    """

    condition = "amqp:connection:forced"


class Redirect(QpidHaError):
    """Clients are served elsewhere; `info` holds network-host, hostname and port of the primary."""

    condition = "amqp:connection:redirect"


class NotAllowed(RefusedRequest):
    """Not here, or not in this state."""


class NotServing(NotAllowed):
    """This broker changes nothing: another one is primary, or will be in a moment."""


def places_of(error: BaseException) -> list[str]:
    """Tell where an error passed through, the innermost place first."""
    places = []
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        module = frame.f_globals.get("__name__", "?")
        places.append(f"{module}:{step.tb_lineno} {frame.f_code.co_name}")
        step = step.tb_next
    return places[::-1]
