"""Admin sockets, the blocking way: one JSON line out, one JSON line back. Used by every command; imports next to nothing.

Brokers and the local manager speak the same lines. Who we are is told by the kernel, so no password is needed.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from qpidha.cli.exits import DENIED, TIMED_OUT, UNREACHABLE, Failure, refused


class AdminSocket:
    """A conversation with a broker or manager on this machine."""

    __slots__ = ("_buffer", "_last", "_socket", "path")

    def __init__(self, path: str, timeout: float | None) -> None:
        self.path = path
        self._buffer = b""
        self._last = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(path)
        except PermissionError as error:
            self._socket.close()
            raise Failure(DENIED, f"{path}: {error.strerror}", hint="run it as the broker's user, or as root") from error
        except (OSError, ValueError) as error:
            self._socket.close()
            reason = getattr(error, "strerror", None) or str(error)
            hint = "qpid-ha local status, or name one with -b"
            raise Failure(UNREACHABLE, f"no broker answers at {path}: {reason}", hint=hint) from error

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask and return the result; a refusal is a Failure."""
        self._last += 1
        self.send({"id": self._last, "method": method, "params": params or {}})
        while True:
            reply = self.receive()
            if reply.get("id") in (self._last, None):
                break
        error = reply.get("error")
        if error:
            raise refused(str(error.get("condition", "")), str(error.get("message", "refused")), str(error.get("hint", "")))
        return reply.get("result")

    def send(self, request: dict[str, Any]) -> None:
        """Write one line."""
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except TimeoutError as error:
            raise self._too_late() from error
        except OSError as error:
            raise Failure(UNREACHABLE, f"{self.path} hung up: {error.strerror}", hint="qpid-ha local status") from error

    def receive(self) -> dict[str, Any]:
        """Read one line."""
        while b"\n" not in self._buffer:
            try:
                data = self._socket.recv(65536)
            except TimeoutError as error:
                raise self._too_late() from error
            except OSError as error:
                raise Failure(UNREACHABLE, f"{self.path} hung up: {error.strerror}", hint="qpid-ha local status") from error
            if not data:
                raise Failure(UNREACHABLE, f"{self.path} hung up before it answered", hint="qpid-ha local status")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def settimeout(self, seconds: float | None) -> None:
        """Change how long to wait for each answer."""
        self._socket.settimeout(seconds)

    def fileno(self) -> int:
        """For select."""
        return self._socket.fileno()

    def _too_late(self) -> Failure:
        return Failure(TIMED_OUT, f"{self.path} did not answer within {self._socket.gettimeout():g} s", hint="a longer --timeout")
