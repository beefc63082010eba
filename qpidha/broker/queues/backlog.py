"""Backlog: the messages of a queue, how many bytes they are, and how many of these are in memory.

`messages` has every message that is on the queue, by sequence, and is the only place that says so;
the ordering says which one is next. A long backlog need not be in memory: `page_out` gives messages
a `PagedPayload` to be read from in place of their bytes, `paged_out` says how many bytes that are,
and the owner of such a place learns from the broker's `over_budget` which queues have too many in
memory. Knows nothing of consumers, limits or records. Source: Qpid `MessageDeque.cpp`,
`PagedQueue.cpp`.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from qpidha.broker.queues.apart import Apart, WithApart
from qpidha.broker.queues.limits import UNLIMITED
from qpidha.broker.queues.messages import Messages
from qpidha.broker.queues.ordering import Fifo
from qpidha.model.records import Cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from qpidha.broker.queues.messages import Segment
    from qpidha.broker.queues.ordering import Ordering
    from qpidha.model.memory import MemoryUse
    from qpidha.model.message import Message, PagedPayload

    Place = Callable[[int], tuple[PagedPayload, int] | None]
    """Tells, of a sequence, from where that message can be read, and up to which sequence others of
    its queue can be read from there; None if that one, and none after it, can be read yet.
    """


LONG = 20_000
"""Messages of a queue that are not packed, whatever comes and however long they stay: a queue that
is consumed from has no more, mostly.
"""
AHEAD = 2000
"""Messages that are not packed as they are next to be taken."""
WHOLE = 512 << 10
"""Bytes of a segment that is written to a checkpoint as it is; of a larger one a part at a time."""
AT_ONCE = 1000
"""Messages in a row that are packed together."""


class Watch(Protocol):
    """Hears what becomes of the messages of a queue, for a replica of it elsewhere."""

    def stirred(self) -> None:
        """A message has come, or the queue decides no more, or has ended."""

    def left(self, message: Message) -> None:
        """A message has left."""

    def changed(self, message: Message) -> None:
        """A message is given back otherwise than it was."""


class Backlog(WithApart):
    """The messages of one queue."""

    __slots__ = (
        "_page_out_above",
        "_use",
        "acquired",
        "bytes",
        "bytes_departed",
        "delayed",
        "departed",
        "heeds",
        "kind",
        "left",
        "logged",
        "messages",
        "ordering",
        "own_numbers",
        "paged_out",
        "stays",
        "watch",
    )

    bytes_forgotten = Apart[int]()
    recorded = Apart[int]()
    released = Apart[int]()
    unrecorded = Apart[tuple[int, int]]()
    _make_ordering = Apart["Callable[[Messages], Ordering]"]()

    def __init__(
        self,
        logged: bool,
        memory: int,
        use: MemoryUse,
        make_ordering: Callable[[Messages], Ordering],
    ) -> None:
        super().__init__()
        self._use = use
        self._make_ordering = make_ordering
        self.logged = logged
        """Whether the log has these messages; their sequences are a queue's own otherwise."""
        self.own_numbers = 0
        """If the log has them: messages up to this sequence had their numbers before, so these are
        no places in the log.
        """
        self.recorded = 0
        """Up to which of those the log has had the queue, on its way into it, whatever has left
        since.
        """
        self.unrecorded = (0, 0)
        """Of those, the log is still to be given the ones after the first of these sequences, up to
        the second.
        """
        self.messages = Messages()
        self.ordering = make_ordering(self.messages)
        self.kind = self.ordering.kind
        self.watch: Watch | None = None
        self.left = self.ordering.left
        """Told of each message that leaves; None if nobody need be."""
        self.bytes = 0
        self.paged_out = 0
        """Bytes of messages that are not in memory; part of `bytes`."""
        self.heeds = self.left is not None
        """Whether more is to be done about a message that leaves than to count it."""
        self.acquired = 0
        """How many messages consumers have at present, or nobody may have."""
        self.delayed: dict[int, int] = {}
        """Messages that nobody may have before a time, by sequence -> that time; they count as
        acquired. On a replica some may be due.
        """
        self.released = 0
        """How often one was given back, in total."""
        self.departed = [0] * len(Cause)
        """How many messages have left, in total, by the number of the cause."""
        self.bytes_departed = self.bytes_forgotten = 0
        """How many bytes have left, in total, and how many went with no departure, as the log has
        other messages.
        """
        self.stays = False
        """Whether no bytes go to the disk, though the log has them: it will not have them for long.
        """
        self._page_out_above = UNLIMITED
        """With more bytes than this, too many are in memory: `paged_out` plus what may be there."""
        self.set_memory(memory)

    @property
    def may_pack(self) -> bool:
        """Whether messages may be packed: another ordering than that of arrival has more of each
        message than is in it.
        """
        return type(self.ordering) is Fifo

    def pack_some(self, cursor: int, last: int) -> int:
        """Pack some of the messages after sequence `cursor`, up to `last`, that are at rest; return
        with what to go on, 0 if there are no more.
        """
        ordering = self.ordering
        if type(ordering) is not Fifo:
            return 0
        found = ordering.between(max(cursor, ordering.ahead(AHEAD)), last, AT_ONCE)
        if not found:
            return 0
        self.messages.pack(found)
        return found[-1]

    def _at_hand(self, first: int, last: int) -> Iterator[Message]:
        """Walk through the messages that are not packed, `first` to `last`."""
        ordering, messages = self.ordering, self.messages
        if messages.packed and isinstance(ordering, Fifo):
            return filter(None, map(messages.at_hand, ordering.between(first - 1, last)))
        return takewhile(lambda message: message.sequence <= last, ordering.after(first - 1))

    @property
    def resident(self) -> int:
        """Bytes that are in memory."""
        return self.bytes - self.paged_out

    @property
    def dequeued(self) -> int:
        """How many messages have left, in total."""
        return sum(self.departed)

    @property
    def bytes_enqueued(self) -> int:
        """How many bytes have come, in total."""
        return self.bytes + self.bytes_departed + self.bytes_forgotten

    @property
    def in_flight(self) -> int:
        """How many messages consumers have, and nobody has settled yet."""
        return self.acquired

    def set_watch(self, watch: Watch | None) -> None:
        """Have all departures and changes told to somebody, or to nobody."""
        self.watch = watch
        self._set_left()

    def _set_left(self) -> None:
        """Tell the ordering and the watch of departures, as far as each wants to be told."""
        ordered, watch = self.ordering.left, self.watch
        self.left = ordered
        if watch is not None:
            watched = watch.left

            def left(message: Message) -> None:
                if ordered is not None:
                    ordered(message)
                watched(message)

            self.left = watched if ordered is None else left
        self._set_heeds()

    def set_memory(self, memory: int) -> None:
        """Let at most so many bytes be in memory, if the log has them all."""
        may_leave = self.logged and not self.stays
        self._page_out_above = self.paged_out + (memory if may_leave else UNLIMITED)

    def stay_in_memory(self, stays: bool, memory: int) -> None:
        """Let no bytes go to the disk, whatever else is said; or at most `memory` stay."""
        self.stays = stays
        self.set_memory(memory)

    def begin_log(self, memory: int) -> None:
        """The log has messages of this queue after all. Those that were here have numbers that it
        gives to others, and go.
        """
        self.bytes_forgotten += self.bytes
        self._clear()
        self.logged = True
        self.set_memory(memory)

    def leave_log(self) -> None:
        """The log has these messages no more; all their bytes are in memory."""
        self.logged = False
        self.own_numbers, self.recorded, self.unrecorded = 0, 0, (0, 0)
        self.stay_in_memory(False, 0)

    def read_back(self, messages: Iterable[Message]) -> None:
        """Keep the bytes of messages in memory again, wherever they are."""
        moved = 0
        for message in messages:
            if not isinstance(message.payload, bytes):
                message.payload = message.body()
                moved += message.size
        self._count_paged_out(-moved)

    def append_run(self, sequences: list[int], payloads: list[bytes], expiries: list[int]) -> None:
        """Put messages at the end; there is an expiry for each, or none at all. Thousands at once
        cost half of one by one.
        """
        if not (
            len(self.messages) > LONG
            and self.may_pack
            and self.messages.add_segment(sequences, payloads, expiries)
        ):
            columns = (sequences, payloads, expiries) if expiries else (sequences, payloads)
            self.messages.update(zip(sequences, map(self.kind, *columns), strict=True))
        self.ordering.add_run(sequences)
        size = sum(map(len, payloads))
        self.bytes += size
        self._use.bodies += size

    def remove(self, sequences: Iterable[int], cause: int = Cause.ACCEPTED) -> None:
        """Forget messages that left, and count them by their cause. Unknown ones were never here:
        they came and left before this broker heard of them.
        """
        sequences = list(sequences)
        count, size, paged_out = len(self.messages), 0, 0
        if self.left is None:  # Else it is to be told of each.
            sequences, size, paged_out = self.messages.drop_run(sequences)
        gone = self.messages.pop_run(sequences)
        count -= len(self.messages)
        size += sum([message.size for message in gone])
        self.bytes -= size
        self.bytes_departed += size
        self._use.bodies -= size
        if cause >= len(self.departed):  # a cause that only a later version knows
            self.departed += [0] * (cause + 1 - len(self.departed))
        self.departed[cause] += count
        if paged_out:
            self._count_paged_out(-paged_out)
        if self.acquired:
            self.acquired -= sum([message.acquired for message in gone])
        if self.paged_out:
            out = [one.size for one in gone if not isinstance(one.payload, bytes)]
            self._count_paged_out(-sum(out))
        if self.left is not None:
            for message in gone:
                self.left(message)
        self.ordering.tidy()

    def acquire(self, message: Message) -> None:
        """Keep an available message for one consumer."""
        message.acquired = True
        self.acquired += 1

    def restate(self, sequence: int, delivery_count: int, annotations: bytes) -> None:
        """Set the delivery count and the annotations of a message."""
        message = self.messages.get(sequence)
        if message is not None:
            message.delivery_count = delivery_count
            message.annotations = annotations

    def page_out(self, first: int, last: int, body: PagedPayload) -> int:
        """Let messages `first` to `last` of the log be read from `body` and keep their bytes no
        more; return how many bytes those were.
        """
        if self.stays:
            return 0
        first = max(first, self.own_numbers + 1)
        moved = self.messages.page_out(first, last, body)
        for message in self._at_hand(first, last):
            if isinstance(message.payload, bytes):
                message.payload = body
                moved += message.size
        self._count_paged_out(moved)
        return moved

    def page_out_run(
        self, numbers: Sequence[int], payloads: Mapping[int, bytes], body: PagedPayload
    ) -> int:
        """Do so with messages of these numbers, if `body` gives them as they are: as `payloads`."""
        if self.stays:
            return 0
        moved = self.messages.page_out_same(numbers, payloads, body)
        for number in numbers:
            message = self.messages.at_hand(number)
            if (
                message is not None
                and isinstance(message.payload, bytes)
                and message.payload == payloads[number]
            ):
                message.payload = body
                moved += message.size
        self._count_paged_out(moved)
        return moved

    def page_out_some(
        self, cursor: int, keep: int, *, count: int, size: int, place: Place
    ) -> tuple[int, int, bool]:
        """Look at up to `count` messages after sequence `cursor`, and keep the bytes of none but
        the first `keep`, until `size` bytes are let go. Return with what to go on, sequence and
        bytes to keep, and whether there is nothing more that can be let go.
        """
        if self.stays:
            return cursor, keep, True
        body: PagedPayload | None = None
        through = moved = 0
        is_over = False
        start, packed = cursor, self.messages.packed
        for message in self.ordering.after(cursor):
            if not count or moved >= size:
                break
            if not isinstance(message.payload, bytes) or message.sequence <= self.own_numbers:
                pass
            elif keep > 0:
                keep -= message.size
            else:
                if message.sequence > through:
                    found = place(message.sequence)
                    if found is None:
                        is_over = True
                        break
                    body, through = found
                assert body is not None
                message.payload = body
                moved += message.size
            cursor = message.sequence
            count -= 1
        else:
            is_over = True
        self._count_paged_out(moved)
        if self.messages.packed < packed and isinstance(self.ordering, Fifo):
            self.messages.pack(self.ordering.between(start, cursor))
        return cursor, keep, is_over

    def ordered(self) -> list[int]:
        """Return the sequences of all messages, lowest first."""
        return [message.sequence for message in self.ordering.after(0)]

    def messages_after(self, cursor: int, max_bytes: int) -> list[Message]:
        """Return the messages after sequence `cursor`, acquired or not: as many as fit, but one at
        least if there is one.
        """
        return _some(self.ordering.after(cursor), UNLIMITED, max_bytes)

    def part_after(
        self, cursor: int, last: int, max_bytes: int = UNLIMITED, *, most: int = UNLIMITED
    ) -> Segment | list[Message]:
        """Return messages after sequence `cursor`, up to `last`, acquired or not: a segment with
        all that are in its row; or `most`, and as many as fit, but one at least if there is one.
        """
        messages, ordering = self.messages, self.ordering
        if not messages.packed or type(ordering) is not Fifo:
            found = _some(ordering.after(cursor), most, max_bytes)
            return [message for message in found if message.sequence <= last]
        segment = messages.segment_after(cursor)
        before = min(last, segment.sequences[0] - 1) if segment is not None else last
        while sequences := ordering.between(cursor, before, AT_ONCE):
            if found := _some(messages.unpacked_of(sequences), most, max_bytes):
                return found
            cursor = sequences[-1]
        if segment is None or before == last:
            return []
        end = segment.sequences[-1]
        if (
            end <= last
            and segment.total <= WHOLE
            and not (self.delayed and any(map(self.delayed.__contains__, segment.sequences)))
            and (
                isinstance(segment.sequences, range)
                or not messages.unpacked_of(ordering.between(before, end))
            )
        ):
            return segment
        messages.get(end)
        return self.part_after(cursor, last, max_bytes, most=most)

    def available(self) -> list[Message]:
        """Return the messages that no consumer has, the next one first."""
        return list(self.ordering.waiting())

    def unreplicated(self, committed: int) -> int:
        """Count the messages after sequence `committed`: not every in-sync broker has them yet."""
        return self.ordering.count_after(committed) if self.logged else 0

    def _count_paged_out(self, moved: int) -> None:
        """So many bytes are in memory no more; or, below 0, have left that were not."""
        self.paged_out += moved
        self._page_out_above += moved
        self._use.bodies -= moved
        self._set_heeds()

    def _set_heeds(self) -> None:
        self.heeds = self.paged_out > 0 or self.left is not None

    def _forget_paged_out(self, message: Message) -> None:
        """A message left whose bytes may not have been in memory."""
        if not isinstance(message.payload, bytes):
            self._count_paged_out(-message.size)

    def _clear(self) -> tuple[Messages, Ordering]:
        """Forget everything, and return what there was."""
        former = self.messages, self.ordering
        self.messages = Messages()
        self.ordering = self._make_ordering(self.messages)
        self._page_out_above -= self.paged_out
        self._use.bodies -= self.resident
        self.bytes = self.paged_out = self.acquired = 0
        self._set_left()
        return former


def _some(messages: Iterable[Message], most: int, size: int) -> list[Message]:
    """Return the first messages, at most so many, of at most so many bytes, but one at least."""
    found: list[Message] = []
    for message in messages:
        size -= message.size
        if found and (size < 0 or len(found) >= most):
            break
        found.append(message)
    return found
