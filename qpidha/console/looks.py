"""Looks: what a broker is asked, once for all who want to know, and never waited for longer than a
deadline.

A broker may be dead, hang or be cut off. Whoever asks gets an answer or a reason before his
deadline; the question itself stays, and answers those who come later. While it is under way, and
for `FRESH` seconds after its answer, whoever asks the same gets the same: many callers cost the
broker no more than one. A question to an admin socket waits for as long as its socket is there,
since a process that was stopped answers when it goes on; one over AMQP is given up after
`AMQP_PATIENCE`, and the connection is made anew. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from qpidha.client.admin import AdminLink, LinkAbsent, LinkTimeout
from qpidha.client.endpoint import Endpoint, Tls
from qpidha.client.errors import ClientError
from qpidha.client.management import AmqpManagement
from qpidha.model.duration import SECOND
from qpidha.model.errors import QpidHaError, RefusedRequest

DEADLINE = 0.8
"""Seconds that a caller waits for a broker; health checks give up after a second."""
FRESH = 0.1
"""Seconds for which an answer is given to others as well."""
INTERVAL = 1.0
"""Seconds between looks that nobody asks for."""
AMQP_PATIENCE = 5.0
"""Seconds for an answer over AMQP, or a connection, before it is made anew."""
CHANGE_PATIENCE = 60.0
"""Seconds for a change: a long queue is deleted over many turns, a promotion asks all brokers."""
MOST_CHANGES = 16
"""Changes of one broker that may be under way."""
MOST_UNANSWERED = 32
"""Different questions to one broker that may wait for their answers, beside that for its status."""
ADMIN_PATIENCE = 366.0 * 86400
"""Seconds: as long as the socket is there."""
LEAST_BOUND = 5.0
"""Seconds without an answer after which, at the earliest, a broker counts as hanging."""


class NotAnswered(Exception):
    """There is no answer: `reason` says why; `in_time` whether it was the deadline that ended, and
    `is_open` whether what was asked for may have been done all the same.
    """

    def __init__(self, reason: str, *, in_time: bool = True, is_open: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.in_time = in_time
        self.is_open = is_open


class NotBegun(QpidHaError):
    """There is no connection, so nothing was asked."""


class Link(Protocol):
    """A conversation with one broker, which is begun again when it was broken."""

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask and return the result. Raises RefusedRequest for a no; what else goes wrong is
        another QpidHaError, or a ClientError.
        """
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class SocketLink:
    """A conversation over an admin socket."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._link: AdminLink | None = None
        self._opening = asyncio.Lock()

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask, on a new conversation if there is none."""
        async with self._opening:
            if self._link is None or self._link.closed:
                self._link = await AdminLink.open(self.path)
        return await self._link.call(method, params, timeout=ADMIN_PATIENCE)

    def close(self) -> None:
        """Hang up."""
        if self._link is not None:
            self._link.close()


class AmqpLink:
    """A conversation over AMQP, in a thread of its own: one question after the other."""

    patience = AMQP_PATIENCE

    def __init__(self, endpoint: Endpoint, tls: Tls | None) -> None:
        self._endpoint = endpoint
        self._tls = tls
        self._thread = ThreadPoolExecutor(1, "qpidha-console")
        self._management: AmqpManagement | None = None

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask, on a new connection if there is none."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._ask, method, params)

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        if self._management is None:
            self._management = self._open()
        try:
            return self._management.call(method, params)
        except RefusedRequest:
            raise
        except (QpidHaError, ClientError, OSError):
            self._hang_up()
            raise

    def _open(self) -> AmqpManagement:
        return AmqpManagement(self._endpoint, tls=self._tls, timeout=self.patience, follow=False)

    def _hang_up(self) -> None:
        management, self._management = self._management, None
        try:
            if management is not None:
                management.close()
        except (QpidHaError, ClientError, OSError):
            pass  # It waits for what we asked, in vain.

    def close(self) -> None:
        """Hang up when what was asked is answered."""
        self._thread.submit(self._hang_up)
        self._thread.shutdown(wait=False, cancel_futures=False)


class AmqpChanges(AmqpLink):
    """A conversation over AMQP for each change: of one that was lost meanwhile nobody could say
    whether the change was asked for.
    """

    patience = CHANGE_PATIENCE

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        try:
            self._management = self._open()
        except ClientError as error:
            raise NotBegun(error.text, reason=error.reason, hint=error.hint) from error
        try:
            return self._management.call(method, params)
        finally:
            self._hang_up()


@dataclass(frozen=True, slots=True)
class Look:
    """What one broker said of itself just now, or why it said nothing."""

    name: str
    """The broker's own, or where it is looked for while it never answered."""
    status: dict[str, Any] | None
    """Its status report."""
    reason: str = ""
    """Why there is none."""
    in_time: bool = True
    """Whether there is none for sure, and not only none yet."""
    silent: float = 0.0
    """Seconds since its last answer to anything."""
    bound: float = LEAST_BOUND
    """Seconds of silence from which on it hangs."""
    behind: int = 0
    """Records of the primary's log, as far as this backup knows it, that are not here."""
    age: float = 0.0
    """Seconds since the oldest of them was known of."""

    @property
    def state(self) -> str:
        """The broker's state; empty if it is not known."""
        return str((self.status or {}).get("state", ""))

    @property
    def is_gone(self) -> bool:
        """Whether the broker does not answer, and is not only late."""
        return self.status is None and (self.in_time or self.silent >= self.bound)


@dataclass(slots=True)
class Backlog:
    """Since when a backup has not what it knows the primary to have, to the time between looks."""

    epoch: int = 0
    _known: deque[tuple[float, int]] = field(default_factory=deque)
    """(when it was seen, the primary's last sequence then)"""

    def look(self, status: dict[str, Any], now: float) -> tuple[int, float]:
        """Return how many records the broker lacks, and for how many seconds the oldest."""
        primary = (status.get("primary") or {}).get("system_id", "")
        row = next((row for row in status["members"] if row["system_id"] == primary), None)
        if row is None or not primary or primary == status["system_id"]:
            self._known.clear()
            return 0, 0.0
        if row["epoch"] != self.epoch:
            self.epoch = row["epoch"]
            self._known.clear()
        there, here = int(row["sequence"]), int(status["applied"])
        while self._known and self._known[0][1] <= here:
            self._known.popleft()
        if there <= here:
            return 0, 0.0
        if not self._known or self._known[-1][1] < there:
            self._known.append((now, there))
        return there - here, now - self._known[0][0]


class Watched:
    """One broker that is watched."""

    def __init__(self, place: str, link: Link, changing: Link | None = None) -> None:
        """`changing` is the conversation for changes, where they would keep looks waiting."""
        self.place = place
        """Where it is, as the command line has it, without a password."""
        self.name = place
        self._link = link
        self._changing = changing or link
        self._changes: set[asyncio.Task[Any]] = set()
        self._asked: dict[tuple[str, str], asyncio.Task[Any]] = {}
        self._backlog = Backlog()
        self._answered = float("-inf")
        self._bound = LEAST_BOUND
        self.looks = 0
        """Questions that went to the broker."""
        self.last: Look | None = None
        """The newest look; None before the first."""
        self.heard: list[Callable[[Watched, Look], None]] = []
        """Called with each look."""

    def is_called(self, name: str) -> bool:
        """Whether somebody who says `name` means this broker."""
        return name in (self.name, self.place)

    async def ask(
        self, method: str, params: dict[str, Any] | None = None, *, deadline: float = DEADLINE
    ) -> Any:
        """Ask, or wait for the answer to the same question. Raises RefusedRequest for a no, and
        NotAnswered, at the latest after `deadline` seconds.
        """
        given = params or {}
        key = (method, json.dumps(given, sort_keys=True))
        task = self._asked.get(key)
        if task is None:
            waiting = sum(not task.done() for task in self._asked.values())
            # Who asks for much must not make the broker look dead.
            if waiting >= MOST_UNANSWERED and method != "status":
                raise NotAnswered(f"{self.name} has {waiting} questions to answer first")
            self.looks += 1
            task = asyncio.create_task(self._link.ask(method, given))
            self._asked[key] = task
            task.add_done_callback(lambda task: self._on_done(key, task))
        await asyncio.wait({task}, timeout=deadline)
        if not task.done():
            raise NotAnswered(
                f"{self.name} did not answer to {method} within {deadline:g} s", in_time=False
            )
        return _result_of(self.name, task)

    async def change(
        self, method: str, params: dict[str, Any], *, patience: float = CHANGE_PATIENCE
    ) -> Any:
        """Have something changed, once for each call; goes on when nobody waits any longer. Raises
        as `ask` does.
        """
        if len(self._changes) >= MOST_CHANGES:
            raise NotAnswered(f"{self.name} has {MOST_CHANGES} changes to make first")
        task = asyncio.create_task(self._changing.ask(method, params))
        self._changes.add(task)
        task.add_done_callback(self._on_changed)
        await asyncio.wait({task}, timeout=patience)
        if not task.done():
            task.add_done_callback(_forget)
            reason = f"{self.name} did not answer to {method} within {patience:g} s"
            raise NotAnswered(reason, in_time=False, is_open=True)
        try:
            return _result_of(self.name, task)
        except NotAnswered as error:
            error.is_open = not isinstance(error.__cause__, LinkAbsent | NotBegun)
            raise

    async def look(self) -> Look:
        """Ask for the status report."""
        self.last = await self._look()
        for hear in self.heard:
            hear(self, self.last)
        return self.last

    async def _look(self) -> Look:
        try:
            status: dict[str, Any] = await self.ask("status")
        except NotAnswered as error:
            silent = time.monotonic() - self._answered
            return Look(self.name, None, error.reason, error.in_time, silent, self._bound)
        except RefusedRequest as refused:
            return Look(self.name, None, refused.explanation)
        self.name = str(status.get("name") or self.name)
        self._bound = max(LEAST_BOUND, 2 * status.get("heartbeat_ns", 0) / SECOND)
        behind, age = self._backlog.look(status, time.monotonic())
        return Look(self.name, status, bound=self._bound, behind=behind, age=age)

    def close(self) -> None:
        """Hang up."""
        self._link.close()
        self._changing.close()
        for task in self._asked.values():
            task.cancel()

    def _on_changed(self, task: asyncio.Task[Any]) -> None:
        """What was said before a change is old."""
        self._changes.discard(task)
        self._asked = {key: asked for key, asked in self._asked.items() if not asked.done()}

    def _on_done(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None or isinstance(error, RefusedRequest):
            self._answered = time.monotonic()
        task.get_loop().call_later(FRESH, self._drop, key, task)

    def _drop(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        if self._asked.get(key) is task:
            del self._asked[key]


def _result_of(name: str, task: asyncio.Task[Any]) -> Any:
    """Return what a question brought. Raises RefusedRequest and NotAnswered."""
    try:
        return task.result()
    except RefusedRequest:
        raise
    except LinkTimeout as error:
        raise NotAnswered(error.text, in_time=False) from error
    except (QpidHaError, ClientError) as error:
        raise NotAnswered(error.explanation) from error
    except OSError as error:
        raise NotAnswered(f"{name}: {error.strerror or error}") from error


def _forget(task: asyncio.Task[Any]) -> None:
    """Take the result of a change that nobody waits for."""
    if not task.cancelled():
        task.exception()
