"""Percent-encoding: the parts of a path and of a query, decoded strictly.

A stray percent sign or bytes that are not UTF-8 are refused, never guessed at. Imports next to
nothing. Source: RFC 3986 section 2.1.
"""

from __future__ import annotations

from qpidha.model.errors import InvalidArgument

LONGEST = 8192
"""Characters: room for the longest name and the longest key, with each byte encoded."""
DIGITS = frozenset(b"0123456789abcdefABCDEF")


def decode_part(part: str) -> str:
    """Decode one part of a path; raises InvalidArgument."""
    if "%" not in part:
        return part
    if len(part) > LONGEST:
        raise InvalidArgument(
            f"'{part[:40]}...' is percent-encoded and {len(part)} characters long",
            hint=f"use at most {LONGEST}",
        )
    first, *rest = part.encode("utf-8", "surrogatepass").split(b"%")
    if any(len(piece) < 2 or not DIGITS.issuperset(piece[:2]) for piece in rest):
        raise InvalidArgument(
            f"{part!r} has a percent sign without two hexadecimal digits",
            hint="write a percent sign as %25",
        )
    try:
        return (first + b"".join(bytes([int(one[:2], 16)]) + one[2:] for one in rest)).decode()
    except UnicodeDecodeError:
        raise InvalidArgument(
            f"{part!r} is not percent-encoded UTF-8", hint="encode names as UTF-8"
        ) from None


def decode_query(query: str) -> dict[str, str]:
    """Decode `name=value&...`; a name given twice is refused."""
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        if name in found:
            raise InvalidArgument(f"the query gives {name} twice", hint="give it once")
        found[decode_part(name)] = decode_part(value.replace("+", " "))
    return found
