"""Consumers: who takes messages from a queue, or looks at them, as the queue sees them.

A queue hands messages out at the end of a turn, to those with credit. What becomes of a message is
told to the queue by whoever has it; the links of the AMQP room are consumers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from qpidha.words.message import Message


class Consumer(Protocol):
    """Somebody who takes messages, or looks at them (`browse`)."""

    credit: int
    browse: bool
    exclusive: bool
    cursor: int
    """The last sequence a browser was shown; kept by the queue."""

    def deliver(self, message: Message) -> None:
        """Take a message and count down `credit`; may dequeue or release it at once, but not unsubscribe."""
        ...

    def queue_deleted(self) -> None:
        """The queue is gone, and this consumer's subscription with it."""
        ...
