"""Forms: what a browser posts from a page, and bodies of requests."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import Request
from starlette.requests import ClientDisconnect

from qpidha.console.problems import Problem

LONGEST = 4096
"""Bytes of a form."""


async def read_body(request: Request, longest: int, what: str = "body") -> bytes:
    """Return the body of a request. Raises Problem."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > longest:
                text = f"the {what} has more than {longest} bytes"
                raise Problem(413, text, hint="send less", headers={"connection": "close"})
    except ClientDisconnect:  # Nobody hears of it, and the log need not either.
        raise Problem(400, f"the {what} ends in the middle") from None
    return bytes(body)


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises Problem."""
    body = await read_body(request, LONGEST, "form")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
