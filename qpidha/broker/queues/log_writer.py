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
    from qpidha.model.records import Record


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
