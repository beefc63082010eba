"""The order of a queue's messages: which one is next.

Messages are in the queue's `messages`, by sequence; an ordering keeps only their sequences and
knows its place among them. `Fifo` is here; others (`priority.py`) implement `Ordering` as well and
are chosen by the queue's spec; nothing else in a queue knows which message is next.

Why replicas agree. An ordering is a function of the messages present, their sequences and what is
written in the messages themselves: of nothing that only one broker knows, such as the time of
arrival, the order in which records were applied, or who consumes. A backup applies enqueues and
dequeues, never asks for the next message, and may get messages out of turn (a snapshot comes beside
newer records). When it is promoted it calls `restart`, and from then on gives the messages in the
order in which the former primary would have.

A `Fifo` is not told of departures: a message that is no longer in `messages` has left. So the short
way out of a queue costs no search here. What remains of such messages is passed over by `take` and
thrown away by `tidy`, once there is more of it than messages. An ordering that counts its messages
has a `left`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from heapq import heapify, heappop, heappush
from itertools import islice, repeat, takewhile
from operator import eq
from typing import TYPE_CHECKING, Protocol

from qpidha.model.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from qpidha.broker.queues.messages import Messages

SLACK = 1000
"""Sequences of departed messages that a Fifo may hold beyond the number of messages present, before
it throws them away. At 1,000 a queue that is empty most of the time never pays for it.
"""


class Ordering(Protocol):
    """Who is next among the messages of one queue.

    - A message is available while it is in `messages` and not acquired.
    - `take` gives the available message that is first, and steps past it. The caller acquires it,
      lets it leave, or gives it back with `restore`.
    - Every available message is given by `take` at some time: `restore` is called whenever a
      message becomes available again.
    - `tidy` is called before a series of `take`. Messages may be added, restored or leave during
      it.
    """

    kind: type[Message]
    """What the queue is to make of what comes."""

    @property
    def left(self) -> Callable[[Message], None] | None:
        """Called with each message that has left; None if it need not be."""
        ...

    @property
    def last(self) -> int:
        """The highest sequence that was added and may still be here; 0 if there is none."""
        ...

    @property
    def add(self) -> Callable[[int], None]:
        """Called with the sequence of a message that has come, above `last`; the message is in
        `messages`. An attribute of a `Fifo`, so that it needs no call of its own.
        """
        ...

    @property
    def is_by_sequence(self) -> bool:
        """Whether `take` gives lower sequences first."""
        ...

    def place(self, message: Message) -> int:
        """Return a number for the place of a message, for those who hand out some of the messages
        only (`selection.py`): `take` gives lower ones first. Its lowest 64 bits are the sequence.
        """
        ...

    def add_run(self, sequences: list[int]) -> None:
        """Messages with rising sequences, all above `last`, have come."""
        ...

    def out_of_turn(self) -> None:
        """What is added next may have sequences below `last`; until `tidy`, which puts it in
        order.
        """
        ...

    @property
    def take(self) -> Callable[[], Message | None]:
        """Returns the first available message and steps past it; None if there is none."""
        ...

    def restore(self, message: Message) -> None:
        """A message that `take` stepped past is available again, in its place."""
        ...

    def restore_run(self, messages: list[Message]) -> None:
        """Messages that `take` has just stepped past stay available, each in its place."""
        ...

    def waiting(self) -> Iterator[Message]:
        """Walk through the available messages in the order of `take`, without stepping past any.
        The queue must not change meanwhile.
        """
        ...

    def giving_way(self, payload: bytes | None) -> Iterator[Message]:
        """Walk through the available messages that may make room for a newcomer in a full queue,
        or for any if it is None, the first to go first. The queue must not change meanwhile.
        """
        ...

    def before(self, message: Message) -> Iterator[Message]:
        """Walk through the messages, acquired or not, that would give way before one. The queue
        must not change meanwhile.
        """
        ...

    def replaced_by(self, payload: bytes) -> Message | None:
        """Return the message that leaves when this one comes, with the cause REPLACED; None if
        there is none.
        """
        ...

    def after(self, cursor: int) -> Iterator[Message]:
        """Walk through the messages after sequence `cursor`, acquired or not, by their sequences
        whatever the kind of ordering: for snapshots, which go on where they stopped.
        """
        ...

    @property
    def level_count(self) -> int:
        """How many levels a browser goes through, each from where it stopped."""
        ...

    def unseen(self, seen: list[int]) -> Iterator[tuple[int, Message]]:
        """Walk through the messages that a browser was not shown, acquired or not, each with its
        level: those of the highest level first, and of each those after a sequence.
        """
        ...

    def count_after(self, cursor: int) -> int:
        """Count what `after` would give."""
        ...

    def lowest(self) -> int:
        """Return the lowest sequence of a message, acquired or not; 0 if there is none. To ask
        often costs nothing.
        """
        ...

    def tidy(self) -> None:
        """Put messages in order that came out of turn, and discard what has left."""
        ...

    def restart(self) -> None:
        """Begin again: no message is acquired."""
        ...


class BySequence:
    """The order of the sequences, whatever is to be noted when a message comes (`add`).

    - `_order` holds the sequences of all messages present, and some of messages that have left. It
      is sorted unless `_is_sorted` is False.
    - No available message is before `_head` but those in `_back`, a heap of the sequences of
      messages that were given back, and of some that have left since. So `take` looks at every
      message once, and once more each time that it is given back. One that was acquired there
      without `take`, by a consumer with a selector, and given back again is in the heap twice.
    """

    __slots__ = (
        "_back",
        "_find",
        "_front",
        "_head",
        "_highest",
        "_is_sorted",
        "_messages",
        "_order",
    )
    kind: type[Message] = Message
    is_by_sequence = True
    level_count = 1
    left: Callable[[Message], None] | None = None

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._find = messages.get
        """As they are now, none of the messages is packed, so this never finds one that is."""
        self._order = array("q")
        self._head = 0
        self._front = 0
        """So many of the first sequences have left, at least."""
        self._back: list[int] = []
        self._is_sorted = True
        self._highest = 0
        """While not `_is_sorted`: no sequence before the last one is above this."""

    def __len__(self) -> int:
        return len(self._order)

    @property
    def last(self) -> int:
        """The highest sequence that was added and may still be here; 0 if there is none."""
        order = self._order
        if not order:
            return 0
        return order[-1] if self._is_sorted else max(order[-1], self._highest)

    def place(self, message: Message) -> int:
        """Return the sequence."""
        return message.sequence

    def add_run(self, sequences: list[int]) -> None:
        """Put messages with rising sequences, all above `last`, at the end."""
        self._order.extend(sequences)

    def out_of_turn(self) -> None:
        """Expect sequences below `last`."""
        # Only a backup gets messages out of turn, many at a time, and none is delivered
        # meanwhile. To sort them once for all is cheaper than to find a place for each.
        self._highest = self.last
        self._is_sorted = False

    def take(self) -> Message | None:
        """Return the oldest available message and step past it; None if there is none."""
        if self._back:
            message = self._oldest_back()
            if message is not None:
                self._step_back()
                return message
        order, find, head = self._order, self._find, self._head
        while head < len(order):
            message = find(order[head])
            if message is None:
                message = self._messages.get(order[head])
            head += 1
            if message is not None and not message.acquired:
                # Saved before the message is handed over: a consumer may give it back at once, and
                # `restore` compares with the head.
                self._head = head
                return message
        self._head = head
        return None

    def peek(self) -> Message | None:
        """Return what `take` would, without stepping past it."""
        message = self._oldest_back()
        if message is not None:
            return message
        order, find = self._order, self._messages.get
        for head in range(self._head, len(order)):
            message = find(order[head])
            if message is not None and not message.acquired:
                self._head = head
                return message
        self._head = len(order)
        return None

    def _oldest_back(self) -> Message | None:
        """Return the message at the top of the heap; what is above it, and has left, goes."""
        back, messages = self._back, self._messages
        while back:
            message = messages.get(back[0])
            if message is not None and not message.acquired:
                return message
            heappop(back)
        return None

    def _step_back(self) -> None:
        """Step past the message at the top of the heap, however often it is there."""
        back = self._back
        sequence = heappop(back)
        while back and back[0] == sequence:
            heappop(back)

    def restore(self, message: Message) -> None:
        """Keep a message for the next `take`, if it is before the head."""
        order, sequence = self._order, message.sequence
        if self._head == len(order) or sequence < order[self._head]:
            heappush(self._back, sequence)

    def restore_run(self, messages: list[Message]) -> None:
        """Keep messages for the next `take`; all of them are before the head."""
        if messages:
            self._back += [message.sequence for message in messages]
            heapify(self._back)

    def waiting(self) -> Iterator[Message]:
        """Walk through the available messages, oldest first."""
        self.tidy()
        order, messages = self._order, self._messages
        if self._oldest_back() is not None:
            back = self._back
            # Down the heap, from each to the two that stand below it: a full ring queue asks for
            # its oldest with every message that comes, and all must not be sorted for a few.
            next_ones, former = [(back[0], 0)], 0
            while next_ones:
                sequence, place = heappop(next_ones)
                for below in range(2 * place + 1, min(2 * place + 3, len(back))):
                    heappush(next_ones, (back[below], below))
                if sequence == former:
                    continue
                former = sequence
                message = messages.get(sequence)
                if message is not None and not message.acquired:
                    yield message
        is_first = True
        for index in range(self._head, len(order)):
            message = messages.get(order[index])
            if message is not None and not message.acquired:
                if is_first:
                    # What has left must not be passed over each time either.
                    self._head = index
                    is_first = False
                yield message
        if is_first:
            self._head = len(order)

    def giving_way(self, payload: bytes | None) -> Iterator[Message]:
        """Walk through the available messages, oldest first, whatever comes."""
        return self.waiting()

    def before(self, message: Message) -> Iterator[Message]:
        """Walk through the messages that came before one."""
        return takewhile(lambda other: other is not message, self.after(0))

    def replaced_by(self, payload: bytes) -> Message | None:
        """Return None: messages stay, whatever comes."""
        return None

    def ahead(self, count: int) -> int:
        """Return a sequence after which none of the next `count` messages are."""
        at = min(self._head + count, len(self._order))
        return self._order[at - 1] if at else 0

    def behind(self, cursor: int) -> int:
        """Count the messages after a sequence, and some that have left."""
        self.tidy()
        return len(self._order) - bisect_right(self._order, cursor)

    def between(self, cursor: int, last: int, count: int | None = None) -> array[int]:
        """Return the sequences after `cursor`, up to `last`, of which some may have left; at most
        so many.
        """
        self.tidy()
        order = self._order
        start, end = bisect_right(order, cursor), bisect_right(order, last)
        return order[start : end if count is None else min(start + count, end)]

    def after(self, cursor: int) -> Iterator[Message]:
        """Walk through the messages after a sequence, oldest first."""
        self.tidy()
        messages, order = self._messages, self._order
        for index in range(bisect_right(order, cursor), len(order)):
            message = messages.get(order[index])
            if message is not None:
                yield message

    def unseen(self, seen: list[int]) -> Iterator[tuple[int, Message]]:
        """Walk through the messages that a browser was not shown, oldest first."""
        return zip(repeat(0), self.after(seen[0]))

    def count_after(self, cursor: int) -> int:
        """Count the messages after a sequence."""
        self.tidy()
        following = self._order[bisect_right(self._order, cursor) :]
        return len(self._messages.here(following))

    def lowest(self) -> int:
        """Return the lowest sequence; what has left before it is cut off, so that nobody passes
        over it again.
        """
        self.tidy()
        order = self._order
        gone = self._gone()
        if gone > len(order) // 64:
            self._cut(gone)
            gone = 0
        return order[gone] if gone < len(order) else 0

    def _gone(self) -> int:
        """Count the sequences before that of the first message that is here; none is looked at
        twice.
        """
        self._front = self._messages.gone(self._order, self._front)
        return self._front

    def _cut(self, gone: int) -> None:
        """Throw away the first sequences: their messages have left."""
        del self._order[:gone]
        self._head = max(0, self._head - gone)
        self._front = max(0, self._front - gone)

    def tidy(self) -> None:
        """Sort what came out of turn; discard departed messages when they are the greater part."""
        self._discard(len(self._messages))

    def _discard(self, present: int) -> None:
        """Tidy, with so many messages present."""
        order = self._order
        # What is in it twice or has left is the greater part by then, so each pays for one other.
        if len(self._back) > 2 * present + SLACK:
            self._back = self._messages.here(set(self._back))
        if not self._is_sorted:
            self._is_sorted = True
            self._highest = 0
            ordered: Iterable[int] = sorted(order)
            if any(map(eq, ordered, islice(ordered, 1, None))):
                ordered = dict.fromkeys(ordered)  # Some have left, and come again.
            order[:] = array("q", ordered)
            # What came out of turn may be before the head. To look at everything once more is
            # cheap beside sorting.
            self._head = self._front = 0
            self._back.clear()
        # Messages mostly leave from the front. What has left there is cut off when it is a 64th of
        # the list, so that with a million messages no turn has to look at all of them.
        if len(order) > present + present // 64 + SLACK:
            gone = self._gone()
            if gone >= SLACK:
                self._cut(gone)
        # Half of the list at least is discarded, so each message pays for one discarded entry: the
        # cost of this is constant for each message.
        if len(order) > 2 * present + SLACK:
            following = order[self._head] if self._head < len(order) else None
            order[:] = array("q", self._messages.here(order))
            self._front = 0
            self._head = len(order) if following is None else bisect_left(order, following)

    def restart(self) -> None:
        """Begin with the oldest message again."""
        self.tidy()
        self._head = 0
        self._back.clear()


class Fifo(BySequence):
    """First in, first out."""

    __slots__ = ("add",)

    def __init__(self, messages: Messages) -> None:
        super().__init__(messages)
        self.add = self._order.append
