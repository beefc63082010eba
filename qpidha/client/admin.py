"""Clients of admin sockets: `AdminSocket` blocks, `AdminLink` is for asyncio.

Brokers, the built-in manager and the watch of Pacemaker speak the same JSON lines; the kernel tells
them our user, so no password is needed. A refusal is a `RefusedRequest` with the condition, reason
and hint of the answer; everything that keeps an answer from coming is a `LinkBroken`. Imports
little, because every command passes here; knows nothing of the methods.
"""

from __future__ import annotations

import socket
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from qpidha.model.errors import QpidHaError
from qpidha.model.json_lines import LONGEST_ANSWER, Answer, LineReader, parse_answer, request_line

if TYPE_CHECKING:
    import asyncio

PIECE = 1 << 16


class LinkBroken(QpidHaError):
    """Nobody answers there, or the conversation ended before its answer."""


class LinkAbsent(LinkBroken):
    """Nobody listens there: nothing was asked."""


class LinkDenied(LinkAbsent):
    """The rights of the socket's file do not let us in."""


class LinkTimeout(LinkBroken):
    """The answer did not come in time."""


class AdminSocket:
    """A blocking conversation with a broker or manager on this machine.

    One request is under way at a time. `timeout` is in seconds for each answer; None waits for
    ever. Raises LinkBroken if nobody listens at `path`, LinkDenied if we may not open it.
    """

    __slots__ = ("_answers", "_last", "_lines", "_socket", "path", "timeout")

    def __init__(self, path: str, timeout: float | None) -> None:
        self.path = path
        self.timeout = timeout
        self._lines = LineReader(LONGEST_ANSWER)
        self._answers: list[bytes | None] = []
        self._last = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(path)
        except (OSError, ValueError) as error:
            self._socket.close()
            raise _not_connected(path, error) from error

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Ask and return the result; raise RefusedRequest for a no and LinkBroken for no answer."""
        self.send(method, params)
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        while True:
            answer = self._receive(method, deadline)
            if answer.error is not None and answer.identity in (self._last, None):
                raise answer.error
            if answer.identity == self._last:
                return answer.result

    def send(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Ask, and leave the lines that come back to a reader of `fileno`."""
        self._last += 1
        try:
            self._socket.settimeout(self.timeout)
            self._socket.sendall(request_line(self._last, method, params))
        except TimeoutError as error:
            raise _too_late(self.path, method, self.timeout) from error
        except OSError as error:
            raise LinkBroken(f"{self.path} hung up: {error.strerror}") from error

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def fileno(self) -> int:
        """For select, and for reading events."""
        return self._socket.fileno()

    def _receive(self, method: str, deadline: float | None) -> Answer:
        while not self._answers:
            try:
                if deadline is not None:
                    self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
                data = self._socket.recv(PIECE)
            except TimeoutError as error:
                raise _too_late(self.path, method, self.timeout) from error
            except OSError as error:
                raise LinkBroken(f"{self.path} hung up: {error.strerror}") from error
            if not data:
                raise LinkBroken(f"{self.path} hung up before it answered")
            self._answers = self._lines.feed(data)
        return _parse(self.path, self._answers.pop(0))


class AdminLink:
    """A conversation over asyncio with many requests under way: a slow promotion does not hold up
    the pings. A link that breaks fails everything that waits on it. Made by `open`.
    """

    __slots__ = ("_broken", "_last", "_lines", "_loop", "_transport", "_waiting", "path")

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self.path = path
        self._loop = loop
        self._broken: LinkBroken | None = None
        self._last = 0
        self._lines = LineReader(LONGEST_ANSWER)
        self._transport: asyncio.WriteTransport | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    @staticmethod
    async def open(path: str) -> AdminLink:
        """Connect to the socket at `path`; raises LinkBroken."""
        # Loaded late: it costs a command more than its question, and is loaded where we are called.
        loop: asyncio.AbstractEventLoop = import_module("asyncio").get_running_loop()
        link = AdminLink(path, loop)
        try:
            await loop.create_unix_connection(lambda: cast("asyncio.Protocol", link), path)
        except (OSError, ValueError) as error:
            raise _not_connected(path, error) from error
        return link

    @property
    def closed(self) -> bool:
        """Whether the conversation has ended."""
        return self._broken is not None

    async def call(
        self, method: str, params: dict[str, Any] | None = None, *, timeout: float
    ) -> dict[str, Any]:
        """Ask and return the result; raise RefusedRequest for a no and LinkBroken for no answer
        within `timeout` seconds.
        """
        if self._broken is not None:
            raise LinkBroken(self._broken.text)
        self._last += 1
        number = self._last
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._waiting[number] = answer
        too_late = _too_late(self.path, method, timeout)
        timer = self._loop.call_later(timeout, _fail, answer, too_late)
        assert self._transport is not None
        self._transport.write(request_line(number, method, params))
        try:
            result: dict[str, Any] = await answer or {}
        finally:
            timer.cancel()
            self._waiting.pop(number, None)
        return result

    def close(self) -> None:
        """Hang up."""
        self._end(LinkBroken(f"the conversation with {self.path} was ended"))

    # asyncio calls these.

    def connection_made(self, transport: asyncio.WriteTransport) -> None:
        """Begin."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take what the broker sent."""
        for line in self._lines.feed(data):
            try:
                answer = _parse(self.path, line)
            except LinkBroken as error:
                self._end(error)
                return
            if answer.identity is None and answer.error is not None:
                for waiting in self._waiting.values():
                    _fail(waiting, answer.error)
                continue
            asked = self._waiting.get(answer.identity)
            if asked is None or asked.done():
                continue
            if answer.error is not None:
                asked.set_exception(answer.error)
            else:
                asked.set_result(answer.result)

    def eof_received(self) -> None:
        """End with the broker's side; an answer cannot come any more."""

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what waits."""
        self._end(LinkBroken(f"{self.path} hung up{f': {error}' if error else ''}"))

    def pause_writing(self) -> None:
        """Requests are small: a broker that reads none of them is noticed by its answers."""

    def resume_writing(self) -> None:
        """Go on."""

    def _end(self, error: LinkBroken) -> None:
        if self._broken is None:
            self._broken = error
        if self._transport is not None:
            self._transport.close()
        for waiting in self._waiting.values():
            _fail(waiting, self._broken)


def ask(path: str, method: str, params: dict[str, Any] | None = None, *, timeout: float) -> Any:
    """Ask one thing over a conversation of its own; raise RefusedRequest for a no and LinkBroken
    for no answer within `timeout` seconds.
    """
    link = AdminSocket(path, timeout)
    try:
        return link.call(method, params) or {}
    finally:
        link.close()


def _fail(waiting: asyncio.Future[Any], error: QpidHaError) -> None:
    if not waiting.done():
        waiting.set_exception(error)


def _parse(path: str, line: bytes | None) -> Answer:
    if line is None:
        raise LinkBroken(f"{path} sent a line of more than {LONGEST_ANSWER} bytes")
    try:
        return parse_answer(line)
    except ValueError as error:
        raise LinkBroken(f"{path} did not answer in JSON lines: {error}") from None


def _not_connected(path: str, error: Exception) -> LinkBroken:
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, PermissionError):
        return LinkDenied(f"{path}: {reason}")
    return LinkAbsent(f"no broker answers at {path}: {reason}")


def _too_late(path: str, method: str, timeout: float | None) -> LinkTimeout:
    return LinkTimeout(f"{path} did not answer to {method} within {timeout or 0:.3g} s")
