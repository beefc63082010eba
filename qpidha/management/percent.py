"""Percent-encoding: the parts of a path and of a query, decoded strictly.

A stray percent sign or bytes that are not UTF-8 are refused, never guessed at.
Source: RFC 3986 section 2.1.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from qpidha.words.errors import InvalidArgument

STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")


def decode_part(part: str) -> str:
    """Decode one part of a path."""
    if "%" not in part:
        return part
    if STRAY.search(part):
        raise InvalidArgument(f"{part!r} has a percent sign without two hexadecimal digits", hint="write a percent sign as %25")
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"{part!r} is not percent-encoded UTF-8", hint="encode names as UTF-8") from None


def decode_query(query: str) -> dict[str, str]:
    """Decode `name=value&...`; a name given twice is refused."""
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        if name in found:
            raise InvalidArgument(f"the query gives {name} twice", hint="give it once")
        found[decode_part(name)] = decode_part(value.replace("+", " "))
    return found
