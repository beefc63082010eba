"""The description of the API: `/openapi.json`, as it is.

The framework describes paths and parameters, and errors as it would answer them itself; here stand
those that are answered: problems, and what a token has to do with them.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from qpidha.console.access import SCOPES
from qpidha.console.problems import PROBLEM

TEXTS = {
    400: "a parameter, a header or the body is wrong",
    401: "a token is needed, or it is not known",
    403: "the token has not the scope, the page that asks is of another site, or the broker does "
    "not allow it",
    404: "there is no such thing",
    408: "the body did not come in time",
    409: "the broker refused it",
    410: "it is not kept any more",
    413: "the body is too long",
    415: "the body is no JSON",
    421: "the console is not called so",
    501: "the broker has no such method",
    503: "the broker gives no answer, or there are too many requests",
    504: "the broker gave no answer to a change: it may or may not have been made",
}
EVERYWHERE = (400, 401, 403, 421)
OF_THE_API = (404, 409, 501, 503)
OF_CHANGES = (*OF_THE_API, 408, 413, 415, 504)
FIELDS = {
    "type": "`about:blank`",
    "detail": "what is wrong",
    "hint": "what to do next",
    "condition": "the broker's, where it refused",
    "event_code": "what docs/messages.md explains it by",
}


def describe(app: FastAPI) -> None:
    """Have the application describe itself as it is."""

    def description() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _described(app)
        return app.openapi_schema

    app.openapi = description  # type: ignore[method-assign]


def _described(app: FastAPI) -> dict[str, Any]:
    found = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes
    )
    for methods in found["paths"].values():
        for method, about in methods.items():
            responses = about["responses"]
            responses.pop("422", None)
            kind = about["tags"][0]
            special = OF_CHANGES if kind == "changes" else OF_THE_API if kind == "api" else (404,)
            for status in (*EVERYWHERE, *special):
                responses.setdefault(str(status), _problem(status))
            if method == "get":
                about["security"] = [{}, {"token": []}]
    scopes = ", ".join(SCOPES)
    text = f"a token of the --token-file; scopes, each with those before it: {scopes}"
    found["components"] = {
        "schemas": {"Problem": _schema()},
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": text}},
    }
    return found


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": TEXTS[status], "content": {PROBLEM: {"schema": schema}}}


def _schema() -> dict[str, Any]:
    texts = {name: {"type": "string", "description": text} for name, text in FIELDS.items()}
    return {
        "type": "object",
        "properties": {"status": {"type": "integer"}, **texts},
        "required": ["type", "status", "detail"],
    }
