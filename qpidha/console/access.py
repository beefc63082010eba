"""Access: who may do what at the console, and by which name it may be called.

On the loopback whoever is on the machine may read, unless there is a token file; elsewhere a bearer
token is needed, and TLS so that nobody sees it. To change something a token is needed everywhere:
one whose scope covers what the method does. The Host that a request names is checked either way: a
page of the Web that lets its own name lead to the loopback (DNS rebinding) could read what the
console says otherwise; and so is the Origin, by which a browser says whose page asks. Reads the
token file, and knows no HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import socket
import stat
from dataclasses import dataclass
from enum import IntEnum

from qpidha.model.errors import InvalidArgument
from qpidha.model.ip import ip_of

SHORTEST = 16
"""Characters of a token."""
LONGEST = 512
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What a bearer token is made of (RFC 6750 section 2.1)."""
_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:]*))(?::[0-9]*)?")
"""A header `Host`: a name, or an address of IPv6 in brackets, and a port (RFC 9110, 7.2)."""


class Scope(IntEnum):
    """What a token is for; each one covers those before it."""

    MONITOR = 1
    """To read."""
    OPERATOR = 2
    """To change what is replicated, such as queues and policies."""
    ADMINISTRATOR = 3
    """To command a broker: its role, its connections."""

    @property
    def word(self) -> str:
        """What it is called in a token file."""
        return self.name.lower()


SCOPES = {scope.word: scope for scope in Scope}


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the file."""

    scope: Scope
    digest: bytes
    name: str
    """Whose it is, for the log."""


@dataclass(slots=True)
class Access:
    """Who may ask; the defaults are those of a console on the loopback."""

    tokens: tuple[Token, ...] = ()
    """Any of these; empty if none is needed to read, and nobody may change anything. They are
    replaced when the token file is read again.
    """
    hosts: tuple[str, ...] = ()
    """Names beside `localhost`, the machine's own and all IP addresses."""

    def token_of(self, authorization: bytes) -> Token | None:
        """Return the token that the header `Authorization` has, if it is one of ours. How long that
        takes says nothing about tokens: digests are compared, with each of ours.
        """
        scheme, _, given = authorization.partition(b" ")
        digest = _digest(given.strip())
        found = [token for token in self.tokens if hmac.compare_digest(token.digest, digest)]
        return found[0] if found and scheme.lower() == b"bearer" else None

    def knows(self, authorization: str) -> bool:
        """Whether the header `Authorization` has a token, or none is needed to read."""
        return not self.tokens or self.token_of(authorization.encode()) is not None

    def is_our_host(self, host: str) -> bool:
        """Whether the header `Host` names us; no browser leaves it out, so whoever does is none."""
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found[1] or found[2]
        known = ("", "localhost", socket.gethostname().lower(), *map(str.lower, self.hosts))
        return name in known or ip_of(name) is not None


def is_own_origin(origin: str, host: str) -> bool:
    """Whether the page that asks came from here: its `Origin` is the `Host` that it asks."""
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and bool(place) and place.lower() == host.lower()


def read_tokens(path: str) -> tuple[Token, ...]:
    """Read a token file: a line is `SCOPE TOKEN [NAME]`; an empty one, and one that begins with #,
    says nothing. Raises InvalidArgument.
    """
    hint = "lines of `SCOPE TOKEN [NAME]`, in a file that nobody else can read"
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidArgument(f"token-file {path}: {reason}", hint=hint) from error
    if stat.S_IMODE(mode) & 0o027:
        text = f"token-file {path}: others can read it, or its group can write it"
        raise InvalidArgument(text, hint=f"chmod 600 {path}, or 640")
    tokens: dict[bytes, Token] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            token = _read_token(f"token-file {path}, line {number}", words, number)
            if token.digest in tokens:
                text = f"token-file {path}, line {number}: the same token stands above it"
                raise InvalidArgument(text, hint="a token has one scope: leave one line out")
            tokens[token.digest] = token
    if not tokens:
        raise InvalidArgument(f"token-file {path}: it has no token", hint=hint)
    return tuple(tokens.values())


def _read_token(where: str, words: list[str], number: int) -> Token:
    if len(words) not in (2, 3):
        raise InvalidArgument(f"{where}: it is not `SCOPE TOKEN [NAME]`", hint="monitor 5f0c...")
    scope = SCOPES.get(words[0])
    if scope is None:
        text = f"{where}: there is no scope {words[0]}"
        raise InvalidArgument(text, hint=f"scopes: {', '.join(SCOPES)}")
    if not SHORTEST <= len(words[1]) <= LONGEST:
        text = f"{where}: a token has {SHORTEST} characters at least, and {LONGEST} at most"
        raise InvalidArgument(text, hint="openssl rand -hex 32 makes one")
    if not _TOKEN.fullmatch(words[1]):
        text = f"{where}: a token has letters, digits and - . _ ~ + / only, and = at its end"
        raise InvalidArgument(text, hint="openssl rand -hex 32 makes one")
    name = words[2] if len(words) == 3 else f"the {scope.word} of line {number}"
    return Token(scope, _digest(words[1].encode()), name)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
