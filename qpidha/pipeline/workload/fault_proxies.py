"""Fault proxies: links between the brokers of one machine that can be cut, as TCP proxies on the
loopback in one thread.

A cut stops carrying bytes, and nobody is told, as when a cable is pulled. After `heal` what was on
its way is delivered late, as TCP would. They are between brokers: clients reach each of them all
the time.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

LOOPBACK = "127.0.0.1"
PATIENCE = 10.0
"""Seconds for the thread to do what it is told."""


class FaultProxies:
    """A proxy from each broker to each other on the loopback, in one thread."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.targets: dict[tuple[int, int], tuple[str, int]] = {}
        self._held: dict[tuple[int, int], socket.socket] = {}
        for one in range(count):
            for other in range(count):
                if one != other:
                    held = socket.socket()
                    held.bind((LOOPBACK, 0))
                    held.listen(64)
                    self._held[one, other] = held
        self._open: dict[tuple[int, int], asyncio.Event] = {}
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="proxies")
        self._thread.start()
        self._started.wait(PATIENCE)

    def brokers_url(self, index: int, ports: Sequence[int], hosts: Sequence[str] = ()) -> str:
        """Return how broker `index` is to reach all brokers, which listen at these ports, and
        addresses if not at 127.0.0.1.
        """
        places = list(zip(hosts or [LOOPBACK] * len(ports), ports, strict=True))
        for other, place in enumerate(places):
            self.targets[index, other] = place
        proxies = [
            place if other == index else (LOOPBACK, self._held[index, other].getsockname()[1])
            for other, place in enumerate(places)
        ]
        return ",".join(f"{host}:{port}" for host, port in proxies)

    def cut(self, one: int, other: int, *, both: bool = True) -> None:
        """Let nothing pass from `one` to `other`, and unless told otherwise nothing back."""
        self._set([(one, other), (other, one)][: 2 if both else 1], passing=False)

    def isolate(self, index: int) -> None:
        """Cut one broker off from all others."""
        for other in range(self.count):
            if other != index:
                self.cut(index, other)

    def heal(self) -> None:
        """Let everything pass again."""
        self._set(list(self._open), passing=True)

    def close(self) -> None:
        """Carry nothing any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        for held in self._held.values():
            held.close()

    def _set(self, ways: list[tuple[int, int]], *, passing: bool) -> None:
        done = threading.Event()

        def change() -> None:
            for way in ways:
                (self._open[way].set if passing else self._open[way].clear)()
            done.set()

        self._loop.call_soon_threadsafe(change)
        if not done.wait(PATIENCE):
            raise AssertionError("the proxies hang")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        for way in self._held:
            self._open[way] = asyncio.Event()
            self._open[way].set()
        for way, held in self._held.items():
            self._loop.run_until_complete(asyncio.start_server(self._server(way), sock=held))
        self._started.set()
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    def _server(self, way: tuple[int, int]) -> Callable[..., Any]:
        back = (way[1], way[0])

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._open[way].wait()
            await self._open[back].wait()
            try:
                there, onward = await asyncio.open_connection(*self.targets[way])
            except OSError:
                writer.close()
                return
            await asyncio.gather(self._carry(reader, onward, way), self._carry(there, writer, back))

        return serve

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: tuple[int, int]
    ) -> None:
        """Carry bytes one way until the stream ends; while the way is cut nothing moves, not even
        the end.
        """
        try:
            while data := await reader.read(65536):
                await self._open[way].wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        await self._open[way].wait()
        writer.close()
