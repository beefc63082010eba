"""Weighing: how much content a broker has, by a walk over its queues that goes on a piece a second.

So what is asked of it each second costs the same with any number of queues. It is exact where there
are no more than a piece has, and else as it was when the last walk ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qpidha.broker.broker import Broker
    from qpidha.broker.queues.queue import Queue

PIECE = 5000
"""Queues that are looked at in one step."""
PER_MESSAGE = 24
"""Bytes that a message, or the key of one that has left, takes in a checkpoint beside its body,
roughly.
"""
PER_OBJECT = 250
"""Bytes that a queue, an exchange or a binding takes there, roughly."""
PER_DEATH = 400
"""Bytes that are written on a message when it dies, roughly."""
IN_MEMORY, PACKED = 200, 20
"""Bytes of memory that a message takes beside its body, roughly; and one that is packed."""


class Weighing:
    """What the last walk found."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._left: list[Queue] = []
        self._weight = self._memory = self._may_die = 0
        self.weight = 0
        """Bytes that a checkpoint of everything would take, roughly."""
        self.memory = 0
        """Bytes of memory that all messages take beside their bodies, roughly."""
        self.may_die = 0
        """Bytes that messages would take that may have to go to other queues, roughly."""
        self.walks = 0
        """How many walks have ended."""

    def step(self) -> int:
        """Look at some queues more; return the weight."""
        broker = self._broker
        if not self._left:
            self._left = list(broker.queues.values())
            self._weight = self._memory = self._may_die = 0
        piece = self._left[-PIECE:]
        del self._left[-PIECE:]
        for queue in piece:
            messages = queue.messages
            self._memory += IN_MEMORY * messages.loose + PACKED * messages.packed
            if queue.uid > 0:
                self._weight += PER_OBJECT * (1 + len(queue.bindings))
            if queue.logged:
                window = queue.window
                keys = len(window) if window is not None else 0
                self._weight += queue.bytes + PER_MESSAGE * (len(queue.messages) + keys)
            if (queue.logged or queue.local_writer is not None) and queue.may_pass_on:
                self._may_die += queue.bytes + PER_DEATH * len(queue.messages)
        if not self._left:
            objects = sum(1 + len(exchange.incoming) for exchange in broker.exchanges.values())
            self.weight = self._weight + PER_OBJECT * objects
            self.memory = self._memory
            self.may_die = self._may_die
            self.walks += 1
        return self.weight

    def all(self) -> int:
        """Look at all queues; return the weight."""
        self._left.clear()
        self.step()
        while self._left:
            self.step()
        return self.weight
