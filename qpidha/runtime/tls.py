"""TLS: contexts for both directions, and who a client certificate says its holder is.

Our certificate serves both as server and, on links between brokers, as client. Knows nothing of
AMQP. Source: AMQP 1.0 section 5.2 (TLS on its own port); Qpid src/qpid/sys/ssl/SslSocket.cpp for
the identity.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from qpidha.model.exit_codes import CONFIG
from qpidha.model.pem import KeyPassword, pem_trouble
from qpidha.model.settings import Settings
from qpidha.runtime.configuration import read_password
from qpidha.runtime.exits import CannotStart, reason_of

ANY_TIME = ssl.VerifyFlags(0x200000)
"""A certificate is looked at whatever the time is: X509_V_FLAG_NO_CHECK_TIME of OpenSSL."""


def server_context(settings: Settings) -> ssl.SSLContext:
    """What our TLS port shows and asks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, settings)
    if settings.ssl_require_client_authentication:
        context.verify_mode = ssl.CERT_REQUIRED
    elif settings.ssl_trusted:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(settings: Settings) -> ssl.SSLContext:
    """How we connect to other brokers: their certificate and host name are always verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, settings)
    if not settings.ssl_trusted:
        context.load_default_certs()
    return context


def check_certificate(settings: Settings) -> list[str]:
    """Look at our certificate as peers will; whoever issued it is believed. Return what they would
    not like: the time may be wrong here, and not there, so that is a warning.
    """
    if not settings.ssl_cert:
        return []
    try:
        _look_at(settings)
    except ssl.SSLCertVerificationError as error:
        return [f"ssl-cert {settings.ssl_cert}: peers that look at it say: {error.verify_message}"]
    except ssl.SSLError:
        return []  # It is a matter of the two ends, not of the certificate.
    return []


def certificate_end(settings: Settings) -> int:
    """Return until when our certificate is good, in seconds since 1970; 0 if there is none, or
    that cannot be told.
    """
    if not settings.ssl_cert:
        return 0
    try:
        return int(ssl.cert_time_to_seconds(_look_at(settings, ANY_TIME)["notAfter"]))
    except (ssl.SSLError, KeyError, ValueError):
        return 0


def _look_at(settings: Settings, flags: int = 0) -> dict[str, Any]:
    """Shake hands with ourselves; what a peer sees of our certificate. Raises SSLError."""
    shown = server_context(settings)
    shown.verify_mode = ssl.CERT_NONE
    looking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looking.check_hostname = False
    looking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | flags
    looking.load_verify_locations(settings.ssl_cert)
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (looking.wrap_bio(here, there), shown.wrap_bio(there, here, server_side=True))
    for end in (*ends, *ends, ends[0]):  # TLS 1.2 has two flights of each; 1.3 one and a half.
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return dict(ends[0].getpeercert() or {})


def _load(context: ssl.SSLContext, settings: Settings) -> None:
    """Load certificate, key and authorities, saying which file is at fault."""
    if settings.ssl_cert:
        file = settings.ssl_key_password_file
        password = KeyPassword(read_password("ssl-key-password-file", file) if file else "")
        try:
            context.load_cert_chain(settings.ssl_cert, settings.ssl_key or None, password=password)
        except (OSError, ValueError) as error:
            files = f"ssl-cert {settings.ssl_cert}" + (
                f" with ssl-key {settings.ssl_key}" if settings.ssl_key else ""
            )
            raise CannotStart(
                f"{files} cannot be used: {_reason(error, password)}",
                hint="give a PEM certificate and its key, and the password of the key in the first "
                "line of ssl-key-password-file",
                code=CONFIG,
            ) from error
    if settings.ssl_trusted:
        try:
            context.load_verify_locations(settings.ssl_trusted)
        except OSError as error:
            raise CannotStart(
                f"ssl-trusted {settings.ssl_trusted} cannot be used: {_reason(error)}",
                hint="give a PEM file of authorities",
                code=CONFIG,
            ) from error


def _reason(error: Exception, password: KeyPassword | None = None) -> str:
    if isinstance(error, ssl.SSLError):
        return (password.trouble if password is not None else pem_trouble)(error.reason)
    return reason_of(error) if isinstance(error, OSError) else str(error)


def identity_of(certificate: Mapping[str, Any] | None) -> str:
    """The holder of a verified certificate: common name, and @domain if it has domain components;
    else the whole subject.
    """
    parts = [pair for names in (certificate or {}).get("subject", ()) for pair in names]
    common = [value for key, value in parts if key == "commonName"]
    domain = [value for key, value in parts if key == "domainComponent"]
    if not common:
        return ",".join(f"{key}={value}" for key, value in parts)
    return str(common[-1]) + (f"@{'.'.join(domain)}" if domain else "")
