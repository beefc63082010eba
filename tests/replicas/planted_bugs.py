"""Planted bugs of queue replication: each breaks one of its rules, and the simulation finds it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from qpidha.broker.queues.queue import Queue
from qpidha.replicas.replica import Replica, Replicas
from qpidha.replicas.replication import QueueReplication
from qpidha.replicas.source import Stream
from qpidha.store.local_log import LocalLog
from tests.sim.planted_bugs import replaced


def stream_uncommitted() -> AbstractContextManager[None]:
    """Send messages before they are committed."""
    return replaced((Stream, "_limit", lambda self, committed: self.queue.ordering.last))


def tell_uncommitted_departures() -> AbstractContextManager[None]:
    """Tell of departures before they are committed."""
    end_turn = Stream.end_turn
    return replaced((Stream, "end_turn", lambda self, committed: end_turn(self, 1 << 60)))


def forget_what_left_unsent() -> AbstractContextManager[None]:
    """Take a message for gone whose departure is not committed."""
    left = Stream.left

    def leaving(self: Any, message: Any) -> None:
        if message.sequence <= self.cursor:
            left(self, message)

    return replaced((Stream, "left", leaving))


def walk_at_once() -> AbstractContextManager[None]:
    """Begin to walk before it is committed what has left."""
    begin = Stream.__init__

    def beginning(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        self._barrier = 0

    return replaced((Stream, "__init__", beginning))


def resume_at_the_position() -> AbstractContextManager[None]:
    """Go on at the position of the replica, as if nothing from before could differ."""
    hold = Stream.hold

    def holding(self: Any, held: Any) -> None:
        hold(self, held)
        if self._has_all_held:
            self.cursor, self._held_at = self._position, len(self._held)

    return replaced((Stream, "hold", holding))


def departures_first() -> AbstractContextManager[None]:
    """Tell what left before what came in the same turns."""

    def going_on(self: Any, part: Any, limit: int) -> None:
        while self._marks and not part.is_full:
            self._tell(part)
        while self.cursor < limit and not part.is_full:
            self._advance(part, limit)

    return replaced((Stream, "_go_on", going_on))


def trust_any_history() -> AbstractContextManager[None]:
    """Take every position for one of this log."""
    return replaced((QueueReplication, "end_of_lineage", lambda self, queue, lineage: 1 << 62))


def confirm_early() -> AbstractContextManager[None]:
    """Confirm what is not committed at the replica."""

    def at_once(self: Any, sequence: int, waiter: Any, item: Any) -> None:
        waiter.on_committed(item)

    return replaced((QueueReplication, "when_committed", at_once))


def forget_the_position() -> AbstractContextManager[None]:
    """Do not record how far a replica has come."""
    apply = Replica._apply

    def applying(self: Any, changes: Any) -> bool:
        changes.position = self.record.position or changes.position
        return apply(self, changes)

    return replaced((Replica, "_apply", applying))


def let_clients_in() -> AbstractContextManager[None]:
    """Let a replica decide, and clients send to it."""
    begin = Queue.begin_copying

    def beginning(self: Any) -> None:
        begin(self)
        self.is_copy = self.is_replica = False
        self.set_fast_path_limit()

    return replaced((Queue, "begin_copying", beginning))


def keep_what_was_there() -> AbstractContextManager[None]:
    """Take the messages of another queue for those of the source."""
    return replaced((Queue, "begin_anew", lambda self: None))


def stop_after_failover() -> AbstractContextManager[None]:
    """Run no replica that another broker has begun."""
    turn = Replicas.turn

    def turning(self: Any) -> bool:
        node = self._node.node
        if node.log.epoch > 1:
            return False
        return turn(self)

    return replaced((Replicas, "turn", turning))


def stream_unsynced() -> AbstractContextManager[None]:
    """Stream what a member has for itself before it is on its disk."""

    def noting(self: Any, committed: int) -> None:
        self._synced = self.queue.last_number

    return replaced((Stream, "_note_given", noting))


def leave_unsynced() -> AbstractContextManager[None]:
    """Sync no transient messages that a replica is told of: their numbers are given again."""
    enqueue = LocalLog.enqueue

    def enqueuing(self: Any, queue: Any, *message: Any) -> int:
        watch, queue.watch = queue.watch, None
        try:
            return enqueue(self, queue, *message)
        finally:
            queue.watch = watch

    return replaced((LocalLog, "enqueue", enqueuing), (LocalLog, "watched", lambda self, queue: 0))


LOCAL_BUGS: dict[str, tuple[Callable[[], AbstractContextManager[None]], int]] = {
    "stream-unsynced": (stream_unsynced, 2),
    "leave-unsynced": (leave_unsynced, 28),
}
"""The same of bugs with a queue that a member of a cluster has for itself."""
BUGS: dict[str, tuple[Callable[[], AbstractContextManager[None]], int]] = {
    "stream-uncommitted": (stream_uncommitted, 1),
    "tell-uncommitted-departures": (tell_uncommitted_departures, 3),
    "forget-what-left-unsent": (forget_what_left_unsent, 10),
    "walk-at-once": (walk_at_once, 4),
    "resume-at-the-position": (resume_at_the_position, 2),
    "departures-first": (departures_first, 4),
    "trust-any-history": (trust_any_history, 25),
    "confirm-early": (confirm_early, 34),
    "forget-the-position": (forget_the_position, 0),
    "let-clients-in": (let_clients_in, 25),
    "keep-what-was-there": (keep_what_was_there, 25),
    "stop-after-failover": (stop_after_failover, 4),
}
"""Name -> the bug, and a seed that finds it."""
