"""The server of JSON lines for managers: methods and, if there are any, events at a UNIX socket.

Each request runs as a task of its own, so a quick one may overtake a slow one. Only root and the
user of this process are let in. Knows nothing of the methods; `model/json_lines.py` has the
protocol.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from qpidha.model.errors import LimitExceeded, NotFound, QpidHaError, Unauthorized
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
    to_line,
    too_many_waiting,
)

MOST_LISTENERS = 100
"""Sessions that may listen to events at the same time."""
MOST_UNREAD = 16 << 20
"""Bytes of events that a listener may leave unread before it is cut off; all events that a manager
keeps have a tenth of that.
"""
LAST_ANSWERS = 1.0
"""Seconds for requests under way when the server closes."""
PIECE = 1 << 16

Method = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
Listener = Callable[[dict[str, Any]], None]


class Events(Protocol):
    """A stream of events: those so far, and those to come."""

    def subscribe(self, subscriber: Listener) -> None:
        """Tell a listener everything so far and all that follows."""
        ...

    def unsubscribe(self, subscriber: Listener) -> None:
        """Stop telling."""
        ...


class JsonServer:
    """Serves a set of methods at a path; `owner` is what errors call the process."""

    def __init__(
        self, path: Path, methods: Mapping[str, Method], *, owner: str, events: Events | None = None
    ) -> None:
        self.path = path
        self.owner = owner
        self.events = events
        self.listeners = 0
        self._methods = methods
        self._server: asyncio.Server | None = None
        self._sessions: set[_Session] = set()

    async def listen(self) -> None:
        """Open the socket; one that an ended process left is replaced."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self.path))
        self.path.chmod(0o600)

    async def close(self) -> None:
        """Remove the socket, give requests under way `LAST_ANSWERS` seconds, and hang up."""
        if self._server is not None:
            self.path.unlink(missing_ok=True)
            self._server.close()
        tasks = {task for session in self._sessions for task in session.tasks}
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_ANSWERS)
        ending = [session.hang_up() for session in self._sessions]
        if ending:
            await asyncio.wait(ending, timeout=LAST_ANSWERS)

    async def call(self, request: Request) -> dict[str, Any]:
        """Do what a request asks for."""
        method = self._methods.get(request.method)
        if method is None:
            names = ", ".join([*self._methods, *(["events"] if self.events else [])])
            text = f"{self.owner} has no method {request.method!r}"
            raise NotFound(text, hint=f"it has {names}")
        return await method(request.params)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = _Session(self, writer)
        self._sessions.add(session)
        try:
            await session.run(reader)
        except OSError:
            pass  # The peer hung up.
        finally:
            self._sessions.discard(session)
            session.end()


class _Session:
    """One connection."""

    def __init__(self, server: JsonServer, writer: asyncio.StreamWriter) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self._server = server
        self._writer = writer
        self._lines = LineReader(LONGEST_REQUEST)
        self._listens = False
        task = asyncio.current_task()
        assert task is not None
        self._task = task

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Read and answer until the peer hangs up."""
        if _user_id(self._writer) not in (0, os.getuid()):
            text = f"{self._server.owner} answers only root and its own user"
            self._writer.write(error_line(None, Unauthorized(text, hint="run it as root")))
            return
        while data := await reader.read(PIECE):
            for line in self._lines.feed(data):
                if line is None:
                    self._writer.write(error_line(None, line_too_long()))
                elif line.strip():
                    self._take(line)
            await self._writer.drain()
        # A peer that only ended its own side, such as `echo ... | socat`, still reads.
        if self.tasks:
            await asyncio.wait(self.tasks)

    def hang_up(self) -> asyncio.Task[None]:
        """End the connection; return the task that ends with it."""
        self._writer.close()
        return self._task

    def end(self) -> None:
        """Tidy up."""
        if self._listens and self._server.events is not None:
            self._server.listeners -= 1
            self._server.events.unsubscribe(self._tell)
        self._writer.close()

    def _take(self, line: bytes) -> None:
        try:
            request = parse_request(line)
        except BadRequest as error:
            self._write(error_line(error.identity, error))
            return
        if len(self.tasks) >= MOST_WAITING:
            self._write(error_line(request.identity, too_many_waiting(request.method)))
        elif request.method == "events" and self._server.events is not None:
            self._listen(request)
        else:
            task = asyncio.create_task(self._answer(request))
            self.tasks.add(task)
            task.add_done_callback(lambda done: self._done(request, done))

    async def _answer(self, request: Request) -> None:
        try:
            self._write(result_line(request.identity, await self._server.call(request)))
        except QpidHaError as error:
            self._write(error_line(request.identity, error))

    def _done(self, request: Request, task: asyncio.Task[None]) -> None:
        """An error that a method does not explain ends its request only."""
        self.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        reason = str(error) if isinstance(error, OSError) else repr(error)
        text = f"{request.method} failed in {self._server.owner}"
        self._write(error_line(request.identity, QpidHaError(text, reason=reason)))
        if not isinstance(error, OSError):
            context = {"message": text, "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _write(self, line: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(line)

    def _listen(self, request: Request) -> None:
        """Write one line for each event from now on; the request itself has no other answer."""
        assert self._server.events is not None
        if self._listens:
            return
        if self._server.listeners >= MOST_LISTENERS:
            error = LimitExceeded(
                f"{MOST_LISTENERS} sessions listen to the events already", hint="end one of them"
            )
            self._write(error_line(request.identity, error))
            return
        self._listens = True
        self._server.listeners += 1
        self._server.events.subscribe(self._tell)

    def _tell(self, entry: dict[str, Any]) -> None:
        if self._writer.transport.get_write_buffer_size() > MOST_UNREAD:
            self._writer.transport.abort()  # It reads no more; the session ends with its reader.
        else:
            self._write(to_line(entry))


def _user_id(writer: asyncio.StreamWriter) -> int:
    """The user at the other end, as the kernel knows it."""
    peer = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    user: int = struct.unpack("3i", peer)[1]
    return user
