"""The one door out of a queue: every departure is recorded, counted and passed on here.

A message leaves a queue for one `Cause`, and the broker must do three things about it: write a
record, so that it leaves the replicas too and a restart does not bring it back; count it; and, for
some causes, publish it to where the queue's dead letters go (`dead_letters.py`), or to the queue's
alternate exchange. All of it happens in one turn, so it is
one batch of the log: whole on every member or on none. A message that leaves here and arrives there
is therefore never in both places and never in none, and nothing else is needed for that. Where one
queue is in the log of the cluster and the other in the local log, it leaves when it has arrived
(`crossing.py`): never in none, though a crash in between may leave it in both.

| cause | when | to the dead letters | else to the alternate exchange |
|---|---|---|---|
| ACCEPTED | a consumer took it | no | no |
| REJECTED | a consumer rejected it | before it leaves | before it leaves |
| EXPIRED | its time to live was over | before it leaves | no |
| OVERFLOW | it had to make room (`ring`) | before it leaves | by `evict`, after the newcomer |
| UNDELIVERABLE | a consumer said so | before it leaves | before it leaves |
| DELIVERY_LIMIT | too many deliveries failed | before it leaves | before it leaves, or aside |
| REPLACED | another took its place (`last_value.py`) | no | no |
| PURGED | an administrator emptied the queue | no | no |
| DELETED | the queue was deleted | if asked for, by `Deletion` | by `Deletion` |

The record `QueueDeleted` says of all messages that are left then that they have left.
MOVED: an administrator moved it, and `move.py` or `requeue.py` has put it on its new queue before.

What is passed on before it leaves, and finds no room or no queue there, is not lost: it stays,
unplaced (`Queue.keep`), counts as what is on the queue, goes to no consumer, and is tried again
(`Broker.tick`), in the order of the deaths. A successor does not know that it was rejected and
delivers it once more. What should have made room is not unplaced: it is as it was, and there is no
room for the newcomer. What leaves an old ring without dead letters, or is on a queue that is
deleted, has nowhere to stay: then it is dropped and counted.

`Queue.dequeue` is the short way through this door, for one message that a consumer accepted. The
log may leave such a message out altogether if it comes and goes in one turn; every other departure
is always written.

Replicas. Only the primary decides that a message leaves. A backup applies the `Dequeued` record,
whose cause it counts, and `leave` does nothing there.
Source: Qpid `Queue.cpp` (reject, purge), `QueueRegistry`; AMQP 1.0 section 3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from qpidha.broker.queues.log_writer import BOTH
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from qpidha.broker.queues.crossing import Crossings
    from qpidha.broker.queues.log_writer import LogWriter
    from qpidha.broker.queues.messages import Messages
    from qpidha.model.message import Message


UNSYNCED = (Cause.EXPIRED, Cause.PURGED)
"""Causes of departures that nobody is told of one by one. They need no sync of their own, for which
all senders would wait with each step through a long queue. What expired expires again after a power
cut; a purge has its last record synced, and so all before it.
"""


class Source(Protocol):
    """The queue that messages leave."""

    uid: int
    messages: Messages
    unplaced: dict[int, tuple[Message, Cause]]
    is_replica: bool
    syncs: bool
    log_writer: LogWriter | None

    def passes_on(self, cause: Cause) -> bool: ...

    def keep(self, message: Message, cause: Cause) -> None: ...

    def remove(self, sequences: Iterable[int], cause: int) -> None: ...

    def record_departure(self, numbers: Sequence[int], cause: int) -> int: ...


class Departures:
    """What happens when messages leave a queue for another reason than that one was accepted."""

    __slots__ = ("_crossings", "pass_on")

    def __init__(
        self, pass_on: Callable[[Any, Message, Cause], int | None], crossings: Crossings
    ) -> None:
        self.pass_on = pass_on
        """Publish a message to where the queue that it leaves passes it on to; return the sequence
        to wait for, None if it cannot be placed.
        """
        self._crossings = crossings

    def leave(self, queue: Source, messages: Iterable[Message], cause: Cause) -> int:
        """Let messages leave, as one record; return the sequence to wait for, 0 for none. Messages
        that are no longer there are passed over: one may be purged while a consumer has it. One
        named twice leaves once: a consumer may give an earlier message back during a dispatch,
        which then finds an expired one again.

        Whether the queue has come to its end is for the caller to ask, after all that belongs to
        the same decision.
        """
        present = queue.messages
        leaving = {
            message.sequence: message
            for message in messages
            if present.get(message.sequence) is message
        }
        if queue.is_replica or not leaving:
            return 0
        if not queue.passes_on(cause):
            return self._record(queue, list(leaving), cause, syncs=cause not in UNSYNCED)
        passed_on = self._pass_on(queue, leaving, cause)
        return max(passed_on, self._record(queue, list(leaving), cause)) if leaving else passed_on

    def record(self, queue: Source, messages: Iterable[Message], cause: Cause) -> int:
        """Let messages leave that are elsewhere already, as one record; return the sequence to wait
        for. Those that are no longer there are passed over.
        """
        present = queue.messages
        leaving = [one.sequence for one in messages if present.get(one.sequence) is one]
        return self._record(queue, leaving, cause) if leaving and not queue.is_replica else 0

    def leave_packed(self, queue: Source, sequences: list[int], cause: Cause) -> int:
        """Let messages leave that are packed, as one record; return the sequence to wait for."""
        if queue.passes_on(cause):
            return self.leave(queue, [queue.messages[sequence] for sequence in sequences], cause)
        if queue.is_replica:
            return 0
        return self._record(queue, sequences, cause, syncs=cause not in UNSYNCED)

    @staticmethod
    def _record(queue: Source, sequences: list[int], cause: Cause, *, syncs: bool = True) -> int:
        queue.remove(sequences, cause)
        log_writer = queue.log_writer
        if log_writer is None:
            return queue.record_departure(sequences, cause)
        if syncs and queue.syncs:
            log_writer.must_sync = True
        return log_writer.dequeue_many(queue.uid, sequences, cause)

    def _pass_on(self, queue: Any, leaving: dict[int, Message], cause: Cause) -> int:
        """Pass messages on, and take those out of `leaving` that have to stay, or to leave later;
        return the sequence to wait for.
        """
        passed_on = 0
        for sequence, message in list(leaving.items()):
            # Behind those that wait for a place, so that all arrive in the order of their deaths.
            # What has to make room comes before, as a newcomer waits for that.
            is_last = bool(queue.unplaced) and sequence not in queue.unplaced
            waits = is_last and cause is not Cause.OVERFLOW
            placed = None if waits else self.pass_on(queue, message, cause)
            if placed is None:
                del leaving[sequence]
                queue.keep(message, cause)
            else:
                passed_on = max(passed_on, placed)
                if placed > BOTH:
                    del leaving[sequence]
                    self._crossings.add(queue, [message], cause)
        return passed_on
