"""Move: an administrator takes messages from one queue to another, some a turn (`walk.py`).

- A message comes to the target and leaves its queue in one batch of the log, so it is never on both
  and never on none, whatever happens in between. Where the target is in the other log it leaves
  when it has arrived (`crossing.py`).
- Those that are available go, in their order, and as many as were asked for. A message that a
  consumer has is not taken from it, and one that is due later stays.
- What has changed of a message goes with it, such as where it died; how often it was delivered is
  forgotten, as it is on another queue now.
- Where the target has no room for the next one, or does not take it, the move ends; nothing has to
  make room for it. What is left stays, and who asked is told how many went, and why no more.
- A target that knows duplicates takes one that it had before and has no longer: else a message that
  died there and is sent back would be gone. One that it has is not there twice.

Source: Qpid `Queue.cpp` (move), `Broker.cpp` (queueMoveMessages).
"""

from __future__ import annotations

import sys
from itertools import takewhile
from typing import TYPE_CHECKING, ClassVar

from qpidha.broker.queues.deletion import BYTES_A_TURN, PASSED_ON_A_TURN, WEIGHT, some
from qpidha.broker.queues.log_writer import BOTH
from qpidha.broker.queues.queue import Room
from qpidha.broker.queues.walk import Walk
from qpidha.model.errors import ProtocolViolation, RefusedRequest
from qpidha.model.message_view import departure
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message


class Move(Walk):
    """Messages on their way from a queue to another one."""

    __slots__ = ("_left", "_target", "stopped")
    effort: ClassVar[int] = 1
    """For how many messages one counts that is moved."""

    def __init__(self, queue: Queue, target: Queue | None, most: int) -> None:
        super().__init__(queue)
        self._target = target
        self._left = most or sys.maxsize
        self.stopped = ""
        """Why it ended before its time, if so."""

    def step(self, most: int) -> int:
        """Move some messages."""
        queue = self.queue
        most = max(min(most, PASSED_ON_A_TURN) // self.effort, 1)
        following = takewhile(
            lambda message: message.sequence <= self._last, queue.ordering.after(self._place)
        )
        found, size = ([], 0) if queue.deleted else some(following, most)
        if found:
            self.sequence = max(self.sequence, self.take(found))
        is_last = len(found) < most and size < BYTES_A_TURN
        if is_last or not self._left or self.stopped:
            self.end()
        weight = max(len(found) * self.effort, size * PASSED_ON_A_TURN // BYTES_A_TURN)
        return weight * WEIGHT

    def take(self, found: list[Message]) -> int:
        """Move those that are available, up to the first one that ends it."""
        sequence = 0
        moved: list[Message] = []
        for message in found:
            if not self._left:
                break
            self._place = message.sequence
            put = None if message.acquired else self.carry(message)
            if self.stopped:
                break
            if put is None:
                continue
            sequence = max(sequence, put)
            self._left -= 1
            self.count += 1
            if put > BOTH:
                self.queue.cross([message], Cause.MOVED)
            else:
                moved.append(message)
        return max(sequence, self.queue.drop(moved, Cause.MOVED))

    def carry(self, message: Message) -> int | None:
        """Put a message where it goes; return the sequence to wait for, None if it stays."""
        payload = message.body()
        if message.annotations:
            try:
                payload = departure(payload, 0, message.annotations)
            except ProtocolViolation:
                pass  # Nobody can read it, and it goes as it is.
        assert self._target is not None
        try:
            return put(self.queue, self._target, message, payload, message.expires)
        except RefusedRequest as error:
            self.stopped = error.text
            return None


def put(source: Queue, target: Queue, message: Message, payload: bytes, expires: int) -> int:
    """Put a message of one queue, as `payload`, on another that has room for it and takes it;
    return the sequence to wait for. Raises RefusedRequest, and changes nothing then.
    """
    target.check_open()
    if target.intake is not None and not target.intake.selects(payload):
        raise RefusedRequest(
            f"Queue {target.name} does not take a message that its filter does not select",
            hint="Move those before it, and consume it.",
        )
    replaced = target.ordering.replaced_by(payload)
    target.check_room(len(payload), Room(replaced=replaced))
    sequence = target.enqueue(payload, expires, passed=message)
    return source.crossing_place(target) or sequence
