"""Consistent hashing: which of several takers a value falls to.

Each taker stands at many places of a ring of numbers, at as many more as it has weight, and a value
falls to the first one from its own number on. When a taker comes or goes only the values that fall
to it change their taker. The places depend on names and weights alone, so that every broker chooses
alike, whatever it was told first. Knows no exchange and no message.
Source: Karger and others, Consistent Hashing and Random Trees; RabbitMQ's
rabbitmq_consistent_hash_exchange.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from hashlib import blake2b, shake_128
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from qpidha.model.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Iterable

Taker = TypeVar("Taker")

PLACES = 60
"""Of each unit of weight; with one unit each, takers get shares that differ by some 13 %."""
MOST_WEIGHT = 1000
"""Of all takers of a ring: its places are computed and put in order in one turn, in 20 ms."""
NUMBERS = 1 << 16
"""The last bits of a place say whose it is."""


def read_weight(text: str) -> int | None:
    """Read a weight; None if it is none."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_WEIGHT))):
        return None
    weight = int(text)
    return weight if 1 <= weight <= MOST_WEIGHT else None


def bytes_of(value: Any) -> bytes:
    """Return what is hashed of a value: the same for text as a key, a header or a message-id."""
    if isinstance(value, str):
        return value.encode()
    return b"" if value is None else bytes(value) if isinstance(value, bytes) else encode(value)


class Ring(Generic[Taker]):
    """Some takers: (name, weight, taker) of each; several of a name and weight are one."""

    __slots__ = ("_places", "_takers")

    def __init__(self, takers: Iterable[tuple[str, str, Taker]]) -> None:
        rows = {(name, weight): taker for name, weight, taker in takers}
        names = sorted(rows)
        self._takers = [rows[row] for row in names]
        self._places = sorted(
            place & -NUMBERS | number
            for number, (name, weight) in enumerate(names)
            for place in _places(f"{name} {weight}", read_weight(weight) or 1)
        )

    def find(self, value: bytes) -> Taker:
        """Return the taker of a value."""
        number = int.from_bytes(blake2b(value, digest_size=8).digest())
        at = bisect_left(self._places, number)
        place = self._places[at if at < len(self._places) else 0]
        return self._takers[place % NUMBERS]


def _places(name: str, weight: int) -> array[int]:
    places = array("Q", shake_128(name.encode()).digest(8 * PLACES * weight))
    if sys.byteorder == "big":
        places.byteswap()
    return places
