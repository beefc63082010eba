"""LogWriter: the log, as the broker writes to it.

The broker decides, the log writer gives the decision its place in the log: every verb returns the
sequence of the record it made; the decision is committed when that sequence is. Enqueue
and dequeue have verbs of their own, so that the log may batch, share and elide them without a
record object for each message. The broker knows nothing of epochs, backups or disks; a broker alone
has no log writer at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from qpidha.model.records import DedupRemembered, Requeued

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qpidha.model.message import Message
    from qpidha.model.records import Record

LOCAL = 1 << 62
"""Places in the log of this broker alone are above this. Who waits for the higher one of a place
there and one in the cluster's log waits for both: see `store/local_log.py`.
"""
BOTH = 1 << 63
"""Places above this are of what goes from one of the two logs to the other, and above all places in
either: see `crossing.py`.
"""


class LogWriter(Protocol):
    """Somewhere to put records; implemented by the log."""

    must_sync: bool
    """Set by a queue that records a message, or its departure, to survive a restart; the log
    clears it when it has seen to it.
    """

    @property
    def end(self) -> int:
        """The sequence of the last record so far."""
        ...

    def all_so_far(self) -> int:
        """Return the place to wait for with all that is recorded so far."""
        ...

    def append(self, record: Record) -> int:
        """Append any record; return its sequence."""
        ...

    def enqueue(self, queue_uid: int, payload: bytes, expires: int) -> int:
        """Record a message on one queue; return its sequence, which is the message's identity."""
        ...

    def enqueue_shared(self, queue_uids: tuple[int, ...], payload: bytes, expires: int) -> int:
        """Record one message on several queues, the payload once; return its sequence."""
        ...

    def enqueue_numbered(
        self, queue_uid: int, sequences: list[int], payloads: list[bytes], expiries: list[int]
    ) -> int:
        """Record messages on one queue that have numbers already, none above what is committed;
        return the sequence of that record.
        """
        ...

    def pass_over(self, sequence: int) -> int:
        """Give no sequence up to this one, from the next turn on; return up to which one the log is
        to be committed for that.
        """
        ...

    def dequeue(self, queue_uid: int, sequence: int, cause: int = 0) -> int:
        """Record that a message left a queue, and for which `Cause`; return the sequence of that
        record.
        """
        ...

    def dequeue_many(self, queue_uid: int, sequences: list[int], cause: int = 0) -> int:
        """Record that several messages left a queue for one `Cause`, as one record and never left
        out; return its sequence.
        """
        ...


class BothLogs:
    """The log for a queue that is on its way into it, or out of it. Until that is over, what leaves
    leaves what this broker keeps for itself as well, or it would be here again after a restart; and
    how a message changes is recorded twice. What comes to a queue on its way out is recorded here
    by `Queue.record_here`.
    """

    def __init__(self, queue: Any, log_writer: LogWriter) -> None:
        self._queue = queue
        self._log = log_writer
        self.enqueue = log_writer.enqueue
        self.enqueue_shared = log_writer.enqueue_shared
        self.enqueue_numbered = log_writer.enqueue_numbered
        self.pass_over = log_writer.pass_over

    @property
    def must_sync(self) -> bool:
        """As of the log."""
        return self._log.must_sync

    @must_sync.setter
    def must_sync(self, must_sync: bool) -> None:
        self._log.must_sync = must_sync

    @property
    def end(self) -> int:
        """As of the log."""
        return self._log.end

    def all_so_far(self) -> int:
        """Return the place to wait for: of a queue on its way out, all is in the local log too."""
        here = self._queue.local_writer if self._queue.is_leaving else None
        return self._log.all_so_far() if here is None else int(here.end)

    def append(self, record: Record) -> int:
        """Append a record; return the place to wait for."""
        queue, place = self._queue, self._log.append(record)
        here = queue.local_writer
        if here is None:
            return place
        if isinstance(record, Requeued) and self._is_here(record.sequence):
            return max(place, int(here.restate(queue, record.sequence)))
        if isinstance(record, DedupRemembered) and queue.is_leaving:
            return max(place, int(here.remember(queue, record.keys, record.sequences)))
        return place

    def dequeue(self, queue_uid: int, sequence: int, cause: int = 0) -> int:
        """Record that a message left; return the place to wait for."""
        return max(self._log.dequeue(queue_uid, sequence, cause), self._left([sequence], cause))

    def dequeue_many(self, queue_uid: int, sequences: list[int], cause: int = 0) -> int:
        """Record that several messages left; return the place to wait for."""
        recorded = self._log.dequeue_many(queue_uid, sequences, cause)
        return max(recorded, self._left(sequences, cause))

    def _is_here(self, sequence: int) -> bool:
        """Whether the local log has a message, or will."""
        return bool(self._queue.is_leaving or sequence <= self._queue.own_numbers)

    def _left(self, sequences: list[int], cause: int) -> int:
        found = [each for each in sequences if self._is_here(each)]
        here = self._queue.local_writer
        return int(here.dequeue(self._queue, found, cause)) if found and here is not None else 0


class LocalWriter(Protocol):
    """Where this broker keeps what no other has; implemented by the local log. Every verb returns
    the place to wait for, above LOCAL.
    """

    has_queues: bool
    """Whether there are, or were, queues of which the messages are recorded here."""

    @property
    def system_id(self) -> str:
        """The system id of this broker."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether this broker had all that the cluster has since it was started or decided last.
        Before, records may be older than what is here, and nothing is given up for them.
        """
        ...

    @property
    def end(self) -> int:
        """The place of the last record so far, 0 if there is none."""
        ...

    def enqueue(self, queue: Any, number: int, payload: bytes, expires: int) -> int:
        """Record a message under the number that its queue gave it."""
        ...

    def watched(self, queue: Any) -> int:
        """A replica elsewhere follows a queue from now on, so all of it is synced."""
        ...

    def dequeue(self, queue: Any, numbers: Sequence[int], cause: int) -> int:
        """Record that messages left."""
        ...

    def restate(self, queue: Any, number: int) -> int:
        """Record how a message is that was given back."""
        ...

    def remember(self, queue: Any, keys: list[str], numbers: list[int]) -> int:
        """Record keys that a queue remembers."""
        ...

    def declared(self, thing: Any) -> int:
        """Record that a queue or an exchange is there."""
        ...

    def came(self, queue: Any) -> None:
        """A queue is there whose messages are not in the cluster's log: record what is durable."""
        ...

    def used(self, queue: Any) -> None:
        """A queue has its first user."""
        ...

    def gone(self, thing: Any) -> int:
        """A queue or an exchange is gone."""
        ...

    def let_go(self, queue: Any) -> None:
        """The messages of a queue are in the cluster's log, or given up; the queue stays."""
        ...

    def lowers(self, queue: Any, last: int) -> int:
        """This broker is about to take a queue out of the cluster's log, which ends with `last`: it
        records what comes, changes and leaves from now on.
        """
        ...

    def copy(self, queue: Any, messages: Iterable[Message]) -> int:
        """Record messages that are on such a queue already."""
        ...

    def hides(self, queue: Any, bindings: Iterable[tuple[Any, str, Mapping[str, Any]]]) -> int:
        """This broker is about to have a queue that the others know for itself. Return the place to
        wait for before they may forget it, 0 if all is recorded.
        """
        ...

    def confirm(self, queue: Any, sequence: int) -> None:
        """The others know what there is of a queue of level configuration when this record is
        committed.
        """
        ...

    def rises(self, queue: Any, own_numbers: int) -> int:
        """This broker gives a queue to the cluster's log, with its own numbers up to this one."""
        ...

    def put_aside(self, queue: Any, own_numbers: int) -> int:
        """Another broker says what there is of a queue; return how many messages go."""
        ...

    def left(self, queue: Any, numbers: Iterable[int], cause: int) -> None:
        """Messages left a queue by a record of the cluster."""
        ...

    def risen(self, queue: Any) -> int:
        """Another broker has given a queue to the cluster's log; return how many messages go."""
        ...

    def forget(self, thing: Any) -> None:
        """The cluster has deleted what bindings lead to or from."""
        ...

    def set_aside(self, queue: Any) -> None:
        """A queue is gone until a snapshot says whether it is there: keep its messages."""
        ...

    def bound(self, exchange: Any, thing: Any, key: str, arguments: Mapping[str, Any]) -> int:
        """Record a binding that the cluster's log does not have."""
        ...

    def unbound(self, exchange: Any, thing: Any, key: str) -> int:
        """Such a binding is gone, if it was one."""
        ...
