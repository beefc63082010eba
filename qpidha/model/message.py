"""A message on one queue: the bytes as they came, and beside them what the broker knows of it.

`payload` is the whole encoded message as the sender gave it, less its delivery annotations; the
bare message in it is never touched. What may change after arrival lives in fields and is written
into a fresh header or annotations section only when the message is sent on. A message routed to
several queues is one object for each, all with the same sequence and the same payload. The bytes of
a message far back in a long queue need not be in memory: `payload` is then a `PagedPayload`, one
object for many messages, which reads them again from wherever they are kept. So for the
bytes call `body()`, and for their number look at `size`. Source: AMQP 1.0 section 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class PagedPayload(Protocol):
    """Where the bytes of messages are that are not in memory."""

    def read(self, sequence: int) -> bytes:
        """Return the encoded message of this sequence."""
        ...

    def read_all(self, sequences: Sequence[int]) -> bytes:
        """Return the encoded messages of these sequences, which rise, one after the other."""
        ...


class Message:
    """One message on one queue."""

    __slots__ = (
        "acquired",
        "annotations",
        "delivery_count",
        "expires",
        "payload",
        "released",
        "sequence",
        "size",
    )

    def __init__(
        self,
        sequence: int,
        payload: bytes,
        expires: int = 0,
        delivery_count: int = 0,
        annotations: bytes = b"",
    ) -> None:
        self.sequence = sequence
        """Identity and place: the sequence of its Enqueued record, or a number of the queue's own
        if it is not logged.
        """
        self.payload: bytes | PagedPayload = payload
        self.size = len(payload)
        """Bytes of the encoded message, wherever they are."""
        self.expires = expires
        """Nanoseconds since the Unix epoch; 0 is never."""
        self.delivery_count = delivery_count
        """Unsuccessful deliveries so far."""
        self.annotations = annotations
        """An encoded message-annotations section that replaces the one in the payload, or empty."""
        self.acquired = False
        """Whether a consumer has it at present."""
        self.released = 0
        """How often a consumer had it and gave it back to this broker."""

    def __repr__(self) -> str:
        return f"Message({self.sequence}, {self.size} bytes{', acquired' if self.acquired else ''})"

    @property
    def acquired_count(self) -> int:
        """How often a consumer had it and gave it back, whether or not that counts as failed; of
        the time before this broker was primary only what failed is known.
        """
        return max(self.released, self.delivery_count)

    def body(self) -> bytes:
        """Return the encoded message; read it first if it is not in memory."""
        payload = self.payload
        return payload if isinstance(payload, bytes) else payload.read(self.sequence)
