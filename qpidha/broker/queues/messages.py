"""The messages of one queue by sequence, of which those that wait far back may be packed.

A message at rest needs none of the fields of a `Message`: nobody has it, and nothing has happened
to it since it came. Some hundred such messages in a row are a `Segment`: a column of sequences, one
of sizes, one of expiries if there are any, and their bytes in one piece, or the place from which
they can be read. That is 16 bytes a message beside its body (and none of it for the garbage
collector to look at), in place of 200.

Nobody sees whether a message is packed: `Messages` is a dictionary, and whoever asks for a message
in a segment has the whole segment unpacked first. To be on the queue (`in`, `len`, the sequences)
is known without that. What holds:

- A message is in the dictionary itself or in one segment, never in both.
- Segments do not overlap, whatever is between the sequences of one of them.
- A message that somebody holds is never packed, so it stays the same object as long as anybody can
  tell: the reference count says whether the dictionary alone has it.

As long as nothing is packed this is a plain dictionary, with its speed: the class is changed to
`_WithSegments`, which has the methods that look into segments, and back. A method of that may have
been looked up before and be called after, so it works with nothing packed as well.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate, chain, compress, count, groupby, pairwise, repeat
from operator import eq
from sys import getrefcount, getsizeof
from typing import TYPE_CHECKING, cast

from qpidha.model.message import Message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from qpidha.model.message import PagedPayload

    Places = tuple[Sequence[int], PagedPayload | list[PagedPayload]]
    """Sequences, and from where their bodies are read, all or each."""

FEWEST = 50
"""Messages in a row that are worth a segment."""
PIECE = 128 << 10
"""Bytes of bodies in a segment, roughly, if that is `FEWEST` messages or more: a checkpoint writes
one at a time.
"""
MOST_BYTES = 4 << 20
"""Bytes of bodies that are put into one piece: with more in so few messages, what a message takes
beside its body is nothing.
"""
MANY = 1 << 32
"""Bytes that no segment has: the column of sizes has 32 bits for each."""
LARGE = 1 << 20
"""Bytes of a table that is made anew when it is nearly empty."""
SPARSE = 400
"""Bytes of a table for each message that is there, above which it is."""
LOOKED = 1000
"""Sequences that are looked for together."""
_find, _has, _pop, _size = dict.get, dict.__contains__, dict.pop, dict.__len__


class Segment:
    """Messages in a row that are at rest."""

    __slots__ = ("expiries", "gone", "messages", "payload", "sequences", "sizes", "total")

    def __init__(
        self,
        sequences: list[int],
        sizes: Iterable[int],
        expiries: list[int],
        payload: bytes | PagedPayload | list[PagedPayload],
    ) -> None:
        """`payload` is all bodies one after the other, or where they are, or where each is;
        `expiries` may be empty. Raises OverflowError for a body of 4 GiB.
        """
        first, last = sequences[0], sequences[-1]
        is_dense = last - first + 1 == len(sequences)
        self.sequences: Sequence[int] = (
            range(first, last + 1) if is_dense else array("q", sequences)
        )
        self.sizes = array("I", sizes)
        self.expiries = array("q", expiries) if any(expiries) else None
        self.payload = payload
        self.total = sum(self.sizes)
        self.gone = 0
        """Bytes at the front of the payload, if that is bytes, of messages that have left."""
        self.messages: dict[int, Message] | None = None
        """What took its place: the messages as they were unpacked."""

    def __len__(self) -> int:
        return len(self.sizes)

    def __contains__(self, sequence: int) -> bool:
        at = bisect_left(self.sequences, sequence)
        return at < len(self.sizes) and self.sequences[at] == sequence

    def drop(self, count: int) -> int:
        """Forget the first messages; return how many bytes those were."""
        size = sum(self.sizes[:count])
        self.sequences, self.sizes = self.sequences[count:], self.sizes[count:]
        if self.expiries is not None:
            self.expiries = self.expiries[count:]
        if isinstance(self.payload, list):
            del self.payload[:count]
        self.total -= size
        self.gone += size
        return size

    def over(self, now: int, *, ttl: int) -> list[int]:
        """Let no message keep longer than `ttl` from now on, if that is not 0; return those whose
        time is over.
        """
        expiries = self.expiries
        if ttl:
            most = now + ttl
            if expiries is None:
                expiries = array("q", [most]) * len(self.sizes)
            elif max(expiries) > most or not min(expiries):
                expiries = array("q", [each if 0 < each <= most else most for each in expiries])
            self.expiries = expiries
        if expiries is None:
            return []
        first = min(expiries)
        if first > now:
            return []
        if first > 0 and max(expiries) <= now:
            return list(self.sequences)
        found = zip(self.sequences, expiries, strict=True)
        return [sequence for sequence, expires in found if 0 < expires <= now]

    def expiry(self, sequence: int) -> int:
        """Return when a message's time is over; 0 for never, or if it is not here."""
        if self.expiries is None or sequence not in self:
            return 0
        return self.expiries[bisect_left(self.sequences, sequence)]

    def let_go(self, body: PagedPayload) -> int:
        """Have the bodies read from `body`; return how many bytes those were."""
        self.payload = body
        return self.total

    def is_same(self, payloads: Mapping[int, bytes]) -> bool:
        """Whether the bodies, which are in memory, are these."""
        if not all(map(payloads.__contains__, self.sequences)):
            return False
        found = [payloads[sequence] for sequence in self.sequences]
        is_alike = b"".join(found) == self.payload[self.gone :]  # type: ignore[index]
        return is_alike and all(map(eq, map(len, found), self.sizes))

    def body(self) -> bytes:
        """Return all bodies, one after the other; read them first if they are not in memory."""
        payload = self.payload
        if isinstance(payload, bytes):
            return payload[self.gone :]
        if not isinstance(payload, list):
            return payload.read_all(self.sequences)
        found: list[bytes] = []
        done = 0
        for place, group in groupby(payload):
            end = done + len(list(group))
            found.append(place.read_all(self.sequences[done:end]))
            done = end
        return b"".join(found)

    def unpack(self) -> dict[int, Message]:
        """Return the messages, which take the place of this."""
        payload, expiries = self.payload, self.expiries or repeat(0)
        found: dict[int, Message] = {}
        if not isinstance(payload, bytes):
            places = payload if isinstance(payload, list) else repeat(payload)
            for sequence, size, expires, place in zip(
                self.sequences, self.sizes, expiries, places, strict=False
            ):
                message = found[sequence] = Message(sequence, b"", expires)
                message.payload, message.size = place, size
        else:
            ends = list(accumulate(self.sizes, initial=self.gone))
            bodies = [payload[start:end] for start, end in pairwise(ends)]
            found.update(
                zip(self.sequences, map(Message, self.sequences, bodies, expiries), strict=True)
            )
        self.messages = found
        return found

    def places(self) -> Places:
        """Return from where all bodies are read."""
        return self.sequences, cast("PagedPayload | list[PagedPayload]", self.payload)

    def read_from(self, places: Places) -> None:
        """Have the bodies read from where they were read before, as far as the messages are here,
        packed or not.
        """
        sequences, payload = places
        if isinstance(payload, list):
            of = dict(zip(sequences, payload, strict=True))
        else:
            of = dict.fromkeys(sequences, payload)
        if self.messages is None:
            self.payload = [of[sequence] for sequence in self.sequences]
            return
        for message in self.messages.values():
            if not isinstance(message.payload, bytes):
                message.payload = of[message.sequence]


class Messages(dict[int, Message]):
    """All messages of one queue, of which none is packed."""

    __slots__ = ("_firsts", "_segments", "packed")

    def __init__(self) -> None:
        super().__init__()
        self._segments: list[Segment] = []
        self._firsts: list[int] = []
        """The first sequence of each."""
        self.packed = 0
        """How many messages are packed."""

    def at_hand(self, sequence: int) -> Message | None:
        """Return a message if it is here, and not packed."""
        return _find(self, sequence)

    @property
    def loose(self) -> int:
        """How many messages are not packed."""
        return _size(self)

    def unpacked(self) -> Iterator[Message]:
        """Walk through the messages that are not packed: all that anybody has are among them. None
        may come or leave meanwhile.
        """
        return iter(dict.values(self))

    def add_segment(self, sequences: list[int], payloads: list[bytes], expiries: list[int]) -> bool:
        """Put messages behind all others, packed; return False, and do nothing, where that is not
        worth while.
        """
        sizes = list(map(len, payloads))
        count = _count(len(sizes), sum(sizes))
        if len(sizes) < FEWEST or sum(sizes) * count > MOST_BYTES * len(sizes):
            return False
        for at in range(0, len(sizes), count):
            row = slice(at, at + count)
            body = b"".join(payloads[row])
            self._insert(Segment(sequences[row], sizes[row], expiries[row], body))
        return True

    def pack(self, sequences: Iterable[int]) -> None:
        """Pack those of the messages, which are in a row, that are at rest."""
        found = cast("list[Message]", [*map(_find, repeat(self), sequences)])
        counts = list(map(getrefcount, found))
        resting = [
            message
            for message, count in zip(found, counts, strict=True)
            if count == ALONE
            and not (
                message.acquired
                or message.delivery_count
                or message.released
                or message.annotations
            )
        ]
        found.clear()
        for is_paged_out, group in groupby(resting, _is_paged_out):
            row = list(group)
            count = _count(len(row), sum([message.size for message in row]))
            for at in range(0, len(row), count):
                self._pack(row[at : at + count], is_paged_out)
            del row

    def _pack(self, messages: list[Message], is_paged_out: bool) -> None:
        """Pack messages whose bodies are all in memory, or none is."""
        total = sum([message.size for message in messages])
        if len(messages) < FEWEST or total > (MANY if is_paged_out else MOST_BYTES):
            return
        sequences = [message.sequence for message in messages]
        at = bisect_right(self._firsts, sequences[0])
        if at != bisect_right(self._firsts, sequences[-1]) or (
            at and self._segments[at - 1].sequences[-1] > sequences[0]
        ):
            return  # Something that is packed already is between them.
        segment = Segment(
            sequences,
            [message.size for message in messages],
            [message.expires for message in messages],
            _places(messages) if is_paged_out else b"".join([one.body() for one in messages]),
        )
        for sequence in sequences:
            _pop(self, sequence)
        self._insert(segment)

    def _insert(self, segment: Segment) -> None:
        first = segment.sequences[0]
        at = bisect_right(self._firsts, first)
        self._segments.insert(at, segment)
        self._firsts.insert(at, first)
        self.packed += len(segment)
        self.__class__ = _WithSegments

    def _at(self, sequence: int) -> int:
        """Return which segment has a message; -1 if none has."""
        if not self._firsts or sequence < self._firsts[0]:
            return -1  # Mostly what is asked for has left.
        at = bisect_right(self._firsts, sequence) - 1
        return at if sequence in self._segments[at] else -1

    def _unpack(self, sequence: int) -> bool:
        """Unpack the segment that has a message, if one has."""
        at = self._at(sequence)
        if at >= 0:
            self._unpack_at(at)
        return at >= 0

    def _unpack_at(self, at: int) -> None:
        dict.update(self, self._take_out(at).unpack())

    def _take_out(self, at: int) -> Segment:
        segment = self._segments.pop(at)
        del self._firsts[at]
        self.packed -= len(segment)
        if not self._segments:
            self.__class__ = Messages
        return segment

    def segment_after(self, cursor: int) -> Segment | None:
        """Return the first segment that is behind a sequence. One with messages on both sides is
        unpacked.
        """
        return None

    def unpacked_of(self, sequences: Iterable[int]) -> list[Message]:
        """Return the messages of these sequences that are here, and not packed."""
        return list(filter(None, map(_find, repeat(self), sequences)))

    def here(self, sequences: Iterable[int]) -> list[int]:
        """Return those of the sequences that are on the queue, lowest first."""
        sequences = sorted(sequences)
        return list(compress(sequences, map(_has, repeat(self), sequences)))

    def gone(self, order: Sequence[int], start: int) -> int:
        """Return at which place of an order, whose sequences rise, the first message from `start`
        on is that is here; its length if there is none.
        """
        return self._first(order, start, len(order))

    def _first(self, order: Sequence[int], start: int, end: int) -> int:
        """Return at which place, `start` to `end`, the first message is that is not packed."""
        while start < end:
            piece = order[start : min(start + LOOKED, end)]
            found = next(compress(count(start), map(_has, repeat(self), piece)), -1)
            if found >= 0:
                return found
            start += len(piece)
        return end

    def over(self, sequences: list[int], now: int) -> list[int]:
        """Return those of the sequences that are packed and whose time is over, lowest first."""
        return []

    def drop_run(self, sequences: list[int]) -> tuple[list[int], int, int]:
        """Take out what is packed of these messages, whose sequences rise, as far as it is all that
        a segment begins with; return the others, how many bytes those were, and of how many that
        are not in memory.
        """
        return sequences, 0, 0

    def pop_run(self, sequences: list[int]) -> list[Message]:
        """Take messages out that are here, and return them."""
        return [one for one in map(self.pop, sequences, repeat(None)) if one is not None]

    def page_out(self, first: int, last: int, body: PagedPayload) -> int:
        """Let packed messages `first` to `last` be read from `body`; return how many bytes those
        were. Segments that have others too are unpacked.
        """
        return 0

    def page_out_same(
        self, numbers: Sequence[int], payloads: Mapping[int, bytes], body: PagedPayload
    ) -> int:
        """Do so with messages of these numbers whose bodies are those of `payloads`; segments that
        have others too are unpacked.
        """
        return 0

    def discard(self) -> int:
        """Take something out, and return with the freeing of how many messages that compares."""
        self.popitem()
        return 1

    def shrink(self) -> None:
        """Give up what the table has for messages that were here."""
        if getsizeof(self) > LARGE + SPARSE * _size(self):
            items = list(dict.items(self))
            dict.clear(self)
            dict.update(self, items)


class _WithSegments(Messages):
    """All messages of one queue, of which some are packed."""

    __slots__ = ()

    def __len__(self) -> int:
        return _size(self) + self.packed

    def __contains__(self, sequence: object) -> bool:
        if _has(self, sequence):
            return True
        return isinstance(sequence, int) and self._at(sequence) >= 0

    def get(self, sequence, default=None):  # type: ignore[no-untyped-def]
        message = _find(self, sequence)
        if message is None:
            return _find(self, sequence) if self._unpack(sequence) else default
        return message

    def __delitem__(self, sequence: int) -> None:
        self._unpack(sequence)
        dict.__delitem__(self, sequence)

    def __missing__(self, sequence: int) -> Message:
        if self._unpack(sequence):
            return self[sequence]
        raise KeyError(sequence)

    def pop(self, sequence, *default):  # type: ignore[no-untyped-def]
        message = _pop(self, sequence, None)
        if message is None:
            self._unpack(sequence)
            return _pop(self, sequence, *default)
        return message

    def segment_after(self, cursor: int) -> Segment | None:
        at = bisect_right(self._firsts, cursor)
        if at and self._segments[at - 1].sequences[-1] > cursor:
            at -= 1
            self._unpack_at(at)
        return self._segments[at] if at < len(self._segments) else None

    def here(self, sequences: Iterable[int]) -> list[int]:
        sequences = sorted(sequences)
        found: list[int] = []
        begin = 0
        while begin < len(sequences):
            at = bisect_right(self._firsts, sequences[begin]) - 1
            if at < 0 or sequences[begin] > self._segments[at].sequences[-1]:
                last = self._firsts[at + 1] - 1 if at + 1 < len(self._firsts) else sequences[-1]
                packed: Sequence[int] = ()
            else:
                packed = self._segments[at].sequences
                last = packed[-1]
            end = bisect_right(sequences, last, begin)
            piece = sequences[begin:end]
            begin = end
            if isinstance(packed, range):
                found += piece
            elif packed:
                there = frozenset(packed) if len(piece) > FEWEST else packed
                found += [one for one in piece if one in there or _has(self, one)]
            else:
                found += compress(piece, map(_has, repeat(self), piece))
        return found

    def gone(self, order: Sequence[int], start: int) -> int:
        end = bisect_left(order, self._firsts[0], start) if self._firsts else len(order)
        return self._first(order, start, end)

    def over(self, sequences: list[int], now: int) -> list[int]:
        sequences = sorted(sequences)
        found: list[int] = []
        at = max(bisect_right(self._firsts, sequences[0]) - 1, 0) if sequences else 0
        begin = 0
        while begin < len(sequences) and at < len(self._segments):
            segment = self._segments[at]
            at += 1
            if segment.expiries is None:
                continue
            begin = bisect_left(sequences, segment.sequences[0], begin)
            end = bisect_right(sequences, segment.sequences[-1], begin)
            asked = sequences[begin:end]
            begin = end
            if len(asked) > FEWEST:
                over = segment.over(now, ttl=0)
                found += asked if asked == over else sorted({*asked}.intersection(over))
            else:
                found += [one for one in asked if 0 < segment.expiry(one) <= now]
        return found

    def drop_run(self, sequences: list[int]) -> tuple[list[int], int, int]:
        if not sequences:
            return sequences, 0, 0
        others: list[int] = []
        size = paged_out = done = begin = 0
        at = max(bisect_right(self._firsts, sequences[0]) - 1, 0)
        while at < len(self._segments) and self._firsts[at] <= sequences[-1]:
            segment = self._segments[at]
            begin = bisect_left(sequences, segment.sequences[0], begin)
            end = bisect_right(sequences, segment.sequences[-1], begin)
            count = end - begin
            if not count or sequences[begin:end] != list(segment.sequences[:count]):
                at += 1
                continue
            dropped = segment.drop(count)
            others += sequences[done:begin]
            done = begin = end
            size += dropped
            if not isinstance(segment.payload, bytes):
                paged_out += dropped
            self.packed -= count
            if len(segment):
                self._firsts[at] = segment.sequences[0]
                at += 1
            else:
                self._take_out(at)
        return others + sequences[done:], size, paged_out

    def pop_run(self, sequences: list[int]) -> list[Message]:
        # Mostly they leave in a row: so each segment is unpacked before it is asked for one by one.
        if sequences:
            self._unpack(sequences[0])
            self._unpack(sequences[-1])
        return Messages.pop_run(self, sequences)

    def page_out(self, first: int, last: int, body: PagedPayload) -> int:
        return self._page_out(first, last, body, None)

    def page_out_same(
        self, numbers: Sequence[int], payloads: Mapping[int, bytes], body: PagedPayload
    ) -> int:
        return self._page_out(min(numbers), max(numbers), body, payloads) if numbers else 0

    def _page_out(
        self, first: int, last: int, body: PagedPayload, same: Mapping[int, bytes] | None
    ) -> int:
        """Let go of the bodies of segments from `first` to `last`, if all are the `same`."""
        moved = 0
        at = max(bisect_right(self._firsts, first) - 1, 0)
        while at < len(self._segments) and self._firsts[at] <= last:
            segment = self._segments[at]
            begin, end = segment.sequences[0], segment.sequences[-1]
            if not isinstance(segment.payload, bytes) or end < first:
                at += 1
            elif first <= begin and end <= last and (same is None or segment.is_same(same)):
                moved += segment.let_go(body)
                at += 1
            else:
                self._unpack_at(at)
        return moved

    def __iter__(self) -> Iterator[int]:
        return chain(dict.__iter__(self), *[segment.sequences for segment in self._segments])

    def keys(self):  # type: ignore[no-untyped-def]
        return list(self)

    def values(self):  # type: ignore[no-untyped-def]
        self._unpack_all()
        return dict.values(self)

    def items(self):  # type: ignore[no-untyped-def]
        self._unpack_all()
        return dict.items(self)

    def _unpack_all(self) -> None:
        while self.packed:
            self._unpack_at(len(self._segments) - 1)

    def popitem(self) -> tuple[int, Message]:
        if not _size(self):
            self._unpack_at(len(self._segments) - 1)
        return dict.popitem(self)

    def discard(self) -> int:
        return len(self._take_out(len(self._segments) - 1)) // 10


def as_they_are(held: Iterable[Message | Segment]) -> Iterator[Message | Segment]:
    """Walk through messages and segments; of a segment that was unpacked, through its messages."""
    for one in held:
        if isinstance(one, Segment) and one.messages is not None:
            yield from one.messages.values()
        else:
            yield one


def _count(number: int, size: int) -> int:
    """Return how many of so many messages, of so many bytes, go into each segment."""
    return -(-number // (min(-(-size // PIECE), number // FEWEST) or 1)) or 1


def _is_paged_out(message: Message) -> bool:
    return not isinstance(message.payload, bytes)


def _places(messages: list[Message]) -> PagedPayload | list[PagedPayload]:
    """Return the place from which all bodies are read, or that of each: a place is a frame of the
    log, and has few of them where little came at a time.
    """
    places = cast("list[PagedPayload]", [message.payload for message in messages])
    return places if any(place is not places[0] for place in places) else places[0]


def _alone() -> int:
    """Return the references to a message that `Messages.pack` finds if nobody else has it."""
    messages = {1: Message(1, b"")}
    found = [*map(_find, repeat(messages), [1])]
    return next(map(getrefcount, found))


ALONE = _alone()
"""Python counts what it has on its way to the counting, too, by versions of it."""
