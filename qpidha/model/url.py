"""URLs: the list of broker addresses in `ha-brokers-url` and its like.

`amqp:user/password@tcp:host:port,ssl:[::1]:5671`: the `amqp:` (or `amqps:`) and the credentials may
be missing, as may protocol and port of each address. Credentials are percent-encoded, kept beside
the addresses, and never printed. Knows nothing of name resolution or of which address is our own.
Source: Qpid src/qpid/Url.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from qpidha.model.errors import InvalidArgument
from qpidha.model.percent import decode_part

PORT = 5672
"""IANA's port for AMQP."""
SECURE_PORT = 5671
"""IANA's port for AMQP over TLS."""
_ADDRESS = re.compile(
    r"(?:(?P<protocol>tcp|ssl):)?"
    r"(?P<host>\[[0-9A-Fa-f:.%\w]+\]|[^\s:;/@\[\],=]+)"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
CONSOLE = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
"""An address of a console: a page names it to the browser, so it has nothing else in it."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens; `protocol` is tcp or ssl, an IPv6 `host` has no brackets."""

    protocol: str
    host: str
    port: int

    @property
    def encrypted(self) -> bool:
        """Whether TLS is spoken there."""
        return self.protocol == "ssl"

    @property
    def host_port(self) -> str:
        """`host:port` without the protocol, IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"ssl:{self.host_port}" if self.encrypted else self.host_port


class Url(tuple[Address, ...]):
    """Addresses in the order given, with the credentials that came with them."""

    user: str
    password: str

    def __new__(cls, addresses: Iterable[Address] = (), user: str = "", password: str = "") -> Url:
        """Make a URL of addresses."""
        url = super().__new__(cls, addresses)
        url.user = user
        url.password = password
        return url

    def __str__(self) -> str:
        return f"amqp:{','.join(str(address) for address in self)}" if self else ""

    def __repr__(self) -> str:
        return f"Url({str(self)!r})"


def parse_url(text: str) -> Url:
    """Read a URL; empty or `none` is the empty one. Raises ValueError that says which part is
    wrong.
    """
    text = text.strip()
    if text in ("", "none"):
        return Url()
    encrypted = text.startswith(("amqps:", "amqps://"))
    rest = re.sub(r"^amqps?:(//)?", "", text)
    scheme, colon, _ = rest.partition("://")
    if colon and scheme.isalnum():
        raise ValueError(f"{scheme}:// is not offered; use amqp:// or amqps://")
    credentials, _, addresses = rest.rpartition("@")
    user, password = read_login(credentials, has_scheme=text.startswith(("amqp://", "amqps://")))
    return Url(
        (parse_address(part, encrypted=encrypted) for part in addresses.split(",")), user, password
    )


def read_login(text: str, *, has_scheme: bool) -> tuple[str, str]:
    """Read `user:password` or `user/password`, what stands before the `@` of an address. Raises
    ValueError, which does not show it.

    Behind a scheme (`amqp://`) whichever comes first separates the two; without one a `:` before
    the `/` is of the user's name.
    """
    separator = re.search("[:/]" if has_scheme or "/" not in text else "/", text)
    user, _, password = text.partition(separator[0]) if separator else (text, "", "")
    try:
        return decode_part(user), decode_part(password)
    except InvalidArgument:
        raise ValueError(
            "its user or password has a % that begins no character; write % itself as %25"
        ) from None


def parse_address(text: str, *, encrypted: bool = False) -> Address:
    """Read one address such as `host`, `host:5672`, `ssl:host` or `[::1]:5672`; raises
    ValueError.
    """
    if not text:
        raise ValueError("an address is empty (is there a comma too many?)")
    if text.startswith("rdma:"):
        raise ValueError("rdma is not offered; use tcp or ssl")
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text} is not an address such as host, host:5672, ssl:host:5671 or [::1]:5672"
        )
    protocol = match["protocol"] or ("ssl" if encrypted else "tcp")
    port = int(match["port"]) if match["port"] else (SECURE_PORT if protocol == "ssl" else PORT)
    if not 1 <= port <= 65535:
        raise ValueError(f"port {port} of {text} is not from 1 to 65535")
    return Address(protocol, match["host"].strip("[]"), port)


def parse_consoles(text: str) -> tuple[str, ...]:
    """Return the addresses of consoles, with commas between, as browsers write where a page is
    from; empty or `none` is no address. Raises ValueError.
    """
    if text == "none":
        return ()
    found = []
    for each in filter(None, (part.strip().rstrip("/") for part in text.split(","))):
        whole = CONSOLE.fullmatch(each.lower())
        if whole is None:
            raise ValueError(f"{each!r} is no address of a console")
        scheme, host, port = whole.groups()
        if port and not 1 <= int(port) <= 65535:
            raise ValueError(f"port {port} of {each} is not from 1 to 65535")
        if port and int(port) == {"http": 80, "https": 443}[scheme]:
            port = ""
        found.append(f"{scheme}://{host}" + (f":{int(port)}" if port else ""))
    return tuple(found)
