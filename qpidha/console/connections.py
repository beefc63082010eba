"""Connections: how long a client may keep one, and how many there may be.

A client that sends its request letter by letter, or does not read its answer, would hold a
connection for as long as it likes, and a few hundred of them keep health checks out. When there are
too many, the one goes that has been waited for the longest, so that a newcomer, who asks at once,
gets in. A server of the loop tells of a client only when its TLS handshake is over; so the door
accepts, and a client counts from there on. What is no HTTP is answered by a problem like any other
mistake.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from qpidha.console.log_lines import log_line
from qpidha.console.problems import PROBLEM, Problem, problem_answer

MOST = 500
"""Connections at a time."""
AT_ONCE = 4
"""Clients that are accepted in one turn of the loop: those who are here go on in between."""
PAUSE = 1.0
"""Seconds until the next try where there are no descriptors left."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ASKING = 15.0
"""Seconds for a TLS handshake, and for a whole request, from the end of the one before."""
STUCK = 30.0
"""Seconds for which a client may read next to nothing of its answer."""
SLOWEST = 32 << 10
"""Bytes that it has to read in that time, or all that are left."""


class Connection(H11Protocol):
    """One connection of a client."""

    waiting: ClassVar[dict[Connection, None]] = {}
    """Those whose next request has not come, or not all of it, the longest first; those in their
    TLS handshake are among them.
    """
    _socket: socket.socket | None = None
    """Until the handshake is over."""
    _stage = 0.0
    _left = 0
    """Bytes that the client had not read when it was given its time."""
    _timer: asyncio.TimerHandle | None = None

    def arrive(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Count from now on, end another if there are too many, and shake hands."""
        self._socket = accepted
        self.connections.add(self)
        self.waiting[self] = None
        if len(self.connections) > MOST:
            next(iter(self.waiting)).give_up()
        task = self.loop.create_task(self._shake_hands(accepted, tls))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _shake_hands(self, accepted: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Begin; one that fails, is too slow, or was given up meanwhile is gone."""
        try:
            await self.loop.connect_accepted_socket(
                lambda: self, accepted, ssl=tls, ssl_handshake_timeout=ASKING if tls else None
            )
        except OSError:
            pass  # It hung up, was too slow, or speaks no TLS.
        finally:
            if self._socket is not None:
                self.connections.discard(self)
                self._wait_for(0.0)
                accepted.close()

    def give_up(self) -> None:
        """End without a word."""
        self.waiting.pop(self, None)
        if self._socket is None:
            self.transport.abort()
            return
        # It is the loop's to close; so the handshake fails.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def shutdown(self) -> None:
        """End when all that was asked for is answered."""
        if self._socket is None:
            super().shutdown()
        else:
            self.give_up()

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._socket = None
        super().connection_made(transport)
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        super().connection_lost(exc)
        self._wait_for(0.0)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        super().data_received(data)
        self._go_on()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._wait_for(0.0)
        self._go_on()

    def pause_writing(self) -> None:
        """The client reads slowly, or not at all."""
        super().pause_writing()
        self._go_on()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._go_on()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; in the middle of another answer it just ends."""
        cycle = self._last_cycle()
        if cycle is not None and not cycle.response_complete:
            self.transport.abort()
            return
        hint = "send HTTP/1.1, with one Host and headers of less than 64 KiB"
        answer = problem_answer(Problem(400, msg, hint=hint))
        head = (
            "HTTP/1.1 400 Bad Request",
            f"content-type: {PROBLEM}",
            f"content-length: {len(answer.body)}",
            "connection: close",
        )
        self.transport.write("\r\n".join((*head, "", "")).encode() + bytes(answer.body))
        self.transport.close()

    def _last_cycle(self) -> RequestResponseCycle | None:
        """Return the newest request and its answer; there is none before the first."""
        return self.cycle

    def _go_on(self) -> None:
        """See what is waited for now."""
        cycle = self._last_cycle()
        # One that closes does so when the client has read all.
        if self.flow.write_paused or self.transport.is_closing():
            self._wait_for(STUCK)
        elif cycle is None or cycle.response_complete or cycle.more_body:
            self._wait_for(ASKING)
        else:
            self._wait_for(0.0)

    def _wait_for(self, seconds: float) -> None:
        """Give the client so long, if it was not given that already; 0 is for ever."""
        if seconds == self._stage and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._stage = seconds
        self.waiting.pop(self, None)
        if seconds == ASKING:
            self.waiting[self] = None
        if seconds:
            self._left = self.transport.get_write_buffer_size()
            self._timer = self.loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        """End, unless it was a long answer of which the client goes on reading."""
        stage, self._timer = self._stage, None
        if stage == STUCK and self.transport.get_write_buffer_size() <= self._left - SLOWEST:
            self._wait_for(stage)
        else:
            self.transport.abort()


class Door:
    """Accepts clients on one socket, from its making until it is closed."""

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        make_connection: Callable[[], Connection],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._tls = tls
        self._make_connection = make_connection
        self._is_exhausted = False
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Accept nobody from now on; who is in its handshake goes on."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, _address = self._listener.accept()
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._rest(error)
                return
            self._is_exhausted = False
            accepted.setblocking(False)
            self._make_connection().arrive(accepted, self._tls)

    def _rest(self, error: OSError) -> None:
        """Try again later; the first failure of a row is told."""
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(PAUSE, self._listen)
        if not self._is_exhausted:
            self._is_exhausted = True
            log_line(
                f"error: nobody is let in: {error.strerror}; it is tried again every {PAUSE:g} s\n"
                f"  next: give this process more open files than {MOST + 100} (ulimit -n)"
            )
