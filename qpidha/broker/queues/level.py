"""Into the log, and out of it: what is done to the messages of a queue when its replicate level
changes (`broker/levels.py`), some a turn.

A queue that is not replicated numbers its messages itself, and these numbers stay when it becomes
so: whatever holds a message goes on with it, and the order of the queue is what it was. For that

- no record gets a number any more that a message of the queue has, and all that have such numbers
  are committed before the first message of the queue is recorded. So a number of the queue is never
  taken for a place in the log that somebody waits for.
- the record that begins it says up to where the numbers are the queue's own. They are no places in
  the log, so what has them stays in memory until a checkpoint has it under these numbers.
- what comes is recorded from the beginning, and what was here in slices, each when the one before
  is committed. What leaves is recorded as well; where the others do not have it yet that says
  nothing to them, and it is not in a later slice.

A durable queue that leaves the log is in the local log before others forget it, or a crash of this
broker would take what they had: what comes, changes and leaves is recorded in both from the
beginning, and what was here in slices, each when the one before is synced.

Who was here before the end of a way into the log has the messages that were recorded, on every
broker the same: the primary forgets the others when another broker decides in the middle of it, for
so they would have been gone without this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.limits import UNLIMITED
from qpidha.broker.queues.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.broker.queues.log_writer import LocalWriter, LogWriter
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message

RECORDED_A_TURN = 2000
"""Messages that are recorded, or looked at, in one turn."""
BYTES_A_TURN = 2 << 20
"""Of how many bytes, roughly."""
SPARE = 10_000
"""Numbers for messages that come before the first one is recorded."""


class LevelWalk(Walk):
    """A queue on its way to another level."""

    __slots__ = ("_finish", "_finished")

    def __init__(self, queue: Queue, finish: Callable[[], int]) -> None:
        super().__init__(queue)
        self._finish = finish
        """Records that the level has changed; returns the sequence to wait for."""
        self._finished = False

    def step(self, most: int) -> int:
        """Look at some messages. It is over when the record of the end is committed."""
        if self.queue.deleted or self._finished:
            self.end()
            return 0
        if not self.may_begin():
            return 0
        found: list[Message] = []
        size, most = 0, min(most, RECORDED_A_TURN)
        for message in self.queue.ordering.after(self._place):
            if message.sequence > self._last or len(found) >= most or size >= BYTES_A_TURN:
                break
            found.append(message)
            size += message.size
        if found:
            self._place = found[-1].sequence
            self.sequence = max(self.sequence, self.take(found))
        if len(found) < most and size < BYTES_A_TURN:
            self.come_to_end()
        return len(found)

    def may_begin(self) -> bool:
        """Whether messages may be looked at in this turn."""
        return True

    def come_to_end(self) -> None:
        """All messages were looked at, and what was recorded of them before is committed."""
        # It may have waited for a place in the other log, above all of this one.
        self.sequence = self._finish()
        self._finished = True

    def abandon(self) -> None:
        """Another broker decides from now on."""
        self.end()


class IntoLog(LevelWalk):
    """A queue whose messages are given to the log."""

    __slots__ = ("_begin", "_log_writer")

    def __init__(
        self,
        queue: Queue,
        log_writer: LogWriter,
        begin: Callable[[int], int],
        finish: Callable[[], int],
    ) -> None:
        super().__init__(queue, finish)
        self._log_writer = log_writer
        self._begin = begin
        """Records that messages come, with the last number that is the queue's own; returns the
        sequence to wait for.
        """
        if queue.logged:  # A part is recorded already.
            self._place, self._last = queue.unrecorded
        else:
            self._pass_over()

    def _pass_over(self) -> None:
        """Have the log leave out the numbers of the queue."""
        queue = self.queue
        self._last = self.sequence = self._log_writer.pass_over(queue.last_number + SPARE)
        if queue.local_writer is not None:
            queue.is_rising = True
            self.sequence = queue.local_writer.rises(queue, self._last)

    def may_begin(self) -> bool:
        """Begin to record what comes, in the first turn in which no number is doubtful."""
        queue = self.queue
        if not queue.may_record:
            self.is_resting = True
            return False
        if not queue.logged:
            if queue.last_number > self._last:
                self._pass_over()  # More have come than numbers were left out.
                return False
            self.sequence = self._begin(self._last)
        return True

    def take(self, found: list[Message]) -> int:
        """Record messages, with what is beside them."""
        queue, log_writer = self.queue, self._log_writer
        if queue.syncs:
            log_writer.must_sync = True
        sequence = log_writer.enqueue_numbered(
            queue.uid,
            [message.sequence for message in found],
            [message.body() for message in found],
            [message.expires for message in found],
        )
        for message in found:
            if queue.window is not None:
                # As the others do when they apply this. Perhaps it came before the policy that has
                # it remembered.
                queue.window.remember(queue.window.key(message.body()), message.sequence)
            if message.delivery_count or message.annotations or message.sequence in queue.delayed:
                sequence = log_writer.append(queue.state_of(message))
        queue.unrecorded = (self._place, self._last)
        queue.recorded = self._place
        self.count += len(found)
        return sequence

    def come_to_end(self) -> None:
        """All messages are in the log."""
        queue = self.queue
        queue.recorded, queue.unrecorded = queue.own_numbers, (0, 0)
        super().come_to_end()

    def abandon(self) -> None:
        """Let go of what the log did not get: the others have the rest."""
        self.queue.stop_rising()
        super().abandon()

    def end(self) -> None:
        """All that is in the log is committed: nothing is this broker's only any more."""
        queue = self.queue
        queue.is_rising = False
        if self._finished and queue.local_writer is not None and not queue.deleted:
            queue.local_writer.let_go(queue)
            queue.log_writer = self._log_writer
        super().end()


class OutOfLog(LevelWalk):
    """A queue whose messages are taken out of the log: the bytes that are on disk come back,
    and none goes there any more. What is durable is in the local log, and on this broker's disk,
    before the others are told to forget it.
    """

    __slots__ = ("_local", "_waits")

    def __init__(
        self, queue: Queue, finish: Callable[[], int], local: LocalWriter | None = None
    ) -> None:
        super().__init__(queue, finish)
        queue.stay_in_memory(True, UNLIMITED)
        self._local = local
        """The local log, if the queue is durable and this broker has one."""
        self._waits = False
        """Whether what was recorded last may not be on the disk yet."""
        if local is not None:
            self.sequence = queue.begin_leaving(local)

    def may_begin(self) -> bool:
        """Rest while there is no room to record something."""
        self.is_resting = self._local is not None and not self.queue.may_record
        return not self.is_resting

    def take(self, found: list[Message]) -> int:
        """Have the bytes in memory, and in the local log."""
        self.queue.read_back(found)
        if self._local is None:
            return 0
        self._waits = True
        return self._local.copy(self.queue, found)

    def come_to_end(self) -> None:
        """All messages were looked at; those of the last slice wait for the disk."""
        if self._waits:
            self._waits = False
        else:
            super().come_to_end()

    def abandon(self) -> None:
        """Let bytes be on disk, and the messages in the log."""
        if not self._finished:
            self.queue.stop_leaving(None)
        self.queue.stay_in_memory(False, self.queue.spec.limits.memory)
        super().abandon()


class OutOfSight(LevelWalk):
    """A queue of which the others know nothing but that it is there, and are to forget that. What
    this broker needs to have it for itself is on its disk before.
    """

    __slots__ = ("_record",)

    def __init__(self, queue: Queue, record: Callable[[], int], finish: Callable[[], int]) -> None:
        super().__init__(queue, finish)
        self._record = record
        """Records what is not recorded yet; returns the place to wait for, 0 if there is none."""

    def step(self, most: int) -> int:
        """Record it, or have the others forget when that is done."""
        if self.queue.deleted or self._finished:
            self.end()
            return 0
        place = self._record()
        if place:
            self.sequence = place
        else:
            self.come_to_end()
        return 0

    def take(self, found: list[Message]) -> int:
        """No message is looked at."""
        return 0
