"""Deletion: a queue ends, and what is on it goes to its alternate exchange if it has one.

A short queue ends in the turn that deletes it, and one record says of all messages that they have
left. To pass on a long one takes many turns (`walk.py`), and so it does where the keys of the
messages take long to be compared with the bindings of the alternate exchange. Each step is a batch
of its own: so many messages come to where they go and leave here. The last one is the record of the
end.

What is passed on is written once more, and the room of what has left comes back only with a
checkpoint. So a long deletion rests while no message can be taken for want of disk, and none is
begun that somebody asks for.

Meanwhile the queue is there for nobody, but its name is taken: on the other brokers it is a queue
like any other, with what it still has, and after a failover it is one again. Nothing is lost then.
A queue that ended because its users had left ends on the new primary for the same reason; whoever
asked for a deletion has no answer, and asks again.

Source: Qpid `Queue.cpp` (destroyed, abandoned).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qpidha.broker.queues.walk import Walk
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Callable

    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message

PASSED_ON_A_TURN = 1000
"""Messages that are passed on in one turn: each is routed, and written into the log."""
BYTES_A_TURN = 8 << 20
"""Of how many bytes, roughly."""
WEIGHT = 5
"""To pass on a message takes as long as to drop so many."""


def is_long(queue: Queue) -> bool:
    """Whether it takes more than one turn to pass on what is on a queue."""
    return bool(queue.options.alternate) and (
        len(queue.messages) >= PASSED_ON_A_TURN or queue.bytes >= BYTES_A_TURN
    )


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
        is to be tried in another turn.
        """
        self._finish = finish
        """Takes the queue away; returns the sequence to wait for."""
        self.is_short = not is_long(queue)
        """Whether it is to be over in one step."""

    def step(self, most: int) -> int:
        """Pass on some messages; after the last one the queue is gone."""
        queue = self.queue
        found, are_last = self._next(min(most, PASSED_ON_A_TURN))
        sequences: list[int] = []
        for message in found:
            sequence = self._pass_on(queue, message)
            if sequence is None:
                break
            sequences.append(sequence)
        passed_on = found[: len(sequences)]
        is_over = are_last and len(passed_on) == len(found)
        # What went to the alternate exchange is before this in the same batch, so no broker has the
        # one without the other.
        if is_over:
            sequences.append(self._finish(queue))
        elif passed_on:
            sequences.append(self.take(passed_on))
            self._place = passed_on[-1].sequence
        self.sequence = max(self.sequence, *sequences, 0)
        if is_over:
            self.end()
        return len(passed_on) * WEIGHT

    def abandon(self) -> None:
        """Another broker decides from now on, and to it this is a queue like any other. One that it
        has not ends here.
        """
        if self.queue.uid > 0:
            self.queue.revive()
        else:
            self._finish(self.queue)

    def take(self, found: list[Message]) -> int:
        """Let messages leave that were passed on."""
        return self.queue.drop(found, Cause.DELETED)

    def _next(self, most: int) -> tuple[list[Message], bool]:
        """Return the messages to pass on now, and whether there are no others."""
        found: list[Message] = []
        size = 0
        if not self.queue.options.alternate:
            return found, True
        for message in self.queue.ordering.after(self._place):
            found.append(message)
            size += message.size
            if len(found) >= most or size >= BYTES_A_TURN:
                return found, False
        return found, True
