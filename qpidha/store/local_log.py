"""The local log: what a member of a cluster keeps for itself, so that its restart brings it back.

Whether something durable outlives a restart does not depend on its replicate level. What is `all`
is in the cluster's log. The rest, which no other broker has, is here: a second write-ahead log in
the folder `local`, with records of the same kinds in an order of its own, never sent to anybody.

- Durable queues and exchanges of level `none`, and durable bindings that the cluster's log does not
  have.
- The messages of durable queues of level `none` and `configuration`, under the numbers that these
  queues give. All are written; a durable one is synced before its sender is told.

An object is known by the place of the record that declared it here. One that the cluster declared
is known by its uuid: the record says what it was, and the object is looked for when the log is
read. So a cut of the cluster's log, a snapshot or another primary touch nothing here:

- A broker that is restarted has its objects and messages again before it hears of any other.
- A snapshot takes away all replicated objects, and brings those that there are. Messages of queues
  of level `configuration` are set aside meanwhile; the queue with that uuid gets them again.
- When the broker is ready, or is promoted, it knows what there is. What is still set aside belongs
  to queues that the cluster has deleted, and goes.
- A queue that is raised to `all` is in both logs until the end of that is committed. If this broker
  is restarted or steps down before, what the cluster's log lacks is set aside. It comes back to its
  queue when this broker is primary, if no other has ended it.
- One that leaves the cluster's log is a copy here first (`LevelChanged` without `logged`), synced
  before others forget it. It counts when the record by which they do names this broker, and is
  given up when the broker has all that the cluster has and there is no such record.
- One of level `configuration` that becomes `none`, or the other way round, is `none` here while the
  cluster may know of it or not: then it is that of the cluster which has its uuid, or this
  broker's own if there is none.
- A replicated queue takes the place of a local one with its name, as in Qpid.

Places here are above LOCAL, so who waits for the higher of two places, one here and one in the
cluster's log, waits for this one; and a turn that recorded in both is answered when both are
committed (`answer`). A place here is committed when this broker has synced it.

All bodies stay in memory. A checkpoint is made as the checkpointer makes it for the other log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from qpidha.broker.exchange import EXCHANGE_TYPES, Exchange
from qpidha.broker.queues.log_writer import LOCAL
from qpidha.broker.queues.messages import Segment
from qpidha.broker.queues.queue import Queue
from qpidha.broker.state import (
    DELETED_THERE,
    IN_LOG,
    KEYS_IN_RECORD,
    LOCAL_UID,
    gone_here,
    remembered,
)
from qpidha.model.effects import Announce
from qpidha.model.encoding import Parts
from qpidha.model.errors import LogDamaged, ProtocolViolation, UpgradeNeeded
from qpidha.model.event_codes import CUT_OFF
from qpidha.model.event_log import LogTrouble
from qpidha.model.features import FEATURES, UPGRADE_HINT
from qpidha.model.message_view import is_durable
from qpidha.model.records import (
    BUILT_IN_EXCHANGES,
    DEFAULT_EXCHANGE,
    Bound,
    DedupRemembered,
    Dequeued,
    ExchangeDeclared,
    ExchangeDeleted,
    LevelChanged,
    QueueDeclared,
    QueueDeleted,
    QueueUsed,
    Record,
    Requeued,
    Unbound,
)
from qpidha.model.replication_level import ALL, CONFIGURATION, NONE
from qpidha.store.codec import EnqueueRun, decode, encode_columns, encode_record, enqueue_parts
from qpidha.store.folder import DiskFolder
from qpidha.store.log import OF_OBJECTS, Log
from qpidha.store.log_reader import LogReader
from qpidha.store.recovery import CHUNK
from qpidha.store.weighing import PER_MESSAGE, PER_OBJECT
from qpidha.store.write_ahead_log import LOCAL_FOLDER, WriteAheadLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from qpidha.broker.broker import Broker
    from qpidha.broker.exchange import Destination
    from qpidha.model.message import Message
    from qpidha.store.disk import Disk
    from qpidha.store.write_ahead_log import Marks

INTERVAL = 1_000_000_000
"""How often it is considered whether to make a checkpoint, in ns."""
DAMAGED = (
    "look at the disk; then move the folder journal/local of data-dir away, and the broker starts "
    "without what no other has"
)
KEPT_HERE = (NONE, CONFIGURATION)
"""Levels of which the messages are here."""
NAME_TAKEN = "a replicated queue has that name"
EVERY_NUMBER = 1 << 62
OBJECTS_AT_ONCE = 500
"""Objects in one part of a checkpoint."""

Place = tuple[int, int, str]
"""Where a binding is: exchange, queue or exchange, key."""


class Mark(NamedTuple):
    """What is recorded of a queue beside its declaration and its messages."""

    level: str
    own_numbers: int = 0
    """The last number of its own, if this broker began to give it to the cluster's log."""
    is_copy: bool = False
    """Whether the cluster's log has the messages, which this broker is about to take out of it."""


class LocalLog:
    """What one broker keeps for itself."""

    def __init__(
        self,
        broker: Broker,
        disk: Disk,
        system_id: str,
        *,
        segment_size: int,
        marks: Marks,
        nonce: str = "",
    ) -> None:
        self.wal = WriteAheadLog(
            DiskFolder(disk, LOCAL_FOLDER),
            system_id,
            segment_size=segment_size,
            keep=0,
            nonce=nonce,
            marks=marks,
        )
        self.log = Log(0, self.wal)
        self._broker = broker
        self.system_id = system_id
        self._slack = 4 * segment_size
        self._things: dict[int, Destination] = {}
        """What is here, or set aside, by the place of its declaration."""
        self._places: dict[Destination, int] = {}
        self._references: dict[int, QueueDeclared | ExchangeDeclared] = {}
        """Replicated objects that bindings lead to or from, as they were declared."""
        self._by_uuid: dict[str, int] = {}
        """Their places, and those of queues of level configuration."""
        self._aside: dict[str, Queue] = {}
        """Messages of queues that are not there at present, by the uuid of the queue."""
        self._marks: dict[int, Mark] = {}
        """Of queues, by their places."""
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """(record of the cluster, place) of queues that are of level configuration here when that
        record is committed.
        """
        self._bindings: dict[Place, dict[str, Any]] = {}
        self._ends: dict[int, dict[Place, None]] = {}
        """Those that lead to or from a place."""
        self.has_queues = False
        """Whether there are, or were, queues of which the messages are recorded here."""
        self.is_settled = False
        """Whether this broker had all that the cluster has since it was started or decided last.
        Before, records may be older than what is here, and nothing is given up for them.
        """
        self._needs = 0
        """Up to where the cluster's log is to be committed for what is recorded in this turn."""
        self._waiting: deque[tuple[int, int]] = deque()
        """(last place, the same) of each turn that is not answered."""
        self._answered = 0
        self._next = 1
        self._is_wanted = False
        self._parts: Iterator[bytes] | None = None
        self._part_mark = 0

    # -- recording --------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The place of the last record so far, 0 if there is none."""
        return LOCAL + self.log.end if self.log.end else 0

    def enqueue(self, queue: Queue, number: int, payload: bytes, expires: int) -> int:
        """Record a message under the number that its queue gave it."""
        place = self._place(queue)
        log = self.log
        if not (queue.syncs and log.must_sync) and is_durable(payload):
            log.must_sync = queue.syncs = True
        elif queue.watch is not None:
            log.must_sync = True
        self._needs = max(self._needs, queue.waits_for)
        return LOCAL + log.enqueue_numbered(place, [number], [payload], [expires])

    def watched(self, queue: Queue) -> int:
        """A replica elsewhere follows a queue: what it is told is to be on the disk before, whether
        it is durable or not, or a number could be given once more after a loss of power. Return the
        place to wait for with what is there already.
        """
        self.log.must_sync = True
        return self._mark(self._place(queue))

    def dequeue(self, queue: Queue, numbers: Sequence[int], cause: int) -> int:
        """Record that messages left."""
        place = self._places.get(queue)
        if place is None:
            return queue.waits_for  # Nothing of it was ever recorded.
        if queue.syncs:
            self.log.must_sync = True
        self._needs = max(self._needs, queue.waits_for)
        return LOCAL + self.log.append(Dequeued(place, tuple(numbers), cause))

    def restate(self, queue: Queue, number: int) -> int:
        """Record how a message is that was given back."""
        place = self._places.get(queue)
        return 0 if place is None else self._append(self._restated(queue, place, number))

    def remember(self, queue: Queue, keys: list[str], numbers: list[int]) -> int:
        """Record keys that a queue remembers."""
        by = "" if queue.window is None else queue.window.by
        return self._append(DedupRemembered(self._place(queue), keys, numbers, by))

    def declared(self, thing: Destination) -> int:
        """Record that a queue or an exchange is there."""
        options = thing.options
        former = self._by_uuid.get(options.uuid, 0)
        if isinstance(options, QueueDeclared) and options.replicate not in KEPT_HERE:
            options = replace(options, replicate=CONFIGURATION)
        place = self._append(options) - LOCAL
        self._things[place] = thing
        self._places[thing] = place
        if isinstance(thing, Queue):
            self._marks[place] = Mark(options.replicate)
        if former in self._references:
            self._move_bindings(former, place)
            self._forget_reference(former)
        if options.replicate != NONE:
            self._by_uuid[options.uuid] = place
        return LOCAL + place

    def came(self, queue: Queue) -> None:
        """A queue is there whose messages are not in the cluster's log: record what is durable."""
        if not queue.durable or queue.logged:
            return
        self._write_for(queue)
        if queue.uid < LOCAL_UID:
            if queue not in self._places:
                self.declared(queue)
        elif queue.uuid in self._aside and not self._is_copy(queue.uuid, queue.keeper):
            self._give_back(queue, self._aside.pop(queue.uuid))
            place = self._places[queue]
            if self._marks[place].is_copy:
                # We took it out of the cluster's log: what came since is nowhere else, and whoever
                # gives the queue to that again without us is to be told of.
                self._mark(place, is_copy=False)

    def lowers(self, queue: Queue, last: int) -> int:
        """This broker is about to take a queue out of the cluster's log, which ends with `last`: it
        records what comes, changes and leaves from now on. Nothing of that is answered before the
        log is committed up to there.
        """
        self._needs = max(self._needs, last)
        self._write_for(queue)
        place = self._place(queue)
        sequence = self._mark(place, is_copy=True)
        if queue.window is not None:
            for keys, numbers in queue.window.parts(KEYS_IN_RECORD):
                sequence = self.remember(queue, keys, numbers)
        return sequence

    def copy(self, queue: Queue, messages: Iterable[Message]) -> int:
        """Record messages that are on such a queue already."""
        self.log.must_sync = True
        return self._append_encoded(_encoded(queue, self._place(queue), list(messages)))

    def hides(
        self, queue: Queue, bindings: Iterable[tuple[Exchange, str, Mapping[str, Any]]]
    ) -> int:
        """This broker is about to have a queue that the others know for itself. Return the place to
        wait for before they may forget it, 0 if all is recorded.
        """
        before, place = self.log.end, self._place(queue)
        self._unconfirmed = deque(each for each in self._unconfirmed if each[1] != place)
        if self._marks[place].level != NONE:
            self._mark(place, level=NONE)
            if queue.is_used:
                self.used(queue)
        for exchange, key, arguments in bindings:
            self.bound(exchange, queue, key, arguments)
        if self.log.end == before:
            return 0
        self.log.must_sync = True
        return self.end

    def confirm(self, queue: Queue, sequence: int) -> None:
        """The others know what there is of a queue of level configuration when this record is
        committed.
        """
        place = self._places.get(queue)
        if place is not None:
            self._unconfirmed.append((sequence, place))

    def _place_own(self, queue: Queue) -> list[Announce]:
        """Have a queue that was set aside for itself. Another one may have its name: of a time
        before that queue was made, unless this broker has all that the cluster has.
        """
        is_taken = queue.name in self._broker.queues
        if is_taken and not self.is_settled:
            return []
        del self._aside[queue.uuid]
        if is_taken:
            self.gone(queue)
            told = gone_here(queue.name, len(queue.messages), NAME_TAKEN)
            queue.close()
            return [told]
        self._broker.place_own(queue)
        self._write_for(queue)
        queue.promoted()
        return []

    def used(self, queue: Queue) -> None:
        """A queue has its first user."""
        self._append(QueueUsed(self._place(queue)))

    def gone(self, thing: Destination) -> int:
        """A queue or an exchange is gone."""
        if isinstance(thing, Queue):
            thing.local_writer = None
        place = self._places.pop(thing, 0)
        if not place:
            return 0
        del self._things[place]
        self._marks.pop(place, None)
        self._forget_uuid(thing.options.uuid, place)
        self._forget_bindings(place)
        if isinstance(thing, Queue):
            return self._append(QueueDeleted(place))
        return self._append(ExchangeDeleted(place))

    def let_go(self, queue: Queue) -> None:
        """The messages of a queue are in the cluster's log, or given up; the queue stays, and so do
        the bindings that the cluster does not have.
        """
        place = self._places.get(queue, 0)
        if self._ends.get(place):
            options = replace(queue.options, replicate=ALL)
            reference = self._append(options) - LOCAL
            self._move_bindings(place, reference)
            self.gone(queue)
            self._refer_to(reference, options)
        else:
            self.gone(queue)

    def rises(self, queue: Queue, own_numbers: int) -> int:
        """This broker gives a queue to the cluster's log, with its own numbers up to this one, when
        these are committed there.
        """
        self._needs = max(self._needs, own_numbers)
        return self._mark(self._place(queue), own_numbers=own_numbers)

    def put_aside(self, queue: Queue, own_numbers: int) -> int:
        """Another broker says what there is of a queue, for its messages are on their way into the
        cluster's log. If this one began that, keep what it has: that broker may not get all.
        Otherwise these are other messages, and go; return how many.
        """
        queue.local_writer = None
        place = self._places.get(queue, 0)
        if place and not self.is_settled:
            own_numbers = EVERY_NUMBER
        elif not place or self._marks[place].own_numbers != own_numbers:
            self.let_go(queue)
            return len(queue.messages)
        if self._marks[place].is_copy:
            # We took it out of the cluster's log, and decided no more before that was committed.
            # It is, or nobody would put it there again: what is here is nowhere else.
            self._mark(place, is_copy=False)
        aside = self._broker.unplaced_queue(replace(queue.options, replicate=CONFIGURATION))
        aside.is_replica = True
        del self._places[queue]
        self._things[place], self._places[aside] = aside, place
        self._aside[queue.uuid] = aside
        _copy(queue, aside, 0, own_numbers)
        return 0

    def left(self, queue: Queue, numbers: Iterable[int], cause: int) -> None:
        """Messages left a queue by a record of the cluster: they are not set aside any more, unless
        these are others, with numbers that another broker gave.
        """
        aside = self._aside.get(queue.uuid)
        if aside is None or not self._began(queue):
            return
        found = [each for each in numbers if each in aside.messages]
        if found:
            aside.remove(found, cause)
            self.log.must_sync = True
            self._append(Dequeued(self._places[aside], tuple(found), cause))

    def risen(self, queue: Queue) -> int:
        """Another broker has given a queue to the cluster's log. What that did not get goes; return
        how many messages.
        """
        aside = self._aside.get(queue.uuid)
        if aside is None or not self.is_settled:
            return 0
        # With other numbers of its own it was raised once more by another broker. What that had of
        # these is not known, and counts as well.
        first, last = 0, EVERY_NUMBER
        if self._began(queue):
            first, last = _recorded(queue), queue.own_numbers
        lost = sum(first < each <= last for each in aside.messages)
        self._drop_aside(queue.uuid, stays=True)
        return lost

    def forget(self, thing: Destination) -> None:
        """The cluster has deleted a queue or an exchange: what is set aside for it is gone, and
        what bindings lead to it or from it.
        """
        if thing.options.uuid in self._aside and self.is_settled:
            self._drop_aside(thing.options.uuid)
        place = self._by_uuid.get(thing.options.uuid, 0)
        if place in self._references:
            self._forget_reference(place)

    def set_aside(self, queue: Queue) -> None:
        """A queue is gone until a snapshot says whether it is there: keep its messages. It is out
        of all routes already.
        """
        queue.local_writer = None
        if queue in self._places:
            queue.is_replica = True
            self._aside[queue.uuid] = queue

    def bound(
        self, exchange: Exchange, thing: Destination, key: str, arguments: Mapping[str, Any]
    ) -> int:
        """Record a binding that the cluster's log does not have, if it is durable at both ends."""
        if not (exchange.options.durable and thing.options.durable):
            return 0
        source, target = self._reference(exchange), self._reference(thing)
        given = dict(arguments)
        if self._bindings.get((source, target, key)) == given:
            return self.end
        self._bind((source, target, key), given)
        return self._append(Bound(source, target, key, given))

    def unbound(self, exchange: Exchange, thing: Destination, key: str) -> int:
        """Such a binding is gone, if it was one."""
        source, target = self._known(exchange), self._known(thing)
        if not self._unbind((source, target, key)):
            return 0
        return self._append(Unbound(source, target, key))

    @property
    def kept(self) -> dict[Queue, int]:
        """The queues with messages that no other broker has, and how many each has."""
        queues = (thing for thing in self._things.values() if isinstance(thing, Queue))
        return {queue: count for queue in queues if (count := _only_here(queue))}

    # -- turns ------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether something was recorded in this turn."""
        return self.log.has_pending

    def seal(self, needs: int) -> None:
        """End of a turn: close what it recorded into a batch. It is answered when the cluster's log
        is committed up to what it `needs`, which is 0 where the turn recorded nothing there.
        """
        if self.log.has_pending:
            self.log.seal()
            self._waiting.append((self.log.last, max(needs, self._needs)))
        self._needs = 0

    def answer(self, committed: int) -> int:
        """Return up to where what is here is committed, with the cluster's log committed up to
        `committed`.
        """
        log = self.log
        log.committed = log.durable_to
        while self._unconfirmed and self._unconfirmed[0][0] <= committed:
            self._known_to_all(self._unconfirmed.popleft()[1])
        waiting = self._waiting
        while waiting and waiting[0][0] <= log.committed and waiting[0][1] <= committed:
            self._answered = waiting.popleft()[0]
        return LOCAL + self._answered

    def abandon(self) -> int:
        """This broker decides no more: nobody waits for what was recorded with records that the
        cluster's log may not get. Return what is answered.
        """
        self._unconfirmed.clear()
        self.is_settled = False
        self._waiting = deque((last, 0) for last, _ in self._waiting)
        self._needs = 0
        return LOCAL + self._answered

    def settle(self) -> list[Announce]:
        """This broker has all that the cluster has: what is still set aside is of queues that there
        are no more, or of no use. Tell of it; forget what bindings led to; bind again what a
        snapshot unbound.
        """
        self.is_settled = True
        told = []
        queues = {queue.uuid: queue for queue in self._broker.queues.values() if queue.uid > 0}
        for uuid, aside in list(self._aside.items()):
            queue, mark = queues.get(uuid), self._marks[self._places[aside]]
            if queue is None and mark.level == NONE:
                told += self._place_own(aside)
                continue
            if mark.is_copy:
                self._drop_aside(uuid, stays=queue is not None)  # The cluster has or had them.
                continue
            if queue is None:
                count, why = len(aside.messages), DELETED_THERE
                self._drop_aside(uuid)
            elif self._is_half_way(queue):
                if not self._broker.passive:
                    self._take_back(queue)
                continue
            else:
                count, why = self.risen(queue), IN_LOG
            if count:
                told.append(gone_here(aside.name, count, why))
        for place in list(self._marks):
            self._known_to_all(place)
        there = {thing.options.uuid for thing in self._broker.by_uid.values()}
        for place, record in list(self._references.items()):
            if record.uuid not in there or not self._ends.get(place):
                self._forget_reference(place)
        self._bind_all()
        return told

    def tick(self, now: int) -> None:
        """See now and then whether a checkpoint is worth its while."""
        if now < self._next:
            return
        self._next = now + INTERVAL
        wal = self.wal
        if self._parts is not None or wal.purge() or wal.live_size <= self._slack:
            return
        content = self._content()
        if wal.live_size > 2 * content + self._slack and content < wal.disk.room():
            self._is_wanted = True

    def turn(self) -> None:
        """End of a turn: begin a checkpoint that is wanted, or write one more part of it."""
        log = self.log
        log.recent.clear()  # Nobody reads it: bodies stay in memory.
        if self._is_wanted and self._parts is None and not log.has_pending:
            self.checkpoint()
        if self.is_busy and self._parts is not None:
            part = next(self._parts, None)
            if part is None:
                self._parts = None
                self.wal.end_checkpoint(log.last)
            elif len(part) >= self.wal.disk.room():
                self._parts = None
                self.wal.abandon_checkpoint()
            else:
                self.wal.chunk(part)
                self._part_mark = self.wal.mark(sync=False)

    def checkpoint(self) -> None:
        """Begin a checkpoint of what is here; nothing may be pending."""
        log = self.log
        self._is_wanted = False
        self.wal.begin_checkpoint(log.epoch, log.last, log.history, last=log.last)
        self._parts = self._snapshot(log.last)

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint waits for nothing but the next turn."""
        log = self.log
        return (
            self._parts is not None and self._part_mark <= log.answered_mark and not log.has_pending
        )

    # -- recovery ---------------------------------------------------------------------------------

    def recover(self, features: Iterable[str] = FEATURES) -> list[Announce]:
        """Bring back what a former process of this broker kept, beside what the cluster's log
        brought; give what the operator should know.
        """
        reader = LogReader(self.wal, self.system_id, features)
        try:
            for part in reader.chunks():
                self._fold(part.data)
        except LogDamaged as error:
            raise LogDamaged(
                f"local log: {error.text}", reason=error.reason, hint=DAMAGED
            ) from error
        self.log.recover(reader)
        for batch in reader.tail:
            self._fold(batch.parts)
        self._answered = self.log.last
        told = [
            Announce("warning", "store", f"local: {note}", {}, LogTrouble("cut off"), CUT_OFF)
            for note in reader.notes
        ]
        self._broker.local_log = self
        told += self._put_in_place()
        # Of all others there is nothing here yet.
        for queue in list(self._broker.queues.values()):
            if queue.local_writer is None:
                self.came(queue)
        return told

    def _put_in_place(self) -> list[Announce]:
        """Have what was read where it belongs."""
        broker = self._broker
        told: list[Announce] = []
        there = {queue.uuid: queue for queue in broker.queues.values() if queue.uid > 0}
        for place, thing in list(self._things.items()):
            name = thing.name
            if isinstance(thing, Exchange):
                if name in broker.exchanges:
                    self.gone(thing)
                else:
                    broker.place_exchange(thing)
                continue
            self._aside[thing.uuid] = thing
            found = there.get(thing.uuid)
            if found is None and thing.options.replicate == NONE:
                told += self._place_own(thing)
                continue
            self._by_uuid[thing.uuid] = place
            if found is not None:
                told += self._find_again(found)
        self._bind_all()
        return told

    def _is_half_way(self, queue: Queue) -> bool:
        """Whether what is set aside for a queue was on its way into the cluster's log."""
        is_rising = queue.logged and queue.options.replicate == CONFIGURATION
        return is_rising and self._began(queue)

    def _began(self, queue: Queue) -> bool:
        """Whether this broker began to give a queue to the cluster's log as that has it."""
        place = self._places[self._aside[queue.uuid]]
        is_ours = queue.keeper in ("", self.system_id)  # An earlier version does not tell.
        return is_ours and 0 < queue.own_numbers == self._marks[place].own_numbers

    def _is_copy(self, uuid: str, keeper: str) -> bool:
        """Whether what is set aside for a queue is a copy of what the cluster's log had, and it was
        not this broker that took the queue out of that.
        """
        return keeper != self.system_id and self._marks[self._places[self._aside[uuid]]].is_copy

    def _known_to_all(self, place: int) -> None:
        """The cluster has what there is of a queue, if that is of level configuration."""
        queue, mark = self._things.get(place), self._marks.get(place)
        if (
            not isinstance(queue, Queue)
            or mark is None
            or queue.uid < LOCAL_UID
            or queue.is_leaving
        ):
            return
        if mark.level == NONE:
            for uid, key in queue.bindings:
                exchange = self._broker.by_uid.get(uid)
                binding = exchange.binding(queue, key) if isinstance(exchange, Exchange) else None
                if isinstance(exchange, Exchange) and binding is not None:
                    if self._broker.records_binding(exchange, queue, binding.arguments):
                        self.unbound(exchange, queue, key)
        if mark.is_copy or mark.level == NONE:
            self._by_uuid[queue.uuid] = place
            self._mark(place, level=CONFIGURATION, is_copy=False)

    def _take_back(self, queue: Queue) -> None:
        """Put on a queue what the cluster's log did not get of it, when this broker decides again;
        it goes on to record it.
        """
        aside = self._aside.pop(queue.uuid)
        place = self._places.pop(aside)
        self._things[place], self._places[queue] = queue, place
        recorded = _recorded(queue)
        _copy(aside, queue, recorded, queue.own_numbers)
        self._write_for(queue)
        queue.go_on_rising(recorded)
        if queue.log_writer is not None:
            # This broker knows more keys by what it kept than the log may have.
            for _, keys in remembered(queue):
                queue.log_writer.append(keys)
        aside.close()

    def _find_again(self, queue: Queue) -> list[Announce]:
        """Give a queue what is set aside for it, unless its messages are in the cluster's log. A
        broker alone has none of such a queue, though it records what comes.
        """
        told: list[Announce] = []
        is_known = queue.options.replicate == CONFIGURATION and not queue.own_numbers
        if is_known and self._broker.records_durable_only and not queue.messages:
            queue.leave_log()
        if not queue.logged:
            self.came(queue)
        elif not self._began(queue):  # Else the end of that may not be committed.
            count = self.risen(queue)
            if count:
                told.append(gone_here(queue.name, count, IN_LOG))
        return told

    def _drop_aside(self, uuid: str, *, stays: bool = False) -> None:
        """Give up what is set aside for a queue, which is gone or `stays`."""
        queue = self._aside.pop(uuid)
        if stays:
            self.let_go(queue)
        else:
            self.gone(queue)
        queue.close()

    def _give_back(self, queue: Queue, aside: Queue) -> None:
        """Put messages that were set aside on their queue."""
        place = self._places.pop(aside)
        self._things[place] = queue
        self._places[queue] = place
        queue.is_used = queue.is_used or aside.is_used
        queue.pass_over(aside.last_number)
        _copy(aside, queue, 0, EVERY_NUMBER)
        queue.syncs = queue.syncs or aside.syncs or bool(queue.messages)
        aside.close()

    def _fold(self, data: bytes | Parts) -> None:
        """Apply records to what is read: queues that nobody can reach yet."""
        try:
            for entry in decode(data):
                if isinstance(entry, EnqueueRun):
                    thing = self._things.get(entry.queue)
                    if isinstance(thing, Queue):
                        thing.insert_run(entry.sequences, entry.payloads, entry.expiries)
                        thing.pass_over(entry.sequences[-1])
                else:
                    self._apply(*entry)
        except (LookupError, ValueError, TypeError, AttributeError, ProtocolViolation) as error:
            raise UpgradeNeeded(
                f"the local write-ahead log cannot be read: {error}", hint=UPGRADE_HINT
            ) from error

    def _apply(self, sequence: int, record: Record) -> None:
        things = self._things
        match record:
            case QueueDeclared() | ExchangeDeclared():
                self._read_declared(sequence, record)
            case QueueDeleted(place) | ExchangeDeleted(place):
                thing = things.pop(place, None)
                if thing is not None:
                    del self._places[thing]
                self._marks.pop(place, None)
                reference = self._references.pop(place, None)
                if reference is not None:
                    self._forget_uuid(reference.uuid, place)
                self._forget_bindings(place)
            case Bound(exchange, queue, key, arguments):
                self._bind((exchange, queue, key), arguments)
            case Unbound(exchange, queue, key):
                self._unbind((exchange, queue, key))
            case _:
                place = getattr(record, "queue", 0)
                found = things.get(place)
                if isinstance(found, Queue):
                    _apply_to(found, record)
                    if isinstance(record, LevelChanged):
                        mark = Mark(record.level, record.own_numbers, not record.logged)
                        self._marks[place] = mark

    def _read_declared(self, place: int, record: QueueDeclared | ExchangeDeclared) -> None:
        if place in self._things or place in self._references:
            return  # A checkpoint had it.
        broker = self._broker
        thing: Destination
        if isinstance(record, QueueDeclared):
            if record.replicate not in KEPT_HERE:
                self._refer_to(place, record)
                return
            thing = broker.unplaced_queue(record)
            thing.is_replica = True
            self._marks[place] = Mark(record.replicate)
        elif record.replicate == NONE and record.type in EXCHANGE_TYPES:
            thing = broker.unplaced_exchange(record)
        else:
            self._refer_to(place, record)
            return
        self._things[place] = thing
        self._places[thing] = place

    # -- what the above is made of ----------------------------------------------------------------

    def _write_for(self, queue: Queue) -> None:
        """Have a queue record its messages here."""
        queue.local_writer = self
        self.has_queues = True

    def _append(self, record: Record) -> int:
        if isinstance(record, OF_OBJECTS):  # What is here is durable.
            self.log.must_sync = True
        return LOCAL + self.log.append(record)

    def _append_encoded(self, parts: list[bytes]) -> int:
        return LOCAL + self.log.append_encoded(parts)

    def _mark(self, place: int, **changes: Any) -> int:
        """Record something else of a queue."""
        mark = self._marks[place] = self._marks[place]._replace(**changes)
        return self._append(_level_changed(place, mark))

    def _place(self, queue: Queue) -> int:
        """Return the place of a queue, declared if need be."""
        place = self._places.get(queue)
        return self.declared(queue) - LOCAL if place is None else place

    def _restated(self, queue: Queue, place: int, number: int) -> Requeued:
        message, due = queue.messages[number], queue.delayed.get(number, 0)
        return Requeued(place, number, message.delivery_count, message.annotations, due)

    def _refer_to(self, place: int, record: QueueDeclared | ExchangeDeclared) -> None:
        self._references[place] = record
        self._by_uuid[record.uuid] = place

    def _forget_reference(self, place: int) -> None:
        record = self._references.pop(place)
        self._forget_uuid(record.uuid, place)
        self._forget_bindings(place)
        is_queue = isinstance(record, QueueDeclared)
        self._append(QueueDeleted(place) if is_queue else ExchangeDeleted(place))

    def _forget_uuid(self, uuid: str, place: int) -> None:
        if self._by_uuid.get(uuid) == place:
            del self._by_uuid[uuid]

    def _known(self, thing: Destination) -> int:
        """Return the place of an end of a binding, 0 if it has none; built-in exchanges are known
        everywhere.
        """
        if LOCAL_UID < thing.uid < 0:
            return thing.uid
        return self._places.get(thing) or self._by_uuid.get(thing.options.uuid, 0)

    def _reference(self, thing: Destination) -> int:
        """Return the place of an end of a binding, recorded if need be."""
        place = self._known(thing)
        if not place:
            place = self._append(thing.options) - LOCAL
            self._refer_to(place, thing.options)
        return place

    def _move_bindings(self, place: int, other: int) -> None:
        """Record that what is bound to a place is bound to another one."""
        for binding in list(self._ends.get(place, ())):
            arguments = self._bindings[binding]
            self._unbind(binding)
            source, target = (other if end == place else end for end in binding[:2])
            self._bind((source, target, binding[2]), arguments)
            self._append(Bound(source, target, binding[2], arguments))

    def _bind(self, binding: Place, arguments: dict[str, Any]) -> None:
        self._bindings[binding] = arguments
        for end in binding[:2]:
            self._ends.setdefault(end, {})[binding] = None

    def _unbind(self, binding: Place) -> bool:
        if self._bindings.pop(binding, None) is None:
            return False
        for end in binding[:2]:
            self._ends[end].pop(binding, None)
        return True

    def _forget_bindings(self, place: int) -> None:
        for binding in list(self._ends.pop(place, ())):
            self._bindings.pop(binding, None)
            for end in binding[:2]:
                self._ends.get(end, {}).pop(binding, None)

    def _bind_all(self) -> None:
        """Bind what is not bound, as far as both ends are there."""
        if not self._bindings:
            return
        broker = self._broker
        all_things: list[Destination] = [*broker.queues.values(), *broker.exchanges.values()]
        found = {thing.options.uuid: thing for thing in all_things if thing.uid > 0}
        built_in = {DEFAULT_EXCHANGE: ""} | {
            uid: name for name, (uid, _) in BUILT_IN_EXCHANGES.items()
        }

        def end(place: int) -> Destination | None:
            if place < 0:
                return broker.exchanges.get(built_in.get(place, ""))
            thing = self._things.get(place) or self._references.get(place)
            if isinstance(thing, QueueDeclared | ExchangeDeclared):
                return found.get(thing.uuid)
            return thing if thing is not None and broker.by_uid.get(thing.uid) is thing else None

        for (source, target, key), arguments in self._bindings.items():
            exchange, thing = end(source), end(target)
            if isinstance(exchange, Exchange) and thing is not None:
                if exchange.binding(thing, key) is None:
                    exchange.bind(thing, key, arguments)

    def _content(self) -> int:
        """Return the bytes that a checkpoint would take, roughly."""
        size = PER_OBJECT * (len(self._things) + len(self._references) + len(self._bindings))
        for thing in self._things.values():
            if isinstance(thing, Queue):
                size += thing.bytes + PER_MESSAGE * len(thing.messages)
        return size

    def _snapshot(self, point: int) -> Iterator[bytes]:
        """Yield what is here in parts: objects, bindings, messages."""
        records = self._objects(point)
        while found := list(islice(records, OBJECTS_AT_ONCE)):
            yield b"".join(encode_record(place, record) for place, record in found)
        for place in list(self._things):
            yield from self._messages(place)

    def _messages(self, place: int) -> Iterator[bytes]:
        """Yield the messages of a queue, encoded, in parts; what leaves meanwhile is left out, and
        what is packed stays so. Meanwhile the queue may be set aside, and be given back: it is the
        one that is there.
        """
        cursor = 0
        while isinstance(queue := self._things.get(place), Queue):
            # What came since it began to rise is in the cluster's log only.
            last = queue.own_numbers if queue.logged and not queue.is_leaving else EVERY_NUMBER
            found = queue.part_after(cursor, last, CHUNK)
            if not found:
                break
            if isinstance(found, Segment):
                cursor = found.sequences[-1]
                columns = found.sequences, found.sizes, found.expiries or ()
                yield encode_columns(place, *columns, found.body())
            else:
                cursor = found[-1].sequence
                yield b"".join(_encoded(queue, place, found))

    def _objects(self, point: int) -> Iterator[tuple[int, Record]]:
        for place in [*self._references, *self._things]:
            if place > point:
                continue  # It comes with the log.
            thing = self._things.get(place) or self._references.get(place)
            if isinstance(thing, QueueDeclared | ExchangeDeclared):
                yield place, thing
            elif thing is not None:
                if not isinstance(thing, Queue):
                    yield place, thing.options
                else:
                    mark = self._marks[place]
                    yield place, replace(thing.options, replicate=mark.level)
                    if mark.own_numbers or mark.is_copy:
                        yield 0, _level_changed(place, mark)
                    if thing.is_used:
                        yield 0, QueueUsed(place)
                    last = thing.last_number
                    if last and not thing.logged and last not in thing.messages:
                        yield 0, Dequeued(place, (last,))  # It is not given once more.
                    if thing.window is not None:
                        for keys, numbers in thing.window.parts(KEYS_IN_RECORD):
                            yield 0, DedupRemembered(place, keys, numbers, thing.window.by)
        for (source, target, key), arguments in list(self._bindings.items()):
            yield 0, Bound(source, target, key, arguments)


def _apply_to(queue: Queue, record: Record) -> None:
    """Apply a record about a queue that was read."""
    match record:
        case Dequeued():
            queue.remove(record.sequences, record.cause)
            queue.pass_over(max(record.sequences, default=0))
        case Requeued():
            queue.restate(record.sequence, record.delivery_count, record.annotations)
            if record.due or queue.delayed:
                queue.postpone(record.sequence, record.due)
        case LevelChanged():
            queue.relabel(record.level)
        case QueueUsed():
            queue.is_used = True
        case DedupRemembered():
            # The policies of the cluster's log, as they are now, say what this queue remembers:
            # other keys that it had before would take the places of its own.
            if queue.window is not None and record.by in ("", queue.window.by):
                queue.window.restore(record.keys, record.sequences)
        case _:
            pass


def _level_changed(place: int, mark: Mark) -> LevelChanged:
    """Return the record of a mark."""
    return LevelChanged(place, mark.level, logged=not mark.is_copy, own_numbers=mark.own_numbers)


def _only_here(queue: Queue) -> int:
    """Return how many messages of a queue are not in the log of the cluster: all, or of one that is
    on its way into that, those that are still to be recorded there.
    """
    if not queue.logged:
        return len(queue.messages)
    recorded, last = queue.unrecorded
    return queue.ordering.count_after(recorded) - queue.ordering.count_after(last)


def _recorded(queue: Queue) -> int:
    """Return up to which of its own numbers the cluster's log has had a queue: they come in turn.
    An earlier version does not tell, and then it is what is there.
    """
    own = (number for number in queue.messages if number <= queue.own_numbers)
    return max(queue.recorded, max(own, default=0))


def _copy(queue: Queue, other: Queue, after: int, last: int) -> None:
    """Put on another queue what is on this one, with numbers above `after`, up to `last`."""
    moved = [
        message for message in queue.messages_after(after, EVERY_NUMBER) if message.sequence <= last
    ]
    if moved:
        other.insert_copies(
            [message.sequence for message in moved],
            [message.body() for message in moved],
            [message.expires for message in moved] if queue.may_expire else [],
        )
    for message in moved:
        number = message.sequence
        if message.delivery_count or message.annotations:
            other.restate(number, message.delivery_count, message.annotations)
        if number in queue.delayed:
            other.postpone(number, queue.delayed[number])
    # What is set aside follows no policy: it may know other keys than are asked for by now.
    known, asked = queue.window, other.window
    if known is not None and asked is not None and known.by == asked.by:
        for keys, numbers in known.parts(KEYS_IN_RECORD):
            asked.restore(keys, numbers)


def _encoded(queue: Queue, place: int, messages: list[Message]) -> list[bytes]:
    """Return messages of a queue, encoded, with how each is."""
    parts = enqueue_parts(
        place,
        [message.sequence for message in messages],
        [message.body() for message in messages],
        [message.expires for message in messages],
    )
    for message in messages:
        number, count = message.sequence, message.delivery_count
        due = queue.delayed.get(number, 0)
        if count or message.annotations or due:
            parts.append(encode_record(0, Requeued(place, number, count, message.annotations, due)))
    return parts
