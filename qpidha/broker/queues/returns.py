"""Returns: messages that consumers had when they went, on their way back to their places.

A connection may have a million of them, and each is recorded as a failed delivery: to give all back
in the turn in which it ends would keep everybody waiting for seconds. So a turn gives some back, of
whole consumers, and nothing of a queue is handed out before it has all: what comes behind them must
not overtake them.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection

    from qpidha.broker.queues.messages import Messages
    from qpidha.model.message import Message

RETURNED_A_TURN = 20_000
"""Messages that are given back in one turn, and then those of one consumer more; 0.1 s."""


class Home(Protocol):
    """The queue of some messages."""

    messages: Messages
    deleted: bool
    is_replica: bool

    @property
    def charges_oldest(self) -> bool:
        """Whether, of what a consumer had that is lost, only the oldest counts as failed."""

    def release(self, message: Message) -> int:
        """Make a message available again."""

    def requeue(self, message: Message, failed: bool) -> int:
        """The same after a delivery that may have failed."""

    def wake(self) -> None:
        """Dispatch at the end of the turn."""


class Returns:
    """What is to be given back, in the order in which the consumers went."""

    __slots__ = ("_left", "_of", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[tuple[Home, Collection[Message], bool | None]] = deque()
        self._of: Counter[Home] = Counter()
        """Queue -> consumers of it whose messages are here."""
        self._left = RETURNED_A_TURN

    def __bool__(self) -> bool:
        """Whether there is something to give back."""
        return bool(self._waiting)

    def holds(self, queue: Home) -> bool:
        """Whether some of the queue's messages are still to be given back."""
        return queue in self._of

    def add(self, queue: Home, messages: Collection[Message], failed: bool | None) -> None:
        """Give back what a consumer had, as deliveries that `failed` or did not; None is as if it
        had never been delivered.
        """
        if not messages:
            return
        self._waiting.append((queue, messages, failed))
        self._of[queue] += 1
        if len(self._waiting) == 1:
            self._go_on()

    def turn(self) -> None:
        """Give some back, and begin a turn; once, before queues are dispatched."""
        self._go_on()
        self._left = RETURNED_A_TURN

    def finish(self) -> None:
        """Give all back now, and what is still to come in this turn: it is the last one."""
        self._left = sys.maxsize
        self._go_on()

    def forget_replicas(self) -> None:
        """Another broker decides from now on, and for that one nobody has them; local queues stay
        our own.
        """
        self._waiting = deque(entry for entry in self._waiting if not entry[0].is_replica)
        self._of = Counter(queue for queue, _, _ in self._waiting)

    def _go_on(self) -> None:
        while self._waiting and self._left > 0:
            queue, messages, failed = self._waiting.popleft()
            self._of[queue] -= 1
            if not self._of[queue]:
                del self._of[queue]
            self._left -= len(messages)
            for message in messages:
                if queue.messages.get(message.sequence) is not message:
                    continue  # It was purged, or the queue deleted.
                if failed is None:
                    queue.release(message)
                else:
                    queue.requeue(message, failed)
                    failed = failed and not queue.charges_oldest
            if not queue.deleted:
                queue.wake()
