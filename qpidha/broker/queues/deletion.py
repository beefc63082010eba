"""Deletion: a queue ends, and what is on it goes to its alternate exchange if it has one, or to its
dead letters if it is to.

A short queue ends in the turn that deletes it, unless many do, and one record says of all messages
that they have left. To pass on a long one takes many turns (`walk.py`), and so it does where the
keys of the messages take long to be compared with the bindings of the alternate exchange. Each step
is a batch of its own: so many messages come to where they go and leave here. The last one is the
record of the end.

What died on a queue and has no place among its dead letters yet, perhaps for want of a turn, is
tried once more, and goes with the queue if it has none now.

What is passed on is written once more, and the room of what has left comes back only with a
checkpoint. So a deletion rests before the first message that cannot be taken for want of disk, and
none is begun then that somebody asks for. Whoever purges a queue that rests gives up what is there.

Meanwhile the queue is there for nobody, but its name is taken: on the other brokers it is a queue
like any other, with what it still has, and after a failover it is one again. Nothing is lost then.
A queue that ended because its users had left ends on the new primary for the same reason; whoever
asked for a deletion has no answer, and asks again.

What has gone to a queue in the other log is waited for (`crossing.py`): until then the queue stays.

Source: Qpid `Queue.cpp` (destroyed, abandoned).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.log_writer import BOTH
from qpidha.broker.queues.walk import Walk
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message

PASSED_ON_A_TURN = 1000
"""Messages that are passed on in one turn: each is routed, and written into the log."""
BYTES_A_TURN = 8 << 20
"""Of how many bytes, roughly."""
WEIGHT = 5
"""To pass on a message, or to take a queue away, takes as long as to drop so many messages."""


def goes_on(queue: Queue) -> bool:
    """Whether what is on a queue when it is deleted goes anywhere."""
    if queue.is_copy:
        return False  # Its source passes on what is there.
    target = queue.spec.dead_letters
    return bool(queue.options.alternate) or (target is not None and target.on_delete)


def passes_on(queue: Queue) -> bool:
    """Whether there is something on a queue that has to be passed on before it ends."""
    return bool(queue.unplaced) or (bool(queue.messages) and goes_on(queue))


def is_long(queue: Queue) -> bool:
    """Whether it takes more than one turn to pass on what is on a queue."""
    if goes_on(queue):
        return len(queue.messages) >= PASSED_ON_A_TURN or queue.bytes >= BYTES_A_TURN
    size = sum(message.size for message, _ in queue.unplaced.values())
    return len(queue.unplaced) >= PASSED_ON_A_TURN or size >= BYTES_A_TURN


def some(messages: Iterable[Message], most: int) -> tuple[list[Message], int]:
    """Return the first messages, up to `most` and as many as may be passed on in one turn, and how
    many bytes they have.
    """
    found: list[Message] = []
    size = 0
    for message in messages:
        found.append(message)
        size += message.size
        if len(found) >= most or size >= BYTES_A_TURN:
            break
    return found, size


class Deletion(Walk):
    """A queue on its way to its end."""

    __slots__ = ("_finish", "_pass_on", "is_short")

    def __init__(
        self,
        queue: Queue,
        pass_on: Callable[[Queue, Message], int | None],
        finish: Callable[[Queue], int],
    ) -> None:
        super().__init__(queue)
        self._pass_on = pass_on
        """Gives a message to the alternate exchange; returns the sequence to wait for, None if that
        is to be tried in another turn, or when there is room again: `is_resting` then.
        """
        self._finish = finish
        """Takes the queue away; returns the sequence to wait for."""
        self.is_short = not is_long(queue)
        """Whether it is over in one step, as far as is known."""

    def step(self, most: int) -> int:
        """Pass on some messages; after the last one the queue is gone."""
        most = min(most, PASSED_ON_A_TURN)
        found, size = some(self._following(), most)
        passed = self._passed_on(found)
        is_last = len(passed) == len(found) < most and size < BYTES_A_TURN
        crossing = self.queue.crossing
        if is_last and not crossing:
            self.finish()
        elif passed:
            # What went to the alternate exchange is before this in the same batch, so no broker has
            # the one without the other.
            leaving = [message for message in passed if message.sequence not in crossing]
            self.sequence = max(self.sequence, self.take(leaving))
            self._place = passed[-1].sequence
        if crossing and not self.is_resting:
            is_last = False
            self.sequence = max(self.sequence, *crossing.values())
        count, size = len(passed) + is_last, sum(message.size for message in passed)
        return max(count * WEIGHT, size * PASSED_ON_A_TURN * WEIGHT // BYTES_A_TURN)

    def _following(self) -> Iterable[Message]:
        """Return what is still to be passed on: all messages, or those that died and have no place
        yet. These leave as they are passed on.
        """
        queue = self.queue
        if goes_on(queue):
            following = queue.ordering.after(self._place)
            return (each for each in following if each.sequence not in queue.crossing)
        return (message for message, _ in queue.unplaced.values())

    def finish(self) -> None:
        """Take the queue away, with what is still there."""
        self.is_resting = False
        self.sequence = max(self.sequence, self._finish(self.queue))
        self.end()

    def abandon(self) -> None:
        """Another broker decides from now on, and to it this is a queue like any other; so is one
        that only this broker keeps. One that is in memory only ends here.
        """
        if self.queue.uid > 0 or self.queue.local_writer is not None:
            self.queue.revive()
        else:
            self._finish(self.queue)

    def take(self, found: list[Message]) -> int:
        """Let messages leave that were passed on."""
        return self.queue.drop(found, Cause.DELETED)

    def _passed_on(self, found: list[Message]) -> list[Message]:
        """Pass on these messages, up to the first one that has to wait; return them."""
        passed: list[Message] = []
        for message in found:
            sequence = self._pass_on(self.queue, message)
            if sequence is None:
                break
            self.sequence = max(self.sequence, sequence)
            passed.append(message)
            # The end of a queue of level `configuration` is recorded in the other log than its
            # messages, so it waits for them wherever they go.
            queue = self.queue
            is_known = queue.uid > 0 and queue.log_writer is None and queue.is_recorded
            if sequence > BOTH or (sequence and is_known):
                self.sequence = queue.cross([message], Cause.DELETED)
        return passed
