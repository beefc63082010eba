"""Problems: every answer that is an error, as `application/problem+json` (RFC 9457).

A problem has a `detail`, what to do next as `hint`, and where a broker refused its `condition` and
`event_code`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from qpidha.console.looks import NotAnswered
from qpidha.model.errors import RefusedRequest

PROBLEM = "application/problem+json"
HTTP_OF = {
    "amqp:not-found": 404,
    "amqp:invalid-field": 400,
    "amqp:unauthorized-access": 403,
    "amqp:not-implemented": 501,
}
"""HTTP status of a broker's no by its condition; 409 for others."""


class Problem(Exception):
    """An answer that is an error, with what to do next."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        hint: str = "",
        condition: str = "",
        event_code: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.hint = hint
        self.condition = condition
        self.event_code = event_code
        self.headers = headers or {}


def answer_problems(app: FastAPI) -> None:
    """Have every error that a handler raises answered as a problem."""

    async def problem(request: Request, error: Problem) -> Response:
        return problem_answer(error)

    async def not_answered(request: Request, error: NotAnswered) -> Response:
        hint = "/healthz says whether the broker answers"
        if error.is_open:
            text = f"the change may or may not have been made: {error.reason}"
            return problem_answer(Problem(504, text, hint=f"look what there is; {hint}"))
        return problem_answer(Problem(503, error.reason, hint=hint))

    async def refused(request: Request, error: RefusedRequest) -> Response:
        return problem_answer(
            Problem(
                HTTP_OF.get(error.condition, 409),
                error.explanation,
                hint=error.hint,
                condition=error.condition,
                event_code=error.event_code,
            )
        )

    async def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        detail = f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
        return problem_answer(Problem(400, detail, hint="/openapi.json has all parameters"))

    async def mistake(request: Request, error: Exception) -> Response:
        return problem_answer(
            Problem(500, "internal error of the console", hint="its log says which")
        )

    handlers: dict[type[Exception], Any] = {
        Problem: problem,
        NotAnswered: not_answered,
        RefusedRequest: refused,
        RequestValidationError: invalid,
        HTTPException: other_error,
        Exception: mistake,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


async def other_error(request: Request, error: HTTPException) -> Response:
    """Answer an error of the framework, such as a path that there is not."""
    hint = "/openapi.json has all paths" if error.status_code == 404 else ""
    return problem_answer(
        Problem(error.status_code, str(error.detail), hint=hint, headers=error.headers)
    )


def problem_answer(error: Problem) -> JSONResponse:
    """Return the answer that tells a problem."""
    body = {
        "type": "about:blank",
        "status": error.status,
        "detail": error.detail,
        "hint": error.hint,
        "condition": error.condition,
        "event_code": error.event_code,
    }
    given = {name: value for name, value in body.items() if value}
    return JSONResponse(given, error.status, error.headers, media_type=PROBLEM)
