"""LogWriter: the log, as the broker writes to it.

The broker decides, the log writer gives the decision its place in the log: every verb returns the
sequence of the record it made; the decision is committed when that sequence is. Enqueue
and dequeue have verbs of their own, so that the log may batch, share and elide them without a
record object for each message. The broker knows nothing of epochs, backups or disks; a broker alone
has no log writer at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qpidha.model.records import Record

LOCAL = 1 << 62
"""Places in the log of this broker alone are above this. Who waits for the higher one of a place
there and one in the cluster's log waits for both: see `store/local_log.py`.
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
    """The log for a queue that is on its way into it: until all of it is there, what leaves leaves
    what this broker keeps for itself as well, or it would be here again after a restart.
    """

    def __init__(self, queue: Any, log_writer: LogWriter) -> None:
        self._queue = queue
        self._log = log_writer
        self.append = log_writer.append
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

    def dequeue(self, queue_uid: int, sequence: int, cause: int = 0) -> int:
        """Record that a message left; return the place to wait for."""
        return max(self._log.dequeue(queue_uid, sequence, cause), self._left([sequence], cause))

    def dequeue_many(self, queue_uid: int, sequences: list[int], cause: int = 0) -> int:
        """Record that several messages left; return the place to wait for."""
        recorded = self._log.dequeue_many(queue_uid, sequences, cause)
        return max(recorded, self._left(sequences, cause))

    def _left(self, sequences: list[int], cause: int) -> int:
        queue = self._queue
        own = [each for each in sequences if each <= queue.own_numbers]
        local_writer = queue.local_writer
        return int(local_writer.dequeue(queue, own, cause)) if own and local_writer else 0


class LocalWriter(Protocol):
    """Where this broker keeps what no other has; implemented by the local log. Every verb returns
    the place to wait for, above LOCAL.
    """

    @property
    def end(self) -> int:
        """The place of the last record so far, 0 if there is none."""
        ...

    def enqueue(self, queue: Any, number: int, payload: bytes, expires: int) -> int:
        """Record a message under the number that its queue gave it."""
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

    def take(self, queue: Any) -> int:
        """Record all that is on a queue."""
        ...

    def labelled(self, queue: Any) -> None:
        """A queue has another replicate level."""
        ...

    def used(self, queue: Any) -> None:
        """A queue has its first user."""
        ...

    def gone(self, thing: Any) -> int:
        """A queue or an exchange is gone, or its messages are in the cluster's log."""
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
