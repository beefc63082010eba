"""The source: what happens on a queue here, streamed to a replica of it elsewhere.

A stream begins with what the replica has: ranges of message numbers (`Held`). The queue is walked
through once by rising numbers, some a turn: a message that the replica lacks is sent, and one that
it has and the queue has not is told to have left. The same walk makes a new replica whole and one
that was away. From then on the stream follows: at the end of each turn a `Mark` is made of what
left, or changed, in that turn, and marks are sent in order, each behind what came before its end.

What is streamed can never be taken back, and what was accepted is never missing:

- A message is sent when it is committed, and its departure is told when that is. So a successor in
  a cluster has no less than what was streamed, and the replica nothing that this one may forget.
- A message that has left, while that is not committed, counts as being there: the successor may
  have it. Its mark keeps it until then (`Mark.kept`).
- The walk does not begin before all is committed that had left before: else it would take what the
  successor may have for gone.
- While a stream follows, a departure is not told before all that came earlier was sent. A new value
  and the old one whose place it takes are so never both missing on the replica.

A *position* is a place in the log with its *lineage*, which names a history of it: the epoch on a
member of a cluster, and the start of the process on a broker alone. Where the messages of a queue
are not in the log it is a number of the queue's own: of what a member keeps for itself on its disk
(`store/local_log.py`), where all is synced before it is streamed and no such number is given again,
also after a restart; or of this process. Numbers of one lineage are given once. A replica whose
position is not in our history, or beyond its end, has what this broker lost: it is refused, and an
operator decides which of the two is to stay.

Not more than `ha-flow-messages`, and a window of bytes, are on their way to a replica that has not
confirmed them; what waits here are numbers, and when they are too many the stream ends: the walk
through the differences is shorter then. Source: Qpid `ReplicatingSubscription.cpp`.
"""

from __future__ import annotations

from array import array
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from qpidha.model.errors import NotAllowed, ProtocolViolation, QpidHaError
from qpidha.model.event_codes import REPLICA_NOT_SERVED
from qpidha.model.records import Requeued
from qpidha.replicas.wire import (
    DIVERGED,
    GONE,
    NOT_ALLOWED,
    REPLACED,
    Begin,
    Changes,
    Confirm,
    Follow,
    Held,
    Refused,
)
from qpidha.store.codec import encode_dequeues, encode_enqueues, encode_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from qpidha.broker.broker import Broker
    from qpidha.broker.queues.queue import Queue
    from qpidha.model.message import Message
    from qpidha.replicas.wire import Message as Said

SLICE = 256 << 10
"""Bytes that one stream sends in one turn, roughly, and may read from disk for that."""
MOST_AT_ONCE = 1000
"""Messages of one part."""
NUMBERS_AT_ONCE = 20_000
"""Departures of one part."""
WINDOW = 4 << 20
"""Bytes that may be on their way to a replica, unless one message has more."""
MOST_HELD = 100_000_000
"""Messages that a replica may say that it has."""
MOST_REFUSED = 1000
"""Brokers that are remembered to be refused a queue, which is told once."""
MOST_BEHIND = 200_000
"""Departures that may wait to be told; with more the stream ends, and begins anew."""


class Mark:
    """What left, or changed, in one turn."""

    __slots__ = ("changed", "gone", "kept", "stamp", "through")

    def __init__(self) -> None:
        self.stamp = 0
        """It may be told when the log is committed up to here."""
        self.through = 0
        """The last number that was given until the end of that turn."""
        self.gone: list[int] = []
        """Numbers of messages that were sent before they left."""
        self.kept: dict[int, Message] = {}
        """Messages that left before they were sent, until that is committed."""
        self.changed: dict[int, None] = {}


class Home(Enum):
    """Where the messages of a queue are recorded."""

    LOG = "log"
    LOCAL = "local"  # what this member of a cluster keeps for itself, on its disk
    MEMORY = "memory"


class SourceNode(Protocol):
    """The broker around the streams."""

    @property
    def broker(self) -> Broker:
        """Its queues."""

    @property
    def now(self) -> int:
        """The time of this turn, in ns."""

    @property
    def flow_messages(self) -> int:
        """How many messages may be on their way to a replica; 0 for any number."""

    def lineage(self, queue: Queue, position: int) -> str:
        """Return of which history a position is that is committed."""

    def end_of_lineage(self, queue: Queue, lineage: str) -> int:
        """Return up to where this broker has a history; -1 if it has nothing of it."""

    def home_of(self, queue: Queue) -> Home:
        """Return where the messages of a queue are recorded."""

    def end_of(self, queue: Queue) -> int:
        """Return the place to wait for with what has happened on a queue so far."""

    def committed_of(self, queue: Queue) -> int:
        """Return up to which place what happened on a queue is committed."""


class Stream:
    """What one replica is sent of one queue."""

    def __init__(self, node: SourceNode, queue: Queue, follow: Follow, peer: str) -> None:
        self.node = node
        self.queue = queue
        self.peer = peer
        self._has_all_held = False
        self._held = array("Q")
        """First and last number of each range that the replica has, by rising numbers."""
        self._held_at = self._held_count = 0
        self._position = follow.position
        self._home = node.home_of(queue)
        if self._home is Home.LOCAL and queue.local_writer is not None:
            queue.local_writer.watched(queue)
        self._barrier = node.end_of(queue)
        """Up to here all is to be committed before the walk begins."""
        self._given: deque[tuple[int, int]] = deque()
        """(place, last number) at the end of each turn that gave numbers of the queue's own, until
        that is committed.
        """
        self._synced = 0
        """The last such number that may be streamed."""
        self._expect_all()
        self._walk_end = 0
        self.cursor = 0
        """Up to this number the replica has all messages that are here, or was told that they are
        not.
        """
        self._there = 0
        """How many messages the replica has."""
        self.is_walking = False
        self.is_following = False
        self._fresh: Mark | None = None
        self._uncommitted: deque[Mark] = deque()
        self._marks: deque[Mark] = deque()
        """Those that may be told."""
        self._waiting = 0
        """Departures in all marks."""
        self._number = 0
        self._flight: deque[tuple[int, int]] = deque()
        """(messages, bytes) of each part that is not confirmed."""
        self._confirmed = 0
        self._messages = self._bytes = 0
        """On their way."""
        self._late_since = 0
        self._was_whole = False
        """Whether the replica was whole after the last part."""
        self.connection_id = 0

    # -- what the queue tells ---------------------------------------------------------------------

    def left(self, message: Message) -> None:
        """A message has left in this turn."""
        mark = self._mark()
        if message.sequence <= self.cursor:
            mark.gone.append(message.sequence)
        else:
            mark.kept[message.sequence] = message
        self._waiting += 1

    def changed(self, message: Message) -> None:
        """A message was given back, with another count, or annotations, or for later."""
        if message.sequence <= self.cursor:
            self._mark().changed[message.sequence] = None

    def _mark(self) -> Mark:
        if self._fresh is None:
            self._fresh = Mark()
        return self._fresh

    # -- what the replica says --------------------------------------------------------------------

    def hold(self, held: Held) -> None:
        """Take what the replica has."""
        if self._has_all_held:
            raise ProtocolViolation("the replica has said already what it has")
        if self._held and held.ranges and held.ranges[0][0] <= self._held[-1]:
            raise ProtocolViolation("the ranges of a replica do not rise")
        for first, last in held.ranges:
            self._held.extend((first, last))
            self._held_count += last - first + 1
        if self._held_count > MOST_HELD:
            raise ProtocolViolation("the replica says that it has more than can be")
        if self._held and self._held[-1] > self._position:
            raise ProtocolViolation("the replica has messages behind its position")
        self._has_all_held = held.is_last

    def confirm(self, confirm: Confirm) -> None:
        """The replica has parts to stay."""
        if confirm.number > self._number:
            raise ProtocolViolation("the replica confirms what it was not sent")
        while self._confirmed < confirm.number:
            messages, size = self._flight.popleft()
            self._messages -= messages
            self._bytes -= size
            self._confirmed += 1

    # -- the end of a turn ------------------------------------------------------------------------

    @property
    def is_too_far_behind(self) -> bool:
        """Whether it is shorter to begin anew."""
        return self._waiting > MOST_BEHIND

    def end_turn(self, committed: int) -> None:
        """Close the mark of this turn; what is committed by now may be told."""
        mark, self._fresh = self._fresh, None
        node, queue, uncommitted = self.node, self.queue, self._uncommitted
        home = node.home_of(queue)
        if home is not self._home:
            # Its replicate level has changed: what is recorded here by now stands for all before.
            self._home, end = home, node.end_of(queue)
            self._expect_all()
            for each in uncommitted:
                each.stamp = end
        if mark is not None:
            mark.stamp = node.end_of(queue)
            mark.through = mark.stamp if queue.logged else queue.ordering.last
            uncommitted.append(mark)
        if home is Home.LOCAL:
            self._note_given(committed)
        while uncommitted and uncommitted[0].stamp <= committed:
            mark = uncommitted.popleft()
            # What left before it was sent was never on the replica; or it was there before, and
            # then the walk finds it missing.
            self._waiting -= len(mark.kept)
            mark.kept.clear()
            if mark.gone or mark.changed:
                self._marks.append(mark)

    def _expect_all(self) -> None:
        """What is here by now may be streamed when all of it is committed."""
        self._given.clear()
        if self._home is Home.LOCAL:
            self._given.append((self.node.end_of(self.queue), self.queue.last_number))

    def _note_given(self, committed: int) -> None:
        given, last = self._given, self.queue.last_number
        if last > (given[-1][1] if given else self._synced):
            given.append((self.node.end_of(self.queue), last))
        while given and given[0][0] <= committed:
            self._synced = given.popleft()[1]

    def rests(self) -> bool:
        """Whether nothing is to be done before something happens: the replica says something, or
        the queue stirs. What waits for a commit is looked after in each turn.
        """
        if not self._has_all_held or not self.has_room():
            return True
        is_told = not (self._fresh or self._uncommitted or self._marks or self._given)
        return self.is_following and is_told and self.cursor >= self.queue.ordering.last

    def has_room(self) -> bool:
        """Whether the replica may have more on its way."""
        most = self.node.flow_messages
        return not self._flight or (self._bytes < WINDOW and (not most or self._messages < most))

    def next(self, committed: int) -> Changes | None:
        """Return what is to be sent now; None for nothing."""
        if not self._has_all_held or not self.has_room():
            return None
        limit = self._limit(committed)
        if not (self.is_walking or self.is_following):
            if self._barrier > committed:
                return None
            self.is_walking, self._walk_end = True, max(limit, self._position)
        part = Part()
        if self.is_walking:
            self._walk(part)
        if self.is_following:
            self._go_on(part, limit)
        is_whole = self.is_following and self.cursor >= limit and not self._marks
        if not part.parts and (not is_whole or self._was_whole):
            return None
        self._was_whole = is_whole
        return self._made(part, max(self.cursor, self._walk_end), is_whole)

    def _made(self, part: Part, position: int, is_whole: bool) -> Changes:
        self._number += 1
        self._flight.append((part.messages, part.size))
        self._messages += part.messages
        self._bytes += part.size
        behind = 0 if is_whole else self.behind()
        late = self.node.now - self._late_since if behind and self._late_since else 0
        lineage = self.node.lineage(self.queue, position)
        data = b"".join(part.parts)
        return Changes(self._number, lineage, position, is_whole, behind, max(late, 0), data)

    def _limit(self, committed: int) -> int:
        """Return up to which number messages may be sent."""
        queue = self.queue
        if queue.logged:
            return committed
        if self._home is Home.LOCAL:
            return max(self._synced, self.cursor)
        return (
            max(queue.ordering.last, self.cursor) if queue.waits_for <= committed else self.cursor
        )

    def _walk(self, part: Part) -> None:
        """Go on through the queue; departures that are committed are told at once."""
        while self._marks and not part.is_full:
            self._tell(part)
        while self.cursor < self._walk_end and not part.is_full:
            if not self._advance(part, self._walk_end):
                return
        if self.cursor >= self._walk_end:
            self.is_walking, self.is_following = False, True

    def _go_on(self, part: Part, limit: int) -> None:
        """Send what came, and tell what left, in the order of the turns."""
        while not part.is_full:
            through = min(self._marks[0].through, limit) if self._marks else limit
            if self.cursor < through:
                if not self._advance(part, through):
                    return
            elif self._marks:
                self._tell(part)
            else:
                break

    def _advance(self, part: Part, through: int) -> bool:
        """Send the next messages up to a number, and tell which the replica has and the queue has
        not; False if that has to wait.
        """
        cursor = self.cursor
        there, end = self._next_messages(part, through)
        for mark in self._uncommitted:
            for number, message in mark.kept.items():
                if cursor < number <= end and not isinstance(message.payload, bytes):
                    # It may be on the disk no more. When that is committed it has left, or is back.
                    end = number - 1
        if end == cursor:
            return False
        held, end = self._held_until(end, part.number_room)
        there = {number: message for number, message in there.items() if number <= end}
        for mark in self._uncommitted:
            for number in [number for number in mark.kept if cursor < number <= end]:
                there[number] = mark.kept.pop(number)
                mark.gone.append(number)  # The replica has it now, so its departure is to be told.
        part.add_gone(sorted(held - there.keys()))
        part.add(self.queue, [there[number] for number in sorted(there.keys() - held)])
        self._there += len(there)
        self.cursor = end
        return True

    def _next_messages(self, part: Part, through: int) -> tuple[dict[int, Message], int]:
        """Return the next messages on the queue for which there is room, and up to which number
        these are all.
        """
        there: dict[int, Message] = {}
        count, size = part.more, part.room
        for message in self.queue.ordering.after(self.cursor):
            if message.sequence > through:
                break
            count -= 1
            size -= message.size
            if there and (count < 0 or size < 0):
                return there, next(reversed(there))
            there[message.sequence] = message
        return there, through

    def _held_until(self, end: int, most: int) -> tuple[set[int], int]:
        """Take out what the replica has up to a number, or the first `most` of it; return with up
        to which number.
        """
        found: set[int] = set()
        held = self._held
        while self._held_at < len(held) and held[self._held_at] <= end:
            first, last = held[self._held_at], held[self._held_at + 1]
            reached = min(last, end, first + most - len(found) - 1)
            found.update(range(first, reached + 1))
            if reached < last:
                held[self._held_at] = reached + 1
            else:
                self._held_at += 2
            if len(found) >= most:
                return found, reached
            if reached == end:
                break
        return found, end

    def _tell(self, part: Part) -> None:
        """Tell what left and changed in the next of the turns, or some of it."""
        mark = self._marks[0]
        room = part.number_room
        numbers, mark.gone = mark.gone[:room], mark.gone[room:]
        part.add_gone(numbers)
        self._waiting -= len(numbers)
        self._there -= len(numbers)
        if mark.gone:
            return
        present = self.queue.messages
        part.restate(self.queue, [present[number] for number in mark.changed if number in present])
        self._marks.popleft()

    # -- how it is --------------------------------------------------------------------------------

    def behind(self) -> int:
        """Count the messages, and departures, that the replica has not been sent."""
        # What it has, but for what has left since, is here.
        present = max(self._there - self._waiting, 0)
        return max(len(self.queue.messages) - present, 0) + self._waiting

    def look(self, committed: int) -> None:
        """Note since when something waits."""
        # What the log has beyond the last message of this queue is not for it.
        limit = min(self._limit(committed), self.queue.ordering.last)
        is_behind = bool(self._flight) or self.cursor < limit or bool(self._marks)
        if not is_behind:
            self._late_since = 0
        elif not self._late_since:
            self._late_since = self.node.now

    def report(self) -> dict[str, Any]:
        """Tell how it is."""
        return {
            "queue": self.queue.name,
            "replica": self.peer,
            "state": "following" if self.is_following else "copying",
            "behind": self.behind(),
            "unconfirmed": self._messages,
            "late_ns": self.node.now - self._late_since if self._late_since else 0,
        }


class Part:
    """What is sent at once."""

    __slots__ = ("messages", "numbers", "parts", "size")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.messages = self.numbers = self.size = 0

    @property
    def is_full(self) -> bool:
        return (
            self.size >= SLICE or self.messages >= MOST_AT_ONCE or self.numbers >= NUMBERS_AT_ONCE
        )

    @property
    def room(self) -> int:
        """How many bytes of messages may still be added."""
        return max(SLICE - self.size, 1)

    @property
    def more(self) -> int:
        """How many messages may still be added."""
        return max(MOST_AT_ONCE - self.messages, 1)

    @property
    def number_room(self) -> int:
        """How many departures may still be added."""
        return max(NUMBERS_AT_ONCE - self.numbers, 1)

    def add_gone(self, numbers: list[int]) -> None:
        """Tell that messages have left."""
        if numbers:
            self.parts.append(encode_dequeues(0, numbers))
            self.numbers += len(numbers)
            self.size += 8 * len(numbers)

    def add(self, queue: Queue, found: list[Message]) -> None:
        """Send messages, verbatim, and how they are."""
        if not found:
            return
        data = encode_enqueues(
            0,
            [message.sequence for message in found],
            [message.body() for message in found],
            [message.expires for message in found],
        )
        self.parts.append(data)
        self.messages += len(found)
        self.size += len(data)
        delayed = queue.delayed
        self.restate(
            queue,
            [
                message
                for message in found
                if message.delivery_count or message.annotations or message.sequence in delayed
            ],
        )

    def restate(self, queue: Queue, found: list[Message]) -> None:
        """Say how messages are that were given back."""
        for message in found:
            due = queue.delayed.get(message.sequence, 0)
            record = Requeued(0, message.sequence, message.delivery_count, message.annotations, due)
            self.parts.append(encode_record(0, record))
            self.size += len(self.parts[-1])


class Watcher:
    """Tells all streams of one queue what happens on it."""

    def __init__(self, queue: Queue, wanting: dict[Stream, None]) -> None:
        self.queue = queue
        self.streams: dict[Stream, None] = {}
        self._wanting = wanting
        queue.set_watch(self)

    def stirred(self) -> None:
        """A message has come, or the queue decides no more, or has ended."""
        self._wanting.update(self.streams)

    def left(self, message: Message) -> None:
        """A message has left."""
        for stream in self.streams:
            stream.left(message)
        self._wanting.update(self.streams)

    def changed(self, message: Message) -> None:
        """A message is given back otherwise than it was."""
        for stream in self.streams:
            stream.changed(message)
        self._wanting.update(self.streams)


class Sources:
    """All streams of one broker, by the connections on which they are."""

    def __init__(
        self,
        node: SourceNode,
        send: Callable[[int, Said], None],
        close: Callable[[int, QpidHaError], None],
        announce: Callable[[str, str, str], None],
    ) -> None:
        self._node = node
        self._send = send
        self._close = close
        self._announce = announce
        self.streams: dict[int, Stream] = {}
        self.wanting: dict[Stream, None] = {}
        """Those that have something to do in this turn; others cost it nothing."""
        self._watchers: dict[Queue, Watcher] = {}
        self._refused: dict[tuple[str, str], str] = {}
        """(container, queue) -> why that broker has no replica of it, as it was told."""

    def follow(
        self, connection_id: int, peer: str, follow: Follow, check: Callable[[str], None]
    ) -> None:
        """Begin to stream a queue, or say why not; `check` raises unless who asks may have it."""
        if connection_id in self.streams:
            raise ProtocolViolation("this connection has the stream of a queue already")
        refused = self._refusal(follow, check)
        key = peer.partition(" at ")[0], follow.queue
        if refused is not None:
            if self._refused.get(key) != refused.text:
                if len(self._refused) >= MOST_REFUSED:
                    self._refused.clear()
                self._refused[key] = refused.text
                text = f"no replica of queue {follow.queue} for {peer}: {refused.text}"
                self._announce("info", text, REPLICA_NOT_SERVED)
            self._send(connection_id, refused)
            return
        self._refused.pop(key, None)
        queue = self._node.broker.queues[follow.queue]
        stream = Stream(self._node, queue, follow, peer)
        self.streams[connection_id] = stream
        watcher = self._watchers.get(queue)
        if watcher is None:
            watcher = self._watchers[queue] = Watcher(queue, self.wanting)
        watcher.streams[stream] = self.wanting[stream] = None
        stream.connection_id = connection_id
        self._send(connection_id, Begin(queue.uuid))

    def _refusal(self, follow: Follow, check: Callable[[str], None]) -> Refused | None:
        node, name = self._node, follow.queue
        try:
            check(name)
        except QpidHaError as error:
            return Refused(NOT_ALLOWED, error.text)
        queue = node.broker.find_queue(name)
        if queue is None or queue.deleted:
            return Refused(GONE, f"there is no queue {name}")
        if queue.is_replica:
            return Refused(NOT_ALLOWED, f"queue {name} is a replica itself")
        if not follow.uuid:
            return None
        if follow.uuid != queue.uuid:
            return Refused(
                REPLACED, f"queue {name} was deleted and declared again: it is another queue"
            )
        if follow.lineage and follow.position > node.end_of_lineage(queue, follow.lineage):
            return Refused(
                DIVERGED,
                f"the source has lost messages of queue {name}: the replica has come to "
                f"{follow.position} of {follow.lineage}, which is not there",
            )
        return None

    def turn(self) -> bool:
        """Send what there is to be sent, at the end of a turn; return whether there is more."""
        is_pressed = False
        for stream in list(self.wanting):
            queue, connection_id = stream.queue, stream.connection_id
            committed = self._node.committed_of(queue)
            stream.end_turn(committed)
            if queue.deleted or queue.is_replica:
                self._end(connection_id, Refused(GONE, f"queue {queue.name} is not here any more"))
                continue
            if stream.is_too_far_behind:
                self._end(connection_id, None)
                continue
            stream.look(committed)
            changes = stream.next(committed)
            if changes is not None:
                self._send(connection_id, changes)
                is_pressed = is_pressed or (not changes.is_whole and stream.has_room())
            if stream.rests():
                del self.wanting[stream]
        return is_pressed

    def want_all(self) -> None:
        """Look at all streams in the next turn."""
        self.wanting.update(dict.fromkeys(self.streams.values()))

    def _end(self, connection_id: int, last: Refused | None) -> None:
        self.lost(connection_id)
        if last is not None:
            self._send(connection_id, last)
            return
        self._close(
            connection_id,
            NotAllowed(
                "the replica is too far behind to be told everything one by one",
                hint="connect again: what differs is less",
            ),
        )

    def hold(self, connection_id: int, held: Held) -> None:
        """Take what a replica has."""
        self._stream(connection_id, lambda stream: stream.hold(held))

    def confirm(self, connection_id: int, confirm: Confirm) -> None:
        """Take a confirmation."""
        self._stream(connection_id, lambda stream: stream.confirm(confirm))

    def _stream(self, connection_id: int, take: Callable[[Stream], None]) -> None:
        stream = self.streams.get(connection_id)
        if stream is not None:  # Else it was refused, and did not know when it said this.
            take(stream)
            self.wanting[stream] = None

    def lost(self, connection_id: int) -> None:
        """A connection is gone."""
        stream = self.streams.pop(connection_id, None)
        if stream is None:
            return
        self.wanting.pop(stream, None)
        watcher = self._watchers[stream.queue]
        del watcher.streams[stream]
        if not watcher.streams:
            del self._watchers[stream.queue]
            stream.queue.set_watch(None)

    def report(self) -> Iterator[dict[str, Any]]:
        """Tell of all streams."""
        for stream in self.streams.values():
            yield stream.report()
