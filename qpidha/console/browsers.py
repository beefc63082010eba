"""Browsers: how somebody with a browser shows a token, and what pages of other consoles may ask.

A browser sends no header `Authorization` by itself. Who gives a token at `/login` gets it back as a
cookie, which no script can read and other sites cannot use to change anything; a request that has
the cookie is let in as one that has the token. A page that is asked for without a token leads to
`/login`. The pages of the cluster's other consoles may read what this one says, if the browser has
a right to it without a cookie: in effect whether it answers. Stands before the doorkeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from urllib.parse import quote, urlsplit

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from qpidha.console.access import Access
from qpidha.console.forms import read_form
from qpidha.console.pages import Pages, is_browser, path_of
from qpidha.console.problems import Problem, problem_answer

COOKIE = "qpidha-console"
LOGIN, LOGOUT = "/login", "/logout"
SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


class Browsers:
    """Lets a cookie stand for a token."""

    def __init__(
        self, app: ASGIApp, access: Access, pages: Pages, consoles: Sequence[str] = ()
    ) -> None:
        self._app = app
        self._access = access
        self._pages = pages
        self._consoles: Collection[bytes] = {each.encode() for each in consoles}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except Problem as problem:
            answer = problem_answer(problem)
        await (answer or self._app)(scope, receive, send)

    async def _answer(self, request: Request) -> Response | None:
        """Return the answer; None if the request goes on. Raises Problem."""
        scope, path = request.scope, str(request.scope["path"])
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"")
        origin = headers.get(b"origin", b"")
        if not self._access.is_our_host(host.decode("latin-1")):
            return None  # The doorkeeper says so.
        if request.method in SAFE and origin in self._consoles:
            scope["headers"] = [each for each in scope["headers"] if each[0] != b"origin"]
        token = request.cookies.get(COOKIE, "")
        by_cookie = bool(token) and b"authorization" not in headers
        if request.method not in SAFE and (by_cookie or path in (LOGIN, LOGOUT)):
            if origin.partition(b"://")[2].lower() != host.lower():
                hint = "a form of a page of this console says from where it comes"
                raise Problem(403, "this comes from another site", hint=hint)
        if path.startswith("/static/"):
            return await self._pages.file(path.removeprefix("/static/"))
        if path == LOGIN:
            return await self._login(request)
        if path == LOGOUT and request.method == "POST":
            answer: Response = RedirectResponse(LOGIN, 303)
            answer.delete_cookie(COOKIE, httponly=True, samesite="lax")
            return answer
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        if by_cookie:
            authorization = f"Bearer {token}"
            scope["headers"] = [*scope["headers"], (b"authorization", authorization.encode())]
        scope.setdefault("state", {})["by_cookie"] = by_cookie
        is_page = self._pages.has(path) or (is_browser(request) and self._pages.is_nothing(path))
        if is_page and not self._access.knows(authorization):
            query = f"?{request.url.query}" if request.url.query else ""
            onward = quote(path_of(request) + query, safe="")
            return RedirectResponse(f"{LOGIN}?next={onward}", 303)
        return None

    async def _login(self, request: Request) -> Response:
        onward = _local(request.query_params.get("next", ""))
        if request.method in SAFE:
            return self._pages.login(onward, has_tokens=bool(self._access.tokens))
        if request.method != "POST":
            raise Problem(405, "Method Not Allowed", headers={"allow": "GET, HEAD, POST"})
        token = (await read_form(request)).get("token", "").strip()
        if not self._access.tokens or not self._access.knows(f"Bearer {token}"):
            return self._pages.login(onward, has_tokens=bool(self._access.tokens), is_wrong=True)
        answer = RedirectResponse(onward, 303)
        is_secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, token, httponly=True, samesite="lax", secure=is_secure)
        return answer


def _local(path: str) -> str:
    """Return a path of this console; the first page in place of what leads elsewhere."""
    is_plain = path.isprintable() and "\\" not in path and not path.startswith("//")
    parts = urlsplit(path) if is_plain and path.startswith("/") else None
    return path if parts is not None and not parts.scheme and not parts.netloc else "/"
