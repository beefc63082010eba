"""Connections: how long a client may keep one, and how many there may be.

A client that sends its request letter by letter, or does not read its answer, would hold a
connection for as long as it likes, and a few hundred of them keep health checks out. When there are
too many, the one goes that has been waited for the longest, so that a newcomer, who asks at once,
gets in. What is no HTTP is answered by a problem like any other mistake.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from qpidha.console.problems import PROBLEM, Problem, problem_answer

MOST = 500
"""Connections at a time."""
ASKING = 15.0
"""Seconds for a whole request, from the end of the one before."""
STUCK = 30.0
"""Seconds for which a client may read next to nothing of its answer."""
SLOWEST = 32 << 10
"""Bytes that it has to read in that time, or all that are left."""


class Connection(H11Protocol):
    """One connection of a client."""

    waiting: ClassVar[dict[Connection, None]] = {}
    """Those whose next request has not come, or not all of it, the longest first."""
    _stage = 0.0
    _left = 0
    """Bytes that the client had not read when it was given its time."""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin, and end another if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST:
            next(iter(Connection.waiting), self).transport.abort()
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
