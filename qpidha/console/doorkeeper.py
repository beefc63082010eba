"""The doorkeeper: every request passes here first.

It refuses what could be read in two ways, names another host, comes from a page of another site, or
has no token where one is needed; and it says whose token a request has. What a token may do is
asked where it is done: `demand`.
"""

from __future__ import annotations

from collections import Counter

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from qpidha.console.access import Access, Token, is_own_origin
from qpidha.console.access import Scope as TokenScope
from qpidha.console.problems import Problem, problem_answer
from qpidha.model.event_codes import NOT_PERMITTED

ONCE = (b"host", b"authorization", b"origin", b"content-type", b"content-length", b"last-event-id")
"""Headers that must not come twice: a proxy may have read the other one."""
MOST_REQUESTS = 400
"""Requests that may be answered at a time; more are told to come again."""
CHALLENGE = 'Bearer realm="qpidha-console"'


class Doorkeeper:
    """Lets requests in, or answers them."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scope.setdefault("state", {})["token"] = self._token(scope)
            if self._inside >= MOST_REQUESTS:
                hint = "try again later"
                headers = {"retry-after": "1"}
                raise Problem(503, "there are too many requests", hint=hint, headers=headers)
        except Problem as problem:
            await problem_answer(problem)(scope, receive, send)
            return
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1

    def _token(self, scope: Scope) -> Token | None:
        """Return the token of a request. Raises Problem."""
        counts = Counter(name for name, _ in scope["headers"])
        headers = dict(scope["headers"])
        twice = [name.decode("latin-1") for name in ONCE if counts[name] > 1]
        if twice or (b"content-length" in counts and b"transfer-encoding" in counts):
            text = f"{twice[0]} comes twice" if twice else "the length of the body is given twice"
            raise Problem(400, text, hint="send it once", headers={"connection": "close"})
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._access.is_our_host(host):
            hint = "call it by an IP address or localhost, or start it with --host-name"
            raise Problem(421, f"this is not {host}", hint=hint)
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and not is_own_origin(origin, host):
            text = f"a page of {origin} may not ask here"
            hint = f"only pages that come from {host or 'here'} may"
            raise Problem(403, text, hint=hint, event_code=NOT_PERMITTED)
        authorization = headers.get(b"authorization", b"")
        token = self._access.token_of(authorization)
        if token is None and self._access.tokens:
            raise _no_token(has_one=bool(authorization))
        return token


def demand(request: Request, needed: TokenScope) -> Token:
    """Return the token of a request that is to change something. Raises Problem."""
    token: Token | None = request.state.token
    if token is None:
        raise _no_token(has_one=False)
    if token.scope < needed:
        text = f"this needs the scope {needed.word}, and the token has {token.scope.word}"
        challenge = f'{CHALLENGE}, error="insufficient_scope", scope="{needed.word}"'
        hint = f"use a token of the scope {needed.word}"
        headers = {"www-authenticate": challenge}
        raise Problem(403, text, hint=hint, event_code=NOT_PERMITTED, headers=headers)
    return token


def _no_token(*, has_one: bool) -> Problem:
    text = "no such token is known" if has_one else "a token is needed"
    hint = "send the header `Authorization: Bearer TOKEN` with a token of the --token-file"
    challenge = CHALLENGE + (', error="invalid_token"' if has_one else "")
    headers = {"www-authenticate": challenge}
    return Problem(401, text, hint=hint, event_code=NOT_PERMITTED, headers=headers)
