"""Local sessions: the admin socket's protocol, one JSON object a line, without the socket.

A request is `{"id": 1, "method": "status", "params": {}}`; its answer is one line with the same id and
either `result` or `error` (condition, message, hint). Answers come when they are ready, so a quick
request may overtake a slow one. A line that is no request is answered by an error with the id null,
and the session stays usable; a line that is too long is skipped up to its end.
Knows nothing of sockets or of the node: it is fed bytes and asked for bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from qpidha.management.schema import plain
from qpidha.management.target import Reply
from qpidha.words.errors import InvalidArgument, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.management.requests import Requests
    from qpidha.words.errors import QpidHaError

LONGEST_LINE = 1 << 20
"""Bytes in one request line."""
MOST_WAITING = 1000
"""Requests of one session that may wait for their records to be safe."""
MOST_OUTPUT = 64 << 20
"""Bytes of answers that may pile up in one turn; lists are long, and a request for one is short."""


class LocalSession:
    """One connection of the admin socket."""

    __slots__ = ("_buffer", "_output", "_requests", "_skipping", "_wake", "closed", "waiting")

    def __init__(self, requests: Requests, wake: Callable[[], None] | None = None) -> None:
        self._requests = requests
        self._wake = wake
        self._buffer = bytearray()
        self._output = bytearray()
        self._skipping = False
        self.waiting = 0
        self.closed = False

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer and answer the lines they complete."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._piece(data[start:end])
            self._line_ended()
            start = end + 1
        self._piece(data[start:])

    def output(self) -> bytes:
        """Hand over everything that is to be written."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def close(self) -> None:
        """Forget the peer: answers that are still to come are dropped."""
        self.closed = True
        self._buffer.clear()
        self._output.clear()

    def _piece(self, piece: bytes) -> None:
        if self._skipping or self.closed:
            return
        if len(self._buffer) + len(piece) > LONGEST_LINE:
            self._buffer.clear()
            self._skipping = True
            self._refuse(None, LimitExceeded(f"a request line is longer than {LONGEST_LINE} bytes", hint="send a shorter request"))
        else:
            self._buffer += piece

    def _line_ended(self) -> None:
        line = bytes(self._buffer)
        self._buffer.clear()
        if self._skipping:
            self._skipping = False
        elif line.strip() and not self.closed:
            self._request(line)

    def _request(self, line: bytes) -> None:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as fault:
            reason = "nested too deeply" if isinstance(fault, RecursionError) else str(fault)
            hint = 'send one JSON object a line, such as {"id": 1, "method": "status", "params": {}}'
            self._refuse(None, InvalidArgument(f"the line is not JSON: {reason}", hint=hint))
            return
        if not isinstance(request, dict):
            hint = 'send an object with "id", "method" and "params"'
            self._refuse(None, InvalidArgument("the line is JSON, but not an object", hint=hint))
            return
        identity = request.get("id")
        method = request.get("method")
        params = request.get("params")
        if isinstance(identity, dict | list):
            self._refuse(None, InvalidArgument("id is neither a number nor a string", hint="give each request a number of its own"))
        elif not isinstance(method, str):
            self._refuse(identity, InvalidArgument("method is missing or not a string", hint='name one, such as "status"'))
        elif params is not None and not isinstance(params, dict):
            self._refuse(identity, InvalidArgument(f"{method}: params is not an object", hint='send "params": {} or leave it out'))
        elif self.waiting >= MOST_WAITING:
            text = f"{method}: {self.waiting} requests of this session wait for their records to be safe"
            self._refuse(identity, LimitExceeded(text, hint="wait for their answers first"))
        elif len(self._output) > MOST_OUTPUT:
            text = f"{method}: {len(self._output)} bytes of answers are not yet read"
            self._refuse(identity, LimitExceeded(text, hint="read the answers before asking more"))
        else:
            self._call(identity, method, params or {})

    def _call(self, identity: Any, method: str, params: dict[str, Any]) -> None:
        def answer(reply: Reply) -> None:
            self.waiting -= 1
            self._send(identity, reply)

        self.waiting += 1
        self._requests.call(method, params, answer)

    def _refuse(self, identity: Any, error: QpidHaError) -> None:
        self._send(identity, Reply(error=error))

    def _send(self, identity: Any, reply: Reply) -> None:
        if self.closed:
            return
        line: dict[str, Any] = {"id": plain(identity)}
        if reply.error is None:
            line["result"] = plain(reply.result)
        else:
            line["error"] = {"condition": reply.error.condition, "message": reply.error.text, "hint": reply.error.hint}
        was_empty = not self._output
        self._output += json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        if was_empty and self._wake is not None:
            self._wake()
