"""JSON lines: the protocol of admin sockets, both ends, without the socket.

One JSON object is one line. A request is `{"id": 1, "method": "status", "params": {}}`. Its answer
repeats the id and has either a `result` or an `error` with `condition`, `message`, `reason` and
`hint`. A line that is no request is answered by an error whose id is null. Events carry no id.
Brokers, the built-in manager and the watch of Pacemaker speak it; docs/admin-socket.md describes
it.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NamedTuple

from qpidha.model.errors import InvalidArgument, LimitExceeded, QpidHaError, RefusedRequest

LONGEST_REQUEST = 1 << 20
"""Bytes in one line that a server takes."""
LONGEST_ANSWER = 256 << 20
"""Bytes in one line that a client takes: a list of all queues is one line."""
MOST_WAITING = 1000
"""Requests of one session that may wait for their answers."""


class LineReader:
    """Puts lines together from pieces. Of a line that is too long nothing is kept."""

    __slots__ = ("_longest", "_partial", "_skipping")

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._partial = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that `data` completes, without their ends; None stands for a line that
        is too long, once, as soon as that is known.
        """
        lines: list[bytes | None] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._take(data[start:end], lines)
            if not self._skipping:
                lines.append(bytes(self._partial))
            self._partial.clear()
            self._skipping = False
            start = end + 1
        self._take(data[start:], lines)
        return lines

    def clear(self) -> None:
        """Forget the line that has begun, and whether it was too long."""
        self._partial.clear()
        self._skipping = False

    def _take(self, piece: bytes, lines: list[bytes | None]) -> None:
        if self._skipping:
            return
        if len(self._partial) + len(piece) > self._longest:
            self._partial.clear()
            self._skipping = True
            lines.append(None)
        else:
            self._partial += piece


class Request(NamedTuple):
    """One request; `identity` is null, a number or a string."""

    identity: Any
    method: str
    params: dict[str, Any]


class BadRequest(InvalidArgument):
    """A line that is no request; `identity` is its id, as far as it has one."""

    def __init__(self, identity: Any, text: str, *, hint: str) -> None:
        super().__init__(text, hint=hint)
        self.identity = identity


class Answer(NamedTuple):
    """One line of a server: an answer, or an event, which has no id and is its own result."""

    identity: Any
    result: Any
    error: RefusedRequest | None


def parse_request(line: bytes) -> Request:
    """Read a request; raise BadRequest if the line is none."""
    try:
        request = json.loads(line)
    except RecursionError:
        raise BadRequest(None, "the line is nested too deeply", hint=EXAMPLE) from None
    except ValueError as error:
        raise BadRequest(None, f"the line is not JSON: {error}", hint=EXAMPLE) from None
    if not isinstance(request, dict):
        raise BadRequest(None, "the line is JSON, but not an object", hint=EXAMPLE)
    identity, method, params = request.get("id"), request.get("method"), request.get("params")
    if isinstance(identity, dict | list) or (
        isinstance(identity, float) and not isfinite(identity)
    ):
        hint = "give each request a number of its own"
        raise BadRequest(None, "id is neither a number nor a string", hint=hint)
    if not isinstance(method, str):
        hint = 'name one, such as "status"'
        raise BadRequest(identity, "method is missing or not a string", hint=hint)
    if params is not None and not isinstance(params, dict):
        hint = 'send "params": {} or leave it out'
        raise BadRequest(identity, f"{method}: params is not an object", hint=hint)
    return Request(identity, method, params or {})


EXAMPLE = 'send one JSON object a line, such as {"id": 1, "method": "status", "params": {}}'


def line_too_long() -> LimitExceeded:
    """The error for a request line over LONGEST_REQUEST; its id is null."""
    text = f"a request line is longer than {LONGEST_REQUEST} bytes"
    return LimitExceeded(text, hint="send a shorter request")


def too_many_waiting(method: str) -> LimitExceeded:
    """The error for a request over MOST_WAITING."""
    text = f"{method}: {MOST_WAITING} requests of this session wait for their answers"
    return LimitExceeded(text, hint="wait for these answers first")


def request_line(identity: int, method: str, params: dict[str, Any] | None = None) -> bytes:
    """Write a request."""
    return to_line({"id": identity, "method": method, "params": params or {}})


def result_line(identity: Any, result: Any) -> bytes:
    """Write the answer to a request that was granted."""
    return to_line({"id": identity, "result": result})


def error_line(identity: Any, error: QpidHaError) -> bytes:
    """Write the answer to a request that was refused."""
    fields = {
        "condition": error.condition,
        "message": error.text,
        "reason": error.reason,
        "hint": error.hint,
        "event_code": error.event_code,
    }
    return to_line({"id": identity, "error": fields})


def to_line(entry: dict[str, Any]) -> bytes:
    """Write an object as a line: an event, for instance."""
    return json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def parse_answer(line: bytes) -> Answer:
    """Read a line of a server; raise ValueError if it is no JSON object."""
    try:
        reply = json.loads(line)
    except RecursionError:
        raise ValueError("a line is nested too deeply") from None
    if not isinstance(reply, dict):
        raise ValueError("a line is JSON, but not an object")
    if "id" not in reply:
        return Answer(None, reply, None)
    if isinstance(reply["id"], dict | list):
        raise ValueError("an id is neither a number nor a string")
    error = reply.get("error")
    if error is None:
        return Answer(reply["id"], reply.get("result"), None)
    if not isinstance(error, dict):
        raise ValueError("an error is not an object")
    refused = RefusedRequest(
        str(error.get("message") or "refused"),
        reason=str(error.get("reason") or ""),
        hint=str(error.get("hint") or ""),
        event_code=str(error.get("event_code") or ""),
    )
    refused.condition = str(error.get("condition") or refused.condition)
    return Answer(reply["id"], None, refused)
