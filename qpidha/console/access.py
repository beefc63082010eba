"""Access: who may ask the console, and by which name it may be called.

On the loopback whoever is on the machine may read, unless there is a token file; elsewhere a bearer
token is needed, and TLS so that nobody sees it. The Host that a request names is checked either
way: a page of the Web that lets its own name lead to the loopback (DNS rebinding) could read what
the console says otherwise. Reads the token file, and knows no HTTP.
"""

from __future__ import annotations

import hmac
import os
import socket
import stat
from dataclasses import dataclass

from qpidha.model.errors import InvalidArgument
from qpidha.model.ip import ip_of

SCOPE = "monitor"
"""What a token is for: reading is all there is."""
SHORTEST = 16
"""Characters of a token."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask; the defaults are those of a console on the loopback."""

    tokens: tuple[str, ...] = ()
    """Any of these; empty if none is needed."""
    hosts: tuple[str, ...] = ()
    """Names beside `localhost`, the machine's own and all IP addresses."""

    def knows(self, authorization: str) -> bool:
        """Whether the header `Authorization` has a token, or none is needed."""
        if not self.tokens:
            return True
        scheme, _, token = authorization.partition(" ")
        given = token.strip().encode()
        found = [hmac.compare_digest(given, known.encode()) for known in self.tokens]
        return scheme.lower() == "bearer" and any(found)

    def is_our_host(self, host: str) -> bool:
        """Whether the header `Host` names us; no browser leaves it out, so whoever does is none."""
        name = host.lower()
        name = name.partition("]")[0][1:] if name.startswith("[") else name.partition(":")[0]
        known = ("", "localhost", socket.gethostname().lower(), *map(str.lower, self.hosts))
        return name in known or ip_of(name) is not None


def read_tokens(path: str) -> tuple[str, ...]:
    """Read a token file: a line is `monitor TOKEN`; an empty one, and one that begins with #, says
    nothing. Raises InvalidArgument.
    """
    hint = f"lines of `{SCOPE} TOKEN`, in a file that nobody else can read"
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
    tokens = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] != SCOPE:
            text = f"token-file {path}, line {number}: it is not `{SCOPE} TOKEN`"
            raise InvalidArgument(text, hint=f"{SCOPE} is the only scope there is")
        if len(words[1]) < SHORTEST:
            text = f"token-file {path}, line {number}: a token has {SHORTEST} characters at least"
            raise InvalidArgument(text, hint="openssl rand -hex 32 makes one")
        tokens.append(words[1])
    if not tokens:
        raise InvalidArgument(f"token-file {path}: it has no token", hint=hint)
    return tuple(tokens)
