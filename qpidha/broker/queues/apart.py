"""Apart: fields of a queue that are seldom used, in a list beside the queue's own.

Python takes objects of up to 512 bytes from pages of its own, and larger ones from the heap that
the protocol engine has its pieces in, some for each message that is under way. With the queues
there, 100,000 of them, each piece came to lie in another gap on another page, and a message cost
1.25 times as much, as the processor remembers the places of 1,500 pages. So a queue has to stay
below that, and what is not used for each message is not in it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

Value = TypeVar("Value")


class Apart(Generic[Value]):
    """One such field, to be used as any other."""

    __slots__ = ("_at",)

    count: ClassVar[int] = 0
    """How many there are."""

    def __init__(self) -> None:
        self._at = Apart.count
        Apart.count += 1

    def __get__(self, queue: WithApart, _: object = None) -> Value:
        value: Value = queue.apart[self._at]
        return value

    def __set__(self, queue: WithApart, value: Value) -> None:
        queue.apart[self._at] = value


class WithApart:
    """Has such fields."""

    __slots__ = ("apart",)

    def __init__(self) -> None:
        self.apart: list[Any] = [None] * Apart.count
        """What they have."""
