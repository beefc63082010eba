"""Arithmetic: what takes long and touches nothing, as what a password asks for does, is done in a
thread of its own, one after the other; hashing leaves the interpreter to everybody else.

The thread begins with the first of it, and is not waited for when the broker ends. Knows nothing of
passwords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from qpidha.model.effects import Compute
from qpidha.model.events import Computed, Event


class Arithmetic:
    """Does one work after the other; `put` takes each result, in the loop."""

    __slots__ = ("_loop", "_put", "_queue", "_thread")

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[Event], None]) -> None:
        self._loop = loop
        self._put = put
        self._queue: SimpleQueue[Compute] = SimpleQueue()
        self._thread: Thread | None = None

    def take(self, effect: Compute) -> None:
        """Do what an effect asks for, when it is its turn."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name="arithmetic", daemon=True)
            self._thread.start()
        self._queue.put(effect)

    def _work(self) -> None:
        while True:
            effect = self._queue.get()
            event = Computed(effect.connection_id)
            try:
                event.result = effect.work()
            except Exception as error:  # noqa: BLE001  # The node raises it again.
                event.error = error
            try:
                self._loop.call_soon_threadsafe(self._put, event)
            except RuntimeError:
                return  # the loop is closed
