"""Errors that an application may catch: what failed, why, and what to do next, in three fields.

Every error of the client is a `ClientError`. Those that end the client (no broker serves, login or
TLS failed) are raised again by every later call; those of a link end that link; the others concern
one message or transaction. Source of the conditions: AMQP 1.0 sections 2.8.15 to 2.8.18 and 3.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NO_LOGIN = "name a user and a password, or a mechanism that the broker offers"
NO_TICKET = "get a ticket with kinit, and name the broker's host and service as its keytab does"
WRONG_LOGIN = "another user, password or mechanism"
KEY_PASSWORD = "give the password of the key: Tls(..., password=...)"
UNTRUSTED = "name the certificate of the authority that signed it as trusted"
"""Hints that commands give in the words of their options."""
DISTRUSTED = "qpidha:distrusted"
"""Condition of a broker whose certificate is not trusted here: it is there, and may be well."""


class ClientError(Exception):
    """The client could not do what it was asked.

    `text` says what failed, `reason` why, `hint` what to do next (both may be empty). `condition`
    is the AMQP error condition that the broker gave, or empty; `info` the map that came with it.
    """

    def __init__(
        self,
        text: str,
        *,
        reason: str = "",
        hint: str = "",
        condition: str = "",
        info: Mapping[Any, Any] | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.reason = reason
        self.hint = hint
        self.condition = condition
        self.info = dict(info or {})

    @property
    def explanation(self) -> str:
        """What failed, and why."""
        return f"{self.text}: {self.reason}" if self.reason else self.text

    @property
    def event_code(self) -> str:
        """The code under which docs/messages.md explains what the broker said, or empty."""
        code = self.info.get("event_code")
        return code if isinstance(code, str) else ""

    def __str__(self) -> str:
        said = self.explanation
        return f"{said} (try: {self.hint})" if self.hint else said


class ConnectError(ClientError):
    """No broker could be reached, or none of those that were reached served within the time."""


class LoginError(ConnectError):
    """The broker refused the user, or offers no SASL mechanism that may be used."""


class TlsError(ConnectError):
    """TLS failed: the broker's certificate is not trusted, or ours cannot be used."""


class WrongProtocol(ConnectError):
    """What listens there does not speak AMQP, or speaks it under TLS only."""


class NotPrimary(ClientError):
    """The broker is a backup, which only administrators may ask; the hint names the primary."""


class TimedOut(ClientError, TimeoutError):
    """The time for a call was over; what was begun goes on."""


class Closed(ClientError):
    """The client or the link was closed."""


class LinkError(ClientError):
    """The broker refused a link or ended it; `condition` says why, such as `amqp:not-found`."""


class NotAccepted(ClientError):
    """A message was not accepted by the broker: `outcome` says what became of it."""

    def __init__(self, text: str, outcome: Any, **fields: Any) -> None:
        super().__init__(text, **fields)
        self.outcome = outcome
        """The `qpidha.client.message.Outcome`: rejected, released or modified."""


class MessageTooLarge(ClientError):
    """A message is larger than the broker takes on this link."""


class DeliveryLost(ClientError):
    """The connection that a message came on is gone: the broker delivers it again, here or
    elsewhere.
    """


class TransactionFailed(ClientError):
    """A transaction was rolled back by the broker, which gave the reason."""


class TransactionLost(TransactionFailed):
    """The connection of a transaction was lost, and with it the transaction; nothing of it is sent
    again by itself.

    With `in_doubt` a commit was on its way: whether it was done is not known. Without it the
    transaction was rolled back.
    """

    def __init__(self, text: str, *, in_doubt: bool = False, **fields: Any) -> None:
        super().__init__(text, **fields)
        self.in_doubt = in_doubt


class ReplyLost(ClientError):
    """The connection was lost before the reply to a request came; the request may have been
    done.
    """
