"""Recall: a queue is to remember the keys of messages that were there before (`dedup.py`), some a
turn.

To know a key the message has to be read, perhaps from the disk, and a queue may have a million of
them. So who decides about the queue walks through it (`walk.py`) and records the keys that it
finds; other brokers read nothing. What comes meanwhile is remembered when it comes. What leaves
before the walk has come to it is not remembered, and after a failover in the middle neither is the
rest, on any broker.

Rests while nothing can be recorded: nothing comes to the queue then, either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.messages import Segment
from qpidha.broker.queues.walk import Walk
from qpidha.model.records import DedupRemembered

if TYPE_CHECKING:
    from qpidha.broker.queues.dedup import Window
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message

READ_A_TURN = 1000
"""Messages that are read in one turn; their keys are one record."""
BYTES_A_TURN = 2 << 20
"""Of how many bytes, roughly."""
WEIGHT = 5
"""To read a message takes as long as to pass over so many."""


class Recall(Walk):
    """A queue whose window begins with what is there."""

    __slots__ = ("_spare", "_window")

    def __init__(self, queue: Queue, window: Window) -> None:
        super().__init__(queue)
        self._window = window
        self._spare = len(queue.messages) - window.size + queue.dequeued
        """The first messages, more than the window takes, are passed over, and stay packed; those
        that have left count among them.
        """

    def step(self, most: int) -> int:
        """Look at up to `most` messages, or fewer if they have to be read."""
        queue = self.queue
        if queue.deleted or queue.window is not self._window:
            self.end()
            return 0
        if queue.log_writer is not None and not queue.may_record:
            self.is_resting = True
            return 0
        found: list[Message] = []
        looked = size = 0
        passing = self._spare - queue.dequeued
        while looked < most and len(found) < READ_A_TURN and size < BYTES_A_TURN:
            part = queue.part_after(self._place, self._last, most=most - looked)
            if not part:
                self.end()
                break
            if isinstance(part, Segment):
                if looked + len(part) <= passing:
                    looked += len(part)
                    self._place = part.sequences[-1]
                    continue
                part = [queue.messages[sequence] for sequence in part.sequences]
            for message in part:
                looked += 1
                self._place = message.sequence
                if looked > passing:
                    found.append(message)
                    size += message.size
                if len(found) >= READ_A_TURN or size >= BYTES_A_TURN:
                    break
        self._spare -= looked - len(found)
        if found:
            self.sequence = max(self.sequence, self.take(found))
        return max(looked, len(found) * WEIGHT)

    def take(self, found: list[Message]) -> int:
        """Remember the keys of these messages, and record that."""
        queue, window = self.queue, self._window
        keys, sequences = [], []
        for message in found:
            key = window.key(message.body())
            if key:
                keys.append(key)
                sequences.append(message.sequence)
        window.restore(keys, sequences)
        self.count += len(keys)
        if not keys:
            return 0
        if queue.log_writer is None:
            local_writer = queue.local_writer
            return 0 if local_writer is None else local_writer.remember(queue, keys, sequences)
        return queue.log_writer.append(DedupRemembered(queue.uid, keys, sequences))
