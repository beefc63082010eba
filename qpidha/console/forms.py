"""Forms: what a browser posts from a page."""

from __future__ import annotations

from urllib.parse import parse_qsl

from fastapi import Request

from qpidha.console.problems import Problem

LONGEST = 4096
"""Bytes of a form."""


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises Problem."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST:
            raise Problem(413, f"the form has more than {LONGEST} bytes", hint="send less")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
