"""The watch's own socket: JSON lines as on a broker's admin socket, for the agents of this node.

A request is `{"id": 1, "method": "vip_show", "params": {}}` and its answer one line with `result` or `error`. Only root and
the watch's own user are let in. Knows nothing of what the methods do.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from qpidha.words.errors import NotFound, QpidHaError, Unauthorized

Method = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class WatchSocket:
    """Serves a set of methods at a path."""

    def __init__(self, path: Path, methods: Mapping[str, Method]) -> None:
        self._path = path
        self._methods = methods
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """Open the socket; one that an ended watch left is replaced."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, str(self._path))
        self._path.chmod(0o600)

    def close(self) -> None:
        """Take no more requests and remove the socket."""
        if self._server is not None:
            self._path.unlink(missing_ok=True)
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(json.loads(line), writer)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, AttributeError):
            pass  # The peer hung up, or does not speak our language: nothing to answer.
        finally:
            writer.close()

    async def _answer(self, request: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, Any]:
        name = str(request.get("method"))
        try:
            if not _allowed(writer):
                raise Unauthorized("the watch answers only root and its own user", hint="run it as root")
            if name not in self._methods:
                raise NotFound(f"the watch has no method {name!r}", hint=f"it has {', '.join(self._methods)}")
            return {"id": request.get("id"), "result": await self._methods[name](request.get("params") or {})}
        except QpidHaError as error:
            return {"id": request.get("id"), "error": {"condition": error.condition, "message": error.text, "hint": error.hint}}
        except OSError as error:
            problem = {"condition": "amqp:internal-error", "message": f"{name}: {error}", "hint": "ip link, df /run"}
            return {"id": request.get("id"), "error": problem}


def _allowed(writer: asyncio.StreamWriter) -> bool:
    peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", peer)[1] in (0, os.getuid())
