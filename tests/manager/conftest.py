"""A manager over pretended brokers, with waiting for what it does."""

from __future__ import annotations

import asyncio
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from qpidha.manager.builtin import supervisor
from qpidha.manager.builtin.cluster import ClusterOptions
from qpidha.manager.builtin.supervisor import LocalManager
from qpidha.manager.placement import primary_of
from tests.patience import STATE

FAKE = Path(__file__).parent / "fake_daemon.py"
CALM = 10.0
"""A heartbeat with which nobody is thought hung, however busy the machine is."""
BRISK = 2.0
"""A heartbeat for tests of brokers that hang."""


class Watched:
    """A manager and its story."""

    def __init__(self, manager: LocalManager) -> None:
        self.manager = manager
        self.ended = False
        self._news = asyncio.Event()
        manager.events.subscribe(lambda entry: self._news.set())

    async def work(self) -> None:
        """Let the manager work; who waits for an event hears of its end too."""
        try:
            await self.manager.run()
        finally:
            self.ended = True
            self._news.set()

    def look(self) -> None:
        """Have the manager ask every broker now instead of in half a heartbeat."""
        for broker in self.manager.brokers.values():
            broker.poke.set()

    async def until(self, test: Any, what: str) -> Any:
        """Wait until a test of the manager's events holds; return what it found."""
        try:
            async with asyncio.timeout(STATE):
                while not (found := test()):
                    assert not self.ended, f"the manager ended; {self._story(what)}"
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(self._story(what)) from None
        return found

    def _story(self, what: str) -> str:
        return f"no {what}; events: {list(self.manager.events.history)}"

    def find(self, event: str, after: int = 0, **fields: object) -> dict[str, Any] | None:
        """Find an event by its kind and fields."""
        wanted = {"event": event, **fields}
        for entry in self.manager.events.history:
            if entry["time_ns"] > after and all(
                entry.get(name) == value for name, value in wanted.items()
            ):
                return entry
        return None

    async def event(self, event: str, after: int = 0, **fields: object) -> dict[str, Any]:
        """Wait for an event."""
        found: dict[str, Any] = await self.until(
            lambda: self.find(event, after, **fields), f"{event} {fields}"
        )
        return found

    def primary(self) -> str:
        """Name the primary."""
        found = primary_of(self.manager.members())
        return found.name if found is not None else ""


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short path, because of the limit on socket paths, and the pretended daemon."""
    monkeypatch.setenv("QPIDHA_DAEMON", shlex.join([sys.executable, "-S", str(FAKE)]))
    # However slowly they start, b1 is promoted first.
    monkeypatch.setattr(supervisor, "START_PATIENCE", STATE)
    with tempfile.TemporaryDirectory(prefix="qpidha-") as path:
        yield Path(path)


@asynccontextmanager
async def running(
    directory: Path, *, fence: bool = True, heartbeat: float = CALM
) -> AsyncIterator[Watched]:
    """Run a manager of three pretended brokers."""
    manager = LocalManager(
        ClusterOptions(directory=directory, ports=(1, 2, 3), heartbeat=heartbeat, fence=fence)
    )
    watched = Watched(manager)
    await manager.start()
    working = asyncio.create_task(watched.work())
    try:
        yield watched
    finally:
        await manager.stop()
        await working
