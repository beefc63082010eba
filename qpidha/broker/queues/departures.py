"""The one door out of a queue: every departure is recorded, counted and passed on here.

A message leaves a queue for one `Cause`, and the broker must do three things about it: write a
record, so that it leaves the replicas too and a restart does not bring it back; count it; and, for
some causes, publish it to the queue's alternate exchange. All of it happens in one turn, so it is
one batch of the log: whole on every member or on none. A message that leaves here and arrives there
is therefore never in both places and never in none, and nothing else is needed for that.

| cause | when | passed on |
|---|---|---|
| ACCEPTED | a consumer took it | no |
| REJECTED | a consumer rejected it | yes, before it leaves; it stays while that cannot be |
| OVERFLOW | it had to make room (`ring`) | yes, by `Broker.evict`, after the newcomer |
| EXPIRED | its time to live was over | no |
| PURGED | an administrator emptied the queue | no |
| DELETED | the queue was deleted | yes; the `QueueDeleted` record says it for all that are left |

DELIVERY_LIMIT, REPLACED and MOVED are numbers of features to come. Dead letters will be passed on
here: a target takes the place of the alternate exchange.

A rejected message that the alternate exchange has no room or no queue for is not lost: it stays,
unplaced (`Queue.keep`), counts as what is on the queue, goes to no consumer, and is tried again
(`Broker.tick`). A successor does not know that it was rejected and delivers it once more. What has
to make room, or is on a queue that is deleted, has nowhere to stay: then it is dropped and counted.

`Queue.dequeue` is the short way through this door, for one message that a consumer accepted. The
log may leave such a message out altogether if it comes and goes in one turn; every other departure
is always written.

Replicas. Only the primary decides that a message leaves. A backup applies the `Dequeued` record,
whose cause it counts, and `leave` does nothing there.
Source: Qpid `Queue.cpp` (reject, purge), `QueueRegistry`; AMQP 1.0 section 3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from qpidha.broker.queues.log_writer import LogWriter
    from qpidha.model.message import Message


class Source(Protocol):
    """The queue that messages leave."""

    uid: int
    messages: dict[int, Message]
    is_replica: bool
    syncs: bool
    log_writer: LogWriter | None

    def keep(self, message: Message) -> None: ...

    def remove(self, sequences: Iterable[int], cause: int) -> None: ...


class Departures:
    """What happens when messages leave a queue for another reason than that one was accepted."""

    __slots__ = ("pass_on",)

    def __init__(self, pass_on: Callable[[Any, Message], int | None]) -> None:
        self.pass_on = pass_on
        """Publish a message to the alternate exchange of the queue that it leaves, if there is one;
        return the sequence to wait for, None if it cannot be placed.
        """

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
        passed_on = 0
        if cause is Cause.REJECTED:
            for message in list(leaving.values()):
                placed = self.pass_on(queue, message)
                if placed is None:
                    del leaving[message.sequence]
                    queue.keep(message)
                else:
                    passed_on = max(passed_on, placed)
            if not leaving:
                return 0
        sequences = list(leaving)
        queue.remove(sequences, cause)
        log_writer = queue.log_writer
        if log_writer is None:
            return passed_on
        if queue.syncs:
            log_writer.must_sync = True
        return max(passed_on, log_writer.dequeue_many(queue.uid, sequences, cause))
