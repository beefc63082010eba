"""Changes over HTTP: `POST /api/v1/methods/NAME`, with a token, and a line in the log for each.

The parameters are a JSON object in the body; `?dry_run=true` says what would be done. A body is
read up to `LONGEST` bytes and for `PATIENCE` seconds, after the token was looked at.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from qpidha.console.access import Token
from qpidha.console.changes import CHANGES, Change, check
from qpidha.console.doorkeeper import demand
from qpidha.console.forms import read_body
from qpidha.console.log_lines import Log, log_line
from qpidha.console.looks import NotAnswered, Watched
from qpidha.console.plans import Plan, planned
from qpidha.console.problems import Problem
from qpidha.console.resources import PATIENCE as ANSWER_PATIENCE
from qpidha.console.watchers import API, Broker, Watchers
from qpidha.model.errors import InvalidArgument, RefusedRequest

LONGEST = 256 << 10
"""Bytes of a body."""
PATIENCE = 10.0
"""Seconds for a body to come."""
JSON = "application/json"
LONGEST_LINE = 1000
"""Characters of the parameters, and of the outcome, in a line of the log."""


def add_changes(app: FastAPI, watchers: Watchers, log: Log = log_line) -> None:
    """Add the path of each change to the application."""
    for change in CHANGES:
        _add(app, watchers, change, log)


def _add(app: FastAPI, watchers: Watchers, change: Change, log: Log) -> None:
    async def answer(request: Request, broker: Broker = "", dry_run: bool = False) -> Response:
        token = demand(request, change.scope)
        chosen = watchers.chosen(broker)
        params = await _params(request)
        check(change, params)
        about = {"broker": chosen.name, "method": change.method, "dry_run": dry_run}
        if dry_run:
            return JSONResponse({**about, **await plan_of(chosen, change, params)})
        result = await carry_out(chosen, change, params, who_asks(token, request), log)
        return JSONResponse({**about, "result": result})

    types = {param.name: {"type": param.type} for param in change.params}
    required = [param.name for param in change.params if param.is_required]
    schema = {
        "type": "object",
        "properties": types,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }
    app.post(
        f"{API}/methods/{change.method}",
        summary=change.help,
        tags=["changes"],
        openapi_extra={
            "requestBody": {"required": bool(required), "content": {JSON: {"schema": schema}}},
            "security": [{"token": [change.scope.word]}],
        },
    )(answer)


async def plan_of(broker: Watched, change: Change, params: dict[str, Any]) -> Plan:
    """Return what a change would do. Raises RefusedRequest and NotAnswered."""

    async def ask(method: str, given: dict[str, Any]) -> Any:
        return await broker.ask(method, given, deadline=ANSWER_PATIENCE)

    return await planned(change, params, ask)


async def carry_out(
    broker: Watched, change: Change, params: dict[str, Any], who: str, log: Log = log_line
) -> Any:
    """Have a broker make a change, and write who asked for it. Raises RefusedRequest and
    NotAnswered.
    """
    # It goes on, and is logged, also when the client goes.
    return await asyncio.shield(asyncio.create_task(_do(broker, change, params, who, log)))


async def _do(broker: Watched, change: Change, params: dict[str, Any], who: str, log: Log) -> Any:
    outcome = "the console ended"
    try:
        result = await broker.change(change.method, params)
        outcome = f"done, {_short(result)}"
        return result
    except RefusedRequest as error:
        outcome = f"refused: {error.text}"
        raise
    except NotAnswered as error:
        outcome = f"{'not known' if error.is_open else 'not done'}: {error.reason}"
        raise
    finally:
        what = f"{change.method} {_short(params)}"
        log(f"{who} asked {broker.name} for {what}: {_plain(outcome)}")


def who_asks(token: Token, request: Request) -> str:
    """Say for the log whose token a request has, and from where it comes."""
    address = request.client.host if request.client else "?"
    return f"{_plain(token.name)} ({token.scope.word}) at {address}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}..."


def _plain(text: str) -> str:
    """Return a text as it can stand in a line: without ends of lines, and not too long."""
    return "".join(each if each.isprintable() else "?" for each in text[:LONGEST_LINE])


async def _params(request: Request) -> dict[str, Any]:
    """Read the body. Raises Problem and InvalidArgument."""
    try:
        body = await asyncio.wait_for(read_body(request, LONGEST), PATIENCE)
    except TimeoutError:
        text = f"the body did not come within {PATIENCE:g} s"
        raise Problem(408, text, hint="again", headers={"connection": "close"}) from None
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body.strip() and not kind:
        return {}
    if kind != JSON:
        text = f"the body is {kind or 'of no type'}"
        raise Problem(415, text, hint=f"send the header `Content-Type: {JSON}`")
    return _object(body) if body.strip() else {}


def _object(body: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key comes twice")
        return found

    def no_number(text: str) -> Any:
        raise ValueError(f"{text} is no number")

    hint = 'send the parameters as a JSON object, such as {"name": "orders"}'
    try:
        found = json.loads(body.decode("utf-8"), object_pairs_hook=once, parse_constant=no_number)
    except RecursionError:
        raise InvalidArgument("the body is nested too deeply", hint=hint) from None
    except ValueError as error:
        raise InvalidArgument(f"the body is not JSON: {error}", hint=hint) from None
    if not isinstance(found, dict):
        raise InvalidArgument("the body is JSON, but not an object", hint=hint)
    return found
