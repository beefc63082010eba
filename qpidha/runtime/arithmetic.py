"""Arithmetic: what takes long and touches nothing, as what a password asks for does, is done in a
thread of its own, one after the other; hashing leaves the interpreter to everybody else. What asks
the network, as Kerberos does for the links to other brokers, has threads of its own.

A thread begins with the first of it, and is not waited for when the broker ends. Knows nothing of
passwords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from qpidha.model.effects import Compute
from qpidha.model.events import Computed, Event

ASKING = 8
"""Threads for what asks the network: more brokers than that do not hang at the same time."""


class Arithmetic:
    """Does one work after the other; `put` takes each result, in the loop."""

    __slots__ = ("_asking", "_loop", "_put", "_queues", "_thread")

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[Event], None]) -> None:
        self._loop = loop
        self._put = put
        self._queues: dict[bool, SimpleQueue[Compute]] = {False: SimpleQueue(), True: SimpleQueue()}
        """By whether it blocks."""
        self._thread: Thread | None = None
        self._asking: list[Thread] = []

    def take(self, effect: Compute) -> None:
        """Do what an effect asks for, when it is its turn."""
        if effect.blocks and len(self._asking) < ASKING:
            self._asking.append(self._begin("asking", blocks=True))
        elif not effect.blocks and self._thread is None:
            self._thread = self._begin("arithmetic", blocks=False)
        self._queues[effect.blocks].put(effect)

    def _begin(self, name: str, *, blocks: bool) -> Thread:
        thread = Thread(target=self._work, args=(self._queues[blocks],), name=name, daemon=True)
        thread.start()
        return thread

    def _work(self, queue: SimpleQueue[Compute]) -> None:
        while True:
            effect = queue.get()
            event = Computed(effect.connection_id)
            try:
                event.result = effect.work()
            except Exception as error:  # noqa: BLE001  # The node raises it again.
                event.error = error
            try:
                self._loop.call_soon_threadsafe(self._put, event)
            except RuntimeError:
                return  # the loop is closed
