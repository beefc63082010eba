"""LogWriter: the log, as the broker writes to it.

The broker decides, the log writer gives the decision its place in the log: every verb returns the
sequence of the record it made; the decision is committed when that sequence is. Enqueue
and dequeue have verbs of their own, so that the log may batch, share and elide them without a
record object for each message. The broker knows nothing of epochs, backups or disks; a broker alone
has no log writer at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

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
