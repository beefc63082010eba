"""Admin sessions: the admin socket's protocol, one JSON object a line, without the socket.

Answers come when they are ready, so a quick request may overtake a slow one. A line that is no
request is answered by an error with the id null, and the session stays usable; a line that is too
long is skipped up to its end. Knows nothing of sockets or of the node: it is fed bytes and asked
for bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.management.port import Reply
from qpidha.management.schema import plain
from qpidha.model.errors import LimitExceeded
from qpidha.model.json_lines import (
    LONGEST_REQUEST,
    MOST_WAITING,
    BadRequest,
    LineReader,
    Request,
    error_line,
    line_too_long,
    parse_request,
    result_line,
    too_many_waiting,
)
from qpidha.model.principal import Principal, Role

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from qpidha.management.requests import Requests

MOST_OUTPUT = 64 << 20
"""Bytes of answers that may pile up in one turn; lists are long, and a request for one is short."""
ADMIN_SOCKET_ROLES = frozenset((Role.ADMINISTRATOR, Role.MANAGER))
"""The admin socket is open to root, the broker's own user and `admin-socket-group` only."""


class AdminSession:
    """One connection of the admin socket."""

    __slots__ = ("_lines", "_output", "_principal", "_requests", "_wake", "closed", "waiting")

    def __init__(
        self, requests: Requests, principal: Principal, wake: Callable[[], None] | None = None
    ) -> None:
        self._requests = requests
        self._principal = principal
        self._wake = wake
        self._lines = LineReader(LONGEST_REQUEST)
        self._output = bytearray()
        self.waiting = 0
        self.closed = False

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer and answer the lines they complete."""
        for line in self._lines.feed(data):
            if line is None:
                self._send(None, Reply(error=line_too_long()))
            elif line.strip() and not self.closed:
                self._take(line)

    def output(self) -> bytes:
        """Hand over everything that is to be written."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def close(self) -> None:
        """Forget the peer: answers that are still to come are dropped."""
        self.closed = True
        self._lines.clear()
        self._output.clear()

    def _take(self, line: bytes) -> None:
        try:
            request = parse_request(line)
        except BadRequest as error:
            self._send(error.identity, Reply(error=error))
            return
        if self.waiting >= MOST_WAITING:
            self._send(request.identity, Reply(error=too_many_waiting(request.method)))
        elif len(self._output) > MOST_OUTPUT:
            text = f"{request.method}: {len(self._output)} bytes of answers are not yet read"
            hint = "read the answers before asking more"
            self._send(request.identity, Reply(error=LimitExceeded(text, hint=hint)))
        else:
            self._call(request)

    def _call(self, request: Request) -> None:
        def answer(reply: Reply) -> None:
            self.waiting -= 1
            self._send(request.identity, reply)

        self.waiting += 1
        self._requests.call(request.method, request.params, answer, principal=self._principal)

    def _send(self, identity: Any, reply: Reply) -> None:
        if self.closed:
            return
        was_empty = not self._output
        if reply.error is None:
            self._output += result_line(identity, plain(reply.result))
        else:
            self._output += error_line(identity, reply.error)
        if was_empty and self._wake is not None:
            self._wake()
