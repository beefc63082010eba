"""Admin links: one manager's conversation with one broker over its admin UNIX socket, in JSON lines.

Every request has an id and every answer repeats it, so that a slow promotion does not hold up the pings. A link
that breaks fails everything that waits on it. Knows nothing of what the requests mean.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from qpidha.words.errors import QpidHaError, RefusedRequest

LINE_LIMIT = 16 * 1024 * 1024
"""Longest answer in bytes; lists of many queues are one line."""


class LinkBroken(QpidHaError):
    """The broker went away, or did not answer in time."""


class AdminLink:
    """A connection to a broker's admin socket."""

    __slots__ = ("_next_id", "_reader", "_task", "_waiting", "_writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_id = 0
        self._task = asyncio.create_task(self._read())

    @staticmethod
    async def open(path: str) -> AdminLink:
        """Connect to the socket at `path`."""
        try:
            reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT)
        except OSError as error:
            raise LinkBroken(f"admin socket {path}: {error.strerror or error}") from error
        return AdminLink(reader, writer)

    @property
    def closed(self) -> bool:
        """Whether the broker hung up."""
        return self._task.done()

    async def call(self, method: str, params: dict[str, Any] | None = None, *, timeout: float) -> dict[str, Any]:
        """Ask and return the result; raise RefusedRequest for a no and LinkBroken for no answer."""
        if self._task.done():
            raise LinkBroken("the broker closed its admin socket")
        self._next_id += 1
        request_id = self._next_id
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        self._writer.write(json.dumps({"id": request_id, "method": method, "params": params or {}}).encode() + b"\n")
        try:
            # Not `wait_for`: in Python 3.11 it loses a cancellation that comes together with the answer.
            async with asyncio.timeout(timeout):
                reply = await answer
        except TimeoutError:
            raise LinkBroken(f"no answer to {method} within {timeout:.2f} s") from None
        finally:
            self._waiting.pop(request_id, None)
        error = reply.get("error")
        if error:
            info = {"condition": error.get("condition", "")}
            raise RefusedRequest(str(error.get("message", "refused")), hint=str(error.get("hint", "")), info=info)
        result: dict[str, Any] = reply.get("result") or {}
        return result

    def close(self) -> None:
        """Hang up."""
        self._task.cancel()
        self._writer.close()

    async def _read(self) -> None:
        try:
            while line := await self._reader.readline():
                reply = json.loads(line)
                answer = self._waiting.get(reply.get("id"))
                if answer is not None and not answer.done():
                    answer.set_result(reply)
        except (OSError, ValueError):
            pass  # A broken stream and a broken line end the link alike.
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(LinkBroken("the broker closed its admin socket"))
