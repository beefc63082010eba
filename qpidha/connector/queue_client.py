"""What the inbox and the outbox share: connections to whoever is the primary, one after the other,
and when to give up.

A new client is made for each connection: what a lost one left is sorted out by the inbox and the
outbox themselves, so that nothing may be attached or sent again without them. Knows no messages.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Self

from qpidha.client.blocking import Client
from qpidha.client.core import UNMENDABLE
from qpidha.client.endpoint import Tls
from qpidha.client.errors import ClientError, LinkError, LoginError, TimedOut, TlsError
from qpidha.connector.options import Options
from qpidha.model.errors import QpidHaError

HEARTBEAT = 2.5
"""Seconds; a broker that says nothing for twice as long is given up."""
RETRY = 0.1
"""Seconds before a broker that serves and refuses is asked again."""
FINAL = (
    "amqp:not-found",
    "amqp:unauthorized-access",
    "amqp:not-allowed",
    "amqp:resource-deleted",
    "amqp:not-implemented",
    "amqp:link:message-size-exceeded",
    "amqp:invalid-field",
    "amqp:resource-locked",
)
"""Conditions that trying again will not change."""
LOGIN_HINT = (
    "look at username and password; a password is sent by SCRAM-SHA-256, and by PLAIN under TLS "
    "only: use amqps:// where the broker offers PLAIN alone"
)
TLS_HINT = "option tlsCa names the file of the authorities that are trusted"


class ConnectorFailure(QpidHaError):
    """A read or a write cannot go on."""

    def __str__(self) -> str:
        said = self.explanation
        return f"{said}; {self.hint}" if self.hint else said


class QueueClient:
    """A client for as long as its connection lasts, then another one; for one thread."""

    def __init__(self, options: Options) -> None:
        self.generation = 0
        """Counts the connections that were lost."""
        self._timeout = options.timeout
        self._addresses = ", ".join(options.addresses)
        self._endpoints = options.endpoints()
        self._tls = Tls(options.tls_ca)
        self._client: Client | None = None
        self._where = ""
        """The broker of this connection, or of the last one."""
        self._last = "no broker has answered yet"
        """Why there is no connection, or nothing comes of it."""
        self._was_refused = False
        """Whether that is what a broker said."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the broker."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(ClientError):
                client.close(0.0)

    def _connect(self, deadline: float) -> Client:
        """Find who serves. Raises ConnectorFailure if nobody does until then, and ClientError if
        nobody ever will.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._nobody(self._hint)
        client = Client(
            self._endpoints,
            tls=self._tls,
            timeout=self._timeout,
            reconnect=False,
            reconnect_timeout=left,
            heartbeat=HEARTBEAT,
        )
        self._client = client
        try:
            client.open(None)
        except UNMENDABLE:
            raise
        except ClientError as error:
            self._learn_why(error)
            self.close()
            raise self._nobody(self._hint) from None
        finally:
            self._where = str(client.endpoint)
        if not self._was_refused:
            self._last = f"{self._where} serves and did not answer"
        return client

    def _lost(self, error: ClientError, refused: str) -> None:
        """Let go of a connection; the next one is made when it is needed. `refused` is what a
        broker does not do that ends a link. Raises ConnectorFailure if it would be of no use.
        """
        self.close()
        self._learn_why(error)
        if isinstance(error, LinkError) and error.condition in FINAL:
            raise ConnectorFailure(
                f"the broker at {self._where} refuses {refused}",
                reason=f"{error.condition}: {error.reason}",
                hint=error.hint,
            )
        # After a failover a broker that is being started may be wrong in any way, for a while.
        if isinstance(error, UNMENDABLE) and not self.generation:
            raise self._unmendable(error)
        if isinstance(error, (LinkError, *UNMENDABLE)):
            time.sleep(RETRY)
        self.generation += 1

    def _learn_why(self, error: ClientError) -> None:
        # The last attempt has what is left of the time, which may be nothing: that it was too short
        # says less than what a broker said before.
        if isinstance(error, TimedOut) and self._was_refused:
            return
        self._last = error.reason or str(error)
        self._was_refused = isinstance(error, LinkError)

    def _unmendable(self, error: ClientError) -> ConnectorFailure:
        if isinstance(error, LoginError):
            return ConnectorFailure(
                f"the broker at {self._where} refuses the login",
                reason=error.reason,
                hint=LOGIN_HINT,
            )
        self._last = error.explanation
        return self._nobody(TLS_HINT if isinstance(error, TlsError) else error.hint)

    def _nobody(self, hint: str) -> ConnectorFailure:
        return ConnectorFailure(f"no primary among {self._addresses}", reason=self._last, hint=hint)

    @property
    def _hint(self) -> str:
        return (
            f"waited for {self._timeout:g} s (option timeout); qpid-ha status --explain "
            "shows what a broker waits for"
        )
