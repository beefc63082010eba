"""What both faces of the client do alike: they read where brokers are, and say why one was not
reached or did not accept a message.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import replace

from qpidha.client.endpoint import Brokers, Endpoint, parse_endpoints
from qpidha.client.errors import (
    DISTRUSTED,
    UNTRUSTED,
    ClientError,
    ConnectError,
    NotAccepted,
    TlsError,
)
from qpidha.client.links import Delivery
from qpidha.client.links import Sender as SenderLink

NOT_TLS = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE")
"""What OpenSSL calls answers that are not TLS."""
OTHER_NAME = (62, 63, 64)
"""What OpenSSL calls a certificate that is for another host, mail address or IP address."""
OTHER_TIME = (9, 10)
"""What it calls one that is not valid yet, or no more."""
DEFAULT = -1.0
"""The timeout that was given to the client."""
Timeout = float | None
"""Seconds; None is for ever."""
EventHandler = Callable[[str, Endpoint, ClientError | None], None]


def named(brokers: Brokers, *, user: str, password: str, mechanism: str) -> list[Endpoint]:
    """Read where brokers are, with the login of those that say nothing else."""
    return [
        endpoint if endpoint.mechanism else replace(endpoint, mechanism=mechanism)
        for endpoint in parse_endpoints(brokers, user=user, password=password)
    ]


def dial_error(endpoint: Endpoint, error: Exception, limit: float) -> ClientError:
    """Say why an address could not be dialled."""
    if isinstance(error, ClientError):
        return error
    if isinstance(error, TimeoutError):
        return ConnectError(f"{endpoint} did not answer", reason=f"within {limit:.3g} s")
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(endpoint, error)
    if endpoint.tls and (
        isinstance(error, ConnectionResetError)
        or (isinstance(error, ssl.SSLError) and error.reason in NOT_TLS)
    ):
        # A broker that stops or hangs up looks the same, so that this is worth another try.
        return ConnectError(
            f"{endpoint} does not speak TLS", hint=f"amqp://{endpoint} as its address"
        )
    if isinstance(error, ssl.SSLError):
        return TlsError(f"no TLS with {endpoint}", reason=error.reason or str(error))
    if isinstance(error, socket.gaierror):
        return ConnectError(
            f"{endpoint} cannot be reached",
            reason=error.strerror or str(error),
            hint="is the name right? The name service, and /etc/hosts, do not have it",
        )
    if isinstance(error, OSError):
        return ConnectError(f"{endpoint} cannot be reached", reason=error.strerror or str(error))
    return ConnectError(
        f"{endpoint} cannot be reached",
        reason=f"its host is no name of a host: {error}",
        hint="labels of a name, between dots, have 1 to 63 characters",
    )


def _distrust(endpoint: Endpoint, error: ssl.SSLCertVerificationError) -> TlsError:
    """Say what is wrong with a certificate."""
    hint = UNTRUSTED
    if error.verify_code in OTHER_NAME:
        hint = "an address that is in the certificate, or a certificate with this one"
    elif error.verify_code in OTHER_TIME:
        hint = "renew it at the broker, or set the clock"
    return TlsError(
        f"the certificate of {endpoint} is not "
        + ("for this address" if error.verify_code in OTHER_NAME else "trusted"),
        reason=error.verify_message,
        hint=hint,
        condition=DISTRUSTED,
    )


def refusal(link: SenderLink, delivery: Delivery, count: int) -> ClientError:
    """Say that messages were not accepted."""
    outcome = delivery.outcome
    assert outcome is not None
    text = (
        f"a message to {link.address!r} was {outcome.state}"
        if count == 1
        else f"{count} messages to {link.address!r} were not accepted, the first {outcome.state}"
    )
    return NotAccepted(
        text,
        outcome,
        reason=outcome.explanation,
        condition=outcome.condition,
        hint=outcome.hint,
        info=outcome.info,
    )
