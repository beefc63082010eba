"""Backlog: the messages of a queue, in order, and how many of their bytes are in memory.

`order` holds the sequences of all messages, oldest first, and perhaps some of messages that have left;
`_head` is where the first available one may be found. A long backlog need not be in memory: `page_out`
gives messages a `Body` to be read from in place of their bytes, `cold` says how many bytes that are, and
whoever has a place to read them from learns from the broker's `heavy` which queues have too many.
Knows nothing of consumers, limits or records. Source: Qpid `MessageDeque.cpp`, `PagedQueue.cpp`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import repeat
from typing import TYPE_CHECKING

from qpidha.broker.limits import UNLIMITED
from qpidha.words.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qpidha.broker.consumer import Consumer
    from qpidha.words.message import Body

SLACK = 1000
"""Sequences of departed messages that `order` may hold beyond the number of messages present, before it is rebuilt."""


class Backlog:
    """Messages in order."""

    __slots__ = ("_excluded", "_head", "_unsorted", "_warm_end", "acquired", "bytes", "cold", "dequeued", "logged", "messages", "order")

    def __init__(self, logged: bool, memory: int) -> None:
        self.logged = logged
        """Whether the log has these messages; their sequences are a queue's own otherwise."""
        self.messages: dict[int, Message] = {}
        self.order: list[int] = []
        self.bytes = 0
        self.cold = 0
        """Bytes of messages that are not in memory; part of `bytes`."""
        self.acquired = 0  # how many consumers have at present
        self.dequeued = 0  # in total
        self._warm_end = memory if logged else UNLIMITED
        """With more bytes than this, too many of them are in memory: `cold` and what may be."""
        self._head = 0
        self._unsorted = False
        self._excluded: dict[Consumer, set[int]] = {}
        """Messages that are not for a consumer, though it takes others."""

    def begin_log(self, memory: int) -> None:
        """The log has messages of this queue after all. Those that were here have numbers that it gives to others, and go."""
        self._clear()
        self.logged = True
        self._warm_end = memory

    def append_run(self, sequences: list[int], payloads: list[bytes], expiries: list[int]) -> None:
        """Put messages at the end; there is an expiry for each, or none at all. Thousands at once cost half of one by one."""
        columns = (sequences, payloads, expiries) if expiries else (sequences, payloads)
        self.order += sequences
        self.messages.update(zip(sequences, map(Message, *columns), strict=True))
        self.bytes += sum(map(len, payloads))

    def remove(self, sequences: Iterable[int]) -> None:
        """Forget messages that left; unknown ones never came here and are no loss."""
        gone = [message for message in map(self.messages.pop, sequences, repeat(None)) if message is not None]
        self.bytes -= sum([message.size for message in gone])
        self.dequeued += len(gone)
        if self.acquired:
            self.acquired -= sum([message.acquired for message in gone])
        if self.cold:
            for message in gone:
                self._forget_cold(message)
        self._tidy()

    def restate(self, sequence: int, delivery_count: int, annotations: bytes) -> None:
        """Say what is now beside the payload of a message."""
        message = self.messages.get(sequence)
        if message is not None:
            message.delivery_count = delivery_count
            message.annotations = annotations

    def page_out(self, first: int, last: int, body: Body) -> int:
        """Let messages `first` to `last` be read from `body` and keep their bytes no more; return how many bytes those were."""
        self._tidy()
        order = self.order
        moved = 0
        for index in range(bisect_left(order, first), bisect_right(order, last)):
            message = self.messages.get(order[index])
            if message is not None and isinstance(message.payload, bytes):
                message.payload = body
                moved += message.size
        self.cold += moved
        self._warm_end += moved
        return moved

    def ordered(self) -> list[int]:
        """Return the order, sorted; it may name messages that have left."""
        self._tidy()
        return self.order

    def messages_after(self, cursor: int, max_bytes: int) -> list[Message]:
        """Return the messages after sequence `cursor`, acquired or not: as many as fit, but one at least if there is one."""
        self._tidy()
        found: list[Message] = []
        for index in range(bisect_right(self.order, cursor), len(self.order)):
            message = self.messages.get(self.order[index])
            if message is not None:
                max_bytes -= message.size
                if found and max_bytes < 0:
                    break
                found.append(message)
        return found

    def oldest(self, count: int, size: int) -> list[Message]:
        """Return the oldest messages that nobody has: `count` or more, of `size` bytes or more; none if there are not so many."""
        self._tidy()
        self._advance()
        found: list[Message] = []
        for index in range(self._head, len(self.order)):
            message = self.messages.get(self.order[index])
            if message is not None and not message.acquired:
                found.append(message)
                count -= 1
                size -= message.size
                if count <= 0 and size <= 0:
                    return found
        return []

    def available(self) -> list[Message]:
        """Return the messages that nobody has, oldest first."""
        return [message for message in map(self.messages.get, self.ordered()) if message is not None and not message.acquired]

    def unsafe(self, safe: int) -> int:
        """Count the messages that came after sequence `safe`, and so are not on every broker that is to have them."""
        if not self.logged:
            return 0
        order = self.ordered()
        return sum(order[index] in self.messages for index in range(bisect_right(order, safe), len(order)))

    def _forget_cold(self, message: Message) -> None:
        """A message left whose bytes may not have been in memory."""
        if not isinstance(message.payload, bytes):
            self.cold -= message.size
            self._warm_end -= message.size

    def _clear(self) -> None:
        """Forget everything."""
        self.messages.clear()
        self.order.clear()
        self._excluded.clear()
        self._warm_end -= self.cold
        self._head = self.bytes = self.cold = self.acquired = 0

    def _rewind(self, sequence: int) -> None:
        """Move the head back to a message that is available again."""
        index = bisect_left(self.order, sequence, 0, self._head)
        if index < self._head:
            self._head = index

    def _advance(self) -> None:
        """Move the head on to the first available message."""
        while self._head < len(self.order):
            message = self.messages.get(self.order[self._head])
            if message is not None and not message.acquired:
                break
            self._head += 1

    def _tidy(self) -> None:
        """Put `order` right: sorted after insertions out of turn, and not much longer than the queue."""
        if self._unsorted:
            self._unsorted = False
            self.order.sort()
            self._head = 0
        if len(self.order) > 2 * len(self.messages) + SLACK:
            following = self.order[self._head] if self._head < len(self.order) else None
            self.order[:] = [sequence for sequence in self.order if sequence in self.messages]
            self._head = len(self.order) if following is None else bisect_left(self.order, following)
            for consumer, sequences in self._excluded.items():
                self._excluded[consumer] = {sequence for sequence in sequences if sequence in self.messages}
