"""De-duplication: which messages a queue has had, so that one that is sent again is not there
twice.

A sender that saw its broker die does not know what became of the messages that were not settled,
and sends them again. A queue with `qpidha.dedup` remembers the keys of its last messages, those
that have been consumed too, and takes no message with a key that it remembers. The window is a fold
over the log: it holds the keys of the `size` messages with the highest sequences, whatever the
order in which it learns of them, so that a backup, a snapshot and a write-ahead log all lead to the
same window. Keys are text with their type in front, as a record can carry them. Knows nothing of
queues. Source: AMQP 1.0 section 3.2.4 (message-id).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qpidha.model.encoding import Uuid
from qpidha.model.errors import InvalidArgument, ProtocolViolation
from qpidha.model.message_view import message_annotations, properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

DEDUP = "qpidha.dedup"
DEDUP_WINDOW = "qpidha.dedup_window"
MESSAGE_ID = "message-id"
ANNOTATION_PREFIX = "x-"
WINDOW = 10_000
LARGEST_WINDOW = 1_000_000
"""Messages; a window of this size takes about 200 MB of memory."""
LONGEST_KEY = 100
"""Characters of a key that is remembered as it is; of a longer one a digest is."""


@dataclass(slots=True, frozen=True)
class Dedup:
    """What duplicates are known by, and for how many messages."""

    by: str
    """`message-id`, or the name of a message annotation."""
    size: int


class Window:
    """The keys of the last `size` messages of one queue."""

    __slots__ = ("_annotation", "_last", "_sequences", "_unsorted", "size")

    def __init__(self, dedup: Dedup) -> None:
        self.size = dedup.size
        self._annotation = "" if dedup.by == MESSAGE_ID else dedup.by
        self._sequences: OrderedDict[str, int] = OrderedDict()
        """By key, the lowest first unless `_unsorted`."""
        self._unsorted = False
        self._last: tuple[bytes, str] = (b"", "")
        """The message whose key was read last: it is looked for, and then remembered."""

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def by(self) -> str:
        """What its keys are (`Dedup.by`)."""
        return self._annotation or MESSAGE_ID

    def key(self, payload: bytes) -> str:
        """Return the key of a message, empty if it has none."""
        if self._last[0] is not payload:
            self._last = (payload, _key(self._value(payload)))
        return self._last[1]

    def find(self, payload: bytes) -> int | None:
        """Return the sequence of the message that this one is a duplicate of, None if it is new."""
        return self._sequences.get(self.key(payload))

    def remember(self, key: str, sequence: int) -> None:
        """A message with this key has been on the queue; messages without one are not
        remembered.
        """
        known = self._sequences
        if not key:
            return
        former = known.get(key)
        if former is not None:
            if former >= sequence:
                return
            del known[key]
        elif len(known) >= self.size and sequence < self._lowest():
            return  # A message that is still there, though its key was forgotten long ago.
        if known and sequence < known[next(reversed(known))]:
            self._unsorted = True
        known[key] = sequence
        if len(known) > self.size:
            self._sort()
            known.popitem(last=False)

    def _lowest(self) -> int:
        self._sort()
        return next(iter(self._sequences.values()))

    def parts(self, count: int) -> Iterator[tuple[list[str], list[int]]]:
        """Walk through the keys that are remembered now, with their sequences, the lowest first, so
        many at a time. What is forgotten meanwhile is left out: messages with higher sequences
        have taken its place.
        """
        self._sort()
        keys = list(self._sequences)
        for start in range(0, len(keys), count):
            found = [key for key in keys[start : start + count] if key in self._sequences]
            if found:
                yield found, [self._sequences[key] for key in found]

    def restore(self, keys: Iterable[str], sequences: Iterable[int]) -> None:
        """Remember the keys of another window."""
        for key, sequence in zip(keys, sequences, strict=True):
            self.remember(key, sequence)

    def resize(self, size: int) -> None:
        """Remember `size` keys from now on; if there are more, the lowest are forgotten now."""
        self.size = size
        self._sort()
        while len(self._sequences) > size:
            self._sequences.popitem(last=False)

    def _value(self, payload: bytes) -> Any:
        try:
            return (
                message_annotations(payload).get(self._annotation)
                if self._annotation
                else properties(payload).get("message_id")
            )
        except (ProtocolViolation, TypeError):
            return None  # It was taken in as it is; what cannot be read has no key.

    def _sort(self) -> None:
        if self._unsorted:
            self._unsorted = False
            ordered = sorted(self._sequences.items(), key=lambda entry: entry[1])
            self._sequences.clear()
            self._sequences.update(ordered)


def _key(value: Any) -> str:
    """Write a key as text, so that keys of different types differ; empty for a value that
    is no key.
    """
    if isinstance(value, str):
        key = "s:" + value
    elif isinstance(value, Uuid):
        key = "u:" + value.bytes.hex()
    elif isinstance(value, bytes):
        key = "b:" + value.hex()
    elif isinstance(value, int) and not isinstance(value, bool):
        key = f"n:{int(value)}"
    else:
        return ""
    return (
        key
        if len(key) <= LONGEST_KEY
        else "h:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    )


def read_dedup(arguments: Mapping[str, Any]) -> Dedup | None:
    """Return the de-duplication that `arguments` ask for, which have been checked; None for a queue
    that takes everything.
    """
    by = arguments.get(DEDUP)
    return Dedup(str(by), int(arguments.get(DEDUP_WINDOW, WINDOW))) if by else None


def check_dedup(arguments: Mapping[str, Any]) -> None:
    """Raise InvalidArgument for a de-duplication that cannot be done."""
    by = arguments.get(DEDUP)
    if (
        DEDUP in arguments
        and by != MESSAGE_ID
        and not (isinstance(by, str) and by.startswith(ANNOTATION_PREFIX))
    ):
        raise InvalidArgument(
            f"{DEDUP}={by!r} is not known",
            hint=(
                f"Use {MESSAGE_ID}, or the name of a message annotation, which begins with "
                f"{ANNOTATION_PREFIX}"
            ),
        )
    if DEDUP_WINDOW not in arguments:
        return
    if by is None:
        raise InvalidArgument(
            f"{DEDUP_WINDOW} is given without {DEDUP}",
            hint=f"Say with {DEDUP} what duplicates are known by.",
        )
    size = arguments[DEDUP_WINDOW]
    text = (
        isinstance(size, str)
        and size.isascii()
        and size.isdecimal()
        and len(size) <= len(str(LARGEST_WINDOW))
    )
    if (
        not (text or (isinstance(size, int) and not isinstance(size, bool)))
        or not 1 <= int(size) <= LARGEST_WINDOW
    ):
        shown = size[:40] if isinstance(size, str) else size
        raise InvalidArgument(
            f"{DEDUP_WINDOW}={shown!r} is not a number of messages",
            hint=f"Use 1 to {LARGEST_WINDOW}.",
        )
