"""The table of queues: all queues of a broker, those at risk first, in pages.

To sort them the broker is asked for all of them, a thousand at a time, so that no other question
waits for long. What it said is kept for a while: at least `FRESH` seconds, and ten times as long as
it took, so that however many look, it costs the broker a tenth of its time at most. Two answers
make rates. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from qpidha.console.looks import Watched
from qpidha.console.resources import PATIENCE

FRESH = 1.0
ASKED_AT_ONCE = 1000
COLUMNS = (
    "name",
    "messages",
    "bytes",
    "consumers",
    "unreplicated",
    "unsafe",
    "backups",
    "oldest_age_seconds",
    "oldest_may_be_older",
    "flow_stopped",
    "replicate",
    "durable",
    "enqueued",
    "dequeued",
)
"""What is asked of each queue."""
Queue = dict[str, Any]

SORTS = {
    "risk": "at risk first",
    "name": "name",
    "messages": "messages",
    "bytes": "size",
    "oldest_age_seconds": "oldest first",
    "consumers": "consumers",
    "arrivals": "arrivals",
    "departures": "departures",
}
"""What the table can be in the order of, and how that is called."""
SIZES = (50, 100, 250, 1000)
"""Rows of a page that are offered."""


class Shown(NamedTuple):
    """A page of the table."""

    rows: list[Queue]
    first: int
    """Number of the first row, from 1 on."""
    found: int
    """Queues that match."""
    total: int
    pages: int
    page: int
    backups: list[str]
    """Names of all backups that any of the rows tells of."""


@dataclass(slots=True)
class QueueTable:
    """The queues of one broker, as they were a moment ago."""

    broker: Watched
    _queues: list[Queue] = field(default_factory=list)
    _counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    _taken: float = float("-inf")
    _cost: float = 0.0
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def queues(self) -> list[Queue]:
        """Return all queues. Raises NotAnswered and RefusedRequest."""
        async with self._asking:
            begun = time.monotonic()
            if begun - self._taken >= max(FRESH, 10 * self._cost):
                found = await self._ask()
                now = time.monotonic()
                self._add_rates(found, begun - self._taken)
                self._queues, self._taken, self._cost = found, begun, now - begun
            return self._queues

    async def _ask(self) -> list[Queue]:
        found: list[Queue] = []
        params = {"fields": " ".join(COLUMNS), "limit": ASKED_AT_ONCE, "after": ""}
        while True:
            some = await self.broker.ask("list_queues", dict(params), deadline=PATIENCE)
            found += some
            if len(some) < ASKED_AT_ONCE:
                return found
            params["after"] = some[-1]["name"]

    def _add_rates(self, queues: list[Queue], seconds: float) -> None:
        before = self._counts
        for queue in queues:
            came, left = before.get(queue["name"], (None, None))
            queue["arrivals"] = _rate(came, queue["enqueued"], seconds)
            queue["departures"] = _rate(left, queue["dequeued"], seconds)
        self._counts = {queue["name"]: (queue["enqueued"], queue["dequeued"]) for queue in queues}

    async def page(self, *, match: str, sort: str, down: bool, page: int, size: int) -> Shown:
        """Return one page of the queues whose name contains `match`."""
        every = await self.queues()
        word = match.lower()
        queues = [queue for queue in every if word in queue["name"].lower()] if word else [*every]
        queues.sort(key=lambda queue: queue["name"], reverse=down and sort == "name")
        if sort == "risk":
            queues.sort(key=_risk, reverse=True)
        elif sort != "name":
            queues.sort(key=lambda queue: queue[sort] or 0, reverse=down)
        pages = max(1, -(-len(queues) // size))
        page = min(max(page, 1), pages)
        first = (page - 1) * size
        rows = queues[first : first + size]
        backups = sorted(set(chain.from_iterable(queue["backups"] for queue in rows)))
        return Shown(rows, first + 1, len(queues), len(every), pages, page, backups)


def _risk(queue: Queue) -> tuple[int, int, bool, int]:
    return queue["unsafe"], queue["unreplicated"], queue["flow_stopped"], queue["messages"]


def _rate(before: int | None, now: int, seconds: float) -> float | None:
    """Return how much it grows in a second; None if that is not known."""
    if before is None or now < before or not 0 < seconds < float("inf"):
        return None
    return (now - before) / seconds
