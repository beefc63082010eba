"""Recorder: what the broker model asks of the log it writes to.

The broker decides, the recorder gives the decision its place: every verb returns the sequence of the
record it made, which is what somebody who waits for the decision to be safe waits for. Enqueue and
dequeue have verbs of their own, so that the log may batch, share and elide them without a record
object for each message.
The broker knows nothing of epochs, backups or disks; a broker alone has no recorder at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from qpidha.words.records import Record


class Recorder(Protocol):
    """Somewhere to put records; implemented by the log."""

    must_sync: bool
    """Set by whoever records a message, or the end of one, that must survive a restart; the log clears it when it has seen to it."""

    def append(self, record: Record) -> int:
        """Append any record; return its sequence."""
        ...

    def enqueue(self, queue_uid: int, payload: bytes, expires: int) -> int:
        """Record a message on one queue; return its sequence, which is the message's identity."""
        ...

    def enqueue_shared(self, queue_uids: tuple[int, ...], payload: bytes, expires: int) -> int:
        """Record one message on several queues, the payload once; return its sequence."""
        ...

    def dequeue(self, queue_uid: int, sequence: int) -> int:
        """Record that a message left a queue; return the sequence of that record."""
        ...

    def dequeue_many(self, queue_uid: int, sequences: list[int]) -> int:
        """Record that several messages left a queue, as one record and never left out; return its sequence."""
        ...
