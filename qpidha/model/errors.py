"""Errors: one tree; each class names its AMQP error condition.

An error has three fields that stay apart to the end: `text` says what failed, `reason` why, `hint`
what to do next; where operators meet it, it also has an `event_code` (`event_codes.py`). Handlers
look at the class: a `ProtocolViolation` is the peer's fault and ends its connection, a
`RefusedRequest` ends what was asked for (a link, a delivery, a request), an `InvariantBroken` is
our own and stops the broker. Peers are told the condition and the fields.
Source: AMQP 1.0 sections 2.8.14 to 2.8.17.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from qpidha.model.event_codes import (
    INTERNAL_ERROR,
    INVARIANT_BROKEN,
    LIMIT_REACHED,
    LOG_DAMAGED,
    MESSAGE_TOO_LARGE,
    NOT_PERMITTED,
    NOT_PRIMARY,
    NOT_THERE,
    QUEUE_FULL,
    STATE_LOST,
    UPGRADE_NEEDED,
)

FOLLOWS_REDIRECTS = "qpid.follows-redirects"
"""The capability that a client offers which goes where a `Redirect` points."""


class QpidHaError(Exception):
    """Says no, in three fields; `info` is what else the peer is told, under AMQP's own keys."""

    condition = "amqp:internal-error"
    event_code = ""

    def __init__(
        self,
        text: str,
        *,
        reason: str = "",
        hint: str = "",
        info: dict[str, object] | None = None,
        event_code: str = "",
    ) -> None:
        super().__init__(text)
        if event_code:
            self.event_code = event_code
        self.text = text
        self.reason = reason
        self.hint = hint
        self.info = info or {}

    @property
    def explanation(self) -> str:
        """What failed, and why."""
        return f"{self.text}: {self.reason}" if self.reason else self.text

    @property
    def details(self) -> dict[str, str]:
        """The reason, the hint and the event code, as far as there are any."""
        fields = {"reason": self.reason, "hint": self.hint, "event_code": self.event_code}
        return {name: value for name, value in fields.items() if value}


class ProtocolViolation(QpidHaError):
    """The peer broke the protocol; the connection ends."""

    condition = "amqp:connection:framing-error"


class InvariantBroken(QpidHaError):
    """An internal rule is violated; the broker stops rather than go on with it."""

    event_code = INVARIANT_BROKEN


class InternalError(QpidHaError):
    """A mistake of ours that the bytes of one peer brought to light; only its connection ends."""

    event_code = INTERNAL_ERROR


class LogDamaged(InvariantBroken):
    """The write-ahead log on disk cannot be read where it was synced: going on would forget what
    was accepted.
    """

    event_code = LOG_DAMAGED


class UpgradeNeeded(LogDamaged):
    """What this broker keeps, or was sent, was written by a later version in a way that this one
    cannot read. Nothing is wrong with it.
    """

    event_code = UPGRADE_NEEDED


class StateLost(InvariantBroken):
    """What a broker promised the others is gone or cannot be read: going on would break it."""

    event_code = STATE_LOST


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
    event_code = NOT_THERE


class Unauthorized(RefusedRequest):
    """The identity may not do this."""

    condition = "amqp:unauthorized-access"
    event_code = NOT_PERMITTED


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
    event_code = LIMIT_REACHED


class QueueFull(LimitExceeded):
    """A message finds no room on its queue."""

    event_code = QUEUE_FULL


class MessageTooLarge(RefusedRequest):
    """A message over max-message-size."""

    condition = "amqp:link:message-size-exceeded"
    event_code = MESSAGE_TOO_LARGE


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

    event_code = NOT_PRIMARY


@contextmanager
def coded(event_code: str) -> Iterator[None]:
    """Give a code to each refusal from inside that has none; also a decorator."""
    try:
        yield
    except RefusedRequest as error:
        error.event_code = error.event_code or event_code
        raise


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
