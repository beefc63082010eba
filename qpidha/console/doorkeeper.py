"""The doorkeeper: every request passes here first.

It refuses requests that name another host or have no token.
"""

from __future__ import annotations

from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from qpidha.console.access import Access
from qpidha.console.problems import Problem, problem_answer


class Doorkeeper:
    """Refuses requests that name another host or have no token."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it."""
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self._access.is_our_host(host):
            hint = "call it by an IP address or localhost, or start it with --host-name"
            return problem_answer(Problem(421, f"this is not {host}", hint=hint))
        if not self._access.knows(headers.get(b"authorization", "")):
            hint = "send the header `Authorization: Bearer TOKEN` with a token of the token file"
            headers = {"www-authenticate": "Bearer"}
            return problem_answer(Problem(401, "a token is needed", hint=hint, headers=headers))
        return None
