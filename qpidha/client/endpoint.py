"""Endpoints: where brokers are, how they are spoken to, and as which user.

An endpoint is one address with its scheme and credentials. A list is written as URLs separated by
commas, or as Qpid writes it: `amqp:user/password@host1:5672,host2:5672`. Reads no files and knows
no sockets, but for the TLS context that it makes.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from qpidha.client.errors import KEY_PASSWORD, ClientError, TlsError
from qpidha.model.pem import NO_PASSWORD, WRONG_PASSWORD, KeyPassword
from qpidha.model.url import PORT, SECURE_PORT, parse_address, read_login

LAST_PORT = 65535
SCHEME = r"[A-Za-z][A-Za-z0-9+.-]*://"
EXAMPLE = "amqp://host:5672, amqps://user:password@host:5671, or a list of them with commas"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a broker.

    `host` is a name or an IP address, IPv6 with brackets or without. `port` is 5672, or 5671 under
    TLS, unless given (0 is not given). `mechanism` names the SASL mechanisms that may be used,
    separated by spaces; empty is whatever is safe: SCRAM, then PLAIN under TLS, with a
    `user`; EXTERNAL (a client certificate), then ANONYMOUS, without. GSSAPI shows a ticket of
    Kerberos for `service` at the host, which is usually amqp. Raises ClientError for a host or
    port that cannot be one.
    """

    host: str
    port: int = 0
    tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    mechanism: str = ""
    service: str = ""

    def __post_init__(self) -> None:
        host = self.host
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            object.__setattr__(self, "host", host)
        if reason := _wrong_host(host):
            raise ClientError(
                f"{self.host!r} is no host of a broker",
                reason=reason,
                hint="a name or an IP address; the port is given apart: Endpoint('host', 5672)",
            )
        if type(self.port) is not int or not 0 <= self.port <= LAST_PORT:
            raise ClientError(
                f"{self.port!r} is no port of a broker",
                reason=f"ports are from 1 to {LAST_PORT}",
                hint="leave it out for 5672, or 5671 under TLS",
            )
        if not self.port:
            object.__setattr__(self, "port", SECURE_PORT if self.tls else PORT)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The address with its scheme, without credentials."""
        return f"{'amqps' if self.tls else 'amqp'}://{self}"

    @property
    def place(self) -> tuple[str, int]:
        """Host and port: two endpoints of one place are one broker."""
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class Tls:
    """What a TLS connection needs: files in PEM form.

    `trusted` holds the certificates of whoever signed the brokers' (the system's are used without
    it). `certificate` and `key` say who the client is, for SASL EXTERNAL; `password` is the key's,
    if it has one. Host names are always checked; `server_name` is the name in the brokers'
    certificates where it is not their address.
    """

    trusted: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    password: str = field(default="", repr=False)

    def context(self) -> ssl.SSLContext:
        """Make the context that sockets are wrapped with. Raises TlsError for files that cannot be
        used.
        """
        files = [name for name in (self.trusted, self.certificate, self.key) if name]
        password = KeyPassword(self.password)
        try:
            context = ssl.create_default_context(cafile=self.trusted or None)
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None, password=password)
        except (OSError, ValueError) as error:
            if isinstance(error, ssl.SSLError):
                reason = password.trouble(error.reason)
            else:
                reason = getattr(error, "strerror", None) or str(error)
            is_locked = reason in (NO_PASSWORD, WRONG_PASSWORD)
            raise TlsError(
                f"cannot use {', '.join(files)}",
                reason=reason,
                hint=KEY_PASSWORD if is_locked else "name readable files in PEM form",
            ) from error
        return context


Brokers = str | Endpoint | Iterable[str | Endpoint]
"""How an application names its brokers."""


def parse_endpoints(brokers: Brokers, *, user: str = "", password: str = "") -> list[Endpoint]:
    """Read where brokers are; credentials in an address come before `user` and `password`.

    Raises ClientError for what is no address. Credentials of the first address hold for those
    behind it that have none, as in Qpid's URLs; an address is a text or an Endpoint.
    """
    if isinstance(brokers, Endpoint):
        brokers = [brokers]
    parts: list[str | Endpoint] = (
        [*_parts(brokers)]
        if isinstance(brokers, str)
        else [
            piece
            for item in brokers
            for piece in (_parts(item) if isinstance(item, str) else [item])
        ]
    )
    found: list[Endpoint] = []
    for part in parts:
        first = found[0] if found else None
        endpoint = (
            part
            if isinstance(part, Endpoint)
            else parse_endpoint(part, tls=_inherits_tls(part, first))
        )
        if not endpoint.user:
            as_user = first.user if first and first.user else user
            secret = first.password if first and first.user else password
            endpoint = _with_login(endpoint, as_user, endpoint.password or secret)
        if endpoint.place not in [known.place for known in found]:
            found.append(endpoint)
    if not found:
        raise ClientError("no broker is named", hint=EXAMPLE)
    return found


def parse_endpoint(text: str, *, tls: bool = False) -> Endpoint:
    """Read one address: `[amqp[s]://][user[:password]@]host[:port]`, `ssl:host:port` or
    `user/password@host`; Qpid's tools have the `/` behind a scheme too. Raises ClientError.
    """
    text = text.strip()
    if found := re.search(f"@({SCHEME})(.*)", text):
        raise ClientError(
            f"{_shown(text)!r} is no broker's address",
            reason="a login stands before its scheme",
            hint=f"{found[1]}user:password@{found[2].rpartition('@')[2]}",
        )
    scheme = re.match(SCHEME, text)
    rest, has_scheme = text, False
    if scheme is not None:
        name = scheme[0].removesuffix("://").lower()
        if name not in ("amqp", "amqps"):
            raise ClientError(
                f"{_shown(text)!r} is no broker's address",
                reason=f"scheme {name!r} is not known",
                hint=EXAMPLE,
            )
        rest, tls, has_scheme = text[scheme.end() :], name == "amqps", True
    elif text.startswith(("amqp:", "amqps:")):
        name, _, rest = text.partition(":")
        tls = name == "amqps"
    credentials, _, where = rest.rpartition("@")
    where = where.partition("/")[0]
    try:
        user, password = read_login(credentials, has_scheme=has_scheme)
        address = parse_address(where, encrypted=tls)
        return Endpoint(address.host, address.port, address.encrypted, user, password)
    except ValueError as error:
        raise ClientError(
            f"{_shown(text)!r} is no broker's address", reason=str(error), hint=EXAMPLE
        ) from None


def _with_login(endpoint: Endpoint, user: str, password: str) -> Endpoint:
    return replace(endpoint, user=user, password=password)


def _inherits_tls(part: str, first: Endpoint | None) -> bool:
    """Whether an address without a scheme follows one with TLS in the same list."""
    return first is not None and first.tls and "://" not in part


def _parts(text: str) -> list[str]:
    return [part for part in (piece.strip() for piece in text.split(",")) if part]


def _wrong_host(host: str) -> str:
    """Say why a text cannot be the host of an address; empty if it can."""
    if not host:
        return "it is empty"
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            return "only an IPv6 address has colons"
    elif found := re.search(r"[\s/@,\[\]]", host):
        return f"no host has {found[0]!r}"
    return ""


def _shown(text: str) -> str:
    """Show an address without its user and password."""
    return re.sub(f"^({SCHEME}|amqps?:)?.*@", r"\1***@", text)
